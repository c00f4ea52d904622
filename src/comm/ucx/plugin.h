/*
 * plugin.h - what the UCX plug-in offers besides a carrier (hosts/carrier.h): it makes endpoints
 * from addresses that the rendezvous carries. Contains no UCX types. Called on the rank's thread.
 */
#ifndef UNISONO_COMM_UCX_PLUGIN_H
#define UNISONO_COMM_UCX_PLUGIN_H

#include "comm/hosts/carrier.h"

#define UNI__UCX_PLUGIN_FILE "libunisono-ucx.so"
#define UNI__UCX_PLUGIN_VERSION 2u
#define UNI__UCX_SETTINGS "ucx.conf"
#define UNI__UCX_PLUGIN_SYMBOL "uni__ucx_plugin_get"

typedef struct uni__ucx_plugin {
    uint32_t version;
    const uni__carrier *carrier; /* its open is NULL */
    /* epoch: of this membership. devices: UCX's NET_DEVICES, or NULL for all. token: random, known
     * to the peers only. */
    int (*open)(void **state, int rank, int size, uint32_t epoch, uint64_t token,
                const char *devices, char *why);
    /* This rank's address, valid as long as the state. */
    int (*address)(void *state, const void **address, size_t *size, char *why);
    int (*connect)(void *state, int rank, const void *address, uint64_t token, char *why);
} uni__ucx_plugin;

#endif
