/*
 * session_send.c - from the worker to its controller: frames into the ring, waiting for room,
 * passing descriptors.
 *
 * Every wait ends when the controller is gone (its end of the channel hangs up): nothing here can
 * hang for ever.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/session_internal.h"

#define LOOK_UP_MS 100
#define SEND_TIMEOUT_MS 5000

bool uni__session_controller_gone(uni_session *session)
{
    struct pollfd poller = { .fd = session->wire.fd, .events = POLLRDHUP };
    return poll(&poller, 1, 0) > 0 && (poller.revents & (POLLHUP | POLLRDHUP | POLLERR));
}

void uni__session_ring_bell(uni_session *session)
{
    uint64_t one = 1;
    ssize_t ignored = write(session->event_fd, &one, sizeof one);
    (void)ignored;
}

static int gone(uni_error *err)
{
    return uni_error_set(
        err, UNI_EPEER,
        "the trainer that started this worker is gone; its reports have nowhere to go");
}

int uni__session_wait(uni_session *session, _Atomic uint32_t *word, uint32_t value, uni_error *err)
{
    uint64_t begun = uni__monotonic_ns();
    int status = 0;
    while (atomic_load(word) == value && status == 0) {
        uni__futex_wait(word, value, LOOK_UP_MS);
        if (atomic_load(word) == value && uni__session_controller_gone(session))
            status = gone(err);
    }
    atomic_fetch_add(&session->page->waited_ns, uni__monotonic_ns() - begun);
    return status;
}

/* Room for one frame, waited for. */
static int reserve(uni_session *session, size_t size, void **out, uni_error *err)
{
    uni__page *page = session->page;
    uint64_t begun = 0;
    int status = 0;
    while (!(*out = uni__ring_reserve(page, size)) && status == 0) {
        if (!begun)
            begun = uni__monotonic_ns();
        uint32_t seen = atomic_load(&page->tail_futex);
        atomic_store(&page->writer_waits, 1);
        if ((*out = uni__ring_reserve(page, size)))
            break;
        uni__futex_wait(&page->tail_futex, seen, LOOK_UP_MS);
        if (uni__session_controller_gone(session))
            status = gone(err);
    }
    if (begun) {
        atomic_store(&page->writer_waits, 0);
        atomic_fetch_add(&page->waited_ns, uni__monotonic_ns() - begun);
    }
    return status;
}

int uni__session_say(uni_session *session, int type, const void *data, size_t size, uni_error *err)
{
    const uint8_t *from = data;
    do {
        size_t part = size < UNI__FRAME_MAX ? size : UNI__FRAME_MAX;
        void *place;
        UNI_TRY(reserve(session, part, &place, err));
        if (part > 0)
            memcpy(place, from, part);
        size -= part;
        from += part;
        if (uni__ring_commit(session->page, place, part, type, size > 0 ? UNI__FRAME_MORE : 0))
            uni__session_ring_bell(session);
    } while (size > 0);
    return 0;
}

int uni__session_send_frame(uni_session *session, int type, const void *payload, size_t size,
                            int fd, uni_error *err)
{
    pthread_mutex_lock(&session->send_lock);
    int status =
        uni__wire_send(&session->wire, type, payload, size, &fd, fd >= 0, SEND_TIMEOUT_MS, err);
    pthread_mutex_unlock(&session->send_lock);
    return status;
}

int uni__session_pass(uni_session *session, int number, int fd, uni_error *err)
{
    static const uint8_t empty_map[1] = { 0x80 };
    return uni__session_send_frame(session, number, empty_map, sizeof empty_map, fd, err);
}

void uni__session_warn_alone(uni_session *session, unsigned kind, const char *call)
{
    if (session->warned & kind)
        return;
    session->warned |= kind;
    uni__warn("%s was called outside a worker: this process is a world of one and keeps nothing. "
              "Start it with `unisono run -n N -- "
              "program` or from a trainer.",
              call);
}
