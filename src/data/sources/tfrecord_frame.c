/*
 * tfrecord_frame.c - TFRecord frames and Examples (tfrecord_frame.h). Checks every length against
 * the bytes that are left. Values are counted and checked once, so that reading them afterwards
 * cannot fail.
 */
#include "data/sources/tfrecord_frame.h"

#include <string.h>

#include "base/crc32c.h"

/* Little-endian, like all supported platforms. */
static uint64_t u64_at(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint32_t u32_at(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

int64_t uni__tfrecord_length(const uint8_t *header)
{
    uint64_t length = u64_at(header);
    if (length > UNI__TFRECORD_MAX || uni__crc32c_masked(header, 8) != u32_at(header + 8))
        return -1;
    return (int64_t)length;
}

bool uni__tfrecord_data_good(const uint8_t *data, int64_t length)
{
    return uni__crc32c_masked(data, (size_t)length) == u32_at(data + length);
}

int64_t uni__tfrecord_find(const uint8_t *bytes, int64_t from, int64_t size)
{
    for (int64_t at = from; at + UNI__TFRECORD_HEADER <= size; at++) {
        /* Lengths of more than 2 GiB are invalid: a cheap test that rejects most positions. */
        if (bytes[at + 4] != 0 || bytes[at + 5] != 0 || bytes[at + 6] != 0 || bytes[at + 7] != 0)
            continue;
        int64_t length = uni__tfrecord_length(bytes + at);
        if (length < 0)
            continue;
        int64_t next = at + length + UNI__TFRECORD_FRAME;
        if (next <= size && !uni__tfrecord_data_good(bytes + at + UNI__TFRECORD_HEADER, length))
            continue;
        if (next + UNI__TFRECORD_HEADER <= size && uni__tfrecord_length(bytes + next) < 0)
            continue;
        return at;
    }
    return -1;
}

/* ---- protobuf ---- */

struct span {
    const uint8_t *at, *end;
};

static inline bool read_varint(struct span *span, uint64_t *out)
{
    uint64_t value = 0;
    if (span->at < span->end && *span->at < 0x80) { /* the common case */
        *out = *span->at++;
        return true;
    }
    for (int shift = 0; shift < 70 && span->at < span->end; shift += 7) {
        uint8_t byte = *span->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *out = value;
            return true;
        }
    }
    return false;
}

struct field {
    uint64_t number;
    int wire;
    struct span inside; /* the contents, without the length of wire type 2 */
};

/* false at the end of the message, and with *corrupt set also when the field is malformed. */
static inline bool next_field(struct span *span, struct field *field, bool *corrupt)
{
    uint64_t tag, size = 0;
    if (span->at >= span->end)
        return false;
    *corrupt = true;
    if (!read_varint(span, &tag))
        return false;
    *field = (struct field){ tag >> 3, (int)(tag & 7), { span->at, span->at } };
    switch (field->wire) {
    case 0:
        if (!read_varint(span, &size))
            return false;
        break;
    case 1:
    case 5:
        size = field->wire == 1 ? 8 : 4;
        if ((uint64_t)(span->end - span->at) < size)
            return false;
        span->at += size;
        break;
    case 2:
        if (!read_varint(span, &size) || (uint64_t)(span->end - span->at) < size)
            return false;
        field->inside.at = span->at;
        span->at += size;
        break;
    default:
        return false;
    }
    field->inside.end = span->at;
    *corrupt = field->number == 0;
    return !*corrupt;
}

/* Returns -1 if the data is corrupt. */
static int64_t count_varints(struct span span)
{
    int64_t count = 0;
    uint64_t value;
    for (const uint8_t *at = span.at; at < span.end; at++)
        count += *at < 0x80;
    if (count == span.end - span.at) /* one byte each: no need to look closer */
        return count;
    for (count = 0; span.at < span.end; count++)
        if (!read_varint(&span, &value))
            return -1;
    return count;
}

/* Counts the values of a list message; -1 if the data is corrupt. */
static int64_t count_values(uni__feature_kind kind, struct span list)
{
    int64_t count = 0;
    struct field field;
    bool corrupt = false;
    while (next_field(&list, &field, &corrupt)) {
        struct span inside = field.inside;
        if (field.number != 1)
            continue;
        if (kind == UNI__FEATURE_BYTES) {
            if (field.wire != 2)
                return -1;
            count++;
        } else if (field.wire == (kind == UNI__FEATURE_FLOAT ? 5 : 0)) {
            count++;
        } else if (field.wire != 2) {
            return -1;
        } else if (kind == UNI__FEATURE_FLOAT) {
            if ((inside.end - inside.at) % 4 != 0)
                return -1;
            count += (inside.end - inside.at) / 4;
        } else {
            int64_t values = count_varints(inside);
            if (values < 0)
                return -1;
            count += values;
        }
    }
    return corrupt ? -1 : count;
}

/* A Feature message: the last list wins, as protobuf defines for a oneof. */
static bool read_feature(struct span span, uni__feature *feature)
{
    struct field field;
    bool corrupt = false;
    while (next_field(&span, &field, &corrupt)) {
        if (field.number > 3 || field.wire != 2)
            continue;
        feature->kind = (uni__feature_kind)field.number;
        feature->list = field.inside.at;
        feature->list_size = (size_t)(field.inside.end - field.inside.at);
        feature->count = count_values(feature->kind, field.inside);
        if (feature->count < 0)
            return false;
    }
    return !corrupt;
}

static bool read_entry(struct span span, uni__feature *feature)
{
    struct field field;
    bool corrupt = false;
    *feature = (uni__feature){ .name = "" };
    while (next_field(&span, &field, &corrupt)) {
        if (field.number == 1 && field.wire == 2) {
            feature->name = (const char *)field.inside.at;
            feature->name_size = (size_t)(field.inside.end - field.inside.at);
        } else if (field.number == 2 && field.wire == 2 && !read_feature(field.inside, feature)) {
            return false;
        }
    }
    return !corrupt;
}

int uni__example_next(uni__example *example, uni__feature *feature)
{
    struct field field;
    bool corrupt = false;
    for (;;) {
        struct span map = { example->map_at, example->map_end };
        while (next_field(&map, &field, &corrupt)) {
            example->map_at = map.at;
            if (field.number == 1 && field.wire == 2)
                return read_entry(field.inside, feature) ? 1 : -1;
        }
        struct span rest = { example->at, example->end };
        if (corrupt || !next_field(&rest, &field, &corrupt))
            return corrupt ? -1 : 0;
        example->at = rest.at;
        if (field.number == 1 && field.wire == 2) {
            example->map_at = field.inside.at;
            example->map_end = field.inside.end;
        }
    }
}

/* The next value, or packed values, of a feature's list, which was checked before. */
static bool next_values(struct span *list, struct span *values)
{
    struct field field;
    bool corrupt = false;
    do {
        if (!next_field(list, &field, &corrupt))
            return false;
    } while (field.number != 1);
    *values = field.inside;
    return true;
}

void uni__feature_floats(const uni__feature *feature, float *out)
{
    struct span list = { feature->list, feature->list + feature->list_size }, values;
    while (next_values(&list, &values)) {
        size_t size = (size_t)(values.end - values.at);
        memcpy(out, values.at, size); /* little-endian, like all supported platforms */
        out += size / 4;
    }
}

void uni__feature_ints(const uni__feature *feature, int64_t *out)
{
    struct span list = { feature->list, feature->list + feature->list_size }, values;
    uint64_t value;
    while (next_values(&list, &values))
        while (values.at < values.end && read_varint(&values, &value))
            *out++ = (int64_t)value;
}

const uint8_t *uni__feature_bytes(const uni__feature *feature, size_t *size)
{
    struct span list = { feature->list, feature->list + feature->list_size }, values;
    *size = 0;
    if (!next_values(&list, &values))
        return (const uint8_t *)"";
    *size = (size_t)(values.end - values.at);
    return values.at;
}
