/*
 * dict.h - a dictionary with arrays as bytes: the snapshot that a worker copies into shared memory, and the two
 * files of a dictionary checkpoint.
 *
 * Encoded form (one buffer, little-endian): 8 bytes "UNIDICT1", u64 tree_size, u64 arrays_offset (64-aligned),
 * u64 arrays_size, the tree (msgpack; an array is a map {"__array__": 1, "dtype": n, "shape": [...], "offset": o,
 * "bytes": b}), padding, the raw arrays each 64-aligned. On disk dict.msgpack is the header and the tree, arrays.bin
 * the arrays. A user's own dictionary with the key "__array__" is escaped as {"__array__": 0, "value": {...}}.
 * Any thread.
 */
#ifndef UNISONO_CHECKPOINT_DICT_H
#define UNISONO_CHECKPOINT_DICT_H

#include <stddef.h>
#include <unisono/value.h>

/* Exact size of the encoded form. */
int uni__dict_encoded_size(const uni_value *dict, size_t *size, uni_error *err) UNI_MUST_USE;
/* Writes it into out[0..size): the only copy of the arrays' bytes. */
int uni__dict_encode(const uni_value *dict, void *out, size_t size, uni_error *err) UNI_MUST_USE;
/* From one buffer; copies the arrays out. */
int uni__dict_decode(uni_value **out, const void *encoded, size_t size, uni_error *err) UNI_MUST_USE;
/* From the two files of a checkpoint directory (suffix "" or ".rank_N"). Arrays are mapped copy-on-write. */
int uni__dict_read(uni_value **out, const char *dir, const char *suffix, uni_error *err) UNI_MUST_USE;

#endif
