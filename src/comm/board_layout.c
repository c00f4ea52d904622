/*
 * board_layout.c - the memory of the shared board: its layout, attaching to it, and locating
 * another rank's data. board.h describes the protocol.
 *
 * Called on the rank's thread.
 */
#include "comm/board.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/process.h"
#include "base/spin.h"

#define PAGE 4096u

static size_t lane_bytes(int members, int slots)
{
    return (size_t)members * (sizeof(uni__progress) + (size_t)slots * sizeof(uni__slot));
}

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static size_t lanes_offset(int size)
{
    return pages(sizeof(uni__board_header) + (size_t)size * sizeof(uni__rank_line));
}

static size_t areas_offset(int size)
{
    return lanes_offset(size) + pages(lane_bytes(size, UNI__SLOTS) +
                                      (size_t)size * (size_t)size * lane_bytes(2, UNI__PAIR_SLOTS));
}

size_t uni__board_bytes(int size)
{
    return areas_offset(size) + (size_t)size * UNI__AREAS * 2 * UNI__HALF_BYTES;
}

void uni__board_format(void *memory, int size)
{
    uni__board_header *header = memory;
    header->version = UNI__BOARD_VERSION;
    header->size = (uint32_t)size;
    header->magic = UNI__BOARD_MAGIC;
}

static void set_lane(uni__lane *lane, char *memory, int members, int mine, int slots)
{
    *lane = (uni__lane){ .members = members,
                         .mine = mine,
                         .first_rank = -1,
                         .second_rank = -1,
                         .slots = slots,
                         .next = 1,
                         .finished = 1,
                         .all_finished = 1,
                         .memory = memory };
}

static int set_pairs(uni__board *board, char *memory, int rank, int size)
{
    board->pairs = calloc((size_t)size * (size_t)size, sizeof *board->pairs);
    board->frozen_since = calloc((size_t)size, sizeof *board->frozen_since);
    if (!board->pairs || !board->frozen_since)
        return UNI_ENOMEM;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++) {
            if (from == to || (from != rank && to != rank))
                continue;
            size_t index = (size_t)from * (size_t)size + (size_t)to;
            uni__lane *lane = &board->pairs[index];
            set_lane(lane, memory + index * lane_bytes(2, UNI__PAIR_SLOTS), 2, to == rank,
                     UNI__PAIR_SLOTS);
            lane->first_rank = from;
            lane->second_rank = to;
        }
    return 0;
}

/* Spinning helps only when every rank has its own core. */
static uint64_t choose_spin(const uni_comm *comm)
{
    int cores = comm->options.cores;
    cpu_set_t set;
    if (cores <= 0)
        cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (comm->options.spin_us < 0)
        return 0;
    if (comm->options.spin_us > 0)
        return (uint64_t)comm->options.spin_us * 1000;
    return comm->size <= cores ? UNI__SPIN_NS : 0;
}

int uni__board_attach(uni_comm *comm, void *memory, size_t bytes, uni_error *err)
{
    uni__board_header *header = memory;
    if (bytes < uni__board_bytes(comm->size) || header->magic != UNI__BOARD_MAGIC ||
        header->version != UNI__BOARD_VERSION || header->size != (uint32_t)comm->size)
        return uni_error_set(err, UNI_EVERSION,
                             "rank %d got shared memory that is not this communicator's: all "
                             "ranks must use the same release of unisono",
                             comm->rank);
    uni__board *board = calloc(1, sizeof *board);
    if (!board)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    comm->board = board;
    board->header = header;
    board->bytes = bytes;
    char *lanes = (char *)memory + lanes_offset(comm->size);
    set_lane(&board->lane, lanes, comm->size, comm->rank, UNI__SLOTS);
    if (set_pairs(board, lanes + lane_bytes(comm->size, UNI__SLOTS), comm->rank, comm->size) < 0)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a communicator of %d ranks",
                             comm->size);
    board->spin_ns = choose_spin(comm);
    uni__process self;
    (void)uni__process_look(getpid(), &self); /* on failure 0: peers cannot read it either */
    uni__rank_line *line = &header->ranks[comm->rank];
    atomic_store(&line->pid, (uint32_t)getpid());
    atomic_store(&line->start_time, self.start_time);
    atomic_store(&line->state, UNI__RANK_OPEN);
    return 0;
}

