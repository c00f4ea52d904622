/*
 * carrier.c - the transport over a carrier (carrier.h). Every collective is the carrier's own
 * nonblocking one, driven by tests.
 *
 * MPI does not report a dead peer (MPI_Test never fails after a kill), ranks that call different
 * collectives, or a network that drops what is sent (stall.c). So a waiting rank asks the
 * rendezvous (abort word, alive). After 100 ms it also sends all others a note that names its call.
 * A rank that receives a note with its own number but another call has found a mismatch, and gives
 * up with a note that names it. After an error MPI is never called again, not even to finalize
 * (loader.c). Called on the rank's thread; abort from any thread only sets a word.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/board.h"
#include "comm/kinds.h"
#include "comm/hosts/carrier_internal.h"
#include "comm/hosts/seal.h"

/* After this, every iteration yields the core. */
#define SPIN_NS 20000u
#define NAP_AFTER_NS 20000000u
#define LOOK_NS 20000000u
#define NOTE_NS 100000000u
#define WARN_NS 10000000000ull
#define MAX_UNDER_WAY 100 /* collectives; each may need two tags of 256 */
/* A rank announces its arrival only after this. */
#define GREET_TELL_NS 2000000000ull
#define GREET_NS 5000000000ull
#define OF_THE_USER ((uint64_t)1 << 63) /* flags the numbers of users' calls */

typedef struct mpi_state {
    const uni__carrier *plugin;
    void *state;
    /* NULL: messages are not sealed. A communicator that was split off uses its world's seal. */
    uni__seal *seal;
    /* 1: the text is being written, 2: it is complete. */
    _Atomic uint32_t aborted;
    char abort_text[UNI__NOTE_SIZE];
    uint64_t looked; /* when any request last checked the peers */
    uni__stall stall;
    int under_way; /* collectives started in MPI */
    bool dead; /* MPI is not called any more */
    /* For a carrier that survives its peers: keys that contain the epoch. */
    char keys[3][40];
} mpi_state;

static uint64_t what_of(const uni__call *call)
{
    return (uint64_t)call->kind | (uint64_t)call->dtype << 8 | (uint64_t)call->op << 16 |
           (uint64_t)call->root << 32;
}

static int dead(uni_comm *comm, int code, uni_error *err, const char *text)
{
    mpi_state *mpi = comm->state;
    mpi->dead = true;
    mpi->plugin->abandon();
    return uni_error_set(err, code, "%s", text);
}

/* The call that a rank announces: the user's call, of which this one may be a part. User calls and
 * inner calls are numbered separately. */
static uni__said said_of(const uni_comm_request *request)
{
    const uni_comm_request *asked = request->call.asked;
    uint64_t number = asked ? asked->number | OF_THE_USER : request->number;
    const uni__call *call = asked ? &asked->call : &request->call;
    return (uni__said){ .number = number, .what = what_of(call), .count = call->count };
}

/* Gives up on behalf of all ranks, which learn it from a note. */
static int give_up(uni_comm_request *request, int code, uni_error *err, const char *reason)
{
    mpi_state *mpi = request->comm->state;
    uni__carrier_note note = { .rank = request->comm->rank,
                               .code = code,
                               .number = request->number };
    char why[UNI__WHY_SIZE], text[UNI__NOTE_SIZE], what[96];
    uni__said mine = said_of(request);
    uni__describe_what(mine.what, mine.count, what, sizeof what);
    snprintf(text, sizeof text, "%s #%llu: %.300s. rank %d was in %s",
             uni__kind_name((int)(mine.what & 0xff)),
             (unsigned long long)(mine.number & ~OF_THE_USER), reason, request->comm->rank, what);
    snprintf(note.text, sizeof note.text, "%s", text);
    if (!mpi->dead)
        (void)mpi->plugin->send_notes(mpi->state, &note, why);
    return dead(request->comm, code, err, text);
}

