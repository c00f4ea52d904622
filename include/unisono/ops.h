/*
 * ops.h - the operations on tensors, each with its gradient. See tensor.h for the rules (sticky
 * errors, NULL in gives NULL out, results live until the next uni_tape_begin). Layouts are Keras's:
 * images are (batch, height, width, channels), kernels of convolutions (height, width, in, out), of
 * dense layers (in, out).
 *
 * Arithmetic works on float32; other element types are for indices, masks and storage and become
 * float32 by uni_op_cast. Axes may be negative, counted from the end. Shapes broadcast as in NumPy.
 */
#ifndef UNISONO_OPS_H
#define UNISONO_OPS_H

#include <unisono/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise ---- */

typedef enum uni_binary {
    UNI_BINARY_ADD,
    UNI_BINARY_SUB,
    UNI_BINARY_MUL,
    UNI_BINARY_DIV,
    UNI_BINARY_POW,
    UNI_BINARY_MAXIMUM, /* on a tie the gradient goes to the first */
    UNI_BINARY_MINIMUM,
    UNI_BINARY_SQUARED_DIFFERENCE
} uni_binary;
/* Shapes are broadcast as NumPy does it. */
UNI_API uni_tensor *uni_op_binary(uni_tape *tape, uni_binary kind, uni_tensor *a, uni_tensor *b);

typedef enum uni_unary {
    UNI_UNARY_NEGATE,
    UNI_UNARY_EXP,
    UNI_UNARY_LOG,
    UNI_UNARY_SQRT,
    UNI_UNARY_RSQRT,
    UNI_UNARY_SQUARE,
    UNI_UNARY_ABS, /* gradient 0 at 0 */
    UNI_UNARY_SIGN,
    UNI_UNARY_FLOOR,
    UNI_UNARY_SIN,
    UNI_UNARY_COS,
    UNI_UNARY_RECIPROCAL
} uni_unary;
UNI_API uni_tensor *uni_op_unary(uni_tape *tape, uni_unary kind, uni_tensor *x);

typedef enum uni_activation {
    UNI_ACTIVATION_LINEAR = 0,
    UNI_ACTIVATION_RELU,
    UNI_ACTIVATION_LEAKY_RELU, /* slope alpha, 0: 0.2 as in Keras 3 */
    UNI_ACTIVATION_ELU, /* alpha, 0: 1 */
    UNI_ACTIVATION_GELU, /* exact, with erf */
    UNI_ACTIVATION_GELU_TANH, /* the approximation */
    UNI_ACTIVATION_SIGMOID,
    UNI_ACTIVATION_TANH,
    UNI_ACTIVATION_SOFTPLUS,
    UNI_ACTIVATION_SWISH, /* silu */
    UNI_ACTIVATION_SELU,
    UNI_ACTIVATION_EXPONENTIAL,
    UNI_ACTIVATION_SOFTSIGN,
    UNI_ACTIVATION_HARD_SIGMOID, /* relu6(x + 3) / 6 as in Keras 3 */
    UNI_ACTIVATION_RELU6,
    UNI_ACTIVATION_SOFTMAX, /* over the last axis */
    UNI_ACTIVATION_LOG_SOFTMAX /* over the last axis */
} uni_activation;
UNI_API uni_tensor *uni_op_activation(uni_tape *tape, uni_activation kind, uni_tensor *x,
                                      float alpha);

/* multiply * x + add. */
UNI_API uni_tensor *uni_op_scale(uni_tape *tape, uni_tensor *x, float multiply, float add);
UNI_API uni_tensor *uni_op_clip(uni_tape *tape, uni_tensor *x, float low, float high);
/* Whole samples draw the same numbers wherever and in whichever batch they are computed. `stream`
 * tells random layers of a model apart. Without training, or with rate 0, x itself. noise_ndim
 * dimensions of 1 are shared; NULL: none. */
UNI_API uni_tensor *uni_op_dropout(uni_tape *tape, uni_tensor *x, float rate, uint32_t stream,
                                   const int64_t *noise_shape);

typedef enum uni_compare {
    UNI_COMPARE_EQUAL,
    UNI_COMPARE_NOT_EQUAL,
    UNI_COMPARE_LESS,
    UNI_COMPARE_LESS_EQUAL,
    UNI_COMPARE_GREATER,
    UNI_COMPARE_GREATER_EQUAL
} uni_compare;
/* Any one element type on both sides, broadcasting; the result is UNI_B8. No gradient. */
UNI_API uni_tensor *uni_op_compare(uni_tape *tape, uni_compare kind, uni_tensor *a, uni_tensor *b);
/* condition (UNI_B8) ? a : b, all three broadcast. */
UNI_API uni_tensor *uni_op_where(uni_tape *tape, uni_tensor *condition, uni_tensor *a,
                                 uni_tensor *b);
/* To another element type; float32 to float32 is x itself. A gradient flows only between floats. */
UNI_API uni_tensor *uni_op_cast(uni_tape *tape, uni_tensor *x, uni_dtype dtype);
UNI_API uni_tensor *uni_op_stop_gradient(uni_tape *tape, uni_tensor *x);

