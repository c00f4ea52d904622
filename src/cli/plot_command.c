/* plot_command.c - `unisono plot`: a metric over iterations, for several runs and ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/page.h"
#include "cli/plot.h"
#include "cli/suggest.h"

typedef struct plot_values {
    const char *storage, *color, *metric, *rank, *aggregate, *x, *svg, *html;
    long long width, height;
    double smooth;
    bool json, log, follow;
} plot_values;

static const cli_option plot_options[] = {
    { "Data", "metric", 'm', CLI_STRING, offsetof(plot_values, metric), "NAME", NULL, NULL, NULL,
      "metric to plot, a.b for nested ones (default: loss, or the first numeric metric)" },
    { NULL, "rank", 'r', CLI_STRING, offsetof(plot_values, rank), "LIST", NULL, NULL, NULL,
      "draw one curve for each of these ranks: all, or e.g. 0,2" },
    { NULL, "aggregate", 'a', CLI_CHOICE, offsetof(plot_values, aggregate), "HOW", "mean", NULL,
      "mean|min|max|sum", "without --rank: how to combine the ranks of one iteration" },
    { NULL, "x", 'x', CLI_STRING, offsetof(plot_values, x), "NAME", "iteration", NULL, NULL,
      "x axis: iteration, time (seconds since the first report), or a metric" },
    { NULL, "log", 'l', CLI_FLAG, offsetof(plot_values, log), NULL, NULL, NULL, NULL,
      "logarithmic y axis" },
    { NULL, "smooth", 's', CLI_NUMBER, offsetof(plot_values, smooth), "W", "0", NULL, NULL,
      "exponential smoothing with weight W, 0 (none) <= W < 1" },
    { "How", "width", 'w', CLI_INT, offsetof(plot_values, width), "N", NULL, NULL, NULL,
      "width in columns (default: the terminal's)" },
    { NULL, "height", 0, CLI_INT, offsetof(plot_values, height), "N", NULL, NULL, NULL,
      "height in rows (default: what fits, at most 20)" },
    { NULL, "follow", 'f', CLI_FLAG, offsetof(plot_values, follow), NULL, NULL, NULL, NULL,
      "redraw every second until the runs end" },
    { NULL, "svg", 0, CLI_STRING, offsetof(plot_values, svg), "FILE", NULL, NULL, "<file>",
      "write an SVG picture instead" },
    { NULL, "html", 0, CLI_STRING, offsetof(plot_values, html), "FILE", NULL, NULL, "<file>",
      "write a self-contained HTML page that shows the values under the pointer" },
    CLI_STORAGE_OPTION(plot_values),
    CLI_JSON_OPTION(plot_values),
    CLI_COLOR_OPTION(plot_values),
    CLI_END_OPTION,
};

/* ---- collecting ---- */

typedef struct collector {
    const plot_values *values;
    char metric[256]; /* "" until chosen */
    cli_series *series;
    const int *ranks; /* by series; -1: aggregated */
    size_t num_series;
    double first_time;
    char seen[1024]; /* names of metrics, for suggestions */
} collector;

static void choose_metric(collector *all, const uni_value *metrics)
{
    if (uni_value_is_number(uni_dict_get(metrics, "loss")))
        snprintf(all->metric, sizeof all->metric, "loss");
    for (size_t i = 0; i < uni_dict_size(metrics) && !all->metric[0]; i++)
        if (uni_dict_key_at(metrics, i)[0] != '_' &&
            uni_value_is_number(uni_dict_value_at(metrics, i)))
            snprintf(all->metric, sizeof all->metric, "%s", uni_dict_key_at(metrics, i));
}

static void note_names(collector *all, const uni_value *metrics)
{
    size_t used = 0;
    for (size_t i = 0; i < uni_dict_size(metrics) && used + 64 < sizeof all->seen; i++)
        used += (size_t)snprintf(all->seen + used, sizeof all->seen - used, "%s%.60s",
                                 used ? "|" : "", uni_dict_key_at(metrics, i));
}

