/* host.c - see host.h. Every source may be missing; what cannot be read does not limit. */
#include "group/host.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path of this process in the hierarchy with that controller (v1), or of the unified one ("" for v2). */
static int own_cgroup(const char *controller, char *out, size_t size)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[1024];
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        names++;
        if (strcmp(names, controller) == 0 || (controller[0] && strstr(names, controller))) {
            snprintf(out, size, "%s", path);
            found = 1;
        }
    }
    if (file)
        fclose(file);
    return found;
}

static int read_words(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t n = fread(out, 1, size - 1, file);
    fclose(file);
    out[n] = '\0';
    return n > 0;
}

static double cpu_quota(void)
{
    char group[1024], path[1280], text[128];
    double quota, period;
    if (own_cgroup("", group, sizeof group)) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        if (read_words(path, text, sizeof text) && sscanf(text, "%lf %lf", &quota, &period) == 2 &&
            period > 0)
            return quota / period;
    }
    if (own_cgroup("cpu", group, sizeof group)) {
        snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", group);
        if (read_words(path, text, sizeof text) && (quota = atof(text)) > 0) {
            snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", group);
            if (read_words(path, text, sizeof text) && (period = atof(text)) > 0)
                return quota / period;
        }
    }
    return 0;
}

static uint64_t memory_limit(void)
{
    char group[1024], path[1280], text[128];
    if (own_cgroup("", group, sizeof group)) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
        if (read_words(path, text, sizeof text) && text[0] >= '0' && text[0] <= '9')
            return strtoull(text, NULL, 10);
    }
    if (own_cgroup("memory", group, sizeof group)) {
        snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.limit_in_bytes", group);
        if (read_words(path, text, sizeof text))
            return strtoull(text, NULL, 10);
    }
    return 0;
}

static void find_gpus(uni__host *host)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible) {
        snprintf(host->gpu_ids, sizeof host->gpu_ids, "%s", visible);
        if (!visible[0] || strcmp(visible, "-1") == 0 || strcmp(visible, "NoDevFiles") == 0)
            return;
        host->gpus = 1;
        for (const char *at = visible; *at; at++)
            host->gpus += *at == ',';
        return;
    }
    DIR *dev = opendir("/dev");
    for (struct dirent *entry; dev && (entry = readdir(dev));) {
        int number;
        char rest;
        if (sscanf(entry->d_name, "nvidia%d%c", &number, &rest) == 1)
            host->gpus++;
    }
    if (dev)
        closedir(dev);
    size_t used = 0;
    for (int i = 0; i < host->gpus && used < sizeof host->gpu_ids - 8; i++)
        used += (size_t)snprintf(host->gpu_ids + used, sizeof host->gpu_ids - used, "%s%d",
                                 i ? "," : "", i);
}

void uni__host_look(uni__host *host)
{
    memset(host, 0, sizeof *host);
    cpu_set_t mask;
    host->processors = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
    double quota = cpu_quota();
    host->cpus = quota > 0 && quota < host->processors ? quota : host->processors;
    host->memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = memory_limit();
    if (limit > 0 && limit < host->memory)
        host->memory = limit;
    find_gpus(host);
    if (gethostname(host->hostname, sizeof host->hostname - 1) < 0)
        snprintf(host->hostname, sizeof host->hostname, "localhost");
    snprintf(host->address, sizeof host->address, "127.0.0.1");
}
