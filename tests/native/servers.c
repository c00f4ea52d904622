/*
 * servers.c - parameter servers as users run them: the same result as one process in synchronous mode, other numbers of servers after a checkpoint, staleness
 * within its bound, and every role killed or stopped in the middle of training.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <unisono/native.h>

#include "../train/scenario.h"

#define SAMPLES 101
#define FEATURES 8
#define EPOCHS 4

/* Batch normalisation and dropout make it noisy; plain is a well-posed fit that ends near zero whatever the order of updates. */
static int make_model(uni_model **out, bool noisy, const char *optimizer, int accumulate,
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
    return uni_model_compile(*out,
                             &(uni_compile_options){ .optimizer_name = optimizer,
                                                     .loss_name = "mse",
                                                     .gradient_accumulation_steps = accumulate },
                             err);
}

static void make_data(float *x, float *y)
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

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    static const uni_fit_callback_class slow_class = { .name = "slow", .batch_end = pause_batch };
    float x[SAMPLES * FEATURES], y[SAMPLES];
    const uni_value *config = uni_session_config(session);
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_fit_callback *callbacks[2] = { NULL, NULL };
    uni_value *history = NULL, *weights = NULL, *stats = NULL;
    int status, epoch = 0, pause = (int)uni_dict_get_int(config, "pause_ms", 0);
    bool noisy = uni_dict_get_bool(config, "noisy", false);
    make_data(x, y);
    uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES },
                                              x),
                              uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y) };
    if (uni_dict_get_bool(config, "no_replica", false))
        UNI_TRY_GOTO(
            uni_strategy_parameter_server(
                &strategy, session, &(uni_parameter_server_options){ .no_replica = true }, err),
            done);
    else
        UNI_TRY_GOTO(uni_strategy_open(&strategy, uni_dict_get_string(config, "strategy", "none"),
                                       session, err),
                     done);
    UNI_TRY_GOTO(make_model(&model, noisy, uni_dict_get_string(config, "optimizer", "adam"),
                            (int)uni_dict_get_int(config, "accumulate", 0), err),
                 done);
    UNI_TRY_GOTO(uni_session_restore_model(session, model, &epoch, err), done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, model, err), done);
    UNI_TRY_GOTO(uni_callback_report_checkpoint(&callbacks[0], session, 1, err), done);
    UNI_TRY_GOTO(uni_fit_callback_new(&callbacks[1], &slow_class, &pause, err), done);
    uni_fit_options options = { .x = &columns[0],
                                .num_x = 1,
                                .y = &columns[1],
                                .num_y = 1,
                                .batch_size = 32,
                                .epochs = (int)uni_dict_get_int(config, "epochs", EPOCHS),
                                .initial_epoch = epoch,
                                .seed = 3,
                                .threads = 1,
                                .callbacks = callbacks,
                                .num_callbacks = pause > 0 ? 2 : 1,
                                .validation_x = &columns[0],
                                .validation_y = &columns[1] };
    UNI_TRY_GOTO(uni_strategy_fit(strategy, model, &options, &history, err), done);
    if (!uni_strategy_is_chief(strategy)) {
        status = 0;
        goto done;
    }
    UNI_TRY_GOTO(uni_model_get_weights(model, &weights, err), done);
    *result = uni_value_dict();
    status = uni_dict_take(*result, "loss", uni_value_copy(uni_dict_get(history, "loss")));
    status |= uni_dict_take(*result, "val_loss", uni_value_copy(uni_dict_get(history, "val_loss")));
    status |= uni_dict_take(*result, "weights", weights);
    status |= uni_dict_take(*result, "iterations",
                            uni_value_int(uni_optimizer_iterations(uni_model_optimizer(model))));
    if (uni_strategy_server_stats(strategy, &stats, NULL) == 0)
        status |= uni_dict_take(*result, "stats", stats);
done:
    uni_value_free(history);
    for (int i = 0; i < 2; i++)
        uni_fit_callback_free(callbacks[i]);
    uni_model_free(model);
    uni_strategy_free(strategy);
    return status;
}

/* ---- a loop of one's own ---- */

