/*
 * hosts.c - the transport "hosts": shared memory inside a host, MPI between the first ranks of the hosts.
 *
 * A communicator of its own that owns three others: `local` (shm, the ranks of this host), `leaders` (MPI, the first rank of each host; only there)
 * and `world` (MPI, all ranks). A call becomes a short list of steps, each a call on one of them:
 *
 *     all_reduce     local reduce to the leader, leaders all_reduce, local broadcast
 *     reduce_apply   the same, then every rank updates its slice of the host's parameters, local barrier
 *     broadcast      of rank 0: leaders broadcast, local broadcast
 *     barrier        local, leaders, local
 *     all others     world
 *
 * So each byte crosses the network once a host, not once a rank. Calls are worked off one after the other: the inner communicators see the same
 * order on all ranks. All results are the leader's bits, so ranks are bit-equal. Send and recv go to `world` at once.
 * Memory of uni_comm_alloc is shared by the ranks of a host. The rank's thread; abort from any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/kinds.h"
#include "comm/mpi/mpi_internal.h"

#define MAX_STEPS 8

/* The outer rendezvous, with the ranks of one of the inner communicators. */
typedef struct mapped {
    uni__rendezvous outer;
    int *ranks;
} mapped;

typedef struct step {
    uni_comm *on;
    uni__call call;
} step;

typedef struct job {
    uint64_t ticket;
    step steps[MAX_STEPS];
    int num_steps, next;
    uni_comm_request *inner; /* the step under way */
    double weight;
} job;

typedef struct hosts_state {
    uni_comm *local, *leaders, *world;
    mapped local_peers, leader_peers;
    int local_rank, local_size;
    uint64_t given, serving; /* tickets */
    job *current; /* the one that is served */
} hosts_state;

/* ---- the inner communicators' peers ---- */

static int mapped_put(void *context, const char *key, const void *data, size_t size, uni_error *err)
{
    const uni__rendezvous *outer = &((mapped *)context)->outer;
    return outer->vtable->put(outer->context, key, data, size, err);
}

static int mapped_get(void *context, int rank, const char *key, void *data, size_t capacity,
                      size_t *size, int timeout_ms, uni_error *err)
{
    const mapped *to = context;
    return to->outer.vtable->get(to->outer.context, to->ranks[rank], key, data, capacity, size,
                                 timeout_ms, err);
}

static int mapped_pass(void *context, int rank, int fd, uni_error *err)
{
    const mapped *to = context;
    return to->outer.vtable->pass(to->outer.context, to->ranks[rank], fd, err);
}

static int mapped_receive(void *context, int from, int *fd, int timeout_ms, uni_error *err)
{
    const mapped *to = context;
    return to->outer.vtable->receive(to->outer.context, to->ranks[from], fd, timeout_ms, err);
}

static bool mapped_alive(void *context, int rank, char *why, size_t size)
{
    const mapped *to = context;
    return !to->outer.vtable->alive ||
           to->outer.vtable->alive(to->outer.context, to->ranks[rank], why, size);
}

static void mapped_reason(void *context, char *why, size_t size)
{
    const mapped *to = context;
    if (to->outer.vtable->abort_reason)
        to->outer.vtable->abort_reason(to->outer.context, why, size);
}

static const uni__rendezvous_vtable mapped_vtable = { .name = "mapped",
                                                      .put = mapped_put,
                                                      .get = mapped_get,
                                                      .pass = mapped_pass,
                                                      .receive = mapped_receive,
                                                      .alive = mapped_alive,
                                                      .abort_reason = mapped_reason };

/* ---- steps ---- */

static void add(job *it, uni_comm *on, uni__call call)
{
    if (on)
        it->steps[it->num_steps++] = (step){ .on = on, .call = call };
}

static void add_meeting(hosts_state *hosts, job *it)
{
    uni__call barrier = { .kind = UNI__KIND_BARRIER, .dtype = UNI_U8, .weight = 1 };
    add(it, hosts->local, barrier);
    add(it, hosts->leaders, barrier);
    if (hosts->local_size > 1)
        add(it, hosts->local, barrier);
}

static void add_all_reduce(hosts_state *hosts, job *it, const void *in, void *out, size_t count,
                           uni_dtype dtype, uni_comm_op op)
{
    uni__call call = {
        .kind = UNI__KIND_REDUCE, .dtype = dtype, .op = op, .count = count, .weight = 1
    };
    call.in = in;
    call.out = out;
    add(it, hosts->local, call);
    call.kind = UNI__KIND_ALL_REDUCE;
    call.in = out;
    add(it, hosts->leaders, call);
    call.kind = UNI__KIND_BROADCAST;
    call.op = 0;
    add(it, hosts->local, call);
}

