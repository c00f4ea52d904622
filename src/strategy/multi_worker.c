/*
 * multi_worker.c - fit's updater (nn/step.h) over a communicator, and the callbacks that keep ranks
 * together.
 *
 * A step's counts (samples, losses, metrics) go first, as one short all-reduce. Once it is done,
 * the gradients of all ranks are complete. On one host each rank then reads its slice of all
 * gradients and updates it in the shared pages (fused.c). Over hosts the gradients are summed on
 * every rank, and every rank makes the same update. The sums are bit-equal on all ranks (comm.h),
 * so the weights stay bit-equal on hosts with the same instruction set. The check finds weights
 * that differ.
 */
#include <stdlib.h>

#include "tensor/shared.h"
#include "strategy/elastic/elastic.h"

#define MAX_SPANS 64

int uni__sum_gradients(uni_strategy *strategy, uni_gradients *gradients, uni_error *err)
{
    size_t size = 0, count;
    float *data = uni_gradients_data(gradients, &size);
    uni__span spans[MAX_SPANS];
    count = uni__parameters_trainable(uni__gradients_store(gradients), spans, MAX_SPANS);
    if (count > MAX_SPANS) {
        spans[0] = (uni__span){ 0, size };
        count = 1;
    }
    for (size_t i = 0; i < count; i++) {
        float *at = data + spans[i].begin;
        UNI_TRY(uni_comm_all_reduce(strategy->comm, at, at, spans[i].end - spans[i].begin, UNI_F32,
                                    UNI_COMM_SUM, err));
    }
    return 0;
}

static int sum_counts(uni_strategy *strategy, void *counts, size_t bytes, uni_error *err)
{
    return uni_comm_all_reduce(strategy->comm, counts, counts, bytes / sizeof(double), UNI_F64,
                               UNI_COMM_SUM, err);
}

/* The step's second half. Counts are summed first; once that is done, the gradients and factors of
 * all ranks are complete. */
static int finish(void *context, const uni__trained *trained, uni_error *err)
{
    uni_strategy *strategy = context;
    uni__fused *fused = &strategy->fused;
    if (trained->gradients && fused->on)
        UNI_TRY(uni__fused_show(strategy, trained, err));
    if (trained->gradients && uni__elastic_is_active(strategy))
        UNI_TRY(uni__elastic_show(strategy, trained, err));
    if (!trained->gradients)
        return uni__elastic_do(strategy, sum_counts, true, trained->sums,
                               trained->num_sums * sizeof *trained->sums, err);
    UNI_TRY(sum_counts(strategy, trained->sums, trained->num_sums * sizeof *trained->sums, err));
    if (!fused->on)
        UNI_TRY(uni__sum_gradients(strategy, trained->gradients, err));
    if (fused->on)
        return uni__fused_update(strategy, trained, err);
    uni__update update = { .optimizer = trained->optimizer, .gradients = trained->gradients };
    UNI_TRY(uni__update_alone(&update, uni__trained_samples(trained), 1, err));
    uni__elastic_ended(strategy);
    return 0;
}

static int sum_statistics(void *context, float *values, size_t count, uni_error *err)
{
    uni_strategy *strategy = context;
    return uni_comm_all_reduce(strategy->comm, values, values, count, UNI_F32, UNI_COMM_SUM, err);
}

void uni__multi_worker_init(uni_strategy *strategy, bool local_statistics)
{
    strategy->updater = (uni__updater){ .name = "multi_worker",
                                        .index = strategy->rank,
                                        .count = strategy->size,
                                        .context = strategy,
                                        .keep_factors = uni__factors_least,
                                        .finish = finish,
                                        .pauses = true };
    if (!local_statistics)
        strategy->updater.sync = (uni_sync){ .context = strategy, .sum = sum_statistics };
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
                *state_data = uni__parameters_states(store, &states);
    if (!strategy->fused.on) /* what exists once cannot drift apart */
        UNI_TRY(uni_comm_check_equal(strategy->comm, weight_data, weights * sizeof *weight_data,
                                     "the weights of the replicas", err));
    bool same = strategy->updater.sync.sum != NULL; /* local statistics may differ */
    if (states > 0 && same)
        return uni_comm_check_equal(strategy->comm, state_data, states * sizeof *state_data,
                                    "the moving averages of the replicas", err);
    return 0;
}

static int after_batch(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                       uni_error *err)
{
    keeper *keep = self;
    keep->steps++;
    if (keep->strategy->elastic) /* a rank that joined late counts as the others do */
        keep->steps = uni_optimizer_iterations(uni_model_optimizer(model));
    if (keep->steps % keep->strategy->check_every ||
        uni__elastic_skips_check(keep->strategy, keep->steps))
        return 0;
    return uni__elastic_forgive(keep->strategy,
                                uni__check_drift(keep->strategy, uni_model_parameters(model), err));
}

static int meet(uni_strategy *strategy, void *nothing, size_t bytes, uni_error *err)
{
    return uni_comm_barrier(strategy->comm, err);
}

/* The chief's callback is the last in its list; on the other ranks it is the first. While a
 * callback of the chief reads the weights (a checkpoint), no callback of another rank (restoring
 * the best ones) may write them. */
static int take_turn(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    keeper *keep = self;
    return keep->strategy->fused.on ? uni__elastic_do(keep->strategy, meet, false, NULL, 0, err)
                                    : 0;
}

static int new_callback(uni_callback **out, const uni_callback_class *class_,
                        uni_strategy *strategy, uni_error *err)
{
    keeper *keep = calloc(1, sizeof *keep);
    *out = NULL;
    if (!keep)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a callback");
    keep->strategy = strategy;
    int status = uni_callback_new(out, class_, keep, err);
    if (status < 0)
        free(keep);
    return status;
}

int uni__multi_worker_callbacks(uni_callback **first, uni_callback **last, uni_strategy *strategy,
                                uni_error *err)
{
    static const uni_callback_class turn = {
        .name = "replica turn", .epoch_end = take_turn, .after_epoch = take_turn, .free = free
    };
    static const uni_callback_class checker = {
        .name = "replica check", .only_looks = true, .batch_end = after_batch, .free = free
    };
    static const uni_callback_class both = { .name = "replica turn and check",
                                             .only_looks = true,
                                             .batch_end = after_batch,
                                             .epoch_end = take_turn,
                                             .after_epoch = take_turn,
                                             .free = free };
    bool checks = strategy->check_every > 0, chief = uni_strategy_info_of(strategy)->is_chief;
    *first = *last = NULL;
    if (!chief)
        UNI_TRY(new_callback(first, &turn, strategy, err));
    if (chief)
        return new_callback(last, checks ? &both : &turn, strategy, err);
    return checks ? new_callback(last, &checker, strategy, err) : 0;
}
