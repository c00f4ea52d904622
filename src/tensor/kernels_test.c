/*
 * kernels_test.c - compares the fast tables of inner loops with the plain one: every length around
 * the vector width, edge values (0, huge, tiny, NaN, infinities), in place and not, and the
 * optimizer passes over several steps. Values of exp, log, tanh and erf come from libm through the
 * plain table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tensor/kernels.h"

static const uni__tensor_kernels *tables[3];
static int num_tables;

static bool close_to(float got, float expected, float tolerance)
{
    if (isnan(expected) || isnan(got))
        return isnan(expected) && isnan(got);
    if (isinf(expected) || isinf(got))
        return expected == got;
    return fabsf(got - expected) <= tolerance * fmaxf(1.0f, fabsf(expected));
}

static void expect(const char *table, const char *what, int kind, const float *got,
                   const float *expected, const float *x, size_t n, float tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!close_to(got[i], expected[i], tolerance))
            fail_msg("%s, %s %d of %zu: element %zu is %.9g, plain version %.9g (of %.9g)", table,
                     what, kind, n, i, (double)got[i], (double)expected[i], x ? (double)x[i] : 0.0);
}

enum { MANY = 4000 };

/* A sweep over [-20, 20], then the edges. */
static size_t interesting(float *x)
{
    static const float edges[] = { 0,      -0.0f,   1e-30f, -1e-30f,  1e-7f,     0.2f,   -0.2f,
                                   0.625f, -0.625f, 87,     -87,      88.6f,     -88.6f, 100,
                                   -100,   1e10f,   -1e10f, INFINITY, -INFINITY, NAN };
    enum { EDGES = sizeof edges / sizeof *edges };
    for (int i = 0; i < MANY; i++)
        x[i] = -20 + 40 * (float)i / MANY;
    memcpy(x + MANY, edges, sizeof edges);
    return MANY + EDGES;
}

static void activations(void **state)
{
    (void)state;
    float x[MANY + 32], got[MANY + 32], expected[MANY + 32], ones[MANY + 32];
    size_t n = interesting(x);
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    for (int t = 0; t < num_tables; t++)
        for (int kind = UNI_ACTIVATION_LINEAR; kind <= UNI_ACTIVATION_RELU6; kind++) {
            uni__tensor_kernels_reference.activation((uni_activation)kind, 0.7f, x, expected, n);
            tables[t]->activation((uni_activation)kind, 0.7f, x, got, n);
            /* gelu and swish of -infinity are 0 * infinity in any formula without a special case */
            size_t known = kind == UNI_ACTIVATION_GELU || kind == UNI_ACTIVATION_GELU_TANH ||
                                   kind == UNI_ACTIVATION_SWISH || kind == UNI_ACTIVATION_SOFTSIGN
                               ? n - 5
                               : n;
            expect(tables[t]->name, "activation", kind, got, expected, x, known, 2e-6f);
            memcpy(got, x, sizeof got);
            tables[t]->activation((uni_activation)kind, 0.7f, got, got, 33); /* in place */
            expect(tables[t]->name, "activation in place", kind, got, expected, x, 33, 2e-6f);
            uni__tensor_kernels_reference.activation_backward((uni_activation)kind, 0.7f, x, NULL,
                                                              ones, expected, MANY);
            tables[t]->activation_backward((uni_activation)kind, 0.7f, x, NULL, ones, got, MANY);
            expect(tables[t]->name, "activation backward", kind, got, expected, x, MANY, 2e-6f);
        }
}

