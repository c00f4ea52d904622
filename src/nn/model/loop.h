/*
 * loop.h - what fit, evaluate and predict share: the source of batches, the check of a batch
 * against the model, logs. For src/nn/model only; the model's thread.
 */
#ifndef UNISONO_NN_LOOP_H
#define UNISONO_NN_LOOP_H

#include "nn/callbacks/callback.h"
#include "nn/model/runner.h"

/* What is behind batches of that class; NULL when they are of another. */
void *uni__batches_self(const uni_batches *batches, const uni_batches_class *class_);
int64_t uni__batches_samples(const uni_batches *batches); /* -1 when not known */

/* Batches, and whether they are ours to free. */
typedef struct uni__fit_source {
    uni_batches *batches;
    bool own;
    int64_t batch_size; /* 0 when not known */
    uni_batch first; /* taken to build the model; used before the next one */
    bool has_first;
} uni__fit_source;

/* From options->batches, or x and y cut to [begin, end) samples. */
int uni__fit_source_open(uni__fit_source *source, const uni_fit_options *options, bool shuffle,
                         uint64_t seed, int64_t begin, int64_t end, uni_error *err) UNI_MUST_USE;
void uni__fit_source_close(uni__fit_source *source);
/* Builds the model from the first batch when that is not done yet. */
int uni__fit_source_build(uni__fit_source *source, uni_model *model, uni_error *err) UNI_MUST_USE;
/* 1, 0 at the end, negative: error. */
int uni__fit_source_next(uni__fit_source *source, uni_batch *out, uni_error *err);
int uni__fit_source_reset(uni__fit_source *source, uint64_t epoch, uni_error *err) UNI_MUST_USE;

/* Numbers of inputs and targets, and that all columns have batch->size samples. */
int uni__check_batch(const uni_model *model, const uni_batch *batch, bool targets,
                     uni_error *err) UNI_MUST_USE;
/* The model is compiled with a loss; names are made. */
int uni__check_compiled(uni_model *model, uni_error *err) UNI_MUST_USE;
/* When the batch has NaN or infinity in it: an error that says where. */
int uni__check_finite(const uni_batch *batch, int64_t step, uni_error *err) UNI_MUST_USE;

/* Runs a whole source through the model as a test; results are in model->compiled. */
int uni__test_source(uni_model *model, uni__fit_source *source, const uni_fit_options *options,
                     int64_t steps, const uni__callbacks *callbacks, uni_error *err) UNI_MUST_USE;

/* fit_state.c: where a fit stands. */
typedef struct uni__moment {
    uni__callbacks callbacks;
    uni_value *history;
    int first_epoch; /* of the history */
    int epoch; /* of the next batch */
    int64_t batch; /* its number in that epoch */
} uni__moment;
/* Takes model->resume, when it fits initial_epoch: history, callbacks, totals of a half epoch, whether it stops. The moment says where to go on. */
int uni__moment_resume(uni__moment *moment, uni_model *model, int initial_epoch,
                       uni_error *err) UNI_MUST_USE;

/* {"loss": ...} of the present totals. */
int uni__results_dict(const uni_model *model, uni_value **out, uni_error *err) UNI_MUST_USE;

#endif
