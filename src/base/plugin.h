/*
 * plugin.h - finding and opening the shared objects of our own that alone link a large library
 * (libcurl, HDF5, MPI, libjpeg, SQLite ...), so that a program that never needs one does not load
 * it. A plug-in exports one function that returns a const table, whose first field is an int: its
 * version. A table of another build is refused with a sentence. Any thread.
 */
#ifndef UNISONO_BASE_PLUGIN_H
#define UNISONO_BASE_PLUGIN_H

#include <unisono/status.h>

#include "base/compiler.h"

typedef struct uni__plugin {
    const char *file; /* "libunisono-mlflow.so" */
    const char *symbol; /* of the function that returns the table */
    int version; /* what the table's first field must be */
    const char *built; /* where it is in the build directory: "src/track" */
    const char *purpose; /* what cannot be done without it: "reporting to an MLflow server" */
    const char *packages; /* "the Debian package libcurl4" */
    const char *otherwise; /* what to do instead, or NULL */
} uni__plugin;

/* Opened on first use and never closed again (dlopen counts by itself; some libraries do not like
 * to be closed). Looked for in the directories of $UNISONO_PLUGINS (separated by ':'), beside the
 * file that this code is in, in unisono/ beside it, and in the build directory. Not there is
 * UNI_EUNSUPPORTED with all of the above in its sentence. */
UNI__SHARED int uni__plugin_open(const void **table, const uni__plugin *plugin,
                                 uni_error *err) UNI_MUST_USE;

#endif
