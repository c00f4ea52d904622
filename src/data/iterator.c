/*
 * iterator.c - batches out of what the threads made: units in their order, cut and put together to batches; where the consumer stands (the
 * state), and how long it waited. All on the consumer's thread.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/random.h"
#include "data/unit.h"

#define DEFAULT_BATCH 256
#define DEFAULT_BUDGET ((int64_t)256 << 20)
#define MAX_THREADS 16
#define CHUNK_BYTES ((int64_t)1 << 20) /* of a task over an indexed source */
#define WINDOW_BYTES ((int64_t)16 << 20) /* of a shuffle window over blocks or a stream */
#define MAX_WINDOW_BLOCKS 64

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
    int pending_end; /* the epoch's last batch was given, its end is told by the next call */
    uint64_t epoch;
    uni_error failure;
    int64_t rows, batches, bytes;
    uint64_t opened_ns, first_batch_ns;
};

/* ---- opening ---- */

static int default_threads(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < MAX_THREADS ? count : MAX_THREADS;
}

static int64_t batch_rows(const uni_dataset_iterator *it)
{
    return it->options.batch_size;
}

/* The threads shuffle the rows of each block, windows only merge them. Not where tables are cut at windows, nor before functions that want the rows in order. */
static bool merges(const uni_dataset_iterator *it)
{
    return it->windows && !it->stream && it->first_in_order == it->dataset->num_stages;
}

/* Decoded bytes of a block, estimated. */
static int64_t block_bytes(const uni__source *source)
{
    if (source->block_rows > 0 && source->row_bytes > 0)
        return source->block_rows * source->row_bytes;
    int64_t bytes = source->bytes > 0 && source->num_blocks > 0 ? source->bytes / source->num_blocks
                                                                : (int64_t)1 << 20;
    return bytes > 0 ? bytes : 1;
}

/* Blocks that are shuffled together. */
static int64_t window_blocks(const uni_dataset_iterator *it)
{
    const uni__order *order = &it->dataset->order;
    const uni__source *source = &it->dataset->root->source;
    int64_t window = WINDOW_BYTES / block_bytes(source);
    window = window > MAX_WINDOW_BLOCKS ? MAX_WINDOW_BLOCKS : window;
    if (order->window_blocks > 0)
        window = order->window_blocks;
    else if (order->buffer > 0)
        window = source->block_rows > 0
                     ? (order->buffer + source->block_rows - 1) / source->block_rows
                     : window;
    /* This window, the next one in the making, and room to breathe. */
    int64_t most = it->options.budget / 4 / block_bytes(source);
    window = window > most ? most : window;
    return window > 0 ? window : 1;
}

static int64_t stream_window(const uni_dataset_iterator *it)
{
    const uni__order *order = &it->dataset->order;
    int64_t row_bytes = it->dataset->root->source.row_bytes;
    row_bytes = row_bytes > 0 ? row_bytes : 256;
    if (!order->shuffle)
        return 1;
    int64_t most = it->options.budget / 4 / row_bytes;
    int64_t rows = order->buffer > 0 ? order->buffer : WINDOW_BYTES / row_bytes;
    rows = rows > most ? most : rows;
    return rows > 0 ? rows : 1;
}

static void plan_options(const uni_dataset_iterator *it, uni__plan_options *out)
{
    const uni__source *source = &it->dataset->root->source;
    const uni_data_options *o = &it->options;
    int64_t row_bytes = source->row_bytes > 0 ? source->row_bytes : 256;
    int64_t chunk = CHUNK_BYTES / row_bytes > 0 ? CHUNK_BYTES / row_bytes : 1;
    *out = (uni__plan_options){ .shard = o->shard,
                                .num_shards = o->num_shards,
                                .batch = o->batch_size,
                                .drop_remainder = o->drop_remainder,
                                .first_epoch = (int64_t)o->first_epoch,
                                .end_epoch =
                                    o->epochs < 0 ? -1 : (int64_t)o->first_epoch + o->epochs };
    switch (source->kind) {
    case UNI__SOURCE_INDEXED:
        out->elements = source->num_rows;
        out->rounds = uni__dataset_one_to_one(it->dataset);
        /* Whole batches in a chunk, so that every batch is a view of it. */
        out->unit =
            out->rounds && chunk > o->batch_size ? chunk / o->batch_size * o->batch_size : chunk;
        out->unit = out->rounds && out->unit < o->batch_size ? o->batch_size : out->unit;
        out->task = out->unit;
        break;
    case UNI__SOURCE_SPLIT:
        out->elements = source->num_blocks;
        out->unit = it->windows ? window_blocks(it) : 1;
        out->task = 1;
        out->ramp = it->dataset->order.window_blocks == 0;
        break;
    case UNI__SOURCE_STREAM:
        out->elements = INT64_MAX;
        out->rounds = true;
        break;
    }
}

