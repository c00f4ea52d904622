/*
 * stall.c - detects a network between hosts that drops what MPI sends. All ranks are alive and
 * wait, none sees an error (TCP gives up after a quarter of an hour), and the controller's own
 * connections work.
 *
 * A rank that has waited for TELL_NS without a byte of progress tells the others which collective
 * it waits in. It does so through the rendezvous, which does not use MPI. When a rank knows that
 * all others have reached that collective, and still nothing moves for LIMIT_NS, no arrival is
 * missing: the data is lost. MPI's own collectives do not show their progress, so there the limit
 * depends on the size. A rank that computes says nothing, and the others wait for it without limit.
 *
 * Sends and receives (parameter servers): both sides count the messages between them. A rank that
 * waits for a message says so every TELL_NS, with its number. A rank that has sent that number long
 * ago, and has heard of it twice since, knows that the message is lost. Once would not do, because
 * the complaint itself may have been under way. A server without requests waits for a number that
 * no rank has sent, which is fine. Called on the rank's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/kinds.h"
#include "comm/hosts/carrier_internal.h"

#define TELL_NS 2000000000ull
#define LIMIT_NS 5000000000ull
#define HEAR_NS 1000000000ull
#define SLOWEST_BYTES_PER_S 10e6 /* when progress is not visible */

/* The value under the pair key, to all ranks. */
typedef struct wish {
    int32_t from, zero; /* from: the rank whose message is missing */
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

/* Gets the next message under the key from another rank, starting at *rank, which becomes the
 * sender. False: there are no more. */
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

/* Reads how far the others say they are. */
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

/* Reads which messages of this rank the others wait for. */
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

/* Announces, for each rank, the first message that has been missing for too long. */
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
