/*
 * plugin.c - the carrier over UCX: collectives made of messages (messages.c).
 *
 *   all_reduce                     hosts/exchange.c, as over MPI
 *   reduce, reduce_scatter         the same into temporary memory, of which a part is kept
 *   broadcast                      a binomial tree, and a check
 *   all_gather, all_to_all         every rank to every other
 *   barrier and all of no elements a check: ceil(log2 n) rounds, in each a word to rank + 2^k
 *
 * Every message carries its sender's call, which the receiver compares with its own. No rank gets a
 * result before it has heard from all others, directly or indirectly, so ranks whose calls differ
 * never complete. The first to notice says so; if the messages do not even meet, the notes of
 * carrier.c reveal it. A dead peer matters to the rank that waits for it, which tells the others.
 * Called on the rank's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unisono/comm.h>

#include "comm/kinds.h"
#include "comm/ucx/plugin_internal.h"

#define MESSAGE_BYTES (60u << 10)
#define LAST_WORDS_NS 50000000ll
#define STAY_NS 300000000u
#define PROGRESS 16 /* at most this many UCX turns in one test */

typedef struct handle {
    struct handle *next;
    uni__carrier_call call;
    uni__carrier_difference differs;
    uint64_t number;
    size_t bytes; /* of one segment */
    sending *sendings;
    receiving *receivings;
    uni__exchange *exchange, *weights;
    /* The result of a reduction of which only a part is kept. */
    char *temporary;
    /* Of the check's round; 0: no check needed, -1: complete. */
    int distance;
    /* Must arrive before the next messages leave. */
    receiving *check, *parent;
} handle;

static size_t size_of(int dtype)
{
    switch (dtype) {
    case UNI_U8:
    case UNI_I8:
    case UNI_B8:
        return 1;
    case UNI_I16:
    case UNI_U16:
    case UNI_F16:
    case UNI_BF16:
        return 2;
    case UNI_F32:
    case UNI_I32:
    case UNI_U32:
        return 4;
    default:
        return 8;
    }
}

static int no_memory(char *why)
{
    snprintf(why, UNI__WHY_SIZE, "no memory for a call over UCX");
    return UNI_ENOMEM;
}

/* ---- the exchange's wire ---- */

static header head_of(const state *s, const handle *h, uint32_t class, int from, uint64_t part)
{
    return (header){ .comm = s->id,
                     .class = class,
                     .from = from,
                     .number = h->number,
                     .part = part,
                     .said = h->call.said };
}

static int post_round(void *context, const uni__round *round, uni__round_slot *slot)
{
    state *s = context;
    handle *h = s->current;
    header out = head_of(s, h, UCX_DATA, s->rank, round->part);
    header in = head_of(s, h, UCX_DATA, round->from, round->part);
    out.number = in.number = round->number;
    if (!uni__ucx_receive(s, &h->receivings, &in, round->receive, round->receive_bytes, false) ||
        !uni__ucx_send(s, &h->sendings, &out, round->to, round->send, round->send_bytes, false))
        return UNI_ENOMEM;
    slot->words[0] = (uint64_t)(uintptr_t)h->receivings;
    slot->words[1] = (uint64_t)(uintptr_t)h->sendings;
    return 0;
}

/* Is the received message of our call? A message of the same call has the same length, unless it
 * was changed on its way. */
static bool compare(state *s, handle *h, const receiving *it)
{
    bool pair = h->call.kind == UNI__KIND_RECV;
    bool same = pair ? (it->said.what >> 8 & 0xff) == (uint64_t)h->call.dtype
                     : it->said.what == h->call.said.what;
    if (!same || it->said.count != h->call.said.count) {
        h->differs = (uni__carrier_difference){ .rank = it->want.from, .said = it->said };
        if (pair)
            h->differs.said.what = UNI__KIND_SEND | (it->said.what & 0xff00);
        return false;
    }
    if (it->came != it->bytes)
        s->forged = it->want.from;
    return it->came == it->bytes;
}

