/* show_command.c - `unisono show`: everything about one run on one page. */
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/run_view.h"
#include "cli/table.h"

typedef struct show_values {
    const char *storage, *color;
    bool json, all;
} show_values;

static const cli_option show_options[] = {
    { NULL, "all", 'a', CLI_FLAG, offsetof(show_values, all), NULL, NULL, NULL, NULL,
      "every checkpoint, not only the best and the ten newest" },
    CLI_STORAGE_OPTION(show_values),
    CLI_JSON_OPTION(show_values),
    CLI_COLOR_OPTION(show_values),
    CLI_END_OPTION,
};

#define LABEL 12
#define NEWEST 10 /* checkpoints in the table unless all are requested */

static void fact(const cli_terminal *terminal, const char *label, const char *text)
{
    fprintf(terminal->out, "  %s%-*s%s", cli_begin(terminal, CLI_DIM), LABEL, label,
            cli_end(terminal, CLI_DIM));
    cli_wrap(terminal->out, terminal->width, LABEL + 2, LABEL + 2, text);
}

static void fact_json(const cli_terminal *terminal, const char *label, const uni_value *value)
{
    char *text = NULL;
    if (uni_dict_size(value) && uni_json_write(&text, NULL, value, 0, NULL) == 0)
        fact(terminal, label, text);
    free(text);
}

static void print_facts(cli_context *context, const uni_run *run)
{
    const cli_terminal *terminal = &context->out;
    const uni_value *about = uni_run_info_of(run)->description;
    uni_run_status status = uni_run_info_of(run)->status;
    char mark[64], date[CLI_SHORT], ago[CLI_SHORT], took[CLI_SHORT], line[400];
    double created = uni_dict_get_float(about, "created", 0);
    cli_status_text(terminal, status, mark, sizeof mark);
    fprintf(terminal->out, "%s%s%s  ", cli_begin(terminal, CLI_BOLD), uni_run_info_of(run)->id,
            cli_end(terminal, CLI_BOLD));
    cli_styled(terminal, cli_status_style(status), mark);
    fputs("\n\n", terminal->out);
    uni__text what = { 0 };
    cli_run_what(run, &what);
    fact(terminal, "what", what.data ? what.data : "");
    uni__text_free(&what);
    snprintf(line, sizeof line, "%s (%s), %s %s", cli_date(created, date),
             cli_ago(context->now, created, ago), uni_run_is_live(run) ? "running for" : "took",
             cli_duration(cli_run_seconds(run, context->now), took));
    fact(terminal, "started", line);
    const uni_value *options = uni_dict_get(about, "options");
    int64_t workers = cli_run_workers(about);
    char sizes[64] = "";
    if (uni_dict_get(options, "max_workers"))
        snprintf(sizes, sizeof sizes, " (%lld to %lld)",
                 (long long)uni_dict_get_int(options, "min_workers", 1),
                 (long long)uni_dict_get_int(options, "max_workers", workers));
    snprintf(line, sizeof line, "%lld%s, backend %s, launcher %s, on %s", (long long)workers, sizes,
             uni_dict_get_string(about, "backend", "?"),
             uni_dict_get_string(about, "launcher", "?"),
             uni_dict_get_string(about, "hostname", "?"));
    fact(terminal, "workers", line);
    cli_interruptions(about, took);
    snprintf(line, sizeof line, "%lld, %s", (long long)cli_run_iterations(run),
             took[0] ? took : "0 restarts");
    fact(terminal, "iterations", line);
    fact_json(terminal, "config", uni_dict_get(about, "config"));
    fact(terminal, "directory", uni_run_info_of(run)->dir);
    const char *error = uni_dict_get_string(uni_dict_get(about, "error"), "message", "");
    if (error[0]) {
        fprintf(terminal->out, "  %s%-*s", cli_begin(terminal, CLI_BAD), LABEL, "error");
        cli_wrap(terminal->out, terminal->width, LABEL + 2, LABEL + 2, error);
        fprintf(terminal->out, "%s", cli_end(terminal, CLI_BAD));
    }
}

