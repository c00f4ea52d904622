/*
 * rendezvous_socket.c - the rendezvous over one packet socket per pair of ranks: socket pairs made
 * before a fork, or connections between processes that the user started by hand.
 *
 * A packet is a key (64 bytes), then data or a descriptor. Packets that arrive while the rank waits
 * for another one are kept. Called on the rank's thread.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/rendezvous.h"

#define KEY_SIZE 64
#define DATA_SIZE 1024
#define FD_KEY "\001fd"
/* After this time, and then every NEXT_WORD_NS, log which ranks are missing. */
#define FIRST_WORD_NS 2000000000ull
#define NEXT_WORD_NS 10000000000ull
#define LOOK_MS 500
#define MAX_NAMED 8

typedef struct packet {
    struct packet *next;
    int from, fd;
    size_t size;
    struct {
        char key[KEY_SIZE];
        char data[DATA_SIZE];
    } body;
} packet;

struct uni__socket_mesh {
    int size, rank; /* rank -1: not chosen yet */
    packet *kept;
    int fds[]; /* [a * size + b]: a's end of the socket to b; -1 when closed */
};

static int end_of(const uni__socket_mesh *mesh, int peer)
{
    return mesh->fds[mesh->rank * mesh->size + peer];
}

static int send_packet(uni__socket_mesh *mesh, int to, const char *key, const void *data,
                       size_t size, int fd, uni_error *err)
{
    char name[KEY_SIZE] = "";
    snprintf(name, sizeof name, "%s", key);
    struct iovec parts[2] = { { name, sizeof name }, { (void *)(uintptr_t)data, size } };
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = { 0 };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = size ? 2 : 1 };
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    if (sendmsg(end_of(mesh, to), &message, MSG_NOSIGNAL) >= 0)
        return 0;
    if (errno == EPIPE || errno == ECONNRESET)
        return uni_error_set(err, UNI_EPEER, "rank %d is gone: its socket was closed", to);
    return uni_error_set_errno(err, errno, "cannot send %s to rank %d",
                               fd >= 0 ? "a descriptor" : key, to);
}

static int receive_packet(uni__socket_mesh *mesh, int from, int timeout_ms, uni_error *err)
{
    struct pollfd poller = { .fd = end_of(mesh, from), .events = POLLIN };
    int ready = poll(&poller, 1, timeout_ms);
    if (ready == 0)
        return uni_error_set(err, UNI_ETIMEOUT, "rank %d sent nothing within %d ms", from,
                             timeout_ms);
    packet *got = calloc(1, sizeof *got);
    if (!got)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a packet of rank %d", from);
    got->from = from;
    got->fd = -1;
    struct iovec part = { &got->body, sizeof got->body };
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    ssize_t size = recvmsg(end_of(mesh, from), &message, MSG_CMSG_CLOEXEC);
    if (size < KEY_SIZE) {
        free(got);
        return uni_error_set(err, UNI_EPEER, "rank %d is gone: its socket was closed", from);
    }
    got->size = (size_t)size - KEY_SIZE;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&got->fd, CMSG_DATA(header), sizeof got->fd);
    packet **last = &mesh->kept;
    while (*last)
        last = &(*last)->next;
    *last = got;
    return 0;
}

