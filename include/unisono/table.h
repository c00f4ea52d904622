/*
 * table.h - columns of rows: what datasets read, transform and return.
 *
 * A table has a number of rows and named columns on arrays (array.h). The kinds of columns: numbers
 * (any dtype; a row is a scalar or a tensor of fixed shape), UTF-8 strings, bytes, and lists of
 * numbers of varying length. A table does not change once it is shared; slices and selections share
 * its buffers, so they cost nothing.
 *
 * Missing values: NaN in floating point columns. In all other kinds `valid` (one bool per row) says
 * which rows have a value; a NULL `valid` means all of them. A missing value is stored as 0, "" or
 * an empty list.
 *
 * Thread rule: the reference count is atomic; a shared table is read only.
 *
 * @example
 * uni_table *table = NULL;
 * uni_array *ids = NULL;
 * UNI_TRY(uni_array_new(&ids, UNI_I64, 1, (const int64_t[]){ 3 }, err));
 * UNI_TRY(uni_table_new(&table, 3, err));
 * UNI_TRY(uni_table_add_array(table, "id", ids, err));
 * uni_array_unref(ids);
 * uni_table_unref(table);
 * @end
 */
#ifndef UNISONO_TABLE_H
#define UNISONO_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/array.h>
#include <unisono/status.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum uni_field_kind {
    UNI_FIELD_NUMBER = 1, /* values (rows, shape...) of dtype; no offsets */
    UNI_FIELD_STRING, /* values: UTF-8 in u8, offsets i64 (rows + 1) */
    UNI_FIELD_BINARY, /* values: u8, offsets i64 (rows + 1) */
    UNI_FIELD_LIST, /* values: (elements) of dtype, offsets i64 (rows + 1) */
    /* Like BINARY: objects of the program itself, serialised in this process or by its driver
     * (Python's pickles). No reader creates such a column, whatever a file contains, and a table
     * that has one is never concatenated with one that does not: only marked columns are turned
     * back into objects. */
    UNI_FIELD_OBJECT
} uni_field_kind;

typedef struct uni_field {
    const char *name;
    uni_field_kind kind;
    uni_dtype dtype; /* of NUMBER and LIST; otherwise UNI_U8 */
    int ndim; /* of one row of NUMBER; 0: a scalar */
    int64_t shape[UNI_MAX_DIMS - 1];
} uni_field;

typedef struct uni_table_column {
    uni_field field;
    uni_array *values;
    /* Row i is values[offsets[i]] to values[offsets[i + 1]]; offsets[0] need not be 0 */
    uni_array *offsets;
    uni_array *valid; /* b8 (rows), or NULL */
} uni_table_column;

typedef struct uni_table uni_table;

/* Without columns. */
UNI_API UNI_MUST_USE int uni_table_new(uni_table **out, int64_t num_rows, uni_error *err);
UNI_API uni_table *uni_table_ref(uni_table *table);
UNI_API void uni_table_unref(uni_table *table);
/* Copies the name and references the arrays; checks that lengths, dtypes and shapes match. A
 * duplicate name is UNI_EEXISTS. */
UNI_API UNI_MUST_USE int uni_table_add(uni_table *table, const uni_table_column *column,
                                       uni_error *err);
/* A NUMBER column of (rows, ...). */
UNI_API UNI_MUST_USE int uni_table_add_array(uni_table *table, const char *name, uni_array *array,
                                             uni_error *err);

UNI_API int64_t uni_table_num_rows(const uni_table *table);
UNI_API int uni_table_num_columns(const uni_table *table);
UNI_API const uni_table_column *uni_table_column_at(const uni_table *table, int index);
/* NULL if there is no such column. */
UNI_API const uni_table_column *uni_table_find(const uni_table *table, const char *name);

/* A view of rows [begin, end). */
UNI_API UNI_MUST_USE int uni_table_slice(uni_table **out, uni_table *table, int64_t begin,
                                         int64_t end, uni_error *err);

/* One row as a dictionary (scalars, strings, bytes, arrays; null for a missing value), and
 * tables from a list of dictionaries: the first row's keys are the columns (or those of `like`,
 * if not NULL); mixed int and float give float64. */
UNI_API UNI_MUST_USE int uni_table_row(uni_value **out, const uni_table *table, int64_t row,
                                       uni_error *err);
UNI_API UNI_MUST_USE int uni_table_from_rows(uni_table **out, const uni_value *rows,
                                             const uni_table *like, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
