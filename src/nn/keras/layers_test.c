/*
 * layers_test.c - models made here of every layer, every activation, every optimizer, graphs whose
 * layers were made in another order than Keras sorts them: saved, loaded and equal; trained on,
 * equal again.
 *
 * With an argument it is a writer for real Keras (tests/keras_files.sh): DIRECTORY/NAME.keras,
 * NAME.weights.h5, and NAME.expected.safetensors with inputs, predictions, weights and one more
 * step.
 */
#include "nn/layers/reference.h"

#include <unisono/nn.h>

#include "nn/shared.h"
#include "base/random.h"
#include "nn/files/safetensors.h"

#define BATCH 4
#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[])                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static uni_error failure;
#define check(expr)                                                                                \
    do {                                                                                           \
        if ((expr) < 0) {                                                                          \
            fprintf(stderr, "%s: %s\n", #expr, failure.message);                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- models ---- */

static const char *const words[] = { "the fox and the dog", "A fox, a dog!", "nothing here",
                                     "dog dog fox" };
static const uni_string texts[BATCH] = { { "the fox and the dog", 19 },
                                         { "A fox, a dog!", 13 },
                                         { "nothing here", 12 },
                                         { "dog dog fox", 11 } };

static uni_model *images(void)
{
    uni_model *model = NULL;
    uni_conv_layer_options strided = { .strides = { 2, 1 },
                                       .padding = UNI_PADDING_SAME,
                                       .activation = "elu" };
    uni_conv_layer_options dilated = { .dilation = { 2 }, .no_bias = true };
    uni_conv_layer_options grouped = { .groups = 2,
                                       .activation = "swish",
                                       .padding = UNI_PADDING_SAME };
    uni_conv_layer_options depthwise = { .depth_multiplier = 2,
                                         .padding = UNI_PADDING_SAME,
                                         .activation = "tanh" };
    check(uni_sequential_new(
        &model, "images",
        UNI_LAYERS(
            uni_layer_input(UNI_F32, SHAPE(9, 8, 3)), uni_layer_rescaling(0.5f, -0.25f),
            uni_layer_zero_padding2d(1, 2), uni_layer_conv2d(4, 3, 2, &strided),
            uni_layer_depthwise_conv2d(3, 3, &depthwise), uni_layer_leaky_relu(0),
            uni_layer_max_pooling2d(2, 1, UNI_PADDING_SAME), uni_layer_conv2d(6, 2, 0, &dilated),
            uni_layer_batch_normalization(&(uni_norm_options){ .momentum = 0.8f }),
            uni_layer_activation("relu"), uni_layer_conv2d(4, 1, 1, &grouped),
            uni_layer_average_pooling2d(2, 2, UNI_PADDING_SAME),
            uni_layer_global_average_pooling2d(),
            uni_layer_dense(5, &(uni_dense_options){ .activation = "softmax",
                                                     .kernel_regularizer = { 0.01f, 0.02f } })),
        &failure));
    check(uni_model_compile(
        model, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "mse" }, &failure));
    return model;
}

static uni_model *shapes(void)
{
    uni_model *model = NULL;
    check(uni_sequential_new(
        &model, "shapes",
        UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(4, 6)),
                   uni_layer_permute(2, (const int[]){ 2, 1 }), uni_layer_reshape(SHAPE(3, 2, -1)),
                   uni_layer_conv2d(3, 2, 2, NULL), uni_layer_global_max_pooling2d(),
                   uni_layer_dense(6, NULL), uni_layer_softmax(), uni_layer_reshape(SHAPE(3, 2)),
                   uni_layer_activity_regularization(0.01f, 0.01f), uni_layer_flatten(),
                   uni_layer_dense(2, NULL)),
        &failure));
    uni_optimizer *adam = NULL;
    check(uni_optimizer_new(&adam, "adam",
                            &(uni_optimizer_options){ .amsgrad = true, .learning_rate = 0.01 },
                            &failure));
    check(uni_model_compile(model, &(uni_compile_options){ .optimizer = adam, .loss_name = "mae" },
                            &failure));
    return model;
}

