/*
 * store.h - a server's shard: weights, optimizer state, what was applied, and its replica in the members' common memory.
 *
 * Exactly once: a push has the number of its call; the replica keeps which were applied, so that one that comes again (from a worker that took over a dead one's
 * step) changes nothing. A server that dies loses nothing either: before a gradient is applied it is in the replica's log, and every few
 * updates the shard is copied there. Who comes after it takes the newest whole copy and applies the log. Both give the same bits as before.
 */
#ifndef UNISONO_STRATEGY_SERVER_STORE_H
#define UNISONO_STRATEGY_SERVER_STORE_H

#include <unisono/coordinator.h>

#include "strategy/server/board.h"

typedef struct uni__server_store {
    const uni__server_board *board;
    uni__replica *replica;
    int server;
    uni_span span;
    size_t count, num_states, num_slots;
    float *weights; /* of the span, in the model's own memory */
    float *states;
    float *previous, *previous_states; /* synchronous: as they were one update ago */
    uni_optimizer *optimizer;
    uni_gradients *gradients;
    uint64_t version; /* updates applied since the coordinator's first state */
    int snapshot; /* which one is newest */
    bool has_schedule;
} uni__server_store;

int uni__server_store_open(uni__server_store *store, const uni__server_board *board, int server,
                           uni_model *model, uni_optimizer *optimizer, uni_error *err) UNI_MUST_USE;
/* From the replica: what the coordinator put there, or what the server before us left. */
int uni__server_store_restore(uni__server_store *store, uni_error *err) UNI_MUST_USE;
void uni__server_store_close(uni__server_store *store);

bool uni__server_store_has(const uni__server_store *store, uint64_t id, uint64_t number);
/* One update with gradient / samples (count floats; 0 samples: as it is); states NULL: as they are. NO_UPDATE samples: a version more, and nothing else. */
#define UNI__NO_UPDATE (-1.0)
int uni__server_store_apply(uni__server_store *store, uint64_t id, uint64_t number,
                            const float *gradient, double samples, const float *states,
                            uni_error *err) UNI_MUST_USE;

/* The coordinator: the model's present state becomes the servers' first one, or, without a replica, what a lost server goes back to. */
int uni__server_store_publish(const uni__server_board *board, uni_model *model,
                              uni_optimizer *optimizer, uint64_t version,
                              uni_error *err) UNI_MUST_USE;

#endif
