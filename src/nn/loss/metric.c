/*
 * metric.c - metrics: by name, their life cycle, and what all of them share. metric_mean.c,
 * metric_count.c and metric_auc.c have the arithmetic, metric_config.c the configs. A metric
 * belongs to one thread at a time.
 */
#include "nn/loss/metric.h"
#include "base/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"

/* ---- names ---- */

static const uni__metric_class *class_at(size_t index)
{
    for (size_t i = 0; uni__mean_metrics[i].name != NULL; i++)
        if (index-- == 0)
            return &uni__mean_metrics[i];
    for (size_t i = 0; uni__count_metrics[i].name != NULL; i++)
        if (index-- == 0)
            return &uni__count_metrics[i];
    return index == 0 ? &uni__auc_metric : NULL;
}

const uni__metric_class *uni__metric_find(const char *name, uni_error *err)
{
    const char *known[64];
    size_t count = 0;
    const uni__metric_class *class_;
    for (size_t i = 0; (class_ = class_at(i)) != NULL; i++) {
        const char *names[] = { class_->name, class_->class_name, class_->short_name,
                                class_->other_name };
        for (size_t j = 0; j < sizeof names / sizeof names[0]; j++)
            if (names[j] != NULL && uni__same_name(name, names[j]))
                return class_;
        if (count < sizeof known / sizeof known[0])
            known[count++] = class_->name;
    }
    uni__unknown_name(err, "metric", name, known, count);
    return NULL;
}

/* ---- life cycle ---- */

static int read_average(enum uni__average *out, const char *name, uni_error *err)
{
    static const char *const names[] = { "macro", "micro",
                                         "weighted" }; /* in the order of the enum */
    *out = UNI__AVERAGE_MACRO;
    for (int i = 0; name != NULL && i < 3; i++)
        if (uni__same_name(name, names[i])) {
            *out = (enum uni__average)i;
            return 0;
        }
    return name == NULL ? 0 : uni__unknown_name(err, "average of F-beta", name, names, 3);
}

int uni__metric_make(uni_metric **out, const uni__metric_class *class_, const char *name,
                     uni__metric_settings *settings, uni_error *err)
{
    *out = NULL;
    uni_metric *metric = calloc(1, sizeof *metric);
    char *copy = metric != NULL ? strdup(name != NULL ? name : class_->name) : NULL;
    if (copy == NULL) {
        free(metric);
        free(settings->thresholds);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the metric %s", class_->name);
    }
    metric->class_ = class_;
    metric->name = copy;
    metric->settings = *settings; /* takes ownership of the thresholds */
    int status = class_->start(metric, err);
    if (status < 0) {
        uni_metric_free(metric);
        return status;
    }
    *out = metric;
    return 0;
}

int uni_metric_new(uni_metric **out, const char *name, const uni_metric_options *options,
                   uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_metric_options, options, from_logits, err);
    const uni__metric_class *class_ = uni__metric_find(name != NULL ? name : "", err);
    if (class_ == NULL)
        return UNI_ENOTFOUND;
    bool top_k = class_->row != NULL && strstr(class_->name, "top_k") != NULL;
    uni__metric_settings settings = {
        .threshold = options->threshold == UNI_EXACTLY_ZERO ? 0
                     : options->threshold != 0              ? (float)options->threshold
                                                            : 0.5f,
        .by_argmax = options->num_classes > 0 && options->threshold == 0,
        .k = options->k != 0 ? options->k
             : top_k         ? 5
                             : 0,
        .class_id = -1,
        .beta = options->beta != 0 ? options->beta : 1,
        .num_classes = options->num_classes,
        .num_thresholds = options->num_thresholds != 0 ? options->num_thresholds : 200,
        .precision_recall_curve = options->precision_recall_curve,
        .from_logits = options->from_logits,
    };
    if (settings.k < 0 || !(settings.beta > 0) || settings.num_classes < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "metric %s: k (%d), beta (%g) and num_classes (%d) must be positive",
                             class_->name, settings.k, (double)settings.beta, settings.num_classes);
    if (settings.k > 0 && !top_k) /* these select by rank alone */
        settings.threshold = options->threshold != 0 ? settings.threshold : -INFINITY;
    UNI_TRY(read_average(&settings.average, options->average, err));
    return uni__metric_make(out, class_, options->name, &settings, err);
}

