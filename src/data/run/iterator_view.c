/*
 * iterator_view.c - returns batches in place, without a table of their own, for loops whose steps
 * take microseconds. The rows are those of uni_dataset_iterator_next_in_epoch. Runs on the
 * consumer's thread.
 */
#include "data/shared.h"
#include "data/run/iterator.h"

/* True if batches are consecutive rows of windows, and nothing is pending. */
static bool is_plain(const uni_dataset_iterator *it)
{
    return !it->stream && it->counts == NULL && it->common == NULL && it->failure.code == 0 &&
           it->pending_end < 0 && !it->done && it->plan.options.num_shards == 1;
}

/* Rows of the next batch if they are all in the window; 0 if not, or if unknown. */
static int64_t rows_at_hand(const uni_dataset_iterator *it)
{
    const uni__window *window = &it->window;
    int64_t left = window->rows - window->at;
    if (left >= it->options.batch_size)
        return it->options.batch_size;
    bool last = it->plan.options.rounds && !it->options.drop_remainder &&
                window->task.window_begin + window->task.window_count == window->task.piece_end;
    return last ? left : 0;
}

int uni__dataset_iterator_view_in_epoch(uni_dataset_iterator *it, const uni_table **table,
                                        int64_t *first, int64_t *rows, uni_error *err)
{
    *table = NULL;
    uni_table_unref(it->viewed);
    it->viewed = NULL;
    if (is_plain(it)) {
        if (it->window.at == it->window.rows) {
            int more = uni__iterator_fill(it, &it->failure);
            if (more == UNI__NO_MORE || more == UNI__END_OF_EPOCH)
                return uni__iterator_end_epoch(it, more);
        }
        *rows = it->failure.code == 0 ? rows_at_hand(it) : 0;
        int lies = 0;
        if (*rows > 0)
            lies = uni__window_view(&it->window, it->reader, *rows, table, first, &it->failure);
        if (lies > 0) {
            uni__iterator_note_taken(it);
            return uni__iterator_count_batch(it, *table, *rows);
        }
    }
    /* Parts of several windows, the last rows of an epoch of blocks, shards, errors. */
    int more = uni_dataset_iterator_next_in_epoch(&it->viewed, it, err);
    *table = it->viewed;
    *first = 0;
    *rows = more > 0 ? uni_table_num_rows(it->viewed) : 0;
    return more;
}
