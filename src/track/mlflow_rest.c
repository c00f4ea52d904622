/*
 * mlflow_rest.c - an MLflow tracking server, through its REST API 2.0.
 *
 * Requests are made on the sink thread: metrics are collected and sent with runs/log-batch once a
 * second or when 1,000 wait (the server's limit). So the other sinks may wait for the server, but
 * training never does. A request that was not received is sent again a few times; the request that
 * creates the run only if it certainly was not received. NaN and infinities are the strings of
 * protobuf's JSON.
 *
 * Artifacts go through the server's proxy (mlflow-artifacts:); if a server keeps them elsewhere,
 * the error says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/plugin.h"
#include "track/mlflow.h"
#include "track/http_plugin.h"

#define MAX_METRICS 1000
#define MAX_PAIRS 100
#define SEND_AFTER_NS 1000000000u
#define TRIES 4

typedef struct rest {
    char *base; /* "http://host:5000", without a trailing slash */
    const uni__http_plugin *plugin;
    void *client;
    char *experiment_id, *run_id, *artifact_uri;
    uni__text batch; /* JSON objects of the waiting metrics, separated by commas */
    size_t num_metrics;
    uint64_t last_sent;
} rest;

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory to talk to the MLflow server");
}

/* ---- requests ---- */

static void wait_before(int try)
{
    static const long milliseconds[TRIES] = { 0, 100, 400, 1000 };
    struct timespec time = { milliseconds[try] / 1000, milliseconds[try] % 1000 * 1000000 };
    nanosleep(&time, NULL);
}

static int answer_error(const char *url, const uni__http_answer *answer, uni_error *err)
{
    uni_value *body = NULL;
    uni_error ignored;
    const char *reason = "";
    if (uni_json_read(&body, answer->body, answer->size, &ignored) == 0)
        reason = uni_dict_get_string(body, "message", "");
    int code = answer->status == 401 || answer->status == 403 ? UNI_EPERMISSION
               : answer->status == 404                        ? UNI_ENOTFOUND
                                                              : UNI_EPEER;
    uni_error_set(err, code, "the MLflow server answered %ld to %s: %.300s%s", answer->status, url,
                  reason, code == UNI_EPERMISSION ? " (check MLFLOW_TRACKING_TOKEN)" : "");
    uni_value_free(body);
    return code;
}

/* *out (if not NULL) is the JSON of the answer. once: do not send again if the server may have
 * received it. */
static int ask(rest *r, uni__http_request request, bool once, uni_value **out, uni_error *err)
{
    int status = 0;
    for (int try = 0; try < TRIES; try++) {
        uni__http_answer answer = { 0 };
        wait_before(try);
        if (request.fd >= 0 && lseek(request.fd, 0, SEEK_SET) < 0)
            return uni_error_set_errno(err, errno, "cannot read an artifact again");
        uni__http_outcome outcome = r->plugin->send(r->client, &request, &answer);
        bool again = false;
        if (outcome != UNI__HTTP_ANSWERED) {
            again = outcome == UNI__HTTP_NOT_SENT || !once;
            status = uni_error_set(err, UNI_EPEER, "cannot reach the MLflow server at %s: %s",
                                   r->base, answer.message);
        } else if (answer.status < 200 || answer.status >= 300) {
            again = answer.status == 429 || (answer.status >= 500 && !once);
            status = answer_error(request.url, &answer, err);
        } else {
            status = out != NULL ? uni_json_read(out, answer.body, answer.size, err) : 0;
            if (status < 0)
                uni_error_prefix(err, "the answer of the MLflow server to %s", request.url);
        }
        r->plugin->release(&answer);
        if (!again)
            return status;
    }
    return status;
}

static int call(rest *r, const char *method, const char *endpoint, const uni__text *body, bool once,
                uni_value **out, uni_error *err)
{
    uni__text url = { 0 };
    uni__text_add_format(&url, "%s/api/2.0/mlflow/%s", r->base, endpoint);
    if (url.failed || (body != NULL && body->failed)) {
        uni__text_free(&url);
        return no_memory(err);
    }
    uni__http_request request = { method, url.data, body != NULL ? body->data : NULL,
                                  body != NULL ? body->size : 0, -1 };
    int status = ask(r, request, once, out, err);
    uni__text_free(&url);
    return status;
}

