/*
 * safetensors.h - the safetensors format, for src/nn only: 8 bytes little-endian length, a JSON
 * header {"name": {"dtype", "shape", "data_offsets"}, ..., "__metadata__": {text: text}}, then the
 * arrays, dense, row-major, little-endian, one after the other without gaps.
 *
 * The header is checked whole when a file is opened (sizes, ranges, no overlap), arrays are read
 * one at a time. One thread at a time.
 */
#ifndef UNISONO_NN_SAFETENSORS_H
#define UNISONO_NN_SAFETENSORS_H

#include <stdio.h>
#include <unisono/array.h>
#include <unisono/value.h>

typedef struct uni__safetensors uni__safetensors;

typedef struct uni__safetensors_entry {
    const char *name;
    uni_dtype dtype;
    int ndim;
    int64_t shape[UNI_MAX_DIMS];
    size_t begin, size; /* bytes, from the first array on */
} uni__safetensors_entry;

int uni__safetensors_open(uni__safetensors **out, const char *path, uni_error *err) UNI_MUST_USE;
void uni__safetensors_close(uni__safetensors *file);
size_t uni__safetensors_count(const uni__safetensors *file);
const uni__safetensors_entry *uni__safetensors_at(const uni__safetensors *file, size_t index);
const uni__safetensors_entry *uni__safetensors_find(const uni__safetensors *file,
                                                    const char *name); /* NULL: none */
/* The bytes of one array into memory of entry->size. */
int uni__safetensors_read(const uni__safetensors *file, const uni__safetensors_entry *entry,
                          void *into, uni_error *err) UNI_MUST_USE;

/* Entries need name, dtype and shape; data[i] are their arrays. Written beside and renamed.
 * metadata (texts) may be NULL. */
int uni__safetensors_write(const char *path, size_t count, const uni__safetensors_entry *entries,
                           const void *const *data, const uni_value *metadata,
                           uni_error *err) UNI_MUST_USE;

#endif
