/*
 * onednn_internal.h - the cache of oneDNN objects that onednn.c and onednn_conv.c share. Only for these two.
 *
 * An entry is found by its key: kind, thread count and the whole description. The n-th request of a step first looks at the entry that the
 * n-th request of the step before used (one memcmp); a miss asks the list of all entries.
 */
#ifndef UNISONO_TENSOR_ONEDNN_INTERNAL_H
#define UNISONO_TENSOR_ONEDNN_INTERNAL_H

#include <dnnl.h>
#include "tensor/onednn.h"

typedef enum conv_kind { CONV_FORWARD, CONV_BACKWARD_DATA, CONV_BACKWARD_WEIGHTS } conv_kind;

typedef struct conv_key {
    int64_t kind, threads, has_bias;
    uni__conv conv;
} conv_key;

typedef struct conv_entry {
    struct conv_entry *next;
    conv_key key;
    dnnl_primitive_t main;
    /* x and y plain channels-last; kernel in the primitive's layout, and as the user stores it */
    dnnl_memory_t x, y, kernel, user_kernel, bias, scratchpad;
    dnnl_primitive_t
        reorder; /* user_kernel -> kernel, for weights' gradients kernel -> user_kernel; NULL: same layout */
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
    bool own_products; /* our product is worth asking: the processor has AVX2 and nothing wider */
};

/* Boxes a status into the tape's error; true when it was success. */
bool uni__onednn_ok(uni_tape *tape, dnnl_status_t status, const char *what);
void uni__conv_entry_free(conv_entry *entry);
/* The calling thread's OpenMP team size while a kernel runs; returns the one before. */
int uni__onednn_threads(int threads);

#endif
