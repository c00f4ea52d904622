/*
 * board.h - the memory that the ranks of one host share: who is where, and staging for their data.
 *
 * One mapping: a header (abort word, one line a rank with its pid), lanes, staging areas. A lane is the
 * sequence of collectives of its members: lane 0 has all ranks, and each ordered pair of ranks has one
 * for send and recv. In a lane every member has one cache line with what it finished, and a ring of
 * SLOTS lines, one for each collective under way. A slot is one cache line and the whole protocol:
 *
 *   word      (seq << 25) | (phase << 1) | somebody sleeps on it. It only grows, so "has rank p reached
 *             phase x of collective s" is one comparison that stays true, whatever p does next.
 *   what      kind, dtype, op, flags, root, staging area: compared by every member with its own
 *   count, in, out, arrive_ns, weight, finished
 *
 * Phase 1 is arrival (the line is filled in); what more phases mean is the algorithm's business. A slot is
 * used again SLOTS collectives later, when all members have finished the old one; each tells the lowest
 * number it has not finished with every arrival, so nobody asks. The same rule frees staging areas.
 *
 * Who waits spins for a while (only when the ranks fit the cores), then sets the lowest bit of the word and
 * sleeps on it (futex); the writer swaps the word and wakes when the bit was set. Nobody sleeps longer than
 * 20 ms without a look at the abort words and at the peer.
 *
 * Everything read from here may be written by another process at any time: locations are checked
 * against the segment before they become pointers.
 */
#ifndef UNISONO_COMM_BOARD_H
#define UNISONO_COMM_BOARD_H

#include <stdatomic.h>
#include "comm/internal.h"

#define UNI__BOARD_MAGIC 0x31425942u
#define UNI__BOARD_VERSION 2u
#define UNI__SLOTS 16 /* of lane 0 */
#define UNI__PAIR_SLOTS 4
#define UNI__AREAS 16 /* staging areas a rank */
#define UNI__PAIR_AREAS 2 /* of them, never used by collectives */
/* Data goes through staging by windows. 1 MiB is more than a core's second-level cache: what is read has been written
 * back to the shared one by then, and fetching it there is three times faster than out of another core's cache
 * (docs/collectives.md). */
#define UNI__WINDOW_BYTES (1024u * 1024u)
#define UNI__HALF_BYTES UNI__WINDOW_BYTES /* an area has two halves */
#define UNI__ABORT_TEXT 900

enum { UNI__FLAG_VISIBLE = 1, UNI__FLAG_STAGED = 2 };
enum { UNI__RANK_ABSENT = 0, UNI__RANK_OPEN = 1, UNI__RANK_CLOSED = 2 };
enum { UNI__ABORT_NONE = 0, UNI__ABORT_BEGUN = 1, UNI__ABORT_READY = 2 };
#define UNI__PHASE_ARRIVED 1u

typedef struct uni__slot {
    _Alignas(64) _Atomic uint64_t word;
    _Atomic uint64_t what; /* kind, dtype, op, flags: 8 bits each from the lowest; root, area: 16 */
    _Atomic uint64_t count;
    _Atomic uint64_t in, out; /* locations, see uni__board_locate */
    _Atomic uint64_t arrive_ns;
    _Atomic uint64_t weight; /* bits of a double */
    _Atomic uint64_t finished; /* all of this member's numbers below this one are done */
} uni__slot;
_Static_assert(sizeof(uni__slot) == 64, "a slot is one cache line");

/* A member's progress in a lane; its slots follow. */
typedef struct uni__progress {
    _Alignas(64) _Atomic uint64_t finished; /* the lowest number that is not done */
    _Atomic uint64_t started; /* the highest number that was begun */
} uni__progress;

typedef struct uni__rank_line {
    _Alignas(64) _Atomic uint32_t state;
    _Atomic uint32_t pid;
    _Atomic uint64_t start_time; /* of the process, from /proc; 0 where it cannot be read */
    _Atomic int32_t cpu; /* where it ran when it last came to a collective */
    _Atomic uint64_t waits; /* while it sleeps: whom for and why, see wait.c; 0: it does not */
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
    int members, mine; /* how many, which one I am */
    int first_rank, second_rank; /* of a pair; lane 0: -1 */
    int slots;
    uint64_t next; /* the next number */
    uint64_t finished; /* the lowest of mine that is not done */
    uint64_t all_finished; /* the lowest of all members', as far as is known */
    char *memory;
} uni__lane;

