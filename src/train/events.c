/*
 * events.c - what the group tells the trainer (group.h), and what that means for the run.
 * Controller thread.
 */
#include <signal.h>
#include <stdio.h>

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
    for (int i = 0; run && i < run->num_workers; i++)
        if (!run->ranks[i].worker->pid && !run->ranks[i].away)
            return;
    if (!run)
        return;
    uni__run_describe(run, "running"); /* now with every pid */
    int workers = uni__run_workers(run);
    if (run->request.program && run->ranks[rank].restarts == 0)
        uni__run_tell(run, UNI_EVENT_WORKERS, -1, "%d worker%s started in %.1f ms", workers,
                      workers == 1 ? "" : "s",
                      (double)(uni__monotonic_ns() - run->attempt.begun_ns) * 1e-6);
}

static void on_spawn_failed(void *context, int rank, const char *sentence)
{
    uni_trainer *trainer = context;
    uni__run *run = trainer->run;
    if (!run) {
        uni__warn("rank %d could not be started: %s", rank, sentence);
        return;
    }
    uni__cause cause = uni__cause_new(
        run, UNI__CAUSE_LAUNCH, rank, UNI_EWORKER, "rank %d could not be started (%s): %s", rank,
        run->request.program ? run->request.exe : trainer->worker_exe, sentence);
    run->budget.no_retry = true;
    uni__run_fail(run, &cause);
}

static void on_message(void *context, int rank, int type, const uint8_t *payload, size_t size)
{
    uni__run *run = run_of(context);
    if (run)
        uni__run_message(run, rank, type, payload, size);
}

static void on_mail(void *context, int rank, const uni__wire_frame *frame)
{
    uni__run *run = run_of(context);
    if (run)
        uni__run_mail(run, rank, frame);
}

static void on_broken(void *context, int rank, const char *sentence)
{
    uni_trainer *trainer = context;
    if (trainer->run)
        uni__run_broken(trainer->run, rank, sentence);
    else /* a warm worker: the next run starts another one */
        uni__group_kill(trainer->group, rank, SIGKILL);
}

static void on_line(void *context, int rank, const char *line, size_t size)
{
    uni__run *run = run_of(context);
    if (run)
        uni__run_line(run, rank, line, size);
}

static void note_exit(uni__run *run, int rank, const uni__exit *how)
{
    uni__run_note(run, "exit",
                  UNI__DICT({ "rank", uni_value_int(rank) }, { "pid", uni_value_int(how->pid) },
                            { how->signal ? "signal" : "exit_code",
                              uni_value_int(how->signal ? how->signal : how->exit_code) }),
                  false);
}

static void on_exited(void *context, int rank, const uni__exit *how)
{
    uni_trainer *trainer = context;
    uni__run *run = trainer->run;
    uni__rank *gone = &trainer->ranks[rank];
    if (!run)
        return; /* a warm worker that died idle: the next run replaces it */
    note_exit(run, rank, how);
    if (gone->away || gone->leaving) {
        uni__cause cause = { 0 };
        uni__cause_of_exit(&cause, rank, how, !run->request.program, false);
        if (uni__resize_lost(run, rank, &cause))
            return;
    }
    if (gone->done) {
        uni__first_cause_look(run);
        return; /* it had returned */
    }
    if (run->state != UNI__RUN_RUNNING) {
        if (run->state == UNI__RUN_FAILING && run->request.program && how->exit_code == 0)
            uni__run_rank_done(run, rank);
        return;
    }
    /* After an early stop, programs that have not ended get our own SIGTERM at half of the grace
     * time. */
    bool told = run->stop.reason == UNI__STOPPING_EARLY
                    ? run->stop.soft_ns == 0 && how->signal == SIGTERM
                    : run->stop.reason != UNI__NOT_STOPPING;
    if (run->request.program && (how->exit_code == 0 || told)) {
        uni__run_rank_done(run, rank);
        uni__first_cause_look(run);
        return;
    }
    uni__cause cause = { 0 };
    uni__cause_of_exit(&cause, rank, how, !run->request.program, false);
    uni__cause_name_limit(&cause, trainer->options.address_space_limit);
    if (gone->disk_full && how->exit_code > 0) {
        cause.kind = UNI__CAUSE_DISK_FULL;
        snprintf(cause.message, sizeof cause.message,
                 "rank %d (pid %d) exited with code %d after it found the disk full: there was no "
                 "room for its checkpoint in %.400s",
                 rank, how->pid, how->exit_code, run->places.dir);
    }
    /* A program that gave up because a peer is frozen: that peer's doing. */
    if (how->exit_code > 0)
        uni__hosts_blame(run, &cause);
    if (uni__member_lost(run, rank, &cause) || uni__resize_lost(run, rank, &cause) ||
        uni__replace_lost(run, rank, &cause))
        return;
    if (!uni__first_cause_hold(run, &cause))
        uni__run_fail(run, &cause);
    uni__first_cause_look(run);
}

