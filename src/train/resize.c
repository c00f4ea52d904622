/*
 * resize.c - groups whose number of workers changes while they train. Controller thread.
 *
 * A trainer with min_workers has as many ranks as it may ever have workers. Those that are in the
 * group are its members; the others are away. Every change is a new group (replace.c): the pages
 * get its number and its members, and the workers meet again (strategy/elastic/elastic.h).
 *
 *   a member is lost        the others go on without it at once, if enough are left; a new process
 *                           starts beside them, if the failure budget allows it
 *   fewer are wanted, or    members with the highest ranks are told to leave, or the one that got
 *   SIGTERM to a member     the signal is; it leaves between two steps
 *   more are wanted         processes start beside the group
 *   such a process waits    when all that are starting wait, or the first has waited for a moment,
 *   to be let in            they become members; members that would lose what they have done since
 *                           they last saved it (hvd.elastic) are asked, and come first
 *
 * So the group waits for no process to start. Rank 0, the chief, is always a member: it has the
 * checkpoints. When it is lost, or too few would be left, the group waits for the replacement.
 *
 * Nothing changes before every member says, in its page, that it is in a fit whose data can be cut
 * anew, nor while a new rank has not joined yet.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "train/hosts_internal.h"
#include "train/shared.h"

#define EARLY_DEATHS 5 /* in a row, of a process that was not let in yet */
/* Processes that start together are let in together, if they come within this time. */
#define TOGETHER_NS 100000000ull

bool uni__run_is_resizable(const uni__run *run)
{
    return run->trainer->min_workers > 0 && uni__run_is_elastic(run);
}

static void set_member(uni__run *run, int rank, bool member)
{
    uni__members *all = &run->attempt.members;
    uint64_t bit = (uint64_t)1 << (rank % 64), *word = &all->ranks[rank / 64];
    if (((*word & bit) != 0) != member)
        all->count += member ? 1u : UINT32_MAX;
    *word = member ? *word | bit : *word & ~bit;
    run->ranks[rank].away = !member;
}

void uni__resize_begin(uni__run *run)
{
    /* Over hosts there may be fewer slots than ranks. */
    int room = run->trainer->hosts ? uni__hosts_room(run->trainer) : run->num_workers;
    run->attempt.members = (uni__members){ 0 };
    run->attempt.ready_ns = 0;
    run->attempt.fixed_by = NULL;
    for (int i = 0; i < run->num_workers; i++) {
        uni__rank *slot = &run->ranks[i];
        slot->away = slot->joining = slot->fresh = slot->leaving = slot->dismissed = false;
        if (uni__run_is_resizable(run))
            set_member(run, i, i < run->target && i < room);
    }
}

/* ---- what can be done now ---- */

static bool says(const uni__run *run, int rank, uint32_t what)
{
    const uni__page *page = uni__group_page(run->group, rank);
    return page && (atomic_load(&page->replaceable) & what);
}

/* All members but one (-1: all) can meet as another group. */
static bool others_can(const uni__run *run, int but)
{
    if (!uni__run_is_resizable(run) || run->state != UNI__RUN_RUNNING || run->attempt.closed ||
        run->stop.reason != UNI__NOT_STOPPING)
        return false;
    for (int i = 0; i < run->num_workers; i++) {
        const uni__rank *slot = &run->ranks[i];
        bool goes_too = slot->homeless && !slot->joining; /* lost in the same moment */
        if (slot->away || slot->leaving || goes_too || i == but)
            continue;
        if (slot->done || slot->failed || slot->joining || !uni__worker_is_live(slot->worker) ||
            !says(run, i, UNI__IS_RESIZED))
            return false;
    }
    return true;
}

static int members_without(const uni__run *run, int rank)
{
    return (int)run->attempt.members.count - !run->ranks[rank].away;
}

