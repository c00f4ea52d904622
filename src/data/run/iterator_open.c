/*
 * iterator_open.c - opens an iterator: fills in defaults, sizes chunks, windows and the prefetch to
 * fit the budget, and starts the threads.
 */
#include <sched.h>
#include <stdlib.h>
#include "base/clock.h"
#include "data/run/iterator.h"
#include "base/options.h"

#define DEFAULT_BATCH 256
/* Limit of a global batch: larger values mean all rows, and products still fit an int64. */
#define MOST_ROWS (INT64_C(1) << 40)
#define MAX_THREADS 16
#define CHUNK_BYTES ((int64_t)1 << 20) /* size of a task over an indexed source */
#define FIRST_ROWS 512

static int default_threads(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < MAX_THREADS ? count : MAX_THREADS;
}

bool uni__iterator_merges(const uni_dataset_iterator *it)
{
    return it->windows && !it->stream && it->first_in_order == it->dataset->num_stages;
}

static int64_t row_bytes(const uni__source *source)
{
    return source->row_bytes > 0 ? source->row_bytes : 256;
}

static int64_t stream_window(const uni_dataset_iterator *it)
{
    const uni__order *order = &it->dataset->order;
    int64_t bytes = row_bytes(&it->dataset->root->source);
    if (!order->shuffle)
        return 1;
    int64_t most = it->options.budget / 4 / bytes;
    int64_t rows = order->buffer > 0 ? order->buffer : UNI__WINDOW_BYTES / bytes;
    rows = rows > most ? most : rows;
    return rows > 0 ? rows : 1;
}

/* Rows that a function wants at once; 0: no preference. */
static int64_t rows_a_call(const uni_dataset *dataset)
{
    int64_t most = 0;
    for (int i = 0; i < dataset->num_stages; i++)
        most = dataset->stages[i]->batch_size > most ? dataset->stages[i]->batch_size : most;
    return most;
}

static void plan_options(const uni_dataset_iterator *it, uni__plan_options *out)
{
    const uni__source *source = &it->dataset->root->source;
    const uni_data_options *o = &it->options;
    int64_t chunk = CHUNK_BYTES / row_bytes(source) > 0 ? CHUNK_BYTES / row_bytes(source) : 1;
    *out = (uni__plan_options){ .shard = o->shard,
                                .num_shards = o->num_shards,
                                .batch = o->batch_size,
                                .round = o->num_shards > 1 ? o->global_batch_size : 0,
                                .offset = uni__share(o->global_batch_size, o->shard, o->num_shards),
                                .drop_remainder = o->drop_remainder,
                                .first_epoch = (int64_t)o->first_epoch,
                                .end_epoch =
                                    o->epochs < 0 ? -1 : (int64_t)o->first_epoch + o->epochs };
    switch (source->kind) {
    case UNI__SOURCE_INDEXED:
        out->elements = source->num_rows;
        out->rounds = uni__dataset_one_to_one(it->dataset);
        /* Whole batches per chunk, so that every batch is a view of it. */
        out->window =
            out->rounds && chunk > o->batch_size ? chunk / o->batch_size * o->batch_size : chunk;
        out->window = out->rounds && out->window < o->batch_size ? o->batch_size : out->window;
        /* Functions may change the row count: do not read too much before the first batch. */
        if (!out->rounds && out->window > FIRST_ROWS)
            out->window = FIRST_ROWS;
        out->least = rows_a_call(it->dataset);
        if (out->least > 0 && out->window % out->least != 0)
            out->window += out->least - out->window % out->least;
        if (out->rounds && out->window % o->batch_size != 0)
            out->window += o->batch_size - out->window % o->batch_size;
        out->task = out->window;
        out->ramp = out->rounds;
        /* The size of a function's results is known only after it has made some. */
        out->first = !out->rounds ? (out->least > 0 ? out->least : 1) : 0;
        out->any_window = true;
        break;
    case UNI__SOURCE_SPLIT:
        out->elements = source->num_blocks;
        out->window = uni__window_blocks(it->dataset, it->options.budget);
        out->task = 1;
        out->ramp = it->dataset->order.window_blocks == 0;
        break;
    case UNI__SOURCE_STREAM:
        out->elements = INT64_MAX;
        out->rounds = true;
        break;
    }
}

