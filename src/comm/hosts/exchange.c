/*
 * exchange.c - all_reduce between hosts, made of sends and receives (exchange.h).
 *
 * Between hosts, Open MPI's MPI_Iallreduce takes up to twice as long as its blocking MPI_Allreduce:
 * the nonblocking one neither pipelines nor chooses from the same algorithms. The blocking one
 * cannot be left when a peer dies. So we do it ourselves:
 *
 *   2 ranks, and 2^k ranks up to 256 KB   doubling: k rounds, in each all is exchanged with the
 *                                         rank that differs in one bit, and added
 *   4096 elements and more                ring: 2 (n - 1) rounds of 1/n each
 *   otherwise                             MPI_Iallreduce; over UCX the ring
 *
 * The buffer is cut into lanes that each run the algorithm on their own. Several are under way at
 * once, so one is added while the others are on the wire. Over MPI a lane's messages have 60 KB,
 * which MPI sends over TCP at once, without asking the receiver first (between two hosts 1 MB took
 * 430 us, in messages of 125 KB 680, of 32 KB 620; 11 MB 5.5 ms, 9.9 and 9.1). Inside one host
 * other lengths are better, but no run does that: it has shared memory.
 *
 * The order of the additions depends only on rank and position. Every sum is made by one rank
 * (ring) or from the same two numbers (doubling), so all ranks have the same bits. Nothing waits:
 * step() posts what can be posted. Called on the communicator's thread.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/comm.h>

#include "comm/kinds.h"
#include "comm/hosts/exchange.h"

#define DOUBLING_BYTES (256u << 10)
/* In shared memory, where the kernel fetches slightly longer messages. That does not pay off for a
 * few. */
#define LOCAL_EAGER_BYTES 3584u
#define LOCAL_FEW_BYTES (16u << 10)
#define LOCAL_BYTES (32u << 10)
#define LARGEST_MESSAGE (128u << 10)
#define WINDOW UNI__EXCHANGE_WINDOW
#define TAG_EXCHANGE 16 /* and up */
#define MAX_SPARE 4
#define LINE_BYTES 64u

typedef struct lane {
    size_t index, first, count; /* elements */
    int step;
    uni__round_slot slot;
    /* What is received before it is added, or opened. */
    char *scratch;
    char *sealed; /* what is sent, when sealed */
} lane;

struct uni__exchange {
    uni__wire *of;
    char *block; /* the lanes' scratch */
    int rank, size, doubling, rounds;
    size_t window; /* lanes under way at once */
    int dtype, op, tag;
    size_t element; /* bytes */
    char *data;
    size_t count;
    lane lanes[WINDOW]; /* lane i is in place i % WINDOW */
    uint64_t moved; /* pieces that arrived */
    uint64_t number; /* of the call in its communicator */
    /* The rank whose piece failed to open, or -1. */
    int forged;
    /* A code of the carrier; nothing is posted any more. */
    int failed;
    size_t num_lanes, oldest, begun; /* lanes before `oldest` are done */
    void (*combine)(const void *context, int dtype, int op, void *into, const void *from,
                    size_t count);
    const void *context;
};

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
    int adds; /* 1: received data is added; 0: it replaces */
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

static uni__seal_place place_of(const uni__exchange *it, const lane *at, int from, int to)
{
    return (uni__seal_place){ .comm = it->of->id,
                              .kind = UNI__KIND_ALL_REDUCE,
                              .from = from,
                              .to = to,
                              .number = it->number,
                              .part = (uint64_t)at->index << 16 | (uint64_t)at->step };
}

/* Opens into the scratch when the piece is added from there, otherwise into its place. */
static bool open_piece(uni__exchange *it, const lane *at, const piece *p)
{
    const uni__seal *seal = it->of->seal;
    uni__seal_place place = place_of(it, at, p->from, it->rank);
    void *to = p->adds ? at->scratch : it->data + p->receive * it->element;
    return !seal ||
           seal->open(seal->context, &place, to, at->scratch, p->receive_count * it->element) == 0;
}

