/*
 * core.c - Dense and the layers that keep their input's shape: activations, dropout, rescaling,
 * activity regularisation. Calls are const and run on the tape's thread.
 */
#include "nn/layer.h"

#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "tensor/shared.h"
#include "nn/loss/names.h"
#include "base/options.h"

void uni__layer_activation(uni_layer *layer, uni_activation *out, const char *name)
{
    static const char *const names[] = {
        "linear",   "relu",         "leaky_relu", "elu",     "gelu",        "sigmoid",
        "tanh",     "softplus",     "silu",       "swish",   "selu",        "exponential",
        "softsign", "hard_sigmoid", "relu6",      "softmax", "log_softmax",
    };
    int kind = uni__activation_from_name(name);
    uni_error err = { 0 };
    if (kind >= 0)
        *out = (uni_activation)kind;
    else if (uni__unknown_name(&err, "activation", name, names, sizeof names / sizeof names[0]) < 0)
        uni_layer_fail(layer, err.code, "%s", err.message);
}

/* Elementwise layers: the input's shape, as float32. */
static int infer_same(const uni_layer *layer, const void *self, int num_inputs,
                      const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 0, UNI_TENSOR_MAX_DIMS, err));
    *output = inputs[0];
    output->dtype = UNI_F32;
    return 0;
}

/* ---- Dense ---- */

struct dense {
    int64_t units;
    uni_activation activation;
    bool no_bias;
    uni_initializer kernel_initializer, bias_initializer;
    uni_regularizer kernel_regularizer, bias_regularizer;
    uni_parameter *kernel, *bias;
};

static int dense_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                       uni_error *err)
{
    struct dense *dense = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 2, UNI_TENSOR_MAX_DIMS, err));
    UNI_TRY(uni__expect_width(layer, inputs, err));
    UNI_TRY(uni_layer_add_parameter(
        &dense->kernel, layer, "kernel", UNI_PARAMETER_WEIGHT, 2,
        (const int64_t[]){ inputs->dims[inputs->ndim - 1], dense->units },
        &dense->kernel_initializer, "glorot_uniform", &dense->kernel_regularizer, err));
    if (!dense->no_bias)
        UNI_TRY(uni_layer_add_parameter(&dense->bias, layer, "bias", UNI_PARAMETER_WEIGHT, 1,
                                        &dense->units, &dense->bias_initializer, "zeros",
                                        &dense->bias_regularizer, err));
    return 0;
}

static int dense_infer(const uni_layer *layer, const void *self, int num_inputs,
                       const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct dense *dense = self;
    UNI_TRY(infer_same(layer, self, num_inputs, inputs, output, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 2, UNI_TENSOR_MAX_DIMS, err));
    int64_t width = inputs->dims[inputs->ndim - 1],
            built = uni_parameter_info_of(dense->kernel)->shape[0];
    char text[UNI__SHAPE_TEXT_SIZE];
    if (width >= 0 && width != built)
        return uni_error_set(err, UNI_ESHAPE,
                             "%s was built for %lld inputs (kernel (%lld, %lld)), got %s",
                             uni_layer_name(layer), (long long)built, (long long)built,
                             (long long)dense->units, uni__spec_text(text, inputs));
    output->dims[output->ndim - 1] = dense->units;
    return 0;
}

static uni_tensor *dense_call(const uni_layer *layer, const void *self, uni_tape *tape,
                              int num_inputs, uni_tensor *const *inputs)
{
    const struct dense *dense = self;
    return uni_op_dense(
        tape, uni__as_float(tape, inputs[0]), uni_tape_parameter(tape, dense->kernel),
        dense->bias != NULL ? uni_tape_parameter(tape, dense->bias) : NULL, dense->activation);
}

static int dense_get_config(const uni_layer *layer, const void *self, uni_value *config,
                            uni_error *err)
{
    const struct dense *dense = self;
    UNI_TRY(uni_dict_take(config, "units", uni_value_int(dense->units)));
    UNI_TRY(uni_dict_take(config, "activation",
                          uni_value_string(uni__activation_name(dense->activation))));
    UNI_TRY(uni_dict_take(config, "use_bias", uni_value_bool(!dense->no_bias)));
    UNI_TRY(uni__config_put_initializer(config, "kernel_initializer", &dense->kernel_initializer,
                                        "glorot_uniform"));
    UNI_TRY(
        uni__config_put_initializer(config, "bias_initializer", &dense->bias_initializer, "zeros"));
    UNI_TRY(uni__config_put_regularizer(config, "kernel_regularizer", &dense->kernel_regularizer));
    UNI_TRY(uni__config_put_regularizer(config, "bias_regularizer", &dense->bias_regularizer));
    return uni__config_put_regularizer(config, "activity_regularizer", &layer->activity);
}

