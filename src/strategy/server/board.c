/*
 * board.c - layout, mapping and bells of the members' shared memory (board.h).
 */
#include "strategy/server/board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/shared.h"
#include "base/cpus.h"
#include "base/futex.h"
#include "base/spin.h"
#include "strategy/server/carrier.h"
#include "strategy/server/link_shm.h"

#define PAGE ((size_t)4096)

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static size_t span_size(const uni__server_board *board, int server)
{
    return board->spans[server].end - board->spans[server].begin;
}

size_t uni__server_board_states_of(const uni__server_board *board, int server)
{
    return server == 0 ? (size_t)board->header->shape.num_states : 0;
}

/* ---- layout: every part begins on a page boundary ---- */

static size_t header_bytes(const uni__server_board_shape *shape)
{
    size_t ranks = 1 + shape->workers + shape->servers;
    size_t size = sizeof(uni__server_board_header) + ranks * sizeof(uni__server_board_member);
    return round_up(size + shape->servers * sizeof(uni__span), PAGE);
}

static uni__span *spans_in(uni__server_board_header *header)
{
    return (uni__span *)&header->members[1 + header->shape.workers + header->shape.servers];
}

/* The payload of a question to a server or its answer: the shard, the states, the sums. */
static size_t server_payload(const uni__server_board *board, int server)
{
    size_t floats = span_size(board, server) + uni__server_board_states_of(board, server) + 2;
    return round_up(floats * sizeof(float) + UNI__PS_MAX_SUMS * sizeof(double), 64);
}

static size_t link_bytes(size_t payload)
{
    return round_up(UNI__LINK_HEADER + 2 * payload, PAGE);
}

static size_t snapshot_floats(const uni__server_board *board, int server)
{
    size_t each = round_up(span_size(board, server), 16);
    return (1 + (size_t)board->header->shape.num_slots) * each +
           round_up(uni__server_board_states_of(board, server), 16);
}

static size_t entry_floats(const uni__server_board *board, int server)
{
    return round_up(span_size(board, server), 16) +
           round_up(uni__server_board_states_of(board, server), 16);
}

/* Room for the batch statistics of a step: normalization over c channels has 2c states and sums 4c
 * + 2 numbers. */
static size_t statistics_floats(const uni__server_board *board, int server)
{
    size_t states = uni__server_board_states_of(board, server);
    return states > 0 ? round_up(4 * states + 1024, 16) : 0;
}

static size_t replica_bytes(const uni__server_board *board, int server)
{
    const uni__server_board_shape *shape = &board->header->shape;
    size_t floats =
        2 * snapshot_floats(board, server) + shape->log_length * entry_floats(board, server);
    size_t workers = shape->workers * sizeof(uni__replica_worker);
    floats += 2 * statistics_floats(board, server);
    return round_up(sizeof(uni__replica) + floats * sizeof(float) + workers, PAGE);
}

/* Where a link begins: all askers of server 0, of server 1 ..., then the workers' links to the
 * coordinator. */
static size_t link_offset(const uni__server_board *board, int asker, int server)
{
    const uni__server_board_shape *shape = &board->header->shape;
    size_t at = header_bytes(shape);
    for (int s = 0; s < (server < 0 ? (int)shape->servers : server); s++)
        at += (1 + shape->workers) * link_bytes(server_payload(board, s));
    if (server < 0)
        return at + (size_t)(asker - 1) * link_bytes(UNI__PS_VALUE_MAX);
    return at + (size_t)asker * link_bytes(server_payload(board, server));
}

static size_t replica_offset(const uni__server_board *board, int server)
{
    size_t at = link_offset(board, (int)board->header->shape.workers + 1, -1);
    for (int s = 0; s < server; s++)
        at += replica_bytes(board, s);
    return at;
}

/* ---- making and mapping ---- */

