/*
 * conv.c - Conv1D, Conv2D and DepthwiseConv2D: one struct, one call; the classes differ in rank and
 * in the meaning of the kernel's last axis. Kernels are (height, width, in / groups, out),
 * depthwise (height, width, in, multiplier). Calls are const.
 */
#include "nn/layer.h"
#include "base/options.h"

#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "tensor/shared.h"

struct conv {
    int axes; /* 1 or 2 */
    bool depthwise, no_bias;
    int64_t filters; /* depthwise: the multiplier */
    int64_t kernel_size[2];
    uni_conv_options options;
    uni_initializer kernel_initializer, bias_initializer;
    uni_regularizer kernel_regularizer, bias_regularizer;
    uni_parameter *kernel, *bias;
};

static int conv_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                      uni_error *err)
{
    struct conv *conv = self;
    int rank = conv->axes + 2;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, rank, rank, err));
    UNI_TRY(uni__expect_width(layer, inputs, err));
    int64_t channels = inputs->dims[rank - 1], groups = conv->options.groups;
    char text[UNI__SHAPE_TEXT_SIZE];
    if (!conv->depthwise && (channels % groups != 0 || conv->filters % groups != 0))
        return uni_error_set(
            err, UNI_ESHAPE,
            "%s: %lld groups must divide both the %lld channels of the input %s and the "
            "%lld filters",
            uni_layer_name(layer), (long long)groups, (long long)channels,
            uni__spec_text(text, inputs), (long long)conv->filters);
    int64_t shape[4] = { conv->kernel_size[0], conv->kernel_size[1] };
    shape[conv->axes] = conv->depthwise ? channels : channels / groups;
    shape[conv->axes + 1] = conv->filters;
    int64_t width = conv->depthwise ? channels * conv->filters : conv->filters;
    UNI_TRY(uni_layer_add_parameter(&conv->kernel, layer, "kernel", UNI_PARAMETER_WEIGHT, rank,
                                    shape, &conv->kernel_initializer, "glorot_uniform",
                                    &conv->kernel_regularizer, err));
    if (!conv->no_bias)
        UNI_TRY(uni_layer_add_parameter(&conv->bias, layer, "bias", UNI_PARAMETER_WEIGHT, 1, &width,
                                        &conv->bias_initializer, "zeros", &conv->bias_regularizer,
                                        err));
    return 0;
}

static int64_t output_size(int64_t in, int64_t kernel, int stride, int dilation,
                           uni_padding padding)
{
    if (in < 0)
        return -1;
    if (padding != UNI_PADDING_VALID)
        return (in + stride - 1) / stride;
    int64_t reach = (kernel - 1) * dilation + 1;
    return in < reach ? 0 : (in - reach) / stride + 1;
}

static int conv_infer(const uni_layer *layer, const void *self, int num_inputs,
                      const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct conv *conv = self;
    int rank = conv->axes + 2;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, rank, rank, err));
    const int64_t *kernel = uni_parameter_info_of(conv->kernel)->shape;
    int64_t channels = inputs->dims[rank - 1];
    int64_t built = kernel[conv->axes] * (conv->depthwise ? 1 : conv->options.groups);
    char text[UNI__SHAPE_TEXT_SIZE], kernel_text[UNI__SHAPE_TEXT_SIZE];
    if (channels >= 0 && channels != built)
        return uni_error_set(err, UNI_ESHAPE, "%s was built for %lld channels (kernel %s), got %s",
                             uni_layer_name(layer), (long long)built,
                             uni__shape_text(kernel_text, rank, kernel),
                             uni__spec_text(text, inputs));
    *output = inputs[0];
    output->dtype = UNI_F32;
    output->dims[rank - 1] = conv->depthwise ? built * conv->filters : conv->filters;
    for (int i = 0; i < conv->axes; i++) {
        output->dims[i + 1] = output_size(inputs->dims[i + 1], kernel[i], conv->options.stride[i],
                                          conv->options.dilation[i], conv->options.padding);
        if (output->dims[i + 1] == 0)
            return uni_error_set(
                err, UNI_ESHAPE,
                "%s: the kernel %s is larger than the input %s; use padding same or a "
                "larger input",
                uni_layer_name(layer), uni__shape_text(kernel_text, rank, kernel),
                uni__spec_text(text, inputs));
    }
    return 0;
}

static uni_tensor *conv_call(const uni_layer *layer, const void *self, uni_tape *tape,
                             int num_inputs, uni_tensor *const *inputs)
{
    const struct conv *conv = self;
    return uni_op_conv(tape, uni__as_float(tape, inputs[0]), uni_tape_parameter(tape, conv->kernel),
                       conv->bias != NULL ? uni_tape_parameter(tape, conv->bias) : NULL,
                       &conv->options);
}

/* ---- settings ---- */

