/* shell.c - see shell.h. Not a parser of the shell's grammar: it knows quotes, escapes, comments and command substitution, and gives up on the rest. */
#include "tune/shell.h"

#include <string.h>

static bool is_shell(const char *word)
{
    static const char *const names[] = {
        "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish"
    };
    const char *slash = strrchr(word, '/');
    const char *name = slash ? slash + 1 : word;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* "-c", and "-ec" and the like. */
static bool is_command_flag(const char *word)
{
    size_t length = strlen(word);
    return length >= 2 && word[0] == '-' && word[1] != '-' && word[length - 1] == 'c' &&
           strspn(word + 1, "abcdefghiklmnprstuvxBCEHPT") == length - 1;
}

bool uni__is_script(const uni_value *argv, size_t index)
{
    if (index < 2 || !is_command_flag(uni_value_as_string(uni_list_get(argv, index - 1), "")))
        return false;
    for (size_t i = 0; i + 1 < index; i++)
        if (is_shell(uni_value_as_string(uni_list_get(argv, i), "")))
            return true;
    return false;
}

/* ---- where in the script we are ---- */

uni__shell_state uni__shell_now(const uni__shell *shell)
{
    return shell->lost || shell->in_comment ? UNI__SHELL_OTHER : shell->stack[shell->depth];
}

static void enter(uni__shell *shell, uni__shell_state state)
{
    if (shell->depth + 1 == UNI__SHELL_DEPTH)
        shell->lost = true;
    else
        shell->stack[++shell->depth] = state;
}

static void leave(uni__shell *shell)
{
    if (shell->depth == 0)
        shell->lost = true;
    else
        shell->depth--;
}

static bool loses_us(const uni__shell *shell, const char *at)
{
    bool plain = uni__shell_now(shell) == UNI__SHELL_PLAIN;
    return at[0] == '`' || (at[0] == '$' && (at[1] == '{' || strncmp(at + 1, "((", 2) == 0)) ||
           (plain &&
            (strncmp(at, "<<", 2) == 0 || strncmp(at, "$'", 2) == 0 || strncmp(at, "((", 2) == 0));
}

/* Outside of single quotes and comments. */
static int read_open(uni__shell *shell, const char *at)
{
    bool plain = uni__shell_now(shell) == UNI__SHELL_PLAIN;
    if (loses_us(shell, at)) {
        shell->lost = true;
    } else if (at[0] == '\\' && at[1]) {
        return 2;
    } else if (at[0] == '$' && at[1] == '(') {
        enter(shell, UNI__SHELL_PLAIN);
        return 2;
    } else if (at[0] == '"' && plain) {
        enter(shell, UNI__SHELL_DOUBLE);
    } else if (at[0] == '"') {
        leave(shell);
    } else if (at[0] == '\'' && plain) {
        enter(shell, UNI__SHELL_SINGLE);
    } else if (at[0] == '(' && plain) {
        enter(shell, UNI__SHELL_PLAIN);
    } else if (at[0] == ')' && plain) {
        leave(shell);
    } else if (at[0] == '#' && plain) {
        shell->in_comment = !shell->before || strchr(" \t\n;&|(", shell->before);
    }
    return 1;
}

int uni__shell_read(uni__shell *shell, const char *at)
{
    int length = 1;
    if (shell->lost)
        return 1;
    if (shell->in_comment)
        shell->in_comment = at[0] != '\n';
    else if (uni__shell_now(shell) != UNI__SHELL_SINGLE)
        length = read_open(shell, at);
    else if (at[0] == '\'')
        leave(shell);
    shell->before = at[length - 1];
    return length;
}

/* ---- putting a value in ---- */

static bool means_nothing(const char *text)
{
    return text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%"
                             "+,-")] == '\0';
}

static void add_replacing(uni__text *out, const char *text, const char *special, bool single)
{
    for (; *text; text++) {
        if (!strchr(special, *text))
            uni__text_add_char(out, *text);
        else if (single)
            uni__text_add_string(out, "'\\''");
        else
            uni__text_add_format(out, "\\%c", *text);
    }
}

int uni__shell_add(uni__text *out, const uni__shell *shell, const char *text)
{
    uni__shell_state now = uni__shell_now(shell);
    if (means_nothing(text) && (text[0] || now != UNI__SHELL_PLAIN)) {
        uni__text_add_string(out, text);
        return 0;
    }
    if (now == UNI__SHELL_OTHER)
        return UNI_EINVAL;
    if (now == UNI__SHELL_PLAIN)
        uni__text_add_char(out, '\'');
    if (now == UNI__SHELL_DOUBLE)
        add_replacing(out, text, "$`\"\\", false);
    else
        add_replacing(out, text, "'", true);
    if (now == UNI__SHELL_PLAIN)
        uni__text_add_char(out, '\'');
    return 0;
}
