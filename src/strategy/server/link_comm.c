/*
 * link_comm.c - links over a communicator (carrier.h).
 *
 * The asker numbers its questions, and an answer carries its question's number. An answer to a
 * question that was given up (the phase was over) is dropped. The other side receives the next
 * question once the last one is answered and its answer is on the way.
 */
#include "strategy/server/carrier.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define PAUSE_NS 50000
#define YIELDS 50

/* The header before a payload. */
typedef struct wire {
    uni__ps_message message;
    uint64_t number;
} wire;

typedef enum moving { IDLE, HEADER, PAYLOAD, ARRIVED } moving;

/* One end of a link, at the beginning of its memory. */
typedef struct end {
    int peer;
    bool asks;
    size_t capacity;
    wire out, in;
    moving sending, receiving;
    uni_comm_request *send, *receive;
    /* Question numbers. On the asker: of its last question. On the other side: of the last one
     * answered. */
    uint64_t asked, answered;
} end;
_Static_assert(sizeof(end) <= UNI__LINK_HEADER, "an end fits before the payloads");

struct uni__carrier {
    uni_comm *comm;
    end *ends[UNI__CARRIER_LINKS];
    int num_ends;
    bool too_many;
    uint32_t events;
    uni_error error;
};

static char *payload_of(end *it, bool question)
{
    return (char *)it + UNI__LINK_HEADER + (question ? 0 : it->capacity);
}

/* ---- progress ---- */

static bool failed(uni__carrier *carrier, int status)
{
    if (status < 0 && carrier->error.code == 0)
        carrier->error.code = status;
    return carrier->error.code < 0;
}

/* true: this part is done. */
static bool is_done(uni__carrier *carrier, uni_comm_request **request)
{
    bool done = false;
    if (failed(carrier, uni_comm_test(&done, *request, &carrier->error)) || !done)
        return false;
    *request = NULL;
    return true;
}

static void start_send(uni__carrier *carrier, end *it, const void *data, size_t bytes, moving what)
{
    it->sending = what;
    (void)failed(carrier, uni_comm_send_start(&it->send, carrier->comm, data, bytes, UNI_U8,
                                              it->peer, &carrier->error));
}

static void start_receive(uni__carrier *carrier, end *it, void *data, size_t bytes, moving what)
{
    it->receiving = what;
    (void)failed(carrier, uni_comm_recv_start(&it->receive, carrier->comm, data, bytes, UNI_U8,
                                              it->peer, &carrier->error));
}

static void move_send(uni__carrier *carrier, end *it)
{
    while (carrier->error.code == 0 && it->sending != IDLE && is_done(carrier, &it->send)) {
        carrier->events++;
        size_t bytes = (size_t)it->out.message.carried;
        if (it->sending == HEADER && bytes > 0)
            start_send(carrier, it, payload_of(it, it->asks), bytes, PAYLOAD);
        else
            it->sending = IDLE;
    }
}

/* Is a message due: an answer, or a question after the last one is dealt with? */
static bool expects(const end *it)
{
    if (it->receiving != IDLE)
        return false;
    return it->sending == IDLE && (it->answered == it->asked) != it->asks;
}

static void arrived(end *it)
{
    if (!it->asks) {
        it->asked = it->in.number;
        it->receiving = ARRIVED;
    } else if (it->in.number == it->asked) {
        it->answered = it->asked;
        it->receiving = ARRIVED;
    } else {
        /* The answer belongs to a question that was given up. */
        it->receiving = IDLE;
    }
}

static void move_receive(uni__carrier *carrier, end *it)
{
    if (expects(it))
        start_receive(carrier, it, &it->in, sizeof it->in, HEADER);
    while (carrier->error.code == 0 && (it->receiving == HEADER || it->receiving == PAYLOAD) &&
           is_done(carrier, &it->receive)) {
        size_t bytes = (size_t)it->in.message.carried;
        carrier->events++;
        if (it->receiving == HEADER && bytes > it->capacity)
            uni_error_set(&carrier->error, UNI_EFORMAT,
                          "rank %d announces %zu bytes on a link of %zu: do all members build the "
                          "same model?",
                          it->peer, bytes, it->capacity);
        else if (it->receiving == HEADER && bytes > 0)
            start_receive(carrier, it, payload_of(it, !it->asks), bytes, PAYLOAD);
        else
            arrived(it);
    }
    if (expects(it) && carrier->error.code == 0)
        start_receive(carrier, it, &it->in, sizeof it->in, HEADER);
}

static void move(uni__carrier *carrier, end *it)
{
    move_send(carrier, it);
    move_receive(carrier, it);
}

/* Advances everything; counts what was received or sent (uni__carrier_events). */
static void progress(uni__carrier *carrier)
{
    for (int i = 0; i < carrier->num_ends; i++)
        move(carrier, carrier->ends[i]);
}

