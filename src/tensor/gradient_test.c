/*
 * gradient_test.c - compares the gradient of every operation with finite differences of its forward
 * pass, on the plain kernels, and on the fast ones with one thread and with three. Every case runs
 * a second time with its operation used twice, so that gradients are added and not only set. It
 * also runs once with larger inputs, where the fast version must agree with the plain one, with
 * oneDNN's products and with our own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/tensor.h>

#include "tensor/internal.h"
#include "tensor/onednn_internal.h"

#define MAX_INPUTS 4

typedef uni_tensor *(*build_function)(uni_tape *tape, uni_tensor **in);

typedef struct gradient_case {
    const char *name;
    build_function build;
    float low, high; /* range of the inputs' values */
    /* Number of axes, then the axes; -1: no such input. */
    int64_t shapes[MAX_INPUTS][UNI_TENSOR_MAX_DIMS + 1];
    /* Grows 40-fold in the big run; -1: none. */
    int batch_axis;
    bool big_only;
} gradient_case;

typedef struct problem {
    uni_parameters *store;
    uni_parameter *in[MAX_INPUTS];
    int count;
} problem;

static uint32_t random_state;

static float next_random(float low, float high)
{
    random_state = random_state * 1664525u + 1013904223u;
    return low + (high - low) * (float)(random_state >> 8) / 16777216.0f;
}

static void problem_make(problem *p, const gradient_case *c, int64_t growth)
{
    memset(p, 0, sizeof *p);
    assert_int_equal(uni_parameters_new(&p->store, NULL), 0);
    random_state = 12345;
    for (int i = 0; i < MAX_INPUTS && c->shapes[i][0] > 0; i++) {
        int64_t shape[UNI_TENSOR_MAX_DIMS];
        int ndim = (int)c->shapes[i][0];
        memcpy(shape, c->shapes[i] + 1, sizeof(int64_t) * (size_t)ndim);
        if (ndim > 1 && shape[0] > 1 && c->batch_axis == 0 && shape[0] == c->shapes[0][1])
            shape[0] *= growth;
        assert_int_equal(
            uni_parameters_add(&p->in[i], p->store, "x", UNI_PARAMETER_WEIGHT, ndim, shape, NULL),
            0);
        p->count++;
    }
    for (int i = 0; i < p->count; i++)
        for (size_t k = 0; k < uni_parameter_info_of(p->in[i])->size; k++)
            uni_parameter_data(p->in[i])[k] = next_random(c->low, c->high);
}

static uni_tensor *run(uni_tape *tape, const problem *p, build_function build)
{
    uni_tensor *in[MAX_INPUTS] = { NULL };
    for (int i = 0; i < p->count; i++)
        in[i] = uni_tape_parameter(tape, p->in[i]);
    return build(tape, in);
}

/* Weights of the scalar that is differentiated. Each element has another one, so that no errors
 * cancel. */
static float weight(size_t i)
{
    return 0.5f + (float)((i * 7919) % 101) / 101.0f;
}

static double value(uni_tape *tape, const problem *p, build_function build)
{
    uni_tape_begin(tape, &(uni_step){ .training = true, .seed = 7, .keep_state = true });
    uni_tensor *y = run(tape, p, build);
    uni_error err = { 0 };
    if (uni_tape_status(tape, &err) < 0)
        fail_msg("%s", err.message);
    double sum = 0;
    for (size_t i = 0; i < uni_tensor_count(y); i++)
        sum += (double)weight(i) * ((const float *)uni_tensor_data(y))[i];
    return sum;
}

static uni_tensor *weighted(uni_tape *tape, uni_tensor *y)
{
    uni_tensor *w = uni_tape_scratch(tape, UNI_F32, uni_tensor_ndim(y), uni_tensor_shape(y));
    for (size_t i = 0; i < uni_tensor_count(w); i++)
        ((float *)uni_tensor_data(w))[i] = weight(i);
    return uni_op_sum(tape, uni_op_mul(tape, y, w));
}

/* Gradients for `times` uses of the operation, flat, malloc'ed. */
static float *gradients(uni_tape *tape, const problem *p, build_function build, int times,
                        size_t *size)
{
    uni_gradients *store = NULL;
    uni_error err = { 0 };
    assert_int_equal(uni_gradients_new(&store, p->store, NULL), 0);
    uni_tape_begin(
        tape, &(uni_step){ .training = true, .seed = 7, .gradients = store, .keep_state = true });
    uni_tensor *in[MAX_INPUTS] = { NULL }, *loss = NULL;
    for (int i = 0; i < p->count; i++)
        in[i] = uni_tape_parameter(tape, p->in[i]);
    /* Copies the inputs into intermediate tensors, so that both ways of receiving gradients are
     * used. */
    for (int i = 0; times > 1 && i < p->count; i++)
        in[i] = uni_op_scale(tape, in[i], 1, 0);
    for (int i = 0; i < times; i++) {
        uni_tensor *y = build(tape, in);
        if (uni_tape_status(tape, &err) < 0)
            fail_msg("%s", err.message);
        uni_tensor *part = weighted(tape, y);
        loss = loss ? uni_op_add(tape, loss, part) : part;
    }
    if (uni_tape_gradient(tape, loss, NULL, &err) < 0)
        fail_msg("%s", err.message);
    const float *data = uni_gradients_data(store, size);
    float *copy = malloc(*size * sizeof(float) + 1);
    memcpy(copy, data, *size * sizeof(float));
    uni_gradients_free(store);
    return copy;
}

