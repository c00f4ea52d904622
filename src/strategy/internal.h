/* internal.h - the internals of a strategy. Only for this module. */
#ifndef UNISONO_STRATEGY_INTERNAL_H
#define UNISONO_STRATEGY_INTERNAL_H

#include <sched.h>
#include <unisono/strategy.h>

#include "tensor/shared.h"
#include "nn/step.h"
#include "strategy/devices.h"

typedef enum uni__strategy_kind {
    UNI__STRATEGY_NONE,
    UNI__STRATEGY_MIRRORED,
    UNI__STRATEGY_ONE_DEVICE,
    UNI__STRATEGY_MULTI_WORKER,
    UNI__STRATEGY_PARAMETER_SERVER
} uni__strategy_kind;

/* Ids of the optimizers that were placed. An address would not do: another optimizer may reuse
 * it. */
typedef struct uni__seen {
    uint64_t *ids;
    size_t count;
} uni__seen;

/* A model under the strategy. */
typedef struct uni__placed {
    uint64_t model; /* its id */
    /* Id of the optimizer it was compiled with; 0: it was not compiled yet. */
    uint64_t optimizer;
} uni__placed;

/* The pages that ranks of one host share while fit runs (fused.c). */
typedef struct uni__fused {
    bool on;
    /* Weights, then the optimizer's slots, `stride` floats each. */
    uni_comm_buffer *pages;
    uni_comm_buffer *gradients; /* one per rank */
    const float **parts; /* of all ranks, in rank order */
    size_t size, stride, slots;
    uni_model *model;
    uni_gradients *moved; /* those that live in `gradients` now */
    uni__span slice; /* of the flat buffer: what this rank updates */
    double *squares; /* clipping by norm: uni__update.squares; otherwise NULL */
    size_t num_squares;
    int64_t most_replicas; /* in a process, of all ranks */
    uni_comm_buffer *factors; /* see factors.c; NULL: none were needed yet */
    size_t factor_floats; /* of a rank */
    /* Of a global batch, the same on all ranks: what fit's data says, so that a restarted fit
     * decides alike; where it is not known, of the last one (0: there was none). */
    double samples;
    /* The communicator that the buffers are of, when ranks have left it since and the others kept
     * their pages (elastic/meeting.c); closed with them. NULL: the strategy's. */
    uni_comm *home;
} uni__fused;

typedef struct uni__replica_team uni__replica_team;
typedef struct uni__elastic uni__elastic;

struct uni_strategy {
    uni_strategy_info info; /* filled by uni_strategy_info_of */
    uni__strategy_kind kind;
    struct uni__ps *server; /* parameter_server (server/internal.h) */
    int replicas; /* threads in this process */
    uni_comm *comm;
    bool owns_comm;
    int rank, size; /* 0 and 1 without a communicator */
    int check_every;
    bool pinned; /* runs on `cpus` only */
    cpu_set_t cpus;
    uni__device *devices; /* one a replica when they were named */
    uni__updater updater; /* multi_worker: what fit gets */
    uni__placed *placed;
    size_t num_placed;
    uni__seen optimizers;
    struct uni__part *parts; /* sharded sources (distribute.c) */
    uni__fused fused;
    double planned_samples; /* of a global batch of the present fit; 0: not known */
    uni__elastic *elastic; /* NULL: a rank that dies ends the group (elastic.h) */
    /* Replicas of custom training loops; created by the first run. */
    uni__replica_team *crew;
    uint64_t steps; /* training steps of custom loops */
    bool warned_twice, warned_mean, warned_penalty;
    /* multi_worker: the error that ended it. Its ranks cannot synchronize any more. */
    uni_error ended;
};

/* strategy.c */
bool uni__seen_has(const uni__seen *seen, uint64_t id);
const uni__placed *uni__placed_find(const uni_strategy *strategy, const uni_model *model);
/* This rank's call failed: aborts the communicator with the error, so that the others stop waiting.
 * Returns the status. */
int uni__give_up(uni_strategy *strategy, int status, const uni_error *err);
/* Fails when an earlier call has ended the strategy this way. */
int uni__check_alive(const uni_strategy *strategy, uni_error *err) UNI_MUST_USE;

/* agree.c: numbers that must be the same on all ranks. */
#define UNI__NOT_KNOWN INT64_MIN /* not known on this rank, so not compared */
typedef struct uni__common {
    /* "batches an epoch": completes "rank 1 has 3 ...". */
    const char *what;
    int64_t value;
    const char *advice;
    /* The value itself says nothing; `what` is "another ...". */
    bool is_hash;
} uni__common;
int uni__agree(uni_strategy *strategy, const uni__common *rows, size_t count,
               uni_error *err) UNI_MUST_USE;
/* Hashes types, shapes and contents of arrays; large ones are sampled. UNI__NOT_KNOWN: no
 * arrays. */
int64_t uni__hash_columns(int count, const uni_column *columns);
int uni__agree_on_model(uni_strategy *strategy, const uni_model *model,
                        uni_error *err) UNI_MUST_USE;

/* devices.c: the calling thread on the strategy's CPUs, and back. */
void uni__pin(const uni_strategy *strategy, const uni__device *device, cpu_set_t *before);
void uni__unpin(const uni_strategy *strategy, const cpu_set_t *before);
/* Kernel threads of this process: OMP_NUM_THREADS, or its share of the CPUs when other workers are
 * on this host. */
int uni__process_threads(const uni_strategy *strategy);
int uni__device_cpus(cpu_set_t *out, const uni__device *device);