typedef struct loop {
    uni_model *model;
    uni_tape *tape;
    uni_gradients *gradients;
    uni_loss *loss;
    float x[SAMPLES * FEATURES], y[SAMPLES];
} loop;

static int make_dataset(void *context, int worker, int num_workers, uni_batches **out,
                        uni_error *err)
{
    loop *l = context;
    int64_t begin = SAMPLES * worker / num_workers, end = SAMPLES * (worker + 1) / num_workers;
    uni_column columns[2] = {
        uni_column_view(UNI_F32, 2, (const int64_t[]){ end - begin, FEATURES },
                        l->x + begin * FEATURES),
        uni_column_view(UNI_F32, 2, (const int64_t[]){ end - begin, 1 }, l->y + begin)
    };
    return uni_batches_columns(out, 1, &columns[0], 1, &columns[1], NULL,
                               &(uni_columns_options){ .batch_size = 16, .repeat = true }, err);
}

/* {"loss": mean of the batch} */
static int train_step(uni_step_context *step, const uni_value *arguments, uni_value **result,
                      uni_error *err)
{
    loop *l = uni_step_context_of(step);
    uni_batch batch;
    if (uni_dict_get_bool(arguments, "poison", false))
        raise(SIGKILL);
    if (uni_dict_get_bool(arguments, "fail", false))
        return uni_error_set(err, UNI_EINVAL, "this call was asked to fail");
    UNI_TRY(uni_step_next(step, "train", &batch, err));
    UNI_TRY(uni_step_pull(step, err));
    uni_tape_begin(l->tape, &(uni_step){ .training = true, .gradients = l->gradients });
    uni_tensor *y = uni_model_call(l->model, l->tape, uni_tape_input_column(l->tape, &batch.x[0]));
    uni_tensor *each = uni_loss_per_example(l->loss, l->tape,
                                            uni_tape_input_column(l->tape, &batch.y[0]), y, NULL);
    uni_tensor *sum = uni_op_sum(l->tape, each);
    UNI_TRY(uni_tape_status(l->tape, err));
    UNI_TRY(uni_tape_gradient(l->tape, sum, NULL, err));
    UNI_TRY(uni_step_push(step, l->gradients, (double)batch.size, err));
    *result = uni_value_dict();
    return uni_dict_take(*result, "loss",
                         uni_value_float(uni_tensor_scalar(sum) / (double)batch.size));
}

static int drive(uni_coordinator *coordinator, const uni_value *config, uni_value **result,
                 uni_error *err)
{
    int rounds = (int)uni_dict_get_int(config, "rounds", 30);
    uni_value *losses = uni_value_list(), *fails = uni_value_dict(), *nothing = uni_value_dict(),
              *stats = NULL;
    int status = uni_dict_take(fails, "fail", uni_value_bool(true));
    status |= uni_dict_take(nothing, "poison",
                            uni_value_bool(uni_dict_get_bool(config, "poison", false)));
    for (int i = 0; i < rounds; i++) {
        uni_remote_value *remotes[5];
        double sum = 0;
        for (int j = 0; j < 5; j++)
            UNI_TRY_GOTO(
                uni_coordinator_schedule(coordinator, "train_step", nothing, &remotes[j], err),
                done);
        UNI_TRY_GOTO(uni_coordinator_join(coordinator, err), done);
        if (!uni_coordinator_done(coordinator))
            status = uni_error_set(err, UNI_ESTATE, "join returned with calls left");
        for (int j = 0; j < 5; j++) {
            const uni_value *value = NULL;
            UNI_TRY_GOTO(uni_remote_value_fetch(remotes[j], &value, err), done);
            sum += uni_dict_get_float(value, "loss", NAN) / 5;
            uni_remote_value_free(remotes[j]);
        }
        status |= uni_list_take(losses, uni_value_float(sum));
    }
    /* The error of a step function is join's error, and the next join has none. */
    uni_error failed = { 0 };
    uni_value *said = NULL;
    if (uni_dict_get_bool(config, "fails", true)) {
        UNI_TRY_GOTO(uni_coordinator_schedule(coordinator, "train_step", fails, NULL, err), done);
        if (uni_coordinator_join(coordinator, &failed) == 0)
            status = uni_error_set(err, UNI_ESTATE, "join did not return the step's error");
        said = uni_value_string(failed.message);
        UNI_TRY_GOTO(uni_coordinator_join(coordinator, err), done);
    }
    UNI_TRY_GOTO(uni_coordinator_pull(coordinator, err), done);
    UNI_TRY_GOTO(uni_coordinator_stats(coordinator, &stats, err), done);
    *result = uni_value_dict();
    status |= uni_dict_take(*result, "losses", losses);
    status |= uni_dict_take(*result, "stats", stats);
    status |= uni_dict_take(*result, "failed", said ? said : uni_value_null());
    losses = NULL;
done:
    uni_value_free(losses);
    uni_value_free(fails);
    uni_value_free(nothing);
    return status;
}

