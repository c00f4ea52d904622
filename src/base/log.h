/*
 * log.h - the library's own warnings. Silent unless the program asks: the level is the one piece of
 * process-wide state (uni_log_level_set in unisono/log.h, or
 * UNISONO_LOG=debug|info|warn|error|off).
 */
#ifndef UNISONO_BASE_LOG_H
#define UNISONO_BASE_LOG_H

#include <unisono/log.h>

#include "base/compiler.h"

UNI__SHARED void uni__log(uni_log_level level, const char *format, ...) UNI_PRINTF(2, 3);
#define uni__warn(...) uni__log(UNI_LOG_WARN, __VA_ARGS__)
#define uni__info(...) uni__log(UNI_LOG_INFO, __VA_ARGS__)
#define uni__debug(...) uni__log(UNI_LOG_DEBUG, __VA_ARGS__)

#endif
