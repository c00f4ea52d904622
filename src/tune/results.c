/* results.c - access to the results: one trial, the best one, the table. tune.h has the interface.
 * Owner's thread. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tune/shared.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/text.h"
#include "tune/experiment.h"

/* The journal says running, but no tuner runs the trial. */
static void mark_interrupted(uni__experiment *experiment)
{
    for (int64_t i = 0; i < experiment->count; i++)
        if (experiment->trials[i]->status == UNI_TRIAL_RUNNING)
            experiment->trials[i]->status = UNI_TRIAL_INTERRUPTED;
}

/* A tuner has it open now. */
static bool is_live(const char *dir)
{
    char *path = uni__path_join(dir, UNI__TUNE_JOURNAL, NULL);
    int fd = path ? uni__open_unlinked(path, NULL) : -1;
    bool live = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;
    if (fd >= 0)
        close(fd);
    free(path);
    return live;
}

int uni_tune_results_open(uni_tune_results **out, const char *dir, const char *storage_path,
                          uni_error *err)
{
    *out = NULL;
    uni_tune_results *results = calloc(1, sizeof *results);
    if (!results)
        return uni_error_set(err, UNI_ENOMEM, "no memory for results");
    char *found = NULL;
    int status = uni__experiment_find(dir, storage_path, &found, err);
    results->experiment.dir = found;
    bool live = status == 0 && is_live(found); /* before: it may end meanwhile */
    if (status == 0)
        status = uni__experiment_read(&results->experiment, found, err);
    if (status == 0 && !live)
        mark_interrupted(&results->experiment);
    if (status < 0) {
        uni_tune_results_free(results);
        return status;
    }
    *out = results;
    return 0;
}

void uni_tune_results_free(uni_tune_results *results)
{
    if (!results)
        return;
    uni__experiment_clear(&results->experiment);
    free(results);
}

const uni_tune_info *uni_tune_info_of(const uni_tune_results *results)
{
    uni_tune_info *info = &((uni_tune_results *)results)->info;
    *info = (uni_tune_info){
        .dir = results->experiment.dir,
        .spec = results->experiment.spec,
        .is_finished = results->experiment.finished,
        .num_expected = results->experiment.expected,
        .num_trials = results->experiment.count,
    };
    return info;
}

int64_t uni_tune_count_status(const uni_tune_results *results, uni_trial_status status)
{
    int64_t count = 0;
    for (int64_t i = 0; i < results->experiment.count; i++)
        count += results->experiment.trials[i]->status == status;
    return count;
}

const char *uni_trial_status_name(uni_trial_status status)
{
    static const char *const names[UNI_TRIAL_STATUSES] = { "PENDING",    "RUNNING", "PAUSED",
                                                           "TERMINATED", "ERROR",   "INTERRUPTED" };
    return (unsigned)status < sizeof names / sizeof names[0] ? names[status] : "?";
}

static const uni__trial *get(const uni_tune_results *results, int64_t trial)
{
    static const uni__trial none = { 0 };
    const uni__trial *found = uni__experiment_trial(&results->experiment, trial);
    return found ? found : &none;
}

const uni_trial_info *uni_trial_info_of(const uni_tune_results *results, int64_t trial)
{
    static const uni_trial_info none = { 0 };
    uni__trial *found = uni__experiment_trial(&results->experiment, trial);
    if (!found)
        return &none;
    found->info = (uni_trial_info){
        .status = found->status,
        .config = found->config,
        .metrics = found->last,
        .iterations = found->iteration,
        .seconds = found->seconds,
        .attempts = found->attempts,
        .why = found->why,
        .error = found->error,
        .failure = found->failure,
    };
    return &found->info;
}

char *uni_trial_dir(const uni_tune_results *results, int64_t trial)
{
    return uni__trial_path(&results->experiment, trial);
}

char *uni_trial_checkpoint(const uni_tune_results *results, int64_t trial, bool best)
{
    const uni__trial *of = get(results, trial);
    const char *path = best && of->best_checkpoint ? of->best_checkpoint : of->checkpoint;
    return path ? uni__path_join(results->experiment.dir, path, NULL) : NULL;
}

