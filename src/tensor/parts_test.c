/*
 * parts_test.c - operations whose work is divided among threads give what one thread gives:
 * products cut in every direction, convolutions cut by images, gradients of reductions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/ops.h>
#include <unisono/tensor.h>

static uni_tape *new_tape(int threads)
{
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, &(uni_tape_options){ .threads = threads }, NULL), 0);
    return tape;
}

typedef struct outcome {
    float *numbers[4]; /* the result, and the gradients of up to three inputs */
    size_t counts[4];
} outcome;

static uni_tensor *watched(uni_tape *tape, int ndim, const int64_t *shape, uint32_t seed)
{
    uni_tensor *x = uni_tape_scratch(tape, UNI_F32, ndim, shape);
    assert_non_null(x);
    float *data = (float *)uni_tensor_data(x);
    for (size_t i = 0; i < uni_tensor_count(x); i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
    }
    uni_tape_watch(tape, x);
    return x;
}

static void keep(outcome *all, int at, const float *numbers, size_t count)
{
    all->counts[at] = count;
    all->numbers[at] = malloc(count * sizeof *numbers);
    assert_non_null(all->numbers[at]);
    memcpy(all->numbers[at], numbers, count * sizeof *numbers);
}

static void finish_pass(uni_tape *tape, uni_tensor *y, int inputs, uni_tensor *const *x,
                        outcome *all)
{
    uni_error err = { 0 };
    assert_int_equal(uni_tape_status(tape, &err), 0);
    keep(all, 0, (const float *)uni_tensor_data(y), uni_tensor_count(y));
    assert_int_equal(uni_tape_gradient(tape, uni_op_sum(tape, uni_op_mul(tape, y, y)), NULL, &err),
                     0);
    for (int i = 0; i < inputs; i++)
        keep(all, i + 1, uni_tensor_gradient(x[i]), uni_tensor_count(x[i]));
}

static void compare(outcome *one, outcome *many, float tolerance)
{
    for (int i = 0; i < 4 && one->numbers[i]; i++) {
        float most = 0;
        for (size_t k = 0; k < one->counts[i]; k++)
            most = fabsf(one->numbers[i][k]) > most ? fabsf(one->numbers[i][k]) : most;
        for (size_t k = 0; k < one->counts[i]; k++)
            assert_float_equal(many->numbers[i][k], one->numbers[i][k], tolerance * most);
        free(one->numbers[i]);
        free(many->numbers[i]);
    }
}

static void run_product(int threads, const int64_t size[3], bool ta, bool tb, outcome *all)
{
    int64_t m = size[0], n = size[1], k = size[2];
    uni_tape *tape = new_tape(threads);
    uni_tape_begin(tape, &(uni_step){ .record = true });
    uni_tensor *x[] = { watched(tape, 2, (const int64_t[]){ ta ? k : m, ta ? m : k }, 1),
                        watched(tape, 2, (const int64_t[]){ tb ? n : k, tb ? k : n }, 2) };
    finish_pass(tape, uni_op_matmul(tape, x[0], x[1], ta, tb), 2, x, all);
    uni_tape_free(tape);
}

/* Cut along columns, rows and the sum, with parts of unequal size. */
static void products_in_parts_equal_whole_ones(void **state)
{
    static const int64_t sizes[][3] = {
        { 50, 301, 71 }, { 303, 51, 70 }, { 37, 29, 3001 }, { 20, 17, 4000 }, { 1, 3000, 700 }
    };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = 0; t < 4; t++) {
            outcome one = { 0 }, many = { 0 };
            run_product(1, sizes[s], t & 1, t >> 1, &one);
            run_product(3, sizes[s], t & 1, t >> 1, &many);
            compare(&one, &many, 1e-5f);
        }
}

static void run_conv(int threads, int64_t batch, const uni_conv_options *options, int64_t groups,
                     outcome *all)
{
    uni_tape *tape = new_tape(threads);
    uni_tape_begin(tape, &(uni_step){ .record = true });
    uni_tensor *x[] = { watched(tape, 4, (const int64_t[]){ batch, 19, 18, 16 }, 1),
                        watched(tape, 4, (const int64_t[]){ 3, 3, 16 / groups, 32 }, 2),
                        watched(tape, 1, (const int64_t[]){ 32 }, 3) };
    finish_pass(tape, uni_op_conv(tape, x[0], x[1], x[2], options), 3, x, all);
    uni_tape_free(tape);
}

