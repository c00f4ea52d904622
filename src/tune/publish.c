/*
 * publish.c - see publish.h. Reads all reports from the journal at once and groups them by trial.
 * Then it feeds the trials to their sinks one after the other, so that ten thousand of them need
 * one open file.
 *
 *     DIR/tensorboard/            the columns of the hparams page; below it trial_00000/ and so on
 *     DIR/mlruns/                 unless the spec or MLFLOW_TRACKING_URI gives another place
 */
#include "tune/publish.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/shared.h"
#include "base/file.h"
#include "base/log.h"
#include "track/trials.h"
#include "tune/search.h"

typedef struct history {
    uni_value **metrics;
    int64_t *iterations;
    size_t count, room;
} history;

typedef struct publisher {
    const uni_tune_results *results;
    const uni__experiment *experiment;
    history *histories; /* by trial */
    char *parent; /* MLflow's parent run */
} publisher;

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for the experiment's sinks");
}

static const char *type_of(const uni_value *sink)
{
    return uni_value_type_of(sink) == UNI_TYPE_DICT ? uni_dict_get_string(sink, "type", "")
                                                    : uni_value_as_string(sink, "");
}

int uni__sinks_check(const uni_value *sinks, uni_error *err)
{
    static const char *const board[] = { "type", "prefix", NULL };
    static const char *const mlflow[] = {
        "type", "tracking_uri", "experiment_name", "experiment_id", "tags", "save_artifact", NULL
    };
    if (sinks && uni_value_type_of(sinks) != UNI_TYPE_LIST)
        return uni_error_set(err, UNI_EINVAL,
                             "\"sinks\" must be a list, such as [\"tensorboard\", \"mlflow\"]");
    for (size_t i = 0; i < uni_list_size(sinks); i++) {
        const uni_value *sink = uni_list_get(sinks, i);
        bool is_board = strcmp(type_of(sink), "tensorboard") == 0;
        if (!is_board && strcmp(type_of(sink), "mlflow") != 0)
            return uni_error_set(err, UNI_EINVAL,
                                 "\"sinks\": there is no sink \"%.100s\" for an experiment; there "
                                 "are tensorboard and mlflow",
                                 type_of(sink));
        if (uni_value_type_of(sink) == UNI_TYPE_DICT)
            UNI_TRY(uni__check_keys(is_board ? "tensorboard" : "mlflow", sink,
                                    is_board ? board : mlflow, err));
    }
    return 0;
}

/* ---- the reports of a trial ---- */

static int take_report(void *context, int64_t trial, int64_t iteration, const uni_value *metrics,
                       uni_error *err)
{
    publisher *p = context;
    history *h = &p->histories[trial];
    if (h->count == h->room) {
        size_t room = h->room ? 2 * h->room : 8;
        uni_value **grown = realloc(h->metrics, room * sizeof(uni_value *));
        if (grown)
            h->metrics = grown;
        int64_t *numbers = grown ? realloc(h->iterations, room * sizeof *numbers) : NULL;
        if (!numbers)
            return no_memory(err);
        h->iterations = numbers;
        h->room = room;
    }
    uni_value *copy = uni_value_copy(metrics);
    double when = p->experiment->trials[trial]->started + uni__tune_metric(metrics, "time_total_s");
    if (!copy || uni_dict_take(copy, "_timestamp", uni_value_float(when)) < 0) {
        uni_value_free(copy);
        return no_memory(err);
    }
    h->metrics[h->count] = copy;
    h->iterations[h->count++] = iteration;
    return 0;
}

static void forget(publisher *p)
{
    for (int64_t i = 0; p->histories && i < p->experiment->count; i++) {
        for (size_t j = 0; j < p->histories[i].count; j++)
            uni_value_free(p->histories[i].metrics[j]);
        free(p->histories[i].metrics);
        free(p->histories[i].iterations);
    }
    free(p->histories);
    free(p->parent);
}

