/*
 * algorithm.h - one way to do one collective on shared memory. Each has its own file; table.c
 * chooses.
 *
 * The caller repeats step() until it returns done. step() never waits: it polls with
 * uni__board_reached and returns 0 while a peer is still missing. request->stage holds its state.
 * For src/comm only.
 */
#ifndef UNISONO_COMM_ALGORITHM_H
#define UNISONO_COMM_ALGORITHM_H

#include "comm/board.h"

/* Elements [first, first + count) of each segment; segment s of member m begins at
 * views[m] + s * stride bytes. */
typedef struct uni__pull {
    const char *const *views;
    size_t stride; /* bytes from one segment to the next in a view */
    size_t first, count; /* elements of the segment in this window */
} uni__pull;

struct uni__algorithm {
    const char *name;
    const char *cost; /* steps and bytes, for the table that is printed */
    /* Copies the first window into staging and publishes it at once, without knowing what the peers
     * do. */
    bool copy_first;
    /* Copies this rank's part of a window into its staging half. Required where staging is
     * possible. */
    void (*fill)(uni_comm_request *request, size_t window);
    /* 1 done, 0 not yet, negative failed. */
    int (*step)(uni_comm_request *request, uni_error *err);
    /* What uni__pull_step does with a window. */
    void (*window)(uni_comm_request *request, const uni__pull *pull);
};

extern const uni__algorithm uni__all_reduce_small, uni__all_reduce_slices, uni__reduce_to_root,
    uni__broadcast_pull, uni__all_gather_pull, uni__reduce_scatter_pull, uni__all_to_all_pull,
    uni__barrier_flags, uni__send_small, uni__send_pull, uni__show_flags;

/* table.c: chooses by kind, bytes of one segment and number of ranks. Never NULL. */
const uni__algorithm *uni__table_choose(int kind, size_t bytes, int size);

/* pull.c: shared by all collectives that only read from peers. Windows of the segments go through
 * staging. When all buffers are visible, a single window covers everything and is read in place. */
int uni__pull_step(uni_comm_request *request, uni_error *err);
void uni__pull_fill(uni_comm_request *request, size_t window);
/* Reduces a window over all ranks' inputs with the call's op. */
void uni__pull_reduce(uni_comm_request *request, const uni__pull *pull);
/* Copies a window of one segment of every rank into the output, in the order of the ranks. */
void uni__pull_gather(uni_comm_request *request, const uni__pull *pull, int segment);

/* The divisor of a reduction; 0 when the op does not divide. */
double uni__divisor(const uni_comm_request *request);

#endif
