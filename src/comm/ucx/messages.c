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
    return (uni__seal_place){ .comm = s->epoch,
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
    if (size != it->bytes + extra)
        return; /* the caller checks the size */
    if (!it->sealed) {
        memcpy(it->room, data, size);
        return;
    }
    uni__seal_place place = place_of(s, head, s->rank);
    if (s->seal->open(s->seal->context, &place, it->room, data, it->bytes) != 0)
        s->forged = head->from;
}

static void keep(state *s, const header *head, const void *data, size_t size)
{
    arrival *it = malloc(sizeof *it + size);
    if (!it) {
        s->no_memory = true;
        return;
    }
    it->next = NULL;
    it->head = *head;
    it->size = size;
    if (size)
        memcpy(it->data, data, size);
    *s->last_arrival = it;
    s->last_arrival = &it->next;
}

static ucs_status_t arrived(void *argument, const void *bytes, size_t header_size, void *data,
                            size_t size, const ucp_am_recv_param_t *param)
{
    state *s = argument;
    header head;
    if (header_size != sizeof head)
        return UCS_OK;
    memcpy(&head, bytes, sizeof head);
    if (head.epoch != s->epoch || head.from < 0 || head.from >= s->size || head.from == s->rank)
        return UCS_OK;
    if (head.class == UCX_HELLO || head.class == UCX_BYE) {
        s->peers[head.from].hello = true;
        s->peers[head.from].left |= head.class == UCX_BYE;
        return UCS_OK;
    }
    for (receiving **at = &s->waiting; *at; at = &(*at)->waiting)
        if (fits(&(*at)->want, &head)) {
            receiving *it = *at;
            *at = it->waiting;
            take(s, it, &head, data, size);
            return UCS_OK;
        }
    keep(s, &head, data, size);
    return UCS_OK;
}

static void failed(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    peer *it = argument;
    it->dead = true;
    it->status = status;
}

int uni__ucx_open(state *s, char *why)
{
    ucp_config_t *config = NULL;
    ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM };
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
                                       .arg = s };
    s->last_arrival = &s->arrivals;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status == UCS_OK) {
        status = ucp_init(&params, config, &s->context);
        ucp_config_release(config);
    }
    if (status == UCS_OK)
        status = ucp_worker_create(s->context, &worker, &s->worker);
    if (status == UCS_OK)
        status = ucp_worker_set_am_recv_handler(s->worker, &handler);
    if (status == UCS_OK)
        status = ucp_worker_query(s->worker, &asked);
    if (status == UCS_OK) {
        s->address = asked.address;
        s->address_size = asked.address_length;
        return 0;
    }
    snprintf(why, UNI__WHY_SIZE, "UCX cannot be started: %s", ucs_status_string(status));
    return UNI_EUNSUPPORTED;
}

int uni__ucx_connect(void *context, int rank, const void *address, char *why)
{
    state *s = context;
    peer *it = &s->peers[rank];
    ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                             UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                             UCP_EP_PARAM_FIELD_ERR_HANDLER,
                               .address = address,
                               .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                               .err_handler = { .cb = failed, .arg = it } };
    ucs_status_t status = ucp_ep_create(s->worker, &params, &it->endpoint);
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
    sending *it = calloc(1, sizeof *it);
    if (!it)
        return false;
    it->next = *list;
    *list = it;
    it->head = *head;
    it->to = to;
    if (seal && s->seal) {
        uni__seal_place place = place_of(s, head, to);
        if (!(it->sealed = malloc(bytes + s->seal->extra)))
            return false;
        s->seal->seal(s->seal->context, &place, it->sealed, data, bytes);
        data = it->sealed;
        bytes += s->seal->extra;
    }
    if (s->peers[to].dead)
        it->request = UCS_STATUS_PTR(s->peers[to].status);
    else
        it->request = ucp_am_send_nbx(s->peers[to].endpoint, MESSAGE, &it->head, sizeof it->head,
                                      data, bytes, &param);
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
    if (status != UCS_OK)
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
    for (arrival **at = &s->arrivals; *at; at = &(*at)->next)
        if (fits(&(*at)->head, want)) {
            arrival *came = *at;
            *at = came->next;
            if (!came->next)
                s->last_arrival = at;
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
    for (arrival **at = &s->arrivals; *at; at = &(*at)->next) {
        arrival *came = *at;
        if (came->head.class != UCX_NOTE)
            continue;
        *at = came->next;
        if (!came->next)
            s->last_arrival = at;
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
static void finish(state *s, void *request, long long until)
{
    if (!request || UCS_PTR_IS_ERR(request))
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && now_ns() < until)
        ucp_worker_progress(s->worker);
    ucp_request_free(request);
}

void uni__ucx_flush(state *s, long long limit_ns)
{
    ucp_request_param_t none = { 0 };
    long long until = now_ns() + limit_ns;
    for (int r = 0; r < s->size; r++)
        if (s->peers[r].endpoint && !s->peers[r].dead && !s->peers[r].left)
            finish(s, ucp_ep_flush_nbx(s->peers[r].endpoint, &none), until);
}

bool uni__ucx_has_note(const state *s)
{
    for (const arrival *it = s->arrivals; it; it = it->next)
        if (it->head.class == UCX_NOTE)
            return true;
    return false;
}

void uni__ucx_close(state *s, bool well)
{
    ucp_request_param_t force = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags = UCP_EP_CLOSE_FLAG_FORCE };
    header bye = { .epoch = s->epoch, .class = UCX_BYE, .from = s->rank };
    sending *byes = NULL;
    long long until = now_ns() + CLOSE_NS;
    for (int r = 0; r < s->size && well; r++)
        if (s->peers[r].endpoint && !s->peers[r].dead)
            (void)uni__ucx_send(s, &byes, &bye, r, NULL, 0, false);
    if (s->worker && well)
        uni__ucx_flush(s, CLOSE_NS);
    for (int r = 0; r < s->size; r++)
        if (s->peers[r].endpoint)
            finish(s, ucp_ep_close_nbx(s->peers[r].endpoint, &force), until);
    for (sending *it = byes, *next; it; it = next) {
        next = it->next;
        if (it->request && !UCS_PTR_IS_ERR(it->request))
            ucp_request_free(it->request);
        free(it);
    }
    if (s->address)
        ucp_worker_release_address(s->worker, s->address);
    if (s->worker)
        ucp_worker_destroy(s->worker);
    if (s->context)
        ucp_cleanup(s->context);
    while (s->arrivals) {
        arrival *next = s->arrivals->next;
        free(s->arrivals);
        s->arrivals = next;
    }
}
