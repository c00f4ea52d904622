/*
 * names.h - names as users write them: in any case, with or without underscores; and the closest
 * match if there is no such name. For src/nn only. Pure functions; any thread.
 */
#ifndef UNISONO_NN_NAMES_H
#define UNISONO_NN_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <unisono/status.h>

/* "MeanSquaredError", "mean_squared_error" and "MEAN_SQUARED_ERROR" are the same name. */
bool uni__same_name(const char *a, const char *b);
/* UNI_ENOTFOUND with: there is no WHAT "NAME"; did you mean "..."? If none is close, lists all
 * names. */
int uni__unknown_name(uni_error *err, const char *what, const char *name, const char *const *names,
                      size_t count);

#endif