static uni_model *activations(void)
{
    static const char *const names[] = { "linear",  "relu",        "elu",         "gelu",
                                         "sigmoid", "tanh",        "softplus",    "silu",
                                         "selu",    "exponential", "softsign",    "hard_sigmoid",
                                         "relu6",   "softmax",     "log_softmax", "leaky_relu" };
    enum { COUNT = sizeof names / sizeof names[0] };
    uni_layer *layers[COUNT + 1] = { uni_layer_input(UNI_F32, SHAPE(5)) };
    for (int i = 0; i < COUNT; i++)
        layers[i + 1] = uni_layer_dense(5, &(uni_dense_options){ .activation = names[i] });
    uni_model *model = NULL;
    check(uni_sequential_new(&model, "activations", COUNT + 1, layers, &failure));
    uni_optimizer *sgd = NULL;
    check(uni_optimizer_new(&sgd, "sgd",
                            &(uni_optimizer_options){ .clip_value = 0.01, .weight_decay = 0.1 },
                            &failure));
    check(uni_model_compile(model, &(uni_compile_options){ .optimizer = sgd, .loss_name = "mse" },
                            &failure));
    return model;
}

static uni_model *sequences(void)
{
    uni_model *model = NULL;
    uni_conv_layer_options causal = { .padding = UNI_PADDING_CAUSAL,
                                      .dilation = { 2 },
                                      .activation = "relu" };
    uni_recurrent_options backwards = { .return_sequences = true, .go_backwards = true };
    uni_recurrent_options old = { .return_sequences = true,
                                  .no_reset_after = true,
                                  .activation = "relu" };
    check(uni_sequential_new(
        &model, "sequences",
        UNI_LAYERS(uni_layer_input(UNI_I32, SHAPE(8)), uni_layer_embedding(64, 5, NULL),
                   uni_layer_conv1d(6, 3, &causal),
                   uni_layer_max_pooling1d(2, 1, UNI_PADDING_VALID),
                   uni_layer_layer_normalization(NULL), uni_layer_lstm(4, &backwards),
                   uni_layer_average_pooling1d(2, 0, UNI_PADDING_SAME), uni_layer_gru(3, &old),
                   uni_layer_gru(3, &(uni_recurrent_options){ .return_sequences = true }),
                   uni_layer_global_max_pooling1d(),
                   uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" })),
        &failure));
    uni_optimizer *adagrad = NULL;
    check(uni_optimizer_new(&adagrad, "adagrad", &(uni_optimizer_options){ .learning_rate = 0.05 },
                            &failure));
    check(uni_model_compile(
        model, &(uni_compile_options){ .optimizer = adagrad, .loss_name = "bce" }, &failure));
    return model;
}

/* The short branch is made first and the output's branches in the wrong order: Keras numbers the
 * layers otherwise. */
static uni_model *branches(void)
{
    uni_graph *graph = NULL;
    uni_model *model = NULL;
    check(uni_graph_new(&graph, &failure));
    uni_symbol *a = uni_graph_input(graph, "a", UNI_F32, SHAPE(4)),
               *b = uni_graph_input(graph, "b", UNI_F32, SHAPE(4));
    uni_symbol *late = uni_graph_apply(graph, uni_layer_dense(3, NULL), b);
    uni_symbol *early =
        uni_graph_apply(graph, uni_layer_dense(4, &(uni_dense_options){ .activation = "tanh" }), a);
    uni_symbol *deep = uni_graph_apply(graph, uni_layer_dense(3, NULL),
                                       uni_graph_apply(graph, uni_layer_dense(4, NULL), early));
    uni_layer *shared = uni_layer_dense(3, &(uni_dense_options){ .activation = "relu" });
    uni_symbol *first = uni_graph_apply(graph, shared, deep),
               *second = uni_graph_apply(graph, shared, late);
    uni_symbol *parts[] = {
        uni_graph_apply_n(graph, uni_layer_subtract(), 2, (uni_symbol *[]){ second, first }),
        uni_graph_apply_n(graph, uni_layer_multiply(), 2, (uni_symbol *[]){ deep, late }),
        uni_graph_apply_n(graph, uni_layer_average(), 3, (uni_symbol *[]){ deep, late, first }),
        uni_graph_apply_n(graph, uni_layer_maximum(), 2, (uni_symbol *[]){ late, deep }),
        uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ first, late }),
    };
    uni_symbol *all = uni_graph_apply_n(graph, uni_layer_concatenate(1), 5, parts);
    uni_symbol *out = uni_graph_apply(graph, uni_layer_dense(2, NULL), all);
    check(uni_model_from_graph(&model, "branches", graph, 2, (uni_symbol *[]){ a, b }, 1, &out,
                               &failure));
    uni_optimizer *rmsprop = NULL;
    check(uni_optimizer_new(&rmsprop, "rmsprop",
                            &(uni_optimizer_options){ .momentum = 0.5, .learning_rate = 0.01 },
                            &failure));
    check(uni_model_compile(
        model, &(uni_compile_options){ .optimizer = rmsprop, .loss_name = "huber" }, &failure));
    return model;
}

