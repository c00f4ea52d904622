/*
 * watch.c - says in time what a rank waits for: the disk, or another rank that will not come. It ends nothing: that is what progress_timeout is
 * for. Controller thread.
 */
#include "base/clock.h"
#include "train/run_internal.h"

#define SLOW_DISK_NS 1000000000ull
#define STALLED_NS 10000000000ull

/* A worker that has had its two checkpoints in flight for a second is waiting for the disk. */
static void watch_disk(uni__run *run, uint64_t now)
{
    for (int i = 0; i < run->num_workers && !run->said_slow_disk; i++) {
        uni__page *page = uni__group_page(run->group, i);
        uint32_t in_flight =
            page ? atomic_load(&page->checkpoints_taken) - atomic_load(&page->checkpoints_done) : 0;
        if (in_flight < UNI__CHECKPOINTS_IN_FLIGHT) {
            run->ranks[i].full_since_ns = 0;
        } else if (!run->ranks[i].full_since_ns) {
            run->ranks[i].full_since_ns = now;
        } else if (now - run->ranks[i].full_since_ns > SLOW_DISK_NS) {
            run->said_slow_disk = true;
            uni__run_tell(run, UNI_EVENT_WARNING, i,
                          "rank %d saves checkpoints faster than the disk takes them and waits "
                          "(said once; waited_s in run.json counts it)",
                          i);
        }
    }
}

/* A rank that returned before the others: frameworks keep its connections open, so whoever waits for it in a collective sees nothing. */
static void watch_returned(uni__run *run, uint64_t now)
{
    int returned = -1, left = -1;
    if (run->said_returned || run->trainer->roles.servers > 0 ||
        now - run->last_report_ns < STALLED_NS)
        return;
    for (int i = 0; i < run->num_workers; i++) {
        bool done = run->ranks[i].state == UNI__RANK_DONE;
        if (done && now - run->ranks[i].done_ns >= STALLED_NS && returned < 0)
            returned = i;
        if (!done && left < 0)
            left = i;
    }
    if (returned < 0 || left < 0)
        return;
    run->said_returned = true;
    uni__run_tell(run, UNI_EVENT_WARNING, left,
                  "rank %d has returned after iteration %lld, and rank %d has not reported for "
                  "%.0f s since iteration %lld: if it waits for rank %d in a collective, it waits "
                  "for ever. Let every rank run the same number of steps; progress_timeout "
                  "(--progress-timeout) ends such a run",
                  returned, (long long)run->ranks[returned].iteration, left,
                  (double)(now - run->last_report_ns) * 1e-9, (long long)run->ranks[left].iteration,
                  returned);
}

static void watch_incomplete(uni__run *run, uint64_t now)
{
    int64_t iteration;
    int from, missing;
    if (!run->synchronous || run->said_incomplete || now - run->last_report_ns < STALLED_NS ||
        (missing = uni__persist_waits_for(run->persist, &iteration, &from)) < 0)
        return;
    run->said_incomplete = true;
    uni__run_tell(run, UNI_EVENT_WARNING, from,
                  "rank %d waits in report() for its checkpoint of iteration %lld, which rank %d "
                  "has not reported: with synchronous checkpoints all ranks report equally often",
                  from, (long long)iteration, missing);
}

void uni__run_watch(uni__run *run, uint64_t now)
{
    watch_disk(run, now);
    watch_returned(run, now);
    watch_incomplete(run, now);
}
