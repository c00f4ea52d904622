/*
 * run_output.c - the user's view of a run: the workers' lines, the progress, and the final block.
 *
 * Workers' lines go to stdout, our own output to stderr. If both are the same terminal, the
 * progress bar owns it and prints the lines above itself (on the sink thread); otherwise the log
 * follower has its own thread and writes whole lines.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unisono/log.h>

#include "base/safe_text.h"
#include "cli/explain.h"
#include "cli/format.h"
#include "cli/run_command.h"
#include "cli/run_view.h"
#include "cli/suggest.h"

/* ---- the workers' lines ---- */

static int make_follower(run_output *out, const char *run_dir, int num_ranks, bool from_end,
                         uni_error *err)
{
    const cli_log_options options = { .run_dir = run_dir,
                                      .num_ranks = num_ranks,
                                      .out = &out->context->out,
                                      .prefix = true,
                                      .from_end = from_end };
    return cli_log_follower_new(&out->follower, &options, err);
}

/* The first moment that a new run's directory is known; workers may have written already, and are
 * read from the beginning. */
static void on_start(void *context, const uni_start_info *info)
{
    run_output *out = context;
    if (!out->follower &&
        make_follower(out, info->run_dir, info->world_size, false, &out->problem) < 0)
        return;
    if (!out->bar)
        (void)!cli_log_follower_start(out->follower, &out->problem);
}

static void on_log(void *context, uni_log_level level, const char *message)
{
    run_output *out = context;
    (void)level;
    pthread_mutex_lock(&out->lock);
    uni__text_add_string(&out->said, "unisono: ");
    uni__text_add_safe(&out->said, message, strlen(message), "\n\t");
    uni__text_add_char(&out->said, '\n');
    pthread_mutex_unlock(&out->lock);
}

/* On the sink thread, for the bar: warnings of the library, then the workers' lines. */
static const char *lines_above(void *context, size_t *size)
{
    run_output *out = context;
    size_t from_workers = 0;
    pthread_mutex_lock(&out->lock);
    uni__text_clear(&out->above);
    uni__text_add(&out->above, out->said.data, out->said.size);
    uni__text_clear(&out->said);
    pthread_mutex_unlock(&out->lock);
    const char *text = out->follower ? cli_log_follower_take(out->follower, &from_workers) : NULL;
    uni__text_add(&out->above, text, from_workers);
    *size = out->above.size;
    return out->above.data;
}

/* True if stdout and stderr are the same terminal, and it can move its cursor. */
static bool same_terminal(void)
{
    struct stat out, err;
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) && fstat(STDOUT_FILENO, &out) == 0 &&
           fstat(STDERR_FILENO, &err) == 0 && out.st_rdev == err.st_rdev && kind &&
           strcmp(kind, "dumb") != 0;
}

/* ---- sinks ---- */

static int add_sink(run_output *out, const char *name, uni_error *err)
{
    static const char names[] = CLI_SINKS "|none";
    char nearest[64];
    uni_sink **sink = &out->sinks[out->num_sinks];
    if (out->no_sinks)
        return uni_error_set(err, UNI_EINVAL, "--sink %s: none excludes other sinks", name);
    if (strcmp(name, "none") == 0) {
        out->no_sinks = true;
        return out->num_sinks == out->num_display
                   ? 0
                   : uni_error_set(err, UNI_EINVAL, "--sink none: there is another --sink");
    }
    if (!name[0])
        return uni_error_set(err, UNI_EINVAL, "--sink: a name is empty; there are: %s", names);
    if (out->num_sinks == CLI_MAX_SINKS)
        return uni_error_set(err, UNI_EINVAL, "--sink: at most %d sinks", CLI_MAX_SINKS - 2);
    int status = 0;
    out->has_csv |= strcmp(name, "csv") == 0;
    if (strcmp(name, "csv") == 0)
        status = uni_sink_csv(sink, NULL, err);
    else if (strcmp(name, "json") == 0)
        status = uni_sink_json(sink, NULL, err);
    else if (strcmp(name, "print") == 0)
        status = uni_sink_print(sink, 0, err);
    else if (strcmp(name, "tensorboard") == 0)
        status = uni_sink_tensorboard(sink, NULL, err);
    else if (strcmp(name, "mlflow") == 0)
        status = uni_sink_mlflow(sink, NULL, err);
    else if (cli_suggest_of(name, names, nearest, sizeof nearest))
        return uni_error_set(err, UNI_EINVAL, "--sink %s: no such sink. Did you mean %s?", name,
                             nearest);
    else
        return uni_error_set(err, UNI_EINVAL, "--sink %s: must be one of %s", name, names);
    out->num_sinks += status == 0;
    return status;
}

static int add_sinks(run_output *out, const char *list, uni_error *err)
{
    do {
        char name[64];
        size_t length = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, list);
        UNI_TRY(add_sink(out, name, err));
        list += length + (list[length] == ',');
    } while (*list);
    return 0;
}

