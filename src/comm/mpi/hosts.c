/*
 * hosts.c - the transport "hosts": shared memory inside a host, MPI between the first ranks of the hosts.
 *
 * A communicator of its own that owns three others: `local` (shm, the ranks of this host), `leaders` (MPI, the first rank of each host; only there)
 * and `world` (MPI, all ranks). A call becomes a short list of steps, each a call on one of them:
 *
 *     all_reduce     up to 256 KB: sent to the leader, who adds them up; leaders all_reduce; the leader sends to each
 *                    above: in segments, each of them local reduce to the leader, leaders all_reduce, local broadcast; while one is on the
 *                    network the next is reduced and the one before is handed out
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

#define MORE_STEPS 8 /* than sends and receives inside the host */
/* A local send is done when it is in staging, so that nobody but who needs the data waits: one way to the leader and one back, where reduce and
 * broadcast on shared buffers meet four times. It costs a copy more, which above this is the larger part. */
#define SMALL_BYTES (256u << 10)
#define SEGMENT_BYTES (256u << 10)
#define MAX_SEGMENTS 64
#define MAX_UNDER_WAY 6 /* steps of a call */
#define ALL_BEFORE (-2) /* for step.after */

/* The outer rendezvous, with the ranks of one of the inner communicators. */
typedef struct mapped {
    uni__rendezvous outer;
    int *ranks;
} mapped;

typedef struct step {
    uni_comm *on;
    uni__call call;
    void *into; /* what was received is added to this; NULL: it is where it belongs */
    int after; /* the step that must have ended before this one begins; -1: none */
    bool done;
    uni_comm_request *inner; /* while it is under way */
} step;

/* Steps begin in the order in which they stand, which is the same for all ranks as far as they share a communicator. */
typedef struct job {
    uint64_t ticket;
    int num_steps, first, next; /* all before `first` are done, all before `next` have begun */
    double weight;
    step steps[];
} job;

typedef struct hosts_state {
    uni_comm *local, *leaders, *world;
    mapped local_peers, leader_peers;
    int local_rank, local_size;
    uint64_t given, serving; /* tickets */
    job *current; /* the one that is served */
    char *scratch; /* of the leader: what another rank of the host sent */
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
        it->steps[it->num_steps++] = (step){ .on = on, .call = call, .after = ALL_BEFORE };
}

/* Its number, or -1 when this rank has no part in it. */
static int add_after(job *it, uni_comm *on, uni__call call, int after)
{
    if (!on)
        return -1;
    add(it, on, call);
    it->steps[it->num_steps - 1].after = after;
    return it->num_steps - 1;
}

static void add_meeting(hosts_state *hosts, job *it)
{
    uni__call barrier = { .kind = UNI__KIND_BARRIER, .dtype = UNI_U8, .weight = 1 };
    add(it, hosts->local, barrier);
    add(it, hosts->leaders, barrier);
    if (hosts->local_size > 1)
        add(it, hosts->local, barrier);
}

/* The op goes along so that ranks which ask for different ones are found out. */
static void add_small_all_reduce(hosts_state *hosts, job *it, uni__call call, const void *in,
                                 void *out)
{
    uni__call send = call, receive = call;
    send.kind = UNI__KIND_SEND;
    receive.kind = UNI__KIND_RECV;
    if (hosts->local_rank != 0) {
        send.in = in;
        receive.out = out;
        add(it, hosts->local, send);
        add(it, hosts->local, receive);
        return;
    }
    if (in != out)
        memcpy(out, in, call.count * uni_dtype_size(call.dtype));
    receive.out = hosts->scratch;
    send.in = out;
    for (receive.root = 1; receive.root < hosts->local_size; receive.root++) {
        add(it, hosts->local, receive);
        it->steps[it->num_steps - 1].into = out;
    }
    call.kind = UNI__KIND_ALL_REDUCE;
    call.in = call.out = out;
    add(it, hosts->leaders, call);
    for (send.root = 1; send.root < hosts->local_size; send.root++)
        add(it, hosts->local, send);
}