void uni__resize_tell(uni__run *run, int rank, const char *what)
{
    int count = (int)run->attempt.members.count;
    uni__run_note(run, "resized",
                  UNI__DICT({ "rank", uni_value_int(rank) }, { "what", uni_value_string(what) },
                            { "workers", uni_value_int(count) }),
                  false);
    uni__run_tell(run, UNI_EVENT_RESIZED, rank, "%d worker%s: rank %d %s", count,
                  count == 1 ? "" : "s", rank, what);
    uni__run_describe(run, "running");
}

/* ---- fewer ---- */

/* It is not waited for any more, wherever ranks are waited for. */
static void remove_member(uni__run *run, int rank)
{
    uni_error err = { 0 };
    set_member(run, rank, false);
    run->ranks[rank].leaving = run->ranks[rank].joining = false;
    run->attempt.group++;
    uni__replace_regroup(run);
    if (uni__results_writer_rank_ended(run->writer, rank, &err) < 0) {
        uni__run_writer_failed(run, &err);
        return;
    }
    if (uni__persist_is_waiting(run->persist))
        uni__persist_moved(run->persist, rank, 0, NULL, 0);
}

/* It said so itself. */
static bool has_left(const uni__run *run, int rank)
{
    const uni__page *page = uni__group_page(run->group, rank);
    return page && atomic_load(&page->left);
}

/* A rank that was on its way out, and is now; it may be the last that the run waited for. */
static void let_go(uni__run *run, int rank)
{
    remove_member(run, rank);
    uni__resize_tell(run, rank, "left");
    uni__run_look_done(run);
}

static void start_beside(uni__run *run, int rank)
{
    uni__rank *slot = &run->ranks[rank];
    uni_error err = { 0 };
    slot->restarts++;
    slot->done = slot->failed = false;
    slot->fresh = true;
    if (uni__attempt_replace_rank(run, rank, &err) < 0)
        uni__run_fatal(run, UNI__CAUSE_LAUNCH, &err);
}

/* A process that was not in the group yet. */
static void lose_starting(uni__run *run, int rank, const uni__cause *cause)
{
    uni__rank *slot = &run->ranks[rank];
    slot->joining = false;
    if (slot->dismissed || rank >= run->target || ++slot->quick_deaths <= EARLY_DEATHS)
        return; /* if it is wanted, it is started again at the next look */
    slot->dismissed = true;
    uni__run_tell(run, UNI_EVENT_WARNING, rank,
                  "rank %d could not join the others %d times, and is left out: %.600s", rank,
                  slot->quick_deaths, cause->message);
}

/* Whether a lost rank gets a new process. */
static bool is_affordable(uni__run *run, int rank, uni__cause *cause)
{
    char sentence[256] = "";
    bool preempted = cause->signal == SIGTERM;
    cause->attempt = run->attempt.number;
    if (preempted || rank >= run->target)
        return false;
    if (uni__budget_verdict(&run->budget, &run->trainer->options, cause, &run->outcome.progress,
                            true, sentence, sizeof sentence))
        return false;
    run->budget.failures++;
    return true;
}

bool uni__resize_can_lose(const uni__run *run, int rank)
{
    return rank != 0 && members_without(run, rank) >= run->trainer->min_workers &&
           others_can(run, rank);
}

bool uni__resize_lost(uni__run *run, int rank, uni__cause *cause)
{
    uni__rank *slot = &run->ranks[rank];
    if (!uni__run_is_resizable(run) || run->state != UNI__RUN_RUNNING)
        return false;
    if (slot->away) {
        if (slot->joining)
            lose_starting(run, rank, cause);
        return true;
    }
    if (slot->leaving && rank != 0) {
        let_go(run, rank);
        return true;
    }
    if (!uni__resize_can_lose(run, rank))
        return false;
    if (slot->ended_for.kind != UNI__CAUSE_NONE) { /* we ended it, because it was frozen */
        *cause = slot->ended_for;
        memset(&slot->ended_for, 0, sizeof slot->ended_for);
    }
    cause->iteration = slot->iteration;
    bool again = is_affordable(run, rank, cause);
    slot->quick_deaths = 0;
    slot->dismissed = !again;
    remove_member(run, rank);
    uni__run_suspect(run, rank, false);
    uni__replace_note(run, "lost", rank, cause);
    uni__run_tell(run, UNI_EVENT_FAILURE, rank, "%s", cause->message);
    uni__resize_tell(run, rank, again ? "was lost, and starts again" : "was lost");
    if (again && run->state == UNI__RUN_RUNNING && !slot->homeless)
        start_beside(run, rank);
    return true;
}

