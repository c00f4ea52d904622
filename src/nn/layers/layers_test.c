/*
 * layers_test.c - what Keras's reference numbers do not cover: layers without stored values against
 * finite differences, empty batches and tiny shapes through every layer, config round trips,
 * statistics of initialisers, dropout, and rejected input.
 */
#include "nn/shared.h"
#include "nn/model/testing.h"

#include "nn/layer.h"

/* ---- a single layer ---- */

struct bench {
    uni__build_context build;
    uni_layer *layer;
    uni_spec output;
    uni_tape *tape;
    uni_gradients *gradients;
};

static struct bench *open_bench(uni_layer *layer, int num_inputs, const uni_spec *inputs)
{
    struct bench *bench = calloc(1, sizeof *bench);
    bench->layer = layer;
    bench->build.seed = 5;
    OK(uni_parameters_new(&bench->build.store, err));
    OK(uni__layer_build(layer, &bench->build, NULL, num_inputs, inputs, &bench->output, err));
    OK(uni_tape_new(&bench->tape, &(uni_tape_options){ .threads = 1 }, err));
    OK(uni_gradients_new(&bench->gradients, bench->build.store, err));
    return bench;
}

static void close_bench(struct bench *bench)
{
    uni_gradients_free(bench->gradients);
    uni_tape_free(bench->tape);
    uni_layer_free(bench->layer);
    uni_parameters_free(bench->build.store);
    free(bench);
}

static uni_spec spec_of(uni_dtype dtype, int ndim, const int64_t *dims)
{
    uni_spec spec = { .dtype = dtype, .ndim = ndim + 1, .dims = { -1 } };
    memcpy(spec.dims + 1, dims, (size_t)ndim * sizeof *dims);
    return spec;
}

/* sum(output * noise), so that every element counts differently. */
static uni_tensor *score(uni_tape *tape, uni_tensor *output)
{
    if (output == NULL)
        return NULL;
    uni_tensor *weights =
        uni_tape_scratch(tape, UNI_F32, uni_tensor_ndim(output), uni_tensor_shape(output));
    for (size_t i = 0; weights != NULL && i < uni_tensor_count(output); i++)
        ((float *)uni_tensor_data(weights))[i] = noise(77, (uint32_t)i);
    return uni_op_sum(tape, uni_op_mul(tape, output, weights));
}

static double run(struct bench *bench, int num_inputs, const uni_column *inputs, bool gradients)
{
    uni_tensor *tensors[UNI_MODEL_MAX_INPUTS];
    uni_tape_begin(bench->tape, &(uni_step){ .training = true,
                                             .gradients = gradients ? bench->gradients : NULL,
                                             .seed = 3,
                                             .keep_state = true });
    for (int i = 0; i < num_inputs; i++)
        tensors[i] = uni_tape_input_column(bench->tape, &inputs[i]);
    uni_tensor *total =
        score(bench->tape, uni__layer_call(bench->layer, bench->tape, num_inputs, tensors));
    OK(uni_tape_status(bench->tape, err));
    double value = uni_tensor_scalar(total);
    if (gradients)
        OK(uni_tape_gradient(bench->tape, total, NULL, err));
    return value;
}

/* Every parameter's gradient (a few elements each) against (f(w + h) - f(w - h)) / 2h. */
static void finite_differences(uni_layer *layer, int num_inputs, const uni_column *inputs)
{
    uni_spec specs[UNI_MODEL_MAX_INPUTS];
    for (int i = 0; i < num_inputs; i++)
        specs[i] = spec_of(inputs[i].dtype, inputs[i].ndim - 1, inputs[i].shape + 1);
    struct bench *bench = open_bench(layer, num_inputs, specs);
    for (size_t i = 0; i < uni_layer_num_parameters(layer);
         i++) /* biases of 0 would hide a lost one */
        for (size_t e = 0; e < uni_parameter_info_of(uni_layer_parameter(layer, i))->size; e++)
            uni_parameter_data(uni_layer_parameter(layer, i))[e] +=
                0.2f * noise(8 + (uint32_t)i, (uint32_t)e);
    run(bench, num_inputs, inputs, true);
    for (size_t i = 0; i < uni_layer_num_parameters(layer); i++) {
        uni_parameter *parameter = uni_layer_parameter(layer, i);
        const float *gradient = uni_gradients_of(bench->gradients, parameter);
        float *data = uni_parameter_data(parameter);
        if (gradient == NULL)
            continue;
        for (size_t e = 0; e < uni_parameter_info_of(parameter)->size;
             e += uni_parameter_info_of(parameter)->size / 5 + 1) {
            float before = data[e], step = 1e-2f;
            data[e] = before + step;
            double above = run(bench, num_inputs, inputs, false);
            data[e] = before - step;
            double below = run(bench, num_inputs, inputs, false);
            data[e] = before;
            double slope = (above - below) / (2 * (double)step);
            if (fabs(slope - (double)gradient[e]) > 1e-2 + 1e-2 * fabs(slope))
                fail_msg("%s[%zu]: gradient %g, difference %g",
                         uni_parameter_info_of(parameter)->name, e, (double)gradient[e], slope);
        }
    }
    close_bench(bench);
}

