/*
 * iterator_view.c - batches without a table of their own: the rows where they lie, for loops whose steps take microseconds. What comes out is what
 * uni_dataset_iterator_next_in_epoch gives. The consumer's thread.
 */
#include "base/clock.h"
#include "data/iterator.h"

/* true when the next batch is the next rows of the unit at hand, whole. */
static bool is_at_hand(const uni_dataset_iterator *it)
{
    return !it->stream && it->equal == NULL && it->shared == NULL && it->failure.code == 0 &&
           it->pending_end < 0 && !it->done &&
           it->unit.rows - it->unit.at >= it->options.batch_size;
}

static void count_batch(uni_dataset_iterator *it, const uni_table *table, int64_t rows)
{
    it->batch_rows = rows;
    it->rows += rows;
    it->bytes += (int64_t)uni_table_bytes(table) * rows / uni_table_num_rows(table);
    it->epoch_batches++;
    if (it->batches++ == 0)
        it->first_batch_ns = uni__monotonic_ns();
}

int uni_dataset_iterator_view_in_epoch(uni_dataset_iterator *it, const uni_table **table,
                                       int64_t *first, int64_t *rows, uni_error *err)
{
    *table = NULL;
    uni_table_unref(it->viewed);
    it->viewed = NULL;
    *rows = it->options.batch_size;
    int lies = 0;
    if (is_at_hand(it))
        lies = uni__unit_view(&it->unit, it->reader, *rows, table, first, &it->failure);
    if (lies > 0) {
        uni__iterator_note_taken(it, *rows);
        count_batch(it, *table, *rows);
        return 1;
    }
    /* Parts of several units, the last rows of an epoch, errors. */
    int more = uni_dataset_iterator_next_in_epoch(it, &it->viewed, err);
    *table = it->viewed;
    *first = 0;
    *rows = more > 0 ? uni_table_num_rows(it->viewed) : 0;
    return more;
}
