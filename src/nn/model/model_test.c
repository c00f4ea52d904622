/*
 * model_test.c - models as objects: graphs, sharing, nesting, names, order of weights, seeds,
 * summary, config round trips, user-defined layers, and errors that name the layer and both shapes.
 */
#include "nn/model/testing.h"
#include <unisono/experimental/custom_layer.h>

#include "base/shared.h"
#include "nn/shared.h"

/* The sample graph of Keras's own summary: layers in Keras's order, not in that of creation. */
static uni_model *two_heads(void)
{
    uni_graph *graph = NULL;
    uni_model *model = NULL;
    OK(uni_graph_new(&graph, err));
    uni_symbol *image = uni_graph_input(graph, "img", UNI_F32, SHAPE(8, 8, 3));
    uni_conv_layer_options same = { .padding = UNI_PADDING_SAME };
    uni_symbol *x = uni_graph_apply(graph, uni_layer_conv2d(3, 3, 0, &same), image);
    uni_symbol *y = uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ x, image });
    uni_symbol *outputs[2];
    outputs[0] = uni_graph_apply(graph, uni_layer_named(uni_layer_dense(1, NULL), "z"),
                                 uni_graph_apply(graph, uni_layer_flatten(), y));
    outputs[1] = uni_graph_apply(graph, uni_layer_named(uni_layer_dense(2, NULL), "w"),
                                 uni_graph_apply(graph, uni_layer_flatten(), x));
    OK(uni_model_from_graph(&model, "functional_1", graph, 1, &image, 2, outputs, err));
    return model;
}

static void order_is_keras(void **state)
{
    static const char *const names[] = { "img", "conv2d", "add", "flatten", "flatten_1", "z", "w" };
    uni_model *model = two_heads();
    assert_int_equal(uni_model_num_layers(model), 7);
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(uni_layer_name(uni_model_layer(model, i)), names[i]);
    uni_model_free(model);
}

static void summary_is_keras(void **state)
{
    char *text = NULL;
    uni_model *model = two_heads();
    OK(uni_model_summary(&text, model, err));
    assert_string_equal(
        text, "Model: \"functional_1\"\n"
              "┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┓\n"
              "┃ Layer (type)        ┃ Output Shape      ┃    Param # ┃ Connected to      ┃\n"
              "┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━┩\n"
              "│ img (InputLayer)    │ (None, 8, 8, 3)   │          0 │ -                 │\n"
              "├─────────────────────┼───────────────────┼────────────┼───────────────────┤\n"
              "│ conv2d (Conv2D)     │ (None, 8, 8, 3)   │         84 │ img[0][0]         │\n"
              "├─────────────────────┼───────────────────┼────────────┼───────────────────┤\n"
              "│ add (Add)           │ (None, 8, 8, 3)   │          0 │ conv2d[0][0],     │\n"
              "│                     │                   │            │ img[0][0]         │\n"
              "├─────────────────────┼───────────────────┼────────────┼───────────────────┤\n"
              "│ flatten (Flatten)   │ (None, 192)       │          0 │ add[0][0]         │\n"
              "├─────────────────────┼───────────────────┼────────────┼───────────────────┤\n"
              "│ flatten_1 (Flatten) │ (None, 192)       │          0 │ conv2d[0][0]      │\n"
              "├─────────────────────┼───────────────────┼────────────┼───────────────────┤\n"
              "│ z (Dense)           │ (None, 1)         │        193 │ flatten[0][0]     │\n"
              "├─────────────────────┼───────────────────┼────────────┼───────────────────┤\n"
              "│ w (Dense)           │ (None, 2)         │        386 │ flatten_1[0][0]   │\n"
              "└─────────────────────┴───────────────────┴────────────┴───────────────────┘\n"
              " Total params: 663 (2.59 KB)\n"
              " Trainable params: 663 (2.59 KB)\n"
              " Non-trainable params: 0 (0.00 B)\n");
    free(text);
    uni_model_free(model);
    /* After a step of Adam the optimizer's numbers also count: 19 weights, as Keras prints it. */
    problem p = make_problem(4);
    OK(uni_sequential_new(&model, "sequential",
                          UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(4)), uni_layer_dense(3, NULL),
                                     uni_layer_dense(1, NULL)),
                          err));
    OK(uni_model_compile(
        model, &(uni_compile_options){ .optimizer_name = "adam", .loss_name = "mse" }, err));
    uni_batch batch = { .num_x = 1, .num_y = 1, .size = 4 };
    batch.x[0] = uni_column_view(UNI_F32, SHAPE(4, 4), p.x);
    batch.y[0] = p.columns[1];
    OK(uni_model_train_on_batch(NULL, model, &batch, err));
    OK(uni_model_summary(&text, model, err));
    assert_non_null(strstr(
        text, "│ dense_1 (Dense)                 │ (None, 1)              │             4 │\n"));
    assert_non_null(strstr(text, " Total params: 59 (240.00 B)\n"));
    assert_non_null(strstr(text, " Optimizer params: 40 (164.00 B)\n"));
    free(text);
    uni_model_free(model);
    free_problem(&p);
}

