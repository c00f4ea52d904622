/*
 * command.h - a command of `unisono`: its option table, its help texts and its function. One file
 * per command. Thread: main.
 */
#ifndef UNISONO_CLI_COMMAND_H
#define UNISONO_CLI_COMMAND_H

#include <unisono/run.h>
#include <unisono/value.h>

#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/terminal.h"

typedef struct cli_context {
    const char *program; /* argv[0] */
    cli_terminal out, err;
    double now; /* wall clock at the start of the command */
} cli_context;

typedef struct cli_example {
    const char *line; /* NULL ends the list */
    const char *what;
} cli_example;

/* An option that only some words (head, plot ...) of a command accept. */
typedef struct cli_only {
    const char *option; /* NULL ends the list */
    const char *words; /* "plan|schema"; SPEC.json stands for words that are not in `completes` */
} cli_only;

typedef struct cli_command {
    const char *name;
    const char *arguments; /* for the synopsis, after [options]; "" if none */
    const char *summary; /* one line, lower case */
    const char *description;
    const cli_option *options;
    size_t values_size;
    int min_args, max_args; /* max -1: any number */
    bool starts_program; /* the first word that is not an option begins a program */
    const char *completes; /* what the words are: <run>, <command>, <program>, a|b|c, or NULL */
    const cli_only *only; /* NULL: every option applies to all words */
    const cli_example *examples;
    int (*call)(cli_context *context, const cli_parsed *parsed); /* returns the exit code */
} cli_command;

extern const cli_command cli_run_command, cli_report_command, cli_ls_command, cli_show_command,
    cli_logs_command, cli_why_command, cli_stop_command, cli_scale_command, cli_plot_command,
    cli_check_command, cli_tune_command, cli_data_command, cli_rm_command, cli_completion_command,
    cli_version_command, cli_help_command;

/* All of them in the order of the help, NULL-terminated. */
const cli_command *const *cli_commands(void);
/* Returns NULL if there is no such command; *err then suggests the closest one. */
const cli_command *cli_command_find(const char *name, uni_error *err);

/* Rows shared by several tables. */
#define CLI_STORAGE_OPTION(values)                                                                 \
    {                                                                                              \
        NULL, "storage", 0, CLI_STRING, offsetof(values, storage), "DIR", NULL, "UNISONO_RESULTS", \
            "<dir>", "directory for the results of all runs (default: ~/unisono_results)"          \
    }
#define CLI_JSON_OPTION(values)                                                                    \
    {                                                                                              \
        NULL, "json", 0, CLI_FLAG, offsetof(values, json), NULL, NULL, NULL, NULL,                 \
            "print JSON instead of text"                                                           \
    }
#define CLI_COLOR_OPTION(values)                                                                   \
    {                                                                                              \
        NULL, "color", 0, CLI_CHOICE, offsetof(values, color), "WHEN", "auto", "UNISONO_COLOR",    \
            "auto|always|never", "colour the output; auto: on a terminal, unless NO_COLOR is set"  \
    }
#define CLI_END_OPTION                                                                             \
    {                                                                                              \
        NULL, NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL, NULL                                   \
    }

/* Prints "unisono COMMAND: sentence" to stderr; returns the exit code for the error. */
int cli_fail(const cli_context *context, const char *command, const uni_error *err);
/* Prints a value as indented JSON with a line feed and frees it; NULL means out of memory. Returns
 * the exit code. */
int cli_print_json(const cli_context *context, uni_value *value);
/* Adds an entry, which it takes, to a list. Frees both and returns NULL if the entry could not be
 * filled (`failed`) or added. */
uni_value *cli_list_add(uni_value *list, uni_value *entry, bool failed);

#endif
