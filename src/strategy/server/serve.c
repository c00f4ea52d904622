/*
 * serve.c - a server: polls the links of the coordinator and the workers, and answers. One thread.
 *
 * A question that cannot be answered yet stays in its link and is checked again in every round: a
 * read that bounded staleness holds back, a part of a synchronous step that waits for the others,
 * or batch statistics. Questions of an earlier incarnation of a worker are dropped once the
 * coordinator has admitted the new one.
 *
 * Bounded staleness: a read for a step takes a ticket, and its push returns it. Only ticket holders
 * can still update, each once. A reader is admitted if, with it, every holder's worst case (all
 * other holders update first) stays within the bound. So no push ever waits or is discarded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "strategy/server/internal.h"

typedef struct client {
    uni__server_link link;
    uni__replica_worker *known; /* server 0, workers; survives the server */
    /* Its part of the current step was copied. */
    bool part_here;
    uint32_t copied; /* question whose payload was copied */
} client;

/* Batch statistics of a step: the parts. Once complete, their sum is in the replica. */
typedef struct statistic {
    float *values; /* parts x count */
    bool *here;
    size_t count;
    uint64_t step; /* step + 1 */
} statistic;

struct uni__server {
    uni__server_store store;
    client *clients; /* coordinator, then workers */
    int num_clients, parts;
    float *gradients; /* synchronous: parts x shard, in order */
    float *states; /* of the first part that updates */
    /* Whose; the number of parts: none's. */
    int states_part;
    double *samples, *sums;
    uint32_t num_sums;
    statistic *statistics;
    size_t num_statistics;
    uni__ps_stats stats;
};

/* ---- answers ---- */

static bool answer(client *from, uni__ps_message message)
{
    from->link.class_->answer(&from->link, &message);
    return true;
}

static bool refuse(client *from, int code, const char *sentence)
{
    size_t size = strlen(sentence);
    memcpy(from->link.class_->answer_room(&from->link), sentence, size + 1);
    return answer(from, (uni__ps_message){ .status = code, .size = size, .carried = size + 1 });
}

/* Returns the number of bytes. */
static size_t put_weights(struct uni__server *server, client *to, bool previous)
{
    const uni__server_store *store = &server->store;
    float *room = to->link.class_->answer_room(&to->link);
    memcpy(room, previous ? store->previous : store->weights, store->count * sizeof(float));
    memcpy(room + store->count, previous ? store->previous_states : store->states,
           store->num_states * sizeof(float));
    return (store->count + store->num_states) * sizeof(float);
}

static double *sums_after_weights(const uni__server_store *store, const void *payload)
{
    size_t floats = (store->count + store->num_states + 1) / 2 * 2;
    return (double *)((float *)(uintptr_t)payload + floats);
}

/* ---- reads ---- */

static bool has_ticket(const client *one)
{
    return one->known && atomic_load(&one->known->ticket) > 0;
}

static void take_ticket_back(client *from)
{
    if (from->known)
        atomic_store(&from->known->ticket, 0);
}

/* Would every holder's read stay within the bound, with one more reader? */
static bool lets_in(const uni__ps *ps, const struct uni__server *server, const client *reader)
{
    int holders = 0;
    uint64_t bound = ps->board.header->shape.staleness;
    for (int i = 0; i < server->num_clients; i++)
        holders += has_ticket(&server->clients[i]) && &server->clients[i] != reader;
    if ((uint64_t)holders > bound)
        return false; /* the reader's own worst case */
    for (int i = 0; i < server->num_clients; i++) {
        const client *other = &server->clients[i];
        if (has_ticket(other) && other != reader &&
            server->store.version + 1 - other->known->ticket + (uint64_t)holders > bound)
            return false;
    }
    return true;
}

static bool pull(uni__ps *ps, struct uni__server *server, client *from,
                 const uni__ps_message *question)
{
    const uni__server_store *store = &server->store;
    bool for_step = question->flags & UNI__PS_TICKET, previous = false;
    uint32_t mode = ps->board.header->shape.mode;
    if (for_step && mode == UNI_PS_SYNCHRONOUS) {
        if (question->version > store->version)
            return false; /* a part of the previous step is missing */
        if (question->version + 1 < store->version)
            return refuse(from, UNI_ESTATE, "the weights of a step long past were asked for");
        previous = question->version < store->version;
    }
    if (for_step && mode == UNI_PS_BOUNDED && from->known) {
        take_ticket_back(from);
        if (!lets_in(ps, server, from))
            return false;
        from->known->ticket_epoch = question->epoch;
        atomic_store(&from->known->ticket, store->version + 1);
    }
    size_t carried = put_weights(server, from, previous);
    return answer(from,
                  (uni__ps_message){ .version = store->version - previous, .carried = carried });
}

