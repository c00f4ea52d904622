/*
 * tune.h - hyperparameter search: many trials of one train function, each with its own config, to
 * find the best.
 *
 * A space is a dictionary in which some values are domains ({"lr": {"$loguniform": [1e-4, 0.1]}});
 * the functions below create them, and spec files use the same form. Grid values are crossed with
 * each other, and the whole grid is repeated num_samples times with new random values. A trial is a
 * run of the unchanged train function: uni_session_report and checkpoints work as usual; when a
 * scheduler ends a trial, its report returns UNI_ECANCELED.
 *
 * Every decision is in STORAGE/NAME/tune_001/tune.jsonl before it takes effect. After kill -9 of
 * the tuner, uni_tuner_open continues there: searchers and schedulers are rebuilt from that file,
 * finished trials stay, and interrupted ones continue from their last complete checkpoint. A second
 * tuner gets UNI_EBUSY.
 *
 * Thread rule: one thread at a time per handle, and all callbacks run on it; uni_tuner_stop from
 * any thread.
 *
 * @example
 * uni_value *space = uni_value_dict();
 * if (uni_dict_take(space, "lr", uni_tune_loguniform(1e-4, 0.1)) < 0)
 *     return uni_error_set(err, UNI_ENOMEM, "cannot allocate the space: out of memory");
 * uni_tuner *tuner = NULL;
 * uni_tuner_options options = { .main = program, .function = "train", .space = space,
 *                               .num_samples = 20, .metric = "loss", .mode = "min" };
 * UNI_TRY(uni_tuner_new(&tuner, &options, err));
 * int64_t best = 0;
 * if (uni_tuner_fit(tuner, err) == 0 &&
 *     uni_tune_best(&best, uni_tuner_results(tuner), NULL, NULL, UNI_SCOPE_LAST, err) == 0)
 *     printf("trial %lld\n", (long long)best);
 * uni_tuner_free(tuner);
 * uni_value_free(space);
 * @end
 */
#ifndef UNISONO_TUNE_H
#define UNISONO_TUNE_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/checkpoint.h>
#include <unisono/trainer.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- spaces ---- */

/* {"$NAME": values[0]}, or with more than one value {"$NAME": [values...]}; NULL if out of memory.
 * The values are taken, also on failure. uni_tuner_new reports invalid domains (lower above upper,
 * log of a number that is not positive, no values). The functions below are the kinds there are. */
UNI_API uni_value *uni_tune_domain(const char *name, int count, uni_value **values);

