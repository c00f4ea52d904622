/*
 * internal.h - a member's view of a parameter-server run, shared by the files of this folder.
 *
 * Every member has a uni__ps. The coordinator's has the queue of calls (queue.c), a worker's its place in the conversation with the coordinator (worker.c),
 * a server's its shard (serve.c); the first two are clients of the servers (client.c).
 */
#ifndef UNISONO_STRATEGY_SERVER_INTERNAL_H
#define UNISONO_STRATEGY_SERVER_INTERNAL_H

#include <unisono/coordinator.h>

#include "strategy/server/board.h"
#include "strategy/server/carrier.h"
#include "strategy/server/cluster.h"
#include "strategy/server/store.h"

typedef struct uni__ps uni__ps;

#define UNI__PS_HISTOGRAM 32
typedef struct uni__ps_stats {
    double updates, duplicates, staleness[UNI__PS_HISTOGRAM];
} uni__ps_stats;

/* ---- coordinator: calls on their way (queue.c) ---- */

typedef enum uni__server_call_state {
    UNI__CALL_DONE, /* or never used */
    UNI__CALL_QUEUED,
    UNI__CALL_RUNNING
} uni__server_call_state;

/* status and the result's bytes, or the error's sentence. */
typedef void (*uni__server_call_result)(void *context, int status, const void *data, size_t size);

typedef struct uni__server_call {
    uni__server_call_state state;
    uint64_t id;
    uint32_t function;
    int worker, deaths;
    void *arguments;
    size_t size, capacity;
    uni__server_call_result result;
    void *context;
} uni__server_call;

typedef struct uni__queue {
    uni__server_call calls[UNI__PS_WINDOW];
    uint64_t next, low; /* id of the next call; all below low are done */
    uint64_t *first; /* by lane: no queued call of that lane is below it */
    int lanes; /* synchronous: one a worker, call i is worker (i % workers)'s; otherwise 1 */
    uni__server_link *links; /* of the workers */
    uint32_t *heard; /* by worker: number of the question whose result was taken */
    int64_t rescheduled;
    bool ending;
    uni_error error; /* the first of any call that nobody has been told of */
} uni__queue;

/* ---- worker: what it is about to do (worker.c) ---- */

typedef struct uni__work {
    uint64_t id;
    uint32_t function, flags;
    const void *arguments; /* good until the next one is asked for */
    size_t size;
} uni__work;

typedef struct uni__worker {
    uni__server_link link; /* to the coordinator */
    bool outstanding, waited; /* waited: the last call was not there yet when we were free */
    bool has_result;
    int status;
    uint64_t running, result_id;
    uint8_t *result, *arguments;
    size_t result_size;
} uni__worker;

struct uni__ps {
    uni__cluster cluster;
    uni_parameter_server_options options;
    uni__server_board board;
    uni__carrier *carrier; /* over hosts */
    uint64_t looked_ns; /* over hosts: when the mail was last looked at */
    bool placed;
    uni_model *model;
    uni_optimizer *optimizer;
    uint64_t model_id, optimizer_id;
    uint32_t epoch; /* which life of this member */
    uint32_t phase; /* fit calls and coordinators so far */
    bool in_phase, all_here, warned_missing;
    uint64_t begun_ns;
    uint64_t left_ns; /* coordinator: since when a member that left is missed; 0: none is */
    uni__server_link *servers; /* coordinator and workers: one a server */
    uint64_t version; /* of the weights that the model has */
    struct uni__pass *pass; /* worker: the one that it is in */
    uni__queue *queue; /* coordinator */
    uni__worker worker;
    struct uni__server *server;
    uni__ps_stats stats; /* coordinator: as of the last phase */
};

/* parameter_server.c */
/* Takes the cluster, also on failure. */
int uni__ps_new(uni__ps **out, const uni__cluster *cluster,
                const uni_parameter_server_options *options, uni_error *err) UNI_MUST_USE;
bool uni__ps_is_coordinator(const uni__ps *ps);
bool uni__ps_is_worker(const uni__ps *ps);
bool uni__ps_is_synchronous(const uni__ps *ps);
int uni__ps_lanes(const uni__ps *ps); /* parts of a step: workers when synchronous, otherwise 1 */
/* Either may be NULL: it is placed by another call. When both are known the members meet. */
int uni__ps_place(uni__ps *ps, uni_model *model, uni_optimizer *optimizer,
                  uni_error *err) UNI_MUST_USE;
int uni__ps_must_be_placed(const uni__ps *ps, uni_error *err) UNI_MUST_USE;
void uni__ps_free(uni__ps *ps);
void uni__ps_begin_phase(uni__ps *ps);
void uni__ps_end_phase(uni__ps *ps); /* the coordinator's: all members leave it */
bool uni__ps_phase_over(const uni__ps *ps);
/* Lets members in (the coordinator), also those that were restarted. Fails when the run is over. Does not wait. */
int uni__ps_attend(uni__ps *ps, uni_error *err) UNI_MUST_USE;
/* A member: fails when another process has taken its place. */
int uni__ps_check_life(const uni__ps *ps, uni_error *err) UNI_MUST_USE;
/* Attends, and sleeps until the bell rings (seen: before the caller looked), or a moment. */
int uni__ps_idle(uni__ps *ps, uint32_t seen, uni_error *err) UNI_MUST_USE;
int uni__ps_stats_value(const uni__ps *ps, uni_value **out, uni_error *err) UNI_MUST_USE;
uni__ps *uni__ps_of(const uni_strategy *strategy);

