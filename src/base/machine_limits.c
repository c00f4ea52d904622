/* machine_limits.c - see machine_limits.h. Any file may be missing; what cannot be read does not
 * limit. */
#include "base/machine_limits.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path of this process in the hierarchy with that controller (version 1), or in the unified one
 * ("", version 2). */
static bool own_cgroup(const char *controller, char *out, size_t size)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[1024];
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        names++;
        found = strcmp(names, controller) == 0 ||
                (controller[0] != '\0' && strstr(names, controller) != NULL);
        if (found)
            snprintf(out, size, "%s", path);
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* Reads up to two numbers from "FILE" of a group; returns how many there are ("max" is none). */
static int read_numbers(const char *root, const char *group, const char *name, double numbers[2])
{
    char path[1280];
    snprintf(path, sizeof path, "%s%s/%s", root, group, name);
    FILE *file = fopen(path, "re");
    int count = file != NULL ? fscanf(file, "%lf %lf", &numbers[0], &numbers[1]) : 0;
    if (file != NULL)
        fclose(file);
    return count > 0 ? count : 0;
}

/* Removes the last name; false when nothing was left to remove. */
static bool to_parent(char *group)
{
    char *slash = strrchr(group, '/');
    if (slash == NULL || group[0] == '\0')
        return false;
    *slash = '\0';
    return true;
}

static double lower(double limit, double other)
{
    return other > 0 && (limit <= 0 || other < limit) ? other : limit;
}

double uni__limit_cpus(void)
{
    char group[1024];
    double limit = 0, n[2];
    if (own_cgroup("", group, sizeof group)) {
        do {
            if (read_numbers("/sys/fs/cgroup", group, "cpu.max", n) == 2 && n[1] > 0)
                limit = lower(limit, n[0] / n[1]);
        } while (to_parent(group));
    }
    if (limit <= 0 && own_cgroup("cpu", group, sizeof group)) {
        do {
            double quota[2], period[2];
            if (read_numbers("/sys/fs/cgroup/cpu", group, "cpu.cfs_quota_us", quota) > 0 &&
                read_numbers("/sys/fs/cgroup/cpu", group, "cpu.cfs_period_us", period) > 0 &&
                period[0] > 0)
                limit = lower(limit, quota[0] / period[0]);
        } while (to_parent(group));
    }
    return limit;
}

uint64_t uni__limit_memory(void)
{
    static const double nobody_has = 1e18; /* version 1 writes a huge number for "none" */
    char group[1024];
    double limit = 0, n[2];
    if (own_cgroup("", group, sizeof group)) {
        do {
            if (read_numbers("/sys/fs/cgroup", group, "memory.max", n) > 0)
                limit = lower(limit, n[0]);
        } while (to_parent(group));
    }
    if (limit <= 0 && own_cgroup("memory", group, sizeof group)) {
        do {
            if (read_numbers("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", n) > 0)
                limit = lower(limit, n[0]);
        } while (to_parent(group));
    }
    return limit < nobody_has ? (uint64_t)limit : 0;
}

uint64_t uni__memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    unsigned long long kilobytes = 0;
    while (file != NULL && kilobytes == 0 && fgets(line, sizeof line, file) != NULL)
        sscanf(line, "MemAvailable: %llu kB", &kilobytes);
    if (file != NULL)
        fclose(file);
    uint64_t limit = uni__limit_memory(), available = (uint64_t)kilobytes * 1024;
    return limit > 0 && limit < available ? limit : available;
}
