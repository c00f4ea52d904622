/*
 * host_ssh.c - `unisono-host --ssh PROGRAM HOSTS [FIRST:ALL]`: the launcher over plain OpenSSH, beside the
 * controller, and `unisono-host --order`, which it starts on the hosts.
 *
 * One ssh for each host. The agent's order (where the controller listens, which ranks are its own)
 * goes over standard input, so that no command line shows it, and a login shell sees only a path.
 * What comes back is passed on line by line:
 *
 *   unisono-host key ...   its announcement (group/keyring.h), if it is of the host's own rank
 *   unisono-host joined    it has reached the controller; not passed on
 *   unisono-check {...}    its answer to `unisono check`, if that is what it was asked
 *   anything else          behind the host's name, as long as it is not too much
 *
 * A host that ends before it has joined fails the launch. Later the others go on without it: their
 * agents live as long as their connections to the controller. Single thread.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

#include "base/text.h"
#include "group/keyring.h"
#include "train/remote/host_internal.h"

#define ORDER_MAX 8192
#define LINE_MAX_BYTES 4096
#define PRINTED_MAX (256u << 10) /* bytes of a host's output that are passed on */
#define ANNOUNCEMENT "unisono-host key" /* group/keyring.h */
#define ANSWER "unisono-check {" /* host_check.c */

/* ---- on a host ---- */

static bool is_ordered(const char *line)
{
    static const char *const names[] = { UNI__JOIN_VARIABLE "=", UNI__SECRET_FILE_VARIABLE "=",
                                         UNI__RANKS_VARIABLE "=" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(line, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

int host_read_order(uni_error *err)
{
    char text[ORDER_MAX];
    size_t size = 0;
    /* Byte by byte: nothing behind the empty line is read. */
    while (size < 2 || text[size - 1] != '\n' || text[size - 2] != '\n') {
        ssize_t got = size < sizeof text - 1 ? read(STDIN_FILENO, text + size, 1) : 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return uni_error_set(err, UNI_EFORMAT,
                                 "the order on standard input is truncated: unisono-host is "
                                 "started by `unisono run`");
        size += (size_t)got;
    }
    text[size] = '\0';
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line && line[0]; line = strsep(&rest, "\n")) {
        char *equals = strchr(line, '=');
        if (!is_ordered(line))
            return uni_error_set(err, UNI_EFORMAT,
                                 "the order on standard input is not understood: the same release "
                                 "of unisono must be on all hosts");
        *equals = '\0';
        if (setenv(line, equals + 1, 1) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for an order");
    }
    return 0;
}

bool host_take_ranks(uni__launched *out)
{
    const char *text = getenv(UNI__RANKS_VARIABLE);
    int used = 0;
    *out = (uni__launched){ .launcher = "ssh" };
    bool fine = text &&
                sscanf(text, "%d:%d:%d%n", &out->rank, &out->local_size, &out->size, &used) == 3 &&
                !text[used] && out->rank >= 0 && out->local_size > 0 &&
                out->local_size <= out->size - out->rank;
    unsetenv(UNI__RANKS_VARIABLE);
    return fine;
}

/* ---- beside the controller ---- */

typedef struct connection {
    const uni__host_slots *host;
    int first_rank, size;
    pid_t pid;
    int to, from;
    /* checks: it is asked by `unisono check`. */
    bool checks, joined, announced;
    size_t printed;
    char line[LINE_MAX_BYTES];
    size_t used;
} connection;

static void not_for_us(int number) {}

/* 'a path', for any shell. */
static char *quoted(const char *path)
{
    uni__text text = { 0 };
    uni__text_add_format(&text, "exec '");
    for (const char *at = path; *at; at++)
        uni__text_add_format(&text, *at == '\'' ? "'\\''" : "%c", *at);
    uni__text_add_format(&text, "' --order");
    if (text.failed)
        uni__text_free(&text);
    return text.data;
}

static bool give_order(const connection *to)
{
    const char *secret_file = getenv(UNI__SECRET_FILE_VARIABLE);
    char text[ORDER_MAX];
    int size = snprintf(text, sizeof text,
                        UNI__JOIN_VARIABLE "=%s\n" UNI__SECRET_FILE_VARIABLE
                                           "=%s\n" UNI__RANKS_VARIABLE "=%d:%d:%d\n\n",
                        getenv(UNI__JOIN_VARIABLE), secret_file ? secret_file : "", to->first_rank,
                        to->host->slots, to->size);
    /* It fits the pipe. If ssh has ended already, its own words say why. */
    return size < (int)sizeof text && (write(to->to, text, (size_t)size) == size || errno == EPIPE);
}

static bool start(connection *self, const char *program, const char *command)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) < 0)
        return false;
    if (pipe2(out, O_CLOEXEC) < 0) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    pid_t parent = getpid();
    self->pid = fork();
    if (self->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent && dup2(in[0], 0) >= 0 && dup2(out[1], 1) >= 0 &&
            dup2(out[1], 2) >= 0)
            execl(program, program, "-T", "-x", "-a", "-o", "BatchMode=yes", "-o",
                  "ClearAllForwardings=yes", self->host->name, command, (char *)NULL);
        fprintf(stderr, "cannot execute %s: %s\n", program, strerror(errno));
        _exit(126);
    }
    close(in[0]);
    close(out[1]);
    self->to = in[1];
    self->from = out[0];
    return self->pid > 0 && give_order(self);
}

