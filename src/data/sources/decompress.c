/*
 * decompress.c - streams of bytes and lines from files that may be compressed (decompress.h).
 *
 * One buffer holds compressed bytes and, for lines, a second one holds plain text. The text after
 * the last newline is carried over to the next call. Newlines are counted as they pass, so that
 * messages can give the line. Belongs to one thread.
 */
#include "data/sources/decompress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/plugin.h"
#include "data/sources/codec_plugin.h"

#define INPUT_BYTES ((size_t)256 << 10)
/* A few bytes of a compressed file can expand to a line of any length. This limit keeps a line and
 * its copies within a dataset's budget (256 MiB). */
#define MAX_LINE ((size_t)32 << 20)
#define BEHIND 64

struct uni__stream {
    char *path;
    int fd;
    const uni__codec_plugin *codec; /* NULL: not compressed */
    void *state;
    uint8_t *input; /* compressed */
    const uint8_t *at;
    size_t left;
    bool open_member, file_end;
    uni_error failure; /* What follows the bytes that could be read; without the path. */
    /* Lines only. */
    char *text;
    size_t capacity, size, used; /* used: returned by the previous call */
    int64_t line; /* line number of text[0] */
};

static const struct kind {
    const char *suffix;
    uni__plugin plugin;
} kinds[] = {
#define GZIP                                                                                       \
    {                                                                                              \
        .file = "libunisono-zlib.so", .symbol = UNI__CODEC_PLUGIN_SYMBOL,                          \
        .version = UNI__CODEC_PLUGIN_VERSION, .built = "src/data/sources",                         \
        .purpose = "reading .gz files", .packages = "the Debian package zlib1g",                   \
        .otherwise = "unpack the file first (gunzip)"                                              \
    }
#define ZSTD                                                                                       \
    {                                                                                              \
        .file = "libunisono-zstd.so", .symbol = UNI__CODEC_PLUGIN_SYMBOL,                          \
        .version = UNI__CODEC_PLUGIN_VERSION, .built = "src/data/sources",                         \
        .purpose = "reading .zst files", .packages = "the Debian package libzstd1",                \
        .otherwise = "unpack the file first (unzstd)"                                              \
    }
    { ".gz", GZIP },
    { ".gzip", GZIP },
    { ".zst", ZSTD },
    { ".zstd", ZSTD },
};

static const struct kind *kind_of(const char *path)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t end = strlen(kinds[i].suffix);
        if (length > end && strcasecmp(path + length - end, kinds[i].suffix) == 0)
            return &kinds[i];
    }
    return NULL;
}

bool uni__is_compressed(const char *path)
{
    return kind_of(path) != NULL;
}

static int no_memory(const uni__stream *stream, uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory to read %s", stream->path);
}

int uni__stream_open(uni__stream **out, const char *path, uni_error *err)
{
    const struct kind *kind = kind_of(path);
    const void *table = NULL;
    *out = NULL;
    if (kind != NULL)
        UNI_TRY(uni__plugin_open(&table, &kind->plugin, err));
    uni__stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read %s", path);
    stream->codec = table;
    stream->line = 1;
    stream->path = strdup(path);
    stream->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (stream->fd < 0) {
        int status = uni_error_set_errno(err, errno, "cannot read %s", path);
        uni__stream_close(stream);
        return status;
    }
    if (stream->codec != NULL) {
        stream->input = malloc(INPUT_BYTES);
        stream->state = stream->codec->open();
    }
    if (stream->path == NULL ||
        (stream->codec != NULL && (stream->input == NULL || stream->state == NULL))) {
        uni__stream_close(stream);
        return uni_error_set(err, UNI_ENOMEM, "no memory to read %s", path);
    }
    *out = stream;
    return 0;
}

void uni__stream_close(uni__stream *stream)
{
    if (stream == NULL)
        return;
    if (stream->state != NULL)
        stream->codec->close(stream->state);
    if (stream->fd >= 0)
        close(stream->fd);
    free(stream->input);
    free(stream->text);
    free(stream->path);
    free(stream);
}

const char *uni__stream_path(const uni__stream *stream)
{
    return stream->path;
}

static int read_some(uni__stream *stream, void *out, size_t size, size_t *got, uni_error *err)
{
    ssize_t count;
    do
        count = read(stream->fd, out, size);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return uni_error_set_errno(err, errno, "cannot be read");
    *got = (size_t)count;
    return 0;
}

/* Runs the codec once, reading input if it has none. *done: the file and its last member ended. */
static int inflate_some(uni__stream *stream, uint8_t **out, size_t *room, bool *done,
                        uni_error *err)
{
    const char *why = NULL;
    if (stream->left == 0 && !stream->file_end) {
        stream->at = stream->input;
        UNI_TRY(read_some(stream, stream->input, INPUT_BYTES, &stream->left, err));
        stream->file_end = stream->left == 0;
    }
    if (stream->file_end && !stream->open_member) {
        *done = true;
        return 0;
    }
    size_t left = stream->left, space = *room;
    int result = stream->codec->run(stream->state, &stream->at, &stream->left, out, room, &why);
    if (result < 0)
        return uni_error_set(err, UNI_EFORMAT, "the %s bytes are damaged: %s", stream->codec->name,
                             why);
    stream->open_member = result == 0;
    if (stream->file_end && stream->open_member && left == stream->left && space == *room)
        return uni_error_set(
            err, UNI_ECORRUPT,
            "the file ends in the middle of its %s data: it was cut off; fetch or write it again",
            stream->codec->name);
    return 0;
}

/* Reports why the data ended early, with its location: a line, or 0. */
static int tell_failure(const uni__stream *stream, int64_t line, uni_error *err)
{
    const uni_error *failure = &stream->failure;
    if (line > 0)
        return uni_error_set(err, failure->code, "%s:%lld: %s", stream->path, (long long)line,
                             failure->message);
    return uni_error_set(err, failure->code, "%s: %s", stream->path, failure->message);
}

