/*
 * iterator.c - cuts windows into batches and joins their rows; tracks the consumer's position (the
 * state) and its waiting time. Runs on the consumer's thread.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "data/run/iterator.h"

#include "data/shared.h"

void uni_dataset_iterator_free(uni_dataset_iterator *it)
{
    /* In a forked child everything is a copy of the parent's. */
    if (it == NULL || uni__execute_is_anothers(it->execute))
        return;
    uni__execute_stop(it->execute);
    uni__batch_counts_free(it->counts);
    uni__common_free(it->common);
    uni__layout_close(&it->layout);
    uni__window_free(&it->window);
    uni_table_unref(it->pending);
    uni_table_unref(it->viewed);
    uni__plan_close(&it->plan);
    uni__reader_free(it->reader);
    uni__pool_unref(it->pool);
    uni_dataset_unref(it->dataset);
    free(it);
}

void uni__iterator_note_taken(uni_dataset_iterator *it)
{
    const uni__window *window = &it->window;
    it->task = window->task;
    it->started = true;
    if (it->stream)
        it->used = window->base + window->at;
    else if (it->plan.options.rounds)
        it->used = uni__plan_position_after(&it->plan, &window->task, window->at);
    else
        it->used = window->at == window->rows ? UNI__WHOLE_WINDOW : window->at;
}

struct parts {
    uni_table *few[16], **tables;
    int count, capacity;
};