/* Takes ownership of the sink. */
static int feed_trial(const publisher *p, const uni__trial *trial, uni_sink *sink, uni_error *err)
{
    const history *h = &p->histories[trial->index];
    char id[32], *dir = uni__trial_path(p->experiment, trial->index);
    const uni_value *function = uni_dict_get(p->experiment->spec, "function");
    snprintf(id, sizeof id, "trial_%05lld", (long long)trial->index);
    uni_reports *reports = calloc(h->count + 1, sizeof *reports);
    for (size_t i = 0; reports && i < h->count; i++)
        reports[i] = (uni_reports){ .iteration = h->iterations[i],
                                    .attempt = 1,
                                    .world_size = 1,
                                    .by_rank = (const uni_value *const *)&h->metrics[i] };
    const uni_start_info info = { .run_dir = dir,
                                  .name = p->experiment->name,
                                  .run_id = id,
                                  .world_size = 1,
                                  .config = trial->config,
                                  .function = uni_value_as_string(function, NULL),
                                  .started = trial->started };
    const uni_finish_info finish = { .code = trial->status == UNI_TRIAL_TERMINATED ? 0
                                             : trial->status == UNI_TRIAL_ERROR    ? UNI_EFUNCTION
                                                                                   : UNI_ECANCELED,
                                     .message = trial->error ? trial->error : "",
                                     .attempts = trial->attempts,
                                     .seconds = trial->seconds };
    int status = dir && reports ? uni__sink_feed(sink, &info, reports, h->count, &finish, err)
                                : no_memory(err);
    uni_sink_free(sink);
    free(reports);
    free(dir);
    return status;
}

/* ---- TensorBoard ---- */

/* The metrics that trials reported, the experiment's own first, without those that every result
 * has. */
static uni_value *shown_metrics(const publisher *p, const char *prefix)
{
    uni_value *names = uni__tune_metric_names(p->results), *out = uni_value_list();
    const char *own = p->experiment->metric;
    int status = 0;
    for (size_t i = 0; i <= uni_list_size(names); i++) {
        const char *name = i ? uni_value_as_string(uni_list_get(names, i - 1), "") : own;
        char *tag = NULL;
        if (!name || (i && own && strcmp(name, own) == 0) ||
            strcmp(name, "training_iteration") == 0 || strcmp(name, "time_total_s") == 0)
            continue;
        if (asprintf(&tag, "%s%s", prefix, name) < 0)
            tag = NULL;
        status |= tag ? uni_list_take(out, uni_value_string(tag)) : UNI_ENOMEM;
        free(tag);
    }
    uni_value_free(names);
    if (status == 0)
        return out;
    uni_value_free(out);
    return NULL;
}

static int write_columns(const publisher *p, const char *dir, const char *prefix, uni_error *err)
{
    const uni__experiment *experiment = p->experiment;
    const uni_value **configs = calloc((size_t)experiment->count + 1, sizeof(uni_value *));
    uni_value *metrics = shown_metrics(p, prefix);
    for (int64_t i = 0; configs && i < experiment->count; i++)
        configs[i] = experiment->trials[i]->config;
    int status = configs && metrics
                     ? uni__tensorboard_experiment(dir, experiment->name, experiment->created,
                                                   configs, (size_t)experiment->count, metrics, err)
                     : no_memory(err);
    free(configs);
    uni_value_free(metrics);
    return status;
}

static int publish_board(const publisher *p, const uni_value *asked, uni_error *err)
{
    const char *prefix = uni_dict_get_string(asked, "prefix", "");
    char *root = uni__path_join(p->experiment->dir, "tensorboard", NULL);
    int status = root ? uni__remove_tree(root, err) : no_memory(err);
    if (status == 0)
        status = write_columns(p, root, prefix, err);
    for (int64_t i = 0; i < p->experiment->count && status == 0; i++) {
        uni_sink *sink = NULL;
        char id[32];
        snprintf(id, sizeof id, "trial_%05lld", (long long)i);
        char *dir = uni__path_join(root, id, NULL);
        const uni_sink_tensorboard_options options = { .dir = dir, .prefix = prefix };
        status = dir ? uni_sink_tensorboard(&sink, &options, err) : no_memory(err);
        if (status == 0)
            status = feed_trial(p, p->experiment->trials[i], sink, err);
        free(dir);
    }
    free(root);
    return status;
}

/* ---- MLflow ---- */

