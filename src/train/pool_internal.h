/* pool_internal.h - the insides of a pool, shared by pool.c (the owner's thread) and pool_events.c (the controller's). Only for this module. */
#ifndef UNISONO_TRAIN_POOL_INTERNAL_H
#define UNISONO_TRAIN_POOL_INTERNAL_H

#include <stdatomic.h>

#include "train/pool.h"
#include "train/trainer_internal.h"

struct uni__pool_snapshot {
    _Atomic int references;
    void *memory;
    size_t size;
};

/* One process, as the controller thread knows it. */
typedef struct uni__member {
    bool live, hello, busy; /* busy: it has an order that has not ended */
    bool is_program;
    uint64_t serial, life;
    int64_t iteration; /* of a program that writes lines */
    uint64_t spawned_ns, stopped_ns,
        kill_ns; /* kill_ns: when it is killed for not ending; 0: never */
    _Atomic int pid;
    char *log;
    uni__pool_snapshot *snapshots[UNI__SNAPSHOT_SLOTS];
    char broken[256]; /* why it was killed, when we did it */
} uni__member;

struct uni__pool {
    uni_trainer *trainer; /* options, environment, host; never run */
    uni__group *group;
    int size;
    uni__member *members; /* controller thread, but for log and pid */
    uint64_t next_serial; /* owner's thread */
    pthread_mutex_t lock;
    pthread_cond_t more;
    uni__pool_event *first, *last; /* with lock */
    bool woken;
};

/* An order on its way to the controller thread. */
typedef struct uni__pool_request {
    uni__pool *pool;
    int member;
    uint64_t serial, life;
    void *order; /* msgpack for the worker */
    size_t order_size;
    char *exe; /* of a program */
    uni_value *argv, *environment;
    char *log;
    int64_t iteration;
    int slot;
    bool stop;
} uni__pool_request;

extern const uni__group_events uni__pool_group_events;
void uni__pool_start(void *request); /* posted; they free the request */
void uni__pool_let_go(void *request);
void uni__pool_end_member(void *request);
void uni__pool_give_back(void *request);
void uni__pool_request_free(uni__pool_request *request);
void uni__pool_snapshot_drop(uni__pool_snapshot *snapshot);
void uni__pool_tell(uni__pool *pool, uni__pool_event *event); /* takes it; any thread */
/* environment of a member's process: the usual one of a world of one, with the devices of that member. */
uni_value *uni__pool_environment(uni__pool *pool, int member, const uni__pool_order *order);

#endif
