/* hosts_internal.h - what the files of the transport "hosts" share: hosts.c (life and the order of things), hosts_plan.c (calls become steps), hosts_slices.c (large
 * all_reduces), hosts_peers.c (who is in which communicator). */
#ifndef UNISONO_COMM_HOSTS_INTERNAL_H
#define UNISONO_COMM_HOSTS_INTERNAL_H

#include "comm/mpi/mpi_internal.h"

#define UNI__HOSTS_SMALL (256u << 10) /* bytes up to which everything goes by the first rank */
#define UNI__ALL_BEFORE (-2) /* for step.after */

/* The outer rendezvous, with the ranks of one of the inner communicators. */
typedef struct uni__mapped {
    uni__rendezvous outer;
    int *ranks;
} uni__mapped;

/* What a step does to memory of this host when it begins and when it has ended. */
typedef enum uni__host_work {
    UNI__WORK_NONE,
    UNI__WORK_ADD, /* ended: what was received is added to `into` */
    UNI__WORK_LOOK, /* ended: all ranks have shown their buffers; the steps that follow are planned */
    UNI__WORK_SUM, /* begins: this rank's part of all local inputs into its own result */
    UNI__WORK_SPREAD, /* ended: this rank's part of the result to all local ranks */
    UNI__WORK_COPY_IN, /* begins: own input into the common pages */
    UNI__WORK_COPY_OUT /* ended: the result out of them */
} uni__host_work;

typedef struct uni__host_step {
    uni_comm *on;
    uni__call call;
    uni__host_work before, when_done;
    void *into; /* ADD */
    size_t
        at; /* SUM, SPREAD: bytes from the begin of every view. COPY_*: the number of the segment */
    int after; /* the step that must have ended before this one begins; -1: none */
    bool done;
    uni_comm_request *inner; /* while it is under way */
} uni__host_step;

/* Steps begin in the order in which they stand, which is the same for all ranks as far as they share a communicator. */
typedef struct uni__host_job {
    const uni_comm_request *request; /* that it works for */
    uint64_t ticket;
    int num_steps, room, first,
        next; /* all before `first` are done, all before `next` have begun */
    double weight;
    bool concluded;
    uni__call call; /* what is asked, with a sum in the place of a mean */
    uni__show show;
    void **views; /* by local rank: their inputs, then their results */
    uni__host_step *steps;
} uni__host_job;

typedef struct uni__over_hosts {
    uni_comm *local, *across,
        *world; /* across: the ranks with our place on their hosts; NULL: this rank has no part in the network */
    uni_comm *leaders; /* the same as across on the first rank of a host, NULL elsewhere */
    uni__mapped local_peers, across_peers;
    int local_rank, local_size;
    int slices; /* ranks of each host that have a part in the network: all of them, or one when the hosts are not alike */
    uint64_t given, serving; /* tickets */
    uni__host_job *current; /* the one that is served */
    char *scratch; /* of the first rank: what another rank of the host sent */
    uni_comm_buffer *
        pages; /* of all local ranks, for buffers that the others do not see; NULL until one comes */
    size_t pages_bytes;
} uni__over_hosts;

/* hosts_plan.c. Adding may fail for lack of memory: job->room is -1 then. */
void uni__over_hosts_plan(uni__over_hosts *hosts, uni__host_job *job, const uni__call *call);
/* Its number, or -1 when this rank has no part in it (on is NULL). */
int uni__over_hosts_add(uni__host_job *job, uni_comm *on, uni__call call, int after);
uni__call uni__over_hosts_barrier(void);

/* hosts_slices.c */
void uni__over_hosts_add_slices(uni__over_hosts *hosts, uni__host_job *job, const uni__call *call);
int uni__over_hosts_work(uni_comm *comm, uni__host_job *job, int index, bool ended,
                         uni_error *err) UNI_MUST_USE;

/* hosts_peers.c */
extern const uni__rendezvous_vtable uni__mapped_vtable;
int uni__mapped_set(uni__mapped *to, const uni__rendezvous *peers, const int *ranks, int count,
                    uni_error *err) UNI_MUST_USE;
/* Collective over hosts->world. Who has our place on the other hosts (ranks has room for all), and hosts->slices. *count is 0 when this rank has no part in the
 * network. */
int uni__over_hosts_find_across(uni__over_hosts *hosts, int *ranks, int *count,
                                uni_error *err) UNI_MUST_USE;

#endif
