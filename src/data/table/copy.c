/*
 * copy.c - gathers and concatenates rows: the copies of a shuffle. Works column by column, so that
 * each inner loop has one width; rows of 1, 2, 4 and 8 bytes have specialized loops. Any thread.
 */
#include <stdlib.h>
#include <string.h>
#include "data/shared.h"
#include "data/sources/source.h"
#include "data/table/table.h"

static int new_array(struct uni__reader *reader, uni_array **out, uni_dtype dtype, int ndim,
                     const int64_t *shape, uni_error *err)
{
    return reader != NULL ? uni__reader_array(reader, out, dtype, ndim, shape, err)
                          : uni_array_new(out, dtype, ndim, shape, err);
}

static int new_numbers(struct uni__reader *reader, uni_array **out, const uni_field *field,
                       int64_t rows, uni_error *err)
{
    int64_t shape[UNI_MAX_DIMS] = { rows };
    for (int i = 0; i < field->ndim; i++)
        shape[i + 1] = field->shape[i];
    return new_array(reader, out, field->dtype, field->ndim + 1, shape, err);
}

/* ---- gather ---- */

/* One gather: the tables, the current column, the rows. */
struct gather {
    uni_table *const *tables;
    int num_tables;
    int column;
    const uni__row *rows;
    int64_t count;
};

static const uni_table_column *column_of(const struct gather *gather, int table)
{
    return uni_table_column_at(gather->tables[table], gather->column);
}

/* Local copies of loop invariants: as far as the compiler knows, a store could change the
 * originals. */
#define GATHER_LOOP(type)                                                                          \
    do {                                                                                           \
        type *restrict to = out;                                                                   \
        for (int64_t i = 0; i < count; i++)                                                        \
            to[i] = ((const type *)from[rows[i].table])[rows[i].row];                              \
    } while (0)

static void gather_fixed(const struct gather *gather, const void *const *from, size_t width,
                         void *out)
{
    const uni__row *restrict rows = gather->rows;
    const int64_t count = gather->count;
    switch (width) {
    case 1:
        GATHER_LOOP(uint8_t);
        return;
    case 2:
        GATHER_LOOP(uint16_t);
        return;
    case 4:
        GATHER_LOOP(uint32_t);
        return;
    case 8:
        GATHER_LOOP(uint64_t);
        return;
    default: {
        char *to = out;
        for (int64_t i = 0; i < count; i++, to += width)
            memcpy(to, (const char *)from[rows[i].table] + (size_t)rows[i].row * width, width);
    }
    }
}

static int gather_varying(const struct gather *gather, struct uni__reader *reader,
                          uni_table_column *made, uni_error *err)
{
    UNI_TRY(
        new_array(reader, &made->offsets, UNI_I64, 1, (const int64_t[]){ gather->count + 1 }, err));
    int64_t *offsets = uni_array_data(made->offsets), total = 0;
    for (int64_t i = 0; i < gather->count; i++) {
        const int64_t *from = uni_array_data(column_of(gather, gather->rows[i].table)->offsets);
        offsets[i] = total;
        total += from[gather->rows[i].row + 1] - from[gather->rows[i].row];
    }
    offsets[gather->count] = total;
    size_t width = uni_dtype_size(made->field.dtype);
    UNI_TRY(
        new_array(reader, &made->values, made->field.dtype, 1, (const int64_t[]){ total }, err));
    char *to = uni_array_data(made->values);
    for (int64_t i = 0; i < gather->count; i++) {
        const uni_table_column *column = column_of(gather, gather->rows[i].table);
        const int64_t *from = uni_array_data(column->offsets);
        size_t size = (size_t)(offsets[i + 1] - offsets[i]) * width;
        if (size > 0)
            memcpy(to + (size_t)offsets[i] * width,
                   (const char *)uni_array_data(column->values) +
                       (size_t)from[gather->rows[i].row] * width,
                   size);
    }
    return 0;
}

