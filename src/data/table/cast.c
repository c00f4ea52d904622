/*
 * cast.c - converts numbers between types in pieces of 256: through doubles to and from floating
 * point, through 128-bit integers between integers, which hold all values exactly. The compiler
 * vectorizes the common loops. They only count values that do not fit; a second pass finds the
 * first one if the count is not 0. See cast.h.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/element.h"
#include "data/table/cast.h"

enum { PIECE = 256 };

/* id, C type, minimum, maximum */
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
    return 0

/* The functions below return the number of values that did not fit, or NO_WAY if the types cannot
 * be converted. */
#define NO_WAY SIZE_MAX

/* Fractions are truncated, so values down to just above low - 1 fit. For INT64_MIN, low - 1 is not
 * a distinct double. */
#define FITS(value, low, high)                                                                     \
    (((value) > (double)(low)-1 || (value) == (double)(low)) && (value) < (double)(high) + 1)

static size_t to_doubles(double *restrict out, const void *from, uni_dtype dtype, size_t count)
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
        return NO_WAY;
    }
}

static size_t to_wide(__int128 *restrict out, const void *from, uni_dtype dtype, size_t count)
{
    switch (dtype) {
#define CASE(id, type, low, high)                                                                  \
    case UNI_##id:                                                                                 \
        LOOP(((const type *)from)[i]);
        INTEGERS(CASE) /* NOLINT(bugprone-signed-char-misuse): int8_t is a number here */
#undef CASE
    default:
        return NO_WAY;
    }
}

/* Stores integers; a value that does not fit becomes 0 and is counted. */
#define STORE(id, type, fits_expression)                                                           \
    case UNI_##id: {                                                                               \
        type *out = to;                                                                            \
        size_t unfit = 0;                                                                          \
        if (UNI_##id == UNI_B8) {                                                                  \
            LOOP(in[i] != 0);                                                                      \
        }                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                       \
            bool fits = (fits_expression);                                                         \
            out[i] = fits ? (type)in[i] : 0;                                                       \
            unfit += !fits;                                                                        \
        }                                                                                          \
        return unfit;                                                                              \
    }

/* NOLINTNEXTLINE(readability-function-size): one case a type */
static size_t from_doubles(void *to, uni_dtype dtype, const double *restrict in, size_t count)
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
#define CASE(id, type, low, high) STORE(id, type, FITS(in[i], low, high))
        INTEGERS(CASE)
#undef CASE
    default:
        return NO_WAY;
    }
}

/* NOLINTNEXTLINE(readability-function-size): one case a type */
static size_t from_wide(void *to, uni_dtype dtype, const __int128 *restrict in, size_t count)
{
    switch (dtype) {
#define CASE(id, type, low, high)                                                                  \
    STORE(id, type, in[i] >= (__int128)(low) && in[i] <= (__int128)(high))
        INTEGERS(CASE)
#undef CASE
    default:
        return NO_WAY;
    }
}

static bool is_float(uni_dtype dtype)
{
    return dtype == UNI_F32 || dtype == UNI_F64;
}

static size_t cast_piece(void *to, uni_dtype to_dtype, const void *from, uni_dtype from_dtype,
                         size_t count)
{
    if (is_float(from_dtype) || is_float(to_dtype)) {
        double middle[PIECE];
        size_t read = to_doubles(middle, from, from_dtype, count);
        return read != 0 ? read : from_doubles(to, to_dtype, middle, count);
    }
    __int128 middle[PIECE];
    size_t read = to_wide(middle, from, from_dtype, count);
    return read != 0 ? read : from_wide(to, to_dtype, middle, count);
}

/* Reports the first value of a piece that does not fit. */
static int refuse(const char *from, uni_dtype from_dtype, uni_dtype to_dtype, size_t count,
                  uni_error *err)
{
    char scratch[16];
    size_t i = 0;
    while (i + 1 < count &&
           cast_piece(scratch, to_dtype, from + i * uni_dtype_size(from_dtype), from_dtype, 1) == 0)
        i++;
    double value = uni__element(from, from_dtype, i);
    if (isnan(value))
        return uni_error_set(err, UNI_EDTYPE,
                             "NaN is not a value of %s: fill what is missing first (SimpleImputer)",
                             uni_dtype_name(to_dtype));
    return uni_error_set(err, UNI_EDTYPE, "%s cannot hold %.15g; take a wider type",
                         uni_dtype_name(to_dtype), value);
}

static int no_way(uni_dtype from_dtype, uni_dtype to_dtype, uni_error *err)
{
    return uni_error_set(err, UNI_EUNSUPPORTED, "%s cannot be cast to %s here",
                         uni_dtype_name(from_dtype), uni_dtype_name(to_dtype));
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
    if (count == 0 && cast_piece(NULL, to_dtype, NULL, from_dtype, 0) == NO_WAY)
        return no_way(from_dtype, to_dtype, err);
    for (size_t i = 0; i < count; i += PIECE) {
        size_t piece = count - i < PIECE ? count - i : PIECE;
        const char *first = (const char *)from + i * from_size;
        size_t unfit = cast_piece((char *)to + i * to_size, to_dtype, first, from_dtype, piece);
        if (unfit == NO_WAY)
            return no_way(from_dtype, to_dtype, err);
        if (unfit > 0)
            return refuse(first, from_dtype, to_dtype, piece, err);
    }
    return 0;
}
