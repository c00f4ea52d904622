/*
 * shared.h - what comm shares with our other libraries, the command and the Python extension. Not
 * installed: programs see include/unisono.
 */
#ifndef UNISONO_COMM_SHARED_H
#define UNISONO_COMM_SHARED_H

#include "base/compiler.h"
#include "comm/kinds.h"
#include <unisono/comm.h>

/* Processes of this user on this host that know the same name: they find each other over abstract
 * sockets. labels (by rank, may be NULL) are what errors call the ranks. */
UNI__SHARED UNI_MUST_USE int uni__comm_open_named(uni_comm **out, const char *name, int rank,
                                                  int size, char *const *labels,
                                                  const uni_comm_options *options, uni_error *err);
/* Any collective or message (kind: see kinds.h). count is as in the public functions; op 0 where
 * nothing is reduced. */
typedef struct uni__comm_what {
    int kind, root;
    uni_dtype dtype;
    uni_comm_op op;
    size_t count;
    const void *in;
    void *out;
} uni__comm_what;
/* Starts it, without waiting for a peer. */
UNI__SHARED UNI_MUST_USE int uni__comm_begin(uni_comm_request **out, uni_comm *comm,
                                             const uni__comm_what *what, uni_error *err);
/* As uni_comm_wait, but at most limit_ns: then *done is false and the request is still under
 * way. */
UNI__SHARED UNI_MUST_USE int uni__comm_wait_for(bool *done, uni_comm_request *request,
                                                uint64_t limit_ns, uni_error *err);
/* The rank and the number of ranks that TF_CONFIG says; nothing is opened. */
UNI__SHARED UNI_MUST_USE int uni__comm_read_tf_config(const char *tf_config, int *rank, int *size,
                                                      uni_error *err);
UNI__SHARED uint64_t uni__comm_count(const uni_comm *comm); /* collectives started by this rank */
/* As uni_comm_alloc, but one buffer for all ranks (parameters). */
UNI__SHARED UNI_MUST_USE int uni__comm_alloc_shared(uni_comm *comm, size_t bytes,
                                                    uni_comm_buffer **out, uni_error *err);
/* Another rank's part, mapped in this process; NULL if it is on another host. */
UNI__SHARED void *uni__comm_buffer_peer(const uni_comm_buffer *buffer, int rank);
typedef struct uni__comm_buckets uni__comm_buckets;
/* --- buckets: the gradients of many tensors in one flat buffer, reduced while the backward pass
 * still runs. Tensors are in the buffer in array order; gradients usually become ready from the
 * last to the first. A bucket starts when its last gradient is ready and all earlier buckets
 * have started, so the order is the same on all ranks. --- */
typedef struct uni__comm_bucket_options {
    size_t bucket_bytes; /* 0: 1 MiB */
    uni_comm_op op; /* 0: UNI_COMM_SUM; MEAN divides by the sum of the weights */
} uni__comm_bucket_options;
UNI__SHARED int uni__comm_buckets_count(const uni__comm_buckets *buckets);
/* flat: all gradients, one tensor (counts[i] elements) after the other; borrowed as long as the
 * buckets exist, as is the communicator. counts are copied and must be the same on all ranks. */
UNI__SHARED UNI_MUST_USE int uni__comm_buckets_new(uni__comm_buckets **out, uni_comm *comm,
                                                   void *flat, uni_dtype dtype, int num_tensors,
                                                   const size_t *counts,
                                                   const uni__comm_bucket_options *options,
                                                   uni_error *err);
/* A new step: no gradient is ready. weight: of this rank, as in uni_comm_all_reduce_weighted. */
UNI__SHARED UNI_MUST_USE int uni__comm_buckets_begin(uni__comm_buckets *buckets, double weight,
                                                     uni_error *err);
/* Gradient i is final in this step: starts what can start, and makes progress. */
UNI__SHARED UNI_MUST_USE int uni__comm_buckets_ready(uni__comm_buckets *buckets, int tensor,
                                                     uni_error *err);
/* Treats the remaining gradients as ready, and waits for all. */
UNI__SHARED UNI_MUST_USE int uni__comm_buckets_finish(uni__comm_buckets *buckets, uni_error *err);
UNI__SHARED void uni__comm_buckets_free(uni__comm_buckets *buckets);

#endif
