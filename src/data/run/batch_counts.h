/*
 * batch_counts.h - how many batches every shard gets in an epoch, and how many rows each batch has,
 * if all shards must get the same number of batches (uni_data_options.equal); and the position of
 * all shards in one state. Each worker computes the shares of all shards by itself, so no message
 * is needed:
 *   ranges    the blocks were counted, and rows are shared by number (layout.h)
 *   rounds    as without `equal`; needed only if no batch may be empty
 *   files     the rows of every shard's files are counted
 * common_batches.h handles datasets whose row count is unknown until they are read. One thread.
 */
#ifndef UNISONO_DATA_BATCH_COUNTS_H
#define UNISONO_DATA_BATCH_COUNTS_H

#include "data/run/execute.h"
#include "data/plan/layout.h"

typedef struct uni__shard_counts {
    uni__plan plan; /* not for files; rounds: only of the first shard */
    const uni__piece *pieces; /* of this epoch; owned by the plan */
    int num_pieces;
    int64_t batch, rows; /* rows: of this epoch; files: of every epoch */
} uni__shard_counts;

typedef struct uni__batch_counts {
    uni_dataset *dataset; /* borrowed */
    bool files, rounds, drop_remainder, no_empty;
    uni__layout layout; /* ranges only */
    int64_t global_batch;
    int64_t batches, full; /* batches of every shard in this epoch, and how many are full */
    int64_t left_out; /* rows of all epochs that no shard gets */
    bool over; /* no more epochs */
    int num_plans, num_shards;
    uni__shard_counts shards[];
} uni__batch_counts;

/* plan: that of any shard (for files, of the shard that the dataset is), with its layout in the
 * block order. Batches of shard i have part i of global_batch rows, or plan's batch if that is 0.
 * Starts at the first epoch. Counting files may take as long as reading them. */
int uni__batch_counts_open(uni__batch_counts **out, uni_dataset *dataset,
                           const uni__plan_options *plan, int64_t global_batch, bool no_empty,
                           const uni_value *state, uni_error *err) UNI_MUST_USE;
/* Rows of a shard in batch number `batch` of this epoch. */
int64_t uni__batch_counts_rows(const uni__batch_counts *counts, int64_t batch, int shard);
/* For the same batch: the rows of the shards before `shard`, and of all shards. */
void uni__batch_counts_place(const uni__batch_counts *counts, int64_t batch, int shard,
                             int64_t *first, int64_t *global_size);
void uni__batch_counts_next_epoch(uni__batch_counts *counts);
/* The state of all shards after each took `taken` batches of this epoch. Not for files. */
int uni__batch_counts_state(const uni__batch_counts *counts, int64_t taken, uni_value **out,
                            uni_error *err) UNI_MUST_USE;
/* Extends the plans of all shards to this epoch. */
void uni__batch_counts_extend(uni__batch_counts *counts, int64_t end_epoch);
void uni__batch_counts_free(uni__batch_counts *counts);

/* The row count of each block: `given`, or counted once per dataset and kept. */
int uni__rows_of_blocks(uni_dataset *dataset, const int64_t *given, const int64_t **out,
                        uni_error *err) UNI_MUST_USE;
/* False if a round of `rows` rows leaves a shard without a row. */
bool uni__enough_for_all(int64_t rows, int64_t global_batch, int num_shards);
/* Marks a state as that of all ranks after `taken` batches of its epoch. Frees it on failure. */
int uni__state_for_all(uni_value **state, int num_shards, int64_t taken,
                       uni_error *err) UNI_MUST_USE;

#endif
