/*
 * op_loss.c - losses as one operation: a value per sample, with the last axis reduced as Keras (on
 * TensorFlow) does it, and the gradient for the prediction. Targets have no gradient. Called by the
 * tape's thread.
 *
 * Cross-entropies of probabilities that a sigmoid or softmax made are computed from its argument,
 * whichever of the two it was, and the gradient goes there directly: a probability that was rounded
 * to 0 or 1 has neither a finite logarithm nor a slope. Others are clipped. The kinds of logits do
 * the same with such a tensor, which is not one of logits, and warn.
 *
 *   prediction [rows, cols], target [rows, cols] or [rows] (sparse) -> out [rows]
 */
#include <math.h>
#include <string.h>
#include "base/log.h"
#include "tensor/internal.h"
#include "tensor/update.h"

#define EPSILON 1e-7f

typedef struct payload {
    uni_loss_kind kind;
    size_t rows, cols;
    float parameter;
    const float *target; /* [rows, cols], not for sparse */
    const int64_t *classes; /* [rows], sparse */
    float *saved; /* log-softmax of the logits kinds */
    const float *sigmoid; /* [rows, cols], of the logits of UNI_LOSS_BINARY_LOGITS; NULL: unknown */
} payload;

static bool is_sparse(uni_loss_kind kind)
{
    return kind == UNI_LOSS_SPARSE || kind == UNI_LOSS_SPARSE_LOGITS;
}

static bool is_categorical(uni_loss_kind kind)
{
    return kind == UNI_LOSS_CATEGORICAL || kind == UNI_LOSS_CATEGORICAL_LOGITS;
}

/* Turns a cross-entropy into its kind for logits. False: the kind is not a cross-entropy. */
static bool of_logits(uni_loss_kind *kind)
{
    switch (*kind) {
    case UNI_LOSS_BINARY:
    case UNI_LOSS_BINARY_LOGITS:
        *kind = UNI_LOSS_BINARY_LOGITS;
        return true;
    case UNI_LOSS_CATEGORICAL:
    case UNI_LOSS_CATEGORICAL_LOGITS:
        *kind = UNI_LOSS_CATEGORICAL_LOGITS;
        return true;
    case UNI_LOSS_SPARSE:
    case UNI_LOSS_SPARSE_LOGITS:
        *kind = UNI_LOSS_SPARSE_LOGITS;
        return true;
    default:
        return false;
    }
}

const uni_tensor *uni__tensor_logits(const uni_tensor *tensor)
{
    return tensor->logits && tensor->logits->data ? tensor->logits : NULL;
}

void uni__tensor_set_logits(uni_tensor *tensor, uni_tensor *logits)
{
    tensor->logits = logits;
}

void uni__warn_not_logits(const char *what)
{
    uni__warn("%s has from_logits=true, but a sigmoid or softmax made its predictions, which are "
              "therefore not logits. It is computed from what that was applied to, as in Keras; "
              "leave out the activation or from_logits",
              what);
}

static float clipped(float p)
{
    return p < EPSILON ? EPSILON : p > 1.0f - EPSILON ? 1.0f - EPSILON : p;
}

static bool inside(float p)
{
    return p >= EPSILON && p <= 1.0f - EPSILON;
}

/* ---- over classes: forward of one row ---- */

/* -log(c[k] / sum(c)) with c clipped: TensorFlow uses log-probabilities as logits. */
static float sparse_row(const float *p, int64_t k, size_t cols)
{
    double sum = 0;
    for (size_t i = 0; i < cols; i++)
        sum += clipped(p[i]);
    return (float)(log(sum) - log(clipped(p[k])));
}

/* -sum(t log(clip(p / sum(p)))) */
static float categorical_row(const float *t, const float *p, size_t cols)
{
    double sum = 0, loss = 0;
    for (size_t i = 0; i < cols; i++)
        sum += p[i];
    for (size_t i = 0; i < cols; i++)
        if (t[i] != 0)
            loss -= (double)t[i] * log(clipped((float)(p[i] / sum)));
    return (float)loss;
}

static float logits_row(const float *t, const float *log_softmax, size_t cols)
{
    double loss = 0;
    for (size_t i = 0; i < cols; i++)
        loss -= (double)t[i] * log_softmax[i];
    return (float)loss;
}

static void forward(uni_tape *tape, const payload *l, const float *p, float *out)
{
    if (l->saved)
        tape->kernels->log_softmax(p, l->saved, l->rows, l->cols);
    for (size_t r = 0; r < l->rows; r++) {
        size_t at = r * l->cols;
        switch (l->kind) {
        case UNI_LOSS_SPARSE_LOGITS:
            out[r] = -l->saved[at + (size_t)l->classes[r]];
            break;
        case UNI_LOSS_SPARSE:
            out[r] = sparse_row(p + at, l->classes[r], l->cols);
            break;
        case UNI_LOSS_CATEGORICAL_LOGITS:
            out[r] = logits_row(l->target + at, l->saved + at, l->cols);
            break;
        default:
            out[r] = categorical_row(l->target + at, p + at, l->cols);
        }
    }
}

