/*
 * check_command.c - `unisono check`: what is installed here, and what would make a run fail. The
 * check_*.c files gather findings; this one prints them.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/check.h"
#include "comm/table.h"

typedef struct check_values {
    const char *storage, *color, *interface, *hosts, *launcher;
    bool json, fast, collectives;
} check_values;

static const cli_option check_options[] = {
    { NULL, "fast", 0, CLI_FLAG, offsetof(check_values, fast), NULL, NULL, NULL, NULL,
      "do not start other programs: skip the trial run, the MPI and Slurm versions and the Python "
      "frameworks" },
    { NULL, "collectives", 0, CLI_FLAG, offsetof(check_values, collectives), NULL, NULL, NULL, NULL,
      "only print which algorithm each collective uses, by message size and number of ranks" },
    { NULL, "hosts", 0, CLI_STRING, offsetof(check_values, hosts), "LIST", NULL, NULL, NULL,
      "check these hosts instead (a:2,b:2 or a,b): whether the launcher can start the same release "
      "of unisono there, whether the host can reach this machine, its plug-ins, free space and "
      "clock" },
    { NULL, "launcher", 0, CLI_STRING, offsetof(check_values, launcher), "NAME", "ssh",
      "UNISONO_LAUNCHER", NULL,
      "with --hosts: ssh, mpi or slurm; slurm without --hosts checks the nodes of the allocation" },
    { NULL, "interface", 0, CLI_STRING, offsetof(check_values, interface), "NAME", NULL, NULL, NULL,
      "show which addresses `unisono run --interface` would use: a name, an address or a subnet" },
    CLI_STORAGE_OPTION(check_values),
    CLI_JSON_OPTION(check_values),
    CLI_COLOR_OPTION(check_values),
    CLI_END_OPTION,
};

static const char *const level_names[] = { "ok", "absent", "warning", "error" };

void cli_finding_add(cli_findings *findings, const char *section, cli_level level, const char *name,
                     const char *format, ...)
{
    if (findings->count == CLI_MAX_FINDINGS)
        return;
    cli_finding *finding = &findings->items[findings->count++];
    *finding = (cli_finding){ .section = section, .level = level };
    snprintf(finding->name, sizeof finding->name, "%s", name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
}

static void print_findings(cli_context *context, const cli_findings *findings)
{
    static const char *const unicode[] = { "✓", "·", "!", "✗" }, *const ascii[] = { "+", "-", "!",
                                                                                    "x" };
    static const int styles[] = { CLI_GOOD, CLI_DIM, CLI_WARN, CLI_BAD };
    const cli_terminal *out = &context->out;
    const char *section = "";
    int widest = 0;
    for (size_t i = 0; i < findings->count; i++)
        if (cli_width(findings->items[i].name) > widest)
            widest = cli_width(findings->items[i].name);
    for (size_t i = 0; i < findings->count; i++) {
        const cli_finding *finding = &findings->items[i];
        if (strcmp(finding->section, section) != 0) {
            fprintf(out->out, "%s%s%s%s\n", i ? "\n" : "", cli_begin(out, CLI_BOLD),
                    finding->section, cli_end(out, CLI_BOLD));
            section = finding->section;
        }
        fprintf(out->out, "  %s%s%s %s%*s  ", cli_begin(out, styles[finding->level]),
                out->unicode ? unicode[finding->level] : ascii[finding->level],
                cli_end(out, styles[finding->level]), finding->name,
                widest - cli_width(finding->name), "");
        cli_wrap(out->out, out->width, widest + 6, widest + 6, finding->text);
    }
}

static int print_json(cli_context *context, const cli_findings *findings)
{
    uni_value *answer = uni_value_list();
    for (size_t i = 0; i < findings->count && answer; i++) {
        const cli_finding *finding = &findings->items[i];
        uni_value *entry = uni_value_dict();
        bool failed =
            uni_dict_take(entry, "section", uni_value_string(finding->section)) < 0 ||
            uni_dict_take(entry, "name", uni_value_string(finding->name)) < 0 ||
            uni_dict_take(entry, "level", uni_value_string(level_names[finding->level])) < 0 ||
            uni_dict_take(entry, "text", uni_value_string(finding->text)) < 0;
        answer = cli_list_add(answer, entry, failed);
    }
    return cli_print_json(context, answer);
}

static int print_collectives(cli_context *context)
{
    uni__text text = { 0 };
    uni__table_print(&text);
    int code = text.failed ? UNI_EXIT_FAILURE : UNI_EXIT_OK;
    if (code == UNI_EXIT_OK)
        fputs(text.data, context->out.out);
    uni__text_free(&text);
    return code;
}

static int call_check(cli_context *context, const cli_parsed *parsed)
{
    const check_values *values = parsed->values;
    if (values->collectives)
        return print_collectives(context);
    if (values->hosts || (cli_given(parsed, "launcher") && !values->fast)) {
        uni_error err = { 0 };
        int status = cli_check_hosts(context,
                                     &(cli_hosts_request){ .hosts = values->hosts,
                                                           .launcher = values->launcher,
                                                           .interface = values->interface,
                                                           .storage = values->storage },
                                     values->json, &err);
        return status < 0 ? cli_fail(context, "check", &err) : status;
    }
    cli_findings *findings = calloc(1, sizeof *findings);
    if (!findings)
        return cli_print_json(context, NULL);
    cli_check_machine(findings);
    cli_check_storage(findings, values->storage);
    cli_check_network(findings, values->interface);
    cli_check_software(findings, values->fast);
    int code = UNI_EXIT_OK;
    if (values->json)
        code = print_json(context, findings);
    else
        print_findings(context, findings);
    for (size_t i = 0; i < findings->count && code == UNI_EXIT_OK; i++)
        if (findings->items[i].level == CLI_LEVEL_ERROR)
            code = UNI_EXIT_FAILURE;
    free(findings);
    return code;
}

static const cli_example check_examples[] = {
    { "unisono check", "before the first run on a machine" },
    { "unisono check --fast --json", "for scripts; takes milliseconds" },
    { "unisono check --fast --interface 10.1.0.0/16",
      "the network that a multi-host run would use" },
    { "unisono check --hosts a,b", "every host of a run before it starts" },
    { "salloc -N 2 unisono check --launcher slurm", "the nodes of an allocation" },
    { "unisono check --collectives", "how tensors move between ranks, and at what cost" },
    { NULL, NULL },
};

const cli_command cli_check_command = {
    .name = "check",
    .arguments = "",
    .summary = "check what this machine has and what could make a run fail",
    .description = "Checks cores, memory, limits, GPUs, the results directory, network interfaces, "
                   "MPI, Slurm and Python frameworks. A dot marks something that is missing and "
                   "that only some runs need. Exits with 1 if something is wrong.\n\nWith --hosts "
                   "it checks the hosts of a run instead, through mpirun or srun, and prints a "
                   "table with the state of each host. Exits with 1 if a host is unusable.",
    .options = check_options,
    .values_size = sizeof(check_values),
    .examples = check_examples,
    .call = call_check,
};
