/*
 * common_batches.h - rounds over datasets whose rows cannot be read by index: streams and, with
 * `equal`, a filter over the global order or functions that are called in order. Every shard reads
 * everything in global batches and keeps its part of each, with an inner iterator of its own. Runs
 * on the consumer's thread.
 */
#ifndef UNISONO_DATA_COMMON_BATCHES_H
#define UNISONO_DATA_COMMON_BATCHES_H

#include <unisono/data.h>

typedef struct uni__round {
    uni_table *table; /* a global batch; NULL: none */
    uni_value *after; /* the state after it */
} uni__round;

typedef struct uni__common {
    uni_dataset_iterator *whole; /* over all rows */
    int shard, num_shards;
    int64_t global_batch;
    bool no_empty;
    /* If no batch may be empty: the next one may have too few rows for all shards. */
    uni__round held;
    uni_value *after; /* the state after the batch that was handed out */
    bool ended; /* The epoch's last batch was handed out; the next call reports its end. */
    bool done;
    uint64_t epoch;
    int64_t batches; /* in this epoch */
    int64_t first, rows; /* of the last batch; see uni__dataset_iterator_place */
    int64_t left_out;
} uni__common;

/* True if this dataset is shared in this way with `equal`. */
bool uni__common_needed(const uni_dataset *dataset);
/* options: with defaults filled in. */
int uni__common_open(uni__common **out, uni_dataset *dataset, const uni_data_options *options,
                     uni_error *err) UNI_MUST_USE;
void uni__common_free(uni__common *common);
/* Like the iterator functions of the same names. */
int uni__common_next(uni__common *common, uni_table **out, uni_error *err) UNI_MUST_USE;
int uni__common_state(const uni__common *common, uni_value **out, uni_error *err) UNI_MUST_USE;

#endif
