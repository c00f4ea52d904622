/*
 * network.h - the addresses of this machine, and which of them other hosts are to use. Any thread.
 *
 * With --interface (a name, an address, or a subnet as 10.1.0.0/16) exactly those addresses.
 * Otherwise: the loopback when all hosts are this machine; else every address (IPv6 only where
 * there is no IPv4) of an interface that is up and has a carrier, which the hosts then try all at
 * once; what none of them used is closed again (link.h). What a host's name resolves to is not
 * asked: on many machines that is the loopback.
 */
#ifndef UNISONO_GROUP_NETWORK_H
#define UNISONO_GROUP_NETWORK_H

#include <stdbool.h>
#include <unisono/status.h>

#define UNI__NETWORK_MAX 16

typedef struct uni__address {
    char interface[32], text[48];
    int prefix; /* bits of its subnet */
    bool loopback, running;
} uni__address;

/* Those to listen on; how many, or an error that lists what there is. */
int uni__network_choose(const char *interface, bool all_local, uni__address *out,
                        uni_error *err) UNI_MUST_USE;
/* All addresses of this machine, each with whether it would be listened on (all_local false) and
 * why; how many. */
typedef struct uni__judged {
    uni__address address;
    bool chosen;
    const char *why; /* a sentence's part */
} uni__judged;
int uni__network_judge(const char *interface, uni__judged *out); /* room for UNI__NETWORK_MAX */
/* localhost, the loopback's addresses, or this machine's own name. */
bool uni__network_is_this_host(const char *name);

#endif
