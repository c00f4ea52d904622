/*
 * equal.h - how many batches every shard gives in an epoch, so that all can give the same number (uni_data_options.equal). In the block order each worker goes through
 * the plans of all shards with the rows of the blocks, which were counted once; of shards by files it counts the rows. Nobody has to talk to anybody. One thread.
 */
#ifndef UNISONO_DATA_EQUAL_H
#define UNISONO_DATA_EQUAL_H

#include "data/execute.h"

typedef struct uni__equal uni__equal;

/* plan: of one of the shards (of files: of the one that the dataset is). Batches of shard i have global_batch's part i rows, or plan's when that is 0. Counting may
 * take as long as reading. */
int uni__equal_open(uni__equal **out, uni_dataset *dataset, const uni__plan_options *plan,
                    int64_t global_batch, const uni_value *state, uni_error *err) UNI_MUST_USE;
/* Batches of the next epoch: of the shard that has the most, or with drop_remainder of the one that has the fewest. */
int64_t uni__equal_epoch(uni__equal *equal);
/* Of that epoch's batch number `batch`: the rows of the shards before `shard`, and of all. */
void uni__equal_place(const uni__equal *equal, int64_t batch, int shard, int64_t *first,
                      int64_t *global_size);
/* The plans of all shards go on to this epoch. */
void uni__equal_extend(uni__equal *equal, int64_t end_epoch);
void uni__equal_free(uni__equal *equal);

#endif