/* The experiment's mode applies only to its own metric: another metric needs a mode. */
static int sign_of(const uni__experiment *experiment, const char *metric, const char *mode,
                   uni_error *err)
{
    if (mode && strcmp(mode, "max") != 0 && strcmp(mode, "min") != 0)
        return uni_error_set(err, UNI_EINVAL, "mode must be \"min\" or \"max\", not \"%s\"", mode);
    bool own = !metric || !experiment->metric || strcmp(metric, experiment->metric) == 0;
    if (!mode && !own)
        return uni_error_set(
            err, UNI_EINVAL,
            "which value of \"%s\" is better? Give a mode, \"min\" or \"max\": the "
            "experiment's is for \"%s\"",
            metric, experiment->metric);
    int sign = !mode ? experiment->sign : strcmp(mode, "max") == 0 ? 1 : -1;
    if (!sign)
        return uni_error_set(err, UNI_EINVAL,
                             "which of two values is better? Give a mode, \"min\" or \"max\"");
    return sign > 0 ? 1 : 2;
}

double uni_trial_value(const uni_tune_results *results, int64_t trial, const char *metric,
                       const char *mode, uni_scope scope)
{
    const uni__experiment *experiment = &results->experiment;
    const char *name = metric ? metric : experiment->metric;
    int number = name ? uni__experiment_metric(experiment, name) : -1;
    int sign = sign_of(experiment, name, mode, NULL);
    double value = NAN;
    if (number < 0 || (sign < 0 && scope == UNI_SCOPE_ALL) ||
        !uni__trial_value(get(results, trial), number, sign == 1 ? 1 : -1, scope, &value))
        return NAN;
    return value;
}

uni_value *uni__tune_metric_names(const uni_tune_results *results)
{
    uni_value *list = uni_value_list();
    for (int i = 0; i < results->experiment.num_names; i++)
        if (uni_list_take(list, uni_value_string(results->experiment.names[i])) < 0)
            break;
    return list;
}

static int say_not_reported(const uni__experiment *experiment, const char *metric, uni_error *err)
{
    char known[600] = "";
    for (int i = 0; i < experiment->num_names; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", known[0] ? ", " : "",
                 experiment->names[i]);
    const char *first = NULL;
    int64_t failed = 0;
    for (int64_t i = 0; i < experiment->count; i++)
        if (experiment->trials[i]->status == UNI_TRIAL_ERROR && ++failed == 1)
            first = experiment->trials[i]->error;
    if (!known[0] && failed > 0)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "no trial has reported anything, so there is no best one by \"%s\": "
                             "%lld of %lld failed, the first with: %s",
                             metric, (long long)failed, (long long)experiment->count,
                             first ? first : "an unknown error");
    if (!known[0])
        return uni_error_set(err, UNI_ENOTFOUND,
                             "no trial has reported anything, so there is no best one by \"%s\": "
                             "does the train function call report()?",
                             metric);
    return uni_error_set(err, UNI_ENOTFOUND,
                         "no trial has reported the metric \"%s\"; they reported: %s", metric,
                         known);
}

int uni_tune_best(int64_t *trial, const uni_tune_results *results, const char *metric,
                  const char *mode, uni_scope scope, uni_error *err)
{
    const uni__experiment *experiment = &results->experiment;
    *trial = -1;
    if (!metric)
        metric = experiment->metric;
    if (!metric)
        return uni_error_set(err, UNI_EINVAL,
                             "best by which metric? The experiment has none: give one");
    int sign = sign_of(experiment, metric, mode, err);
    UNI_TRY(sign);
    sign = sign == 1 ? 1 : -1;
    int name = uni__experiment_metric(experiment, metric);
    double best = NAN, value;
    for (int64_t i = 0; i < experiment->count && name >= 0; i++) {
        if (!uni__trial_value(experiment->trials[i], name, sign, scope, &value) || !isfinite(value))
            continue;
        if (*trial < 0 || sign * value > sign * best) {
            *trial = i;
            best = value;
        }
    }
    if (*trial >= 0)
        return 0;
    if (name < 0)
        return say_not_reported(experiment, metric, err);
    return uni_error_set(err, UNI_ENOTFOUND,
                         "every value of the metric \"%s\" is NaN or infinite: no trial is best",
                         metric);
}

/* ---- the table ---- */