/* Results that may wait: enough for all threads, for the next window, or as many batches as asked for. */
static int64_t results_ahead(const uni_dataset_iterator *it)
{
    int64_t ahead = 2 * it->options.threads + 2;
    if (it->windows && !it->stream)
        ahead += it->plan.options.unit;
    if (it->options.prefetch > 0) {
        int64_t unit = it->plan.options.rounds && !it->stream
                           ? it->plan.options.unit
                           : it->dataset->root->source.block_rows;
        int64_t wanted =
            unit > 0 ? it->options.prefetch * batch_rows(it) / unit + 1 : it->options.prefetch;
        ahead = it->windows ? ahead : wanted;
    }
    return ahead < 4096 ? ahead : 4096;
}

static int check_options(const uni_data_options *o, uni_error *err)
{
    if (o->batch_size < 0 || o->threads < 0 || o->budget < 0 || o->epochs < -1)
        return uni_error_set(err, UNI_EINVAL,
                             "batch_size, threads and budget must not be negative, epochs not "
                             "below -1 (endless)");
    int shards = o->num_shards > 0 ? o->num_shards : 1;
    if (o->shard < 0 || o->shard >= shards)
        return uni_error_set(err, UNI_EINVAL, "there is no shard %d of %d; they count from 0",
                             o->shard, shards);
    return 0;
}

static void fill_defaults(uni_data_options *o, const uni__order *order)
{
    if (o->batch_size == 0)
        o->batch_size = order->batch_size > 0 ? order->batch_size : DEFAULT_BATCH;
    o->drop_remainder = o->drop_remainder || order->drop_remainder;
    o->num_shards = o->num_shards > 0 ? o->num_shards : 1;
    o->budget = o->budget > 0 ? o->budget : DEFAULT_BUDGET;
    o->threads = o->threads > 0 ? o->threads : default_threads();
    if (o->prefetch == 0)
        o->prefetch = order->prefetch != 0 ? order->prefetch : UNI_AUTO;
    if (o->epochs == 0 && o->state != NULL)
        o->epochs = uni_dict_get_int(o->state, "end", 0) - (int64_t)o->first_epoch;
    if (o->epochs == 0 || (o->epochs < -1 && o->state != NULL))
        o->epochs = order->repeats != 0 ? order->repeats : 1;
}

static int open_execution(uni_dataset_iterator *it, uni_error *err)
{
    const uni_bad_data *bad = &it->dataset->root->bad;
    uni__plan_options plan;
    it->bad.skip = bad->skip;
    it->bad.limit = bad->max_skipped;
    atomic_store(&it->bad.skipped, it->dataset->root->skipped);
    UNI_TRY(uni__pool_new(&it->pool, (size_t)it->options.budget, err));
    UNI_TRY(uni__reader_of(&it->reader, it->pool, &it->bad, err));
    plan_options(it, &plan);
    UNI_TRY(uni__plan_open(&it->plan, &plan, it->options.state, err));
    it->epoch = it->plan.num_pieces > 0 ? (uint64_t)it->plan.pieces[0].epoch
                                        : (uint64_t)it->plan.start_epoch;
    if (plan.end_epoch >= 0 && (int64_t)it->epoch >= plan.end_epoch && it->plan.num_pieces == 0)
        it->done = true;
    uni__execute_options execute = { .dataset = it->dataset,
                                     .plan = &it->plan,
                                     .pool = it->pool,
                                     .bad = &it->bad,
                                     .threads = it->options.threads,
                                     .ahead = results_ahead(it),
                                     .budget = (size_t)it->options.budget,
                                     .num_stages = it->first_in_order,
                                     .shuffle_blocks = merges(it),
                                     .window_rows = it->window_rows };
    return uni__execute_start(&it->execute, &execute, err);
}

