/*
 * restarts.h - the net for restarts: a training that is killed, at any epoch and at any moment of it, leaves behind and returns what the undisturbed one
 * does. restarts.c makes the cases and counts, restarts_worker.c trains and dies, restarts_compare.c compares,
 * restarts_watch.c records what a run that hangs waits for.
 */
#ifndef UNISONO_TESTS_RESTARTS_H
#define UNISONO_TESTS_RESTARTS_H

#include <unisono/native.h>

#include "../train/scenario.h"

#define RESTARTS_EPOCHS 6
#define RESTARTS_BATCHES 4 /* an epoch */

/* Moments of an epoch at which a rank can die, in their order. "first": before the other callbacks; "last": after them. */
#define RESTARTS_MOMENTS(X)                                                                        \
    X(EPOCH_BEGIN, "epoch_begin")                                                                  \
    X(BATCH_END, "batch_end")                                                                      \
    X(EPOCH_END_FIRST, "epoch_end, before the other callbacks")                                    \
    X(EPOCH_END_LAST, "epoch_end, after them")                                                     \
    X(AFTER_FIRST, "before the report")                                                            \
    X(AFTER_LAST, "after the report")                                                              \
    X(TRAIN_END, "train_end")
typedef enum restarts_moment {
#define MOMENT(name, text) RESTARTS_##name,
    RESTARTS_MOMENTS(MOMENT)
#undef MOMENT
        RESTARTS_NO_MOMENT
} restarts_moment;

/* Where a rank dies once more, in its second life: while the training recovers. */
typedef enum restarts_again {
    RESTARTS_ONCE,
    RESTARTS_AT_START,
    RESTARTS_RESTORED,
    RESTARTS_SAME_MOMENT
} restarts_again;

/* The train functions of the workers, for functions[]. */
int restarts_fit(uni_session *session, uni_value **result, uni_error *err);
int restarts_loop(uni_session *session, uni_value **result, uni_error *err);

/* A run that takes longer than `seconds` hangs: what each of its processes waits for goes into the file pids/stacks. */
typedef struct restarts_watch restarts_watch;
restarts_watch *restarts_watch_begin(const char *pids, double seconds);
void restarts_watch_end(restarts_watch *watch);

/* What a run has left behind: everything it returned, its checkpoints, and the files of its callbacks, without times and process numbers. */
uni_value *restarts_outcome(const uni_result *result, const char *files);
/* The same of a run's directory alone: its checkpoints and reports. */
uni_value *restarts_left_in(const char *run_dir);
/* What a checkpoint has in it. */
uni_value *restarts_checkpoint(const char *path);
/* Metrics without what differs from run to run. */
uni_value *restarts_without_times(const uni_value *metrics);
/* The first difference of two outcomes in words, or false. */
bool restarts_differ(const uni_value *a, const uni_value *b, char *where, size_t size);

#endif
