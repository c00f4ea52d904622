/*
 * plugin.c - the plug-in for one MPI family: nonblocking calls, tests, notes. The only file of the
 * library that includes mpi.h. Compiled once for each family that the build finds. See
 * hosts/carrier.h.
 */
#include <mpi.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/comm.h>

#include "comm/kinds.h"
#include "comm/mpi/plugin_internal.h"

#if defined(OPEN_MPI)
#define FAMILY "openmpi"
#else
#define FAMILY "mpich"
#endif

#define LAST_WORDS_SECONDS 0.05 /* a dead peer never receives them */
/* MPI connects two ranks at their first message, and creating a communicator cannot be interrupted
 * when the network drops that message. So the ranks greet each other first. Up to this many ranks
 * each greets all others, above it only those that a barrier needs. */
#define GREET_ALL 128
#define RING_ELEMENTS 4096u
#define EAGER_BYTES (60u << 10) /* over TCP: see exchange.c */

/* Per process, like MPI itself. */
static int initialised_here, abandoned;

/* MPI reports errors of a test on the world communicator, whichever communicator they belong to,
 * and the world's default handler ends the process. When MPI is ours, we replace the handler once.
 * When it is the caller's, we restore its handler before returning. */
static MPI_Errhandler quiet_world(void)
{
    MPI_Errhandler before = MPI_ERRHANDLER_NULL;
    if (initialised_here)
        return before;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return before;
}

static void restore_world(MPI_Errhandler before)
{
    if (before == MPI_ERRHANDLER_NULL)
        return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    MPI_Errhandler_free(&before);
}

static int fail(int code, const char *what, char *why)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    snprintf(why, UNI__WHY_SIZE, "%s: " FAMILY " says: %.300s", what, text);
    return UNI_EPEER;
}

int uni__exchange_is_better(const state *s, const uni__carrier_call *call)
{
    bool reduces = call->kind == UNI__KIND_ALL_REDUCE;
    bool doubles = (s->size & (s->size - 1)) == 0; /* a ring is too slow for little data */
    return reduces && s->size > 1 && call->combine && call->count > 0 &&
           (doubles || call->count >= RING_ELEMENTS || s->seal);
}

/* Casts a slot, which is large enough for the handles of any MPI family. */
static int post_round(void *context, const uni__round *round, uni__round_slot *slot)
{
    const state *s = context;
    MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
    int code = MPI_Irecv(round->receive, (int)round->receive_bytes, MPI_BYTE, round->from,
                         round->tag, s->data, &requests[0]);
    if (code == MPI_SUCCESS)
        code = MPI_Isend(round->send, (int)round->send_bytes, MPI_BYTE, round->to, round->tag,
                         s->data, &requests[1]);
    memcpy(slot, requests, sizeof requests);
    return code;
}

static int test_round(void *context, uni__round_slot *slot, int *done)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    memcpy(requests, slot, sizeof requests);
    int code = MPI_Testall(2, requests, done, statuses);
    memcpy(slot, requests, sizeof requests);
    return code;
}

/* For a new communicator. Collective. */
static void know_ranks(state *s)
{
    MPI_Comm host = MPI_COMM_NULL;
    int here = 0;
    MPI_Comm_set_errhandler(s->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(s->notes, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(s->checks, MPI_ERRORS_RETURN);
    MPI_Comm_rank(s->data, &s->rank);
    MPI_Comm_size(s->data, &s->size);
    if (MPI_Comm_split_type(s->data, MPI_COMM_TYPE_SHARED, s->rank, MPI_INFO_NULL, &host) ==
            MPI_SUCCESS &&
        host != MPI_COMM_NULL) {
        MPI_Comm_size(host, &here);
        MPI_Comm_free(&host);
    }
    s->one_host = here == s->size;
    _Static_assert(2 * sizeof(MPI_Request) <= sizeof(uni__round_slot), "room for two handles");
    s->wire = (uni__wire){ .context = s,
                           .post = post_round,
                           .test = test_round,
                           .seal = s->seal,
                           .id = s->id,
                           .rank = s->rank,
                           .size = s->size,
                           .one_host = s->one_host,
                           .no_memory = MPI_ERR_NO_MEM,
                           .message_bytes = EAGER_BYTES };
    s->sent_to = calloc((size_t)s->size + 1, sizeof *s->sent_to);
    s->got_from = calloc((size_t)s->size + 1, sizeof *s->got_from);
    for (int i = 0; i < MAX_NOTES; i++)
        s->sending[i] = MPI_REQUEST_NULL;
}

static int plugin_open(void **out, int *rank, int *size, char *why)
{
    int initialised = 0, finalised = 0, level = 0, code;
    state *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) {
        snprintf(why, UNI__WHY_SIZE, "no memory for MPI");
        return UNI_ENOMEM;
    }
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (finalised) {
        free(s);
        snprintf(why, UNI__WHY_SIZE,
                 "MPI was finalised in this process already; it can be started only once");
        return UNI_ESTATE;
    }
    if (!initialised && (code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level))) {
        free(s);
        return fail(code, "MPI_Init_thread", why);
    }
    s->initialised_here = !initialised;
    initialised_here |= !initialised;
    if (!initialised)
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    s->greetings = calloc(2, (size_t)*size);
    code = !s->greetings        ? MPI_ERR_NO_MEM
           : *size <= GREET_ALL ? MPI_Ialltoall(s->greetings, 1, MPI_BYTE, s->greetings + *size, 1,
                                                MPI_BYTE, MPI_COMM_WORLD, &s->greeting)
                                : MPI_Ibarrier(MPI_COMM_WORLD, &s->greeting);
    if (code != MPI_SUCCESS) {
        free(s->greetings);
        free(s);
        return fail(code, "the first collective could not start", why);
    }
    *out = s;
    return 0;
}

