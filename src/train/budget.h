/*
 * budget.h - whether a failed run is started once more, and when. The rules are the trainer's
 * options; what was spent is counted here. [controller]
 */
#ifndef UNISONO_TRAIN_BUDGET_H
#define UNISONO_TRAIN_BUDGET_H

#include <unisono/trainer.h>

#include "train/cause.h"

typedef struct uni__progress {
    int64_t iteration; /* the highest that any rank has reported */
    int64_t checkpoints; /* number of the newest complete one */
    int64_t steps; /* checkpoints of steps that are complete */
} uni__progress;

typedef struct uni__budget {
    int failures; /* that counted */
    int quick_failures; /* in a row, without progress */
    bool programs; /* workers tell of errors by their exit code, not by a message */
    bool no_retry; /* another start would end in the same way */
    char why[400]; /* the end of a sentence: what came after the cause; or empty */
    uni__cause before; /* of the failure before the last one */
    uni__progress at_start; /* of the present attempt */
} uni__budget;

/* Neither a later iteration nor one more complete checkpoint since the attempt began. */
bool uni__budget_stands_still(const uni__budget *budget, const uni__progress *now);
/* Why the group is not started again, as the end of a sentence (maybe an empty one, maybe written
 * into `sentence`); NULL: it is. counts: the failure is one that the budget pays for. */
const char *uni__budget_verdict(const uni__budget *budget, const uni_trainer_options *rules,
                                const uni__cause *cause, const uni__progress *now, bool counts,
                                char *sentence, size_t size);
/* Milliseconds until the next start: at once, unless attempts of that length fail one after the
 * other without getting anywhere. Counts. */
int uni__budget_wait_ms(uni__budget *budget, uint64_t lasted_ns, const uni__progress *now);

#endif
