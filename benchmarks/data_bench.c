/*
 * data_bench.c - the suite data of ./bench: files to batches. The files are made in a directory of
 * the user's cache (data_files.h) and are read warm; the peers (peers/data_readers.py) read the
 * same ones. Rates are medians of five runs after a warm-up, each checked for the number of rows;
 * ratios are those of runs that follow each other, so that a change of the machine's speed meets
 * both.
 *
 *   data_bench [--quick] [--only csv|npy|tfrecord|shuffle|first|stall|limited|python]
 *   data_bench --read FILE   reads it through and prints MB/s (what runs under the memory limit)
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unisono/data.h>
#include "data/shared.h"
#include "base/machine_limits.h"
#include "bench_numbers.h"
#include "data_bench.h"
#include "data_files.h"

enum { RUNS = 5, BATCH = 256 };

void bench_line(const char *metric, const char *unit, double value)
{
    printf("{\"bench\": \"data\", \"metric\": \"%s\", \"unit\": \"%s\", \"unisono\": %.6g}\n",
           metric, unit, value);
    fflush(stdout);
}

void bench_pair(const char *metric, const char *unit, double ours, double peer,
                const char *peer_name, double ratio)
{
    printf("{\"bench\": \"data\", \"metric\": \"%s\", \"unit\": \"%s\", \"unisono\": %.6g, "
           "\"peer\": %.6g, \"peer_name\": \"%s\", \"ratio\": %.4g}\n",
           metric, unit, ours, peer, peer_name, ratio);
    fflush(stdout);
}

/* ---- reading ---- */

uni_dataset *bench_open(const char *path, bool shuffle)
{
    uni_dataset *dataset = NULL, *shuffled = NULL;
    uni_error err = { 0 };
    if (uni_dataset_read(&dataset, 1, &path, &err) < 0)
        bench_die(path, &err);
    if (!shuffle)
        return dataset;
    if (uni_dataset_shuffle(&shuffled, dataset, 0, 1, &err) < 0)
        bench_die("shuffle", &err);
    uni_dataset_unref(dataset);
    return shuffled;
}

/* Takes batches until `most` rows (-1: all); returns the rows. */
static int64_t read_through(uni_dataset *dataset, int64_t most)
{
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL;
    uni_error err = { 0 };
    int64_t rows = 0;
    int more = 1;
    if (uni_dataset_iterate(&it, dataset, &(uni_data_options){ .batch_size = BATCH }, &err) < 0)
        bench_die("iterate", &err);
    while ((most < 0 || rows < most) && (more = uni_dataset_iterator_next(&batch, it, &err)) > 0) {
        rows += uni_table_num_rows(batch);
        uni_table_unref(batch);
    }
    if (more < 0)
        bench_die("next", &err);
    uni_dataset_iterator_free(it);
    return rows;
}

/* MB/s of the file, from opening it on. */
static double read_rate(const char *path, bool shuffle, int64_t rows)
{
    double begin = now_s();
    uni_dataset *dataset = bench_open(path, shuffle);
    int64_t taken = read_through(dataset, -1);
    double rate = (double)uni__dataset_bytes(dataset) / (now_s() - begin) / 1e6;
    uni_dataset_unref(dataset);
    if (rows >= 0 && taken != rows)
        bench_die("a wrong number of rows", NULL);
    return rate;
}

/* The same bytes with one pread after the other, 1 MiB each. */
static double pread_rate(const char *path)
{
    enum { SIZE = 1 << 20 };
    static char buffer[SIZE];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    double begin = now_s();
    int64_t total = 0;
    ssize_t got;
    while ((got = pread(fd, buffer, SIZE, total)) > 0)
        total += got;
    close(fd);
    return (double)total / (now_s() - begin) / 1e6;
}

