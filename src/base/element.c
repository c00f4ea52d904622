/* element.c - see element.h. */
#include "base/element.h"

#include <math.h>
#include <string.h>

static double half(uint16_t bits)
{
    int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
    double value = exponent == 0    ? ldexp(fraction, -24)
                   : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                    : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

/* The upper half of a float. */
static double brain(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float number;
    memcpy(&number, &wide, sizeof number);
    return (double)number;
}

double uni__element(const void *data, uni_dtype dtype, size_t index)
{
    switch ((int)dtype) {
    case UNI_F32:
        return (double)((const float *)data)[index];
    case UNI_F64:
        return ((const double *)data)[index];
    case UNI_I8:
        return ((const int8_t *)data)[index];
    case UNI_I16:
        return ((const int16_t *)data)[index];
    case UNI_I32:
        return ((const int32_t *)data)[index];
    case UNI_I64:
        return (double)((const int64_t *)data)[index];
    case UNI_U8:
    case UNI_B8:
        return ((const uint8_t *)data)[index];
    case UNI_U16:
        return ((const uint16_t *)data)[index];
    case UNI_U32:
        return ((const uint32_t *)data)[index];
    case UNI_U64:
        return (double)((const uint64_t *)data)[index];
    case UNI_F16:
        return half(((const uint16_t *)data)[index]);
    case UNI_BF16:
        return brain(((const uint16_t *)data)[index]);
    }
    return NAN;
}
