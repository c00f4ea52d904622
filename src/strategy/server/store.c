/*
 * store.c - a server's shard (store.h). Called on the server's thread; the coordinator calls
 * uni__server_store_publish.
 *
 * The order of writes decides what a killed server leaves behind: snapshot data, then `complete`; a
 * log entry's data, then its version; then the update itself, in our own memory. A snapshot is
 * taken before the update that follows it. So the log always has the last update, and the weights
 * before it can be restored.
 */
#include "strategy/server/store.h"

#include "nn/step.h"

#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"

/* Without a replica the only copy is the coordinator's, as of the last checkpoint. */
static bool keeps_log(const uni__server_store *store)
{
    return store->board->header->shape.replica != 0;
}

static bool is_synchronous(const uni__server_store *store)
{
    return store->board->header->shape.mode == UNI_PS_SYNCHRONOUS;
}

int uni__server_store_open(uni__server_store *store, const uni__server_board *board, int server,
                           uni_model *model, uni_optimizer *optimizer, uni_error *err)
{
    uni_parameters *parameters = uni_model_parameters(model);
    *store = (uni__server_store){ .board = board, .server = server, .span = board->spans[server] };
    store->replica = uni__server_board_replica(board, server);
    store->optimizer = optimizer;
    store->count = store->span.end - store->span.begin;
    store->num_states = uni__server_board_states_of(board, server);
    store->weights = uni_parameters_weights(parameters, NULL) + store->span.begin;
    store->states = uni__parameters_states(parameters, NULL);
    if (!store->states) /* none to copy, but memcpy wants an address even for no bytes */
        store->states = store->weights;
    UNI_TRY(uni__optimizer_build(store->optimizer, parameters, err));
    UNI_TRY(uni_gradients_new(&store->gradients, parameters, err));
    store->num_slots = uni__optimizer_num_slots(store->optimizer);
    double rate = uni_optimizer_learning_rate(store->optimizer, NULL);
    store->has_schedule =
        uni_optimizer_set_learning_rate(store->optimizer, rate, NULL) == UNI_ESTATE;
    if (!is_synchronous(store))
        return 0;
    store->previous = calloc(store->count + 1, sizeof(float));
    store->previous_states = calloc(store->num_states + 1, sizeof(float));
    return store->previous && store->previous_states
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for a shard of %zu weights",
                               store->count);
}

void uni__server_store_close(uni__server_store *store)
{
    uni_gradients_free(store->gradients);
    free(store->previous);
    free(store->previous_states);
    *store = (uni__server_store){ 0 };
}

static float *slot_of(const uni__server_store *store, size_t slot)
{
    return uni__optimizer_slot(store->optimizer, slot, NULL) + store->span.begin;
}

/* ---- what was applied ---- */

bool uni__server_store_has(const uni__server_store *store, uint64_t id, uint64_t number)
{
    const uni__applied *seen = &store->replica->applied[id % UNI__PS_WINDOW];
    return seen->call == id + 1 && seen->pushes > number;
}

/* Marks more calls as applied by the last update (the parts of a synchronous step). */
static void mark(uni__server_store *store, uint64_t id, uint64_t number)
{
    uni__applied *seen = &store->replica->applied[id % UNI__PS_WINDOW];
    seen->pushes = number + 1;
    seen->call = id + 1;
}

/* ---- replica ---- */

static void take_snapshot(uni__server_store *store)
{
    int which = !store->snapshot;
    uni__replica_snapshot *snapshot = &store->replica->snapshots[which];
    size_t bytes = store->count * sizeof(float);
    atomic_store(&snapshot->complete, 0);
    memcpy(uni__replica_snapshot_data(store->board, store->server, which, 0), store->weights,
           bytes);
    for (size_t i = 0; i < store->num_slots; i++)
        memcpy(uni__replica_snapshot_data(store->board, store->server, which, 1 + i),
               slot_of(store, i), bytes);
    memcpy(uni__replica_snapshot_states(store->board, store->server, which), store->states,
           store->num_states * sizeof(float));
    snapshot->iterations = uni_optimizer_iterations(store->optimizer);
    atomic_store(&snapshot->complete, store->version + 1);
    store->snapshot = which;
}

static void write_log(uni__server_store *store, uint64_t id, uint64_t number, const float *gradient,
                      double samples, const float *states)
{
    uint32_t length = store->board->header->shape.log_length;
    int which = (int)(store->version % length);
    /* An entry may be overwritten only if a complete snapshot is newer. */
    if (which == 0)
        take_snapshot(store);
    uni__replica_entry *entry = &store->replica->entries[which];
    atomic_store(&entry->version, 0);
    memcpy(uni__replica_entry_data(store->board, store->server, which), gradient,
           store->count * sizeof(float));
    if (states)
        memcpy(uni__replica_entry_states(store->board, store->server, which), states,
               store->num_states * sizeof(float));
    entry->id = id;
    entry->number = number;
    entry->samples = samples;
    entry->has_states = states != NULL;
    entry->rate = uni_optimizer_learning_rate(store->optimizer, NULL);
    atomic_store(&entry->version, store->version + 1);
}