static uni_model *attention(void)
{
    uni_graph *graph = NULL;
    uni_model *model = NULL;
    check(uni_graph_new(&graph, &failure));
    uni_symbol *query = uni_graph_input(graph, "query", UNI_F32, SHAPE(5, 4)),
               *memory = uni_graph_input(graph, "memory", UNI_F32, SHAPE(3, 6));
    uni_symbol *cross = uni_graph_apply_n(
        graph, uni_layer_multi_head_attention(2, 3, &(uni_attention_options){ .value_dim = 5 }), 2,
        (uni_symbol *[]){ query, memory });
    uni_symbol *self =
        uni_graph_apply(graph,
                        uni_layer_multi_head_attention(
                            2, 2, &(uni_attention_options){ .causal = true, .no_bias = true }),
                        cross);
    uni_symbol *out =
        uni_graph_apply(graph, uni_layer_dense(2, NULL),
                        uni_graph_apply(graph, uni_layer_layer_normalization(NULL), self));
    check(uni_model_from_graph(&model, "attention", graph, 2, (uni_symbol *[]){ query, memory }, 1,
                               &out, &failure));
    uni_optimizer *sgd = NULL;
    check(uni_optimizer_new(
        &sgd, "sgd",
        &(uni_optimizer_options){ .momentum = 0.9, .nesterov = true, .learning_rate = 0.05 },
        &failure));
    check(uni_model_compile(model, &(uni_compile_options){ .optimizer = sgd, .loss_name = "mse" },
                            &failure));
    return model;
}

static uni_model *text_model(const char *name, uni_text_output output)
{
    uni_model *model = NULL;
    uni_layer *layer =
        uni_layer_text_vectorization(&(uni_text_options){ .output = output, .max_tokens = 6 });
    uni_column data = uni_column_strings(BATCH, texts);
    check(uni_layer_adapt(layer, &data, &failure));
    check(uni_sequential_new(
        &model, name,
        UNI_LAYERS(uni_layer_input(UNI_STRING, 0, NULL), layer, uni_layer_dense(2, NULL)),
        &failure));
    check(uni_model_compile(
        model, &(uni_compile_options){ .optimizer_name = "adamw", .loss_name = "mse" }, &failure));
    return model;
}

static uni_model *tf_idf(void)
{
    return text_model("tf_idf", UNI_TEXT_TF_IDF);
}

static uni_model *multi_hot(void)
{
    return text_model("multi_hot", UNI_TEXT_MULTI_HOT);
}

static uni_model *inner(void)
{
    uni_model *small = NULL, *model = NULL;
    check(uni_sequential_new(&small, "small",
                             UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(3)),
                                        uni_layer_dense(4, NULL), uni_layer_dense(3, NULL)),
                             &failure));
    check(uni_sequential_new(&model, "inner",
                             UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(3)),
                                        uni_layer_dense(3, NULL), uni_model_as_layer(small),
                                        uni_layer_trainable(uni_layer_dense(3, NULL), false),
                                        uni_layer_dense(1, NULL)),
                             &failure));
    uni_optimizer *adam = NULL;
    uni_schedule *schedule = NULL;
    check(uni_schedule_cosine(&schedule, 0.001, 10, 0.1, 0.02, 3, &failure));
    check(uni_optimizer_new(&adam, "adam",
                            &(uni_optimizer_options){ .schedule = schedule, .clip_norm = 0.5 },
                            &failure));
    check(uni_model_compile(
        model,
        &(uni_compile_options){ .optimizer = adam,
                                .loss_name = "mse",
                                .metric_names = (const char *const[]){ "mae", NULL } },
        &failure));
    return model;
}

