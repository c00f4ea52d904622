/*
 * control.c - the state machine of a run, on the controller thread.
 *
 *     NEW -> RUNNING -> FINISHING -> DONE               every rank returned (or exited with 0)
 *            RUNNING -> FAILING -> WAITING -> RUNNING   a rank died: the group starts again
 *                       FAILING -> DONE                 no budget left, or stopping
 *
 * The first cause decides; whatever else dies between it and the end of the survivors is its
 * victim. Survivors get 20 ms to finish a write, not more: recovery within 100 ms is the promise,
 * and grace is for stopping. Only when a checkpoint was handed in and waits for the report of a
 * rank that has not failed, that rank gets up to a second to reach it. Checkpoints on their way are
 * completed before the run's next state is decided.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/hosts_internal.h"
#include "train/shared.h"

#define SURVIVOR_MS 20
#define COMPLETE_NS 1000000000ull /* for the reports that a checkpoint still waits for */
#define TAIL_LINES 20

static void kill_survivors(void *context);

/* ---- telling ---- */

void uni__run_tell(uni__run *run, uni_event_kind kind, int rank, const char *format, ...)
{
    char message[UNI_ERROR_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    uni_event event = { .kind = kind,
                        .attempt = run->attempt.number,
                        .rank = rank,
                        .wall_seconds = uni__wall_seconds(),
                        .message = message };
    event.iteration = rank >= 0 ? run->ranks[rank].iteration : run->outcome.progress.iteration;
    if (kind == UNI_EVENT_WARNING) {
        uni__run_note(run, "warning", UNI__DICT({ "message", uni_value_string(message) }), false);
    }
    if (run->sinks)
        uni__sink_runner_event(run->sinks, &event);
}

void uni__run_describe(uni__run *run, const char *status)
{
    uni_error err = { 0 };
    if (uni__run_write_description(run, status, &err) < 0)
        uni__warn("%s", err.message);
}

/* ---- the end ---- */

static void finish(uni__run *run, const char *status, int code, const char *format, ...)
    UNI_PRINTF(4, 5);
static void finish(uni__run *run, const char *status, int code, const char *format, ...)
{
    va_list arguments;
    run->state = UNI__RUN_DONE;
    run->outcome.error.code = code;
    va_start(arguments, format);
    vsnprintf(run->outcome.error.message, sizeof run->outcome.error.message, format, arguments);
    va_end(arguments);
    uni__group_after(run->group, 0, NULL);
    uni_error err = { 0 };
    if (uni__results_writer_flush(run->writer, &err) < 0)
        uni__warn("the last reports of %s could not be written: %s", run->places.id, err.message);
    uni__places_release_reserve(&run->places);
    uni__run_note(run, "finish",
                  UNI__DICT({ "status", uni_value_string(status) },
                            { "code", uni_value_string(uni_status_name(code)) },
                            { "message", uni_value_string(run->outcome.error.message) }),
                  true);
    /* A run whose end cannot be written down has not ended well: later it would be shown
     * as running. */
    if (uni__run_write_description(run, status, &err) < 0 && run->outcome.error.code == 0) {
        uni_error_set(&run->outcome.error, err.code,
                      "every rank succeeded, but that could not be written: %.800s", err.message);
        run->outcome.cause.kind =
            err.code == UNI_EDISKFULL ? UNI__CAUSE_DISK_FULL : UNI__CAUSE_INTERNAL;
        snprintf(run->outcome.cause.message, sizeof run->outcome.cause.message, "%s",
                 run->outcome.error.message);
    }
    run->trainer->run = NULL;
    uni__outcome_tell(&run->outcome);
}

static const char *how_to_go_on(const uni__run *run, char *out, size_t size)
{
    if (run->request.program)
        snprintf(out, size, "go on with `unisono run --resume %.400s`", run->places.id);
    else
        snprintf(out, size, "go on with resume_run = \"%.400s\"", run->places.dir);
    return out;
}

/* All workers are gone, and a stop was requested. */
void uni__run_finish_stopped(uni__run *run)
{
    char next[512];
    uni__cause cause = { .rank = -1,
                         .exit_code = -1,
                         .attempt = run->attempt.number,
                         .iteration = run->outcome.progress.iteration,
                         .time = uni__wall_seconds() };
    uni__cause_clear(&run->outcome.cause);
    how_to_go_on(run, next, sizeof next);
    switch (run->stop.reason) {
    case UNI__STOPPING_TIME:
        cause.kind = UNI__CAUSE_TIME_LIMIT;
        cause.error_code = UNI_ETIMEOUT;
        snprintf(cause.message, sizeof cause.message,
                 "the time limit of %g s ran out at iteration %lld; %s", run->request.time_limit,
                 (long long)run->outcome.progress.iteration, next);
        break;
    case UNI__STOPPING_INTERRUPT:
        cause.kind = UNI__CAUSE_PREEMPTED;
        cause.signal = SIGINT;
        cause.error_code = UNI_EPREEMPTED;
        snprintf(cause.message, sizeof cause.message, "interrupted at iteration %lld%s; %s",
                 (long long)run->outcome.progress.iteration,
                 run->stop.hard ? " without waiting" : "", next);
        break;
    case UNI__STOPPING_RANK:
        cause.kind = UNI__CAUSE_PREEMPTED;
        cause.rank = run->stop.rank;
        cause.error_code = UNI_EPREEMPTED;
        snprintf(cause.message, sizeof cause.message,
                 "stopped at iteration %lld because rank %d says that it got SIGTERM; %s",
                 (long long)run->outcome.progress.iteration, run->stop.rank, next);
        break;
    default:
        cause.kind = UNI__CAUSE_PREEMPTED;
        cause.error_code = UNI_EPREEMPTED;
        snprintf(cause.message, sizeof cause.message, "stopped at iteration %lld as %s asked; %s",
                 (long long)run->outcome.progress.iteration,
                 run->stop.reason == UNI__STOPPING_CALLER ? "the program" : "SIGTERM", next);
        break;
    }
    snprintf(cause.host, sizeof cause.host, "%s", run->trainer->host.hostname);
    run->outcome.cause = cause;
    finish(run, "stopped", cause.error_code, "%s", cause.message);
}

static bool nobody_saw_the_stop(uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (run->request.program || (page && atomic_load(&page->stop_seen)))
            return false;
    }
    return true;
}

