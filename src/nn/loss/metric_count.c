/*
 * metric_count.c - metrics that count hits and misses: precision, recall, F-beta, the confusion
 * matrix.
 *
 * States, as in Keras: precision (true positives, false positives) and recall (true positives,
 * false negatives) per threshold; F-beta (true positives, false positives, false negatives, weight)
 * per class, or once for "micro"; the confusion matrix by rows (target, prediction). All add up. A
 * metric belongs to one thread at a time.
 */
#include <math.h>
#include <string.h>

#include "tensor/shared.h"
#include "nn/loss/metric.h"

static double ratio(double part, double whole)
{
    return whole != 0 ? part / whole : 0;
}

/* ---- precision and recall ---- */

static size_t num_thresholds(const uni_metric *metric)
{
    return metric->settings.thresholds_count > 0 ? metric->settings.thresholds_count : 1;
}

static int start_thresholds(uni_metric *metric, uni_error *err)
{
    return uni__metric_resize(metric, 2 * num_thresholds(metric), err);
}

/* True if the element is among the k largest of its row (ties: the first ones), as top_k picks
 * them. */
static bool is_picked(const float *row, size_t count, size_t index, int k)
{
    int before = 0;
    for (size_t i = 0; i < count; i++)
        before += row[i] > row[index] || (row[i] == row[index] && i < index);
    return before < k;
}

/* Counts true positives in state[t], and in state[T + t] those predicted (precision) or present
 * (recall) that are not. */
static int update_thresholds(uni_metric *metric, const uni_tensor *target,
                             const uni_tensor *prediction, const uni_tensor *weights,
                             uni_error *err)
{
    const uni__metric_settings *settings = &metric->settings;
    bool recall = metric->class_->name[0] == 'r';
    size_t thresholds = num_thresholds(metric);
    uni__rows rows;
    UNI_TRY(uni__rows_open(&rows, metric, UNI__POINTWISE, target, prediction, weights, err));
    if (settings->class_id >= 0 && uni_tensor_ndim(prediction) < 2)
        return uni_error_set(err, UNI_ESHAPE,
                             "metric %s: class_id needs predictions of shape (samples, classes)",
                             metric->name);
    if (settings->class_id >= 0 && (size_t)settings->class_id >= rows.cols)
        return uni_error_set(err, UNI_EINVAL,
                             "metric %s: class_id is %d, but predictions have %zu classes",
                             metric->name, settings->class_id, rows.cols);
    for (size_t i = 0; rows.cols > 0 && i < rows.rows * rows.cols; i++) {
        size_t row = i / rows.cols, column = i % rows.cols;
        if (settings->class_id >= 0 && column != (size_t)settings->class_id)
            continue;
        bool out = settings->k > 0 &&
                   !is_picked(rows.prediction + row * rows.cols, rows.cols, column, settings->k);
        bool positive = uni__rows_target(&rows, i) != 0;
        double weight = uni__rows_weight(&rows, row);
        for (size_t t = 0; t < thresholds; t++) {
            float threshold =
                settings->thresholds_count > 0 ? settings->thresholds[t] : settings->threshold;
            bool predicted = !out && rows.prediction[i] > threshold;
            if (positive && predicted)
                metric->state[t] += weight;
            else if (recall ? positive : predicted)
                metric->state[thresholds + t] += weight;
        }
    }
    return 0;
}

static size_t threshold_values(const uni_metric *metric, double *values, size_t max)
{
    size_t count = num_thresholds(metric);
    for (size_t t = 0; t < count && t < max; t++)
        values[t] = ratio(metric->state[t], metric->state[t] + metric->state[count + t]);
    return count;
}

/* ---- F-beta ---- */

static size_t num_classes(const uni_metric *metric)
{
    return metric->size / 4;
}

static int start_fbeta(uni_metric *metric, uni_error *err)
{
    bool micro = metric->settings.average == UNI__AVERAGE_MICRO;
    size_t classes =
        !micro && metric->settings.num_classes > 0 ? (size_t)metric->settings.num_classes : 1;
    return uni__metric_resize(metric, 4 * classes, err);
}

/* Without num_classes, the first batch determines the number of columns. */
static int fit_classes(uni_metric *metric, size_t columns, uni_error *err)
{
    if (metric->settings.average == UNI__AVERAGE_MICRO || columns == num_classes(metric))
        return 0;
    bool empty = true;
    for (size_t i = 0; i < metric->size; i++)
        empty = empty && metric->state[i] == 0;
    if (metric->settings.num_classes > 0 || !empty)
        return uni_error_set(err, UNI_ESHAPE,
                             "metric %s counts %zu classes, but predictions have %zu columns",
                             metric->name, num_classes(metric), columns);
    return uni__metric_resize(metric, 4 * columns, err);
}

