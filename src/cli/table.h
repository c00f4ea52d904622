/*
 * table.h - tables for people: columns as wide as their contents; when that is wider than the
 * terminal, first the widest that may shrink are cut with an ellipsis, then the columns that may go
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
    int drop; /* left out when there is no room, 1 first; 0: never */
    int shrink_to; /* may be cut to this many columns; 0: never */
} cli_column;

typedef struct cli_table cli_table;

cli_table *cli_table_new(const cli_column *columns, int num_columns); /* NULL without memory */
void cli_table_free(cli_table *table);
/* Adds the next cell, row by row. Without memory the table gets `failed` and prints nothing. */
void cli_table_cell(cli_table *table, int style, const char *format, ...) UNI_PRINTF(3, 4);
/* Prints it; titles underlined by colour. indent: spaces before each row. */
void cli_table_print(const cli_table *table, const cli_terminal *terminal, int indent);

#endif
