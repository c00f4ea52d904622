/*
 * op_conv.c - convolution over 1 or 2 spatial axes with bias and activation: shapes, padding and
 * the gradient; the kernels are in onednn_conv.c. Called by the tape's thread.
 */
#include <string.h>
#include "tensor/onednn.h"
#include "base/options.h"

typedef struct payload {
    uni__conv conv;
    uni_activation activation;
} payload;

/* Keras's "same": input / stride results, rounded up, with the odd zero at the end. */
static void plan_axis(int64_t in, int64_t kernel, int64_t stride, int64_t dilation,
                      uni_padding padding, int64_t *out, int64_t *before, int64_t *after)
{
    int64_t reach = (kernel - 1) * dilation + 1;
    *before = *after = 0;
    if (padding == UNI_PADDING_CAUSAL)
        *before = reach - 1;
    if (padding == UNI_PADDING_SAME) {
        *out = (in + stride - 1) / stride;
        int64_t total = (*out - 1) * stride + reach - in;
        if (total < 0)
            total = 0;
        *before = total / 2;
        *after = total - total / 2;
        return;
    }
    int64_t room = in + *before - reach;
    *out = room < 0 ? 0 : room / stride + 1;
}

static int64_t at_least_one(int value)
{
    return value > 0 ? value : 1;
}

static bool check_kernel(uni_tape *tape, const uni_tensor *x, const uni_tensor *kernel,
                         const uni_tensor *bias, const uni_conv_options *options)
{
    int axes = x->ndim - 2;
    bool good = (axes == 1 || axes == 2) && kernel->ndim == x->ndim;
    if (good) {
        int64_t in = x->shape[x->ndim - 1], inner = kernel->shape[kernel->ndim - 2];
        int64_t groups = at_least_one(options->groups), out = kernel->shape[kernel->ndim - 1];
        good = options->depthwise ? inner == in : inner * groups == in && out % groups == 0;
        good = good && in > 0 && out > 0 && kernel->count > 0;
    }
    if (!good) {
        uni_tape_fail(tape, UNI_ESHAPE,
                      "convolution: input of shape %s does not fit a %skernel of shape %s%s",
                      uni__shape(tape, x), options->depthwise ? "depthwise " : "",
                      uni__shape(tape, kernel),
                      at_least_one(options->groups) > 1 ? " with its groups" : "");
        return false;
    }
    int64_t channels =
        kernel->shape[kernel->ndim - 1] * (options->depthwise ? x->shape[x->ndim - 1] : 1);
    if (bias && (bias->ndim != 1 || bias->shape[0] != channels || bias->dtype != UNI_F32)) {
        uni_tape_fail(tape, UNI_ESHAPE,
                      "convolution: bias of shape %s, but there are %lld channels",
                      uni__shape(tape, bias), (long long)channels);
        return false;
    }
    if (options->padding == UNI_PADDING_CAUSAL && axes != 1) {
        uni_tape_fail(tape, UNI_EINVAL,
                      "convolution: causal padding is for one axis, the input has shape %s",
                      uni__shape(tape, x));
        return false;
    }
    return true;
}

static uni__conv plan(const uni_tensor *x, const uni_tensor *kernel,
                      const uni_conv_options *options)
{
    bool two = x->ndim == 4;
    uni__conv c = { .batch = x->shape[0],
                    .height = two ? x->shape[1] : 1,
                    .width = x->shape[x->ndim - 2],
                    .in = x->shape[x->ndim - 1],
                    .kernel_height = two ? kernel->shape[0] : 1,
                    .kernel_width = kernel->shape[kernel->ndim - 3],
                    .groups = at_least_one(options->groups) };
    c.out = kernel->shape[kernel->ndim - 1];
    if (options->depthwise) {
        c.groups = c.in;
        c.out *= c.in;
    }
    int horizontal = two ? 1 : 0;
    c.stride[0] = two ? at_least_one(options->stride[0]) : 1;
    c.stride[1] = at_least_one(options->stride[horizontal]);
    c.dilation[0] = two ? at_least_one(options->dilation[0]) : 1;
    c.dilation[1] = at_least_one(options->dilation[horizontal]);
    uni_padding vertical = two ? options->padding : UNI_PADDING_VALID;
    plan_axis(c.height, c.kernel_height, c.stride[0], c.dilation[0], vertical, &c.out_height,
              &c.pad_top, &c.pad_bottom);
    plan_axis(c.width, c.kernel_width, c.stride[1], c.dilation[1], options->padding, &c.out_width,
              &c.pad_left, &c.pad_right);
    /* oneDNN needs the exact padding at the end: input that a stride leaves over is negative
     * padding */
    c.pad_bottom = (c.out_height - 1) * c.stride[0] + (c.kernel_height - 1) * c.dilation[0] + 1 -
                   c.height - c.pad_top;
    c.pad_right = (c.out_width - 1) * c.stride[1] + (c.kernel_width - 1) * c.dilation[1] + 1 -
                  c.width - c.pad_left;
    return c;
}

static double conv_flops(const uni__conv *c)
{
    return 2.0 * (double)(c->batch * c->out_height * c->out_width * c->out) *
           (double)(c->kernel_height * c->kernel_width * c->in / c->groups);
}

