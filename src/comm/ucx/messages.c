/*
 * messages.c - endpoints and messages over UCX: active messages whose header says where they
 * belong, matched here by class, sender, number and part.
 *
 * They are active messages rather than tagged ones because the whole header is compared. A message
 * of another epoch is dropped at once, while an unmatched tag stays in UCX's queue. All are sent
 * eagerly; early arrivals are kept in a list. Endpoints are opened in UCX's mode for peer failures:
 * when the kernel resets a dead process's connection, the peer is marked. Called on the rank's
 * thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/ucx/plugin_internal.h"

#define MESSAGE 1u
#define CLOSE_NS 200000000ll /* how long queued data may take to leave */

static uni__seal_place place_of(const state *s, const header *head, int to)
{
    return (uni__seal_place){ .comm = s->id,
                              .kind = head->class,
                              .from = head->from,
                              .to = to,
                              .number = head->number,
                              .part = head->part };
}

static bool fits(const header *a, const header *b)
{
    return a->class == b->class && a->from == b->from && a->number == b->number &&
           a->part == b->part;
}

static void take(state *s, receiving *it, const header *head, const void *data, size_t size)
{
    size_t extra = it->sealed ? s->seal->extra : 0;
    it->done = true;
    it->came = size < extra ? 0 : size - extra;
    it->said = head->said;
    if (size < extra)
        s->forged = head->from; /* also where no data is expected */
    if (size != it->bytes + extra)
        return; /* the caller checks the size */
    if (!it->sealed) {
        if (size)
            memcpy(it->room, data, size);
        return;
    }
    uni__seal_place place = place_of(s, head, s->rank);
    if (s->seal->open(s->seal->context, &place, it->room, data, it->bytes) != 0)
        s->forged = head->from;
}

static void append(arrivals *list, arrival *it)
{
    it->next = NULL;
    *list->last = it;
    list->last = &it->next;
}

/* Takes the arrival that *at points to out of the list. */
static arrival *detach(arrivals *list, arrival **at)
{
    arrival *it = *at;
    *at = it->next;
    if (!it->next)
        list->last = at;
    return it;
}

static void keep(hub *h, arrivals *list, const header *head, const void *data, size_t size)
{
    arrival *it = malloc(sizeof *it + size);
    if (!it) {
        h->no_memory = true;
        return;
    }
    it->head = *head;
    it->size = size;
    if (size)
        memcpy(it->data, data, size);
    append(list, it);
}

static state *state_of(const hub *h, uint64_t id)
{
    state *s = h->states;
    while (s && s->id != id)
        s = s->next;
    return s;
}

static void deliver(state *s, const header *head, const void *data, size_t size)
{
    if (head->from < 0 || head->from >= s->size || head->from == s->rank)
        return;
    if (head->class == UCX_HELLO || head->class == UCX_BYE) {
        receiving nothing = { .sealed = s->seal != NULL };
        take(s, &nothing, head, data, size);
        if (nothing.came != 0) /* take() does not open a message of another length */
            s->forged = head->from;
        if (s->forged >= 0)
            return;
        peer_of(s, head->from)->hello = true;
        peer_of(s, head->from)->left |= head->class == UCX_BYE;
        return;
    }
    for (receiving **at = &s->waiting; *at; at = &(*at)->waiting)
        if (fits(&(*at)->want, head)) {
            receiving *it = *at;
            *at = it->waiting;
            take(s, it, head, data, size);
            return;
        }
    keep(s->hub, &s->early, head, data, size);
}

