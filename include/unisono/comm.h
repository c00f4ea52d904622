/*
 * comm.h - collectives: many ranks, one result.
 *
 * A communicator joins ranks 0 to n-1: threads of one process, processes of one host, or hosts over
 * MPI. All ranks call the same collectives in the same order. If a rank does not (another kind,
 * type, size, operation or root), dies or freezes, every other rank gets an error within a second
 * that names the rank, the number of the collective and what was called.
 *
 * After UNI_EMISMATCH a communicator of threads or of processes of one host stays usable: every
 * rank gets the error for that collective, and the next one works. For a send of up to 1 MiB only
 * the receiver gets the error, because the sender has already continued. After any other error (a
 * dead peer, an abort, a deadlock between a collective and a recv) the communicator is broken: each
 * call returns the first error again, and only uni_comm_close is left.
 *
 * Over MPI and over hosts (uni_comm_transport: "mpi", "hosts") kind, dtype, count, operation and
 * root of every collective are compared as well, and dtype and count of every message: all ranks
 * get UNI_EMISMATCH, which names two ranks and what each called; no rank reports success, and `out`
 * is undefined. MPI operations cannot be cancelled, so the communicator is broken after every
 * error. A rank that had already left (the sender of a message, over hosts also a rank that has the
 * data of a broadcast) gets the error in its next call. Not compared, on any transport: weights,
 * and what `apply` does.
 *
 * Results are bitwise equal on all ranks and from run to run: sums are always computed in rank
 * order. Every collective waits for all ranks (no rank leaves before all have arrived), so a
 * mismatch is found at once and a straggler can be named.
 *
 * Buffers from uni_comm_alloc are fastest: every rank reads and writes them in place. Any other
 * memory works as well, through a copy.
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

/* Reductions are for float16, bfloat16, float32, float64, int8, int16, int32, int64 and uint8
 * (integers wrap around; the two narrow floats are rounded after every rank's share, and not
 * reduced over MPI). MEAN is for floats, AND, OR and XOR (of bits) for integers only. MIN and MAX
 * propagate NaN. Collectives that only move data accept every dtype. */
typedef enum uni_comm_op {
    UNI_COMM_SUM = 1,
    UNI_COMM_MEAN = 2, /* the sum divided by the sum of the weights, each rank's being 1 */
    UNI_COMM_MIN = 3,
    UNI_COMM_MAX = 4,
    UNI_COMM_PRODUCT = 5,
    UNI_COMM_AND = 6,
    UNI_COMM_OR = 7,
    UNI_COMM_XOR = 8
} uni_comm_op;

#define UNI_COMM_NO_SPIN (-1)
#define UNI_COMM_NEVER (-1)

typedef struct uni_comm_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int cores; /* cores that the ranks of this host share; 0: those of the affinity mask */
    /* Busy waiting before sleeping; 0: 100 if there are enough cores for the ranks, otherwise none;
     * UNI_COMM_NO_SPIN: none. A longer one yields its core after 100. */
    int spin_us;
    int frozen_ms; /* a stopped peer is an error after this long; 0: 400; UNI_COMM_NEVER */
    int timeout_ms; /* a live peer that does not arrive is an error after this long; 0: never */
    /* Directory of the flight recorder's file comm_rank_N.bin; NULL: in memory only */
    const char *record_dir;
} uni_comm_options;

/* n communicators for n threads of this process (the mirrored strategy). out has n places. */
UNI_API UNI_MUST_USE int uni_comm_open_threads(uni_comm **out, int n,
                                               const uni_comm_options *options, uni_error *err);

/* For processes started by hand with TensorFlow's TF_CONFIG (its text): the cluster's chief and
 * workers, all on this host, are the ranks. Waits up to a minute (or options->timeout_ms) for
 * the others, and after two seconds logs which it waits for. */
UNI_API UNI_MUST_USE int uni_comm_open_tf_config(uni_comm **out, const char *tf_config,
                                                 const uni_comm_options *options, uni_error *err);

/* The three ends. finalize: all ranks, when all their collectives are done; then close. close:
 * local, never waits; peers that are waiting for this rank get an error. abort: from any thread;
 * pending and later calls of every rank fail with the reason. */
UNI_API UNI_MUST_USE int uni_comm_finalize(uni_comm *comm, uni_error *err);
UNI_API void uni_comm_close(uni_comm *comm);
UNI_API void uni_comm_abort(uni_comm *comm, const char *reason);

typedef struct uni_comm_info {
    int rank, size;
    const char *transport; /* "thread", "shm", "mpi", "ucx" */
} uni_comm_info;
/* Borrowed until the communicator is closed. */
UNI_API const uni_comm_info *uni_comm_info_of(const uni_comm *comm);

/* --- memory that all ranks of a host see; collective: all ranks call it, with the same size.
 * Each rank has its own `bytes`, page-aligned and zero. free is local; no collective may be using
 * the buffer; NULL is allowed. --- */
UNI_API UNI_MUST_USE int uni_comm_alloc(uni_comm_buffer **out, uni_comm *comm, size_t bytes,
                                        uni_error *err);
UNI_API void uni_comm_buffer_free(uni_comm_buffer *buffer);
UNI_API void *uni_comm_buffer_data(const uni_comm_buffer *buffer);

/* --- collectives. in == out means in place, where both have the same size. Buffers must not
 * overlap otherwise. count is in elements; 0 is allowed. --- */
UNI_API UNI_MUST_USE int uni_comm_all_reduce(uni_comm *comm, const void *in, void *out,
                                             size_t count, uni_dtype dtype, uni_comm_op op,
                                             uni_error *err);
/* Sums and counts: out = (sum of all ranks' in) / (sum of all ranks' weight); a rank without
 * data contributes zeros with weight 0. *total (may be NULL) is the sum of the weights; if it is
 * 0, out is the plain sum. float32 and float64. */
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
/* Between two ranks. Both must give the same count and type. send may wait for its recv. */
UNI_API UNI_MUST_USE int uni_comm_send(uni_comm *comm, const void *data, size_t count,
                                       uni_dtype dtype, int to, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_recv(uni_comm *comm, void *data, size_t count, uni_dtype dtype,
                                       int from, uni_error *err);
/* Checks that all ranks have the same bytes (parameters that must not drift apart).
 * UNI_EMISMATCH names the ranks that differ from the majority; the communicator stays usable. */
UNI_API UNI_MUST_USE int uni_comm_check_equal(uni_comm *comm, const void *data, size_t bytes,
                                              const char *what, uni_error *err);

/* --- asynchronous: start never waits for a peer, and any number of requests may be in flight
 * (some at once, the others queued). Nothing happens between calls (there is no helper thread):
 * call progress regularly. Buffers belong to the request until it is done. wait, or the test
 * that sets done, ends the request. --- */
UNI_API UNI_MUST_USE int uni_comm_all_reduce_start(uni_comm_request **out_request, uni_comm *comm,
                                                   const void *in, void *out, size_t count,
                                                   uni_dtype dtype, uni_comm_op op, double weight,
                                                   uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_send_start(uni_comm_request **out_request, uni_comm *comm,
                                             const void *data, size_t count, uni_dtype dtype,
                                             int to, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_recv_start(uni_comm_request **out_request, uni_comm *comm,
                                             void *data, size_t count, uni_dtype dtype, int from,
                                             uni_error *err);
/* Makes progress on the requests in flight, without waiting. */
UNI_API UNI_MUST_USE int uni_comm_progress(uni_comm *comm, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_test(bool *done, uni_comm_request *request, uni_error *err);
UNI_API UNI_MUST_USE int uni_comm_wait(uni_comm_request *request, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
