/*
 * order.c - the order of an epoch, and the transforms that change how rows are handed out but not
 * the rows: shuffle, window, repeat, batch, prefetch. Each copies the dataset and changes one
 * number (dataset.h). Any thread.
 */
#include "base/random.h"
#include "data/plan/dataset.h"

/* ---- order ---- */

uint64_t uni__order_key(const uni_dataset *dataset, int64_t epoch, uint64_t what)
{
    uint64_t counted = dataset->order.same_each_epoch ? 0 : (uint64_t)epoch;
    return uni__random_u64(dataset->order.seed, 0x64617461u ^ (what << 8), counted); /* "data" */
}

int64_t uni__order_element(const uni_dataset *dataset, int64_t epoch, int64_t position)
{
    const uni__order *order = &dataset->order;
    const uni__source *source = &dataset->root->source;
    if (!order->shuffle)
        return position;
    uint64_t key = uni__order_key(dataset, epoch, 0);
    if (source->kind == UNI__SOURCE_SPLIT)
        return order->buffer > 0 || order->window_blocks > 0
                   ? position
                   : (int64_t)uni__random_permute(key, (uint64_t)source->num_blocks,
                                                  (uint64_t)position);
    int64_t n = source->num_rows, window = order->buffer;
    if (window == 0 && order->window_blocks > 0)
        window = order->window_blocks * uni__block_rows(dataset);
    if (window <= 0 || window >= n)
        return (int64_t)uni__random_permute(key, (uint64_t)n, (uint64_t)position);
    int64_t first = position / window * window, size = n - first < window ? n - first : window;
    return first + (int64_t)uni__random_permute(uni__random_u64(key, 1, (uint64_t)first),
                                                (uint64_t)size, (uint64_t)(position - first));
}

void uni__order_rows(const uni_dataset *dataset, int64_t epoch, int64_t *rows, int64_t count)
{
    const uni__order *order = &dataset->order;
    if (order->shuffle && order->buffer == 0 && order->window_blocks == 0) {
        uni__random_permute_all(uni__order_key(dataset, epoch, 0),
                                (uint64_t)dataset->root->source.num_rows, (uint64_t *)rows,
                                (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        rows[i] = uni__order_element(dataset, epoch, rows[i]);
}

/* ---- transforms ---- */

int uni_dataset_shuffle(uni_dataset **out, uni_dataset *from, int64_t buffer, uint64_t seed,
                        uni_error *err)
{
    *out = NULL;
    if (buffer < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "shuffle: a buffer of %lld rows; 0 is as well as the "
                             "source can",
                             (long long)buffer);
    UNI_TRY(uni__dataset_derive(out, from, true, err));
    (*out)->order.shuffle = true;
    (*out)->order.buffer = buffer;
    (*out)->order.seed = seed;
    return 0;
}

int uni_dataset_same_each_epoch(uni_dataset **out, uni_dataset *from, uni_error *err)
{
    UNI_TRY(uni__dataset_derive(out, from, true, err));
    (*out)->order.same_each_epoch = true;
    return 0;
}

int uni_dataset_window(uni_dataset **out, uni_dataset *from, int64_t blocks_per_window,
                       uni_error *err)
{
    *out = NULL;
    if (blocks_per_window < 1)
        return uni_error_set(err, UNI_EINVAL,
                             "window: %lld blocks_per_window, at least 1 is needed",
                             (long long)blocks_per_window);
    UNI_TRY(uni__dataset_derive(out, from, true, err));
    (*out)->order.window_blocks = blocks_per_window;
    return 0;
}

int uni_dataset_repeat(uni_dataset **out, uni_dataset *from, int64_t count, uni_error *err)
{
    *out = NULL;
    if (count < -1 || count == 0)
        return uni_error_set(err, UNI_EINVAL, "repeat: %lld times; -1 is endless",
                             (long long)count);
    UNI_TRY(uni__dataset_derive(out, from, true, err));
    int64_t before = from->order.repeats > 0 ? from->order.repeats : 1;
    (*out)->order.repeats = count < 0 || from->order.repeats < 0 ? -1 : count * before;
    return 0;
}

int uni_dataset_batch(uni_dataset **out, uni_dataset *from, int64_t batch_size, bool drop_remainder,
                      uni_error *err)
{
    *out = NULL;
    if (batch_size < 1)
        return uni_error_set(err, UNI_EINVAL, "batch: %lld rows", (long long)batch_size);
    UNI_TRY(uni__dataset_derive(out, from, true, err));
    (*out)->order.batch_size = batch_size;
    (*out)->order.drop_remainder = drop_remainder;
    return 0;
}

int uni_dataset_repartition(uni_dataset **out, uni_dataset *from, int64_t num_blocks,
                            uni_error *err)
{
    *out = NULL;
    if (num_blocks < 1)
        return uni_error_set(err, UNI_EINVAL, "repartition: %lld blocks", (long long)num_blocks);
    if (from != NULL && from->root->source.kind == UNI__SOURCE_SPLIT)
        return uni__dataset_repartition_blocks(out, from, num_blocks, err);
    if (from != NULL && from->root->source.kind == UNI__SOURCE_STREAM)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "repartition: a stream (compressed files, callbacks, queries) has no "
                             "blocks; cache() it first");
    UNI_TRY(uni__dataset_derive(out, from, true, err));
    (*out)->order.num_blocks = num_blocks;
    return 0;
}

int uni_dataset_prefetch(uni_dataset **out, uni_dataset *from, int64_t batches, uni_error *err)
{
    *out = NULL;
    if (batches < UNI_AUTO || batches == 0)
        return uni_error_set(err, UNI_EINVAL,
                             "prefetch: %lld batches; UNI_AUTO is as far as the "
                             "budget allows",
                             (long long)batches);
    UNI_TRY(uni__dataset_derive(out, from, true, err));
    (*out)->order.prefetch = batches;
    return 0;
}
