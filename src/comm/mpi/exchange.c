/*
 * exchange.c - all_reduce over MPI, made of sends and receives.
 *
 * Open MPI's MPI_Iallreduce takes up to twice as long as its blocking MPI_Allreduce between hosts (the nonblocking one knows neither pipelining nor the same
 * choice of algorithms), and the blocking one cannot be left when a peer dies. So we do it ourselves:
 *
 *   2 ranks, and 2^k ranks up to 256 KB   doubling: k rounds, in each all is exchanged with the rank that differs in one bit, and added
 *   4096 elements and more                ring: 2 (n - 1) rounds of 1/n each
 *   otherwise                             MPI_Iallreduce
 *
 * The buffer is cut into lanes that go through this each by itself; some are under way at once, so that one is added while the others are on the wire.
 * A lane is so long that its messages have 60 KB: what MPI sends at once over TCP, without asking the receiver first (between two hosts 1 MB took 430 us, in messages of
 * 125 KB 680, of 32 KB 620; 11 MB 5.5 ms, 9.9 and 9.1). Inside one host (no run does that: it has shared memory of its own) other lengths are better.
 * The order of the additions depends on rank and place only, and every sum is made by one rank (ring) or of the same two numbers (doubling), so that all
 * ranks have the same bits. Nothing waits: step() posts what can be posted. The communicator's thread.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/comm.h>

#include "comm/kinds.h"
#include "comm/mpi/plugin_internal.h"

#define RING_ELEMENTS 4096u
#define DOUBLING_BYTES (256u << 10)
#define EAGER_BYTES (60u << 10) /* over TCP */
#define LOCAL_EAGER_BYTES                                                                          \
    3584u /* in shared memory, where what is a little longer is fetched by the kernel: for a few of them it is not worth it */
#define LOCAL_FEW_BYTES (16u << 10)
#define LOCAL_BYTES (32u << 10)
#define LARGEST_MESSAGE (128u << 10)
#define WINDOW 16 /* lanes under way */
#define LINE_BYTES 64u

typedef struct lane {
    size_t index, first, count; /* elements */
    int step;
    MPI_Request requests[2];
    char *scratch; /* what is received before it is added, or opened */
    char *sealed; /* what is sent, when it is sealed */
} lane;

struct uni__exchange {
    state *of;
    char *block; /* the lanes' scratch */
    MPI_Comm comm;
    MPI_Datatype type;
    int rank, size, doubling, rounds;
    size_t window; /* lanes under way at once */
    int dtype, op, tag;
    size_t element; /* bytes */
    char *data;
    size_t count;
    lane lanes[WINDOW]; /* lane i is in place i % WINDOW */
    uint64_t moved; /* pieces that came */
    uint64_t number; /* of the call in its communicator */
    int forged; /* the rank whose piece did not open, or -1 */
    int failed; /* a code of MPI's: nothing is posted any more */
    size_t num_lanes, oldest, begun; /* lanes before `oldest` are done */
    void (*combine)(const void *context, int dtype, int op, void *into, const void *from,
                    size_t count);
    const void *context;
};

