/*
 * trainer.h - a group of workers that train one model: start, run, watch, restart, collect.
 *
 * Two ways of use, one implementation. `uni_trainer_fit` starts workers, runs one function and shuts down (Ray Train 2.x).
 * `start / run / run / shutdown` keeps the workers warm between runs (v1). `run_iterator` hands every iteration of all
 * ranks to the caller. Each run has its own directory below STORAGE/NAME (docs/formats.md).
 *
 * A C program's workers are the program itself, started again: its main is `return uni_main(...)`, which in a worker runs
 * the asked-for function and elsewhere calls the driver. Other programs are run with .program.
 *
 * Thread rule: one thread at a time per trainer; uni_trainer_stop and uni_trainer_latest_run_dir from any thread. The library starts two threads
 * (controller, sinks) while workers exist; it takes no signals unless asked and never forks in the caller's process but to exec the agent.
 *
 * @example
 * uni_trainer *trainer = NULL;
 * uni_result *result = NULL;
 * UNI_TRY(uni_trainer_new(&trainer, &(uni_trainer_options){ .main = program, .num_workers = 4 }, err));
 * int outcome = uni_trainer_fit(trainer, &(uni_run_options){ .function = "train" }, &result, err);
 * if (outcome == 0)
 *     printf("results in %s\n", uni_result_run_dir(result));
 * uni_result_free(result);
 * uni_trainer_free(trainer);
 * @end
 */
#ifndef UNISONO_TRAINER_H
#define UNISONO_TRAINER_H

#include <stdbool.h>
#include <unisono/checkpoint.h>
#include <unisono/session.h>
#include <unisono/track.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- main ---- */

/* Runs in every worker. *result (may stay NULL) is handed to the driver by rank. A negative return with err set is the error of the
 * train function. */
typedef int (*uni_train_function)(uni_session *session, uni_value **result, uni_error *err);

typedef struct uni_function {
    const char *name; /* NULL ends the list */
    uni_train_function call;
} uni_function;

typedef struct uni_program uni_program; /* this program, able to be started again as a worker */
typedef int (*uni_driver)(uni_program *program, int argc, char **argv);

/* In a worker: connects, runs functions until told to shut down, and exits the process (the only place in the library that does).
 * Elsewhere: returns driver's value. */
UNI_API int uni_main(int argc, char **argv, const uni_function *functions, uni_driver driver);

/* The worker's half alone, for worker_program: programs whose functions are not C functions (the Python door). Claims the session of this
 * process, calls `call` for every function that the controller names, and returns the code to exit with. UNI_ESTATE when this process is not such a worker. */
typedef int (*uni_worker_call)(void *context, uni_session *session, const char *function,
                               uni_value **result, uni_error *err);
UNI_API UNI_MUST_USE int uni_worker_serve(uni_worker_call call, void *context, uni_error *err);

/* ---- options ---- */

#define UNI_UNLIMITED (-1) /* max_failures: restart for ever */
#define UNI_NO_RETRIES (-2) /* max_failures: the first failure ends the run */

/* Per run. What is left zero comes from the trainer's run_defaults. */
typedef struct uni_run_options {
    const char *function; /* a name given to uni_main, or */
    const char *const *program; /* argv of any program, NULL-terminated */
    const uni_value *config; /* dictionary or NULL */
    const uni_value *
        attachment; /* for the workers' eyes only: beside the config, written nowhere (the Python door's pickles); or NULL */
    const uni_value *
        datasets; /* {name: description as uni_dataset_from_config takes it}, for uni_session_dataset_shard; or NULL */
    uni_sink *const *sinks; /* besides results.jsonl; NULL with 0: progress.csv only */
    int num_sinks; /* -1: none at all, not even progress.csv */
    const uni_checkpoint_policy *policy;
    const char *from_checkpoint; /* a checkpoint directory, or a run directory (its latest) */
    const uni_value *from_dict; /* a dictionary to start from, as v1's checkpoint= */
    const char *resume_run; /* go on in this run directory after its controller died */
    double time_limit; /* seconds; default none. All ranks stop together, then UNI_ETIMEOUT */
    bool trial; /* a stop is told by report() itself, as UNI_ECANCELED (the tuner's trials) */
    double progress_timeout; /* seconds without a report from any rank; default none */
    /* report() with a checkpoint, and save_checkpoint, return when the checkpoint is complete on the disk. It is complete when every
     * rank has reported its iteration, so all ranks must report equally often. Default: they return when it is taken. */
    bool synchronous_checkpoints;
    bool
        v1_checkpoints; /* score attribute in the checkpoint's dictionary; rank 0 only; uneven reports are an error */
} uni_run_options;

