/*
 * tune_command.c - `unisono tune`: runs an experiment from a spec file, resumes one, and shows it.
 * tune_page.c draws the page, tune_view.c the live view.
 */
#include <stdlib.h>
#include <string.h>

#include "tune/shared.h"
#include "base/file.h"
#include "base/owned.h"
#include "cli/command.h"
#include "cli/page.h"
#include "cli/tune_view.h"

typedef struct tune_values {
    const char *storage, *color, *metric, *mode, *scope, *output, *name;
    long long samples, concurrent, seed;
    bool json, retry, restart, csv, log;
} tune_values;

static const cli_option tune_options[] = {
    { "Running", "samples", 'n', CLI_INT, offsetof(tune_values, samples), "N", NULL, NULL, NULL,
      "number of samples, instead of the spec's num_samples" },
    { NULL, "concurrent", 'j', CLI_INT, offsetof(tune_values, concurrent), "N", NULL, NULL, NULL,
      "number of concurrent trials, instead of the spec's max_concurrent" },
    { NULL, "seed", 0, CLI_INT, offsetof(tune_values, seed), "N", NULL, NULL, NULL,
      "the same seed gives the same configs" },
    { NULL, "name", 0, CLI_STRING, offsetof(tune_values, name), "NAME", NULL, NULL, NULL,
      "name of the experiment (default: tune_YYYY-MM-DD_HH-MM-SS)" },
    { NULL, "retry", 0, CLI_FLAG, offsetof(tune_values, retry), NULL, NULL, NULL, NULL,
      "resume: retry failed trials once from their last checkpoint" },
    { NULL, "restart", 0, CLI_FLAG, offsetof(tune_values, restart), NULL, NULL, NULL, NULL,
      "resume: restart failed trials from the beginning" },
    { "Looking", "metric", 'm', CLI_STRING, offsetof(tune_values, metric), "NAME", NULL, NULL, NULL,
      "use this metric instead of the experiment's" },
    { NULL, "mode", 0, CLI_CHOICE, offsetof(tune_values, mode), "MODE", NULL, NULL, "min|max",
      "which value of the metric is better" },
    { NULL, "scope", 0, CLI_CHOICE, offsetof(tune_values, scope), "SCOPE", "last", NULL,
      "last|all|avg", "best: judge trials by their last report, their best one, or the average" },
    { NULL, "output", 'o', CLI_STRING, offsetof(tune_values, output), "FILE", NULL, NULL, "<file>",
      "plot: write the HTML page to this file (default: tune.html in the experiment's directory)" },
    { NULL, "log", 'l', CLI_FLAG, offsetof(tune_values, log), NULL, NULL, NULL, NULL,
      "plot: logarithmic axis for the metric" },
    { NULL, "csv", 0, CLI_FLAG, offsetof(tune_values, csv), NULL, NULL, NULL, NULL,
      "show: print the whole table as CSV" },
    CLI_STORAGE_OPTION(tune_values),
    CLI_JSON_OPTION(tune_values),
    CLI_COLOR_OPTION(tune_values),
    CLI_END_OPTION,
};

/* ---- running ---- */

static int exit_code_of(cli_context *context, int status, const uni_error *err)
{
    if (status == 0)
        return UNI_EXIT_OK;
    int code = cli_fail(context, "tune", err);
    return status == UNI_EPREEMPTED  ? UNI_EXIT_PREEMPTED
           : status == UNI_EFUNCTION ? UNI_EXIT_FAILURE
                                     : code;
}

static int run_to_end(cli_context *context, uni_tuner *tuner, tune_view *view)
{
    uni_error err = { 0 };
    int status = uni_tuner_fit(tuner, &err);
    tune_view_end(view, uni_tuner_results(tuner));
    uni_tuner_free(tuner);
    return exit_code_of(context, status, &err);
}

