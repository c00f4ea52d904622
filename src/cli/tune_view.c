/*
 * tune_view.c - an experiment in the terminal. While it runs, the table is redrawn in place a few
 * times a second: first the running trials and the best; in a pipe there is a line every five
 * seconds. Thread: main.
 */
#include "cli/tune_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/format.h"
#include "cli/table.h"

#define LIVE_ROWS 12
#define LIVE_SECONDS 0.25
#define PIPE_SECONDS 5.0
#define MAX_PARAMETERS 6

static void add_leaf(uni__text *out, const uni_value *value)
{
    char number[CLI_SHORT], *json = NULL;
    if (uni_value_type_of(value) == UNI_TYPE_STRING)
        uni__text_add_string(out, uni_value_as_string(value, ""));
    else if (uni_value_is_number(value) && uni_value_type_of(value) != UNI_TYPE_BOOL)
        uni__text_add_string(out, cli_number(uni_value_as_float(value, NAN), number));
    else if (uni_json_write(&json, NULL, value, 0, NULL) == 0)
        uni__text_add_string(out, json);
    free(json);
}

/* "lr 0.01, units 64": the first few parameters. */
static void add_config(uni__text *out, const uni_value *config, const char *prefix, int *count)
{
    for (size_t i = 0; i < uni_dict_size(config) && *count < MAX_PARAMETERS; i++) {
        const uni_value *value = uni_dict_value_at(config, i);
        if (uni_value_type_of(value) == UNI_TYPE_DICT) {
            char deeper[200];
            snprintf(deeper, sizeof deeper, "%.90s%.90s/", prefix, uni_dict_key_at(config, i));
            add_config(out, value, deeper, count);
            continue;
        }
        uni__text_add_format(out, "%s%s%s ", *count ? ", " : "", prefix,
                             uni_dict_key_at(config, i));
        add_leaf(out, value);
        ++*count;
    }
}

typedef struct row {
    int64_t trial;
    double key;
} row;

static int by_key(const void *left, const void *right)
{
    const row *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->trial < b->trial ? -1 : 1;
}

static int style_of(uni_trial_status status)
{
    return status == UNI_TRIAL_ERROR         ? CLI_BAD
           : status == UNI_TRIAL_RUNNING     ? CLI_INFO
           : status == UNI_TRIAL_TERMINATED  ? CLI_GOOD
           : status == UNI_TRIAL_INTERRUPTED ? CLI_WARN
                                             : CLI_DIM;
}

static void add_row(cli_table *table, const uni_tune_results *results, int64_t trial,
                    const char *metric)
{
    char text[CLI_SHORT];
    uni_trial_status status = uni_trial_info_of(results, trial)->status;
    uni__text config = { 0 };
    int count = 0;
    add_config(&config, uni_trial_info_of(results, trial)->config, "", &count);
    double value = metric ? uni_trial_value(results, trial, metric, NULL, UNI_SCOPE_LAST) : NAN;
    cli_table_cell(table, CLI_PLAIN, "%lld", (long long)trial);
    cli_table_cell(table, style_of(status), "%s", uni_trial_status_name(status));
    cli_table_cell(table, CLI_PLAIN, "%lld",
                   (long long)uni_trial_info_of(results, trial)->iterations);
    cli_table_cell(table, CLI_BOLD, "%s", isnan(value) ? "-" : cli_number(value, text));
    cli_table_cell(table, CLI_DIM, "%s",
                   cli_duration(uni_trial_info_of(results, trial)->seconds, text));
    cli_table_cell(table, CLI_PLAIN, "%s", config.data ? config.data : "");
    const char *error = uni_trial_info_of(results, trial)->error,
               *why = uni_trial_info_of(results, trial)->why;
    cli_table_cell(table, error ? CLI_BAD : CLI_DIM, "%.200s", error ? error : why ? why : "");
    uni__text_free(&config);
}

static int print_head(const cli_terminal *terminal, const uni_tune_results *results)
{
    long long expected = uni_tune_info_of(results)->num_expected, count[UNI_TRIAL_STATUSES];
    for (int i = 0; i < UNI_TRIAL_STATUSES; i++)
        count[i] = uni_tune_count_status(results, i);
    long long done = count[UNI_TRIAL_TERMINATED] + count[UNI_TRIAL_ERROR];
    fprintf(terminal->out, "%s%s%s  ", cli_begin(terminal, CLI_BOLD),
            uni_tune_info_of(results)->dir, cli_end(terminal, CLI_BOLD));
    if (expected >= 0)
        fprintf(terminal->out, "%lld of %lld trials done", done, expected);
    else
        fprintf(terminal->out, "%lld trials done", done);
    if (count[UNI_TRIAL_RUNNING])
        fprintf(terminal->out, ", %lld running", count[UNI_TRIAL_RUNNING]);
    if (count[UNI_TRIAL_PAUSED])
        fprintf(terminal->out, ", %lld paused", count[UNI_TRIAL_PAUSED]);
    if (count[UNI_TRIAL_INTERRUPTED])
        fprintf(terminal->out, ", %lld interrupted (continue with `unisono tune resume`)",
                count[UNI_TRIAL_INTERRUPTED]);
    if (count[UNI_TRIAL_ERROR])
        fprintf(terminal->out, ", %s%lld failed%s", cli_begin(terminal, CLI_BAD),
                count[UNI_TRIAL_ERROR], cli_end(terminal, CLI_BAD));
    fputc('\n', terminal->out);
    return 1;
}

