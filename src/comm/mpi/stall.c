/*
 * stall.c - a network between hosts that swallows what MPI sends: all ranks live and wait, nobody hears of an error (TCP gives up after a quarter of an
 * hour), and the controller's own connections are well.
 *
 * Whoever has waited for TELL_NS without a byte of progress tells the others by the rendezvous, which does not go over MPI, which collective it waits
 * in. A rank that knows of all others that they have come that far, and still sees nothing move for LIMIT_NS, knows that it waits for
 * nobody's arrival: what was sent is lost. MPI's own collectives do not show their progress, so there the size counts. A rank that computes
 * says nothing, and is waited for without end. The rank's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/kinds.h"
#include "comm/mpi/mpi_internal.h"

#define TELL_NS 2000000000ull
#define LIMIT_NS 5000000000ull
#define SLOWEST_BYTES_PER_S 10e6 /* without a view of the progress */

void uni__stall_free(uni__stall *stall)
{
    free(stall->reached);
    stall->reached = NULL;
}

/* What the others told since the last look. */
static void listen(uni__stall *stall, uni_comm *comm)
{
    const uni__rendezvous *peers = &comm->peers;
    uint64_t number;
    size_t size;
    for (int r = 0; r < comm->size; r++)
        while (r != comm->rank &&
               peers->vtable->get(peers->context, r, stall->key, &number, sizeof number, &size, 0,
                                  NULL) == 0 &&
               size == sizeof number)
            if (number > stall->reached[r])
                stall->reached[r] = number;
}

static void tell(uni__stall *stall, uni_comm_request *request)
{
    const uni__rendezvous *peers = &request->comm->peers;
    uint64_t number = request->number;
    stall->told = true;
    (void)!peers->vtable->put(peers->context, stall->key, &number, sizeof number, NULL);
}

bool uni__stall_found(uni__stall *stall, uni_comm_request *request, uint64_t progress,
                      uint64_t now_ns)
{
    uni_comm *comm = request->comm;
    const uni__rendezvous *peers = &comm->peers;
    bool pair = request->call.kind == UNI__KIND_SEND || request->call.kind == UNI__KIND_RECV;
    if (!peers->vtable || !peers->vtable->put || !peers->vtable->get || pair)
        return false;
    if (stall->order != request->order || stall->progress != progress) {
        stall->told = stall->told && stall->order == request->order;
        stall->order = request->order;
        stall->progress = progress;
        stall->since_ns = now_ns;
    }
    uint64_t quiet = now_ns - stall->since_ns, limit = LIMIT_NS;
    if (quiet < TELL_NS)
        return false;
    if (!stall->reached && !(stall->reached = calloc((size_t)comm->size, sizeof *stall->reached)))
        return false;
    if (!stall->told)
        tell(stall, request);
    listen(stall, comm);
    if (progress == 0)
        limit += (uint64_t)((double)uni__call_bytes(&request->call) *
                            (double)uni__call_segments(&request->call, comm->size) /
                            SLOWEST_BYTES_PER_S * 1e9);
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && stall->reached[r] < request->number)
            return false;
    return quiet > limit;
}