static int say_mismatch(uni_comm_request *request, const uni__carrier_difference *differs,
                        uni_error *err)
{
    uni__said mine = said_of(request);
    char reason[360], ours[96], theirs[96], *count;
    uni__describe_what(mine.what, mine.count, ours, sizeof ours);
    uni__describe_what(differs->said.what, differs->said.count, theirs, sizeof theirs);
    count = differs->more ? strchr(theirs, '(') : NULL;
    snprintf(reason, sizeof reason,
             "the ranks do not call the same: rank %d calls %s, rank %d calls %.*s%s%s",
             request->comm->rank, ours, differs->rank,
             count ? (int)(count + 1 - theirs) : (int)strlen(theirs), theirs,
             count ? "more than " : "", count ? count + 1 : "");
    return give_up(request, UNI_EMISMATCH, err, reason);
}

/* Reads the notes of other ranks: that they give up, or which call they are in. */
static int read_notes(uni_comm_request *request, uni_error *err)
{
    mpi_state *mpi = request->comm->state;
    uni__carrier_note note;
    uni__said mine = said_of(request);
    char why[UNI__WHY_SIZE];
    for (int got = 1; got;) {
        if (mpi->plugin->next_note(mpi->state, &note, &got, why) < 0)
            return give_up(request, UNI_EPEER, err, why);
        if (!got)
            break;
        if (note.code != 0)
            return dead(request->comm, note.code, err, note.text);
        if (uni__kind_is_pair(request->call.kind))
            continue; /* pairs are numbered separately */
        uni__said theirs = { .number = note.number, .what = note.what, .count = note.count };
        if (theirs.number == mine.number &&
            (theirs.what != mine.what || theirs.count != mine.count))
            return say_mismatch(
                request, &(uni__carrier_difference){ .rank = note.rank, .said = theirs }, err);
    }
    return 0;
}

static int check_peers(uni_comm_request *request, uni_error *err)
{
    uni_comm *comm = request->comm;
    const uni__rendezvous *peers = &comm->peers;
    char why[256] = "the group is being ended", reason[300];
    if (peers->abort_word && atomic_load(peers->abort_word) != 0) {
        if (peers->vtable && peers->vtable->abort_reason)
            peers->vtable->abort_reason(peers->context, why, sizeof why);
        return give_up(request, UNI_ECANCELED, err, why);
    }
    for (int r = 0; r < comm->size && peers->vtable && peers->vtable->alive; r++)
        if (r != comm->rank && !peers->vtable->alive(peers->context, r, why, sizeof why)) {
            snprintf(reason, sizeof reason, "rank %d %s", r, why);
            return give_up(request, UNI_EWORKER, err, reason);
        }
    return 0;
}

/* For the plug-in, which has no kernels. A mean is divided at the end. */
static void combine(const void *context, int dtype, int op, void *into, const void *from,
                    size_t count)
{
    const void *in[2] = { into, from };
    uni_comm_op what = op == UNI_COMM_MEAN ? UNI_COMM_SUM : (uni_comm_op)op;
    uni__reduce_many(context, (uni_dtype)dtype, what, 0, in, 2, &into, 1, count);
}

static int mpi_start(uni_comm_request *request, bool *again, uni_error *err)
{
    uni_comm *comm = request->comm;
    mpi_state *mpi = comm->state;
    uni__call *call = &request->call;
    char why[UNI__WHY_SIZE] = "";
    *again = false;
    bool pair = uni__kind_is_pair(call->kind);
    const _Atomic uint32_t *word = comm->peers.abort_word;
    if (atomic_load(&mpi->aborted) == 2)
        return give_up(request, UNI_ECANCELED, err, mpi->abort_text);
    if (word && atomic_load_explicit(word, memory_order_relaxed) != 0)
        UNI_TRY(check_peers(request, err));
    /* Collectives under way must have different tags (exchange.c). */
    *again = !pair && mpi->under_way >= MAX_UNDER_WAY;
    if (*again)
        return 0;
    mpi->under_way += !pair;
    request->late_rank = -1;
    request->total_weight = call->weight;
    uni__carrier_call plain = { .kind = call->kind,
                                .dtype = call->dtype,
                                .op = (int)call->op,
                                .root = call->root,
                                .said = said_of(request),
                                .count = call->count,
                                .in = call->in,
                                .out = call->out,
                                .combine = combine,
                                .combine_context = comm->kernels };
    if (call->op == UNI_COMM_MEAN)
        plain.weight = &request->total_weight;
    int status = mpi->plugin->start(mpi->state, &plain, &request->handle, why);
    if (pair)
        request->seq = uni__stall_count(&mpi->stall, request);
    return status < 0 ? dead(comm, status, err, why) : 0;
}