/* Options of the command line override the spec. */
static int take_values(uni_tuner_options *options, const tune_values *values,
                       const cli_parsed *parsed, uni_error *err)
{
    if (cli_given(parsed, "samples")) {
        if ((values->samples < 1 && values->samples != UNI_SAMPLES_UNLIMITED) ||
            values->samples > INT32_MAX)
            return uni_error_set(err, UNI_EINVAL, "--samples must be positive, not %lld",
                                 values->samples);
        options->num_samples = (int)values->samples;
    }
    if (cli_given(parsed, "concurrent")) {
        if (values->concurrent < 1 || values->concurrent > INT32_MAX)
            return uni_error_set(err, UNI_EINVAL, "--concurrent must be positive, not %lld",
                                 values->concurrent);
        options->max_concurrent = (int)values->concurrent;
    }
    if (cli_given(parsed, "seed")) {
        if (values->seed < 0)
            return uni_error_set(err, UNI_EINVAL, "--seed must be 0 or more, not %lld",
                                 values->seed);
        options->seed = (uint64_t)values->seed;
        options->has_seed = true;
    }
    return 0;
}

static int run_spec(cli_context *context, const tune_values *values, const cli_parsed *parsed,
                    const char *path)
{
    uni_value *dict = NULL;
    uni__tune_spec *spec = NULL;
    uni_tuner *tuner = NULL;
    uni_error err = { 0 };
    tune_view view = { .terminal = &context->out, .errors = &context->err, .begun = context->now };
    int status = uni_json_read_file(&dict, path, &err);
    if (status == 0 && uni_value_type_of(dict) == UNI_TYPE_DICT && !uni_dict_get(dict, "program") &&
        !uni_dict_get(dict, "function"))
        status =
            uni_error_set(&err, UNI_EINVAL,
                          "%s has no \"program\", for example {\"program\": [\"./train\", "
                          "\"--lr={lr}\"], \"space\": {\"lr\": {\"$loguniform\": [0.0001, 0.1]}}, "
                          "\"metric\": \"loss\", \"mode\": \"min\", \"num_samples\": 20}",
                          path);
    if (status == 0 && (status = uni__tune_spec_read(&spec, dict, &err)) < 0)
        uni_error_prefix(&err, "%s", path);
    if (status == 0 && uni__tune_spec_options(spec)->function)
        status = uni_error_set(&err, UNI_EINVAL,
                               "%s: \"function\" is for programs that define it (uni_main, "
                               "Python); the command runs a \"program\"",
                               path);
    if (status == 0) {
        uni_tuner_options options = *uni__tune_spec_options(spec);
        status = take_values(&options, values, parsed, &err);
        options.name = values->name ? values->name : options.name;
        if (cli_typed(parsed, "storage") || !options.storage_path)
            options.storage_path = values->storage;
        options.handle_signals = true;
        options.progress = tune_view_show;
        options.context = &view;
        if (status == 0)
            status = uni_tuner_new(&tuner, &options, &err);
    }
    int code = status < 0 ? cli_fail(context, "tune", &err) : run_to_end(context, tuner, &view);
    uni__tune_spec_free(spec);
    uni_value_free(dict);
    return code;
}

static int resume(cli_context *context, const tune_values *values, const char *name)
{
    uni_tuner *tuner = NULL;
    uni_error err = { 0 };
    tune_view view = { .terminal = &context->out, .errors = &context->err, .begun = context->now };
    if (uni_tuner_open(&tuner, name,
                       &(uni_tuner_options){ .storage_path = values->storage,
                                             .handle_signals = true,
                                             .progress = tune_view_show,
                                             .context = &view },
                       (values->retry ? UNI_RESUME_FAILED : 0) |
                           (values->restart ? UNI_RESTART_FAILED : 0),
                       &err) < 0)
        return cli_fail(context, "tune", &err);
    return run_to_end(context, tuner, &view);
}

/* ---- showing ---- */

static uni_scope scope_of(const tune_values *values)
{
    return strcmp(values->scope, "all") == 0   ? UNI_SCOPE_ALL
           : strcmp(values->scope, "avg") == 0 ? UNI_SCOPE_AVG
                                               : UNI_SCOPE_LAST;
}

/* The experiment's mode applies to its own metric: the table must not be sorted by the wrong
 * one. */
static int check_show(const tune_values *values, const uni_tune_results *results, uni_error *err)
{
    const char *own = uni_dict_get_string(uni_tune_info_of(results)->spec, "metric", NULL);
    if (values->csv && values->json)
        return uni_error_set(err, UNI_EINVAL, "--csv and --json are mutually exclusive");
    if ((values->csv || values->json) && (values->metric || values->mode))
        return uni_error_set(err, UNI_EINVAL,
                             "--metric and --mode sort only the printed table; --csv and --json "
                             "list trials in order");
    if (values->metric && !values->mode && own && strcmp(own, values->metric) != 0)
        return uni_error_set(err, UNI_EINVAL,
                             "which value of \"%s\" is better? Give --mode min or --mode max: the "
                             "experiment's mode is for \"%s\"",
                             values->metric, own);
    return 0;
}

