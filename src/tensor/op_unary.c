/*
 * op_unary.c - functions of one tensor: mathematics, activations, scale, clip, dropout. The
 * gradient overwrites the result's gradient where that is not needed any more, and is passed on.
 * Called by the tape's thread.
 */
#include <math.h>
#include <string.h>
#include <strings.h>
#include "tensor/shared.h"
#include "tensor/internal.h"

typedef struct payload {
    int kind;
    float alpha, high;
    uni__dropout dropout;
    size_t row; /* dropout: elements per sample */
} payload;

typedef struct task {
    const uni__tensor_kernels *kernels;
    const payload *data;
    const float *x, *y, *dy;
    float *out;
} task;

/* Large tensors are split into pieces of this many floats. */
#define GRAIN 1024

static void give_result(uni_tape *tape, uni__node *node, void (*body)(void *, size_t, size_t),
                        double cost, const float *x, const float *y)
{
    float *dy = uni__gradient_take(tape, node);
    task t = { tape->kernels, (const payload *)node->payload, x, y, dy, dy };
    if (!dy)
        return;
    double begin = uni__clock_begin(tape);
    uni__for(tape, node->out->count, GRAIN, cost, body, &t);
    uni__clock_end(tape, node->operation, begin, 0);
    uni__gradient_give(tape, node->inputs[0], dy);
}

/* ---- mathematics ---- */

static void unary_run(void *context, size_t begin, size_t end)
{
    const task *t = context;
    t->kernels->unary((uni_unary)t->data->kind, t->x + begin, t->out + begin, end - begin);
}

static void unary_run_backward(void *context, size_t begin, size_t end)
{
    const task *t = context;
    t->kernels->unary_backward((uni_unary)t->data->kind, t->x + begin, t->y + begin, t->dy + begin,
                               t->out + begin, end - begin);
}

static void unary_backward(uni_tape *tape, uni__node *node)
{
    give_result(tape, node, unary_run_backward, 1.0, f32(node->inputs[0]), f32(node->out));
}

/* An operation on each element by itself; `p` is kept for the way back. */
static uni_tensor *elementwise(uni_tape *tape, const char *name, uni_tensor *x, payload p,
                               double cost, void (*run)(void *, size_t, size_t), const char *back,
                               void (*backward)(uni_tape *, uni__node *))
{
    uni_tensor *out = uni__new_like(tape, x);
    if (!out)
        return NULL;
    task t = { tape->kernels, &p, f32(x), NULL, NULL, f32(out) };
    double begin = uni__clock_begin(tape);
    uni__for(tape, x->count, GRAIN, cost, run, &t);
    uni__clock_end(tape, name, begin, 0);
    payload *data = uni__tape_record(tape, back, out, 1, &x, backward, sizeof *data);
    if (data)
        *data = p;
    return out;
}

uni_tensor *uni_op_unary(uni_tape *tape, uni_unary kind, uni_tensor *x)
{
    if (!uni__check_f32(tape, "unary operation", x))
        return NULL;
    return elementwise(tape, "unary", x, (payload){ .kind = (int)kind }, 1.0, unary_run,
                       "unary backward", unary_backward);
}

/* ---- activations ---- */

bool uni__activation_from_output(uni_activation kind)
{
    switch (kind) {
    case UNI_ACTIVATION_LINEAR:
    case UNI_ACTIVATION_RELU:
    case UNI_ACTIVATION_ELU:
    case UNI_ACTIVATION_SIGMOID:
    case UNI_ACTIVATION_TANH:
    case UNI_ACTIVATION_SELU:
    case UNI_ACTIVATION_EXPONENTIAL:
    case UNI_ACTIVATION_HARD_SIGMOID:
    case UNI_ACTIVATION_RELU6:
        return true;
    default:
        return false;
    }
}

bool uni__activation_in_place(uni_activation kind)
{
    return kind != UNI_ACTIVATION_SIGMOID && uni__activation_from_output(kind);
}

static void activation_run(void *context, size_t begin, size_t end)
{
    const task *t = context;
    t->kernels->activation((uni_activation)t->data->kind, t->data->alpha, t->x + begin,
                           t->out + begin, end - begin);
}

static void activation_run_backward(void *context, size_t begin, size_t end)
{
    const task *t = context;
    t->kernels->activation_backward((uni_activation)t->data->kind, t->data->alpha,
                                    t->x ? t->x + begin : NULL, t->y ? t->y + begin : NULL,
                                    t->dy + begin, t->out + begin, end - begin);
}

