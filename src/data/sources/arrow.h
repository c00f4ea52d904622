/*
 * arrow.h - the structs of the Arrow C data interface, which Arrow publishes to be copied
 * (https://arrow.apache.org/docs/format/CDataInterface.html). They are an ABI and never change.
 */
#ifndef UNISONO_DATA_ARROW_H
#define UNISONO_DATA_ARROW_H

#include <stdint.h>

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif
