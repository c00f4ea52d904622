/* mpi_internal.h - what mpi.c, hosts.c, loader.c and stall.c share. */
#ifndef UNISONO_COMM_MPI_INTERNAL_H
#define UNISONO_COMM_MPI_INTERNAL_H

#include "comm/internal.h"
#include "comm/mpi/plugin.h"

/* family: "openmpi", "mpich", or NULL for the one that started this process (by its environment), else the first
 * that is there. Opened with RTLD_LOCAL and never closed: MPI does not like to be. */
int uni__mpi_plugin_load(const uni__mpi_plugin **out, const char *family,
                         uni_error *err) UNI_MUST_USE;

/* MPI was initialised by it: it is finalised when the process ends well (uni__comm_finish). */
void uni__mpi_plugin_used(const uni__mpi_plugin *plugin);

/* Collective over `world` (a communicator over MPI, which must live longer): one for all ranks with the same color; *out is NULL for color -1. Of
 * peers rank and size are filled in. */
int uni__comm_split_mpi(uni_comm **out, uni_comm *world, int color, const uni__rendezvous *peers,
                        const uni_comm_options *options, uni_error *err) UNI_MUST_USE;

/* For a call over hosts, which waits in a communicator that not all ranks have: tells all of the world what is called, and hears what they call. Never waits. */
int uni__mpi_listen(uni_comm *world, uni_comm_request *outer, uni_error *err) UNI_MUST_USE;
/* It has failed where the ranks of other hosts do not see it: they are told. */
void uni__mpi_last_words(uni_comm *world, const uni_comm_request *outer, const uni_error *failure);

/* stall.c: sends to and from one rank. */
typedef struct uni__stall_pair {
    uint64_t sends, receives; /* begun: the how manieth is the last one */
    uint64_t sent_ns; /* when the last send began */
    size_t sent_bytes;
    uint64_t wanted; /* the send of ours that it says it waits for; 0: none */
    int late; /* how often it said so when it should have had it */
} uni__stall_pair;

/* All zero at first but for the keys, by which the ranks of one communicator tell each other. */
typedef struct uni__stall {
    const char *key, *pair_key;
    uint64_t order, progress, since_ns; /* of the request that waits */
    bool told;
    uint64_t *reached; /* by rank: the collective that it has waited in */
    uni__stall_pair *pairs; /* by rank */
    uint64_t told_ns, heard_ns; /* of sends and receives */
} uni__stall;
/* For the oldest collective that waits, now and then. progress: grows when something moved; 0 when that is not known. true: all ranks have come to it and
 * nothing has moved for too long. */
bool uni__stall_found(uni__stall *stall, uni_comm_request *request, uint64_t progress,
                      uint64_t now_ns);
/* A send or recv begins: its number among those to or from that rank. */
uint64_t uni__stall_count(uni__stall *stall, const uni_comm_request *request);
/* Now and then while a send or recv is under way. The rank that misses what was sent to it long ago, or -1. */
int uni__stall_pair_found(uni__stall *stall, uni_comm *comm, uint64_t now_ns);
void uni__stall_free(uni__stall *stall);

#endif
