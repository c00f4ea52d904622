/* help.h - the option tables as text: --help on the terminal, the man page in roff, docs/cli.md.
 * Thread: main. */
#ifndef UNISONO_CLI_HELP_H
#define UNISONO_CLI_HELP_H

#include "cli/command.h"

/* One command's help; NULL: the overview of all. */
void cli_help_print(const cli_terminal *terminal, const cli_command *command);
void cli_help_man(FILE *out);
void cli_help_markdown(FILE *out);

/* "--name ARG" as displayed; "--name[=ARG]" if the argument is optional. */
void cli_option_usage(const cli_option *option, char *out, size_t size);
/* "default 3; environment UNISONO_X; one of a, b" or "". */
void cli_option_notes(const cli_option *option, char *out, size_t size);
extern const cli_exit_code cli_exit_codes[]; /* ends with meaning NULL */

/* Variables that the command reads or sets in workers, besides those of single options. */
typedef struct cli_variable {
    const char *name, *meaning; /* name NULL ends the list */
} cli_variable;
extern const cli_variable cli_variables[];
extern const char cli_introduction[], cli_exit_rule[];

#endif
