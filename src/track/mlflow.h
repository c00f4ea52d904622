/*
 * mlflow.h - what the MLflow sink needs of its destination: a directory (mlflow_files.c) or a
 * server (mlflow_rest.c). For this module only. All calls on the sink thread.
 */
#ifndef UNISONO_TRACK_MLFLOW_H
#define UNISONO_TRACK_MLFLOW_H

#include <unisono/track.h>

#include "base/text.h"

typedef struct uni__mlflow_pair {
    char *key, *value;
} uni__mlflow_pair;

typedef struct uni__mlflow_pairs {
    uni__mlflow_pair *items;
    size_t count, capacity;
} uni__mlflow_pairs;

typedef struct uni__mlflow_run {
    const char *experiment_name, *experiment_id; /* the id takes precedence if it is not NULL */
    const char *run_name, *user;
    int64_t start_ms; /* since 1970 */
    uni__mlflow_pairs params, tags;
} uni__mlflow_run;

typedef enum uni__mlflow_status {
    UNI__MLFLOW_FINISHED = 3,
    UNI__MLFLOW_FAILED = 4,
    UNI__MLFLOW_KILLED = 5
} uni__mlflow_status;

typedef struct uni__mlflow_store {
    const char *name;
    /* Finds or creates the experiment, and creates the run with its params and tags. */
    int (*start)(void *self, const uni__mlflow_run *run, uni_error *err);
    int (*metric)(void *self, const char *key, double value, int64_t time_ms, int64_t step,
                  uni_error *err);
    /* now: regardless of the time since the last flush. */
    int (*flush)(void *self, bool now, uni_error *err);
    /* Ends the run; artifacts: a directory to store as "checkpoints", or NULL. */
    int (*finish)(void *self, uni__mlflow_status status, int64_t end_ms, const char *artifacts,
                  uni_error *err);
    const char *(*run_id)(const void *self); /* after start */
    void (*free)(void *self);
} uni__mlflow_store;

int uni__mlflow_files_new(void **out, const uni__mlflow_store **store, const char *root,
                          uni_error *err) UNI_MUST_USE;
int uni__mlflow_rest_new(void **out, const uni__mlflow_store **store, const char *uri,
                         const char *token, uni_error *err) UNI_MUST_USE;

/* Percent-encodes all except unreserved characters (and '/' if keep_slash). */
void uni__percent_encode(uni__text *out, const char *text, bool keep_slash);

#endif
