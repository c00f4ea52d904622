/*
 * launchers.h - how agents come to be on hosts: the command lines of mpirun (Open MPI, MPICH's
 * Hydra), srun and ssh, and what a process that such a launcher started finds in its environment.
 * No process is started here. Any thread.
 *
 * No secret passes through here: what the launcher carries to the agents is where the controller
 * listens and its public key (secure.h).
 */
#ifndef UNISONO_GROUP_LAUNCHERS_H
#define UNISONO_GROUP_LAUNCHERS_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/value.h>

/* 2:JOB:ATTEMPT:SEALED:PORT:KEY:ADDRESS[,ADDRESS...] */
#define UNI__JOIN_VARIABLE "UNISONO_JOIN"
/* The path of the operator's secret file on every host; empty: none. */
#define UNI__SECRET_FILE_VARIABLE "UNISONO_SECRET_FILE"
/* Over ssh: FIRST:COUNT:SIZE, the ranks of the host and the number of all ranks. */
#define UNI__RANKS_VARIABLE "UNISONO_RANKS"
/* Where an agent announces its key instead of its standard output. */
#define UNI__ANNOUNCE_VARIABLE "UNISONO_ANNOUNCE"

typedef struct uni__host_slots {
    char name[256];
    int slots;
    bool lost; /* left out of later attempts */
    bool was_lost; /* in a part of the run that this one resumes */
} uni__host_slots;

/* "a:2,b:2"; a name without a number has one slot. *out is the caller's to free. */
int uni__hosts_parse(const char *text, uni__host_slots **out, int *count,
                     uni_error *err) UNI_MUST_USE;
/* "n[1-3,7],m" as Slurm writes it, with its "2(x3),1" of tasks. */
int uni__hosts_parse_slurm(const char *nodes, const char *tasks, uni__host_slots **out, int *count,
                           uni_error *err) UNI_MUST_USE;

/* A list of words for execve, the program (a full path) first; and the hosts' names by rank. */
typedef struct uni__launcher_plan {
    const uni__host_slots *hosts;
    int num_hosts, num_workers;
    const char *agent; /* path of unisono-host */
    const char *subnet; /* for MPI's own connections, or NULL */
    /* Hosts that come later (ssh): their first rank, and the number of all ranks. 0: all ranks. */
    int first_rank, num_all;
} uni__launcher_plan;

typedef struct uni__launcher {
    const char *name; /* in options */
    const char *program; /* as people call it; UNISONO_MPIRUN and UNISONO_SSH may name another */
    int (*words)(const uni__launcher_plan *plan, uni_value **argv, uni_error *err);
    /* The hosts are those of Slurm's allocation unless others are given. */
    bool has_allocation;
    /* Its processes find the variables of MPI. */
    bool offers_mpi;
    /* It sends SIGTERM to the processes on hosts only to ask for a stop. */
    bool term_is_stop;
    /* Agents go on when it ends; so does it when one of them does. */
    bool is_outlived;
} uni__launcher;
/* NULL: there is none of this name. */
const uni__launcher *uni__launcher_find(const char *name);
/* mpirun is Open MPI's (Hydra's otherwise); program: its path. */
bool uni__launcher_is_openmpi(const uni__launcher *launcher, const char *program);
uni_value *uni__launcher_names(const uni__launcher_plan *plan);

/* Open MPI removes its session directory (8 MB of shared memory a host) when its processes have
 * finalised MPI, and not when they were killed or it was itself. session_of: the directory of the
 * job that this process is of, or NULL. Any thread. */
const char *uni__launcher_session(void);
void uni__launcher_remove_session(const char *directory);
/* mpirun's own, on the controller's machine, after its end. */
void uni__launcher_remove_session_of(int pid);

/* What mpirun or srun says about this process; false when neither started it. */
typedef struct uni__launched {
    int rank, size, local_rank, local_size;
    char job[128]; /* the same on all ranks, different for other jobs */
    const char *launcher; /* "mpi", "slurm", or for an agent "ssh" */
} uni__launched;
bool uni__launched_look(uni__launched *out);

/* The daemon of the launcher that this process descends from (orted, hydra_pmi_proxy, slurmstepd),
 * also through a shell; without one, the parent. */
typedef struct uni__launcher_daemon {
    int pid; /* 0: not known */
    int parent; /* of this process, when it was found */
    bool is_parent;
    uint64_t start_time;
    int home_port; /* of the launcher, where the daemon is connected to; 0: not known */
    char name[32];
} uni__launcher_daemon;
void uni__launcher_daemon_find(uni__launcher_daemon *out);
/* It has ended since. */
bool uni__launcher_daemon_is_gone(const uni__launcher_daemon *daemon);
/* It has lost its connection to the launcher: mpirun was killed. The daemon then ends its
 * processes with the same signals as when mpirun asks it to, and itself. A daemon that is gone with
 * the process between it and this one did so: one that is killed ends nothing. */
bool uni__launcher_daemon_is_cut(const uni__launcher_daemon *daemon);

#endif
