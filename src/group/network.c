/* network.c - see network.h. */
#include "group/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int bits_of(const uint8_t *mask, size_t size)
{
    int bits = 0;
    for (size_t i = 0; i < size; i++)
        bits += __builtin_popcount(mask[i]);
    return bits;
}

/* The bytes of a numeric address; their number, or 0. */
static size_t bytes_of(const char *text, uint8_t out[16])
{
    if (inet_pton(AF_INET, text, out) == 1)
        return 4;
    return inet_pton(AF_INET6, text, out) == 1 ? 16 : 0;
}

static bool fill(uni__address *out, const struct ifaddrs *at)
{
    memset(out, 0, sizeof *out);
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP))
        return false;
    snprintf(out->interface, sizeof out->interface, "%s", at->ifa_name);
    out->loopback = at->ifa_flags & IFF_LOOPBACK;
    out->running = at->ifa_flags & IFF_RUNNING;
    if (at->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *address = (const void *)at->ifa_addr;
        const struct sockaddr_in *mask = (const void *)at->ifa_netmask;
        out->prefix = mask ? bits_of((const uint8_t *)&mask->sin_addr, 4) : 32;
        return inet_ntop(AF_INET, &address->sin_addr, out->text, sizeof out->text) != NULL;
    }
    if (at->ifa_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *address = (const void *)at->ifa_addr;
        const struct sockaddr_in6 *mask = (const void *)at->ifa_netmask;
        if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr))
            return false; /* needs a zone that means nothing on another host */
        out->prefix = mask ? bits_of((const uint8_t *)&mask->sin6_addr, 16) : 128;
        return inet_ntop(AF_INET6, &address->sin6_addr, out->text, sizeof out->text) != NULL;
    }
    return false;
}

/* All addresses of this machine, at most UNI__NETWORK_MAX; how many. */
static int list_all(uni__address *out)
{
    struct ifaddrs *all = NULL;
    int count = 0;
    if (getifaddrs(&all) < 0)
        return 0;
    for (struct ifaddrs *at = all; at && count < UNI__NETWORK_MAX; at = at->ifa_next)
        count += fill(&out[count], at);
    freeifaddrs(all);
    return count;
}

static bool in_subnet(const uni__address *address, const char *subnet)
{
    char text[64];
    uint8_t mine[16], theirs[16];
    const char *slash = strchr(subnet, '/');
    snprintf(text, sizeof text, "%.*s", slash ? (int)(slash - subnet) : 60, subnet);
    size_t size = bytes_of(text, theirs);
    if (!size || bytes_of(address->text, mine) != size)
        return false;
    int prefix = slash ? atoi(slash + 1) : (int)size * 8;
    if (prefix < 0 || prefix > (int)size * 8)
        return false;
    for (int bit = 0; bit < prefix; bit++)
        if ((mine[bit / 8] ^ theirs[bit / 8]) & (0x80 >> bit % 8))
            return false;
    return true;
}

/* Is it one of those to listen on? *why says what decided. */
static bool fits(const uni__address *at, const char *interface, bool all_local, bool has_v4,
                 const char **why)
{
    if (interface) {
        bool named = strcmp(interface, at->interface) == 0, inside = in_subnet(at, interface);
        *why = named    ? "its name was asked for"
               : inside ? "it is in what was asked for"
                        : "another one was asked for";
        return named || inside;
    }
    if (all_local) {
        *why = "all hosts are this machine";
        return strcmp(at->text, "127.0.0.1") == 0;
    }
    if (at->loopback)
        *why = "the loopback: no other host reaches it";
    else if (!at->running)
        *why = "no carrier";
    else if (has_v4 && strchr(at->text, ':'))
        *why = "IPv6, and there is IPv4";
    else {
        *why = "up, with a carrier: the hosts try it";
        return true;
    }
    return false;
}

static bool any_v4(const uni__address *all, int count)
{
    for (int i = 0; i < count; i++)
        if (!all[i].loopback && all[i].running && !strchr(all[i].text, ':'))
            return true;
    return false;
}

int uni__network_judge(const char *interface, uni__judged *out)
{
    uni__address all[UNI__NETWORK_MAX];
    int count = list_all(all);
    bool v4 = any_v4(all, count);
    for (int i = 0; i < count; i++) {
        out[i].address = all[i];
        out[i].chosen = fits(&all[i], interface, false, v4, &out[i].why);
    }
    return count;
}

int uni__network_choose(const char *interface, bool all_local, uni__address *out, uni_error *err)
{
    uni__address all[UNI__NETWORK_MAX];
    int count = list_all(all), chosen = 0;
    bool v4 = any_v4(all, count);
    const char *why;
    char known[512] = "";
    for (int i = 0; i < count; i++) {
        if (fits(&all[i], interface, all_local, v4, &why))
            out[chosen++] = all[i];
        size_t used = strlen(known);
        if (used < sizeof known - 120)
            snprintf(known + used, sizeof known - used, "%s%.30s %.46s/%d%s", used ? ", " : "",
                     all[i].interface, all[i].text, all[i].prefix,
                     all[i].running ? "" : " (no carrier)");
    }
    if (chosen > 0)
        return chosen;
    if (interface)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "no interface that is up fits --interface %s; there are: %s",
                             interface, known[0] ? known : "none");
    return uni_error_set(err, UNI_ERESOURCE,
                         "this machine has no address that other hosts could use; there are: %s",
                         known[0] ? known : "none");
}

bool uni__network_is_this_host(const char *name)
{
    char own[256] = "";
    if (strcmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0 || strcmp(name, "::1") == 0)
        return true;
    return gethostname(own, sizeof own - 1) == 0 && strcmp(name, own) == 0;
}