static int dense_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    struct dense *dense = self;
    dense->units = uni_dict_get_int(config, "units", 0);
    int activation = uni__config_get_activation(config, "activation", UNI_ACTIVATION_LINEAR, err);
    if (activation < 0)
        return UNI_EUNSUPPORTED;
    dense->activation = (uni_activation)activation;
    dense->no_bias = !uni_dict_get_bool(config, "use_bias", true);
    UNI_TRY(uni__config_refuse(config, "kernel_constraint", NULL, err));
    UNI_TRY(uni__config_refuse(config, "bias_constraint", NULL, err));
    UNI_TRY(uni__config_refuse(config, "lora_rank", NULL, err));
    UNI_TRY(
        uni__config_get_initializer(&dense->kernel_initializer, config, "kernel_initializer", err));
    UNI_TRY(uni__config_get_initializer(&dense->bias_initializer, config, "bias_initializer", err));
    UNI_TRY(
        uni__config_get_regularizer(&dense->kernel_regularizer, config, "kernel_regularizer", err));
    UNI_TRY(uni__config_get_regularizer(&dense->bias_regularizer, config, "bias_regularizer", err));
    if (dense->units < 1)
        return uni_error_set(err, UNI_EINVAL, "units must be at least 1, got %lld",
                             (long long)dense->units);
    return uni__config_get_regularizer(&layer->activity, config, "activity_regularizer", err);
}

const uni_layer_class uni__class_dense = { .name = "Dense",
                                           UNI__LAYER_METHODS(dense, struct dense),
                                           .build = dense_build };

uni_layer *uni_layer_dense(int64_t units, const uni_dense_options *options)
{
    UNI__LAYER_OPTIONS(uni_dense_options, options, activity_regularizer, &uni__class_dense);
    uni_layer *layer = uni_layer_new(&uni__class_dense);
    if (layer == NULL)
        return NULL;
    uni_dense_options o = *options;
    struct dense *dense = layer->self;
    *dense = (struct dense){ .units = units,
                             .no_bias = o.no_bias,
                             .kernel_initializer = o.kernel_initializer,
                             .bias_initializer = o.bias_initializer,
                             .kernel_regularizer = o.kernel_regularizer,
                             .bias_regularizer = o.bias_regularizer };
    layer->activity = o.activity_regularizer;
    uni__layer_activation(layer, &dense->activation, o.activation);
    uni__layer_initializer(layer, &dense->kernel_initializer, "glorot_uniform");
    uni__layer_initializer(layer, &dense->bias_initializer, "zeros");
    if (units < 1)
        uni_layer_fail(layer, UNI_EINVAL, "units must be at least 1, got %lld", (long long)units);
    return layer;
}

/* ---- activations ---- */

struct activation {
    uni_activation kind;
    float alpha;
};

static uni_tensor *activation_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                   int num_inputs, uni_tensor *const *inputs)
{
    const struct activation *activation = self;
    return uni_op_activation(tape, activation->kind, uni__as_float(tape, inputs[0]),
                             activation->alpha);
}

static int activation_get_config(const uni_layer *layer, const void *self, uni_value *config,
                                 uni_error *err)
{
    const struct activation *activation = self;
    return uni_dict_take(config, "activation",
                         uni_value_string(uni__activation_name(activation->kind)));
}

static int activation_set_config(uni_layer *layer, void *self, const uni_value *config,
                                 uni_error *err)
{
    struct activation *activation = self;
    int kind = uni__config_get_activation(config, "activation", UNI_ACTIVATION_LINEAR, err);
    if (kind < 0)
        return UNI_EUNSUPPORTED;
    activation->kind = (uni_activation)kind;
    return 0;
}

const uni_layer_class uni__class_activation = { .name = "Activation",
                                                .size = sizeof(struct activation),
                                                .infer = infer_same,
                                                .call = activation_call,
                                                .get_config = activation_get_config,
                                                .set_config = activation_set_config };

