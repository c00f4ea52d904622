/*
 * data_bench.c - the suite data of ./bench: files to batches. The files are made once, in a directory of the user's cache, and are read warm; the peers
 * (peers/data_*.py) read the same ones. Rates are medians of five runs after a warm-up, each checked for the number of rows.
 *
 *   data_bench [--quick]
 *   data_bench --read FILE.npy   reads it through and prints MB/s (what runs under the memory limit)
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unisono/data.h>
#include "base/crc32c.h"

enum { RUNS = 5, BATCH = 256 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void print_line(const char *metric, const char *unit, double value)
{
    printf("{\"bench\": \"data\", \"metric\": \"%s\", \"unit\": \"%s\", \"unisono\": %.6g}\n",
           metric, unit, value);
    fflush(stdout);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *list, int count)
{
    qsort(list, (size_t)count, sizeof *list, compare);
    return list[count / 2];
}

static _Noreturn void die(const char *what, const uni_error *err)
{
    fprintf(stderr, "data_bench: %s: %s\n", what, err != NULL ? err->message : "");
    exit(1);
}

/* ---- files ---- */

static char directory[3000];

static void make_directory(bool quick)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char command[4096];
    if (cache != NULL && cache[0] != 0)
        snprintf(directory, sizeof directory, "%s/unisono/bench_data%s", cache,
                 quick ? "_quick" : "");
    else
        snprintf(directory, sizeof directory, "%s/.cache/unisono/bench_data%s",
                 home != NULL ? home : "/tmp", quick ? "_quick" : "");
    snprintf(command, sizeof command, "mkdir -p '%s'", directory);
    if (system(command) != 0)
        die(directory, NULL);
}

static const char *path_of(const char *name)
{
    static char paths[8][4096];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 4096, "%s/%s", directory, name);
    return path;
}

static bool has_size(const char *path, int64_t at_least)
{
    struct stat found;
    return stat(path, &found) == 0 && found.st_size >= at_least;
}

/* Ten columns of normal numbers with all their digits, as pandas writes them. */
static void make_csv(const char *path, int64_t rows)
{
    char part[4200];
    if (has_size(path, rows * 150))
        return;
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "w");
    if (file == NULL)
        die(part, NULL);
    fprintf(file, "c0,c1,c2,c3,c4,c5,c6,c7,c8,c9\n");
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < rows * 10; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += (double)(state >> 11) * 0x1p-53;
        }
        fprintf(file, "%.17g%c", (sum - 2) * 1.7320508075688772, i % 10 == 9 ? '\n' : ',');
    }
    if (fclose(file) != 0 || rename(part, path) != 0)
        die(part, NULL);
}

/* float32 (rows, width), really written: holes of a file read faster than any memory. */
static void make_npy(const char *path, int64_t rows, int width)
{
    char header[128];
    int64_t bytes = rows * width * 4 + 128;
    if (has_size(path, bytes))
        return;
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    int length = snprintf(header + 10, 110,
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %d), }",
                          (long long)rows, width);
    header[10 + length] = ' ';
    header[127] = '\n';
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    static char block[1 << 20];
    memset(block, 1, sizeof block);
    bool done = fd >= 0 && write(fd, header, sizeof header) == sizeof header;
    for (int64_t left = bytes - 128; left > 0 && done; left -= (int64_t)sizeof block) {
        size_t size = left < (int64_t)sizeof block ? (size_t)left : sizeof block;
        done = write(fd, block, size) == (ssize_t)size;
    }
    if (!done)
        die(path, NULL);
    close(fd);
}

