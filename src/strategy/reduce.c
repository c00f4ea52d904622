/*
 * reduce.c - combines the replicas' return values into one, and metrics over all workers. Sums are
 * made in replica order, so every process gets the same bits. Called on the caller's thread.
 */
#include <stdlib.h>

#include "nn/shared.h"
#include "strategy/elastic/elastic.h"

int uni_strategy_reduce_numbers(uni_strategy *strategy, uni_replica_op op, double *values,
                                size_t count, uni_error *err)
{
    UNI_TRY(uni__check_alive(strategy, err));
    uni__elastic_note_call(strategy);
    if (strategy->comm)
        UNI_TRY(
            uni_comm_all_reduce(strategy->comm, values, values, count, UNI_F64, UNI_COMM_SUM, err));
    for (size_t i = 0; op == UNI_REPLICA_MEAN && i < count; i++)
        values[i] /= strategy->size;
    return 0;
}

/* Adds one replica's value to `out`; the last element counts rows. */
static int add(const uni_replica_context *replica, int axis, double *out, size_t count,
               uni_error *err)
{
    size_t rows = axis == 0 ? (size_t)replica->rows : 1;
    if (axis == 0 && replica->rows < 0)
        return uni_error_set(err, UNI_ESHAPE,
                             "reduce over axis 0: replica %d returned a number, which has no axes",
                             uni_replica_info_of(replica)->id);
    if (replica->count != rows * count)
        return uni_error_set(err, UNI_ESHAPE,
                             "reduce: replica %d returned %zu numbers%s, but %zu were asked for; "
                             "uni_replica_return says what is reduced",
                             uni_replica_info_of(replica)->id, replica->count,
                             axis == 0 ? " in all its rows" : "", rows * count);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < count; i++)
            out[i] += replica->values[row * count + i];
    out[count] += (double)rows;
    return 0;
}

int uni_strategy_reduce(double *out, size_t count, uni_strategy *strategy, uni_replica_op op,
                        const uni_per_replica *values, int axis, uni_error *err)
{
    if (axis != UNI_AXIS_NONE && axis != 0)
        return uni_error_set(err, UNI_EINVAL, "reduce: the axis is UNI_AXIS_NONE or 0, got %d",
                             axis);
    if (!values)
        return uni_error_set(err, UNI_EINVAL,
                             "reduce: there are no values; uni_strategy_run gives them");
    double *sums = calloc(count + 1, sizeof *sums);
    if (!sums)
        return uni_error_set(err, UNI_ENOMEM, "no memory to reduce %zu numbers", count);
    int status = 0;
    for (int i = 0; i < values->crew->count && status == 0; i++)
        status = add(&values->crew->replicas[i], axis, sums, count, err);
    status = uni__give_up(strategy, status, err);
    if (status == 0)
        status = uni_strategy_reduce_numbers(strategy, UNI_REPLICA_SUM, sums, count + 1, err);
    double divisor = op == UNI_REPLICA_MEAN && sums[count] > 0 ? sums[count] : 1;
    for (size_t i = 0; status == 0 && i < count; i++)
        out[i] = sums[i] / divisor;
    free(sums);
    return status;
}

int uni_strategy_metric_result(double *out, uni_strategy *strategy, const uni_metric *metric,
                               uni_error *err)
{
    *out = uni_metric_result(metric);
    uni__elastic_note_call(strategy);
    if (strategy->size == 1)
        return 0;
    UNI_TRY(uni__check_alive(strategy, err));
    uni_metric *all = uni__metric_copy(metric);
    if (!all)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a metric");
    size_t size = 0;
    uni__metric_merge(all, metric);
    double *state = uni__metric_state(all, &size);
    int status =
        uni_comm_all_reduce(strategy->comm, state, state, size, UNI_F64, UNI_COMM_SUM, err);
    if (status == 0)
        *out = uni_metric_result(all);
    uni_metric_free(all);
    return status;
}
