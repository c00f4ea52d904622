/* suggest.c - finds the closest name by edit distance. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/suggest.h"

#define LONGEST 63

bool cli_is_one_of(const char *word, const char *names)
{
    size_t length = strlen(word);
    for (const char *at = names; *at;) {
        size_t width = strcspn(at, "|");
        if (width == length && strncmp(at, word, width) == 0)
            return true;
        at += width + (at[width] == '|');
    }
    return false;
}

bool cli_suggest_of(const char *word, const char *names, char *out, size_t size)
{
    size_t length = strlen(word);
    size_t best = length / 3 + 2; /* first distance that is too far */
    bool found = false;
    for (const char *at = names; at && *at;) {
        char name[LONGEST + 1];
        size_t width = strcspn(at, "|");
        snprintf(name, sizeof name, "%.*s", (int)width, at);
        at += width + (at[width] == '|');
        size_t distance = uni__edit_distance(word, name);
        /* A prefix of the name. */
        if (length >= 2 && strncmp(word, name, length) == 0)
            distance = 1;
        if (distance < best && distance < strlen(name)) {
            best = distance;
            snprintf(out, size, "%s", name);
            found = true;
        }
    }
    return found;
}
