/*
 * log_lines.h - the lines of the workers' log files, as they are written.
 *
 * Workers write to logs/rank_N.log themselves, so that none of them waits for a reader and nothing
 * is lost if the reader dies. If a file was rotated (its content moved to rank_N.log.1), the unread
 * part is read there, then the new file from its beginning. Used by the command and by the Python
 * package. One thread at a time.
 */
#ifndef UNISONO_TRACK_LOG_LINES_H
#define UNISONO_TRACK_LOG_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#include "base/compiler.h"

typedef struct uni__log_lines uni__log_lines;
/* A line without its end. For a bar that a program redraws in place, its last state. */
typedef void (*uni__log_line)(void *context, int rank, const char *line, size_t size);

/* wanted: by rank; NULL: all. from_end: only what is written from now on. The files may appear
 * later. */
UNI__SHARED int uni__log_lines_new(uni__log_lines **out, const char *run_dir, int num_ranks,
                                   const bool *wanted, bool from_end, uni_error *err) UNI_MUST_USE;
/* Passes complete lines to `take`, in the order of the ranks; returns the number of bytes read. */
UNI__SHARED size_t uni__log_lines_poll(uni__log_lines *lines, uni__log_line take, void *context);
/* Passes on all that is left, including a last line without a line feed. */
UNI__SHARED void uni__log_lines_drain(uni__log_lines *lines, uni__log_line take, void *context);
/* Where the next line of that rank begins in its file; -1: that rank is not wanted. */
int64_t uni__log_lines_begin(const uni__log_lines *lines, int rank);
UNI__SHARED void uni__log_lines_free(uni__log_lines *lines);

#endif
