/*
 * track.h - sinks: receivers of a run's reports.
 *
 * A sink is a class (a const table of functions) and data of its own. All sinks of a run are
 * called on one separate thread, in the order given, fed from results.jsonl: a slow sink delays
 * only the other sinks, never training. A sink that fails is named in a warning and skipped for the
 * rest of the run; the run continues.
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

typedef struct uni_start_info {
    const char *run_dir; /* absolute */
    const char *name; /* of the experiment */
    const char *run_id; /* "name/run_001" */
    int world_size;
    const uni_value *config; /* a dictionary, possibly empty */
    const char *function; /* the train function's or the program's name */
    double total_iterations; /* from config ("epochs" or "num_epochs"), else 0: for the ETA */
    /* Seconds since 1970; 0: now. The run then ended `seconds` (of uni_finish_info) later */
    double started;
    /* The number of workers changes: world_size is the most there can be, and ranks that do not
     * report are not missing. */
    bool resizes;
} uni_start_info;

/* One iteration of all ranks. by_rank[r] is NULL where rank r did not report it. */
typedef struct uni_reports {
    int64_t iteration; /* from 1 */
    int attempt; /* from 1 */
    int world_size;
    const uni_value *const
        *by_rank; /* by rank: dictionaries of metrics, autofilled ones included */
} uni_reports;

typedef enum uni_event_kind {
    UNI_EVENT_WORKERS, /* message: "4 workers started in 3 ms" */
    UNI_EVENT_WARNING, /* message */
    UNI_EVENT_FAILURE, /* message: the first cause */
    UNI_EVENT_RESTART, /* attempt: the new one; message: from which checkpoint */
    UNI_EVENT_CHECKPOINT, /* message: the path; iteration */
    UNI_EVENT_STOPPING, /* message: why */
    UNI_EVENT_REPLACED, /* message: by which process. The other ranks kept training */
    UNI_EVENT_RESIZED /* message: how many workers there are now, and which one came or went */
} uni_event_kind;

typedef struct uni_event {
    uni_event_kind kind;
    int attempt;
    int rank; /* UNI_RANK_NONE */
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
typedef struct uni_sink_class {
    const char *name;
    int (*start)(void *self, const uni_start_info *info, uni_error *err);
    int (*result)(void *self, const uni_reports *reports, uni_error *err);
    int (*event)(void *self, const uni_event *event, uni_error *err);
    void (*tick)(void *self);
    int (*finish)(void *self, const uni_finish_info *info, uni_error *err);
    void (*free)(void *self);
} uni_sink_class;

typedef struct uni_sink uni_sink;

/* A custom sink. The class is borrowed (usually static). The sink owns self and passes it to
 * free; on failure it stays the caller's. Runs borrow sinks: the caller frees them after the
 * run. */
UNI_API UNI_MUST_USE int uni_sink_new(uni_sink **out, const uni_sink_class *class_, void *self,
                                      uni_error *err);
UNI_API void uni_sink_free(uni_sink *sink);

/* Plain functions as a sink; each may be NULL. They cannot fail; a sink that can fail needs its
 * own class. */
typedef struct uni_sink_functions {
    void (*on_start)(void *context, const uni_start_info *info);
    void (*on_result)(void *context, const uni_reports *reports);
    void (*on_event)(void *context, const uni_event *event);
    void (*on_finish)(void *context, const uni_finish_info *info);
    void *context;
} uni_sink_functions;
UNI_API UNI_MUST_USE int uni_sink_from_functions(uni_sink **out, const uni_sink_functions *callback,
                                                 uni_error *err);

typedef enum uni_progress_style {
    UNI_PROGRESS_AUTO, /* a bar when fd is a terminal, otherwise lines */
    UNI_PROGRESS_BAR,
    UNI_PROGRESS_LINES
} uni_progress_style;
/* A live bar on a terminal, one line per report in a pipe. */
typedef struct uni_sink_progress_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int fd; /* 0: stderr */
    uni_progress_style style;
    const char *const *metrics; /* to show; NULL-terminated; NULL: the first few numbers */
    bool quiet_lines; /* lines style: events only, no reports */
    /* Bar style: called on every tick for complete lines of other output to print above the bar
     * (the workers' logs); the text is valid until the next call. NULL: none. */
    const char *(*above)(void *context, size_t *size);
    void *above_context;
    bool no_summary; /* do not print a summary at the end: the caller does */
} uni_sink_progress_options;
UNI_API UNI_MUST_USE int uni_sink_progress(uni_sink **out, const uni_sink_progress_options *options,
                                           uni_error *err);

