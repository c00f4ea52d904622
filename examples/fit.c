/*
 * fit.c - the shortest whole program: two workers run one function, report, checkpoint, and hand
 * back a result.
 *
 * Each worker fits y = slope * x + offset to points of y = 2x + 1 by gradient descent, from another
 * start. The function goes on from the last checkpoint when there is one: kill a worker while it
 * runs and look.
 *
 *   fit [-n WORKERS] [-e EPOCHS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <unisono/unisono.h>

/* One pass over 20 points; returns the mean squared error before the step. */
static double descend(double *slope, double *offset, double lr)
{
    double loss = 0, slope_gradient = 0, offset_gradient = 0;
    const int points = 20;
    for (int i = 0; i < points; i++) {
        double x = (double)i / points;
        double error = *slope * x + *offset - (2 * x + 1);
        loss += error * error / points;
        slope_gradient += 2 * error * x / points;
        offset_gradient += 2 * error / points;
    }
    *slope -= lr * slope_gradient;
    *offset -= lr * offset_gradient;
    return loss;
}

/* What is reported and what is kept are two dictionaries; both belong to the caller. */
static int report_epoch(uni_session *session, int epoch, double loss, double slope, double offset,
                        uni_error *err)
{
    uni_value *metrics = uni_value_dict();
    uni_value *state = uni_value_dict();
    int status = 0;
    UNI_TRY_GOTO(uni_dict_take(metrics, "epoch", uni_value_int(epoch)), fail);
    UNI_TRY_GOTO(uni_dict_take(metrics, "loss", uni_value_float(loss)), fail);
    UNI_TRY_GOTO(uni_dict_take(state, "epoch", uni_value_int(epoch)), fail);
    UNI_TRY_GOTO(uni_dict_take(state, "slope", uni_value_float(slope)), fail);
    UNI_TRY_GOTO(uni_dict_take(state, "offset", uni_value_float(offset)), fail);
    /* Rank 0's model is the one that is kept; the others only report. */
    bool keeps = uni_session_info_of(session)->world_rank == 0;
    status = uni_session_report(session, metrics,
                                keeps ? &(uni_checkpoint_source){ .dict = state } : NULL, err);
fail:
    uni_value_free(metrics);
    uni_value_free(state);
    return status;
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    int epochs = (int)uni_dict_get_int(config, "epochs", 5);
    double lr = uni_dict_get_float(config, "lr", 0.5);

    uni_value *state = NULL;
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    double slope = uni_dict_get_float(state, "slope", uni_session_info_of(session)->world_rank);
    double offset = uni_dict_get_float(state, "offset", 0);
    int first = (int)uni_dict_get_int(state, "epoch", 0) + 1;
    uni_value_free(state);

    double loss = 0;
    for (int epoch = first; epoch <= epochs && !uni_session_should_stop(session); epoch++) {
        loss = descend(&slope, &offset, lr);
        UNI_TRY(report_epoch(session, epoch, loss, slope, offset, err));
    }
    *result = uni_value_float(loss);
    return 0;
}

static int driver(uni_program *program, int argc, char **argv)
{
    int workers = 2, epochs = 5, option;
    while ((option = getopt(argc, argv, "n:e:")) != -1) {
        if (option == 'n')
            workers = atoi(optarg);
        else if (option == 'e')
            epochs = atoi(optarg);
        else
            return 2;
    }

    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    uni_result *result = NULL;
    uni_sink *progress = NULL;
    uni_value *config = uni_value_dict();
    int status = 0;
    UNI_TRY_GOTO(uni_dict_take(config, "epochs", uni_value_int(epochs)), done);
    UNI_TRY_GOTO(uni_sink_progress(&progress, NULL, &err), done);
    uni_trainer_options options = {
        .main = program, .num_workers = workers, .name = "fit", .handle_signals = true
    };
    UNI_TRY_GOTO(uni_trainer_new(&trainer, &options, &err), done);
    uni_run_options run = {
        .function = "train", .config = config, .sinks = &progress, .num_sinks = 1
    };
    UNI_TRY_GOTO(uni_trainer_fit(&result, trainer, &run, &err), done);

    for (int rank = 0; rank < uni_result_info_of(result)->world_size; rank++)
        printf("rank %d: %d reports, last loss %.6f\n", rank,
               (int)uni_result_info_of(result)->iterations[rank],
               uni_value_as_float(uni_result_info_of(result)->returned[rank], -1));
    printf("latest checkpoint: %s\n", uni_result_info_of(result)->latest_checkpoint);
    printf("results: %s\n", uni_result_info_of(result)->run_dir);
done:
    if (status < 0)
        fprintf(stderr, "fit: %s: %s\n", uni_status_name(status), err.message);
    uni_result_free(result);
    uni_trainer_free(trainer);
    uni_sink_free(progress);
    uni_value_free(config);
    return status < 0;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, (uni_function[]){ { "train", train }, { NULL, NULL } }, driver);
}
