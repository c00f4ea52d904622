/*
 * agent.h - what controller and agent say to each other (wire.h frames, msgpack dictionaries).
 *
 * unisono-agent is the parent of the workers. Two small single-threaded processes: the keeper,
 * which only waits, and below it the agent, which does the work. Both are subreapers: whichever is
 * killed, the other ends every descendant, orphans that called setsid included. The agent ends its
 * tree when the controller's end of the channel closes; workers ask the kernel to be killed when
 * the agent dies. The `alive` pipe is held by the keeper alone: its end of file says that nothing
 * is left.
 */
#ifndef UNISONO_GROUP_AGENT_H
#define UNISONO_GROUP_AGENT_H

#include <stdbool.h>
#include <sys/types.h>

enum uni__agent_frame {
    /* controller -> agent */
    /* rank, mode, exe, argv, env, cwd, log, address_space; descriptors: channel, page, eventfd,
     * report pipe */
    UNI__AGENT_SPAWN = 1,
    UNI__AGENT_KILL, /* rank, signal: to the worker's process group */
    UNI__AGENT_KILL_ALL, /* {}: SIGKILL for every descendant, answered by ALL_DEAD */
    /* agent -> controller */
    UNI__AGENT_HELLO, /* pid: of the agent; keeper: of its keeper */
    UNI__AGENT_SPAWNED, /* rank, pid */
    UNI__AGENT_SPAWN_FAILED, /* rank, errno, what */
    UNI__AGENT_EXITED, /* rank, pid, exit_code, signal, core, oom */
    UNI__AGENT_STOPPED, /* rank, pid, stopped (true: SIGSTOP and the like, false: continued) */
    UNI__AGENT_ALL_DEAD /* left: processes that could not be killed within two seconds */
};

/* Where a worker finds its descriptors, and the variable that says so: "1:<mode>:<pid of the
 * agent>:<channel>:<page>:<eventfd>"; mode is f (run functions by name) or p (a program of its
 * own). */
#define UNI__SESSION_VARIABLE "UNISONO_SESSION"
#define UNI__REPORT_VARIABLE "UNISONO_REPORT_FD"
#define UNI__WORKER_FIRST_FD 230 /* out of the way of scripts, which like 200 for locks */
#define UNI__WORKER_REPORT_FD 7 /* one digit: a plain sh can write `>&7` but not `>&230` */

/* What a template wants done around each fork. */
typedef struct uni__fork_hooks {
    void (*before)(void *context);
    void (*after)(void *context, bool in_child);
    void *context;
} uni__fork_hooks;

/* fork, with what the hooks want done around it. hooks may be NULL. */
pid_t uni__fork(const uni__fork_hooks *hooks);

/* Makes this process the keeper of an agent that serves `channel`. Does not return, but in workers
 * that a template forked (hooks). */
void uni__agent_keep(int channel, int alive, const uni__fork_hooks *hooks);

#endif
