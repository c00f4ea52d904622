/*
 * tune.c - whole experiments: spaces, schedulers, failures. The train functions (tune_common.c) run in real workers. Kills of the tuner are in kills.c.
 */
#include <math.h>
#include <sys/stat.h>

#include "tune/shared.h"
#include "tune_common.h"

static int64_t total_iterations(const uni_tune_results *results)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < uni_tune_info_of(results)->num_trials; i++)
        sum += uni_trial_info_of(results, i)->iterations;
    return sum;
}

/* ---- spaces and results ---- */

static void grid_is_crossed(uni_program *program)
{
    uni_error err = { 0 };
    int64_t best = -1;
    uni_tuner *tuner = tune_fitted(
        program, "{\"function\": \"square\", \"space\": {\"x\": {\"$grid_search\": [3, 1, 2]}, "
                 "\"nested\": {\"a\": {\"$grid_search\": [\"p\", \"q\"]}, \"r\": {\"$uniform\": "
                 "[0, 1]}}, \"epochs\": 2}, \"num_samples\": 2, \"metric\": \"loss\", \"mode\": "
                 "\"min\", \"max_concurrent\": 2, \"seed\": 7}");
    const uni_tune_results *results = uni_tuner_results(tuner);
    CHECK(uni_tune_info_of(results)->num_trials == 12);
    CHECK(uni_tune_count_status(results, UNI_TRIAL_TERMINATED) == 12);
    CHECK(total_iterations(results) == 24);
    /* nested.a comes first by path, so it turns fastest. */
    CHECK_CONTAINS(
        uni_dict_get_string(uni_dict_get(uni_trial_info_of(results, 0)->config, "nested"), "a", ""),
        "p");
    CHECK_CONTAINS(
        uni_dict_get_string(uni_dict_get(uni_trial_info_of(results, 1)->config, "nested"), "a", ""),
        "q");
    CHECK(uni_dict_get_int(uni_trial_info_of(results, 2)->config, "x", 0) == 1);
    double first =
        uni_value_as_float(uni_value_path(uni_trial_info_of(results, 0)->config, "nested.r"), -1);
    double again =
        uni_value_as_float(uni_value_path(uni_trial_info_of(results, 6)->config, "nested.r"), -1);
    CHECK(first >= 0 && first < 1 && first != again);
    CHECK_OK(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_LAST, &err), &err);
    CHECK(best == 2 && uni_trial_value(results, best, NULL, NULL, UNI_SCOPE_LAST) == 1.5);
    CHECK(uni_trial_value(results, best, "loss", "max", UNI_SCOPE_ALL) == 2);
    CHECK(uni_trial_value(results, best, "loss", NULL, UNI_SCOPE_AVG) == 1.75);
    CHECK(uni_dict_get_int(uni_trial_info_of(results, 0)->metrics, "training_iteration", 0) == 2);
    /* The file says the same. */
    uni_tune_results *read = NULL;
    char *mine = NULL, *theirs = NULL;
    CHECK_OK(
        uni_tune_results_open(&read, uni_tune_info_of(uni_tuner_results(tuner))->dir, NULL, &err),
        &err);
    CHECK_OK(uni_tune_csv(&mine, results, true, &err), &err);
    CHECK_OK(uni_tune_csv(&theirs, read, true, &err), &err);
    CHECK(strcmp(mine, theirs) == 0 && uni_tune_info_of(read)->is_finished);
    uni_tune_results_free(read);
    free(mine);
    free(theirs);
    uni_tuner_free(tuner);
}

static int doubled(void *context, const uni_value *config, uni_value **out, uni_error *err)
{
    *out = uni_value_float(2 * uni_dict_get_float(config, "a", 0));
    return 0;
}

