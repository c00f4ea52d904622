/* logs_command.c - `unisono logs`: what the workers wrote, or with -f what they are writing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/log.h"
#include "base/safe_text.h"
#include "cli/command.h"
#include "cli/follow_logs.h"
#include "cli/format.h"

typedef struct logs_values {
    const char *storage, *color, *rank, *prefix;
    long long lines;
    bool follow;
} logs_values;

static const cli_option logs_options[] = {
    { NULL, "follow", 'f', CLI_FLAG, offsetof(logs_values, follow), NULL, NULL, NULL, NULL,
      "keep printing until the run ends" },
    { NULL, "rank", 'r', CLI_STRING, offsetof(logs_values, rank), "LIST", NULL, NULL, NULL,
      "only these ranks, e.g. 0 or 0,2,5-7 (default: all)" },
    { NULL, "lines", 'n', CLI_INT, offsetof(logs_values, lines), "N", NULL, NULL, NULL,
      "only the last N lines of each rank (default: all; 10 with --follow)" },
    { NULL, "prefix", 0, CLI_CHOICE, offsetof(logs_values, prefix), "WHEN", "auto", NULL,
      "auto|always|never", "host:rank before each line; auto: with more than one rank" },
    CLI_STORAGE_OPTION(logs_values),
    CLI_COLOR_OPTION(logs_values),
    CLI_END_OPTION,
};

typedef struct selection {
    int num_ranks, count;
    bool *wanted;
    const char **hosts; /* by rank, borrowed from the run */
} selection;

static int select_ranks(selection *out, const uni_run *run, const char *ranks, uni_error *err)
{
    const uni_value *about = uni_run_info_of(run)->description;
    const uni_value *workers = uni_dict_get(about, "workers");
    int64_t asked = uni_dict_get_int(about, "num_workers", 1);
    out->num_ranks = asked > 0 && asked <= 100000 ? (int)asked : 1;
    out->wanted = calloc((size_t)out->num_ranks, sizeof *out->wanted);
    out->hosts = calloc((size_t)out->num_ranks, sizeof *out->hosts);
    if (!out->wanted || !out->hosts)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d ranks", out->num_ranks);
    for (int rank = 0; rank < out->num_ranks; rank++)
        out->wanted[rank] = ranks == NULL;
    if (ranks && !uni__read_ranges(ranks, out->wanted, out->num_ranks))
        return uni_error_set(err, UNI_EINVAL,
                             "--rank %s: %s has ranks 0 to %d; write them like 0,2,5-7", ranks,
                             uni_run_info_of(run)->id, out->num_ranks - 1);
    for (size_t i = 0; i < uni_list_size(workers); i++) {
        int64_t rank = uni_dict_get_int(uni_list_get(workers, i), "rank", -1);
        if (rank >= 0 && rank < out->num_ranks)
            out->hosts[rank] = uni_dict_get_string(uni_list_get(workers, i), "host", NULL);
    }
    for (int rank = 0; rank < out->num_ranks; rank++)
        out->count += out->wanted[rank];
    return 0;
}

/* The file position that at most `lines` lines follow, up to `until` (-1: the end). Reads the file
 * backwards. */
static long start_of_tail(FILE *file, long long lines, int64_t until)
{
    char block[8192];
    fseek(file, 0, SEEK_END);
    long end = ftell(file), at = end = until >= 0 && until < end ? (long)until : end;
    while (at > 0) {
        long from = at > (long)sizeof block ? at - (long)sizeof block : 0;
        fseek(file, from, SEEK_SET);
        size_t size = fread(block, 1, (size_t)(at - from), file);
        for (size_t i = size; i > 0; i--)
            if (block[i - 1] == '\n' && from + (long)i != end && lines-- <= 1)
                return from + (long)i;
        at = from;
    }
    return 0;
}

/* in_line: the last line was not complete, and continues here. until: -1: the end of the file. */
static void print_file(cli_context *context, const char *run_dir, const char *name,
                       const char *prefix, long long lines, int64_t until, bool *in_line)
{
    uni_error why = { 0 };
    int fd = uni__open_below(run_dir, name, &why);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    uni__text shown = { 0 };
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length = 0;
    if (!file && fd != UNI_ENOTFOUND)
        uni__warn("%s", why.message);
    if (!file)
        return;
    int64_t at = lines >= 0 ? start_of_tail(file, lines ? lines : 1, until) : 0;
    fseek(file, (long)at, SEEK_SET);
    while (lines != 0 && at != until && (length = getline(&line, &capacity, file)) > 0) {
        at += length;
        if (until >= 0 && at > until) {
            length -= (ssize_t)(at - until);
            at = until;
        }
        fputs(*in_line ? "" : prefix, context->out.out);
        *in_line = line[length - 1] != '\n';
        uni__text_clear(&shown);
        cli_safe_add_line(context->out.safe, &shown, line, uni__settle_line(line, (size_t)length),
                          context->out.colour);
        if (shown.size)
            fwrite(shown.data, 1, shown.size, context->out.out);
    }
    free(line);
    uni__text_free(&shown);
    fclose(file);
}

