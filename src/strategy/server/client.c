/*
 * client.c - how workers and the coordinator use the servers: pull weights, push gradients, sum
 * batch statistics. Called on the member's thread.
 *
 * All servers are asked at once and answer in any order, with two exceptions. A read under bounded
 * staleness asks server 0 first, which is the gate. And unless updates may come in any order, a
 * push reaches server 0 last, after every other server has taken it. Taken does not mean applied: a
 * server that dies in between comes back without the part. So a worker that takes over a dead
 * worker's step asks all servers whether it is done, and pushes it again unless all have applied
 * it.
 */
#include <math.h>
#include <string.h>

#include "tensor/shared.h"
#include "nn/shared.h"
#include "strategy/server/internal.h"

static size_t span_size(const uni__ps *ps, int server)
{
    return ps->board.spans[server].end - ps->board.spans[server].begin;
}

static size_t num_states(const uni__ps *ps, int server)
{
    return uni__server_board_states_of(&ps->board, server);
}

/* Doubles follow the floats of a payload, aligned. */
static double *sums_in(const uni__ps *ps, int server, const void *payload)
{
    size_t floats = (span_size(ps, server) + num_states(ps, server) + 1) / 2 * 2;
    return (double *)((float *)(uintptr_t)payload + floats);
}

static int wait_until_free(uni__ps *ps, int server, uni_error *err)
{
    uni__server_link *link = &ps->servers[server];
    for (;;) {
        uint32_t seen = uni__bell_look(&ps->board);
        if (link->class_->free_to_ask(link))
            return 0;
        UNI_TRY(uni__ps_idle(ps, seen, err));
    }
}

static int ask(uni__ps *ps, int server, uni__ps_message message)
{
    uni__server_link *link = &ps->servers[server];
    message.epoch = ps->epoch;
    link->class_->ask(link, &message);
    return 0;
}

static int refused(int server, const uni__ps_message *answer, const char *sentence, uni_error *err)
{
    return uni_error_set(err, answer->status, "server %d: %.*s", server,
                         (int)(answer->size < 800 ? answer->size : 800), sentence);
}

static int wait_for_answer(uni__ps *ps, int server, uni__ps_message *answer, const void **payload,
                           uni_error *err)
{
    uni__server_link *link = &ps->servers[server];
    for (;;) {
        uint32_t seen = uni__bell_look(&ps->board);
        if (link->class_->answered(link, answer, payload))
            return answer->status < 0 ? refused(server, answer, *payload, err) : 0;
        UNI_TRY(uni__ps_idle(ps, seen, err));
    }
}

/* ---- weights ---- */

static void take_weights(uni__ps *ps, int server, const uni__ps_message *answer,
                         const float *payload)
{
    uni_parameters *store = uni_model_parameters(ps->model);
    size_t count = span_size(ps, server);
    memcpy(uni_parameters_weights(store, NULL) + ps->board.spans[server].begin, payload,
           count * sizeof(float));
    if (num_states(ps, server) > 0)
        memcpy(uni__parameters_states(store, NULL), payload + count,
               num_states(ps, server) * sizeof(float));
    if (server == 0)
        ps->version = answer->version;
}

static int finish_pull(uni__ps *ps, int server, uni_error *err)
{
    uni__ps_message answer;
    const void *payload;
    UNI_TRY(wait_for_answer(ps, server, &answer, &payload, err));
    take_weights(ps, server, &answer, payload);
    return 0;
}

int uni__ps_pull(uni__ps *ps, int flags, uint64_t version, uni_error *err)
{
    const uni__server_board_shape *shape = &ps->board.header->shape;
    uni__ps_message question = { .kind = UNI__PS_PULL, .version = version };
    if (flags & UNI__PULL_FOR_STEP)
        question.flags = UNI__PS_TICKET;
    bool gated = shape->mode == UNI_PS_BOUNDED && (flags & UNI__PULL_FOR_STEP);
    for (int s = 0; s < (int)shape->servers; s++) {
        UNI_TRY(wait_until_free(ps, s, err));
        UNI_TRY(ask(ps, s, question));
        if (gated && s == 0)
            UNI_TRY(finish_pull(ps, 0, err));
    }
    for (int s = gated ? 1 : 0; s < (int)shape->servers; s++)
        UNI_TRY(finish_pull(ps, s, err));
    return 0;
}

