/*
 * strategy.h - how one training step is spread over replicas: none, mirrored (threads of one
 * process), one_device (one core group), multi_worker (the worker processes of a run).
 *
 * The model is built the same way whatever the strategy; uni_strategy_place brings it, and what it
 * was compiled with, under the strategy (the scope of tf.distribute: all replicas begin with the
 * same weights), uni_strategy_fit trains it. batch_size is the global batch. Losses and gradients
 * are reduced as (sum, count) over it, so any number of replicas gives the same result to rounding,
 * uneven last batches and replicas without data included.
 *
 * A loop of one's own is a function that uni_strategy_run calls once for each replica, with the
 * replica's part of the batch; the same function runs under every strategy (docs/strategies.md).
 *
 * Thread rule: one thread at a time; with multi_worker all ranks make the same calls in the same
 * order. What takes a uni_replica_context is called inside of uni_strategy_run by the function that
 * got it.
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
 * UNI_TRY(uni_sequential_new(
 *     &model, "line",
 *     UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 1 }), uni_layer_dense(1, NULL)),
 *     err));
 * UNI_TRY(uni_model_compile(
 *     model, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "mse" }, err));
 * UNI_TRY(uni_strategy_place(strategy, model, err));
 * UNI_TRY(uni_strategy_fit(NULL, strategy, model,
 *                          &(uni_fit_options){ .x = &columns[0],
 *                                              .num_x = 1,
 *                                              .y = &columns[1],
 *                                              .num_y = 1,
 *                                              .batch_size = 32,
 *                                              .epochs = 3 },
 *                          err));
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

/* ---- making strategies ---- */

/* One replica with all threads: fit and loops as without a strategy. */
UNI_API UNI_MUST_USE int uni_strategy_none(uni_strategy **out, uni_error *err);
/* devices: replica threads on this machine; 0: one for each core of the affinity mask. The kernel
 * chooses where they run. */
UNI_API UNI_MUST_USE int uni_strategy_mirrored(uni_strategy **out, int devices, uni_error *err);
/* One replica a device of the list; the replicas run on these CPUs only. */
UNI_API UNI_MUST_USE int uni_strategy_mirrored_on(uni_strategy **out, int count,
                                                  const char *const *devices, uni_error *err);
/* One replica, pinned to one device while it trains. */
UNI_API UNI_MUST_USE int uni_strategy_one_device(uni_strategy **out, const char *device,
                                                 uni_error *err);

#define UNI_CHECK_NEVER (-1)
typedef struct uni_multi_worker_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int replicas; /* threads that share a worker's part of the batch; 0: 1 */
    /* optimizer steps between two checks that all ranks still have the same weights; 0: 100;
     * UNI_CHECK_NEVER */
    int check_every;
    bool
        /* batch normalisation over each rank's own part instead of the global batch */
        local_statistics;
    bool take_comm; /* the communicator is closed with the strategy */
} uni_multi_worker_options;
/* Over a communicator (uni_session_comm gives that of a run), which is borrowed unless
 * take_comm. */
UNI_API UNI_MUST_USE int uni_strategy_multi_worker(uni_strategy **out, uni_comm *comm,
                                                   const uni_multi_worker_options *options,
                                                   uni_error *err);
/* For uni_strategy_parameter_server (native.h). */
typedef enum uni_parameter_server_mode {
    UNI_PS_ASYNCHRONOUS, /* the default, as in TensorFlow */
    UNI_PS_BOUNDED,
    UNI_PS_SYNCHRONOUS
} uni_parameter_server_mode;

typedef struct uni_parameter_server_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    uni_parameter_server_mode mode;
    /* bounded: updates between a read and its own update; 0: none, workers take turns */
    int staleness;
    bool
        /* a server that dies goes back to the last checkpoint; saves its memory (not with
         * synchronous) */
        no_replica;
    /* Seconds until every member must have placed its model, also again after it was restarted or
     * has left fit early; 0: 120. */
    double join_timeout;
} uni_parameter_server_options;
UNI_API void uni_strategy_free(uni_strategy *strategy);

