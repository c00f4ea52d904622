/*
 * curves_test.c - loss curves against real Keras (tests/reference/curves): same weights, same
 * batches, the loss of each of the first 50 steps to 1e-4, the last epoch within three times
 * Keras's own run-to-run difference, final weights; with one thread, two threads and two replicas
 * (with synchronised batch normalisation).
 */
#include "nn/layers/reference.h"

#include <unisono/nn.h>

static void check(int status, const uni_error *err)
{
    if (status < 0)
        fail_msg("%s", err->message);
}

/* ---- the models, as make_curves.py builds them ---- */

static uni_model *nnlm_head(uni_error *err)
{
    uni_model *model = NULL;
    check(uni_sequential_new(
              &model, NULL,
              UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 128 }),
                         uni_layer_dense(256, &(uni_dense_options){ .activation = "relu" }),
                         uni_layer_dense(64, &(uni_dense_options){ .activation = "relu" }),
                         uni_layer_dense(1, NULL)),
              err),
          err);
    return model;
}

static uni_model *mnist_cnn(int64_t size, uni_error *err)
{
    uni_model *model = NULL;
    check(uni_sequential_new(
              &model, NULL,
              UNI_LAYERS(
                  uni_layer_input(UNI_F32, 3, (const int64_t[]){ size, size, 1 }),
                  uni_layer_conv2d(32, 3, 0, &(uni_conv_layer_options){ .activation = "relu" }),
                  uni_layer_flatten(),
                  uni_layer_dense(128, &(uni_dense_options){ .activation = "relu" }),
                  uni_layer_dense(10, NULL)),
              err),
          err);
    return model;
}

static uni_symbol *conv_norm(uni_graph *graph, uni_symbol *x, int filters, int stride, int block,
                             char part)
{
    char conv[32], norm[32];
    snprintf(conv, sizeof conv, "conv%d%c", block, part);
    snprintf(norm, sizeof norm, "norm%d%c", block, part);
    uni_conv_layer_options options = { .strides = { stride },
                                       .padding = UNI_PADDING_SAME,
                                       .no_bias = true };
    x = uni_graph_apply(graph, uni_layer_named(uni_layer_conv2d(filters, 3, 0, &options), conv), x);
    return uni_graph_apply(graph, uni_layer_named(uni_layer_batch_normalization(NULL), norm), x);
}

static uni_model *residual_cnn(uni_error *err)
{
    uni_graph *graph = NULL;
    uni_model *model = NULL;
    check(uni_graph_new(&graph, err), err);
    uni_symbol *input = uni_graph_input(graph, NULL, UNI_F32, 3, (const int64_t[]){ 8, 8, 1 });
    uni_conv_layer_options stem = { .padding = UNI_PADDING_SAME, .activation = "relu" };
    uni_symbol *x =
        uni_graph_apply(graph, uni_layer_named(uni_layer_conv2d(8, 3, 3, &stem), "stem"), input);
    for (int block = 0; block < 2; block++) {
        int filters = block == 0 ? 8 : 16, stride = block + 1;
        uni_symbol *skip = x;
        x = conv_norm(graph, x, filters, stride, block, 'a');
        x = uni_graph_apply(graph, uni_layer_activation("relu"), x);
        x = conv_norm(graph, x, filters, 1, block, 'b');
        uni_conv_layer_options narrow = { .strides = { stride }, .padding = UNI_PADDING_SAME };
        if (stride > 1)
            skip = uni_graph_apply(
                graph, uni_layer_named(uni_layer_conv2d(filters, 1, 1, &narrow), "skip1"), skip);
        x = uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ x, skip });
        x = uni_graph_apply(graph, uni_layer_activation("relu"), x);
    }
    x = uni_graph_apply(graph, uni_layer_global_average_pooling2d(), x);
    x = uni_graph_apply(graph, uni_layer_named(uni_layer_dense(10, NULL), "logits"), x);
    check(uni_model_from_graph(&model, NULL, graph, 1, &input, 1, &x, err), err);
    return model;
}

/* ---- the run ---- */

static float generated(uint32_t tensor, uint32_t element, float limit)
{
    uint32_t h = element + 0x9E3779B9u * (tensor + 1);
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    h ^= h >> 16;
    return ((float)(h >> 8) * 0x1p-23f - 1.0f) * limit;
}

static int load_weights(uni_model *model, const reference *file)
{
    uni_error err = { 0 };
    uni_value *weights = NULL, *limits = reference_json(file, "generated"),
              *names = reference_json(file, "weight_names");
    check(uni_model_get_weights(&weights, model, &err), &err);
    int count = (int)uni_list_size(weights);
    assert_int_equal(
        count, uni_list_size(names)); /* Keras's order is checked by the shapes and the curve */
    for (int i = 0; i < count; i++) {
        uni_array *array = uni_value_as_array(uni_list_get(weights, (size_t)i));
        reference_array stored = reference_get(file, "weight.%d", i);
        float *data = uni_array_data(array);
        if (stored.dtype != 0)
            assert_int_equal(stored.count, uni_array_count(array));
        for (size_t e = 0; e < uni_array_count(array); e++)
            data[e] =
                stored.dtype != 0
                    ? ((const float *)stored.data)[e]
                    : generated((uint32_t)i, (uint32_t)e,
                                (float)uni_value_as_float(uni_list_get(limits, (size_t)i), 0));
    }
    check(uni_model_set_weights(model, weights, &err), &err);
    uni_value_free(weights);
    uni_value_free(limits);
    uni_value_free(names);
    return count;
}

struct recorder {
    int count;
    double losses[128];
};

static int batch_begin(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    /* So that batch_end gets this batch's loss, not the running mean. */
    uni_model_reset_metrics(model);
    return 0;
}

