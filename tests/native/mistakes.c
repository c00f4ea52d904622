/*
 * mistakes.c - ranks that do not have the same (models, optimizers, data, epochs), an error of one
 * rank, passes without data, data that each rank cut for itself. Ranks are threads here: every one
 * of them must end, with a sentence that says whose mistake it is.
 */
#include <math.h>
#include <pthread.h>

#include "native.h"

#define RANKS 2

typedef struct member {
    const char *mistake;
    uni_comm *comm;
    int rank, status, steps;
    uni_error err, again; /* again: of the next call after that */
    double loss;
    float weights[512];
    uni_strategy *strategy;
    uni_model *model;
    uni_optimizer *optimizer;
    uni_loss *each;
} member;

static bool is(const member *m, const char *mistake)
{
    return strcmp(m->mistake, mistake) == 0;
}

/* ---- the user's side ---- */

static int make_model(member *m, uni_error *err)
{
    bool other = m->rank == 1;
    int64_t units = is(m, "units") && other ? 13 : 12;
    uni_dense_options tanh = { .activation = is(m, "activation") && other ? "relu" : "tanh",
                               .kernel_regularizer = { .l2 = 0.01f } };
    if (is(m, "names") && other) { /* unnamed layers are counted by the process */
        uni_model *before = NULL;
        UNI_TRY(uni_sequential_new(&before, "another",
                                   UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 2 }),
                                              uni_layer_dense(1, NULL)),
                                   err));
        uni_model_free(before);
    }
    UNI_TRY(
        uni_sequential_new(&m->model, "mine",
                           UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                                      uni_layer_dense(units, &tanh), uni_layer_dense(1, NULL)),
                           err));
    uni_model_set_seed(m->model, 11);
    double rate = is(m, "rate") && other ? 0.02 : 0.01;
    UNI_TRY(uni_optimizer_new(&m->optimizer, is(m, "optimizer") && other ? "adam" : "sgd",
                              &(uni_optimizer_options){ .learning_rate = rate }, err));
    return uni_loss_new(&m->each, "mse", &(uni_loss_options){ .reduction = UNI_REDUCTION_NONE },
                        err);
}

static int step(uni_replica_context *replica, const uni_batch *batch, void *context, uni_error *err)
{
    member *m = context;
    if (is(m, "raises") && m->rank == 1 && ++m->steps == 2)
        return uni_error_set(err, UNI_EINVAL, "no good number");
    uni_tape *tape = uni_replica_begin(replica, m->model, true, 1);
    uni_tensor *y = uni_model_call(m->model, tape, uni_tape_input_column(tape, &batch->x[0]));
    uni_tensor *each =
        uni_loss_per_example(m->each, tape, uni_tape_input_column(tape, &batch->y[0]), y, NULL);
    uni_tensor *loss =
        uni_compute_average_loss(tape, each, NULL, uni_replica_info_of(replica)->global_batch);
    UNI_TRY(uni_replica_apply_gradients(replica, loss, m->optimizer, err));
    return uni_replica_return(replica, loss, err);
}

static int run_fit(member *m, const uni_column *columns, uni_error *err)
{
    bool other = m->rank == 1;
    UNI_TRY(uni_model_compile(
        m->model,
        &(uni_compile_options){ .optimizer = m->optimizer,
                                .loss_name = is(m, "loss") && other ? "mae" : "mse" },
        err));
    m->optimizer = NULL; /* taken */
    UNI_TRY(uni_strategy_place(m->strategy, m->model, err));
    return uni_strategy_fit(NULL, m->strategy, m->model,
                            &(uni_fit_options){ .x = &columns[0],
                                                .num_x = 1,
                                                .y = &columns[1],
                                                .num_y = 1,
                                                .batch_size = BATCH,
                                                .epochs = is(m, "epochs") && other ? 3 : 2,
                                                .threads = 1 },
                            err);
}

