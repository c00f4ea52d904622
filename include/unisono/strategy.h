/*
 * strategy.h - how one training step is spread over replicas: none, mirrored (threads of one process), multi_worker (the
 * worker processes of a run).
 *
 * The model is built the same way whatever the strategy; uni_strategy_place brings it under the strategy (the scope of
 * tf.distribute: all replicas begin with the same weights), uni_strategy_fit trains it. batch_size is the global batch. Losses and
 * gradients are reduced as (sum, count) over it, so any number of replicas gives the same result to rounding, uneven last batches and
 * replicas without data included.
 *
 * Thread rule: one thread at a time; with multi_worker all ranks make the same calls in the same order.
 *
 * In libunisono-native.so, which links the core and the engine.
 *
 * @example
 * uni_strategy *strategy = NULL;
 * uni_model *model = NULL;
 * float x[64] = { 0 }, y[64] = { 0 };
 * uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ 64, 1 }, x),
 *                           uni_column_view(UNI_F32, 2, (const int64_t[]){ 64, 1 }, y) };
 * UNI_TRY(uni_strategy_mirrored(&strategy, 2, err));
 * UNI_TRY(uni_sequential_new(&model, "line", UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 1 }),
 *                                                       uni_layer_dense(1, NULL)), err));
 * UNI_TRY(uni_model_compile(model, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "mse" }, err));
 * UNI_TRY(uni_strategy_place(strategy, model, err));
 * UNI_TRY(uni_strategy_fit(strategy, model, &(uni_fit_options){ .x = &columns[0], .num_x = 1, .y = &columns[1],
 *     .num_y = 1, .batch_size = 32, .epochs = 3 }, NULL, err));
 * uni_model_free(model);
 * uni_strategy_free(strategy);
 * @end
 */
#ifndef UNISONO_STRATEGY_H
#define UNISONO_STRATEGY_H

#include <unisono/comm.h>
#include <unisono/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_strategy uni_strategy;

UNI_API UNI_MUST_USE int uni_strategy_none(uni_strategy **out, uni_error *err);
/* devices: replica threads on this machine; 0: one per CPU of the affinity mask. */
UNI_API UNI_MUST_USE int uni_strategy_mirrored(uni_strategy **out, int devices, uni_error *err);

typedef struct uni_multi_worker_options {
    int replicas; /* threads that share a worker's part of the batch; 0: 1 */
    int check_every; /* optimizer steps between two checks that all ranks still have the same weights; 0: 100; -1: never */
    bool
        local_statistics; /* batch normalisation over each rank's own part instead of the global batch */
    bool take_comm; /* the communicator is closed with the strategy */
} uni_multi_worker_options;
/* Over a communicator (uni_session_comm gives that of a run), which is borrowed unless take_comm. */
UNI_API UNI_MUST_USE int uni_strategy_multi_worker(uni_strategy **out, uni_comm *comm,
                                                   const uni_multi_worker_options *options,
                                                   uni_error *err);
UNI_API void uni_strategy_free(uni_strategy *strategy);

UNI_API const char *uni_strategy_name(const uni_strategy *strategy);
UNI_API int uni_strategy_num_replicas_in_sync(const uni_strategy *strategy);
/* Only the chief (rank 0) writes summaries and checkpoints. */
UNI_API bool uni_strategy_is_chief(const uni_strategy *strategy);

/* Brings a built (and, for fit, compiled) model under the strategy: rank 0's weights go to all. A model that was not placed is refused by
 * the calls below. */
UNI_API UNI_MUST_USE int uni_strategy_place(uni_strategy *strategy, uni_model *model,
                                            uni_error *err);
/* As uni_model_fit; x, y or batches are the whole data on every rank, and each trains on its part of every global batch (a source
 * made by uni_strategy_distribute is taken as it is). Only the chief prints. */
UNI_API UNI_MUST_USE int uni_strategy_fit(uni_strategy *strategy, uni_model *model,
                                          const uni_fit_options *options, uni_value **history,
                                          uni_error *err);

/* For loops of one's own. */
/* This replica's part of every batch of `global` (borrowed), with its place in the global batch. */
UNI_API UNI_MUST_USE int uni_strategy_distribute(uni_strategy *strategy, uni_batches *global,
                                                 uni_batches **out, uni_error *err);
/* For uni_step.sync; NULL when there is one replica or statistics are local. */
UNI_API const uni_sync *uni_strategy_sync(const uni_strategy *strategy);
/* Gradients become the sums over all replicas. */
UNI_API UNI_MUST_USE int uni_strategy_reduce_gradients(uni_strategy *strategy,
                                                       uni_gradients *gradients, uni_error *err);
/* values become their sum or mean over all replicas. */
typedef enum uni_replica_op { UNI_REPLICA_SUM, UNI_REPLICA_MEAN } uni_replica_op;
UNI_API UNI_MUST_USE int uni_strategy_reduce(uni_strategy *strategy, uni_replica_op op,
                                             double *values, size_t count, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