static void decide(uni__run *run);

void uni__run_persisted(uni__run *run)
{
    if (run->state == UNI__RUN_SETTLING)
        decide(run);
    if (run->state != UNI__RUN_FINISHING)
        return;
    uni__run_look_for_steps(run, true);
    /* Ranks that returned by themselves before the stop reached them have simply succeeded. */
    if (run->stop.reason == UNI__NOT_STOPPING || run->stop.reason == UNI__STOPPING_EARLY ||
        nobody_saw_the_stop(run))
        finish(run, "succeeded", 0, "%s", "");
    else
        uni__run_finish_stopped(run);
}

/* ---- failures ---- */

static void complete_cause(uni__run *run, uni__cause *cause)
{
    cause->attempt = run->attempt.number;
    cause->iteration = cause->rank >= 0 ? run->ranks[cause->rank].iteration : 0;
    for (int i = 0; cause->rank < 0 && i < run->num_workers; i++)
        if (run->ranks[i].iteration > cause->iteration)
            cause->iteration = run->ranks[i].iteration;
    snprintf(cause->host, sizeof cause->host, "%s", uni__rank_host(run, cause->rank));
    cause->log_tail = cause->rank >= 0 ? uni__run_log_tail(run, cause->rank, TAIL_LINES) : NULL;
}

/* Ranks that wait for each other in a collective learn at once that it will not come, and why. */
static void raise_alarm(uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (!page || atomic_load(&page->alarm))
            continue;
        snprintf(page->alarm_reason, sizeof page->alarm_reason, "%.250s",
                 run->outcome.cause.message);
        atomic_store(&page->alarm, 1);
    }
}

void uni__run_suspect(uni__run *run, int rank, bool frozen)
{
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        uint32_t expected = (uint32_t)rank + 1;
        if (page && frozen)
            atomic_store(&page->suspect, expected);
        else if (page)
            atomic_compare_exchange_strong(&page->suspect, &expected, 0);
    }
}