/* ,"key":"text" or, for the first one, "key":"text" */
static void add_field(uni__text *out, const char *key, const char *text)
{
    uni__text_add(out, out->data[out->size - 1] == '{' ? "\"" : ",\"",
                  out->data[out->size - 1] == '{' ? 1 : 2);
    uni__text_add_string(out, key);
    uni__text_add(out, "\":", 2);
    uni__text_add_json_string(out, text, strlen(text));
}

static char *copy_of(const uni_value *value, const char *path)
{
    const char *text = uni_value_as_string(uni_value_path(value, path), NULL);
    return text != NULL && text[0] != 0 ? strdup(text) : NULL;
}

/* ---- start ---- */

static int create_experiment(rest *r, const char *name, uni_error *err)
{
    uni__text body = { 0 };
    uni_value *answer = NULL;
    uni__text_add(&body, "{", 1);
    if (!body.failed)
        add_field(&body, "name", name);
    uni__text_add(&body, "}", 1);
    int status = call(r, "POST", "experiments/create", &body, false, &answer, err);
    r->experiment_id = copy_of(answer, "experiment_id");
    uni_value_free(answer);
    uni__text_free(&body);
    return status;
}

static int get_experiment(rest *r, const char *name, uni_error *err)
{
    uni__text endpoint = { 0 };
    uni_value *answer = NULL;
    uni__text_add_string(&endpoint, "experiments/get-by-name?experiment_name=");
    uni__percent_encode(&endpoint, name, false);
    int status =
        endpoint.failed ? no_memory(err) : call(r, "GET", endpoint.data, NULL, false, &answer, err);
    r->experiment_id = copy_of(answer, "experiment.experiment_id");
    uni_value_free(answer);
    uni__text_free(&endpoint);
    return status;
}

static int choose_experiment(rest *r, const uni__mlflow_run *run, uni_error *err)
{
    int status = 0;
    if (run->experiment_id != NULL) {
        r->experiment_id = strdup(run->experiment_id);
        return r->experiment_id == NULL ? no_memory(err) : 0;
    }
    status = get_experiment(r, run->experiment_name, err);
    if (status == UNI_ENOTFOUND) {
        status = create_experiment(r, run->experiment_name, err);
        if (status < 0) /* another client created it at the same time */
            status = get_experiment(r, run->experiment_name, err);
    }
    if (status == 0 && r->experiment_id == NULL)
        status = uni_error_set(err, UNI_EPEER,
                               "the MLflow server at %s gave no id for the experiment \"%s\"",
                               r->base, run->experiment_name);
    return status;
}

static int create_run(rest *r, const uni__mlflow_run *run, uni_error *err)
{
    uni__text body = { 0 };
    uni_value *answer = NULL;
    uni__text_add(&body, "{", 1);
    if (!body.failed) {
        add_field(&body, "experiment_id", r->experiment_id);
        add_field(&body, "user_id", run->user);
        add_field(&body, "run_name", run->run_name);
    }
    uni__text_add_format(&body, ",\"start_time\":%lld}", (long long)run->start_ms);
    int status = call(r, "POST", "runs/create", &body, true, &answer, err);
    r->run_id = copy_of(answer, "run.info.run_id");
    r->artifact_uri = copy_of(answer, "run.info.artifact_uri");
    uni_value_free(answer);
    uni__text_free(&body);
    if (status == 0 && r->run_id == NULL)
        status = uni_error_set(err, UNI_EPEER, "the MLflow server at %s gave no id for the run",
                               r->base);
    return status;
}