static void plan(hosts_state *hosts, job *it, const uni__call *call)
{
    uni_comm_op op = call->op == UNI_COMM_MEAN ? UNI_COMM_SUM : call->op;
    uni__call broadcast = *call;
    switch (call->kind) {
    case UNI__KIND_ALL_REDUCE:
    case UNI__KIND_REDUCE_APPLY:
        add_all_reduce(hosts, it, call->in, call->out, call->count, call->dtype, op);
        it->weight = call->weight;
        if (call->op == UNI_COMM_MEAN)
            add_all_reduce(hosts, it, &it->weight, &it->weight, 1, UNI_F64, UNI_COMM_SUM);
        break;
    case UNI__KIND_BROADCAST:
        if (call->root == 0) {
            add(it, hosts->leaders, broadcast);
            add(it, hosts->local, broadcast);
        } else {
            add(it, hosts->world, *call);
        }
        break;
    case UNI__KIND_BARRIER:
    case UNI__KIND_FINALIZE:
        add_meeting(hosts, it);
        break;
    default:
        add(it, hosts->world, *call);
        break;
    }
}

static int hosts_start(uni_comm_request *request, bool *again, uni_error *err)
{
    hosts_state *hosts = request->comm->state;
    const uni__call *call = &request->call;
    bool pair = call->kind == UNI__KIND_SEND || call->kind == UNI__KIND_RECV;
    job *it = calloc(1, sizeof *it);
    *again = false;
    if (!it)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a collective");
    request->number = pair ? request->comm->begun : request->comm->count;
    request->late_rank = -1;
    request->total_weight = call->weight;
    request->handle = it;
    if (pair) {
        it->ticket = UINT64_MAX; /* no turn to wait for */
        add(it, hosts->world, *call);
    } else {
        it->ticket = hosts->given++;
        plan(hosts, it, call);
    }
    return 0;
}

/* Each rank's part of the update: whole cache lines. */
static int apply_slice(uni_comm_request *request, uni_error *err)
{
    hosts_state *hosts = request->comm->state;
    const uni__call *call = &request->call;
    size_t lines = (call->count + 15) / 16, each = lines / (size_t)hosts->local_size,
           more = lines % (size_t)hosts->local_size, me = (size_t)hosts->local_rank;
    size_t begin = 16 * (me * each + (me < more ? me : more));
    size_t end = begin + 16 * (each + (me < more));
    end = end < call->count ? end : call->count;
    return begin < end ? call->apply(call->apply_context, call->out, begin, end, err) : 0;
}

/* All steps are done. 1: so is the call; 0: there is one step more. */
static int conclude(uni_comm_request *request, uni_error *err)
{
    hosts_state *hosts = request->comm->state;
    const uni__call *call = &request->call;
    job *it = request->handle;
    int type = uni__kernel_type(call->dtype);
    bool meets = it->steps[it->num_steps - 1].call.kind == UNI__KIND_BARRIER;
    bool reduces = call->kind == UNI__KIND_ALL_REDUCE || call->kind == UNI__KIND_REDUCE_APPLY;
    if (!reduces || meets)
        return 1;
    request->total_weight = it->weight;
    if (call->op == UNI_COMM_MEAN && it->weight != 0 && type >= 0)
        request->comm->kernels->divide[type](call->out, it->weight, call->count);
    if (call->kind != UNI__KIND_REDUCE_APPLY)
        return 1;
    int status = apply_slice(request, err);
    if (status < 0) {
        uni_comm_abort(request->comm, err->message[0] ? err->message : "an update failed");
        return status;
    }
    add(it, hosts->local, (uni__call){ .kind = UNI__KIND_BARRIER, .dtype = UNI_U8, .weight = 1 });
    return 0;
}

static int explain(hosts_state *hosts, const uni_comm *where, uni_error *err)
{
    if (where == hosts->local)
        uni_error_prefix(err, "among the %d ranks of the host of rank %d, counted from 0",
                         hosts->local_size, hosts->local_peers.ranks[0]);
    else if (where == hosts->leaders)
        uni_error_prefix(err, "among the hosts, counted from 0");
    return err->code;
}

static int end_job(uni_comm_request *request, int status)
{
    hosts_state *hosts = request->comm->state;
    job *it = request->handle;
    if (it->ticket != UINT64_MAX)
        hosts->serving++;
    if (hosts->current == it)
        hosts->current = NULL;
    free(it);
    request->handle = NULL;
    return status;
}

static int hosts_step(uni_comm_request *request, uni_error *err)
{
    hosts_state *hosts = request->comm->state;
    job *it = request->handle;
    bool pair = it->ticket == UINT64_MAX;
    if (!pair && it->ticket != hosts->serving)
        return 0;
    if (!pair)
        hosts->current = it;
    for (;;) {
        bool done = false;
        int status = 0;
        if (!it->inner && it->next == it->num_steps) {
            status = conclude(request, err);
            if (status != 0)
                return end_job(request, status);
        }
        step *now = &it->steps[it->next];
        if (!it->inner) {
            status = uni__comm_start(now->on, &now->call, &it->inner, err);
            if (status < 0)
                return end_job(request, explain(hosts, now->on, err));
        }
        status = uni_comm_test(it->inner, &done, err);
        if (status < 0)
            return end_job(request, explain(hosts, now->on, err));
        if (!done)
            return 0;
        it->inner = NULL;
        it->next++;
    }
}

