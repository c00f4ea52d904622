/*
 * exchange.c - all_reduce over MPI, made of sends and receives.
 *
 * Open MPI's MPI_Iallreduce takes up to twice as long as its blocking MPI_Allreduce between hosts (the nonblocking one knows neither pipelining nor the same
 * choice of algorithms), and the blocking one cannot be left when a peer dies. So from 16 KB on we do it ourselves:
 *
 *   2 ranks, or 2^k ranks up to 256 KB   doubling: k rounds, in each all is exchanged with the rank that differs in one bit, and added
 *   otherwise                            ring: 2 (n - 1) rounds of 1/n each
 *
 * The buffer is cut into lanes of 512 KB that go through this each by itself; four are under way at once, so that one is added while the others are on the
 * wire.
 * The order of the additions depends on rank and place only, and every sum is made by one rank (ring) or of the same two numbers (doubling), so that all
 * ranks have the same bits. Nothing waits: step() posts what can be posted. The communicator's thread.
 */
#include <stdlib.h>
#include <string.h>

#include <unisono/comm.h>

#include "comm/kinds.h"
#include "comm/mpi/plugin_internal.h"

#define SMALLEST_BYTES (16u << 10)
#define DOUBLING_BYTES (256u << 10)
#define LANE_BYTES (512u << 10)
#define MAX_LANES 64
#define WINDOW 4

typedef struct lane {
    size_t first, count; /* elements */
    int step;
    MPI_Request requests[2];
} lane;

struct uni__exchange {
    MPI_Comm comm;
    MPI_Datatype type;
    int rank, size, doubling, rounds;
    int dtype, op, tag;
    size_t element; /* bytes */
    char *data;
    lane lanes[MAX_LANES];
    int num_lanes, oldest, begun; /* lanes before `oldest` are done */
    char *scratch[WINDOW]; /* what is received before it is added */
    size_t scratch_elements;
    void (*combine)(const void *context, int dtype, int op, void *into, const void *from,
                    size_t count);
    const void *context;
};

int uni__exchange_is_better(const state *s, const uni__mpi_call *call)
{
    int reduces = call->kind == UNI__KIND_ALL_REDUCE || call->kind == UNI__KIND_REDUCE_APPLY;
    return reduces && s->size > 1 && call->combine &&
           call->count >= SMALLEST_BYTES / 4; /* of floats; for others it is as good */
}

static size_t chunk_begin(const uni__exchange *it, const lane *at, int chunk)
{
    return at->first + at->count * (size_t)chunk / (size_t)it->size;
}

static int around(int chunk, int size)
{
    return ((chunk % size) + size) % size;
}

typedef struct piece {
    int to, from;
    size_t send, send_count, receive, receive_count;
    int adds; /* what comes is added, otherwise it replaces */
} piece;

static piece piece_of(const uni__exchange *it, const lane *at)
{
    piece p = { 0 };
    if (it->doubling) {
        p.to = p.from = it->rank ^ (1 << at->step);
        p.send = p.receive = at->first;
        p.send_count = p.receive_count = at->count;
        p.adds = 1;
        return p;
    }
    int n = it->size, round = at->step % (n - 1);
    p.adds = at->step < n - 1;
    int sent = p.adds ? around(it->rank - round, n) : around(it->rank + 1 - round, n);
    int taken = around(sent - 1, n);
    p.to = around(it->rank + 1, n);
    p.from = around(it->rank - 1, n);
    p.send = chunk_begin(it, at, sent);
    p.send_count = chunk_begin(it, at, sent + 1) - p.send;
    p.receive = chunk_begin(it, at, taken);
    p.receive_count = chunk_begin(it, at, taken + 1) - p.receive;
    return p;
}

static int post(uni__exchange *it, int index)
{
    lane *at = &it->lanes[index];
    piece p = piece_of(it, at);
    void *room = p.adds ? it->scratch[index % WINDOW] : it->data + p.receive * it->element;
    int code = MPI_Irecv(room, (int)p.receive_count, it->type, p.from, it->tag + index, it->comm,
                         &at->requests[0]);
    if (code == MPI_SUCCESS)
        code = MPI_Isend(it->data + p.send * it->element, (int)p.send_count, it->type, p.to,
                         it->tag + index, it->comm, &at->requests[1]);
    return code;
}

