/* stop_command.c - `unisono stop`: asks the controller of a run to stop, and waits until it has. */
#include <time.h>

#include "base/clock.h"
#include "cli/format.h"
#include "cli/run_view.h"

typedef struct stop_values {
    const char *storage, *color;
    double timeout;
    bool now, no_wait;
} stop_values;

static const cli_option stop_options[] = {
    { NULL, "now", 0, CLI_FLAG, offsetof(stop_values, now), NULL, NULL, NULL, NULL,
      "kill it immediately, without a last checkpoint; it can still be resumed from the last "
      "complete one" },
    { NULL, "no-wait", 0, CLI_FLAG, offsetof(stop_values, no_wait), NULL, NULL, NULL, NULL,
      "return once the request is sent, without waiting for the end" },
    { NULL, "timeout", 't', CLI_DURATION, offsetof(stop_values, timeout), "TIME", "30s", NULL, NULL,
      "wait at most this long for the run to end" },
    CLI_STORAGE_OPTION(stop_values),
    CLI_COLOR_OPTION(stop_values),
    CLI_END_OPTION,
};

/* Replaces *run by its state at the end, or after the timeout. */
static int wait_for_end(uni_run **run, double timeout, uni_error *err)
{
    uint64_t deadline = uni__monotonic_ns() + (uint64_t)(timeout * 1e9);
    while (uni_run_is_live(*run)) {
        if (uni__monotonic_ns() > deadline) {
            char text[CLI_SHORT];
            return uni_error_set(err, UNI_ETIMEOUT,
                                 "%s was asked to stop but is still running after %s: `unisono "
                                 "stop --now %s` kills it",
                                 uni_run_info_of(*run)->id, cli_duration(timeout, text),
                                 uni_run_info_of(*run)->id);
        }
        nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
        uni_run *again = NULL;
        UNI_TRY(uni_run_open(&again, uni_run_info_of(*run)->dir, NULL, err));
        uni_run_close(*run);
        *run = again;
    }
    return 0;
}

static int stop_one(cli_context *context, const char *name, const stop_values *values,
                    uni_error *err)
{
    if (name[0] == '\0') /* an unset "$RUN" in a script */
        return uni_error_set(err, UNI_EINVAL, "the run name is empty: say which run to stop");
    uni_run *run = NULL;
    int status = uni_run_open(&run, name, values->storage, err);
    if (status == 0)
        status = uni_run_stop(run, values->now, err);
    if (status == 0 && !values->no_wait)
        status = wait_for_end(&run, values->timeout, err);
    if (status == 0) {
        char mark[64];
        cli_status_text(&context->out, uni_run_info_of(run)->status, mark, sizeof mark);
        int style = values->no_wait ? CLI_INFO : cli_status_style(uni_run_info_of(run)->status);
        fprintf(context->out.out, "%s%s%s %s", cli_begin(&context->out, style),
                values->no_wait ? "asked to stop:" : mark, cli_end(&context->out, style),
                uni_run_info_of(run)->id);
        if (!values->no_wait && cli_run_resumable(run))
            fprintf(context->out.out, "  (continue with: unisono run --resume %s)",
                    uni_run_info_of(run)->id);
        fputc('\n', context->out.out);
    }
    uni_run_close(run);
    return status;
}

static int call_stop(cli_context *context, const cli_parsed *parsed)
{
    const stop_values *values = parsed->values;
    int code = UNI_EXIT_OK;
    for (int i = 0; i < parsed->num_args; i++) {
        uni_error err = { 0 };
        if (stop_one(context, parsed->args[i], values, &err) < 0)
            code = cli_fail(context, "stop", &err);
    }
    return code;
}

static const cli_example stop_examples[] = {
    { "unisono stop digits", "all ranks save and stop at the same iteration" },
    { "unisono run --resume digits", "continue it later" },
    { "unisono stop $(unisono ls -q --status running)", "every running run" },
    { NULL, NULL },
};

const cli_command cli_stop_command = {
    .name = "stop",
    .arguments = "RUN...",
    .summary = "ask a run to stop; it can be resumed later",
    .description = "Sends SIGTERM to the run's controller, after checking that the process is "
                   "still that controller and belongs to you. All ranks stop at the same iteration "
                   "(a fit of the engine after its next step) and can save a last checkpoint "
                   "within the grace time. A Slurm job with --requeue then goes back to the queue: "
                   "end it with scancel.",
    .options = stop_options,
    .values_size = sizeof(stop_values),
    .min_args = 1,
    .max_args = -1,
    .completes = "<run>",
    .examples = stop_examples,
    .call = call_stop,
};
