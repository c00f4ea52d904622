/*
 * rendezvous.h - how the ranks of a communicator find each other.
 *
 * comm knows no controller, no agent and no session: whoever opens a communicator gives it these few
 * functions. src/train implements them over the session's channel; rendezvous_socket.c over socket pairs, for
 * forked processes and for those that were started by hand. Threads of one process need none.
 *
 * All functions are called by the thread that opens or uses the communicator. `put`, `get`, `pass` and
 * `receive` are used while opening and in uni_comm_alloc only, never in a collective.
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
    /* A small value (up to 1 KiB) for all ranks under this rank and key. Does not wait for readers. */
    int (*put)(void *context, const char *key, const void *data, size_t size, uni_error *err);
    /* Waits until `rank` has put the key; UNI_EPEER when it is gone, UNI_ETIMEOUT. More than
     * `capacity` bytes is UNI_ELIMIT. */
    int (*get)(void *context, int rank, const char *key, void *data, size_t capacity, size_t *size,
               int timeout_ms, uni_error *err);
    /* A descriptor to one rank of the same host; the caller keeps its own. NULL: there is one process. */
    int (*pass)(void *context, int to, int fd, uni_error *err);
    /* Waits for one from this rank, in the order passed. The descriptor is the caller's. */
    int (*receive)(void *context, int from, int *fd, int timeout_ms, uni_error *err);
    /* Optional. false when the rank is known to be dead, stopped or silent; why gets a sentence part
     * ("was killed by signal 9", "is silent since 1.2 s"). Asked about every 20 ms while waiting for that
     * rank, so it must not block. */
    bool (*alive)(void *context, int rank, char *why, size_t why_size);
    /* Optional. The sentence for an abort word that is not 0. */
    void (*abort_reason)(void *context, char *why, size_t why_size);
} uni__rendezvous_vtable;

typedef struct uni__rendezvous {
    const uni__rendezvous_vtable *vtable;
    void *context; /* lives as long as the communicator */
    int rank, size;
    /* Optional: not 0 when the group is to give up (the session's page has one). */
    const _Atomic uint32_t *abort_word;
    /* Optional: 32 bytes, the same on all ranks. What goes between hosts is sealed with it. */
    const uint8_t *data_key;
} uni__rendezvous;

/* One communicator for this rank; waits until all ranks have opened theirs (at most open_timeout_ms,
 * 0: 60 s). */
int uni__comm_open_shm(uni_comm **out, const uni__rendezvous *peers,
                       const uni_comm_options *options, int open_timeout_ms,
                       uni_error *err) UNI_MUST_USE;

/* Over MPI: rank and size are those of MPI's world (the process was started by mpirun or srun). peers may be NULL; of it
 * only the abort word, alive and abort_reason are used. family: see src/comm/mpi/mpi_internal.h, or NULL. After an error
 * the process must end by _exit: MPI is not called any more, not even to finalise. */
int uni__comm_open_mpi(uni_comm **out, const uni__rendezvous *peers,
                       const uni_comm_options *options, const char *family,
                       uni_error *err) UNI_MUST_USE;

/* Over several hosts with several ranks each: shared memory inside a host, MPI between the hosts (mpi/hosts.c). locals: the ranks of
 * this host, in ascending order. */
int uni__comm_open_hosts(uni_comm **out, const uni__rendezvous *peers, const int *locals,
                         int num_locals, const uni_comm_options *options, const char *family,
                         uni_error *err) UNI_MUST_USE;

/* The process ends well, by _exit: MPI is finalised if a communicator has started it and none has failed. exit(0) does the same by itself. Waits
 * for all ranks. */
void uni__comm_finish(void);

/* For forked processes: mesh_new before the fork, mesh_rank in each child (closes what belongs to the
 * others), mesh_free everywhere. */
typedef struct uni__socket_mesh uni__socket_mesh;
int uni__socket_mesh_new(uni__socket_mesh **out, int size, uni_error *err) UNI_MUST_USE;
void uni__socket_mesh_free(uni__socket_mesh *mesh);
/* For processes of one user that were started by hand: those that give the same name and size meet (abstract sockets; nothing is left in the
 * file system). Waits until all are there, and says after 2 s for whom. labels: what people call the ranks; NULL: "rank N". */
int uni__socket_mesh_connect(uni__socket_mesh **out, const char *name, int rank, int size,
                             char *const *labels, int timeout_ms, uni_error *err) UNI_MUST_USE;
uni__rendezvous uni__socket_mesh_rank(uni__socket_mesh *mesh, int rank);

#endif
