/* idx.h - the header of an idx file, for idx.c and its fuzz target. Pure. */
#ifndef UNISONO_DATA_IDX_H
#define UNISONO_DATA_IDX_H

#include <unisono/array.h>

typedef struct uni__idx_header {
    uni_dtype dtype;
    int ndim, size; /* size: bytes of the header */
    int64_t shape[UNI_MAX_DIMS];
    int64_t row_bytes, data_bytes;
} uni__idx_header;

/* Returns 0, or -1 if the bytes do not begin with an idx header. */
int uni__idx_header_read(uni__idx_header *header, const uint8_t *bytes, size_t size);
/* Converts between the file's byte order and ours. */
void uni__idx_swap(void *data, uni_dtype dtype, size_t bytes);

#endif
