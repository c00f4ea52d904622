/*
 * iterator_view.c - batches without a table of their own: the rows where they lie, for loops whose steps take microseconds. What comes out is what
 * uni_dataset_iterator_next_in_epoch gives. The consumer's thread.
 */
#include "base/clock.h"
#include "data/iterator.h"

/* true when batches are the rows of one unit after the other, and nothing is owed or left over. */
static bool is_plain(const uni_dataset_iterator *it)
{
    return !it->stream && it->equal == NULL && it->shared == NULL && it->failure.code == 0 &&
           it->pending_end < 0 && !it->done && it->plan.options.num_shards == 1;
}

/* Rows of the next batch when all of them are in the unit; 0: not all are, or that is not known. */
static int64_t rows_at_hand(const uni_dataset_iterator *it)
{
    const uni__unit *unit = &it->unit;
    int64_t left = unit->rows - unit->at;
    if (left >= it->options.batch_size)
        return it->options.batch_size;
    bool last = it->plan.options.rounds && !it->options.drop_remainder &&
                unit->task.unit_begin + unit->task.unit_count == unit->task.piece_end;
    return last ? left : 0;
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
    if (is_plain(it)) {
        if (it->unit.at == it->unit.rows) {
            int more = uni__iterator_unit(it, &it->failure);
            if (more == UNI__NO_MORE || more == UNI__END_OF_EPOCH)
                return uni__iterator_end_epoch(it, more);
        }
        *rows = it->failure.code == 0 ? rows_at_hand(it) : 0;
        int lies = 0;
        if (*rows > 0)
            lies = uni__unit_view(&it->unit, it->reader, *rows, table, first, &it->failure);
        if (lies > 0) {
            uni__iterator_note_taken(it, *rows);
            count_batch(it, *table, *rows);
            return 1;
        }
    }
    /* Parts of several units, the last rows of an epoch of blocks, shards, errors. */
    int more = uni_dataset_iterator_next_in_epoch(it, &it->viewed, err);
    *table = it->viewed;
    *first = 0;
    *rows = more > 0 ? uni_table_num_rows(it->viewed) : 0;
    return more;
}
