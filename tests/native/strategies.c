/*
 * strategies.c - fit under strategies: the same model, seed and global batch with no strategy,
 * mirrored and multi_worker over 1, 2, 3, 4 and 7 worker processes give the same loss and weights
 * to rounding, with dropout, synchronised batch normalisation, regularisers, an uneven last batch,
 * ranks without data, frozen layers and clipping by norm; the optimizer's state is whole on every
 * rank afterwards; a native run that is killed goes on from its checkpoint to the same weights;
 * what was made outside the scope is refused.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>

#include "nn/shared.h"
#include "native.h"

static int compile(uni_model *model, const uni_value *config, uni_error *err)
{
    uni_optimizer *optimizer = NULL;
    UNI_TRY(uni_optimizer_new(&optimizer, uni_dict_get_string(config, "optimizer", "adam"),
                              &(uni_optimizer_options){
                                  .clip_norm = uni_dict_get_float(config, "clip_norm", 0),
                                  .global_clip_norm = uni_dict_get_float(config, "global_clip", 0),
                              },
                              err));
    return uni_model_compile(
        model, &(uni_compile_options){ .optimizer = optimizer, .loss_name = "mse" }, err);
}

/* The optimizer's state as more "weights": it must be whole on every rank. */
static int return_state(uni_value *result, const uni_model *model, uni_error *err)
{
    const uni_optimizer *optimizer = uni_model_optimizer(model);
    double sum = 0, squares = 0;
    for (size_t slot = 0; slot < uni__optimizer_num_slots(optimizer); slot++) {
        size_t size = 0;
        const float *data = uni__optimizer_slot(optimizer, slot, &size);
        for (size_t i = 0; i < size; i++) {
            sum += (double)data[i];
            squares += (double)data[i] * (double)data[i];
        }
    }
    int status = uni_dict_take(result, "state_sum", uni_value_float(sum));
    status |= uni_dict_take(result, "state_squares", uni_value_float(squares));
    status |=
        uni_dict_take(result, "iterations", uni_value_int(uni_optimizer_iterations(optimizer)));
    return status;
}

static int return_results(uni_value **result, const uni_value *history, const uni_model *model,
                          const uni_strategy *strategy, int epoch, uni_error *err)
{
    *result = uni_value_dict();
    int status = uni_dict_take(*result, "loss", uni_value_copy(uni_dict_get(history, "loss")));
    status |= uni_dict_take(*result, "val_loss", uni_value_copy(uni_dict_get(history, "val_loss")));
    status |= uni_dict_take(*result, "replicas",
                            uni_value_int(uni_strategy_info_of(strategy)->num_replicas_in_sync));
    status |= uni_dict_take(*result, "epoch", uni_value_int(epoch));
    status |= return_state(*result, model, err);
    return status < 0 ? status : native_return_weights(*result, model, err);
}

/* Epochs 0 and 1 are reported; rank 1 dies once their checkpoints are complete, the others wait in
 * a collective. */
