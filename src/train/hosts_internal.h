/*
 * hosts_internal.h - runs over several hosts: which hosts take part, how they are started, what
 * each of them sees. Only for this module.
 *
 * A trainer with a launcher other than "local" has a uni__hosts. Every attempt is a new mpirun,
 * srun or ssh with keys of its own (MPI cannot be started twice in a rank); when every rank has a
 * host, the workers are spawned as on one machine. A host that is lost is left out of later
 * attempts when enough slots remain (num_workers, or else min_workers). Inside an existing mpirun
 * or srun ("foreign") there is one attempt.
 */
#ifndef UNISONO_TRAIN_HOSTS_INTERNAL_H
#define UNISONO_TRAIN_HOSTS_INTERNAL_H

#include "group/launchers.h"
#include "group/network.h"
#include "group/secure.h"
#include "train/run_internal.h"

/* A host of the list in the present attempt. */
typedef struct uni__host_seat {
    int first, count; /* its ranks; count 0: none, it is a spare or was lost */
    bool down; /* it was lost, or did not come */
    int tries; /* in a row, in vain */
    uint64_t next_ns; /* it is not tried before */
} uni__host_seat;

/* Ranks that have no host. */
typedef struct uni__vacancy {
    int first, count;
    uint64_t since_ns;
} uni__vacancy;

struct uni__hosts {
    const uni__launcher *launcher;
    bool foreign, encrypt, seal;
    /* Between hosts; decided when all have connected. */
    enum { UNI__TRANSPORT_ANY, UNI__TRANSPORT_UCX, UNI__TRANSPORT_MPI } wanted;
    bool ucx;
    uni__launched launched; /* foreign: our rank there */
    uni__host_slots *list;
    int num_hosts, min_workers;
    /* While ranks on other hosts keep training (hosts_again.c). */
    uni__host_seat *seats; /* by host */
    uni__vacancy *vacancies;
    int num_vacancies;
    int coming; /* the host that is being started; -1: none */
    bool refuses; /* the host that is being ended did not fit */
    char *interface, *secret_file;
    /* What workers authenticate their own messages between hosts with, and with encrypt seal them;
     * fresh for each attempt. */
    uint8_t data_key[UNI__KEY_BYTES];
    char agent[4200]; /* path of unisono-host */
    uni__address addresses[UNI__NETWORK_MAX];
    int num_addresses;
    char token[33], token_path[4200], join_path[4200]; /* "" when they are not there */
    bool was_placed; /* all hosts have been there once */
    int failed_launches; /* in a row */
    uint64_t lost_ns; /* when the first of them failed */
};

/* hosts.c. new: with the launchers other than local; changes options.num_workers when it was left
 * open. */
int uni__hosts_new(uni_trainer *trainer, const uni_trainer_options *asked,
                   uni_error *err) UNI_MUST_USE;
void uni__hosts_free(uni_trainer *trainer);
/* For run.json: hosts, interface, encrypt and min_workers as they were asked for; nothing with the
 * launcher local. */
int uni__hosts_describe(const uni_trainer *trainer, uni_value *out);
/* Of the run that is resumed: when its lost hosts are still away, no launch can succeed with
 * them. */
void uni__hosts_remember_lost(uni_trainer *trainer, const uni_value *options);
/* [controller] Begins an attempt; the workers are spawned when all hosts are there. */
int uni__hosts_launch(uni__run *run, uni_error *err) UNI_MUST_USE;
/* [controller] One more host, for these ranks, which have none. */
int uni__hosts_launch_more(uni__run *run, const char *name, int first_rank, int count,
                           uni_error *err) UNI_MUST_USE;
/* hosts_seal.c. Refuses options that contradict each other, and with encrypt backends whose
 * connections cannot be sealed. */
int uni__hosts_check_seal(const uni_trainer *trainer, uni_error *err) UNI_MUST_USE;
/* For a worker's order: how it reaches ranks on other hosts, and protects what it sends there. */
int uni__hosts_add_links(const uni_trainer *trainer, const char *address, uni_value *order);
/* Ranks can be replaced while others train: all are on this machine, or the processes that connect
 * them survive a death. */
