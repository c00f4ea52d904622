/*
 * tape_test.c - what a user of the tape relies on: sticky errors that name their place, empty
 * batches, gradients of inputs, accumulation, frozen and unused weights, memory that does not grow,
 * random numbers and batch statistics that do not depend on how a batch is split.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/tensor.h>

#include "tensor/shared.h"
#include "tensor/descent.h"

static uni_tape *new_tape(int threads)
{
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, &(uni_tape_options){ .threads = threads }, NULL), 0);
    return tape;
}

static uni_tensor *zeros(uni_tape *tape, int ndim, const int64_t *shape)
{
    uni_tensor *x = uni_tape_scratch(tape, UNI_F32, ndim, shape);
    if (x && uni_tensor_count(x))
        memset(uni_tensor_data(x), 0, uni_tensor_count(x) * sizeof(float));
    return x;
}

static uni_parameter *weight(uni_parameters *store, const char *name, int ndim,
                             const int64_t *shape, float value)
{
    uni_parameter *parameter = NULL;
    assert_int_equal(
        uni_parameters_add(&parameter, store, name, UNI_PARAMETER_WEIGHT, ndim, shape, NULL), 0);
    for (size_t i = 0; i < uni_parameter_info_of(parameter)->size; i++)
        uni_parameter_data(parameter)[i] = value;
    return parameter;
}

#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[])                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* ---- errors ---- */

static void first_error_sticks_and_names_the_layer(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    uni_error err = { 0 };
    uni__tape_enter(tape, "model");
    uni__tape_enter(tape, "dense_1");
    uni_tensor *wrong = uni_op_dense(tape, zeros(tape, SHAPE(64, 100)), zeros(tape, SHAPE(128, 10)),
                                     NULL, UNI_ACTIVATION_RELU);
    uni__tape_leave(tape);
    assert_null(wrong);
    assert_null(uni_op_relu(tape, wrong));
    assert_null(
        uni_op_matmul(tape, zeros(tape, SHAPE(2, 2)), zeros(tape, SHAPE(3, 3)), false, false));
    assert_int_equal(uni_tape_status(tape, &err), UNI_ESHAPE);
    assert_string_equal(
        err.message,
        "dense_1: dense: input of shape (64, 100) does not fit a kernel of shape (128, 10)");
    uni_tape_begin(tape, NULL); /* clears it */
    assert_int_equal(uni_tape_status(tape, &err), 0);
    uni_tape_free(tape);
}

#define REFUSED(CODE, PART, EXPRESSION)                                                            \
    do {                                                                                           \
        uni_error refused_ = { 0 };                                                                \
        uni_tape_begin(tape, NULL);                                                                \
        assert_null(EXPRESSION);                                                                   \
        assert_int_equal(uni_tape_status(tape, &refused_), CODE);                                  \
        if (!strstr(refused_.message, PART))                                                       \
            fail_msg("the message \"%s\" does not say \"%s\"", refused_.message, PART);            \
    } while (0)

