/*
 * plot_text.c - curves in the terminal: braille characters give 2 x 4 dots per cell; without
 * Unicode, one mark per cell. Each series has its colour (or its mark). The legend gives the last
 * and the extreme values, because dots cannot be read off.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/plot.h"

typedef struct canvas {
    int columns, rows; /* characters */
    int dots_x, dots_y; /* dots per character: 2 x 4, or 1 x 1 */
    unsigned char *bits; /* columns * rows */
    unsigned char *owner; /* series + 1 that last drew there */
    /* For a point outside the axis: CLI_ABOVE or CLI_BELOW. */
    signed char *edge;
} canvas;

static void set_dot(canvas *paper, int x, int y, size_t series)
{
    /* Unicode's numbering of the eight dots, by row and column. */
    static const unsigned char bit[4][2] = { { 1, 8 }, { 2, 16 }, { 4, 32 }, { 64, 128 } };
    if (x < 0 || y < 0 || x >= paper->columns * paper->dots_x || y >= paper->rows * paper->dots_y)
        return;
    size_t cell =
        (size_t)(y / paper->dots_y) * (size_t)paper->columns + (size_t)(x / paper->dots_x);
    paper->bits[cell] |= paper->dots_x == 2 ? bit[y % 4][x % 2] : 1;
    paper->owner[cell] = (unsigned char)(series % 250 + 1);
}

static void draw_line(canvas *paper, int x0, int y0, int x1, int y1, size_t series)
{
    int dx = abs(x1 - x0), dy = -abs(y1 - y0);
    int step_x = x0 < x1 ? 1 : -1, step_y = y0 < y1 ? 1 : -1;
    for (int error = dx + dy;;) {
        set_dot(paper, x0, y0, series);
        if (x0 == x1 && y0 == y1)
            return;
        int twice = 2 * error;
        if (twice >= dy) {
            error += dy;
            x0 += step_x;
        }
        if (twice <= dx) {
            error += dx;
            y0 += step_y;
        }
    }
}

static void draw_series(canvas *paper, const cli_plot *plot, size_t index, cli_range x, cli_range y)
{
    const cli_series *series = &plot->series[index];
    int width = paper->columns * paper->dots_x - 1, height = paper->rows * paper->dots_y - 1;
    cli_side before = CLI_GAP;
    int last_x = 0, last_y = 0;
    for (size_t i = 0; i < series->count; i++) {
        cli_side side = cli_side_of(y, plot->log_y, series->y[i]);
        bool joined = before != CLI_GAP && (side == CLI_INSIDE || side != before);
        before = side;
        if (side == CLI_GAP)
            continue;
        int at_x = (int)lround(cli_place(x, false, series->x[i]) * width);
        int at_y = height - (int)lround(cli_place(y, plot->log_y, series->y[i]) * height);
        draw_line(paper, joined ? last_x : at_x, joined ? last_y : at_y, at_x, at_y, index);
        if (side != CLI_INSIDE)
            paper->edge[(size_t)(at_y / paper->dots_y) * (size_t)paper->columns +
                        (size_t)(at_x / paper->dots_x)] = (signed char)side;
        last_x = at_x;
        last_y = at_y;
    }
}

static const char marks[] = "*o+x#@%&";

static const char *edge_mark(const cli_terminal *terminal, int side)
{
    if (terminal->unicode)
        return side == CLI_ABOVE ? "▲" : "▼";
    return side == CLI_ABOVE ? "^" : "v";
}

static void print_cells(const canvas *paper, const cli_terminal *terminal, int row)
{
    int style = -1;
    int last = paper->columns;
    const unsigned char *bits = paper->bits + (size_t)row * (size_t)paper->columns;
    const unsigned char *owner = paper->owner + (size_t)row * (size_t)paper->columns;
    const signed char *edge = paper->edge + (size_t)row * (size_t)paper->columns;
    while (last > 0 && !bits[last - 1])
        last--;
    for (int column = 0; column < last; column++) {
        if (bits[column] && owner[column] != style) {
            fputs(style >= 0 ? cli_end(terminal, CLI_SERIES) : "", terminal->out);
            fputs(cli_begin(terminal, CLI_SERIES + owner[column] - 1), terminal->out);
            style = owner[column];
        }
        if (!bits[column])
            fputc(' ', terminal->out);
        else if (edge[column])
            fputs(edge_mark(terminal, edge[column]), terminal->out);
        else if (paper->dots_x == 2)
            fprintf(terminal->out, "\xe2%c%c", 0xa0 | bits[column] >> 6,
                    0x80 | (bits[column] & 0x3f));
        else
            fputc(marks[(owner[column] - 1) % 8], terminal->out);
    }
    fprintf(terminal->out, "%s\n", style >= 0 ? cli_end(terminal, CLI_SERIES) : "");
}

#define GUTTER 10 /* the y labels and the axis */

/* Labels of the y axis by row. */
static void label_rows(char (*labels)[CLI_SHORT], int rows, cli_range y, bool log)
{
    double ticks[16];
    int most = rows / 3 < 2 ? 2 : rows / 3 > 10 ? 10 : rows / 3;
    int count = cli_ticks(y, log, most, ticks);
    for (int i = 0; i < count; i++) {
        int row = rows - 1 - (int)lround(cli_place(y, log, ticks[i]) * (rows - 1));
        if (row >= 0 && row < rows)
            cli_tick(ticks[i], labels[row]);
    }
}

