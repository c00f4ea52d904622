/*
 * trainer.h - a group of workers that train one model: start, run, watch, restart, collect.
 *
 * `uni_trainer_fit` starts workers, runs one function and shuts down (Ray Train 2.x). `start / run
 * / run / shutdown` keeps the workers warm between runs (v1). `run_iterator` returns every
 * iteration of all ranks to the caller. Each run has its own directory in STORAGE/NAME
 * (docs/formats.md).
 *
 * A C program's workers are the program itself, started again: its main is `return uni_main(...)`,
 * which runs the requested function in a worker and calls the driver elsewhere. Other programs are
 * run with .program.
 *
 * Thread rule: one thread at a time per trainer; uni_trainer_stop and uni_trainer_latest_run_dir
 * from any thread. The library runs two threads (controller, sinks) while workers exist. It handles
 * no signals unless asked to, and forks in the caller's process only to exec the agent.
 *
 * @example
 * uni_trainer *trainer = NULL;
 * uni_result *result = NULL;
 * uni_trainer_options options = { .main = program, .num_workers = 4 };
 * UNI_TRY(uni_trainer_new(&trainer, &options, err));
 * int outcome = uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "train" }, err);
 * if (outcome == 0)
 *     printf("results in %s\n", uni_result_info_of(result)->run_dir);
 * uni_result_free(result);
 * uni_trainer_free(trainer);
 * @end
 */
#ifndef UNISONO_TRAINER_H
#define UNISONO_TRAINER_H

#include <math.h>
#include <stdbool.h>
#include <unisono/checkpoint.h>
#include <unisono/session.h>
#include <unisono/track.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- main ---- */

/* Runs in every worker. *result (may stay NULL) is returned to the driver by rank. 0 is success. A
 * negative return with err set is the error of the train function, a positive one is an error, too;
 * *result then describes the failure (uni_result_info.failure) and is dropped if it needs more than
 * UNI_FAILURE_MAX bytes. */
#define UNI_FAILURE_MAX (256 << 10)
typedef int (*uni_train_function)(uni_session *session, uni_value **result, uni_error *err);

typedef struct uni_function {
    const char *name; /* NULL ends the list */
    uni_train_function call;
} uni_function;

typedef struct uni_program uni_program; /* this program, which can be started again as a worker */
typedef int (*uni_driver)(uni_program *program, int argc, char **argv);

/* In a worker: connects, runs functions until told to shut down, and exits the process (the only
 * place in the library that does). Elsewhere: returns the driver's value. */
UNI_API int uni_main(int argc, char **argv, const uni_function *functions, uni_driver driver);

/* ---- options ---- */

#define UNI_UNLIMITED (-1) /* max_failures: restart without limit */
#define UNI_NO_RETRIES (-2) /* max_failures: the first failure ends the run */
#define UNI_GRACE_NONE 1e-9 /* grace_seconds: kill at once */

#define UNI_SINKS_NONE (-1)
/* Per run. */
typedef struct uni_run_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *function; /* a name given to uni_main, or */
    const char *const *program; /* argv of any program, NULL-terminated */
    const uni_value *config; /* dictionary or NULL */
    /* Sent to the workers in addition to the config but never written to disk (Python's
     * pickles); or NULL */
    const uni_value *attachment;
    /* {name: description for uni_dataset_from_config}, for uni_session_dataset_shard; or NULL */
    const uni_value *datasets;
    uni_sink *const *sinks; /* in addition to results.jsonl; NULL with 0: progress.csv only */
    int num_sinks; /* UNI_SINKS_NONE: none at all, not even progress.csv */
    const uni_checkpoint_policy *policy;
    const char *from_checkpoint; /* a checkpoint directory, or a run directory (its latest) */
    const uni_value *from_dict; /* a dictionary to start from, as v1's checkpoint= */
    const char *resume_run; /* continue the run in this directory after its controller died */
    double time_limit; /* seconds; default none. All ranks stop together, then UNI_ETIMEOUT */
    bool trial; /* report() returns UNI_ECANCELED on a stop (the tuner's trials) */
    double progress_timeout; /* seconds without a report from any rank; default none */
    /* report() with a checkpoint, and save_checkpoint, return when the checkpoint is complete on
     * disk. It is complete once every rank has reported its iteration, so all ranks must report
     * equally often. Default: they return once it has been handed over. */
    bool synchronous_checkpoints;
    /* The score attribute is in the checkpoint's dictionary; rank 0 only; uneven reports are an
     * error */
    bool v1_checkpoints;
    bool no_csv; /* no progress.csv unless `sinks` has one; default: it is always written */
} uni_run_options;