static const uni_value *metric_in(const uni_value *metrics, const char *name)
{
    const uni_value *value = uni_dict_get(metrics, name);
    return value ? value : uni_value_path(metrics, name);
}

static double x_of(collector *all, const uni_reports *reports, const uni_value *metrics)
{
    const char *name = all->values->x;
    if (strcmp(name, "iteration") == 0)
        return (double)reports->iteration;
    if (strcmp(name, "time") != 0)
        return uni_value_as_float(metric_in(metrics, name), NAN);
    double at = uni_dict_get_float(metrics, "_timestamp", NAN);
    if (!(all->first_time > 0))
        all->first_time = at - uni_dict_get_float(metrics, "_time_this_iter_s", 0);
    return at - all->first_time;
}

/* The value of one series in one iteration; false if there is none. Non-finite numbers count as
 * gaps and are reported. */
static bool y_of(const collector *all, const uni_reports *reports, int rank, double *out)
{
    static const struct {
        const char *name;
        uni_aggregation how;
    } ways[] = { { "mean", UNI_AGGREGATE_MEAN },
                 { "min", UNI_AGGREGATE_MIN },
                 { "max", UNI_AGGREGATE_MAX },
                 { "sum", UNI_AGGREGATE_SUM } };
    if (rank >= 0) {
        const uni_value *value =
            rank < reports->world_size ? metric_in(reports->by_rank[rank], all->metric) : NULL;
        *out = uni_value_as_float(value, NAN);
        return uni_value_is_number(value);
    }
    for (size_t i = 0; i < 4; i++)
        if (strcmp(ways[i].name, all->values->aggregate) == 0 &&
            uni_reports_aggregate(out, reports, all->metric, ways[i].how, NULL, NULL) == 0)
            return true;
    *out = NAN;
    for (int i = 0; i < reports->world_size; i++)
        if (uni_value_is_number(metric_in(reports->by_rank[i], all->metric)))
            return true;
    return false;
}

static int visit(void *context, const uni_reports *reports, uni_error *err)
{
    collector *all = context;
    const uni_value *first = NULL;
    for (int rank = 0; rank < reports->world_size && !first; rank++)
        first = reports->by_rank[rank];
    if (!first)
        return 0;
    if (!all->metric[0])
        choose_metric(all, first);
    if (!all->seen[0])
        note_names(all, first);
    for (size_t i = 0; i < all->num_series; i++) {
        double y = NAN;
        const uni_value *mine = all->ranks[i] >= 0 && all->ranks[i] < reports->world_size
                                    ? reports->by_rank[all->ranks[i]]
                                    : first;
        if (!y_of(all, reports, all->ranks[i], &y))
            continue;
        double x = x_of(all, reports, mine);
        if (isfinite(x) && !cli_series_add(&all->series[i], x, y))
            return uni_error_set(err, UNI_ENOMEM, "no memory for the curves");
    }
    return 0;
}

static int no_points(const collector *all, const uni_run *run, uni_error *err)
{
    char nearest[64];
    if (!all->seen[0])
        return uni_error_set(err, UNI_ENOTFOUND, "%s has no reports yet", uni_run_info_of(run)->id);
    if (!all->metric[0])
        return uni_error_set(err, UNI_ENOTFOUND, "%s reports no numbers (only %s)",
                             uni_run_info_of(run)->id, all->seen);
    if (cli_suggest_of(all->metric, all->seen, nearest, sizeof nearest) &&
        strcmp(nearest, all->metric) != 0)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "%s does not report a number \"%s\". Did you mean %s?",
                             uni_run_info_of(run)->id, all->metric, nearest);
    bool is_x = strcmp(all->values->x, "iteration") != 0 && strcmp(all->values->x, "time") != 0;
    return uni_error_set(err, UNI_ENOTFOUND, "%s does not report %s \"%s\"%s%s%s; it reports %s",
                         uni_run_info_of(run)->id, is_x ? "numbers" : "a number", all->metric,
                         is_x ? " and \"" : "", is_x ? all->values->x : "",
                         is_x ? "\" together" : "", all->seen);
}