/* ---- a generic forward pass, for comparisons ---- */

static void forward(uni_model *model, int num_inputs, const uni_column *inputs, float *out,
                    size_t count)
{
    uni_tape *tape = NULL;
    uni_tensor *tensors[4], *outputs[4];
    OK(uni_tape_new(&tape, &(uni_tape_options){ .threads = 1 }, err));
    uni_tape_begin(tape, NULL);
    for (int i = 0; i < num_inputs; i++)
        tensors[i] = uni_tape_input_column(tape, &inputs[i]);
    uni_model_call_n(model, tape, tensors, outputs);
    OK(uni_tape_status(tape, err));
    assert_int_equal(uni_tensor_count(outputs[0]), count);
    memcpy(out, uni_tensor_data(outputs[0]), count * sizeof *out);
    uni_tape_free(tape);
}

/* Two inputs through one shared layer, an inner model used twice, attention with a causal mask,
 * recurrent layers with a state. */
static uni_model *many_parts(void)
{
    uni_graph *graph = NULL;
    uni_model *model = NULL, *inner = NULL;
    OK(uni_sequential_new(&inner, "inner",
                          UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(3)), uni_layer_dense(2, NULL)),
                          err));
    OK(uni_graph_new(&graph, err));
    uni_symbol *inputs[3] = { uni_graph_input(graph, "i", UNI_F32, SHAPE(5, 8)),
                              uni_graph_input(graph, "j", UNI_F32, SHAPE(5, 8)),
                              uni_graph_input(graph, "s", UNI_F32, SHAPE(3)) };
    uni_layer *shared = uni_layer_dense(8, NULL), *nested = uni_model_as_layer(inner);
    uni_symbol *x = uni_graph_apply(graph, shared, inputs[0]),
               *y = uni_graph_apply(graph, shared, inputs[1]);
    uni_symbol *a = uni_graph_apply_n(
        graph, uni_layer_multi_head_attention(2, 4, &(uni_attention_options){ .causal = true }), 2,
        (uni_symbol *[]){ x, y });
    uni_symbol *b = uni_graph_apply_n(graph, uni_layer_multi_head_attention(2, 4, NULL), 3,
                                      (uni_symbol *[]){ x, y, x });
    uni_symbol *l = uni_graph_apply_n(graph, uni_layer_lstm(3, NULL), 3,
                                      (uni_symbol *[]){ a, inputs[2], inputs[2] });
    uni_symbol *g =
        uni_graph_apply_n(graph, uni_layer_gru(3, NULL), 2, (uni_symbol *[]){ b, inputs[2] });
    uni_symbol *both[2] = { uni_graph_apply(graph, nested, l), uni_graph_apply(graph, nested, g) };
    uni_symbol *out = uni_graph_apply_n(graph, uni_layer_concatenate(-1), 2, both);
    OK(uni_model_from_graph(&model, "multi", graph, 3, inputs, 1, &out, err));
    return model;
}

