/* run_plan.c - `unisono run --dry-run`: prints the plan. What all ranks share is printed once. */
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/run_command.h"
#include "cli/run_view.h"
#include "cli/table.h"

static void fact(const cli_terminal *terminal, const char *label, const char *text)
{
    fprintf(terminal->out, "  %s%-14s%s%s\n", cli_begin(terminal, CLI_DIM), label,
            cli_end(terminal, CLI_DIM), text);
}

/* True if every rank's environment has the same value. */
static bool is_shared(const uni_value *workers, const char *name, const uni_value *value)
{
    for (size_t i = 0; i < uni_list_size(workers); i++) {
        const uni_value *other =
            uni_dict_get(uni_dict_get(uni_list_get(workers, i), "environment"), name);
        if (!other || !uni_value_equal(other, value))
            return false;
    }
    return true;
}

static void print_shared(const cli_terminal *terminal, const uni_value *workers)
{
    const uni_value *first = uni_dict_get(uni_list_get(workers, 0), "environment");
    fprintf(terminal->out, "\n%sEnvironment of all ranks%s\n", cli_begin(terminal, CLI_BOLD),
            cli_end(terminal, CLI_BOLD));
    for (size_t i = 0; i < uni_dict_size(first); i++) {
        const uni_value *value = uni_dict_value_at(first, i);
        if (is_shared(workers, uni_dict_key_at(first, i), value))
            fprintf(terminal->out, "  %s=%s\n", uni_dict_key_at(first, i),
                    uni_value_as_string(value, "?"));
    }
}

static void print_rank(const cli_terminal *terminal, const uni_value *workers, size_t index)
{
    const uni_value *worker = uni_list_get(workers, index);
    const uni_value *environment = uni_dict_get(worker, "environment");
    int style = CLI_SERIES + (int)index;
    fprintf(terminal->out, "\n%srank %lld%s  local rank %lld, node %lld, host %s\n",
            cli_begin(terminal, style), (long long)uni_dict_get_int(worker, "rank", 0),
            cli_end(terminal, style), (long long)uni_dict_get_int(worker, "local_rank", 0),
            (long long)uni_dict_get_int(worker, "node_rank", 0),
            uni_dict_get_string(worker, "host", "?"));
    for (size_t i = 0; i < uni_dict_size(environment); i++) {
        const uni_value *value = uni_dict_value_at(environment, i);
        if (uni_list_size(workers) > 1 &&
            is_shared(workers, uni_dict_key_at(environment, i), value))
            continue;
        fprintf(terminal->out, "  %s=%s\n", uni_dict_key_at(environment, i),
                uni_value_as_string(value, "?"));
    }
}

static void print_facts(const cli_terminal *terminal, const run_request *request,
                        const uni_value *plan)
{
    uni__text line = { 0 };
    char text[CLI_SHORT], *config = NULL;
    for (const char *const *word = request->run.program; *word; word++)
        cli_add_word(&line, *word);
    fact(terminal, "program", line.data ? line.data : "");
    uni__text_free(&line);
    fact(terminal, "launcher", uni_dict_get_string(plan, "launcher", "local"));
    const uni_value *command = uni_dict_get(plan, "launcher_command");
    for (size_t i = 0; i < uni_list_size(command); i++)
        cli_add_word(&line, uni_value_as_string(uni_list_get(command, i), "?"));
    if (line.data && line.size > 0)
        fact(terminal, "started by", line.data);
    uni__text_free(&line);
    if (request->trainer.min_workers > 0 && request->trainer.max_workers > 0)
        snprintf(text, sizeof text, "%d (%d to %d)", request->trainer.num_workers,
                 request->trainer.min_workers, request->trainer.max_workers);
    else
        snprintf(text, sizeof text, "%zu", uni_list_size(uni_dict_get(plan, "workers")));
    fact(terminal, "workers", text);
    fact(terminal, "backend", request->trainer.backend);
    if (uni_value_is_number(uni_dict_get(plan, "cpus_per_worker")))
        fact(terminal, "CPUs/worker",
             cli_number(uni_dict_get_float(plan, "cpus_per_worker", 0), text));
    fact(terminal, "directory",
         uni_dict_get_string(plan, "run_dir", uni_dict_get_string(plan, "logdir", "?")));
    if (uni_dict_size(request->config) &&
        uni_json_write(&config, NULL, request->config, 0, NULL) == 0)
        fact(terminal, "config", config);
    free(config);
    if (request->trainer.max_failures == UNI_UNLIMITED)
        snprintf(text, sizeof text, "without limit");
    else
        snprintf(text, sizeof text, "%d",
                 request->trainer.max_failures < 0 ? 0 : request->trainer.max_failures);
    fact(terminal, "restarts", text);
    if (request->run.time_limit > 0)
        fact(terminal, "time limit", cli_duration(request->run.time_limit, text));
    if (request->policy.every_steps > 0) {
        snprintf(text, sizeof text, "every %lld steps", (long long)request->policy.every_steps);
        fact(terminal, "checkpoints", text);
    } else if (request->policy.every_seconds > 0) {
        char length[CLI_SHORT];
        snprintf(text, sizeof text, "every %s",
                 cli_duration(request->policy.every_seconds, length));
        fact(terminal, "checkpoints", text);
    }
    if (request->run.from_checkpoint)
        fact(terminal, "starts from", request->run.from_checkpoint);
    if (request->run.resume_run)
        fact(terminal, "resumes", request->run.resume_run);
}

int cli_run_show_plan(cli_context *context, const run_values *values, const run_request *request,
                      uni_value *plan)
{
    const cli_terminal *terminal = &context->out;
    if (values->json)
        return cli_print_json(context, plan);
    const uni_value *workers = uni_dict_get(plan, "workers"),
                    *warnings = uni_dict_get(plan, "warnings");
    fprintf(terminal->out, "%sThis would be started%s (--dry-run: nothing was started)\n\n",
            cli_begin(terminal, CLI_BOLD), cli_end(terminal, CLI_BOLD));
    print_facts(terminal, request, plan);
    for (size_t i = 0; i < uni_list_size(warnings); i++)
        fprintf(terminal->out, "  %swarning:%s %s\n", cli_begin(terminal, CLI_WARN),
                cli_end(terminal, CLI_WARN), uni_value_as_string(uni_list_get(warnings, i), ""));
    if (uni_list_size(workers) > 1)
        print_shared(terminal, workers);
    for (size_t i = 0; i < uni_list_size(workers); i++)
        print_rank(terminal, workers, i);
    uni_value_free(plan);
    return UNI_EXIT_OK;
}
