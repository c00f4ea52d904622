/*
 * listener.c - the controller's side of links (link.h): a port on some addresses, and who comes there. A door is one address; libuv lets go of its handle in a later
 * round, so a listener that was freed lives on until then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/link_internal.h"

#define PENDING_MAX 64
#define BACKLOG 128
#define PORT_TRIES 20

static void drop_oldest_pending(uni__listener *listener)
{
    uni__link *oldest = NULL;
    int pending = 0;
    for (uni__link *link = listener->group->links; link; link = link->next)
        if (link->listener == listener && !link->ready) {
            pending++;
            oldest = link; /* the list begins with the newest */
        }
    if (pending > PENDING_MAX)
        uni__link_fail(oldest, "too many connections wait to prove themselves");
}

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
    drop_oldest_pending(listener);
}

static void free_listener(uni__listener *listener)
{
    sodium_memzero(&listener->credentials, sizeof listener->credentials);
    free(listener);
}

static void on_door_closed(uv_handle_t *handle)
{
    uni__door *at = handle->data;
    uni__listener *listener = at->listener;
    if (--listener->doors_left == 0 && listener->freed)
        free_listener(listener);
}

static void close_doors(uni__listener *listener)
{
    for (int i = 0; i < listener->num_doors; i++)
        if (listener->doors[i].open) {
            listener->doors[i].open = false;
            uv_close((uv_handle_t *)&listener->doors[i].tcp, on_door_closed);
        }
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
    listener->doors_left++;
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

void uni__listener_keep_used(uni__listener *listener)
{
    for (int i = 0; i < listener->num_doors; i++) {
        uni__door *at = &listener->doors[i];
        bool used = false;
        for (uni__link *link = listener->group->links; link; link = link->next)
            used |=
                link->listener == listener && link->ready && strcmp(link->own, at->address) == 0;
        if (at->open && !used) {
            at->open = false;
            uv_close((uv_handle_t *)&at->tcp, on_door_closed);
        }
    }
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
    close_doors(listener);
    if (listener->doors_left == 0)
        free_listener(listener);
}
