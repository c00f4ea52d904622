/*
 * run.h - reading run directories from outside: used by `unisono ls, show, logs, why, plot` and by
 * any program that reads results. The run's own processes need not be alive.
 *
 * Thread rule: a handle belongs to one thread at a time.
 *
 * @example
 * uni_run *run = NULL;
 * UNI_TRY(uni_run_open(&run, "digits/run_001", NULL, err));
 * const uni_run_info *info = uni_run_info_of(run);
 * printf("%s: %s\n", info->id, uni_run_status_name(info->status));
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

/* Exit codes of `unisono run`, of run.json's exit_code and of uni_result_info: name,
 * number, sentence. 0 means that every rank succeeded. Otherwise the exit code is that of the
 * first cause: the code that the worker exited with, or 128 + n if signal n killed it. The
 * numbers below are for causes without a code of their own. docs/cli.md is generated from this
 * list. */
#define UNI_EXIT_CODE_LIST(X)                                                                      \
    X(OK, 0, "every rank succeeded")                                                               \
    X(FAILURE, 1, "the train function returned an error, or a worker exited early with code 0")    \
    X(USAGE, 64,                                                                                   \
      "invalid command line: nothing was started, or a worker exited with 64 to reject its own, "  \
      "which is not retried")                                                                      \
    X(INTERNAL, 70, "unisono itself failed: unreadable file, out of memory, controller died")      \
    X(DISK_FULL, 74, "the disk with the run directory is full")                                    \
    X(PREEMPTED, 75,                                                                               \
      "stopped on request (SIGTERM, SIGINT, unisono stop); `unisono run --resume` continues")      \
    X(HOST_LOST, 123, "a host, or the network to it, was lost")                                    \
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
    UNI_RUN_STOPPED, /* on request; resumable */
    UNI_RUN_INTERRUPTED /* run.json says running but its controller is gone: resumable */
} uni_run_status;

/* name: a path, or NAME/run_001, or NAME (its newest run) in storage (NULL: the default). NULL:
 * the newest run of all. If there is none, the error suggests the nearest. */
UNI_API UNI_MUST_USE int uni_run_open(uni_run **out, const char *name, const char *storage,
                                      uni_error *err);
UNI_API void uni_run_close(uni_run *run);
/* Borrowed until the run is closed. */
typedef struct uni_run_info {
    const char *id; /* "NAME/run_001" */
    const char *dir; /* absolute */
    uni_run_status status;
    const uni_value *description; /* run.json */
} uni_run_info;
UNI_API const uni_run_info *uni_run_info_of(const uni_run *run);
UNI_API const char *uni_run_status_name(uni_run_status status);
/* The journal's records (attempts, exits, checkpoints), a list; freed with the run. */
UNI_API UNI_MUST_USE int uni_run_events(const uni_value **out, uni_run *run, uni_error *err);
/* All joined reports, last attempt of each (rank, iteration). A negative return of visit stops
 * the iteration and is passed on. */
typedef int (*uni_run_visit)(void *context, const uni_reports *reports, uni_error *err);
UNI_API UNI_MUST_USE int uni_run_reports(uni_run *run, uni_run_visit visit, void *context,
                                         uni_error *err);
/* true while its controller is alive (on another host: while run.json says so, because the
 * process cannot be checked). */
UNI_API bool uni_run_is_live(const uni_run *run);
/* Asks a live controller of the same user to stop the run: SIGTERM, so that all ranks stop at
 * the same iteration; or with now SIGKILL, after which the agents end the workers. A run that
 * has ended is UNI_ESTATE, one on another host UNI_EUNSUPPORTED, another user's UNI_EPERMISSION. */
UNI_API UNI_MUST_USE int uni_run_stop(uni_run *run, bool now, uni_error *err);
/* Removes the directory; a live run is UNI_EBUSY. */
UNI_API UNI_MUST_USE int uni_run_remove(uni_run *run, uni_error *err);

/* Runs in storage, newest first: calls visit with each opened run (closed afterwards). */
typedef int (*uni_run_list_visit)(void *context, uni_run *run, uni_error *err);
UNI_API UNI_MUST_USE int uni_run_list(const char *storage, uni_run_list_visit visit, void *context,
                                      uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
