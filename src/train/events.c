/*
 * events.c - what the group tells the trainer (group.h), and what that means for the run. Controller thread.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/hosts_internal.h"

#define DESCRIBE_NS 1000000000ull

static uni__run *run_of(void *context)
{
    return ((uni_trainer *)context)->run;
}

static void on_spawned(void *context, int rank, int pid)
{
    uni_trainer *trainer = context;
    uni__run *run = trainer->run;
    trainer->ranks[rank].pid = pid;
    if (!run)
        return;
    if (run->program && trainer->ranks[rank].state == UNI__RANK_STARTED)
        trainer->ranks[rank].state = UNI__RANK_RUNNING;
    for (int i = 0; i < run->num_workers; i++)
        if (!run->ranks[i].pid)
            return;
    uni__run_describe(run, "running"); /* now with every pid */
    if (run->program && run->ranks[rank].restarts == 0)
        uni__run_tell(run, UNI_EVENT_WORKERS, -1, "%d worker%s started in %.1f ms",
                      run->num_workers, run->num_workers == 1 ? "" : "s",
                      (double)(uni__monotonic_ns() - run->attempt_ns) * 1e-6);
}

static void on_spawn_failed(void *context, int rank, const char *sentence)
{
    uni_trainer *trainer = context;
    uni__run *run = trainer->run;
    trainer->ranks[rank].state = UNI__RANK_GONE;
    if (!run) {
        uni__warn("rank %d could not be started: %s", rank, sentence);
        return;
    }
    uni__cause cause = uni__cause_new(run, UNI__CAUSE_LAUNCH, rank, UNI_EWORKER);
    snprintf(cause.message, sizeof cause.message, "rank %d could not be started (%s): %s", rank,
             run->program ? run->exe : trainer->worker_exe, sentence);
    run->no_retry = true;
    uni__run_fail(run, &cause);
}

static void on_message(void *context, int rank, int type, const uint8_t *payload, size_t size)
{
    uni_trainer *trainer = context;
    if (trainer->run) {
        uni__run_message(trainer->run, rank, type, payload, size);
    } else if (type == UNI__SAYS_HELLO) {
        trainer->ranks[rank].hello = true;
        trainer->ranks[rank].state = UNI__RANK_IDLE;
    }
}

static void on_channel(void *context, int rank, uni__wire_frame *frame)
{
    uni_trainer *trainer = context;
    uni__run *run = run_of(context);
    if (run)
        uni__run_channel(run, rank, frame);
    else /* a warm worker's heart may make its second buffer when the run is over */
        (void)uni__rank_take_snapshot(&trainer->ranks[rank], frame);
}

static void on_broken(void *context, int rank, const char *sentence)
{
    uni__run *run = run_of(context);
    if (!run)
        return;
    uni__cause cause = uni__cause_new(run, UNI__CAUSE_INTERNAL, rank, UNI_EPEER);
    snprintf(cause.message, sizeof cause.message,
             "rank %d (pid %d) overwrote the memory that it shares with the trainer: %s", rank,
             cause.pid, sentence);
    uni__run_fail(run, &cause);
}

static void on_line(void *context, int rank, const char *line, size_t size)
{
    uni__run *run = run_of(context);
    if (run)
        uni__run_line(run, rank, line, size);
}

static void note_exit(uni__run *run, int rank, const uni__exit *how)
{
    uni_value *record = uni_value_dict();
    int status = uni_dict_take(record, "rank", uni_value_int(rank));
    status |= uni_dict_take(record, "pid", uni_value_int(how->pid));
    status |= how->signal ? uni_dict_take(record, "signal", uni_value_int(how->signal))
                          : uni_dict_take(record, "exit_code", uni_value_int(how->exit_code));
    if (status == 0)
        uni__run_note(run, "exit", record, false);
    else
        uni_value_free(record);
}

