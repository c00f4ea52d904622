/*
 * link_shm.c - a link in memory that both ends have mapped: three counters, two messages, two
 * payloads.
 *
 * `asked` counts questions, `taken` those whose payload was read, `answered` those with an answer.
 * The counter publishes a question, after its payload and message, so a client that is killed
 * earlier leaves no question. A new client of the same pair continues the count, and writes its
 * payload only after the dead client's last question was taken. A new server sees asked != answered
 * and handles the question again.
 */
#include "strategy/server/link_shm.h"

#include <stdatomic.h>

#include "strategy/server/board.h"

typedef struct slot {
    _Atomic uint32_t asked, taken, answered;
    uni__ps_message question, answer;
} slot;

_Static_assert(sizeof(slot) <= UNI__LINK_HEADER, "a slot fits before the payloads");

static char *question_payload(const uni__server_link *link)
{
    return (char *)link->memory + UNI__LINK_HEADER;
}

static char *answer_payload(const uni__server_link *link)
{
    return question_payload(link) + link->capacity;
}

static bool free_to_ask(const uni__server_link *link)
{
    slot *s = link->memory;
    return atomic_load(&s->taken) == atomic_load(&s->asked);
}

static void *room(uni__server_link *link)
{
    return question_payload(link);
}

static void ask(uni__server_link *link, const uni__ps_message *message)
{
    slot *s = link->memory;
    s->question = *message;
    atomic_fetch_add(&s->asked, 1);
    uni__bell_ring(link->board, link->answerer);
}

static bool answered(uni__server_link *link, uni__ps_message *out, const void **payload)
{
    slot *s = link->memory;
    if (atomic_load(&s->answered) != atomic_load(&s->asked))
        return false;
    *out = s->answer;
    *payload = answer_payload(link);
    return true;
}

static bool asked(uni__server_link *link, uni__ps_message *out, const void **payload)
{
    slot *s = link->memory;
    uint32_t number = atomic_load(&s->asked);
    if (number == atomic_load(&s->answered))
        return false;
    *out = s->question;
    *payload = question_payload(link);
    link->seen = number;
    return true;
}

static void taken(uni__server_link *link)
{
    slot *s = link->memory;
    atomic_store(&s->taken, link->seen);
    uni__bell_ring(link->board, link->asker);
}

static void *answer_room(uni__server_link *link)
{
    return answer_payload(link);
}

static void answer(uni__server_link *link, const uni__ps_message *message)
{
    slot *s = link->memory;
    s->answer = *message;
    atomic_store(&s->taken, link->seen);
    atomic_store(&s->answered, link->seen);
    uni__bell_ring(link->board, link->asker);
}

const uni__server_link_class uni__server_link_shm = { .name = "shared memory",
                                                      .free_to_ask = free_to_ask,
                                                      .room = room,
                                                      .ask = ask,
                                                      .answered = answered,
                                                      .asked = asked,
                                                      .taken = taken,
                                                      .answer_room = answer_room,
                                                      .answer = answer };
