/* agent_child.h - starting one worker: what is done between fork and exec, and what is said when
 * that fails. Only for the agent. */
#ifndef UNISONO_GROUP_AGENT_CHILD_H
#define UNISONO_GROUP_AGENT_CHILD_H

#include <stdint.h>
#include <sys/types.h>

#include "group/agent.h"
#include "group/wire.h"

typedef struct uni__child {
    const char *exe, *cwd, *log;
    char **argv, **env;
    int fds[UNI__WIRE_MAX_FDS], num_fds;
    uint64_t address_space; /* bytes; 0: no limit */
    pid_t agent;
    uni__wire *wire; /* the agent's: descriptors of later workers may have come already */
    const uni__fork_hooks *hooks; /* forked only; NULL: exec */
} uni__child;

enum uni__child_steps {
    UNI__CHILD_LOG = 1,
    UNI__CHILD_DIRECTORY,
    UNI__CHILD_MEMORY,
    UNI__CHILD_DESCRIPTORS,
    UNI__CHILD_EXEC
};

/* The child's pid; 0 in a child that goes on without exec; -1 with the step that failed and its
 * errno. */
pid_t uni__child_start(const uni__child *plan, int *step, int *error);
/* "cannot open its log file", ... */
const char *uni__child_step(int step);
/* The descriptor (the old one is closed) above every number that a worker's own are put at: what is
 * closed in a forked worker later is never one of them. */
int uni__child_high_fd(int fd);

#endif
