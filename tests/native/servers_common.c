/* servers_common.c - see servers_common.h. */
#include "servers_common.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/evaluator.h>
#include <unisono/experimental/coordinator.h>

#include "weights.h"

/* Batch normalisation and dropout make it noisy; plain is a well-posed fit that ends near zero
 * whatever the order of updates. */
int servers_make_model(uni_model **out, bool noisy, const char *optimizer, int accumulate,
                       uni_error *err)
{
    uni_dense_options first = { .activation = "relu", .kernel_regularizer = { .l2 = 0.01f } };
    uni_layer *input = uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES });
    if (noisy)
        UNI_TRY(uni_sequential_new(out, "noisy",
                                   UNI_LAYERS(input, uni_layer_dense(16, &first),
                                              uni_layer_batch_normalization(NULL),
                                              uni_layer_dropout(0.3f), uni_layer_dense(1, NULL)),
                                   err));
    else
        UNI_TRY(uni_sequential_new(out, "plain", UNI_LAYERS(input, uni_layer_dense(1, NULL)), err));
    uni_model_set_seed(*out, 11);
    if (!optimizer)
        return 0; /* a loop of one's own */
    return uni_model_compile(*out,
                             &(uni_compile_options){ .optimizer_name = optimizer,
                                                     .loss_name = "mse",
                                                     .gradient_accumulation_steps = accumulate },
                             err);
}

void servers_make_data(float *x, float *y)
{
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 0;
        for (int j = 0; j < FEATURES; j++) {
            x[i * FEATURES + j] = sinf((float)(i * 7 + j * 3));
            y[i] += x[i * FEATURES + j] * (float)(j + 1) * 0.1f;
        }
    }
}

/* A slow epoch, so that there is something to kill. */
static int pause_batch(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                       uni_error *err)
{
    scenario_sleep_ms(*(int *)self);
    return 0;
}

/* The coordinator dies in its first epoch, before there is a checkpoint. */
static int die_once(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    const uni_session_info *info = uni_session_info_of(self);
    if (info->world_rank == 0 && info->attempt == 1)
        raise(SIGKILL);
    return 0;
}

