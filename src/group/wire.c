/* wire.c - frames over stream sockets; the format is in wire.h. */
#include "group/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/clock.h"

#define MAGIC 0x554eu
#define HEADER_BYTES 12u
#define LARGE 0x80
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

typedef struct wire_header {
    uint16_t magic;
    uint8_t version, type;
    uint32_t size;
    uint8_t num_fds, zero[3];
} wire_header;

void uni__wire_init(uni__wire *wire, int fd)
{
    memset(wire, 0, sizeof *wire);
    wire->fd = fd;
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* A descriptor that came from the other side. The last close of a socket that lingers would wait
 * for as long as that side had said. */
static void close_foreign(int fd)
{
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 0 }, sizeof(struct linger));
    close(fd);
}

void uni__wire_close(uni__wire *wire)
{
    if (wire->fd >= 0)
        close(wire->fd);
    for (int i = 0; i < wire->num_fds; i++)
        close_foreign(wire->fds[i]);
    free(wire->buffer);
    memset(wire, 0, sizeof *wire);
    wire->fd = -1;
}

/* > 0: *events has what came; 0: nothing within the time. */
static int wait_for(int fd, short *events, int timeout_ms)
{
    struct pollfd poller = { .fd = fd, .events = *events };
    int ready;
    do
        ready = poll(&poller, 1, timeout_ms);
    while (ready < 0 && errno == EINTR);
    *events = poller.revents;
    return ready;
}

static int wait_for_room(uni__wire *wire, int timeout_ms, uni_error *err)
{
    uint64_t deadline = uni__monotonic_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        uint64_t now = uni__monotonic_ns();
        short events = wire->fills_while_sending ? POLLOUT | POLLIN : POLLOUT;
        if (now >= deadline ||
            wait_for(wire->fd, &events, (int)((deadline - now) / 1000000u) + 1) == 0)
            return uni_error_set(err, UNI_ETIMEOUT,
                                 "the other side did not read a message for %d ms", timeout_ms);
        if (events != POLLIN)
            return 0; /* there is room, or the next send says what is wrong */
        UNI_TRY(uni__wire_fill(wire, err));
    }
}

/* One sendmsg with everything, then plain sends for what did not fit. */
static int send_bytes(uni__wire *wire, const void *data, size_t size, const int *fds, int num_fds,
                      int timeout_ms, uni_error *err)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * UNI__WIRE_MAX_FDS)];
    } control;
    size_t sent = 0;
    while (sent < size) {
        struct iovec piece = { .iov_base = (char *)data + sent, .iov_len = size - sent };
        struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
        if (sent == 0 && num_fds > 0) {
            memset(&control, 0, sizeof control);
            message.msg_control = control.bytes;
            message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)num_fds);
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)num_fds);
            memcpy(CMSG_DATA(header), fds, sizeof(int) * (size_t)num_fds);
        }
        ssize_t n = sendmsg(wire->fd, &message, MSG_NOSIGNAL);
        if (n >= 0) {
            sent += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            int status = wire->stuck ? uni_error_set(err, UNI_ETIMEOUT,
                                                     "the other side does not read its messages")
                                     : wait_for_room(wire, timeout_ms, err);
            if (status < 0) {
                wire->stuck |= status == UNI_ETIMEOUT;
                wire->torn |= sent > 0;
                return status;
            }
        } else if (errno != EINTR) {
            int saved = errno;
            uni_error_set_errno(err, saved, "cannot send to the other side");
            if (err)
                err->code = UNI_EPEER;
            return UNI_EPEER;
        }
    }
    wire->stuck = false;
    return 0;
}