static int show(cli_context *context, const tune_values *values, const uni_tune_results *results)
{
    char *text = NULL;
    uni_error err = { 0 };
    if (check_show(values, results, &err) < 0)
        return cli_fail(context, "tune", &err);
    if (values->csv) {
        if (uni_tune_csv(&text, results, true, &err) < 0)
            return cli_fail(context, "tune", &err);
        fputs(text, context->out.out);
        free(text);
        return UNI_EXIT_OK;
    }
    if (values->json)
        return cli_print_json(context, uni__tune_table(results, true));
    tune_view_table(&context->out, results, values->metric, values->mode, 0);
    return UNI_EXIT_OK;
}

typedef struct wanted {
    int64_t trial;
    const char *metric;
    double value;
    uni_value *metrics;
} wanted;

/* Finds the report that has the value. */
static int look_for(void *context, int64_t trial, int64_t iteration, const uni_value *metrics,
                    uni_error *err)
{
    wanted *w = context;
    if (trial != w->trial || w->metrics || uni__tune_metric(metrics, w->metric) != w->value)
        return 0;
    w->metrics = uni_value_copy(metrics);
    return w->metrics ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a report");
}

/* For the best of all reports: that report. Otherwise the last one. */
static int metrics_of(const uni_tune_results *results, int64_t trial, uni_scope scope,
                      const char *metric, double value, uni_value **out, uni_error *err)
{
    const uni_value *last = uni_trial_info_of(results, trial)->metrics;
    wanted w = { .trial = trial, .metric = metric, .value = value };
    if (scope == UNI_SCOPE_ALL)
        UNI_TRY(uni_tune_reports(results, look_for, &w, err));
    *out = w.metrics ? w.metrics : last ? uni_value_copy(last) : uni_value_null();
    return *out ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a report");
}

static int best(cli_context *context, const tune_values *values, const uni_tune_results *results)
{
    uni_error err = { 0 };
    int64_t trial;
    uni_scope scope = scope_of(values);
    uni_value *metrics = NULL;
    if (uni_tune_best(&trial, results, values->metric, values->mode, scope, &err) < 0)
        return cli_fail(context, "tune", &err);
    const char *metric = values->metric
                             ? values->metric
                             : uni_dict_get_string(uni_tune_info_of(results)->spec, "metric", "");
    double value = uni_trial_value(results, trial, metric, values->mode, scope);
    if (metrics_of(results, trial, scope, metric, value, &metrics, &err) < 0)
        return cli_fail(context, "tune", &err);
    uni_value *out = uni_value_dict();
    char *dir = uni_trial_dir(results, trial),
         *checkpoint = uni_trial_checkpoint(results, trial, true);
    int failed = uni_dict_take(out, "trial", uni_value_int(trial));
    failed |= uni_dict_take(out, "metric", uni_value_string(metric));
    failed |= uni_dict_take(out, "scope", uni_value_string(values->scope));
    failed |= uni_dict_take(out, "value", uni_value_float(value));
    failed |=
        uni_dict_take(out, "config", uni_value_copy(uni_trial_info_of(results, trial)->config));
    failed |= uni_dict_take(out, "metrics", metrics);
    failed |= uni_dict_take(out, "directory", uni_value_string(dir));
    failed |= uni_dict_take(out, "checkpoint",
                            checkpoint ? uni_value_string(checkpoint) : uni_value_null());
    free(dir);
    free(checkpoint);
    if (failed) {
        uni_value_free(out);
        out = NULL;
    }
    return cli_print_json(context, out);
}

/* Without -o the page goes into the experiment's directory, which must then belong to the user
 * alone: in another user's directory the name could be a link to any file. */
static int check_place(const tune_values *values, const uni_tune_results *results, uni_error *err)
{
    uni_error why = { 0 };
    if (values->output || uni__check_owned_place(uni_tune_info_of(results)->dir, &why) == 0)
        return 0;
    return uni_error_set(err, UNI_EPERMISSION, "%s; use -o FILE to write the page elsewhere",
                         why.message);
}

