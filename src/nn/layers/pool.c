/*
 * pool.c - max and average pooling, windowed and global. Calls are const.
 */
#include "nn/layer.h"

#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "tensor/shared.h"

struct pool {
    int axes;
    uni_pool_options options;
};

static int64_t output_size(int64_t in, int window, int stride, uni_padding padding)
{
    if (in < 0)
        return -1;
    if (padding == UNI_PADDING_SAME)
        return (in + stride - 1) / stride;
    return in < window ? 0 : (in - window) / stride + 1;
}

static int pool_infer(const uni_layer *layer, const void *self, int num_inputs,
                      const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct pool *pool = self;
    int rank = pool->axes + 2;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, rank, rank, err));
    *output = inputs[0];
    output->dtype = UNI_F32;
    char text[UNI__SHAPE_TEXT_SIZE];
    for (int i = 0; i < pool->axes; i++) {
        output->dims[i + 1] = output_size(inputs->dims[i + 1], pool->options.window[i],
                                          pool->options.stride[i], pool->options.padding);
        if (output->dims[i + 1] == 0)
            return uni_error_set(
                err, UNI_ESHAPE,
                "%s: the window of %d is larger than the input %s; use padding same or "
                "fewer pooling layers",
                uni_layer_name(layer), pool->options.window[i], uni__spec_text(text, inputs));
    }
    return 0;
}

static uni_tensor *pool_call(const uni_layer *layer, const void *self, uni_tape *tape,
                             int num_inputs, uni_tensor *const *inputs)
{
    return uni_op_pool(tape, uni__as_float(tape, inputs[0]), &((const struct pool *)self)->options);
}

static int pool_get_config(const uni_layer *layer, const void *self, uni_value *config,
                           uni_error *err)
{
    const struct pool *pool = self;
    const uni_pool_options *options = &pool->options;
    UNI_TRY(uni__config_put_ints(config, "pool_size", pool->axes,
                                 (const int64_t[]){ options->window[0], options->window[1] }));
    UNI_TRY(
        uni_dict_take(config, "padding", uni_value_string(uni__padding_name(options->padding))));
    UNI_TRY(uni__config_put_ints(config, "strides", pool->axes,
                                 (const int64_t[]){ options->stride[0], options->stride[1] }));
    return uni_dict_take(config, "data_format", uni_value_string("channels_last"));
}

static void check(uni_layer *layer)
{
    struct pool *pool = layer->self;
    uni_pool_options *options = &pool->options;
    for (int i = 0; i < 2; i++) {
        options->window[i] = options->window[i] != 0 ? options->window[i] : 2;
        options->stride[i] = options->stride[i] != 0 ? options->stride[i] : options->window[i];
        if (options->window[i] < 1 || options->stride[i] < 1)
            uni_layer_fail(layer, UNI_EINVAL,
                           "window and stride of pooling must be at least 1, got %d and %d",
                           options->window[i], options->stride[i]);
    }
    if (options->padding == UNI_PADDING_CAUSAL)
        uni_layer_fail(layer, UNI_EINVAL, "pooling has no causal padding");
}

static int set_config(uni_layer *layer, int axes, uni_pool kind, const uni_value *config,
                      uni_error *err)
{
    struct pool *pool = layer->self;
    int64_t window[2], stride[2];
    int windows = 0, strides = 0;
    UNI_TRY(uni__config_refuse(config, "data_format", "channels_last", err));
    UNI_TRY(uni__config_get_ints(window, &windows, axes, config, "pool_size", err));
    UNI_TRY(uni__config_get_ints(stride, &strides, axes, config, "strides", err));
    UNI_TRY(uni__config_get_padding(&pool->options.padding, config, err));
    pool->axes = axes;
    pool->options.kind = kind;
    for (int i = 0; i < axes; i++) {
        pool->options.window[i] = windows > 0 ? (int)window[i < windows ? i : 0] : 0;
        pool->options.stride[i] = strides > 0 ? (int)stride[i < strides ? i : 0] : 0;
    }
    check(layer);
    return 0;
}

static uni_layer *pool_new(const uni_layer_class *class_, int axes, uni_pool kind, int window,
                           int stride, uni_padding padding)
{
    uni_layer *layer = uni_layer_new(class_);
    if (layer == NULL)
        return NULL;
    struct pool *pool = layer->self;
    pool->axes = axes;
    pool->options = (uni_pool_options){
        .kind = kind, .window = { window, window }, .stride = { stride, stride }, .padding = padding
    };
    check(layer);
    return layer;
}

/* ---- global ---- */

struct global_pool {
    int axes;
    uni_reduce kind;
    bool keep_dims;
};

