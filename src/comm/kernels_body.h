/* kernels_body.h - the loops of kernels.h, compiled once plain and once for AVX2 (KERNELS names the
 * table). Only for kernels_base.c and kernels_avx2.c. */
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "comm/kernels.h"

#define COMBINE(name, type, value, load, store, expression)                                        \
    static void name(void *dst, const void *a, const void *b, size_t n)                            \
    {                                                                                              \
        type *d = dst;                                                                             \
        const type *p = a, *q = b;                                                                 \
        UNI__INDEPENDENT for (size_t i = 0; i < n; i++)                                            \
        {                                                                                          \
            value x = load(p[i]), y = load(q[i]);                                                  \
            d[i] = store(expression);                                                              \
        }                                                                                          \
    }

/* A NaN on either side stays a NaN. */
#define FLOATS(suffix, type, value, load, store)                                                   \
    COMBINE(sum_##suffix, type, value, load, store, x + y)                                         \
    COMBINE(min_##suffix, type, value, load, store, x < y || x != x ? x : y)                       \
    COMBINE(max_##suffix, type, value, load, store, x > y || x != x ? x : y)                       \
    COMBINE(product_##suffix, type, value, load, store, x *y)                                      \
    static void divide_##suffix(void *data, double divisor, size_t n)                              \
    {                                                                                              \
        type *d = data;                                                                            \
        value by = (value)divisor;                                                                 \
        for (size_t i = 0; i < n; i++)                                                             \
            d[i] = store(load(d[i]) / by);                                                         \
    }

#define SUM_TWICE(suffix, type)                                                                    \
    static void sum2_##suffix(void *dst, void *dst2, const void *a, const void *b, size_t n)       \
    {                                                                                              \
        type *d = dst, *e = dst2;                                                                  \
        const type *p = a, *q = b;                                                                 \
        UNI__INDEPENDENT for (size_t i = 0; i < n; i++)                                            \
        {                                                                                          \
            type s = p[i] + q[i];                                                                  \
            d[i] = s;                                                                              \
            e[i] = s;                                                                              \
        }                                                                                          \
    }

/* Sums and products are unsigned, where overflow is defined to wrap. */
#define INTEGERS(suffix, type, wide)                                                               \
    COMBINE(sum_##suffix, type, type, AS_IS, (type), ((wide)x + (wide)y))                          \
    COMBINE(min_##suffix, type, type, AS_IS, (type), (x < y ? x : y))                              \
    COMBINE(max_##suffix, type, type, AS_IS, (type), (x > y ? x : y))                              \
    COMBINE(product_##suffix, type, type, AS_IS, (type), ((wide)x * (wide)y))                      \
    COMBINE(and_##suffix, type, type, AS_IS, (type), (x & y))                                      \
    COMBINE(or_##suffix, type, type, AS_IS, (type), (x | y))                                       \
    COMBINE(xor_##suffix, type, type, AS_IS, (type), (x ^ y))

#define AS_IS(x) (x)

/* The two narrow floats are combined as float32 and rounded to the nearest, ties to even: the
 * result of each step is that of the exact operation rounded once. */
static inline float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float from_bf16(uint16_t half)
{
    return from_bits((uint32_t)half << 16);
}

static inline uint16_t to_bf16(float value)
{
    uint32_t bits = bits_of(value), rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((value != value ? bits | 0x400000 : rounded) >> 16);
}

/* The exponent is moved by a product, which also makes subnormals normal; infinities and NaN get
 * the largest exponent. */
static inline float from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
    uint32_t bits = bits_of(from_bits(rest) * 0x1p112f);
    return from_bits(sign | (rest >= 0x0f800000 ? rest | 0x7f800000 : bits));
}

/* Below 2^-14 an addition of 0.5 rounds at the last place of a subnormal, 2^-24. */
static inline uint16_t to_f16(float value)
{
    uint32_t bits = bits_of(value), size = bits & 0x7fffffff;
    uint32_t small = bits_of(from_bits(size) + 0.5f) - 0x3f000000;
    uint32_t normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
    uint32_t half = size > 0x7f800000    ? 0x7e00
                    : size >= 0x477ff000 ? 0x7c00
                    : size < 0x38800000  ? small
                                         : normal;
    return (uint16_t)((bits >> 16 & 0x8000) | half);
}

FLOATS(f32, float, float, AS_IS, AS_IS)
FLOATS(f64, double, double, AS_IS, AS_IS)
FLOATS(f16, uint16_t, float, from_f16, to_f16)
FLOATS(bf16, uint16_t, float, from_bf16, to_bf16)
SUM_TWICE(f32, float)
SUM_TWICE(f64, double)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(u8, uint8_t, unsigned)
INTEGERS(i8, int8_t, unsigned)
INTEGERS(i16, int16_t, unsigned)

typedef int64_t vector __attribute__((vector_size(32), aligned(1), may_alias));

static void copy(void *dst, const void *src, size_t bytes)
{
    vector *d = dst;
    const vector *s = src;
    size_t vectors = bytes / sizeof *d;
    size_t i = 0;
    for (; i + 4 <= vectors; i += 4) {
        vector a = s[i], b = s[i + 1], c = s[i + 2], e = s[i + 3];
        d[i] = a;
        d[i + 1] = b;
        d[i + 2] = c;
        d[i + 3] = e;
    }
    size_t done = i * sizeof *d;
    if (bytes > done)
        memcpy((char *)dst + done, (const char *)src + done, bytes - done);
}

#define FLOAT_ROW(suffix)                                                                          \
    {                                                                                              \
        sum_##suffix, min_##suffix, max_##suffix, product_##suffix                                 \
    }
#define INTEGER_ROW(suffix)                                                                        \
    {                                                                                              \
        sum_##suffix, min_##suffix, max_##suffix, product_##suffix, and_##suffix, or_##suffix,     \
            xor_##suffix                                                                           \
    }

const uni__kernels KERNELS = {
    .name = KERNELS_NAME,
    .combine = { FLOAT_ROW(f32), FLOAT_ROW(f64), FLOAT_ROW(f16), FLOAT_ROW(bf16), INTEGER_ROW(i32),
                 INTEGER_ROW(i64), INTEGER_ROW(u8), INTEGER_ROW(i8), INTEGER_ROW(i16) },
    .combine2 = { sum2_f32, sum2_f64 },
    .divide = { divide_f32, divide_f64, divide_f16, divide_bf16 },
    .copy = copy,
};
