/*
 * decompress.h - compressed files (.gz, .zst) as streams of bytes and of lines, for the sources of
 * src/data. The libraries are plug-ins (codec_plugin.h) that are opened with the first such file. A
 * stream belongs to one thread.
 */
#ifndef UNISONO_DATA_DECOMPRESS_H
#define UNISONO_DATA_DECOMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>
#include "data/source.h"

typedef struct uni__stream uni__stream;

/* By the end of the name: .gz, .gzip, .zst, .zstd (case does not matter). */
bool uni__is_compressed(const char *path);
/* Any file; one that is not compressed is read as it is. */
int uni__stream_open(uni__stream **out, const char *path, uni_error *err) UNI_MUST_USE;
void uni__stream_close(uni__stream *stream);
const char *uni__stream_path(const uni__stream *stream);

/* Up to `size` bytes, as many as there are. *got is less than size only at the end, or before bytes that are damaged (then uni__stream_good is false, and the
 * next call fails). Damaged bytes are UNI_EFORMAT, a file that ends in the middle UNI_ECORRUPT, both with the path. */
int uni__stream_read(uni__stream *stream, void *out, size_t size, size_t *got,
                     uni_error *err) UNI_MUST_USE;
bool uni__stream_good(const uni__stream *stream);
/* After a call that returned status < 0: 0 when the bytes are damaged and the user skips what is bad: the rest of the file counts as one bad row; otherwise status. */
int uni__stream_pass_over(const uni__stream *stream, uni__reader *reader, int status,
                          uni_error *err) UNI_MUST_USE;

/* Whole lines: at least one, otherwise as many as fit in about `want` bytes. *text is valid until the next call, with 64
 * readable bytes behind; the last line of the file may lack its newline. *line is the number of the first one (from 1).
 * *size is 0 at the end. A line of more than 1 GiB is UNI_ELIMIT. `quote`: 0, or that of CSV, in cells with which (it opens one only behind `delimiter` or at
 * the line's begin) newlines do not end a line; such a record may be 64 MiB long. */
int uni__stream_lines(uni__stream *stream, size_t want, char quote, char delimiter,
                      const char **text, size_t *size, int64_t *line, uni_error *err) UNI_MUST_USE;

#endif
