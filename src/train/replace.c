/*
 * replace.c - ranks that are replaced while the others keep training. Controller thread.
 *
 * A worker under a strategy that can do it (strategy/elastic/elastic.h) says so in its page while
 * it is in fit. When a rank of such a group dies, the others are neither killed nor restarted: the
 * rank gets a new process, and all pages a new group number, on which the survivors and the new
 * process meet again (session.h, rendezvous.c). Everything else is the strategy's. A rank that is
 * frozen is killed first.
 *
 * Ranks may also ask for another group without a death: they lost patience with one that was
 * stopped and has been continued since.
 *
 * It counts as a failure, so max_failures is the limit. When a group cannot be made whole again (no
 * survivor is left, a survivor fails, a new process dies again and again before it has joined), the
 * attempt fails with the first cause, as without this, and the group restarts from its checkpoint.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "train/hosts_internal.h"

#define EARLY_DEATHS 5 /* in a row, of new processes that have not joined */
/* A death is known after some milliseconds: ranks that wait longer than this wait for nothing. */
#define REGROUP_NS 200000000ull
/* Ranks that do not reach each other would meet for ever. */
#define MOST_VAIN 4
#define VAIN_NS 30000000000ull
/* Ranks that were asked for come one after the other. */
#define ASKED_NS 5000000000ull

static bool says(const uni__run *run, int rank, uint32_t what)
{
    const uni__page *page = uni__group_page(run->group, rank);
    return page && (atomic_load(&page->replaceable) & what);
}

bool uni__run_is_elastic(const uni__run *run)
{
    const uni_trainer *trainer = run->trainer;
    return run->num_workers > 1 && uni__hosts_keep_ranks(trainer) && trainer->roles.servers == 0 &&
           !trainer->options.lockstep &&
           (trainer->options.max_failures != UNI_NO_RETRIES || trainer->min_workers > 0);
}

bool uni__replace_is_possible(const uni__run *run)
{
    bool possible = false;
    for (int i = 0; i < run->num_workers && uni__run_is_elastic(run); i++)
        possible |= says(run, i, UNI__REPLACES_OTHERS);
    return possible;
}

bool uni__replace_can(const uni__run *run, int rank)
{
    int survivors = 0;
    if (!uni__run_is_elastic(run) || run->state != UNI__RUN_RUNNING || run->attempt.closed ||
        run->stop.reason != UNI__NOT_STOPPING)
        return false;
    if (run->ranks[rank].away)
        return false;
    for (int i = 0; i < run->num_workers; i++) {
        const uni__rank *slot = &run->ranks[i];
        /* It is not waited for long, or is lost in the same moment. */
        if (slot->away || ((slot->leaving || slot->homeless) && i != rank))
            continue;
        bool ready = says(run, i, i == rank ? UNI__IS_REPLACED : UNI__REPLACES_OTHERS);
        if (!ready && !slot->joining)
            return false;
        if (i != rank && (slot->done || slot->failed || !uni__worker_is_live(slot->worker)))
            return false;
        survivors += i != rank && ready;
    }
    return survivors > 0;
}

void uni__replace_regroup(uni__run *run)
{
    run->attempt.awaited_ns = 0;
    for (int i = 0; i < run->num_workers; i++)
        uni__page_regroup(uni__group_page(run->group, i), run->attempt.group,
                          &run->attempt.members);
}

void uni__replace_note(uni__run *run, const char *event, int rank, const uni__cause *cause)
{
    uni__run_note(run, event,
                  UNI__DICT({ "rank", uni_value_int(rank) },
                            { "iteration", uni_value_int(run->ranks[rank].iteration) },
                            { "message", uni_value_string(cause->message) },
                            { "cause", uni__cause_to_value(cause) }),
                  false);
}

/* A process may have joined, and even returned, since the last look. */
static bool has_joined(const uni__run *run, int rank)
{
    const uni__page *page = uni__group_page(run->group, rank);
    return page && !run->ranks[rank].homeless && atomic_load(&page->joined);
}

/* It is in the group, but has not come to where the others are. */
static bool is_entering(const uni__run *run, int rank)
{
    return run->ranks[rank].joining && !run->ranks[rank].away;
}