/* A large payload is written to a memfd, which then is all that has to pass through the socket. */
static int payload_to_memfd(const void *payload, size_t size, uni_error *err)
{
    int fd = memfd_create("unisono-frame", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0) {
        int saved = errno;
        if (fd >= 0)
            close(fd);
        return uni_error_set_errno(err, saved, "cannot make a shared buffer of %zu bytes", size);
    }
    for (size_t at = 0; at < size;) {
        ssize_t n = pwrite(fd, (const char *)payload + at, size - at, (off_t)at);
        if (n < 0 && errno != EINTR) {
            int saved = errno;
            close(fd);
            return uni_error_set_errno(err, saved, "cannot fill a shared buffer of %zu bytes",
                                       size);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
        int saved = errno;
        close(fd);
        return uni_error_set_errno(err, saved, "cannot seal a shared buffer of %zu bytes", size);
    }
    return fd;
}

int uni__wire_send(uni__wire *wire, int type, const void *payload, size_t size, const int *fds,
                   int num_fds, int timeout_ms, uni_error *err)
{
    if (wire->fd < 0)
        return uni_error_set(err, UNI_EPEER, "the connection is closed");
    if (wire->torn)
        return uni_error_set(err, UNI_EPEER, "the other side read only a part of a message");
    if (num_fds > UNI__WIRE_MAX_FDS - 1 || size > UNI__WIRE_PAYLOAD_MAX)
        return uni_error_set(err, UNI_ELIMIT,
                             "a message of %zu bytes with %d descriptors is too large", size,
                             num_fds);
    uint8_t frame[HEADER_BYTES + UNI__WIRE_INLINE_MAX];
    int all_fds[UNI__WIRE_MAX_FDS], memfd = -1;
    uint64_t large_size = size;
    wire_header header = {
        .magic = MAGIC, .version = UNI__WIRE_VERSION, .type = (uint8_t)type, .size = (uint32_t)size
    };
    if (num_fds > 0)
        memcpy(all_fds, fds, sizeof(int) * (size_t)num_fds);
    if (size > UNI__WIRE_INLINE_MAX) {
        memfd = payload_to_memfd(payload, size, err);
        if (memfd < 0)
            return memfd;
        all_fds[num_fds++] = memfd;
        header.type |= LARGE;
        header.size = sizeof large_size;
        payload = &large_size;
        size = sizeof large_size;
    }
    header.num_fds = (uint8_t)num_fds;
    memcpy(frame, &header, sizeof header);
    if (size > 0)
        memcpy(frame + HEADER_BYTES, payload, size);
    int status = send_bytes(wire, frame, HEADER_BYTES + size, all_fds, num_fds, timeout_ms, err);
    if (memfd >= 0)
        close(memfd);
    return status;
}

int uni__wire_send_value(uni__wire *wire, int type, const uni_value *value, const int *fds,
                         int num_fds, int timeout_ms, uni_error *err)
{
    void *bytes = NULL;
    size_t size = 0;
    UNI_TRY(uni__msgpack_write(&bytes, &size, value, err));
    int status = uni__wire_send(wire, type, bytes, size, fds, num_fds, timeout_ms, err);
    free(bytes);
    return status;
}

static void keep_descriptors(uni__wire *wire, struct msghdr *message)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        int count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + sizeof(int) * (size_t)i, sizeof fd);
            if (wire->num_fds < (int)(sizeof wire->fds / sizeof wire->fds[0]))
                wire->fds[wire->num_fds++] = fd;
            /* more than any frame of ours carries: the frame will be refused for lack of it */
            else
                close_foreign(fd);
        }
    }
}

