/* mpi_internal.h - finding the plug-in (loader.c), for mpi.c. */
#ifndef UNISONO_COMM_MPI_INTERNAL_H
#define UNISONO_COMM_MPI_INTERNAL_H

#include "comm/internal.h"
#include "comm/mpi/plugin.h"

/* family: "openmpi", "mpich", or NULL for the one that started this process (by its environment), else the first
 * that is there. Opened with RTLD_LOCAL and never closed: MPI does not like to be. */
int uni__mpi_plugin_load(const uni__mpi_plugin **out, const char *family,
                         uni_error *err) UNI_MUST_USE;

#endif
