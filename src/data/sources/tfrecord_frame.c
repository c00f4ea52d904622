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

/* Reads one field: its number and wire type; for wire type 2 (length) also its contents. Skips
 * others; *inside is what was skipped. */
static inline bool read_field(struct span *span, uint64_t *number, int *wire, struct span *inside)
{
    uint64_t tag, size;
    if (!read_varint(span, &tag))
        return false;
    *number = tag >> 3;
    *wire = (int)(tag & 7);
    inside->at = span->at;
    switch (*wire) {
    case 0:
        if (!read_varint(span, &size))
            return false;
        break;
    case 1:
    case 5:
        size = *wire == 1 ? 8 : 4;
        if ((uint64_t)(span->end - span->at) < size)
            return false;
        span->at += size;
        break;
    case 2:
        if (!read_varint(span, &size) || (uint64_t)(span->end - span->at) < size)
            return false;
        inside->at = span->at;
        span->at += size;
        break;
    default:
        return false;
    }
    inside->end = span->at;
    return *number > 0;
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
    uint64_t number;
    int wire;
    struct span inside;
    while (list.at < list.end) {
        if (!read_field(&list, &number, &wire, &inside))
            return -1;
        if (number != 1)
            continue;
        if (kind == UNI__FEATURE_BYTES) {
            if (wire != 2)
                return -1;
            count++;
        } else if (wire == (kind == UNI__FEATURE_FLOAT ? 5 : 0)) {
            count++;
        } else if (wire != 2) {
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
    return count;
}

/* A Feature message: the last list wins, as protobuf defines for a oneof. */
static bool read_feature(struct span span, uni__feature *feature)
{
    uint64_t number;
    int wire;
    struct span inside;
    while (span.at < span.end) {
        if (!read_field(&span, &number, &wire, &inside))
            return false;
        if (number > 3 || wire != 2)
            continue;
        feature->kind = (uni__feature_kind)number;
        feature->list = inside.at;
        feature->list_size = (size_t)(inside.end - inside.at);
        feature->count = count_values(feature->kind, inside);
        if (feature->count < 0)
            return false;
    }
    return true;
}

static bool read_entry(struct span span, uni__feature *feature)
{
    uint64_t number;
    int wire;
    struct span inside;
    *feature = (uni__feature){ .name = "" };
    while (span.at < span.end) {
        if (!read_field(&span, &number, &wire, &inside))
            return false;
        if (number == 1 && wire == 2) {
            feature->name = (const char *)inside.at;
            feature->name_size = (size_t)(inside.end - inside.at);
        } else if (number == 2 && wire == 2 && !read_feature(inside, feature)) {
            return false;
        }
    }
    return true;
}

int uni__example_next(uni__example *example, uni__feature *feature)
{
    uint64_t number;
    int wire;
    struct span inside;
    for (;;) {
        struct span map = { example->map_at, example->map_end };
        while (map.at < map.end) {
            if (!read_field(&map, &number, &wire, &inside))
                return -1;
            example->map_at = map.at;
            if (number == 1 && wire == 2)
                return read_entry(inside, feature) ? 1 : -1;
        }
        struct span rest = { example->at, example->end };
        if (rest.at >= rest.end)
            return 0;
        if (!read_field(&rest, &number, &wire, &inside))
            return -1;
        example->at = rest.at;
        if (number == 1 && wire == 2) {
            example->map_at = inside.at;
            example->map_end = inside.end;
        }
    }
}

void uni__feature_floats(const uni__feature *feature, float *out)
{
    struct span list = { feature->list, feature->list + feature->list_size }, inside;
    uint64_t number;
    int wire;
    while (list.at < list.end && read_field(&list, &number, &wire, &inside)) {
        size_t size = (size_t)(inside.end - inside.at);
        if (number != 1)
            continue;
        memcpy(out, inside.at, size); /* little-endian, like all supported platforms */
        out += size / 4;
    }
}

void uni__feature_ints(const uni__feature *feature, int64_t *out)
{
    struct span list = { feature->list, feature->list + feature->list_size }, inside;
    uint64_t number, value;
    int wire;
    while (list.at < list.end && read_field(&list, &number, &wire, &inside)) {
        if (number != 1)
            continue;
        while (inside.at < inside.end && read_varint(&inside, &value))
            *out++ = (int64_t)value;
    }
}

const uint8_t *uni__feature_bytes(const uni__feature *feature, size_t *size)
{
    struct span list = { feature->list, feature->list + feature->list_size }, inside;
    uint64_t number;
    int wire;
    while (list.at < list.end && read_field(&list, &number, &wire, &inside))
        if (number == 1) {
            *size = (size_t)(inside.end - inside.at);
            return inside.at;
        }
    *size = 0;
    return (const uint8_t *)"";
}
