/* plugin_internal.h - what the files of a plug-in share (plugin.c, exchange.c). The only header of the library with types of MPI in it. */
#ifndef UNISONO_COMM_MPI_PLUGIN_INTERNAL_H
#define UNISONO_COMM_MPI_PLUGIN_INTERNAL_H

#include <mpi.h>

#include "comm/mpi/plugin.h"

#define TAG_DATA 1
#define TAG_NOTE 2
#define TAG_EXCHANGE 16 /* and up */
#define MAX_SPARE 4
#define MAX_NOTES 64 /* sent and not known to have left */

typedef struct state {
    MPI_Comm data, notes;
    int rank, size;
    int initialised_here; /* of the world: MPI was not running before */
    int one_host; /* all ranks are on it */
    MPI_Request greeting;
    char *greetings; /* a byte to and from each rank */
    uni__mpi_note sent[MAX_NOTES];
    MPI_Request sending[MAX_NOTES];
    int next_sent;
    unsigned exchanges; /* begun: the tags of those under way differ */
    char *spare[MAX_SPARE]; /* memory that exchange.c keeps between its calls */
    int num_spare;
} state;

typedef struct handle {
    MPI_Request requests[2]; /* the call and the weights */
    int num_requests;
    void *copy_to; /* what had to go through memory of our own */
    void *temporary;
    size_t copy_bytes;
    struct uni__exchange *exchange; /* NULL: MPI's own collective, or done */
} handle;

/* exchange.c: all_reduce made of sends and receives. Codes are MPI's. */
typedef struct uni__exchange uni__exchange;
int uni__exchange_is_better(const state *s, const uni__mpi_call *call);
int uni__exchange_start(state *s, const uni__mpi_call *call, MPI_Datatype type,
                        uni__exchange **out);
int uni__exchange_step(uni__exchange *exchange, int *done);
uint64_t uni__exchange_progress(const uni__exchange *exchange); /* from 1 */
void uni__exchange_free(uni__exchange *exchange);

#endif
