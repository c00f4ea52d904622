/* ls_command.c - `unisono ls`: the runs, newest first. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "train/shared.h"
#include "cli/format.h"
#include "cli/run_view.h"
#include "cli/table.h"

/* train_YYYY-MM-DD_HH-MM-SS/run_NNN: other commands need it in full, so only narrow terminals
 * truncate it. */
#define WHOLE_ID 33
#define CUT_ID 16

typedef struct ls_values {
    const char *storage, *color, *metric;
    const char *status;
    long long limit;
    bool json, quiet;
} ls_values;

static const cli_option ls_options[] = {
    { NULL, "metric", 'm', CLI_STRING, offsetof(ls_values, metric), "NAME", NULL, NULL, NULL,
      "show the last value of this metric (rank 0) as a column" },
    { NULL, "status", 's', CLI_CHOICE, offsetof(ls_values, status), "STATUS", NULL, NULL,
      "starting|running|succeeded|failed|stopped|interrupted", "only runs with this status" },
    { NULL, "limit", 'n', CLI_INT, offsetof(ls_values, limit), "N", NULL, NULL, NULL,
      "at most N runs; 0: all (default: 25 in the table, all with --json and --quiet)" },
    { NULL, "quiet", 'q', CLI_FLAG, offsetof(ls_values, quiet), NULL, NULL, NULL, NULL,
      "only the names, one per line" },
    CLI_STORAGE_OPTION(ls_values),
    CLI_JSON_OPTION(ls_values),
    CLI_COLOR_OPTION(ls_values),
    CLI_END_OPTION,
};

typedef struct listing {
    cli_context *context;
    const ls_values *values;
    const char *pattern; /* NULL: all */
    cli_table *table;
    uni_value *json;
    long long limit, shown, hidden;
} listing;

/* Matches NAME or NAME/run_001, literally, as a glob, or as a prefix of the name. */
static bool is_wanted(const listing *all, const uni_run *run)
{
    const char *id = uni_run_info_of(run)->id, *pattern = all->pattern,
               *status = all->values->status;
    if (status && strcmp(status, uni_run_status_name(uni_run_info_of(run)->status)) != 0)
        return false;
    if (!pattern)
        return true;
    char name[256];
    size_t length = strcspn(id, "/");
    length = length < sizeof name ? length : sizeof name - 1;
    memcpy(name, id, length);
    name[length] = '\0';
    return strncmp(id, pattern, strlen(pattern)) == 0 || fnmatch(pattern, name, 0) == 0 ||
           fnmatch(pattern, id, 0) == 0;
}

static void metric_cell(const listing *all, const uni_run *run)
{
    char number[CLI_SHORT];
    uni_value *reports = cli_last_reports(run);
    const uni_value *metrics = uni_dict_get(uni_list_get(reports, 0), "metrics");
    const uni_value *value = uni_value_path(metrics, all->values->metric);
    cli_table_cell(all->table, CLI_BOLD, "%s",
                   uni_value_is_number(value) ? cli_number(uni_value_as_float(value, 0), number)
                                              : uni_value_as_string(value, "-"));
    uni_value_free(reports);
}

static void add_row(listing *all, const uni_run *run)
{
    const uni_value *about = uni_run_info_of(run)->description;
    uni_run_status status = uni_run_info_of(run)->status;
    char text[CLI_SHORT], mark[64];
    uni__text what = { 0 };
    double now = all->context->now;
    cli_status_text(&all->context->out, status, mark, sizeof mark);
    cli_table_cell(all->table, CLI_BOLD, "%s", uni_run_info_of(run)->id);
    cli_table_cell(all->table, cli_status_style(status), "%s", mark);
    cli_table_cell(all->table, CLI_PLAIN, "%s",
                   cli_ago(now, uni_dict_get_float(about, "created", 0), text));
    cli_table_cell(all->table, CLI_PLAIN, "%s", cli_duration(cli_run_seconds(run, now), text));
    cli_table_cell(all->table, CLI_PLAIN, "%lld", (long long)cli_run_workers(about));
    cli_table_cell(all->table, CLI_PLAIN, "%lld", (long long)cli_run_iterations(run));
    if (all->values->metric)
        metric_cell(all, run);
    long long tries = uni_dict_get_int(about, "attempt", 1);
    cli_table_cell(all->table, tries > 1 ? CLI_WARN : CLI_DIM, "%lld", tries);
    cli_run_what(run, &what);
    cli_table_cell(all->table, CLI_DIM, "%s", what.data ? what.data : "");
    uni__text_free(&what);
}

/* Scripts and completion expand what --quiet prints, and in a shared storage other users choose the
 * names. So a name that a shell would split or expand, or that a command would take for an option,
 * is left out. */
