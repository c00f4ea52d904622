/*
 * shared.h - what tensor shares with our other libraries, the command and the Python extension. Not
 * installed: programs see include/unisono.
 */
#ifndef UNISONO_TENSOR_SHARED_H
#define UNISONO_TENSOR_SHARED_H

#include "base/compiler.h"
#include <unisono/ops.h>
#include <unisono/tensor.h>

/* Keras's name in any case ("relu", "ReLU", "silu" ...; NULL is linear) to the kind; -1 when there
 * is none such. */
UNI__SHARED int uni__activation_from_name(const char *name);
const char *uni__activation_name(uni_activation kind);
/* Makes the weights live in the caller's memory (for example pages shared between ranks) of
 * uni_parameters_weights' size, 64-byte aligned; with `adopt` its contents become the values,
 * otherwise the values are copied there. NULL: back to own memory. */
UNI__SHARED UNI_MUST_USE int uni__parameters_rehome(uni_parameters *store, float *memory,
                                                    bool adopt, uni_error *err);
/* Runs of neighbouring unfrozen weights in the flat buffer: what an optimizer updates and an
 * all-reduce moves. Returns how many there are; writes at most `max`. */
typedef struct uni__span {
    size_t begin, end; /* floats */
} uni__span;
UNI__SHARED size_t uni__parameters_trainable(const uni_parameters *store, uni__span *spans,
                                             size_t max);
UNI__SHARED uni_parameters *uni__gradients_store(const uni_gradients *gradients);
/* uni__parameters_trainable without the weights that the last backward pass changed itself. */
size_t uni__gradients_trainable(const uni_gradients *gradients, uni__span *spans, size_t max);
/* As uni__parameters_rehome: contents move to the caller's memory (64-byte aligned,
 * uni_gradients_data's size, good until the next rehome or the end), or with NULL back to own
 * memory. Own memory is given back while it is not used. */
UNI__SHARED UNI_MUST_USE int uni__gradients_rehome(uni_gradients *gradients, float *memory,
                                                   uni_error *err);
UNI__SHARED int uni__tape_threads(const uni_tape *tape);
/* The threads of the tape's kernels, for other loops of the thread that uses the tape. */
typedef struct uni__helpers uni__helpers;
UNI__SHARED uni__helpers *uni__tape_helpers(const uni_tape *tape);
UNI__SHARED const uni_step *uni__tape_step(const uni_tape *tape);
/* Whether the operations from here on run as in training, for a layer that is called with
 * training=True or False of its own. Returns what it was before. */
UNI__SHARED bool uni__tape_set_training(uni_tape *tape, bool training);
/* The name that errors and profiles carry, as "model/dense_1"; enter and leave in pairs. The text
 * is borrowed until leave. */
void uni__tape_enter(uni_tape *tape, const char *name);
void uni__tape_leave(uni_tape *tape);
/* The sum of what uni_tape_add_loss added; NULL: nothing. */
uni_tensor *uni__tape_added_losses(uni_tape *tape);
/* Time in kernels since profiling began, by operation. */
typedef struct uni__profile_entry {
    const char *operation; /* "dense", "conv backward weights" ... */
    uint64_t calls;
    double seconds;
    double flops; /* floating-point operations, 0 where it makes no sense */
} uni__profile_entry;
UNI__SHARED void uni__tape_profile(uni_tape *tape, bool on); /* clears */
UNI__SHARED size_t uni__tape_profile_read(const uni_tape *tape, uni__profile_entry *entries,
                                          size_t max);
size_t uni__tape_bytes(const uni_tape *tape); /* memory that the tape holds */
/* What the sigmoid or softmax that made the tensor was applied to; NULL when neither made it, or
 * when the backward pass has released it. */
UNI__SHARED const uni_tensor *uni__tensor_logits(const uni_tensor *tensor);
/* Says so of a copy. Both are of one tape and one shape. */
UNI__SHARED void uni__tensor_set_logits(uni_tensor *tensor, uni_tensor *logits);
/* Warns that what (a loss, a metric) has from_logits and such a tensor. */
void uni__warn_not_logits(const char *what);
/* "(64, 128)" into out, always terminated; returns out. */
#define UNI__SHAPE_TEXT_SIZE 160
const char *uni__shape_text(char out[UNI__SHAPE_TEXT_SIZE], int ndim, const int64_t *shape);
UNI__SHARED float *uni__parameters_states(const uni_parameters *store, size_t *size);

#endif
