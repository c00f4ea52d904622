/*
 * blocks.c - what a binding needs to share out blocks by their rows: the shape of a dataset's order, the rows of its blocks, and the order of the blocks in an
 * epoch. Ranges of blocks give ranks different numbers of rows; whoever meets at each batch (Python's trainers) cuts by rows instead, and
 * counts the blocks once for it. Any thread.
 */
#include "data/execute.h"

#define MAX_WINDOW_BLOCKS 64

int64_t uni__block_bytes(const uni__source *source)
{
    if (source->block_rows > 0 && source->row_bytes > 0)
        return source->block_rows * source->row_bytes;
    int64_t bytes = source->bytes > 0 && source->num_blocks > 0 ? source->bytes / source->num_blocks
                                                                : (int64_t)1 << 20;
    return bytes > 0 ? bytes : 1;
}

int64_t uni__window_blocks(const uni_dataset *dataset, int64_t budget)
{
    const uni__order *order = &dataset->order;
    const uni__source *source = &dataset->root->source;
    int64_t window = UNI__WINDOW_BYTES / uni__block_bytes(source);
    if (!order->shuffle || source->kind != UNI__SOURCE_SPLIT)
        return 1;
    window = window > MAX_WINDOW_BLOCKS ? MAX_WINDOW_BLOCKS : window;
    if (order->window_blocks > 0)
        window = order->window_blocks;
    else if (order->buffer > 0 && source->block_rows > 0)
        window = (order->buffer + source->block_rows - 1) / source->block_rows;
    /* This window, the next one in the making, and room to breathe. */
    int64_t most = budget / 4 / uni__block_bytes(source);
    window = window > most ? most : window;
    return window > 0 ? window : 1;
}

static int put_bool(uni_value *dict, const char *key, bool value)
{
    return uni_dict_take(dict, key, uni_value_bool(value));
}

int uni_dataset_shape(const uni_dataset *dataset, uni_value **out, uni_error *err)
{
    static const char *const kinds[] = { "", "global", "block", "stream" };
    const uni__order *order = &dataset->order;
    uni_value *shape = uni_value_dict();
    *out = NULL;
    if (uni_dict_take(shape, "kind", uni_value_string(kinds[dataset->root->source.kind])) < 0 ||
        put_bool(shape, "one_to_one", uni__dataset_one_to_one(dataset)) < 0 ||
        put_bool(shape, "in_order", uni__dataset_in_order(dataset)) < 0 ||
        put_bool(shape, "shuffle", order->shuffle) < 0 ||
        uni_dict_take(shape, "buffer", uni_value_int(order->buffer)) < 0 ||
        uni_dict_take(shape, "window",
                      uni_value_int(uni__window_blocks(dataset, UNI__DEFAULT_BUDGET))) < 0 ||
        uni_dict_take(shape, "batch_size", uni_value_int(order->batch_size)) < 0 ||
        put_bool(shape, "drop_remainder", order->drop_remainder) < 0) {
        uni_value_free(shape);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the shape of a dataset");
    }
    *out = shape;
    return 0;
}

/* Blocks of files: those that can be read on their own. */
static int check_blocks(const uni_dataset *dataset, int64_t begin, int64_t end, uni_error *err)
{
    const uni__source *source = &dataset->root->source;
    if (source->kind != UNI__SOURCE_SPLIT)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "only datasets of the block order have blocks to count");
    if (begin < 0 || begin > end || end > source->num_blocks)
        return uni_error_set(err, UNI_EINVAL, "blocks %lld to %lld of %lld", (long long)begin,
                             (long long)end, (long long)source->num_blocks);
    return 0;
}

int uni_dataset_count_blocks(uni_dataset *dataset, int64_t begin, int64_t end, int64_t *rows,
                             uni_error *err)
{
    uni__reader *reader = NULL;
    UNI_TRY(check_blocks(dataset, begin, end, err));
    UNI_TRY(uni__reader_new(&reader, dataset->root->bad.skip, err));
    int status = 0;
    for (int64_t i = begin; i < end && status == 0; i++)
        status = uni__dataset_count_block(dataset, reader, i, &rows[i - begin], err);
    uni__reader_free(reader);
    return status;
}

int uni_dataset_block_order(const uni_dataset *dataset, int64_t epoch, int64_t begin, int64_t end,
                            int64_t *blocks, uni_error *err)
{
    UNI_TRY(check_blocks(dataset, begin, end, err));
    for (int64_t i = begin; i < end; i++)
        blocks[i - begin] = uni__order_element(dataset, epoch, i);
    return 0;
}
