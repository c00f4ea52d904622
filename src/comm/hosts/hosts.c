/*
 * hosts.c - the transport "hosts": shared memory inside a host, UCX or MPI between the hosts.
 *
 * It is a communicator that owns three others:
 *
 *     local     shm: the ranks of this host
 *     across    UCX or MPI: the ranks with the same local rank on each host; only the first ranks
 *               when the hosts have different numbers of ranks
 *     world     UCX or MPI: all ranks
 *
 * A call becomes a short list of steps, each a call on one of them:
 *
 *     all_reduce     up to 256 KB: sent to the first rank of the host, which adds them up;
 *                    all_reduce between the first ranks; sent to each.
 *                    above: every rank drives its slice (hosts_slices.c)
 *     broadcast      of rank 0: between the first ranks, local broadcast
 *     barrier        local, first ranks, local
 *     all others     world
 *
 * So each byte crosses the network once per host, not once per rank. Calls run one after the other,
 * so the inner communicators see the same order on all ranks. Every sum is made by one rank of a
 * host, so ranks are bit-equal. Send and recv go directly to `world`. Memory of uni_comm_alloc is
 * shared by the ranks of a host. Called on the rank's thread; abort from any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/shared.h"
#include "base/slice.h"
#include "comm/board.h"
#include "comm/kinds.h"
#include "comm/hosts/hosts_internal.h"

#define MAX_UNDER_WAY 6 /* steps of a call */
/* How often a rank checks the network while it waits in shared memory. */
#define LISTEN_NS 20000000u
#define PAIR_TICKET UINT64_MAX /* no turn to wait for */

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for a collective");
}

static int hosts_start(uni_comm_request *request, bool *again, uni_error *err)
{
    uni__over_hosts *hosts = request->comm->state;
    const uni__call *call = &request->call;
    bool pair = uni__kind_is_pair(call->kind);
    uni__host_job *it = calloc(1, sizeof *it + 2 * (size_t)hosts->local_size * sizeof(void *));
    *again = false;
    if (!it)
        return no_memory(err);
    it->views = it->show.views = (void **)(it + 1);
    request->late_rank = -1;
    request->total_weight = call->weight;
    request->handle = it;
    it->request = request;
    it->ticket = pair ? PAIR_TICKET : hosts->given++;
    if (pair)
        (void)uni__over_hosts_add(it, hosts->world, *call, UNI__ALL_BEFORE);
    else
        uni__over_hosts_plan(hosts, it, call);
    return it->room < 0 ? no_memory(err) : 0;
}

/* All steps are done: what is left of the call. */
static void conclude(uni_comm_request *request)
{
    const uni__call *call = &request->call;
    const uni__host_job *it = request->handle;
    int type = uni__kernel_type(call->dtype);
    if (call->kind != UNI__KIND_ALL_REDUCE)
        return;
    request->total_weight = it->weight;
    if (call->op == UNI_COMM_MEAN && it->weight != 0 && type >= 0)
        request->comm->kernels->divide[type](call->out, it->weight, call->count);
}

/* A failed step leaves the ranks in different steps. It breaks the communicator for all ranks, on
 * this host and the others. */
static int explain(uni_comm_request *request, const uni_comm *where, uni_error *err)
{
    uni__over_hosts *hosts = request->comm->state;
    if (where == hosts->across)
        uni_error_prefix(err, "among the hosts, counted from 0");
    uni__board_abort(hosts->local, err->code, err->message);
    if (where != hosts->local)
        return err->code;
    uni_error_prefix(err, "among the %d ranks of the host of rank %d, counted from 0",
                     hosts->local_size, hosts->local_peers.ranks[0]);
    uni__carrier_last_words(hosts->world, request, err);
    return err->code;
}

static void free_job(uni__host_job *it)
{
    if (it)
        free(it->steps);
    free(it);
}

static int end_job(uni_comm_request *request, int status)
{
    uni__over_hosts *hosts = request->comm->state;
    uni__host_job *it = request->handle;
    if (it->ticket != PAIR_TICKET)
        hosts->serving++;
    if (hosts->current == it)
        hosts->current = NULL;
    free_job(it);
    request->handle = NULL;
    return status;
}

static bool may_begin(const uni__host_job *it, const uni__host_step *next)
{
    return next->after == UNI__ALL_BEFORE ? it->first == it->next
                                          : next->after < 0 || it->steps[next->after].done;
}