int tune_view_table(const cli_terminal *terminal, const uni_tune_results *results,
                    const char *metric, const char *mode, int most)
{
    const uni_value *spec = uni_tune_info_of(results)->spec;
    metric = metric ? metric : uni_dict_get_string(spec, "metric", NULL);
    mode = mode ? mode : uni_dict_get_string(spec, "mode", "min");
    const cli_column columns[] = {
        { "TRIAL", true, 0, 0 },         { "STATUS", false, 0, 0 },
        { "ITER", true, 0, 0 },          { metric ? metric : "METRIC", true, 0, 0 },
        { "TIME", true, 2, 0 },          { "CONFIG", false, 0, 24 },
        { "HOW IT ENDED", false, 1, 12 }
    };
    int64_t count = uni_tune_info_of(results)->num_trials;
    row *rows = malloc((size_t)(count + 1) * sizeof *rows);
    cli_table *table = cli_table_new(columns, 7);
    for (int64_t i = 0; rows && i < count; i++) {
        double value = metric ? uni_trial_value(results, i, metric, NULL, UNI_SCOPE_LAST) : NAN;
        bool running = uni_trial_info_of(results, i)->status == UNI_TRIAL_RUNNING;
        rows[i] = (row){ .trial = i, .key = (double)i };
        if (most > 0) /* running trials, then the best */
            rows[i].key = running        ? -INFINITY
                          : isnan(value) ? INFINITY
                                         : (strcmp(mode, "max") == 0 ? -value : value);
    }
    if (rows && most > 0)
        qsort(rows, (size_t)count, sizeof *rows, by_key);
    int shown = (int)(most > 0 && count > most ? most : count);
    for (int i = 0; rows && table && i < shown; i++)
        add_row(table, results, rows[i].trial, metric);
    int lines = print_head(terminal, results);
    if (table && shown > 0) {
        cli_table_print(table, terminal, 0);
        lines += shown + 1;
    }
    cli_table_free(table);
    free(rows);
    int64_t best;
    if (metric && uni_tune_best(&best, results, metric, mode, UNI_SCOPE_LAST, NULL) == 0) {
        char text[CLI_SHORT];
        fprintf(terminal->out, "best: trial %lld, %s %s\n", (long long)best, metric,
                cli_number(uni_trial_value(results, best, metric, mode, UNI_SCOPE_LAST), text));
        lines++;
    }
    return lines;
}

static void wipe(tune_view *view)
{
    for (; view->lines > 0; view->lines--)
        fprintf(view->terminal->out, "%s%s", cli_sequence(view->terminal, "[1A"),
                cli_sequence(view->terminal, "[2K"));
}

static bool note_told(tune_view *view, int64_t trial)
{
    if (trial >= view->told_room) {
        int64_t room = 2 * trial + 64;
        char *grown = realloc(view->told, (size_t)room);
        if (!grown)
            return false;
        memset(grown + view->told_room, 0, (size_t)(room - view->told_room));
        view->told = grown;
        view->told_room = room;
    }
    bool before = view->told[trial];
    view->told[trial] = 1;
    return !before;
}

/* Prints one line for each trial that failed, once. */
static void tell_failures(tune_view *view, const uni_tune_results *results)
{
    int64_t count = uni_tune_info_of(results)->num_trials;
    if (uni_tune_count_status(results, UNI_TRIAL_ERROR) == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        if (uni_trial_info_of(results, i)->status != UNI_TRIAL_ERROR || !note_told(view, i))
            continue;
        const char *error = uni_trial_info_of(results, i)->error;
        wipe(view);
        fflush(view->terminal->out);
        fprintf(view->errors->out, "unisono tune: trial %lld failed: %.*s\n", (long long)i,
                (int)strcspn(error ? error : "", "\n"), error ? error : "");
    }
}

void tune_view_show(void *context, const uni_tune_results *results)
{
    tune_view *view = context;
    double now = uni__wall_seconds();
    tell_failures(view, results);
    if (now - view->shown < (view->terminal->is_terminal ? LIVE_SECONDS : PIPE_SECONDS))
        return;
    view->shown = now;
    if (view->terminal->is_terminal) {
        wipe(view);
        view->lines = tune_view_table(view->terminal, results, NULL, NULL, LIVE_ROWS);
    } else {
        print_head(view->terminal, results);
    }
    fflush(view->terminal->out);
}

void tune_view_end(tune_view *view, const uni_tune_results *results)
{
    tell_failures(view, results);
    if (view->terminal->is_terminal)
        wipe(view);
    tune_view_table(view->terminal, results, NULL, NULL, 20);
    free(view->told);
    view->told = NULL;
    view->told_room = 0;
}
