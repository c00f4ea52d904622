/*
 * mlflow_files.c - MLflow's file store:
 *
 *     ROOT/EXPERIMENT_ID/meta.yaml
 *     ROOT/EXPERIMENT_ID/RUN_ID/meta.yaml       status 1 running, 3 finished, 4 failed, 5 killed
 *                              /metrics/KEY          lines "TIME_MS VALUE STEP"
 *                              /params/KEY, tags/KEY the value
 *                              /artifacts/
 *
 * Strings in the YAML are JSON strings, which YAML reads. Metrics are buffered and appended on
 * every tick. README.txt in ROOT has the command that shows the runs in an MLflow that no longer
 * opens such directories unasked. Thread: the sink thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/random.h"
#include "track/mlflow.h"

#define FLUSH_SIZE (64 * 1024)

typedef struct metric_file {
    /* Differs if another metric's file has the name of its directory. */
    char *key, *name;
    uni__text pending;
} metric_file;

typedef struct files {
    char *root, *experiment_id, *run_dir; /* run_dir: ROOT/EXPERIMENT_ID/RUN_ID */
    char run_id[33];
    char *run_name, *user;
    int64_t start_ms;
    metric_file *metrics;
    size_t count, capacity, guess, pending;
} files;

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for the MLflow run");
}

/* ---- meta.yaml ---- */

static void add_yaml(uni__text *out, const char *key, const char *text)
{
    uni__text_add_format(out, "%s: ", key);
    uni__text_add_json_string(out, text, strlen(text));
    uni__text_add(out, "\n", 1);
}

static void add_uri(uni__text *out, const char *key, const char *path, const char *below)
{
    uni__text uri = { 0 };
    uni__text_add_string(&uri, "file://");
    uni__percent_encode(&uri, path, true);
    uni__text_add_string(&uri, below);
    if (!uri.failed)
        add_yaml(out, key, uri.data);
    out->failed = out->failed || uri.failed;
    uni__text_free(&uri);
}

static int write_yaml(const char *dir, uni__text *text, uni_error *err)
{
    char *path = uni__path_join(dir, "meta.yaml", NULL);
    int status = path == NULL || text->failed
                     ? no_memory(err)
                     : uni__write_file(path, text->data, text->size, false, err);
    free(path);
    uni__text_free(text);
    return status;
}

static int write_run(files *f, int status, int64_t end_ms, uni_error *err)
{
    uni__text text = { 0 };
    add_uri(&text, "artifact_uri", f->run_dir, "/artifacts");
    if (end_ms > 0)
        uni__text_add_format(&text, "end_time: %lld\n", (long long)end_ms);
    else
        uni__text_add_string(&text, "end_time: null\n");
    add_yaml(&text, "entry_point_name", "");
    add_yaml(&text, "experiment_id", f->experiment_id);
    add_yaml(&text, "lifecycle_stage", "active");
    add_yaml(&text, "run_id", f->run_id);
    add_yaml(&text, "run_name", f->run_name);
    add_yaml(&text, "run_uuid", f->run_id);
    add_yaml(&text, "source_name", "");
    uni__text_add_string(&text, "source_type: 4\n");
    add_yaml(&text, "source_version", "");
    uni__text_add_format(&text, "start_time: %lld\nstatus: %d\ntags: []\n", (long long)f->start_ms,
                         status);
    add_yaml(&text, "user_id", f->user);
    return write_yaml(f->run_dir, &text, err);
}

/* ---- experiments ---- */

/* True if this is the meta.yaml of an experiment with that name. MLflow writes names plain or in
 * single quotes, we use double quotes. */
