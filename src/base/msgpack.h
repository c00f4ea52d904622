/*
 * msgpack.h - MessagePack without trees: a writer into a fixed or growing buffer and a cursor that
 * reads.
 *
 * The hot path of reports writes straight into shared memory and reads straight into JSON text,
 * with no allocation. The cursor trusts nothing: every length is checked against the bytes left,
 * depth is counted by the callers that recurse (UNI_VALUE_MAX_DEPTH). Any thread.
 */
#ifndef UNISONO_BASE_MSGPACK_H
#define UNISONO_BASE_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/value.h>
#include "base/text.h"

/* Writer: with `fixed` the buffer never grows, and what does not fit sets overflow (size still
 * counts on, so that the caller learns how much room is needed). */
typedef struct uni__packer {
    uint8_t *data;
    size_t size, capacity;
    bool fixed, overflow;
} uni__packer;

void uni__pack_null(uni__packer *packer);
void uni__pack_bool(uni__packer *packer, bool value);
void uni__pack_int(uni__packer *packer, int64_t value);
void uni__pack_double(uni__packer *packer, double value);
void uni__pack_string(uni__packer *packer, const char *text, size_t length);
void uni__pack_bytes(uni__packer *packer, const void *data, size_t size);
void uni__pack_list(uni__packer *packer, size_t count);
void uni__pack_map(uni__packer *packer, size_t count);
/* Bytes as they are, for what surrounds the msgpack in a frame. */
void uni__pack_raw(uni__packer *packer, const void *data, size_t size);
/* A whole tree. Arrays are refused (UNI_EUNSUPPORTED), depth limited (UNI_ELIMIT). */
int uni__pack_value(uni__packer *packer, const uni_value *value, uni_error *err) UNI_MUST_USE;
void uni__packer_free(uni__packer *packer);

typedef struct uni__cursor {
    const uint8_t *at, *end;
} uni__cursor;

typedef struct uni__token {
    uni_value_type type; /* NULL, BOOL, INT, FLOAT, STRING, BYTES, LIST, DICT */
    int64_t integer; /* bool and int */
    double real; /* float */
    const char *data; /* string and bytes, inside the message */
    size_t size; /* bytes of the string, or count of items / pairs that follow */
} uni__token;

/* One token; containers give their count and the items follow. UNI_EFORMAT for bytes that are not
 * msgpack (ext types and unsigned numbers above INT64_MAX included) or lengths beyond the end. */
int uni__cursor_next(uni__cursor *cursor, uni__token *token, uni_error *err) UNI_MUST_USE;
/* Steps over one whole value. */
int uni__cursor_skip(uni__cursor *cursor, uni_error *err) UNI_MUST_USE;
int uni__cursor_read_value(uni__cursor *cursor, uni_value **out, uni_error *err) UNI_MUST_USE;
/* Appends one value as JSON text. Non-finite numbers become null; `nonfinite`, when not NULL, gets
 * "path":"NaN" members, comma-separated, with dotted paths from this value on (uni_value_path finds
 * them). Keys that are there twice are not looked for: whoever packed a dictionary has none. On
 * failure both texts may have a part of it. */
int uni__cursor_to_json(uni__cursor *cursor, uni__text *out, uni__text *nonfinite,
                        uni_error *err) UNI_MUST_USE;

#endif
