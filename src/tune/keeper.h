/*
 * keeper.h - writes the checkpoints of trials in a separate thread, so that a trial that saves a
 * gigabyte does not delay decisions about the others.
 *
 * The tuner hands over what a worker saved, and uni__keeper_next returns where it was stored. A
 * trial's first checkpoint opens its store (checkpoint/store.h), and its end closes it. Threads:
 * the tuner's thread calls, the keeper's own thread works.
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
/* Takes ownership of the event and the metrics (may be NULL). */
void uni__keeper_keep(uni__keeper *keeper, int64_t trial, const char *run_dir, int attempt,
                      uni__crew_event *checkpoint, uni_value *metrics);
/* The trial has ended, and no more checkpoints will come. Its newest checkpoint stays, in .recovery
 * if the policy does not keep it. */
void uni__keeper_close(uni__keeper *keeper, int64_t trial);
uni__kept *uni__keeper_next(uni__keeper *keeper); /* NULL: nothing is ready */
void uni__kept_free(uni__kept *kept);
/* Completes everything that was handed over. */
void uni__keeper_free(uni__keeper *keeper);

#endif