/* The entries of a list by rank, the first of each; NULL if out of memory. The caller frees it. */
static const uni_value **by_rank(const uni_value *list, int64_t num_ranks)
{
    const uni_value **found = calloc((size_t)num_ranks + 1, sizeof *found);
    for (size_t i = 0; found && i < uni_list_size(list); i++) {
        int64_t rank = uni_dict_get_int(uni_list_get(list, i), "rank", -1);
        if (rank >= 0 && rank < num_ranks && !found[rank])
            found[rank] = uni_list_get(list, i);
    }
    return found;
}

static void print_ranks(cli_context *context, const uni_run *run, const uni_value *reports)
{
    static const cli_column columns[] = { { "RANK", true, 0, 0 },
                                          { "HOST", false, 1, 0 },
                                          { "PID", true, 2, 0 },
                                          { "ITER", true, 0, 0 },
                                          { "LAST REPORT", false, 0, 20 } };
    const uni_value *about = uni_run_info_of(run)->description;
    int64_t num_ranks = uni_dict_get_int(about, "num_workers", 0);
    cli_table *table = cli_table_new(columns, 5);
    const uni_value **last = by_rank(reports, num_ranks),
                    **workers = by_rank(uni_dict_get(about, "workers"), num_ranks);
    for (int64_t rank = 0; last && workers && rank < num_ranks; rank++) {
        const uni_value *report = last[rank], *worker = workers[rank];
        /* After the end of a run its pids may belong to other processes. */
        int64_t pid = uni_run_is_live(run) ? uni_dict_get_int(worker, "pid", 0) : 0;
        uni__text metrics = { 0 };
        cli_add_metrics(&metrics, uni_dict_get(report, "metrics"), 6);
        cli_table_cell(table, CLI_SERIES + (int)rank, "%lld", (long long)rank);
        cli_table_cell(table, CLI_PLAIN, "%s", uni_dict_get_string(worker, "host", "-"));
        if (pid > 0)
            cli_table_cell(table, CLI_PLAIN, "%lld", (long long)pid);
        else
            cli_table_cell(table, CLI_DIM, "-");
        if (report)
            cli_table_cell(table, CLI_PLAIN, "%lld",
                           (long long)uni_dict_get_int(report, "iteration", 0));
        else
            cli_table_cell(table, CLI_DIM, "-");
        cli_table_cell(table, report ? CLI_PLAIN : CLI_DIM, "%s",
                       report ? (metrics.data ? metrics.data : "") : "none");
        uni__text_free(&metrics);
    }
    free(last);
    free(workers);
    fputc('\n', context->out.out);
    cli_table_print(table, &context->out, 2);
    if (!uni_list_size(reports))
        fprintf(context->out.out, "  No reports%s.\n", uni_run_is_live(run) ? " yet" : "");
    cli_table_free(table);
}

/* "latest" and "best" are paths in run.json: compare their last components. */
static bool ends_in(const char *path, const char *name)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return path && strcmp(slash ? slash + 1 : path, name) == 0;
}

/* run.json is not written with every checkpoint: for a running run the last complete one in the
 * list is the latest. */
static const char *latest_of(const uni_run *run, const uni_value *checkpoints)
{
    for (size_t i = uni_list_size(checkpoints); i-- > 0 && uni_run_is_live(run);)
        if (!uni_dict_get_string(uni_list_get(checkpoints, i), "error", NULL))
            return uni_dict_get_string(uni_list_get(checkpoints, i), "name", NULL);
    return uni_dict_get_string(uni_run_info_of(run)->description, "latest_checkpoint", NULL);
}

