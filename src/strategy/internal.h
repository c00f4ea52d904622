/* internal.h - what a strategy is made of. Only for this module. */
#ifndef UNISONO_STRATEGY_INTERNAL_H
#define UNISONO_STRATEGY_INTERNAL_H

#include <pthread.h>
#include <sched.h>
#include <unisono/strategy.h>

typedef enum uni__strategy_kind {
    UNI__STRATEGY_NONE,
    UNI__STRATEGY_MIRRORED,
    UNI__STRATEGY_ONE_DEVICE,
    UNI__STRATEGY_MULTI_WORKER,
    UNI__STRATEGY_PARAMETER_SERVER
} uni__strategy_kind;

/* Optimizers that were placed, by their ids: an address may come again with another one. */
typedef struct uni__seen {
    uint64_t *ids;
    size_t count;
} uni__seen;

/* A model under the strategy. */
typedef struct uni__placed {
    uint64_t model; /* its id */
    uint64_t optimizer; /* of what it was compiled with; 0: not compiled then */
} uni__placed;

/* The pages that ranks of one host share while fit runs (fused.c). */
typedef struct uni__fused {
    bool on;
    bool whole; /* clipping by norm: every rank needs the whole sum */
    uni_comm_buffer *pages; /* weights, then the optimizer's slots, `stride` floats each */
    uni_comm_buffer *gradients; /* one a rank */
    size_t size, stride, slots;
    uni_model *model;
    uni_gradients *moved; /* those that live in `gradients` now */
    uni_span slice; /* of the flat buffer: what this rank updates */
    int64_t most_replicas; /* in a process, of all ranks */
    uni_comm_buffer *factors; /* see factors.c; NULL: none were needed yet */
    size_t factor_floats; /* of a rank */
    double
        samples; /* of the last global batch; 0: there was none. The same on all ranks, as all that comes from a sum */
} uni__fused;

typedef struct uni__replica_team uni__replica_team;

struct uni_strategy {
    uni__strategy_kind kind;
    struct uni__ps *server; /* parameter_server (server/internal.h) */
    int replicas; /* threads in this process */
    uni_comm *comm;
    bool owns_comm;
    int rank, size; /* of the communicator; 0 and 1 without */
    int check_every;
    bool pinned; /* runs on `cpus` only */
    cpu_set_t cpus;
    uni_device *devices; /* one a replica when they were named */
    uni_replica replica; /* multi_worker: what fit gets */
    uni__placed *placed;
    size_t num_placed;
    uni__seen optimizers;
    struct uni__part *parts; /* the sources that are cut already (distribute.c) */
    uni__fused fused;
    uni__replica_team *crew; /* replicas of loops of one's own; made by the first run */
    uint64_t steps; /* training steps of loops of one's own */
    bool warned_twice, warned_mean, warned_penalty;
    uni_error ended; /* multi_worker: what ended it; its ranks cannot meet any more */
};

/* strategy.c */
bool uni__seen_has(const uni__seen *seen, uint64_t id);
const uni__placed *uni__placed_find(const uni_strategy *strategy, const uni_model *model);
/* A call failed on this rank: the others must not wait for it, and hear its sentence. Returns the status. */
int uni__give_up(uni_strategy *strategy, int status, const uni_error *err);
/* An error when an earlier call has ended the strategy so. */
int uni__check_alive(const uni_strategy *strategy, uni_error *err) UNI_MUST_USE;

/* agree.c: numbers that must be the same on all ranks. */
#define UNI__NOT_KNOWN INT64_MIN /* this rank cannot tell: not compared */
typedef struct uni__common {
    const char *what; /* "batches an epoch": the end of "rank 1 has 3 ..." */
    int64_t value;
    const char *advice;
    bool is_hash; /* the number itself says nothing: `what` is "another ..." */
} uni__common;
int uni__agree(uni_strategy *strategy, const uni__common *rows, size_t count,
               uni_error *err) UNI_MUST_USE;
/* Of arrays: types, shapes and contents, of large ones samples of them. UNI__NOT_KNOWN: there are none. */
int64_t uni__hash_columns(int count, const uni_column *columns);
int uni__agree_on_model(uni_strategy *strategy, const uni_model *model,
                        uni_error *err) UNI_MUST_USE;

