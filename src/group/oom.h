/* oom.h - telling whether the kernel's out-of-memory killer ended a worker. Only for the agent. */
#ifndef UNISONO_GROUP_OOM_H
#define UNISONO_GROUP_OOM_H

#include <stdint.h>
#include <sys/types.h>

/* How a SIGKILL and the out-of-memory killer belong together. The values cross the network. */
typedef enum uni__oom {
    UNI__OOM_NO,
    UNI__OOM_YES,
    UNI__OOM_NEAR, /* it struck on this machine at that time; the victim is not known */
} uni__oom;

/* Of a number that another process sent. */
static inline uni__oom uni__oom_from(int64_t number)
{
    return number == UNI__OOM_YES || number == UNI__OOM_NEAR ? (uni__oom)number : UNI__OOM_NO;
}

/* How often it struck: in our own memory cgroup (where the workers are unless they moved), and on
 * the whole machine. -1: unknown. */
typedef struct uni__oom_counts {
    int64_t cgroup, machine;
} uni__oom_counts;

/* The counts of the last two looks. A SIGKILL is compared with the older one: the newer one may
 * have been taken between the kill and the end of the process. */
typedef struct uni__oom_watch {
    uni__oom_counts older, newer;
    uint64_t looked_ns;
} uni__oom_watch;

void uni__oom_watch_begin(uni__oom_watch *watch);

/* Looks again when the last look was a second ago. */
void uni__oom_watch_tick(uni__oom_watch *watch);

/* For a worker that SIGKILL has ended. */
uni__oom uni__oom_of(const uni__oom_watch *watch, pid_t pid);

/* The rule behind it: `log` is the kernel's log, one record a read, or -1 when it cannot be read or
 * its pids are not ours. */
uni__oom uni__oom_judge(const uni__oom_counts *before, const uni__oom_counts *now, int log,
                        pid_t pid);

#endif
