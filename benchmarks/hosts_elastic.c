/*
 * hosts_elastic.c FILE - a rank of hosts_bench.py's elastic runs: trains the MNIST CNN with Adam under multi_worker until FILE.stop exists. Rank 0 writes when each
 * of its steps ended into FILE, as seconds of the wall clock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <unisono/native.h>

#include "engine_models.h"

#define BATCH 64
#define BATCHES_AN_EPOCH 50
#define CLASSES 10

typedef struct steps {
    FILE *file;
    char stop[4096];
} steps;

static int after_batch(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    steps *all = self;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(all->file, "%lld.%06ld\n", (long long)now.tv_sec, now.tv_nsec / 1000);
    fflush(all->file);
    if (access(all->stop, F_OK) == 0)
        uni_model_stop_training(model);
    return 0;
}

static int fit(uni_strategy *strategy, uni_model *model, const bench_row *row,
               uni_callback *callback, uni_error *err)
{
    int64_t samples = (int64_t)BATCH * BATCHES_AN_EPOCH;
    int64_t shape[4] = { samples, row->x[0], row->x[1], row->x[2] };
    int64_t size = row->x[0] * row->x[1] * row->x[2];
    float *x = calloc((size_t)(samples * size), sizeof *x);
    int32_t *y = calloc((size_t)samples, sizeof *y);
    if (!x || !y) {
        free(x);
        free(y);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the data");
    }
    for (int64_t i = 0; i < samples * size; i++)
        x[i] = (float)(i * 7919 % 1013) / 1013;
    for (int64_t i = 0; i < samples; i++)
        y[i] = (int32_t)(i % CLASSES);
    uni_column xs = uni_column_view(UNI_F32, 4, shape, x),
               ys = uni_column_view(UNI_I32, 1, &samples, y);
    int status =
        uni_strategy_fit(NULL, strategy, model,
                         UNI_OPTIONS(uni_fit_options, .x = &xs, .num_x = 1, .y = &ys, .num_y = 1,
                                     .batch_size = BATCH, .epochs = 100000, .threads = 1,
                                     .callbacks = &callback, .num_callbacks = callback ? 1 : 0),
                         err);
    free(x);
    free(y);
    return status;
}

static int train(uni_session *session, const char *path, uni_error *err)
{
    static const uni_callback_class clock = { .name = "clock",
                                              .only_looks = true,
                                              .after_batch = after_batch };
    const bench_row *row = rows;
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_callback *callback = NULL;
    steps all = { 0 };
    while (strcmp(row->name, "mnist_cnn") != 0)
        row++;
    UNI_TRY(uni_strategy_open(&strategy, "multi_worker", session, err));
    UNI_TRY(make_model(&model, row, err));
    UNI_TRY(uni_model_compile(
        model, &(uni_compile_options){ .optimizer_name = "adam", .loss_name = row->loss }, err));
    UNI_TRY(uni_strategy_place(strategy, model, err));
    if (uni_session_info_of(session)->world_rank == 0) {
        snprintf(all.stop, sizeof all.stop, "%s.stop", path);
        if (!(all.file = fopen(path, "a")))
            return uni_error_set(err, UNI_EIO, "cannot write %s", path);
        UNI_TRY(uni_callback_new(&callback, &clock, &all, err));
    }
    int status = fit(strategy, model, row, callback, err);
    if (all.file)
        fclose(all.file);
    uni_callback_free(callback);
    uni_model_free(model);
    uni_strategy_free(strategy);
    return status;
}

int main(int argc, char **argv)
{
    uni_session *session = NULL;
    uni_error err = { 0 };
    int status = argc == 2 ? uni_session_open(&session, &err)
                           : uni_error_set(&err, UNI_EINVAL, "usage: hosts_elastic FILE");
    if (status == 0)
        status = train(session, argv[1], &err);
    if (status < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    uni_session_close(session);
    return 0;
}
