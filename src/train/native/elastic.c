/* elastic.c - the session of a run as the membership of a strategy (strategy/elastic/elastic.h). */
#include <stdlib.h>

#include "strategy/elastic/elastic.h"
#include "train/native/open.h"
#include "train/shared.h"

static int meet(void *context, uint32_t after, uni_comm **out, int **slots, uint32_t *number,
                uni_error *err)
{
    return uni__session_meet(out, slots, number, context, after, err);
}

static bool has_changed(void *context, uint32_t number)
{
    return uni__session_group_changed(context, number);
}

static bool leaves(void *context)
{
    return uni__session_leaves(context);
}

static void left(void *context)
{
    uni__session_left(context);
}

static void begin_fit(void *context)
{
    uni__session_begin_fit(context);
}

static int end_fit(void *context, uint32_t number, uni_error *err)
{
    return uni__session_end_fit(context, number, err);
}

static void set_replaceable(void *context, bool others, bool itself, bool resizes)
{
    uni__session_set_replaceable(context, others, itself, resizes);
}

static void set_fixed(void *context, uni__elastic_fixed why)
{
    static const uint32_t words[] = { [UNI__ELASTIC_NOT_FIXED] = UNI__NOT_FIXED,
                                      [UNI__ELASTIC_OWN_SHARDS] = UNI__FIXED_BY_DATA,
                                      [UNI__ELASTIC_ACCUMULATES] = UNI__FIXED_BY_ACCUMULATION,
                                      [UNI__ELASTIC_NO_ENTRY] = UNI__FIXED_LATER_FIT };
    uni__session_set_fixed(context, words[why]);
}

static int64_t count_reports(void *context)
{
    return uni__session_reports(context);
}

static void caught_up(void *context, int64_t reports, int64_t others)
{
    uni__session_caught_up(context, reports, others);
}

int uni__open_elastic(uni_strategy **out, uni_session *session,
                      const uni_multi_worker_options *options, uni_error *err)
{
    static const uni__membership_vtable members = { .name = "session",
                                                    .meet = meet,
                                                    .has_changed = has_changed,
                                                    .leaves = leaves,
                                                    .left = left,
                                                    .begin_fit = begin_fit,
                                                    .end_fit = end_fit,
                                                    .set_replaceable = set_replaceable,
                                                    .set_fixed = set_fixed,
                                                    .count_reports = count_reports,
                                                    .caught_up = caught_up };
    uni_comm *comm = NULL;
    int *slots = NULL;
    uint32_t number = 0;
    int status;
    if (uni__session_joins(session)) { /* it meets the others in fit */
        const uni_session_info *info = uni_session_info_of(session);
        UNI_TRY(uni__strategy_multi_worker(out, info->world_rank, info->world_size, options, err));
    } else {
        UNI_TRY(uni__session_meet(&comm, &slots, &number, session, 0, err));
        status = uni_strategy_multi_worker(out, comm, options, err);
        if (status < 0) {
            free(slots);
            uni_comm_close(comm);
            return status;
        }
    }
    status = uni__strategy_set_membership(*out, &members, session, slots, number,
                                          uni__session_is_apart(session),
                                          uni__session_joins(session), err);
    if (status < 0) {
        uni_strategy_free(*out);
        *out = NULL;
    }
    return status;
}
