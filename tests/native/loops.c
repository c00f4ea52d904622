/*
 * loops.c - loops of one's own under strategies: one function, the same weights to rounding under
 * none, mirrored and multi_worker with 1, 2, 4 and 7 replicas; the two ways to scale a loss; reduce
 * with both axes; metrics over all; what seed 002 warns of.
 */
#include <math.h>

#include "native.h"

typedef struct training {
    uni_strategy *strategy;
    uni_model *model;
    uni_optimizer *optimizer;
    uni_loss *loss;
    uni_metric *error;
    const char *scaling;
} training;

/* ---- the user's side ---- */

static uni_tensor *scale_loss(const training *t, uni_replica_context *replica, uni_tape *tape,
                              uni_tensor *each)
{
    int64_t global = uni_replica_info_of(replica)->global_batch;
    if (strcmp(t->scaling, "sum") == 0)
        return uni_op_scale(tape, uni_op_sum(tape, each), 1.0f / (float)global, 0);
    if (strncmp(t->scaling, "mean", 4) == 0)
        return uni_compute_average_loss(tape, each, NULL, 0);
    uni_tensor *average = uni_compute_average_loss(tape, each, NULL, global);
    return strncmp(t->scaling, "twice", 5) == 0
               ? uni_op_scale(tape, average, 1.0f / (float)global, 0)
               : average;
}

/* "mean" and "twice" leave it out; with "+" it is there, with "++" not divided by the replicas. */
static uni_tensor *add_penalty(const training *t, uni_replica_context *replica, uni_tape *tape,
                               uni_tensor *loss)
{
    const char *plus = strchr(t->scaling, '+');
    if (!plus && strcmp(t->scaling, "average") != 0 && strcmp(t->scaling, "sum") != 0)
        return loss;
    uni_tensor *penalty = uni_model_regularization(t->model, tape);
    if (!plus || !plus[1])
        penalty = uni_scale_regularization_loss(tape, penalty,
                                                uni_replica_info_of(replica)->num_replicas);
    return uni_op_add(tape, loss, penalty);
}

static int train_step(uni_replica_context *replica, const uni_batch *batch, void *context,
                      uni_error *err)
{
    training *t = context;
    uni_tape *tape = uni_replica_begin(replica, t->model, true, 3);
    uni_tensor *x = uni_tape_input_column(tape, &batch->x[0]),
               *y = uni_tape_input_column(tape, &batch->y[0]);
    uni_tensor *predicted = uni_model_call(t->model, tape, x);
    uni_tensor *each = uni_loss_call(t->loss, tape, y, predicted, NULL);
    uni_tensor *loss = add_penalty(t, replica, tape, scale_loss(t, replica, tape, each));
    UNI_TRY(uni_replica_apply_gradients(replica, loss, t->optimizer, err));
    UNI_TRY(uni_replica_update_metric(replica, t->error, y, predicted, NULL, err));
    return uni_replica_return(replica, loss, err);
}

static int errors_step(uni_replica_context *replica, const uni_batch *batch, void *context,
                       uni_error *err)
{
    training *t = context;
    uni_tape *tape = uni_replica_begin(replica, t->model, false, 0);
    uni_tensor *x = uni_tape_input_column(tape, &batch->x[0]),
               *y = uni_tape_input_column(tape, &batch->y[0]);
    uni_tensor *each =
        uni_loss_per_example(t->loss, tape, y, uni_model_call(t->model, tape, x), NULL);
    return uni_replica_return(replica, each, err);
}

/* An epoch of as many steps as there are, then `more` by the explicit iterator. */
static int loop(training *t, uni_batches *data, uni_value *losses, uni_error *err)
{
    const uni_per_replica *values = NULL;
    uni_batch batch;
    double loss;
    int got;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        double total = 0;
        UNI_TRY(uni_batches_reset(data, epoch, err));
        while ((got = uni_batches_next(&batch, data, err)) > 0) {
            UNI_TRY(uni_strategy_run(&values, t->strategy, train_step, t, &batch, err));
            UNI_TRY(uni_strategy_reduce(&loss, 1, t->strategy, UNI_REPLICA_SUM, values,
                                        UNI_AXIS_NONE, err));
            total += loss;
        }
        UNI_TRY(got);
        UNI_TRY(uni_list_take(losses, uni_value_float(total)));
    }
    UNI_TRY(uni_batches_reset(data, 0, err));
    UNI_TRY(uni_batches_next(&batch, data, err) == 1 ? 0 : UNI_ESTATE);
    /* The mean of all rows, whatever the parts' sizes. */
    UNI_TRY(uni_strategy_run(&values, t->strategy, errors_step, t, &batch, err));
    UNI_TRY(uni_strategy_reduce(&loss, 1, t->strategy, UNI_REPLICA_MEAN, values, 0, err));
    UNI_TRY(uni_list_take(losses, uni_value_float(loss)));
    UNI_TRY(uni_strategy_metric_result(&loss, t->strategy, t->error, err));
    return uni_list_take(losses, uni_value_float(loss));
}

