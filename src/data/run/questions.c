/*
 * questions.c - queries that read a dataset: count, take, show; and its order in words.
 * describe_shards.c describes the plan of its shards.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/shared.h"
#include "base/text.h"
#include "data/run/execute.h"
#include "data/run/iterator.h"
#include "data/table/table.h"

/* ---- rows ---- */

/* The same rows in the order of the source, neither shuffled nor repeated. */
static int in_natural_order(uni_dataset **out, uni_dataset *dataset, uni_error *err)
{
    UNI_TRY(uni__dataset_derive(out, dataset, true, err));
    (*out)->order = (uni__order){ .num_blocks = dataset->order.num_blocks };
    return 0;
}

static int count_by_iterating(uni_dataset *dataset, int64_t *out, uni_error *err)
{
    uni_dataset *plain = NULL;
    uni_dataset_iterator *it = NULL;
    int status = 0;
    UNI_TRY(in_natural_order(&plain, dataset, err));
    UNI_TRY_GOTO(uni_dataset_iterate(&it, plain, &(uni_data_options){ .batch_size = 1 }, err),
                 done);
    status = uni__iterator_count(it, out, err);
done:
    uni_dataset_iterator_free(it);
    uni_dataset_unref(plain);
    return status;
}

static int count_blocks(uni_dataset *dataset, int64_t *out, uni_error *err)
{
    int64_t blocks = dataset->root->source.num_blocks;
    int64_t *rows = calloc((size_t)blocks + 1, sizeof *rows);
    if (rows == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the rows of blocks");
    int status = uni__dataset_count_blocks(dataset, 0, blocks, rows, err);
    for (int64_t i = 0; i < blocks && status == 0; i++)
        *out += rows[i];
    free(rows);
    return status;
}

int uni_dataset_count(int64_t *out, uni_dataset *dataset, uni_error *err)
{
    *out = 0;
    if (dataset == NULL)
        return uni_error_set(err, UNI_EINVAL, "there is no dataset to count");
    const uni__source *source = &dataset->root->source;
    *out = uni__dataset_known_rows(dataset);
    if (*out >= 0)
        return 0;
    *out = 0;
    /* Counting without decoding would include bad rows that reading skips. */
    bool quick = source->kind == UNI__SOURCE_SPLIT && source->class_->count_block != NULL &&
                 uni__dataset_one_to_one(dataset) && !dataset->root->bad.skip;
    return quick ? count_blocks(dataset, out, err) : count_by_iterating(dataset, out, err);
}

int uni_dataset_take(uni_table **out, uni_dataset *dataset, int64_t count, uni_error *err)
{
    uni_dataset_iterator *it = NULL;
    *out = NULL;
    if (count < 0)
        return uni_error_set(err, UNI_EINVAL, "take: %lld rows", (long long)count);
    UNI_TRY(uni_dataset_iterate(
        &it, dataset,
        &(uni_data_options){
            .batch_size = count > 0 ? count : 1, .threads = 1, .prefetch = 1, .epochs = 1 },
        err));
    int more = uni_dataset_iterator_next(out, it, err);
    uni_dataset_iterator_free(it);
    if (more < 0)
        return more;
    if (more == 0) { /* no rows: return the columns, as far as they are known */
        pthread_mutex_lock(&dataset->lock);
        uni_table *schema = uni_table_ref(dataset->schema);
        pthread_mutex_unlock(&dataset->lock);
        const uni_table *found = schema;
        if (schema == NULL && uni__dataset_keeps_columns(dataset)) /* no row is needed for that */
            UNI_TRY(uni_dataset_schema(&found, dataset, err));
        if (found == NULL)
            return uni_table_new(out, 0, err);
        *out = schema != NULL ? schema : uni_table_ref((uni_table *)found);
    } else if (count == 0) {
        uni_table *some = *out;
        int status = uni__table_empty(out, some, err);
        uni_table_unref(some);
        return status;
    }
    return 0;
}

int uni_dataset_show(char **out, uni_dataset *dataset, int64_t count, uni_error *err)
{
    uni_table *table = NULL;
    uni__text text = { 0 };
    *out = NULL;
    UNI_TRY(uni_dataset_take(&table, dataset, count, err));
    int status = 0;
    for (int64_t row = 0; row < uni_table_num_rows(table) && status == 0; row++) {
        uni_value *dict = NULL;
        char *line = NULL;
        size_t length = 0;
        status = uni_table_row(&dict, table, row, err);
        if (status == 0)
            status = uni_json_write(&line, &length, dict, UNI_JSON_NONFINITE, err);
        if (status == 0) {
            uni__text_add(&text, line, length);
            uni__text_add_char(&text, '\n');
        }
        uni_value_free(dict);
        free(line);
    }
    uni_table_unref(table);
    char *end = uni__text_reserve(&text, 1);
    if (status == 0 && end == NULL)
        status = uni_error_set(err, UNI_ENOMEM, "no memory to show rows");
    if (status < 0) {
        uni__text_free(&text);
        return status;
    }
    *end = '\0';
    *out = text.data;
    return 0;
}

/* ---- order ---- */

static const char *kind_name(uni__source_kind kind)
{
    return kind == UNI__SOURCE_INDEXED ? "global" : kind == UNI__SOURCE_SPLIT ? "block" : "stream";
}

int uni__dataset_order(char **out, const uni_dataset *dataset, uni_error *err)
{
    const uni__source *source = &dataset->root->source;
    const uni__order *order = &dataset->order;
    uni__text text = { 0 };
    uni__text_add_format(&text, "%s: ", kind_name(source->kind));
    if (source->kind == UNI__SOURCE_INDEXED)
        uni__text_add_format(&text, "%" PRId64 " rows that can be read in any order%s",
                             source->num_rows,
                             dataset->root->loaded ? " (a small file, kept in memory)" : "");
    else if (source->kind == UNI__SOURCE_SPLIT)
        uni__text_add_format(&text, "%" PRId64 " blocks that can be read on their own",
                             source->num_blocks);
    else
        uni__text_add_string(&text, "one row after the other, each worker reads all of it");
    if (!order->shuffle)
        uni__text_add_string(&text, "; not shuffled");
    else if (source->kind == UNI__SOURCE_INDEXED && order->buffer == 0 && order->window_blocks == 0)
        uni__text_add_string(&text, "; a keyed permutation of all rows");
    else if (source->kind == UNI__SOURCE_SPLIT && order->buffer == 0 && order->window_blocks == 0)
        uni__text_add_string(
            &text, "; a keyed permutation of the blocks, and of the rows in windows of blocks");
    else
        uni__text_add_string(&text, "; a keyed permutation in each window");
    uni__text_add_string(
        &text, source->kind == UNI__SOURCE_SPLIT || !uni__dataset_one_to_one(dataset)
                   ? "; each worker has its own range"
               : source->kind == UNI__SOURCE_INDEXED
                   ? "; each worker reads its part of every global batch, and batches are "
                     "the same for any number of workers"
                   : "; batches are the same for any number of workers");
    if (text.failed) {
        uni__text_free(&text);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset's order");
    }
    *out = text.data;
    return 0;
}
