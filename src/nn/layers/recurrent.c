/*
 * recurrent.c - LSTM and GRU with Keras's gates, order and weights.
 *
 * The input's contribution to all gates is one product for the whole sequence, time first, so that
 * a step's part is a view. A step then needs only one product with the recurrent kernel, and the
 * gates. Gates of LSTM: input, forget, candidate, output; of GRU: update, reset, candidate. Further
 * inputs are the initial state (h, for LSTM also c). Calls are const.
 */
#include "nn/layer.h"
#include "base/options.h"

#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "tensor/shared.h"

struct recurrent {
    bool gru;
    int64_t units;
    uni_activation activation, recurrent_activation;
    bool return_sequences, go_backwards, no_bias, no_reset_after, no_unit_forget_bias;
    float dropout;
    uni_initializer kernel_initializer, recurrent_initializer, bias_initializer;
    uni_regularizer kernel_regularizer, recurrent_regularizer, bias_regularizer;
    uni_parameter *kernel, *recurrent_kernel, *bias;
};

static int recurrent_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                           uni_error *err)
{
    struct recurrent *r = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, r->gru ? 2 : 3, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 3, 3, err));
    UNI_TRY(uni__expect_width(layer, inputs, err));
    int64_t gates = (r->gru ? 3 : 4) * r->units;
    bool two_biases = r->gru && !r->no_reset_after;
    UNI_TRY(uni_layer_add_parameter(
        &r->kernel, layer, r->gru ? "gru_cell/kernel" : "lstm_cell/kernel", UNI_PARAMETER_WEIGHT, 2,
        (const int64_t[]){ inputs->dims[2], gates }, &r->kernel_initializer, "glorot_uniform",
        &r->kernel_regularizer, err));
    UNI_TRY(uni_layer_add_parameter(
        &r->recurrent_kernel, layer,
        r->gru ? "gru_cell/recurrent_kernel" : "lstm_cell/recurrent_kernel", UNI_PARAMETER_WEIGHT,
        2, (const int64_t[]){ r->units, gates }, &r->recurrent_initializer, "orthogonal",
        &r->recurrent_regularizer, err));
    if (r->no_bias)
        return 0;
    const int64_t shape[2] = { two_biases ? 2 : gates, gates };
    UNI_TRY(uni_layer_add_parameter(&r->bias, layer, r->gru ? "gru_cell/bias" : "lstm_cell/bias",
                                    UNI_PARAMETER_WEIGHT, two_biases ? 2 : 1, shape,
                                    &r->bias_initializer, "zeros", &r->bias_regularizer, err));
    if (!r->gru && !r->no_unit_forget_bias)
        for (int64_t i = r->units; i < 2 * r->units; i++)
            uni_parameter_data(r->bias)[i] = 1;
    return 0;
}

static int recurrent_infer(const uni_layer *layer, const void *self, int num_inputs,
                           const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct recurrent *r = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, r->gru ? 2 : 3, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 3, 3, err));
    int64_t built = uni_parameter_info_of(r->kernel)->shape[0];
    char text[UNI__SHAPE_TEXT_SIZE];
    if (inputs->dims[2] >= 0 && inputs->dims[2] != built)
        return uni_error_set(err, UNI_ESHAPE, "%s was built for %lld inputs a step, got %s",
                             uni_layer_name(layer), (long long)built, uni__spec_text(text, inputs));
    for (int i = 1; i < num_inputs; i++)
        if (inputs[i].ndim != 2 || (inputs[i].dims[1] >= 0 && inputs[i].dims[1] != r->units))
            return uni_error_set(
                err, UNI_ESHAPE, "%s: an initial state has the shape (None, %lld), got %s",
                uni_layer_name(layer), (long long)r->units, uni__spec_text(text, &inputs[i]));
    *output = (uni_spec){ .dtype = UNI_F32, .ndim = 2, .dims = { -1, r->units } };
    if (r->return_sequences)
        *output =
            (uni_spec){ .dtype = UNI_F32, .ndim = 3, .dims = { -1, inputs->dims[1], r->units } };
    return 0;
}