/* ---- gradients ---- */

static int push_to(uni__ps *ps, int server, const uni__push *push, uni_error *err)
{
    uni__server_link *link = &ps->servers[server];
    bool updates = push->samples >= 0;
    size_t count = updates ? span_size(ps, server) : 0,
           states = updates && push->has_states ? num_states(ps, server) : 0;
    UNI_TRY(wait_until_free(ps, server, err));
    float *room = link->class_->room(link);
    if (count > 0)
        memcpy(room, push->gradient + ps->board.spans[server].begin, count * sizeof(float));
    if (states > 0)
        memcpy(room + count, uni__parameters_states(uni_model_parameters(ps->model), NULL),
               states * sizeof(float));
    uint32_t sums = server == 0 ? (uint32_t)push->num_sums : 0;
    size_t carried = (count + states) * sizeof(float);
    if (sums > 0) {
        double *place = sums_in(ps, server, room);
        memcpy(place, push->sums, sums * sizeof(double));
        carried = (size_t)((char *)(place + sums) - (char *)room);
    }
    return ask(ps, server,
               (uni__ps_message){ .kind = UNI__PS_PUSH,
                                  .flags = push->want_weights ? UNI__PS_WANT_WEIGHTS : 0,
                                  .id = push->id,
                                  .number = (uint32_t)push->number,
                                  .num_sums = sums,
                                  .version = ps->version,
                                  .samples = push->samples,
                                  .size = (count + states) * sizeof(float),
                                  .carried = carried });
}

static int finish_push(uni__ps *ps, int server, const uni__push *push, uni_error *err)
{
    uni__ps_message answer;
    const void *payload;
    UNI_TRY(wait_for_answer(ps, server, &answer, &payload, err));
    if (push->want_weights)
        take_weights(ps, server, &answer, payload);
    if ((answer.flags & UNI__PS_DUPLICATE) && answer.num_sums > 0 &&
        answer.num_sums == push->num_sums)
        memcpy(push->sums, sums_in(ps, server, payload), push->num_sums * sizeof(double));
    return 0;
}

int uni__ps_push(uni__ps *ps, const uni__push *push, uni_error *err)
{
    int servers = (int)ps->board.header->shape.servers;
    bool ordered = ps->board.header->shape.mode != UNI_PS_ASYNCHRONOUS;
    if (push->num_sums > UNI__PS_MAX_SUMS)
        return uni_error_set(err, UNI_ELIMIT,
                             "a step reports %zu numbers (losses and states of metrics); "
                             "parameter_server carries at most %d: use fewer metrics",
                             push->num_sums, UNI__PS_MAX_SUMS);
    if (!isfinite(push->samples) || (push->samples < 0 && push->samples != UNI__NO_UPDATE))
        return uni_error_set(err, UNI_EINVAL, "a push of %g samples makes no sense", push->samples);
    for (int s = servers - 1; s > 0; s--)
        UNI_TRY(push_to(ps, s, push, err));
    for (int s = servers - 1; s > 0 && ordered; s--)
        UNI_TRY(wait_until_free(ps, s, err));
    UNI_TRY(push_to(ps, 0, push, err));
    for (int s = 0; s < servers; s++)
        UNI_TRY(finish_push(ps, s, push, err));
    return 0;
}

/* ---- the rest ---- */

