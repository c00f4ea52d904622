/*
 * tune.h - hyperparameter search: many trials of one train function, each with its own config, and the best of them.
 *
 * A space is a dictionary in which some values are marked ({"lr": {"$loguniform": [1e-4, 0.1]}}); the functions below make the marks, and a spec
 * file has the same ones. Grid values are crossed with each other, and the whole is repeated num_samples times with new random values. A trial is a run
 * of the unchanged train function: uni_session_report and checkpoints work as ever; when a scheduler ends a trial, its report returns UNI_ECANCELED.
 *
 * Everything that is decided is in STORAGE/NAME/tune_001/tune.jsonl before it is acted on. After kill -9 of the tuner uni_tuner_open goes on there: searchers and schedulers are
 * rebuilt from that file, finished trials stay, interrupted ones continue from their last complete checkpoint. A second tuner is refused with UNI_EBUSY.
 *
 * Thread rule: one thread at a time per handle, and all callbacks run on it; uni_tuner_stop from any thread.
 *
 * @example
 * uni_value *space = uni_value_dict();
 * if (uni_dict_take(space, "lr", uni_tune_loguniform(1e-4, 0.1)) < 0)
 *     return uni_error_set(err, UNI_ENOMEM, "no memory for the space");
 * uni_tuner *tuner = NULL;
 * UNI_TRY(uni_tuner_new(&tuner, &(uni_tuner_options){ .main = program, .function = "train", .space = space,
 *                                                     .num_samples = 20, .metric = "loss", .mode = "min" }, err));
 * if (uni_tuner_fit(tuner, err) == 0 && uni_tune_best(uni_tuner_results(tuner), NULL, NULL, UNI_SCOPE_LAST, &(int64_t){0}, err) == 0)
 *     puts("found one");
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

/* Each gives {"$NAME": [...]}, NULL without memory; lists are taken. What is wrong in one (lower above upper, log of a number that is not positive, no values) is said by
 * uni_tune_space_check and by uni_tuner_new. */
UNI_API uni_value *uni_tune_grid_search(uni_value *values);
UNI_API uni_value *uni_tune_choice(uni_value *values);
UNI_API uni_value *uni_tune_uniform(double lower, double upper);
UNI_API uni_value *uni_tune_quniform(double lower, double upper, double q);
UNI_API uni_value *uni_tune_loguniform(double lower, double upper);
UNI_API uni_value *uni_tune_qloguniform(double lower, double upper, double q);
UNI_API uni_value *uni_tune_randint(int64_t lower, int64_t upper); /* upper is not included */
UNI_API uni_value *uni_tune_qrandint(int64_t lower, int64_t upper,
                                     int64_t q); /* upper is included */
UNI_API uni_value *uni_tune_lograndint(int64_t lower, int64_t upper); /* upper is not included */
UNI_API uni_value *uni_tune_qlograndint(int64_t lower, int64_t upper,
                                        int64_t q); /* upper is included */
UNI_API uni_value *uni_tune_normal(double mean, double deviation);
UNI_API uni_value *uni_tune_qnormal(double mean, double deviation, double q);
/* The value that the sampler of that name gives for the rest of the config. */
UNI_API uni_value *uni_tune_sample_from(const char *name);

typedef struct uni_tune_sampler {
    const char *name; /* NULL ends the list */
    /* config: everything else is chosen already, and samplers before this one by path. Must depend on nothing but the config. */
    int (*call)(void *context, const uni_value *config, uni_value **out, uni_error *err);
    void *context;
} uni_tune_sampler;

/* UNI_EINVAL, with the path of the value and what is wrong with it. */
UNI_API UNI_MUST_USE int uni_tune_space_check(const uni_value *space, uni_error *err);
/* Combinations of the grid values; 1 when there are none. */
UNI_API UNI_MUST_USE int uni_tune_space_size(const uni_value *space, int64_t *out, uni_error *err);
/* The config of trial number `index` by grid and random search: a pure function of its arguments. */
UNI_API UNI_MUST_USE int uni_tune_space_config(const uni_value *space,
                                               const uni_tune_sampler *samplers, uint64_t seed,
                                               int64_t index, uni_value **out, uni_error *err);

/* ---- a searcher of your own ---- */

typedef struct uni_tune_searcher {
    const char *name;
    void *self;
    /* 1 and *config; 0: not now (ask again after a result); UNI_EEND: there is no more. */
    int (*ask)(void *self, int64_t trial, uni_value **config, uni_error *err);
    /* The trial ended. value is its last metric, NaN when it failed or has none. */
    int (*tell)(void *self, int64_t trial, const uni_value *config, double value, uni_error *err);
    /* Resuming: the trial was asked for by an earlier tuner; tell follows when it had ended. May be NULL. */
    int (*restore)(void *self, int64_t trial, const uni_value *config, uni_error *err);
} uni_tune_searcher;

/* ---- the tuner ---- */

#define UNI_SAMPLES_UNLIMITED (-1) /* num_samples: until the time budget or a stop */
#define UNI_GRACE_NONE 1e-9 /* grace_seconds */

typedef struct uni_tuner uni_tuner;
typedef struct uni_tune_results uni_tune_results;