static void gradients(void **state)
{
    float x[2 * 6 * 6 * 4];
    for (uint32_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = noise(1, i);
    uni_column sequence = uni_column_view(UNI_F32, SHAPE(2, 6, 4), x),
               image = uni_column_view(UNI_F32, SHAPE(2, 6, 6, 4), x);
    uni_column pair[2] = { sequence, uni_column_view(UNI_F32, SHAPE(2, 3, 4), x + 50) };
    finite_differences(
        uni_layer_lstm(3, &(uni_recurrent_options){ .return_sequences = true, .dropout = 0.3f }), 1,
        &sequence);
    finite_differences(
        uni_layer_lstm(3, &(uni_recurrent_options){ .activation = "softsign",
                                                    .recurrent_activation = "hard_sigmoid",
                                                    .no_unit_forget_bias = true }),
        1, &sequence);
    finite_differences(
        uni_layer_gru(3, &(uni_recurrent_options){ .no_reset_after = true, .go_backwards = true }),
        1, &sequence);
    finite_differences(uni_layer_multi_head_attention(
                           2, 3, &(uni_attention_options){ .dropout = 0.25f, .causal = true }),
                       1, &sequence);
    finite_differences(
        uni_layer_multi_head_attention(2, 3, &(uni_attention_options){ .value_dim = 5 }), 2, pair);
    finite_differences(uni_layer_conv2d(4, 3, 2,
                                        &(uni_conv_layer_options){ .groups = 2,
                                                                   .padding = UNI_PADDING_SAME,
                                                                   .activation = "swish" }),
                       1, &image);
    finite_differences(
        uni_layer_depthwise_conv2d(2, 3, &(uni_conv_layer_options){ .depth_multiplier = 3 }), 1,
        &image);
    finite_differences(uni_layer_layer_normalization(NULL), 1, &image);
    finite_differences(uni_layer_batch_normalization(NULL), 1, &image);
}

/* Fused and composed attention are the same function. */
static void attention_both_ways(void **state)
{
    float x[2 * 5 * 4];
    for (uint32_t i = 0; i < 40; i++)
        x[i] = noise(2, i);
    uni_column column = uni_column_view(UNI_F32, SHAPE(2, 5, 4), x);
    uni_spec spec = spec_of(UNI_F32, SHAPE(5, 4));
    struct bench *fused = open_bench(
        uni_layer_multi_head_attention(2, 3, &(uni_attention_options){ .causal = true }), 1, &spec);
    /* A rate so small that nothing is dropped, but the composed path is taken. */
    struct bench *spelled =
        open_bench(uni_layer_multi_head_attention(
                       2, 3, &(uni_attention_options){ .causal = true, .dropout = 1e-9f }),
                   1, &spec);
    assert_true(fabs(run(fused, 1, &column, true) - run(spelled, 1, &column, true)) < 1e-5);
    for (size_t i = 0; i < uni_layer_num_parameters(fused->layer); i++) {
        const float *a = uni_gradients_of(fused->gradients, uni_layer_parameter(fused->layer, i));
        const float *b =
            uni_gradients_of(spelled->gradients, uni_layer_parameter(spelled->layer, i));
        for (size_t e = 0; e < uni_parameter_info_of(uni_layer_parameter(fused->layer, i))->size;
             e++)
            assert_true(fabsf(a[e] - b[e]) < 1e-5f);
    }
    close_bench(fused);
    close_bench(spelled);
}

/* ---- tiny and empty ---- */

struct shaped {
    uni_layer *layer;
    int ndim;
    int64_t dims[4]; /* of a sample */
};

/* Runs each layer with batches of 0, 1 and 3 samples: shapes as inferred, no error, finite numbers,
 * a gradient. */
static void edge_batches(void **state)
{
    uni_conv_layer_options same = { .padding = UNI_PADDING_SAME };
    struct shaped cases[] = {
        { uni_layer_dense(1, NULL), 1, { 1 } },
        { uni_layer_dense(3, &(uni_dense_options){ .activation = "softmax" }), 2, { 1, 2 } },
        { uni_layer_activation("gelu"), 1, { 3 } },
        { uni_layer_leaky_relu(0), 1, { 3 } },
        { uni_layer_softmax(), 1, { 1 } },
        { uni_layer_flatten(), 3, { 1, 1, 1 } },
        { uni_layer_flatten(), 0, { 0 } },
        { uni_layer_reshape(3, (const int64_t[]){ 1, -1, 2 }), 1, { 6 } },
        { uni_layer_permute(2, (const int[]){ 2, 1 }), 2, { 2, 3 } },
        { uni_layer_dropout(0.5f), 1, { 4 } },
        { uni_layer_rescaling(2, 1), 2, { 2, 2 } },
        { uni_layer_activity_regularization(0.1f, 0.1f), 1, { 2 } },
        { uni_layer_conv1d(2, 1, NULL), 2, { 1, 1 } },
        { uni_layer_conv1d(2, 3, &(uni_conv_layer_options){ .padding = UNI_PADDING_CAUSAL }),
          2,
          { 2, 2 } },
        { uni_layer_conv2d(2, 3, 3, &same), 3, { 1, 1, 1 } },
        { uni_layer_depthwise_conv2d(3, 3, &same), 3, { 1, 1, 2 } },
        { uni_layer_max_pooling2d(0, 0, UNI_PADDING_SAME), 3, { 1, 1, 2 } },
        { uni_layer_average_pooling2d(0, 0, UNI_PADDING_VALID), 3, { 2, 3, 1 } },
        { uni_layer_max_pooling1d(0, 0, UNI_PADDING_VALID), 2, { 2, 1 } },
        { uni_layer_average_pooling1d(0, 1, UNI_PADDING_SAME), 2, { 3, 1 } },
        { uni_layer_global_average_pooling1d(), 2, { 1, 2 } },
        { uni_layer_global_average_pooling2d(), 3, { 1, 1, 2 } },
        { uni_layer_global_max_pooling1d(), 2, { 2, 2 } },
        { uni_layer_global_max_pooling2d(), 3, { 2, 2, 1 } },
        { uni_layer_zero_padding2d(1, 2), 3, { 1, 1, 1 } },
        { uni_layer_batch_normalization(NULL), 3, { 1, 1, 2 } },
        { uni_layer_layer_normalization(NULL), 1, { 1 } },
        { uni_layer_normalization(2, NULL, NULL), 1, { 2 } },
        { uni_layer_lstm(1, NULL), 2, { 1, 1 } },
        { uni_layer_gru(2, &(uni_recurrent_options){ .return_sequences = true }), 2, { 2, 1 } },
        { uni_layer_multi_head_attention(1, 1, NULL), 2, { 1, 1 } },
    };
    static const int64_t sizes[] = { 0, 1, 3 };
    float x[64];
    for (uint32_t i = 0; i < 64; i++)
        x[i] = noise(6, i);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uni_spec spec = spec_of(UNI_F32, cases[c].ndim, cases[c].dims);
        struct bench *bench = open_bench(cases[c].layer, 1, &spec);
        for (int s = 0; s < 3; s++) {
            uni_column column = { .dtype = UNI_F32, .ndim = spec.ndim, .data = x };
            memcpy(column.shape, spec.dims, sizeof column.shape);
            column.shape[0] = sizes[s];
            uni_tape_begin(bench->tape,
                           &(uni_step){ .training = true, .gradients = bench->gradients });
            uni_tensor *input = uni_tape_input_column(bench->tape, &column);
            uni_tensor *output = uni__layer_call(bench->layer, bench->tape, 1, &input);
            uni_tensor *total = score(bench->tape, output);
            uni_error failure = { 0 };
            if (uni_tape_gradient(bench->tape, total, NULL, &failure) < 0)
                fail_msg("%s with %lld samples: %s", uni_layer_name(bench->layer),
                         (long long)sizes[s], failure.message);
            assert_int_equal(uni_tensor_ndim(output), bench->output.ndim);
            assert_int_equal(uni_tensor_dim(output, 0), sizes[s]);
            for (int d = 1; d < bench->output.ndim; d++)
                assert_int_equal(uni_tensor_dim(output, d), bench->output.dims[d]);
            for (size_t i = 0; i < uni_tensor_count(output); i++)
                assert_true(isfinite(((float *)uni_tensor_data(output))[i]));
            for (size_t p = 0; p < uni_layer_num_parameters(bench->layer); p++) {
                const float *gradient =
                    uni_gradients_of(bench->gradients, uni_layer_parameter(bench->layer, p));
                for (size_t i = 0;
                     gradient != NULL &&
                     i < uni_parameter_info_of(uni_layer_parameter(bench->layer, p))->size;
                     i++)
                    assert_true(sizes[s] > 0 ? isfinite(gradient[i]) : gradient[i] == 0);
            }
        }
        close_bench(bench);
    }
}

