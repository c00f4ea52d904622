/*
 * process.h - what the kernel says of a process, from /proc/PID/stat. Any thread; for processes of this host and pid namespace.
 */
#ifndef UNISONO_BASE_PROCESS_H
#define UNISONO_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/status.h>

typedef struct uni__process {
    char state; /* a letter as ps shows it: R, S, D, T, t, Z, X */
    bool exiting; /* its main thread is in exit, or is a zombie */
    int parent;
    uint64_t start_time; /* in clock ticks since boot: tells a number that is used again */
} uni__process;

/* false when there is no such process, or it cannot be seen from here. */
bool uni__process_look(int pid, uni__process *out);
/* There is no such process (any more), or it is on its way out. */
bool uni__process_is_ending(int pid);

/* UNI_EUNSUPPORTED when /proc is not mounted: what is alive is not known then. */
int uni__process_check(uni_error *err) UNI_MUST_USE;

#endif
