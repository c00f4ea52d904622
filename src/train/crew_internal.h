/* crew_internal.h - the insides of a crew, shared by crew.c (the owner's thread) and crew_events.c (the controller's). Only for this module. */
#ifndef UNISONO_TRAIN_CREW_INTERNAL_H
#define UNISONO_TRAIN_CREW_INTERNAL_H

#include <stdatomic.h>

#include "train/crew.h"
#include "train/trainer_internal.h"

struct uni__crew_snapshot {
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
    uni__crew_snapshot *snapshots[UNI__SNAPSHOT_SLOTS];
    char broken[256]; /* why it was killed, when we did it */
} uni__member;

struct uni__crew {
    uni_trainer *trainer; /* options, environment, host; never run */
    uni__group *group;
    int size;
    uni__member *members; /* controller thread, but for log and pid */
    uint64_t next_serial; /* owner's thread */
    pthread_mutex_t lock;
    pthread_cond_t more;
    uni__crew_event *first, *last; /* with lock */
    bool woken;
};

/* An order on its way to the controller thread. */
typedef struct uni__crew_request {
    uni__crew *crew;
    int member;
    uint64_t serial, life;
    void *order; /* msgpack for the worker */
    size_t order_size;
    char *exe; /* of a program */
    uni_value *argv, *environment;
    char *log;
    int64_t iteration;
    int slot;
    bool stop, fresh;
} uni__crew_request;

extern const uni__group_events uni__crew_group_events;
void uni__crew_start(void *request); /* posted; they free the request */
void uni__crew_let_go(void *request);
void uni__crew_give_back(void *request);
void uni__crew_count_over(void *request);
void uni__crew_request_free(uni__crew_request *request);
void uni__crew_snapshot_drop(uni__crew_snapshot *snapshot);
void uni__crew_tell(uni__crew *crew, uni__crew_event *event); /* takes it; any thread */
/* environment of a member's process: the usual one of a world of one, with the devices of that member. */
uni_value *uni__crew_environment(uni__crew *crew, int member, const uni__crew_order *order);

#endif
