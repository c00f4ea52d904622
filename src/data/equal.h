/*
 * equal.h - as many batches for every shard (uni_data_options.equal), and the place of all of them in one state. Each worker goes through the shares of all shards by itself,
 * so that nobody has to talk to anybody:
 *   block order    the blocks were counted, and rows are shared out by their number (layout.h)
 *   global order   rounds, as without it; needed only where no batch may be empty
 *   by files       the rows of every shard's files are counted
 * What has no number of rows before it is read is read by everybody instead (shared.h). One thread.
 */
#ifndef UNISONO_DATA_EQUAL_H
#define UNISONO_DATA_EQUAL_H

#include "data/execute.h"
#include "data/layout.h"

typedef struct uni__equal uni__equal;

/* plan: of one of the shards (of files: of the one that the dataset is); with its layout in the block order. Batches of shard i have global_batch's part i rows, or plan's when
 * that is 0. It stands at the first epoch. Counting files may take as long as reading. */
int uni__equal_open(uni__equal **out, uni_dataset *dataset, const uni__plan_options *plan,
                    int64_t global_batch, bool no_empty, const uni_value *state,
                    uni_error *err) UNI_MUST_USE;
int64_t uni__equal_batches(const uni__equal *equal); /* of every shard, in this epoch */
/* Of this epoch's batch number `batch`: rows of a shard. */
int64_t uni__equal_rows(const uni__equal *equal, int64_t batch, int shard);
/* The same: the rows of the shards before `shard`, and of all. */
void uni__equal_place(const uni__equal *equal, int64_t batch, int shard, int64_t *first,
                      int64_t *global_size);
int64_t uni__equal_left_out(const uni__equal *equal); /* rows of all epochs that no shard gets */
void uni__equal_next_epoch(uni__equal *equal);
/* What is left to all shards when each took so many batches of this epoch. Not of files. */
int uni__equal_state(const uni__equal *equal, int64_t taken, uni_value **out,
                     uni_error *err) UNI_MUST_USE;
/* true: uni__equal_state says where the shard stands. */
bool uni__equal_speaks_for_all(const uni__equal *equal);
/* The plans of all shards go on to this epoch. */
void uni__equal_extend(uni__equal *equal, int64_t end_epoch);
void uni__equal_free(uni__equal *equal);

/* The rows of the blocks, counted once a dataset and kept, or `given`. */
int uni__equal_count_blocks(uni_dataset *dataset, const int64_t *given, const int64_t **out,
                            uni_error *err) UNI_MUST_USE;
/* false: a round of so many rows leaves a shard without one. */
bool uni__enough_for_all(int64_t rows, int64_t global_batch, int num_shards);
/* A state that stands for all ranks, after so many batches of its epoch. Frees it when it fails. */
int uni__state_for_all(uni_value **state, int num_shards, int64_t taken,
                       uni_error *err) UNI_MUST_USE;

#endif
