/* plugin_internal.h - shared by the files of a plug-in (plugin.c, plugin_agree.c, plugin_seal.c,
 * hosts/exchange.c). The only header of the library with MPI types. */
#ifndef UNISONO_COMM_MPI_PLUGIN_INTERNAL_H
#define UNISONO_COMM_MPI_PLUGIN_INTERNAL_H

#include <mpi.h>
#include <stdbool.h>

#include "comm/hosts/exchange.h"

#define TAG_NOTE 2
#define MAX_NOTES 64 /* sent, not known to have left */

/* A note as it is sent. */
typedef struct sent_note {
    char bytes[sizeof(uni__carrier_note) + UNI__SEAL_MAX];
} sent_note;

typedef struct state {
    /* checks: one collective for each of `data`, and the sends, which have their dtype as tag. */
    MPI_Comm data, notes, checks;
    const uni__seal *seal; /* NULL: messages are not sealed */
    /* The number of this communicator, and how many were split off. */
    uint32_t id, splits;
    uint64_t *sent_to, *got_from; /* messages sent and received, by rank */
    int rank, size;
    int initialised_here; /* of the world: MPI was not running before */
    int one_host; /* all ranks are on it */
    MPI_Request greeting;
    char *greetings; /* one byte to and from each rank */
    sent_note sent[MAX_NOTES];
    MPI_Request sending[MAX_NOTES];
    int next_sent;
    uni__wire wire; /* for exchange.c */
} state;

/* plugin_agree.c: checks that all ranks make the same call. */
typedef struct uni__agreement {
    MPI_Request request;
    uni__said mine;
    /* Maximum over the ranks of what, ~what, count, ~count. */
    uint64_t most[4];
    /* By rank, once they are known to differ. */
    uni__said *said;
    bool agreed;
    uni__carrier_difference differs;
} uni__agreement;

typedef struct handle {
    uni__carrier_call call;
    uni__agreement agreement;
    /* A status: the data did not arrive, possibly because of a mismatch. */
    int failed;
    char why[UNI__WHY_SIZE]; /* why it failed */
    bool moved; /* all data has arrived */
    MPI_Request requests[2]; /* the call and the weights */
    int num_requests;
    /* Data that had to go through temporary memory. */
    void *copy_to;
    void *temporary;
    size_t copy_bytes;
    struct uni__exchange *exchange; /* NULL: MPI's own collective, or done */
    struct uni__exchange *weights; /* sealed: the sum of the weights */
    struct uni__sealed_call *sealed; /* NULL: nothing to open at its end */
} handle;

/* plugin.c */
/* Whether to make all_reduce of sends and receives (hosts/exchange.c) instead of MPI's own. */
int uni__exchange_is_better(const state *s, const uni__carrier_call *call);
MPI_Datatype uni__mpi_type_of(int dtype);

/* Codes are MPI's. */
int uni__agree_start(state *s, const uni__carrier_call *call, uni__agreement *it);
/* Sets it->agreed or it->differs in the end. */
int uni__agree_step(state *s, uni__agreement *it);
/* Checks a message that arrived. truncated: it was longer than the buffer. */
void uni__agree_on_message(const state *s, const uni__carrier_call *call, const MPI_Status *status,
                           bool truncated, uni__agreement *it);

/* plugin_seal.c: the other collectives when messages are sealed. Codes are MPI's. */
typedef struct uni__sealed_call uni__sealed_call;
int uni__sealed_is_needed(const state *s, const uni__carrier_call *call);
int uni__sealed_start(state *s, const uni__carrier_call *call, MPI_Datatype type, handle *h);
/* Opens the data once all has arrived. Returns the rank whose message was forged, or -1. */
int uni__sealed_finish(uni__sealed_call *sealed);
void uni__sealed_free(uni__sealed_call *sealed);

#endif
