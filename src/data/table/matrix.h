/* matrix.h - columns of numbers side by side in one array of shape (rows, total width). For
 * concat_columns and row preprocessors. Any thread. */
#ifndef UNISONO_DATA_MATRIX_H
#define UNISONO_DATA_MATRIX_H

#include <unisono/table.h>

/* Elements per row of a numeric column. */
size_t uni__matrix_width(const uni_field *field);
/* Writes NaN for the missing values of a column, into rows of `total` elements starting at element
 * `offset`. A type without NaN is UNI_EDTYPE. */
int uni__matrix_gaps(const uni_table_column *column, uni_dtype dtype, void *to, size_t offset,
                     size_t total, int64_t rows, uni_error *err) UNI_MUST_USE;

/* Casts the columns into an array of shape (rows, total width). Missing values become NaN. A type
 * without NaN, or a value that the type cannot hold, is UNI_EDTYPE. */
int uni__matrix_fill(const uni_table *table, const char *const *names, int count, uni_array *out,
                     uni_error *err) UNI_MUST_USE;
/* Total width of existing columns; a column that is not numeric is UNI_EDTYPE. */
int uni__matrix_width_of(const uni_table *table, const char *const *names, int count, size_t *out,
                         uni_error *err) UNI_MUST_USE;

#endif
