/*
 * tune.c - hyperparameter search: a straight line is fitted by gradient descent, and the tuner
 * looks for the learning rate and momentum with which that goes fastest.
 *
 *     ./tune [samples]
 *
 * The train function knows nothing of it: it reads its config, reports every epoch, and returns.
 * ASHA ends those that lag behind, and TPE proposes what to try next.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/unisono.h>

#define POINTS 64

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    double lr = uni_dict_get_float(config, "lr", 0.01),
           momentum = uni_dict_get_float(config, "momentum", 0);
    double slope = 0, offset = 0, slope_speed = 0, offset_speed = 0;
    for (int epoch = 0; epoch < 50; epoch++) {
        double loss = 0, slope_gradient = 0, offset_gradient = 0;
        for (int i = 0; i < POINTS; i++) {
            double x = (double)i / POINTS, error = slope * x + offset - (2 * x + 1);
            loss += error * error / POINTS;
            slope_gradient += 2 * error * x / POINTS;
            offset_gradient += 2 * error / POINTS;
        }
        slope += slope_speed = momentum * slope_speed - lr * slope_gradient;
        offset += offset_speed = momentum * offset_speed - lr * offset_gradient;
        UNI_TRY(
            uni_session_report_numbers(session, 1, (const char *const[]){ "loss" }, &loss, err));
    }
    return 0;
}

static const uni_function functions[] = { { "train", train }, { NULL, NULL } };

static int fill(uni_value *space, uni_value *scheduler, uni_value *searcher)
{
    int failed = uni_dict_take(space, "lr", uni_tune_loguniform(1e-3, 2));
    failed |= uni_dict_take(space, "momentum", uni_tune_uniform(0, 0.99));
    failed |= uni_dict_take(scheduler, "type", uni_value_string("asha"));
    failed |= uni_dict_take(scheduler, "max_t", uni_value_int(50));
    failed |= uni_dict_take(searcher, "type", uni_value_string("tpe"));
    return failed;
}

static int show_best(const uni_tuner *tuner, uni_error *err)
{
    const uni_tune_results *results = uni_tuner_results(tuner);
    int64_t best;
    UNI_TRY(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_LAST, err));
    const uni_value *config = uni_trial_info_of(results, best)->config;
    printf("best of %lld: trial %lld, lr %.4g, momentum %.3g, loss %.3g\n",
           (long long)uni_tune_info_of(results)->num_trials, (long long)best,
           uni_dict_get_float(config, "lr", 0), uni_dict_get_float(config, "momentum", 0),
           uni_trial_value(results, best, NULL, NULL, UNI_SCOPE_LAST));
    printf("the whole table: unisono tune show %s\n",
           uni_tune_info_of(uni_tuner_results(tuner))->dir);
    return 0;
}

static int driver(uni_program *program, int argc, char **argv)
{
    uni_error err = { 0 };
    uni_tuner *tuner = NULL;
    uni_value *space = uni_value_dict(), *scheduler = uni_value_dict(),
              *searcher = uni_value_dict();
    int status = fill(space, scheduler, searcher);
    if (status == 0)
        status = uni_tuner_new(
            &tuner,
            UNI_OPTIONS(uni_tuner_options, .main = program, .function = "train", .space = space,
                        .num_samples = argc > 1 ? atoi(argv[1]) : 40, .metric = "loss",
                        .mode = "min", .searcher = searcher, .scheduler = scheduler, .seed = 1,
                        .name = "line", .handle_signals = true),
            &err);
    if (status == 0)
        status = uni_tuner_fit(tuner, &err);
    if (status == 0)
        status = show_best(tuner, &err);
    if (status < 0)
        fprintf(stderr, "tune: %s\n", err.message);
    uni_tuner_free(tuner);
    uni_value_free(space);
    uni_value_free(scheduler);
    uni_value_free(searcher);
    return status < 0;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, functions, driver);
}