/* rank_N.log.1 has older lines, the last of which may end in rank_N.log; with --lines only the
 * newest file counts. */
static void print_rank(cli_context *context, const uni_run *run, const selection *chosen, int rank,
                       bool prefix, long long lines, int64_t until)
{
    char name[64], before[320] = "";
    uni__text host = { 0 };
    bool in_line = false;
    const char *named = chosen->hosts[rank] ? chosen->hosts[rank] : "rank";
    uni__text_add_safe(&host, named, strlen(named), "");
    if (prefix)
        snprintf(before, sizeof before, "%s%.100s:%d%s | ",
                 cli_begin(&context->out, CLI_SERIES + rank), host.data ? host.data : "", rank,
                 cli_end(&context->out, CLI_SERIES + rank));
    uni__text_free(&host);
    for (int older = lines < 0 ? 1 : 0; older >= 0; older--) {
        snprintf(name, sizeof name, "logs/rank_%d.log%s", rank, older ? ".1" : "");
        print_file(context, uni_run_info_of(run)->dir, name, before, lines, older ? -1 : until,
                   &in_line);
    }
    if (in_line)
        fputc('\n', context->out.out);
}

/* Follows until the run is over, which is checked once a second. */
static void follow(cli_context *context, uni_run *run, cli_log_follower *follower)
{
    bool live = uni_run_is_live(run);
    for (int turn = 0; live && !ferror(context->out.out); turn++) {
        cli_log_follower_poll(follower);
        nanosleep(&(struct timespec){ .tv_nsec = 50 * 1000000 }, NULL);
        uni_run *again = NULL;
        if (turn % 20 == 19 && uni_run_open(&again, uni_run_info_of(run)->dir, NULL, NULL) == 0)
            live = uni_run_is_live(again);
        uni_run_close(again);
    }
    cli_log_follower_drain(follower);
}

/* What the files have, and with --follow what is written from then on. The follower is there
 * first: a line that is written while older ones are printed comes after them. */
static int print_all(cli_context *context, uni_run *run, const selection *chosen, bool prefix,
                     long long lines, bool follows, uni_error *err)
{
    cli_log_follower *follower = NULL;
    const cli_log_options options = { .run_dir = uni_run_info_of(run)->dir,
                                      .num_ranks = chosen->num_ranks,
                                      .wanted = chosen->wanted,
                                      .out = &context->out,
                                      .prefix = prefix,
                                      .from_end = true };
    if (follows)
        UNI_TRY(cli_log_follower_new(&follower, &options, err));
    for (int rank = 0; rank < chosen->num_ranks; rank++)
        if (chosen->wanted[rank])
            print_rank(context, run, chosen, rank, prefix, lines,
                       follower ? cli_log_follower_begin(follower, rank) : -1);
    fflush(context->out.out);
    if (follower)
        follow(context, run, follower);
    cli_log_follower_free(follower);
    return 0;
}

static int call_logs(cli_context *context, const cli_parsed *parsed)
{
    const logs_values *values = parsed->values;
    uni_run *run = NULL;
    uni_error err = { 0 };
    selection chosen = { 0 };
    int status = uni_run_open(&run, parsed->args[0], values->storage, &err);
    if (status == 0)
        status = select_ranks(&chosen, run, values->rank, &err);
    if (status == 0) {
        bool prefix = strcmp(values->prefix, "auto") == 0 ? chosen.count > 1
                                                          : strcmp(values->prefix, "always") == 0;
        long long lines = cli_given(parsed, "lines") ? values->lines : values->follow ? 10 : -1;
        status = print_all(context, run, &chosen, prefix, lines, values->follow, &err);
    }
    uni_run_close(run);
    free(chosen.wanted);
    free(chosen.hosts);
    return status < 0 ? cli_fail(context, "logs", &err) : UNI_EXIT_OK;
}

static const cli_example logs_examples[] = {
    { "unisono logs -f", "watch the newest run" },
    { "unisono logs digits/run_003 --rank 2 -n 50", "the end of rank 2's log" },
    { "unisono logs digits | grep -i warning", "search all ranks" },
    { NULL, NULL },
};

const cli_command cli_logs_command = {
    .name = "logs",
    .arguments = "[RUN]",
    .summary = "print the workers' output",
    .description = "Prints the log files of a run: stdout and stderr of every rank, over all "
                   "attempts. Ranks are printed one after another because lines carry no "
                   "timestamps; --follow interleaves them as they are written.",
    .options = logs_options,
    .values_size = sizeof(logs_values),
    .max_args = 1,
    .completes = "<run>",
    .examples = logs_examples,
    .call = call_logs,
};