static int own_loop(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_config(session);
    uni_strategy *strategy = NULL;
    uni_coordinator *coordinator = NULL;
    loop l = { 0 };
    uni_step_entry steps[] = { { "train_step", train_step, &l }, { NULL, NULL, NULL } };
    int status;
    make_data(l.x, l.y);
    UNI_TRY_GOTO(uni_strategy_open(&strategy,
                                   uni_dict_get_string(config, "strategy", "parameter_server"),
                                   session, err),
                 done);
    UNI_TRY_GOTO(make_model(&l.model, false, "adam", 0, err), done);
    UNI_TRY_GOTO(uni_optimizer_set_learning_rate(uni_model_optimizer(l.model), 0.02, err), done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, l.model, err), done);
    UNI_TRY_GOTO(uni_tape_new(&l.tape, &(uni_tape_options){ .threads = 1 }, err), done);
    UNI_TRY_GOTO(uni_gradients_new(&l.gradients, uni_model_parameters(l.model), err), done);
    UNI_TRY_GOTO(
        uni_loss_new(&l.loss, "mse", &(uni_loss_options){ .reduction = UNI_REDUCTION_NONE }, err),
        done);
    UNI_TRY_GOTO(uni_coordinator_open(&coordinator, strategy, steps, err), done);
    UNI_TRY_GOTO(uni_coordinator_per_worker_dataset(coordinator, "train", make_dataset, &l, err),
                 done);
    status = uni_coordinator_is_here(coordinator) ? drive(coordinator, config, result, err)
                                                  : uni_coordinator_serve(coordinator, err);
done:
    uni_coordinator_close(coordinator);
    uni_loss_free(l.loss);
    uni_gradients_free(l.gradients);
    uni_tape_free(l.tape);
    uni_model_free(l.model);
    uni_strategy_free(strategy);
    return status;
}

const uni_function functions[] = { { "train", train }, { "own_loop", own_loop }, { NULL, NULL } };

/* ---- scenarios ---- */

static uni_value *config_of(const char *strategy, bool noisy)
{
    uni_value *config = uni_value_dict();
    CHECK(uni_dict_take(config, "strategy", uni_value_string(strategy)) == 0);
    CHECK(uni_dict_take(config, "noisy", uni_value_bool(noisy)) == 0);
    return config;
}

static uni_result *run(uni_program *program, const char *function, int workers, int servers,
                       uni_value *config, const char *from)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_log_level_set(UNI_LOG_ERROR);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = workers, .servers = servers });
    CHECK_OK(uni_trainer_fit(trainer,
                             &(uni_run_options){
                                 .function = function, .config = config, .from_checkpoint = from },
                             &result, &err),
             &err);
    uni_value_free(config);
    uni_trainer_free(trainer);
    return result;
}

static double number_at(const uni_value *from, const char *key, size_t i)
{
    return uni_value_as_float(uni_list_get(uni_dict_get(from, key), i), NAN);
}

