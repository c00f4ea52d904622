/*
 * links.c - what the controller thread reads and writes: the workers' rings and pipes, the agent's frames.
 *
 * Before the loop sleeps every ring is read empty and marked as waiting, so that a busy group costs no system calls for waking.
 * All on the controller thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "group/agent.h"
#include "group/internal.h"
#include "group/launch.h"
#include "group/remote.h"

#define SEND_TIMEOUT_MS 5000
#define KILL_ALL_MS 4000 /* the agent gives up by itself after 2 s */
#define KEEPER_MS 3000
#define AGENT_STOPPED_NS 4000000000ull
#define ROUND_FRAMES 8192 /* frames of one worker in one round: fairness between ranks */
#define LINE_MAX_BYTES (1u << 20) /* of the report pipe */
#define MESSAGE_MAX_BYTES (1u << 30)

static void take_agent_frames(uni__group *group);

/* ---- pollers: on the heap, because libuv frees a handle only in a later round of the loop ---- */

void uni__links_free_poll(uv_handle_t *handle)
{
    free(handle);
}

static void poll_end(uv_poll_t **poll)
{
    if (*poll)
        uv_close((uv_handle_t *)*poll, uni__links_free_poll);
    *poll = NULL;
}

static int poll_begin(uv_poll_t **out, uni__group *group, int fd, uv_poll_cb callback, void *data,
                      uni_error *err)
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

static void mark_broken(uni__slot *worker, const char *sentence)
{
    if (worker->broken)
        return;
    worker->broken = true;
    worker->group->events->broken(worker->group->context, worker->rank, sentence);
}

