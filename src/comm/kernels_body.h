/* kernels_body.h - the loops of kernels.h, compiled once plain and once for AVX2 (KERNELS names the
 * table). Only for kernels_base.c and kernels_avx2.c. */
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "comm/kernels.h"

#define COMBINE(name, type, expression)                                                            \
    static void name(void *dst, const void *a, const void *b, size_t n)                            \
    {                                                                                              \
        type *d = dst;                                                                             \
        const type *p = a, *q = b;                                                                 \
        UNI__INDEPENDENT for (size_t i = 0; i < n; i++)                                            \
        {                                                                                          \
            type x = p[i], y = q[i];                                                               \
            d[i] = (type)(expression);                                                             \
        }                                                                                          \
    }

/* A NaN on either side stays a NaN. */
#define FLOATS(suffix, type)                                                                       \
    COMBINE(sum_##suffix, type, x + y)                                                             \
    COMBINE(min_##suffix, type, x < y || x != x ? x : y)                                           \
    COMBINE(max_##suffix, type, x > y || x != x ? x : y)                                           \
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
    }                                                                                              \
    static void divide_##suffix(void *data, double divisor, size_t n)                              \
    {                                                                                              \
        type *d = data, by = (type)divisor;                                                        \
        for (size_t i = 0; i < n; i++)                                                             \
            d[i] = d[i] / by;                                                                      \
    }

/* Sums are unsigned, where overflow is defined to wrap. */
#define INTEGERS(suffix, type, wide)                                                               \
    COMBINE(sum_##suffix, type, (wide)x + (wide)y)                                                 \
    COMBINE(min_##suffix, type, x < y ? x : y)                                                     \
    COMBINE(max_##suffix, type, x > y ? x : y)

FLOATS(f32, float)
FLOATS(f64, double)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(u8, uint8_t, unsigned)

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

#define ROW(suffix)                                                                                \
    {                                                                                              \
        sum_##suffix, min_##suffix, max_##suffix                                                   \
    }

const uni__kernels KERNELS = {
    .name = KERNELS_NAME,
    .combine = { ROW(f32), ROW(f64), ROW(i32), ROW(i64), ROW(u8) },
    .combine2 = { sum2_f32, sum2_f64 },
    .divide = { divide_f32, divide_f64 },
    .copy = copy,
};