/* A diverged training must be visible: no activation or loss turns NaN into a number. */
static void nan_stays(void **state)
{
    (void)state;
    static const uni_loss_kind losses[] = { UNI_LOSS_MSE,           UNI_LOSS_MAE,
                                            UNI_LOSS_HUBER,         UNI_LOSS_BINARY,
                                            UNI_LOSS_BINARY_LOGITS, UNI_LOSS_HINGE,
                                            UNI_LOSS_SQUARED_HINGE, UNI_LOSS_KL };
    const float x[] = { NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN }, target[9] = { 1, 0, 1 };
    float got[9];
    for (int t = -1; t < num_tables; t++) {
        const uni__tensor_kernels *table = t < 0 ? &uni__tensor_kernels_reference : tables[t];
        for (int kind = UNI_ACTIVATION_LINEAR; kind <= UNI_ACTIVATION_RELU6; kind++) {
            table->activation((uni_activation)kind, 0.7f, x, got, 9);
            for (int i = 0; i < 9; i++)
                assert_true(isnan(got[i]));
        }
        for (size_t k = 0; k < sizeof losses / sizeof losses[0]; k++) {
            table->pointwise_loss(losses[k], target, x, got, 1, 9, 0.5f);
            assert_true(isnan(got[0]));
        }
    }
}

static void functions(void **state)
{
    (void)state;
    float x[MANY + 32], y[MANY + 32], got[MANY + 32], expected[MANY + 32];
    size_t n = interesting(x);
    for (int t = 0; t < num_tables; t++)
        for (int kind = UNI_UNARY_NEGATE; kind <= UNI_UNARY_RECIPROCAL; kind++) {
            size_t count = kind == UNI_UNARY_SIN || kind == UNI_UNARY_COS ? MANY : n;
            uni__tensor_kernels_reference.unary((uni_unary)kind, x, y, count);
            tables[t]->unary((uni_unary)kind, x, got, count);
            expect(tables[t]->name, "function", kind, got, y, x, count, 2e-6f);
            uni__tensor_kernels_reference.unary_backward((uni_unary)kind, x, y, x, expected, MANY);
            tables[t]->unary_backward((uni_unary)kind, x, y, x, got, MANY);
            expect(tables[t]->name, "function backward", kind, got, expected, x, MANY, 2e-6f);
        }
}

static float pseudo(size_t i)
{
    return (float)((i * 2654435761u >> 7) % 2001) / 1000.0f - 1.0f;
}

static void lengths_around_the_vector(void **state)
{
    (void)state;
    float a[200], b[200], got[200], expected[200], more[200], most[200];
    for (size_t i = 0; i < 200; i++) {
        a[i] = pseudo(i);
        b[i] = pseudo(i + 999);
    }
    for (int t = 0; t < num_tables; t++)
        for (size_t n = 0; n <= 67; n++) {
            for (int steps = 0; steps < 4; steps++)
                for (int kind = UNI_BINARY_ADD; kind <= UNI_BINARY_SQUARED_DIFFERENCE; kind++) {
                    if (kind == UNI_BINARY_POW)
                        continue;
                    for (size_t i = 0; i < 200; i++)
                        got[i] = expected[i] = 77; /* guard: nothing past the end may change */
                    uni__tensor_kernels_reference.binary((uni_binary)kind, a, steps & 1, b,
                                                         steps >> 1, expected, n);
                    tables[t]->binary((uni_binary)kind, a, steps & 1, b, steps >> 1, got, n);
                    expect(tables[t]->name, "binary", kind, got, expected, a, 200, 1e-6f);
                }
            for (size_t rows = 1; rows <= 2 && n; rows++) {
                uni__tensor_kernels_reference.softmax(a, expected, rows, n);
                tables[t]->softmax(a, got, rows, n);
                expect(tables[t]->name, "softmax", (int)n, got, expected, a, rows * n, 1e-6f);
                uni__tensor_kernels_reference.log_softmax(a, expected, rows, n);
                tables[t]->log_softmax(a, got, rows, n);
                expect(tables[t]->name, "log_softmax", (int)n, got, expected, a, rows * n, 2e-6f);
                uni__tensor_kernels_reference.layer_norm(a, b, b + 7, expected, more, most, rows, n,
                                                         1e-3f);
                tables[t]->layer_norm(a, b, b + 7, got, more, most, rows, n, 1e-3f);
                expect(tables[t]->name, "layer_norm", (int)n, got, expected, a, rows * n, 1e-5f);
                uni__tensor_kernels_reference.reduce(UNI_REDUCE_MEAN, a, expected, rows, n, 1,
                                                     false);
                tables[t]->reduce(UNI_REDUCE_MEAN, a, got, rows, n, 1, false);
                expect(tables[t]->name, "row mean", (int)n, got, expected, a, rows, 1e-6f);
                uni__tensor_kernels_reference.reduce(UNI_REDUCE_SUM, a, expected, 1, rows, n,
                                                     false);
                tables[t]->reduce(UNI_REDUCE_SUM, a, got, 1, rows, n, false);
                expect(tables[t]->name, "column sum", (int)n, got, expected, a, n, 1e-6f);
            }
        }
}