static int gather_valid(const struct gather *gather, struct uni__reader *reader,
                        uni_table_column *made, uni_error *err)
{
    bool any = false;
    for (int i = 0; i < gather->num_tables; i++)
        any = any || column_of(gather, i)->valid != NULL;
    if (!any)
        return 0;
    UNI_TRY(new_array(reader, &made->valid, UNI_B8, 1, (const int64_t[]){ gather->count }, err));
    uint8_t *to = uni_array_data(made->valid);
    for (int64_t i = 0; i < gather->count; i++) {
        const uni_array *valid = column_of(gather, gather->rows[i].table)->valid;
        to[i] = valid == NULL || ((const uint8_t *)uni_array_data(valid))[gather->rows[i].row];
    }
    return 0;
}

static int gather_column(const struct gather *gather, struct uni__reader *reader, uni_table *out,
                         uni_error *err)
{
    uni_table_column made = { .field = column_of(gather, 0)->field };
    const void *few[64];
    int status = 0;
    if (made.field.kind == UNI_FIELD_NUMBER) {
        UNI_TRY(new_numbers(reader, &made.values, &made.field, gather->count, err));
        const void **from = few, **many = NULL;
        if (gather->num_tables > 64) {
            many = reallocarray(NULL, (size_t)gather->num_tables, sizeof *many);
            if (many == NULL) {
                status = uni_error_set(err, UNI_ENOMEM, "no memory to gather rows");
                goto done;
            }
            from = many;
        }
        for (int i = 0; i < gather->num_tables; i++)
            from[i] = uni_array_data(column_of(gather, i)->values);
        gather_fixed(gather, from, uni__field_row_bytes(&made.field), uni_array_data(made.values));
        free(many);
    } else {
        UNI_TRY_GOTO(gather_varying(gather, reader, &made, err), done);
    }
    UNI_TRY_GOTO(gather_valid(gather, reader, &made, err), done);
    status = uni_table_add(out, &made, err);
done:
    uni_array_unref(made.values);
    uni_array_unref(made.offsets);
    uni_array_unref(made.valid);
    return status;
}

int uni__table_gather(uni_table **out, struct uni__reader *reader, uni_table *const *tables,
                      int num_tables, const uni__row *rows, int64_t count, uni_error *err)
{
    *out = NULL;
    uni_table *made = NULL;
    UNI_TRY(uni_table_new(&made, count, err));
    struct gather gather = {
        .tables = tables, .num_tables = num_tables, .rows = rows, .count = count
    };
    for (int i = 0; i < uni_table_num_columns(tables[0]); i++) {
        gather.column = i;
        int status = gather_column(&gather, reader, made, err);
        if (status < 0) {
            uni_table_unref(made);
            return status;
        }
    }
    *out = made;
    return 0;
}

