/*
 * report_command.c - `unisono report`: one report from a program that does not link the library.
 *
 * `unisono run` gives every worker the write end of a pipe as descriptor UNISONO_REPORT_FD. A
 * report is one JSON line in one write(2) of at most PIPE_BUF bytes, which the kernel keeps whole
 * even if children of the worker report at the same time:
 *   {"metrics":{"loss":0.3},"nonfinite":{"x":"NaN"},"staged":"/run/.staging/rank_0.1.ab"}
 * A checkpoint directory is copied into the run's staging directory before the command returns,
 * because scripts reuse theirs.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "checkpoint/stage.h"
#include "cli/command.h"

typedef struct report_values {
    const char *checkpoint, *color;
} report_values;

static const cli_option report_options[] = {
    { NULL, "checkpoint", 'c', CLI_STRING, offsetof(report_values, checkpoint), "DIR", NULL, NULL,
      "<dir>",
      "directory to save as the checkpoint of this iteration; it is copied before the command "
      "returns, so it can be reused immediately" },
    CLI_COLOR_OPTION(report_values),
    CLI_END_OPTION,
};

/* ---- parsing values ---- */

/* "NaN", "Infinity", "-Infinity" as spelled in the files, or NULL. */
static const char *nonfinite_name(const char *text)
{
    bool negative = text[0] == '-';
    const char *word = text + (negative || text[0] == '+');
    if (strcasecmp(word, "nan") == 0)
        return "NaN";
    if (strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0)
        return negative ? "-Infinity" : "Infinity";
    return NULL;
}

/* A number, JSON (list, dictionary, true, false, null, quoted text), or otherwise the text
 * itself. */
static uni_value *value_of(const char *text)
{
    uni_value *value = NULL;
    bool json = (text[0] && strchr("[{\"-0123456789", text[0])) || strcmp(text, "true") == 0 ||
                strcmp(text, "false") == 0 || strcmp(text, "null") == 0;
    if (json && uni_json_read(&value, text, strlen(text), NULL) == 0)
        return value;
    char *end = NULL;
    double number = strtod(text, &end);
    /* .5, 5., +1 are not JSON, but are numbers. */
    if (text[0] && !*end && isfinite(number) && strspn(text, "+-.0123456789eE") == strlen(text))
        return uni_value_float(number);
    return uni_value_string(text);
}

static int add_metric(uni_value *metrics, uni_value *nonfinite, const char *word, uni_error *err)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return uni_error_set(err, UNI_EINVAL, "\"%s\" is not NAME=VALUE (for example loss=0.3)",
                             word);
    char name[256];
    if ((size_t)(equals - word) >= sizeof name)
        return uni_error_set(err, UNI_EINVAL, "metric name too long: at most 255 bytes");
    snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
    if (uni_dict_get(metrics, name))
        return uni_error_set(err, UNI_EINVAL, "%s is given twice", name);
    const char *special = nonfinite_name(equals + 1);
    int status = special ? uni_dict_take(nonfinite, name, uni_value_string(special)) : 0;
    if (status == 0)
        status = uni_dict_take(metrics, name, special ? uni_value_null() : value_of(equals + 1));
    return status < 0 ? uni_error_set(err, status, "no memory for the metrics") : 0;
}

/* ---- the pipe ---- */

static const char closed_hint[] =
    "the report descriptor (UNISONO_REPORT_FD=%s) is not open here: a parent process closed it. "
    "With Python's subprocess, pass pass_fds=[int(os.environ[\"UNISONO_REPORT_FD\"])] or "
    "close_fds=False";

static int report_descriptor(const char *text, int *out, uni_error *err)
{
    char *end = NULL;
    long number = strtol(text, &end, 10);
    struct stat info;
    if (end == text || *end || number < 0 || number > INT_MAX)
        return uni_error_set(err, UNI_EINVAL, "UNISONO_REPORT_FD=%s is not a valid file descriptor",
                             text);
    /* Another file may have got its number since. */
    if (fstat((int)number, &info) < 0 || !(S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)))
        return uni_error_set(err, UNI_EPEER, closed_hint, text);
    *out = (int)number;
    return 0;
}

static int send_line(int pipe_end, const uni__text *line, uni_error *err)
{
    if (line->failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the report");
    if (line->size > PIPE_BUF)
        return uni_error_set(err, UNI_ELIMIT,
                             "the report has %zu bytes, but at most %d can be sent at once: report "
                             "fewer metrics, or put long values into a file of the checkpoint",
                             line->size, PIPE_BUF);
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        ssize_t sent = write(pipe_end, line->data, line->size);
        if (sent == (ssize_t)line->size)
            return 0;
        if (sent >= 0)
            return uni_error_set(err, UNI_EIO, "only %zd of %zu bytes of the report were written",
                                 sent, line->size);
        if (errno == EAGAIN)
            (void)!poll(&(struct pollfd){ .fd = pipe_end, .events = POLLOUT }, 1, -1);
        else if (errno == EBADF)
            return uni_error_set(err, UNI_EPEER, closed_hint, getenv("UNISONO_REPORT_FD"));
        else if (errno == EPIPE)
            return uni_error_set(err, UNI_EPEER,
                                 "cannot report: the run has ended, or its controller died");
        else if (errno != EINTR)
            return uni_error_set_errno(err, errno, "sending the report");
    }
}