static int run_loop(member *m, const uni_column *columns, uni_error *err)
{
    uni_batches *whole = NULL, *mine = NULL;
    int status;
    bool cut = is(m, "cut");
    UNI_TRY(uni_strategy_place(m->strategy, m->model, err));
    UNI_TRY(uni_strategy_place_optimizer(m->strategy, m->optimizer, err));
    UNI_TRY_GOTO(
        uni_batches_columns(&whole, 1, &columns[0], 1, &columns[1], NULL,
                            &(uni_columns_options){ .batch_size = is(m, "empty") ? SAMPLES + 1
                                                                  : cut          ? BATCH / RANKS
                                                                                 : BATCH,
                                                    .drop_remainder = is(m, "empty") },
                            err),
        done);
    UNI_TRY_GOTO(uni_strategy_distribute_dataset(&mine, m->strategy, whole,
                                                 cut ? UNI_SHARD_OFF : UNI_SHARD_AUTO, err),
                 done);
    CHECK(err->code == 0); /* nothing went wrong, so nothing is said */
    uni_pass_options pass = { .function = step, .context = m, .batches = mine };
    status = uni_strategy_pass(&m->loss, NULL, m->strategy, &pass, err);
    int again = status < 0 ? uni_strategy_pass(&m->loss, NULL, m->strategy, &pass, &m->again) : 0;
    CHECK(status == 0 || again < 0);
done:
    uni_batches_free(mine);
    uni_batches_free(whole);
    return status;
}

/* Samples [begin, end) of every batch of the whole: what a user who cuts for himself gives rank by
 * rank. */
static void cut_for_rank(const member *m, float *x, float *y, int64_t *samples)
{
    int64_t kept = 0, half = BATCH / RANKS;
    for (int64_t i = 0; i < *samples / BATCH * BATCH; i++)
        if (i % BATCH / half == m->rank) {
            memmove(x + kept * FEATURES, x + i * FEATURES, FEATURES * sizeof *x);
            y[kept++] = y[i];
        }
    *samples = kept;
}

static void *run_rank(void *argument)
{
    member *m = argument;
    float x[SAMPLES * FEATURES], y[SAMPLES];
    int64_t samples = is(m, "samples") && m->rank == 1 ? 40 : SAMPLES / BATCH * BATCH;
    int status;
    native_data(x, y);
    if (is(m, "nan"))
        y[5] = NAN;
    if (is(m, "labels") && m->rank == 1)
        y[5] += 1;
    if (is(m, "inputs") && m->rank == 1)
        x[SAMPLES] = 0.5f;
    if (is(m, "cut"))
        cut_for_rank(m, x, y, &samples);
    uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ samples, FEATURES },
                                              x),
                              uni_column_view(UNI_F32, 2, (const int64_t[]){ samples, 1 }, y) };
    bool loop = is(m, "raises") || is(m, "empty") || is(m, "cut") || is(m, "whole");
    status = m->comm ? uni_strategy_multi_worker(&m->strategy, m->comm, NULL, &m->err)
                     : uni_strategy_mirrored(&m->strategy, 2, &m->err);
    if (status == 0)
        status = make_model(m, &m->err);
    if (status == 0)
        status = loop ? run_loop(m, columns, &m->err) : run_fit(m, columns, &m->err);
    m->status = status;
    size_t size = 0;
    const float *weights = uni_parameters_weights(uni_model_parameters(m->model), &size);
    CHECK(size <= sizeof m->weights / sizeof m->weights[0]);
    memcpy(m->weights, weights, size * sizeof *weights);
    uni_strategy_free(m->strategy);
    uni_loss_free(m->each);
    uni_optimizer_free(m->optimizer);
    uni_model_free(m->model);
    return NULL;
}

static void run_together(const char *mistake, member *ranks)
{
    uni_comm *comms[RANKS] = { NULL, NULL };
    pthread_t threads[RANKS];
    uni_error err = { 0 };
    uni_log_level_set(UNI_LOG_ERROR);
    CHECK_OK(uni_comm_open_threads(comms, RANKS, NULL, &err), &err);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (member){ .mistake = mistake, .comm = comms[i], .rank = i };
        CHECK(pthread_create(&threads[i], NULL, run_rank, &ranks[i]) == 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < RANKS; i++)
        uni_comm_close(comms[i]);
}

/* ---- scenarios ---- */

