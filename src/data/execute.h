/*
 * execute.h - the threads behind an iterator: they read and transform tasks of the plan ahead of the consumer, who takes the results in order.
 *
 * A task is one element of work from the file to the transformed table (read, decode, all stages that may run in parallel): tables do not wander
 * between threads while they are warm. Results wait in a ring until the consumer comes to them. Back pressure: a thread takes a task only when
 * what is out of the pool and what the running tasks will need fit the budget, and not more than `ahead` results wait; one task may always run, so that a
 * consumer who keeps everything still gets on. Streams are read by one thread at a time, their stages run in parallel as well.
 *
 * Where rows lie in memory and no function of the user's is called (`quick`), the consumer works, too: it makes the first results itself at the start, so that nobody waits for
 * a thread to come up, and later whatever it needs and is not there. What is through by then never gets a thread, nor what is
 * nothing but views.
 */
#ifndef UNISONO_DATA_EXECUTE_H
#define UNISONO_DATA_EXECUTE_H

#include "data/dataset.h"
#include "data/plan.h"
#include "data/pool.h"

typedef struct uni__execute uni__execute;

typedef struct uni__execute_options {
    uni_dataset *dataset; /* borrowed */
    uni__plan *plan; /* borrowed; used under the executor's lock while it runs */
    uni__pool *pool;
    uni__bad *bad;
    int threads;
    int64_t ahead; /* results that may wait */
    size_t budget;
    int num_stages; /* stages that run here; the consumer does the rest */
    bool
        shuffle_blocks; /* the rows of each block are shuffled here, for the consumer's merge (shuffle.h) */
    int64_t window_rows; /* streams: a resume begins at a multiple of this; 1: anywhere */
    bool quick; /* the consumer may work ... */
    bool
        alone; /* ... and nobody else: a result costs less than to wake somebody for it. With ... */
    uni__reader *reader; /* ... its own, borrowed */
} uni__execute_options;

/* What a task gave. */
typedef struct uni__result {
    uni__task task;
    uni_table *table; /* NULL for the end of an epoch */
    int64_t
        base; /* streams whose rows are those of the source: the number of the first row; otherwise -1 */
} uni__result;

int uni__execute_start(uni__execute **out, const uni__execute_options *options,
                       uni_error *err) UNI_MUST_USE;
/* 1 and the next result in order (the table is the caller's), 0 when there is nothing more, or the error of the task. Waits. */
int uni__execute_next(uni__execute *execute, uni__result *out, uni_error *err) UNI_MUST_USE;
/* The plan goes on to this epoch. The thread of next. */
void uni__execute_extend(uni__execute *execute, int64_t end_epoch);
/* The plan begins again with this epoch, and threads with it; only when all results were taken, otherwise false. The thread of next. */
bool uni__execute_rewind(uni__execute *execute, int64_t epoch, int64_t end_epoch);
/* Tasks that run are told to give up (uni__reader_is_wanted) and waited for. */
void uni__execute_stop(uni__execute *execute);
/* It was started before a fork, in the process that is this one's parent: there is nobody to wait for, and locks may be held for ever. NULL is nobody's. */
bool uni__execute_is_anothers(const uni__execute *execute);
double uni__execute_wait(const uni__execute *execute); /* seconds that next waited */
double uni__execute_busy(uni__execute *execute); /* seconds of all threads */

/* The row of an indexed source, or the block of a split one, at a place of an epoch's order. */
int64_t uni__order_element(const uni_dataset *dataset, int64_t epoch, int64_t position);
/* The same of many rows of an indexed source at once: places become the rows that are there. */
void uni__order_rows(const uni_dataset *dataset, int64_t epoch, int64_t *rows, int64_t count);
/* A key for what is random in an epoch; `what` tells uses apart. */
uint64_t uni__order_key(const uni_dataset *dataset, int64_t epoch, uint64_t what);

#endif
