/*
 * host_join.c - the processes that the launcher started on one host find each other
 * (host_internal.h).
 *
 * Over an abstract socket: it leaves no file, and belongs to the host's network namespace. Its name
 * is made from the job, which is random and no other user's to know, and both sides check that the
 * other is the same user. A donor sends: i32 rank, u32 size, then a msgpack list of variables.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/clock.h"
#include "train/remote/host_internal.h"

#define GATHER_MS 30000
#define MAX_VARIABLES_BYTES (1u << 20)

extern char **environ;

typedef struct donation {
    int32_t rank;
    uint32_t size;
} donation;

bool host_is_launchers(const char *pair)
{
    static const char *const prefixes[] = { "OMPI_", "PMIX_", "PMI_",   "PMI2_", "ORTE_",
                                            "PRTE_", "SLURM", "HYDRA_", "HYDI_", "MPI_LOCAL" };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(pair, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

uni_value *host_own_variables(void)
{
    uni_value *list = uni_value_list();
    for (char **pair = environ; *pair; pair++)
        if (host_is_launchers(*pair) && uni_list_take(list, uni_value_string(*pair)) < 0)
            break;
    return list;
}

static socklen_t meeting_place(const host_agent *self, struct sockaddr_un *out)
{
    static const char label[] = "unisono 2 meeting place";
    uint8_t hash[16];
    char hex[33];
    /* Where several nodes of Slurm are one machine, each has a place of its own. */
    const char *node = getenv("SLURMD_NODENAME");
    crypto_generichash_state state;
    crypto_generichash_init(&state, self->credentials.job, UNI__JOB_BYTES, sizeof hash);
    crypto_generichash_update(&state, (const uint8_t *)label, sizeof label);
    crypto_generichash_update(&state, (const uint8_t *)&self->credentials.attempt,
                              sizeof self->credentials.attempt);
    if (node)
        crypto_generichash_update(&state, (const uint8_t *)node, strlen(node));
    crypto_generichash_final(&state, hash, sizeof hash);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "unisono-%s", hex);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static bool read_all(int fd, void *data, size_t size, uint64_t deadline)
{
    for (size_t at = 0; at < size;) {
        struct pollfd poller = { .fd = fd, .events = POLLIN };
        uint64_t now = uni__monotonic_ns();
        if (now >= deadline || poll(&poller, 1, (int)((deadline - now) / 1000000u) + 1) <= 0)
            return false;
        ssize_t n = read(fd, (char *)data + at, size - at);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool take_donation(host_agent *self, int fd, int slot, uint64_t deadline)
{
    donation head;
    host_worker *worker = &self->workers[slot];
    if (!same_user(fd) || !read_all(fd, &head, sizeof head, deadline) ||
        head.size > MAX_VARIABLES_BYTES)
        return false;
    void *bytes = malloc(head.size + 1u);
    bool fine = bytes && read_all(fd, bytes, head.size, deadline) &&
                uni__msgpack_read(&worker->variables, bytes, head.size, NULL) == 0;
    free(bytes);
    worker->rank = head.rank;
    worker->donor = fine ? fd : -1;
    return fine;
}

static int by_rank(const void *a, const void *b)
{
    return ((const host_worker *)a)->rank - ((const host_worker *)b)->rank;
}

int host_gather(host_agent *self, uni_error *err)
{
    struct sockaddr_un place;
    socklen_t length = meeting_place(self, &place);
    uint64_t deadline = uni__monotonic_ns() + GATHER_MS * 1000000ull;
    for (int i = 0; i < self->num_workers && self->by_ssh; i++)
        self->workers[i].rank = self->launched.rank + i;
    if (self->by_ssh)
        return 0;
    self->workers[0].rank = self->launched.rank;
    self->workers[0].variables = host_own_variables();
    if (self->num_workers == 1)
        return 0;
    int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), count = 1;
    if (door < 0 || bind(door, (struct sockaddr *)&place, length) < 0 ||
        listen(door, self->num_workers) < 0) {
        int saved = errno;
        if (door >= 0)
            close(door);
        return uni_error_set_errno(err, saved, "cannot meet the other processes of this host");
    }
    while (count < self->num_workers) {
        struct pollfd poller = { .fd = door, .events = POLLIN };
        uint64_t now = uni__monotonic_ns();
        if (now >= deadline || poll(&poller, 1, (int)((deadline - now) / 1000000u) + 1) <= 0)
            break;
        int fd = accept4(door, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && take_donation(self, fd, count, deadline))
            count++;
        else if (fd >= 0)
            close(fd);
    }
    close(door);
    if (count < self->num_workers)
        return uni_error_set(err, UNI_ETIMEOUT,
                             "only %d of the %d processes that the launcher started on this host "
                             "came together within %d s",
                             count, self->num_workers, GATHER_MS / 1000);
    qsort(self->workers, (size_t)count, sizeof *self->workers, by_rank);
    return 0;
}

int host_donate(host_agent *self)
{
    struct sockaddr_un place;
    socklen_t length = meeting_place(self, &place);
    uint64_t deadline = uni__monotonic_ns() + GATHER_MS * 1000000ull;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (fd >= 0 && connect(fd, (struct sockaddr *)&place, length) < 0) {
        if (uni__monotonic_ns() > deadline) {
            fprintf(stderr, "unisono-host: the first process of this host did not come up\n");
            return 1;
        }
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    if (fd < 0 || !same_user(fd))
        return 1;
    uni_value *mine = host_own_variables();
    void *bytes = NULL;
    size_t size = 0;
    char byte;
    if (uni__msgpack_write(&bytes, &size, mine, NULL) < 0)
        return 1;
    donation head = { .rank = self->launched.rank, .size = (uint32_t)size };
    bool sent = send(fd, &head, sizeof head, MSG_NOSIGNAL) == (ssize_t)sizeof head;
    for (size_t at = 0; sent && at < size;) {
        ssize_t n = send(fd, (char *)bytes + at, size - at, MSG_NOSIGNAL);
        sent = n > 0 || errno == EINTR;
        at += n > 0 ? (size_t)n : 0;
    }
    free(bytes);
    uni_value_free(mine);
    /* Until the first one ends. */
    ssize_t n;
    do
        n = sent ? read(fd, &byte, 1) : 0;
    while (n > 0 || (n < 0 && errno == EINTR));
    return sent ? 0 : 1;
}
