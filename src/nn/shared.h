/*
 * shared.h - what nn shares with our other libraries, the command and the Python extension. Not
 * installed: programs see include/unisono.
 */
#ifndef UNISONO_NN_SHARED_H
#define UNISONO_NN_SHARED_H

#include "base/compiler.h"
#include <unisono/callbacks.h>
#include <unisono/layers.h>
#include <unisono/losses.h>
#include <unisono/nn.h>
#include <unisono/nn_dataset.h>
#include <unisono/optimizers.h>
#include <unisono/experimental/custom_layer.h>

UNI__SHARED const uni_layer_class *uni__layer_class_of(const uni_layer *layer);
UNI__SHARED bool uni__layer_is_built(const uni_layer *layer);
UNI__SHARED bool uni__layer_is_trainable(const uni_layer *layer);
UNI__SHARED size_t uni__layer_num_children(const uni_layer *layer);
UNI__SHARED const uni_spec *uni__layer_output(const uni_layer *layer); /* NULL before build */
UNI__SHARED UNI_MUST_USE int uni__layer_get_config(const uni_layer *layer, uni_value **out,
                                                   uni_error *err);
UNI__SHARED const char *uni__loss_name(const uni_loss *loss);
UNI__SHARED uni_reduction uni__loss_reduction(const uni_loss *loss);
UNI__SHARED UNI_MUST_USE int uni__loss_get_config(const uni_loss *loss, uni_value **out,
                                                  uni_error *err);
/* From Keras's class_name and config. */
UNI__SHARED UNI_MUST_USE int uni__loss_from_config(uni_loss **out, const char *class_name,
                                                   const uni_value *config, uni_error *err);
/* How `loss` came from the losses per example that this step computed last, as its value tells:
 * the sum over the replica's examples divided by the global batch (right), by the replica's own
 * number of examples (wrong when there are more replicas), or twice; with or without the
 * regularisation of uni_model_regularization. */
typedef enum uni__loss_division {
    UNI__LOSS_DIVISION_UNKNOWN = 0, /* something else */
    UNI__LOSS_DIVISION_RIGHT,
    UNI__LOSS_DIVISION_BY_REPLICA,
    UNI__LOSS_DIVISION_TWICE,
    UNI__LOSS_PENALTY_UNSCALED /* right, but every replica adds the whole regularisation */
} uni__loss_division;
UNI__SHARED uni__loss_division uni__loss_check_division(uni_tape *tape, const uni_tensor *loss,
                                                        int64_t global_batch_size,
                                                        int num_replicas);
/* From Keras's class_name and config, with all that Keras's classes can (thresholds, class_id,
 * summation_method ...). */
UNI__SHARED UNI_MUST_USE int uni__metric_from_config(uni_metric **out, const char *class_name,
                                                     const uni_value *config, uni_error *err);
/* Where there are several results (one a class, one a threshold): writes at most `max` and returns
 * how many there are. */
UNI__SHARED size_t uni__metric_values(const uni_metric *metric, double *values, size_t max);
/* The additive state: confusion matrices row by row (target, prediction). */
UNI__SHARED double *uni__metric_state(uni_metric *metric, size_t *size);
UNI__SHARED void uni__metric_merge(uni_metric *into, const uni_metric *from);
UNI__SHARED uni_metric *
uni__metric_copy(const uni_metric *metric); /* same settings, empty state; NULL: no memory */
/* This call of the layer always runs as in training (dropout that stays on in predict), or never
 * does; without it the step decides. Returns the symbol. */
UNI__SHARED uni_symbol *uni__symbol_training(uni_symbol *symbol, bool training);
UNI__SHARED uint64_t uni__model_seed(const uni_model *model);
/* Random bits that are this model's from its making to its end: unlike its address they do not
 * come again with another one. */
UNI__SHARED uint64_t uni__model_id(const uni_model *model);
/* A hint: the next reset is to epoch `first`, and those up to `end` (not with it) follow, each
 * read to its end. Sources that read ahead begin with it now, and go on from one epoch to the next
 * without a pause; reset is still to be called, and tells what went wrong. The present epoch is
 * given up. */
UNI__SHARED void uni__batches_expect(uni_batches *batches, uint64_t first, uint64_t end);
/* Training steps so far: the number that dropout and the like are keyed by. A strategy whose steps
 * run elsewhere sets it. */
UNI__SHARED int64_t uni__model_steps(const uni_model *model);
UNI__SHARED void uni__model_set_steps(uni_model *model, int64_t steps);
/* Where a fit stands, besides the model's own state: epoch, history, what callbacks remember,
 * whether it is stopping. get: inside of a fit, best in a callback's after_epoch; UNI_ESTATE
 * elsewhere. set: for the next fit of this model, which then goes on as if it had not been
 * interrupted. Its initial_epoch must be the state's "epoch"; otherwise the state is left out with
 * a warning. drop: the next fit begins anew, without one. */
UNI__SHARED UNI_MUST_USE int uni__model_get_fit_state(const uni_model *model, uni_value **out,
                                                      uni_error *err);
UNI__SHARED UNI_MUST_USE int uni__model_set_fit_state(uni_model *model, const uni_value *state,
                                                      uni_error *err);
UNI__SHARED void uni__model_drop_fit_state(uni_model *model);
UNI__SHARED bool uni__model_is_stopping(const uni_model *model);
/* A fit that pauses ends after a step that all its processes agree on, with UNI_EPREEMPTED, without
 * validation and without the callbacks of an end: another process goes on from its state. The state
 * can then be taken after any step. can: in fit, where the processes have the weights. pause: this
 * process wants it. is: in a callback's after_batch, the agreed step. */