/* ---- and backward ---- */

static void sparse_slope(const float *p, int64_t k, size_t cols, float d, float *dp)
{
    double sum = 0;
    for (size_t i = 0; i < cols; i++)
        sum += clipped(p[i]);
    for (size_t i = 0; i < cols; i++)
        dp[i] = inside(p[i]) ? (float)(d * (1 / sum - (i == (size_t)k ? 1 / (double)p[i] : 0))) : 0;
}

static void categorical_slope(const float *t, const float *p, size_t cols, float d, float *dp)
{
    double sum = 0, dot = 0;
    for (size_t i = 0; i < cols; i++)
        sum += p[i];
    for (size_t i = 0; i < cols; i++) {
        float q = (float)(p[i] / sum);
        dp[i] = inside(q) ? -t[i] / q : 0;
        dot += (double)dp[i] * q;
    }
    for (size_t i = 0; i < cols; i++)
        dp[i] = (float)(d * (dp[i] - dot) / sum);
}

/* softmax * sum(t) - t */
static void logits_slope(const float *t, int64_t k, size_t cols, float d, float *dp)
{
    double total = 0;
    for (size_t i = 0; t && i < cols; i++)
        total += t[i];
    float factor = t ? (float)total * d : d;
    for (size_t i = 0; i < cols; i++)
        dp[i] = dp[i] * factor - (t ? t[i] * d : 0);
    if (!t)
        dp[k] -= d;
}

static void class_backward(uni_tape *tape, const payload *l, const float *p, const float *dout,
                           float *dp)
{
    if (l->saved)
        tape->kernels->unary(UNI_UNARY_EXP, l->saved, dp, l->rows * l->cols);
    for (size_t r = 0; r < l->rows; r++) {
        size_t at = r * l->cols;
        if (l->saved)
            logits_slope(l->target ? l->target + at : NULL, l->classes ? l->classes[r] : 0, l->cols,
                         dout[r], dp + at);
        else if (l->classes)
            sparse_slope(p + at, l->classes[r], l->cols, dout[r], dp + at);
        else
            categorical_slope(l->target + at, p + at, l->cols, dout[r], dp + at);
    }
}

/* sigmoid - t is half the slope of the squared error. Spares the exponentials. */
static bool sigmoid_backward(uni_tape *tape, const payload *l, const float *dout, float *dp)
{
    size_t n = l->rows * l->cols;
    float *half = uni__scratch_floats(tape, l->rows);
    float *smooth = l->parameter != 0 ? uni__scratch_floats(tape, n) : NULL;
    if (tape->error.code)
        return false;
    tape->kernels->scale(dout, half, l->rows, 0.5f, 0);
    if (smooth)
        tape->kernels->scale(l->target, smooth, n, 1 - l->parameter, 0.5f * l->parameter);
    tape->kernels->pointwise_loss_backward(UNI_LOSS_MSE, smooth ? smooth : l->target, l->sigmoid,
                                           half, dp, l->rows, l->cols, 0);
    uni__release_floats(tape, half, l->rows);
    if (smooth)
        uni__release_floats(tape, smooth, n);
    return true;
}

static void backward(uni_tape *tape, uni__node *node)
{
    const payload *l = (const payload *)node->payload;
    uni_tensor *prediction = node->inputs[0];
    float *dp = uni__scratch_floats(tape, prediction->count);
    if (!dp)
        return;
    double begin = uni__clock_begin(tape);
    if (is_sparse(l->kind) || is_categorical(l->kind))
        class_backward(tape, l, f32(prediction), node->out->gradient, dp);
    else if (!l->sigmoid || !sigmoid_backward(tape, l, node->out->gradient, dp))
        tape->kernels->pointwise_loss_backward(l->kind, l->target, f32(prediction),
                                               node->out->gradient, dp, l->rows, l->cols,
                                               l->parameter);
    uni__clock_end(tape, "loss backward", begin, 0);
    uni__gradient_give(tape, prediction, dp);
}

/* ---- targets ---- */

