/*
 * ucx.c - opens a communicator over UCX: loads the plug-in libunisono-ucx.so on first use, and
 * exchanges the ranks' addresses through the rendezvous, in parts that fit its values.
 * hosts/carrier.c does the rest. Called on the rank's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plugin.h"
#include "comm/hosts/carrier_internal.h"
#include "comm/ucx/plugin.h"

#define OPEN_MS 60000
#define PART_BYTES 960
#define MAX_PARTS 64

static int load(const uni__ucx_plugin **out, uni_error *err)
{
    const uni__plugin plugin = { .file = "libunisono-ucx.so",
                                 .symbol = UNI__UCX_PLUGIN_SYMBOL,
                                 .version = UNI__UCX_PLUGIN_VERSION,
                                 .built = "src/comm",
                                 .purpose = "collectives over UCX",
                                 .packages = "UCX, in Debian libucx-dev",
                                 .otherwise = "install it and build unisono again" };
    const void *table = NULL;
    UNI_TRY(uni__plugin_open(&table, &plugin, err));
    *out = table;
    return 0;
}

/* A part is one byte with the number of parts, and up to PART_BYTES of the address. */
static int tell_address(const uni__rendezvous *peers, uint32_t epoch, const char *address,
                        size_t size, uni_error *err)
{
    char key[40], part[1 + PART_BYTES];
    size_t parts = (size + PART_BYTES - 1) / PART_BYTES;
    if (parts < 1 || parts > MAX_PARTS)
        return uni_error_set(err, UNI_ELIMIT,
                             "UCX's address has %zu bytes: choose interfaces by "
                             "UCX_NET_DEVICES",
                             size);
    for (size_t i = 0; i < parts; i++) {
        size_t bytes = i + 1 < parts ? PART_BYTES : size - i * PART_BYTES;
        snprintf(key, sizeof key, "ucx.%u.%zu", epoch, i);
        part[0] = (char)parts;
        memcpy(part + 1, address + i * PART_BYTES, bytes);
        UNI_TRY(peers->vtable->put(peers->context, key, part, bytes + 1, err));
    }
    return 0;
}

static int hear_address(const uni__rendezvous *peers, uint32_t epoch, int rank, char *address,
                        int timeout_ms, uni_error *err)
{
    char key[40], part[1 + PART_BYTES];
    size_t parts = 1, size;
    for (size_t i = 0; i < parts; i++) {
        snprintf(key, sizeof key, "ucx.%u.%zu", epoch, i);
        UNI_TRY(peers->vtable->get(peers->context, rank, key, part, sizeof part, &size, timeout_ms,
                                   err));
        parts = size ? (size_t)part[0] : 0;
        if (parts < 1 || parts > MAX_PARTS)
            return uni_error_set(err, UNI_EPEER, "rank %d told no address of UCX's", rank);
        memcpy(address + i * PART_BYTES, part + 1, size - 1);
    }
    return 0;
}

static int connect_all(const uni__ucx_plugin *plugin, void *state, const uni__rendezvous *peers,
                       uint32_t epoch, int timeout_ms, uni_error *err)
{
    const void *own = NULL;
    size_t size = 0;
    char why[UNI__WHY_SIZE] = "", *address = calloc(MAX_PARTS, PART_BYTES);
    int status = address ? plugin->address(state, &own, &size, why)
                         : uni_error_set(err, UNI_ENOMEM, "no memory for addresses");
    if (status == 0)
        status = tell_address(peers, epoch, own, size, err);
    for (int r = 0; r < peers->size && status == 0; r++) {
        if (r == peers->rank)
            continue;
        status = hear_address(peers, epoch, r, address, timeout_ms, err);
        if (status == 0 && (status = plugin->connect(state, r, address, why)) < 0)
            uni_error_set(err, status, "%s", why);
    }
    free(address);
    return status;
}

int uni__comm_open_ucx(uni_comm **out, const uni__rendezvous *peers,
                       const uni_comm_options *options, uint32_t epoch, int open_timeout_ms,
                       uni_error *err)
{
    const uni__ucx_plugin *plugin = NULL;
    void *state = NULL;
    char why[UNI__WHY_SIZE] = "";
    *out = NULL;
    UNI_TRY(load(&plugin, err));
    int status = plugin->open(&state, peers->rank, peers->size, epoch, why);
    if (status < 0)
        return uni_error_set(err, status, "%s", why);
    status = connect_all(plugin, state, peers, epoch,
                         open_timeout_ms > 0 ? open_timeout_ms : OPEN_MS, err);
    if (status < 0) {
        plugin->carrier->close(state, 0);
        return status;
    }
    return uni__comm_open_carrier(out, plugin->carrier, state, epoch, peers, options, err);
}
