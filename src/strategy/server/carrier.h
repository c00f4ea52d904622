/*
 * carrier.h - links between hosts: a communicator's sends and receives in the place of common memory.
 *
 * Every member has a board of its own, private, with the same layout; only the links are carried: a question or an answer is a header and, behind it, its payload,
 * straight out of the link's memory here and into that of the other side. A pair of members has one link, so what comes from a rank needs no address. At
 * most one send and one receive are under way for a link. Nothing moves by itself: whoever waits calls progress. The member's thread.
 *
 * There is no coming back here: MPI's world cannot be entered twice, so any death ends the attempt (src/train/members.c).
 */
#ifndef UNISONO_STRATEGY_SERVER_CARRIER_H
#define UNISONO_STRATEGY_SERVER_CARRIER_H

#include <unisono/comm.h>

#include "strategy/server/link.h"

typedef struct uni__carrier uni__carrier;

extern const uni__server_link_class uni__server_link_comm;

/* comm is borrowed and outlives the carrier. */
int uni__carrier_new(uni__carrier **out, uni_comm *comm, uni_error *err) UNI_MUST_USE;
/* true: nothing is under way any more, so that the links' memory may go. */
bool uni__carrier_free(uni__carrier *carrier);
uni_comm *uni__carrier_comm(const uni__carrier *carrier);
/* The link's memory is an end of this member's from now on (again: nothing happens). A member may have UNI__CARRIER_LINKS. */
#define UNI__CARRIER_LINKS 13 /* receives that a communicator has under way, and one send */
void uni__carrier_add(uni__carrier *carrier, const uni__server_link *link);
/* How many messages came or went so far. */
uint32_t uni__carrier_events(const uni__carrier *carrier);
/* Until something came after `seen`, or timeout_ms. */
void uni__carrier_wait(uni__carrier *carrier, uint32_t seen, int timeout_ms);
/* The first failure of the communicator. */
int uni__carrier_status(const uni__carrier *carrier, uni_error *err) UNI_MUST_USE;

#endif
