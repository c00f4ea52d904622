/*
 * safe_stream.h - the stream that everything of the command is printed to.
 *
 * It passes text through base/safe_text.h, so nothing from a file or a worker reaches the terminal
 * as an escape sequence, whoever prints it. The command's own sequences begin with a mark instead
 * of ESC: a few random bytes, different in every process, which text from outside cannot guess.
 * The stream writes ESC for the mark. One thread at a time, as for any FILE.
 */
#ifndef UNISONO_CLI_SAFE_STREAM_H
#define UNISONO_CLI_SAFE_STREAM_H

#include <stdio.h>

#include "base/text.h"

typedef struct cli_safe cli_safe;

/* A stream on the descriptor; *out is NULL without memory (then use the plain one). It lives until
 * the process ends. */
FILE *cli_safe_open(cli_safe **out, int fd, int buffering);
/* "MARK[1m" for "[1m": what to print for ESC [1m. Valid for ever; "" for a sequence not in the list
 * of safe_stream.c. */
const char *cli_safe_sequence(const cli_safe *safe, const char *sequence);
/* What the stream would write for this text. */
void cli_safe_render(const cli_safe *safe, uni__text *out, const char *text, size_t size);
/* Adds a line of a program's output: its colours stay when `colour`, everything else is made
 * safe. */
void cli_safe_add_line(const cli_safe *safe, uni__text *out, const char *line, size_t size,
                       bool colour);

#endif