/* Every kind of parameter stays where it belongs, and the same seed gives the same config. */
static void every_domain(uni_program *program)
{
    uni_error err = { 0 };
    uni_value *space = tune_json(
        "{\"a\": {\"$uniform\": [2, 3]}, \"b\": {\"$quniform\": [0, 1, 0.25]}, \"c\": "
        "{\"$loguniform\": [1e-4, 0.1]}, \"d\": {\"$qloguniform\": [1, 100, 5]}, \"e\": "
        "{\"$randint\": [0, 3]}, \"f\": {\"$qrandint\": [2, 10, 4]}, \"g\": {\"$lograndint\": [1, "
        "1000]}, \"h\": {\"$normal\": [5, 0.5]}, \"i\": {\"$sample_from\": \"doubled\"}, \"j\": "
        "{\"$choice\": [{\"k\": {\"$randint\": [7, 9]}}, {\"k\": 1}]}, \"l\": [1, {\"$choice\": "
        "[4]}], \"m\": 3, \"n\": [[0, {\"$uniform\": [0, 1]}]], \"o\": {\"$qlograndint\": [4, 64, "
        "4]}}");
    const uni_tune_sampler samplers[] = { { "doubled", doubled, NULL }, { NULL, NULL, NULL } };
    bool seen[3] = { false };
    double sum = 0, squares = 0;
    CHECK_OK(uni__tune_space_check(space, &err), &err);
    for (int64_t i = 0; i < 2000; i++) {
        uni_value *config = NULL, *same = NULL;
        CHECK_OK(uni__tune_space_config(space, samplers, 42, i, &config, &err), &err);
        CHECK_OK(uni__tune_space_config(space, samplers, 42, i, &same, &err), &err);
        CHECK(uni_value_equal(config, same));
        double a = uni_dict_get_float(config, "a", 0), b = uni_dict_get_float(config, "b", -1),
               c = uni_dict_get_float(config, "c", 0), d = uni_dict_get_float(config, "d", 0),
               h = uni_dict_get_float(config, "h", 0);
        int64_t e = uni_dict_get_int(config, "e", -1), f = uni_dict_get_int(config, "f", -1),
                g = uni_dict_get_int(config, "g", 0),
                k = uni_value_as_int(uni_value_path(config, "j.k"), -1);
        CHECK(a >= 2 && a < 3 && b >= 0 && b <= 1 && fmod(b * 4, 1) == 0);
        CHECK(c >= 1e-4 && c <= 0.1 && d >= 1 && d <= 100 && fmod(d, 5) == 0);
        CHECK(e >= 0 && e < 3 && (f == 4 || f == 8) && g >= 1 && g < 1000);
        CHECK(uni_dict_get_float(config, "i", 0) == 2 * a && (k == 1 || k == 7 || k == 8));
        CHECK(uni_value_as_int(uni_value_path(config, "l.1"), 0) == 4);
        CHECK(uni_dict_get_int(config, "m", 0) == 3);
        double n = uni_value_as_float(uni_value_path(config, "n.0.1"), -1);
        int64_t o = uni_dict_get_int(config, "o", 0);
        CHECK(n >= 0 && n < 1 && o >= 4 && o <= 64 && o % 4 == 0);
        seen[e] = true;
        sum += h;
        squares += h * h;
        uni_value_free(config);
        uni_value_free(same);
    }
    double mean = sum / 2000, deviation = sqrt(squares / 2000 - mean * mean);
    CHECK(seen[0] && seen[1] && seen[2] && fabs(mean - 5) < 0.05 && fabs(deviation - 0.5) < 0.05);
    uni_value_free(space);
}

static void refused(uni_program *program, const char *spec_text, const char *sentence)
{
    uni_error err = { 0 };
    uni__tune_spec *spec = NULL;
    uni_tuner *tuner = NULL;
    uni_value *dict = tune_json(spec_text);
    int status = uni__tune_spec_read(&spec, dict, &err);
    if (status == 0) {
        uni_tuner_options options = *uni__tune_spec_options(spec);
        options.main = program;
        options.storage_path = scenario_storage();
        status = uni_tuner_new(&tuner, &options, &err);
    }
    CHECK(status < 0 && !tuner);
    CHECK_CONTAINS(err.message, sentence);
    uni__tune_spec_free(spec);
    uni_value_free(dict);
}

#define SPACE(inside) "{\"function\": \"square\", \"space\": {" inside "}}"

