/*
 * stop.c - all ranks stop at the same iteration. Controller thread.
 *
 * Every rank publishes its iteration before it looks at `stopping`; the controller raises
 * `stopping` and then reads all iterations: stop_at = highest + 1 is ahead of all ranks, and a rank
 * that was missed waits for it (session_report.c).
 */
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "train/run_internal.h"

/* A trial stops at an iteration that its tuner knows, and so does a run that a rank ends early. */
static void raise_stopping(uni__run *run)
{
    uint32_t how = run->stop.reason == UNI__STOPPING_EARLY || run->request.trial
                       ? UNI__STOPS_AT_ITERATION
                       : UNI__STOPS_AT_STEP;
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (page)
            atomic_store(&page->stopping, how);
    }
}

/* Whether all ranks of a trial wait inside the report of that iteration for the tuner's word. They
 * stop there: one iteration more would leave a checkpoint that is newer than the last result. */
static bool is_held(uni__run *run, int64_t iteration)
{
    if (!run->request.trial || !run->trainer->options.lockstep || iteration == 0)
        return false;
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (!page || (int32_t)(atomic_load(&page->released) - (uint32_t)iteration) >= 0)
            return false;
    }
    return true;
}

static void choose_stop_at(uni__run *run)
{
    int64_t highest = 0;
    /* After every rank can see `stopping`: what is not read here now will wait for stop_at
     * (session_report.c). Programs without a session are counted by what they have reported. */
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        int64_t begun = page ? atomic_load(&page->iteration) : 0;
        if (begun == INT64_MAX) /* the worker's word: nothing stops behind it */
            begun = run->ranks[i].iteration;
        int64_t at = begun > run->ranks[i].iteration ? begun : run->ranks[i].iteration;
        if (!run->ranks[i].done && !run->ranks[i].away && at > highest)
            highest = at;
    }
    run->stop.at = highest + !is_held(run, highest);
    for (int i = 0; i < run->num_workers; i++)
        uni__page_stop(uni__group_page(run->group, i), run->stop.at);
}

static const char *const reasons[] = {
    [UNI__STOPPING_EARLY] = "a rank asked to stop early",
    [UNI__STOPPING_PREEMPT] = "SIGTERM",
    [UNI__STOPPING_RANK] = "a rank says that it got SIGTERM",
    [UNI__STOPPING_INTERRUPT] = "SIGINT",
    [UNI__STOPPING_CALLER] = "the program asked for it",
    [UNI__STOPPING_TIME] = "the time limit",
};

/* Programs without a session only understand signals. */
static void signal_programs(uni__run *run, bool all)
{
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        const uni__worker *worker = run->ranks[i].worker;
        bool linked =
            page && atomic_load(&page->owner) != 0 && worker->state != UNI__WORKER_CLOSING;
        if (worker->pid && (all || !linked))
            uni__group_kill(run->group, i, SIGTERM);
    }
}

void uni__run_stop(uni__run *run, uni__stop_reason reason)
{
    /* An early stop is a wish of the ranks: a signal or the program's own stop comes before it. */
    bool early = run->stop.reason == UNI__STOPPING_EARLY && reason != UNI__STOPPING_EARLY;
    if ((run->stop.reason != UNI__NOT_STOPPING && !early) || run->state == UNI__RUN_DONE ||
        run->state == UNI__RUN_FINISHING)
        return;
    run->stop.reason = reason;
    double grace = run->trainer->options.grace_seconds;
    uint64_t now = uni__monotonic_ns();
    run->stop.deadline_ns = now + (uint64_t)(grace * 1e9);
    run->stop.soft_ns = now + (uint64_t)(grace * 0.5e9);
    if (run->state == UNI__RUN_WAITING) {
        uni__run_finish_stopped(run); /* no rank is running */
        return;
    }
    if (run->state == UNI__RUN_FAILING || run->state == UNI__RUN_SETTLING)
        return; /* it is seen when the end of the attempt is decided */
    if (!early) { /* otherwise the iteration is chosen already, and ranks may have stopped there */
        run->stop.at = 0;
        raise_stopping(run);
    }
    if (run->request.program && reason != UNI__STOPPING_EARLY)
        signal_programs(run, false);
    uni__run_settle_stop(run);
}

