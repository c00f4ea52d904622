/*
 * fit_test.c - fit from the user's side: it learns; accumulation equals the larger batch; logs,
 * history and bad input. replicas_test.c covers replicas.
 */
#include "nn/model/testing.h"

#include <unisono/log.h>
#include <unistd.h>

#include "nn/shared.h"
#include "base/file.h"

/* RaySGD's example: y = x / 2. */
static void learns_a_line(void **state)
{
    uni_model *model = NULL;
    uni_value *history = NULL, *result = NULL;
    float x[200], y[200];
    for (int i = 0; i < 200; i++)
        y[i] = (x[i] = (float)i / 200) / 2;
    OK(uni_sequential_new(&model, "line",
                          UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(1)), uni_layer_dense(10, NULL),
                                     uni_layer_dense(1, NULL)),
                          err));
    uni_model_set_seed(model, 5);
    OK(uni_model_compile(
        model,
        &(uni_compile_options){ .optimizer_name = "SGD",
                                .loss_name = "Mean_Squared_Error",
                                .metric_names = (const char *const[]){ "mse", NULL } },
        err));
    uni_column columns[2] = { uni_column_view(UNI_F32, SHAPE(200, 1), x),
                              uni_column_view(UNI_F32, SHAPE(200, 1), y) };
    uni_fit_options options = { .x = &columns[0],
                                .num_x = 1,
                                .y = &columns[1],
                                .num_y = 1,
                                .epochs = 60,
                                .batch_size = 20,
                                .validation_split = 0.1 };
    OK(uni_model_fit(&history, model, &options, err));
    OK(uni_model_evaluate(&result, model, &options, err));
    assert_true(uni_dict_get_float(result, "loss", 1) < 1e-3);
    assert_true(fabs(uni_dict_get_float(result, "mse", 1) - uni_dict_get_float(result, "loss", 0)) <
                1e-9);
    assert_int_equal(uni_list_size(uni_dict_get(history, "loss")), 60);
    assert_int_equal(uni_list_size(uni_dict_get(history, "val_mse")), 60);
    uni_array *prediction = NULL;
    OK(uni_model_predict(&prediction, model, &options, err));
    assert_int_equal(uni_array_count(prediction), 200);
    assert_true(fabsf(((float *)uni_array_data(prediction))[100] - 0.25f) < 0.05f);
    uni_array_unref(prediction);
    uni_value_free(history);
    uni_value_free(result);
    uni_model_free(model);
}

/* ---- accumulation, weights ---- */

static void accumulation_is_a_larger_batch(void **state)
{
    problem p = make_problem(256);
    uni_model *models[3];
    for (int i = 0; i < 3; i++) {
        models[i] = classifier("adam");
        OK(uni_model_compile(
            models[i],
            &(uni_compile_options){ .optimizer_name = "adam",
                                    .loss_name = "binary_crossentropy",
                                    .gradient_accumulation_steps = i == 0 ? 0 : 4 },
            err));
        uni_fit_options options = options_of(&p);
        options.epochs = 3;
        options.no_shuffle = true;
        options.batch_size = i == 0 ? 64 : 16;
        options.threads = options.replicas = i == 2 ? 2 : 1;
        OK(uni_model_fit(NULL, models[i], &options, err));
        assert_int_equal(uni_optimizer_iterations(uni_model_optimizer(models[i])), 12);
    }
    assert_true(model_distance(models[0], models[1]) < 1e-5);
    assert_true(model_distance(models[0], models[2]) < 1e-5);
    for (int i = 0; i < 3; i++)
        uni_model_free(models[i]);
    free_problem(&p);
}

/* A sample with weight 2 counts like two samples, except in the count of samples; a class weight is
 * a weight of its samples. */
