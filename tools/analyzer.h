/*
 * analyzer.h - tells clang-tidy what the library promises; included before every file by
 * tools/run-tests and by nothing else.
 *
 * The analyser cannot see into status.c, so it follows paths on which uni_error_set returned
 * success. It never does: what comes back is the code that was given, or a negative one for an
 * errno.
 */
#ifndef UNISONO_TOOLS_ANALYZER_H
#define UNISONO_TOOLS_ANALYZER_H

#include <unisono/status.h>

#define uni_error_set(err, code, ...) ((void)(uni_error_set)(err, code, __VA_ARGS__), (code))
#define uni_error_set_errno(err, os_error, ...)                                                    \
    ((void)(uni_error_set_errno)(err, os_error, __VA_ARGS__), (int)UNI_EIO)

#endif