/* multi_worker.c */
void uni__multi_worker_init(uni_strategy *strategy, bool local_statistics);
/* Sums the trainable spans of `gradients` over all ranks. */
int uni__sum_gradients(uni_strategy *strategy, uni_gradients *gradients,
                       uni_error *err) UNI_MUST_USE;
/* Fails unless all ranks have bit-equal weights and moving averages. */
int uni__check_drift(uni_strategy *strategy, const uni_parameters *store,
                     uni_error *err) UNI_MUST_USE;
/* Fit callbacks: `first` and `last` of the list. They compare the ranks' weights every check_every
 * steps, and let the chief's callbacks at an epoch's end run before those of the other ranks, which
 * share its weights. */
int uni__multi_worker_callbacks(uni_callback **first, uni_callback **last, uni_strategy *strategy,
                                uni_error *err) UNI_MUST_USE;

/* fused.c: moves the model's weights and its optimizer's state into shared pages; end moves them
 * back. together: all ranks do so, so that end may wait for them. */
int uni__fused_begin(uni_strategy *strategy, uni_model *model, uni_error *err) UNI_MUST_USE;
/* The same with the weights and the state of rank `source`. */
int uni__fused_move(uni_strategy *strategy, uni_model *model, int source,
                    uni_error *err) UNI_MUST_USE;
/* What `rank` updates of the model in the pages. */
uni__span uni__fused_slice(const uni_strategy *strategy, int rank);
int uni__fused_end(uni_strategy *strategy, bool together, uni_error *err) UNI_MUST_USE;
void uni__fused_free(uni__fused *fused);
/* Before the synchronization: puts this rank's gradients and factors where the others see them. */
int uni__fused_show(uni_strategy *strategy, const uni__trained *trained,
                    uni_error *err) UNI_MUST_USE;
/* After it: updates this rank's slice, and waits until all have updated theirs. */
int uni__fused_update(uni_strategy *strategy, const uni__trained *trained,
                      uni_error *err) UNI_MUST_USE;
/* Clipping by norm: the squares of all slices, added up as the ranks would have. */
int uni__fused_squares(const uni_strategy *strategy, const uni__update *update,
                       uni_error *err) UNI_MUST_USE;

/* pass.c: the error for a pass without a batch. */
int uni__no_batch(const uni_pass_options *options, uni_error *err) UNI_MUST_USE;

/* factors.c: kernels without gradients; uni__factors_least is uni__updater.keep_factors. */
size_t uni__factors_least(void *context);
/* Kernels whose gradients this pass did not compute. */
size_t uni__factors_count(const uni__trained *trained);
/* After the synchronization: whether all ranks' factors are there. */
bool uni__factors_are_shown(const uni_strategy *strategy, const uni__trained *trained);
void uni__factors_show(uni_strategy *strategy, const uni__trained *trained);
int uni__factors_update(uni_strategy *strategy, const uni__update *update,
                        const uni__trained *trained, uni_error *err) UNI_MUST_USE;

/* distribute.c */
/* Whether uni_strategy_distribute made this source. */
bool uni__is_part(const uni_strategy *strategy, const uni_batches *batches);
/* Whether all sources can be cut for another number of ranks; the ranks are others from now on; the
 * present part of the batch that this source gave last. */
bool uni__parts_are_cut(const uni_strategy *strategy);
void uni__parts_resize(uni_strategy *strategy);
int uni__part_again(uni_strategy *strategy, uni_batches *batches, uni_batch *out,
                    uni_error *err) UNI_MUST_USE;
/* Detaches the sources from a strategy that ends; they remain usable. */
void uni__parts_forget(uni_strategy *strategy);
/* Samples [begin, end) of a batch, with their position in the global batch. */
uni_batch uni__batch_part(const uni_batch *whole, int64_t begin, int64_t end);

/* run.c, replica.c */
typedef struct uni__memory uni__memory; /* gradients of one model, see replica.c */
typedef struct uni__counted {
    uni_metric *into, *mine;
} uni__counted;

struct uni_replica_context {
    uni_replica_info info; /* filled by uni_replica_info_of */
    uni_strategy *strategy;
    uni__replica_team *crew;
    int local; /* index among this process's replicas */
    bool pinned; /* its thread is pinned to its device */
    uni_tape *tape;
    uni_sync sync;
    uni_batch part;
    int64_t global;
    uni__memory *memory; /* one per model trained */
    uni__memory *current; /* of the current step; NULL: no training */
    uni__counted *counted; /* metrics updated in this run */
    size_t num_counted;
    double *values; /* what the function returned */
    size_t count, capacity;
    int64_t rows;
    int status;
    uni_error error;
};

struct uni_per_replica {
    uni__replica_team *crew;
};

struct uni__replica_team {
    uni_strategy *strategy;
    int count;
    uni__team *team;
    uni_replica_context *replicas;
    const float **parts; /* gradients of all replicas, in order */
    /* Of the current step; written by replica 0. */
    uni__update update;
    uni_replica_function function;
    void *context;
    const uni_batch *batch;
    uni_per_replica values;
};

/* uni_strategy_run; a pass over parameter servers runs it on each worker. */
int uni__run_replicas(uni_strategy *strategy, uni_replica_function function, void *context,
                      const uni_batch *batch, const uni_per_replica **values,
                      uni_error *err) UNI_MUST_USE;
void uni__replica_team_free(uni__replica_team *crew);
void uni__memory_free(uni__memory *memory);

#endif