/* ---- pushes ---- */

/* Kept for a worker that dies between its push and its result. */
static void keep_result(const uni__server_store *store, int worker, uint64_t id, const double *sums,
                        size_t count)
{
    if (store->server > 0)
        return;
    uni__replica_worker *result = uni__replica_worker_of(store->board, worker);
    atomic_store(&result->call, 0);
    memcpy(result->sums, sums, count * sizeof *sums);
    memset(result->sums + count, 0, (UNI__PS_MAX_SUMS - count) * sizeof *sums);
    atomic_store(&result->call, id + 1);
}

/* The numbers that the call reported, or NULL. */
static const double *kept_result(const uni__server_store *store, uint64_t id)
{
    for (int worker = 0; worker < (int)store->board->header->shape.workers; worker++) {
        const uni__replica_worker *result = uni__replica_worker_of(store->board, worker);
        if (atomic_load(&result->call) == id + 1)
            return result->sums;
    }
    return NULL;
}

static bool answer_push(struct uni__server *server, client *from, const uni__ps_message *question,
                        uint32_t flags)
{
    bool wanted = question->flags & UNI__PS_WANT_WEIGHTS;
    return answer(from,
                  (uni__ps_message){ .flags = flags,
                                     .version = server->store.version,
                                     .carried = wanted ? put_weights(server, from, false) : 0 });
}

static bool push_alone(struct uni__server *server, client *from, const uni__ps_message *question,
                       const float *payload)
{
    uni__server_store *store = &server->store;
    uni_error err = { 0 };
    take_ticket_back(from);
    if (question->samples < 0) /* only returns its ticket */
        return answer_push(server, from, question, 0);
    if (uni__server_store_has(store, question->id, question->number)) {
        server->stats.duplicates++;
        return answer_push(server, from, question, UNI__PS_DUPLICATE);
    }
    size_t late =
        store->version > question->version ? (size_t)(store->version - question->version) : 0;
    server->stats.staleness[late < UNI__PS_HISTOGRAM ? late : UNI__PS_HISTOGRAM - 1]++;
    server->stats.updates++;
    bool has_states = question->size > store->count * sizeof(float);
    if (question->num_sums > 0 && question->num_sums <= UNI__PS_MAX_SUMS && from->link.asker > 0)
        keep_result(store, from->link.asker - 1, question->id, sums_after_weights(store, payload),
                    question->num_sums);
    if (uni__server_store_apply(store, question->id, question->number, payload, question->samples,
                                has_states ? payload + store->count : NULL, &err) < 0)
        return refuse(from, err.code, err.message);
    return answer_push(server, from, question, 0);
}

static void forget_step(struct uni__server *server)
{
    for (int i = 0; i < server->num_clients; i++)
        server->clients[i].part_here = false;
    server->states_part = server->parts;
}

/* All parts of the step have arrived: makes one update with their sum, in part order. */
static int complete_step(struct uni__server *server, uint64_t step, uni_error *err)
{
    uni__server_store *store = &server->store;
    double samples = UNI__NO_UPDATE;
    float *sum = server->gradients;
    for (int part = 0; part < server->parts; part++) {
        float *add = server->gradients + (size_t)part * store->count;
        if (server->samples[part] >= 0)
            samples = (samples < 0 ? 0 : samples) + server->samples[part];
        else if (part == 0) /* takes part and adds nothing */
            memset(sum, 0, store->count * sizeof *sum);
        for (size_t i = 0; part > 0 && server->samples[part] >= 0 && i < store->count; i++)
            sum[i] += add[i];
    }
    for (int part = 0; part < server->parts; part++)
        keep_result(store, part, step * (uint64_t)server->parts + (uint64_t)part,
                    server->sums + (size_t)part * UNI__PS_MAX_SUMS, UNI__PS_MAX_SUMS);
    server->stats.updates += samples >= 0;
    server->stats.staleness[0] += samples >= 0;
    int status =
        uni__server_store_apply(store, step, 0, sum, samples,
                                server->states_part < server->parts ? server->states : NULL, err);
    forget_step(server);
    return status;
}

