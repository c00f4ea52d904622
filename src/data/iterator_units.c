/*
 * iterator_units.c - the next unit of an iterator: the results of the threads in their order, put together until a unit is whole; for streams cut at the
 * windows. The consumer's thread.
 */
#include "base/random.h"
#include "data/iterator.h"

/* The next result, with the stages that run here applied. */
static int next_result(uni_dataset_iterator *it, uni__result *out, uni_error *err)
{
    int more = uni__execute_next(it->execute, out, err);
    bool nothing = more <= 0 || out->table == NULL || (!it->stream && out->task.count == 0);
    if (nothing || it->first_in_order == it->dataset->num_stages)
        return more;
    uni_table *table = NULL;
    int status = uni__apply_stages(it->dataset, it->first_in_order, it->dataset->num_stages,
                                   it->reader, out->table, &table, err);
    uni_table_unref(out->table);
    out->table = table;
    return status < 0 ? status : 1;
}

/* Rows of a unit in their keyed order. */
static int order_unit(uni_dataset_iterator *it, int64_t number, uni_error *err)
{
    if (!it->windows)
        return 0;
    uint64_t key = uni__order_key(it->dataset, it->unit.task.epoch, 1);
    return uni__unit_shuffle(&it->unit, it->pool, uni__iterator_merges(it),
                             uni__random_u64(key, 0, (uint64_t)number), err);
}

static int fill_unit(uni_dataset_iterator *it, uni_error *err)
{
    uni__result result;
    uni__unit_clear(&it->unit);
    for (;;) {
        int more = next_result(it, &result, err);
        if (more <= 0)
            return more;
        it->unit.task = result.task;
        if (result.task.end_of_epoch)
            return UNI__END_OF_EPOCH;
        UNI_TRY(uni__unit_add(&it->unit, result.table, err));
        if (result.task.last_of_unit) {
            UNI_TRY(order_unit(it, result.task.unit_begin, err));
            if (result.task.stop > 0 && result.task.stop < it->unit.rows)
                it->unit.rows = result.task.stop;
            it->unit.at = result.task.skip < it->unit.rows ? result.task.skip : it->unit.rows;
            return UNI__UNIT;
        }
    }
}

/* ---- streams ---- */

/* Puts a table into the window; what is behind the window's end waits. */
static int add_to_window(uni_dataset_iterator *it, uni_table *table, uni_error *err)
{
    int64_t room = it->windows ? it->window_rows - it->unit.rows : INT64_MAX;
    int64_t rows = uni_table_num_rows(table);
    if (rows <= room)
        return uni__unit_add(&it->unit, table, err);
    uni_table *part = NULL;
    int status = uni_table_slice(&part, table, 0, room, err);
    if (status == 0)
        status = uni__unit_add(&it->unit, part, err);
    if (status == 0)
        status = uni_table_slice(&it->pending, table, room, rows, err);
    uni_table_unref(table);
    return status;
}

/* The first table after an opening: where it begins, and where the shard goes on. */
static int begin_stream(uni_dataset_iterator *it, uni__result *result, uni_error *err)
{
    it->stream_over = false;
    it->stream_begin = result->task.begin;
    it->stream_taken = 0;
    it->stream_rows = 0;
    if (result->base < 0)
        return 0;
    /* The executor left out whole tables below the window; cut the first one to where the window begins. */
    int64_t first = it->stream_begin / it->window_rows * it->window_rows;
    it->stream_rows = first > result->base ? first : result->base;
    if (first <= result->base)
        return 0;
    uni_table *part = NULL;
    UNI_TRY(uni_table_slice(&part, result->table, first - result->base,
                            uni_table_num_rows(result->table), err));
    uni_table_unref(result->table);
    result->table = part;
    return 0;
}

static int fill_window(uni_dataset_iterator *it, uni_error *err)
{
    uni__result result;
    uni__unit_clear(&it->unit);
    if (it->pending != NULL) {
        uni_table *pending = it->pending;
        it->pending = NULL;
        UNI_TRY(add_to_window(it, pending, err));
    }
    while (it->unit.rows == 0 || (it->windows && it->unit.rows < it->window_rows)) {
        int more = next_result(it, &result, err);
        if (more <= 0)
            return more;
        it->unit.task = result.task;
        if (result.task.end_of_epoch) {
            if (it->unit.rows == 0) {
                it->stream_over = true;
                return UNI__END_OF_EPOCH;
            }
            it->epoch_over = true; /* this last window first */
            break;
        }
        if (it->stream_over) {
            int status = begin_stream(it, &result, err);
            if (status < 0) {
                uni_table_unref(result.table);
                return status;
            }
        }
        UNI_TRY(add_to_window(it, result.table, err));
    }
    it->unit.base = it->stream_rows;
    it->stream_rows += it->unit.rows;
    it->unit.task.end_of_epoch = false;
    it->unit.task.piece_end = INT64_MAX;
    UNI_TRY(order_unit(it, it->unit.base, err));
    return UNI__UNIT;
}

int64_t uni__iterator_stream_position(const uni_dataset_iterator *it, int64_t taken)
{
    const uni__plan_options *plan = &it->plan.options;
    return it->stream_begin + taken / plan->batch * plan->round + plan->offset +
           taken % plan->batch;
}

int uni__iterator_unit(uni_dataset_iterator *it, uni_error *err)
{
    if (!it->stream)
        return fill_unit(it, err);
    if (it->epoch_over) {
        it->epoch_over = false;
        it->stream_over = true;
        uni__unit_clear(&it->unit);
        it->unit.task.end_of_epoch = true;
        return UNI__END_OF_EPOCH;
    }
    return fill_window(it, err);
}
