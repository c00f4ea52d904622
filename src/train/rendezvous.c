/*
 * rendezvous.c - the ranks of a run as peers of a communicator (comm/rendezvous.h): small values
 * and descriptors go by the controller's mail, and the session's page says when the attempt is over
 * or a rank frozen.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "comm/rendezvous.h"
#include "train/session_internal.h"
#include "base/options.h"

/* The ranks of one group of the run. Keys carry its number, so that nothing of an earlier group is
 * taken for this one's. */
typedef struct meeting {
    uni_session *session;
    uint32_t group;
    bool ucx; /* between hosts; otherwise MPI */
    bool gathers; /* where each rank is, which may have changed since the order */
    int size;
    int slots[]; /* the run's rank of each */
} meeting;

#define LOOK_MS 20
#define KEY(name, it, key)                                                                         \
    char name[UNI__SESSION_KEY_SIZE];                                                              \
    snprintf(name, sizeof name, "%u/%s", (it)->group, key)

static bool has_changed(const meeting *it)
{
    return atomic_load(&it->session->page->group) > it->group;
}

static int put(void *context, const char *key, const void *data, size_t size, uni_error *err)
{
    meeting *it = context;
    KEY(numbered, it, key);
    return uni__session_mail(it->session, -1, numbered, data, size, -1, err);
}

/* Waits in short pieces: the group may change meanwhile. */
static int wait_mail(meeting *it, int from, const char *key, void *data, size_t capacity,
                     size_t *size, int *fd, int timeout_ms, uni_error *err)
{
    KEY(numbered, it, key);
    char why[256];
    for (int left = timeout_ms;; left -= LOOK_MS) {
        int piece = left < LOOK_MS ? left : LOOK_MS;
        uni_error aside = { 0 }; /* what is not the last word is not kept */
        int status = uni__session_mail_wait(it->session, from, numbered, data, capacity, size, fd,
                                            piece, &aside);
        if (status < 0 && status != UNI_ETIMEOUT)
            return uni_error_set(err, status, "%s", aside.message);
        if (status == 0)
            return 0;
        if (has_changed(it))
            return uni_error_set(err, UNI_EWORKER, "rank %d is in another group now", from);
        if (uni__session_is_over(it->session, why, sizeof why))
            return uni_error_set(err, UNI_ECANCELED, "%s", why);
        if (left <= LOOK_MS)
            return uni_error_set(err, UNI_ETIMEOUT, "rank %d did not send \"%s\" within %d ms",
                                 from, key, timeout_ms);
    }
}

static int get(void *context, int rank, const char *key, void *data, size_t capacity, size_t *size,
               int timeout_ms, uni_error *err)
{
    return wait_mail(context, ((meeting *)context)->slots[rank], key, data, capacity, size, NULL,
                     timeout_ms, err);
}

static int pass(void *context, int to, int fd, uni_error *err)
{
    meeting *it = context;
    KEY(numbered, it, "descriptor");
    return uni__session_mail(it->session, it->slots[to], numbered, NULL, 0, fd, err);
}

static int receive(void *context, int from, int *fd, int timeout_ms, uni_error *err)
{
    char nothing[1];
    size_t size;
    *fd = -1;
    UNI_TRY(wait_mail(context, ((meeting *)context)->slots[from], "descriptor", nothing,
                      sizeof nothing, &size, fd, timeout_ms, err));
    return *fd >= 0 ? 0 : uni_error_set(err, UNI_EFORMAT, "rank %d sent no descriptor", from);
}

static bool alive(void *context, int rank, char *why, size_t why_size)
{
    const meeting *it = context;
    if (has_changed(it)) {
        snprintf(why, why_size, "is in another group now: ranks have come or gone");
        return false;
    }
    if (atomic_load(&it->session->page->suspect) != (uint32_t)it->slots[rank] + 1)
        return true;
    snprintf(why, why_size, "is stopped or silent");
    return false;
}

static void alarm_reason(void *context, char *why, size_t why_size)
{
    const uni__page *page = ((const meeting *)context)->session->page;
    snprintf(why, why_size, "%.*s", (int)sizeof page->alarm_reason - 1, page->alarm_reason);
}

static const uni__rendezvous_vtable session_vtable = { .name = "session",
                                                       .put = put,
                                                       .get = get,
                                                       .pass = pass,
                                                       .receive = receive,
                                                       .alive = alive,
                                                       .abort_reason = alarm_reason };