static void copy_part(struct uni__server *server, client *from, int part,
                      const uni__ps_message *question, const float *payload)
{
    uni__server_store *store = &server->store;
    if (question->samples >= 0)
        memcpy(server->gradients + (size_t)part * store->count, payload,
               store->count * sizeof(float));
    if (part <= server->states_part && question->size > store->count * sizeof(float)) {
        memcpy(server->states, payload + store->count, store->num_states * sizeof(float));
        server->states_part = part;
    }
    server->samples[part] = question->samples;
    if (question->num_sums > 0 && question->num_sums <= UNI__PS_MAX_SUMS) {
        server->num_sums = question->num_sums;
        memcpy(server->sums + (size_t)part * UNI__PS_MAX_SUMS, sums_after_weights(store, payload),
               question->num_sums * sizeof(double));
    }
    from->copied = from->link.seen;
}

static bool push_part(uni__ps *ps, struct uni__server *server, client *from,
                      const uni__ps_message *question, const float *payload)
{
    uni__server_store *store = &server->store;
    uint64_t step = question->id / (uint64_t)server->parts;
    int part = (int)(question->id % (uint64_t)server->parts);
    uni_error err = { 0 };
    if (question->number > 0)
        return refuse(from, UNI_ESTATE,
                      "a step function pushed twice in one call; in synchronous mode the pushes of "
                      "all workers make one update: add the gradients up and push once");
    if (step < store->version) {
        server->stats.duplicates += from->copied != from->link.seen;
        return answer_push(server, from, question,
                           from->copied == from->link.seen ? 0 : UNI__PS_DUPLICATE);
    }
    if (step > store->version)
        return false;
    client *owner = &server->clients[1 + part];
    if (from->copied != from->link.seen) {
        copy_part(server, from, part, question, payload);
        /* A worker's next incarnation may have started to write there while we were reading. */
        if (question->epoch != atomic_load(&ps->board.header->members[from->link.asker].epoch))
            return false;
        owner->part_here = true;
        from->link.class_->taken(&from->link);
    }
    for (int i = 0; i < server->parts; i++)
        if (!server->clients[1 + i].part_here)
            return false;
    if (complete_step(server, step, &err) < 0)
        return refuse(from, err.code, err.message);
    return answer_push(server, from, question, 0);
}

/* ---- batch statistics ---- */

static statistic *find_statistic(struct uni__server *server, size_t number, size_t count,
                                 uint64_t step)
{
    size_t index = 2 * number + step % 2;
    while (server->num_statistics <= index) {
        statistic *grown =
            realloc(server->statistics, (server->num_statistics + 1) * sizeof *grown);
        if (!grown)
            return NULL;
        server->statistics = grown;
        server->statistics[server->num_statistics++] = (statistic){ 0 };
    }
    statistic *found = &server->statistics[index];
    if (found->count != count || !found->values) {
        free(found->values);
        free(found->here);
        *found = (statistic){ .count = count };
        found->values = calloc((size_t)server->parts * count + 1, sizeof(float));
        found->here = calloc((size_t)server->parts, sizeof(bool));
    }
    if (!found->values || !found->here)
        return NULL;
    if (found->step != step + 1) {
        memset(found->here, 0, (size_t)server->parts);
        memset(found->values, 0, (size_t)server->parts * count * sizeof(float));
    }
    found->step = step + 1;
    return found;
}

/* The sum of that number in that step if it is known, otherwise where to write it: after the
 * previous one. */
static float *known_sum(struct uni__server *server, uint64_t step, uint32_t number, size_t count,
                        bool *known)
{
    uni__replica_sum *sums = server->store.replica->statistics[step % 2], *sum = &sums[number];
    size_t capacity = 0;
    float *floats = uni__replica_statistics(server->store.board, step % 2, &capacity);
    *known = atomic_load(&sum->step) == step + 1 && sum->count == count;
    if (!*known) {
        sum->offset = number > 0 ? sums[number - 1].offset + sums[number - 1].count : 0;
        sum->count = count;
    }
    return sum->offset + count <= capacity ? floats + sum->offset : NULL;
}