/* ---- configs ---- */

/* Every layer's config creates a layer with the same config, which files rely on. */
static void configs_there_and_back(void **state)
{
    float mean[2] = { 1, 2 }, variance[2] = { 3, 4 };
    uni_layer *layers[] = {
        uni_layer_input(UNI_STRING, SHAPE(1)),
        uni_layer_dense(
            3, &(uni_dense_options){ .activation = "gelu",
                                     .no_bias = true,
                                     .kernel_initializer = { .name = "HeNormal", .seed = 4 },
                                     .kernel_regularizer = { 0.1f, 0.2f },
                                     .activity_regularizer = { 0, 0.5f } }),
        uni_layer_activation("log_softmax"),
        uni_layer_leaky_relu(0.1f),
        uni_layer_softmax(),
        uni_layer_flatten(),
        uni_layer_reshape(2, (const int64_t[]){ -1, 3 }),
        uni_layer_permute(3, (const int[]){ 3, 1, 2 }),
        uni_layer_dropout(0.25f),
        uni_layer_rescaling(0.5f, -1),
        uni_layer_activity_regularization(0.25f, 0.5f),
        uni_layer_conv1d(
            3, 2, &(uni_conv_layer_options){ .padding = UNI_PADDING_CAUSAL, .dilation = { 2 } }),
        uni_layer_conv2d(
            4, 3, 2,
            &(uni_conv_layer_options){ .strides = { 2, 1 }, .groups = 2, .activation = "relu" }),
        uni_layer_depthwise_conv2d(
            3, 0, &(uni_conv_layer_options){ .depth_multiplier = 2, .padding = UNI_PADDING_SAME }),
        uni_layer_max_pooling2d(3, 2, UNI_PADDING_SAME),
        uni_layer_average_pooling1d(2, 1, UNI_PADDING_VALID),
        uni_layer_global_average_pooling2d(),
        uni_layer_global_max_pooling1d(),
        uni_layer_zero_padding2d(2, 1),
        uni_layer_batch_normalization(
            &(uni_norm_options){ .momentum = 0.5f, .epsilon = 0.125f, .no_scale = true }),
        uni_layer_layer_normalization(&(uni_norm_options){ .no_center = true }),
        uni_layer_normalization(2, mean, variance),
        uni_layer_embedding(10, 4, &(uni_initializer){ .name = "random_normal", .stddev = 0.5 }),
        uni_layer_lstm(3, &(uni_recurrent_options){ .return_sequences = true,
                                                    .go_backwards = true,
                                                    .dropout = 0.5f }),
        uni_layer_gru(3, &(uni_recurrent_options){ .no_reset_after = true,
                                                   .activation = "relu",
                                                   .no_bias = true }),
        uni_layer_multi_head_attention(2, 3,
                                       &(uni_attention_options){ .value_dim = 4, .dropout = 0.5f }),
        uni_layer_add(),
        uni_layer_subtract(),
        uni_layer_multiply(),
        uni_layer_average(),
        uni_layer_maximum(),
        uni_layer_concatenate(1),
    };
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        uni_value *config = NULL, *second = NULL;
        uni_layer *again = NULL;
        uni_layer_named(layers[i], "it");
        if (i % 2 == 1)
            uni_layer_trainable(layers[i], false);
        OK(uni__layer_get_config(layers[i], &config, err));
        OK(uni__layer_from_config(&again, uni__layer_class_of(layers[i])->name, config, err));
        OK(uni__layer_get_config(again, &second, err));
        if (!uni_value_equal(config, second))
            fail_msg("the config of %s changes", uni__layer_class_of(layers[i])->name);
        uni_value_free(config);
        uni_value_free(second);
        uni_layer_free(again);
        uni_layer_free(layers[i]);
    }
}

