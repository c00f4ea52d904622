/*
 * loader.c - the plug-in of an MPI family, libunisono-mpi-FAMILY.so, opened on first use
 * (base/plugin.h).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/plugin.h"
#include "comm/mpi/mpi_internal.h"

static int open_family(const char *family, const uni__mpi_plugin **out, uni_error *err)
{
    char file[64];
    snprintf(file, sizeof file, "libunisono-mpi-%s.so", family);
    const uni__plugin plugin = { .file = file,
                                 .symbol = UNI__MPI_PLUGIN_SYMBOL,
                                 .version = UNI__MPI_PLUGIN_VERSION,
                                 .built = "src/comm",
                                 .purpose = "collectives between hosts",
                                 .packages = "an MPI, in Debian libopenmpi-dev",
                                 .otherwise = "install it and build unisono again" };
    const void *table = NULL;
    UNI_TRY(uni__plugin_open(&table, &plugin, err));
    *out = table;
    return 0;
}

int uni__mpi_plugin_load(const uni__mpi_plugin **out, const char *family, uni_error *err)
{
    const char *order[] = { "openmpi", "mpich" };
    /* Who started us? mpirun of Open MPI says so; Hydra and Slurm's PMI otherwise. */
    if (!getenv("OMPI_COMM_WORLD_RANK") && (getenv("PMI_RANK") || getenv("MPI_LOCALRANKID"))) {
        order[0] = "mpich";
        order[1] = "openmpi";
    }
    if (family)
        return open_family(family, out, err);
    if (open_family(order[0], out, NULL) == 0)
        return 0;
    /* The sentence is about the family that this process was started by, when there is neither. */
    return open_family(order[1], out, NULL) == 0 ? 0 : open_family(order[0], out, err);
}
