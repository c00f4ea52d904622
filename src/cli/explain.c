/*
 * explain.c - why a run ended, for people and for programs. The facts come from run.json; the
 * journal is read only for earlier attempts. cause_words.c has the words.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "cli/cause_words.h"
#include "cli/explain.h"
#include "cli/format.h"
#include "cli/run_view.h"
#include "cli/table.h"

/* ---- the block ---- */

/* Causes without a rank (a time limit, no progress) belong to the run. */
static const char *whose(const uni_value *cause, char *out, size_t size)
{
    int64_t rank = uni_dict_get_int(cause, "rank", -1);
    if (rank < 0)
        return "the run";
    snprintf(out, size, "rank %lld", (long long)rank);
    return out;
}

#define LABEL 13

static void fact(const cli_terminal *terminal, const char *label, const char *text)
{
    fprintf(terminal->out, "  %s%-*s%s", cli_begin(terminal, CLI_DIM), LABEL, label,
            cli_end(terminal, CLI_DIM));
    cli_wrap(terminal->out, terminal->width, LABEL + 2, LABEL + 2, text);
}

/* Removes control characters, which a worker's own text could otherwise send to the terminal. */
static void cleaned(const char *text, char *out, size_t size)
{
    snprintf(out, size, "%s", text);
    for (char *at = out; *at; at++)
        if ((unsigned char)*at < 0x20 && *at != '\n')
            *at = ' ';
}

static void print_log_tail(const cli_terminal *terminal, const uni_value *cause, size_t max_lines)
{
    const uni_value *lines = uni_dict_get(cause, "log_tail");
    size_t count = uni_list_size(lines);
    if (count == 0 || max_lines == 0)
        return;
    size_t first = count > max_lines ? count - max_lines : 0;
    char name[CLI_SHORT] = "the launcher";
    if (!cli_cause_is_launchers(cause))
        snprintf(name, sizeof name, "rank %lld", (long long)uni_dict_get_int(cause, "rank", 0));
    fprintf(terminal->out, "\n  %sLast lines of %s's log%s\n", cli_begin(terminal, CLI_BOLD), name,
            cli_end(terminal, CLI_BOLD));
    for (size_t i = first; i < count; i++) {
        fprintf(terminal->out, "  %s%s%s ", cli_begin(terminal, CLI_DIM),
                terminal->unicode ? "│" : "|", cli_end(terminal, CLI_DIM));
        cli_print_clean(terminal->out, uni_value_as_string(uni_list_get(lines, i), ""));
        fputc('\n', terminal->out);
    }
}

static void print_place(const cli_terminal *terminal, const uni_value *cause)
{
    uni__text where = { 0 };
    int64_t pid = uni_dict_get_int(cause, "pid", 0), rank = uni_dict_get_int(cause, "rank", -1);
    if (rank >= 0)
        uni__text_add_format(&where, "rank %lld on ", (long long)rank);
    uni__text_add_string(&where, uni_dict_get_string(cause, "host", "this host"));
    if (pid > 0)
        uni__text_add_format(&where, ", pid %lld", (long long)pid);
    uni__text_add_format(&where, ", attempt %lld, ",
                         (long long)uni_dict_get_int(cause, "attempt", 1));
    int64_t iteration = uni_dict_get_int(cause, "iteration", 0);
    if (iteration > 0)
        uni__text_add_format(&where, "after iteration %lld", (long long)iteration);
    else
        uni__text_add_string(&where, "before its first report");
    fact(terminal, "where", where.data ? where.data : "");
    uni__text_free(&where);
}

