/*
 * memory.c - indexed sources in memory: a range of numbers, or a table (from arrays, items, caches,
 * small files). Ranges of a table are views.
 */
#include <stdlib.h>
#include <string.h>
#include <unisono/data.h>
#include "data/shared.h"
#include "base/shared.h"
#include "data/plan/dataset.h"
#include "data/table/table.h"

/* ---- range ---- */

static int range_read(void *self, uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                      uni_error *err)
{
    uni_array *ids = NULL;
    uni_table *table = NULL;
    int status = 0;
    *out = NULL;
    UNI_TRY(uni__reader_array(reader, &ids, UNI_I64, 1, (const int64_t[]){ end - begin }, err));
    int64_t *values = uni_array_data(ids);
    for (int64_t i = begin; i < end; i++)
        values[i - begin] = i;
    UNI_TRY_GOTO(uni_table_new(&table, end - begin, err), done);
    UNI_TRY_GOTO(uni_table_add_array(table, "id", ids, err), done);
    *out = table;
    table = NULL;
done:
    uni_table_unref(table);
    uni_array_unref(ids);
    return status;
}

static int range_read_rows(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                           uni_table **out, uni_error *err)
{
    UNI_TRY(range_read(self, reader, 0, count, out, err));
    memcpy(uni_array_data(uni_table_column_at(*out, 0)->values), rows,
           (size_t)count * sizeof *rows);
    return 0;
}

static const uni__source_class range_class = { .name = "range",
                                               .read_range = range_read,
                                               .read_rows = range_read_rows };

int uni_dataset_range(uni_dataset **out, int64_t n, uni_error *err)
{
    *out = NULL;
    if (n < 0)
        return uni_error_set(err, UNI_EINVAL, "a range of %lld numbers", (long long)n);
    uni__source source = { .class_ = &range_class,
                           .kind = UNI__SOURCE_INDEXED,
                           .num_rows = n,
                           .bytes = -1,
                           .row_bytes = 8,
                           .in_memory = true };
    UNI_TRY(uni_table_new(&source.schema, 0, err));
    int status = uni__table_add_field(
        source.schema, &(uni_field){ .name = "id", .kind = UNI_FIELD_NUMBER, .dtype = UNI_I64 },
        err);
    if (status < 0) {
        uni_table_unref(source.schema);
        return status;
    }
    return uni__dataset_from_source(out, &source, NULL, err);
}

/* ---- a table ---- */

struct memory {
    uni_table *table;
    uni__source origin; /* of a loaded source; class_ NULL: none */
    int64_t *ends; /* cumulative row count at the end of each block of the origin */
};

static int memory_range(void *self, uni__reader *reader, int64_t begin, int64_t end,
                        uni_table **out, uni_error *err)
{
    const struct memory *memory = self;
    return uni_table_slice(out, memory->table, begin, end, err);
}