uni_layer *uni_layer_activation(const char *name)
{
    uni_layer *layer = uni_layer_new(&uni__class_activation);
    if (layer != NULL)
        uni__layer_activation(layer, &((struct activation *)layer->self)->kind, name);
    return layer;
}

static int leaky_get_config(const uni_layer *layer, const void *self, uni_value *config,
                            uni_error *err)
{
    return uni_dict_take(config, "negative_slope",
                         uni_value_float((double)((const struct activation *)self)->alpha));
}

static int leaky_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    double slope =
        uni_dict_get_float(config, "negative_slope", uni_dict_get_float(config, "alpha", 0.3));
    *(struct activation *)self =
        (struct activation){ slope != 0 ? UNI_ACTIVATION_LEAKY_RELU : UNI_ACTIVATION_RELU,
                             (float)slope };
    return 0;
}

const uni_layer_class uni__class_leaky_relu = { .name = "LeakyReLU",
                                                .size = sizeof(struct activation),
                                                .infer = infer_same,
                                                .call = activation_call,
                                                .get_config = leaky_get_config,
                                                .set_config = leaky_set_config };

uni_layer *uni_layer_leaky_relu(double negative_slope)
{
    uni_layer *layer = uni_layer_new(&uni__class_leaky_relu);
    if (layer != NULL)
        *(struct activation *)layer->self =
            (struct activation){ UNI_ACTIVATION_LEAKY_RELU, (float)uni__pick(negative_slope, 0.3) };
    return layer;
}

/* Keras's ReLU layer: only files create it here (uni_layer_activation("relu") is equivalent). */
static int relu_get_config(const uni_layer *layer, const void *self, uni_value *config,
                           uni_error *err)
{
    const struct activation *activation = self;
    UNI_TRY(uni_dict_take(config, "max_value",
                          activation->kind == UNI_ACTIVATION_RELU6 ? uni_value_float(6)
                                                                   : uni_value_null()));
    UNI_TRY(uni_dict_take(config, "negative_slope", uni_value_float((double)activation->alpha)));
    return uni_dict_take(config, "threshold", uni_value_float(0));
}

static int relu_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    struct activation *activation = self;
    UNI_TRY(uni__config_refuse(config, "threshold", NULL, err));
    activation->alpha = (float)uni_dict_get_float(config, "negative_slope", 0);
    activation->kind = activation->alpha != 0 ? UNI_ACTIVATION_LEAKY_RELU : UNI_ACTIVATION_RELU;
    const uni_value *most = uni_dict_get(config, "max_value");
    if (uni_value_type_of(most) == UNI_TYPE_NULL)
        return 0;
    if (uni_value_as_float(most, 0) != 6 || activation->alpha != 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "ReLU with a max_value other than 6 is not supported");
    activation->kind = UNI_ACTIVATION_RELU6;
    return 0;
}

const uni_layer_class uni__class_relu = { .name = "ReLU",
                                          .size = sizeof(struct activation),
                                          .infer = infer_same,
                                          .call = activation_call,
                                          .get_config = relu_get_config,
                                          .set_config = relu_set_config };

static uni_tensor *softmax_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                int num_inputs, uni_tensor *const *inputs)
{
    return uni_op_softmax(tape, uni__as_float(tape, inputs[0]), -1);
}

static int softmax_get_config(const uni_layer *layer, const void *self, uni_value *config,
                              uni_error *err)
{
    return uni_dict_take(config, "axis", uni_value_int(-1));
}

static int softmax_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    if (uni_dict_get_int(config, "axis", -1) != -1)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "Softmax over an axis other than the last is not supported");
    return 0;
}

const uni_layer_class uni__class_softmax = { .name = "Softmax",
                                             .infer = infer_same,
                                             .call = softmax_call,
                                             .get_config = softmax_get_config,
                                             .set_config = softmax_set_config };

/* ---- dropout ---- */

struct dropout {
    float rate;
};

static uni_tensor *dropout_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                int num_inputs, uni_tensor *const *inputs)
{
    return uni_op_dropout(tape, uni__as_float(tape, inputs[0]),
                          ((const struct dropout *)self)->rate, uni_layer_stream(layer), NULL);
}

