/*
 * pass.c - uni_strategy_pass: one pass of a custom training loop. With parameter servers,
 * server/pass.c does it. Called on the caller's thread.
 */
#include "nn/shared.h"
#include "strategy/internal.h"
#include "strategy/server/internal.h"
#include "base/options.h"

int uni__no_batch(const uni_pass_options *options, uni_error *err)
{
    return uni_error_set(err, UNI_EINVAL,
                         "a pass without a batch: the source gave none in epoch %llu; has it "
                         "fewer samples than one batch (drop_remainder), or no data?",
                         (unsigned long long)options->epoch);
}

static int64_t known(const uni_batches *batches)
{
    int64_t length = uni__batches_length(batches);
    return length >= 0 ? length : UNI__NOT_KNOWN;
}

static int run_pass(uni_strategy *strategy, const uni_pass_options *options, double *sum,
                    int64_t *steps, uni_error *err)
{
    uni_batch batch;
    int64_t count = 0;
    double all = 0;
    int got;
    UNI_TRY(uni__check_alive(strategy, err));
    UNI_TRY(uni__agree(strategy,
                       &(uni__common){ "batches in this pass", known(options->batches),
                                       "give every rank the same data, or as many batches", false },
                       1, err));
    UNI_TRY(uni_batches_reset(options->batches, options->epoch, err));
    for (; (got = uni_batches_next(&batch, options->batches, err)) > 0; count++) {
        const uni_per_replica *values = NULL;
        double one = 0;
        UNI_TRY(
            uni_strategy_run(&values, strategy, options->function, options->context, &batch, err));
        if (sum)
            UNI_TRY(uni_strategy_reduce(&one, 1, strategy, UNI_REPLICA_SUM, values, UNI_AXIS_NONE,
                                        err));
        all += one;
    }
    UNI_TRY(got);
    if (count == 0)
        return uni__no_batch(options, err);
    if (sum)
        *sum = all;
    if (steps)
        *steps = count;
    return 0;
}

int uni_strategy_pass(double *sum, int64_t *steps, uni_strategy *strategy,
                      const uni_pass_options *options, uni_error *err)
{
    UNI__OPTIONS(uni_pass_options, options, num_metrics, err);
    if (sum)
        *sum = 0;
    if (steps)
        *steps = 0;
    if (!options || !options->function || !options->batches)
        return uni__give_up(strategy,
                            uni_error_set(err, UNI_EINVAL,
                                          "a pass needs its function and its batches "
                                          "(uni_pass_options)"),
                            err);
    if (strategy->server)
        return uni__ps_pass(strategy, options, sum, steps, err);
    return uni__give_up(strategy, run_pass(strategy, options, sum, steps, err), err);
}