/* Columns of the table itself. A metric of the same name becomes "metrics/NAME". */
static bool is_own_column(const char *name)
{
    static const char *const own[] = { "trial",    "status", "iterations", "seconds",
                                       "attempts", "error",  NULL };
    const char *const *at = own;
    while (*at && strcmp(*at, name) != 0)
        at++;
    return *at != NULL;
}

static int flatten_into(uni_value *row, const char *prefix, const uni_value *tree)
{
    int status = 0;
    for (size_t i = 0; i < uni_dict_size(tree); i++) {
        char *key = NULL;
        const uni_value *value = uni_dict_value_at(tree, i);
        const char *name = uni_dict_key_at(tree, i);
        bool meets = !*prefix && is_own_column(name);
        if (asprintf(&key, "%s%s", meets ? "metrics/" : prefix, name) < 0)
            return UNI_ENOMEM;
        if (uni_value_type_of(value) == UNI_TYPE_DICT && uni_dict_size(value) > 0) {
            char *deeper = NULL;
            status |=
                asprintf(&deeper, "%s/", key) < 0 ? UNI_ENOMEM : flatten_into(row, deeper, value);
            free(deeper);
        } else {
            status |= uni_dict_take(row, key, uni_value_copy(value));
        }
        free(key);
    }
    return status;
}

static bool is_time(const char *name)
{
    return strcmp(name, "time_total_s") == 0 || strcmp(name, "time_this_iter_s") == 0 ||
           strcmp(name, "timestamp") == 0;
}

static uni_value *row_of(const uni__trial *trial, bool times)
{
    uni_value *row = uni_value_dict();
    int status = uni_dict_take(row, "trial", uni_value_int(trial->index));
    status |= uni_dict_take(row, "status", uni_value_string(uni_trial_status_name(trial->status)));
    status |= uni_dict_take(row, "iterations", uni_value_int(trial->iteration));
    if (times) {
        status |= uni_dict_take(row, "seconds", uni_value_float(trial->seconds));
        status |= uni_dict_take(row, "attempts", uni_value_int(trial->attempts));
    }
    status |= flatten_into(row, "config/", trial->config);
    status |= flatten_into(row, "", trial->last);
    for (size_t i = uni_dict_size(row); i-- > 0 && !times;)
        if (is_time(uni_dict_key_at(row, i)))
            uni_dict_remove(row, uni_dict_key_at(row, i));
    if (trial->error)
        status |= uni_dict_take(row, "error", uni_value_string(trial->error));
    if (status == 0)
        return row;
    uni_value_free(row);
    return NULL;
}

uni_value *uni__tune_table(const uni_tune_results *results, bool times)
{
    uni_value *table = uni_value_list();
    for (int64_t i = 0; i < results->experiment.count; i++)
        if (uni_list_take(table, row_of(results->experiment.trials[i], times)) < 0) {
            uni_value_free(table);
            return NULL;
        }
    return table;
}

static void add_csv(uni__text *out, const char *text, size_t size)
{
    bool quoted = false;
    for (size_t i = 0; i < size && !quoted; i++)
        quoted = text[i] == ',' || text[i] == '"' || text[i] == '\n' || text[i] == '\r';
    if (!quoted) {
        uni__text_add(out, text, size);
        return;
    }
    uni__text_add_char(out, '"');
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"')
            uni__text_add_char(out, '"');
        uni__text_add_char(out, text[i]);
    }
    uni__text_add_char(out, '"');
}

static int add_cell(uni__text *out, const uni_value *value, uni_error *err)
{
    const char *text = uni_value_as_string(value, NULL);
    if (text) {
        add_csv(out, text, strlen(text));
    } else if (value && uni_value_type_of(value) != UNI_TYPE_NULL) {
        char *json = NULL;
        size_t length = 0;
        UNI_TRY(uni_json_write(&json, &length, value, UNI_JSON_NONFINITE, err));
        add_csv(out, json, length);
        free(json);
    }
    return 0;
}

