/*
 * ordering.c - transforms that change no rows but how they are handed out: shuffle, window, repeat, batch, prefetch. Each is a copy of the dataset
 * with one number changed (dataset.h).
 */
#include "data/dataset.h"

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

int uni_dataset_repartition(uni_dataset **out, uni_dataset *from, int64_t num_blocks,
                            uni_error *err)
{
    *out = NULL;
    if (num_blocks < 1)
        return uni_error_set(err, UNI_EINVAL, "repartition: %lld blocks", (long long)num_blocks);
    if (from != NULL && from->root->source.kind == UNI__SOURCE_SPLIT)
        return uni__dataset_regroup(out, from, num_blocks, err);
    if (from != NULL && from->root->source.kind == UNI__SOURCE_STREAM)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "repartition: a stream (compressed files, callbacks, queries) has no "
                             "blocks; cache() it first");
    UNI_TRY(uni__dataset_derive(out, from, true, err));
    (*out)->order.num_blocks = num_blocks;
    return 0;
}
