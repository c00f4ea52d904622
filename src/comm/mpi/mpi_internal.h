/* mpi_internal.h - finding the plug-in (loader.c), for mpi.c. */
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

#endif
