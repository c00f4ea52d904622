/*
 * experiment_test.c - what each record of tune.jsonl does to an experiment, what the stop criteria
 * make of it, and what results say afterwards.
 */
#include "tune/testing.h"

#include "tune/experiment.h"
#include "tune/stop.h"

static int apply(uni_tune_results *results, const char *record, uni_error *err)
{
    uni_value *value = json(record);
    int status = uni__experiment_apply(&results->experiment, value, err);
    uni_value_free(value);
    return status;
}

static void take(uni_tune_results *results, const char *record)
{
    uni_error err = { 0 };
    if (apply(results, record, &err) < 0)
        fail_msg("%s: %s", record, err.message);
}

static uni_tune_results *begin(const char *spec)
{
    char record[400];
    uni_tune_results *results = calloc(1, sizeof *results);
    results->experiment.dir = strdup("/dir");
    snprintf(
        record, sizeof record,
        "{\"e\": \"experiment\", \"name\": \"n\", \"expected\": 4, \"time\": 7.5, \"spec\": %s}",
        spec);
    take(results, record);
    return results;
}

#define MAX_SCORE "{\"metric\": \"score\", \"mode\": \"max\"}"

static uni__trial *trial(const uni_tune_results *results, int64_t index)
{
    uni__trial *found = uni__experiment_trial(&results->experiment, index);
    assert_non_null(found);
    return found;
}

static void report(uni_tune_results *results, int index, int iteration, const char *metrics)
{
    char record[400];
    snprintf(record, sizeof record,
             "{\"e\": \"report\", \"t\": %d, \"i\": %d, \"s\": %d, \"m\": %s}", index, iteration,
             10 * iteration, metrics);
    take(results, record);
}

static double value(const uni_tune_results *results, int index, const char *name, int sign,
                    uni_scope scope)
{
    double out = -1;
    int number = uni__experiment_metric(&results->experiment, name);
    return number >= 0 && uni__trial_value(trial(results, index), number, sign, scope, &out) ? out
                                                                                             : NAN;
}

/* ---- records ---- */

static void beginning(void **state)
{
    uni_tune_results *results = begin(MAX_SCORE);
    const uni__experiment *experiment = &results->experiment;
    assert_int_equal(experiment->sign, 1);
    assert_int_equal(experiment->expected, 4);
    assert_string_equal(experiment->metric, "score");
    assert_string_equal(experiment->name, "n");
    assert_true(experiment->created == 7.5);
    take(results, "{\"e\": \"tuner\"}");
    take(results, "{\"e\": \"clock\", \"used\": 3.5}");
    assert_true(experiment->seconds_used == 3.5 && !experiment->finished);
    take(results, "{\"e\": \"finish\", \"used\": 4}");
    assert_true(experiment->seconds_used == 4 && experiment->finished);
    take(results, "{\"e\": \"tuner\"}"); /* opened again: not finished any more */
    assert_true(!experiment->finished && experiment->tuners == 2);
    take(results, "{\"e\": \"from the future\", \"t\": 0}"); /* unknown records are passed over */
    uni_tune_results_free(results);
    results = begin("{\"mode\": \"min\"}");
    assert_int_equal(results->experiment.sign, -1);
    assert_null(results->experiment.metric);
    uni_tune_results_free(results);
    results = begin("{}");
    assert_int_equal(results->experiment.sign, 0);
    uni_tune_results_free(results);
}

