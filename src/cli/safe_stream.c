/* safe_stream.c - see safe_stream.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/safe_text.h"
#include "cli/safe_stream.h"

#define MARK_SIZE 13 /* 0xff, which never occurs in UTF-8, and 12 random letters */

/* All sequences that the command sends: styles, colours of series, and redrawing. */
static const char *const sequences[] = {
    "[0m",  "[1m",  "[2m",  "[31m", "[32m", "[33m", "[34m", "[35m",
    "[36m", "[95m", "[96m", "[H",   "[2J",  "[1A",  "[2K",
};
#define NUM_SEQUENCES (sizeof sequences / sizeof sequences[0])

struct cli_safe {
    int fd;
    char mark[MARK_SIZE + 1];
    char marked[NUM_SEQUENCES][MARK_SIZE + 8];
    char held[MARK_SIZE + 4]; /* the beginning of an incomplete mark or character */
    size_t num_held;
};

static void make_mark(cli_safe *safe)
{
    unsigned char random[MARK_SIZE - 1];
    uint64_t now = uni__monotonic_ns() ^ (uint64_t)getpid() << 32;
    if (uni__random_system(random, sizeof random) < 0)
        for (size_t i = 0; i < sizeof random; i++)
            random[i] = (unsigned char)(now >> (i * 5));
    safe->mark[0] = '\xff';
    for (size_t i = 0; i < sizeof random; i++)
        safe->mark[i + 1] = (char)('a' + random[i] % 26);
    for (size_t i = 0; i < NUM_SEQUENCES; i++)
        snprintf(safe->marked[i], sizeof safe->marked[i], "%s%s", safe->mark, sequences[i]);
}

const char *cli_safe_sequence(const cli_safe *safe, const char *sequence)
{
    for (size_t i = 0; i < NUM_SEQUENCES; i++)
        if (strcmp(sequences[i], sequence) == 0)
            return safe->marked[i];
    return "";
}

/* True for an incomplete UTF-8 character at the end of a write. */
static bool is_beginning(const char *text, size_t length)
{
    unsigned char first = (unsigned char)text[0];
    size_t whole = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
    if (first >= 0xf5 || length >= whole)
        return false;
    for (size_t i = 1; i < length; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return false;
    return true;
}

/* Returns how many bytes at the end are incomplete and were left (0 with `last`). */
static size_t render(const cli_safe *safe, uni__text *out, const char *text, size_t size, bool last)
{
    char escape[UNI__ESCAPE_SIZE];
    for (size_t at = 0; at < size;) {
        size_t left = size - at, bytes = 1;
        if (text[at] == safe->mark[0]) {
            size_t same = left < MARK_SIZE ? left : MARK_SIZE;
            bool is_mark = memcmp(text + at, safe->mark, same) == 0;
            if (is_mark && left < MARK_SIZE && !last)
                return left;
            if (is_mark && left >= MARK_SIZE) {
                uni__text_add_char(out, '\033');
                at += MARK_SIZE;
                continue;
            }
        }
        if (!last && is_beginning(text + at, left))
            return left;
        bytes = uni__safe_step(text + at, left, "\n\t", escape);
        if (escape[0])
            uni__text_add_string(out, escape);
        else
            uni__text_add(out, text + at, bytes);
        at += bytes;
    }
    return 0;
}

void cli_safe_render(const cli_safe *safe, uni__text *out, const char *text, size_t size)
{
    if (safe)
        (void)render(safe, out, text, size, true);
    else
        uni__text_add(out, text, size);
}

void cli_safe_add_line(const cli_safe *safe, uni__text *out, const char *line, size_t size,
                       bool colour)
{
    bool coloured = false;
    char shown[UNI__SGR_SIZE];
    for (size_t at = 0; at < size;) {
        size_t sgr = safe && colour ? uni__sgr_sequence(line + at, size - at, shown) : 0;
        if (sgr) {
            uni__text_add(out, shown[0] ? safe->mark : "", shown[0] ? MARK_SIZE : 0);
            uni__text_add_string(out, shown);
            coloured = coloured || shown[0];
            at += sgr;
            continue;
        }
        size_t part = 1;
        while (at + part < size && line[at + part] != '\033')
            part++;
        uni__text_add_safe(out, line + at, part, "\n\t");
        at += part;
    }
    if (coloured)
        uni__text_add_string(out, cli_safe_sequence(safe, "[0m"));
}

static bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        data += written;
        size -= (size_t)written;
    }
    return true;
}

static ssize_t stream_write(void *cookie, const char *data, size_t size)
{
    cli_safe *safe = cookie;
    uni__text in = { 0 }, out = { 0 };
    uni__text_add(&in, safe->held, safe->num_held);
    uni__text_add(&in, data, size);
    bool good = !in.failed;
    if (good && in.size > 0) {
        size_t left = render(safe, &out, in.data, in.size, false);
        memcpy(safe->held, in.data + in.size - left, left);
        safe->num_held = left;
        good = !out.failed && write_all(safe->fd, out.data, out.size);
    }
    uni__text_free(&in);
    uni__text_free(&out);
    return good ? (ssize_t)size : 0;
}

FILE *cli_safe_open(cli_safe **out, int fd, int buffering)
{
    cli_safe *safe = calloc(1, sizeof *safe);
    *out = NULL;
    if (!safe)
        return NULL;
    safe->fd = fd;
    make_mark(safe);
    FILE *stream = fopencookie(safe, "w", (cookie_io_functions_t){ .write = stream_write });
    if (!stream) {
        free(safe);
        return NULL;
    }
    setvbuf(stream, NULL, buffering, 4096);
    *out = safe;
    return stream;
}