/* The sidecar: [[epoch, loss], ...] of the checkpoints that it saw. */
static int note_evaluation(void *context, const uni_evaluation *evaluation, uni_error *err)
{
    uni_value *pair = uni_value_list();
    int status = uni_list_take(pair, uni_value_int(evaluation->epoch));
    status |=
        uni_list_take(pair, uni_value_float(uni_dict_get_float(evaluation->logs, "loss", NAN)));
    status |= uni_list_take(context, pair);
    return status;
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    static const uni_callback_class slow_class = { .name = "slow", .batch_end = pause_batch };
    static const uni_callback_class mortal_class = { .name = "mortal", .epoch_end = die_once };
    float x[SAMPLES * FEATURES], y[SAMPLES];
    const uni_value *config = uni_session_info_of(session)->config;
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_callback *callbacks[4] = { NULL };
    uni_value *history = NULL, *weights = NULL, *stats = NULL;
    int status, epoch = 0, pause = (int)uni_dict_get_int(config, "pause_ms", 0);
    bool noisy = uni_dict_get_bool(config, "noisy", false);
    servers_make_data(x, y);
    uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES },
                                              x),
                              uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y) };
    if (strcmp(uni_session_info_of(session)->role, "evaluator") == 0) {
        UNI_TRY_GOTO(servers_make_model(&model, noisy, "adam", 0, err), done);
        *result = uni_value_list();
        status = uni_session_evaluate(
            session, model,
            &(uni_evaluator_options){ .data = &(uni_fit_options){ .x = &columns[0],
                                                                  .num_x = 1,
                                                                  .y = &columns[1],
                                                                  .num_y = 1,
                                                                  .batch_size = 32,
                                                                  .threads = 1 },
                                      .each = note_evaluation,
                                      .context = *result,
                                      .last_epoch =
                                          (int)uni_dict_get_int(config, "epochs", EPOCHS) },
            err);
        goto done;
    }
    if (uni_session_info_of(session)->world_rank == 2)
        scenario_sleep_ms((int)uni_dict_get_int(config, "late_ms", 0));
    if (uni_session_info_of(session)->world_rank == 0)
        scenario_sleep_ms((int)uni_dict_get_int(config, "chief_late_ms", 0));
    const char *named = uni_dict_get_string(config, "strategy", "none");
    bool together = strcmp(named, "parameter_server:sync") == 0;
    uni_parameter_server_options how = {
        .mode = together ? UNI_PS_SYNCHRONOUS : UNI_PS_ASYNCHRONOUS,
        .no_replica = uni_dict_get_bool(config, "no_replica", false),
        .join_timeout = uni_dict_get_float(config, "join_timeout", 0)
    };
    if (how.no_replica || how.join_timeout > 0)
        UNI_TRY_GOTO(uni_strategy_parameter_server(&strategy, session, &how, err), done);
    else
        UNI_TRY_GOTO(uni_strategy_open(&strategy, named, session, err), done);
    UNI_TRY_GOTO(servers_make_model(&model, noisy, uni_dict_get_string(config, "optimizer", "adam"),
                                    (int)uni_dict_get_int(config, "accumulate", 0), err),
                 done);
    UNI_TRY_GOTO(uni_session_restore_model(&epoch, session, model, err), done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, model, err), done);
    if (uni_session_info_of(session)->world_rank == uni_dict_get_int(config, "leaves", -1))
        goto done;
    UNI_TRY_GOTO(uni_callback_report_checkpoint(&callbacks[0], session, 1, err), done);
    UNI_TRY_GOTO(uni_callback_new(&callbacks[1], &slow_class, &pause, err), done);
    bool dies = uni_dict_get_bool(config, "dies_first", false);
    if (dies) {
        uni_early_stopping_options patient = { .patience = 1000 };
        UNI_TRY_GOTO(uni_callback_early_stopping(&callbacks[2], &patient, err), done);
        UNI_TRY_GOTO(uni_callback_new(&callbacks[3], &mortal_class, session, err), done);
    }
    uni_fit_options options = { .x = &columns[0],
                                .num_x = 1,
                                .y = &columns[1],
                                .num_y = 1,
                                .batch_size = 32,
                                .epochs = (int)uni_dict_get_int(config, "epochs", EPOCHS),
                                .initial_epoch = epoch,
                                .seed = (uint64_t)uni_dict_get_int(config, "seed", 3),
                                .threads = 1,
                                .callbacks = callbacks,
                                .num_callbacks = dies        ? 4
                                                 : pause > 0 ? 2
                                                             : 1,
                                .validation_x = &columns[0],
                                .validation_y = &columns[1] };
    UNI_TRY_GOTO(uni_strategy_fit(&history, strategy, model, &options, err), done);
    if (!uni_strategy_info_of(strategy)->is_chief) {
        status = 0;
        goto done;
    }
    UNI_TRY_GOTO(uni_model_get_weights(&weights, model, err), done);
    *result = uni_value_dict();
    status = uni_dict_take(*result, "weights", weights);
    for (int i = 0; i < 2; i++) { /* without an epoch there are none */
        const char *name = i ? "val_loss" : "loss";
        if (uni_dict_get(history, name))
            status |= uni_dict_take(*result, name, uni_value_copy(uni_dict_get(history, name)));
    }
    status |= uni_dict_take(*result, "iterations",
                            uni_value_int(uni_optimizer_iterations(uni_model_optimizer(model))));
    if (uni_strategy_server_stats(&stats, strategy, NULL) == 0)
        status |= uni_dict_take(*result, "stats", stats);
done:
    uni_value_free(history);
    for (int i = 0; i < 4; i++)
        uni_callback_free(callbacks[i]);
    uni_model_free(model);
    uni_strategy_free(strategy);
    return status;
}

/* ---- a loop of one's own by passes ---- */

