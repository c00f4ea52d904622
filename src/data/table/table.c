/*
 * table.c - tables: columns on arrays, and new tables made from them: slices (views), gathers and
 * concatenations (copies). One thread fills a table with uni_table_add; from then on it is
 * read-only, and any number of threads may hold it.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/table/name_index.h"
#include "data/table/table.h"

#include "base/shared.h"
#include "data/shared.h"

struct uni_table {
    atomic_size_t references;
    int64_t num_rows;
    int num_columns;
    uni_table_column *columns; /* field.name is owned, unless `named` is set */
    uni__name_index names;
    uni_table *named; /* the table this is a slice of, which owns the names and the index */
};

int uni_table_new(uni_table **out, int64_t num_rows, uni_error *err)
{
    *out = NULL;
    if (num_rows < 0)
        return uni_error_set(err, UNI_EINVAL, "a table cannot have %lld rows", (long long)num_rows);
    uni_table *table = malloc(sizeof *table); /* calloc bypasses the thread's own cache */
    if (table == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a table");
    *table = (uni_table){ .num_rows = num_rows };
    atomic_init(&table->references, 1);
    *out = table;
    return 0;
}

uni_table *uni_table_ref(uni_table *table)
{
    if (table != NULL)
        atomic_fetch_add(&table->references, 1);
    return table;
}

void uni_table_unref(uni_table *table)
{
    if (table == NULL || atomic_fetch_sub(&table->references, 1) > 1)
        return;
    for (int i = 0; i < table->num_columns; i++) {
        uni_table_column *column = &table->columns[i];
        uni_array_unref(column->values);
        uni_array_unref(column->offsets);
        uni_array_unref(column->valid);
        if (table->named == NULL)
            free((char *)column->field.name);
    }
    uni_table_unref(table->named);
    free(table->columns);
    uni__name_index_free(&table->names);
    free(table);
}

/* ---- adding ---- */

static bool is_vector(const uni_array *array, uni_dtype dtype, int64_t length)
{
    return array != NULL && uni_array_dtype(array) == dtype && uni_array_ndim(array) == 1 &&
           uni_array_shape(array)[0] == length;
}

static int check_number(const uni_table *table, const uni_table_column *column, uni_error *err)
{
    const uni_field *field = &column->field;
    const uni_array *values = column->values;
    bool fits = uni_array_dtype(values) == field->dtype &&
                uni_array_ndim(values) == field->ndim + 1 &&
                uni_array_shape(values)[0] == table->num_rows && column->offsets == NULL;
    for (int i = 0; fits && i < field->ndim; i++)
        fits = uni_array_shape(values)[i + 1] == field->shape[i];
    if (fits)
        return 0;
    char text[96];
    return uni_error_set(err, UNI_ESHAPE,
                         "column %s is %s in a table of %lld rows, but its array has %d dimensions "
                         "of %s and %lld rows",
                         field->name, uni__field_text(text, sizeof text, field),
                         (long long)table->num_rows, uni_array_ndim(values),
                         uni_dtype_name(uni_array_dtype(values)),
                         uni_array_ndim(values) > 0 ? (long long)uni_array_shape(values)[0] : 1LL);
}

static int check_varying(const uni_table *table, const uni_table_column *column, uni_error *err)
{
    const uni_field *field = &column->field;
    uni_dtype dtype = field->kind == UNI_FIELD_LIST ? field->dtype : UNI_U8;
    if (uni_array_ndim(column->values) != 1 || uni_array_dtype(column->values) != dtype ||
        !is_vector(column->offsets, UNI_I64, table->num_rows + 1))
        return uni_error_set(err, UNI_ESHAPE,
                             "column %s needs a vector of %s and %lld offsets of int64",
                             field->name, uni_dtype_name(dtype), (long long)table->num_rows + 1);
    const int64_t *offsets = uni_array_data(column->offsets);
    int64_t size = uni_array_shape(column->values)[0];
    if (offsets[0] < 0 || offsets[table->num_rows] > size || offsets[0] > offsets[table->num_rows])
        return uni_error_set(err, UNI_ESHAPE, "column %s: offsets %lld to %lld of %lld elements",
                             field->name, (long long)offsets[0],
                             (long long)offsets[table->num_rows], (long long)size);
    return 0;
}

static int check_column(const uni_table *table, const uni_table_column *column, uni_error *err)
{
    const uni_field *field = &column->field;
    if (field->name == NULL || column->values == NULL)
        return uni_error_set(err, UNI_EINVAL, "a column needs a name and values");
    if (uni_table_find(table, field->name) != NULL)
        return uni_error_set(err, UNI_EEXISTS, "two columns are called %s", field->name);
    if (column->valid != NULL && !is_vector(column->valid, UNI_B8, table->num_rows))
        return uni_error_set(err, UNI_ESHAPE, "column %s: valid must be %lld bools", field->name,
                             (long long)table->num_rows);
    switch (field->kind) {
    case UNI_FIELD_NUMBER:
        return check_number(table, column, err);
    case UNI_FIELD_STRING:
    case UNI_FIELD_BINARY:
    case UNI_FIELD_LIST:
    case UNI_FIELD_OBJECT:
        return check_varying(table, column, err);
    }
    return uni_error_set(err, UNI_EINVAL, "column %s has no kind", field->name);
}

/* A slice that gains a column needs its own names. */
static int own_names(uni_table *table, uni_error *err)
{
    uni_table *own = NULL;
    UNI_TRY(uni_table_new(&own, table->num_rows, err));
    for (int i = 0; i < table->num_columns; i++) {
        int status = uni_table_add(own, &table->columns[i], err);
        if (status < 0) {
            uni_table_unref(own);
            return status;
        }
    }
    uni_table_column *columns = table->columns;
    table->columns = own->columns;
    table->names = own->names;
    own->columns = columns;
    own->names = (uni__name_index){ 0 };
    own->named = table->named;
    table->named = NULL;
    uni_table_unref(own);
    return 0;
}

int uni_table_add(uni_table *table, const uni_table_column *column, uni_error *err)
{
    UNI_TRY(check_column(table, column, err));
    if (table->named != NULL)
        UNI_TRY(own_names(table, err));
    size_t count = (size_t)table->num_columns;
    /* Capacity grows at 0, 8, 16, 32 ... columns. */
    if (count == 0 || (count >= 8 && (count & (count - 1)) == 0)) {
        uni_table_column *columns =
            reallocarray(table->columns, count < 8 ? 8 : 2 * count, sizeof *columns);
        if (columns == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a table of %zu columns", count);
        table->columns = columns;
    }
    char *name = strdup(column->field.name);
    if (name == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a table");
    uni_table_column *added = &table->columns[count];
    *added = *column;
    added->field.name = name;
    if (uni__name_index_grow(&table->names, &table->columns->field.name, sizeof *added, count + 1) <
        0) {
        free(name);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a table of %zu columns", count);
    }
    table->num_columns++;
    if (added->field.kind != UNI_FIELD_NUMBER && added->field.kind != UNI_FIELD_LIST)
        added->field.dtype = UNI_U8;
    uni_array_ref(added->values);
    if (added->offsets != NULL)
        uni_array_ref(added->offsets);
    if (added->valid != NULL)
        uni_array_ref(added->valid);
    return 0;
}

int uni_table_add_array(uni_table *table, const char *name, uni_array *array, uni_error *err)
{
    int ndim = array != NULL ? uni_array_ndim(array) : 0;
    if (ndim < 1)
        return uni_error_set(err, UNI_ESHAPE, "column %s needs an array with an axis of rows",
                             name);
    uni_table_column column = { .field = { .name = name,
                                           .kind = UNI_FIELD_NUMBER,
                                           .dtype = uni_array_dtype(array),
                                           .ndim = ndim - 1 },
                                .values = array };
    for (int i = 1; i < ndim; i++)
        column.field.shape[i - 1] = uni_array_shape(array)[i];
    return uni_table_add(table, &column, err);
}

/* ---- queries ---- */

int64_t uni_table_num_rows(const uni_table *table)
{
    return table->num_rows;
}

int uni_table_num_columns(const uni_table *table)
{
    return table->num_columns;
}

const uni_table_column *uni_table_column_at(const uni_table *table, int index)
{
    return index >= 0 && index < table->num_columns ? &table->columns[index] : NULL;
}

const uni_table_column *uni_table_find(const uni_table *table, const char *name)
{
    if (table->num_columns == 0)
        return NULL;
    const uni_table *named = table->named != NULL ? table->named : table;
    int place = uni__name_index_find(&named->names, &table->columns->field.name,
                                     sizeof *table->columns, (size_t)table->num_columns, name);
    return place >= 0 ? &table->columns[place] : NULL;
}

size_t uni__field_row_bytes(const uni_field *field)
{
    size_t bytes = uni_dtype_size(field->dtype);
    for (int i = 0; i < field->ndim; i++)
        bytes *= (size_t)field->shape[i];
    return bytes;
}

size_t uni__table_bytes(const uni_table *table)
{
    size_t total = 0, rows = (size_t)table->num_rows;
    for (int i = 0; i < table->num_columns; i++) {
        const uni_table_column *column = &table->columns[i];
        total += column->valid != NULL ? rows : 0;
        if (column->field.kind == UNI_FIELD_NUMBER) {
            total += rows * uni__field_row_bytes(&column->field);
        } else {
            const int64_t *offsets = uni_array_data(column->offsets);
            total += (rows + 1) * sizeof *offsets +
                     (size_t)(offsets[rows] - offsets[0]) * uni_dtype_size(column->field.dtype);
        }
    }
    return total;
}

const char *uni__field_text(char *out, size_t size, const uni_field *field)
{
    if (field->kind != UNI_FIELD_NUMBER && field->kind != UNI_FIELD_LIST) {
        snprintf(out, size, "%s",
                 field->kind == UNI_FIELD_STRING   ? "string"
                 : field->kind == UNI_FIELD_BINARY ? "binary"
                                                   : "object");
        return out;
    }
    int at = snprintf(out, size, "%s%s", field->kind == UNI_FIELD_LIST ? "list of " : "",
                      uni_dtype_name(field->dtype));
    for (int i = 0; i < field->ndim && at < (int)size; i++)
        at += snprintf(out + at, size - (size_t)at, "%s%lld%s", i == 0 ? " (" : ", ",
                       (long long)field->shape[i], i == field->ndim - 1 ? ")" : "");
    return out;
}

bool uni__field_same_type(const uni_field *a, const uni_field *b)
{
    if (a->kind != b->kind || a->dtype != b->dtype || a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] != b->shape[i])
            return false;
    }
    return true;
}

bool uni__field_equal(const uni_field *a, const uni_field *b)
{
    return strcmp(a->name, b->name) == 0 && uni__field_same_type(a, b);
}

int uni__table_same_fields(const uni_table *a, const uni_table *b, const char *what, uni_error *err)
{
    char one[96], other[96];
    if (a->num_columns != b->num_columns)
        return uni_error_set(err, UNI_ESHAPE,
                             "%s: %d columns and %d columns; they must be the same", what,
                             a->num_columns, b->num_columns);
    for (int i = 0; i < a->num_columns; i++) {
        const uni_field *x = &a->columns[i].field, *y = &b->columns[i].field;
        if (!uni__field_equal(x, y))
            return uni_error_set(
                err, UNI_EDTYPE,
                "%s: column %d is %s %s and %s %s; they must be the same (cast, rename)", what, i,
                x->name, uni__field_text(one, sizeof one, x), y->name,
                uni__field_text(other, sizeof other, y));
    }
    return 0;
}

/* ---- views ---- */

static void release_parent(void *context)
{
    uni_array_unref(context);
}

/* A view of elements [begin, begin + count) along the first axis. */
static int view_part(uni_array **out, uni_array *array, int64_t begin, int64_t count,
                     uni_error *err)
{
    int64_t shape[UNI_MAX_DIMS];
    size_t stride = uni_dtype_size(uni_array_dtype(array));
    int ndim = uni_array_ndim(array);
    for (int i = 0; i < ndim; i++) {
        shape[i] = uni_array_shape(array)[i];
        stride *= i > 0 ? (size_t)shape[i] : 1;
    }
    shape[0] = count;
    char *data = uni_array_data(array);
    UNI_TRY(uni_array_view(out, uni_array_dtype(array), ndim, shape,
                           data != NULL ? data + (size_t)begin * stride : NULL, release_parent,
                           array, err));
    uni_array_ref(array);
    if (uni__array_is_shared(array))
        uni__array_mark_shared(*out);
    return 0;
}

/* On failure the references taken so far stay in `part`, for uni_table_unref to release. */
static int slice_column(uni_table_column *part, const uni_table_column *column, int64_t begin,
                        int64_t end, uni_error *err)
{
    *part = (uni_table_column){ .field = column->field };
    if (column->field.kind == UNI_FIELD_NUMBER) {
        UNI_TRY(view_part(&part->values, column->values, begin, end - begin, err));
    } else {
        part->values = uni_array_ref(column->values);
        UNI_TRY(view_part(&part->offsets, column->offsets, begin, end - begin + 1, err));
    }
    if (column->valid != NULL)
        UNI_TRY(view_part(&part->valid, column->valid, begin, end - begin, err));
    return 0;
}

/* Shares the column names, which were checked when they were added: every batch is a slice, and a
 * table may have a thousand columns. */
int uni_table_slice(uni_table **out, uni_table *table, int64_t begin, int64_t end, uni_error *err)
{
    *out = NULL;
    if (begin < 0 || end < begin || end > table->num_rows)
        return uni_error_set(err, UNI_EINVAL, "rows %lld to %lld of a table of %lld rows",
                             (long long)begin, (long long)end, (long long)table->num_rows);
    if (begin == 0 && end == table->num_rows) {
        *out = uni_table_ref(table);
        return 0;
    }
    uni_table *part = NULL;
    UNI_TRY(uni_table_new(&part, end - begin, err));
    int status = 0;
    part->named = uni_table_ref(table->named != NULL ? table->named : table);
    part->columns = malloc(((size_t)table->num_columns + 1) * sizeof *part->columns);
    if (part->columns == NULL)
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a part of a table");
    for (; status == 0 && part->num_columns < table->num_columns; part->num_columns++)
        status = slice_column(&part->columns[part->num_columns], &table->columns[part->num_columns],
                              begin, end, err);
    if (status < 0) {
        uni_table_unref(part);
        return status;
    }
    *out = part;
    return 0;
}

int uni__table_select(uni_table **out, const uni_table *table, const char *const *names, int count,
                      uni_error *err)
{
    *out = NULL;
    uni_table *chosen = NULL;
    UNI_TRY(uni_table_new(&chosen, table->num_rows, err));
    int status = 0;
    for (int i = 0; i < count; i++) {
        const uni_table_column *column = uni_table_find(table, names[i]);
        if (column == NULL) {
            status = uni__no_such_column(table, names[i], err);
            goto fail;
        }
        UNI_TRY_GOTO(uni_table_add(chosen, column, err), fail);
    }
    *out = chosen;
    return 0;
fail:
    uni_table_unref(chosen);
    return status;
}

int uni__no_such_column(const uni_table *table, const char *name, uni_error *err)
{
    char list[400] = "";
    int at = 0;
    const uni_table_column *columns = table->columns; /* NULL if there are none */
    for (int i = 0; columns != NULL && i < table->num_columns && at < (int)sizeof list - 1; i++)
        at += snprintf(list + at, sizeof list - (size_t)at, "%s%s", i > 0 ? ", " : "",
                       columns[i].field.name);
    return uni_error_set(err, UNI_ENOTFOUND, "there is no column %s; the columns are %s", name,
                         list);
}