/* ---- forward ---- */

/* What every step reads. */
struct pass {
    const struct recurrent *r;
    uni_tape *tape;
    uni_tensor *gates; /* (time, batch, gates): the input's part, including its bias */
    uni_tensor *kernel, *bias; /* recurrent: (units, gates), (gates) or NULL */
    uni_tensor *kernel_state, *kernel_candidate; /* GRU without reset_after */
};

static uni_tensor *gate(const struct pass *pass, uni_tensor *gates, int index,
                        uni_activation activation)
{
    uni_tensor *slice = uni_op_slice(pass->tape, gates, 1, index * pass->r->units, pass->r->units);
    return uni_op_activation(pass->tape, activation, slice, 0);
}

/* z = gates + h R; c = f c + i act(candidate); h = o act(c) */
static uni_tensor *lstm_step(const struct pass *pass, uni_tensor *x, uni_tensor *h, uni_tensor **c)
{
    uni_tape *tape = pass->tape;
    uni_activation sigmoid = pass->r->recurrent_activation, tanh = pass->r->activation;
    uni_tensor *z = uni_op_add(tape, x, uni_op_matmul(tape, h, pass->kernel, false, false));
    uni_tensor *input = gate(pass, z, 0, sigmoid), *forget = gate(pass, z, 1, sigmoid);
    uni_tensor *candidate = gate(pass, z, 2, tanh), *output = gate(pass, z, 3, sigmoid);
    *c = uni_op_add(tape, uni_op_mul(tape, forget, *c), uni_op_mul(tape, input, candidate));
    return uni_op_mul(tape, output, uni_op_activation(tape, tanh, *c, 0));
}

/* z, r from gates + h R + b; candidate = act(x_h + r (h R_h + b_h)), or act(x_h + (r h) R_h); h = z
 * h + (1 - z) candidate */
static uni_tensor *gru_step(const struct pass *pass, uni_tensor *x, uni_tensor *h)
{
    uni_tape *tape = pass->tape;
    int64_t units = pass->r->units;
    uni_activation sigmoid = pass->r->recurrent_activation, tanh = pass->r->activation;
    bool after = !pass->r->no_reset_after;
    uni_tensor *inner = after
                            ? uni_op_dense(tape, h, pass->kernel, pass->bias, UNI_ACTIVATION_LINEAR)
                            : uni_op_matmul(tape, h, pass->kernel_state, false, false);
    uni_tensor *both = uni_op_activation(tape, sigmoid,
                                         uni_op_add(tape, uni_op_slice(tape, x, 1, 0, 2 * units),
                                                    uni_op_slice(tape, inner, 1, 0, 2 * units)),
                                         0);
    uni_tensor *update = uni_op_slice(tape, both, 1, 0, units),
               *reset = uni_op_slice(tape, both, 1, units, units);
    uni_tensor *recurrent =
        after
            ? uni_op_mul(tape, reset, uni_op_slice(tape, inner, 1, 2 * units, units))
            : uni_op_matmul(tape, uni_op_mul(tape, reset, h), pass->kernel_candidate, false, false);
    uni_tensor *candidate = uni_op_activation(
        tape, tanh, uni_op_add(tape, uni_op_slice(tape, x, 1, 2 * units, units), recurrent), 0);
    return uni_op_add(tape, candidate, uni_op_mul(tape, update, uni_op_sub(tape, h, candidate)));
}

static uni_tensor *zeros(uni_tape *tape, int64_t batch, int64_t units)
{
    uni_tensor *tensor = uni_tape_scratch(tape, UNI_F32, 2, (const int64_t[]){ batch, units });
    if (tensor != NULL)
        memset(uni_tensor_data(tensor), 0, uni_tensor_count(tensor) * sizeof(float));
    return tensor;
}