static void config_there_and_back(void **state)
{
    uni_model *model = many_parts(), *again = NULL;
    uni_value *config = NULL, *second = NULL, *weights = NULL, *parsed = NULL;
    char *json = NULL;
    uni_optimizer *optimizer = NULL;
    OK(uni_optimizer_new(&optimizer, "sgd",
                         &(uni_optimizer_options){ .learning_rate = 0.1, .momentum = 0.9 }, err));
    OK(uni_model_compile(
        model,
        &(uni_compile_options){ .optimizer = optimizer,
                                .loss_name = "mse",
                                .metric_names = (const char *const[]){ "mae", NULL },
                                .gradient_accumulation_steps = 2 },
        err));
    OK(uni__model_get_config(&config, model, err));
    OK(uni_json_write(&json, NULL, config, 0, err));
    OK(uni_json_read(&parsed, json, strlen(json), err)); /* as a file would bring it */
    OK(uni__model_read_config(&again, parsed, err));
    OK(uni__model_get_config(&second, again, err));
    assert_true(uni_value_equal(config, second));
    assert_string_equal(uni_value_as_string(uni_value_path(config, "config.output_layers.0"), ""),
                        "concatenate");
    assert_int_equal(
        uni_value_as_int(
            uni_value_path(config, "compile_config.optimizer.config.gradient_accumulation_steps"),
            0),
        2);
    OK(uni_model_get_weights(&weights, model, err));
    OK(uni_model_set_weights(again, weights, err));
    float x[2 * 40], y[2 * 40], s[6], one[8], two[8];
    for (uint32_t i = 0; i < 80; i++) {
        x[i] = noise(1, i);
        y[i] = noise(2, i);
    }
    for (uint32_t i = 0; i < 6; i++)
        s[i] = noise(3, i);
    uni_column columns[3] = { uni_column_view(UNI_F32, SHAPE(2, 5, 8), x),
                              uni_column_view(UNI_F32, SHAPE(2, 5, 8), y),
                              uni_column_view(UNI_F32, SHAPE(2, 3), s) };
    forward(model, 3, columns, one, 8);
    forward(again, 3, columns, two, 8);
    assert_memory_equal(one, two, sizeof one);
    free(json);
    uni_value_free(parsed);
    uni_value_free(config);
    uni_value_free(second);
    uni_value_free(weights);
    uni_model_free(model);
    uni_model_free(again);
}