static int batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                     uni_error *err)
{
    struct recorder *recorder = self;
    recorder->losses[recorder->count++] = uni_logs_get(logs, "loss");
    return 0;
}

static const uni_callback_class recorder_class = { .name = "recorder",
                                                   .batch_begin = batch_begin,
                                                   .batch_end = batch_end };

static void fit(uni_model *model, const reference *file, struct recorder *recorder, int steps,
                int threads, int replicas)
{
    uni_error err = { 0 };
    reference_array x = reference_get(file, "x", 0), y = reference_get(file, "y", 0);
    float *scaled = calloc(x.count, sizeof *scaled);
    for (size_t i = 0; i < x.count; i++)
        scaled[i] = x.dtype == UNI_U8 ? (float)(((const uint8_t *)x.data)[i] / 255.0)
                                      : ((const float *)x.data)[i];
    uni_callback *callback = NULL;
    check(uni_callback_new(&callback, &recorder_class, recorder, &err), &err);
    uni_column columns[2] = { uni_column_view(UNI_F32, x.ndim, x.shape, scaled),
                              uni_column_view(y.dtype, y.ndim, y.shape, y.data) };
    check(uni_model_fit(NULL, model,
                        &(uni_fit_options){ .x = &columns[0],
                                            .num_x = 1,
                                            .y = &columns[1],
                                            .num_y = 1,
                                            .batch_size = 64,
                                            .epochs = (steps + 3) / 4,
                                            .no_shuffle = true,
                                            .threads = threads,
                                            .replicas = replicas,
                                            .callbacks = &callback,
                                            .num_callbacks = 1 },
                        &err),
          &err);
    uni_callback_free(callback);
    free(scaled);
}

static void compare(const char *name, const uni_model *model, const reference *file,
                    const struct recorder *recorder, int steps, int num_weights)
{
    reference_array one = reference_get(file, "loss.threads1", 0),
                    two = reference_get(file, "loss.threads2", 0);
    double worst = 0, spread = 0, late = 0;
    for (int i = 0; i < steps; i++) {
        double keras = (double)((const float *)one.data)[i],
               again = (double)((const float *)two.data)[i];
        double difference = fabs(recorder->losses[i] - keras);
        spread = fmax(spread, fabs(keras - again));
        worst = i < 50 ? fmax(worst, difference) : worst;
        late = i >= 76 ? fmax(late, difference) : late;
    }
    print_message("%s: first 50 steps %.2g, last epoch %.2g, Keras against itself %.2g\n", name,
                  worst, late, spread);
    assert_true(worst < 1e-4);
    assert_true(late <= 3 * spread);
    uni_error err = { 0 };
    uni_value *weights = NULL;
    check(uni_model_get_weights(&weights, model, &err), &err);
    for (int i = 0; i < num_weights; i++) {
        reference_array want = reference_get(file, "final.weight.%d", i);
        if (want.dtype != 0)
            assert_close(name, uni_array_data(uni_value_as_array(uni_list_get(weights, (size_t)i))),
                         &want, 2e-4, 2e-4);
    }
    uni_value_free(weights);
}

static void run(const char *name, uni_model *(*make)(uni_error *err), const char *optimizer,
                double rate, const char *loss, int threads, int replicas)
{
    char path[128];
    uni_error err = { 0 };
    snprintf(path, sizeof path, "curves/%s.safetensors", name);
    reference file = reference_open(path);
    int steps = atoi(reference_text(&file, "steps"));
    uni_model *model = make(&err);
    int num_weights = load_weights(model, &file);
    uni_compile_options options = { 0 };
    check(uni_optimizer_new(&options.optimizer, optimizer,
                            &(uni_optimizer_options){ .learning_rate = rate }, &err),
          &err);
    check(uni_loss_new(&options.loss, loss, &(uni_loss_options){ .from_logits = true }, &err),
          &err);
    check(uni_model_compile(model, &options, &err), &err);
    struct recorder recorder = { 0 };
    fit(model, &file, &recorder, steps, threads, replicas);
    assert_true(recorder.count >= steps);
    /* Fit continued to the end of the epoch, so the weights are from a later step: compare only
     * losses. */
    if (steps % 4 != 0)
        num_weights = 0;
    compare(name, model, &file, &recorder, steps, num_weights);
    uni_model_free(model);
    reference_close(&file);
}

static uni_model *small(uni_error *err)
{
    return mnist_cnn(8, err);
}

static uni_model *full(uni_error *err)
{
    return mnist_cnn(28, err);
}

static const int settings[3][2] = { { 1, 1 }, { 2, 1 }, { 2, 2 } }; /* threads, replicas */

static void curve_nnlm_head(void **state)
{
    for (int i = 0; i < 3; i++)
        run("nnlm_head", nnlm_head, "adam", 1e-4, "binary_crossentropy", settings[i][0],
            settings[i][1]);
}

static void curve_mnist_cnn_small(void **state)
{
    for (int i = 0; i < 3; i++)
        run("mnist_cnn_small", small, "sgd", 1e-3, "sparse_categorical_crossentropy",
            settings[i][0], settings[i][1]);
}

static void curve_residual_cnn(void **state)
{
    for (int i = 0; i < 3; i++)
        run("residual_cnn", residual_cnn, "adam", 1e-3, "sparse_categorical_crossentropy",
            settings[i][0], settings[i][1]);
}

static void curve_mnist_cnn_full(void **state)
{
    run("mnist_cnn_full", full, "sgd", 1e-3, "sparse_categorical_crossentropy", 2, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(curve_nnlm_head),
                                        cmocka_unit_test(curve_mnist_cnn_small),
                                        cmocka_unit_test(curve_residual_cnn),
                                        cmocka_unit_test(curve_mnist_cnn_full) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
