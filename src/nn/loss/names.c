/*
 * names.c - see names.h. The distance is Damerau's (swapped neighbours count as one change),
 * ignoring case and underscores, so "binary_crosentropy" and "Binary Crossentorpy" both find their
 * match. Any thread.
 */
#include "nn/loss/names.h"

#include <ctype.h>
#include <string.h>

#include "base/text.h"

#define LONGEST 64 /* relevant names are shorter; longer ones are truncated */

static bool is_joint(char c)
{
    return c == '_' || c == ' ' || c == '-' || c == '.';
}

/* Lower case, without separators; returns the length. */
static size_t squeeze(char out[LONGEST], const char *name)
{
    size_t size = 0;
    for (; *name != '\0' && size < LONGEST; name++)
        if (!is_joint(*name))
            out[size++] = (char)tolower((unsigned char)*name);
    return size;
}

bool uni__same_name(const char *a, const char *b)
{
    for (;;) {
        while (is_joint(*a))
            a++;
        while (is_joint(*b))
            b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
        if (*a == '\0')
            return true;
        a++;
        b++;
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t rows[3][LONGEST + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_size; j++)
        last[j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            bool equal = a[i - 1] == b[j - 1];
            now[j] = least(least(now[j - 1], last[j]) + 1, last[j - 1] + !equal);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b_size];
}

/* The name with the fewest changed letters; NULL if none is close (more than about a third
 * differs). */
static const char *nearest_name(const char *name, const char *const *names, size_t count)
{
    char wanted[LONGEST], candidate[LONGEST];
    size_t wanted_size = squeeze(wanted, name);
    size_t best = wanted_size / 3 + 2;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t size = squeeze(candidate, names[i]);
        size_t changes = distance(wanted, wanted_size, candidate, size);
        /* A prefix is also close: "sparse_categorical" means the name that it begins. */
        if (wanted_size >= 4 && size > wanted_size && memcmp(wanted, candidate, wanted_size) == 0)
            changes = least(changes, 2);
        if (changes < best && changes < size) {
            best = changes;
            nearest = names[i];
        }
    }
    return nearest;
}

int uni__unknown_name(uni_error *err, const char *what, const char *name, const char *const *names,
                      size_t count)
{
    const char *nearest = nearest_name(name, names, count);
    if (nearest != NULL)
        return uni_error_set(err, UNI_ENOTFOUND, "there is no %s \"%.80s\"; did you mean \"%s\"?",
                             what, name, nearest);
    uni__text list = { 0 };
    for (size_t i = 0; i < count; i++) {
        uni__text_add_string(&list, i > 0 ? ", " : "");
        uni__text_add_string(&list, names[i]);
    }
    int status = uni_error_set(err, UNI_ENOTFOUND, "there is no %s \"%.80s\"; there are %s", what,
                               name, list.failed || list.data == NULL ? "others" : list.data);
    uni__text_free(&list);
    return status;
}
