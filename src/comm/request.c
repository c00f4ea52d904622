/*
 * request.c - the life of a call: begin, start, steps, end. Blocking calls are requests that are waited for.
 *
 * All requests under way are moved on whenever somebody waits, oldest first: a peer may need an older
 * one to end before it comes to ours. The rank's thread.
 */
#include <string.h>

#include "base/clock.h"
#include "comm/internal.h"
#include "comm/kinds.h"

#define SHARE_NS 100000u /* with others under way nobody sleeps longer on one */

static uni_comm_request *take_request(uni_comm *comm)
{
    for (int i = 0; i < UNI__COMM_REQUESTS; i++)
        if (!comm->requests[i].used)
            return &comm->requests[i];
    return NULL;
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
    /* With very many sends under way the place may have a newer record. */
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

/* One step; when it is the last one, the request's status says how it ended. */
static void advance(uni_comm_request *request, uni_error *err)
{
    uni_comm *comm = request->comm;
    if (request->status != 0)
        return;
    int status = comm->transport->step(request, err);
    if (status == 0)
        return;
    request->status = status;
    comm->under_way--;
    record_end(request, status);
    if (status < 0 && comm->broken.code == 0 && err)
        uni__comm_break(comm, err);
}

static uni_comm_request *oldest(uni_comm *comm, const uni_comm_request *after)
{
    uni_comm_request *found = NULL;
    for (int i = 0; i < UNI__COMM_REQUESTS; i++) {
        uni_comm_request *request = &comm->requests[i];
        if (request->used && request->status == 0 && request->record &&
            (!after || request->order > after->order) && (!found || request->order < found->order))
            found = request;
    }
    return found;
}

static int advance_all(uni_comm *comm, uni_error *err)
{
    for (uni_comm_request *r = oldest(comm, NULL); r && !comm->broken.code; r = oldest(comm, r))
        advance(r, err);
    return comm->broken.code;
}

static int say_broken(const uni_comm *comm, uni_error *err)
{
    if (err)
        *err = comm->broken;
    return comm->broken.code;
}

/* Something failed outside of a step. */
static int fail(uni_comm_request *request, uni_error *err)
{
    if (request->record && request->status == 0) {
        request->comm->under_way--;
        record_end(request, err->code);
    }
    request->status = err->code;
    return uni__comm_break(request->comm, err);
}

/* Waits for a place; requests under way are moved on meanwhile. */
static int start(uni_comm_request *request, uni_error *err)
{
    uni_comm *comm = request->comm;
    for (;;) {
        bool again = false;
        int status = comm->transport->start(request, &again, err);
        if (status < 0)
            return fail(request, err);
        if (!again)
            break;
        uni_comm_request *first = oldest(comm, NULL);
        if (first) {
            advance(first, err);
            if (first->status == 0)
                UNI_TRY(comm->transport->pause(first, SHARE_NS, err));
            UNI_TRY(advance_all(comm, err));
        } else if (comm->transport->pause(request, SHARE_NS, err) < 0) {
            return fail(request, err);
        }
    }
    comm->under_way++;
    record_begin(request);
    return 0;
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
        return uni_error_set(err, UNI_ELIMIT,
                             "%s: %d requests are under way or were not waited for; end one by "
                             "uni_comm_wait first",
                             uni__kind_name(call->kind), UNI__COMM_REQUESTS);
    memset(request, 0, sizeof *request);
    request->comm = comm;
    request->used = true;
    request->call = *call;
    request->begun_ns = uni__monotonic_ns();
    request->order = ++comm->begun;
    if (!uni__kind_is_pair(call->kind))
        comm->count++;
    int status = start(request, err);
    if (status < 0) {
        request->used = false;
        return status;
    }
    *out = request;
    return 0;
}

static int run_to_end(uni_comm_request *request, uni_error *err)
{
    uni_comm *comm = request->comm;
    for (;;) {
        advance(request, err);
        if (request->status != 0)
            break;
        bool others = comm->under_way > 1;
        if (others && advance_all(comm, err) < 0)
            return say_broken(comm, err);
        if (request->status == 0 && comm->transport->pause(request, others ? SHARE_NS : 0, err) < 0)
            return fail(request, err);
    }
    return request->status < 0 ? say_broken(comm, err) : 0;
}

int uni__comm_run(uni_comm *comm, const uni__call *call, double *total_weight, uni_error *err)
{
    uni_error local;
    uni_comm_request *request = NULL;
    err = err ? err : &local; /* errors are remembered, so there must be one */
    UNI_TRY(begin(comm, call, &request, err));
    int status = run_to_end(request, err);
    if (total_weight)
        *total_weight = request->total_weight;
    request->used = false;
    return status;
}

int uni__comm_start(uni_comm *comm, const uni__call *call, uni_comm_request **out, uni_error *err)
{
    uni_error local;
    err = err ? err : &local;
    *out = NULL;
    UNI_TRY(begin(comm, call, out, err));
    (*out)->held = true;
    advance(*out, err);
    return 0; /* a failure is what wait or test return */
}

int uni_comm_progress(uni_comm *comm, uni_error *err)
{
    uni_error local;
    err = err ? err : &local;
    if (comm->broken.code)
        return say_broken(comm, err);
    return advance_all(comm, err) < 0 ? say_broken(comm, err) : 0;
}

int uni_comm_test(uni_comm_request *request, bool *done, uni_error *err)
{
    uni_error local;
    uni_comm *comm = request->comm;
    err = err ? err : &local;
    if (request->status == 0 && !comm->broken.code)
        (void)advance_all(comm, err);
    /* A program that only tests must hear of a dead peer, too. */
    if (request->status == 0 && !comm->broken.code && comm->transport->glance(request, err) < 0)
        (void)fail(request, err);
    *done = request->status != 0 || comm->broken.code != 0;
    if (!*done)
        return 0;
    int status = request->status == 1 ? 0 : say_broken(comm, err);
    request->used = false;
    return status;
}

int uni_comm_wait(uni_comm_request *request, uni_error *err)
{
    uni_error local;
    uni_comm *comm = request->comm;
    err = err ? err : &local;
    int status = request->status == 1 ? 0
                 : comm->broken.code  ? say_broken(comm, err)
                                      : run_to_end(request, err);
    request->used = false;
    return status;
}
