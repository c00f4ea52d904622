/* safe_text.c - see safe_text.h. */
#include <stdio.h>
#include <string.h>

#include "base/safe_text.h"

static uint32_t code_of(const unsigned char *bytes, size_t length)
{
    uint32_t code = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (bytes[i] & 0x3fu);
    return code;
}

/* Controls, and what changes the direction of writing, hides, or begins a line. Joiners (U+200C,
 * U+200D) stay: words and emoji need them. */
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
    size_t from = 0; /* what is safe is copied in one go */
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

size_t uni__sgr_sequence(const char *text, size_t length)
{
    if (length < 3 || text[0] != '\033' || text[1] != '[')
        return 0;
    size_t at = 2;
    while (at < length && at < 40 && ((text[at] >= '0' && text[at] <= '9') || text[at] == ';'))
        at++;
    return at < length && text[at] == 'm' ? at + 1 : 0;
}
