/* experiment.c - the state of an experiment and what each record does to it; see experiment.h. */
#include "tune/experiment.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/run.h>

#include "train/shared.h"
#include "tune/shared.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/owned.h"
#include "base/text.h"

/* ---- metrics by name ---- */

static int intern(uni__experiment *experiment, const char *name)
{
    for (int i = 0; i < experiment->num_names; i++)
        if (strcmp(experiment->names[i], name) == 0)
            return i;
    char **grown = uni__grown(experiment->names, (size_t)experiment->num_names,
                              &experiment->names_room, sizeof *grown);
    if (!grown)
        return -1;
    experiment->names = grown;
    char *copy = strdup(name);
    if (!copy)
        return -1;
    experiment->names[experiment->num_names] = copy;
    return experiment->num_names++;
}

int uni__experiment_metric(const uni__experiment *experiment, const char *name)
{
    char other[256];
    snprintf(other, sizeof other, "%s", name);
    for (char *at = other; *at; at++)
        *at = *at == '.' ? '/' : *at;
    for (int i = 0; i < experiment->num_names; i++)
        if (strcmp(experiment->names[i], name) == 0 || strcmp(experiment->names[i], other) == 0)
            return i;
    return -1;
}

double uni__tune_metric(const uni_value *metrics, const char *name)
{
    const uni_value *found = uni_dict_get(metrics, name);
    if (!found) {
        char dotted[256];
        snprintf(dotted, sizeof dotted, "%s", name);
        for (char *at = dotted; *at; at++)
            *at = *at == '/' ? '.' : *at;
        found = uni_value_path(metrics, dotted);
    }
    return uni_value_is_number(found) ? uni_value_as_float(found, NAN) : NAN;
}

static int add_number(uni__report *report, int name, double value)
{
    if (name < 0)
        return UNI_ENOMEM;
    uni__number *grown = realloc(report->numbers, ((size_t)report->count + 1) * sizeof *grown);
    if (!grown)
        return UNI_ENOMEM;
    report->numbers = grown;
    grown[report->count++] = (uni__number){ .name = name, .value = value };
    return 0;
}

/* Collects all numbers of a report, nested ones as "a/b". */
static int flatten(uni__experiment *experiment, uni__report *report, const uni_value *tree,
                   uni__text *path)
{
    size_t before = path->size;
    int status = 0;
    for (size_t i = 0; i < uni_dict_size(tree) && status == 0; i++) {
        const uni_value *value = uni_dict_value_at(tree, i);
        bool nested = uni_value_type_of(value) == UNI_TYPE_DICT;
        if (!nested && !uni_value_is_number(value))
            continue;
        if (before)
            uni__text_add_char(path, '/');
        uni__text_add_string(path, uni_dict_key_at(tree, i));
        if (path->failed)
            return UNI_ENOMEM;
        status = nested ? flatten(experiment, report, value, path)
                        : add_number(report, intern(experiment, path->data),
                                     uni_value_as_float(value, NAN));
        path->size = before;
        path->data[before] = '\0';
    }
    return status;
}

/* ---- sums ---- */

static int aggregate(uni__trial *trial, const uni__number *number)
{
    uni__aggregate *at = NULL;
    for (int i = 0; i < trial->num_aggregates && !at; i++)
        if (trial->aggregates[i].name == number->name)
            at = &trial->aggregates[i];
    if (!at) {
        uni__aggregate *grown = realloc(trial->aggregates, ((size_t)trial->num_aggregates + 1) *
                                                               sizeof *trial->aggregates);
        if (!grown)
            return UNI_ENOMEM;
        trial->aggregates = grown;
        at = &grown[trial->num_aggregates++];
        *at = (uni__aggregate){ .name = number->name, .low = NAN, .high = NAN };
    }
    at->count++;
    at->last = number->value;
    if (!isfinite(number->value))
        return 0;
    at->finite++;
    at->low = fmin(at->low, number->value); /* ignores NaN */
    at->high = fmax(at->high, number->value);
    at->sum += number->value;
    return 0;
}

