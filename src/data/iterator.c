/*
 * iterator.c - batches out of units: cut and put together; where the consumer stands (the state), and how long it waited. The consumer's thread.
 */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "data/iterator.h"

void uni_dataset_iterator_free(uni_dataset_iterator *it)
{
    if (it == NULL ||
        uni__execute_is_anothers(it->execute)) /* the pages are a copy of the parent's */
        return;
    uni__execute_stop(it->execute);
    uni__equal_free(it->equal);
    uni__shared_free(it->shared);
    uni__layout_close(&it->layout);
    uni__unit_free(&it->unit);
    uni_table_unref(it->pending);
    uni_table_unref(it->viewed);
    uni__plan_close(&it->plan);
    uni__reader_free(it->reader);
    uni__pool_unref(it->pool);
    uni_dataset_unref(it->dataset);
    free(it);
}

/* Rows of the unit that this shard may take next, at most `wanted`. */
static int64_t rows_to_take(uni_dataset_iterator *it, int64_t wanted)
{
    uni__unit *unit = &it->unit;
    if (unit->rows == 0)
        return 0;
    if (it->stream) {
        int64_t position = uni__iterator_stream_position(it, it->stream_taken);
        unit->at = position - unit->base < unit->rows ? position - unit->base : unit->rows;
    }
    int64_t left = unit->rows - unit->at;
    return left < wanted ? left : wanted;
}

void uni__iterator_note_taken(uni_dataset_iterator *it, int64_t count)
{
    const uni__unit *unit = &it->unit;
    it->task = unit->task;
    it->started = true;
    if (it->stream) {
        it->stream_taken += count;
        const uni__plan_options *plan = &it->plan.options;
        it->used = it->stream_begin + it->stream_taken / plan->batch * plan->round +
                   (plan->num_shards == 1 ? it->stream_taken % plan->batch : 0);
    } else if (it->plan.options.rounds) {
        it->used = uni__plan_position_after(&it->plan, &unit->task, unit->at);
    } else {
        it->used = unit->at == unit->rows ? UNI__WHOLE_UNIT : unit->at;
    }
}

struct parts {
    uni_table *few[16], **tables;
    int count, capacity;
};

static int add_part(struct parts *parts, uni_table *table, uni_error *err)
{
    if (parts->count == parts->capacity) {
        int capacity = 4 * parts->capacity;
        uni_table **tables = malloc((size_t)capacity * sizeof(uni_table *));
        if (tables == NULL) {
            uni_table_unref(table);
            return uni_error_set(err, UNI_ENOMEM, "no memory for a batch");
        }
        memcpy(tables, parts->tables, (size_t)parts->count * sizeof(uni_table *));
        if (parts->tables != parts->few)
            free(parts->tables);
        parts->tables = tables;
        parts->capacity = capacity;
    }
    parts->tables[parts->count++] = table;
    return 0;
}

/* In rounds all shards get the same number of batches: one without a part in the last round gets a batch of no rows, so that whoever
 * meets in a collective at each batch is not left alone. */
static bool has_no_part(const uni_dataset_iterator *it, const struct parts *parts, int more)
{
    if (it->options.num_shards == 1 || !it->plan.options.rounds || parts->count > 0 ||
        it->options.drop_remainder)
        return false;
    if (!it->stream)
        return more == UNI__UNIT && it->unit.task.count == 0;
    return more == UNI__END_OF_EPOCH &&
           it->stream_rows > it->stream_begin +
                                 it->stream_taken / it->plan.options.batch * it->plan.options.round;
}

static int add_empty_part(uni_dataset_iterator *it, struct parts *parts, uni_error *err)
{
    const uni_table *schema = NULL;
    uni_table *empty = NULL;
    UNI_TRY(uni_dataset_schema(it->dataset, &schema, err));
    UNI_TRY(uni__table_empty(&empty, schema, err));
    UNI_TRY(add_part(parts, empty, err));
    if (!it->stream)
        uni__iterator_note_taken(it, 0);
    return 0;
}

