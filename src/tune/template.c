/* template.c - see template.h. */
#include "tune/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@+,-"

/* ---- code words ---- */

static const char *word_at(const uni_value *program, size_t index)
{
    return uni_value_as_string(uni_list_get(program, index), "");
}

/* /usr/bin/python3.11 is python: the version is ignored. */
static bool is_one_of(const char *word, const char *const *names)
{
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    for (; *names; names++) {
        size_t length = strlen(*names);
        if (strncmp(name, *names, length) == 0 &&
            name[length + strspn(name + length, "0123456789.-")] == '\0')
            return true;
    }
    return false;
}

/* Programs that interpret the word after an option such as -c or -e. */
static bool is_interpreter(const char *word)
{
    static const char *const names[] = { "sh",      "bash",  "dash",   "zsh",  "ksh",     "mksh",
                                         "ash",     "fish",  "csh",    "tcsh", "rbash",   "python",
                                         "pypy",    "perl",  "ruby",   "node", "nodejs",  "lua",
                                         "php",     "julia", "luajit", "R",    "Rscript", "octave",
                                         "gnuplot", "tclsh", "expect", "deno", "bun",     "gdb",
                                         "script",  NULL };
    return is_one_of(word, names);
}

/* Programs that interpret their arguments themselves. */
static bool interprets_arguments(const char *word)
{
    static const char *const names[] = { "ssh",  "awk",   "gawk",    "mawk",     "nawk",
                                         "sed",  "su",    "runuser", "parallel", "watch",
                                         "tmux", "xterm", NULL };
    return is_one_of(word, names);
}

static bool is_code_option(const char *word)
{
    static const char *const names[] = { "--command", "--eval", "--print", NULL };
    return is_one_of(word, names) ||
           (word[0] == '-' && word[1] != '-' && word[1] && strpbrk(word, "ceEpr"));
}

static bool takes_a_word(const char *option)
{
    return strlen(option) == 2 && strchr("oOWXILM", option[1]);
}

/* The word after the interpreter's option, with only other options in between, or an option with
 * the script in it: perl -e{x}, node --eval={x}. */
static bool is_script_of(const uni_value *program, size_t interpreter, size_t index)
{
    for (size_t i = interpreter + 1; i < index; i++) {
        const char *word = word_at(program, i);
        if (is_code_option(word) && i + 1 == index)
            return true;
        if (word[0] != '-' && word[0] != '+')
            return false;
        i += takes_a_word(word);
    }
    return word_at(program, index)[0] == '-';
}

/* `env NAME=VALUE PROGRAM`: VALUE may be a variable that changes what PROGRAM loads. */
static bool is_variable_of(const uni_value *program, size_t env, size_t index)
{
    for (size_t i = env + 1; i < index; i++) {
        const char *word = word_at(program, i);
        if (word[0] != '-' && !strchr(word, '='))
            return false;
    }
    return true;
}

/* The length of a value's braces at the beginning of `at`; 0 if there are none. */
static size_t braces(const char *at)
{
    size_t name = *at == '{' ? strcspn(at + 1, "{}\"' \t\n") : 0;
    return name > 0 && at[name + 1] == '}' ? name + 2 : 0;
}

static bool has_syntax(const char *word)
{
    for (size_t step; *word; word += step) {
        step = braces(word);
        if (!step && !strchr(PLAIN "=", *word) && (unsigned char)*word < 0x80)
            return true;
        step = step ? step : 1;
    }
    return false;
}

bool uni__is_code(const uni_value *program, size_t index)
{
    if (index == 0)
        return false;
    if (has_syntax(word_at(program, index)))
        return true;
    static const char *const env[] = { "env", NULL };
    for (size_t i = 0; i < index; i++) {
        const char *word = word_at(program, i);
        if (interprets_arguments(word) ||
            (is_interpreter(word) && is_script_of(program, i, index)) ||
            (is_one_of(word, env) && is_variable_of(program, i, index)))
            return true;
    }
    return false;
}

/* ---- inserting values ---- */

static bool is_plain(const char *text)
{
    return text[0] && text[strspn(text, PLAIN)] == '\0';
}

/* The value of "{name}" at the beginning of `at` as text, malloc'ed; *length: characters that the
 * braces take. NULL: not a value of the config. */
static char *value_at(const char *at, const uni_value *config, size_t *length)
{
    const char *end = *at == '{' ? strchr(at, '}') : NULL;
    char *name = end ? strndup(at + 1, (size_t)(end - at) - 1) : NULL, *text = NULL;
    const uni_value *value = name ? uni_value_path(config, name) : NULL;
    free(name);
    if (!value)
        return NULL;
    *length = (size_t)(end - at) + 1;
    if (uni_value_type_of(value) == UNI_TYPE_STRING)
        return strdup(uni_value_as_string(value, ""));
    return uni_json_write(&text, NULL, value, UNI_JSON_NONFINITE, NULL) == 0 ? text : NULL;
}

/* `before`: the character before the braces. */
static int check_in_code(const char *value, const char *at, size_t length, char before,
                         uni_error *err)
{
    int size = (int)length;
    if (before == '$')
        return uni_error_set(err, UNI_EINVAL,
                             "$%.*s in the program is a variable of the shell, and %.*s a value of "
                             "the config: write %.*s for the value, or give the variable another "
                             "name",
                             size, at, size, at, size, at);
    if (is_plain(value))
        return 0;
    return uni_error_set(err, UNI_EINVAL,
                         "cannot put \"%.200s\" into a script in place of %.*s: only letters, "
                         "digits and _./:@+,- are put into code, and this has others. Give the "
                         "value as an argument of its own: [\"sh\", \"-c\", \"... \\\"$1\\\"\", "
                         "\"sh\", \"%.*s\"], or read it from UNISONO_CONFIG",
                         value, size, at, size, at);
}

int uni__fill_word(const uni_value *program, size_t index, const uni_value *config, uni_value **out,
                   uni_error *err)
{
    const char *word = word_at(program, index);
    bool is_code = uni__is_code(program, index);
    uni__text text = { 0 };
    int status = 0;
    *out = NULL;
    for (const char *at = word; *at && status == 0;) {
        size_t length = 1;
        char *value = value_at(at, config, &length);
        if (value && is_code)
            status = check_in_code(value, at, length, at > word ? at[-1] : '\0', err);
        if (value)
            uni__text_add_string(&text, value);
        else
            uni__text_add(&text, at, length);
        free(value);
        at += length;
    }
    if (status == 0 && !text.failed)
        *out = uni_value_string(text.data ? text.data : "");
    uni__text_free(&text);
    if (status < 0)
        return status;
    return *out ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for the words of a program");
}
