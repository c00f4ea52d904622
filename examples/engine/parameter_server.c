/*
 * parameter_server.c - a training loop of one's own over parameter servers: what TensorFlow's
 * tutorial does with ClusterCoordinator, in C.
 *
 *     engine_parameter_server --workers 2 --servers 2 --mode bounded=4 --evaluators 1
 *
 * The driver starts a coordinator, workers and servers, which all run `train`. The coordinator
 * schedules calls of train_step on whichever worker is free; every worker has a dataset of its own.
 * Kill a worker or a server while it runs: the loss goes on falling.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/native.h>
#include <unisono/run.h>
#include <unisono/trainer.h>
#include <unisono/experimental/evaluator.h>
#include <unisono/experimental/coordinator.h>

#define SAMPLES 4096
#define FEATURES 32
#define BATCH 64
#define EPOCHS 10
#define STEPS (SAMPLES / BATCH)

/* What the step function needs, in every process. */
typedef struct task {
    uni_model *model;
    uni_tape *tape;
    uni_gradients *gradients;
    uni_loss *loss;
    float x[SAMPLES * FEATURES], y[SAMPLES];
} task;

static void make_data(task *t)
{
    for (int i = 0; i < SAMPLES; i++) {
        float sum = 0;
        for (int j = 0; j < FEATURES; j++) {
            t->x[i * FEATURES + j] = sinf((float)(i * 31 + j * 17));
            sum += t->x[i * FEATURES + j] * cosf((float)j);
        }
        t->y[i] = sum > 0;
    }
}

static int make_model(uni_model **out, uni_error *err)
{
    uni_dense_options relu = { .activation = "relu" }, sigmoid = { .activation = "sigmoid" };
    UNI_TRY(
        uni_sequential_new(out, "classifier",
                           UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                                      uni_layer_dense(64, &relu), uni_layer_dense(1, &sigmoid)),
                           err));
    uni_model_set_seed(*out, 1);
    return uni_model_compile(*out,
                             UNI_OPTIONS(uni_compile_options, .optimizer_name = "adam",
                                         .loss_name = "binary_crossentropy"),
                             err);
}

/* Each worker reads its own part, over and over, shuffled. */
static int my_dataset(void *context, int worker, int workers, uni_batches **out, uni_error *err)
{
    task *t = context;
    int64_t begin = SAMPLES * worker / workers, end = SAMPLES * (worker + 1) / workers;
    uni_column x = uni_column_view(UNI_F32, 2, (const int64_t[]){ end - begin, FEATURES },
                                   t->x + begin * FEATURES);
    uni_column y = uni_column_view(UNI_F32, 2, (const int64_t[]){ end - begin, 1 }, t->y + begin);
    return uni_batches_columns(out, 1, &x, 1, &y, NULL,
                               UNI_OPTIONS(uni_columns_options, .batch_size = BATCH,
                                           .shuffle = true, .seed = 1, .repeat = true),
                               err);
}

/* On a worker: weights from the servers, the gradient of a batch back to them. */
static int train_step(uni_step_context *step, const uni_value *arguments, uni_value **result,
                      uni_error *err)
{
    task *t = uni_step_info_of(step)->context;
    uni_batch batch;
    UNI_TRY(uni_step_next(&batch, step, "train", err));
    UNI_TRY(uni_step_pull(step, err));
    uni_tape_begin(t->tape, &(uni_step){ .training = true, .gradients = t->gradients });
    uni_tensor *x = uni_tape_input_column(t->tape, &batch.x[0]);
    uni_tensor *y = uni_tape_input_column(t->tape, &batch.y[0]);
    uni_tensor *each =
        uni_loss_per_example(t->loss, t->tape, y, uni_model_call(t->model, t->tape, x), NULL);
    uni_tensor *sum = uni_op_sum(t->tape, each);
    UNI_TRY(uni_tape_status(t->tape, err));
    UNI_TRY(uni_tape_gradient(t->tape, sum, NULL, err));
    UNI_TRY(uni_step_push(step, t->gradients, (double)batch.size, err));
    *result = uni_value_float(uni_tensor_scalar(sum) / (double)batch.size);
    return 0;
}

