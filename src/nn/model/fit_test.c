/*
 * fit_test.c - fit as a user sees it: it learns; one replica, two replicas and two processes' worth
 * of replicas give the same weights; accumulation equals the larger batch; logs, history and bad
 * input.
 */
#include "nn/model/testing.h"

#include <pthread.h>
#include <unistd.h>

#include "base/file.h"

/* RaySGD's example: y = x / 2. */
static void learns_a_line(void **state)
{
    uni_model *model = NULL;
    uni_value *history = NULL, *result = NULL;
    float x[200], y[200];
    for (int i = 0; i < 200; i++)
        y[i] = (x[i] = (float)i / 200) / 2;
    OK(uni_sequential_new(&model, "line",
                          UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(1)), uni_layer_dense(10, NULL),
                                     uni_layer_dense(1, NULL)),
                          err));
    uni_model_set_seed(model, 5);
    OK(uni_model_compile(
        model,
        &(uni_compile_options){ .optimizer_name = "SGD",
                                .loss_name = "Mean_Squared_Error",
                                .metric_names = (const char *const[]){ "mse", NULL } },
        err));
    uni_column columns[2] = { uni_column_view(UNI_F32, SHAPE(200, 1), x),
                              uni_column_view(UNI_F32, SHAPE(200, 1), y) };
    uni_fit_options options = { .x = &columns[0],
                                .num_x = 1,
                                .y = &columns[1],
                                .num_y = 1,
                                .epochs = 60,
                                .batch_size = 20,
                                .validation_split = 0.1 };
    OK(uni_model_fit(model, &options, &history, err));
    OK(uni_model_evaluate(model, &options, &result, err));
    assert_true(uni_dict_get_float(result, "loss", 1) < 1e-3);
    assert_true(fabs(uni_dict_get_float(result, "mse", 1) - uni_dict_get_float(result, "loss", 0)) <
                1e-9);
    assert_int_equal(uni_list_size(uni_dict_get(history, "loss")), 60);
    assert_int_equal(uni_list_size(uni_dict_get(history, "val_mse")), 60);
    uni_array *prediction = NULL;
    OK(uni_model_predict(model, &options, &prediction, err));
    assert_int_equal(uni_array_count(prediction), 200);
    assert_true(fabsf(((float *)uni_array_data(prediction))[100] - 0.25f) < 0.05f);
    uni_array_unref(prediction);
    uni_value_free(history);
    uni_value_free(result);
    uni_model_free(model);
}

