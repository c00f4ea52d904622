/* csv_cell.c - cells that are not plain numbers: quotes, missing values, spaces, inf, true and
 * false. Any thread. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/text.h"
#include "data/sources/csv.h"

bool uni__csv_cell_at(const uni__csv *csv, const char *p, const char *end, char *buffer,
                      uni__csv_cell *out)
{
    const uni__csv_scan *scan = uni__csv_scanner();
    *out = (uni__csv_cell){ .begin = p };
    if (p >= end || *p != csv->quote) {
        const char *next = scan->find(p, end, csv->delimiter, '\n', csv->delimiter, '\n');
        out->next = next;
        out->end = next > p && next < end && *next == '\n' && next[-1] == '\r' ? next - 1 : next;
        return true;
    }
    out->quoted = true;
    const char *from = ++p;
    char *to = buffer;
    bool doubled = false;
    for (;; p += 2) {
        p = memchr(p, csv->quote, (size_t)(end - p));
        if (p == NULL) {
            out->next = end;
            return false;
        }
        if (p + 1 >= end || p[1] != csv->quote)
            break;
        memcpy(to, from, (size_t)(p + 1 - from)); /* including one of the two quotes */
        to += p + 1 - from;
        from = p + 2;
        doubled = true;
    }
    out->begin = doubled ? buffer : from;
    out->end = p;
    if (doubled) {
        memcpy(to, from, (size_t)(p - from));
        out->end = to + (p - from);
    }
    p++;
    /* Rejects text after the closing quote, as RFC 4180 does. */
    out->next = p < end && *p == '\r' && p + 1 < end && p[1] == '\n' ? p + 1 : p;
    return out->next >= end || *out->next == csv->delimiter || *out->next == '\n';
}

bool uni__csv_is_null(const uni__csv *csv, const uni__csv_cell *cell)
{
    size_t size = (size_t)(cell->end - cell->begin);
    for (int i = 0; i < csv->num_nulls; i++) {
        if (strlen(csv->nulls[i]) == size && memcmp(csv->nulls[i], cell->begin, size) == 0)
            return true;
    }
    return false;
}

/* Copies the cell without surrounding spaces as a C string. Returns false if it is empty or too
 * long for a number. */
static bool trimmed(const uni__csv_cell *cell, char *out, size_t room)
{
    const char *begin = cell->begin, *end = cell->end;
    while (begin < end && (*begin == ' ' || *begin == '\t'))
        begin++;
    while (end > begin && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    size_t size = (size_t)(end - begin);
    if (size == 0 || size >= room)
        return false;
    memcpy(out, begin, size);
    out[size] = 0;
    /* Rejects what strtod accepts but data does not mean: hexadecimal numbers and nan(...). strtod
     * would also stop at a NUL byte. */
    return memchr(out, 0, size) == NULL && strpbrk(out, "xXpP(") == NULL;
}

bool uni__csv_slow_double(const uni__csv_cell *cell, double *out)
{
    char text[1100], *end;
    if (!trimmed(cell, text, sizeof text))
        return false;
    *out = uni__read_double(text, &end);
    return *end == 0;
}

bool uni__csv_slow_float(const uni__csv_cell *cell, float *out)
{
    char text[1100], *end;
    if (!trimmed(cell, text, sizeof text))
        return false;
    *out = uni__read_float(text, &end);
    return *end == 0;
}

bool uni__csv_slow_int(const uni__csv_cell *cell, int64_t *out)
{
    char text[64], *end;
    if (!trimmed(cell, text, sizeof text))
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *end == 0 && errno == 0;
}

bool uni__csv_slow_natural(const uni__csv_cell *cell, uint64_t *out)
{
    char text[64], *end;
    if (!trimmed(cell, text, sizeof text) || *text == '-')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == 0 && errno == 0;
}

bool uni__csv_is_whole(const uni__csv_cell *cell)
{
    const char *p = cell->begin;
    while (p < cell->end && (*p == ' ' || *p == '-' || *p == '+'))
        p++;
    const char *digits = p;
    while (p < cell->end && *p >= '0' && *p <= '9')
        p++;
    return p > digits && p == cell->end;
}

bool uni__csv_bool(const uni__csv_cell *cell, uint8_t *out)
{
    static const char *const words[] = {
        "false", "true", "False", "True", "FALSE", "TRUE", "0", "1"
    };
    char text[8];
    if (!trimmed(cell, text, sizeof text))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    }
    return false;
}
