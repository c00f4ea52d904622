/*
 * board.c - the shared board: starting a collective, its phases, and aborting. board.h describes
 * the protocol, board_layout.c the memory layout.
 *
 * Called on the rank's thread, except uni__board_abort.
 */
#include "comm/board.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/algorithm.h"
#include "comm/futex.h"
#include "comm/kinds.h"

#define PHASE_BITS 24
#define FLAGS_AND_AREA 0xffff0000ff000000ull

/* --- starting --- */

/* Reads what all members have finished. Needed only when the arrivals did not carry enough. */
static void refresh_finished(uni__lane *lane, int *slowest)
{
    uint64_t lowest = UINT64_MAX;
    for (int m = 0; m < lane->members; m++) {
        uint64_t finished = atomic_load(&uni__lane_progress(lane, m)->finished);
        finished = finished ? finished : 1; /* has not started anything */
        if (finished < lowest) {
            lowest = finished;
            *slowest = m;
        }
    }
    lane->all_finished = lowest;
}

static bool area_is_free(const uni__area *area)
{
    return !area->lane || area->seq < area->lane->all_finished;
}

/* Takes the lowest free area, so that the same few stay in the caches; -1 when none is free.
 * Collectives leave some to sends, which a peer may need before it enters the collective. */
static int take_area(uni__board *board, const uni__lane *lane, int *slowest)
{
    int most = lane->first_rank < 0 ? UNI__AREAS - UNI__PAIR_AREAS : UNI__AREAS;
    for (int look = 0; look < 2; look++) {
        int limit = look == 0 ? 3 : most;
        for (int i = 0; i < limit; i++)
            if (area_is_free(&board->areas[i]))
                return i;
        for (int i = 0; i < UNI__AREAS; i++)
            if (!area_is_free(&board->areas[i]))
                refresh_finished(board->areas[i].lane, slowest);
    }
    return -1;
}

static uni__lane *lane_of(uni_comm *comm, const uni__call *call)
{
    uni__board *board = comm->board;
    size_t size = (size_t)comm->size;
    if (call->kind == UNI__KIND_SEND)
        return &board->pairs[(size_t)comm->rank * size + (size_t)call->root];
    if (call->kind == UNI__KIND_RECV)
        return &board->pairs[(size_t)call->root * size + (size_t)comm->rank];
    return &board->lane;
}

/* Can the peers see the parts of my buffers that they need? */
static bool locate_buffers(uni_comm_request *request, uni__slot *slot)
{
    uni_comm *comm = request->comm;
    const uni__call *call = &request->call;
    size_t bytes = uni__call_bytes(call), whole = bytes * uni__call_segments(call, comm->size);
    bool in = true, out = true;
    bool gives = !(call->kind == UNI__KIND_RECV ||
                   (call->kind == UNI__KIND_BROADCAST && call->root != comm->rank));
    uint64_t in_at = gives ? uni__board_locate(comm, call->in, whole, &in) : 0, out_at = 0;
    if (call->kind == UNI__KIND_ALL_REDUCE || call->kind == UNI__KIND_SHOW)
        out_at = uni__board_locate(comm, call->out, bytes, &out);
    atomic_store_explicit(&slot->in, in_at, memory_order_relaxed);
    atomic_store_explicit(&slot->out, out_at, memory_order_relaxed);
    return in && out;
}

static uint64_t what_of(const uni_comm_request *request, bool visible)
{
    const uni__call *call = &request->call;
    bool pair = request->lane->first_rank >= 0;
    int kind = pair ? UNI__KIND_SEND : call->kind;
    int root = pair ? request->lane->first_rank : call->root;
    int flags = visible ? UNI__FLAG_VISIBLE : UNI__FLAG_STAGED;
    return (uint64_t)kind | (uint64_t)call->dtype << 8 | (uint64_t)call->op << 16 |
           (uint64_t)flags << 24 | (uint64_t)root << 32 | (uint64_t)request->area << 48;
}

/* Publishes the core this rank runs on. A rank that always arrives last never waits, so it would
 * share a lower rank's core forever. It steps aside here. */
static void tell_core(uni_comm *comm)
{
    uni__rank_line *ranks = comm->board->header->ranks;
    int cpu = sched_getcpu();
    if (atomic_load_explicit(&ranks[comm->rank].cpu, memory_order_relaxed) != cpu)
        atomic_store_explicit(&ranks[comm->rank].cpu, cpu, memory_order_relaxed);
    for (int r = 0; r < comm->rank && comm->board->spin_ns > 0; r++)
        if (atomic_load_explicit(&ranks[r].cpu, memory_order_relaxed) == cpu) {
            uni__board_step_aside(comm, cpu);
            return;
        }
}

