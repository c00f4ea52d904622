/*
 * data_limited.c - 8 GB of data in a cgroup of 512 MB: the program runs itself there (`--read
 * FILE`), and the group's own counters say how much memory was anonymous or shared. The file is
 * dropped from the page cache before every run, with and without the limit: pages that somebody
 * else has read already would not be counted against the group. cgroup v1's memory controller or
 * v2's, whichever there is and may be used.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench_numbers.h"
#include "data_bench.h"
#include "data_files.h"

#define LIMIT "536870912"

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

/* Anonymous and shared memory of the group now, in bytes. */
static double anonymous_bytes(const char *group)
{
    char path[256], key[64];
    long long value;
    double one = 0,
           two = 0; /* version 1 has the names of version 2 as well, without its children's */
    snprintf(path, sizeof path, "%s/memory.stat", group);
    FILE *file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%63s %lld", key, &value) == 2) {
        if (strcmp(key, "total_rss") == 0 || strcmp(key, "total_shmem") == 0)
            one += (double)value;
        if (strcmp(key, "anon") == 0 || strcmp(key, "shmem") == 0)
            two += (double)value;
    }
    if (file != NULL)
        fclose(file);
    return one > 0 ? one : two;
}

/* Runs `self --read path` in the group; returns its MB/s and the peak. */
static double run_limited(const char *self, const char *path, const char *group, double *peak)
{
    int pipe_fds[2];
    char text[64] = "";
    if (pipe(pipe_fds) < 0)
        return 0;
    pid_t child = fork();
    if (child == 0) {
        char tasks[300], pid[32];
        snprintf(tasks, sizeof tasks, "%s/cgroup.procs", group);
        snprintf(pid, sizeof pid, "%d", getpid());
        if ((group[0] != 0 && !write_text(tasks, pid)) || dup2(pipe_fds[1], STDOUT_FILENO) < 0)
            _exit(1);
        execl(self, self, "--read", path, (char *)NULL);
        _exit(1);
    }
    close(pipe_fds[1]);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        double now = group[0] != 0 ? anonymous_bytes(group) : 0;
        *peak = now > *peak ? now : *peak;
        usleep(10000);
    }
    ssize_t got = read(pipe_fds[0], text, sizeof text - 1);
    close(pipe_fds[0]);
    return got > 0 && status == 0 ? atof(text) : 0;
}

static void drop_from_cache(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fdatasync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        bench_die(path, NULL);
    close(fd);
}

/* A group with the limit; false when none can be made. */
static bool make_group(char group[128])
{
    static const char *const roots[][2] = { { "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
                                            { "/sys/fs/cgroup", "memory.max" } };
    for (int i = 0; i < 2; i++) {
        char limit[256];
        snprintf(group, 128, "%s/unisono_bench_%d", roots[i][0], getpid());
        snprintf(limit, sizeof limit, "%s/%s", group, roots[i][1]);
        if (mkdir(group, 0755) == 0 && write_text(limit, LIMIT))
            return true;
        rmdir(group);
    }
    return false;
}

/* What one kind of file said; the worst memory and the median speed are the suite's numbers. */
struct limited {
    double peak, limited, unlimited, ratio;
};

/* One pair of runs: 8 GB from the disk take half a minute each. */
static struct limited bench_one(const char *self, const char *kind, const char *path,
                                const char *group)
{
    struct limited out = { 0 };
    double none = 0;
    char metric[64];
    drop_from_cache(path);
    out.unlimited = run_limited(self, path, "", &none);
    drop_from_cache(path);
    out.limited = run_limited(self, path, group, &out.peak);
    if (out.limited <= 0 || out.unlimited <= 0)
        bench_die("reading within 512 MB failed", NULL);
    out.ratio = out.limited / out.unlimited;
    snprintf(metric, sizeof metric, "limited_memory_anon_mb_%s", kind);
    bench_line(metric, "MB", out.peak / 1e6);
    snprintf(metric, sizeof metric, "limited_memory_speed_%s", kind);
    bench_pair(metric, "MB/s", out.limited, out.unlimited, "unisono without the limit", out.ratio);
    unlink(path);
    return out;
}

static void print_all(const struct limited *kinds, int count)
{
    double ratios[3], limited[3], unlimited[3], peak = 0;
    for (int i = 0; i < count; i++) {
        ratios[i] = kinds[i].ratio;
        limited[i] = kinds[i].limited;
        unlimited[i] = kinds[i].unlimited;
        peak = kinds[i].peak > peak ? kinds[i].peak : peak;
    }
    bench_line("limited_memory_anon_mb", "MB", peak / 1e6);
    bench_pair("limited_memory_speed", "MB/s", sorted(limited, count).median,
               sorted(unlimited, count).median, "unisono without the limit",
               sorted(ratios, count).median);
}

void bench_limited(const char *self, bool quick)
{
    char group[128];
    int64_t bytes = (int64_t)(quick ? 1 : 16) << 29;
    struct limited kinds[3];
    if (!make_group(group)) {
        fprintf(stderr,
                "data_bench: no memory cgroup can be made here: limited_memory is left out\n");
        return;
    }
    if (bench_disk_free() < bytes * 5 / 4) {
        fprintf(stderr, "data_bench: no room on the disk: limited_memory is left out\n");
        rmdir(group);
        return;
    }
    const char *csv = bench_path("floats.csv"), *records = bench_path("rows.tfrecord"), *large;
    struct stat found;
    large = bench_path("limited.npy");
    bench_make_npy(large, bytes / 1024, 256);
    kinds[0] = bench_one(self, "npy", large, group);
    bench_make_csv(csv, quick ? 50000 : 1000000);
    large = bench_path("limited.csv");
    bench_make_repeated(large, csv, 30, stat(csv, &found) == 0 ? bytes / found.st_size + 1 : 0);
    kinds[1] = bench_one(self, "csv", large, group);
    bench_make_tfrecord(records, quick ? 12500 : 1 << 18);
    large = bench_path("limited.tfrecord");
    bench_make_repeated(large, records, 0,
                        stat(records, &found) == 0 ? bytes / found.st_size + 1 : 0);
    kinds[2] = bench_one(self, "tfrecord", large, group);
    print_all(kinds, 3);
    rmdir(group);
}
