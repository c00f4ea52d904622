/*
 * track.h - sinks: receivers of a run's reports.
 *
 * A sink is a small vtable. All sinks of a run are called on one thread of their own, in the order
 * given, fed from results.jsonl: a slow sink delays only the other sinks, never training. A sink
 * that fails is named in a warning and left out for the rest of the run; the run goes on.
 *
 * Thread rule: construct anywhere, before the run; after that the sink thread calls it.
 *
 * @example
 * uni_sink *csv = NULL;
 * uni_sink *board = NULL;
 * UNI_TRY(uni_sink_csv(&csv, NULL, err));
 * UNI_TRY(uni_sink_tensorboard(&board, NULL, err));
 * uni_run_options run = { .sinks = (uni_sink *[]){ csv, board }, .num_sinks = 2 };
 * (void)run;
 * uni_sink_free(csv);
 * uni_sink_free(board);
 * @end
 */
#ifndef UNISONO_TRACK_H
#define UNISONO_TRACK_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_run_info {
    const char *run_dir; /* absolute */
    const char *name; /* of the experiment */
    const char *run_id; /* "name/run_001" */
    int world_size;
    const uni_value *config; /* a dictionary, maybe empty */
    const char *function; /* the train function's or the program's name */
    double total_iterations; /* from config ("epochs" or "num_epochs"), else 0: for the ETA */
    double
        started; /* seconds since 1970; 0: now. With it the end is `seconds` of uni_finish_info later */
} uni_run_info;

/* One iteration of all ranks. by_rank[r] is NULL where rank r did not report it. */
typedef struct uni_reports {
    int64_t iteration; /* from 1 */
    int attempt; /* from 1 */
    int world_size;
    const uni_value *const *by_rank; /* dictionaries of metrics, autofilled ones included */
} uni_reports;

typedef enum uni_event_kind {
    UNI_EVENT_WORKERS, /* message: "4 workers started in 3 ms" */
    UNI_EVENT_WARNING, /* message */
    UNI_EVENT_FAILURE, /* message: the first cause */
    UNI_EVENT_RESTART, /* attempt: the new one; message: from which checkpoint */
    UNI_EVENT_CHECKPOINT, /* message: the path; iteration */
    UNI_EVENT_STOPPING /* message: why */
} uni_event_kind;

typedef struct uni_event {
    uni_event_kind kind;
    int attempt;
    int rank; /* -1: none */
    int64_t iteration;
    double wall_seconds;
    const char *message;
} uni_event;

typedef struct uni_finish_info {
    int code; /* 0, or the error's code */
    const char *message; /* "" or the error's sentence */
    int attempts;
    double seconds;
    const char *best_checkpoint; /* path or NULL */
    const char *latest_checkpoint; /* path or NULL */
} uni_finish_info;

/* Slots may be NULL. All are called on the sink thread and may block. `tick` is called about ten
 * times a second while the run is alive, for live displays. */
typedef struct uni_sink_vtable {
    const char *name;
    int (*start)(void *self, const uni_run_info *info, uni_error *err);
    int (*result)(void *self, const uni_reports *reports, uni_error *err);
    int (*event)(void *self, const uni_event *event, uni_error *err);
    void (*tick)(void *self);
    int (*finish)(void *self, const uni_finish_info *info, uni_error *err);
    void (*free)(void *self);
} uni_sink_vtable;

typedef struct uni_sink uni_sink;

/* A sink of one's own. The vtable is borrowed (usually static); self becomes the sink's and goes to its free, but stays the caller's on failure. Runs
 * borrow sinks: the caller frees them after the run. */
UNI_API UNI_MUST_USE int uni_sink_new(uni_sink **out, const uni_sink_vtable *vtable, void *self,
                                      uni_error *err);
UNI_API void uni_sink_free(uni_sink *sink);
UNI_API const char *uni_sink_name(const uni_sink *sink);

/* The user's own functions as a sink; each may be NULL. They cannot fail; a sink that can has
 * its own vtable. */
typedef struct uni_callback {
    void (*on_start)(void *context, const uni_run_info *info);
    void (*on_result)(void *context, const uni_reports *reports);
    void (*on_event)(void *context, const uni_event *event);
    void (*on_finish)(void *context, const uni_finish_info *info);
    void *context;
} uni_callback;
UNI_API UNI_MUST_USE int uni_sink_callback(uni_sink **out, const uni_callback *callback,
                                           uni_error *err);

