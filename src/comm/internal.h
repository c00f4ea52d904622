/*
 * internal.h - the internals of a communicator, for src/comm only.
 *
 * A public call becomes a uni__call, which a request carries until it ends. A transport drives the
 * request: start publishes it, step does what is possible now and never waits, pause sleeps until
 * something may have changed. Blocking and asynchronous calls thus share one code path.
 */
#ifndef UNISONO_COMM_INTERNAL_H
#define UNISONO_COMM_INTERNAL_H

#include <stdatomic.h>
#include <unisono/comm.h>

#include "comm/shared.h"
#include "comm/kernels.h"
#include "comm/recorder.h"
#include "comm/rendezvous.h"

#define UNI__COMM_MAX_RANKS 1024
#define UNI__COMM_SEGMENTS 64

/* Where the buffers of all ranks are mapped in this process. */
typedef struct uni__show {
    bool seen; /* all are visible; the same on all ranks */
    /* By rank: inputs, then outputs. Not set when they are not visible. */
    void **views;
} uni__show;

typedef struct uni__call {
    int kind; /* UNI__KIND_* */
    uni_dtype dtype;
    uni_comm_op op; /* 0 when nothing is reduced */
    /* Of reduce and broadcast; for send and recv the peer. */
    int root;
    size_t count; /* elements per segment (uni__call_segments) */
    const void *in;
    void *out;
    double weight;
    uni__show *show; /* UNI__KIND_SHOW */
    /* Over hosts: the user's call that this one belongs to; NULL: this is the user's call. */
    const struct uni_comm_request *asked;
} uni__call;

typedef struct uni__transport uni__transport;
typedef struct uni__algorithm uni__algorithm;

/* How long a request has waited for the same event, which may span many short pauses while other
 * requests are under way. */
typedef struct uni__watch {
    uint64_t target; /* the sequence number and phase awaited */
    uint64_t begun, warned, looked, noted; /* ns */
    /* Sum over the words of the cycle, to detect that nothing moves. */
    uint64_t circle;
    int circle_looks;
} uni__watch;

struct uni_comm_request {
    uni_comm *comm;
    /* In the list that holds it: started, waiting or free. */
    uni_comm_request *previous, *next;
    int status; /* 0 under way, 1 done, negative failed */
    /* All ranks detected the same failure, so the communicator stays usable. */
    bool own_failure;
    uni__call call;
    const uni__algorithm *algorithm;
    /* Sequence number in its lane, from 1; lane 0 has the collectives. mpi: the sequence number of
     * this send or recv to or from that rank. */
    uint64_t seq;
    /* Of the collective; for send and recv the number in the pair, or of the request. */
    uint64_t number;
    uint64_t order; /* order in which requests began, with sends */
    uni__watch watch; /* wait.c */
    uint64_t begun_ns, arrived_ns;
    int late_rank; /* last rank to arrive; -1: not known yet */
    /* How long it arrived after the rank before it. */
    uint64_t late_ns;
    double total_weight;
    uni__record *record;
    /* For the transports on shared memory (board.c). */
    struct uni__lane *lane;
    int area; /* staging area of this rank */
    int stage; /* state of the algorithm */
    uint64_t phase; /* the phase awaited */
    /* All members before this one have reached the phase. */
    int next_member;
    size_t window; /* index of the current window */
    /* Windows whose inputs are in, see all_reduce_slices.c. */
    size_t phase_index;
    bool direct; /* all ranks see all buffers */
    /* For mpi and hosts. */
    void *handle;
    /* Why it failed. Must stay the last field: a new request does not clear it. */
    uni_error error;
};

typedef struct uni__request_list {
    uni_comm_request *first, *last;
} uni__request_list;

/* Requests are allocated in blocks and reused, so the steady state allocates nothing. */
#define UNI__REQUEST_BLOCK 16
typedef struct uni__request_block {
    struct uni__request_block *next;
    uni_comm_request requests[UNI__REQUEST_BLOCK];
} uni__request_block;

/* This rank's view of a memory segment. */
struct uni_comm_buffer {
    uni_comm *comm;
    int index; /* in comm->segments */
    /* own_only: peers do not see it (mpi). */
    bool shared, own_only;
    size_t bytes, stride, mapped;
    /* Rank 0's part; rank p's is at p * stride (shared: stride 0). */
    char *base;
    void *keeper; /* thread transport: the last rank frees it */
};

struct uni__transport {
    const char *name;
    /* Publishes the call. Never waits; sets *again when another request must end first. */
    int (*start)(uni_comm_request *request, bool *again, uni_error *err);
    /* 1 done, 0 not yet, negative failed. Never waits. */
    int (*step)(uni_comm_request *request, uni_error *err);
    /* Sleeps until the request may proceed, at most `limit_ns` (0: no limit). Checks for aborts and
     * dead peers. */
    int (*pause)(uni_comm_request *request, uint64_t limit_ns, uni_error *err);
    /* Checks for aborts and dead peers like pause, but never sleeps. For callers that poll instead
     * of waiting; cheap enough for every iteration of a loop. */
    int (*glance)(uni_comm_request *request, uni_error *err);
    /* Collective: allocates memory for all ranks of the host. */
    int (*alloc)(uni_comm *comm, uni_comm_buffer *buffer, uni_error *err);
    void (*release)(uni_comm_buffer *buffer);
    void (*abort)(uni_comm *comm, const char *reason); /* any thread */
    void (*close)(uni_comm *comm);
};

struct uni_comm {
    uni_comm_info info; /* filled by uni_comm_info_of */
    const uni__transport *transport;
    uni__rendezvous peers;
    void (*release_peers)(void *context); /* NULL: the opener owns them */
    uni_comm_options options;
    int rank, size;
    uint64_t count; /* collectives begun */
    uint64_t begun; /* requests begun */
    bool finalized;
    uni_error broken; /* code 0 while it works */
    uni__request_block *blocks;
    uni__request_list free_requests;
    uni__request_list started; /* in the order they were started */
    /* Not started yet: collectives; sends and recvs. */
    uni__request_list waiting[2];
    int under_way; /* started or waiting */
    uni_comm_buffer *segments[UNI__COMM_SEGMENTS];
    const uni__kernels *kernels;
    uni__recorder *recorder;
    struct uni__board *board; /* thread and shm */
    void *state; /* mpi */
};

/* What a rank is called in messages and records. */
static inline int uni__comm_name(const uni_comm *comm, int rank)
{
    return comm->peers.names ? comm->peers.names[rank] : rank;
}

/* comm.c */
int uni__comm_new(uni_comm **out, const uni__rendezvous *peers, const uni_comm_options *options,
                  const uni__transport *transport, uni_error *err) UNI_MUST_USE;
void uni__comm_free(uni_comm *comm);
/* Remembers the first error and returns its code. */
int uni__comm_break(uni_comm *comm, const uni_error *err);

/* request.c */
void uni__requests_free(uni_comm *comm);
/* Runs one call to its end. total_weight may be NULL. */
int uni__comm_run(uni_comm *comm, const uni__call *call, double *total_weight,
                  uni_error *err) UNI_MUST_USE;
int uni__comm_start(uni_comm *comm, const uni__call *call, uni_comm_request **out,
                    uni_error *err) UNI_MUST_USE;

/* call.c */
/* Number of segments of `count` elements in a rank's input: size for reduce_scatter and
 * all_to_all. */
size_t uni__call_segments(const uni__call *call, int size);
/* Bytes of one segment. */
size_t uni__call_bytes(const uni__call *call);
int uni__call_check(const uni_comm *comm, const uni__call *call, uni_error *err) UNI_MUST_USE;

#endif
