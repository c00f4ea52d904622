/*
 * rows.c - tables from lists of dictionaries, and rows as dictionaries: the slow but convenient way
 * in and out. Any thread.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/shared.h"
#include "data/shared.h"
#include "base/text.h"
#include "data/table/table.h"

/* ---- rows as dictionaries ---- */

static uni_value *number_value(uni_dtype dtype, const void *data)
{
    switch (dtype) {
#define CASE(name, type, make)                                                                     \
    case UNI_##name: {                                                                             \
        type number;                                                                               \
        memcpy(&number, data, sizeof number);                                                      \
        return make(number);                                                                       \
    }
        CASE(F32, float, uni_value_float)
        CASE(F64, double, uni_value_float)
        CASE(I8, int8_t, uni_value_int)
        CASE(I16, int16_t, uni_value_int)
        CASE(I32, int32_t, uni_value_int)
        CASE(I64, int64_t, uni_value_int)
        CASE(U8, uint8_t, uni_value_int)
        CASE(U16, uint16_t, uni_value_int)
        CASE(U32, uint32_t, uni_value_int)
#undef CASE
    case UNI_U64: {
        uint64_t number;
        memcpy(&number, data, sizeof number);
        return number <= INT64_MAX ? uni_value_int((int64_t)number)
                                   : uni_value_float((double)number);
    }
    case UNI_B8:
        return uni_value_bool(*(const uint8_t *)data != 0);
    default:
        return NULL;
    }
}

static uni_value *array_value(uni_dtype dtype, int ndim, const int64_t *shape, const void *data)
{
    uni_array *array = NULL;
    if (uni_array_new(&array, dtype, ndim, shape, NULL) < 0)
        return NULL;
    if (uni_array_bytes(array) > 0)
        memcpy(uni_array_data(array), data, uni_array_bytes(array));
    uni_value *value = uni_value_array(array);
    uni_array_unref(array);
    return value;
}

static uni_value *cell_value(const uni_table_column *column, int64_t row)
{
    const uni_field *field = &column->field;
    if (column->valid != NULL && !((const uint8_t *)uni_array_data(column->valid))[row])
        return uni_value_null();
    const char *values = uni_array_data(column->values);
    if (field->kind == UNI_FIELD_NUMBER) {
        const char *data = values + (size_t)row * uni__field_row_bytes(field);
        bool plain = field->ndim == 0 && field->dtype != UNI_F16 && field->dtype != UNI_BF16;
        return plain ? number_value(field->dtype, data)
                     : array_value(field->dtype, field->ndim, field->shape, data);
    }
    const int64_t *offsets = uni_array_data(column->offsets);
    int64_t count = offsets[row + 1] - offsets[row];
    const char *data =
        count > 0 ? values + (size_t)offsets[row] * uni_dtype_size(field->dtype) : "";
    if (field->kind == UNI_FIELD_STRING)
        return uni_value_string_n(data, (size_t)count);
    if (field->kind == UNI_FIELD_BINARY || field->kind == UNI_FIELD_OBJECT)
        return uni_value_bytes(data, (size_t)count);
    return array_value(field->dtype, 1, &count, data);
}

int uni_table_row(uni_value **out, const uni_table *table, int64_t row, uni_error *err)
{
    *out = NULL;
    if (row < 0 || row >= uni_table_num_rows(table))
        return uni_error_set(err, UNI_EINVAL, "row %lld of a table of %lld rows", (long long)row,
                             (long long)uni_table_num_rows(table));
    uni_value *dict = uni_value_dict();
    for (int i = 0; i < uni_table_num_columns(table); i++) {
        const uni_table_column *column = uni_table_column_at(table, i);
        if (uni_dict_take(dict, column->field.name, cell_value(column, row)) < 0) {
            uni_value_free(dict);
            return uni_error_set(err, UNI_ENOMEM,
                                 "no memory for row %lld (or a name that is not UTF-8)",
                                 (long long)row);
        }
    }
    *out = dict;
    return dict != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a row");
}

/* ---- tables from dictionaries ---- */

/* A column under construction. */
struct making {
    const uni_value *rows;
    const char *name; /* NULL: the item itself */
    uni_field field;
    int64_t count;
    bool missing; /* some rows lack a value */
};