static void dropout_and_norm(uni_model **out)
{
    OK(uni_sequential_new(
        out, "noisy",
        UNI_LAYERS(
            uni_layer_input(UNI_F32, SHAPE(8)),
            uni_layer_dense(16, &(uni_dense_options){ .activation = "relu",
                                                      .kernel_regularizer = { 1e-3f, 1e-3f },
                                                      .activity_regularizer = { 0, 1e-2f } }),
            uni_layer_dropout(0.3f), uni_layer_batch_normalization(NULL),
            uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" })),
        err));
    uni_model_set_seed(*out, 42);
    OK(uni_model_compile(
        *out,
        &(uni_compile_options){ .optimizer_name = "sgd",
                                .loss_name = "binary_crossentropy",
                                .metric_names = (const char *const[]){ "accuracy", "auc", NULL } },
        err));
}

/* Uneven batches (the last has 9 samples), dropout, batch statistics, regularisers: all must not
 * see how a batch is cut. */
static void replicas_agree(void **state)
{
    problem p = make_problem(201);
    uni_model *models[3];
    uni_value *histories[3];
    static const int replicas[3] = { 1, 2, 3 };
    for (int i = 0; i < 3; i++) {
        uni_fit_options options = options_of(&p);
        options.epochs = 3;
        options.batch_size = 32;
        options.threads = 3;
        options.replicas = replicas[i];
        options.validation_split = 0.2;
        dropout_and_norm(&models[i]);
        OK(uni_model_fit(models[i], &options, &histories[i], err));
    }
    for (int i = 1; i < 3; i++) {
        assert_true(model_distance(models[0], models[i]) < 2e-5);
        for (size_t epoch = 0; epoch < 3; epoch++) {
            assert_true(fabs(history_at(histories[0], "loss", epoch) -
                             history_at(histories[i], "loss", epoch)) < 1e-5);
            assert_true(fabs(history_at(histories[0], "val_auc", epoch) -
                             history_at(histories[i], "val_auc", epoch)) < 1e-3);
            assert_true(history_at(histories[0], "accuracy", epoch) ==
                        history_at(histories[i], "accuracy", epoch));
        }
    }
    for (int i = 0; i < 3; i++) {
        uni_value_free(histories[i]);
        uni_model_free(models[i]);
    }
    free_problem(&p);
}

/* More than are added up in one go. */
static void many_replicas_agree(void **state)
{
    problem p = make_problem(140);
    uni_model *models[2];
    for (int i = 0; i < 2; i++) {
        uni_fit_options options = options_of(&p);
        options.epochs = 2;
        options.batch_size = 140;
        options.threads = 1;
        options.replicas = i == 0 ? 1 : 130;
        dropout_and_norm(&models[i]);
        OK(uni_model_fit(models[i], &options, NULL, err));
    }
    assert_true(model_distance(models[0], models[1]) < 2e-5);
    for (int i = 0; i < 2; i++)
        uni_model_free(models[i]);
    free_problem(&p);
}

static void same_seed_same_bits(void **state)
{
    problem p = make_problem(100);
    uni_model *models[3];
    for (int i = 0; i < 3; i++) {
        uni_fit_options options = options_of(&p);
        options.epochs = 2;
        options.threads = options.replicas = 2;
        options.seed = i == 2 ? 8 : 7;
        dropout_and_norm(&models[i]);
        OK(uni_model_fit(models[i], &options, NULL, err));
    }
    assert_true(model_distance(models[0], models[1]) == 0);
    assert_true(model_distance(models[0], models[2]) > 0);
    for (int i = 0; i < 3; i++)
        uni_model_free(models[i]);
    free_problem(&p);
}

/* ---- replicas as a strategy gives them: two threads that each have a model and half of every
 * batch ---- */

struct group {
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    float *gradients[2], *sync[2];
    double *sums[2];
};

struct rank {
    struct group *group;
    int index;
    const problem *p;
    uni_model *model;
    uni_value *history;
    int accumulation, stop_at;
};

static int rank_sync(void *context, float *values, size_t count, uni_error *err)
{
    struct rank *rank = context;
    struct group *group = rank->group;
    group->sync[rank->index] = values;
    pthread_barrier_wait(&group->barrier);
    float *copy = malloc(count * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = group->sync[0][i] + group->sync[1][i];
    pthread_barrier_wait(&group->barrier);
    memcpy(values, copy, count * sizeof *copy);
    free(copy);
    return 0;
}

static int rank_reduce(void *context, uni_gradients *gradients, double *sums, size_t num_sums,
                       uni_error *err)
{
    struct rank *rank = context;
    struct group *group = rank->group;
    size_t size = 0;
    float *mine = gradients != NULL ? uni_gradients_data(gradients, &size) : NULL;
    group->gradients[rank->index] = mine;
    group->sums[rank->index] = sums;
    pthread_barrier_wait(&group->barrier);
    float *copy = calloc(size + 1, sizeof *copy);
    double *totals = calloc(num_sums, sizeof *totals);
    for (size_t i = 0; i < size; i++)
        copy[i] = group->gradients[0][i] + group->gradients[1][i];
    for (size_t i = 0; i < num_sums; i++)
        totals[i] = group->sums[0][i] + group->sums[1][i];
    pthread_barrier_wait(&group->barrier);
    if (size > 0)
        memcpy(mine, copy, size * sizeof *copy);
    memcpy(sums, totals, num_sums * sizeof *totals);
    free(copy);
    free(totals);
    return 0;
}

/* A source that gives this rank its part of each global batch of 32: 5/8 to rank 0, the rest to
 * rank 1, at last nothing to rank 1. */
struct part {
    const struct rank *rank;
    int64_t at;
};

static int part_next(void *context, uni_batch *out, uni_error *err)
{
    struct part *part = context;
    const problem *p = part->rank->p;
    if (part->at >= p->samples)
        return 0;
    int64_t size = p->samples - part->at < 32 ? p->samples - part->at : 32;
    int64_t first = size < 32 ? size : size * 5 / 8, begin = part->rank->index == 0 ? 0 : first;
    int64_t mine = part->rank->index == 0 ? first : size - first;
    *out = (uni_batch){
        .num_x = 1, .num_y = 1, .size = mine, .first_sample = begin, .global_size = size
    };
    out->x[0] = uni_column_view(UNI_F32, SHAPE(mine, 8), p->x + (part->at + begin) * 8);
    out->y[0] = uni_column_view(UNI_F32, SHAPE(mine, 1), p->y + part->at + begin);
    part->at += size;
    return 1;
}

static int part_reset(void *context, uint64_t epoch, uni_error *err)
{
    ((struct part *)context)->at = 0;
    return 0;
}

static const uni_batches_class part_class = { .name = "part",
                                              .next = part_next,
                                              .reset = part_reset };

static int stop_batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                          uni_error *err)
{
    struct rank *rank = self;
    if (rank->index == 1 && rank->stop_at > 0 && batch + 1 == rank->stop_at)
        uni_model_stop_training(model);
    return 0;
}

static const uni_fit_callback_class stop_class = { .name = "stop", .batch_end = stop_batch_end };

static void *run_rank(void *context)
{
    struct rank *rank = context;
    struct part part = { rank, 0 };
    uni_batches *batches = NULL;
    uni_fit_callback *stop = NULL;
    OK(uni_batches_new(&batches, &part_class, &part, err));
    OK(uni_fit_callback_new(&stop, &stop_class, rank, err));
    uni_replica replica = { .index = rank->index,
                            .count = 2,
                            .sync = { rank, rank_sync },
                            .context = rank,
                            .reduce = rank_reduce };
    OK(uni_model_fit(rank->model,
                     &(uni_fit_options){ .batches = batches,
                                         .epochs = 2,
                                         .threads = 1,
                                         .replica = &replica,
                                         .callbacks = &stop,
                                         .num_callbacks = 1 },
                     &rank->history, err));
    uni_fit_callback_free(stop);
    uni_batches_free(batches);
    return NULL;
}

static void run_ranks(const problem *p, struct rank ranks[2], int accumulation, int stop_at)
{
    struct group group;
    pthread_t threads[2];
    pthread_barrier_init(&group.barrier, NULL, 2);
    for (int i = 0; i < 2; i++) {
        ranks[i] = (struct rank){ .group = &group, .index = i, .p = p, .stop_at = stop_at };
        dropout_and_norm(&ranks[i].model);
        if (accumulation > 1)
            OK(uni_model_compile(
                ranks[i].model,
                &(uni_compile_options){ .optimizer_name = "sgd",
                                        .loss_name = "binary_crossentropy",
                                        .gradient_accumulation_steps = accumulation },
                err));
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&group.barrier);
}

static void free_ranks(struct rank ranks[2])
{
    for (int i = 0; i < 2; i++) {
        uni_value_free(ranks[i].history);
        uni_model_free(ranks[i].model);
    }
}

static void processes_agree(void **state)
{
    problem p = make_problem(105);
    struct rank ranks[2];
    run_ranks(&p, ranks, 1, 0);
    uni_model *alone = NULL;
    uni_value *history = NULL;
    uni_fit_options options = options_of(&p);
    options.epochs = 2;
    options.no_shuffle = true;
    dropout_and_norm(&alone);
    OK(uni_model_fit(alone, &options, &history, err));
    for (int i = 0; i < 2; i++) {
        assert_true(model_distance(alone, ranks[i].model) < 2e-5);
        for (size_t epoch = 0; epoch < 2; epoch++) {
            assert_true(fabs(history_at(history, "loss", epoch) -
                             history_at(ranks[i].history, "loss", epoch)) < 1e-5);
            assert_true(history_at(history, "accuracy", epoch) ==
                        history_at(ranks[i].history, "accuracy", epoch));
        }
    }
    free_ranks(ranks);
    uni_value_free(history);
    uni_model_free(alone);
    free_problem(&p);
}

static void processes_accumulate(void **state)
{
    problem p = make_problem(128);
    struct rank ranks[2];
    run_ranks(&p, ranks, 2, 0);
    assert_true(model_distance(ranks[0].model, ranks[1].model) < 1e-6);
    assert_int_equal(uni_optimizer_iterations(uni_model_optimizer(ranks[0].model)),
                     4); /* 2 epochs of 4 batches, 2 each */
    free_ranks(ranks);
    free_problem(&p);
}

/* Rank 1 wants to stop after its second batch: both stop after the third, because the wish goes
 * with a step. */
static void processes_stop_together(void **state)
{
    problem p = make_problem(32 * 20);
    struct rank ranks[2];
    run_ranks(&p, ranks, 1, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(uni_optimizer_iterations(uni_model_optimizer(ranks[i].model)), 3);
        assert_int_equal(uni_list_size(uni_dict_get(ranks[i].history, "loss")), 1);
    }
    free_ranks(ranks);
    free_problem(&p);
}

/* ---- accumulation, weights ---- */

static void accumulation_is_a_larger_batch(void **state)
{
    problem p = make_problem(256);
    uni_model *models[3];
    for (int i = 0; i < 3; i++) {
        models[i] = classifier("adam");
        OK(uni_model_compile(
            models[i],
            &(uni_compile_options){ .optimizer_name = "adam",
                                    .loss_name = "binary_crossentropy",
                                    .gradient_accumulation_steps = i == 0 ? 0 : 4 },
            err));
        uni_fit_options options = options_of(&p);
        options.epochs = 3;
        options.no_shuffle = true;
        options.batch_size = i == 0 ? 64 : 16;
        options.threads = options.replicas = i == 2 ? 2 : 1;
        OK(uni_model_fit(models[i], &options, NULL, err));
        assert_int_equal(uni_optimizer_iterations(uni_model_optimizer(models[i])), 12);
    }
    assert_true(model_distance(models[0], models[1]) < 1e-5);
    assert_true(model_distance(models[0], models[2]) < 1e-5);
    for (int i = 0; i < 3; i++)
        uni_model_free(models[i]);
    free_problem(&p);
}

/* A sample with weight 2 counts as two samples do (but for the count of samples); a class weight is
 * a weight of its samples. */
static void weights_of_samples_and_classes(void **state)
{
    problem p = make_problem(64);
    float weights[64];
    for (int i = 0; i < 64; i++)
        weights[i] = p.y[i] == 1 ? 3 : 0.5f;
    uni_column column = uni_column_view(UNI_F32, SHAPE(64), weights);
    uni_model *by_sample = classifier("sgd"), *by_class = classifier("sgd"),
              *plain = classifier("sgd");
    uni_fit_options options = options_of(&p);
    options.epochs = 3;
    OK(uni_model_fit(plain, &options, NULL, err));
    options.sample_weight = &column;
    OK(uni_model_fit(by_sample, &options, NULL, err));
    options.sample_weight = NULL;
    options.class_weight = (const double[]){ 0.5, 3 };
    options.num_classes = 2;
    OK(uni_model_fit(by_class, &options, NULL, err));
    assert_true(model_distance(by_sample, by_class) < 1e-7);
    assert_true(model_distance(by_sample, plain) > 1e-4);
    options.num_classes = 1;
    REFUSED(UNI_EINVAL, "class_weight has 1 classes", "class 1",
            uni_model_fit(by_class, &options, NULL, err));
    uni_model_free(by_sample);
    uni_model_free(by_class);
    uni_model_free(plain);
    free_problem(&p);
}

/* ---- epochs and steps ---- */

struct events {
    char text[4096];
};

static void note(struct events *events, const char *what)
{
    assert_true(strlen(events->text) + strlen(what) + 1 < sizeof events->text);
    strcat(events->text, what);
}

static int on_train_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    assert_int_equal(info->steps, 2);
    assert_int_equal(info->samples, 40);
    assert_true(info->has_validation);
    note(self, "train[");
    return 0;
}
static int on_train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    note(self, "]");
    return 0;
}
static int on_epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    note(self, epoch == 1 ? "E1(" : "E2(");
    return 0;
}
static int on_epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs,
                        uni_error *err)
{
    assert_string_equal(logs->names[0], "loss");
    assert_false(isnan(uni_logs_get(logs, "val_accuracy")));
    assert_true(isnan(uni_logs_get(logs, "nothing")));
    note(self, ")");
    return 0;
}
static int on_batch_begin(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    note(self, batch == 0 ? "b0<" : "b1<");
    return 0;
}
static int on_batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                        uni_error *err)
{
    note(self, ">");
    return 0;
}
static int on_test_begin(void *self, uni_model *model, uni_error *err)
{
    note(self, "t{");
    return 0;
}
static int on_test_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    note(self, "}");
    return 0;
}