/* ---- the carrier ---- */

int uni__carrier_new(uni__carrier **out, uni_comm *comm, uni_error *err)
{
    uni__carrier *carrier = *out = calloc(1, sizeof *carrier);
    if (!carrier)
        return uni_error_set(err, UNI_ENOMEM, "no memory for links to other hosts");
    carrier->comm = comm;
    return 0;
}

bool uni__carrier_free(uni__carrier *carrier)
{
    bool quiet = true;
    for (int i = 0; carrier && i < carrier->num_ends; i++)
        quiet &= !carrier->ends[i]->send && !carrier->ends[i]->receive;
    free(carrier);
    return quiet;
}

uni_comm *uni__carrier_comm(const uni__carrier *carrier)
{
    return carrier->comm;
}

void uni__carrier_add(uni__carrier *carrier, const uni__server_link *link)
{
    end *it = link->memory;
    int rank = uni_comm_info_of(carrier->comm)->rank;
    for (int i = 0; i < carrier->num_ends; i++)
        if (carrier->ends[i] == it)
            return;
    if (rank != link->asker && rank != link->answerer)
        return; /* between two other members */
    if (carrier->num_ends == UNI__CARRIER_LINKS) {
        uni_error_set(&carrier->error, UNI_ELIMIT,
                      "rank %d has more than %d members to talk to: over hosts workers and servers "
                      "together are at most so many",
                      rank, UNI__CARRIER_LINKS);
        return;
    }
    *it = (end){ .peer = rank == link->asker ? link->answerer : link->asker,
                 .asks = rank == link->asker,
                 .capacity = link->capacity };
    carrier->ends[carrier->num_ends++] = it;
}

uint32_t uni__carrier_events(const uni__carrier *carrier)
{
    return carrier->events;
}

void uni__carrier_wait(uni__carrier *carrier, uint32_t seen, int timeout_ms)
{
    uint64_t deadline = uni__monotonic_ns() + (uint64_t)timeout_ms * 1000000u;
    for (int tries = 0; carrier->error.code == 0; tries++) {
        progress(carrier);
        if (carrier->events != seen || uni__monotonic_ns() > deadline)
            return;
        if (tries < YIELDS)
            sched_yield();
        else
            nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
}

int uni__carrier_status(const uni__carrier *carrier, uni_error *err)
{
    if (carrier->error.code < 0 && err)
        *err = carrier->error;
    return carrier->error.code;
}

/* ---- the link ---- */

static void say(uni__server_link *link, const uni__ps_message *message, uint64_t number)
{
    uni__carrier *carrier = link->carrier;
    end *it = link->memory;
    it->out = (wire){ .message = *message, .number = number };
    start_send(carrier, it, &it->out, sizeof it->out, HEADER);
    move(carrier, it);
}

static bool free_to_ask(const uni__server_link *link)
{
    end *it = link->memory;
    move(link->carrier, it);
    return it->sending == IDLE;
}

static void *room(uni__server_link *link)
{
    return payload_of(link->memory, true);
}

static void ask(uni__server_link *link, const uni__ps_message *message)
{
    end *it = link->memory;
    if (it->receiving == ARRIVED)
        it->receiving = IDLE;
    it->asked++;
    say(link, message, it->asked);
}

static bool answered(uni__server_link *link, uni__ps_message *out, const void **payload)
{
    end *it = link->memory;
    move(link->carrier, it);
    if (it->receiving != ARRIVED || it->answered != it->asked)
        return false;
    *out = it->in.message;
    *payload = payload_of(it, false);
    return true;
}

static bool asked(uni__server_link *link, uni__ps_message *out, const void **payload)
{
    end *it = link->memory;
    move(link->carrier, it);
    if (it->receiving != ARRIVED || it->answered == it->asked)
        return false;
    *out = it->in.message;
    *payload = payload_of(it, true);
    link->seen = (uint32_t)it->asked;
    return true;
}

static void taken(uni__server_link *link)
{
    (void)link; /* nothing to release: payloads have their own memory here */
}

static void *answer_room(uni__server_link *link)
{
    return payload_of(link->memory, false);
}

static void answer(uni__server_link *link, const uni__ps_message *message)
{
    end *it = link->memory;
    it->answered = it->asked;
    it->receiving = IDLE;
    say(link, message, it->asked);
}

const uni__server_link_class uni__server_link_comm = { .name = "communicator",
                                                       .free_to_ask = free_to_ask,
                                                       .room = room,
                                                       .ask = ask,
                                                       .answered = answered,
                                                       .asked = asked,
                                                       .taken = taken,
                                                       .answer_room = answer_room,
                                                       .answer = answer };
