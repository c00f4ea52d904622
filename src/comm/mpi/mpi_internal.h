/* mpi_internal.h - what mpi.c, hosts.c, loader.c and stall.c share. */
#ifndef UNISONO_COMM_MPI_INTERNAL_H
#define UNISONO_COMM_MPI_INTERNAL_H

#include "comm/internal.h"
#include "comm/mpi/plugin.h"

/* family: "openmpi", "mpich", or NULL for the one that started this process (by its environment), else the first
 * that is there. Opened with RTLD_LOCAL and never closed: MPI does not like to be. */
int uni__mpi_plugin_load(const uni__mpi_plugin **out, const char *family,
                         uni_error *err) UNI_MUST_USE;

/* Collective over `world` (a communicator over MPI, which must live longer): one for all ranks with the same color; *out is NULL for color -1. Of
 * peers rank and size are filled in. */
int uni__comm_split_mpi(uni_comm **out, uni_comm *world, int color, const uni__rendezvous *peers,
                        const uni_comm_options *options, uni_error *err) UNI_MUST_USE;

/* stall.c: all zero at first but for the key, by which the ranks of one communicator tell each other. */
typedef struct uni__stall {
    const char *key;
    uint64_t order, progress, since_ns; /* of the request that waits */
    bool told;
    uint64_t *reached; /* by rank: the collective that it has waited in */
} uni__stall;
/* For the oldest request that waits, now and then. progress: grows when something moved; 0 when that is not known. true: all ranks have come to it and
 * nothing has moved for too long. */
bool uni__stall_found(uni__stall *stall, uni_comm_request *request, uint64_t progress,
                      uint64_t now_ns);
void uni__stall_free(uni__stall *stall);

#endif
