/*
 * link.h - proved TCP connections on a group's loop (secure.h has the protocol): the controller
 * listens, a host's agent connects.
 *
 * Everything runs on the controller thread of its group. What is sent during a round of the loop
 * leaves in one write before the loop sleeps. A connection that does not greet within a second is
 * closed, and so is one whose agent is not announced within ten. Of those that are not proved yet a
 * few are kept for each address, the oldest of an address goes first, and when there are too many
 * altogether the address with the most of them loses its oldest: a flood from one address does
 * not cost others their places. The frames of one link get a share of each round; what is left
 * waits for the next one. A link was heard when a frame of it was authenticated, not when
 * bytes came.
 */
#ifndef UNISONO_GROUP_LINK_H
#define UNISONO_GROUP_LINK_H

#include "group/group.h"
#include "group/secure.h"

typedef struct uni__link uni__link;
typedef struct uni__listener uni__listener;

typedef struct uni__link_events {
    /* Both sides are proved. */
    void (*ready)(void *context, uni__link *link);
    void (*frame)(void *context, uni__link *link, int type, const uint8_t *payload, size_t size);
    /* Its end, except by uni__link_close. The link is gone when this returns. */
    void (*closed)(void *context, uni__link *link, const char *why);
    void (*written)(void *context, uni__link *link); /* may be NULL: nothing is queued any more */
    /* Listener only: a connection was turned away before it was ready. */
    void (*refused)(void *context, const char *address, const char *why);
    /* Listener only: a greeting waits for its agent's announcement, so look for new ones. */
    void (*look_for_keys)(void *context);
} uni__link_events;

/* Listens on these numeric addresses (each bound by itself, never on all interfaces), on one port
 * that is free on all of them. */
int uni__listener_new(uni__listener **out, uni__group *group, const char *const *addresses,
                      int count, const uni__credentials *credentials,
                      const uni__link_events *events, void *context, uni_error *err) UNI_MUST_USE;
int uni__listener_port(const uni__listener *listener);
/* Stops listening. Links that are ready stay, the others are closed. */
void uni__listener_free(uni__listener *listener);

/* Tries all addresses at once; the first that proves itself is `ready`, the others are closed.
 * `closed` when none does within timeout_ms. */
int uni__link_connect(uni__group *group, const char *const *addresses, int count, int port,
                      const uni__credentials *credentials, uint32_t rank, int timeout_ms,
                      const uni__link_events *events, void *context, uni_error *err) UNI_MUST_USE;

/* Never waits. A link that failed swallows it: `closed` follows. */
void uni__link_send(uni__link *link, int type, const void *head, size_t head_size,
                    const void *payload, size_t size);
size_t uni__link_queued(const uni__link *link); /* bytes not given to the kernel yet */
/* Before the loop sleeps: frames of a link that had used up its share of a round, then what is
 * sent. */
void uni__link_go_on_all(uni__group *group);
void uni__link_flush_all(uni__group *group);
/* What is queued is tried once, then it is closed; no event follows. */
void uni__link_close(uni__link *link);
const char *uni__link_peer(const uni__link *link); /* numeric address of the other side */
const char *uni__link_own(const uni__link *link); /* of this side */
uint32_t uni__link_rank(const uni__link *link); /* the host's first rank, which it has proved */
uint64_t uni__link_heard_ns(const uni__link *link); /* when the last whole frame came */

#endif