void uni__links_take_frame(uni__slot *worker, const uint8_t *payload, size_t size, int type,
                           int flags)
{
    uni__group *group = worker->group;
    if (!(flags & UNI__FRAME_MORE) && worker->joined_size == 0) {
        group->events->message(group->context, worker->rank, type, payload, size);
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
    group->events->message(group->context, worker->rank, type, worker->joined, worker->joined_size);
    free(worker->joined);
    worker->joined = NULL;
    worker->joined_size = 0;
}

/* Up to ROUND_FRAMES frames; true when there was any. */
static bool drain_slot(uni__slot *worker, size_t limit)
{
    const uint8_t *payload;
    size_t size, count = 0;
    int type, flags, found = 0;
    uni_error err = { 0 };
    while (worker->page && !worker->broken && !worker->held && count < limit &&
           (found = uni__ring_peek(worker->page, &payload, &size, &type, &flags, &err)) > 0) {
        uni__links_take_frame(worker, payload, size, type, flags);
        if (worker->page)
            uni__ring_pop(worker->page);
        count++;
    }
    if (found < 0)
        mark_broken(worker, err.message);
    return count > 0;
}

void uni__group_drain(uni__group *group, int rank)
{
    drain_slot(&group->slots[rank], SIZE_MAX);
}

static bool drain_all(uni__group *group)
{
    bool any = false;
    for (int i = 0; i < group->num_slots; i++)
        if (group->slots[i].live)
            any |= drain_slot(&group->slots[i], ROUND_FRAMES);
    if (any)
        group->events->drained(group->context);
    return any;
}

static void wake_self(uni__group *group)
{
    uint64_t one = 1;
    ssize_t ignored = write(group->event_fd, &one, sizeof one);
    (void)ignored;
}

void uni__links_before_sleep(uv_prepare_t *handle)
{
    uni__group *group = handle->data;
    if (group->closing)
        return;
    drain_all(group);
    if (group->agent.size > group->agent.consumed)
        take_agent_frames(group); /* came in during a send: the poller has not seen them */
    bool more = false;
    for (int i = 0; i < group->num_slots; i++) {
        uni__slot *worker = &group->slots[i];
        if (!worker->live || !worker->page || worker->broken || worker->held)
            continue;
        atomic_store(&worker->page->reader_waits, 1);
        /* Once more after the flag is visible: a frame published in between would otherwise sleep with us. */
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
}

static void on_event_fd(uv_poll_t *handle, int status, int events)
{
    uni__group *group = handle->data;
    uint64_t count;
    ssize_t ignored = read(group->event_fd, &count, sizeof count);
    (void)ignored;
    drain_all(group);
}

/* ---- the worker's channel and report pipe ---- */

static void read_channel(uni__slot *worker)
{
    uni__group *group = worker->group;
    uni__wire_frame frame;
    uni_error err = { 0 };
    if (worker->wire.fd < 0)
        return;
    int filled = uni__wire_fill(&worker->wire, &err), found;
    while ((found = uni__wire_next(&worker->wire, &frame, &err)) > 0) {
        group->events->channel(group->context, worker->rank, &frame);
        uni__wire_frame_done(&frame);
    }
    if (found < 0 && filled == 0)
        mark_broken(worker, err.message);
    if (filled < 0 || found < 0)
        poll_end(&worker->channel_poll); /* it has ended, or is not listened to any more */
}

static void on_channel(uv_poll_t *handle, int status, int events)
{
    read_channel(handle->data);
}

static void close_report(uni__slot *worker)
{
    poll_end(&worker->report_poll);
    if (worker->report_fd >= 0)
        close(worker->report_fd);
    worker->report_fd = -1;
    free(worker->line);
    worker->line = NULL;
    worker->line_size = 0;
}

static void give_lines(uni__slot *worker)
{
    uni__group *group = worker->group;
    size_t start = 0;
    for (char *end;
         worker->line && (end = memchr(worker->line + start, '\n', worker->line_size - start));) {
        size_t length = (size_t)(end - worker->line) - start;
        if (worker->line_too_long)
            group->events->line(group->context, worker->rank, NULL, 0);
        else if (length > 0)
            group->events->line(group->context, worker->rank, worker->line + start, length);
        worker->line_too_long = false;
        start += length + 1;
    }
    if (start > 0) {
        worker->line_size -= start;
        memmove(worker->line, worker->line + start, worker->line_size);
    }
    if (worker->line_size > LINE_MAX_BYTES) {
        worker->line_too_long = true;
        worker->line_size = 0;
    }
}

/* Reads what the pipe has; false at its end. */
static bool read_report(uni__slot *worker)
{
    for (;;) {
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
        give_lines(worker);
    }
}

static void on_report(uv_poll_t *handle, int status, int events)
{
    uni__slot *worker = handle->data;
    if (worker->report_fd >= 0 && !read_report(worker))
        close_report(worker);
    worker->group->events->drained(worker->group->context);
}

/* ---- the agent ---- */

static void worker_exited(uni__slot *worker, const uni_value *message)
{
    uni__group *group = worker->group;
    uni__exit how = {
        .pid = (int)uni_dict_get_int(message, "pid", 0),
        .exit_code = (int)uni_dict_get_int(message, "exit_code", -1),
        .signal = (int)uni_dict_get_int(message, "signal", 0),
        .core = uni_dict_get_int(message, "core", 0) != 0,
        .oom = uni_dict_get_int(message, "oom", 0) != 0,
    };
    if (how.pid != worker->pid)
        return; /* of an earlier life of this rank */
    read_channel(worker);
    drain_slot(worker, SIZE_MAX);
    if (worker->report_fd >= 0) {
        (void)read_report(worker);
        close_report(worker);
    }
    worker->live = false;
    worker->pid = 0;
    group->events->exited(group->context, worker->rank, &how);
    group->events->drained(group->context);
}

/* What the local agent says of mpirun or srun. */
static void launcher_frame(uni__group *group, int type, const uni_value *message)
{
    uni__exit how = { .pid = group->launcher.pid,
                      .exit_code = (int)uni_dict_get_int(message, "exit_code", 127),
                      .signal = (int)uni_dict_get_int(message, "signal", 0) };
    if (type == UNI__AGENT_SPAWNED)
        group->launcher.pid = (int)uni_dict_get_int(message, "pid", 0);
    if (type != UNI__AGENT_EXITED && type != UNI__AGENT_SPAWN_FAILED)
        return;
    group->launcher.live = false;
    group->launcher.pid = 0;
    uni__remote_launcher_exited(group, &how);
}

static void agent_frame(uni__group *group, const uni__wire_frame *frame)
{
    uni_value *message = NULL;
    if (uni_msgpack_read(&message, frame->payload, frame->size, NULL) < 0)
        return;
    int rank = (int)uni_dict_get_int(message, "rank", -1);
    uni__slot *worker = rank >= 0 && rank < group->num_slots ? &group->slots[rank] : NULL;
    char sentence[512];
    if (rank == group->num_slots) {
        launcher_frame(group, frame->type, message);
        uni_value_free(message);
        return;
    }
    switch (frame->type) {
    case UNI__AGENT_HELLO:
        group->agent_pid = (int)uni_dict_get_int(message, "pid", 0);
        group->keeper_pid = (int)uni_dict_get_int(message, "keeper", 0);
        break;
    case UNI__AGENT_SPAWNED:
        if (worker) {
            worker->pid = (int)uni_dict_get_int(message, "pid", 0);
            group->events->spawned(group->context, rank, worker->pid);
        }
        break;
    case UNI__AGENT_SPAWN_FAILED:
        if (worker) {
            snprintf(sentence, sizeof sentence, "%s: %s",
                     uni_dict_get_string(message, "what", "cannot start it"),
                     strerror((int)uni_dict_get_int(message, "errno", 0)));
            worker->live = false;
            group->events->spawn_failed(group->context, rank, sentence);
        }
        break;
    case UNI__AGENT_EXITED:
        if (worker && worker->live)
            worker_exited(worker, message);
        break;
    case UNI__AGENT_STOPPED:
        if (worker && worker->live)
            group->events->stopped(group->context, rank,
                                   uni_dict_get_int(message, "stopped", 0) != 0);
        break;
    case UNI__AGENT_ALL_DEAD:
        uv_timer_stop(&group->deaf);
        group->events->all_dead(group->context, (int)uni_dict_get_int(message, "left", 0));
        break;
    default:
        break;
    }
    uni_value_free(message);
}

static void take_agent_frames(uni__group *group)
{
    uni__wire_frame frame;
    int found = 0;
    while (group->agent.fd >= 0 && (found = uni__wire_next(&group->agent, &frame, NULL)) > 0) {
        agent_frame(group, &frame);
        uni__wire_frame_done(&frame);
    }
    if (found < 0)
        uni__links_hang_up(group);
}

static void read_agent(uni__group *group)
{
    if (group->agent.fd < 0)
        return;
    int filled = uni__wire_fill(&group->agent, NULL);
    take_agent_frames(group);
    if (filled < 0)
        uni__links_hang_up(group);
}

static void on_agent(uv_poll_t *handle, int status, int events)
{
    read_agent(handle->data);
}

/* The keeper is gone: nothing of the tree is left. */
static void on_alive_end(uv_poll_t *handle, int status, int events)
{
    uni__group *group = handle->data;
    poll_end(&group->alive_poll);
    close(group->alive_fd);
    group->alive_fd = -1;
    uv_timer_stop(&group->deaf);
    if (group->agent.fd >= 0) {
        /* Read what it still said; its end of file follows, or it lost its keeper and goes on without: then let it go too. */
        read_agent(group);
        if (group->agent.fd >= 0) {
            uni__links_hang_up(group);
        }
    }
    group->agent_alive = false;
    group->launcher.live = false;
    if (group->closing) {
        uv_stop(&group->loop);
        return;
    }
    if (group->remote)
        uni__remote_drop_hosts(group); /* they end their workers when the link is gone */
    for (int i = 0; i < group->num_slots; i++) {
        read_channel(&group->slots[i]);
        drain_slot(&group->slots[i], SIZE_MAX);
        group->slots[i].live = false;
        group->slots[i].pid = 0;
        close_report(&group->slots[i]);
    }
    group->events->agent_lost(group->context);
}

static void on_deaf(uv_timer_t *handle)
{
    uni__group *group = handle->data;
    if (group->alive_fd < 0 || group->agent_pid <= 0)
        return;
    uni__warn("unisono-agent (pid %d) does not answer, was it stopped? It is killed, and its "
              "workers with it",
              group->agent_pid);
    /* Its number cannot be somebody else's yet: the keeper, which waits for it, is there. */
    kill(group->agent_pid, SIGKILL);
    if (group->keeper_pid > 0)
        kill(group->keeper_pid, SIGCONT);
}

/* The state letter of a process, or 0. */
static char state_of(int pid)
{
    char path[64], line[512], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    size_t size = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file)
        fclose(file);
    line[size] = '\0';
    const char *close_paren = strrchr(line, ')');
    return close_paren && sscanf(close_paren + 1, " %c", &state) == 1 ? state : 0;
}

void uni__links_watch_agent(uni__group *group, uint64_t now)
{
    if (!group->agent_alive || group->agent_pid <= 0 || now - group->agent_looked_ns < 1000000000u)
        return;
    group->agent_looked_ns = now;
    if (state_of(group->agent_pid) != 'T')
        group->agent_stopped_ns = 0;
    else if (!group->agent_stopped_ns)
        group->agent_stopped_ns = now;
    else if (now - group->agent_stopped_ns > AGENT_STOPPED_NS)
        on_deaf(&group->deaf); /* nobody would tell us of a worker's end */
}

void uni__links_expect_end(uni__group *group, int milliseconds)
{
    uv_update_time(&group->loop);
    uv_timer_start(&group->deaf, on_deaf, (uint64_t)milliseconds, 0);
}

/* The agent is gone, its keeper still ends what is left of the tree: the next one starts after that. */
static void wait_for_keeper(uni__group *group)
{
    struct pollfd end = { .fd = group->alive_fd, .events = POLLIN };
    if (group->alive_fd < 0)
        return;
    if (poll(&end, 1, KEEPER_MS) == 0)
        uni__warn("what is left of the last worker group takes long to end");
    poll_end(&group->alive_poll);
    close(group->alive_fd);
    group->alive_fd = -1;
    uv_timer_stop(&group->deaf);
}

int uni__links_start_agent(uni__group *group, uni_error *err)
{
    int channel;
    wait_for_keeper(group);
    group->agent_pid = group->keeper_pid = 0;
    UNI_TRY(uni__launch_agent(group->template_fd, &channel, &group->alive_fd, err));
    uni__wire_init(&group->agent, channel);
    group->agent.fills_while_sending = true;
    group->agent_alive = true;
    UNI_TRY(poll_begin(&group->agent_poll, group, channel, on_agent, group, err));
    return poll_begin(&group->alive_poll, group, group->alive_fd, on_alive_end, group, err);
}

/* ---- spawning and sending ---- */

void uni__links_empty_slot(uni__slot *worker)
{
    uni__page_unmap(worker->page);
    worker->page = NULL;
    poll_end(&worker->channel_poll);
    uni__wire_close(&worker->wire);
    close_report(worker);
    free(worker->joined);
    worker->joined = NULL;
    worker->joined_size = 0;
    worker->live = worker->broken = worker->line_too_long = worker->held = false;
    worker->pid = 0;
}

uni_value *uni__links_spawn_order(const uni__spawn *spawn)
{
    uni_value *order = uni_value_dict();
    int status = 0;
    status |= uni_dict_take(order, "rank", uni_value_int(spawn->rank));
    status |= uni_dict_take(order, "mode", uni_value_string(spawn->runs_functions ? "f" : "p"));
    status |= uni_dict_take(order, "exe", uni_value_string(spawn->exe));
    status |= uni_dict_take(order, "cwd", uni_value_string(spawn->cwd ? spawn->cwd : ""));
    status |= uni_dict_take(order, "log", uni_value_string(spawn->log));
    status |= uni_dict_take(order, "memory", uni_value_int((int64_t)spawn->memory));
    status |= uni_dict_take(order, "argv", uni_value_copy(spawn->argv));
    status |= uni_dict_take(order, "env", uni_value_copy(spawn->environment));
    if (status == 0)
        return order;
    uni_value_free(order);
    return NULL;
}

int uni__group_spawn(uni__group *group, const uni__spawn *spawn, uni_error *err)
{
    uni__slot *worker = &group->slots[spawn->rank];
    int pair[2] = { -1, -1 }, pipe_ends[2] = { -1, -1 }, page_fd = -1, status;
    if (group->remote)
        return uni__remote_spawn(group, spawn, err);
    uni_value *order = uni__links_spawn_order(spawn);
    uni__links_empty_slot(worker);
    if (!order)
        return uni_error_set(err, UNI_ENOMEM, "no memory to start rank %d", spawn->rank);
    if (!group->agent_alive)
        UNI_TRY_GOTO(uni__links_start_agent(group, err), fail);
    UNI_TRY_GOTO(uni__page_new(&worker->page, &page_fd, err), fail);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
        pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        status =
            uni_error_set_errno(err, errno, "cannot make the connection to rank %d", spawn->rank);
        goto fail;
    }
    /* Only our end is non-blocking: a program that writes lines waits for room. */
    fcntl(pipe_ends[1], F_SETFL, fcntl(pipe_ends[1], F_GETFL) & ~O_NONBLOCK);
    const int fds[] = { pair[1], page_fd, group->event_fd, pipe_ends[1] };
    UNI_TRY_GOTO(
        uni__wire_send_value(&group->agent, UNI__AGENT_SPAWN, order, fds, 4, SEND_TIMEOUT_MS, err),
        fail);
    uni__wire_init(&worker->wire, pair[0]);
    worker->report_fd = pipe_ends[0];
    worker->live = true;
    worker->heartbeat = 0;
    worker->heartbeat_ns = uni__monotonic_ns();
    pair[0] = pipe_ends[0] = -1;
    status = poll_begin(&worker->report_poll, group, worker->report_fd, on_report, worker, err);
    if (status == 0)
        status = poll_begin(&worker->channel_poll, group, worker->wire.fd, on_channel, worker, err);
fail:
    uni_value_free(order);
    if (page_fd >= 0)
        close(page_fd);
    for (int i = 0; i < 2; i++) {
        if (pair[i] >= 0)
            close(pair[i]);
        if (pipe_ends[i] >= 0)
            close(pipe_ends[i]);
    }
    return status < 0 ? status : 0;
}