/* Spinning pays off only when every member has its own core. */
static bool choose_spins(const uni__server_board_shape *shape)
{
    return (int)(1 + shape->workers + shape->servers) <= uni__cpu_count();
}

/* The layout is computed from a header, so a small temporary one stands in for it. */
static int plan_board(uni__server_board *board, const uni__server_board_shape *shape,
                      const uni__span *spans, uni_error *err)
{
    *board = (uni__server_board){ .fd = -1 };
    uni__server_board_header *plan = calloc(1, header_bytes(shape));
    if (!plan)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a parameter-server strategy");
    *plan = (uni__server_board_header){ .magic = UNI__BOARD_MAGIC, .version = UNI__BOARD_VERSION };
    plan->shape = *shape;
    memcpy(spans_in(plan), spans, shape->servers * sizeof *spans);
    board->header = plan;
    board->spans = spans_in(plan);
    board->size = (size_t)(plan->size = replica_offset(board, (int)shape->servers));
    return 0;
}

/* Copies the plan to its place. fd -1: the memory is private. */
static int settle(uni__server_board *board, int fd, uni_error *err)
{
    uni__server_board_header *plan = board->header;
    size_t size = board->size;
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    int saved = errno;
    if (memory != MAP_FAILED)
        memcpy(memory, plan, header_bytes(&plan->shape));
    free(plan);
    *board = (uni__server_board){ .fd = -1 };
    if (memory == MAP_FAILED)
        return uni_error_set_errno(err, saved, "cannot have %zu MB for the members", size >> 20);
    *board = (uni__server_board){ .header = memory, .size = size, .fd = fd };
    board->spans = spans_in(board->header);
    board->spins = choose_spins(&board->header->shape);
    return 0;
}

int uni__server_board_new(uni__server_board *board, const uni__server_board_shape *shape,
                          const uni__span *spans, uni_error *err)
{
    UNI_TRY(plan_board(board, shape, spans, err));
    int fd = memfd_create("unisono-parameters", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)board->size) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        int saved = errno;
        free(board->header);
        *board = (uni__server_board){ .fd = -1 };
        if (fd >= 0)
            close(fd);
        return uni_error_set_errno(err, saved, "cannot share memory between the members");
    }
    int status = settle(board, fd, err);
    if (status < 0)
        close(fd);
    return status;
}

int uni__server_board_new_private(uni__server_board *board, const uni__server_board_shape *shape,
                                  const uni__span *spans, int rank, uni__carrier *carrier,
                                  uni_error *err)
{
    UNI_TRY(plan_board(board, shape, spans, err));
    UNI_TRY(settle(board, -1, err));
    board->rank = rank;
    board->carrier = carrier;
    for (uint32_t i = 0; i < 1 + shape->workers + shape->servers; i++)
        atomic_store(&board->header->members[i].epoch, 1); /* no member can rejoin */
    return 0;
}

int uni__server_board_map(uni__server_board *board, int fd, int rank, uni_error *err)
{
    struct stat info;
    *board = (uni__server_board){ .fd = -1, .rank = rank };
    if (fstat(fd, &info) < 0 || info.st_size < (off_t)sizeof(uni__server_board_header))
        return uni_error_set(err, UNI_EFORMAT, "the coordinator sent no memory that can be used");
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return uni_error_set_errno(err, errno, "cannot map the memory of the members");
    board->header = memory;
    board->size = (size_t)info.st_size;
    board->spans = spans_in(board->header);
    board->spins = choose_spins(&board->header->shape);
    if (board->header->magic == UNI__BOARD_MAGIC && board->header->version == UNI__BOARD_VERSION &&
        board->header->size == board->size)
        return 0;
    uni__server_board_close(board);
    return uni_error_set(err, UNI_EVERSION,
                         "the coordinator's memory has another layout: all members must run the "
                         "same release of unisono");
}

