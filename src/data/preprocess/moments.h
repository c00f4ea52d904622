/*
 * moments.h - means, variances and extremes of columns, block by block. Shared by the dataset
 * scalers and the engine's Normalization layer. Computed in double; blocks are merged with Chan's
 * formula, so precision does not depend on the number of rows. One thread per object.
 */
#ifndef UNISONO_DATA_MOMENTS_H
#define UNISONO_DATA_MOMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <unisono/array.h>

#include "base/compiler.h"

typedef struct uni__moments {
    size_t width;
    double *count, *mean, *squares, *low,
        *high; /* per column; squares: sum of squared distances from the mean */
} uni__moments;

UNI__SHARED int uni__moments_new(uni__moments *moments, size_t width, uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__moments_free(uni__moments *moments);
/* Adds rows of `width` numbers. With skip_nan, NaN is a missing value; without, it makes its column
 * NaN. */
UNI__SHARED void uni__moments_add(uni__moments *moments, const void *data, uni_dtype dtype,
                                  size_t rows, bool skip_nan);
static inline double uni__moments_variance(const uni__moments *moments, size_t column)
{
    return moments->count[column] > 0 ? moments->squares[column] / moments->count[column] : 0;
}

/* False for half precision and for types that are not numeric. */
UNI__SHARED bool uni__dtype_is_plain(uni_dtype dtype);

#endif
