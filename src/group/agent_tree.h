/* agent_tree.h - ending descendants. Only for the agent and its keeper. */
#ifndef UNISONO_GROUP_AGENT_TREE_H
#define UNISONO_GROUP_AGENT_TREE_H

#include <sys/types.h>

/* SIGKILL for all direct children, and for those that become our children because their parents
 * died, until there are none; `reaped` is told of each. Gives up after timeout_ms and returns how
 * many are left. */
int uni__tree_kill(int timeout_ms, void (*reaped)(void *context, pid_t pid, int status),
                   void *context);

#endif