static void print_x_axis(const cli_terminal *terminal, const cli_plot *plot, cli_range x,
                         int columns)
{
    char line[512];
    memset(line, ' ', sizeof line);
    double ticks[16];
    int most = columns / 12 < 2 ? 2 : columns / 12 > 15 ? 15 : columns / 12;
    int count = cli_ticks_of_x(plot, x, most, ticks);
    fprintf(terminal->out, "%*s%s", GUTTER - 1, "", terminal->unicode ? "└" : "+");
    char axis[512] = "";
    int free_from = 0;
    for (int i = 0; i < columns; i++)
        axis[i] = '-';
    for (int i = 0; i < count; i++) {
        char text[CLI_SHORT];
        cli_tick(ticks[i], text);
        int at = (int)lround(cli_place(x, false, ticks[i]) * (columns - 1));
        int from = at - (int)strlen(text) / 2;
        from = from < 0 ? 0 : from;
        if (from < free_from || from + (int)strlen(text) > columns)
            continue;
        memcpy(line + from, text, strlen(text));
        free_from = from + (int)strlen(text) + 2;
        axis[at] = '+';
    }
    for (int i = 0; i < columns; i++)
        fputs(!terminal->unicode ? (axis[i] == '+' ? "+" : "-")
              : axis[i] == '+'   ? "┬"
                                 : "─",
              terminal->out);
    fprintf(terminal->out, "\n%*s%.*s", GUTTER, "", columns, line);
    fprintf(terminal->out, "\n%*s%s%s%s\n", GUTTER + (columns - cli_width(plot->x_label)) / 2, "",
            cli_begin(terminal, CLI_DIM), plot->x_label, cli_end(terminal, CLI_DIM));
}

static void print_count(const cli_terminal *terminal, size_t count, const char *what)
{
    if (count)
        fprintf(terminal->out, "  %s%zu %s%s", cli_begin(terminal, CLI_WARN), count, what,
                cli_end(terminal, CLI_WARN));
}

static void print_legend(const cli_terminal *terminal, const cli_plot *plot, cli_range y)
{
    size_t outside = 0;
    for (size_t i = 0; i < plot->num_series; i++) {
        cli_series_stats stats = cli_series_stats_of(plot, i, y);
        char last[CLI_SHORT], low[CLI_SHORT], high[CLI_SHORT], mark[2] = { marks[i % 8], 0 };
        int style = CLI_SERIES + (int)(i % 250);
        fprintf(terminal->out, "  %s%s%s %s", cli_begin(terminal, style),
                terminal->unicode ? "━━" : mark, cli_end(terminal, style), plot->series[i].label);
        fprintf(
            terminal->out, "  %slast%s %s  %smin%s %s  %smax%s %s", cli_begin(terminal, CLI_DIM),
            cli_end(terminal, CLI_DIM), cli_number(stats.last, last), cli_begin(terminal, CLI_DIM),
            cli_end(terminal, CLI_DIM), cli_number(stats.low, low), cli_begin(terminal, CLI_DIM),
            cli_end(terminal, CLI_DIM), cli_number(stats.high, high));
        print_count(terminal, stats.gaps, "not finite");
        print_count(terminal, stats.not_positive, "not above 0");
        print_count(terminal, stats.outside, "outside the axis");
        outside += stats.outside;
        fputc('\n', terminal->out);
    }
    if (outside)
        fprintf(terminal->out, "  %s %s outside the axis, drawn at its edge%s\n",
                edge_mark(terminal, CLI_ABOVE), edge_mark(terminal, CLI_BELOW),
                y.low > 0 && !plot->log_y ? "; --log shows the whole range" : "");
}

void cli_plot_text(const cli_plot *plot, const cli_terminal *terminal, int width, int height)
{
    cli_range x, y = { -INFINITY, INFINITY };
    int columns = width - GUTTER - 1, rows = height;
    columns = columns > 500 ? 500 : columns < 20 ? 20 : columns;
    rows = rows > 200 ? 200 : rows < 4 ? 4 : rows;
    canvas paper = { columns, rows, terminal->unicode ? 2 : 1, terminal->unicode ? 4 : 1, NULL,
                     NULL,    NULL };
    paper.bits = calloc((size_t)columns * (size_t)rows, 1);
    paper.owner = calloc((size_t)columns * (size_t)rows, 1);
    paper.edge = calloc((size_t)columns * (size_t)rows, 1);
    char(*labels)[CLI_SHORT] = calloc((size_t)rows, sizeof *labels);
    fprintf(terminal->out, "%*s%s%s%s%s\n", GUTTER, "", cli_begin(terminal, CLI_BOLD), plot->title,
            plot->log_y ? " (logarithmic)" : "", cli_end(terminal, CLI_BOLD));
    if (paper.bits && paper.owner && paper.edge && labels && cli_plot_ranges(plot, &x, &y)) {
        label_rows(labels, rows, y, plot->log_y);
        for (size_t i = plot->num_series; i > 0; i--) /* the first one on top */
            draw_series(&paper, plot, i - 1, x, y);
        for (int row = 0; row < rows; row++) {
            const char *axis = !terminal->unicode ? (labels[row][0] ? "+" : "|")
                               : labels[row][0]   ? "┤"
                                                  : "│";
            fprintf(terminal->out, "%*s %s", GUTTER - 2, labels[row], axis);
            print_cells(&paper, terminal, row);
        }
        print_x_axis(terminal, plot, x, columns);
    } else {
        fprintf(terminal->out, "%*sno finite numbers to draw\n", GUTTER, "");
    }
    print_legend(terminal, plot, y);
    free(paper.bits);
    free(paper.owner);
    free(paper.edge);
    free(labels);
}
