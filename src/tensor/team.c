/*
 * team.c - see team.h. The barrier is a counter and a generation: the last member to arrive resets
 * the counter and increments the generation, which the others watch. A separate generation
 * announces a job in the same way. So a step does not allocate and, while all members are busy,
 * makes no system call. A waiting member spins for at most UNI__SPIN_NS (base/spin.h).
 */
#include "tensor/team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/futex.h"
#include "base/spin.h"

#define MOVE_NS 1000000 /* a member changes its core at most this often */

struct member {
    uni__team *team;
    pthread_t thread;
    int index;
    /* The core on which it last began a job or a wait. */
    _Atomic int cpu;
    uint64_t moved_ns;
    float *values; /* of the current sum; other members read it */
    float *copy;
    size_t capacity;
    char pad[64];
};

struct uni__team {
    int count, started;
    bool spin; /* every member has a core */
    bool ending;
    uni__team_job job;
    void *context;
    _Atomic uint32_t job_generation, generation, arrived, aborted, sleepers;
    _Atomic uint32_t running; /* members at work */
    /* Members that have ended their job; if any, no barrier can complete. */
    _Atomic uint32_t left;
    _Atomic uint32_t passed; /* barriers that all members reached */
    int inner_status;
    uni_error inner_error;
    struct member members[];
};

/* Moves this thread off the core, if it may run on another. The kernel places a woken thread beside
 * the one that woke it, and on a busy machine leaves it there. */
