/*
 * retention.c - the decisions of retention.h. Pure functions that sort an array of indices.
 */
#include "checkpoint/retention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "checkpoint/shared.h"

static const uni_checkpoint_policy default_policy = { .num_to_keep = UNI_KEEP_ALL };

int uni__checkpoint_policy_check(const uni_checkpoint_policy *policy, uni_error *err)
{
    if (!policy)
        return 0;
    if (policy->num_to_keep < 0 && policy->num_to_keep != UNI_KEEP_NONE)
        return uni_error_set(err, UNI_EINVAL,
                             "num_to_keep is %d: give a positive number, UNI_KEEP_ALL or "
                             "UNI_KEEP_NONE",
                             policy->num_to_keep);
    if (policy->score_order != UNI_SCORE_MAX && policy->score_order != UNI_SCORE_MIN)
        return uni_error_set(err, UNI_EINVAL,
                             "score_order is %d: give UNI_SCORE_MAX or UNI_SCORE_MIN",
                             (int)policy->score_order);
    if (policy->score_attribute && policy->score_attribute[0] == '\0')
        return uni_error_set(err, UNI_EINVAL,
                             "score_attribute is empty: name a metric, or give NULL to order by "
                             "time");
    if (policy->every_steps < 0 || !(policy->every_seconds >= 0) || isinf(policy->every_seconds))
        return uni_error_set(err, UNI_EINVAL,
                             "every_steps is %lld and every_seconds %g: neither may be negative, "
                             "and 0 is never",
                             (long long)policy->every_steps, policy->every_seconds);
    if (policy->num_to_keep == UNI_KEEP_NONE && (policy->every_steps || policy->every_seconds > 0))
        return uni_error_set(err, UNI_EINVAL,
                             "checkpoints of steps are written to disk, and num_to_keep says that "
                             "none is");
    return 0;
}

const char *uni__policy_attribute(const uni_checkpoint_policy *policy)
{
    if (!policy || !policy->score_attribute || strcmp(policy->score_attribute, "_timestamp") == 0)
        return NULL;
    return policy->score_attribute;
}

/* Negative when a goes before b: the whole order of the header in one place. */
static int compare(const uni_checkpoint_policy *policy, const uni__candidate *a,
                   const uni__candidate *b)
{
    bool smaller_first = policy->score_order == UNI_SCORE_MIN;
    if (!uni__policy_attribute(policy)) {
        if (a->timestamp != b->timestamp)
            return (a->timestamp < b->timestamp) == smaller_first ? -1 : 1;
        if (a->number != b->number)
            return (a->number < b->number) == smaller_first ? -1 : 1;
        return 0;
    }
    bool a_nan = isnan(a->score), b_nan = isnan(b->score);
    if (a_nan != b_nan)
        return a_nan ? 1 : -1;
    if (a_nan || a->score == b->score)
        return 0;
    return (a->score < b->score) == smaller_first ? -1 : 1;
}

bool uni__retention_better(const uni_checkpoint_policy *policy, const uni__candidate *a,
                           const uni__candidate *b)
{
    return compare(policy ? policy : &default_policy, a, b) < 0;
}

typedef struct ordering {
    const uni_checkpoint_policy *policy;
    const uni__candidate *candidates;
} ordering;

static int compare_indices(const void *left, const void *right, void *context)
{
    const ordering *order = context;
    const uni__candidate *a = &order->candidates[*(const size_t *)left];
    const uni__candidate *b = &order->candidates[*(const size_t *)right];
    int by_score = compare(order->policy, a, b);
    if (by_score != 0)
        return by_score;
    return (a->number > b->number) - (a->number < b->number); /* ties: the earlier one is better */
}

int uni__retention_decide(const uni_checkpoint_policy *policy, uni__candidate *candidates,
                          size_t count, uni_error *err)
{
    if (!policy)
        policy = &default_policy;
    for (size_t i = 0; i < count; i++)
        candidates[i].fate = UNI__FATE_KEEP;
    if (policy->num_to_keep <= 0 || count <= (size_t)policy->num_to_keep)
        return 0;

    size_t *order = malloc(count * sizeof *order);
    if (!order)
        return uni_error_set(err, UNI_ENOMEM, "no memory to order %zu checkpoints", count);
    size_t newest = 0;
    for (size_t i = 0; i < count; i++) {
        order[i] = i;
        if (candidates[i].number > candidates[newest].number)
            newest = i;
    }
    ordering by = { policy, candidates };
    qsort_r(order, count, sizeof *order, compare_indices, &by);
    for (size_t i = (size_t)policy->num_to_keep; i < count; i++)
        candidates[order[i]].fate = order[i] == newest ? UNI__FATE_RECOVERY : UNI__FATE_DROP;
    free(order);
    return 0;
}

static const uni_value *look_up(const uni_value *dict, const char *attribute)
{
    const uni_value *found = uni_dict_get(dict, attribute);
    return found ? found : uni_value_path(dict, attribute);
}

int uni__retention_score(const uni_checkpoint_policy *policy, const uni_value *scores,
                         const uni_value *metrics, double *score, bool *has, uni_error *err)
{
    const char *attribute = uni__policy_attribute(policy);
    *score = NAN;
    *has = false;
    if (!attribute || policy->num_to_keep == UNI_KEEP_NONE)
        return 0;
    const uni_value *found = scores ? look_up(scores, attribute) : NULL;
    if (!found && metrics)
        found = look_up(metrics, attribute);
    if (!found)
        return uni_error_set(err, UNI_EINVAL,
                             "score attribute missing: the checkpoint policy orders by \"%s\", "
                             "which is neither in the checkpoint nor in the metrics reported with "
                             "it; report it, or change score_attribute",
                             attribute);
    if (!uni_value_is_number(found))
        return uni_error_set(err, UNI_EINVAL,
                             "score attribute not a number: the checkpoint policy orders by "
                             "\"%s\", which is a %s here",
                             attribute, uni__value_type_name(uni_value_type_of(found)));
    *score = uni_value_as_float(found, NAN);
    *has = true;
    return 0;
}