int uni__table_pick(uni_table **out, const uni_table *table, const int64_t *rows, int64_t count,
                    uni_error *err)
{
    *out = NULL;
    int64_t num_rows = uni_table_num_rows(table);
    if (num_rows > INT32_MAX)
        return uni_error_set(err, UNI_ELIMIT, "rows can be gathered from at most %d", INT32_MAX);
    uni__row *list = reallocarray(NULL, (size_t)count + 1, sizeof *list);
    if (list == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to gather %lld rows", (long long)count);
    int status = 0;
    for (int64_t i = 0; i < count && status == 0; i++) {
        if (rows[i] < 0 || rows[i] >= num_rows)
            status = uni_error_set(err, UNI_EINVAL, "row %lld of a table of %lld rows",
                                   (long long)rows[i], (long long)num_rows);
        list[i] = (uni__row){ .table = 0, .row = (int32_t)rows[i] };
    }
    if (status == 0) {
        uni_table *one = (uni_table *)table;
        status = uni__table_gather(out, NULL, &one, 1, list, count, err);
    }
    free(list);
    return status;
}

/* ---- concat ---- */

struct join {
    uni_table *const *tables;
    int count, column;
    int64_t rows;
};

static const uni_table_column *joined(const struct join *join, int table)
{
    return uni_table_column_at(join->tables[table], join->column);
}

static int join_numbers(const struct join *join, struct uni__reader *reader, uni_table_column *made,
                        uni_error *err)
{
    UNI_TRY(new_numbers(reader, &made->values, &made->field, join->rows, err));
    char *to = uni_array_data(made->values);
    for (int i = 0; i < join->count; i++) {
        size_t size = uni_array_bytes(joined(join, i)->values);
        if (size > 0)
            memcpy(to, uni_array_data(joined(join, i)->values), size);
        to += size;
    }
    return 0;
}

static int join_varying(const struct join *join, struct uni__reader *reader, uni_table_column *made,
                        uni_error *err)
{
    UNI_TRY(
        new_array(reader, &made->offsets, UNI_I64, 1, (const int64_t[]){ join->rows + 1 }, err));
    int64_t *offsets = uni_array_data(made->offsets), total = 0, row = 0;
    for (int i = 0; i < join->count; i++) {
        const int64_t *from = uni_array_data(joined(join, i)->offsets);
        int64_t rows = uni_table_num_rows(join->tables[i]);
        for (int64_t j = 0; j < rows; j++)
            offsets[row++] = total + from[j] - from[0];
        total += from[rows] - from[0];
    }
    offsets[join->rows] = total;
    size_t width = uni_dtype_size(made->field.dtype);
    UNI_TRY(
        new_array(reader, &made->values, made->field.dtype, 1, (const int64_t[]){ total }, err));
    char *to = uni_array_data(made->values);
    for (int i = 0; i < join->count; i++) {
        const int64_t *from = uni_array_data(joined(join, i)->offsets);
        size_t size = (size_t)(from[uni_table_num_rows(join->tables[i])] - from[0]) * width;
        /* All tables may be empty; then there is no `to`. */
        if (size == 0)
            continue;
        memcpy(to, (char *)uni_array_data(joined(join, i)->values) + (size_t)from[0] * width, size);
        to += size;
    }
    return 0;
}

static int join_valid(const struct join *join, struct uni__reader *reader, uni_table_column *made,
                      uni_error *err)
{
    bool any = false;
    for (int i = 0; i < join->count; i++)
        any = any || joined(join, i)->valid != NULL;
    if (!any)
        return 0;
    UNI_TRY(new_array(reader, &made->valid, UNI_B8, 1, (const int64_t[]){ join->rows }, err));
    uint8_t *to = uni_array_data(made->valid);
    for (int i = 0; i < join->count; i++) {
        size_t rows = (size_t)uni_table_num_rows(join->tables[i]);
        if (rows > 0 && joined(join, i)->valid != NULL)
            memcpy(to, uni_array_data(joined(join, i)->valid), rows);
        else
            memset(to, 1, rows);
        to += rows;
    }
    return 0;
}

static int join_column(const struct join *join, struct uni__reader *reader, uni_table *out,
                       uni_error *err)
{
    uni_table_column made = { .field = joined(join, 0)->field };
    int status = made.field.kind == UNI_FIELD_NUMBER ? join_numbers(join, reader, &made, err)
                                                     : join_varying(join, reader, &made, err);
    if (status == 0)
        status = join_valid(join, reader, &made, err);
    if (status == 0)
        status = uni_table_add(out, &made, err);
    uni_array_unref(made.values);
    uni_array_unref(made.offsets);
    uni_array_unref(made.valid);
    return status;
}

static const char differing[] =
    "tables that are put together (a function must return the same columns "
    "and types for every batch)";

/* Concatenates the tables that have rows. Empty ones may lack columns, or have those from before a
 * function that never ran. */
static int concat_some(uni_table **out, struct uni__reader *reader, uni_table *const *tables,
                       int count, uni_error *err)
{
    uni_table **some = malloc((size_t)count * sizeof(uni_table *));
    int kept = 0;
    if (some == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to put tables together");
    for (int i = 0; i < count; i++) {
        if (uni_table_num_rows(tables[i]) > 0)
            some[kept++] = tables[i];
    }
    int status = uni__table_concat(out, reader, kept > 0 ? some : tables, kept > 0 ? kept : 1, err);
    free(some);
    return status;
}

int uni__table_concat(uni_table **out, struct uni__reader *reader, uni_table *const *tables,
                      int count, uni_error *err)
{
    *out = NULL;
    if (count < 1)
        return uni_error_set(err, UNI_EINVAL, "there are no tables to put together");
    if (count == 1) {
        *out = uni_table_ref(tables[0]);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        if (uni_table_num_rows(tables[i]) == 0)
            return concat_some(out, reader, tables, count, err);
    }
    struct join join = { .tables = tables, .count = count };
    for (int i = 0; i < count; i++) {
        UNI_TRY(uni__table_same_fields(tables[0], tables[i], differing, err));
        join.rows += uni_table_num_rows(tables[i]);
    }
    uni_table *made = NULL;
    UNI_TRY(uni_table_new(&made, join.rows, err));
    for (int i = 0; i < uni_table_num_columns(tables[0]); i++) {
        join.column = i;
        int status = join_column(&join, reader, made, err);
        if (status < 0) {
            uni_table_unref(made);
            return status;
        }
    }
    *out = made;
    return 0;
}

int uni__table_join(uni_table **out, struct uni__reader *reader, uni_table **parts, int count,
                    int status, uni_error *err)
{
    if (status == 0)
        status = uni__table_concat(out, reader, parts, count, err);
    for (int i = 0; i < count; i++)
        uni_table_unref(parts[i]);
    free(parts);
    return status;
}

int uni__table_append(uni_table **out, uni_table *const *tables, int count, uni_error *err)
{
    return uni__table_concat(out, NULL, tables, count, err);
}

static bool is_aligned(const uni_table_column *column)
{
    return column->field.kind != UNI_FIELD_NUMBER ||
           (uintptr_t)uni_array_data(column->values) % UNI__ALIGNMENT == 0;
}

int uni__table_align(uni_table **out, struct uni__reader *reader, uni_table *table, uni_error *err)
{
    struct join join = { .tables = &table, .count = 1, .rows = uni_table_num_rows(table) };
    int columns = uni_table_num_columns(table), first = 0, status = 0;
    *out = NULL;
    while (first < columns && is_aligned(uni_table_column_at(table, first)))
        first++;
    if (first == columns) {
        *out = uni_table_ref(table);
        return 0;
    }
    uni_table *made = NULL;
    UNI_TRY(uni_table_new(&made, join.rows, err));
    for (; status == 0 && join.column < columns; join.column++) {
        const uni_table_column *column = joined(&join, 0);
        status = is_aligned(column) ? uni_table_add(made, column, err)
                                    : join_column(&join, reader, made, err);
    }
    if (status < 0) {
        uni_table_unref(made);
        return status;
    }
    *out = made;
    return 0;
}

/* ---- schemas ---- */

int uni__table_add_field(uni_table *schema, const uni_field *field, uni_error *err)
{
    uni_table_column column = { .field = *field };
    int status = 0;
    if (field->kind == UNI_FIELD_NUMBER) {
        UNI_TRY_GOTO(new_numbers(NULL, &column.values, field, 0, err), done);
    } else {
        uni_dtype dtype = field->kind == UNI_FIELD_LIST ? field->dtype : UNI_U8;
        UNI_TRY_GOTO(uni_array_new(&column.values, dtype, 1, (const int64_t[]){ 0 }, err), done);
        UNI_TRY_GOTO(uni_array_new(&column.offsets, UNI_I64, 1, (const int64_t[]){ 1 }, err), done);
    }
    status = uni_table_add(schema, &column, err);
done:
    uni_array_unref(column.values);
    uni_array_unref(column.offsets);
    return status;
}

int uni__table_empty(uni_table **out, const uni_table *like, uni_error *err)
{
    *out = NULL;
    uni_table *made = NULL;
    UNI_TRY(uni_table_new(&made, 0, err));
    for (int i = 0; i < uni_table_num_columns(like); i++) {
        int status = uni__table_add_field(made, &uni_table_column_at(like, i)->field, err);
        if (status < 0) {
            uni_table_unref(made);
            return status;
        }
    }
    *out = made;
    return 0;
}
