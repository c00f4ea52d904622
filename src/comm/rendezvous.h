/*
 * rendezvous.h - how the ranks of a communicator find each other.
 *
 * comm does not know the controller, agents or sessions: the opener of a communicator passes these
 * few functions. src/train implements them over the session's channel. rendezvous_socket.c
 * implements them over socket pairs, for forked processes and for processes started by hand.
 * Threads of one process need none.
 *
 * The thread that opens or uses the communicator makes all calls. `put`, `get`, `pass` and
 * `receive` are called only while opening and in uni_comm_alloc, never in a collective.
 */
#ifndef UNISONO_COMM_RENDEZVOUS_H
#define UNISONO_COMM_RENDEZVOUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/comm.h>

typedef struct uni__rendezvous_vtable {
    const char *name;
    /* Publishes a small value (up to 1 KiB) to all ranks under this rank and key. Does not wait for
     * readers. */
    int (*put)(void *context, const char *key, const void *data, size_t size, uni_error *err);
    /* Waits until `rank` has put the key. UNI_EPEER when the rank is gone, UNI_ETIMEOUT, or
     * UNI_ELIMIT for more than `capacity` bytes. */
    int (*get)(void *context, int rank, const char *key, void *data, size_t capacity, size_t *size,
               int timeout_ms, uni_error *err);
    /* Passes a descriptor to one rank of the same host; the caller keeps its own. NULL: there is
     * only one process. */
    int (*pass)(void *context, int to, int fd, uni_error *err);
    /* Waits for the next descriptor from this rank, in the order passed. The caller owns it. */
    int (*receive)(void *context, int from, int *fd, int timeout_ms, uni_error *err);
    /* Optional. false when the rank is known to be dead, stopped or silent; `why` gets a predicate
     * ("was killed by signal 9", "is silent since 1.2 s"). Called about every 20 ms while waiting
     * for that rank, so it must not block. */
    bool (*alive)(void *context, int rank, char *why, size_t why_size);
    /* Optional. Explains a nonzero abort word. */
    void (*abort_reason)(void *context, char *why, size_t why_size);
} uni__rendezvous_vtable;

typedef struct uni__rendezvous {
    const uni__rendezvous_vtable *vtable;
    void *context; /* outlives the communicator */
    int rank, size;
    /* Optional: what the ranks are called in messages and records, where other numbers mean
     * something to the user. Like context, it outlives the communicator. */
    const int *names;
    /* Optional: nonzero when the group must give up (the session's page has one). */
    const _Atomic uint32_t *abort_word;
    /* Optional: 32 bytes, the same on all ranks. Seals the data sent between hosts. */
    const uint8_t *data_key;
    /* Optional: this host's address in the network to use. */
    const char *address;
} uni__rendezvous;

/* Opens a communicator for this rank. Waits until all ranks have opened theirs, at most
 * open_timeout_ms (0: 60 s). */
int uni__comm_open_shm(uni_comm **out, const uni__rendezvous *peers,
                       const uni_comm_options *options, int open_timeout_ms,
                       uni_error *err) UNI_MUST_USE;

/* Over MPI: rank and size come from MPI_COMM_WORLD (the process was started by mpirun or srun).
 * peers may be NULL; only its abort word, alive and abort_reason are used. family: see
 * src/comm/hosts/carrier_internal.h, or NULL. After an error the process must end by _exit: MPI is
 * not called any more, not even to finalize. */
int uni__comm_open_mpi(uni_comm **out, const uni__rendezvous *peers,
                       const uni_comm_options *options, const char *family,
                       uni_error *err) UNI_MUST_USE;

/* Over UCX: the ranks need no launcher, only the rendezvous, which carries their addresses. A dead
 * peer is an error that names it; the process continues, and the survivors may open another
 * communicator. epoch: unique among all communicators that the same processes ever open. */
int uni__comm_open_ucx(uni_comm **out, const uni__rendezvous *peers,
                       const uni_comm_options *options, uint32_t epoch, int open_timeout_ms,
                       uni_error *err) UNI_MUST_USE;

/* Whether our plug-in for UCX can be opened on this host. */
bool uni__comm_has_ucx(void);

/* What goes between hosts. */
typedef struct uni__between {
    bool ucx; /* otherwise MPI */
    const char *family; /* of MPI, or NULL */
    uint32_t epoch; /* for UCX */
    int open_timeout_ms; /* for UCX; 0: 60 s */
} uni__between;

/* Over several hosts with several ranks each: shared memory inside a host, UCX or MPI between the
 * hosts (hosts/hosts.c). locals: the ranks of this host, ascending. */
int uni__comm_open_hosts(uni_comm **out, const uni__rendezvous *peers, const int *locals,
                         int num_locals, const uni_comm_options *options,
                         const uni__between *between, uni_error *err) UNI_MUST_USE;

/* The communicator owns the rendezvous' context from now on: frees it when it is closed. */
void uni__comm_take_peers(uni_comm *comm, void (*release)(void *context));

/* Call before a successful _exit: finalizes MPI if a communicator has started it and none has
 * failed. exit(0) does the same by itself. Waits for all ranks. */
void uni__comm_finish(void);

/* For forked processes: mesh_new before the fork, mesh_rank in each child (closes the descriptors
 * of the others), mesh_free everywhere. */
typedef struct uni__socket_mesh uni__socket_mesh;
int uni__socket_mesh_new(uni__socket_mesh **out, int size, uni_error *err) UNI_MUST_USE;
void uni__socket_mesh_free(uni__socket_mesh *mesh);
/* For processes of one user that were started by hand: those with the same name and size meet
 * through abstract sockets, so no file is left. Waits for all of them, and after 2 s logs which are
 * missing. labels: names of the ranks for messages; NULL: "rank N". */
int uni__socket_mesh_connect(uni__socket_mesh **out, const char *name, int rank, int size,
                             char *const *labels, int timeout_ms, uni_error *err) UNI_MUST_USE;
uni__rendezvous uni__socket_mesh_rank(uni__socket_mesh *mesh, int rank);

#endif
