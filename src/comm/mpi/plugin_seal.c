/*
 * plugin_seal.c - collectives over MPI when all messages are sealed: MPI carries bytes that it
 * cannot read.
 *
 * exchange.c does all_reduce and seals its pieces. The sender seals once what it sends to all or
 * gathers. MPI cannot add up what it cannot read, so reduce and reduce_scatter are an all_reduce of
 * which a rank keeps its part. Called on the communicator's thread.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/comm.h>

#include "comm/kinds.h"
#include "comm/mpi/plugin_internal.h"

struct uni__sealed_call {
    state *of;
    uni__carrier_call call;
    uint64_t number;
    size_t bytes, stride; /* of one rank's part: plain, and sealed */
    /* Sealed; for reductions, `incoming` is the plain result of which a part is kept. */
    char *outgoing, *incoming;
};

static uni__seal_place place_of(const uni__sealed_call *it, int from, int to)
{
    return (uni__seal_place){ .comm = it->of->id,
                              .kind = (uint32_t)it->call.kind,
                              .from = from,
                              .to = to,
                              .number = it->number };
}

static void seal_part(uni__sealed_call *it, int to, char *out, const void *in)
{
    uni__seal_place place = place_of(it, it->of->rank, to);
    it->of->seal->seal(it->of->seal->context, &place, out, in, it->bytes);
}

static int open_part(uni__sealed_call *it, int from, int to, void *out, const char *in)
{
    uni__seal_place place = place_of(it, from, to);
    return it->of->seal->open(it->of->seal->context, &place, out, in, it->bytes) == 0 ? -1 : from;
}

/* For kinds that reduce: reduces everything into temporary memory. */
static int start_reduce(uni__sealed_call *it, size_t parts, handle *h)
{
    uni__carrier_call all = it->call;
    all.kind = UNI__KIND_ALL_REDUCE;
    all.count = it->call.count * parts;
    it->incoming = malloc(it->bytes * parts + 1);
    if (!it->incoming)
        return MPI_ERR_NO_MEM;
    memcpy(it->incoming, it->call.in, it->bytes * parts);
    all.in = all.out = it->incoming;
    return uni__exchange_start(&it->of->wire, &all, it->bytes / it->call.count, &h->exchange);
}

static int start_message(uni__sealed_call *it, MPI_Request *request)
{
    const state *s = it->of;
    int peer = it->call.root;
    bool sends = it->call.kind == UNI__KIND_SEND;
    it->number = sends ? s->sent_to[peer]++ : s->got_from[peer]++;
    if (!sends)
        return MPI_Irecv(it->incoming, (int)it->stride, MPI_BYTE, peer, MPI_ANY_TAG, s->checks,
                         request);
    /* Both sides must use the same kind in the place. */
    it->call.kind = UNI__KIND_RECV;
    seal_part(it, peer, it->outgoing, it->call.in);
    it->call.kind = UNI__KIND_SEND;
    return MPI_Isend(it->outgoing, (int)it->stride, MPI_BYTE, peer, it->call.dtype, s->checks,
                     request);
}

/* Barriers and calls without data: all ranks gather empty sealed messages, which only a rank with
 * the key can make. */
static bool is_barrier(int kind)
{
    switch (kind) {
    case UNI__KIND_REDUCE:
    case UNI__KIND_BROADCAST:
    case UNI__KIND_ALL_GATHER:
    case UNI__KIND_REDUCE_SCATTER:
    case UNI__KIND_ALL_TO_ALL:
    case UNI__KIND_SEND:
    case UNI__KIND_RECV:
        return false;
    default:
        return true;
    }
}

