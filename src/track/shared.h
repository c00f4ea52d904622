/*
 * shared.h - what track shares with our other libraries, the command and the Python extension. Not
 * installed: programs see include/unisono.
 */
#ifndef UNISONO_TRACK_SHARED_H
#define UNISONO_TRACK_SHARED_H

#include "base/compiler.h"
#include <unisono/track.h>

const char *uni__sink_name(const uni_sink *sink);

#endif
