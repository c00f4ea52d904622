/*
 * internal.h - a member's view of a parameter-server run, shared by the files of this folder.
 *
 * Every member has a uni__ps. The coordinator's has the queue of calls (queue.c), a worker's its
 * exchange with the coordinator (worker.c), a server's its shard (serve.c). The first two are
 * clients of the servers (client.c).
 */
#ifndef UNISONO_STRATEGY_SERVER_INTERNAL_H
#define UNISONO_STRATEGY_SERVER_INTERNAL_H

#include <unisono/experimental/coordinator.h>

#include "tensor/shared.h"
#include "strategy/server/board.h"
#include "strategy/server/carrier.h"
#include "strategy/server/cluster.h"
#include "strategy/server/store.h"

typedef struct uni__ps uni__ps;

#define UNI__PS_HISTOGRAM 32
typedef struct uni__ps_stats {
    double updates, duplicates, staleness[UNI__PS_HISTOGRAM];
} uni__ps_stats;

/* ---- coordinator: calls under way (queue.c) ---- */

typedef enum uni__server_call_state {
    UNI__CALL_DONE, /* or never used */
    UNI__CALL_QUEUED,
    UNI__CALL_RUNNING
} uni__server_call_state;

/* status and the result's bytes, or the error message. */
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
    /* Id of the next call; all below `low` are done. */
    uint64_t next, low;
    /* By lane: no queued call of that lane is below it. */
    uint64_t *first;
    /* Synchronous: one per worker, and call i belongs to worker i % workers. Otherwise 1. */
    int lanes;
    uni__server_link *links; /* to the workers */
    /* By worker: number of the last question whose result was taken. */
    uint32_t *heard;
    int64_t rescheduled;
    bool ending;
    /* The first error of any call that was not reported yet. */
    uni_error error;
} uni__queue;

/* ---- worker: its next call (worker.c) ---- */

typedef struct uni__work {
    uint64_t id;
    uint32_t function, flags;
    const void *arguments; /* valid until the next call is requested */
    size_t size;
} uni__work;

typedef struct uni__worker {
    uni__server_link link; /* to the coordinator */
    /* waited: the worker was idle before the last call arrived. */
    bool outstanding, waited;
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
    /* Over hosts: when the cluster's messages were last read. */
    uint64_t looked_ns;
    bool placed;
    uni_model *model;
    uni_optimizer *optimizer;
    uint64_t model_id, optimizer_id;
    uint32_t epoch; /* incarnation of this member */
    uint32_t phase; /* fit calls and coordinators so far */
    bool in_phase, all_here, warned_missing;
    uint64_t begun_ns;
    /* Coordinator: since when a member that left is needed; 0: none is. */
    uint64_t left_ns;
    uni__server_link *servers; /* coordinator and workers: one per server */
    uint64_t version; /* of the model's weights */
    struct uni__pass *pass; /* worker: the current pass */
    uni__queue *queue; /* coordinator */
    uni__worker worker;
    struct uni__server *server;
    uni__ps_stats stats; /* coordinator: as of the last phase */
};

/* parameter_server.c */
/* Takes ownership of the cluster, even on failure. */
int uni__ps_new(uni__ps **out, const uni__cluster *cluster,
                const uni_parameter_server_options *options, uni_error *err) UNI_MUST_USE;
bool uni__ps_is_coordinator(const uni__ps *ps);
bool uni__ps_is_worker(const uni__ps *ps);
bool uni__ps_is_synchronous(const uni__ps *ps);
/* Parts of a step: the number of workers when synchronous, otherwise 1. */
int uni__ps_lanes(const uni__ps *ps);
/* Either may be NULL if another call places it. The members meet once both are known. */
int uni__ps_place(uni__ps *ps, uni_model *model, uni_optimizer *optimizer,
                  uni_error *err) UNI_MUST_USE;
int uni__ps_must_be_placed(const uni__ps *ps, uni_error *err) UNI_MUST_USE;
void uni__ps_free(uni__ps *ps);
void uni__ps_begin_phase(uni__ps *ps);
/* On the coordinator, this ends the phase for all members. */
void uni__ps_end_phase(uni__ps *ps);
bool uni__ps_phase_over(const uni__ps *ps);
/* The coordinator admits members, including restarted ones. Fails when the run is over. Does not
 * wait. */
int uni__ps_attend(uni__ps *ps, uni_error *err) UNI_MUST_USE;
/* On a member: fails when another process has taken its place. */
int uni__ps_check_life(const uni__ps *ps, uni_error *err) UNI_MUST_USE;
/* Attends, then sleeps until the bell rings or a moment has passed. seen: the bell's value before
 * the caller looked. */
int uni__ps_idle(uni__ps *ps, uint32_t seen, uni_error *err) UNI_MUST_USE;
int uni__ps_stats_value(const uni__ps *ps, uni_value **out, uni_error *err) UNI_MUST_USE;
uni__ps *uni__ps_of(const uni_strategy *strategy);