static void weights_of_samples_and_classes(void **state)
{
    problem p = make_problem(64);
    float weights[64];
    for (int i = 0; i < 64; i++)
        weights[i] = p.y[i] == 1 ? 3 : 0.5f;
    uni_column column = uni_column_view(UNI_F32, SHAPE(64), weights);
    uni_model *by_sample = classifier("sgd"), *by_class = classifier("sgd"),
              *plain = classifier("sgd");
    uni_fit_options options = options_of(&p);
    options.epochs = 3;
    OK(uni_model_fit(NULL, plain, &options, err));
    options.sample_weight = &column;
    OK(uni_model_fit(NULL, by_sample, &options, err));
    options.sample_weight = NULL;
    options.class_weight = (const double[]){ 0.5, 3 };
    options.num_classes = 2;
    OK(uni_model_fit(NULL, by_class, &options, err));
    assert_true(model_distance(by_sample, by_class) < 1e-7);
    assert_true(model_distance(by_sample, plain) > 1e-4);
    options.num_classes = 1;
    REFUSED(UNI_EINVAL, "class_weight has 1 classes", "class 1",
            uni_model_fit(NULL, by_class, &options, err));
    uni_model_free(by_sample);
    uni_model_free(by_class);
    uni_model_free(plain);
    free_problem(&p);
}

/* ---- epochs and steps ---- */

struct events {
    char text[4096];
};

static void note(struct events *events, const char *what)
{
    assert_true(strlen(events->text) + strlen(what) + 1 < sizeof events->text);
    strcat(events->text, what);
}

static int on_train_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    assert_int_equal(info->steps, 2);
    assert_int_equal(info->samples, 40);
    assert_true(info->has_validation);
    note(self, "train[");
    return 0;
}
static int on_train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    note(self, "]");
    return 0;
}
static int on_epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    note(self, epoch == 1 ? "E1(" : "E2(");
    return 0;
}
static int on_epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs,
                        uni_error *err)
{
    assert_string_equal(logs->names[0], "loss");
    assert_false(isnan(uni_logs_get(logs, "val_accuracy")));
    assert_true(isnan(uni_logs_get(logs, "nothing")));
    note(self, ")");
    return 0;
}
static int on_batch_begin(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    note(self, batch == 0 ? "b0<" : "b1<");
    return 0;
}
static int on_batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                        uni_error *err)
{
    note(self, ">");
    return 0;
}
static int on_test_begin(void *self, uni_model *model, uni_error *err)
{
    note(self, "t{");
    return 0;
}
static int on_test_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    note(self, "}");
    return 0;
}

static const uni_callback_class events_class = {
    .name = "events",
    .train_begin = on_train_begin,
    .train_end = on_train_end,
    .epoch_begin = on_epoch_begin,
    .epoch_end = on_epoch_end,
    .batch_begin = on_batch_begin,
    .batch_end = on_batch_end,
    .test_begin = on_test_begin,
    .test_end = on_test_end,
};

static void order_of_callbacks(void **state)
{
    problem p = make_problem(50);
    struct events events = { "" };
    uni_callback *callback = NULL;
    uni_model *model = classifier("sgd");
    OK(uni_callback_new(&callback, &events_class, &events, err));
    uni_fit_options options = options_of(&p);
    options.epochs = 3;
    options.initial_epoch = 1;
    options.validation_split = 0.2;
    options.callbacks = &callback;
    options.num_callbacks = 1;
    OK(uni_model_fit(NULL, model, &options, err));
    assert_string_equal(events.text, "train[E1(b0<>b1<>t{})E2(b0<>b1<>t{})]");
    uni_callback_free(callback);
    uni_model_free(model);
    free_problem(&p);
}

static int64_t seen_batches;
static int count_batches(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    seen_batches++;
    return 0;
}
static const uni_callback_class count_class = { .name = "count", .batch_begin = count_batches };

/* steps_per_epoch continues where the previous epoch stopped, and starts again at the end of the
 * data. */