static int send_pairs(rest *r, const char *kind, const uni__mlflow_pairs *pairs, uni_error *err)
{
    for (size_t first = 0; first < pairs->count; first += MAX_PAIRS) {
        uni__text body = { 0 };
        uni__text_add(&body, "{", 1);
        if (!body.failed)
            add_field(&body, "run_id", r->run_id);
        uni__text_add_format(&body, ",\"%s\":[", kind);
        for (size_t i = first; i < pairs->count && i < first + MAX_PAIRS && !body.failed; i++) {
            uni__text_add_string(&body, i > first ? ",{" : "{");
            add_field(&body, "key", pairs->items[i].key);
            add_field(&body, "value", pairs->items[i].value);
            uni__text_add(&body, "}", 1);
        }
        uni__text_add(&body, "]}", 2);
        int status = call(r, "POST", "runs/log-batch", &body, false, NULL, err);
        uni__text_free(&body);
        UNI_TRY(status);
    }
    return 0;
}

static int rest_start(void *self, const uni__mlflow_run *run, uni_error *err)
{
    rest *r = self;
    UNI_TRY(choose_experiment(r, run, err));
    UNI_TRY(create_run(r, run, err));
    UNI_TRY(send_pairs(r, "params", &run->params, err));
    UNI_TRY(send_pairs(r, "tags", &run->tags, err));
    r->last_sent = uni__monotonic_ns();
    return 0;
}

/* ---- metrics ---- */

static int send_metrics(rest *r, uni_error *err)
{
    if (r->num_metrics == 0)
        return 0;
    uni__text body = { 0 };
    uni__text_add(&body, "{", 1);
    if (!body.failed)
        add_field(&body, "run_id", r->run_id);
    uni__text_add_string(&body, ",\"metrics\":[");
    uni__text_add(&body, r->batch.data, r->batch.size);
    uni__text_add(&body, "]}", 2);
    int status = call(r, "POST", "runs/log-batch", &body, false, NULL, err);
    uni__text_free(&body);
    UNI_TRY(status);
    uni__text_clear(&r->batch);
    r->num_metrics = 0;
    r->last_sent = uni__monotonic_ns();
    return 0;
}

static int rest_metric(void *self, const char *key, double value, int64_t time_ms, int64_t step,
                       uni_error *err)
{
    rest *r = self;
    uni__text *out = &r->batch;
    uni__text_add_string(out, r->num_metrics > 0 ? ",{" : "{");
    if (!out->failed)
        add_field(out, "key", key);
    uni__text_add_string(out, isfinite(value) ? ",\"value\":" : ",\"value\":\"");
    uni__text_add_double(out, value);
    uni__text_add_format(out, "%s,\"timestamp\":%lld,\"step\":%lld}", isfinite(value) ? "" : "\"",
                         (long long)time_ms, (long long)step);
    if (out->failed)
        return no_memory(err);
    return ++r->num_metrics == MAX_METRICS ? send_metrics(r, err) : 0;
}

static int rest_flush(void *self, bool now, uni_error *err)
{
    rest *r = self;
    if (!now && uni__monotonic_ns() - r->last_sent < SEND_AFTER_NS)
        return 0;
    return send_metrics(r, err);
}

/* ---- the end ---- */

typedef struct upload {
    rest *r;
    const char *target; /* path in the server's artifact proxy, for this run */
} upload;

