/* table.c - see table.h. Cells are kept until print, because widths are known only when all are
 * there. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/safe_text.h"
#include "cli/table.h"

#include "base/grow.h"

typedef struct cell {
    char *text;
    int style;
} cell;

struct cli_table {
    const cli_column *columns;
    char *titles[CLI_MAX_COLUMNS]; /* made safe: some are metric names */
    int num_columns;
    cell *cells;
    size_t count, capacity;
    bool failed;
};

/* A printable copy whose width is what it takes on the terminal; NULL if out of memory. */
static char *safe_copy(const char *text)
{
    uni__text safe = { 0 };
    uni__text_add_safe(&safe, text, strlen(text), "");
    return safe.data ? safe.data : strdup("");
}

cli_table *cli_table_new(const cli_column *columns, int num_columns)
{
    cli_table *table = calloc(1, sizeof *table);
    if (table) {
        table->columns = columns;
        table->num_columns = num_columns;
        for (int i = 0; i < num_columns && i < CLI_MAX_COLUMNS; i++)
            if (!(table->titles[i] = safe_copy(columns[i].title)))
                table->failed = true;
    }
    return table;
}

void cli_table_free(cli_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i].text);
    for (int i = 0; i < table->num_columns && i < CLI_MAX_COLUMNS; i++)
        free(table->titles[i]);
    free(table->cells);
    free(table);
}

void cli_table_cell(cli_table *table, int style, const char *format, ...)
{
    if (!table || table->failed)
        return;
    cell *cells = uni__grown(table->cells, table->count, &table->capacity, sizeof *cells);
    table->failed = cells == NULL;
    if (!cells)
        return;
    table->cells = cells;
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    char *safe = text ? safe_copy(text) : NULL;
    free(text);
    text = safe;
    table->failed = text == NULL;
    if (text)
        table->cells[table->count++] = (cell){ text, style };
}

#define GAP 2

static int total_width(const cli_table *table, const int *widths)
{
    int total = -GAP;
    for (int i = 0; i < table->num_columns; i++)
        if (widths[i] > 0)
            total += widths[i] + GAP;
    return total;
}

/* Narrows the widest columns until the row fits; false if it still does not. */
static bool shrink(const cli_table *table, int *widths, int room)
{
    while (total_width(table, widths) > room) {
        int widest = -1;
        for (int i = 0; i < table->num_columns; i++)
            if (table->columns[i].shrink_to && widths[i] > table->columns[i].shrink_to &&
                (widest < 0 || widths[i] > widths[widest]))
                widest = i;
        if (widest < 0)
            return false;
        widths[widest]--;
    }
    return true;
}

/* Drops columns one by one until the others can be made to fit. */
static void fit(const cli_table *table, int *widths, int room)
{
    int full[CLI_MAX_COLUMNS];
    memcpy(full, widths, sizeof full);
    while (!shrink(table, widths, room)) {
        int next = -1;
        for (int i = 0; i < table->num_columns; i++)
            if (full[i] && table->columns[i].drop &&
                (next < 0 || table->columns[i].drop < table->columns[next].drop))
                next = i;
        if (next < 0)
            return;
        full[next] = 0;
        memcpy(widths, full, sizeof full);
    }
}

static void print_cell(const cli_terminal *terminal, const char *text, int style, int width,
                       bool right, bool last)
{
    int columns = cli_width(text);
    const char *ellipsis = "";
    size_t bytes = strlen(text);
    if (columns > width) {
        ellipsis = terminal->unicode ? "…" : "~";
        bytes = cli_fit(text, width - 1);
        columns = width;
    }
    fprintf(terminal->out, "%*s%s%.*s%s%s%*s", right ? width - columns : 0, "",
            cli_begin(terminal, style), (int)bytes, text, ellipsis, cli_end(terminal, style),
            right || last ? 0 : width - columns, "");
}

void cli_table_print(const cli_table *table, const cli_terminal *terminal, int indent)
{
    if (!table || table->failed)
        return;
    int widths[CLI_MAX_COLUMNS] = { 0 };
    bool any_title = false;
    for (int i = 0; i < table->num_columns; i++) {
        widths[i] = cli_width(table->titles[i]);
        any_title = any_title || widths[i] > 0;
    }
    for (size_t i = 0; i < table->count; i++) {
        int width = cli_width(table->cells[i].text);
        int *widest = &widths[i % (size_t)table->num_columns];
        *widest = width > *widest ? width : *widest;
    }
    fit(table, widths, terminal->width - indent);
    int last = table->num_columns - 1;
    while (last > 0 && widths[last] == 0)
        last--;
    size_t rows = table->count / (size_t)table->num_columns;
    for (size_t row = any_title ? 0 : 1; row <= rows; row++) {
        fprintf(terminal->out, "%*s", indent, "");
        for (int i = 0; i <= last; i++) {
            if (widths[i] == 0)
                continue;
            const cell *here =
                row ? &table->cells[(row - 1) * (size_t)table->num_columns + (size_t)i] : NULL;
            print_cell(terminal, here ? here->text : table->titles[i], here ? here->style : CLI_DIM,
                       widths[i], table->columns[i].right, i == last);
            if (i < last)
                fprintf(terminal->out, "%*s", GAP, "");
        }
        fputc('\n', terminal->out);
    }
}
