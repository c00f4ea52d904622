/*
 * runner.c - the sink thread.
 *
 * One loop: posted events, then the next joined iteration, then (every 100 ms) tick. While reports
 * arrive faster than the sinks take them, the loop never sleeps; the file holds what waits.
 * Finishing sets a flag and wakes the follower: the loop drains what is visible, calls finish on
 * the sinks and ends. Signals go to the program's own threads.
 */
#include "track/runner.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "track/shared.h"
#include "base/clock.h"
#include "base/log.h"
#include "track/sink.h"

#define MAX_EVENTS 1024
#define TICK_MS 100
#define GATHER_MS 2

typedef enum phase { FOLLOWING, DRAINING, DRAINED, FINISHING } phase;

struct uni__sink_runner {
    pthread_t thread;
    uni__sink_runner_options options;
    uni_start_info info; /* with strings of our own */
    uni__follower *follower;
    uni_sink **sinks; /* NULL: disabled */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Guarded by the lock. */
    phase phase;
    uni_event *events; /* messages are owned */
    size_t num_events, first_event, dropped;
    const uni_finish_info *finish;
};

/* ---- on the sink thread ---- */

/* Sends a warning to the sinks that show events; to the log only if there is none, so that the user
 * sees it once. */
static void warn(uni__sink_runner *r, const char *message)
{
    bool shown = false;
    for (int i = 0; i < r->options.num_sinks; i++)
        shown = shown || (r->sinks[i] != NULL && r->sinks[i]->class_->event != NULL);
    uni__log(shown ? UNI_LOG_INFO : UNI_LOG_WARN, "%s", message);
    if (r->options.warning != NULL)
        r->options.warning(r->options.context, message);
    uni_event event = { .kind = UNI_EVENT_WARNING,
                        .rank = -1,
                        .wall_seconds = uni__wall_seconds(),
                        .message = message };
    uni__sink_runner_event(r, &event);
}

static void leave_out(uni__sink_runner *r, int index, const char *doing, const uni_error *err)
{
    char message[UNI_ERROR_MESSAGE_SIZE + 200];
    uni_sink *sink = r->sinks[index];
    r->sinks[index] = NULL;
    snprintf(message, sizeof message, "the sink \"%s\" failed %s and is left out from now on: %s",
             uni__sink_name(sink), doing,
             err->message[0] != 0 ? err->message : "it gave no reason");
    warn(r, message);
}

#define FOR_SINKS(r, slot, doing, ...)                                                             \
    for (int i_ = 0; i_ < (r)->options.num_sinks; i_++) {                                          \
        uni_sink *sink_ = (r)->sinks[i_];                                                          \
        uni_error err_ = { 0 };                                                                    \
        if (sink_ != NULL && sink_->class_->slot != NULL &&                                        \
            sink_->class_->slot(sink_->self, __VA_ARGS__, &err_) < 0)                              \
            leave_out(r, i_, doing, &err_);                                                        \
    }

static void tick(uni__sink_runner *r)
{
    for (int i = 0; i < r->options.num_sinks; i++)
        if (r->sinks[i] != NULL && r->sinks[i]->class_->tick != NULL)
            r->sinks[i]->class_->tick(r->sinks[i]->self);
}

/* Returns the oldest queued event, which the caller then owns, or a sentence about those that did
 * not fit. */