bool uni__trial_value(const uni__trial *trial, int name, int sign, uni_scope scope, double *out)
{
    for (int i = 0; i < trial->num_aggregates; i++) {
        const uni__aggregate *at = &trial->aggregates[i];
        if (at->name != name || at->count == 0)
            continue;
        *out = scope == UNI_SCOPE_LAST  ? at->last
               : scope == UNI_SCOPE_ALL ? (sign < 0 ? at->low : at->high)
               : at->finite             ? at->sum / (double)at->finite
                                        : NAN;
        return true;
    }
    return false;
}

/* ---- trials ---- */

static void report_clear(uni__report *report)
{
    uni_value_free(report->metrics);
    free(report->numbers);
    *report = (uni__report){ 0 };
}

static void drop_reports(uni__trial *trial)
{
    for (int i = 0; i < trial->num_reports; i++)
        report_clear(&trial->reports[i]);
    free(trial->reports);
    trial->reports = NULL;
    trial->num_reports = trial->room = 0;
}

static void trial_free(uni__trial *trial)
{
    drop_reports(trial);
    uni_value_free(trial->config);
    uni_value_free(trial->last);
    free(trial->aggregates);
    free(trial->error);
    uni_value_free(trial->failure);
    uni_value_free(trial->exploited);
    free(trial->why);
    free(trial->checkpoint);
    free(trial->best_checkpoint);
    free(trial->start_checkpoint);
    free(trial);
}

void uni__experiment_clear(uni__experiment *experiment)
{
    for (int64_t i = 0; i < experiment->count; i++)
        trial_free(experiment->trials[i]);
    for (int i = 0; i < experiment->num_names; i++)
        free(experiment->names[i]);
    free(experiment->trials);
    free(experiment->names);
    free(experiment->dir);
    free(experiment->name);
    free(experiment->metric);
    uni_value_free(experiment->spec);
    *experiment = (uni__experiment){ 0 };
}

uni__trial *uni__experiment_trial(const uni__experiment *experiment, int64_t index)
{
    return index >= 0 && index < experiment->count ? experiment->trials[index] : NULL;
}

char *uni__trial_path(const uni__experiment *experiment, int64_t index)
{
    char *path = NULL;
    return asprintf(&path, "%s/trial_%05lld", experiment->dir, (long long)index) < 0 ? NULL : path;
}

/* ---- applying records ---- */

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for the trials of an experiment");
}

static int set_text(char **slot, const char *text)
{
    free(*slot);
    *slot = text ? strdup(text) : NULL;
    return text && !*slot ? UNI_ENOMEM : 0;
}

/* A path from the journal must stay inside the experiment's directory: the journal is not
 * trusted. */
static int set_path(char **slot, const char *path, const char *dir, uni_error *err)
{
    bool leaves = path && path[0] == '/';
    for (const char *at = path; at && !leaves; at = strchr(at, '/')) {
        at += *at == '/';
        leaves = strncmp(at, "..", 2) == 0 && (at[2] == '/' || !at[2]);
    }
    if (leaves)
        return uni_error_set(err, UNI_ECORRUPT,
                             "the journal of %s names a checkpoint outside of it: \"%.200s\"", dir,
                             path);
    return set_text(slot, path) < 0 ? no_memory(err) : 0;
}

static int begin_experiment(uni__experiment *experiment, const uni_value *record, uni_error *err)
{
    uni_value_free(experiment->spec);
    experiment->spec = uni_value_copy(uni_dict_get(record, "spec"));
    if (!experiment->spec)
        return no_memory(err);
    const char *mode = uni_dict_get_string(experiment->spec, "mode", "");
    experiment->sign = strcmp(mode, "max") == 0 ? 1 : strcmp(mode, "min") == 0 ? -1 : 0;
    experiment->expected = uni_dict_get_int(record, "expected", -1);
    experiment->created = uni_dict_get_float(record, "time", 0);
    if (set_text(&experiment->metric, uni_dict_get_string(experiment->spec, "metric", NULL)) < 0 ||
        set_text(&experiment->name, uni_dict_get_string(record, "name", "")) < 0)
        return no_memory(err);
    return 0;
}

