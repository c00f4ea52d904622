/*
 * csv_block.c - finds the whole records of a byte range that was cut anywhere.
 *
 * A record belongs to the block that contains its first byte. At the beginning of a block it is
 * unknown whether the cut is inside quotes, where a newline does not end a record. So both
 * possibilities are followed over the quotes of the block. A quote opens a cell only after a
 * delimiter or a newline; elsewhere it is an ordinary character (5" pipe). A closing quote must be
 * followed by a delimiter, a newline or another quote. In a file that follows these rules the true
 * possibility never breaks them, so if one breaks them, the other is true.
 *
 * Nothing less is proof: 5", at the end of a plain cell looks like the end of a quoted one. In that
 * case the file is read from the last position with a known state up to the cut. The states found
 * there are kept, so that all blocks together read the file at most once more. A block without
 * quotes counts as outside; a quoted cell that is longer than a block is rejected where it begins.
 * Any thread.
 */
#include <pthread.h>
#include <string.h>
#include "data/sources/csv.h"

#define LONGEST_RECORD ((int64_t)128 << 20)
#define LOOK_AHEAD ((int64_t)16 << 10)

/* The end of the record that contains p, or begins there (at_start), outside quotes. */
static const char *record_end(const uni__csv *csv, const char *p, const char *end, bool at_start)
{
    const uni__csv_scan *scan = uni__csv_scanner();
    const char *first = p;
    const char quote = csv->quote != UNI__CSV_NO_QUOTE ? (char)csv->quote : '\n';
    bool quoted = false;
    for (; (p = scan->find(p, end, '\n', quote, '\n', quote)) < end; p++) {
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

const char *uni__csv_head(const uni__csv *csv, const char *p, const char *end)
{
    if (end - p >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        p += 3;
    while (csv->header && p < end && (*p == '\n' || (*p == '\r' && p + 1 < end && p[1] == '\n')))
        p++;
    return p;
}

/* Number of bytes from p on that are in the set. */
static size_t span_of(const char *p, const char *end, const char *set)
{
    const char *begin = p;
    while (p < end && *p != 0 && strchr(set, *p) != NULL)
        p++;
    return (size_t)(p - begin);
}

/* Parser state at a position, as determined by the bytes before it. */
enum { UNKNOWN, CELL_START, PLAIN, QUOTED, QUOTE_IN_QUOTED };

/* One possibility, followed from quote to quote. */
struct possibility {
    bool quoted; /* the current state */
    /* Text after a closing quote, which a file that follows the rules does not have. */
    bool broken;
    const char *behind; /* quotes before this are done */
};

static void follow(const uni__csv *csv, struct possibility *one, const char *p, const char *end)
{
    if (p < one->behind)
        return;
    one->behind = p + 1;
    if (!one->quoted) {
        one->quoted = p[-1] == csv->delimiter || p[-1] == '\n';
    } else if (p + 1 < end && p[1] == csv->quote) {
        one->behind = p + 2;
    } else {
        one->quoted = false;
        one->broken |= p + 1 < end && p[1] != csv->delimiter && p[1] != '\n' && p[1] != '\r';
    }
}

/* Finds the first quote, or NULL. */
static const char *find_quote(const uni__csv *csv, const char *p, const char *end)
{
    return csv->quote != UNI__CSV_NO_QUOTE ? memchr(p, csv->quote, (size_t)(end - p)) : NULL;
}

/* The state at text[1], as far as the block proves it. text[0] is the byte before the block. */
static int prove_state(const uni__csv *csv, const char *text, const char *end)
{
    struct possibility outside = { .behind = text }, inside = { .behind = text, .quoted = true };
    const char *p = find_quote(csv, text, end);
    int plain = text[0] == csv->delimiter || text[0] == '\n' ? CELL_START : PLAIN;
    if (p == NULL)
        return plain;
    if (p == text) /* may be half of a pair */
        return UNKNOWN;
    for (; p != NULL; p = find_quote(csv, p + 1, end)) {
        follow(csv, &outside, p, end);
        follow(csv, &inside, p, end);
        if (outside.broken != inside.broken)
            return outside.broken ? QUOTED : plain;
        if (outside.broken)
            break;
    }
    return UNKNOWN;
}

static int step(const uni__csv *csv, int state, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (state == QUOTED)
            state = c == csv->quote ? QUOTE_IN_QUOTED : QUOTED;
        else if (c == csv->quote && (state == CELL_START || state == QUOTE_IN_QUOTED))
            state = QUOTED;
        else
            state = c == csv->delimiter || c == '\n' ? CELL_START : PLAIN;
    }
    return state;
}

/* Reads up to the block, cell by cell, from the last block of its file whose state is known. */
static int state_by_reading(uni__csv *csv, int64_t index, uni__reader *reader, int *state,
                            uni_error *err)
{
    enum { STEP = 1 << 20 };
    int file = csv->blocks[index].file, status = 0;
    char *memory = uni__reader_scratch(reader, UNI__SCRATCH_CSV_STATE, STEP);
    if (memory == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a block");
    pthread_mutex_lock(&csv->lock);
    int64_t known = index;
    while (csv->states[known] == UNKNOWN && csv->blocks[known].begin > 0)
        known--;
    if (csv->blocks[known].begin == 0)
        csv->states[known] = CELL_START;
    int64_t mark = 0; /* a byte order mark is not part of a cell */
    if (csv->blocks[known].begin < 3 && csv->files->items[file].size >= 3) {
        status = uni__files_pread(csv->files, file, 0, memory, 3, err);
        mark = status == 0 && memcmp(memory, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    }
    for (; known < index && status == 0; known++) {
        int64_t begin = csv->blocks[known].begin, end = csv->blocks[known].end;
        begin = begin < mark ? mark : begin;
        int at = csv->states[known];
        for (int64_t size; begin < end && status == 0; begin += size) {
            size = end - begin < STEP ? end - begin : STEP;
            status = uni__reader_is_wanted(reader, err);
            if (status == 0)
                status = uni__files_pread(csv->files, file, begin, memory, (size_t)size, err);
            if (status == 0)
                at = step(csv, at, memory, (size_t)size);
        }
        if (status == 0)
            csv->states[known + 1] = (uint8_t)at;
    }
    *state = csv->states[index];
    pthread_mutex_unlock(&csv->lock);
    return status;
}

/* Finds the first record that begins in or after the block; text[0] is the byte before the
 * block. */
static int find_first(uni__csv *csv, int64_t index, uni__reader *reader, const char *text,
                      const char *end, const char **first, uni_error *err)
{
    int state = prove_state(csv, text, end);
    if (state == UNKNOWN)
        UNI_TRY(state_by_reading(csv, index, reader, &state, err));
    const char *p = text + 1;
    if (state == QUOTE_IN_QUOTED && p < end && *p == csv->quote) { /* the second half of a pair */
        state = QUOTED;
        p++;
    }
    if (state != QUOTED) {
        *first = text[0] == '\n' ? p : record_end(csv, p, end, state == CELL_START);
        return 0;
    }
    /* Inside quotes: a newline right before the cut is part of the cell. */
    const char *close = memchr(p, csv->quote, (size_t)(end - p));
    while (close != NULL && close + 1 < end && close[1] == csv->quote)
        close = memchr(close + 2, csv->quote, (size_t)(end - close - 2));
    *first = close != NULL ? record_end(csv, close + 1, end, false) : end;
    return 0;
}

/* A block that begins in the empty lines before the header: the header belongs to the first
 * block. */
static int pass_late_header(const uni__csv *csv, const uni__block *block, const char *text,
                            const char *end, const char **first, uni_error *err)
{
    static const char empty[] = "\n\r\xEF\xBB\xBF";
    char head[64];
    size_t size = 0;
    if (!csv->header || span_of(text, *first, empty) < (size_t)(*first - text))
        return 0;
    for (int64_t at = 0; at < block->begin; at += (int64_t)size) {
        size = block->begin - at < 64 ? (size_t)(block->begin - at) : sizeof head;
        UNI_TRY(uni__files_pread(csv->files, block->file, at, head, size, err));
        if (span_of(head, head + size, empty) < size)
            return 0;
    }
    *first = uni__csv_record_end(csv, uni__csv_head(csv, *first, end), end);
    return 0;
}

static int read_bytes(const uni__csv *csv, const uni__block *block, int64_t begin, int64_t end,
                      uni__reader *reader, char **text, uni_error *err)
{
    if (end - begin > LONGEST_RECORD)
        return uni_error_set(
            err, UNI_ELIMIT,
            "%s: a record behind byte %lld is longer than 128 MiB; is a quote missing?",
            csv->files->items[block->file].path, (long long)block->begin);
    *text = uni__reader_scratch(reader, UNI__SCRATCH_CSV_BLOCK, (size_t)(end - begin) + 1);
    if (*text == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a block of %s",
                             csv->files->items[block->file].path);
    return uni__files_pread(csv->files, block->file, begin, *text, (size_t)(end - begin), err);
}

/* The next block would contain only the middle of the quoted cell and take it for rows. */
static int check_length(const uni__csv *csv, const uni__block *block, const char *limit,
                        const char *last, uni_error *err)
{
    int64_t size = block->end - block->begin;
    if (last - limit <= size + LOOK_AHEAD || find_quote(csv, limit, last) == NULL)
        return 0;
    return uni_error_set(
        err, UNI_ELIMIT,
        "%s: the record at byte %lld goes on over %lld bytes, more than a block of %lld; read the "
        "file in larger blocks (block_bytes), or look for a quote that is not closed",
        csv->files->items[block->file].path, (long long)block->end, (long long)(last - limit),
        (long long)size);
}

int uni__csv_read_block(uni__csv *csv, int64_t index, uni__reader *reader, char **text,
                        size_t *size, int64_t *offset, uni_error *err)
{
    const uni__block *block = &csv->blocks[index];
    int64_t file_size = csv->files->items[block->file].size, extra = LOOK_AHEAD;
    int64_t begin = block->begin > 0 ? block->begin - 1 : 0;
    for (;; extra *= 8) {
        int64_t stop = block->end + extra < file_size ? block->end + extra : file_size;
        UNI_TRY(read_bytes(csv, block, begin, stop, reader, text, err));
        const char *end = *text + (stop - begin), *first = *text;
        /* The block's records begin before this. */
        const char *limit = *text + (block->end - begin);
        if (block->begin > 0) {
            UNI_TRY(find_first(csv, index, reader, *text, end, &first, err));
            UNI_TRY(pass_late_header(csv, block, *text, end, &first, err));
            if (first >= limit) { /* inside a record, which its own block reads */
                *offset = block->end;
                *size = 0;
                return 0;
            }
        } else { /* always includes the first record of the file */
            first = uni__csv_head(csv, *text, end);
            limit = first < limit ? limit : first < end ? first + 1 : end;
        }
        const char *last = first;
        if (first < limit && find_quote(csv, first, end) == NULL) {
            const char *newline = memchr(limit - 1, '\n', (size_t)(end - limit + 1));
            last = newline != NULL ? newline + 1 : end;
        } else {
            while (last < limit)
                last = uni__csv_record_end(csv, last, end);
        }
        /* The last record, or the rest of one that began earlier, may continue beyond what was
         * read. */
        bool complete = stop == file_size || (last < end) ||
                        (last == end && last > first && last[-1] == '\n' && last > limit);
        if (!complete)
            continue;
        if (first < limit)
            UNI_TRY(check_length(csv, block, limit, last, err));
        *offset = begin + (first - *text);
        *size = (size_t)(last - first);
        *text += first - *text;
        if (*size > 0 && (*text)[*size - 1] != '\n')
            (*text)[*size] = '\n';
        return 0;
    }
}