static int start_spreading(uni__sealed_call *it, MPI_Request *request)
{
    const state *s = it->of;
    const uni__carrier_call *call = &it->call;
    int stride = (int)it->stride;
    if (call->kind == UNI__KIND_BROADCAST) {
        if (s->rank == call->root)
            seal_part(it, -1, it->incoming, call->out);
        return MPI_Ibcast(it->incoming, stride, MPI_BYTE, call->root, s->data, request);
    }
    if (call->kind == UNI__KIND_ALL_GATHER || is_barrier(call->kind)) {
        seal_part(it, -1, it->outgoing, call->in);
        return MPI_Iallgather(it->outgoing, stride, MPI_BYTE, it->incoming, stride, MPI_BYTE,
                              s->data, request);
    }
    for (int r = 0; r < s->size; r++)
        seal_part(it, r, it->outgoing + it->stride * (size_t)r,
                  (const char *)call->in + it->bytes * (size_t)r);
    return MPI_Ialltoall(it->outgoing, stride, MPI_BYTE, it->incoming, stride, MPI_BYTE, s->data,
                         request);
}

/* All but all_reduce, which exchange.c seals. */
int uni__sealed_is_needed(const state *s, const uni__carrier_call *call)
{
    return s->seal && s->size > 1 && call->kind != UNI__KIND_ALL_REDUCE;
}

int uni__sealed_start(state *s, const uni__carrier_call *call, MPI_Datatype type, handle *h)
{
    int element = 1;
    MPI_Type_size(type, &element);
    uni__sealed_call *it = calloc(1, sizeof *it);
    h->sealed = it;
    if (!it || !s->sent_to || !s->got_from)
        return MPI_ERR_NO_MEM;
    *it = (uni__sealed_call){ .of = s, .call = *call, .bytes = call->count * (size_t)element };
    if (is_barrier(call->kind))
        it->bytes = 0;
    it->stride = it->bytes + s->seal->extra;
    if (call->kind == UNI__KIND_REDUCE)
        return call->count ? start_reduce(it, 1, h) : MPI_SUCCESS;
    if (call->kind == UNI__KIND_REDUCE_SCATTER)
        return call->count ? start_reduce(it, (size_t)s->size, h) : MPI_SUCCESS;
    if (it->stride > INT_MAX)
        return MPI_ERR_COUNT;
    bool all = call->kind == UNI__KIND_ALL_GATHER || call->kind == UNI__KIND_ALL_TO_ALL ||
               is_barrier(call->kind);
    size_t parts = all ? (size_t)s->size : 1;
    it->outgoing = malloc(it->stride * parts);
    it->incoming = malloc(it->stride * parts);
    if (!it->outgoing || !it->incoming)
        return MPI_ERR_NO_MEM;
    if (uni__kind_is_pair(call->kind))
        return start_message(it, &h->requests[0]);
    it->number = s->wire.calls++;
    return start_spreading(it, &h->requests[0]);
}

int uni__sealed_finish(uni__sealed_call *it)
{
    const state *s = it->of;
    const uni__carrier_call *call = &it->call;
    int forged = -1;
    switch (call->kind) {
    case UNI__KIND_REDUCE:
        if (s->rank == call->root && call->count)
            memcpy(call->out, it->incoming, it->bytes);
        break;
    case UNI__KIND_REDUCE_SCATTER:
        if (call->count)
            memcpy(call->out, it->incoming + it->bytes * (size_t)s->rank, it->bytes);
        break;
    case UNI__KIND_RECV:
        forged = open_part(it, call->root, s->rank, call->out, it->incoming);
        break;
    case UNI__KIND_BROADCAST:
        if (s->rank != call->root)
            forged = open_part(it, call->root, -1, call->out, it->incoming);
        break;
    case UNI__KIND_SEND:
        break;
    default: /* gathered, or a barrier */
        for (int r = 0; r < s->size && forged < 0; r++)
            forged = open_part(it, r, call->kind == UNI__KIND_ALL_TO_ALL ? s->rank : -1,
                               it->bytes ? (char *)call->out + it->bytes * (size_t)r : NULL,
                               it->incoming + it->stride * (size_t)r);
        break;
    }
    return forged;
}

void uni__sealed_free(uni__sealed_call *it)
{
    if (!it)
        return;
    free(it->outgoing);
    free(it->incoming);
    free(it);
}
