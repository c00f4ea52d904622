/*
 * iterator.c - a run whose reports the caller takes one iteration at a time. User's thread.
 *
 * It follows results.jsonl like the sinks do. In lockstep mode asking for the next iteration lets
 * the ranks go on from the one before.
 */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "train/trainer_internal.h"
#include "base/options.h"

#define LOOK_UP_MS 100

struct uni_iterator {
    uni_trainer *trainer;
    uni__run *run; /* NULL once it was taken apart */
    uni__follower *follower;
    uni_result *result;
    int attempt;
    int64_t taken; /* iteration that the caller has and the ranks wait for; 0: none */
    bool finished;
};

int uni_trainer_run_iterator(uni_iterator **out, uni_trainer *trainer, const uni_run_options *asked,
                             uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_run_options, asked, v1_checkpoints, err);
    if (!trainer->started)
        return uni_error_set(err, UNI_ESTATE,
                             "this trainer is not active: call start before run_iterator");
    uni_iterator *iterator = calloc(1, sizeof *iterator);
    if (!iterator)
        return uni_error_set(err, UNI_ENOMEM, "no memory for an iterator");
    iterator->trainer = trainer;
    int status = uni__trainer_begin(trainer, asked, true, &iterator->run, err);
    if (status < 0) {
        free(iterator);
        return status;
    }
    status = uni__follower_new(&iterator->follower, iterator->run->writer, err);
    if (status < 0) {
        iterator->run->state = UNI__RUN_DONE;
        uni_result_free(uni__run_end(iterator->run));
        uni__trainer_ended(trainer);
        free(iterator);
        return status;
    }
    if (trainer->options.lockstep) /* ranks are waited for, however long they take */
        uni__follower_limits_set(
            iterator->follower,
            &(uni__follower_limits){ .patience_ms = -1, .window = -1, .most = -1 });
    uni__group_post(trainer->group, uni__run_begin, iterator->run);
    *out = iterator;
    return 0;
}

static void release_taken(uni_iterator *iterator)
{
    if (iterator->taken && iterator->run && iterator->trainer->options.lockstep)
        uni__run_release(iterator->run, iterator->attempt, iterator->taken);
    iterator->taken = 0;
}

/* The run is over and everything was given: the result. */
static int conclude(uni_iterator *iterator, uni_error *err)
{
    if (iterator->run) {
        uni__outcome_wait(&iterator->run->outcome);
        uni__follower_free(iterator->follower);
        iterator->follower = NULL;
        iterator->result = uni__run_end(iterator->run);
        iterator->run = NULL;
        iterator->finished = true;
        uni__trainer_ended(iterator->trainer);
    }
    if (!iterator->result)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the result");
    const uni_error *failure = uni_result_info_of(iterator->result)->error;
    if (failure->code < 0 && err)
        *err = *failure;
    return failure->code;
}

int uni_iterator_next_within(const uni_reports **reports, uni_iterator *iterator, double seconds,
                             uni_error *err)
{
    double deadline = (double)uni__monotonic_ns() * 1e-9 + seconds;
    *reports = NULL;
    if (!iterator->run)
        return conclude(iterator, err);
    release_taken(iterator);
    for (;;) {
        bool done = uni__outcome_is_over(&iterator->run->outcome);
        double left = (deadline - (double)uni__monotonic_ns() * 1e-9) * 1e3;
        int wait = done || left <= 0 ? 0 : left < LOOK_UP_MS ? (int)left + 1 : LOOK_UP_MS;
        int found = uni__follower_next(iterator->follower, wait, reports, err);
        if (found > 0) {
            iterator->taken = (*reports)->iteration;
            iterator->attempt = (*reports)->attempt;
            return 1;
        }
        if (found < 0 && found != UNI_EEND)
            return found;
        if (done)
            return conclude(iterator, err);
        if (left <= 0)
            return uni_error_set(err, UNI_ETIMEOUT, "no report within %g s", seconds);
    }
}

bool uni_iterator_is_finished(const uni_iterator *iterator)
{
    return iterator->finished;
}

int uni_iterator_result(const uni_result **out, uni_iterator *iterator, bool force, uni_error *err)
{
    const uni_reports *ignored;
    *out = NULL;
    if (iterator->run && !force)
        return uni_error_set(err, UNI_ESTATE,
                             "the run is not over: take all reports first, or ask with force");
    int status;
    while ((status = uni_iterator_next(&ignored, iterator, err)) > 0)
        ;
    *out = iterator->result;
    return status;
}

void uni_iterator_free(uni_iterator *iterator)
{
    if (!iterator)
        return;
    if (iterator->run) {
        uni_trainer_stop(iterator->trainer, true);
        (void)!conclude(iterator, NULL);
    }
    uni_result_free(iterator->result);
    free(iterator);
}
