/*
 * oom.c - whether the out-of-memory killer ended a worker. A wait status says SIGKILL, but not its
 * sender. The kernel counts its own kills before it sends the signal, per cgroup and for the
 * machine, and its log names the pid. If no counter moved, the signal came from elsewhere. If one
 * did, the last kills in the log are those that were counted, and the pid is among them or not.
 * Without the log (it needs CAP_SYSLOG, and pids of the first namespace), a kill in our own cgroup
 * is taken for ours; a kill elsewhere on the machine proves nothing and is only mentioned.
 */
#include "group/oom.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define LOOK_EVERY_NS 1000000000u
#define MAX_KILLS 64 /* of one second or two that are looked for in the log */
#define RECORD_SIZE 8192
#define FIRST_PID_NAMESPACE "pid:[4026531836]"

/* ---- counters ---- */

/* The value after `oom_kill ` in a counter file, or -1. */
static int64_t read_counter(const char *path)
{
    FILE *file = fopen(path, "re");
    long long value = -1;
    char line[256];
    if (!file)
        return -1;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "oom_kill %lld", &value) == 1)
            break;
    fclose(file);
    return value;
}

/* Of version 2 the local counter: the other one counts the groups below, too. */
static int64_t read_group(bool unified, const char *group)
{
    static const char *const names[] = { "memory.events.local", "memory.events" };
    char path[1280];
    int64_t value = -1;
    if (!unified) {
        snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.oom_control", group);
        return read_counter(path);
    }
    for (int i = 0; i < 2 && value < 0; i++) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group, names[i]);
        value = read_counter(path);
    }
    return value;
}

/* A container may see the path of its group from outside, and the group itself at the root. */
static int64_t read_cgroup(const char *controllers, char *group)
{
    bool unified = controllers[0] == '\0';
    if (!unified && !strstr(controllers, "memory"))
        return -1;
    for (;;) {
        int64_t value = read_group(unified, group);
        char *slash = strrchr(group, '/');
        if (value >= 0 || !slash)
            return value;
        *slash = '\0';
    }
}

static int64_t own_cgroup_kills(void)
{
    char line[1024];
    int64_t value = -1;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && value < 0 && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        value = read_cgroup(controllers + 1, group);
    }
    if (file)
        fclose(file);
    return value;
}

static void look(uni__oom_counts *counts)
{
    counts->cgroup = own_cgroup_kills();
    counts->machine = read_counter("/proc/vmstat");
}

void uni__oom_watch_begin(uni__oom_watch *watch)
{
    look(&watch->newer);
    watch->older = watch->newer;
    watch->looked_ns = uni__monotonic_ns();
}

void uni__oom_watch_tick(uni__oom_watch *watch)
{
    if (uni__monotonic_ns() - watch->looked_ns < LOOK_EVERY_NS)
        return;
    watch->older = watch->newer;
    look(&watch->newer);
    watch->looked_ns = uni__monotonic_ns();
}

/* ---- the kernel's log ---- */

/* The pids of the last `wanted` kills in the log, into a ring; returns how many were found. */
static int64_t last_kills(int log, int64_t wanted, pid_t *pids)
{
    char record[RECORD_SIZE + 1];
    int64_t found = 0;
    for (;;) {
        ssize_t size = read(log, record, RECORD_SIZE);
        /* EPIPE: records were overwritten while we read */
        if (size < 0 && (errno == EINTR || errno == EPIPE))
            continue;
        if (size <= 0)
            return found;
        record[size] = '\0';
        /* "priority,number,time,flags;text"; what programs write there has another priority */
        const char *text = strchr(record, ';');
        if (!text || atoi(record) >= 8)
            continue;
        const char *killed = strstr(text, ": Killed process ");
        if (killed && strcasestr(text, "out of memory"))
            pids[found++ % wanted] = (pid_t)atoi(killed + strlen(": Killed process "));
    }
}

/* 1: the log names this pid among the last `kills`. 0: it names others. -1: it does not tell. */
static int named_in_log(int log, int64_t kills, pid_t pid)
{
    pid_t pids[MAX_KILLS];
    if (log < 0 || kills < 1 || kills > MAX_KILLS)
        return -1;
    int64_t found = last_kills(log, kills, pids);
    for (int64_t i = 0; i < found && i < kills; i++)
        if (pids[i] == pid)
            return 1;
    return found >= kills ? 0 : -1;
}

static int64_t risen(int64_t before, int64_t now)
{
    return before >= 0 && now > before ? now - before : 0;
}

uni__oom uni__oom_judge(const uni__oom_counts *before, const uni__oom_counts *now, int log,
                        pid_t pid)
{
    int64_t ours = risen(before->cgroup, now->cgroup);
    int64_t all = risen(before->machine, now->machine);
    if (ours == 0 && all == 0)
        return UNI__OOM_NO;
    int named = named_in_log(log, all > 0 ? all : ours, pid);
    if (named >= 0)
        return named ? UNI__OOM_YES : UNI__OOM_NO;
    return ours > 0 ? UNI__OOM_YES : UNI__OOM_NEAR;
}

static int open_log(void)
{
    char name[64];
    ssize_t size = readlink("/proc/self/ns/pid", name, sizeof name - 1);
    if (size < 0)
        return -1;
    name[size] = '\0';
    return strcmp(name, FIRST_PID_NAMESPACE) == 0
               ? open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)
               : -1;
}

uni__oom uni__oom_of(const uni__oom_watch *watch, pid_t pid)
{
    uni__oom_counts now;
    look(&now);
    int log = open_log();
    uni__oom verdict = uni__oom_judge(&watch->older, &now, log, pid);
    if (log >= 0)
        close(log);
    return verdict;
}