static void bad_input(uni_program *program)
{
    static const char *const cases[][2] = {
        { SPACE("\"x\": {\"$grid_search\": []}"), "the space is empty" },
        { SPACE("\"x\": {\"$uniform\": [2, 1]}"), "is above the upper end" },
        { SPACE("\"x\": {\"$loguniform\": [0, 1]}"), "above 0" },
        { SPACE("\"x\": {\"$lograndint\": [-1, 5]}"), "above 0" },
        { SPACE("\"x\": {\"$randint\": [3, 3]}"), "has no number" },
        { SPACE("\"x\": {\"$randint\": [1, 2, 3]}"), "a list of 2 numbers" },
        { SPACE("\"x\": {\"$uniform\": []}"), "a list of 2 numbers" },
        { SPACE("\"x\": {\"$unifrom\": [0, 1]}"), "is not a kind of parameter" },
        { SPACE("\"x\": {\"$quniform\": [0, 1, 0]}"), "must be positive" },
        { "{\"function\": \"square\", \"metric\": \"loss\"}", "has no mode" },
        { "{\"function\": \"square\", \"metric\": \"loss\", \"mode\": \"best\"}", "\"min\" or" },
        { "{\"function\": \"square\", \"scheduler\": {\"type\": \"asha\"}}", "needs a metric" },
        { "{\"function\": \"square\", \"searcher\": {\"type\": \"tpe\"}}", "needs a metric" },
        { "{\"function\": \"square\", \"scheduler\": {\"type\": \"best\"}}", "no scheduler" },
        { "{\"function\": \"square\", \"scheduler\": {\"type\": \"asha\", \"max\": 3}, \"metric\": "
          "\"a\", \"mode\": \"min\"}",
          "no option \"max\"" },
        { "{\"function\": \"square\", \"metrik\": \"loss\"}", "no option \"metrik\"" },
        { "{\"function\": \"square\", \"stop\": {\"loss\": \"low\"}}", "needs a number" },
        { "{\"function\": \"square\", \"num_samples\": -2}", "num_samples" },
        { "{\"function\": \"square\", \"cpus_per_trial\": 4096}", "this machine has" },
        { "{\"function\": \"square\", \"memory_per_trial\": 1e18}", "bytes of memory" },
        { "{}", "either a function or a program" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(program, cases[i][0], cases[i][1]);
    const uni_checkpoint_policy often = { .every_steps = 100 }, timed = { .every_seconds = 5 };
    const uni_checkpoint_policy *const policies[] = { &often, &timed };
    for (size_t i = 0; i < 2; i++) {
        uni_tuner *none = NULL;
        uni_error why = { 0 };
        CHECK(uni_tuner_new(&none,
                            UNI_OPTIONS(uni_tuner_options, .main = program, .function = "square",
                                        .policy = policies[i], .storage_path = scenario_storage()),
                            &why) == UNI_EUNSUPPORTED);
        CHECK_CONTAINS(why.message, "every_steps and every_seconds have no effect in a search");
    }
    /* Nothing was left behind by any of them. */
    char *names = scenario_list(scenario_storage(), NULL);
    CHECK(names && strstr(names, "tune_001") == NULL);
    free(names);
    /* A metric that nobody reports, and a trial that reports nothing. */
    uni_error err = { 0 };
    int64_t best;
    uni_tuner *tuner = tune_fitted(program, "{\"function\": \"square\", \"metric\": \"accuracy\", "
                                            "\"mode\": \"max\"}");
    CHECK(uni_tune_best(&best, uni_tuner_results(tuner), NULL, NULL, UNI_SCOPE_LAST, &err) ==
          UNI_ENOTFOUND);
    CHECK_CONTAINS(err.message, "\"accuracy\"; they reported: loss, x");
    /* The experiment's mode says nothing about another metric. */
    CHECK(uni_tune_best(&best, uni_tuner_results(tuner), "loss", NULL, UNI_SCOPE_LAST, &err) ==
          UNI_EINVAL);
    CHECK_CONTAINS(err.message, "which value of \"loss\" is better?");
    CHECK_OK(uni_tune_best(&best, uni_tuner_results(tuner), "loss", "min", UNI_SCOPE_LAST, &err),
             &err);
    uni_tuner_free(tuner);
    tuner = tune_fitted(program, "{\"function\": \"silent\"}");
    CHECK_CONTAINS(uni_trial_info_of(uni_tuner_results(tuner), 0)->why,
                   "returned without a report");
    CHECK(uni_tune_best(&best, uni_tuner_results(tuner), "loss", NULL, UNI_SCOPE_LAST, &err) ==
          UNI_EINVAL);
    CHECK(uni_tune_best(&best, uni_tuner_results(tuner), "loss", "min", UNI_SCOPE_LAST, &err) < 0);
    CHECK_CONTAINS(err.message, "no trial has reported anything");
    uni_tuner_free(tuner);
}

/* ---- schedulers and stopping ---- */

static void stop_criteria(uni_program *program)
{
    uni_tuner *tuner =
        tune_fitted(program, "{\"function\": \"square\", \"space\": {\"x\": 0, "
                             "\"epochs\": 50}, \"stop\": {\"training_iteration\": 3}}");
    CHECK(uni_trial_info_of(uni_tuner_results(tuner), 0)->iterations == 3);
    CHECK_CONTAINS(uni_trial_info_of(uni_tuner_results(tuner), 0)->why,
                   "reached training_iteration");
    uni_tuner_free(tuner);
    tuner =
        tune_fitted(program, "{\"function\": \"square\", \"space\": {\"x\": 0, \"epochs\": 50}, "
                             "\"stop\": {\"loss\": {\"below\": 0.21}}}");
    CHECK(uni_trial_info_of(uni_tuner_results(tuner), 0)->iterations == 5);
    uni_tuner_free(tuner);
    tuner =
        tune_fitted(program, "{\"function\": \"square\", \"space\": {\"x\": 0, \"epochs\": 500}, "
                             "\"stop\": {\"plateau\": {\"metric\": \"loss\", \"std\": 0.001}}}");
    /* The first n at which the last four of 1/n have a standard deviation of at most 0.001. */
    CHECK(uni_trial_info_of(uni_tuner_results(tuner), 0)->iterations == 35);
    uni_tuner_free(tuner);
    tuner =
        tune_fitted(program, "{\"function\": \"square\", \"space\": {\"x\": 0, \"epochs\": 100000, "
                             "\"slow_ms\": 5}, \"num_samples\": -1, \"time_budget\": 0.5}");
    /* The budget ended it: no trial came near its end, which is after eight minutes. */
    CHECK(uni_tune_info_of(uni_tuner_results(tuner))->num_trials >= 1);
    CHECK(total_iterations(uni_tuner_results(tuner)) < 50000);
    uni_tuner_free(tuner);
}

/* One at a time, so that it is known who meets whom at which rung: with two, who is late changes the sum. */
static void asha_ends_bad_trials(uni_program *program)
{
    uni_error err = { 0 };
    int64_t best;
    uni_tuner *tuner = tune_fitted(
        program, "{\"function\": \"square\", \"space\": {\"x\": {\"$uniform\": [-1, 1]}, "
                 "\"epochs\": 64}, \"num_samples\": 60, \"metric\": \"loss\", \"mode\": \"min\", "
                 "\"seed\": 3, \"max_concurrent\": 1, \"scheduler\": {\"type\": \"asha\", "
                 "\"max_t\": 64, \"grace_period\": 1, \"reduction_factor\": 4}}");
    const uni_tune_results *results = uni_tuner_results(tuner);
    CHECK(uni_tune_count_status(results, UNI_TRIAL_TERMINATED) == 60);
    CHECK(total_iterations(results) * 4 < 60 * 64);
    CHECK_OK(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_LAST, &err), &err);
    CHECK(uni_trial_info_of(results, best)->iterations == 64);
    uni_tuner_free(tuner);
}

static void median_ends_bad_trials(uni_program *program)
{
    uni_tuner *tuner = tune_fitted(
        program, "{\"function\": \"square\", \"space\": {\"x\": {\"$grid_search\": [0, 0.1, 0.2, "
                 "0.3, 5, 6]}, \"epochs\": 20}, \"metric\": \"loss\", \"mode\": \"min\", "
                 "\"max_concurrent\": 1, \"scheduler\": {\"type\": \"median\"}}");
    const uni_tune_results *results = uni_tuner_results(tuner);
    CHECK(uni_trial_info_of(results, 0)->iterations == 20);
    CHECK(uni_trial_info_of(results, 4)->iterations == 1 &&
          uni_trial_info_of(results, 5)->iterations == 1);
    uni_tuner_free(tuner);
}

/* Paused trials go on from their checkpoints: no epoch is trained twice. */
static void hyperband_halves(uni_program *program)
{
    uni_tuner *tuner = tune_fitted(
        program, "{\"function\": \"square\", \"space\": {\"x\": {\"$uniform\": [-1, 1]}, "
                 "\"epochs\": 9, \"save\": true}, \"num_samples\": 9, \"metric\": \"loss\", "
                 "\"mode\": \"min\", \"seed\": 5, \"max_concurrent\": 2, \"scheduler\": {\"type\": "
                 "\"hyperband\", \"max_t\": 9, \"reduction_factor\": 3}}");
    const uni_tune_results *results = uni_tuner_results(tuner);
    int reached[10] = { 0 };
    CHECK(uni_tune_count_status(results, UNI_TRIAL_TERMINATED) == 9);
    for (int64_t i = 0; i < 9; i++)
        reached[uni_trial_info_of(results, i)->iterations]++;
    CHECK(reached[1] == 6 && reached[3] == 2 && reached[9] == 1);
    uni_tuner_free(tuner);
}

static void pbt_hands_on(uni_program *program)
{
    uni_tuner *tuner = tune_fitted(
        program, "{\"function\": \"square\", \"space\": {\"x\": {\"$grid_search\": [0, 1, 2, 9]}, "
                 "\"epochs\": 12, \"save\": true}, \"metric\": \"loss\", \"mode\": \"min\", "
                 "\"seed\": 1, \"max_concurrent\": 2, \"scheduler\": {\"type\": \"pbt\", "
                 "\"perturbation_interval\": 3, \"mutations\": {\"x\": {\"$uniform\": [0, 1]}}}}");
    const uni_tune_results *results = uni_tuner_results(tuner);
    CHECK(uni_tune_count_status(results, UNI_TRIAL_TERMINATED) == 4);
    double x[4];
    for (int64_t i = 0; i < 4; i++)
        x[i] = uni_dict_get_float(uni_trial_info_of(results, i)->config, "x", -1);
    /* The best one is never replaced. Each of the others keeps its value or has one that was made
     * from the best one's: drawn from the mutation's range, or a multiple of 0. The worst one was
     * always replaced. */
    CHECK(x[0] == 0 && uni_trial_info_of(results, 0)->iterations == 12);
    CHECK(x[1] >= 0 && x[1] <= 1);
    CHECK(x[2] == 2 || (x[2] >= 0 && x[2] <= 1));
    CHECK(x[3] >= 0 && x[3] <= 1);
    uni_tuner_free(tuner);
}

static void tpe_learns(uni_program *program)
{
    uni_error err = { 0 };
    int64_t best;
    uni_tuner *tuner = tune_fitted(
        program, "{\"function\": \"square\", \"space\": {\"x\": {\"$uniform\": [-10, 10]}, "
                 "\"epochs\": 1}, \"num_samples\": 60, \"metric\": \"loss\", \"mode\": \"min\", "
                 "\"seed\": 11, \"searcher\": {\"type\": \"tpe\"}, \"max_concurrent\": 1}");
    const uni_tune_results *results = uni_tuner_results(tuner);
    /* Of the last 20, Optuna's TPE has 11 to 14 within 2 of the optimum (6 seeds); a random search
     * has 11 or more once in ten thousand. */
    int near = 0;
    for (int64_t i = 40; i < 60; i++)
        near += fabs(uni_dict_get_float(uni_trial_info_of(results, i)->config, "x", 10)) < 2;
    CHECK(near >= 11);
    CHECK_OK(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_LAST, &err), &err);
    CHECK(uni_trial_value(results, best, NULL, NULL, UNI_SCOPE_LAST) < 1.05);
    uni_tuner_free(tuner);
}

