/* help.c - help on the terminal, and the texts that it shares with the man page and docs/cli.md. */
#include <string.h>

#include <unisono/version.h>

#include "cli/help.h"

const cli_exit_code cli_exit_codes[] = { UNI_EXIT_CODE_LIST(CLI_EXIT_CODE_ROW){ 0, NULL } };

const char cli_exit_rule[] =
    "`unisono run` exits with the code of the first cause: 3 if a worker failed with code 3, 139 "
    "if signal 11 killed it. Causes without a code of their own use the numbers in this table. The "
    "other commands exit with 0, 1 (the answer is no: no such run, nothing to stop), 64 or 70.";

const char cli_introduction[] =
    "unisono starts the workers of a training program, assigns their ranks, supervises them, "
    "collects their reports and checkpoints, and when one dies restarts them from the last "
    "complete checkpoint. `unisono run` starts a run; the other commands inspect runs from any "
    "terminal, during the run and afterwards. A run is a directory, NAME/run_001 under "
    "~/unisono_results. RUN below is such a name, just NAME (its newest run), a path, or nothing "
    "(the newest run of all).";

const cli_variable cli_variables[] = {
    { "UNISONO_RESULTS", "directory for runs; default ~/unisono_results" },
    { "UNISONO_COLOR, NO_COLOR", "auto, always or never; NO_COLOR with any value means never" },
    { "UNISONO_LOG", "what the library logs to stderr: off, error, warn (default), info, debug" },
    { "UNISONO_RANK, UNISONO_WORLD_SIZE, UNISONO_LOCAL_RANK, UNISONO_LOCAL_WORLD_SIZE, "
      "UNISONO_NODE_RANK",
      "set in every worker: its place in the group. RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, "
      "MASTER_PORT, TF_CONFIG and HOROVOD_* are set as the backend requires" },
    { "UNISONO_REPORT_FD", "set in programs that `unisono run` starts: the file descriptor for "
                           "JSON lines, used by `unisono report`" },
    { "OMP_NUM_THREADS", "set in every worker to its number of CPUs, unless already set" },
    { NULL, NULL },
};

void cli_option_usage(const cli_option *option, char *out, size_t size)
{
    if (option->kind == CLI_FLAG)
        snprintf(out, size, "--%s", option->name);
    else if (option->kind == CLI_OPTIONAL)
        snprintf(out, size, "--%s [%s]", option->name, option->argument);
    else
        snprintf(out, size, "--%s %s", option->name, option->argument);
}

void cli_option_notes(const cli_option *option, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    if (option->kind == CLI_CHOICE) {
        used += (size_t)snprintf(out + used, size - used, "one of ");
        for (const char *at = option->choices; *at && used < size; at++)
            used += (size_t)snprintf(out + used, size - used, *at == '|' ? ", " : "%c", *at);
    }
    if (option->preset && used < size)
        used += (size_t)snprintf(out + used, size - used, "%sdefault %s", used ? "; " : "",
                                 option->preset);
    if (option->kind == CLI_LIST && used < size)
        used += (size_t)snprintf(out + used, size - used, "%smay be repeated", used ? "; " : "");
    if (option->environment && used < size)
        snprintf(out + used, size - used, "%senvironment %s", used ? "; " : "",
                 option->environment);
}

#define NAME_COLUMN 30

static void print_option(const cli_terminal *terminal, const cli_option *option)
{
    char usage[80], notes[256], text[2048];
    cli_option_usage(option, usage, sizeof usage);
    cli_option_notes(option, notes, sizeof notes);
    snprintf(text, sizeof text, "%s%s%s%s", option->help, notes[0] ? " (" : "", notes,
             notes[0] ? ")" : "");
    char letter[8] = "    ";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    fprintf(terminal->out, "  %s%s%s%s", letter, cli_begin(terminal, CLI_INFO), usage,
            cli_end(terminal, CLI_INFO));
    int at = 6 + cli_width(usage);
    if (at + 2 > NAME_COLUMN) {
        fputc('\n', terminal->out);
        at = 0;
    }
    fprintf(terminal->out, "%*s", NAME_COLUMN - at, "");
    cli_wrap(terminal->out, terminal->width, NAME_COLUMN, NAME_COLUMN, text);
}

static void print_heading(const cli_terminal *terminal, const char *text)
{
    fputc('\n', terminal->out);
    cli_styled(terminal, CLI_BOLD, text);
    fputc('\n', terminal->out);
}