/* A million ones and small numbers: summing in blocks keeps the digits. */
static void long_sums_keep_their_digits(void **state)
{
    (void)state;
    size_t n = 1000000;
    float *x = malloc(n * sizeof(float)), got = 0, expected = 0;
    for (size_t i = 0; i < n; i++)
        x[i] = 0.1f + 1e-3f * pseudo(i);
    uni__tensor_kernels_reference.reduce(UNI_REDUCE_SUM, x, &expected, 1, n, 1, false);
    for (int t = 0; t < num_tables; t++) {
        tables[t]->reduce(UNI_REDUCE_SUM, x, &got, 1, n, 1, false);
        assert_float_equal(got / expected, 1, 1e-6);
        float columns[4], plain[4];
        uni__tensor_kernels_reference.reduce(UNI_REDUCE_SUM, x, plain, 1, n / 4, 4, false);
        tables[t]->reduce(UNI_REDUCE_SUM, x, columns, 1, n / 4, 4, false);
        for (int i = 0; i < 4; i++)
            assert_float_equal(columns[i] / plain[i], 1, 1e-4);
    }
    free(x);
}

static void dropout_draws_are_the_same_everywhere(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 201 };
    float x[ROWS * COLS], got[ROWS * COLS], expected[ROWS * COLS];
    uni__dropout d = { .seed = 0x123456789abcdefull,
                       .step = 5,
                       .stream = 6,
                       .first = 1000,
                       .threshold = 20000,
                       .keep_scale = 1.25f };
    for (size_t i = 0; i < ROWS * COLS; i++)
        x[i] = pseudo(i) + 2;
    uni__tensor_kernels_reference.dropout(x, expected, ROWS, COLS, &d);
    for (int t = 0; t < num_tables; t++) {
        tables[t]->dropout(x, got, ROWS, COLS, &d);
        assert_memory_equal(got, expected, sizeof got);
    }
}

static void uniform_draws_are_the_same_everywhere(void **state)
{
    (void)state;
    enum { COUNT = 203 };
    float expected[COUNT], got[COUNT + 1];
    uni__uniform u = { { 0x1234567u, 0x89abcdefu }, { 77, 99 }, -0.25, 1.5 };
    for (uint64_t first = 0; first < 3; first++) {
        uni__tensor_kernels_reference.uniform(expected, COUNT, first, &u);
        for (int t = 0; t < num_tables; t++) {
            got[COUNT] = 42;
            tables[t]->uniform(got, COUNT, first, &u);
            assert_memory_equal(got, expected, sizeof expected);
            assert_float_equal(got[COUNT], 42, 0);
        }
    }
}

/* Compares c[m, n] (+)= op(a) op(b) with the definition at every edge of the tiles, with row
 * strides longer than the rows. */