/* ---- failures ---- */

static void failures_stay_alone(uni_program *program)
{
    uni_tuner *tuner = tune_fitted(
        program, "{\"function\": \"dies\", \"space\": {\"how\": {\"$grid_search\": [0, 1, 2, 3, "
                 "4]}}, \"max_failures\": 1, \"max_concurrent\": 2}");
    const uni_tune_results *results = uni_tuner_results(tuner);
    CHECK(uni_tune_count_status(results, UNI_TRIAL_ERROR) == 2);
    CHECK(uni_trial_info_of(results, 0)->status == UNI_TRIAL_TERMINATED);
    CHECK_CONTAINS(uni_trial_info_of(results, 1)->error, "signal 9");
    CHECK(uni_trial_info_of(results, 1)->attempts == 2 &&
          uni_trial_info_of(results, 2)->attempts == 2);
    CHECK(uni_trial_info_of(results, 2)->status == UNI_TRIAL_TERMINATED);
    CHECK_CONTAINS(uni_trial_info_of(results, 3)->error, "it always goes wrong");
    /* What it printed is its own. */
    char *dir = uni_trial_dir(results, 4), path[4200];
    snprintf(path, sizeof path, "%s/logs/rank_0.log", dir);
    FILE *log = fopen(path, "r");
    char line[100] = "";
    CHECK(log && fgets(line, sizeof line, log));
    CHECK_CONTAINS(line, "how 4");
    fclose(log);
    free(dir);
    /* One that only failed before it reported has no files but its log. */
    uni_tuner_free(tuner);
    uni_error err = { 0 };
    tuner = tune_tuner(program, "{\"function\": \"dies\", \"space\": {\"how\": {\"$grid_search\": "
                                "[3, 0, 0, 0]}}, \"fail_fast\": true, \"max_concurrent\": 1}");
    CHECK(uni_tuner_fit(tuner, &err) == UNI_EFUNCTION);
    CHECK_CONTAINS(err.message, "fail_fast");
    CHECK(uni_tune_info_of(uni_tuner_results(tuner))->num_trials == 1);
    uni_tuner_free(tuner);
}

