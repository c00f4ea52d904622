/*
 * retention.h - decides which checkpoints stay; it does not touch files. Only this module includes
 * it.
 *
 * Checkpoints are ordered, better first: by the policy's attribute (NaN last; ties: the lower
 * number first), or without one by (timestamp, number), the newest first (with UNI_SCORE_MIN the
 * oldest). keep-N keeps the first N. This equals "fill, then replace the worst only when strictly
 * better". If the newest of all is not among them, it is kept aside for recovery. Any thread.
 */
#ifndef UNISONO_CHECKPOINT_RETENTION_H
#define UNISONO_CHECKPOINT_RETENTION_H

#include <unisono/checkpoint.h>

typedef enum uni__fate { UNI__FATE_DROP = 0, UNI__FATE_KEEP, UNI__FATE_RECOVERY } uni__fate;

typedef struct uni__candidate {
    int64_t number;
    double timestamp, score;
    uni__fate fate; /* the result */
} uni__candidate;

/* The attribute that scores, or NULL when the time does ("_timestamp", Ray's default, is also the
 * time). */
const char *uni__policy_attribute(const uni_checkpoint_policy *policy);
/* true when a is strictly better than b. */
bool uni__retention_better(const uni_checkpoint_policy *policy, const uni__candidate *a,
                           const uni__candidate *b);
/* Sets every fate. With UNI_KEEP_NONE existing checkpoints (of an earlier policy) stay.
 * UNI_ENOMEM. */
int uni__retention_decide(const uni_checkpoint_policy *policy, uni__candidate *candidates,
                          size_t count, uni_error *err) UNI_MUST_USE;
/* The policy's score of a new checkpoint: searched in `scores`, then in `metrics` (either may be
 * NULL), as a key and then as a dotted path. *has is false when the policy has no attribute.
 * UNI_EINVAL when it is missing or not a number. */
int uni__retention_score(const uni_checkpoint_policy *policy, const uni_value *scores,
                         const uni_value *metrics, double *score, bool *has,
                         uni_error *err) UNI_MUST_USE;

#endif
