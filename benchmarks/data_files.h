/*
 * data_files.h - the files that the suite data of ./bench reads: made in a directory of the user's
 * cache, kept there when they are small. Whatever cannot be made ends the program.
 */
#ifndef UNISONO_BENCH_DATA_FILES_H
#define UNISONO_BENCH_DATA_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/status.h>

_Noreturn void bench_die(const char *what, const uni_error *err);

void bench_make_directory(bool quick);
/* A file of that directory; the names of the last eight calls stay. */
const char *bench_path(const char *name);
/* Bytes that can still be written there, and memory that is free or page cache. */
int64_t bench_disk_free(void);

/* Ten columns of normal numbers with all their digits, as pandas writes them. */
void bench_make_csv(const char *path, int64_t rows);
/* float32 (rows, width), really written: holes of a file read faster than any memory. */
void bench_make_npy(const char *path, int64_t rows, int width);
/* Examples of one feature x with 256 floats. */
void bench_make_tfrecord(const char *path, int64_t rows);
/* A line of JSON, or of text, a row. */
void bench_make_json(const char *path, int64_t rows);
/* `times` times the contents of `from` behind its first `header` bytes, which come once. */
void bench_make_repeated(const char *path, const char *from, int64_t header, int64_t times);

#endif