static void second_tuner_is_refused(uni_program *program)
{
    uni_error err = { 0 };
    uni_tuner *tuner = tune_tuner(program, "{\"function\": \"square\"}"), *second = NULL;
    int status = uni_tuner_open(&second, uni_tune_info_of(uni_tuner_results(tuner))->dir,
                                &(uni_tuner_options){ .main = program }, 0, &err);
    CHECK(status == UNI_EBUSY && !second);
    CHECK_CONTAINS(err.message, "another tuner is at work");
    CHECK_OK(uni_tuner_fit(tuner, &err), &err);
    uni_tuner_free(tuner);
}

static void full_disk(uni_program *program)
{
    char place[512], command[700], spec[1000];
    uni_error err = { 0 };
    snprintf(place, sizeof place, "%s/small", scenario_storage());
    CHECK(mkdir(place, 0700) == 0);
    snprintf(command, sizeof command, "mount -t tmpfs -o size=300k tmpfs '%s' 2>/dev/null", place);
    if (system(command) != 0)
        scenario_end(77); /* not root: skipped */
    snprintf(spec, sizeof spec,
             "{\"function\": \"square\", \"space\": {\"x\": {\"$uniform\": [0, 1]}}, "
             "\"num_samples\": 200, \"name\": \"full\", \"max_concurrent\": 2, \"seed\": 2, "
             "\"storage_path\": \"%s\"}",
             place);
    uni_tuner *tuner = tune_tuner(program, spec);
    int status = uni_tuner_fit(tuner, &err);
    uni_tuner_free(tuner);
    int64_t done = -1;
    uni_error later = { 0 };
    snprintf(command, sizeof command, "mount -o remount,size=20m '%s'", place);
    CHECK(system(command) == 0);
    CHECK_OK(uni_tuner_open(&tuner, "full",
                            &(uni_tuner_options){ .main = program, .storage_path = place }, 0,
                            &later),
             &later);
    int again = uni_tuner_fit(tuner, &later);
    done = uni_tune_count_status(uni_tuner_results(tuner), UNI_TRIAL_TERMINATED);
    uni_tuner_free(tuner);
    snprintf(command, sizeof command, "umount '%s'", place);
    CHECK(system(command) == 0);
    CHECK(status == UNI_EDISKFULL);
    CHECK_OK(again, &later);
    CHECK(done == 200);
}

