/*
 * group.c - the controller thread: a libuv loop with its timers, signals and posted work. What it
 * reads and writes is in links.c; the interface and the thread rules are in group.h.
 */
#include "group/group.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "group/agent.h"
#include "group/internal.h"
#include "group/remote.h"

#define FREE_DESCRIPTORS                                                                           \
    32 /* in the controller; the loop, the agent and the first worker take half of them */
/* In all: agent_child.c moves a worker's descriptors out of its way. */
#define LEAST_DESCRIPTORS (UNI__WORKER_FIRST_FD + 2 * UNI__WIRE_MAX_FDS)

/* Seconds for workers to end, however short the grace: an exit handler of MPI must run. */
#define LEAST_FAREWELL 2
#define TICK_MS 100
#define LATE_TICK_NS 1000000000ull

/* The process that claimed the session is gone or on its way out: the agent tells how it ended,
 * however long the kernel takes for it. (Not when the agent was stopped.) */
static bool is_ending(const uni__group *group, const uni__worker_slot *worker)
{
    uni__process agent;
    return !group->remote && uni__process_is_ending((int)atomic_load(&worker->page->owner)) &&
           uni__process_look(group->agent_pid, &agent) && agent.state != 'T';
}

/* Tells of a claimed session without heartbeats, and once when they come again. The clock starts at
 * the claim: a slow start is not silence. */
static void watch_heartbeat(uni__group *group, uni__worker_slot *worker, uint64_t now, bool late)
{
    /* Of another host's worker only what its host has said since counts: a silent host is another
     * matter. */
    uint64_t known = group->remote ? uni__remote_heard_ns(group, worker->rank, now) : now;
    double quiet =
        uni__worker_listen(&worker->life, atomic_load(&worker->page->heartbeat), now, known, late);
    if (quiet == 0 || (quiet > 0 && is_ending(group, worker)))
        return;
    worker->life.silent = quiet > 0;
    UNI__TELL(group, silent, worker->rank, quiet > 0 ? quiet : 0);
}

static void on_tick(uv_timer_t *handle)
{
    uni__group *group = handle->data;
    uint64_t now = uni__monotonic_ns();
    /* When we ourselves were stopped or starved, old heartbeats prove nothing. */
    bool late = now - group->last_tick_ns > LATE_TICK_NS;
    group->last_tick_ns = now;
    uni__links_press_proofs(group, now);
    if (group->remote)
        uni__remote_tick(group, now, late);
    for (int i = 0; i < group->num_slots; i++) {
        uni__worker_slot *worker = &group->slots[i];
        /* The heart ends with the session: a program may take its time after it. */
        if (uni__worker_is_live(&worker->life) && worker->life.state != UNI__WORKER_CLOSING &&
            worker->page && atomic_load(&worker->page->owner) != 0)
            watch_heartbeat(group, worker, now, late);
    }
    uni__links_watch_agent(group, now);
    UNI__TELL(group, tick);
}

static void on_after(uv_timer_t *handle)
{
    uni__group *group = handle->data;
    void (*function)(void *) = group->after_function;
    group->after_function = NULL;
    if (function)
        function(group->context);
}

void uni__group_after(uni__group *group, int milliseconds, void (*function)(void *context))
{
    group->after_function = function;
    if (function) {
        uv_update_time(&group->loop);
        uv_timer_start(&group->after, on_after, (uint64_t)milliseconds, 0);
    } else {
        uv_timer_stop(&group->after);
    }
}

static void on_signal(uv_signal_t *handle, int number)
{
    uni__group *group = handle->data;
    if (!uni__remote_explains_signal(group))
        UNI__TELL(group, signalled, number);
}

int uni__group_handle_signals(uni__group *group, bool on, uni_error *err)
{
    static const int numbers[2] = { SIGINT, SIGTERM };
    for (int i = 0; i < 2 && on != group->handles_signals; i++) {
        int code = on ? uv_signal_start(&group->signals[i], on_signal, numbers[i])
                      : uv_signal_stop(&group->signals[i]);
        if (code < 0)
            return uni_error_set(err, UNI_EIO, "cannot watch for signal %d: %s", numbers[i],
                                 uv_strerror(code));
    }
    group->handles_signals = on;
    return 0;
}

static void on_async(uv_async_t *handle)
{
    uni__group *group = handle->data;
    for (;;) {
        pthread_mutex_lock(&group->lock);
        uni__posted *item = group->first;
        if (item && !(group->first = item->next))
            group->last = NULL;
        pthread_mutex_unlock(&group->lock);
        if (!item)
            return;
        item->function(item->argument);
        free(item);
    }
}