/* How many small results to keep ready if each costs less than waking a thread: enough that threads
 * are rarely woken, but no more than fits the cache. */
static int64_t quick_results(const uni_dataset_iterator *it)
{
    enum { MOST = 64, WARM_BYTES = 4 << 20 };
    const uni__plan_options *plan = &it->plan.options;
    int64_t rows = plan->window < plan->elements ? plan->window : plan->elements;
    int64_t bytes = (rows > 0 ? rows : 1) * row_bytes(&it->dataset->root->source);
    int64_t results = 2 * WARM_BYTES / bytes; /* every second result is the end of an epoch */
    return results < MOST ? results : MOST;
}

/* How many results may wait: enough for all threads, for the next window, or the requested
 * prefetch. */
static int64_t results_ahead(const uni_dataset_iterator *it)
{
    enum { MOST_AHEAD = 4096 };
    const uni__source *source = &it->dataset->root->source;
    int64_t ahead = 2 * it->options.threads + 2;
    if (uni__dataset_is_quick(it->dataset) && quick_results(it) > ahead)
        ahead = quick_results(it);
    if (it->windows && !it->stream)
        ahead += it->plan.options.window;
    if (it->options.prefetch > 0) {
        int64_t window =
            it->plan.options.rounds && !it->stream ? it->plan.options.window : source->block_rows;
        double rows = (double)it->options.prefetch * (double)it->options.batch_size;
        double wanted = window > 0 ? rows / (double)window + 1 : (double)it->options.prefetch;
        if (!it->windows)
            ahead = wanted < MOST_AHEAD ? (int64_t)wanted : MOST_AHEAD;
    }
    return ahead < MOST_AHEAD ? ahead : MOST_AHEAD;
}

static int check_options(const uni_data_options *o, const uni_dataset *dataset, uni_error *err)
{
    if (o->batch_size < 0 || o->threads < 0 || o->budget < 0 || o->num_shards < 0 ||
        o->epochs < -1 || o->prefetch < UNI_AUTO)
        return uni_error_set(err, UNI_EINVAL,
                             "batch_size, threads, budget and num_shards must not be negative, "
                             "epochs not below -1 (endless), prefetch not below UNI_AUTO");
    int shards = o->num_shards > 0 ? o->num_shards : 1;
    int parts = dataset->num_shards > 0 ? dataset->num_shards : shards;
    if (o->global_batch_size < 0 || (o->global_batch_size > 0 && o->global_batch_size < parts))
        return uni_error_set(err, UNI_EINVAL,
                             "a global batch of %lld rows for %d shards; each needs at least one",
                             (long long)o->global_batch_size, parts);
    if (o->shard < 0 || o->shard >= shards)
        return uni_error_set(err, UNI_EINVAL, "there is no shard %d of %d; they count from 0",
                             o->shard, shards);
    return 0;
}

static void fill_defaults(uni_data_options *o, const uni_dataset *dataset)
{
    const uni__order *order = &dataset->order;
    bool files = dataset->num_shards > 0; /* already its own part */
    o->num_shards = o->num_shards > 0 ? o->num_shards : 1;
    int shard = files ? dataset->shard : o->shard;
    int num_shards = files ? dataset->num_shards : o->num_shards;
    if (o->global_batch_size > MOST_ROWS)
        o->global_batch_size = MOST_ROWS;
    if (o->global_batch_size > 0)
        o->batch_size = uni__share(o->global_batch_size, shard + 1, num_shards) -
                        uni__share(o->global_batch_size, shard, num_shards);
    if (files) {
        o->shard = 0;
        o->num_shards = 1;
    }
    if (o->batch_size == 0)
        o->batch_size = order->batch_size > 0 ? order->batch_size : DEFAULT_BATCH;
    if (o->batch_size > MOST_ROWS / o->num_shards)
        o->batch_size = MOST_ROWS / o->num_shards;
    o->drop_remainder = o->drop_remainder || order->drop_remainder;
    o->budget = o->budget > 0 ? o->budget : UNI__DEFAULT_BUDGET;
    o->threads = o->threads > 0 ? o->threads : default_threads();
    if (o->prefetch == 0)
        o->prefetch = order->prefetch != 0 ? order->prefetch : UNI_AUTO;
    if (o->epochs == 0 && o->state != NULL)
        o->epochs = uni_dict_get_int(o->state, "end", 0) - (int64_t)o->first_epoch;
    if (o->epochs == 0 || (o->epochs < -1 && o->state != NULL))
        o->epochs = order->repeats != 0 ? order->repeats : 1;
}