static int add_trial(uni__experiment *experiment, int64_t index, const uni_value *record,
                     uni_error *err)
{
    if (index != experiment->count)
        return uni_error_set(err, UNI_ECORRUPT,
                             "the journal of %s has trial %lld where %lld should be: a line is "
                             "missing",
                             experiment->dir, (long long)index, (long long)experiment->count);
    uni__trial **grown =
        uni__grown(experiment->trials, (size_t)experiment->count, &experiment->room, sizeof *grown);
    if (!grown)
        return no_memory(err);
    experiment->trials = grown;
    uni__trial *trial = calloc(1, sizeof *trial);
    if (!trial)
        return no_memory(err);
    trial->index = index;
    trial->config = uni_value_copy(uni_dict_get(record, "c"));
    experiment->trials[experiment->count++] = trial;
    return trial->config ? 0 : no_memory(err);
}

/* A restart: discards what was reported after the checkpoint. */
static int take_back(uni__trial *trial, int64_t iteration)
{
    int kept = trial->num_reports, status = 0;
    if (trial->iteration <= iteration)
        return 0;
    while (kept > 0 && trial->reports[kept - 1].iteration > iteration)
        report_clear(&trial->reports[--kept]);
    trial->num_reports = kept;
    trial->iteration = iteration;
    trial->num_aggregates = 0;
    for (int i = 0; i < kept; i++)
        for (int n = 0; n < trial->reports[i].count; n++)
            status |= aggregate(trial, &trial->reports[i].numbers[n]);
    uni_value_free(trial->last);
    uni__report *newest = kept ? &trial->reports[kept - 1] : NULL;
    trial->last = newest && newest->metrics ? uni_value_copy(newest->metrics) : NULL;
    trial->seconds = newest ? newest->seconds : 0;
    return status;
}

static int start_trial(uni__trial *trial, const uni_value *record, uni_error *err)
{
    trial->status = UNI_TRIAL_RUNNING;
    trial->verdict = 0;
    trial->was_interrupted = false;
    trial->wants_resume = trial->wants_end =
        false; /* that was decided before; this is its going on */
    trial->attempts++;
    trial->started = uni_dict_get_float(record, "time", 0);
    const uni_value *config = uni_dict_get(record, "c");
    if (config) {
        uni_value_free(trial->config);
        trial->config = uni_value_copy(config);
    }
    if (take_back(trial, uni_dict_get_int(record, "i", 0)) < 0 || !trial->config)
        return no_memory(err);
    return 0;
}

/* Full reports are needed only where a restart could return to: from the newest checkpoint on, or
 * the last one. */
static void forget_old(uni__trial *trial)
{
    int64_t from = trial->checkpoint_number ? trial->checkpoint_iteration : trial->iteration;
    for (int i = trial->num_reports - 1; i >= 0 && trial->reports[i].metrics; i--)
        if (trial->reports[i].iteration < from) {
            uni_value_free(trial->reports[i].metrics);
            trial->reports[i].metrics = NULL;
        }
}

