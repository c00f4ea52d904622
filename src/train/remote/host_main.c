/*
 * host_main.c - the program unisono-host: the agent of a run on one of its hosts (the design is in
 * host_internal.h).
 *
 * Started by mpirun, srun or ssh, never by hand. Where the controller listens and its public key
 * come in the environment, or over ssh on standard input; the agent makes a key pair of its own and
 * announces the public half on its standard output (group/keyring.h). It ends, with every worker
 * below it, when the controller says so or the link to it is gone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "group/host.h"
#include "group/keyring.h"
#include "train/remote/host_internal.h"

#define CONNECT_MS 20000
#define RETRY_MS 25
#define RETRY_FOR_MS 6000
#define MAX_LOCAL 1024

void host_over(host_agent *self, int exit_code)
{
    pthread_mutex_lock(&self->lock);
    if (!self->over)
        self->exit_code = exit_code;
    self->over = true;
    pthread_cond_broadcast(&self->cond);
    pthread_mutex_unlock(&self->lock);
}

/* A port of this host for a rank's framework; TensorFlow joins by SO_REUSEPORT, PyTorch by
 * SO_REUSEADDR (train/environment.c). 0: none. */
int host_hold_port(host_agent *self, const char *address)
{
    struct sockaddr_in where = { .sin_family = AF_INET };
    socklen_t length = sizeof where;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int *grown = realloc(self->held_ports, (size_t)(self->num_held + 1) * sizeof *grown);
    if (grown)
        self->held_ports = grown;
    if (fd < 0 || !grown || inet_pton(AF_INET, address, &where.sin_addr) != 1 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&where, sizeof where) < 0 ||
        getsockname(fd, (struct sockaddr *)&where, &length) < 0) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    self->held_ports[self->num_held++] = fd;
    return ntohs(where.sin_port);
}

static bool read_hex(const char *text, uint8_t *out, size_t want)
{
    size_t size = 0;
    return sodium_hex2bin(out, want, text, strlen(text), NULL, &size, NULL) == 0 && size == want;
}

/* launchers.h has its form. */
static int read_join(host_agent *self, const char *text, uni_error *err)
{
    int version = 0, seal = 0, used = 0;
    char job[2 * UNI__JOB_BYTES + 1], key[2 * UNI__KEY_BYTES + 1];
    if (sscanf(text, "%d:%32[0-9a-f]:%u:%d:%d:%64[0-9a-f]:%n", &version, job,
               &self->credentials.attempt, &seal, &self->port, key, &used) != 6 ||
        !used || version != 2 || !read_hex(job, self->credentials.job, UNI__JOB_BYTES) ||
        !read_hex(key, self->credentials.controller_key, UNI__KEY_BYTES))
        return uni_error_set(err, UNI_EFORMAT,
                             "%s is not understood: the same release of unisono "
                             "must be on all hosts",
                             UNI__JOIN_VARIABLE);
    self->credentials.seal = seal != 0;
    for (const char *at = text + used; *at && self->num_addresses < UNI__NETWORK_MAX;) {
        size_t length = strcspn(at, ",");
        snprintf(self->addresses[self->num_addresses++], sizeof self->addresses[0], "%.*s",
                 (int)(length < 47 ? length : 47), at);
        at += length + (at[length] == ',');
    }
    return 0;
}

/* Takes a variable out of the environment. */
static char *take_variable(const char *name)
{
    char *value = getenv(name), *copy = value ? strdup(value) : NULL;
    unsetenv(name);
    return copy;
}

static int look_around(host_agent *self, uni_error *err)
{
    char *join = take_variable(UNI__JOIN_VARIABLE),
         *secret_file = take_variable(UNI__SECRET_FILE_VARIABLE);
    int status = 0;
    if (!join)
        status = uni_error_set(err, UNI_ESTATE,
                               "unisono-host is started by `unisono run` on other hosts; run "
                               "`unisono --help` instead");
    if (status == 0)
        status = read_join(self, join, err);
    if (status == 0)
        status = uni__credentials_make_pair(&self->credentials, err);
    if (status == 0 && secret_file && secret_file[0])
        status = uni__credentials_read_secret(&self->credentials, secret_file, err);
    if (status == 0 && self->by_ssh && !host_take_ranks(&self->launched))
        status = uni_error_set(err, UNI_EFORMAT, "%s is not understood", UNI__RANKS_VARIABLE);
    if (status == 0 && !self->by_ssh && !uni__launched_look(&self->launched))
        status = uni_error_set(err, UNI_ESTATE,
                               "neither mpirun nor srun seems to have started this process: their "
                               "variables are missing");
    if (status == 0 && (self->launched.local_size < 1 || self->launched.local_size > MAX_LOCAL))
        status = uni_error_set(
            err, UNI_ESTATE, "the launcher did not say how many processes it started on this host");
    free(secret_file);
    free(join);
    return status;
}

/* The controller accepts no key that did not come this way. */
static int announce(host_agent *self, uni_error *err)
{
    char line[UNI__ANNOUNCEMENT_MAX], *path = take_variable(UNI__ANNOUNCE_VARIABLE);
    int status = 0;
    uni__announcement_write(&self->credentials, (uint32_t)self->workers[0].rank, line);
    if (path)
        status = uni__write_file(path, line, strlen(line), false, err);
    else if (fputs(line, stdout) == EOF || fflush(stdout) == EOF)
        status = uni_error_set_errno(err, errno, "cannot announce this host to the controller");
    free(path);
    return status;
}

