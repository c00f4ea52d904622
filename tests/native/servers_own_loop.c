/*
 * servers_own_loop.c - the train function "own_loop": a coordinator that schedules calls of a step
 * function, with arrays in its results, calls that fail and calls that are alone.
 */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unisono/experimental/coordinator.h>

#include "servers_common.h"

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

/* {"loss": mean of the batch, "predictions": an array} */
static int train_step(uni_step_context *step, const uni_value *arguments, uni_value **result,
                      uni_error *err)
{
    loop *l = uni_step_info_of(step)->context;
    uni_batch batch;
    if (uni_dict_get_bool(arguments, "poison", false))
        raise(SIGKILL);
    if (uni_dict_get_bool(arguments, "fail", false))
        return uni_error_set(err, UNI_EINVAL, "this call was asked to fail");
    if (uni_dict_get_bool(arguments, "no_number", false))
        return uni_step_push(step, l->gradients, NAN, err);
    UNI_TRY(uni_step_next(&batch, step, "train", err));
    UNI_TRY(uni_step_pull(step, err));
    uni_tape_begin(l->tape, &(uni_step){ .training = true, .gradients = l->gradients });
    uni_tensor *y = uni_model_call(l->model, l->tape, uni_tape_input_column(l->tape, &batch.x[0]));
    uni_tensor *each = uni_loss_per_example(l->loss, l->tape,
                                            uni_tape_input_column(l->tape, &batch.y[0]), y, NULL);
    uni_tensor *sum = uni_op_sum(l->tape, each);
    UNI_TRY(uni_tape_status(l->tape, err));
    UNI_TRY(uni_tape_gradient(l->tape, sum, NULL, err));
    UNI_TRY(uni_step_push(step, l->gradients, (double)batch.size, err));
    uni_array *predictions = NULL;
    UNI_TRY(uni_array_new(&predictions, UNI_F32, 1, &batch.size, err));
    memcpy(uni_array_data(predictions), uni_tensor_data(y), uni_array_bytes(predictions));
    *result = uni_value_dict();
    int status = uni_dict_take(*result, "loss",
                               uni_value_float(uni_tensor_scalar(sum) / (double)batch.size));
    status |= uni_dict_take(*result, "predictions", uni_value_array(predictions));
    uni_array_unref(predictions);
    return status;
}

/* One call, whose value is fetched, and one that is asked for until it is done: in synchronous mode
 * nobody else takes part in their steps. */