/* values: a list. */
static inline uni_value *uni_tune_grid_search(uni_value *values)
{
    return uni_tune_domain("grid_search", 1, &values);
}
static inline uni_value *uni_tune_choice(uni_value *values)
{
    return uni_tune_domain("choice", 1, &values);
}
static inline uni_value *uni_tune_uniform(double lower, double upper)
{
    uni_value *numbers[2] = { uni_value_float(lower), uni_value_float(upper) };
    return uni_tune_domain("uniform", 2, numbers);
}
static inline uni_value *uni_tune_quniform(double lower, double upper, double q)
{
    uni_value *numbers[3] = { uni_value_float(lower), uni_value_float(upper), uni_value_float(q) };
    return uni_tune_domain("quniform", 3, numbers);
}
static inline uni_value *uni_tune_loguniform(double lower, double upper)
{
    uni_value *numbers[2] = { uni_value_float(lower), uni_value_float(upper) };
    return uni_tune_domain("loguniform", 2, numbers);
}
static inline uni_value *uni_tune_qloguniform(double lower, double upper, double q)
{
    uni_value *numbers[3] = { uni_value_float(lower), uni_value_float(upper), uni_value_float(q) };
    return uni_tune_domain("qloguniform", 3, numbers);
}
/* upper is not included. */
static inline uni_value *uni_tune_randint(int64_t lower, int64_t upper)
{
    uni_value *numbers[2] = { uni_value_int(lower), uni_value_int(upper) };
    return uni_tune_domain("randint", 2, numbers);
}
/* upper is included. */
static inline uni_value *uni_tune_qrandint(int64_t lower, int64_t upper, int64_t q)
{
    uni_value *numbers[3] = { uni_value_int(lower), uni_value_int(upper), uni_value_int(q) };
    return uni_tune_domain("qrandint", 3, numbers);
}
/* upper is not included. */
static inline uni_value *uni_tune_lograndint(int64_t lower, int64_t upper)
{
    uni_value *numbers[2] = { uni_value_int(lower), uni_value_int(upper) };
    return uni_tune_domain("lograndint", 2, numbers);
}
/* upper is included. */
static inline uni_value *uni_tune_qlograndint(int64_t lower, int64_t upper, int64_t q)
{
    uni_value *numbers[3] = { uni_value_int(lower), uni_value_int(upper), uni_value_int(q) };
    return uni_tune_domain("qlograndint", 3, numbers);
}
static inline uni_value *uni_tune_normal(double mean, double deviation)
{
    uni_value *numbers[2] = { uni_value_float(mean), uni_value_float(deviation) };
    return uni_tune_domain("normal", 2, numbers);
}
static inline uni_value *uni_tune_qnormal(double mean, double deviation, double q)
{
    uni_value *numbers[3] = { uni_value_float(mean), uni_value_float(deviation),
                              uni_value_float(q) };
    return uni_tune_domain("qnormal", 3, numbers);
}
/* The value that the named sampler returns for the rest of the config. */
static inline uni_value *uni_tune_sample_from(const char *name)
{
    uni_value *text = uni_value_string(name);
    return uni_tune_domain("sample_from", 1, &text);
}

typedef struct uni_tune_sampler {
    const char *name; /* NULL ends the list */
    /* config has all other values, including those of samplers before this one by path. The
     * result must depend only on the config. */
    int (*call)(void *context, const uni_value *config, uni_value **out, uni_error *err);
    void *context;
} uni_tune_sampler;

/* ---- a searcher of your own ---- */

typedef struct uni_tune_searcher {
    const char *name;
    void *self;
    /* 1 and *config; 0: not now (ask again after a result); UNI_EEND: no more configs. */
    int (*ask)(void *self, int64_t trial, uni_value **config, uni_error *err);
    /* The trial ended. value is its last metric, NaN if it failed or has none. */
    int (*tell)(void *self, int64_t trial, const uni_value *config, double value, uni_error *err);
    /* On resume: an earlier tuner asked for this trial; tell follows if it had ended. May be
     * NULL. */
    int (*restore)(void *self, int64_t trial, const uni_value *config, uni_error *err);
} uni_tune_searcher;

/* ---- the tuner ---- */

#define UNI_SAMPLES_UNLIMITED (-1) /* num_samples: until the time budget or a stop */

typedef struct uni_tuner uni_tuner;
typedef struct uni_tune_results uni_tune_results;

typedef enum uni_trial_status {
    UNI_TRIAL_PENDING,
    UNI_TRIAL_RUNNING,
    UNI_TRIAL_PAUSED,
    UNI_TRIAL_TERMINATED, /* returned, or ended by a scheduler or a stop criterion */
    UNI_TRIAL_ERROR,
    /* Only in opened results: it was running when its tuner died; a resumed tuner continues it. */
    UNI_TRIAL_INTERRUPTED
} uni_trial_status;
#define UNI_TRIAL_STATUSES 6