/* Equal batch counts on all shards; cuts the plan by rows if the blocks were counted. */
static int open_equal(uni_dataset_iterator *it, uni__plan_options *plan, const uni_value *state,
                      uni_error *err)
{
    const uni_data_options *o = &it->options;
    bool files = it->dataset->num_shards > 1;
    const int64_t *block_rows = NULL;
    if (!o->equal || (!files && (plan->num_shards == 1 || (plan->rounds && !o->no_empty))))
        return 0;
    if (!files && !plan->rounds) {
        UNI_TRY(uni__rows_of_blocks(it->dataset, o->block_rows, &block_rows, err));
        UNI_TRY(uni__layout_open(&it->layout, it->dataset, block_rows, err));
        plan->layout = &it->layout;
    }
    it->counts_shard = files ? it->dataset->shard : plan->shard;
    return uni__batch_counts_open(&it->counts, it->dataset, plan, o->global_batch_size, o->no_empty,
                                  state, err);
}

static int open_execution(uni_dataset_iterator *it, uni_error *err)
{
    const uni_bad_data *bad = &it->dataset->root->bad;
    const uni_value *state = NULL;
    uni__plan_options plan;
    it->bad.skip = bad->skip;
    it->bad.limit = bad->max_skipped;
    atomic_store(&it->bad.skipped, it->dataset->root->skipped);
    UNI_TRY(uni__pool_new(&it->pool, (size_t)it->options.budget, err));
    UNI_TRY(uni__reader_of(&it->reader, it->pool, &it->bad, err));
    plan_options(it, &plan);
    UNI_TRY(uni__part_of_state(it->dataset, it->options.state, &state, err));
    UNI_TRY(open_equal(it, &plan, state, err));
    UNI_TRY(uni__plan_open(&it->plan, &plan, state, err));
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
                                     .shuffle_blocks = uni__iterator_merges(it),
                                     .window_rows = it->window_rows,
                                     .quick = uni__dataset_is_quick(it->dataset),
                                     .alone = uni__dataset_is_views(it->dataset),
                                     .reader = it->reader };
    return uni__execute_start(&it->execute, &execute, err);
}

static int finish_open(uni_dataset_iterator *it, int status, uni_dataset_iterator **out)
{
    it->options.state = NULL; /* borrowed from the caller, and no longer needed */
    it->options.block_rows = NULL;
    if (status < 0) {
        uni_dataset_iterator_free(it);
        return status;
    }
    *out = it;
    return 0;
}

int uni_dataset_iterate(uni_dataset_iterator **out, uni_dataset *dataset,
                        const uni_data_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_data_options, options, state, err);
    uni_data_options o = *options;
    if (dataset == NULL)
        return uni_error_set(err, UNI_EINVAL, "there is no dataset to iterate");
    UNI_TRY(check_options(&o, dataset, err));
    uni_dataset_iterator *it = calloc(1, sizeof *it);
    if (it == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for an iterator");
    it->opened_ns = uni__monotonic_ns();
    it->dataset = uni_dataset_ref(dataset);
    fill_defaults(&o, dataset);
    it->options = o;
    uni__source_kind kind = dataset->root->source.kind;
    if (o.num_shards > 1 &&
        (kind == UNI__SOURCE_STREAM || (o.equal && uni__common_needed(dataset)))) {
        int common = uni__common_open(&it->common, dataset, &o, err);
        return finish_open(it, common, out);
    }
    it->stream = kind == UNI__SOURCE_STREAM;
    it->windows = dataset->order.shuffle && kind != UNI__SOURCE_INDEXED;
    it->window_rows = it->stream ? stream_window(it) : 1;
    it->stream_over = it->stream;
    it->pending_end = -1;
    while (it->first_in_order < dataset->num_stages &&
           !dataset->stages[it->first_in_order]->in_order)
        it->first_in_order++;
    return finish_open(it, open_execution(it, err), out);
}