static void welcome(uni__run *run, int rank)
{
    uni__rank *slot = &run->ranks[rank];
    const uni__page *page = uni__group_page(run->group, rank);
    int64_t iteration = page ? atomic_load(&page->iteration) : 0;
    slot->joining = false;
    slot->quick_deaths = 0;
    if (slot->fresh) { /* of reports before that, it has none */
        if (iteration > slot->iteration && iteration <= run->outcome.progress.iteration)
            slot->iteration = iteration;
        slot->fresh = false;
        uni__resize_tell(run, rank, "joined");
        return;
    }
    run->outcome.replaced++;
    uni__run_tell(run, UNI_EVENT_REPLACED, rank,
                  "rank %d by pid %d, %.0f ms after its death; the other ranks kept training", rank,
                  slot->worker->pid, (double)(uni__monotonic_ns() - run->attempt.lost_ns) * 1e-6);
}

static void look_for_joined(uni__run *run)
{
    bool any = false;
    for (int i = 0; i < run->num_workers; i++) {
        any |= is_entering(run, i);
        if (is_entering(run, i) && !has_joined(run, i))
            return;
    }
    if (!any)
        return;
    for (int i = 0; i < run->num_workers; i++)
        if (is_entering(run, i))
            welcome(run, i);
    run->attempt.joining = 0;
    uni__run_describe(run, "running");
}

/* A process that never joins is not started for ever, whatever max_failures says. */
static bool dies_early(uni__rank *slot)
{
    slot->quick_deaths = slot->joining ? slot->quick_deaths + 1 : 0;
    return slot->quick_deaths > EARLY_DEATHS;
}

static void keep_cause(uni__run *run, const uni__cause *cause)
{
    if (run->attempt.joining++ > 0)
        return; /* the first one of those that are not over */
    uni__cause_clear(&run->attempt.lost);
    run->attempt.lost = *cause;
    run->attempt.lost_ns = uni__monotonic_ns();
}

bool uni__replace_lost(uni__run *run, int rank, uni__cause *cause)
{
    uni__rank *slot = &run->ranks[rank];
    char sentence[256] = "";
    look_for_joined(run);
    if (slot->ended_for.kind != UNI__CAUSE_NONE) { /* we ended it, because it was frozen */
        *cause = slot->ended_for;
        memset(&slot->ended_for, 0, sizeof slot->ended_for);
    }
    if (!uni__replace_can(run, rank) || dies_early(slot))
        return false;
    cause->iteration = slot->iteration;
    if (uni__budget_verdict(&run->budget, &run->trainer->options, cause, &run->outcome.progress,
                            true, sentence, sizeof sentence)) {
        run->attempt.joining = 0; /* it is this death that ends the run */
        return false;
    }
    cause->attempt = run->attempt.number;
    run->budget.failures++;
    uni__cause_clear(&run->budget.before);
    run->budget.before = *cause;
    keep_cause(run, cause);
    slot->restarts++;
    uni__replace_note(run, "replaced", rank, cause);
    uni__run_tell(run, UNI_EVENT_FAILURE, rank, "%s", cause->message);
    uni__run_suspect(run, rank, false);
    uni_error err = { 0 };
    run->attempt.group++;
    slot->joining |= slot->homeless; /* it is started when there is a host for it */
    if (!slot->homeless && uni__attempt_replace_rank(run, rank, &err) < 0)
        uni__run_fatal(run, UNI__CAUSE_LAUNCH, &err);
    else
        uni__replace_regroup(run);
    return true;
}

bool uni__replace_end(uni__run *run, const uni__cause *cause)
{
    if (cause->rank < 0 || !uni__replace_can(run, cause->rank))
        return false;
    uni__rank_end(run, cause);
    return true;
}

bool uni__replace_failed(uni__run *run, uni__cause *cause)
{
    if (run->attempt.joining == 0)
        return false;
    run->budget.failures--; /* it is counted again, as the group's */
    run->attempt.joining = 0;
    size_t used = strlen(run->attempt.lost.message);
    uni__cause first = run->attempt.lost;
    run->attempt.lost = (uni__cause){ 0 };
    snprintf(first.message + used, sizeof first.message - used,
             " (and could not be replaced: %.300s)", cause->message);
    uni__cause_clear(cause);
    *cause = first;
    return true;
}

/* ---- at every tick ---- */

/* The train function of a new process went another way: the others would wait for it for ever. */
static void look_for_returned(uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++)
        if (is_entering(run, i) && run->ranks[i].done && !has_joined(run, i)) {
            uni__cause cause =
                uni__cause_new(run, UNI__CAUSE_ERROR, i, UNI_EFUNCTION,
                               "the new process of rank %d returned before it had joined", i);
            uni__run_fail(run, &cause);
            return;
        }
}

