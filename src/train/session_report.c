/*
 * session_report.c - report(): one write into the ring.
 *
 * The numbers-only form packs straight into shared memory: no allocation, no lock, no system call
 * while the controller is awake. Stopping together: the iteration is published before `stopping` is
 * read (both sequentially consistent), so either the controller counts this iteration in when it
 * chooses stop_at, or this rank sees that it must wait for stop_at.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shared.h"
#include "train/shared.h"
#include "base/clock.h"
#include "train/session_internal.h"

#define SHORT_MAX 4096 /* bytes of a report that takes the short way */
#define AUTOFILL_ROOM 512

bool uni_session_should_stop(const uni_session *session)
{
    uni__page *page = session->page;
    if (!page || !atomic_load(&page->stop_at_known))
        return false;
    bool stop = atomic_load(&page->iteration) >= atomic_load(&page->stop_at);
    if (stop)
        atomic_store(&page->stop_seen, 1);
    return stop;
}

bool uni__session_stops_at_step(const uni_session *session)
{
    return session->page && atomic_load(&session->page->stopping) == UNI__STOPS_AT_STEP;
}

void uni__session_stopped(uni_session *session)
{
    atomic_store(&session->page->stop_seen, 1);
}

void uni_session_request_stop(uni_session *session)
{
    if (!session->page)
        return;
    uint32_t none = UNI__STOP_NONE;
    atomic_compare_exchange_strong(&session->page->stop_request, &none, UNI__STOP_EARLY);
    uni__session_ring_bell(session);
}

/* Publishes the next iteration and, when the group is stopping, learns where it will stop. */
static int begin_iteration(uni_session *session, uni_error *err)
{
    session->advanced = true;
    if (!session->keeps_steps && (session->every_steps > 0 || session->every_seconds > 0))
        atomic_store(&session->page->no_steps, 1);
    atomic_store(&session->page->iteration, ++session->iteration);
    if (atomic_load(&session->page->stopping))
        return uni__session_wait(session, &session->page->stop_at_known, 0, err);
    return 0;
}

/* The process that this one replaces has made the next report. */
static bool is_repeated(const uni_session *session)
{
    return session->catches_up || session->iteration < session->known;
}

static int repeat(uni_session *session, uni_error *err)
{
    return session->catches_up ? 0 : begin_iteration(session, err);
}

int uni__session_report_wait(uni_session *session, uni_error *err)
{
    uni__page *page = session->page;
    if (!session->is_worker)
        return 0;
    for (uint32_t seen; session->lockstep && (int32_t)((seen = atomic_load(&page->released)) -
                                                       (uint32_t)session->iteration) < 0;)
        UNI_TRY(uni__session_wait(session, &page->released, seen, err));
    if (session->synchronous)
        UNI_TRY(uni__session_wait_complete(session, err));
    /* A trial's train function knows nothing of tuners: it learns of its end where it looks
     * anyway. */
    if (session->trial && uni_session_should_stop(session))
        return uni_error_set(err, UNI_ECANCELED,
                             "the tuner ended this trial at iteration %lld: return from the train "
                             "function",
                             (long long)session->iteration);
    return 0;
}

typedef struct autofill {
    double seconds; /* of this iteration */
    bool has_seconds; /* the caller gave its own */
    int count; /* keys that will be added */
} autofill;

static autofill measure(uni_session *session, bool caller_gave_seconds)
{
    uint64_t now = uni__monotonic_ns();
    autofill fill = { .seconds = (double)(now - session->last_report_ns) * 1e-9,
                      .has_seconds = caller_gave_seconds };
    session->last_report_ns = now;
    fill.count = 2 + !caller_gave_seconds + (session->detailed ? 5 : 0);
    return fill;
}

static void pack_key(uni__packer *packer, const char *key)
{
    uni__pack_string(packer, key, strlen(key));
}

/* What precedes the metrics in a report (protocol.h). */
static void pack_head(uni__packer *packer, int64_t iteration, const void *state, size_t state_size)
{
    uint32_t size = (uint32_t)state_size;
    uni__pack_raw(packer, &iteration, sizeof iteration);
    uni__pack_raw(packer, &size, sizeof size);
    if (size > 0)
        uni__pack_raw(packer, state, size);
}

static void pack_autofill(uni_session *session, uni__packer *packer, const autofill *fill)
{
    double wall = uni__wall_seconds();
    pack_key(packer, "_timestamp");
    uni__pack_int(packer, (int64_t)wall);
    if (!fill->has_seconds) {
        pack_key(packer, "_time_this_iter_s");
        uni__pack_double(packer, fill->seconds);
    }
    pack_key(packer, "_training_iteration");
    uni__pack_int(packer, session->iteration);
    if (!session->detailed)
        return;
    char date[20];
    uni__format_date(wall, date);
    pack_key(packer, "_date");
    pack_key(packer, date);
    pack_key(packer, "_hostname");
    pack_key(packer, session->hostname);
    pack_key(packer, "_node_ip");
    pack_key(packer, session->node_ip);
    pack_key(packer, "_pid");
    uni__pack_int(packer, getpid());
    pack_key(packer, "_time_total_s");
    uni__pack_double(packer, (double)(session->last_report_ns - session->begun_ns) * 1e-9);
}

/* Names that are filled in; what a caller gives under them is left out, but for
 * _time_this_iter_s. */
static bool is_autofilled(const uni_session *session, const char *name)
{
    static const char *const always[] = { "_timestamp", "_training_iteration" };
    static const char *const detailed[] = { "_date", "_hostname", "_node_ip", "_pid",
                                            "_time_total_s" };
    if (name[0] != '_')
        return false;
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        if (strcmp(name, always[i]) == 0)
            return true;
    for (size_t i = 0; session->detailed && i < sizeof detailed / sizeof detailed[0]; i++)
        if (strcmp(name, detailed[i]) == 0)
            return true;
    return false;
}