/* Communicators of one group are opened in the same order by all its ranks, so they count alike. */
static uint32_t next_epoch(uni_session *session, uint32_t group)
{
    if (session->epoch_group != group)
        session->epochs = 0;
    session->epoch_group = group;
    return group << 16 | (++session->epochs & 0xffff);
}

/* *locals, malloc'ed: the ranks of the group on this rank's host; *num_hosts: of all. */
static int find_neighbours(meeting *it, int place, int **locals, int *num_locals, int *num_hosts,
                           uni_error *err)
{
    int32_t mine = it->session->node_rank;
    int32_t *nodes = calloc((size_t)it->size, sizeof *nodes);
    size_t size;
    *locals = calloc((size_t)it->size, sizeof **locals);
    int status = nodes && *locals ? put(it, "node", &mine, sizeof mine, err)
                                  : uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    *num_locals = *num_hosts = 0;
    for (int rank = 0; status == 0 && rank < it->size; rank++) {
        nodes[rank] = mine;
        if (rank != place)
            status = get(it, rank, "node", &nodes[rank], sizeof nodes[rank], &size, INT_MAX, err);
        if (nodes[rank] == mine)
            (*locals)[(*num_locals)++] = rank;
        int before = 0;
        while (before < rank && nodes[before] != nodes[rank])
            before++;
        *num_hosts += before == rank;
    }
    free(nodes);
    if (status < 0) {
        free(*locals);
        *locals = NULL;
    }
    return status;
}

/* A group whose ranks may have moved since their orders. */
static int open_gathered(uni_comm **out, uni_session *session, meeting *it,
                         const uni__rendezvous *peers, const uni_comm_options *options,
                         int open_timeout_ms, uni_error *err)
{
    int *locals = NULL, num_locals, num_hosts, status;
    uni__between between = { .ucx = true,
                             .epoch = next_epoch(session, it->group),
                             .open_timeout_ms = open_timeout_ms };
    UNI_TRY(find_neighbours(it, peers->rank, &locals, &num_locals, &num_hosts, err));
    if (num_hosts == 1)
        status = uni__comm_open_shm(out, peers, options, open_timeout_ms, err);
    else if (num_hosts < it->size)
        status = uni__comm_open_hosts(out, peers, locals, num_locals, options, &between, err);
    else
        status = uni__comm_open_ucx(out, peers, options, between.epoch, open_timeout_ms, err);
    free(locals);
    return status;
}

static int open_transport(uni_comm **out, uni_session *session, meeting *it,
                          const uni__rendezvous *peers, const uni_comm_options *options,
                          int open_timeout_ms, uni_error *err)
{
    if (it->gathers)
        return open_gathered(out, session, it, peers, options, open_timeout_ms, err);
    if (session->nodes <= 1)
        return uni__comm_open_shm(out, peers, options, open_timeout_ms, err);
    uni__between between = { .ucx = it->ucx, .open_timeout_ms = open_timeout_ms };
    if (it->ucx)
        between.epoch = next_epoch(session, it->group);
    if (session->nodes < session->size)
        return uni__comm_open_hosts(out, peers, session->locals, session->local_size, options,
                                    &between, err);
    return it->ucx ? uni__comm_open_ucx(out, peers, options, between.epoch, open_timeout_ms, err)
                   : uni__comm_open_mpi(out, peers, options, NULL, err);
}

/* The ranks of a group, in their order. */
static meeting *new_meeting(uni_session *session, uint32_t group, const uni__members *members)
{
    int size = members->count > 0 ? (int)members->count : session->size;
    meeting *it = malloc(sizeof *it + (size_t)size * sizeof it->slots[0]);
    if (!it)
        return NULL;
    *it = (meeting){ .session = session, .group = group };
    for (int rank = 0; it->size < size; rank++)
        if (uni__members_has(members, rank))
            it->slots[it->size++] = rank;
    return it;
}

static int own_place(const meeting *it)
{
    int place = 0;
    while (it->slots[place] != it->session->rank)
        place++;
    return place;
}

typedef struct standing {
    int64_t progress;
    int slot;
} standing;

static int compare_standings(const void *a, const void *b)
{
    const standing *left = a, *right = b;
    if (left->progress != right->progress)
        return left->progress > right->progress ? -1 : 1;
    return left->slot < right->slot ? -1 : 1;
}