static int mpi_step(uni_comm_request *request, uni_error *err)
{
    uni_comm *comm = request->comm;
    mpi_state *mpi = comm->state;
    const uni__call *call = &request->call;
    char why[UNI__WHY_SIZE] = "";
    uni__carrier_difference differs = { .rank = -1 };
    int done = 0;
    int status = mpi->plugin->test(mpi->state, request->handle, &done, &differs, why);
    if (differs.rank >= 0)
        return say_mismatch(request, &differs, err);
    if (status < 0)
        return give_up(request, status, err, why);
    if (!done)
        return 0;
    mpi->under_way -= !uni__kind_is_pair(call->kind);
    bool takes = call->kind != UNI__KIND_REDUCE || call->root == comm->rank;
    int type = uni__kernel_type(call->dtype);
    if (call->op == UNI_COMM_MEAN && takes && request->total_weight != 0 && type >= 0)
        comm->kernels->divide[type](call->out, request->total_weight, call->count);
    return 1;
}

/* A send may stay unanswered for long. All ranks must reach the collectives, so watch the
 * oldest. */
static uni_comm_request *oldest_collective(uni_comm *comm)
{
    for (uni_comm_request *it = comm->started.first; it; it = it->next)
        if (it->watch.begun && !uni__kind_is_pair(it->call.kind))
            return it;
    return NULL;
}

static int tell_what_is_called(uni_comm_request *request, uni__watch *watch, uint64_t now,
                               uni_error *err)
{
    mpi_state *mpi = request->comm->state;
    uni__said mine = said_of(request);
    uni__carrier_note note = {
        .rank = request->comm->rank, .number = mine.number, .what = mine.what, .count = mine.count
    };
    char why[UNI__WHY_SIZE];
    if (now - watch->begun <= NOTE_NS || now - watch->noted <= NOTE_NS)
        return 0;
    watch->noted = now;
    return mpi->plugin->send_notes(mpi->state, &note, why) < 0
               ? give_up(request, UNI_EPEER, err, why)
               : 0;
}

int uni__carrier_listen(uni_comm *world, uni_comm_request *outer, uni_error *err)
{
    uint64_t now = uni__monotonic_ns();
    uni__watch *watch = &outer->watch;
    if (watch->begun == 0)
        *watch = (uni__watch){ .begun = now, .looked = now, .noted = now };
    if (now - watch->looked < LOOK_NS)
        return 0;
    watch->looked = now;
    uni_comm_request there = { .comm = world, .call = outer->call, .number = outer->number };
    there.call.asked = outer;
    UNI_TRY(read_notes(&there, err));
    return tell_what_is_called(&there, watch, now, err);
}

void uni__carrier_last_words(uni_comm *world, const uni_comm_request *outer,
                             const uni_error *failure)
{
    mpi_state *mpi = world->state;
    uni__carrier_note note = { .rank = world->rank,
                               .code = failure->code,
                               .number = outer->number | OF_THE_USER };
    char why[UNI__WHY_SIZE];
    snprintf(note.text, sizeof note.text, "%.*s", (int)sizeof note.text - 1, failure->message);
    if (!mpi->dead)
        (void)mpi->plugin->send_notes(mpi->state, &note, why);
    mpi->dead = true;
    mpi->plugin->abandon();
}

static const char *carrier_name(const mpi_state *mpi)
{
    return mpi->plugin->survives ? "UCX" : "MPI";
}

/* Do all ranks reach the collective, and does it progress once they have? */
static int look_at_collective(uni_comm_request *request, uint64_t now, uni_error *err)
{
    uni_comm *comm = request->comm;
    mpi_state *mpi = comm->state;
    char reason[300];
    UNI_TRY(tell_what_is_called(request, &request->watch, now, err));
    if (!uni__stall_found(&mpi->stall, request, mpi->plugin->progress(request->handle), now))
        return 0;
    snprintf(reason, sizeof reason,
             "all ranks are in it or past it, and nothing moved for some seconds: the network "
             "between the hosts drops what %s sends (a firewall, a port, a route)",
             carrier_name(mpi));
    return give_up(request, UNI_EPEER, err, reason);
}

