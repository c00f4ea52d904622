/*
 * plugin.h - what the UCX plug-in offers besides a carrier (hosts/carrier.h): it makes endpoints
 * from addresses that the rendezvous carries. Contains no UCX types. Called on the rank's thread.
 */
#ifndef UNISONO_COMM_UCX_PLUGIN_H
#define UNISONO_COMM_UCX_PLUGIN_H

#include "comm/hosts/carrier.h"

#define UNI__UCX_PLUGIN_VERSION 1u
#define UNI__UCX_PLUGIN_SYMBOL "uni__ucx_plugin_get"

typedef struct uni__ucx_plugin {
    uint32_t version;
    const uni__carrier *carrier; /* its open and split are NULL */
    /* epoch: of this membership. Messages of other epochs are dropped. */
    int (*open)(void **state, int rank, int size, uint32_t epoch, char *why);
    /* This rank's address, valid as long as the state. */
    int (*address)(void *state, const void **address, size_t *size, char *why);
    int (*connect)(void *state, int rank, const void *address, char *why);
} uni__ucx_plugin;

#endif
