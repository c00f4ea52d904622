/*
 * loss_test.c - cross-entropies of outputs that a sigmoid or softmax rounds to 0 and 1: values and
 * gradients are those of the logits, worked out by hand; through another operation they are
 * clipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <unisono/log.h>
#include <unisono/tensor.h>

#include "tensor/shared.h"

#define ROWS 2
#define COLS 3

/* Far beyond what float32 probabilities can tell from 0 and 1. */
static const float logits[ROWS][COLS] = { { 300, -200, 0 }, { -150, 250, -100 } };
static const int32_t classes[ROWS] = { 1, 1 };
static const float one_hot[ROWS][COLS] = { { 0, 1, 0 }, { 0, 1, 0 } };

typedef uni_tensor *(*maker)(uni_tape *tape, uni_tensor *x);

static uni_tensor *softmax(uni_tape *tape, uni_tensor *x)
{
    return uni_op_softmax(tape, x, -1);
}

static uni_tensor *softmax_over_rows(uni_tape *tape, uni_tensor *x)
{
    return uni_op_softmax(tape, x, 0);
}

static uni_tensor *softmax_activation(uni_tape *tape, uni_tensor *x)
{
    return uni_op_activation(tape, UNI_ACTIVATION_SOFTMAX, x, 0);
}

static uni_tensor *sigmoid(uni_tape *tape, uni_tensor *x)
{
    return uni_op_activation(tape, UNI_ACTIVATION_SIGMOID, x, 0);
}

static uni_tensor *identity(uni_tape *tape)
{
    static const float numbers[COLS * COLS] = { 1, 0, 0, 0, 1, 0, 0, 0, 1 };
    return uni_tape_input(tape, UNI_F32, 2, (const int64_t[]){ COLS, COLS }, numbers);
}

static uni_tensor *dense_softmax(uni_tape *tape, uni_tensor *x)
{
    return uni_op_dense(tape, x, identity(tape), NULL, UNI_ACTIVATION_SOFTMAX);
}

static uni_tensor *dense_sigmoid(uni_tape *tape, uni_tensor *x)
{
    return uni_op_dense(tape, x, identity(tape), NULL, UNI_ACTIVATION_SIGMOID);
}

static uni_tensor *with_reshape(uni_tape *tape, uni_tensor *y)
{
    return uni_op_reshape(tape, y, 2, (const int64_t[]){ ROWS, COLS });
}

static uni_tensor *softmax_and_reshape(uni_tape *tape, uni_tensor *x)
{
    return with_reshape(tape, softmax(tape, x));
}

static uni_tensor *sigmoid_and_reshape(uni_tape *tape, uni_tensor *x)
{
    return with_reshape(tape, sigmoid(tape, x));
}

static void expect(const char *name, uni_tape *tape, maker make, uni_loss_kind kind,
                   float parameter, const double *values, const double *gradient)
{
    uni_error err = { 0 };
    bool sparse = kind == UNI_LOSS_SPARSE || kind == UNI_LOSS_SPARSE_LOGITS;
    uni_tape_begin(tape, &(uni_step){ .record = true });
    const int64_t shape[] = { ROWS, COLS };
    uni_tensor *x = uni_tape_input(tape, UNI_F32, 2, shape, logits);
    uni_tape_watch(tape, x);
    uni_tensor *target = sparse ? uni_tape_input(tape, UNI_I32, 1, shape, classes)
                                : uni_tape_input(tape, UNI_F32, 2, shape, one_hot);
    uni_tensor *loss = uni_op_loss(tape, kind, target, make(tape, x), parameter);
    uni_tensor *sum = uni_op_sum(tape, loss);
    double got_sum = uni_tensor_scalar(sum); /* the backward pass releases it */
    if (uni_tape_gradient(tape, sum, &(uni_gradient_options){ .consume = true }, &err) < 0)
        fail_msg("%s: %s", name, err.message);
    const float *dx = uni_tensor_gradient(x);
    double total = 0;
    for (int r = 0; r < ROWS; r++)
        total += values[r];
    if (fabs(got_sum - total) > 1e-6 * fmax(1, total))
        fail_msg("%s: the loss is %.9g, not %.9g", name, got_sum, total);
    for (int i = 0; i < ROWS * COLS; i++) {
        double got = dx != NULL ? (double)dx[i] : 0;
        if (fabs(got - gradient[i]) > 1e-6)
            fail_msg("%s: the gradient of logit %d is %.9g, not %.9g", name, i, got, gradient[i]);
    }
}