static int plot(cli_context *context, const tune_values *values, const uni_tune_results *results)
{
    uni__text page = { 0 }, notes = { 0 };
    uni_error err = { 0 };
    char *path = values->output ? strdup(values->output)
                                : uni__path_join(uni_tune_info_of(results)->dir, "tune.html", NULL);
    const tune_page_options options = { values->metric, values->mode, values->log };
    int status = check_place(values, results, &err);
    if (status == 0)
        status = tune_page_make(results, &options, &page, &notes, &err);
    if (status == 0 && !path)
        status = uni_error_set(&err, UNI_ENOMEM, "no memory for the page");
    if (status == 0)
        status = cli_page_write(context, path, &page, &err);
    if (status == 0 && notes.data)
        fputs(notes.data, context->err.out); /* the page may be on stdout */
    uni__text_free(&page);
    uni__text_free(&notes);
    free(path);
    return status < 0 ? cli_fail(context, "tune", &err) : UNI_EXIT_OK;
}

static int tune(cli_context *context, const cli_parsed *parsed)
{
    const tune_values *values = parsed->values;
    const char *what = parsed->args[0], *name = parsed->args[1];
    uni_tune_results *results = NULL;
    uni_error err = { 0 };
    static const char *const looks[] = { "show", "best", "plot" };
    int look = -1;
    for (int i = 0; i < 3; i++)
        look = strcmp(looks[i], what) == 0 ? i : look;
    if (look < 0 && strcmp(what, "resume") != 0) {
        if (name) {
            uni_error_set(&err, UNI_EINVAL,
                          "unknown subcommand `%s %s`: use SPEC.json, resume, show, best or plot",
                          what, name);
            return cli_fail(context, "tune", &err);
        }
        return run_spec(context, values, parsed, what);
    }
    if (!name) {
        uni_error_set(&err, UNI_EINVAL, "tune %s: no experiment given; give its directory or name",
                      what);
        return cli_fail(context, "tune", &err);
    }
    if (look < 0)
        return resume(context, values, name);
    if (uni_tune_results_open(&results, name, values->storage, &err) < 0)
        return cli_fail(context, "tune", &err);
    int code = look == 0   ? show(context, values, results)
               : look == 1 ? best(context, values, results)
                           : plot(context, values, results);
    uni_tune_results_free(results);
    return code;
}

static const cli_only tune_only[] = {
    { "samples", "SPEC.json" },
    { "concurrent", "SPEC.json" },
    { "seed", "SPEC.json" },
    { "name", "SPEC.json" },
    { "retry", "resume" },
    { "restart", "resume" },
    { "metric", "show|best|plot" },
    { "mode", "show|best|plot" },
    { "scope", "best" },
    { "output", "plot" },
    { "log", "plot" },
    { "csv", "show" },
    { "json", "show|best" },
    { NULL, NULL },
};

static const cli_example tune_examples[] = {
    { "unisono tune spec.json", "run the trials described in the file" },
    { "unisono tune resume digits", "continue after a kill, a crash or Ctrl-C" },
    { "unisono tune show digits", "the table of the newest experiment of that name" },
    { "unisono tune best digits --metric loss --mode min",
      "config and checkpoint of the best trial" },
    { "unisono tune plot digits", "parallel coordinates and learning curves, one HTML file" },
    { NULL, NULL },
};

const cli_command cli_tune_command = {
    .name = "tune",
    .arguments = "SPEC.json | resume|show|best|plot DIR",
    .summary = "search hyperparameters with any program",
    .description =
        "Runs many trials of one program, each with its own parameter values from the spec's "
        "space, and finds the best one (docs/tune.md). A trial is an ordinary program: \"{lr}\" in "
        "its arguments is replaced, UNISONO_CONFIG has the whole config as JSON, and it reports "
        "with `unisono report`, the library, or JSON lines on descriptor UNISONO_REPORT_FD.",
    .options = tune_options,
    .values_size = sizeof(tune_values),
    .min_args = 1,
    .max_args = 2,
    .completes = "resume|show|best|plot",
    .only = tune_only,
    .examples = tune_examples,
    .call = tune,
};
