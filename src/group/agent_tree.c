/*
 * agent_tree.c - ending descendants: kill the direct children; a subreaper inherits their children,
 * so repeating it reaches all, whatever sessions and process groups they made for themselves.
 */
#include "group/agent_tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"

static int kill_children_by_scan(pid_t self)
{
    DIR *proc = opendir("/proc");
    int count = 0;
    if (!proc)
        return 0;
    for (struct dirent *entry; (entry = readdir(proc));) {
        uni__process one;
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? (pid_t)atoi(entry->d_name) : 0;
        if (pid == 0 || !uni__process_look(pid, &one) || one.parent != self)
            continue;
        kill(pid, SIGKILL);
        count++;
    }
    closedir(proc);
    return count;
}

static int kill_children(void)
{
    char path[64];
    pid_t self = getpid();
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", self, self);
    FILE *file = fopen(path, "re");
    if (!file)
        return kill_children_by_scan(self);
    int pid, count = 0;
    while (fscanf(file, "%d", &pid) == 1) {
        kill(pid, SIGKILL);
        count++;
    }
    fclose(file);
    return count;
}

int uni__tree_kill(int timeout_ms, void (*reaped)(void *context, pid_t pid, int status),
                   void *context)
{
    uint64_t deadline = uni__monotonic_ns() + (uint64_t)timeout_ms * 1000000u;
    for (long pause_us = 50;; pause_us = pause_us < 2000 ? pause_us * 2 : 2000) {
        int left = kill_children();
        for (;;) {
            int status;
            pid_t pid = waitpid(-1, &status, WNOHANG);
            if (pid < 0 && errno == ECHILD)
                return 0;
            if (pid <= 0)
                break;
            if (reaped)
                reaped(context, pid, status);
        }
        if (uni__monotonic_ns() >= deadline)
            return left;
        nanosleep(&(struct timespec){ .tv_nsec = pause_us * 1000 }, NULL);
    }
}
