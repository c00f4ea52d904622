/*
 * metric_auc.c - area under the ROC or the precision-recall curve, by Keras's method: counts at
 * evenly spaced thresholds.
 *
 * State: four vectors of num_thresholds: true positives, false positives, true negatives, false
 * negatives. A score belongs to a bucket between two thresholds (computed in float32 like Keras, so
 * that ties fall the same way) and counts as positive at all thresholds below. A metric belongs to
 * one thread at a time.
 */
#include <math.h>

#include "nn/loss/metric.h"

static int start(uni_metric *metric, uni_error *err)
{
    int count = metric->settings.num_thresholds;
    if (count < 2 || count > 1000000)
        return uni_error_set(err, UNI_EINVAL,
                             "AUC needs at least 2 thresholds (and at most 1000000), got %d",
                             count);
    return uni__metric_resize(metric, 4 * (size_t)count, err);
}

static size_t bucket_of(const uni_metric *metric, float score)
{
    size_t count = (size_t)metric->settings.num_thresholds;
    if (metric->settings.from_logits)
        score = 1 / (1 + expf(-score));
    score = score < 0 ? 0 : score > 1 ? 1 : score;
    float place = ceilf(score * (float)(count - 1)) - 1;
    return place > 0 ? (size_t)place : 0;
}

static int update(uni_metric *metric, const uni_tensor *target, const uni_tensor *prediction,
                  const uni_tensor *weights, uni_error *err)
{
    size_t count = (size_t)metric->settings.num_thresholds;
    double *positives = metric->state, *false_positives = positives + count,
           *negatives = false_positives + count, *false_negatives = negatives + count;
    uni__rows rows;
    UNI_TRY(uni__rows_open(&rows, metric, UNI__POINTWISE, target, prediction, weights, err));
    for (size_t i = 0; i < rows.rows * rows.cols; i++)
        if (isnan(rows.prediction[i]))
            return uni_error_set(err, UNI_EINVAL, "metric %s: prediction %zu is not a number",
                                 metric->name, i);
    for (size_t i = 0; i < rows.rows * rows.cols; i++) {
        double weight = uni__rows_weight(&rows, i / rows.cols);
        bool positive = uni__rows_target(&rows, i) != 0;
        size_t bucket = bucket_of(metric, rows.prediction[i]);
        for (size_t t = 0; t < count; t++) {
            double *counter = t <= bucket ? (positive ? positives : false_positives)
                              : positive  ? false_negatives
                                          : negatives;
            counter[t] += weight;
        }
    }
    return 0;
}

static double ratio(double part, double whole)
{
    return whole != 0 ? part / whole : 0;
}

/* Davis and Goadrich: between two thresholds the true positives grow linearly with the positives.
 * */
static double interpolated(const uni_metric *metric)
{
    size_t count = (size_t)metric->settings.num_thresholds;
    const double *tp = metric->state, *fp = tp + count, *fn = fp + 2 * count;
    double area = 0;
    for (size_t t = 0; t + 1 < count; t++) {
        double dtp = tp[t] - tp[t + 1], p = tp[t] + fp[t], next = tp[t + 1] + fp[t + 1];
        double slope = ratio(dtp, fmax(p - next, 0)), intercept = tp[t + 1] - slope * next;
        double log_ratio = p > 0 && next > 0 ? log(p / next) : 0;
        area += ratio(slope * (dtp + intercept * log_ratio), fmax(tp[t + 1] + fn[t + 1], 0));
    }
    return area;
}

static double riemann(const uni_metric *metric)
{
    size_t count = (size_t)metric->settings.num_thresholds;
    const double *tp = metric->state, *fp = tp + count, *tn = fp + count, *fn = tn + count;
    double area = 0, last_x = 0, last_y = 0;
    for (size_t t = 0; t < count; t++) {
        double recall = ratio(tp[t], tp[t] + fn[t]);
        double x = metric->settings.precision_recall_curve ? recall : ratio(fp[t], fp[t] + tn[t]);
        double y = metric->settings.precision_recall_curve ? ratio(tp[t], tp[t] + fp[t]) : recall;
        double height = metric->settings.summation == UNI__SUM_MINORING   ? fmin(last_y, y)
                        : metric->settings.summation == UNI__SUM_MAJORING ? fmax(last_y, y)
                                                                          : (last_y + y) / 2;
        area += t > 0 ? (last_x - x) * height : 0;
        last_x = x;
        last_y = y;
    }
    return area;
}

static size_t values(const uni_metric *metric, double *out, size_t max)
{
    bool by_formula = metric->settings.precision_recall_curve &&
                      metric->settings.summation == UNI__SUM_INTERPOLATE;
    return uni__metric_one(by_formula ? interpolated(metric) : riemann(metric), out, max);
}

const uni__metric_class uni__auc_metric = { "auc",  "AUC",  NULL, NULL,          start,
                                            update, values, NULL, UNI__POINTWISE };