typedef enum uni_trial_status {
    UNI_TRIAL_PENDING,
    UNI_TRIAL_RUNNING,
    UNI_TRIAL_PAUSED,
    UNI_TRIAL_TERMINATED, /* returned, or was ended by a scheduler or a stop criterion */
    UNI_TRIAL_ERROR,
    /* Only in results that were opened: it was running when its tuner died, and a resumed tuner continues it. */
    UNI_TRIAL_INTERRUPTED
} uni_trial_status;
#define UNI_TRIAL_STATUSES 6

typedef struct uni_tuner_options {
    /* what a trial runs */
    uni_program *main; /* from uni_main; .function needs this or worker_program */
    const char *const *worker_program;
    const char *function;
    const uni_value *
        program; /* or argv of any program, a list of strings; "{lr}" in one is replaced by that value of the config */
    const uni_value *attachment; /* for the workers' eyes only, as in uni_run_options */
    int num_workers; /* of one trial; default 1. More: each trial is an ordinary trainer's run */
    const char *backend; /* as in uni_trainer_options */
    /* As in uni_trainer_options. Values whose names look like secrets (KEY, TOKEN, SECRET, PASSWORD,
     * CREDENTIAL) are not in the journal: uni_tuner_open takes them from its environment. */
    const char *const *environment;
    const char *working_directory;

    /* what is searched */
    const uni_value *space; /* NULL: no parameters, num_samples equal trials */
    const uni_tune_sampler *samplers;
    int num_samples; /* default 1; with the grid: how often it is repeated */
    const char *metric, *mode; /* a report's number (nested: "a/b"), and "min" or "max" */
    const uni_value *searcher; /* {"type": "random" (default) or "tpe", options...} */
    const uni_tune_searcher *own_searcher; /* instead; borrowed while the tuner lives */
    const uni_value *
        scheduler; /* {"type": "fifo" (default), "asha", "median", "hyperband", "pbt", options...} */
    const uni_value *
        stop; /* {"training_iteration": 10, "accuracy": 0.98, "loss": {"below": 0.1}, "plateau": {...}} */
    /* Default: from the system, and kept with the experiment. has_seed: 0 is a seed, too. */
    uint64_t seed;
    bool has_seed;

    /* how it runs */
    int max_concurrent; /* default: as many as the resources allow */
    double cpus_per_trial; /* default 1 */
    double
        memory_per_trial; /* bytes that each trial reserves: no more trials run at once than fit. It limits nothing. Default: none */
    int gpus_per_trial; /* default 0 */
    double time_budget; /* seconds for the whole; default none */
    int max_failures; /* restarts of one trial; default 0, UNI_UNLIMITED */
    bool fail_fast; /* the first failed trial ends the whole */
    bool fresh_workers; /* a new process for every trial */
    const uni_checkpoint_policy *policy;
    double
        grace_seconds; /* for a trial that was ended; default 10, UNI_GRACE_NONE: killed at once */
    bool handle_signals; /* SIGINT and SIGTERM stop the tuner; default off */

    /* where */
    const char *name; /* default tune_YYYY-MM-DD_HH-MM-SS */
    const char *storage_path;
    const uni_value *
        sinks; /* told at the end, besides trials.csv: a list of "tensorboard" (DIR/tensorboard), "mlflow" (a run for the whole, its children the trials), or {"type": "mlflow", "tracking_uri": ...} */

    /* called between two steps, at most ten times a second and at the end; may be NULL */
    void (*progress)(void *context, const uni_tune_results *results);
    void *context;
} uni_tuner_options;

/* Checks everything that can be known now and makes the experiment's directory and journal. What options point to must live as long as the tuner. */
UNI_API UNI_MUST_USE int uni_tuner_new(uni_tuner **out, const uni_tuner_options *options,
                                       uni_error *err);
/* Goes on with an experiment. dir: a path, or NAME below options->storage_path (its newest). Of the options only what a file cannot hold is used: main, worker_program,
 * attachment, samplers, own_searcher, handle_signals and progress. resume: 0, or some of the flags below. */
UNI_API UNI_MUST_USE int uni_tuner_open(uni_tuner **out, const char *dir,
                                        const uni_tuner_options *options, unsigned resume,
                                        uni_error *err);
/* Failed trials get one more chance, from their last complete checkpoint. */
#define UNI_RESUME_FAILED 1u
/* Failed trials begin again, without a checkpoint. Not together with UNI_RESUME_FAILED. */
#define UNI_RESTART_FAILED 2u
/* Interrupted and pending trials are not continued: they count as terminated with what they reported. */
#define UNI_LEAVE_UNFINISHED 4u
/* Runs to the end. Failed trials do not fail it, unless fail_fast is set or all of them failed; UNI_EPREEMPTED after a stop. */
UNI_API UNI_MUST_USE int uni_tuner_fit(uni_tuner *tuner, uni_error *err);
/* The same in pieces: 1 while there is more to do, 0 at the end. Returns after `seconds` at the latest. */
UNI_API UNI_MUST_USE int uni_tuner_step(uni_tuner *tuner, double seconds, uni_error *err);
UNI_API void uni_tuner_stop(
    uni_tuner *tuner); /* any thread: running trials are interrupted and can be resumed */
