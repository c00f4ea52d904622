/*
 * ucx.c - opens a communicator over UCX: loads the plug-in libunisono-ucx.so on first use, chooses
 * the network devices, and exchanges the ranks' addresses through the rendezvous, in parts that fit
 * its values. hosts/carrier.c does the rest. Called on the rank's thread.
 *
 * UCX by itself offers every interface of a host to its peers, the loopback and bridges of
 * containers among them, and does not try another one when the first cannot be reached. So a rank
 * uses the interface that has its host's address towards the controller, and RDMA devices.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/text.h"

#include "base/plugin.h"
#include "comm/hosts/carrier_internal.h"
#include "comm/ucx/plugin.h"

#define OPEN_MS 60000
#define PART_BYTES 960
#define MAX_PARTS 64

static int load(const uni__ucx_plugin **out, uni_error *err)
{
    const uni__plugin plugin = { .file = UNI__UCX_PLUGIN_FILE,
                                 .symbol = UNI__UCX_PLUGIN_SYMBOL,
                                 .version = UNI__UCX_PLUGIN_VERSION,
                                 .built = "src/comm",
                                 .purpose = "collectives over UCX",
                                 .packages = "UCX, in Debian libucx-dev",
                                 .otherwise = "install it and build unisono again",
                                 .settings = UNI__UCX_SETTINGS };
    const void *table = NULL;
    UNI_TRY(uni__plugin_open(&table, &plugin, err));
    *out = table;
    return 0;
}

bool uni__comm_has_ucx(void)
{
    const uni__ucx_plugin *plugin;
    return load(&plugin, NULL) == 0;
}

/* ---- devices ---- */

static bool has_address(const struct ifaddrs *at, const char *wanted)
{
    char text[INET6_ADDRSTRLEN] = "";
    const struct sockaddr *address = at->ifa_addr;
    if (address->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text, sizeof text);
    else if (address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, text, sizeof text);
    return strcmp(text, wanted) == 0;
}

static void add_name(uni__text *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list->data; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return;
    uni__text_add_format(list, "%s%s", list->size ? "," : "", name);
}

/* address NULL: of all interfaces but the loopback. */
static void add_interfaces(uni__text *list, const char *address)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) < 0)
        return;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next)
        if (at->ifa_addr && (at->ifa_flags & IFF_UP) &&
            (address ? has_address(at, address) : !(at->ifa_flags & IFF_LOOPBACK)) &&
            (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6))
            add_name(list, at->ifa_name);
    freeifaddrs(all);
}

/* "mlx5_0:1". */
static void add_rdma(uni__text *list)
{
    static const char top[] = "/sys/class/infiniband";
    DIR *devices = opendir(top);
    for (const struct dirent *device; devices && (device = readdir(devices));) {
        char path[sizeof top + 300];
        snprintf(path, sizeof path, "%s/%s/ports", top, device->d_name);
        DIR *ports = device->d_name[0] == '.' ? NULL : opendir(path);
        for (const struct dirent *port; ports && (port = readdir(ports));)
            if (port->d_name[0] != '.')
                uni__text_add_format(list, ",%s:%s", device->d_name, port->d_name);
        if (ports)
            closedir(ports);
    }
    if (devices)
        closedir(devices);
}

/* NULL: all that UCX finds. */
static char *choose_devices(const char *address)
{
    uni__text list = { 0 };
    if (address)
        add_interfaces(&list, address);
    if (!list.size)
        add_interfaces(&list, NULL);
    if (list.size)
        add_rdma(&list);
    if (list.failed)
        uni__text_free(&list);
    return list.data;
}

/* ---- addresses ---- */

/* A part is one byte with the number of parts, and up to PART_BYTES of token and address. */
static int tell_address(const uni__rendezvous *peers, uint32_t epoch, const char *blob, size_t size,
                        uni_error *err)
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
        memcpy(part + 1, blob + i * PART_BYTES, bytes);
        UNI_TRY(peers->vtable->put(peers->context, key, part, bytes + 1, err));
    }
    return 0;
}

