/*
 * variables.h - variables that are added to the workers' environment: NAME=value, NAME (the value
 * comes from our own environment, so that it is in no command line), and files of such lines.
 */
#ifndef UNISONO_TRAIN_VARIABLES_H
#define UNISONO_TRAIN_VARIABLES_H

#include <stdbool.h>
#include <unisono/value.h>

/* A list of "NAME=value". file: NULL, or one of lines NAME=value or NAME; # begins a comment. It
 * must be ours (or root's) and unreadable for others. Lines of the file come first, so that words
 * win. */
int uni__variables_read(uni_value **out, const char *const *words, const char *file,
                        uni_error *err) UNI_MUST_USE;
/* Whether the name (up to a '=') says that its value is secret: KEY, TOKEN, SECRET, PASSWORD,
 * PASSWD or CREDENTIAL is in it. Such values are neither written nor shown anywhere. */
bool uni__variable_is_secret(const char *word);

#endif
