/*
 * plot.h - curves: numbers over iterations, drawn in the terminal or as SVG and HTML. Thread: main.
 */
#ifndef UNISONO_CLI_PLOT_H
#define UNISONO_CLI_PLOT_H

#include "base/text.h"
#include "cli/terminal.h"

typedef struct cli_series {
    char label[160];
    double *x, *y; /* y may be NaN or infinite: a gap */
    size_t count, capacity;
} cli_series;

typedef struct cli_plot {
    char title[160];
    const char *x_label;
    cli_series *series;
    size_t num_series;
    bool log_y;
} cli_plot;

bool cli_series_add(cli_series *series, double x, double y); /* false without memory */
void cli_plot_free(cli_plot *plot);
/* Exponential smoothing as TensorBoard does it (debiased); weight in [0, 1). Gaps stay. */
void cli_series_smooth(cli_series *series, double weight);

typedef struct cli_range {
    double low, high;
} cli_range;

/* What the finite points cover (positive y only with log_y), a little widened when it is one point.
 * false when there is none. */
bool cli_plot_ranges(const cli_plot *plot, cli_range *x, cli_range *y);
/* At most `most` round numbers in the range (powers of ten and halves with log); returns how many.
 */
int cli_ticks(cli_range range, bool log, int most, double *out);
/* For what is counted (x_label "iteration"): whole numbers only. */
int cli_ticks_of_x(const cli_plot *plot, cli_range x, int most, double *out);
/* Where value lies in the range, 0..1. */
double cli_place(cli_range range, bool log, double value);
/* last, smallest and largest finite y; the number of points that are not finite. */
typedef struct cli_series_stats {
    double last, low, high;
    size_t gaps;
} cli_series_stats;
cli_series_stats cli_series_stats_of(const cli_series *series);

/* width x height characters, with axes, title and legend. */
void cli_plot_text(const cli_plot *plot, const cli_terminal *terminal, int width, int height);
/* A self-contained SVG picture, or an HTML page around it with the numbers under the pointer. */
void cli_plot_svg(const cli_plot *plot, uni__text *out);
void cli_plot_html(const cli_plot *plot, uni__text *out);

#endif
