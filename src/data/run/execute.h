/*
 * execute.h - the threads behind an iterator. They read and transform tasks of the plan ahead of
 * the consumer, which takes the results in order.
 *
 * A task covers all work from the file to the transformed table: read, decode, and all stages that
 * may run in parallel. A table stays on one thread while it is in the cache. Results wait in a ring
 * until the consumer takes them.
 *
 * Backpressure: a thread starts a task only if the memory in use and the needs of all running tasks
 * fit the budget, and at most `ahead` results wait. One task may always run, so that a consumer
 * that keeps every batch still makes progress. One thread at a time reads a stream; its stages also
 * run in parallel.
 *
 * If rows are in memory and no user function is called (`quick`), the consumer works, too. It
 * computes the first results itself, so that it does not wait for a thread to start, and later any
 * result that is not ready. A dataset that is finished by then never starts a thread, nor does one
 * that consists of views.
 */
#ifndef UNISONO_DATA_EXECUTE_H
#define UNISONO_DATA_EXECUTE_H

#include "data/plan/dataset.h"
#include "data/plan/plan.h"
#include "data/run/pool.h"

typedef struct uni__execute uni__execute;

typedef struct uni__execute_options {
    uni_dataset *dataset; /* borrowed */
    uni__plan *plan; /* borrowed; used with the executor's lock held */
    uni__pool *pool;
    uni__bad *bad;
    int threads;
    int64_t ahead; /* how many results may wait */
    size_t budget;
    int num_stages; /* stages that run here; the consumer runs the rest */
    /* Shuffles the rows of each block here; the consumer merges them (shuffle.h). */
    bool shuffle_blocks;
    int64_t window_rows; /* Streams: a resume begins at a multiple of this; 1: anywhere. */
    bool quick; /* the consumer may work */
    /* Only the consumer works, because a result costs less than waking a thread. */
    bool alone;
    uni__reader *reader; /* the consumer's; borrowed */
} uni__execute_options;

/* The result of a task. */
typedef struct uni__result {
    uni__task task;
    uni_table *table; /* NULL at the end of an epoch */
    /* Streams whose rows are those of the source: number of the first row; otherwise -1. */
    int64_t base;
} uni__result;

int uni__execute_start(uni__execute **out, const uni__execute_options *options,
                       uni_error *err) UNI_MUST_USE;
/* Waits for the next result in order. Returns 1, and the caller owns the table; 0 at the end; or
 * the error of the task. */
int uni__execute_next(uni__execute *execute, uni__result *out, uni_error *err) UNI_MUST_USE;
/* Extends the plan to this epoch. On the thread that calls next. */
void uni__execute_extend(uni__execute *execute, int64_t end_epoch);
/* Restarts the plan and the threads at this epoch. Returns false unless all results were taken. On
 * the thread that calls next. */
bool uni__execute_rewind(uni__execute *execute, int64_t epoch, int64_t end_epoch);
/* Asks running tasks to stop (uni__reader_is_wanted) and waits for them. */
void uni__execute_stop(uni__execute *execute);
/* True if it was started before a fork, by the parent of this process: its threads do not exist
 * here, and locks may be held forever. False for NULL. */
bool uni__execute_is_anothers(const uni__execute *execute);
double uni__execute_wait(const uni__execute *execute); /* seconds that next waited */
double uni__execute_busy(uni__execute *execute); /* seconds of all threads */

#endif
