/*
 * helpers.h - a few threads that help one thread with the parts of a loop.
 *
 * The parts of a loop are fixed by its shape; which thread computes one is not. The caller takes
 * parts from the front, the helpers from the back, until none is left, and the caller waits only
 * for parts that a helper has begun. So a helper that gets no core delays nothing: with busy
 * neighbours, or after a fork, the caller computes all parts itself. A part's result must not
 * depend on the thread, so the bits are the same in every case.
 *
 * Helpers are started by the first loop that has more than one part, and sleep between loops after
 * a short spin (base/spin.h). One thread at a time calls a pool.
 */
#ifndef UNISONO_TENSOR_HELPERS_H
#define UNISONO_TENSOR_HELPERS_H

#include <stdbool.h>

#include <unisono/status.h>

#include "base/compiler.h"

typedef struct uni__helpers uni__helpers;
typedef void (*uni__part_body)(void *context, int part);

/* threads >= 1, including the caller. Starts none yet. */
UNI__SHARED int uni__helpers_new(uni__helpers **out, int threads, uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__helpers_free(uni__helpers *pool); /* ends the threads */
int uni__helpers_threads(const uni__helpers *pool); /* NULL: 1 */
/* Calls body(context, part) once for each of [0, parts), in any order and on any thread, and waits.
 * In a part of another of its loops, or with pool NULL, the caller does all of them. */
UNI__SHARED void uni__helpers_run(uni__helpers *pool, int parts, uni__part_body body,
                                  void *context);
/* This thread computes a part of one of its loops now. */
bool uni__helpers_busy(const uni__helpers *pool);

#endif
