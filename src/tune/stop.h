/*
 * stop.h - when reports end a trial: {"training_iteration": 10, "accuracy": 0.98} as in Ray (at
 * least), {"loss": {"below": 0.1}}, {"accuracy": {"above": 0.9}}, and {"plateau": {"metric", "std",
 * "num_results", "grace_period"}}. Owner's thread.
 */
#ifndef UNISONO_TUNE_STOP_H
#define UNISONO_TUNE_STOP_H

#include "tune/experiment.h"

int uni__stop_check(const uni_value *stop, const char *metric, uni_error *err) UNI_MUST_USE;
/* true when this report ends the trial; *why names the criterion (points into `stop`). The report
 * is not yet among the trial's own. */
bool uni__stop_reached(const uni_value *stop, const uni__experiment *experiment,
                       const uni__trial *trial, const uni_value *metrics, const char **why);

#endif
