/*
 * aggregate.c - one number for a metric over all ranks of an iteration. Any thread.
 *
 * NaN is ignored as long as any rank has a number. If all ranks that have the metric have NaN, the
 * result is NaN, so that a diverged run is not mistaken for one without the metric.
 */
#include <math.h>

#include <unisono/track.h>

static const uni_value *find(const uni_value *metrics, const char *name)
{
    const uni_value *value = uni_dict_get(metrics, name);
    return value != NULL ? value : uni_value_path(metrics, name);
}

int uni_reports_aggregate(double *out, const uni_reports *reports, const char *metric,
                          uni_aggregation how, const char *weight_metric, uni_error *err)
{
    double sum = 0, weights = 0, least = INFINITY, most = -INFINITY;
    int count = 0, seen = 0;
    if (how == UNI_AGGREGATE_WEIGHTED_MEAN && weight_metric == NULL)
        return uni_error_set(err, UNI_EINVAL,
                             "a weighted mean of \"%s\" needs the name of the weight", metric);
    for (int rank = 0; rank < reports->world_size; rank++) {
        if (reports->by_rank[rank] == NULL) /* of many thousand ranks one may have reported */
            continue;
        const uni_value *value = find(reports->by_rank[rank], metric);
        if (!uni_value_is_number(value))
            continue;
        double number = uni_value_as_float(value, NAN), weight = 1;
        if (how == UNI_AGGREGATE_WEIGHTED_MEAN)
            weight = uni_value_as_float(find(reports->by_rank[rank], weight_metric), NAN);
        seen++;
        if (isnan(number) || isnan(weight))
            continue;
        count++;
        sum += weight * number;
        weights += weight;
        least = number < least ? number : least;
        most = number > most ? number : most;
    }
    if (seen == 0)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "no rank reported the number \"%s\" in iteration %lld", metric,
                             (long long)reports->iteration);
    if (count == 0 ||
        ((how == UNI_AGGREGATE_MEAN || how == UNI_AGGREGATE_WEIGHTED_MEAN) && weights == 0)) {
        *out = NAN;
        return 0;
    }
    switch (how) {
    case UNI_AGGREGATE_MEAN:
    case UNI_AGGREGATE_WEIGHTED_MEAN:
        *out = sum / weights;
        return 0;
    case UNI_AGGREGATE_MIN:
        *out = least;
        return 0;
    case UNI_AGGREGATE_MAX:
        *out = most;
        return 0;
    case UNI_AGGREGATE_SUM:
        *out = sum;
        return 0;
    }
    return uni_error_set(err, UNI_EINVAL, "there is no aggregation number %d", (int)how);
}