/* Checks the options that all three share, after the numbers are set. The layer keeps the error. */
static void check(uni_layer *layer)
{
    struct conv *conv = layer->self;
    uni_conv_options *options = &conv->options;
    options->depthwise = conv->depthwise;
    options->groups = options->groups != 0 ? options->groups : 1;
    for (int i = 0; i < 2; i++) {
        if (options->stride[i] == 0)
            options->stride[i] = i > 0 && conv->axes == 2 ? options->stride[0] : 1;
        if (options->dilation[i] == 0)
            options->dilation[i] = i > 0 && conv->axes == 2 ? options->dilation[0] : 1;
    }
    if (conv->axes == 2 && conv->kernel_size[1] == 0)
        conv->kernel_size[1] = conv->kernel_size[0];
    bool strided = false, dilated = false;
    for (int i = 0; i < conv->axes; i++) {
        if (options->stride[i] < 1 || options->dilation[i] < 1 || conv->kernel_size[i] < 1)
            uni_layer_fail(
                layer, UNI_EINVAL,
                "kernel size, strides and dilation must be at least 1, got %lld, %d and %d",
                (long long)conv->kernel_size[i], options->stride[i], options->dilation[i]);
        strided = strided || options->stride[i] > 1;
        dilated = dilated || options->dilation[i] > 1;
    }
    if (strided && dilated && !conv->depthwise)
        uni_layer_fail(layer, UNI_EINVAL,
                       "strides above 1 and a dilation above 1 do not go together (as in Keras)");
    if (conv->filters < 1)
        uni_layer_fail(layer, UNI_EINVAL, "%s must be at least 1, got %lld",
                       conv->depthwise ? "depth_multiplier" : "filters", (long long)conv->filters);
    if (options->groups < 1)
        uni_layer_fail(layer, UNI_EINVAL, "groups must be at least 1, got %d", options->groups);
    if (options->padding == UNI_PADDING_CAUSAL && conv->axes != 1)
        uni_layer_fail(layer, UNI_EINVAL, "causal padding is for Conv1D only");
}

static uni_layer *conv_new(const uni_layer_class *class_, int axes, bool depthwise, int64_t filters,
                           int kernel_height, int kernel_width,
                           const uni_conv_layer_options *options)
{
    uni_layer *layer = uni_layer_new(class_);
    if (layer == NULL)
        return NULL;
    uni_conv_layer_options o = options != NULL ? *options : (uni_conv_layer_options){ 0 };
    struct conv *conv = layer->self;
    *conv = (struct conv){ .axes = axes,
                           .depthwise = depthwise,
                           .no_bias = o.no_bias,
                           .filters = filters,
                           .kernel_size = { kernel_height, kernel_width },
                           .options = { .stride = { o.strides[0], o.strides[1] },
                                        .dilation = { o.dilation[0], o.dilation[1] },
                                        .padding = o.padding,
                                        .groups = o.groups },
                           .kernel_initializer = o.kernel_initializer,
                           .bias_initializer = o.bias_initializer,
                           .kernel_regularizer = o.kernel_regularizer,
                           .bias_regularizer = o.bias_regularizer };
    layer->activity = o.activity_regularizer;
    uni__layer_activation(layer, &conv->options.activation, o.activation);
    uni__layer_initializer(layer, &conv->kernel_initializer, "glorot_uniform");
    uni__layer_initializer(layer, &conv->bias_initializer, "zeros");
    check(layer);
    return layer;
}

static int conv_get_config(const uni_layer *layer, const void *self, uni_value *config,
                           uni_error *err)
{
    const struct conv *conv = self;
    const uni_conv_options *options = &conv->options;
    UNI_TRY(uni_dict_take(config, conv->depthwise ? "depth_multiplier" : "filters",
                          uni_value_int(conv->filters)));
    UNI_TRY(uni__config_put_ints(config, "kernel_size", conv->axes, conv->kernel_size));
    UNI_TRY(uni__config_put_ints(config, "strides", conv->axes,
                                 (const int64_t[]){ options->stride[0], options->stride[1] }));
    UNI_TRY(
        uni_dict_take(config, "padding", uni_value_string(uni__padding_name(options->padding))));
    UNI_TRY(uni_dict_take(config, "data_format", uni_value_string("channels_last")));
    UNI_TRY(uni__config_put_ints(config, "dilation_rate", conv->axes,
                                 (const int64_t[]){ options->dilation[0], options->dilation[1] }));
    if (!conv->depthwise)
        UNI_TRY(uni_dict_take(config, "groups", uni_value_int(options->groups)));
    UNI_TRY(uni_dict_take(config, "activation",
                          uni_value_string(uni__activation_name(options->activation))));
    UNI_TRY(uni_dict_take(config, "use_bias", uni_value_bool(!conv->no_bias)));
    UNI_TRY(uni__config_put_initializer(
        config, conv->depthwise ? "depthwise_initializer" : "kernel_initializer",
        &conv->kernel_initializer, "glorot_uniform"));
    UNI_TRY(
        uni__config_put_initializer(config, "bias_initializer", &conv->bias_initializer, "zeros"));
    UNI_TRY(uni__config_put_regularizer(
        config, conv->depthwise ? "depthwise_regularizer" : "kernel_regularizer",
        &conv->kernel_regularizer));
    UNI_TRY(uni__config_put_regularizer(config, "bias_regularizer", &conv->bias_regularizer));
    return uni__config_put_regularizer(config, "activity_regularizer", &layer->activity);
}