/* Numbers of images that three threads cannot divide, and fewer than threads. */
static void convolutions_in_parts_equal_whole_ones(void **state)
{
    static const uni_conv_options options[] = {
        { .size = sizeof(uni_conv_options), .padding = UNI_PADDING_SAME },
        { .size = sizeof(uni_conv_options), .stride = { 2, 2 }, .activation = UNI_ACTIVATION_RELU },
        { .size = sizeof(uni_conv_options), .groups = 4 },
    };
    for (size_t o = 0; o < sizeof options / sizeof *options; o++)
        for (int64_t batch = 1; batch <= 8; batch++) {
            outcome one = { 0 }, many = { 0 };
            int64_t groups = options[o].groups > 0 ? options[o].groups : 1;
            run_conv(1, batch, &options[o], groups, &one);
            run_conv(3, batch, &options[o], groups, &many);
            compare(&one, &many, 1e-5f);
        }
}

/* Every set of axes of a tensor that is large enough to be divided among threads. Numbers are small
 * integers, so that there are many ties, and sums are exact. */
enum { RA = 6, RB = 7, RC = 1, RD = 40, RE = 9, RALL = RA * RB * RC * RD * RE };

static void check_reduction(int threads, uni_reduce kind, unsigned set, const float *values)
{
    static const int64_t shape[] = { RA, RB, RC, RD, RE };
    static float best[RALL], equal[RALL];
    static size_t to[RALL];
    int axes[5], count = 0;
    uni_tape *tape = new_tape(threads);
    uni_tape_begin(tape, &(uni_step){ .record = true });
    for (int i = 0; i < 5; i++)
        if (set >> i & 1)
            axes[count++] = i;
    for (size_t i = 0; i < RALL; i++) {
        size_t rest = i, stride = 1;
        to[i] = 0;
        for (int k = 4; k >= 0; k--) {
            if (!(set >> k & 1)) {
                to[i] += rest % (size_t)shape[k] * stride;
                stride *= (size_t)shape[k];
            }
            rest /= (size_t)shape[k];
        }
        best[to[i]] = -9;
        equal[to[i]] = 0;
    }
    for (size_t i = 0; i < RALL; i++)
        best[to[i]] = values[i] > best[to[i]] ? values[i] : best[to[i]];
    for (size_t i = 0; i < RALL; i++)
        equal[to[i]] += values[i] == best[to[i]];
    uni_tensor *x = uni_tape_input(tape, UNI_F32, 5, shape, values);
    uni_tape_watch(tape, x);
    uni_tensor *y = uni_op_reduce(tape, kind, x, count, axes, false);
    assert_int_equal(uni_tape_gradient(tape, uni_op_sum(tape, y), NULL, NULL), 0);
    const float *dx = uni_tensor_gradient(x);
    assert_non_null(dx);
    for (size_t i = 0; i < RALL; i++) {
        float expected = kind == UNI_REDUCE_SUM     ? 1
                         : values[i] == best[to[i]] ? 1 / equal[to[i]]
                                                    : 0;
        assert_float_equal(dx[i], expected, 0);
    }
    uni_tape_free(tape);
}

static void reductions_give_their_gradient_to_the_right_elements(void **state)
{
    static float values[RALL];
    for (size_t i = 0; i < RALL; i++)
        values[i] = (float)(i * i % 11 % 5);
    for (int threads = 1; threads <= 3; threads += 2)
        for (unsigned set = 1; set < 32; set++) {
            check_reduction(threads, UNI_REDUCE_MAX, set, values);
            check_reduction(threads, UNI_REDUCE_SUM, set, values);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_in_parts_equal_whole_ones),
        cmocka_unit_test(convolutions_in_parts_equal_whole_ones),
        cmocka_unit_test(reductions_give_their_gradient_to_the_right_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