static void wrong_shapes_and_types_are_refused(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    static const int32_t ids[2] = { 3, 9 };
    static const float halves[2] = { 0.5f, 1 };
    static const uni_string text[1] = { { "a", 1 } };
    uni_conv_options causal = { .padding = UNI_PADDING_CAUSAL };
    REFUSED(UNI_ESHAPE, "(2, 3) and (4,)",
            uni_op_add(tape, zeros(tape, SHAPE(2, 3)), zeros(tape, SHAPE(4))));
    REFUSED(UNI_EDTYPE, "int32", uni_op_relu(tape, uni_tape_input(tape, UNI_I32, SHAPE(2), ids)));
    REFUSED(UNI_EDTYPE, "text",
            uni_op_cast(tape, uni_tape_input(tape, UNI_STRING, SHAPE(1), text), UNI_F32));
    REFUSED(UNI_EINVAL, "9 at position 1",
            uni_op_embedding(tape, zeros(tape, SHAPE(5, 2)),
                             uni_tape_input(tape, UNI_I32, SHAPE(2), ids)));
    REFUSED(UNI_EINVAL, "not a whole number",
            uni_op_embedding(tape, zeros(tape, SHAPE(5, 2)),
                             uni_tape_input(tape, UNI_F32, SHAPE(2), halves)));
    REFUSED(UNI_EINVAL, "label 9 at position 1, but there are 4 classes",
            uni_op_loss(tape, UNI_LOSS_SPARSE_LOGITS, uni_tape_input(tape, UNI_I32, SHAPE(2), ids),
                        zeros(tape, SHAPE(2, 4)), 0));
    REFUSED(UNI_ESHAPE, "add the last axis",
            uni_op_loss(tape, UNI_LOSS_MSE, zeros(tape, SHAPE(8)), zeros(tape, SHAPE(8, 1)), 0));
    REFUSED(UNI_ESHAPE, "(batch, 1)",
            uni_op_loss(tape, UNI_LOSS_MSE, zeros(tape, SHAPE(8)), zeros(tape, SHAPE(8)), 0));
    REFUSED(UNI_ESHAPE, "smaller than the kernel",
            uni_op_conv(tape, zeros(tape, SHAPE(1, 2, 2, 1)), zeros(tape, SHAPE(3, 3, 1, 1)), NULL,
                        NULL));
    REFUSED(UNI_ESHAPE, "does not fit a kernel",
            uni_op_conv(tape, zeros(tape, SHAPE(1, 5, 5, 2)), zeros(tape, SHAPE(3, 3, 3, 1)), NULL,
                        NULL));
    REFUSED(UNI_EINVAL, "causal",
            uni_op_conv(tape, zeros(tape, SHAPE(1, 5, 5, 2)), zeros(tape, SHAPE(3, 3, 2, 1)), NULL,
                        &causal));
    REFUSED(UNI_ESHAPE, "smaller than the window",
            uni_op_pool(tape, zeros(tape, SHAPE(1, 1, 1, 2)), NULL));
    REFUSED(UNI_ESHAPE, "do not fit into",
            uni_op_reshape(tape, zeros(tape, SHAPE(2, 3)), SHAPE(4, -1)));
    REFUSED(UNI_ESHAPE, "no axis 2", uni_op_softmax(tape, zeros(tape, SHAPE(2, 3)), 2));
    REFUSED(UNI_EINVAL, "between 0 and 1",
            uni_op_dropout(tape, zeros(tape, SHAPE(2, 3)), 1.5f, 0, NULL));
    REFUSED(UNI_ESHAPE, "too many",
            uni_op_gather(tape, zeros(tape, SHAPE(1, 1, 1, 1, 1)), zeros(tape, SHAPE(1, 1, 1)), 0));
    REFUSED(UNI_ESHAPE, "not possible", uni_tape_scratch(tape, UNI_F32, SHAPE(INT64_MAX, 16)));
    REFUSED(UNI_ENOMEM, "no memory", uni_tape_scratch(tape, UNI_F32, SHAPE(INT64_MAX / 64)));
    uni_tape_free(tape);
}

static void gradients_are_refused_without_a_record(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    uni_error err = { 0 };
    uni_tape_begin(tape, NULL);
    assert_int_equal(uni_tape_gradient(tape, uni_tape_constant(tape, 1), NULL, &err), UNI_ESTATE);
    uni_tape_begin(tape, &(uni_step){ .record = true });
    uni_tensor *x = uni_tape_constant(tape, 3);
    assert_int_equal(uni_tape_gradient(tape, x, NULL, &err), 0);
    assert_int_equal(uni_tape_gradient(tape, x, NULL, &err), UNI_ESTATE);
    uni_tape_begin(tape, &(uni_step){ .record = true });
    assert_int_equal(uni_tape_gradient(tape, NULL, NULL, &err), UNI_EINVAL);
    uni_tape_free(tape);
}

/* ---- gradients ---- */

static void watched_input_has_a_gradient(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    static const float numbers[3] = { 1, -2, 3 };
    uni_tape_begin(tape, &(uni_step){ .record = true });
    uni_tensor *x = uni_tape_input(tape, UNI_F32, SHAPE(3), numbers);
    uni_tape_watch(tape, x);
    uni_tensor *y = uni_op_mul(tape, x, x);
    assert_int_equal(uni_tape_gradient(tape, uni_op_sum(tape, y),
                                       &(uni_gradient_options){ .scale = 0.5f }, NULL),
                     0);
    const float *gradient = uni_tensor_gradient(x);
    assert_non_null(gradient);
    for (int i = 0; i < 3; i++)
        assert_float_equal(gradient[i], numbers[i], 1e-6); /* half of 2x */
    uni_tape_free(tape);
}

