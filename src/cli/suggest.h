/* suggest.h - "did you mean": the nearest of a few names. Pure; any thread. */
#ifndef UNISONO_CLI_SUGGEST_H
#define UNISONO_CLI_SUGGEST_H

#include <stdbool.h>
#include <stddef.h>

/* The nearest of names ("a|b|c") to word, when it is near enough to be a typing error or an
 * abbreviation. */
bool cli_suggest_of(const char *word, const char *names, char *out, size_t size);

#endif