typedef struct uni_trainer_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    /* From uni_main; .function needs this or worker_program, .program needs neither */
    uni_program *main;
    /* argv, NULL-terminated, of another program that runs functions by name (the Python
     * package's) */
    const char *const *worker_program;
    int num_workers; /* default 1 */
    /* Parameter servers; default 0. With them there is one more process, the chief (rank 0, the
     * coordinator), followed by the workers, the servers and the evaluators. A worker or server
     * that dies is restarted alone (docs/parameter-servers.md). */
    int servers;
    int evaluators; /* 0 or 1: a process with the role "evaluator" (TensorFlow's); default 0 */
    const char *backend; /* "native" (default), "tensorflow", "torch", "horovod", "none" */
    /* "local", "ssh", "mpi" or "slurm" (docs/hosts.md); default: ssh with hosts, otherwise local */
    const char *launcher;
    const char *hosts; /* ssh, mpi: "a:2,b:2"; slurm: the allocation's unless given */
    /* Of this machine, for other hosts: a name, an address or a subnet; default: probed */
    const char *interface;
    /* Encrypt all traffic between hosts, including gradients over MPI, or refuse to start:
     * frameworks whose own connections cannot be encrypted are rejected. Default: the
     * controller's connections are encrypted, and a line says what else is readable. Also set by
     * UNISONO_ENCRYPT=1. */
    bool encrypt;
    /* The controller's connections are authenticated but not encrypted; default: encrypted. Also
     * set by UNISONO_NO_SEAL=1. */
    bool no_seal;
    /* A file of at least 32 random bytes, mode 0600, at the same path on every host: no process
     * can join without it, even if the launcher's channel is compromised (docs/hosts.md).
     * Default UNISONO_SECRET_FILE, otherwise none. */
    const char *secret_file;
    /* At least this many workers. On one host and over ssh, with multi_worker and fit: a group that
     * loses a worker or a host continues without it at once, and with its replacement when that has
     * started; and uni_trainer_scale changes the number (docs/strategies.md). Otherwise, over
     * hosts: restart without a lost host if this many slots remain. Default num_workers. */
    int min_workers;
    int max_workers; /* one host or ssh: the number can grow up to this; default num_workers */
    double cpus_per_worker; /* default: an equal share of the affinity mask and the cgroup quota */
    /* Bytes that each worker reserves: more than its host has is an error. Not enforced as a
     * limit. Default: none. */
    double memory_per_worker;
    /* Bytes of address space that a worker may use (RLIMIT_AS); an allocation beyond it fails.
     * Libraries map far more than they use: PyTorch and TensorFlow need several GB. Default: no
     * limit. */
    double address_space_limit;
    bool use_gpu; /* one GPU per worker, through CUDA_VISIBLE_DEVICES */
    int gpus_per_worker; /* default 1 with use_gpu */
    const char *name; /* default train_YYYY-MM-DD_HH-MM-SS */
    /* Default UNISONO_RESULTS, otherwise ~/unisono_results; "file://" is allowed */
    const char *storage_path;
    /* NULL-terminated "NAME=value" added to the workers' environment, or "NAME" to take the
     * value from the caller's. Only the names are recorded. */
    const char *const *environment;
    /* Lines NAME=value or NAME, # comments; rejected if other users can read it */
    const char *environment_file;
    const char *working_directory; /* of the workers; default the caller's */
    int max_failures; /* restarts per run; default 3 */
    /* true: an error of the train function ends the run (v1), and so does a .program that exits
     * with a code from 1 to 128; default: it is retried */
    bool no_retry_errors;
    /* Seconds for workers to end after a stop request, and after the last run (then
     * at least 2); default 10; UNI_GRACE_NONE: kill them at once */
    double grace_seconds;
    double hello_timeout; /* seconds within which a worker must connect; default 60 */
    /* Seconds without a heartbeat, or stopped, until it is acted on; default 5. By default a rank
     * that was stopped by a signal, and can be replaced while the others train, is after 0.5 */
    double silent_timeout;
    /* SIGINT and SIGTERM stop the run (the command and quick programs); default off */
    bool handle_signals;
    bool lockstep; /* report() returns once the driver has received the report (v1) */
    /* Every run gets new processes, also between start and shutdown (for frameworks that cannot
     * be initialized twice) */
    bool fresh_workers;
    /* Bytes per rank's log file; default 64 MiB; older lines go to rank_N.log.1 */
    uint64_t log_cap;
    /* What carries collectives between hosts: "ucx" or "mpi"; default UNISONO_TRANSPORT, otherwise
     * ucx if every host has it (docs/hosts.md) */
    const char *transport;
} uni_trainer_options;

/* ---- trainer ---- */

typedef struct uni_trainer uni_trainer;
typedef struct uni_result uni_result;
typedef struct uni_iterator uni_iterator;

/* Checks everything that can be known without starting a worker. options are copied. */
UNI_API UNI_MUST_USE int uni_trainer_new(uni_trainer **out, const uni_trainer_options *options,
                                         uni_error *err);
UNI_API void uni_trainer_free(uni_trainer *trainer); /* shuts down first */

