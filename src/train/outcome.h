/*
 * outcome.h - what becomes of a run: progress, checkpoints, the last cause, the error, and the
 * moment when it is over, which other threads wait for. The rest is the controller thread's until
 * then.
 */
#ifndef UNISONO_TRAIN_OUTCOME_H
#define UNISONO_TRAIN_OUTCOME_H

#include <pthread.h>

#include "train/budget.h"

typedef struct uni__outcome {
    uni__cause cause; /* of the last failure */
    uni_error error;
    uni__progress progress;
    int replaced; /* ranks, while the others kept training */
    char latest_path[4096], best_path[4096]; /* complete checkpoints, absolute; "" for none */
    uni_value *kept; /* paths of the checkpoints that the policy keeps, best last; at the end */
    bool kept_in_memory; /* a complete dictionary that was not written (UNI_KEEP_NONE) */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool over; /* with lock */
} uni__outcome;

void uni__outcome_init(uni__outcome *outcome);
void uni__outcome_clear(uni__outcome *outcome);
/* Any thread, these three. */
void uni__outcome_tell(uni__outcome *outcome); /* that it is over */
void uni__outcome_wait(uni__outcome *outcome);
bool uni__outcome_is_over(uni__outcome *outcome);

#endif
