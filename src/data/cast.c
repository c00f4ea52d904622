/*
 * cast.c - numbers of one type as another: pieces of 256 go through doubles (from floating point, and to it) or through 128-bit integers
 * (between integers), which hold all values exactly. The compiler makes vector loops of the common ones. See cast.h.
 */
#include <math.h>
#include <string.h>
#include "data/cast.h"

enum { PIECE = 256 };

/* id, C type, smallest, largest */
#define INTEGERS(X)                                                                                \
    X(I8, int8_t, INT8_MIN, INT8_MAX)                                                              \
    X(I16, int16_t, INT16_MIN, INT16_MAX)                                                          \
    X(I32, int32_t, INT32_MIN, INT32_MAX)                                                          \
    X(I64, int64_t, INT64_MIN, INT64_MAX)                                                          \
    X(U8, uint8_t, 0, UINT8_MAX)                                                                   \
    X(U16, uint16_t, 0, UINT16_MAX)                                                                \
    X(U32, uint32_t, 0, UINT32_MAX)                                                                \
    X(U64, uint64_t, 0, UINT64_MAX)                                                                \
    X(B8, uint8_t, 0, UINT8_MAX)

#define LOOP(expression)                                                                           \
    for (size_t i = 0; i < count; i++)                                                             \
        out[i] = (expression);                                                                     \
    return true

static bool to_doubles(double *restrict out, const void *from, uni_dtype dtype, size_t count)
{
    switch (dtype) {
    case UNI_F32:
        LOOP(((const float *)from)[i]);
    case UNI_F64:
        LOOP(((const double *)from)[i]);
#define CASE(id, type, low, high)                                                                  \
    case UNI_##id:                                                                                 \
        LOOP((double)((const type *)from)[i]);
        INTEGERS(CASE)
#undef CASE
    default:
        return false;
    }
}

static bool to_wide(__int128 *restrict out, const void *from, uni_dtype dtype, size_t count)
{
    switch (dtype) {
#define CASE(id, type, low, high)                                                                  \
    case UNI_##id:                                                                                 \
        LOOP(((const type *)from)[i]);
        INTEGERS(CASE)
#undef CASE
    default:
        return false;
    }
}

static bool from_doubles(void *to, uni_dtype dtype, const double *restrict in, size_t count)
{
    switch (dtype) {
    case UNI_F32: {
        float *out = to;
        LOOP((float)in[i]);
    }
    case UNI_F64: {
        double *out = to;
        LOOP(in[i]);
    }
#define CASE(id, type, low, high)                                                                  \
    case UNI_##id: {                                                                               \
        type *out = to;                                                                            \
        if (UNI_##id == UNI_B8) {                                                                  \
            LOOP(in[i] != 0);                                                                      \
        }                                                                                          \
        LOOP(isnan(in[i])              ? 0                                                         \
             : in[i] >= (double)(high) ? (type)(high)                                              \
             : in[i] <= (double)(low)  ? (type)(low)                                               \
                                       : (type)in[i]);                                              \
    }
        INTEGERS(CASE)
#undef CASE
    default:
        return false;
    }
}

static bool from_wide(void *to, uni_dtype dtype, const __int128 *restrict in, size_t count)
{
    switch (dtype) {
#define CASE(id, type, low, high)                                                                  \
    case UNI_##id: {                                                                               \
        type *out = to;                                                                            \
        if (UNI_##id == UNI_B8) {                                                                  \
            LOOP(in[i] != 0);                                                                      \
        }                                                                                          \
        LOOP(in[i] > (__int128)(high)  ? (type)(high)                                              \
             : in[i] < (__int128)(low) ? (type)(low)                                               \
                                       : (type)in[i]);                                             \
    }
        INTEGERS(CASE)
#undef CASE
    default:
        return false;
    }
}

static bool is_float(uni_dtype dtype)
{
    return dtype == UNI_F32 || dtype == UNI_F64;
}

static bool cast_piece(void *to, uni_dtype to_dtype, const void *from, uni_dtype from_dtype,
                       size_t count)
{
    if (is_float(from_dtype) || is_float(to_dtype)) {
        double middle[PIECE];
        return to_doubles(middle, from, from_dtype, count) &&
               from_doubles(to, to_dtype, middle, count);
    }
    __int128 middle[PIECE];
    return to_wide(middle, from, from_dtype, count) && from_wide(to, to_dtype, middle, count);
}

int uni__cast(void *to, uni_dtype to_dtype, const void *from, uni_dtype from_dtype, size_t count,
              uni_error *err)
{
    size_t to_size = uni_dtype_size(to_dtype), from_size = uni_dtype_size(from_dtype);
    if (from_dtype == to_dtype) {
        if (count > 0)
            memcpy(to, from, count * to_size);
        return 0;
    }
    bool possible = to_dtype != UNI_F16 && to_dtype != UNI_BF16 && from_dtype != UNI_F16 &&
                    from_dtype != UNI_BF16;
    for (size_t i = 0; i < count && possible; i += PIECE)
        possible =
            cast_piece((char *)to + i * to_size, to_dtype, (const char *)from + i * from_size,
                       from_dtype, count - i < PIECE ? count - i : PIECE);
    return possible ? 0
                    : uni_error_set(err, UNI_EUNSUPPORTED, "%s cannot be cast to %s here",
                                    uni_dtype_name(from_dtype), uni_dtype_name(to_dtype));
}