static void refused_configs(void **state)
{
    static const struct {
        const char *class_name, *config, *word;
        int code;
    } cases[] = {
        { "Lambda", "{}", "Lambda", UNI_EUNSUPPORTED },
        { "LSTM", "{\"units\": 3, \"return_state\": true}", "return_state", UNI_EUNSUPPORTED },
        { "GRU", "{\"units\": 3, \"stateful\": true}", "stateful", UNI_EUNSUPPORTED },
        { "Dense", "{\"units\": 3, \"activation\": \"magic\"}", "magic", UNI_EUNSUPPORTED },
        { "Dense", "{\"units\": 3, \"kernel_constraint\": {\"class_name\": \"MaxNorm\"}}",
          "kernel_constraint", UNI_EUNSUPPORTED },
        { "Dense", "{\"units\": 3, \"kernel_initializer\": \"magic\"}", "magic", UNI_ENOTFOUND },
        { "Dense", "{\"units\": 3, \"kernel_regularizer\": \"orthogonal\"}", "orthogonal",
          UNI_EUNSUPPORTED },
        { "Conv2D", "{\"filters\": 3, \"kernel_size\": [3, 3, 3]}", "kernel_size", UNI_EFORMAT },
        { "Conv2D", "{\"filters\": 3, \"kernel_size\": 3, \"data_format\": \"channels_first\"}",
          "channels_first", UNI_EUNSUPPORTED },
        { "Conv2D", "{\"filters\": 3, \"kernel_size\": 3, \"padding\": \"odd\"}", "odd",
          UNI_EINVAL },
        { "Embedding", "{\"input_dim\": 3, \"output_dim\": 2, \"mask_zero\": true}", "mask_zero",
          UNI_EUNSUPPORTED },
        { "Dropout", "{\"rate\": 7}", "7", UNI_EINVAL },
        { "Flatten", "{\"data_format\": 0}", "data_format must be a word", UNI_EINVAL },
        { "Conv2D", "{\"filters\": 3, \"kernel_size\": 3, \"data_format\": false}",
          "data_format must be", UNI_EINVAL },
        { "Conv2D", "{\"filters\": 3, \"kernel_size\": 3, \"padding\": 0}",
          "padding must be a word", UNI_EINVAL },
        { "MaxPooling2D", "{\"pool_size\": 2, \"padding\": [0, 0]}", "padding must be a word",
          UNI_EINVAL },
        { "ZeroPadding2D", "{\"padding\": \"\"}", "padding must be a whole number", UNI_EINVAL },
        { "MultiHeadAttention", "{\"num_heads\": 1, \"key_dim\": 2, \"value_dim\": 1.5}",
          "value_dim must be", UNI_EINVAL },
        { "MultiHeadAttention", "{\"num_heads\": 1, \"key_dim\": 2, \"output_shape\": true}",
          "output_shape must be", UNI_EINVAL },
        { "ActivityRegularization", "{\"l1\": -1}", "l1 must be a number of at least 0",
          UNI_EINVAL },
        { "ActivityRegularization", "{\"l2\": \"\"}", "l2 must be a number of at least 0",
          UNI_EINVAL },
        { "Normalization", "{\"variance\": [1.5]}", "given together", UNI_EINVAL },
        { "TextVectorization", "{\"max_tokens\": 0}", "max_tokens must be", UNI_EINVAL },
        { "TextVectorization", "{\"output_sequence_length\": 1.5}",
          "output_sequence_length must be", UNI_EINVAL },
        { "TextVectorization", "{\"output_mode\": 0}", "output_mode must be", UNI_EINVAL },
        { "Dropout", "{\"rate\": null}", "rate must be a number", UNI_EINVAL },
        { "Dense", "{\"units\": 1.5}", "units must be a whole number of at least 1", UNI_EINVAL },
        { "Dense", "{\"units\": 2, \"use_bias\": 0}", "use_bias must be true or false",
          UNI_EINVAL },
        { "Conv2D", "{\"filters\": 3, \"kernel_size\": 3, \"strides\": 0}", "strides must be",
          UNI_EINVAL },
        { "Conv2D", "{\"filters\": 3, \"kernel_size\": 3, \"strides\": null}", "strides must be",
          UNI_EINVAL },
        { "Conv2D", "{\"filters\": 3, \"kernel_size\": 3, \"strides\": []}", "strides must be",
          UNI_EINVAL },
        { "Conv2D", "{\"filters\": 3, \"kernel_size\": 3, \"groups\": 0}", "groups must be",
          UNI_EINVAL },
        { "MaxPooling2D", "{\"pool_size\": [2, 0]}", "pool_size must be", UNI_EINVAL },
        { "MaxPooling2D", "{\"pool_size\": 2, \"strides\": 0}", "strides must be", UNI_EINVAL },
        { "BatchNormalization", "{\"momentum\": \"\"}", "momentum must be a number", UNI_EINVAL },
        { "ReLU", "{\"negative_slope\": -1}", "negative_slope must be", UNI_EINVAL },
        { "Concatenate", "{\"axis\": [0, 0]}", "axis must be a whole number", UNI_EINVAL },
        { "Permute", "{\"dims\": [1, 1]}", "dims", UNI_EINVAL },
        { "Normalization", "{\"mean\": [1], \"variance\": [1, 2]}", "length", UNI_EFORMAT },
        { "MultiHeadAttention", "{\"activity_regularizer\": \"l2\"}", "activity_regularizer",
          UNI_EUNSUPPORTED },
        { "Normalization", "{\"axis\": null}", "axis=None", UNI_EUNSUPPORTED },
        { "InputLayer", "{\"batch_shape\": [null, 3], \"dtype\": \"complex64\"}", "complex64",
          UNI_EUNSUPPORTED },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_value *config = NULL;
        uni_layer *layer = NULL;
        OK(uni_json_read(&config, cases[i].config, strlen(cases[i].config), err));
        REFUSED(cases[i].code, cases[i].word, "",
                uni__layer_from_config(&layer, cases[i].class_name, config, err));
        assert_null(layer);
        uni_value_free(config);
    }
}

