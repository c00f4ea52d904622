/*
 * model.h - a small network for the digits: 64 pixels, 32 hidden units with ReLU, 10 classes with softmax.
 *
 * Plain C with the gradients written out, because the trainer needs none of it: a model is something that can train for an epoch, predict,
 * and be saved as bytes. The native engine takes this file's place by keeping these four functions.
 *
 * Random numbers are a function of (seed, member, epoch, index), not of a generator's state, so that a run that went on from a checkpoint
 * ends with the same bits as one that was never interrupted.
 */
#ifndef DIGITS_MODEL_H
#define DIGITS_MODEL_H

#include <unisono/value.h>

#include "dataset.h"

typedef struct digits_model digits_model;

/* member: which network of the ensemble; it decides the first weights and which resample of the images it learns from. */
UNI_MUST_USE int digits_model_new(digits_model **out, uint64_t seed, int member, uni_error *err);
void digits_model_free(digits_model *model);
/* One pass over the member's own resample, batches of 16, SGD with momentum 0.9. Returns the mean loss. */
double digits_model_train_epoch(digits_model *model, const digits_part *part, int epoch, double lr);
/* probabilities: DIGITS_CLASSES numbers. */
void digits_model_predict(const digits_model *model, const float *pixels, float *probabilities);
/* Weights and momentum as bytes, and back. */
uni_value *digits_model_save(const digits_model *model);
UNI_MUST_USE int digits_model_load(digits_model *model, const uni_value *saved, uni_error *err);

#endif
