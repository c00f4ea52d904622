/*
 * multi_worker.c - fit's replica over a communicator, and the callbacks that keep ranks together.
 *
 * A step's counts (samples, losses, metrics) go first, as one short all-reduce: when it is done everybody's gradients are there. On one host each
 * rank then reads its slice of all gradients and updates it in the pages that all share (fused.c); over hosts the gradients are
 * summed everywhere, and every rank makes the same update: the sums are bit-equal on all ranks (comm.h), so the weights stay so, on hosts with the
 * same instruction set. The check finds those that differ.
 */
#include <stdlib.h>

#include "strategy/internal.h"

#define MAX_SPANS 64

int uni__sum_gradients(uni_strategy *strategy, uni_gradients *gradients, uni_error *err)
{
    size_t size = 0, count;
    float *data = uni_gradients_data(gradients, &size);
    uni_span spans[MAX_SPANS];
    count = uni_parameters_trainable(uni_gradients_store(gradients), spans, MAX_SPANS);
    if (count > MAX_SPANS) {
        spans[0] = (uni_span){ 0, size };
        count = 1;
    }
    for (size_t i = 0; i < count; i++) {
        float *at = data + spans[i].begin;
        UNI_TRY(uni_comm_all_reduce(strategy->comm, at, at, spans[i].end - spans[i].begin, UNI_F32,
                                    UNI_COMM_SUM, err));
    }
    return 0;
}

static int reduce(void *context, uni_gradients *gradients, double *sums, size_t num_sums,
                  uni_error *err)
{
    uni_strategy *strategy = context;
    if (gradients && strategy->fused.on)
        UNI_TRY(uni__fused_adopt(strategy, gradients, err));
    UNI_TRY(uni_comm_all_reduce(strategy->comm, sums, sums, num_sums, UNI_F64, UNI_COMM_SUM, err));
    if (!gradients)
        return 0;
    strategy->fused.samples = sums[1];
    return strategy->fused.on && !strategy->fused.whole
               ? 0 /* slice by slice, see add_up */
               : uni__sum_gradients(strategy, gradients, err);
}

static int add_up(void *context, uni_gradients *gradients, uni_span piece, uni_error *err)
{
    uni_strategy *strategy = context;
    return strategy->fused.on && !strategy->fused.whole ? uni__fused_sum(strategy, piece, err) : 0;
}

static uni_span slice(void *context, size_t size)
{
    const uni_strategy *strategy = context;
    return strategy->fused.on ? strategy->fused.slice : (uni_span){ 0, size };
}

static int meet(void *context, uni_error *err)
{
    uni_strategy *strategy = context;
    return strategy->fused.on ? uni_comm_barrier(strategy->comm, err) : 0;
}

static int sum_statistics(void *context, float *values, size_t count, uni_error *err)
{
    uni_strategy *strategy = context;
    return uni_comm_all_reduce(strategy->comm, values, values, count, UNI_F32, UNI_COMM_SUM, err);
}

void uni__multi_worker_init(uni_strategy *strategy, bool local_statistics)
{
    strategy->replica = (uni_replica){ .index = strategy->rank,
                                       .count = strategy->size,
                                       .context = strategy,
                                       .reduce = reduce,
                                       .slice = slice,
                                       .add_up = add_up,
                                       .barrier = meet,
                                       .keep_factors = uni__factors_least,
                                       .show_factors = uni__factors_show,
                                       .take_factors = uni__factors_take };
    if (!local_statistics)
        strategy->replica.sync = (uni_sync){ .context = strategy, .sum = sum_statistics };
}

/* ---- callbacks ---- */

typedef struct keeper {
    uni_strategy *strategy;
    int64_t steps;
} keeper;

int uni__check_drift(uni_strategy *strategy, const uni_parameters *store, uni_error *err)
{
    size_t weights = 0, states = 0;
    const float *weight_data = uni_parameters_weights(store, &weights),
                *state_data = uni_parameters_states(store, &states);
    if (!strategy->fused.on) /* what exists once cannot drift apart */
        UNI_TRY(uni_comm_check_equal(strategy->comm, weight_data, weights * sizeof *weight_data,
                                     "the weights of the replicas", err));
    bool same = strategy->replica.sync.sum != NULL; /* local statistics differ, and may */
    if (states > 0 && same)
        return uni_comm_check_equal(strategy->comm, state_data, states * sizeof *state_data,
                                    "the moving averages of the replicas", err);
    return 0;
}

static int after_batch(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                       uni_error *err)
{
    keeper *keep = self;
    if (++keep->steps % keep->strategy->check_every)
        return 0;
    return uni__check_drift(keep->strategy, uni_model_parameters(model), err);
}

/* The chief is the last in its own list, the others are the first in theirs: while a callback of the chief reads the weights (a checkpoint), no
 * callback of another rank (restoring the best ones) may write them. */
static int take_turn(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    keeper *keep = self;
    return keep->strategy->fused.on ? uni_comm_barrier(keep->strategy->comm, err) : 0;
}

static int new_callback(uni_fit_callback **out, const uni_fit_callback_class *class_,
                        uni_strategy *strategy, uni_error *err)
{
    keeper *keep = calloc(1, sizeof *keep);
    *out = NULL;
    if (!keep)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a callback");
    keep->strategy = strategy;
    int status = uni_fit_callback_new(out, class_, keep, err);
    if (status < 0)
        free(keep);
    return status;
}

int uni__multi_worker_callbacks(uni_fit_callback **first, uni_fit_callback **last,
                                uni_strategy *strategy, uni_error *err)
{
    static const uni_fit_callback_class turn = {
        .name = "replica turn", .epoch_end = take_turn, .after_epoch = take_turn, .free = free
    };
    static const uni_fit_callback_class checker = { .name = "replica check",
                                                    .batch_end = after_batch,
                                                    .free = free };
    static const uni_fit_callback_class both = { .name = "replica turn and check",
                                                 .batch_end = after_batch,
                                                 .epoch_end = take_turn,
                                                 .after_epoch = take_turn,
                                                 .free = free };
    bool checks = strategy->check_every > 0, chief = uni_strategy_is_chief(strategy);
    *first = *last = NULL;
    if (!chief)
        UNI_TRY(new_callback(first, &turn, strategy, err));
    if (chief)
        return new_callback(last, checks ? &both : &turn, strategy, err);
    return checks ? new_callback(last, &checker, strategy, err) : 0;
}
