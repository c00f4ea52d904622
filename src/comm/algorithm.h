/*
 * algorithm.h - one collective done in one way, on shared memory. One a file; table.c chooses.
 *
 * step() is called again and again until it says done; it never waits: it looks with
 * uni__board_reached and returns 0 when a peer is not there yet. request->stage says where it stands.
 * For src/comm only.
 */
#ifndef UNISONO_COMM_ALGORITHM_H
#define UNISONO_COMM_ALGORITHM_H

#include "comm/board.h"

struct uni__algorithm {
    const char *name;
    const char *cost; /* steps and bytes, for the table that is printed */
    /* Copies the first window into staging and publishes at once, without knowing what the peers have. */
    bool copy_first;
    /* Copies this rank's part of a window into its staging half. Needed for what may be staged. */
    void (*fill)(uni_comm_request *request, size_t window);
    /* 1 done, 0 not yet, negative failed. */
    int (*step)(uni_comm_request *request, uni_error *err);
};

extern const uni__algorithm uni__all_reduce_small, uni__all_reduce_slices, uni__reduce_to_root,
    uni__broadcast_pull, uni__all_gather_pull, uni__reduce_scatter_pull, uni__all_to_all_pull,
    uni__barrier_flags, uni__send_small, uni__send_pull, uni__reduce_apply_slices, uni__show_flags;

/* table.c: by kind, bytes of one segment and ranks; never NULL. */
const uni__algorithm *uni__table_choose(int kind, size_t bytes, int size);

/* pull.c: the common way of all that only reads from peers. Windows of the segments go through staging, or,
 * when all buffers are visible, one window is everything and is read in place. `pull` takes the
 * window's elements [first, first + count) of each segment; segment s of member m begins at
 * views[m] + s * stride bytes. */
typedef struct uni__pull {
    const char *const *views;
    size_t stride; /* bytes from one segment to the next in a view */
    size_t first, count; /* elements of the segment in this window */
} uni__pull;
typedef void (*uni__pull_window)(uni_comm_request *request, const uni__pull *pull);
int uni__pull_step(uni_comm_request *request, uni__pull_window pull, uni_error *err);
void uni__pull_fill(uni_comm_request *request, size_t window);
/* A window whose result is the sum (or what the op says) of all ranks' inputs. */
void uni__pull_reduce(uni_comm_request *request, const uni__pull *pull);

/* The divisor of a reduction: 0 when there is none. */
double uni__divisor(const uni_comm_request *request);

#endif