static uni_reduction reduction_of(const char *name)
{
    return strcmp(name, "auto") == 0                  ? UNI_REDUCTION_AUTO
           : strcmp(name, "sum_over_batch_size") == 0 ? UNI_REDUCTION_SUM_OVER_BATCH_SIZE
                                                      : UNI_REDUCTION_NONE;
}

static int set_up(training *t, const uni_value *config, uni_session *session, uni_error *err)
{
    const char *reduction = uni_dict_get_string(config, "reduction", "none");
    t->scaling = uni_dict_get_string(config, "scaling", "average");
    UNI_TRY(uni_strategy_open(&t->strategy, uni_dict_get_string(config, "strategy", "none"),
                              session, err));
    UNI_TRY(native_model(&t->model, uni_dict_get_bool(config, "frozen", false), err));
    UNI_TRY(uni_optimizer_new(
        &t->optimizer, "sgd",
        &(uni_optimizer_options){ .momentum = 0.9,
                                  .global_clip_norm = uni_dict_get_float(config, "clip", 0) },
        err));
    UNI_TRY(uni_loss_new(&t->loss, "mse",
                         &(uni_loss_options){ .reduction = reduction_of(reduction) }, err));
    UNI_TRY(uni_metric_new(&t->error, "mae", NULL, err));
    const char *outside = uni_dict_get_string(config, "outside", "");
    if (strcmp(outside, "model") != 0)
        UNI_TRY(uni_strategy_place(t->strategy, t->model, err));
    return strcmp(outside, "optimizer") != 0
               ? uni_strategy_place_optimizer(t->strategy, t->optimizer, err)
               : 0;
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    float x[SAMPLES * FEATURES], y[SAMPLES];
    const uni_value *config = uni_session_info_of(session)->config;
    training t = { 0 };
    uni_batches *whole = NULL, *mine = NULL, *again = NULL;
    int status;
    native_data(x, y);
    uni_column columns[2] = { native_x(x), native_y(y) };
    *result = uni_value_dict();
    uni_value *losses = uni_value_list();
    UNI_TRY_GOTO(set_up(&t, config, session, err), done);
    UNI_TRY_GOTO(uni_batches_columns(
                     &whole, 1, &columns[0], 1, &columns[1], NULL,
                     &(uni_columns_options){ .batch_size = BATCH, .shuffle = true, .seed = 3 },
                     err),
                 done);
    UNI_TRY_GOTO(uni_strategy_distribute(&mine, t.strategy, whole, err), done);
    UNI_TRY_GOTO(uni_strategy_distribute(&again, t.strategy, mine, err), done); /* not cut again */
    UNI_TRY_GOTO(loop(&t, again, losses, err), done);
    UNI_TRY_GOTO(native_return_weights(*result, t.model, err), done);
done:
    if (uni_dict_take(*result, "loss", losses) < 0 && status == 0)
        status = UNI_ENOMEM;
    uni_batches_free(again);
    uni_batches_free(mine);
    uni_batches_free(whole);
    uni_metric_free(t.error);
    uni_loss_free(t.loss);
    uni_model_free(t.model);
    uni_strategy_free(t.strategy);
    uni_optimizer_free(t.optimizer);
    return status;
}

const uni_function functions[] = { { "train", train }, { NULL, NULL } };

/* ---- scenarios ---- */

static uni_value *config_for(const char *strategy, const char *key, const char *value)
{
    uni_value *config = uni_value_dict();
    CHECK(uni_dict_take(config, "strategy", uni_value_string(strategy)) == 0);
    if (key)
        CHECK(uni_dict_take(config, key, uni_value_string(value)) == 0);
    return config;
}

