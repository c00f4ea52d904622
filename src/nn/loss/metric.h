/*
 * metric.h - internals of a metric, for src/nn/loss only. The public header is unisono/losses.h.
 *
 * A metric is a class, its settings and a vector of doubles that adds up over batches and replicas.
 * Most metrics are means of a value per row (a row is the prediction's last axis), which
 * metric_mean.c keeps as (sum, count); the rest count hits and misses.
 */
#ifndef UNISONO_NN_METRIC_H
#define UNISONO_NN_METRIC_H

#include "base/element.h"
#include "nn/loss/loss.h"

enum uni__average {
    UNI__AVERAGE_MACRO,
    UNI__AVERAGE_MICRO,
    UNI__AVERAGE_WEIGHTED,
    UNI__AVERAGE_NONE
};
enum uni__summation { UNI__SUM_INTERPOLATE, UNI__SUM_MINORING, UNI__SUM_MAJORING };
enum uni__metric_layout {
    UNI__POINTWISE, /* targets have the predictions' shape; a last axis of 1 may be missing */
    UNI__SPARSE, /* targets are class numbers, one per row */
    UNI__VALUES /* no targets: the mean of a tensor */
};

typedef struct uni__metric_settings {
    float threshold;
    bool by_argmax; /* F-beta: the largest column is the prediction, regardless of the threshold */
    int k; /* top-k accuracies; precision and recall: 0 for all */
    int class_id; /* precision, recall; -1: all */
    float beta;
    enum uni__average average;
    int num_classes;
    int num_thresholds; /* AUC */
    bool precision_recall_curve;
    enum uni__summation summation;
    bool from_logits;
    float label_smoothing;
    size_t thresholds_count; /* precision, recall */
    float *thresholds; /* owned */
} uni__metric_settings;

/* The numbers of one update. */
typedef struct uni__rows {
    size_t rows, cols; /* of the prediction */
    size_t per_sample; /* rows per sample */
    int ndim; /* axes before the last */
    int64_t dims[UNI_TENSOR_MAX_DIMS];
    const float *prediction;
    uni_dtype target_dtype, weights_dtype; /* 0: none */
    const void *target, *weights;
    int weights_ndim;
    int64_t weights_dims[UNI_TENSOR_MAX_DIMS];
    bool logits; /* cross-entropies: prediction has logits */
    bool zero_one; /* hinge: all targets are 0 or 1 and mean -1 and 1 */
} uni__rows;

typedef double (*uni__row_value)(const uni_metric *metric, const uni__rows *rows, size_t row);

typedef struct uni__metric_class {
    /* class_name NULL: not a class in Keras. */
    const char *name, *class_name, *short_name, *other_name;
    int (*start)(uni_metric *metric, uni_error *err); /* sets the size of the state; required */
    int (*update)(uni_metric *metric, const uni_tensor *target, const uni_tensor *prediction,
                  const uni_tensor *weights, uni_error *err);
    size_t (*values)(const uni_metric *metric, double *values, size_t max);
    uni__row_value row; /* for means */
    enum uni__metric_layout layout;
} uni__metric_class;

struct uni_metric {
    const uni__metric_class *class_;
    char *name;
    uni__metric_settings settings;
    size_t size;
    double *state;
    bool warned; /* of from_logits behind an activation */
    uni_metric_function function;
    void *context;
};

/* ---- metric.c ---- */

/* Sets the size of the state (zeros). Called by start, and by updates that determine the number of
 * classes. */
int uni__metric_resize(uni_metric *metric, size_t size, uni_error *err) UNI_MUST_USE;
/* NULL and UNI_ENOTFOUND if unknown. */
const uni__metric_class *uni__metric_find(const char *name, uni_error *err);
/* Takes ownership of the settings' thresholds, even on failure. */
int uni__metric_make(uni_metric **out, const uni__metric_class *class_, const char *name,
                     uni__metric_settings *settings, uni_error *err) UNI_MUST_USE;
size_t uni__metric_one(double value, double *values, size_t max);

/* ---- rows.c ---- */

/* Checks types and shapes; errors name the metric and both shapes. */
int uni__rows_open(uni__rows *rows, const uni_metric *metric, enum uni__metric_layout layout,
                   const uni_tensor *target, const uni_tensor *prediction,
                   const uni_tensor *weights, uni_error *err) UNI_MUST_USE;
double uni__rows_weight(const uni__rows *rows, size_t row); /* 1 without weights */
static inline double uni__rows_target(const uni__rows *rows, size_t index)
{
    return uni__element(rows->target, rows->target_dtype, index);
}
/* The index of the largest element of a row, the first among equals. */
size_t uni__argmax(const float *row, size_t count);
size_t uni__rows_target_argmax(const uni__rows *rows, size_t row);
bool uni__in_top(const float *row, size_t count, size_t index, int k);
/* Keras's rule for "accuracy": binary, sparse or categorical by the shapes. */
enum uni__accuracy { UNI__ACCURACY_BINARY, UNI__ACCURACY_SPARSE, UNI__ACCURACY_CATEGORICAL };
enum uni__accuracy uni__accuracy_kind(const uni_tensor *target, const uni_tensor *prediction);

extern const uni__metric_class uni__mean_metrics[]; /* metric_mean.c; ends with an empty one */
extern const uni__metric_class uni__count_metrics[]; /* metric_count.c */
extern const uni__metric_class uni__auc_metric; /* metric_auc.c */
extern const uni__metric_class uni__custom_metric;

#endif
