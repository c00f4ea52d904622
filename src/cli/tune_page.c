/*
 * tune_page.c - an experiment as one HTML page: parallel coordinates of all parameters and the metric, and the learning curves, coloured from the worst trial to the best.
 * Self-contained: no script, font or style from elsewhere. Thread: main.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/page.h"
#include "cli/plot.h"
#include "cli/tune_view.h"

enum {
    WIDTH = 960,
    HEIGHT = 420,
    LEFT = 70,
    RIGHT = 110,
    TOP = 40,
    BOTTOM = 30,
    MOST_LINES = 1000,
    MOST_ROWS = 30
};
#define MAX_AXES 16

typedef struct axis {
    char name[160];
    bool log, words;
    double low, high;
    char *choices[64]; /* of words */
    int count;
} axis;

typedef struct page {
    const uni_tune_results *results;
    axis axes[MAX_AXES];
    int num_axes;
    const char *metric;
    int sign;
    double worst, best; /* values of the metric */
} page;

/* ---- axes ---- */

static const uni_value *leaf(const page *p, int64_t trial, int index)
{
    return uni_value_path(uni_trial_config(p->results, trial), p->axes[index].name);
}

static void collect_axes(page *p, const uni_value *config, const char *prefix)
{
    for (size_t i = 0; i < uni_dict_size(config) && p->num_axes < MAX_AXES - 1; i++) {
        const uni_value *value = uni_dict_value_at(config, i);
        char name[160];
        snprintf(name, sizeof name, "%.70s%.80s", prefix, uni_dict_key_at(config, i));
        if (uni_value_type_of(value) == UNI_TYPE_DICT) {
            char deeper[160];
            snprintf(deeper, sizeof deeper, "%.150s.", name);
            collect_axes(p, value, deeper);
            continue;
        }
        snprintf(p->axes[p->num_axes].name, sizeof p->axes[0].name, "%s", name);
        p->num_axes++;
    }
}

static char *word_of(const uni_value *value)
{
    char *text = NULL;
    if (uni_value_type_of(value) == UNI_TYPE_STRING)
        return strdup(uni_value_as_string(value, ""));
    return uni_json_write(&text, NULL, value, 0, NULL) == 0 ? text : NULL;
}

static int place_of_word(axis *a, const uni_value *value, bool add)
{
    char *word = word_of(value);
    for (int i = 0; word && i < a->count; i++)
        if (strcmp(a->choices[i], word) == 0) {
            free(word);
            return i;
        }
    if (!word || !add || a->count == 64) {
        free(word);
        return 0;
    }
    a->choices[a->count] = word;
    return a->count++;
}

static void measure_axis(page *p, int index)
{
    axis *a = &p->axes[index];
    int64_t count = uni_tune_count(p->results);
    a->low = INFINITY;
    a->high = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const uni_value *value = leaf(p, i, index);
        if (value && (!uni_value_is_number(value) || uni_value_type_of(value) == UNI_TYPE_BOOL))
            a->words = true;
        a->low = fmin(a->low, uni_value_as_float(value, INFINITY));
        a->high = fmax(a->high, uni_value_as_float(value, -INFINITY));
    }
    for (int64_t i = 0; i < count && a->words; i++)
        place_of_word(a, leaf(p, i, index), true);
    if (a->words) {
        a->low = 0;
        a->high = a->count > 1 ? a->count - 1 : 1;
    }
    a->log = !a->words && a->low > 0 && a->high / a->low >= 50;
}

/* A parameter that is the same everywhere says nothing. */
static void drop_constants(page *p)
{
    int kept = 0;
    for (int i = 0; i < p->num_axes; i++) {
        axis *a = &p->axes[i];
        if (a->words ? a->count > 1 : a->high > a->low) {
            if (kept != i)
                p->axes[kept] = *a;
            kept++;
        } else {
            for (int n = 0; n < a->count; n++)
                free(a->choices[n]);
        }
    }
    p->num_axes = kept;
}

static double share(const axis *a, double value)
{
    if (a->high <= a->low)
        return 0.5;
    return a->log ? (log(value) - log(a->low)) / (log(a->high) - log(a->low))
                  : (value - a->low) / (a->high - a->low);
}

static double at_x(const page *p, int index)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (p->num_axes > 0 ? (double)index / p->num_axes : 0.5);
}