static int test_round(void *context, uni__round_slot *slot, int *done)
{
    state *s = context;
    const receiving *in = (const receiving *)(uintptr_t)slot->words[0];
    sending *out = (sending *)(uintptr_t)slot->words[1];
    int lost = -1;
    *done = in->done && compare(s, s->current, in) && uni__ucx_sent(s, out, &lost) && lost < 0;
    return 0;
}

/* ---- calls ---- */

/* Posts one round of the check. Its messages carry no data, but are sealed: a forged one would let
 * a rank leave a barrier early. */
static bool post_check(state *s, handle *h)
{
    int to = (s->rank + h->distance) % s->size, from = (s->rank - h->distance + s->size) % s->size;
    header out = head_of(s, h, UCX_CHECK, s->rank, (uint64_t)h->distance);
    header in = head_of(s, h, UCX_CHECK, from, (uint64_t)h->distance);
    bool posted = uni__ucx_receive(s, &h->receivings, &in, NULL, 0, true) &&
                  uni__ucx_send(s, &h->sendings, &out, to, NULL, 0, true);
    h->check = h->receivings;
    return posted;
}

static bool start_check(state *s, handle *h)
{
    h->distance = 1;
    return post_check(s, h);
}

/* Ranks are counted from the root. A rank's children differ from it in a bit below its lowest. */
static bool send_to_children(state *s, handle *h)
{
    int at = (s->rank - h->call.root + s->size) % s->size, bit = 1;
    bool sent = true;
    while (bit < s->size && !(at & bit))
        bit *= 2;
    header out = head_of(s, h, UCX_DATA, s->rank, 0);
    for (bit /= 2; bit > 0 && sent; bit /= 2)
        if (at + bit < s->size)
            sent = uni__ucx_send(s, &h->sendings, &out, (at + bit + h->call.root) % s->size,
                                 h->call.out, h->bytes, true);
    return sent;
}

static bool start_broadcast(state *s, handle *h)
{
    int at = (s->rank - h->call.root + s->size) % s->size;
    int parent = ((at & (at - 1)) + h->call.root) % s->size;
    header in = head_of(s, h, UCX_DATA, parent, 0);
    if (!start_check(s, h))
        return false;
    if (at == 0)
        return send_to_children(s, h);
    bool posted = uni__ucx_receive(s, &h->receivings, &in, h->call.out, h->bytes, true);
    h->parent = h->receivings;
    return posted;
}

static bool start_all_to_all(state *s, handle *h)
{
    const char *in = h->call.in;
    char *out = h->call.out;
    bool gathers = h->call.kind == UNI__KIND_ALL_GATHER, posted = true;
    const char *own = gathers ? in : in + h->bytes * (size_t)s->rank;
    if (h->bytes)
        memmove(out + h->bytes * (size_t)s->rank, own, h->bytes);
    for (int i = 1; i < s->size && posted; i++) {
        int to = (s->rank + i) % s->size, from = (s->rank - i + s->size) % s->size;
        header send = head_of(s, h, UCX_DATA, s->rank, 0), want = head_of(s, h, UCX_DATA, from, 0);
        posted = uni__ucx_receive(s, &h->receivings, &want, out + h->bytes * (size_t)from, h->bytes,
                                  true) &&
                 uni__ucx_send(s, &h->sendings, &send, to,
                               gathers ? in : in + h->bytes * (size_t)to, h->bytes, true);
    }
    return posted;
}

static bool start_pair(state *s, handle *h)
{
    pair_count *other = &s->pairs[h->call.root];
    bool sends = h->call.kind == UNI__KIND_SEND;
    h->number = sends ? other->sends++ : other->receives++;
    header head = head_of(s, h, UCX_PAIR, sends ? s->rank : h->call.root, 0);
    return sends ? uni__ucx_send(s, &h->sendings, &head, h->call.root, h->call.in, h->bytes, true)
                 : uni__ucx_receive(s, &h->receivings, &head, h->call.out, h->bytes, true);
}