static ucs_status_t arrived(void *argument, const void *bytes, size_t header_size, void *data,
                            size_t size, const ucp_am_recv_param_t *param)
{
    hub *h = argument;
    header head;
    /* We send all messages eagerly. Of another one `data` would be UCX's own record of it. */
    if (header_size != sizeof head || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
        return UCS_OK;
    memcpy(&head, bytes, sizeof head);
    state *s = state_of(h, head.comm);
    if (head.token != h->token)
        return UCS_OK;
    if (s)
        deliver(s, &head, data, size);
    else
        keep(h, &h->strays, &head, data, size);
    return UCS_OK;
}

void uni__ucx_add_state(hub *h, state *s)
{
    s->early.last = &s->early.first;
    s->next = h->states;
    h->states = s;
    for (arrival **at = &h->strays.first; *at;) {
        if ((*at)->head.comm != s->id) {
            at = &(*at)->next;
            continue;
        }
        arrival *it = detach(&h->strays, at);
        deliver(s, &it->head, it->data, it->size);
        free(it);
    }
}

void uni__ucx_free_arrivals(arrivals *list)
{
    while (list->first) {
        arrival *next = list->first->next;
        free(list->first);
        list->first = next;
    }
}

static void failed(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    peer *it = argument;
    it->dead = true;
    it->status = status;
}

/* The user's own setting, in UCX's environment, wins. */
static void prefer(ucp_config_t *config, const char *name, const char *variable, const char *value)
{
    if (value && !getenv(variable))
        (void)ucp_config_modify(config, name, value);
}

static ucs_status_t init(hub *h, const char *devices)
{
    ucp_config_t *config = NULL;
    ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM };
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    prefer(config, "NET_DEVICES", "UCX_NET_DEVICES", devices);
    /* Ranks of one host have memory of our own. UCX's has names that a killed process leaves in
     * /dev/shm, and sockets that every user of the machine can send to. */
    prefer(config, "TLS", "UCX_TLS", "^shm");
    /* A message in one piece is handed over where it was received. */
    prefer(config, "TX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE", "64K");
    /* Otherwise a peer behind a firewall blocks ucp_ep_create for minutes. */
    prefer(config, "CONN_NB", "UCX_TCP_CONN_NB", "y");
    status = ucp_init(&params, config, &h->context);
    ucp_config_release(config);
    return status;
}

int uni__ucx_open(hub *h, const char *devices, char *why)
{
    ucp_worker_params_t worker = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCS_THREAD_MODE_SINGLE };
    ucp_worker_attr_t asked = { .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS |
                                              UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
                                .address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY };
    ucp_am_handler_param_t handler = { .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                     UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                     UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                       .id = MESSAGE,
                                       .cb = arrived,
                                       .arg = h };
    h->strays.last = &h->strays.first;
    ucs_status_t status = init(h, devices);
    if (status == UCS_OK)
        status = ucp_worker_create(h->context, &worker, &h->worker);
    if (status == UCS_OK)
        status = ucp_worker_set_am_recv_handler(h->worker, &handler);
    if (status == UCS_OK)
        status = ucp_worker_query(h->worker, &asked);
    if (status == UCS_OK) {
        h->address = asked.address;
        h->address_size = asked.address_length;
        return 0;
    }
    snprintf(why, UNI__WHY_SIZE, "UCX cannot be started%s%.200s: %s", devices ? " on " : "",
             devices ? devices : "", ucs_status_string(status));
    return UNI_EUNSUPPORTED;
}

int uni__ucx_connect(hub *h, int rank, const void *address, uint64_t token, char *why)
{
    peer *it = &h->peers[rank];
    ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                             UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                             UCP_EP_PARAM_FIELD_ERR_HANDLER,
                               .address = address,
                               .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                               .err_handler = { .cb = failed, .arg = it } };
    ucs_status_t status = ucp_ep_create(h->worker, &params, &it->endpoint);
    it->token = token;
    if (status == UCS_OK)
        return 0;
    snprintf(why, UNI__WHY_SIZE, "rank %d cannot be reached: UCX says: %s", rank,
             ucs_status_string(status));
    it->endpoint = NULL;
    return UNI_EPEER;
}

bool uni__ucx_send(state *s, sending **list, const header *head, int to, const void *data,
                   size_t bytes, bool seal)
{
    ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags = UCP_AM_SEND_FLAG_EAGER };
    const peer *other = peer_of(s, to);
    sending *it = calloc(1, sizeof *it);
    if (!it)
        return false;
    it->next = *list;
    *list = it;
    it->head = *head;
    it->head.token = other->token;
    it->to = to;
    if (seal && s->seal) {
        uni__seal_place place = place_of(s, head, to);
        if (!(it->sealed = malloc(bytes + s->seal->extra)))
            return false;
        s->seal->seal(s->seal->context, &place, it->sealed, data, bytes);
        data = it->sealed;
        bytes += s->seal->extra;
    }
    if (other->dead)
        it->request = UCS_STATUS_PTR(other->status);
    else
        it->request = ucp_am_send_nbx(other->endpoint, MESSAGE, &it->head, sizeof it->head, data,
                                      bytes, &param);
    return true;
}