static uni_model *(*const makers[])(void) = { images,    shapes, activations, sequences, branches,
                                              attention, tf_idf, multi_hot,   inner };
#define NUM_MAKERS (sizeof makers / sizeof makers[0])

/* ---- data ---- */

struct data {
    uni_batch batch;
    void *memory[UNI_MODEL_MAX_INPUTS + 1];
};

static size_t fill_column(uni_column *column, const uni_spec *spec, uint64_t key, void **memory)
{
    *column = (uni_column){ .dtype = spec->dtype, .ndim = spec->ndim };
    size_t count = 1;
    for (int i = 0; i < spec->ndim; i++) {
        column->shape[i] = i == 0 ? BATCH : spec->dims[i];
        count *= (size_t)column->shape[i];
    }
    *memory = calloc(count, 8);
    for (size_t i = 0; i < count; i++) {
        if (spec->dtype == UNI_I32)
            ((int32_t *)*memory)[i] = (int32_t)(i * 7 % 64); /* no word twice: see docs/engine.md */
        else
            ((float *)*memory)[i] = (float)uni__random_unit(key, 2, i);
    }
    column->data = spec->dtype == UNI_STRING ? (const void *)texts : *memory;
    return count;
}

static struct data data_of(const uni_model *model)
{
    struct data data = { .batch = {
                             .num_x = uni__model_num_inputs(model), .num_y = 1, .size = BATCH } };
    for (int i = 0; i < data.batch.num_x; i++)
        fill_column(&data.batch.x[i], uni__model_input_spec(model, i), (uint64_t)i + 1,
                    &data.memory[i]);
    fill_column(&data.batch.y[0], uni__model_output_spec(model, 0), 77,
                &data.memory[UNI_MODEL_MAX_INPUTS]);
    return data;
}

static void data_free(struct data *data)
{
    for (int i = 0; i <= UNI_MODEL_MAX_INPUTS; i++)
        free(data->memory[i]);
}

static uni_model *trained(size_t index, struct data *data)
{
    uni_model *model = makers[index]();
    uni_model_set_seed(model, 7);
    *data = data_of(model);
    for (int step = 0; step < 3; step++)
        check(uni_model_train_on_batch(NULL, model, &data->batch, &failure));
    return model;
}

static uni_array *predict(uni_model *model, const struct data *data)
{
    uni_array *output = NULL;
    check(uni_model_predict(
        &output, model,
        &(uni_fit_options){ .x = data->batch.x, .num_x = data->batch.num_x, .threads = 1 },
        &failure));
    return output;
}

/* ---- the test ---- */

/* Exactly after loading; after a step to rounding, because Keras keeps the learning rate in
 * float32. */
static void assert_same(uni_model *a, uni_model *b, const struct data *data, double tolerance)
{
    uni_array *first = predict(a, data), *second = predict(b, data);
    assert_int_equal(uni_array_count(first), uni_array_count(second));
    for (size_t i = 0; i < uni_array_count(first); i++) {
        double x = (double)((float *)uni_array_data(first))[i],
               y = (double)((float *)uni_array_data(second))[i];
        if (!(fabs(x - y) <= tolerance * fmax(1, fabs(x))))
            fail_msg("%s predicts %.9g, and %.9g after loading", uni__model_name(a), x, y);
    }
    uni_array_unref(first);
    uni_array_unref(second);
}

static void test_round_trips(void **state)
{
    char path[256], file[400];
    assert_non_null(mkdtemp(uni__temporary_name(path, sizeof path, "layers")));
    for (size_t i = 0; i < NUM_MAKERS; i++) {
        struct data data;
        uni_model *model = trained(i, &data), *again = NULL;
        snprintf(file, sizeof file, "%s/%s.keras", path, uni__model_name(model));
        check(uni_model_save(model, file, &failure));
        check(uni_model_load(&again, file, &failure));
        assert_same(model, again, &data, 0);
        uni_value *before = NULL, *after = NULL;
        check(uni_model_train_on_batch(&before, model, &data.batch, &failure));
        check(uni_model_train_on_batch(&after, again, &data.batch, &failure));
        assert_same(model, again, &data, 1e-6);
        assert_int_equal(uni_dict_size(before), uni_dict_size(after));
        uni_value_free(before);
        uni_value_free(after);
        uni_model_free(model);
        uni_model_free(again);
        data_free(&data);
    }
    assert_int_equal(uni__remove_tree(path, NULL), 0);
}