static const uni_fit_callback_class events_class = {
    .name = "events",
    .train_begin = on_train_begin,
    .train_end = on_train_end,
    .epoch_begin = on_epoch_begin,
    .epoch_end = on_epoch_end,
    .batch_begin = on_batch_begin,
    .batch_end = on_batch_end,
    .test_begin = on_test_begin,
    .test_end = on_test_end,
};

static void order_of_callbacks(void **state)
{
    problem p = make_problem(50);
    struct events events = { "" };
    uni_fit_callback *callback = NULL;
    uni_model *model = classifier("sgd");
    OK(uni_fit_callback_new(&callback, &events_class, &events, err));
    uni_fit_options options = options_of(&p);
    options.epochs = 3;
    options.initial_epoch = 1;
    options.validation_split = 0.2;
    options.callbacks = &callback;
    options.num_callbacks = 1;
    OK(uni_model_fit(model, &options, NULL, err));
    assert_string_equal(events.text, "train[E1(b0<>b1<>t{})E2(b0<>b1<>t{})]");
    uni_fit_callback_free(callback);
    uni_model_free(model);
    free_problem(&p);
}

static int64_t seen_batches;
static int count_batches(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    seen_batches++;
    return 0;
}
static const uni_fit_callback_class count_class = { .name = "count", .batch_begin = count_batches };