/* Collects rows of a batch: UNI__UNIT when it has those that are wanted, UNI__END_OF_EPOCH or UNI__NO_MORE before. */
static int collect(uni_dataset_iterator *it, int64_t wanted, struct parts *parts, uni_error *err)
{
    for (;;) {
        int64_t count = rows_to_take(it, wanted);
        if (count > 0) {
            uni_table *part = NULL;
            UNI_TRY(uni__unit_take(&it->unit, it->reader, count, &part, err));
            UNI_TRY(add_part(parts, part, err));
            wanted -= count;
            uni__iterator_note_taken(it, count);
            if (wanted == 0)
                return UNI__UNIT;
        }
        int more = uni__iterator_unit(it, err);
        if (has_no_part(it, parts, more))
            UNI_TRY(add_empty_part(it, parts, err));
        if (more != UNI__UNIT)
            return more;
    }
}

int uni__iterator_end_epoch(uni_dataset_iterator *it, int why)
{
    int64_t end = it->plan.options.end_epoch;
    it->pending_end = -1;
    it->epoch_batches = 0;
    if (why == UNI__NO_MORE) {
        it->done = true;
        return 0;
    }
    it->task = it->unit.task;
    it->started = true;
    it->epoch = (uint64_t)it->unit.task.epoch + 1;
    it->done = end >= 0 && (int64_t)it->epoch >= end;
    return 0;
}

/* The rest of the epoch, unseen. */
static int pass_over(uni_dataset_iterator *it, uni_error *err)
{
    int more;
    while ((more = uni__iterator_unit(it, err)) == UNI__UNIT)
        continue;
    return more;
}

/* The epoch is through, with `parts` left: UNI__UNIT when they are still to be given; 0 when it is over for the caller, too. */
static int last_of_epoch(uni_dataset_iterator *it, int why, const struct parts *parts)
{
    if (parts->count == 0 || it->options.drop_remainder)
        return uni__iterator_end_epoch(it, why);
    it->used = it->stream ? it->stream_rows : it->used; /* the last round is taken, too */
    it->pending_end = why;
    return UNI__UNIT;
}

/* The next batch with `equal`, whose number of rows is known: UNI__UNIT, or 0 when all shards have had theirs. */
static int collect_equal(uni_dataset_iterator *it, struct parts *parts, uni_error *err)
{
    if (it->epoch_batches >= uni__equal_batches(it->equal)) {
        int more = pass_over(it, err);
        if (more < 0)
            return more;
        uni__equal_next_epoch(it->equal);
        return uni__iterator_end_epoch(it, more);
    }
    int64_t wanted = uni__equal_rows(it->equal, it->epoch_batches, it->equal_shard);
    if (wanted == 0) {
        UNI_TRY(add_empty_part(it, parts, err));
        return UNI__UNIT;
    }
    int status = collect(it, wanted, parts, err);
    if (status == UNI__END_OF_EPOCH || status == UNI__NO_MORE)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the dataset gives fewer rows than were counted: its files or "
                             "functions have changed");
    return status;
}

/* A batch is there. */
static int count_batch(uni_dataset_iterator *it, const uni_table *batch)
{
    it->batch_rows = uni_table_num_rows(batch);
    it->rows += it->batch_rows;
    it->bytes += (int64_t)uni_table_bytes(batch);
    it->epoch_batches++;
    if (it->batches++ == 0)
        it->first_batch_ns = uni__monotonic_ns();
    return 1;
}

/* The parts of a batch as one table. */
static int finish_batch(uni_dataset_iterator *it, const struct parts *parts, uni_table **out,
                        uni_error *err)
{
    UNI_TRY(uni__table_concat(out, it->reader, parts->tables, parts->count, err));
    return count_batch(it, *out);
}

