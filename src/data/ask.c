/*
 * ask.c - questions to a dataset that read it: count, take, show, its order in words, and the plan of its shards.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/execute.h"
#include "data/table.h"

/* ---- rows ---- */

/* The same rows, as they lie in the source: nothing is shuffled or repeated. */
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
    uni_table *batch = NULL;
    int status = 0;
    UNI_TRY(in_natural_order(&plain, dataset, err));
    UNI_TRY_GOTO(uni_dataset_iterate(&it, plain, &(uni_data_options){ .batch_size = 65536 }, err),
                 done);
    while ((status = uni_dataset_iterator_next(it, &batch, err)) > 0) {
        *out += uni_table_num_rows(batch);
        uni_table_unref(batch);
    }
done:
    uni_dataset_iterator_free(it);
    uni_dataset_unref(plain);
    return status;
}

static int count_blocks(uni_dataset *dataset, int64_t *out, uni_error *err)
{
    uni__reader *reader = NULL;
    UNI_TRY(uni__reader_new(&reader, dataset->root->bad.skip, err));
    int status = 0;
    for (int64_t i = 0; i < dataset->root->source.num_blocks && status == 0; i++) {
        int64_t rows = 0;
        status = uni__dataset_count_block(dataset, reader, i, &rows, err);
        *out += rows;
    }
    uni__reader_free(reader);
    return status;
}

int uni_dataset_count(uni_dataset *dataset, int64_t *out, uni_error *err)
{
    const uni__source *source = &dataset->root->source;
    *out = uni_dataset_known_rows(dataset);
    if (*out >= 0)
        return 0;
    *out = 0;
    /* Counting without decoding must not pass over bad rows that reading would. */
    bool quick = source->kind == UNI__SOURCE_SPLIT && source->class_->count_block != NULL &&
                 uni__dataset_one_to_one(dataset) && !dataset->root->bad.skip;
    return quick ? count_blocks(dataset, out, err) : count_by_iterating(dataset, out, err);
}

int uni_dataset_take(uni_dataset *dataset, int64_t count, uni_table **out, uni_error *err)
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
    int more = uni_dataset_iterator_next(it, out, err);
    uni_dataset_iterator_free(it);
    if (more < 0)
        return more;
    if (more == 0) { /* no rows: the columns, as far as they are known */
        pthread_mutex_lock(&dataset->lock);
        uni_table *schema = uni_table_ref(dataset->schema);
        pthread_mutex_unlock(&dataset->lock);
        if (schema == NULL)
            return uni_table_new(out, 0, err);
        *out = schema;
    } else if (count == 0) {
        uni_table *some = *out;
        int status = uni__table_empty(out, some, err);
        uni_table_unref(some);
        return status;
    }
    return 0;
}

int uni_dataset_show(uni_dataset *dataset, int64_t count, char **out, uni_error *err)
{
    uni_table *table = NULL;
    uni__text text = { 0 };
    *out = NULL;
    UNI_TRY(uni_dataset_take(dataset, count, &table, err));
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
    if (status == 0 && (text.failed || uni__text_reserve(&text, 1) == NULL))
        status = uni_error_set(err, UNI_ENOMEM, "no memory to show rows");
    if (status < 0) {
        uni__text_free(&text);
        return status;
    }
    if (text.size == 0)
        text.data[0] = 0;
    *out = text.data;
    return 0;
}

/* ---- order ---- */

static const char *kind_name(uni__source_kind kind)
{
    return kind == UNI__SOURCE_INDEXED ? "global" : kind == UNI__SOURCE_SPLIT ? "block" : "stream";
}

int uni_dataset_order(const uni_dataset *dataset, char **out, uni_error *err)
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
    uni__text_add_string(&text,
                         source->kind == UNI__SOURCE_SPLIT || !uni__dataset_one_to_one(dataset)
                             ? "; each worker has its own range"
                             : "; batches are the same for any number of workers");
    if (text.failed) {
        uni__text_free(&text);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset's order");
    }
    *out = text.data;
    return 0;
}

/* ---- the plan of shards ---- */

/* A part of a file that grows while neighbours are added. */
struct extent {
    uni__place place;
    bool some;
};

static int put_extent(uni_value *pieces, const struct extent *extent, const char *unit)
{
    uni_value *piece = uni_value_dict();
    if (!extent->some) {
        uni_value_free(piece);
        return 0;
    }
    if (uni_dict_take(piece, "file",
                      extent->place.file != NULL ? uni_value_string(extent->place.file)
                                                 : uni_value_null()) < 0 ||
        uni_dict_take(piece, "begin", uni_value_int(extent->place.begin)) < 0 ||
        uni_dict_take(piece, "end", uni_value_int(extent->place.end)) < 0 ||
        uni_dict_take(piece, "unit", uni_value_string(unit)) < 0) {
        uni_value_free(piece);
        return UNI_ENOMEM;
    }
    return uni_list_take(pieces, piece);
}

