/*
 * helpers.c - see helpers.h.
 *
 * One 64-bit word, `ticket`, is the whole state of a loop: its number and the range of parts that
 * are not taken, [front, back). A thread takes a part by a compare-and-swap on it, so it cannot
 * take one of a loop that is over. A successful swap also proves that the loop's body and context
 * are still in place: the caller cannot return before that part is done. `number` repeats the
 * loop's number as the word that helpers sleep on, `done` counts parts and is what the caller
 * sleeps on.
 *
 * On a busy machine the kernel often places a woken helper on the core of the thread that woke it,
 * where it cannot help. So helpers may use every core that the caller may use, but the one it is
 * on. Their masks are renewed when the caller has moved.
 */
#include "tensor/helpers.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/futex.h"
#include "base/spin.h"

#define MOST_PARTS 0xffff
#define PLACE_NS 1000000u /* helpers are placed at most this often */

struct helper {
    uni__helpers *pool;
    pthread_t thread;
    char pad[64];
};

struct uni__helpers {
    int threads, started; /* started: helpers */
    pid_t process; /* that started them */
    bool failed; /* no thread could be started: do not try again */
    uni__part_body body;
    void *context;
    int parts;
    int cpu; /* the caller's, which helpers keep off */
    uint64_t placed_ns;
    alignas(64) _Atomic uint64_t ticket; /* number << 32 | front << 16 | back */
    _Atomic uint32_t number; /* futex */
    _Atomic uint32_t ending;
    alignas(64) _Atomic uint32_t done; /* futex */
    _Atomic uint32_t sleepers; /* some helper may be asleep; cleared to wake them all */
    _Atomic uint32_t caller_sleeps;
    alignas(64) struct helper helpers[];
};

/* Whose part this thread computes. */
static _Thread_local const uni__helpers *inside;

bool uni__helpers_busy(const uni__helpers *pool)
{
    return pool != NULL && inside == pool;
}

int uni__helpers_threads(const uni__helpers *pool)
{
    return pool != NULL ? pool->threads : 1;
}

/* ---- taking parts ---- */

static uint64_t ticket_of(uint32_t number, uint32_t front, uint32_t back)
{
    return (uint64_t)number << 32 | (uint64_t)front << 16 | back;
}

/* The next part of loop `number`, or -1. */
static int take(uni__helpers *pool, uint32_t number, bool from_back)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    for (;;) {
        uint32_t front = (uint32_t)(ticket >> 16) & 0xffff, back = (uint32_t)ticket & 0xffff;
        if ((uint32_t)(ticket >> 32) != number || front >= back)
            return -1;
        uint64_t next =
            from_back ? ticket_of(number, front, back - 1) : ticket_of(number, front + 1, back);
        if (atomic_compare_exchange_weak(&pool->ticket, &ticket, next))
            return (int)(from_back ? back - 1 : front);
    }
}

static void work_off(uni__helpers *pool, uint32_t number, bool helper)
{
    const uni__helpers *before = inside;
    inside = pool;
    for (int part; (part = take(pool, number, helper)) >= 0;) {
        uint32_t parts = (uint32_t)pool->parts;
        pool->body(pool->context, part);
        /* From the last part on, the loop's fields belong to the caller. */
        if (atomic_fetch_add(&pool->done, 1) + 1 == parts && helper &&
            atomic_load(&pool->caller_sleeps) != 0)
            uni__futex_wake(&pool->done);
    }
    inside = before;
}

/* ---- helpers ---- */

/* Waits for a loop after number `seen`; false when the pool ends. */
static bool wait_for_loop(struct helper *self, uint32_t seen)
{
    uni__helpers *pool = self->pool;
    uni__spinner spinner = { 0 };
    while (atomic_load_explicit(&pool->number, memory_order_acquire) == seen && uni__spin(&spinner))
        ;
    while (atomic_load(&pool->number) == seen) {
        atomic_store(&pool->sleepers, 1);
        if (atomic_load(&pool->number) == seen)
            uni__futex_wait(&pool->number, seen, -1);
    }
    return atomic_load(&pool->ending) == 0;
}