/* steps_per_epoch goes on where the epoch before stopped, and starts again when the data is
 * through. */
static void steps_per_epoch(void **state)
{
    problem p = make_problem(96);
    uni_model *model = classifier("sgd");
    uni_fit_callback *callback = NULL;
    uni_value *history = NULL;
    OK(uni_fit_callback_new(&callback, &count_class, NULL, err));
    uni_fit_options options = options_of(&p);
    options.epochs = 4;
    options.steps_per_epoch = 2;
    options.callbacks = &callback;
    options.num_callbacks = 1;
    options.validation_split = 1.0 / 3;
    options.validation_freq = 2;
    seen_batches = 0;
    OK(uni_model_fit(model, &options, &history, err));
    assert_int_equal(seen_batches, 8); /* 2 batches of 32 are one pass */
    assert_int_equal(uni_list_size(uni_dict_get(history, "loss")), 4);
    assert_int_equal(uni_list_size(uni_dict_get(history, "val_loss")), 2);
    uni_value_free(history);
    uni_fit_callback_free(callback);
    uni_model_free(model);
    free_problem(&p);
}

static void times_and_trace(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    uni_value *history = NULL, *trace = NULL;
    char path[256];
    int fd = mkstemp(uni__temporary_name(path, sizeof path, "trace"));
    assert_true(fd >= 0);
    close(fd);
    uni_fit_options options = options_of(&p);
    options.step_times = true;
    options.trace = path;
    OK(uni_model_fit(model, &options, &history, err));
    static const char *const names[] = { "input_ms", "forward_ms", "backward_ms", "update_ms" };
    for (int i = 0; i < 4; i++)
        assert_true(history_at(history, names[i], 0) > 0 &&
                    history_at(history, names[i], 0) < 1000);
    OK(uni_json_read_file(&trace, path, err));
    const uni_value *list = uni_dict_get(trace, "traceEvents");
    assert_int_equal(uni_list_size(list), 2 * 4 + 1); /* two batches of four phases */
    assert_string_equal(uni_dict_get_string(uni_list_get(list, 1), "name", ""), "forward");
    double end = uni_dict_get_float(uni_list_get(list, 1), "ts", 0) +
                 uni_dict_get_float(uni_list_get(list, 1), "dur", 0);
    assert_true(fabs(end - uni_dict_get_float(uni_list_get(list, 2), "ts", 0)) < 0.01);
    unlink(path);
    uni_value_free(trace);
    uni_value_free(history);
    uni_model_free(model);
    free_problem(&p);
}