static int hosts_pause(uni_comm_request *request, uint64_t limit_ns, uni_error *err)
{
    hosts_state *hosts = request->comm->state;
    job *it = request->handle;
    if (it->ticket != UINT64_MAX && hosts->current)
        it = hosts->current;
    if (!it->inner)
        return 0;
    uni_comm *on = it->inner->comm;
    int status = on->transport->pause(it->inner, limit_ns, err);
    return status < 0 ? explain(hosts, on, err) : 0;
}

/* ---- memory: of the host ---- */

static int hosts_alloc(uni_comm *comm, uni_comm_buffer *buffer, uni_error *err)
{
    hosts_state *hosts = comm->state;
    uni_comm_buffer *inner = NULL;
    UNI_TRY(buffer->shared ? uni_comm_alloc_shared(hosts->local, buffer->bytes, &inner, err)
                           : uni_comm_alloc(hosts->local, buffer->bytes, &inner, err));
    buffer->keeper = inner;
    buffer->own_only = true; /* ranks of other hosts do not see it */
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
    hosts_state *hosts = comm->state;
    if (hosts->world)
        uni_comm_abort(hosts->world, reason);
    if (hosts->leaders)
        uni_comm_abort(hosts->leaders, reason);
    if (hosts->local)
        uni_comm_abort(hosts->local, reason);
}

static void hosts_close(uni_comm *comm)
{
    hosts_state *hosts = comm->state;
    bool proper = comm->finalized && !comm->broken.code;
    if (!hosts)
        return;
    for (int i = 0; i < UNI__COMM_REQUESTS; i++)
        free(comm->requests[i].used ? comm->requests[i].handle : NULL);
    if (hosts->leaders)
        hosts->leaders->finalized = proper;
    if (hosts->world)
        hosts->world->finalized = proper;
    uni_comm_close(hosts->local);
    uni_comm_close(hosts->leaders);
    uni_comm_close(hosts->world);
    free(hosts->local_peers.ranks);
    free(hosts->leader_peers.ranks);
    free(hosts);
}

static const uni__transport hosts_transport = {
    .name = "hosts",
    .start = hosts_start,
    .step = hosts_step,
    .pause = hosts_pause,
    .alloc = hosts_alloc,
    .release = hosts_release,
    .abort = hosts_abort,
    .close = hosts_close,
};

static int map_ranks(mapped *to, const uni__rendezvous *peers, const int *ranks, int count,
                     uni_error *err)
{
    to->outer = *peers;
    to->ranks = calloc((size_t)count, sizeof *to->ranks);
    if (!to->ranks)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    memcpy(to->ranks, ranks, (size_t)count * sizeof *ranks);
    return 0;
}

static int open_inner(uni_comm *comm, hosts_state *hosts, const int *leaders, int num_leaders,
                      const char *family, uni_error *err)
{
    const uni__rendezvous *peers = &comm->peers;
    uni_comm_options quiet = comm->options;
    quiet.record_dir = NULL;
    uni__rendezvous local = { .vtable = &mapped_vtable,
                              .context = &hosts->local_peers,
                              .rank = hosts->local_rank,
                              .size = hosts->local_size,
                              .abort_word = peers->abort_word };
    uni__rendezvous between = local;
    between.context = &hosts->leader_peers;
    UNI_TRY(uni__comm_open_mpi(&hosts->world, peers, &quiet, family, err));
    if (hosts->world->rank != peers->rank || hosts->world->size != peers->size)
        return uni_error_set(err, UNI_EMISMATCH,
                             "MPI counts this process as rank %d of %d, the run as rank %d of %d",
                             hosts->world->rank, hosts->world->size, peers->rank, peers->size);
    UNI_TRY(map_ranks(&hosts->leader_peers, peers, leaders, num_leaders, err));
    UNI_TRY(uni__comm_split_mpi(&hosts->leaders, hosts->world, hosts->local_rank == 0 ? 0 : -1,
                                &between, &quiet, err));
    return uni__comm_open_shm(&hosts->local, &local, &quiet, 0, err);
}

int uni__comm_open_hosts(uni_comm **out, const uni__rendezvous *peers, const int *locals,
                         int num_locals, const int *leaders, int num_leaders,
                         const uni_comm_options *options, const char *family, uni_error *err)
{
    uni_comm *comm = NULL;
    *out = NULL;
    UNI_TRY(uni__comm_new(&comm, peers, options, &hosts_transport, err));
    hosts_state *hosts = comm->state = calloc(1, sizeof *hosts);
    int status = hosts ? map_ranks(&hosts->local_peers, peers, locals, num_locals, err)
                       : uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    if (status == 0) {
        hosts->local_size = num_locals;
        while (hosts->local_rank < num_locals - 1 && locals[hosts->local_rank] != peers->rank)
            hosts->local_rank++;
        status = open_inner(comm, hosts, leaders, num_leaders, family, err);
    }
    if (status < 0) {
        uni_comm_close(comm);
        return status;
    }
    *out = comm;
    return 0;
}
