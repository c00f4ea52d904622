/*
 * run_iterator.c - the driver takes every iteration of all ranks as it comes and decides what to do
 * with it.
 *
 * Here it prints the mean over the ranks and the slowest rank. With lockstep the workers wait for
 * the driver, so that what it sees is where they are; without it they run ahead.
 */
#include <stdio.h>
#include <unisono/unisono.h>

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    int rank = uni_session_info_of(session)->world_rank;
    double loss = 1 + rank;
    for (int epoch = 1; epoch <= 4; epoch++) {
        loss /= 2;
        UNI_TRY(uni_session_report_numbers(session, 2, (const char *const[]){ "epoch", "loss" },
                                           (const double[]){ epoch, loss }, err));
    }
    *result = uni_value_float(loss);
    return 0;
}

static int watch(uni_iterator *iterator, uni_error *err)
{
    const uni_reports *reports = NULL;
    int more;
    while ((more = uni_iterator_next(&reports, iterator, err)) > 0) {
        double mean = 0, worst = 0;
        UNI_TRY(uni_reports_aggregate(&mean, reports, "loss", UNI_AGGREGATE_MEAN, NULL, err));
        UNI_TRY(uni_reports_aggregate(&worst, reports, "loss", UNI_AGGREGATE_MAX, NULL, err));
        printf("iteration %d: mean loss %.4f, worst %.4f\n", (int)reports->iteration, mean, worst);
    }
    return more;
}

static int driver(uni_program *program, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    uni_iterator *iterator = NULL;
    const uni_result *result = NULL;
    int status = 0;
    uni_trainer_options options = {
        .main = program, .num_workers = 3, .name = "run_iterator", .lockstep = true
    };
    UNI_TRY_GOTO(uni_trainer_new(&trainer, &options, &err), done);
    UNI_TRY_GOTO(uni_trainer_start(trainer, &err), done);
    UNI_TRY_GOTO(uni_trainer_run_iterator(&iterator, trainer,
                                          UNI_OPTIONS(uni_run_options, .function = "train"), &err),
                 done);
    UNI_TRY_GOTO(watch(iterator, &err), done);
    UNI_TRY_GOTO(uni_iterator_result(&result, iterator, false, &err), done);
    printf("finished: %s\n", uni_iterator_is_finished(iterator) ? "yes" : "no");
    for (int rank = 0; rank < uni_result_info_of(result)->world_size; rank++)
        printf("rank %d returned %.4f\n", rank,
               uni_value_as_float(uni_result_info_of(result)->returned[rank], -1));
done:
    if (status < 0)
        fprintf(stderr, "run_iterator: %s: %s\n", uni_status_name(status), err.message);
    uni_iterator_free(iterator);
    uni_trainer_free(trainer);
    return status < 0;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, (uni_function[]){ { "train", train }, { NULL, NULL } }, driver);
}
