/*
 * loop.h - shared by fit, evaluate and predict: the source of batches, checks of a batch against
 * the model, logs. For src/nn/model only; the model's thread.
 */
#ifndef UNISONO_NN_LOOP_H
#define UNISONO_NN_LOOP_H

#include "nn/callbacks/callback.h"
#include "nn/model/runner.h"

/* The context of batches of that class; NULL for any other class. */
void *uni__batches_self(const uni_batches *batches, const uni_batches_class *class_);

/* Batches, and whether we must free them. */
typedef struct uni__fit_source {
    uni_batches *batches;
    bool own;
    int64_t batch_size; /* 0: unknown */
    uni_batch first; /* taken to build the model; used before the next one */
    bool has_first;
} uni__fit_source;

/* From options->batches, or x and y cut to [begin, end) samples. */
int uni__fit_source_open(uni__fit_source *source, const uni_fit_options *options, bool shuffle,
                         uint64_t seed, int64_t begin, int64_t end, uni_error *err) UNI_MUST_USE;
void uni__fit_source_close(uni__fit_source *source);
/* Builds the model from the first batch if it is not built yet. */
int uni__fit_source_build(uni__fit_source *source, uni_model *model, uni_error *err) UNI_MUST_USE;
/* Returns 1, 0 at the end, or an error. */
int uni__fit_source_next(uni__fit_source *source, uni_batch *out, uni_error *err);
int uni__fit_source_reset(uni__fit_source *source, uint64_t epoch, uni_error *err) UNI_MUST_USE;

/* Checks the number of inputs and targets, and that all columns have batch->size samples. */
int uni__check_batch(const uni_model *model, const uni_batch *batch, bool targets,
                     uni_error *err) UNI_MUST_USE;
/* Checks that the model is compiled with a loss; creates the names. */
int uni__check_compiled(uni_model *model, uni_error *err) UNI_MUST_USE;
/* If the batch contains NaN or infinity, returns an error that says where. */
int uni__check_finite(const uni_batch *batch, int64_t step, uni_error *err) UNI_MUST_USE;

/* Runs a whole source through the model as a test; results are in model->compiled. updater NULL:
 * alone; otherwise UNI__STEP_RECUT: reset the source and repeat. */
int uni__test_source(uni_model *model, uni__fit_source *source, const uni_fit_options *options,
                     int64_t steps, const uni__updater *updater, const uni__callbacks *callbacks,
                     uni_error *err) UNI_MUST_USE;

/* fit_state.c: the position of a fit. */

/* A batch of a source: the number of the reset, and how many batches came before it since. With
 * steps_per_epoch the source continues from epoch to epoch without a reset. */
typedef struct uni__place {
    int64_t reset, batch;
} uni__place;

typedef struct uni__moment {
    uni__callbacks callbacks;
    const struct uni__updater *updater; /* NULL: alone */
    uni_value *history;
    int first_epoch; /* of the history */
    int epoch; /* of the next batch */
    int64_t batch; /* its number in that epoch */
    bool resumed; /* resumed from a state */
    int64_t length, samples; /* of an epoch; negative: not known. With others only the length */
    /* In the source: the next batch, and the first batch whose gradient waits for an update
     * (gradient_accumulation_steps). */
    uni__place next, first_waiting;
    int64_t waiting_steps; /* the model's steps before that batch */
    int waiting; /* number of waiting batches */
    bool knows_waiting; /* False: the first one is from an earlier fit and cannot be read again. */
} uni__moment;
/* Resumes from model->resume if it matches initial_epoch: history, callbacks, totals of a partial
 * epoch, whether it stops. The moment says where to continue. */
int uni__moment_resume(uni__moment *moment, uni_model *model, int initial_epoch,
                       uni_error *err) UNI_MUST_USE;

/* Converts the totals of a partial epoch to a list, and back. */
int uni__totals_get(uni_model *model, uni_value **out, uni_error *err) UNI_MUST_USE;
int uni__totals_set(uni_model *model, const uni_value *totals, uni_error *err) UNI_MUST_USE;

/* {"loss": ...} of the current totals. */
int uni__results_dict(const uni_model *model, uni_value **out, uni_error *err) UNI_MUST_USE;

#endif
