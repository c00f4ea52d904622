/*
 * stand_in.h - the process that a foreign mpirun watches instead of the controller.
 *
 * A daemon of mpirun (orted, hydra_pmi_proxy) that loses its mpirun sends SIGTERM to the process
 * group that it has started, and SIGKILL a second later: a controller in that group would die
 * before it has written how its run ended. So the controller moves into a child with a process
 * group of its own. The process that the daemon knows passes signals on, waits, and exits with the
 * child's exit code. When it is killed, the child is interrupted, and ends the run in order.
 */
#ifndef UNISONO_CLI_STAND_IN_H
#define UNISONO_CLI_STAND_IN_H

#include <unisono/status.h>

/* Forks. Returns 0 in the child. Does not return in the parent, which ends like the child. On
 * failure the caller is still the only process. Call it before any thread is started. */
int cli_stand_in(uni_error *err) UNI_MUST_USE;

#endif