static int upload_file(void *context, const char *relative_path, const char *full_path,
                       uint64_t size, uni_error *err)
{
    upload *u = context;
    uni__text url = { 0 };
    uni__text_add_format(&url, "%s/api/2.0/mlflow-artifacts/artifacts/", u->r->base);
    uni__percent_encode(&url, u->target, true);
    uni__text_add_string(&url, "/checkpoints/");
    uni__percent_encode(&url, relative_path, true);
    int fd = open(full_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int status = 0;
    if (fd < 0)
        status = uni_error_set_errno(err, errno, "cannot read the artifact %s", full_path);
    else if (url.failed)
        status = no_memory(err);
    else
        status = ask(u->r, (uni__http_request){ "PUT", url.data, NULL, (size_t)size, fd }, false,
                     NULL, err);
    if (fd >= 0)
        close(fd);
    uni__text_free(&url);
    return status;
}

static int upload_artifacts(rest *r, const char *dir, uni_error *err)
{
    const char *scheme = "mlflow-artifacts:/";
    const char *target = r->artifact_uri != NULL ? r->artifact_uri : "";
    if (strncmp(target, scheme, strlen(scheme)) != 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the MLflow server keeps artifacts in %s, not through itself: start "
                             "it with --serve-artifacts, or "
                             "take the checkpoints from %s",
                             target, dir);
    target += strlen(scheme);
    while (*target == '/')
        target++;
    return uni__walk_files(dir, upload_file, &(upload){ r, target }, err);
}

static int rest_finish(void *self, uni__mlflow_status outcome, int64_t end_ms,
                       const char *artifacts, uni_error *err)
{
    rest *r = self;
    uni__text body = { 0 };
    int status = artifacts != NULL ? upload_artifacts(r, artifacts, err) : 0;
    uni_error second = { 0 };
    uni__text_add(&body, "{", 1);
    if (!body.failed) {
        add_field(&body, "run_id", r->run_id);
        add_field(&body, "status",
                  outcome == UNI__MLFLOW_FINISHED ? "FINISHED"
                  : outcome == UNI__MLFLOW_KILLED ? "KILLED"
                                                  : "FAILED");
    }
    uni__text_add_format(&body, ",\"end_time\":%lld}", (long long)end_ms);
    int ended = call(r, "POST", "runs/update", &body, false, NULL, status < 0 ? &second : err);
    uni__text_free(&body);
    return status < 0 ? status : ended;
}

static void rest_free(void *self)
{
    rest *r = self;
    if (r->client != NULL)
        r->plugin->close(r->client);
    uni__text_free(&r->batch);
    free(r->base);
    free(r->experiment_id);
    free(r->run_id);
    free(r->artifact_uri);
    free(r);
}

static const char *rest_run_id(const void *self)
{
    return ((const rest *)self)->run_id;
}

static const uni__mlflow_store rest_store = {
    .name = "server",
    .start = rest_start,
    .metric = rest_metric,
    .flush = rest_flush,
    .finish = rest_finish,
    .run_id = rest_run_id,
    .free = rest_free,
};

int uni__mlflow_rest_new(void **out, const uni__mlflow_store **store, const char *uri,
                         const char *token, uni_error *err)
{
    const char *insecure = getenv("MLFLOW_TRACKING_INSECURE_TLS");
    static const uni__plugin http = {
        .file = UNI__HTTP_PLUGIN_FILE,
        .symbol = UNI__HTTP_PLUGIN_SYMBOL,
        .version = UNI__HTTP_PLUGIN_VERSION,
        .built = "src/track",
        .purpose = "reporting to an MLflow server",
        .packages = "the Debian package libcurl4",
        .otherwise = "without a server leave the tracking URI out: the run is then kept in files"
    };
    const void *table = NULL;
    *out = NULL;
    UNI_TRY(uni__plugin_open(&table, &http, err));
    const uni__http_plugin *plugin = table;
    rest *r = calloc(1, sizeof *r);
    if (r == NULL)
        return no_memory(err);
    r->plugin = plugin;
    r->base = strdup(uri);
    uni__http_options options = { .token = token,
                                  .user = token == NULL ? getenv("MLFLOW_TRACKING_USERNAME") : NULL,
                                  .password =
                                      token == NULL ? getenv("MLFLOW_TRACKING_PASSWORD") : NULL,
                                  .insecure = insecure != NULL && strcmp(insecure, "true") == 0,
                                  .timeout_seconds = 30 };
    r->client = r->base != NULL ? plugin->open(&options) : NULL;
    if (r->client == NULL) {
        rest_free(r);
        return no_memory(err);
    }
    for (size_t length = strlen(r->base); length > 0 && r->base[length - 1] == '/';)
        r->base[--length] = 0;
    *out = r;
    *store = &rest_store;
    return 0;
}
