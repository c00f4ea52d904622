/* slice.h - equal parts of a flat buffer, cut at multiples of `unit` elements (usually a cache
 * line, so that no two threads write the same one). */
#ifndef UNISONO_BASE_SLICE_H
#define UNISONO_BASE_SLICE_H

#include <stddef.h>

/* Part `index` of `count` of n elements: [begin, end), empty when there are fewer units than
 * parts. */
static inline void uni__slice_of(size_t n, size_t unit, int index, int count, size_t *begin,
                                 size_t *end)
{
    size_t units = (n + unit - 1) / unit;
    *begin = units * (size_t)index / (size_t)count * unit;
    *end = units * ((size_t)index + 1) / (size_t)count * unit;
    *begin = *begin < n ? *begin : n;
    *end = *end < n ? *end : n;
}

#endif