static int dropout_get_config(const uni_layer *layer, const void *self, uni_value *config,
                              uni_error *err)
{
    return uni_dict_take(config, "rate",
                         uni_value_float((double)((const struct dropout *)self)->rate));
}

static void dropout_set(uni_layer *layer, double rate)
{
    if (!(rate >= 0 && rate <= 1))
        uni_layer_fail(layer, UNI_EINVAL,
                       "the rate of dropout is a fraction between 0 and 1, got %g", rate);
    ((struct dropout *)layer->self)->rate = (float)rate;
}

static int dropout_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    UNI_TRY(uni__config_refuse(config, "noise_shape", NULL, err));
    dropout_set(layer, uni_dict_get_float(config, "rate", -1));
    return 0;
}

const uni_layer_class uni__class_dropout = { .name = "Dropout",
                                             .size = sizeof(struct dropout),
                                             .infer = infer_same,
                                             .call = dropout_call,
                                             .get_config = dropout_get_config,
                                             .set_config = dropout_set_config };

uni_layer *uni_layer_dropout(float rate)
{
    uni_layer *layer = uni_layer_new(&uni__class_dropout);
    if (layer != NULL)
        dropout_set(layer, (double)rate);
    return layer;
}

/* ---- rescaling ---- */

struct rescaling {
    double scale, offset; /* as in Keras's config */
};

static uni_tensor *rescaling_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                  int num_inputs, uni_tensor *const *inputs)
{
    const struct rescaling *rescaling = self;
    return uni_op_scale(tape, uni__as_float(tape, inputs[0]), (float)rescaling->scale,
                        (float)rescaling->offset);
}

static int rescaling_get_config(const uni_layer *layer, const void *self, uni_value *config,
                                uni_error *err)
{
    const struct rescaling *rescaling = self;
    UNI_TRY(uni_dict_take(config, "scale", uni_value_float(rescaling->scale)));
    return uni_dict_take(config, "offset", uni_value_float(rescaling->offset));
}

static int rescaling_set_config(uni_layer *layer, void *self, const uni_value *config,
                                uni_error *err)
{
    const uni_value *scale = uni_dict_get(config, "scale"),
                    *offset = uni_dict_get(config, "offset");
    if (!uni_value_is_number(scale) || (offset != NULL && !uni_value_is_number(offset)))
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "Rescaling needs one number each as scale and offset");
    *(struct rescaling *)self =
        (struct rescaling){ uni_value_as_float(scale, 1), uni_value_as_float(offset, 0) };
    return 0;
}

const uni_layer_class uni__class_rescaling = { .name = "Rescaling",
                                               .size = sizeof(struct rescaling),
                                               .infer = infer_same,
                                               .call = rescaling_call,
                                               .get_config = rescaling_get_config,
                                               .set_config = rescaling_set_config };

uni_layer *uni_layer_rescaling(float scale, float offset)
{
    uni_layer *layer = uni_layer_new(&uni__class_rescaling);
    if (layer != NULL)
        *(struct rescaling *)layer->self = (struct rescaling){ (double)scale, (double)offset };
    return layer;
}

/* ---- activity regularisation: the identity with a penalty ---- */

static uni_tensor *activity_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                 int num_inputs, uni_tensor *const *inputs)
{
    return uni__as_float(tape, inputs[0]);
}

static int activity_get_config(const uni_layer *layer, const void *self, uni_value *config,
                               uni_error *err)
{
    UNI_TRY(uni_dict_take(config, "l1", uni_value_float((double)layer->activity.l1)));
    return uni_dict_take(config, "l2", uni_value_float((double)layer->activity.l2));
}

static int activity_set_config(uni_layer *layer, void *self, const uni_value *config,
                               uni_error *err)
{
    layer->activity.l1 = (float)uni_dict_get_float(config, "l1", 0);
    layer->activity.l2 = (float)uni_dict_get_float(config, "l2", 0);
    return 0;
}

const uni_layer_class uni__class_activity_regularization = { .name = "ActivityRegularization",
                                                             .infer = infer_same,
                                                             .call = activity_call,
                                                             .get_config = activity_get_config,
                                                             .set_config = activity_set_config };

uni_layer *uni_layer_activity_regularization(float l1, float l2)
{
    uni_layer *layer = uni_layer_new(&uni__class_activity_regularization);
    if (layer != NULL)
        layer->activity = (uni_regularizer){ l1, l2 };
    return layer;
}