static void on_exited(void *context, int rank, const uni__exit *how)
{
    uni_trainer *trainer = context;
    uni__run *run = trainer->run;
    uni__rank *gone = &trainer->ranks[rank];
    gone->pid = 0;
    gone->hello = false;
    if (!run) {
        gone->state = UNI__RANK_GONE; /* a warm worker that died idle: the next run replaces it */
        return;
    }
    note_exit(run, rank, how);
    if (gone->state == UNI__RANK_DONE) {
        uni__first_cause_look(run);
        return; /* it had returned */
    }
    if (run->state != UNI__RUN_RUNNING) {
        if (run->state == UNI__RUN_FAILING && run->program && how->exit_code == 0)
            uni__run_rank_done(run, rank);
        else
            gone->state = UNI__RANK_GONE;
        return;
    }
    bool stopping = run->stopping != UNI__NOT_STOPPING;
    if (run->program &&
        (how->exit_code == 0 || (stopping && run->stopping != UNI__STOPPING_EARLY))) {
        uni__run_rank_done(run, rank);
        uni__first_cause_look(run);
        return;
    }
    gone->state = UNI__RANK_GONE;
    uni__cause cause = { 0 };
    uni__cause_of_exit(&cause, rank, how, !run->program, false);
    if (gone->disk_full && how->exit_code > 0) {
        cause.kind = UNI__CAUSE_DISK_FULL;
        snprintf(cause.message, sizeof cause.message,
                 "rank %d (pid %d) exited with code %d after it found the disk full: there was no "
                 "room for its checkpoint in %.400s",
                 rank, how->pid, how->exit_code, run->dir);
    }
    /* A program that gave up because a peer is frozen: that peer's doing. */
    if (how->exit_code > 0)
        uni__hosts_blame(run, &cause);
    if (uni__member_lost(run, rank, &cause))
        return;
    if (!uni__first_cause_hold(run, &cause))
        uni__run_fail(run, &cause);
    uni__first_cause_look(run);
}

static void on_stopped(void *context, int rank, bool stopped)
{
    uni__run *run = run_of(context);
    uni_trainer *trainer = context;
    trainer->ranks[rank].stopped_ns = stopped ? uni__monotonic_ns() : 0;
    if (run)
        uni__run_suspect(run, rank, stopped);
    if (run && run->state == UNI__RUN_RUNNING)
        uni__run_tell(run, UNI_EVENT_WARNING, rank,
                      stopped ? "rank %d (pid %d) was stopped by a signal (SIGSTOP?); it is ended "
                                "if it is not continued soon"
                              : "rank %d (pid %d) was continued",
                      rank, trainer->ranks[rank].pid);
}

static void fail_frozen(uni__run *run, int rank, uni__cause_class kind, double seconds)
{
    uni__cause cause = uni__cause_new(run, kind, rank, UNI_EWORKER);
    snprintf(cause.message, sizeof cause.message,
             kind == UNI__CAUSE_STOPPED
                 ? "rank %d (pid %d) has been stopped by a signal for %.1f s and was not continued"
                 : "rank %d (pid %d) has been silent for %.1f s: no heartbeat, it is frozen or the "
                   "machine is "
                   "overloaded",
             rank, cause.pid, seconds);
    if (!uni__member_end(run, &cause))
        uni__run_fail(run, &cause);
}

/* A rank that has recovered is not blamed for what fails later. */
static void heard_again(uni_trainer *trainer, int rank)
{
    uni__run *run = trainer->run;
    bool warned = trainer->ranks[rank].warned_silent;
    trainer->ranks[rank].warned_silent = false;
    if (!run || !warned)
        return;
    uni__run_suspect(run, rank, false);
    if (run->state == UNI__RUN_RUNNING && run->ranks[rank].state != UNI__RANK_DONE)
        uni__run_tell(run, UNI_EVENT_WARNING, rank, "rank %d (pid %d) is heard again", rank,
                      run->ranks[rank].pid);
}