static void hostile_configs(void **state)
{
    static const struct {
        const char *json, *word;
        int code;
    } cases[] = {
        { "{}", "class_name", UNI_EFORMAT },
        { "{\"class_name\": \"Lambda\", \"config\": {}}", "Lambda", UNI_EUNSUPPORTED },
        { "{\"class_name\": \"Sequential\", \"config\": {\"layers\": []}}", "1 to", UNI_EFORMAT },
        { "{\"class_name\": \"Sequential\", \"config\": {\"layers\": [{\"class_name\": \"Lambda\", "
          "\"config\": {}}]}}",
          "Lambda", UNI_EUNSUPPORTED },
        { "{\"class_name\": \"Sequential\", \"config\": {\"layers\": [{\"class_name\": \"Dense\", "
          "\"config\": {\"units\": -3}}]}}",
          "units", UNI_EINVAL },
        { "{\"class_name\": \"Functional\", \"config\": {\"layers\": [{\"class_name\": \"Dense\", "
          "\"name\": \"d\", \"config\": "
          "{\"units\": 3}, \"inbound_nodes\": [{\"args\": [{\"class_name\": \"__keras_tensor__\", "
          "\"config\": {\"keras_history\": "
          "[\"d\", 0, 0]}}]}]}], \"input_layers\": [\"d\", 0, 0], \"output_layers\": [\"d\", 0, "
          "0]}}",
          "circle", UNI_EFORMAT },
        { "{\"class_name\": \"Functional\", \"config\": {\"layers\": [{\"class_name\": \"Dense\", "
          "\"name\": \"d\", \"config\": "
          "{\"units\": 3}, \"inbound_nodes\": [{\"args\": [{\"class_name\": \"__keras_tensor__\", "
          "\"config\": {\"keras_history\": "
          "[\"ghost\", 0, 0]}}]}]}], \"input_layers\": [\"d\", 0, 0], \"output_layers\": [\"d\", "
          "0, 0]}}",
          "ghost", UNI_EFORMAT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_value *config = NULL;
        uni_model *model = NULL;
        OK(uni_json_read(&config, cases[i].json, strlen(cases[i].json), err));
        REFUSED(cases[i].code, cases[i].word, "", uni__model_read_config(&model, config, err));
        assert_null(model);
        uni_value_free(config);
    }
}

/* ---- nesting and sharing ---- */

static void nested_model_keeps_its_weights(void **state)
{
    uni_model *inner = NULL, *outer = NULL;
    float x[6] = { 1, 2, 3, -1, 0.5f, 2 }, before[4], after[4];
    uni_column column = uni_column_view(UNI_F32, SHAPE(2, 3), x);
    OK(uni_sequential_new(&inner, "inner",
                          UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(3)), uni_layer_dense(2, NULL)),
                          err));
    forward(inner, 1, &column, before, 4);
    OK(uni_sequential_new(&outer, "outer",
                          UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(3)), uni_model_as_layer(inner)),
                          err));
    forward(outer, 1, &column, after, 4);
    assert_memory_equal(before, after, sizeof before);
    assert_string_equal(
        uni_parameter_info_of(uni_parameters_at(uni_model_parameters(outer), 0))->name,
        "inner/dense/kernel");
    assert_int_equal(uni_parameters_count(uni_model_parameters(outer)), 2);
    assert_int_equal(uni__layer_num_children(uni_model_layer(outer, 0)), 2);
    uni_layer_trainable(uni_model_layer(outer, 0), false);
    assert_true(
        uni_parameter_info_of(uni_parameters_at(uni_model_parameters(outer), 0))->is_frozen);
    uni_model_free(outer);
}

/* A frozen layer does not change in training; the others do. */
static void frozen_layers_stay(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("adam");
    uni_value *before = NULL, *after = NULL;
    uni_layer_trainable(uni_model_layer(model, 0), false);
    OK(uni_model_get_weights(&before, model, err));
    uni_fit_options options = options_of(&p);
    OK(uni_model_fit(NULL, model, &options, err));
    OK(uni_model_get_weights(&after, model, err));
    for (size_t i = 0; i < 4; i++)
        assert_true(uni__array_equal(uni_value_as_array(uni_list_get(before, i)),
                                     uni_value_as_array(uni_list_get(after, i))) == (i < 2));
    uni_value_free(before);
    uni_value_free(after);
    uni_model_free(model);
    free_problem(&p);
}

/* ---- user-defined layers ---- */

static uni_tensor *scaled_square(void *context, uni_tape *tape, const uni_layer *layer,
                                 int num_inputs, uni_tensor *const *inputs)
{
    uni_tensor *gain = uni_tape_parameter(tape, uni_layer_parameter(layer, 0));
    return uni_op_mul(tape, uni_op_unary(tape, UNI_UNARY_SQUARE, inputs[0]), gain);
}