static void activation_backward(uni_tape *tape, uni__node *node)
{
    bool from_output =
        uni__activation_from_output((uni_activation)((const payload *)node->payload)->kind);
    give_result(tape, node, activation_run_backward, 1.0, from_output ? NULL : f32(node->inputs[0]),
                from_output ? f32(node->out) : NULL);
}

uni_tensor *uni_op_activation(uni_tape *tape, uni_activation kind, uni_tensor *x, float alpha)
{
    if (!x || kind == UNI_ACTIVATION_LINEAR)
        return x;
    if (kind == UNI_ACTIVATION_SOFTMAX)
        return uni_op_softmax(tape, x, -1);
    if (kind == UNI_ACTIVATION_LOG_SOFTMAX)
        return uni_op_log_softmax(tape, x, -1);
    if (!uni__check_f32(tape, uni__activation_name(kind), x))
        return NULL;
    if (alpha == 0)
        alpha = kind == UNI_ACTIVATION_LEAKY_RELU ? 0.2f : 1.0f;
    uni_tensor *out = uni__new_like(tape, x);
    if (!out)
        return NULL;
    payload p = { .kind = (int)kind, .alpha = alpha };
    task t = { tape->kernels, &p, f32(x), NULL, NULL, f32(out) };
    double begin = uni__clock_begin(tape);
    uni__for(tape, x->count, GRAIN, 1.0, activation_run, &t);
    uni__clock_end(tape, "activation", begin, 0);
    out->is_sigmoid = kind == UNI_ACTIVATION_SIGMOID;
    out->logits = out->is_sigmoid ? x : NULL;
    payload *data = uni__tape_record(tape, "activation backward", out, 1, &x, activation_backward,
                                     sizeof *data);
    if (data)
        *data = p;
    return out;
}

static const struct {
    const char *name;
    uni_activation kind;
} activation_names[] = {
    /* the first name of a kind is the one that Keras writes */
    { "linear", UNI_ACTIVATION_LINEAR },
    { "relu", UNI_ACTIVATION_RELU },
    { "leaky_relu", UNI_ACTIVATION_LEAKY_RELU },
    { "leakyrelu", UNI_ACTIVATION_LEAKY_RELU },
    { "elu", UNI_ACTIVATION_ELU },
    { "gelu", UNI_ACTIVATION_GELU },
    { "gelu_tanh", UNI_ACTIVATION_GELU_TANH },
    { "sigmoid", UNI_ACTIVATION_SIGMOID },
    { "tanh", UNI_ACTIVATION_TANH },
    { "softplus", UNI_ACTIVATION_SOFTPLUS },
    { "silu", UNI_ACTIVATION_SWISH },
    { "swish", UNI_ACTIVATION_SWISH },
    { "selu", UNI_ACTIVATION_SELU },
    { "exponential", UNI_ACTIVATION_EXPONENTIAL },
    { "softsign", UNI_ACTIVATION_SOFTSIGN },
    { "hard_sigmoid", UNI_ACTIVATION_HARD_SIGMOID },
    { "relu6", UNI_ACTIVATION_RELU6 },
    { "softmax", UNI_ACTIVATION_SOFTMAX },
    { "log_softmax", UNI_ACTIVATION_LOG_SOFTMAX },
};

int uni__activation_from_name(const char *name)
{
    if (!name)
        return UNI_ACTIVATION_LINEAR;
    for (size_t i = 0; i < sizeof activation_names / sizeof *activation_names; i++)
        if (strcasecmp(name, activation_names[i].name) == 0)
            return (int)activation_names[i].kind;
    return -1;
}

const char *uni__activation_name(uni_activation kind)
{
    for (size_t i = 0; i < sizeof activation_names / sizeof *activation_names; i++)
        if (activation_names[i].kind == kind)
            return activation_names[i].name;
    return "?";
}

/* ---- scale and clip ---- */

static void scale_run(void *context, size_t begin, size_t end)
{
    const task *t = context;
    t->kernels->scale(t->x + begin, t->out + begin, end - begin, t->data->alpha, t->data->high);
}

static void scale_run_backward(void *context, size_t begin, size_t end)
{
    const task *t = context;
    t->kernels->scale(t->dy + begin, t->out + begin, end - begin, t->data->alpha, 0);
}

static void scale_backward(uni_tape *tape, uni__node *node)
{
    give_result(tape, node, scale_run_backward, 0.3, NULL, NULL);
}

uni_tensor *uni_op_scale(uni_tape *tape, uni_tensor *x, float multiply, float add)
{
    if (!uni__check_f32(tape, "scale", x))
        return NULL;
    return elementwise(tape, "scale", x, (payload){ .alpha = multiply, .high = add }, 0.3,
                       scale_run, "scale backward", scale_backward);
}

