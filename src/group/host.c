/* host.c - see host.h. Every source may be missing; what cannot be read does not limit. */
#include "group/host.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/machine_limits.h"

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
    double quota = uni__limit_cpus();
    host->cpus = quota > 0 && quota < host->processors ? quota : host->processors;
    host->memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = uni__limit_memory();
    if (limit > 0 && limit < host->memory)
        host->memory = limit;
    find_gpus(host);
    if (gethostname(host->hostname, sizeof host->hostname - 1) < 0)
        snprintf(host->hostname, sizeof host->hostname, "localhost");
    snprintf(host->address, sizeof host->address, "127.0.0.1");
}