/* A class with a child: two dense layers and a residual connection. */
static int block_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                       uni_error *err)
{
    uni_spec middle;
    UNI_TRY(uni__layer_add_child(layer,
                                 uni_layer_dense(4, &(uni_dense_options){ .activation = "relu" }),
                                 "up", 1, inputs, &middle, err));
    return uni__layer_add_child(layer, uni_layer_dense(inputs->dims[1], NULL), "down", 1, &middle,
                                NULL, err);
}
static int block_infer(const uni_layer *layer, const void *self, int num_inputs,
                       const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    *output = inputs[0];
    return 0;
}
static uni_tensor *block_call(const uni_layer *layer, const void *self, uni_tape *tape,
                              int num_inputs, uni_tensor *const *inputs)
{
    uni_tensor *up = uni__layer_call(uni__layer_child(layer, 0), tape, 1, inputs);
    uni_tensor *down = uni__layer_call(uni__layer_child(layer, 1), tape, 1, &up);
    return uni_op_add(tape, down, inputs[0]);
}
static const uni_layer_class block_class = {
    .name = "Block", .build = block_build, .infer = block_infer, .call = block_call
};

static void own_layers(void **state)
{
    problem p = make_problem(128);
    uni_model *model = NULL;
    uni_value *history = NULL, *config = NULL;
    uni_spec gain = { .dtype = UNI_F32, .ndim = 2, .dims = { 1, 8 } };
    OK(uni_sequential_new(
        &model, "own",
        UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(8)), uni_layer_new(&block_class),
                   uni_layer_function(scaled_square, NULL, NULL, 1, &gain),
                   uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" })),
        err));
    uni_model_set_seed(model, 3);
    assert_string_equal(uni_layer_name(uni_model_layer(model, 0)), "block");
    assert_string_equal(
        uni_parameter_info_of(uni_parameters_at(uni_model_parameters(model), 0))->name,
        "block/up/kernel");
    OK(uni_model_compile(
        model,
        &(uni_compile_options){ .optimizer_name = "adam", .loss_name = "binary_crossentropy" },
        err));
    uni_fit_options options = options_of(&p);
    options.epochs = 30;
    options.threads = options.replicas = 2;
    OK(uni_model_fit(&history, model, &options, err));
    assert_true(history_at(history, "loss", 29) < history_at(history, "loss", 0) - 0.02);
    REFUSED(UNI_EUNSUPPORTED, "block", "get_config", uni__model_get_config(&config, model, err));
    uni_value_free(history);
    uni_model_free(model);
    free_problem(&p);
}

/* A number per sample (batch,) through Flatten; targets without the dummy axis. */
static void scalar_samples(void **state)
{
    uni_model *model = NULL;
    float x[32], y[32];
    for (int i = 0; i < 32; i++)
        y[i] = 2 * (x[i] = noise(4, (uint32_t)i));
    OK(uni_sequential_new(&model, NULL,
                          UNI_LAYERS(uni_layer_input(UNI_F32, 0, NULL), uni_layer_flatten(),
                                     uni_layer_dense(1, NULL)),
                          err));
    OK(uni_model_compile(
        model, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "mse" }, err));
    uni_column columns[2] = { uni_column_view(UNI_F32, SHAPE(32), x),
                              uni_column_view(UNI_F32, SHAPE(32), y) };
    uni_value *history = NULL;
    OK(uni_model_fit(
        &history, model,
        &(uni_fit_options){
            .x = columns, .num_x = 1, .y = columns + 1, .num_y = 1, .epochs = 50, .batch_size = 8 },
        err));
    assert_true(history_at(history, "loss", 49) < 0.2 * history_at(history, "loss", 0));
    uni_value_free(history);
    uni_model_free(model);
}

/* ---- seeds and weights ---- */