static bool is_plain(const char *id)
{
    return id[0] != '-' && !strpbrk(id, " \t\n\r\v\f$`\"'\\*?[](){}<>|&;!#~");
}

static int visit_run(void *context, uni_run *run, uni_error *err)
{
    listing *all = context;
    if (!is_wanted(all, run))
        return 0;
    if (all->limit > 0 && all->shown >= all->limit) {
        all->hidden++;
        return 0;
    }
    all->shown++;
    if (all->values->quiet && is_plain(uni_run_info_of(run)->id))
        fprintf(all->context->out.out, "%s\n", uni_run_info_of(run)->id);
    else if (all->values->quiet)
        fprintf(all->context->err.out,
                "skipped: %s (a shell would split or expand the name; use unisono ls --json)\n",
                uni_run_info_of(run)->id);
    else if (all->json && uni_list_take(all->json, cli_run_json(run)) < 0)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the list");
    else if (all->table)
        add_row(all, run);
    return 0;
}

static void print_table(const listing *all, const char *storage)
{
    FILE *out = all->context->out.out;
    if (all->shown == 0) {
        fprintf(out,
                all->pattern || all->values->status
                    ? "No matching runs in %s.\n"
                    : "No runs in %s yet. Start one with: unisono run -n 2 -- PROGRAM\n",
                storage);
        return;
    }
    cli_table_print(all->table, &all->context->out, 0);
    if (all->hidden)
        fprintf(out, "%s%lld older runs not shown (-n 0 shows all)%s\n",
                cli_begin(&all->context->out, CLI_DIM), all->hidden,
                cli_end(&all->context->out, CLI_DIM));
}

static int call_ls(cli_context *context, const cli_parsed *parsed)
{
    const ls_values *values = parsed->values;
    cli_column columns[] = {
        { "RUN", false, 0, context->out.width < 80 ? CUT_ID : WHOLE_ID },
        { "STATUS", false, 0, 0 },
        { "STARTED", false, 0, 0 },
        { "TOOK", true, 0, 0 },
        { "RANKS", true, 2, 0 },
        { "ITER", true, 0, 0 },
        { "", true, 0, 0 },
        { "TRIES", true, 1, 0 },
        { "WHAT", false, 3, 10 },
    };
    const int num_columns = 9, metric_column = 6;
    if (values->metric)
        columns[metric_column].title = values->metric;
    else
        memmove(&columns[metric_column], &columns[metric_column + 1], 2 * sizeof columns[0]);
    listing all = { .context = context,
                    .values = values,
                    .pattern = parsed->num_args ? parsed->args[0] : NULL };
    uni_error err = { 0 };
    char *storage = NULL;
    int status = uni__run_storage(&storage, values->storage, &err);
    if (status == 0 && values->limit < 0)
        status = uni_error_set(&err, UNI_EINVAL, "--limit %lld: must not be negative (0: all)",
                               values->limit);
    all.limit = cli_given(parsed, "limit") ? values->limit : values->json || values->quiet ? 0 : 25;
    if (values->json)
        all.json = uni_value_list();
    else if (!values->quiet)
        all.table = cli_table_new(columns, values->metric ? num_columns : num_columns - 1);
    if (status == 0)
        status = uni_run_list(storage, visit_run, &all, &err);
    int code = UNI_EXIT_OK;
    if (status < 0)
        code = cli_fail(context, "ls", &err);
    else if (values->json)
        code = cli_print_json(context, uni_value_copy(all.json));
    else if (!values->quiet)
        print_table(&all, storage);
    uni_value_free(all.json);
    cli_table_free(all.table);
    free(storage);
    return code;
}

static const cli_example ls_examples[] = {
    { "unisono ls", "the newest runs" },
    { "unisono ls --metric loss digits", "all runs of one name, with their last loss" },
    { "unisono ls --status failed", "recent failures" },
    { "unisono ls --json | jq -r '.[] | select(.status == \"interrupted\") | .id'",
      "for scripts: runs whose controller was killed" },
    { NULL, NULL },
};

const cli_command cli_ls_command = {
    .name = "ls",
    .arguments = "[PATTERN]",
    .summary = "list the runs, newest first",
    .description =
        "Lists the runs in the results directory: status, start time, duration, iterations and "
        "restarts. A run is \"interrupted\" if its controller was killed; `unisono run --resume` "
        "continues it. PATTERN is the beginning of a name, or a glob.",
    .options = ls_options,
    .values_size = sizeof(ls_values),
    .max_args = 1,
    .completes = "<run>",
    .examples = ls_examples,
    .call = call_ls,
};