static void print_examples(const cli_terminal *terminal, const cli_example *examples)
{
    if (!examples)
        return;
    print_heading(terminal, "Examples");
    for (; examples->line; examples++) {
        fprintf(terminal->out, "  %s", cli_begin(terminal, CLI_DIM));
        fprintf(terminal->out, "# %s%s\n", examples->what, cli_end(terminal, CLI_DIM));
        fprintf(terminal->out, "  %s\n", examples->line);
    }
}

static void print_command(const cli_terminal *terminal, const cli_command *command)
{
    fprintf(terminal->out, "%sunisono %s%s: %s\n\nUsage: unisono %s%s%s%s\n\n",
            cli_begin(terminal, CLI_BOLD), command->name, cli_end(terminal, CLI_BOLD),
            command->summary, command->name, " [options]", command->arguments[0] ? " " : "",
            command->arguments);
    cli_wrap(terminal->out, terminal->width, 0, 0, command->description);
    print_examples(terminal, command->examples);
    const cli_option *option = command->options;
    if (!option->group)
        print_heading(terminal, "Options");
    for (; option->name; option++) {
        if (option->group)
            print_heading(terminal, option->group);
        print_option(terminal, option);
    }
    fprintf(terminal->out, "  -h, %s--help%s%*sprint this\n", cli_begin(terminal, CLI_INFO),
            cli_end(terminal, CLI_INFO), NAME_COLUMN - 12, "");
}

static void print_overview(const cli_terminal *terminal)
{
    fprintf(terminal->out, "%sunisono%s %s: workers that train one model in unison\n\n",
            cli_begin(terminal, CLI_BOLD), cli_end(terminal, CLI_BOLD), uni_version());
    fprintf(terminal->out, "Usage: unisono COMMAND [options] [words]\n");
    print_heading(terminal, "Commands");
    for (const cli_command *const *command = cli_commands(); *command; command++) {
        fprintf(terminal->out, "  %s%-12s%s", cli_begin(terminal, CLI_INFO), (*command)->name,
                cli_end(terminal, CLI_INFO));
        cli_wrap(terminal->out, terminal->width, 14, 14, (*command)->summary);
    }
    static const cli_example examples[] = {
        { "unisono run -n 4 -- python3 train.py", "four workers of any program" },
        { "unisono report loss=0.3 epoch=2", "inside a worker: report metrics" },
        { "unisono why", "afterwards: what went wrong, and what to do" },
        { NULL, NULL },
    };
    print_examples(terminal, examples);
    fprintf(
        terminal->out,
        "\n`unisono COMMAND --help` explains a command; `unisono check` checks this machine.\n");
}

void cli_help_print(const cli_terminal *terminal, const cli_command *command)
{
    if (command)
        print_command(terminal, command);
    else
        print_overview(terminal);
}

/* ---- the command ---- */

typedef struct help_values {
    bool man, markdown;
    const char *color;
} help_values;

static const cli_option help_options[] = {
    { NULL, "man", 0, CLI_FLAG, offsetof(help_values, man), NULL, NULL, NULL, NULL,
      "print the man page unisono(1), for `man -l -`" },
    { NULL, "markdown", 0, CLI_FLAG, offsetof(help_values, markdown), NULL, NULL, NULL, NULL,
      "print the reference page (docs/cli.md)" },
    CLI_COLOR_OPTION(help_values),
    CLI_END_OPTION,
};

static const cli_example help_examples[] = {
    { "unisono help run", "everything about starting runs" },
    { "unisono help --man | man -l -", "the manual" },
    { NULL, NULL },
};

static int call_help(cli_context *context, const cli_parsed *parsed)
{
    const help_values *values = parsed->values;
    uni_error err = { 0 };
    const cli_command *command = NULL;
    if (values->man) {
        cli_help_man(context->out.out);
        return UNI_EXIT_OK;
    }
    if (values->markdown) {
        cli_help_markdown(context->out.out);
        return UNI_EXIT_OK;
    }
    if (parsed->num_args > 0) {
        command = cli_command_find(parsed->args[0], &err);
        if (!command)
            return cli_fail(context, "help", &err);
    }
    cli_help_print(&context->out, command);
    return UNI_EXIT_OK;
}

const cli_command cli_help_command = {
    .name = "help",
    .arguments = "[COMMAND]",
    .summary = "explain a command, or list them all",
    .description = "Prints the same text as `unisono COMMAND --help`; with --man or --markdown, "
                   "prints the whole reference, generated from the same tables.",
    .options = help_options,
    .values_size = sizeof(help_values),
    .max_args = 1,
    .completes = "<command>",
    .examples = help_examples,
    .call = call_help,
};
