/* safe_text.c - see safe_text.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safe_text.h"

static uint32_t code_of(const unsigned char *bytes, size_t length)
{
    uint32_t code = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (bytes[i] & 0x3fu);
    return code;
}

/* Controls, and characters that change the writing direction, hide text, or begin a line. Joiners
 * (U+200C, U+200D) stay: words and emoji need them. */
static bool is_unsafe(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } unsafe[] = {
        { 0x00, 0x1f },     { 0x7f, 0x9f },     { 0x061c, 0x061c },   { 0x180e, 0x180e },
        { 0x200b, 0x200b }, { 0x200e, 0x200f }, { 0x2028, 0x202e },   { 0x2060, 0x206f },
        { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f },
    };
    for (size_t i = 0; i < sizeof unsafe / sizeof unsafe[0]; i++)
        if (code >= unsafe[i].first && code <= unsafe[i].last)
            return true;
    return false;
}

static void write_escape(uint32_t code, char escape[UNI__ESCAPE_SIZE])
{
    const char *short_form = code == '\n'   ? "\\n"
                             : code == '\t' ? "\\t"
                             : code == '\r' ? "\\r"
                                            : "";
    if (short_form[0])
        snprintf(escape, UNI__ESCAPE_SIZE, "%s", short_form);
    else if (code < 0x10000)
        snprintf(escape, UNI__ESCAPE_SIZE, "\\u%04x", (unsigned)code);
    else
        snprintf(escape, UNI__ESCAPE_SIZE, "\\u%04x\\u%04x",
                 (unsigned)(0xd800 + ((code - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((code - 0x10000) & 0x3ff)));
}

size_t uni__safe_step(const char *text, size_t length, const char *keep,
                      char escape[UNI__ESCAPE_SIZE])
{
    escape[0] = 0;
    unsigned char first = (unsigned char)text[0];
    if (first >= 0x20 && first < 0x7f)
        return 1;
    size_t bytes = uni__utf8_sequence(text, length);
    if (bytes == 0) {
        snprintf(escape, UNI__ESCAPE_SIZE, "\\x%02x", first);
        return 1;
    }
    uint32_t code = code_of((const unsigned char *)text, bytes);
    if (is_unsafe(code) && !(code > 0 && code < 0x20 && strchr(keep, (int)code)))
        write_escape(code, escape);
    return bytes;
}

void uni__text_add_safe(uni__text *out, const char *text, size_t length, const char *keep)
{
    char escape[UNI__ESCAPE_SIZE];
    size_t from = 0; /* safe runs are copied at once */
    for (size_t at = 0; at < length;) {
        size_t bytes = uni__safe_step(text + at, length - at, keep, escape);
        if (escape[0]) {
            uni__text_add(out, text + from, at - from);
            uni__text_add_string(out, escape);
            from = at + bytes;
        }
        at += bytes;
    }
    uni__text_add(out, text + from, length - from);
}

/* Reset, bold, underline, their ends, and colors that are visible on black and on white. Everything
 * else can hide text: conceal, blink, dim, black on black. */
static bool shows_text(long code)
{
    return code == 0 || code == 1 || code == 4 || code == 22 || code == 24 || code == 39 ||
           (code >= 31 && code <= 36) || (code >= 91 && code <= 96);
}

/* The codes after 38, 48 or 58 belong to it: 5;N or 2;R;G;B. */
static const char *skip_colour(const char *at, const char *end)
{
    char *next = NULL;
    long kind = at < end && *at == ';' ? strtol(at + 1, &next, 10) : 0;
    int values = kind == 5 ? 1 : kind == 2 ? 3 : 0;
    if (!values)
        return at;
    at = next;
    for (; values > 0 && at < end && *at == ';'; values--)
        for (at++; at < end && *at != ';';)
            at++;
    return at;
}

static void keep_showing(const char *at, const char *end, char out[UNI__SGR_SIZE])
{
    size_t used = 0;
    out[0] = 0;
    for (;; at++) {
        char *next = NULL;
        long code = strtol(at, &next, 10);
        /* An empty code is 0; strtol would not move. */
        at = next && next <= end ? next : end;
        if (shows_text(code))
            used +=
                (size_t)snprintf(out + used, UNI__SGR_SIZE - used, "%s%ld", used ? ";" : "[", code);
        if (code == 38 || code == 48 || code == 58)
            at = skip_colour(at, end);
        if (at >= end)
            break;
    }
    if (used)
        snprintf(out + used, UNI__SGR_SIZE - used, "m");
}

size_t uni__sgr_sequence(const char *text, size_t length, char out[UNI__SGR_SIZE])
{
    out[0] = 0;
    if (length < 3 || text[0] != '\033' || text[1] != '[')
        return 0;
    size_t at = 2;
    while (at < length && at < 40 && ((text[at] >= '0' && text[at] <= '9') || text[at] == ';'))
        at++;
    if (at == length || text[at] != 'm')
        return 0;
    keep_showing(text + 2, text + at, out);
    return at + 1;
}
