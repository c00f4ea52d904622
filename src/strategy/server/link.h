/*
 * link.h - one pair of members, a client that asks and a server that answers, one question at a time.
 *
 * The client writes a payload into the link's own memory and asks; the server reads it, says that it has read it (taken), and answers when it can, maybe
 * much later and maybe with a payload. A client that was restarted asks again under the next number; a server that was restarted finds the
 * question still there. So neither end has to know of the other's death.
 *
 * The class is what carries it: shared memory on one host (link_shm.c), a communicator over hosts (link_comm.c). Any thread, one at a time per end.
 */
#ifndef UNISONO_STRATEGY_SERVER_LINK_H
#define UNISONO_STRATEGY_SERVER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum uni__ps_kind {
    UNI__PS_PULL = 1, /* weights (and states) of a version */
    UNI__PS_PUSH, /* a gradient; answered with the weights when WANT_WEIGHTS */
    UNI__PS_SUM, /* batch statistics of one part of a step: answered with the sum over all parts */
    UNI__PS_QUERY, /* was this part of this step pushed before? */
    UNI__PS_STATE, /* the shard's optimizer state, one slot a question */
    UNI__PS_STATS, /* counters and the histogram of staleness */
    UNI__PS_RATE, /* the learning rate from now on, in `samples` (over hosts) */
    UNI__PS_NEXT /* worker to coordinator: here is a result, what next? */
} uni__ps_kind;

enum {
    UNI__PS_WANT_WEIGHTS = 1,
    UNI__PS_TICKET = 2, /* a pull that a push will follow: counts for bounded staleness */
    UNI__PS_HAS_RESULT = 4,
    UNI__PS_RUNS = 8, /* NEXT: the worker has another step under way */
    UNI__PS_DUPLICATE = 16, /* answer: the push was applied before */
    UNI__PS_RETRY =
        32 /* NEXT's answer: the step may have been done, in part, by a worker that died */
};

typedef struct uni__ps_message {
    uint32_t kind, flags;
    int32_t
        status; /* of an answer or a result: 0 or a uni_status; then the payload is a sentence */
    uint32_t epoch; /* which life of the client asks */
    uint64_t id; /* of the step function's call */
    uint32_t
        number; /* which push of that call, which sum of that step, which slot, which function */
    uint32_t num_sums; /* doubles at the end of the payload */
    uint64_t version; /* pull: asked for (synchronous), or what the weights are */
    double samples;
    uint64_t size; /* bytes of the payload: what its reader needs to know */
    uint64_t carried; /* all bytes of it that must reach the other side, sums among them */
    uint32_t phase, unused; /* NEXT: of which fit or coordinator the worker is part */
} uni__ps_message;

typedef struct uni__server_link uni__server_link;

typedef struct uni__server_link_class {
    const char *name;
    /* client */
    bool (*free_to_ask)(const uni__server_link *link); /* what was asked before has been taken */
    void *(*room)(uni__server_link *link); /* for the payload of the next question */
    void (*ask)(uni__server_link *link, const uni__ps_message *message);
    bool (*answered)(uni__server_link *link, uni__ps_message *out, const void **payload);
    /* server */
    bool (*asked)(uni__server_link *link, uni__ps_message *out,
                  const void **payload); /* a question that waits for its answer */
    void (*taken)(uni__server_link *link); /* the payload is no longer needed */
    void *(*answer_room)(uni__server_link *link);
    void (*answer)(uni__server_link *link, const uni__ps_message *message);
} uni__server_link_class;

#define UNI__LINK_HEADER ((size_t)512) /* bytes of a link's memory before its two payloads */

struct uni__server_link {
    const uni__server_link_class *class_;
    void *memory; /* of the class */
    size_t capacity; /* bytes of payload, either way */
    int asker, answerer; /* ranks */
    void *board;
    struct uni__carrier *carrier; /* over hosts */
    uint32_t seen; /* server: the number of the question that was handed out last */
};

#endif
