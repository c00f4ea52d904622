/*
 * attention.c - MultiHeadAttention with Keras's weights: query, key, value (in, heads, size) and
 * attention_output (heads, size, out).
 *
 * The projections are dense products on views of those kernels, and the attention between them is
 * one fused operation. With dropout in training, or with values of another size than the keys, it
 * is composed of smaller operations instead. Inputs: query, value [, key [, mask]]; the mask is
 * boolean, (batch, time, source), true where attending is allowed. Calls are const.
 */
#include "nn/layer.h"
#include "base/options.h"

#include <math.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "tensor/shared.h"

enum { QUERY, KEY, VALUE, OUTPUT, PARTS };
static const char *const kernel_names[PARTS] = { "query/kernel", "key/kernel", "value/kernel",
                                                 "attention_output/kernel" };
static const char *const bias_names[PARTS] = { "query/bias", "key/bias", "value/bias",
                                               "attention_output/bias" };

struct attention {
    int64_t heads, key_dim, value_dim, output_dim; /* output_dim 0: as the query */
    float dropout;
    bool no_bias, causal;
    uni_initializer kernel_initializer, bias_initializer;
    uni_regularizer kernel_regularizer, bias_regularizer;
    uni_parameter *kernel[PARTS], *bias[PARTS];
};

/* The input that a part projects. */
static int input_of(int part, int num_inputs)
{
    if (part == QUERY || num_inputs == 1)
        return 0;
    return part == KEY && num_inputs > 2 ? 2 : 1;
}

static int add_part(uni_layer *layer, struct attention *a, int part, int64_t width, uni_error *err)
{
    bool output = part == OUTPUT;
    int64_t size = part == QUERY || part == KEY ? a->key_dim : a->value_dim;
    const int64_t in[3] = { width, a->heads, size }, out[3] = { a->heads, size, width };
    uni_initializer initializer = a->kernel_initializer;
    if (strcmp(initializer.name, "glorot_uniform") == 0) {
        /* Keras counts an einsum's inputs and outputs over all axes, unlike a convolution's. */
        double limit = sqrt(6.0 / (double)(width + a->heads * size));
        initializer = (uni_initializer){
            .name = "random_uniform", .low = -limit, .high = limit, .seed = initializer.seed
        };
    }
    UNI_TRY(uni_layer_add_parameter(&a->kernel[part], layer, kernel_names[part],
                                    UNI_PARAMETER_WEIGHT, 3, output ? out : in, &initializer,
                                    "glorot_uniform", &a->kernel_regularizer, err));
    if (a->no_bias)
        return 0;
    return uni_layer_add_parameter(&a->bias[part], layer, bias_names[part], UNI_PARAMETER_WEIGHT,
                                   output ? 1 : 2, output ? &width : in + 1, &a->bias_initializer,
                                   "zeros", &a->bias_regularizer, err);
}

static int attention_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                           uni_error *err)
{
    struct attention *a = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 4, err));
    for (int part = QUERY; part <= VALUE; part++) {
        const uni_spec *input = &inputs[input_of(part, num_inputs)];
        UNI_TRY(uni__expect_rank(layer, input, 3, 3, err));
        UNI_TRY(uni__expect_width(layer, input, err));
        UNI_TRY(add_part(layer, a, part, input->dims[2], err));
    }
    return add_part(layer, a, OUTPUT, a->output_dim != 0 ? a->output_dim : inputs->dims[2], err);
}

static int attention_infer(const uni_layer *layer, const void *self, int num_inputs,
                           const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct attention *a = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 4, err));
    for (int part = QUERY; part <= VALUE; part++) {
        const uni_spec *input = &inputs[input_of(part, num_inputs)];
        UNI_TRY(uni__expect_rank(layer, input, 3, 3, err));
        const int64_t *kernel = uni_parameter_info_of(a->kernel[part])->shape;
        char text[UNI__SHAPE_TEXT_SIZE], kernel_text[UNI__SHAPE_TEXT_SIZE];
        if (input->dims[2] >= 0 && input->dims[2] != kernel[0])
            return uni_error_set(
                err, UNI_ESHAPE, "%s: the %.*s kernel %s does not fit an input of %s",
                uni_layer_name(layer), (int)strcspn(kernel_names[part], "/"), kernel_names[part],
                uni__shape_text(kernel_text, 3, kernel), uni__spec_text(text, input));
    }
    *output = inputs[0];
    output->dtype = UNI_F32;
    output->dims[2] = uni_parameter_info_of(a->kernel[OUTPUT])->shape[2];
    return 0;
}

/* ---- forward ---- */