/* train_on_batch is a running mean until the metrics are reset, as in Keras. */
static void single_batches(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    uni_value *first = NULL, *second = NULL, *test = NULL;
    uni_batch batch = {
        .num_x = 1, .num_y = 1, .x = { p.columns[0] }, .y = { p.columns[1] }, .size = 64
    };
    OK(uni_model_test_on_batch(model, &batch, &test, err));
    uni_model_reset_metrics(model);
    OK(uni_model_train_on_batch(model, &batch, &first, err));
    OK(uni_model_train_on_batch(model, &batch, &second, err));
    double a = uni_dict_get_float(first, "loss", 0), b = uni_dict_get_float(second, "loss", 0);
    assert_true(fabs(uni_dict_get_float(test, "loss", 0) - a) < 1e-6);
    assert_true(b < a);
    double step = 2 * b - a;
    uni_model_reset_metrics(model);
    uni_value_free(second);
    OK(uni_model_train_on_batch(model, &batch, &second, err));
    assert_true(uni_dict_get_float(second, "loss", 0) < step);
    uni_value_free(first);
    uni_value_free(second);
    uni_value_free(test);
    uni_model_free(model);
    free_problem(&p);
}

/* ---- several outputs ---- */

static void several_outputs(void **state)
{
    uni_graph *graph = NULL;
    uni_model *model = NULL;
    uni_value *history = NULL;
    problem p = make_problem(64);
    float z[128];
    for (int i = 0; i < 128; i++)
        z[i] = noise(3, (uint32_t)i);
    OK(uni_graph_new(&graph, err));
    uni_symbol *input = uni_graph_input(graph, "x", UNI_F32, SHAPE(8));
    uni_symbol *hidden = uni_graph_apply(
        graph, uni_layer_dense(6, &(uni_dense_options){ .activation = "tanh" }), input);
    uni_symbol *outputs[2] = {
        uni_graph_apply(
            graph,
            uni_layer_named(uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" }),
                            "a"),
            hidden),
        uni_graph_apply(graph, uni_layer_named(uni_layer_dense(2, NULL), "b"), hidden),
    };
    OK(uni_model_from_graph(&model, "two", graph, 1, &input, 2, outputs, err));
    uni_loss *losses[2];
    uni_metric *metrics[1];
    OK(uni_loss_new(&losses[0], "binary_crossentropy", NULL, err));
    OK(uni_loss_new(&losses[1], "mse", NULL, err));
    OK(uni_metric_new(&metrics[0], "mae", NULL, err));
    OK(uni_model_compile(model,
                         &(uni_compile_options){ .optimizer_name = "adam",
                                                 .losses = losses,
                                                 .num_losses = 2,
                                                 .loss_weights = (const float[]){ 1, 0.25f },
                                                 .metrics = metrics,
                                                 .num_metrics = 1,
                                                 .metric_outputs = (const int[]){ 1 } },
                         err));
    uni_column y[2] = { p.columns[1], uni_column_view(UNI_F32, SHAPE(64, 2), z) };
    uni_fit_options options = options_of(&p);
    options.y = y;
    options.num_y = 2;
    OK(uni_model_fit(model, &options, &history, err));
    assert_false(isnan(history_at(history, "b_mean_absolute_error", 0)));
    double total = history_at(history, "a_loss", 0) + 0.25 * history_at(history, "b_loss", 0);
    assert_true(fabs(total - history_at(history, "loss", 0)) < 1e-6);
    uni_array *predictions[2] = { NULL, NULL };
    OK(uni_model_predict(model, &options, predictions, err));
    assert_int_equal(uni_array_shape(predictions[0])[1], 1);
    assert_int_equal(uni_array_shape(predictions[1])[1], 2);
    uni_array_unref(predictions[0]);
    uni_array_unref(predictions[1]);
    options.num_y = 1;
    REFUSED(UNI_EINVAL, "2 outputs", "1 target", uni_model_fit(model, &options, NULL, err));
    uni_value_free(history);
    uni_model_free(model);
    free_problem(&p);
}