/* devices.c: the calling thread on the strategy's CPUs, and back. */
void uni__pin(const uni_strategy *strategy, const uni_device *device, cpu_set_t *before);
void uni__unpin(const uni_strategy *strategy, const cpu_set_t *before);
/* Threads for the kernels of this process: OMP_NUM_THREADS, or its share of the CPUs when other workers are on this host. */
int uni__process_threads(const uni_strategy *strategy);
int uni__device_cpus(cpu_set_t *out, const uni_device *device);

/* multi_worker.c */
void uni__multi_worker_init(uni_strategy *strategy, bool local_statistics);
/* Sums `gradients` over all ranks, the trainable spans only. */
int uni__sum_gradients(uni_strategy *strategy, uni_gradients *gradients,
                       uni_error *err) UNI_MUST_USE;
/* Are the ranks' weights and moving averages still the same bits? */
int uni__check_drift(uni_strategy *strategy, const uni_parameters *store,
                     uni_error *err) UNI_MUST_USE;
/* Fit callbacks: `first` and `last` of the list. They compare the ranks' weights every check_every steps, and let the chief's
 * callbacks at an epoch's end run before those of the others, who share its weights. */
int uni__multi_worker_callbacks(uni_fit_callback **first, uni_fit_callback **last,
                                uni_strategy *strategy, uni_error *err) UNI_MUST_USE;

/* fused.c: moves the model's weights and its optimizer's state into shared pages; end brings them back (together: when all ranks do
 * so, so that it may wait for them). */
int uni__fused_begin(uni_strategy *strategy, uni_model *model, uni_error *err) UNI_MUST_USE;
int uni__fused_end(uni_strategy *strategy, bool together, uni_error *err) UNI_MUST_USE;
/* Gradients go into the shared buffer before all meet; the sum of this rank's slice after it. */
int uni__fused_adopt(uni_strategy *strategy, uni_gradients *gradients, uni_error *err) UNI_MUST_USE;
int uni__fused_sum(uni_strategy *strategy, uni_span piece, uni_error *err) UNI_MUST_USE;
/* Does the optimizer clip by a norm, for which it must see the whole gradient? */
int uni__clips_by_norm(const uni_optimizer *optimizer, bool *out, uni_error *err) UNI_MUST_USE;

/* pass.c: a pass has found no batch. */
int uni__no_batch(const uni_pass_options *options, uni_error *err) UNI_MUST_USE;

/* factors.c: uni_replica's. */
size_t uni__factors_least(void *context);
int uni__factors_show(void *context, const uni_factored *mine, size_t count, uni_error *err);
int uni__factors_take(void *context, const uni_factored *mine, size_t count, size_t which,
                      uni_factors *all, uni_error *err);

/* distribute.c */
/* Was the source made by uni_strategy_distribute? */
bool uni__is_part(const uni_strategy *strategy, const uni_batches *batches);
/* The strategy ends; sources that it cut go on without it. */
void uni__parts_forget(uni_strategy *strategy);
/* Samples [begin, end) of a batch, with their place in the global one. */
uni_batch uni__batch_part(const uni_batch *whole, int64_t begin, int64_t end);

/* run.c, replica.c */
typedef struct uni__memory uni__memory; /* gradients of one model, see replica.c */
typedef struct uni__counted {
    uni_metric *into, *mine;
} uni__counted;

struct uni_replica_context {
    uni_strategy *strategy;
    uni__replica_team *crew;
    int local; /* among the replicas of this process */
    uni_comm *peers; /* the replicas of this process; NULL: one */
    uni_tape *tape;
    uni_sync sync;
    uni_batch part;
    int64_t global;
    uni__memory *memory; /* of the models that were trained, a list */
    uni__memory *current; /* of the step under way; NULL: it does not train */
    uni__counted *counted; /* metrics that were updated in this run */
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
    int count, started;
    bool ending;
    uni_comm **peers; /* count of them; NULL when there is one replica */
    pthread_t *threads;
    uni_replica_context *replicas;
    uni_replica_function function;
    void *context;
    const uni_batch *batch;
    uni_per_replica values;
};

/* uni_strategy_run, and what a pass over parameter servers runs on a worker. */
int uni__run_replicas(uni_strategy *strategy, uni_replica_function function, void *context,
                      const uni_batch *batch, const uni_per_replica **values,
                      uni_error *err) UNI_MUST_USE;
void uni__replica_team_free(uni__replica_team *crew);
void uni__memory_free(uni__memory *memory);

#endif
