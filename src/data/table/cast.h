/* cast.h - converts numbers from one element type to another. Any thread. */
#ifndef UNISONO_DATA_CAST_H
#define UNISONO_DATA_CAST_H

#include <stddef.h>
#include <unisono/array.h>

/* Converts `count` elements. Fractions are truncated. A value that an integer type cannot hold,
 * including NaN, is UNI_EDTYPE with the value. A bool is whether the value differs from 0. bfloat16
 * and float16 convert only to themselves. */
int uni__cast(void *to, uni_dtype to_dtype, const void *from, uni_dtype from_dtype, size_t count,
              uni_error *err) UNI_MUST_USE;

#endif
