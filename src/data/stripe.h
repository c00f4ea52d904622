/* stripe.h - columns of numbers side by side in one array: (rows, width of all). For concat_columns and the preprocessors of rows. Any thread. */
#ifndef UNISONO_DATA_STRIPE_H
#define UNISONO_DATA_STRIPE_H

#include <unisono/table.h>

/* Elements of one row of a column of numbers. */
size_t uni__stripe_width(const uni_field *field);
/* Bytes of scratch memory that uni__stripe_put needs for that column. */
size_t uni__stripe_scratch(const uni_table_column *column, uni_dtype dtype);
/* The column, cast, into `to`: rows of `total` elements, from element `offset` of each on. Missing values are NaN; a type that has none is UNI_EDTYPE, as is a value that
 * it cannot hold. */
int uni__stripe_put(const uni_table_column *column, uni_dtype dtype, void *to, size_t offset,
                    size_t total, int64_t rows, char *scratch, uni_error *err) UNI_MUST_USE;
/* Only the NaN of missing values. */
int uni__stripe_gaps(const uni_table_column *column, uni_dtype dtype, void *to, size_t offset,
                     size_t total, int64_t rows, uni_error *err) UNI_MUST_USE;

#endif