static int global_infer(const uni_layer *layer, const void *self, int num_inputs,
                        const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct global_pool *pool = self;
    int rank = pool->axes + 2;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, rank, rank, err));
    *output =
        (uni_spec){ .dtype = UNI_F32, .ndim = pool->keep_dims ? rank : 2, .dims = { -1, 1, 1, 1 } };
    output->dims[output->ndim - 1] = inputs->dims[rank - 1];
    return 0;
}

static uni_tensor *global_call(const uni_layer *layer, const void *self, uni_tape *tape,
                               int num_inputs, uni_tensor *const *inputs)
{
    const struct global_pool *pool = self;
    return uni_op_reduce(tape, pool->kind, uni__as_float(tape, inputs[0]), pool->axes,
                         (const int[]){ 1, 2 }, pool->keep_dims);
}

static int global_get_config(const uni_layer *layer, const void *self, uni_value *config,
                             uni_error *err)
{
    UNI_TRY(uni_dict_take(config, "data_format", uni_value_string("channels_last")));
    return uni_dict_take(config, "keepdims",
                         uni_value_bool(((const struct global_pool *)self)->keep_dims));
}

static int global_set(uni_layer *layer, int axes, uni_reduce kind, const uni_value *config,
                      uni_error *err)
{
    UNI_TRY(uni__config_refuse(config, "data_format", "channels_last", err));
    *(struct global_pool *)layer->self =
        (struct global_pool){ axes, kind, uni_dict_get_bool(config, "keepdims", false) };
    return 0;
}

uni_layer *uni__global_pooling(const uni_layer_class *class_, int axes, uni_reduce kind)
{
    uni_layer *layer = uni_layer_new(class_);
    if (layer != NULL)
        *(struct global_pool *)layer->self = (struct global_pool){ axes, kind, false };
    return layer;
}

/* ---- the classes ---- */

#define POOL_CLASS(symbol, class_name, axes, kind)                                                 \
    static int symbol##_set_config(uni_layer *layer, void *self, const uni_value *config,          \
                                   uni_error *err)                                                 \
    {                                                                                              \
        return set_config(layer, axes, kind, config, err);                                         \
    }                                                                                              \
    const uni_layer_class uni__class_##symbol = { .name = class_name,                              \
                                                  .size = sizeof(struct pool),                     \
                                                  .infer = pool_infer,                             \
                                                  .call = pool_call,                               \
                                                  .get_config = pool_get_config,                   \
                                                  .set_config = symbol##_set_config };
POOL_CLASS(max_pooling1d, "MaxPooling1D", 1, UNI_POOL_MAX)
POOL_CLASS(max_pooling2d, "MaxPooling2D", 2, UNI_POOL_MAX)
POOL_CLASS(average_pooling1d, "AveragePooling1D", 1, UNI_POOL_AVERAGE)
POOL_CLASS(average_pooling2d, "AveragePooling2D", 2, UNI_POOL_AVERAGE)

#define GLOBAL_CLASS(symbol, class_name, axes, kind)                                               \
    static int symbol##_set_config(uni_layer *layer, void *self, const uni_value *config,          \
                                   uni_error *err)                                                 \
    {                                                                                              \
        return global_set(layer, axes, kind, config, err);                                         \
    }                                                                                              \
    const uni_layer_class uni__class_##symbol = { .name = class_name,                              \
                                                  .size = sizeof(struct global_pool),              \
                                                  .infer = global_infer,                           \
                                                  .call = global_call,                             \
                                                  .get_config = global_get_config,                 \
                                                  .set_config = symbol##_set_config };
GLOBAL_CLASS(global_average_pooling1d, "GlobalAveragePooling1D", 1, UNI_REDUCE_MEAN)
GLOBAL_CLASS(global_average_pooling2d, "GlobalAveragePooling2D", 2, UNI_REDUCE_MEAN)
GLOBAL_CLASS(global_max_pooling1d, "GlobalMaxPooling1D", 1, UNI_REDUCE_MAX)
GLOBAL_CLASS(global_max_pooling2d, "GlobalMaxPooling2D", 2, UNI_REDUCE_MAX)

uni_layer *uni_layer_pooling(uni_pool kind, int axes, int window, int stride, uni_padding padding)
{
    static const uni_layer_class *const classes[2][2] = {
        [UNI_POOL_MAX] = { &uni__class_max_pooling1d, &uni__class_max_pooling2d },
        [UNI_POOL_AVERAGE] = { &uni__class_average_pooling1d, &uni__class_average_pooling2d },
    };
    if ((kind != UNI_POOL_MAX && kind != UNI_POOL_AVERAGE) || (axes != 1 && axes != 2))
        return uni_layer_fail(uni_layer_new(&uni__class_max_pooling2d), UNI_EINVAL,
                              "pooling of kind %d over %d axes is not supported", (int)kind, axes);
    return pool_new(classes[kind][axes - 1], axes, kind, window, stride, padding);
}
