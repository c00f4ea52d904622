/*
 * stop.c - all ranks stop at the same iteration. Controller thread.
 *
 * Every rank publishes its iteration before it looks at `stopping`; the controller raises `stopping` and then reads all iterations:
 * stop_at = highest + 1 is ahead of everybody, and a rank that was missed waits for it (session_report.c).
 */
#include <signal.h>

#include "base/clock.h"
#include "train/run_internal.h"

static void raise_stopping(uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (page)
            atomic_store(&page->stopping, 1);
    }
}

static void choose_stop_at(uni__run *run)
{
    int64_t highest = 0;
    /* After every rank can see `stopping`: what is not read here now will wait for stop_at (session_report.c). Programs without a session
     * are counted by what they have reported. */
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        int64_t begun = page ? atomic_load(&page->iteration) : 0;
        int64_t at = begun > run->ranks[i].iteration ? begun : run->ranks[i].iteration;
        if (run->ranks[i].state != UNI__RANK_DONE && at > highest)
            highest = at;
    }
    run->stop_at = highest + 1;
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (!page)
            continue;
        atomic_store(&page->stop_at, run->stop_at);
        atomic_store(&page->stop_at_known, 1);
        uni__futex_wake(&page->stop_at_known);
    }
}

static const char *const reasons[] = { "",       "a rank asked to stop early", "SIGTERM",
                                       "SIGINT", "the program asked for it",   "the time limit" };

/* Programs without a session only understand signals. */
static void signal_programs(uni__run *run, bool all)
{
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        bool linked = page && atomic_load(&page->owner) != 0 && !run->ranks[i].session_closed;
        if (run->ranks[i].pid && (all || !linked))
            uni__group_kill(run->group, i, SIGTERM);
    }
}

void uni__run_stop(uni__run *run, uni__stop_reason reason)
{
    if (run->stopping != UNI__NOT_STOPPING || run->state == UNI__RUN_DONE ||
        run->state == UNI__RUN_FINISHING)
        return;
    run->stopping = reason;
    double grace = run->trainer->options.grace_seconds;
    uint64_t now = uni__monotonic_ns();
    run->stop_deadline_ns = now + (uint64_t)(grace * 1e9);
    run->stop_soft_ns = now + (uint64_t)(grace * 0.5e9);
    if (run->state == UNI__RUN_WAITING) {
        uni__run_finish_stopped(run); /* nobody is running */
        return;
    }
    if (run->state == UNI__RUN_FAILING || run->state == UNI__RUN_SETTLING)
        return; /* it is seen when the end of the attempt is decided */
    run->stop_at = 0;
    raise_stopping(run);
    if (run->program && reason != UNI__STOPPING_EARLY)
        signal_programs(run, false);
    uni__run_settle_stop(run);
}

void uni__run_settle_stop(uni__run *run)
{
    uni__stop_reason reason = run->stopping;
    if (reason == UNI__NOT_STOPPING || run->stop_at > 0 || run->state != UNI__RUN_RUNNING ||
        !uni__group_saw_stopping(run->group))
        return;
    choose_stop_at(run);
    uni_value *record = uni_value_dict();
    int status = uni_dict_take(record, "reason", uni_value_string(reasons[reason]));
    status |= uni_dict_take(record, "stop_at", uni_value_int(run->stop_at));
    if (status == 0)
        uni__run_note(run, "stop", record, false);
    else
        uni_value_free(record);
    uni__run_tell(run, UNI_EVENT_STOPPING, -1, "all ranks stop at iteration %lld (%s)",
                  (long long)run->stop_at, reasons[reason]);
}

void uni__run_stop_now(uni__run *run, uni__stop_reason reason)
{
    if (run->stopping == UNI__NOT_STOPPING || run->stopping == UNI__STOPPING_EARLY)
        run->stopping = reason;
    run->hard_stop = true;
    if (run->state == UNI__RUN_WAITING) {
        uni__run_finish_stopped(run);
    } else if (run->state == UNI__RUN_RUNNING || run->state == UNI__RUN_FAILING) {
        run->state = UNI__RUN_FAILING;
        uni__group_after(run->group, 0, NULL);
        uni__group_kill_all(run->group);
    }
}

/* Those that do not stop by themselves get a signal at half of the grace time, and are killed at its end. */
void uni__run_press_stop(uni__run *run, uint64_t now)
{
    if (run->state == UNI__RUN_RUNNING && run->stop_soft_ns && now >= run->stop_soft_ns) {
        run->stop_soft_ns = 0;
        signal_programs(run, run->program != NULL);
    }
    if (run->state == UNI__RUN_RUNNING && now >= run->stop_deadline_ns) {
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "some ranks did not stop within the grace time of %g s and are killed",
                      run->trainer->options.grace_seconds);
        uni__run_stop_now(run, run->stopping);
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