/* Returns whether there is one to resume from. */
static bool print_checkpoint(const cli_terminal *terminal, const uni_run *run)
{
    const char *latest =
        uni_dict_get_string(uni_run_info_of(run)->description, "latest_checkpoint", NULL);
    uni_value *all = cli_checkpoints(run);
    const uni_value *last = uni_list_get(all, uni_list_size(all) ? uni_list_size(all) - 1 : 0);
    char text[512];
    int64_t done = cli_run_iterations(run);
    int64_t at = uni_dict_get_int(last, "iteration", -1);
    int64_t step = cli_step_checkpoint(run);
    if (step >= done && step >= at)
        snprintf(text, sizeof text,
                 "of a step after iteration %lld: a resumed run goes on with the next step",
                 (long long)step);
    else if (at >= 0 && done > at)
        snprintf(text, sizeof text,
                 "%s, taken at iteration %lld of %lld: the last %lld would be repeated",
                 uni_dict_get_string(last, "name", "?"), (long long)at, (long long)done,
                 (long long)(done - at));
    else if (at >= 0)
        snprintf(text, sizeof text, "%s, taken at iteration %lld: nothing is lost",
                 uni_dict_get_string(last, "name", "?"), (long long)at);
    else if (latest)
        snprintf(text, sizeof text, "%s", latest);
    else
        snprintf(text, sizeof text,
                 "none: a resumed run starts over (`unisono report --checkpoint DIR`, or "
                 "--checkpoint-every for a fit of the engine, saves progress)");
    fact(terminal, "checkpoint", text);
    bool has = uni_list_size(all) > 0 || step >= 0 || latest != NULL;
    uni_value_free(all);
    return has;
}

static void print_command_line(const cli_terminal *terminal, const char *line, const char *what)
{
    fprintf(terminal->out, "    %s%s%s", cli_begin(terminal, CLI_INFO), line,
            cli_end(terminal, CLI_INFO));
    int pad = 46 - cli_width(line);
    fprintf(terminal->out, "%*s%s# %s%s\n", pad > 1 ? pad : 1, "", cli_begin(terminal, CLI_DIM),
            what, cli_end(terminal, CLI_DIM));
}

/* anew: there is no checkpoint, so a resumed run starts over. */
static void print_next(const cli_terminal *terminal, const uni_run *run, const uni_value *cause,
                       bool anew)
{
    const char *advice = cli_cause_advice(cause);
    uni__text line = { 0 };
    if (anew && strcmp(uni_dict_get_string(cause, "class", ""), "preempted") == 0)
        advice = "It has no checkpoint yet: a resumed run starts over.";
    fprintf(terminal->out, "\n  %sWhat to do%s\n", cli_begin(terminal, CLI_BOLD),
            cli_end(terminal, CLI_BOLD));
    if (advice[0]) {
        fprintf(terminal->out, "    ");
        cli_wrap(terminal->out, terminal->width, 4, 4, advice);
    }
    if (uni_dict_get_int(cause, "rank", -1) >= 0) {
        uni__text_add_string(&line, "unisono logs");
        cli_add_word(&line, uni_run_info_of(run)->id);
        uni__text_add_format(&line, " --rank %lld", (long long)uni_dict_get_int(cause, "rank", 0));
        print_command_line(terminal, line.data ? line.data : "", "its whole log");
        uni__text_clear(&line);
    }
    if (cli_run_resumable(run)) {
        uni__text_add_string(&line, "unisono run --resume");
        cli_add_word(&line, uni_run_info_of(run)->id);
        print_command_line(terminal, line.data ? line.data : "",
                           anew ? "start it over" : "continue where it ended");
    } else if (uni_run_info_of(run)->status != UNI_RUN_SUCCEEDED && !uni_run_is_live(run)) {
        fprintf(terminal->out, "    ");
        cli_wrap(terminal->out, terminal->width, 4, 4,
                 "The run belongs to another program's train function: start that program again "
                 "with this run's directory as resume_run.");
    }
    uni__text_free(&line);
}

/* Prints what ended each attempt before the last one, one line each. */
static void print_earlier(const cli_terminal *terminal, uni_run *run)
{
    const uni_value *events = NULL;
    if (uni_run_events(&events, run, NULL) < 0)
        return;
    int64_t last = uni_dict_get_int(uni_run_info_of(run)->description, "attempt", 1);
    bool failed = uni_run_info_of(run)->status != UNI_RUN_SUCCEEDED && !uni_run_is_live(run);
    for (size_t i = 0; i < uni_list_size(events); i++) {
        const uni_value *event = uni_list_get(events, i);
        int64_t attempt = uni_dict_get_int(event, "attempt", 0);
        if (strcmp(uni_dict_get_string(event, "event", ""), "cause") != 0 ||
            (failed && attempt >= last))
            continue;
        char label[32], says[200], text[300];
        const uni_value *cause = uni_dict_get(event, "cause");
        cause = cause ? cause : event;
        cli_cause_sentence(cause, says, sizeof says);
        snprintf(label, sizeof label, "attempt %lld", (long long)attempt);
        char reached[48] = "before its first report";
        int64_t iteration = uni_dict_get_int(cause, "iteration", 0);
        if (iteration > 0)
            snprintf(reached, sizeof reached, "after iteration %lld", (long long)iteration);
        char rank[32];
        snprintf(text, sizeof text, "%s %s %s", whose(cause, rank, sizeof rank), says, reached);
        fact(terminal, label, text);
    }
}

