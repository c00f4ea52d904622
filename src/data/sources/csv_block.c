/*
 * csv_block.c - whole records out of a byte range that was cut anywhere.
 *
 * A record belongs to the block in which its first byte lies. At the beginning of a block it is not known whether the cut is inside of quotes, where
 * a newline ends nothing. Both possibilities are followed over the block's quotes at the same time: an opening quote must follow a delimiter or a
 * newline, a closing one must be followed by a delimiter, a newline or another quote. In a file that keeps RFC 4180 the true one never
 * breaks this rule, so as soon as one breaks it the other is true. When neither breaks it, or both do, the file is read from its
 * beginning up to the cut and its quotes are counted: slow, and always right. Files without quotes (most) pay one memchr. Any thread.
 */
#include <string.h>
#include "data/sources/csv.h"

#define LONGEST_RECORD ((int64_t)1 << 30)

const char *uni__csv_record_end(const uni__csv *csv, const char *p, const char *end)
{
    const uni__csv_scan *scan = uni__csv_scanner();
    bool quoted = false;
    for (; (p = scan->find(p, end, '\n', csv->quote, '\n', csv->quote)) < end; p++) {
        if (*p == csv->quote)
            quoted = !quoted;
        else if (!quoted)
            return p + 1;
    }
    return end;
}

/* Whether a quote at p can be an opening one, and whether it can be a closing one. */
static bool can_open(const uni__csv *csv, const char *p)
{
    return p[-1] == csv->delimiter || p[-1] == '\n' || p[-1] == csv->quote;
}

static bool can_close(const uni__csv *csv, const char *p, const char *end)
{
    return p + 1 >= end || p[1] == csv->delimiter || p[1] == '\n' || p[1] == '\r' ||
           p[1] == csv->quote;
}

enum { OUTSIDE, INSIDE, UNKNOWN };

/* Is text[1] inside of quotes? text[0] is the byte before the block. */
static int guess_state(const uni__csv *csv, const char *text, const char *end)
{
    bool outside = true, inside = true; /* still possible */
    bool odd = false; /* quotes passed so far */
    const char *p = memchr(text + 1, csv->quote, (size_t)(end - text - 1));
    if (p == NULL)
        return OUTSIDE;
    for (; p != NULL; p = memchr(p + 1, csv->quote, (size_t)(end - p - 1)), odd = !odd) {
        bool opens = can_open(csv, p), closes = can_close(csv, p, end);
        outside = outside && (odd ? closes : opens);
        inside = inside && (odd ? opens : closes);
        if (outside != inside)
            return outside ? OUTSIDE : INSIDE;
        if (!outside || p + 1 >= end)
            break;
    }
    return UNKNOWN;
}

/* Counts the file's quotes up to the offset. */
static int state_by_counting(const uni__csv *csv, int file, int64_t offset, uni__reader *reader,
                             int *state, uni_error *err)
{
    enum { STEP = 1 << 20 };
    char *memory = uni__reader_scratch(reader, 1, STEP);
    size_t quotes = 0;
    if (memory == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a block");
    for (int64_t at = 0; at < offset; at += STEP) {
        size_t size = offset - at < STEP ? (size_t)(offset - at) : STEP;
        UNI_TRY(uni__files_pread(csv->files, file, at, memory, size, err));
        quotes += uni__csv_scanner()->count(memory, size, csv->quote);
    }
    *state = quotes % 2 == 0 ? OUTSIDE : INSIDE;
    return 0;
}

/* The first record that begins at or behind the block's begin; text[0] is the byte before it. */
static int find_first(const uni__csv *csv, const uni__block *block, uni__reader *reader,
                      const char *text, const char *end, const char **first, uni_error *err)
{
    int state = guess_state(csv, text, end);
    if (state == UNKNOWN)
        UNI_TRY(state_by_counting(csv, block->file, block->begin, reader, &state, err));
    if (state == OUTSIDE) {
        *first = text[0] == '\n' ? text + 1 : uni__csv_record_end(csv, text + 1, end);
        return 0;
    }
    /* In quotes: a newline right before the cut was one of them. */
    const char *close = memchr(text + 1, csv->quote, (size_t)(end - text - 1));
    while (close != NULL && close + 1 < end && close[1] == csv->quote)
        close = memchr(close + 2, csv->quote, (size_t)(end - close - 2));
    *first = close != NULL ? uni__csv_record_end(csv, close + 1, end) : end;
    return 0;
}

static int read_bytes(const uni__csv *csv, const uni__block *block, int64_t begin, int64_t end,
                      uni__reader *reader, char **text, uni_error *err)
{
    if (end - begin > LONGEST_RECORD)
        return uni_error_set(
            err, UNI_ELIMIT,
            "%s: a record behind byte %lld is longer than 1 GiB; is a quote missing?",
            csv->files->items[block->file].path, (long long)block->begin);
    *text = uni__reader_scratch(reader, 0, (size_t)(end - begin) + 1);
    if (*text == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a block of %s",
                             csv->files->items[block->file].path);
    return uni__files_pread(csv->files, block->file, begin, *text, (size_t)(end - begin), err);
}

int uni__csv_read_block(const uni__csv *csv, const uni__block *block, uni__reader *reader,
                        char **text, size_t *size, int64_t *offset, uni_error *err)
{
    int64_t file_size = csv->files->items[block->file].size, extra = 16 << 10;
    int64_t begin = block->begin > 0 ? block->begin - 1 : 0;
    for (;; extra *= 8) {
        int64_t stop = block->end + extra < file_size ? block->end + extra : file_size;
        UNI_TRY(read_bytes(csv, block, begin, stop, reader, text, err));
        const char *end = *text + (stop - begin), *first = *text;
        const char *limit = *text + (block->end - begin); /* records that begin before it */
        if (block->begin > 0)
            UNI_TRY(find_first(csv, block, reader, *text, end, &first, err));
        const char *last = first;
        if (first < limit && memchr(first, csv->quote, (size_t)(end - first)) == NULL) {
            const char *newline = memchr(limit - 1, '\n', (size_t)(end - limit + 1));
            last = newline != NULL ? newline + 1 : end;
        } else {
            while (last < limit)
                last = uni__csv_record_end(csv, last, end);
        }
        /* The last record (or the rest of one that began before) may go on behind what was read. */
        bool complete = stop == file_size || (last < end) ||
                        (last == end && last > first && last[-1] == '\n' && last > limit);
        if (!complete)
            continue;
        *offset = begin + (first - *text);
        *size = (size_t)(last - first);
        *text += first - *text;
        if (*size > 0 && (*text)[*size - 1] != '\n')
            (*text)[*size] = '\n';
        return 0;
    }
}
