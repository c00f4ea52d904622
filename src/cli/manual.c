/* manual.c - the man page (roff, man(7) macros) and docs/cli.md, from the commands' tables. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/version.h>

#include "cli/help.h"

/* ---- roff ---- */

/* Backslashes, hyphens (so that options can be copied) and quotes; a line that would begin with a
 * macro is guarded. `code` becomes bold, a line feed a new paragraph. */
static void roff_text(FILE *out, const char *text)
{
    bool code = false, line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        line_start = false;
        switch (*text) {
        case '\\':
            fputs("\\e", out);
            break;
        case '-':
            fputs("\\-", out);
            break;
        case '\'':
            fputs("\\(aq", out);
            break;
        case '~':
            fputs("\\(ti", out);
            break;
        case '^':
            fputs("\\(ha", out);
            break;
        case '`':
            code = !code;
            fputs(code ? "\\fB" : "\\fR", out);
            break;
        case '\n':
            fputs("\n.PP\n", out);
            while (text[1] == '\n')
                text++;
            line_start = true;
            break;
        default:
            fputc(*text, out);
        }
    }
}

static void roff_option(FILE *out, const cli_option *option)
{
    char notes[256];
    cli_option_notes(option, notes, sizeof notes);
    fputs(".TP\n", out);
    if (option->letter)
        fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", out);
    roff_text(out, option->name);
    fputs("\\fR", out);
    if (option->kind == CLI_OPTIONAL)
        fprintf(out, " [\\fI%s\\fR]", option->argument);
    else if (option->kind != CLI_FLAG)
        fprintf(out, " \\fI%s\\fR", option->argument);
    fputc('\n', out);
    roff_text(out, option->help);
    if (notes[0]) {
        fputs(" (", out);
        roff_text(out, notes);
        fputc(')', out);
    }
    fputc('\n', out);
}

static void roff_command(FILE *out, const cli_command *command)
{
    fprintf(out, ".SS \"unisono %s\"\n", command->name);
    fprintf(out, "\\fBunisono %s\\fR [options]", command->name);
    if (command->arguments[0]) {
        fputc(' ', out);
        roff_text(out, command->arguments);
    }
    fputs("\n.PP\n", out);
    roff_text(out, command->description);
    fputc('\n', out);
    for (const cli_option *option = command->options; option->name; option++) {
        if (option->group) {
            fputs(".PP\n\\fI", out);
            roff_text(out, option->group);
            fputs("\\fR\n", out);
        }
        roff_option(out, option);
    }
    for (const cli_example *example = command->examples; example && example->line; example++) {
        fputs(".PP\n", out);
        roff_text(out, example->what);
        fputs(":\n.PP\n.RS 4\n.nf\n", out);
        roff_text(out, example->line);
        fputs("\n.fi\n.RE\n", out);
    }
}

void cli_help_man(FILE *out)
{
    fprintf(out,
            ".\\\" made by `unisono help --man` from the option tables\n"
            ".TH UNISONO 1 \"\" \"unisono %s\" \"User Commands\"\n.SH NAME\n"
            "unisono \\- workers that train one model in unison\n.SH SYNOPSIS\n",
            uni_version());
    for (const cli_command *const *command = cli_commands(); *command; command++) {
        fprintf(out, "%s\\fBunisono %s\\fR [options] ", command == cli_commands() ? "" : ".br\n",
                (*command)->name);
        roff_text(out, (*command)->arguments);
        fputc('\n', out);
    }
    fputs(".SH DESCRIPTION\n", out);
    roff_text(out, cli_introduction);
    fputs("\n.SH COMMANDS\n", out);
    for (const cli_command *const *command = cli_commands(); *command; command++)
        roff_command(out, *command);
    fputs(".SH \"EXIT STATUS\"\n", out);
    roff_text(out, cli_exit_rule);
    fputc('\n', out);
    for (const cli_exit_code *row = cli_exit_codes; row->meaning; row++) {
        fprintf(out, ".TP\n.B %d\n", row->code);
        roff_text(out, row->meaning);
        fputc('\n', out);
    }
    fputs(".SH ENVIRONMENT\n", out);
    for (const cli_variable *row = cli_variables; row->name; row++) {
        fprintf(out, ".TP\n.B ");
        roff_text(out, row->name);
        fputc('\n', out);
        roff_text(out, row->meaning);
        fputc('\n', out);
    }
    fputs(".SH FILES\n.TP\n.I \\(ti/unisono_results/NAME/run_001\nA run: run.json (what was asked, "
          "how it stands), "
          "journal.jsonl (what happened), results.jsonl (every report), progress.csv, logs, "
          "checkpoints.\n",
          out);
}

/* ---- Markdown ---- */

/* In table cells a bar must be escaped, and <...> would be taken for HTML. */
static void cell_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputs("\\|", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else
            fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static void markdown_options(FILE *out, const cli_option *option)
{
    bool open = false;
    for (; option->name; option++) {
        if (option->group || !open)
            fprintf(out, "\n| %s | |\n|---|---|\n", option->group ? option->group : "Options");
        open = true;
        char usage[80], notes[256];
        cli_option_usage(option, usage, sizeof usage);
        cli_option_notes(option, notes, sizeof notes);
        fputs("| `", out);
        if (option->letter)
            fprintf(out, "-%c`, `", option->letter);
        cell_text(out, usage);
        fputs("` | ", out);
        cell_text(out, option->help);
        if (notes[0]) {
            fputs(" (", out);
            cell_text(out, notes);
            fputc(')', out);
        }
        fputs(" |\n", out);
    }
}

static void markdown_command(FILE *out, const cli_command *command)
{
    fprintf(out, "\n## unisono %s\n\n%c%s.\n\n    unisono %s [options]%s%s\n\n", command->name,
            toupper((unsigned char)command->summary[0]), command->summary + 1, command->name,
            command->arguments[0] ? " " : "", command->arguments);
    cli_wrap(out, 120, 0, 0, command->description);
    if (command->examples) {
        fputs("\n```sh\n", out);
        for (const cli_example *example = command->examples; example->line; example++)
            fprintf(out, "# %s\n%s\n", example->what, example->line);
        fputs("```\n", out);
    }
    markdown_options(out, command->options);
}

void cli_help_markdown(FILE *out)
{
    fputs("# The unisono command\n\n<!-- made by `unisono help --markdown` from the option tables "
          "in src/cli: do not edit "
          "-->\n\n",
          out);
    cli_wrap(out, 120, 0, 0, cli_introduction);
    fputs("\n| command | |\n|---|---|\n", out);
    for (const cli_command *const *command = cli_commands(); *command; command++) {
        fprintf(out, "| [%s](#unisono-%s) | ", (*command)->name, (*command)->name);
        cell_text(out, (*command)->summary);
        fputs(" |\n", out);
    }
    for (const cli_command *const *command = cli_commands(); *command; command++)
        markdown_command(out, *command);
    fputs("\n## Exit codes\n\n", out);
    cli_wrap(out, 120, 0, 0, cli_exit_rule);
    fputs("\n| code | meaning |\n|---|---|\n", out);
    for (const cli_exit_code *row = cli_exit_codes; row->meaning; row++) {
        fprintf(out, "| %d | ", row->code);
        cell_text(out, row->meaning);
        fputs(" |\n", out);
    }
    fputs("\n## Environment\n\n| variable | meaning |\n|---|---|\n", out);
    for (const cli_variable *row = cli_variables; row->name; row++) {
        fprintf(out, "| %s | ", row->name);
        cell_text(out, row->meaning);
        fputs(" |\n", out);
    }
}
