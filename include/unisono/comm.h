/*
 * comm.h - collectives: many ranks, one result.
 *
 * A communicator joins ranks 0 to n-1: threads of one process, processes of one host, or hosts over
 * MPI. All ranks call the same collectives in the same order. A rank that does not (another kind, type,
 * size, operation or root), dies or freezes gives every other rank an error within a second that names
 * the rank, the number of the collective and what was called.
 *
 * After UNI_EMISMATCH a communicator of threads or of processes of one host goes on: every rank gets
 * the error for that collective, and the next one works. Of a send of up to 1 MiB only the receiver
 * gets it, because the sender has gone on. After any other error (a dead peer, an abort, ranks that
 * wait for each other in a circle: a collective here, a recv there) it is broken. Each call then
 * returns the first error again, and all that is left is uni_comm_close.
 *
 * Over MPI and over hosts (uni_comm_transport: "mpi", "hosts") kind, dtype, count, operation and root
 * of every collective are compared as well, and dtype and count of every message: all ranks get
 * UNI_EMISMATCH that names two ranks and what each called, none is told that it has a result, and
 * what is in `out` is not defined. But nothing survives it: what MPI has begun cannot be taken back,
 * so the communicator is broken after every error. A rank that had left before (the sender of a message,
 * over hosts also a rank that has the data of a broadcast) learns of it in its next call. Not compared, on any transport: weights, and what `apply` does.
 *
 * Results are bit-equal on all ranks and from run to run: sums are always taken in the order of the
 * ranks. Every collective waits for all ranks (no rank leaves before all have come), so that a
 * mismatch is found at once and a late rank is known by name.
 *
 * The fast way are buffers from uni_comm_alloc: every rank reads and writes them in place. Any
 * other memory works as well, through a copy.
 *
 * Thread rule: one thread at a time for each rank's communicator; uni_comm_abort from any thread.
 *
 * @example
 * uni_comm *ranks[2] = { NULL, NULL };
 * if (uni_comm_open_threads(ranks, 2, NULL, err) < 0)
 *     return err->code;
 * // in thread r:
 * float gradient[1000] = { 0 };
 * uni_comm *comm = ranks[0];
 * if (uni_comm_all_reduce(comm, gradient, gradient, 1000, UNI_F32, UNI_COMM_MEAN, err) == 0)
 *     (void)uni_comm_finalize(comm, err);
 * uni_comm_close(comm);
 * @end
 */
#ifndef UNISONO_COMM_H
#define UNISONO_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/array.h>
#include <unisono/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_comm uni_comm;
typedef struct uni_comm_buffer uni_comm_buffer;
typedef struct uni_comm_request uni_comm_request;
typedef struct uni_comm_buckets uni_comm_buckets;

/* Reductions are for float32, float64, int32, int64 and uint8 (integers wrap around); MEAN for the
 * two floats only. A NaN in MIN or MAX stays. What only moves data takes every dtype. */
typedef enum uni_comm_op {
    UNI_COMM_SUM = 1,
    UNI_COMM_MEAN = 2, /* the sum divided by the sum of the weights, each rank's being 1 */
    UNI_COMM_MIN = 3,
    UNI_COMM_MAX = 4
} uni_comm_op;

#define UNI_COMM_NO_SPIN (-1)
#define UNI_COMM_NEVER (-1)

typedef struct uni_comm_options {
    int cores; /* that the ranks of this host share; 0: the affinity mask's */
    int spin_us; /* busy waiting before sleeping; 0: 1000 when the ranks fit the cores (giving way to others after 20), else none;
                    UNI_COMM_NO_SPIN: none */
    int frozen_ms; /* a stopped peer is an error after this long; 0: 400; UNI_COMM_NEVER */
    int timeout_ms; /* a live peer that does not come is an error after this long; 0: never */
    const char *record_dir; /* the flight recorder's file comm_rank_N.bin is made there; NULL: kept
                               in memory only */
} uni_comm_options;

/* n communicators for n threads of this process (the mirrored strategy). out has n places. */
UNI_API UNI_MUST_USE int uni_comm_open_threads(uni_comm **out, int n,
                                               const uni_comm_options *options, uni_error *err);

/* For processes that the user started by hand with TensorFlow's TF_CONFIG (its text): chief and workers of the cluster, all on this host, are
 * the ranks. Waits up to a minute (or options->timeout_ms) for the others, and says after two seconds for whom. */
