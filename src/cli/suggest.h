/* suggest.h - "did you mean": the closest of a few names. Pure; any thread. */
#ifndef UNISONO_CLI_SUGGEST_H
#define UNISONO_CLI_SUGGEST_H

#include <stdbool.h>
#include <stddef.h>

/* The closest of names ("a|b|c") to word, if it is close enough to be a typo or an abbreviation. */
bool cli_suggest_of(const char *word, const char *names, char *out, size_t size);
/* Whether the word is one of "csv|json|...". */
bool cli_is_one_of(const char *word, const char *names);

#endif