/* One epoch: STEPS calls, then their losses. */
static int run_epoch(uni_coordinator *coordinator, double *loss, uni_error *err)
{
    uni_remote_value *losses[STEPS] = { NULL };
    int status = 0;
    *loss = 0;
    for (int i = 0; i < STEPS; i++)
        UNI_TRY_GOTO(uni_coordinator_schedule(&losses[i], coordinator, "train_step", NULL, err),
                     done);
    UNI_TRY_GOTO(uni_coordinator_join(coordinator, err), done);
    for (int i = 0; i < STEPS; i++) {
        const uni_value *value = NULL;
        UNI_TRY_GOTO(uni_remote_value_fetch(&value, losses[i], err), done);
        *loss += uni_value_as_float(value, NAN) / STEPS;
    }
done:
    for (int i = 0; i < STEPS; i++)
        uni_remote_value_free(losses[i]);
    return status;
}

static int coordinate(uni_session *session, uni_coordinator *coordinator, task *t, int done,
                      uni_value **result, uni_error *err)
{
    for (int epoch = done + 1; epoch <= EPOCHS && !uni_session_should_stop(session); epoch++) {
        double loss = 0;
        UNI_TRY(run_epoch(coordinator, &loss, err));
        printf("epoch %d/%d, loss %.4f\n", epoch, EPOCHS, loss);
        /* The servers' weights and optimizer state are a checkpoint like any other: it loads into
         * any number of servers. */
        uni_value *state = NULL, *metrics = uni_value_dict();
        int status = uni_dict_take(metrics, "loss", uni_value_float(loss));
        if (status == 0)
            status = uni_coordinator_pull(coordinator, err);
        if (status == 0)
            status = uni_model_get_state(&state, t->model, err);
        if (status == 0) /* uni_session_restore_model looks for it */
            status = uni_dict_take(state, "epoch", uni_value_int(epoch - 1));
        if (status == 0)
            status = uni_session_report(session, metrics, &(uni_checkpoint_source){ .dict = state },
                                        err);
        uni_value_free(metrics);
        uni_value_free(state);
        UNI_TRY(status);
    }
    return uni_coordinator_stats(result, coordinator, err);
}

/* ---- the evaluator: a member beside the others, which evaluates every checkpoint ---- */

static int print_evaluation(void *context, const uni_evaluation *evaluation, uni_error *err)
{
    printf("evaluator: after epoch %d, loss %.4f\n", evaluation->epoch + 1,
           uni_dict_get_float(evaluation->logs, "loss", NAN));
    fflush(stdout);
    return 0;
}

static int evaluate(uni_session *session, task *t, uni_error *err)
{
    uni_column x = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, t->x);
    uni_column y = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, t->y);
    uni_fit_options data = { .x = &x, .num_x = 1, .y = &y, .num_y = 1, .batch_size = BATCH };
    return uni_session_evaluate(session, t->model,
                                UNI_OPTIONS(uni_evaluator_options, .data = &data,
                                            .each = print_evaluation, .last_epoch = EPOCHS),
                                err);
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    char name[64];
    int epoch, status;
    uni_strategy *strategy = NULL;
    uni_coordinator *coordinator = NULL;
    task *t = calloc(1, sizeof *t);
    if (!t)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the data");
    uni_step_entry steps[] = { { "train_step", train_step, t }, { NULL, NULL, NULL } };
    snprintf(name, sizeof name, "parameter_server:%s",
             uni_dict_get_string(uni_session_info_of(session)->config, "mode", "async"));
    make_data(t);
    UNI_TRY_GOTO(make_model(&t->model, err), done);
    if (strcmp(uni_session_info_of(session)->role, "evaluator") == 0) {
        status = evaluate(session, t, err);
        goto done;
    }
    UNI_TRY_GOTO(uni_strategy_open(&strategy, name, session, err), done);
    UNI_TRY_GOTO(uni_session_restore_model(&epoch, session, t->model, err), done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, t->model, err), done);
    UNI_TRY_GOTO(uni_tape_new(&t->tape, UNI_OPTIONS(uni_tape_options, .threads = 1), err), done);
    UNI_TRY_GOTO(uni_gradients_new(&t->gradients, uni_model_parameters(t->model), err), done);
    UNI_TRY_GOTO(uni_loss_new(&t->loss, "binary_crossentropy",
                              UNI_OPTIONS(uni_loss_options, .reduction = UNI_REDUCTION_NONE), err),
                 done);
    UNI_TRY_GOTO(uni_coordinator_open(&coordinator, strategy, steps, err), done);
    UNI_TRY_GOTO(uni_coordinator_per_worker_dataset(coordinator, "train", my_dataset, t, err),
                 done);
    status = uni_coordinator_is_here(coordinator)
                 ? coordinate(session, coordinator, t, epoch, result, err)
                 : uni_coordinator_serve(coordinator, err);
