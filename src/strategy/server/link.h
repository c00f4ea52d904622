/*
 * link.h - connects one pair of members: a client that asks, and a server that answers one question
 * at a time.
 *
 * The client writes a payload into the link's own memory and asks. The server reads it, confirms
 * that it has read it (taken), and answers when it can, maybe much later and maybe with a payload.
 * A restarted client asks again under the next number. A restarted server finds the question still
 * there. So neither end has to know of the other's death.
 *
 * The class is the carrier: shared memory on one host (link_shm.c), a communicator over hosts
 * (link_comm.c). Any thread, one at a time per end.
 */
#ifndef UNISONO_STRATEGY_SERVER_LINK_H
#define UNISONO_STRATEGY_SERVER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum uni__ps_kind {
    UNI__PS_PULL = 1, /* weights (and states) of a version */
    UNI__PS_PUSH, /* a gradient; answered with the weights when WANT_WEIGHTS */
    /* Batch statistics of one part of a step; the answer is the sum over all parts. */
    UNI__PS_SUM,
    UNI__PS_QUERY, /* was this part of the step pushed before? */
    UNI__PS_STATE, /* the optimizer state, one slot per question */
    UNI__PS_STATS, /* counters and the histogram of staleness */
    /* The learning rate from now on, in `samples` (over hosts). */
    UNI__PS_RATE,
    UNI__PS_NEXT /* worker to coordinator: a result; next call? */
} uni__ps_kind;

enum {
    UNI__PS_WANT_WEIGHTS = 1,
    /* A pull that a push will follow; counts for bounded staleness. */
    UNI__PS_TICKET = 2,
    UNI__PS_HAS_RESULT = 4,
    UNI__PS_RUNS = 8, /* NEXT: the worker has another step under way */
    UNI__PS_DUPLICATE = 16, /* answer: the push was applied before */
    /* NEXT's answer: a worker that died may have done the step, or a part of it. */
    UNI__PS_RETRY = 32
};

typedef struct uni__ps_message {
    uint32_t kind, flags;
    /* Of an answer or a result: 0, or a uni_status with an error message as the payload. */
    int32_t status;
    uint32_t epoch; /* incarnation of the client */
    uint64_t id; /* the step function's call */
    /* The push of that call, the sum of that step, the slot, or the function. */
    uint32_t number;
    uint32_t num_sums; /* doubles at the end of the payload */
    /* In a pull the version wanted (synchronous), otherwise that of the weights. */
    uint64_t version;
    double samples;
    uint64_t size; /* bytes of the payload, for its reader */
    /* All bytes that must reach the other side, including the sums. */
    uint64_t carried;
    /* NEXT: the number of the worker's fit or coordinator. */
    uint32_t phase, unused;
} uni__ps_message;

typedef struct uni__server_link uni__server_link;

typedef struct uni__server_link_class {
    const char *name;
    /* Client side. free_to_ask: the server has taken the previous question. */
    bool (*free_to_ask)(const uni__server_link *link);
    void *(*room)(uni__server_link *link); /* room for the next payload */
    void (*ask)(uni__server_link *link, const uni__ps_message *message);
    bool (*answered)(uni__server_link *link, uni__ps_message *out, const void **payload);
    /* Server side. asked: a question waits for its answer. */
    bool (*asked)(uni__server_link *link, uni__ps_message *out, const void **payload);
    void (*taken)(uni__server_link *link); /* the payload is no longer needed */
    void *(*answer_room)(uni__server_link *link);
    void (*answer)(uni__server_link *link, const uni__ps_message *message);
} uni__server_link_class;

/* Bytes of a link's memory before its two payloads. */
#define UNI__LINK_HEADER ((size_t)512)

struct uni__server_link {
    const uni__server_link_class *class_;
    void *memory; /* used by the class */
    size_t capacity; /* bytes of payload in each direction */
    int asker, answerer; /* ranks */
    void *board;
    struct uni__carrier *carrier; /* over hosts */
    /* Server: the number of the last question returned by `asked`. */
    uint32_t seen;
};

#endif