static int add_part(struct parts *parts, uni_table *table, uni_error *err)
{
    if (parts->count == parts->capacity) {
        assert(parts->capacity > 0);
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

/* In rounds all shards get the same number of batches. A shard without a part in the last round
 * gets an empty batch, so that all ranks reach the collective of each batch. */
static bool has_no_part(const uni_dataset_iterator *it, const struct parts *parts, int more)
{
    return more == UNI__WINDOW && it->window.task.count == 0 && parts->count == 0 &&
           it->options.num_shards > 1 && it->plan.options.rounds && !it->options.drop_remainder;
}

static int add_empty_part(uni_dataset_iterator *it, struct parts *parts, uni_error *err)
{
    const uni_table *schema = NULL;
    uni_table *empty = NULL;
    UNI_TRY(uni_dataset_schema(&schema, it->dataset, err));
    UNI_TRY(uni__table_empty(&empty, schema, err));
    UNI_TRY(add_part(parts, empty, err));
    uni__iterator_note_taken(it);
    return 0;
}

/* Collects the rows of a batch. Returns UNI__WINDOW when it has enough, UNI__END_OF_EPOCH or
 * UNI__NO_MORE if the rows end first. */
static int collect(uni_dataset_iterator *it, int64_t wanted, struct parts *parts, uni_error *err)
{
    for (;;) {
        int64_t left = it->window.rows - it->window.at, count = left < wanted ? left : wanted;
        if (count > 0) {
            uni_table *part = NULL;
            UNI_TRY(uni__window_take(&it->window, it->reader, count, &part, err));
            UNI_TRY(add_part(parts, part, err));
            wanted -= count;
            uni__iterator_note_taken(it);
            if (wanted == 0)
                return UNI__WINDOW;
        }
        int more = uni__iterator_fill(it, err);
        if (has_no_part(it, parts, more))
            UNI_TRY(add_empty_part(it, parts, err));
        if (more != UNI__WINDOW)
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
    it->task = it->window.task;
    it->started = true;
    it->epoch = (uint64_t)it->window.task.epoch + 1;
    it->done = end >= 0 && (int64_t)it->epoch >= end;
    return 0;
}

/* Skips the rest of the epoch. */
static int pass_over(uni_dataset_iterator *it, uni_error *err)
{
    int more;
    while ((more = uni__iterator_fill(it, err)) == UNI__WINDOW)
        continue;
    return more;
}

/* Handles the end of an epoch with `parts` left over. Returns UNI__WINDOW if they form a batch, 0
 * if the epoch is over for the caller. */
static int last_of_epoch(uni_dataset_iterator *it, int why, const struct parts *parts)
{
    if (parts->count == 0 || it->options.drop_remainder)
        return uni__iterator_end_epoch(it, why);
    it->pending_end = why;
    return UNI__WINDOW;
}

/* Collects the next batch with `equal`, whose row count is known. Returns UNI__WINDOW, or 0 when
 * all shards have had theirs. */
static int collect_equal(uni_dataset_iterator *it, struct parts *parts, uni_error *err)
{
    if (it->epoch_batches >= it->counts->batches) {
        int more = pass_over(it, err);
        if (more < 0)
            return more;
        uni__batch_counts_next_epoch(it->counts);
        return uni__iterator_end_epoch(it, more);
    }
    int64_t wanted = uni__batch_counts_rows(it->counts, it->epoch_batches, it->counts_shard);
    if (wanted == 0) {
        UNI_TRY(add_empty_part(it, parts, err));
        return UNI__WINDOW;
    }
    int status = collect(it, wanted, parts, err);
    if (status == UNI__END_OF_EPOCH || status == UNI__NO_MORE)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the dataset gives fewer rows than were counted: its files or "
                             "functions have changed");
    return status;
}

int uni__iterator_count_batch(uni_dataset_iterator *it, const uni_table *table, int64_t rows)
{
    int64_t bytes = (int64_t)uni__table_bytes(table), all = uni_table_num_rows(table);
    it->batch_rows = rows;
    it->rows += rows;
    it->bytes += rows == all ? bytes : bytes * rows / all;
    it->epoch_batches++;
    if (it->batches++ == 0)
        it->first_batch_ns = uni__monotonic_ns();
    return 1;
}

/* Joins the parts of a batch into one table. */
static int finish_batch(uni_dataset_iterator *it, const struct parts *parts, uni_table **out,
                        uni_error *err)
{
    UNI_TRY(uni__table_concat(out, it->reader, parts->tables, parts->count, err));
    return uni__iterator_count_batch(it, *out, uni_table_num_rows(*out));
}

int uni_dataset_iterator_next_in_epoch(uni_table **out, uni_dataset_iterator *it, uni_error *err)
{
    *out = NULL;
    if (it->failure.code != 0) {
        if (err != NULL)
            *err = it->failure;
        return it->failure.code;
    }
    if (it->common != NULL) {
        int more = uni__common_next(it->common, out, err);
        return more > 0 ? uni__iterator_count_batch(it, *out, uni_table_num_rows(*out)) : more;
    }
    if (it->pending_end >= 0)
        return uni__iterator_end_epoch(it, it->pending_end);
    if (it->done)
        return 0;
    struct parts parts = { .capacity = 16 };
    parts.tables = parts.few;
    int status = 0;
    if (it->counts != NULL) {
        status = collect_equal(it, &parts, &it->failure);
    } else {
        status = collect(it, it->options.batch_size, &parts, &it->failure);
        if (status == UNI__END_OF_EPOCH || status == UNI__NO_MORE)
            status = last_of_epoch(it, status, &parts);
    }
    if (status == UNI__WINDOW)
        status = finish_batch(it, &parts, out, &it->failure);
    for (int i = 0; i < parts.count; i++)
        uni_table_unref(parts.tables[i]);
    if (parts.tables != parts.few)
        free(parts.tables);
    if (status < 0 && err != NULL)
        *err = it->failure;
    return status;
}

int uni_dataset_iterator_next(uni_table **out, uni_dataset_iterator *it, uni_error *err)
{
    /* Endless epochs of a shard without rows would never end. */
    bool endless = it->options.epochs < 0;
    for (int empty = 0; !endless || empty < 3; empty += endless) {
        int more = uni_dataset_iterator_next_in_epoch(out, it, err);
        if (more != 0 || uni_dataset_iterator_done(it))
            return more;
    }
    it->done = true;
    return 0;
}

int uni__iterator_count(uni_dataset_iterator *it, int64_t *out, uni_error *err)
{
    int more = 0;
    while ((more = uni__iterator_fill(it, err)) == UNI__WINDOW)
        *out += it->window.rows;
    return more < 0 ? more : 0;
}

int uni__iterator_next_window(uni_dataset_iterator *it, uni_table **out, uni_error *err)
{
    int more = UNI__WINDOW;
    *out = NULL;
    do
        more = uni__iterator_fill(it, err);
    while (more == UNI__WINDOW && it->window.rows == 0);
    if (more != UNI__WINDOW)
        return more < 0 ? more : 0;
    UNI_TRY(uni__window_take(&it->window, it->reader, it->window.rows, out, err));
    return 1;
}

int uni__dataset_iterator_concat(uni_dataset_iterator *it, uni_table **out,
                                 uni_table *const *tables, int count, uni_error *err)
{
    if (it->common != NULL)
        return uni__dataset_iterator_concat(it->common->whole, out, tables, count, err);
    return count == 1 ? uni__table_align(out, it->reader, tables[0], err)
                      : uni__table_concat(out, it->reader, tables, count, err);
}

bool uni_dataset_iterator_done(const uni_dataset_iterator *it)
{
    return it->common != NULL ? it->common->done : it->done;
}

bool uni__dataset_iterator_extend(uni_dataset_iterator *it, uint64_t end_epoch)
{
    int64_t end = it->plan.options.end_epoch;
    if (it->common != NULL)
        return !it->common->done && uni__dataset_iterator_extend(it->common->whole, end_epoch);
    if (it->done || it->failure.code != 0 || it->bad.limit > 0)
        return false;
    if (end < 0 || (uint64_t)end >= end_epoch)
        return true;
    if (it->counts != NULL)
        uni__batch_counts_extend(it->counts, (int64_t)end_epoch);
    uni__execute_extend(it->execute, (int64_t)end_epoch);
    return true;
}

bool uni__dataset_iterator_rewind(uni_dataset_iterator *it, uint64_t epoch)
{
    if (it->common != NULL || it->counts != NULL) /* these only move forward through their epochs */
        return false;
    if (!it->done || it->failure.code != 0 || it->bad.limit > 0 ||
        !uni__execute_rewind(it->execute, (int64_t)epoch, (int64_t)epoch + 1))
        return false;
    uni__window_clear(&it->window);
    it->task = (uni__task){ 0 };
    it->used = 0;
    it->started = it->done = it->epoch_over = false;
    it->stream_over = it->stream;
    it->epoch = epoch;
    return true;
}

uint64_t uni_dataset_iterator_epoch(const uni_dataset_iterator *it)
{
    return it->common != NULL ? it->common->epoch : it->epoch;
}

int uni_dataset_iterator_state(uni_value **out, const uni_dataset_iterator *it, uni_error *err)
{
    if (it->common != NULL)
        return uni__common_state(it->common, out, err);
    if (it->counts != NULL && !it->counts->files)
        return uni__batch_counts_state(it->counts, it->epoch_batches, out, err);
    UNI_TRY(uni__plan_state(&it->plan, it->started ? &it->task : NULL, it->used, out, err));
    return uni__state_of_files(it->dataset, out, err);
}

void uni__dataset_iterator_place(const uni_dataset_iterator *it, int64_t *first,
                                 int64_t *global_size)
{
    const uni__plan_options *plan = &it->plan.options;
    const uni__task *task = &it->task;
    *first = *global_size = 0;
    if (it->common != NULL) {
        *first = it->common->first;
        *global_size = it->common->rows;
        return;
    }
    if (it->counts != NULL) {
        uni__batch_counts_place(it->counts, it->epoch_batches - 1, it->counts_shard, first,
                                global_size);
        return;
    }
    if (!plan->rounds || it->stream || !it->started || task->end_of_epoch)
        return;
    if (plan->num_shards == 1) {
        *global_size = it->batch_rows;
        return;
    }
    /* In a partial last round every shard has a part. */
    *global_size = task->window_count < plan->round ? task->window_count : plan->round;
    *first = uni__part(*global_size, plan->offset, plan->round);
}

/* The iterator that owns the threads. */
static const uni_dataset_iterator *reading(const uni_dataset_iterator *it)
{
    return it->common != NULL ? it->common->whole : it;
}

double uni__dataset_iterator_wait(const uni_dataset_iterator *it)
{
    return uni__execute_wait(reading(it)->execute);
}

static int64_t rows_left_out(const uni_dataset_iterator *it)
{
    if (it->common != NULL)
        return it->common->left_out;
    return it->counts != NULL ? it->counts->left_out : 0;
}

int uni_dataset_iterator_stats(uni_value **out, const uni_dataset_iterator *it, uni_error *err)
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