static void steps_per_epoch(void **state)
{
    problem p = make_problem(96);
    uni_model *model = classifier("sgd");
    uni_callback *callback = NULL;
    uni_value *history = NULL;
    OK(uni_callback_new(&callback, &count_class, NULL, err));
    uni_fit_options options = options_of(&p);
    options.epochs = 4;
    options.steps_per_epoch = 2;
    options.callbacks = &callback;
    options.num_callbacks = 1;
    options.validation_split = 1.0 / 3;
    options.validation_freq = 2;
    seen_batches = 0;
    OK(uni_model_fit(&history, model, &options, err));
    assert_int_equal(seen_batches, 8); /* 2 batches of 32 are one pass */
    assert_int_equal(uni_list_size(uni_dict_get(history, "loss")), 4);
    assert_int_equal(uni_list_size(uni_dict_get(history, "val_loss")), 2);
    uni_value_free(history);
    uni_callback_free(callback);
    uni_model_free(model);
    free_problem(&p);
}

static void times_and_trace(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    uni_value *history = NULL, *trace = NULL;
    char path[256];
    int fd = mkstemp(uni__temporary_name(path, sizeof path, "trace"));
    assert_true(fd >= 0);
    close(fd);
    uni_fit_options options = options_of(&p);
    options.step_times = true;
    options.trace = path;
    OK(uni_model_fit(&history, model, &options, err));
    static const char *const names[] = { "input_ms", "forward_ms", "backward_ms", "update_ms" };
    for (int i = 0; i < 4; i++)
        assert_true(history_at(history, names[i], 0) > 0 &&
                    history_at(history, names[i], 0) < 1000);
    OK(uni_json_read_file(&trace, path, err));
    const uni_value *list = uni_dict_get(trace, "traceEvents");
    assert_int_equal(uni_list_size(list), 2 * 4 + 1); /* two batches of four phases */
    assert_string_equal(uni_dict_get_string(uni_list_get(list, 1), "name", ""), "forward");
    double end = uni_dict_get_float(uni_list_get(list, 1), "ts", 0) +
                 uni_dict_get_float(uni_list_get(list, 1), "dur", 0);
    assert_true(fabs(end - uni_dict_get_float(uni_list_get(list, 2), "ts", 0)) < 0.01);
    unlink(path);
    uni_value_free(trace);
    uni_value_free(history);
    uni_model_free(model);
    free_problem(&p);
}

/* train_on_batch is a running mean until the metrics are reset, as in Keras. */
static void single_batches(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    uni_value *first = NULL, *second = NULL, *test = NULL;
    uni_batch batch = {
        .num_x = 1, .num_y = 1, .x = { p.columns[0] }, .y = { p.columns[1] }, .size = 64
    };
    OK(uni_model_test_on_batch(&test, model, &batch, err));
    uni_model_reset_metrics(model);
    OK(uni_model_train_on_batch(&first, model, &batch, err));
    OK(uni_model_train_on_batch(&second, model, &batch, err));
    double a = uni_dict_get_float(first, "loss", 0), b = uni_dict_get_float(second, "loss", 0);
    assert_true(fabs(uni_dict_get_float(test, "loss", 0) - a) < 1e-6);
    assert_true(b < a);
    double step = 2 * b - a;
    uni_model_reset_metrics(model);
    uni_value_free(second);
    OK(uni_model_train_on_batch(&second, model, &batch, err));
    assert_true(uni_dict_get_float(second, "loss", 0) < step);
    uni_value_free(first);
    uni_value_free(second);
    uni_value_free(test);
    uni_model_free(model);
    free_problem(&p);
}

static void count_warnings(void *context, uni_log_level level, const char *message)
{
    if (level == UNI_LOG_WARN && strstr(message, "evaluate") != NULL)
        ++*(int *)context;
}

/* Data with NaN has no finite loss: evaluate returns it, and warns once. */
static void evaluate_says_nan_once(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    uni_value *result = NULL;
    int warnings = 0;
    uni_fit_options options = options_of(&p);
    uni_log_function_set(count_warnings, &warnings);
    OK(uni_model_evaluate(NULL, model, &options, err));
    assert_int_equal(warnings, 0);
    p.x[70] = NAN;
    for (int i = 0; i < 2; i++) {
        OK(uni_model_evaluate(&result, model, &options, err));
        assert_true(isnan(uni_dict_get_float(result, "loss", 0)));
        uni_value_free(result);
    }
    uni_log_function_set(NULL, NULL);
    assert_int_equal(warnings, 1);
    uni_model_free(model);
    free_problem(&p);
}

