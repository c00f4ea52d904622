/*
 * internal.h - the insides of a communicator, for src/comm only.
 *
 * A public call becomes a uni__call (what is asked), which a request carries through its life. A
 * transport moves a request on: start publishes it, step does what can be done now and never waits,
 * pause sleeps until something may have changed. So blocking and asynchronous calls are one code.
 */
#ifndef UNISONO_COMM_INTERNAL_H
#define UNISONO_COMM_INTERNAL_H

#include <stdatomic.h>
#include <unisono/comm.h>

#include "comm/kernels.h"
#include "comm/recorder.h"
#include "comm/rendezvous.h"

#define UNI__COMM_MAX_RANKS 1024
#define UNI__COMM_SEGMENTS 64

/* Where the buffers of all ranks are, as seen from here. */
typedef struct uni__show {
    bool seen; /* all of them; the same on all ranks */
    void **views; /* by rank: inputs, then outputs; not set when they are not seen */
} uni__show;

typedef struct uni__call {
    int kind; /* UNI__KIND_* */
    uni_dtype dtype;
    uni_comm_op op; /* 0 where nothing is reduced */
    int root; /* of reduce and broadcast; the peer of send and recv */
    size_t count; /* elements of one segment (see uni__call_segments) */
    const void *in;
    void *out;
    double weight;
    uni_comm_apply apply;
    void *apply_context;
    uni__show *show; /* UNI__KIND_SHOW */
    const struct uni_comm_request *
        asked; /* over hosts: the call of the user's that this one is a part of; NULL: it is that itself */
} uni__call;

typedef struct uni__transport uni__transport;
typedef struct uni__algorithm uni__algorithm;

/* How long a request waits for the same thing; it may be in many short pauses while others are under way. */
typedef struct uni__watch {
    uint64_t target; /* number and phase that is waited for */
    uint64_t begun, warned, looked, noted; /* ns */
    uint64_t circle; /* sum over the circle's words, to see that nothing moves */
    int circle_looks;
} uni__watch;

struct uni_comm_request {
    uni_comm *comm;
    uni_comm_request *previous, *next; /* in the list that has it: started, waiting or free */
    int status; /* 0 under way, 1 done, negative failed */
    bool own_failure; /* it failed alike on all ranks: the communicator goes on */
    uni__call call;
    const uni__algorithm *algorithm;
    uint64_t
        seq; /* number in its lane, from 1; lane 0 is that of the collectives. mpi: of a send or recv, the how manieth to or from that rank */
    uint64_t
        number; /* of the collective; for send and recv the number in the pair, or of the request */
    uint64_t order; /* in which requests began, sends among them */
    uni__watch watch; /* wait.c */
    uint64_t begun_ns, arrived_ns;
    int late_rank; /* the last to arrive, or -1 when that is not known yet */
    uint64_t late_ns; /* after the one before it */
    double total_weight;
    uni__record *record;
    /* For the transports on shared memory (board.c). */
    struct uni__lane *lane;
    int area; /* staging area of this rank */
    int stage; /* where the algorithm stands */
    uint64_t phase; /* the one that is waited for */
    int next_member; /* members before this one have reached it */
    size_t window; /* index of the window in work */
    size_t phase_index; /* windows whose inputs are in, all_reduce_slices.c */
    bool direct; /* all buffers are seen by all ranks */
    /* For mpi and hosts. */
    void *handle;
    uni_error error; /* when it failed; the last field, which a new request does not clear */
};

typedef struct uni__request_list {
    uni_comm_request *first, *last;
} uni__request_list;

/* Requests are made by the block and used again, so that nothing is allocated once there are enough. */
#define UNI__REQUEST_BLOCK 16
typedef struct uni__request_block {
    struct uni__request_block *next;
    uni_comm_request requests[UNI__REQUEST_BLOCK];
} uni__request_block;

/* What a segment of memory looks like from this rank. */
struct uni_comm_buffer {
    uni_comm *comm;
    int index; /* in comm->segments */
    bool shared, own_only; /* own_only: peers do not see it (mpi) */
    size_t bytes, stride, mapped;
    char *base; /* rank 0's part; rank p's is at p * stride (shared: stride 0) */
    void *keeper; /* thread: what the last one frees */
};

struct uni__transport {
    const char *name;
    /* Publishes the call. Never waits: *again is set when another request must end first. */
    int (*start)(uni_comm_request *request, bool *again, uni_error *err);
    /* 1 done, 0 not yet, negative failed. Never waits. */
    int (*step)(uni_comm_request *request, uni_error *err);
    /* Sleeps until the request may go on, at most `limit_ns` (0: as long as it takes). Looks after
     * aborts and dead peers. */
    int (*pause)(uni_comm_request *request, uint64_t limit_ns, uni_error *err);
    /* Looks after aborts and dead peers like pause, but never sleeps: for who asks again and again instead of waiting. Cheap: it may be called at every
     * turn of a loop. */
    int (*glance)(uni_comm_request *request, uni_error *err);
    /* Collective: memory for all ranks of the host. */
    int (*alloc)(uni_comm *comm, uni_comm_buffer *buffer, uni_error *err);
    void (*release)(uni_comm_buffer *buffer);
    void (*abort)(uni_comm *comm, const char *reason); /* any thread */
    void (*close)(uni_comm *comm);
};

struct uni_comm {
    const uni__transport *transport;
    uni__rendezvous peers;
    void (*release_peers)(void *context); /* NULL: they are the opener's */
    uni_comm_options options;
    int rank, size;
    uint64_t count; /* collectives begun */
    uint64_t begun; /* requests begun */
    bool finalized;
    uni_error broken; /* code 0 while all is well */
    uni__request_block *blocks;
    uni__request_list free_requests;
    uni__request_list started; /* in the order in which they were started */
    uni__request_list waiting[2]; /* not started yet: collectives; sends and recvs */
    int under_way; /* started or waiting */
    uni_comm_buffer *segments[UNI__COMM_SEGMENTS];
    const uni__kernels *kernels;
    uni__recorder *recorder;
    struct uni__board *board; /* thread and shm */
    void *state; /* mpi */
};

/* comm.c */
int uni__comm_new(uni_comm **out, const uni__rendezvous *peers, const uni_comm_options *options,
                  const uni__transport *transport, uni_error *err) UNI_MUST_USE;
void uni__comm_free(uni_comm *comm);
/* Remembers the first error; returns its code. */
int uni__comm_break(uni_comm *comm, const uni_error *err);

/* request.c */
void uni__requests_free(uni_comm *comm);
/* One call from beginning to end. *total_weight may be NULL. */
int uni__comm_run(uni_comm *comm, const uni__call *call, double *total_weight,
                  uni_error *err) UNI_MUST_USE;
int uni__comm_start(uni_comm *comm, const uni__call *call, uni_comm_request **out,
                    uni_error *err) UNI_MUST_USE;

/* call.c */
/* How many segments of `count` elements a rank's input has: size for reduce_scatter and all_to_all. */
size_t uni__call_segments(const uni__call *call, int size);
/* Bytes of one segment. */
size_t uni__call_bytes(const uni__call *call);
int uni__call_check(const uni_comm *comm, const uni__call *call, uni_error *err) UNI_MUST_USE;

#endif
