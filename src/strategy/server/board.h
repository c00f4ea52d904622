/*
 * board.h - the memory that all members of a parameter-server run on one host have in common: one memfd, made by the coordinator and handed to every member
 * that says hello, also to one that was restarted. It outlives every member but the coordinator.
 *
 *     header        sizes, mode, learning rate, how many phases are done
 *     members       one cache line a rank: a bell to wait on, and in which life the member is
 *     links         one a pair (coordinator and workers to servers, workers to coordinator): header, question, answer
 *     replicas      one a server: two snapshots of the shard, a log of the gradients since, and which pushes were applied (store.c)
 *
 * Over hosts the board is private, and what others must know goes over the links (carrier.h).
 *
 * Bells: who changes something for a member rings its bell; the member looks, and sleeps (futex) when there is nothing. All words are atomic.
 */
#ifndef UNISONO_STRATEGY_SERVER_BOARD_H
#define UNISONO_STRATEGY_SERVER_BOARD_H

#include <stdatomic.h>
#include <unisono/status.h>
#include <unisono/tensor.h>

#include "strategy/server/link.h"

#define UNI__BOARD_MAGIC 0x31535055u /* "UPS1" */
#define UNI__BOARD_VERSION 2u
#define UNI__PS_WINDOW 4096u /* calls of step functions that may be on their way */
#define UNI__PS_MAX_SUMS 256 /* doubles that a step reports */
#define UNI__PS_VALUE_MAX (4u << 20) /* bytes of a step function's arguments or result */

typedef struct uni__server_board_shape {
    uint32_t workers, servers, mode, staleness, replica, log_length, num_slots, whole_parameters;
    uint64_t num_weights, num_states, seed; /* seed: of the coordinator's model */
    char optimizer[32];
} uni__server_board_shape;

typedef struct uni__server_board_member {
    _Alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t sleeps;
    _Atomic uint32_t epoch; /* 0: not here yet; counts its lives */
    _Atomic uint32_t left; /* how many phases this life has ended */
    _Atomic uint32_t restores; /* of a server: how often its shard came back from the replica */
} uni__server_board_member;

typedef struct uni__server_board_header {
    uint32_t magic, version;
    uint64_t size;
    uni__server_board_shape shape;
    _Atomic uint32_t phases_done; /* fit calls and coordinators that are over */
    _Atomic uint32_t rate_known; /* the learning rate was set from outside */
    _Atomic uint64_t rate; /* bits of the double */
    uni__server_board_member members[]; /* 1 + workers + servers */
} uni__server_board_header;

/* A push that was applied: which call, and how many of its pushes. */
typedef struct uni__applied {
    uint64_t call; /* id + 1; 0: free */
    uint64_t pushes;
} uni__applied;

typedef struct uni__replica_entry {
    _Atomic uint64_t version; /* that the shard has after it; 0: being written */
    uint64_t id, number;
    double rate, samples;
    uint64_t has_states;
} uni__replica_entry;

typedef struct uni__replica_snapshot {
    _Atomic uint64_t complete; /* version + 1; 0: being written */
    int64_t iterations;
} uni__replica_snapshot;

/* A sum of batch statistics that is known (server 0, synchronous): for the parts that have not heard it when the server dies. */
typedef struct uni__replica_sum {
    _Atomic uint64_t step; /* + 1; 0: not known */
    uint64_t offset, count; /* floats */
} uni__replica_sum;

#define UNI__REPLICA_LOG_MAX 8
#define UNI__REPLICA_SUMS 256 /* a step may have so many */
typedef struct uni__replica {
    _Atomic uint32_t ready; /* the coordinator has put the first state here */
    uni__replica_snapshot snapshots[2];
    uni__replica_entry entries[UNI__REPLICA_LOG_MAX];
    uni__applied applied[UNI__PS_WINDOW];
    /* Sums of the parts of the last step (synchronous), for workers that come late: [parts][MAX_SUMS] and their step + 1. */
    _Atomic uint64_t sums_step;
    /* Of this step and of the one before, by the parity of the step. */
    uni__replica_sum statistics[2][UNI__REPLICA_SUMS];
    _Alignas(64) float data[]; /* snapshots, then entries, then doubles */
} uni__replica;

typedef struct uni__server_board {
    uni__server_board_header *header;
    size_t size;
    int fd; /* coordinator: to hand out; -1 otherwise */
    int rank, spins; /* spins: how often to look before sleeping */
    struct uni__carrier
        *carrier; /* over hosts: the memory is this member's own, and links are carried */
    uni_span *spans; /* of each server in the flat weights */
} uni__server_board;

int uni__server_board_new(uni__server_board *board, const uni__server_board_shape *shape,
                          const uni_span *spans, uni_error *err) UNI_MUST_USE;
/* Over hosts: memory of this member alone, in the same layout. carrier is borrowed. */
int uni__server_board_new_private(uni__server_board *board, const uni__server_board_shape *shape,
                                  const uni_span *spans, int rank, struct uni__carrier *carrier,
                                  uni_error *err) UNI_MUST_USE;
int uni__server_board_map(uni__server_board *board, int fd, int rank, uni_error *err) UNI_MUST_USE;
void uni__server_board_close(uni__server_board *board);

/* The link of asker (0: the coordinator, or a worker's rank) to a server, or of a worker to the coordinator (server -1). */
uni__server_link uni__server_board_link(const uni__server_board *board, int asker, int server);
uni__replica *uni__server_board_replica(const uni__server_board *board, int server);
/* floats of one snapshot part (weights or one slot; the states come last), and where an entry's gradient and the parts' sums lie. */
float *uni__replica_snapshot_data(const uni__server_board *board, int server, int which,
                                  size_t slot);
float *uni__replica_snapshot_states(const uni__server_board *board, int server, int which);
float *uni__replica_entry_data(const uni__server_board *board, int server, int which);
float *uni__replica_entry_states(const uni__server_board *board, int server, int which);
float *uni__replica_statistics(const uni__server_board *board, uint64_t parity, size_t *capacity);
double *uni__replica_sums(const uni__server_board *board, int server, int part);
size_t uni__server_board_states_of(const uni__server_board *board,
                                   int server); /* server 0 has them all */

uint32_t uni__bell_look(const uni__server_board *board); /* before looking at anything else */
void uni__bell_wait(const uni__server_board *board, uint32_t seen, int timeout_ms);
void uni__bell_ring(const uni__server_board *board, int rank);

#endif