static int die(uni_session *session, uni_strategy *strategy, uni_error *err)
{
    if (uni_session_info_of(session)->world_rank == 1) {
        scenario_sleep_ms(300);
        raise(SIGKILL);
    }
    double one = 1;
    return uni_strategy_reduce_numbers(strategy, UNI_REPLICA_SUM, &one, 1, err);
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    float x[SAMPLES * FEATURES], y[SAMPLES];
    const uni_value *config = uni_session_info_of(session)->config;
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_callback *report = NULL;
    uni_value *history = NULL;
    int status, epoch = 0;
    native_data(x, y);
    uni_column columns[2] = { native_x(x), native_y(y) };
    UNI_TRY_GOTO(
        uni_strategy_open(&strategy, uni_dict_get_string(config, "strategy", "none"), session, err),
        done);
    UNI_TRY_GOTO(native_model(&model, uni_dict_get_bool(config, "frozen", false), err), done);
    UNI_TRY_GOTO(compile(model, config, err), done);
    uni_fit_options options = { .x = &columns[0],
                                .num_x = 1,
                                .y = &columns[1],
                                .num_y = 1,
                                .batch_size = BATCH,
                                .epochs = EPOCHS,
                                .seed = (uint64_t)uni_dict_get_int(config, "seed", 3),
                                .threads = 1,
                                .validation_x = &columns[0],
                                .validation_y = &columns[1] };
    const char *outside = uni_dict_get_string(config, "outside", "");
    if (strcmp(outside, "model") == 0) {
        status = uni_strategy_fit(NULL, strategy, model, &options, err);
        goto done;
    }
    UNI_TRY_GOTO(uni_session_restore_model(&epoch, session, model, err), done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, model, err), done);
    if (strcmp(outside, "optimizer") == 0) {
        UNI_TRY_GOTO(compile(model, config, err), done);
        status = uni_strategy_fit(NULL, strategy, model, &options, err);
        goto done;
    }
    /* A mistake of one rank, before anybody is in a step. */
    if (uni_dict_get_bool(config, "one_fails", false) &&
        uni_session_info_of(session)->world_rank == 1)
        options.validation_split = 7;
    UNI_TRY_GOTO(uni_callback_report_checkpoint(&report, session, 1, err), done);
    options.callbacks = &report;
    options.num_callbacks = 1;
    options.initial_epoch = epoch;
    bool doomed =
        uni_dict_get_bool(config, "killed", false) && uni_session_info_of(session)->attempt == 1;
    if (doomed)
        options.epochs = 2;
    UNI_TRY_GOTO(uni_strategy_fit(&history, strategy, model, &options, err), done);
    status = doomed ? die(session, strategy, err)
                    : return_results(result, history, model, strategy, epoch, err);
done:
    uni_value_free(history);
    uni_callback_free(report);
    uni_model_free(model);
    uni_strategy_free(strategy);
    return status;
}

const uni_function functions[] = { { "train", train }, { NULL, NULL } };

/* ---- scenarios ---- */

static uni_value *config_for(const char *strategy)
{
    uni_value *config = uni_value_dict();
    CHECK(uni_dict_take(config, "strategy", uni_value_string(strategy)) == 0);
    return config;
}

static uni_result *run(uni_program *program, int workers, const char *strategy)
{
    return native_run(program, workers, config_for(strategy));
}

static bool near(const uni_value *a, const uni_value *b, const char *name)
{
    double x = uni_dict_get_float(a, name, -1), y = uni_dict_get_float(b, name, -2);
    if (fabs(x - y) >= 2e-5 * (1 + fabs(x)))
        fprintf(stderr, "%s: %.9g and %.9g\n", name, x, y);
    return fabs(x - y) < 2e-5 * (1 + fabs(x));
}

static void check_same(const char *what, const uni_value *a, const uni_value *b)
{
    double worst = native_difference(a, b);
    if (worst >= 2e-5)
        fprintf(stderr, "%s differs from one by %g\n", what, worst);
    CHECK(worst < 2e-5);
    CHECK(uni_dict_get_int(a, "iterations", -1) == uni_dict_get_int(b, "iterations", -2));
    CHECK(near(a, b, "state_sum"));
    CHECK(near(a, b, "state_squares"));
}

/* Bit-equal on all ranks, and as `alone` to rounding. */
static void check_together(const uni_value *alone, uni_result *together, int workers,
                           const char *what)
{
    check_same(what, alone, uni_result_info_of(together)->returned[0]);
    for (int rank = 1; rank < workers; rank++)
        CHECK(native_difference(uni_result_info_of(together)->returned[0],
                                uni_result_info_of(together)->returned[rank]) == 0);
    uni_result_free(together);
}