static bool read_classes(uni_tape *tape, const uni_tensor *target, const uni_tensor *prediction,
                         payload *l)
{
    bool fits = target->count == l->rows;
    int extra = target->ndim == prediction->ndim && target->ndim > 0 &&
                target->shape[target->ndim - 1] == 1;
    fits = fits && target->ndim - extra == prediction->ndim - 1;
    for (int i = 0; fits && i < prediction->ndim - 1; i++)
        fits = target->shape[i] == prediction->shape[i];
    if (!fits) {
        uni_tape_fail(
            tape, UNI_ESHAPE,
            "sparse cross-entropy: targets of shape %s do not fit predictions of shape %s",
            uni__shape(tape, target), uni__shape(tape, prediction));
        return false;
    }
    l->classes = uni__indices(tape, "sparse cross-entropy", target);
    for (size_t r = 0; l->classes && r < l->rows; r++)
        if (l->classes[r] < 0 || l->classes[r] >= (int64_t)l->cols) {
            uni_tape_fail(
                tape, UNI_EINVAL,
                "sparse cross-entropy: label %lld at position %zu, but there are %zu classes",
                (long long)l->classes[r], r, l->cols);
            return false;
        }
    return l->classes != NULL;
}

/* Copies the target with Keras's label smoothing (categorical), or with 0 and 1 turned into -1 and
 * 1 (hinge, when there are no other values). */
static const float *prepared(uni_tape *tape, const payload *l, const float *target)
{
    bool hinge = l->kind == UNI_LOSS_HINGE || l->kind == UNI_LOSS_SQUARED_HINGE;
    size_t n = l->rows * l->cols;
    for (size_t i = 0; hinge && i < n; i++)
        hinge = target[i] == 0 || target[i] == 1;
    float multiply = 1, add = 0;
    if (hinge) {
        multiply = 2;
        add = -1;
    } else if (is_categorical(l->kind) && l->parameter != 0) {
        multiply = 1 - l->parameter;
        add = l->parameter / (float)l->cols;
    } else {
        return target;
    }
    float *copy = uni__scratch_floats(tape, n);
    if (copy)
        tape->kernels->scale(target, copy, n, multiply, add);
    return copy;
}

static bool read_target(uni_tape *tape, uni_tensor *target, const uni_tensor *prediction,
                        payload *l)
{
    if (is_sparse(l->kind))
        return read_classes(tape, target, prediction, l);
    if (!uni__same_shape(target, prediction)) {
        bool missing =
            target->ndim == prediction->ndim - 1 && prediction->shape[prediction->ndim - 1] == 1;
        uni_tape_fail(
            tape, UNI_ESHAPE, "loss: targets of shape %s against predictions of shape %s%s",
            uni__shape(tape, target), uni__shape(tape, prediction),
            missing ? "; add the last axis to the targets (reshape them to the predictions' shape)"
                    : "");
        return false;
    }
    uni_tensor *numbers = uni__as_f32(tape, target);
    l->target = numbers ? prepared(tape, l, f32(numbers)) : NULL;
    return numbers && l->target;
}

uni_tensor *uni_op_loss(uni_tape *tape, uni_loss_kind kind, uni_tensor *target,
                        uni_tensor *prediction, float parameter)
{
    if (!target || !uni__check_f32(tape, "loss", prediction))
        return NULL;
    const uni_tensor *made = NULL;
    uni_loss_kind given = kind;
    if (prediction->logits && of_logits(&kind)) {
        if (kind == given && uni__tape_once(tape, UNI__ONCE_LOGITS))
            uni__warn_not_logits("a cross-entropy");
        made = prediction;
        prediction = prediction->logits;
    }
    if (prediction->ndim < 1 || (prediction->ndim == 1 && target->ndim <= 1))
        return uni_tape_fail(
            tape, UNI_ESHAPE,
            "loss: predictions of shape %s have no last axis to reduce; add one: (batch, 1)",
            uni__shape(tape, prediction));
    payload l = { .kind = kind,
                  .cols = (size_t)prediction->shape[prediction->ndim - 1],
                  .parameter = parameter,
                  .sigmoid = made && made->is_sigmoid ? f32(made) : NULL };
    l.rows = (size_t)uni__shape_span(prediction->shape, 0, prediction->ndim - 1);
    if (l.cols == 0)
        return uni_tape_fail(tape, UNI_ESHAPE, "loss: predictions of shape %s have no classes",
                             uni__shape(tape, prediction));
    if (!read_target(tape, target, prediction, &l))
        return NULL;
    uni_tensor *out = uni__new(tape, UNI_F32, prediction->ndim - 1, prediction->shape);
    if (kind == UNI_LOSS_SPARSE_LOGITS || kind == UNI_LOSS_CATEGORICAL_LOGITS)
        l.saved = uni__scratch_floats(tape, prediction->count);
    if (!out || tape->error.code)
        return NULL;
    double begin = uni__clock_begin(tape);
    if (is_sparse(kind) || is_categorical(kind))
        forward(tape, &l, f32(prediction), f32(out));
    else
        tape->kernels->pointwise_loss(kind, l.target, f32(prediction), f32(out), l.rows, l.cols,
                                      l.parameter);
    uni__clock_end(tape, "loss", begin, 0);
    payload *data = uni__tape_record(tape, "loss", out, 1, &prediction, backward, sizeof *data);
    if (data)
        *data = l;
    return out;
}
