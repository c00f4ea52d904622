/*
 * metric_mean.c - metrics that are the mean of a value per row: accuracies, errors,
 * cross-entropies, and Mean and Sum themselves.
 *
 * State: (sum, count). The value of a sample is the mean of its rows' values; weights multiply
 * both, as in Keras's Mean. Rows are computed in double. A metric belongs to one thread at a time.
 */
#include <math.h>

#include "tensor/shared.h"
#include "nn/loss/metric.h"

/* Keras's values in float32: the loss and the metric of one name clip alike. */
#define EPSILON ((double)1e-7f)
#define ALMOST_ONE ((double)(1.0f - 1e-7f))

/* ---- a value per row ---- */

static double binary_accuracy(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    size_t hits = 0, first = row * rows->cols;
    for (size_t i = 0; i < rows->cols; i++) {
        double label = rows->prediction[first + i] > metric->settings.threshold ? 1 : 0;
        hits += uni__rows_target(rows, first + i) == label;
    }
    return (double)hits / (double)rows->cols;
}

/* Keras's class Accuracy: the fraction of equal numbers in the row. */
static double equality(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    size_t hits = 0, first = row * rows->cols;
    for (size_t i = 0; i < rows->cols; i++)
        hits += (float)uni__rows_target(rows, first + i) == rows->prediction[first + i];
    return (double)hits / (double)rows->cols;
}

static double categorical_accuracy(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    return uni__rows_target_argmax(rows, row) ==
           uni__argmax(rows->prediction + row * rows->cols, rows->cols);
}

static double sparse_accuracy(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    return uni__rows_target(rows, row) ==
           (double)uni__argmax(rows->prediction + row * rows->cols, rows->cols);
}

static double top_k(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    return uni__in_top(rows->prediction + row * rows->cols, rows->cols,
                       uni__rows_target_argmax(rows, row), metric->settings.k);
}

static double sparse_top_k(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    double label = uni__rows_target(rows, row);
    return label >= 0 && uni__in_top(rows->prediction + row * rows->cols, rows->cols, (size_t)label,
                                     metric->settings.k);
}

static double squared_error(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    double sum = 0;
    for (size_t i = row * rows->cols; i < (row + 1) * rows->cols; i++) {
        double difference = uni__rows_target(rows, i) - (double)rows->prediction[i];
        sum += difference * difference;
    }
    return sum / (double)rows->cols;
}

static double absolute_error(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    double sum = 0;
    for (size_t i = row * rows->cols; i < (row + 1) * rows->cols; i++)
        sum += fabs(uni__rows_target(rows, i) - (double)rows->prediction[i]);
    return sum / (double)rows->cols;
}

/* NaN stays NaN. */
static double clip_to(double p, double most)
{
    return p < EPSILON ? EPSILON : p > most ? most : p;
}

static double clip(double p)
{
    return clip_to(p, ALMOST_ONE);
}

static double binary_crossentropy(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    double sum = 0, smoothing = (double)metric->settings.label_smoothing;
    for (size_t i = row * rows->cols; i < (row + 1) * rows->cols; i++) {
        double t = uni__rows_target(rows, i) * (1 - smoothing) + 0.5 * smoothing,
               x = (double)rows->prediction[i];
        if (rows->logits)
            sum += fmax(x, 0) - x * t + log1p(exp(-fabs(x)));
        else
            sum -= t * log(clip(x)) + (1 - t) * log(1 - clip(x));
    }
    return sum / (double)rows->cols;
}

/* log of the i-th probability of a row: from logits by log-softmax, otherwise clipped (and divided
 * by the sum). */
static double log_sum_exp(const float *x, size_t count)
{
    double largest = (double)x[uni__argmax(x, count)], sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += exp((double)x[i] - largest);
    return largest + log(sum);
}

