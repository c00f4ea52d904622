/* comm_ways.c - see comm_ways.h. */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/shared.h"
#include "comm_ways.h"

#include "bench_record.h"

void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("comm_bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* --- one rank of unisono --- */

typedef struct place {
    uni_comm *comm;
    float *data; /* where the gradients are */
} place;

static double reduce_times(place *at, size_t count, int repetitions)
{
    uni_error err = { 0 };
    int rank = uni_comm_info_of(at->comm)->rank, n = uni_comm_info_of(at->comm)->size;
    for (size_t i = 0; i < count; i++)
        at->data[i] = (float)(i % 1000 + (size_t)rank);
    int status =
        uni_comm_all_reduce(at->comm, at->data, at->data, count, UNI_F32, UNI_COMM_SUM, &err);
    for (size_t i = 0; i < count && status == 0; i++)
        if (at->data[i] != (float)((size_t)n * (i % 1000) + (size_t)(n * (n - 1) / 2)))
            give_up("wrong sum at %zu of %zu: %g", i, count, (double)at->data[i]);
    memset(at->data, 0, count * sizeof *at->data);
    for (int i = 0; i < 3 && status == 0; i++)
        status =
            uni_comm_all_reduce(at->comm, at->data, at->data, count, UNI_F32, UNI_COMM_SUM, &err);
    if (status == 0)
        status = uni_comm_barrier(at->comm, &err);
    double begun = now_us();
    for (int i = 0; i < repetitions && status == 0; i++)
        status =
            uni_comm_all_reduce(at->comm, at->data, at->data, count, UNI_F32, UNI_COMM_SUM, &err);
    if (status < 0)
        give_up("%s", err.message);
    return (now_us() - begun) / repetitions;
}

/* --- the plain loop: two threads, a flag each, half of the sums each --- */

typedef struct plain {
    _Alignas(64) _Atomic unsigned flags[2][16];
    float *data[2];
    size_t count;
    int repetitions;
    double us;
} plain;

static void plain_meet(plain *p, int me, unsigned *turn)
{
    atomic_store_explicit(&p->flags[me][0], ++*turn, memory_order_release);
    for (unsigned spins = 0; atomic_load_explicit(&p->flags[!me][0], memory_order_acquire) < *turn;
         spins++)
        if (spins % 4096 == 4095)
            sched_yield();
}

#ifdef __clang__ /* vectorises at -O2 */
#define VECTORISED
#else
#define VECTORISED __attribute__((optimize("O3")))
#endif

VECTORISED static void plain_add(float *restrict a, float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

typedef struct plain_thread {
    plain *shared;
    int me;
} plain_thread;

static void *plain_main(void *argument)
{
    plain_thread *t = argument;
    plain *p = t->shared;
    size_t half = p->count / 2 / 16 * 16, begin = t->me ? half : 0;
    size_t n = t->me ? p->count - half : half;
    unsigned turn = 0;
    double begun = 0;
    /* A core for each, or the plain loop is at the mercy of where the kernel puts it. */
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(t->me, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
    for (int i = -3; i < p->repetitions; i++) {
        plain_meet(p, t->me, &turn);
        if (i == 0)
            begun = now_us();
        plain_add(p->data[0] + begin, p->data[1] + begin, n);
        plain_meet(p, t->me, &turn);
    }
    if (t->me == 0)
        p->us = (now_us() - begun) / p->repetitions;
    return NULL;
}

static double plain_times(float *data[2], size_t count, int repetitions)
{
    plain *p = aligned_alloc(64, sizeof *p);
    pthread_t other;
    if (!p)
        give_up("no memory");
    memset(p, 0, sizeof *p);
    p->data[0] = data[0];
    p->data[1] = data[1];
    p->count = count;
    p->repetitions = repetitions;
    plain_thread threads[2] = { { p, 0 }, { p, 1 } };
    pthread_create(&other, NULL, plain_main, &threads[1]);
    plain_main(&threads[0]);
    pthread_join(other, NULL);
    double us = p->us;
    free(p);
    return us;
}

/* --- one rank over MPI: comm_bench --mpi-rank, started by mpirun; rank 0 reads orders and hands
 * them on, by a socket: in a collective the other would wait while both stand still, and complain
 * of it --- */

int mpi_rank(void)
{
    uni_error err = { 0 };
    place at = { 0 };
    int64_t pids[2] = { 0 }, pid = getpid(), order[2];
    uni__socket_mesh *mesh = NULL;
    char name[64];
    if (uni__comm_open_mpi(&at.comm, NULL, NULL, NULL, &err) < 0 ||
        uni_comm_info_of(at.comm)->size != 2 ||
        uni_comm_all_gather(at.comm, &pid, pids, 1, UNI_I64, &err) < 0)
        give_up("%s", err.message);
    bool first = uni_comm_info_of(at.comm)->rank == 0;
    snprintf(name, sizeof name, "unisono-comm-bench-%d", (int)pids[0]);
    if (uni__socket_mesh_connect(&mesh, name, first ? 0 : 1, 2, NULL, 10000, &err) < 0)
        give_up("%s", err.message);
    uni__rendezvous peers = uni__socket_mesh_rank(mesh, first ? 0 : 1);
    at.data = malloc(MAX_COUNT * sizeof(float));
    if (first)
        printf("pid %d\npid %d\n", (int)pids[0], (int)pids[1]);
    fflush(stdout);
    for (;;) {
        char line[64];
        long count = -1, repetitions = 0;
        if (first && (!fgets(line, sizeof line, stdin) ||
                      sscanf(line, "%ld %ld", &count, &repetitions) != 2))
            count = -1;
        order[0] = count;
        order[1] = repetitions;
        size_t size = sizeof order;
        int status = first ? peers.vtable->put(peers.context, "order", order, sizeof order, &err)
                           : peers.vtable->get(peers.context, 0, "order", order, sizeof order,
                                               &size, -1, &err);
        if (status < 0 || order[0] < 0)
            break;
        double us = reduce_times(&at, (size_t)order[0], (int)order[1]);
        if (first)
            printf("%.3f\n", us);
        fflush(stdout);
    }
    if (uni_comm_finalize(at.comm, &err) < 0)
        _exit(1);
    uni_comm_close(at.comm);
    uni__socket_mesh_free(mesh);
    free(at.data);
    return 0;
}

/* --- the recorder (./bench strategies has its cost in a training step): in the smallest step there
 * is, all_reduce and update of the NNLM head's 49,000 parameters with no forward and backward pass at all
 * --- */

#define HEAD_PARAMETERS 49000

typedef struct step_rank {
    uni_comm *comm;
    float *parameters;
    double us;
} step_rank;

static int step(step_rank *me, float *gradient, uni_error *err)
{
    UNI_TRY(uni_comm_all_reduce(me->comm, gradient, gradient, HEAD_PARAMETERS, UNI_F32,
                                UNI_COMM_SUM, err));
    for (size_t i = 0; i < HEAD_PARAMETERS; i++)
        me->parameters[i] -= 0.01f * gradient[i];
    return 0;
}

static void *step_main(void *argument)
{
    enum { STEPS = 2000 };
    step_rank *me = argument;
    uni_error err = { 0 };
    uni_comm_buffer *gradients = NULL;
    int status = uni_comm_alloc(&gradients, me->comm, HEAD_PARAMETERS * sizeof(float), &err);
    if (status < 0 || !(me->parameters = calloc(HEAD_PARAMETERS, sizeof(float))))
        give_up("%s", err.message);
    double begun = now_us();
    for (int i = 0; i < STEPS && status == 0; i++)
        status = step(me, uni_comm_buffer_data(gradients), &err);
    if (status < 0)
        give_up("%s", err.message);
    me->us = (now_us() - begun) / STEPS;
    free(me->parameters);
    return NULL;
}

void run_recorder(void)
{
    uni_comm *comms[2];
    uni_error err = { 0 };
    if (uni_comm_open_threads(comms, 2, NULL, &err) < 0)
        give_up("%s", err.message);
    step_rank ranks[2] = { { comms[0], NULL, 0 }, { comms[1], NULL, 0 } };
    pthread_t other;
    pthread_create(&other, NULL, step_main, &ranks[1]);
    step_main(&ranks[0]);
    pthread_join(other, NULL);
    double ns = record_ns();
    printf(
        "{\"bench\": \"comm\", \"metric\": \"recorder_overhead_bare_step\", \"unit\": "
        "\"fraction\", "
        "\"unisono\": "
        "%.5f, \"peer\": null, \"peer_name\": \"none: no peer has one\", \"ratio\": null, "
        "\"record_ns\": %.1f, \"records_per_step\": 1, \"step_us\": %.2f, \"step\": \"all_reduce "
        "and update of 49,000 parameters, nothing else\"}\n",
        ns * 1e-3 / ranks[0].us, ns, ranks[0].us);
    fflush(stdout);
    uni_comm_close(comms[0]);
    uni_comm_close(comms[1]);
}

/* --- sides: processes that answer orders --- */

typedef struct order {
    size_t count;
    int repetitions;
} order;

static bool next_order(FILE *from, order *o)
{
    char line[64];
    return fgets(line, sizeof line, from) &&
           sscanf(line, "%zu %d", &o->count, &o->repetitions) == 2;
}

/* A shm rank; rank 0 answers. Orders come to each rank through its own pipe. */
void shm_rank(uni__socket_mesh *mesh, int rank, way w, FILE *orders, FILE *answers)
{
    uni_error err = { 0 };
    uni__rendezvous peers = uni__socket_mesh_rank(mesh, rank);
    place at = { 0 };
    uni_comm_buffer *buffer = NULL;
    int status = uni__comm_open_shm(&at.comm, &peers, NULL, 0, &err);
    if (status == 0 && w == SHARED)
        status = uni_comm_alloc(&buffer, at.comm, MAX_COUNT * sizeof(float), &err);
    if (status < 0)
        give_up("%s", err.message);
    at.data = w == SHARED ? uni_comm_buffer_data(buffer) : malloc(MAX_COUNT * sizeof(float));
    for (order o; next_order(orders, &o);) {
        double us = reduce_times(&at, o.count, o.repetitions);
        if (rank == 0) {
            fprintf(answers, "%.3f\n", us);
            fflush(answers);
        }
    }
    _exit(0);
}

typedef struct thread_rank {
    place at;
    order o;
    double us;
} thread_rank;

static void *thread_main(void *argument)
{
    thread_rank *t = argument;
    t->us = reduce_times(&t->at, t->o.count, t->o.repetitions);
    return NULL;
}

/* Threads of a process of their own, so that they can be stopped like all others. */
void thread_side(way w, FILE *orders, FILE *answers)
{
    uni_error err = { 0 };
    uni_comm *comms[2];
    float *data[2];
    for (int r = 0; r < 2; r++)
        data[r] = mmap(NULL, MAX_COUNT * sizeof(float), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (uni_comm_open_threads(comms, 2, NULL, &err) < 0 || data[0] == MAP_FAILED ||
        data[1] == MAP_FAILED)
        give_up("%s", err.message);
    for (order o; next_order(orders, &o);) {
        double us;
        if (w == PLAIN) {
            us = plain_times(data, o.count, o.repetitions);
        } else {
            thread_rank ranks[2] = { { { comms[0], data[0] }, o, 0 },
                                     { { comms[1], data[1] }, o, 0 } };
            pthread_t other;
            pthread_create(&other, NULL, thread_main, &ranks[1]);
            thread_main(&ranks[0]);
            pthread_join(other, NULL);
            us = ranks[0].us;
        }
        fprintf(answers, "%.3f\n", us);
        fflush(answers);
    }
    _exit(0);
}
