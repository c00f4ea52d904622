/* tuner_internal.h - the internals of a tuner, shared by tuner*.c. Only for this module. Everything
 * belongs to the owner's thread, except `stop_asked`. */
#ifndef UNISONO_TUNE_TUNER_INTERNAL_H
#define UNISONO_TUNE_TUNER_INTERNAL_H

#include <stdatomic.h>

#include "tune/shared.h"
#include "track/results.h"
#include "train/crew.h"
#include "tune/commit.h"
#include "tune/experiment.h"
#include "tune/keeper.h"
#include "tune/schedule.h"
#include "tune/search.h"
#include "tune/spec.h"

/* A place in which one trial runs at a time. */
typedef struct uni__trial_place {
    int64_t trial; /* -1: free */
    uint64_t serial, begun_ns;
    double seconds_before; /* of the trial, in earlier attempts */
    int64_t iterations_before; /* the same */
    uni__crew_event *checkpoint; /* waits for the report of its iteration */
    int in_flight; /* checkpoints at the keeper */
    uni__decision decision; /* applies once the trial has ended */
    char why[64];
    uni__crew_event *ended; /* waits for its checkpoints */
    uni__results_writer *writer; /* results.jsonl, after the first report */
    int log_fd;
    int64_t log_offset;
    bool is_stopping;
} uni__trial_place;

struct uni_tuner {
    uni_tune_results results; /* first: uni_tuner_results gives it */
    uni_tuner_options asked; /* what a file cannot hold */
    uni_tune_searcher own_searcher; /* asked.own_searcher, unless that is NULL */
    uni__tune_spec *spec; /* the rest, pointing into results.experiment.spec */
    char *storage, *dir, *staging;
    uni__commit *commit;
    uni__crew *crew;
    struct uni__groups *groups; /* trials of several workers */
    /* NAME=value for the workers, with the values that are not in the journal. */
    uni_value *variables;
    const char **environment; /* the same, for options */
    uni__keeper *keeper;
    uni__searcher searcher;
    uni__scheduler scheduler;
    uni__trial_place *places;
    int num_places, running;
    int64_t *queue; /* pending trials, oldest first */
    size_t queued, queue_room;
    size_t interrupted; /* the first ones of the queue: they go on before anything else begins */
    int64_t replayed; /* counts what was put into the queue, while the journal is replayed */
    bool lockstep, exhausted, complete_said, finishing, over, replaying;
    bool warned_no_checkpoint, warned_no_metric;
    uint64_t begun_ns, progress_ns, clock_ns;
    double used_before;
    _Atomic bool stop_asked;
    uni_error error; /* why it ended, if it failed */
};

static inline int uni__no_trial_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for a trial");
}

/* tuner.c */
/* Appends the record, applies it, and frees it. */
int uni__tuner_note(uni_tuner *tuner, uni_value *record, uni_error *err) UNI_MUST_USE;

/* tuner_start.c */
/* Starts whatever can be started. */
int uni__tuner_fill(uni_tuner *tuner, uni_error *err) UNI_MUST_USE;
int uni__tuner_enqueue(uni_tuner *tuner, int64_t trial, uni_error *err) UNI_MUST_USE;
/* A trial that a failure or the tuner's death interrupted gets its place back, so that trials run
 * in the order of an undisturbed search. */
int uni__tuner_enqueue_first(uni_tuner *tuner, int64_t trial, uni_error *err) UNI_MUST_USE;

/* tuner_trials.c */
int uni__tuner_event(uni_tuner *tuner, uni__crew_event *event, uni_error *err) UNI_MUST_USE;
int uni__tuner_kept(uni_tuner *tuner, uni__kept *kept, uni_error *err) UNI_MUST_USE;
/* Carries out the scheduler's actions on paused trials. */
int uni__tuner_act(uni_tuner *tuner, uni_error *err) UNI_MUST_USE;
/* Writes the end of a trial that the killed tuner had decided but not recorded. */
int uni__tuner_settle(uni_tuner *tuner, uni__trial *trial, uni_error *err) UNI_MUST_USE;
/* Ends an unfinished trial with what it has reported. */
int uni__tuner_leave(uni_tuner *tuner, uni__trial *trial, uni_error *err) UNI_MUST_USE;
/* Queues a failed trial again; restart: without its checkpoints. */
int uni__tuner_retry(uni_tuner *tuner, uni__trial *trial, bool restart,
                     uni_error *err) UNI_MUST_USE;
/* Ends every running trial as terminated. */
void uni__tuner_end_all(uni_tuner *tuner, const char *why);
uni__schedule_report uni__tuner_schedule(const uni_tuner *tuner, const uni__trial *trial,
                                         int64_t iteration, const uni_value *metrics);
/* The value that the searcher is told. */
double uni__tuner_told(const uni_tuner *tuner, const uni__trial *trial);

/* tuner_replay.c */
int uni__tuner_replay(void *tuner, const uni_value *record, uni_error *err) UNI_MUST_USE;
/* Creates the searcher and the scheduler. */
int uni__tuner_make_brains(uni_tuner *tuner, uni_error *err) UNI_MUST_USE;
int uni__tuner_after_replay(uni_tuner *tuner, unsigned resume, uni_error *err) UNI_MUST_USE;

/* tuner_files.c: a trial's directory, created with its first file */
int uni__files_report(uni_tuner *tuner, uni__trial_place *place, int64_t iteration,
                      const uint8_t *metrics, size_t size, uni_error *err) UNI_MUST_USE;
void uni__files_begin(uni_tuner *tuner, int place);
int uni__files_end(uni_tuner *tuner, int place, uni_error *err) UNI_MUST_USE;
/* run.json of a trial that has reported: also when it ends without running. */
int uni__files_describe(uni_tuner *tuner, const uni__trial *trial, uni_error *err) UNI_MUST_USE;

/* groups.c: trials of several workers, each an ordinary trainer's run in its own thread, which
 * behaves like a member of the crew */
int uni__groups_new(struct uni__groups **out, uni_tuner *tuner, uni_error *err) UNI_MUST_USE;
int uni__groups_run(struct uni__groups *groups, int place, const uni__crew_order *order,
                    uint64_t *serial, uni_error *err) UNI_MUST_USE;
void uni__groups_release(struct uni__groups *groups, int place, uint64_t serial, bool stop);
void uni__groups_free(struct uni__groups *groups);

#endif