int uni__wire_fill(uni__wire *wire, uni_error *err)
{
    if (wire->consumed > 0) {
        memmove(wire->buffer, wire->buffer + wire->consumed, wire->size - wire->consumed);
        wire->size -= wire->consumed;
        wire->consumed = 0;
    }
    if (wire->capacity - wire->size < 2 * UNI__WIRE_INLINE_MAX) {
        size_t capacity = wire->size + 4 * UNI__WIRE_INLINE_MAX;
        uint8_t *grown = realloc(wire->buffer, capacity);
        if (!grown)
            return uni_error_set(err, UNI_ENOMEM, "no memory to receive a message");
        wire->buffer = grown;
        wire->capacity = capacity;
    }
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * UNI__WIRE_MAX_FDS)];
    } control;
    struct iovec piece = { .iov_base = wire->buffer + wire->size,
                           .iov_len = wire->capacity - wire->size };
    struct msghdr message = { .msg_iov = &piece,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    ssize_t n = recvmsg(wire->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR
                   ? 0
                   : uni_error_set(err, UNI_EPEER, "the connection broke: %s", strerror(errno));
    keep_descriptors(wire, &message);
    if (n == 0)
        return uni_error_set(err, UNI_EPEER, "the other side closed the connection");
    wire->size += (size_t)n;
    return 0;
}

static int map_large(uni__wire_frame *frame, uni_error *err)
{
    uint64_t size;
    struct stat info;
    if (frame->size != sizeof size || frame->num_fds < 1)
        return uni_error_set(err, UNI_EFORMAT, "a large message came without its buffer");
    memcpy(&size, frame->payload, sizeof size);
    int fd = frame->fds[--frame->num_fds];
    /* A buffer that its sender could still cut off would fault here, and one that it could still
     * write would change after it was checked. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS) {
        close_foreign(fd);
        return uni_error_set(err, UNI_EFORMAT, "a large message came in a buffer that can change");
    }
    if (size == 0 || size > UNI__WIRE_PAYLOAD_MAX || fstat(fd, &info) < 0 ||
        (uint64_t)info.st_size < size) {
        close(fd);
        return uni_error_set(err, UNI_EFORMAT, "a large message has a wrong size");
    }
    frame->mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (frame->mapped == MAP_FAILED) {
        frame->mapped = NULL;
        return uni_error_set_errno(err, errno, "cannot map a message of %llu bytes",
                                   (unsigned long long)size);
    }
    frame->payload = frame->mapped;
    frame->size = frame->mapped_size = size;
    frame->type &= ~LARGE;
    return 0;
}

int uni__wire_next(uni__wire *wire, uni__wire_frame *frame, uni_error *err)
{
    wire_header header;
    memset(frame, 0, sizeof *frame);
    if (wire->size - wire->consumed < HEADER_BYTES)
        return 0;
    memcpy(&header, wire->buffer + wire->consumed, sizeof header);
    if (header.magic != MAGIC || header.size > UNI__WIRE_INLINE_MAX)
        return uni_error_set(err, UNI_EFORMAT, "the other side does not speak unisono's protocol");
    if (header.version != UNI__WIRE_VERSION)
        return uni_error_set(err, UNI_EVERSION,
                             "the other side speaks version %u of the protocol, this program "
                             "version %d: use the same "
                             "release of unisono on both",
                             header.version, UNI__WIRE_VERSION);
    if (wire->size - wire->consumed < HEADER_BYTES + header.size)
        return 0;
    frame->type = header.type;
    frame->payload = wire->buffer + wire->consumed + HEADER_BYTES;
    frame->size = header.size;
    if (header.num_fds > UNI__WIRE_MAX_FDS || header.num_fds > wire->num_fds)
        return uni_error_set(err, UNI_EFORMAT, "a message came without its descriptors");
    frame->num_fds = header.num_fds;
    memcpy(frame->fds, wire->fds, sizeof(int) * (size_t)frame->num_fds);
    wire->num_fds -= frame->num_fds;
    memmove(wire->fds, wire->fds + frame->num_fds, sizeof(int) * (size_t)wire->num_fds);
    wire->consumed += HEADER_BYTES + header.size;
    if (frame->type & LARGE) {
        int status = map_large(frame, err);
        if (status < 0) {
            uni__wire_frame_done(frame);
            return status;
        }
    }
    return 1;
}

void uni__wire_frame_done(uni__wire_frame *frame)
{
    for (int i = 0; i < frame->num_fds; i++)
        if (frame->fds[i] >= 0)
            close_foreign(frame->fds[i]);
    if (frame->mapped)
        munmap(frame->mapped, frame->mapped_size);
    memset(frame, 0, sizeof *frame);
}

int uni__wire_receive(uni__wire *wire, uni__wire_frame *frame, int timeout_ms, uni_error *err)
{
    uint64_t deadline =
        timeout_ms < 0 ? UINT64_MAX : uni__monotonic_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        int found = uni__wire_next(wire, frame, err);
        if (found != 0)
            return found;
        uint64_t now = uni__monotonic_ns();
        if (now >= deadline)
            return uni_error_set(err, UNI_ETIMEOUT, "no message came within %d ms", timeout_ms);
        uint64_t left = (deadline - now) / 1000000u + 1;
        short events = POLLIN;
        if (wait_for(wire->fd, &events, deadline == UINT64_MAX ? -1 : (int)left) > 0)
            UNI_TRY(uni__wire_fill(wire, err));
    }
}
