/* data_files.c - see data_files.h. */
#include "data_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/crc32c.h"

static char directory[3000];

_Noreturn void bench_die(const char *what, const uni_error *err)
{
    fprintf(stderr, "data_bench: %s: %s\n", what, err != NULL ? err->message : "");
    exit(1);
}

void bench_make_directory(bool quick)
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
        bench_die(directory, NULL);
}

const char *bench_path(const char *name)
{
    static char paths[8][4096];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 4096, "%s/%s", directory, name);
    return path;
}

int64_t bench_disk_free(void)
{
    struct statvfs found;
    return statvfs(directory, &found) == 0 ? (int64_t)found.f_bavail * (int64_t)found.f_frsize : 0;
}

static bool has_size(const char *path, int64_t at_least)
{
    struct stat found;
    return stat(path, &found) == 0 && found.st_size >= at_least;
}

/* A file gets its name when it is whole. */
static FILE *begin_file(const char *path, char part[4200])
{
    snprintf(part, 4200, "%s.part", path);
    FILE *file = fopen(part, "w");
    if (file == NULL)
        bench_die(part, NULL);
    return file;
}

static void end_file(const char *path, const char *part, FILE *file, bool good)
{
    if (fclose(file) != 0 || !good || rename(part, path) != 0) {
        unlink(part);
        bench_die(part, NULL);
    }
}

void bench_make_csv(const char *path, int64_t rows)
{
    char part[4200];
    if (has_size(path, rows * 150))
        return;
    FILE *file = begin_file(path, part);
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
    end_file(path, part, file, !ferror(file));
}

void bench_make_npy(const char *path, int64_t rows, int width)
{
    char header[128], part[4200];
    static char block[1 << 20];
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
    for (size_t i = 0; i < sizeof block; i += sizeof(float)) {
        float value = (float)rand() / (float)RAND_MAX;
        memcpy(block + i, &value, sizeof value);
    }
    FILE *file = begin_file(path, part);
    bool good = fwrite(header, sizeof header, 1, file) == 1;
    float page =
        0; /* no two pages are the same: a machine that keeps such ones once reads them faster */
    for (int64_t left = bytes - 128; left > 0 && good; left -= (int64_t)sizeof block) {
        for (size_t i = 0; i < sizeof block; i += 4096, page++)
            memcpy(block + i, &page, sizeof page);
        size_t size = left < (int64_t)sizeof block ? (size_t)left : sizeof block;
        good = fwrite(block, size, 1, file) == 1;
    }
    end_file(path, part, file, good);
}

void bench_make_tfrecord(const char *path, int64_t rows)
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
    FILE *file = begin_file(path, part);
    bool good = true;
    for (int64_t i = 0; i < rows && good; i++)
        good = fwrite(record, RECORD, 1, file) == 1;
    end_file(path, part, file, good);
}

void bench_make_json(const char *path, int64_t rows)
{
    char part[4200];
    if (has_size(path, rows * 40))
        return;
    FILE *file = begin_file(path, part);
    for (int64_t i = 0; i < rows; i++)
        fprintf(file, "{\"id\": %lld, \"x\": [%.6f, %.6f], \"name\": \"row\"}\n", (long long)i,
                (double)i * 0.37, (double)i * 0.11);
    end_file(path, part, file, !ferror(file));
}

void bench_make_repeated(const char *path, const char *from, int64_t header, int64_t times)
{
    char part[4200];
    struct stat found;
    if (stat(from, &found) < 0)
        bench_die(from, NULL);
    int64_t body = found.st_size - header;
    if (has_size(path, header + times * body))
        return;
    char *bytes = malloc((size_t)found.st_size);
    FILE *source = fopen(from, "r"), *file = begin_file(path, part);
    bool good = bytes != NULL && source != NULL &&
                fread(bytes, (size_t)found.st_size, 1, source) == 1 &&
                (header == 0 || fwrite(bytes, (size_t)header, 1, file) == 1);
    for (int64_t i = 0; i < times && good; i++)
        good = fwrite(bytes + header, (size_t)body, 1, file) == 1;
    if (source != NULL)
        fclose(source);
    free(bytes);
    end_file(path, part, file, good);
}