static double worst_difference(const uni_value *a, const uni_value *b, size_t epochs)
{
    double worst = 0;
    const uni_value *wa = uni_dict_get(a, "weights"), *wb = uni_dict_get(b, "weights");
    CHECK(uni_list_size(wa) > 0 && uni_list_size(wa) == uni_list_size(wb));
    for (size_t i = 0; i < uni_list_size(wa); i++) {
        uni_array *x = uni_value_as_array(uni_list_get(wa, i)),
                  *y = uni_value_as_array(uni_list_get(wb, i));
        CHECK(x && y && uni_array_count(x) == uni_array_count(y));
        for (size_t j = 0; j < uni_array_count(x); j++)
            worst = fmax(worst, fabs((double)((float *)uni_array_data(x))[j] -
                                     (double)((float *)uni_array_data(y))[j]));
    }
    for (size_t i = 0; i < epochs; i++) {
        double loss = fabs(number_at(a, "loss", i) - number_at(b, "loss", i)),
               validation = fabs(number_at(a, "val_loss", i) - number_at(b, "val_loss", i));
        CHECK(!isnan(loss) && !isnan(validation));
        worst = fmax(worst, fmax(loss, validation));
    }
    return worst;
}

/* Dropout, synchronised batch normalisation, a regulariser, an uneven last batch. */
static void synchronous_is_one_process(uni_program *program)
{
    static const int counts[][2] = { { 1, 1 }, { 2, 1 }, { 2, 3 }, { 3, 2 } };
    uni_result *alone = run(program, "train", 1, 0, config_of("none", true), NULL);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uni_result *served = run(program, "train", counts[i][0], counts[i][1],
                                 config_of("parameter_server:sync", true), NULL);
        const uni_value *a = uni_result_returned(alone, 0), *b = uni_result_returned(served, 0);
        double worst = worst_difference(a, b, EPOCHS);
        if (worst >= 2e-5)
            fprintf(stderr, "%d workers and %d servers differ from one process by %g\n",
                    counts[i][0], counts[i][1], worst);
        CHECK(worst < 2e-5);
        CHECK(uni_dict_get_int(b, "iterations", -1) == uni_dict_get_int(a, "iterations", -2));
        uni_result_free(served);
    }
    uni_result_free(alone);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* ---- modes ---- */

static void asynchronous_converges(uni_program *program)
{
    static const char *const names[] = { "parameter_server", "parameter_server:bounded=1",
                                         "parameter_server:bounded=0" };
    static const size_t bounds[] = { 1000, 1, 0 };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uni_value *config = config_of(names[i], false);
        CHECK(uni_dict_take(config, "epochs", uni_value_int(40)) == 0);
        CHECK(uni_dict_take(config, "optimizer", uni_value_string("rmsprop")) == 0);
        uni_result *result = run(program, "train", 2, 2, config, NULL);
        const uni_value *returned = uni_result_returned(result, 0),
                        *stats = uni_dict_get(returned, "stats"),
                        *histogram = uni_dict_get(stats, "staleness");
        /* Every batch of every epoch is one update, each sample counted once. */
        CHECK(uni_dict_get_int(returned, "iterations", 0) == 40 * 4);
        CHECK(uni_dict_get_int(stats, "updates", 0) == 40 * 4);
        CHECK(number_at(returned, "loss", 39) < 0.5 * number_at(returned, "loss", 0));
        CHECK(uni_list_size(histogram) >= 1 && uni_list_size(histogram) <= bounds[i] + 1);
        uni_result_free(result);
    }
}

static void checkpoint_in_other_numbers(uni_program *program)
{
    /* 2 servers, then 3, then 1, then none: the same as never stopped. */
    static const int servers[] = { 2, 3, 1, 0 };
    uni_value *whole = config_of("none", true);
    CHECK(uni_dict_take(whole, "epochs", uni_value_int(8)) == 0);
    uni_result *alone = run(program, "train", 1, 0, whole, NULL), *before = NULL;
    for (int i = 0; i < 4; i++) {
        uni_value *config = config_of(servers[i] ? "parameter_server:sync" : "none", true);
        CHECK(uni_dict_take(config, "epochs", uni_value_int(2 * (i + 1))) == 0);
        uni_result *part = run(program, "train", servers[i] ? 2 : 1, servers[i], config,
                               before ? uni_result_latest_checkpoint(before) : NULL);
        uni_result_free(before);
        before = part;
    }
    CHECK(worst_difference(uni_result_returned(alone, 0), uni_result_returned(before, 0), 0) <
          2e-5);
    uni_result_free(before);
    uni_result_free(alone);
}

