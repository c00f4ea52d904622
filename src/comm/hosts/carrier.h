/*
 * carrier.h - the interface of a plug-in that carries data between hosts. It contains no MPI types:
 * the ABIs of MPI families differ, so each has its own shared object, built from mpi/plugin.c with
 * that family's mpi.h.
 *
 * The plug-in is opened with RTLD_LOCAL and needs nothing from the library. Every function returns
 * 0, or a negative uni_status with a message in `why` (WHY_SIZE bytes). Called only on the
 * communicator's thread.
 */
#ifndef UNISONO_COMM_CARRIER_H
#define UNISONO_COMM_CARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNI__CARRIER_VERSION 10u
#define UNI__MPI_PLUGIN_SYMBOL "uni__mpi_plugin_get"
#define UNI__WHY_SIZE 512
#define UNI__NOTE_SIZE 480

/* A call that all ranks must make alike: its number; kind, dtype, operation and root in one word;
 * and its count. This struct is sent as it is. */
typedef struct uni__said {
    uint64_t number, what, count;
} uni__said;

/* A rank whose call differs. more: it sent more than `count`. */
typedef struct uni__carrier_difference {
    int rank; /* -1: no difference */
    bool more;
    uni__said said;
} uni__carrier_difference;

typedef struct uni__carrier_call {
    int kind, dtype, op, root; /* as in uni__call */
    /* Over hosts: the call that this one is a part of. */
    uni__said said;
    size_t count;
    const void *in;
    void *out;
    double *weight; /* NULL, or summed over the ranks in place */
    /* into[i] = into[i] op from[i], by the library's own kernels. */
    void (*combine)(const void *context, int dtype, int op, void *into, const void *from,
                    size_t count);
    const void *combine_context;
} uni__carrier_call;

/* A rank sends this to the others when it has waited for long, or gives up. */
typedef struct uni__carrier_note {
    /* code: 0 while waiting, otherwise the error it gives up with. */
    int32_t rank, code;
    uint64_t number, what, count; /* the collective it is in */
    char text[UNI__NOTE_SIZE];
} uni__carrier_note;

/* The place a sealed message belongs to; it cannot be opened anywhere else. */
typedef struct uni__seal_place {
    uint64_t comm; /* the communicator */
    int32_t from, to; /* to: -1 for all */
    /* The number of the call, and of the message within it. */
    uint64_t number, part;
    uint64_t kind; /* as in uni__call, 0 for a note */
} uni__seal_place;

/* The library's functions that seal what MPI carries (seal.c). */
typedef struct uni__seal {
    void *context;
    /* How many bytes sealing adds; at most UNI__SEAL_MAX. */
    size_t extra;
    /* `out` has room for size + extra bytes. */
    void (*seal)(void *context, const uni__seal_place *place, void *out, const void *in,
                 size_t size);
    /* `in` has size + extra bytes; `out` may be `in`. Returns -1 unless it was sealed for this
     * place. */
    int (*open)(void *context, const uni__seal_place *place, void *out, const void *in,
                size_t size);
} uni__seal;
#define UNI__SEAL_MAX 64

typedef struct uni__carrier {
    uint32_t version;
    const char *family; /* "openmpi", "mpich", "ucx" */
    /* The process may continue after a peer's death and open another communicator. Closing then
     * frees everything, after sending what is still queued. */
    bool survives;
    /* Initializes MPI unless the process already has, and begins to greet all ranks of the
     * world. */
    int (*open)(void **state, int *rank, int *size, char *why);
    /* Call before `meet`: seals everything from now on, including in communicators that are split
     * off. The seal must live as long as `state`. */
    void (*protect)(void *state, const uni__seal *seal);
    /* Sets *done when all ranks have answered; then `state` has its own communicator over the whole
     * world. No other call is allowed before that. */
    int (*meet)(void *state, int *done, char *why);
    /* Collective over `state`: ranks with the same color (from 0) get a communicator. With color -1
     * *out is NULL. members: those `count` ranks, ascending. `state` must outlive it. */
    int (*split)(void *state, int color, const int *members, int count, void **out, int *rank,
                 int *size, char *why);
    int (*start)(void *state, const uni__carrier_call *call, void **handle, char *why);
    /* Sets *done when the call is complete, which also frees the handle. UNI_EMISMATCH: `differs`
     * has the rank and its call. */
    int (*test)(void *state, void *handle, int *done, uni__carrier_difference *differs, char *why);
    /* A number that grows whenever the call progresses, or 0 when that cannot be observed. */
    uint64_t (*progress)(void *handle);
    /* For a receive under way: whether its sender has closed its communicator, and what it had sent
     * before has arrived. That alone does not fail a receive, as it fails collectives. NULL: not
     * known. */
    bool (*is_deserted)(void *state, void *handle);
    int (*send_notes)(void *state, const uni__carrier_note *note, char *why); /* to all others */
    int (*next_note)(void *state, uni__carrier_note *note, int *got, char *why);
    /* proper: all ranks are here and nothing is under way, so MPI may be finalized if we
     * initialized it. Otherwise nothing calls MPI any more. */
    void (*close)(void *state, int proper);
    /* After an error: nothing in this process calls MPI any more. */
    void (*abandon)(void);
    /* For a process that ends successfully: finalizes MPI, if we initialized it and it was neither
     * finalized nor abandoned. Waits for all ranks. */
    void (*finish)(void);
} uni__carrier;

#endif