/* Examples of one feature x with 256 floats. */
static void make_tfrecord(const char *path, int64_t rows)
{
    enum { FLOATS = 1024, EXAMPLE = 1042, RECORD = 8 + 4 + EXAMPLE + 4 };
    /* Lengths of the nested messages: 1039, 1036, the name, 1030, 1027, and the floats. */
    static const uint8_t head[] = { 0x0A, 0x8F, 8, 0x0A, 0x8C, 8, 0x0A, 1,    'x',
                                    0x12, 0x86, 8, 0x12, 0x83, 8, 0x0A, 0x80, 8 };
    static uint8_t record[RECORD];
    char part[4200];
    if (has_size(path, rows * RECORD))
        return;
    uint64_t length = EXAMPLE;
    memcpy(record, &length, 8);
    uint32_t sum = uni__crc32c_masked(record, 8);
    memcpy(record + 8, &sum, 4);
    memcpy(record + 12, head, sizeof head);
    memset(record + 12 + sizeof head, 1, FLOATS);
    sum = uni__crc32c_masked(record + 12, EXAMPLE);
    memcpy(record + 12 + EXAMPLE, &sum, 4);
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "w");
    bool done = file != NULL;
    for (int64_t i = 0; i < rows && done; i++)
        done = fwrite(record, RECORD, 1, file) == 1;
    if (!done || fclose(file) != 0 || rename(part, path) != 0)
        die(part, NULL);
}

/* ---- reading ---- */

static uni_dataset *open_dataset(const char *path, bool shuffle)
{
    uni_dataset *dataset = NULL, *shuffled = NULL;
    uni_error err = { 0 };
    if (uni_dataset_read(&dataset, 1, &path, &err) < 0)
        die(path, &err);
    if (!shuffle)
        return dataset;
    if (uni_dataset_shuffle(&shuffled, dataset, 0, 1, &err) < 0)
        die("shuffle", &err);
    uni_dataset_unref(dataset);
    return shuffled;
}

/* Takes batches until the end or until `most` rows; returns the rows. */
static int64_t read_through(uni_dataset *dataset, int64_t most, double *first_ms)
{
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL;
    uni_error err = { 0 };
    double begin = seconds();
    int64_t rows = 0;
    int more;
    if (uni_dataset_iterate(&it, dataset, &(uni_data_options){ .batch_size = BATCH }, &err) < 0)
        die("iterate", &err);
    while ((more = uni_dataset_iterator_next(it, &batch, &err)) > 0 && rows < most) {
        if (rows == 0 && first_ms != NULL)
            *first_ms = (seconds() - begin) * 1e3;
        rows += uni_table_num_rows(batch);
        uni_table_unref(batch);
    }
    if (more > 0)
        uni_table_unref(batch);
    if (more < 0)
        die("next", &err);
    uni_dataset_iterator_free(it);
    return rows;
}

/* MB/s of the file, the dataset made anew each time. */
static double rate_of(const char *path, bool shuffle, int64_t rows, double *first_ms)
{
    double rates[RUNS], firsts[RUNS];
    for (int i = -1; i < RUNS; i++) {
        double begin = seconds(), first = 0;
        uni_dataset *dataset = open_dataset(path, shuffle);
        double opened = seconds() - begin;
        if (read_through(dataset, INT64_MAX, &first) != rows)
            die("a wrong number of rows", NULL);
        if (i >= 0) {
            rates[i] = (double)uni_dataset_bytes(dataset) / (seconds() - begin) / 1e6;
            firsts[i] = opened * 1e3 + first;
        }
        uni_dataset_unref(dataset);
    }
    if (first_ms != NULL)
        *first_ms = median(firsts, RUNS);
    return median(rates, RUNS);
}

/* The same bytes with one pread after the other, 1 MiB each. */
static double pread_rate(const char *path)
{
    enum { SIZE = 1 << 20 };
    double rates[RUNS];
    char *buffer = malloc(SIZE);
    for (int i = -1; i < RUNS; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        double begin = seconds();
        int64_t total = 0;
        ssize_t got;
        while ((got = pread(fd, buffer, SIZE, total)) > 0)
            total += got;
        if (i >= 0)
            rates[i] = (double)total / (seconds() - begin) / 1e6;
        close(fd);
    }
    free(buffer);
    return median(rates, RUNS);
}

static void print_pair(const char *metric, const char *unit, double ours, double peer,
                       const char *peer_name)
{
    printf("{\"bench\": \"data\", \"metric\": \"%s\", \"unit\": \"%s\", \"unisono\": %.6g, "
           "\"peer\": %.6g, "
           "\"peer_name\": \"%s\", \"ratio\": %.4g}\n",
           metric, unit, ours, peer, peer_name, ours / peer);
    fflush(stdout);
}

/* ---- under a memory limit (cgroup v1) ---- */

