/*
 * completion_command.c - `unisono completion bash|zsh|fish`: scripts generated from the option
 * tables. Completion asks `unisono ls --quiet` for the names of runs; everything else is in the
 * script, so that a Tab starts no process.
 */
#include <string.h>

#include "cli/command.h"

typedef struct completion_values {
    const char *color;
} completion_values;

static const cli_option completion_options[] = {
    CLI_COLOR_OPTION(completion_values),
    CLI_END_OPTION,
};

/* Quotes text for single quotes in a shell. */
static void quoted(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text == '\n' ? ' ' : *text, out);
    }
}

/* Prints "a|b|c" as words. */
static void words_of(FILE *out, const char *choices)
{
    for (; *choices; choices++)
        fputc(*choices == '|' ? ' ' : *choices, out);
}

static void command_words(FILE *out)
{
    for (const cli_command *const *command = cli_commands(); *command; command++)
        fprintf(out, "%s%s", command == cli_commands() ? "" : " ", (*command)->name);
}

/* ---- bash ---- */

static void bash_reply(FILE *out, const char *hint)
{
    if (!hint || strcmp(hint, "<file>") == 0 || strcmp(hint, "<program>") == 0)
        fputs("COMPREPLY=($(compgen -f -- \"$cur\"))", out);
    else if (strcmp(hint, "<dir>") == 0)
        fputs("COMPREPLY=($(compgen -d -- \"$cur\"))", out);
    else if (strcmp(hint, "<run>") == 0)
        fputs("COMPREPLY=($(compgen -W \"$(unisono ls --quiet 2>/dev/null)\" -- \"$cur\"))", out);
    else {
        fputs("COMPREPLY=($(compgen -W \"", out);
        if (strcmp(hint, "<command>") == 0)
            command_words(out);
        else
            words_of(out, hint);
        fputs("\" -- \"$cur\"))", out);
    }
}

static void bash_command(FILE *out, const cli_command *command)
{
    fprintf(out, "    %s)\n        case \"$prev\" in\n", command->name);
    for (const cli_option *option = command->options; option->name; option++) {
        if (option->kind == CLI_FLAG)
            continue;
        fprintf(out, "        --%s", option->name);
        if (option->letter)
            fprintf(out, "|-%c", option->letter);
        fputs(") ", out);
        if (option->choices)
            bash_reply(out, option->choices);
        else
            fputs("COMPREPLY=()", out);
        fputs("; return;;\n", out);
    }
    fputs("        esac\n        if [[ $cur == -* ]]; then\n            COMPREPLY=($(compgen -W \"",
          out);
    for (const cli_option *option = command->options; option->name; option++)
        fprintf(out, "--%s ", option->name);
    fputs("--help\" -- \"$cur\"))\n", out);
    if (command->completes) {
        fputs("        else\n            ", out);
        bash_reply(out, command->completes);
        fputc('\n', out);
    }
    fputs("        fi;;\n", out);
}

static void print_bash(FILE *out)
{
    fputs("# bash completion for unisono; load it with: source <(unisono completion bash)\n"
          "_unisono()\n{\n"
          "    local cur prev word i\n"
          "    cur=${COMP_WORDS[COMP_CWORD]}\n"
          "    prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    COMPREPLY=()\n"
          "    if [[ $COMP_CWORD -eq 1 ]]; then\n        COMPREPLY=($(compgen -W \"",
          out);
    command_words(out);
    fputs("\" -- \"$cur\"))\n        return\n    fi\n"
          "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
          "        word=${COMP_WORDS[i]}\n"
          "        if [[ $word == -- ]]; then\n"
          "            # after the dashes comes a program with its own words\n"
          "            declare -F _command_offset > /dev/null && _command_offset $((i + 1)) ||\n"
          "                COMPREPLY=($(compgen -f -c -- \"$cur\"))\n"
          "            return\n        fi\n    done\n"
          "    case \"${COMP_WORDS[1]}\" in\n",
          out);
    for (const cli_command *const *command = cli_commands(); *command; command++)
        bash_command(out, *command);
    fputs("    esac\n}\ncomplete -o filenames -F _unisono unisono\n", out);
}

/* ---- zsh ---- */

/* Inside [...] of _arguments, a bracket or colon would end the text. */
static void zsh_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '[' || *text == ']' || *text == ':')
            fputc('\\', out);
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static void zsh_action(FILE *out, const char *hint)
{
    if (!hint || strcmp(hint, "<file>") == 0)
        fputs("_files", out);
    else if (strcmp(hint, "<dir>") == 0)
        fputs("_files -/", out);
    else if (strcmp(hint, "<run>") == 0)
        fputs("($(unisono ls --quiet 2>/dev/null))", out);
    else if (strcmp(hint, "<program>") == 0)
        fputs("_command_names -e", out);
    else {
        fputc('(', out);
        if (strcmp(hint, "<command>") == 0)
            command_words(out);
        else
            words_of(out, hint);
        fputc(')', out);
    }
}