static int add_report(uni__experiment *experiment, uni__trial *trial, const uni_value *record,
                      uni_error *err)
{
    uni__text path = { 0 };
    uni__report *grown =
        uni__grown(trial->reports, (size_t)trial->num_reports, &trial->room, sizeof *grown);
    if (!grown)
        return no_memory(err);
    trial->reports = grown;
    uni_value *metrics = uni__record_read_metrics(record);
    uni__report report = { .iteration = uni_dict_get_int(record, "i", 0),
                           .seconds = uni_dict_get_float(record, "s", 0),
                           .metrics = metrics };
    int status = metrics ? flatten(experiment, &report, metrics, &path) : UNI_ENOMEM;
    uni__text_free(&path);
    for (int n = 0; n < report.count && status == 0; n++)
        status = aggregate(trial, &report.numbers[n]);
    trial->reports[trial->num_reports++] = report;
    uni_value_free(trial->last);
    trial->last = metrics ? uni_value_copy(metrics) : NULL;
    trial->iteration = report.iteration;
    trial->seconds = report.seconds;
    const char *decision = uni_dict_get_string(record, "d", "");
    const uni_value *exploited =
        strcmp(decision, "exploit") == 0 ? uni_dict_get(record, "c") : NULL;
    trial->verdict = exploited ? 'x' : decision[0];
    trial->donor = uni_dict_get_int(record, "donor", -1);
    uni_value_free(trial->exploited);
    trial->exploited = exploited ? uni_value_copy(exploited) : NULL;
    if (trial->verdict && set_text(&trial->why, uni_dict_get_string(record, "w", NULL)) < 0)
        status = UNI_ENOMEM;
    forget_old(trial);
    return status < 0 || !trial->last ? no_memory(err) : 0;
}

static int end_trial(const uni__experiment *experiment, uni__trial *trial, const uni_value *record,
                     uni_error *err)
{
    static const struct {
        const char *name;
        uni_trial_status status;
    } ends[] = { { "terminated", UNI_TRIAL_TERMINATED },
                 { "error", UNI_TRIAL_ERROR },
                 { "paused", UNI_TRIAL_PAUSED },
                 { "pending", UNI_TRIAL_PENDING } };
    const char *name = uni_dict_get_string(record, "s", "");
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (strcmp(ends[i].name, name) == 0)
            trial->status = ends[i].status;
    trial->was_interrupted = uni_dict_get_bool(record, "failed", false);
    trial->failures += trial->was_interrupted;
    uni_value_free(trial->exploited);
    trial->exploited = NULL;
    int status = set_text(&trial->error, uni_dict_get_string(record, "error", NULL));
    status |= set_text(&trial->why, uni_dict_get_string(record, "w", NULL));
    trial->start_iteration = uni_dict_get_int(record, "i", trial->iteration);
    if (uni_dict_get(record, "from"))
        UNI_TRY(set_path(&trial->start_checkpoint, uni_dict_get_string(record, "from", NULL),
                         experiment->dir, err));
    if (uni_dict_get_bool(record, "restart", false)) {
        trial->from_the_start = true;
        trial->checkpoint_number = trial->checkpoint_iteration = 0;
        status |= set_text(&trial->checkpoint, NULL) | set_text(&trial->best_checkpoint, NULL) |
                  set_text(&trial->start_checkpoint, NULL);
    }
    const uni_value *config = uni_dict_get(record, "c");
    if (config) {
        uni_value_free(trial->config);
        trial->config = uni_value_copy(config);
        status |= trial->config ? 0 : UNI_ENOMEM;
    }
    if (trial->status == UNI_TRIAL_TERMINATED || trial->status == UNI_TRIAL_ERROR)
        drop_reports(trial);
    return status < 0 ? no_memory(err) : 0;
}

static int add_checkpoint(const uni__experiment *experiment, uni__trial *trial,
                          const uni_value *record, uni_error *err)
{
    trial->from_the_start = false;
    trial->checkpoint_number = uni_dict_get_int(record, "number", 0);
    trial->checkpoint_iteration = uni_dict_get_int(record, "i", 0);
    const char *path = uni_dict_get_string(record, "path", NULL);
    const char *best = uni_dict_get_string(record, "best", NULL);
    UNI_TRY(set_path(&trial->checkpoint, path, experiment->dir, err));
    UNI_TRY(set_path(&trial->best_checkpoint, best, experiment->dir, err));
    /* Its own checkpoints are newer. */
    UNI_TRY(set_path(&trial->start_checkpoint, NULL, NULL, err));
    forget_old(trial);
    return 0;
}