#define CGROUP "/sys/fs/cgroup/memory/unisono_bench"

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
    double total = 0;
    snprintf(path, sizeof path, "%s/memory.stat", group);
    FILE *file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%63s %lld", key, &value) == 2) {
        if (strcmp(key, "total_rss") == 0 || strcmp(key, "total_shmem") == 0)
            total += (double)value;
    }
    if (file != NULL)
        fclose(file);
    return total;
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

static void bench_limited(const char *self, bool quick)
{
    char group[128], path[256];
    const char *npy = path_of("limited.npy");
    make_npy(npy, quick ? 1 << 20 : 8 << 20, 256);
    snprintf(group, sizeof group, CGROUP "_%d", getpid());
    snprintf(path, sizeof path, "%s/memory.limit_in_bytes", group);
    if (mkdir(group, 0755) < 0 || !write_text(path, "536870912")) {
        fprintf(stderr,
                "data_bench: no memory cgroup can be made here: limited_memory is left out\n");
        rmdir(group);
        return;
    }
    double peak = 0, none = 0;
    (void)run_limited(self, npy, "", &none); /* warms the page cache */
    double free_rate = run_limited(self, npy, "", &none);
    double limited = run_limited(self, npy, group, &peak);
    rmdir(group);
    if (free_rate > 0 && limited > 0) {
        print_line("limited_memory_anon_mb", "MB", peak / 1e6);
        print_pair("limited_memory_speed", "MB/s", limited, free_rate, "unisono without the limit");
    }
}

/* Python's own program prints its own lines. It imports TensorFlow and PyTorch, which a smoke run does not wait for. */
static void bench_python(const char *csv)
{
    char exe[1000], command[9000];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *end = length > 0 ? (exe[length] = 0, strrchr(exe, '/')) : NULL;
    if (end == NULL)
        return;
    *end = 0;
    snprintf(command, sizeof command,
             "PYTHONPATH='%s/../python' \"$('%s/../tools/python-env' --path)\" '%s/data_python.py' "
             "'%s'",
             exe, UNI_BENCH_DIR, UNI_BENCH_DIR, csv);
    if (system(command) != 0)
        fprintf(stderr, "data_bench: no numbers from Python (is the package built, and were "
                        "TensorFlow and PyTorch installed by ./bench --setup data?)\n");
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (argc > 2 && strcmp(argv[1], "--read") == 0) {
        double begin = seconds();
        uni_dataset *dataset = open_dataset(argv[2], false);
        (void)read_through(dataset, INT64_MAX, NULL);
        printf("%.1f\n", (double)uni_dataset_bytes(dataset) / (seconds() - begin) / 1e6);
        uni_dataset_unref(dataset);
        return 0;
    }
    make_directory(quick);
    int64_t rows = quick ? 50000 : 1000000, npy_rows = quick ? 50000 : 1 << 20;
    const char *csv = path_of("floats.csv"), *npy = path_of("rows.npy");
    double first = 0, shuffled_first = 0;
    make_csv(csv, rows);
    double plain = rate_of(csv, false, rows, &first);
    print_line("csv_mb_per_s", "MB/s", plain);
    print_pair("csv_shuffle_mb_per_s", "MB/s", rate_of(csv, true, rows, &shuffled_first), plain,
               "unisono not shuffled");
    print_line("first_batch_ms", "ms", first > shuffled_first ? first : shuffled_first);
    make_npy(npy, npy_rows, 256);
    double sequential = pread_rate(npy);
    print_pair("npy_mb_per_s", "MB/s", rate_of(npy, false, npy_rows, NULL), sequential, "pread");
    const char *records = path_of("rows.tfrecord");
    make_tfrecord(records, npy_rows / 4);
    double records_sequential = pread_rate(records);
    print_pair("tfrecord_mb_per_s", "MB/s", rate_of(records, false, npy_rows / 4, NULL),
               records_sequential, "pread");
    uni_dataset *global = open_dataset(npy, true);
    double begin = seconds();
    int64_t taken = read_through(global, INT64_MAX, NULL);
    double took = seconds() - begin;
    uni_dataset_unref(global);
    print_pair("shuffle_rows_per_s", "1/s", (double)taken / took, sequential * 1e6 / 1024, "pread");
    bench_limited(argv[0], quick);
    if (!quick)
        bench_python(path_of("floats.csv"));
    return 0;
}
