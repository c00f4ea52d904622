/*
 * native.h - a native worker: the session and the engine together.
 *
 * What a train function on the native backend needs in addition to its model: the strategy by name,
 * reports from fit, the model's state in checkpoints. In libunisono-native.so, which links the core
 * and the engine.
 *
 * Thread rule: as the session, one thread at a time.
 *
 * @example
 * uni_strategy *strategy = NULL;
 * uni_model *model = NULL;
 * uni_callback *report = NULL;
 * int epoch = 0;
 * UNI_TRY(uni_strategy_open(&strategy, "multi_worker", session, err));
 * UNI_TRY(uni_sequential_new(
 *     &model, "line",
 *     UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 1 }), uni_layer_dense(1, NULL)),
 *     err));
 * UNI_TRY(uni_model_compile(
 *     model, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "mse" }, err));
 * UNI_TRY(uni_session_restore_model(&epoch, session, model, err));
 * UNI_TRY(uni_strategy_place(strategy, model, err));
 * UNI_TRY(uni_callback_report_checkpoint(&report, session, 1, err));
 * float x[64] = { 0 }, y[64] = { 0 };
 * uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ 64, 1 }, x),
 *                           uni_column_view(UNI_F32, 2, (const int64_t[]){ 64, 1 }, y) };
 * UNI_TRY(uni_strategy_fit(NULL, strategy, model,
 *                          &(uni_fit_options){ .x = &columns[0],
 *                                              .num_x = 1,
 *                                              .y = &columns[1],
 *                                              .num_y = 1,
 *                                              .callbacks = &report,
 *                                              .num_callbacks = 1,
 *                                              .initial_epoch = epoch,
 *                                              .epochs = 10 },
 *                          err));
 * uni_callback_free(report);
 * uni_model_free(model);
 * uni_strategy_free(strategy);
 * @end
 */
#ifndef UNISONO_NATIVE_H
#define UNISONO_NATIVE_H

#include <unisono/callbacks.h>
#include <unisono/session.h>
#include <unisono/strategy.h>

#ifdef __cplusplus
extern "C" {
#endif

/* By name, for a command-line flag: "none", "mirrored", "multi_worker" (over the session's own
 * communicator), "parameter_server" (also "parameter_server:sync", ":async", ":bounded=4"; the
 * run needs .servers). */
UNI_API UNI_MUST_USE int uni_strategy_open(uni_strategy **out, const char *name,
                                           uni_session *session, uni_error *err);
/* Parameter servers (experimental/coordinator.h has loops of one's own) over the members of the
 * session's run. options may be NULL. */
UNI_API UNI_MUST_USE int uni_strategy_parameter_server(uni_strategy **out, uni_session *session,
                                                       const uni_parameter_server_options *options,
                                                       uni_error *err);
#define UNI_CHECKPOINT_NEVER (-1)
/* Keras-style callback that reports the logs of every epoch to the session, with the state of
 * the model and of the fit (history, callbacks) as a checkpoint on the chief every `every`
 * epochs (0: 1; UNI_CHECKPOINT_NEVER). The run's policy may ask for checkpoints between epochs'
 * ends as well (every_steps, every_seconds). When the run is told to stop (SIGTERM, Ctrl-C, time
 * limit), fit returns UNI_EPREEMPTED after one of the next steps, and the checkpoint of that step
 * is there to resume from. */
UNI_API UNI_MUST_USE int uni_callback_report_checkpoint(uni_callback **out, uni_session *session,
                                                        int every, uni_error *err);
/* Loads the state of the session's checkpoint into the model; *epoch is the epoch to continue
 * with (0: from the beginning). A fit with that initial_epoch ends as if it had not been
 * interrupted: same history, same callback decisions, same files. */
UNI_API UNI_MUST_USE int uni_session_restore_model(int *epoch, uni_session *session,
                                                   uni_model *model, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
