/*
 * experimental/coordinator.h - parameter servers: the strategy parameter_server, and loops of one's
 * own over it (tf.distribute's ClusterCoordinator).
 *
 * Experimental: this header may change in any release, and the ABI policy of docs/c.md does not
 * cover its functions (version node UNISONO_EXPERIMENTAL).
 *
 * A run with .servers = S (`unisono run --servers S`) has a coordinator (the chief, rank 0), its
 * workers and S servers, and all of them run the same train function. The weights and the
 * optimizer's state are cut into S shards, one a server. Workers read weights, compute gradients
 * and push them; a server applies each push exactly once. uni_strategy_fit does all this for
 * Model.fit. In a loop of one's own the coordinator schedules calls of step functions, which run on
 * whichever worker is free; the other members serve:
 *
 * Asynchronous (the default): every push is an update. Bounded: the same, but between a worker's
 * read and its update there are never more than `staleness` others; readers wait for that.
 * Synchronous: the pushes of all workers make one update, and the result is that of one process
 * with the whole batch, to rounding.
 *
 * A worker's death costs time only: its call is scheduled again and it is started again, alone. A
 * server that dies comes back with everything that was applied, from the replica of its shard. The
 * coordinator's death restarts the run from its checkpoint.
 *
 * Thread rule: one thread at a time. Calls are handed to workers inside these functions: a
 * coordinator that computes for long by itself lets them run dry.
 *
 * In libunisono-native.so, which links the core and the engine.
 *
 * @example
 * uni_coordinator *coordinator = NULL;
 * uni_strategy *strategy = NULL;
 * uni_remote_value *loss = NULL;
 * const uni_value *number = NULL;
 * uni_step_entry steps[] = { { "train_step", NULL, NULL }, { NULL, NULL, NULL } };
 * UNI_TRY(uni_strategy_open(&strategy, "parameter_server", session, err));
 * UNI_TRY(uni_coordinator_open(&coordinator, strategy, steps, err));
 * if (!uni_coordinator_is_here(coordinator))
 *     UNI_TRY(uni_coordinator_serve(coordinator, err));
 * else {
 *     UNI_TRY(uni_coordinator_schedule(&loss, coordinator, "train_step", NULL, err));
 *     UNI_TRY(uni_coordinator_join(coordinator, err));
 *     UNI_TRY(uni_remote_value_fetch(&number, loss, err));
 * }
 * uni_remote_value_free(loss);
 * uni_coordinator_close(coordinator);
 * uni_strategy_free(strategy);
 * @end
 */
#ifndef UNISONO_EXPERIMENTAL_COORDINATOR_H
#define UNISONO_EXPERIMENTAL_COORDINATOR_H

#include <unisono/strategy.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- step functions, on workers ---- */

typedef struct uni_step_context uni_step_context;
/* Runs on a worker. arguments: what was given to schedule, or NULL. *result (may stay NULL):
 * numbers, strings, arrays, lists, dictionaries, up to 4 MB. An error comes out of join. It may
 * run twice when a worker dies; its pushes count once. */
typedef int (*uni_step_function)(uni_step_context *step, const uni_value *arguments,
                                 uni_value **result, uni_error *err);
typedef struct uni_step_entry {
    const char *name; /* NULL ends the list */
    uni_step_function call;
    void *context;
} uni_step_entry;

typedef struct uni_step_info {
    void *context; /* the entry's */
    int worker; /* which worker this is, from 0 */
    int num_workers;
    uint64_t number; /* of this call, from 0 */
} uni_step_info;
UNI_API const uni_step_info *uni_step_info_of(const uni_step_context *step);
/* The newest weights into the placed model. */
UNI_API UNI_MUST_USE int uni_step_pull(uni_step_context *step, uni_error *err);
/* Hands over the gradient of a *sum* over `samples` samples; the server's optimizer gets gradient
 * / samples. In synchronous mode once a call. */
UNI_API UNI_MUST_USE int uni_step_push(uni_step_context *step, uni_gradients *gradients,
                                       double samples, uni_error *err);
/* The next batch of this worker's dataset (uni_coordinator_per_worker_dataset): 1, or 0 at its
 * end, after which it begins again. */
UNI_API UNI_MUST_USE int uni_step_next(uni_batch *out, uni_step_context *step, const char *dataset,
                                       uni_error *err);

/* ---- the coordinator ---- */

typedef struct uni_coordinator uni_coordinator;
typedef struct uni_remote_value uni_remote_value;

/* On every member, after uni_strategy_place. entries is borrowed while the coordinator is open. */
UNI_API UNI_MUST_USE int uni_coordinator_open(uni_coordinator **out, uni_strategy *strategy,
                                              const uni_step_entry *entries, uni_error *err);
UNI_API bool uni_coordinator_is_here(const uni_coordinator *coordinator);
/* On workers and servers: works until the coordinator closes. */
UNI_API UNI_MUST_USE int uni_coordinator_serve(uni_coordinator *coordinator, uni_error *err);
/* On every member: how a worker makes its own dataset when a step function first asks for it. */
typedef int (*uni_dataset_function)(void *context, int worker, int num_workers, uni_batches **out,
                                    uni_error *err);
UNI_API UNI_MUST_USE int uni_coordinator_per_worker_dataset(uni_coordinator *coordinator,
                                                            const char *name,
                                                            uni_dataset_function make,
                                                            void *context, uni_error *err);

/* Queues one call; waits only when very many are queued. remote may be NULL. Returns the error of
 * an earlier call, once. */
UNI_API UNI_MUST_USE int uni_coordinator_schedule(uni_remote_value **remote,
                                                  uni_coordinator *coordinator,
                                                  const char *function, const uni_value *arguments,
                                                  uni_error *err);
/* Waits for all calls; the first error of any. */
UNI_API UNI_MUST_USE int uni_coordinator_join(uni_coordinator *coordinator, uni_error *err);
UNI_API bool uni_coordinator_done(
    uni_coordinator
        *coordinator); /* no call is left (or the run is over: join says why); does not wait */
/* The coordinator's own model gets the servers' weights, states and optimizer state: for
 * evaluation and checkpoints. Join first. */
UNI_API UNI_MUST_USE int uni_coordinator_pull(uni_coordinator *coordinator, uni_error *err);
/* {"updates", "duplicates", "restored" (servers that came back), "rescheduled" (calls of dead
 * workers), "staleness": [how many updates had 0, 1, 2 ... others between read and update; the
 * last one counts the rest]}. */
UNI_API UNI_MUST_USE int uni_coordinator_stats(uni_value **out, uni_coordinator *coordinator,
                                               uni_error *err);
UNI_API void uni_coordinator_close(uni_coordinator *coordinator); /* the members' serve returns */

/* Waits for that call; *out is borrowed from the remote value. The call's own error comes out
 * here, too. */
UNI_API UNI_MUST_USE int uni_remote_value_fetch(const uni_value **out, uni_remote_value *remote,
                                                uni_error *err);
UNI_API bool uni_remote_value_is_ready(const uni_remote_value *remote);
UNI_API void uni_remote_value_free(uni_remote_value *remote);

/* The same numbers of a strategy that has trained with fit. */
UNI_API UNI_MUST_USE int uni_strategy_server_stats(uni_value **out, const uni_strategy *strategy,
                                                   uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
