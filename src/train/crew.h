/*
 * crew.h - single workers that run one order after another, each on its own: what the tuner's
 * trials run in.
 *
 * A crew is a worker group whose restart unit is the member. A member is a process that waits for
 * functions (uni_main, the Python door) and is kept from one order to the next; one that dies costs
 * its own restart and no other's. A program of its own gets a new process for every order. Each
 * order is a world of one: rank 0 of 1, with its own directory, config and checkpoint to start
 * from; the train function sees an ordinary session.
 *
 * Threads: the controller thread (group/group.h) is inside. Everything here is called by one
 * thread, the owner's, which takes what happened with uni__crew_next; uni__crew_wake may be called
 * from any. Orders have serials, so that what an earlier order of a member still said is told
 * apart.
 */
#ifndef UNISONO_TRAIN_CREW_H
#define UNISONO_TRAIN_CREW_H

#include <unisono/trainer.h>

#include "group/region.h"

typedef struct uni__crew uni__crew;

typedef struct uni__crew_order {
    const char *function; /* or a program: */
    const uni_value *program; /* argv */
    const uni_value *environment; /* NAME=value for the program, besides the usual; or NULL */
    const uni_value *config;
    const uni_value *attachment; /* or NULL */
    const char *name, *storage; /* of the experiment */
    const char *run_dir, *staging_dir;
    const char *checkpoint; /* to start from; NULL: none */
    const char *log; /* of a program; members that run functions have one log for all orders */
    int64_t iteration; /* reports are counted on from here */
    int attempt;
    bool fresh; /* in a new process, even when a warm one waits */
    bool lockstep; /* report() returns after uni__crew_release */
} uni__crew_order;

typedef enum uni__crew_kind {
    UNI__CREW_REPORT,
    UNI__CREW_CHECKPOINT,
    UNI__CREW_ENDED,
    UNI__CREW_SIGNAL /* SIGINT or SIGTERM came */
} uni__crew_kind;

typedef enum uni__crew_end {
    UNI__CREW_RETURNED, /* the function returned, the program exited with 0 */
    UNI__CREW_FAILED, /* the function gave an error */
    UNI__CREW_DIED, /* the process is gone; the next order starts a new one */
    UNI__CREW_NOT_STARTED
} uni__crew_end;

typedef struct uni__crew_event {
    struct uni__crew_event *next;
    uni__crew_kind kind;
    int member;
    uint64_t serial, life; /* life: which process of that member */
    int64_t iteration;
    uint8_t *metrics; /* msgpack; of a report */
    size_t metrics_size;
    /* of a checkpoint: it precedes the report of its iteration, unless it stands alone */
    bool alone, copy; /* copy: the directory is the user's own and stays where it is */
    /* State at that iteration, packed for the checkpoint (checkpoint/state.h): with the report
     * whose checkpoint has come, or with a checkpoint that is alone. */
    void *state;
    size_t state_size;
    char *path; /* a directory; or a dictionary: */
    char *best; /* a group's end: its best checkpoint, and path its latest */
    int slot;
    uni__region *region;
    size_t size; /* of the dictionary in it */
    /* of an end */
    uni__crew_end end;
    int error_code, pid, exit_code, signal;
    char *message; /* a sentence; NULL when it returned */
    uni_value *failure; /* what the function left when it failed, or NULL */
} uni__crew_event;

/* options: as for uni_trainer_new, num_workers is the number of members. No process is started
 * yet. logs: a directory for the members' logs. */
int uni__crew_new(uni__crew **out, const uni_trainer_options *options, const char *logs,
                  uni_error *err) UNI_MUST_USE;
/* Ends what still runs. */
void uni__crew_free(uni__crew *crew);
/* logs/member_N.log; borrowed. */
const char *uni__crew_log(const uni__crew *crew, int member);

/* The member must have nothing to do. Whatever goes wrong from here on is told by an event with
 * that serial. */
int uni__crew_run(uni__crew *crew, int member, const uni__crew_order *order, uint64_t *serial,
                  uni_error *err) UNI_MUST_USE;
/* Lockstep: that report was taken, go on; with `stop` the report returns UNI_ECANCELED, and a
 * member that does not end its order within grace seconds is killed. Without a report waiting,
 * stop reaches the next one (a program gets SIGTERM). */
void uni__crew_release(uni__crew *crew, int member, uint64_t serial, int64_t iteration, bool stop);
/* The checkpoint's bytes are ours now: the worker may use its buffer again and remove its
 * directory. Frees what the event held of it. */
void uni__crew_taken(uni__crew *crew, uni__crew_event *checkpoint);
/* It is complete, or never will be: a member that waits for it goes on. After taken. */
void uni__crew_over(uni__crew *crew, const uni__crew_event *checkpoint);

/* 1 and *out (free it with uni__crew_event_free), 0 after `seconds` or a wake. */
int uni__crew_next(uni__crew *crew, double seconds, uni__crew_event **out);
void uni__crew_event_free(uni__crew_event *event);
void uni__crew_wake(uni__crew *crew); /* any thread */
/* An event from elsewhere, taken; any thread. */
void uni__crew_inject(uni__crew *crew, uni__crew_event *event);

#endif
