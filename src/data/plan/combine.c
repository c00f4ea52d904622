/*
 * combine.c - combines datasets: union (rows of one after the other) and zip (columns side by
 * side). If all inputs have a known row count, the result is an indexed source over them. A union
 * whose inputs all have blocks is a split source. Anything else is first read into memory (cache).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/run/execute.h"
#include "data/table/table.h"

/* ---- union ---- */

struct united {
    int count;
    uni_dataset **parts;
    int64_t *ends; /* cumulative element count at the end of each part */
};

static void united_free(void *self)
{
    struct united *united = self;
    if (united == NULL)
        return;
    for (int i = 0; i < united->count; i++)
        uni_dataset_unref(united->parts[i]);
    free(united->parts);
    free(united->ends);
    free(united);
}

static int part_of(const struct united *united, int64_t element, int64_t *inside)
{
    int part = 0;
    while (part + 1 < united->count && united->ends[part] <= element)
        part++;
    *inside = element - (part > 0 ? united->ends[part - 1] : 0);
    return part;
}

static int united_range(void *self, uni__reader *reader, int64_t begin, int64_t end,
                        uni_table **out, uni_error *err)
{
    const struct united *united = self;
    uni_table *tables[2] = { NULL };
    int64_t inside = 0;
    int part = part_of(united, begin, &inside);
    int64_t stop = end < united->ends[part] || part + 1 == united->count ? end : united->ends[part];
    UNI_TRY(uni__dataset_read_range(united->parts[part], reader, inside, inside + stop - begin,
                                    &tables[0], err));
    if (stop == end) {
        *out = tables[0];
        return 0;
    }
    int status = united_range(self, reader, stop, end, &tables[1], err);
    if (status == 0)
        status = uni__table_concat(out, reader, tables, 2, err);
    uni_table_unref(tables[0]);
    uni_table_unref(tables[1]);
    return status;
}

static int united_block(void *self, uni__reader *reader, int64_t block, uni_table **out,
                        uni_error *err)
{
    const struct united *united = self;
    int64_t inside = 0;
    int part = part_of(united, block, &inside);
    return uni__dataset_read_block(united->parts[part], reader, inside, out, err);
}

static void united_place(void *self, int64_t index, uni__place *out)
{
    const struct united *united = self;
    int64_t inside = 0;
    const uni__source *source = &united->parts[part_of(united, index, &inside)]->root->source;
    *out = (uni__place){ .begin = inside, .end = inside + 1, .rows = -1 };
    if (source->class_->place != NULL)
        source->class_->place(source->self, inside, out);
}

static const uni__source_class united_class = { .name = "union",
                                                .read_range = united_range,
                                                .read_block = united_block,
                                                .place = united_place,
                                                .free = united_free };

static bool is_counted(const uni_dataset *dataset)
{
    return dataset->root->source.kind == UNI__SOURCE_INDEXED && uni__dataset_one_to_one(dataset) &&
           !uni__dataset_in_order(dataset) && !dataset->order.shuffle;
}

static bool is_split(const uni_dataset *dataset)
{
    return dataset->root->source.kind == UNI__SOURCE_SPLIT && !uni__dataset_in_order(dataset) &&
           !dataset->order.shuffle;
}

/* Returns the dataset itself if its rows are counted, otherwise a copy in memory. */
static int counted(uni_dataset **out, uni_dataset *dataset, uni_error *err)
{
    if (!is_counted(dataset))
        return uni_dataset_cache(out, dataset, 0, err);
    *out = uni_dataset_ref(dataset);
    return 0;
}

static int add_part(struct united *united, uni__source *source, uni_dataset *dataset, bool blocks,
                    uni_error *err)
{
    uni_dataset *part = NULL;
    const uni_table *schema = NULL;
    if (blocks)
        part = uni_dataset_ref(dataset);
    else
        UNI_TRY(counted(&part, dataset, err));
    united->parts[united->count++] = part;
    UNI_TRY(uni_dataset_schema(&schema, part, err));
    const uni__source *below = &part->root->source;
    if (united->count == 1)
        UNI_TRY(uni__table_empty(&source->schema, schema, err));
    else
        UNI_TRY(uni__table_same_fields(source->schema, schema, "union", err));
    int64_t before = united->count > 1 ? united->ends[united->count - 2] : 0;
    united->ends[united->count - 1] = before + (blocks ? below->num_blocks : below->num_rows);
    source->bytes = source->bytes < 0 || below->bytes < 0 ? -1 : source->bytes + below->bytes;
    source->row_bytes = below->row_bytes > source->row_bytes ? below->row_bytes : source->row_bytes;
    source->in_memory =
        (united->count == 1 || source->in_memory) && !blocks && uni__dataset_is_quick(part);
    source->block_rows =
        below->block_rows > source->block_rows ? below->block_rows : source->block_rows;
    return 0;
}

