/*
 * kernels_simd.h - the fast inner loops, included by kernels_base.c and kernels_avx2.c, which
 * define KERNELS and KERNELS_NAME. See kernels.h for the shapes. Functions are computed in loops
 * over eight floats; the rest are plain loops that the compiler vectorizes. UNI__INDEPENDENT is
 * safe because in-place calls (same pointer, same index) are allowed and nothing else overlaps.
 */
#include <math.h>
#include <stdbool.h>
#include "base/compiler.h"
#include "tensor/kernels.h"
#include "tensor/simd_math.h"

/* i: the first of m floats (8, fewer at the end) */
#define EACH8(n) for (size_t i = 0, m = eight_of(n); i < (n); i += 8, m = eight_of((n)-i))
#define SIMPLE_LOOP UNI__INDEPENDENT for (size_t i = 0; i < n; i++)

#define SELU_ALPHA 1.6732632423543772f
#define SELU_SCALE 1.0507009873554805f

INLINE v8 gelu_tanh_inner(v8 x)
{
    return 0.7978845608028654f * (x + 0.044715f * x * x * x);
}

INLINE v8 activation8(uni_activation kind, float alpha, v8 x)
{
    switch (kind) {
    case UNI_ACTIVATION_RELU:
        return pick(x < 0, splat(0), x);
    case UNI_ACTIVATION_LEAKY_RELU:
        return pick(x < 0, alpha * x, x);
    case UNI_ACTIVATION_ELU:
        return pick(x < 0, alpha * (exp8(min8(x, splat(0))) - 1.0f), x);
    case UNI_ACTIVATION_GELU:
        return 0.5f * x * (1.0f + erf8(x * 0.70710678118654752f));
    case UNI_ACTIVATION_GELU_TANH:
        return 0.5f * x * (1.0f + tanh8(gelu_tanh_inner(x)));
    case UNI_ACTIVATION_SIGMOID:
        return sigmoid8(x);
    case UNI_ACTIVATION_TANH:
        return tanh8(x);
    case UNI_ACTIVATION_SOFTPLUS:
        return max8(x, splat(0)) + log1p8(exp8(-abs8(x)));
    case UNI_ACTIVATION_SWISH:
        return x * sigmoid8(x);
    case UNI_ACTIVATION_SELU:
        return SELU_SCALE * pick(x < 0, SELU_ALPHA * (exp8(min8(x, splat(0))) - 1.0f), x);
    case UNI_ACTIVATION_EXPONENTIAL:
        return exp8(x);
    case UNI_ACTIVATION_SOFTSIGN:
        return x / (1.0f + abs8(x));
    case UNI_ACTIVATION_HARD_SIGMOID:
        return min8(splat(6), max8(splat(0), x + 3.0f)) * (1.0f / 6.0f);
    case UNI_ACTIVATION_RELU6:
        return min8(splat(6), max8(splat(0), x));
    default:
        return x;
    }
}

/* x or y holds the argument or the result, as uni__activation_from_output says; the other is not
 * read. */
INLINE v8 slope8(uni_activation kind, float alpha, v8 x, v8 y)
{
    v8 zero = splat(0), one = splat(1);
    switch (kind) {
    case UNI_ACTIVATION_RELU:
        return pick(y > 0, one, zero);
    case UNI_ACTIVATION_LEAKY_RELU:
        return pick(x < 0, splat(alpha), one);
    case UNI_ACTIVATION_ELU:
        return pick(y < 0, y + alpha, one);
    case UNI_ACTIVATION_GELU: {
        v8 z = x * 0.70710678118654752f, bell = exp_negative8(-z * z);
        return 0.5f * (1.0f + erf_of8(z, bell)) + x * 0.3989422804014327f * bell;
    }
    case UNI_ACTIVATION_GELU_TANH: {
        v8 t = tanh8(gelu_tanh_inner(x));
        return 0.5f * (1.0f + t) +
               0.5f * x * (1.0f - t * t) * 0.7978845608028654f * (1.0f + 0.134145f * x * x);
    }
    case UNI_ACTIVATION_SIGMOID:
        return y * (1.0f - y);
    case UNI_ACTIVATION_TANH:
        return 1.0f - y * y;
    case UNI_ACTIVATION_SOFTPLUS:
        return sigmoid8(x);
    case UNI_ACTIVATION_SWISH: {
        v8 s = sigmoid8(x);
        return s * (1.0f + x * (1.0f - s));
    }
    case UNI_ACTIVATION_SELU:
        return pick(y < 0, y + SELU_SCALE * SELU_ALPHA, splat(SELU_SCALE));
    case UNI_ACTIVATION_EXPONENTIAL:
        return y;
    case UNI_ACTIVATION_SOFTSIGN: {
        v8 d = 1.0f + abs8(x);
        return 1.0f / (d * d);
    }
    case UNI_ACTIVATION_HARD_SIGMOID:
        return pick((y > 0) & (y < 1), splat(1.0f / 6.0f), zero);
    case UNI_ACTIVATION_RELU6:
        return pick((y > 0) & (y < 6), one, zero);
    default:
        return one;
    }
}