/* Blocks [begin, end) of a split source (as they lie in the files) as ranges of bytes; rows -1 unless all are known. */
static int put_blocks(const uni__source *source, int64_t begin, int64_t end, uni_value *pieces,
                      int64_t *bytes, int64_t *rows)
{
    struct extent extent = { 0 };
    *rows = 0;
    for (int64_t i = begin; i < end; i++) {
        uni__place place = { .rows = -1 };
        if (source->class_->place != NULL)
            source->class_->place(source->self, i, &place);
        *bytes += place.end - place.begin;
        *rows = *rows < 0 || place.rows < 0 ? -1 : *rows + place.rows;
        if (extent.some && extent.place.file == place.file && extent.place.end == place.begin) {
            extent.place.end = place.end;
            continue;
        }
        UNI_TRY(put_extent(pieces, &extent, "bytes"));
        extent = (struct extent){ .place = place, .some = true };
    }
    return put_extent(pieces, &extent, "bytes");
}

/* Rows [begin, end) of an indexed source, file by file. */
static int put_rows(const uni__source *source, int64_t begin, int64_t end, uni_value *pieces)
{
    struct extent extent = { 0 };
    const char *unit = "rows";
    for (int64_t row = begin; row < end;) {
        uni__place place = { .begin = row, .end = row + 1 }, last;
        int64_t run = end - row;
        if (source->class_->place != NULL) {
            /* Rows of a file follow each other: halve until the last one is in the same file. */
            source->class_->place(source->self, row, &place);
            for (last = place; run > 1; run = (run + 1) / 2) {
                source->class_->place(source->self, row + run - 1, &last);
                if (last.file == place.file)
                    break;
            }
            place.end = run > 1 ? last.end : place.end;
        } else {
            place.end = end;
        }
        bool joins =
            extent.some && extent.place.file == place.file && extent.place.end == place.begin;
        if (joins) {
            extent.place.end = place.end;
        } else {
            UNI_TRY(put_extent(pieces, &extent, unit));
            extent = (struct extent){ .place = place, .some = true };
        }
        row += run;
    }
    return put_extent(pieces, &extent, unit);
}

static int plan_shard(uni_dataset *dataset, int shard, int num_shards, uni_value *list)
{
    const uni__source *source = &dataset->root->source;
    uni_value *pieces = uni_value_list(), *entry = uni_value_dict();
    int64_t total = source->kind == UNI__SOURCE_SPLIT ? source->num_blocks : source->num_rows;
    int64_t begin = uni__share(total, shard, num_shards);
    int64_t end = uni__share(total, shard + 1, num_shards), bytes = 0, rows = -1;
    int status = pieces != NULL && entry != NULL ? 0 : UNI_ENOMEM;
    if (status == 0 && source->kind == UNI__SOURCE_SPLIT) {
        status = put_blocks(source, begin, end, pieces, &bytes, &rows);
    } else if (status == 0 && source->kind == UNI__SOURCE_INDEXED) {
        rows = end - begin;
        bytes = source->bytes >= 0 && total > 0 ? uni__share(source->bytes, shard + 1, num_shards) -
                                                      uni__share(source->bytes, shard, num_shards)
                                                : -1;
        status = put_rows(source, begin, end, pieces);
    } else if (status == 0) {
        bytes = source->bytes;
        for (int64_t i = 0; status == 0 && source->class_->num_places != NULL &&
                            i < source->class_->num_places(source->self);
             i++) {
            struct extent extent = { .some = true };
            source->class_->place(source->self, i, &extent.place);
            status = put_extent(pieces, &extent, "bytes");
        }
    }
    if (status == 0)
        status = uni_dict_take(entry, "rank", uni_value_int(shard));
    if (status == 0)
        status = uni_dict_take(entry, "rows", uni_value_int(rows));
    if (status == 0)
        status = uni_dict_take(entry, "bytes", uni_value_int(bytes));
    if (status == 0) {
        status = uni_dict_take(entry, "pieces", pieces);
        pieces = NULL;
    }
    if (status == 0) {
        status = uni_list_take(list, entry);
        entry = NULL;
    }
    uni_value_free(pieces);
    uni_value_free(entry);
    return status;
}

int uni_dataset_plan(uni_dataset *dataset, int num_shards, uni_value **out, uni_error *err)
{
    *out = NULL;
    if (num_shards < 1)
        return uni_error_set(err, UNI_EINVAL, "a plan for %d workers", num_shards);
    uni_value *list = uni_value_list();
    for (int i = 0; i < num_shards; i++) {
        if (list == NULL || plan_shard(dataset, i, num_shards, list) < 0) {
            uni_value_free(list);
            return uni_error_set(err, UNI_ENOMEM, "no memory for a plan");
        }
    }
    *out = list;
    return 0;
}
