/*
 * comm_ways.h - what the sides of ./bench comm do: all-reduces by ranks of unisono over every
 * transport, and by a plain loop of two threads. comm_bench.c starts them as processes and gives
 * them orders.
 */
#ifndef UNISONO_BENCH_COMM_WAYS_H
#define UNISONO_BENCH_COMM_WAYS_H

#include <stdio.h>

#include <unisono/comm.h>

#include "comm/rendezvous.h"

#include "bench_numbers.h"

#define MAX_COUNT (100u * 1000 * 1000 / 4)

typedef enum way { SHARED, ANY, THREAD, PLAIN, OPEN_MPI, GLOO, OVER_MPI, NUM_WAYS } way;

static inline double now_us(void)
{
    return now_s() * 1e6;
}

_Noreturn void give_up(const char *format, ...) UNI_PRINTF(1, 2);

/* Orders are lines "count repetitions"; the answer is a line with microseconds a call. These two
 * end the process. A rank over shared memory; rank 0 answers. */
_Noreturn void shm_rank(uni__socket_mesh *mesh, int rank, way w, FILE *orders, FILE *answers);
/* Both ranks as threads of this process (THREAD), or the plain loop (PLAIN). */
_Noreturn void thread_side(way w, FILE *orders, FILE *answers);
/* One of two ranks that mpirun started; rank 0 reads the orders from stdin. What the program ends
 * with. */
int mpi_rank(void);
/* Prints recorder_overhead_bare_step. */
void run_recorder(void);

#endif