/* shards.c */
void uni__ps_cut_shards(uni_parameters *store, int servers, bool whole_parameters, uni_span *spans);
int uni__ps_make_shape(const uni__ps *ps, uni__server_board_shape *shape,
                       uni_error *err) UNI_MUST_USE;

/* client.c */
enum { UNI__PULL_FOR_STEP = 1 };
/* Weights and states into the placed model. version: which (synchronous steps), otherwise the newest. */
int uni__ps_pull(uni__ps *ps, int flags, uint64_t version, uni_error *err) UNI_MUST_USE;
typedef struct uni__push {
    uint64_t id, number;
    const float *gradient; /* whole flat buffer */
    bool has_states; /* the model's states go along */
    double samples;
    double *
        sums; /* what the step reports; replaced by what was pushed first when it was a second time */
    size_t num_sums;
    bool want_weights;
} uni__push;
int uni__ps_push(uni__ps *ps, const uni__push *push, uni_error *err) UNI_MUST_USE;
/* values become the sums over all parts of the step. */
int uni__ps_sum(uni__ps *ps, uint64_t id, uint32_t number, float *values, size_t count,
                uni_error *err) UNI_MUST_USE;
/* 1: the push of this call was applied or taken (sums are those of then), 0: it was not. */
int uni__ps_query(uni__ps *ps, uint64_t id, double *sums, size_t num_sums,
                  uni_error *err) UNI_MUST_USE;
/* Coordinator: the optimizer's state too, into the placed model. */
int uni__ps_pull_state(uni__ps *ps, uni_error *err) UNI_MUST_USE;
int uni__ps_fetch_stats(uni__ps *ps, uni_error *err) UNI_MUST_USE;
/* Coordinator: the servers' updates have this learning rate from now on. */
int uni__ps_set_rate(uni__ps *ps, double rate, uni_error *err) UNI_MUST_USE;

/* values.c: what step functions take and give, arrays among it. */
int uni__ps_encode(void **out, size_t *size, const uni_value *value, uni_error *err) UNI_MUST_USE;
int uni__ps_decode(uni_value **out, const void *data, size_t size, uni_error *err) UNI_MUST_USE;

/* serve.c */
int uni__ps_open_server(uni__ps *ps, uni_error *err) UNI_MUST_USE;
int uni__ps_serve(uni__ps *ps, uni_error *err) UNI_MUST_USE; /* until the phase is over */
void uni__ps_close_server(uni__ps *ps);

/* queue.c */
int uni__ps_open_queue(uni__ps *ps, uni_error *err) UNI_MUST_USE;
void uni__ps_close_queue(uni__ps *ps);
int uni__ps_schedule(uni__ps *ps, uint32_t function, const void *arguments, size_t size,
                     uni__server_call_result result, void *context, uni_error *err) UNI_MUST_USE;
bool uni__ps_progress(uni__ps *ps); /* true: something moved */
/* Synchronous, before waiting for a call: when all that is left is a step of which some parts were not scheduled, empty ones take their place. */
int uni__ps_complete_step(uni__ps *ps, uni_error *err) UNI_MUST_USE;
/* Waits until at most `left` calls are on their way; the first error of any. */
int uni__ps_join(uni__ps *ps, uint64_t left, uni_error *err) UNI_MUST_USE;
/* At the end of a phase, maybe by an error: what was begun is waited for, the rest is taken back. */
void uni__ps_end_calls(uni__ps *ps);
bool uni__ps_worker_has_call(const uni__ps *ps, int worker); /* and has not given its result */
void uni__ps_worker_is_back(uni__ps *ps, int worker); /* its calls are queued again */

/* worker.c */
int uni__ps_next_work(uni__ps *ps, uni__work *out, uni_error *err) UNI_MUST_USE; /* 1, 0: over */
int uni__ps_set_result(uni__ps *ps, int status, const void *data, size_t size,
                       uni_error *err) UNI_MUST_USE;

/* feed.c: calls that name a batch (fit and passes) */
typedef struct uni__batch_call {
    uint64_t epoch, batch; /* of the source: since its last reset, with this number */
    int64_t step; /* of the model: part of the random key */
} uni__batch_call;
typedef struct uni__server_feed {
    uni_batches *global; /* the user's source, or one made of his arrays */
    uint64_t positioned, next; /* epoch + 1 that it is in, and the batch that comes next */
} uni__server_feed;
/* The next call whose step is not done yet: 1, 0: over. */
int uni__server_feed_call(uni__ps *ps, uni__work *work, uni__batch_call *call,
                          uni_error *err) UNI_MUST_USE;
int uni__server_feed_batch(uni__server_feed *feed, const uni__ps *ps, const uni__batch_call *call,
                           uint64_t id, uni_batch *out, uni_error *err) UNI_MUST_USE;

/* pass.c */
int uni__ps_pass(uni_strategy *strategy, const uni_pass_options *options, double *sum,
                 int64_t *steps, uni_error *err) UNI_MUST_USE;
/* apply_gradients inside of a pass: what is pushed when the step function has returned. */
int uni__ps_keep_gradients(uni__ps *ps, uni_gradients *gradients, uni_error *err) UNI_MUST_USE;

/* fit.c */
#define UNI__PS_AHEAD 4 /* calls a worker that the coordinator runs ahead */
int uni__ps_fit(uni__ps *ps, uni_model *model, const uni_fit_options *options, uni_value **history,
                uni_error *err) UNI_MUST_USE;

#endif