void uni__board_detach(uni_comm *comm)
{
    uni__board *board = comm->board;
    if (!board)
        return;
    atomic_store(&board->header->ranks[comm->rank].state, UNI__RANK_CLOSED);
    free(board->pairs);
    free(board->frozen_since);
    free(board);
    comm->board = NULL;
}

int uni__lane_rank(const uni__lane *lane, int member)
{
    return lane->first_rank < 0 ? member : member == 0 ? lane->first_rank : lane->second_rank;
}

static char *member_memory(const uni__lane *lane, int member)
{
    return lane->memory + (size_t)member * lane_bytes(1, lane->slots);
}

uni__progress *uni__lane_progress(const uni__lane *lane, int member)
{
    return (uni__progress *)member_memory(lane, member);
}

uni__progress *uni__pair_progress(const uni_comm *comm, int from, int to, int member)
{
    size_t index = (size_t)from * (size_t)comm->size + (size_t)to;
    uni__lane lane = { .slots = UNI__PAIR_SLOTS };
    lane.memory = comm->board->lane.memory + lane_bytes(comm->size, UNI__SLOTS) +
                  index * lane_bytes(2, UNI__PAIR_SLOTS);
    return uni__lane_progress(&lane, member);
}

uni__slot *uni__lane_slot(const uni__lane *lane, int member, uint64_t seq)
{
    return (uni__slot *)(member_memory(lane, member) + sizeof(uni__progress)) +
           seq % (uint64_t)lane->slots;
}

/* --- locations: a pointer (thread), or segment + 1 in the high 16 bits and the offset in that
 * rank's part below (shm) --- */

uint64_t uni__board_locate(uni_comm *comm, const void *data, size_t bytes, bool *visible)
{
    if (bytes == 0 || comm->peers.vtable == NULL || comm->peers.vtable->pass == NULL) {
        *visible = true; /* one process: pointers are valid on all ranks */
        return (uint64_t)(uintptr_t)data;
    }
    for (int i = 0; i < UNI__COMM_SEGMENTS; i++) {
        const uni_comm_buffer *segment = comm->segments[i];
        if (!segment)
            continue;
        const char *base = segment->base + (size_t)comm->rank * segment->stride, *at = data;
        if (at >= base && bytes <= segment->bytes &&
            (size_t)(at - base) <= segment->bytes - bytes) {
            *visible = true;
            return (uint64_t)(i + 1) << 48 | (uint64_t)(at - base);
        }
    }
    *visible = false;
    return 0;
}

static void *resolve(const uni_comm_request *request, int member, uint64_t location, size_t bytes)
{
    uni_comm *comm = request->comm;
    if (comm->peers.vtable == NULL || comm->peers.vtable->pass == NULL)
        return (void *)(uintptr_t)location;
    uint64_t index = location >> 48, offset = location & 0xffffffffffffull;
    if (index == 0 || index > UNI__COMM_SEGMENTS || !comm->segments[index - 1])
        return NULL;
    const uni_comm_buffer *segment = comm->segments[index - 1];
    if (bytes > segment->bytes || offset > segment->bytes - bytes)
        return NULL;
    return segment->base + (size_t)uni__lane_rank(request->lane, member) * segment->stride + offset;
}

void *uni__board_in(const uni_comm_request *request, int member, size_t bytes)
{
    if (member == request->lane->mine)
        return (void *)(uintptr_t)request->call.in;
    uni__slot *slot = uni__lane_slot(request->lane, member, request->seq);
    return resolve(request, member, atomic_load_explicit(&slot->in, memory_order_relaxed), bytes);
}

void *uni__board_out(const uni_comm_request *request, int member, size_t bytes)
{
    if (member == request->lane->mine)
        return request->call.out;
    uni__slot *slot = uni__lane_slot(request->lane, member, request->seq);
    return resolve(request, member, atomic_load_explicit(&slot->out, memory_order_relaxed), bytes);
}

char *uni__board_half(const uni_comm_request *request, int member, size_t window)
{
    uni__board *board = request->comm->board;
    uint64_t what = atomic_load_explicit(&uni__lane_slot(request->lane, member, request->seq)->what,
                                         memory_order_relaxed);
    size_t rank = (size_t)uni__lane_rank(request->lane, member);
    size_t area = (size_t)(what >> 48) % UNI__AREAS;
    return (char *)board->header + areas_offset(request->comm->size) +
           ((rank * UNI__AREAS + area) * 2 + window % 2) * UNI__HALF_BYTES;
}
