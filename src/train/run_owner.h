/*
 * run_owner.h - runs that are acted on (resumed, stopped, removed) must be ours: base/owned.h has
 * the rule, this the files of a run and its controller's process.
 */
#ifndef UNISONO_TRAIN_RUN_OWNER_H
#define UNISONO_TRAIN_RUN_OWNER_H

#include <stdint.h>
#include <sys/types.h>
#include <unisono/run.h>

/* Start time of a process in clock ticks since boot; 0 when there is no such process (or it is a
 * zombie). */
uint64_t uni__process_start(pid_t pid);

/* Sends the signal to the controller that the description names, through a descriptor of the
 * process: it must be alive, ours, have started when the description says, and have the journal
 * of the run in `dir` open. `id` is for messages. */
int uni__controller_signal(const uni_value *description, const char *dir, const char *id,
                           int number, uni_error *err) UNI_MUST_USE;

#endif
