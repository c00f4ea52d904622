/* cast.h - numbers from one element type to another. Any thread. */
#ifndef UNISONO_DATA_CAST_H
#define UNISONO_DATA_CAST_H

#include <stddef.h>
#include <unisono/array.h>

/* count elements. Fractions are cut off; what an integer cannot hold (also NaN) is UNI_EDTYPE, with the value; a bool is whether it differs from 0. bfloat16 and
 * float16 only to themselves. */
int uni__cast(void *to, uni_dtype to_dtype, const void *from, uni_dtype from_dtype, size_t count,
              uni_error *err) UNI_MUST_USE;

#endif