/* The ranks that get a curve each, or a single -1. Returns their number. */
static int ranks_for(const uni_run *run, const char *text, int **out, uni_error *err)
{
    int64_t asked = uni_dict_get_int(uni_run_info_of(run)->description, "num_workers", 1);
    int world = asked > 0 && asked <= 4096 ? (int)asked : 1;
    bool *wanted = calloc((size_t)world, sizeof *wanted);
    *out = calloc((size_t)world, sizeof **out);
    int count = 0;
    if (!wanted || !*out) {
        count = uni_error_set(err, UNI_ENOMEM, "no memory for %d ranks", world);
    } else if (!text) {
        (*out)[count++] = -1;
    } else if (strcmp(text, "all") != 0 && !uni__read_ranges(text, wanted, world)) {
        count =
            uni_error_set(err, UNI_EINVAL, "--rank %s: %s has ranks 0 to %d; write all, or 0,2,5-7",
                          text, uni_run_info_of(run)->id, world - 1);
    } else {
        for (int rank = 0; rank < world; rank++)
            if (wanted[rank] || strcmp(text, "all") == 0)
                (*out)[count++] = rank;
    }
    free(wanted);
    return count;
}

/* Adds the curves of one run to the plot. */
static int add_run(cli_plot *plot, collector *all, uni_run *run, uni_error *err)
{
    int *ranks = NULL;
    int count = ranks_for(run, all->values->rank, &ranks, err);
    cli_series *series =
        count > 0 ? realloc(plot->series, (plot->num_series + (size_t)count) * sizeof *series)
                  : NULL;
    int status = count < 0 ? count
                 : series  ? 0
                           : uni_error_set(err, UNI_ENOMEM, "no memory for the curves");
    if (status == 0) {
        plot->series = series;
        all->series = series + plot->num_series;
        all->num_series = (size_t)count;
        all->ranks = ranks;
        all->first_time = 0;
        all->seen[0] = '\0';
        memset(all->series, 0, (size_t)count * sizeof *series);
        plot->num_series += (size_t)count;
        status = uni_run_reports(run, visit, all, err);
        size_t points = 0;
        for (int i = 0; i < count; i++) {
            points += all->series[i].count;
            if (ranks[i] < 0)
                snprintf(all->series[i].label, sizeof all->series[i].label, "%s",
                         uni_run_info_of(run)->id);
            else
                snprintf(all->series[i].label, sizeof all->series[i].label, "%.140s rank %d",
                         uni_run_info_of(run)->id, ranks[i]);
            cli_series_smooth(&all->series[i], all->values->smooth);
        }
        if (status == 0 && points == 0)
            status = no_points(all, run, err);
    }
    free(ranks);
    return status;
}

/* live: set if one of the runs is still running. */
static int collect(cli_plot *plot, const cli_parsed *parsed, bool *live, uni_error *err)
{
    const plot_values *values = parsed->values;
    collector all = { .values = values };
    int status = 0, runs = parsed->num_args ? parsed->num_args : 1;
    *live = false;
    snprintf(all.metric, sizeof all.metric, "%s", values->metric ? values->metric : "");
    for (int i = 0; i < runs && status == 0; i++) {
        uni_run *run = NULL;
        status = uni_run_open(&run, parsed->args[i], values->storage, err);
        if (status == 0) {
            *live = *live || uni_run_is_live(run);
            status = add_run(plot, &all, run, err);
        }
        uni_run_close(run);
    }
    bool one_of_many = !values->rank && strcmp(values->aggregate, "mean") != 0;
    snprintf(plot->title, sizeof plot->title, "%.100s%s%s", all.metric,
             one_of_many ? ", ranks: " : "", one_of_many ? values->aggregate : "");
    plot->x_label = strcmp(values->x, "time") == 0 ? "seconds" : values->x;
    plot->log_y = values->log;
    return status;
}

/* ---- output ---- */

static int write_page(cli_context *context, const cli_plot *plot, const char *path, bool html,
                      uni_error *err)
{
    uni__text text = { 0 };
    if (html)
        cli_plot_html(plot, &text);
    else
        cli_plot_svg(plot, &text);
    int status = cli_page_write(context, path, &text, err);
    uni__text_free(&text);
    return status;
}