static void check_product(const uni__tensor_kernels *k, bool ta, bool tb, bool add,
                          const uni__descent *descent, int64_t m, int64_t n, int64_t depth)
{
    int64_t lda = (ta ? m : depth) + 3, ldb = (tb ? depth : n) + 1, ldc = n + 2;
    float *a = malloc((size_t)((ta ? depth : m) * lda) * sizeof(float));
    float *b = malloc((size_t)((tb ? n : depth) * ldb) * sizeof(float));
    float *c = malloc((size_t)(m * ldc) * sizeof(float)),
          *scratch = malloc(UNI__GEMM_SCRATCH * sizeof(float));
    for (int64_t i = 0; i < (ta ? depth : m) * lda; i++)
        a[i] = pseudo((size_t)i);
    for (int64_t i = 0; i < (tb ? n : depth) * ldb; i++)
        b[i] = pseudo((size_t)i + 77);
    for (int64_t i = 0; i < m * ldc; i++)
        c[i] = 5;
    k->gemm(&(uni__product){ ta, tb, add, m, n, depth, a, b, c, lda, ldb, ldc, descent }, scratch);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < ldc; j++) {
            double sum = 0;
            for (int64_t p = 0; j < n && p < depth; p++)
                sum +=
                    (double)a[ta ? p * lda + i : i * lda + p] * b[tb ? j * ldb + p : p * ldb + j];
            sum = j >= n    ? 5
                  : descent ? descent->keep * 5 - descent->rate * sum
                            : sum + (add ? 5 : 0);
            if (!(fabs(c[i * ldc + j] - sum) <= 2e-5 * (1 + sqrt((double)depth))))
                fail_msg("product %d %d %d of %d x %d x %d: element (%d, %d) is %g, not %g", ta, tb,
                         add, (int)m, (int)n, (int)depth, (int)i, (int)j, (double)c[i * ldc + j],
                         sum);
        }
    free(a);
    free(b);
    free(c);
    free(scratch);
}

static void products_by_the_definition(void **state)
{
    (void)state;
    static const int64_t rows[] = { 1, 5, 6, 7, 71, 75 },
                         cols[] = { 1, 8, 15, 16, 17, 64, 255, 273 };
    static const int64_t depths[] = { 1, 9, 64, 255, 256, 300 };
    for (int t = 0; t < num_tables; t++)
        for (int flags = 0; tables[t]->gemm && flags < 8; flags++)
            for (size_t i = 0; i < 6; i++)
                for (size_t j = 0; j < 8; j++)
                    for (int d = 0; d < 2; d++)
                        check_product(tables[t], flags & 1, flags & 2, flags & 4,
                                      d ? &(uni__descent){ .rate = 0.5f, .keep = 0.75f } : NULL,
                                      rows[i], cols[j], depths[(i + j) % 6]);
}

/* Sums of 288 and of 800 products: the error against the sum in double must be within a factor of 4
 * of that of a direct sum in float. */
enum { SIDE = 10, IN = 32, OUT = 48, IMAGES = 8 };

static double direct_sum(const float *x, const float *kernel, int64_t row, int64_t col, int64_t out,
                         float *plain)
{
    double sum = 0;
    *plain = 0;
    for (int64_t tap = 0; tap < 9; tap++)
        for (int64_t c = 0; c < IN; c++) {
            int64_t h = row + tap / 3 - 1, w = col + tap % 3 - 1;
            if (h < 0 || h >= SIDE || w < 0 || w >= SIDE)
                continue;
            float a = x[(h * SIDE + w) * IN + c], b = kernel[(tap * IN + c) * OUT + out];
            sum += (double)a * b;
            *plain += a * b;
        }
    return sum;
}