static int memory_rows(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                       uni_table **out, uni_error *err)
{
    struct memory *memory = self;
    uni__row *list =
        uni__reader_scratch(reader, UNI__SCRATCH_MEMORY_ROWS, (size_t)count * sizeof *list);
    if (list == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld rows", (long long)count);
    for (int64_t i = 0; i < count; i++)
        list[i] = (uni__row){ .table = 0, .row = (int32_t)rows[i] };
    return uni__table_gather(out, reader, &memory->table, 1, list, count, err);
}

static void memory_place(void *self, int64_t index, uni__place *out)
{
    const struct memory *memory = self;
    *out = (uni__place){ .begin = index, .end = index + 1, .rows = 1 };
    if (memory->origin.class_ == NULL || memory->origin.class_->place == NULL)
        return;
    int64_t block = 0, behind = memory->origin.num_blocks - 1;
    while (block < behind) { /* find the first block that ends after the row */
        int64_t middle = block + (behind - block) / 2;
        if (memory->ends[middle] <= index)
            block = middle + 1;
        else
            behind = middle;
    }
    uni__place place;
    memory->origin.class_->place(memory->origin.self, block, &place);
    out->file = place.file;
}

static void memory_free(void *self)
{
    struct memory *memory = self;
    if (memory == NULL)
        return;
    uni_table_unref(memory->table);
    uni__source_free(&memory->origin);
    free(memory->ends);
    free(memory);
}

static const uni__source_class table_class = { .name = "table",
                                               .read_range = memory_range,
                                               .read_rows = memory_rows,
                                               .place = memory_place,
                                               .free = memory_free };
static const uni__source_class loaded_class = { .name = "small file, loaded",
                                                .read_range = memory_range,
                                                .read_rows = memory_rows,
                                                .place = memory_place,
                                                .free = memory_free };

/* Every epoch hands out the same elements, so mark their arrays as shared. */
static void mark_shared(const uni_table *table)
{
    for (int i = 0; i < uni_table_num_columns(table); i++) {
        const uni_table_column *column = uni_table_column_at(table, i);
        uni_array *const parts[] = { column->values, column->offsets, column->valid };
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
            if (parts[k] != NULL)
                uni__array_mark_shared(parts[k]);
    }
}

int uni__table_source(uni__source *out, uni_table *table, uni_error *err)
{
    int64_t rows = uni_table_num_rows(table);
    if (rows > INT32_MAX)
        return uni_error_set(err, UNI_ELIMIT, "a table in memory has at most %d rows, not %lld",
                             INT32_MAX, (long long)rows);
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    memory->table = uni_table_ref(table);
    mark_shared(table);
    *out = (uni__source){ .class_ = &table_class,
                          .self = memory,
                          .kind = UNI__SOURCE_INDEXED,
                          .num_rows = rows,
                          .bytes = (int64_t)uni__table_bytes(table),
                          .in_memory = true,
                          .views = true };
    out->row_bytes = rows > 0 ? out->bytes / rows : 0;
    int status = uni__table_empty(&out->schema, table, err);
    if (status < 0)
        memory_free(memory);
    return status;
}

int uni__loaded_source(uni__source *out, uni_table *table, const uni__source *origin, int64_t *ends,
                       uni_error *err)
{
    UNI_TRY(uni__table_source(out, table, err));
    struct memory *memory = out->self;
    memory->origin = *origin;
    memory->ends = ends;
    out->class_ = &loaded_class;
    out->bytes = origin->bytes;
    return 0;
}

int uni_dataset_from_table(uni_dataset **out, uni_table *table, uni_error *err)
{
    *out = NULL;
    if (table == NULL)
        return uni_error_set(err, UNI_EINVAL, "there is no table to make a dataset of");
    uni__source source;
    UNI_TRY(uni__table_source(&source, table, err));
    return uni__dataset_from_source(out, &source, NULL, err);
}

int uni_dataset_from_arrays(uni_dataset **out, int count, const char *const *names,
                            uni_array *const *arrays, uni_error *err)
{
    *out = NULL;
    if (count < 1 || names == NULL || arrays == NULL || arrays[0] == NULL ||
        uni_array_ndim(arrays[0]) < 1)
        return uni_error_set(err, UNI_EINVAL,
                             "a dataset of arrays needs names and at least one array, with an axis "
                             "of rows");
    uni_table *table = NULL;
    int status = 0;
    UNI_TRY(uni_table_new(&table, uni_array_shape(arrays[0])[0], err));
    for (int i = 0; i < count; i++)
        UNI_TRY_GOTO(uni_table_add_array(table, names[i], arrays[i], err), done);
    status = uni_dataset_from_table(out, table, err);
done:
    uni_table_unref(table);
    return status;
}

int uni_dataset_from_items(uni_dataset **out, const uni_value *items, uni_error *err)
{
    *out = NULL;
    uni_table *table = NULL;
    UNI_TRY(uni_table_from_rows(&table, items, NULL, err));
    int status = uni_dataset_from_table(out, table, err);
    uni_table_unref(table);
    return status;
}
