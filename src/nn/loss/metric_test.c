/*
 * metric_test.c - metrics against numbers from real Keras (tests/reference/metrics) over three
 * batches, including their states; merging, copies, functional forms, bad input, configs.
 */
#include <unisono/log.h>
#include "nn/shared.h"
#include "nn/layers/reference.h"
#include "nn/loss/loss.h"

#define TOLERANCE 1e-5

static uni_tensor *put(uni_tape *tape, const reference_array *array)
{
    return array->dtype == 0
               ? NULL
               : uni_tape_input(tape, array->dtype, array->ndim, array->shape, array->data);
}

static uni_tensor *put_named(const reference *file, uni_tape *tape, const char *format, int batch)
{
    reference_array array = reference_get(file, format, batch);
    return put(tape, &array);
}

static int add_batch(uni_metric *metric, const reference *file, uni_tape *tape, int batch,
                     uni_error *err)
{
    uni_tensor *prediction = put_named(file, tape, "y_pred.%d", batch);
    if (prediction == NULL)
        prediction = put_named(file, tape, "values.%d", batch);
    return uni_metric_update(metric, put_named(file, tape, "y_true.%d", batch), prediction,
                             put_named(file, tape, "sample_weight.%d", batch), err);
}

static void check_state(const reference *file, const char *name, uni_metric *metric, int batch)
{
    size_t size = 0, at = 0;
    const double *state = uni__metric_state(metric, &size);
    for (int i = 0;; i++) {
        char key[32];
        snprintf(key, sizeof key, "state.%d.%%d", batch);
        reference_array want = reference_get(file, key, i);
        if (want.dtype == 0)
            break;
        for (size_t j = 0; j < want.count; j++, at++) {
            assert_true(at < size);
            double expected = (double)((const float *)want.data)[j];
            if (fabs(state[at] - expected) > TOLERANCE * fmax(1, fabs(expected)))
                fail_msg("%s: state %d[%zu] after batch %d is %.9g, Keras has %.9g", name, i, j,
                         batch, state[at], expected);
        }
    }
    if (at > 0)
        assert_int_equal(at, size);
}

static void check_result(const reference *file, const char *name, uni_metric *metric, int batch)
{
    reference_array want = reference_get(file, "result.%d", batch);
    double values[64];
    size_t count = uni__metric_values(metric, values, 64);
    const double *got = values;
    if (strcmp(name, "confusion_matrix.safetensors") == 0)
        got = uni__metric_state(metric, &count);
    assert_int_equal(count, want.count);
    for (size_t i = 0; i < count; i++)
        if (fabs(got[i] - (double)((const float *)want.data)[i]) > TOLERANCE)
            fail_msg("%s: result %zu after batch %d is %.9g, Keras has %.9g", name, i, batch,
                     got[i], (double)((const float *)want.data)[i]);
}

/* One metric over all batches against one per batch, merged, as replicas do. */
static void check_merged(const reference *file, const char *name, uni_tape *tape,
                         const uni_metric *metric, uni_error *err)
{
    uni_metric *sum = uni__metric_copy(metric);
    for (int batch = 0; batch < 3; batch++) {
        uni_metric *part = uni__metric_copy(metric);
        uni_tape_begin(tape, NULL);
        assert_int_equal(add_batch(part, file, tape, batch, err), 0);
        uni__metric_merge(sum, part);
        uni_metric_free(part);
    }
    check_result(file, name, sum, 2);
    check_state(file, name, sum, 2);
    uni_metric_free(sum);
}

static void check_file(const char *name, reference *file, void *tape)
{
    uni_value *config = reference_json(file, "config");
    uni_metric *metric = NULL;
    uni_error err = { 0 };
    if (uni__metric_from_config(&metric, reference_text(file, "metric"), config, &err) < 0)
        fail_msg("%s: %s", name, err.message);
    for (int round = 0; round < 2; round++) { /* the second after a reset */
        assert_true(uni_metric_result(metric) == 0);
        for (int batch = 0; batch < 3; batch++) {
            uni_tape_begin(tape, NULL);
            if (add_batch(metric, file, tape, batch, &err) < 0)
                fail_msg("%s: %s", name, err.message);
            check_state(file, name, metric, batch);
            check_result(file, name, metric, batch);
        }
        uni_metric_reset(metric);
    }
    check_merged(file, name, tape, metric, &err);
    uni_metric_free(metric);
    uni_value_free(config);
}