static int hear_address(const uni__rendezvous *peers, uint32_t epoch, int rank, char *blob,
                        int timeout_ms, uni_error *err)
{
    char key[40], part[1 + PART_BYTES];
    size_t parts = 1, size, all = 0;
    for (size_t i = 0; i < parts; i++) {
        snprintf(key, sizeof key, "ucx.%u.%zu", epoch, i);
        UNI_TRY(peers->vtable->get(peers->context, rank, key, part, sizeof part, &size, timeout_ms,
                                   err));
        parts = size ? (size_t)(unsigned char)part[0] : 0;
        if (parts < 1 || parts > MAX_PARTS)
            return uni_error_set(err, UNI_EPEER, "rank %d did not tell its address over UCX", rank);
        memcpy(blob + i * PART_BYTES, part + 1, size - 1);
        all += size - 1;
    }
    return all > sizeof(uint64_t)
               ? 0
               : uni_error_set(err, UNI_EPEER, "rank %d told an empty address over UCX", rank);
}

static int tell(const uni__ucx_plugin *plugin, void *state, uint64_t token,
                const uni__rendezvous *peers, uint32_t epoch, uni_error *err)
{
    const void *own = NULL;
    size_t size = 0;
    char why[UNI__WHY_SIZE] = "";
    int status = plugin->address(state, &own, &size, why);
    if (status < 0)
        return uni_error_set(err, status, "%s", why);
    char *blob = malloc(sizeof token + size);
    if (!blob)
        return uni_error_set(err, UNI_ENOMEM, "no memory for addresses");
    memcpy(blob, &token, sizeof token);
    memcpy(blob + sizeof token, own, size);
    status = tell_address(peers, epoch, blob, sizeof token + size, err);
    free(blob);
    return status;
}

static int connect_all(const uni__ucx_plugin *plugin, void *state, const uni__rendezvous *peers,
                       uint32_t epoch, int timeout_ms, uni_error *err)
{
    char why[UNI__WHY_SIZE] = "", *blob = calloc(MAX_PARTS, PART_BYTES);
    int status = blob ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for addresses");
    for (int r = 0; r < peers->size && status == 0; r++) {
        uint64_t token;
        if (r == peers->rank)
            continue;
        status = hear_address(peers, epoch, r, blob, timeout_ms, err);
        if (status < 0)
            break;
        memcpy(&token, blob, sizeof token);
        status = plugin->connect(state, r, blob + sizeof token, token, why);
        if (status < 0)
            uni_error_set(err, status, "%s", why);
    }
    free(blob);
    return status;
}

int uni__comm_open_ucx(uni_comm **out, const uni__rendezvous *peers,
                       const uni_comm_options *options, uint32_t epoch, int open_timeout_ms,
                       uni_error *err)
{
    const uni__ucx_plugin *plugin = NULL;
    void *state = NULL;
    uint64_t token;
    char why[UNI__WHY_SIZE] = "";
    *out = NULL;
    UNI_TRY(load(&plugin, err));
    if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token)
        return uni_error_set_errno(err, errno, "no random number for a communicator");
    char *devices = choose_devices(peers->address);
    int status = plugin->open(&state, peers->rank, peers->size, epoch, token, devices, why);
    free(devices);
    if (status < 0)
        return uni_error_set(err, status, "%s", why);
    status = tell(plugin, state, token, peers, epoch, err);
    if (status == 0)
        status = connect_all(plugin, state, peers, epoch,
                             open_timeout_ms > 0 ? open_timeout_ms : OPEN_MS, err);
    if (status < 0) {
        plugin->carrier->close(state, 0);
        return status;
    }
    return uni__comm_open_carrier(out, plugin->carrier, state, epoch, peers, options, err);
}