/* The rank that has saved most becomes the first. */
static int order_by_progress(meeting *it, int64_t progress, uni_error *err)
{
    standing all[UNI__MOST_MEMBERS];
    size_t size;
    if (it->size > UNI__MOST_MEMBERS)
        return uni_error_set(err, UNI_ELIMIT, "a group of %d ranks, and at most %d can change",
                             it->size, UNI__MOST_MEMBERS);
    UNI_TRY(put(it, "progress", &progress, sizeof progress, err));
    for (int i = 0; i < it->size; i++) {
        all[i] = (standing){ .progress = progress, .slot = it->slots[i] };
        if (it->slots[i] != it->session->rank)
            UNI_TRY(get(it, i, "progress", &all[i].progress, sizeof all[i].progress, &size, INT_MAX,
                        err));
    }
    qsort(all, (size_t)it->size, sizeof all[0], compare_standings);
    for (int i = 0; i < it->size; i++)
        it->slots[i] = all[i].slot;
    return 0;
}

/* open_timeout_ms 0: the default. progress NULL: the ranks are in the order of their slots. */
static int open_group(uni_comm **out, uni_session *session, uint32_t group,
                      const uni__members *members, bool ucx, const int64_t *progress,
                      const uni_comm_options *options, int open_timeout_ms, uni_error *err)
{
    uni_comm_options with_records = *options;
    char *records = NULL;
    /* What each rank was doing stays readable in the run directory after everything was killed. */
    if (!with_records.record_dir) {
        records = uni__path_join(session->run_dir, "collectives", NULL);
        if (!records)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        UNI_TRY(uni__make_dirs(records, 0700, err));
        with_records.record_dir = records;
    }
    meeting *it = new_meeting(session, group, members);
    if (!it) {
        free(records);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    }
    it->ucx = ucx;
    it->gathers = ucx && session->apart && (session->has_met || members->count > 0);
    int status = progress ? order_by_progress(it, *progress, err) : 0;
    uni__rendezvous peers = { .vtable = &session_vtable,
                              .context = it,
                              .rank = own_place(it),
                              .size = it->size,
                              .names = it->slots,
                              .abort_word = &session->page->alarm,
                              .data_key = session->seals ? session->data_key : NULL,
                              .address = session->address[0] ? session->address : NULL };
    if (status == 0)
        status = open_transport(out, session, it, &peers, &with_records, open_timeout_ms, err);
    if (status < 0)
        free(it);
    else
        uni__comm_take_peers(*out, free);
    free(records);
    return status;
}

int uni_session_comm(uni_comm **out, uni_session *session, const uni_comm_options *options,
                     uni_error *err)
{
    return uni__session_comm_over(out, session, session->ucx, options, err);
}

int uni__session_comm_over(uni_comm **out, uni_session *session, bool ucx,
                           const uni_comm_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_comm_options, options, record_dir, err);
    if (!session->is_worker || session->size == 1)
        return uni_comm_open_threads(out, 1, options, err);
    /* A new process could not enter this communicator. */
    session->keeps_ranks = true;
    uni__session_set_replaceable(session, false, false, false);
    if (session->joins)
        return uni_error_set(err, UNI_EWORKER,
                             "rank %d came later than the others, and cannot enter the "
                             "communicator that they have opened",
                             session->rank);
    uni__members members;
    uint32_t number;
    uni__page_members(session->page, &number, &members);
    return open_group(out, session, session->group, &members, ucx, NULL, options, 0, err);
}

/* ---- groups in which a rank can be replaced ---- */

bool uni__session_is_elastic(const uni_session *session)
{
    return session->is_worker && session->elastic && (session->size > 1 || session->resizable) &&
           !session->has_met && !session->keeps_ranks;
}

bool uni__session_is_apart(const uni_session *session)
{
    return session->apart;
}

bool uni__session_joins(const uni_session *session)
{
    return session->joins;
}

void uni__session_set_replaceable(uni_session *session, bool others, bool itself, bool resizes)
{
    uint32_t how = (others ? UNI__REPLACES_OTHERS : 0) | (itself ? UNI__IS_REPLACED : 0) |
                   (resizes ? UNI__IS_RESIZED : 0) |
                   (resizes && session->is_asked ? UNI__IS_ASKED : 0);
    if (!session->page)
        return;
    atomic_store(&session->page->replaceable, session->keeps_ranks ? 0 : how);
    if (others)
        atomic_store(&session->page->joined, 1);
    if (session->resizable)
        uni__session_ring_bell(session);
}

void uni__session_set_fixed(uni_session *session, uint32_t why)
{
    if (session->page)
        atomic_store(&session->page->fixed, why);
}