void uni__group_post(uni__group *group, void (*function)(void *argument), void *argument)
{
    uni__posted *item = malloc(sizeof *item);
    if (!item)
        return;
    *item = (uni__posted){ .function = function, .argument = argument };
    pthread_mutex_lock(&group->lock);
    if (group->last)
        group->last->next = item;
    else
        group->first = item;
    group->last = item;
    pthread_mutex_unlock(&group->lock);
    uv_async_send(&group->async);
}

typedef struct rendezvous {
    void (*function)(void *argument);
    void *argument;
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done;
} rendezvous;

static void run_and_tell(void *argument)
{
    rendezvous *call = argument;
    call->function(call->argument);
    pthread_mutex_lock(&call->lock);
    call->done = true;
    pthread_cond_signal(&call->done_cond);
    pthread_mutex_unlock(&call->lock);
}

void uni__group_call(uni__group *group, void (*function)(void *argument), void *argument)
{
    rendezvous call = { .function = function, .argument = argument };
    pthread_mutex_init(&call.lock, NULL);
    pthread_cond_init(&call.done_cond, NULL);
    uni__group_post(group, run_and_tell, &call);
    pthread_mutex_lock(&call.lock);
    while (!call.done)
        pthread_cond_wait(&call.done_cond, &call.lock);
    pthread_mutex_unlock(&call.lock);
    pthread_cond_destroy(&call.done_cond);
    pthread_mutex_destroy(&call.lock);
}

typedef struct farewell {
    uni__group *group;
    double seconds;
    bool said;
    int left;
} farewell;

static void say_farewell(void *argument)
{
    static const uint8_t empty_map[1] = { 0x80 };
    farewell *call = argument;
    uni__group *group = call->group;
    for (int i = 0; i < group->num_slots && !call->said; i++)
        if (uni__worker_is_idle(&group->slots[i].life) &&
            uni__group_send(group, i, UNI__TO_WORKER_SHUTDOWN, empty_map, sizeof empty_map, -1,
                            NULL) < 0)
            uni__warn("rank %d could not be told to end: it is killed", i);
    call->said = true;
    call->left = 0;
    for (int i = 0; i < group->num_slots; i++)
        call->left += group->slots[i].life.state == UNI__WORKER_CLOSING;
}

static void name_the_late(void *argument)
{
    const farewell *call = argument;
    for (int i = 0; i < call->group->num_slots; i++)
        if (call->group->slots[i].life.state == UNI__WORKER_CLOSING)
            uni__warn(
                "rank %d (pid %d) was told to end and has not ended within %g s: it is killed "
                "(an exit handler or a thread of the program takes longer; grace_seconds)",
                i, (int)call->group->slots[i].life.pid, call->seconds);
}

void uni__group_dismiss(uni__group *group, double seconds)
{
    if (seconds < LEAST_FAREWELL)
        seconds = LEAST_FAREWELL;
    farewell call = { .group = group, .seconds = seconds };
    uni__group_call(group, say_farewell, &call);
    uint64_t deadline = uni__monotonic_ns() + (uint64_t)(seconds * 1e9);
    for (long pause_us = 100; call.left > 0 && uni__monotonic_ns() < deadline;
         pause_us = pause_us < 5000 ? pause_us * 2 : 5000) {
        nanosleep(&(struct timespec){ .tv_nsec = pause_us * 1000 }, NULL);
        uni__group_call(group, say_farewell, &call);
    }
    if (call.left > 0)
        uni__group_call(group, name_the_late, &call);
}

/* ---- life ---- */

