/*
 * native.h - what the scenarios of native workers share: a small noisy model, its data, running it
 * under a strategy, comparing what came out.
 */
#ifndef UNISONO_TESTS_NATIVE_H
#define UNISONO_TESTS_NATIVE_H

#include <unisono/native.h>

#include "../train/scenario.h"

#define SAMPLES 101
#define FEATURES 8
#define EPOCHS 3
#define BATCH 32

/* Dense, batch normalisation, dropout, dense, with a regulariser; not compiled. frozen: the first
 * layer is. */
int native_model(uni_model **out, bool frozen, uni_error *err) UNI_MUST_USE;
void native_data(float *x, float *y);
uni_column native_x(const float *x), native_y(const float *y);
/* Runs the function "train" with this config (taken). */
uni_result *native_run(uni_program *program, int workers, uni_value *config);
/* Of two results' "weights", "loss" and "val_loss". */
double native_difference(const uni_value *a, const uni_value *b);
/* "weights" of the model into a result. */
int native_return_weights(uni_value *result, const uni_model *model, uni_error *err) UNI_MUST_USE;

#endif
