/*
 * buckets.c - gradients of many tensors in one flat buffer, reduced while the backward pass still
 * runs.
 *
 * Buckets are cut at tensor boundaries, starting at the end of the buffer, because the backward
 * pass ends with the first tensor. All ranks use the same order, whatever order the gradients
 * arrive in: bucket k starts only after all buckets before it. A bucket is one all_reduce on one
 * range, so nothing is packed or copied. Called on the rank's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/shared.h"
#include "comm/internal.h"

#define BUCKET_BYTES ((size_t)1 << 20)

typedef struct bucket {
    size_t first, count; /* elements of the flat buffer */
    /* Tensors in the bucket, and how many of them are not ready in this step. */
    int tensors, missing;
    uni_comm_request *request;
} bucket;

struct uni__comm_buckets {
    uni_comm *comm;
    char *flat;
    uni_dtype dtype;
    uni_comm_op op;
    double weight;
    bool running;
    /* `next` is the first bucket that has not started. */
    int num_tensors, num_buckets, next;
    int oldest; /* the first that has not ended */
    int *bucket_of; /* by tensor */
    bool *is_ready;
    bucket *buckets;
};

static void plan(uni__comm_buckets *b, const size_t *counts, size_t bucket_bytes)
{
    size_t size = uni_dtype_size(b->dtype), end = 0;
    for (int t = 0; t < b->num_tensors; t++)
        end += counts[t];
    bucket *current = NULL;
    for (int t = b->num_tensors - 1; t >= 0; t--) {
        if (!current || current->count * size >= bucket_bytes)
            current = &b->buckets[b->num_buckets++];
        end -= counts[t];
        current->first = end;
        current->count += counts[t];
        current->tensors++;
        b->bucket_of[t] = b->num_buckets - 1;
    }
}

int uni__comm_buckets_new(uni__comm_buckets **out, uni_comm *comm, void *flat, uni_dtype dtype,
                          int num_tensors, const size_t *counts,
                          const uni__comm_bucket_options *options, uni_error *err)
{
    *out = NULL;
    if (num_tensors < 0 || uni__kernel_type(dtype) < 0)
        return uni_error_set(err, UNI_EINVAL, "buckets of %d tensors of %s cannot be reduced",
                             num_tensors, uni_dtype_name(dtype));
    size_t places = num_tensors > 0 ? (size_t)num_tensors : 1;
    uni__comm_buckets *b = calloc(1, sizeof *b);
    if (b) {
        b->bucket_of = calloc(places, sizeof *b->bucket_of);
        b->is_ready = calloc(places, sizeof *b->is_ready);
        b->buckets = calloc(places, sizeof *b->buckets);
    }
    if (!b || !b->bucket_of || !b->is_ready || !b->buckets) {
        uni__comm_buckets_free(b);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the buckets of %d tensors",
                             num_tensors);
    }
    b->comm = comm;
    b->flat = flat;
    b->dtype = dtype;
    b->op = options && options->op ? options->op : UNI_COMM_SUM;
    b->num_tensors = num_tensors;
    plan(b, counts, options && options->bucket_bytes ? options->bucket_bytes : BUCKET_BYTES);
    *out = b;
    return 0;
}

void uni__comm_buckets_free(uni__comm_buckets *buckets)
{
    if (!buckets)
        return;
    free(buckets->bucket_of);
    free(buckets->is_ready);
    free(buckets->buckets);
    free(buckets);
}

int uni__comm_buckets_count(const uni__comm_buckets *buckets)
{
    return buckets->num_buckets;
}

int uni__comm_buckets_begin(uni__comm_buckets *b, double weight, uni_error *err)
{
    if (b->running)
        return uni_error_set(err, UNI_ESTATE,
                             "buckets: the step before was not ended by uni__comm_buckets_finish");
    b->running = true;
    b->weight = weight;
    b->next = b->oldest = 0;
    memset(b->is_ready, 0, (size_t)b->num_tensors * sizeof *b->is_ready);
    for (int i = 0; i < b->num_buckets; i++) {
        b->buckets[i].missing = b->buckets[i].tensors;
        b->buckets[i].request = NULL;
    }
    return 0;
}

static int end_oldest(uni__comm_buckets *b, uni_error *err)
{
    bucket *first = &b->buckets[b->oldest++];
    uni_comm_request *request = first->request;
    first->request = NULL;
    return uni_comm_wait(request, err);
}

static int start_ready(uni__comm_buckets *b, uni_error *err)
{
    size_t size = uni_dtype_size(b->dtype);
    while (b->next < b->num_buckets && b->buckets[b->next].missing == 0) {
        bucket *one = &b->buckets[b->next];
        char *data = b->flat + one->first * size;
        UNI_TRY(uni_comm_all_reduce_start(&one->request, b->comm, data, data, one->count, b->dtype,
                                          b->op, b->weight, err));
        b->next++;
    }
    return 0;
}

int uni__comm_buckets_ready(uni__comm_buckets *b, int tensor, uni_error *err)
{
    if (!b->running || tensor < 0 || tensor >= b->num_tensors || b->is_ready[tensor])
        return uni_error_set(err, UNI_ESTATE, "buckets: gradient %d of %d cannot become ready %s",
                             tensor, b->num_tensors,
                             !b->running ? "before uni__comm_buckets_begin" : "twice in a step");
    b->is_ready[tensor] = true;
    b->buckets[b->bucket_of[tensor]].missing--;
    UNI_TRY(start_ready(b, err));
    return uni_comm_progress(b->comm, err);
}

int uni__comm_buckets_finish(uni__comm_buckets *b, uni_error *err)
{
    if (!b->running)
        return uni_error_set(err, UNI_ESTATE, "buckets: finish without begin");
    b->running = false;
    for (int i = b->next; i < b->num_buckets; i++)
        b->buckets[i].missing = 0;
    int status = start_ready(b, err);
    while (b->oldest < b->next) { /* end them all, even after an error */
        int ended = end_oldest(b, status < 0 ? NULL : err);
        status = status < 0 ? status : ended;
    }
    return status;
}