int uni_metric_custom(uni_metric **out, const char *name, uni_metric_function function,
                      void *context, uni_error *err)
{
    *out = NULL;
    if (function == NULL)
        return uni_error_set(err, UNI_EINVAL, "a metric of one's own needs a function");
    uni__metric_settings none = { .class_id = -1 };
    UNI_TRY(uni__metric_make(out, &uni__custom_metric, name != NULL ? name : "metric", &none, err));
    (*out)->function = function;
    (*out)->context = context;
    return 0;
}

void uni_metric_free(uni_metric *metric)
{
    if (metric == NULL)
        return;
    free(metric->settings.thresholds);
    free(metric->state);
    free(metric->name);
    free(metric);
}

const char *uni__metric_name(const uni_metric *metric)
{
    return metric->name;
}

uni_metric *uni__metric_copy(const uni_metric *metric)
{
    uni__metric_settings settings = metric->settings;
    if (settings.thresholds != NULL) {
        settings.thresholds = malloc(settings.thresholds_count * sizeof *settings.thresholds);
        if (settings.thresholds == NULL)
            return NULL;
        memcpy(settings.thresholds, metric->settings.thresholds,
               settings.thresholds_count * sizeof *settings.thresholds);
    }
    uni_metric *copy = NULL;
    if (uni__metric_make(&copy, metric->class_, metric->name, &settings, NULL) < 0)
        return NULL;
    copy->function = metric->function;
    copy->context = metric->context;
    return copy;
}

/* ---- state ---- */

int uni__metric_resize(uni_metric *metric, size_t size, uni_error *err)
{
    double *state = calloc(size, sizeof *state);
    if (state == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the metric %s (%zu numbers)",
                             metric->name, size);
    free(metric->state);
    metric->state = state;
    metric->size = size;
    return 0;
}

void uni_metric_reset(uni_metric *metric)
{
    memset(metric->state, 0, metric->size * sizeof *metric->state);
}

double *uni__metric_state(uni_metric *metric, size_t *size)
{
    if (size != NULL)
        *size = metric->size;
    return metric->state;
}

void uni__metric_merge(uni_metric *into, const uni_metric *from)
{
    /* One of them may have determined its number of classes before the other. */
    if (into->size != from->size && uni__metric_resize(into, from->size, NULL) < 0)
        return;
    for (size_t i = 0; i < into->size; i++)
        into->state[i] += from->state[i];
}

/* ---- use ---- */

int uni_metric_update(uni_metric *metric, const uni_tensor *target, const uni_tensor *prediction,
                      const uni_tensor *weights, uni_error *err)
{
    return metric->class_->update(metric, target, prediction, weights, err);
}

void uni_metric_update_value(uni_metric *metric, double value, double weight)
{
    /* Applies only to metrics that keep (sum, count). */
    if (metric->size != 2)
        return;
    metric->state[0] += value * weight;
    metric->state[1] += weight;
}

size_t uni__metric_one(double value, double *values, size_t max)
{
    if (max > 0)
        values[0] = value;
    return 1;
}

size_t uni__metric_values(const uni_metric *metric, double *values, size_t max)
{
    return metric->class_->values(metric, values, max);
}

double uni_metric_result(const uni_metric *metric)
{
    size_t count = uni__metric_values(metric, NULL, 0);
    double few[32], *values = count <= 32 ? few : malloc(count * sizeof *values), sum = 0;
    if (values == NULL)
        return NAN;
    uni__metric_values(metric, values, count);
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    if (values != few)
        free(values);
    return sum / (double)count; /* several results: their mean */
}