bool uni__resize_returned(uni__run *run, int rank, const char *how)
{
    uni__rank *slot = &run->ranks[rank];
    /* At the end of fit, one that was to leave and has not ends as the others do. */
    if (!slot->away && (!slot->leaving || (run->attempt.closed && !has_left(run, rank))))
        return false;
    uni__cause cause =
        uni__cause_new(run, UNI__CAUSE_ERROR, rank, UNI_EFUNCTION, "rank %d: %.600s", rank, how);
    return uni__resize_lost(run, rank, &cause);
}

static void ask_to_leave(uni__run *run, int rank)
{
    uni__page *page = uni__group_page(run->group, rank);
    run->ranks[rank].leaving = true;
    if (page)
        atomic_store(&page->leave, 1);
}

bool uni__resize_dismiss(uni__run *run, int rank)
{
    uni__rank *slot = &run->ranks[rank];
    if (slot->leaving)
        return true;
    if (rank == 0 || slot->away || members_without(run, rank) < run->trainer->min_workers ||
        !others_can(run, -1))
        return false;
    slot->dismissed = true;
    ask_to_leave(run, rank);
    return true;
}

static void look_for_left(uni__run *run)
{
    for (int i = 1; i < run->num_workers; i++)
        if (run->ranks[i].leaving && !run->ranks[i].away && has_left(run, i))
            let_go(run, i);
}

/* ---- more ---- */

static bool waits_to_join(const uni__run *run, int rank)
{
    const uni__page *page = uni__group_page(run->group, rank);
    return run->ranks[rank].away && run->ranks[rank].joining && page &&
           atomic_load(&page->awaits) > 0;
}

/* Whether all members are ready for another group. Those that want to be asked are. */
static bool all_come(uni__run *run)
{
    uint32_t next = run->attempt.group + 1;
    bool ready = true;
    for (int i = 0; i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (run->ranks[i].away || !page || !says(run, i, UNI__IS_ASKED))
            continue;
        atomic_store(&page->asked, next);
        ready &= atomic_load(&page->awaits) >= next;
    }
    return ready;
}

static void let_in(uni__run *run, uint64_t now)
{
    int ready = 0, starting = 0;
    for (int i = 1; i < run->num_workers; i++) {
        bool waits = waits_to_join(run, i);
        ready += waits;
        starting += run->ranks[i].away && run->ranks[i].joining && !waits;
    }
    if (ready == 0) {
        run->attempt.ready_ns = 0;
        return;
    }
    if (run->attempt.ready_ns == 0)
        run->attempt.ready_ns = now;
    if ((starting > 0 && now - run->attempt.ready_ns < TOGETHER_NS) || !others_can(run, -1) ||
        !all_come(run))
        return;
    run->attempt.ready_ns = 0;
    for (int i = 1; i < run->num_workers; i++)
        if (waits_to_join(run, i))
            set_member(run, i, true); /* and still joining, until it has */
    run->attempt.group++;
    uni__replace_regroup(run);
}

/* ---- as many as are wanted ---- */

/* A process that left may not have ended yet. */
static bool can_start(const uni__run *run, const uni__worker *worker)
{
    return !uni__worker_is_live(worker) ||
           (!run->request.program && worker->state == UNI__WORKER_GREETED);
}

