/*
 * devices.c - a device is one core of this machine: those of its CPUs on which the calling thread
 * may run.
 *
 * The affinity mask and two small files of /sys per CPU are enough; hwloc would need 41 ms and a
 * library for the same answer. Threads are pinned only when a device was named, because the kernel
 * finds a free core better than we do. Any thread.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/devices.h"
#include "base/cpus.h"
#include "base/text.h"
#include "strategy/internal.h"

/* Parses "0-2,5" into a set; false when the text is malformed. */
static bool read_list(const char *text, cpu_set_t *out)
{
    bool member[UNI__DEVICE_MAX_CPUS] = { false };
    CPU_ZERO(out);
    if (!uni__read_ranges(text, member, UNI__DEVICE_MAX_CPUS))
        return false;
    for (size_t cpu = 0; cpu < UNI__DEVICE_MAX_CPUS; cpu++)
        if (member[cpu])
            CPU_SET(cpu, out);
    return true;
}

/* The hardware threads of a CPU's core; only the CPU itself when that cannot be read. */
static void siblings_of(int cpu, cpu_set_t *out)
{
    char path[96], line[256];
    CPU_ZERO(out);
    CPU_SET((size_t)cpu, out);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    cpu_set_t read;
    if (file && fgets(line, sizeof line, file) && read_list(line, &read) &&
        CPU_ISSET((size_t)cpu, &read))
        *out = read;
    if (file)
        fclose(file);
}

static uni__device device_of(const cpu_set_t *cpus, int index)
{
    uni__device device = { .num_cpus = CPU_COUNT(cpus) };
    snprintf(device.name, sizeof device.name, "cpu:%d", index);
    for (size_t cpu = 0; cpu < UNI__DEVICE_MAX_CPUS; cpu++)
        if (CPU_ISSET(cpu, cpus))
            device.cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
    return device;
}

int uni__devices(uni__device *devices, int max)
{
    cpu_set_t left, core;
    int count = 0;
    if (sched_getaffinity(0, sizeof left, &left) < 0) {
        CPU_ZERO(&left);
        CPU_SET(0, &left);
    }
    for (int cpu = 0; cpu < UNI__DEVICE_MAX_CPUS; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &left))
            continue;
        siblings_of(cpu, &core);
        CPU_AND(&core, &core, &left);
        CPU_XOR(&left, &left, &core);
        if (count < max)
            devices[count] = device_of(&core, count);
        count++;
    }
    return count;
}

int uni__device_cpus(cpu_set_t *out, const uni__device *device)
{
    CPU_ZERO(out);
    for (size_t cpu = 0; cpu < UNI__DEVICE_MAX_CPUS; cpu++)
        if (device->cpus[cpu / 64] >> cpu % 64 & 1)
            CPU_SET(cpu, out);
    return CPU_COUNT(out);
}

static int by_index(uni__device *out, const char *text, const char *digits, uni_error *err)
{
    char *end = NULL;
    long index = isdigit((unsigned char)*digits) ? strtol(digits, &end, 10) : -1;
    uni__device all[256];
    int count = uni__devices(all, 256);
    if (!end || *end || index < 0)
        return uni_error_set(err, UNI_EINVAL, "\"%s\" is not a device: write cpu:0, or cpus:0-3",
                             text);
    if (index >= count || index >= 256)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "there is no device %s: this process may use %d (cpu:0 to cpu:%d)",
                             text, count, count - 1);
    *out = all[index];
    return 0;
}

int uni__device_parse(uni__device *out, const char *text, uni_error *err)
{
    const char *name = text;
    cpu_set_t cpus, allowed;
    if (strncasecmp(name, "/device:", 8) == 0)
        name += 8;
    else if (*name == '/')
        name++;
    if (strncasecmp(name, "gpu:", 4) == 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s: there are no GPUs in the native engine; devices are cores, "
                             "cpu:0 and so on",
                             text);
    if (strncasecmp(name, "cpu:", 4) == 0)
        return by_index(out, text, name + 4, err);
    if (strncasecmp(name, "cpus:", 5) != 0 || !read_list(name + 5, &cpus) || CPU_COUNT(&cpus) == 0)
        return uni_error_set(err, UNI_EINVAL, "\"%s\" is not a device: write cpu:0, or cpus:0-3",
                             text);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        cpu_set_t both;
        CPU_AND(&both, &cpus, &allowed);
        if (!CPU_EQUAL(&both, &cpus))
            return uni_error_set(err, UNI_ENOTFOUND,
                                 "%s has CPUs that this process may not use (affinity mask, "
                                 "cgroup)",
                                 text);
    }
    *out = device_of(&cpus, 0);
    snprintf(out->name, sizeof out->name, "%.23s", name);
    return 0;
}

int uni__process_threads(const uni_strategy *strategy)
{
    int count = uni__cpu_threads_asked();
    if (count > 0)
        return count; /* the launcher has already split the CPUs */
    count = uni__cpu_count();
    if (strategy->comm && strcmp(uni_comm_info_of(strategy->comm)->transport, "shm") == 0)
        count /= strategy->size;
    return count > 1 ? count : 1;
}

void uni__pin(const uni_strategy *strategy, const uni__device *device, cpu_set_t *before)
{
    cpu_set_t cpus = strategy->cpus;
    if (!strategy->pinned)
        return;
    if (before)
        (void)sched_getaffinity(0, sizeof *before, before);
    if (device)
        uni__device_cpus(&cpus, device);
    (void)sched_setaffinity(0, sizeof cpus, &cpus);
}

void uni__unpin(const uni_strategy *strategy, const cpu_set_t *before)
{
    if (strategy->pinned)
        (void)sched_setaffinity(0, sizeof *before, before);
}
