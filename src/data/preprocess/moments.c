/*
 * moments.c - column statistics (moments.h).
 */
#include "data/preprocess/moments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"

#define BLOCK 1024 /* rows that are averaged before they are merged into the total */

bool uni__dtype_is_plain(uni_dtype dtype)
{
    return uni_dtype_size(dtype) > 0 && dtype != UNI_F16 && dtype != UNI_BF16;
}

int uni__moments_new(uni__moments *moments, size_t width, uni_error *err)
{
    *moments = (uni__moments){ .width = width };
    double *memory = calloc(width * 5 + 1, sizeof *memory);
    if (memory == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the statistics of %zu columns", width);
    moments->count = memory;
    moments->mean = memory + width;
    moments->squares = memory + 2 * width;
    moments->low = memory + 3 * width;
    moments->high = memory + 4 * width;
    for (size_t i = 0; i < width; i++) {
        moments->low[i] = INFINITY;
        moments->high[i] = -INFINITY;
    }
    return 0;
}

void uni__moments_free(uni__moments *moments)
{
    free(moments->count);
    *moments = (uni__moments){ 0 };
}

/* One block of one column: two passes, then merged into the total. */
static void add_block(uni__moments *moments, size_t column, const void *data, uni_dtype dtype,
                      size_t first, size_t rows, bool skip_nan)
{
    double values[BLOCK], sum = 0, squares = 0;
    size_t count = 0;
    for (size_t row = 0; row < rows; row++) {
        double value = uni__element(data, dtype, (first + row) * moments->width + column);
        if (skip_nan && isnan(value))
            continue;
        values[count++] = value;
        sum += value;
        moments->low[column] = value < moments->low[column] ? value : moments->low[column];
        moments->high[column] = value > moments->high[column] ? value : moments->high[column];
    }
    if (count == 0)
        return;
    double mean = sum / (double)count, before = moments->count[column],
           all = before + (double)count, delta = mean - moments->mean[column];
    for (size_t i = 0; i < count; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    moments->squares[column] += squares + delta * delta * before * (double)count / all;
    moments->mean[column] += delta * (double)count / all;
    moments->count[column] = all;
}

void uni__moments_add(uni__moments *moments, const void *data, uni_dtype dtype, size_t rows,
                      bool skip_nan)
{
    for (size_t first = 0; first < rows; first += BLOCK)
        for (size_t column = 0; column < moments->width; column++)
            add_block(moments, column, data, dtype, first,
                      rows - first < BLOCK ? rows - first : BLOCK, skip_nan);
}