/* shards.c */
void uni__ps_cut_shards(uni_parameters *store, int servers, bool whole_parameters,
                        uni__span *spans);
int uni__ps_make_shape(const uni__ps *ps, uni__server_board_shape *shape,
                       uni_error *err) UNI_MUST_USE;

/* client.c */
enum { UNI__PULL_FOR_STEP = 1 };
/* Copies weights and states into the placed model. version: the one to get (synchronous steps),
 * otherwise the newest. */
int uni__ps_pull(uni__ps *ps, int flags, uint64_t version, uni_error *err) UNI_MUST_USE;
typedef struct uni__push {
    uint64_t id, number;
    const float *gradient; /* the whole flat buffer */
    bool has_states; /* includes the model's states */
    double samples;
    /* What the step reports. On a repeated push, replaced by what was pushed first. */
    double *sums;
    size_t num_sums;
    bool want_weights;
} uni__push;
int uni__ps_push(uni__ps *ps, const uni__push *push, uni_error *err) UNI_MUST_USE;
/* Replaces `values` by their sums over all parts of the step. */
int uni__ps_sum(uni__ps *ps, uint64_t id, uint32_t number, float *values, size_t count,
                uni_error *err) UNI_MUST_USE;
/* 1: every server has applied the push of this call, and `sums` are those of that push. 0: at least
 * one has not. */
int uni__ps_query(uni__ps *ps, uint64_t id, double *sums, size_t num_sums,
                  uni_error *err) UNI_MUST_USE;
/* Coordinator: also copies the optimizer's state into the placed model. */
int uni__ps_pull_state(uni__ps *ps, uni_error *err) UNI_MUST_USE;
int uni__ps_fetch_stats(uni__ps *ps, uni_error *err) UNI_MUST_USE;
/* Coordinator: sets the learning rate of the servers' updates from now on. */
int uni__ps_set_rate(uni__ps *ps, double rate, uni_error *err) UNI_MUST_USE;

/* values.c: encodes the arguments and results of step functions, which may contain arrays. */
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
bool uni__ps_progress(uni__ps *ps); /* true: made progress */
/* Synchronous, before waiting for a call: if only a partly scheduled step is left, adds empty
 * parts. */
int uni__ps_complete_step(uni__ps *ps, uni_error *err) UNI_MUST_USE;
/* Waits until at most `left` calls are under way; returns the first error of any. */
int uni__ps_join(uni__ps *ps, uint64_t left, uni_error *err) UNI_MUST_USE;
/* Ends a phase, possibly after an error: waits for calls that have begun, and withdraws the
 * rest. */
void uni__ps_end_calls(uni__ps *ps);
/* Whether the worker has a call without a result. */
bool uni__ps_worker_has_call(const uni__ps *ps, int worker);
void uni__ps_worker_is_back(uni__ps *ps, int worker); /* queues its calls again */

/* worker.c */
/* 1: a call; 0: over. */
int uni__ps_next_work(uni__ps *ps, uni__work *out, uni_error *err) UNI_MUST_USE;
int uni__ps_set_result(uni__ps *ps, int status, const void *data, size_t size,
                       uni_error *err) UNI_MUST_USE;

/* feed.c: calls that name a batch (fit and passes) */
typedef struct uni__batch_call {
    /* The epoch passed to the reset of the source, and the number of the batch since. */
    uint64_t epoch, batch;
    int64_t step; /* of the model: part of the random key */
} uni__batch_call;
typedef struct uni__server_feed {
    /* The user's source, or one made from the user's arrays. */
    uni_batches *global;
    /* The current epoch + 1, and the next batch. */
    uint64_t positioned, next;
} uni__server_feed;
/* Gets the next call whose step is not done yet: 1; 0: over. */
int uni__server_feed_call(uni__ps *ps, uni__work *work, uni__batch_call *call,
                          uni_error *err) UNI_MUST_USE;
int uni__server_feed_batch(uni__server_feed *feed, const uni__ps *ps, const uni__batch_call *call,
                           uint64_t id, uni_batch *out, uni_error *err) UNI_MUST_USE;

/* pass.c */
int uni__ps_pass(uni_strategy *strategy, const uni_pass_options *options, double *sum,
                 int64_t *steps, uni_error *err) UNI_MUST_USE;
/* apply_gradients inside a pass: keeps the gradients, to be pushed after the step function
 * returns. */
int uni__ps_keep_gradients(uni__ps *ps, uni_gradients *gradients, uni_error *err) UNI_MUST_USE;

/* fit.c */
/* Calls per worker that the coordinator schedules ahead. */
#define UNI__PS_AHEAD 4
int uni__ps_fit(uni__ps *ps, uni_model *model, const uni_fit_options *options, uni_value **history,
                uni_error *err) UNI_MUST_USE;

#endif
