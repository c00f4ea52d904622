/*
 * machine_limits.h - what the cgroups of this process allow, and what memory there is. Read anew with each call (some file reads); any thread.
 */
#ifndef UNISONO_BASE_MACHINE_LIMITS_H
#define UNISONO_BASE_MACHINE_LIMITS_H

#include <stdint.h>

/* CPUs that the quota allows, 0 when there is none. The tightest of the own group and those above it. */
double uni__limit_cpus(void);
/* Bytes that the memory limit allows, 0 when there is none. */
uint64_t uni__limit_memory(void);
/* Bytes that programs could get now without swapping (the page cache can give way), no more than the limit. */
uint64_t uni__memory_available(void);

#endif
