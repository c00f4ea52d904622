/* plugin_internal.h - shared by the plug-in's files: plugin.c (calls), messages.c (endpoints and
 * messages). The only header of the library with UCX types. */
#ifndef UNISONO_COMM_UCX_PLUGIN_INTERNAL_H
#define UNISONO_COMM_UCX_PLUGIN_INTERNAL_H

#include <stdbool.h>
#include <ucp/api/ucp.h>
#include <unisono/status.h>

#include "comm/hosts/exchange.h"
#include "comm/ucx/plugin.h"

/* Message classes. Messages are matched by class, sender, number and part. */
enum { UCX_HELLO = 1, UCX_BYE, UCX_NOTE, UCX_DATA, UCX_CHECK, UCX_PAIR };

/* Precedes every message. */
typedef struct header {
    uint32_t epoch, class;
    int32_t from, zero;
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

typedef struct peer {
    struct state *of;
    ucp_ep_h endpoint;
    ucs_status_t status; /* why it is dead */
    bool dead, hello, left;
    uint64_t sends, receives; /* messages of pairs */
} peer;

typedef struct state {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_size;
    uint32_t epoch;
    /* forged: the rank whose message failed to open, or -1. */
    int rank, size, forged;
    bool no_memory, greeted;
    const uni__seal *seal;
    peer *peers;
    receiving *waiting;
    arrival *arrivals, **last_arrival;
    sending *notes; /* still being sent */
    struct handle *handles, *current;
    uni__wire wire;
} state;

int uni__ucx_open(state *s, char *why);
int uni__ucx_connect(void *context, int rank, const void *address, char *why);
void uni__ucx_close(state *s, bool well);
/* Appends to *list. `seal`: seal the message if the communicator is sealed. */
bool uni__ucx_send(state *s, sending **list, const header *head, int to, const void *data,
                   size_t bytes, bool seal);
bool uni__ucx_receive(state *s, receiving **list, const header *want, void *room, size_t bytes,
                      bool seal);
/* *lost: the rank, when sending failed. */
bool uni__ucx_sent(state *s, sending *it, int *lost);
void uni__ucx_free_sendings(sending **list); /* frees those that are done */
void uni__ucx_drop_receiving(state *s, receiving *it);
/* Waits until all messages have left, or the limit has passed. */
void uni__ucx_flush(state *s, long long limit_ns);
bool uni__ucx_has_note(const state *s);
bool uni__ucx_next_note(state *s, header *head, void *note, size_t size);

#endif
