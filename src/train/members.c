/*
 * members.c - roles, and members that are restarted alone. Controller thread, but for the names of
 * roles.
 *
 * A run with parameter servers has one chief (the coordinator, rank 0), then its workers, then its
 * servers, then maybe evaluators. They are connected pair by pair, not by collectives, so the unit
 * of restart is the member: a worker or a server that dies or freezes is ended and started again by
 * itself, with the same rank, and the others never stop. Only the chief's death ends the attempt. A
 * member that dies again and again within a second of its start is not started for ever: then the
 * attempt fails with its cause.
 *
 * When the chief has returned, members that have not done so by themselves soon (TensorFlow's
 * servers never do) are ended; one that was just started again and would wait for the chief's first
 * word at once.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "train/run_internal.h"

#define QUICK_DEATH_NS 1000000000ull
#define QUICK_DEATHS 5 /* in a row, when max_failures has no limit */
#define LINGER_MS 2000

const char *uni__role_of(const uni__roles *roles, int rank, int *index)
{
    const struct {
        const char *name;
        int count;
    } in_order[] = { { "chief", roles->servers > 0 },
                     { "worker", roles->workers },
                     { "ps", roles->servers },
                     { "evaluator", roles->evaluators } };
    for (size_t i = 0; i < sizeof in_order / sizeof in_order[0]; i++) {
        if (rank < in_order[i].count) {
            *index = rank;
            return in_order[i].name;
        }
        rank -= in_order[i].count;
    }
    *index = rank;
    return "worker";
}

int uni__roles_size(const uni__roles *roles)
{
    return (roles->servers > 0) + roles->workers + roles->servers + roles->evaluators;
}

bool uni__run_is_member(const uni__run *run, int rank)
{
    return run->trainer->roles.servers > 0 && rank > 0;
}

int uni__members_begin(uni__run *run, uni_error *err)
{
    for (int i = 0; i < run->num_workers; i++) {
        run->ranks[i].restarts = run->ranks[i].quick_deaths = 0;
        /* Only the chief reports: the others' lines are not waited for. */
        if (uni__run_is_member(run, i))
            UNI_TRY(uni__results_writer_rank_ended(run->writer, i, err));
    }
    return 0;
}

static void note_restart(uni__run *run, int rank, const char *role, const uni__cause *cause)
{
    uni__run_note(run, "member",
                  UNI__DICT({ "rank", uni_value_int(rank) }, { "role", uni_value_string(role) },
                            { "restarts", uni_value_int(run->ranks[rank].restarts) },
                            { "message", uni_value_string(cause->message) }),
                  false);
}

static bool is_usage_error(const uni__cause *cause)
{
    return cause->kind == UNI__CAUSE_EXIT && cause->exit_code == UNI_EXIT_USAGE;
}

/* Whether it may be started once more; counts. */
static bool may_restart(uni__run *run, uni__rank *slot)
{
    int budget = run->trainer->options.max_failures;
    if (budget == UNI_NO_RETRIES)
        return false;
    bool quick = uni__monotonic_ns() - slot->worker->spawned_ns < QUICK_DEATH_NS;
    slot->quick_deaths = quick ? slot->quick_deaths + 1 : 0;
    return slot->quick_deaths <= (budget < 0 ? QUICK_DEATHS : budget);
}

bool uni__member_lost(uni__run *run, int rank, uni__cause *cause)
{
    uni__rank *slot = &run->ranks[rank];
    int index;
    /* Over hosts every rank is in one MPI world, which cannot be entered twice: there the group is
     * the unit. */
    if (!uni__run_is_member(run, rank) || run->state != UNI__RUN_RUNNING || run->trainer->hosts)
        return false;
    if (run->ranks[0].done) {
        uni__run_rank_done(run, rank);
        return true;
    }
    if (slot->ended_for.kind != UNI__CAUSE_NONE) { /* we ended it, because it was frozen */
        *cause = slot->ended_for;
        memset(&slot->ended_for, 0, sizeof slot->ended_for);
    }
    const char *role = uni__role_of(&run->trainer->roles, rank, &index);
    if (is_usage_error(cause))
        return false; /* what it says of itself is enough */
    if (!may_restart(run, slot)) {
        size_t used = strlen(cause->message);
        if (run->trainer->options.max_failures == UNI_NO_RETRIES)
            snprintf(cause->message + used, sizeof cause->message - used,
                     " (%s %d; without retries no member is started again)", role, index);
        else
            snprintf(cause->message + used, sizeof cause->message - used,
                     " (%s %d, %d times within a second of its start)", role, index,
                     slot->quick_deaths);
        return false;
    }
    slot->restarts++;
    note_restart(run, rank, role, cause);
    uni__run_tell(run, UNI_EVENT_WARNING, rank, "%s %d is started again: %.700s", role, index,
                  cause->message);
    uni_error err = { 0 };
    if (uni__attempt_start_rank(run, rank, &err) < 0)
        uni__run_fatal(run, UNI__CAUSE_LAUNCH, &err);
    return true;
}

void uni__rank_end(uni__run *run, const uni__cause *cause)
{
    uni__rank *slot = &run->ranks[cause->rank];
    if (slot->ended_for.kind != UNI__CAUSE_NONE)
        return;
    slot->ended_for = *cause;
    uni__group_kill(run->group, cause->rank, SIGKILL);
}

bool uni__member_end(uni__run *run, const uni__cause *cause)
{
    if (cause->rank < 0 || !uni__run_is_member(run, cause->rank) ||
        run->trainer->options.max_failures == UNI_NO_RETRIES || run->trainer->hosts)
        return false;
    uni__rank_end(run, cause);
    return true;
}

static void end_the_rest(void *context)
{
    uni__run *run = ((uni_trainer *)context)->run;
    if (!run || run->state != UNI__RUN_RUNNING)
        return;
    for (int i = 1; i < run->num_workers; i++)
        if (run->ranks[i].worker->pid && !run->ranks[i].done)
            uni__group_kill(run->group, i, SIGKILL); /* its exit makes it done */
}

/* Started again too late: the chief has returned, and nothing of the run was told to it. */
static void end_if_late(uni__run *run, int rank)
{
    const uni__rank *slot = &run->ranks[rank];
    bool unheard = slot->worker->state == UNI__WORKER_ORDERED && !run->request.program;
    if (slot->restarts > 0 && (unheard || slot->asked_chief) && !slot->done &&
        uni__worker_is_live(slot->worker))
        uni__group_kill(run->group, rank, SIGKILL); /* its exit makes it done */
}

void uni__members_chief_done(uni__run *run)
{
    if (run->trainer->roles.servers == 0 || run->state != UNI__RUN_RUNNING)
        return;
    for (int i = 1; i < run->num_workers; i++)
        end_if_late(run, i);
    uni__group_after(run->group, LINGER_MS, end_the_rest);
}

void uni__member_mailed(uni__run *run, int from, int to)
{
    if (run->trainer->roles.servers == 0)
        return;
    for (int i = 1; from == 0 && i < run->num_workers; i++)
        if (to < 0 || to == i)
            run->ranks[i].asked_chief = false;
    if (from == 0 || to != 0)
        return;
    run->ranks[from].asked_chief = true;
    if (run->ranks[0].done)
        end_if_late(run, from);
}
