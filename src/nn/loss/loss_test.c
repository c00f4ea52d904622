/*
 * loss_test.c - losses against numbers from real Keras (tests/reference/losses): every reduction,
 * weights, gradients; the helpers for custom loops; rejected input.
 */
#include "nn/layers/reference.h"
#include "nn/loss/loss.h"

#include <unisono/log.h>

#include "nn/shared.h"

#define TOLERANCE 2e-5

static uni_tensor *put(uni_tape *tape, const reference_array *array)
{
    return array->dtype == 0
               ? NULL
               : uni_tape_input(tape, array->dtype, array->ndim, array->shape, array->data);
}

static const struct {
    const char *name;
    uni_reduction reduction;
} reductions[] = { { "none", UNI_REDUCTION_NONE },
                   { "sum", UNI_REDUCTION_SUM },
                   { "sum_over_batch_size", UNI_REDUCTION_SUM_OVER_BATCH_SIZE } };

static void check_reduction(const reference *file, const char *case_name, uni_tape *tape,
                            const uni_value *config, int r, bool weighted)
{
    char key[64], what[256];
    const char *prefix = weighted ? "weighted." : "";
    reference_array target = reference_get(file, "y_true", 0),
                    prediction = reference_get(file, "y_pred", 0);
    reference_array weight = reference_get(file, "sample_weight", 0),
                    upstream = reference_get(file, "upstream", 0);
    uni_loss_options options = { .reduction = reductions[r].reduction,
                                 .from_logits = uni_dict_get_bool(config, "from_logits", false),
                                 .delta = uni_dict_get_float(config, "delta", 0) };
    uni_error err = { 0 };
    uni_loss *loss = NULL;
    if (uni_loss_new(&loss, reference_text(file, "loss"), &options, &err) < 0)
        fail_msg("%s: %s", case_name, err.message);
    uni_tape_begin(tape, &(uni_step){ .training = true, .record = true });
    uni_tensor *y = put(tape, &prediction);
    uni_tape_watch(tape, y);
    uni_tensor *value =
        uni_loss_call(loss, tape, put(tape, &target), y, weighted ? put(tape, &weight) : NULL);
    uni_tensor *goal =
        r == 0 ? uni_op_sum(tape, uni_op_mul(tape, value, put(tape, &upstream))) : value;
    if (uni_tape_gradient(tape, goal, NULL, &err) < 0)
        fail_msg("%s: %s", case_name, err.message);
    snprintf(key, sizeof key, "%sloss.%s", prefix, reductions[r].name);
    reference_array want = reference_get(file, key, 0);
    snprintf(what, sizeof what, "%s %s", case_name, key);
    assert_int_equal(uni_tensor_count(value), want.count);
    assert_close(what, uni_tensor_data(value), &want, TOLERANCE, TOLERANCE);
    snprintf(key, sizeof key, "%sgrad.%s", prefix, reductions[r].name);
    want = reference_get(file, key, 0);
    snprintf(what, sizeof what, "%s %s", case_name, key);
    assert_close(what, uni_tensor_gradient(y), &want, TOLERANCE, TOLERANCE);
    uni_loss_free(loss);
}

static void check_file(const char *name, reference *file, void *tape)
{
    if (strncmp(name, "class_weight", 12) == 0)
        return; /* a model's, see fit_test.c */
    uni_value *config = reference_json(file, "config");
    bool weighted = reference_get(file, "sample_weight", 0).dtype != 0;
    for (int r = 0; r < 3; r++) {
        check_reduction(file, name, tape, config, r, false);
        if (weighted)
            check_reduction(file, name, tape, config, r, true);
    }
    uni_value_free(config);
}

static void test_equal_to_keras(void **state)
{
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    assert_int_equal(reference_each("losses", check_file, tape), 53);
    uni_tape_free(tape);
}

/* ---- names ---- */

static void expect_class(const char *name, const char *class_name)
{
    uni_error err = { 0 };
    uni_loss *loss = NULL;
    if (uni_loss_new(&loss, name, NULL, &err) < 0)
        fail_msg("%s: %s", name, err.message);
    assert_string_equal(uni__loss_class_name(loss), class_name);
    uni_loss_free(loss);
}

