/* link_internal.h - the insides of links and of the listener that makes them. Only for link.c and
 * listener.c. */
#ifndef UNISONO_GROUP_LINK_INTERNAL_H
#define UNISONO_GROUP_LINK_INTERNAL_H

#include "group/internal.h"
#include "group/link.h"

#define UNI__LISTENER_MAX 16 /* addresses */

/* Addresses that are tried at once on behalf of one connection. */
typedef struct uni__race {
    int left;
    bool won;
    uint64_t deadline_ns;
    char why[256]; /* of the last that failed */
} uni__race;

struct uni__link {
    uni__link *next; /* of the group's list */
    uni__group *group;
    uni__listener *listener; /* NULL for one that connected, or whose listener is gone */
    uni__race *race; /* until it is won or lost */
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    bool writing, ready, closing;
    bool paused; /* its share of this round is used up; more of it waits */
    char *flying; /* bytes of the write in flight */
    size_t flying_size;
    uni__secure secure;
    const uni__link_events *events;
    void *context;
    uint64_t begun_ns, heard_ns;
    char own[INET6_ADDRSTRLEN], peer[INET6_ADDRSTRLEN];
    char *room; /* READ_BYTES, once it is ready */
    char greeting_room[256];
};

typedef struct uni__door {
    uv_tcp_t tcp;
    uni__listener *listener;
    char address[INET6_ADDRSTRLEN];
    bool open;
} uni__door;

struct uni__listener {
    uni__group *group;
    uni__credentials credentials;
    const uni__link_events *events;
    void *context;
    uni__door doors[UNI__LISTENER_MAX];
    int num_doors, handles_left; /* handles_left: those that libuv still has */
    uv_timer_t watch; /* runs while a greeting waits for its announcement */
    int port;
    bool freed;
};

/* link.c. In the group's list, not connected; NULL without memory. */
uni__link *uni__link_new(uni__group *group, const uni__link_events *events, void *context);
/* It is connected: both sides prove themselves. */
void uni__link_begin(uni__link *link);
/* Its agent may have been announced meanwhile. */
void uni__link_greet_again(uni__link *link);
/* A greeting of it waits for its announcement. */
static inline bool uni__link_is_unannounced(const uni__link *link)
{
    return !link->ready && link->secure.unannounced;
}
/* listener.c: looks for announcements until none is waited for. */
void uni__listener_watch(uni__listener *listener);
/* Closes it and tells why. */
void uni__link_fail(uni__link *link, const char *why);
/* Closes it without a word. */
void uni__link_let_go(uni__link *link);
/* 0, or libuv's code for text that is not a numeric address. */
int uni__link_address(const char *text, int port, struct sockaddr_storage *out);

#endif