int uni_tune_csv(char **out, const uni_tune_results *results, bool times, uni_error *err)
{
    uni__text text = { 0 };
    uni_value *table = uni__tune_table(results, times), *columns = uni_value_dict();
    int status = table ? 0 : UNI_ENOMEM;
    *out = NULL;
    for (size_t i = 0; i < uni_list_size(table); i++)
        for (size_t k = 0; k < uni_dict_size(uni_list_get(table, i)); k++) {
            const char *key = uni_dict_key_at(uni_list_get(table, i), k);
            if (!uni_dict_get(columns, key))
                status |= uni_dict_take(columns, key, uni_value_null());
        }
    for (size_t k = 0; k < uni_dict_size(columns); k++) {
        if (k)
            uni__text_add_char(&text, ',');
        add_csv(&text, uni_dict_key_at(columns, k), strlen(uni_dict_key_at(columns, k)));
    }
    uni__text_add_char(&text, '\n');
    for (size_t i = 0; i < uni_list_size(table) && status == 0; i++) {
        for (size_t k = 0; k < uni_dict_size(columns) && status == 0; k++) {
            if (k)
                uni__text_add_char(&text, ',');
            status = add_cell(
                &text, uni_dict_get(uni_list_get(table, i), uni_dict_key_at(columns, k)), err);
        }
        uni__text_add_char(&text, '\n');
    }
    uni_value_free(table);
    uni_value_free(columns);
    if (status < 0 || text.failed) {
        uni__text_free(&text);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the table");
    }
    *out = text.data;
    return 0;
}

/* ---- all reports ---- */

typedef struct reader {
    uni_tune_visit visit;
    void *context;
    const uni_tune_results *results;
    bool counting;
    /* Restarts of each trial: in the file, and so far. */
    int64_t *starts, *seen;
    struct restart {
        int64_t trial, number, iteration;
    } * restarts;
    size_t num_restarts, room;
} reader;

static int note_restart(reader *read, int64_t trial, int64_t iteration, uni_error *err)
{
    void *grown =
        uni__grown(read->restarts, read->num_restarts, &read->room, sizeof *read->restarts);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read reports");
    read->restarts = grown;
    read->restarts[read->num_restarts++] =
        (struct restart){ .trial = trial, .number = read->starts[trial], .iteration = iteration };
    return 0;
}

/* true when a later start of the trial returned to an iteration before this one. */
static bool is_taken_back(const reader *read, int64_t trial, int64_t iteration)
{
    for (size_t i = 0; i < read->num_restarts; i++)
        if (read->restarts[i].trial == trial && read->restarts[i].number > read->seen[trial] &&
            read->restarts[i].iteration < iteration)
            return true;
    return false;
}

static int read_record(void *context, const uni_value *record, uni_error *err)
{
    reader *read = context;
    const char *event = uni_dict_get_string(record, "e", "");
    int64_t trial = uni_dict_get_int(record, "t", -1), iteration = uni_dict_get_int(record, "i", 0);
    if (trial < 0 || trial >= read->results->experiment.count)
        return 0;
    if (strcmp(event, "run") == 0) {
        if (!read->counting) {
            read->seen[trial]++;
            return 0;
        }
        read->starts[trial]++;
        return read->starts[trial] > 1 ? note_restart(read, trial, iteration, err) : 0;
    }
    if (read->counting || strcmp(event, "report") != 0 || is_taken_back(read, trial, iteration))
        return 0;
    uni_value *metrics = uni__record_read_metrics(record);
    int status = metrics ? read->visit(read->context, trial, iteration, metrics, err)
                         : uni_error_set(err, UNI_ENOMEM, "no memory to read reports");
    uni_value_free(metrics);
    return status;
}

int uni_tune_reports(const uni_tune_results *results, uni_tune_visit visit, void *context,
                     uni_error *err)
{
    size_t count = (size_t)results->experiment.count + 1;
    reader read = { .visit = visit, .context = context, .results = results, .counting = true };
    char *path = uni__path_join(results->experiment.dir, UNI__TUNE_JOURNAL, NULL);
    read.starts = calloc(count, sizeof *read.starts);
    read.seen = calloc(count, sizeof *read.seen);
    int status = path && read.starts && read.seen
                     ? uni__journal_read(path, UNI__TUNE_KIND, read_record, &read, NULL, err)
                     : uni_error_set(err, UNI_ENOMEM, "no memory to read reports");
    read.counting = false;
    if (status == 0)
        status = uni__journal_read(path, UNI__TUNE_KIND, read_record, &read, NULL, err);
    free(read.starts);
    free(read.seen);
    free(read.restarts);
    free(path);
    return status;
}