int uni__board_start(uni_comm_request *request, bool *again, uni_error *err)
{
    uni_comm *comm = request->comm;
    UNI_TRY(uni__board_aborted(comm, err));
    uni__board *board = comm->board;
    uni__lane *lane = lane_of(comm, &request->call);
    request->lane = lane;
    uint64_t seq = lane->next;
    if (seq - lane->all_finished >= (uint64_t)lane->slots)
        refresh_finished(lane, &request->next_member);
    request->phase = 0;
    bool gives = request->call.kind != UNI__KIND_RECV;
    *again = seq - lane->all_finished >= (uint64_t)lane->slots ||
             (gives && (request->area = take_area(board, lane, &request->next_member)) < 0);
    if (*again)
        return 0;
    lane->next++;
    if (gives)
        board->areas[request->area] = (uni__area){ lane, seq };
    request->seq = request->number = seq;
    request->algorithm =
        uni__table_choose(request->call.kind, uni__call_bytes(&request->call), comm->size);
    request->stage = request->next_member = 0;
    request->window = request->phase_index = 0;
    request->late_rank = -1;
    request->total_weight = 0;
    request->direct = false;

    uni__slot *slot = uni__lane_slot(lane, lane->mine, seq);
    bool visible = locate_buffers(request, slot) && !request->algorithm->copy_first;
    double weight = request->call.weight;
    uint64_t bits;
    memcpy(&bits, &weight, sizeof bits);
    atomic_store_explicit(&slot->what, what_of(request, visible), memory_order_relaxed);
    atomic_store_explicit(&slot->count, request->call.count, memory_order_relaxed);
    atomic_store_explicit(&slot->arrive_ns, request->begun_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->weight, bits, memory_order_relaxed);
    atomic_store_explicit(&slot->finished, lane->finished, memory_order_relaxed);
    atomic_store_explicit(&uni__lane_progress(lane, lane->mine)->started, seq,
                          memory_order_relaxed);
    if (!visible && request->algorithm->fill) {
        request->algorithm->fill(request, 0);
        uni__board_publish(request, UNI__PHASE_ARRIVED + 1);
    } else {
        uni__board_publish(request, UNI__PHASE_ARRIVED);
    }
    tell_core(comm);
    return 0;
}

/* --- phases --- */

static uint64_t goal(uint64_t seq, uint64_t phase)
{
    return seq << PHASE_BITS | phase;
}

void uni__board_publish(uni_comm_request *request, uint64_t phase)
{
    uni__slot *slot = uni__lane_slot(request->lane, request->lane->mine, request->seq);
    uint64_t before =
        atomic_exchange_explicit(&slot->word, goal(request->seq, phase) << 1, memory_order_acq_rel);
    if (before & 1)
        uni__futex_wake(uni__low_half(&slot->word));
}

/* All members have arrived: notes the last one, their weights, and what they have finished. */
static int note_arrival(uni_comm_request *request, uni_error *err)
{
    uni__lane *lane = request->lane;
    uint64_t last = 0, before_last = 0, finished = lane->finished;
    bool visible = true;
    for (int m = 0; m < lane->members; m++) {
        if (m != lane->mine)
            UNI_TRY(uni__board_compare(request, m, err));
        uni__slot *slot = uni__lane_slot(lane, m, request->seq);
        uint64_t at = atomic_load_explicit(&slot->arrive_ns, memory_order_relaxed);
        uint64_t theirs = atomic_load_explicit(&slot->finished, memory_order_relaxed);
        uint64_t bits = atomic_load_explicit(&slot->weight, memory_order_relaxed);
        uint64_t what = atomic_load_explicit(&slot->what, memory_order_relaxed);
        double weight;
        memcpy(&weight, &bits, sizeof weight);
        request->total_weight += weight;
        finished = theirs < finished ? theirs : finished;
        visible = visible && (what >> 24 & UNI__FLAG_VISIBLE);
        if (at > last) {
            before_last = last;
            last = at;
            request->late_rank = uni__lane_rank(lane, m);
        } else if (at > before_last) {
            before_last = at;
        }
    }
    if (finished > lane->all_finished)
        lane->all_finished = finished;
    request->direct = visible;
    request->arrived_ns = last;
    request->late_ns = before_last ? last - before_last : 0;
    return 0;
}

int uni__board_reached(uni_comm_request *request, uint64_t phase, uni_error *err)
{
    uni__lane *lane = request->lane;
    if (request->phase != phase) {
        request->phase = phase;
        request->next_member = 0;
    }
    uint64_t target = goal(request->seq, phase);
    for (int m = request->next_member; m < lane->members; m++) {
        if (m != lane->mine && atomic_load_explicit(&uni__lane_slot(lane, m, request->seq)->word,
                                                    memory_order_acquire) >>
                                   1 < target) {
            request->next_member = m;
            return 0;
        }
    }
    request->next_member = lane->members;
    if (request->arrived_ns == 0)
        UNI_TRY(note_arrival(request, err));
    return 1;
}