static double categorical_crossentropy(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    const float *x = rows->prediction + row * rows->cols;
    double total = 0, smoothing = (double)metric->settings.label_smoothing, sum = 0;
    for (size_t i = 0; i < rows->cols; i++)
        sum += (double)x[i];
    double normaliser = rows->logits ? log_sum_exp(x, rows->cols) : 0;
    for (size_t i = 0; i < rows->cols; i++) {
        double t = uni__rows_target(rows, row * rows->cols + i) * (1 - smoothing) +
                   smoothing / (double)rows->cols;
        if (t != 0)
            total -= t * (rows->logits ? (double)x[i] - normaliser : log(clip((double)x[i] / sum)));
    }
    return total;
}

static double sparse_crossentropy(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    const float *x = rows->prediction + row * rows->cols;
    double label = uni__rows_target(rows, row), sum = 0;
    /* The loss of the same step names the label. */
    if (!(label >= 0 && label < (double)rows->cols))
        return NAN;
    if (rows->logits)
        return log_sum_exp(x, rows->cols) - (double)x[(size_t)label];
    for (size_t i = 0; i < rows->cols; i++)
        sum += clip((double)x[i]);
    return log(sum) - log(clip((double)x[(size_t)label]));
}

static double kl_divergence(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    double sum = 0;
    for (size_t i = row * rows->cols; i < (row + 1) * rows->cols; i++) {
        double t = clip_to(uni__rows_target(rows, i), 1),
               p = clip_to((double)rows->prediction[i], 1);
        sum += t * log(t / p);
    }
    return sum;
}

static double hinge_mean(const uni__rows *rows, size_t row, bool squared)
{
    double sum = 0;
    for (size_t i = row * rows->cols; i < (row + 1) * rows->cols; i++) {
        double t = uni__rows_target(rows, i);
        double value = 1 - (rows->zero_one ? 2 * t - 1 : t) * (double)rows->prediction[i];
        value = value < 0 ? 0 : value; /* NaN stays NaN */
        sum += squared ? value * value : value;
    }
    return sum / (double)rows->cols;
}

static double hinge(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    return hinge_mean(rows, row, false);
}

static double squared_hinge(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    return hinge_mean(rows, row, true);
}

static double value(const uni_metric *metric, const uni__rows *rows, size_t row)
{
    return (double)rows->prediction[row];
}

/* ---- accumulation ---- */

static int start(uni_metric *metric, uni_error *err)
{
    return uni__metric_resize(metric, 2, err);
}

/* Of predictions (batch) each row would be one class, which is always the right one. */
static int check_classes(const uni_metric *metric, uni__row_value row_value,
                         const uni_tensor *prediction, uni_error *err)
{
    static const uni__row_value of_classes[] = {
        categorical_accuracy,     sparse_accuracy,     top_k,        sparse_top_k,
        categorical_crossentropy, sparse_crossentropy, kl_divergence
    };
    char shape[UNI__SHAPE_TEXT_SIZE];
    for (size_t i = 0; i < sizeof of_classes / sizeof of_classes[0]; i++)
        if (row_value == of_classes[i] && prediction && uni_tensor_ndim(prediction) < 2)
            return uni_error_set(
                err, UNI_ESHAPE,
                "metric %s: predictions of shape %s have no axis of classes: give (batch, classes)",
                metric->name,
                uni__shape_text(shape, uni_tensor_ndim(prediction), uni_tensor_shape(prediction)));
    return 0;
}

/* As in the loss: probabilities that a sigmoid or softmax made are not clipped, but computed again
 * from what it was applied to, and with from_logits they are not taken for logits. */
static void find_logits(uni__rows *rows, uni_metric *metric, uni__row_value row_value,
                        const uni_tensor *prediction)
{
    const uni_tensor *logits = NULL;
    rows->logits = metric->settings.from_logits;
    if (row_value == binary_crossentropy || row_value == categorical_crossentropy ||
        row_value == sparse_crossentropy)
        logits = uni__tensor_logits(prediction);
    if (logits == NULL)
        return;
    if (rows->logits && !metric->warned)
        uni__warn_not_logits(metric->name);
    metric->warned = metric->warned || rows->logits;
    rows->logits = true;
    rows->prediction = uni_tensor_data(logits);
}