static void approach(uni__run *run)
{
    for (int i = run->num_workers - 1; i > 0; i--) {
        uni__rank *slot = &run->ranks[i];
        bool wanted = i < run->target;
        if (!wanted && slot->away && slot->joining) {
            slot->dismissed = true;
            uni__group_kill(run->group, i, SIGKILL);
        } else if (!wanted && !slot->away && !slot->leaving) {
            ask_to_leave(run, i);
        } else if (wanted && slot->away && !slot->joining && !slot->dismissed && !slot->homeless &&
                   can_start(run, slot->worker)) {
            start_beside(run, i);
        }
    }
}

void uni__resize_to(uni__run *run, int workers)
{
    if (!uni__run_is_resizable(run))
        return;
    run->target = workers;
    for (int i = 0; i < run->num_workers; i++) {
        run->ranks[i].dismissed = false; /* one that is on its way out comes back then */
        if (run->ranks[i].away)
            run->ranks[i].quick_deaths = 0;
    }
    uni__run_describe(run, "running");
    uni__resize_look(run, uni__monotonic_ns());
}

/* The command writes the number into a file of the run directory, which is ours alone; but a worker
 * can put there what it likes, and must not hold us up. */
void uni__resize_ask(uni__run *run)
{
    char text[UNI__SCALE_BYTES] = "", *end = text;
    struct stat info;
    if (!uni__run_is_resizable(run) || run->state != UNI__RUN_RUNNING)
        return;
    int fd =
        openat(run->places.dir_fd, UNI__SCALE_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    ssize_t size = regular ? read(fd, text, sizeof text - 1) : 0;
    close(fd);
    /* What cannot be removed would be read, and complained of, at every tick. */
    if (unlinkat(run->places.dir_fd, UNI__SCALE_FILE, 0) < 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    if (text[0] == '+') {
        uni__hosts_add(run, text + 1);
        return;
    }
    long wanted = size > 0 ? strtol(text, &end, 10) : 0;
    if (end > text && wanted >= run->trainer->min_workers && wanted <= run->num_workers)
        uni__resize_to(run, (int)wanted);
    else
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "%s does not have a number from %d to %d",
                      UNI__SCALE_FILE, run->trainer->min_workers, run->num_workers);
}

/* Why the present fit keeps its number of workers; NULL: it does not. */
static const char *obstacle(const uni__run *run)
{
    static const char *const reasons[] = {
        [UNI__FIXED_BY_DATA] =
            "the data of this fit is sharded by the program or by files, not by the strategy",
        [UNI__FIXED_BY_ACCUMULATION] = "this fit has gradient_accumulation_steps",
        [UNI__FIXED_LATER_FIT] =
            "the program is not in a fit that workers could join (after a loop of "
            "its own, or after hvd.elastic.run)",
    };
    const uni__page *page = uni__group_page(run->group, 0);
    uint32_t why = page ? atomic_load(&page->fixed) : UNI__NOT_FIXED;
    return why < sizeof reasons / sizeof reasons[0] ? reasons[why] : NULL;
}

/* Once for each fit that cannot do what is wanted; `unisono scale` finds it in run.json. */
static void say_fixed(uni__run *run)
{
    bool wanted = run->target != (int)run->attempt.members.count;
    const char *why = wanted ? obstacle(run) : NULL;
    if (why == run->attempt.fixed_by)
        return;
    run->attempt.fixed_by = why;
    if (why)
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "the number of workers stays %d: %s",
                      (int)run->attempt.members.count, why);
    uni__run_describe(run, "running");
}

void uni__resize_look(uni__run *run, uint64_t now)
{
    if (!uni__run_is_resizable(run) || run->state != UNI__RUN_RUNNING)
        return;
    look_for_left(run);
    say_fixed(run);
    if (run->state == UNI__RUN_RUNNING && others_can(run, -1))
        approach(run);
    if (run->state == UNI__RUN_RUNNING)
        let_in(run, now);
}

void uni__resize_end(uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++) {
        uni__rank *slot = &run->ranks[i];
        if (!slot->away)
            continue;
        if (slot->joining && uni__worker_is_live(slot->worker))
            uni__group_kill(run->group, i, SIGKILL);
        slot->joining = false;
    }
}