/* One loop per kind, so that the switch is outside the loop. */
#define ALL_ACTIVATIONS(X)                                                                         \
    X(RELU)                                                                                        \
    X(LEAKY_RELU)                                                                                  \
    X(ELU)                                                                                         \
    X(GELU)                                                                                        \
    X(GELU_TANH)                                                                                   \
    X(SIGMOID)                                                                                     \
    X(TANH) X(SOFTPLUS) X(SWISH) X(SELU) X(EXPONENTIAL) X(SOFTSIGN) X(HARD_SIGMOID) X(RELU6)

static void activation(uni_activation kind, float alpha, const float *x, float *y, size_t n)
{
    switch (kind) {
#define ONE(K)                                                                                     \
    case UNI_ACTIVATION_##K:                                                                       \
        EACH8(n) put(y + i, m, activation8(UNI_ACTIVATION_##K, alpha, get(x + i, m)));             \
        break;
        ALL_ACTIVATIONS(ONE)
#undef ONE
    default:
        if (y != x)
            memmove(y, x, n * sizeof(float));
    }
}

static void activation_backward(uni_activation kind, float alpha, const float *x, const float *y,
                                const float *dy, float *dx, size_t n)
{
    const float *known = x ? x : y;
    switch (kind) {
#define ONE(K)                                                                                     \
    case UNI_ACTIVATION_##K:                                                                       \
        EACH8(n)                                                                                   \
        {                                                                                          \
            v8 k = get(known + i, m);                                                              \
            put(dx + i, m, get(dy + i, m) * slope8(UNI_ACTIVATION_##K, alpha, k, k));              \
        }                                                                                          \
        break;
        ALL_ACTIVATIONS(ONE)
#undef ONE
    default:
        if (dx != dy)
            memmove(dx, dy, n * sizeof(float));
    }
}

static void unary(uni_unary kind, const float *x, float *y, size_t n)
{
    switch (kind) {
    case UNI_UNARY_NEGATE:
        SIMPLE_LOOP y[i] = -x[i];
        break;
    case UNI_UNARY_EXP:
        EACH8(n) put(y + i, m, exp8(get(x + i, m)));
        break;
    case UNI_UNARY_LOG:
        EACH8(n) put(y + i, m, log8(get(x + i, m)));
        break;
    case UNI_UNARY_SQRT:
        SIMPLE_LOOP y[i] = sqrtf(x[i]);
        break;
    case UNI_UNARY_RSQRT:
        SIMPLE_LOOP y[i] = 1.0f / sqrtf(x[i]);
        break;
    case UNI_UNARY_SQUARE:
        SIMPLE_LOOP y[i] = x[i] * x[i];
        break;
    case UNI_UNARY_ABS:
        SIMPLE_LOOP y[i] = fabsf(x[i]);
        break;
    case UNI_UNARY_RECIPROCAL:
        SIMPLE_LOOP y[i] = 1.0f / x[i];
        break;
    default:
        uni__tensor_kernels_reference.unary(kind, x, y, n);
    }
}

static void unary_backward(uni_unary kind, const float *x, const float *y, const float *dy,
                           float *dx, size_t n)
{
    switch (kind) {
    case UNI_UNARY_NEGATE:
        SIMPLE_LOOP dx[i] = -dy[i];
        break;
    case UNI_UNARY_EXP:
        SIMPLE_LOOP dx[i] = dy[i] * y[i];
        break;
    case UNI_UNARY_LOG:
        SIMPLE_LOOP dx[i] = dy[i] / x[i];
        break;
    case UNI_UNARY_SQRT:
        SIMPLE_LOOP dx[i] = 0.5f * dy[i] / y[i];
        break;
    case UNI_UNARY_SQUARE:
        SIMPLE_LOOP dx[i] = 2.0f * dy[i] * x[i];
        break;
    case UNI_UNARY_RECIPROCAL:
        SIMPLE_LOOP dx[i] = -dy[i] * y[i] * y[i];
        break;
    default:
        uni__tensor_kernels_reference.unary_backward(kind, x, y, dy, dx, n);
    }
}

#define BINARY_LOOPS(EXPR)                                                                         \
    do {                                                                                           \
        if (a_step && b_step) {                                                                    \
            SIMPLE_LOOP                                                                            \
            {                                                                                      \
                float p = a[i], q = b[i];                                                          \
                y[i] = (EXPR);                                                                     \
            }                                                                                      \
        } else if (a_step) {                                                                       \
            const float q = b[0];                                                                  \
            SIMPLE_LOOP                                                                            \
            {                                                                                      \
                float p = a[i];                                                                    \
                y[i] = (EXPR);                                                                     \
            }                                                                                      \
        } else {                                                                                   \
            const float p = a[0];                                                                  \
            SIMPLE_LOOP                                                                            \
            {                                                                                      \
                float q = b[b_step ? i : 0];                                                       \
                y[i] = (EXPR);                                                                     \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static void binary(uni_binary kind, const float *a, int a_step, const float *b, int b_step,
                   float *y, size_t n)
{
    switch (kind) {
    case UNI_BINARY_ADD:
        BINARY_LOOPS(p + q);
        break;
    case UNI_BINARY_SUB:
        BINARY_LOOPS(p - q);
        break;
    case UNI_BINARY_MUL:
        BINARY_LOOPS(p * q);
        break;
    case UNI_BINARY_DIV:
        BINARY_LOOPS(p / q);
        break;
    case UNI_BINARY_MAXIMUM:
        BINARY_LOOPS(p >= q || p != p ? p : q);
        break;
    case UNI_BINARY_MINIMUM:
        BINARY_LOOPS(p <= q || p != p ? p : q);
        break;
    case UNI_BINARY_SQUARED_DIFFERENCE:
        BINARY_LOOPS((p - q) * (p - q));
        break;
    default:
        uni__tensor_kernels_reference.binary(kind, a, a_step, b, b_step, y, n);
    }
}

static void binary_backward(uni_binary kind, int which, const float *a, int a_step, const float *b,
                            int b_step, const float *dy, float *y, size_t n)
{
    switch (kind) {
    case UNI_BINARY_MUL:
        if (which == 0)
            BINARY_LOOPS(((void)p, dy[i] * q));
        else
            BINARY_LOOPS(((void)q, dy[i] * p));
        break;
    case UNI_BINARY_SQUARED_DIFFERENCE: {
        float sign = which == 0 ? 2.0f : -2.0f;
        BINARY_LOOPS(dy[i] * sign * (p - q));
        break;
    }
    default:
        uni__tensor_kernels_reference.binary_backward(kind, which, a, a_step, b, b_step, dy, y, n);
    }
}

static void scale(const float *x, float *y, size_t n, float multiply, float add)
{
    SIMPLE_LOOP y[i] = multiply * x[i] + add;
}

static void add_in_place(float *into, const float *from, size_t n)
{
    SIMPLE_LOOP into[i] += from[i];
}

INLINE void bias_rows(float *y, const float *bias, size_t rows, size_t cols, uni_activation kind)
{
    for (size_t r = 0; r < rows; r++, y += cols)
        EACH8(cols)
        {
            v8 x = get(y + i, m);
            if (bias)
                x += get(bias + i, m);
            put(y + i, m, activation8(kind, 0, x));
        }
}

static void bias_activation(float *y, const float *bias, size_t rows, size_t cols,
                            uni_activation kind)
{
    switch (kind) {
#define ONE(K)                                                                                     \
    case UNI_ACTIVATION_##K:                                                                       \
        bias_rows(y, bias, rows, cols, UNI_ACTIVATION_##K);                                        \
        break;
        ONE(RELU)
        ONE(SIGMOID)
        ONE(TANH)
#undef ONE
    default:
        if (bias)
            bias_rows(y, bias, rows, cols, UNI_ACTIVATION_LINEAR);
        if (kind != UNI_ACTIVATION_LINEAR)
            activation(kind, kind == UNI_ACTIVATION_ELU ? 1.0f : 0, y, y, rows * cols);
    }
}

/* Column sums are made in blocks of rows, so that many rows do not lose digits, and over tiles of
 * columns whose sums stay in registers: 8 vectors are 4 whole cache lines of each row. */
#define ROW_BLOCK 256

/* Calls tile(first column, vectors, floats in the last vector) over all columns. */
#define EACH_TILE(cols, TILE)                                                                      \
    do {                                                                                           \
        size_t c_ = 0;                                                                             \
        for (; c_ + 64 <= (cols); c_ += 64)                                                        \
            TILE(c_, 8, 8);                                                                        \
        for (; c_ + 32 <= (cols); c_ += 32)                                                        \
            TILE(c_, 4, 8);                                                                        \
        for (; c_ < (cols); c_ += 8)                                                               \
            TILE(c_, 1, eight_of((cols)-c_));                                                      \
    } while (0)

INLINE void bias_tile_backward(const float *y, float *dy, float *dbias, bool add, size_t rows,
                               size_t cols, uni_activation kind, int vectors, size_t m)
{
    float alpha = kind == UNI_ACTIVATION_ELU ? 1.0f : 0;
    v8 total[8];
    for (int v = 0; v < vectors; v++)
        total[v] = splat(0);
    for (size_t first = 0; first < rows; first += ROW_BLOCK) {
        size_t last = first + ROW_BLOCK < rows ? first + ROW_BLOCK : rows;
        v8 sum[8];
        for (int v = 0; v < vectors; v++)
            sum[v] = splat(0);
        for (size_t r = first; r < last; r++)
            for (int v = 0; v < vectors; v++) {
                float *at = dy + r * cols + 8 * v;
                v8 d = get(at, m);
                if (kind != UNI_ACTIVATION_LINEAR) {
                    v8 k = get(y + r * cols + 8 * v, m);
                    d *= slope8(kind, alpha, k, k);
                    put(at, m, d);
                }
                sum[v] += d;
            }
        for (int v = 0; v < vectors; v++)
            total[v] += sum[v];
    }
    for (int v = 0; dbias && v < vectors; v++)
        put(dbias + 8 * v, m, add ? get(dbias + 8 * v, m) + total[v] : total[v]);
}

INLINE void bias_rows_backward(const float *y, float *dy, float *dbias, bool add, size_t rows,
                               size_t cols, uni_activation kind)
{
#define TILE(c, vectors, m)                                                                        \
    bias_tile_backward(y + (c), dy + (c), dbias ? dbias + (c) : NULL, add, rows, cols, kind,       \
                       vectors, m)
    EACH_TILE(cols, TILE);
#undef TILE
}

static void bias_activation_backward(const float *y, float *dy, float *dbias, bool add, size_t rows,
                                     size_t cols, uni_activation kind)
{
    switch (kind) {
#define ONE(K)                                                                                     \
    case UNI_ACTIVATION_##K:                                                                       \
        bias_rows_backward(y, dy, dbias, add, rows, cols, UNI_ACTIVATION_##K);                     \
        break;
        ONE(LINEAR)
        ONE(RELU)
        ONE(SIGMOID)
        ONE(TANH)
#undef ONE
    default:
        activation_backward(kind, kind == UNI_ACTIVATION_ELU ? 1.0f : 0, NULL, y, dy, dy,
                            rows * cols);
        bias_rows_backward(y, dy, dbias, add, rows, cols, UNI_ACTIVATION_LINEAR);
    }
}
