/*
 * rows.c - targets, predictions and weights of a metric's update as rows. Makes the checks of
 * Keras's metrics and some that they leave out, reads any numeric type as double, and broadcasts
 * weights as Keras does. No allocation. Any thread.
 */
#include "nn/loss/metric.h"

#include <math.h>
#include <string.h>

#include "tensor/shared.h"

static bool is_number(uni_dtype dtype)
{
    return dtype >= UNI_F32 && dtype <= UNI_B8;
}

static int refuse_shapes(const uni_metric *metric, const char *what, const uni_tensor *a,
                         const uni_tensor *prediction, uni_error *err)
{
    char first[UNI__SHAPE_TEXT_SIZE], second[UNI__SHAPE_TEXT_SIZE];
    return uni_error_set(
        err, UNI_ESHAPE, "metric %s: %s of shape %s do not fit predictions of shape %s",
        metric->name, what, uni__shape_text(first, uni_tensor_ndim(a), uni_tensor_shape(a)),
        uni__shape_text(second, uni_tensor_ndim(prediction), uni_tensor_shape(prediction)));
}

/* True if the first `count` dimensions are equal and the rest of either is 1. */
static bool same_but_ones(int a_ndim, const int64_t *a, int b_ndim, const int64_t *b)
{
    int most = a_ndim > b_ndim ? a_ndim : b_ndim;
    for (int i = 0; i < most; i++)
        if ((i < a_ndim ? a[i] : 1) != (i < b_ndim ? b[i] : 1))
            return false;
    return true;
}

static int open_weights(uni__rows *rows, const uni_metric *metric, const uni_tensor *weights,
                        const uni_tensor *prediction, uni_error *err)
{
    if (weights == NULL)
        return 0;
    int ndim = uni_tensor_ndim(weights);
    const int64_t *shape = uni_tensor_shape(weights);
    if (!is_number(uni_tensor_dtype(weights)))
        return uni_error_set(err, UNI_EDTYPE, "metric %s: sample weights must be numbers",
                             metric->name);
    while (ndim > rows->ndim && shape[ndim - 1] == 1)
        ndim--;
    bool fits = ndim <= rows->ndim;
    for (int i = 0; fits && i < ndim; i++)
        fits = shape[i] == rows->dims[i] || shape[i] == 1;
    if (!fits)
        return refuse_shapes(metric, "sample weights", weights, prediction, err);
    rows->weights_dtype = uni_tensor_dtype(weights);
    rows->weights = uni_tensor_data(weights);
    rows->weights_ndim = ndim;
    memcpy(rows->weights_dims, shape, (size_t)ndim * sizeof *shape);
    return 0;
}

static int open_target(uni__rows *rows, const uni_metric *metric, enum uni__metric_layout layout,
                       const uni_tensor *target, const uni_tensor *prediction, uni_error *err)
{
    if (layout == UNI__VALUES)
        return 0;
    if (target == NULL)
        return uni_error_set(err, UNI_EINVAL, "metric %s needs targets", metric->name);
    if (!is_number(uni_tensor_dtype(target)))
        return uni_error_set(err, UNI_EDTYPE, "metric %s: targets must be numbers, not text",
                             metric->name);
    bool fits = layout == UNI__SPARSE
                    ? same_but_ones(uni_tensor_ndim(target), uni_tensor_shape(target), rows->ndim,
                                    rows->dims)
                    : same_but_ones(uni_tensor_ndim(target), uni_tensor_shape(target),
                                    uni_tensor_ndim(prediction), uni_tensor_shape(prediction));
    if (!fits)
        return refuse_shapes(metric, "targets", target, prediction, err);
    rows->target_dtype = uni_tensor_dtype(target);
    rows->target = uni_tensor_data(target);
    return 0;
}

int uni__rows_open(uni__rows *rows, const uni_metric *metric, enum uni__metric_layout layout,
                   const uni_tensor *target, const uni_tensor *prediction,
                   const uni_tensor *weights, uni_error *err)
{
    if (prediction == NULL)
        return uni_error_set(err, UNI_EINVAL,
                             "metric %s: there is no prediction (did the step fail?)",
                             metric->name);
    if (uni_tensor_dtype(prediction) != UNI_F32)
        return uni_error_set(err, UNI_EDTYPE, "metric %s: predictions must be float32, got %s",
                             metric->name, uni_dtype_name(uni_tensor_dtype(prediction)));
    int ndim = uni_tensor_ndim(prediction);
    const int64_t *shape = uni_tensor_shape(prediction);
    bool whole = layout == UNI__VALUES || ndim < 2; /* (batch) is a batch of rows of 1 */
    *rows = (uni__rows){ .prediction = uni_tensor_data(prediction),
                         .ndim = whole ? ndim : ndim - 1,
                         .cols = whole ? 1 : (size_t)shape[ndim - 1],
                         .rows = 1,
                         .per_sample = 1 };
    for (int i = 0; i < rows->ndim; i++) {
        rows->dims[i] = shape[i];
        rows->rows *= (size_t)shape[i];
        rows->per_sample *= i > 0 ? (size_t)shape[i] : 1;
    }
    UNI_TRY(open_target(rows, metric, layout, target, prediction, err));
    return open_weights(rows, metric, weights, prediction, err);
}

double uni__rows_weight(const uni__rows *rows, size_t row)
{
    if (rows->weights == NULL)
        return 1;
    size_t index = 0, inner = rows->rows;
    for (int i = 0; i < rows->weights_ndim; i++) {
        inner /= (size_t)rows->dims[i];
        size_t place = row / inner;
        row -= place * inner;
        index = index * (size_t)rows->weights_dims[i] + (rows->weights_dims[i] > 1 ? place : 0);
    }
    return uni__element(rows->weights, rows->weights_dtype, index);
}

size_t uni__argmax(const float *row, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

size_t uni__rows_target_argmax(const uni__rows *rows, size_t row)
{
    size_t first = row * rows->cols, best = 0;
    for (size_t i = 1; i < rows->cols; i++)
        if (uni__rows_target(rows, first + i) > uni__rows_target(rows, first + best))
            best = i;
    return best;
}

/* TensorFlow's in_top_k: values that tie with the k-th are in, values that are not finite are
 * out. */
bool uni__in_top(const float *row, size_t count, size_t index, int k)
{
    if (index >= count || !isfinite(row[index]))
        return false;
    int above = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(row[i]))
            return false;
        above += row[i] > row[index];
    }
    return above < k;
}

enum uni__accuracy uni__accuracy_kind(const uni_tensor *target, const uni_tensor *prediction)
{
    int64_t last = uni_tensor_ndim(prediction) > 1 ? uni_tensor_dim(prediction, -1) : 1;
    if (last == 1)
        return UNI__ACCURACY_BINARY;
    bool fewer = target != NULL && uni_tensor_ndim(target) < uni_tensor_ndim(prediction);
    return fewer || (target != NULL && uni_tensor_dim(target, -1) == 1) ? UNI__ACCURACY_SPARSE
                                                                        : UNI__ACCURACY_CATEGORICAL;
}
