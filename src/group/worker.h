/*
 * worker.h - the life of one worker process, as the controller knows it: a state, and what is legal
 * in it. Runs, trials and hosts have the same one.
 *
 * The group has a uni__worker in every slot. It steps it for whatever the process says, is told or
 * does; only what is legal goes on to the group's owner (group.h). The table in worker.c is drawn
 * in docs/architecture.md, "Life of a worker". What a worker says is hostile: an illegal message
 * changes nothing here and is refused with a sentence. [controller]
 */
#ifndef UNISONO_GROUP_WORKER_H
#define UNISONO_GROUP_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "group/protocol.h"
#include "group/region.h"

typedef enum uni__worker_state {
    UNI__WORKER_ENDED, /* there is no process */
    UNI__WORKER_SPAWNED, /* started; nothing heard, and it has no order */
    UNI__WORKER_ORDERED, /* nothing heard, and its order waits for it */
    UNI__WORKER_GREETED, /* waits for an order */
    UNI__WORKER_RUNNING, /* works on its order */
    UNI__WORKER_CLOSING, /* closed its session, or was told to end */
    UNI__WORKER_STATES
} uni__worker_state;

/* Beside what it says in its ring: those inputs have the numbers of uni__from_worker. */
typedef enum uni__worker_input {
    UNI__WORKER_UNKNOWN = 0, /* of a kind that there is not */
    UNI__WORKER_SNAPSHOT = UNI__SAYS_NEWEST + 1,
    UNI__WORKER_MAIL, /* to another rank */
    UNI__WORKER_LINE, /* on its report pipe */
    UNI__WORKER_ORDER, /* sent to it, as is the next one */
    UNI__WORKER_SHUTDOWN,
    UNI__WORKER_EXIT,
    UNI__WORKER_INPUTS
} uni__worker_input;

typedef enum uni__worker_verdict {
    UNI__WORKER_REFUSED, /* illegal */
    UNI__WORKER_DROPPED, /* legal once, and too late now */
    UNI__WORKER_TAKEN
} uni__worker_verdict;

typedef struct uni__worker {
    uni__worker_state state;
    bool is_program; /* of its own; otherwise it runs functions and must say hello */
    bool silent; /* the owner was told that no heartbeat comes */
    int pid; /* 0: not known yet, or no process */
    uint64_t life; /* which process of its slot, from 1 */
    uint64_t spawned_ns, stopped_ns; /* stopped_ns: 0 when no signal has stopped it */
    uint64_t heartbeat, heartbeat_ns; /* heartbeat_ns 0: its session is not claimed yet */
    uni__region *snapshots[UNI__SNAPSHOT_SLOTS];
} uni__worker;

/* A new process in its slot, in place of the one before. */
void uni__worker_spawned(uni__worker *worker, bool is_program, uint64_t now);
/* The process is gone; its snapshots are let go of. */
void uni__worker_ended(uni__worker *worker);

/* Of a message in its ring; the types come from the worker, so any number is possible. */
int uni__worker_input_of(int type);
/* The cell of the table, and the state that it leads to. */
uni__worker_verdict uni__worker_step(uni__worker *worker, int input);
/* Why the step was refused: "it sent a report before its hello". */
void uni__worker_say_refused(const uni__worker *worker, int input, char *out, size_t size);
/* In place of the region that this slot had; the worker takes the reference. */
void uni__worker_take_snapshot(uni__worker *worker, int slot, uni__region *region);

bool uni__worker_is_live(const uni__worker *worker);
/* Its session was opened, whatever became of it. */
bool uni__worker_has_greeted(const uni__worker *worker);
/* It may be told to end without anything being lost. */
bool uni__worker_is_idle(const uni__worker *worker);

/* Compares the heartbeat with the last one. Seconds of silence, when there are enough to speak of;
 * -1 when it is heard again after `silent` was set; otherwise 0. known: the time up to which its
 * heartbeats have reached us. again: older ones prove nothing, count from now. */
double uni__worker_listen(uni__worker *worker, uint64_t beat, uint64_t now, uint64_t known,
                          bool again);

typedef enum uni__worker_trouble {
    UNI__WORKER_WELL,
    UNI__WORKER_NO_HELLO, /* it has not connected in time */
    UNI__WORKER_STOPPED /* by a signal, and nothing continued it */
} uni__worker_trouble;

/* *seconds: for how long. */
uni__worker_trouble uni__worker_look(const uni__worker *worker, uint64_t now, double hello_timeout,
                                     double stopped_timeout, double *seconds);

#endif
