/* crew_internal.h - the insides of a crew, shared by crew.c (the owner's thread) and crew_events.c
 * (the controller's). Only for this module. */
#ifndef UNISONO_TRAIN_CREW_INTERNAL_H
#define UNISONO_TRAIN_CREW_INTERNAL_H

#include "train/crew.h"
#include "train/trainer_internal.h"

/* What a member works on. The life of its process is the group's (group/worker.h). */
typedef struct uni__member {
    bool busy; /* it has an order that has not ended */
    uint64_t serial;
    int64_t iteration; /* of a program that writes lines */
    uint64_t kill_ns; /* when it is killed for not ending; 0: never */
    char *log;
    uni__state_log state_log; /* the last entry is its state */
    bool hands_in; /* a checkpoint came, and its report has not */
    char broken[256]; /* why it was killed, when we did it */
} uni__member;

struct uni__crew {
    uni_trainer *trainer; /* options, environment, host; never run */
    uni__group *group;
    int size;
    uni__member *members; /* controller thread, but for the log */
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
    bool stop, fresh, over;
} uni__crew_request;

extern const uni__group_events uni__crew_group_events;
void uni__crew_start(void *request); /* posted; they free the request */
void uni__crew_let_go(void *request);
void uni__crew_give_back(void *request);
void uni__crew_request_free(uni__crew_request *request);
void uni__crew_tell(uni__crew *crew, uni__crew_event *event); /* takes it; any thread */
/* environment of a member's process: the usual one of a world of one, with the devices of that
 * member. */
uni_value *uni__crew_environment(uni__crew *crew, int member, const uni__crew_order *order);

#endif
