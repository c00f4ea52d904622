/*
 * internal.h - the insides of a group, shared by group.c (thread, timers, posts), links*.c (rings,
 * pipes, agent) and remote*.c. Only for this module.
 */
#ifndef UNISONO_GROUP_INTERNAL_H
#define UNISONO_GROUP_INTERNAL_H

#include <pthread.h>
#include <uv.h>

#include "group/group.h"
#include "group/wire.h"

typedef struct uni__worker_slot {
    uni__group *group;
    int rank;
    uni__worker life;
    uni__page *page;
    uni__wire wire; /* to the worker; fd -1 when there is none */
    int report_fd;
    uv_poll_t *report_poll, *channel_poll;
    char *line;
    size_t line_size;
    bool line_too_long;
    uint8_t *joined; /* parts of a message that came so far */
    size_t joined_size;
    bool broken;
    bool held; /* its ring and its report pipe are not read for now */
    bool was_held, report_waits; /* since the last round; its report pipe is not polled */
} uni__worker_slot;

typedef struct uni__posted {
    struct uni__posted *next;
    void (*function)(void *argument);
    void *argument;
} uni__posted;

struct uni__group {
    uv_loop_t loop;
    uv_async_t async;
    uv_prepare_t prepare;
    uv_timer_t tick, after;
    uv_timer_t deaf; /* runs while the agent owes an answer */
    uv_poll_t *event_poll, *agent_poll, *alive_poll;
    uv_signal_t signals[2];
    bool handles_signals;
    pthread_t thread;
    int num_slots, event_fd, alive_fd, agent_pid, keeper_pid;
    int template_fd; /* the trainer's; -1: none */
    uni__worker_slot *slots;
    struct {
        int pid;
        bool live;
    } launcher; /* mpirun or srun; the agent knows it as rank num_slots */
    struct uni__remote *remote; /* workers on other hosts, or NULL */
    struct uni__link *links; /* link.c: newest first */
    uni__wire agent;
    bool agent_alive, closing;
    uint64_t last_tick_ns, agent_looked_ns, agent_stopped_ns;
    uint64_t agent_owes_ns,
        agent_switches; /* since when it owes an answer; and what it did since */
    void (*after_function)(void *context);
    const uni__group_events *events;
    void *context;
    pthread_mutex_t lock; /* posted list */
    uni__posted *first, *last;
    uint8_t *frame; /* the one of a ring that is being taken */
    size_t frame_capacity;
};

/* An event of the group's owner, if it wants to know. */
#define UNI__TELL(group, event, ...)                                                               \
    do {                                                                                           \
        if ((group)->events->event)                                                                \
            (group)->events->event((group)->context, ##__VA_ARGS__);                               \
    } while (0)

#define UNI__LINKS_SEND_MS 5000

/* links.c, links_agent.c, links_spawn.c */
int uni__links_start_agent(uni__group *group, uni_error *err) UNI_MUST_USE;
int uni__links_start_events(uni__group *group,
                            uni_error *err) UNI_MUST_USE; /* the eventfd that workers ring */
void uni__links_before_sleep(uv_prepare_t *handle);
/* At every tick: a stopped agent is killed after a few seconds. */
void uni__links_watch_agent(uni__group *group, uint64_t now);
void uni__links_take_agent_frames(uni__group *group); /* those that were read already */
/* A signal has stopped it, or it was continued. */
void uni__links_tell_stopped(uni__worker_slot *worker, bool stopped);
void uni__links_hang_up(uni__group *group); /* closes our end of the agent's channel */
/* An agent that has not ended its workers by then is killed, and its keeper woken to end them. */
void uni__links_expect_end(uni__group *group, int milliseconds);
void uni__links_empty_slot(uni__worker_slot *worker);
int uni__links_watch_worker(uni__worker_slot *worker, uni_error *err) UNI_MUST_USE;
/* All that a worker published before its end; its report pipe is closed. */
void uni__links_read_rest(uni__worker_slot *worker);
int uni__links_poll_begin(uv_poll_t **out, uni__group *group, int fd, uv_poll_cb callback,
                          void *data, uni_error *err) UNI_MUST_USE;
void uni__links_poll_end(uv_poll_t **poll);
/* One line of a worker's report pipe (NULL: it was too long), one frame of its channel, and one of
 * its ring; parts are joined. What is legal in the worker's state goes on to the owner. */
void uni__links_take_line(uni__worker_slot *worker, const char *line, size_t size);
void uni__links_take_channel(uni__worker_slot *worker, const uni__wire_frame *frame);
void uni__links_take_frame(uni__worker_slot *worker, const uint8_t *payload, size_t size, int type,
                           int flags);
uni_value *uni__links_spawn_order(const uni__spawn *spawn); /* NULL without memory */
/* A process without a session, below the local agent: the launcher. */
int uni__links_spawn_plain(uni__group *group, const uni__spawn *spawn, uni_error *err) UNI_MUST_USE;
void uni__links_tell_agent(uni__group *group, int type, int rank, int signal);
void uni__links_kill_tree(uni__group *group); /* all below the local agent; ends in all_dead */

/* link.c */
void uni__links_press_proofs(uni__group *group, uint64_t now);
void uni__links_free_poll(uv_handle_t *handle);

#endif