int uni_dataset_union(uni_dataset **out, int count, uni_dataset *const *datasets, uni_error *err)
{
    *out = NULL;
    if (count < 1)
        return uni_error_set(err, UNI_EINVAL, "union: of no datasets");
    bool blocks = true;
    for (int i = 0; i < count; i++) {
        if (datasets[i] == NULL)
            return uni_error_set(err, UNI_EINVAL, "union: there is no dataset %d", i);
        blocks = blocks && is_split(datasets[i]);
    }
    struct united *united = calloc(1, sizeof *united);
    uni__source source = { .class_ = &united_class,
                           .self = united,
                           .kind = blocks ? UNI__SOURCE_SPLIT : UNI__SOURCE_INDEXED,
                           .num_rows = -1 };
    int status = UNI_ENOMEM;
    if (united != NULL) {
        united->parts = calloc((size_t)count, sizeof(uni_dataset *));
        united->ends = calloc((size_t)count, sizeof *united->ends);
        status = united->parts != NULL && united->ends != NULL ? 0 : UNI_ENOMEM;
    }
    if (status < 0)
        uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    for (int i = 0; i < count && status == 0; i++)
        status = add_part(united, &source, datasets[i], blocks, err);
    if (status < 0) {
        uni__source_free(&source);
        return status;
    }
    source.num_blocks = blocks ? united->ends[count - 1] : 0;
    source.num_rows = blocks ? -1 : united->ends[count - 1];
    UNI_TRY(uni__dataset_from_source(out, &source, &datasets[0]->root->bad, err));
    for (int i = 0; i < count; i++)
        uni__dataset_inherit_shard(*out, datasets[i]);
    return 0;
}

/* ---- zip ---- */

struct zipped {
    uni_dataset *a, *b;
};

static void zipped_free(void *self)
{
    struct zipped *zipped = self;
    uni_dataset_unref(zipped->a);
    uni_dataset_unref(zipped->b);
    free(zipped);
}

/* Adds the columns of b to those of a. */
static int put_beside(uni_table *out, const uni_table *b, uni_error *err)
{
    for (int i = 0; i < uni_table_num_columns(b); i++) {
        uni_table_column column = *uni_table_column_at(b, i);
        char renamed[256];
        if (uni_table_find(out, column.field.name) != NULL) {
            snprintf(renamed, sizeof renamed, "%s_1", column.field.name);
            column.field.name = renamed;
        }
        UNI_TRY(uni_table_add(out, &column, err));
    }
    return 0;
}

static int join_sides(const uni_table *a, const uni_table *b, uni_table **out, uni_error *err)
{
    uni_table *made = NULL;
    UNI_TRY(uni_table_new(&made, uni_table_num_rows(a), err));
    int status = put_beside(made, a, err);
    if (status == 0)
        status = put_beside(made, b, err);
    if (status < 0) {
        uni_table_unref(made);
        return status;
    }
    *out = made;
    return 0;
}

static int zipped_range(void *self, uni__reader *reader, int64_t begin, int64_t end,
                        uni_table **out, uni_error *err)
{
    const struct zipped *zipped = self;
    uni_table *a = NULL, *b = NULL;
    int status = uni__dataset_read_range(zipped->a, reader, begin, end, &a, err);
    if (status == 0)
        status = uni__dataset_read_range(zipped->b, reader, begin, end, &b, err);
    if (status == 0)
        status = join_sides(a, b, out, err);
    uni_table_unref(a);
    uni_table_unref(b);
    return status;
}

static int zipped_rows(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                       uni_table **out, uni_error *err)
{
    const struct zipped *zipped = self;
    uni_table *a = NULL, *b = NULL;
    /* Sources may overwrite the array of row numbers, so pass a copy. */
    int64_t *copy = malloc((size_t)count * sizeof *copy + 1);
    int status = copy != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for rows");
    if (status == 0) {
        memcpy(copy, rows, (size_t)count * sizeof *copy);
        status = uni__dataset_read_rows(zipped->a, reader, copy, count, &a, err);
    }
    if (status == 0)
        status = uni__dataset_read_rows(zipped->b, reader, copy, count, &b, err);
    if (status == 0)
        status = join_sides(a, b, out, err);
    free(copy);
    uni_table_unref(a);
    uni_table_unref(b);
    return status;
}

static const uni__source_class zipped_class = {
    .name = "zip", .read_range = zipped_range, .read_rows = zipped_rows, .free = zipped_free
};

int uni_dataset_zip(uni_dataset **out, uni_dataset *a, uni_dataset *b, uni_error *err)
{
    *out = NULL;
    if (a == NULL || b == NULL)
        return uni_error_set(err, UNI_EINVAL, "zip needs two datasets");
    struct zipped *zipped = calloc(1, sizeof *zipped);
    const uni_table *left = NULL, *right = NULL;
    uni__source source = {
        .class_ = &zipped_class, .self = zipped, .kind = UNI__SOURCE_INDEXED, .bytes = -1
    };
    if (zipped == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    int status = 0;
    UNI_TRY_GOTO(counted(&zipped->a, a, err), fail);
    UNI_TRY_GOTO(counted(&zipped->b, b, err), fail);
    source.num_rows = zipped->a->root->source.num_rows;
    source.row_bytes = zipped->a->root->source.row_bytes + zipped->b->root->source.row_bytes;
    source.in_memory = uni__dataset_is_quick(zipped->a) && uni__dataset_is_quick(zipped->b);
    if (source.num_rows != zipped->b->root->source.num_rows) {
        status =
            uni_error_set(err, UNI_ESHAPE, "zip: %lld rows and %lld rows; it takes as many of both",
                          (long long)source.num_rows, (long long)zipped->b->root->source.num_rows);
        goto fail;
    }
    UNI_TRY_GOTO(uni_dataset_schema(&left, zipped->a, err), fail);
    UNI_TRY_GOTO(uni_dataset_schema(&right, zipped->b, err), fail);
    UNI_TRY_GOTO(join_sides(left, right, &source.schema, err), fail);
    UNI_TRY(uni__dataset_from_source(out, &source, NULL, err));
    uni__dataset_inherit_shard(*out, a);
    uni__dataset_inherit_shard(*out, b);
    return 0;
fail:
    zipped_free(zipped);
    return status;
}
