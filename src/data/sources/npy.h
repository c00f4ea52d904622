/*
 * npy.h - parses the headers of .npy files and the directory of .npz archives from memory (formats
 * of NumPy: numpy.lib.format and ZIP).
 */
#ifndef UNISONO_DATA_NPY_H
#define UNISONO_DATA_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/array.h>

typedef struct uni__npy {
    uni_dtype dtype;
    int ndim;
    int64_t shape[UNI_MAX_DIMS];
    int64_t data; /* offset of the first element from the header's first byte */
    size_t bytes; /* of all elements */
} uni__npy;

/* Longer headers are rejected. */
#define UNI__NPY_MAX_HEADER 65536

/* Parses `size` bytes from the beginning of the file; UNI__NPY_MAX_HEADER are always enough. `name`
 * is for messages. */
int uni__npy_parse(uni__npy *out, const uint8_t *head, size_t size, const char *name,
                   uni_error *err) UNI_MUST_USE;

typedef struct uni__npz_member {
    char name[128]; /* without ".npy" */
    int64_t header; /* offset of its local header */
    int64_t size; /* stored bytes */
} uni__npz_member;

/* Lists the members of an archive from its directory. `tail` is the end of the file, beginning at
 * offset tail_offset. Returns the number of members, at most `room`; UNI_EUNSUPPORTED if one is
 * compressed. If the tail does not reach the directory, returns 0 and sets *need to where it
 * begins. */
int uni__npz_parse(uni__npz_member *out, int room, const uint8_t *tail, size_t size,
                   int64_t tail_offset, int64_t *need, const char *name,
                   uni_error *err) UNI_MUST_USE;
/* Computes from the first 30 bytes of a local header how far after its offset the member's data
 * begins. */
int uni__npz_local(const uint8_t head[30], int64_t *skip, const char *name,
                   uni_error *err) UNI_MUST_USE;

#endif
