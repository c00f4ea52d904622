/*
 * shell.h - values of a config in a script for `sh -c`: what is put in is data there, never code. Pure functions; any thread.
 */
#ifndef UNISONO_TUNE_SHELL_H
#define UNISONO_TUNE_SHELL_H

#include <unisono/value.h>

#include "base/text.h"

/* Whether word number `index` of a program's arguments is the script of a shell: `sh -c SCRIPT`, also behind `env` or with a path. */
bool uni__is_script(const uni_value *argv, size_t index);

/* How the shell reads what comes next in a script. */
typedef enum uni__shell_state {
    UNI__SHELL_PLAIN,
    UNI__SHELL_SINGLE, /* inside of '...' */
    UNI__SHELL_DOUBLE, /* inside of "..." */
    UNI__SHELL_OTHER /* a here-document, `...`, ${...}, $((...)), $'...', a comment */
} uni__shell_state;

#define UNI__SHELL_DEPTH 16
typedef struct uni__shell {
    uni__shell_state stack[UNI__SHELL_DEPTH]; /* $( ... ) begins anew inside of "..." */
    int depth;
    bool lost; /* beyond what is followed here: all that comes is OTHER */
    bool in_comment;
    char before; /* the character before, for comments and $ */
} uni__shell;

/* Follows one character of the script; `next` is the one behind it, '\0' at the end. Returns how many characters it was (an escape is two). */
int uni__shell_read(uni__shell *shell, const char *at);
uni__shell_state uni__shell_now(const uni__shell *shell);
/* Adds the text so that the shell takes it literally. UNI_EINVAL where it cannot be: in OTHER, unless no character of it means anything to a shell. */
int uni__shell_add(uni__text *out, const uni__shell *shell, const char *text) UNI_MUST_USE;

#endif