void uni__run_fail(uni__run *run, const uni__cause *cause)
{
    if (run->state != UNI__RUN_RUNNING)
        return;
    uni__cause first = *cause;
    if (!uni__replace_failed(run, &first)) {
        uni__cause_clear(&run->budget.before);
        run->budget.before = run->outcome.cause;
    } else {
        uni__cause_clear(&run->outcome.cause);
    }
    run->outcome.cause = first;
    complete_cause(run, &run->outcome.cause);
    uni__run_name_ended(run, &run->outcome.cause);
    run->state = UNI__RUN_FAILING;
    run->attempt.failed_ns = uni__monotonic_ns();
    run->attempt.victims[0] = '\0';
    raise_alarm(run);
    uni__run_note(run, "cause", UNI__DICT({ "cause", uni__cause_to_value(&run->outcome.cause) }),
                  true);
    uni__run_tell(run, UNI_EVENT_FAILURE, run->outcome.cause.rank, "%s",
                  run->outcome.cause.message);
    uni__group_after(run->group, SURVIVOR_MS, kill_survivors);
}

void uni__run_fatal(uni__run *run, uni__cause_class kind, const uni_error *error)
{
    uni__cause cause = uni__cause_new(run, kind, -1, error->code, "%s", error->message);
    run->budget.no_retry = true;
    if (run->state == UNI__RUN_FINISHING) {
        /* All ranks are done: only what we do ourselves can fail now. */
        uni__cause_clear(&run->outcome.cause);
        run->outcome.cause = cause;
        complete_cause(run, &run->outcome.cause);
        finish(run, "failed", error->code, "%s", error->message);
        return;
    }
    if (run->state == UNI__RUN_FAILING || run->state == UNI__RUN_SETTLING) {
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "while the attempt ended: %s", error->message);
        snprintf(run->budget.why, sizeof run->budget.why, " (not started again: %.350s)",
                 error->message);
    }
    uni__run_fail(run, &cause);
}

void uni__run_writer_failed(uni__run *run, const uni_error *error)
{
    run->writer_failed = true;
    uni__run_fatal(run, error->code == UNI_EDISKFULL ? UNI__CAUSE_DISK_FULL : UNI__CAUSE_INTERNAL,
                   error);
}

static void kill_survivors(void *context)
{
    uni_trainer *trainer = context;
    uni__run *run = trainer->run;
    if (!run)
        return;
    /* What report() has accepted is completed first, when the ranks that are left can still do
     * their part of it. */
    if (uni__persist_can_complete(run->persist) &&
        uni__monotonic_ns() - run->attempt.failed_ns < COMPLETE_NS) {
        uni__group_after(run->group, SURVIVOR_MS, kill_survivors);
        return;
    }
    int ended = 0;
    size_t used = 0;
    for (int i = 0; i < run->num_workers; i++) {
        if (i == run->outcome.cause.rank || !run->ranks[i].worker->pid)
            continue;
        ended++;
        if (used < sizeof run->attempt.victims - 40)
            used +=
                (size_t)snprintf(run->attempt.victims + used, sizeof run->attempt.victims - used,
                                 "%s%d", ended > 1 ? ", " : "rank ", i);
    }
    if (ended > 0)
        snprintf(run->attempt.victims + used, sizeof run->attempt.victims - used,
                 " ended because of it");
    uni__group_kill_all(run->group);
}

/* Why the group will not be started again, or NULL. */
static const char *verdict(uni__run *run, char *sentence, size_t size)
{
    bool counts = run->outcome.cause.kind != UNI__CAUSE_PREEMPTED && !uni__hosts_is_patient(run);
    const char *foreign = run->budget.no_retry ? NULL : uni__hosts_verdict(run, sentence, size);
    return foreign ? foreign
                   : uni__budget_verdict(&run->budget, &run->trainer->options, &run->outcome.cause,
                                         &run->outcome.progress, counts, sentence, size);
}