/* Its own rank and no other: a host cannot speak for another one. */
static bool is_own_announcement(const connection *self)
{
    uni__announcement it;
    size_t length = uni__announcement_read(self->line, &it);
    return length > 0 && !self->line[length] && it.rank == (uint32_t)self->first_rank;
}

/* Its output has an end, or it would fill the controller's disk. */
static void print_line(connection *self, const char *line)
{
    bool printed = self->printed <= PRINTED_MAX;
    self->printed += strlen(self->host->name) + strlen(line) + 3;
    if (printed)
        printf("%s: %s\n", self->host->name,
               self->printed <= PRINTED_MAX ? line : "its further output is not kept");
}

static void take_line(connection *self)
{
    self->line[self->used] = '\0';
    self->used = 0;
    bool announces = is_own_announcement(self);
    bool answers = self->checks && strncmp(self->line, ANSWER, strlen(ANSWER)) == 0;
    if (strcmp(self->line, "unisono-host joined") == 0) {
        self->joined = true;
        return;
    }
    /* The controller finds an announcement anywhere in a line. */
    if (!announces && strstr(self->line, ANNOUNCEMENT)) {
        print_line(self, "an announcement for a rank that is not its own is not passed on");
    } else if ((announces && !self->announced) || (answers && !self->joined)) {
        self->announced |= announces;
        self->joined |= answers;
        printf("%s\n", self->line);
    } else {
        print_line(self, self->line);
    }
    fflush(stdout);
}

/* False: all has been read. */
static bool take_text(connection *self)
{
    char bytes[LINE_MAX_BYTES];
    ssize_t got = read(self->from, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR)
        return true;
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] == '\n' || self->used == sizeof self->line - 1)
            take_line(self);
        if (bytes[i] != '\n' && bytes[i] != '\r')
            self->line[self->used++] = bytes[i];
    }
    if (got <= 0 && self->used > 0)
        take_line(self);
    return got > 0;
}

/* The exit code of the launch so far: 0, or not if this host never joined. */
static int take_end(connection *self, const char *agent)
{
    int status = 0;
    close(self->from);
    close(self->to);
    self->from = -1;
    while (waitpid(self->pid, &status, 0) < 0 && errno == EINTR)
        ;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (self->joined) {
        if (code != 0)
            printf("%s: the connection ended with code %d\n", self->host->name, code);
        fflush(stdout);
        return 0;
    }
    if (code == 126 || code == 127)
        printf("unisono-ssh: host %s cannot execute %s: unisono must be there at the same path\n",
               self->host->name, agent);
    else if (code == 255)
        printf("unisono-ssh: ssh could not connect to host %s, or log in there without a "
               "password: try `ssh %s true`\n",
               self->host->name, self->host->name);
    else
        printf("unisono-ssh: unisono-host on host %s ended with code %d before it had reached "
               "the controller\n",
               self->host->name, code);
    fflush(stdout);
    return code ? code : 1;
}

static int follow(connection *all, int count, const char *agent)
{
    struct pollfd *waiting = calloc((size_t)count, sizeof *waiting);
    int code = waiting ? 0 : 70;
    /* Without a reader of what hosts say there is no controller. */
    for (int open = count; open > 0 && code == 0; code = ferror(stdout) ? 70 : code) {
        for (int i = 0; i < count; i++)
            waiting[i] = (struct pollfd){ .fd = all[i].from, .events = POLLIN };
        if (poll(waiting, (nfds_t)count, -1) < 0 && errno != EINTR)
            code = 70;
        for (int i = 0; i < count && code == 0; i++)
            if (all[i].from >= 0 && waiting[i].revents && !take_text(&all[i])) {
                code = take_end(&all[i], agent);
                open--;
            }
    }
    free(waiting);
    return code;
}

int host_ssh(const char *agent, const char *program, const char *list, const char *place)
{
    uni__host_slots *hosts = NULL;
    uni_error err = { 0 };
    int count = 0, size = 0, first = 0, all_ranks = 0, code = 70;
    struct sigaction action = { .sa_handler = not_for_us };
    (void)sigaction(SIGPIPE, &action, NULL); /* not SIG_IGN: that would stay with ssh */
    const char *join = getenv(UNI__JOIN_VARIABLE);
    bool placed = !place || sscanf(place, "%d:%d", &first, &all_ranks) == 2;
    if (!join || !placed || uni__hosts_parse(list, &hosts, &count, &err) < 0) {
        fprintf(stderr, "unisono-host: --ssh is for `unisono run` to use; %s\n", err.message);
        return 64;
    }
    connection *all = calloc((size_t)count, sizeof *all);
    char *command = quoted(agent);
    for (int i = 0; i < count; i++)
        size += hosts[i].slots;
    if (place)
        size = all_ranks;
    bool fine = all && command, checks = strncmp(join, "check:", strlen("check:")) == 0;
    for (int i = 0, rank = first; i < count && fine; rank += hosts[i++].slots) {
        all[i] =
            (connection){ .host = &hosts[i], .first_rank = rank, .size = size, .checks = checks };
        fine = start(&all[i], program, command);
    }
    if (fine)
        code = follow(all, count, agent);
    else
        fprintf(stderr, "unisono-ssh: cannot start %s: %s\n", program, strerror(errno));
    free(command);
    free(all);
    free(hosts);
    return code; /* what is left of them ends with this process */
}