int uni__links_spawn_plain(uni__group *group, const uni__spawn *spawn, uni_error *err)
{
    uni_value *order = uni__links_spawn_order(spawn);
    if (!order)
        return uni_error_set(err, UNI_ENOMEM, "no memory to start %s", spawn->exe);
    int status = group->agent_alive ? 0 : uni__links_start_agent(group, err);
    if (status == 0)
        status = uni__wire_send_value(&group->agent, UNI__AGENT_SPAWN, order, NULL, 0,
                                      SEND_TIMEOUT_MS, err);
    uni_value_free(order);
    group->launcher.live = status == 0;
    return status;
}

int uni__group_send(uni__group *group, int rank, int type, const void *payload, size_t size, int fd,
                    uni_error *err)
{
    uni__slot *worker = &group->slots[rank];
    if (group->remote)
        return uni__remote_send(group, rank, type, payload, size, fd, err);
    return uni__wire_send(&worker->wire, type, payload, size, &fd, fd >= 0, SEND_TIMEOUT_MS, err);
}

void uni__links_tell_agent(uni__group *group, int type, int rank, int signal)
{
    uni_value *order = uni_value_dict();
    if (group->agent_alive && uni_dict_take(order, "rank", uni_value_int(rank)) == 0 &&
        uni_dict_take(order, "signal", uni_value_int(signal)) == 0 &&
        uni__wire_send_value(&group->agent, type, order, NULL, 0, SEND_TIMEOUT_MS, NULL) < 0)
        uni__warn("the agent does not answer; its end will be noticed");
    uni_value_free(order);
}