/* ---- initialisers ---- */

static void statistics(const char *name, double low, double high, double stddev)
{
    uni_spec spec = spec_of(UNI_F32, SHAPE(100));
    struct bench *bench = open_bench(
        uni_layer_dense(300, &(uni_dense_options){ .kernel_initializer = { .name = name } }), 1,
        &spec);
    const float *data = uni_parameter_data(uni_layer_parameter(bench->layer, 0));
    double sum = 0, squares = 0, least = 1e9, most = -1e9;
    for (int i = 0; i < 30000; i++) {
        sum += (double)data[i];
        squares += (double)data[i] * (double)data[i];
        least = fmin(least, (double)data[i]);
        most = fmax(most, (double)data[i]);
    }
    double mean = sum / 30000, deviation = sqrt(squares / 30000 - mean * mean);
    if (fabs(mean) > 4 * stddev / sqrt(30000) || fabs(deviation - stddev) > 0.03 * stddev ||
        least < low || most > high)
        fail_msg("%s: mean %g, deviation %g (wanted %g), from %g to %g", name, mean, deviation,
                 stddev, least, most);
    close_bench(bench);
}

static void initializers(void **state)
{
    double glorot = sqrt(6.0 / 400), he = sqrt(6.0 / 100), lecun = sqrt(3.0 / 100);
    statistics("glorot_uniform", -glorot, glorot, glorot / sqrt(3));
    statistics("he_uniform", -he, he, he / sqrt(3));
    statistics("LecunUniform", -lecun, lecun, lecun / sqrt(3));
    statistics("glorot_normal", -0.17, 0.17, sqrt(2.0 / 400));
    statistics("he_normal", -0.33, 0.33, sqrt(2.0 / 100));
    statistics("random_normal", -0.5, 0.5, 0.05);
    statistics("truncated_normal", -0.1, 0.1, 0.05 * 0.8796);
    statistics("random_uniform", -0.05, 0.05, 0.05 / sqrt(3));
    /* Orthogonal: rows of the wide matrix have length 1 and are orthogonal. */
    uni_spec spec = spec_of(UNI_F32, SHAPE(5));
    struct bench *bench = open_bench(
        uni_layer_dense(9, &(uni_dense_options){ .kernel_initializer = { .name = "orthogonal" } }),
        1, &spec);
    const float *q = uni_parameter_data(uni_layer_parameter(bench->layer, 0));
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++) {
            double product = 0;
            for (int i = 0; i < 9; i++)
                product += (double)q[a * 9 + i] * (double)q[b * 9 + i];
            assert_true(fabs(product - (a == b)) < 1e-6);
        }
    close_bench(bench);
}