int uni__experiment_apply(uni__experiment *experiment, const uni_value *record, uni_error *err)
{
    const char *event = uni_dict_get_string(record, "e", "");
    int64_t index = uni_dict_get_int(record, "t", -1);
    if (strcmp(event, "experiment") == 0)
        return begin_experiment(experiment, record, err);
    if (strcmp(event, "trial") == 0)
        return add_trial(experiment, index, record, err);
    if (strcmp(event, "tuner") == 0) {
        experiment->tuners++;
        experiment->finished = false;
        return 0;
    }
    if (strcmp(event, "clock") == 0 || strcmp(event, "finish") == 0) {
        experiment->seconds_used = uni_dict_get_float(record, "used", experiment->seconds_used);
        experiment->finished = event[0] == 'f';
        return 0;
    }
    uni__trial *trial = uni__experiment_trial(experiment, index);
    if (!trial)
        return 0;
    if (strcmp(event, "run") == 0)
        return start_trial(trial, record, err);
    if (strcmp(event, "report") == 0)
        return add_report(experiment, trial, record, err);
    if (strcmp(event, "end") == 0)
        return end_trial(experiment, trial, record, err);
    if (strcmp(event, "checkpoint") == 0)
        return add_checkpoint(experiment, trial, record, err);
    return 0;
}

/* ---- finding and reading ---- */

static int visit(void *context, const uni_value *record, uni_error *err)
{
    return uni__experiment_apply(context, record, err);
}

int uni__experiment_read(uni__experiment *experiment, const char *dir, uni_error *err)
{
    UNI_TRY(uni__check_foreign_links(dir, err));
    char *path = uni__path_join(dir, UNI__TUNE_JOURNAL, NULL);
    int status = path && (experiment->dir || (experiment->dir = strdup(dir)))
                     ? uni__journal_read(path, UNI__TUNE_KIND, visit, experiment, NULL, err)
                     : no_memory(err);
    free(path);
    if (status == 0 && !experiment->spec)
        status = uni_error_set(err, UNI_EFORMAT,
                               "%s has no experiment: its tuner was killed before it began", dir);
    return status;
}

static bool is_experiment(const char *dir)
{
    char *path = uni__path_join(dir, UNI__TUNE_JOURNAL, NULL);
    bool is = path && uni__path_exists(path);
    free(path);
    return is;
}

/* The highest tune_NNN in dir, or 0. */
static int newest_in(const char *dir)
{
    DIR *stream = opendir(dir);
    int newest = 0, number, used;
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        used = 0;
        if (sscanf(entry->d_name, "tune_%d%n", &number, &used) == 1 && !entry->d_name[used] &&
            number > newest)
            newest = number;
    }
    if (stream)
        closedir(stream);
    return newest;
}

int uni__experiment_find(const char *name, const char *storage, char **out, uni_error *err)
{
    char *root = NULL, *absolute = uni__path_absolute(name, NULL), *below = NULL;
    *out = NULL;
    int status = uni__run_storage(&root, storage, err);
    if (status == 0)
        below = uni__path_join(root, name, NULL);
    char *const places[] = { absolute, below };
    for (int i = 0; i < 2 && status == 0 && !*out; i++) {
        char *path = NULL;
        if (!places[i] || !uni__path_is_dir(places[i]))
            continue;
        int newest = newest_in(places[i]);
        if (is_experiment(places[i]))
            *out = strdup(places[i]);
        else if (newest > 0 && asprintf(&path, "%s/tune_%03d", places[i], newest) >= 0)
            *out = path;
    }
    if (status == 0 && !*out)
        status = uni_error_set(err, UNI_ENOTFOUND,
                               "there is no experiment \"%s\": neither a directory with %s nor a "
                               "name in %s",
                               name, UNI__TUNE_JOURNAL, root);
    free(absolute);
    free(below);
    free(root);
    return status;
}