bool uni__hosts_keep_ranks(const uni_trainer *trainer);
bool uni__hosts_use_ucx(const uni_trainer *trainer);
/* When all hosts are there: what carries collectives between them. */
int uni__hosts_choose_transport(uni__run *run, uni_error *err) UNI_MUST_USE;
/* Before workers start: says once what others in the network can read. num_hosts: that are
 * used. */
void uni__hosts_say_readable(uni__run *run, int num_hosts);
/* A sentence's end for a run that is not started again because it is foreign, or NULL. */
const char *uni__hosts_verdict(uni__run *run, char *sentence, size_t size);
/* A failed launch after a lost host or launcher: tried again, without counting, for a minute. */
bool uni__hosts_is_patient(const uni__run *run);
/* Milliseconds until the next launch is tried: more with every one that failed in a row. */
int uni__hosts_backoff_ms(const uni__run *run);
/* What a host that has come needs before its ranks start, and has. */
void uni__hosts_remove_tokens(uni__run *run);
int uni__hosts_prepare(uni__run *run, int first_rank, uni_error *err) UNI_MUST_USE;
const char *uni__rank_host(const uni__run *run, int rank); /* its host's name */
/* Where the list of hosts puts a rank, before anything is started; false when that is the
 * launcher's to say. */
bool uni__hosts_planned(const uni_trainer *trainer, int rank, int *node, int *local_rank,
                        const char **host);
/* The words of the launcher that a run would start, a list of the caller's. */
int uni__hosts_plan_command(uni_trainer *trainer, uni_value **argv, uni_error *err) UNI_MUST_USE;
/* Slots of the hosts that are left, at most as many as workers were asked for. */
int uni__hosts_room(const uni_trainer *trainer);

/* hosts_program.c. files: paths for the hosts to hash, a list of the caller's; NULL without memory.
 * check: when all hosts are there. */
uni_value *uni__hosts_program_files(const uni__run *run);
int uni__hosts_check_program(const uni__run *run, uni_error *err) UNI_MUST_USE;

/* hosts_again.c: hosts that are lost while others go on, and come back. */
/* All hosts of the attempt are there. */
int uni__hosts_seat(uni__run *run, uni_error *err) UNI_MUST_USE;
/* A host is lost: true when the ranks on the others go on. *cause is the attempt's otherwise. */
bool uni__hosts_lose_ranks(uni__run *run, int first_rank, uni__cause *cause);
void uni__hosts_look(uni__run *run, uint64_t now); /* at every tick */
/* Hosts that `unisono scale --hosts` names: "c:2,d:2". */
void uni__hosts_add(uni__run *run, const char *list);
void uni__hosts_joined(void *context, int first_rank);
void uni__hosts_missing(void *context, const char *sentence);

/* hosts_events.c: what the group tells of hosts (group.h) */
void uni__hosts_placed(void *context);
void uni__hosts_launch_failed(void *context, const char *sentence);
void uni__hosts_silent(void *context, int first_rank, double seconds);
void uni__hosts_lost(void *context, int first_rank, const char *sentence);
void uni__hosts_unreachable(void *context, int first_rank);
void uni__hosts_signalled(void *context, int signal);
void uni__hosts_launcher_lost(void *context, const char *sentence);
void uni__hosts_log(void *context, int rank, const void *data, size_t size);
void uni__hosts_file(void *context, int rank, const char *path, uint64_t offset, const void *data,
                     size_t size, int last);
void uni__hosts_remark(void *context, const char *sentence);
/* A rank gave up while another one is frozen or its host silent: *cause becomes that one's. */
void uni__hosts_blame(uni__run *run, uni__cause *cause);
/* The directory that a rank's files were put into, for the checkpoint that it speaks of; NULL:
 * there is none. The caller's. */
char *uni__hosts_take_directory(uni__run *run, int rank);

#endif
