/*
 * hosts_rank.c - one rank of ./bench hosts, started by hosts_bench.py with `unisono run --launcher
 * mpi`: all_reduce of float32 sums by plain MPI_Allreduce, by our transport over MPI, and by the
 * session's own communicator (shared memory inside a host, MPI or UCX between hosts), in turn.
 *
 * hosts_rank ROUNDS CORES LARGEST; CORES is what a host's ranks have between them (0: all that they
 * see), LARGEST 11mb or 100mb (then without UCX). Rank 0 prints "METRIC PLAIN FLAT SESSION UCX
 * PLAIN/FLAT PLAIN/SESSION FLAT/SESSION PLAIN/UCX SESSION/UCX" in microseconds, medians over the
 * rounds; ratios are medians of the rounds' ratios. Without the plug-in, UCX is 1.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unisono/session.h>

#include "comm/rendezvous.h"
#include "train/shared.h"

#define MAX_ROUNDS 64

enum { PLAIN, FLAT, SESSION, UCX, NUM_WAYS };

typedef struct bench {
    uni_comm *comms[NUM_WAYS]; /* none for PLAIN */
    float *data[NUM_WAYS];
} bench;

static void fail(const uni_error *err)
{
    fprintf(stderr, "%s\n", err->message);
    _exit(1);
}

static double once(bench *it, int way, size_t count, int repetitions)
{
    uni_error err = { 0 };
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int i = 0; i < repetitions; i++)
        if (way == PLAIN)
            MPI_Allreduce(MPI_IN_PLACE, it->data[way], (int)count, MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD);
        else if (uni_comm_all_reduce(it->comms[way], it->data[way], it->data[way], count, UNI_F32,
                                     UNI_COMM_SUM, &err) < 0)
            fail(&err);
    return (MPI_Wtime() - begun) * 1e6 / repetitions;
}

static void check(bench *it, size_t count, int rank, int size)
{
    for (int way = 0; way < NUM_WAYS; way++) {
        for (size_t i = 0; i < count && it->data[way]; i++)
            it->data[way][i] = (float)((int)(i % 1000) + rank);
        if (!it->data[way])
            continue;
        (void)once(it, way, count, 1);
        for (size_t i = 0; i < count; i++)
            if (it->data[way][i] != (float)(size * (int)(i % 1000) + size * (size - 1) / 2)) {
                fprintf(stderr, "way %d: element %zu is wrong\n", way, i);
                _exit(1);
            }
        memset(it->data[way], 0, count * sizeof(float));
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int count)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, by_size);
    return sorted[count / 2];
}

static void measure(bench *it, const char *name, size_t count, int repetitions, int rounds)
{
    double us[NUM_WAYS][MAX_ROUNDS], ratios[MAX_ROUNDS];
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(it, count, rank, size);
    for (int r = -1; r < rounds; r++)
        for (int way = 0; way < NUM_WAYS; way++) {
            double took = it->data[way] ? once(it, way, count, repetitions) : 1;
            if (r >= 0)
                us[way][r] = took;
        }
    if (rank != 0)
        return;
    printf("%s", name);
    for (int way = 0; way < NUM_WAYS; way++)
        printf(" %.2f", median(us[way], rounds));
    static const int pairs[][2] = {
        { PLAIN, FLAT }, { PLAIN, SESSION }, { FLAT, SESSION }, { PLAIN, UCX }, { SESSION, UCX }
    };
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        for (int r = 0; r < rounds; r++)
            ratios[r] = us[pairs[p][0]][r] / us[pairs[p][1]][r];
        printf(" %.3f", median(ratios, rounds));
    }
    printf("\n");
    fflush(stdout);
}

/* Over `ucx` or MPI between hosts; memory that the other ranks of the host see. */
static void open_session(bench *it, uni_session *session, int way, bool ucx, size_t bytes,
                         const uni_comm_options *options)
{
    uni_comm_buffer *buffer = NULL;
    uni_error err = { 0 };
    if (uni__session_comm_over(&it->comms[way], session, ucx, options, &err) < 0 ||
        uni_comm_alloc(&buffer, it->comms[way], bytes, &err) < 0)
        fail(&err);
    it->data[way] = uni_comm_buffer_data(buffer);
}

int main(int argc, char **argv)
{
    uni_error err = { 0 };
    uni_session *session = NULL;
    bench it = { 0 };
    bool large = argc > 3 && strcmp(argv[3], "100mb") == 0;
    size_t most = (large ? 100000000 : 11000000) / 4;
    uni_comm_options options = { .cores = argc > 2 ? atoi(argv[2]) : 0 };
    int rounds = argc > 1 ? atoi(argv[1]) : 11, level;
    rounds = rounds < 1 || rounds > MAX_ROUNDS ? 11 : rounds;
    if (uni_session_open(&session, &err) < 0)
        fail(&err);
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (uni__comm_open_mpi(&it.comms[FLAT], NULL, NULL, NULL, &err) < 0)
        fail(&err);
    it.data[PLAIN] = malloc(most * sizeof(float));
    it.data[FLAT] = malloc(most * sizeof(float));
    open_session(&it, session, SESSION, false, most * sizeof(float), &options);
    if (uni__comm_has_ucx() && !large)
        open_session(&it, session, UCX, true, most * sizeof(float), &options);
    measure(&it, "4kb", 1024, 200, rounds);
    measure(&it, "64kb", 16384, 100, rounds);
    measure(&it, "1mb", 250000, 20, rounds);
    measure(&it, "11mb", 11000000 / 4, 2, rounds);
    if (large)
        measure(&it, "100mb", most, 1, rounds);
    MPI_Barrier(MPI_COMM_WORLD);
    _exit(0);
}