int uni__ps_sum(uni__ps *ps, uint64_t id, uint32_t number, float *values, size_t count,
                uni_error *err)
{
    uni__server_link *link = &ps->servers[0];
    uni__ps_message answer;
    const void *payload;
    if (count * sizeof(float) > link->capacity)
        return uni_error_set(err, UNI_ELIMIT, "batch statistics of %zu numbers are too many",
                             count);
    UNI_TRY(wait_until_free(ps, 0, err));
    memcpy(link->class_->room(link), values, count * sizeof(float));
    UNI_TRY(ask(ps, 0,
                (uni__ps_message){ .kind = UNI__PS_SUM,
                                   .id = id,
                                   .number = number,
                                   .size = count * sizeof(float),
                                   .carried = count * sizeof(float) }));
    UNI_TRY(wait_for_answer(ps, 0, &answer, &payload, err));
    memcpy(values, payload, count * sizeof(float));
    return 0;
}

int uni__ps_query(uni__ps *ps, uint64_t id, double *sums, size_t wanted, uni_error *err)
{
    int servers = (int)ps->board.header->shape.servers;
    bool everywhere = true;
    for (int s = 0; s < servers; s++) {
        UNI_TRY(wait_until_free(ps, s, err));
        UNI_TRY(ask(ps, s, (uni__ps_message){ .kind = UNI__PS_QUERY, .id = id }));
    }
    for (int s = 0; s < servers; s++) {
        uni__ps_message answer;
        const void *payload;
        UNI_TRY(wait_for_answer(ps, s, &answer, &payload, err));
        everywhere = everywhere && (answer.flags & UNI__PS_DUPLICATE);
        if (s > 0 || !everywhere)
            continue;
        everywhere = wanted == 0 || answer.num_sums > 0;
        memcpy(sums, payload, (answer.num_sums < wanted ? answer.num_sums : wanted) * sizeof *sums);
    }
    return everywhere;
}

int uni__ps_pull_state(uni__ps *ps, uni_error *err)
{
    uni_optimizer *optimizer = ps->optimizer;
    UNI_TRY(uni__optimizer_build(optimizer, uni_model_parameters(ps->model), err));
    for (int s = 0; s < (int)ps->board.header->shape.servers; s++)
        for (size_t slot = 0; slot <= uni__optimizer_num_slots(optimizer); slot++) {
            uni__ps_message answer;
            const void *payload;
            UNI_TRY(wait_until_free(ps, s, err));
            UNI_TRY(
                ask(ps, s, (uni__ps_message){ .kind = UNI__PS_STATE, .number = (uint32_t)slot }));
            UNI_TRY(wait_for_answer(ps, s, &answer, &payload, err));
            if (slot < uni__optimizer_num_slots(optimizer))
                memcpy(uni__optimizer_slot(optimizer, slot, NULL) + ps->board.spans[s].begin,
                       payload, span_size(ps, s) * sizeof(float));
            else if (s == 0) /* past the last slot: how many updates it counts */
                uni__optimizer_set_iterations(optimizer, (int64_t)answer.id);
        }
    return 0;
}

int uni__ps_set_rate(uni__ps *ps, double rate, uni_error *err)
{
    uint64_t bits;
    memcpy(&bits, &rate, sizeof bits);
    atomic_store(&ps->board.header->rate, bits);
    atomic_store(&ps->board.header->rate_known, 1);
    for (int s = 0; ps->carrier && s < ps->cluster.servers; s++) {
        uni__ps_message answer;
        const void *payload;
        UNI_TRY(wait_until_free(ps, s, err));
        UNI_TRY(ask(ps, s, (uni__ps_message){ .kind = UNI__PS_RATE, .samples = rate }));
        UNI_TRY(wait_for_answer(ps, s, &answer, &payload, err));
    }
    return 0;
}

int uni__ps_fetch_stats(uni__ps *ps, uni_error *err)
{
    uni__ps_message answer;
    const void *payload;
    UNI_TRY(wait_until_free(ps, 0, err));
    UNI_TRY(ask(ps, 0, (uni__ps_message){ .kind = UNI__PS_STATS }));
    UNI_TRY(wait_for_answer(ps, 0, &answer, &payload, err));
    if (answer.size == sizeof ps->stats)
        memcpy(&ps->stats, payload, sizeof ps->stats);
    return 0;
}
