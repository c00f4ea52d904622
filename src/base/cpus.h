/* cpus.h - how many CPUs this process may use, and how many threads it should. Any thread. */
#ifndef UNISONO_BASE_CPUS_H
#define UNISONO_BASE_CPUS_H

#include "base/compiler.h"

/* Of the affinity mask (a container's or a launcher's share); at least 1. */
UNI__SHARED int uni__cpu_count(void);
/* OMP_NUM_THREADS when it is set (a launcher gives every worker its share so), otherwise 0. */
UNI__SHARED int uni__cpu_threads_asked(void);

#endif
