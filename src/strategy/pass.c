/*
 * pass.c - uni_strategy_pass: one pass of a loop of one's own. With parameter servers server/pass.c does it. The caller's thread.
 */
#include "strategy/internal.h"
#include "strategy/server/internal.h"

int uni_strategy_pass(uni_strategy *strategy, const uni_pass_options *options, double *sum,
                      int64_t *steps, uni_error *err)
{
    uni_batch batch;
    int64_t count = 0;
    double all = 0;
    int got;
    if (strategy->server)
        return uni__ps_pass(strategy, options, sum, steps, err);
    UNI_TRY(uni_batches_reset(options->batches, options->epoch, err));
    for (; (got = uni_batches_next(options->batches, &batch, err)) > 0; count++) {
        const uni_per_replica *values = NULL;
        double one = 0;
        UNI_TRY(
            uni_strategy_run(strategy, options->function, options->context, &batch, &values, err));
        if (sum)
            UNI_TRY(uni_strategy_reduce(strategy, UNI_REPLICA_SUM, values, UNI_AXIS_NONE, &one, 1,
                                        err));
        all += one;
    }
    UNI_TRY(got);
    if (sum)
        *sum = all;
    if (steps)
        *steps = count;
    return 0;
}