/* Ours and a peer (the plain order when `path` is read shuffled, otherwise pread) in turn. */
static void bench_in_turn(const char *metric, const char *path, bool shuffle, int64_t rows,
                          int runs, double unit_bytes)
{
    double ours[RUNS], peers[RUNS], ratios[RUNS];
    bool plain = shuffle && unit_bytes == 0;
    for (int i = -1; i < runs; i++) {
        double peer = plain ? read_rate(path, false, rows) : pread_rate(path);
        double own = read_rate(path, shuffle, rows);
        if (i < 0)
            continue;
        ours[i] = own;
        peers[i] = peer;
        ratios[i] = own / peer;
    }
    double scale = unit_bytes > 0 ? 1e6 / unit_bytes : 1;
    bench_pair(metric, unit_bytes > 0 ? "1/s" : "MB/s", numbers_of(ours, runs).median * scale,
               numbers_of(peers, runs).median * scale, plain ? "unisono not shuffled" : "pread",
               numbers_of(ratios, runs).median);
}

/* ---- the parts ---- */

static void bench_csv(bool quick)
{
    int64_t rows = quick ? 50000 : 1000000;
    const char *csv = bench_path("floats.csv");
    double rates[RUNS];
    bench_make_csv(csv, rows);
    for (int i = -1; i < RUNS; i++) {
        double rate = read_rate(csv, false, rows);
        rates[i < 0 ? 0 : i] = rate;
    }
    bench_line("csv_mb_per_s", "MB/s", sorted(rates, RUNS).median);
    bench_in_turn("csv_shuffle_mb_per_s", csv, true, rows, RUNS, 0);
}

static void bench_npy(bool quick)
{
    int64_t rows = quick ? 50000 : 1 << 20;
    const char *npy = bench_path("rows.npy");
    bench_make_npy(npy, rows, 256);
    bench_in_turn("npy_mb_per_s", npy, false, rows, RUNS, 0);
}

static void bench_tfrecord(bool quick)
{
    int64_t rows = quick ? 12500 : 1 << 20;
    const char *records = bench_path("rows.tfrecord");
    bench_make_tfrecord(records, rows);
    bench_in_turn("tfrecord_mb_per_s", records, false, rows, RUNS, 0);
}

/* Ten million rows of 1 KB, or as many as disk and page cache have room for, which is said. */
static void bench_shuffle(bool quick)
{
    int64_t rows = quick ? 50000 : 10000000, least = rows;
    int64_t disk = bench_disk_free(), memory = (int64_t)uni__memory_available();
    int64_t room = disk < memory ? disk : memory;
    const char *npy = bench_path(quick ? "rows.npy" : "many_rows.npy");
    if (rows * 1024 * 5 / 4 > room)
        rows = room / 1024 * 4 / 5;
    if (rows < least)
        fprintf(stderr,
                "data_bench: shuffle_rows_per_s is of %lld rows: there is no room for more\n",
                (long long)rows);
    bench_make_npy(npy, rows, 256);
    bench_in_turn("shuffle_rows_per_s", npy, true, rows, quick ? RUNS : 2, 1024);
    if (!quick)
        unlink(npy);
}

/* From opening the file to the first batch in hand; the median of five. */
static double first_batch_ms(const char *path, bool shuffle)
{
    double times[RUNS];
    for (int i = -1; i < RUNS; i++) {
        double begin = now_s();
        uni_dataset *dataset = bench_open(path, shuffle);
        if (read_through(dataset, 1) < 1)
            bench_die("no first batch", NULL);
        times[i < 0 ? 0 : i] = (now_s() - begin) * 1e3;
        uni_dataset_unref(dataset);
    }
    return sorted(times, RUNS).median;
}

/* Every kind of source, shuffled or not; the file's size is part of the name. One that takes 20 ms
 * or more ends the program with an error. */
