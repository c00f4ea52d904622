/* agent_tree.h - ending descendants and telling whether the kernel killed one for lack of memory. Only for the agent and its keeper. */
#ifndef UNISONO_GROUP_AGENT_TREE_H
#define UNISONO_GROUP_AGENT_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* SIGKILL for all direct children, and for those that become our children because their parents died, until there are none; `reaped`
 * is told of each. Gives up after timeout_ms and returns how many are left. */
int uni__tree_kill(int timeout_ms, void (*reaped)(void *context, pid_t pid, int status),
                   void *context);

/* How often the out-of-memory killer struck in the memory cgroup of that process (a zombie is fine); -1 when unknown. `identity` gets a
 * hash of the cgroup's path. */
int64_t uni__oom_kills(pid_t pid, uint64_t *identity);

#endif
