/*
 * keeper.h - the checkpoints of trials, written by a thread of their own: one trial that saves a gigabyte holds up nobody else's decisions.
 *
 * The tuner hands over what a worker saved and gets back, with uni__keeper_next, where it is now. Stores (checkpoint/store.h) are opened with a trial's first checkpoint
 * and closed when it ends. Threads: the tuner's calls, the keeper's own thread works.
 */
#ifndef UNISONO_TUNE_KEEPER_H
#define UNISONO_TUNE_KEEPER_H

#include "train/crew.h"
#include "tune/experiment.h"

typedef struct uni__keeper uni__keeper;

typedef struct uni__kept {
    struct uni__kept *next;
    int64_t trial, number, iteration;
    char *path, *best; /* absolute; NULL: the policy kept none */
    uni_error error; /* code 0: it is complete */
} uni__kept;

int uni__keeper_new(uni__keeper **out, uni__crew *crew, const uni_checkpoint_policy *policy,
                    uni_error *err) UNI_MUST_USE;
/* Takes the event and the metrics (may be NULL). */
void uni__keeper_keep(uni__keeper *keeper, int64_t trial, const char *run_dir, int attempt,
                      uni__crew_event *checkpoint, uni_value *metrics);
/* The trial is over: nothing more comes. Its newest checkpoint stays, in .recovery when the policy does not keep it. */
void uni__keeper_close(uni__keeper *keeper, int64_t trial);
uni__kept *uni__keeper_next(uni__keeper *keeper); /* NULL: nothing is ready */
void uni__kept_free(uni__kept *kept);
/* Completes what was handed over. */
void uni__keeper_free(uni__keeper *keeper);

#endif
