/*
 * servers_common.h - what the scenarios of parameter servers share: train functions ("train": fit,
 * "own_loop": a coordinator's calls, "pass_loop": passes), running them, comparing what came out.
 *
 * Config of the functions: "strategy", "noisy" (dropout, batch normalisation, a regulariser;
 * otherwise a well-posed line), "epochs", "pause_ms", and what each scenario sets besides.
 */
#ifndef UNISONO_TESTS_SERVERS_COMMON_H
#define UNISONO_TESTS_SERVERS_COMMON_H

#include <unisono/native.h>

#include "../train/scenario.h"

#define SAMPLES 101
#define FEATURES 8
#define EPOCHS 4

uni_value *servers_config(const char *strategy, bool noisy);
/* Takes the config. from may be NULL. */
uni_result *servers_run(uni_program *program, const char *function, int workers, int servers,
                        uni_value *config, const char *from);
double servers_number(const uni_value *from, const char *key, size_t i);
/* The largest of weights, and of losses in the first `epochs`. */
double servers_difference(const uni_value *a, const uni_value *b, size_t epochs);

/* Shared by the train functions. optimizer NULL: the model is not compiled. */
int servers_make_model(uni_model **out, bool noisy, const char *optimizer, int accumulate,
                       uni_error *err) UNI_MUST_USE;
void servers_make_data(float *x, float *y);
int servers_own_loop(uni_session *session, uni_value **result, uni_error *err);

#endif
