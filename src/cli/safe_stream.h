/*
 * safe_stream.h - the stream for all output of the command.
 *
 * It passes text through base/safe_text.h, so that no escape sequence from a file or a worker
 * reaches the terminal, whichever code prints it. The command's own sequences begin with a mark
 * instead of ESC: a few random bytes, different in every process, which text from outside cannot
 * guess. The stream writes ESC for the mark. One thread at a time, as for any FILE.
 */
#ifndef UNISONO_CLI_SAFE_STREAM_H
#define UNISONO_CLI_SAFE_STREAM_H

#include <stdio.h>

#include "base/text.h"

typedef struct cli_safe cli_safe;

/* Opens a stream on the descriptor. *out is NULL if out of memory; then use the plain stream. It
 * lives until the process ends. */
FILE *cli_safe_open(cli_safe **out, int fd, int buffering);
/* "MARK[1m" for "[1m": what to print for ESC [1m. Valid forever; "" for a sequence not in the list
 * of safe_stream.c. */
const char *cli_safe_sequence(const cli_safe *safe, const char *sequence);
/* What the stream would write for this text. */
void cli_safe_render(const cli_safe *safe, uni__text *out, const char *text, size_t size);
/* Adds a line of a program's output: keeps its colours if `colour`, makes everything else safe. */
void cli_safe_add_line(const cli_safe *safe, uni__text *out, const char *line, size_t size,
                       bool colour);

#endif