static void clip_run(void *context, size_t begin, size_t end)
{
    const task *t = context;
    for (size_t i = begin; i < end; i++)
        t->out[i] = t->x[i] < t->data->alpha  ? t->data->alpha
                    : t->x[i] > t->data->high ? t->data->high
                                              : t->x[i];
}

static void clip_run_backward(void *context, size_t begin, size_t end)
{
    const task *t = context;
    for (size_t i = begin; i < end; i++)
        t->out[i] = t->x[i] >= t->data->alpha && t->x[i] <= t->data->high ? t->dy[i] : 0;
}

static void clip_backward(uni_tape *tape, uni__node *node)
{
    give_result(tape, node, clip_run_backward, 0.5, f32(node->inputs[0]), NULL);
}

uni_tensor *uni_op_clip(uni_tape *tape, uni_tensor *x, float low, float high)
{
    if (!uni__check_f32(tape, "clip", x))
        return NULL;
    if (!(low <= high))
        return uni_tape_fail(tape, UNI_EINVAL, "clip: the lower limit %g is above the upper one %g",
                             (double)low, (double)high);
    return elementwise(tape, "clip", x, (payload){ .alpha = low, .high = high }, 0.5, clip_run,
                       "clip backward", clip_backward);
}

/* ---- dropout ---- */

static void dropout_run(void *context, size_t begin, size_t end)
{
    const task *t = context;
    uni__dropout d = t->data->dropout;
    size_t row = t->data->row;
    d.first += begin;
    t->kernels->dropout(t->x + begin * row, t->out + begin * row, end - begin, row, &d);
}

static void dropout_backward(uni_tape *tape, uni__node *node)
{
    const payload *data = (const payload *)node->payload;
    float *dy = uni__gradient_take(tape, node);
    if (!dy)
        return;
    task t = { tape->kernels, data, dy, NULL, NULL, dy };
    double begin = uni__clock_begin(tape);
    uni__for(tape, data->row ? node->out->count / data->row : 0, 1, (double)data->row, dropout_run,
             &t);
    uni__clock_end(tape, "dropout backward", begin, 0);
    uni__gradient_give(tape, node->inputs[0], dy);
}

static uni_tensor *shared_dropout(uni_tape *tape, uni_tensor *x, float rate, uint32_t stream,
                                  const int64_t *noise_shape)
{
    for (int i = 0; i < x->ndim; i++)
        if (noise_shape[i] != 1 && noise_shape[i] != x->shape[i])
            return uni_tape_fail(
                tape, UNI_ESHAPE,
                "dropout: the noise's shape must be that of x (%s) or 1 on each axis",
                uni__shape(tape, x));
    uni_tensor *ones = uni__new(tape, UNI_F32, x->ndim, noise_shape);
    if (!ones)
        return NULL;
    for (size_t i = 0; i < ones->count; i++)
        f32(ones)[i] = 1;
    return uni_op_mul(tape, x, uni_op_dropout(tape, ones, rate, stream, NULL));
}

uni_tensor *uni_op_dropout(uni_tape *tape, uni_tensor *x, float rate, uint32_t stream,
                           const int64_t *noise_shape)
{
    if (!uni__check_f32(tape, "dropout", x))
        return NULL;
    if (!(rate >= 0 && rate <= 1))
        return uni_tape_fail(tape, UNI_EINVAL,
                             "dropout: the rate is %g, it must be between 0 and 1", (double)rate);
    if (!tape->step.training || rate == 0 || x->count == 0)
        return x;
    if (noise_shape)
        return shared_dropout(tape, x, rate, stream, noise_shape);
    uni_tensor *out = uni__new_like(tape, x);
    if (!out)
        return NULL;
    int64_t rows = x->ndim ? x->shape[0] : 1;
    payload p = { .row = x->count / (size_t)rows };
    p.dropout = (uni__dropout){ .seed = tape->step.seed,
                                .step = (uint32_t)tape->step.number,
                                .stream = stream,
                                .first = (uint64_t)tape->step.first_sample,
                                .threshold = (uint32_t)lrintf(rate * 65536.0f),
                                .keep_scale = rate < 1 ? 1.0f / (1.0f - rate) : 0.0f };
    task t = { tape->kernels, &p, f32(x), NULL, NULL, f32(out) };
    double begin = uni__clock_begin(tape);
    uni__for(tape, (size_t)rows, 1, (double)p.row, dropout_run, &t);
    uni__clock_end(tape, "dropout", begin, 0);
    payload *data = uni__tape_record(tape, "dropout", out, 1, &x, dropout_backward, sizeof *data);
    if (data)
        *data = p;
    return out;
}
