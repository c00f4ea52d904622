/*
 * board.h - the memory that the ranks of one host share: their state, and staging for their data.
 *
 * It is one mapping: a header (abort word, one line per rank with its pid), lanes, staging areas. A
 * lane is the sequence of collectives of its members. Lane 0 contains all ranks, and each ordered
 * pair of ranks has a lane for send and recv. In a lane every member has one cache line with its
 * progress, and a ring of SLOTS lines, one for each collective under way. A slot is one cache line
 * and holds the whole protocol:
 *
 *   word      (seq << 25) | (phase << 1) | a peer sleeps on it. It only grows, so "has rank p
 *             reached phase x of collective s" is one comparison that stays true, whatever p does
 *             next.
 *   what      kind, dtype, op, flags, root, staging area: every member compares it with its own
 *   count, in, out, arrive_ns, weight, finished
 *
 * Phase 1 is arrival (the line is filled in); the algorithm defines all later phases. A slot is
 * reused SLOTS collectives later, once all members have finished the old one. Each member publishes
 * its lowest unfinished number with every arrival, so no member has to ask. The same rule frees
 * staging areas.
 *
 * A waiting rank spins for a while, but only when the ranks fit the cores. Then it sets the lowest
 * bit of the word and sleeps on it (futex). The writer swaps the word and wakes the sleepers if the
 * bit was set. No rank sleeps longer than 20 ms without checking the abort words and the peer.
 *
 * Another process may write to this memory at any time, so locations are checked against the
 * segment before they become pointers.
 */
#ifndef UNISONO_COMM_BOARD_H
#define UNISONO_COMM_BOARD_H

#include <stdatomic.h>
#include "comm/internal.h"

#define UNI__BOARD_MAGIC 0x31425942u
#define UNI__BOARD_VERSION 2u
#define UNI__SLOTS 16 /* slots of lane 0 */
#define UNI__PAIR_SLOTS 4
#define UNI__AREAS 16 /* staging areas per rank */
#define UNI__PAIR_AREAS 2 /* of these, reserved for sends */
/* Data goes through staging in windows. 1 MiB exceeds a core's second-level cache. By the time a
 * peer reads a window, it has been written back to the shared cache. Reading it from there is three
 * times faster than from another core's cache (docs/collectives.md). */
#define UNI__WINDOW_BYTES (1024u * 1024u)
#define UNI__HALF_BYTES UNI__WINDOW_BYTES /* an area has two halves */
#define UNI__ABORT_TEXT 900

enum { UNI__FLAG_VISIBLE = 1, UNI__FLAG_STAGED = 2 };
enum { UNI__RANK_ABSENT = 0, UNI__RANK_OPEN = 1, UNI__RANK_CLOSED = 2 };
enum { UNI__ABORT_NONE = 0, UNI__ABORT_BEGUN = 1, UNI__ABORT_READY = 2 };
#define UNI__PHASE_ARRIVED 1u

typedef struct uni__slot {
    _Alignas(64) _Atomic uint64_t word;
    /* From the lowest bit: kind, dtype, op, flags (8 bits each), root, area (16 bits each). */
    _Atomic uint64_t what;
    _Atomic uint64_t count;
    _Atomic uint64_t in, out; /* locations, see uni__board_locate */
    _Atomic uint64_t arrive_ns;
    _Atomic uint64_t weight; /* bits of a double */
    /* All of this member's numbers below this one are done. */
    _Atomic uint64_t finished;
} uni__slot;
_Static_assert(sizeof(uni__slot) == 64, "a slot is one cache line");

/* A member's progress in a lane; its slots follow. */
typedef struct uni__progress {
    /* The lowest number that is not done. */
    _Alignas(64) _Atomic uint64_t finished;
    _Atomic uint64_t started; /* highest number started */
} uni__progress;

typedef struct uni__rank_line {
    _Alignas(64) _Atomic uint32_t state;
    _Atomic uint32_t pid;
    /* Of the process, from /proc; 0 when it cannot be read. */
    _Atomic uint64_t start_time;
    /* The core it was on when it last entered a collective. */
    _Atomic int32_t cpu;
    /* While the rank sleeps: the peer it waits for and why, see wait.c. Otherwise 0. */
    _Atomic uint64_t waits;
} uni__rank_line;

typedef struct uni__board_header {
    uint32_t magic, version, size, zero;
    _Alignas(64) _Atomic uint32_t abort_state;
    int32_t abort_code;
    char abort_text[UNI__ABORT_TEXT];
    _Alignas(64) uni__rank_line ranks[];
} uni__board_header;

