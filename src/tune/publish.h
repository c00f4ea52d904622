/*
 * publish.h - a finished experiment in TensorBoard's hparams page and as MLflow's parent and child runs ("sinks" of a spec).
 *
 * Written once, at the end, out of the journal: trials run at thousands a second and make no files of their own, and a tuner that is killed leaves nothing half told, because its
 * successor writes all of it. Thread: the owner's.
 */
#ifndef UNISONO_TUNE_PUBLISH_H
#define UNISONO_TUNE_PUBLISH_H

#include "tune/experiment.h"

/* A list of "tensorboard", "mlflow", or {"type": one of them, options...}; NULL is allowed. */
int uni__sinks_check(const uni_value *sinks, uni_error *err) UNI_MUST_USE;
/* The journal must be on the disk. A sink that fails is a warning: the results are in the journal. */
int uni__publish(const uni_tune_results *results, uni_error *err) UNI_MUST_USE;

#endif