void uni__run_settle_stop(uni__run *run)
{
    uni__stop_reason reason = run->stop.reason;
    if (reason == UNI__NOT_STOPPING || run->stop.at > 0 || run->state != UNI__RUN_RUNNING ||
        !uni__group_saw_stopping(run->group))
        return;
    choose_stop_at(run);
    uni__run_note(run, "stop",
                  UNI__DICT({ "reason", uni_value_string(reasons[reason]) },
                            { "stop_at", uni_value_int(run->stop.at) }),
                  false);
    uni__run_tell(run, UNI_EVENT_STOPPING, -1, "all ranks stop at iteration %lld%s (%s)",
                  (long long)run->stop.at,
                  reason == UNI__STOPPING_EARLY || run->request.trial ? "" : " at the latest",
                  reasons[reason]);
}

void uni__run_stop_now(uni__run *run, uni__stop_reason reason)
{
    if (run->stop.reason == UNI__NOT_STOPPING || run->stop.reason == UNI__STOPPING_EARLY)
        run->stop.reason = reason;
    run->stop.hard = true;
    if (run->state == UNI__RUN_WAITING) {
        uni__run_finish_stopped(run);
    } else if (run->state == UNI__RUN_RUNNING || run->state == UNI__RUN_FAILING) {
        run->state = UNI__RUN_FAILING;
        uni__group_after(run->group, 0, NULL);
        uni__group_kill_all(run->group);
    }
}

/* For messages. */
static double grace_of(const uni__run *run)
{
    double grace = run->trainer->options.grace_seconds;
    return grace > UNI_GRACE_NONE ? grace : 0;
}

/* Some ranks stopped early, and this one has not: the run cannot succeed, and another attempt would
 * end in the same way. */
static void fail_early_stop(uni__run *run)
{
    int rank = 0;
    while (rank < run->num_workers - 1 && !run->ranks[rank].worker->pid)
        rank++;
    uni__cause cause = uni__cause_new(
        run, UNI__CAUSE_NO_PROGRESS, rank, UNI_ETIMEOUT,
        "a rank asked to stop early, but rank %d (pid %d) did not stop within the grace time of %g "
        "s",
        rank, run->ranks[rank].worker->pid, grace_of(run));
    run->budget.no_retry = true;
    uni__run_fail(run, &cause);
}

/* Those that do not stop by themselves get a signal at half of the grace time, and are killed at
 * its end. */
void uni__run_press_stop(uni__run *run, uint64_t now)
{
    if (run->state == UNI__RUN_RUNNING && run->stop.soft_ns && now >= run->stop.soft_ns) {
        run->stop.soft_ns = 0;
        signal_programs(run, run->request.program != NULL);
    }
    if (run->state != UNI__RUN_RUNNING || now < run->stop.deadline_ns)
        return;
    if (run->stop.reason == UNI__STOPPING_EARLY) {
        fail_early_stop(run);
    } else {
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "some ranks did not stop within the grace time of %g s and are killed",
                      grace_of(run));
        uni__run_stop_now(run, run->stop.reason);
    }
}

/* Posted by uni_trainer_stop. */
void uni__run_stop_posted(void *argument)
{
    uni_trainer *trainer = argument;
    if (trainer->run)
        uni__run_stop(trainer->run, UNI__STOPPING_CALLER);
}

void uni__run_stop_now_posted(void *argument)
{
    uni_trainer *trainer = argument;
    if (trainer->run)
        uni__run_stop_now(trainer->run, UNI__STOPPING_CALLER);
}