static int drive_alone(uni_coordinator *coordinator, uni_error *err)
{
    uni_remote_value *remote = NULL;
    const uni_value *value = NULL;
    UNI_TRY(uni_coordinator_schedule(&remote, coordinator, "train_step", NULL, err));
    /* The servers, which are late, join while it asks. */
    for (int i = 0; i < 10000 && !uni_remote_value_is_ready(remote); i++)
        scenario_sleep_ms(1);
    int status = uni_remote_value_is_ready(remote)
                     ? uni_remote_value_fetch(&value, remote, err)
                     : uni_error_set(err, UNI_ETIMEOUT, "one call is never ready");
    uni_remote_value_free(remote);
    UNI_TRY(status);
    UNI_TRY(uni_coordinator_schedule(NULL, coordinator, "train_step", NULL, err));
    UNI_TRY(uni_coordinator_schedule(&remote, coordinator, "train_step", NULL, err));
    status = uni_remote_value_fetch(&value, remote, err);
    uni_remote_value_free(remote);
    UNI_TRY(status);
    UNI_TRY(uni_coordinator_schedule(NULL, coordinator, "train_step", NULL, err));
    for (int i = 0; !uni_coordinator_done(coordinator); i++) {
        if (i == 10000)
            return uni_error_set(err, UNI_ETIMEOUT, "one call is never done");
        scenario_sleep_ms(1);
    }
    /* What only the coordinator knows is an error of the call, not another function's call. */
    uni_error unknown = { 0 };
    UNI_TRY(uni_coordinator_schedule(NULL, coordinator, "coordinators_own", NULL, err));
    if (uni_coordinator_join(coordinator, &unknown) != UNI_EMISMATCH)
        return uni_error_set(err, UNI_ESTATE, "a function that workers do not know was called: %s",
                             unknown.message);
    /* A push that is refused is none: nobody waits for it. */
    uni_value *refused = uni_value_dict();
    status = uni_dict_take(refused, "no_number", uni_value_bool(true));
    if (status == 0)
        status = uni_coordinator_schedule(NULL, coordinator, "train_step", refused, err);
    uni_value_free(refused);
    UNI_TRY(status);
    if (uni_coordinator_join(coordinator, NULL) == 0)
        return uni_error_set(err, UNI_ESTATE, "a push of NaN samples was taken");
    return uni_coordinator_join(coordinator, err);
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
    if (uni_dict_get_bool(config, "alone", false))
        UNI_TRY_GOTO(drive_alone(coordinator, err), done);
    for (int i = 0; i < rounds; i++) {
        uni_remote_value *remotes[5];
        double sum = 0;
        for (int j = 0; j < 5; j++)
            UNI_TRY_GOTO(
                uni_coordinator_schedule(&remotes[j], coordinator, "train_step", nothing, err),
                done);
        UNI_TRY_GOTO(uni_coordinator_join(coordinator, err), done);
        if (!uni_coordinator_done(coordinator))
            status = uni_error_set(err, UNI_ESTATE, "join returned with calls left");
        for (int j = 0; j < 5; j++) {
            const uni_value *value = NULL;
            UNI_TRY_GOTO(uni_remote_value_fetch(&value, remotes[j], err), done);
            sum += uni_dict_get_float(value, "loss", NAN) / 5;
            const uni_array *array = uni_value_as_array(uni_dict_get(value, "predictions"));
            if (!array || uni_array_count(array) < 1 || uni_array_dtype(array) != UNI_F32)
                status = uni_error_set(err, UNI_EFORMAT, "the array of a result is lost");
            uni_remote_value_free(remotes[j]);
        }
        status |= uni_list_take(losses, uni_value_float(sum));
    }
    /* The error of a step function is join's error, and the next join has none. */
    uni_error failed = { 0 };
    uni_value *said = NULL;
    if (uni_dict_get_bool(config, "fails", true)) {
        UNI_TRY_GOTO(uni_coordinator_schedule(NULL, coordinator, "train_step", fails, err), done);
        if (uni_coordinator_join(coordinator, &failed) == 0)
            status = uni_error_set(err, UNI_ESTATE, "join did not return the step's error");
        said = uni_value_string(failed.message);
        UNI_TRY_GOTO(uni_coordinator_join(coordinator, err), done);
    }
    UNI_TRY_GOTO(uni_coordinator_pull(coordinator, err), done);
    UNI_TRY_GOTO(uni_coordinator_stats(&stats, coordinator, err), done);
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

int servers_own_loop(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    uni_strategy *strategy = NULL;
    uni_coordinator *coordinator = NULL;
    loop l = { 0 };
    uni_step_entry steps[] = { { "train_step", train_step, &l },
                               { "coordinators_own", train_step, &l },
                               { NULL, NULL, NULL } };
    if (uni_session_info_of(session)->world_rank > 0)
        steps[1].name = NULL; /* the others do not know it */
    int status;
    if (strcmp(uni_session_info_of(session)->role, "ps") == 0)
        scenario_sleep_ms((int)uni_dict_get_int(config, "late_ms", 0));
    servers_make_data(l.x, l.y);
    UNI_TRY_GOTO(uni_strategy_open(&strategy,
                                   uni_dict_get_string(config, "strategy", "parameter_server"),
                                   session, err),
                 done);
    UNI_TRY_GOTO(servers_make_model(&l.model, false, "adam", 0, err), done);
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