void uni__group_kill(uni__group *group, int rank, int signal)
{
    if (group->remote)
        uni__remote_kill(group, rank, signal);
    else
        uni__links_tell_agent(group, UNI__AGENT_KILL, rank, signal);
}

static void say_all_dead(void *argument)
{
    uni__group *group = argument;
    group->events->all_dead(group->context, 0);
}

void uni__group_kill_all(uni__group *group)
{
    if (group->remote)
        uni__remote_kill_all(group);
    else
        uni__links_kill_tree(group);
}

void uni__links_kill_tree(uni__group *group)
{
    if (group->agent_alive) {
        uni__links_tell_agent(group, UNI__AGENT_KILL_ALL, -1, SIGKILL);
        uni__links_expect_end(group, KILL_ALL_MS);
    } else if (group->alive_fd < 0) {
        uni__group_post(group, say_all_dead, group);
    } /* otherwise the keeper is at it: agent_lost follows */
}

uni__page *uni__group_page(uni__group *group, int rank)
{
    return group->slots[rank].page;
}

int uni__group_pid(uni__group *group, int rank)
{
    return group->slots[rank].pid;
}

bool uni__group_agent_alive(uni__group *group)
{
    return group->agent_alive;
}

void uni__group_pull(uni__group *group, int rank)
{
    read_channel(&group->slots[rank]);
}

int uni__links_start_events(uni__group *group, uni_error *err)
{
    return poll_begin(&group->event_poll, group, group->event_fd, on_event_fd, group, err);
}

void uni__links_hang_up(uni__group *group)
{
    if (group->agent.fd < 0)
        return;
    poll_end(&group->agent_poll);
    uni__wire_close(&group->agent);
    group->agent_alive = false;
    if (!group->closing)
        uni__links_expect_end(group, KILL_ALL_MS);
}
