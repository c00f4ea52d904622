/*
 * tfrecord_frame.h - the frames of a TFRecord file, and the features of a tf.train.Example. Pure:
 * bytes in, views of them out. Any thread.
 *
 * A record, little-endian: u64 length, u32 masked CRC-32C of these 8 bytes, the data, u32 masked
 * CRC-32C of the data. Because the length has its own checksum, records can be found from any byte
 * of a file (uni__tfrecord_find).
 *
 * An Example in protobuf, with unknown fields skipped:
 *
 *   { 1: Features { repeated 1: map entry { 1: name, 2: Feature {
 *       1: BytesList { repeated 1: bytes }
 *     | 2: FloatList { repeated 1: float, packed or not }
 *     | 3: Int64List { repeated 1: varint, packed or not } } } } }
 */
#ifndef UNISONO_DATA_TFRECORD_FRAME_H
#define UNISONO_DATA_TFRECORD_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNI__TFRECORD_HEADER 12 /* length and its checksum */
#define UNI__TFRECORD_FRAME 16 /* and the checksum of the data */
#define UNI__TFRECORD_MAX ((uint64_t)1 << 31) /* longer records count as corrupt */

/* The length in the 12 bytes at `header`, or -1 if the checksum does not match. */
int64_t uni__tfrecord_length(const uint8_t *header);
/* True if the data matches the checksum in the 4 bytes after it. */
bool uni__tfrecord_data_good(const uint8_t *data, int64_t length);
/* The first position in bytes[from, size) where a valid record begins: its header and, as far as
 * they are present, its data and the following header are good. -1: none. */
int64_t uni__tfrecord_find(const uint8_t *bytes, int64_t from, int64_t size);

typedef enum uni__feature_kind {
    UNI__FEATURE_NONE = 0, /* a feature without any list */
    UNI__FEATURE_BYTES,
    UNI__FEATURE_FLOAT,
    UNI__FEATURE_INT
} uni__feature_kind;

typedef struct uni__feature {
    const char *name;
    size_t name_size;
    uni__feature_kind kind;
    const uint8_t *list; /* the list message */
    size_t list_size;
    int64_t count; /* number of values */
} uni__feature;

typedef struct uni__example {
    const uint8_t *at, *end; /* the rest of the Example */
    const uint8_t *map_at, *map_end; /* the rest of a Features message in it */
} uni__example;

/* Iterates over the features of an Example: 1 and *feature, 0 at the end, -1 if the bytes are not
 * an Example. */
int uni__example_next(uni__example *example, uni__feature *feature);
static inline uni__example uni__example_of(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    return (uni__example){ .at = at, .end = at + size };
}
/* Copies the values of a feature; out has room for feature->count. */
void uni__feature_floats(const uni__feature *feature, float *out);
void uni__feature_ints(const uni__feature *feature, int64_t *out);
/* The first value of a BYTES feature. */
const uint8_t *uni__feature_bytes(const uni__feature *feature, size_t *size);

#endif
