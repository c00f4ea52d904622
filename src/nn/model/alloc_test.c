/*
 * alloc_test.c - a training step in the steady state allocates nothing. Counts malloc, calloc,
 * realloc and aligned allocation (this program's definitions override libc's) over 100 steps after
 * 20, for fit with one replica, with two, with shuffling, dropout and batch normalisation, with
 * recurrent and attention layers, and for a custom loop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/nn.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static _Atomic bool counting;
static _Atomic long allocations;

static void count(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t size)
{
    count();
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    count();
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size)
{
    count();
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    count();
    return __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size)
{
    count();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    count();
    *out = __libc_memalign(alignment, size);
    return *out != NULL ? 0 : ENOMEM;
}

static void check(int status, const uni_error *err)
{
    if (status < 0)
        fail_msg("%s", err->message);
}

/* The counter works; otherwise zero would prove nothing. */
static void counts(void **state)
{
    void *(*volatile allocate)(size_t size) = malloc;
    atomic_store(&counting, true);
    void *memory = allocate(10);
    atomic_store(&counting, false);
    assert_int_equal(atomic_exchange(&allocations, 0), 1);
    free(memory);
}

/* ---- models ---- */

static uni_model *head(uni_error *err)
{
    uni_model *model = NULL;
    check(uni_sequential_new(
              &model, NULL,
              UNI_LAYERS(
                  uni_layer_input(UNI_F32, 1, (const int64_t[]){ 48 }),
                  uni_layer_dense(64, &(uni_dense_options){ .activation = "relu",
                                                            .kernel_regularizer = { 0, 1e-4f },
                                                            .activity_regularizer = { 0, 1e-4f } }),
                  uni_layer_dropout(0.2f),
                  uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" })),
              err),
          err);
    return model;
}

static uni_model *images(uni_error *err)
{
    uni_model *model = NULL;
    uni_conv_layer_options same = { .padding = UNI_PADDING_SAME };
    check(uni_sequential_new(
              &model, NULL,
              UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 48 }),
                         uni_layer_reshape(3, (const int64_t[]){ 4, 4, 3 }),
                         uni_layer_conv2d(8, 3, 3, &same), uni_layer_batch_normalization(NULL),
                         uni_layer_activation("relu"),
                         uni_layer_max_pooling2d(2, 0, UNI_PADDING_VALID),
                         uni_layer_depthwise_conv2d(3, 3, &same),
                         uni_layer_global_average_pooling2d(), uni_layer_layer_normalization(NULL),
                         uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" })),
              err),
          err);
    return model;
}

static uni_model *sequences(uni_error *err)
{
    uni_model *model = NULL;
    check(uni_sequential_new(
              &model, NULL,
              UNI_LAYERS(
                  uni_layer_input(UNI_F32, 1, (const int64_t[]){ 48 }),
                  uni_layer_reshape(2, (const int64_t[]){ 6, 8 }),
                  uni_layer_multi_head_attention(2, 4, &(uni_attention_options){ .causal = true }),
                  uni_layer_lstm(5, &(uni_recurrent_options){ .return_sequences = true }),
                  uni_layer_gru(5, NULL),
                  uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" })),
              err),
          err);
    return model;
}

/* ---- fit ---- */

static int batch_begin(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    if (batch == 20)
        atomic_store(&counting, true);
    if (batch == 120)
        atomic_store(&counting, false);
    return 0;
}

static int batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                     uni_error *err)
{
    return 0;
}

static const uni_callback_class counter_class = { .name = "counter",
                                                  .batch_begin = batch_begin,
                                                  .batch_end = batch_end };

