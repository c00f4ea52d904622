/* suggest.c - the nearest name by edit distance with swaps (optimal string alignment). */
#include <stdio.h>
#include <string.h>

#include "cli/suggest.h"

#define LONGEST 63

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t cli_edit_distance(const char *a, const char *b)
{
    size_t table[3][LONGEST + 1];
    size_t length_a = strnlen(a, LONGEST), length_b = strnlen(b, LONGEST);
    for (size_t j = 0; j <= length_b; j++)
        table[0][j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t *row = table[i % 3];
        const size_t *above = table[(i + 2) % 3], *two_above = table[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            row[j] =
                smaller(above[j - 1] + (a[i - 1] != b[j - 1]), smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], two_above[j - 2] + 1);
        }
    }
    return table[length_a % 3][length_b];
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
        size_t distance = cli_edit_distance(word, name);
        if (length >= 2 && strncmp(word, name, length) == 0)
            distance = 1; /* the beginning of the name */
        if (distance < best && distance < strlen(name)) {
            best = distance;
            snprintf(out, size, "%s", name);
            found = true;
        }
    }
    return found;
}
