/*
 * host.h - what this machine can give: processors, memory, GPUs. Read from the affinity mask, the
 * cgroup limits and /proc; no topology library (loading one costs 40 ms). Any thread.
 */
#ifndef UNISONO_GROUP_HOST_H
#define UNISONO_GROUP_HOST_H

#include <stdint.h>

typedef struct uni__host {
    int processors; /* in the affinity mask */
    double cpus; /* the same, or less when a cgroup quota says so */
    uint64_t memory; /* bytes: of the machine, or the cgroup's limit when that is lower */
    int gpus; /* NVIDIA devices; those in CUDA_VISIBLE_DEVICES when it is set */
    char gpu_ids[256]; /* "0,1,2": what a worker's CUDA_VISIBLE_DEVICES is cut from */
    char hostname[256];
    char address[64]; /* numeric address for other processes on this host: 127.0.0.1 */
} uni__host;

void uni__host_look(uni__host *host);

#endif