UNI__SHARED bool uni__model_can_pause(const uni_model *model);
UNI__SHARED void uni__model_pause(uni_model *model);
UNI__SHARED bool uni__model_is_pausing(const uni_model *model);
/* In fit: the epoch of the next step. */
UNI__SHARED int uni__model_epoch(const uni_model *model);
/* Shard `shard` of the same batches, for strategies: in the global order its part of every global
 * batch; in the block order a range of rows of its own, as many batches for all shards (rows are
 * counted once), whose sizes add up to the global one; after a filter over rows its part of what
 * all shards read; by_files: of its own files. What is sharded already (uni__dataset_is_sharded,
 * or num_shards in `data`) stays as it is. UNI_EUNSUPPORTED when it must be cut out of the whole:
 * batches that do not come from a dataset, a stream (unless by_files), fewer rows in a batch than
 * shards. `whole` stays the caller's and may be freed first. */
UNI__SHARED UNI_MUST_USE int uni__batches_dataset_part(uni_batches **out, const uni_batches *whole,
                                                       int shard, int num_shards, bool by_files,
                                                       uni_error *err);
/* As uni__model_id. */
UNI__SHARED uint64_t uni__optimizer_id(const uni_optimizer *optimizer);
/* For loops that add up the gradients of `steps` batches before they apply them: how many wait.
 * Schedules count batches, as in Keras. compile and fit do it by themselves. */
UNI__SHARED void uni__optimizer_set_accumulation(uni_optimizer *optimizer, int steps, int waiting);
/* Slots, for files and checkpoints: "momentum", "velocity" ...; flat, in the store's layout; NULL
 * before the first step. */
UNI__SHARED size_t uni__optimizer_num_slots(const uni_optimizer *optimizer);
const char *uni__optimizer_slot_name(const uni_optimizer *optimizer, size_t slot);
UNI__SHARED float *uni__optimizer_slot(const uni_optimizer *optimizer, size_t slot, size_t *size);
/* Makes the slots now (before loading). */
UNI__SHARED UNI_MUST_USE int uni__optimizer_build(uni_optimizer *optimizer, uni_parameters *store,
                                                  uni_error *err);
/* Makes the slots live in the caller's memory, one behind the other, `stride` floats each (at
 * least a slot's size; lines of 64 bytes); with `adopt` its contents become the values. NULL: back
 * to own memory, which is given up meanwhile. */
UNI__SHARED UNI_MUST_USE int uni__optimizer_rehome(uni_optimizer *optimizer, float *memory,
                                                   size_t stride, bool adopt, uni_error *err);
UNI__SHARED UNI_MUST_USE int uni__optimizer_get_config(const uni_optimizer *optimizer,
                                                       uni_value **out, uni_error *err);
UNI__SHARED UNI_MUST_USE int uni__optimizer_from_config(uni_optimizer **out, const char *class_name,
                                                        const uni_value *config, uni_error *err);
int uni__callback_stopped_epoch(const uni_callback *callback); /* 0: it did not stop */
/* Takes the child and builds it. */
UNI__SHARED UNI_MUST_USE int uni__layer_add_child(uni_layer *layer, uni_layer *child,
                                                  const char *name, int num_inputs,
                                                  const uni_spec *inputs, uni_spec *output,
                                                  uni_error *err);
UNI__SHARED uni_layer *uni__layer_child(const uni_layer *layer, size_t index);
/* From Keras's class_name and config; classes that are not supported are UNI_EUNSUPPORTED with the
 * class' name. */
UNI__SHARED UNI_MUST_USE int uni__layer_from_config(uni_layer **out, const char *class_name,
                                                    const uni_value *config, uni_error *err);
UNI__SHARED const char *uni__metric_name(const uni_metric *metric);
UNI__SHARED bool uni__model_is_built(const uni_model *model);
UNI__SHARED const char *uni__model_name(const uni_model *model);
UNI__SHARED int uni__model_num_inputs(const uni_model *model);
UNI__SHARED int uni__model_num_outputs(const uni_model *model);
UNI__SHARED const uni_spec *uni__model_input_spec(const uni_model *model, int index);
UNI__SHARED const uni_spec *uni__model_output_spec(const uni_model *model, int index);
UNI__SHARED int64_t uni__batches_length(const uni_batches *batches);
UNI__SHARED int64_t uni__batches_samples(const uni_batches *batches); /* -1: unknown */
/* Keras's JSON ("class_name", "config", "compile_config" ...). */
UNI__SHARED UNI_MUST_USE int uni__model_get_config(uni_value **out, const uni_model *model,
                                                   uni_error *err);
UNI__SHARED UNI_MUST_USE int uni__model_read_config(uni_model **out, const uni_value *config,
                                                    uni_error *err);
/* NAN and *err when a function of the program's own failed, or gave a rate that is not finite. */
double uni__schedule_at(const uni_schedule *schedule, int64_t step, uni_error *err);
UNI__SHARED const char *uni__optimizer_name(const uni_optimizer *optimizer);
UNI__SHARED void uni__optimizer_set_iterations(uni_optimizer *optimizer, int64_t iterations);
UNI__SHARED uni_tensor *uni__layer_call(const uni_layer *layer, uni_tape *tape, int num_inputs,
                                        uni_tensor *const *inputs);

#endif
