/* cpus.c - see cpus.h. */
#include "base/cpus.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHORT_SLICE_NS 100000u /* the kernel's minimum */

int uni__cpu_count(void)
{
    cpu_set_t cpus;
    int count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return count > 0 ? count : 1;
}

int uni__cpu_threads_asked(void)
{
    const char *asked = getenv("OMP_NUM_THREADS");
    int count = asked ? atoi(asked) : 0;
    return count > 0 ? count : 0;
}

/* As the kernel's struct sched_attr in its first version; Debian 12's C library has none. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} attributes;

void uni__prefer_short_slices(void)
{
    attributes now = { .size = sizeof now };
    if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0 ||
        (now.policy != SCHED_OTHER && now.policy != SCHED_BATCH))
        return;
    now.size = sizeof now;
    now.runtime = SHORT_SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &now, 0);
}
