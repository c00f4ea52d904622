/*
 * build.c - builds tables row by row (build.h). One thread.
 */
#include "data/sources/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/sources/whole.h"
#include "data/table/matrix.h"
#include "data/table/table.h"

static int begin_column(uni__build *build, uni__build_column *column, int64_t text_bytes,
                        uni_error *err)
{
    int64_t shape[UNI_MAX_DIMS] = { build->max_rows };
    const uni_field *field = &column->field;
    column->row_elements = (int64_t)uni__matrix_width(field);
    if (field->kind == UNI_FIELD_NUMBER) {
        for (int i = 0; i < field->ndim; i++)
            shape[i + 1] = field->shape[i];
        return uni__reader_array(build->reader, &column->values, field->dtype, field->ndim + 1,
                                 shape, err);
    }
    shape[0] = build->max_rows + 1;
    UNI_TRY(uni__reader_array(build->reader, &column->offsets, UNI_I64, 1, shape, err));
    *(int64_t *)uni_array_data(column->offsets) = 0;
    column->room = text_bytes / (int64_t)uni_dtype_size(field->dtype) + 64;
    return uni__reader_array(build->reader, &column->values, field->dtype, 1, &column->room, err);
}

int uni__build_begin(uni__build *build, uni__reader *reader, const uni_table *schema,
                     int64_t max_rows, int64_t bytes, uni_error *err)
{
    int count = uni_table_num_columns(schema), texts = 1, status = 0;
    *build = (uni__build){ .reader = reader, .num_columns = count, .max_rows = max_rows };
    build->columns = calloc((size_t)count + 1, sizeof *build->columns);
    if (build->columns == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a table of %d columns", count);
    for (int i = 0; i < count; i++) {
        build->columns[i].field = uni_table_column_at(schema, i)->field;
        texts += build->columns[i].field.kind != UNI_FIELD_NUMBER;
        if (uni__name_index_grow(&build->names, &build->columns->field.name, sizeof *build->columns,
                                 (size_t)i + 1) < 0) {
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a table of %d columns", count);
            goto fail;
        }
    }
    for (int i = 0; i < count; i++) {
        if (build->columns[i].field.kind != UNI_FIELD_OBJECT)
            continue;
        status = uni_error_set(err, UNI_EDTYPE, "column %s: no file holds objects",
                               build->columns[i].field.name);
        goto fail;
    }
    for (int i = 0; i < count; i++)
        UNI_TRY_GOTO(begin_column(build, &build->columns[i], bytes / texts, err), fail);
    return 0;
fail:
    uni__build_free(build);
    return status;
}

void uni__build_free(uni__build *build)
{
    for (int i = 0; i < build->num_columns && build->columns != NULL; i++) {
        uni_array_unref(build->columns[i].values);
        uni_array_unref(build->columns[i].offsets);
        uni_array_unref(build->columns[i].valid);
    }
    free(build->columns);
    uni__name_index_free(&build->names);
    *build = (uni__build){ 0 };
}

int uni__build_find(const uni__build *build, const char *name, size_t length)
{
    return uni__name_index_find_n(&build->names, &build->columns->field.name,
                                  sizeof *build->columns, (size_t)build->num_columns, name, length);
}

/* ---- numbers ---- */

static bool store_int(void *values, uni_dtype dtype, int64_t index, int64_t value)
{
    switch (dtype) {
    case UNI_F32:
        ((float *)values)[index] = (float)value;
        return true;
    case UNI_F64:
        ((double *)values)[index] = (double)value;
        return true;
    case UNI_B8:
        return (value == 0 || value == 1) && uni__store_whole(values, UNI_U8, index, value);
    default:
        return uni__store_whole(values, dtype, index, value);
    }
}

/* Returns false if the type cannot hold the value. Floating-point columns take every number,
 * rounded. */
static bool store(void *values, uni_dtype dtype, int64_t index, double value)
{
    if (dtype == UNI_F32) {
        ((float *)values)[index] = (float)value;
        return true;
    }
    if (dtype == UNI_F64) {
        ((double *)values)[index] = value;
        return true;
    }
    /* Only integral values in the range of int64; NaN fails both tests. */
    if (!(value >= -0x1p63 && value < 0x1p63) || value != (double)(int64_t)value)
        return false;
    return store_int(values, dtype, index, (int64_t)value);
}

void *uni__build_row(uni__build *build, int column)
{
    uni__build_column *c = &build->columns[column];
    c->put = true;
    return (char *)uni_array_data(c->values) +
           (size_t)(build->num_rows * c->row_elements) * uni_dtype_size(c->field.dtype);
}

bool uni__build_put_int(uni__build *build, int column, int64_t index, int64_t value)
{
    return store_int(uni__build_row(build, column), build->columns[column].field.dtype, index,
                     value);
}

bool uni__build_put_float(uni__build *build, int column, int64_t index, double value)
{
    return store(uni__build_row(build, column), build->columns[column].field.dtype, index, value);
}

/* ---- strings, bytes and lists ---- */

int uni__build_reserve(uni__build *build, int column, int64_t elements, void **out, uni_error *err)
{
    uni__build_column *c = &build->columns[column];
    size_t size = uni_dtype_size(c->field.dtype);
    if (c->room - c->used < elements) {
        int64_t room = (c->used + elements) * 2;
        uni_array *values = NULL;
        UNI_TRY(uni__reader_array(build->reader, &values, c->field.dtype, 1, &room, err));
        memcpy(uni_array_data(values), uni_array_data(c->values), (size_t)c->used * size);
        uni_array_unref(c->values);
        c->values = values;
        c->room = room;
    }
    *out = (char *)uni_array_data(c->values) + (size_t)c->used * size;
    return 0;
}

void uni__build_used(uni__build *build, int column, int64_t elements)
{
    build->columns[column].used += elements;
    build->columns[column].put = true;
}

int uni__build_put_bytes(uni__build *build, int column, const void *data, size_t size,
                         uni_error *err)
{
    void *to = NULL;
    UNI_TRY(uni__build_reserve(build, column, (int64_t)size, &to, err));
    if (size > 0)
        memcpy(to, data, size);
    uni__build_used(build, column, (int64_t)size);
    return 0;
}

int uni__build_add_float(uni__build *build, int column, double value, uni_error *err)
{
    void *to = NULL;
    UNI_TRY(uni__build_reserve(build, column, 1, &to, err));
    uni__build_used(build, column, 1);
    return store(to, build->columns[column].field.dtype, 0, value);
}

int uni__build_add_int(uni__build *build, int column, int64_t value, uni_error *err)
{
    void *to = NULL;
    UNI_TRY(uni__build_reserve(build, column, 1, &to, err));
    uni__build_used(build, column, 1);
    return store_int(to, build->columns[column].field.dtype, 0, value);
}

/* ---- rows ---- */

/* NaN in floating-point columns; otherwise 0 or empty, and not valid. */
static int put_missing(uni__build *build, int column, uni_error *err)
{
    uni__build_column *c = &build->columns[column];
    bool number = c->field.kind == UNI_FIELD_NUMBER;
    if (number && (c->field.dtype == UNI_F32 || c->field.dtype == UNI_F64)) {
        for (int64_t i = 0; i < c->row_elements; i++)
            (void)uni__build_put_float(build, column, i, NAN);
        return 0;
    }
    if (number && c->row_elements > 0)
        memset(uni__build_row(build, column), 0,
               (size_t)c->row_elements * uni_dtype_size(c->field.dtype));
    if (c->valid == NULL) {
        UNI_TRY(uni__reader_array(build->reader, &c->valid, UNI_B8, 1, &build->max_rows, err));
        memset(uni_array_data(c->valid), 1, (size_t)build->max_rows);
    }
    ((uint8_t *)uni_array_data(c->valid))[build->num_rows] = 0;
    return 0;
}

int uni__build_end_row(uni__build *build, uni_error *err)
{
    if (build->num_rows >= build->max_rows)
        return uni_error_set(err, UNI_ELIMIT, "more rows than were counted (%lld)",
                             (long long)build->max_rows);
    for (int i = 0; i < build->num_columns; i++) {
        uni__build_column *c = &build->columns[i];
        if (!c->put)
            UNI_TRY(put_missing(build, i, err));
        if (c->offsets != NULL)
            ((int64_t *)uni_array_data(c->offsets))[build->num_rows + 1] = c->used;
        c->put = false;
    }
    build->num_rows++;
    return 0;
}

void uni__build_drop_row(uni__build *build)
{
    for (int i = 0; i < build->num_columns; i++) {
        uni__build_column *c = &build->columns[i];
        c->put = false;
        if (c->offsets != NULL)
            c->used = ((const int64_t *)uni_array_data(c->offsets))[build->num_rows];
    }
}

static int finish_column(uni__build *build, uni__build_column *c, uni_table *table, uni_error *err)
{
    if (c->offsets != NULL) {
        UNI_TRY(uni__reader_trim(build->reader, &c->offsets, build->num_rows + 1, err));
        UNI_TRY(uni__reader_trim(build->reader, &c->values, c->used, err));
    } else {
        UNI_TRY(uni__reader_trim(build->reader, &c->values, build->num_rows, err));
    }
    if (c->valid != NULL)
        UNI_TRY(uni__reader_trim(build->reader, &c->valid, build->num_rows, err));
    return uni_table_add(
        table,
        &(uni_table_column){
            .field = c->field, .values = c->values, .offsets = c->offsets, .valid = c->valid },
        err);
}

int uni__build_finish(uni__build *build, uni_table **out, uni_error *err)
{
    int status;
    *out = NULL;
    UNI_TRY_GOTO(uni_table_new(out, build->num_rows, err), fail);
    for (int i = 0; i < build->num_columns; i++)
        UNI_TRY_GOTO(finish_column(build, &build->columns[i], *out, err), fail);
    uni__build_free(build);
    return 0;
fail:
    uni_table_unref(*out);
    *out = NULL;
    uni__build_free(build);
    return status;
}

int uni__build_schema(uni_table **out, const uni_field *fields, int count, uni_error *err)
{
    int status;
    *out = NULL;
    UNI_TRY(uni_table_new(out, 0, err));
    for (int i = 0; i < count; i++)
        UNI_TRY_GOTO(uni__table_add_field(*out, &fields[i], err), fail);
    return 0;
fail:
    uni_table_unref(*out);
    *out = NULL;
    return status;
}