static int update_fbeta(uni_metric *metric, const uni_tensor *target, const uni_tensor *prediction,
                        const uni_tensor *weights, uni_error *err)
{
    uni__rows rows;
    UNI_TRY(uni__rows_open(&rows, metric, UNI__POINTWISE, target, prediction, weights, err));
    UNI_TRY(fit_classes(metric, rows.cols, err));
    size_t classes = num_classes(metric);
    for (size_t row = 0; row < rows.rows; row++) {
        const float *p = rows.prediction + row * rows.cols;
        double weight = uni__rows_weight(&rows, row);
        float largest =
            metric->settings.by_argmax && rows.cols > 0 ? p[uni__argmax(p, rows.cols)] : 0;
        for (size_t i = 0; i < rows.cols; i++) {
            /* All zeros means no prediction. */
            bool predicted = metric->settings.by_argmax ? p[i] >= largest && fabsf(p[i]) > 1e-9f
                                                        : p[i] > metric->settings.threshold;
            bool positive = uni__rows_target(&rows, row * rows.cols + i) != 0;
            size_t class_ = classes > 1 ? i : 0;
            metric->state[class_] += predicted && positive ? weight : 0;
            metric->state[classes + class_] += predicted && !positive ? weight : 0;
            metric->state[2 * classes + class_] += !predicted && positive ? weight : 0;
            metric->state[3 * classes + class_] += positive ? weight : 0;
        }
    }
    return 0;
}

static double fbeta_of(const uni_metric *metric, size_t class_)
{
    size_t classes = num_classes(metric);
    const double *state = metric->state + class_;
    double precision = ratio(state[0], state[0] + state[classes]);
    double recall = ratio(state[0], state[0] + state[2 * classes]);
    double square = (double)metric->settings.beta * (double)metric->settings.beta;
    return ratio((1 + square) * precision * recall, square * precision + recall);
}

static size_t fbeta_values(const uni_metric *metric, double *values, size_t max)
{
    size_t classes = num_classes(metric);
    if (metric->settings.average == UNI__AVERAGE_NONE) {
        for (size_t i = 0; i < classes && i < max; i++)
            values[i] = fbeta_of(metric, i);
        return classes;
    }
    bool weighted = metric->settings.average == UNI__AVERAGE_WEIGHTED;
    double sum = 0, total = 0;
    for (size_t i = 0; i < classes; i++) {
        double weight = weighted ? metric->state[3 * classes + i] : 1;
        sum += fbeta_of(metric, i) * weight;
        total += weight;
    }
    return uni__metric_one(ratio(sum, total), values, max);
}

/* ---- confusion matrix ---- */

static int start_matrix(uni_metric *metric, uni_error *err)
{
    int classes = metric->settings.num_classes;
    if (classes < 1 || classes > 65536)
        return uni_error_set(err, UNI_EINVAL,
                             "a confusion matrix needs num_classes (1 to 65536), got %d", classes);
    return uni__metric_resize(metric, (size_t)classes * (size_t)classes, err);
}

/* How a confusion matrix's tensor represents class numbers. */
enum writing { NUMBERS, ONE_HOT, SCORE };

static enum writing writing_of(const uni_tensor *tensor, int classes)
{
    bool is_float = uni_tensor_dtype(tensor) == UNI_F32 || uni_tensor_dtype(tensor) == UNI_F64;
    if (uni_tensor_ndim(tensor) > 1 && classes > 1 && uni_tensor_dim(tensor, -1) == classes)
        return ONE_HOT;
    return is_float && classes == 2 ? SCORE : NUMBERS;
}

static double class_at(const uni_tensor *tensor, enum writing writing, size_t index, int classes,
                       float threshold)
{
    uni_dtype dtype = uni_tensor_dtype(tensor);
    const void *data = uni_tensor_data(tensor);
    if (writing == SCORE)
        return uni__element(data, dtype, index) > (double)threshold;
    if (writing == NUMBERS)
        return uni__element(data, dtype, index);
    size_t first = index * (size_t)classes, best = 0;
    for (size_t i = 1; i < (size_t)classes; i++)
        if (uni__element(data, dtype, first + i) > uni__element(data, dtype, first + best))
            best = i;
    return (double)best;
}

typedef void (*count_pair)(void *context, size_t sample, size_t target, size_t prediction);