static int update(uni__server_store *store, const float *gradient, double samples,
                  const float *states, uni_error *err)
{
    float *flat = uni_gradients_data(store->gradients, NULL);
    if (is_synchronous(store)) {
        memcpy(store->previous, store->weights, store->count * sizeof(float));
        memcpy(store->previous_states, store->states, store->num_states * sizeof(float));
    }
    if (store->count > 0 && samples >= 0)
        memcpy(flat + store->span.begin, gradient, store->count * sizeof(float));
    if (samples >= 0) {
        uni__update step = { .optimizer = store->optimizer, .gradients = store->gradients };
        UNI_TRY(uni__update_begin(&step, samples, err));
        uni__update_slice(&step, store->span);
        uni__update_commit(&step);
    }
    if (states && samples >= 0)
        memcpy(store->states, states, store->num_states * sizeof(float));
    store->version++;
    return 0;
}

static int use_rate(uni__server_store *store, double rate, uni_error *err)
{
    if (store->has_schedule || rate == uni_optimizer_learning_rate(store->optimizer, NULL))
        return 0;
    return uni_optimizer_set_learning_rate(store->optimizer, rate, err);
}

int uni__server_store_apply(uni__server_store *store, uint64_t id, uint64_t number,
                            const float *gradient, double samples, const float *states,
                            uni_error *err)
{
    uni__server_board_header *header = store->board->header;
    if (atomic_load(&header->rate_known)) {
        double rate;
        uint64_t bits = atomic_load(&header->rate);
        memcpy(&rate, &bits, sizeof rate);
        UNI_TRY(use_rate(store, rate, err));
    }
    states = store->num_states > 0 ? states : NULL;
    if (keeps_log(store))
        write_log(store, id, number, gradient, samples, states);
    mark(store, id, number);
    return update(store, gradient, samples, states, err);
}

/* ---- restoring ---- */

static void load_snapshot(uni__server_store *store, int which)
{
    const uni__replica_snapshot *snapshot = &store->replica->snapshots[which];
    size_t bytes = store->count * sizeof(float);
    memcpy(store->weights, uni__replica_snapshot_data(store->board, store->server, which, 0),
           bytes);
    for (size_t i = 0; i < store->num_slots; i++)
        memcpy(slot_of(store, i),
               uni__replica_snapshot_data(store->board, store->server, which, 1 + i), bytes);
    memcpy(store->states, uni__replica_snapshot_states(store->board, store->server, which),
           store->num_states * sizeof(float));
    uni__optimizer_set_iterations(store->optimizer, snapshot->iterations);
    store->snapshot = which;
    store->version = snapshot->complete - 1;
}

static int replay(uni__server_store *store, uni_error *err)
{
    uint32_t length = store->board->header->shape.log_length;
    for (;;) {
        int which = (int)(store->version % length);
        const uni__replica_entry *entry = &store->replica->entries[which];
        if (atomic_load(&entry->version) != store->version + 1)
            return 0;
        UNI_TRY(use_rate(store, entry->rate, err));
        mark(store, entry->id, entry->number);
        UNI_TRY(update(
            store, uni__replica_entry_data(store->board, store->server, which), entry->samples,
            entry->has_states ? uni__replica_entry_states(store->board, store->server, which)
                              : NULL,
            err));
    }
}

int uni__server_store_restore(uni__server_store *store, uni_error *err)
{
    uint64_t complete[2];
    for (int i = 0; i < 2; i++)
        complete[i] = atomic_load(&store->replica->snapshots[i].complete);
    if (complete[0] == 0 && complete[1] == 0)
        return uni_error_set(err, UNI_ECORRUPT,
                             "server %d finds no whole copy of its shard; the run goes on from "
                             "its last checkpoint",
                             store->server);
    load_snapshot(store, complete[1] > complete[0]);
    return keeps_log(store) ? replay(store, err) : 0;
}

int uni__server_store_publish(const uni__server_board *board, uni_model *model,
                              uni_optimizer *optimizer, uint64_t version, uni_error *err)
{
    uni_parameters *parameters = uni_model_parameters(model);
    UNI_TRY(uni__optimizer_build(optimizer, parameters, err));
    const float *weights = uni_parameters_weights(parameters, NULL),
                *states = uni__parameters_states(parameters, NULL);
    for (int server = 0; server < (int)board->header->shape.servers; server++) {
        uni__replica *replica = uni__server_board_replica(board, server);
        /* The newest snapshot stays complete while the other one is written. */
        uint64_t first = atomic_load(&replica->snapshots[0].complete);
        int which = first > 0 && first >= atomic_load(&replica->snapshots[1].complete);
        uni__replica_snapshot *snapshot = &replica->snapshots[which];
        uni__span span = board->spans[server];
        size_t bytes = (span.end - span.begin) * sizeof(float);
        atomic_store(&snapshot->complete, 0);
        memcpy(uni__replica_snapshot_data(board, server, which, 0), weights + span.begin, bytes);
        for (size_t i = 0; i < uni__optimizer_num_slots(optimizer); i++)
            memcpy(uni__replica_snapshot_data(board, server, which, 1 + i),
                   uni__optimizer_slot(optimizer, i, NULL) + span.begin, bytes);
        if (states) /* a model without any has no array of them */
            memcpy(uni__replica_snapshot_states(board, server, which), states,
                   uni__server_board_states_of(board, server) * sizeof(float));
        snapshot->iterations = uni_optimizer_iterations(optimizer);
        atomic_store(&snapshot->complete, version + 1);
        atomic_store(&replica->ready, 1);
        uni__bell_ring(board, 1 + (int)board->header->shape.workers + server);
    }
    return 0;
}