typedef struct uni_strategy_info {
    const char *name; /* "none", "mirrored", "one_device", "multi_worker", "parameter_server" */
    int num_replicas_in_sync; /* over all processes: what the global batch is divided by */
    bool is_chief; /* rank 0, which alone writes summaries and checkpoints */
    /* Processes that train together now, and this one's place among them: what data of one's own is
     * cut by. Both can change in fit (uni_trainer_options.min_workers). */
    int num_workers, worker_index;
} uni_strategy_info;
/* Borrowed until the strategy is freed. */
UNI_API const uni_strategy_info *uni_strategy_info_of(const uni_strategy *strategy);

/* Brings a built (and, for fit, compiled) model under the strategy: rank 0's weights go to all,
 * and its optimizer belongs to the strategy too. A model that was not placed, or was compiled
 * again since, is refused by the calls below. */
UNI_API UNI_MUST_USE int uni_strategy_place(uni_strategy *strategy, uni_model *model,
                                            uni_error *err);
/* The optimizer of a loop of one's own. */
UNI_API UNI_MUST_USE int uni_strategy_place_optimizer(uni_strategy *strategy,
                                                      uni_optimizer *optimizer, uni_error *err);
/* As uni_model_fit; x, y or batches are the whole data on every rank, and each trains on its part
 * of every global batch (a source made by uni_strategy_distribute is taken as it is). Only the
 * chief prints. On one host the weights and the optimizer's state live once, in pages that all
 * ranks share, until fit returns; at the end of an epoch the chief's callbacks run before the
 * other ranks'. */
UNI_API UNI_MUST_USE int uni_strategy_fit(uni_value **history, uni_strategy *strategy,
                                          uni_model *model, const uni_fit_options *options,
                                          uni_error *err);

/* ---- data ---- */

/* How a source that was not cut yet is spread over workers. */
typedef enum uni_auto_shard {
    UNI_SHARD_AUTO = 0, /* as DATA */
    UNI_SHARD_FILE, /* each worker reads its own files of a dataset; an error when it has too few */
    /* each worker takes its part of every global batch; of a dataset it reads its own rows only
     * (nn_dataset.h) */
    UNI_SHARD_DATA,
    UNI_SHARD_OFF /* the source is this worker's own already: taken as it is */
} uni_auto_shard;

/* This process' part of every batch of `global` (borrowed), with its place in the global batch;
 * the parts of its replicas are cut by uni_strategy_run. What was made by this call is never cut
 * again. It is also the explicit iterator: uni_batches_reset begins an epoch, uni_batches_next
 * gives as many steps as one wants. */
UNI_API UNI_MUST_USE int uni_strategy_distribute_dataset(uni_batches **out, uni_strategy *strategy,
                                                         uni_batches *dataset,
                                                         uni_auto_shard policy, uni_error *err);
/* The same with UNI_SHARD_AUTO. */
static inline UNI_MUST_USE int uni_strategy_distribute(uni_batches **out, uni_strategy *strategy,
                                                       uni_batches *global, uni_error *err)
{
    return uni_strategy_distribute_dataset(out, strategy, global, UNI_SHARD_AUTO, err);
}

/* ---- loops of one's own ---- */

/* One replica inside of uni_strategy_run. */
typedef struct uni_replica_context uni_replica_context;
/* What one replica does with its part of the batch (maybe no samples at all: it still takes part).
 * Runs on the replica's own thread. */
typedef int (*uni_replica_function)(uni_replica_context *replica, const uni_batch *batch,
                                    void *context, uni_error *err);
/* What each replica of this process returned; good until the next run. */
typedef struct uni_per_replica uni_per_replica;

/* Calls the function once for each replica of this process, each with its part of `batch` (from
 * uni_strategy_distribute), and waits for all. values may be NULL. When one fails all do, with its
 * error. */