/* A watched intermediate tensor keeps its gradient, although the pass continues through it. */
static void watched_result_keeps_its_gradient(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    static const float numbers[2] = { 1, 2 };
    uni_tape_begin(tape, &(uni_step){ .record = true });
    uni_tensor *x = uni_tape_input(tape, UNI_F32, SHAPE(2), numbers);
    uni_tape_watch(tape, x);
    uni_tensor *middle = uni_op_scale(tape, x, 3, 0);
    uni_tape_watch(tape, middle);
    uni_tensor *y = uni_op_scale(tape, middle, 5, 0);
    /* The gradient of several elements is that of their sum. */
    assert_int_equal(uni_tape_gradient(tape, y, NULL, NULL), 0);
    assert_float_equal(uni_tensor_gradient(middle)[1], 5, 0);
    assert_float_equal(uni_tensor_gradient(x)[1], 15, 0);
    uni_tape_free(tape);
}

/* Without a gradient store, with another model's, and frozen: the tensor keeps its own gradient. */
static void watched_weight_outside_the_store_has_a_gradient(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    uni_parameters *store = NULL, *other = NULL;
    uni_gradients *gradients = NULL;
    assert_int_equal(uni_parameters_new(&store, NULL), 0);
    assert_int_equal(uni_parameters_new(&other, NULL), 0);
    uni_parameter *w = weight(store, "w", SHAPE(2), 3);
    weight(other, "v", SHAPE(1), 1);
    assert_int_equal(uni_gradients_new(&gradients, other, NULL), 0);
    for (int round = 0; round < 2; round++) {
        uni_tape_begin(tape, round == 0 ? &(uni_step){ .record = true }
                                        : &(uni_step){ .gradients = gradients });
        uni_tensor *x = uni_tape_parameter(tape, w);
        uni_tape_watch(tape, x);
        assert_int_equal(
            uni_tape_gradient(tape, uni_op_sum(tape, uni_op_mul(tape, x, x)), NULL, NULL), 0);
        assert_non_null(uni_tensor_gradient(x));
        assert_float_equal(uni_tensor_gradient(x)[1], 6, 0);
    }
    assert_float_equal(uni_gradients_data(gradients, NULL)[0], 0, 0);
    uni_gradients_free(gradients);
    uni_parameters_free(other);
    uni_parameters_free(store);
    uni_tape_free(tape);
}

