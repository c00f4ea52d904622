/*
 * stall.c - a network between hosts that swallows what MPI sends: all ranks live and wait, nobody hears of an error (TCP gives up after a quarter of an
 * hour), and the controller's own connections are well.
 *
 * Whoever has waited for TELL_NS without a byte of progress tells the others by the rendezvous, which does not go over MPI, which collective it waits
 * in. A rank that knows of all others that they have come that far, and still sees nothing move for LIMIT_NS, knows that it waits for
 * nobody's arrival: what was sent is lost. MPI's own collectives do not show their progress, so there the size counts. A rank that computes
 * says nothing, and is waited for without end.
 *
 * Sends and receives (parameter servers): both sides count what goes from one to the other. Who waits for a message says so every TELL_NS with its number,
 * and the one who has sent that number long ago, and hears it twice since, knows that it is lost. Twice, because what was said may have been under way itself.
 * A receiver that is asked nothing waits for a number that nobody has sent: all is well. The rank's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/kinds.h"
#include "comm/mpi/mpi_internal.h"

#define TELL_NS 2000000000ull
#define LIMIT_NS 5000000000ull
#define HEAR_NS 1000000000ull
#define SLOWEST_BYTES_PER_S 10e6 /* without a view of the progress */

/* What goes under the pair key, to all. */
typedef struct wish {
    int32_t from, zero; /* whose message is waited for */
    uint64_t number;
} wish;

void uni__stall_free(uni__stall *stall)
{
    free(stall->reached);
    free(stall->pairs);
    stall->reached = NULL;
    stall->pairs = NULL;
}

static bool can_talk(const uni__rendezvous *peers)
{
    return peers->vtable && peers->vtable->put && peers->vtable->get;
}

/* The next message under the key from another rank, beginning with *rank; that is its sender's then. False: nobody has said more. */
static bool hear(uni_comm *comm, const char *key, int *rank, void *message, size_t size)
{
    const uni__rendezvous *peers = &comm->peers;
    size_t came;
    for (; *rank < comm->size; ++*rank)
        if (*rank != comm->rank &&
            peers->vtable->get(peers->context, *rank, key, message, size, &came, 0, NULL) == 0 &&
            came == size)
            return true;
    return false;
}

/* How far the others have come, as they told since the last look. */
static void hear_arrivals(uni__stall *stall, uni_comm *comm)
{
    uint64_t number;
    for (int r = 0; hear(comm, stall->key, &r, &number, sizeof number);)
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
    if (!can_talk(peers))
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
    hear_arrivals(stall, comm);
    if (progress == 0)
        limit += (uint64_t)((double)uni__call_bytes(&request->call) *
                            (double)uni__call_segments(&request->call, comm->size) /
                            SLOWEST_BYTES_PER_S * 1e9);
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && stall->reached[r] < request->number)
            return false;
    return quiet > limit;
}

/* ---- sends and receives ---- */

uint64_t uni__stall_count(uni__stall *stall, const uni_comm_request *request)
{
    const uni__call *call = &request->call;
    int size = request->comm->size;
    if (!stall->pairs && !(stall->pairs = calloc((size_t)size, sizeof *stall->pairs)))
        return 0; /* not watched */
    uni__stall_pair *pair = &stall->pairs[call->root];
    if (call->kind == UNI__KIND_RECV)
        return ++pair->receives;
    pair->sent_ns = request->begun_ns;
    pair->sent_bytes = uni__call_bytes(call);
    pair->late = 0;
    return ++pair->sends;
}

/* Which messages of this rank others wait for. */
static void hear_wishes(uni__stall *stall, uni_comm *comm, uint64_t now_ns)
{
    wish said;
    for (int r = 0; hear(comm, stall->pair_key, &r, &said, sizeof said);) {
        uni__stall_pair *pair = &stall->pairs[r];
        uint64_t due = pair->sent_ns + LIMIT_NS +
                       (uint64_t)((double)pair->sent_bytes / SLOWEST_BYTES_PER_S * 1e9);
        if (said.from != comm->rank)
            continue;
        pair->late = said.number == pair->wanted ? pair->late : 0;
        pair->wanted = said.number;
        pair->late += said.number <= pair->sends && now_ns > due;
    }
}

/* The first message of each rank that has been waited for too long. */
static void wish_for(uni__stall *stall, uni_comm *comm, uint64_t now_ns)
{
    const uni__rendezvous *peers = &comm->peers;
    for (const uni_comm_request *it = comm->started.first; it; it = it->next) {
        bool waits = it->call.kind == UNI__KIND_RECV && it->watch.begun &&
                     now_ns - it->watch.begun > TELL_NS;
        for (const uni_comm_request *other = comm->started.first; other != it && waits;
             other = other->next)
            waits = other->call.kind != UNI__KIND_RECV || other->call.root != it->call.root;
        wish mine = { .from = it->call.root, .number = it->seq };
        if (waits && it->seq > 0)
            (void)!peers->vtable->put(peers->context, stall->pair_key, &mine, sizeof mine, NULL);
    }
}

int uni__stall_pair_found(uni__stall *stall, uni_comm *comm, uint64_t now_ns)
{
    if (!can_talk(&comm->peers) || !stall->pairs)
        return -1;
    if (now_ns - stall->told_ns > TELL_NS) {
        stall->told_ns = now_ns;
        wish_for(stall, comm, now_ns);
    }
    if (now_ns - stall->heard_ns > HEAR_NS) {
        stall->heard_ns = now_ns;
        hear_wishes(stall, comm, now_ns);
    }
    for (int r = 0; r < comm->size; r++)
        if (stall->pairs[r].late >= 2)
            return r;
    return -1;
}
