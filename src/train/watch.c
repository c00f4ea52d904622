/*
 * watch.c - says in time what a rank waits for: the disk, or another rank that will not come. It
 * ends nothing: that is what progress_timeout is for. Controller thread.
 */
#include <stdio.h>
#include <string.h>

#include "train/run_internal.h"

#define SLOW_DISK_NS 1000000000ull
#define STALLED_NS 10000000000ull

/* A worker that has had its two checkpoints in flight for a second is waiting for the disk. */
static void watch_disk(uni__run *run, uint64_t now)
{
    for (int i = 0; i < run->num_workers && !run->said.slow_disk; i++) {
        uni__page *page = uni__group_page(run->group, i);
        uint32_t in_flight =
            page ? atomic_load(&page->checkpoints_taken) - atomic_load(&page->checkpoints_done) : 0;
        if (in_flight < UNI__CHECKPOINTS_IN_FLIGHT) {
            run->ranks[i].full_since_ns = 0;
        } else if (!run->ranks[i].full_since_ns) {
            run->ranks[i].full_since_ns = now;
        } else if (now - run->ranks[i].full_since_ns > SLOW_DISK_NS) {
            run->said.slow_disk = true;
            uni__run_tell(run, UNI_EVENT_WARNING, i,
                          "rank %d saves checkpoints faster than the disk takes them and waits "
                          "(said once; waited_s in run.json counts it)",
                          i);
        }
    }
}

/* Over MPI a process that ends waits for the others in MPI_Finalize: the end of its session
 * counts. */
static bool has_ended(const uni__rank *rank)
{
    return rank->done || rank->worker->state == UNI__WORKER_CLOSING;
}

void uni__run_say_ended(const uni__run *run, uint64_t for_ns, uint64_t now, char *out, size_t size)
{
    int ended = -1, left = -1;
    out[0] = '\0';
    if (run->trainer->roles.servers > 0)
        return; /* members that end are the coordinator's business */
    for (int i = 0; i < run->num_workers; i++) {
        const uni__rank *rank = &run->ranks[i];
        if (rank->away)
            continue;
        if (has_ended(rank) && now - rank->ended_ns >= for_ns && ended < 0)
            ended = i;
        if (!has_ended(rank) && left < 0)
            left = i;
    }
    if (ended < 0 || left < 0)
        return;
    snprintf(out, size,
             "rank %d has %s after iteration %lld, and rank %d (iteration %lld) may wait for it in "
             "a collective: let every rank run the same number of steps",
             ended, run->ranks[ended].done ? "returned" : "closed its session",
             (long long)run->ranks[ended].iteration, left, (long long)run->ranks[left].iteration);
}

int uni__run_first_ended(const uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++)
        if (!run->ranks[i].away && has_ended(&run->ranks[i]))
            return i;
    return -1;
}

void uni__run_name_ended(const uni__run *run, uni__cause *cause)
{
    int ended = uni__run_first_ended(run);
    if (cause->kind != UNI__CAUSE_ERROR || ended < 0 || run->trainer->roles.servers > 0)
        return;
    snprintf(cause->hint, sizeof cause->hint,
             "rank %d had returned from the train function before, after iteration %lld: all ranks "
             "must take part in the same collectives (run the same number of steps, or join)",
             ended, (long long)run->ranks[ended].iteration);
    size_t used = strnlen(cause->message, sizeof cause->message - sizeof cause->hint - 3);
    snprintf(cause->message + used, sizeof cause->message - used, "; %s", cause->hint);
}

/* A rank that ended before the others: frameworks and MPI keep its connections open, so ranks that
 * wait for it in a collective see nothing. */
static void watch_ended(uni__run *run, uint64_t now)
{
    char sentence[400];
    if (run->said.returned || now - run->attempt.last_report_ns < STALLED_NS)
        return;
    uni__run_say_ended(run, STALLED_NS, now, sentence, sizeof sentence);
    if (!sentence[0])
        return;
    run->said.returned = true;
    uni__run_tell(run, UNI_EVENT_WARNING, -1,
                  "no rank has reported for %.0f s: %s. progress_timeout (--progress-timeout) ends "
                  "such a run",
                  (double)(now - run->attempt.last_report_ns) * 1e-9, sentence);
}

static void watch_incomplete(uni__run *run, uint64_t now)
{
    int64_t iteration;
    int from, missing;
    if (!run->request.synchronous || run->said.incomplete ||
        now - run->attempt.last_report_ns < STALLED_NS ||
        (missing = uni__persist_waits_for(run->persist, &iteration, &from)) < 0)
        return;
    run->said.incomplete = true;
    uni__run_tell(run, UNI_EVENT_WARNING, from,
                  "rank %d waits in report() for its checkpoint of iteration %lld, which rank %d "
                  "has not reported: with synchronous checkpoints all ranks report equally often",
                  from, (long long)iteration, missing);
}

void uni__run_watch(uni__run *run, uint64_t now)
{
    watch_disk(run, now);
    watch_ended(run, now);
    watch_incomplete(run, now);
}