static void *help(void *argument)
{
    struct helper *self = argument;
    uni__helpers *pool = self->pool;
    uni__prefer_short_slices();
    omp_set_num_threads(1); /* of this thread: oneDNN computes a part without a team */
    for (uint32_t seen = 0; wait_for_loop(self, seen);) {
        seen = atomic_load(&pool->number);
        work_off(pool, seen, true);
    }
    return NULL;
}

/* A pool whose threads cannot be started works without them. Helpers block all signals, which
 * belong to the program. */
static void start(uni__helpers *pool)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->started < pool->threads - 1) {
        struct helper *helper = &pool->helpers[pool->started];
        *helper = (struct helper){ .pool = pool };
        if (pthread_create(&helper->thread, NULL, help, helper) != 0)
            break;
        pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pool->process = getpid();
    pool->cpu = -1;
    pool->failed = pool->started == 0;
}

/* ---- the caller ---- */

static void wait_for_parts(uni__helpers *pool, uint32_t parts)
{
    uni__spinner spinner = { 0 };
    do {
        if (atomic_load_explicit(&pool->done, memory_order_acquire) == parts)
            return;
    } while (uni__spin(&spinner));
    atomic_store(&pool->caller_sleeps, 1);
    for (uint32_t done; (done = atomic_load(&pool->done)) != parts;)
        uni__futex_wait(&pool->done, done, -1);
    atomic_store(&pool->caller_sleeps, 0);
}

/* Keeps the helpers off the caller's core. */
static void place(uni__helpers *pool, int cpu)
{
    uint64_t now = uni__monotonic_ns();
    cpu_set_t others;
    if (now - pool->placed_ns < PLACE_NS || sched_getaffinity(0, sizeof others, &others) != 0)
        return;
    pool->placed_ns = now;
    pool->cpu = cpu;
    if (CPU_COUNT(&others) > 1)
        CPU_CLR((size_t)cpu, &others);
    for (int i = 0; i < pool->started; i++)
        (void)pthread_setaffinity_np(pool->helpers[i].thread, sizeof others, &others);
}

static void announce(uni__helpers *pool, int parts)
{
    uint32_t number = atomic_load_explicit(&pool->number, memory_order_relaxed) + 1;
    int cpu = sched_getcpu();
    if (cpu != pool->cpu)
        place(pool, cpu);
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    atomic_store(&pool->ticket, ticket_of(number, 0, (uint32_t)parts));
    atomic_store(&pool->number, number);
    if (atomic_load(&pool->sleepers) != 0 && atomic_exchange(&pool->sleepers, 0) != 0)
        uni__futex_wake(&pool->number);
}

void uni__helpers_run(uni__helpers *pool, int parts, uni__part_body body, void *context)
{
    bool alone = pool == NULL || parts <= 1 || parts > MOST_PARTS || uni__helpers_busy(pool);
    if (!alone && pool->started == 0 && pool->threads > 1 && !pool->failed)
        start(pool);
    if (alone || pool->started == 0) {
        for (int part = 0; part < parts; part++)
            body(context, part);
        return;
    }
    pool->body = body;
    pool->context = context;
    pool->parts = parts;
    announce(pool, parts);
    work_off(pool, atomic_load_explicit(&pool->number, memory_order_relaxed), false);
    wait_for_parts(pool, (uint32_t)parts);
}

int uni__helpers_new(uni__helpers **out, int threads, uni_error *err)
{
    size_t size = sizeof(uni__helpers) + (size_t)(threads - 1) * sizeof(struct helper);
    size = (size + 63) / 64 * 64;
    uni__helpers *pool = aligned_alloc(64, size);
    *out = NULL;
    if (pool == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d threads", threads);
    *pool = (uni__helpers){ .threads = threads };
    *out = pool;
    return 0;
}

void uni__helpers_free(uni__helpers *pool)
{
    if (pool == NULL)
        return;
    atomic_store(&pool->ending, 1);
    atomic_fetch_add(&pool->number, 1);
    uni__futex_wake(&pool->number);
    /* A forked process has inherited the pool, but not its threads. */
    for (int i = 0; i < pool->started && pool->process == getpid(); i++)
        pthread_join(pool->helpers[i].thread, NULL);
    free(pool);
}
