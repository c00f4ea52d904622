/*
 * page.h - the memory that a worker shares with its controller: one header page and a ring of
 * frames.
 *
 * It is a memfd, made by the controller for every worker it spawns and passed by descriptor;
 * nothing in the file system names it. The worker is the only writer of the ring, the controller
 * the only reader, so both ends are lock-free: `head` counts the bytes written, `tail` the bytes
 * read. A frame is 8 bytes of header and its payload, padded to 8, never split over the ring's end
 * (a skip frame fills the rest). What does not fit one frame goes as several, all but the last with
 * the MORE flag. What a killed worker had published stays readable: nothing that report() accepted
 * is lost.
 *
 * Waking: the reader sets `reader_waits` before it sleeps and looks once more; the writer that
 * finds it set clears it and writes to the group's eventfd. So a busy controller costs the worker
 * no system call. The other way (ring full, lockstep, stop_at, room for a checkpoint) the worker
 * sleeps on a futex in the page.
 *
 * Frame header, little-endian: u32 payload size, u8 type, u8 flags, u16 zero. Everything read from
 * here by the controller is checked against the ring's bounds: a worker may scribble over its own
 * memory.
 */
#ifndef UNISONO_GROUP_PAGE_H
#define UNISONO_GROUP_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#include "base/futex.h"

#define UNI__PAGE_MAGIC 0x31494e55u /* "UNI1" */
#define UNI__PAGE_VERSION 8u
#define UNI__RING_BYTES (4u << 20)
#define UNI__RING_OFFSET 4096u
#define UNI__PAGE_BYTES (UNI__RING_OFFSET + UNI__RING_BYTES)
#define UNI__FRAME_MAX (1u << 20) /* payload of one frame */

enum { UNI__FRAME_SKIP = 0 };
enum { UNI__FRAME_MORE = 1 };

/* What a worker asks for through its page. */
enum { UNI__STOP_NONE = 0, UNI__STOP_EARLY = 1, UNI__STOP_PREEMPTED = 2 };

/* How soon: at an iteration that all ranks reach, or before it, after a step that is saved. */
enum { UNI__STOPS_AT_ITERATION = 1, UNI__STOPS_AT_STEP = 2 };

/* A worker can continue when another is replaced, can be replaced itself, and can continue with
 * more or fewer of them, but is asked first: it comes when it loses nothing. */
enum { UNI__REPLACES_OTHERS = 1, UNI__IS_REPLACED = 2, UNI__IS_RESIZED = 4, UNI__IS_ASKED = 8 };

/* Ranks of a run whose number of workers changes. */
#define UNI__MOST_MEMBERS 256
typedef struct uni__members {
    uint32_t count; /* 0: all ranks of the run */
    uint64_t ranks[UNI__MOST_MEMBERS / 64]; /* bits */
} uni__members;