UNI_API UNI_MUST_USE int uni_comm_open_tf_config(uni_comm **out, const char *tf_config,
                                                 const uni_comm_options *options, uni_error *err);

/* The three ends. finalize: all ranks, when all their collectives are done; then close.
 * close: local, never waits; peers that still wait for this rank get an error.
 * abort: from any thread; every rank's waiting and later calls fail with the reason. */
UNI_API UNI_MUST_USE int uni_comm_finalize(uni_comm *comm, uni_error *err);
UNI_API void uni_comm_close(uni_comm *comm);
UNI_API void uni_comm_abort(uni_comm *comm, const char *reason);

UNI_API int uni_comm_rank(const uni_comm *comm);
UNI_API int uni_comm_size(const uni_comm *comm);
UNI_API const char *uni_comm_transport(const uni_comm *comm); /* "thread", "shm", "mpi" */
UNI_API uint64_t uni_comm_count(const uni_comm *comm); /* collectives begun by this rank */

/* --- memory that all ranks of a host see; collective: all ranks call it, with the same size.
 * alloc: each rank has its own `bytes`, page-aligned and zero. alloc_shared: one for all ranks
 * (parameters). free is local, when no collective on it is under way; NULL is allowed. --- */
UNI_API UNI_MUST_USE int uni_comm_alloc(uni_comm *comm, size_t bytes, uni_comm_buffer **out,
                                        uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_alloc_shared(uni_comm *comm, size_t bytes, uni_comm_buffer **out,
                                               uni_error *err);
UNI_API void uni_comm_buffer_free(uni_comm_buffer *buffer);
UNI_API void *uni_comm_buffer_data(const uni_comm_buffer *buffer);
/* Another rank's part as seen from here; NULL when it is on another host. */
UNI_API void *uni_comm_buffer_peer(const uni_comm_buffer *buffer, int rank);

/* Local, no collective: elements [begin, end) of this rank's own part become the sum over all ranks' parts, in the order of the ranks. A collective
 * before it must have shown that all ranks filled theirs, one after it that none is still read. UNI_EUNSUPPORTED when a part is on another host. */
UNI_API UNI_MUST_USE int uni_comm_buffer_sum(const uni_comm_buffer *buffer, size_t begin,
                                             size_t end, uni_dtype dtype, uni_error *err);

/* --- collectives. in == out means in place, where both have the same size. Buffers must not
 * overlap otherwise. count is in elements; 0 is allowed. --- */
UNI_API UNI_MUST_USE int uni_comm_all_reduce(uni_comm *comm, const void *in, void *out,
                                             size_t count, uni_dtype dtype, uni_comm_op op,
                                             uni_error *err);
/* Sums and counts: out = (sum of all ranks' in) / (sum of all ranks' weight); a rank without data
 * gives zeros with weight 0. *total (may be NULL) is the sum of the weights; when it is 0, out is the
 * bare sum. float32 and float64. */
UNI_API UNI_MUST_USE int uni_comm_all_reduce_weighted(uni_comm *comm, const void *in, void *out,
                                                      size_t count, uni_dtype dtype, double weight,
                                                      double *total, uni_error *err);
/* out is written on the root only (elsewhere it may be NULL). */
UNI_API UNI_MUST_USE int uni_comm_reduce(uni_comm *comm, const void *in, void *out, size_t count,
                                         uni_dtype dtype, uni_comm_op op, int root, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_broadcast(uni_comm *comm, void *data, size_t count,
                                            uni_dtype dtype, int root, uni_error *err);
/* in: count elements, out: size x count; in may be its own place in out. */
UNI_API UNI_MUST_USE int uni_comm_all_gather(uni_comm *comm, const void *in, void *out,
                                             size_t count, uni_dtype dtype, uni_error *err);
/* in: size x count elements, out: count; out may be its own place in `in`. */
UNI_API UNI_MUST_USE int uni_comm_reduce_scatter(uni_comm *comm, const void *in, void *out,
                                                 size_t count, uni_dtype dtype, uni_comm_op op,
                                                 uni_error *err);
/* in, out: size x count elements; block p of `in` goes to rank p. Not in place. */
UNI_API UNI_MUST_USE int uni_comm_all_to_all(uni_comm *comm, const void *in, void *out,
                                             size_t count, uni_dtype dtype, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_barrier(uni_comm *comm, uni_error *err);
/* Between two ranks. Both name the same count and type. send may wait for its recv. */
UNI_API UNI_MUST_USE int uni_comm_send(uni_comm *comm, const void *data, size_t count,
                                       uni_dtype dtype, int to, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_recv(uni_comm *comm, void *data, size_t count, uni_dtype dtype,
                                       int from, uni_error *err);
/* Do all ranks have the same bytes (parameters that must not drift apart)? UNI_EMISMATCH names those
 * that differ from the most common; the communicator stays usable. */
UNI_API UNI_MUST_USE int uni_comm_check_equal(uni_comm *comm, const void *data, size_t bytes,
                                              const char *what, uni_error *err);

/* The fused step: `gradient` (from uni_comm_alloc) is reduced by slices as by all_reduce_weighted
 * (op SUM: not divided), and each rank's `apply` gets its own slice [begin, end) of it, to update
 * parameters that live once in uni_comm_alloc_shared. When it returns, all slices are applied. What
 * is in the other slices of `gradient` is not defined. Over hosts begin and end are the same on
 * each host for one local rank. A negative return of apply is handed on, and ends the step for all. */
typedef int (*uni_comm_apply)(void *context, const void *gradient, size_t begin, size_t end,
                              uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_reduce_apply(uni_comm *comm, void *gradient, size_t count,
                                               uni_dtype dtype, uni_comm_op op, double weight,
                                               uni_comm_apply apply, void *context, uni_error *err);

/* --- asynchronous: start never waits for a peer, and any number of requests may be under way (some at
 * once, the others as those end). Nothing happens between calls (there is no helper thread): call
 * progress regularly. Buffers belong to the request until it is done. A request ends with the
 * wait, or the test that says done. --- */
UNI_API UNI_MUST_USE int uni_comm_all_reduce_start(uni_comm *comm, const void *in, void *out,
                                                   size_t count, uni_dtype dtype, uni_comm_op op,
                                                   double weight, uni_comm_request **out_request,
                                                   uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_send_start(uni_comm *comm, const void *data, size_t count,
                                             uni_dtype dtype, int to,
                                             uni_comm_request **out_request, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_recv_start(uni_comm *comm, void *data, size_t count,
                                             uni_dtype dtype, int from,
                                             uni_comm_request **out_request, uni_error *err);
/* Moves on what is under way, without waiting. */
UNI_API UNI_MUST_USE int uni_comm_progress(uni_comm *comm, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_test(uni_comm_request *request, bool *done, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_wait(uni_comm_request *request, uni_error *err);

/* --- buckets: the gradients of many tensors in one flat buffer, reduced while the backward pass
 * still runs. Tensors lie in the buffer in the order of the array; gradients become ready mostly
 * from the last to the first. A bucket starts when its last gradient is ready and all buckets
 * before it have started, so that the order is the same on all ranks. --- */
typedef struct uni_comm_bucket_options {
    size_t bucket_bytes; /* 0: 1 MiB */
    uni_comm_op op; /* 0: UNI_COMM_SUM; MEAN divides by the sum of the weights */
} uni_comm_bucket_options;

/* flat: all gradients, one tensor (counts[i] elements) behind the other; borrowed as long as the buckets live, as is the communicator. counts are copied. All
 * ranks give the same ones. */
UNI_API UNI_MUST_USE int uni_comm_buckets_new(uni_comm_buckets **out, uni_comm *comm, void *flat,
                                              uni_dtype dtype, int num_tensors,
                                              const size_t *counts,
                                              const uni_comm_bucket_options *options,
                                              uni_error *err);
/* A new step: no gradient is ready. weight: of this rank, as in uni_comm_all_reduce_weighted. */
UNI_API UNI_MUST_USE int uni_comm_buckets_begin(uni_comm_buckets *buckets, double weight,
                                                uni_error *err);
/* Gradient i is final in this step: starts what can start, and makes progress. */
UNI_API UNI_MUST_USE int uni_comm_buckets_ready(uni_comm_buckets *buckets, int tensor,
                                                uni_error *err);
/* Takes what was not said to be ready as ready, and waits for all. */
UNI_API UNI_MUST_USE int uni_comm_buckets_finish(uni_comm_buckets *buckets, uni_error *err);
UNI_API int uni_comm_buckets_count(const uni_comm_buckets *buckets);
UNI_API void uni_comm_buckets_free(uni_comm_buckets *buckets);

#ifdef __cplusplus
}
#endif
#endif
