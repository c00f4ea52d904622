/*
 * carrier.h - links between hosts: a communicator's sends and receives instead of shared memory.
 *
 * Every member has its own private board with the same layout, and only the links are carried. A
 * question or an answer is a header followed by its payload, sent straight from the link's memory
 * here into that of the other side. A pair of members has one link, so a message needs no address
 * beyond its rank. At most one send and one receive are under way per link. Nothing progresses by
 * itself: a waiting member calls progress. Called on the member's thread.
 *
 * A member cannot rejoin here: MPI's world cannot be entered twice, so any death ends the attempt
 * (src/train/members.c).
 */
#ifndef UNISONO_STRATEGY_SERVER_CARRIER_H
#define UNISONO_STRATEGY_SERVER_CARRIER_H

#include <unisono/comm.h>

#include "strategy/server/link.h"

typedef struct uni__carrier uni__carrier;

extern const uni__server_link_class uni__server_link_comm;

/* comm is borrowed and outlives the carrier. */
int uni__carrier_new(uni__carrier **out, uni_comm *comm, uni_error *err) UNI_MUST_USE;
/* true: nothing is under way any more, so the links' memory may be freed. */
bool uni__carrier_free(uni__carrier *carrier);
uni_comm *uni__carrier_comm(const uni__carrier *carrier);
/* Registers the link's memory as this member's end. Repeated calls do nothing. A member may have
 * UNI__CARRIER_LINKS. */
/* The receives that a communicator has under way, and one send. */
#define UNI__CARRIER_LINKS 13
void uni__carrier_add(uni__carrier *carrier, const uni__server_link *link);
/* Number of messages received or sent so far. */
uint32_t uni__carrier_events(const uni__carrier *carrier);
/* Waits until there are more events than `seen`, or timeout_ms have passed. */
void uni__carrier_wait(uni__carrier *carrier, uint32_t seen, int timeout_ms);
/* The first failure of the communicator. */
int uni__carrier_status(const uni__carrier *carrier, uni_error *err) UNI_MUST_USE;

#endif
