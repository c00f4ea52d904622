/* devices.h - groups of CPUs that share a core, on which replicas run. */
#ifndef UNISONO_STRATEGY_DEVICES_H
#define UNISONO_STRATEGY_DEVICES_H

#include <stdint.h>
#include <unisono/status.h>

#define UNI__DEVICE_MAX_CPUS 1024

typedef struct uni__device {
    char name[24]; /* "cpu:0" */
    int num_cpus;
    uint64_t cpus[UNI__DEVICE_MAX_CPUS / 64]; /* bit n: CPU n */
} uni__device;

/* The cores of the calling thread's affinity mask, hardware threads of one core together, in the
 * order of their numbers. Writes at most `max` and returns how many there are. Reads /sys, no
 * library. */
int uni__devices(uni__device *devices, int max);
/* "cpu:1" (also "CPU:1", "/device:CPU:1"): a device by its place in uni__devices; "cpus:0-2,5":
 * these CPUs. */
UNI_MUST_USE int uni__device_parse(uni__device *out, const char *text, uni_error *err);

#endif