static void a_trials_life(void **state)
{
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {\"lr\": 1}}");
    uni__trial *one = trial(results, 0);
    assert_int_equal(one->status, UNI_TRIAL_PENDING);
    take(results, "{\"e\": \"run\", \"t\": 0, \"time\": 5}");
    assert_int_equal(one->status, UNI_TRIAL_RUNNING);
    assert_int_equal(one->attempts, 1);
    assert_true(one->started == 5);
    report(results, 0, 1, "{\"score\": 3, \"deep\": {\"loss\": 0.5}, \"text\": \"x\"}");
    report(results, 0, 2, "{\"score\": 9, \"deep\": {\"loss\": 0.25}}");
    report(results, 0, 3, "{\"score\": 6}");
    assert_int_equal(one->iteration, 3);
    assert_true(one->seconds == 30);
    assert_int_equal(uni_dict_get_int(one->last, "score", 0), 6);
    assert_true(value(results, 0, "score", 1, UNI_SCOPE_LAST) == 6);
    assert_true(value(results, 0, "score", 1, UNI_SCOPE_ALL) == 9);
    assert_true(value(results, 0, "score", -1, UNI_SCOPE_ALL) == 3);
    assert_true(value(results, 0, "score", 1, UNI_SCOPE_AVG) == 6);
    assert_true(value(results, 0, "deep/loss", -1, UNI_SCOPE_ALL) == 0.25);
    assert_true(value(results, 0, "deep.loss", 1, UNI_SCOPE_ALL) == 0.5);
    assert_int_equal(uni__experiment_metric(&results->experiment, "text"), -1);
    take(results, "{\"e\": \"end\", \"t\": 0, \"s\": \"terminated\", \"w\": \"done\"}");
    assert_int_equal(one->status, UNI_TRIAL_TERMINATED);
    assert_string_equal(one->why, "done");
    assert_null(one->error);
    assert_int_equal(one->num_reports, 0); /* only sums are kept */
    assert_true(value(results, 0, "score", 1, UNI_SCOPE_AVG) == 6);
    uni_tune_results_free(results);
}

static void how_trials_end(void **state)
{
    static const struct {
        const char *end;
        uni_trial_status status;
    } cases[] = { { "\"s\": \"error\", \"error\": \"boom\", \"failed\": true", UNI_TRIAL_ERROR },
                  { "\"s\": \"paused\"", UNI_TRIAL_PAUSED },
                  { "\"s\": \"pending\"", UNI_TRIAL_PENDING },
                  { "\"s\": \"unheard of\"", UNI_TRIAL_RUNNING } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char record[200];
        uni_tune_results *results = begin(MAX_SCORE);
        take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
        take(results, "{\"e\": \"run\", \"t\": 0}");
        report(results, 0, 1, "{\"score\": 1}");
        snprintf(record, sizeof record, "{\"e\": \"end\", \"t\": 0, %s}", cases[i].end);
        take(results, record);
        uni__trial *one = trial(results, 0);
        assert_int_equal(one->status, cases[i].status);
        assert_int_equal(one->failures, i == 0);
        assert_int_equal(one->num_reports, i == 0 ? 0 : 1); /* one that goes on keeps them */
        if (i == 0)
            assert_string_equal(one->error, "boom");
        uni_tune_results_free(results);
    }
}

/* A restart takes back what came after the checkpoint. */
static void taken_back(void **state)
{
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {\"lr\": 1}}");
    take(results, "{\"e\": \"run\", \"t\": 0}");
    report(results, 0, 1, "{\"score\": 1}");
    take(results, "{\"e\": \"checkpoint\", \"t\": 0, \"number\": 1, \"i\": 1, \"path\": "
                  "\"trial_00000/c1\", \"best\": \"trial_00000/c1\"}");
    report(results, 0, 2, "{\"score\": 8, \"other\": 1}");
    report(results, 0, 3, "{\"score\": 7}");
    take(results, "{\"e\": \"end\", \"t\": 0, \"s\": \"pending\", \"failed\": true}");
    take(results, "{\"e\": \"run\", \"t\": 0, \"i\": 1, \"c\": {\"lr\": 2}}");
    uni__trial *one = trial(results, 0);
    assert_int_equal(one->attempts, 2);
    assert_int_equal(one->failures, 1);
    assert_int_equal(one->iteration, 1);
    assert_int_equal(one->num_reports, 1);
    assert_int_equal(uni_dict_get_int(one->config, "lr", 0), 2);
    assert_int_equal(uni_dict_get_int(one->last, "score", 0), 1);
    assert_true(one->seconds == 10);
    assert_true(value(results, 0, "score", 1, UNI_SCOPE_ALL) == 1);
    assert_true(isnan(value(results, 0, "other", 1, UNI_SCOPE_LAST)));
    take(results, "{\"e\": \"run\", \"t\": 0, \"i\": 0}"); /* from the very beginning */
    assert_int_equal(one->num_reports, 0);
    assert_null(one->last);
    assert_true(one->seconds == 0);
    uni_tune_results_free(results);
}