/* Ends a step of the job. This may replace the list by one with more steps. */
static int end_step(uni_comm_request *request, int index, uni_error *err)
{
    uni__host_job *it = request->handle;
    it->steps[index].inner = NULL;
    it->steps[index].done = true;
    UNI_TRY(uni__over_hosts_work(request->comm, it, index, true, err));
    return it->room < 0 ? no_memory(err) : 0;
}

/* Starts what can start, and tests what is under way. *moved: a step has ended. */
static int move_steps(uni_comm_request *request, bool *moved, uni_error *err)
{
    uni__host_job *it = request->handle;
    *moved = false;
    for (; it->next < it->num_steps && it->next < it->first + MAX_UNDER_WAY; it->next++) {
        uni__host_step *next = &it->steps[it->next];
        if (!may_begin(it, next))
            break;
        UNI_TRY(uni__over_hosts_work(request->comm, it, it->next, false, err));
        if (uni__comm_start(next->on, &next->call, &next->inner, err) < 0)
            return explain(request, next->on, err);
    }
    for (int i = it->first; i < it->next; i++) {
        uni__host_step *now = &it->steps[i];
        bool done = false;
        if (now->done)
            continue;
        if (uni_comm_test(&done, now->inner, err) < 0)
            return explain(request, now->on, err);
        if (!done)
            continue;
        *moved = true;
        UNI_TRY(end_step(request, i, err));
    }
    while (it->first < it->next && it->steps[it->first].done)
        it->first++;
    return 0;
}

static int hosts_step(uni_comm_request *request, uni_error *err)
{
    uni__over_hosts *hosts = request->comm->state;
    uni__host_job *it = request->handle;
    bool pair = it->ticket == PAIR_TICKET, moved = true;
    if (!pair && it->ticket != hosts->serving)
        return 0;
    if (!pair)
        hosts->current = it;
    while (moved) {
        if (it->first == it->num_steps) {
            conclude(request);
            return end_job(request, 1);
        }
        int status = move_steps(request, &moved, err);
        if (status < 0)
            return end_job(request, status);
    }
    return 0;
}

/* Pauses on the oldest step, preferring one between hosts, which progresses only when called. */
static int hosts_pause(uni_comm_request *request, uint64_t limit_ns, uni_error *err)
{
    uni__over_hosts *hosts = request->comm->state;
    uni__host_job *it = request->handle;
    uni__host_step *slowest = NULL;
    if (it->ticket != PAIR_TICKET && hosts->current)
        it = hosts->current;
    for (int i = it->first; i < it->next; i++) {
        uni__host_step *now = &it->steps[i];
        if (!now->done && (!slowest || (slowest->on == hosts->local && now->on != hosts->local)))
            slowest = now;
    }
    if (!slowest)
        return 0;
    if (slowest->on != hosts->world && uni__carrier_listen(hosts->world, request, err) < 0)
        return explain(request, hosts->world, err);
    if (slowest->on == hosts->local && (limit_ns == 0 || limit_ns > LISTEN_NS))
        limit_ns = LISTEN_NS;
    int status = slowest->on->transport->pause(slowest->inner, limit_ns, err);
    return status < 0 ? explain(request, slowest->on, err) : 0;
}

/* Testing the steps under way already checks their peers. */
static int hosts_glance(uni_comm_request *request, uni_error *err)
{
    return 0;
}

/* ---- memory: of the host ---- */

static int hosts_alloc(uni_comm *comm, uni_comm_buffer *buffer, uni_error *err)
{
    uni__over_hosts *hosts = comm->state;
    uni_comm_buffer *inner = NULL;
    UNI_TRY(buffer->shared ? uni__comm_alloc_shared(hosts->local, buffer->bytes, &inner, err)
                           : uni_comm_alloc(&inner, hosts->local, buffer->bytes, err));
    buffer->keeper = inner;
    buffer->own_only = true; /* not visible to other hosts */
    buffer->stride = 0;
    buffer->base = uni_comm_buffer_data(inner);
    return 0;
}

static void hosts_release(uni_comm_buffer *buffer)
{
    uni_comm_buffer_free(buffer->keeper);
}

/* ---- life ---- */

static void hosts_abort(uni_comm *comm, const char *reason)
{
    uni__over_hosts *hosts = comm->state;
    if (hosts->world)
        uni_comm_abort(hosts->world, reason);
    if (hosts->across)
        uni_comm_abort(hosts->across, reason);
    if (hosts->local)
        uni_comm_abort(hosts->local, reason);
}

