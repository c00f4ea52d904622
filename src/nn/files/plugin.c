/*
 * plugin.c - finds and opens libunisono-keras.so. dlopen counts references by itself, so nothing is
 * remembered. Only full paths are opened: the name alone would make the loader search where
 * somebody else may have put a file. Any thread.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nn/files/files.h"

/* The directory of the file that this code was loaded from. */
static bool own_directory(char *out, size_t size)
{
    Dl_info info;
    char path[PATH_MAX];
    if (dladdr((void *)(uintptr_t)&own_directory, &info) != 0 && info.dli_fname != NULL &&
        info.dli_fname[0] == '/') {
        snprintf(path, sizeof path, "%s", info.dli_fname);
    } else { /* linked into the program itself, which is known by the name it was started with */
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
        if (length <= 0)
            return false;
        path[length] = '\0';
    }
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return (size_t)snprintf(out, size, "%s", path) < size;
}

/* 1: opened, 0: not there, negative: there but unusable (err says why). */
static int try_open(const char *directory, const char *below, const uni__keras_plugin **out,
                    uni_error *err)
{
    char path[PATH_MAX];
    if (directory[0] != '/' ||
        (size_t)snprintf(path, sizeof path, "%s%s/%s", directory, below, UNI__KERAS_PLUGIN_FILE) >=
            sizeof path ||
        access(path, R_OK) != 0)
        return 0;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *reason = dlerror();
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "%s cannot be loaded: %s (it needs the Debian packages libhdf5-103-1 and libzip4)",
            path, reason != NULL ? reason : "?");
    }
    const uni__keras_plugin *(*get)(void) = NULL;
    *(void **)&get = dlsym(handle, UNI__KERAS_PLUGIN_SYMBOL);
    const uni__keras_plugin *plugin = get != NULL ? get() : NULL;
    if (plugin == NULL || plugin->version != UNI__KERAS_PLUGIN_VERSION) {
        dlclose(handle);
        return uni_error_set(
            err, UNI_EVERSION,
            "%s does not belong to this libunisono-engine: install both from the same build", path);
    }
    *out = plugin;
    return 1;
}

static int try_environment(const uni__keras_plugin **out, uni_error *err)
{
    const char *list = getenv("UNISONO_PLUGINS");
    char *copy = list != NULL ? strdup(list) : NULL, *rest = copy, *directory;
    int found = 0;
    while (found == 0 && rest != NULL && (directory = strsep(&rest, ":")) != NULL)
        found = try_open(directory, "", out, err);
    free(copy);
    return found;
}

int uni__keras_plugin_load(const uni__keras_plugin **out, uni_error *err)
{
    /* Installed: beside the library, or in a folder of our own. Built: src/engine, src/nn and
     * src/nn/keras are neighbours; and from programs of the build that have the engine linked in.
     * */
    static const char *const below[] = { "",       "/unisono",      "/../nn/keras",
                                         "/keras", "/src/nn/keras", "/../src/nn/keras" };
    char directory[PATH_MAX] = "";
    int found = try_environment(out, err);
    if (found == 0 && own_directory(directory, sizeof directory))
        for (size_t i = 0; i < sizeof below / sizeof below[0] && found == 0; i++)
            found = try_open(directory, below[i], out, err);
    if (found != 0)
        return found < 0 ? found : 0;
    return uni_error_set(err, UNI_EUNSUPPORTED,
                         "files of Keras need %s (and the Debian packages libhdf5-103-1 and "
                         "libzip4), which is neither in UNISONO_PLUGINS "
                         "nor in %s; .safetensors files need nothing",
                         UNI__KERAS_PLUGIN_FILE,
                         directory[0] != '\0' ? directory : "the library's directory");
}