static void print_checkpoints(cli_context *context, const uni_run *run,
                              const uni_value *checkpoints, bool all)
{
    static const cli_column columns[] = {
        { "CHECKPOINT", false, 0, 0 }, { "ITER", true, 0, 0 }, { "SIZE", true, 0, 0 },
        { "TAKEN", false, 1, 0 },      { "", false, 0, 0 },    { "METRICS", false, 0, 16 }
    };
    const uni_value *about = uni_run_info_of(run)->description;
    const char *latest = latest_of(run, checkpoints);
    const char *best =
        uni_run_is_live(run) ? NULL : uni_dict_get_string(about, "best_checkpoint", NULL);
    cli_table *table = cli_table_new(columns, 6);
    size_t count = uni_list_size(checkpoints), hidden = 0;
    for (size_t i = 0; i < count; i++) {
        const uni_value *entry = uni_list_get(checkpoints, i);
        const char *name = uni_dict_get_string(entry, "name", "?");
        const char *error = uni_dict_get_string(entry, "error", NULL);
        if (!all && !error && i + NEWEST < count && !ends_in(best, name)) {
            hidden++;
            continue;
        }
        char text[CLI_SHORT], size[CLI_SHORT];
        uni__text metrics = { 0 };
        cli_add_metrics(&metrics, uni_dict_get(entry, "metrics"), 4);
        bool is_best = ends_in(best, name), is_latest = ends_in(latest, name);
        cli_table_cell(table, error ? CLI_BAD : CLI_PLAIN, "%s", name);
        cli_table_cell(table, CLI_PLAIN, "%lld",
                       (long long)uni_dict_get_int(entry, "iteration", 0));
        cli_table_cell(table, CLI_PLAIN, "%s",
                       error ? "-" : cli_bytes(uni_dict_get_float(entry, "bytes", 0), size));
        cli_table_cell(table, CLI_PLAIN, "%s",
                       cli_ago(context->now, uni_dict_get_float(entry, "time", 0), text));
        cli_table_cell(table, CLI_GOOD, "%s",
                       error                  ? "damaged"
                       : is_best && is_latest ? "best, latest"
                       : is_best              ? "best"
                       : is_latest            ? "latest"
                                              : "");
        cli_table_cell(table, CLI_DIM, "%s", metrics.data ? metrics.data : "");
        uni__text_free(&metrics);
    }
    int64_t step = cli_step_checkpoint(run);
    fputc('\n', context->out.out);
    if (uni_list_size(checkpoints))
        cli_table_print(table, &context->out, 2);
    else if (step < 0)
        fprintf(context->out.out, "  No checkpoints.\n");
    if (step >= 0)
        fprintf(context->out.out, "  One of a step after iteration %lld, to resume from.\n",
                (long long)step);
    if (hidden)
        fprintf(context->out.out, "  %zu older checkpoints not shown (--all shows them)\n", hidden);
    cli_table_free(table);
}

static int print_json(cli_context *context, const uni_run *run, uni_value *reports,
                      uni_value *checkpoints)
{
    uni_value *answer = cli_run_json(run);
    if (uni_dict_take(answer, "last_reports", reports) < 0) {
        uni_value_free(checkpoints);
        uni_value_free(answer);
        return cli_print_json(context, NULL);
    }
    if (uni_dict_take(answer, "checkpoints", checkpoints) < 0) {
        uni_value_free(answer);
        answer = NULL;
    }
    return cli_print_json(context, answer);
}

static int call_show(cli_context *context, const cli_parsed *parsed)
{
    const show_values *values = parsed->values;
    uni_run *run = NULL;
    uni_error err = { 0 };
    if (uni_run_open(&run, parsed->args[0], values->storage, &err) < 0)
        return cli_fail(context, "show", &err);
    uni_value *reports = cli_last_reports(run), *checkpoints = cli_checkpoints(run);
    int code = UNI_EXIT_OK;
    if (values->json) {
        code = print_json(context, run, reports, checkpoints);
    } else {
        print_facts(context, run);
        print_ranks(context, run, reports);
        print_checkpoints(context, run, checkpoints, values->all);
        if (cli_run_resumable(run))
            fprintf(
                context->out.out,
                "\n  unisono why %s  says why it ended; unisono run --resume %s  continues it.\n",
                uni_run_info_of(run)->id, uni_run_info_of(run)->id);
        uni_value_free(reports);
        uni_value_free(checkpoints);
    }
    uni_run_close(run);
    return code;
}

static const cli_example show_examples[] = {
    { "unisono show", "the newest run" },
    { "unisono show digits/run_002 --json | jq .latest_checkpoint", "for programs" },
    { NULL, NULL },
};

const cli_command cli_show_command = {
    .name = "show",
    .arguments = "[RUN]",
    .summary = "show one run: ranks, last reports, checkpoints",
    .description = "Shows the options and state of a run, the last report of every rank and the "
                   "checkpoints that are kept.",
    .options = show_options,
    .values_size = sizeof(show_values),
    .max_args = 1,
    .completes = "<run>",
    .examples = show_examples,
    .call = call_show,
};
