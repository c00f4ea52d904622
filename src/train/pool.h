/*
 * pool.h - single workers that run one order after another, each on its own: what the tuner's trials run in.
 *
 * A pool is a worker group whose restart unit is the member. A member is a process that waits for functions (uni_main, the Python door) and is kept from
 * one order to the next; one that dies costs its own restart and nobody else's. A program of its own gets a new process for every order. Each
 * order is a world of one: rank 0 of 1, with its own directory, config and checkpoint to start from; the train function sees an ordinary session.
 *
 * Threads: the controller thread (group/group.h) is inside. Everything here is called by one thread, the owner's, which takes what happened with
 * uni__pool_next; uni__pool_wake may be called from any. Orders have serials, so that what an earlier order of a member still said is told apart.
 */
#ifndef UNISONO_TRAIN_POOL_H
#define UNISONO_TRAIN_POOL_H

#include <unisono/trainer.h>

typedef struct uni__pool uni__pool;

typedef struct uni__pool_order {
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
    bool lockstep; /* report() returns after uni__pool_release */
} uni__pool_order;

typedef enum uni__pool_kind {
    UNI__POOL_REPORT,
    UNI__POOL_CHECKPOINT,
    UNI__POOL_ENDED,
    UNI__POOL_SIGNAL /* SIGINT or SIGTERM came */
} uni__pool_kind;

typedef enum uni__pool_end {
    UNI__POOL_RETURNED, /* the function returned, the program exited with 0 */
    UNI__POOL_FAILED, /* the function gave an error */
    UNI__POOL_DIED, /* the process is gone; the next order starts a new one */
    UNI__POOL_NOT_STARTED
} uni__pool_end;

/* Memory that a worker wrote a dictionary checkpoint into; shared by what still reads it. */
typedef struct uni__pool_snapshot uni__pool_snapshot;

typedef struct uni__pool_event {
    struct uni__pool_event *next;
    uni__pool_kind kind;
    int member;
    uint64_t serial, life; /* life: which process of that member */
    int64_t iteration;
    uint8_t *metrics; /* msgpack; of a report */
    size_t metrics_size;
    /* of a checkpoint: it precedes the report of its iteration, unless it stands alone */
    bool alone;
    char *path; /* a directory; or a dictionary: */
    int slot;
    uni__pool_snapshot *snapshot;
    const void *memory;
    size_t size;
    /* of an end */
    uni__pool_end end;
    int error_code, pid, exit_code, signal;
    char *message; /* a sentence; NULL when it returned */
} uni__pool_event;

/* options: as for uni_trainer_new, num_workers is the number of members. No process is started yet. logs: a directory for the members' logs. */
int uni__pool_new(uni__pool **out, const uni_trainer_options *options, const char *logs,
                  uni_error *err) UNI_MUST_USE;
/* Ends what still runs. */
void uni__pool_free(uni__pool *pool);
int uni__pool_size(const uni__pool *pool);
/* logs/member_N.log; borrowed. */
const char *uni__pool_log(const uni__pool *pool, int member);

/* The member must have nothing to do. Whatever goes wrong from here on is told by an event with that serial. */
int uni__pool_run(uni__pool *pool, int member, const uni__pool_order *order, uint64_t *serial,
                  uni_error *err) UNI_MUST_USE;
/* Lockstep: that report was taken, go on; with `stop` the report returns UNI_ECANCELED, and a member that does not end its order within grace seconds is
 * killed. Without a report waiting, stop reaches the next one (a program gets SIGTERM). */
void uni__pool_release(uni__pool *pool, int member, uint64_t serial, int64_t iteration, bool stop);
void uni__pool_kill(uni__pool *pool, int member, uint64_t serial);
/* The checkpoint's bytes are ours now: the worker may use its buffer again and remove its directory. Frees what the event held of it. */
void uni__pool_taken(uni__pool *pool, uni__pool_event *checkpoint);

/* 1 and *out (free it with uni__pool_event_free), 0 after `seconds` or a wake. */
int uni__pool_next(uni__pool *pool, double seconds, uni__pool_event **out);
void uni__pool_event_free(uni__pool_event *event);
void uni__pool_wake(uni__pool *pool); /* any thread */
/* The pid that runs the member's present order, 0 when there is none yet. Any thread. */
int uni__pool_pid(const uni__pool *pool, int member);

#endif