static void plugin_protect(void *context, const uni__seal *seal)
{
    ((state *)context)->seal = seal;
}

static int plugin_meet(void *context, int *done, char *why)
{
    state *s = context;
    int code = MPI_Test(&s->greeting, done, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && *done) {
        free(s->greetings);
        s->greetings = NULL;
        if ((code = MPI_Comm_dup(MPI_COMM_WORLD, &s->data)) == MPI_SUCCESS &&
            (code = MPI_Comm_dup(MPI_COMM_WORLD, &s->notes)) == MPI_SUCCESS &&
            (code = MPI_Comm_dup(MPI_COMM_WORLD, &s->checks)) == MPI_SUCCESS)
            know_ranks(s);
    }
    return code == MPI_SUCCESS ? 0 : fail(code, "the ranks do not reach each other", why);
}

static int plugin_split(void *context, int color, const int *members, int count, void **out,
                        int *rank, int *size, char *why)
{
    state *world = context, *s = calloc(1, sizeof *s);
    int code;
    *out = NULL;
    if (!s) {
        snprintf(why, UNI__WHY_SIZE, "no memory for MPI");
        return UNI_ENOMEM;
    }
    if ((code = MPI_Comm_split(world->data, color < 0 ? MPI_UNDEFINED : color, world->rank,
                               &s->data)) ||
        (s->data != MPI_COMM_NULL && ((code = MPI_Comm_dup(s->data, &s->notes)) ||
                                      (code = MPI_Comm_dup(s->data, &s->checks))))) {
        free(s);
        return fail(code, "MPI_Comm_split", why);
    }
    if (s->data == MPI_COMM_NULL) {
        free(s);
        return 0;
    }
    s->seal = world->seal;
    s->id = ++world->splits << 16 | (uint32_t)color;
    know_ranks(s);
    *rank = s->rank;
    *size = s->size;
    *out = s;
    return 0;
}

MPI_Datatype uni__mpi_type_of(int dtype)
{
    switch (dtype) {
    case UNI_F32:
        return MPI_FLOAT;
    case UNI_F64:
        return MPI_DOUBLE;
    case UNI_I32:
        return MPI_INT32_T;
    case UNI_I64:
        return MPI_INT64_T;
    case UNI_U8:
        return MPI_UINT8_T;
    case UNI_I8:
        return MPI_INT8_T;
    case UNI_B8:
        return MPI_BYTE;
    case UNI_I16:
        return MPI_INT16_T;
    case UNI_U16:
    case UNI_F16:
    case UNI_BF16:
        return MPI_UINT16_T;
    case UNI_U32:
        return MPI_UINT32_T;
    default:
        return MPI_UINT64_T;
    }
}

static size_t size_of(int dtype)
{
    int size = 1;
    MPI_Type_size(uni__mpi_type_of(dtype), &size);
    return (size_t)size;
}

