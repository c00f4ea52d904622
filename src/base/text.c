/*
 * text.c - the growing buffer behind every writer, and JSON strings.
 *
 * The buffer doubles, and is zero-terminated after every append. A failed allocation (or a size
 * that overflows) marks the buffer as `failed`: later appends do nothing, and the caller checks
 * once at the end. JSON strings are copied in runs: a table tells which bytes need no escape.
 * Numbers are in number.c.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

#define FIRST_CAPACITY 128

void uni__text_free(uni__text *text)
{
    free(text->data);
    *text = (uni__text){ 0 };
}

void uni__text_clear(uni__text *text)
{
    text->size = 0;
    text->failed = false;
    if (text->data)
        text->data[0] = 0;
}

static bool grow(uni__text *text, size_t extra)
{
    size_t needed, capacity = text->capacity ? text->capacity : FIRST_CAPACITY;
    if (text->failed || __builtin_add_overflow(text->size, extra, &needed) ||
        needed > SIZE_MAX / 2 - 1) {
        text->failed = true;
        return false;
    }
    while (capacity <= needed) /* one byte for the zero */
        capacity *= 2;
    char *data = realloc(text->data, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    text->data[text->size] = 0;
    return true;
}

char *uni__text_reserve(uni__text *text, size_t extra)
{
    if ((text->failed || text->capacity - text->size <= extra) && !grow(text, extra))
        return NULL;
    return text->data + text->size;
}

static void advance(uni__text *text, size_t size)
{
    text->size += size;
    text->data[text->size] = 0;
}

void uni__text_add(uni__text *text, const void *data, size_t size)
{
    char *at = uni__text_reserve(text, size);
    if (!at)
        return;
    if (size > 0) /* data may be NULL then */
        memcpy(at, data, size);
    advance(text, size);
}

void uni__text_add_string(uni__text *text, const char *string)
{
    uni__text_add(text, string, strlen(string));
}

void uni__text_add_format(uni__text *text, const char *format, ...)
{
    char *at = uni__text_reserve(text, 127);
    if (!at)
        return;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(at, text->capacity - text->size, format, arguments);
    if (length < 0)
        text->failed = true;
    else if ((size_t)length >= text->capacity - text->size) {
        at = uni__text_reserve(text, (size_t)length);
        if (at)
            vsnprintf(at, (size_t)length + 1, format, again);
    }
    if (text->failed) /* discard a partial write */
        text->data[text->size] = 0;
    else
        advance(text, (size_t)length);
    va_end(again);
    va_end(arguments);
}

void uni__text_add_int(uni__text *text, int64_t value)
{
    char *at = uni__text_reserve(text, UNI__NUMBER_SIZE);
    if (at)
        advance(text, uni__format_int(at, value));
}

void uni__text_add_double(uni__text *text, double value)
{
    char *at = uni__text_reserve(text, UNI__NUMBER_SIZE);
    if (at)
        advance(text, uni__format_double(at, value));
}

size_t uni__utf8_sequence(const char *string, size_t length)
{
    const unsigned char *s = (const unsigned char *)string;
    if (length == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    /* The range of the second byte excludes overlong forms, surrogates and code points above
     * U+10FFFF. */
    size_t need = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    unsigned char low = 0x80, high = 0xBF;
    if (s[0] < 0xC2 || s[0] > 0xF4 || length < need)
        return 0;
    if (s[0] == 0xE0)
        low = 0xA0;
    else if (s[0] == 0xED)
        high = 0x9F;
    else if (s[0] == 0xF0)
        low = 0x90;
    else if (s[0] == 0xF4)
        high = 0x8F;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    return need;
}

bool uni__utf8_valid(const char *string, size_t length)
{
    while (length > 0) {
        size_t step = uni__utf8_sequence(string, length);
        if (step == 0)
            return false;
        string += step;
        length -= step;
    }
    return true;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

static void add_escape(uni__text *text, unsigned char c)
{
    switch (c) {
    case '"':
        uni__text_add(text, "\\\"", 2);
        break;
    case '\\':
        uni__text_add(text, "\\\\", 2);
        break;
    case '\n':
        uni__text_add(text, "\\n", 2);
        break;
    case '\r':
        uni__text_add(text, "\\r", 2);
        break;
    case '\t':
        uni__text_add(text, "\\t", 2);
        break;
    default: {
        static const char hex[] = "0123456789abcdef";
        const char escape[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
        uni__text_add(text, escape, sizeof escape);
    }
    }
}

/* Tests eight bytes at once: the high bit of each byte of the result says that it is not plain. For
 * x < 0x80 in all bytes, (x - n) has the high bit where x < n, and x ^ c is 0, so below 1, where x
 * is c. Borrows only go upwards from a byte that is itself not plain, so they never change the
 * answer for the bytes before it. */
static bool word_is_plain(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t control = word - ones * 0x20;
    uint64_t quote = (word ^ ones * '"') - ones, backslash = (word ^ ones * '\\') - ones;
    return ((word | control | quote | backslash) & high) == 0;
}

bool uni__json_is_plain(const char *string, size_t length)
{
    size_t i = 0;
    for (; length - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, string + i, sizeof word);
        if (!word_is_plain(word))
            return false;
    }
    for (; i < length; i++)
        if (!is_plain((unsigned char)string[i]))
            return false;
    return true;
}

static void add_with_escapes(uni__text *text, const char *string, size_t length)
{
    size_t i = 0;
    while (i < length) {
        size_t begin = i;
        while (i < length && is_plain((unsigned char)string[i]))
            i++;
        uni__text_add(text, string + begin, i - begin);
        if (i == length)
            break;
        size_t step = uni__utf8_sequence(string + i, length - i);
        if (step == 1)
            add_escape(text, (unsigned char)string[i]);
        else if (step > 1)
            uni__text_add(text, string + i, step);
        else
            uni__text_add(text, "\xEF\xBF\xBD", 3);
        i += step ? step : 1;
    }
}

void uni__text_add_json_string(uni__text *text, const char *string, size_t length)
{
    if (length > SIZE_MAX / 2 || !uni__text_reserve(text, length + 2)) {
        text->failed = true;
        return;
    }
    uni__text_add_char(text, '"');
    if (uni__json_is_plain(string, length))
        uni__text_add(text, string, length);
    else
        add_with_escapes(text, string, length);
    uni__text_add_char(text, '"');
}

size_t uni__settle_line(char *line, size_t size)
{
    size_t end = size && line[size - 1] == '\n' ? size - 1 : size, feed = size - end, kept = 0;
    while (end && (line[end - 1] == '\r' || line[end - 1] == '\b')) /* nothing overwrites these */
        end--;
    const char *last = end ? memrchr(line, '\r', end) : NULL;
    for (size_t i = last ? (size_t)(last - line) + 1 : 0; i < end; i++) {
        if (line[i] != '\b')
            line[kept++] = line[i];
        else if (kept)
            kept--;
    }
    if (feed)
        line[kept++] = '\n';
    return kept;
}

/* Optimal string alignment. */
#define LONGEST_NAME 63

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t uni__edit_distance(const char *a, const char *b)
{
    size_t table[3][LONGEST_NAME + 1];
    size_t length_a = strnlen(a, LONGEST_NAME), length_b = strnlen(b, LONGEST_NAME);
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