/* All reductions. segments: of the input. */
static bool start_reduce(state *s, handle *h, size_t segments)
{
    uni__carrier_call all = h->call;
    bool keeps = h->call.kind == UNI__KIND_REDUCE || h->call.kind == UNI__KIND_REDUCE_SCATTER;
    all.count = h->call.count * segments;
    if (keeps) {
        if (!(h->temporary = malloc(h->bytes * segments + 1)))
            return false;
        memcpy(h->temporary, h->call.in, h->bytes * segments);
        all.in = all.out = h->temporary;
    }
    return uni__exchange_start(&s->wire, &all, size_of(h->call.dtype), &h->exchange) == 0;
}

static bool start_weights(state *s, handle *h)
{
    uni__carrier_call weights = { .kind = UNI__KIND_ALL_REDUCE,
                                  .dtype = UNI_F64,
                                  .op = UNI_COMM_SUM,
                                  .count = 1,
                                  .in = h->call.weight,
                                  .out = h->call.weight,
                                  .combine = h->call.combine,
                                  .combine_context = h->call.combine_context };
    return uni__exchange_start(&s->wire, &weights, sizeof(double), &h->weights) == 0;
}

/* With one rank every collective is a copy. */
static bool start_alone(handle *h)
{
    if (h->call.out && h->call.in && h->call.out != h->call.in && h->bytes)
        memmove(h->call.out, h->call.in, h->bytes);
    return true;
}

static bool start_call(state *s, handle *h)
{
    int kind = h->call.kind;
    if (uni__kind_is_pair(kind))
        return start_pair(s, h);
    if (s->size == 1)
        return start_alone(h);
    h->number = s->wire.calls++;
    if (kind == UNI__KIND_BROADCAST)
        return start_broadcast(s, h);
    if (kind == UNI__KIND_ALL_GATHER || kind == UNI__KIND_ALL_TO_ALL)
        return start_all_to_all(s, h);
    bool reduces = kind == UNI__KIND_ALL_REDUCE || kind == UNI__KIND_REDUCE ||
                   kind == UNI__KIND_REDUCE_SCATTER;
    bool started = reduces && h->call.count > 0
                       ? start_reduce(s, h, kind == UNI__KIND_REDUCE_SCATTER ? (size_t)s->size : 1)
                       : start_check(s, h);
    return started && (!h->call.weight || start_weights(s, h));
}

/* The last part of a call that succeeded. */
static void conclude(const state *s, handle *h)
{
    if (h->temporary && h->call.kind == UNI__KIND_REDUCE_SCATTER)
        memcpy(h->call.out, h->temporary + h->bytes * (size_t)s->rank, h->bytes);
    else if (h->temporary && s->rank == h->call.root)
        memcpy(h->call.out, h->temporary, h->bytes);
}

static void adopt(hub *h, sending *list)
{
    sending **last = &h->orphans;
    while (*last)
        last = &(*last)->next;
    *last = list;
}

static void free_handle(state *s, handle *h)
{
    for (handle **at = &s->handles; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            break;
        }
    while (h->receivings) {
        receiving *next = h->receivings->next;
        uni__ucx_drop_receiving(s, h->receivings);
        h->receivings = next;
    }
    /* What has not left completely is still read by UCX. */
    uni__ucx_free_sendings(&h->sendings);
    adopt(s->hub, h->sendings);
    uni__exchange_free(h->exchange);
    uni__exchange_free(h->weights);
    free(h->temporary);
    free(h);
}

static int plugin_start(void *context, const uni__carrier_call *call, void **out, char *why)
{
    state *s = context;
    handle *h = calloc(1, sizeof *h);
    *out = h;
    if (!h)
        return no_memory(why);
    h->call = *call;
    h->differs.rank = -1;
    h->bytes = call->count * size_of(call->dtype);
    h->next = s->handles;
    s->handles = s->current = h;
    return start_call(s, h) ? 0 : no_memory(why);
}

static bool step_exchange(uni__exchange **exchange)
{
    int done = 1;
    if (*exchange && (uni__exchange_step(*exchange, &done) != 0 || !done))
        return false;
    uni__exchange_free(*exchange);
    *exchange = NULL;
    return true;
}