typedef struct uni_tuner_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    /* what a trial runs */
    uni_program *main; /* from uni_main; .function needs this or worker_program */
    const char *const *worker_program; /* NULL-terminated, as in uni_trainer_options */
    const char *function;
    /* Or argv of any program, a list of strings; "{lr}" is replaced by that value of the config */
    const uni_value *program;
    const uni_value *attachment; /* as in uni_run_options */
    /* Per trial; default 1. With more, each trial is an ordinary run of a trainer */
    int num_workers;
    const char *backend; /* as in uni_trainer_options */
    /* NULL-terminated, as in uni_trainer_options. Values whose names look like secrets (KEY,
     * TOKEN, SECRET, PASSWORD, CREDENTIAL) are not written to the journal: uni_tuner_open takes
     * them from its own environment. */
    const char *const *environment;
    const char *working_directory;

    /* what is searched */
    const uni_value *space; /* NULL: no parameters, num_samples equal trials */
    const uni_tune_sampler *samplers;
    int num_samples; /* default 1; with a grid: how often it is repeated */
    const char *metric, *mode; /* a number in the reports (nested: "a/b"), and "min" or "max" */
    const uni_value *searcher; /* {"type": "random" (default) or "tpe", options...} */
    const uni_tune_searcher *own_searcher; /* instead */
    /* {"type": "fifo" (default), "asha", "median", "hyperband", "pbt", options...} */
    const uni_value *scheduler;
    /* {"training_iteration": 10, "accuracy": 0.98, "loss": {"below": 0.1}, "plateau": {...}} */
    const uni_value *stop;
    /* Default: from the system, and stored with the experiment. With has_seed, 0 is a valid
     * seed. */
    uint64_t seed;
    bool has_seed;

    /* how it runs */
    int max_concurrent; /* default: as many as the resources allow */
    double cpus_per_trial; /* default 1 */
    /* Bytes that each trial reserves: no more trials run at once than fit. Not enforced as a
     * limit. Default: none */
    double memory_per_trial;
    int gpus_per_trial; /* default 0 */
    double time_budget; /* seconds for the whole experiment; default none */
    int max_failures; /* restarts of one trial; default 0, UNI_UNLIMITED */
    bool fail_fast; /* the first failed trial ends the experiment */
    bool fresh_workers; /* a new process for every trial */
    const uni_checkpoint_policy *policy;
    /* For a trial that is being ended, and for workers after the last trial (then at
     * least 2); default 10; UNI_GRACE_NONE: kill it at once */
    double grace_seconds;
    bool handle_signals; /* SIGINT and SIGTERM stop the tuner; default off */

    /* where */
    const char *name; /* default tune_YYYY-MM-DD_HH-MM-SS */
    const char *storage_path;
    /* Written at the end, in addition to trials.csv: a list of "tensorboard" (DIR/tensorboard),
     * "mlflow" (a run for the experiment with the trials as its children), or {"type": "mlflow",
     * "tracking_uri": ...} */
    const uni_value *sinks;

    /* called between two steps, at most ten times a second and at the end; may be NULL */
    void (*progress)(void *context, const uni_tune_results *results);
    void *context;
} uni_tuner_options;

/* Checks everything that can be known now and creates the experiment's directory and journal.
 * Options are copied, except for main, samplers, and what `self` and `context` point to: these
 * must outlive the tuner. */
UNI_API UNI_MUST_USE int uni_tuner_new(uni_tuner **out, const uni_tuner_options *options,
                                       uni_error *err);
/* Continues an experiment. dir: a path, or NAME in options->storage_path (its newest). Only
 * options that a file cannot hold are used: main, worker_program, attachment, samplers,
 * own_searcher, handle_signals and progress. resume: 0, or some of the flags below. */
UNI_API UNI_MUST_USE int uni_tuner_open(uni_tuner **out, const char *dir,
                                        const uni_tuner_options *options, unsigned resume,
                                        uni_error *err);
/* Retry failed trials once, from their last complete checkpoint. */
#define UNI_RESUME_FAILED 1u
/* Restart failed trials from the beginning. Not together with UNI_RESUME_FAILED. */
#define UNI_RESTART_FAILED 2u
/* Do not continue interrupted and pending trials: they count as terminated with what they
 * reported. */
#define UNI_LEAVE_UNFINISHED 4u
/* Runs to the end. Failed trials do not fail it, unless fail_fast is set or all of them failed;
 * UNI_EPREEMPTED after a stop. */