static void test_equal_to_keras(void **state)
{
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    assert_int_equal(reference_each("metrics", check_file, tape), 42);
    uni_tape_free(tape);
}

/* ---- names and options ---- */

static void expect_error(const char *name, const uni_metric_options *options, int code,
                         const char *part)
{
    uni_error err = { 0 };
    uni_metric *metric = (uni_metric *)&err;
    assert_int_equal(uni_metric_new(&metric, name, options, &err), code);
    assert_null(metric);
    if (strstr(err.message, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void expect_name(const char *name, const char *expected)
{
    uni_metric *metric = NULL;
    assert_int_equal(uni_metric_new(&metric, name, NULL, NULL), 0);
    assert_string_equal(uni__metric_name(metric), expected);
    assert_true(uni_metric_result(metric) == 0);
    uni_metric_free(metric);
}

static void test_names(void **state)
{
    expect_name("acc", "accuracy");
    expect_name("Accuracy", "accuracy");
    expect_name("MSE", "mean_squared_error");
    expect_name("BinaryAccuracy", "binary_accuracy");
    expect_name("AUC", "auc");
    expect_name("F1Score", "f1_score");
    expect_error("acuracy", NULL, UNI_ENOTFOUND, "\"accuracy\"");
    expect_error("binary_acuracy", NULL, UNI_ENOTFOUND, "\"binary_accuracy\"");
    expect_error("precison", NULL, UNI_ENOTFOUND, "\"precision\"");
    expect_error("confusion_matrix", NULL, UNI_EINVAL, "num_classes");
    expect_error("auc", &(uni_metric_options){ .num_thresholds = 1 }, UNI_EINVAL, "thresholds");
    expect_error("fbeta_score", &(uni_metric_options){ .average = "makro" }, UNI_ENOTFOUND,
                 "\"macro\"");
    expect_error("top_k_categorical_accuracy", &(uni_metric_options){ .k = -1 }, UNI_EINVAL,
                 "k (-1)");
}

/* ---- by shapes ---- */

static double one(const char *name, uni_tape *tape, const uni_column *target,
                  const uni_column *prediction, uni_error *err)
{
    uni_metric *metric = NULL;
    assert_int_equal(uni_metric_new(&metric, name, NULL, NULL), 0);
    uni_tape_begin(tape, NULL);
    double result = uni_metric_call(metric, uni_tape_input_column(tape, target),
                                    uni_tape_input_column(tape, prediction), NULL, err);
    uni_metric_free(metric);
    return result;
}

static void test_accuracy_by_shapes(void **state)
{
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    const float scores[] = { 0.9f, 0.2f, 0.6f, 0.4f }, one_hot[] = { 1, 0, 0, 1 };
    const int64_t ids[] = { 0, 1 };
    const uint8_t labels[] = { 1, 0, 0, 0 };
    const int64_t two[] = { 2, 2 }, four[] = { 4 }, column[] = { 4, 1 };
    uni_column rows = uni_column_view(UNI_F32, 2, two, scores),
               column_scores = uni_column_view(UNI_F32, 2, column, scores);
    uni_column hot = uni_column_view(UNI_F32, 2, two, one_hot),
               numbers = uni_column_view(UNI_I64, 1, two, ids);
    uni_column binary = uni_column_view(UNI_B8, 1, four, labels);
    assert_float_equal(one("accuracy", tape, &hot, &rows, NULL), 0.5, 1e-12);
    assert_float_equal(one("accuracy", tape, &numbers, &rows, NULL), 0.5, 1e-12);
    assert_float_equal(one("accuracy", tape, &binary, &column_scores, NULL), 0.75, 1e-12);
    uni_tape_begin(tape, NULL);
    uni_metric *matrix = NULL;
    size_t size = 0;
    assert_int_equal(uni_metric_new(&matrix, "confusion_matrix",
                                    &(uni_metric_options){ .num_classes = 2 }, NULL),
                     0);
    assert_int_equal(uni_metric_update(matrix, uni_tape_input_column(tape, &binary),
                                       uni_tape_input_column(tape, &column_scores), NULL, NULL),
                     0);
    const double *counts = uni__metric_state(matrix, &size);
    assert_int_equal(size, 4);
    assert_true(counts[0] == 2 && counts[1] == 1 && counts[2] == 0 && counts[3] == 1);
    uni_metric_free(matrix);

    uni_error err = { 0 };
    assert_true(isnan(one("mse", tape, &numbers, &column_scores, &err)));
    assert_int_equal(err.code, UNI_ESHAPE);
    assert_non_null(strstr(err.message, "(2,)"));
    assert_non_null(strstr(err.message, "(4, 1)"));
    /* It was 1.0, whatever the numbers are. */
    uni_column flat = uni_column_view(UNI_F32, 1, four, scores),
               flat_hot = uni_column_view(UNI_F32, 1, four, one_hot);
    static const char *const of_classes[] = { "categorical_accuracy", "categorical_crossentropy",
                                              "kl_divergence", "top_k_categorical_accuracy" };
    for (size_t i = 0; i < sizeof of_classes / sizeof of_classes[0]; i++) {
        assert_true(isnan(one(of_classes[i], tape, &flat_hot, &flat, &err)));
        assert_non_null(strstr(err.message, "no axis of classes"));
    }
    assert_float_equal(one("binary_accuracy", tape, &binary, &flat, NULL), 0.75, 1e-12);
    const int64_t bad[] = { 0, 7 };
    uni_column out_of_range = uni_column_view(UNI_I64, 1, two, bad);
    uni_tape_begin(tape, NULL);
    assert_int_equal(uni_metric_new(&matrix, "confusion_matrix",
                                    &(uni_metric_options){ .num_classes = 3 }, NULL),
                     0);
    assert_int_equal(uni_metric_update(matrix, uni_tape_input_column(tape, &out_of_range),
                                       uni_tape_input_column(tape, &numbers), NULL, &err),
                     UNI_EINVAL);
    uni_metric_free(matrix);
    assert_non_null(strstr(err.message, "class 7"));
    uni_tape_free(tape);
}

/* Images: a weight per sample applies to all its pixels; a weight per pixel to that pixel. */
static void test_weights_of_images(void **state)
{
    uni_tape *tape = NULL;
    uni_metric *metric = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    assert_int_equal(uni_metric_new(&metric, "mae", NULL, NULL), 0);
    const float zeros[4] = { 0 }, values[] = { 1, 3, 5, 7 }, sample[] = { 1, 3 },
                pixel[] = { 1, 0, 0, 1 };
    const int64_t image[] = { 2, 2, 1 }, matrix[] = { 2, 2 };
    uni_tape_begin(tape, NULL);
    uni_tensor *target = uni_tape_input(tape, UNI_F32, 3, image, zeros),
               *prediction = uni_tape_input(tape, UNI_F32, 3, image, values);
    assert_int_equal(uni_metric_update(metric, target, prediction,
                                       uni_tape_input(tape, UNI_F32, 1, matrix, sample), NULL),
                     0);
    assert_float_equal(uni_metric_result(metric), (2 * 1 + 6 * 3) / 4.0, 1e-9);
    uni_metric_reset(metric);
    assert_int_equal(uni_metric_update(metric, target, prediction,
                                       uni_tape_input(tape, UNI_F32, 2, matrix, pixel), NULL),
                     0);
    assert_float_equal(uni_metric_result(metric), 4, 1e-9);
    uni_error err = { 0 };
    const int64_t three[] = { 3 };
    assert_int_equal(uni_metric_update(metric, target, prediction,
                                       uni_tape_input(tape, UNI_F32, 1, three, values), &err),
                     UNI_ESHAPE);
    assert_non_null(strstr(err.message, "sample weights"));
    uni_metric_free(metric);
    uni_tape_free(tape);
}

static int own(void *context, const uni_tensor *target, const uni_tensor *prediction,
               const uni_tensor *weights, double *sum, double *count, uni_error *err)
{
    if (target == NULL)
        return UNI_EINVAL;
    *sum = uni_tensor_scalar(prediction) - uni_tensor_scalar(target);
    *count = *(double *)context;
    return 0;
}

static void test_values_and_own(void **state)
{
    uni_metric *mean = NULL, *custom = NULL;
    double two = 2;
    assert_int_equal(
        uni_metric_new(&mean, "mean", &(uni_metric_options){ .name = "train_loss" }, NULL), 0);
    assert_string_equal(uni__metric_name(mean), "train_loss");
    uni_metric_update_value(mean, 1, 1);
    uni_metric_update_value(mean, 4, 2);
    assert_float_equal(uni_metric_result(mean), 3, 1e-12);
    uni_metric_reset(mean);
    assert_true(uni_metric_result(mean) == 0);
    assert_int_equal(uni_metric_custom(&custom, "own", own, &two, NULL), 0);
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    uni_tape_begin(tape, NULL);
    uni_error err = { 0 };
    assert_float_equal(
        uni_metric_call(custom, uni_tape_constant(tape, 1), uni_tape_constant(tape, 5), NULL, &err),
        2, 1e-12);
    assert_true(isnan(uni_metric_call(custom, NULL, uni_tape_constant(tape, 5), NULL, &err)));
    assert_non_null(strstr(err.message, "own"));
    uni_value *config = NULL;
    assert_int_equal(uni__metric_to_value(custom, &config, &err), UNI_EUNSUPPORTED);
    uni_metric_free(custom);
    uni_metric_free(mean);
    uni_tape_free(tape);
}

/* ---- configs ---- */

static void expect_same(const char *text)
{
    uni_value *value = NULL, *again = NULL;
    uni_metric *metric = NULL;
    uni_error err = { 0 };
    assert_int_equal(uni_json_read(&value, text, strlen(text), NULL), 0);
    if (uni__metric_from_value(&metric, value, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    assert_int_equal(uni__metric_to_value(metric, &again, NULL), 0);
    if (!uni_value_equal(value, again)) {
        char *got = NULL;
        assert_int_equal(uni_json_write(&got, NULL, again, 0, NULL), 0);
        fail_msg("%s became %s", text, got);
    }
    uni_metric_free(metric);
    uni_value_free(value);
    uni_value_free(again);
}

/* As Keras 3.15 writes them. */
static void test_configs(void **state)
{
#define OBJECT(class_name, config)                                                                 \
    "{\"module\": \"keras.metrics\", \"class_name\": \"" class_name                                \
    "\", \"config\": {\"dtype\": \"float32\", " config "}, \"registered_name\": null}"
    expect_same("\"accuracy\"");
    expect_same(OBJECT("BinaryAccuracy", "\"name\": \"acc\", \"threshold\": 0.5"));
    expect_same(OBJECT("SparseTopKCategoricalAccuracy", "\"name\": \"top\", \"k\": 3"));
    expect_same(OBJECT("Precision",
                       "\"name\": \"p\", \"thresholds\": null, \"top_k\": null, \"class_id\": 2"));
    expect_same(
        OBJECT("Recall",
               "\"name\": \"r\", \"thresholds\": [0.25, 0.5], \"top_k\": 2, \"class_id\": null"));
    expect_same(OBJECT("FBetaScore",
                       "\"name\": \"f\", \"average\": null, \"beta\": 2.0, \"threshold\": null"));
    expect_same(OBJECT("F1Score", "\"name\": \"f\", \"average\": \"micro\", \"threshold\": 0.5"));
    expect_same(OBJECT("AUC", "\"name\": \"a\", \"num_thresholds\": 5, \"curve\": \"PR\", "
                              "\"summation_method\": \"majoring\", "
                              "\"multi_label\": false, \"num_labels\": null, \"label_weights\": "
                              "null, \"from_logits\": true"));
    uni_value *value = NULL;
    uni_metric *metric = NULL;
    uni_error err = { 0 };
    const char *text = OBJECT("AUC", "\"multi_label\": true");
    assert_int_equal(uni_json_read(&value, text, strlen(text), NULL), 0);
    assert_int_equal(uni__metric_from_value(&metric, value, &err), UNI_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "multi_label"));
    uni_value_free(value);
}

/* A value of another kind does not become the default. */
static void test_kinds(void **state)
{
    static const struct {
        const char *class_name, *config, *words;
    } cases[] = {
        { "F1Score", "{\"average\": 0}", "average must be" },
        { "FBetaScore", "{\"threshold\": \"\"}", "threshold must be" },
        { "F1Score", "{\"threshold\": 0}", "threshold must be" },
        { "Recall", "{\"thresholds\": []}", "thresholds must be" },
        { "Precision", "{\"thresholds\": [0.5, \"x\"]}", "thresholds must be" },
        { "Precision", "{\"thresholds\": 1.5}", "thresholds must be" },
        { "Recall", "{\"top_k\": 0}", "top_k must be" },
        { "Recall", "{\"top_k\": 1.5}", "top_k must be" },
        { "Precision", "{\"class_id\": \"\"}", "class_id must be" },
        { "TopKCategoricalAccuracy", "{\"k\": true}", "k must be" },
        { "AUC", "{\"num_thresholds\": 1}", "num_thresholds must be" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_value *config = NULL;
        uni_metric *metric = NULL;
        uni_error err = { 0 };
        assert_int_equal(uni_json_read(&config, cases[i].config, strlen(cases[i].config), NULL), 0);
        assert_int_equal(uni__metric_from_config(&metric, cases[i].class_name, config, &err),
                         UNI_EINVAL);
        assert_non_null(strstr(err.message, cases[i].words));
        assert_null(metric);
        uni_value_free(config);
    }
}

static void count_warnings(void *context, uni_log_level level, const char *message)
{
    int *warnings = context;
    assert_non_null(strstr(message, "from_logits"));
    (*warnings)++;
}

/* The metric of a saturated output is the loss's, not what is left of it after clipping; with
 * from_logits, too, which each metric warns of once. */
static void test_saturated_outputs(void **state)
{
    static const float logits[] = { 300, -200, 0, -150, 250, -100 };
    static const int64_t ids[] = { 1, 1 };
    static const float one_hot[] = { 0, 1, 0, 0, 1, 0 };
    static const struct {
        const char *name;
        bool sparse, sigmoid, reshape;
        double want;
    } cases[] = {
        { "sparse_categorical_crossentropy", true, false, false, 250 },
        { "categorical_crossentropy", false, false, false, 250 },
        { "crossentropy", true, false, false, 250 },
        { "binary_crossentropy", false, true, false, 83.4488578635 }, /* (500 + log(2)) / 6 */
        { "sparse_categorical_crossentropy", true, false, true, 8.0590478752 }, /* clipped */
        { "mean_absolute_error", false, false, false, 1.0 / 3 }, /* of the probabilities */
    };
    const int64_t shape[] = { 2, 3 };
    uni_tape *tape = NULL;
    int warnings = 0, mistakes = 0;
    uni_log_function_set(count_warnings, &warnings);
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_metric *metric = NULL;
        uni_tape_begin(tape, NULL);
        uni_tensor *x = uni_tape_input(tape, UNI_F32, 2, shape, logits);
        uni_tensor *y = cases[i].sigmoid ? uni_op_activation(tape, UNI_ACTIVATION_SIGMOID, x, 0)
                                         : uni_op_softmax(tape, x, -1);
        if (cases[i].reshape)
            y = uni_op_reshape(tape, y, 2, shape);
        uni_tensor *target = cases[i].sparse ? uni_tape_input(tape, UNI_I64, 1, shape, ids)
                                             : uni_tape_input(tape, UNI_F32, 2, shape, one_hot);
        bool has_logits = strstr(cases[i].name, "crossentropy") != NULL && !cases[i].reshape;
        for (int mistaken = 0; mistaken <= has_logits; mistaken++) {
            assert_int_equal(
                uni_metric_new(&metric, cases[i].name,
                               UNI_OPTIONS(uni_metric_options, .from_logits = mistaken), NULL),
                0);
            for (int update = 0; update < 2; update++)
                assert_int_equal(uni_metric_update(metric, target, y, NULL, NULL), 0);
            if (fabs(uni_metric_result(metric) - cases[i].want) > 1e-6)
                fail_msg("%s of saturated outputs is %.9g, not %.9g", cases[i].name,
                         uni_metric_result(metric), cases[i].want);
            uni_metric_free(metric);
            mistakes += mistaken;
        }
    }
    assert_int_equal(mistakes, 4);
    assert_int_equal(warnings, mistakes);
    uni_log_function_set(NULL, NULL);
    uni_tape_free(tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_equal_to_keras),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_accuracy_by_shapes),
        cmocka_unit_test(test_weights_of_images),
        cmocka_unit_test(test_values_and_own),
        cmocka_unit_test(test_saturated_outputs),
        cmocka_unit_test(test_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