/* The whole experiment as a run: its options are params, the best value a metric. */
static int publish_parent(publisher *p, uni_sink_mlflow_options *options, uni_error *err)
{
    static const char *const told[] = { "metric", "mode", "num_samples", "seed", "program", NULL };
    const uni__experiment *experiment = p->experiment;
    uni_sink *sink = NULL;
    int64_t best = -1;
    uni_value *config = uni_value_dict(), *metrics = uni_value_dict();
    const uni_value *by_rank = metrics;
    int status = 0;
    for (const char *const *key = told; *key; key++)
        if (uni_dict_get(experiment->spec, *key))
            status |=
                uni_dict_take(config, *key, uni_value_copy(uni_dict_get(experiment->spec, *key)));
    if (experiment->metric &&
        uni_tune_best(&best, p->results, NULL, NULL, UNI_SCOPE_LAST, NULL) == 0) {
        double value = uni_trial_value(p->results, best, experiment->metric, NULL, UNI_SCOPE_LAST);
        status |= uni_dict_take(metrics, experiment->metric, uni_value_float(value));
        status |= uni_dict_take(metrics, "best_trial", uni_value_int(best));
    }
    double end = experiment->created;
    for (int64_t i = 0; i < experiment->count; i++)
        end = fmax(end, experiment->trials[i]->started + experiment->trials[i]->seconds);
    const char *id = strrchr(experiment->dir, '/');
    const uni_start_info info = { .run_dir = experiment->dir,
                                  .name = experiment->name,
                                  .run_id = id ? id + 1 : experiment->dir,
                                  .world_size = 1,
                                  .config = config,
                                  .started = experiment->created };
    const uni_reports reports = {
        .iteration = 1, .attempt = 1, .world_size = 1, .by_rank = &by_rank
    };
    const uni_finish_info finish = { .message = "", .seconds = end - experiment->created };
    status = status < 0 ? no_memory(err) : uni_sink_mlflow(&sink, options, err);
    if (status == 0)
        status = uni__sink_feed(sink, &info, &reports, 1, &finish, err);
    if (status == 0 && !(p->parent = strdup(uni__sink_mlflow_run(sink))))
        status = no_memory(err);
    uni_sink_free(sink);
    uni_value_free(config);
    uni_value_free(metrics);
    return status;
}

static int publish_children(const publisher *p, uni_sink_mlflow_options *options, uni_error *err)
{
    uni_value *tags = options->tags ? uni_value_copy(options->tags) : uni_value_dict();
    int status = uni_dict_take(tags, "mlflow.parentRunId", uni_value_string(p->parent));
    if (status < 0)
        status = no_memory(err);
    options->tags = tags;
    for (int64_t i = 0; i < p->experiment->count && status == 0; i++) {
        uni_sink *sink = NULL;
        status = uni_sink_mlflow(&sink, options, err);
        if (status == 0)
            status = feed_trial(p, p->experiment->trials[i], sink, err);
    }
    uni_value_free(tags);
    return status;
}

static int publish_mlflow(publisher *p, const uni_value *asked, uni_error *err)
{
    const char *elsewhere = getenv("MLFLOW_TRACKING_URI");
    char *own = NULL;
    uni_sink_mlflow_options options = {
        .tracking_uri = uni_dict_get_string(asked, "tracking_uri", NULL),
        .experiment_name = uni_dict_get_string(asked, "experiment_name", NULL),
        .experiment_id = uni_dict_get_string(asked, "experiment_id", NULL),
        .tags = uni_dict_get(asked, "tags"),
        .save_artifact = uni_value_as_bool(uni_dict_get(asked, "save_artifact"), false),
    };
    int status = 0;
    if (!options.tracking_uri && (!elsewhere || !elsewhere[0])) {
        options.tracking_uri = own = uni__path_join(p->experiment->dir, "mlruns", NULL);
        status = own ? uni__remove_tree(own, err) : no_memory(err);
    }
    if (status == 0)
        status = publish_parent(p, &options, err);
    if (status == 0)
        status = publish_children(p, &options, err);
    free(own);
    return status;
}

/* ---- everything ---- */

int uni__publish(const uni_tune_results *results, uni_error *err)
{
    const uni__experiment *experiment = &results->experiment;
    const uni_value *sinks = uni_dict_get(experiment->spec, "sinks");
    if (uni_list_size(sinks) == 0)
        return 0;
    publisher p = { .results = results, .experiment = experiment };
    p.histories = calloc((size_t)experiment->count + 1, sizeof *p.histories);
    int status = p.histories ? uni_tune_reports(results, take_report, &p, err) : no_memory(err);
    for (size_t i = 0; i < uni_list_size(sinks) && status == 0; i++) {
        const uni_value *sink = uni_list_get(sinks, i);
        uni_error failed = { 0 };
        bool is_board = strcmp(type_of(sink), "tensorboard") == 0;
        if ((is_board ? publish_board(&p, sink, &failed) : publish_mlflow(&p, sink, &failed)) < 0)
            uni__warn("the experiment could not be told to the sink \"%s\": %s", type_of(sink),
                      failed.message);
    }
    forget(&p);
    return status;
}