static bool is_event(const uni_value *event, const char *kind)
{
    return strcmp(uni_dict_get_string(event, "event", ""), kind) == 0;
}

/* A process ended, and the others continued. */
static bool is_loss(const uni_value *event)
{
    return is_event(event, "member") || is_event(event, "replaced") || is_event(event, "lost");
}

/* Prints processes that ended or were started again while the others continued (ranks that were
 * lost or replaced, parameter servers and their workers), one line each: how often, and the last
 * cause. */
static void print_members(const cli_terminal *terminal, uni_run *run)
{
    const uni_value *events = NULL;
    int64_t num_ranks = uni_dict_get_int(uni_run_info_of(run)->description, "num_workers", 0);
    if (uni_run_events(&events, run, NULL) < 0)
        return;
    for (int64_t rank = 0; rank < num_ranks; rank++) {
        const uni_value *last = NULL;
        int count = 0;
        for (size_t i = 0; i < uni_list_size(events); i++) {
            const uni_value *event = uni_list_get(events, i);
            if (!is_loss(event) || uni_dict_get_int(event, "rank", -1) != rank)
                continue;
            last = event;
            count++;
        }
        if (!last)
            continue;
        char text[1200], message[1000], role[48];
        snprintf(role, sizeof role, "rank %lld", (long long)rank);
        cleaned(uni_dict_get_string(last, "message", "?"), message, sizeof message);
        snprintf(text, sizeof text, "%.40s, alone, %d time%s%s: %s",
                 uni_dict_get_string(last, "role", role), count, count == 1 ? "" : "s",
                 count == 1 ? "" : ", last", message);
        fact(terminal,
             is_event(last, "member") ? "restarted"
             : is_event(last, "lost") ? "lost"
                                      : "replaced",
             text);
    }
}

static void print_headline(const cli_terminal *terminal, const uni_run *run)
{
    uni_run_status status = uni_run_info_of(run)->status;
    char mark[64], took[CLI_SHORT], when[CLI_SHORT];
    const uni_value *about = uni_run_info_of(run)->description;
    double finished = uni_dict_get_float(about, "finished", 0);
    cli_status_text(terminal, status, mark, sizeof mark);
    int style = cli_status_style(status);
    fprintf(terminal->out, "%s%s%s %s%s%s", cli_begin(terminal, style), mark,
            cli_end(terminal, style), cli_begin(terminal, CLI_BOLD), uni_run_info_of(run)->id,
            cli_end(terminal, CLI_BOLD));
    if (!uni_run_is_live(run))
        fprintf(terminal->out, " after %s", cli_duration(cli_run_seconds(run, 0), took));
    if (cli_interruptions(about, took)[0])
        fprintf(terminal->out, ", with %s", took);
    if (finished > 0)
        fprintf(terminal->out, " (%s)", cli_date(finished, when));
    fputc('\n', terminal->out);
}

/* True if only the kernel's word is known: the trainer's sentence would repeat ours. */
static bool is_plain(const uni_value *cause)
{
    const char *name = uni_dict_get_string(cause, "class", "");
    if (strstr(uni_dict_get_string(cause, "message", ""), "--address-space"))
        return false; /* a limit that may be the reason */
    return strcmp(name, "exit") == 0 || strcmp(name, "signal") == 0 || strcmp(name, "oom") == 0 ||
           strcmp(name, "preempted") == 0;
}

/* If the controller was killed, the victims in run.json are those of an earlier attempt. */
static const char *victims_of(uni_run *run)
{
    return uni_run_info_of(run)->status == UNI_RUN_INTERRUPTED
               ? ""
               : uni_dict_get_string(uni_run_info_of(run)->description, "victims", "");
}