static void same_for_any_number(uni_program *program)
{
    static const int counts[] = { 1, 2, 3, 4, 7 };
    static const char *const mirrored[] = { "mirrored:1", "mirrored:2", "mirrored:4",
                                            "mirrored:7" };
    uni_result *alone = run(program, 1, "none");
    const uni_value *reference = uni_result_info_of(alone)->returned[0];
    for (size_t i = 0; i < sizeof mirrored / sizeof mirrored[0]; i++) {
        uni_result *one = run(program, 1, mirrored[i]);
        CHECK(uni_dict_get_int(uni_result_info_of(one)->returned[0], "replicas", 0) ==
              mirrored[i][9] - '0');
        check_together(reference, one, 1, mirrored[i]);
    }
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        check_together(reference, run(program, counts[i], "multi_worker"), counts[i],
                       "multi_worker");
    check_together(reference, run(program, 2, "multi_worker:2"), 2, "2 workers of 2 replicas");
    uni_result_free(alone);
}

/* Without a seed for fit it is the model's, for the shuffle too. */
static void same_by_the_models_seed(uni_program *program)
{
    uni_value *configs[2] = { config_for("none"), config_for("multi_worker") };
    for (int i = 0; i < 2; i++)
        CHECK(uni_dict_take(configs[i], "seed", uni_value_int(0)) == 0);
    uni_result *alone = native_run(program, 1, configs[0]);
    check_together(uni_result_info_of(alone)->returned[0], native_run(program, 2, configs[1]), 2,
                   "multi_worker by the model's seed");
    uni_result_free(alone);
}

/* Clipping by norm needs the whole gradient, a frozen layer leaves a hole in the slices, adagrad's
 * state does not begin with zeros. */
static void same_for_any_optimizer(uni_program *program)
{
    static const struct {
        const char *optimizer;
        double clip_norm, global_clip;
        bool frozen;
    } rows[] = { { "sgd", 0.05, 0, false },
                 { "adam", 0, 0.1, true },
                 { "adagrad", 0, 0, true },
                 { "rmsprop", 0, 0, false } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uni_value *configs[2] = { config_for("none"), config_for("multi_worker") };
        for (int j = 0; j < 2; j++) {
            uni_value *c = configs[j];
            CHECK(uni_dict_take(c, "optimizer", uni_value_string(rows[i].optimizer)) == 0);
            CHECK(uni_dict_take(c, "clip_norm", uni_value_float(rows[i].clip_norm)) == 0);
            CHECK(uni_dict_take(c, "global_clip", uni_value_float(rows[i].global_clip)) == 0);
            CHECK(uni_dict_take(c, "frozen", uni_value_bool(rows[i].frozen)) == 0);
        }
        uni_result *alone = native_run(program, 1, configs[0]);
        check_together(uni_result_info_of(alone)->returned[0], native_run(program, 3, configs[1]),
                       3, rows[i].optimizer);
        uni_result_free(alone);
    }
}

static void killed_and_resumed(uni_program *program)
{
    uni_value *config = config_for("multi_worker");
    CHECK(uni_dict_take(config, "killed", uni_value_bool(true)) == 0);
    uni_result *undisturbed = run(program, 2, "multi_worker"),
               *disturbed = native_run(program, 2, config);
    CHECK(uni_result_info_of(disturbed)->attempts == 2);
    const uni_value *a = uni_result_info_of(undisturbed)->returned[0],
                    *b = uni_result_info_of(disturbed)->returned[0];
    CHECK(uni_dict_get_int(b, "epoch", -1) == 2);
    /* The last epoch was trained once more from the checkpoint: same weights and state. */
    uni_value *wa = uni_value_copy(a), *wb = uni_value_copy(b);
    uni_dict_remove(wa, "loss");
    uni_dict_remove(wb, "loss");
    uni_dict_remove(wa, "val_loss");
    uni_dict_remove(wb, "val_loss");
    check_same("the resumed run", wa, wb);
    uni_value_free(wa);
    uni_value_free(wb);
    uni_result_free(undisturbed);
    uni_result_free(disturbed);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void outside_is_refused(uni_program *program)
{
    static const char *const outside[] = { "model", "optimizer" };
    for (int i = 0; i < 2; i++) {
        uni_error err = { 0 };
        uni_value *config = config_for("mirrored:2");
        CHECK(uni_dict_take(config, "outside", uni_value_string(outside[i])) == 0);
        uni_trainer *trainer = scenario_trainer(
            program, (uni_trainer_options){ .num_workers = 1, .max_failures = UNI_NO_RETRIES });
        CHECK(uni_trainer_fit(NULL, trainer,
                              &(uni_run_options){ .function = "train", .config = config },
                              &err) == UNI_EFUNCTION);
        CHECK_CONTAINS(err.message, outside[i]);
        CHECK_CONTAINS(err.message, "outside the scope");
        uni_value_free(config);
        uni_trainer_free(trainer);
    }
}

/* v1's reports wait for the driver, which waits for all ranks; the chief's callbacks run before
 * those of the others: nobody may wait inside of them. */
static void reports_in_lockstep(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = config_for("multi_worker");
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 3, .lockstep = true });
    CHECK_OK(uni_trainer_fit(
                 &result, trainer,
                 &(uni_run_options){ .function = "train", .config = config, .time_limit = 60 },
                 &err),
             &err);
    for (int rank = 0; rank < 3; rank++)
        CHECK(uni_result_info_of(result)->iterations[rank] == EPOCHS);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* The others are told why, and at once. */