static void hosts_close(uni_comm *comm)
{
    uni__over_hosts *hosts = comm->state;
    bool proper = comm->finalized && !comm->broken.code;
    if (!hosts)
        return;
    for (uni__request_block *block = comm->blocks; block; block = block->next)
        for (int i = 0; i < UNI__REQUEST_BLOCK; i++)
            free_job(block->requests[i].handle);
    if (hosts->across)
        hosts->across->finalized = proper;
    if (hosts->world)
        hosts->world->finalized = proper;
    uni_comm_close(hosts->local);
    uni_comm_close(hosts->across);
    uni_comm_close(hosts->world);
    free(hosts->local_peers.ranks);
    free(hosts->across_peers.ranks);
    free(hosts->scratch);
    free(hosts);
}

static const uni__transport hosts_transport = {
    .name = "hosts",
    .start = hosts_start,
    .step = hosts_step,
    .pause = hosts_pause,
    .glance = hosts_glance,
    .alloc = hosts_alloc,
    .release = hosts_release,
    .abort = hosts_abort,
    .close = hosts_close,
};

static int open_across(uni_comm *comm, uni__over_hosts *hosts, const uni_comm_options *options,
                       uni_error *err)
{
    int *ranks = calloc((size_t)comm->size, sizeof *ranks), count = 0;
    uni__rendezvous peers = { .vtable = &uni__mapped_vtable,
                              .context = &hosts->across_peers,
                              .abort_word = comm->peers.abort_word };
    int status = ranks ? uni__over_hosts_find_across(hosts, ranks, &count, err) : no_memory(err);
    if (status == 0)
        status = uni__mapped_set(&hosts->across_peers, &comm->peers, ranks, count, err);
    if (status == 0)
        status = uni__comm_split(&hosts->across, hosts->world, count > 0 ? hosts->local_rank : -1,
                                 ranks, count, &peers, options, err);
    hosts->leaders = hosts->local_rank == 0 ? hosts->across : NULL;
    free(ranks);
    return status;
}

static int open_inner(uni_comm *comm, uni__over_hosts *hosts, const uni__between *between,
                      uni_error *err)
{
    const uni__rendezvous *peers = &comm->peers;
    uni_comm_options quiet = comm->options;
    quiet.record_dir = NULL;
    uni__rendezvous local = { .vtable = &uni__mapped_vtable,
                              .context = &hosts->local_peers,
                              .rank = hosts->local_rank,
                              .size = hosts->local_size,
                              .abort_word = peers->abort_word };
    if (between->ucx)
        UNI_TRY(uni__comm_open_ucx(&hosts->world, peers, &quiet, between->epoch,
                                   between->open_timeout_ms, err));
    else
        UNI_TRY(uni__comm_open_mpi(&hosts->world, peers, &quiet, between->family, err));
    if (hosts->world->rank != peers->rank || hosts->world->size != peers->size)
        return uni_error_set(err, UNI_EMISMATCH,
                             "MPI counts this process as rank %d of %d, the run as rank %d of %d",
                             hosts->world->rank, hosts->world->size, peers->rank, peers->size);
    UNI_TRY(open_across(comm, hosts, &quiet, err));
    return uni__comm_open_shm(&hosts->local, &local, &quiet, 0, err);
}

int uni__comm_open_hosts(uni_comm **out, const uni__rendezvous *peers, const int *locals,
                         int num_locals, const uni_comm_options *options,
                         const uni__between *between, uni_error *err)
{
    uni_comm *comm = NULL;
    *out = NULL;
    UNI_TRY(uni__comm_new(&comm, peers, options, &hosts_transport, err));
    uni__over_hosts *hosts = comm->state = calloc(1, sizeof *hosts);
    int status = hosts ? uni__mapped_set(&hosts->local_peers, peers, locals, num_locals, err)
                       : uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    if (status == 0) {
        hosts->local_size = num_locals;
        while (hosts->local_rank < num_locals - 1 && locals[hosts->local_rank] != peers->rank)
            hosts->local_rank++;
        if (hosts->local_rank == 0 && !(hosts->scratch = malloc(UNI__HOSTS_SMALL)))
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
        else
            status = open_inner(comm, hosts, between, err);
    }
    if (status < 0) {
        uni_comm_close(comm);
        return status;
    }
    *out = comm;
    return 0;
}
