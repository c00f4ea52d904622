/* why_command.c - `unisono why`: the first cause in plain words, and what to do about it. */
#include "cli/explain.h"

#include <stdlib.h>

#include "base/file.h"
#include "comm/recorder.h"

#define LAST_COLLECTIVES 5

typedef struct why_values {
    const char *storage, *color;
    long long lines;
    bool json;
} why_values;

static const cli_option why_options[] = {
    { NULL, "lines", 'n', CLI_INT, offsetof(why_values, lines), "N", "20", NULL, NULL,
      "lines of the failed rank's log to show" },
    CLI_STORAGE_OPTION(why_values),
    CLI_JSON_OPTION(why_values),
    CLI_COLOR_OPTION(why_values),
    CLI_END_OPTION,
};

/* Where each rank was in its collectives, if it used any: the recorder's files outlive all
 * processes. */
static void show_collectives(const cli_terminal *terminal, uni_run *run)
{
    uni__text text = { 0 };
    char *dir = uni__path_join(uni_run_info_of(run)->dir, "collectives", NULL);
    if (dir && uni__recorder_describe(&text, dir, LAST_COLLECTIVES, NULL) == 0 && text.size > 0)
        fprintf(terminal->out, "\n%s", text.data);
    uni__text_free(&text);
    free(dir);
}

static int call_why(cli_context *context, const cli_parsed *parsed)
{
    const why_values *values = parsed->values;
    uni_run *run = NULL;
    uni_error err = { 0 };
    if (uni_run_open(&run, parsed->args[0], values->storage, &err) < 0)
        return cli_fail(context, "why", &err);
    int code = UNI_EXIT_OK;
    if (values->json)
        code = cli_print_json(context, cli_explain_json(run));
    else
        cli_explain(&context->out, run, values->lines > 0 ? (size_t)values->lines : 0);
    if (!values->json && uni_run_info_of(run)->status != UNI_RUN_SUCCEEDED)
        show_collectives(&context->out, run);
    uni_run_close(run);
    return code;
}

static const cli_example why_examples[] = {
    { "unisono why", "the newest run" },
    { "unisono why digits/run_003", "a specific run" },
    { NULL, NULL },
};

const cli_command cli_why_command = {
    .name = "why",
    .arguments = "[RUN]",
    .summary = "say in plain words why a run ended, and what to do",
    .description =
        "Names the first cause: which rank, on which host, how it ended and how far it got, with "
        "the last lines of its log. The ranks that were stopped as a consequence are summarized in "
        "one line. Says whether the run can be resumed, and how.",
    .options = why_options,
    .values_size = sizeof(why_values),
    .max_args = 1,
    .completes = "<run>",
    .examples = why_examples,
    .call = call_why,
};