typedef struct uni_trainer_options {
    uni_program
        *main; /* from uni_main; .function needs this or worker_program, .program needs neither */
    const char *const *
        worker_program; /* argv of another program that runs functions by name (the Python door's) */
    int num_workers; /* default 1 */
    int servers; /* parameter servers; default 0. With them there is one process more, the chief (rank 0, the coordinator); then come the
                    workers, the servers, the evaluators. A worker or server that dies is restarted alone (docs/strategies.md) */
    int evaluators; /* 0 or 1: a process with the role "evaluator" (TensorFlow's); default 0 */
    const char *backend; /* "native" (default), "tensorflow", "torch", "horovod", "none" */
    const char *launcher; /* "local" (default), "mpi" or "slurm" (docs/hosts.md) */
    const char *hosts; /* mpi: "a:2,b:2"; slurm: the allocation's unless given */
    const char *
        interface; /* of this machine, for other hosts: a name, an address or a subnet; default: probed */
    /* All that goes between hosts must be sealed, or the run is refused: gradients over MPI are sealed too, and frameworks whose own connections cannot be are not
     * started. Default: the controller's connections are sealed, and a line says what else is readable. Also by
     * UNISONO_ENCRYPT=1. */
    bool encrypt;
    /* The controller's connections are authenticated but readable; default: sealed. Also by UNISONO_NO_SEAL=1. */
    bool no_seal;
    /* A file of at least 32 random bytes, mode 0600, at the same path on every host: then no process can join without it, whatever happens to the launcher's
     * channel (docs/hosts.md). Default UNISONO_SECRET_FILE, otherwise none. */
    const char *secret_file;
    int min_workers; /* a lost host is left out when this many slots remain; default num_workers */
    double cpus_per_worker; /* default: an equal share of the affinity mask and the cgroup quota */
    double memory_per_worker; /* bytes; default: no limit is set. Becomes RLIMIT_AS of the worker */
    bool use_gpu; /* one GPU per worker, by CUDA_VISIBLE_DEVICES */
    int gpus_per_worker; /* default 1 with use_gpu */
    const char *name; /* default train_YYYY-MM-DD_HH-MM-SS */
    const char *
        storage_path; /* default UNISONO_RESULTS, otherwise ~/unisono_results; "file://" is allowed */
    /* NULL-terminated "NAME=value" added to the workers', or "NAME": the value comes from the caller's
     * own environment. Only the names are written down. */
    const char *const *environment;
    const char
        *environment_file; /* lines NAME=value or NAME, # comments; readable by others: refused */
    const char *working_directory; /* of the workers; default the caller's */
    int max_failures; /* restarts per run; default 3 */
    bool
        no_retry_errors; /* true: an error of the train function ends the run (v1); default: it is retried */
    double grace_seconds; /* after a stop was asked for; default 10 */
    double hello_timeout; /* seconds until a worker must have connected; default 60 */
    double
        silent_timeout; /* seconds without a heartbeat, or stopped, until it is acted on; default 5 */
    bool
        handle_signals; /* SIGINT and SIGTERM stop the run (the command and quick programs); default off */
    bool lockstep; /* report() returns when the driver took the report (v1) */
    bool
        fresh_workers; /* every run gets new processes, also between start and shutdown (frameworks that cannot be set up twice) */
    uint64_t
        log_cap; /* bytes per rank's log file; default 64 MiB; older lines go to rank_N.log.1 */
    const uni_run_options
        *run_defaults; /* for what a run leaves open; borrowed while the trainer lives */
} uni_trainer_options;

/* ---- trainer ---- */

typedef struct uni_trainer uni_trainer;
typedef struct uni_result uni_result;
typedef struct uni_iterator uni_iterator;

/* Checks everything that can be known without starting a worker. options are copied. */
UNI_API UNI_MUST_USE int uni_trainer_new(uni_trainer **out, const uni_trainer_options *options,
                                         uni_error *err);
UNI_API void uni_trainer_free(uni_trainer *trainer); /* shuts down first */

/* Starts the workers, which then wait: the runs between start and shutdown are on the same processes. */
UNI_API UNI_MUST_USE int uni_trainer_start(uni_trainer *trainer, uni_error *err);
/* *out is set on failure too whenever a run directory was made, so that the caller can look at what happened. */
UNI_API UNI_MUST_USE int uni_trainer_run(uni_trainer *trainer, const uni_run_options *run,
                                         uni_result **out, uni_error *err);
