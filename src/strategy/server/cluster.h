/*
 * cluster.h - how the members of a parameter-server run find each other before they share memory:
 * small messages by rank, optionally with a descriptor. src/train/native implements it over the
 * session; tests and other launchers may provide their own. Never used in a step.
 *
 * Ranks: 0 is the coordinator (chief), 1 to workers are the workers, then come the servers.
 */
#ifndef UNISONO_STRATEGY_SERVER_CLUSTER_H
#define UNISONO_STRATEGY_SERVER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <unisono/experimental/coordinator.h>

#define UNI__CLUSTER_KEY_SIZE 64

typedef struct uni__cluster_vtable {
    const char *name;
    /* Sends to one rank, or with -1 to all others; fd -1: none. Messages to an absent member are
     * lost. Does not block. */
    int (*send)(void *context, int to, const char *key, const void *data, size_t size, int fd,
                uni_error *err);
    /* Receives the next message whose key begins with `prefix`, from any rank. Returns 1, or 0 when
     * none came within timeout_ms. The caller owns *fd. */
    int (*receive)(void *context, const char *prefix, int *from, char key[UNI__CLUSTER_KEY_SIZE],
                   void *data, size_t capacity, size_t *size, int *fd, int timeout_ms,
                   uni_error *err);
    /* The run is over or was given up: a waiting member must stop. */
    bool (*over)(void *context, char *why, size_t why_size);
    void (*free)(void *context);
} uni__cluster_vtable;

typedef struct uni__cluster {
    const uni__cluster_vtable *vtable;
    void *context;
    int rank, workers, servers;
    /* Connects all ranks when they are on several hosts; NULL: they share memory. The strategy
     * closes it. */
    uni_comm *comm;
} uni__cluster;

/* Takes ownership of the cluster (its context), even on failure. */
int uni__strategy_parameter_server(uni_strategy **out, const uni__cluster *cluster,
                                   const uni_parameter_server_options *options,
                                   uni_error *err) UNI_MUST_USE;

#endif