static void seeds(void **state)
{
    uni_model *a = classifier("sgd"), *b = classifier("sgd"), *c = classifier("sgd");
    uni_model_set_seed(c, 43);
    assert_true(model_distance(a, b) == 0);
    assert_true(model_distance(a, c) > 0);
    uni_model_set_seed(c, 42);
    assert_true(model_distance(a, c) == 0);
    /* Glorot: uniform within sqrt(6 / (8 + 16)), with a mean near 0. */
    const float *kernel = uni_parameter_data(uni_layer_parameter(uni_model_layer(a, 0), 0));
    double sum = 0, most = 0;
    for (int i = 0; i < 128; i++) {
        sum += (double)kernel[i];
        most = fmax(most, fabs((double)kernel[i]));
    }
    assert_true(most <= 0.5 && most > 0.4);
    assert_true(fabs(sum / 128) < 0.08);
    uni_model_free(a);
    uni_model_free(b);
    uni_model_free(c);
}

static void weights_of_another_model(void **state)
{
    uni_model *model = classifier("adam"), *other = NULL;
    uni_value *weights = NULL, *mine = NULL, *again = NULL;
    OK(uni_sequential_new(&other, NULL,
                          UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(8)), uni_layer_dense(16, NULL),
                                     uni_layer_dense(2, NULL)),
                          err));
    OK(uni_model_get_weights(&weights, other, err));
    OK(uni_model_get_weights(&mine, model, err));
    REFUSED(UNI_ESHAPE, "dense_1", "(16, 2)", uni_model_set_weights(model, weights, err));
    REFUSED(UNI_ESHAPE, "(16, 1)", "dense_1", uni_model_set_weights(model, weights, err));
    OK(uni_model_get_weights(&again, model, err));
    assert_true(distance(mine, again) == 0); /* nothing was changed */
    uni_value_free(weights);
    weights = uni_value_list();
    REFUSED(UNI_EINVAL, "only 0 weights", "dense", uni_model_set_weights(model, weights, err));
    uni_value_free(weights);
    uni_value_free(mine);
    uni_value_free(again);
    uni_model_free(model);
    uni_model_free(other);
}

/* A model that loads another one's state continues exactly like it. */
static void state_goes_on(void **state)
{
    problem p = make_problem(96);
    uni_model *whole = classifier("adam"), *half = classifier("adam");
    uni_value *saved = NULL;
    uni_fit_options options = options_of(&p);
    options.seed = 5;
    options.epochs = 4;
    OK(uni_model_fit(NULL, whole, &options, err));
    options.epochs = 2;
    OK(uni_model_fit(NULL, half, &options, err));
    OK(uni_model_get_state(&saved, half, err));
    uni_model *rest = classifier("adam");
    uni_model_set_seed(rest, 99);
    OK(uni_model_set_state(rest, saved, err));
    options.initial_epoch = 2;
    options.epochs = 4;
    OK(uni_model_fit(NULL, rest, &options, err));
    assert_true(model_distance(whole, rest) == 0);
    uni_model *sgd = classifier("sgd");
    REFUSED(UNI_EMISMATCH, "adam", "sgd", uni_model_set_state(sgd, saved, err));
    uni_value_free(saved);
    uni_model_free(whole);
    uni_model_free(half);
    uni_model_free(rest);
    uni_model_free(sgd);
    free_problem(&p);
}

/* ---- errors while building ---- */

