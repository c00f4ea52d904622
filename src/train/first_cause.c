/*
 * first_cause.c - which of several failures came first. Controller thread.
 *
 * When a rank dies, the others notice it by themselves: a connection breaks, a collective fails.
 * Their error travels through the ring and can overtake the news of the death, which comes from the
 * kernel by way of the agent; and two exits that the agent finds at once have no order. So a
 * failure that may be the consequence of another one is held while some other rank is on its way
 * out: until that rank's end is known, for HOLD_NS at most. What the kernel tells of a process that
 * is ending is there before its connections are closed (base/process.h), so none can be late.
 * Ranks of other hosts cannot be looked at: there every such failure is held for REMOTE_NS.
 *
 * A framework's connections also break when a rank returns early: its process group is destroyed
 * before its return is sent. So the error of a framework's rank waits for such a return, RETURN_NS
 * at most.
 */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "train/run_internal.h"

#define HOLD_NS 2000000000ull
#define REMOTE_NS 250000000ull
#define RETURN_NS 100000000ull

/* How sure it is that nothing else brought it about. */
static int weight(const uni__cause *cause)
{
    switch (cause->kind) {
    case UNI__CAUSE_ERROR:
        return 1;
    case UNI__CAUSE_EXIT:
        return 2;
    case UNI__CAUSE_SIGNAL:
        return cause->signal == SIGABRT ? 3 : 4; /* libraries abort when a connection breaks */
    default:
        return 4;
    }
}

static bool another_is_ending(const uni__run *run, int rank)
{
    for (int i = 0; i < run->num_workers; i++) {
        const uni__rank *other = &run->ranks[i];
        if (i != rank && other->worker->pid && !other->done &&
            uni__process_is_ending(other->worker->pid))
            return true;
    }
    return false;
}

static bool may_have_lost_a_peer(const uni__run *run, const uni__cause *cause)
{
    const char *backend = run->trainer->options.backend;
    return cause->kind == UNI__CAUSE_ERROR && run->num_workers > 1 &&
           (strcmp(backend, "torch") == 0 || strcmp(backend, "tensorflow") == 0) &&
           uni__run_first_ended(run) < 0;
}

static void release(uni__run *run)
{
    uni__cause cause = run->attempt.held;
    run->attempt.held.kind = UNI__CAUSE_NONE;
    uni__run_fail(run, &cause);
}

bool uni__first_cause_hold(uni__run *run, const uni__cause *cause)
{
    uni__cause *held = &run->attempt.held;
    if (run->state != UNI__RUN_RUNNING || run->trainer->roles.servers > 0)
        return false;
    if (held->kind != UNI__CAUSE_NONE && weight(cause) <= weight(held))
        return true; /* came later and proves nothing */
    bool remote = run->trainer->hosts && run->num_workers > 1;
    bool ending = !remote && another_is_ending(run, cause->rank);
    if (weight(cause) >= 4 || (!remote && !ending && !may_have_lost_a_peer(run, cause))) {
        held->kind = UNI__CAUSE_NONE;
        return false;
    }
    if (held->kind == UNI__CAUSE_NONE)
        run->attempt.held_until_ns = uni__monotonic_ns() + (remote   ? REMOTE_NS
                                                            : ending ? HOLD_NS
                                                                     : RETURN_NS);
    *held = *cause;
    return true;
}

void uni__first_cause_look(uni__run *run)
{
    if (run->attempt.held.kind == UNI__CAUSE_NONE || run->state != UNI__RUN_RUNNING)
        return;
    if (uni__monotonic_ns() >= run->attempt.held_until_ns ||
        (!run->trainer->hosts && !another_is_ending(run, run->attempt.held.rank) &&
         !may_have_lost_a_peer(run, &run->attempt.held)))
        release(run);
}
