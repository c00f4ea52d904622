/*
 * weights_worker.c - a small model under multi_worker, on data that is made here: every rank prints a hash of its weights, bit by bit. Whichever launcher
 * started it, the hashes are the same (mpi_test.py, slurm_test.py).
 *
 *   weights_worker [PAUSE [EPOCHS [rich]]]   with PAUSE it saves and resumes, and waits that many milliseconds after every step;
 *                                            rich: with random numbers, batch statistics, validation, and callbacks that remember
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <unisono/native.h>

#define ROWS 300
#define WIDTH 24
#define CLASSES 5

static uint64_t hash_of(const void *data, size_t size, uint64_t hash)
{
    for (const unsigned char *at = data, *end = at + size; at < end; at++)
        hash = (hash ^ *at) * 1099511628211ull;
    return hash;
}

static void make_data(float *x, int32_t *y)
{
    uint64_t state = 42;
    for (int i = 0; i < ROWS; i++) {
        y[i] = i % CLASSES;
        for (int j = 0; j < WIDTH; j++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            x[i * WIDTH + j] = (float)(state >> 40) / (float)(1 << 24) + (j % CLASSES == y[i]);
        }
    }
}

static int build(uni_model **model, bool rich, uni_error *err)
{
    const int64_t shape[] = { WIDTH };
    uni_dense_options hidden = { .activation = "relu" }, last = { .activation = "softmax" };
    if (rich)
        UNI_TRY(uni_sequential_new(
            model, "weights",
            UNI_LAYERS(uni_layer_input(UNI_F32, 1, shape), uni_layer_dense(40, &hidden),
                       uni_layer_batch_normalization(NULL), uni_layer_dropout(0.3f),
                       uni_layer_dense(CLASSES, &last)),
            err));
    else
        UNI_TRY(uni_sequential_new(model, "weights",
                                   UNI_LAYERS(uni_layer_input(UNI_F32, 1, shape),
                                              uni_layer_dense(40, &hidden),
                                              uni_layer_dense(CLASSES, &last)),
                                   err));
    uni_model_set_seed(*model, 7);
    return uni_model_compile(
        *model,
        &(uni_compile_options){ .optimizer_name = "adam",
                                .loss_name = "sparse_categorical_crossentropy" },
        err);
}

static int print_weights(const uni_model *model, uni_error *err)
{
    uni_value *weights = NULL;
    uint64_t hash = 14695981039346656037ull;
    double sums[2] = { 0 }; /* of all weights, and of their squares */
    UNI_TRY(uni_model_get_weights(&weights, model, err));
    for (size_t i = 0; i < uni_list_size(weights); i++) {
        const uni_array *array = uni_value_as_array(uni_list_get(weights, i));
        hash = hash_of(uni_array_data(array), uni_array_bytes(array), hash);
        const float *values = uni_array_data(array);
        for (size_t k = 0; k < uni_array_bytes(array) / sizeof *values; k++) {
            sums[0] += values[k];
            sums[1] += (double)values[k] * values[k];
        }
    }
    printf("sums %.9g %.9g\n", sums[0], sums[1]);
    printf("weights %zu %016llx\n", uni_list_size(weights), (unsigned long long)hash);
    uni_value_free(weights);
    return 0;
}

static int wait_a_little(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    usleep(*(const useconds_t *)self * 1000);
    return 0;
}

/* pause < 0: nothing is saved. */
static int train(uni_session *session, int pause, int epochs, bool rich, uni_error *err)
{
    static const uni_callback_class slow = { .name = "slow",
                                             .only_looks = true,
                                             .after_batch = wait_a_little };
    useconds_t each = pause > 0 ? (useconds_t)pause : 0;
    uni_callback *callbacks[4] = { NULL };
    int epoch = 0;
    static float x[ROWS * WIDTH];
    static int32_t y[ROWS];
    const int64_t x_shape[] = { ROWS, WIDTH }, y_shape[] = { ROWS };
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    make_data(x, y);
    UNI_TRY(uni_strategy_open(&strategy, "multi_worker", session, err));
    UNI_TRY(build(&model, rich, err));
    if (pause >= 0) {
        UNI_TRY(uni_session_restore_model(&epoch, session, model, err));
        UNI_TRY(uni_callback_report_checkpoint(&callbacks[0], session, 1, err));
        UNI_TRY(uni_callback_new(&callbacks[1], &slow, &each, err));
    }
    if (rich) {
        UNI_TRY(uni_callback_reduce_lr_on_plateau(&callbacks[2],
                                                  &(uni_reduce_lr_options){ .patience = 1 }, err));
        UNI_TRY(uni_callback_early_stopping(
            &callbacks[3],
            &(uni_early_stopping_options){ .patience = 50, .restore_best_weights = true }, err));
    }
    UNI_TRY(uni_strategy_place(strategy, model, err));
    uni_column columns[] = { uni_column_view(UNI_F32, 2, x_shape, x),
                             uni_column_view(UNI_I32, 1, y_shape, y) };
    UNI_TRY(uni_strategy_fit(NULL, strategy, model,
                             &(uni_fit_options){ .x = &columns[0],
                                                 .num_x = 1,
                                                 .y = &columns[1],
                                                 .num_y = 1,
                                                 .epochs = epochs,
                                                 .initial_epoch = epoch,
                                                 .callbacks = callbacks,
                                                 .num_callbacks = pause < 0 ? 0
                                                                  : rich    ? 4
                                                                            : 2,
                                                 .validation_x = rich ? &columns[0] : NULL,
                                                 .validation_y = rich ? &columns[1] : NULL,
                                                 .batch_size = 32,
                                                 .seed = 3 },
                             err));
    UNI_TRY(print_weights(model, err));
    for (int i = 0; i < 4; i++)
        uni_callback_free(callbacks[i]);
    uni_model_free(model);
    uni_strategy_free(strategy);
    return 0;
}

int main(int argc, char **argv)
{
    uni_session *session = NULL;
    uni_error err = { 0 };
    int status = uni_session_open(&session, &err);
    if (status == 0)
        status = train(session, argc > 1 ? atoi(argv[1]) : -1, argc > 2 ? atoi(argv[2]) : 5,
                       argc > 3, &err);
    if (status < 0) {
        fprintf(stderr, "%s\n", err.message);
        fflush(stderr);
        _exit(1); /* a failed MPI must not be finalised */
    }
    uni_session_close(session);
    return 0;
}