static void pack_numbers(const uni_session *session, uni__packer *packer, int count,
                         const char *const *names, const double *values)
{
    for (int i = 0; i < count; i++) {
        if (is_autofilled(session, names[i]))
            continue;
        pack_key(packer, names[i]);
        if (values[i] == floor(values[i]) && fabs(values[i]) < 9007199254740992.0)
            uni__pack_int(packer, (int64_t)values[i]);
        else
            uni__pack_double(packer, values[i]);
    }
}

int uni_session_report_numbers(uni_session *session, int count, const char *const *names,
                               const double *values, uni_error *err)
{
    size_t bound = AUTOFILL_ROOM + sizeof session->hostname;
    bool gave_seconds = false;
    int kept = 0;
    if (!session->is_worker) {
        uni__session_warn_alone(session, UNI__WARNED_REPORT, "report");
        session->iteration++;
        return 0;
    }
    for (int i = 0; i < count; i++) {
        if (!names[i])
            return uni_error_set(err, UNI_EINVAL, "report: metric number %d has no name", i);
        bound += strlen(names[i]) + 14;
        gave_seconds |= names[i][0] == '_' && strcmp(names[i], "_time_this_iter_s") == 0;
        kept += !is_autofilled(session, names[i]);
    }
    const void *state;
    size_t state_size;
    UNI_TRY(uni__session_is_own(session, err));
    if (is_repeated(session))
        return repeat(session, err);
    UNI_TRY(uni__session_state_section(session, &state, &state_size, err));
    bound += state_size;
    UNI_TRY(begin_iteration(session, err));
    autofill fill = measure(session, gave_seconds);
    uint8_t *place = bound <= SHORT_MAX ? uni__ring_reserve(session->page, bound) : NULL;
    uni__packer packer = { .data = place, .capacity = bound, .fixed = true };
    if (!place) {
        /* No room now, or an unusually long report: by way of a buffer. */
        session->packer.size = 0;
        session->packer.overflow = false;
        packer = session->packer;
    }
    pack_head(&packer, session->iteration, state, state_size);
    if (state_size > 0)
        uni__session_state_said(session);
    uni__pack_map(&packer, (size_t)(kept + fill.count));
    pack_numbers(session, &packer, count, names, values);
    pack_autofill(session, &packer, &fill);
    if (place) {
        if (uni__ring_commit(session->page, place, packer.size, UNI__SAYS_REPORT, 0))
            uni__session_ring_bell(session);
    } else {
        session->packer = packer;
        if (packer.overflow)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a report of %d metrics", count);
        UNI_TRY(uni__session_say(session, UNI__SAYS_REPORT, packer.data, packer.size, err));
    }
    return uni__session_report_wait(session, err);
}

static int check_metrics(const uni_value *metrics, uni_error *err)
{
    if (metrics && uni_value_type_of(metrics) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "report: metrics must be a dictionary, not a %s",
                             uni__value_type_name(uni_value_type_of(metrics)));
    return 0;
}

int uni__session_report_start(uni_session *session, const uni_value *metrics,
                              const uni_checkpoint_source *checkpoint, uni_error *err)
{
    UNI_TRY(check_metrics(metrics, err));
    if (!session->is_worker) {
        uni__session_warn_alone(session, UNI__WARNED_REPORT, "report");
        session->iteration++;
        return 0;
    }
    UNI_TRY(uni__session_is_own(session, err));
    if (is_repeated(session))
        return repeat(session, err);
    /* The report is packed before anything is published, so that one that cannot be sent changes
     * nothing. */
    uni__packer *packer = &session->packer;
    size_t count = uni_dict_size(metrics), kept = 0;
    for (size_t i = 0; i < count; i++)
        kept += !is_autofilled(session, uni_dict_key_at(metrics, i));
    bool gave_seconds = uni_dict_get(metrics, "_time_this_iter_s") != NULL;
    int64_t iteration = session->iteration + 1;
    const void *state;
    size_t state_size;
    UNI_TRY(uni__session_state_section(session, &state, &state_size, err));
    packer->size = 0;
    packer->overflow = false;
    pack_head(packer, iteration, state, state_size);
    uni__pack_map(packer, kept + 2 + !gave_seconds + (session->detailed ? 5 : 0));
    for (size_t i = 0; i < count; i++) {
        if (is_autofilled(session, uni_dict_key_at(metrics, i)))
            continue;
        pack_key(packer, uni_dict_key_at(metrics, i));
        if (uni__pack_value(packer, uni_dict_value_at(metrics, i), err) < 0)
            return uni_error_prefix(err, "report: metric \"%s\"", uni_dict_key_at(metrics, i));
    }
    if (checkpoint && (checkpoint->directory || checkpoint->dict))
        UNI_TRY(uni__session_take_checkpoint(session, checkpoint, iteration, UNI__OF_REPORT, err));
    UNI_TRY(begin_iteration(session, err));
    autofill fill = measure(session, gave_seconds);
    pack_autofill(session, packer, &fill);
    if (packer->overflow)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a report of %zu metrics", count);
    if (state_size > 0)
        uni__session_state_said(session);
    return uni__session_say(session, UNI__SAYS_REPORT, packer->data, packer->size, err);
}

int uni_session_report(uni_session *session, const uni_value *metrics,
                       const uni_checkpoint_source *checkpoint, uni_error *err)
{
    UNI_TRY(uni__session_report_start(session, metrics, checkpoint, err));
    return uni__session_report_wait(session, err);
}