typedef struct uni__area {
    uni__lane *lane; /* the collective that used it last; NULL: never used */
    uint64_t seq;
} uni__area;

typedef struct uni__board {
    uni__board_header *header;
    size_t bytes;
    uni__lane lane; /* of all ranks */
    uni__lane *pairs; /* [from * size + to]; those of others are unused */
    uni__area areas[UNI__AREAS];
    uint64_t spin_ns;
    uint64_t moved_ns; /* when this rank last stepped aside, see wait.c */
    uint64_t *frozen_since; /* by rank; 0: was not seen stopped */
    void *keeper; /* thread: frees the board with the last rank */
} uni__board;

size_t uni__board_bytes(int size);
/* memory: zero, shared by all ranks. Only the first rank formats it, before the others see it. */
void uni__board_format(void *memory, int size);
int uni__board_attach(uni_comm *comm, void *memory, size_t bytes, uni_error *err) UNI_MUST_USE;
void uni__board_detach(uni_comm *comm); /* does not unmap */

/* Transport functions that thread and shm share. */
int uni__board_start(uni_comm_request *request, bool *again, uni_error *err);
int uni__board_step(uni_comm_request *request, uni_error *err);
int uni__board_pause(uni_comm_request *request, uint64_t limit_ns, uni_error *err);
int uni__board_glance(uni_comm_request *request, uni_error *err);
/* Off the core `cpu`, which a lower rank has, when there is another one for us; not more than once a millisecond. */
void uni__board_step_aside(uni_comm *comm, int cpu);
void uni__board_abort(uni_comm *comm, int code, const char *text); /* the first one counts */
/* Negative when somebody has aborted. */
int uni__board_aborted(uni_comm *comm, uni_error *err);

/* For algorithms. */
int uni__lane_rank(const uni__lane *lane, int member);
uni__slot *uni__lane_slot(const uni__lane *lane, int member, uint64_t seq);
uni__progress *uni__lane_progress(const uni__lane *lane, int member);
/* Of any pair, also of two others; member 0 is `from`. */
uni__progress *uni__pair_progress(const uni_comm *comm, int from, int to, int member);
/* My phase is reached: peers that wait for it go on. */
void uni__board_publish(uni_comm_request *request, uint64_t phase);
/* Have all members reached it? Remembers whom to wait for. The first time (arrival) it compares what the
 * members do and notes who was late: negative when they disagree. */
int uni__board_reached(uni_comm_request *request, uint64_t phase, uni_error *err);
/* The staging half of a member for the request, and my own. */
char *uni__board_half(const uni_comm_request *request, int member, size_t window);
/* Where a rank's own memory is for the others; 0, and not visible: not in shared memory. */
uint64_t uni__board_locate(uni_comm *comm, const void *data, size_t bytes, bool *visible);
/* A member's buffers as pointers here; NULL when they are not in shared memory or damaged. */
void *uni__board_in(const uni_comm_request *request, int member, size_t bytes);
void *uni__board_out(const uni_comm_request *request, int member, size_t bytes);

/* Compares what a member that has come does with what I do. Negative: they disagree, and the request has failed for all
 * members, each of which finds it by itself; the communicator goes on. */
int uni__board_compare(uni_comm_request *request, int member, uni_error *err);
/* Aborts with a sentence: the collective, the reason, and what each rank was doing. Returns the code that
 * counts (somebody else's abort may have been first). */
int uni__board_fail(uni_comm_request *request, int code, uni_error *err, const char *format, ...)
    UNI_PRINTF(4, 5);

/* doing.c: what each rank does, as text. */
void uni__board_doing(uni_comm *comm, uni__text *text);
void uni__describe_what(uint64_t what, uint64_t count, char *out, size_t size);

/* peer.c: is the rank's process alive? 0 yes, 1 not (why says it). */
int uni__peer_check(uni_comm *comm, int rank, char *why, size_t size);

#endif
