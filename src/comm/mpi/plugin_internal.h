/* plugin_internal.h - what the files of a plug-in share (plugin.c, plugin_agree.c, plugin_seal.c, exchange.c). The only header of the library with types of MPI in it. */
#ifndef UNISONO_COMM_MPI_PLUGIN_INTERNAL_H
#define UNISONO_COMM_MPI_PLUGIN_INTERNAL_H

#include <mpi.h>
#include <stdbool.h>

#include "comm/mpi/plugin.h"

#define TAG_NOTE 2
#define TAG_EXCHANGE 16 /* and up */
#define MAX_SPARE 4
#define MAX_NOTES 64 /* sent and not known to have left */

/* What travels of a note. */
typedef struct sent_note {
    char bytes[sizeof(uni__mpi_note) + UNI__MPI_SEAL_MAX];
} sent_note;

typedef struct state {
    MPI_Comm data, notes,
        checks; /* one collective for each of `data`, and sends, which have their dtype as tag */
    const uni__mpi_seal *seal; /* NULL: what is sent is readable */
    uint32_t id, splits; /* of this communicator; of those that were split off */
    uint64_t calls; /* collectives begun */
    uint64_t *sent_to, *got_from; /* messages by rank */
    int rank, size;
    int initialised_here; /* of the world: MPI was not running before */
    int one_host; /* all ranks are on it */
    MPI_Request greeting;
    char *greetings; /* a byte to and from each rank */
    sent_note sent[MAX_NOTES];
    MPI_Request sending[MAX_NOTES];
    int next_sent;
    unsigned exchanges; /* begun: the tags of those under way differ */
    char *spare[MAX_SPARE]; /* memory that exchange.c keeps between its calls */
    int num_spare;
} state;

/* plugin_agree.c: whether all ranks make this call. */
typedef struct uni__agreement {
    MPI_Request request;
    uni__mpi_said mine;
    uint64_t most[4]; /* what, ~what, count, ~count: the largest of all ranks */
    uni__mpi_said *said; /* by rank, once they are known to differ */
    bool agreed;
    uni__mpi_difference differs;
} uni__agreement;

typedef struct handle {
    uni__mpi_call call;
    uni__agreement agreement;
    int failed; /* a status: the data did not come, which may have its cause in a mismatch */
    char why[UNI__MPI_WHY_SIZE]; /* it failed */
    bool moved; /* all data is there */
    MPI_Request requests[2]; /* the call and the weights */
    int num_requests;
    void *copy_to; /* what had to go through memory of our own */
    void *temporary;
    size_t copy_bytes;
    struct uni__exchange *exchange; /* NULL: MPI's own collective, or done */
    struct uni__exchange *weights; /* sealed: the sum of the weights */
    struct uni__sealed_call *sealed; /* NULL: nothing to open at its end */
} handle;

/* exchange.c: all_reduce made of sends and receives. Codes are MPI's. */
typedef struct uni__exchange uni__exchange;
int uni__exchange_is_better(const state *s, const uni__mpi_call *call);
int uni__exchange_start(state *s, const uni__mpi_call *call, MPI_Datatype type,
                        uni__exchange **out);
int uni__exchange_step(uni__exchange *exchange, int *done);
uint64_t uni__exchange_progress(const uni__exchange *exchange); /* from 1 */
/* A message that came was not what its sender had sealed: its rank, or -1. */
int uni__exchange_forged(const uni__exchange *exchange);
void uni__exchange_free(uni__exchange *exchange);

/* plugin.c */
MPI_Datatype uni__mpi_type_of(int dtype);

/* Codes are MPI's. */
int uni__agree_start(state *s, const uni__mpi_call *call, uni__agreement *it);
/* it->agreed or it->differs is set in the end. */
int uni__agree_step(state *s, uni__agreement *it);
/* Of a message that came; truncated: there was more of it than room. */
void uni__agree_on_message(const state *s, const uni__mpi_call *call, const MPI_Status *status,
                           bool truncated, uni__agreement *it);

/* plugin_seal.c: the other collectives when all that is sent is sealed. Codes are MPI's. */
typedef struct uni__sealed_call uni__sealed_call;
int uni__sealed_is_needed(const state *s, const uni__mpi_call *call);
int uni__sealed_start(state *s, const uni__mpi_call *call, MPI_Datatype type, handle *h);
/* All has come: it is opened. The rank whose message was forged, or -1. */
int uni__sealed_finish(uni__sealed_call *sealed);
void uni__sealed_free(uni__sealed_call *sealed);

#endif
