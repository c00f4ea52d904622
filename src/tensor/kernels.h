/*
 * kernels.h - the table of inner loops: one for each instruction set, and the plain reference.
 *
 * Tests compare with kernels_reference.c: short loops, libm, sums in double. kernels_simd.h is the
 * fast version, compiled once for the baseline and once for AVX2 with FMA; uni__tensor_kernels_best
 * selects at run time. The comments give the shapes. All arrays are dense and row-major. No kernel
 * allocates or uses threads. Only for src/tensor.
 */
#ifndef UNISONO_TENSOR_KERNELS_H
#define UNISONO_TENSOR_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/ops.h>
#include "tensor/descent.h"
#include "tensor/update.h"

typedef struct uni__dropout {
    uint64_t seed;
    uint32_t step, stream;
    uint64_t first; /* row 0's position in the global batch */
    uint32_t threshold; /* keep when the draw is not below it */
    float keep_scale;
} uni__dropout;

/* c[m, n] = op(a) op(b) + (add ? c : 0); op(a) is m x k, op(b) is k x n; ld: floats from row to row
 * as stored. */
typedef struct uni__product {
    bool transpose_a, transpose_b, add;
    int64_t m, n, k;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    const uni__descent *descent; /* c = keep c - rate op(a) op(b); NULL: as `add` says */
} uni__product;
/* Floats of scratch memory that the `gemm` kernel needs. */
#define UNI__GEMM_SCRATCH (256 * 272)

/* A convolution, channels-last, 2 spatial axes (1-d ones have height 1). */
typedef struct uni__conv {
    int64_t batch, height, width, in; /* x */
    int64_t out_height, out_width, out; /* y */
    int64_t kernel_height, kernel_width;
    int64_t stride[2], dilation[2]; /* dilation 1: dense */
    int64_t pad_top, pad_left, pad_bottom, pad_right;
    int64_t groups; /* kernel (kh, kw, in / groups, out) */
    int64_t relu; /* 1: fused */
} uni__conv;

/* A 3 x 3 convolution with strides 1 (kernels_winograd.h); channels are multiples of 16. */
typedef struct uni__winograd {
    uni__conv conv;
    /* 2 x 2 results each: total number of tiles, and tiles per block. */
    size_t tiles, block;
    const float *x, *u, *bias; /* forward; bias may be NULL */
    float *y;
    const float *dy; /* weights */
} uni__winograd;

/* A convolution of images with few channels (kernels_thin.h), strides 1; `out` is a multiple of
 * 16. */
#define UNI__THIN_MOST_TAPS 64
typedef struct uni__thin {
    uni__conv conv;
    /* bias may be NULL; the backward pass reads only x. */
    const float *x, *kernel, *bias;
    float *y;
    const float *dy; /* backward */
} uni__thin;

