/*
 * loader.c - finds and opens the plug-in of an MPI family: libunisono-mpi-FAMILY.so in the directories of
 * $UNISONO_PLUGINS, beside libunisono.so, in unisono/ beside it, or in the build directory. Only full paths are
 * opened: the name alone would make the loader search where somebody else may have put a file.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi/mpi_internal.h"

static bool own_directory(char *out, size_t size)
{
    Dl_info info;
    char path[PATH_MAX];
    if (dladdr((void *)(uintptr_t)&own_directory, &info) != 0 && info.dli_fname != NULL &&
        info.dli_fname[0] == '/') {
        snprintf(path, sizeof path, "%s", info.dli_fname);
    } else {
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
        if (length <= 0)
            return false;
        path[length] = 0;
    }
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return false;
    *slash = 0;
    return (size_t)snprintf(out, size, "%s", path) < size;
}

/* 1: opened, 0: not there, negative: there but unusable. */
static int try_open(const char *dir, const char *below, const char *family,
                    const uni__mpi_plugin **out, uni_error *err)
{
    char path[PATH_MAX];
    if (dir[0] != '/' ||
        (size_t)snprintf(path, sizeof path, "%s%s/libunisono-mpi-%s.so", dir, below, family) >=
            sizeof path ||
        access(path, R_OK) != 0)
        return 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        return uni_error_set(err, UNI_EUNSUPPORTED, "%s cannot be loaded: %s", path,
                             reason ? reason : "?");
    }
    const uni__mpi_plugin *(*get)(void) = NULL;
    *(void **)&get = dlsym(library, UNI__MPI_PLUGIN_SYMBOL);
    const uni__mpi_plugin *plugin = get ? get() : NULL;
    if (!plugin || plugin->version != UNI__MPI_PLUGIN_VERSION) {
        dlclose(library);
        return uni_error_set(
            err, UNI_EVERSION,
            "%s does not belong to this libunisono: install both from the same build", path);
    }
    *out = plugin;
    return 1;
}

static int find(const char *family, const uni__mpi_plugin **out, uni_error *err)
{
    static const char *const below[] = { "", "/unisono", "/../comm", "/src/comm" };
    char dir[PATH_MAX] = "";
    const char *list = getenv("UNISONO_PLUGINS");
    char *copy = list ? strdup(list) : NULL, *rest = copy, *one;
    int found = 0;
    while (found == 0 && rest != NULL && (one = strsep(&rest, ":")) != NULL)
        found = try_open(one, "", family, out, err);
    free(copy);
    if (found == 0 && own_directory(dir, sizeof dir))
        for (size_t i = 0; i < sizeof below / sizeof below[0] && found == 0; i++)
            found = try_open(dir, below[i], family, out, err);
    return found;
}

int uni__mpi_plugin_load(const uni__mpi_plugin **out, const char *family, uni_error *err)
{
    const char *order[] = { "openmpi", "mpich" };
    int found = 0;
    /* Who started us? mpirun of Open MPI says so; Hydra and Slurm's PMI otherwise. */
    if (!getenv("OMPI_COMM_WORLD_RANK") && (getenv("PMI_RANK") || getenv("MPI_LOCALRANKID"))) {
        order[0] = "mpich";
        order[1] = "openmpi";
    }
    if (family)
        found = find(family, out, err);
    for (int i = 0; i < 2 && !family && found == 0; i++)
        found = find(order[i], out, err);
    if (found != 0)
        return found < 0 ? found : 0;
    return uni_error_set(err, UNI_EUNSUPPORTED,
                         "collectives between hosts need libunisono-mpi-%s.so, which is neither in "
                         "UNISONO_PLUGINS nor beside the "
                         "library: install an MPI (Debian: libopenmpi-dev) and build unisono again",
                         family ? family : "openmpi");
}