static void step_aside(struct member *self, int cpu)
{
    uint64_t now = uni__monotonic_ns();
    cpu_set_t all, others;
    if (now - self->moved_ns < MOVE_NS || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    self->moved_ns = now;
    others = all;
    CPU_CLR((size_t)cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        (void)sched_setaffinity(0, sizeof all, &all);
}

static int note_cpu(struct member *self)
{
    int cpu = sched_getcpu();
    atomic_store_explicit(&self->cpu, cpu, memory_order_relaxed);
    return cpu;
}

/* Two members on one core spin in vain: the member they wait for cannot run. The one with the
 * higher index moves, the other one sleeps. */
static bool may_spin(uni__team *team, struct member *self)
{
    if (!team->spin)
        return false;
    int cpu = note_cpu(self);
    for (int i = 0; i < team->count; i++) {
        if (i == self->index ||
            atomic_load_explicit(&team->members[i].cpu, memory_order_relaxed) != cpu)
            continue;
        if (self->index > i)
            step_aside(self, cpu);
        return self->index > i && note_cpu(self) != cpu;
    }
    return true;
}

/* Returns when *word is no longer `value`. */
static void wait_change(uni__team *team, struct member *self, _Atomic uint32_t *word,
                        uint32_t value)
{
    if (atomic_load_explicit(word, memory_order_acquire) != value)
        return;
    uni__spinner spinner = { 0 };
    for (bool spins = may_spin(team, self); spins; spins = uni__spin(&spinner))
        if (atomic_load_explicit(word, memory_order_acquire) != value)
            return;
    atomic_fetch_add(&team->sleepers, 1);
    while (atomic_load(word) == value)
        uni__futex_wait(word, value, -1);
    atomic_fetch_sub(&team->sleepers, 1);
}

static void wake(uni__team *team, _Atomic uint32_t *word)
{
    if (atomic_load(&team->sleepers) > 0)
        uni__futex_wake(word);
}

/* The order matters. A member that ends its job counts in `left` and then reads `arrived`; one that
 * arrives does the reverse. So at least one of them sees the other. */
bool uni__team_barrier(uni__team *team, int member)
{
    uint32_t generation = atomic_load(&team->generation), passed = atomic_load(&team->passed);
    if (atomic_load(&team->aborted) != 0)
        return false;
    if (atomic_fetch_add(&team->arrived, 1) + 1 == (uint32_t)team->count) {
        atomic_store(&team->arrived, 0);
        atomic_fetch_add(&team->passed, 1);
        atomic_fetch_add(&team->generation, 1);
        wake(team, &team->generation);
    } else if (atomic_load(&team->left) == 0) {
        wait_change(team, &team->members[member], &team->generation, generation);
    }
    return atomic_load(&team->aborted) == 0 && atomic_load(&team->passed) != passed;
}

int uni__team_meet(uni__team *team, int member, uni_error *err)
{
    if (uni__team_barrier(team, member))
        return 0;
    return uni_error_set(err, UNI_ECANCELED, "%s",
                         atomic_load(&team->aborted) != 0
                             ? "another replica of the step failed"
                             : "another replica ended the step without this one: every replica "
                               "must make the same calls");
}

void uni__team_abort(uni__team *team)
{
    atomic_store(&team->aborted, 1);
    /* Release waiting members; they see the flag. */
    atomic_fetch_add(&team->generation, 1);
    uni__futex_wake(&team->generation);
}

/* A member has ended its job. */
static void leave(uni__team *team)
{
    atomic_fetch_add(&team->left, 1);
    if (atomic_load(&team->arrived) > 0) { /* their barrier cannot complete */
        atomic_fetch_add(&team->generation, 1);
        uni__futex_wake(&team->generation);
    }
    /* Do this last: the next run may begin at once. */
    if (atomic_fetch_sub(&team->running, 1) == 1)
        wake(team, &team->running);
}

static void *work(void *argument)
{
    struct member *member = argument;
    uni__team *team = member->team;
    uni__prefer_short_slices();
    for (uint32_t seen = 0;; seen++) {
        wait_change(team, member, &team->job_generation, seen);
        if (team->ending)
            return NULL;
        note_cpu(member);
        team->job(team->context, member->index);
        leave(team);
    }
}

static void announce(uni__team *team)
{
    atomic_fetch_add(&team->job_generation, 1);
    wake(team, &team->job_generation);
}

void uni__team_run(uni__team *team, uni__team_job job, void *context)
{
    atomic_store(&team->aborted, 0);
    atomic_store(&team->arrived, 0);
    atomic_store(&team->left, 0);
    atomic_store(&team->running, (uint32_t)team->count);
    if (team->count == 1) {
        job(context, 0);
        return;
    }
    team->job = job;
    team->context = context;
    note_cpu(&team->members[0]);
    announce(team);
    job(context, 0);
    leave(team);
    for (uint32_t left; (left = atomic_load(&team->running)) != 0;)
        wait_change(team, &team->members[0], &team->running, left);
}

/* The team's threads block all signals, which belong to the program. */
static int start(uni__team *team, uni_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    for (int i = 1; i < team->count && code == 0; i++) {
        code = pthread_create(&team->members[i].thread, NULL, work, &team->members[i]);
        team->started += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code == 0 ? 0
                     : uni_error_set_errno(err, code, "cannot start %d training threads",
                                           team->count - 1);
}

int uni__team_new(uni__team **out, int count, uni_error *err)
{
    *out = NULL;
    uni__team *team = calloc(1, sizeof *team + (size_t)count * sizeof team->members[0]);
    if (team == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d training threads", count);
    cpu_set_t cpus;
    team->spin = sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) >= count;
    team->count = count;
    for (int i = 0; i < count; i++) {
        team->members[i].team = team;
        team->members[i].index = i;
        team->members[i].cpu = -1;
    }
    int status = start(team, err);
    if (status < 0) {
        uni__team_free(team);
        return status;
    }
    *out = team;
    return 0;
}

void uni__team_free(uni__team *team)
{
    if (team == NULL)
        return;
    team->ending = true;
    announce(team);
    for (int i = 1; i <= team->started; i++)
        pthread_join(team->members[i].thread, NULL);
    for (int i = 0; i < team->count; i++)
        free(team->members[i].copy);
    free(team);
}

static int reserve(struct member *self, size_t count, uni_error *err)
{
    if (count <= self->capacity)
        return 0;
    float *grown = realloc(self->copy, count * sizeof *grown);
    if (grown == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to add up %zu numbers over replicas",
                             count);
    self->copy = grown;
    self->capacity = count;
    return 0;
}

int uni__team_sum(uni__team *team, int member, float *values, size_t count, const uni_sync *inner,
                  uni_error *err)
{
    struct member *self = &team->members[member];
    bool outer = inner != NULL && inner->sum != NULL;
    size_t bytes = count * sizeof *values;
    if (team->count == 1)
        return outer ? inner->sum(inner->context, values, count, err) : 0;
    UNI_TRY(reserve(self, count, err));
    self->values = values;
    UNI_TRY(uni__team_meet(team, member, err));
    for (size_t i = 0; i < count; i++) {
        float sum = team->members[0].values[i];
        for (int m = 1; m < team->count; m++)
            sum += team->members[m].values[i];
        self->copy[i] = sum;
    }
    UNI_TRY(uni__team_meet(team, member, err)); /* all have read all values */
    if (!outer || member == 0)
        memcpy(values, self->copy, bytes);
    if (!outer)
        return 0;
    if (member == 0)
        team->inner_status = inner->sum(inner->context, values, count, &team->inner_error);
    UNI_TRY(uni__team_meet(team, member, err)); /* member 0 has the sums of all processes */
    if (team->inner_status < 0)
        return uni_error_set(err, team->inner_status, "%s", team->inner_error.message);
    if (member != 0)
        memcpy(values, team->members[0].values, bytes);
    return uni__team_meet(team, member, err);
}