bool uni__ucx_sent(state *s, sending *it, int *lost)
{
    ucs_status_t status = UCS_PTR_STATUS(it->request);
    if (it->request && !UCS_PTR_IS_ERR(it->request)) {
        status = ucp_request_check_status(it->request);
        if (status == UCS_INPROGRESS)
            return false;
        ucp_request_free(it->request);
        it->request = status == UCS_OK ? NULL : UCS_STATUS_PTR(status);
    }
    /* A rank that has closed would not have read it. */
    if (status != UCS_OK && !peer_of(s, it->to)->left)
        *lost = it->to;
    return true;
}

void uni__ucx_free_sendings(sending **list)
{
    while (*list) {
        sending *it = *list;
        if (it->request && !UCS_PTR_IS_ERR(it->request)) {
            list = &it->next;
            continue;
        }
        *list = it->next;
        free(it->sealed);
        free(it);
    }
}

bool uni__ucx_receive(state *s, receiving **list, const header *want, void *room, size_t bytes,
                      bool seal)
{
    receiving *it = calloc(1, sizeof *it);
    if (!it)
        return false;
    *it = (receiving){
        .next = *list, .want = *want, .room = room, .bytes = bytes, .sealed = seal && s->seal
    };
    *list = it;
    for (arrival **at = &s->early.first; *at; at = &(*at)->next)
        if (fits(&(*at)->head, want)) {
            arrival *came = detach(&s->early, at);
            take(s, it, &came->head, came->data, came->size);
            free(came);
            return true;
        }
    receiving **last = &s->waiting;
    while (*last)
        last = &(*last)->waiting;
    *last = it;
    return true;
}

void uni__ucx_drop_receiving(state *s, receiving *it)
{
    for (receiving **at = &s->waiting; *at && !it->done; at = &(*at)->waiting)
        if (*at == it) {
            *at = it->waiting;
            break;
        }
    free(it);
}

bool uni__ucx_next_note(state *s, header *head, void *note, size_t size)
{
    for (arrival **at = &s->early.first; *at; at = &(*at)->next) {
        if ((*at)->head.class != UCX_NOTE)
            continue;
        arrival *came = detach(&s->early, at);
        receiving it = { .room = note, .bytes = size, .sealed = s->seal != NULL };
        *head = came->head;
        take(s, &it, &came->head, came->data, came->size);
        free(came);
        return it.came == size;
    }
    return false;
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Waits for the request, but not forever: a peer may not read what is sent. */
static void finish(hub *h, void *request, long long until)
{
    if (!request || UCS_PTR_IS_ERR(request))
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && now_ns() < until)
        ucp_worker_progress(h->worker);
    ucp_request_free(request);
}

void uni__ucx_flush(hub *h, long long limit_ns)
{
    ucp_request_param_t none = { 0 };
    long long until = now_ns() + limit_ns;
    for (int r = 0; r < h->size; r++)
        if (h->peers[r].endpoint && !h->peers[r].dead && !h->peers[r].left)
            finish(h, ucp_ep_flush_nbx(h->peers[r].endpoint, &none), until);
}

bool uni__ucx_has_note(const state *s)
{
    for (const arrival *it = s->early.first; it; it = it->next)
        if (it->head.class == UCX_NOTE)
            return true;
    return false;
}

static void say_bye(hub *h, state *world)
{
    header bye = { .comm = world->id, .class = UCX_BYE, .from = h->rank };
    for (int r = 0; r < h->size; r++)
        if (h->peers[r].endpoint && !h->peers[r].dead)
            (void)uni__ucx_send(world, &h->orphans, &bye, r, NULL, 0, true);
    uni__ucx_flush(h, CLOSE_NS);
}

void uni__ucx_close(hub *h, bool well)
{
    ucp_request_param_t force = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags = UCP_EP_CLOSE_FLAG_FORCE };
    state *world = state_of(h, (uint64_t)h->epoch << 32);
    long long until = now_ns() + CLOSE_NS;
    if (h->worker && world && well)
        say_bye(h, world);
    for (int r = 0; r < h->size; r++)
        if (h->peers[r].endpoint)
            finish(h, ucp_ep_close_nbx(h->peers[r].endpoint, &force), until);
}

void uni__ucx_forget(sending *list)
{
    for (; list; list = list->next) {
        if (list->request && !UCS_PTR_IS_ERR(list->request))
            ucp_request_free(list->request);
        list->request = NULL;
    }
}

void uni__ucx_end(hub *h)
{
    if (h->address)
        ucp_worker_release_address(h->worker, h->address);
    if (h->worker)
        ucp_worker_destroy(h->worker);
    if (h->context)
        ucp_cleanup(h->context);
    uni__ucx_free_arrivals(&h->strays);
}