static void loop_of_ones_own(uni_program *program)
{
    static const char *const names[] = { "parameter_server", "parameter_server:bounded=1",
                                         "parameter_server:sync" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uni_value *config = config_of(names[i], false);
        bool synchronous = i == 2;
        /* A part that fails leaves the others of its step waiting: not here. */
        CHECK(uni_dict_take(config, "fails", uni_value_bool(!synchronous)) == 0);
        uni_result *result = run(program, "own_loop", 2, 2, config, NULL);
        const uni_value *returned = uni_result_returned(result, 0);
        CHECK(number_at(returned, "losses", 29) < 0.3 * number_at(returned, "losses", 0));
        /* 5 calls a round: synchronous steps of 2 with one empty part. */
        CHECK(uni_dict_get_int(uni_dict_get(returned, "stats"), "updates", 0) ==
              (synchronous ? 3 : 5) * 30);
        if (!synchronous)
            CHECK_CONTAINS(uni_dict_get_string(returned, "failed", ""), "asked to fail");
        uni_result_free(result);
    }
}

/* ---- deaths ---- */

typedef struct killer {
    uni_trainer *trainer;
    const int *ranks; /* one after the other, -1 ends */
    int signal, every_ms, done;
    _Atomic int over;
} killer;

static void *kill_members(void *argument)
{
    killer *k = argument;
    const char *dir;
    while (!(dir = uni_trainer_latest_run_dir(k->trainer)) && !k->over)
        scenario_sleep_ms(5);
    if (dir)
        scenario_wait_checkpoint(dir, 1); /* everybody is at work */
    for (int i = 0; dir && k->ranks[i] >= 0 && !k->over; i++) {
        scenario_sleep_ms(k->every_ms);
        int pid = k->over ? 0 : scenario_worker_pid(dir, k->ranks[i]);
        if (pid > 0 && !k->over && kill(pid, k->signal) == 0)
            k->done++;
    }
    return NULL;
}

static uni_result *run_and_kill(uni_program *program, uni_value *config, const int *ranks,
                                int signal, int every_ms, double silent_timeout)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    pthread_t thread;
    uni_log_level_set(UNI_LOG_ERROR);
    killer k = { .ranks = ranks, .signal = signal, .every_ms = every_ms };
    k.trainer = scenario_trainer(
        program,
        (uni_trainer_options){
            .num_workers = 2, .servers = 2, .max_failures = 20, .silent_timeout = silent_timeout });
    CHECK(pthread_create(&thread, NULL, kill_members, &k) == 0);
    CHECK_OK(uni_trainer_fit(k.trainer, &(uni_run_options){ .function = "train", .config = config },
                             &result, &err),
             &err);
    k.over = 1;
    pthread_join(thread, NULL);
    for (int i = 0; ranks[i] >= 0; i++)
        k.done -= 1;
    CHECK(k.done == 0); /* all of them happened while it trained */
    uni_value_free(config);
    uni_trainer_free(k.trainer);
    return result;
}

static uni_value *slow_config(const char *strategy, bool noisy, int epochs)
{
    uni_value *config = config_of(strategy, noisy);
    CHECK(uni_dict_take(config, "epochs", uni_value_int(epochs)) == 0);
    CHECK(uni_dict_take(config, "pause_ms", uni_value_int(10)) == 0);
    return config;
}

