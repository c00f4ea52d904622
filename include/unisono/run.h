/*
 * run.h - run directories, read from outside: what `unisono ls, show, logs, why, plot` use, and any
 * program that looks at results. Nothing here needs the run's own process to be alive.
 *
 * Thread rule: a handle belongs to one thread at a time.
 *
 * @example
 * uni_run *run = NULL;
 * UNI_TRY(uni_run_open(&run, "digits/run_001", NULL, err));
 * printf("%s: %s\n", uni_run_id(run), uni_run_status_name(uni_run_status_of(run)));
 * uni_run_close(run);
 * @end
 */
#ifndef UNISONO_RUN_H
#define UNISONO_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/track.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How `unisono run` ends, and what run.json's exit_code and uni_result_exit_code say: name, number,
 * sentence. 0 means that every rank succeeded. Otherwise the exit code is the first cause's own:
 * the code that the worker ended with, or 128 + n when signal n killed it; the numbers below are
 * for what has no code of its own. docs/cli.md is made from this list. */
#define UNI_EXIT_CODE_LIST(X)                                                                      \
    X(OK, 0, "every rank succeeded")                                                               \
    X(FAILURE, 1, "the train function returned an error, or a worker left early with code 0")      \
    X(USAGE, 64,                                                                                   \
      "the command line is not valid: nothing was started, or a worker said so of its own by "     \
      "ending with 64, which is not started again")                                                \
    X(INTERNAL, 70,                                                                                \
      "unisono itself failed: a file it cannot read, no memory, a controller that died")           \
    X(DISK_FULL, 74, "the disk with the run directory is full")                                    \
    X(PREEMPTED, 75,                                                                               \
      "asked to stop (SIGTERM, SIGINT, unisono stop); `unisono run --resume` goes on")             \
    X(HOST_LOST, 123, "a host of the run was lost, or the network to it")                          \
    X(TIME_LIMIT, 124, "--time-limit or --progress-timeout ran out")                               \
    X(NOT_STARTED, 125, "the workers could not be started")                                        \
    X(FROZEN, 126, "a worker was frozen: stopped (SIGSTOP) or silent for too long")                \
    X(SIGNAL_BASE, 128, "128 + n: signal n killed the worker that failed first (137 is SIGKILL)")

typedef enum uni_exit_code {
#define UNI_EXIT_CODE_ENUM(name, number, sentence) UNI_EXIT_##name = number,
    UNI_EXIT_CODE_LIST(UNI_EXIT_CODE_ENUM)
#undef UNI_EXIT_CODE_ENUM
} uni_exit_code;

typedef struct uni_run uni_run;

typedef enum uni_run_status {
    UNI_RUN_STARTING,
    UNI_RUN_RUNNING,
    UNI_RUN_SUCCEEDED,
    UNI_RUN_FAILED,
    UNI_RUN_STOPPED, /* asked to, resumable */
    UNI_RUN_INTERRUPTED /* run.json says running but its controller is gone: resumable */
} uni_run_status;

/* The absolute directory that `storage` names: NULL is UNISONO_RESULTS, otherwise
 * ~/unisono_results; "file://" is taken off, any other scheme is UNI_EUNSUPPORTED. It need not
 * exist. The string is the caller's to free(). */
UNI_API UNI_MUST_USE int uni_run_storage(const char *storage, char **out, uni_error *err);

/* name: a path, or NAME/run_001, or NAME (its newest run), below storage (NULL: the default place).
 * NULL: the newest run of all. When there is none the error names the nearest. */
UNI_API UNI_MUST_USE int uni_run_open(uni_run **out, const char *name, const char *storage,
                                      uni_error *err);
UNI_API void uni_run_close(uni_run *run);
UNI_API const char *uni_run_id(const uni_run *run); /* "NAME/run_001" */
UNI_API const char *uni_run_dir(const uni_run *run); /* absolute */
UNI_API uni_run_status uni_run_status_of(const uni_run *run);
UNI_API const char *uni_run_status_name(uni_run_status status);
UNI_API const uni_value *uni_run_description(const uni_run *run); /* run.json */
/* The journal's records (attempts, exits, checkpoints), a list; freed with the run. */
UNI_API UNI_MUST_USE int uni_run_events(uni_run *run, const uni_value **out, uni_error *err);
/* All joined reports, last attempt of each (rank, iteration). A negative return of visit stops and
 * is handed on. */
typedef int (*uni_run_visit)(void *context, const uni_reports *reports, uni_error *err);
UNI_API UNI_MUST_USE int uni_run_reports(uni_run *run, uni_run_visit visit, void *context,
                                         uni_error *err);
/* true while its controller is alive (on another host: while run.json says so, because it cannot be
 * asked). */
UNI_API bool uni_run_is_live(const uni_run *run);
/* UNI_EPERMISSION unless the run in this directory is yours alone: it, the directory of its name and
 * its files belong to the effective user, are not writable by others and are not symbolic links, and
 * not every user can replace them in the storage directory. What acts on a run (resuming, stopping,
 * removing it) checks this by itself; what only reads one does not. */
UNI_API UNI_MUST_USE int uni_run_check_owner(const char *dir, uni_error *err);
/* Makes the directory STORAGE/NAME (an absolute path), in which runs are made, with mode 0700 unless it is there. UNI_EPERMISSION when it is not
 * the effective user's alone, is a link, or any user can replace it: STORAGE is writable by others and has no sticky bit. */
UNI_API UNI_MUST_USE int uni_run_make_place(const char *dir, uni_error *err);
/* Asks a live controller of the same user to stop the run: SIGTERM, so that all ranks stop at the
 * same iteration; or with now SIGKILL, and the agents end the workers. A run that is over is
 * UNI_ESTATE, one on another host UNI_EUNSUPPORTED, one that is not yours UNI_EPERMISSION. */
UNI_API UNI_MUST_USE int uni_run_stop(uni_run *run, bool now, uni_error *err);
/* Removes the directory; a live run is UNI_EBUSY. */
UNI_API UNI_MUST_USE int uni_run_remove(uni_run *run, uni_error *err);

/* Runs below storage, newest first: calls visit with each opened run (closed afterwards). */
typedef int (*uni_run_list_visit)(void *context, uni_run *run, uni_error *err);
UNI_API UNI_MUST_USE int uni_run_list(const char *storage, uni_run_list_visit visit, void *context,
                                      uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