#define EXPECT(MAKE, KIND, PARAMETER, VALUES, GRADIENT)                                            \
    expect(#MAKE " " #KIND, tape, MAKE, UNI_LOSS_##KIND, PARAMETER, VALUES, GRADIENT)

/* Whichever of the two it was: the losses ask for the logits. */
#define EACH_MAKER(X)                                                                              \
    X(softmax)                                                                                     \
    X(softmax_over_rows)                                                                           \
    X(softmax_activation)                                                                          \
    X(dense_softmax)                                                                               \
    X(sigmoid)                                                                                     \
    X(dense_sigmoid)

static void check_saturated(bool reference)
{
    uni_tape *tape = NULL;
    assert_int_equal(
        uni_tape_new(&tape, &(uni_tape_options){ .threads = 1, .reference = reference }, NULL), 0);
    /* Over classes: largest logit - logit of the class; softmax - one_hot. */
    static const double of_classes[ROWS] = { 500, 0 };
    static const double class_slopes[ROWS * COLS] = { 1, -1, 0, 0, 0, 0 };
#define OF_CLASSES(MAKE)                                                                           \
    EXPECT(MAKE, SPARSE, 0, of_classes, class_slopes);                                             \
    EXPECT(MAKE, SPARSE_LOGITS, 0, of_classes, class_slopes);                                      \
    EXPECT(MAKE, CATEGORICAL, 0, of_classes, class_slopes);                                        \
    EXPECT(MAKE, CATEGORICAL_LOGITS, 0, of_classes, class_slopes);
    EACH_MAKER(OF_CLASSES)
#undef OF_CLASSES
    /* Smoothed to 0.1, 0.8, 0.1: 0.1 * 0 + 0.8 * 500 + 0.1 * 300, and 0.1 * 400 + 0.1 * 350. */
    static const double smooth_classes[ROWS] = { 430, 75 };
    static const double smooth_class_slopes[ROWS * COLS] = { 0.9, -0.8, -0.1, -0.1, 0.2, -0.1 };
    EXPECT(dense_softmax, CATEGORICAL, 0.3f, smooth_classes, smooth_class_slopes);
    /* Each by itself: max(x, 0) - x t + log(1 + exp(-|x|)), a third each; sigmoid - t. */
    const double half = 0.5 / 3, ln2 = log(2);
    const double of_two[ROWS] = { (300 + 200 + ln2) / 3, 0 };
    const double two_slopes[ROWS * COLS] = { 1.0 / 3, -1.0 / 3, half, 0, 0, 0 };
#define OF_TWO(MAKE)                                                                               \
    EXPECT(MAKE, BINARY, 0, of_two, two_slopes);                                                   \
    EXPECT(MAKE, BINARY_LOGITS, 0, of_two, two_slopes);
    EACH_MAKER(OF_TWO)
#undef OF_TWO
    /* Smoothed to 0.1 and 0.9. */
    const double smooth_two[ROWS] = { (270 + 180 + ln2) / 3, (15 + 25 + 10) / 3.0 };
    const double smooth_two_slopes[ROWS * COLS] = { 0.3,        -0.3,      0.4 / 3,
                                                    -0.1 / 3.0, 0.1 / 3.0, -0.1 / 3.0 };
    EXPECT(dense_sigmoid, BINARY, 0.2f, smooth_two, smooth_two_slopes);
    EXPECT(dense_sigmoid, BINARY_LOGITS, 0.2f, smooth_two, smooth_two_slopes);
    EXPECT(softmax, BINARY, 0.2f, smooth_two, smooth_two_slopes);
    uni_tape_free(tape);
}

static void count_warnings(void *context, uni_log_level level, const char *message)
{
    int *warnings = context;
    assert_int_equal(level, UNI_LOG_WARN);
    assert_non_null(strstr(message, "from_logits"));
    (*warnings)++;
}

/* from_logits behind an activation is a mistake of the program: one warning a tape. */
static void saturated_outputs_are_exact(void **state)
{
    (void)state;
    int warnings = 0;
    uni_log_function_set(count_warnings, &warnings);
    check_saturated(false);
    assert_int_equal(warnings, 1);
    check_saturated(true);
    assert_int_equal(warnings, 2);
    uni_log_function_set(NULL, NULL);
}

/* Behind another operation nothing is known of the logits, as in Keras. */
static void other_probabilities_are_clipped(void **state)
{
    (void)state;
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, &(uni_tape_options){ .threads = 1 }, NULL), 0);
    static const double none[ROWS * COLS] = { 0 };
    const double most = -log((double)1e-7f), least = -log((double)(1.0f - 1e-7f));
    const double of_classes[ROWS] = { most, least };
    EXPECT(softmax_and_reshape, CATEGORICAL, 0, of_classes, none);
    /* The clipped probabilities are divided by their sum. */
    EXPECT(softmax_and_reshape, SPARSE, 0, of_classes, none);
    /* 1 - (1 - 1e-7) in float32. The logit of 0 is not saturated. */
    const double high = -log((double)(1.0f - (1.0f - 1e-7f))),
                 of_two[ROWS] = { (high + most + log(2)) / 3, least };
    const double two_slopes[ROWS * COLS] = { 0, 0, 0.5 / 3, 0, 0, 0 };
    EXPECT(sigmoid_and_reshape, BINARY, 0, of_two, two_slopes);
    uni_tape_free(tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saturated_outputs_are_exact),
        cmocka_unit_test(other_probabilities_are_clipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
