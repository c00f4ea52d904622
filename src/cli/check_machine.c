/* check_machine.c - the machine itself: cores, memory, limits, GPUs, storage. Reads /proc, /sys and
 * limits; runs nothing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "train/shared.h"
#include "base/file.h"
#include "base/machine_limits.h"
#include "cli/check.h"
#include "cli/format.h"

static const char machine[] = "This machine";

static void check_cores(cli_findings *findings)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    double quota = uni__limit_cpus();
    char limit[64] = "";
    if (quota > 0)
        snprintf(limit, sizeof limit, ", the cgroup allows %.1f", quota);
    cli_finding_add(findings, machine, CLI_LEVEL_OK, "cores", "%d of %ld usable by this process%s",
                    allowed, online, limit);
}

static void check_memory(cli_findings *findings)
{
    double total = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double available = (double)uni__memory_available(), limit = (double)uni__limit_memory();
    char all[CLI_SHORT], free_text[CLI_SHORT], cap[CLI_SHORT], more[80] = "";
    if (limit > 0 && limit < total)
        snprintf(more, sizeof more, ", the cgroup allows %s", cli_bytes(limit, cap));
    cli_finding_add(findings, machine, available < 512e6 ? CLI_LEVEL_WARNING : CLI_LEVEL_OK,
                    "memory", "%s, %s available%s", cli_bytes(total, all),
                    cli_bytes(available, free_text), more);
}

static void check_limits(cli_findings *findings)
{
    struct rlimit limit;
    char text[CLI_SHORT];
    struct statvfs shm;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        cli_finding_add(findings, machine, limit.rlim_cur < 256 ? CLI_LEVEL_WARNING : CLI_LEVEL_OK,
                        "open files", "%llu%s", (unsigned long long)limit.rlim_cur,
                        limit.rlim_cur < 256 ? ": 64 workers need about 256 (ulimit -n)" : "");
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        cli_finding_add(findings, machine, CLI_LEVEL_OK, "locked memory", "%s",
                        limit.rlim_cur == RLIM_INFINITY ? "unlimited"
                                                        : cli_bytes((double)limit.rlim_cur, text));
    if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        cli_finding_add(findings, machine, limit.rlim_cur < 256 ? CLI_LEVEL_WARNING : CLI_LEVEL_OK,
                        "processes", "%llu for this user", (unsigned long long)limit.rlim_cur);
    if (statvfs("/dev/shm", &shm) == 0) {
        double bytes = (double)shm.f_bavail * (double)shm.f_frsize;
        cli_finding_add(findings, machine, bytes < 64e6 ? CLI_LEVEL_WARNING : CLI_LEVEL_OK,
                        "shared memory", "%s free in /dev/shm%s", cli_bytes(bytes, text),
                        bytes < 64e6 ? ": PyTorch's data loaders need more (docker run --shm-size)"
                                     : "");
    }
}

static void check_gpus(cli_findings *findings)
{
    int count = 0;
    DIR *devices = opendir("/dev");
    for (struct dirent *entry = devices ? readdir(devices) : NULL; entry; entry = readdir(devices))
        count += strncmp(entry->d_name, "nvidia", 6) == 0 && entry->d_name[6] >= '0' &&
                 entry->d_name[6] <= '9';
    if (devices)
        closedir(devices);
    bool amd = access("/dev/kfd", F_OK) == 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (count)
        cli_finding_add(findings, machine, CLI_LEVEL_OK, "GPUs", "%d NVIDIA%s%s", count,
                        visible ? ", CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    else
        cli_finding_add(
            findings, machine, CLI_LEVEL_ABSENT, "GPUs",
            amd ? "no NVIDIA GPU (there is an AMD one, but --use-gpu supports only NVIDIA)"
                : "none: --use-gpu is not available here");
}

void cli_check_machine(cli_findings *findings)
{
    struct utsname system;
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    if (uname(&system) == 0)
        cli_finding_add(findings, machine, CLI_LEVEL_OK, "host", "%.200s, %s %.60s, %s", host,
                        system.sysname, system.release, system.machine);
    check_cores(findings);
    check_memory(findings);
    check_limits(findings);
    check_gpus(findings);
}

/* ---- storage ---- */

/* Shortens a path to its nearest existing directory. */
static void existing_part(char *path)
{
    while (path[0] && !uni__path_exists(path)) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        slash[slash == path] = '\0';
    }
}

static bool can_write(const char *dir, char *reason, size_t size)
{
    char *path = uni__path_join(dir, ".unisono-check-XXXXXX", NULL);
    int file = path ? mkostemp(path, O_CLOEXEC) : -1;
    bool good = file >= 0 && write(file, "ok", 2) == 2;
    if (!good)
        snprintf(reason, size, "%s", strerror(errno));
    if (file >= 0) {
        close(file);
        unlink(path);
    }
    free(path);
    return good;
}

void cli_check_storage(cli_findings *findings, const char *storage)
{
    static const char section[] = "Results";
    char *place = NULL, reason[100] = "", text[CLI_SHORT];
    uni_error err = { 0 };
    struct statvfs disk;
    if (uni__run_storage(&place, storage, &err) < 0) {
        cli_finding_add(findings, section, CLI_LEVEL_ERROR, "directory", "%.390s", err.message);
        return;
    }
    char *existing = strdup(place);
    if (existing) {
        existing_part(existing);
        bool is_dir = uni__path_is_dir(existing);
        bool good = is_dir && can_write(existing, reason, sizeof reason);
        if (!is_dir)
            cli_finding_add(findings, section, CLI_LEVEL_ERROR, "directory",
                            "%.200s: %.150s is a file", place, existing);
        else if (!good)
            cli_finding_add(findings, section, CLI_LEVEL_ERROR, "directory",
                            "cannot write to %.200s: %s. Give --storage or set UNISONO_RESULTS",
                            place, reason);
        else
            cli_finding_add(findings, section, CLI_LEVEL_OK, "directory", "%.300s, writable%s",
                            place,
                            strcmp(place, existing) == 0 ? "" : " (the first run creates it)");
        if (is_dir && statvfs(existing, &disk) == 0) {
            double bytes = (double)disk.f_bavail * (double)disk.f_frsize;
            cli_finding_add(findings, section, bytes < 1e9 ? CLI_LEVEL_WARNING : CLI_LEVEL_OK,
                            "free space", "%s", cli_bytes(bytes, text));
        }
    }
    free(existing);
    free(place);
}
