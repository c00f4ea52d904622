/*
 * link.c - TCP connections whose two sides prove themselves, on libuv; the rules are in link.h,
 * the listening side is in listener.c.
 *
 * A link owns its handle; libuv lets go of it in a later round, so a closed link lives on until
 * then. A write in flight holds the bytes that it sends; what is packed meanwhile waits in the
 * secure state and goes with the next one.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "group/link_internal.h"

#define PROOF_NS 1000000000ull
#define ANNOUNCED_NS 10000000000ull
#define READ_BYTES (256u << 10)
/* For the frames of one link in one round: timers, signals and the other links come in between. */
#define SLICE_NS 20000000ull
#define LAST_WORDS 127 /* type of a frame: why the sender ends the connection */

/* ---- ends ---- */

static void unlist(uni__link *link)
{
    for (uni__link **at = &link->group->links; *at; at = &(*at)->next)
        if (*at == link) {
            *at = link->next;
            return;
        }
}

static void on_link_closed(uv_handle_t *handle)
{
    uni__link *link = handle->data;
    uni__secure_end(&link->secure);
    free(link->flying);
    free(link->room);
    free(link);
}

void uni__link_let_go(uni__link *link)
{
    if (link->closing)
        return;
    link->closing = true;
    unlist(link);
    uv_close((uv_handle_t *)&link->tcp, on_link_closed);
}

/* One of several that were tried: the last one tells. */
static bool lost_race(uni__link *link, const char *why)
{
    uni__race *tried = link->race;
    if (!tried)
        return false;
    link->race = NULL;
    snprintf(tried->why, sizeof tried->why, "%.60s: %.180s", link->peer, why);
    if (--tried->left > 0 || tried->won) {
        if (tried->left == 0)
            free(tried);
        return true;
    }
    char last[256];
    snprintf(last, sizeof last, "%s", tried->why);
    free(tried);
    link->events->closed(link->context, link, last);
    return true;
}

void uni__link_fail(uni__link *link, const char *why)
{
    if (link->closing)
        return;
    uni__link_let_go(link);
    if (lost_race(link, why))
        return;
    if (link->ready)
        link->events->closed(link->context, link, why);
    else if (link->events->refused)
        link->events->refused(link->context, link->peer, why);
}

void uni__link_close(uni__link *link)
{
    if (!link || link->closing)
        return;
    if (!link->writing && link->secure.out.size > 0) {
        uv_buf_t rest = { .base = link->secure.out.data, .len = link->secure.out.size };
        (void)uv_try_write((uv_stream_t *)&link->tcp, &rest, 1);
    }
    uni__link_let_go(link);
}

/* ---- writing ---- */

static void flush(uni__link *link);

static void on_written(uv_write_t *request, int status)
{
    uni__link *link = request->data;
    link->writing = false;
    free(link->flying);
    link->flying = NULL;
    link->flying_size = 0;
    if (status < 0) {
        uni__link_fail(link, uv_strerror(status));
        return;
    }
    flush(link);
    if (!link->closing && link->ready && !link->writing && link->events->written)
        link->events->written(link->context, link);
}

static void flush(uni__link *link)
{
    uni__text *out = &link->secure.out;
    if (link->closing || link->writing || out->size == 0)
        return;
    /* Not uv_buf_init, whose length is an unsigned int: a dictionary may be larger. */
    uv_buf_t bytes = { .base = out->data, .len = out->size };
    int sent = uv_try_write((uv_stream_t *)&link->tcp, &bytes, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        uni__link_fail(link, uv_strerror(sent));
        return;
    }
    if (sent > 0 && (size_t)sent == out->size) {
        uni__text_clear(out);
        return;
    }
    size_t skip = sent > 0 ? (size_t)sent : 0;
    link->flying = out->data;
    link->flying_size = out->size - skip;
    *out = (uni__text){ 0 };
    bytes = (uv_buf_t){ .base = link->flying + skip, .len = link->flying_size };
    link->write.data = link;
    int code = uv_write(&link->write, (uv_stream_t *)&link->tcp, &bytes, 1, on_written);
    if (code < 0)
        uni__link_fail(link, uv_strerror(code));
    else
        link->writing = true;
}

void uni__link_flush_all(uni__group *group)
{
    for (uni__link *link = group->links, *next; link; link = next) {
        next = link->next;
        flush(link);
    }
}