int uni__exchange_is_better(const state *s, const uni__mpi_call *call)
{
    int reduces = call->kind == UNI__KIND_ALL_REDUCE || call->kind == UNI__KIND_REDUCE_APPLY;
    bool doubles = (s->size & (s->size - 1)) == 0; /* a ring has too many rounds for little */
    return reduces && s->size > 1 && call->combine && call->count > 0 &&
           (doubles || call->count >= RING_ELEMENTS || s->seal);
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

static uni__mpi_place place_of(const uni__exchange *it, const lane *at, int from, int to)
{
    return (uni__mpi_place){ .comm = it->of->id,
                             .kind = UNI__KIND_ALL_REDUCE,
                             .from = from,
                             .to = to,
                             .number = it->number,
                             .part = (uint64_t)at->index << 16 | (uint64_t)at->step };
}

static int post_sealed(uni__exchange *it, lane *at, const piece *p, int tag)
{
    const uni__mpi_seal *seal = it->of->seal;
    uni__mpi_place place = place_of(it, at, it->rank, p->to);
    size_t bytes = p->send_count * it->element;
    seal->seal(seal->context, &place, at->sealed, it->data + p->send * it->element, bytes);
    int code = MPI_Irecv(at->scratch, (int)(p->receive_count * it->element + seal->extra), MPI_BYTE,
                         p->from, tag, it->comm, &at->requests[0]);
    return code == MPI_SUCCESS ? MPI_Isend(at->sealed, (int)(bytes + seal->extra), MPI_BYTE, p->to,
                                           tag, it->comm, &at->requests[1])
                               : code;
}

/* Into the scratch where it is added from, or to its place. */
static bool open_piece(uni__exchange *it, const lane *at, const piece *p)
{
    const uni__mpi_seal *seal = it->of->seal;
    uni__mpi_place place = place_of(it, at, p->from, it->rank);
    void *to = p->adds ? at->scratch : it->data + p->receive * it->element;
    return !seal ||
           seal->open(seal->context, &place, to, at->scratch, p->receive_count * it->element) == 0;
}

/* Lanes in one place follow each other, and so do their messages: they share a tag. */
static int post(uni__exchange *it, lane *at)
{
    piece p = piece_of(it, at);
    int tag = it->tag + (int)(at - it->lanes);
    if (it->of->seal)
        return post_sealed(it, at, &p, tag);
    void *room = p.adds ? at->scratch : it->data + p.receive * it->element;
    int code =
        MPI_Irecv(room, (int)p.receive_count, it->type, p.from, tag, it->comm, &at->requests[0]);
    if (code == MPI_SUCCESS)
        code = MPI_Isend(it->data + p.send * it->element, (int)p.send_count, it->type, p.to, tag,
                         it->comm, &at->requests[1]);
    return code;
}

static size_t lane_begin(const uni__exchange *it, size_t index)
{
    return it->count / it->num_lanes * index + it->count % it->num_lanes * index / it->num_lanes;
}

/* How the buffer is cut: whether by doubling, and bytes of a message. */
static size_t choose_way(const state *s, size_t bytes, int *doubling)
{
    bool small = bytes <= DOUBLING_BYTES, power = (s->size & (s->size - 1)) == 0;
    *doubling = (small && power) || (s->size == 2 && !s->one_host);
    if (!s->one_host)
        return EAGER_BYTES;
    if (!small)
        return 2 * LARGEST_MESSAGE / (size_t)s->size;
    return bytes <= LOCAL_FEW_BYTES ? LOCAL_EAGER_BYTES : LOCAL_BYTES;
}

static int begin_lane(uni__exchange *it, size_t index)
{
    lane *at = &it->lanes[index % WINDOW];
    at->index = index;
    at->first = lane_begin(it, index);
    at->count = lane_begin(it, index + 1) - at->first;
    at->step = 0;
    return post(it, at);
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
    *it = (uni__exchange){ .of = s,
                           .comm = s->data,
                           .type = type,
                           .rank = s->rank,
                           .size = s->size,
                           .dtype = call->dtype,
                           .op = call->op,
                           .element = (size_t)element,
                           .data = call->out,
                           .number = s->calls++,
                           .forged = -1,
                           .combine = call->combine,
                           .context = call->combine_context };
    it->tag = TAG_EXCHANGE + (int)(s->exchanges++ % 256) * WINDOW;
    it->count = call->count;
    size_t message = choose_way(s, bytes, &it->doubling);
    it->window = s->one_host ? WINDOW / 2 : WINDOW;
    it->rounds = it->doubling ? __builtin_ctz((unsigned)s->size) : 2 * (s->size - 1);
    size_t lane_bytes = it->doubling ? message : (size_t)s->size * message;
    it->num_lanes = (bytes + lane_bytes - 1) / lane_bytes;
    /* Fresh pages cost more than the sum: the block is kept for the next call. */
    const size_t room = LARGEST_MESSAGE + LINE_BYTES;
    it->block =
        s->num_spare > 0 ? s->spare[--s->num_spare] : malloc(WINDOW * room * (s->seal ? 2 : 1));
    if (!it->block)
        return MPI_ERR_NO_MEM;
    for (size_t i = 0; i < WINDOW; i++) {
        it->lanes[i].requests[0] = it->lanes[i].requests[1] = MPI_REQUEST_NULL;
        it->lanes[i].scratch = it->block + i * room;
        it->lanes[i].sealed = s->seal ? it->block + (WINDOW + i) * room : NULL;
    }
    if (call->in != call->out)
        memcpy(call->out, call->in, bytes);
    int done;
    (void)uni__exchange_step(it, &done); /* it says so again */
    return MPI_SUCCESS;
}

/* As far as one lane gets now. *done: it has ended. */
static int step_lane(uni__exchange *it, lane *at, int *done)
{
    *done = at->step == it->rounds;
    while (!*done) {
        MPI_Status statuses[2];
        int there = 0, code = MPI_Testall(2, at->requests, &there, statuses);
        if (code != MPI_SUCCESS || !there)
            return code;
        piece p = piece_of(it, at);
        it->moved++;
        if (!open_piece(it, at, &p)) {
            it->forged = p.from;
            return MPI_ERR_OTHER;
        }
        if (p.adds)
            it->combine(it->context, it->dtype, it->op, it->data + p.receive * it->element,
                        at->scratch, p.receive_count);
        *done = ++at->step == it->rounds;
        if (!*done && (code = post(it, at)) != MPI_SUCCESS)
            return code;
    }
    return MPI_SUCCESS;
}

static int step_lanes(uni__exchange *it, int *done)
{
    int code;
    for (;;) {
        while (it->begun < it->num_lanes && it->begun < it->oldest + it->window)
            if ((code = begin_lane(it, it->begun++)) != MPI_SUCCESS)
                return code;
        size_t before = it->oldest;
        for (size_t i = it->oldest; i < it->begun; i++) {
            int ended = 0;
            if ((code = step_lane(it, &it->lanes[i % WINDOW], &ended)) != MPI_SUCCESS)
                return code;
            it->oldest += ended && i == it->oldest;
        }
        *done = it->oldest == it->num_lanes;
        if (*done || it->oldest == before)
            return MPI_SUCCESS;
    }
}

int uni__exchange_step(uni__exchange *it, int *done)
{
    *done = 0;
    if (it->failed == MPI_SUCCESS)
        it->failed = step_lanes(it, done);
    return it->failed;
}

uint64_t uni__exchange_progress(const uni__exchange *exchange)
{
    return exchange->moved + 1;
}

int uni__exchange_forged(const uni__exchange *exchange)
{
    return exchange->forged;
}

void uni__exchange_free(uni__exchange *exchange)
{
    state *s = exchange ? exchange->of : NULL;
    if (s && exchange->block && s->num_spare < MAX_SPARE)
        s->spare[s->num_spare++] = exchange->block;
    else if (s)
        free(exchange->block);
    free(exchange);
}
