/*
 * options.h - reading option structs of programs that were compiled with another version.
 *
 * Every public options struct begins with `size_t size` (unisono/status.h). A function that takes
 * one begins with UNI__OPTIONS, after which `options` points to a copy that has every field this
 * version knows. Any thread.
 */
#ifndef UNISONO_BASE_OPTIONS_H
#define UNISONO_BASE_OPTIONS_H

#include <stddef.h>
#include <unisono/status.h>

#include "base/compiler.h"

/* Fills `own` (known bytes) from options, which may be NULL; zeros for what the program did not
 * know. first: the struct's size in 0.1, which a size of 0 stands for. UNI_EINVAL for a size below
 * it, UNI_EUNSUPPORTED when a byte beyond `known` is set. */
UNI__SHARED UNI_MUST_USE int uni__options_read(void *own, size_t known, size_t first,
                                               const void *options, const char *type,
                                               uni_error *err);

/* last: the struct's last field in 0.1; it stays the same when fields are added after it. */
#define UNI__OPTIONS(type, options, last, err)                                                     \
    type options##_own;                                                                            \
    UNI_TRY(uni__options_read(&options##_own, sizeof(type),                                        \
                              offsetof(type, last) + sizeof(((type *)0)->last), options, #type,    \
                              err));                                                               \
    options = &options##_own
/* The same in functions that return something else than a status; the last argument is what they
 * return for `options`_problem. */
#define UNI__OPTIONS_OR_RETURN(type, options, last, ...)                                           \
    type options##_own;                                                                            \
    uni_error options##_problem = { 0 };                                                           \
    if (uni__options_read(&options##_own, sizeof(type),                                            \
                          offsetof(type, last) + sizeof(((type *)0)->last), options, #type,        \
                          &options##_problem) < 0)                                                 \
        return __VA_ARGS__;                                                                        \
    options = &options##_own
/* In functions that make a layer (of class_), or compute on a tape. */
#define UNI__LAYER_OPTIONS(type, options, last, class_)                                            \
    UNI__OPTIONS_OR_RETURN(type, options, last,                                                    \
                           uni_layer_fail(uni_layer_new(class_), options##_problem.code, "%s",     \
                                          options##_problem.message))
#define UNI__TAPE_OPTIONS(type, options, last, tape)                                               \
    UNI__OPTIONS_OR_RETURN(                                                                        \
        type, options, last,                                                                       \
        uni_tape_fail(tape, options##_problem.code, "%s", options##_problem.message))

#endif