static void convolutions_keep_their_digits(void **state)
{
    (void)state;
    enum { X = IMAGES * SIDE * SIDE * IN, Y = IMAGES * SIDE * SIDE * OUT, BLOCK = 24 };
    float *x = malloc(X * sizeof *x), *y = malloc(Y * sizeof *y),
          *kernel = malloc(9 * IN * OUT * 4), *u = malloc(16 * IN * OUT * 4),
          *dkernel = malloc(9 * IN * OUT * 4), *scratch = malloc(16 * (BLOCK + 1) * (IN + OUT) * 4);
    for (size_t i = 0; i < X; i++)
        x[i] = pseudo(i);
    for (size_t i = 0; i < 9 * IN * OUT; i++)
        kernel[i] = pseudo(i + 5);
    uni__winograd w = { .conv = { .height = SIDE,
                                  .width = SIDE,
                                  .in = IN,
                                  .out_height = SIDE,
                                  .out_width = SIDE,
                                  .out = OUT,
                                  .pad_top = 1,
                                  .pad_left = 1 },
                        .tiles = IMAGES * SIDE * SIDE / 4,
                        .block = BLOCK,
                        .x = x,
                        .u = u,
                        .y = y };
    for (int t = 0; t < num_tables; t++) {
        const uni__tensor_kernels *k = tables[t];
        double worst = 0, worst_plain = 0;
        if (!k->winograd_forward)
            continue;
        k->winograd_kernel(kernel, IN, OUT, u);
        k->winograd_forward(&w, 0, w.tiles, scratch);
        for (int64_t i = 0; i < SIDE * SIDE * OUT; i++) { /* of the first image */
            float plain;
            double sum = direct_sum(x, kernel, i / OUT / SIDE, i / OUT % SIDE, i % OUT, &plain);
            worst = fmax(worst, fabs(y[i] - sum));
            worst_plain = fmax(worst_plain, fabs(plain - sum));
        }
        assert_true(worst <= 4 * worst_plain);
        w.dy = y; /* any values would do */
        k->winograd_weights(&w, 0, w.tiles, scratch, u);
        k->winograd_kernel_back(u, IN, OUT, dkernel);
        worst = worst_plain = 0;
        for (int64_t i = 0; i < 9 * IN * OUT; i += 7) {
            int64_t tap = i / (IN * OUT), c = i / OUT % IN, o = i % OUT;
            double sum = 0;
            float plain = 0;
            for (int64_t p = 0; p < IMAGES * SIDE * SIDE; p++) {
                int64_t h = p / SIDE % SIDE + tap / 3 - 1, v = p % SIDE + tap % 3 - 1;
                if (h < 0 || h >= SIDE || v < 0 || v >= SIDE)
                    continue;
                float a = x[((p / (SIDE * SIDE) * SIDE + h) * SIDE + v) * IN + c],
                      b = y[p * OUT + o];
                sum += (double)a * b;
                plain += a * b;
            }
            worst = fmax(worst, fabs(dkernel[i] - sum));
            worst_plain = fmax(worst_plain, fabs(plain - sum));
        }
        assert_true(worst <= 4 * worst_plain);
    }
    free(x);
    free(y);
    free(kernel);
    free(u);
    free(dkernel);
    free(scratch);
}

enum { WEIGHTS = 101, STEPS = 10 };

typedef struct optimizer_state {
    float w[WEIGHTS], a[WEIGHTS], b[WEIGHTS], c[WEIGHTS];
} optimizer_state;

static void step(const uni__tensor_kernels *k, int which, optimizer_state *s, const float *g)
{
    uni__adam adam = { .alpha = 0.01f,
                       .beta_1 = 0.9f,
                       .beta_2 = 0.99f,
                       .epsilon = 1e-7f,
                       .scale = 0.5f,
                       .decay = 0.001f };
    uni__rmsprop rms = {
        .lr = 0.01f, .rho = 0.9f, .momentum = 0.8f, .epsilon = 1e-7f, .scale = 0.5f, .decay = 0.001f
    };
    switch (which) {
    case 0:
        k->sgd(s->w, g, WEIGHTS, 0.1f, 0.5f, 0.001f);
        break;
    case 1:
    case 2:
        k->momentum(s->w, s->a, g, WEIGHTS, 0.1f, 0.9f, which == 2, 0.5f, 0.001f);
        break;
    case 3:
    case 4:
        k->adam(s->w, s->a, s->b, which == 4 ? s->c : NULL, g, WEIGHTS, &adam);
        break;
    case 5:
    case 6:
    case 7:
        k->rmsprop(s->w, s->a, which == 6 ? s->b : NULL, which == 7 ? s->c : NULL, g, WEIGHTS,
                   &rms);
        break;
    default:
        k->adagrad(s->w, s->a, g, WEIGHTS, 0.1f, 1e-7f, 0.5f, 0.001f);
    }
}