typedef struct passes {
    uni_strategy *strategy;
    uni_model *model;
    uni_optimizer *optimizer;
    uni_loss *loss;
    uni_metric *metric;
    bool fail, goes_on; /* goes_on: after the first pass, which fails */
} passes;

static int pass_step(uni_replica_context *replica, const uni_batch *batch, passes *p, bool training,
                     uni_error *err)
{
    uni_tape *tape = uni_replica_begin(replica, p->model, training, 5);
    uni_tensor *target = uni_tape_input_column(tape, &batch->y[0]);
    uni_tensor *y = uni_model_call(p->model, tape, uni_tape_input_column(tape, &batch->x[0]));
    uni_tensor *each = uni_loss_per_example(p->loss, tape, target, y, NULL);
    uni_tensor *loss =
        uni_compute_average_loss(tape, each, NULL, uni_replica_info_of(replica)->global_batch);
    /* After its batch statistics were asked for, or before. Without steps in common one worker may
     * do all of a short pass: there any fails. */
    if (p->fail && (p->goes_on || uni_replica_info_of(replica)->id == 1))
        return uni_error_set(err, UNI_EINVAL, "this part was asked to fail");
    if (training)
        UNI_TRY(uni_replica_apply_gradients(replica, loss, p->optimizer, err));
    UNI_TRY(uni_replica_update_metric(replica, p->metric, target, y, NULL, err));
    return uni_replica_return(replica, loss, err);
}

static int pass_train(uni_replica_context *replica, const uni_batch *batch, void *context,
                      uni_error *err)
{
    return pass_step(replica, batch, context, true, err);
}

static int pass_valid(uni_replica_context *replica, const uni_batch *batch, void *context,
                      uni_error *err)
{
    return pass_step(replica, batch, context, false, err);
}

/* "loss" and "val_loss" by epoch are the metric's: exact whatever the sizes of the parts. */
static int pass_epochs(passes *p, uni_session *session, uni_batches *batches, int epochs, int pause,
                       uni_value *result, uni_error *err)
{
    uni_value *sign = uni_value_dict(); /* of life, for who waits for a checkpoint */
    uni_value *losses[2] = { uni_value_list(), uni_value_list() };
    int status = 0;
    for (int i = 0; i < 2 * epochs && status == 0; i++) {
        double value = 0;
        uni_metric_reset(p->metric);
        status = uni_strategy_pass(NULL, NULL, p->strategy,
                                   &(uni_pass_options){ .function = i % 2 ? pass_valid : pass_train,
                                                        .context = p,
                                                        .batches = batches,
                                                        .epoch = i % 2 ? 0 : (uint64_t)(i / 2),
                                                        .metrics = &p->metric,
                                                        .num_metrics = 1 },
                                   err);
        if (p->goes_on && i == 0) {
            bool failed = status < 0 || !uni_strategy_info_of(p->strategy)->is_chief;
            status = failed ? 0 : uni_error_set(err, UNI_ESTATE, "the first pass did not fail");
            p->fail = false;
        }
        if (status == 0)
            status = uni_strategy_metric_result(&value, p->strategy, p->metric, err);
        if (status == 0)
            status = uni_list_take(losses[i % 2], uni_value_float(value));
        if (status == 0 && i == 1 && uni_strategy_info_of(p->strategy)->is_chief)
            status =
                uni_session_report(session, NULL, &(uni_checkpoint_source){ .dict = sign }, err);
        if (pause > 0)
            scenario_sleep_ms(pause);
    }
    uni_value_free(sign);
    status |= uni_dict_take(result, "loss", losses[0]);
    status |= uni_dict_take(result, "val_loss", losses[1]);
    return status;
}