UNI_API void uni_tuner_free(uni_tuner *tuner);
UNI_API const char *uni_tuner_dir(const uni_tuner *tuner);
UNI_API const uni_tune_results *
uni_tuner_results(const uni_tuner *tuner); /* borrowed, changes as it runs */

/* Options out of a dictionary (a spec file): the names of the fields above. The struct points into the dictionary. Unknown names are refused with the nearest. */
typedef struct uni_tune_spec uni_tune_spec;
UNI_API UNI_MUST_USE int uni_tune_spec_read(uni_tune_spec **out, const uni_value *dict,
                                            uni_error *err);
UNI_API uni_tuner_options *uni_tune_spec_options(uni_tune_spec *spec);
UNI_API void uni_tune_spec_free(uni_tune_spec *spec);

/* ---- results, of a tuner or read from its directory ---- */

typedef enum uni_scope { UNI_SCOPE_LAST, UNI_SCOPE_ALL, UNI_SCOPE_AVG } uni_scope;

/* Reads without a lock, while a tuner runs too. */
UNI_API UNI_MUST_USE int uni_tune_results_open(uni_tune_results **out, const char *dir,
                                               const char *storage_path, uni_error *err);
UNI_API void uni_tune_results_free(uni_tune_results *results); /* only of those that were opened */
UNI_API const char *uni_tune_results_dir(const uni_tune_results *results);
/* What was asked: the spec's fields. */
UNI_API const uni_value *uni_tune_results_spec(const uni_tune_results *results);
UNI_API bool uni_tune_results_finished(const uni_tune_results *results);
/* A tuner has it open now. */
UNI_API bool uni_tune_results_live(const uni_tune_results *results);
UNI_API int64_t
uni_tune_results_expected(const uni_tune_results *results); /* trials; -1: not known */
UNI_API int64_t uni_tune_count(const uni_tune_results *results);
UNI_API int64_t uni_tune_count_status(const uni_tune_results *results, uni_trial_status status);

/* trial: 0 to count - 1. */
UNI_API const char *
uni_trial_status_name(uni_trial_status status); /* "PENDING", as Ray prints it */
UNI_API uni_trial_status uni_trial_status_of(const uni_tune_results *results, int64_t trial);
UNI_API const uni_value *uni_trial_config(const uni_tune_results *results, int64_t trial);
UNI_API const uni_value *uni_trial_metrics(const uni_tune_results *results,
                                           int64_t trial); /* its last report; NULL when none */
UNI_API int64_t uni_trial_iterations(const uni_tune_results *results, int64_t trial);
UNI_API double uni_trial_seconds(const uni_tune_results *results, int64_t trial);
UNI_API int uni_trial_attempts(const uni_tune_results *results, int64_t trial);
UNI_API const char *uni_trial_error(const uni_tune_results *results,
                                    int64_t trial); /* NULL: none */
UNI_API const char *uni_trial_why(const uni_tune_results *results,
                                  int64_t trial); /* how it ended, in words */
/* Paths; the strings are the caller's to free(). A directory that has nothing yet does not exist. NULL: no checkpoint. */
UNI_API char *uni_trial_dir(const uni_tune_results *results, int64_t trial);
UNI_API char *uni_trial_checkpoint(const uni_tune_results *results, int64_t trial, bool best);
/* One metric of one trial over all its reports; NaN when it has none. ALL: the best by mode. */
UNI_API double uni_trial_value(const uni_tune_results *results, int64_t trial, const char *metric,
                               const char *mode, uni_scope scope);

/* A number of a report by its name, nested ones as "a/b"; NaN when it is not there. */
UNI_API double uni_tune_metric(const uni_value *metrics, const char *name);

/* The best trial. metric and mode NULL: the experiment's. UNI_EINVAL when there is none to go by; UNI_ENOTFOUND when no trial reported it (the sentence
 * names what was reported) or every value is NaN or infinite. */
UNI_API UNI_MUST_USE int uni_tune_best(const uni_tune_results *results, const char *metric,
                                       const char *mode, uni_scope scope, int64_t *trial,
                                       uni_error *err);
/* Names of all numbers that were reported, a list, in order of appearance; the caller frees it. */
UNI_API uni_value *uni_tune_metric_names(const uni_tune_results *results);
/* A list of dictionaries: trial, status, iterations, seconds, config/..., metrics. times=false leaves out what differs from run to run. */
UNI_API uni_value *uni_tune_table(const uni_tune_results *results, bool times);
/* The same as CSV text; the caller frees it. */
UNI_API UNI_MUST_USE int uni_tune_csv(const uni_tune_results *results, bool times, char **out,
                                      uni_error *err);
/* Every report of every trial that counts, in the order of the journal. */
typedef int (*uni_tune_visit)(void *context, int64_t trial, int64_t iteration,
                              const uni_value *metrics, uni_error *err);
UNI_API UNI_MUST_USE int uni_tune_reports(const uni_tune_results *results, uni_tune_visit visit,
                                          void *context, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