/* A live bar on a terminal, one line per report in a pipe. */
typedef struct uni_sink_progress_options {
    int fd; /* 0: stderr */
    int style; /* 0: bar when fd is a terminal, otherwise lines; 1: bar; 2: lines */
    const char *const *metrics; /* names to show, then NULL; NULL: the first few numbers */
    bool quiet_lines; /* lines style: events only, no reports */
    /* Bar style: asked on every tick for whole lines of other output to print above the bar (the
     * workers' logs); the text is good until the next call. NULL: none. */
    const char *(*above)(void *context, size_t *size);
    void *above_context;
    bool no_summary; /* the end is not said in words: the caller does */
} uni_sink_progress_options;
UNI_API UNI_MUST_USE int uni_sink_progress(uni_sink **out, const uni_sink_progress_options *options,
                                           uni_error *err);

/* Every joined report as a JSON list of the ranks' dictionaries, indented by 4 as Ray's
 * PrintCallback does. fd 0: stdout. */
UNI_API UNI_MUST_USE int uni_sink_print(uni_sink **out, int fd, uni_error *err);

/* Ray Train v1's results.json: [[dicts of report 1], [...]]; a valid JSON document at every
 * moment, appended in place. */
typedef struct uni_sink_json_options {
    const char *dir; /* NULL: the run directory */
    const char *filename; /* NULL: results.json */
    const int *ranks; /* NULL: rank 0 */
    int num_ranks; /* -1: all ranks */
} uni_sink_json_options;
UNI_API UNI_MUST_USE int uni_sink_json(uni_sink **out, const uni_sink_json_options *options,
                                       uni_error *err);

/* progress.csv: rank 0's (or the given rank's) metrics, nested ones as a.b. New columns rewrite
 * the header, atomically. */
typedef struct uni_sink_csv_options {
    const char *dir; /* NULL: the run directory */
    const char *filename; /* NULL: progress.csv */
    int rank; /* default 0 */
} uni_sink_csv_options;
UNI_API UNI_MUST_USE int uni_sink_csv(uni_sink **out, const uni_sink_csv_options *options,
                                      uni_error *err);

/* events.out.tfevents.*: scalars, histograms of lists and arrays, hparams from the config. */
typedef struct uni_sink_tensorboard_options {
    const char *dir; /* NULL: the run directory */
    const char *prefix; /* of the tags; NULL: "" (the v1 Python door gives "ray/train/") */
    int rank; /* default 0 */
} uni_sink_tensorboard_options;
UNI_API UNI_MUST_USE int
uni_sink_tensorboard(uni_sink **out, const uni_sink_tensorboard_options *options, uni_error *err);

/* MLflow: an http(s) tracking server by its REST API, or files below the run directory in the
 * file-store layout. */
typedef struct uni_sink_mlflow_options {
    const char *tracking_uri; /* NULL: MLFLOW_TRACKING_URI, otherwise <run>/mlruns */
    const char *tracking_token; /* NULL: MLFLOW_TRACKING_TOKEN */
    const char *experiment_name; /* NULL: MLFLOW_EXPERIMENT_NAME, otherwise the run's name */
    const char *experiment_id; /* NULL: MLFLOW_EXPERIMENT_ID */
    const uni_value *tags; /* dictionary of strings or NULL; borrowed until the sink is freed */
    bool save_artifact; /* copy the checkpoints as artifacts (file store) or upload them (server) */
    int rank; /* default 0 */
} uni_sink_mlflow_options;
UNI_API UNI_MUST_USE int uni_sink_mlflow(uni_sink **out, const uni_sink_mlflow_options *options,
                                         uni_error *err);

/* Across the ranks of one iteration. Ranks without the metric or with NaN are left out; NaN when
 * all that have it have NaN, UNI_ENOTFOUND when none has it. */
typedef enum uni_aggregation {
    UNI_MEAN,
    UNI_WEIGHTED_MEAN,
    UNI_MIN,
    UNI_MAX,
    UNI_SUM
} uni_aggregation;
UNI_API UNI_MUST_USE int uni_reports_aggregate(const uni_reports *reports, const char *metric,
                                               uni_aggregation how, const char *weight_metric,
                                               double *out, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