static const uni_value *cell_of(const struct making *making, int64_t row)
{
    const uni_value *item = uni_list_get(making->rows, (size_t)row);
    return making->name != NULL ? uni_dict_get(item, making->name) : item;
}

static const char *column_name(const struct making *making)
{
    return making->name != NULL ? making->name : "item";
}

static int no_fit(const struct making *making, int64_t row, const uni_value *cell, uni_error *err)
{
    char text[96];
    return uni_error_set(err, UNI_EDTYPE, "row %lld: column %s is a %s, but the rows before are %s",
                         (long long)row, column_name(making),
                         uni__value_type_name(uni_value_type_of(cell)),
                         uni__field_text(text, sizeof text, &making->field));
}

/* Infers the type of one cell; kind 0 if it is missing. A list of numbers is a list of float64 or
 * int64. */
static int field_of(const uni_value *cell, uni_field *out)
{
    *out = (uni_field){ .kind = UNI_FIELD_NUMBER };
    switch (uni_value_type_of(cell)) {
    case UNI_TYPE_NULL:
        out->kind = 0;
        return 0;
    case UNI_TYPE_BOOL:
        out->dtype = UNI_B8;
        return 0;
    case UNI_TYPE_INT:
        out->dtype = UNI_I64;
        return 0;
    case UNI_TYPE_FLOAT:
        out->dtype = UNI_F64;
        return 0;
    case UNI_TYPE_STRING:
        *out = (uni_field){ .kind = UNI_FIELD_STRING, .dtype = UNI_U8 };
        return 0;
    case UNI_TYPE_BYTES:
        *out = (uni_field){ .kind = UNI_FIELD_BINARY, .dtype = UNI_U8 };
        return 0;
    case UNI_TYPE_ARRAY: {
        const uni_array *array = uni_value_as_array(cell);
        out->dtype = uni_array_dtype(array);
        out->ndim = uni_array_ndim(array);
        if (out->ndim >= UNI_MAX_DIMS)
            return UNI_ESHAPE;
        for (int i = 0; i < out->ndim; i++)
            out->shape[i] = uni_array_shape(array)[i];
        return 0;
    }
    case UNI_TYPE_LIST:
        *out = (uni_field){ .kind = UNI_FIELD_LIST, .dtype = UNI_I64 };
        for (size_t i = 0; i < uni_list_size(cell); i++) {
            if (!uni_value_is_number(uni_list_get(cell, i)))
                return UNI_EDTYPE;
            if (uni_value_type_of(uni_list_get(cell, i)) == UNI_TYPE_FLOAT)
                out->dtype = UNI_F64;
        }
        return 0;
    default:
        return UNI_EDTYPE;
    }
}

/* Widens `known` to hold both types. */
static bool join_fields(uni_field *known, const uni_field *other)
{
    if (uni__field_same_type(known, other))
        return true;
    bool scalars = known->kind == other->kind && known->ndim == 0 && other->ndim == 0;
    if (scalars && (known->kind == UNI_FIELD_NUMBER || known->kind == UNI_FIELD_LIST) &&
        known->dtype != UNI_B8 && other->dtype != UNI_B8) {
        known->dtype = UNI_F64;
        return true;
    }
    if (known->kind == UNI_FIELD_NUMBER && other->kind == UNI_FIELD_NUMBER && known->ndim == 1 &&
        other->ndim == 1 && known->dtype == other->dtype) {
        known->kind = UNI_FIELD_LIST; /* arrays of different lengths */
        known->ndim = 0;
        return true;
    }
    return known->kind == UNI_FIELD_LIST && other->kind == UNI_FIELD_NUMBER && other->ndim == 1 &&
           known->dtype == other->dtype;
}