/* ---- bad input ---- */

static void bad_data(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    uni_fit_options options = options_of(&p);
    REFUSED(UNI_EINVAL, "no data", "x", uni_model_fit(model, NULL, NULL, err));
    options.num_callbacks = 1;
    REFUSED(UNI_EINVAL, "num_callbacks is 1", "NULL", uni_model_fit(model, &options, NULL, err));
    options.num_callbacks = 0;
    options.replicas = -2;
    REFUSED(UNI_EINVAL, "replicas -2", "0", uni_model_fit(model, &options, NULL, err));
    options.replicas = 0;
    uni_column wide = uni_column_view(UNI_F32, SHAPE(51, 10), p.x);
    uni_column few = uni_column_view(UNI_F32, SHAPE(51, 1), p.y);
    options.x = &wide;
    REFUSED(UNI_ESHAPE, "(64, 1)", "51 samples", uni_model_fit(model, &options, NULL, err));
    options.y = &few;
    REFUSED(UNI_ESHAPE, "(None, 8)", "(32, 10)", uni_model_fit(model, &options, NULL, err));
    uni_column nothing = uni_column_view(UNI_F32, SHAPE(0, 8), p.x),
               none = uni_column_view(UNI_F32, SHAPE(0, 1), p.y);
    options.x = &nothing;
    options.y = &none;
    REFUSED(UNI_EINVAL, "empty dataset", "classifier", uni_model_fit(model, &options, NULL, err));
    REFUSED(UNI_EINVAL, "empty dataset", "classifier",
            uni_model_evaluate(model, &options, NULL, err));
    uni_string words[2] = { { "a", 1 }, { "b", 1 } };
    uni_column text = uni_column_strings(2, words),
               two = uni_column_view(UNI_F32, SHAPE(2, 1), p.y);
    options.x = &text;
    options.y = &two;
    REFUSED(UNI_ESHAPE, "(None, 8)", "(2,)", uni_model_fit(model, &options, NULL, err));
    options = options_of(&p);
    p.x[8 * 40 + 3] = NAN;
    REFUSED(UNI_EINVAL, "NaN", "input 0",
            (options.no_shuffle = true, uni_model_fit(model, &options, NULL, err)));
    uni_model_free(model);
    free_problem(&p);
}

