/*
 * options.h - one table per command: it parses the arguments, reads the environment, prints --help
 * and generates the man page, docs/cli.md and shell completion. Nothing about an option is stated
 * twice.
 *
 * A row says where its value goes (an offset into the command's own struct of values), and its kind
 * determines the C type there. Defaults are text in the rows and are parsed like arguments. Order
 * of precedence: command line, environment, default.
 *
 * Thread: main.
 */
#ifndef UNISONO_CLI_OPTIONS_H
#define UNISONO_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <unisono/status.h>

typedef enum cli_kind {
    CLI_FLAG, /* bool */
    CLI_STRING, /* const char *, NULL if not given */
    CLI_OPTIONAL, /* const char *: NULL if not given, "" if given without its argument */
    CLI_INT, /* long long */
    CLI_NUMBER, /* double */
    CLI_DURATION, /* double, seconds: 90s, 5m, 2h, 1h30m, 500ms, or a plain number */
    CLI_SIZE, /* double, bytes: 2G, 512M, 1.5GiB, or a plain number */
    CLI_CHOICE, /* const char *, one of choices */
    CLI_LIST /* cli_list, may be repeated */
} cli_kind;

typedef struct cli_list {
    const char **items; /* NULL-terminated when there are any */
    int count;
} cli_list;

typedef struct cli_option {
    const char *group; /* heading in the help, at the first option of the group; otherwise NULL */
    const char *name; /* without "--"; NULL ends the table */
    char letter; /* short form, or 0 */
    cli_kind kind;
    size_t offset; /* of the value in the command's struct */
    const char *argument; /* name of the argument in the help; NULL for flags */
    const char *preset; /* default, as typed; NULL: none */
    const char *environment; /* variable that sets it, or NULL */
    /* "a|b|c" for CLI_CHOICE, otherwise hints for completion: <file>, <dir>, <run>. */
    const char *choices;
    const char *help; /* a sentence or two; a short one without a full stop */
} cli_option;

/* A parsed command line. */
typedef struct cli_parsed {
    const cli_option *options;
    void *values; /* calloc'ed struct of the command */
    bool given[64]; /* by row: said on the command line or by the environment */
    bool preset[64]; /* by row: only the environment says it */
    bool help; /* --help or -h was among them */
    const char **args; /* positional words, NULL-terminated */
    int num_args;
    bool dashes; /* "--" was given */
} cli_parsed;

/* Parses argv[0..argc) (without the command's name). stop_at_word: the first word that is not an
 * option begins a program, and the rest belongs to it. Returns UNI_EINVAL with a message that
 * suggests the closest option. Free the result with cli_parsed_free in any case. */
int cli_parse(cli_parsed *out, const cli_option *options, size_t values_size, bool stop_at_word,
              int argc, char **argv, uni_error *err) UNI_MUST_USE;
void cli_parsed_free(cli_parsed *parsed);
bool cli_given(const cli_parsed *parsed, const char *name);
/* On the command line: it goes before a file, and a file goes before the environment. */
bool cli_typed(const cli_parsed *parsed, const char *name);

#endif