static void optimizers_over_ten_steps(void **state)
{
    (void)state;
    for (int t = 0; t < num_tables; t++)
        for (int which = 0; which <= 8; which++) {
            optimizer_state plain = { 0 }, fast;
            for (size_t i = 0; i < WEIGHTS; i++) {
                plain.w[i] = pseudo(i);
                plain.a[i] = which == 8 ? 0.1f : 0;
            }
            fast = plain;
            for (int s = 0; s < STEPS; s++) {
                float g[WEIGHTS];
                for (size_t i = 0; i < WEIGHTS; i++)
                    g[i] = pseudo(i * 31 + (size_t)s);
                step(&uni__tensor_kernels_reference, which, &plain, g);
                step(tables[t], which, &fast, g);
            }
            expect(tables[t]->name, "weights of optimizer", which, fast.w, plain.w, NULL, WEIGHTS,
                   2e-5f);
            expect(tables[t]->name, "state of optimizer", which, fast.a, plain.a, NULL, WEIGHTS,
                   2e-6f);
        }
}

static void flat_passes(void **state)
{
    (void)state;
    enum { N = 10000 };
    static float a[N], b[N], c[N], sum[N];
    double squares = 0;
    for (size_t i = 0; i < N; i++) {
        a[i] = pseudo(i);
        b[i] = pseudo(i + 5);
        c[i] = pseudo(i + 11);
        squares += (double)a[i] * a[i];
    }
    assert_float_equal(uni__sum_squares(a, N), squares, 1e-9);
    uni__sum_buffers(sum, (const float *const[]){ a, b, c }, 3, 0, N);
    for (size_t i = 0; i < N; i++)
        assert_float_equal(sum[i], a[i] + b[i] + c[i], 0);
    for (int k = 0; k < 3; k++) { /* the sum may overwrite any of the parts */
        static float parts[3][N];
        memcpy(parts[0], a, sizeof a);
        memcpy(parts[1], b, sizeof b);
        memcpy(parts[2], c, sizeof c);
        uni__sum_buffers(parts[k] + 7, (const float *const[]){ parts[0], parts[1], parts[2] }, 3, 7,
                         N - 9);
        assert_memory_equal(parts[k] + 7, sum + 7, (N - 9) * sizeof *sum);
        assert_float_equal(parts[k][6], k == 0 ? a[6] : k == 1 ? b[6] : c[6], 0);
        assert_float_equal(parts[k][N - 2], k == 0 ? a[N - 2] : k == 1 ? b[N - 2] : c[N - 2], 0);
    }
    uni__sum_buffers(sum, NULL, 0, 0, N);
    assert_float_equal(sum[N - 1], 0, 0);
    uni__clip_in_place(a, N, 10, 2);
    for (size_t i = 0; i < N; i++)
        assert_true(fabsf(a[i]) <= 2);
    float bad[2] = { NAN, 1 };
    uni__clip_in_place(bad, 2, 1, 0.5f);
    assert_true(isnan(bad[0]) && bad[1] == 0.5f);
}

int main(void)
{
    tables[num_tables++] = &uni__tensor_kernels_base;
#if defined(__x86_64__)
    if (uni__tensor_kernels_best() == &uni__tensor_kernels_avx2)
        tables[num_tables++] = &uni__tensor_kernels_avx2;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations),
        cmocka_unit_test(nan_stays),
        cmocka_unit_test(functions),
        cmocka_unit_test(lengths_around_the_vector),
        cmocka_unit_test(long_sums_keep_their_digits),
        cmocka_unit_test(dropout_draws_are_the_same_everywhere),
        cmocka_unit_test(uniform_draws_are_the_same_everywhere),
        cmocka_unit_test(products_by_the_definition),
        cmocka_unit_test(convolutions_keep_their_digits),
        cmocka_unit_test(optimizers_over_ten_steps),
        cmocka_unit_test(flat_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