UNI_API UNI_MUST_USE int uni_strategy_run(const uni_per_replica **values, uni_strategy *strategy,
                                          uni_replica_function function, void *context,
                                          const uni_batch *batch, uni_error *err);

typedef struct uni_replica_info {
    int id; /* 0 to num_replicas - 1 */
    int num_replicas; /* num_replicas_in_sync */
    /* Samples that all replicas have together in this step; where each worker has data of its own
     * (UNI_SHARD_OFF) they are counted */
    int64_t global_batch;
} uni_replica_info;
UNI_API const uni_replica_info *uni_replica_info_of(const uni_replica_context *replica);
/* Begins a step of this replica and returns its tape: seed is of dropout; a model that is not
 * under the strategy is an error on the tape. model may be NULL for what has no weights. */
UNI_API uni_tape *uni_replica_begin(uni_replica_context *replica, uni_model *model, bool training,
                                    uint64_t seed);
/* Gradients of the loss (which must be divided by the global batch: uni_compute_average_loss),
 * summed over all replicas, and the same update everywhere. The sums of what is ready begin while
 * the backward pass still runs. */
UNI_API UNI_MUST_USE int uni_replica_apply_gradients(uni_replica_context *replica, uni_tensor *loss,
                                                     uni_optimizer *optimizer, uni_error *err);
/* Adds to the metric what this replica saw. weights may be NULL. */
UNI_API UNI_MUST_USE int uni_replica_update_metric(uni_replica_context *replica, uni_metric *metric,
                                                   const uni_tensor *target,
                                                   const uni_tensor *prediction,
                                                   const uni_tensor *weights, uni_error *err);
/* What this replica's function gives back: copied. The last call counts. */
UNI_API UNI_MUST_USE int uni_replica_return(uni_replica_context *replica, const uni_tensor *value,
                                            uni_error *err);

typedef enum uni_replica_op { UNI_REPLICA_SUM, UNI_REPLICA_MEAN } uni_replica_op;
#define UNI_AXIS_NONE (-1)
/* What the replicas returned as one value: axis UNI_AXIS_NONE adds it up element by element (all
 * must have the same number of elements; MEAN divides by the replicas); axis 0 adds up the rows,
 * too (MEAN divides by the rows of all replicas, so parts of different size are right). out has
 * room for `count` numbers, and as many there must be. */
UNI_API UNI_MUST_USE int uni_strategy_reduce(double *out, size_t count, uni_strategy *strategy,
                                             uni_replica_op op, const uni_per_replica *values,
                                             int axis, uni_error *err);
/* The same for numbers that a process has once: sum or mean over the processes. */
UNI_API UNI_MUST_USE int uni_strategy_reduce_numbers(uni_strategy *strategy, uni_replica_op op,
                                                     double *values, size_t count, uni_error *err);
/* One pass over a source, step by step, under any strategy: the loop of run and reduce as one
 * call. With parameter servers it is the loop: every member calls it, the coordinator schedules
 * one call of the function a batch (in synchronous mode one a worker), and the workers run it. */
typedef struct uni_pass_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    uni_replica_function function;
    void *context;
    uni_batches *
        batches; /* from uni_strategy_distribute; with parameter servers the same on every member */
    uint64_t epoch; /* of the source */
    uni_metric *const *metrics; /* that the function updates (parameter servers add them up) */
    int num_metrics;
} uni_pass_options;
/* *sum (may be NULL): of the number that replicas returned, over all replicas and batches; *steps
 * (may be NULL): batches. With parameter servers both, the metrics and the model's weights are
 * good on the coordinator only. */
UNI_API UNI_MUST_USE int uni_strategy_pass(double *sum, int64_t *steps, uni_strategy *strategy,
                                           const uni_pass_options *options, uni_error *err);
/* uni_metric_result over all workers. */
UNI_API UNI_MUST_USE int uni_strategy_metric_result(double *out, uni_strategy *strategy,
                                                    const uni_metric *metric, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