static void error_of_one_rank(uni_program *program)
{
    uni_error err = { 0 };
    uni_value *config = config_for("multi_worker");
    CHECK(uni_dict_take(config, "one_fails", uni_value_bool(true)) == 0);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 3, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(
              NULL, trainer,
              &(uni_run_options){ .function = "train", .config = config, .time_limit = 60 },
              &err) == UNI_EFUNCTION);
    CHECK_CONTAINS(err.message, "validation_split 7");
    uni_value_free(config);
    uni_trainer_free(trainer);
}

/* A model that was freed leaves its address to the next one, not its place under the strategy. */
static void address_that_comes_again(uni_program *program)
{
    float x[SAMPLES * FEATURES], y[SAMPLES];
    uni_error err = { 0 };
    uni_strategy *strategy = NULL;
    native_data(x, y);
    uni_column columns[2] = { native_x(x), native_y(y) };
    uni_fit_options options = { .x = &columns[0], .num_x = 1, .y = &columns[1], .num_y = 1 };
    CHECK_OK(uni_strategy_none(&strategy, &err), &err);
    uintptr_t before = 0;
    int again = 0;
    for (int i = 0; i < 20; i++) {
        uni_model *model = NULL;
        CHECK_OK(native_model(&model, false, &err), &err);
        CHECK_OK(compile(model, NULL, &err), &err);
        again += (uintptr_t)model == before;
        before = (uintptr_t)model;
        CHECK(uni_strategy_fit(NULL, strategy, model, &options, &err) == UNI_ESTATE);
        CHECK_OK(uni_strategy_place(strategy, model, &err), &err);
        uni_model_free(model);
    }
    if (again == 0)
        fprintf(stderr, "(no address came twice)\n");
    uni_strategy_free(strategy);
}

/* ---- weights that drift apart in a loop of one's own ---- */

typedef struct drifter {
    uni_comm *comm;
    uni_model *model;
    uni_optimizer *optimizer;
    uni_loss *loss;
    int rank, failed_at, status;
    uni_error err;
} drifter;

static int drift_step(uni_replica_context *replica, const uni_batch *batch, void *context,
                      uni_error *err)
{
    drifter *d = context;
    uni_tape *tape = uni_replica_begin(replica, d->model, true, 1);
    uni_tensor *y = uni_model_call(d->model, tape, uni_tape_input_column(tape, &batch->x[0]));
    uni_tensor *each =
        uni_loss_per_example(d->loss, tape, uni_tape_input_column(tape, &batch->y[0]), y, NULL);
    return uni_replica_apply_gradients(
        replica,
        uni_compute_average_loss(tape, each, NULL, uni_replica_info_of(replica)->global_batch),
        d->optimizer, err);
}