static void add_part(struct uni__server *server, client *from, const uni__ps_message *question,
                     const float *payload, float *sum)
{
    uint64_t step = question->id / (uint64_t)server->parts;
    size_t part = question->id % (uint64_t)server->parts, count = question->size / sizeof(float);
    statistic *found = find_statistic(server, question->number, count, step);
    if (!found)
        return; /* retried in the next round */
    if (from->copied != from->link.seen) {
        memcpy(found->values + part * count, payload, count * sizeof(float));
        found->here[part] = true;
        from->copied = from->link.seen;
        from->link.class_->taken(&from->link);
    }
    /* A part that has already pushed will send no statistics: its step function failed, or has no
     * such layer. */
    for (int i = 0; i < server->parts; i++)
        if (!found->here[i] && !server->clients[1 + i].part_here)
            return;
    for (int i = 0; i < server->parts; i++)
        for (size_t j = 0; j < count; j++)
            sum[j] = (i > 0 ? sum[j] : 0) + found->values[(size_t)i * count + j];
    atomic_store(&server->store.replica->statistics[step % 2][question->number].step, step + 1);
}

static bool sum_up(struct uni__server *server, client *from, const uni__ps_message *question,
                   const float *payload)
{
    uint64_t step = question->id / (uint64_t)server->parts;
    size_t count = question->size / sizeof(float);
    bool known = false;
    if (step > server->store.version)
        return false;
    if (question->number >= UNI__REPLICA_SUMS)
        return refuse(from, UNI_ELIMIT, "too many synchronised batch normalisations in one step");
    float *sum = known_sum(server, step, question->number, count, &known);
    if (!sum)
        return refuse(from, UNI_ELIMIT, "the batch statistics of a step are too many numbers");
    if (!known && step < server->store.version)
        return refuse(from, UNI_ESTATE, "the batch statistics of a step long past were asked for");
    if (!known)
        add_part(server, from, question, payload, sum);
    if (atomic_load(&server->store.replica->statistics[step % 2][question->number].step) !=
        step + 1)
        return false;
    memcpy(from->link.class_->answer_room(&from->link), sum, count * sizeof(float));
    return answer(
        from, (uni__ps_message){ .size = count * sizeof(float), .carried = count * sizeof(float) });
}

/* ---- the rest ---- */

static bool query(uni__ps *ps, struct uni__server *server, client *from,
                  const uni__ps_message *question)
{
    const uni__server_store *store = &server->store;
    uni__ps_message reply = { .version = store->version };
    bool applied = uni__ps_is_synchronous(ps)
                       ? question->id / (uint64_t)server->parts < store->version
                       : uni__server_store_has(store, question->id, 0);
    const double *sums = applied && store->server == 0 ? kept_result(store, question->id) : NULL;
    if (applied && (sums || store->server > 0))
        reply.flags = UNI__PS_DUPLICATE;
    if (sums) {
        reply.num_sums = UNI__PS_MAX_SUMS;
        reply.carried = UNI__PS_MAX_SUMS * sizeof *sums;
        memcpy(from->link.class_->answer_room(&from->link), sums, reply.carried);
    }
    return answer(from, reply);
}

static bool give_state(struct uni__server *server, client *from, const uni__ps_message *question)
{
    const uni__server_store *store = &server->store;
    bool slot = question->number < store->num_slots;
    if (slot)
        memcpy(from->link.class_->answer_room(&from->link),
               uni__optimizer_slot(store->optimizer, question->number, NULL) + store->span.begin,
               store->count * sizeof(float));
    return answer(from,
                  (uni__ps_message){ .version = store->version,
                                     .carried = slot ? store->count * sizeof(float) : 0,
                                     .id = (uint64_t)uni_optimizer_iterations(store->optimizer) });
}

