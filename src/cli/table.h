/*
 * table.h - tables: columns are as wide as their contents. If that exceeds the terminal, the widest
 * columns that may shrink are first truncated with an ellipsis, then columns that may be dropped
 * are left out. Thread: main.
 */
#ifndef UNISONO_CLI_TABLE_H
#define UNISONO_CLI_TABLE_H

#include <unisono/status.h>

#include "cli/terminal.h"

#define CLI_MAX_COLUMNS 16

typedef struct cli_column {
    const char *title;
    bool right; /* numbers */
    int drop; /* dropped if there is no room, 1 first; 0: never */
    int shrink_to; /* may be truncated to this many columns; 0: never */
} cli_column;

typedef struct cli_table cli_table;

cli_table *cli_table_new(const cli_column *columns, int num_columns); /* NULL if out of memory */
void cli_table_free(cli_table *table);
/* Adds the next cell, row by row. If out of memory, the table is marked `failed` and prints
 * nothing. */
void cli_table_cell(cli_table *table, int style, const char *format, ...) UNI_PRINTF(3, 4);
/* Prints the table, with titles underlined by colour. indent: spaces before each row. */
void cli_table_print(const cli_table *table, const cli_terminal *terminal, int indent);

#endif
