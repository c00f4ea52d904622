/*
 * text.h - a growing byte buffer, and numbers as the shortest text that reads back to the same
 * bits.
 *
 * Used by every writer of JSON, CSV, msgpack and tables. A failed allocation sets `failed` and
 * later appends do nothing, so that callers check once at the end. Any thread; one at a time per
 * buffer.
 */
#ifndef UNISONO_BASE_TEXT_H
#define UNISONO_BASE_TEXT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#include "base/compiler.h"

typedef struct uni__text {
    char *data; /* zero-terminated whenever not NULL */
    size_t size, capacity;
    bool failed;
} uni__text;

UNI__SHARED void uni__text_free(uni__text *text);
UNI__SHARED void uni__text_clear(uni__text *text); /* keeps the memory */
/* Makes room for `extra` more bytes; returns where to write (size is unchanged), or NULL. */
UNI__SHARED char *uni__text_reserve(uni__text *text, size_t extra);
UNI__SHARED void uni__text_add(uni__text *text, const void *data, size_t size);
/* Adds one character; inline, because JSON is full of commas and brackets. */
static inline void uni__text_add_char(uni__text *text, char c)
{
    if (text->failed || text->capacity - text->size < 2) {
        uni__text_add(text, &c, 1);
        return;
    }
    assert(text->data != NULL); /* capacity is above size */
    text->data[text->size++] = c;
    text->data[text->size] = 0;
}
UNI__SHARED void uni__text_add_string(uni__text *text, const char *string);
UNI__SHARED void uni__text_add_format(uni__text *text, const char *format, ...) UNI_PRINTF(2, 3);
UNI__SHARED void uni__text_add_int(uni__text *text, int64_t value);
/* Shortest round-trip form; always contains '.', 'e' or is "NaN", "Infinity", "-Infinity". */
UNI__SHARED void uni__text_add_double(uni__text *text, double value);
/* A JSON string with its quotes; invalid UTF-8 bytes become U+FFFD. */
UNI__SHARED void uni__text_add_json_string(uni__text *text, const char *string, size_t length);

/* true when the bytes are ASCII and need no escape in a JSON string (so they are valid UTF-8,
 * too). */
bool uni__json_is_plain(const char *string, size_t length);
/* Bytes of the UTF-8 character at the beginning (1 to 4); 0 when it is invalid: truncated,
 * overlong, a surrogate. */
size_t uni__utf8_sequence(const char *string, size_t length);
bool uni__utf8_valid(const char *string, size_t length);

/* strtod and strtof with the decimal point of the C locale, whatever locale the process has set. */
double uni__read_double(const char *text, char **end);
UNI__SHARED float uni__read_float(const char *text, char **end);
/* Parses "0,2,5-7" (and a newline): sets member[i] for every number named. false when the text is
 * malformed or names a number that is not below count. */
UNI__SHARED bool uni__read_ranges(const char *text, bool *member, int count);
/* For "did you mean": insertions, deletions, replacements and swaps of neighbors. Compares at most
 * 63 bytes. */
size_t uni__edit_distance(const char *a, const char *b);
/* Reduces a line of a program's output to what a terminal would finally show: removes text that a
 * carriage return or backspaces went over. Progress bars of Keras and tqdm redraw one line hundreds
 * of times. In place, with or without line feed; returns the new size. */
size_t uni__settle_line(char *line, size_t size);
/* Only the number: at most UNI__NUMBER_SIZE bytes, not zero-terminated; returns the length. */
#define UNI__NUMBER_SIZE 32
UNI__SHARED size_t uni__format_double(char *out, double value);
size_t uni__format_int(char *out, int64_t value);

#endif
