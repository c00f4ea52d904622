/*
 * remote.h - workers on other hosts: what a host's agent (unisono-host) and the controller say to
 * each other over a proved link (link.h), and the controller's picture of the hosts.
 *
 * On its host the agent is what the controller is on one machine: it has the workers' pages, rings
 * and pipes (a group of its own) and hands on what they say. The controller keeps a page of its own
 * for each remote rank, a mirror: the agent sends the words that workers write, the controller's
 * loop sends those that it wrote itself, both only when they changed. So the rest of the library
 * does not know where a worker is.
 *
 * Frames: the type below (127 is link.c's own), i32 rank (-1: none), then the payload. Fixed
 * structures are little-endian; {} is msgpack. Both sides send PULSE when they have been quiet for
 * a quarter of a second; a host that is silent is named after 1 s and given up after
 * silent_timeout, and an agent whose controller is silent for twice that long ends its workers.
 */
#ifndef UNISONO_GROUP_REMOTE_H
#define UNISONO_GROUP_REMOTE_H

#include "group/group.h"
#include "group/link.h"

enum uni__remote_frame {
    UNI__REMOTE_PULSE = 1, /* both ways, empty */
    /* agent -> controller */
    /* {"host", "ranks": [..], "ports": [..], "cpus", "memory", "ucx": it has the plug-in} */
    UNI__REMOTE_HELLO,
    /* {"shared": bool, "scratch": a directory of its own, or "", "program": [hashes]} */
    UNI__REMOTE_PROBED,
    UNI__REMOTE_SPAWNED, /* i32 pid */
    UNI__REMOTE_SPAWN_FAILED, /* sentence */
    UNI__REMOTE_MESSAGE, /* u8 type, u8 1 when more parts follow, then the part */
    UNI__REMOTE_CHANNEL, /* i32 type, then what the worker sent on its channel */
    UNI__REMOTE_LINE, /* a line of the report pipe */
    UNI__REMOTE_BROKEN, /* sentence */
    UNI__REMOTE_EXITED, /* i32 pid, exit_code, signal, core, oom */
    UNI__REMOTE_STOPPED, /* i32 0 or 1 */
    UNI__REMOTE_WORDS, /* uni__worker_words */
    UNI__REMOTE_REGION, /* i32 slot, i32 zero, u64 offset, u64 total, then bytes of a snapshot */
    UNI__REMOTE_LOG, /* bytes for the rank's log */
    UNI__REMOTE_FILE, /* uni__remote_file, path, bytes: a file of a checkpoint directory */
    UNI__REMOTE_ALL_DEAD, /* i32 left; the agent ends after it */
    UNI__REMOTE_SIGNALLED, /* i32 signal: the agent was told to end, and goes on */
    /* name of the launcher's daemon that was the agent's parent, and has ended */
    UNI__REMOTE_ORPHANED,
    /* controller -> agent */
    /* {"silent_timeout", "token_path", "token", "tidy": the launcher is our own Open MPI,
     * "program": [paths]} */
    UNI__REMOTE_WELCOME = 64,
    UNI__REMOTE_SPAWN, /* {"mode", "exe", "argv", "env", "cwd", "log", "forward_log", "memory"} */
    UNI__REMOTE_PART, /* bytes that belong before the payload of the next SEND to that rank */
    UNI__REMOTE_MEMORY, /* bytes of the descriptor that goes with it */
    UNI__REMOTE_SEND, /* i32 type, i32 1 with a descriptor, then the end of the payload */
    UNI__REMOTE_KILL, /* i32 signal */
    UNI__REMOTE_KILL_ALL, /* answered by ALL_DEAD */
    UNI__REMOTE_CONTROL, /* uni__control_words */
    UNI__REMOTE_GIVE /* uni__remote_file, path, bytes: a file of the checkpoint to resume from */
};

/* What a worker writes into its page. */
typedef struct uni__worker_words {
    uint32_t owner, stop_request, stop_seen, loaded, checkpoints_taken, saw_stopping;
    uint32_t no_steps;
    uint32_t replaceable, fixed, joined, awaits, ending, left; /* train/replace.c */
    uint32_t zero; /* no padding: all bytes are compared */
    uint64_t waited_ns, heartbeat;
    int64_t iteration;
} uni__worker_words;

/* What the controller writes into it. */
typedef struct uni__control_words {
    uint32_t stopping, stop_at_known, released, checkpoints_done, checkpoints_over, alarm, suspect;
    uint32_t freed[2]; /* how often each snapshot buffer was given back */
    uint32_t group, closed, leave; /* train/replace.c */
    uint32_t num_members, zero; /* no padding: all bytes are compared */
    uint64_t members[UNI__MOST_MEMBERS / 64];
    int64_t stop_at;
    char alarm_reason[256];
} uni__control_words;

typedef struct uni__remote_file {
    uint64_t offset;
    uint32_t path_size; /* bytes of the relative path that follows, no zero at its end */
    uint32_t last; /* 1: nothing follows of this file, or one of the values below */
} uni__remote_file;

#define UNI__REMOTE_PATH_MAX 4000u
/* In `last`: the directory has been sent; it cannot be sent, and the bytes are a sentence that says
 * why. */
#define UNI__REMOTE_FILE_END 2
#define UNI__REMOTE_FILE_FAILED 3

#define UNI__REMOTE_CHUNK (256u << 10)
#define UNI__REMOTE_PULSE_NS 250000000ull

/* false for paths that could leave their directory: absolute, with "..", empty parts, or control
 * characters. */
bool uni__remote_path_is_safe(const char *path, size_t size);

/* For the words of a page; old is what was sent last. True when something changed. */
bool uni__worker_words_read(uni__page *page, uni__worker_words *now, const uni__worker_words *old);
void uni__worker_words_apply(uni__page *page, const uni__worker_words *words);
/* `freed` is the caller's. */
void uni__control_words_read(uni__page *page, uni__control_words *now);
void uni__control_words_apply(uni__page *page, const uni__control_words *words,
                              const uni__control_words *before);

/* remote.c, for group.c and links.c: the controller's side. [controller] */
typedef struct uni__remote uni__remote;
int uni__remote_spawn(uni__group *group, const uni__spawn *spawn, uni_error *err) UNI_MUST_USE;
int uni__remote_send(uni__group *group, int rank, int type, const void *payload, size_t size,
                     int fd, uni_error *err) UNI_MUST_USE;
void uni__remote_kill(uni__group *group, int rank, int signal);
void uni__remote_kill_all(uni__group *group);
/* late: this process itself did not run for a while, so that silence proves nothing. */
void uni__remote_tick(uni__group *group, uint64_t now, bool late);
void uni__remote_before_sleep(uni__group *group);
/* Until when the rank's words are known: when its host was last heard of. */
uint64_t uni__remote_heard_ns(const uni__group *group, int rank, uint64_t now);
void uni__remote_launcher_exited(uni__group *group, const uni__exit *how);
/* A launcher of a host that came later; number: above the group's slots. */
void uni__remote_more_exited(uni__group *group, int number, const uni__exit *how);
/* Whether a signal to this process or to a host follows from the death of a foreign launcher, which
 * is then reported. */
bool uni__remote_explains_signal(uni__group *group);
void uni__remote_drop_hosts(uni__group *group);
void uni__remote_free(uni__group *group); /* the links are closed with the loop */

#endif