static void on_silent(void *context, int rank, double seconds)
{
    uni__run *run = run_of(context);
    if (seconds == 0) {
        heard_again(context, rank);
        return;
    }
    /* The heart ends with the session: a program may take its time after uni_session_close. */
    if (!run || run->state != UNI__RUN_RUNNING || run->ranks[rank].state == UNI__RANK_DONE ||
        run->ranks[rank].session_closed || run->ranks[rank].stopped_ns)
        return;
    if (!run->ranks[rank].warned_silent) {
        run->ranks[rank].warned_silent = true;
        uni__run_suspect(run, rank, true);
        uni__run_tell(run, UNI_EVENT_WARNING, rank, "rank %d (pid %d) has been silent for %.1f s",
                      rank, run->ranks[rank].pid, seconds);
    }
    if (seconds >= run->trainer->options.silent_timeout)
        fail_frozen(run, rank, UNI__CAUSE_SILENT, seconds);
}

static void on_all_dead(void *context, int left)
{
    uni__run *run = run_of(context);
    if (left > 0)
        uni__warn("%d processes could not be killed (in the kernel's hands); they end when it lets "
                  "them go",
                  left);
    if (run && run->state == UNI__RUN_FAILING)
        uni__run_after_deaths(run);
}

static void on_agent_lost(void *context)
{
    uni_trainer *trainer = context;
    uni__run *run = trainer->run;
    for (int i = 0; i < trainer->options.num_workers; i++)
        trainer->ranks[i].pid = 0;
    if (!run) {
        for (int i = 0; i < trainer->options.num_workers; i++)
            trainer->ranks[i].state = UNI__RANK_GONE;
        return;
    }
    uni__cause cause = uni__cause_new(run, UNI__CAUSE_AGENT, -1, UNI_EWORKER);
    snprintf(
        cause.message, sizeof cause.message,
        "the process that looks after the workers (unisono-agent) was killed, and they with it");
    uni__run_fail(run, &cause);
    if (run->state == UNI__RUN_FAILING) {
        uni__group_after(run->group, 0, NULL);
        uni__run_after_deaths(run);
    }
}

static void flush_results(uni__run *run)
{
    uni_error err = { 0 };
    if (!run->writer_failed && uni__results_writer_flush(run->writer, &err) < 0)
        uni__run_writer_failed(run, &err);
}

static void look_for_stop_requests(uni__run *run)
{
    if (run->stopping != UNI__NOT_STOPPING || run->state != UNI__RUN_RUNNING)
        return;
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        uint32_t request = page ? atomic_load(&page->stop_request) : UNI__STOP_NONE;
        if (request != UNI__STOP_NONE)
            uni__run_stop(run,
                          request == UNI__STOP_EARLY ? UNI__STOPPING_EARLY : UNI__STOPPING_PREEMPT);
    }
}

static void on_drained(void *context)
{
    uni__run *run = run_of(context);
    if (!run || run->state == UNI__RUN_DONE)
        return;
    uni__newest_look(run);
    flush_results(run);
    look_for_stop_requests(run);
    uni__run_settle_stop(run);
}

static void check_ranks(uni__run *run, uint64_t now)
{
    const uni_trainer_options *asked = &run->trainer->options;
    for (int i = 0; i < run->num_workers && run->state == UNI__RUN_RUNNING; i++) {
        uni__rank *rank = &run->ranks[i];
        if (rank->stopped_ns && rank->state != UNI__RANK_DONE &&
            (double)(now - rank->stopped_ns) * 1e-9 >= asked->silent_timeout)
            fail_frozen(run, i, UNI__CAUSE_STOPPED, (double)(now - rank->stopped_ns) * 1e-9);
        if (!run->program && !rank->hello && rank->state == UNI__RANK_STARTED &&
            (double)(now - rank->spawned_ns) * 1e-9 >= asked->hello_timeout) {
            uni__cause cause = uni__cause_new(run, UNI__CAUSE_NO_HELLO, i, UNI_EWORKER);
            snprintf(cause.message, sizeof cause.message,
                     "rank %d (pid %d) has not connected within %g s: does its main begin with "
                     "uni_main?",
                     i, rank->pid, asked->hello_timeout);
            uni__run_fail(run, &cause);
        }
    }
}