static int add_rows(uni_metric *metric, uni__row_value row_value, enum uni__metric_layout layout,
                    const uni_tensor *target, const uni_tensor *prediction,
                    const uni_tensor *weights, uni_error *err)
{
    uni__rows rows;
    UNI_TRY(check_classes(metric, row_value, prediction, err));
    UNI_TRY(uni__rows_open(&rows, metric, layout, target, prediction, weights, err));
    find_logits(&rows, metric, row_value, prediction);
    if (row_value == hinge || row_value == squared_hinge) {
        rows.zero_one = true;
        for (size_t i = 0; rows.zero_one && i < rows.rows * rows.cols; i++) {
            double t = uni__rows_target(&rows, i);
            rows.zero_one = t == 0 || t == 1;
        }
    }
    double sum = 0, count = 0;
    for (size_t row = 0; row < rows.rows; row++) {
        double weight = uni__rows_weight(&rows, row);
        sum += row_value(metric, &rows, row) * weight;
        count += weight;
    }
    metric->state[0] += sum / (double)(rows.per_sample > 0 ? rows.per_sample : 1);
    metric->state[1] += count / (double)(rows.per_sample > 0 ? rows.per_sample : 1);
    return 0;
}

static int update(uni_metric *metric, const uni_tensor *target, const uni_tensor *prediction,
                  const uni_tensor *weights, uni_error *err)
{
    return add_rows(metric, metric->class_->row, metric->class_->layout, target, prediction,
                    weights, err);
}

static int update_accuracy(uni_metric *metric, const uni_tensor *target,
                           const uni_tensor *prediction, const uni_tensor *weights, uni_error *err)
{
    if (target == NULL || prediction == NULL)
        return uni_error_set(err, UNI_EINVAL, "metric %s needs targets and predictions",
                             metric->name);
    switch (uni__accuracy_kind(target, prediction)) {
    case UNI__ACCURACY_BINARY:
        return add_rows(metric, binary_accuracy, UNI__POINTWISE, target, prediction, weights, err);
    case UNI__ACCURACY_SPARSE:
        return add_rows(metric, sparse_accuracy, UNI__SPARSE, target, prediction, weights, err);
    default:
        return add_rows(metric, categorical_accuracy, UNI__POINTWISE, target, prediction, weights,
                        err);
    }
}

static int update_crossentropy(uni_metric *metric, const uni_tensor *target,
                               const uni_tensor *prediction, const uni_tensor *weights,
                               uni_error *err)
{
    if (target == NULL || prediction == NULL)
        return uni_error_set(err, UNI_EINVAL, "metric %s needs targets and predictions",
                             metric->name);
    switch (uni__accuracy_kind(target, prediction)) {
    case UNI__ACCURACY_BINARY:
        return add_rows(metric, binary_crossentropy, UNI__POINTWISE, target, prediction, weights,
                        err);
    case UNI__ACCURACY_SPARSE:
        return add_rows(metric, sparse_crossentropy, UNI__SPARSE, target, prediction, weights, err);
    default:
        return add_rows(metric, categorical_crossentropy, UNI__POINTWISE, target, prediction,
                        weights, err);
    }
}

static double mean_of(const uni_metric *metric)
{
    return metric->state[1] != 0 ? metric->state[0] / metric->state[1] : 0;
}

static size_t mean(const uni_metric *metric, double *values, size_t max)
{
    return uni__metric_one(mean_of(metric), values, max);
}

static size_t root_mean(const uni_metric *metric, double *values, size_t max)
{
    return uni__metric_one(sqrt(mean_of(metric)), values, max);
}

/* ---- sums: the rows of a sample are added, not averaged ---- */