static void warn_of_lost_progress(uni__run *run, bool loaded)
{
    bool has_checkpoint = run->outcome.progress.checkpoints > 0 ||
                          run->outcome.progress.steps > 0 || run->outcome.kept_in_memory ||
                          !uni__start_is_empty(&run->attempt.start);
    if (run->said.lost_progress || run->outcome.progress.iteration == 0)
        return;
    if (!has_checkpoint && run->request.policy.num_to_keep == UNI_KEEP_NONE) {
        run->said.lost_progress = true;
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "%lld iterations are lost because no checkpoint was saved as a dictionary: "
                      "with num_to_keep = 0 directories are not kept",
                      (long long)run->outcome.progress.iteration);
    } else if (!has_checkpoint) {
        run->said.lost_progress = true;
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "%lld iterations are lost because no checkpoint was saved: pass one to "
                      "report() regularly, and load it at the start of the train function",
                      (long long)run->outcome.progress.iteration);
    } else if (run->attempt.number > 1 && !run->request.program && !loaded) {
        run->said.lost_progress = true;
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "the train function began again without loading the checkpoint that it was "
                      "given: call load_checkpoint at its start");
    }
}

static bool anyone_loaded(uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (page && atomic_load(&page->loaded))
            return true;
    }
    return false;
}

void uni__run_after_deaths(uni__run *run)
{
    uni__persist_give_up(run->persist);
    run->state = UNI__RUN_SETTLING;
    uni__persist_flush(run->persist);
}

/* All workers are gone, and all checkpoints that could be completed are: again, or the end. */
static void decide(uni__run *run)
{
    char sentence[256] = "";
    warn_of_lost_progress(run, anyone_loaded(run));
    if (run->stop.reason != UNI__NOT_STOPPING && run->stop.reason != UNI__STOPPING_EARLY) {
        uni__run_finish_stopped(run);
        return;
    }
    const char *end = verdict(run, sentence, sizeof sentence);
    if (end) {
        finish(run, run->outcome.cause.kind == UNI__CAUSE_PREEMPTED ? "stopped" : "failed",
               run->outcome.cause.error_code, "%.700s%s", run->outcome.cause.message, end);
        return;
    }
    if (run->outcome.cause.kind != UNI__CAUSE_PREEMPTED && !uni__hosts_is_patient(run))
        run->budget.failures++;
    run->state = UNI__RUN_WAITING;
    uni__persist_find_resume(run->persist);
}

/* ---- beginning and beginning again ---- */

static void begin_attempt(uni__run *run)
{
    uni_error err = { 0 };
    run->attempt.number++;
    if (run->stop.reason == UNI__STOPPING_EARLY) /* what a rank of the last attempt asked for */
        run->stop.reason = UNI__NOT_STOPPING;
    run->state = UNI__RUN_RUNNING;
    run->attempt.held.kind = UNI__CAUSE_NONE;
    run->attempt.group = 1;
    run->attempt.joining = run->attempt.vain = 0;
    run->attempt.closed = false;
    if (run->trainer->hosts && run->trainer->min_workers == 0)
        run->num_workers = uni__hosts_room(run->trainer);
    uni__resize_begin(run);
    run->attempt.begun_ns = run->attempt.last_report_ns = uni__monotonic_ns();
    run->budget.at_start = run->outcome.progress;
    const uni__start *start = &run->attempt.start;
    uni_value *record = UNI__DICT(
        { "from_checkpoint", start->path[0] ? uni_value_string(start->path) : uni_value_null() });
    if (start->fd >= 0 && uni_dict_take(record, "from_memory", uni_value_bool(true)) < 0)
        uni__warn("no memory to note what attempt %d starts from", run->attempt.number);
    uni__run_note(run, "attempt", record, false);
    if (uni__results_writer_attempt(run->writer, run->attempt.number, &err) < 0 ||
        uni__attempt_start(run, &err) < 0) {
        uni__run_fatal(run, UNI__CAUSE_LAUNCH, &err);
        return;
    }
    uni__run_describe(run, "running");
}

static void begin_again(void *context)
{
    uni_trainer *trainer = context;
    if (trainer->run && trainer->run->state == UNI__RUN_WAITING)
        begin_attempt(trainer->run);
}