/* true: answered. */
static bool handle(uni__ps *ps, struct uni__server *server, client *from,
                   const uni__ps_message *question, const void *payload)
{
    uint32_t epoch = atomic_load(&ps->board.header->members[from->link.asker].epoch);
    uint64_t rate;
    if (question->epoch != epoch)
        return answer(from, (uni__ps_message){ .status = UNI_ECANCELED });
    switch (question->kind) {
    case UNI__PS_PULL:
        return pull(ps, server, from, question);
    case UNI__PS_PUSH:
        return uni__ps_is_synchronous(ps) ? push_part(ps, server, from, question, payload)
                                          : push_alone(server, from, question, payload);
    case UNI__PS_SUM:
        return sum_up(server, from, question, payload);
    case UNI__PS_QUERY:
        return query(ps, server, from, question);
    case UNI__PS_STATE:
        return give_state(server, from, question);
    case UNI__PS_STATS:
        memcpy(from->link.class_->answer_room(&from->link), &server->stats, sizeof server->stats);
        return answer(from, (uni__ps_message){ .size = sizeof server->stats,
                                               .carried = sizeof server->stats });
    case UNI__PS_RATE:
        memcpy(&rate, &question->samples, sizeof rate);
        atomic_store(&ps->board.header->rate, rate);
        atomic_store(&ps->board.header->rate_known, 1);
        return answer(from, (uni__ps_message){ 0 });
    default:
        return refuse(from, UNI_EFORMAT, "a question of an unknown kind");
    }
}

/* ---- life ---- */

int uni__ps_open_server(uni__ps *ps, uni_error *err)
{
    const uni__server_board_shape *shape = &ps->board.header->shape;
    int index = ps->cluster.rank - 1 - ps->cluster.workers;
    struct uni__server *server = ps->server = calloc(1, sizeof *server);
    if (!server)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a server");
    uni__replica *replica = uni__server_board_replica(&ps->board, index);
    while (!atomic_load(&replica->ready))
        UNI_TRY(uni__ps_idle(ps, uni__bell_look(&ps->board), err));
    UNI_TRY(
        uni__server_store_open(&server->store, &ps->board, index, ps->model, ps->optimizer, err));
    UNI_TRY(uni__server_store_restore(&server->store, err));
    if (ps->epoch > 1)
        atomic_fetch_add(&ps->board.header->members[ps->cluster.rank].restores, 1);
    server->num_clients = 1 + (int)shape->workers;
    server->parts = server->states_part = uni__ps_lanes(ps);
    server->clients = calloc((size_t)server->num_clients, sizeof *server->clients);
    size_t parts = (size_t)server->parts;
    server->gradients = calloc(parts * server->store.count + 1, sizeof(float));
    server->states = calloc(server->store.num_states + 1, sizeof(float));
    server->samples = calloc(parts, sizeof(double));
    server->sums = calloc(parts * UNI__PS_MAX_SUMS, sizeof(double));
    if (!server->clients || !server->gradients || !server->states || !server->samples ||
        !server->sums)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a shard of %zu weights",
                             server->store.count);
    for (int i = 0; i < server->num_clients; i++) {
        server->clients[i].link = uni__server_board_link(&ps->board, i, index);
        if (index == 0 && i > 0)
            server->clients[i].known = uni__replica_worker_of(&ps->board, i - 1);
    }
    return 0;
}

void uni__ps_close_server(uni__ps *ps)
{
    struct uni__server *server = ps->server;
    if (!server)
        return;
    for (size_t i = 0; i < server->num_statistics; i++) {
        free(server->statistics[i].values);
        free(server->statistics[i].here);
    }
    uni__server_store_close(&server->store);
    free(server->statistics);
    free(server->clients);
    free(server->gradients);
    free(server->states);
    free(server->samples);
    free(server->sums);
    free(server);
    ps->server = NULL;
}

int uni__ps_serve(uni__ps *ps, uni_error *err)
{
    struct uni__server *server = ps->server;
    while (!uni__ps_phase_over(ps)) {
        uint32_t seen = uni__bell_look(&ps->board);
        bool moved = false;
        for (int i = 0; i < server->num_clients; i++) {
            client *from = &server->clients[i];
            uni__ps_message question;
            const void *payload;
            uint32_t epoch = atomic_load(&ps->board.header->members[i].epoch);
            if (has_ticket(from) && from->known->ticket_epoch != epoch)
                take_ticket_back(from); /* its holder died */
            if (from->link.class_->asked(&from->link, &question, &payload))
                moved |= handle(ps, server, from, &question, payload);
        }
        if (moved)
            continue;
        int status = uni__ps_idle(ps, seen, err);
        if (status < 0)
            return status == UNI_ECANCELED && uni__ps_phase_over(ps) ? 0 : status;
    }
    return 0;
}
