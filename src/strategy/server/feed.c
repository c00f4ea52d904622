/*
 * feed.c - how a worker finds the batch that a call names: in the shared source, by epoch and
 * number; in synchronous mode its own part of it. Called on the worker's thread.
 */
#include <string.h>

#include "strategy/internal.h"
#include "strategy/server/internal.h"

static int find(uni__server_feed *feed, const uni__ps *ps, const uni__batch_call *call,
                uni_batch *out, uni_error *err)
{
    if (feed->positioned != call->epoch + 1 || call->batch < feed->next) {
        UNI_TRY(uni_batches_reset(feed->global, call->epoch, err));
        feed->positioned = call->epoch + 1;
        feed->next = 0;
    }
    for (;;) {
        int found = uni_batches_next(out, feed->global, err);
        UNI_TRY(found);
        if (found == 0)
            return uni_error_set(err, UNI_EMISMATCH,
                                 "worker %d has no batch %llu in epoch %llu: give the same data on "
                                 "every member",
                                 ps->cluster.rank - 1, (unsigned long long)call->batch,
                                 (unsigned long long)call->epoch);
        if (feed->next++ == call->batch)
            return 0;
    }
}

int uni__server_feed_batch(uni__server_feed *feed, const uni__ps *ps, const uni__batch_call *call,
                           uint64_t id, uni_batch *out, uni_error *err)
{
    UNI_TRY(find(feed, ps, call, out, err));
    if (!uni__ps_is_synchronous(ps))
        return 0;
    int64_t parts = uni__ps_lanes(ps), part = (int64_t)(id % (uint64_t)parts);
    *out = uni__batch_part(out, out->size * part / parts, out->size * (part + 1) / parts);
    return 0;
}

/* A dead worker had completed the step, but not delivered its result: only report its numbers
 * again. */
static int already_done(uni__ps *ps, const uni__work *work, uni_error *err)
{
    double sums[UNI__PS_MAX_SUMS];
    if (!(work->flags & UNI__PS_RETRY))
        return 0;
    int done = uni__ps_query(ps, work->id, sums, UNI__PS_MAX_SUMS, err);
    UNI_TRY(done);
    if (done)
        UNI_TRY(uni__ps_set_result(ps, 0, sums, sizeof sums, err));
    return done;
}

int uni__server_feed_call(uni__ps *ps, uni__work *work, uni__batch_call *call, uni_error *err)
{
    int found, done;
    do {
        found = uni__ps_next_work(ps, work, err);
        if (found <= 0)
            return found;
        done = already_done(ps, work, err);
        UNI_TRY(done);
    } while (done);
    if (work->size != sizeof *call)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the coordinator schedules other calls than this worker expects: make "
                             "the same calls on every member");
    memcpy(call, work->arguments, sizeof *call);
    return 1;
}