static void checkpoints(void **state)
{
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
    take(results, "{\"e\": \"run\", \"t\": 0}");
    uni__trial *one = trial(results, 0);
    take(results, "{\"e\": \"end\", \"t\": 0, \"s\": \"paused\", \"from\": \"trial_00001/c4\", "
                  "\"i\": 4, \"c\": {\"lr\": 3}}");
    assert_string_equal(one->start_checkpoint, "trial_00001/c4");
    assert_int_equal(one->start_iteration, 4);
    assert_int_equal(uni_dict_get_int(one->config, "lr", 0), 3);
    take(results, "{\"e\": \"checkpoint\", \"t\": 0, \"number\": 2, \"i\": 5, \"path\": \"a/c2\", "
                  "\"best\": \"a/c1\"}");
    assert_null(one->start_checkpoint); /* its own is newer */
    assert_string_equal(one->checkpoint, "a/c2");
    assert_string_equal(one->best_checkpoint, "a/c1");
    assert_int_equal(one->checkpoint_number, 2);
    assert_int_equal(one->checkpoint_iteration, 5);
    take(results, "{\"e\": \"end\", \"t\": 0, \"s\": \"pending\", \"restart\": true}");
    assert_true(one->from_the_start);
    assert_null(one->checkpoint);
    assert_null(one->best_checkpoint);
    assert_int_equal(one->checkpoint_number, 0);
    take(results, "{\"e\": \"checkpoint\", \"t\": 0, \"number\": 3, \"i\": 1, \"path\": \"a/c3\"}");
    assert_false(one->from_the_start);
    assert_null(one->best_checkpoint);
    uni_tune_results_free(results);
}

/* A journal may be forged: paths stay inside the experiment. */
static void hostile_paths(void **state)
{
    static const char *const bad[] = { "/etc/passwd", "..", "../x", "a/../../x", "a/.." };
    static const char *const good[] = { "a", "a/b", "..a", "a..", "a/..b/c", "..." };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char record[200];
        uni_error err = { 0 };
        uni_tune_results *results = begin(MAX_SCORE);
        take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
        static const char *const forms[] = {
            "{\"e\": \"checkpoint\", \"t\": 0, \"path\": \"%s\"}",
            "{\"e\": \"checkpoint\", \"t\": 0, \"path\": \"a\", \"best\": \"%s\"}",
            "{\"e\": \"end\", \"t\": 0, \"s\": \"paused\", \"from\": \"%s\"}",
        };
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(record, sizeof record, forms[f], bad[i]);
#pragma GCC diagnostic pop
            assert_int_equal(apply(results, record, &err), UNI_ECORRUPT);
            assert_non_null(strstr(err.message, "outside of it"));
        }
        uni_tune_results_free(results);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char record[200];
        uni_tune_results *results = begin(MAX_SCORE);
        take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
        snprintf(record, sizeof record, "{\"e\": \"checkpoint\", \"t\": 0, \"path\": \"%s\"}",
                 good[i]);
        take(results, record);
        assert_string_equal(trial(results, 0)->checkpoint, good[i]);
        uni_tune_results_free(results);
    }
}