void uni__server_board_close(uni__server_board *board)
{
    if (board->header)
        munmap(board->header, board->size);
    if (board->fd >= 0)
        close(board->fd);
    *board = (uni__server_board){ .fd = -1 };
}

/* ---- parts ---- */

uni__server_link uni__server_board_link(const uni__server_board *board, int asker, int server)
{
    size_t capacity = server < 0 ? UNI__PS_VALUE_MAX : server_payload(board, server);
    int workers = (int)board->header->shape.workers;
    uni__server_link link = { .class_ =
                                  board->carrier ? &uni__server_link_comm : &uni__server_link_shm,
                              .memory = (char *)board->header + link_offset(board, asker, server),
                              .capacity = capacity,
                              .asker = asker,
                              .answerer = server < 0 ? 0 : 1 + workers + server,
                              .board = (void *)board,
                              .carrier = board->carrier };
    if (board->carrier)
        uni__carrier_add(board->carrier, &link);
    return link;
}

uni__replica *uni__server_board_replica(const uni__server_board *board, int server)
{
    return (uni__replica *)((char *)board->header + replica_offset(board, server));
}

float *uni__replica_snapshot_data(const uni__server_board *board, int server, int which,
                                  size_t slot)
{
    uni__replica *replica = uni__server_board_replica(board, server);
    return replica->data + (size_t)which * snapshot_floats(board, server) +
           slot * round_up(span_size(board, server), 16);
}

float *uni__replica_snapshot_states(const uni__server_board *board, int server, int which)
{
    return uni__replica_snapshot_data(board, server, which,
                                      1 + (size_t)board->header->shape.num_slots);
}

float *uni__replica_entry_data(const uni__server_board *board, int server, int which)
{
    uni__replica *replica = uni__server_board_replica(board, server);
    return replica->data + 2 * snapshot_floats(board, server) +
           (size_t)which * entry_floats(board, server);
}

float *uni__replica_entry_states(const uni__server_board *board, int server, int which)
{
    return uni__replica_entry_data(board, server, which) + round_up(span_size(board, server), 16);
}

uni__replica_worker *uni__replica_worker_of(const uni__server_board *board, int worker)
{
    uint32_t length = board->header->shape.log_length;
    return (uni__replica_worker *)uni__replica_entry_data(board, 0, (int)length) + worker;
}

float *uni__replica_statistics(const uni__server_board *board, uint64_t parity, size_t *capacity)
{
    uni__replica_worker *end = uni__replica_worker_of(board, (int)board->header->shape.workers);
    *capacity = statistics_floats(board, 0);
    return (float *)end + parity * *capacity;
}

/* ---- bells ---- */

static uni__server_board_member *member(const uni__server_board *board, int rank)
{
    return &board->header->members[rank];
}

uint32_t uni__bell_look(const uni__server_board *board)
{
    if (board->carrier)
        return uni__carrier_events(board->carrier);
    return atomic_load(&member(board, board->rank)->bell);
}

void uni__bell_wait(const uni__server_board *board, uint32_t seen, int timeout_ms)
{
    uni__server_board_member *me = member(board, board->rank);
    if (board->carrier) {
        uni__carrier_wait(board->carrier, seen, timeout_ms);
        return;
    }
    uni__spinner spinner = { 0 };
    for (bool spins = board->spins; spins; spins = uni__spin(&spinner))
        if (atomic_load_explicit(&me->bell, memory_order_acquire) != seen)
            return;
    atomic_store(&me->sleeps, 1);
    if (atomic_load(&me->bell) == seen)
        uni__futex_wait(&me->bell, seen, timeout_ms);
    atomic_store(&me->sleeps, 0);
}

void uni__bell_ring(const uni__server_board *board, int rank)
{
    uni__server_board_member *other = member(board, rank);
    if (board->carrier)
        return; /* the carrier polls for messages */
    atomic_fetch_add(&other->bell, 1);
    if (atomic_load(&other->sleeps))
        uni__futex_wake(&other->bell);
}
