/*
 * decompress.h - compressed files (.gz, .zst) as streams of bytes and of lines, for the sources of
 * src/data. The libraries are plug-ins (codec_plugin.h), loaded with the first such file. A stream
 * belongs to one thread.
 */
#ifndef UNISONO_DATA_DECOMPRESS_H
#define UNISONO_DATA_DECOMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>
#include "data/sources/source.h"

typedef struct uni__stream uni__stream;

/* By suffix: .gz, .gzip, .zst, .zstd, ignoring case. */
bool uni__is_compressed(const char *path);
/* Opens any file; one that is not compressed is read as it is. */
int uni__stream_open(uni__stream **out, const char *path, uni_error *err) UNI_MUST_USE;
void uni__stream_close(uni__stream *stream);
const char *uni__stream_path(const uni__stream *stream);

/* Reads up to `size` bytes. *got is less than size only at the end, or before corrupt data; then
 * uni__stream_good is false, and the next call fails. Corrupt data is UNI_EFORMAT, a truncated file
 * UNI_ECORRUPT, both with the path. */
int uni__stream_read(uni__stream *stream, void *out, size_t size, size_t *got,
                     uni_error *err) UNI_MUST_USE;
bool uni__stream_good(const uni__stream *stream);
/* Call after a function returned status < 0. Returns 0 if the data is corrupt and the user skips
 * bad rows: the rest of the file counts as one bad row. Otherwise returns status. */
int uni__stream_pass_over(const uni__stream *stream, uni__reader *reader, int status,
                          uni_error *err) UNI_MUST_USE;

/* Reads whole lines: at least one, otherwise as many as fit in about `want` bytes. *text is valid
 * until the next call, and 64 bytes after it are readable; the last line of the file may lack its
 * newline. *line is the number of the first line, from 1. *size is 0 at the end. A line of more
 * than 32 MiB is UNI_ELIMIT. quote: 0, or the quote of CSV, which opens a cell only after
 * `delimiter` or at the beginning of a line. Newlines inside quoted cells do not end a line. */
int uni__stream_lines(uni__stream *stream, size_t want, char quote, char delimiter,
                      const char **text, size_t *size, int64_t *line, uni_error *err) UNI_MUST_USE;

/* A stream's cursor over consecutive files; sources begin their own cursor with it. */
typedef struct uni__file_cursor {
    int file, step; /* next file, and the distance to the one after it */
    uni__stream *stream; /* NULL: between two files */
} uni__file_cursor;

/* Creates a zeroed cursor of `size` bytes at the first file. */
int uni__file_cursor_new(void **out, size_t size, uni_error *err) UNI_MUST_USE;
/* For stream_files and stream_close (source.h). */
void uni__file_cursor_choose(void *self, void *cursor, int first, int step);
void uni__file_cursor_free(void *self, void *cursor);
/* Between two files: opens the next one and returns 1, or 0 if there is none. Inside a file:
 * returns 2. */
int uni__file_cursor_next(uni__file_cursor *cursor, const uni__files *files,
                          uni_error *err) UNI_MUST_USE;
void uni__file_cursor_end_file(uni__file_cursor *cursor);

#endif
