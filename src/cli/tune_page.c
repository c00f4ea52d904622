/*
 * tune_page.c - an experiment as one HTML page: parallel coordinates of all parameters and the
 * metric, and the best trials; tune_curves.c adds the learning curves. Coloured from the worst
 * trial to the best. Self-contained: no external script, font or style. Thread: main.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/page.h"
#include "cli/plot.h"
#include "cli/tune_page.h"

#define MOST_ROWS 30
#define MOST_NAMES 10

/* ---- axes ---- */

static const uni_value *leaf(const tune_page *p, int64_t trial, int index)
{
    return uni_value_path(uni_trial_info_of(p->results, trial)->config, p->axes[index].name);
}

static void collect_axes(tune_page *p, const uni_value *config, const char *prefix)
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

static int place_of_word(tune_axis *a, const uni_value *value, bool add)
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

static void measure_axis(tune_page *p, int index)
{
    tune_axis *a = &p->axes[index];
    int64_t count = uni_tune_info_of(p->results)->num_trials;
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

/* A parameter that is the same in all trials says nothing. */
static void drop_constants(tune_page *p)
{
    int kept = 0;
    for (int i = 0; i < p->num_axes; i++) {
        tune_axis *a = &p->axes[i];
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

static double share(const tune_axis *a, double value)
{
    if (a->high <= a->low)
        return 0.5;
    return a->log ? (log(value) - log(a->low)) / (log(a->high) - log(a->low))
                  : (value - a->low) / (a->high - a->low);
}

static double at_x(const tune_page *p, int index)
{
    return TUNE_LEFT + (TUNE_WIDTH - TUNE_LEFT - TUNE_RIGHT) *
                           (p->num_axes > 0 ? (double)index / p->num_axes : 0.5);
}

double tune_page_y(double part)
{
    return TUNE_HEIGHT - TUNE_BOTTOM - part * (TUNE_HEIGHT - TUNE_TOP - TUNE_BOTTOM);
}

/* The position of the value on the metric's axis: from 0, the worst, to 1, the best. */
static double part_of(const tune_page *p, double value)
{
    double part = cli_place(p->scale, p->log, value);
    return isnan(value) ? 0 : p->sign > 0 ? part : 1 - part;
}

void tune_page_colour(uni__text *out, const tune_page *p, double value)
{
    double part = part_of(p, value);
    uni__text_add_format(out, "hsl(%.0f %.0f%% %.0f%%)", 215 - 185 * part * part, 25 + 65 * part,
                         62 - 14 * part);
}

double tune_page_value(const tune_page *p, int64_t trial)
{
    return uni_trial_value(p->results, trial, p->metric, p->sign > 0 ? "max" : "min",
                           UNI_SCOPE_LAST);
}

/* On a logarithmic axis, everything that is not above 0 is below it. */
static cli_side side_of(const tune_page *p, double value)
{
    cli_side side = cli_side_of(p->scale, p->log, value);
    return side == CLI_GAP && isfinite(value) ? CLI_BELOW : side;
}

/* ---- drawing ---- */

static void add_axis(uni__text *out, const tune_page *p, int index)
{
    const tune_axis *a = &p->axes[index];
    double x = at_x(p, index), ticks[8];
    char text[CLI_SHORT];
    uni__text_add_format(out,
                         "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                         "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-weight=\"600\">",
                         x, x, TUNE_TOP, TUNE_HEIGHT - TUNE_BOTTOM, x, TUNE_TOP - 14);
    cli_page_escape(out, a->name);
    uni__text_add_string(out, "</text>\n");
    int count = a->words ? a->count : cli_ticks((cli_range){ a->low, a->high }, a->log, 5, ticks);
    for (int i = 0; i < count && i < 12; i++) {
        uni__text_add_format(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\">", x + 6,
                             tune_page_y(share(a, a->words ? i : ticks[i])) + 4);
        if (a->words)
            cli_page_escape(out, a->choices[i]);
        else
            uni__text_add_string(out, cli_tick(ticks[i], text));
        uni__text_add_string(out, "</text>\n");
    }
}

static void add_name(uni__text *out, const tune_page *p, int64_t trial, double value)
{
    char text[CLI_SHORT];
    uni__text_add_format(out, "trial %lld: ", (long long)trial);
    cli_page_escape(out, p->metric);
    uni__text_add_format(out, " %s", cli_number(value, text));
}

static void add_line(uni__text *out, tune_page *p, int64_t trial)
{
    double value = tune_page_value(p, trial);
    if (!isfinite(value))
        return;
    uni__text_add_string(out, "<path class=\"trial\" stroke=\"");
    tune_page_colour(out, p, value);
    uni__text_add_string(out, "\" d=\"");
    for (int i = 0; i < p->num_axes; i++) {
        const uni_value *at = leaf(p, trial, i);
        double number = p->axes[i].words ? place_of_word(&p->axes[i], at, false)
                                         : uni_value_as_float(at, p->axes[i].low);
        uni__text_add_format(out, "%c%.1f %.1f", i ? 'L' : 'M', at_x(p, i),
                             tune_page_y(share(&p->axes[i], number)));
    }
    double x = at_x(p, p->num_axes), y = tune_page_y(part_of(p, value));
    uni__text_add_format(out, "%c%.1f %.1f\"><title>", p->num_axes ? 'L' : 'M', x, y);
    add_name(out, p, trial, value);
    uni__text_add_string(out, "</title></path>\n");
    if (side_of(p, value) == CLI_INSIDE)
        return;
    uni__text_add_string(out, "<path class=\"edge\" d=\"");
    cli_page_edge_mark(out, x, y, y <= TUNE_TOP);
    uni__text_add_string(out, "\"><title>");
    add_name(out, p, trial, value);
    uni__text_add_string(out, "</title></path>\n");
}

void tune_page_begin_svg(uni__text *out)
{
    uni__text_add_format(out,
                         "<svg viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\" "
                         "font-size=\"12\" role=\"img\">\n",
                         TUNE_WIDTH, TUNE_HEIGHT);
}

static void add_metric_ticks(uni__text *out, const tune_page *p, double x)
{
    char text[CLI_SHORT];
    double ends[2] = { p->sign > 0 ? p->scale.low : p->scale.high,
                       p->sign > 0 ? p->scale.high : p->scale.low };
    double ticks[8];
    int count = cli_ticks(p->scale, p->log, 5, ticks);
    for (int end = 0; end < 2; end++)
        uni__text_add_format(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%s%s</text>\n", x + 6,
                             tune_page_y(end) + 4, cli_number(ends[end], text),
                             end ? " (best)" : "");
    for (int i = 0; i < count; i++) {
        double y = tune_page_y(part_of(p, ticks[i]));
        if (y > TUNE_TOP + 14 && y < TUNE_HEIGHT - TUNE_BOTTOM - 14)
            uni__text_add_format(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                                 x + 6, y + 4, cli_tick(ticks[i], text));
    }
}

static void add_coordinates(uni__text *out, tune_page *p)
{
    int64_t count = uni_tune_info_of(p->results)->num_trials, step = count / TUNE_MOST_LINES + 1;
    tune_page_begin_svg(out);
    for (int64_t i = 0; i < count; i += step)
        add_line(out, p, i);
    for (int i = 0; i < p->num_axes; i++)
        add_axis(out, p, i);
    double x = at_x(p, p->num_axes);
    uni__text_add_format(out,
                         "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                         "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-weight=\"600\">",
                         x, x, TUNE_TOP, TUNE_HEIGHT - TUNE_BOTTOM, x, TUNE_TOP - 14);
    cli_page_escape(out, p->metric);
    uni__text_add_format(out, "%s</text>", p->log ? " (logarithmic)" : "");
    add_metric_ticks(out, p, x);
    uni__text_add_string(out, "</svg>\n");
    if (step > 1)
        uni__text_add_format(out, "<p>Every %lldth trial of %lld is drawn.</p>\n", (long long)step,
                             (long long)count);
}

/* ---- trials that are not shown ---- */

typedef enum unseen { SEEN, OUTSIDE, NOT_FINITE, NOT_REPORTED } unseen;

static unseen unseen_of(const tune_page *p, int64_t trial)
{
    double value = tune_page_value(p, trial);
    if (isfinite(value))
        return side_of(p, value) == CLI_INSIDE ? SEEN : OUTSIDE;
    return uni_trial_info_of(p->results, trial)->iterations > 0 ? NOT_FINITE : NOT_REPORTED;
}

/* One line per reason: how many trials, and the first few by name. */
static void add_notes(uni__text *notes, const tune_page *p)
{
    static const char *const reasons[] = {
        [OUTSIDE] = "outside the axis, drawn at its edge",
        [NOT_FINITE] = "not drawn, because the last value is not finite",
        [NOT_REPORTED] = "not drawn, because nothing has been reported yet",
    };
    int64_t count = uni_tune_info_of(p->results)->num_trials;
    for (unseen reason = OUTSIDE; reason <= NOT_REPORTED; reason++) {
        char text[CLI_SHORT];
        uni__text names = { 0 };
        int64_t found = 0;
        for (int64_t i = 0; i < count; i++) {
            if (unseen_of(p, i) != reason || found++ >= MOST_NAMES)
                continue;
            uni__text_add_format(&names, "%strial %lld", found > 1 ? ", " : "", (long long)i);
            if (reason != NOT_REPORTED)
                uni__text_add_format(&names, " (%s)", cli_number(tune_page_value(p, i), text));
        }
        if (found)
            uni__text_add_format(notes, "%s: %lld of %lld trials %s: %s%s%s\n", p->metric,
                                 (long long)found, (long long)count, reasons[reason],
                                 names.data ? names.data : "", found > MOST_NAMES ? ", ..." : "",
                                 reason == OUTSIDE && !p->log && p->scale.low > 0
                                     ? "; --log shows the whole range"
                                     : "");
        notes->failed = notes->failed || names.failed;
        uni__text_free(&names);
    }
}

/* One paragraph per line. */
static void show_notes(uni__text *out, const uni__text *notes)
{
    for (const char *from = notes->data, *end; from && (end = strchr(from, '\n')); from = end + 1) {
        char *line = strndup(from, (size_t)(end - from));
        uni__text_add_string(out, "<p>");
        cli_page_escape(out, line ? line : "");
        uni__text_add_string(out, "</p>\n");
        free(line);
    }
}

/* ---- the best trials ---- */

typedef struct ranked {
    int64_t trial;
    double value; /* greater is better */
} ranked;

static int better_first(const void *one, const void *other)
{
    double a = ((const ranked *)one)->value, b = ((const ranked *)other)->value;
    return a > b ? -1 : a < b;
}

static void add_row(uni__text *out, const tune_page *p, int64_t trial)
{
    char text[CLI_SHORT];
    uni__text_add_format(out, "<tr><td>%lld<td>%s", (long long)trial,
                         cli_number(tune_page_value(p, trial), text));
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

static int add_table(uni__text *out, const tune_page *p, uni_error *err)
{
    int64_t count = uni_tune_info_of(p->results)->num_trials, finite = 0;
    ranked *order = calloc((size_t)count + 1, sizeof *order);
    if (!order)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the table");
    for (int64_t i = 0; i < count; i++) {
        double value = p->sign * tune_page_value(p, i);
        if (isfinite(value))
            order[finite++] = (ranked){ i, value };
    }
    qsort(order, (size_t)finite, sizeof *order, better_first);
    uni__text_add_format(out, "<h2>The best%s</h2>\n<table><tr><th>trial<th>",
                         finite > MOST_ROWS ? " trials" : " trials first");
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

/* "search/tune_001": the last two components of the experiment's path. */
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
    ".edge{fill:#b3261e}.dot{stroke-width:5}.trial:hover{stroke:#000;"
    "stroke-width:3;stroke-opacity:1}h2{margin-bottom:"
    "0}"
    "table{border-collapse:collapse}th,td{padding:.2em .8em;text-align:right;border-bottom:1px "
    "solid #8884}"
    "@media(prefers-color-scheme:dark){body{background:#16181c;color:#ccc}text{fill:#ccc}"
    ".tick{stroke:#16181c}.axis{stroke:#999}.grid{stroke:#333}.trial:hover{stroke:#fff}}</style>\n";

static int prepare(tune_page *p, const char *mode, uni_error *err)
{
    int64_t best, count = uni_tune_info_of(p->results)->num_trials;
    UNI_TRY(uni_tune_best(&best, p->results, p->metric, mode, UNI_SCOPE_LAST, err));
    if (!mode)
        mode = uni_dict_get_string(uni_tune_info_of(p->results)->spec, "mode", "min");
    p->sign = strcmp(mode, "max") == 0 ? 1 : -1;
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    if (!values)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the page");
    for (int64_t i = 0; i < count; i++)
        values[i] = tune_page_value(p, i);
    bool drawn = cli_axis_range(values, (size_t)count, NULL, p->log, &p->scale);
    free(values);
    if (!drawn)
        return uni_error_set(err, UNI_EINVAL,
                             "--log: no value of %s is greater than 0; plot without --log",
                             p->metric);
    collect_axes(p, uni_trial_info_of(p->results, best)->config, "");
    for (int i = 0; i < p->num_axes; i++)
        measure_axis(p, i);
    drop_constants(p);
    return 0;
}

int tune_page_make(const uni_tune_results *results, const tune_page_options *options,
                   uni__text *out, uni__text *notes, uni_error *err)
{
    tune_page *p = calloc(1, sizeof *p);
    if (!p)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the page");
    p->results = results;
    p->log = options->log;
    p->metric = options->metric
                    ? options->metric
                    : uni_dict_get_string(uni_tune_info_of(results)->spec, "metric", NULL);
    int status = p->metric
                     ? prepare(p, options->mode, err)
                     : uni_error_set(err, UNI_EINVAL,
                                     "the experiment has no metric: give --metric and --mode");
    if (status == 0) {
        uni__text_add_string(out, head);
        uni__text_add_string(out, "<title>");
        cli_page_escape(out, uni_tune_info_of(results)->dir);
        uni__text_add_string(out, "</title></head><body><h1>");
        cli_page_escape(out, title_of(uni_tune_info_of(results)->dir));
        uni__text_add_format(out, ": %lld trials</h1>\n<h2>Parameters and ",
                             (long long)uni_tune_info_of(results)->num_trials);
        cli_page_escape(out, p->metric);
        uni__text_add_format(out, " (%s is best)</h2>\n", p->sign > 0 ? "max" : "min");
        add_coordinates(out, p);
        add_notes(notes, p);
        show_notes(out, notes);
        status = tune_page_curves(out, p, err);
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