static void groups_of_workers(uni_program *program)
{
    uni_error err = { 0 };
    int64_t best;
    uni_tuner *tuner = tune_fitted(
        program, "{\"function\": \"square\", \"num_workers\": 2, \"space\": {\"x\": "
                 "{\"$grid_search\": [2, 1]}, \"epochs\": 3, \"save\": true}, \"metric\": "
                 "\"loss\", \"mode\": \"min\", \"max_concurrent\": 1}");
    const uni_tune_results *results = uni_tuner_results(tuner);
    CHECK(uni_tune_count_status(results, UNI_TRIAL_TERMINATED) == 2);
    CHECK(uni_trial_info_of(results, 0)->iterations == 3);
    CHECK_OK(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_LAST, &err), &err);
    char *checkpoint = uni_trial_checkpoint(results, best, false);
    CHECK(best == 1 && checkpoint);
    CHECK_CONTAINS(checkpoint, "trial_00001/run_001/checkpoints");
    free(checkpoint);
    uni_tuner_free(tuner);
}

typedef struct visited {
    int64_t count, last_trial, last_iteration;
} visited;

static int visit(void *context, int64_t trial, int64_t iteration, const uni_value *metrics,
                 uni_error *err)
{
    visited *seen = context;
    if (seen->last_trial == trial && iteration != seen->last_iteration + 1)
        return uni_error_set(err, UNI_EFORMAT, "iteration %lld of trial %lld", (long long)iteration,
                             (long long)trial);
    *seen = (visited){ seen->count + 1, trial, iteration };
    return uni_dict_get(metrics, "loss") ? 0 : uni_error_set(err, UNI_EFORMAT, "no loss");
}