static int find_field(struct making *making, uni_error *err)
{
    making->field = (uni_field){ .name = column_name(making) };
    for (int64_t row = 0; row < making->count; row++) {
        const uni_value *cell = cell_of(making, row);
        uni_field field;
        if (field_of(cell, &field) < 0)
            return uni_error_set(
                err, UNI_EDTYPE,
                "row %lld: column %s is a %s of something else than numbers, which "
                "has no column",
                (long long)row, column_name(making), uni__value_type_name(uni_value_type_of(cell)));
        field.name = making->field.name;
        if (field.kind == 0)
            making->missing = true;
        else if (making->field.kind == 0)
            making->field = field;
        else if (!join_fields(&making->field, &field))
            return no_fit(making, row, cell, err);
    }
    if (making->field.kind == 0) { /* only null */
        making->field.kind = UNI_FIELD_NUMBER;
        making->field.dtype = UNI_F64;
    }
    return 0;
}

static void put_number(void *to, uni_dtype dtype, const uni_value *cell)
{
    assert(to != NULL);
    double real = uni_value_as_float(cell, (double)NAN);
    int64_t whole = uni_value_as_int(cell, 0);
    switch (dtype) {
#define CASE(name, type, from)                                                                     \
    case UNI_##name: {                                                                             \
        type number = (type)(from);                                                                \
        memcpy(to, &number, sizeof number);                                                        \
        return;                                                                                    \
    }
        CASE(F32, float, real)
        CASE(F64, double, real)
        CASE(I8, int8_t, whole)
        CASE(I16, int16_t, whole)
        CASE(I32, int32_t, whole)
        CASE(I64, int64_t, whole)
        CASE(U8, uint8_t, whole)
        CASE(U16, uint16_t, whole)
        CASE(U32, uint32_t, whole)
        CASE(U64, uint64_t, whole)
        CASE(B8, uint8_t, uni_value_as_bool(cell, whole != 0))
#undef CASE
    default:
        memset(to, 0, uni_dtype_size(dtype));
    }
}

static int fill_numbers(const struct making *making, uni_table_column *column, uni_error *err)
{
    const uni_field *field = &making->field;
    int64_t shape[UNI_MAX_DIMS] = { making->count };
    for (int i = 0; i < field->ndim; i++)
        shape[i + 1] = field->shape[i];
    UNI_TRY(uni_array_new(&column->values, field->dtype, field->ndim + 1, shape, err));
    size_t bytes = uni__field_row_bytes(field);
    char *to = uni_array_data(column->values);
    for (int64_t row = 0; row < making->count; row++, to += bytes) {
        const uni_value *cell = cell_of(making, row);
        const uni_array *array = uni_value_as_array(cell);
        if (array == NULL && field->ndim > 0) {
            if (uni_value_type_of(cell) != UNI_TYPE_NULL)
                return no_fit(making, row, cell, err);
        } else if (array != NULL) {
            if (uni_array_bytes(array) != bytes || uni_array_dtype(array) != field->dtype)
                return no_fit(making, row, cell, err);
            memcpy(to, uni_array_data(array), bytes);
        } else {
            if (uni_value_type_of(cell) != UNI_TYPE_NULL && !uni_value_is_number(cell))
                return no_fit(making, row, cell, err);
            put_number(to, field->dtype, cell);
        }
    }
    return 0;
}

static size_t cell_size(const uni_value *cell)
{
    size_t size = 0;
    if (uni_value_as_array(cell) != NULL)
        return uni_array_count(uni_value_as_array(cell));
    if (uni_value_type_of(cell) == UNI_TYPE_LIST)
        return uni_list_size(cell);
    (void)uni_value_as_bytes(cell, &size);
    return size;
}

static int put_varying(const struct making *making, int64_t row, char *to, uni_error *err)
{
    const uni_value *cell = cell_of(making, row);
    const uni_array *array = uni_value_as_array(cell);
    size_t size = 0, width = uni_dtype_size(making->field.dtype);
    const void *bytes = uni_value_as_bytes(cell, &size);
    bool list = making->field.kind == UNI_FIELD_LIST;
    if (uni_value_type_of(cell) == UNI_TYPE_NULL)
        return 0;
    assert(to != NULL || cell_size(cell) == 0); /* an array without elements has no data */
    if (!list && bytes != NULL) {
        if (to != NULL)
            memcpy(to, bytes, size);
    } else if (list && array != NULL && uni_array_dtype(array) == making->field.dtype) {
        if (to != NULL && uni_array_bytes(array) > 0)
            memcpy(to, uni_array_data(array), uni_array_bytes(array));
    } else if (list && uni_value_type_of(cell) == UNI_TYPE_LIST) {
        for (size_t i = 0; i < uni_list_size(cell); i++)
            put_number(to + i * width, making->field.dtype, uni_list_get(cell, i));
    } else {
        return no_fit(making, row, cell, err);
    }
    return 0;
}