int uni__exchange_start(state *s, const uni__mpi_call *call, MPI_Datatype type, uni__exchange **out)
{
    int element = 1;
    MPI_Type_size(type, &element);
    size_t bytes = call->count * (size_t)element;
    uni__exchange *it = calloc(1, sizeof *it);
    *out = it;
    if (!it)
        return MPI_ERR_NO_MEM;
    *it = (uni__exchange){ .comm = s->data,
                           .type = type,
                           .rank = s->rank,
                           .size = s->size,
                           .dtype = call->dtype,
                           .op = call->op,
                           .element = (size_t)element,
                           .data = call->out,
                           .combine = call->combine,
                           .context = call->combine_context };
    it->tag = TAG_EXCHANGE + (int)(s->exchanges++ % 256) * MAX_LANES;
    /* Between two ranks it moves as much as a ring, in half the rounds. */
    it->doubling = s->size == 2 || (bytes <= DOUBLING_BYTES && (s->size & (s->size - 1)) == 0);
    it->rounds = it->doubling ? __builtin_ctz((unsigned)s->size) : 2 * (s->size - 1);
    size_t lanes = (bytes + LANE_BYTES - 1) / LANE_BYTES;
    it->num_lanes = lanes < MAX_LANES ? (int)lanes : MAX_LANES;
    for (int i = 0; i < it->num_lanes; i++) {
        size_t n = (size_t)it->num_lanes, first = call->count * (size_t)i / n;
        it->lanes[i] = (lane){ .first = first,
                               .count = call->count * (size_t)(i + 1) / n - first,
                               .requests = { MPI_REQUEST_NULL, MPI_REQUEST_NULL } };
        if (it->lanes[i].count > it->scratch_elements)
            it->scratch_elements = it->lanes[i].count;
    }
    for (int i = 0; i < WINDOW && i < it->num_lanes; i++)
        if (!(it->scratch[i] = malloc(it->scratch_elements * it->element)))
            return MPI_ERR_NO_MEM;
    if (call->in != call->out)
        memcpy(call->out, call->in, bytes);
    int done;
    return uni__exchange_step(it, &done);
}

/* As far as one lane gets now. *done: it has ended. */
static int step_lane(uni__exchange *it, int index, int *done)
{
    lane *at = &it->lanes[index];
    *done = at->step == it->rounds;
    while (!*done) {
        MPI_Status statuses[2];
        int there = 0, code = MPI_Testall(2, at->requests, &there, statuses);
        if (code != MPI_SUCCESS || !there)
            return code;
        piece p = piece_of(it, at);
        if (p.adds)
            it->combine(it->context, it->dtype, it->op, it->data + p.receive * it->element,
                        it->scratch[index % WINDOW], p.receive_count);
        *done = ++at->step == it->rounds;
        if (!*done && (code = post(it, index)) != MPI_SUCCESS)
            return code;
    }
    return MPI_SUCCESS;
}

int uni__exchange_step(uni__exchange *it, int *done)
{
    int code = MPI_SUCCESS;
    *done = 0;
    for (;;) {
        /* A lane's scratch is free when the lane WINDOW before it has ended. */
        while (it->begun < it->num_lanes && it->begun < it->oldest + WINDOW)
            if ((code = post(it, it->begun++)) != MPI_SUCCESS)
                return code;
        int before = it->oldest;
        for (int i = it->oldest; i < it->begun; i++) {
            int ended = 0;
            if ((code = step_lane(it, i, &ended)) != MPI_SUCCESS)
                return code;
            it->oldest += ended && i == it->oldest;
        }
        *done = it->oldest == it->num_lanes;
        if (*done || it->oldest == before)
            return MPI_SUCCESS;
    }
}

void uni__exchange_free(uni__exchange *exchange)
{
    for (int i = 0; exchange && i < WINDOW; i++)
        free(exchange->scratch[i]);
    free(exchange);
}
