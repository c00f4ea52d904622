/*
 * exit_codes.h - the command's exit codes are those of unisono/run.h (uni_exit_code), so that
 * run.json records the exit code of `unisono run`. The other commands use only 0, 1 (a negative
 * answer: no such run, nothing to stop), 64 and 70.
 */
#ifndef UNISONO_CLI_EXIT_CODES_H
#define UNISONO_CLI_EXIT_CODES_H

#include <unisono/run.h>

typedef struct cli_exit_code {
    int code;
    const char *meaning;
} cli_exit_code;

#define CLI_EXIT_CODE_ROW(name, number, sentence) { number, sentence },

#endif
