/*
 * trials.h - what a tuner needs besides sinks: one trial's sinks without a sink thread, the
 * experiment's page in TensorBoard, and the MLflow run that is the parent of others.
 *
 *   uni_sink_tensorboard(&sink, &(uni_sink_tensorboard_options){ .dir = "DIR/trial_00000" }, err);
 *   uni__sink_feed(sink, &info, reports, count, &finish, err);
 *
 * Thread: the caller's.
 */
#ifndef UNISONO_TRACK_TRIALS_H
#define UNISONO_TRACK_TRIALS_H

#include <unisono/track.h>

/* start, every report, finish. Stops at the first failure. */
int uni__sink_feed(uni_sink *sink, const uni_start_info *info, const uni_reports *reports,
                   size_t count, const uni_finish_info *finish, uni_error *err) UNI_MUST_USE;

/* The run that an MLflow sink has created; NULL before its start. Valid while the sink lives. */
const char *uni__sink_mlflow_run(const uni_sink *sink);

/* Writes the columns of the hparams page as an event file in dir. configs: dictionaries, for the
 * names and types of the parameters; metrics: a list of names. */
int uni__tensorboard_experiment(const char *dir, const char *name, double created,
                                const uni_value *const *configs, size_t count,
                                const uni_value *metrics, uni_error *err) UNI_MUST_USE;

#endif
