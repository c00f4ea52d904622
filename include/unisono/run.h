/*
 * run.h - run directories, read from outside: what `unisono ls, show, logs, why, plot` use, and any program that
 * looks at results. Nothing here needs the run's own process to be alive.
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

typedef struct uni_run uni_run;

typedef enum uni_run_status {
    UNI_RUN_STARTING,
    UNI_RUN_RUNNING,
    UNI_RUN_SUCCEEDED,
    UNI_RUN_FAILED,
    UNI_RUN_STOPPED,    /* asked to, resumable */
    UNI_RUN_INTERRUPTED /* run.json says running but its controller is gone: resumable */
} uni_run_status;

/* name: a path, or NAME/run_001, or NAME (its newest run), below storage (NULL: the default place). */
UNI_API UNI_MUST_USE int uni_run_open(uni_run **out, const char *name, const char *storage, uni_error *err);
UNI_API void uni_run_close(uni_run *run);
UNI_API const char *uni_run_id(const uni_run *run);  /* "NAME/run_001" */
UNI_API const char *uni_run_dir(const uni_run *run); /* absolute */
UNI_API uni_run_status uni_run_status_of(const uni_run *run);
UNI_API const char *uni_run_status_name(uni_run_status status);
UNI_API const uni_value *uni_run_description(const uni_run *run); /* run.json */
/* The journal's records (attempts, exits, checkpoints), a list; freed with the run. */
UNI_API UNI_MUST_USE int uni_run_events(uni_run *run, const uni_value **out, uni_error *err);
/* All joined reports, last attempt of each (rank, iteration). A negative return of visit stops and is handed on. */
typedef int (*uni_run_visit)(void *context, const uni_reports *reports, uni_error *err);
UNI_API UNI_MUST_USE int uni_run_reports(uni_run *run, uni_run_visit visit, void *context, uni_error *err);
/* Asks a live controller of the same user to stop the run (SIGTERM, or SIGKILL of the group with now). */
UNI_API UNI_MUST_USE int uni_run_stop(uni_run *run, bool now, uni_error *err);
/* Removes the directory; a live run is UNI_EBUSY. */
UNI_API UNI_MUST_USE int uni_run_remove(uni_run *run, uni_error *err);

/* Runs below storage, newest first: calls visit with each opened run (closed afterwards). */
typedef int (*uni_run_list_visit)(void *context, uni_run *run, uni_error *err);
UNI_API UNI_MUST_USE int uni_run_list(const char *storage, uni_run_list_visit visit, void *context, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
