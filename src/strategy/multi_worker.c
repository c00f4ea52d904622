/*
 * multi_worker.c - fit's replica over a communicator, and the check that ranks do not drift apart.
 *
 * Every rank has all weights and makes the same update from the same summed gradients: the sums are bit-equal on all ranks (comm.h), so the
 * weights stay bit-equal too, on hosts with the same instruction set. The check finds those that differ.
 */
#include <stdlib.h>

#include "strategy/internal.h"

static int reduce(void *context, uni_gradients *gradients, double *sums, size_t num_sums,
                  uni_error *err)
{
    uni_strategy *strategy = context;
    if (gradients)
        UNI_TRY(uni_strategy_reduce_gradients(strategy, gradients, err));
    return uni_comm_all_reduce(strategy->comm, sums, sums, num_sums, UNI_F64, UNI_COMM_SUM, err);
}

static int sum_statistics(void *context, float *values, size_t count, uni_error *err)
{
    uni_strategy *strategy = context;
    return uni_comm_all_reduce(strategy->comm, values, values, count, UNI_F32, UNI_COMM_SUM, err);
}

void uni__multi_worker_init(uni_strategy *strategy, bool local_statistics)
{
    strategy->replica = (uni_replica){
        .index = strategy->rank, .count = strategy->size, .context = strategy, .reduce = reduce
    };
    if (!local_statistics)
        strategy->replica.sync = (uni_sync){ .context = strategy, .sum = sum_statistics };
}

typedef struct checker {
    uni_strategy *strategy;
    int64_t steps;
} checker;

static int after_batch(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                       uni_error *err)
{
    checker *check = self;
    size_t size = 0;
    if (++check->steps % check->strategy->check_every)
        return 0;
    const float *weights = uni_parameters_weights(uni_model_parameters(model), &size);
    return uni_comm_check_equal(check->strategy->comm, weights, size * sizeof *weights,
                                "the weights of the replicas", err);
}

int uni__multi_worker_checker(uni_fit_callback **out, uni_strategy *strategy, uni_error *err)
{
    static const uni_fit_callback_class class_ = { .name = "replica check",
                                                   .batch_end = after_batch,
                                                   .free = free };
    checker *check = calloc(1, sizeof *check);
    *out = NULL;
    if (!check)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a callback");
    check->strategy = strategy;
    int status = uni_fit_callback_new(out, &class_, check, err);
    if (status < 0)
        free(check);
    return status;
}