static void unused_and_frozen_weights_have_gradient_zero(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    uni_parameters *store = NULL;
    uni_gradients *gradients = NULL;
    assert_int_equal(uni_parameters_new(&store, NULL), 0);
    uni_parameter *used = weight(store, "used", SHAPE(3), 2),
                  *unused = weight(store, "unused", SHAPE(5), 1);
    uni_parameter *frozen = weight(store, "frozen", SHAPE(3), 4);
    uni_parameter_freeze(frozen, true);
    assert_int_equal(uni_gradients_new(&gradients, store, NULL), 0);
    for (size_t i = 0; i < 5; i++)
        uni_gradients_of(gradients, unused)[i] = 7; /* left from another step */
    for (int step = 0; step < 2; step++) {
        uni_tape_begin(tape, &(uni_step){ .gradients = gradients });
        uni_tensor *y =
            uni_op_mul(tape, uni_tape_parameter(tape, used), uni_tape_parameter(tape, frozen));
        uni_gradient_options accumulate = { .accumulate = step == 1 };
        assert_int_equal(uni_tape_gradient(tape, uni_op_sum(tape, y), &accumulate, NULL), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_float_equal(uni_gradients_of(gradients, used)[i], 8, 0); /* 4, twice */
        assert_float_equal(uni_gradients_of(gradients, frozen)[i], 0, 0);
    }
    for (size_t i = 0; i < 5; i++)
        assert_float_equal(uni_gradients_of(gradients, unused)[i], 0, 0);
    uni__span spans[4];
    assert_int_equal(uni__parameters_trainable(store, spans, 4), 1);
    assert_int_equal(spans[0].begin, 0);
    assert_int_equal(spans[0].end, 32); /* two parameters, each on 64-byte boundaries */
    uni_gradients_free(gradients);
    uni_parameters_free(store);
    uni_tape_free(tape);
}

/* loss = sum(dense(dense(x, first), shared) , shared)): a kernel of one layer descends in the pass,
 * one that two layers use does not. */
static void kernels_of_one_layer_descend_in_the_pass(void **state)
{
    (void)state;
    static const uni__descent descent = { .rate = 0.25f, .keep = 0.5f };
    float after[2][2][9];
    for (int way = 0; way < 2; way++) {
        uni_tape *tape = new_tape(1);
        uni_parameters *store = NULL;
        uni_gradients *gradients = NULL;
        assert_int_equal(uni_parameters_new(&store, NULL), 0);
        uni_parameter *first = weight(store, "first", SHAPE(3, 3), 0.5f),
                      *shared = weight(store, "shared", SHAPE(3, 3), -0.25f);
        for (int i = 0; i < 9; i++)
            uni_parameter_data(first)[i] = (float)(i - 4) * 0.5f;
        assert_int_equal(uni_gradients_new(&gradients, store, NULL), 0);
        uni_tape_begin(tape, &(uni_step){ .gradients = gradients });
        float data[6] = { 1, 2, 3, -1, 0.5f, 4 };
        uni_tensor *x = uni_tape_input(tape, UNI_F32, SHAPE(2, 3), data);
        x = uni_op_dense(tape, x, uni_tape_parameter(tape, first), NULL, UNI_ACTIVATION_RELU);
        for (int i = 0; i < 2; i++)
            x = uni_op_dense(tape, x, uni_tape_parameter(tape, shared), NULL,
                             UNI_ACTIVATION_LINEAR);
        assert_int_equal(
            uni__tape_gradient(tape, uni_op_sum(tape, x), NULL, way ? &descent : NULL, NULL), 0);
        uni__span spans[2];
        assert_int_equal(uni__gradients_trainable(gradients, spans, 2), 1);
        assert_int_equal(spans[0].begin, way ? uni_parameter_info_of(shared)->offset : 0);
        for (int i = 0; i < 9; i++) {
            float *w = uni_parameter_data(first) + i;
            if (way == 0)
                *w = descent.keep * *w - descent.rate * uni_gradients_of(gradients, first)[i];
            after[way][0][i] = *w;
            after[way][1][i] = uni_gradients_of(gradients, shared)[i];
            assert_float_equal(uni_parameter_data(shared)[i], -0.25f, 0);
        }
        uni_gradients_free(gradients);
        uni_parameters_free(store);
        uni_tape_free(tape);
    }
    for (int i = 0; i < 9; i++) {
        assert_float_equal(after[1][0][i], after[0][0][i], 1e-6);
        assert_float_equal(after[1][1][i], after[0][1][i], 0);
    }
}

/* ---- the store ---- */

static void store_keeps_values_when_it_grows_and_moves(void **state)
{
    (void)state;
    uni_parameters *store = NULL;
    uni_error err = { 0 };
    assert_int_equal(uni_parameters_new(&store, NULL), 0);
    uni_parameter *first = weight(store, "first", SHAPE(2, 3), 1.5f), *more = NULL, *moving = NULL;
    for (int i = 0; i < 100; i++)
        more = weight(store, "more", SHAPE(17), (float)i);
    assert_int_equal(
        uni_parameters_add(&moving, store, "moving", UNI_PARAMETER_STATE, SHAPE(4), NULL), 0);
    assert_true(uni_parameter_info_of(moving)->is_frozen);
    size_t size = 0;
    assert_non_null(uni_parameters_weights(store, &size));
    assert_int_equal(size, 16 + 100 * 32);
    assert_int_equal(uni_parameters_add(&more, store, "bad", UNI_PARAMETER_WEIGHT, SHAPE(-1), &err),
                     UNI_ESHAPE);
    assert_null(more);
    float *shared = aligned_alloc(64, size * sizeof(float));
    assert_int_equal(uni__parameters_rehome(store, shared, false, NULL), 0);
    assert_ptr_equal(uni_parameter_data(first), shared);
    assert_float_equal(uni_parameter_data(first)[5], 1.5f, 0);
    shared[5] = 3;
    assert_int_equal(uni_parameters_add(&more, store, "late", UNI_PARAMETER_WEIGHT, SHAPE(1), &err),
                     UNI_ESTATE);
    assert_int_equal(uni__parameters_rehome(store, NULL, false, NULL), 0);
    assert_float_equal(uni_parameter_data(first)[5], 3, 0);
    free(shared);
    uni_parameters_free(store);
}

/* ---- batch 0, and memory ---- */

typedef struct small_model {
    uni_parameters *store;
    uni_gradients *gradients;
    uni_parameter *kernel, *bias, *gamma, *beta, *mean, *variance, *dense, *dense_bias;
} small_model;

static void model_make(small_model *m)
{
    assert_int_equal(uni_parameters_new(&m->store, NULL), 0);
    m->kernel = weight(m->store, "conv/kernel", SHAPE(3, 3, 1, 8), 0.1f);
    m->bias = weight(m->store, "conv/bias", SHAPE(8), 0.01f);
    m->gamma = weight(m->store, "bn/gamma", SHAPE(8), 1);
    m->beta = weight(m->store, "bn/beta", SHAPE(8), 0);
    m->dense = weight(m->store, "dense/kernel", SHAPE(72, 4), 0.1f);
    m->dense_bias = weight(m->store, "dense/bias", SHAPE(4), 0);
    assert_int_equal(
        uni_parameters_add(&m->mean, m->store, "bn/mean", UNI_PARAMETER_STATE, SHAPE(8), NULL), 0);
    assert_int_equal(uni_parameters_add(&m->variance, m->store, "bn/variance", UNI_PARAMETER_STATE,
                                        SHAPE(8), NULL),
                     0);
    for (size_t i = 0; i < uni_parameter_info_of(m->kernel)->size; i++)
        uni_parameter_data(m->kernel)[i] = (float)(i % 7) * 0.1f - 0.3f;
    for (size_t i = 0; i < uni_parameter_info_of(m->dense)->size; i++)
        uni_parameter_data(m->dense)[i] = (float)(i % 11) * 0.05f - 0.25f;
    assert_int_equal(uni_gradients_new(&m->gradients, m->store, NULL), 0);
}

static void model_free(small_model *m)
{
    uni_gradients_free(m->gradients);
    uni_parameters_free(m->store);
}

/* Sum of the losses of samples [first, first + n) of a batch whose images are a function of the
 * sample's number. */
static uni_tensor *model_run(small_model *m, uni_tape *tape, int64_t first, int64_t n)
{
    uni_tensor *x = uni_tape_scratch(tape, UNI_F32, SHAPE(n, 8, 8, 1)),
               *y = uni_tape_scratch(tape, UNI_I64, SHAPE(n));
    for (int64_t i = 0; i < n * 64; i++)
        ((float *)uni_tensor_data(x))[i] = (float)((i + first * 64) * 37 % 101) / 101.0f;
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)uni_tensor_data(y))[i] = (first + i) % 4;
#define P(name) uni_tape_parameter(tape, m->name)
    uni_tensor *h = uni_op_conv(tape, x, P(kernel), P(bias),
                                &(uni_conv_options){ .activation = UNI_ACTIVATION_RELU });
    h = uni_op_batch_norm(tape, h, P(gamma), P(beta),
                          &(uni_batch_norm_options){ .momentum = 0.9f,
                                                     .epsilon = 1e-3f,
                                                     .moving_mean = m->mean,
                                                     .moving_variance = m->variance });
    h = uni_op_dropout(tape, uni_op_pool(tape, h, NULL), 0.3f, 5, NULL);
    h = uni_op_dense(tape, uni_op_reshape(tape, h, SHAPE(n, 72)), P(dense), P(dense_bias),
                     UNI_ACTIVATION_LINEAR);