static uni_value *points_json(const double *values, size_t count)
{
    uni_value *list = uni_value_list();
    for (size_t i = 0; i < count && list; i++) {
        if (uni_list_take(list, uni_value_float(values[i])) < 0) {
            uni_value_free(list);
            return NULL;
        }
    }
    return list;
}

static int print_json(cli_context *context, const cli_plot *plot)
{
    uni_value *answer = uni_value_list();
    for (size_t i = 0; i < plot->num_series && answer; i++) {
        const cli_series *series = &plot->series[i];
        uni_value *entry = uni_value_dict();
        bool failed = uni_dict_take(entry, "metric", uni_value_string(plot->title)) < 0 ||
                      uni_dict_take(entry, "curve", uni_value_string(series->label)) < 0 ||
                      uni_dict_take(entry, "x", points_json(series->x, series->count)) < 0 ||
                      uni_dict_take(entry, "y", points_json(series->y, series->count)) < 0;
        answer = cli_list_add(answer, entry, failed);
    }
    return cli_print_json(context, answer);
}

static void draw(cli_context *context, const cli_plot *plot, const plot_values *values)
{
    int width = values->width > 0 ? (int)values->width : context->out.width;
    int room = context->out.height - 5 - (int)plot->num_series;
    int height = values->height > 0 ? (int)values->height : room > 20 ? 20 : room < 8 ? 8 : room;
    cli_plot_text(plot, &context->out, width, height);
}

static int call_plot(cli_context *context, const cli_parsed *parsed)
{
    const plot_values *values = parsed->values;
    uni_error err = { 0 };
    int code = UNI_EXIT_OK, status = 0;
    bool live = true;
    if (!(values->smooth >= 0 && values->smooth < 1))
        status = uni_error_set(&err, UNI_EINVAL, "--smooth must be at least 0 and less than 1");
    if ((cli_given(parsed, "width") && values->width < 1) ||
        (cli_given(parsed, "height") && values->height < 1))
        status = uni_error_set(&err, UNI_EINVAL,
                               "--width and --height must be at least 1 (leave them out for the "
                               "terminal's)");
    for (bool again = false; status == 0 && (live || !again); again = true) {
        cli_plot plot = { 0 };
        status = collect(&plot, parsed, &live, &err);
        live = live && values->follow;
        if (status == 0 && (values->svg || values->html)) {
            if (values->svg)
                status = write_page(context, &plot, values->svg, false, &err);
            if (status == 0 && values->html)
                status = write_page(context, &plot, values->html, true, &err);
            live = false;
        } else if (status == 0 && values->json) {
            code = print_json(context, &plot);
            live = false;
        } else if (status == 0) {
            if (values->follow && context->out.is_terminal)
                fprintf(context->out.out, "%s%s", cli_sequence(&context->out, "[H"),
                        cli_sequence(&context->out, "[2J"));
            draw(context, &plot, values);
            fflush(context->out.out);
        }
        cli_plot_free(&plot);
        if (live && status == 0)
            nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    }
    return status < 0 ? cli_fail(context, "plot", &err) : code;
}

static const cli_example plot_examples[] = {
    { "unisono plot", "the loss of the newest run" },
    { "unisono plot -m accuracy digits/run_001 digits/run_002", "two runs" },
    { "unisono plot -m loss --rank all --log digits", "every rank, logarithmic" },
    { "unisono plot --html loss.html digits", "a page to share" },
    { NULL, NULL },
};

const cli_command cli_plot_command = {
    .name = "plot",
    .arguments = "[RUN...]",
    .summary = "plot a metric over iterations",
    .description =
        "Draws curves in the terminal, or writes them as SVG or HTML. Works during the run. NaN "
        "and infinity appear as gaps and are counted in the legend. If a few diverged values would "
        "flatten the rest of the curve, they are drawn at the edge of the y axis and counted.",
    .options = plot_options,
    .values_size = sizeof(plot_values),
    .max_args = -1,
    .completes = "<run>",
    .examples = plot_examples,
    .call = call_plot,
};