static MPI_Op op_of(int op)
{
    switch (op) {
    case UNI_COMM_MIN:
        return MPI_MIN;
    case UNI_COMM_MAX:
        return MPI_MAX;
    case UNI_COMM_PRODUCT:
        return MPI_PROD;
    case UNI_COMM_AND:
        return MPI_BAND;
    case UNI_COMM_OR:
        return MPI_BOR;
    case UNI_COMM_XOR:
        return MPI_BXOR;
    default:
        return MPI_SUM;
    }
}

/* MPI_IN_PLACE does not cover a reduce_scatter into the rank's own part of the input. */
static void *scatter_target(handle *h, const uni__carrier_call *call, int size, size_t bytes)
{
    const char *in = call->in, *out = call->out;
    if (out < in || out >= in + bytes * (size_t)size)
        return call->out;
    h->temporary = malloc(bytes ? bytes : 1);
    h->copy_to = call->out;
    h->copy_bytes = bytes;
    return h->temporary;
}

static int start_call(state *s, const uni__carrier_call *call, handle *h)
{
    if (uni__exchange_is_better(s, call))
        return uni__exchange_start(&s->wire, call, size_of(call->dtype), &h->exchange);

    MPI_Datatype type = uni__mpi_type_of(call->dtype);
    if (uni__sealed_is_needed(s, call))
        return uni__sealed_start(s, call, type, h);
    int count = (int)call->count, size = 1;
    MPI_Type_size(type, &size);
    size_t bytes = call->count * (size_t)size;
    MPI_Request *request = &h->requests[0];
    const void *in = call->in == call->out ? MPI_IN_PLACE : call->in;
    switch (call->kind) {
    case UNI__KIND_ALL_REDUCE:
        return MPI_Iallreduce(in, call->out, count, type, op_of(call->op), s->data, request);
    case UNI__KIND_REDUCE:
        return MPI_Ireduce(s->rank == call->root ? in : call->in, call->out, count, type,
                           op_of(call->op), call->root, s->data, request);
    case UNI__KIND_BROADCAST:
        return MPI_Ibcast(call->out, count, type, call->root, s->data, request);
    case UNI__KIND_ALL_GATHER:
        in = call->in == (char *)call->out + bytes * (size_t)s->rank ? MPI_IN_PLACE : call->in;
        return MPI_Iallgather(in, count, type, call->out, count, type, s->data, request);
    case UNI__KIND_REDUCE_SCATTER: {
        void *target = scatter_target(h, call, s->size, bytes);
        return target ? MPI_Ireduce_scatter_block(call->in, target, count, type, op_of(call->op),
                                                  s->data, request)
                      : MPI_ERR_NO_MEM;
    }
    case UNI__KIND_ALL_TO_ALL:
        return MPI_Ialltoall(call->in, count, type, call->out, count, type, s->data, request);
    case UNI__KIND_SEND:
        return MPI_Isend(call->in, count, type, call->root, call->dtype, s->checks, request);
    case UNI__KIND_RECV:
        return MPI_Irecv(call->out, count, type, call->root, MPI_ANY_TAG, s->checks, request);
    default:
        return MPI_Ibarrier(s->data, request);
    }
}

static int plugin_start(void *context, const uni__carrier_call *call, void **out, char *why)
{
    state *s = context;
    if (call->count > INT_MAX) {
        snprintf(why, UNI__WHY_SIZE, "MPI counts to %d elements in a call; split the %zu", INT_MAX,
                 call->count);
        return UNI_ELIMIT;
    }
    if (call->op && (call->dtype == UNI_F16 || call->dtype == UNI_BF16)) {
        snprintf(why, UNI__WHY_SIZE,
                 "MPI does not reduce %s: convert it to float32, or use --transport ucx",
                 call->dtype == UNI_F16 ? "float16" : "bfloat16");
        return UNI_EDTYPE;
    }
    handle *h = calloc(1, sizeof *h);
    if (!h) {
        snprintf(why, UNI__WHY_SIZE, "no memory for a call of MPI");
        return UNI_ENOMEM;
    }
    h->call = *call;
    h->agreement.differs.rank = -1;
    h->requests[0] = h->requests[1] = MPI_REQUEST_NULL;
    MPI_Errhandler before = quiet_world();
    int code = uni__agree_start(s, call, &h->agreement);
    if (code == MPI_SUCCESS)
        code = start_call(s, call, h);
    restore_world(before);
    h->num_requests = 1;
    if (code == MPI_SUCCESS && call->weight && s->seal && s->size > 1) {
        uni__carrier_call weights = { .kind = UNI__KIND_ALL_REDUCE,
                                      .dtype = UNI_F64,
                                      .op = UNI_COMM_SUM,
                                      .count = 1,
                                      .in = call->weight,
                                      .out = call->weight,
                                      .combine = call->combine,
                                      .combine_context = call->combine_context };
        code = uni__exchange_start(&s->wire, &weights, sizeof(double), &h->weights);
    } else if (code == MPI_SUCCESS && call->weight) {
        code = MPI_Iallreduce(MPI_IN_PLACE, call->weight, 1, MPI_DOUBLE, MPI_SUM, s->data,
                              &h->requests[1]);
        h->num_requests = 2;
    }
    if (code != MPI_SUCCESS) {
        free(h->temporary);
        free(h);
        return fail(code, "a collective could not start", why);
    }
    *out = h;
    return 0;
}