static int update_sum(uni_metric *metric, const uni_tensor *target, const uni_tensor *prediction,
                      const uni_tensor *weights, uni_error *err)
{
    uni__rows rows;
    UNI_TRY(uni__rows_open(&rows, metric, UNI__VALUES, target, prediction, weights, err));
    for (size_t row = 0; row < rows.rows; row++) {
        double weight = uni__rows_weight(&rows, row);
        metric->state[0] += value(metric, &rows, row) * weight;
        metric->state[1] += weight;
    }
    return 0;
}

static size_t sum_of(const uni_metric *metric, double *values, size_t max)
{
    return uni__metric_one(metric->state[0], values, max);
}

static int update_custom(uni_metric *metric, const uni_tensor *target, const uni_tensor *prediction,
                         const uni_tensor *weights, uni_error *err)
{
    double sum = 0, count = 0;
    int status = metric->function(metric->context, target, prediction, weights, &sum, &count, err);
    if (status < 0) {
        if (err != NULL && err->code == 0)
            uni_error_set(err, status, "metric %s: its function failed", metric->name);
        return status;
    }
    metric->state[0] += sum;
    metric->state[1] += count;
    return 0;
}

const uni__metric_class uni__custom_metric = {
    .name = "custom", .start = start, .update = update_custom, .values = mean
};

const uni__metric_class uni__mean_metrics[] = {
    { "accuracy", NULL, "acc", NULL, start, update_accuracy, mean, NULL, UNI__POINTWISE },
    { "equality", "Accuracy", NULL, NULL, start, update, mean, equality, UNI__POINTWISE },
    { "crossentropy", NULL, "ce", NULL, start, update_crossentropy, mean, NULL, UNI__POINTWISE },
    { "binary_accuracy", "BinaryAccuracy", NULL, NULL, start, update, mean, binary_accuracy,
      UNI__POINTWISE },
    { "categorical_accuracy", "CategoricalAccuracy", NULL, NULL, start, update, mean,
      categorical_accuracy, UNI__POINTWISE },
    { "sparse_categorical_accuracy", "SparseCategoricalAccuracy", NULL, NULL, start, update, mean,
      sparse_accuracy, UNI__SPARSE },
    { "top_k_categorical_accuracy", "TopKCategoricalAccuracy", NULL, NULL, start, update, mean,
      top_k, UNI__POINTWISE },
    { "sparse_top_k_categorical_accuracy", "SparseTopKCategoricalAccuracy", NULL, NULL, start,
      update, mean, sparse_top_k, UNI__SPARSE },
    { "mean_squared_error", "MeanSquaredError", "mse", NULL, start, update, mean, squared_error,
      UNI__POINTWISE },
    { "mean_absolute_error", "MeanAbsoluteError", "mae", NULL, start, update, mean, absolute_error,
      UNI__POINTWISE },
    { "root_mean_squared_error", "RootMeanSquaredError", "rmse", NULL, start, update, root_mean,
      squared_error, UNI__POINTWISE },
    { "binary_crossentropy", "BinaryCrossentropy", "bce", NULL, start, update, mean,
      binary_crossentropy, UNI__POINTWISE },
    { "categorical_crossentropy", "CategoricalCrossentropy", "cce", NULL, start, update, mean,
      categorical_crossentropy, UNI__POINTWISE },
    { "sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", "scce", NULL, start,
      update, mean, sparse_crossentropy, UNI__SPARSE },
    { "kl_divergence", "KLDivergence", "kld", "kullback_leibler_divergence", start, update, mean,
      kl_divergence, UNI__POINTWISE },
    { "hinge", "Hinge", NULL, NULL, start, update, mean, hinge, UNI__POINTWISE },
    { "squared_hinge", "SquaredHinge", NULL, NULL, start, update, mean, squared_hinge,
      UNI__POINTWISE },
    { "mean", "Mean", NULL, NULL, start, update, mean, value, UNI__VALUES },
    { "sum", "Sum", NULL, NULL, start, update_sum, sum_of, value, UNI__VALUES },
    { .name = NULL },
};
