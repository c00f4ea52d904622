/*
 * native.h - a native worker: the session and the engine together.
 *
 * What a train function on the native backend needs besides its model: the strategy by name, reports from fit, the model's state in
 * checkpoints. In libunisono-native.so, which links the core and the engine.
 *
 * Thread rule: as the session, one thread at a time.
 */
#ifndef UNISONO_NATIVE_H
#define UNISONO_NATIVE_H

#include <unisono/callbacks.h>
#include <unisono/session.h>
#include <unisono/strategy.h>

#ifdef __cplusplus
extern "C" {
#endif

/* By name, for one flag of a program: "none", "mirrored", "multi_worker" (over the session's own communicator). */
UNI_API UNI_MUST_USE int uni_strategy_open(uni_strategy **out, const char *name,
                                           uni_session *session, uni_error *err);
/* Keras-style callback that reports the logs of every epoch to the session, with the model's state as checkpoint on the chief every
 * `every` epochs (0: 1; -1: never). */
UNI_API UNI_MUST_USE int uni_callback_report_checkpoint(uni_fit_callback **out,
                                                        uni_session *session, int every,
                                                        uni_error *err);
/* Puts the state of the session's checkpoint into the model; *epoch is the epoch to go on with (0: from the beginning). */
UNI_API UNI_MUST_USE int uni_session_restore_model(uni_session *session, uni_model *model,
                                                   int *epoch, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
