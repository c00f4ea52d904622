/*
 * exchange.h - all_reduce between hosts out of single messages: one algorithm for every carrier.
 *
 * A carrier provides a wire: post one message each way, test whether both are complete. Codes are
 * the carrier's own; 0 is success. Compiled into each carrier's plug-in.
 */
#ifndef UNISONO_COMM_EXCHANGE_H
#define UNISONO_COMM_EXCHANGE_H

#include "comm/hosts/carrier.h"

#define UNI__EXCHANGE_WINDOW 16 /* lanes under way */

/* The message sent to one rank and the one received from another in one round of a lane. */
typedef struct uni__round {
    int to, from;
    /* Differs between exchanges under way and between their lanes. Lanes that share it run one
     * after the other. */
    int tag;
    /* number: of the call. part: of the lane and round, for sealing and matching. */
    uint64_t number, part;
    const void *send;
    void *receive;
    size_t send_bytes, receive_bytes;
} uni__round;

/* The carrier's handles of one round. */
typedef struct uni__round_slot {
    uint64_t words[2];
} uni__round_slot;

typedef struct uni__wire {
    void *context;
    int (*post)(void *context, const uni__round *round, uni__round_slot *slot);
    int (*test)(void *context, uni__round_slot *slot, int *done); /* both are complete */
    const uni__seal *seal; /* NULL: the exchange does not seal */
    uint64_t id; /* of the communicator, for sealing */
    int rank, size;
    int one_host; /* all ranks are on it */
    int no_memory; /* the code for out of memory */
    size_t message_bytes; /* best message size between hosts */
    unsigned exchanges; /* begun */
    uint64_t calls; /* sealed or numbered calls begun */
    char *spare[4]; /* memory kept for the next calls */
    int num_spare;
} uni__wire;

typedef struct uni__exchange uni__exchange;
int uni__exchange_start(uni__wire *wire, const uni__carrier_call *call, size_t element,
                        uni__exchange **out);
int uni__exchange_step(uni__exchange *exchange, int *done);
uint64_t uni__exchange_progress(const uni__exchange *exchange); /* from 1 */
/* The rank whose message was not what it had sealed, or -1. */
int uni__exchange_forged(const uni__exchange *exchange);
void uni__exchange_free(uni__exchange *exchange);
/* Frees the memory kept between calls. */
void uni__wire_free(uni__wire *wire);

#endif