void uni__link_send(uni__link *link, int type, const void *head, size_t head_size,
                    const void *payload, size_t size)
{
    uni_error err = { 0 };
    if (link->closing || !link->ready)
        return;
    if (uni__secure_pack(&link->secure, type, head, head_size, payload, size, &err) < 0)
        uni__link_fail(link, err.message);
}

size_t uni__link_queued(const uni__link *link)
{
    return link->flying_size + link->secure.out.size;
}

/* ---- reading ---- */

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer);

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    uni__link *link = handle->data;
    if (!link->ready) {
        *out = uv_buf_init(link->greeting_room, sizeof link->greeting_room);
        return;
    }
    if (!link->room)
        link->room = malloc(READ_BYTES);
    *out = uv_buf_init(link->room, link->room ? READ_BYTES : 0);
}

static void become_ready(uni__link *link)
{
    link->ready = true;
    link->heard_ns = uni__monotonic_ns();
    if (link->race) {
        uni__race *won = link->race;
        won->won = true;
        link->race = NULL;
        if (--won->left == 0)
            free(won);
    }
    link->events->ready(link->context, link);
}

/* After every feed: whether it stands now, or what it waits for. */
static void go_on_greeting(uni__link *link)
{
    if (!link->ready && uni__secure_is_ready(&link->secure))
        become_ready(link);
    else if (uni__link_is_unannounced(link) && link->listener)
        uni__listener_watch(link->listener);
    if (!link->ready)
        flush(link); /* an answer of the greeting does not wait for the round's end */
}

void uni__link_greet_again(uni__link *link)
{
    uni_error err = { 0 };
    if (link->closing || !uni__link_is_unannounced(link))
        return;
    if (uni__secure_feed(&link->secure, NULL, 0, &err) < 0)
        uni__link_fail(link, err.message);
    else if (!link->secure.unannounced)
        go_on_greeting(link);
}

/* Our own stream is still good: the other side can say why this one ended. */
static void fail_aloud(uni__link *link, const char *why)
{
    if (uni__secure_pack(&link->secure, LAST_WORDS, NULL, 0, why, strlen(why), NULL) == 0)
        flush(link);
    uni__link_fail(link, why);
}

static void take_last_words(uni__link *link, const uint8_t *words, size_t size)
{
    char why[300];
    snprintf(why, sizeof why, "it ended the connection: %.*s", (int)(size < 250 ? size : 250),
             (const char *)words);
    uni__link_fail(link, why);
}

static void pause_reading(uni__link *link)
{
    link->paused = true;
    uv_read_stop((uv_stream_t *)&link->tcp);
    uv_async_send(&link->group->async); /* the loop does not sleep before the rest is taken */
}

static void take_frames(uni__link *link)
{
    uni_error err = { 0 };
    const uint8_t *payload;
    size_t length;
    int type, found;
    uint64_t until = uni__monotonic_ns() + SLICE_NS;
    link->paused = false;
    while (!link->closing &&
           (found = uni__secure_next(&link->secure, &type, &payload, &length, &err)) != 0) {
        if (found < 0) {
            fail_aloud(link, err.message);
            return;
        }
        link->heard_ns = uni__monotonic_ns();
        if (type == LAST_WORDS)
            take_last_words(link, payload, length);
        else
            link->events->frame(link->context, link, type, payload, length);
        if (link->heard_ns > until && !link->closing) {
            pause_reading(link);
            return;
        }
    }
}

void uni__link_go_on_all(uni__group *group)
{
    for (uni__link *link = group->links, *next; link; link = next) {
        next = link->next;
        if (!link->paused || link->closing)
            continue;
        take_frames(link);
        int code = link->paused || link->closing
                       ? 0
                       : uv_read_start((uv_stream_t *)&link->tcp, on_room, on_read);
        if (code < 0)
            uni__link_fail(link, uv_strerror(code));
    }
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    uni__link *link = stream->data;
    uni_error err = { 0 };
    if (size == 0 || link->closing)
        return;
    if (size < 0) {
        uni__link_fail(link, size == UV_EOF ? "it closed the connection" : uv_strerror((int)size));
        return;
    }
    if (link->race && link->race->won) {
        uni__link_let_go(link); /* another address was faster */
        (void)lost_race(link, "");
        return;
    }
    if (uni__secure_feed(&link->secure, buffer->base, (size_t)size, &err) < 0) {
        uni__link_fail(link, err.message);
        return;
    }
    go_on_greeting(link);
    take_frames(link);
}