static double at_y(double part)
{
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

/* From grey blue (worst) over green to orange (best). */
static void add_colour(uni__text *out, const page *p, double value)
{
    double part = p->best != p->worst ? (value - p->worst) / (p->best - p->worst) : 1;
    part = isnan(part) ? 0 : fmin(fmax(part, 0), 1);
    uni__text_add_format(out, "hsl(%.0f %.0f%% %.0f%%)", 215 - 185 * part * part, 25 + 65 * part,
                         62 - 14 * part);
}

static double value_of(const page *p, int64_t trial)
{
    return uni_trial_value(p->results, trial, p->metric, p->sign > 0 ? "max" : "min",
                           UNI_SCOPE_LAST);
}

/* ---- drawing ---- */

static void add_axis(uni__text *out, const page *p, int index)
{
    const axis *a = &p->axes[index];
    double x = at_x(p, index), ticks[8];
    char text[CLI_SHORT];
    uni__text_add_format(out,
                         "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                         "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-weight=\"600\">",
                         x, x, TOP, HEIGHT - BOTTOM, x, TOP - 14);
    cli_page_escape(out, a->name);
    uni__text_add_string(out, "</text>\n");
    int count = a->words ? a->count : cli_ticks((cli_range){ a->low, a->high }, a->log, 5, ticks);
    for (int i = 0; i < count && i < 12; i++) {
        uni__text_add_format(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\">", x + 6,
                             at_y(share(a, a->words ? i : ticks[i])) + 4);
        if (a->words)
            cli_page_escape(out, a->choices[i]);
        else
            uni__text_add_string(out, cli_number(ticks[i], text));
        uni__text_add_string(out, "</text>\n");
    }
}

static void add_line(uni__text *out, page *p, int64_t trial)
{
    double value = value_of(p, trial);
    if (!isfinite(value))
        return;
    uni__text_add_string(out, "<path class=\"trial\" stroke=\"");
    add_colour(out, p, value);
    uni__text_add_string(out, "\" d=\"");
    for (int i = 0; i < p->num_axes; i++) {
        const uni_value *at = leaf(p, trial, i);
        double number = p->axes[i].words ? place_of_word(&p->axes[i], at, false)
                                         : uni_value_as_float(at, p->axes[i].low);
        uni__text_add_format(out, "%c%.1f %.1f", i ? 'L' : 'M', at_x(p, i),
                             at_y(share(&p->axes[i], number)));
    }
    double part = p->best != p->worst ? (value - p->worst) / (p->best - p->worst) : 0.5;
    uni__text_add_format(out, "%c%.1f %.1f\"><title>trial %lld: ", p->num_axes ? 'L' : 'M',
                         at_x(p, p->num_axes), at_y(fmin(fmax(part, 0), 1)), (long long)trial);
    cli_page_escape(out, p->metric);
    char text[CLI_SHORT];
    uni__text_add_format(out, " %s</title></path>\n", cli_number(value, text));
}

static void begin_svg(uni__text *out)
{
    uni__text_add_format(out,
                         "<svg viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\" "
                         "font-size=\"12\" role=\"img\">\n",
                         WIDTH, HEIGHT);
}

static void add_coordinates(uni__text *out, page *p)
{
    char text[CLI_SHORT];
    int64_t count = uni_tune_count(p->results), step = count / MOST_LINES + 1;
    begin_svg(out);
    for (int64_t i = 0; i < count; i += step)
        add_line(out, p, i);
    for (int i = 0; i < p->num_axes; i++)
        add_axis(out, p, i);
    double x = at_x(p, p->num_axes);
    uni__text_add_format(out,
                         "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                         "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-weight=\"600\">",
                         x, x, TOP, HEIGHT - BOTTOM, x, TOP - 14);
    cli_page_escape(out, p->metric);
    uni__text_add_format(out, "</text><text class=\"tick\" x=\"%.1f\" y=\"%d\">%s (best)</text>",
                         x + 6, TOP + 4, cli_number(p->best, text));
    uni__text_add_format(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\">%s</text></svg>\n", x + 6,
                         HEIGHT - BOTTOM + 4, cli_number(p->worst, text));
    if (step > 1)
        uni__text_add_format(out, "<p>Every %lldth trial of %lld is drawn.</p>\n", (long long)step,
                             (long long)count);
}

/* ---- curves ---- */

typedef struct curves {
    page *p;
    uni__text *out;
    cli_series *series; /* by trial */
    int64_t count;
} curves;

static int add_report(void *context, int64_t trial, int64_t iteration, const uni_value *metrics,
                      uni_error *err)
{
    curves *c = context;
    double value = trial < c->count ? uni_tune_metric(metrics, c->p->metric) : NAN;
    if (!isnan(value) && !cli_series_add(&c->series[trial], (double)iteration, value))
        return uni_error_set(err, UNI_ENOMEM, "no memory for the curves");
    return 0;
}

static void draw_curves(curves *c)
{
    char text[CLI_SHORT];
    double ticks[16];
    cli_range x = { INFINITY, -INFINITY }, y = { INFINITY, -INFINITY };
    for (int64_t i = 0; i < c->count; i++)
        for (size_t n = 0; n < c->series[i].count; n++) {
            if (!isfinite(c->series[i].y[n]))
                continue;
            x.low = fmin(x.low, c->series[i].x[n]);
            x.high = fmax(x.high, c->series[i].x[n]);
            y.low = fmin(y.low, c->series[i].y[n]);
            y.high = fmax(y.high, c->series[i].y[n]);
        }
    if (!(x.high > x.low)) /* at most one report a trial: the table has it */
        return;
    uni__text_add_string(c->out, "<h2>Learning curves: ");
    cli_page_escape(c->out, c->p->metric);
    uni__text_add_string(c->out, " by iteration</h2>\n");
    begin_svg(c->out);
    y.high = y.high > y.low ? y.high : y.low + 1;
    int count = cli_ticks(y, false, 7, ticks);
    for (int i = 0; i < count; i++) {
        double at = at_y((ticks[i] - y.low) / (y.high - y.low));
        uni__text_add_format(c->out,
                             "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                             "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                             LEFT, WIDTH - 20, at, at, LEFT - 8, at + 4,
                             cli_number(ticks[i], text));
    }
    count = cli_ticks_of_x(&(cli_plot){ .x_label = "iteration" }, x, 9, ticks);
    for (int i = 0; i < count; i++)
        uni__text_add_format(c->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                             LEFT + (ticks[i] - x.low) / (x.high - x.low) * (WIDTH - LEFT - 20),
                             HEIGHT - BOTTOM + 18, cli_number(ticks[i], text));
    int64_t step = c->count / MOST_LINES + 1;
    for (int64_t i = 0; i < c->count; i += step) {
        bool joined = false, dot = c->series[i].count == 1;
        uni__text_add_format(c->out, "<path class=\"trial%s\" stroke=\"", dot ? " dot" : "");
        add_colour(c->out, c->p, value_of(c->p, i));
        uni__text_add_string(c->out, "\" d=\"");
        for (size_t n = 0; n < c->series[i].count; n++) {
            if (!isfinite(c->series[i].y[n]))
                continue;
            double px = LEFT + (c->series[i].x[n] - x.low) / (x.high - x.low) * (WIDTH - LEFT - 20);
            double py = at_y((c->series[i].y[n] - y.low) / (y.high - y.low));
            uni__text_add_format(c->out, "%c%.1f %.1f", joined ? 'L' : 'M', px, py);
            joined = true;
        }
        if (dot && joined) /* a line of no length: its round ends are seen */
            uni__text_add_string(c->out, "h0");
        uni__text_add_format(c->out, "\"><title>trial %lld</title></path>\n", (long long)i);
    }
    uni__text_add_string(c->out, "</svg>\n");
}

static int add_curves(uni__text *out, page *p, uni_error *err)
{
    curves c = { .p = p, .out = out, .count = uni_tune_count(p->results) };
    c.series = calloc((size_t)c.count + 1, sizeof *c.series);
    int status = c.series ? uni_tune_reports(p->results, add_report, &c, err)
                          : uni_error_set(err, UNI_ENOMEM, "no memory for the curves");
    if (status == 0)
        draw_curves(&c);
    for (int64_t i = 0; c.series && i < c.count; i++) {
        free(c.series[i].x);
        free(c.series[i].y);
    }
    free(c.series);
    return status;
}

/* ---- the best ones ---- */

typedef struct ranked {
    int64_t trial;
    double value; /* greater is better */
} ranked;

static int better_first(const void *one, const void *other)
{
    double a = ((const ranked *)one)->value, b = ((const ranked *)other)->value;
    return a > b ? -1 : a < b;
}

static void add_row(uni__text *out, const page *p, int64_t trial)
{
    char text[CLI_SHORT];
    uni__text_add_format(out, "<tr><td>%lld<td>%s", (long long)trial,
                         cli_number(value_of(p, trial), text));
    for (int i = 0; i < p->num_axes; i++) {
        const uni_value *value = leaf(p, trial, i);
        char *word = p->axes[i].words ? word_of(value) : NULL;
        uni__text_add_string(out, "<td>");
        cli_page_escape(out, p->axes[i].words ? word ? word : ""
                                              : cli_number(uni_value_as_float(value, NAN), text));
        free(word);
    }
    uni__text_add_string(out, "</tr>\n");
}

static int add_table(uni__text *out, const page *p, uni_error *err)
{
    int64_t count = uni_tune_count(p->results), finite = 0;
    ranked *order = calloc((size_t)count + 1, sizeof *order);
    if (!order)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the table");
    for (int64_t i = 0; i < count; i++) {
        double value = p->sign * value_of(p, i);
        if (isfinite(value))
            order[finite++] = (ranked){ i, value };
    }
    qsort(order, (size_t)finite, sizeof *order, better_first);
    uni__text_add_format(out, "<h2>The best%s</h2>\n<table><tr><th>trial<th>",
                         finite > MOST_ROWS ? " of them" : " first");
    cli_page_escape(out, p->metric);
    for (int i = 0; i < p->num_axes; i++) {
        uni__text_add_string(out, "<th>");
        cli_page_escape(out, p->axes[i].name);
    }
    uni__text_add_string(out, "</tr>\n");
    for (int64_t i = 0; i < finite && i < MOST_ROWS; i++)
        add_row(out, p, order[i].trial);
    uni__text_add_string(out, "</table>\n");
    if (finite > MOST_ROWS)
        uni__text_add_format(out, "<p>%lld more: unisono tune show --csv</p>\n",
                             (long long)(finite - MOST_ROWS));
    free(order);
    return 0;
}

/* "search/tune_001": the experiment's directory and its name's. */
static const char *title_of(const char *dir)
{
    const char *from = dir + strlen(dir);
    for (int slashes = 0; from > dir; from--)
        if (from[-1] == '/' && ++slashes == 2)
            break;
    return from;
}

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;"
    "background:#fff;color:#222}svg{width:100%;height:auto}text{fill:#333}.tick{font-size:11px;"
    "paint-order:stroke;stroke:#fff;stroke-width:3px}.axis{stroke:#555}.grid{stroke:#ddd}"
    ".trial{fill:none;stroke-width:1.4;stroke-opacity:.65;stroke-linejoin:round;stroke-linecap:"
    "round}"
    ".dot{stroke-width:5}.trial:hover{stroke:#000;stroke-width:3;stroke-opacity:1}h2{margin-bottom:"
    "0}"
    "table{border-collapse:collapse}th,td{padding:.2em .8em;text-align:right;border-bottom:1px "
    "solid #8884}"
    "@media(prefers-color-scheme:dark){body{background:#16181c;color:#ccc}text{fill:#ccc}"
    ".tick{stroke:#16181c}.axis{stroke:#999}.grid{stroke:#333}.trial:hover{stroke:#fff}}</style>\n";

static int prepare(page *p, const char *mode, uni_error *err)
{
    int64_t best, count = uni_tune_count(p->results);
    UNI_TRY(uni_tune_best(p->results, p->metric, mode, UNI_SCOPE_LAST, &best, err));
    if (!mode)
        mode = uni_dict_get_string(uni_tune_results_spec(p->results), "mode", "min");
    p->sign = strcmp(mode, "max") == 0 ? 1 : -1;
    p->best = p->worst = value_of(p, best);
    for (int64_t i = 0; i < count; i++) {
        double value = value_of(p, i);
        if (isfinite(value) && p->sign * value < p->sign * p->worst)
            p->worst = value;
    }
    collect_axes(p, uni_trial_config(p->results, best), "");
    for (int i = 0; i < p->num_axes; i++)
        measure_axis(p, i);
    drop_constants(p);
    return 0;
}

int tune_page(const uni_tune_results *results, const char *metric, const char *mode, uni__text *out,
              uni_error *err)
{
    page *p = calloc(1, sizeof *p);
    if (!p)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the page");
    p->results = results;
    p->metric =
        metric ? metric : uni_dict_get_string(uni_tune_results_spec(results), "metric", NULL);
    int status = p->metric ? prepare(p, mode, err)
                           : uni_error_set(err, UNI_EINVAL,
                                           "plot by which metric? The experiment has none: give "
                                           "--metric and --mode");
    if (status == 0) {
        uni__text_add_string(out, head);
        uni__text_add_string(out, "<title>");
        cli_page_escape(out, uni_tune_results_dir(results));
        uni__text_add_string(out, "</title></head><body><h1>");
        cli_page_escape(out, title_of(uni_tune_results_dir(results)));
        uni__text_add_format(out, ": %lld trials</h1>\n<h2>Parameters and ",
                             (long long)uni_tune_count(results));
        cli_page_escape(out, p->metric);
        uni__text_add_string(out, "</h2>\n");
        add_coordinates(out, p);
        status = add_curves(out, p, err);
        if (status == 0)
            status = add_table(out, p, err);
        uni__text_add_string(out, "</body></html>\n");
    }
    for (int i = 0; i < p->num_axes; i++)
        for (int n = 0; n < p->axes[i].count; n++)
            free(p->axes[i].choices[n]);
    free(p);
    return status;
}