typedef struct uni__page {
    uint32_t magic, version;
    _Atomic uint32_t owner; /* pid of the process that claimed the session; 0: none */
    _Atomic uint32_t stop_request; /* UNI__STOP_*, set by the worker */
    _Atomic uint32_t stopping; /* UNI__STOPS_*, set by the controller: wait for stop_at */
    _Atomic uint32_t stop_at_known; /* futex; stop_at is valid */
    _Atomic int64_t stop_at; /* the iteration at which all ranks stop */
    _Atomic uint32_t stop_seen; /* the train function was told to stop */
    _Atomic uint32_t loaded; /* the train function loaded a checkpoint in this attempt */
    _Atomic uint32_t no_steps; /* by the worker: it reports, and nothing saves between reports */
    _Atomic uint32_t released; /* futex; lockstep: iterations the driver consumed (low 32 bits) */
    _Atomic uint32_t checkpoints_taken; /* by the worker */
    _Atomic uint32_t
        checkpoints_done; /* futex; by the controller: its bytes are in the staging directory */
    _Atomic uint32_t
        checkpoints_over; /* futex; by the controller: those that are complete, or never will be */
    _Atomic uint32_t slot_free[2]; /* futex; the snapshot buffer may be written again */
    _Atomic uint32_t alarm; /* not 0: the attempt is over; alarm_reason says why */
    _Atomic uint32_t suspect; /* a rank + 1 that is stopped or silent; 0: none */
    char alarm_reason[256]; /* written before alarm is set */
    _Atomic uint64_t waited_ns; /* time report() waited for room, lockstep or checkpoints */
    /* Ranks that are replaced while the others keep training (train/replace.c). */
    _Atomic uint32_t group; /* futex; number of the present group, set by the controller */
    _Atomic uint32_t replaceable; /* by the worker: UNI__REPLACES_OTHERS, UNI__IS_REPLACED */
    _Atomic uint32_t asked; /* by the controller: ranks wait until the worker awaits this group */
    _Atomic uint32_t fixed; /* by the worker: UNI__FIXED_* (train/shared.h) */
    _Atomic uint32_t joined; /* by the worker: it has once said UNI__REPLACES_OTHERS */
    _Atomic uint32_t awaits; /* by the worker: it waits for a group of this number; 0: none */
    _Atomic uint32_t ending; /* by the worker: it ends its fit in the group of this number */
    _Atomic uint32_t closed; /* futex; by the controller: no group follows this one in the fit */
    /* Of the present group and of the one before, by the last bit of their number. */
    uni__members members[2];
    _Atomic uint32_t leave; /* by the controller: the worker leaves before its next step */
    _Atomic uint32_t left; /* by the worker: it has left, and touches no memory of the group */

    _Alignas(64) _Atomic uint64_t heartbeat; /* counts up about four times a second */
    _Atomic int64_t iteration; /* the last one that report() began */
    _Alignas(64) _Atomic uint64_t head; /* written by the worker */
    _Atomic uint32_t reader_waits;
    _Alignas(64) _Atomic uint64_t tail; /* written by the controller */
    _Atomic uint32_t writer_waits;
    _Atomic uint32_t tail_futex; /* counts every advance of tail that a writer may wait for */
} uni__page;

_Static_assert(sizeof(uni__page) <= UNI__RING_OFFSET, "the header fits its page");

/* Controller: a fresh page; *fd is the memfd to pass on. */
int uni__page_new(uni__page **out, int *fd, uni_error *err) UNI_MUST_USE;
/* Worker: maps a page from its descriptor. */
int uni__page_map(uni__page **out, int fd, uni_error *err) UNI_MUST_USE;
void uni__page_unmap(uni__page *page);
/* Controller: a warm worker begins its next order like a new one. It is idle, so that only we write
 * the page. NULL is allowed. */
void uni__page_refresh(uni__page *page);

/* Controller, words that the worker may wait for; a page that is NULL is allowed. Its checkpoint's
 * bytes are ours (slot -1: a directory); it is complete, or never will be; the driver has taken
 * that iteration; all ranks stop at that one. */
void uni__page_give_back(uni__page *page, int slot);
void uni__page_checkpoint_over(uni__page *page);
void uni__page_release(uni__page *page, int64_t iteration);
void uni__page_stop(uni__page *page, int64_t iteration);
/* These ranks are the group from now on; members NULL: all of them. */
void uni__page_regroup(uni__page *page, uint32_t group, const uni__members *members);
/* The group of this number ends its fit. */
void uni__page_close(uni__page *page, uint32_t group);
/* Worker: the members of group *number, the present one. */
void uni__page_members(const uni__page *page, uint32_t *number, uni__members *out);

static inline bool uni__members_has(const uni__members *members, int rank)
{
    return members->count == 0 || ((members->ranks[rank / 64] >> (rank % 64)) & 1);
}

/* Worker. Reserve room for one frame's payload (size <= UNI__FRAME_MAX): the place to write it, or
 * NULL when the ring is full now. Commit publishes it (type must not be SKIP) with the size that
 * was really used; returns true when the reader waits and must be woken through the eventfd. */
void *uni__ring_reserve(uni__page *page, size_t size);
bool uni__ring_commit(uni__page *page, void *payload, size_t size, int type, int flags);

/* Controller. The next frame: 1 and its payload inside the ring, 0 when there is none, UNI_EFORMAT
 * when the worker damaged the ring. uni__ring_pop gives the space back. */
int uni__ring_peek(uni__page *page, const uint8_t **payload, size_t *size, int *type, int *flags,
                   uni_error *err) UNI_MUST_USE;
void uni__ring_pop(uni__page *page);
bool uni__ring_is_empty(uni__page *page);

#endif
