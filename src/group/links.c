/*
 * links.c - what the controller thread reads of the workers of this machine: rings, channels,
 * report pipes.
 *
 * Before the loop sleeps every ring is read empty and marked as waiting, so that a busy group costs
 * no system calls for waking. All on the controller thread. The agent is links_agent.c, what is
 * sent links_spawn.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "group/internal.h"
#include "group/remote.h"

/* Bytes of one worker's ring in one round: fairness between ranks, and to the timers. A ring that a
 * process still writes is never empty, but it never holds more than this. */
#define ROUND_RING_BYTES UNI__RING_BYTES
#define LINE_MAX_BYTES (1u << 20) /* of the report pipe */
#define ROUND_BYTES 65536 /* of a report pipe at a time; the rest waits for the next round */
#define MESSAGE_MAX_BYTES (1u << 30)

/* ---- pollers: on the heap, because libuv frees a handle only in a later round of the loop ---- */

void uni__links_free_poll(uv_handle_t *handle)
{
    free(handle);
}

void uni__links_poll_end(uv_poll_t **poll)
{
    if (*poll)
        uv_close((uv_handle_t *)*poll, uni__links_free_poll);
    *poll = NULL;
}

int uni__links_poll_begin(uv_poll_t **out, uni__group *group, int fd, uv_poll_cb callback,
                          void *data, uni_error *err)
{
    uv_poll_t *poll = malloc(sizeof *poll);
    if (!poll)
        return uni_error_set(err, UNI_ENOMEM, "no memory to watch a descriptor");
    int code = uv_poll_init(&group->loop, poll, fd);
    if (code < 0) {
        free(poll);
        return uni_error_set(err, UNI_EIO, "cannot watch descriptor %d: %s", fd, uv_strerror(code));
    }
    poll->data = data;
    uv_poll_start(poll, UV_READABLE | UV_DISCONNECT, callback);
    *out = poll;
    return 0;
}

/* ---- rings ---- */

static void mark_broken(uni__worker_slot *worker, const char *sentence)
{
    if (worker->broken)
        return;
    worker->broken = true;
    UNI__TELL(worker->group, broken, worker->rank, sentence);
}

/* The step of the worker's life; false: there is nothing to hand on. */
static bool is_legal(uni__worker_slot *worker, int input)
{
    uni__worker_verdict verdict = uni__worker_step(&worker->life, input);
    if (verdict == UNI__WORKER_REFUSED) {
        char sentence[128];
        uni__worker_say_refused(&worker->life, input, sentence, sizeof sentence);
        mark_broken(worker, sentence);
    }
    return verdict == UNI__WORKER_TAKEN;
}

static void hand_on(uni__worker_slot *worker, int type, const uint8_t *payload, size_t size)
{
    uni__group *group = worker->group;
    if (is_legal(worker, uni__worker_input_of(type)))
        UNI__TELL(group, message, worker->rank, type, payload, size);
}

void uni__links_take_channel(uni__worker_slot *worker, const uni__wire_frame *frame)
{
    uni__group *group = worker->group;
    bool is_snapshot = frame->type >= 1 && frame->type <= UNI__SNAPSHOT_SLOTS && frame->num_fds > 0;
    int input = is_snapshot                          ? UNI__WORKER_SNAPSHOT
                : frame->type == UNI__PASSES_TO_PEER ? UNI__WORKER_MAIL
                                                     : UNI__WORKER_UNKNOWN;
    if (worker->broken || !is_legal(worker, input))
        return;
    if (input == UNI__WORKER_MAIL) {
        UNI__TELL(group, mail, worker->rank, frame);
        return;
    }
    uni__region *region = uni__region_map(frame->fds[0]);
    if (region) /* otherwise the checkpoint that needs it finds none, and that is said */
        uni__worker_take_snapshot(&worker->life, frame->type - 1, region);
}

void uni__links_take_line(uni__worker_slot *worker, const char *line, size_t size)
{
    uni__group *group = worker->group;
    if (is_legal(worker, UNI__WORKER_LINE))
        UNI__TELL(group, line, worker->rank, line, size);
}

void uni__links_take_frame(uni__worker_slot *worker, const uint8_t *payload, size_t size, int type,
                           int flags)
{
    if (worker->broken)
        return;
    if (!(flags & UNI__FRAME_MORE) && worker->joined_size == 0) {
        hand_on(worker, type, payload, size);
        return;
    }
    uint8_t *grown = worker->joined_size + size > MESSAGE_MAX_BYTES
                         ? NULL
                         : realloc(worker->joined, worker->joined_size + size + 1);
    if (!grown) {
        mark_broken(worker, "it sent a message that is too large");
        return;
    }
    worker->joined = grown;
    memcpy(worker->joined + worker->joined_size, payload, size);
    worker->joined_size += size;
    if (flags & UNI__FRAME_MORE)
        return;
    hand_on(worker, type, worker->joined, worker->joined_size);
    free(worker->joined);
    worker->joined = NULL;
    worker->joined_size = 0;
}

