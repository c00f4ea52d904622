/*
 * dict.h - a dictionary with arrays as bytes: the snapshot that a worker copies into shared memory,
 * and the two files of a dictionary checkpoint.
 *
 * Encoded form (one buffer, little-endian): 8 bytes "UNIDICT1", u64 tree_size, u64 arrays_offset
 * (64-aligned), u64 arrays_size, the tree (msgpack; an array is a map {"__array__": 1, "dtype": n,
 * "shape": [...], "offset": o, "bytes": b}), padding, and the raw arrays. Each array is 64-aligned;
 * those of 1 MiB and more are at a multiple of 4096. On disk dict.msgpack is the header and the
 * tree, arrays.bin the arrays (no file when there are none). A user's own dictionary with the key
 * "__array__" is escaped as {"__array__": 0, "value": {...}}. Any thread.
 */
#ifndef UNISONO_CHECKPOINT_DICT_H
#define UNISONO_CHECKPOINT_DICT_H

#include <stddef.h>
#include <unisono/value.h>

#include "base/compiler.h"

/* Exact size of the encoded form. UNI_EINVAL when the value is not a dictionary, UNI_ELIMIT when it
 * is too deep. */
UNI__SHARED int uni__dict_encoded_size(const uni_value *dict, size_t *size,
                                       uni_error *err) UNI_MUST_USE;
/* Encodes into out[0..size); this is the only copy of the arrays' bytes. UNI_ELIMIT when size is
 * too small. */
UNI__SHARED int uni__dict_encode(const uni_value *dict, void *out, size_t size,
                                 uni_error *err) UNI_MUST_USE;
/* Decodes one buffer and copies the arrays. Trusts nothing: invalid bytes are UNI_EFORMAT. */
UNI__SHARED int uni__dict_decode(uni_value **out, const void *encoded, size_t size,
                                 uni_error *err) UNI_MUST_USE;
/* The same without the copy: the arrays are views into `encoded`, which must outlive the value
 * (and its copies). */
int uni__dict_view(uni_value **out, const void *encoded, size_t size, uni_error *err) UNI_MUST_USE;
/* Reads the two files of a complete checkpoint directory (suffix "" or ".rank_N"), and compares
 * them with the manifest's checksums while reading (UNI_ECORRUPT). Arrays are mapped copy-on-write.
 * UNI_ENOTFOUND when there is no such part. */
int uni__dict_read(uni_value **out, const char *dir, const char *suffix,
                   uni_error *err) UNI_MUST_USE;

/* The parts of the encoded form; pointers into it. Checks only the header. */
typedef struct uni__dict_parts {
    const void *head; /* header and tree: dict.msgpack */
    size_t head_size;
    const void *arrays; /* arrays.bin */
    size_t arrays_size;
} uni__dict_parts;
int uni__dict_split(uni__dict_parts *parts, const void *encoded, size_t size,
                    uni_error *err) UNI_MUST_USE;

#endif
