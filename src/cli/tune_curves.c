/*
 * tune_curves.c - the learning curves of an experiment's page (tune_page.c): the metric of every
 * trial by iteration, in the trial's colour. Diverged values are marked at the edge. Thread: main.
 */
#include <math.h>
#include <stdlib.h>

#include "tune/shared.h"
#include "cli/format.h"
#include "cli/page.h"
#include "cli/tune_page.h"

/* To the right of the curves. */
#define MARGIN 20

typedef struct curves {
    tune_page *p;
    uni__text *out;
    cli_plot plot; /* one series per trial */
    cli_range x, y;
} curves;

static int add_report(void *context, int64_t trial, int64_t iteration, const uni_value *metrics,
                      uni_error *err)
{
    curves *c = context;
    if (trial < 0 || (size_t)trial >= c->plot.num_series)
        return 0;
    double value = uni__tune_metric(metrics, c->p->metric);
    /* A NaN that was reported is a gap; a report without the metric is not. */
    if (isnan(value) && !uni_value_is_number(uni_dict_get(metrics, c->p->metric)))
        return 0;
    if (!cli_series_add(&c->plot.series[trial], (double)iteration, value))
        return uni_error_set(err, UNI_ENOMEM, "no memory for the curves");
    return 0;
}

static double pixel_x(const curves *c, double value)
{
    return TUNE_LEFT + cli_place(c->x, false, value) * (TUNE_WIDTH - TUNE_LEFT - MARGIN);
}

static double pixel_y(const curves *c, double value)
{
    return tune_page_y(cli_place(c->y, c->plot.log_y, value));
}

static void add_grid(const curves *c)
{
    char text[CLI_SHORT];
    double ticks[16];
    int count = cli_ticks(c->y, c->plot.log_y, 7, ticks);
    for (int i = 0; i < count; i++) {
        double at = pixel_y(c, ticks[i]);
        uni__text_add_format(c->out,
                             "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                             "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                             TUNE_LEFT, TUNE_WIDTH - MARGIN, at, at, TUNE_LEFT - 8, at + 4,
                             cli_tick(ticks[i], text));
    }
    count = cli_ticks_of_x(&c->plot, c->x, 9, ticks);
    for (int i = 0; i < count; i++)
        uni__text_add_format(c->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                             pixel_x(c, ticks[i]), TUNE_HEIGHT - TUNE_BOTTOM + 18,
                             cli_tick(ticks[i], text));
}

static void add_curve(const curves *c, int64_t trial)
{
    const cli_series *series = &c->plot.series[trial];
    cli_side before = CLI_GAP;
    bool dot = series->count == 1, begun = false;
    uni__text_add_format(c->out, "<path class=\"trial%s\" stroke=\"", dot ? " dot" : "");
    tune_page_colour(c->out, c->p, tune_page_value(c->p, trial));
    uni__text_add_string(c->out, "\" d=\"");
    for (size_t n = 0; n < series->count; n++) {
        cli_side side = cli_side_of(c->y, c->plot.log_y, series->y[n]);
        bool joined = before != CLI_GAP && (side == CLI_INSIDE || side != before);
        before = side;
        if (side == CLI_GAP)
            continue;
        uni__text_add_format(c->out, "%c%.1f %.1f", joined ? 'L' : 'M', pixel_x(c, series->x[n]),
                             pixel_y(c, series->y[n]));
        begun = true;
    }
    if (dot && begun) /* a line of length zero: its round ends are visible */
        uni__text_add_string(c->out, "h0");
    uni__text_add_format(c->out, "\"><title>trial %lld</title></path>\n", (long long)trial);
}

/* Marks at the edge for points outside the axis. Returns the number of those points. */
static size_t add_marks(const curves *c, int64_t trial)
{
    const cli_series *series = &c->plot.series[trial];
    size_t outside = cli_series_stats_of(&c->plot, (size_t)trial, c->y).outside;
    if (outside == 0)
        return 0;
    uni__text_add_string(c->out, "<path class=\"edge\" d=\"");
    for (size_t n = 0; n < series->count; n++) {
        cli_side side = cli_side_of(c->y, c->plot.log_y, series->y[n]);
        if (side != CLI_INSIDE && side != CLI_GAP)
            cli_page_edge_mark(c->out, pixel_x(c, series->x[n]), pixel_y(c, series->y[n]),
                               side == CLI_ABOVE);
    }
    uni__text_add_format(c->out, "\"><title>trial %lld: %zu outside the axis</title></path>\n",
                         (long long)trial, outside);
    return outside;
}

static void draw_curves(curves *c)
{
    int64_t count = (int64_t)c->plot.num_series, step = count / TUNE_MOST_LINES + 1, trials = 0;
    bool several = false;
    cli_series_stats sum = { 0 };
    for (int64_t i = 0; i < count; i++)
        several = several || c->plot.series[i].count > 1;
    if (!several || !cli_plot_ranges(&c->plot, &c->x, &c->y)) /* the table has single reports */
        return;
    uni__text_add_string(c->out, "<h2>Learning curves: ");
    cli_page_escape(c->out, c->p->metric);
    uni__text_add_format(c->out, " by iteration%s</h2>\n", c->p->log ? " (logarithmic)" : "");
    tune_page_begin_svg(c->out);
    add_grid(c);
    for (int64_t i = 0; i < count; i += step) {
        add_curve(c, i);
        size_t outside = add_marks(c, i);
        cli_series_stats stats = cli_series_stats_of(&c->plot, (size_t)i, c->y);
        trials += outside > 0;
        sum.outside += outside;
        sum.gaps += stats.gaps + stats.not_positive;
    }
    uni__text_add_string(c->out, "</svg>\n");
    if (sum.outside)
        uni__text_add_format(c->out,
                             "<p>%zu point%s of %lld trial%s outside the axis, drawn at its "
                             "edge.</p>\n",
                             sum.outside, sum.outside == 1 ? "" : "s", (long long)trials,
                             trials == 1 ? "" : "s");
    if (sum.gaps)
        uni__text_add_format(c->out, "<p>%zu value%s not drawn: not finite%s.</p>\n", sum.gaps,
                             sum.gaps == 1 ? "" : "s", c->p->log ? ", or not above 0" : "");
}

int tune_page_curves(uni__text *out, tune_page *p, uni_error *err)
{
    curves c = { .p = p, .out = out };
    size_t count = (size_t)uni_tune_info_of(p->results)->num_trials;
    c.plot.series = calloc(count + 1, sizeof *c.plot.series);
    c.plot.x_label = "iteration";
    c.plot.log_y = p->log;
    if (!c.plot.series)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the curves");
    c.plot.num_series = count;
    int status = uni_tune_reports(p->results, add_report, &c, err);
    if (status == 0)
        draw_curves(&c);
    cli_plot_free(&c.plot);
    return status;
}
