/* cpus.h - how many CPUs this process may use, and how many threads it should. Any thread. */
#ifndef UNISONO_BASE_CPUS_H
#define UNISONO_BASE_CPUS_H

#include "base/compiler.h"

/* From the affinity mask (the share that a container or launcher gave); at least 1. */
UNI__SHARED int uni__cpu_count(void);
/* OMP_NUM_THREADS if it is set (launchers use it to give every worker its share), otherwise 0. */
UNI__SHARED int uni__cpu_threads_asked(void);

/* Asks the kernel to run this thread soon after it wakes, for a short time, instead of later for a
 * longer one: for threads that others wait for. Its share of the processor stays the same. Linux
 * 6.12 and later; without effect elsewhere. */
UNI__SHARED void uni__prefer_short_slices(void);

#endif
