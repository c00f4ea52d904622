/*
 * terminal.h - what the output supports: width, colours, Unicode; and the width of text there.
 * Determined once at the start; any thread may read it.
 */
#ifndef UNISONO_CLI_TERMINAL_H
#define UNISONO_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/safe_stream.h"

typedef struct cli_terminal {
    FILE *out;
    cli_safe *safe; /* filters the text of `out`; NULL: a plain stream, in tests */
    bool is_terminal; /* out is a terminal */
    bool colour;
    bool unicode; /* false: only ASCII */
    int width, height;
} cli_terminal;

/* when: auto, always or never; auto respects NO_COLOR. Width: COLUMNS, the terminal's, or 80. (100
 * in a pipe would break nothing, but examples in documents are 80 wide.) */
cli_terminal cli_terminal_of(FILE *out, const char *when);
/* Prints through a safe stream from now on. */
void cli_terminal_protect(cli_terminal *terminal);
/* Applies --color. */
void cli_terminal_colour(cli_terminal *terminal, const char *when);

typedef enum cli_style {
    CLI_PLAIN,
    CLI_BOLD,
    CLI_DIM,
    CLI_GOOD,
    CLI_BAD,
    CLI_WARN,
    CLI_INFO,
    CLI_SERIES /* CLI_SERIES + n: colour of rank or series n */
} cli_style;

/* An escape sequence without its ESC ("[2K"), to be printed to terminal->out. Valid forever. */
const char *cli_sequence(const cli_terminal *terminal, const char *sequence);
/* The escape sequence that begins or ends a style; "" without colour. Valid forever. */
const char *cli_begin(const cli_terminal *terminal, int style);
const char *cli_end(const cli_terminal *terminal, int style);
/* Prints text in a style. */
void cli_styled(const cli_terminal *terminal, int style, const char *text);

/* Columns that a UTF-8 text takes (combining marks 0, East Asian and emoji 2). */
int cli_width(const char *text);
/* Bytes of the longest prefix that fits in width columns. */
size_t cli_fit(const char *text, int width);
/* Prints text wrapped at spaces to the terminal's width, each line after `indent` spaces; the first
 * line starts at column `at`. Keeps line feeds. */
void cli_wrap(FILE *out, int width, int indent, int at, const char *text);
/* Prints text from a file or a worker on one line; also escapes line feeds and tabs. */
void cli_print_clean(FILE *out, const char *text);

#endif
