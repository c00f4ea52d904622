/*
 * mlflow.c - the MLflow sink: one MLflow run per run, with the config as its params, one rank's
 * numbers as its metrics and the outcome as its status. uni__mlflow_store (mlflow.h) hides where it
 * goes: a directory in MLflow's file-store layout, or a tracking server.
 *
 * Names of nested metrics and params are joined by '/'. The step is the iteration, the time the
 * report's _timestamp.
 *
 * Thread: the sink thread; the constructor anywhere.
 */
#include "track/mlflow.h"

#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/grow.h"
#include "track/sink.h"
#include "track/trials.h"
#include "base/options.h"

#define MAX_VALUE 6000 /* MLflow's own limit for params; longer ones are truncated */
#define MAX_KEY 250

typedef struct mlflow {
    char *uri, *token, *experiment_name, *experiment_id, *run_dir;
    uni_value *tags;
    bool save_artifact;
    int rank;
    const uni__mlflow_store *store;
    void *self;
    uni__text name, key;
    /* Of the current report. */
    int64_t time_ms, step;
    double started; /* 0: use the time of the start call */
    uni_error broken; /* of a tick; the next call that can returns it */
} mlflow;

/* ---- names and values ---- */

void uni__percent_encode(uni__text *out, const char *text, bool keep_slash)
{
    for (; *text != 0; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) != NULL || (c == '/' && keep_slash);
        if (plain)
            uni__text_add(out, text, 1);
        else
            uni__text_add_format(out, "%%%02X", c);
    }
}

/* MLflow allows letters, digits, '_', '-', '.', ' ', ':' and '/', and the name must be a normalized
 * path. */