/* Advances the call as far as possible. False: out of memory. */
static bool advance(state *s, handle *h, bool *done)
{
    int lost = -1;
    s->current = h;
    *done = step_exchange(&h->exchange);
    *done &= step_exchange(&h->weights);
    if (h->parent && h->parent->done && compare(s, h, h->parent)) {
        h->parent = NULL;
        if (!send_to_children(s, h))
            return false;
    }
    while (h->check && h->check->done && compare(s, h, h->check)) {
        h->check = NULL;
        h->distance *= 2;
        if (h->distance < s->size && !post_check(s, h))
            return false;
    }
    *done &= !h->parent && !h->check;
    for (const receiving *it = h->receivings; it && *done; it = it->next)
        *done = it->done && compare(s, h, it);
    for (sending *it = h->sendings; it && *done; it = it->next)
        *done = uni__ucx_sent(s, it, &lost) && lost < 0;
    return true;
}

static int say_gone(const state *s, int rank, char *why)
{
    const peer *it = peer_of(s, rank);
    if (it->left)
        snprintf(why, UNI__WHY_SIZE, "rank %d has closed its communicator", rank);
    else
        snprintf(why, UNI__WHY_SIZE, "rank %d is gone: UCX says: %s", rank,
                 ucs_status_string(it->status));
    return UNI_EPEER;
}

static int say_forged(int rank, char *why)
{
    snprintf(why, UNI__WHY_SIZE,
             "a message of rank %d was changed, repeated or left out on its way: possible man in "
             "the middle",
             rank);
    return UNI_ECORRUPT;
}

/* The dead peer that the call needs, or -1. */
static int needs_lost(const state *s, const handle *h)
{
    bool is_pair = uni__kind_is_pair(h->call.kind);
    for (const receiving *it = h->receivings; it; it = it->next)
        if (!it->done &&
            (peer_of(s, it->want.from)->left ? !is_pair : peer_of(s, it->want.from)->dead))
            return it->want.from;
    for (const sending *it = h->sendings; it; it = it->next)
        if (it->request && peer_of(s, it->to)->dead && !peer_of(s, it->to)->left)
            return it->to;
    return -1;
}

static int plugin_test(void *context, void *argument, int *done, uni__carrier_difference *differs,
                       char *why)
{
    state *s = context;
    handle *h = argument;
    bool ended = false;
    *done = 0;
    for (int i = 0; i < PROGRESS && ucp_worker_progress(s->hub->worker); i++)
        ;
    if (h->differs.rank < 0 && !advance(s, h, &ended))
        return no_memory(why);
    *differs = h->differs;
    if (h->differs.rank >= 0)
        return UNI_EMISMATCH;
    int forged = h->exchange ? uni__exchange_forged(h->exchange) : -1;
    forged = forged < 0 && h->weights ? uni__exchange_forged(h->weights) : forged;
    forged = forged < 0 ? s->forged : forged;
    if (forged >= 0)
        return say_forged(forged, why);
    if (s->hub->no_memory)
        return no_memory(why);
    if (ended) {
        conclude(s, h);
        free_handle(s, h);
        *done = 1;
        return 0;
    }
    /* The last words of a rank that gave up say more than its disappearance. */
    int lost = uni__ucx_has_note(s) ? -1 : needs_lost(s, h);
    return lost >= 0 ? say_gone(s, lost, why) : 0;
}

static uint64_t plugin_progress(void *argument)
{
    const handle *h = argument;
    return h->exchange ? uni__exchange_progress(h->exchange) : 0;
}

static bool plugin_is_deserted(void *context, void *argument)
{
    const handle *h = argument;
    return h->receivings && !h->receivings->done && peer_of(context, h->call.root)->left;
}

/* ---- notes ---- */