static void print_cause(const cli_terminal *terminal, uni_run *run, const uni_value *cause,
                        size_t max_log_lines)
{
    char says[200], rank[32], text[1600];
    cli_cause_sentence(cause, says, sizeof says);
    snprintf(text, sizeof text, "%s %s", whose(cause, rank, sizeof rank), says);
    fact(terminal, "first cause", text);
    const char *message = uni_dict_get_string(cause, "message", "");
    if (message[0] && !is_plain(cause)) {
        cleaned(message, text, sizeof text);
        fact(terminal, "message", text);
    }
    print_place(terminal, cause);
    const char *victims = victims_of(run);
    if (victims[0]) {
        cleaned(victims, text, sizeof text);
        fact(terminal, "victims", text);
    }
    print_earlier(terminal, run);
    print_members(terminal, run);
    bool has_checkpoint = print_checkpoint(terminal, run);
    print_log_tail(terminal, cause, max_log_lines);
    print_next(terminal, run, cause, !has_checkpoint);
}

/* run.json of a killed controller has no cause: being killed is the cause. */
static uni_value *cause_of(const uni_run *run)
{
    const uni_value *about = uni_run_info_of(run)->description;
    const uni_value *cause = uni_dict_get(about, "cause");
    if (uni_run_info_of(run)->status != UNI_RUN_INTERRUPTED)
        return uni_dict_size(cause) && uni_run_info_of(run)->status != UNI_RUN_SUCCEEDED &&
                       !uni_run_is_live(run)
                   ? uni_value_copy(cause)
                   : NULL;
    uni_value *made = uni_value_dict();
    if (uni_dict_take(made, "class", uni_value_string("controller")) < 0 ||
        uni_dict_take(made, "rank", uni_value_int(-1)) < 0 ||
        uni_dict_take(made, "host", uni_value_copy(uni_dict_get(about, "hostname"))) < 0 ||
        uni_dict_take(made, "pid", uni_value_copy(uni_value_path(about, "controller.pid"))) < 0 ||
        uni_dict_take(made, "attempt", uni_value_int(uni_dict_get_int(about, "attempt", 1))) < 0 ||
        uni_dict_take(made, "iteration", uni_value_int(cli_run_iterations(run))) < 0) {
        uni_value_free(made);
        made = NULL;
    }
    return made;
}

/* The kernel's state of a process on this machine. */
static const char *process_state(int64_t pid, int *style)
{
    uni__process now;
    bool seen = pid > 0 && pid <= INT_MAX && uni__process_look((int)pid, &now);
    *style = CLI_PLAIN;
    switch (seen ? now.state : 0) {
    case 'R':
        return "computing";
    case 'S':
    case 'I':
        return "waiting";
    case 'D':
        return "waiting for a disk or a driver";
    case 'T':
    case 't':
        *style = CLI_BAD;
        return "frozen (SIGSTOP or a debugger)";
    default:
        *style = CLI_WARN;
        return "no such process on this host";
    }
}

/* A run that is running or hangs: the position of each rank, with the last one highlighted. */
static void print_ranks(const cli_terminal *terminal, const uni_run *run)
{
    static const cli_column columns[] = { { "RANK", true, 0, 0 },
                                          { "PID", true, 0, 0 },
                                          { "STATE", false, 0, 0 },
                                          { "ITER", true, 0, 0 },
                                          { "HOST", false, 1, 0 } };
    const uni_value *workers = uni_dict_get(uni_run_info_of(run)->description, "workers");
    uni_value *reports = cli_last_reports(run);
    cli_table *table = cli_table_new(columns, 5);
    int64_t most = cli_run_iterations(run);
    for (size_t i = 0; i < uni_list_size(workers); i++) {
        const uni_value *worker = uni_list_get(workers, i);
        int64_t rank = uni_dict_get_int(worker, "rank", 0), at = 0;
        for (size_t j = 0; j < uni_list_size(reports); j++)
            if (uni_dict_get_int(uni_list_get(reports, j), "rank", -1) == rank)
                at = uni_dict_get_int(uni_list_get(reports, j), "iteration", 0);
        int style = CLI_PLAIN;
        int64_t pid = uni_dict_get_int(worker, "pid", 0);
        const char *says = pid > 0 ? process_state(pid, &style) : "not started yet";
        cli_table_cell(table, CLI_SERIES + (int)rank, "%lld", (long long)rank);
        cli_table_cell(table, CLI_PLAIN, pid > 0 ? "%lld" : "-", (long long)pid);
        cli_table_cell(table, style, "%s", says);
        cli_table_cell(table, at < most ? CLI_WARN : CLI_PLAIN, "%lld", (long long)at);
        cli_table_cell(table, CLI_DIM, "%s", uni_dict_get_string(worker, "host", "-"));
    }
    fputc('\n', terminal->out);
    cli_table_print(table, terminal, 2);
    cli_table_free(table);
    uni_value_free(reports);
}