/* This rank's view of a lane. */
typedef struct uni__lane {
    int members, mine; /* member count, my index */
    int first_rank, second_rank; /* of a pair; -1 in lane 0 */
    int slots;
    uint64_t next; /* the next number */
    uint64_t finished; /* lowest of mine that is not done */
    /* The lowest unfinished number of any member, as far as this rank knows. */
    uint64_t all_finished;
    char *memory;
} uni__lane;

typedef struct uni__area {
    /* The lane and number of the collective that used it last; NULL: never used. */
    uni__lane *lane;
    uint64_t seq;
} uni__area;

typedef struct uni__board {
    uni__board_header *header;
    size_t bytes;
    uni__lane lane; /* of all ranks */
    /* [from * size + to]; pairs of two other ranks are unused. */
    uni__lane *pairs;
    uni__area areas[UNI__AREAS];
    uint64_t spin_ns;
    /* When this rank last changed its core, see wait.c. */
    uint64_t moved_ns;
    /* By rank; 0: not seen stopped. */
    uint64_t *frozen_since;
    /* thread transport: the last rank frees the board through it. */
    void *keeper;
} uni__board;

size_t uni__board_bytes(int size);
/* `memory` is zeroed and shared by all ranks. Only the first rank formats it, before the others see
 * it. */
void uni__board_format(void *memory, int size);
int uni__board_attach(uni_comm *comm, void *memory, size_t bytes, uni_error *err) UNI_MUST_USE;
void uni__board_detach(uni_comm *comm); /* does not unmap */

/* Transport functions that thread and shm share. */
int uni__board_start(uni_comm_request *request, bool *again, uni_error *err);
int uni__board_step(uni_comm_request *request, uni_error *err);
int uni__board_pause(uni_comm_request *request, uint64_t limit_ns, uni_error *err);
int uni__board_glance(uni_comm_request *request, uni_error *err);
/* Moves this rank off core `cpu`, which a lower rank uses, if it may run on another core. At most
 * once per millisecond. */
void uni__board_step_aside(uni_comm *comm, int cpu);
/* The first abort counts. */
void uni__board_abort(uni_comm *comm, int code, const char *text);
/* Negative when any rank has aborted. */
int uni__board_aborted(uni_comm *comm, uni_error *err);

/* For algorithms. */
int uni__lane_rank(const uni__lane *lane, int member);
uni__slot *uni__lane_slot(const uni__lane *lane, int member, uint64_t seq);
uni__progress *uni__lane_progress(const uni__lane *lane, int member);
/* Works for any pair, including two other ranks; member 0 is `from`. */
uni__progress *uni__pair_progress(const uni_comm *comm, int from, int to, int member);
/* Publishes that this rank has reached the phase, and wakes peers that wait for it. */
void uni__board_publish(uni_comm_request *request, uint64_t phase);
/* Have all members reached the phase? Remembers the member to wait for. The first time (arrival) it
 * compares the members' calls, negative when they disagree, and notes the latest rank. */
int uni__board_reached(uni_comm_request *request, uint64_t phase, uni_error *err);
/* The request's staging half of a member, which may be this rank. */
char *uni__board_half(const uni_comm_request *request, int member, size_t window);
/* Encodes this rank's own memory for its peers. *visible is false, and the result 0, for memory
 * that is not shared. */
uint64_t uni__board_locate(uni_comm *comm, const void *data, size_t bytes, bool *visible);
/* A member's buffers as pointers in this process; NULL when not in shared memory, or damaged. */
void *uni__board_in(const uni_comm_request *request, int member, size_t bytes);
void *uni__board_out(const uni_comm_request *request, int member, size_t bytes);

/* Compares the call of a member that has arrived with mine. Negative when they differ: the request
 * has failed on all members, each of which detects it alone. The communicator stays usable. */
int uni__board_compare(uni_comm_request *request, int member, uni_error *err);
/* Aborts with a message: the collective, the reason, and what each rank was doing. Returns the code
 * that counts, which is another rank's if that rank aborted first. */
int uni__board_fail(uni_comm_request *request, int code, uni_error *err, const char *format, ...)
    UNI_PRINTF(4, 5);

/* doing.c: describes what each rank does. */
void uni__board_doing(uni_comm *comm, uni__text *text);
void uni__describe_what(uint64_t what, uint64_t count, char *out, size_t size);

/* peer.c: 0 when the rank's process is alive, 1 when not; `why` gets the reason. */
int uni__peer_check(uni_comm *comm, int rank, char *why, size_t size);
/* The part of it that costs a few loads: the rendezvous says that the peer is gone. */
bool uni__peer_is_blamed(const uni_comm *comm, int rank, char *why, size_t size);

#endif