int uni_dataset_iterator_next_in_epoch(uni_dataset_iterator *it, uni_table **out, uni_error *err)
{
    *out = NULL;
    if (it->failure.code != 0) {
        if (err != NULL)
            *err = it->failure;
        return it->failure.code;
    }
    if (it->shared != NULL) {
        int more = uni__shared_next(it->shared, out, err);
        return more > 0 ? count_batch(it, *out) : more;
    }
    if (it->pending_end >= 0)
        return uni__iterator_end_epoch(it, it->pending_end);
    if (it->done)
        return 0;
    struct parts parts = { .capacity = 16 };
    parts.tables = parts.few;
    int status = 0;
    if (it->equal != NULL) {
        status = collect_equal(it, &parts, &it->failure);
    } else {
        status = collect(it, it->options.batch_size, &parts, &it->failure);
        if (status == UNI__END_OF_EPOCH || status == UNI__NO_MORE)
            status = last_of_epoch(it, status, &parts);
    }
    if (status == UNI__UNIT)
        status = finish_batch(it, &parts, out, &it->failure);
    for (int i = 0; i < parts.count; i++)
        uni_table_unref(parts.tables[i]);
    if (parts.tables != parts.few)
        free(parts.tables);
    if (status < 0 && err != NULL)
        *err = it->failure;
    return status;
}

int uni_dataset_iterator_next(uni_dataset_iterator *it, uni_table **out, uni_error *err)
{
    /* Endless epochs of a shard without rows would never come to an end. */
    bool endless = it->options.epochs < 0;
    for (int empty = 0; !endless || empty < 3; empty += endless) {
        int more = uni_dataset_iterator_next_in_epoch(it, out, err);
        if (more != 0 || uni_dataset_iterator_done(it))
            return more;
    }
    it->done = true;
    return 0;
}

int uni__iterator_count(uni_dataset_iterator *it, int64_t *out, uni_error *err)
{
    int more = 0;
    while ((more = uni__iterator_unit(it, err)) == UNI__UNIT)
        *out += it->unit.rows;
    return more < 0 ? more : 0;
}

int uni__iterator_next_unit(uni_dataset_iterator *it, uni_table **out, uni_error *err)
{
    int more = UNI__UNIT;
    *out = NULL;
    do
        more = uni__iterator_unit(it, err);
    while (more == UNI__UNIT && it->unit.rows == 0);
    if (more != UNI__UNIT)
        return more < 0 ? more : 0;
    UNI_TRY(uni__unit_take(&it->unit, it->reader, it->unit.rows, out, err));
    return 1;
}

int uni_dataset_iterator_concat(uni_dataset_iterator *it, uni_table **out, uni_table *const *tables,
                                int count, uni_error *err)
{
    if (it->shared != NULL)
        return uni_dataset_iterator_concat(uni__shared_whole(it->shared), out, tables, count, err);
    return count == 1 ? uni__table_align(out, it->reader, tables[0], err)
                      : uni__table_concat(out, it->reader, tables, count, err);
}

bool uni_dataset_iterator_done(const uni_dataset_iterator *it)
{
    return it->shared != NULL ? uni__shared_done(it->shared) : it->done;
}

bool uni_dataset_iterator_extend(uni_dataset_iterator *it, uint64_t end_epoch)
{
    int64_t end = it->plan.options.end_epoch;
    if (it->shared != NULL)
        return uni__shared_extend(it->shared, end_epoch);
    if (it->done || it->failure.code != 0 || it->bad.limit > 0)
        return false;
    if (end < 0 || (uint64_t)end >= end_epoch)
        return true;
    if (it->equal != NULL)
        uni__equal_extend(it->equal, (int64_t)end_epoch);
    uni__execute_extend(it->execute, (int64_t)end_epoch);
    return true;
}

bool uni_dataset_iterator_rewind(uni_dataset_iterator *it, uint64_t epoch)
{
    if (it->shared != NULL || it->equal != NULL) /* go through their epochs in one direction */
        return false;
    if (!it->done || it->failure.code != 0 || it->bad.limit > 0 ||
        !uni__execute_rewind(it->execute, (int64_t)epoch, (int64_t)epoch + 1))
        return false;
    uni__unit_clear(&it->unit);
    it->task = (uni__task){ 0 };
    it->used = 0;
    it->started = it->done = it->epoch_over = false;
    it->stream_over = true;
    it->epoch = epoch;
    return true;
}

