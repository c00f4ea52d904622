/*
 * main.c - the unisono command: finds the command, parses the arguments with its table, calls it.
 * Everything else is in the commands' own files.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/suggest.h"

const cli_command *const *cli_commands(void)
{
    static const cli_command *const commands[] = { &cli_run_command,
                                                   &cli_report_command,
                                                   &cli_ls_command,
                                                   &cli_show_command,
                                                   &cli_logs_command,
                                                   &cli_why_command,
                                                   &cli_plot_command,
                                                   &cli_tune_command,
                                                   &cli_stop_command,
                                                   &cli_scale_command,
                                                   &cli_rm_command,
                                                   &cli_data_command,
                                                   &cli_check_command,
                                                   &cli_completion_command,
                                                   &cli_version_command,
                                                   &cli_help_command,
                                                   NULL };
    return commands;
}

const cli_command *cli_command_find(const char *name, uni_error *err)
{
    char names[256] = "", nearest[64];
    size_t used = 0;
    for (const cli_command *const *command = cli_commands(); *command; command++) {
        if (strcmp((*command)->name, name) == 0)
            return *command;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? "|" : "",
                                 (*command)->name);
    }
    if (cli_suggest_of(name, names, nearest, sizeof nearest))
        uni_error_set(err, UNI_EINVAL, "unknown command \"%s\". Did you mean `unisono %s`?", name,
                      nearest);
    else
        uni_error_set(err, UNI_EINVAL, "unknown command \"%s\": `unisono help` lists them all",
                      name);
    return NULL;
}

int cli_fail(const cli_context *context, const char *command, const uni_error *err)
{
    const cli_terminal *terminal = &context->err;
    fflush(context->out.out);
    fprintf(terminal->out, "%sunisono%s%s:%s ", cli_begin(terminal, CLI_BAD), command[0] ? " " : "",
            command, cli_end(terminal, CLI_BAD));
    cli_print_clean(terminal->out, err->message[0] ? err->message : uni_status_sentence(err->code));
    fputc('\n', terminal->out);
    switch (err->code) {
    case UNI_EINVAL:
        return UNI_EXIT_USAGE;
    case UNI_ENOTFOUND:
    case UNI_ESTATE:
    case UNI_EBUSY:
    case UNI_ECANCELED:
    case UNI_EUNSUPPORTED:
        return UNI_EXIT_FAILURE;
    case UNI_ETIMEOUT:
        return UNI_EXIT_TIME_LIMIT;
    case UNI_EDISKFULL:
        return UNI_EXIT_DISK_FULL;
    case UNI_ERESOURCE:
        return UNI_EXIT_NOT_STARTED;
    default:
        return UNI_EXIT_INTERNAL;
    }
}

int cli_print_json(const cli_context *context, uni_value *value)
{
    char *text = NULL;
    uni_error err = { 0 };
    int status = value ? uni_json_write(&text, NULL, value, UNI_JSON_INDENT, &err)
                       : uni_error_set(&err, UNI_ENOMEM, "no memory for the JSON output");
    uni_value_free(value);
    if (status < 0)
        return cli_fail(context, "", &err);
    fprintf(context->out.out, "%s\n", text);
    free(text);
    return UNI_EXIT_OK;
}

uni_value *cli_list_add(uni_value *list, uni_value *entry, bool failed)
{
    if (failed) {
        uni_value_free(entry);
        entry = NULL;
    }
    if (uni_list_take(list, entry) == 0)
        return list;
    uni_value_free(list);
    return NULL;
}

static int check_count(const cli_command *command, const cli_parsed *parsed, uni_error *err)
{
    if (parsed->num_args < command->min_args)
        return uni_error_set(err, UNI_EINVAL, "missing argument: %s", command->arguments);
    if (command->max_args >= 0 && parsed->num_args > command->max_args)
        return uni_error_set(err, UNI_EINVAL, "unexpected argument: \"%s\"",
                             parsed->args[command->max_args]);
    return 0;
}

/* True if `word` is one of "a|b|c". */
static bool is_among(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strncmp(at, word, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return true;
    return false;
}

/* Rejects an option that would have no effect. Unknown words are rejected by the command itself. */
static int check_only(const cli_command *command, const cli_parsed *parsed, uni_error *err)
{
    if (!command->only || parsed->num_args < 1)
        return 0;
    const char *word = parsed->args[0];
    bool own = !is_among(command->completes, word);
    for (const cli_only *only = command->only; only->option; only++)
        if (cli_given(parsed, only->option) && !is_among(only->words, own ? "SPEC.json" : word))
            return uni_error_set(err, UNI_EINVAL,
                                 "--%s has no effect on `%s %s`; it applies to: %s", only->option,
                                 command->name, own ? "SPEC.json" : word, only->words);
    return 0;
}

static int call_command(cli_context *context, const cli_command *command, int argc, char **argv)
{
    cli_parsed parsed;
    uni_error err = { 0 };
    int code = UNI_EXIT_OK;
    int status = cli_parse(&parsed, command->options, command->values_size, command->starts_program,
                           argc, argv, &err);
    const cli_option *last = command->options;
    while (last->name && strcmp(last->name, "color") != 0)
        last++;
    if (status == 0 && last->name) {
        const char *when = *(const char **)((char *)parsed.values + last->offset);
        cli_terminal_colour(&context->out, when);
        cli_terminal_colour(&context->err, when);
    }
    if (parsed.help) {
        cli_help_print(&context->out, command);
    } else if (status < 0 || check_count(command, &parsed, &err) < 0 ||
               check_only(command, &parsed, &err) < 0) {
        code = cli_fail(context, command->name, &err);
        if (code == UNI_EXIT_USAGE)
            fprintf(context->err.out, "See `unisono %s --help`.\n", command->name);
    } else {
        code = command->call(context, &parsed);
    }
    cli_parsed_free(&parsed);
    return code;
}

/* A pipe that was closed early (| head) is not an error; a full disk is. */
static int finish_output(cli_context *context, int code)
{
    uni_error err = { 0 };
    if (fflush(context->out.out) == 0 && !ferror(context->out.out))
        return code;
    uni_error_set(&err, UNI_EIO, "cannot write the output");
    return code ? code : cli_fail(context, "", &err);
}

/* If the command is started without them (>&-), the next opened files would get their numbers, and
 * output would end up in results.jsonl. */
static void fill_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            return;
}

int main(int argc, char **argv)
{
    /* Static: the streams are used until exit, and the leak checker finds them here. */
    static cli_context context;
    fill_standard_descriptors();
    context = (cli_context){ .program = argv[0],
                             .out = cli_terminal_of(stdout, "auto"),
                             .err = cli_terminal_of(stderr, "auto"),
                             .now = uni__wall_seconds() };
    cli_terminal_protect(&context.out);
    cli_terminal_protect(&context.err);
    uni_error err = { 0 };
    const char *name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const cli_command *command = cli_command_find(name, &err);
    if (!command)
        return cli_fail(&context, "", &err);
    if (argc < 2) {
        cli_help_print(&context.err, NULL);
        return UNI_EXIT_USAGE;
    }
    return finish_output(&context, call_command(&context, command, argc - 2, argv + 2));
}