void uni__run_resume_known(uni__run *run, const char *path, int fd, int64_t iteration,
                           uni_value *state, const char *sentence)
{
    if (run->state != UNI__RUN_WAITING) {
        uni_value_free(state);
        if (fd >= 0)
            close(fd);
        return;
    }
    if (sentence[0])
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "%s", sentence);
    run->attempt.start.iteration = iteration;
    if (iteration > run->outcome.progress.iteration) /* a resumed run has none of its own yet */
        run->outcome.progress.iteration = iteration;
    /* Its own newest takes the place of what the run was given to start from: there is one
     * checkpoint to resume from. */
    if (fd >= 0 || path[0]) {
        uni__start_set(&run->attempt.start, fd >= 0 ? "" : path, fd, state);
        run->attempt.start.pinned = fd < 0;
    }
    if (run->outcome.cause.kind ==
        UNI__CAUSE_NONE) { /* resumed: the first attempt of this controller */
        begin_attempt(run);
        return;
    }
    int backoff = uni__budget_wait_ms(&run->budget, uni__monotonic_ns() - run->attempt.begun_ns,
                                      &run->outcome.progress);
    if (run->trainer->hosts && uni__hosts_backoff_ms(run) > backoff)
        backoff = uni__hosts_backoff_ms(run);
    const char *from = path[0] ? path : run->attempt.start.path;
    const char *name = strrchr(from, '/');
    uni_event event = { .kind = UNI_EVENT_RESTART,
                        .attempt = run->attempt.number + 1,
                        .rank = -1,
                        .iteration = run->outcome.progress.iteration,
                        .wall_seconds = uni__wall_seconds() };
    char message[512];
    snprintf(message, sizeof message, "restart %d%s%.400s", run->attempt.number,
             fd >= 0 || from[0] ? " from " : " from the beginning",
             fd >= 0                                 ? "the checkpoint in memory"
             : strstr(from, "/" UNI__STEPS_NAME "/") ? "the checkpoint of a step"
             : from[0]                               ? (name ? name + 1 : from)
                                                     : "");
    event.message = message;
    if (run->sinks)
        uni__sink_runner_event(run->sinks, &event);
    uni__group_after(run->group, backoff, begin_again);
}

void uni__run_begin(void *argument)
{
    uni__run *run = argument;
    run->trainer->run = run;
    run->begun_ns = uni__monotonic_ns();
    if (run->request.program && !uni__config_fits(run->request.config))
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "the config is too long for the environment: UNISONO_CONFIG is not set. The "
                      "program gets it by its session, or in a file of yours");
    /* A resumed run goes on from its own newest checkpoint; a new one from what the caller gave. */
    if (run->resumed) {
        run->state = UNI__RUN_WAITING;
        run->attempt.begun_ns = run->begun_ns;
        uni__persist_find_resume(run->persist);
        return;
    }
    if (run->request.from_checkpoint)
        snprintf(run->attempt.start.path, sizeof run->attempt.start.path, "%s",
                 run->request.from_checkpoint);
    begin_attempt(run);
}

/* ---- ranks that end well ---- */

void uni__run_look_done(uni__run *run)
{
    if (run->state != UNI__RUN_RUNNING)
        return;
    for (int i = 0; i < run->num_workers; i++)
        if (!run->ranks[i].done && !run->ranks[i].away)
            return;
    uni__resize_end(run);
    run->state = UNI__RUN_FINISHING;
    if (run->attempt.start.pinned)
        uni__persist_unpin(run->persist);
    uni__persist_flush(run->persist);
}

void uni__run_rank_done(uni__run *run, int rank)
{
    uni_error err = { 0 };
    if (run->ranks[rank].done || (run->state != UNI__RUN_RUNNING && run->state != UNI__RUN_FAILING))
        return;
    run->ranks[rank].done = true;
    uni__replace_returned(run);
    if (run->ranks[rank].worker->state != UNI__WORKER_CLOSING)
        run->ranks[rank].ended_ns = uni__monotonic_ns();
    if (uni__results_writer_rank_ended(run->writer, rank, &err) < 0) {
        uni__run_writer_failed(run, &err);
        return;
    }
    if (uni__persist_is_waiting(run->persist))
        uni__persist_moved(run->persist, rank, 0, NULL, 0);
    if (run->state == UNI__RUN_FAILING)
        return;
    if (rank == 0)
        uni__members_chief_done(run);
    uni__run_look_done(run);
}