static void missing_lines(void **state)
{
    uni_error err = { 0 };
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
    assert_int_equal(apply(results, "{\"e\": \"trial\", \"t\": 2, \"c\": {}}", &err), UNI_ECORRUPT);
    assert_non_null(strstr(err.message, "has trial 2 where 1 should be"));
    assert_int_equal(apply(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}", &err), UNI_ECORRUPT);
    /* of trials that are not there nothing is known */
    take(results, "{\"e\": \"report\", \"t\": 5, \"i\": 1, \"m\": {\"score\": 1}}");
    take(results, "{\"e\": \"report\", \"t\": -1, \"i\": 1, \"m\": {\"score\": 1}}");
    assert_null(uni__experiment_trial(&results->experiment, 1));
    assert_null(uni__experiment_trial(&results->experiment, -1));
    assert_int_equal(results->experiment.count, 1);
    uni_tune_results_free(results);
}

/* Numbers that JSON does not have go through the record and come back. */
static void nonfinite(void **state)
{
    uni_value *metrics = uni_value_dict(), *deep = uni_value_dict();
    assert_int_equal(uni_dict_take(deep, "worst", uni_value_float(-INFINITY)), 0);
    assert_int_equal(uni_dict_take(metrics, "loss", uni_value_float(NAN)), 0);
    assert_int_equal(uni_dict_take(metrics, "best", uni_value_float(INFINITY)), 0);
    assert_int_equal(uni_dict_take(metrics, "fine", uni_value_float(2)), 0);
    assert_int_equal(uni_dict_take(metrics, "deep", deep), 0);
    uni_value *record = uni__tune_record("report", 3);
    assert_int_equal(uni_dict_get_int(record, "t", 0), 3);
    assert_int_equal(uni__record_metrics(record, metrics), 0);
    const uni_value *names = uni_dict_get(record, "n");
    assert_int_equal(uni_dict_size(names), 3);
    assert_string_equal(uni_dict_get_string(names, "loss", ""), "NaN");
    assert_string_equal(uni_dict_get_string(names, "best", ""), "Infinity");
    assert_string_equal(uni_dict_get_string(names, "deep.worst", ""), "-Infinity");
    uni_value *back = uni__record_read_metrics(record);
    assert_true(isnan(uni_dict_get_float(back, "loss", 0)));
    assert_true(uni_dict_get_float(back, "best", 0) == INFINITY);
    assert_true(uni__tune_metric(back, "deep/worst") == -INFINITY);
    assert_true(uni__tune_metric(back, "fine") == 2);
    assert_true(isnan(uni__tune_metric(back, "missing")));
    uni_value_free(back);
    uni_value_free(record);
    uni_value_free(metrics);
    record = uni__tune_record("finish", -1);
    assert_null(uni_dict_get(record, "t"));
    back = uni__record_read_metrics(record); /* no metrics: an empty dictionary */
    assert_int_equal(uni_dict_size(back), 0);
    uni_value_free(back);
    uni_value_free(record);
}

/* A mean is of the finite values, the best is never NaN, the last is what it is. */
static void diverged_values(void **state)
{
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
    take(results, "{\"e\": \"run\", \"t\": 0}");
    report(results, 0, 1, "{\"score\": 4}");
    report(results, 0, 2, "{\"score\": 2}");
    take(results, "{\"e\": \"report\", \"t\": 0, \"i\": 3, \"m\": {\"score\": null}, \"n\": "
                  "{\"score\": \"Infinity\"}}");
    take(results, "{\"e\": \"report\", \"t\": 0, \"i\": 4, \"m\": {\"score\": null}, \"n\": "
                  "{\"score\": \"NaN\"}}");
    assert_true(isnan(value(results, 0, "score", 1, UNI_SCOPE_LAST)));
    assert_true(value(results, 0, "score", 1, UNI_SCOPE_ALL) == 4);
    assert_true(value(results, 0, "score", -1, UNI_SCOPE_ALL) == 2);
    assert_true(value(results, 0, "score", 1, UNI_SCOPE_AVG) == 3);
    uni_tune_results_free(results);
}

/* ---- the best ---- */

static void best_trial(void **state)
{
    uni_error err = { 0 };
    int64_t best = 9;
    uni_tune_results *results = begin(MAX_SCORE);
    assert_int_equal(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_LAST, &err),
                     UNI_ENOTFOUND);
    assert_non_null(strstr(err.message, "no trial has reported anything"));
    assert_int_equal(best, -1);
    for (int i = 0; i < 3; i++) {
        char record[80];
        snprintf(record, sizeof record, "{\"e\": \"trial\", \"t\": %d, \"c\": {}}", i);
        take(results, record);
        snprintf(record, sizeof record, "{\"e\": \"run\", \"t\": %d}", i);
        take(results, record);
    }
    report(results, 0, 1, "{\"score\": 5, \"loss\": 1}");
    report(results, 0, 2, "{\"score\": 1, \"loss\": 3}");
    report(results, 1, 1, "{\"score\": 2, \"loss\": 2}");
    report(results, 2, 1, "{\"score\": 2, \"loss\": 2}");
    assert_int_equal(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_LAST, &err), 0);
    assert_int_equal(best, 1); /* of equals the first */
    assert_int_equal(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_ALL, &err), 0);
    assert_int_equal(best, 0);
    assert_int_equal(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_AVG, &err), 0);
    assert_int_equal(best, 0); /* 3 */
    assert_int_equal(uni_tune_best(&best, results, NULL, "min", UNI_SCOPE_LAST, &err), 0);
    assert_int_equal(best, 0);
    assert_int_equal(uni_tune_best(&best, results, "loss", "min", UNI_SCOPE_ALL, &err), 0);
    assert_int_equal(best, 0);
    assert_int_equal(uni_tune_best(&best, results, "loss", NULL, UNI_SCOPE_ALL, &err), UNI_EINVAL);
    assert_non_null(strstr(err.message, "which value of \"loss\" is better"));
    assert_int_equal(uni_tune_best(&best, results, "loss", "most", UNI_SCOPE_ALL, &err),
                     UNI_EINVAL);
    assert_int_equal(uni_tune_best(&best, results, "lost", "min", UNI_SCOPE_ALL, &err),
                     UNI_ENOTFOUND);
    assert_non_null(strstr(err.message, "they reported: score, loss"));
    uni_tune_results_free(results);
}