static packet *take_packet(uni__socket_mesh *mesh, int from, const char *key)
{
    for (packet **at = &mesh->kept; *at; at = &(*at)->next)
        if ((*at)->from == from && strncmp((*at)->body.key, key, KEY_SIZE - 1) == 0) {
            packet *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

static int wait_packet(uni__socket_mesh *mesh, int from, const char *key, int timeout_ms,
                       packet **out, uni_error *err)
{
    while (!(*out = take_packet(mesh, from, key)))
        UNI_TRY(receive_packet(mesh, from, timeout_ms, err));
    return 0;
}

static int put(void *context, const char *key, const void *data, size_t size, uni_error *err)
{
    uni__socket_mesh *mesh = context;
    for (int r = 0; r < mesh->size; r++)
        if (r != mesh->rank)
            UNI_TRY(send_packet(mesh, r, key, data, size, -1, err));
    return 0;
}

static int get(void *context, int rank, const char *key, void *data, size_t capacity, size_t *size,
               int timeout_ms, uni_error *err)
{
    packet *found = NULL;
    UNI_TRY(wait_packet(context, rank, key, timeout_ms, &found, err));
    int status = 0;
    if (found->size > capacity)
        status = uni_error_set(err, UNI_ELIMIT, "%s of rank %d has %zu bytes, more than %zu", key,
                               rank, found->size, capacity);
    else
        memcpy(data, found->body.data, *size = found->size);
    free(found);
    return status;
}

static int pass(void *context, int to, int fd, uni_error *err)
{
    return send_packet(context, to, FD_KEY, NULL, 0, fd, err);
}

static int receive(void *context, int from, int *fd, int timeout_ms, uni_error *err)
{
    packet *found = NULL;
    UNI_TRY(wait_packet(context, from, FD_KEY, timeout_ms, &found, err));
    *fd = found->fd;
    free(found);
    return *fd >= 0 ? 0 : uni_error_set(err, UNI_EPEER, "rank %d sent no descriptor", from);
}

static const uni__rendezvous_vtable socket_vtable = {
    .name = "sockets", .put = put, .get = get, .pass = pass, .receive = receive
};

static int new_mesh(uni__socket_mesh **out, int size, uni_error *err)
{
    size_t ends = (size_t)size * (size_t)size;
    uni__socket_mesh *mesh = calloc(1, sizeof *mesh + ends * sizeof mesh->fds[0]);
    *out = mesh;
    if (!mesh)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d ranks to meet", size);
    mesh->size = size;
    mesh->rank = -1;
    for (size_t i = 0; i < ends; i++)
        mesh->fds[i] = -1;
    return 0;
}

int uni__socket_mesh_new(uni__socket_mesh **out, int size, uni_error *err)
{
    UNI_TRY(new_mesh(out, size, err));
    uni__socket_mesh *mesh = *out;
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
                int saved = errno;
                uni__socket_mesh_free(mesh);
                *out = NULL;
                return uni_error_set_errno(err, saved, "cannot make sockets for %d ranks", size);
            }
            mesh->fds[a * size + b] = pair[0];
            mesh->fds[b * size + a] = pair[1];
        }
    return 0;
}

void uni__socket_mesh_free(uni__socket_mesh *mesh)
{
    if (!mesh)
        return;
    for (int i = 0; i < mesh->size * mesh->size; i++)
        if (mesh->fds[i] >= 0)
            close(mesh->fds[i]);
    while (mesh->kept) {
        packet *next = mesh->kept->next;
        if (mesh->kept->fd >= 0)
            close(mesh->kept->fd);
        free(mesh->kept);
        mesh->kept = next;
    }
    free(mesh);
}

uni__rendezvous uni__socket_mesh_rank(uni__socket_mesh *mesh, int rank)
{
    mesh->rank = rank;
    for (int i = 0; i < mesh->size * mesh->size; i++)
        if (i / mesh->size != rank && mesh->fds[i] >= 0) {
            close(mesh->fds[i]);
            mesh->fds[i] = -1;
        }
    return (uni__rendezvous){
        .vtable = &socket_vtable, .context = mesh, .rank = rank, .size = mesh->size
    };
}

/* ---- by hand ---- */

/* "\0NAME.RANK": disappears with its process. */
static socklen_t address_of(struct sockaddr_un *address, const char *name, int rank)
{
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int size = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s.%d", name, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
}