#undef P
    return uni_op_sum(tape, uni_op_loss(tape, UNI_LOSS_SPARSE_LOGITS, y, h, 0));
}

static void empty_batch_has_zero_gradients(void **state)
{
    (void)state;
    small_model m;
    uni_tape *tape = new_tape(2);
    uni_error err = { 0 };
    model_make(&m);
    /* First one sample, so that there are gradients to overwrite. */
    for (int64_t n = 1; n >= 0; n--) {
        uni_tape_begin(tape, &(uni_step){ .training = true, .gradients = m.gradients, .seed = 1 });
        uni_tensor *loss = model_run(&m, tape, 0, n);
        if (uni_tape_gradient(tape, loss, NULL, &err) < 0)
            fail_msg("%s", err.message);
        size_t size = 0;
        const float *gradient = uni_gradients_data(m.gradients, &size);
        double sum = 0;
        for (size_t i = 0; i < size; i++)
            sum += fabs(gradient[i]);
        if (n == 0)
            assert_float_equal(sum, 0, 0);
        else
            assert_true(sum > 0);
        assert_true(n || uni_tensor_scalar(loss) == 0);
    }
    model_free(&m);
    uni_tape_free(tape);
}

static void memory_does_not_grow_with_steps(void **state)
{
    (void)state;
    small_model m;
    uni_tape *tape = new_tape(2);
    size_t after_three = 0;
    model_make(&m);
    for (int step = 0; step < 200; step++) {
        uni_tape_begin(tape, &(uni_step){ .training = true,
                                          .gradients = m.gradients,
                                          .seed = 1,
                                          .number = (uint64_t)step });
        assert_int_equal(uni_tape_gradient(tape, model_run(&m, tape, 0, 16), NULL, NULL), 0);
        if (step == 3)
            after_three = uni__tape_bytes(tape);
    }
    assert_int_equal(uni__tape_bytes(tape), after_three);
    model_free(&m);
    uni_tape_free(tape);
}

