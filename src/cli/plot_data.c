/* plot_data.c - series, ranges and ticks: what the terminal's and the page's drawing share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plot.h"

bool cli_series_add(cli_series *series, double x, double y)
{
    if (series->count == series->capacity) {
        size_t capacity = series->capacity ? series->capacity * 2 : 256;
        double *more_x = realloc(series->x, capacity * sizeof *more_x);
        if (more_x)
            series->x = more_x;
        double *more_y = more_x ? realloc(series->y, capacity * sizeof *more_y) : NULL;
        if (!more_y)
            return false;
        series->y = more_y;
        series->capacity = capacity;
    }
    series->x[series->count] = x;
    series->y[series->count++] = y;
    return true;
}

void cli_plot_free(cli_plot *plot)
{
    for (size_t i = 0; i < plot->num_series; i++) {
        free(plot->series[i].x);
        free(plot->series[i].y);
    }
    free(plot->series);
    *plot = (cli_plot){ 0 };
}

void cli_series_smooth(cli_series *series, double weight)
{
    double last = 0, scale = 0;
    for (size_t i = 0; i < series->count; i++) {
        if (!isfinite(series->y[i]))
            continue;
        last = last * weight + (1 - weight) * series->y[i];
        scale = scale * weight + (1 - weight);
        series->y[i] = last / scale;
    }
}

static void widen(cli_range *range, double value)
{
    range->low = value < range->low ? value : range->low;
    range->high = value > range->high ? value : range->high;
}

bool cli_plot_ranges(const cli_plot *plot, cli_range *x, cli_range *y)
{
    *x = *y = (cli_range){ INFINITY, -INFINITY };
    for (size_t i = 0; i < plot->num_series; i++) {
        const cli_series *series = &plot->series[i];
        for (size_t j = 0; j < series->count; j++) {
            if (!isfinite(series->y[j]) || (plot->log_y && series->y[j] <= 0))
                continue;
            widen(x, series->x[j]);
            widen(y, series->y[j]);
        }
    }
    if (!(x->low <= x->high))
        return false;
    if (x->low == x->high)
        *x = (cli_range){ x->low - 0.5, x->high + 0.5 };
    if (y->low == y->high) {
        double room = y->low == 0 ? 1 : fabs(y->low) / 2;
        *y = plot->log_y ? (cli_range){ y->low / 2, y->high * 2 }
                         : (cli_range){ y->low - room, y->high + room };
    }
    return true;
}

double cli_place(cli_range range, bool log, double value)
{
    if (log)
        return (log10(value) - log10(range.low)) / (log10(range.high) - log10(range.low));
    return (value - range.low) / (range.high - range.low);
}

/* 1, 2, 5 times a power of ten, at least the given step. */
static double round_step(double least)
{
    double power = pow(10, floor(log10(least)));
    double times = least / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static int linear_ticks(cli_range range, int most, double *out)
{
    double step = round_step((range.high - range.low) / most);
    int count = 0;
    if (!(step > 0) || !isfinite(step))
        return 0;
    double first = ceil(range.low / step - 1e-9);
    for (double i = first; i * step <= range.high + step * 1e-9 && count < most; i++)
        out[count++] = i * step == 0 ? 0 : i * step;
    return count;
}

int cli_ticks(cli_range range, bool log, int most, double *out)
{
    double decades = log ? log10(range.high) - log10(range.low) : 0;
    if (!log || decades < 1)
        return linear_ticks(range, most, out);
    int step = (int)ceil(decades / most), count = 0;
    for (int power = (int)ceil(log10(range.low) - 1e-9);
         power <= log10(range.high) + 1e-9 && count<most; power += step> 0 ? step : 1)
        out[count++] = pow(10, power);
    return count;
}

int cli_ticks_of_x(const cli_plot *plot, cli_range x, int most, double *out)
{
    int count = cli_ticks(x, false, most, out), kept = 0;
    bool whole = plot->x_label && strcmp(plot->x_label, "iteration") == 0;
    for (int i = 0; i < count; i++)
        if (!whole || fabs(out[i] - round(out[i])) < 1e-9)
            out[kept++] = out[i];
    return kept;
}

cli_series_stats cli_series_stats_of(const cli_series *series)
{
    cli_series_stats stats = { NAN, NAN, NAN, 0 };
    for (size_t i = 0; i < series->count; i++) {
        double y = series->y[i];
        if (!isfinite(y)) {
            stats.gaps++;
            continue;
        }
        stats.last = y;
        stats.low = !(y >= stats.low) ? y : stats.low;
        stats.high = !(y <= stats.high) ? y : stats.high;
    }
    return stats;
}
