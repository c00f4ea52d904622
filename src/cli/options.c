/*
 * options.c - parses arguments with the command's table (options.h). --name value, --name=value, -n
 * value, -nvalue, combined flags (-fq), --no-flag for a flag that an environment variable turned
 * on. Words and options may come in any order, unless the command starts a program.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/options.h"
#include "cli/suggest.h"

static void *slot(const cli_parsed *parsed, const cli_option *option)
{
    return (char *)parsed->values + option->offset;
}

static int bad_value(const cli_option *option, const char *text, const char *wanted, uni_error *err)
{
    return uni_error_set(err, UNI_EINVAL, "--%s %s: %s", option->name, text, wanted);
}

static int set_choice(const cli_option *option, const char *text, void *value, uni_error *err)
{
    size_t length = strlen(text);
    for (const char *at = option->choices; at && *at;) {
        size_t width = strcspn(at, "|");
        if (width == length && strncmp(at, text, width) == 0) {
            *(const char **)value = text;
            return 0;
        }
        at += width + (at[width] == '|');
    }
    char nearest[64];
    if (cli_suggest_of(text, option->choices, nearest, sizeof nearest))
        return uni_error_set(err, UNI_EINVAL,
                             "--%s %s: unknown value. Did you mean %s? (one of %s)", option->name,
                             text, nearest, option->choices);
    return uni_error_set(err, UNI_EINVAL, "--%s %s: must be one of %s", option->name, text,
                         option->choices);
}

static int add_item(cli_list *list, const char *text, uni_error *err)
{
    const char **items = realloc(list->items, (size_t)(list->count + 2) * sizeof *items);
    if (!items)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the command line");
    items[list->count++] = text;
    items[list->count] = NULL;
    list->items = items;
    return 0;
}

static int set_int(const cli_option *option, const char *text, void *value, uni_error *err)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return bad_value(option, text, "must be an integer", err);
    *(long long *)value = number;
    return 0;
}

static int set_number(const cli_option *option, const char *text, void *value, uni_error *err)
{
    char *end = NULL;
    double number = strtod(text, &end);
    if (end == text || *end || number != number)
        return bad_value(option, text, "must be a number", err);
    *(double *)value = number;
    return 0;
}

/* Borrows text, which outlives the values: it is in argv, the environment or the tables. */
static int set_value(const cli_option *option, const char *text, void *value, uni_error *err)
{
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)value =
            strcmp(text, "0") != 0 && strcmp(text, "") != 0 && strcmp(text, "false") != 0;
        return 0;
    case CLI_STRING:
        if (!text[0])
            return bad_value(option, "\"\"", "must not be empty", err);
        *(const char **)value = text;
        return 0;
    case CLI_OPTIONAL:
        *(const char **)value = text;
        return 0;
    case CLI_INT:
        return set_int(option, text, value, err);
    case CLI_NUMBER:
        return set_number(option, text, value, err);
    case CLI_DURATION:
        if (!cli_parse_duration(text, value))
            return bad_value(option, text, "must be a time like 90s, 5m, 2h or 1h30m", err);
        return 0;
    case CLI_SIZE:
        if (!cli_parse_size(text, value))
            return bad_value(option, text, "must be a size like 512M, 2G or 1.5GiB", err);
        return 0;
    case CLI_CHOICE:
        return set_choice(option, text, value, err);
    case CLI_LIST:
        return add_item(value, text, err);
    }
    return 0;
}

static int set_presets(cli_parsed *parsed, uni_error *err)
{
    for (const cli_option *option = parsed->options; option->name; option++) {
        const char *text = option->environment ? getenv(option->environment) : NULL;
        if (text && text[0] && strchr(option->environment, ' ') == NULL) {
            if (set_value(option, text, slot(parsed, option), err) < 0)
                return uni_error_prefix(err, "environment variable %s", option->environment);
            parsed->given[option - parsed->options] = true;
            parsed->preset[option - parsed->options] = true;
        } else if (option->preset) {
            UNI_TRY(set_value(option, option->preset, slot(parsed, option), err));
        }
    }
    return 0;
}

static const cli_option *find_name(const cli_option *options, const char *name, size_t length)
{
    for (; options->name; options++)
        if (strlen(options->name) == length && strncmp(options->name, name, length) == 0)
            return options;
    return NULL;
}

static const cli_option *find_letter(const cli_option *options, char letter)
{
    for (; options->name; options++)
        if (options->letter == letter)
            return options;
    return NULL;
}

static int unknown_option(const cli_option *options, const char *word, uni_error *err)
{
    char name[64], names[2048] = "", nearest[64];
    size_t used = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (; options->name; options++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? "|" : "",
                                 options->name);
    if (cli_suggest_of(name, names, nearest, sizeof nearest))
        return uni_error_set(err, UNI_EINVAL, "unknown option --%s. Did you mean --%s?", name,
                             nearest);
    return uni_error_set(err, UNI_EINVAL, "unknown option --%s", name);
}