/* Synchronous with everything that needs the others in the middle of a step, killed everywhere: the same as one process. */
static void compare_with_one_process(uni_program *program, const int *ranks, int signal,
                                     int every_ms, int epochs, double silent_timeout, int attempts)
{
    uni_value *whole = config_of("none", true);
    CHECK(uni_dict_take(whole, "epochs", uni_value_int(epochs)) == 0);
    uni_result *alone = run(program, "train", 1, 0, whole, NULL);
    uni_result *killed = run_and_kill(program, slow_config("parameter_server:sync", true, epochs),
                                      ranks, signal, every_ms, silent_timeout);
    const uni_value *a = uni_result_returned(alone, 0), *b = uni_result_returned(killed, 0);
    CHECK(uni_result_attempts(killed) == attempts);
    double worst = worst_difference(a, b, attempts == 1 ? (size_t)epochs : 0);
    if (worst >= 2e-5)
        fprintf(stderr, "after the deaths it differs from one process by %g\n", worst);
    CHECK(worst < 2e-5);
    CHECK(uni_dict_get_int(b, "iterations", -1) == uni_dict_get_int(a, "iterations", -2));
    if (attempts == 1)
        CHECK(uni_dict_get_int(uni_dict_get(b, "stats"), "restored", 0) > 0);
    uni_result_free(alone);
    uni_result_free(killed);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void members_killed(uni_program *program)
{
    /* ranks: 0 coordinator, 1 and 2 workers, 3 and 4 servers */
    static const int ranks[] = { 1, 3, 2, 4, 3, 1, -1 };
    compare_with_one_process(program, ranks, SIGKILL, 120, 60, 0, 1);
}

static void coordinator_killed(uni_program *program)
{
    static const int ranks[] = { 0, 3, 0, 1, -1 };
    compare_with_one_process(program, ranks, SIGKILL, 250, 60, 0, 3);
}

static void members_stopped(uni_program *program)
{
    static const int ranks[] = { 3, 1, -1 };
    compare_with_one_process(program, ranks, SIGSTOP, 150, 30, 0.5, 1);
}

/* Every update counts once, whoever dies. */
static void asynchronous_killed(uni_program *program)
{
    static const int ranks[] = { 1, 3, 2, 4, 1, -1 };
    uni_value *config = slow_config("parameter_server", false, 40);
    CHECK(uni_dict_take(config, "optimizer", uni_value_string("rmsprop")) == 0);
    uni_result *killed = run_and_kill(program, config, ranks, SIGKILL, 120, 0);
    const uni_value *returned = uni_result_returned(killed, 0);
    CHECK(uni_result_attempts(killed) == 1);
    CHECK(uni_dict_get_int(returned, "iterations", 0) == 40 * 4);
    CHECK(number_at(returned, "loss", 39) < 0.5 * number_at(returned, "loss", 0));
    uni_result_free(killed);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* Without a replica a server goes back to the last checkpoint; the others and the coordinator go on. */
static void server_without_replica(uni_program *program)
{
    static const int ranks[] = { 3, 4, -1 };
    uni_value *config = slow_config("parameter_server", false, 40);
    CHECK(uni_dict_take(config, "optimizer", uni_value_string("rmsprop")) == 0);
    CHECK(uni_dict_take(config, "no_replica", uni_value_bool(true)) == 0);
    uni_result *killed = run_and_kill(program, config, ranks, SIGKILL, 150, 0);
    const uni_value *returned = uni_result_returned(killed, 0);
    CHECK(uni_result_attempts(killed) == 1);
    CHECK(uni_dict_get_int(uni_dict_get(returned, "stats"), "restored", 0) == 2);
    CHECK(number_at(returned, "loss", 39) < 0.5 * number_at(returned, "loss", 0));
    uni_result_free(killed);
}

/* ---- mistakes ---- */

static void mistakes_are_told(uni_program *program)
{
    static const struct {
        int workers, servers;
        const char *strategy, *sentence;
        int accumulate;
    } cases[] = { { 2, 0, "parameter_server", "--servers 1", 0 },
                  { 1, 1, "parameter_server:bounded=-1", "bounded=N", 0 },
                  { 1, 1, "parameter_server:never", "async, sync, bounded=N", 0 },
                  { 1, 1, "parameter_server", "larger batch_size", 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_error err = { 0 };
        uni_value *config = config_of(cases[i].strategy, false);
        CHECK(uni_dict_take(config, "accumulate", uni_value_int(cases[i].accumulate)) == 0);
        uni_log_level_set(UNI_LOG_ERROR);
        uni_trainer *trainer =
            scenario_trainer(program, (uni_trainer_options){ .num_workers = cases[i].workers,
                                                             .servers = cases[i].servers,
                                                             .max_failures = UNI_NO_RETRIES });
        CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "train", .config = config },
                              NULL, &err) == UNI_EFUNCTION);
        CHECK_CONTAINS(err.message, cases[i].sentence);
        uni_value_free(config);
        uni_trainer_free(trainer);
    }
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    CHECK(uni_trainer_new(&trainer, &(uni_trainer_options){ .main = program, .servers = -1 },
                          &err) == UNI_EINVAL);
    CHECK_CONTAINS(err.message, "servers");
}