static bool bench_first(bool quick)
{
    static const char *const names[] = { "floats.csv", "rows.npy", "rows.tfrecord", "lines.jsonl",
                                         "lines.txt" };
    int64_t scale = quick ? 1 : 20;
    double worst = 0;
    bench_make_csv(bench_path(names[0]), 50000 * scale);
    bench_make_npy(bench_path(names[1]), 50000 * scale, 256);
    bench_make_tfrecord(bench_path(names[2]), quick ? 12500 : 1 << 18);
    bench_make_json(bench_path(names[3]), 100000 * scale);
    bench_make_json(bench_path(names[4]), 100000 * scale);
    for (size_t i = 0; i < 2 * (sizeof names / sizeof *names); i++) {
        double ms = first_batch_ms(bench_path(names[i / 2]), i % 2 == 1);
        char metric[64];
        snprintf(metric, sizeof metric, "first_batch_ms_%s%s", strchr(names[i / 2], '.') + 1,
                 i % 2 == 1 ? "_shuffled" : "");
        bench_line(metric, "ms", ms);
        worst = ms > worst ? ms : worst;
    }
    bench_line("first_batch_ms", "ms", worst);
    if (worst >= 20)
        fprintf(stderr, "data_bench: a first batch took %.1f ms, 20 are promised\n", worst);
    return worst < 20;
}

/* What the example csv_fit says of itself: how much of its time training waited for batches;
 * negative when it is not there. */
static double stall_of(const char *command)
{
    char line[400];
    double percent = -1;
    FILE *output = popen(command, "r");
    while (output != NULL && fgets(line, sizeof line, output) != NULL) {
        const char *found = strstr(line, "waited for data ");
        percent = found != NULL ? atof(found + strlen("waited for data ")) : percent;
    }
    return output != NULL && pclose(output) == 0 ? percent : -1;
}

/* The median of five runs each, of 10 and of 100 epochs. */
static void bench_stall(void)
{
    static const struct {
        const char *metric;
        int epochs;
    } cases[] = { { "stall_percent", 10 }, { "stall_percent_long", 100 } };
    char exe[1000], command[3000];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *end = length > 0 ? (exe[length] = 0, strrchr(exe, '/')) : NULL;
    if (end == NULL)
        return;
    *end = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double percents[RUNS];
        snprintf(command, sizeof command,
                 "'%s/../examples/engine/engine_csv_fit' --quiet --epochs %d --data "
                 "'%s/../examples/data/digits.csv'",
                 exe, cases[i].epochs, UNI_BENCH_DIR);
        bool there = true;
        for (int run = 0; run < RUNS; run++) {
            percents[run] = stall_of(command);
            there = there && percents[run] >= 0;
        }
        if (!there) {
            fprintf(stderr, "data_bench: examples/engine/csv_fit is not built: no stall_percent\n");
            return;
        }
        bench_line(cases[i].metric, "%", sorted(percents, RUNS).median);
    }
}

/* Python's own program prints its own lines. It imports TensorFlow and PyTorch, which a smoke run
 * does not wait for. */
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
    const char *only = "";
    bool quick = false, good = true;
    if (argc > 2 && strcmp(argv[1], "--read") == 0) {
        printf("%.1f\n", read_rate(argv[2], false, -1));
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        quick |= strcmp(argv[i], "--quick") == 0;
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
    }
    bench_make_directory(quick);
    static const struct {
        const char *name;
        void (*run)(bool quick);
    } parts[] = { { "csv", bench_csv },
                  { "npy", bench_npy },
                  { "tfrecord", bench_tfrecord },
                  { "shuffle", bench_shuffle } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (only[0] == 0 || strcmp(only, parts[i].name) == 0)
            parts[i].run(quick);
    if (only[0] == 0 || strcmp(only, "first") == 0)
        good = bench_first(quick);
    if (only[0] == 0 || strcmp(only, "stall") == 0)
        bench_stall();
    if (only[0] == 0 || strcmp(only, "limited") == 0)
        bench_limited(argv[0], quick);
    if (strcmp(only, "python") == 0 || (only[0] == 0 && !quick))
        bench_python(bench_path("floats.csv"));
    return good || quick ? 0 : 1; /* a smoke run shares the machine with others */
}