static int look_at_messages(uni_comm_request *request, uint64_t now, uni_error *err)
{
    mpi_state *mpi = request->comm->state;
    char reason[300];
    int rank = uni__stall_pair_found(&mpi->stall, request->comm, now);
    if (rank < 0)
        return 0;
    const uni__stall_pair *pair = &mpi->stall.pairs[rank];
    snprintf(reason, sizeof reason,
             "rank %d still waits for message #%llu of rank %d, which was sent %.1f s ago: the "
             "network between the hosts drops what %s sends (a firewall, a port, a route)",
             rank, (unsigned long long)pair->wanted, request->comm->rank,
             (double)(now - pair->sent_ns) * 1e-9, carrier_name(mpi));
    return give_up(request, UNI_EPEER, err, reason);
}

/* A server that polls has a receive from each of its clients, and is not disturbed when one of them
 * has closed. A rank that blocks would wait forever. */
static int look_for_sender(uni_comm_request *request, uni_error *err)
{
    mpi_state *mpi = request->comm->state;
    char reason[64];
    if (request->call.kind != UNI__KIND_RECV || !mpi->plugin->is_deserted ||
        !mpi->plugin->is_deserted(mpi->state, request->handle))
        return 0;
    snprintf(reason, sizeof reason, "rank %d has closed its communicator", request->call.root);
    return give_up(request, UNI_EPEER, err, reason);
}

static int look(uni_comm_request *request, uint64_t now, bool waits, uni_error *err)
{
    uni_comm *comm = request->comm;
    mpi_state *mpi = comm->state;
    uint64_t waited = now - request->watch.begun;
    uni_comm_request *collective = oldest_collective(comm);
    if (atomic_load(&mpi->aborted) == 2)
        return give_up(request, UNI_ECANCELED, err, mpi->abort_text);
    UNI_TRY(check_peers(request, err));
    UNI_TRY(read_notes(collective ? collective : request, err));
    if (collective)
        UNI_TRY(look_at_collective(collective, now, err));
    UNI_TRY(look_at_messages(request, now, err));
    if (waits)
        UNI_TRY(look_for_sender(request, err));
    if (comm->options.timeout_ms > 0 && waited > (uint64_t)comm->options.timeout_ms * 1000000u)
        return give_up(request, UNI_ETIMEOUT, err, "not all ranks came in time (timeout_ms)");
    if (waits && waited > WARN_NS && now - request->watch.warned > WARN_NS) {
        request->watch.warned = now;
        uni__warn("%s #%llu: rank %d waits for other ranks since %.0f s",
                  uni__kind_name(request->call.kind), (unsigned long long)request->number,
                  comm->rank, (double)waited * 1e-9);
    }
    return 0;
}

/* waits: the caller blocks on this request. */
static int attend(uni_comm_request *request, uint64_t now, bool waits, uni_error *err)
{
    mpi_state *mpi = request->comm->state;
    if (request->watch.begun == 0)
        request->watch = (uni__watch){ .begun = now, .warned = now, .noted = now };
    if (now - mpi->looked < LOOK_NS && atomic_load(&mpi->aborted) != 2)
        return 0;
    mpi->looked = now;
    return look(request, now, waits, err);
}

static int mpi_glance(uni_comm_request *request, uni_error *err)
{
    return attend(request, uni__monotonic_ns(), false, err);
}

/* MPI progresses only when it is called, so the pauses are short. */
static int mpi_pause(uni_comm_request *request, uint64_t limit_ns, uni_error *err)
{
    uint64_t now = uni__monotonic_ns();
    UNI_TRY(attend(request, now, true, err));
    uint64_t waited = now - request->watch.begun;
    if (waited > NAP_AFTER_NS)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    else if (waited > SPIN_NS)
        sched_yield();
    return 0;
}

/* Other hosts cannot see our memory: every rank has its own copy. */
static int mpi_alloc(uni_comm *comm, uni_comm_buffer *buffer, uni_error *err)
{
    buffer->mapped = (buffer->bytes + 4095) & ~(size_t)4095;
    void *memory =
        mmap(NULL, buffer->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a buffer of %zu bytes", buffer->bytes);
    buffer->own_only = true;
    buffer->stride = 0;
    buffer->base = memory;
    return 0;
}

static void mpi_release(uni_comm_buffer *buffer)
{
    munmap(buffer->base, buffer->mapped);
}

static void mpi_abort(uni_comm *comm, const char *reason)
{
    mpi_state *mpi = comm->state;
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&mpi->aborted, &none, 1))
        return;
    snprintf(mpi->abort_text, sizeof mpi->abort_text, "%.400s", reason);
    atomic_store(&mpi->aborted, 2);
}

