/*
 * team.c - see team.h. The barrier is a counter and a generation: the last to arrive resets the
 * counter and moves the generation on; the others watch the generation. A job is announced the same
 * way by its own generation, so a step costs no allocation and, while all are at work, no system
 * call.
 */
#include "nn/model/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

/* How long a waiting thread keeps its core before it sleeps, when there is one for everybody. A
 * wake costs about 30 microseconds one way: kernel_sum_ratio of the NNLM head on a busy machine was
 * 0.40 to 0.58 when it slept after 50 microseconds, 0.69 to 0.76 after 2,000 (three runs each).
 * After PAUSE_NS it yields in each turn: the one it waits for may have been put on the same core,
 * and a step then took 2.5 ms instead of 0.1. */
#define PAUSE_NS 20000
#define SPIN_NS 1000000

struct member {
    uni__team *team;
    pthread_t thread;
    int index;
    float *values; /* of the sum under way; others read it */
    float *copy;
    size_t capacity;
    char pad[64];
};

struct uni__team {
    int count, started;
    bool spin; /* there is a core for everyone */
    bool ending;
    uni__team_job job;
    void *context;
    _Atomic uint32_t job_generation, running, generation, arrived, aborted, sleepers;
    int inner_status;
    uni_error inner_error;
    struct member members[];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Returns when *word is no longer `value`. */
static void wait_change(uni__team *team, _Atomic uint32_t *word, uint32_t value)
{
    uint64_t begin = team->spin ? uni__monotonic_ns() : 0, waited = 0;
    for (unsigned i = 1; team->spin && waited < SPIN_NS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value)
            return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        if (waited >= PAUSE_NS)
            sched_yield();
        if (i % 64 == 0 || waited >= PAUSE_NS)
            waited = uni__monotonic_ns() - begin;
    }
    atomic_fetch_add(&team->sleepers, 1);
    while (atomic_load(word) == value)
        futex_wait(word, value);
    atomic_fetch_sub(&team->sleepers, 1);
}

static void wake(uni__team *team, _Atomic uint32_t *word)
{
    if (atomic_load(&team->sleepers) > 0)
        futex_wake(word);
}

bool uni__team_barrier(uni__team *team)
{
    uint32_t generation = atomic_load(&team->generation);
    if (atomic_load(&team->aborted) != 0)
        return false;
    if (atomic_fetch_add(&team->arrived, 1) + 1 == (uint32_t)team->count) {
        atomic_store(&team->arrived, 0);
        atomic_fetch_add(&team->generation, 1);
        wake(team, &team->generation);
    } else {
        wait_change(team, &team->generation, generation);
    }
    return atomic_load(&team->aborted) == 0;
}

void uni__team_abort(uni__team *team)
{
    atomic_store(&team->aborted, 1);
    atomic_fetch_add(&team->generation, 1); /* whoever waits goes on and sees the flag */
    futex_wake(&team->generation);
}

static void *work(void *argument)
{
    struct member *member = argument;
    uni__team *team = member->team;
    for (uint32_t seen = 0;; seen++) {
        wait_change(team, &team->job_generation, seen);
        if (team->ending)
            return NULL;
        team->job(team->context, member->index);
        if (atomic_fetch_sub(&team->running, 1) == 1)
            wake(team, &team->running);
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
    if (team->count == 1) {
        job(context, 0);
        return;
    }
    team->job = job;
    team->context = context;
    atomic_store(&team->running, (uint32_t)team->count - 1);
    announce(team);
    job(context, 0);
    for (uint32_t left; (left = atomic_load(&team->running)) != 0;)
        wait_change(team, &team->running, left);
}

/* Threads of the team take no signals: those are the program's. */
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
    UNI_TRY(reserve(self, count, err));
    self->values = values;
    bool together = uni__team_barrier(team);
    for (size_t i = 0; together && i < count; i++) {
        float sum = team->members[0].values[i];
        for (int m = 1; m < team->count; m++)
            sum += team->members[m].values[i];
        self->copy[i] = sum;
    }
    together = together && uni__team_barrier(team); /* all have read all values */
    if (together && outer && member == 0) {
        memcpy(values, self->copy, count * sizeof *values);
        team->inner_status = inner->sum(inner->context, values, count, &team->inner_error);
    } else if (together && !outer) {
        memcpy(values, self->copy, count * sizeof *values);
    }
    if (together && outer) {
        together = uni__team_barrier(team); /* member 0 has the sums of all processes */
        if (together && team->inner_status < 0)
            return uni_error_set(err, team->inner_status, "%s", team->inner_error.message);
        if (together && member != 0)
            memcpy(self->copy, team->members[0].values, count * sizeof *values);
        together = together && uni__team_barrier(team);
        if (together && member != 0)
            memcpy(values, self->copy, count * sizeof *values);
    }
    return together ? 0 : uni_error_set(err, UNI_ECANCELED, "another replica of the step failed");
}