/* [{"event", "rank", "message", "time", ...}] from the journal, in order of time. */
static uni_value *members_json(uni_run *run)
{
    const uni_value *events = NULL;
    uni_value *list = uni_value_list();
    if (uni_run_events(&events, run, NULL) < 0)
        return list;
    for (size_t i = 0; i < uni_list_size(events); i++) {
        const uni_value *event = uni_list_get(events, i);
        if (is_loss(event) && uni_list_take(list, uni_value_copy(event)) < 0)
            break;
    }
    return list;
}

void cli_explain(const cli_terminal *terminal, uni_run *run, size_t max_log_lines)
{
    const uni_value *about = uni_run_info_of(run)->description;
    uni_value *cause = cause_of(run);
    print_headline(terminal, run);
    if (cause) {
        print_cause(terminal, run, cause, max_log_lines);
    } else if (uni_run_info_of(run)->status == UNI_RUN_SUCCEEDED) {
        fact(terminal, "first cause", "none: every rank succeeded");
        print_earlier(terminal, run);
        print_members(terminal, run);
    } else if (uni_run_is_live(run)) {
        fact(terminal, "first cause", "none so far: the run is still running");
        print_earlier(terminal, run);
        print_members(terminal, run);
        print_ranks(terminal, run);
    } else {
        char text[1100];
        cleaned(
            uni_dict_get_string(uni_dict_get(about, "error"), "message", "it stopped on request"),
            text, sizeof text);
        fact(terminal, "reason", text);
        print_earlier(terminal, run);
        print_members(terminal, run);
        bool has_checkpoint = print_checkpoint(terminal, run);
        print_next(terminal, run, NULL, !has_checkpoint);
    }
    uni_value_free(cause);
}

uni_value *cli_explain_json(uni_run *run)
{
    const uni_value *about = uni_run_info_of(run)->description;
    uni_value *cause = cause_of(run);
    uni_value *answer = uni_value_dict();
    char says[200] = "";
    if (cause)
        cli_cause_sentence(cause, says, sizeof says);
    const uni_value *resume = uni_dict_get(about, "latest_checkpoint");
    int status =
        uni_dict_take(answer, "id", uni_value_string(uni_run_info_of(run)->id)) < 0 ||
        uni_dict_take(answer, "status",
                      uni_value_string(uni_run_status_name(uni_run_info_of(run)->status))) < 0 ||
        uni_dict_take(answer, "sentence", uni_value_string(says)) < 0 ||
        uni_dict_take(answer, "victims", uni_value_string(victims_of(run))) < 0 ||
        uni_dict_take(answer, "attempts", uni_value_int(uni_dict_get_int(about, "attempt", 1))) <
            0 ||
        uni_dict_take(answer, "members", members_json(run)) < 0 ||
        uni_dict_take(answer, "advice", uni_value_string(cli_cause_advice(cause))) < 0 ||
        uni_dict_take(answer, "resumable", uni_value_bool(cli_run_resumable(run))) < 0 ||
        uni_dict_take(answer, "resume_from", resume ? uni_value_copy(resume) : uni_value_null()) <
            0;
    if (uni_dict_take(answer, "cause", cause ? cause : uni_value_null()) < 0)
        status = 1;
    if (status) {
        uni_value_free(answer);
        answer = NULL;
    }
    return answer;
}
