/*
 * group.h - the mechanism of a worker group: an agent, n slots for workers, and the one thread that
 * owns them.
 *
 * The group starts, watches and kills processes and moves frames; what a run is, what counts as a
 * failure and what happens then is the trainer's business (src/train), which gets told through
 * uni__group_events. All callbacks and all functions marked [controller] run on the controller
 * thread, a libuv loop; uni__group_post gets work onto it from anywhere. The user's process is
 * never forked but to exec the agent, its SIGCHLD is never touched, and it has no child processes
 * that its own wait() could meet.
 *
 * A worker's slot is its rank. Its page and ring (page.h) are made anew at each spawn and read to
 * the end before its exit is told, so that nothing a dead worker published is lost.
 */
#ifndef UNISONO_GROUP_GROUP_H
#define UNISONO_GROUP_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/value.h>

#include "group/oom.h"
#include "group/page.h"
#include "group/wire.h"
#include "group/worker.h"

typedef struct uni__group uni__group;

typedef struct uni__exit {
    int pid;
    int exit_code; /* -1 when a signal ended it */
    int signal; /* 0 when it exited by itself */
    bool core;
    uni__oom oom;
} uni__exit;

/* [controller] all of them; NULL: the owner need not know. */
typedef struct uni__group_events {
    void (*spawned)(void *context, int rank, int pid);
    void (*spawn_failed)(void *context, int rank, const char *sentence);
    /* One whole message of the worker (parts joined), in the order of sending, that was legal in
     * its state. `size` 0 is allowed. */
    void (*message)(void *context, int rank, int type, const uint8_t *payload, size_t size);
    /* Mail of the worker to other ranks, on its channel. */
    void (*mail)(void *context, int rank, const uni__wire_frame *frame);
    /* The worker's ring or channel is damaged, or it said what is illegal in its state (worker.h):
     * nothing more is read of it. */
    void (*broken)(void *context, int rank, const char *sentence);
    /* A line on the worker's report pipe, without its newline. */
    void (*line)(void *context, int rank, const char *line, size_t size);
    void (*exited)(void *context, int rank, const uni__exit *exit);
    void (*stopped)(void *context, int rank, bool stopped);
    /* At every tick while no heartbeat comes from a claimed session; once with 0 when they come
     * again. */
    void (*silent)(void *context, int rank, double seconds);
    void (*all_dead)(void *context, int left);
    void (*agent_lost)(void *context);
    void (*drained)(void *context); /* after a round of messages: a good moment to flush */
    void (*tick)(void *context); /* about ten times a second */
    void (*signalled)(
        void *context,
        int signal); /* SIGINT or SIGTERM, when uni__group_handle_signals was called */

    /* With hosts (uni__group_launch). Needed only there. */
    void (*placed)(void *context); /* every rank has a host: spawn them */
    void (*launch_failed)(void *context, const char *sentence);
    void (*host_silent)(void *context, int first_rank, double seconds); /* 0: it is back */
    void (*host_lost)(void *context, int first_rank, const char *sentence);
    /* Of uni__group_launch_more: all its ranks can be spawned; or it did not come. */
    void (*host_joined)(void *context, int first_rank);
    void (*host_missing)(void *context, const char *sentence);
    /* A host that did not answer when an attempt was ended; the attempt's cause may be another
     * one. */
    void (*host_unreachable)(void *context, int first_rank);
    void (*host_signalled)(void *context, int signal); /* a wish to stop that came to a host */
    void (*launcher_lost)(void *context, const char *sentence);
    void (*log)(void *context, int rank, const void *data, size_t size);
    /* A piece of a file of a checkpoint directory; the path was checked. `last` as in
     * uni__remote_file. */
    void (*file)(void *context, int rank, const char *path, uint64_t offset, const void *data,
                 size_t size, int last);
    void (*remark)(void *context,
                   const char *sentence); /* a caller was turned away, and the like */
} uni__group_events;

/* Starts the agent and the controller thread. template_fd: the socket of a template that agents are
 * forked from (launch.h), or -1. */
int uni__group_new(uni__group **out, int num_workers, int template_fd,
                   const uni__group_events *events, void *context, uni_error *err) UNI_MUST_USE;
/* Not from the controller thread: tells idle workers to end, and waits for them as long as that,
 * but at least 2 s. Those that uni__group_free will have to kill are named in a warning. */
void uni__group_dismiss(uni__group *group, double seconds);
/* Not from the controller thread. Ends everything that is left (SIGKILL) and waits until it is
 * gone. */
void uni__group_free(uni__group *group);

/* Any thread: runs function(argument) on the controller thread, in order. */
void uni__group_post(uni__group *group, void (*function)(void *argument), void *argument);
/* Any thread but the controller's: the same, and waits for it. */
void uni__group_call(uni__group *group, void (*function)(void *argument), void *argument);

typedef struct uni__spawn {
    int rank;
    bool runs_functions; /* mode f: hello expected; otherwise a program of its own */
    const char *exe;
    const uni_value *argv, *environment; /* lists of strings */
    const char *cwd, *log;
    uint64_t address_space; /* bytes; 0: no limit */
    bool forward_log; /* with hosts: the log is on a disk that only the worker's host sees */
} uni__spawn;