/* Multiplies the whole sequence by the kernel, time first. */
static void prepare(struct pass *pass, const uni_layer *layer, uni_tensor *x)
{
    const struct recurrent *r = pass->r;
    uni_tape *tape = pass->tape;
    uni_tensor *bias = r->bias != NULL ? uni_tape_parameter(tape, r->bias) : NULL;
    int64_t gates = uni_parameter_info_of(r->kernel)->shape[1];
    if (r->dropout > 0)
        x = uni_op_dropout(tape, x, r->dropout, uni_layer_stream(layer),
                           (const int64_t[]){ uni_tensor_dim(x, 0), 1, uni_tensor_dim(x, 2) });
    if (bias != NULL && r->gru && !r->no_reset_after) {
        pass->bias = uni_op_reshape(tape, uni_op_slice(tape, bias, 0, 1, 1), 1, &gates);
        bias = uni_op_reshape(tape, uni_op_slice(tape, bias, 0, 0, 1), 1, &gates);
    }
    pass->gates = uni_op_dense(tape, uni_op_transpose(tape, x, (const int[]){ 1, 0, 2 }),
                               uni_tape_parameter(tape, r->kernel), bias, UNI_ACTIVATION_LINEAR);
    pass->kernel = uni_tape_parameter(tape, r->recurrent_kernel);
    if (r->gru && r->no_reset_after) {
        pass->kernel_state = uni_op_slice(tape, pass->kernel, 1, 0, 2 * r->units);
        pass->kernel_candidate = uni_op_slice(tape, pass->kernel, 1, 2 * r->units, r->units);
    }
}

static uni_tensor *recurrent_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                  int num_inputs, uni_tensor *const *inputs)
{
    const struct recurrent *r = self;
    uni_tensor *x = uni__as_float(tape, inputs[0]);
    if (x == NULL || uni_tensor_ndim(x) != 3) {
        char text[UNI__SHAPE_TEXT_SIZE];
        return x == NULL
                   ? NULL
                   : uni_tape_fail(tape, UNI_ESHAPE, "expects (batch, time, features), got %s",
                                   uni__shape_text(text, uni_tensor_ndim(x), uni_tensor_shape(x)));
    }
    int64_t batch = uni_tensor_dim(x, 0), time = uni_tensor_dim(x, 1), units = r->units;
    struct pass pass = { .r = r, .tape = tape };
    prepare(&pass, layer, x);
    uni_tensor *h = num_inputs > 1 ? inputs[1] : zeros(tape, batch, units);
    uni_tensor *c = r->gru ? NULL : num_inputs > 2 ? inputs[2] : zeros(tape, batch, units);
    /* Pointers to the steps' results live on the tape, so that a training step allocates
     * nothing. */
    int64_t bytes = (time > 0 ? time : 1) * (int64_t)sizeof(uni_tensor *);
    uni_tensor *list = uni_tape_scratch(tape, UNI_U8, 1, &bytes);
    uni_tensor **results = list != NULL ? uni_tensor_data(list) : NULL;
    for (int64_t t = 0; t < time && h != NULL && results != NULL; t++) {
        uni_tensor *step = uni_op_slice(tape, pass.gates, 0, r->go_backwards ? time - 1 - t : t, 1);
        step = uni_op_reshape(tape, step, 2, (const int64_t[]){ batch, (r->gru ? 3 : 4) * units });
        h = r->gru ? gru_step(&pass, step, h) : lstm_step(&pass, step, h, &c);
        results[t] = uni_op_reshape(tape, h, 3, (const int64_t[]){ 1, batch, units });
    }
    if (!r->return_sequences || h == NULL || results == NULL)
        return h;
    if (time == 0)
        return uni_tape_scratch(tape, UNI_F32, 3, (const int64_t[]){ batch, 0, units });
    return uni_op_transpose(tape, uni_op_concat(tape, (int)time, results, 0),
                            (const int[]){ 1, 0, 2 });
}

/* ---- settings ---- */