int uni_dataset_iterate(uni_dataset_iterator **out, uni_dataset *dataset,
                        const uni_data_options *options, uni_error *err)
{
    *out = NULL;
    uni_data_options o = options != NULL ? *options : (uni_data_options){ 0 };
    if (dataset == NULL)
        return uni_error_set(err, UNI_EINVAL, "there is no dataset to iterate");
    UNI_TRY(check_options(&o, err));
    uni_dataset_iterator *it = calloc(1, sizeof *it);
    if (it == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for an iterator");
    it->opened_ns = uni__monotonic_ns();
    it->dataset = uni_dataset_ref(dataset);
    fill_defaults(&o, &dataset->order);
    it->options = o;
    uni__source_kind kind = dataset->root->source.kind;
    it->stream = kind == UNI__SOURCE_STREAM;
    it->windows = dataset->order.shuffle && kind != UNI__SOURCE_INDEXED;
    it->window_rows = it->stream ? stream_window(it) : 1;
    it->unit.by_batch = it->stream && o.num_shards > 1;
    it->stream_over = true;
    it->pending_end = -1;
    while (it->first_in_order < dataset->num_stages &&
           !dataset->stages[it->first_in_order]->in_order)
        it->first_in_order++;
    int status = open_execution(it, err);
    it->options.state = NULL; /* the caller's; it was read */
    if (status < 0) {
        uni_dataset_iterator_free(it);
        return status;
    }
    *out = it;
    return 0;
}

void uni_dataset_iterator_free(uni_dataset_iterator *it)
{
    if (it == NULL)
        return;
    uni__execute_stop(it->execute);
    uni__unit_free(&it->unit);
    uni_table_unref(it->pending);
    uni__plan_close(&it->plan);
    uni__reader_free(it->reader);
    uni__pool_unref(it->pool);
    uni_dataset_unref(it->dataset);
    free(it);
}

/* ---- units ---- */

enum { NO_MORE = 0, UNIT = 1, END_OF_EPOCH = 2 };

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
    return uni__unit_shuffle(&it->unit, it->pool, merges(it),
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
            return END_OF_EPOCH;
        UNI_TRY(uni__unit_add(&it->unit, result.table, err));
        if (result.task.last_of_unit) {
            UNI_TRY(order_unit(it, result.task.unit_begin, err));
            it->unit.at = result.task.skip < it->unit.rows ? result.task.skip : it->unit.rows;
            return UNIT;
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
                return END_OF_EPOCH;
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
    return UNIT;
}

/* Where this shard's next row lies in the stream. */
static int64_t stream_position(const uni_dataset_iterator *it, int64_t taken)
{
    int64_t batch = batch_rows(it);
    return it->stream_begin + taken / batch * batch * it->options.num_shards +
           it->options.shard * batch + taken % batch;
}

/* ---- batches ---- */

/* Rows of the unit that this shard may take next, at most `wanted`. */
static int64_t rows_to_take(uni_dataset_iterator *it, int64_t wanted)
{
    uni__unit *unit = &it->unit;
    if (unit->rows == 0)
        return 0;
    if (it->stream) {
        int64_t position = stream_position(it, it->stream_taken);
        unit->at = position - unit->base < unit->rows ? position - unit->base : unit->rows;
    }
    int64_t left = unit->rows - unit->at;
    return left < wanted ? left : wanted;
}

static void note_taken(uni_dataset_iterator *it, int64_t count)
{
    const uni__unit *unit = &it->unit;
    it->task = unit->task;
    it->started = true;
    if (it->stream) {
        it->stream_taken += count;
        it->used = it->stream_begin +
                   it->stream_taken / batch_rows(it) * batch_rows(it) * it->options.num_shards +
                   (it->options.num_shards == 1 ? it->stream_taken % batch_rows(it) : 0);
    } else if (it->plan.options.rounds) {
        it->used = uni__plan_position_after(&it->plan, &unit->task, unit->at);
    } else {
        it->used = unit->at == unit->rows ? UNI__WHOLE_UNIT : unit->at;
    }
}

static int next_unit(uni_dataset_iterator *it, uni_error *err)
{
    if (!it->stream)
        return fill_unit(it, err);
    if (it->epoch_over) {
        it->epoch_over = false;
        it->stream_over = true;
        uni__unit_clear(&it->unit);
        it->unit.task.end_of_epoch = true;
        return END_OF_EPOCH;
    }
    return fill_window(it, err);
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
        return more == UNIT && it->unit.task.count == 0;
    return more == END_OF_EPOCH &&
           it->stream_rows > it->stream_begin + it->stream_taken * it->options.num_shards;
}

static int add_empty_part(uni_dataset_iterator *it, struct parts *parts, uni_error *err)
{
    const uni_table *schema = NULL;
    uni_table *empty = NULL;
    UNI_TRY(uni_dataset_schema(it->dataset, &schema, err));
    UNI_TRY(uni__table_empty(&empty, schema, err));
    UNI_TRY(add_part(parts, empty, err));
    if (!it->stream)
        note_taken(it, 0);
    return 0;
}

/* Collects rows of a batch: UNIT when it is full, END_OF_EPOCH or NO_MORE before. */
static int collect(uni_dataset_iterator *it, struct parts *parts, uni_error *err)
{
    int64_t wanted = batch_rows(it);
    for (;;) {
        int64_t count = rows_to_take(it, wanted);
        if (count > 0) {
            uni_table *part = NULL;
            UNI_TRY(uni__unit_take(&it->unit, it->reader, count, &part, err));
            UNI_TRY(add_part(parts, part, err));
            wanted -= count;
            note_taken(it, count);
            if (wanted == 0)
                return UNIT;
        }
        int more = next_unit(it, err);
        if (has_no_part(it, parts, more))
            UNI_TRY(add_empty_part(it, parts, err));
        if (more != UNIT)
            return more;
    }
}

/* Always returns 0, what next says at the end of an epoch. */
static int end_epoch(uni_dataset_iterator *it, int why)
{
    int64_t end = it->plan.options.end_epoch;
    it->pending_end = -1;
    if (why == NO_MORE) {
        it->done = true;
        return 0;
    }
    it->task = it->unit.task;
    it->started = true;
    it->epoch = (uint64_t)it->unit.task.epoch + 1;
    it->done = end >= 0 && (int64_t)it->epoch >= end;
    return 0;
}

/* The parts of a batch as one table, counted. */
static int finish_batch(uni_dataset_iterator *it, const struct parts *parts, uni_table **out,
                        uni_error *err)
{
    UNI_TRY(uni__table_concat(out, it->reader, parts->tables, parts->count, err));
    it->rows += uni_table_num_rows(*out);
    it->bytes += (int64_t)uni_table_bytes(*out);
    if (it->batches++ == 0)
        it->first_batch_ns = uni__monotonic_ns();
    return 1;
}

int uni_dataset_iterator_next_in_epoch(uni_dataset_iterator *it, uni_table **out, uni_error *err)
{
    *out = NULL;
    if (it->failure.code != 0) {
        if (err != NULL)
            *err = it->failure;
        return it->failure.code;
    }
    if (it->pending_end >= 0)
        return end_epoch(it, it->pending_end);
    if (it->done)
        return 0;
    struct parts parts = { .capacity = 16 };
    parts.tables = parts.few;
    int status = collect(it, &parts, &it->failure);
    if (status == END_OF_EPOCH || status == NO_MORE) {
        bool last_batch = parts.count > 0 && !it->options.drop_remainder;
        if (last_batch) {
            it->pending_end = status;
            it->used = it->stream ? it->stream_rows : it->used; /* the last round is taken, too */
        } else {
            (void)end_epoch(it, status);
        }
        status = last_batch ? UNIT : 0;
    }
    if (status == UNIT)
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
    bool endless = it->plan.options.end_epoch < 0;
    for (int empty = 0; !endless || empty < 3; empty += endless) {
        int more = uni_dataset_iterator_next_in_epoch(it, out, err);
        if (more != 0 || it->done)
            return more;
    }
    it->done = true;
    return 0;
}

bool uni_dataset_iterator_done(const uni_dataset_iterator *it)
{
    return it->done;
}

uint64_t uni_dataset_iterator_epoch(const uni_dataset_iterator *it)
{
    return it->epoch;
}

int uni_dataset_iterator_state(const uni_dataset_iterator *it, uni_value **out, uni_error *err)
{
    return uni__plan_state(&it->plan, it->started ? &it->task : NULL, it->used, out, err);
}

double uni_dataset_iterator_wait(const uni_dataset_iterator *it)
{
    return uni__execute_wait(it->execute);
}

int uni_dataset_iterator_stats(const uni_dataset_iterator *it, uni_value **out, uni_error *err)
{
    double first = it->first_batch_ns > 0 ? (double)(it->first_batch_ns - it->opened_ns) * 1e-9 : 0;
    uni_value *stats = uni_value_dict();
    *out = NULL;
    if (uni_dict_take(stats, "rows", uni_value_int(it->rows)) < 0 ||
        uni_dict_take(stats, "batches", uni_value_int(it->batches)) < 0 ||
        uni_dict_take(stats, "bytes", uni_value_int(it->bytes)) < 0 ||
        uni_dict_take(stats, "wait_s", uni_value_float(uni__execute_wait(it->execute))) < 0 ||
        uni_dict_take(stats, "busy_s", uni_value_float(uni__execute_busy(it->execute))) < 0 ||
        uni_dict_take(stats, "skipped", uni_value_int(atomic_load(&it->bad.skipped))) < 0 ||
        uni_dict_take(stats, "peak_bytes", uni_value_int((int64_t)uni__pool_peak(it->pool))) < 0 ||
        uni_dict_take(stats, "first_batch_s", uni_value_float(first)) < 0) {
        uni_value_free(stats);
        return uni_error_set(err, UNI_ENOMEM, "no memory for statistics");
    }
    *out = stats;
    return 0;
}
