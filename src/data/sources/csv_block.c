/*
 * csv_block.c - whole records out of a byte range that was cut anywhere.
 *
 * A record belongs to the block in which its first byte lies. At the beginning of a block it is not known whether the cut is inside of quotes, where
 * a newline ends nothing. Both possibilities are followed over the block's quotes: a quote opens a cell only behind a delimiter or a newline (elsewhere it is an
 * ordinary character: 5" pipe), and what closes one must be followed by a delimiter, a newline or another quote. In a file that keeps RFC 4180
 * the true possibility never breaks this rule, so when one breaks it the other is true. When neither does, or both do, the file is read
 * from its beginning up to the cut: slow, and always right. Files without quotes (most) pay one memchr. Any thread.
 */
#include <string.h>
#include "data/sources/csv.h"

#define LONGEST_RECORD ((int64_t)1 << 30)

/* The end of the record in whose middle or at whose beginning (at_start) p is, outside of quotes. */
static const char *record_end(const uni__csv *csv, const char *p, const char *end, bool at_start)
{
    const uni__csv_scan *scan = uni__csv_scanner();
    const char *first = p;
    bool quoted = false;
    for (; (p = scan->find(p, end, '\n', csv->quote, '\n', csv->quote)) < end; p++) {
        if (*p == '\n') {
            if (!quoted)
                return p + 1;
        } else if (quoted && p + 1 < end && p[1] == csv->quote) {
            p++;
        } else if (quoted) {
            quoted = false;
        } else {
            quoted = p == first ? at_start : p[-1] == csv->delimiter;
        }
    }
    return end;
}

const char *uni__csv_record_end(const uni__csv *csv, const char *p, const char *end)
{
    return record_end(csv, p, end, true);
}

/* One possibility, followed from quote to quote. */
struct possibility {
    bool quoted; /* now */
    bool broken; /* a closing quote with text behind it: not in a file that keeps the rules */
    int ordinary; /* quotes that are neither opening nor closing: allowed, but rare */
    const char *behind; /* quotes before it are dealt with */
};

/* `cut`: the block's first byte. A cut between two quotes that stand for one leaves the second to open the cell again. */
static void follow(const uni__csv *csv, struct possibility *one, const char *p, const char *cut,
                   const char *end)
{
    if (p < one->behind)
        return;
    one->behind = p + 1;
    if (!one->quoted) {
        one->quoted = p[-1] == csv->delimiter || p[-1] == '\n' || (p == cut && p[-1] == csv->quote);
        one->ordinary += !one->quoted;
    } else if (p + 1 < end && p[1] == csv->quote) {
        one->behind = p + 2;
    } else {
        one->quoted = false;
        one->broken |= p + 1 < end && p[1] != csv->delimiter && p[1] != '\n' && p[1] != '\r';
    }
}

enum { OUTSIDE, INSIDE, UNKNOWN };

/* Is text[1] inside of quotes? text[0] is the byte before the block. */
static int guess_state(const uni__csv *csv, const char *text, const char *end)
{
    struct possibility outside = { .behind = text }, inside = { .behind = text, .quoted = true };
    const char *p = memchr(text + 1, csv->quote, (size_t)(end - text - 1));
    if (p == NULL)
        return OUTSIDE;
    for (; p != NULL; p = memchr(p + 1, csv->quote, (size_t)(end - p - 1))) {
        follow(csv, &outside, p, text + 1, end);
        follow(csv, &inside, p, text + 1, end);
        if (outside.broken != inside.broken)
            return outside.broken ? INSIDE : OUTSIDE;
        if (outside.broken || p + 1 >= end)
            break;
    }
    if (!outside.broken && (outside.ordinary == 0) != (inside.ordinary == 0))
        return outside.ordinary == 0 ? OUTSIDE : INSIDE;
    return UNKNOWN;
}

/* Reads the file from its beginning, cell by cell. */
static int state_by_reading(const uni__csv *csv, int file, int64_t offset, uni__reader *reader,
                            int *state, uni_error *err)
{
    enum { STEP = 1 << 20 };
    enum { CELL_START, PLAIN, QUOTED, QUOTE_IN_QUOTED } at = CELL_START;
    char *memory = uni__reader_scratch(reader, 1, STEP);
    if (memory == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a block");
    for (int64_t begin = 0; begin < offset; begin += STEP) {
        size_t size = offset - begin < STEP ? (size_t)(offset - begin) : STEP;
        UNI_TRY(uni__files_pread(csv->files, file, begin, memory, size, err));
        for (size_t i = 0; i < size; i++) {
            char c = memory[i];
            if (at == QUOTED)
                at = c == csv->quote ? QUOTE_IN_QUOTED : QUOTED;
            else if (c == csv->quote && (at == CELL_START || at == QUOTE_IN_QUOTED))
                at = QUOTED;
            else
                at = c == csv->delimiter || c == '\n' ? CELL_START : PLAIN;
        }
    }
    *state = at == QUOTED ? INSIDE : OUTSIDE;
    return 0;
}

/* The first record that begins at or behind the block's begin; text[0] is the byte before it. */
static int find_first(const uni__csv *csv, const uni__block *block, uni__reader *reader,
                      const char *text, const char *end, const char **first, uni_error *err)
{
    int state = guess_state(csv, text, end);
    if (state == UNKNOWN)
        UNI_TRY(state_by_reading(csv, block->file, block->begin, reader, &state, err));
    if (state == OUTSIDE) {
        bool opens = text[0] == csv->delimiter || text[0] == csv->quote;
        *first = text[0] == '\n' ? text + 1 : record_end(csv, text + 1, end, opens);
        return 0;
    }
    /* In quotes: a newline right before the cut was one of them. */
    const char *close = memchr(text + 1, csv->quote, (size_t)(end - text - 1));
    while (close != NULL && close + 1 < end && close[1] == csv->quote)
        close = memchr(close + 2, csv->quote, (size_t)(end - close - 2));
    *first = close != NULL ? record_end(csv, close + 1, end, false) : end;
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