static void zsh_option(FILE *out, const cli_option *option)
{
    const char *again = option->kind == CLI_LIST ? "*" : "";
    for (int form = option->letter ? 0 : 1; form < 2; form++) {
        if (form == 0)
            fprintf(out, "            '%s-%c[", again, option->letter);
        else
            fprintf(out, "            '%s--%s[", again, option->name);
        zsh_text(out, option->help);
        fputc(']', out);
        if (option->kind != CLI_FLAG) {
            fprintf(out, "%s:", option->kind == CLI_OPTIONAL ? ":" : "");
            zsh_text(out, option->argument);
            fputc(':', out);
            if (option->choices)
                zsh_action(out, option->choices);
        }
        fputs("' \\\n", out);
    }
}

static void print_zsh(FILE *out)
{
    fputs("#compdef unisono\n# zsh completion for unisono; put it in a directory of $fpath as "
          "_unisono, or:\n"
          "#   source <(unisono completion zsh)\n"
          "_unisono() {\n    local -a commands\n    commands=(\n",
          out);
    for (const cli_command *const *command = cli_commands(); *command; command++) {
        fprintf(out, "        '%s:", (*command)->name);
        zsh_text(out, (*command)->summary);
        fputs("'\n", out);
    }
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        "
          "return\n    fi\n"
          "    local name=$words[2]\n    words=(\"${words[@]:1}\")\n    (( CURRENT -= 1 ))\n    "
          "case $name in\n",
          out);
    for (const cli_command *const *command = cli_commands(); *command; command++) {
        fprintf(out, "    %s)\n        _arguments -s \\\n", (*command)->name);
        for (const cli_option *option = (*command)->options; option->name; option++)
            zsh_option(out, option);
        if ((*command)->completes) {
            fputs("            '*:word:", out);
            zsh_action(out, (*command)->completes);
            fputs("' \\\n", out);
        }
        fputs("            '--help[print the help]';;\n", out);
    }
    fputs("    esac\n}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _unisono "
          "\"$@\"\nelse\n"
          "    compdef _unisono unisono\nfi\n",
          out);
}

/* ---- fish ---- */

static void fish_words(FILE *out, const char *hint)
{
    if (hint && strcmp(hint, "<run>") == 0)
        fputs(" -x -a '(unisono ls --quiet 2>/dev/null)'", out);
    else if (hint && strcmp(hint, "<dir>") == 0)
        fputs(" -x -a '(__fish_complete_directories)'", out);
    else if (hint && strcmp(hint, "<command>") == 0) {
        fputs(" -x -a '", out);
        command_words(out);
        fputc('\'', out);
    } else if (hint && hint[0] != '<') {
        fputs(" -x -a '", out);
        words_of(out, hint);
        fputc('\'', out);
    } else
        fputs(" -r", out);
}

static void print_fish(FILE *out)
{
    fputs("# fish completion for unisono; save it as ~/.config/fish/completions/unisono.fish\n",
          out);
    for (const cli_command *const *command = cli_commands(); *command; command++) {
        fprintf(out, "complete -c unisono -n __fish_use_subcommand -x -a %s -d '",
                (*command)->name);
        quoted(out, (*command)->summary);
        fputs("'\n", out);
        for (const cli_option *option = (*command)->options; option->name; option++) {
            fprintf(out, "complete -c unisono -n '__fish_seen_subcommand_from %s' -l %s",
                    (*command)->name, option->name);
            if (option->letter)
                fprintf(out, " -s %c", option->letter);
            if (option->kind != CLI_FLAG)
                fish_words(out, option->choices);
            fputs(" -d '", out);
            quoted(out, option->help);
            fputs("'\n", out);
        }
        if ((*command)->completes && strcmp((*command)->completes, "<program>") != 0) {
            fprintf(out, "complete -c unisono -n '__fish_seen_subcommand_from %s'",
                    (*command)->name);
            fish_words(out, (*command)->completes);
            fputc('\n', out);
        }
    }
}

static int call_completion(cli_context *context, const cli_parsed *parsed)
{
    FILE *out = context->out.out;
    const char *shell = parsed->args[0];
    uni_error err = { 0 };
    if (strcmp(shell, "bash") == 0)
        print_bash(out);
    else if (strcmp(shell, "zsh") == 0)
        print_zsh(out);
    else if (strcmp(shell, "fish") == 0)
        print_fish(out);
    else {
        uni_error_set(&err, UNI_EINVAL, "unsupported shell \"%s\": use bash, zsh or fish", shell);
        return cli_fail(context, "completion", &err);
    }
    return UNI_EXIT_OK;
}

static const cli_example completion_examples[] = {
    { "source <(unisono completion bash)", "for this shell" },
    { "unisono completion bash > ~/.local/share/bash-completion/completions/unisono",
      "for every new bash" },
    { "unisono completion zsh > \"${fpath[1]}/_unisono\"", "zsh" },
    { "unisono completion fish > ~/.config/fish/completions/unisono.fish", "fish" },
    { NULL, NULL },
};

const cli_command cli_completion_command = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .summary = "print the completion script for a shell",
    .description = "Completes commands, options, their choices and run names. The script is "
                   "generated from the same tables as the help.",
    .options = completion_options,
    .values_size = sizeof(completion_values),
    .min_args = 1,
    .max_args = 1,
    .completes = "bash|zsh|fish",
    .examples = completion_examples,
    .call = call_completion,
};