int host_make_scratch(host_agent *self, uni_error *err)
{
    const char *base = getenv("TMPDIR");
    snprintf(self->scratch, sizeof self->scratch, "%.40s/unisono-XXXXXX",
             base && base[0] == '/' && strlen(base) < 40 ? base : "/tmp");
    return mkdtemp(self->scratch)
               ? 0
               : uni_error_set_errno(err, errno, "cannot make a directory %s", self->scratch);
}

static int connect_now(host_agent *self, uni_error *err)
{
    const char *addresses[UNI__NETWORK_MAX];
    for (int i = 0; i < self->num_addresses; i++)
        addresses[i] = self->addresses[i];
    return uni__link_connect(self->group, addresses, self->num_addresses, self->port,
                             &self->credentials, (uint32_t)self->workers[0].rank, CONNECT_MS,
                             &host_link_events, self, err);
}

static void begin(void *argument)
{
    host_agent *self = argument;
    uni_error err = { 0 };
    self->begun_ns = uni__monotonic_ns();
    if (uni__group_handle_signals(self->group, true, &err) < 0 || connect_now(self, &err) < 0) {
        fprintf(stderr, "unisono-host: %s\n", err.message);
        host_over(self, 1);
    }
}

static void connect_again(void *argument)
{
    host_agent *self = argument;
    uni_error err = { 0 };
    if (connect_now(self, &err) < 0)
        host_over(self, 1);
}

/* The controller turns connections away when too many wait; an attack must not cost us the run. */
bool host_connect_later(host_agent *self)
{
    uint64_t waited_ms = (uni__monotonic_ns() - self->begun_ns) / 1000000u;
    if (waited_ms > RETRY_FOR_MS)
        return false;
    self->retries++;
    uni__group_after(self->group, RETRY_MS << (self->retries < 5 ? self->retries : 5),
                     connect_again);
    return true;
}

static int work(host_agent *self, uni_error *err)
{
    uni__host host;
    uni__host_look(&host);
    self->cpus = host.cpus;
    self->memory = (double)host.memory;
    self->num_workers = self->launched.local_size;
    self->workers = calloc((size_t)self->num_workers, sizeof *self->workers);
    if (!self->workers)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d workers", self->num_workers);
    for (int i = 0; i < self->num_workers; i++)
        self->workers[i] = (host_worker){ .donor = -1, .memory_fd = -1, .transfer = { .fd = -1 } };
    UNI_TRY(host_gather(self, err));
    UNI_TRY(announce(self, err));
    UNI_TRY(uni__group_new(&self->group, self->num_workers, -1, &host_group_events, self, err));
    uni__group_post(self->group, begin, self);
    pthread_mutex_lock(&self->lock);
    while (!self->over)
        pthread_cond_wait(&self->cond, &self->lock);
    pthread_mutex_unlock(&self->lock);
    uni__group_free(self->group);
    return 0;
}

void host_tidy(const host_agent *self)
{
    if (self->tidy)
        uni__launcher_remove_session(uni__launcher_session());
}

static void not_meant_for_us(int number) {}

static void overhear(int number)
{
    struct sigaction action = { .sa_handler = not_meant_for_us, .sa_flags = SA_RESTART };
    (void)sigaction(number, &action, NULL);
}

/* When the process of a rank ends without MPI_Finalize, Hydra tells the others of its host by
 * SIGUSR1, which would be their end. The agent says which process ended. When ssh ends, there is
 * no reader for what the agent prints. A function and not SIG_IGN: that would stay with the
 * workers. */
static void overhear_launchers(void)
{
    overhear(SIGUSR1);
    overhear(SIGPIPE);
}

int main(int argc, char **argv)
{
    static host_agent self = { .lock = PTHREAD_MUTEX_INITIALIZER,
                               .cond = PTHREAD_COND_INITIALIZER };
    uni_error err = { 0 };
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "--ssh") == 0)
        return host_ssh(argv[0], argv[2], argv[3], argv[4]);
    self.by_ssh = argc == 2 && strcmp(argv[1], "--order") == 0;
    if (self.by_ssh && host_read_order(&err) < 0) {
        fprintf(stderr, "unisono-host: %s\n", err.message);
        return 70;
    }
    const char *join = getenv(UNI__JOIN_VARIABLE);
    if (join && strncmp(join, "check:", 6) == 0)
        return host_check(join);
    /* The plug-in is looked for here; UCX would handle the signals of crashes. */
    (void)setenv("UCX_HANDLE_ERRORS", "none", 0);
    overhear_launchers();
    if (!self.by_ssh)
        uni__launcher_daemon_find(&self.daemon); /* its end is news for the controller */
    int status = look_around(&self, &err);
    if (status == 0 && self.launched.local_rank > 0)
        return host_donate(&self);
    if (status == 0)
        status = work(&self, &err);
    for (int i = 0; i < self.num_workers; i++) {
        host_worker_forget(&self.workers[i]);
        uni_value_free(self.workers[i].variables);
    }
    host_tidy(&self);
    if (self.scratch[0] && uni__remove_tree(self.scratch, NULL) < 0)
        fprintf(stderr, "unisono-host: %s could not be removed\n", self.scratch);
    free(self.workers);
    free(self.held_ports);
    if (status < 0) {
        fprintf(stderr, "unisono-host: %s\n", err.message);
        return 70;
    }
    return self.exit_code;
}
