/*
 * board.h - the memory that all members of a parameter-server run on one host share: one memfd. The
 * coordinator creates it and hands it to every member that says hello, including restarted ones. It
 * outlives every member but the coordinator.
 *
 *     header        sizes, mode, learning rate, number of finished phases
 *     members       one cache line per rank: a bell to wait on, and the member's incarnation
 *     links         one per pair (coordinator and workers to servers, workers to coordinator):
 *                   header, question, answer
 *     replicas      one per server: two snapshots of the shard, a log of the gradients since, and
 *                   which pushes were applied (store.c)
 *
 * Over hosts the board is private, and the links carry what the others must know (carrier.h).
 *
 * Bells: a member that changes something for another rings its bell. The other looks, and sleeps
 * (futex) when there is nothing to do. All words are atomic.
 */
#ifndef UNISONO_STRATEGY_SERVER_BOARD_H
#define UNISONO_STRATEGY_SERVER_BOARD_H

#include <stdatomic.h>
#include <unisono/status.h>
#include <unisono/tensor.h>

#include "tensor/shared.h"
#include "strategy/server/link.h"

#define UNI__BOARD_MAGIC 0x31535055u /* "UPS1" */
#define UNI__BOARD_VERSION 2u
/* Calls of step functions that may be under way. */
#define UNI__PS_WINDOW 4096u
#define UNI__PS_MAX_SUMS 256 /* doubles that a step reports */
/* Bytes of a step function's arguments or result. */
#define UNI__PS_VALUE_MAX (4u << 20)

typedef struct uni__server_board_shape {
    uint32_t workers, servers, mode, staleness, replica, log_length, num_slots, whole_parameters;
    /* seed: of the coordinator's model. */
    uint64_t num_weights, num_states, seed;
    char optimizer[32];
} uni__server_board_shape;

typedef struct uni__server_board_member {
    _Alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t sleeps;
    /* 0: has not joined; otherwise its incarnation. */
    _Atomic uint32_t epoch;
    _Atomic uint32_t left; /* phases that this incarnation has ended */
    /* Of a server: how often its shard was restored from the replica. */
    _Atomic uint32_t restores;
} uni__server_board_member;

typedef struct uni__server_board_header {
    uint32_t magic, version;
    uint64_t size;
    uni__server_board_shape shape;
    /* Number of fit calls and coordinators that have ended. */
    _Atomic uint32_t phases_done;
    _Atomic uint32_t rate_known; /* the learning rate was set explicitly */
    _Atomic uint64_t rate; /* bits of the double */
    uni__server_board_member members[]; /* 1 + workers + servers */
} uni__server_board_header;

/* A call whose pushes were applied, and how many of them. */
typedef struct uni__applied {
    uint64_t call; /* id + 1; 0: free */
    uint64_t pushes;
} uni__applied;

typedef struct uni__replica_entry {
    /* Version of the shard after it; 0: being written. */
    _Atomic uint64_t version;
    uint64_t id, number;
    double rate, samples;
    uint64_t has_states;
} uni__replica_entry;

typedef struct uni__replica_snapshot {
    _Atomic uint64_t complete; /* version + 1; 0: being written */
    int64_t iterations;
} uni__replica_snapshot;

/* A completed sum of batch statistics (server 0, synchronous), for the parts that have not received
 * it when the server dies. */
typedef struct uni__replica_sum {
    _Atomic uint64_t step; /* step + 1; 0: not known */
    uint64_t offset, count; /* floats */
} uni__replica_sum;

/* What server 0 knows about a worker.
 *
 * The sums are what its last call reported with its push. A worker that takes over a dead worker's
 * call reports these numbers. Computed again, with the updated weights, they would differ. */
typedef struct uni__replica_worker {
    /* Version of the weights that it read for a step, + 1; 0: none. */
    _Atomic uint64_t ticket;
    uint64_t ticket_epoch; /* incarnation of the holder */
    _Atomic uint64_t call; /* id + 1; 0: being written */
    double sums[UNI__PS_MAX_SUMS];
} uni__replica_worker;

#define UNI__REPLICA_LOG_MAX 8
#define UNI__REPLICA_SUMS 256 /* at most this many per step */
typedef struct uni__replica {
    /* The coordinator has stored the initial state here. */
    _Atomic uint32_t ready;
    uni__replica_snapshot snapshots[2];
    uni__replica_entry entries[UNI__REPLICA_LOG_MAX];
    uni__applied applied[UNI__PS_WINDOW];
    /* Of this step and of the previous one, by the parity of the step. */
    uni__replica_sum statistics[2][UNI__REPLICA_SUMS];
    _Alignas(64) float data[]; /* snapshots, then entries, then workers */
} uni__replica;

typedef struct uni__server_board {
    uni__server_board_header *header;
    size_t size;
    int fd; /* coordinator: to hand out; -1 otherwise */
    int rank;
    bool spins; /* looks for a moment before it sleeps */
    struct uni__carrier
        *carrier; /* over hosts: the memory is this member's own, and links are carried */
    uni__span *spans; /* of each server in the flat weights */
} uni__server_board;

int uni__server_board_new(uni__server_board *board, const uni__server_board_shape *shape,
                          const uni__span *spans, uni_error *err) UNI_MUST_USE;
/* Over hosts: memory of this member alone, in the same layout. carrier is borrowed. */
int uni__server_board_new_private(uni__server_board *board, const uni__server_board_shape *shape,
                                  const uni__span *spans, int rank, struct uni__carrier *carrier,
                                  uni_error *err) UNI_MUST_USE;
int uni__server_board_map(uni__server_board *board, int fd, int rank, uni_error *err) UNI_MUST_USE;
void uni__server_board_close(uni__server_board *board);

/* The link of `asker` (0: the coordinator, or a worker's rank) to a server, or of a worker to the
 * coordinator (server -1). */
uni__server_link uni__server_board_link(const uni__server_board *board, int asker, int server);
uni__replica *uni__server_board_replica(const uni__server_board *board, int server);
/* The data of a snapshot (weights or one slot; the states come last), of an entry's gradient, and
 * of what is known of the workers. */
float *uni__replica_snapshot_data(const uni__server_board *board, int server, int which,
                                  size_t slot);
float *uni__replica_snapshot_states(const uni__server_board *board, int server, int which);
float *uni__replica_entry_data(const uni__server_board *board, int server, int which);
float *uni__replica_entry_states(const uni__server_board *board, int server, int which);
float *uni__replica_statistics(const uni__server_board *board, uint64_t parity, size_t *capacity);
uni__replica_worker *uni__replica_worker_of(const uni__server_board *board, int worker);
/* Server 0 has all states. */
size_t uni__server_board_states_of(const uni__server_board *board, int server);

/* Call this before looking at anything else. */
uint32_t uni__bell_look(const uni__server_board *board);
void uni__bell_wait(const uni__server_board *board, uint32_t seen, int timeout_ms);
void uni__bell_ring(const uni__server_board *board, int rank);

#endif