static void check(uni_layer *layer)
{
    struct recurrent *r = layer->self;
    if (r->units < 1)
        uni_layer_fail(layer, UNI_EINVAL, "units must be at least 1, got %lld",
                       (long long)r->units);
    if (!(r->dropout >= 0 && r->dropout <= 1))
        uni_layer_fail(layer, UNI_EINVAL, "dropout is a fraction between 0 and 1, got %g",
                       (double)r->dropout);
}

static int recurrent_get_config(const uni_layer *layer, const void *self, uni_value *config,
                                uni_error *err)
{
    const struct recurrent *r = self;
    UNI_TRY(uni_dict_take(config, "units", uni_value_int(r->units)));
    UNI_TRY(uni_dict_take(config, "return_sequences", uni_value_bool(r->return_sequences)));
    UNI_TRY(uni_dict_take(config, "return_state", uni_value_bool(false)));
    UNI_TRY(uni_dict_take(config, "go_backwards", uni_value_bool(r->go_backwards)));
    UNI_TRY(uni_dict_take(config, "stateful", uni_value_bool(false)));
    UNI_TRY(uni_dict_take(config, "unroll", uni_value_bool(false)));
    UNI_TRY(
        uni_dict_take(config, "activation", uni_value_string(uni__activation_name(r->activation))));
    UNI_TRY(uni_dict_take(config, "recurrent_activation",
                          uni_value_string(uni__activation_name(r->recurrent_activation))));
    UNI_TRY(uni_dict_take(config, "use_bias", uni_value_bool(!r->no_bias)));
    UNI_TRY(uni__config_put_initializer(config, "kernel_initializer", &r->kernel_initializer,
                                        "glorot_uniform"));
    UNI_TRY(uni__config_put_initializer(config, "recurrent_initializer", &r->recurrent_initializer,
                                        "orthogonal"));
    UNI_TRY(uni__config_put_initializer(config, "bias_initializer", &r->bias_initializer, "zeros"));
    UNI_TRY(uni__config_put_regularizer(config, "kernel_regularizer", &r->kernel_regularizer));
    UNI_TRY(
        uni__config_put_regularizer(config, "recurrent_regularizer", &r->recurrent_regularizer));
    UNI_TRY(uni__config_put_regularizer(config, "bias_regularizer", &r->bias_regularizer));
    UNI_TRY(uni__config_put_regularizer(config, "activity_regularizer", &layer->activity));
    UNI_TRY(uni_dict_take(config, "dropout", uni_value_float((double)r->dropout)));
    UNI_TRY(uni_dict_take(config, "recurrent_dropout", uni_value_float(0)));
    return r->gru
               ? uni_dict_take(config, "reset_after", uni_value_bool(!r->no_reset_after))
               : uni_dict_take(config, "unit_forget_bias", uni_value_bool(!r->no_unit_forget_bias));
}

static int set_config(uni_layer *layer, struct recurrent *r, const uni_value *config,
                      uni_error *err)
{
    static const char *const unsupported[] = { "return_state",         "stateful",
                                               "recurrent_dropout",    "kernel_constraint",
                                               "recurrent_constraint", "bias_constraint" };
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
        UNI_TRY(uni__config_refuse(config, unsupported[i], NULL, err));
    int activation = uni__config_get_activation(config, "activation", UNI_ACTIVATION_TANH, err);
    int recurrent =
        uni__config_get_activation(config, "recurrent_activation", UNI_ACTIVATION_SIGMOID, err);
    if (activation < 0 || recurrent < 0)
        return UNI_EUNSUPPORTED;
    r->activation = (uni_activation)activation;
    r->recurrent_activation = (uni_activation)recurrent;
    r->units = uni_dict_get_int(config, "units", 0);
    r->return_sequences = uni_dict_get_bool(config, "return_sequences", false);
    r->go_backwards = uni_dict_get_bool(config, "go_backwards", false);
    r->no_bias = !uni_dict_get_bool(config, "use_bias", true);
    r->no_reset_after = !uni_dict_get_bool(config, "reset_after", true);
    r->no_unit_forget_bias = !uni_dict_get_bool(config, "unit_forget_bias", true);
    r->dropout = (float)uni_dict_get_float(config, "dropout", 0);
    UNI_TRY(uni__config_get_initializer(&r->kernel_initializer, config, "kernel_initializer", err));
    UNI_TRY(uni__config_get_initializer(&r->recurrent_initializer, config, "recurrent_initializer",
                                        err));
    UNI_TRY(uni__config_get_initializer(&r->bias_initializer, config, "bias_initializer", err));
    UNI_TRY(uni__config_get_regularizer(&r->kernel_regularizer, config, "kernel_regularizer", err));
    UNI_TRY(uni__config_get_regularizer(&r->recurrent_regularizer, config, "recurrent_regularizer",
                                        err));
    UNI_TRY(uni__config_get_regularizer(&r->bias_regularizer, config, "bias_regularizer", err));
    UNI_TRY(uni__config_get_regularizer(&layer->activity, config, "activity_regularizer", err));
    check(layer);
    return 0;
}

