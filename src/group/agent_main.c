/*
 * agent_main.c - the program unisono-agent (agent.c does the work; the design is in agent.h).
 *
 * Usage: unisono-agent CHANNEL_FD ALIVE_FD, started by the library only. It links no event loop and
 * no thread: its start costs a millisecond.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "group/agent.h"

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr,
                "unisono-agent is started by the unisono library; run `unisono --help` instead.\n");
        return 64;
    }
    int channel = atoi(argv[1]), alive = atoi(argv[2]);
    fcntl(channel, F_SETFD, FD_CLOEXEC);
    fcntl(alive, F_SETFD, FD_CLOEXEC);
    /* The starter waits for this first process only: the agent never shows up in a wait() of the
     * user's program. */
    pid_t pid = fork();
    if (pid != 0)
        _exit(pid < 0);
    uni__agent_keep(channel, alive, NULL);
    return 0;
}