done:
    uni_coordinator_close(coordinator);
    uni_strategy_free(strategy);
    uni_loss_free(t->loss);
    uni_gradients_free(t->gradients);
    uni_tape_free(t->tape);
    uni_model_free(t->model);
    free(t);
    return status;
}

static const uni_function functions[] = { { "train", train }, { NULL, NULL } };

static int usage(bool asked)
{
    fprintf(asked ? stdout : stderr,
            "A coordinator schedules calls of a step function on workers; servers have the "
            "weights.\n"
            "usage: engine_parameter_server [--workers N] [--servers N] [--evaluators 0|1] [--mode "
            "async|sync|bounded=N]\n");
    return asked ? 0 : UNI_EXIT_USAGE;
}

static bool is_mode(const char *text)
{
    return strcmp(text, "async") == 0 || strcmp(text, "sync") == 0 ||
           (strncmp(text, "bounded=", 8) == 0 && text[8] >= '0' && text[8] <= '9');
}

static int driver(uni_program *program, int argc, char **argv)
{
    int workers = 2, servers = 1, evaluators = 0, status;
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    uni_result *result = NULL;
    char *stats = NULL;
    const char *mode = NULL;
    uni_value *config = NULL;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return usage(strcmp(argv[i], "--help") == 0);
        if (strcmp(argv[i], "--workers") == 0)
            workers = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--servers") == 0)
            servers = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--evaluators") == 0)
            evaluators = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--mode") == 0 && is_mode(argv[i + 1]))
            mode = argv[i + 1];
        else
            return usage(false);
    }
    config = uni_value_dict();
    if (mode)
        UNI_TRY_GOTO(uni_dict_take(config, "mode", uni_value_string(mode)), done);
    UNI_TRY_GOTO(uni_trainer_new(&trainer,
                                 UNI_OPTIONS(uni_trainer_options, .main = program,
                                             .num_workers = workers, .servers = servers,
                                             .evaluators = evaluators, .handle_signals = true),
                                 &err),
                 done);
    UNI_TRY_GOTO(
        uni_trainer_fit(&result, trainer,
                        UNI_OPTIONS(uni_run_options, .function = "train", .config = config), &err),
        done);
    UNI_TRY_GOTO(uni_json_write(&stats, NULL, uni_result_info_of(result)->returned[0], 0, &err),
                 done);
    printf("loss %.4f after %lld epochs\n%s\nresults in %s\n",
           uni_dict_get_float(uni_result_info_of(result)->metrics[0], "loss", NAN),
           (long long)uni_result_info_of(result)->iterations[0], stats,
           uni_result_info_of(result)->run_dir);
done:
    if (err.code)
        fprintf(stderr, "engine_parameter_server: %s\n", err.message);
    free(stats);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
    return err.code ? 1 : 0;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, functions, driver);
}