static int plugin_send_notes(void *context, const uni__carrier_note *note, char *why)
{
    state *s = context;
    header head = { .comm = s->id, .class = UCX_NOTE, .from = s->rank };
    int lost;
    for (sending *it = s->notes; it; it = it->next)
        (void)uni__ucx_sent(s, it, &lost);
    uni__ucx_free_sendings(&s->notes);
    /* A note still queued was not received since the last one, so another would not be either. */
    if (s->notes && note->code == 0)
        return 0;
    for (int r = 0; r < s->size; r++) {
        /* Sealed notes must outlive this call; plain ones are copied for the same reason. */
        if (r == s->rank || peer_of(s, r)->dead || peer_of(s, r)->left)
            continue;
        char *copy = s->seal ? NULL : malloc(sizeof *note);
        if (!s->seal && !copy)
            return no_memory(why);
        if (copy)
            memcpy(copy, note, sizeof *note);
        bool sent = uni__ucx_send(s, &s->notes, &head, r, copy ? copy : (const char *)note,
                                  sizeof *note, true);
        if (!sent) {
            free(copy);
            return no_memory(why);
        }
        if (copy)
            s->notes->sealed = copy;
    }
    for (int i = 0; i < PROGRESS && ucp_worker_progress(s->hub->worker); i++)
        ;
    if (note->code != 0)
        uni__ucx_flush(s->hub, LAST_WORDS_NS);
    return 0;
}

static int plugin_next_note(void *context, uni__carrier_note *note, int *got, char *why)
{
    state *s = context;
    header head;
    for (int i = 0; i < PROGRESS && ucp_worker_progress(s->hub->worker); i++)
        ;
    *got = uni__ucx_next_note(s, &head, note, sizeof *note);
    if (s->forged >= 0)
        return say_forged(s->forged, why);
    if (*got) {
        note->rank = head.from;
        note->text[sizeof note->text - 1] = 0;
    }
    return 0;
}

/* ---- life ---- */

static void free_state(state *s)
{
    state **at = &s->hub->states;
    while (*at && *at != s)
        at = &(*at)->next;
    if (*at)
        *at = s->next;
    while (s->handles)
        free_handle(s, s->handles);
    adopt(s->hub, s->notes);
    uni__ucx_free_arrivals(&s->early);
    uni__wire_free(&s->wire);
    free(s->ranks);
    free(s->pairs);
    free(s);
}

/* Of the world: ends with all that was split off from it. */
static void plugin_close(void *context, int proper)
{
    state *s = context;
    hub *h = s ? s->hub : NULL;
    if (!s)
        return;
    if (s->id != (uint64_t)h->epoch << 32) {
        free_state(s);
        return;
    }
    uni__ucx_close(h, proper != 0);
    for (state *one = h->states; one; one = one->next) {
        uni__ucx_forget(one->notes);
        for (handle *call = one->handles; call; call = call->next)
            uni__ucx_forget(call->sendings);
    }
    uni__ucx_forget(h->orphans);
    uni__ucx_end(h);
    while (h->states)
        free_state(h->states);
    uni__ucx_free_sendings(&h->orphans);
    free(h->peers);
    free(h);
}

/* ranks: of the hub. NULL: out of memory. */
static state *new_state(hub *h, uint64_t id, const int *ranks, int rank, int size)
{
    state *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (state){ .hub = h, .id = id, .rank = rank, .size = size, .forged = -1 };
    s->ranks = calloc((size_t)size, sizeof *s->ranks);
    s->pairs = calloc((size_t)size, sizeof *s->pairs);
    s->wire = (uni__wire){ .context = s,
                           .post = post_round,
                           .test = test_round,
                           .id = id,
                           .rank = rank,
                           .size = size,
                           .no_memory = UNI_ENOMEM,
                           .message_bytes = MESSAGE_BYTES };
    if (!s->ranks || !s->pairs) {
        free_state(s);
        return NULL;
    }
    for (int r = 0; r < size; r++)
        s->ranks[r] = ranks ? ranks[r] : r;
    uni__ucx_add_state(h, s);
    return s;
}

