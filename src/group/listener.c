/*
 * listener.c - the controller's side of links (link.h): a port on some addresses, and the
 * connections to it. A door is one address; libuv lets go of its handle in a later round, so a
 * listener that was freed lives on until then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/link_internal.h"

#define PENDING_MAX 256
#define PENDING_PER_ADDRESS 64
/* The kernel's own limit (net.core.somaxconn) holds. */
#define BACKLOG 4096
#define PORT_TRIES 20
#define WATCH_MS 2

/* ---- floods ---- */

static bool is_pending(const uni__link *link, const uni__listener *listener)
{
    return link->listener == listener && !link->ready;
}

/* Of those from that address that are not proved yet: how many, and the oldest. */
static int count_pending(const uni__listener *listener, const char *address, uni__link **oldest)
{
    int pending = 0;
    for (uni__link *link = listener->group->links; link; link = link->next)
        if (is_pending(link, listener) && strcmp(link->peer, address) == 0) {
            pending++;
            *oldest = link; /* the list begins with the newest */
        }
    return pending;
}

static void make_room(uni__listener *listener, const uni__link *newest)
{
    uni__link *victim = NULL, *oldest = NULL;
    int all = 0, most = count_pending(listener, newest->peer, &victim);
    if (most <= PENDING_PER_ADDRESS) {
        for (uni__link *link = listener->group->links; link; link = link->next)
            all += is_pending(link, listener);
        if (all <= PENDING_MAX)
            return;
        for (uni__link *link = listener->group->links; link; link = link->next) {
            int mine =
                is_pending(link, listener) ? count_pending(listener, link->peer, &oldest) : 0;
            if (mine > most) {
                most = mine;
                victim = oldest;
            }
        }
    }
    uni__link_fail(victim, "too many connections of this address wait to prove themselves");
}

/* ---- announcements ---- */

static void on_watch(uv_timer_t *timer)
{
    uni__listener *listener = timer->data;
    bool waits = false;
    listener->events->look_for_keys(listener->context);
    for (uni__link *link = listener->group->links, *next; link; link = next) {
        next = link->next;
        if (link->listener != listener)
            continue;
        uni__link_greet_again(link);
        waits |= !link->closing && uni__link_is_unannounced(link);
    }
    if (!waits && !listener->freed)
        uv_timer_stop(timer);
}

void uni__listener_watch(uni__listener *listener)
{
    if (!uv_is_active((uv_handle_t *)&listener->watch))
        uv_timer_start(&listener->watch, on_watch, 0, WATCH_MS);
}

/* ---- doors ---- */

static void on_connection(uv_stream_t *stream, int status)
{
    uni__door *at = stream->data;
    uni__listener *listener = at->listener;
    uni_error err = { 0 };
    if (status < 0)
        return;
    uni__link *link = uni__link_new(listener->group, listener->events, listener->context);
    if (!link)
        return;
    link->listener = listener;
    if (uv_accept(stream, (uv_stream_t *)&link->tcp) < 0 ||
        uni__secure_begin(&link->secure, true, &listener->credentials, 0, &err) < 0) {
        uni__link_let_go(link);
        return;
    }
    uni__link_begin(link);
    if (!link->closing)
        make_room(listener, link);
}

static void free_listener(uni__listener *listener)
{
    sodium_memzero(&listener->credentials, sizeof listener->credentials);
    free(listener);
}

static void let_go_of_handle(uni__listener *listener)
{
    if (--listener->handles_left == 0 && listener->freed)
        free_listener(listener);
}

static void on_door_closed(uv_handle_t *handle)
{
    let_go_of_handle(((uni__door *)handle->data)->listener);
}

static void on_watch_closed(uv_handle_t *handle)
{
    let_go_of_handle(handle->data);
}

static void close_handles(uni__listener *listener)
{
    for (int i = 0; i < listener->num_doors; i++)
        if (listener->doors[i].open) {
            listener->doors[i].open = false;
            uv_close((uv_handle_t *)&listener->doors[i].tcp, on_door_closed);
        }
    uv_close((uv_handle_t *)&listener->watch, on_watch_closed);
}

static int open_door(uni__listener *listener, const char *address, uni_error *err)
{
    uni__door *at = &listener->doors[listener->num_doors];
    struct sockaddr_storage where;
    int length = sizeof where;
    *at = (uni__door){ .listener = listener, .open = true };
    snprintf(at->address, sizeof at->address, "%s", address);
    uv_tcp_init(&listener->group->loop, &at->tcp);
    at->tcp.data = at;
    listener->num_doors++;
    listener->handles_left++;
    int code = uni__link_address(address, listener->port, &where);
    if (code == 0)
        code = uv_tcp_bind(&at->tcp, (struct sockaddr *)&where, 0);
    if (code == 0)
        code = uv_listen((uv_stream_t *)&at->tcp, BACKLOG, on_connection);
    if (code == 0)
        code = uv_tcp_getsockname(&at->tcp, (struct sockaddr *)&where, &length);
    if (code < 0)
        return uni_error_set(err, UNI_EIO, "cannot listen on %s: %s", address, uv_strerror(code));
    listener->port = ntohs(((struct sockaddr_in *)&where)->sin_port); /* the same place in v6 */
    return 0;
}

int uni__listener_new(uni__listener **out, uni__group *group, const char *const *addresses,
                      int count, const uni__credentials *credentials,
                      const uni__link_events *events, void *context, uni_error *err)
{
    int status = uni_error_set(err, UNI_EINVAL, "there is no address to listen on");
    *out = NULL;
    for (int try = 0; count > 0 && try < PORT_TRIES; try++) {
        uni__listener *listener = calloc(1, sizeof *listener);
        if (!listener)
            return uni_error_set(err, UNI_ENOMEM, "no memory to listen");
        listener->group = group;
        listener->credentials = *credentials;
        listener->events = events;
        listener->context = context;
        uv_timer_init(&group->loop, &listener->watch);
        listener->watch.data = listener;
        listener->handles_left = 1;
        status = 0;
        for (int i = 0; i < count && i < UNI__LISTENER_MAX && status == 0; i++)
            status = open_door(listener, addresses[i], err);
        if (status == 0) {
            *out = listener;
            return 0;
        }
        uni__listener_free(listener); /* the port was taken on another address: again */
    }
    return status;
}

int uni__listener_port(const uni__listener *listener)
{
    return listener->port;
}

void uni__listener_free(uni__listener *listener)
{
    if (!listener)
        return;
    for (uni__link *link = listener->group->links, *next; link; link = next) {
        next = link->next;
        if (link->listener != listener)
            continue;
        link->listener = NULL;
        if (!link->ready)
            uni__link_let_go(link);
    }
    listener->freed = true;
    close_handles(listener);
}