typedef struct words {
    int argc, at;
    char **argv;
} words;

/* The option's argument: the attached text, otherwise the next word. */
static int take_argument(cli_parsed *parsed, const cli_option *option, const char *attached,
                         words *rest, uni_error *err)
{
    const char *text = attached;
    bool next_is_word = rest->at < rest->argc && rest->argv[rest->at][0] != '-';
    if (!text && option->kind == CLI_OPTIONAL)
        text = next_is_word ? rest->argv[rest->at++] : "";
    else if (!text && rest->at < rest->argc && strcmp(rest->argv[rest->at], "--") != 0)
        text = rest->argv[rest->at++];
    if (!text)
        return uni_error_set(err, UNI_EINVAL, "--%s requires an argument: %s", option->name,
                             option->argument);
    size_t row = (size_t)(option - parsed->options);
    if (option->kind == CLI_LIST && !parsed->given[row])
        ((cli_list *)slot(parsed, option))->count = 0; /* the user's list replaces the default */
    parsed->given[row] = true;
    parsed->preset[row] = false;
    return set_value(option, text, slot(parsed, option), err);
}

static int parse_long(cli_parsed *parsed, const char *word, words *rest, uni_error *err)
{
    const char *name = word + 2;
    size_t length = strcspn(name, "=");
    const char *attached = name[length] == '=' ? name + length + 1 : NULL;
    if (length == 4 && strncmp(name, "help", 4) == 0) {
        parsed->help = true;
        return 0;
    }
    const cli_option *option = find_name(parsed->options, name, length);
    bool negated = false;
    if (!option && length > 3 && strncmp(name, "no-", 3) == 0) {
        option = find_name(parsed->options, name + 3, length - 3);
        negated = option && option->kind == CLI_FLAG;
        option = negated ? option : NULL;
    }
    if (!option)
        return unknown_option(parsed->options, word, err);
    if (option->kind != CLI_FLAG)
        return take_argument(parsed, option, attached, rest, err);
    if (attached)
        return uni_error_set(err, UNI_EINVAL, "--%s takes no argument", option->name);
    *(bool *)slot(parsed, option) = !negated;
    parsed->given[option - parsed->options] = true;
    return 0;
}

static int parse_letters(cli_parsed *parsed, const char *word, words *rest, uni_error *err)
{
    for (const char *letter = word + 1; *letter; letter++) {
        if (*letter == 'h' && !find_letter(parsed->options, 'h')) {
            parsed->help = true;
            continue;
        }
        const cli_option *option = find_letter(parsed->options, *letter);
        if (!option)
            return uni_error_set(err, UNI_EINVAL, "unknown option -%c", *letter);
        if (option->kind != CLI_FLAG)
            return take_argument(parsed, option, letter[1] ? letter + 1 : NULL, rest, err);
        *(bool *)slot(parsed, option) = true;
        parsed->given[option - parsed->options] = true;
    }
    return 0;
}

int cli_parse(cli_parsed *out, const cli_option *options, size_t values_size, bool stop_at_word,
              int argc, char **argv, uni_error *err)
{
    *out = (cli_parsed){ .options = options };
    out->values = calloc(1, values_size ? values_size : 1);
    out->args = calloc((size_t)argc + 1, sizeof *out->args);
    if (!out->values || !out->args)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the command line");
    UNI_TRY(set_presets(out, err));
    words rest = { argc, 0, argv };
    bool only_words = false;
    while (rest.at < rest.argc) {
        const char *word = rest.argv[rest.at++];
        if (only_words || word[0] != '-' || word[1] == '\0') {
            out->args[out->num_args++] = word;
            only_words = only_words || stop_at_word;
        } else if (strcmp(word, "--") == 0) {
            only_words = out->dashes = true;
        } else if (word[1] == '-') {
            UNI_TRY(parse_long(out, word, &rest, err));
        } else {
            UNI_TRY(parse_letters(out, word, &rest, err));
        }
    }
    return 0;
}

void cli_parsed_free(cli_parsed *parsed)
{
    for (const cli_option *option = parsed->options; parsed->values && option && option->name;
         option++)
        if (option->kind == CLI_LIST)
            free(((cli_list *)slot(parsed, option))->items);
    free(parsed->values);
    free(parsed->args);
    *parsed = (cli_parsed){ 0 };
}

bool cli_given(const cli_parsed *parsed, const char *name)
{
    const cli_option *option = find_name(parsed->options, name, strlen(name));
    return option && parsed->given[option - parsed->options];
}

bool cli_typed(const cli_parsed *parsed, const char *name)
{
    const cli_option *option = find_name(parsed->options, name, strlen(name));
    return cli_given(parsed, name) && !parsed->preset[option - parsed->options];
}