static int add_display(run_output *out, uni_error *err)
{
    bool both = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    out->bar = same_terminal();
    const uni_sink_functions callback = { .on_start = on_start, .context = out };
    const uni_sink_progress_options progress = { .style = out->bar ? 1
                                                          : both   ? 2
                                                                   : 0,
                                                 .above = out->bar ? lines_above : NULL,
                                                 .above_context = out,
                                                 .no_summary = true };
    if (out->bar)
        uni_log_function_set(on_log, out);
    UNI_TRY(uni_sink_from_functions(&out->sinks[out->num_sinks], &callback, err));
    out->num_sinks++;
    UNI_TRY(uni_sink_progress(&out->sinks[out->num_sinks], &progress, err));
    out->num_sinks++;
    out->num_display = out->num_sinks;
    return 0;
}

int cli_run_output_open(run_output *out, cli_context *context, const run_values *values,
                        const run_request *request, uni_error *err)
{
    *out = (run_output){ .context = context, .values = values, .lock = PTHREAD_MUTEX_INITIALIZER };
    if (!values->quiet && !values->json) {
        UNI_TRY(add_display(out, err));
        if (request->resumed) /* what the logs hold by now was shown then */
            UNI_TRY(make_follower(out, uni_run_info_of(request->resumed)->dir,
                                  request->trainer.num_workers, true, err));
    }
    if (request->sink)
        return add_sinks(out, request->sink, err);
    for (int i = 0; i < values->sink.count; i++)
        UNI_TRY(add_sinks(out, values->sink.items[i], err));
    return 0;
}

void cli_run_output_close(run_output *out)
{
    if (out->follower) {
        cli_log_follower_stop(out->follower);
        cli_log_follower_drain(out->follower);
        cli_log_follower_free(out->follower);
    }
    if (out->bar)
        uni_log_function_set(NULL, NULL);
    if (out->said.size)
        fputs(out->said.data, out->context->err.out);
    uni__text_free(&out->said);
    uni__text_free(&out->above);
    /* A reader that went away does not fail the run. */
    if (out->context)
        clearerr(out->context->out.out);
    if (out->context && out->problem.code)
        fprintf(out->context->err.out, "unisono run: %s\n", out->problem.message);
    for (int i = 0; i < out->num_sinks; i++)
        uni_sink_free(out->sinks[i]);
    *out = (run_output){ 0 };
}

/* ---- the final block ---- */

static void fact(const cli_terminal *terminal, const char *label, const char *text)
{
    fprintf(terminal->out, "  %s%-12s%s %s\n", cli_begin(terminal, CLI_DIM), label,
            cli_end(terminal, CLI_DIM), text);
}

static void conclude_success(const cli_terminal *terminal, uni_run *run)
{
    const uni_value *about = uni_run_info_of(run)->description;
    char took[CLI_SHORT], mark[64], text[1200];
    cli_status_text(terminal, UNI_RUN_SUCCEEDED, mark, sizeof mark);
    cli_styled(terminal, CLI_GOOD, mark);
    fprintf(terminal->out, " %s%s%s in %s", cli_begin(terminal, CLI_BOLD), uni_run_info_of(run)->id,
            cli_end(terminal, CLI_BOLD), cli_duration(cli_run_seconds(run, 0), took));
    if (cli_interruptions(about, took)[0])
        fprintf(terminal->out, ", with %s", took);
    fputc('\n', terminal->out);
    uni_value *reports = cli_last_reports(run);
    uni__text metrics = { 0 };
    cli_add_metrics(&metrics, uni_dict_get(uni_list_get(reports, 0), "metrics"), 6);
    if (metrics.size) {
        snprintf(text, sizeof text, "%s (iteration %lld, rank %lld)", metrics.data,
                 (long long)uni_dict_get_int(uni_list_get(reports, 0), "iteration", 0),
                 (long long)uni_dict_get_int(uni_list_get(reports, 0), "rank", 0));
        fact(terminal, "last report", text);
    }
    const char *latest = uni_dict_get_string(about, "latest_checkpoint", NULL);
    const char *best = uni_dict_get_string(about, "best_checkpoint", NULL);
    if (latest) {
        snprintf(text, sizeof text, "%s%s%s", latest,
                 best && strcmp(best, latest) != 0 ? ", best " : "",
                 best && strcmp(best, latest) != 0 ? best : "");
        fact(terminal, "checkpoint", text);
    }
    fact(terminal, "results", uni_run_info_of(run)->dir);
    if (metrics.size) {
        snprintf(text, sizeof text, "unisono plot %s", uni_run_info_of(run)->id);
        fact(terminal, "next", text);
    }
    uni__text_free(&metrics);
    uni_value_free(reports);
}

void cli_run_conclude(const cli_context *context, const run_values *values, const char *run_dir,
                      const uni_error *err)
{
    uni_run *run = NULL;
    uni_error reason = { 0 };
    const cli_terminal *terminal = &context->err;
    fflush(context->out.out);
    if (uni_run_open(&run, run_dir, NULL, &reason) < 0) {
        cli_fail(context, "run", err ? err : &reason);
        return;
    }
    if (!err && !values->quiet && !values->json)
        conclude_success(terminal, run);
    if (err) {
        fputc('\n', terminal->out);
        cli_explain(terminal, run, 20);
        fprintf(terminal->out, "\n  %sRun directory:%s %s\n", cli_begin(terminal, CLI_DIM),
                cli_end(terminal, CLI_DIM), uni_run_info_of(run)->dir);
    }
    uni_run_close(run);
}