static void name_ends(uni__link *link)
{
    struct sockaddr_storage address;
    int length = sizeof address;
    if (uv_tcp_getpeername(&link->tcp, (struct sockaddr *)&address, &length) == 0)
        uv_ip_name((struct sockaddr *)&address, link->peer, sizeof link->peer);
    length = sizeof address;
    if (uv_tcp_getsockname(&link->tcp, (struct sockaddr *)&address, &length) == 0)
        uv_ip_name((struct sockaddr *)&address, link->own, sizeof link->own);
}

uni__link *uni__link_new(uni__group *group, const uni__link_events *events, void *context)
{
    uni__link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->group = group;
    link->events = events;
    link->context = context;
    link->begun_ns = link->heard_ns = uni__monotonic_ns();
    uv_tcp_init(&group->loop, &link->tcp);
    link->tcp.data = link;
    link->next = group->links;
    group->links = link;
    return link;
}

void uni__link_begin(uni__link *link)
{
    uv_tcp_nodelay(&link->tcp, 1);
    name_ends(link);
    int code = uv_read_start((uv_stream_t *)&link->tcp, on_room, on_read);
    if (code < 0)
        uni__link_fail(link, uv_strerror(code));
    else
        flush(link);
}

/* At every tick: closes connections that did not prove themselves in time. */
void uni__links_press_proofs(uni__group *group, uint64_t now)
{
    for (uni__link *link = group->links, *next; link; link = next) {
        next = link->next;
        if (link->ready)
            continue;
        if (link->race && link->race->won) {
            uni__link_let_go(link);
            (void)lost_race(link, "");
        } else if (link->race) {
            if (now > link->race->deadline_ns)
                uni__link_fail(link, "no answer in time");
        } else if (now - link->begun_ns > (link->secure.unannounced ? ANNOUNCED_NS : PROOF_NS)) {
            uni__link_fail(link, link->secure.unannounced
                                     ? "the launcher has not announced its key within 10 s: it is "
                                       "not an agent that this run started"
                                     : "it did not prove itself within 1 s");
        }
    }
}

/* ---- the host's side ---- */

int uni__link_address(const char *text, int port, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (uv_ip4_addr(text, port, (struct sockaddr_in *)out) == 0)
        return 0;
    return uv_ip6_addr(text, port, (struct sockaddr_in6 *)out);
}

static void on_connected(uv_connect_t *request, int status)
{
    uni__link *link = request->data;
    if (link->closing)
        return;
    if (status < 0)
        uni__link_fail(link, uv_strerror(status));
    else
        uni__link_begin(link);
}

int uni__link_connect(uni__group *group, const char *const *addresses, int count, int port,
                      const uni__credentials *credentials, uint32_t rank, int timeout_ms,
                      const uni__link_events *events, void *context, uni_error *err)
{
    uni__race *tried = calloc(1, sizeof *tried);
    if (!tried)
        return uni_error_set(err, UNI_ENOMEM, "no memory to connect");
    tried->deadline_ns = uni__monotonic_ns() + (uint64_t)timeout_ms * 1000000u;
    for (int i = 0; i < count; i++) {
        struct sockaddr_storage where;
        uni__link *link = uni__link_address(addresses[i], port, &where) == 0
                              ? uni__link_new(group, events, context)
                              : NULL;
        if (!link)
            continue;
        snprintf(link->peer, sizeof link->peer, "%s", addresses[i]);
        link->connect.data = link;
        if (uni__secure_begin(&link->secure, false, credentials, rank, err) < 0 ||
            uv_tcp_connect(&link->connect, &link->tcp, (struct sockaddr *)&where, on_connected) <
                0) {
            uni__link_let_go(link);
            continue;
        }
        link->race = tried;
        tried->left++;
    }
    if (tried->left > 0)
        return 0;
    free(tried);
    return uni_error_set(err, UNI_EINVAL, "none of the controller's addresses can be used");
}

const char *uni__link_peer(const uni__link *link)
{
    return link->peer;
}

uint32_t uni__link_rank(const uni__link *link)
{
    return link->secure.rank;
}

const char *uni__link_own(const uni__link *link)
{
    return link->own;
}

uint64_t uni__link_heard_ns(const uni__link *link)
{
    return link->heard_ns;
}
