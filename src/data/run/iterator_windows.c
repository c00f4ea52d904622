/*
 * iterator_windows.c - gets the next window of an iterator: collects the threads' results in order
 * until a window is complete. Streams are cut where windows end. Runs on the consumer's thread.
 */
#include "base/random.h"
#include "data/run/iterator.h"

/* Puts the rows of a window into their keyed order. */
static int order_window(uni_dataset_iterator *it, int64_t number, uni_error *err)
{
    if (!it->windows)
        return 0;
    uint64_t key = uni__order_key(it->dataset, it->window.task.epoch, 1);
    return uni__window_shuffle(&it->window, it->pool, uni__iterator_merges(it),
                               uni__random_u64(key, 0, (uint64_t)number), err);
}

/* Applies the stages that run here. Replaces *table. */
static int apply_rest(uni_dataset_iterator *it, uni_table **table, uni_error *err)
{
    uni_table *made = NULL;
    if (it->first_in_order == it->dataset->num_stages)
        return 0;
    int status = uni__apply_stages(it->dataset, it->first_in_order, it->dataset->num_stages,
                                   it->reader, *table, &made, err);
    uni_table_unref(*table);
    *table = made;
    return status;
}

/* ---- streams ---- */

/* Handles the first table after opening: where it begins, and where the iterator continues. */
static int begin_stream(uni_dataset_iterator *it, uni__result *result, uni_error *err)
{
    it->stream_over = false;
    it->stream_begin = result->task.begin;
    it->stream_rows = 0;
    if (result->base < 0)
        return 0;
    /* The executor skipped whole tables before the window; cut the first one to where the window
     * begins. */
    int64_t first = it->stream_begin / it->window_rows * it->window_rows;
    it->stream_rows = first > result->base ? first : result->base;
    if (first <= result->base)
        return 0;
    uni_table *part = NULL, *whole = result->table;
    int status =
        uni_table_slice(&part, whole, first - result->base, uni_table_num_rows(whole), err);
    uni_table_unref(whole);
    result->table = part;
    return status;
}

/* Adds a table to the window; rows beyond its end wait. */
static int add_to_stream(uni_dataset_iterator *it, uni_table *table, uni_error *err)
{
    int64_t room = it->windows ? it->window_rows - it->window.rows : INT64_MAX;
    int64_t rows = uni_table_num_rows(table);
    if (rows <= room)
        return uni__window_add(&it->window, table, err);
    uni_table *part = NULL;
    int status = uni_table_slice(&part, table, 0, room, err);
    if (status == 0)
        status = uni__window_add(&it->window, part, err);
    if (status == 0)
        status = uni_table_slice(&it->pending, table, room, rows, err);
    uni_table_unref(table);
    return status;
}

static bool is_whole(const uni_dataset_iterator *it)
{
    const uni__window *window = &it->window;
    if (!it->stream)
        return window->num_tables > 0 && window->task.last_of_window;
    return window->rows > 0 && (!it->windows || window->rows >= it->window_rows);
}

/* Orders the window's rows and selects those of this iterator. */
static int finish_window(uni_dataset_iterator *it, uni_error *err)
{
    uni__window *window = &it->window;
    int64_t skip = window->task.skip, stop = window->task.stop;
    if (it->stream) {
        window->base = it->stream_rows;
        it->stream_rows += window->rows;
        window->task.end_of_epoch = false;
        window->task.piece_end = INT64_MAX;
        skip = it->stream_begin > window->base ? it->stream_begin - window->base : 0;
        stop = 0;
    }
    UNI_TRY(order_window(it, it->stream ? window->base : window->task.window_begin, err));
    if (stop > 0 && stop < window->rows)
        window->rows = stop;
    window->at = skip < window->rows ? skip : window->rows;
    return UNI__WINDOW;
}

int uni__iterator_fill(uni_dataset_iterator *it, uni_error *err)
{
    uni__result result;
    uni__window_clear(&it->window);
    if (it->pending != NULL) {
        uni_table *pending = it->pending;
        it->pending = NULL;
        UNI_TRY(add_to_stream(it, pending, err));
    }
    while (!it->epoch_over && !is_whole(it)) {
        int more = uni__execute_next(it->execute, &result, err);
        if (more <= 0)
            return more;
        it->window.task = result.task;
        if (result.task.end_of_epoch) { /* after the last window of a stream */
            it->epoch_over = true;
            break;
        }
        if (it->stream || result.task.count > 0)
            UNI_TRY(apply_rest(it, &result.table, err));
        if (it->stream_over)
            UNI_TRY(begin_stream(it, &result, err));
        if (it->stream)
            UNI_TRY(add_to_stream(it, result.table, err));
        else
            UNI_TRY(uni__window_add(&it->window, result.table, err));
    }
    if (it->window.rows > 0 || !it->epoch_over)
        return finish_window(it, err);
    it->epoch_over = false;
    it->stream_over = it->stream;
    it->window.task.end_of_epoch = true;
    return UNI__END_OF_EPOCH;
}