static void bad_layers(void **state)
{
    uni_model *model = NULL;
    REFUSED(
        UNI_EINVAL, "dense_1", "units",
        uni_sequential_new(&model, NULL,
                           UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(4)), uni_layer_dense(3, NULL),
                                      uni_layer_named(uni_layer_dense(0, NULL), "dense_1")),
                           err));
    REFUSED(UNI_ENOTFOUND, "Dense", "rleu",
            uni_sequential_new(
                &model, NULL,
                UNI_LAYERS(uni_layer_dense(3, &(uni_dense_options){ .activation = "rleu" })), err));
    REFUSED(UNI_ESHAPE, "conv2d", "(None, 4)",
            uni_sequential_new(
                &model, NULL,
                UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(4)), uni_layer_conv2d(3, 3, 3, NULL)),
                err));
    REFUSED(UNI_ESHAPE, "conv2d", "larger than the input (None, 2, 2, 1)",
            uni_sequential_new(&model, NULL,
                               UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(2, 2, 1)),
                                          uni_layer_conv2d(3, 3, 3, NULL)),
                               err));
    REFUSED(UNI_ESHAPE, "reshape", "(None, 3, 3)",
            uni_sequential_new(&model, NULL,
                               UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(8)),
                                          uni_layer_reshape(2, (const int64_t[]){ 3, 3 })),
                               err));
    REFUSED(UNI_EDTYPE, "dense", "text",
            uni_sequential_new(
                &model, NULL,
                UNI_LAYERS(uni_layer_input(UNI_STRING, SHAPE(1)), uni_layer_dense(3, NULL)), err));
    REFUSED(UNI_EEXISTS, "twin", "unique",
            uni_sequential_new(&model, NULL,
                               UNI_LAYERS(uni_layer_named(uni_layer_flatten(), "twin"),
                                          uni_layer_named(uni_layer_flatten(), "twin")),
                               err));
    REFUSED(UNI_EINVAL, "dropout", "1.5",
            uni_sequential_new(&model, NULL,
                               UNI_LAYERS(uni_layer_named(uni_layer_dropout(1.5f), "dropout")),
                               err));
    uni_layer *twice = uni_layer_flatten();
    REFUSED(UNI_EINVAL, "flatten", "twice",
            uni_sequential_new(&model, NULL, UNI_LAYERS(twice, twice), err));
    assert_null(model);
}

static void bad_graphs(void **state)
{
    uni_graph *graph = NULL;
    uni_model *model = NULL;
    OK(uni_graph_new(&graph, err));
    uni_symbol *a = uni_graph_input(graph, "a", UNI_F32, SHAPE(4)),
               *b = uni_graph_input(graph, "b", UNI_F32, SHAPE(5));
    uni_symbol *sum = uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ a, b });
    assert_null(sum);
    /* Further calls fail silently. */
    uni_symbol *out = uni_graph_apply(graph, uni_layer_dense(3, NULL), sum);
    REFUSED(UNI_ESHAPE, "add: the inputs (None, 4) and (None, 5)", "fit together",
            uni_model_from_graph(&model, NULL, graph, 2, (uni_symbol *[]){ a, b }, 1, &out, err));
    OK(uni_graph_new(&graph, err));
    a = uni_graph_input(graph, "a", UNI_F32, SHAPE(4));
    b = uni_graph_input(graph, "b", UNI_F32, SHAPE(4));
    out = uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ a, b });
    REFUSED(UNI_EINVAL, "input b", "not among",
            uni_model_from_graph(&model, NULL, graph, 1, &a, 1, &out, err));
    OK(uni_graph_new(&graph, err));
    a = uni_graph_input(graph, "a", UNI_F32, SHAPE(4));
    out = uni_graph_apply(graph, uni_layer_dense(3, NULL), a);
    uni_graph_apply(graph, uni_layer_named(uni_layer_dense(3, NULL), "loose"), a);
    REFUSED(UNI_EINVAL, "loose", "not connected",
            uni_model_from_graph(&model, NULL, graph, 1, &a, 1, &out, err));
    assert_null(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_keras),
        cmocka_unit_test(summary_is_keras),
        cmocka_unit_test(config_there_and_back),
        cmocka_unit_test(hostile_configs),
        cmocka_unit_test(nested_model_keeps_its_weights),
        cmocka_unit_test(frozen_layers_stay),
        cmocka_unit_test(own_layers),
        cmocka_unit_test(scalar_samples),
        cmocka_unit_test(seeds),
        cmocka_unit_test(weights_of_another_model),
        cmocka_unit_test(state_goes_on),
        cmocka_unit_test(bad_layers),
        cmocka_unit_test(bad_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