/* ---- products ---- */

/* The last two axes are matrices (each transposed when asked), those before are batches and
 * broadcast. */
UNI_API uni_tensor *uni_op_matmul(uni_tape *tape, uni_tensor *a, uni_tensor *b, bool transpose_a,
                                  bool transpose_b);
/* activation(x @ kernel + bias): x (..., in), kernel (in, out), bias (out) or NULL. One kernel,
 * one gradient. */
UNI_API uni_tensor *uni_op_dense(uni_tape *tape, uni_tensor *x, uni_tensor *kernel,
                                 uni_tensor *bias, uni_activation activation);

typedef enum uni_padding {
    UNI_PADDING_VALID = 0,
    UNI_PADDING_SAME = 1,
    UNI_PADDING_CAUSAL = 2
} uni_padding;

/* 1 or 2 spatial axes by the rank of x (3 or 4). Zeros mean 1. */
typedef struct uni_conv_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int stride[2], dilation[2];
    uni_padding padding; /* causal: 1 axis only */
    int groups;
    bool
        depthwise; /* kernel (height, width, in, multiplier); result has in * multiplier channels */
    uni_activation activation;
} uni_conv_options;
UNI_API uni_tensor *uni_op_conv(uni_tape *tape, uni_tensor *x, uni_tensor *kernel, uni_tensor *bias,
                                const uni_conv_options *options);

typedef enum uni_pool { UNI_POOL_MAX = 0, UNI_POOL_AVERAGE = 1 } uni_pool;
typedef struct uni_pool_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    uni_pool kind;
    int window[2]; /* 0: 2 */
    int stride[2]; /* 0: the window */
    uni_padding padding; /* averages leave the padding out, as Keras does */
} uni_pool_options;
UNI_API uni_tensor *uni_op_pool(uni_tape *tape, uni_tensor *x, const uni_pool_options *options);

/* softmax(q k^T * scale [+ causal mask]) v for `heads` heads: q (batch, time, heads * size), k, v
 * (batch, source, heads * size). scale 0: 1 / sqrt(size). mask: NULL, or UNI_B8 of (batch, time,
 * source), true where attending is allowed. */
UNI_API uni_tensor *uni_op_attention(uni_tape *tape, uni_tensor *q, uni_tensor *k, uni_tensor *v,
                                     int heads, float scale, bool causal, uni_tensor *mask);

/* ---- normalisation and softmax ---- */

typedef struct uni_batch_norm_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    float momentum, epsilon; /* as given: 0 is 0 */
    const uni_parameter *moving_mean, *moving_variance;
    bool use_moving; /* moving statistics even in training (a frozen layer) */
} uni_batch_norm_options;
/* Over all axes but the last. gamma, beta (channels) or NULL. In training it uses the batch's
 * statistics (over all replicas when the step has a sync) and moves the moving ones; the variance
 * is the biased one, as in Keras. */
UNI_API uni_tensor *uni_op_batch_norm(uni_tape *tape, uni_tensor *x, uni_tensor *gamma,
                                      uni_tensor *beta, const uni_batch_norm_options *options);
/* Over the last `axes` axes together; gamma and beta have their shape, or NULL. */
UNI_API uni_tensor *uni_op_layer_norm(uni_tape *tape, uni_tensor *x, uni_tensor *gamma,
                                      uni_tensor *beta, int axes, float epsilon);
UNI_API uni_tensor *uni_op_softmax(uni_tape *tape, uni_tensor *x, int axis);
UNI_API uni_tensor *uni_op_log_softmax(uni_tape *tape, uni_tensor *x, int axis);

/* ---- indices ---- */

/* Rows of table (rows, size) by ids (any shape; i32, i64, u8 or whole float32): result ids' shape
 * + (size). An id out of range is an error that names it. */
UNI_API uni_tensor *uni_op_embedding(uni_tape *tape, uni_tensor *table, uni_tensor *ids);
typedef enum uni_combiner { UNI_COMBINER_SUM, UNI_COMBINER_MEAN, UNI_COMBINER_SQRTN } uni_combiner;
/* Bag i combines rows ids[offsets[i]] .. ids[offsets[i + 1] - 1]; an empty bag is 0. ids i32 (n),
 * offsets i64 (bags + 1). */
UNI_API uni_tensor *uni_op_embedding_bag(uni_tape *tape, uni_tensor *table, uni_tensor *ids,
                                         uni_tensor *offsets, uni_combiner combiner);
UNI_API uni_tensor *uni_op_gather(uni_tape *tape, uni_tensor *x, uni_tensor *indices, int axis);
UNI_API uni_tensor *uni_op_one_hot(uni_tape *tape, uni_tensor *ids,
                                   int64_t depth); /* out of range: all 0 */
UNI_API uni_tensor *uni_op_argmax(uni_tape *tape, uni_tensor *x,
                                  int axis); /* UNI_I64; first of equals */