static void *controller_thread(void *argument)
{
    uni__group *group = argument;
    uv_run(&group->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* libuv aborts the process when it cannot make its own pipe, and a worker's first steps need
 * numbers above 230, so the descriptors are counted before. */
static int check_descriptors(uni_error *err)
{
    int taken[FREE_DESCRIPTORS], count = 0;
    struct rlimit limit = { .rlim_cur = RLIM_INFINITY };
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    while (count < FREE_DESCRIPTORS && (taken[count] = fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0)
        count++;
    int why = count < FREE_DESCRIPTORS ? errno : 0;
    for (int i = 0; i < count; i++)
        close(taken[i]);
    if (why == EMFILE || limit.rlim_cur < LEAST_DESCRIPTORS)
        return uni_error_set(
            err, UNI_ERESOURCE,
            "too few file descriptors: ulimit -n is %llu here, and a run needs %d, "
            "of which %d are free; raise it, for example with `ulimit -n 1024`",
            (unsigned long long)limit.rlim_cur, LEAST_DESCRIPTORS, FREE_DESCRIPTORS);
    if (why && why != EBADF) /* a closed stdin is not our business */
        return uni_error_set_errno(err, why, "cannot make file descriptors");
    return 0;
}

static int start_loop(uni__group *group, uni_error *err)
{
    UNI_TRY(uni__process_check(err));
    UNI_TRY(check_descriptors(err));
    group->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (group->event_fd < 0)
        return uni_error_set_errno(err, errno, "cannot make an eventfd");
    int code = uv_loop_init(&group->loop);
    if (code < 0) {
        close(group->event_fd);
        return uni_error_set(err, UNI_EIO, "cannot make an event loop: %s", uv_strerror(code));
    }
    uv_async_init(&group->loop, &group->async, on_async);
    uv_prepare_init(&group->loop, &group->prepare);
    uv_timer_init(&group->loop, &group->tick);
    uv_timer_init(&group->loop, &group->after);
    uv_timer_init(&group->loop, &group->deaf);
    uv_signal_init(&group->loop, &group->signals[0]);
    uv_signal_init(&group->loop, &group->signals[1]);
    group->async.data = group->prepare.data = group->tick.data = group->after.data =
        group->deaf.data = group->signals[0].data = group->signals[1].data = group;
    uv_prepare_start(&group->prepare, uni__links_before_sleep);
    uv_timer_start(&group->tick, on_tick, TICK_MS, TICK_MS);
    group->last_tick_ns = uni__monotonic_ns();
    return uni__links_start_events(group, err);
}

static void close_handle(uv_handle_t *handle, void *argument)
{
    if (!uv_is_closing(handle))
        uv_close(handle, handle->type == UV_POLL ? uni__links_free_poll : NULL);
}

static void end_loop(uni__group *group)
{
    uni__remote_free(group);
    while (group->links)
        uni__link_close(group->links);
    uv_walk(&group->loop, close_handle, NULL);
    uv_run(&group->loop, UV_RUN_DEFAULT);
    uv_loop_close(&group->loop);
    close(group->event_fd);
}

static void destroy(uni__group *group)
{
    for (int i = 0; i < group->num_slots; i++) {
        group->slots[i].report_poll = group->slots[i].channel_poll =
            NULL; /* was closed with the loop */
        uni__links_empty_slot(&group->slots[i]);
    }
    uni__wire_close(&group->agent);
    if (group->alive_fd >= 0)
        close(group->alive_fd);
    for (uni__posted *item = group->first; item;) {
        uni__posted *next = item->next;
        free(item);
        item = next;
    }
    pthread_mutex_destroy(&group->lock);
    free(group->frame);
    free(group->slots);
    free(group);
}

int uni__group_new(uni__group **out, int num_workers, int template_fd,
                   const uni__group_events *events, void *context, uni_error *err)
{
    *out = NULL;
    int status;
    uni__group *group = calloc(1, sizeof *group);
    if (!group)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a worker group");
    group->slots = calloc((size_t)num_workers, sizeof *group->slots);
    group->num_slots = num_workers;
    group->events = events;
    group->context = context;
    group->alive_fd = -1;
    group->agent.fd = -1;
    group->template_fd = template_fd;
    pthread_mutex_init(&group->lock, NULL);
    for (int i = 0; group->slots && i < num_workers; i++)
        group->slots[i] =
            (uni__worker_slot){ .group = group, .rank = i, .wire = { .fd = -1 }, .report_fd = -1 };
    if (!group->slots) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for %d workers", num_workers);
        group->num_slots = 0;
        goto fail;
    }
    UNI_TRY_GOTO(start_loop(group, err), fail);
    status = uni__links_start_agent(group, err);
    if (status < 0) {
        end_loop(group);
        goto fail;
    }
    /* Signals of the user's program are none of this thread's business. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&group->thread, NULL, controller_thread, group);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        status = uni_error_set_errno(err, error, "cannot start the controller thread");
        end_loop(group);
        goto fail;
    }
    *out = group;
    return 0;
fail:
    destroy(group);
    return status;
}

static void on_close_timeout(uv_timer_t *handle)
{
    uni__group *group = handle->data;
    if (uv_is_active((uv_handle_t *)&group->deaf)) { /* it is late, and is given more time */
        uv_timer_start(handle, on_close_timeout, 1000, 0);
        return;
    }
    uni__warn("the agent did not end its workers in time");
    uv_stop(&group->loop);
}

static void begin_closing(void *argument)
{
    uni__group *group = argument;
    group->closing = true;
    uv_timer_stop(&group->tick);
    uv_timer_stop(&group->after);
    uv_signal_stop(&group->signals[0]);
    uv_signal_stop(&group->signals[1]);
    if (group->alive_fd < 0) {
        uv_stop(&group->loop);
        return;
    }
    /* The agent reads the end of its channel, kills what is left and ends; the keeper follows:
     * on_alive_end stops the loop. */
    uni__links_hang_up(group);
    uni__links_expect_end(group, 3000);
    uv_timer_start(&group->after, on_close_timeout, 4000, 0);
}

void uni__group_free(uni__group *group)
{
    if (!group)
        return;
    uni__group_post(group, begin_closing, group);
    pthread_join(group->thread, NULL);
    end_loop(group);
    destroy(group);
}