static int say_forged(int rank, char *why)
{
    snprintf(
        why, UNI__WHY_SIZE,
        "a message of rank %d was changed, repeated or left out on its way: possible man in the "
        "middle",
        rank);
    return UNI_ECORRUPT;
}

/* Advances as far as possible; frees it and sets *exchange to NULL when it has ended. */
static int step_exchange(uni__exchange **exchange, int *done, char *why)
{
    *done = 1;
    if (!*exchange)
        return 0;
    int code = uni__exchange_step(*exchange, done);
    if (code != MPI_SUCCESS && uni__exchange_forged(*exchange) >= 0)
        return say_forged(uni__exchange_forged(*exchange), why);
    if (code != MPI_SUCCESS)
        return fail(code, "a collective failed", why);
    if (*done) {
        uni__exchange_free(*exchange);
        *exchange = NULL;
    }
    return 0;
}

/* MPI's own requests: the call, or its sealed form, and the weights. */
static int test_requests(state *s, handle *h, int *done, char *why)
{
    MPI_Status statuses[2];
    int code = MPI_Testall(h->num_requests, h->requests, done, statuses), class = MPI_SUCCESS;
    if (code == MPI_ERR_IN_STATUS)
        code = statuses[0].MPI_ERROR != MPI_SUCCESS ? statuses[0].MPI_ERROR : statuses[1].MPI_ERROR;
    MPI_Error_class(code, &class);
    bool truncated = class == MPI_ERR_TRUNCATE;
    if (h->call.kind == UNI__KIND_RECV && (truncated || (code == MPI_SUCCESS && *done)))
        uni__agree_on_message(s, &h->call, &statuses[0], truncated, &h->agreement);
    if (h->agreement.differs.rank >= 0)
        return UNI_EMISMATCH;
    if (code != MPI_SUCCESS)
        return fail(code, "a collective failed", why);
    int forged = *done && h->sealed ? uni__sealed_finish(h->sealed) : -1;
    return forged >= 0 ? say_forged(forged, why) : 0;
}

static int move_data(state *s, handle *h, int *done, char *why)
{
    int weighed = 0;
    UNI_TRY(step_exchange(&h->exchange, done, why));
    UNI_TRY(step_exchange(&h->weights, &weighed, why));
    *done = *done && weighed;
    return *done ? test_requests(s, h, done, why) : 0;
}

static void free_handle(handle *h)
{
    uni__sealed_free(h->sealed);
    free(h->agreement.said);
    free(h->temporary);
    free(h);
}

static int test_handle(state *s, handle *h, int *done, uni__carrier_difference *differs, char *why)
{
    int moved = 1;
    *done = 0;
    if (!h->moved && h->failed == 0) {
        h->failed = move_data(s, h, &moved, h->why);
        h->moved = moved && h->failed == 0;
    }
    int code = uni__agree_step(s, &h->agreement);
    *differs = h->agreement.differs;
    if (differs->rank >= 0)
        return UNI_EMISMATCH;
    if (code != MPI_SUCCESS)
        return fail(code, "the ranks' calls could not be compared", why);
    if (!h->agreement.agreed)
        return 0;
    if (h->failed < 0) {
        memcpy(why, h->why, sizeof h->why);
        return h->failed;
    }
    *done = h->moved;
    if (*done && h->copy_to)
        memcpy(h->copy_to, h->temporary, h->copy_bytes);
    if (*done)
        free_handle(h);
    return 0;
}

static int plugin_test(void *context, void *argument, int *done, uni__carrier_difference *differs,
                       char *why)
{
    MPI_Errhandler before = quiet_world();
    int status = test_handle(context, argument, done, differs, why);
    restore_world(before);
    return status;
}

