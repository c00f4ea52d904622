/*
 * plugin.c - finds and opens the shared object that has the HTTP client (http_plugin.h).
 *
 * dlopen counts references by itself, so nothing is remembered here. Only full paths are opened:
 * the name alone would make the loader search where somebody else may have put a file.
 */
#include "track/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        path[length] = 0;
    }
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return false;
    *slash = 0;
    return (size_t)snprintf(out, size, "%s", path) < size;
}

/* 1: opened, 0: not there, negative: there but unusable (err says why). */
static int try_open(const char *dir, const char *below, const uni__http_plugin **out,
                    uni_error *err)
{
    char path[PATH_MAX];
    if (dir[0] != '/' ||
        (size_t)snprintf(path, sizeof path, "%s%s/%s", dir, below, UNI__HTTP_PLUGIN_FILE) >=
            sizeof path ||
        access(path, R_OK) != 0)
        return 0;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *reason = dlerror();
        bool curl = reason != NULL && strstr(reason, "libcurl") != NULL;
        return uni_error_set(err, UNI_EUNSUPPORTED, "%s cannot be loaded: %s%s", path,
                             reason != NULL ? reason : "?",
                             curl ? " (install the Debian package libcurl4)" : "");
    }
    const uni__http_plugin *(*get)(void) = NULL;
    *(void **)&get = dlsym(handle, UNI__HTTP_PLUGIN_SYMBOL);
    const uni__http_plugin *plugin = get != NULL ? get() : NULL;
    if (plugin == NULL || plugin->version != UNI__HTTP_PLUGIN_VERSION) {
        dlclose(handle);
        return uni_error_set(
            err, UNI_EVERSION,
            "%s does not belong to this libunisono: install both from the same build", path);
    }
    *out = plugin;
    return 1;
}

static int try_environment(const uni__http_plugin **out, uni_error *err)
{
    const char *list = getenv("UNISONO_PLUGINS");
    char *copy = list != NULL ? strdup(list) : NULL, *rest = copy, *dir;
    int found = 0;
    while (found == 0 && rest != NULL && (dir = strsep(&rest, ":")) != NULL)
        found = try_open(dir, "", out, err);
    free(copy);
    return found;
}

int uni__http_plugin_load(const uni__http_plugin **out, uni_error *err)
{
    /* Installed: beside the library, or in a folder of our own. Built: src/lib and src/track are
     * neighbours. */
    static const char *const below[] = { "", "/unisono", "/../track", "/src/track" };
    char dir[PATH_MAX] = "";
    int found = try_environment(out, err);
    if (found == 0 && own_directory(dir, sizeof dir))
        for (size_t i = 0; i < sizeof below / sizeof below[0] && found == 0; i++)
            found = try_open(dir, below[i], out, err);
    if (found != 0)
        return found < 0 ? found : 0;
    return uni_error_set(err, UNI_EUNSUPPORTED,
                         "reporting to an MLflow server needs %s (and the Debian package "
                         "libcurl4), which is neither in "
                         "UNISONO_PLUGINS nor in %s; without a server leave the tracking URI out: "
                         "the run is then kept in files",
                         UNI__HTTP_PLUGIN_FILE, dir[0] != 0 ? dir : "the library's directory");
}