static bool is_in_vain(uni__run *run, uint64_t now)
{
    run->attempt.vain = now - run->attempt.vain_ns < VAIN_NS ? run->attempt.vain + 1 : 1;
    run->attempt.vain_ns = now;
    if (run->attempt.vain <= MOST_VAIN)
        return false;
    uni__cause cause = uni__cause_new(
        run, UNI__CAUSE_ERROR, -1, UNI_EPEER,
        "the ranks have met %d times without a death between, and lose each other every time: %s",
        MOST_VAIN,
        run->trainer->hosts ? "the network between the hosts drops what UCX sends (a firewall, a "
                              "port, a route); their logs say which rank waited for which"
                            : "their logs say which rank waited for which");
    uni__run_fail(run, &cause);
    return true;
}

/* Ranks that wait for another group although none has died. */
static void look_for_waiting(uni__run *run, uint64_t now)
{
    bool waits = false, asked = false;
    for (int i = 0; i < run->num_workers; i++) {
        const uni__rank *slot = &run->ranks[i];
        const uni__page *page = uni__group_page(run->group, i);
        if (slot->away)
            continue;
        asked |= slot->leaving || (page && atomic_load(&page->asked) > run->attempt.group);
        if (!uni__worker_is_live(slot->worker) || slot->worker->stopped_ns || slot->warned_silent ||
            slot->ended_for.kind != UNI__CAUSE_NONE)
            return; /* it comes back, or is ended */
        waits |= page && atomic_load(&page->awaits) > run->attempt.group;
    }
    if (!waits)
        run->attempt.awaited_ns = 0;
    else if (run->attempt.awaited_ns == 0)
        run->attempt.awaited_ns = now;
    else if (now - run->attempt.awaited_ns > (asked ? ASKED_NS : REGROUP_NS) &&
             !is_in_vain(run, now)) {
        run->attempt.group++;
        uni__replace_regroup(run);
    }
}

/* Whether that rank has left a fit that others are still in, or are to join. */
static bool has_left_fit(const uni__run *run, int rank)
{
    return !says(run, rank, UNI__REPLACES_OTHERS) && has_joined(run, rank);
}

static bool is_ending(const uni__run *run, int rank)
{
    const uni__page *page = uni__group_page(run->group, rank);
    return page && atomic_load(&page->ending) == run->attempt.group;
}

/* All ranks have gone on from the fit that they had ended, to another one. */
static bool has_begun_another(const uni__run *run)
{
    bool begun = !run->trainer->hosts;
    for (int i = 0; i < run->num_workers; i++) {
        const uni__page *page = uni__group_page(run->group, i);
        if (!run->ranks[i].away)
            begun &= page && atomic_load(&page->closed) != run->attempt.group;
    }
    return begun;
}

/* A fit ends for all ranks at once, so that none is awaited that has gone: the controller closes
 * the group when every rank is at the end of its fit, or out of it after an error. */
void uni__replace_look_for_end(uni__run *run)
{
    int ending = 0, left = 0, entering = -1;
    if (run->state != UNI__RUN_RUNNING || !uni__run_is_elastic(run))
        return;
    if (run->attempt.closed && !has_begun_another(run))
        return;
    run->attempt.closed = false;
    for (int i = 0; i < run->num_workers; i++) {
        if (run->ranks[i].away)
            continue;
        bool ends = is_ending(run, i);
        if (!ends && is_entering(run, i))
            entering = i;
        else if (!ends && !has_left_fit(run, i))
            return;
        ending += ends;
        left += !ends && !is_entering(run, i);
    }
    if (entering >= 0 && left > 0) {
        uni__cause cause =
            uni__cause_new(run, UNI__CAUSE_ERROR, entering, UNI_EFUNCTION,
                           "rank %d was to join a fit that the others have left", entering);
        uni__run_fail(run, &cause);
    }
    if (entering >= 0 || ending == 0)
        return;
    run->attempt.closed = true;
    for (int i = 0; i < run->num_workers; i++)
        uni__page_close(uni__group_page(run->group, i), run->attempt.group);
}

void uni__replace_returned(uni__run *run)
{
    look_for_joined(run);
}

void uni__replace_look(uni__run *run, uint64_t now)
{
    if (run->state != UNI__RUN_RUNNING || !uni__run_is_elastic(run))
        return;
    look_for_joined(run);
    look_for_returned(run);
    uni__replace_look_for_end(run);
    if (run->state == UNI__RUN_RUNNING)
        look_for_waiting(run, now);
}