static void clean_key(uni__text *out, const char *key)
{
    size_t start = out->size;
    bool fresh = true; /* at the start of a part between slashes */
    for (size_t i = 0; key[i] != 0 && out->size - start < MAX_KEY; i++) {
        char c = key[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("_-. :", c) != NULL;
        bool last = key[i + 1] == 0 || key[i + 1] == '/';
        if (c == '/' && !fresh && key[i + 1] != 0)
            uni__text_add(out, "/", 1);
        else if (plain && !(c == '.' && (fresh || last)))
            uni__text_add(out, &c, 1);
        else
            uni__text_add(out, "_", 1);
        fresh = out->size > 0 && out->data[out->size - 1] == '/';
    }
    if (out->size == start || fresh)
        uni__text_add(out, "_", 1);
}

static void add_text(uni__text *out, const uni_value *value)
{
    if (uni_value_type_of(value) == UNI_TYPE_STRING)
        uni__text_add_string(out, uni_value_as_string(value, ""));
    else if (uni_value_type_of(value) == UNI_TYPE_BOOL)
        uni__text_add_string(out, uni_value_as_bool(value, false) ? "True" : "False");
    else if (uni_value_type_of(value) == UNI_TYPE_NULL)
        uni__text_add_string(out, "None");
    else
        uni__emit_json(out, value, 0);
}

/* Truncates at a whole character. */
static void cut(uni__text *text, size_t limit)
{
    if (text->size <= limit)
        return;
    while (limit > 0 && ((unsigned char)text->data[limit] & 0xc0) == 0x80)
        limit--;
    text->size = limit;
    text->data[limit] = 0;
}

static int add_pair(uni__mlflow_pairs *pairs, const char *key, const uni_value *value,
                    uni_error *err)
{
    uni__text clean = { 0 }, text = { 0 };
    clean_key(&clean, key);
    add_text(&text, value);
    if (text.data == NULL)
        uni__text_add(&text, "", 0);
    if (!text.failed && text.data != NULL)
        cut(&text, MAX_VALUE);
    uni__mlflow_pair *grown =
        uni__grown(pairs->items, pairs->count, &pairs->capacity, sizeof *grown);
    pairs->items = grown ? grown : pairs->items;
    if (!grown || clean.failed || text.failed || clean.data == NULL || text.data == NULL) {
        uni__text_free(&clean);
        uni__text_free(&text);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the params of the MLflow run");
    }
    pairs->items[pairs->count++] = (uni__mlflow_pair){ clean.data, text.data };
    return 0;
}

static int take_param(void *context, const char *name, const uni_value *leaf, uni_error *err)
{
    return add_pair(context, name, leaf, err);
}

static void pairs_free(uni__mlflow_pairs *pairs)
{
    for (size_t i = 0; i < pairs->count; i++) {
        free(pairs->items[i].key);
        free(pairs->items[i].value);
    }
    free(pairs->items);
}

/* ---- start ---- */

static int64_t now_ms(void)
{
    return (int64_t)(uni__wall_seconds() * 1000);
}

static const char *or_environment(const char *given, const char *variable)
{
    const char *value = given != NULL ? given : getenv(variable);
    return value != NULL && value[0] != 0 ? value : NULL;
}

static int open_store(mlflow *m, const uni_start_info *info, uni_error *err)
{
    const char *uri = or_environment(m->uri, "MLFLOW_TRACKING_URI");
    if (uri != NULL && (strncmp(uri, "http://", 7) == 0 || strncmp(uri, "https://", 8) == 0))
        return uni__mlflow_rest_new(&m->self, &m->store, uri,
                                    or_environment(m->token, "MLFLOW_TRACKING_TOKEN"), err);
    if (uri != NULL && strncmp(uri, "file://", 7) == 0)
        uri += 7;
    else if (uri != NULL && strstr(uri, "://") != NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the MLflow tracking URI %s is neither http(s):// nor a directory",
                             uri);
    char *root =
        uri != NULL ? uni__path_absolute(uri, err) : uni__path_join(info->run_dir, "mlruns", NULL);
    if (root == NULL)
        return uri != NULL ? UNI_EINVAL
                           : uni_error_set(err, UNI_ENOMEM, "no memory for the MLflow sink");
    int status = uni__mlflow_files_new(&m->self, &m->store, root, err);
    free(root);
    return status;
}

static int add_string_pair(uni__mlflow_pairs *pairs, const char *key, const char *text,
                           uni_error *err)
{
    uni_value *value = uni_value_string(text);
    int status = value == NULL
                     ? uni_error_set(err, UNI_ENOMEM, "no memory for the tags of the MLflow run")
                     : add_pair(pairs, key, value, err);
    uni_value_free(value);
    return status;
}

static int add_tags(mlflow *m, const uni_start_info *info, uni__mlflow_run *run, uni_error *err)
{
    UNI_TRY(add_string_pair(&run->tags, "mlflow.runName", run->run_name, err));
    UNI_TRY(add_string_pair(&run->tags, "mlflow.user", run->user, err));
    UNI_TRY(add_string_pair(&run->tags, "mlflow.source.type", "LOCAL", err));
    UNI_TRY(add_string_pair(&run->tags, "mlflow.source.name",
                            info->function != NULL ? info->function : "", err));
    UNI_TRY(add_string_pair(&run->tags, "unisono.run_dir", info->run_dir, err));
    for (size_t i = 0; i < uni_dict_size(m->tags); i++)
        UNI_TRY(
            add_pair(&run->tags, uni_dict_key_at(m->tags, i), uni_dict_value_at(m->tags, i), err));
    return 0;
}

static void user_name(char *out, size_t size)
{
    struct passwd entry, *found = NULL;
    char buffer[4096];
    if (getpwuid_r(getuid(), &entry, buffer, sizeof buffer, &found) == 0 && found != NULL)
        snprintf(out, size, "%s", found->pw_name);
    else
        snprintf(out, size, "%u", (unsigned)getuid());
}

static int mlflow_start(void *self, const uni_start_info *info, uni_error *err)
{
    mlflow *m = self;
    char user[128];
    int status = 0;
    bool failed = false;
    const char *name = or_environment(m->experiment_name, "MLFLOW_EXPERIMENT_NAME");
    user_name(user, sizeof user);
    uni__mlflow_run run = { .experiment_name = name != NULL ? name : info->name,
                            .experiment_id =
                                or_environment(m->experiment_id, "MLFLOW_EXPERIMENT_ID"),
                            .run_name = info->run_id != NULL ? info->run_id : "",
                            .user = user,
                            .start_ms =
                                info->started > 0 ? (int64_t)(info->started * 1000) : now_ms() };
    m->started = info->started;
    m->run_dir = uni__sink_copy(info->run_dir, &failed);
    if (failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the MLflow sink");
    UNI_TRY_GOTO(open_store(m, info, err), done);
    UNI_TRY_GOTO(uni__flatten(info->config, '/', &m->name, take_param, &run.params, err), done);
    UNI_TRY_GOTO(add_tags(m, info, &run, err), done);
    UNI_TRY_GOTO(m->store->start(m->self, &run, err), done);
done:
    pairs_free(&run.params);
    pairs_free(&run.tags);
    return status;
}

/* ---- reports ---- */

static int take_metric(void *context, const char *name, const uni_value *leaf, uni_error *err)
{
    mlflow *m = context;
    if (!uni_value_is_number(leaf))
        return 0;
    uni__text_clear(&m->key);
    clean_key(&m->key, name);
    if (m->key.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a metric of the MLflow run");
    return m->store->metric(m->self, m->key.data, uni_value_as_float(leaf, NAN), m->time_ms,
                            m->step, err);
}

static int mlflow_result(void *self, const uni_reports *reports, uni_error *err)
{
    mlflow *m = self;
    const uni_value *metrics = uni__reports_rank(reports, m->rank);
    if (m->broken.code < 0)
        return uni_error_set(err, m->broken.code, "%s", m->broken.message);
    if (metrics == NULL)
        return 0;
    const uni_value *stamp = uni_dict_get(metrics, "_timestamp");
    double seconds =
        uni_value_is_number(stamp) ? uni_value_as_float(stamp, 0) : uni__wall_seconds();
    m->time_ms = isfinite(seconds) && fabs(seconds) < 1e12 ? (int64_t)(seconds * 1000) : now_ms();
    m->step = reports->iteration;
    return uni__flatten(metrics, '/', &m->name, take_metric, m, err);
}

static void mlflow_tick(void *self)
{
    mlflow *m = self;
    uni_error err = { 0 };
    if (m->self != NULL && m->broken.code == 0 && m->store->flush(m->self, false, &err) < 0)
        m->broken = err;
}

static int mlflow_finish(void *self, const uni_finish_info *info, uni_error *err)
{
    mlflow *m = self;
    bool stopped = info->code == UNI_EPREEMPTED || info->code == UNI_ECANCELED;
    uni__mlflow_status outcome = info->code == 0 ? UNI__MLFLOW_FINISHED
                                 : stopped       ? UNI__MLFLOW_KILLED
                                                 : UNI__MLFLOW_FAILED;
    char *artifacts = NULL;
    if (m->save_artifact) {
        artifacts = uni__path_join(m->run_dir, "checkpoints", NULL);
        if (artifacts == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the MLflow sink");
        if (!uni__path_is_dir(artifacts)) {
            free(artifacts);
            artifacts = NULL;
        }
    }
    int status = m->store->flush(m->self, true, err);
    uni_error ending = { 0 };
    /* Sets the status even if the last metrics could not be sent. */
    int64_t end_ms = m->started > 0 ? (int64_t)((m->started + info->seconds) * 1000) : now_ms();
    int ended = m->store->finish(m->self, outcome, end_ms, artifacts, status < 0 ? &ending : err);
    free(artifacts);
    return status < 0 ? status : ended;
}

static void mlflow_free(void *self)
{
    mlflow *m = self;
    if (m->self != NULL)
        m->store->free(m->self);
    uni__text_free(&m->name);
    uni__text_free(&m->key);
    free(m->uri);
    free(m->token);
    free(m->experiment_name);
    free(m->experiment_id);
    free(m->run_dir);
    uni_value_free(m->tags);
    free(m);
}

static const uni_sink_class mlflow_class = {
    .name = "mlflow",
    .start = mlflow_start,
    .result = mlflow_result,
    .tick = mlflow_tick,
    .finish = mlflow_finish,
    .free = mlflow_free,
};

const char *uni__sink_mlflow_run(const uni_sink *sink)
{
    const mlflow *m = sink->self;
    return sink->class_ == &mlflow_class && m->self != NULL ? m->store->run_id(m->self) : NULL;
}

int uni_sink_mlflow(uni_sink **out, const uni_sink_mlflow_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_sink_mlflow_options, options, rank, err);
    bool failed = false;
    mlflow *m = calloc(1, sizeof *m);
    if (m == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the MLflow sink");
    m->uri = uni__sink_copy(options->tracking_uri, &failed);
    m->token = uni__sink_copy(options->tracking_token, &failed);
    m->experiment_name = uni__sink_copy(options->experiment_name, &failed);
    m->experiment_id = uni__sink_copy(options->experiment_id, &failed);
    m->tags = options->tags ? uni_value_copy(options->tags) : NULL;
    failed |= options->tags && !m->tags;
    m->save_artifact = options->save_artifact;
    m->rank = options->rank;
    int status = failed ? uni_error_set(err, UNI_ENOMEM, "no memory for the MLflow sink")
                        : uni_sink_new(out, &mlflow_class, m, err);
    if (status < 0)
        mlflow_free(m);
    return status;
}
