/* agent_tree.h - ending descendants and telling whether the kernel killed one for lack of memory.
 * Only for the agent and its keeper. */
#ifndef UNISONO_GROUP_AGENT_TREE_H
#define UNISONO_GROUP_AGENT_TREE_H

#include <stdint.h>
#include <sys/types.h>

/* SIGKILL for all direct children, and for those that become our children because their parents
 * died, until there are none; `reaped` is told of each. Gives up after timeout_ms and returns how
 * many are left. */
int uni__tree_kill(int timeout_ms, void (*reaped)(void *context, pid_t pid, int status),
                   void *context);

/* How often the out-of-memory killer struck: in our own memory cgroup (where the workers are unless
 * they moved), and on the whole machine. -1 when that cannot be known. */
typedef struct uni__oom_counts {
    int64_t cgroup, machine;
} uni__oom_counts;

void uni__oom_look(uni__oom_counts *counts);

#endif