static void gradient_of_kernel(uni_tape *tape, const uni__conv *c, const uni_tensor *x,
                               uni_tensor *kernel, const float *dz)
{
    bool add = false;
    float *target = uni__gradient_target(tape, kernel, &add);
    if (!target)
        return;
    float *fresh = add ? uni__scratch_floats(tape, kernel->count) : target;
    if (!fresh)
        return;
    double begin = uni__clock_begin(tape);
    uni__conv_backward_weights(tape, c, f32(x), dz, fresh, NULL);
    uni__clock_end(tape, "conv backward weights", begin, conv_flops(c));
    if (add) {
        tape->kernels->add_in_place(target, fresh, kernel->count);
        uni__release_floats(tape, fresh, kernel->count);
    }
}

/* Computes both gradients of a network's first layer in one pass. */
static void thin_backward(uni_tape *tape, uni__node *node, const uni__conv *c)
{
    bool add_kernel = false, add_bias = false;
    uni_tensor *bias = node->inputs[2];
    float *dkernel = uni__gradient_target(tape, node->inputs[1], &add_kernel);
    float *dbias = bias ? uni__gradient_target(tape, bias, &add_bias) : NULL;
    double begin = uni__clock_begin(tape);
    uni__thin_backward(tape, c, f32(node->inputs[0]), f32(node->out), node->out->gradient, dkernel,
                       add_kernel, dbias, add_bias);
    uni__clock_end(tape, "conv backward weights", begin, conv_flops(c));
}

static void backward(uni_tape *tape, uni__node *node)
{
    payload *data = (payload *)node->payload;
    uni_tensor *x = node->inputs[0], *bias = node->inputs[2];
    uni__conv c = data->conv;
    size_t rows = node->out->count / (size_t)c.out;
    bool add = false;
    /* An empty replica: the operations before it still take part in its syncs. */
    if (node->out->count == 0) {
        uni__gradient_target(tape, x, &add);
        return;
    }
    if (!x->needs_gradient && uni__thin_fits(tape, &c) &&
        (c.relu || data->activation == UNI_ACTIVATION_LINEAR)) {
        thin_backward(tape, node, &c);
        return;
    }
    c.relu = 0;
    float *dz = data->activation == UNI_ACTIVATION_LINEAR ? node->out->gradient
                                                          : uni__gradient_take(tape, node);
    float *target = bias ? uni__gradient_target(tape, bias, &add) : NULL;
    double begin = uni__clock_begin(tape);
    uni__bias_backward(tape, f32(node->out), dz, target, add, rows, (size_t)c.out,
                       data->activation);
    uni__clock_end(tape, "conv backward bias", begin, 0);
    gradient_of_kernel(tape, &c, x, node->inputs[1], dz);
    if (x->needs_gradient) {
        float *dx = uni__scratch_floats(tape, x->count);
        begin = uni__clock_begin(tape);
        if (dx && uni__conv_backward_data(tape, &c, f32(node->inputs[1]), dz, dx))
            uni__gradient_give(tape, x, dx);
        uni__clock_end(tape, "conv backward data", begin, conv_flops(&c));
    }
    if (data->activation != UNI_ACTIVATION_LINEAR)
        uni__release_floats(tape, dz, node->out->count);
}

uni_tensor *uni_op_conv(uni_tape *tape, uni_tensor *x, uni_tensor *kernel, uni_tensor *bias,
                        const uni_conv_options *options)
{
    UNI__TAPE_OPTIONS(uni_conv_options, options, activation, tape);
    if (!uni__check_f32(tape, "convolution", x) || !uni__check_f32(tape, "convolution", kernel))
        return NULL;
    if (!uni__activation_in_place(options->activation)) {
        uni_conv_options linear = *options;
        linear.activation = UNI_ACTIVATION_LINEAR;
        return uni_op_activation(tape, options->activation,
                                 uni_op_conv(tape, x, kernel, bias, &linear), 0);
    }
    if (!check_kernel(tape, x, kernel, bias, options))
        return NULL;
    uni__conv c = plan(x, kernel, options);
    if (c.out_height <= 0 || c.out_width <= 0)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "convolution: an input of shape %s is smaller than the kernel %s",
                             uni__shape(tape, x), uni__shape(tape, kernel));
    c.relu = options->activation == UNI_ACTIVATION_RELU;
    int64_t two[4] = { c.batch, c.out_height, c.out_width, c.out },
            one[3] = { c.batch, c.out_width, c.out };
    uni_tensor *out = uni__new(tape, UNI_F32, x->ndim, x->ndim == 4 ? two : one);
    if (!out)
        return NULL;
    double begin = uni__clock_begin(tape);
    if (out->count &&
        !uni__conv_forward(tape, &c, f32(x), f32(kernel), bias ? f32(bias) : NULL, f32(out)))
        return NULL;
    if (out->count && options->activation != UNI_ACTIVATION_LINEAR && !c.relu)
        tape->kernels->activation(options->activation, 1.0f, f32(out), f32(out), out->count);
    uni__clock_end(tape, "conv", begin, conv_flops(&c));
    payload *data = uni__tape_record(tape, "conv", out, 3, (uni_tensor *[]){ x, kernel, bias },
                                     backward, sizeof *data);
    if (data)
        *data = (payload){ c, options->activation };
    return tape->error.code ? NULL : out;
}
