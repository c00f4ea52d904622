/* weights.h - compares what scenarios of native workers returned. */
#ifndef UNISONO_TESTS_NATIVE_WEIGHTS_H
#define UNISONO_TESTS_NATIVE_WEIGHTS_H

#include <unisono/value.h>

/* The largest difference of two results' "weights", which must be of the same sizes. */
double weights_difference(const uni_value *a, const uni_value *b);

#endif
