/* hosts_join.h - for the command, inside an existing mpirun or srun. */
#ifndef UNISONO_TRAIN_HOSTS_JOIN_H
#define UNISONO_TRAIN_HOSTS_JOIN_H

#include <stdbool.h>
#include <unisono/status.h>

/* This process's rank among those that mpirun or srun started; -1 if it is the only one, or was
 * started otherwise. */
int uni__hosts_foreign_rank(void);
/* mpirun (not srun) started this process among others. */
bool uni__hosts_in_mpirun(void);
/* In the ranks above 0: becomes unisono-host (returns only when that fails). */
int uni__hosts_join_foreign(const char *storage_path, uni_error *err) UNI_MUST_USE;

#endif