/* After step 7 rank 1 has another weight; every fifth step is looked at. */
static int drift(drifter *d, uni_strategy *strategy, uni_batches *mine, uni_error *err)
{
    uni_batch batch;
    UNI_TRY(uni_batches_reset(mine, 0, err));
    for (d->failed_at = 1; d->failed_at <= 20; d->failed_at++) {
        UNI_TRY(uni_batches_next(&batch, mine, err));
        UNI_TRY(uni_strategy_run(NULL, strategy, drift_step, d, &batch, err));
        if (d->failed_at == 7 && d->rank == 1)
            uni_parameters_weights(uni_model_parameters(d->model), NULL)[0] += 0.5f;
    }
    return 0;
}

static void *drift_rank(void *argument)
{
    drifter *d = argument;
    float x[SAMPLES * FEATURES], y[SAMPLES];
    uni_strategy *strategy = NULL;
    uni_batches *whole = NULL, *mine = NULL;
    uni_error *err = &d->err;
    int status = 0;
    native_data(x, y);
    uni_column columns[2] = { native_x(x), native_y(y) };
    UNI_TRY_GOTO(uni_strategy_multi_worker(&strategy, d->comm,
                                           &(uni_multi_worker_options){ .check_every = 5 }, err),
                 done);
    UNI_TRY_GOTO(native_model(&d->model, false, err), done);
    UNI_TRY_GOTO(uni_optimizer_new(&d->optimizer, "sgd", NULL, err), done);
    UNI_TRY_GOTO(
        uni_loss_new(&d->loss, "mse", &(uni_loss_options){ .reduction = UNI_REDUCTION_NONE }, err),
        done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, d->model, err), done);
    UNI_TRY_GOTO(uni_strategy_place_optimizer(strategy, d->optimizer, err), done);
    UNI_TRY_GOTO(uni_batches_columns(&whole, 1, &columns[0], 1, &columns[1], NULL,
                                     &(uni_columns_options){ .batch_size = 16, .repeat = true },
                                     err),
                 done);
    UNI_TRY_GOTO(uni_strategy_distribute(&mine, strategy, whole, err), done);
    status = drift(d, strategy, mine, err);
done:
    d->status = status;
    uni_batches_free(mine);
    uni_batches_free(whole);
    uni_strategy_free(strategy);
    uni_loss_free(d->loss);
    uni_optimizer_free(d->optimizer);
    uni_model_free(d->model);
    return NULL;
}

static void drift_in_a_loop(uni_program *program)
{
    uni_comm *comms[2] = { NULL, NULL };
    drifter ranks[2] = { { .rank = 0 }, { .rank = 1 } };
    pthread_t threads[2];
    uni_error err = { 0 };
    uni_log_level_set(UNI_LOG_ERROR);
    CHECK_OK(uni_comm_open_threads(comms, 2, NULL, &err), &err);
    for (int i = 0; i < 2; i++) {
        ranks[i].comm = comms[i];
        CHECK(pthread_create(&threads[i], NULL, drift_rank, &ranks[i]) == 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        uni_comm_close(comms[i]);
        CHECK(ranks[i].status < 0 && ranks[i].failed_at == 10);
    }
    CHECK(ranks[0].status == UNI_EMISMATCH || ranks[1].status == UNI_EMISMATCH);
    CHECK_CONTAINS(ranks[ranks[1].status == UNI_EMISMATCH].err.message,
                   "the weights of the replicas");
}

const scenario scenarios[] = { { "same_for_any_number", same_for_any_number },
                               { "same_by_the_models_seed", same_by_the_models_seed },
                               { "same_for_any_optimizer", same_for_any_optimizer },
                               { "killed_and_resumed", killed_and_resumed },
                               { "outside_is_refused", outside_is_refused },
                               { "reports_in_lockstep", reports_in_lockstep },
                               { "error_of_one_rank", error_of_one_rank },
                               { "address_that_comes_again", address_that_comes_again },
                               { "drift_in_a_loop", drift_in_a_loop },
                               { NULL, NULL } };