static void ranks_that_differ(uni_program *program)
{
    static const char *const rows[][2] = {
        { "units",
          "rank 1 has 131 weights in its model, rank 0 has 121: build and compile the same" },
        { "optimizer", "rank 1 has another optimizer" },
        { "rate", "rank 1 has another optimizer, or other settings of it" },
        { "epochs", "rank 1 has 3 epochs, rank 0 has 2: give fit the same options" },
        { "samples", "rank 1 has 40 samples, rank 0 has 96: give every rank the same data" },
        { "activation", "rank 1 has other layers, activations or connections in its model" },
        { "loss", "rank 1 has other layers, activations or connections in its model, or another" },
        { "labels", "rank 1 has other labels (y) than rank 0: give every rank all of the data" },
        { "inputs", "rank 1 has other inputs (x) than rank 0: give every rank all of the data" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        member ranks[RANKS];
        run_together(rows[i][0], ranks);
        for (int rank = 0; rank < RANKS; rank++) {
            CHECK(ranks[rank].status == UNI_EMISMATCH);
            CHECK_CONTAINS(ranks[rank].err.message, rows[i][1]);
        }
    }
}

/* Names that the process has given say nothing. */
static void ranks_that_are_alike(uni_program *program)
{
    member ranks[RANKS];
    run_together("names", ranks);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_OK(ranks[rank].status, &ranks[rank].err);
}

static void errors_name_their_rank(uni_program *program)
{
    member ranks[RANKS];
    run_together("raises", ranks);
    CHECK(ranks[1].status == UNI_EINVAL && strcmp(ranks[1].err.message, "no good number") == 0);
    CHECK(ranks[0].status < 0);
    CHECK_CONTAINS(ranks[0].err.message, "rank 1 failed: no good number");
    for (int i = 0; i < RANKS; i++) {
        CHECK_CONTAINS(ranks[i].again.message, "ended by an earlier error");
        CHECK_CONTAINS(ranks[i].again.message, "no good number");
    }
    run_together("nan", ranks);
    for (int i = 0; i < RANKS; i++) { /* of its own, or as the other's */
        CHECK(ranks[i].status < 0);
        CHECK_CONTAINS(ranks[i].err.message, "has NaN");
    }
}

static void pass_without_data(uni_program *program)
{
    member ranks[RANKS], alone = { .mistake = "empty" };
    run_together("empty", ranks);
    for (int i = 0; i < RANKS; i++)
        CHECK_CONTAINS(ranks[i].err.message, "a pass without a batch");
    run_rank(&alone);
    CHECK(alone.status == UNI_EINVAL);
    CHECK_CONTAINS(alone.err.message, "a pass without a batch");
    uni_strategy *none = NULL;
    uni_error err = { 0 };
    CHECK_OK(uni_strategy_none(&none, &err), &err);
    CHECK(uni_strategy_pass(NULL, NULL, none, &(uni_pass_options){ .function = step }, &err) ==
          UNI_EINVAL);
    CHECK_CONTAINS(err.message, "needs its function and its batches");
    CHECK(uni_strategy_reduce(&alone.loss, 1, none, UNI_REPLICA_SUM, NULL, UNI_AXIS_NONE, &err) ==
          UNI_EINVAL);
    CHECK_CONTAINS(err.message, "there are no values");
    uni_strategy_free(none);
}

/* Who cuts the data for himself gets the weights of the whole: the global batch is what all ranks
 * have. */
static void cut_by_the_user(uni_program *program)
{
    member whole[RANKS], cut[RANKS];
    run_together("whole", whole);
    run_together("cut", cut);
    for (int i = 0; i < RANKS; i++) {
        CHECK_OK(whole[i].status, &whole[i].err);
        CHECK_OK(cut[i].status, &cut[i].err);
        CHECK(fabs(whole[i].loss - cut[i].loss) < 1e-5);
        for (size_t j = 0; j < sizeof cut[i].weights / sizeof cut[i].weights[0]; j++)
            CHECK(fabsf(whole[i].weights[j] - cut[i].weights[j]) < 1e-6f);
    }
}

const uni_function functions[] = { { NULL, NULL } };
const scenario scenarios[] = { { "ranks_that_differ", ranks_that_differ },
                               { "ranks_that_are_alike", ranks_that_are_alike },
                               { "errors_name_their_rank", errors_name_their_rank },
                               { "pass_without_data", pass_without_data },
                               { "cut_by_the_user", cut_by_the_user },
                               { NULL, NULL } };
