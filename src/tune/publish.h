/*
 * publish.h - exports a finished experiment to TensorBoard's hparams page and as MLflow's parent
 * and child runs ("sinks" of a spec).
 *
 * Written once, at the end, from the journal: trials run at thousands per second and make no files
 * of their own. A tuner that is killed leaves no partial export, because its successor writes all
 * of it. Thread: the owner's.
 */
#ifndef UNISONO_TUNE_PUBLISH_H
#define UNISONO_TUNE_PUBLISH_H

#include "tune/experiment.h"

/* A list of "tensorboard", "mlflow", or {"type": one of them, options...}; NULL is allowed. */
int uni__sinks_check(const uni_value *sinks, uni_error *err) UNI_MUST_USE;
/* The journal must be on disk. A sink that fails is only a warning: the results are in the
 * journal. */
int uni__publish(const uni_tune_results *results, uni_error *err) UNI_MUST_USE;

#endif