/* ---- the same numbers for every split ---- */

static void dropout_belongs_to_the_sample(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    enum { ROWS = 10, COLS = 77 };
    float ones[ROWS * COLS], whole[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++)
        ones[i] = 1;
    uni_step step = { .training = true, .seed = 42, .number = 3 };
    uni_tape_begin(tape, &step);
    uni_tensor *y = uni_op_dropout(tape, uni_tape_input(tape, UNI_F32, SHAPE(ROWS, COLS), ones),
                                   0.25f, 9, NULL);
    memcpy(whole, uni_tensor_data(y), sizeof whole);
    int kept = 0;
    for (int i = 0; i < ROWS * COLS; i++) {
        assert_true(whole[i] == 0 || fabsf(whole[i] - 1 / 0.75f) < 1e-6f);
        kept += whole[i] != 0;
    }
    assert_in_range(kept, ROWS * COLS * 70 / 100, ROWS * COLS * 80 / 100);
    step.first_sample = 4;
    uni_tape_begin(tape, &step);
    y = uni_op_dropout(tape, uni_tape_input(tape, UNI_F32, SHAPE(3, COLS), ones), 0.25f, 9, NULL);
    assert_memory_equal(uni_tensor_data(y), whole + 4 * COLS, 3 * COLS * sizeof(float));
    step.number = 4; /* another step draws other numbers */
    uni_tape_begin(tape, &step);
    y = uni_op_dropout(tape, uni_tape_input(tape, UNI_F32, SHAPE(3, COLS), ones), 0.25f, 9, NULL);
    assert_memory_not_equal(uni_tensor_data(y), whole + 4 * COLS, 3 * COLS * sizeof(float));
    uni_tape_free(tape);
}

enum { MAX_REPLICAS = 3 };

typedef struct meeting {
    pthread_barrier_t barrier;
    float values[MAX_REPLICAS][64];
    int count;
} meeting;

typedef struct replica {
    meeting *meeting;
    small_model *model;
    uni_gradients *gradients;
    int index;
    int64_t first, n;
    double loss;
    int status;
} replica;

static int meeting_sum(void *context, float *values, size_t count, uni_error *err)
{
    replica *r = context;
    meeting *m = r->meeting;
    (void)err;
    memcpy(m->values[r->index], values, count * sizeof(float));
    pthread_barrier_wait(&m->barrier);
    for (size_t i = 0; i < count; i++) {
        values[i] = 0;
        for (int k = 0; k < m->count; k++)
            values[i] += m->values[k][i];
    }
    pthread_barrier_wait(&m->barrier);
    return 0;
}

static void *replica_run(void *context)
{
    replica *r = context;
    uni_tape *tape = NULL;
    uni_sync sync = { r, meeting_sum };
    r->status = uni_tape_new(&tape, &(uni_tape_options){ .threads = 1 }, NULL);
    if (r->status < 0)
        return NULL;
    uni_tape_begin(tape, &(uni_step){ .training = true,
                                      .gradients = r->gradients,
                                      .seed = 11,
                                      .first_sample = r->first,
                                      .sync = &sync,
                                      .keep_state = r->index > 0 });
    uni_tensor *loss = model_run(r->model, tape, r->first, r->n);
    r->status = uni_tape_gradient(tape, loss, NULL, NULL);
    r->loss = uni_tensor_scalar(loss);
    uni_tape_free(tape);
    return NULL;
}