/* [controller] */
int uni__group_spawn(uni__group *group, const uni__spawn *spawn, uni_error *err) UNI_MUST_USE;
/* An order (UNI__TO_WORKER_RUN) is for a worker that has none; UNI_EPEER: it has ended. */
int uni__group_send(uni__group *group, int rank, int type, const void *payload, size_t size, int fd,
                    uni_error *err) UNI_MUST_USE;
void uni__group_kill(uni__group *group, int rank, int signal); /* rank -1: every worker */
void uni__group_kill_all(uni__group *group); /* every descendant; ends in all_dead */
uni__page *uni__group_page(uni__group *group, int rank); /* NULL before the first spawn */
const uni__worker *uni__group_worker(const uni__group *group, int rank);
/* function(context of the events) after so many milliseconds; one at a time, a new call replaces
 * the old one, NULL cancels. */
void uni__group_after(uni__group *group, int milliseconds, void (*function)(void *context));
/* Reads what the worker has published by now (also called before `exited`). */
void uni__group_drain(uni__group *group, int rank);
/* What a message of the worker speaks of: a snapshot buffer with at least `size` bytes; the
 * reference is the caller's. NULL: it passed none. */
uni__region *uni__group_snapshot(uni__group *group, int rank, int64_t slot, int64_t size);
int uni__group_handle_signals(uni__group *group, bool on, uni_error *err) UNI_MUST_USE;
/* Neither its ring nor its report pipe is read while it is held. */
void uni__group_hold(uni__group *group, int rank, bool on);

/* ---- workers on other hosts (remote.h); [controller] but for retire ---- */

struct uni__credentials;
struct uni__launcher;
typedef struct uni__launch {
    const struct uni__launcher *launcher;
    const char *exe; /* mpirun, srun, or the agent itself: for ssh, and inside a foreign mpirun */
    const uni_value *argv, *environment; /* lists of strings */
    const char *log, *cwd;
    /* Agents announce their keys in `log`; inside a foreign launcher in files of this name with
     * ".RANK". NULL: not. */
    const char *announced_by_rank;
    const char *const *addresses; /* where to listen; numeric */
    int num_addresses, num_workers;
    const struct uni__credentials *credentials;
    double hello_timeout, silent_timeout;
    const char *token_path, *token; /* a file in the storage that hosts look for */
    const uni_value *names; /* of the hosts by rank, a list; or NULL: the hosts' own */
    const uni_value *program; /* paths of files that hosts hash and tell of, a list; or NULL */
    bool foreign; /* exe is the agent itself */
    /* SIGTERM that reaches a host is a wish to stop, not the launcher's own doing */
    bool term_is_stop;
} uni__launch;

#define UNI__JOIN_MAX 1024
/* The environment for the launcher: where the controller listens. Opens the listener; it closes
 * when all hosts are there, or the attempt ends. */
int uni__group_listen(uni__group *group, const uni__launch *launch, char text[UNI__JOIN_MAX],
                      uni_error *err) UNI_MUST_USE;
/* Starts the launcher; ends in placed or launch_failed. From then on spawn, send and kill go to the
 * hosts. */
int uni__group_launch(uni__group *group, const uni__launch *launch, uni_error *err) UNI_MUST_USE;

/* After `placed`, and after uni__group_listen with the credentials of a launch of its own: one more
 * host, for these ranks, which have none. Ends in host_joined or host_missing. */
int uni__group_launch_more(uni__group *group, const uni__launch *launch, int first_rank, int count,
                           const char *name, uni_error *err) UNI_MUST_USE;
/* The rank's host is not waited for any longer: host_lost follows at once. */
void uni__group_give_up_host(uni__group *group, int rank, const char *why);
/* The rank's host is lost: it has neither a process nor a host any more. */
void uni__group_vacate(uni__group *group, int rank);

typedef struct uni__rank_place {
    int node, num_nodes, local_rank, local_size;
    const char *host, *address; /* as people know it; numeric, as seen from the controller */
    const char *reached; /* our own address that it connected to */
    const char *scratch; /* a directory of the agent's own on that host */
    /* hashes of the files that the launch named, "" for one that is not there; or NULL */
    const uni_value *program;
    int port; /* held for the rank on its host */
    double cpus, memory; /* of the host; memory in bytes, 0: not known */
    bool shares_storage;
    bool ucx; /* it has our plug-in for it */
} uni__rank_place;

/* false when ranks have no hosts of their own. */
bool uni__group_place(uni__group *group, int rank, uni__rank_place *out);
/* Every live rank has seen `stopping`, and its iteration in the page is of later. True for local
 * ranks. */
bool uni__group_saw_stopping(uni__group *group);
/* A file to the host of that rank, below its scratch directory. */
int uni__group_give_file(uni__group *group, int rank, const char *path, const char *from,
                         uni_error *err) UNI_MUST_USE;
/* Not from the controller thread: hosts end, then the launcher; waits a few seconds for it. */
void uni__group_retire(uni__group *group);

#endif
