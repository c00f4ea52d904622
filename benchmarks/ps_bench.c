/*
 * ps_bench.c - ./bench ps: updates a second of parameter servers with 2 workers and 1 server, in
 * every mode, and how stale they were.
 *
 * The work is the NNLM head (128-256-64-1, about 50,000 weights, plain descent) on batches of 64;
 * peers/ps_tensorflow.py does the same with TensorFlow's ParameterServerStrategy. The rate is that
 * of whole epochs of fit after the first one, with everything that fit does on the coordinator.
 * Programs: this one is driver and worker (uni_main).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unisono/log.h>
#include <unisono/native.h>
#include <unisono/trainer.h>
#include <unisono/experimental/coordinator.h>

#define FEATURES 128
#define BATCH 64
#define WORKERS 2

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

typedef struct stopwatch {
    double first, last;
    int epochs;
} stopwatch;

static int after_epoch(void *self, uni_model *model, int epoch, const uni_logs *logs,
                       uni_error *err)
{
    stopwatch *watch = self;
    watch->last = now_seconds();
    if (watch->epochs++ == 0)
        watch->first = watch->last; /* the first epoch has the start of the members in it */
    return 0;
}

static int make_model(uni_model **out, uni_error *err)
{
    uni_dense_options relu = { .activation = "relu" };
    UNI_TRY(uni_sequential_new(
        out, "head",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                   uni_layer_dense(256, &relu), uni_layer_dense(64, &relu),
                   uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" })),
        err));
    uni_model_set_seed(*out, 1);
    return uni_model_compile(
        *out, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "binary_crossentropy" },
        err);
}

static int train_with(uni_session *session, float *x, float *y, int64_t samples, uni_value **result,
                      uni_error *err)
{
    static const uni_callback_class class_ = { .name = "stopwatch", .epoch_end = after_epoch };
    const uni_value *config = uni_session_info_of(session)->config;
    int epochs = (int)uni_dict_get_int(config, "epochs", 2);
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_callback *watching = NULL;
    uni_value *stats = NULL;
    stopwatch watch = { 0 };
    int status;
    uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ samples, FEATURES },
                                              x),
                              uni_column_view(UNI_F32, 2, (const int64_t[]){ samples, 1 }, y) };
    UNI_TRY_GOTO(
        uni_strategy_open(&strategy, uni_dict_get_string(config, "strategy", ""), session, err),
        done);
    UNI_TRY_GOTO(make_model(&model, err), done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, model, err), done);
    UNI_TRY_GOTO(uni_callback_new(&watching, &class_, &watch, err), done);
    UNI_TRY_GOTO(uni_strategy_fit(NULL, strategy, model,
                                  &(uni_fit_options){ .x = &columns[0],
                                                      .num_x = 1,
                                                      .y = &columns[1],
                                                      .num_y = 1,
                                                      .batch_size = BATCH,
                                                      .epochs = epochs,
                                                      .seed = 1,
                                                      .threads = 1,
                                                      .callbacks = &watching,
                                                      .num_callbacks = 1 },
                                  err),
                 done);
    if (!uni_strategy_info_of(strategy)->is_chief)
        goto done;
    UNI_TRY_GOTO(uni_strategy_server_stats(&stats, strategy, err), done);
    *result = stats;
    status = uni_dict_take(
        stats, "per_s",
        uni_value_float((double)(samples / BATCH * (epochs - 1)) / (watch.last - watch.first)));
done:
    uni_callback_free(watching);
    uni_model_free(model);
    uni_strategy_free(strategy);
    return status;
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    int64_t samples = uni_dict_get_int(uni_session_info_of(session)->config, "steps", 100) * BATCH;
    float *x = calloc((size_t)samples * FEATURES, sizeof *x),
          *y = calloc((size_t)samples, sizeof *y);
    int status = x && y ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for the data");
    for (int64_t i = 0; status == 0 && i < samples * FEATURES; i++)
        x[i] = sinf((float)i);
    for (int64_t i = 0; status == 0 && i < samples; i++)
        y[i] = x[i * FEATURES] + x[i * FEATURES + 1] > 0;
    if (status == 0)
        status = train_with(session, x, y, samples, result, err);
    free(x);
    free(y);
    return status;
}

static const uni_function functions[] = { { "train", train }, { NULL, NULL } };

static int measure(uni_program *program, const char *storage, const char *mode, const char *metric,
                   bool quick, uni_error *err)
{
    char strategy[64], *histogram = NULL;
    uni_trainer *trainer = NULL;
    uni_result *result = NULL;
    uni_value *config = uni_value_dict();
    int status;
    snprintf(strategy, sizeof strategy, "parameter_server:%s", mode);
    status = uni_dict_take(config, "strategy", uni_value_string(strategy));
    status |= uni_dict_take(config, "epochs", uni_value_int(quick ? 3 : 11));
    status |= uni_dict_take(config, "steps", uni_value_int(quick ? 100 : 500));
    UNI_TRY_GOTO(status, done);
    UNI_TRY_GOTO(uni_trainer_new(&trainer,
                                 &(uni_trainer_options){ .main = program,
                                                         .num_workers = WORKERS,
                                                         .servers = 1,
                                                         .storage_path = storage,
                                                         .max_failures = UNI_NO_RETRIES },
                                 err),
                 done);
    UNI_TRY_GOTO(uni_trainer_fit(
                     &result, trainer,
                     &(uni_run_options){ .function = "train", .config = config, .num_sinks = -1 },
                     err),
                 done);
    const uni_value *returned = uni_result_info_of(result)->returned[0];
    size_t size = 0;
    UNI_TRY_GOTO(uni_json_write(&histogram, &size, uni_dict_get(returned, "staleness"), 0, err),
                 done);
    printf("{\"bench\": \"ps\", \"metric\": \"%s\", \"unit\": \"1/s\", \"unisono\": %.1f, "
           "\"workers\": %d, \"servers\": 1, \"batch\": %d, \"staleness\": %s}\n",
           metric, uni_dict_get_float(returned, "per_s", 0), WORKERS, BATCH, histogram);
    fflush(stdout);
done:
    free(histogram);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
    return status;
}

static int driver(uni_program *program, int argc, char **argv)
{
    static const char *const modes[][2] = { { "async", "ps_updates_per_s" },
                                            { "bounded=1", "ps_bounded_updates_per_s" },
                                            { "sync", "ps_sync_updates_per_s" } };
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    char storage[] = "/tmp/unisono-bench-XXXXXX", command[64];
    uni_error err = { 0 };
    int status = 0;
    if (!mkdtemp(storage))
        return 1;
    uni_log_level_set(UNI_LOG_ERROR);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0] && status == 0; i++)
        status = measure(program, storage, modes[i][0], modes[i][1], quick, &err);
    if (status < 0)
        fprintf(stderr, "ps_bench: %s\n", err.message);
    snprintf(command, sizeof command, "rm -rf %s", storage);
    return system(command) == 0 && status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, functions, driver);
}