static bool has_name(const char *yaml, const char *name)
{
    const char *line = yaml;
    uni__text ours = { 0 };
    uni__text_add_json_string(&ours, name, strlen(name));
    bool found = false;
    while (line != NULL && !found && !ours.failed) {
        if (strncmp(line, "name: ", 6) == 0) {
            const char *value = line + 6;
            size_t length = strcspn(value, "\r\n");
            if (length >= 2 && value[0] == '\'' && value[length - 1] == '\'') {
                value++;
                length -= 2;
            }
            found = (length == strlen(name) && memcmp(value, name, length) == 0) ||
                    (length == ours.size && memcmp(value, ours.data, length) == 0);
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    uni__text_free(&ours);
    return found;
}

/* The id (a directory name) of the experiment with that name; *out is NULL if there is none. */
static int find_experiment(const char *root, const char *name, char **out, uni_error *err)
{
    *out = NULL;
    DIR *dir = opendir(root);
    if (dir == NULL)
        return uni_error_set_errno(err, errno, "cannot read the MLflow directory %s", root);
    struct dirent *entry;
    while (*out == NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        char *yaml = NULL, *path = uni__path_join(root, entry->d_name, "meta.yaml", NULL);
        size_t size;
        uni_error ignored;
        if (path != NULL && uni__read_file(&yaml, &size, path, 1 << 20, &ignored) == 0 &&
            has_name(yaml, name))
            *out = strdup(entry->d_name);
        free(yaml);
        free(path);
    }
    closedir(dir);
    return 0;
}

static int make_experiment(files *f, const uni__mlflow_run *run, uni_error *err)
{
    uint64_t number = 0;
    char id[24];
    if (uni__random_system(&number, sizeof number) < 0)
        return uni_error_set(err, UNI_EIO, "the system gives no random numbers");
    snprintf(id, sizeof id, "%llu",
             (unsigned long long)(100000000000000000u + number % 900000000000000000u));
    f->experiment_id = strdup(id);
    char *dir = f->experiment_id == NULL ? NULL : uni__path_join(f->root, id, NULL);
    if (dir == NULL)
        return no_memory(err);
    int status = uni__make_dirs(dir, 0700, err);
    uni__text text = { 0 };
    if (status == 0) {
        add_uri(&text, "artifact_location", dir, "");
        uni__text_add_format(&text, "creation_time: %lld\n", (long long)run->start_ms);
        add_yaml(&text, "experiment_id", id);
        uni__text_add_format(&text, "last_update_time: %lld\n", (long long)run->start_ms);
        add_yaml(&text, "lifecycle_stage", "active");
        add_yaml(&text, "name", run->experiment_name);
        status = write_yaml(dir, &text, err);
    }
    free(dir);
    return status;
}

static int choose_experiment(files *f, const uni__mlflow_run *run, uni_error *err)
{
    if (run->experiment_id == NULL) {
        UNI_TRY(find_experiment(f->root, run->experiment_name, &f->experiment_id, err));
        return f->experiment_id != NULL ? 0 : make_experiment(f, run, err);
    }
    const char *id = run->experiment_id;
    if (id[0] == '.' || strchr(id, '/') != NULL)
        return uni_error_set(err, UNI_EINVAL, "\"%s\" is not the id of an MLflow experiment", id);
    char *path = uni__path_join(f->root, id, "meta.yaml", NULL);
    f->experiment_id = strdup(id);
    int status = path == NULL || f->experiment_id == NULL ? no_memory(err) : 0;
    if (status == 0 && !uni__path_exists(path))
        status = uni_error_set(err, UNI_ENOTFOUND,
                               "there is no MLflow experiment with the id %s in %s", id, f->root);
    free(path);
    return status;
}

/* ---- params, tags, metrics ---- */

/* FOLDER/KEY below the run; creates the directories for slashes in the key. */
static int path_of(files *f, const char *folder, const char *key, char **out, uni_error *err)
{
    *out = uni__path_join(f->run_dir, folder, key, NULL);
    if (*out == NULL)
        return no_memory(err);
    char *slash = strchr(key, '/') == NULL ? NULL : strrchr(*out, '/');
    if (slash == NULL)
        return 0;
    *slash = 0;
    int status = uni__make_dirs(*out, 0700, err);
    *slash = '/';
    if (status < 0) {
        free(*out);
        *out = NULL;
    }
    return status;
}

static int write_pairs(files *f, const char *folder, const uni__mlflow_pairs *pairs, uni_error *err)
{
    for (size_t i = 0; i < pairs->count; i++) {
        char *path = NULL;
        UNI_TRY(path_of(f, folder, pairs->items[i].key, &path, err));
        int status =
            uni__write_file(path, pairs->items[i].value, strlen(pairs->items[i].value), false, err);
        free(path);
        UNI_TRY(status);
    }
    return 0;
}

static int flush_metric(files *f, metric_file *metric, uni_error *err)
{
    char *path = NULL;
    UNI_TRY(path_of(f, "metrics", metric->name, &path, err));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
    int status = fd < 0 ? uni_error_set_errno(err, errno, "cannot write the metric %s", path)
                        : uni__write_all(fd, metric->pending.data, metric->pending.size, path, err);
    if (fd >= 0)
        close(fd);
    free(path);
    if (status == 0)
        uni__text_clear(&metric->pending);
    return status;
}

static int files_flush(void *self, bool now, uni_error *err)
{
    files *f = self;
    for (size_t i = 0; i < f->count && f->pending > 0; i++)
        if (f->metrics[i].pending.size > 0)
            UNI_TRY(flush_metric(f, &f->metrics[i], err));
    f->pending = 0;
    return 0;
}

static bool is_folder_of(const char *folder, const char *key)
{
    size_t length = strlen(folder);
    return strncmp(folder, key, length) == 0 && key[length] == '/';
}

/* "loss" and "loss/val" cannot both be files: the later one gets '_' instead of '/', or at its
 * end. */
static char *file_name(const files *f, const char *key)
{
    for (size_t i = 0; i < f->count; i++) {
        if (is_folder_of(f->metrics[i].name, key)) {
            char *name = strdup(key);
            for (char *c = name; c != NULL && *c != 0; c++)
                *c = *c == '/' ? '_' : *c;
            return name;
        }
        if (is_folder_of(key, f->metrics[i].name)) {
            char *name = NULL;
            return asprintf(&name, "%s_", key) < 0 ? NULL : name;
        }
    }
    return strdup(key);
}

static int find_metric(files *f, const char *key, metric_file **out, uni_error *err)
{
    size_t i = f->guess;
    if (i >= f->count || strcmp(f->metrics[i].key, key) != 0)
        for (i = 0; i < f->count && strcmp(f->metrics[i].key, key) != 0;)
            i++;
    if (i == f->count) {
        metric_file *grown = uni__grown(f->metrics, f->count, &f->capacity, sizeof *grown);
        if (!grown)
            return no_memory(err);
        f->metrics = grown;
        char *copy = strdup(key), *name = file_name(f, key);
        if (copy == NULL || name == NULL) {
            free(copy);
            free(name);
            return no_memory(err);
        }
        f->metrics[f->count++] = (metric_file){ .key = copy, .name = name };
    }
    f->guess = (i + 1) % f->count;
    *out = &f->metrics[i];
    return 0;
}

static int files_metric(void *self, const char *key, double value, int64_t time_ms, int64_t step,
                        uni_error *err)
{
    files *f = self;
    metric_file *metric = NULL;
    UNI_TRY(find_metric(f, key, &metric, err));
    uni__text *out = &metric->pending;
    size_t before = out->size;
    uni__text_add_int(out, time_ms);
    uni__text_add(out, " ", 1);
    if (isnan(value))
        uni__text_add(out, "nan", 3);
    else if (isinf(value))
        uni__text_add_string(out, value < 0 ? "-inf" : "inf");
    else
        uni__text_add_double(out, value);
    uni__text_add(out, " ", 1);
    uni__text_add_int(out, step);
    uni__text_add(out, "\n", 1);
    if (out->failed)
        return no_memory(err);
    f->pending += out->size - before;
    return f->pending >= FLUSH_SIZE ? files_flush(f, true, err) : 0;
}

/* ---- the run ---- */

static int make_run(files *f, const uni__mlflow_run *run, uni_error *err)
{
    static const char *const folders[] = { "metrics", "params", "tags", "artifacts" };
    uint8_t bytes[16];
    if (uni__random_system(bytes, sizeof bytes) < 0)
        return uni_error_set(err, UNI_EIO, "the system gives no random numbers");
    for (int i = 0; i < 16; i++)
        snprintf(f->run_id + 2 * i, 3, "%02x", bytes[i]);
    f->run_dir = uni__path_join(f->root, f->experiment_id, f->run_id, NULL);
    f->run_name = strdup(run->run_name);
    f->user = strdup(run->user);
    f->start_ms = run->start_ms;
    if (f->run_dir == NULL || f->run_name == NULL || f->user == NULL)
        return no_memory(err);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char *path = uni__path_join(f->run_dir, folders[i], NULL);
        int status = path == NULL ? no_memory(err) : uni__make_dirs(path, 0700, err);
        free(path);
        UNI_TRY(status);
    }
    return write_run(f, 1, 0, err);
}

static int write_readme(files *f, uni_error *err)
{
    uni__text text = { 0 };
    char *path = uni__path_join(f->root, "README.txt", NULL);
    uni__text_add_format(&text,
                         "This directory is in MLflow's file-store layout. To look at the runs:\n\n"
                         "    MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri '%s'\n\n"
                         "or move them into a database once, with `mlflow migrate-filestore`.\n",
                         f->root);
    int status = path == NULL || text.failed
                     ? no_memory(err)
                     : uni__write_file(path, text.data, text.size, false, err);
    free(path);
    uni__text_free(&text);
    return status;
}

static int files_start(void *self, const uni__mlflow_run *run, uni_error *err)
{
    files *f = self;
    UNI_TRY(uni__make_dirs(f->root, 0700, err));
    UNI_TRY(choose_experiment(f, run, err));
    UNI_TRY(make_run(f, run, err));
    UNI_TRY(write_pairs(f, "params", &run->params, err));
    UNI_TRY(write_pairs(f, "tags", &run->tags, err));
    UNI_TRY(write_readme(f, err));
    uni__info("MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri '%s' shows this run",
              f->root);
    return 0;
}

static int files_finish(void *self, uni__mlflow_status outcome, int64_t end_ms,
                        const char *artifacts, uni_error *err)
{
    files *f = self;
    int status = 0;
    if (artifacts != NULL) {
        char *to = uni__path_join(f->run_dir, "artifacts", "checkpoints", NULL);
        status = to == NULL ? no_memory(err) : uni__copy_tree(artifacts, to, err);
        free(to);
    }
    uni_error second = { 0 };
    int written = write_run(f, (int)outcome, end_ms, status < 0 ? &second : err);
    return status < 0 ? status : written;
}

static void files_free(void *self)
{
    files *f = self;
    for (size_t i = 0; i < f->count; i++) {
        free(f->metrics[i].key);
        free(f->metrics[i].name);
        uni__text_free(&f->metrics[i].pending);
    }
    free(f->metrics);
    free(f->root);
    free(f->experiment_id);
    free(f->run_dir);
    free(f->run_name);
    free(f->user);
    free(f);
}

static const char *files_run_id(const void *self)
{
    return ((const files *)self)->run_id;
}

static const uni__mlflow_store files_store = {
    .name = "files",
    .start = files_start,
    .metric = files_metric,
    .flush = files_flush,
    .finish = files_finish,
    .run_id = files_run_id,
    .free = files_free,
};

int uni__mlflow_files_new(void **out, const uni__mlflow_store **store, const char *root,
                          uni_error *err)
{
    *out = NULL;
    files *f = calloc(1, sizeof *f);
    if (f == NULL || (f->root = strdup(root)) == NULL) {
        free(f);
        return no_memory(err);
    }
    *out = f;
    *store = &files_store;
    return 0;
}