static void no_best_of_diverged(void **state)
{
    uni_error err = { 0 };
    int64_t best = 9;
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
    take(results, "{\"e\": \"report\", \"t\": 0, \"i\": 1, \"m\": {\"score\": null}, \"n\": "
                  "{\"score\": \"Infinity\"}}");
    assert_int_equal(uni_tune_best(&best, results, NULL, NULL, UNI_SCOPE_LAST, &err),
                     UNI_ENOTFOUND);
    assert_non_null(strstr(err.message, "NaN or infinite"));
    uni_tune_results_free(results);
}

/* ---- the table ---- */

static void csv(void **state)
{
    uni_error err = { 0 };
    char *text = NULL;
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {\"lr\": 0.5, \"net\": {\"n\": 3}}}");
    take(results, "{\"e\": \"run\", \"t\": 0}");
    report(results, 0, 1,
           "{\"score\": 2, \"note\": \"a,\\\"b\\\"\", \"time_total_s\": 9, \"list\": [1, 2]}");
    take(results, "{\"e\": \"end\", \"t\": 0, \"s\": \"terminated\"}");
    take(results, "{\"e\": \"trial\", \"t\": 1, \"c\": {\"lr\": 1}}");
    take(results, "{\"e\": \"end\", \"t\": 1, \"s\": \"error\", \"error\": \"return\\r\"}");
    assert_int_equal(uni_tune_csv(&text, results, false, &err), 0);
    assert_string_equal(text,
                        "trial,status,iterations,config/lr,config/net/n,score,note,list,error\n"
                        "0,TERMINATED,1,0.5,3,2,\"a,\"\"b\"\"\",\"[1,2]\",\n"
                        "1,ERROR,0,1,,,,,\"return\r\"\n");
    free(text);
    assert_int_equal(uni_tune_csv(&text, results, true, &err), 0);
    assert_non_null(strstr(text, "trial,status,iterations,seconds,attempts,config/lr"));
    assert_non_null(strstr(text, "time_total_s"));
    free(text);
    uni_tune_results_free(results);
}

/* A metric that has the name of one of the table's own columns hides nothing. */
static void csv_names_that_meet(void **state)
{
    uni_error err = { 0 };
    char *text = NULL;
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
    take(results, "{\"e\": \"run\", \"t\": 0}");
    report(results, 0, 1, "{\"status\": 3, \"trial\": 4, \"error\": 5, \"config/a\": 6}");
    take(results, "{\"e\": \"end\", \"t\": 0, \"s\": \"error\", \"error\": \"boom\"}");
    assert_int_equal(uni_tune_csv(&text, results, false, &err), 0);
    assert_string_equal(text, "trial,status,iterations,metrics/status,metrics/trial,metrics/error,"
                              "config/a,error\n0,ERROR,1,3,4,5,6,boom\n");
    free(text);
    uni_tune_results_free(results);
}

/* ---- stop criteria ---- */

static const char *stops(const uni_tune_results *results, const char *stop, const char *metrics)
{
    static char reason[64];
    const char *why = NULL;
    uni_value *criteria = json(stop), *now = json(metrics);
    bool reached = uni__stop_reached(criteria, &results->experiment, trial(results, 0), now, &why);
    snprintf(reason, sizeof reason, "%s", reached ? why : "no");
    uni_value_free(criteria);
    uni_value_free(now);
    return reason;
}

