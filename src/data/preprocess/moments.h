/*
 * moments.h - means, variances and extremes of columns, block by block: shared by the scalers of datasets and the engine's Normalization layer. In double;
 * blocks are joined pairwise (Chan), so that no digits are lost however many rows there are. One thread an object.
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
        *high; /* of each column; squares: sum of squared distances */
} uni__moments;

UNI__SHARED int uni__moments_new(uni__moments *moments, size_t width, uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__moments_free(uni__moments *moments);
/* rows of `width` numbers of that dtype. skip_nan: a NaN is a missing value; otherwise it makes its column NaN. */
UNI__SHARED void uni__moments_add(uni__moments *moments, const void *data, uni_dtype dtype,
                                  size_t rows, bool skip_nan);
static inline double uni__moments_variance(const uni__moments *moments, size_t column)
{
    return moments->count[column] > 0 ? moments->squares[column] / moments->count[column] : 0;
}

/* false for half precision and what is no number. */
UNI__SHARED bool uni__dtype_is_plain(uni_dtype dtype);

#endif