static int stage(const char *directory, uni_value *message, uni_error *err)
{
    const char *staging = getenv("UNISONO_STAGING"), *rank = getenv("UNISONO_RANK");
    char *staged = NULL;
    if (!staging || !staging[0])
        return uni_error_set(err, UNI_ESTATE,
                             "UNISONO_STAGING is not set: this run does not accept checkpoints "
                             "from `unisono report`");
    UNI_TRY(uni__stage_copy(&staged, staging, rank ? atoi(rank) : 0, directory, err));
    int status = uni_dict_take(message, "staged", uni_value_string(staged));
    free(staged);
    return status < 0 ? uni_error_set(err, status, "no memory for the report") : 0;
}

/* Takes ownership of metrics and nonfinite. */
static int build_message(uni_value **out, uni_value *metrics, uni_value *nonfinite, uni_error *err)
{
    *out = uni_value_dict();
    int status = uni_dict_take(*out, "metrics", metrics);
    if (status == 0 && uni_dict_size(nonfinite))
        status = uni_dict_take(*out, "nonfinite", nonfinite);
    else
        uni_value_free(nonfinite);
    return status < 0 ? uni_error_set(err, status, "no memory for the report") : 0;
}

static int send_message(const uni_value *message, int pipe_end, uni_error *err)
{
    char *text = NULL;
    size_t size = 0;
    UNI_TRY(uni_json_write(&text, &size, message, 0, err));
    uni__text line = { 0 };
    uni__text_add(&line, text, size);
    uni__text_add_string(&line, "\n");
    free(text);
    int status = send_line(pipe_end, &line, err);
    uni__text_free(&line);
    return status;
}

static int call_report(cli_context *context, const cli_parsed *parsed)
{
    const report_values *values = parsed->values;
    uni_error err = { 0 };
    uni_value *metrics = uni_value_dict(), *nonfinite = uni_value_dict(), *message = NULL;
    int status = 0, pipe_end = -1;
    for (int i = 0; i < parsed->num_args && status == 0; i++)
        status = add_metric(metrics, nonfinite, parsed->args[i], &err);
    if (status == 0 && parsed->num_args == 0 && !values->checkpoint)
        status = uni_error_set(&err, UNI_EINVAL,
                               "nothing to report: give NAME=VALUE, --checkpoint DIR, or both");
    if (status < 0) {
        uni_value_free(metrics);
        uni_value_free(nonfinite);
        return cli_fail(context, "report", &err);
    }
    const char *descriptor = getenv("UNISONO_REPORT_FD");
    status = build_message(&message, metrics, nonfinite, &err);
    if (status == 0 && (!descriptor || !descriptor[0])) {
        fprintf(context->err.out,
                "unisono report: not running under `unisono run`, so this report is ignored\n");
        uni_value_free(message);
        return UNI_EXIT_OK;
    }
    if (status == 0)
        status = report_descriptor(descriptor, &pipe_end, &err);
    if (status == 0 && values->checkpoint) {
        status = stage(values->checkpoint, message, &err);
        /* The program may end because of this: then its exit code is not the cause. */
        if (status == UNI_EDISKFULL &&
            uni_dict_take(message, "disk_full", uni_value_bool(true)) == 0)
            (void)!send_message(message, pipe_end, NULL);
    }
    if (status == 0)
        status = send_message(message, pipe_end, &err);
    uni_value_free(message);
    return status < 0 ? cli_fail(context, "report", &err) : UNI_EXIT_OK;
}

static const cli_example report_examples[] = {
    { "unisono report loss=0.3 epoch=2", "one iteration of this rank" },
    { "unisono report loss=$loss --checkpoint ./weights", "with a checkpoint" },
    { "unisono report loss=nan status=diverged", "NaN and text are allowed" },
    { "echo '{\"metrics\": {\"loss\": 0.3}}' > /dev/fd/$UNISONO_REPORT_FD",
      "the same without starting a process: JSON lines on the descriptor" },
    { NULL, NULL },
};

const cli_command cli_report_command = {
    .name = "report",
    .arguments = "NAME=VALUE...",
    .summary = "report metrics and checkpoints from inside a worker",
    .description = "For programs that do not link libunisono: each call is one iteration of the "
                   "rank that it runs in. Values are parsed as numbers, then as JSON, otherwise "
                   "taken as text. It does not wait for other ranks. Outside of `unisono run` it "
                   "prints a warning and succeeds, so the same script also runs on its own.",
    .options = report_options,
    .values_size = sizeof(report_values),
    .max_args = -1,
    .examples = report_examples,
    .call = call_report,
};