/* ---- the writer ---- */

struct arrays {
    size_t count;
    char names[128][32];
    uni__safetensors_entry entries[128];
    const void *data[128];
};

static void put(struct arrays *arrays, const char *format, int number, uni_dtype dtype, int ndim,
                const int64_t *shape, const void *data)
{
    size_t i = arrays->count++;
    snprintf(arrays->names[i], sizeof arrays->names[i], format, number);
    arrays->entries[i] =
        (uni__safetensors_entry){ .name = arrays->names[i], .dtype = dtype, .ndim = ndim };
    for (int j = 0; j < ndim; j++)
        arrays->entries[i].shape[j] = shape[j];
    arrays->data[i] = data;
}

static void put_state(struct arrays *arrays, const char *prefix, uni_model *model,
                      uni_array *output, uni_value *weights)
{
    char format[32];
    snprintf(format, sizeof format, "%soutput.%%d", prefix);
    put(arrays, format, 0, UNI_F32, uni_array_ndim(output), uni_array_shape(output),
        uni_array_data(output));
    snprintf(format, sizeof format, "%sweight.%%d", prefix);
    for (size_t i = 0; i < uni_list_size(weights); i++) {
        const uni_array *array = uni_value_as_array(uni_list_get(weights, i));
        put(arrays, format, (int)i, UNI_F32, uni_array_ndim(array), uni_array_shape(array),
            uni_array_data(array));
    }
}

static uni_value *metadata_of(const struct data *data)
{
    if (data->batch.x[0].dtype != UNI_STRING)
        return NULL;
    uni_value *metadata = uni_value_dict(), *list = uni_value_list();
    char *json = NULL;
    for (int i = 0; i < BATCH; i++)
        check(uni_list_take(list, uni_value_string(words[i])));
    check(uni_json_write(&json, NULL, list, 0, &failure));
    check(uni_dict_take(metadata, "strings", uni_value_string(json)));
    free(json);
    uni_value_free(list);
    return metadata;
}

static void write_model(size_t index, const char *directory)
{
    static struct arrays arrays;
    char path[1024];
    struct data data;
    uni_model *model = trained(index, &data);
    const char *name = uni__model_name(model);
    arrays.count = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s%s", directory, name, i == 0 ? ".keras" : ".weights.h5");
        check(uni_model_save(model, path, &failure));
    }
    for (int i = 0; i < data.batch.num_x && data.batch.x[i].dtype != UNI_STRING; i++)
        put(&arrays, "input.%d", i, data.batch.x[i].dtype, data.batch.x[i].ndim,
            data.batch.x[i].shape, data.batch.x[i].data);
    put(&arrays, "y", 0, UNI_F32, data.batch.y[0].ndim, data.batch.y[0].shape,
        data.batch.y[0].data);
    uni_array *outputs[2];
    uni_value *weights[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++) {
        outputs[i] = predict(model, &data);
        check(uni_model_get_weights(&weights[i], model, &failure));
        put_state(&arrays, i == 0 ? "" : "next.", model, outputs[i], weights[i]);
        if (i == 0)
            check(uni_model_train_on_batch(NULL, model, &data.batch, &failure));
    }
    uni_value *metadata = metadata_of(&data);
    snprintf(path, sizeof path, "%s/%s.expected.safetensors", directory, name);
    check(uni__safetensors_write(path, arrays.count, arrays.entries, arrays.data, metadata,
                                 &failure));
    uni_value_free(metadata);
    for (int i = 0; i < 2; i++) {
        uni_array_unref(outputs[i]);
        uni_value_free(weights[i]);
    }
    uni_model_free(model);
    data_free(&data);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < NUM_MAKERS; i++)
        write_model(i, argv[1]);
    if (argc > 1)
        return 0;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_round_trips) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