static void on_stopped(void *context, int rank, bool stopped)
{
    uni__run *run = run_of(context);
    if (run)
        uni__run_suspect(run, rank, stopped);
    if (run && run->state == UNI__RUN_RUNNING)
        uni__run_tell(run, UNI_EVENT_WARNING, rank,
                      stopped ? "rank %d (pid %d) was stopped by a signal (SIGSTOP?); it is ended "
                                "if it is not continued soon"
                              : "rank %d (pid %d) was continued",
                      rank, run->ranks[rank].worker->pid);
}

static void fail_frozen(uni__run *run, int rank, uni__cause_class kind, double seconds)
{
    uni__cause cause = uni__cause_new(
        run, kind, rank, UNI_EWORKER,
        kind == UNI__CAUSE_STOPPED
            ? "rank %d (pid %d) has been stopped by a signal for %.1f s and was not continued"
            : "rank %d (pid %d) has been silent for %.1f s: no heartbeat, it is frozen or the "
              "machine is "
              "overloaded",
        rank, run->ranks[rank].worker->pid, seconds);
    if (run->ranks[rank].away) /* not in the group: its end is enough */
        uni__rank_end(run, &cause);
    else if (!uni__member_end(run, &cause) && !uni__replace_end(run, &cause))
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
    if (run->state == UNI__RUN_RUNNING && !run->ranks[rank].done)
        uni__run_tell(run, UNI_EVENT_WARNING, rank, "rank %d (pid %d) is heard again", rank,
                      run->ranks[rank].worker->pid);
}

