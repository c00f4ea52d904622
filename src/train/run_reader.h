/*
 * run_reader.h - between run_find.c, which finds runs, and run_reader.c, which reads one.
 */
#ifndef UNISONO_TRAIN_RUN_READER_H
#define UNISONO_TRAIN_RUN_READER_H

#include <unisono/run.h>

/* The run in this directory. Takes dir. */
int uni__run_open_dir(uni_run **out, char *dir, uni_error *err) UNI_MUST_USE;

/* Whether a run or an experiment can have this name: it is a directory, it is shown on terminals,
 * and it is a word of command lines. */
int uni__run_check_name(const char *name, uni_error *err) UNI_MUST_USE;
/* As uni_run_open, but only a run that is ours alone (uni__run_check_owner), checked before any
 * in it is read: for what acts on it. */
int uni__run_open_own(uni_run **out, const char *name, const char *storage,
                      uni_error *err) UNI_MUST_USE;

#endif