bool uni__session_group_changed(const uni_session *session, uint32_t number)
{
    return atomic_load_explicit(&session->page->group, memory_order_relaxed) > number;
}

bool uni__session_is_asked(const uni_session *session, uint32_t number)
{
    return atomic_load_explicit(&session->page->asked, memory_order_relaxed) > number;
}

bool uni__session_leaves(const uni_session *session)
{
    return atomic_load_explicit(&session->page->leave, memory_order_relaxed) != 0;
}

void uni__session_left(uni_session *session)
{
    atomic_store(&session->page->left, 1);
    uni__session_ring_bell(session);
}

void uni__session_begin_fit(uni_session *session)
{
    atomic_store(&session->page->ending, 0);
    atomic_store(&session->page->closed, 0);
    uni__session_ring_bell(session);
}

int uni__session_end_fit(uni_session *session, uint32_t number, uni_error *err)
{
    uni__page *page = session->page;
    char why[256];
    atomic_store(&page->ending, number);
    uni__session_ring_bell(session);
    for (;;) {
        uint32_t closed = atomic_load(&page->closed);
        if (closed == number)
            return 0;
        if (atomic_load(&page->group) > number)
            return uni_error_set(err, UNI_EWORKER, "ranks have come or gone at the end of fit");
        if (uni__session_is_over(session, why, sizeof why))
            return uni_error_set(err, UNI_ECANCELED, "%s", why);
        uni__futex_wait(&page->closed, closed, LOOK_MS);
    }
}

int64_t uni__session_reports(const uni_session *session)
{
    return session->iteration;
}

void uni__session_caught_up(uni_session *session, int64_t reports, int64_t others)
{
    session->catches_up = false;
    if (session->fresh && reports < 0)
        reports = others;
    if (reports < 0 || (reports > session->known && !session->fresh))
        return;
    session->iteration = reports;
    if (session->known < reports)
        session->known = reports;
    atomic_store(&session->page->iteration, reports);
}

void uni__session_stand_at(uni_session *session, int64_t reports)
{
    session->catches_up = false;
    if (session->known < session->iteration)
        session->known = session->iteration;
    session->iteration = reports;
    atomic_store(&session->page->iteration, reports);
}

static int wait_for_group(uni_session *session, uint32_t after, uint32_t *number,
                          uni__members *members, uni_error *err)
{
    uni__page *page = session->page;
    char why[256];
    atomic_store(&page->awaits, after + 1);
    if (session->resizable)
        uni__session_ring_bell(session);
    for (;;) {
        uni__page_members(page, number, members);
        if (*number > after && uni__members_has(members, session->rank))
            return 0;
        if (uni__session_is_over(session, why, sizeof why))
            return uni_error_set(err, UNI_ECANCELED, "%s", why);
        uni__futex_wait(&page->group, *number, LOOK_MS);
    }
}

static int meet(uni_comm **out, uint32_t *number, uni__members *members, uni_session *session,
                uint32_t after, const int64_t *progress, uni_error *err)
{
    uni_comm_options options = { .size = sizeof options };
    session->has_met = true;
    for (;;) {
        UNI_TRY(wait_for_group(session, after, number, members, err));
        /* The wait ends when the group changes, or the attempt. */
        int status = open_group(out, session, *number, members, session->ucx, progress, &options,
                                INT_MAX, err);
        if (status == 0)
            break;
        if (status != UNI_EWORKER && status != UNI_EPEER)
            return status;
        after = *number;
    }
    if (members->count > 0)
        session->size = session->local_size = uni_comm_info_of(*out)->size;
    return 0;
}

int uni__session_meet_by(uni_comm **out, uint32_t *number, uni_session *session, uint32_t after,
                         int64_t progress, uni_error *err)
{
    uni__members members;
    session->is_asked = true;
    return meet(out, number, &members, session, after, &progress, err);
}

int uni__session_meet(uni_comm **out, int **slots, uint32_t *number, uni_session *session,
                      uint32_t after, uni_error *err)
{
    uni__members members;
    UNI_TRY(meet(out, number, &members, session, after, NULL, err));
    const uni_comm_info *info = uni_comm_info_of(*out);
    *slots = malloc((size_t)info->size * sizeof **slots);
    if (!*slots) {
        uni_comm_close(*out);
        return uni_error_set(err, UNI_ENOMEM, "no memory to meet %d ranks", info->size);
    }
    for (int rank = 0, place = 0; place < info->size; rank++)
        if (uni__members_has(&members, rank))
            (*slots)[place++] = rank;
    return 0;
}