/* The frame's own copy: the worker can write the ring while it is checked and used. */
static const uint8_t *copied(uni__group *group, const uint8_t *payload, size_t size)
{
    if (size >= group->frame_capacity) {
        uint8_t *grown = realloc(group->frame, size + 1);
        if (!grown)
            return NULL;
        group->frame = grown;
        group->frame_capacity = size + 1;
    }
    return memcpy(group->frame, payload, size);
}

/* About as many bytes as a ring holds; true when there was any frame. */
static bool drain_slot(uni__worker_slot *worker)
{
    const uint8_t *payload;
    size_t size, bytes = 0;
    int type, flags, found = 0;
    uni_error err = { 0 };
    while (worker->page && !worker->broken && !worker->held && bytes < ROUND_RING_BYTES &&
           (found = uni__ring_peek(worker->page, &payload, &size, &type, &flags, &err)) > 0) {
        const uint8_t *frame = copied(worker->group, payload, size);
        if (frame)
            uni__links_take_frame(worker, frame, size, type, flags);
        else
            mark_broken(worker, "there is no memory for its message");
        if (worker->page)
            uni__ring_pop(worker->page);
        bytes += size + 8;
    }
    if (found < 0)
        mark_broken(worker, err.message);
    return bytes > 0;
}

void uni__group_drain(uni__group *group, int rank)
{
    drain_slot(&group->slots[rank]);
}

static bool drain_all(uni__group *group)
{
    bool any = false;
    for (int i = 0; i < group->num_slots; i++)
        if (uni__worker_is_live(&group->slots[i].life))
            any |= drain_slot(&group->slots[i]);
    if (any)
        UNI__TELL(group, drained);
    return any;
}

/* Not through the workers' eventfd: one of them could have filled it and made it wait. */
static void wake_self(uni__group *group)
{
    uv_async_send(&group->async);
}

static void give_lines(uni__worker_slot *worker);
static void on_report(uv_poll_t *handle, int status, int events);

/* It was held and is not any more: what was read before, then the rest. */
static void resume_report(uni__worker_slot *worker)
{
    if (worker->held || worker->report_fd < 0)
        return;
    if (worker->line_size > 0)
        give_lines(worker);
    if (worker->report_waits && !worker->held && worker->report_poll &&
        uv_poll_start(worker->report_poll, UV_READABLE, on_report) == 0)
        worker->report_waits = false;
}

void uni__links_before_sleep(uv_prepare_t *handle)
{
    uni__group *group = handle->data;
    if (group->closing)
        return;
    uni__link_go_on_all(group);
    drain_all(group);
    if (group->agent.size > group->agent.consumed)
        uni__links_take_agent_frames(
            group); /* came in during a send: the poller has not seen them */
    bool more = false;
    for (int i = 0; i < group->num_slots; i++) {
        uni__worker_slot *worker = &group->slots[i];
        if (worker->was_held) {
            worker->was_held = worker->held;
            resume_report(worker);
        }
        if (!uni__worker_is_live(&worker->life) || !worker->page || worker->broken || worker->held)
            continue;
        atomic_store(&worker->page->reader_waits, 1);
        /* Once more after the flag is visible: a frame published in between would otherwise sleep
         * with us. */
        more |= !uni__ring_is_empty(worker->page);
    }
    if (more)
        wake_self(group);
    if (group->remote)
        uni__remote_before_sleep(group);
    uni__link_flush_all(group);
}

void uni__group_hold(uni__group *group, int rank, bool on)
{
    if (group->slots[rank].held && !on)
        wake_self(group);
    group->slots[rank].held = on;
    group->slots[rank].was_held |= on;
}

static void on_event_fd(uv_poll_t *handle, int status, int events)
{
    uni__group *group = handle->data;
    uint64_t count;
    /* O_NONBLOCK is a flag of the eventfd, not of our descriptor, so a worker may have cleared it
     * and have taken the count since the poll. */
    struct iovec place = { &count, sizeof count };
    ssize_t n = preadv2(group->event_fd, &place, 1, -1, RWF_NOWAIT);
    if (n < 0 && errno == EOPNOTSUPP) /* before Linux 5.8 */
        n = read(group->event_fd, &count, sizeof count);
    (void)n;
    drain_all(group);
}

/* ---- the worker's channel and report pipe ---- */

static void read_channel(uni__worker_slot *worker)
{
    uni__wire_frame frame;
    uni_error err = { 0 };
    if (worker->wire.fd < 0)
        return;
    int filled = uni__wire_fill(&worker->wire, &err), found;
    while ((found = uni__wire_next(&worker->wire, &frame, &err)) > 0) {
        uni__links_take_channel(worker, &frame);
        uni__wire_frame_done(&frame);
    }
    if (found < 0 && filled == 0)
        mark_broken(worker, err.message);
    if (filled < 0 || found < 0)
        uni__links_poll_end(
            &worker->channel_poll); /* it has ended, or is not listened to any more */
}