static int visit_pairs(const char *name, const uni_tensor *target, const uni_tensor *prediction,
                       int classes, float threshold, count_pair visit, void *context,
                       uni_error *err)
{
    if (target == NULL || prediction == NULL || uni_tensor_dtype(target) == UNI_STRING ||
        uni_tensor_dtype(prediction) == UNI_STRING)
        return uni_error_set(err, UNI_EINVAL, "%s needs targets and predictions that are numbers",
                             name);
    enum writing target_writing = writing_of(target, classes),
                 writing = writing_of(prediction, classes);
    size_t samples = uni_tensor_count(target) / (target_writing == ONE_HOT ? (size_t)classes : 1);
    if (uni_tensor_count(prediction) / (writing == ONE_HOT ? (size_t)classes : 1) != samples) {
        char a[UNI__SHAPE_TEXT_SIZE], b[UNI__SHAPE_TEXT_SIZE];
        return uni_error_set(
            err, UNI_ESHAPE,
            "%s of %d classes: targets of shape %s do not fit predictions of shape %s", name,
            classes, uni__shape_text(a, uni_tensor_ndim(target), uni_tensor_shape(target)),
            uni__shape_text(b, uni_tensor_ndim(prediction), uni_tensor_shape(prediction)));
    }
    for (size_t i = 0; i < samples; i++) {
        double is = class_at(target, target_writing, i, classes, threshold);
        double seems = class_at(prediction, writing, i, classes, threshold);
        if (!(is >= 0 && is < classes && seems >= 0 && seems < classes))
            return uni_error_set(
                err, UNI_EINVAL,
                "%s of %d classes: sample %zu has the class %g and the prediction %g", name,
                classes, i, is, seems);
        visit(context, i, (size_t)is, (size_t)seems);
    }
    return 0;
}

struct weighted {
    uni_metric *metric;
    const uni_tensor *weights;
};

static void add_pair(void *context, size_t sample, size_t target, size_t prediction)
{
    struct weighted *to = context;
    double weight = to->weights == NULL ? 1
                                        : uni__element(uni_tensor_data(to->weights),
                                                       uni_tensor_dtype(to->weights), sample);
    to->metric->state[target * (size_t)to->metric->settings.num_classes + prediction] += weight;
}

static void pass_pair(void *context, size_t sample, size_t target, size_t prediction)
{
    ++*(size_t *)context;
}

static int update_matrix(uni_metric *metric, const uni_tensor *target, const uni_tensor *prediction,
                         const uni_tensor *weights, uni_error *err)
{
    int classes = metric->settings.num_classes;
    size_t samples = 0; /* checks everything first, so that a bad label changes nothing */
    UNI_TRY(visit_pairs(metric->name, target, prediction, classes, metric->settings.threshold,
                        pass_pair, &samples, err));
    if (weights != NULL &&
        (uni_tensor_count(weights) != samples || uni_tensor_dtype(weights) == UNI_STRING))
        return uni_error_set(err, UNI_ESHAPE, "metric %s: %zu sample weights for %zu samples",
                             metric->name, uni_tensor_count(weights), samples);
    return visit_pairs(metric->name, target, prediction, classes, metric->settings.threshold,
                       add_pair, &(struct weighted){ metric, weights }, err);
}

static size_t matrix_values(const uni_metric *metric, double *values, size_t max)
{
    size_t classes = (size_t)metric->settings.num_classes;
    double hits = 0, total = 0;
    for (size_t i = 0; i < metric->size; i++) {
        hits += i / classes == i % classes ? metric->state[i] : 0;
        total += metric->state[i];
    }
    return uni__metric_one(ratio(hits, total), values, max);
}

const uni__metric_class uni__count_metrics[] = {
    { "precision", "Precision", NULL, NULL, start_thresholds, update_thresholds, threshold_values,
      NULL, UNI__POINTWISE },
    { "recall", "Recall", NULL, NULL, start_thresholds, update_thresholds, threshold_values, NULL,
      UNI__POINTWISE },
    { "fbeta_score", "FBetaScore", "fbeta", NULL, start_fbeta, update_fbeta, fbeta_values, NULL,
      UNI__POINTWISE },
    { "f1_score", "F1Score", "f1", NULL, start_fbeta, update_fbeta, fbeta_values, NULL,
      UNI__POINTWISE },
    { "confusion_matrix", NULL, NULL, NULL, start_matrix, update_matrix, matrix_values, NULL,
      UNI__SPARSE },
    { .name = NULL },
};