int uni__stream_read(uni__stream *stream, void *out, size_t size, size_t *got, uni_error *err)
{
    uint8_t *at = out;
    size_t room = size;
    bool done = false;
    int status = stream->failure.code;
    while (room > 0 && !done && status == 0) {
        size_t count = 0;
        if (stream->codec != NULL) {
            status = inflate_some(stream, &at, &room, &done, &stream->failure);
            continue;
        }
        status = read_some(stream, at, room, &count, &stream->failure);
        at += count;
        room -= count;
        done = count == 0;
    }
    *got = size - room;
    return status < 0 && *got == 0 ? tell_failure(stream, 0, err) : 0;
}

bool uni__stream_good(const uni__stream *stream)
{
    return stream->failure.code == 0;
}

int uni__stream_pass_over(const uni__stream *stream, uni__reader *reader, int status,
                          uni_error *err)
{
    int code = stream->failure.code;
    if (status != code || (code != UNI_EFORMAT && code != UNI_ECORRUPT) ||
        !uni__reader_skips(reader))
        return status;
    return uni__reader_bad(reader, err, stream->path, stream->text != NULL ? stream->line : 0, 0,
                           "%s", stream->failure.message);
}

/* Parser state for CSV; the rules are those of csv_block.c. */
enum { CELL_START, PLAIN, QUOTED, QUOTE_IN_QUOTED };

/* Returns the position after the last newline that ends a line, or 0; *state carries over from
 * piece to piece. */
static size_t last_line_end(const char *text, size_t begin, size_t size, char quote, char delimiter,
                            int *state)
{
    size_t end = 0;
    if (quote == 0) {
        const char *newline = memrchr(text + begin, '\n', size - begin);
        return newline != NULL ? (size_t)(newline - text) + 1 : 0;
    }
    for (size_t i = begin; i < size; i++) {
        char c = text[i];
        if (*state == QUOTED) {
            *state = c == quote ? QUOTE_IN_QUOTED : QUOTED;
        } else if (c == quote && *state != PLAIN) {
            *state = QUOTED;
        } else {
            *state = c == delimiter || c == '\n' ? CELL_START : PLAIN;
            end = c == '\n' ? i + 1 : end;
        }
    }
    return end;
}

static int grow(uni__stream *stream, size_t capacity, uni_error *err)
{
    if (capacity <= stream->capacity)
        return 0;
    char *text = realloc(stream->text, capacity + BEHIND);
    if (text == NULL)
        return no_memory(stream, err);
    memset(text + capacity, 0, BEHIND);
    stream->text = text;
    stream->capacity = capacity;
    return 0;
}

static void step_over_used(uni__stream *stream)
{
    const char *end = stream->text + stream->used;
    for (const char *at = stream->text; at < end && (at = memchr(at, '\n', (size_t)(end - at)));
         at++)
        stream->line++;
    memmove(stream->text, end, stream->size - stream->used);
    stream->size -= stream->used;
    stream->used = 0;
}

int uni__stream_lines(uni__stream *stream, size_t want, char quote, char delimiter,
                      const char **text, size_t *size, int64_t *line, uni_error *err)
{
    int state = CELL_START;
    size_t looked = 0, end = 0;
    UNI_TRY(grow(stream, want, err));
    if (stream->used > 0)
        step_over_used(stream);
    *line = stream->line;
    for (;;) {
        size_t got = 0, room = stream->capacity - stream->size;
        if (uni__stream_read(stream, stream->text + stream->size, room, &got, err) < 0)
            return tell_failure(stream, stream->line, err);
        bool last = got < room && uni__stream_good(stream);
        stream->size += got;
        end = last_line_end(stream->text, looked, stream->size, quote, delimiter, &state);
        looked = stream->size;
        if (last)
            end = stream->size;
        if (end > 0 || last)
            break;
        if (got < room) /* no whole line before the unreadable part */
            return tell_failure(stream, stream->line, err);
        if (stream->capacity >= MAX_LINE)
            return uni_error_set(err, UNI_ELIMIT, "%s:%lld: a line of more than %zu MiB%s",
                                 stream->path, (long long)stream->line, MAX_LINE >> 20,
                                 quote != 0 ? "; is a quote not closed?" : "");
        UNI_TRY(grow(stream, stream->capacity * 2, err));
    }
    stream->used = end;
    *text = stream->text;
    *size = end;
    return 0;
}

/* ---- one file after the other ---- */

int uni__file_cursor_new(void **out, size_t size, uni_error *err)
{
    uni__file_cursor *cursor = calloc(1, size);
    *out = cursor;
    if (cursor == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a stream");
    cursor->step = 1;
    return 0;
}

void uni__file_cursor_choose(void *self, void *cursor_, int first, int step)
{
    uni__file_cursor *cursor = cursor_;
    cursor->file = first;
    cursor->step = step;
}

void uni__file_cursor_free(void *self, void *cursor)
{
    if (cursor != NULL)
        uni__file_cursor_end_file(cursor);
    free(cursor);
}

int uni__file_cursor_next(uni__file_cursor *cursor, const uni__files *files, uni_error *err)
{
    if (cursor->stream != NULL)
        return 2;
    if (cursor->file >= files->count)
        return 0;
    UNI_TRY(uni__files_check(files, cursor->file, err));
    UNI_TRY(uni__stream_open(&cursor->stream, files->items[cursor->file].path, err));
    cursor->file += cursor->step;
    return 1;
}

void uni__file_cursor_end_file(uni__file_cursor *cursor)
{
    uni__stream_close(cursor->stream);
    cursor->stream = NULL;
}
