/*
 * loss.h - losses, metrics and their Keras configs, for the files of src/nn only. The public side
 * is unisono/losses.h.
 *
 * uni__X_to_value gives what Keras writes in a compile_config: a name, or {"module", "class_name",
 * "config", "registered_name"}; uni__X_from_value takes either.
 */
#ifndef UNISONO_NN_LOSS_H
#define UNISONO_NN_LOSS_H

#include <unisono/losses.h>

#include "nn/loss/names.h"

const char *
uni__loss_class_name(const uni_loss *loss); /* "BinaryCrossentropy"; NULL: the user's own */
/* A loss or metric of the user's own is UNI_EUNSUPPORTED. */
int uni__loss_to_value(const uni_loss *loss, uni_value **out, uni_error *err) UNI_MUST_USE;
int uni__loss_from_value(uni_loss **out, const uni_value *value, uni_error *err) UNI_MUST_USE;
int uni__metric_to_value(const uni_metric *metric, uni_value **out, uni_error *err) UNI_MUST_USE;
int uni__metric_from_value(uni_metric **out, const uni_value *value, uni_error *err) UNI_MUST_USE;

/* ---- objects.c: Keras's frame around a config ---- */

/* Takes the config. */
int uni__object_new(uni_value **out, const char *module, const char *class_name, uni_value *config,
                    uni_error *err) UNI_MUST_USE;
/* The class' name and its config (NULL when there is none); a string is its own name. NULL when it
 * is neither. */
const char *uni__object_class(const uni_value *value, const uni_value **config);

#endif
