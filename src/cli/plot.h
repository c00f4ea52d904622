/*
 * plot.h - curves: numbers over iterations, drawn in the terminal or as SVG and HTML. Thread: main.
 */
#ifndef UNISONO_CLI_PLOT_H
#define UNISONO_CLI_PLOT_H

#include "base/text.h"
#include "cli/format.h"
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

bool cli_series_add(cli_series *series, double x, double y); /* false if out of memory */
void cli_plot_free(cli_plot *plot);
/* Exponential smoothing like TensorBoard's (debiased); weight in [0, 1). Gaps stay. */
void cli_series_smooth(cli_series *series, double weight);

typedef struct cli_range {
    double low, high;
} cli_range;

/* The limits of an axis for these values, which are sorted in place: their range, slightly widened
 * if it is a single value. If that would squeeze the middle half of them, and `keep` (may be NULL),
 * into less than a hundredth of the axis, values far from the middle are left outside. A
 * logarithmic axis covers all positive values. Returns false if there is no value. */
bool cli_axis_range(double *values, size_t count, const cli_range *keep, bool log, cli_range *out);
/* The axes of a plot. y leaves out diverged values, but never ordinary first ones, so that a
 * falling loss is seen to fall. Returns false if nothing is finite. */
bool cli_plot_ranges(const cli_plot *plot, cli_range *x, cli_range *y);
/* Points outside the axis are drawn at its edge with a mark. CLI_GAP: cannot be drawn at all. */
typedef enum cli_side { CLI_BELOW = -1, CLI_INSIDE, CLI_ABOVE, CLI_GAP } cli_side;
cli_side cli_side_of(cli_range y, bool log, double value);
/* Round numbers in the range, including its ends, in at most `most` steps (powers of ten with log).
 * out has room for most + 1. Returns their number. */
int cli_ticks(cli_range range, bool log, int most, double *out);
/* The label of a tick, at most 9 characters. */
const char *cli_tick(double value, char out[CLI_SHORT]);
/* For counts (x_label "iteration"): integers only. */
int cli_ticks_of_x(const cli_plot *plot, cli_range x, int most, double *out);
/* The position of value in the range, from 0 to 1, clamped. */
double cli_place(cli_range range, bool log, double value);
typedef struct cli_series_stats {
    /* Over the finite values. */
    double last, low, high;
    /* Number of points that are not finite, that a logarithmic axis cannot show, and that are
     * outside the axis. */
    size_t gaps, not_positive, outside;
} cli_series_stats;
cli_series_stats cli_series_stats_of(const cli_plot *plot, size_t index, cli_range y);

/* width x height characters, with axes, title and legend. */
void cli_plot_text(const cli_plot *plot, const cli_terminal *terminal, int width, int height);
/* A self-contained SVG image, or an HTML page around it that shows the values under the pointer. */
void cli_plot_svg(const cli_plot *plot, uni__text *out);
void cli_plot_html(const cli_plot *plot, uni__text *out);

#endif
