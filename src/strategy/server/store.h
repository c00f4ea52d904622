/*
 * store.h - a server's shard: weights, optimizer state, the pushes applied, and its replica in the
 * members' shared memory.
 *
 * Exactly once: a push has the number of its call, and the replica records which were applied. So a
 * repeated push (from a worker that took over a dead worker's step) changes nothing. A server that
 * dies loses nothing either: before a gradient is applied, it is in the replica's log, and every
 * few updates the shard is copied there. Its successor takes the newest complete copy and applies
 * the log. Both give the same bits as before.
 */
#ifndef UNISONO_STRATEGY_SERVER_STORE_H
#define UNISONO_STRATEGY_SERVER_STORE_H

#include <unisono/experimental/coordinator.h>

#include "tensor/shared.h"
#include "strategy/server/board.h"

typedef struct uni__server_store {
    const uni__server_board *board;
    uni__replica *replica;
    int server;
    uni__span span;
    size_t count, num_states, num_slots;
    float *weights; /* of the span, in the model's memory */
    float *states;
    /* Synchronous: as they were one update ago. */
    float *previous, *previous_states;
    uni_optimizer *optimizer;
    uni_gradients *gradients;
    /* Updates applied since the coordinator's initial state. */
    uint64_t version;
    int snapshot; /* index of the newest */
    bool has_schedule;
} uni__server_store;

int uni__server_store_open(uni__server_store *store, const uni__server_board *board, int server,
                           uni_model *model, uni_optimizer *optimizer, uni_error *err) UNI_MUST_USE;
/* Restores from the replica: the coordinator's initial state, or what the previous server left. */
int uni__server_store_restore(uni__server_store *store, uni_error *err) UNI_MUST_USE;
void uni__server_store_close(uni__server_store *store);

bool uni__server_store_has(const uni__server_store *store, uint64_t id, uint64_t number);
/* Makes one update with gradient / samples (count floats; 0 samples: undivided). states NULL: they
 * stay as they are. NO_UPDATE samples: only increments the version. */
#define UNI__NO_UPDATE (-1.0)
int uni__server_store_apply(uni__server_store *store, uint64_t id, uint64_t number,
                            const float *gradient, double samples, const float *states,
                            uni_error *err) UNI_MUST_USE;

/* The coordinator: the model's current state becomes the servers' initial state or, without a
 * replica, the state that a lost server returns to. */
int uni__server_store_publish(const uni__server_board *board, uni_model *model,
                              uni_optimizer *optimizer, uint64_t version,
                              uni_error *err) UNI_MUST_USE;

#endif