/* Dropout keeps the expectation, draws anew every step, and gives a sample the same mask wherever
 * it is in a batch. */
static void dropout(void **state)
{
    enum { SAMPLES = 8, WIDTH = 2000 };
    static float ones[SAMPLES * WIDTH], first[SAMPLES * WIDTH];
    for (int i = 0; i < SAMPLES * WIDTH; i++)
        ones[i] = 1;
    uni_spec spec = spec_of(UNI_F32, SHAPE(WIDTH));
    struct bench *bench = open_bench(uni_layer_dropout(0.25f), 1, &spec);
    for (int pass = 0; pass < 3; pass++) {
        int64_t begin = pass == 2 ? 3 : 0,
                count = SAMPLES - begin; /* the last pass: only samples 3 to 7 */
        uni_tape_begin(
            bench->tape,
            &(uni_step){ .training = true, .seed = 4, .number = pass == 1, .first_sample = begin });
        uni_tensor *input =
            uni_tape_input(bench->tape, UNI_F32, 2, (const int64_t[]){ count, WIDTH }, ones);
        uni_tensor *output = uni__layer_call(bench->layer, bench->tape, 1, &input);
        const float *data = uni_tensor_data(output);
        double sum = 0;
        for (int64_t i = 0; i < count * WIDTH; i++) {
            assert_true(data[i] == 0 || fabsf(data[i] - 1 / 0.75f) < 1e-6f);
            sum += (double)data[i];
        }
        assert_true(fabs(sum / (double)(count * WIDTH) - 1) < 0.03);
        if (pass == 0)
            memcpy(first, data, sizeof first);
        else if (pass == 1)
            assert_memory_not_equal(first, data, sizeof first);
        else
            assert_memory_equal(first + begin * WIDTH, data,
                                (size_t)(count * WIDTH) * sizeof *data);
    }
    close_bench(bench);
}