/* Starts the workers, which then wait: runs between start and shutdown use the same processes. */
UNI_API UNI_MUST_USE int uni_trainer_start(uni_trainer *trainer, uni_error *err);
/* *out is set even on failure if a run directory was created, so that the caller can find out
 * what happened. */
UNI_API UNI_MUST_USE int uni_trainer_run(uni_result **out, uni_trainer *trainer,
                                         const uni_run_options *run, uni_error *err);
/* Starts if needed, runs, shuts down. */
UNI_API UNI_MUST_USE int uni_trainer_fit(uni_result **out, uni_trainer *trainer,
                                         const uni_run_options *run, uni_error *err);
UNI_API void uni_trainer_shutdown(uni_trainer *trainer);
/* Any thread: all ranks stop at the same iteration, a fit with uni_callback_report_checkpoint after
 * the same step; now=true kills them. */
UNI_API void uni_trainer_stop(uni_trainer *trainer, bool now);
/* Any thread, during a run of a trainer with min_workers: how many workers it should have. Those
 * that are there keep training; others join, or leave, between two steps. Returns at once. */
UNI_API UNI_MUST_USE int uni_trainer_scale(uni_trainer *trainer, int workers, uni_error *err);

/* What a run would do, without doing it: {"workers": [{"rank", "local_rank", "node_rank",
 * "environment": {...}}], "logdir", "cpus_per_worker", "warnings": [...]}. Ports that a run chooses
 * when it starts are 0. For --dry-run. */
UNI_API UNI_MUST_USE int uni_trainer_plan(uni_value **out, uni_trainer *trainer,
                                          const uni_run_options *run, uni_error *err);

UNI_API const char *uni_trainer_latest_run_dir(
    const uni_trainer
        *trainer); /* NULL before the first run; from any thread, good as long as the trainer */

/* ---- iterator ---- */

/* Like uni_trainer_run, but returns when the run has started; its reports are then read one by
 * one. The trainer must outlive the iterator. */
UNI_API UNI_MUST_USE int uni_trainer_run_iterator(uni_iterator **out, uni_trainer *trainer,
                                                  const uni_run_options *run, uni_error *err);
/* 1 and *reports (valid until the next call), 0 when the run succeeded, negative when it failed.
 * Waits at most `seconds`, then returns UNI_ETIMEOUT without changing anything: for callers that
 * must check for interrupts regularly. */
UNI_API UNI_MUST_USE int uni_iterator_next_within(const uni_reports **reports,
                                                  uni_iterator *iterator, double seconds,
                                                  uni_error *err);
/* The same without a limit. */
static inline UNI_MUST_USE int uni_iterator_next(const uni_reports **reports,
                                                 uni_iterator *iterator, uni_error *err)
{
    return uni_iterator_next_within(reports, iterator, (double)INFINITY, err);
}
UNI_API bool uni_iterator_is_finished(const uni_iterator *iterator);
/* The result, borrowed. Before the end it is UNI_ESTATE; with force the remaining reports are
 * drained first. */
UNI_API UNI_MUST_USE int uni_iterator_result(const uni_result **out, uni_iterator *iterator,
                                             bool force, uni_error *err);
UNI_API void uni_iterator_free(uni_iterator *iterator); /* stops the run if it has not finished */

/* ---- result ---- */

/* Everything here is borrowed from the result. Arrays by rank have world_size entries. */
typedef struct uni_result_info {
    const char *run_dir;
    int world_size;
    int attempts;
    const uni_value *const *returned; /* by rank; NULL where a rank returned nothing */
    const uni_value *const *metrics; /* by rank: its last report; NULL where it never reported */
    const int64_t *iterations; /* by rank: number of its last report; 0: it never reported */
    /* The newest, even if the policy does not keep it (it is then in the run's .recovery); path or
     * NULL. With v1_checkpoints: the newest of those kept. */
    const char *latest_checkpoint;
    const char *best_checkpoint; /* path or NULL */
    /* The checkpoints that the policy keeps, best last (without a score attribute the newest is
     * the best) */
    const char *const *checkpoints;
    int num_checkpoints;
    /* With UNI_KEEP_NONE, or after the file was removed: the last dictionary checkpoint (v1's
     * latest_checkpoint), or NULL */
    const uni_value *latest_dict;
    const uni_error *error; /* code 0 when the run succeeded */
    int exit_code; /* of `unisono run` (docs/errors.md) */
    /* The *result of the train function that failed first, and its rank. NULL if it set none; the
     * rank is UNI_RANK_NONE if the run did not fail that way. */
    const uni_value *failure;
    int failed_rank;
} uni_result_info;
UNI_API const uni_result_info *uni_result_info_of(const uni_result *result);
UNI_API void uni_result_free(uni_result *result);

#ifdef __cplusplus
}
#endif
#endif
