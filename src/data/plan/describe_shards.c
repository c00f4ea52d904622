/*
 * describe_shards.c - tells which rank will read what before anything is read (`unisono data
 * plan`): files, ranges in them, and how a rank takes its rows from these. Any thread.
 */
#include <stdlib.h>
#include "data/run/execute.h"

struct share {
    const char *takes;
    int64_t rows, bytes;
};

/* Part of a file; grows as adjacent parts are added. */
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
        uni_dict_take(piece, "unit",
                      uni_value_string(extent->place.unit != NULL ? extent->place.unit : unit)) <
            0) {
        uni_value_free(piece);
        return UNI_ENOMEM;
    }
    return uni_list_take(pieces, piece);
}

/* Lists blocks of a split source, in ascending order, as byte ranges. *rows is -1 unless all row
 * counts are known. */
static int put_blocks(const uni__source *source, const int64_t *blocks, int64_t count,
                      uni_value *pieces, int64_t *bytes, int64_t *rows)
{
    struct extent extent = { 0 };
    *rows = *bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        uni__place place = { .rows = -1 };
        if (source->class_->place != NULL)
            source->class_->place(source->self, blocks[i], &place);
        *bytes = *bytes < 0 || place.unit != NULL ? -1 : *bytes + place.end - place.begin;
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

/* Lists rows [begin, end) of an indexed source, file by file. */
static int put_rows(const uni__source *source, int64_t begin, int64_t end, uni_value *pieces)
{
    struct extent extent = { 0 };
    const char *unit = "rows";
    for (int64_t row = begin; row < end;) {
        uni__place place = { .begin = row, .end = row + 1 }, last;
        int64_t run = end - row;
        if (source->class_->place != NULL) {
            /* Rows of a file are contiguous: halve until the last row is in the same file. */
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

static int compare_blocks(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Lists a shard's blocks; if shuffled, those of the first epoch. */
static int plan_blocks(const uni_dataset *dataset, int64_t begin, int64_t end, uni_value *pieces,
                       struct share *share)
{
    int64_t *blocks = calloc((size_t)(end - begin) + 1, sizeof *blocks);
    if (blocks == NULL)
        return UNI_ENOMEM;
    for (int64_t i = begin; i < end; i++)
        blocks[i - begin] = uni__order_element(dataset, 0, i);
    qsort(blocks, (size_t)(end - begin), sizeof *blocks, compare_blocks);
    int64_t bytes = 0;
    int status =
        put_blocks(&dataset->root->source, blocks, end - begin, pieces, &bytes, &share->rows);
    share->bytes = bytes >= 0 ? bytes : share->bytes;
    free(blocks);
    return status;
}

/* Lists all files of a stream. */
static int plan_stream(const uni__source *source, uni_value *pieces)
{
    int64_t places =
        source->class_->num_places != NULL ? source->class_->num_places(source->self) : 0;
    for (int64_t i = 0; i < places; i++) {
        struct extent extent = { .some = true };
        source->class_->place(source->self, i, &extent.place);
        UNI_TRY(put_extent(pieces, &extent, "bytes"));
    }
    return 0;
}

static int plan_pieces(uni_dataset *dataset, int shard, int num_shards, uni_value *pieces,
                       struct share *share)
{
    const uni__source *source = &dataset->root->source;
    bool shuffled = dataset->order.shuffle, split = source->kind == UNI__SOURCE_SPLIT;
    int64_t total = split ? source->num_blocks : source->num_rows;
    int64_t begin = uni__share(total, shard, num_shards);
    int64_t end = uni__share(total, shard + 1, num_shards);
    *share = (struct share){ .takes = "all", .rows = -1, .bytes = source->bytes };
    if (source->kind == UNI__SOURCE_STREAM)
        return plan_stream(source, pieces);
    share->takes = shuffled && num_shards > 1 ? "scattered" : "ranges";
    if (source->bytes >= 0) /* approximate */
        share->bytes = uni__share(source->bytes, shard + 1, num_shards) -
                       uni__share(source->bytes, shard, num_shards);
    if (split)
        return plan_blocks(dataset, begin, end, pieces, share);
    share->rows = end - begin;
    bool rounds = num_shards > 1 && uni__dataset_one_to_one(dataset);
    share->takes = rounds ? "rounds" : share->takes;
    bool everywhere = shuffled || rounds;
    return put_rows(source, everywhere ? 0 : begin, everywhere ? total : end, pieces);
}

static int plan_shard(uni_dataset *dataset, int shard, int num_shards, uni_value *list)
{
    uni_value *pieces = uni_value_list(), *entry = uni_value_dict();
    struct share share = { 0 };
    int status = pieces != NULL && entry != NULL ? 0 : UNI_ENOMEM;
    if (status == 0)
        status = plan_pieces(dataset, shard, num_shards, pieces, &share);
    if (status < 0 || uni_dict_take(entry, "rank", uni_value_int(shard)) < 0 ||
        uni_dict_take(entry, "takes", uni_value_string(share.takes)) < 0 ||
        uni_dict_take(entry, "rows", uni_value_int(share.rows)) < 0 ||
        uni_dict_take(entry, "bytes", uni_value_int(share.bytes)) < 0) {
        uni_value_free(pieces);
        uni_value_free(entry);
        return UNI_ENOMEM;
    }
    /* Both take ownership, even on failure. */
    status = uni_dict_take(entry, "pieces", pieces);
    return uni_list_take(list, entry) < 0 ? UNI_ENOMEM : status;
}

int uni_dataset_plan(uni_value **out, uni_dataset *dataset, int num_shards, uni_error *err)
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