static uni_tensor *project(const struct attention *a, uni_tape *tape, int part, uni_tensor *x)
{
    const int64_t *shape = uni_parameter_info_of(a->kernel[part])->shape;
    int64_t in = part == OUTPUT ? shape[0] * shape[1] : shape[0],
            out = part == OUTPUT ? shape[2] : shape[1] * shape[2];
    uni_tensor *kernel = uni_op_reshape(tape, uni_tape_parameter(tape, a->kernel[part]), 2,
                                        (const int64_t[]){ in, out });
    uni_tensor *bias = NULL;
    if (a->bias[part] != NULL)
        bias = uni_op_reshape(tape, uni_tape_parameter(tape, a->bias[part]), 1, &out);
    return uni_op_dense(tape, x, kernel, bias, UNI_ACTIVATION_LINEAR);
}

/* (batch, time, heads * size) to (batch, heads, time, size) */
static uni_tensor *split_heads(uni_tape *tape, uni_tensor *x, int64_t heads)
{
    if (x == NULL)
        return NULL;
    int64_t shape[4] = { uni_tensor_dim(x, 0), uni_tensor_dim(x, 1), heads,
                         uni_tensor_dim(x, 2) / heads };
    return uni_op_transpose(tape, uni_op_reshape(tape, x, 4, shape), (const int[]){ 0, 2, 1, 3 });
}

/* True where time >= source position: (time, source). */
static uni_tensor *causal_mask(uni_tape *tape, int64_t time, int64_t source)
{
    uni_tensor *mask = uni_tape_scratch(tape, UNI_B8, 2, (const int64_t[]){ time, source });
    for (int64_t i = 0; mask != NULL && i < time * source; i++)
        ((uint8_t *)uni_tensor_data(mask))[i] = i % source <= i / source;
    return mask;
}

/* The same as uni_op_attention, composed of smaller operations, with dropout of the weights. */
static uni_tensor *attend(const uni_layer *layer, const struct attention *a, uni_tape *tape,
                          uni_tensor *q, uni_tensor *k, uni_tensor *v, uni_tensor *mask)
{
    if (q == NULL || k == NULL || v == NULL)
        return NULL;
    int64_t batch = uni_tensor_dim(q, 0), time = uni_tensor_dim(q, 1),
            source = uni_tensor_dim(k, 1);
    uni_tensor *scores = uni_op_matmul(tape, split_heads(tape, q, a->heads),
                                       split_heads(tape, k, a->heads), false, true);
    scores = uni_op_scale(tape, scores, 1 / sqrtf((float)a->key_dim), 0);
    uni_tensor *forbidden = uni_tape_constant(tape, -1e30f);
    if (mask != NULL)
        scores = uni_op_where(
            tape, uni_op_reshape(tape, mask, 4, (const int64_t[]){ batch, 1, time, source }),
            scores, forbidden);
    if (a->causal)
        scores = uni_op_where(tape, causal_mask(tape, time, source), scores, forbidden);
    uni_tensor *weights = uni_op_softmax(tape, scores, -1);
    weights = uni_op_dropout(tape, weights, a->dropout, uni_layer_stream(layer), NULL);
    uni_tensor *mixed = uni_op_matmul(tape, weights, split_heads(tape, v, a->heads), false, false);
    mixed = uni_op_transpose(tape, mixed, (const int[]){ 0, 2, 1, 3 });
    return uni_op_reshape(tape, mixed, 3,
                          (const int64_t[]){ batch, time, a->heads * a->value_dim });
}

static uni_tensor *attention_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                  int num_inputs, uni_tensor *const *inputs)
{
    const struct attention *a = self;
    uni_tensor *parts[3], *mask = num_inputs > 3 ? inputs[3] : NULL;
    for (int part = QUERY; part <= VALUE; part++)
        parts[part] =
            project(a, tape, part, uni__as_float(tape, inputs[input_of(part, num_inputs)]));
    bool dropping = a->dropout > 0 && uni__tape_step(tape)->training;
    uni_tensor *mixed = dropping || a->value_dim != a->key_dim
                            ? attend(layer, a, tape, parts[QUERY], parts[KEY], parts[VALUE], mask)
                            : uni_op_attention(tape, parts[QUERY], parts[KEY], parts[VALUE],
                                               (int)a->heads, 0, a->causal, mask);
    return project(a, tape, OUTPUT, mixed);
}

/* ---- settings ---- */

