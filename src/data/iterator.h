/*
 * iterator.h - an iterator inside: what its three files share. iterator_open.c chooses sizes and begins; iterator_units.c gets the next unit from the
 * threads; iterator.c makes batches of units and knows where the consumer stands. All on the consumer's thread.
 */
#ifndef UNISONO_DATA_ITERATOR_H
#define UNISONO_DATA_ITERATOR_H

#include "data/equal.h"
#include "data/shared.h"
#include "data/unit.h"

struct uni_dataset_iterator {
    uni_dataset *dataset;
    uni_data_options options; /* with defaults filled in */
    uni__plan plan;
    uni__pool *pool;
    uni__bad bad;
    uni__reader *reader; /* the consumer's */
    uni__execute *execute;
    bool stream, windows; /* windows: units are shuffled here */
    int first_in_order; /* stages from here on run on the consumer's thread */
    int64_t window_rows; /* of a stream */
    uni__unit unit;
    uni_table *pending; /* stream: what is behind the window's end */
    int64_t stream_begin, stream_rows; /* of this epoch: where it was resumed, rows that came by */
    int64_t stream_taken; /* rows of this shard */
    bool stream_over; /* between two epochs */
    /* where the consumer stands */
    uni__task task;
    int64_t used;
    bool started, done, epoch_over;
    /* All shards get as many batches (`equal`): one of these, or none. */
    uni__equal *equal; /* the rows of all shards are known ... */
    int equal_shard; /* ... of which this is that one's */
    uni__layout layout; /* of the plan: shards are cut by rows */
    uni__shared *shared; /* everybody reads everything: nothing else here is used */
    int64_t epoch_batches; /* given in this epoch */
    int pending_end; /* the epoch's last batch was given, its end is told by the next call */
    uint64_t epoch;
    uni_error failure;
    uni_table *
        viewed; /* the table of the last batch that was given as a view, when it is none of the unit's */
    int64_t rows, batches, bytes;
    int64_t batch_rows; /* of the last batch */
    uint64_t opened_ns, first_batch_ns;
};

/* What comes next. */
enum { UNI__NO_MORE = 0, UNI__UNIT = 1, UNI__END_OF_EPOCH = 2 };

/* iterator_open.c. The threads shuffle the rows of each block, windows only merge them. Not where tables are cut at windows, nor before functions that want the rows
 * in order. */
bool uni__iterator_merges(const uni_dataset_iterator *it);
/* iterator_units.c: the next unit into it->unit, or one of the others above, or an error. */
int uni__iterator_unit(uni_dataset_iterator *it, uni_error *err) UNI_MUST_USE;
/* iterator.c: so many rows of the unit were taken (unit.at is behind them). */
void uni__iterator_note_taken(uni_dataset_iterator *it, int64_t count);
/* The epoch is over, for the reason that uni__iterator_unit gave. Always returns 0, what next says then. */
int uni__iterator_end_epoch(uni_dataset_iterator *it, int why);
/* Adds the rows of this epoch of an iterator over all shards to *out. Units are counted as they come: no batch is put together. */
int uni__iterator_count(uni_dataset_iterator *it, int64_t *out, uni_error *err) UNI_MUST_USE;
/* The rows of the next unit of such an iterator, instead of a batch: 1, or 0 after the last. */
int uni__iterator_next_unit(uni_dataset_iterator *it, uni_table **out, uni_error *err) UNI_MUST_USE;
/* Where this shard's row number `taken` lies in the stream. */
int64_t uni__iterator_stream_position(const uni_dataset_iterator *it, int64_t taken);

#endif
