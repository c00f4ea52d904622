/*
 * plugin.c - opens plug-ins (plugin.h). Nothing is remembered: dlopen counts references by itself.
 * Only full paths are opened: with the name alone the loader would search directories in which
 * another user may have put a file.
 */
#include "base/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/owned.h"

/* The directory of the file that this code was loaded from. */
static bool own_directory(char *out, size_t size)
{
    Dl_info info;
    char path[PATH_MAX];
    if (dladdr((void *)(uintptr_t)&own_directory, &info) != 0 && info.dli_fname != NULL &&
        info.dli_fname[0] == '/') {
        snprintf(path, sizeof path, "%s", info.dli_fname);
    } else {
        /* Linked into the program itself, whose dli_fname is the name it was started with. */
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

/* ---- settings in the current directory ---- */

typedef struct opening {
    const char *path;
    void *handle;
    bool away; /* it was tried from the root directory */
    char why[512];
} opening;

static void open_here(opening *it)
{
    it->handle = dlopen(it->path, RTLD_NOW | RTLD_LOCAL);
    const char *reason = it->handle == NULL ? dlerror() : NULL;
    snprintf(it->why, sizeof it->why, "%s", reason != NULL ? reason : "?");
}

/* A thread with a current directory of its own. */
static void *open_away(void *argument)
{
    opening *it = argument;
    it->away = unshare(CLONE_FS) == 0 && chdir("/") == 0;
    if (it->away)
        open_here(it);
    return NULL;
}

static int check_settings(const char *name, uni_error *err)
{
    char path[PATH_MAX];
    size_t length = getcwd(path, sizeof path) != NULL ? strlen(path) : sizeof path;
    if (length >= sizeof path ||
        (size_t)snprintf(path + length, sizeof path - length, "/%s", name) >=
            sizeof path - length ||
        access(path, F_OK) != 0 || uni__may_run(path, "/"))
        return 0;
    return uni_error_set(err, UNI_EPERMISSION,
                         "%s belongs to another user, or others can write to it, and would be read "
                         "as settings: remove it, or start the program in another directory",
                         path);
}

static int open_file(opening *it, const uni__plugin *plugin, uni_error *err)
{
    pthread_t thread;
    if (plugin->settings != NULL && pthread_create(&thread, NULL, open_away, it) == 0)
        pthread_join(thread, NULL);
    /* Containers may not allow a directory of its own. */
    if (plugin->settings != NULL && (!it->away || plugin->reads_later))
        UNI_TRY(check_settings(plugin->settings, err));
    if (!it->away)
        open_here(it);
    return 0;
}

/* 1: opened, 0: not there, negative: there but unusable (err says why). own: the directory that we
 * are in, when the path comes from it and not from the user. */
static int try_open(const char *directory, const char *below, const uni__plugin *plugin,
                    const char *own, const void **table, uni_error *err)
{
    char path[PATH_MAX];
    if (directory[0] != '/' ||
        (size_t)snprintf(path, sizeof path, "%s%s%s/%s", directory, below[0] != '\0' ? "/" : "",
                         below, plugin->file) >= sizeof path ||
        access(path, R_OK) != 0)
        return 0;
    if (own && !uni__may_run(path, own)) {
        uni__warn("%s is not loaded: it belongs to another user, or others can write to it", path);
        return 0;
    }
    opening it = { .path = path };
    UNI_TRY(open_file(&it, plugin, err));
    void *handle = it.handle;
    if (handle == NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED, "%s cannot be loaded: %s (it needs %s)", path,
                             it.why, plugin->packages);
    const void *(*get)(void) = NULL;
    *(void **)&get = dlsym(handle, plugin->symbol);
    const void *found = get != NULL ? get() : NULL;
    int version;
    if (found != NULL)
        memcpy(&version, found, sizeof version);
    if (found == NULL || version != plugin->version) {
        dlclose(handle);
        return uni_error_set(
            err, UNI_EVERSION,
            "%s does not belong to this libunisono: install both from the same build", path);
    }
    *table = found;
    return 1;
}

static int try_environment(const uni__plugin *plugin, const void **table, uni_error *err)
{
    const char *list = getenv("UNISONO_PLUGINS");
    char *copy = list != NULL ? strdup(list) : NULL, *rest = copy, *directory;
    int found = 0;
    while (found == 0 && rest != NULL && (directory = strsep(&rest, ":")) != NULL)
        found = try_open(directory, "", plugin, NULL, table, err);
    free(copy);
    return found;
}

/* Installed: beside the library, or in our own folder. Built: below the root of the build
 * directory; the library or program that we are in is one to four folders further down. */
static int try_beside(const char *directory, const uni__plugin *plugin, const void **table,
                      uni_error *err)
{
    static const char *const up[] = { ".", "..", "../..", "../../..", "../../../.." };
    char below[PATH_MAX];
    int found = try_open(directory, "", plugin, directory, table, err);
    if (found == 0)
        found = try_open(directory, "unisono", plugin, directory, table, err);
    for (size_t i = 0; i < sizeof up / sizeof up[0] && found == 0; i++)
        if ((size_t)snprintf(below, sizeof below, "%s/%s", up[i], plugin->built) < sizeof below)
            found = try_open(directory, below, plugin, directory, table, err);
    /* An installed program: PREFIX/bin/unisono or PREFIX/libexec/unisono/unisono-agent, even if the
     * prefix was moved. */
    for (size_t i = 1; i < 3 && found == 0 && UNI__LIBDIR[0] != '/'; i++)
        if ((size_t)snprintf(below, sizeof below, "%s/%s", up[i], UNI__LIBDIR) < sizeof below)
            found = try_open(directory, below, plugin, directory, table, err);
    if (found == 0 && UNI__LIBDIR[0] == '/')
        found = try_open(UNI__LIBDIR, "", plugin, directory, table, err);
    return found;
}

int uni__plugin_open(const void **table, const uni__plugin *plugin, uni_error *err)
{
    char directory[PATH_MAX] = "";
    int found = try_environment(plugin, table, err);
    if (found == 0 && own_directory(directory, sizeof directory))
        found = try_beside(directory, plugin, table, err);
    if (found != 0)
        return found < 0 ? found : 0;
    return uni_error_set(err, UNI_EUNSUPPORTED,
                         "%s needs %s (and %s), which is neither in UNISONO_PLUGINS nor in %s%s%s",
                         plugin->purpose, plugin->file, plugin->packages,
                         directory[0] != '\0' ? directory : "the library's directory",
                         plugin->otherwise != NULL ? "; " : "",
                         plugin->otherwise != NULL ? plugin->otherwise : "");
}
