/*
 * plugin.h - finds and opens our own shared objects that each link a large library (libcurl, HDF5,
 * MPI, libjpeg, SQLite ...), so that a program loads only those it needs. A plug-in exports one
 * function that returns a const table, whose first field is an int: its version. A table of another
 * build is rejected with a message. Any thread.
 */
#ifndef UNISONO_BASE_PLUGIN_H
#define UNISONO_BASE_PLUGIN_H

#include <stdbool.h>
#include <unisono/status.h>

#include "base/compiler.h"

typedef struct uni__plugin {
    const char *file; /* "libunisono-mlflow.so" */
    const char *symbol; /* of the function that returns the table */
    int version; /* what the table's first field must be */
    const char *built; /* its folder in the build tree: "src/track" */
    /* What is impossible without it: "reporting to an MLflow server". */
    const char *purpose;
    const char *packages; /* "the Debian package libcurl4" */
    const char *otherwise; /* what to do instead, or NULL */
    /* A file of the current directory that its library would take settings from when it is loaded,
     * or NULL. Another user may have left it there, so it is not read. */
    const char *settings;
    /* A library that is loaded later may read it, too: then one of another user is an error. */
    bool reads_later;
} uni__plugin;

/* Opened on first use and never closed again (dlopen counts by itself; some libraries cannot be
 * closed safely). Searched in the directories of $UNISONO_PLUGINS (separated by ':'), beside the
 * file that contains this code, in unisono/ beside it, and in the build directory. If it is
 * missing, UNI_EUNSUPPORTED with all of the above in the message. */
UNI__SHARED int uni__plugin_open(const void **table, const uni__plugin *plugin,
                                 uni_error *err) UNI_MUST_USE;

#endif