uint64_t uni_dataset_iterator_epoch(const uni_dataset_iterator *it)
{
    return it->shared != NULL ? uni__shared_epoch(it->shared) : it->epoch;
}

int uni_dataset_iterator_state(const uni_dataset_iterator *it, uni_value **out, uni_error *err)
{
    if (it->shared != NULL)
        return uni__shared_state(it->shared, out, err);
    if (it->equal != NULL && uni__equal_speaks_for_all(it->equal))
        return uni__equal_state(it->equal, it->epoch_batches, out, err);
    UNI_TRY(uni__plan_state(&it->plan, it->started ? &it->task : NULL, it->used, out, err));
    return uni__state_of_files(it->dataset, out, err);
}

void uni_dataset_iterator_place(const uni_dataset_iterator *it, int64_t *first,
                                int64_t *global_size)
{
    const uni__plan_options *plan = &it->plan.options;
    const uni__task *task = &it->task;
    *first = *global_size = 0;
    if (it->shared != NULL) {
        uni__shared_place(it->shared, first, global_size);
        return;
    }
    if (it->equal != NULL) {
        uni__equal_place(it->equal, it->epoch_batches - 1, it->equal_shard, first, global_size);
        return;
    }
    if (!plan->rounds || it->stream || !it->started || task->end_of_epoch)
        return;
    if (plan->num_shards == 1) {
        *global_size = it->batch_rows;
        return;
    }
    /* In the last round everybody has a part of what there is. */
    *global_size = task->unit_count < plan->round ? task->unit_count : plan->round;
    *first = uni__part(*global_size, plan->offset, plan->round);
}

/* The one that has the threads. */
static const uni_dataset_iterator *reading(const uni_dataset_iterator *it)
{
    return it->shared != NULL ? uni__shared_whole(it->shared) : it;
}

double uni_dataset_iterator_wait(const uni_dataset_iterator *it)
{
    return uni__execute_wait(reading(it)->execute);
}

static int64_t rows_left_out(const uni_dataset_iterator *it)
{
    if (it->shared != NULL)
        return uni__shared_left_out(it->shared);
    return it->equal != NULL ? uni__equal_left_out(it->equal) : 0;
}

int uni_dataset_iterator_stats(const uni_dataset_iterator *it, uni_value **out, uni_error *err)
{
    double first = it->first_batch_ns > 0 ? (double)(it->first_batch_ns - it->opened_ns) * 1e-9 : 0;
    const uni_dataset_iterator *threads = reading(it);
    uni_value *stats = uni_value_dict();
    *out = NULL;
    if (uni_dict_take(stats, "rows", uni_value_int(it->rows)) < 0 ||
        uni_dict_take(stats, "batches", uni_value_int(it->batches)) < 0 ||
        uni_dict_take(stats, "bytes", uni_value_int(it->bytes)) < 0 ||
        uni_dict_take(stats, "wait_s", uni_value_float(uni__execute_wait(threads->execute))) < 0 ||
        uni_dict_take(stats, "busy_s", uni_value_float(uni__execute_busy(threads->execute))) < 0 ||
        uni_dict_take(stats, "skipped", uni_value_int(atomic_load(&threads->bad.skipped))) < 0 ||
        uni_dict_take(stats, "peak_bytes", uni_value_int((int64_t)uni__pool_peak(threads->pool))) <
            0 ||
        uni_dict_take(stats, "left_out", uni_value_int(rows_left_out(it))) < 0 ||
        uni_dict_take(stats, "first_batch_s", uni_value_float(first)) < 0) {
        uni_value_free(stats);
        return uni_error_set(err, UNI_ENOMEM, "no memory for statistics");
    }
    *out = stats;
    return 0;
}