UNI_API UNI_MUST_USE int uni_tuner_fit(uni_tuner *tuner, uni_error *err);
/* The same in steps: 1 while there is more to do, 0 at the end. Returns within `seconds`. */
UNI_API UNI_MUST_USE int uni_tuner_step(uni_tuner *tuner, double seconds, uni_error *err);
UNI_API void uni_tuner_stop(
    uni_tuner *tuner); /* any thread: running trials are interrupted and can be resumed */
UNI_API void uni_tuner_free(uni_tuner *tuner);
UNI_API const uni_tune_results *
uni_tuner_results(const uni_tuner *tuner); /* borrowed; changes while the tuner runs */

/* ---- results, of a tuner or read from its directory ---- */

typedef enum uni_scope { UNI_SCOPE_LAST, UNI_SCOPE_ALL, UNI_SCOPE_AVG } uni_scope;

/* Reads without a lock, also while a tuner runs. */
UNI_API UNI_MUST_USE int uni_tune_results_open(uni_tune_results **out, const char *dir,
                                               const char *storage_path, uni_error *err);
UNI_API void
uni_tune_results_free(uni_tune_results *results); /* only for results that were opened */
/* Borrowed; changes while a tuner runs. */
typedef struct uni_tune_info {
    const char *dir;
    const uni_value *spec; /* the experiment's options: the fields of the spec */
    bool is_finished;
    int64_t num_expected; /* trials; UNI_UNKNOWN */
    int64_t num_trials; /* so far */
} uni_tune_info;
UNI_API const uni_tune_info *uni_tune_info_of(const uni_tune_results *results);
UNI_API int64_t uni_tune_count_status(const uni_tune_results *results, uni_trial_status status);

/* One trial; borrowed, and changes while a tuner runs. */
typedef struct uni_trial_info {
    uni_trial_status status;
    const uni_value *config;
    const uni_value *metrics; /* its last report; NULL: none */
    int64_t iterations;
    double seconds;
    int attempts;
    const char *why; /* how it ended, in words */
    const char *error; /* NULL: none */
    /* The *result of a train function that failed for good; NULL if it set none, and in results
     * read from a directory */
    const uni_value *failure;
} uni_trial_info;
/* trial: 0 to num_trials - 1; all zero for any other. */
UNI_API const uni_trial_info *uni_trial_info_of(const uni_tune_results *results, int64_t trial);
/* "PENDING", as Ray prints it */
UNI_API const char *uni_trial_status_name(uni_trial_status status);
/* Paths; the caller frees the strings. A trial without output has no directory yet. NULL: no
 * checkpoint. */
UNI_API char *uni_trial_dir(const uni_tune_results *results, int64_t trial);
UNI_API char *uni_trial_checkpoint(const uni_tune_results *results, int64_t trial, bool best);
/* One metric of one trial over all its reports; NaN when it has none. ALL: the best by mode. */
UNI_API double uni_trial_value(const uni_tune_results *results, int64_t trial, const char *metric,
                               const char *mode, uni_scope scope);

/* The best trial. metric and mode NULL: the experiment's. UNI_EINVAL if there is no metric;
 * UNI_ENOTFOUND if no trial reported it (the message names what was reported) or every value is
 * NaN or infinite. */
UNI_API UNI_MUST_USE int uni_tune_best(int64_t *trial, const uni_tune_results *results,
                                       const char *metric, const char *mode, uni_scope scope,
                                       uni_error *err);
/* The same as CSV text; the caller frees it. */
UNI_API UNI_MUST_USE int uni_tune_csv(char **out, const uni_tune_results *results, bool times,
                                      uni_error *err);
/* Every report of every trial that counts, in journal order. */
typedef int (*uni_tune_visit)(void *context, int64_t trial, int64_t iteration,
                              const uni_value *metrics, uni_error *err);
UNI_API UNI_MUST_USE int uni_tune_reports(const uni_tune_results *results, uni_tune_visit visit,
                                          void *context, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
