/*
 * process.h - the kernel's view of a process, from /proc/PID/stat and status. Any thread; for
 * processes of this host and pid namespace.
 */
#ifndef UNISONO_BASE_PROCESS_H
#define UNISONO_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/status.h>

typedef struct uni__process {
    char state; /* as ps shows it: R, S, D, T, t, Z, X */
    bool exiting; /* its main thread is in exit, or is a zombie */
    int parent;
    /* In clock ticks since boot; tells a reused pid apart. */
    uint64_t start_time;
} uni__process;

/* false when the process does not exist or is not visible from here. */
bool uni__process_look(int pid, uni__process *out);
/* The process does not exist (any more), or is exiting. */
bool uni__process_is_ending(int pid);

/* How often its main thread has been given or has given up a processor: a number that grows belongs
 * to a process that is neither stopped nor frozen. 0 when it does not exist. */
uint64_t uni__process_switches(int pid);

/* UNI_EUNSUPPORTED when /proc is not mounted: nothing is known about processes then. */
int uni__process_check(uni_error *err) UNI_MUST_USE;

#endif