/* start when needed, run, shutdown. */
UNI_API UNI_MUST_USE int uni_trainer_fit(uni_trainer *trainer, const uni_run_options *run,
                                         uni_result **out, uni_error *err);
UNI_API void uni_trainer_shutdown(uni_trainer *trainer);
/* Any thread, also a signal handler's helper: all ranks stop at the same iteration; now=true kills them. */
UNI_API void uni_trainer_stop(uni_trainer *trainer, bool now);

/* What a run would do, without doing it: {"workers": [{"rank", "local_rank", "node_rank", "environment": {...}}], "logdir", "cpus_per_worker",
 * "warnings": [...]}. For --dry-run. */
UNI_API UNI_MUST_USE int uni_trainer_plan(uni_trainer *trainer, const uni_run_options *run,
                                          uni_value **out, uni_error *err);

UNI_API const char *uni_trainer_logdir(const uni_trainer *trainer); /* STORAGE/NAME */
UNI_API const char *uni_trainer_latest_run_dir(
    const uni_trainer
        *trainer); /* NULL before the first run; from any thread, good as long as the trainer */
UNI_API bool uni_trainer_is_started(const uni_trainer *trainer);

/* ---- iterator ---- */

/* Like uni_trainer_run, but returns when the run has begun: its reports are then taken one by one. The trainer must live longer than the iterator. */
UNI_API UNI_MUST_USE int uni_trainer_run_iterator(uni_trainer *trainer, const uni_run_options *run,
                                                  uni_iterator **out, uni_error *err);
/* 1 and *reports (valid until the next call), 0 when the run ended well, negative when it failed. */
UNI_API UNI_MUST_USE int uni_iterator_next(uni_iterator *iterator, const uni_reports **reports,
                                           uni_error *err);
/* The same, waiting no longer than `seconds`: UNI_ETIMEOUT when nothing came by then, and nothing has changed. For callers that must look up
 * regularly (the Python door, for KeyboardInterrupt). */
UNI_API UNI_MUST_USE int uni_iterator_next_within(uni_iterator *iterator, double seconds,
                                                  const uni_reports **reports, uni_error *err);
UNI_API bool uni_iterator_is_finished(const uni_iterator *iterator);
/* The result; before the end UNI_ESTATE, or with force the rest is drained first. Borrowed. */
UNI_API UNI_MUST_USE int uni_iterator_result(uni_iterator *iterator, bool force,
                                             const uni_result **out, uni_error *err);
UNI_API void uni_iterator_free(uni_iterator *iterator); /* stops the run when it is not finished */

/* ---- result ---- */

/* What it gives is borrowed and good until it is freed. Ranks are 0 to world_size - 1. */
UNI_API void uni_result_free(uni_result *result);
UNI_API const char *uni_result_run_dir(const uni_result *result);
UNI_API int uni_result_world_size(const uni_result *result);
UNI_API const uni_value *uni_result_returned(const uni_result *result,
                                             int rank); /* NULL when it returned nothing */
UNI_API const uni_value *uni_result_metrics(const uni_result *result,
                                            int rank); /* its last report; NULL when none */
/* The number of its last report; 0 when it never reported. */
UNI_API int64_t uni_result_iterations(const uni_result *result, int rank);
/* The newest, also when the policy does not keep it (then it is in the run's .recovery); path or NULL. With v1_checkpoints the newest of those kept. */
UNI_API const char *uni_result_latest_checkpoint(const uni_result *result);
/* Those that the policy keeps, best last (without a score attribute the newest is the best); NULL beyond the last. */
UNI_API int uni_result_num_checkpoints(const uni_result *result);
UNI_API const char *uni_result_checkpoint(const uni_result *result, int index);
UNI_API const char *uni_result_best_checkpoint(const uni_result *result); /* path or NULL */
/* With UNI_KEEP_NONE or after the file was removed: what was last taken as a dictionary (v1's latest_checkpoint), or NULL. */
UNI_API const uni_value *uni_result_latest_dict(const uni_result *result);
UNI_API int uni_result_attempts(const uni_result *result);
UNI_API const uni_error *
uni_result_error(const uni_result *result); /* code 0 when the run succeeded */
/* The exit code that `unisono run` ends with (docs/errors.md). */
UNI_API int uni_result_exit_code(const uni_result *result);

#ifdef __cplusplus
}
#endif
#endif
