/*
 * loss.h - losses, metrics and their Keras configs, for the files of src/nn only. The public header
 * is unisono/losses.h.
 *
 * uni__X_to_value gives what Keras writes in a compile_config: a name, or {"module", "class_name",
 * "config", "registered_name"}; uni__X_from_value takes either.
 */
#ifndef UNISONO_NN_LOSS_H
#define UNISONO_NN_LOSS_H

#include <unisono/losses.h>

#include "nn/loss/names.h"

/* "BinaryCrossentropy"; NULL: user-defined. */
const char *uni__loss_class_name(const uni_loss *loss);
/* A user-defined loss or metric is UNI_EUNSUPPORTED. */
int uni__loss_to_value(const uni_loss *loss, uni_value **out, uni_error *err) UNI_MUST_USE;
int uni__loss_from_value(uni_loss **out, const uni_value *value, uni_error *err) UNI_MUST_USE;
int uni__metric_to_value(const uni_metric *metric, uni_value **out, uni_error *err) UNI_MUST_USE;
int uni__metric_from_value(uni_metric **out, const uni_value *value, uni_error *err) UNI_MUST_USE;

/* ---- objects.c: Keras's wrapper around a config ---- */

/* Takes ownership of the config. */
int uni__object_new(uni_value **out, const char *module, const char *class_name, uni_value *config,
                    uni_error *err) UNI_MUST_USE;
/* The name of the class and its config (NULL if there is none); a string is its own name. NULL if
 * it is neither. */
const char *uni__object_class(const uni_value *value, const uni_value **config);

#endif