/* ---- several outputs ---- */

static void several_outputs(void **state)
{
    uni_graph *graph = NULL;
    uni_model *model = NULL;
    uni_value *history = NULL;
    problem p = make_problem(64);
    float z[128];
    for (int i = 0; i < 128; i++)
        z[i] = noise(3, (uint32_t)i);
    OK(uni_graph_new(&graph, err));
    uni_symbol *input = uni_graph_input(graph, "x", UNI_F32, SHAPE(8));
    uni_symbol *hidden = uni_graph_apply(
        graph, uni_layer_dense(6, &(uni_dense_options){ .activation = "tanh" }), input);
    uni_symbol *outputs[2] = {
        uni_graph_apply(
            graph,
            uni_layer_named(uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" }),
                            "a"),
            hidden),
        uni_graph_apply(graph, uni_layer_named(uni_layer_dense(2, NULL), "b"), hidden),
    };
    OK(uni_model_from_graph(&model, "two", graph, 1, &input, 2, outputs, err));
    uni_loss *losses[2];
    uni_metric *metrics[1];
    OK(uni_loss_new(&losses[0], "binary_crossentropy", NULL, err));
    OK(uni_loss_new(&losses[1], "mse", NULL, err));
    OK(uni_metric_new(&metrics[0], "mae", NULL, err));
    OK(uni_model_compile(model,
                         &(uni_compile_options){ .optimizer_name = "adam",
                                                 .losses = losses,
                                                 .num_losses = 2,
                                                 .loss_weights = (const float[]){ 1, 0.25f },
                                                 .metrics = metrics,
                                                 .num_metrics = 1,
                                                 .metric_outputs = (const int[]){ 1 } },
                         err));
    uni_column y[2] = { p.columns[1], uni_column_view(UNI_F32, SHAPE(64, 2), z) };
    uni_fit_options options = options_of(&p);
    options.y = y;
    options.num_y = 2;
    OK(uni_model_fit(&history, model, &options, err));
    assert_false(isnan(history_at(history, "b_mean_absolute_error", 0)));
    double total = history_at(history, "a_loss", 0) + 0.25 * history_at(history, "b_loss", 0);
    assert_true(fabs(total - history_at(history, "loss", 0)) < 1e-6);
    uni_array *predictions[2] = { NULL, NULL };
    OK(uni_model_predict(predictions, model, &options, err));
    assert_int_equal(uni_array_shape(predictions[0])[1], 1);
    assert_int_equal(uni_array_shape(predictions[1])[1], 2);
    uni_array_unref(predictions[0]);
    uni_array_unref(predictions[1]);
    options.num_y = 1;
    REFUSED(UNI_EINVAL, "2 outputs", "1 target", uni_model_fit(NULL, model, &options, err));
    uni_value_free(history);
    uni_model_free(model);
    free_problem(&p);
}

/* ---- bad input ---- */