static void stopping(void **state)
{
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
    static const char *const cases[][3] = {
        { "{\"score\": 0.9}", "{\"score\": 0.9}", "score" },
        { "{\"score\": 0.9}", "{\"score\": 0.89}", "no" },
        { "{\"score\": 0.9}", "{\"other\": 1}", "no" },
        { "{\"score\": 0.9}", "{\"score\": \"high\"}", "no" },
        { "{\"loss\": {\"below\": 0.1}}", "{\"loss\": 0.1}", "loss" },
        { "{\"loss\": {\"below\": 0.1}}", "{\"loss\": 0.11}", "no" },
        { "{\"loss\": {\"above\": 7}}", "{\"loss\": 7}", "loss" },
        { "{\"loss\": {\"below\": 1, \"above\": 7}}", "{\"loss\": 3}", "no" },
        { "{\"a/b\": 2, \"c\": 1}", "{\"a\": {\"b\": 1}, \"c\": 1}", "c" },
        { "{\"a/b\": 2}", "{\"a\": {\"b\": 2}}", "a/b" },
        { "{\"score\": 0}", "{\"score\": 0}", "score" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(stops(results, cases[i][0], cases[i][1]), cases[i][2]) != 0)
            fail_msg("%s with %s", cases[i][0], cases[i][1]);
    uni_tune_results_free(results);
}

/* The last three values, this one included, within a deviation of 0.1, from report 4 on. */
static void plateaus(void **state)
{
    static const char rule[] =
        "{\"plateau\": {\"std\": 0.1, \"num_results\": 3, \"grace_period\": 4}}";
    uni_tune_results *results = begin(MAX_SCORE);
    take(results, "{\"e\": \"trial\", \"t\": 0, \"c\": {}}");
    take(results, "{\"e\": \"run\", \"t\": 0}");
    assert_string_equal(stops(results, rule, "{\"score\": 5}"), "no");
    report(results, 0, 1, "{\"score\": 5}");
    report(results, 0, 2, "{\"score\": 5}");
    assert_string_equal(stops(results, rule, "{\"score\": 5}"), "no"); /* the third */
    report(results, 0, 3, "{\"score\": 5}");
    assert_string_equal(stops(results, rule, "{\"score\": 5}"), "plateau");
    assert_string_equal(stops(results, rule, "{\"score\": 5.2}"), "plateau"); /* 0.094 */
    assert_string_equal(stops(results, rule, "{\"score\": 5.3}"), "no"); /* 0.141 */
    assert_string_equal(stops(results, rule, "{\"other\": 5}"), "no");
    uni_tune_results_free(results);
}

static void wrong_stops(void **state)
{
    static const char *const cases[][2] = {
        { "[1]", "must be a dictionary" },
        { "{\"loss\": \"low\"}", "needs a number (at least)" },
        { "{\"loss\": {\"under\": 1}}", "no option \"under\"" },
        { "{\"loss\": {\"below\": \"1\"}}", "\"below\" needs a number" },
        { "{\"plateau\": {\"num_results\": 1}}", "num_results must be a number of at least 2" },
        { "{\"plateau\": {\"std\": -1}}", "std must be a number" },
        { "{\"plateau\": {\"width\": 1}}", "no option \"width\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_error err = { 0 };
        uni_value *stop = json(cases[i][0]);
        assert_int_equal(uni__stop_check(stop, "score", &err), UNI_EINVAL);
        if (!strstr(err.message, cases[i][1]))
            fail_msg("%s gives \"%s\"", cases[i][0], err.message);
        uni_value_free(stop);
    }
    uni_error err = { 0 };
    uni_value *stop = json("{\"plateau\": {}}");
    assert_int_equal(uni__stop_check(stop, NULL, &err), UNI_EINVAL);
    assert_non_null(strstr(err.message, "the plateau of which metric"));
    assert_int_equal(uni__stop_check(stop, "score", &err), 0);
    uni_value_free(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beginning),
        cmocka_unit_test(a_trials_life),
        cmocka_unit_test(how_trials_end),
        cmocka_unit_test(taken_back),
        cmocka_unit_test(checkpoints),
        cmocka_unit_test(hostile_paths),
        cmocka_unit_test(missing_lines),
        cmocka_unit_test(nonfinite),
        cmocka_unit_test(diverged_values),
        cmocka_unit_test(best_trial),
        cmocka_unit_test(no_best_of_diverged),
        cmocka_unit_test(csv),
        cmocka_unit_test(csv_names_that_meet),
        cmocka_unit_test(stopping),
        cmocka_unit_test(plateaus),
        cmocka_unit_test(wrong_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
