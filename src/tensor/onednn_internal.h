/*
 * onednn_internal.h - the cache of oneDNN objects that onednn.c and onednn_conv.c share. Only for
 * these two.
 *
 * The key of an entry is its kind, thread count, part and whole description. The n-th request of a
 * step first tries the entry that the n-th request of the previous step used (one memcmp); a miss
 * searches the list of all entries.
 */
#ifndef UNISONO_TENSOR_ONEDNN_INTERNAL_H
#define UNISONO_TENSOR_ONEDNN_INTERNAL_H

#include <dnnl.h>
#include "tensor/onednn.h"

typedef enum conv_kind { CONV_FORWARD, CONV_BACKWARD_DATA, CONV_BACKWARD_WEIGHTS } conv_kind;

typedef struct conv_key {
    int64_t kind, threads, part, has_bias;
    uni__conv conv;
} conv_key;

typedef struct conv_entry {
    struct conv_entry *next;
    conv_key key;
    dnnl_primitive_t main;
    /* x and y plain channels-last; kernel in the primitive's layout, and as the user stores it */
    dnnl_memory_t x, y, kernel, user_kernel, bias, scratchpad;
    /* user_kernel -> kernel, for weights' gradients kernel -> user_kernel; NULL: same layout */
    dnnl_primitive_t reorder;
    size_t kernel_bytes, scratchpad_bytes;
} conv_entry;

#define MAX_SITES 1024

struct uni__onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    conv_entry *entries;
    conv_entry *sites[MAX_SITES];
    int site;
    size_t bytes;
    /* Whether our own product can be faster: the processor has AVX2 and nothing wider. */
    bool own_products;
};

/* Turns a status into the tape's error; true on success. */
bool uni__onednn_ok(uni_tape *tape, dnnl_status_t status, const char *what);
void uni__conv_entry_free(conv_entry *entry);
/* Sets the size of the OpenMP team that oneDNN would use on this thread; returns the previous
 * one. */
int uni__onednn_threads(int threads);

#endif
