/*
 * shared.h - as many batches for every shard where nobody knows the number of rows before they are read (streams, a filter over rows in the global order, functions that are
 * called in order): every shard reads everything in global batches and keeps its part of each. Of an iterator that the iterator of the shard has inside. The consumer's thread.
 */
#ifndef UNISONO_DATA_SHARED_H
#define UNISONO_DATA_SHARED_H

#include <unisono/data.h>

typedef struct uni__shared uni__shared;

/* true: that is how this dataset is shared out with `equal`. */
bool uni__shared_needed(const uni_dataset *dataset);
/* options: with defaults filled in. */
int uni__shared_open(uni__shared **out, uni_dataset *dataset, const uni_data_options *options,
                     uni_error *err) UNI_MUST_USE;
void uni__shared_free(uni__shared *shared);
/* As the functions of iterators. */
int uni__shared_next(uni__shared *shared, uni_table **out, uni_error *err) UNI_MUST_USE;
int uni__shared_state(const uni__shared *shared, uni_value **out, uni_error *err) UNI_MUST_USE;
void uni__shared_place(const uni__shared *shared, int64_t *first, int64_t *global_size);
bool uni__shared_done(const uni__shared *shared);
uint64_t uni__shared_epoch(const uni__shared *shared);
bool uni__shared_extend(uni__shared *shared, uint64_t end_epoch);
uni_dataset_iterator *uni__shared_whole(const uni__shared *shared); /* of all rows */
int64_t uni__shared_left_out(const uni__shared *shared);

#endif