/* Runs one step of 12 samples in the given parts; sums losses and gradients over the replicas. */
static double run_split(int count, const int64_t *parts, float *gradient, float *moving)
{
    small_model m;
    meeting together = { .count = count };
    replica replicas[MAX_REPLICAS];
    pthread_t threads[MAX_REPLICAS];
    double loss = 0;
    int64_t first = 0;
    size_t size = 0;
    model_make(&m);
    pthread_barrier_init(&together.barrier, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        replicas[i] = (replica){
            .meeting = &together, .model = &m, .index = i, .first = first, .n = parts[i]
        };
        assert_int_equal(uni_gradients_new(&replicas[i].gradients, m.store, NULL), 0);
        first += parts[i];
    }
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, replica_run, &replicas[i]), 0);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(replicas[i].status, 0);
        loss += replicas[i].loss;
        const float *part = uni_gradients_data(replicas[i].gradients, &size);
        for (size_t k = 0; k < size; k++)
            gradient[k] = (i ? gradient[k] : 0) + part[k];
        uni_gradients_free(replicas[i].gradients);
    }
    memcpy(moving, uni_parameter_data(m.variance), 8 * sizeof(float));
    pthread_barrier_destroy(&together.barrier);
    model_free(&m);
    return loss;
}

static void replicas_together_equal_one(void **state)
{
    (void)state;
    static float one[512], parts[512], moving_one[8], moving_parts[8];
    static const int64_t splits[][MAX_REPLICAS] = {
        { 6, 6, 0 }, { 5, 7, 0 }, { 4, 1, 7 }, { 12, 0, 0 }
    };
    static const int counts[] = { 2, 2, 3, 3 }; /* the last has two empty replicas */
    double loss = run_split(1, (const int64_t[]){ 12 }, one, moving_one);
    for (int s = 0; s < 4; s++) {
        double other = run_split(counts[s], splits[s], parts, moving_parts);
        assert_float_equal(other, loss, 1e-4);
        for (int i = 0; i < 512; i++)
            if (!(fabsf(parts[i] - one[i]) <= 1e-4f))
                fail_msg("split %d: gradient %d is %g, with one replica %g", s, i, (double)parts[i],
                         (double)one[i]);
        for (int i = 0; i < 8; i++)
            assert_float_equal(moving_parts[i], moving_one[i], 1e-6);
    }
}

/* ---- element types ---- */

static void casts_and_comparisons(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    static const float numbers[5] = { -1.7f, 300, NAN, 2.5f, 0 };
    static const uint8_t bytes[3] = { 0, 128, 255 };
    uni_tape_begin(tape, NULL);
    uni_tensor *x = uni_tape_input(tape, UNI_F32, SHAPE(5), numbers);
    const uint8_t *small = uni_tensor_data(uni_op_cast(tape, x, UNI_U8));
    assert_memory_equal(small, ((const uint8_t[]){ 0, 255, 0, 2, 0 }), 5);
    const int32_t *whole = uni_tensor_data(uni_op_cast(tape, x, UNI_I32));
    assert_int_equal(whole[0], -1);
    assert_int_equal(whole[1], 300);
    const float *floats =
        uni_tensor_data(uni_op_cast(tape, uni_tape_input(tape, UNI_U8, SHAPE(3), bytes), UNI_F32));
    assert_float_equal(floats[2], 255, 0);
    const uint8_t *less =
        uni_tensor_data(uni_op_compare(tape, UNI_COMPARE_LESS, x, uni_tape_constant(tape, 1)));
    assert_memory_equal(less, ((const uint8_t[]){ 1, 0, 0, 0, 1 }), 5);
    const int64_t *best =
        uni_tensor_data(uni_op_argmax(tape, uni_op_reshape(tape, x, SHAPE(1, 5)), -1));
    assert_int_equal(best[0], 1);
    assert_int_equal(uni_tape_status(tape, NULL), 0);
    uni_tape_free(tape);
}