/* ---- shape ---- */

UNI_API uni_tensor *uni_op_reshape(uni_tape *tape, uni_tensor *x, int ndim,
                                   const int64_t *shape); /* one -1; a view */
/* order: ndim axes; axis i of the result is axis order[i] of x. */
UNI_API uni_tensor *uni_op_transpose(uni_tape *tape, uni_tensor *x, const int *order);
/* Along an axis (negative: from the end); all other dimensions are equal. */
UNI_API uni_tensor *uni_op_concat(uni_tape *tape, int count, uni_tensor *const *tensors, int axis);
#define UNI_TO_THE_END (-1)
/* [begin, begin + size) of one axis; of the first axis it is a view. size UNI_TO_THE_END. */
UNI_API uni_tensor *uni_op_slice(uni_tape *tape, uni_tensor *x, int axis, int64_t begin,
                                 int64_t size);
UNI_API uni_tensor *uni_op_pad(uni_tape *tape, uni_tensor *x, const int64_t *before,
                               const int64_t *after, float value);
UNI_API uni_tensor *uni_op_broadcast(uni_tape *tape, uni_tensor *x, int ndim, const int64_t *shape);

/* ---- reductions ---- */

typedef enum uni_reduce {
    UNI_REDUCE_SUM,
    UNI_REDUCE_MEAN,
    UNI_REDUCE_MAX,
    UNI_REDUCE_MIN
} uni_reduce;
/* num_axes 0: over all. The gradient of max and min is shared among equals. */
UNI_API uni_tensor *uni_op_reduce(uni_tape *tape, uni_reduce kind, uni_tensor *x, int num_axes,
                                  const int *axes, bool keep_dims);

/* ---- losses: one value per sample, the last axis reduced exactly as Keras does ---- */

typedef enum uni_loss_kind {
    UNI_LOSS_MSE,
    UNI_LOSS_MAE,
    UNI_LOSS_HUBER, /* parameter: delta */
    UNI_LOSS_BINARY, /* parameter: label smoothing */
    UNI_LOSS_BINARY_LOGITS,
    /* probabilities are normalised; parameter: label smoothing */
    UNI_LOSS_CATEGORICAL,
    UNI_LOSS_CATEGORICAL_LOGITS,
    /* targets: class numbers, of prediction's shape without its last axis (or with a last axis of
     * 1) */
    UNI_LOSS_SPARSE,
    UNI_LOSS_SPARSE_LOGITS,
    UNI_LOSS_HINGE,
    UNI_LOSS_SQUARED_HINGE,
    UNI_LOSS_KL
} uni_loss_kind;
/* prediction (batch, ..., n) -> (batch, ...). target of any number type. A class number out of
 * range is an error that names it and its sample. Both shapes must be equal but for the sparse
 * kinds: no broadcasting, so that (batch) against (batch, 1) is refused.
 *
 * As in Keras, BINARY, CATEGORICAL and SPARSE of a tensor that a sigmoid or softmax made (by any
 * operation above) are computed from what it was applied to, and their gradient goes there without
 * passing the prediction; so outputs of exactly 0 and 1 train, too. Other probabilities, also a
 * softmax after a reshape, are clipped to [1e-7, 1 - 1e-7]. The kinds for logits do the same with
 * such a tensor, which does not have logits, and warn once. */
UNI_API uni_tensor *uni_op_loss(uni_tape *tape, uni_loss_kind kind, uni_tensor *target,
                                uni_tensor *prediction, float parameter);

/* ---- short forms ---- */

static inline uni_tensor *uni_op_add(uni_tape *tape, uni_tensor *a, uni_tensor *b)
{
    return uni_op_binary(tape, UNI_BINARY_ADD, a, b);
}
static inline uni_tensor *uni_op_sub(uni_tape *tape, uni_tensor *a, uni_tensor *b)
{
    return uni_op_binary(tape, UNI_BINARY_SUB, a, b);
}
static inline uni_tensor *uni_op_mul(uni_tape *tape, uni_tensor *a, uni_tensor *b)
{
    return uni_op_binary(tape, UNI_BINARY_MUL, a, b);
}
static inline uni_tensor *uni_op_div(uni_tape *tape, uni_tensor *a, uni_tensor *b)
{
    return uni_op_binary(tape, UNI_BINARY_DIV, a, b);
}
static inline uni_tensor *uni_op_relu(uni_tape *tape, uni_tensor *x)
{
    return uni_op_activation(tape, UNI_ACTIVATION_RELU, x, 0);
}
static inline uni_tensor *uni_op_sum(uni_tape *tape, uni_tensor *x)
{
    return uni_op_reduce(tape, UNI_REDUCE_SUM, x, 0, NULL, false);
}
static inline uni_tensor *uni_op_mean(uni_tape *tape, uni_tensor *x)
{
    return uni_op_reduce(tape, UNI_REDUCE_MEAN, x, 0, NULL, false);
}

#ifdef __cplusplus
}
#endif
#endif