static uint64_t plugin_progress(void *argument)
{
    const handle *h = argument;
    return h->exchange ? uni__exchange_progress(h->exchange) : 0;
}

static int note_bytes(const state *s)
{
    return (int)(sizeof(uni__carrier_note) + (s->seal ? s->seal->extra : 0));
}

static int plugin_send_notes(void *context, const uni__carrier_note *note, char *why)
{
    state *s = context;
    for (int r = 0; r < s->size; r++) {
        int done = 1, place = s->next_sent;
        if (r == s->rank)
            continue;
        MPI_Test(&s->sending[place], &done, MPI_STATUS_IGNORE);
        if (!done)
            return 0; /* earlier notes are still queued: give up */
        uni__seal_place where = { .comm = s->id, .from = s->rank, .to = r };
        if (s->seal)
            s->seal->seal(s->seal->context, &where, s->sent[place].bytes, note, sizeof *note);
        else
            memcpy(s->sent[place].bytes, note, sizeof *note);
        int code = MPI_Isend(s->sent[place].bytes, note_bytes(s), MPI_BYTE, r, TAG_NOTE, s->notes,
                             &s->sending[place]);
        if (code != MPI_SUCCESS)
            return fail(code, "a note could not be sent", why);
        s->next_sent = (place + 1) % MAX_NOTES;
    }
    /* The last words of a rank that gives up. MPI is not called after this, so anything still in
     * its queues would never leave. */
    MPI_Status statuses[MAX_NOTES];
    double deadline = MPI_Wtime() + LAST_WORDS_SECONDS;
    for (int all = 0; note->code != 0 && !all && MPI_Wtime() < deadline;)
        if (MPI_Testall(MAX_NOTES, s->sending, &all, statuses) != MPI_SUCCESS)
            break;
    return 0;
}

static int plugin_next_note(void *context, uni__carrier_note *note, int *got, char *why)
{
    state *s = context;
    MPI_Status status;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTE, s->notes, got, &status);
    sent_note came;
    if (code == MPI_SUCCESS && *got)
        code = MPI_Recv(came.bytes, note_bytes(s), MPI_BYTE, status.MPI_SOURCE, TAG_NOTE, s->notes,
                        MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        return fail(code, "a note could not be received", why);
    if (*got) {
        uni__seal_place where = { .comm = s->id, .from = status.MPI_SOURCE, .to = s->rank };
        if (s->seal &&
            s->seal->open(s->seal->context, &where, came.bytes, came.bytes, sizeof *note) != 0)
            return say_forged(status.MPI_SOURCE, why);
        memcpy(note, came.bytes, sizeof *note);
        note->rank = status.MPI_SOURCE;
        note->text[sizeof note->text - 1] = 0;
    }
    return 0;
}

static void plugin_close(void *context, int proper)
{
    state *s = context;
    if (!proper)
        return; /* MPI may still write into it */
    /* Cancel notes that no rank received, or MPI_Finalize would wait for them. */
    for (int i = 0; i < MAX_NOTES; i++)
        if (s->sending[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&s->sending[i]);
            MPI_Request_free(&s->sending[i]);
        }
    MPI_Comm_free(&s->data);
    MPI_Comm_free(&s->notes);
    MPI_Comm_free(&s->checks);
    if (s->initialised_here)
        MPI_Finalize();
    uni__wire_free(&s->wire);
    free(s->sent_to);
    free(s->got_from);
    free(s);
}

static void plugin_abandon(void)
{
    abandoned = 1;
}

static void plugin_finish(void)
{
    int finalised = 0;
    if (!initialised_here || abandoned)
        return;
    MPI_Finalized(&finalised);
    if (!finalised)
        MPI_Finalize();
}

__attribute__((visibility("default"))) const uni__carrier *uni__mpi_plugin_get(void);

const uni__carrier *uni__mpi_plugin_get(void)
{
    static const uni__carrier plugin = {
        .version = UNI__CARRIER_VERSION,
        .family = FAMILY,
        .open = plugin_open,
        .protect = plugin_protect,
        .meet = plugin_meet,
        .split = plugin_split,
        .start = plugin_start,
        .test = plugin_test,
        .progress = plugin_progress,
        .send_notes = plugin_send_notes,
        .next_note = plugin_next_note,
        .close = plugin_close,
        .abandon = plugin_abandon,
        .finish = plugin_finish,
    };
    return &plugin;
}
