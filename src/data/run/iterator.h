/*
 * iterator.h - internals of an iterator, shared by its three files. iterator_open.c chooses sizes
 * and starts; iterator_windows.c gets the next window from the threads; iterator.c cuts windows
 * into batches and tracks the consumer's position. All on the consumer's thread.
 */
#ifndef UNISONO_DATA_ITERATOR_H
#define UNISONO_DATA_ITERATOR_H

#include "data/run/batch_counts.h"
#include "data/run/common_batches.h"
#include "data/run/window.h"

struct uni_dataset_iterator {
    uni_dataset *dataset;
    uni_data_options options; /* with defaults filled in */
    uni__plan plan;
    uni__pool *pool;
    uni__bad bad;
    uni__reader *reader; /* the consumer's */
    uni__execute *execute;
    bool stream, windows; /* windows: windows are shuffled here */
    int first_in_order; /* stages from here on run on the consumer's thread */
    int64_t window_rows; /* streams only */
    uni__window window;
    uni_table *pending; /* stream: rows beyond the end of the window */
    /* In this epoch: where it was resumed, and how many rows have passed. */
    int64_t stream_begin, stream_rows;
    bool stream_over; /* between two epochs */
    /* The consumer's position. */
    uni__task task;
    int64_t used;
    bool started, done, epoch_over;
    uni__batch_counts *counts; /* with `equal`: the batches of all shards; or NULL */
    int counts_shard; /* this iterator's shard in `counts` */
    uni__layout layout; /* of the plan: shards are cut by rows */
    uni__common *common; /* Shared rounds over everything: replaces all else here; or NULL. */
    int64_t epoch_batches; /* handed out in this epoch */
    int pending_end; /* The epoch's last batch was handed out; the next call reports its end. */
    uint64_t epoch;
    uni_error failure;
    /* The table of the last batch that was returned as a view, if it is not part of the window. */
    uni_table *viewed;
    int64_t rows, batches, bytes;
    int64_t batch_rows; /* rows of the last batch */
    uint64_t opened_ns, first_batch_ns;
};

/* Results of uni__iterator_fill. */
enum { UNI__NO_MORE = 0, UNI__WINDOW = 1, UNI__END_OF_EPOCH = 2 };

/* iterator_open.c. True if the threads shuffle the rows of each block and windows only merge them.
 * Not if tables are cut at windows, nor before functions that need rows in order. */
bool uni__iterator_merges(const uni_dataset_iterator *it);
/* iterator_windows.c: gets the next window into it->window. Returns one of the values above, or an
 * error. */
int uni__iterator_fill(uni_dataset_iterator *it, uni_error *err) UNI_MUST_USE;
/* iterator.c: records that rows of the window up to window.at were taken. */
void uni__iterator_note_taken(uni_dataset_iterator *it);
/* Counts a batch of `rows` rows of the table. Always returns 1, the result of next. */
int uni__iterator_count_batch(uni_dataset_iterator *it, const uni_table *table, int64_t rows);
/* Ends the epoch for the reason that uni__iterator_fill gave. Always returns 0, the result of
 * next. */
int uni__iterator_end_epoch(uni_dataset_iterator *it, int why);
/* Adds this epoch's row count to *out, for an iterator over all shards. Counts windows as they
 * come, without building batches. */
int uni__iterator_count(uni_dataset_iterator *it, int64_t *out, uni_error *err) UNI_MUST_USE;
/* Returns the rows of the next window of such an iterator instead of a batch: 1, or 0 after the
 * last. */
int uni__iterator_next_window(uni_dataset_iterator *it, uni_table **out,
                              uni_error *err) UNI_MUST_USE;

#endif