static size_t num_segments(size_t bytes)
{
    size_t segments = (bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
    return segments < MAX_SEGMENTS ? segments : MAX_SEGMENTS;
}

static void add_segments(hosts_state *hosts, job *it, uni__call call, const void *in, void *out)
{
    size_t size = uni_dtype_size(call.dtype), segments = num_segments(call.count * size);
    uni__call hand_out = call;
    int summed = ALL_BEFORE; /* the step after which the segment before can be handed out */
    for (size_t k = 0; k < segments; k++) {
        size_t begin = call.count * k / segments, end = call.count * (k + 1) / segments;
        uni__call reduce = call, between = call;
        reduce.kind = UNI__KIND_REDUCE;
        reduce.count = between.count = end - begin;
        reduce.in = (const char *)in + begin * size;
        reduce.out = between.out = (char *)out + begin * size;
        between.kind = UNI__KIND_ALL_REDUCE;
        between.in = between.out;
        int reduced = add_after(it, hosts->local, reduce, k == 0 ? ALL_BEFORE : -1);
        int next = add_after(it, hosts->leaders, between, reduced);
        if (k > 0)
            add_after(it, hosts->local, hand_out, summed);
        hand_out = between;
        hand_out.kind = UNI__KIND_BROADCAST;
        hand_out.op = 0;
        summed = next;
    }
    add_after(it, hosts->local, hand_out, summed);
}

static void add_all_reduce(hosts_state *hosts, job *it, const void *in, void *out, size_t count,
                           uni_dtype dtype, uni_comm_op op)
{
    uni__call call = {
        .kind = UNI__KIND_REDUCE, .dtype = dtype, .op = op, .count = count, .weight = 1
    };
    if (count * uni_dtype_size(dtype) <= SMALL_BYTES) {
        add_small_all_reduce(hosts, it, call, in, out);
        return;
    }
    add_segments(hosts, it, call, in, out);
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
    size_t most = MORE_STEPS + 4 * (size_t)hosts->local_size +
                  3 * num_segments(call->count * uni_dtype_size(call->dtype));
    job *it = calloc(1, sizeof *it + most * sizeof it->steps[0]);
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

static void add_received(const uni_comm *comm, step *it)
{
    const void *both[2] = { it->into, it->call.out };
    uni__reduce_many(comm->kernels, it->call.dtype, it->call.op, 0, both, 2, &it->into, 1,
                     it->call.count);
}

static bool may_begin(const job *it, const step *next)
{
    return next->after == ALL_BEFORE ? it->first == it->next
                                     : next->after < 0 || it->steps[next->after].done;
}

/* Begins what can begin, looks after what is under way. *moved: something has ended. */
static int move_steps(uni_comm_request *request, bool *moved, uni_error *err)
{
    hosts_state *hosts = request->comm->state;
    job *it = request->handle;
    *moved = false;
    for (; it->next < it->num_steps && it->next < it->first + MAX_UNDER_WAY; it->next++) {
        step *next = &it->steps[it->next];
        if (!may_begin(it, next))
            break;
        if (uni__comm_start(next->on, &next->call, &next->inner, err) < 0)
            return explain(hosts, next->on, err);
    }
    for (int i = it->first; i < it->next; i++) {
        step *now = &it->steps[i];
        bool done = false;
        if (now->done)
            continue;
        if (uni_comm_test(now->inner, &done, err) < 0)
            return explain(hosts, now->on, err);
        if (!done)
            continue;
        if (now->into)
            add_received(request->comm, now);
        now->inner = NULL;
        now->done = *moved = true;
    }
    while (it->first < it->next && it->steps[it->first].done)
        it->first++;
    return 0;
}

static int hosts_step(uni_comm_request *request, uni_error *err)
{
    hosts_state *hosts = request->comm->state;
    job *it = request->handle;
    bool pair = it->ticket == UINT64_MAX, moved = true;
    if (!pair && it->ticket != hosts->serving)
        return 0;
    if (!pair)
        hosts->current = it;
    while (moved) {
        int status = it->first == it->num_steps ? conclude(request, err) : 0;
        if (status == 0)
            status = move_steps(request, &moved, err);
        if (status != 0)
            return end_job(request, status);
    }
    return 0;
}

/* On the oldest step; on one over MPI if there is one, because MPI moves only when it is called. */
static int hosts_pause(uni_comm_request *request, uint64_t limit_ns, uni_error *err)
{
    hosts_state *hosts = request->comm->state;
    job *it = request->handle;
    step *slowest = NULL;
    if (it->ticket != UINT64_MAX && hosts->current)
        it = hosts->current;
    for (int i = it->first; i < it->next; i++) {
        step *now = &it->steps[i];
        if (!now->done && (!slowest || (slowest->on == hosts->local && now->on != hosts->local)))
            slowest = now;
    }
    if (!slowest)
        return 0;
    int status = slowest->on->transport->pause(slowest->inner, limit_ns, err);
    return status < 0 ? explain(hosts, slowest->on, err) : 0;
}

/* The steps under way are tested one by one, and looked after by that. */
static int hosts_glance(uni_comm_request *request, uni_error *err)
{
    return 0;
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
        if (hosts->local_rank == 0 && !(hosts->scratch = malloc(SMALL_BYTES)))
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
        else
            status = open_inner(comm, hosts, leaders, num_leaders, family, err);
    }
    if (status < 0) {
        uni_comm_close(comm);
        return status;
    }
    *out = comm;
    return 0;
}
