/*
 * servers_worker.c - parameter servers over hosts: servers_worker fit|loop STRATEGY [EPOCHS] [PAUSE_MS] [DIE_RANK]. Every member runs it.
 *
 * fit: Model.fit with a checkpoint an epoch. loop: calls of a step function that the coordinator schedules, with a checkpoint a round. Both go on from
 * the checkpoint. DIE_RANK kills itself on the first attempt, in the middle. The coordinator prints "loss L weights W updates U" at the end; without servers
 * (STRATEGY none) fit prints the same line but for the updates.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unisono/native.h>
#include <unisono/experimental/coordinator.h>
#include "nn/shared.h"

enum { SAMPLES = 96, FEATURES = 8, BATCH = 16, CALLS = 6 };

typedef struct job {
    uni_session *session;
    uni_strategy *strategy;
    uni_model *model;
    uni_tape *tape;
    uni_gradients *gradients;
    uni_loss *loss;
    int epochs, pause_ms, die, begin;
    float x[SAMPLES * FEATURES], y[SAMPLES];
} job;

static void make_data(job *j)
{
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < FEATURES; k++) {
            j->x[i * FEATURES + k] = sinf((float)(i * 7 + k * 3));
            j->y[i] += j->x[i * FEATURES + k] * (float)(k + 1) * 0.1f;
        }
}

static uni_column column_of(const float *data, int64_t width)
{
    return uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, width }, data);
}

/* In the middle of the first attempt, after an epoch's checkpoint. */
static void perhaps_die(const job *j, int epoch)
{
    struct timespec pause = { .tv_nsec = (long)j->pause_ms * 1000000 };
    nanosleep(&pause, NULL);
    if (uni_session_info_of(j->session)->world_rank == j->die &&
        uni_session_info_of(j->session)->attempt == 1 && epoch >= j->epochs / 2)
        raise(SIGKILL);
}

static int after_batch(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                       uni_error *err)
{
    const job *j = self;
    perhaps_die(j, (int)(uni__model_steps(model) / (SAMPLES / BATCH)));
    return 0;
}

static void print_result(const job *j, double loss)
{
    size_t count = 0;
    double sum = 0;
    uni_value *stats = NULL;
    const float *weights = uni_parameters_weights(uni_model_parameters(j->model), &count);
    for (size_t i = 0; i < count; i++)
        sum += fabs((double)weights[i]);
    if (uni_strategy_server_stats(&stats, j->strategy, NULL) < 0)
        stats = NULL;
    printf("loss %.6f weights %.6f updates %lld\n", loss, sum,
           (long long)uni_dict_get_int(stats, "updates", 0));
    uni_value_free(stats);
}

static int run_fit(job *j, uni_error *err)
{
    static const uni_callback_class slow = { .name = "slow", .batch_end = after_batch };
    uni_column x = column_of(j->x, FEATURES), y = column_of(j->y, 1);
    uni_callback *callbacks[2] = { NULL, NULL };
    uni_value *history = NULL;
    int status;
    UNI_TRY_GOTO(uni_callback_report_checkpoint(&callbacks[0], j->session, 1, err), done);
    UNI_TRY_GOTO(uni_callback_new(&callbacks[1], &slow, j, err), done);
    UNI_TRY_GOTO(uni_strategy_fit(&history, j->strategy, j->model,
                                  &(uni_fit_options){ .x = &x,
                                                      .num_x = 1,
                                                      .y = &y,
                                                      .num_y = 1,
                                                      .batch_size = BATCH,
                                                      .epochs = j->epochs,
                                                      .initial_epoch = j->begin,
                                                      .seed = 3,
                                                      .threads = 1,
                                                      .callbacks = callbacks,
                                                      .num_callbacks = 2 },
                                  err),
                 done);
    const uni_value *losses = uni_dict_get(history, "loss");
    size_t count = uni_list_size(losses);
    if (uni_strategy_info_of(j->strategy)->is_chief && count > 0)
        print_result(j, uni_value_as_float(uni_list_get(losses, count - 1), NAN));
done:
    uni_value_free(history);
    uni_callback_free(callbacks[0]);
    uni_callback_free(callbacks[1]);
    return status;
}

/* ---- a loop of one's own ---- */

static int my_dataset(void *context, int worker, int workers, uni_batches **out, uni_error *err)
{
    job *j = context;
    uni_column x = column_of(j->x, FEATURES), y = column_of(j->y, 1);
    return uni_batches_columns(out, 1, &x, 1, &y, NULL,
                               &(uni_columns_options){ .batch_size = BATCH, .repeat = true }, err);
}

/* Gives the loss and the predictions, as an array. */
static int train_step(uni_step_context *step, const uni_value *arguments, uni_value **result,
                      uni_error *err)
{
    job *j = uni_step_info_of(step)->context;
    uni_batch batch;
    uni_array *array = NULL;
    perhaps_die(j, (int)uni_dict_get_int(arguments, "round", 0));
    UNI_TRY(uni_step_next(&batch, step, "train", err));
    UNI_TRY(uni_step_pull(step, err));
    uni_tape_begin(j->tape, &(uni_step){ .training = true, .gradients = j->gradients });
    uni_tensor *y = uni_model_call(j->model, j->tape, uni_tape_input_column(j->tape, &batch.x[0]));
    uni_tensor *each = uni_loss_per_example(j->loss, j->tape,
                                            uni_tape_input_column(j->tape, &batch.y[0]), y, NULL);
    uni_tensor *sum = uni_op_sum(j->tape, each);
    UNI_TRY(uni_tape_status(j->tape, err));
    UNI_TRY(uni_tape_gradient(j->tape, sum, NULL, err));
    UNI_TRY(uni_step_push(step, j->gradients, (double)batch.size, err));
    UNI_TRY(uni_array_new(&array, UNI_F32, 1, &batch.size, err));
    memcpy(uni_array_data(array), uni_tensor_data(y), (size_t)batch.size * sizeof(float));
    *result = uni_value_dict();
    int status = uni_dict_take(*result, "loss",
                               uni_value_float(uni_tensor_scalar(sum) / (double)batch.size));
    status |= uni_dict_take(*result, "predictions", uni_value_array(array));
    uni_array_unref(array);
    return status;
}