/* Every joined report as a JSON list of the ranks' dictionaries, indented by 4 as Ray's
 * PrintCallback does. fd 0: stdout. */
UNI_API UNI_MUST_USE int uni_sink_print(uni_sink **out, int fd, uni_error *err);

#define UNI_RANKS_ALL (-1)
/* Ray Train v1's results.json: [[dicts of report 1], [...]]; always a valid JSON document,
 * appended in place. */
typedef struct uni_sink_json_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *dir; /* NULL: the run directory */
    const char *filename; /* NULL: results.json */
    const int *ranks; /* NULL: rank 0 */
    int num_ranks; /* UNI_RANKS_ALL */
} uni_sink_json_options;
UNI_API UNI_MUST_USE int uni_sink_json(uni_sink **out, const uni_sink_json_options *options,
                                       uni_error *err);

/* progress.csv: rank 0's (or the given rank's) metrics, nested ones as a.b. New columns rewrite
 * the header atomically. */
typedef struct uni_sink_csv_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *dir; /* NULL: the run directory */
    const char *filename; /* NULL: progress.csv */
    int rank; /* default 0 */
} uni_sink_csv_options;
UNI_API UNI_MUST_USE int uni_sink_csv(uni_sink **out, const uni_sink_csv_options *options,
                                      uni_error *err);

/* events.out.tfevents.*: scalars, histograms of lists and arrays, hparams from the config. */
typedef struct uni_sink_tensorboard_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *dir; /* NULL: the run directory */
    const char *prefix; /* of the tags; NULL: "" (Python's v1 trainer uses "ray/train/") */
    int rank; /* default 0 */
} uni_sink_tensorboard_options;
UNI_API UNI_MUST_USE int
uni_sink_tensorboard(uni_sink **out, const uni_sink_tensorboard_options *options, uni_error *err);

/* MLflow: an http(s) tracking server through its REST API, or files in the run directory in the
 * file-store layout. */
typedef struct uni_sink_mlflow_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *tracking_uri; /* NULL: MLFLOW_TRACKING_URI, otherwise <run>/mlruns */
    const char *tracking_token; /* NULL: MLFLOW_TRACKING_TOKEN */
    const char *experiment_name; /* NULL: MLFLOW_EXPERIMENT_NAME, otherwise the run's name */
    const char *experiment_id; /* NULL: MLFLOW_EXPERIMENT_ID */
    const uni_value *tags; /* dictionary of strings, or NULL */
    bool save_artifact; /* copy the checkpoints as artifacts (file store) or upload them (server) */
    int rank; /* default 0 */
} uni_sink_mlflow_options;
UNI_API UNI_MUST_USE int uni_sink_mlflow(uni_sink **out, const uni_sink_mlflow_options *options,
                                         uni_error *err);

/* Across the ranks of one iteration. Ranks without the metric or with NaN are skipped; NaN if it
 * is NaN on all ranks that have it, UNI_ENOTFOUND if none has it. */
typedef enum uni_aggregation {
    UNI_AGGREGATE_MEAN,
    UNI_AGGREGATE_WEIGHTED_MEAN,
    UNI_AGGREGATE_MIN,
    UNI_AGGREGATE_MAX,
    UNI_AGGREGATE_SUM
} uni_aggregation;
UNI_API UNI_MUST_USE int uni_reports_aggregate(double *out, const uni_reports *reports,
                                               const char *metric, uni_aggregation how,
                                               const char *weight_metric, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