static void tensors_become_arrays(void **state)
{
    (void)state;
    uni_tape *tape = new_tape(1);
    uni_array *array = NULL;
    uni_error err = { 0 };
    uni_tape_begin(tape, NULL);
    uni_tensor *x =
        uni_tape_input(tape, UNI_I64, SHAPE(2, 3), (const int64_t[]){ 1, 2, 3, 4, 5, 6 });
    assert_int_equal(uni_tensor_to_array(&array, x, &err), 0);
    assert_int_equal(uni_array_ndim(array), 2);
    assert_int_equal(uni_array_shape(array)[1], 3);
    assert_int_equal(uni_array_dtype(array), UNI_I64);
    assert_int_equal(((const int64_t *)uni_array_data(array))[5], 6);
    uni_array_unref(array);
    assert_int_equal(uni_tensor_to_array(&array, zeros(tape, SHAPE(0, 3)), &err), 0);
    assert_int_equal(uni_array_count(array), 0);
    uni_array_unref(array);
    assert_int_equal(uni_tensor_to_array(&array, NULL, &err), UNI_EINVAL);
    assert_null(array);
    uni_tape_free(tape);
}

static void impossible_shapes_are_refused(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { -1, 3 }, { 3, -1 }, { INT64_MAX, 3 }, { 1, INT64_MAX } };
    uni_parameters *store = NULL;
    uni_parameter *parameter = NULL;
    uni_error err = { 0 };
    assert_int_equal(uni_parameters_new(&store, NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(uni_parameters_add(&parameter, store, "kernel", UNI_PARAMETER_WEIGHT, 2,
                                            shapes[i], &err),
                         UNI_ESHAPE);
        assert_non_null(strstr(err.message, "kernel"));
        assert_null(parameter);
    }
    uni_parameters_free(store);
}

/* Gradients move to the caller's memory and back without a change. */
static void gradients_move(void **state)
{
    (void)state;
    uni_parameters *store = NULL;
    uni_gradients *gradients = NULL;
    uni_error err = { 0 };
    size_t size = 0;
    assert_int_equal(uni_parameters_new(&store, NULL), 0);
    uni_parameter *w = weight(store, "w", SHAPE(3), 1);
    assert_int_equal(uni_gradients_new(&gradients, store, NULL), 0);
    for (int i = 0; i < 3; i++)
        uni_gradients_of(gradients, w)[i] = (float)i;
    uni_gradients_data(gradients, &size);
    float *home = aligned_alloc(64, (size * sizeof(float) + 127) / 64 * 64);
    assert_int_equal(uni__gradients_rehome(gradients, home + 1, &err), UNI_EINVAL);
    assert_non_null(strstr(err.message, "64-byte aligned"));
    assert_int_equal(uni__gradients_rehome(gradients, home, &err), 0);
    assert_ptr_equal(uni_gradients_data(gradients, NULL), home);
    assert_true(uni_gradients_of(gradients, w)[2] == 2);
    uni_gradients_of(gradients, w)[2] = 7;
    assert_int_equal(uni__gradients_rehome(gradients, NULL, &err), 0);
    assert_ptr_not_equal(uni_gradients_data(gradients, NULL), home);
    free(home);
    assert_true(uni_gradients_of(gradients, w)[1] == 1 && uni_gradients_of(gradients, w)[2] == 7);
    uni_gradients_free(gradients);
    uni_parameters_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_error_sticks_and_names_the_layer),
        cmocka_unit_test(wrong_shapes_and_types_are_refused),
        cmocka_unit_test(gradients_are_refused_without_a_record),
        cmocka_unit_test(watched_input_has_a_gradient),
        cmocka_unit_test(watched_weight_outside_the_store_has_a_gradient),
        cmocka_unit_test(watched_result_keeps_its_gradient),
        cmocka_unit_test(unused_and_frozen_weights_have_gradient_zero),
        cmocka_unit_test(kernels_of_one_layer_descend_in_the_pass),
        cmocka_unit_test(store_keeps_values_when_it_grows_and_moves),
        cmocka_unit_test(empty_batch_has_zero_gradients),
        cmocka_unit_test(memory_does_not_grow_with_steps),
        cmocka_unit_test(dropout_belongs_to_the_sample),
        cmocka_unit_test(replicas_together_equal_one),
        cmocka_unit_test(casts_and_comparisons),
        cmocka_unit_test(tensors_become_arrays),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(gradients_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
