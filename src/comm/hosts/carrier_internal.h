/* carrier_internal.h - shared by carrier.c, hosts.c, stall.c and mpi/loader.c. */
#ifndef UNISONO_COMM_CARRIER_INTERNAL_H
#define UNISONO_COMM_CARRIER_INTERNAL_H

#include "comm/internal.h"
#include "comm/hosts/carrier.h"

/* family: "openmpi", "mpich", or NULL for the one that started this process (from its environment),
 * else the first one installed. Opened with RTLD_LOCAL and never closed: MPI cannot be unloaded
 * safely. */
int uni__mpi_plugin_load(const uni__carrier **out, const char *family, uni_error *err) UNI_MUST_USE;

/* Call once the plug-in has initialized MPI, which is finalized when the process ends successfully
 * (uni__comm_finish). */
void uni__mpi_plugin_used(const uni__carrier *plugin);

/* A communicator over `state`, which the carrier has opened. Closing the communicator closes
 * `state`; so does an error here. epoch: separates its rendezvous keys from those of earlier
 * communicators. */
int uni__comm_open_carrier(uni_comm **out, const uni__carrier *carrier, void *state, uint32_t epoch,
                           const uni__rendezvous *peers, const uni_comm_options *options,
                           uni_error *err) UNI_MUST_USE;

/* Collective over `world` (a communicator over a carrier, which must outlive it): one communicator
 * for all ranks with the same color, the `count` members; *out is NULL for color -1. Fills in the
 * rank and size of `peers`. */
int uni__comm_split(uni_comm **out, uni_comm *world, int color, const int *members, int count,
                    const uni__rendezvous *peers, const uni_comm_options *options,
                    uni_error *err) UNI_MUST_USE;

/* For a call over hosts that waits in a communicator without some of the ranks: announces the call
 * to the whole world, and reads the calls of the others. Never waits. */
int uni__carrier_listen(uni_comm *world, uni_comm_request *outer, uni_error *err) UNI_MUST_USE;
/* Announces a failure to the ranks of other hosts, which cannot see it. */
void uni__carrier_last_words(uni_comm *world, const uni_comm_request *outer,
                             const uni_error *failure);

/* stall.c: messages to and from one rank. */
typedef struct uni__stall_pair {
    /* Number of sends and receives started, which is also the number of the last one. */
    uint64_t sends, receives;
    uint64_t sent_ns; /* when the last send began */
    size_t sent_bytes;
    /* The number of our send that it says it waits for; 0: none. */
    uint64_t wanted;
    /* How often it said so although the message should have arrived. */
    int late;
} uni__stall_pair;

/* Zero-initialized except for the keys, through which the ranks of a communicator talk to each
 * other. */
typedef struct uni__stall {
    const char *key, *pair_key;
    uint64_t order, progress, since_ns; /* of the waiting request */
    bool told;
    /* By rank: the latest collective that it has waited in. */
    uint64_t *reached;
    uni__stall_pair *pairs; /* by rank */
    uint64_t told_ns, heard_ns; /* for sends and receives */
} uni__stall;
/* Polled for the oldest collective that waits. progress: grows with each progress, or 0 when
 * unknown. true: all ranks have reached the collective and nothing has moved for too long. */
bool uni__stall_found(uni__stall *stall, uni_comm_request *request, uint64_t progress,
                      uint64_t now_ns);
/* Counts a send or recv that begins; returns its sequence number to or from that rank. */
uint64_t uni__stall_count(uni__stall *stall, const uni_comm_request *request);
/* Polled while a send or recv is under way. Returns the rank that misses a message that was sent
 * long ago, or -1. */
int uni__stall_pair_found(uni__stall *stall, uni_comm *comm, uint64_t now_ns);
void uni__stall_free(uni__stall *stall);

#endif