static void expect_error(const char *name, const uni_loss_options *options, int code,
                         const char *part)
{
    uni_error err = { 0 };
    uni_loss *loss = (uni_loss *)&err;
    assert_int_equal(uni_loss_new(&loss, name, options, &err), code);
    assert_null(loss);
    if (strstr(err.message, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void test_names(void **state)
{
    expect_class("mse", "MeanSquaredError");
    expect_class("MSE", "MeanSquaredError");
    expect_class("mean_squared_error", "MeanSquaredError");
    expect_class("MeanSquaredError", "MeanSquaredError");
    expect_class("Sparse_Categorical_Crossentropy", "SparseCategoricalCrossentropy");
    expect_class("huber", "Huber");
    expect_class("kullback_leibler_divergence", "KLDivergence");
    expect_error("binary_crosentropy", NULL, UNI_ENOTFOUND, "\"binary_crossentropy\"");
    expect_error("mean_sqared_eror", NULL, UNI_ENOTFOUND, "\"mean_squared_error\"");
    expect_error("smoothness", NULL, UNI_ENOTFOUND, "there are mean_squared_error, ");
    expect_error(NULL, NULL, UNI_ENOTFOUND, "there is no loss");
    expect_error("mse", &(uni_loss_options){ .from_logits = true }, UNI_EINVAL, "from_logits");
    expect_error("huber", &(uni_loss_options){ .delta = -1 }, UNI_EINVAL, "delta");
    expect_error("mse", &(uni_loss_options){ .delta = 3 }, UNI_EINVAL, "no delta");
    expect_error("bce", &(uni_loss_options){ .label_smoothing = 2 }, UNI_EINVAL, "label_smoothing");
}

/* ---- rejected on the tape ---- */

static uni_tensor *floats(uni_tape *tape, int ndim, const int64_t *shape)
{
    uni_tensor *tensor = uni_tape_scratch(tape, UNI_F32, ndim, shape);
    for (size_t i = 0; i < uni_tensor_count(tensor); i++)
        ((float *)uni_tensor_data(tensor))[i] = 0.25f;
    return tensor;
}

static void expect_tape_error(uni_tape *tape, const char *part)
{
    uni_error err = { 0 };
    assert_true(uni_tape_status(tape, &err) < 0);
    if (strstr(err.message, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static int no_sum(void *context, float *values, size_t count, uni_error *err)
{
    return 0;
}

static void test_refused(void **state)
{
    uni_tape *tape = NULL;
    uni_loss *mse = NULL, *auto_mse = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    assert_int_equal(
        uni_loss_new(&mse, "mse", &(uni_loss_options){ .reduction = UNI_REDUCTION_NONE }, NULL), 0);
    assert_int_equal(uni_loss_new(&auto_mse, "mse", NULL, NULL), 0);
    const int64_t column[] = { 6, 1 }, plain[] = { 6 }, matrix[] = { 6, 6, 2 };

    uni_tape_begin(tape, NULL); /* labels without the dummy axis */
    assert_null(uni_loss_call(mse, tape, floats(tape, 1, plain), floats(tape, 2, column), NULL));
    expect_tape_error(tape, "mean_squared_error");
    expect_tape_error(tape, "add the last axis");

    uni_tape_begin(
        tape, NULL); /* (batch) weights would run along the wrong axis of (batch, batch) losses */
    assert_null(uni_loss_call(mse, tape, floats(tape, 3, matrix), floats(tape, 3, matrix),
                              floats(tape, 1, plain)));
    expect_tape_error(tape, "sample weights (6,) do not fit losses (6, 6)");

    uni_sync sync = { .sum = no_sum };
    uni_tape_begin(
        tape, &(uni_step){ .sync = &sync }); /* the seed: AUTO is disallowed under a strategy */
    assert_null(
        uni_loss_call(auto_mse, tape, floats(tape, 2, column), floats(tape, 2, column), NULL));
    expect_tape_error(tape, "AUTO");
    uni_tape_begin(tape, &(uni_step){ .sync = &sync });
    assert_non_null(
        uni_loss_call(mse, tape, floats(tape, 2, column), floats(tape, 2, column), NULL));

    uni_tape_begin(tape, NULL); /* one number is not a loss per example */
    assert_null(uni_compute_average_loss(tape, uni_tape_constant(tape, 1), NULL, 4));
    expect_tape_error(tape, "UNI_REDUCTION_NONE");
    uni_tape_begin(tape, NULL);
    assert_null(uni_scale_regularization_loss(tape, uni_tape_constant(tape, 1), 0));
    uni_loss_free(mse);
    uni_loss_free(auto_mse);
    uni_tape_free(tape);
}

/* ---- custom loops ---- */

struct heard {
    int count;
    char last[400];
};

static void hear(void *context, uni_log_level level, const char *message)
{
    struct heard *heard = context;
    heard->count++;
    snprintf(heard->last, sizeof heard->last, "%s", message);
}

static void test_average_loss(void **state)
{
    uni_tape *tape = NULL;
    struct heard heard = { 0 };
    uni_log_function_set(hear, &heard);
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    const float losses[] = { 1, 2, 3, 6 }, weights[] = { 1, 0, 2, 1 };
    uni_tape_begin(tape, NULL);
    uni_tensor *four = uni_tape_input(tape, UNI_F32, 1, (const int64_t[]){ 4 }, losses);
    uni_tensor *weight = uni_tape_input(tape, UNI_F32, 1, (const int64_t[]){ 4 }, weights);
    assert_float_equal(uni_tensor_scalar(uni_compute_average_loss(tape, four, NULL, 8)), 1.5, 1e-6);
    assert_float_equal(uni_tensor_scalar(uni_compute_average_loss(tape, four, NULL, 0)), 3, 1e-6);
    assert_float_equal(uni_tensor_scalar(uni_compute_average_loss(tape, four, weight, 4)), 13.0 / 4,
                       1e-6);
    assert_float_equal(
        uni_tensor_scalar(uni_scale_regularization_loss(tape, uni_tape_constant(tape, 6), 4)), 1.5,
        1e-6);
    assert_int_equal(heard.count, 0);
    for (int i = 0; i < 3;
         i++) { /* the seed's (batch, H, W): divided by the batch only, and said so once */
        uni_tape_begin(tape, NULL);
        uni_tensor *image = uni_tape_input(tape, UNI_F32, 3, (const int64_t[]){ 1, 2, 2 }, losses);
        assert_float_equal(uni_tensor_scalar(uni_compute_average_loss(tape, image, NULL, 1)), 12,
                           1e-6);
    }
    assert_int_equal(heard.count, 1);
    assert_non_null(strstr(heard.last, "4 elements"));
    uni_log_function_set(NULL, NULL);
    uni_tape_free(tape);
}

/* An empty batch (a rank without samples) gives 0, not NaN. */
static void test_empty_batch(void **state)
{
    uni_tape *tape = NULL;
    uni_loss *loss = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    assert_int_equal(uni_loss_new(&loss, "bce", NULL, NULL), 0);
    uni_tape_begin(tape, NULL);
    const int64_t none[] = { 0, 1 };
    uni_tensor *value =
        uni_loss_call(loss, tape, floats(tape, 2, none), floats(tape, 2, none), NULL);
    assert_int_equal(uni_tape_status(tape, NULL), 0);
    assert_true(uni_tensor_scalar(value) == 0);
    uni_loss_free(loss);
    uni_tape_free(tape);
}

static uni_tensor *halved(void *context, uni_tape *tape, uni_tensor *target, uni_tensor *prediction)
{
    return uni_op_reduce(
        tape, UNI_REDUCE_SUM,
        uni_op_scale(tape, uni_op_sub(tape, prediction, target), *(float *)context, 0), 1,
        (const int[]){ -1 }, false);
}

static void test_custom(void **state)
{
    uni_tape *tape = NULL;
    uni_loss *loss = NULL;
    float factor = 0.5f;
    const float target[] = { 1, 2 }, prediction[] = { 3, 8 };
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    assert_int_equal(
        uni_loss_custom(&loss, "halved", halved, &factor, UNI_REDUCTION_SUM_OVER_BATCH_SIZE, NULL),
        0);
    uni_tape_begin(tape, NULL);
    const int64_t shape[] = { 2, 1 };
    uni_tensor *value = uni_loss_call(loss, tape, uni_tape_input(tape, UNI_F32, 2, shape, target),
                                      uni_tape_input(tape, UNI_F32, 2, shape, prediction), NULL);
    assert_float_equal(uni_tensor_scalar(value), 2, 1e-6);
    uni_value *config = NULL;
    assert_int_equal(uni__loss_get_config(loss, &config, NULL), UNI_EUNSUPPORTED);
    uni_loss_free(loss);
    uni_tape_free(tape);
}

/* ---- configs ---- */

static void test_configs(void **state)
{
    uni_loss *loss = NULL, *again = NULL;
    uni_value *value = NULL, *second = NULL;
    uni_loss_options options = { .reduction = UNI_REDUCTION_NONE,
                                 .from_logits = true,
                                 .label_smoothing = 0.125f,
                                 .name = "mine" };
    assert_int_equal(uni_loss_new(&loss, "binary_crossentropy", &options, NULL), 0);
    assert_int_equal(uni__loss_to_value(loss, &value, NULL), 0);
    assert_string_equal(uni_dict_get_string(value, "class_name", ""), "BinaryCrossentropy");
    assert_string_equal(uni_dict_get_string(value, "module", ""), "keras.losses");
    assert_int_equal(uni__loss_from_value(&again, value, NULL), 0);
    assert_string_equal(uni__loss_name(again), "mine");
    assert_int_equal(uni__loss_reduction(again), UNI_REDUCTION_NONE);
    assert_int_equal(uni__loss_to_value(again, &second, NULL), 0);
    assert_true(uni_value_equal(value, second));
    uni_loss_free(loss);
    uni_loss_free(again);
    uni_value_free(second);
    uni_value_free(value);
    uni_error err = { 0 };
    value = uni_value_string("mae");
    assert_int_equal(uni__loss_from_value(&loss, value, &err), 0);
    uni_loss_free(loss);
    uni_value_free(value);
    const char *text =
        "{\"class_name\": \"SparseCategoricalCrossentropy\", \"config\": {\"ignore_class\": 3}}";
    assert_int_equal(uni_json_read(&value, text, strlen(text), NULL), 0);
    assert_int_equal(uni__loss_from_value(&loss, value, &err), UNI_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "ignore_class"));
    uni_value_free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_to_keras), cmocka_unit_test(test_names),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_average_loss),
        cmocka_unit_test(test_empty_batch),    cmocka_unit_test(test_custom),
        cmocka_unit_test(test_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