static void on_channel(uv_poll_t *handle, int status, int events)
{
    read_channel(handle->data);
}

static void close_report(uni__worker_slot *worker)
{
    worker->report_waits = false;
    uni__links_poll_end(&worker->report_poll);
    if (worker->report_fd >= 0)
        close(worker->report_fd);
    worker->report_fd = -1;
    free(worker->line);
    worker->line = NULL;
    worker->line_size = 0;
}

static void give_lines(uni__worker_slot *worker)
{
    size_t start = 0;
    for (char *end; worker->line && !worker->held &&
                    (end = memchr(worker->line + start, '\n', worker->line_size - start));) {
        size_t length = (size_t)(end - worker->line) - start;
        if (worker->line_too_long)
            uni__links_take_line(worker, NULL, 0);
        else if (length > 0)
            uni__links_take_line(worker, worker->line + start, length);
        worker->line_too_long = false;
        start += length + 1;
    }
    if (start > 0 && worker->line) { /* the owner may have emptied the slot */
        worker->line_size -= start;
        memmove(worker->line, worker->line + start, worker->line_size);
    }
    if (worker->line_size > LINE_MAX_BYTES && !worker->held) {
        worker->line_too_long = true;
        worker->line_size = 0;
    }
}

/* Reads what the pipe has, about `limit` bytes at most: a worker that never stops writing must not
 * keep us from everything else. False at its end. */
static bool read_report(uni__worker_slot *worker, size_t limit)
{
    for (size_t total = 0; total < limit && !worker->held;) {
        char *grown = realloc(worker->line, worker->line_size + 65536);
        if (!grown)
            return true;
        worker->line = grown;
        ssize_t n = read(worker->report_fd, worker->line + worker->line_size, 65536);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0)
            return false;
        worker->line_size += (size_t)n;
        total += (size_t)n;
        give_lines(worker);
    }
    return true;
}

static void on_report(uv_poll_t *handle, int status, int events)
{
    uni__worker_slot *worker = handle->data;
    if (worker->held) {
        uv_poll_stop(handle);
        worker->report_waits = true;
        return;
    }
    if (worker->report_fd >= 0 && !read_report(worker, ROUND_BYTES))
        close_report(worker);
    UNI__TELL(worker->group, drained);
}

int uni__links_watch_worker(uni__worker_slot *worker, uni_error *err)
{
    UNI_TRY(uni__links_poll_begin(&worker->report_poll, worker->group, worker->report_fd, on_report,
                                  worker, err));
    return uni__links_poll_begin(&worker->channel_poll, worker->group, worker->wire.fd, on_channel,
                                 worker, err);
}

void uni__links_read_rest(uni__worker_slot *worker)
{
    read_channel(worker);
    drain_slot(worker);
    /* What the pipe held when the worker ended; a child of its own may go on writing. */
    int inside = worker->report_fd >= 0 ? fcntl(worker->report_fd, F_GETPIPE_SZ) : 0;
    bool held = worker->held;
    worker->held = false;
    if (inside > 0) {
        give_lines(worker);
        (void)read_report(worker, (size_t)inside);
    }
    worker->held = held || worker->held;
    close_report(worker);
}

void uni__links_empty_slot(uni__worker_slot *worker)
{
    uni__page_unmap(worker->page);
    worker->page = NULL;
    uni__links_poll_end(&worker->channel_poll);
    uni__wire_close(&worker->wire);
    close_report(worker);
    free(worker->joined);
    worker->joined = NULL;
    worker->joined_size = 0;
    worker->broken = worker->line_too_long = worker->held = false;
    uni__worker_ended(&worker->life);
}

uni__page *uni__group_page(uni__group *group, int rank)
{
    return group->slots[rank].page;
}

const uni__worker *uni__group_worker(const uni__group *group, int rank)
{
    return &group->slots[rank].life;
}

uni__region *uni__group_snapshot(uni__group *group, int rank, int64_t slot, int64_t size)
{
    uni__worker_slot *worker = &group->slots[rank];
    if (slot < 0 || slot >= UNI__SNAPSHOT_SLOTS || size <= 0)
        return NULL;
    for (int tries = 0; tries < 2; tries++) {
        uni__region *region = worker->life.snapshots[slot];
        if (region && (size_t)size <= region->size)
            return uni__region_ref(region);
        read_channel(worker); /* its descriptor was passed before this was asked */
    }
    return NULL;
}

int uni__links_start_events(uni__group *group, uni_error *err)
{
    return uni__links_poll_begin(&group->event_poll, group, group->event_fd, on_event_fd, group,
                                 err);
}