/* A single number applies to all axes. */
static int get_pair(int out[2], const uni_value *config, const char *key, int axes, uni_error *err)
{
    int64_t numbers[2];
    int count = 0;
    UNI_TRY(uni__config_get_ints(numbers, &count, axes, config, key, err));
    for (int i = 0; i < axes && count > 0; i++)
        out[i] = (int)numbers[i < count ? i : 0];
    return 0;
}

static int set_config(uni_layer *layer, struct conv *conv, const uni_value *config, uni_error *err)
{
    int kernel[2] = { 0, 0 };
    UNI_TRY(uni__config_refuse(config, "data_format", "channels_last", err));
    UNI_TRY(uni__config_refuse(
        config, conv->depthwise ? "depthwise_constraint" : "kernel_constraint", NULL, err));
    UNI_TRY(uni__config_refuse(config, "bias_constraint", NULL, err));
    UNI_TRY(get_pair(kernel, config, "kernel_size", conv->axes, err));
    UNI_TRY(get_pair(conv->options.stride, config, "strides", conv->axes, err));
    UNI_TRY(get_pair(conv->options.dilation, config, "dilation_rate", conv->axes, err));
    UNI_TRY(uni__config_get_padding(&conv->options.padding, config, err));
    conv->kernel_size[0] = kernel[0];
    conv->kernel_size[1] = kernel[1];
    conv->filters = conv->depthwise ? uni_dict_get_int(config, "depth_multiplier", 1)
                                    : uni_dict_get_int(config, "filters", 0);
    conv->options.groups = (int)uni_dict_get_int(config, "groups", 1);
    conv->no_bias = !uni_dict_get_bool(config, "use_bias", true);
    int activation = uni__config_get_activation(config, "activation", UNI_ACTIVATION_LINEAR, err);
    if (activation < 0)
        return UNI_EUNSUPPORTED;
    conv->options.activation = (uni_activation)activation;
    UNI_TRY(uni__config_get_initializer(
        &conv->kernel_initializer, config,
        conv->depthwise ? "depthwise_initializer" : "kernel_initializer", err));
    UNI_TRY(uni__config_get_initializer(&conv->bias_initializer, config, "bias_initializer", err));
    UNI_TRY(uni__config_get_regularizer(
        &conv->kernel_regularizer, config,
        conv->depthwise ? "depthwise_regularizer" : "kernel_regularizer", err));
    UNI_TRY(uni__config_get_regularizer(&conv->bias_regularizer, config, "bias_regularizer", err));
    UNI_TRY(uni__config_get_regularizer(&layer->activity, config, "activity_regularizer", err));
    check(layer);
    return 0;
}

static int conv1d_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    struct conv *conv = self;
    conv->axes = 1;
    return set_config(layer, conv, config, err);
}

static int conv2d_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    struct conv *conv = self;
    conv->axes = 2;
    return set_config(layer, conv, config, err);
}

static int depthwise_set_config(uni_layer *layer, void *self, const uni_value *config,
                                uni_error *err)
{
    struct conv *conv = self;
    conv->axes = 2;
    conv->depthwise = true;
    return set_config(layer, conv, config, err);
}

#define CONV_CLASS(class_name, setter)                                                             \
    {                                                                                              \
        .name = class_name, .size = sizeof(struct conv), .build = conv_build, .infer = conv_infer, \
        .call = conv_call, .get_config = conv_get_config, .set_config = setter                     \
    }
const uni_layer_class uni__class_conv1d = CONV_CLASS("Conv1D", conv1d_set_config);
const uni_layer_class uni__class_conv2d = CONV_CLASS("Conv2D", conv2d_set_config);
const uni_layer_class uni__class_depthwise_conv2d =
    CONV_CLASS("DepthwiseConv2D", depthwise_set_config);

uni_layer *uni_layer_conv(uni_conv_layer kind, int64_t filters, int kernel_height, int kernel_width,
                          const uni_conv_layer_options *options)
{
    UNI__LAYER_OPTIONS(uni_conv_layer_options, options, activity_regularizer, &uni__class_conv2d);
    int multiplier = options->depth_multiplier != 0 ? options->depth_multiplier : 1;
    switch (kind) {
    case UNI_LAYER_CONV1D:
        return conv_new(&uni__class_conv1d, 1, false, filters, kernel_height, 0, options);
    case UNI_LAYER_CONV2D:
        return conv_new(&uni__class_conv2d, 2, false, filters, kernel_height, kernel_width,
                        options);
    case UNI_LAYER_DEPTHWISE_CONV2D:
        return conv_new(&uni__class_depthwise_conv2d, 2, true, multiplier, kernel_height,
                        kernel_width, options);
    }
    return uni_layer_fail(uni_layer_new(&uni__class_conv2d), UNI_EINVAL,
                          "there is no convolution of kind %d", (int)kind);
}
