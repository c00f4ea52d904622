/*
 * simd_math.h - eight floats at a time in GCC's vector types: loads, exp, log, tanh, erf. Included
 * by kernels_simd.h, which is compiled once per instruction set. The polynomials are those of
 * Cephes; errors are below 3 ulp in the ranges that matter, and NaN stays NaN.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))

INLINE size_t eight_of(size_t left)
{
    return left < 8 ? left : 8;
}

INLINE v8 splat(float x)
{
    return (v8){ x, x, x, x, x, x, x, x };
}

INLINE v8 get8(const float *p)
{
    v8 x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void put8(float *p, v8 x)
{
    memcpy(p, &x, sizeof x);
}

/* The first m (1 to 8) floats; missing ones read as 0. */
INLINE v8 get(const float *p, size_t m)
{
    if (__builtin_expect(m == 8, 1))
        return get8(p);
    v8 x = splat(0);
    memcpy(&x, p, m * sizeof(float));
    return x;
}

INLINE void put(float *p, size_t m, v8 x)
{
    if (__builtin_expect(m == 8, 1))
        put8(p, x);
    else
        memcpy(p, &x, m * sizeof(float));
}

/* One instruction each where available (SIMD_BLEND: kernels_avx2.c), which the compiler does not
 * generate from the plain form. */
#ifdef SIMD_BLEND
INLINE v8 pick(i8 condition, v8 yes, v8 no)
{
    return __builtin_ia32_blendvps256(no, yes, (v8)condition);
}

INLINE v8 max8(v8 a, v8 b) /* b when one is NaN */
{
    return __builtin_ia32_maxps256(a, b);
}

INLINE v8 min8(v8 a, v8 b)
{
    return __builtin_ia32_minps256(a, b);
}
#else
INLINE v8 pick(i8 condition, v8 yes, v8 no)
{
    return (v8)((condition & (i8)yes) | (~condition & (i8)no));
}

INLINE v8 max8(v8 a, v8 b) /* b when one is NaN */
{
    return pick(a > b, a, b);
}

INLINE v8 min8(v8 a, v8 b)
{
    return pick(a < b, a, b);
}
#endif

INLINE v8 abs8(v8 x)
{
    return (v8)((i8)x & 0x7fffffff);
}

INLINE float sum8(v8 x)
{
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

INLINE float largest8(v8 x)
{
    float best = x[0];
    for (int i = 1; i < 8; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

/* e^t = 2^z p, z an integer. */
INLINE v8 exp_parts(v8 t, v8 *z)
{
    *z = (t * 1.44269504088896341f + 12582912.0f) - 12582912.0f; /* round to the nearest integer */
    v8 r = t - *z * 0.693359375f - *z * -2.12194440e-4f;
    v8 p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r + 1.0f;
}

INLINE v8 exp8(v8 x)
{
    v8 t = pick(x < -87.3f, splat(-87.3f), pick(x > 88.7f, splat(88.7f), x));
    v8 z, p = exp_parts(t, &z);
    /* Half of the power, doubled afterwards: 2^128 would overflow. */
    i8 e = __builtin_convertvector(z, i8) + 126;
    v8 y = p * (v8)(e << 23) * 2.0f;
    y = pick(x < -87.3f, splat(0), y);
    y = pick(x > 88.7228f, splat(__builtin_inff()), y);
    return pick(x != x, x, y);
}

/* log((1 + m) 2^e) for 1 + m from sqrt(1/2) to sqrt(2) */
INLINE v8 log_parts(v8 m, v8 e)
{
    v8 p = splat(7.0376836292e-2f);
    p = p * m + -1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m + -1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m + -1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m + -2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    v8 square = m * m;
    v8 y = m * square * p + e * -2.12194440e-4f - 0.5f * square;
    return m + y + e * 0.693359375f;
}

INLINE v8 log8(v8 x)
{
    v8 t = pick(x < 1.17549435e-38f, splat(1.17549435e-38f), x);
    i8 bits = (i8)t;
    v8 e = __builtin_convertvector((bits >> 23) - 126, v8);
    v8 m = (v8)((bits & 0x007fffff) | 0x3f000000); /* [0.5, 1) */
    i8 small = m < 0.707106781186547524f;
    e = pick(small, e - 1.0f, e);
    m = pick(small, m + m, m) - 1.0f;
    v8 y = log_parts(m, e);
    y = pick(x == 0, splat(-__builtin_inff()), y);
    y = pick(x == __builtin_inff(), x, y);
    return pick((x < 0) | (x != x), splat(__builtin_nanf("")), y);
}

/* log(1 + z) for z in [0, 1], accurate for tiny z: 1 + z is never rounded. NaN stays NaN. */
INLINE v8 log1p8(v8 z)
{
    i8 small = z < 0.414213562373095049f;
    return log_parts(pick(small, z, 0.5f * z - 0.5f), pick(small, splat(0), splat(1)));
}

INLINE v8 sigmoid8(v8 x)
{
    return 1.0f / (1.0f + exp8(-x));
}

INLINE v8 tanh8(v8 x)
{
    v8 a = abs8(x), s = x * x;
    v8 p = splat(-5.70498872745e-3f);
    p = p * s + 2.06390887954e-2f;
    p = p * s + -5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s + -3.33332819422e-1f;
    v8 near = p * s * x + x;
    v8 far = 1.0f - 2.0f / (exp8(a + a) + 1.0f);
    far = pick(x < 0, -far, far);
    return pick(x != x, x, pick(a < 0.625f, near, far));
}

/* e^x for x <= 0 that is not NaN. Only very small results need care; they become 0. */
INLINE v8 exp_negative8(v8 x)
{
    v8 t = max8(x, splat(-87.3f));
    v8 z, p = exp_parts(t, &z);
    v8 y = p * (v8)((__builtin_convertvector(z, i8) + 127) << 23);
    return pick(x < -87.3f, splat(0), y);
}

/* Abramowitz and Stegun 7.1.26 has an absolute error of 1.5e-7; near 0 the series also keeps the
 * relative error small. bell is e^(-x^2), which the derivative needs too. */
INLINE v8 erf_of8(v8 x, v8 bell)
{
    v8 a = abs8(x), s = x * x;
    v8 t = 1.0f / (1.0f + 0.3275911f * a);
    v8 p = splat(1.061405429f);
    p = p * t + -1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t + -0.284496736f;
    p = p * t + 0.254829592f;
    v8 far = 1.0f - p * t * bell;
    far = pick(x < 0, -far, far);
    v8 q = splat(-1.0f / 42.0f);
    q = q * s + 0.1f;
    q = q * s + -1.0f / 3.0f;
    v8 near = 1.12837916709551f * (x + x * s * q);
    return pick(x != x, x, pick(a < 0.2f, near, far));
}

INLINE v8 erf8(v8 x)
{
    return erf_of8(x, exp_negative8(-x * x));
}