static void bad_compile(void **state)
{
    problem p = make_problem(8);
    uni_model *model = NULL;
    OK(uni_sequential_new(&model, NULL, UNI_LAYERS(uni_layer_dense(1, NULL)), err));
    uni_fit_options options = options_of(&p);
    REFUSED(UNI_ESTATE, "compile", "sequential", uni_model_fit(model, &options, NULL, err));
    REFUSED(
        UNI_ENOTFOUND, "mean_squared_eror", "mean_squared_error",
        uni_model_compile(model, &(uni_compile_options){ .loss_name = "mean_squared_eror" }, err));
    REFUSED(UNI_ENOTFOUND, "acuracy", "accuracy",
            uni_model_compile(
                model,
                &(uni_compile_options){ .loss_name = "mse",
                                        .metric_names = (const char *const[]){ "acuracy", NULL } },
                err));
    REFUSED(
        UNI_ENOTFOUND, "adan", "adam",
        uni_model_compile(
            model, &(uni_compile_options){ .loss_name = "mse", .optimizer_name = "adan" }, err));
    uni_loss *loss = NULL;
    uni_optimizer *optimizer = NULL;
    OK(uni_loss_new(&loss, "mse", NULL, err));
    OK(uni_optimizer_new(&optimizer, "sgd", NULL, err));
    REFUSED(UNI_EINVAL, "by object", "by name",
            uni_model_compile(
                model,
                &(uni_compile_options){ .loss = loss, .loss_name = "mse", .optimizer = optimizer },
                err));
    OK(uni_model_compile(model, &(uni_compile_options){ .optimizer_name = "sgd" }, err));
    REFUSED(UNI_ESTATE, "without a loss", "sequential", uni_model_fit(model, &options, NULL, err));
    OK(uni_model_compile(
        model, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "mae" }, err));
    OK(uni_model_fit(model, &options, NULL, err)); /* built by the data; compile may be repeated */
    assert_int_equal(uni_model_input_spec(model, 0)->dims[1], 8);
    uni_model_free(model);
    free_problem(&p);
}

