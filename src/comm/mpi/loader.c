/*
 * loader.c - the plug-in of an MPI family, libunisono-mpi-FAMILY.so: opens it on first use
 * (base/plugin.h), and finalizes MPI. A launcher reports a process that ends without MPI_Finalize
 * as failed.
 *
 * MPI_Finalize waits for all ranks, so it cannot be part of closing a communicator: a failed rank
 * also closes, while the others wait for it. It is called when the process ends with code 0.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/plugin.h"
#include "comm/hosts/carrier_internal.h"
#include "comm/ucx/plugin.h"

/* Per process, like MPI itself. */
static const uni__carrier *in_use;

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

void uni__mpi_plugin_used(const uni__carrier *plugin)
{
    /* Register after MPI_Init, so that MPI's own exit handlers run later. */
    if (!in_use && on_exit(at_exit, NULL) == 0)
        in_use = plugin;
}

static int open_family(const char *family, const uni__carrier **out, uni_error *err)
{
    char file[64];
    snprintf(file, sizeof file, "libunisono-mpi-%s.so", family);
    const uni__plugin plugin = { .file = file,
                                 .symbol = UNI__MPI_PLUGIN_SYMBOL,
                                 .version = UNI__CARRIER_VERSION,
                                 .built = "src/comm",
                                 .purpose = "collectives between hosts",
                                 .packages = "an MPI, in Debian libopenmpi-dev",
                                 .otherwise = "install it and build unisono again",
                                 .settings = UNI__UCX_SETTINGS,
                                 .reads_later = true };
    const void *table = NULL;
    UNI_TRY(uni__plugin_open(&table, &plugin, err));
    *out = table;
    return 0;
}

int uni__mpi_plugin_load(const uni__carrier **out, const char *family, uni_error *err)
{
    const char *order[] = { "openmpi", "mpich" };
    /* mpirun of Open MPI and Hydra identify themselves. With the other family every process would
     * be a world of its own. */
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
    /* When neither is installed, report the family that started this process. */
    return open_family(order[1], out, NULL) == 0 ? 0 : open_family(order[0], out, err);
}
