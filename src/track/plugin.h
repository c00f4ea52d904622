/* plugin.h - finding and opening libunisono-mlflow.so. Used by this module only. Any thread. */
#ifndef UNISONO_TRACK_PLUGIN_H
#define UNISONO_TRACK_PLUGIN_H

#include <unisono/status.h>

#include "track/http_plugin.h"

/* Opened on first use and never closed again (libcurl and its TLS library do not like to be).
 * Looked for in the directories of $UNISONO_PLUGINS (separated by ':'), beside libunisono.so, in
 * unisono/ beside it, and in the build directory. */
int uni__http_plugin_load(const uni__http_plugin **out, uni_error *err) UNI_MUST_USE;

#endif