static int attention_get_config(const uni_layer *layer, const void *self, uni_value *config,
                                uni_error *err)
{
    const struct attention *a = self;
    UNI_TRY(uni_dict_take(config, "num_heads", uni_value_int(a->heads)));
    UNI_TRY(uni_dict_take(config, "key_dim", uni_value_int(a->key_dim)));
    UNI_TRY(uni_dict_take(config, "value_dim", uni_value_int(a->value_dim)));
    UNI_TRY(uni_dict_take(config, "dropout", uni_value_float((double)a->dropout)));
    UNI_TRY(uni_dict_take(config, "use_bias", uni_value_bool(!a->no_bias)));
    if (a->output_dim != 0)
        UNI_TRY(uni__config_put_ints(config, "output_shape", 1, &a->output_dim));
    else
        UNI_TRY(uni_dict_take(config, "output_shape", uni_value_null()));
    UNI_TRY(uni_dict_take(config, "attention_axes", uni_value_null()));
    UNI_TRY(uni__config_put_initializer(config, "kernel_initializer", &a->kernel_initializer,
                                        "glorot_uniform"));
    UNI_TRY(uni__config_put_initializer(config, "bias_initializer", &a->bias_initializer, "zeros"));
    UNI_TRY(uni__config_put_regularizer(config, "kernel_regularizer", &a->kernel_regularizer));
    UNI_TRY(uni__config_put_regularizer(config, "bias_regularizer", &a->bias_regularizer));
    return uni__config_put_regularizer(config, "activity_regularizer", &layer->activity);
}

static void check(uni_layer *layer)
{
    const struct attention *a = layer->self;
    if (a->heads < 1 || a->key_dim < 1 || a->value_dim < 1 || a->output_dim < 0)
        uni_layer_fail(layer, UNI_EINVAL,
                       "heads, key_dim and value_dim must be at least 1, got %lld, %lld and %lld",
                       (long long)a->heads, (long long)a->key_dim, (long long)a->value_dim);
    if (!(a->dropout >= 0 && a->dropout <= 1))
        uni_layer_fail(layer, UNI_EINVAL, "dropout is a fraction between 0 and 1, got %g",
                       (double)a->dropout);
}

static int attention_set_config(uni_layer *layer, void *self, const uni_value *config,
                                uni_error *err)
{
    struct attention *a = self;
    /* In Keras this also adds the activity of the four inner projections. */
    static const char *const unsupported[] = { "use_gate", "sliding_window", "kernel_constraint",
                                               "bias_constraint", "activity_regularizer" };
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
        UNI_TRY(uni__config_refuse(config, unsupported[i], NULL, err));
    int64_t axes[UNI_TENSOR_MAX_DIMS];
    int count = 0;
    UNI_TRY(uni__config_get_ints(axes, &count, UNI_TENSOR_MAX_DIMS, config, "attention_axes", err));
    if (count > 1 || (count == 1 && axes[0] != 1))
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "attention over other axes than the first after the batch is not supported");
    UNI_TRY(uni__config_get_ints(axes, &count, 1, config, "output_shape", err));
    a->output_dim = count == 1 ? axes[0] : 0;
    a->heads = uni_dict_get_int(config, "num_heads", 0);
    a->key_dim = uni_dict_get_int(config, "key_dim", 0);
    a->value_dim = uni_dict_get_int(config, "value_dim", a->key_dim);
    a->dropout = (float)uni_dict_get_float(config, "dropout", 0);
    a->no_bias = !uni_dict_get_bool(config, "use_bias", true);
    UNI_TRY(uni__config_get_initializer(&a->kernel_initializer, config, "kernel_initializer", err));
    UNI_TRY(uni__config_get_initializer(&a->bias_initializer, config, "bias_initializer", err));
    UNI_TRY(uni__config_get_regularizer(&a->kernel_regularizer, config, "kernel_regularizer", err));
    UNI_TRY(uni__config_get_regularizer(&a->bias_regularizer, config, "bias_regularizer", err));
    uni__layer_initializer(layer, &a->kernel_initializer, "glorot_uniform");
    check(layer);
    return 0;
}

void uni__attention_set_causal(uni_layer *layer, bool causal)
{
    if (layer->class_ == &uni__class_multi_head_attention)
        ((struct attention *)layer->self)->causal = causal;
}

bool uni__attention_is_causal(const uni_layer *layer)
{
    return layer->class_ == &uni__class_multi_head_attention &&
           ((const struct attention *)layer->self)->causal;
}

const uni_layer_class uni__class_multi_head_attention = { .name = "MultiHeadAttention",
                                                          UNI__LAYER_METHODS(attention,
                                                                             struct attention),
                                                          .build = attention_build };

uni_layer *uni_layer_multi_head_attention(int heads, int64_t key_dim,
                                          const uni_attention_options *options)
{
    UNI__LAYER_OPTIONS(uni_attention_options, options, causal, &uni__class_multi_head_attention);
    uni_layer *layer = uni_layer_new(&uni__class_multi_head_attention);
    if (layer == NULL)
        return NULL;
    uni_attention_options o = *options;
    struct attention *a = layer->self;
    *a = (struct attention){ .heads = heads,
                             .key_dim = key_dim,
                             .value_dim = o.value_dim != 0 ? o.value_dim : key_dim,
                             .dropout = o.dropout,
                             .no_bias = o.no_bias,
                             .causal = o.causal };
    uni__layer_initializer(layer, &a->kernel_initializer, "glorot_uniform");
    uni__layer_initializer(layer, &a->bias_initializer, "zeros");
    check(layer);
    return layer;
}
