/*
 * request.c - the life of a call: begin, start, steps, end. A blocking call is a request that the
 * caller waits for.
 *
 * Whenever a rank waits, it advances all requests under way, oldest first, because a peer may need
 * an older one to end before it reaches ours. Their number is unlimited. A transport has room for
 * some, and the rest wait: collectives in one queue, sends and recvs in another. So a send never
 * waits behind a collective that the receiver has yet to reach, and calls of one kind to one rank
 * keep their order.
 *
 * A failure stays with the request when all ranks detect it (their calls differ). Any other failure
 * breaks the communicator. Called on the rank's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/internal.h"
#include "comm/kinds.h"

/* While others are under way, do not sleep longer on a single request. */
#define SHARE_NS 100000u

/* --- places --- */

static void append(uni__request_list *list, uni_comm_request *request)
{
    request->previous = list->last;
    request->next = NULL;
    if (list->last)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
}

static void take_out(uni__request_list *list, uni_comm_request *request)
{
    if (request->previous)
        request->previous->next = request->next;
    else
        list->first = request->next;
    if (request->next)
        request->next->previous = request->previous;
    else
        list->last = request->previous;
}

static uni__request_list *waiting_list(uni_comm_request *request)
{
    return &request->comm->waiting[uni__kind_is_pair(request->call.kind)];
}

/* The list that holds a request while it is under way. */
static uni__request_list *list_of(uni_comm_request *request)
{
    return request->record ? &request->comm->started : waiting_list(request);
}

static bool make_block(uni_comm *comm)
{
    uni__request_block *block = calloc(1, sizeof *block);
    if (!block)
        return false;
    block->next = comm->blocks;
    comm->blocks = block;
    for (int i = 0; i < UNI__REQUEST_BLOCK; i++)
        append(&comm->free_requests, &block->requests[i]);
    return true;
}

/* Reuses the most recent one, so that the same few stay in the caches. */
static uni_comm_request *take_request(uni_comm *comm)
{
    if (!comm->free_requests.last && !make_block(comm))
        return NULL;
    uni_comm_request *request = comm->free_requests.last;
    take_out(&comm->free_requests, request);
    memset(request, 0, offsetof(uni_comm_request, error));
    request->comm = comm;
    return request;
}

static void give_back(uni_comm_request *request)
{
    uni_comm *comm = request->comm;
    if (request->status == 0) { /* the communicator is broken */
        take_out(list_of(request), request);
        comm->under_way--;
    }
    append(&comm->free_requests, request);
}

