/* cpus.c - see cpus.h. */
#include "base/cpus.h"

#include <sched.h>
#include <stdlib.h>

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
