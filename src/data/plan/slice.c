/*
 * slice.c - transforms that select rows: limit, skip, splits, cache. Over counted rows these are
 * indexed sources over datasets. Over blocks they are lists of blocks, the first and last of which
 * may be cut; the blocks are counted when the transform is created. If the dataset was shuffled
 * before a split, the parts take rows in the shuffled order.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "data/shared.h"
#include "data/run/execute.h"
#include "data/run/iterator.h"
#include "data/table/table.h"

/* ---- rows of an indexed dataset, in its order ---- */

struct slice {
    uni_dataset *from;
    int64_t begin;
};

static int slice_rows(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                      uni_table **out, uni_error *err)
{
    const struct slice *slice = self;
    int64_t *list = malloc((size_t)count * sizeof *list + 1);
    if (list == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld rows", (long long)count);
    for (int64_t i = 0; i < count; i++)
        list[i] = slice->begin + rows[i];
    uni__order_rows(slice->from, 0, list, count);
    int status = uni__dataset_read_rows(slice->from, reader, list, count, out, err);
    free(list);
    return status;
}

static int slice_range(void *self, uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                       uni_error *err)
{
    const struct slice *slice = self;
    if (!slice->from->order.shuffle)
        return uni__dataset_read_range(slice->from, reader, slice->begin + begin,
                                       slice->begin + end, out, err);
    int64_t count = end - begin;
    int64_t *rows = malloc((size_t)count * sizeof *rows + 1);
    if (rows == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld rows", (long long)count);
    for (int64_t i = 0; i < count; i++)
        rows[i] = begin + i;
    int status = slice_rows(self, reader, rows, count, out, err);
    free(rows);
    return status;
}

static void slice_place(void *self, int64_t index, uni__place *out)
{
    const struct slice *slice = self;
    const uni__source *source = &slice->from->root->source;
    *out = (uni__place){ .begin = index, .end = index + 1, .rows = 1 };
    if (source->class_->place != NULL && !slice->from->order.shuffle)
        source->class_->place(source->self, slice->begin + index, out);
}

static void slice_free(void *self)
{
    struct slice *slice = self;
    uni_dataset_unref(slice->from);
    free(slice);
}

static const uni__source_class slice_class = { .name = "rows",
                                               .read_range = slice_range,
                                               .read_rows = slice_rows,
                                               .place = slice_place,
                                               .free = slice_free };

static int copy_schema(uni_dataset *from, uni__source *source, uni_error *err)
{
    const uni_table *schema = NULL;
    UNI_TRY(uni_dataset_schema(&schema, from, err));
    return uni__table_empty(&source->schema, schema, err);
}

static int slice_indexed(uni_dataset **out, uni_dataset *from, int64_t begin, int64_t end,
                         uni_error *err)
{
    const uni__source *below = &from->root->source;
    struct slice *slice = malloc(sizeof *slice);
    uni__source source = { .class_ = &slice_class,
                           .self = slice,
                           .kind = UNI__SOURCE_INDEXED,
                           .num_rows = end - begin,
                           .bytes = below->bytes >= 0 && below->num_rows > 0
                                        ? (int64_t)((double)below->bytes * (double)(end - begin) /
                                                    (double)below->num_rows)
                                        : -1,
                           .row_bytes = below->row_bytes,
                           .in_memory = uni__dataset_is_quick(from),
                           .views = uni__dataset_is_views(from) };
    if (slice == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    *slice = (struct slice){ .from = uni_dataset_ref(from), .begin = begin };
    int status = copy_schema(from, &source, err);
    if (status < 0) {
        slice_free(slice);
        return status;
    }
    return uni__dataset_from_source(out, &source, NULL, err);
}

/* ---- blocks of a split dataset, cut at both ends ---- */

/* Rows [begin, end) of block `block`; end -1: to the end. */
struct cut {
    int64_t block, begin, end;
};

struct cuts {
    uni_dataset *from;
    int64_t count;
    struct cut *list;
};

static int cuts_block(void *self, uni__reader *reader, int64_t index, uni_table **out,
                      uni_error *err)
{
    const struct cuts *cuts = self;
    const struct cut *cut = &cuts->list[index];
    uni_table *whole = NULL;
    UNI_TRY(uni__dataset_read_block(cuts->from, reader, cut->block, &whole, err));
    int64_t rows = uni_table_num_rows(whole),
            end = cut->end < 0 || cut->end > rows ? rows : cut->end;
    int status = uni_table_slice(out, whole, cut->begin < end ? cut->begin : end, end, err);
    uni_table_unref(whole);
    return status;
}

static int cuts_count(void *self, uni__reader *reader, int64_t index, int64_t *out, uni_error *err)
{
    const struct cuts *cuts = self;
    const struct cut *cut = &cuts->list[index];
    *out = cut->end - cut->begin;
    if (cut->end >= 0)
        return 0;
    UNI_TRY(uni__dataset_count_block(cuts->from, reader, cut->block, out, err));
    *out -= cut->begin;
    return 0;
}

static void cuts_place(void *self, int64_t index, uni__place *out)
{
    const struct cuts *cuts = self;
    const uni__source *source = &cuts->from->root->source;
    *out = (uni__place){ .rows = -1 };
    if (source->class_->place != NULL)
        source->class_->place(source->self, cuts->list[index].block, out);
}

static int64_t cuts_num_places(void *self)
{
    return ((const struct cuts *)self)->count;
}

static void cuts_free(void *self)
{
    struct cuts *cuts = self;
    uni_dataset_unref(cuts->from);
    free(cuts->list);
    free(cuts);
}

static const uni__source_class cuts_class = { .name = "rows of blocks",
                                              .read_block = cuts_block,
                                              .count_block = cuts_count,
                                              .num_places = cuts_num_places,
                                              .place = cuts_place,
                                              .free = cuts_free };

/* Finds the blocks that hold rows [begin, end); end -1: to the end. Counts only as many blocks as
 * needed. */
static int find_cuts(struct cuts *cuts, int64_t begin, int64_t end, uni_error *err)
{
    uni_dataset *from = cuts->from;
    int64_t blocks = from->root->source.num_blocks, at = 0;
    uni__reader *reader = NULL;
    UNI_TRY(uni__reader_new(&reader, from->root->bad.skip, err));
    int status = 0;
    for (int64_t i = 0; i < blocks && (end < 0 || at < end) && status == 0; i++) {
        int64_t block = uni__order_element(from, 0, i), rows = 0;
        if (end < 0 && at >= begin) { /* takes all that is left: no need to count */
            cuts->list[cuts->count++] = (struct cut){ .block = block, .end = -1 };
            continue;
        }
        status = uni__dataset_count_block(from, reader, block, &rows, err);
        int64_t first = begin > at ? begin - at : 0;
        int64_t last = end >= 0 && end - at < rows ? end - at : rows;
        if (status == 0 && first < last)
            cuts->list[cuts->count++] = (struct cut){ .block = block, .begin = first, .end = last };
        at += rows;
    }
    uni__reader_free(reader);
    return status;
}

static int slice_blocks(uni_dataset **out, uni_dataset *from, int64_t begin, int64_t end,
                        uni_error *err)
{
    const uni__source *below = &from->root->source;
    struct cuts *cuts = calloc(1, sizeof *cuts);
    uni__source source = { .class_ = &cuts_class,
                           .self = cuts,
                           .kind = UNI__SOURCE_SPLIT,
                           .num_rows = -1,
                           .block_rows = below->block_rows,
                           .row_bytes = below->row_bytes };
    if (cuts == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    cuts->from = uni_dataset_ref(from);
    cuts->list = calloc((size_t)below->num_blocks + 1, sizeof *cuts->list);
    int status = cuts->list != NULL ? find_cuts(cuts, begin, end, err)
                                    : uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    if (status == 0)
        status = copy_schema(from, &source, err);
    if (status < 0) {
        cuts_free(cuts);
        return status;
    }
    source.num_blocks = cuts->count;
    source.bytes = below->bytes >= 0 && below->num_blocks > 0
                       ? below->bytes / below->num_blocks * cuts->count
                       : -1;
    return uni__dataset_from_source(out, &source, &from->root->bad, err);
}

static int keep_rows(uni_dataset **out, uni_dataset *from, int64_t begin, int64_t end,
                     int64_t max_bytes, uni_error *err);

/* Memory limit for rows kept by transforms other than cache. */
#define KEPT_BYTES ((int64_t)1 << 30)

/* The needed part of a stream, or of a dataset with an unknown row count, in memory. */
static int slice_kept(uni_dataset **out, uni_dataset *from, const char *what, int64_t begin,
                      int64_t end, uni_error *err)
{
    int status = keep_rows(out, from, begin, end, KEPT_BYTES, err);
    if (status == UNI_ELIMIT)
        uni_error_set(err, UNI_ELIMIT,
                      "%s: a dataset of unknown length keeps the rows in memory, and they take "
                      "more than %lld bytes; use cache with a larger max_bytes before %s",
                      what, (long long)KEPT_BYTES, what);
    return status;
}

/* Rows [begin, end); end -1: to the end. Iteration settings (batch size, repeats) are kept. */
static int slice(uni_dataset **out, uni_dataset *from, const char *what, int64_t begin, int64_t end,
                 uni_error *err)
{
    *out = NULL;
    if (from == NULL)
        return uni_error_set(err, UNI_EINVAL, "%s needs a dataset", what);
    const uni__source *source = &from->root->source;
    int status;
    if (source->kind == UNI__SOURCE_INDEXED && uni__dataset_one_to_one(from) &&
        !uni__dataset_in_order(from)) {
        int64_t rows = source->num_rows;
        end = end < 0 || end > rows ? rows : end;
        status = slice_indexed(out, from, begin < end ? begin : end, end, err);
    } else if (source->kind == UNI__SOURCE_SPLIT && !uni__dataset_in_order(from)) {
        status = slice_blocks(out, from, begin, end, err);
    } else {
        status = slice_kept(out, from, what, begin, end, err);
    }
    if (status == 0) {
        uni__order order = from->order;
        order.shuffle = false;
        order.num_blocks = order.window_blocks = order.buffer = 0;
        (*out)->order = order;
        uni__dataset_inherit_shard(*out, from);
        if (uni__dataset_known_rows(*out) == 0)
            (*out)->root->sample = uni_dataset_ref(from);
    }
    return status;
}

int uni_dataset_limit(uni_dataset **out, uni_dataset *from, int64_t count, uni_error *err)
{
    *out = NULL;
    if (count < 0)
        return uni_error_set(err, UNI_EINVAL, "limit: %lld rows", (long long)count);
    return slice(out, from, "limit", 0, count, err);
}

int uni_dataset_skip(uni_dataset **out, uni_dataset *from, int64_t count, uni_error *err)
{
    *out = NULL;
    if (count < 0)
        return uni_error_set(err, UNI_EINVAL, "skip: %lld rows", (long long)count);
    return slice(out, from, "skip", count, -1, err);
}

/* Frees the parts and returns `status`. */
static int drop_parts(uni_dataset **parts, int count, int status)
{
    for (int i = 0; i < count; i++) {
        uni_dataset_unref(parts[i]);
        parts[i] = NULL;
    }
    return status;
}

int uni_dataset_split_at_indices(uni_dataset **out, uni_dataset *from, int count,
                                 const int64_t *indices, uni_error *err)
{
    if (count < 0)
        return uni_error_set(err, UNI_EINVAL, "split_at_indices: at %d indices", count);
    for (int i = 0; i <= count; i++)
        out[i] = NULL;
    for (int i = 0; i < count; i++) {
        if (indices[i] < (i > 0 ? indices[i - 1] : 0))
            return uni_error_set(err, UNI_EINVAL, "split_at_indices: %lld comes after %lld",
                                 (long long)indices[i], i > 0 ? (long long)indices[i - 1] : 0LL);
    }
    for (int i = 0; i <= count; i++) {
        int status = slice(&out[i], from, "split_at_indices", i > 0 ? indices[i - 1] : 0,
                           i < count ? indices[i] : -1, err);
        if (status < 0)
            return drop_parts(out, i, status);
    }
    return 0;
}

int uni_dataset_split(uni_dataset **out, uni_dataset *from, int n, bool equal, uni_error *err)
{
    int64_t rows = 0;
    if (n < 1)
        return uni_error_set(err, UNI_EINVAL, "split: %d parts", n);
    for (int i = 0; i < n; i++)
        out[i] = NULL;
    UNI_TRY(uni_dataset_count(&rows, from, err));
    for (int i = 0; i < n; i++) {
        int64_t begin = equal ? rows / n * i : uni__share(rows, i, n);
        int64_t end = equal ? rows / n * (i + 1) : uni__share(rows, i + 1, n);
        int status = slice(&out[i], from, "split", begin, end, err);
        if (status < 0)
            return drop_parts(out, i, status);
    }
    return 0;
}

int uni_dataset_train_test_split(uni_dataset **train, uni_dataset **test, uni_dataset *from,
                                 double test_size, bool shuffle, uint64_t seed, uni_error *err)
{
    uni_dataset *ordered = NULL, *parts[2] = { NULL };
    int64_t rows = 0;
    *train = *test = NULL;
    if (!(test_size > 0 && test_size < 1))
        return uni_error_set(err, UNI_EINVAL, "train_test_split: a test set of %g of all rows",
                             test_size);
    int status = shuffle ? uni_dataset_shuffle(&ordered, from, 0, seed, err) : 0;
    if (status == 0 && !shuffle)
        ordered = uni_dataset_ref(from);
    if (status == 0)
        status = uni_dataset_count(&rows, from, err);
    if (status == 0) {
        int64_t at = rows - (int64_t)((double)rows * test_size + 0.5);
        status = uni_dataset_split_at_indices(parts, ordered, 1, &at, err);
    }
    uni_dataset_unref(ordered);
    *train = parts[0];
    *test = parts[1];
    return status;
}

/* ---- cache ---- */

/* Batches collected in memory. */
struct kept {
    uni_table **tables;
    int count;
    int64_t rows, bytes, limit; /* rows: includes those before `begin` */
};

/* Adds the rows of a batch that are in [begin, end). */
static int keep_batch(struct kept *kept, uni_table *batch, int64_t begin, int64_t end,
                      uni_error *err)
{
    int64_t rows = uni_table_num_rows(batch);
    int64_t first = begin > kept->rows ? begin - kept->rows : 0;
    int64_t last = end >= 0 && end - kept->rows < rows ? end - kept->rows : rows;
    kept->rows += rows;
    if (first >= last)
        return 0;
    uni_table **grown = reallocarray(kept->tables, (size_t)kept->count + 1, sizeof(uni_table *));
    if (grown == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the rows of a dataset");
    kept->tables = grown;
    UNI_TRY(uni_table_slice(&grown[kept->count], batch, first, last, err));
    kept->bytes += (int64_t)uni__table_bytes(grown[kept->count++]);
    if (kept->bytes <= kept->limit)
        return 0;
    return uni_error_set(err, UNI_ELIMIT,
                         "cache: the rows take more than %lld bytes; give max_bytes, or read them "
                         "in every epoch",
                         (long long)kept->limit);
}

/* Reads rows [begin, end) into memory; end -1: to the end. Does not wait for rows beyond `end`. */
static int keep_rows(uni_dataset **out, uni_dataset *from, int64_t begin, int64_t end,
                     int64_t max_bytes, uni_error *err)
{
    struct kept kept = { .limit = max_bytes > 0 ? max_bytes : (int64_t)1 << 30 };
    uni_dataset_iterator *it = NULL;
    uni_table *whole = NULL, *batch = NULL;
    const uni_table *schema = NULL;
    int status = 0, more = 1;
    *out = NULL;
    UNI_TRY(uni_dataset_schema(&schema, from, err));
    UNI_TRY(
        uni_dataset_iterate(&it, from, &(uni_data_options){ .batch_size = 1, .epochs = 1 }, err));
    while (status == 0 && (end < 0 || kept.rows < end) &&
           (more = uni__iterator_next_window(it, &batch, err)) > 0) {
        status = keep_batch(&kept, batch, begin, end, err);
        uni_table_unref(batch);
    }
    status = more < 0 ? more : status;
    if (status == 0 && kept.count == 0)
        status = uni_dataset_from_table(out, (uni_table *)schema, err);
    else if (status == 0 &&
             (status = uni__dataset_iterator_concat(it, &whole, kept.tables, kept.count, err)) == 0)
        status = uni_dataset_from_table(out, whole, err);
    uni_dataset_iterator_free(it);
    for (int i = 0; i < kept.count; i++)
        uni_table_unref(kept.tables[i]);
    free(kept.tables);
    uni_table_unref(whole);
    return status;
}

int uni_dataset_cache(uni_dataset **out, uni_dataset *from, int64_t max_bytes, uni_error *err)
{
    UNI_TRY(keep_rows(out, from, 0, -1, max_bytes, err));
    assert(*out != NULL);
    (*out)->order = from->order;
    (*out)->order.shuffle = false;
    uni__dataset_inherit_shard(*out, from);
    return 0;
}
