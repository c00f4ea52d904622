/*
 * plugin.h - what a plug-in for one MPI family offers, without a type of MPI in it (their ABIs differ, so
 * each family has its own shared object, made from plugin.c with that family's mpi.h).
 *
 * The plug-in is opened with RTLD_LOCAL and needs nothing from the library. Every function returns 0 or a negative
 * uni_status and then a sentence in `why` (WHY_SIZE bytes). The communicator's thread only.
 */
#ifndef UNISONO_COMM_MPI_PLUGIN_H
#define UNISONO_COMM_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNI__MPI_PLUGIN_VERSION 8u
#define UNI__MPI_PLUGIN_SYMBOL "uni__mpi_plugin_get"
#define UNI__MPI_WHY_SIZE 512
#define UNI__MPI_NOTE_SIZE 480

/* A call as all ranks must make it: its number, kind, dtype, operation and root in one word, and its count. Travels in this form. */
typedef struct uni__mpi_said {
    uint64_t number, what, count;
} uni__mpi_said;

/* Another rank called something else. more: it sent more than `count`. */
typedef struct uni__mpi_difference {
    int rank; /* -1: there is none */
    bool more;
    uni__mpi_said said;
} uni__mpi_difference;

typedef struct uni__mpi_call {
    int kind, dtype, op, root; /* as in uni__call */
    uni__mpi_said said; /* over hosts: the call that this one is a part of */
    size_t count;
    const void *in;
    void *out;
    double *weight; /* NULL, or summed over the ranks in place */
    /* into[i] = into[i] op from[i], by the library's own kernels; context is combine_context. */
    void (*combine)(const void *context, int dtype, int op, void *into, const void *from,
                    size_t count);
    const void *combine_context;
} uni__mpi_call;

/* What a rank tells the others when it waits for long, or gives up. */
typedef struct uni__mpi_note {
    int32_t rank, code; /* code: 0 waiting, otherwise the error it gives up with */
    uint64_t number, what, count; /* the collective it is in */
    char text[UNI__MPI_NOTE_SIZE];
} uni__mpi_note;

/* Where a sealed message belongs: it opens nowhere else. */
typedef struct uni__mpi_place {
    uint32_t comm, kind; /* which communicator; as in uni__call, 0 for a note */
    int32_t from, to; /* to: -1 for all */
    uint64_t number, part; /* of the call, and of the message in it */
} uni__mpi_place;

/* The library's functions that seal what MPI carries (seal.c). */
typedef struct uni__mpi_seal {
    void *context;
    size_t extra; /* bytes that a sealed message is longer; at most UNI__MPI_SEAL_MAX */
    /* `out` has room for size + extra bytes. */
    void (*seal)(void *context, const uni__mpi_place *place, void *out, const void *in,
                 size_t size);
    /* `in` has size + extra bytes; `out` may be `in`. 0, or -1 when it is not what was sealed for this place. */
    int (*open)(void *context, const uni__mpi_place *place, void *out, const void *in, size_t size);
} uni__mpi_seal;
#define UNI__MPI_SEAL_MAX 64

typedef struct uni__mpi_plugin {
    uint32_t version;
    const char *family; /* "openmpi", "mpich" */
    /* Initialises MPI when nobody has, and begins to greet all ranks of the world. */
    int (*open)(void **state, int *rank, int *size, char *why);
    /* Before `meet`: from now on all that is sent is sealed, in communicators that are split off too. It must live as long as `state`. */
    void (*protect)(void *state, const uni__mpi_seal *seal);
    /* *done is set when all ranks have answered; then there is a communicator of its own over the whole world. Before, nothing else may be called. */
    int (*meet)(void *state, int *done, char *why);
    /* Collective over `state`: those with the same color (from 0) get a communicator of their own; color -1: none, *out is NULL. `state` must
     * live longer. */
    int (*split)(void *state, int color, void **out, int *rank, int *size, char *why);
    int (*start)(void *state, const uni__mpi_call *call, void **handle, char *why);
    /* *done is set when the call is complete; the handle is then gone. UNI_EMISMATCH: `differs` says which rank called what instead. */
    int (*test)(void *state, void *handle, int *done, uni__mpi_difference *differs, char *why);
    /* Of a call under way: a number that grows when something moved, or 0 when that cannot be seen. */
    uint64_t (*progress)(void *handle);
    int (*send_notes)(void *state, const uni__mpi_note *note, char *why); /* to all others */
    int (*next_note)(void *state, uni__mpi_note *note, int *got, char *why);
    /* proper: all ranks are here and nothing is under way, so MPI may be finalised (if we initialised it).
     * Otherwise nothing of MPI is called any more. */
    void (*close)(void *state, int proper);
    /* After an error: nothing of MPI is called any more in this process. */
    void (*abandon)(void);
    /* The process ends well: MPI is finalised, if we initialised it, nobody has finalised it and it was not abandoned. Waits for all ranks. */
    void (*finish)(void);
} uni__mpi_plugin;

#endif
