/* element.h - one element of an array of any numeric type, as a double. Any thread. */
#ifndef UNISONO_BASE_ELEMENT_H
#define UNISONO_BASE_ELEMENT_H

#include <unisono/array.h>

#include "base/compiler.h"

/* NAN for a type that is not numeric. */
UNI__SHARED double uni__element(const void *data, uni_dtype dtype, size_t index);

#endif