static int one_round(job *j, uni_coordinator *coordinator, int round, double *loss, uni_error *err)
{
    uni_remote_value *calls[CALLS] = { NULL };
    uni_value *arguments = uni_value_dict(), *state = NULL;
    int status = uni_dict_take(arguments, "round", uni_value_int(round));
    *loss = 0;
    for (int i = 0; i < CALLS; i++)
        UNI_TRY_GOTO(uni_coordinator_schedule(&calls[i], coordinator, "train_step", arguments, err),
                     done);
    UNI_TRY_GOTO(uni_coordinator_join(coordinator, err), done);
    for (int i = 0; i < CALLS; i++) {
        const uni_value *value = NULL;
        UNI_TRY_GOTO(uni_remote_value_fetch(&value, calls[i], err), done);
        *loss += uni_dict_get_float(value, "loss", NAN) / CALLS;
        const uni_array *predictions = uni_value_as_array(uni_dict_get(value, "predictions"));
        if (!predictions || uni_array_count(predictions) != BATCH)
            status = uni_error_set(err, UNI_EFORMAT, "a call's result has lost its array");
    }
    if (status < 0)
        goto done;
    UNI_TRY_GOTO(uni_coordinator_pull(coordinator, err), done);
    UNI_TRY_GOTO(uni_model_get_state(&state, j->model, err), done);
    UNI_TRY_GOTO(uni_dict_take(state, "epoch", uni_value_int(round)), done);
    status = uni_session_report(j->session, NULL, &(uni_checkpoint_source){ .dict = state }, err);
done:
    for (int i = 0; i < CALLS; i++)
        uni_remote_value_free(calls[i]);
    uni_value_free(arguments);
    uni_value_free(state);
    return status;
}

static int coordinate(job *j, uni_coordinator *coordinator, uni_error *err)
{
    double loss = 0;
    uni_value *stats = NULL;
    for (int round = j->begin; round < j->epochs; round++)
        UNI_TRY(one_round(j, coordinator, round, &loss, err));
    UNI_TRY(uni_coordinator_stats(&stats, coordinator, err));
    uni_value_free(stats);
    print_result(j, loss);
    return 0;
}

static int run_loop(job *j, uni_error *err)
{
    uni_step_entry steps[] = { { "train_step", train_step, j }, { NULL, NULL, NULL } };
    uni_coordinator *coordinator = NULL;
    int status;
    UNI_TRY_GOTO(uni_tape_new(&j->tape, &(uni_tape_options){ .threads = 1 }, err), done);
    UNI_TRY_GOTO(uni_gradients_new(&j->gradients, uni_model_parameters(j->model), err), done);
    UNI_TRY_GOTO(
        uni_loss_new(&j->loss, "mse", &(uni_loss_options){ .reduction = UNI_REDUCTION_NONE }, err),
        done);
    UNI_TRY_GOTO(uni_coordinator_open(&coordinator, j->strategy, steps, err), done);
    UNI_TRY_GOTO(uni_coordinator_per_worker_dataset(coordinator, "train", my_dataset, j, err),
                 done);
    status = uni_coordinator_is_here(coordinator) ? coordinate(j, coordinator, err)
                                                  : uni_coordinator_serve(coordinator, err);
done:
    uni_coordinator_close(coordinator);
    uni_loss_free(j->loss);
    uni_gradients_free(j->gradients);
    uni_tape_free(j->tape);
    return status;
}

static int run(job *j, const char *what, const char *strategy, uni_error *err)
{
    uni_dense_options relu = { .activation = "relu" };
    make_data(j);
    UNI_TRY(uni_session_open(&j->session, err));
    UNI_TRY(uni_strategy_open(&j->strategy, strategy, j->session, err));
    UNI_TRY(uni_sequential_new(
        &j->model, "model",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                   uni_layer_dense(64, &relu), uni_layer_batch_normalization(NULL),
                   uni_layer_dense(1, NULL)),
        err));
    uni_model_set_seed(j->model, 11);
    UNI_TRY(uni_model_compile(
        j->model, &(uni_compile_options){ .optimizer_name = "adam", .loss_name = "mse" }, err));
    UNI_TRY(uni_session_restore_model(&j->begin, j->session, j->model, err));
    fprintf(stderr, "begins after epoch %d\n", j->begin);
    UNI_TRY(uni_strategy_place(j->strategy, j->model, err));
    return strcmp(what, "loop") == 0 ? run_loop(j, err) : run_fit(j, err);
}

int main(int argc, char **argv)
{
    static job j;
    uni_error err = { 0 };
    if (argc < 3)
        return 64;
    j.epochs = argc > 3 ? atoi(argv[3]) : 6;
    j.pause_ms = argc > 4 ? atoi(argv[4]) : 0;
    j.die = argc > 5 ? atoi(argv[5]) : -1;
    int status = run(&j, argv[1], argv[2], &err);
    if (status < 0)
        fprintf(stderr, "servers_worker: %s\n", err.message);
    uni_strategy_free(j.strategy);
    uni_model_free(j.model);
    uni_session_close(j.session);
    return status < 0 ? 1 : 0;
}
