/*
 * msgpack.h - MessagePack without trees: a writer into a fixed or growing buffer, and a cursor that
 * reads.
 *
 * The hot path of reports writes straight into shared memory and reads straight into JSON text,
 * without allocating. The cursor trusts nothing: every length is checked against the bytes left,
 * and callers that recurse count the depth (UNI_VALUE_MAX_DEPTH). Any thread.
 */
#ifndef UNISONO_BASE_MSGPACK_H
#define UNISONO_BASE_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/value.h>
#include "base/text.h"

/* Writer: with `fixed` the buffer never grows, and data that does not fit sets overflow. size keeps
 * counting, so that the caller learns how much room is needed. */
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
/* Adds raw bytes, for the frame around the msgpack. */
void uni__pack_raw(uni__packer *packer, const void *data, size_t size);
/* A whole tree. Rejects arrays (UNI_EUNSUPPORTED), and limits the depth (UNI_ELIMIT). */
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
    /* Bytes of the string, or the number of items or pairs that follow. */
    size_t size;
} uni__token;

/* Reads one token; a container gives its count and the items follow. UNI_EFORMAT for bytes that are
 * not msgpack (including ext types and unsigned numbers above INT64_MAX) or lengths beyond the
 * end. */
int uni__cursor_next(uni__cursor *cursor, uni__token *token, uni_error *err) UNI_MUST_USE;
int uni__cursor_read_value(uni__cursor *cursor, uni_value **out, uni_error *err) UNI_MUST_USE;
/* Appends one value as JSON text. Non-finite numbers become null; `nonfinite`, if not NULL, gets
 * "path":"NaN" members, comma-separated, with dotted paths from this value on (uni_value_path finds
 * them). Duplicate keys are not detected: a packed dictionary has none. On failure both texts may
 * contain a part. */
int uni__cursor_to_json(uni__cursor *cursor, uni__text *out, uni__text *nonfinite,
                        uni_error *err) UNI_MUST_USE;

#endif