static void mpi_close(uni_comm *comm)
{
    mpi_state *mpi = comm->state;
    if (mpi && mpi->state)
        mpi->plugin->close(mpi->state, (comm->finalized || mpi->plugin->survives) && !mpi->dead &&
                                           !comm->broken.code);
    if (mpi) {
        uni__stall_free(&mpi->stall);
        uni__seal_free(mpi->seal);
    }
    free(mpi);
}

#define TRANSPORT(family)                                                                          \
    {                                                                                              \
        .name = family, .start = mpi_start, .step = mpi_step, .pause = mpi_pause,                  \
        .glance = mpi_glance, .alloc = mpi_alloc, .release = mpi_release, .abort = mpi_abort,      \
        .close = mpi_close,                                                                        \
    }
static const uni__transport mpi_transport = TRANSPORT("mpi"), ucx_transport = TRANSPORT("ucx");

int uni__comm_split(uni_comm **out, uni_comm *world, int color, const int *members, int count,
                    const uni__rendezvous *peers, const uni_comm_options *options, uni_error *err)
{
    mpi_state *all = world->state, *mpi = calloc(1, sizeof *mpi);
    uni__rendezvous mine = *peers;
    char why[UNI__WHY_SIZE] = "";
    *out = NULL;
    if (!mpi)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    mpi->plugin = all->plugin;
    snprintf(mpi->keys[0], sizeof mpi->keys[0], "%s.leaders", all->stall.key);
    snprintf(mpi->keys[1], sizeof mpi->keys[1], "%s.leaders", all->stall.pair_key);
    mpi->stall.key = mpi->keys[0];
    mpi->stall.pair_key = mpi->keys[1];
    int status = all->plugin->split(all->state, color, members, count, &mpi->state, &mine.rank,
                                    &mine.size, why);
    if (status < 0)
        uni_error_set(err, status, "the ranks cannot be split by hosts: %s", why);
    else if (mpi->state)
        status = uni__comm_new(out, &mine, options, world->transport, err);
    if (*out)
        (*out)->state = mpi;
    else
        free(mpi);
    return status;
}

/* What the rendezvous knows of the ranks that are opening, before there is a communicator. */
typedef struct greeting {
    const uni__rendezvous *world;
    /* ns. all_since: when all ranks were known to have arrived, or 0. */
    uint64_t begun, looked, all_since;
    bool told;
    /* All ranks before this one are known to have arrived. */
    int next;
    const char *key, *carrier;
} greeting;

static bool all_have_come(greeting *it)
{
    const uni__rendezvous *world = it->world;
    char nothing[1];
    size_t size;
    if (!it->told)
        (void)!world->vtable->put(world->context, it->key, "", 0, NULL);
    it->told = true;
    while (it->next < world->size && (it->next == world->rank ||
                                      world->vtable->get(world->context, it->next, it->key, nothing,
                                                         sizeof nothing, &size, 0, NULL) == 0))
        it->next++;
    return it->next == world->size;
}

/* Ranks may arrive at very different times. But once all have arrived, they reach each other within
 * a few seconds, or the network blocks them. */
static int look_at_greeting(greeting *it, uint64_t now, char *why)
{
    const uni__rendezvous *world = it->world;
    const uni__rendezvous_vtable *vtable = world->vtable;
    it->looked = now;
    if (world->abort_word && atomic_load(world->abort_word) != 0) {
        snprintf(why, UNI__WHY_SIZE, "the group is being ended");
        if (vtable && vtable->abort_reason)
            vtable->abort_reason(world->context, why, UNI__WHY_SIZE);
        return UNI_ECANCELED;
    }
    for (int r = 0; r < world->size && vtable && vtable->alive; r++) {
        char predicate[256];
        if (r == world->rank || vtable->alive(world->context, r, predicate, sizeof predicate))
            continue;
        snprintf(why, UNI__WHY_SIZE, "rank %d %s", r, predicate);
        return UNI_EWORKER;
    }
    if (!vtable || !vtable->put || !vtable->get || now - it->begun < GREET_TELL_NS ||
        !all_have_come(it))
        return 0;
    it->all_since = it->all_since ? it->all_since : now;
    if (now - it->all_since < GREET_NS)
        return 0;
    snprintf(why, UNI__WHY_SIZE,
             "all %d ranks have come, but do not reach each other: the network between the hosts "
             "drops what %s sends (a firewall, a port, a route, another interface)",
             world->size, it->carrier);
    return UNI_EPEER;
}