static bool next_event(uni__sink_runner *r, uni_event *event)
{
    bool found = false;
    pthread_mutex_lock(&r->lock);
    if (r->num_events > 0) {
        *event = r->events[r->first_event];
        r->first_event = (r->first_event + 1) % MAX_EVENTS;
        r->num_events--;
        found = true;
    } else if (r->dropped > 0) {
        char *message = NULL;
        if (asprintf(&message, "%zu more events were not shown", r->dropped) >= 0) {
            *event = (uni_event){ .kind = UNI_EVENT_WARNING, .rank = -1, .message = message };
            found = true;
        }
        r->dropped = 0;
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}

static void handle_events(uni__sink_runner *r)
{
    uni_event event;
    while (next_event(r, &event)) {
        FOR_SINKS(r, event, "on an event", &event);
        free((char *)event.message);
    }
}

static phase phase_now(uni__sink_runner *r)
{
    pthread_mutex_lock(&r->lock);
    phase now = r->phase;
    pthread_mutex_unlock(&r->lock);
    return now;
}

/* Waits on `changed`, with the lock held, for at most this long. */
static void wait_changed(uni__sink_runner *r, int milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += milliseconds * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

/* After a burst: lets reports gather, so that the controller does not have to wake this thread for
 * every single one. Events and the end are not delayed. */
static void gather(uni__sink_runner *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->phase == FOLLOWING && r->num_events == 0)
        wait_changed(r, GATHER_MS);
    pthread_mutex_unlock(&r->lock);
}

static void follow(uni__sink_runner *r)
{
    uint64_t next_tick = uni__monotonic_ns();
    bool ending = false, burst = false;
    for (;;) {
        const uni_reports *reports = NULL;
        uni_error err = { 0 };
        if (!ending && phase_now(r) != FOLLOWING) {
            uni__follower_end(r->follower);
            ending = true;
        }
        int status = uni__follower_next(r->follower, ending || burst ? 0 : TICK_MS, &reports, &err);
        char *missing = uni__follower_missing_warning(r->follower);
        if (missing[0] != 0) {
            warn(r, missing);
            missing[0] = 0;
        }
        handle_events(r);
        if (status == 1) {
            FOR_SINKS(r, result, "on a report", reports);
            if (r->options.lockstep && r->options.consumed != NULL)
                r->options.consumed(r->options.context, reports->attempt, reports->iteration);
        }
        uint64_t now = uni__monotonic_ns();
        if (now >= next_tick) {
            tick(r);
            next_tick = now + (uint64_t)TICK_MS * 1000000;
        }
        if (status == 0 && burst)
            gather(r);
        burst = status == 1 && !r->options.lockstep;
        if (status < 0) {
            if (status != UNI_EEND)
                warn(r, err.message);
            return;
        }
    }
}

static void *run(void *argument)
{
    uni__sink_runner *r = argument;
    FOR_SINKS(r, start, "to start", &r->info);
    follow(r);
    /* After the last report, events and ticks continue until finish, because checkpoints may still
     * be persisted. */
    pthread_mutex_lock(&r->lock);
    while (r->phase != FINISHING) {
        if (r->phase == DRAINING)
            r->phase = DRAINED;
        pthread_cond_broadcast(&r->changed);
        if (r->num_events == 0)
            wait_changed(r, TICK_MS);
        pthread_mutex_unlock(&r->lock);
        handle_events(r);
        tick(r);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    handle_events(r);
    FOR_SINKS(r, finish, "to finish", r->finish);
    return NULL;
}

/* ---- the owner's side ---- */

static char *copy_text(const char *text, bool *failed)
{
    return uni__sink_copy(text == NULL ? "" : text, failed);
}

static void runner_free(uni__sink_runner *r)
{
    for (size_t i = 0; i < r->num_events; i++)
        free((char *)r->events[(r->first_event + i) % MAX_EVENTS].message);
    uni__follower_free(r->follower);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free((char *)r->info.run_dir);
    free((char *)r->info.name);
    free((char *)r->info.run_id);
    free((char *)r->info.function);
    free(r->events);
    free(r->sinks);
    free(r);
}

/* The thread blocks all signals except those that its own code causes. */
static int start_thread(uni__sink_runner *r)
{
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&r->thread, NULL, run, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure == 0)
        pthread_setname_np(r->thread, "uni-sinks");
    return failure;
}

int uni__sink_runner_start(uni__sink_runner **out, const uni__sink_runner_options *options,
                           uni_error *err)
{
    int status = 0;
    bool failed = false;
    *out = NULL;
    uni__sink_runner *r = calloc(1, sizeof *r);
    if (r == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the sinks");
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    r->options = *options;
    r->info = *options->info;
    r->info.run_dir = copy_text(options->info->run_dir, &failed);
    r->info.name = copy_text(options->info->name, &failed);
    r->info.run_id = copy_text(options->info->run_id, &failed);
    r->info.function = copy_text(options->info->function, &failed);
    r->events = calloc(MAX_EVENTS, sizeof *r->events);
    r->sinks = calloc((size_t)options->num_sinks + 1, sizeof *r->sinks);
    if (failed || r->events == NULL || r->sinks == NULL) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for the sinks");
        goto fail;
    }
    for (int i = 0; i < options->num_sinks; i++)
        r->sinks[i] = options->sinks[i];
    UNI_TRY_GOTO(uni__follower_new(&r->follower, options->writer, err), fail);
    if (options->lockstep)
        uni__follower_limits_set(
            r->follower, &(uni__follower_limits){ .patience_ms = -1, .window = -1, .most = -1 });
    int failure = start_thread(r);
    if (failure != 0) {
        status = uni_error_set_errno(err, failure, "cannot start the thread of the sinks");
        goto fail;
    }
    *out = r;
    return 0;
fail:
    runner_free(r);
    return status;
}

void uni__sink_runner_event(uni__sink_runner *r, const uni_event *event)
{
    uni_event copy = *event;
    copy.message = strdup(event->message == NULL ? "" : event->message);
    pthread_mutex_lock(&r->lock);
    if (copy.message == NULL || r->num_events == MAX_EVENTS) {
        r->dropped++;
        free((char *)copy.message);
    } else {
        r->events[(r->first_event + r->num_events++) % MAX_EVENTS] = copy;
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    uni__follower_wake(r->follower);
}

static void ask(uni__sink_runner *r, phase wanted)
{
    pthread_mutex_lock(&r->lock);
    if (wanted > r->phase)
        r->phase = wanted;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    uni__follower_wake(r->follower);
}

void uni__sink_runner_drain(uni__sink_runner *r)
{
    ask(r, DRAINING);
    pthread_mutex_lock(&r->lock);
    while (r->phase < DRAINED)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

int uni__sink_runner_uneven(uni__sink_runner *r, char *sentence, size_t size)
{
    return uni__follower_uneven(r->follower, sentence, size);
}

void uni__sink_runner_finish(uni__sink_runner *r, const uni_finish_info *info)
{
    if (r == NULL)
        return;
    r->finish = info;
    ask(r, FINISHING);
    pthread_join(r->thread, NULL);
    runner_free(r);
}