static void adapt_errors(void **state)
{
    float x[8] = { 0 };
    uni_layer *layer = uni_layer_normalization(0, NULL, NULL), *dense = uni_layer_dense(3, NULL);
    uni_column nothing = uni_column_view(UNI_F32, SHAPE(0, 4), x),
               flat = uni_column_view(UNI_F32, SHAPE(8), x);
    uni_column some = uni_column_view(UNI_F32, SHAPE(2, 4), x);
    REFUSED(UNI_EINVAL, "empty", "", uni_layer_adapt(layer, &nothing, err));
    REFUSED(UNI_ESHAPE, "(8,)", "", uni_layer_adapt(layer, &flat, err));
    REFUSED(UNI_EUNSUPPORTED, "Dense", "adapt", uni_layer_adapt(dense, &some, err));
    OK(uni_layer_adapt(layer, &some, err));
    uni_column other = uni_column_view(UNI_F32, SHAPE(4, 2), x);
    REFUSED(UNI_ESHAPE, "(4, 2)", "4 columns", uni_layer_adapt(layer, &other, err));
    uni_layer_free(layer);
    uni_layer_free(dense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients),       cmocka_unit_test(attention_both_ways),
        cmocka_unit_test(edge_batches),    cmocka_unit_test(configs_there_and_back),
        cmocka_unit_test(refused_configs), cmocka_unit_test(initializers),
        cmocka_unit_test(dropout),         cmocka_unit_test(adapt_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
