/*
 * replicas_test.c - one replica, several replicas and two processes' worth of replicas give the
 * same weights, stop together, and share an error.
 */
#include "nn/model/testing.h"
#include "nn/step.h"

#include <pthread.h>

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

/* Uneven batches (the last has 9 samples), dropout, batch statistics, regularisers: none may depend
 * on how a batch is cut. */
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
        OK(uni_model_fit(&histories[i], models[i], &options, err));
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

/* More than one summation pass handles. */
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
        OK(uni_model_fit(NULL, models[i], &options, err));
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
        OK(uni_model_fit(NULL, models[i], &options, err));
    }
    assert_true(model_distance(models[0], models[1]) == 0);
    assert_true(model_distance(models[0], models[2]) > 0);
    for (int i = 0; i < 3; i++)
        uni_model_free(models[i]);
    free_problem(&p);
}

/* ---- replicas as a strategy provides them: two threads, each with a model and half of every batch
 * ---- */

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

/* Both ranks sum everything and make the same update. */
static int rank_finish(void *context, const uni__trained *trained, uni_error *err)
{
    struct rank *rank = context;
    struct group *group = rank->group;
    uni_gradients *gradients = trained->gradients;
    double *sums = trained->sums;
    size_t size = 0, num_sums = trained->num_sums;
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
    uni__update update = { .optimizer = trained->optimizer, .gradients = gradients };
    return gradients != NULL ? uni__update_alone(&update, uni__trained_samples(trained), NULL, err)
                             : 0;
}

/* A source that gives this rank its part of each global batch of 32: 5/8 to rank 0, the rest to
 * rank 1, and finally nothing to rank 1. */
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

static const uni_callback_class stop_class = { .name = "stop", .batch_end = stop_batch_end };

static void *run_rank(void *context)
{
    struct rank *rank = context;
    struct part part = { rank, 0 };
    uni_batches *batches = NULL;
    uni_callback *stop = NULL;
    OK(uni_batches_new(&batches, &part_class, &part, err));
    OK(uni_callback_new(&stop, &stop_class, rank, err));
    uni__updater updater = { .name = "two threads",
                             .index = rank->index,
                             .count = 2,
                             .context = rank,
                             .sync = { rank, rank_sync },
                             .finish = rank_finish };
    OK(uni__model_fit(
        rank->model,
        &(uni_fit_options){
            .batches = batches, .epochs = 2, .threads = 1, .callbacks = &stop, .num_callbacks = 1 },
        &updater, &rank->history, err));
    uni_callback_free(stop);
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
    OK(uni_model_fit(&history, alone, &options, err));
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

/* Rank 1 wants to stop after its second batch. Both stop after the third, because the request
 * travels with a step. */
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

/* A label out of range in one replica ends all of them with the error, and the model remains
 * usable. */
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
    REFUSED(UNI_EINVAL, "7", "3", uni_model_fit(NULL, model, &options, err));
    y[20] = 1;
    OK(uni_model_fit(NULL, model, &options, err));
    uni_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_agree),       cmocka_unit_test(many_replicas_agree),
        cmocka_unit_test(same_seed_same_bits),  cmocka_unit_test(processes_agree),
        cmocka_unit_test(processes_accumulate), cmocka_unit_test(processes_stop_together),
        cmocka_unit_test(error_in_one_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
