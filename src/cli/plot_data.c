/* plot_data.c - series, ranges and ticks, shared by the terminal and the page. */
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

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return a < b ? -1 : a > b;
}

/* Half of the length, because the whole may overflow. */
static double half_length(cli_range range)
{
    return range.high / 2 - range.low / 2;
}

/* The axis is at most this many times as long as what must be visible on it. */
#define MOST_STRETCH 100
/* How far from the middle, in multiples of its length, values stay on an axis that leaves some
 * out. */
#define REACH 10

static cli_range quartiles(const double *sorted, size_t count)
{
    return (cli_range){ sorted[count / 4], sorted[count - 1 - count / 4] };
}

static cli_range limits_of(const double *sorted, size_t count, const cli_range *keep)
{
    cli_range all = { sorted[0], sorted[count - 1] }, core = quartiles(sorted, count);
    if (keep) {
        widen(&core, keep->low);
        widen(&core, keep->high);
    }
    double length = half_length(core) > 0 ? half_length(core) : fabs(core.low) / 2;
    if (!(length > 0) || half_length(all) <= MOST_STRETCH * length)
        return all;
    cli_range inside = core;
    for (size_t i = 0; i < count; i++)
        if (sorted[i] >= core.low - 2 * REACH * length &&
            sorted[i] <= core.high + 2 * REACH * length)
            widen(&inside, sorted[i]);
    return inside;
}

bool cli_axis_range(double *values, size_t count, const cli_range *keep, bool log, cli_range *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]) && (!log || values[i] > 0))
            values[kept++] = values[i];
    if (kept == 0)
        return false;
    qsort(values, kept, sizeof *values, by_value);
    *out = log ? (cli_range){ values[0], values[kept - 1] } : limits_of(values, kept, keep);
    if (out->low == out->high) {
        double room = out->low == 0 ? 1 : fabs(out->low) / 2;
        *out = log ? (cli_range){ out->low / 2, out->high * 2 }
                   : (cli_range){ out->low - room, out->high + room };
    }
    return true;
}

cli_side cli_side_of(cli_range y, bool log, double value)
{
    if (!isfinite(value) || (log && value <= 0))
        return CLI_GAP;
    return value < y.low ? CLI_BELOW : value > y.high ? CLI_ABOVE : CLI_INSIDE;
}

static bool is_drawn(const cli_plot *plot, double y)
{
    return isfinite(y) && !(plot->log_y && y <= 0);
}

bool cli_plot_ranges(const cli_plot *plot, cli_range *x, cli_range *y)
{
    size_t total = 0, count = 0, firsts = 0;
    for (size_t i = 0; i < plot->num_series; i++)
        total += plot->series[i].count;
    double *values = malloc((total + plot->num_series + 1) * sizeof *values);
    double *first = values ? values + total : NULL;
    *x = *y = (cli_range){ INFINITY, -INFINITY };
    for (size_t i = 0; values && i < plot->num_series; i++) {
        const cli_series *series = &plot->series[i];
        bool begun = false;
        for (size_t j = 0; j < series->count; j++) {
            if (!is_drawn(plot, series->y[j]))
                continue;
            widen(x, series->x[j]);
            values[count++] = series->y[j];
            if (!begun)
                first[firsts++] = series->y[j];
            begun = true;
        }
    }
    if (count > 0) {
        qsort(first, firsts, sizeof *first, by_value);
        cli_range keep = quartiles(first, firsts);
        cli_axis_range(values, count, &keep, plot->log_y, y);
    }
    free(values);
    if (count > 0 && x->low == x->high)
        *x = (cli_range){ x->low - 0.5, x->high + 0.5 };
    return count > 0;
}

double cli_place(cli_range range, bool log, double value)
{
    if (log) {
        value = value > 0 ? log10(value) : -INFINITY;
        range = (cli_range){ log10(range.low), log10(range.high) };
    }
    double place = (value / 2 - range.low / 2) / half_length(range);
    return place < 0 ? 0 : place > 1 ? 1 : place;
}

/* 1, 2 or 5 times a power of ten, at least the given step. */
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
    for (double i = first; i * step <= range.high + step * 1e-9 && count <= most; i++)
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
         power <= log10(range.high) + 1e-9 && count <= most; power += step > 0 ? step : 1)
        out[count++] = pow(10, power);
    return count;
}

const char *cli_tick(double value, char out[CLI_SHORT])
{
    if (snprintf(out, CLI_SHORT, "%.7g", value) > 8)
        snprintf(out, CLI_SHORT, "%.2g", value);
    return out;
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

cli_series_stats cli_series_stats_of(const cli_plot *plot, size_t index, cli_range y)
{
    const cli_series *series = &plot->series[index];
    cli_series_stats stats = { .last = NAN, .low = NAN, .high = NAN };
    for (size_t i = 0; i < series->count; i++) {
        double value = series->y[i];
        if (!isfinite(value)) {
            stats.gaps++;
            continue;
        }
        if (!is_drawn(plot, value))
            stats.not_positive++;
        else if (cli_side_of(y, plot->log_y, value) != CLI_INSIDE)
            stats.outside++;
        stats.last = value;
        stats.low = !(value >= stats.low) ? value : stats.low;
        stats.high = !(value <= stats.high) ? value : stats.high;
    }
    return stats;
}