static void check_limits(uni__run *run, uint64_t now)
{
    if (run->stopping != UNI__NOT_STOPPING) {
        uni__run_press_stop(run, now);
        return;
    }
    if (run->time_limit > 0 && (double)(now - run->begun_ns) * 1e-9 >= run->time_limit)
        uni__run_stop(run, UNI__STOPPING_TIME);
    if (run->progress_timeout > 0 && run->state == UNI__RUN_RUNNING &&
        (double)(now - run->last_report_ns) * 1e-9 >= run->progress_timeout) {
        uni__cause cause = uni__cause_new(run, UNI__CAUSE_NO_PROGRESS, -1, UNI_ETIMEOUT);
        snprintf(cause.message, sizeof cause.message,
                 "no rank has reported for %g s (progress_timeout)", run->progress_timeout);
        uni__run_fail(run, &cause);
    }
}

static void on_tick(void *context)
{
    uni__run *run = run_of(context);
    if (!run)
        return;
    uint64_t now = uni__monotonic_ns();
    if (run->last_report_ns == 0)
        run->last_report_ns = now;
    look_for_stop_requests(run);
    uni__run_settle_stop(run);
    check_ranks(run, now);
    uni__first_cause_look(run);
    uni__newest_look(run);
    if (run->state == UNI__RUN_RUNNING)
        uni__run_watch(run, now);
    if (run->state != UNI__RUN_DONE)
        check_limits(run, now);
    if (run->state != UNI__RUN_DONE)
        uni__run_cap_logs(run);
    /* For those who look from outside: run.json is at most a second behind. */
    if (run->state == UNI__RUN_RUNNING && now - run->described_ns > DESCRIBE_NS &&
        run->described_mark != run->progress_mark) {
        run->described_ns = now;
        run->described_mark = run->progress_mark;
        uni__run_describe(run, "running");
    }
}

static void on_signalled(void *context, int number)
{
    uni_trainer *trainer = context;
    uni__run *run = trainer->run;
    if (!run)
        return;
    /* Somebody else's mpirun ends us too when a rank has died: that is no wish to stop. */
    if ((run->state == UNI__RUN_FAILING || run->state == UNI__RUN_SETTLING) && trainer->hosts &&
        trainer->hosts->foreign)
        return;
    uni__stop_reason reason = number == SIGINT ? UNI__STOPPING_INTERRUPT : UNI__STOPPING_PREEMPT;
    if (run->stopping != UNI__NOT_STOPPING && run->stopping != UNI__STOPPING_EARLY)
        uni__run_stop_now(run, reason);
    else
        uni__run_stop(run, reason);
}

const uni__group_events uni__trainer_events = {
    .spawned = on_spawned,
    .spawn_failed = on_spawn_failed,
    .message = on_message,
    .channel = on_channel,
    .broken = on_broken,
    .line = on_line,
    .exited = on_exited,
    .stopped = on_stopped,
    .silent = on_silent,
    .all_dead = on_all_dead,
    .agent_lost = on_agent_lost,
    .drained = on_drained,
    .tick = on_tick,
    .signalled = on_signalled,
    .placed = uni__hosts_placed,
    .launch_failed = uni__hosts_launch_failed,
    .host_silent = uni__hosts_silent,
    .host_lost = uni__hosts_lost,
    .host_unreachable = uni__hosts_unreachable,
    .host_signalled = uni__hosts_signalled,
    .launcher_lost = uni__hosts_launcher_lost,
    .region = uni__hosts_region,
    .log = uni__hosts_log,
    .file = uni__hosts_file,
    .remark = uni__hosts_remark,
};