/* Lanes that share a place run one after the other, and so do their messages: they share a tag. */
static int post(uni__exchange *it, lane *at)
{
    piece p = piece_of(it, at);
    const uni__seal *seal = it->of->seal;
    uni__seal_place place = place_of(it, at, it->rank, p.to);
    uni__round round = { .to = p.to,
                         .from = p.from,
                         .tag = it->tag + (int)(at - it->lanes),
                         .number = it->number,
                         .part = place.part,
                         .send = it->data + p.send * it->element,
                         .receive = p.adds ? at->scratch : it->data + p.receive * it->element,
                         .send_bytes = p.send_count * it->element,
                         .receive_bytes = p.receive_count * it->element };
    if (seal) {
        seal->seal(seal->context, &place, at->sealed, round.send, round.send_bytes);
        round.send = at->sealed;
        round.receive = at->scratch;
        round.send_bytes += seal->extra;
        round.receive_bytes += seal->extra;
    }
    return it->of->post(it->of->context, &round, &at->slot);
}

static size_t lane_begin(const uni__exchange *it, size_t index)
{
    return it->count / it->num_lanes * index + it->count % it->num_lanes * index / it->num_lanes;
}

/* How the buffer is cut: whether by doubling, and the bytes of a message. */
static size_t choose_way(const uni__wire *s, size_t bytes, int *doubling)
{
    bool small = bytes <= DOUBLING_BYTES, power = (s->size & (s->size - 1)) == 0;
    *doubling = (small && power) || (s->size == 2 && !s->one_host);
    if (!s->one_host)
        return s->message_bytes;
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

int uni__exchange_start(uni__wire *s, const uni__carrier_call *call, size_t element,
                        uni__exchange **out)
{
    size_t bytes = call->count * element;
    uni__exchange *it = calloc(1, sizeof *it);
    *out = it;
    if (!it)
        return s->no_memory;
    *it = (uni__exchange){ .of = s,
                           .rank = s->rank,
                           .size = s->size,
                           .dtype = call->dtype,
                           .op = call->op,
                           .element = element,
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
    /* Fresh pages cost more than the sum, so the block is kept for the next call. */
    const size_t room = LARGEST_MESSAGE + LINE_BYTES;
    it->block =
        s->num_spare > 0 ? s->spare[--s->num_spare] : malloc(WINDOW * room * (s->seal ? 2 : 1));
    if (!it->block)
        return s->no_memory;
    for (size_t i = 0; i < WINDOW; i++) {
        it->lanes[i].scratch = it->block + i * room;
        it->lanes[i].sealed = s->seal ? it->block + (WINDOW + i) * room : NULL;
    }
    if (call->in != call->out)
        memcpy(call->out, call->in, bytes);
    int done;
    (void)uni__exchange_step(it, &done); /* the next step repeats the error */
    return 0;
}

/* Advances one lane as far as possible. *done: it has ended. */
static int step_lane(uni__exchange *it, lane *at, int *done)
{
    *done = at->step == it->rounds;
    while (!*done) {
        int there = 0, code = it->of->test(it->of->context, &at->slot, &there);
        if (code != 0 || !there)
            return code;
        piece p = piece_of(it, at);
        it->moved++;
        if (!open_piece(it, at, &p)) {
            it->forged = p.from;
            return -1; /* any code: callers check forged first */
        }
        if (p.adds)
            it->combine(it->context, it->dtype, it->op, it->data + p.receive * it->element,
                        at->scratch, p.receive_count);
        *done = ++at->step == it->rounds;
        if (!*done && (code = post(it, at)) != 0)
            return code;
    }
    return 0;
}

static int step_lanes(uni__exchange *it, int *done)
{
    int code;
    for (;;) {
        while (it->begun < it->num_lanes && it->begun < it->oldest + it->window)
            if ((code = begin_lane(it, it->begun++)) != 0)
                return code;
        size_t before = it->oldest;
        for (size_t i = it->oldest; i < it->begun; i++) {
            int ended = 0;
            if ((code = step_lane(it, &it->lanes[i % WINDOW], &ended)) != 0)
                return code;
            it->oldest += ended && i == it->oldest;
        }
        *done = it->oldest == it->num_lanes;
        if (*done || it->oldest == before)
            return 0;
    }
}

int uni__exchange_step(uni__exchange *it, int *done)
{
    *done = 0;
    if (it->failed == 0)
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
    uni__wire *s = exchange ? exchange->of : NULL;
    if (s && exchange->block && s->num_spare < MAX_SPARE)
        s->spare[s->num_spare++] = exchange->block;
    else if (s)
        free(exchange->block);
    free(exchange);
}

void uni__wire_free(uni__wire *wire)
{
    while (wire->num_spare > 0)
        free(wire->spare[--wire->num_spare]);
}
