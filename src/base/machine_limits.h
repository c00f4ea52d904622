/*
 * machine_limits.h - what the cgroups of this process allow, and the available memory. Each call
 * reads some files; any thread.
 */
#ifndef UNISONO_BASE_MACHINE_LIMITS_H
#define UNISONO_BASE_MACHINE_LIMITS_H

#include <stdint.h>

/* CPUs that the quota allows, 0 when there is none. The tightest of this process's group and those
 * above it. */
double uni__limit_cpus(void);
/* Bytes that the memory limit allows, 0 when there is none. */
uint64_t uni__limit_memory(void);
/* Bytes that programs could get now without swapping (including reclaimable page cache), at most
 * the limit. */
uint64_t uni__memory_available(void);

#endif