/* What another process finds of an experiment that has ended. */
static void read_back(uni_program *program)
{
    uni_error err = { 0 };
    uni_tune_results *read = NULL;
    visited seen = { 0, -1, 0 };
    uni_tuner *tuner = tune_fitted(
        program, "{\"function\": \"square\", \"name\": \"found\", \"space\": {\"x\": "
                 "{\"$grid_search\": [2, 1, 0]}, \"epochs\": 4, \"save\": true}, \"metric\": "
                 "\"loss\", \"mode\": \"min\", \"max_concurrent\": 1}");
    const char *dir = uni_tune_info_of(uni_tuner_results(tuner))->dir;
    CHECK_OK(uni_tune_results_open(&read, dir, NULL, &err), &err);
    CHECK(uni_tune_info_of(read)->num_trials == 3);
    CHECK_OK(uni_tune_reports(read, visit, &seen, &err), &err);
    CHECK(seen.count == 12);
    for (int64_t i = 0; i < 3; i++) {
        char *trial = uni_trial_dir(read, i), *best = uni_trial_checkpoint(read, i, true),
             *last = uni_trial_checkpoint(read, i, false), id[64], path[4096];
        char text[4096] = "";
        snprintf(id, sizeof id, "/trial_%05d\"", (int)i);
        snprintf(path, sizeof path, "%s/run.json", trial);
        FILE *file = fopen(path, "r");
        CHECK(file && fread(text, 1, sizeof text - 1, file) > 0);
        fclose(file);
        CHECK_CONTAINS(text, id);
        CHECK(uni_trial_info_of(read, i)->status == UNI_TRIAL_TERMINATED);
        CHECK(uni_trial_info_of(read, i)->iterations == 4);
        CHECK(best && last && strncmp(best, trial, strlen(trial)) == 0);
        free(trial);
        free(best);
        free(last);
    }
    /* There is no such trial. */
    CHECK(uni_trial_info_of(read, 3)->config == NULL &&
          uni_trial_info_of(read, -1)->metrics == NULL);
    CHECK(isnan(uni_trial_value(read, 3, "loss", "min", UNI_SCOPE_LAST)));
    CHECK(uni_trial_checkpoint(read, 3, true) == NULL);
    uni_tune_results_free(read);
    uni_tuner_free(tuner);
}

const scenario scenarios[] = { { "grid_is_crossed", grid_is_crossed },
                               { "every_domain", every_domain },
                               { "bad_input", bad_input },
                               { "stop_criteria", stop_criteria },
                               { "asha_ends_bad_trials", asha_ends_bad_trials },
                               { "median_ends_bad_trials", median_ends_bad_trials },
                               { "hyperband_halves", hyperband_halves },
                               { "pbt_hands_on", pbt_hands_on },
                               { "tpe_learns", tpe_learns },
                               { "failures_stay_alone", failures_stay_alone },
                               { "second_tuner_is_refused", second_tuner_is_refused },
                               { "full_disk", full_disk },
                               { "groups_of_workers", groups_of_workers },
                               { "read_back", read_back },
                               { NULL, NULL } };