static void finish(uni_comm_request *request);

/* Every member compares itself with all others. When two differ, every member differs from at least
 * one of them. All detect the mismatch on their own, without a message. The request ends here, and
 * the lane continues with the next number. */
int uni__board_compare(uni_comm_request *request, int member, uni_error *err)
{
    uni__lane *lane = request->lane;
    uni__slot *theirs = uni__lane_slot(lane, member, request->seq);
    uni__slot *mine = uni__lane_slot(lane, lane->mine, request->seq);
    uint64_t word = atomic_load_explicit(&theirs->word, memory_order_acquire);
    if (word >> 1 < goal(request->seq, UNI__PHASE_ARRIVED))
        return 0;
    uint64_t what[2] = { atomic_load_explicit(&mine->what, memory_order_relaxed),
                         atomic_load_explicit(&theirs->what, memory_order_relaxed) };
    uint64_t count = atomic_load_explicit(&theirs->count, memory_order_relaxed);
    if (((what[0] ^ what[1]) & ~FLAGS_AND_AREA) == 0 && count == request->call.count)
        return 0;
    char ours[96], other[96];
    uni__describe_what(what[0], request->call.count, ours, sizeof ours);
    uni__describe_what(what[1], count, other, sizeof other);
    request->own_failure = true;
    finish(request);
    return uni_error_set(
        err, UNI_EMISMATCH,
        "%s #%llu: the ranks do not call the same: rank %d calls %s, rank %d calls %s",
        uni__kind_name(request->call.kind), (unsigned long long)request->number,
        uni__lane_rank(lane, lane->mine), ours, uni__lane_rank(lane, member), other);
}

static void finish(uni_comm_request *request)
{
    uni_comm *comm = request->comm;
    uni__lane *lane = request->lane;
    uint64_t lowest = lane->next;
    for (const uni_comm_request *other = comm->started.first; other; other = other->next)
        if (other != request && other->lane == lane) {
            lowest = other->seq; /* started requests are ordered by number */
            break;
        }
    lane->finished = lowest;
    atomic_store_explicit(&uni__lane_progress(lane, lane->mine)->finished, lowest,
                          memory_order_release);
}

int uni__board_step(uni_comm_request *request, uni_error *err)
{
    int status = request->algorithm->step(request, err);
    if (status == 1)
        finish(request);
    return status;
}

/* --- aborting --- */

void uni__board_abort(uni_comm *comm, int code, const char *text)
{
    uni__board_header *header = comm->board->header;
    uint32_t none = UNI__ABORT_NONE;
    if (!atomic_compare_exchange_strong(&header->abort_state, &none, UNI__ABORT_BEGUN))
        return;
    header->abort_code = code;
    snprintf(header->abort_text, sizeof header->abort_text, "%s", text);
    atomic_store_explicit(&header->abort_state, UNI__ABORT_READY, memory_order_release);
}

int uni__board_aborted(uni_comm *comm, uni_error *err)
{
    uni__board_header *header = comm->board->header;
    const _Atomic uint32_t *word = comm->peers.abort_word;
    if (word && atomic_load_explicit(word, memory_order_relaxed) != 0) {
        char why[256] = "the group is being ended";
        if (comm->peers.vtable->abort_reason)
            comm->peers.vtable->abort_reason(comm->peers.context, why, sizeof why);
        uni__board_abort(comm, UNI_ECANCELED, why);
    }
    uint32_t state = atomic_load_explicit(&header->abort_state, memory_order_acquire);
    if (state == UNI__ABORT_NONE)
        return 0;
    /* The aborting rank needs a moment to write its text. If it died there, continue without. */
    for (int i = 0; i < 100 && state != UNI__ABORT_READY; i++) {
        usleep(1000);
        state = atomic_load_explicit(&header->abort_state, memory_order_acquire);
    }
    if (state != UNI__ABORT_READY)
        return uni_error_set(err, UNI_EPEER,
                             "another rank aborted the communicator and died before it said why");
    return uni_error_set(err, header->abort_code, "%.*s", UNI__ABORT_TEXT, header->abort_text);
}

int uni__board_fail(uni_comm_request *request, int code, uni_error *err, const char *format, ...)
{
    uni_comm *comm = request->comm;
    uni__text text = { 0 };
    char reason[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    uni__text_add_format(&text, "%s #%llu: %s. ", uni__kind_name(request->call.kind),
                         (unsigned long long)request->number, reason);
    uni__board_doing(comm, &text);
    uni__board_abort(comm, code, text.data ? text.data : reason);
    uni__text_free(&text);
    return uni__board_aborted(comm, err);
}