static void count_fit(uni_model *(*make)(uni_error *err), int replicas, const char *optimizer,
                      bool shuffle)
{
    enum { SAMPLES = 130 * 32 };
    uni_error err = { 0 };
    static float x[SAMPLES * 48], y[SAMPLES];
    for (int i = 0; i < SAMPLES * 48; i++)
        x[i] = (float)(i * 7919 % 1000) / 500 - 1;
    for (int i = 0; i < SAMPLES; i++)
        y[i] = (float)(i % 2);
    uni_model *model = make(&err);
    check(uni_model_compile(model,
                            &(uni_compile_options){
                                .optimizer_name = optimizer,
                                .loss_name = "binary_crossentropy",
                                .metric_names = (const char *const[]){ "accuracy", "auc", NULL } },
                            &err),
          &err);
    uni_callback *counter = NULL;
    check(uni_callback_new(&counter, &counter_class, NULL, &err), &err);
    uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 48 }, x),
                              uni_column_view(UNI_F32, 1, (const int64_t[]){ SAMPLES }, y) };
    atomic_store(&allocations, 0);
    check(uni_model_fit(NULL, model,
                        &(uni_fit_options){ .x = &columns[0],
                                            .num_x = 1,
                                            .y = &columns[1],
                                            .num_y = 1,
                                            .batch_size = 32,
                                            .no_shuffle = !shuffle,
                                            .threads = 2,
                                            .replicas = replicas,
                                            .callbacks = &counter,
                                            .num_callbacks = 1,
                                            .step_times = true },
                        &err),
          &err);
    uni_callback_free(counter);
    uni_model_free(model);
    assert_false(atomic_load(&counting));
    assert_int_equal(atomic_load(&allocations), 0);
}

static void fit_head(void **state)
{
    count_fit(head, 1, "adam", true);
    count_fit(head, 2, "adam", true);
}

static void fit_images(void **state)
{
    count_fit(images, 1, "sgd", false);
    count_fit(images, 2, "sgd", true);
}

static void fit_sequences(void **state)
{
    count_fit(sequences, 1, "rmsprop", true);
    count_fit(sequences, 2, "rmsprop", false);
}

static void own_loop(void **state)
{
    uni_error err = { 0 };
    uni_tape *tape = NULL;
    uni_gradients *gradients = NULL;
    uni_optimizer *optimizer = NULL;
    uni_loss *loss = NULL;
    uni_metric *accuracy = NULL;
    static float x[32 * 48], y[32];
    uni_model *model = head(&err);
    check(uni_tape_new(&tape, &(uni_tape_options){ .threads = 1 }, &err), &err);
    check(uni_gradients_new(&gradients, uni_model_parameters(model), &err), &err);
    check(uni_optimizer_new(&optimizer, "adamw", NULL, &err), &err);
    check(uni_loss_new(&loss, "binary_crossentropy",
                       &(uni_loss_options){ .reduction = UNI_REDUCTION_NONE }, &err),
          &err);
    check(uni_metric_new(&accuracy, "binary_accuracy", NULL, &err), &err);
    atomic_store(&allocations, 0);
    for (int step = 0; step < 120; step++) {
        if (step == 20)
            atomic_store(&counting, true);
        uni_tape_begin(tape, &(uni_step){ .training = true,
                                          .gradients = gradients,
                                          .seed = 1,
                                          .number = (uint64_t)step });
        uni_tensor *input = uni_tape_input(tape, UNI_F32, 2, (const int64_t[]){ 32, 48 }, x);
        uni_tensor *target = uni_tape_input(tape, UNI_F32, 2, (const int64_t[]){ 32, 1 }, y);
        uni_tensor *prediction = uni_model_call(model, tape, input);
        uni_tensor *each = uni_loss_per_example(loss, tape, target, prediction, NULL);
        uni_tensor *average = uni_compute_average_loss(tape, each, NULL, 32);
        average = uni_op_add(
            tape, average,
            uni_scale_regularization_loss(tape, uni_model_regularization(model, tape), 1));
        check(uni_tape_gradient(tape, average, NULL, &err), &err);
        check(uni_optimizer_apply(optimizer, gradients, 1, 1, &err), &err);
        check(uni_metric_update(accuracy, target, prediction, NULL, &err), &err);
    }
    atomic_store(&counting, false);
    assert_int_equal(atomic_load(&allocations), 0);
    uni_metric_free(accuracy);
    uni_loss_free(loss);
    uni_optimizer_free(optimizer);
    uni_gradients_free(gradients);
    uni_tape_free(tape);
    uni_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(counts), cmocka_unit_test(fit_head),
                                        cmocka_unit_test(fit_images),
                                        cmocka_unit_test(fit_sequences),
                                        cmocka_unit_test(own_loop) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