static int fill_varying(const struct making *making, uni_table_column *column, uni_error *err)
{
    UNI_TRY(
        uni_array_new(&column->offsets, UNI_I64, 1, (const int64_t[]){ making->count + 1 }, err));
    int64_t *offsets = uni_array_data(column->offsets);
    for (int64_t row = 0; row < making->count; row++)
        offsets[row + 1] = offsets[row] + (int64_t)cell_size(cell_of(making, row));
    UNI_TRY(uni_array_new(&column->values, making->field.dtype, 1,
                          (const int64_t[]){ offsets[making->count] }, err));
    char *to = uni_array_data(column->values);
    size_t width = uni_dtype_size(making->field.dtype);
    for (int64_t row = 0; row < making->count; row++)
        UNI_TRY(
            put_varying(making, row, to != NULL ? to + (size_t)offsets[row] * width : NULL, err));
    return 0;
}

static int fill_valid(const struct making *making, uni_table_column *column, uni_error *err)
{
    bool real = making->field.kind == UNI_FIELD_NUMBER &&
                (making->field.dtype == UNI_F64 || making->field.dtype == UNI_F32);
    if (!making->missing || real)
        return 0;
    UNI_TRY(uni_array_new(&column->valid, UNI_B8, 1, (const int64_t[]){ making->count }, err));
    uint8_t *valid = uni_array_data(column->valid);
    for (int64_t row = 0; row < making->count; row++)
        valid[row] = uni_value_type_of(cell_of(making, row)) != UNI_TYPE_NULL;
    return 0;
}

static int make_column(uni_table *table, struct making *making, const uni_field *like,
                       uni_error *err)
{
    UNI_TRY(find_field(making, err));
    if (like != NULL && like->kind == UNI_FIELD_OBJECT)
        return uni_error_set(err, UNI_EDTYPE, "column %s holds objects, which no row is made into",
                             like->name);
    if (like != NULL)
        making->field = *like;
    uni_table_column column = { .field = making->field };
    int status = making->field.kind == UNI_FIELD_NUMBER ? fill_numbers(making, &column, err)
                                                        : fill_varying(making, &column, err);
    if (status == 0)
        status = fill_valid(making, &column, err);
    if (status == 0)
        status = uni_table_add(table, &column, err);
    uni_array_unref(column.values);
    uni_array_unref(column.offsets);
    uni_array_unref(column.valid);
    return status;
}

int uni_table_from_rows(uni_table **out, const uni_value *rows, const uni_table *like,
                        uni_error *err)
{
    *out = NULL;
    if (uni_value_type_of(rows) != UNI_TYPE_LIST)
        return uni_error_set(err, UNI_EINVAL, "rows must be a list, not a %s",
                             uni__value_type_name(uni_value_type_of(rows)));
    const uni_value *first = uni_list_get(rows, 0);
    int64_t count = (int64_t)uni_list_size(rows);
    bool dicts = uni_value_type_of(first) == UNI_TYPE_DICT || (first == NULL && like != NULL);
    int columns = like != NULL ? uni_table_num_columns(like)
                  : dicts      ? (int)uni_dict_size(first)
                               : 1;
    uni_table *table = NULL;
    UNI_TRY(uni_table_new(&table, count, err));
    for (int i = 0; i < columns; i++) {
        const uni_field *field = like != NULL ? &uni_table_column_at(like, i)->field : NULL;
        struct making making = { .rows = rows,
                                 .count = count,
                                 .name = !dicts          ? NULL
                                         : field != NULL ? field->name
                                                         : uni_dict_key_at(first, (size_t)i) };
        int status = make_column(table, &making, field, err);
        if (status < 0) {
            uni_table_unref(table);
            return status;
        }
    }
    *out = table;
    return 0;
}