/* A label out of range in one replica ends all of them with the error, and the model can go on. */
static void error_in_one_replica(void **state)
{
    uni_model *model = NULL;
    float x[64 * 4];
    int32_t y[64];
    for (int i = 0; i < 64; i++)
        y[i] = i % 3;
    for (int i = 0; i < 64 * 4; i++)
        x[i] = noise(9, (uint32_t)i);
    OK(uni_sequential_new(&model, NULL,
                          UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(4)), uni_layer_dense(8, NULL),
                                     uni_layer_batch_normalization(NULL), uni_layer_dense(3, NULL)),
                          err));
    uni_loss *loss = NULL;
    OK(uni_loss_new(&loss, "sparse_categorical_crossentropy",
                    &(uni_loss_options){ .from_logits = true }, err));
    OK(uni_model_compile(model, &(uni_compile_options){ .optimizer_name = "sgd", .loss = loss },
                         err));
    uni_column columns[2] = { uni_column_view(UNI_F32, SHAPE(64, 4), x),
                              uni_column_view(UNI_I32, SHAPE(64), y) };
    uni_fit_options options = { .x = &columns[0],
                                .num_x = 1,
                                .y = &columns[1],
                                .num_y = 1,
                                .threads = 2,
                                .replicas = 2,
                                .no_shuffle = true };
    y[20] = 7; /* in the second half of the first batch */
    REFUSED(UNI_EINVAL, "7", "3", uni_model_fit(model, &options, NULL, err));
    y[20] = 1;
    OK(uni_model_fit(model, &options, NULL, err));
    uni_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_a_line),
        cmocka_unit_test(replicas_agree),
        cmocka_unit_test(many_replicas_agree),
        cmocka_unit_test(same_seed_same_bits),
        cmocka_unit_test(processes_agree),
        cmocka_unit_test(processes_accumulate),
        cmocka_unit_test(processes_stop_together),
        cmocka_unit_test(accumulation_is_a_larger_batch),
        cmocka_unit_test(weights_of_samples_and_classes),
        cmocka_unit_test(order_of_callbacks),
        cmocka_unit_test(steps_per_epoch),
        cmocka_unit_test(times_and_trace),
        cmocka_unit_test(single_batches),
        cmocka_unit_test(several_outputs),
        cmocka_unit_test(bad_data),
        cmocka_unit_test(bad_compile),
        cmocka_unit_test(error_in_one_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