static int plugin_open(void **out, int rank, int size, uint32_t epoch, uint64_t token,
                       const char *devices, char *why)
{
    hub *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h || !(h->peers = calloc((size_t)size, sizeof *h->peers))) {
        free(h);
        return no_memory(why);
    }
    h->rank = rank;
    h->size = size;
    h->epoch = epoch;
    h->token = token;
    state *world = new_state(h, (uint64_t)epoch << 32, NULL, rank, size);
    if (!world) {
        free(h->peers);
        free(h);
        return no_memory(why);
    }
    int status = uni__ucx_open(h, devices, why);
    if (status < 0)
        plugin_close(world, 0);
    else
        *out = world;
    return status;
}

static int plugin_split(void *context, int color, const int *members, int count, void **out,
                        int *rank, int *size, char *why)
{
    state *world = context;
    hub *h = world->hub;
    uint64_t id = (uint64_t)h->epoch << 32 | (uint64_t)++h->splits << 16 | (uint32_t)color;
    *out = NULL;
    if (color < 0)
        return 0;
    *size = count;
    for (*rank = 0; *rank < count - 1 && members[*rank] != h->rank;)
        ++*rank;
    state *s = new_state(h, id, members, *rank, count);
    if (!s)
        return no_memory(why);
    s->seal = s->wire.seal = world->seal;
    *out = s;
    return 0;
}

static int plugin_address(void *context, const void **address, size_t *size, char *why)
{
    const state *s = context;
    *address = s->hub->address;
    *size = s->hub->address_size;
    return 0;
}

static int plugin_connect(void *context, int rank, const void *address, uint64_t token, char *why)
{
    return uni__ucx_connect(((state *)context)->hub, rank, address, token, why);
}

static void plugin_protect(void *context, const uni__seal *seal)
{
    state *s = context;
    s->seal = s->wire.seal = seal;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* UCX 1.13 ends the whole process of a peer whose connection is cut while it is being set up. So a
 * rank that refuses a greeting stays until the others have set up theirs. */
static bool may_leave(state *s)
{
    if (s->forged_ns == 0)
        s->forged_ns = now_ns();
    return now_ns() - s->forged_ns > STAY_NS;
}

static int plugin_meet(void *context, int *done, char *why)
{
    state *s = context;
    header hello = { .comm = s->id, .class = UCX_HELLO, .from = s->rank };
    for (int r = 0; r < s->size && !s->greeted; r++)
        if (r != s->rank && !uni__ucx_send(s, &s->notes, &hello, r, NULL, 0, true))
            return no_memory(why);
    s->greeted = true;
    ucp_worker_progress(s->hub->worker);
    if (s->forged >= 0)
        return may_leave(s) ? say_forged(s->forged, why) : 0;
    *done = 1;
    for (int r = 0; r < s->size; r++) {
        if (r == s->rank || peer_of(s, r)->hello)
            continue;
        *done = 0;
        if (peer_of(s, r)->dead)
            return say_gone(s, r, why);
    }
    return 0;
}

/* UCX survives the death of a peer: there is nothing to abandon and nothing to finalize. */
static void plugin_nothing(void) {}

__attribute__((visibility("default"))) const uni__ucx_plugin *uni__ucx_plugin_get(void);

const uni__ucx_plugin *uni__ucx_plugin_get(void)
{
    static const uni__carrier carrier = {
        .version = UNI__CARRIER_VERSION,
        .family = "ucx",
        .survives = true,
        .protect = plugin_protect,
        .meet = plugin_meet,
        .split = plugin_split,
        .start = plugin_start,
        .test = plugin_test,
        .progress = plugin_progress,
        .is_deserted = plugin_is_deserted,
        .send_notes = plugin_send_notes,
        .next_note = plugin_next_note,
        .close = plugin_close,
        .abandon = plugin_nothing,
        .finish = plugin_nothing,
    };
    static const uni__ucx_plugin plugin = {
        .version = UNI__UCX_PLUGIN_VERSION,
        .carrier = &carrier,
        .open = plugin_open,
        .address = plugin_address,
        .connect = plugin_connect,
    };
    return &plugin;
}
