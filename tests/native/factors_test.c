/*
 * factors_test.c - plain descent by several replicas gives what one gives, where a dense kernel is
 * so large that the replicas of a process change it by their factors (src/nn/model/share.c), and in
 * the same run where they do not: small kernels, a last batch that is too small for all, weight
 * decay, momentum, processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/native.h>

#define IN 1100
#define HIDDEN 256 /* 281,600 weights */
#define SAMPLES 41 /* batches of 20, 20 and 1 */
#define MAX_RANKS 4

typedef struct worker {
    uni_strategy *strategy;
    uni_comm *comm;
    const uni_optimizer_options *how;
    float *weights; /* what came out */
    size_t count;
    char problem[1024];
} worker;

static float x[SAMPLES * IN], y[SAMPLES];

static void fill(void)
{
    uint32_t state = 7;
    for (size_t i = 0; i < SAMPLES * IN; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1;
    }
    for (size_t i = 0; i < SAMPLES; i++)
        y[i] = (float)(i % 2);
}

static int build(uni_model **out, const uni_optimizer_options *how, uni_error *err)
{
    uni_optimizer *optimizer = NULL;
    uni_loss *loss = NULL;
    UNI_TRY(uni_sequential_new(
        out, "wide",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ IN }),
                   uni_layer_dense(HIDDEN, &(uni_dense_options){ .activation = "relu" }),
                   uni_layer_dense(1, NULL)),
        err));
    uni_model_set_seed(*out, 5);
    UNI_TRY(uni_optimizer_new(&optimizer, "sgd", how, err));
    UNI_TRY(uni_loss_new(&loss, "binary_crossentropy", &(uni_loss_options){ .from_logits = true },
                         err));
    return uni_model_compile(*out, &(uni_compile_options){ .optimizer = optimizer, .loss = loss },
                             err);
}

static int train(worker *w, uni_error *err)
{
    uni_model *model = NULL;
    uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, IN }, x),
                              uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y) };
    int status = build(&model, w->how, err);
    if (status == 0)
        status = uni_strategy_place(w->strategy, model, err);
    if (status == 0)
        status = uni_strategy_fit(NULL, w->strategy, model,
                                  &(uni_fit_options){ .x = &columns[0],
                                                      .num_x = 1,
                                                      .y = &columns[1],
                                                      .num_y = 1,
                                                      .batch_size = 20,
                                                      .epochs = 3 },
                                  err);
    if (status == 0) {
        const float *weights = uni_parameters_weights(uni_model_parameters(model), &w->count);
        w->weights = malloc(w->count * sizeof *weights);
        memcpy(w->weights, weights, w->count * sizeof *weights);
    }
    uni_model_free(model);
    return status;
}

static void *rank_main(void *argument)
{
    worker *w = argument;
    uni_error err = { 0 };
    if ((w->comm && uni_strategy_multi_worker(&w->strategy, w->comm, NULL, &err) < 0) ||
        train(w, &err) < 0)
        snprintf(w->problem, sizeof w->problem, "%s", err.message);
    uni_strategy_free(w->strategy);
    return NULL;
}

static void compare(const worker *w, const worker *reference, const char *what)
{
    if (w->problem[0])
        fail_msg("%s: %s", what, w->problem);
    assert_int_equal(w->count, reference->count);
    for (size_t i = 0; i < w->count; i++)
        if (!(fabsf(w->weights[i] - reference->weights[i]) < 2e-6f))
            fail_msg("%s: weight %zu is %g, not %g", what, i, (double)w->weights[i],
                     (double)reference->weights[i]);
}

static void compare_all(const uni_optimizer_options *how)
{
    uni_error err = { 0 };
    worker alone = { .how = how };
    assert_int_equal(uni_strategy_none(&alone.strategy, &err), 0);
    rank_main(&alone);
    assert_string_equal(alone.problem, "");
    for (int n = 2; n <= MAX_RANKS; n++) {
        worker mirrored = { .how = how }, ranks[MAX_RANKS] = { 0 };
        uni_comm *comms[MAX_RANKS];
        pthread_t threads[MAX_RANKS];
        assert_int_equal(uni_strategy_mirrored(&mirrored.strategy, n, &err), 0);
        rank_main(&mirrored);
        compare(&mirrored, &alone, "mirrored");
        free(mirrored.weights);
        assert_int_equal(uni_comm_open_threads(comms, n, NULL, &err), 0);
        for (int r = 0; r < n; r++) {
            ranks[r] = (worker){ .comm = comms[r], .how = how };
            assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
        }
        for (int r = 0; r < n; r++)
            pthread_join(threads[r], NULL);
        for (int r = 0; r < n; r++) {
            compare(&ranks[r], &alone, "multi_worker");
            assert_memory_equal(ranks[r].weights, ranks[0].weights, ranks[r].count * sizeof(float));
        }
        for (int r = 0; r < n; r++) {
            free(ranks[r].weights);
            uni_comm_close(comms[r]);
        }
    }
    free(alone.weights);
}

static void test_plain(void **state)
{
    compare_all(&(uni_optimizer_options){ .learning_rate = 0.05 });
}

static void test_decay(void **state)
{
    compare_all(&(uni_optimizer_options){ .learning_rate = 0.05, .weight_decay = 0.1 });
}

static void test_momentum(void **state) /* by gradients, as ever */
{
    compare_all(&(uni_optimizer_options){ .learning_rate = 0.05, .momentum = 0.9 });
}

int main(void)
{
    fill();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_decay),
        cmocka_unit_test(test_momentum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