void uni__requests_free(uni_comm *comm)
{
    for (uni__request_block *block = comm->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
}

static void record_begin(uni_comm_request *request)
{
    const uni__call *call = &request->call;
    uni__record *record = uni__recorder_begin(request->comm->recorder, request->begun_ns);
    record->number = request->number;
    record->kind = (uint8_t)call->kind;
    record->dtype = (uint8_t)call->dtype;
    record->op = (uint8_t)call->op;
    record->root = call->root;
    record->count = call->count;
    request->record = record;
}

static void record_end(uni_comm_request *request, int status)
{
    uni__record *record = request->record;
    /* With very many sends under way, the place may hold a newer record. */
    if (record->number != request->number || record->begun_ns != request->begun_ns)
        return;
    record->ended_ns = uni__monotonic_ns();
    record->arrived_ns = request->arrived_ns;
    record->late_rank = request->late_rank;
    record->late_ns = request->late_ns;
    record->status = status < 0 ? status : 0;
    record->state = status < 0 ? UNI__RECORD_FAILED : UNI__RECORD_DONE;
    if (request->late_rank >= 0)
        uni__recorder_late(request->comm->recorder, request->late_rank, request->late_ns);
}

/* --- progress --- */

static int say_broken(const uni_comm *comm, uni_error *err)
{
    if (err)
        *err = comm->broken;
    return comm->broken.code;
}

/* Ends the request. When status is negative, err says why; unless the failure is the request's own,
 * it also breaks the communicator. */
static void end(uni_comm_request *request, int status, const uni_error *err)
{
    uni_comm *comm = request->comm;
    take_out(list_of(request), request);
    comm->under_way--;
    request->status = status;
    if (request->record)
        record_end(request, status);
    if (status > 0)
        return;
    request->error = *err;
    if (!request->own_failure)
        (void)uni__comm_break(comm, err);
}

/* Makes one step. After the last one, the request's status says how it ended. */
static void advance(uni_comm_request *request, uni_error *err)
{
    int status = request->comm->transport->step(request, err);
    if (status != 0)
        end(request, status, err);
}

/* Starts the request and makes the first step. Sets *again when there is no room yet. Negative: the
 * communicator is broken. */
static int start(uni_comm_request *request, bool *again, uni_error *err)
{
    uni_comm *comm = request->comm;
    int status = comm->transport->start(request, again, err);
    if (status < 0) {
        end(request, status, err);
        return comm->broken.code;
    }
    if (*again)
        return 0;
    take_out(waiting_list(request), request);
    record_begin(request);
    append(&comm->started, request);
    advance(request, err);
    return comm->broken.code;
}

/* Requests behind one that found no room keep their place if they go to the same rank in the same
 * direction. */
static int start_waiting(uni_comm *comm, uni_error *err)
{
    bool again = false;
    for (uni_comm_request *r = comm->waiting[0].first; r && !again; r = comm->waiting[0].first)
        UNI_TRY(start(r, &again, err));
    uint64_t blocked[2 * UNI__COMM_MAX_RANKS / 64];
    memset(blocked, 0, sizeof blocked);
    for (uni_comm_request *r = comm->waiting[1].first, *next; r; r = next) {
        next = r->next;
        size_t way = 2 * (size_t)r->call.root + (r->call.kind == UNI__KIND_SEND);
        if (blocked[way / 64] >> way % 64 & 1)
            continue;
        UNI_TRY(start(r, &again, err));
        blocked[way / 64] |= (uint64_t)again << way % 64;
    }
    return 0;
}

static int advance_all(uni_comm *comm, uni_error *err)
{
    for (uni_comm_request *r = comm->started.first, *next; r && !comm->broken.code; r = next) {
        next = r->next;
        advance(r, err);
    }
    if (!comm->broken.code && (comm->waiting[0].first || comm->waiting[1].first))
        (void)start_waiting(comm, err);
    return comm->broken.code;
}

/* What a request waits for: itself, or while it has no room the oldest started request; if none is
 * started, the first in its queue. */
static uni_comm_request *waits_for(uni_comm_request *request)
{
    uni_comm_request *first = request->comm->started.first;
    if (request->record)
        return request;
    return first ? first : waiting_list(request)->first;
}

static int begin(uni_comm *comm, const uni__call *call, uni_comm_request **out, uni_error *err)
{
    if (comm->broken.code < 0)
        return say_broken(comm, err);
    if (comm->finalized)
        return uni_error_set(err, UNI_ESTATE, "%s: the communicator was finalized",
                             uni__kind_name(call->kind));
    UNI_TRY(uni__call_check(comm, call, err));
    uni_comm_request *request = take_request(comm);
    if (!request)
        return uni_error_set(err, UNI_ENOMEM, "%s: no memory for one more than %d requests",
                             uni__kind_name(call->kind), comm->under_way);
    request->call = *call;
    request->begun_ns = uni__monotonic_ns();
    request->order = ++comm->begun;
    bool pair = uni__kind_is_pair(call->kind);
    comm->count += !pair;
    request->number = pair ? comm->begun : comm->count;
    uni__request_list *waiting = &comm->waiting[pair];
    bool again = waiting->first != NULL;
    append(waiting, request);
    comm->under_way++;
    int status = again ? 0 : start(request, &again, err);
    if (status < 0) {
        give_back(request);
        return status;
    }
    *out = request;
    return 0;
}

static int result_of(const uni_comm_request *request, uni_error *err)
{
    if (request->status == 1)
        return 0;
    if (request->status == 0)
        return say_broken(request->comm, err);
    *err = request->error;
    return request->status;
}

/* Until it has ended or the clock says `until_ns` (0: no limit). */
static void drive(uni_comm_request *request, uint64_t until_ns, uni_error *err)
{
    uni_comm *comm = request->comm;
    while (request->status == 0 && !comm->broken.code) {
        bool others = comm->under_way > 1 || !request->record;
        uint64_t limit_ns = others ? SHARE_NS : 0, now;
        if ((others || until_ns) && (advance_all(comm, err) < 0 || request->status != 0))
            break;
        if (until_ns) {
            if ((now = uni__monotonic_ns()) >= until_ns)
                break;
            limit_ns = limit_ns && limit_ns < until_ns - now ? limit_ns : until_ns - now;
        }
        uni_comm_request *on = waits_for(request);
        int status = comm->transport->pause(on, limit_ns, err);
        if (status < 0)
            end(on, status, err);
        else if (request->record)
            advance(request, err);
    }
}

static int run_to_end(uni_comm_request *request, uni_error *err)
{
    drive(request, 0, err);
    return result_of(request, err);
}

int uni__comm_run(uni_comm *comm, const uni__call *call, double *total_weight, uni_error *err)
{
    uni_error local;
    uni_comm_request *request = NULL;
    err = err ? err : &local; /* needed: errors are remembered */
    UNI_TRY(begin(comm, call, &request, err));
    int status = run_to_end(request, err);
    if (total_weight)
        *total_weight = request->total_weight;
    give_back(request);
    return status;
}

int uni__comm_start(uni_comm *comm, const uni__call *call, uni_comm_request **out, uni_error *err)
{
    uni_error local;
    err = err ? err : &local;
    *out = NULL;
    UNI_TRY(begin(comm, call, out, err));
    return 0; /* wait or test report a failure */
}

int uni_comm_progress(uni_comm *comm, uni_error *err)
{
    uni_error local;
    err = err ? err : &local;
    if (comm->broken.code || advance_all(comm, err) < 0)
        return say_broken(comm, err);
    return 0;
}

int uni_comm_test(bool *done, uni_comm_request *request, uni_error *err)
{
    uni_error local;
    uni_comm *comm = request->comm;
    err = err ? err : &local;
    if (request->status == 0 && !comm->broken.code)
        (void)advance_all(comm, err);
    /* A program that only tests must also learn of a dead peer. */
    if (request->status == 0 && !comm->broken.code) {
        uni_comm_request *on = waits_for(request);
        int status = comm->transport->glance(on, err);
        if (status < 0)
            end(on, status, err);
    }
    *done = request->status != 0 || comm->broken.code != 0;
    if (!*done)
        return 0;
    int status = result_of(request, err);
    give_back(request);
    return status;
}

int uni_comm_wait(uni_comm_request *request, uni_error *err)
{
    uni_error local;
    err = err ? err : &local;
    int status = run_to_end(request, err);
    give_back(request);
    return status;
}

int uni__comm_wait_for(bool *done, uni_comm_request *request, uint64_t limit_ns, uni_error *err)
{
    uni_error local;
    uni_comm *comm = request->comm;
    err = err ? err : &local;
    drive(request, uni__monotonic_ns() + limit_ns, err);
    *done = request->status != 0 || comm->broken.code != 0;
    if (!*done)
        return 0;
    int status = result_of(request, err);
    give_back(request);
    return status;
}
