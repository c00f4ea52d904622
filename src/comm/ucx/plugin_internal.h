/* plugin_internal.h - shared by the plug-in's files: plugin.c (calls), messages.c (endpoints and
 * messages). The only header of the library with UCX types. */
#ifndef UNISONO_COMM_UCX_PLUGIN_INTERNAL_H
#define UNISONO_COMM_UCX_PLUGIN_INTERNAL_H

#include <stdbool.h>
#include <ucp/api/ucp.h>
#include <unisono/status.h>

#include "comm/hosts/exchange.h"
#include "comm/ucx/plugin.h"

/* Message classes. Messages are matched by communicator, class, sender, number and part. */
enum { UCX_HELLO = 1, UCX_BYE, UCX_NOTE, UCX_DATA, UCX_CHECK, UCX_PAIR };

/* Precedes every message. */
typedef struct header {
    /* The receiver's, which came with its address: messages without it are dropped. */
    uint64_t token;
    uint64_t comm;
    uint32_t class;
    int32_t from; /* rank in the communicator */
    uint64_t number, part;
    uni__said said; /* the sender's call */
} header;

typedef struct sending {
    struct sending *next; /* in the call's list */
    header head;
    void *request; /* UCX's; NULL: done */
    char *sealed;
    int to;
} sending;

typedef struct receiving {
    struct receiving *next; /* in the call's list */
    struct receiving *waiting; /* in the list of all that are missing */
    header want;
    void *room;
    size_t bytes;
    bool sealed; /* to be opened into `room` */
    bool done;
    size_t came; /* bytes received, as sent */
    uni__said said;
} receiving;

/* A message that arrived before it was awaited. */
typedef struct arrival {
    struct arrival *next;
    header head;
    size_t size;
    char data[];
} arrival;

typedef struct arrivals {
    arrival *first, **last;
} arrivals;

typedef struct peer {
    ucp_ep_h endpoint;
    uint64_t token;
    ucs_status_t status; /* why it is dead */
    bool dead, hello, left;
} peer;

/* Messages of one pair of ranks. */
typedef struct pair_count {
    uint64_t sends, receives;
} pair_count;

/* UCX's worker with its endpoints, shared by a communicator and those split off from it. */
typedef struct hub {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_size;
    uint64_t token; /* of this process */
    uint32_t epoch, splits;
    int rank, size;
    bool no_memory;
    peer *peers;
    struct state *states;
    /* For communicators that other ranks have split off already. */
    arrivals strays;
    /* Not sent completely when their calls ended. */
    sending *orphans;
} hub;

/* A communicator. */
typedef struct state {
    struct state *next;
    hub *hub;
    uint64_t id;
    /* forged: the rank whose message failed to open, or -1. */
    int rank, size, forged;
    uint64_t forged_ns; /* when the greeting of that rank was refused */
    int *ranks; /* of the hub, by rank here */
    bool greeted;
    const uni__seal *seal;
    pair_count *pairs;
    receiving *waiting;
    arrivals early;
    sending *notes; /* still being sent */
    struct handle *handles, *current;
    uni__wire wire;
} state;

static inline peer *peer_of(const state *s, int rank)
{
    return &s->hub->peers[s->ranks[rank]];
}

int uni__ucx_open(hub *h, const char *devices, char *why);
int uni__ucx_connect(hub *h, int rank, const void *address, uint64_t token, char *why);
/* Closes all endpoints. well: tells the peers, after all that is queued. */
void uni__ucx_close(hub *h, bool well);
/* After close: gives up the requests of all sendings, then end frees everything of UCX's. */
void uni__ucx_forget(sending *list);
void uni__ucx_end(hub *h);
/* Takes the messages that came before the communicator was there. */
void uni__ucx_add_state(hub *h, state *s);
void uni__ucx_free_arrivals(arrivals *list);
/* Appends to *list. `seal`: seal the message if the communicator is sealed. */
bool uni__ucx_send(state *s, sending **list, const header *head, int to, const void *data,
                   size_t bytes, bool seal);
bool uni__ucx_receive(state *s, receiving **list, const header *want, void *room, size_t bytes,
                      bool seal);
/* *lost: the rank, when sending failed. */
bool uni__ucx_sent(state *s, sending *it, int *lost);
/* Frees those that are done; the others stay in the list. */
void uni__ucx_free_sendings(sending **list);
void uni__ucx_drop_receiving(state *s, receiving *it);
/* Waits until all messages have left, or the limit has passed. */
void uni__ucx_flush(hub *h, long long limit_ns);
bool uni__ucx_has_note(const state *s);
bool uni__ucx_next_note(state *s, header *head, void *note, size_t size);

#endif