typedef struct uni__tensor_kernels {
    const char *name;
    /* y[n] = f(x[n]); y may be x */
    void (*activation)(uni_activation kind, float alpha, const float *x, float *y, size_t n);
    /* dx[n] = dy[n] f'(x[n]); reads x or y as uni__activation_from_output says; dx may be dy */
    void (*activation_backward)(uni_activation kind, float alpha, const float *x, const float *y,
                                const float *dy, float *dx, size_t n);
    void (*unary)(uni_unary kind, const float *x, float *y, size_t n);
    void (*unary_backward)(uni_unary kind, const float *x, const float *y, const float *dy,
                           float *dx, size_t n);
    /* y[n] = a[i * a_step] op b[i * b_step]; steps are 0 or 1 */
    void (*binary)(uni_binary kind, const float *a, int a_step, const float *b, int b_step,
                   float *y, size_t n);
    /* dx[n] = dy[n] * d(a op b)/da (which 0) or /db (which 1); dx may be dy */
    void (*binary_backward)(uni_binary kind, int which, const float *a, int a_step, const float *b,
                            int b_step, const float *dy, float *dx, size_t n);
    /* y = multiply x + add */
    void (*scale)(const float *x, float *y, size_t n, float multiply, float add);
    /* y[rows, cols] = f(y + bias[cols]), bias may be NULL */
    void (*bias_activation)(float *y, const float *bias, size_t rows, size_t cols,
                            uni_activation kind);
    /* dy[rows, cols] *= f'(y) in place; dbias[cols] (+)= column sums, dbias may be NULL */
    void (*bias_activation_backward)(const float *y, float *dy, float *dbias, bool add, size_t rows,
                                     size_t cols, uni_activation kind);
    /* x[outer, middle, inner] -> y[outer, inner]; with add (sum and mean only) y is added to */
    void (*reduce)(uni_reduce kind, const float *x, float *y, size_t outer, size_t middle,
                   size_t inner, bool add);
    /* rows of cols; dx may be dy */
    void (*softmax)(const float *x, float *y, size_t rows, size_t cols);
    void (*softmax_backward)(const float *y, const float *dy, float *dx, size_t rows, size_t cols);
    void (*log_softmax)(const float *x, float *y, size_t rows, size_t cols);
    void (*log_softmax_backward)(const float *y, const float *dy, float *dx, size_t rows,
                                 size_t cols);
    /* x[rows, cols], gamma, beta[cols] or NULL; keeps mean[rows], rstd[rows] */
    void (*layer_norm)(const float *x, const float *gamma, const float *beta, float *y, float *mean,
                       float *rstd, size_t rows, size_t cols, float epsilon);
    /* dgamma, dbeta[cols] are added to (NULL: not needed); dx may be NULL */
    void (*layer_norm_backward)(const float *x, const float *gamma, const float *mean,
                                const float *rstd, const float *dy, float *dx, bool add,
                                float *dgamma, float *dbeta, size_t rows, size_t cols);
    /* sums[cols] += x, squares[cols] += (x - shift)^2; shift NULL: 0 */
    void (*column_moments)(const float *x, const float *shift, float *sums, float *squares,
                           size_t rows, size_t cols);
    /* sums[cols] += dy, products[cols] += dy (x - mean) */
    void (*column_products)(const float *x, const float *mean, const float *dy, float *sums,
                            float *products, size_t rows, size_t cols);
    /* y[rows, cols] = x * scale[cols] + shift[cols] */
    void (*column_affine)(const float *x, const float *scale, const float *shift, float *y,
                          size_t rows, size_t cols);
    /* dx[rows, cols] (+)= dy * a[cols] + x * b[cols] + c[cols] */
    void (*column_combine)(const float *x, const float *dy, const float *a, const float *b,
                           const float *c, float *dx, bool add, size_t rows, size_t cols);
    /* y[rows, cols] = keep ? x * keep_scale : 0; the same call with dy gives dx; y may be x */
    void (*dropout)(const float *x, float *y, size_t rows, size_t cols,
                    const uni__dropout *dropout);
    /* n numbers of the stream, starting at block `first` (update.h) */
    void (*uniform)(float *out, size_t n, uint64_t first, const uni__uniform *uniform);
    /* max(x[n]) over a window: y[i] = max(y[i], x[i]), where[i] = index when larger */
    void (*max_merge)(const float *x, float *y, int32_t *where, int32_t index, size_t n);
    /* loss over rows of cols for the pointwise kinds: out[rows] = mean of terms; see
     * uni_loss_kind */
    void (*pointwise_loss)(uni_loss_kind kind, const float *target, const float *prediction,
                           float *out, size_t rows, size_t cols, float parameter);
    /* dprediction[rows, cols] = dout[rows] * d(loss)/d(prediction) */
    void (*pointwise_loss_backward)(uni_loss_kind kind, const float *target,
                                    const float *prediction, const float *dout, float *dprediction,
                                    size_t rows, size_t cols, float parameter);
    void (*add_in_place)(float *into, const float *from, size_t n);
    /* a product on this thread; scratch: UNI__GEMM_SCRATCH floats. NULL in a table without its
     * own */
    void (*gemm)(const uni__product *product, float *scratch);
    /* u[16, out / 16, in, 16] from kernel[3, 3, in, out]. All four are NULL in a table without
     * gemm. */
    void (*winograd_kernel)(const float *kernel, size_t in, size_t out, float *u);
    /* y of the tiles [begin, end); scratch: 16 (block + 1) (in + out) floats */
    void (*winograd_forward)(const uni__winograd *w, size_t begin, size_t end, float *scratch);
    /* du[16, in, out] of the tiles [begin, end) */
    void (*winograd_weights)(const uni__winograd *w, size_t begin, size_t end, float *scratch,
                             float *du);
    /* dkernel[3, 3, in, out] from du */
    void (*winograd_kernel_back)(const float *du, size_t in, size_t out, float *dkernel);
    /* y of the images [begin, end); frame: (out_height + kernel_height - 1) (out_width +
     * kernel_width - 1) in floats */
    void (*thin_forward)(const uni__thin *t, size_t begin, size_t end, float *frame);
    /* dkernel[taps, out] and dbias[out] of these images, from dy times the activation's slope */
    void (*thin_backward)(const uni__thin *t, size_t begin, size_t end, float *frame,
                          float *dkernel, float *dbias);
    /* updates: see update.h */
    void (*sgd)(float *w, const float *g, size_t n, float lr, float scale, float decay);
    void (*momentum)(float *w, float *v, const float *g, size_t n, float lr, float momentum,
                     bool nesterov, float scale, float decay);
    void (*adam)(float *w, float *m, float *v, float *v_max, const float *g, size_t n,
                 const uni__adam *adam);
    void (*rmsprop)(float *w, float *v, float *mean, float *momenta, const float *g, size_t n,
                    const uni__rmsprop *rmsprop);
    void (*adagrad)(float *w, float *a, const float *g, size_t n, float lr, float epsilon,
                    float scale, float decay);
} uni__tensor_kernels;

extern const uni__tensor_kernels uni__tensor_kernels_reference;
extern const uni__tensor_kernels uni__tensor_kernels_base;
#if defined(__x86_64__)
extern const uni__tensor_kernels uni__tensor_kernels_avx2;
#endif
const uni__tensor_kernels *uni__tensor_kernels_best(void);

/* The table's entries, for a file whose functions have the names of the slots. */
#define UNI__TENSOR_KERNELS_HERE                                                                   \
    .activation = activation, .activation_backward = activation_backward, .unary = unary,          \
    .unary_backward = unary_backward, .binary = binary, .binary_backward = binary_backward,        \
    .scale = scale, .bias_activation = bias_activation,                                            \
    .bias_activation_backward = bias_activation_backward, .reduce = reduce, .softmax = softmax,    \
    .softmax_backward = softmax_backward, .log_softmax = log_softmax,                              \
    .log_softmax_backward = log_softmax_backward, .layer_norm = layer_norm,                        \
    .layer_norm_backward = layer_norm_backward, .column_moments = column_moments,                  \
    .column_products = column_products, .column_affine = column_affine,                            \
    .column_combine = column_combine, .dropout = dropout, .uniform = uniform,                      \
    .max_merge = max_merge, .pointwise_loss = pointwise_loss,                                      \
    .pointwise_loss_backward = pointwise_loss_backward, .add_in_place = add_in_place, .sgd = sgd,  \
    .momentum = momentum, .adam = adam, .rmsprop = rmsprop, .adagrad = adagrad

#endif