/* A step that ends its worker every time does not go on for ever. */
static void poison_is_given_up(uni_program *program)
{
    uni_error err = { 0 };
    uni_value *config = config_of("parameter_server", false);
    CHECK(uni_dict_take(config, "poison", uni_value_bool(true)) == 0);
    uni_log_level_set(UNI_LOG_ERROR);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 1, .servers = 1, .max_failures = 1 });
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "own_loop", .config = config },
                          NULL, &err) == UNI_EWORKER);
    CHECK_CONTAINS(err.message, "signal 9");
    CHECK_CONTAINS(err.message, "within a second of its start");
    uni_value_free(config);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* TensorFlow's programs: every task finds itself and the others in TF_CONFIG. */
static void roles_in_the_environment(uni_program *program)
{
    static const struct {
        const char *type;
        int index;
    } tasks[] = {
        { "chief", 0 }, { "worker", 0 }, { "worker", 1 }, { "ps", 0 }, { "evaluator", 0 }
    };
    uni_error err = { 0 };
    uni_value *plan = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){
                     .num_workers = 2, .servers = 1, .evaluators = 1, .backend = "tensorflow" });
    CHECK_OK(uni_trainer_plan(trainer, NULL, &plan, &err), &err);
    const uni_value *workers = uni_dict_get(plan, "workers");
    CHECK(uni_list_size(workers) == 5);
    for (size_t i = 0; i < 5; i++) {
        const uni_value *environment = uni_dict_get(uni_list_get(workers, i), "environment");
        const char *text = uni_dict_get_string(environment, "TF_CONFIG", "");
        uni_value *config = NULL;
        CHECK_OK(uni_json_read(&config, text, strlen(text), &err), &err);
        const uni_value *cluster = uni_dict_get(config, "cluster"),
                        *task = uni_dict_get(config, "task");
        CHECK(strcmp(uni_dict_get_string(task, "type", ""), tasks[i].type) == 0);
        CHECK(uni_dict_get_int(task, "index", -1) == tasks[i].index);
        CHECK(strcmp(uni_dict_get_string(environment, "UNISONO_ROLE", ""), tasks[i].type) == 0);
        CHECK(uni_list_size(uni_dict_get(cluster, "chief")) == 1);
        CHECK(uni_list_size(uni_dict_get(cluster, "worker")) == 2);
        CHECK(uni_list_size(uni_dict_get(cluster, "ps")) == 1);
        /* Nobody but itself waits for the evaluator. */
        CHECK(uni_list_size(uni_dict_get(cluster, "evaluator")) == (i == 4));
        uni_value_free(config);
    }
    uni_value_free(plan);
    uni_trainer_free(trainer);
}

const scenario scenarios[] = { { "synchronous_is_one_process", synchronous_is_one_process },
                               { "asynchronous_converges", asynchronous_converges },
                               { "checkpoint_in_other_numbers", checkpoint_in_other_numbers },
                               { "loop_of_ones_own", loop_of_ones_own },
                               { "members_killed", members_killed },
                               { "coordinator_killed", coordinator_killed },
                               { "members_stopped", members_stopped },
                               { "asynchronous_killed", asynchronous_killed },
                               { "server_without_replica", server_without_replica },
                               { "mistakes_are_told", mistakes_are_told },
                               { "poison_is_given_up", poison_is_given_up },
                               { "roles_in_the_environment", roles_in_the_environment },
                               { NULL, NULL } };
