/*
 * requeue.h - `unisono run --requeue`: a Slurm job that goes back to the queue when it is told to
 * stop, and goes on with its own run when it comes back.
 */
#ifndef UNISONO_CLI_REQUEUE_H
#define UNISONO_CLI_REQUEUE_H

#include <unisono/run.h>

#include "cli/command.h"

/* *dir: the run of this job that is to be resumed; NULL: it has none yet, or the newest one
 * succeeded (*done). UNI_EINVAL outside of a Slurm job. */
int cli_requeue_find(char **dir, bool *done, const char *storage, uni_error *err) UNI_MUST_USE;
/* Puts the job back, unless Slurm has ended it (scancel) or put it back itself. */
void cli_requeue(const cli_context *context);

#endif