static void bad_data(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    uni_fit_options options = options_of(&p);
    REFUSED(UNI_EINVAL, "no data", "x", uni_model_fit(NULL, model, NULL, err));
    options.num_callbacks = 1;
    REFUSED(UNI_EINVAL, "num_callbacks is 1", "NULL", uni_model_fit(NULL, model, &options, err));
    options.num_callbacks = 0;
    options.replicas = -2;
    REFUSED(UNI_EINVAL, "replicas -2", "0", uni_model_fit(NULL, model, &options, err));
    options.replicas = 0;
    uni_column wide = uni_column_view(UNI_F32, SHAPE(51, 10), p.x);
    uni_column few = uni_column_view(UNI_F32, SHAPE(51, 1), p.y);
    options.x = &wide;
    REFUSED(UNI_ESHAPE, "(64, 1)", "51 samples", uni_model_fit(NULL, model, &options, err));
    options.y = &few;
    REFUSED(UNI_ESHAPE, "(None, 8)", "(32, 10)", uni_model_fit(NULL, model, &options, err));
    uni_column nothing = uni_column_view(UNI_F32, SHAPE(0, 8), p.x),
               none = uni_column_view(UNI_F32, SHAPE(0, 1), p.y);
    options.x = &nothing;
    options.y = &none;
    REFUSED(UNI_EINVAL, "empty dataset", "classifier", uni_model_fit(NULL, model, &options, err));
    REFUSED(UNI_EINVAL, "empty dataset", "classifier",
            uni_model_evaluate(NULL, model, &options, err));
    uni_string words[2] = { { "a", 1 }, { "b", 1 } };
    uni_column text = uni_column_strings(2, words),
               two = uni_column_view(UNI_F32, SHAPE(2, 1), p.y);
    options.x = &text;
    options.y = &two;
    REFUSED(UNI_ESHAPE, "(None, 8)", "(2,)", uni_model_fit(NULL, model, &options, err));
    options = options_of(&p);
    p.x[8 * 40 + 3] = NAN;
    REFUSED(UNI_EINVAL, "NaN", "input 0",
            (options.no_shuffle = true, uni_model_fit(NULL, model, &options, err)));
    uni_model_free(model);
    free_problem(&p);
}

static void bad_compile(void **state)
{
    problem p = make_problem(8);
    uni_model *model = NULL;
    OK(uni_sequential_new(&model, NULL, UNI_LAYERS(uni_layer_dense(1, NULL)), err));
    uni_fit_options options = options_of(&p);
    REFUSED(UNI_ESTATE, "compile", "sequential", uni_model_fit(NULL, model, &options, err));
    REFUSED(
        UNI_ENOTFOUND, "mean_squared_eror", "mean_squared_error",
        uni_model_compile(model, &(uni_compile_options){ .loss_name = "mean_squared_eror" }, err));
    REFUSED(UNI_ENOTFOUND, "acuracy", "accuracy",
            uni_model_compile(
                model,
                &(uni_compile_options){ .loss_name = "mse",
                                        .metric_names = (const char *const[]){ "acuracy", NULL } },
                err));
    REFUSED(
        UNI_ENOTFOUND, "adan", "adam",
        uni_model_compile(
            model, &(uni_compile_options){ .loss_name = "mse", .optimizer_name = "adan" }, err));
    uni_loss *loss = NULL;
    uni_optimizer *optimizer = NULL;
    OK(uni_loss_new(&loss, "mse", NULL, err));
    OK(uni_optimizer_new(&optimizer, "sgd", NULL, err));
    REFUSED(UNI_EINVAL, "by object", "by name",
            uni_model_compile(
                model,
                &(uni_compile_options){ .loss = loss, .loss_name = "mse", .optimizer = optimizer },
                err));
    OK(uni_model_compile(model, &(uni_compile_options){ .optimizer_name = "sgd" }, err));
    REFUSED(UNI_ESTATE, "without a loss", "sequential", uni_model_fit(NULL, model, &options, err));
    OK(uni_model_compile(
        model, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "mae" }, err));
    OK(uni_model_fit(NULL, model, &options, err)); /* built by the data; compile may be repeated */
    assert_int_equal(uni__model_input_spec(model, 0)->dims[1], 8);
    uni_model_free(model);
    free_problem(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_a_line),
        cmocka_unit_test(accumulation_is_a_larger_batch),
        cmocka_unit_test(weights_of_samples_and_classes),
        cmocka_unit_test(order_of_callbacks),
        cmocka_unit_test(steps_per_epoch),
        cmocka_unit_test(times_and_trace),
        cmocka_unit_test(single_batches),
        cmocka_unit_test(several_outputs),
        cmocka_unit_test(evaluate_says_nan_once),
        cmocka_unit_test(bad_data),
        cmocka_unit_test(bad_compile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