static void check_runs(uni_program *program, const uni_value *reference, const uni_value *extra)
{
    static const struct {
        const char *strategy;
        int workers;
    } rows[] = { { "mirrored:1", 1 },      { "mirrored:2", 1 },   { "mirrored:4", 1 },
                 { "mirrored:7", 1 },      { "multi_worker", 1 }, { "multi_worker", 2 },
                 { "multi_worker", 4 },    { "multi_worker", 7 }, { "multi_worker:2", 2 },
                 { "one_device:cpu:0", 1 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uni_value *config = uni_value_copy(extra);
        CHECK(uni_dict_take(config, "strategy", uni_value_string(rows[i].strategy)) == 0);
        uni_result *result = native_run(program, rows[i].workers, config);
        for (int rank = 0; rank < rows[i].workers; rank++) {
            double worst = native_difference(reference, uni_result_info_of(result)->returned[rank]);
            if (worst >= 2e-5)
                fprintf(stderr, "%s with %d workers differs by %g\n", rows[i].strategy,
                        rows[i].workers, worst);
            CHECK(worst < 2e-5);
            CHECK(native_difference(uni_result_info_of(result)->returned[0],
                                    uni_result_info_of(result)->returned[rank]) == 0);
        }
        uni_result_free(result);
    }
}

static void one_loop_any_strategy(uni_program *program)
{
    uni_value *extra = uni_value_dict();
    uni_result *alone = native_run(program, 1, config_for("none", NULL, NULL));
    check_runs(program, uni_result_info_of(alone)->returned[0], extra);
    uni_result_free(alone);
    uni_value_free(extra);
}

static void with_norm_and_frozen(uni_program *program)
{
    uni_value *extra = uni_value_dict(), *config = config_for("none", NULL, NULL);
    CHECK(uni_dict_take(extra, "clip", uni_value_float(0.2)) == 0);
    CHECK(uni_dict_take(extra, "frozen", uni_value_bool(true)) == 0);
    CHECK(uni_dict_take(config, "clip", uni_value_float(0.2)) == 0);
    CHECK(uni_dict_take(config, "frozen", uni_value_bool(true)) == 0);
    uni_result *alone = native_run(program, 1, config);
    check_runs(program, uni_result_info_of(alone)->returned[0], extra);
    uni_result_free(alone);
    uni_value_free(extra);
}

/* sum * 1/global and compute_average_loss. */
static void two_ways_to_scale(uni_program *program)
{
    static const char *const strategies[] = { "none", "mirrored:2" };
    for (int i = 0; i < 2; i++) {
        uni_result *sum = native_run(program, 1, config_for(strategies[i], "scaling", "sum")),
                   *average =
                       native_run(program, 1, config_for(strategies[i], "scaling", "average"));
        CHECK(native_difference(uni_result_info_of(sum)->returned[0],
                                uni_result_info_of(average)->returned[0]) < 1e-6);
        uni_result_free(sum);
        uni_result_free(average);
    }
}

/* What the worker wrote to its log, which the first lines of the run's directory have. */
static char *log_of(const uni_result *result)
{
    static char text[8192];
    char path[512];
    snprintf(path, sizeof path, "%s/logs/rank_0.log", uni_result_info_of(result)->run_dir);
    FILE *file = fopen(path, "re");
    CHECK(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void mistakes_are_told(uni_program *program)
{
    static const char *const rows[][4] = {
        /* strategy, scaling, in the log, not in the log */
        { "mirrored:2", "mean", "the mean over this replica's", "divided twice" },
        { "mirrored:2", "twice", "divided twice", "the mean over" },
        { "mirrored:2", "mean+", "the mean over this replica's", "divided twice" },
        { "mirrored:2", "twice+", "divided twice", "the mean over" },
        { "mirrored:2", "average++", "the regularisation is counted 2 times", "the loss" },
        { "none", "average++", "", "regularisation" },
        { "mirrored:2", "average", "", "loss" },
        { "mirrored:2", "sum", "", "loss" },
        { "none", "mean", "", "loss" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uni_result *result = native_run(program, 1, config_for(rows[i][0], "scaling", rows[i][1]));
        char *log = log_of(result), *found = strstr(log, rows[i][2]);
        CHECK_CONTAINS(log, rows[i][2]);
        if (rows[i][2][0])
            CHECK(!strstr(found + 1, rows[i][2])); /* once */
        if (strstr(log, rows[i][3]))
            fprintf(stderr, "row %zu: %s\n", i, log);
        CHECK(!strstr(log, rows[i][3]));
        uni_result_free(result);
    }
}

static void refused(uni_program *program, const char *strategy, const char *key, const char *value,
                    const char *sentence)
{
    uni_error err = { 0 };
    uni_value *config = config_for(strategy, key, value);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 1, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(NULL, trainer,
                          &(uni_run_options){ .function = "train", .config = config },
                          &err) == UNI_EFUNCTION);
    CHECK_CONTAINS(err.message, sentence);
    uni_value_free(config);
    uni_trainer_free(trainer);
}

static void mistakes_are_refused(uni_program *program)
{
    refused(program, "mirrored:2", "reduction", "auto", "the reduction AUTO is refused");
    refused(program, "mirrored:1", "reduction", "auto", "the reduction AUTO is refused");
    refused(program, "mirrored:2", "reduction", "sum_over_batch_size",
            "the reduction SUM_OVER_BATCH_SIZE is refused");
    refused(program, "mirrored:2", "outside", "model", "model noisy was made outside the scope");
    refused(program, "mirrored:2", "outside", "optimizer", "was made outside the scope");
    refused(program, "mirrored:gpu:0", NULL, NULL, "no GPUs");
    refused(program, "mirrored:cpu:0,cpu:0", NULL, NULL, "a device of its own");
    refused(program, "one_device:cpu:999", NULL, NULL, "there is no device");
    refused(program, "wings", NULL, NULL, "is not known");
}

/* ---- replicas that do not begin together ---- */

static int late_step(uni_replica_context *replica, const uni_batch *batch, void *context,
                     uni_error *err)
{
    training *t = context;
    if (uni_replica_info_of(replica)->id == 0)
        scenario_sleep_ms(20);
    uni_tape *tape = uni_replica_begin(replica, t->model, true, 3);
    uni_tensor *x = uni_tape_input_column(tape, &batch->x[0]),
               *y = uni_tape_input_column(tape, &batch->y[0]);
    uni_tensor *each =
        uni_loss_per_example(t->loss, tape, y, uni_model_call(t->model, tape, x), NULL);
    uni_tensor *loss =
        uni_compute_average_loss(tape, each, NULL, uni_replica_info_of(replica)->global_batch);
    return uni_replica_apply_gradients(replica, loss, t->optimizer, err);
}

/* Nothing in this model makes replicas meet before the update, which needs the whole gradient: the
 * first replica comes last. */
static void first_replica_is_late(uni_program *program)
{
    float x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    uni_column column = uni_column_view(UNI_F32, 2, (const int64_t[]){ 8, 1 }, x);
    uni_batches *batches = NULL;
    training t = { 0 };
    uni_error err = { 0 };
    CHECK_OK(uni_strategy_open(&t.strategy, "mirrored:3", NULL, &err), &err);
    CHECK_OK(uni_sequential_new(&t.model, "line",
                                UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 1 }),
                                           uni_layer_dense(1, NULL)),
                                &err),
             &err);
    CHECK_OK(uni_optimizer_new(&t.optimizer, "sgd",
                               &(uni_optimizer_options){ .global_clip_norm = 0.5 }, &err),
             &err);
    CHECK_OK(uni_strategy_place(t.strategy, t.model, &err), &err);
    CHECK_OK(uni_strategy_place_optimizer(t.strategy, t.optimizer, &err), &err);
    CHECK_OK(
        uni_loss_new(&t.loss, "mse", &(uni_loss_options){ .reduction = UNI_REDUCTION_NONE }, &err),
        &err);
    CHECK_OK(uni_batches_columns(&batches, 1, &column, 1, &column, NULL,
                                 &(uni_columns_options){ .batch_size = 4 }, &err),
             &err);
    CHECK_OK(uni_strategy_pass(
                 NULL, NULL, t.strategy,
                 &(uni_pass_options){ .function = late_step, .context = &t, .batches = batches },
                 &err),
             &err);
    CHECK(uni_optimizer_iterations(t.optimizer) == 2);
    uni_batches_free(batches);
    uni_loss_free(t.loss);
    uni_strategy_free(t.strategy);
    uni_optimizer_free(t.optimizer);
    uni_model_free(t.model);
}

const scenario scenarios[] = { { "one_loop_any_strategy", one_loop_any_strategy },
                               { "with_norm_and_frozen", with_norm_and_frozen },
                               { "two_ways_to_scale", two_ways_to_scale },
                               { "mistakes_are_told", mistakes_are_told },
                               { "mistakes_are_refused", mistakes_are_refused },
                               { "first_replica_is_late", first_replica_is_late },
                               { NULL, NULL } };