static void on_silent(void *context, int rank, double seconds)
{
    uni__run *run = run_of(context);
    if (seconds == 0) {
        heard_again(context, rank);
        return;
    }
    if (!run || run->state != UNI__RUN_RUNNING || run->ranks[rank].done ||
        run->ranks[rank].worker->stopped_ns)
        return;
    if (!run->ranks[rank].warned_silent) {
        run->ranks[rank].warned_silent = true;
        uni__run_suspect(run, rank, true);
        uni__run_tell(run, UNI_EVENT_WARNING, rank, "rank %d (pid %d) has been silent for %.1f s",
                      rank, run->ranks[rank].worker->pid, seconds);
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
    if (!run)
        return;
    uni__cause cause = uni__cause_new(
        run, UNI__CAUSE_AGENT, -1, UNI_EWORKER,
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
    if (run->stop.reason != UNI__NOT_STOPPING || run->state != UNI__RUN_RUNNING)
        return;
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        bool asks = page && !run->ranks[i].away;
        uint32_t request = asks ? atomic_load(&page->stop_request) : UNI__STOP_NONE;
        if (request == UNI__STOP_EARLY) {
            uni__run_stop(run, UNI__STOPPING_EARLY);
        } else if (request == UNI__STOP_PREEMPTED && uni__resize_dismiss(run, i)) {
            atomic_store(&page->stop_request, UNI__STOP_NONE);
        } else if (request == UNI__STOP_PREEMPTED) {
            run->stop.rank = run->stop.reason == UNI__NOT_STOPPING ? i : run->stop.rank;
            uni__run_stop(run, UNI__STOPPING_RANK);
        } else if (request != UNI__STOP_NONE) {
            on_broken(run->trainer, i, "its request to stop is one that no worker makes");
            return;
        }
    }
}

static void on_drained(void *context)
{
    uni__run *run = run_of(context);
    if (!run || run->state == UNI__RUN_DONE)
        return;
    uni__newest_look(run);
    flush_results(run);
    uni__run_look_for_steps(run, false);
    look_for_stop_requests(run);
    uni__run_settle_stop(run);
    uni__replace_look_for_end(run);
    if (uni__run_is_resizable(run)) {
        uint64_t now = uni__monotonic_ns();
        uni__replace_look(run, now);
        uni__resize_look(run, now);
    }
}

static void check_ranks(uni__run *run, uint64_t now)
{
    const uni_trainer_options *asked = &run->trainer->options;
    for (int i = 0; i < run->num_workers && run->state == UNI__RUN_RUNNING; i++) {
        const uni__worker *worker = run->ranks[i].worker;
        double seconds;
        bool light = worker->stopped_ns && uni__replace_can(run, i);
        double patience = light ? run->trainer->stopped_timeout : asked->silent_timeout;
        uni__worker_trouble trouble =
            uni__worker_look(worker, now, asked->hello_timeout, patience, &seconds);
        if (trouble == UNI__WORKER_STOPPED && !run->ranks[i].done)
            fail_frozen(run, i, UNI__CAUSE_STOPPED, seconds);
        if (trouble == UNI__WORKER_NO_HELLO && run->ranks[i].away) {
            uni__group_kill(run->group, i, SIGKILL);
        } else if (trouble == UNI__WORKER_NO_HELLO) {
            uni__cause cause = uni__cause_new(
                run, UNI__CAUSE_NO_HELLO, i, UNI_EWORKER,
                "rank %d (pid %d) has not connected within %g s: does its main begin with "
                "uni_main?",
                i, worker->pid, asked->hello_timeout);
            uni__run_fail(run, &cause);
        }
    }
}

static void check_limits(uni__run *run, uint64_t now)
{
    if (run->stop.reason != UNI__NOT_STOPPING) {
        uni__run_press_stop(run, now);
        return;
    }
    if (run->request.time_limit > 0 &&
        (double)(now - run->begun_ns) * 1e-9 >= run->request.time_limit)
        uni__run_stop(run, UNI__STOPPING_TIME);
    if (run->request.progress_timeout > 0 && run->state == UNI__RUN_RUNNING &&
        (double)(now - run->attempt.last_report_ns) * 1e-9 >= run->request.progress_timeout) {
        char ended[400];
        uni__run_say_ended(run, 0, now, ended, sizeof ended);
        uni__cause cause =
            uni__cause_new(run, UNI__CAUSE_NO_PROGRESS, -1, UNI_ETIMEOUT,
                           "no rank has reported for %g s (progress_timeout)%s%s",
                           run->request.progress_timeout, ended[0] ? ": " : "", ended);
        uni__run_fail(run, &cause);
    }
}

static void on_tick(void *context)
{
    uni__run *run = run_of(context);
    if (!run)
        return;
    uint64_t now = uni__monotonic_ns();
    if (run->attempt.last_report_ns == 0)
        run->attempt.last_report_ns = now;
    look_for_stop_requests(run);
    uni__run_settle_stop(run);
    check_ranks(run, now);
    uni__first_cause_look(run);
    uni__newest_look(run);
    uni__replace_look(run, now);
    uni__resize_look(run, now);
    uni__hosts_look(run, now);
    uni__resize_ask(run);
    if (run->state == UNI__RUN_RUNNING) {
        uni__persist_look(run->persist, now);
        uni__run_watch(run, now);
    }
    if (run->state != UNI__RUN_DONE)
        check_limits(run, now);
    if (run->state != UNI__RUN_DONE)
        uni__run_cap_logs(run);
    /* For those who look from outside: run.json is at most a second behind. */
    if (run->state == UNI__RUN_RUNNING && now - run->described_ns > DESCRIBE_NS &&
        run->described_mark != run->outcome.progress.iteration) {
        run->described_ns = now;
        run->described_mark = run->outcome.progress.iteration;
        uni__run_describe(run, "running");
    }
}

static void on_signalled(void *context, int number)
{
    uni_trainer *trainer = context;
    uni__run *run = trainer->run;
    if (!run)
        return;
    /* A foreign mpirun ends us too when a rank has died: that is not a request to stop. */
    if ((run->state == UNI__RUN_FAILING || run->state == UNI__RUN_SETTLING) && trainer->hosts &&
        trainer->hosts->foreign)
        return;
    uni__stop_reason reason = number == SIGINT ? UNI__STOPPING_INTERRUPT : UNI__STOPPING_PREEMPT;
    bool stopping =
        run->stop.reason != UNI__NOT_STOPPING && run->stop.reason != UNI__STOPPING_EARLY;
    /* Only a second Ctrl-C is impatient: schedulers send SIGTERM more than once, and the ranks are
     * saving. The grace time ends a stop that hangs. */
    if (stopping && number == SIGINT)
        uni__run_stop_now(run, reason);
    else if (!stopping)
        uni__run_stop(run, reason);
}

const uni__group_events uni__trainer_events = {
    .spawned = on_spawned,
    .spawn_failed = on_spawn_failed,
    .message = on_message,
    .mail = on_mail,
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
    .host_joined = uni__hosts_joined,
    .host_missing = uni__hosts_missing,
    .host_unreachable = uni__hosts_unreachable,
    .host_signalled = uni__hosts_signalled,
    .launcher_lost = uni__hosts_launcher_lost,
    .log = uni__hosts_log,
    .file = uni__hosts_file,
    .remark = uni__hosts_remark,
};