static int lstm_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    return set_config(layer, self, config, err);
}

static int gru_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    ((struct recurrent *)self)->gru = true;
    return set_config(layer, self, config, err);
}

const uni_layer_class uni__class_lstm = { .name = "LSTM",
                                          .size = sizeof(struct recurrent),
                                          .build = recurrent_build,
                                          .infer = recurrent_infer,
                                          .call = recurrent_call,
                                          .get_config = recurrent_get_config,
                                          .set_config = lstm_set_config };
const uni_layer_class uni__class_gru = { .name = "GRU",
                                         .size = sizeof(struct recurrent),
                                         .build = recurrent_build,
                                         .infer = recurrent_infer,
                                         .call = recurrent_call,
                                         .get_config = recurrent_get_config,
                                         .set_config = gru_set_config };

static uni_layer *recurrent_new(const uni_layer_class *class_, bool gru, int64_t units,
                                const uni_recurrent_options *options)
{
    uni_layer *layer = uni_layer_new(class_);
    if (layer == NULL)
        return NULL;
    uni_recurrent_options o = options != NULL ? *options : (uni_recurrent_options){ 0 };
    struct recurrent *r = layer->self;
    *r = (struct recurrent){ .gru = gru,
                             .units = units,
                             .return_sequences = o.return_sequences,
                             .go_backwards = o.go_backwards,
                             .no_bias = o.no_bias,
                             .no_reset_after = o.no_reset_after,
                             .no_unit_forget_bias = o.no_unit_forget_bias,
                             .dropout = o.dropout,
                             .kernel_initializer = o.kernel_initializer,
                             .recurrent_initializer = o.recurrent_initializer,
                             .bias_initializer = o.bias_initializer,
                             .kernel_regularizer = o.kernel_regularizer,
                             .recurrent_regularizer = o.recurrent_regularizer };
    uni__layer_activation(layer, &r->activation, o.activation != NULL ? o.activation : "tanh");
    uni__layer_activation(layer, &r->recurrent_activation,
                          o.recurrent_activation != NULL ? o.recurrent_activation : "sigmoid");
    uni__layer_initializer(layer, &r->kernel_initializer, "glorot_uniform");
    uni__layer_initializer(layer, &r->recurrent_initializer, "orthogonal");
    uni__layer_initializer(layer, &r->bias_initializer, "zeros");
    check(layer);
    return layer;
}

uni_layer *uni_layer_recurrent(uni_recurrent_layer kind, int64_t units,
                               const uni_recurrent_options *options)
{
    UNI__LAYER_OPTIONS(uni_recurrent_options, options, recurrent_regularizer, &uni__class_lstm);
    bool gru = kind == UNI_LAYER_GRU;
    if (!gru && kind != UNI_LAYER_LSTM)
        return uni_layer_fail(uni_layer_new(&uni__class_lstm), UNI_EINVAL,
                              "there is no recurrent layer of kind %d", (int)kind);
    return recurrent_new(gru ? &uni__class_gru : &uni__class_lstm, gru, units, options);
}