static void expect_close(const gradient_case *c, const char *what, const problem *p,
                         const float *got, const double *expected, double tolerance)
{
    for (int i = 0; i < p->count; i++) {
        size_t offset = uni_parameter_info_of(p->in[i])->offset,
               n = uni_parameter_info_of(p->in[i])->size;
        double largest = 0;
        for (size_t k = 0; k < n; k++)
            largest = fmax(largest, fabs(expected[offset + k]));
        for (size_t k = 0; k < n; k++) {
            double distance = fabs(got[offset + k] - expected[offset + k]);
            if (!(distance <= tolerance * fmax(1, largest)))
                fail_msg("%s, %s: gradient of input %d, element %zu is %g, expected %g", c->name,
                         what, i, k, got[offset + k], expected[offset + k]);
        }
    }
}

static double *as_doubles(const float *x, size_t n, double factor)
{
    double *out = malloc(n * sizeof(double) + 1);
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * factor;
    return out;
}

static void check_differences(const gradient_case *c, uni_tape *tape, const char *what)
{
    problem p;
    size_t size = 0;
    problem_make(&p, c, 1);
    float *got = gradients(tape, &p, c->build, 1, &size);
    double *expected = calloc(size + 1, sizeof(double)), middle = value(tape, &p, c->build);
    size_t total = 0, kinks = 0;
    for (int i = 0; i < p.count; i++)
        for (size_t k = 0; k < uni_parameter_info_of(p.in[i])->size; k++, total++) {
            float *x = &uni_parameter_data(p.in[i])[k], kept = *x, step = 4e-3f;
            size_t at = uni_parameter_info_of(p.in[i])->offset + k;
            *x = kept + step;
            double right = (value(tape, &p, c->build) - middle) / ((double)*x - kept);
            *x = kept - step;
            double left = (middle - value(tape, &p, c->build)) / (kept - (double)*x);
            *x = kept;
            expected[at] = (right + left) / 2;
            /* A corner has no derivative to compare with. */
            if (fabs(right - left) > 0.02 * fmax(1, fabs(expected[at]))) {
                expected[at] = got[at];
                kinks++;
            }
        }
    if (kinks > total / 6)
        fail_msg("%s: %zu of %zu points are at a corner", c->name, kinks, total);
    expect_close(c, what, &p, got, expected, 3e-3);
    double *once = as_doubles(got, size, 2);
    float *twice = gradients(tape, &p, c->build, 2, &size);
    expect_close(c, "used twice", &p, twice, once, 1e-4);
    free(got);
    free(once);
    free(twice);
    free(expected);
    uni_parameters_free(p.store);
}

/* How many times larger the big run's batch is: at least 40 times, and so large that a loop over it
 * is worth splitting. */
static int64_t growth_of(const gradient_case *c)
{
    int64_t count = 1;
    for (int64_t i = 1; i <= c->shapes[0][0]; i++)
        count *= c->shapes[0][i];
    return 64000 / count > 40 ? 64000 / count : 40;
}

/* Larger inputs: compares results and gradients of the fast kernels, with and without threads, with
 * the plain ones. */
static void check_big(const gradient_case *c, uni_tape *plain, uni_tape *fast, const char *what)
{
    problem p;
    size_t size = 0;
    problem_make(&p, c, growth_of(c));
    double expected_value = value(plain, &p, c->build), got_value = value(fast, &p, c->build);
    if (!(fabs(got_value - expected_value) <= 1e-4 * fmax(1, fabs(expected_value))))
        fail_msg("%s, %s: value %g, plain version %g", c->name, what, got_value, expected_value);
    float *reference = gradients(plain, &p, c->build, 1, &size),
          *got = gradients(fast, &p, c->build, 1, &size);
    double *expected = as_doubles(reference, size, 1);
    expect_close(c, what, &p, got, expected, 2e-4);
    float *again = gradients(fast, &p, c->build, 1, &size);
    assert_memory_equal(again, got, size * sizeof(float)); /* same threads, same bits */
    free(again);
    free(reference);
    free(got);
    free(expected);
    uni_parameters_free(p.store);
}

static void check_case(void **state)
{
    const gradient_case *c = *state;
    uni_tape *plain = NULL, *fast = NULL, *threads = NULL, *own = NULL;
    assert_int_equal(
        uni_tape_new(&plain, &(uni_tape_options){ .threads = 1, .reference = true }, NULL), 0);
    assert_int_equal(uni_tape_new(&fast, &(uni_tape_options){ .threads = 1 }, NULL), 0);
    assert_int_equal(uni_tape_new(&threads, &(uni_tape_options){ .threads = 3 }, NULL), 0);
    if (!c->big_only) {
        check_differences(c, plain, "plain");
        check_differences(c, fast, "fast");
    }
    check_big(c, plain, fast, "fast");
    check_big(c, plain, threads, "three threads");
    /* The products and convolutions that replace oneDNN's where it has no AVX-512. */
    assert_int_equal(uni_tape_new(&own, &(uni_tape_options){ .threads = 3 }, NULL), 0);
    own->onednn->own_products = true;
    check_big(c, plain, own, "own products");
    own->threads = 1;
    check_big(c, plain, own, "own products, one thread");
    uni_tape_free(own);
    uni_tape_free(plain);
    uni_tape_free(fast);
    uni_tape_free(threads);
}

#include "tensor/shared.h"
#include "tensor/gradient_cases.h"

int main(void)
{
    enum { COUNT = sizeof cases / sizeof *cases };
    static struct CMUnitTest tests[COUNT];
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){ .name = cases[i].name,
                                        .test_func = check_case,
                                        .initial_state = &cases[i] };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