static int greet(mpi_state *mpi, const uni__rendezvous *world, char *why)
{
    uint64_t now = uni__monotonic_ns();
    greeting it = { .world = world,
                    .begun = now,
                    .looked = now,
                    .carrier = carrier_name(mpi),
                    .key = mpi->keys[2][0] ? mpi->keys[2] : "greets.world" };
    for (int done = 0;;) {
        UNI_TRY(mpi->plugin->meet(mpi->state, &done, why));
        if (done)
            return 0;
        now = uni__monotonic_ns();
        if (now - it.begun > NAP_AFTER_NS)
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        else
            sched_yield();
        if (now - it.looked > LOOK_NS)
            UNI_TRY(look_at_greeting(&it, now, why));
    }
}

int uni__comm_open_mpi(uni_comm **out, const uni__rendezvous *peers,
                       const uni_comm_options *options, const char *family, uni_error *err)
{
    const uni__carrier *plugin = NULL;
    char why[UNI__WHY_SIZE] = "";
    uni__rendezvous world = { 0 };
    if (peers)
        world = *peers;
    *out = NULL;
    UNI_TRY(uni__mpi_plugin_load(&plugin, family, err));
    mpi_state *mpi = calloc(1, sizeof *mpi);
    if (!mpi)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    mpi->plugin = plugin;
    mpi->stall.key = "stalled.world";
    mpi->stall.pair_key = "missed.world";
    if (world.data_key && uni__seal_new(&mpi->seal, world.data_key, err) < 0) {
        free(mpi);
        return UNI_ENOMEM;
    }
    int status = plugin->open(&mpi->state, &world.rank, &world.size, why);
    uni__mpi_plugin_used(plugin);
    if (status == 0 && mpi->seal)
        plugin->protect(mpi->state, mpi->seal);
    if (status == 0)
        status = greet(mpi, &world, why);
    if (status == 0) {
        status = uni__comm_new(out, &world, options, &mpi_transport, err);
        if (status == 0) {
            (*out)->state = mpi;
            return 0;
        }
    } else {
        plugin->abandon();
        uni_error_set(err, status, "MPI cannot be started: %s", why);
    }
    uni__seal_free(mpi->seal);
    free(mpi);
    return status;
}

int uni__comm_open_carrier(uni_comm **out, const uni__carrier *carrier, void *state, uint32_t epoch,
                           const uni__rendezvous *peers, const uni_comm_options *options,
                           uni_error *err)
{
    static const char *const names[3] = { "stalled", "missed", "greets" };
    char why[UNI__WHY_SIZE] = "";
    mpi_state *mpi = calloc(1, sizeof *mpi);
    int status = mpi ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    *out = NULL;
    for (int i = 0; i < 3 && mpi; i++)
        snprintf(mpi->keys[i], sizeof mpi->keys[i], "%s.%s.%u", names[i], carrier->family, epoch);
    if (status == 0) {
        mpi->plugin = carrier;
        mpi->state = state;
        mpi->stall.key = mpi->keys[0];
        mpi->stall.pair_key = mpi->keys[1];
        status = peers->data_key ? uni__seal_new(&mpi->seal, peers->data_key, err) : 0;
    }
    if (status == 0 && mpi->seal)
        carrier->protect(state, mpi->seal);
    if (status == 0 && (status = greet(mpi, peers, why)) < 0)
        uni_error_set(err, status, "%s", why);
    if (status == 0)
        status = uni__comm_new(out, peers, options, &ucx_transport, err);
    if (status == 0) {
        (*out)->state = mpi;
        return 0;
    }
    carrier->close(state, 0);
    if (mpi)
        uni__seal_free(mpi->seal);
    free(mpi);
    return status;
}