/* Accept only processes of this user. */
static bool is_ours(int fd)
{
    struct ucred peer = { 0 };
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* The ranks that are here wait for the others, and the log says for which. */
typedef struct meeting {
    uni__socket_mesh *mesh;
    const char *name;
    char *const *labels;
    int timeout_ms;
    uint64_t begun, told; /* ns */
} meeting;

static void add_name(uni__text *text, const meeting *it, int rank)
{
    if (it->labels)
        uni__text_add_string(text, it->labels[rank]);
    else
        uni__text_add_format(text, "rank %d", rank);
}

/* Lists the missing ranks, as far as known: ranks below this one are contacted one at a time. */
static void add_missing(uni__text *text, const meeting *it)
{
    int named = 0;
    for (int r = 0; r < it->mesh->size; r++)
        if (r != it->mesh->rank && end_of(it->mesh, r) < 0 && named++ < MAX_NAMED) {
            uni__text_add_string(text, named > 1 ? ", " : "");
            add_name(text, it, r);
        }
    if (named > MAX_NAMED)
        uni__text_add_format(text, " and %d more", named - MAX_NAMED);
}

/* Milliseconds to wait before the next check; 0: timed out, and err names the missing ranks. */
static int patience(meeting *it, uni_error *err)
{
    uint64_t now = uni__monotonic_ns(), waited_ms = (now - it->begun) / 1000000u;
    uni__text text = { 0 };
    if (waited_ms >= (uint64_t)it->timeout_ms) {
        add_missing(&text, it);
        uni_error_set(err, UNI_ETIMEOUT,
                      "%s did not come within %.0f s: is it started, on this host, by this user "
                      "and with the same cluster?",
                      text.data ? text.data : "a rank", it->timeout_ms * 1e-3);
        uni__text_free(&text);
        return 0;
    }
    if (now - it->told > (it->told == it->begun ? FIRST_WORD_NS : NEXT_WORD_NS)) {
        it->told = now;
        add_name(&text, it, it->mesh->rank);
        uni__text_add_string(&text, " waits for ");
        add_missing(&text, it);
        uni__warn("%s since %.0f s: start it with the same cluster (given up after %.0f s)",
                  text.data ? text.data : "this rank", (double)waited_ms * 1e-3,
                  it->timeout_ms * 1e-3);
        uni__text_free(&text);
    }
    int left = it->timeout_ms - (int)waited_ms;
    return left < LOOK_MS ? left : LOOK_MS;
}

static int call_rank(meeting *it, int to, uni_error *err)
{
    uni__socket_mesh *mesh = it->mesh;
    struct sockaddr_un address;
    socklen_t size = address_of(&address, it->name, to);
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return uni_error_set_errno(err, errno, "cannot make a socket");
        if (connect(fd, (struct sockaddr *)&address, size) == 0) {
            int32_t rank = mesh->rank;
            mesh->fds[mesh->rank * mesh->size + to] = fd;
            if (!is_ours(fd))
                return uni_error_set(err, UNI_EPEER, "the process at rank %d is another user's",
                                     to);
            return send(fd, &rank, sizeof rank, MSG_NOSIGNAL) == (ssize_t)sizeof rank
                       ? 0
                       : uni_error_set_errno(err, errno, "cannot greet rank %d", to);
        }
        close(fd);
        if (patience(it, err) == 0)
            return UNI_ETIMEOUT;
        usleep(20000);
    }
}

static int take_call(meeting *it, int listener, uni_error *err)
{
    uni__socket_mesh *mesh = it->mesh;
    struct pollfd poller = { .fd = listener, .events = POLLIN };
    int left = patience(it, err);
    if (left == 0)
        return UNI_ETIMEOUT;
    if (poll(&poller, 1, left) == 0)
        return 0;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    int32_t rank = -1;
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot accept a rank");
    struct timeval seconds = { .tv_sec = 2 };
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &seconds, sizeof seconds);
    bool good = is_ours(fd) && recv(fd, &rank, sizeof rank, 0) == (ssize_t)sizeof rank &&
                rank > mesh->rank && rank < mesh->size && end_of(mesh, rank) < 0;
    seconds.tv_sec = 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &seconds, sizeof seconds);
    if (!good) {
        close(fd);
        return 0; /* not a peer: wait for the next */
    }
    mesh->fds[mesh->rank * mesh->size + rank] = fd;
    return 1;
}

static int connect_all(meeting *it, int listener, uni_error *err)
{
    for (int r = 0; r < it->mesh->rank; r++)
        UNI_TRY(call_rank(it, r, err));
    for (int missing = it->mesh->size - 1 - it->mesh->rank; missing > 0;) {
        int got = take_call(it, listener, err);
        UNI_TRY(got);
        missing -= got;
    }
    return 0;
}

int uni__socket_mesh_connect(uni__socket_mesh **out, const char *name, int rank, int size,
                             char *const *labels, int timeout_ms, uni_error *err)
{
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name, rank);
    int status = 0, listener = -1;
    UNI_TRY(new_mesh(out, size, err));
    (*out)->rank = rank;
    uint64_t now = uni__monotonic_ns();
    meeting it = { *out, name, labels, timeout_ms, now, now };
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) < 0 ||
        listen(listener, size) < 0)
        status = uni_error_set_errno(err, errno,
                                     "rank %d cannot wait for its peers (is there another process "
                                     "with the same cluster and task?)",
                                     rank);
    if (status == 0)
        status = connect_all(&it, listener, err);
    if (listener >= 0)
        close(listener);
    if (status < 0) {
        uni__socket_mesh_free(*out);
        *out = NULL;
    }
    return status;
}