static int pass_loop(uni_session *session, uni_value **result, uni_error *err)
{
    float x[SAMPLES * FEATURES], y[SAMPLES];
    const uni_value *config = uni_session_info_of(session)->config;
    passes p = { .fail = uni_dict_get_bool(config, "fail", false),
                 .goes_on = uni_dict_get_bool(config, "goes_on", false) };
    uni_batches *batches = NULL, *mine = NULL;
    uni_value *weights = NULL, *stats = NULL;
    int status;
    servers_make_data(x, y);
    uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES },
                                              x),
                              uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y) };
    *result = uni_value_dict();
    UNI_TRY_GOTO(uni_strategy_open(&p.strategy, uni_dict_get_string(config, "strategy", "none"),
                                   session, err),
                 done);
    UNI_TRY_GOTO(
        servers_make_model(&p.model, uni_dict_get_bool(config, "noisy", false), NULL, 0, err),
        done);
    UNI_TRY_GOTO(uni_optimizer_new(&p.optimizer, "adam", NULL, err), done);
    UNI_TRY_GOTO(uni_strategy_place_optimizer(p.strategy, p.optimizer, err), done);
    UNI_TRY_GOTO(uni_strategy_place(p.strategy, p.model, err), done);
    UNI_TRY_GOTO(
        uni_loss_new(&p.loss, "mse", &(uni_loss_options){ .reduction = UNI_REDUCTION_NONE }, err),
        done);
    UNI_TRY_GOTO(uni_metric_new(&p.metric, "MeanSquaredError", NULL, err), done);
    UNI_TRY_GOTO(uni_batches_columns(
                     &batches, 1, &columns[0], 1, &columns[1], NULL,
                     &(uni_columns_options){ .batch_size = 32, .shuffle = true, .seed = 3 }, err),
                 done);
    UNI_TRY_GOTO(uni_strategy_distribute(&mine, p.strategy, batches, err), done);
    UNI_TRY_GOTO(pass_epochs(&p, session, mine, (int)uni_dict_get_int(config, "epochs", EPOCHS),
                             (int)uni_dict_get_int(config, "pause_ms", 0), *result, err),
                 done);
    UNI_TRY_GOTO(uni_model_get_weights(&weights, p.model, err), done);
    status = uni_dict_take(*result, "weights", weights);
    status |=
        uni_dict_take(*result, "iterations", uni_value_int(uni_optimizer_iterations(p.optimizer)));
    if (uni_strategy_server_stats(&stats, p.strategy, NULL) == 0)
        status |= uni_dict_take(*result, "stats", stats);
done:
    uni_batches_free(mine);
    uni_batches_free(batches);
    uni_metric_free(p.metric);
    uni_loss_free(p.loss);
    uni_strategy_free(p.strategy);
    uni_optimizer_free(p.optimizer);
    uni_model_free(p.model);
    return status;
}

const uni_function functions[] = {
    { "train", train }, { "own_loop", servers_own_loop }, { "pass_loop", pass_loop }, { NULL, NULL }
};

/* ---- scenarios ---- */

uni_value *servers_config(const char *strategy, bool noisy)
{
    uni_value *config = uni_value_dict();
    CHECK(uni_dict_take(config, "strategy", uni_value_string(strategy)) == 0);
    CHECK(uni_dict_take(config, "noisy", uni_value_bool(noisy)) == 0);
    return config;
}

uni_result *servers_run(uni_program *program, const char *function, int workers, int servers,
                        uni_value *config, const char *from)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_log_level_set(UNI_LOG_ERROR);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = workers, .servers = servers });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){
                                 .function = function, .config = config, .from_checkpoint = from },
                             &err),
             &err);
    uni_value_free(config);
    uni_trainer_free(trainer);
    return result;
}

double servers_number(const uni_value *from, const char *key, size_t i)
{
    return uni_value_as_float(uni_list_get(uni_dict_get(from, key), i), NAN);
}

double servers_difference(const uni_value *a, const uni_value *b, size_t epochs)
{
    double worst = weights_difference(a, b);
    for (size_t i = 0; i < epochs; i++) {
        double loss = fabs(servers_number(a, "loss", i) - servers_number(b, "loss", i)),
               validation =
                   fabs(servers_number(a, "val_loss", i) - servers_number(b, "val_loss", i));
        CHECK(!isnan(loss) && !isnan(validation));
        worst = fmax(worst, fmax(loss, validation));
    }
    return worst;
}
