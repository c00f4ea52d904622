/*
 * losses.h - losses and metrics.
 *
 * A loss gives one value per sample (the last axis reduced, as in Keras) and then its reduction. In
 * fit, and wherever replicas act together, a loss is a pair (sum, count), so that uneven batches
 * are right. Under a strategy only NONE and SUM are allowed in the user's own loops: AUTO and
 * SUM_OVER_BATCH_SIZE are refused there with the reason.
 *
 * A metric is a small vector of doubles that is added up: merging two replicas is adding their
 * states.
 *
 * Thread rule: losses may be used from several threads; a metric belongs to one thread at a time.
 */
#ifndef UNISONO_LOSSES_H
#define UNISONO_LOSSES_H

#include <math.h>
#include <unisono/tensor.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- losses ---- */

typedef struct uni_loss uni_loss;

typedef enum uni_reduction {
    UNI_REDUCTION_AUTO = 0, /* SUM_OVER_BATCH_SIZE outside of strategies */
    UNI_REDUCTION_NONE,
    UNI_REDUCTION_SUM,
    UNI_REDUCTION_SUM_OVER_BATCH_SIZE
} uni_reduction;

typedef struct uni_loss_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    uni_reduction reduction;
    /* Cross-entropies: the predictions are logits. Without it they are probabilities. Those of a
     * sigmoid or softmax are computed from its logits either way (uni_op_loss). */
    bool from_logits;
    float label_smoothing;
    double delta; /* Huber; 0: 1; UNI_EXACTLY_ZERO: 0 */
    const char *name; /* NULL: Keras's */
} uni_loss_options;

/* By Keras's name or class name, in any case: "mse", "mean_squared_error", "MeanSquaredError",
 * "mae", "huber", "binary_crossentropy", "categorical_crossentropy",
 * "sparse_categorical_crossentropy", "hinge", "squared_hinge", "kl_divergence" ... An unknown name
 * is UNI_ENOTFOUND with the nearest one. */
UNI_API UNI_MUST_USE int uni_loss_new(uni_loss **out, const char *name,
                                      const uni_loss_options *options, uni_error *err);
/* The user's own: one value per sample on the tape. Of any other number of values, fit takes the
 * mean, and a model with such a loss is not cut into replicas unless they are asked for. */
typedef uni_tensor *(*uni_loss_function)(void *context, uni_tape *tape, uni_tensor *target,
                                         uni_tensor *prediction);
UNI_API UNI_MUST_USE int uni_loss_custom(uni_loss **out, const char *name,
                                         uni_loss_function function, void *context,
                                         uni_reduction reduction, uni_error *err);
UNI_API void uni_loss_free(uni_loss *loss);

/* With the loss' own reduction. weights: NULL or a tensor that broadcasts to the per-sample
 * values. In a step with a sync the reductions AUTO and SUM_OVER_BATCH_SIZE are errors. */
UNI_API uni_tensor *uni_loss_call(const uni_loss *loss, uni_tape *tape, uni_tensor *target,
                                  uni_tensor *prediction, uni_tensor *weights);
/* Per sample, weighted, not reduced. */
UNI_API uni_tensor *uni_loss_per_example(const uni_loss *loss, uni_tape *tape, uni_tensor *target,
                                         uni_tensor *prediction, uni_tensor *weights);
/* sum(per_example * weights) / global_batch_size (0: the first dimension). For a loss of higher
 * rank it warns once per tape and names the division by the elements per sample that is missing. */
UNI_API uni_tensor *uni_compute_average_loss(uni_tape *tape, uni_tensor *per_example,
                                             uni_tensor *weights, int64_t global_batch_size);
/* loss / num_replicas. */
UNI_API uni_tensor *uni_scale_regularization_loss(uni_tape *tape, uni_tensor *loss,
                                                  int num_replicas);

/* ---- metrics ---- */

typedef struct uni_metric uni_metric;

typedef struct uni_metric_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *name; /* NULL: Keras's */
    double threshold; /* binary accuracy, precision, recall, F-beta: 0: 0.5; UNI_EXACTLY_ZERO: 0 */
    int k; /* top-k; 0: 5. precision, recall: only the k best of each sample; 0: all */
    float beta; /* F-beta; 0: 1 */
    const char *
        /* F-beta over classes: "micro", "macro", "weighted"; NULL: macro (Keras gives one a
         * class) */
        average;
    /* confusion matrix: required. F-beta: number of columns, so that the state's size is known from
     * the start, and the largest column is the prediction unless there is a threshold; 0: binary */
    int num_classes;
    int num_thresholds; /* AUC; 0: 200 */
    bool precision_recall_curve; /* AUC; default ROC */
    bool from_logits; /* cross-entropies and AUC */
} uni_metric_options;

/* By Keras's name or class name in any case: "accuracy" (or "acc": binary, categorical or sparse
 * by the shapes and the loss, as compile does), "equality" (Keras's class Accuracy: how many
 * numbers are equal), "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy",
 * "top_k_categorical_accuracy", "sparse_top_k_categorical_accuracy", "precision", "recall",
 * "fbeta_score", "f1_score", "auc", "confusion_matrix", "mse", "mae", "root_mean_squared_error",
 * "binary_crossentropy", "categorical_crossentropy", "sparse_categorical_crossentropy", "mean",
 * "sum", "kl_divergence", "hinge". Unknown: UNI_ENOTFOUND with the nearest. */
UNI_API UNI_MUST_USE int uni_metric_new(uni_metric **out, const char *name,
                                        const uni_metric_options *options, uni_error *err);
/* The user's own: adds (sum, count) for a batch. */
typedef int (*uni_metric_function)(void *context, const uni_tensor *target,
                                   const uni_tensor *prediction, const uni_tensor *weights,
                                   double *sum, double *count, uni_error *err);
UNI_API UNI_MUST_USE int uni_metric_custom(uni_metric **out, const char *name,
                                           uni_metric_function function, void *context,
                                           uni_error *err);
UNI_API void uni_metric_free(uni_metric *metric);

/* weights may be NULL. */
UNI_API UNI_MUST_USE int uni_metric_update(uni_metric *metric, const uni_tensor *target,
                                           const uni_tensor *prediction, const uni_tensor *weights,
                                           uni_error *err);
/* For "mean" and "sum": one number with a weight. */
UNI_API void uni_metric_update_value(uni_metric *metric, double value, double weight);
/* NaN-free: 0 before the first update, as Keras. For a confusion matrix: the accuracy. */
UNI_API double uni_metric_result(const uni_metric *metric);
/* Calling a metric: updates it and returns its result (NaN and *err on failure). */
static inline double uni_metric_call(uni_metric *metric, const uni_tensor *target,
                                     const uni_tensor *prediction, const uni_tensor *weights,
                                     uni_error *err)
{
    return uni_metric_update(metric, target, prediction, weights, err) < 0
               ? (double)NAN
               : uni_metric_result(metric);
}
UNI_API void uni_metric_reset(uni_metric *metric);

#ifdef __cplusplus
}
#endif
#endif
