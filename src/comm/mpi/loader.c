/*
 * loader.c - the plug-in of an MPI family, libunisono-mpi-FAMILY.so, opened on first use
 * (base/plugin.h), and its end: a launcher takes a process that ends without MPI_Finalize for a failed one.
 *
 * MPI_Finalize waits for all ranks, so it is no part of closing a communicator, which a rank also does when it has failed and the others
 * wait for it. It is called when the process ends with code 0.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/plugin.h"
#include "comm/mpi/mpi_internal.h"

/* Of the process, as MPI is. */
static const uni__mpi_plugin *in_use;

void uni__comm_finish(void)
{
    if (in_use)
        in_use->finish();
}

static void at_exit(int code, void *unused)
{
    if (code == 0)
        uni__comm_finish();
}

void uni__mpi_plugin_used(const uni__mpi_plugin *plugin)
{
    /* After MPI_Init: what MPI itself does at the end of the process comes later. */
    if (!in_use && on_exit(at_exit, NULL) == 0)
        in_use = plugin;
}

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
    /* Who started us? mpirun of Open MPI says so, and Hydra. The other family would make a world of one process of each. */
    if (!family && getenv("OMPI_COMM_WORLD_RANK"))
        family = "openmpi";
    else if (!family && (getenv("MPI_LOCALRANKID") || getenv("PMI_PORT")))
        family = "mpich";
    if (family)
        return open_family(family, out, err);
    if (getenv("PMI_RANK")) { /* Slurm's */
        order[0] = "mpich";
        order[1] = "openmpi";
    }
    if (open_family(order[0], out, NULL) == 0)
        return 0;
    /* The sentence is about the family that this process was started by, when there is neither. */
    return open_family(order[1], out, NULL) == 0 ? 0 : open_family(order[0], out, err);
}
