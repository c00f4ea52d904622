/* hosts_internal.h - shared by the files of the transport "hosts": hosts.c (life cycle and order of
 * steps), hosts_plan.c (turns calls into steps), hosts_slices.c (large all_reduces), hosts_peers.c
 * (membership of the inner communicators). */
#ifndef UNISONO_COMM_HOSTS_INTERNAL_H
#define UNISONO_COMM_HOSTS_INTERNAL_H

#include "comm/hosts/carrier_internal.h"

/* Up to this many bytes, everything goes through the first rank. */
#define UNI__HOSTS_SMALL (256u << 10)
#define UNI__ALL_BEFORE (-2) /* for step.after */

/* The outer rendezvous, restricted to the ranks of an inner communicator. */
typedef struct uni__mapped {
    uni__rendezvous outer;
    int *ranks;
} uni__mapped;

/* What a step does to this host's memory when it begins or ends. */
typedef enum uni__host_work {
    UNI__WORK_NONE,
    UNI__WORK_ADD, /* end: adds what was received to `into` */
    /* end: all ranks have shown their buffers; plans the steps that follow */
    UNI__WORK_LOOK,
    /* begin: sums this rank's part of all local inputs into its own result */
    UNI__WORK_SUM,
    /* end: copies this rank's part of the result to all local ranks */
    UNI__WORK_SPREAD,
    UNI__WORK_COPY_IN, /* begin: own input into the common pages */
    UNI__WORK_COPY_OUT /* end: the result out of them */
} uni__host_work;

typedef struct uni__host_step {
    uni_comm *on;
    uni__call call;
    uni__host_work before, when_done;
    void *into; /* ADD */
    /* SUM, SPREAD: bytes from the beginning of every view. COPY_*: index of the segment. */
    size_t at;
    /* The step that must have ended before this one begins; -1: none. */
    int after;
    bool done;
    uni_comm_request *inner; /* while it is under way */
} uni__host_step;

/* Steps begin in list order. Ranks that share a communicator have the same order on it. */
typedef struct uni__host_job {
    const uni_comm_request *request; /* the request it serves */
    uint64_t ticket;
    /* All before `first` are done, all before `next` have begun. */
    int num_steps, room, first, next;
    double weight;
    /* The user's call, with a sum in place of a mean. */
    uni__call call;
    uni__show show;
    /* By local rank: the inputs, then the results. */
    void **views;
    uni__host_step *steps;
} uni__host_job;

typedef struct uni__over_hosts {
    /* across: the ranks with our local rank on each host; NULL: this rank does not use the
     * network. */
    uni_comm *local, *across, *world;
    /* Same as across on the first rank of a host, NULL elsewhere. */
    uni_comm *leaders;
    uni__mapped local_peers, across_peers;
    int local_rank, local_size;
    /* Ranks of each host that use the network: all of them, or one when the hosts have different
     * numbers of ranks. */
    int slices;
    uint64_t given, serving; /* tickets */
    uni__host_job *current; /* the job being served */
    /* On the first rank: data that another rank of the host sent. */
    char *scratch;
    /* Shared by all local ranks, for buffers that are not visible; NULL until needed. */
    uni_comm_buffer *pages;
    size_t pages_bytes;
} uni__over_hosts;

/* hosts_plan.c. On out of memory, job->room is -1. */
void uni__over_hosts_plan(uni__over_hosts *hosts, uni__host_job *job, const uni__call *call);
/* Returns the index of the step, or -1 when this rank takes no part in it (on is NULL). */
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
/* Collective over hosts->world. Sets hosts->slices, and in `ranks` (room for all) the ranks with
 * our local rank on each host. *count is 0 when this rank does not use the network. */
int uni__over_hosts_find_across(uni__over_hosts *hosts, int *ranks, int *count,
                                uni_error *err) UNI_MUST_USE;

#endif
