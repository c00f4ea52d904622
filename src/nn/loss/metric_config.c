/*
 * metric_config.c - metrics to and from Keras's configs. Unsupported settings are rejected by name.
 * Any thread.
 */
#include <math.h>
#include <stdlib.h>

#include "nn/shared.h"
#include "nn/loss/metric.h"

static const char *const averages[] = { "macro", "micro", "weighted",
                                        NULL }; /* by enum uni__average */
static const char *const summations[] = { "interpolation", "minoring", "majoring" };

static bool is(const uni_metric *metric, const char *name)
{
    return uni__same_name(metric->class_->name, name);
}

/* ---- to Keras ---- */

static uni_value *thresholds_value(const uni__metric_settings *settings)
{
    if (settings->thresholds_count == 0)
        return settings->threshold == 0.5f || isinf(settings->threshold)
                   ? uni_value_null()
                   : uni_value_float((double)settings->threshold);
    uni_value *list = uni_value_list();
    for (size_t i = 0; list != NULL && i < settings->thresholds_count; i++)
        if (uni_list_take(list, uni_value_float((double)settings->thresholds[i])) < 0) {
            uni_value_free(list);
            return NULL;
        }
    return list;
}

static int put_precision(const uni__metric_settings *settings, uni_value *config)
{
    UNI_TRY(uni_dict_take(config, "thresholds", thresholds_value(settings)));
    UNI_TRY(uni_dict_take(config, "top_k",
                          settings->k > 0 ? uni_value_int(settings->k) : uni_value_null()));
    return uni_dict_take(config, "class_id",
                         settings->class_id >= 0 ? uni_value_int(settings->class_id)
                                                 : uni_value_null());
}

static int put_fbeta(const uni_metric *metric, uni_value *config)
{
    const uni__metric_settings *settings = &metric->settings;
    const char *average = averages[settings->average];
    UNI_TRY(uni_dict_take(config, "average",
                          average != NULL ? uni_value_string(average) : uni_value_null()));
    if (is(metric, "fbeta_score"))
        UNI_TRY(uni_dict_take(config, "beta", uni_value_float((double)settings->beta)));
    return uni_dict_take(config, "threshold",
                         settings->by_argmax ? uni_value_null()
                                             : uni_value_float((double)settings->threshold));
}

static int put_auc(const uni__metric_settings *settings, uni_value *config)
{
    UNI_TRY(uni_dict_take(config, "num_thresholds", uni_value_int(settings->num_thresholds)));
    UNI_TRY(uni_dict_take(config, "curve",
                          uni_value_string(settings->precision_recall_curve ? "PR" : "ROC")));
    UNI_TRY(uni_dict_take(config, "summation_method",
                          uni_value_string(summations[settings->summation])));
    UNI_TRY(uni_dict_take(config, "multi_label", uni_value_bool(false)));
    UNI_TRY(uni_dict_take(config, "num_labels", uni_value_null()));
    UNI_TRY(uni_dict_take(config, "label_weights", uni_value_null()));
    return uni_dict_take(config, "from_logits", uni_value_bool(settings->from_logits));
}

static int put_settings(const uni_metric *metric, uni_value *config)
{
    const uni__metric_settings *settings = &metric->settings;
    UNI_TRY(uni_dict_take(config, "name", uni_value_string(metric->name)));
    UNI_TRY(uni_dict_take(config, "dtype", uni_value_string("float32")));
    if (is(metric, "binary_accuracy"))
        return uni_dict_take(config, "threshold", uni_value_float((double)settings->threshold));
    if (is(metric, "top_k_categorical_accuracy") || is(metric, "sparse_top_k_categorical_accuracy"))
        return uni_dict_take(config, "k", uni_value_int(settings->k));
    if (is(metric, "precision") || is(metric, "recall"))
        return put_precision(settings, config);
    if (is(metric, "fbeta_score") || is(metric, "f1_score"))
        return put_fbeta(metric, config);
    if (is(metric, "auc"))
        return put_auc(settings, config);
    bool binary = is(metric, "binary_crossentropy"),
         categorical = is(metric, "categorical_crossentropy");
    if (binary || categorical || is(metric, "sparse_categorical_crossentropy"))
        UNI_TRY(uni_dict_take(config, "from_logits", uni_value_bool(settings->from_logits)));
    return binary || categorical ? uni_dict_take(config, "label_smoothing",
                                                 uni_value_float((double)settings->label_smoothing))
                                 : 0;
}

static int get_config(const uni_metric *metric, uni_value **out, uni_error *err)
{
    *out = NULL;
    uni_value *config = uni_value_dict();
    int status = config != NULL ? put_settings(metric, config) : UNI_ENOMEM;
    if (status < 0) {
        uni_value_free(config);
        return uni_error_set(err, status, "no memory for the config of the metric %s",
                             metric->name);
    }
    *out = config;
    return 0;
}

int uni__metric_to_value(const uni_metric *metric, uni_value **out, uni_error *err)
{
    uni_value *config = NULL;
    *out = NULL;
    /* "accuracy": no class does the same. */
    if (metric->class_ == &uni__mean_metrics[0]) {
        *out = uni_value_string("accuracy");
        return *out != NULL
                   ? 0
                   : uni_error_set(err, UNI_ENOMEM, "no memory for the metric %s", metric->name);
    }
    if (metric->class_->class_name == NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the metric %s has no class in Keras and cannot be saved",
                             metric->name);
    UNI_TRY(get_config(metric, &config, err));
    return uni__object_new(out, "keras.metrics", metric->class_->class_name, config, err);
}

/* ---- from Keras ---- */

static int refuse_others(const char *class_name, const uni_value *config, uni_error *err)
{
    static const char *const keys[] = { "multi_label", "num_labels", "label_weights",
                                        "ignore_class" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const uni_value *value = uni_dict_get(config, keys[i]);
        if (uni_value_type_of(value) != UNI_TYPE_NULL && uni_value_as_bool(value, true))
            return uni_error_set(err, UNI_EUNSUPPORTED, "the metric %s with %s is not supported",
                                 class_name, keys[i]);
    }
    if (uni_dict_get_int(config, "axis", -1) != -1)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the metric %s over another axis than the last is not supported",
                             class_name);
    if (uni__same_name(class_name, "AUC") && uni_list_size(uni_dict_get(config, "thresholds")) > 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the metric AUC with thresholds of one's own is not supported");
    return 0;
}

/* Null, or a whole number of at least `least`. */
static bool is_count(const uni_value *value, int least)
{
    if (uni_value_type_of(value) == UNI_TYPE_NULL)
        return true;
    double number = uni_value_as_float(value, NAN);
    return uni_value_is_number(value) && uni_value_type_of(value) != UNI_TYPE_BOOL &&
           number >= least && number <= 1000000 && number == floor(number);
}

static bool is_fraction(const uni_value *value)
{
    double number = uni_value_as_float(value, NAN);
    return uni_value_is_number(value) && uni_value_type_of(value) != UNI_TYPE_BOOL && number >= 0 &&
           number <= 1;
}

static bool are_fractions(const uni_value *value)
{
    if (uni_value_type_of(value) != UNI_TYPE_LIST)
        return uni_value_type_of(value) == UNI_TYPE_NULL || is_fraction(value);
    for (size_t i = 0; i < uni_list_size(value); i++)
        if (!is_fraction(uni_list_get(value, i)))
            return false;
    return uni_list_size(value) > 0;
}

/* The readers take the default where a value is missing; of another kind it is an error. */
static int check_kinds(const char *class_name, const uni_value *config, bool fbeta, uni_error *err)
{
    const uni_value *average = uni_dict_get(config, "average"),
                    *threshold = uni_dict_get(config, "threshold");
    const char *wrong =
        uni_value_type_of(average) != UNI_TYPE_NULL && uni_value_type_of(average) != UNI_TYPE_STRING
            ? "average must be a word, or nothing"
        : fbeta && uni_value_type_of(threshold) != UNI_TYPE_NULL &&
                (!is_fraction(threshold) || uni_value_as_float(threshold, 0) == 0)
            ? "threshold must be a number above 0 and at most 1, or nothing"
        : !are_fractions(uni_dict_get(config, "thresholds"))
            ? "thresholds must be a number from 0 to 1, or a list of them"
        : !is_count(uni_dict_get(config, "top_k"), 1)
            ? "top_k must be a whole number of at least 1, or nothing"
        : !is_count(uni_dict_get(config, "class_id"), 0)
            ? "class_id must be a whole number of at least 0, or nothing"
        : !is_count(uni_dict_get(config, "k"), 1) ? "k must be a whole number of at least 1"
        : !is_count(uni_dict_get(config, "num_thresholds"), 2)
            ? "num_thresholds must be a whole number of at least 2"
            : NULL;
    return wrong == NULL ? 0
                         : uni_error_set(err, UNI_EINVAL, "the metric %s: %s", class_name, wrong);
}

static int read_thresholds(uni__metric_settings *settings, const uni_value *value, uni_error *err)
{
    size_t count = uni_list_size(value);
    if (uni_value_is_number(value))
        settings->threshold = (float)uni_value_as_float(value, 0.5);
    if (count == 0)
        return 0;
    settings->thresholds = malloc(count * sizeof *settings->thresholds);
    if (settings->thresholds == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %zu thresholds", count);
    settings->thresholds_count = count;
    for (size_t i = 0; i < count; i++)
        settings->thresholds[i] = (float)uni_value_as_float(uni_list_get(value, i), NAN);
    return 0;
}

static int read_choice(const uni_value *config, const char *key, const char *const *names,
                       int count, int *out, uni_error *err)
{
    const char *name = uni_dict_get_string(config, key, NULL);
    for (int i = 0; name != NULL && i < count; i++)
        if (uni__same_name(name, names[i])) {
            *out = i;
            return 0;
        }
    return name == NULL ? 0 : uni__unknown_name(err, key, name, names, (size_t)count);
}

static int small_int(const uni_value *config, const char *key, int fallback)
{
    int64_t value = uni_dict_get_int(config, key, fallback);
    return value < -1 || value > 1000000 ? -2 : (int)value;
}

static int read_settings(uni__metric_settings *settings, const char *class_name,
                         const uni_value *config, uni_error *err)
{
    static const char *const curves[] = { "ROC", "PR" };
    bool fbeta = uni__same_name(class_name, "FBetaScore") || uni__same_name(class_name, "F1Score");
    bool precision =
        uni__same_name(class_name, "Precision") || uni__same_name(class_name, "Recall");
    const uni_value *threshold = uni_dict_get(config, "threshold");
    UNI_TRY(check_kinds(class_name, config, fbeta, err));
    int average = UNI__AVERAGE_NONE, summation = UNI__SUM_INTERPOLATE, curve = 0;
    UNI_TRY(read_choice(config, "average", averages, 3, &average, err));
    UNI_TRY(read_choice(config, "summation_method", summations, 3, &summation, err));
    UNI_TRY(read_choice(config, "curve", curves, 2, &curve, err));
    *settings = (uni__metric_settings){
        .threshold = (float)uni_value_as_float(threshold, 0.5),
        .by_argmax = fbeta && !uni_value_is_number(threshold),
        .k = small_int(config, precision ? "top_k" : "k", precision ? 0 : 5),
        .class_id = small_int(config, "class_id", -1),
        .beta = (float)uni_dict_get_float(config, "beta", 1),
        .average = (enum uni__average)average,
        .num_classes = small_int(config, "num_classes", 0),
        .num_thresholds = small_int(config, "num_thresholds", 200),
        .precision_recall_curve = curve == 1,
        .summation = (enum uni__summation)summation,
        .from_logits = uni_dict_get_bool(config, "from_logits", false),
        .label_smoothing = (float)uni_dict_get_float(config, "label_smoothing", 0),
    };
    if (settings->k < 0 || settings->class_id < -1 || settings->num_classes < 0 ||
        settings->num_thresholds < 0 || !(settings->beta > 0))
        return uni_error_set(err, UNI_EINVAL,
                             "the metric %s has a number that makes no sense in its config",
                             class_name);
    if (precision && settings->k > 0)
        settings->threshold = -INFINITY;
    return precision ? read_thresholds(settings, uni_dict_get(config, "thresholds"), err) : 0;
}

int uni__metric_from_config(uni_metric **out, const char *class_name, const uni_value *config,
                            uni_error *err)
{
    *out = NULL;
    const uni__metric_class *class_ = uni__metric_find(class_name, err);
    if (class_ == NULL)
        return UNI_ENOTFOUND;
    const char *name = uni_dict_get_string(config, "name", NULL);
    if (class_ == &uni__mean_metrics[0] && uni_value_type_of(config) == UNI_TYPE_DICT) {
        class_ = uni__metric_find("equality", err); /* the class, not compile's "accuracy" */
        name = name != NULL ? name : "accuracy";
    }
    UNI_TRY(refuse_others(class_name, config, err));
    uni__metric_settings settings;
    UNI_TRY(read_settings(&settings, class_name, config, err));
    return uni__metric_make(out, class_, name, &settings, err);
}

int uni__metric_from_value(uni_metric **out, const uni_value *value, uni_error *err)
{
    const uni_value *config;
    const char *name = uni__object_class(value, &config);
    *out = NULL;
    if (name == NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "a metric must be a name or an object with a class_name");
    return config != NULL ? uni__metric_from_config(out, name, config, err)
                          : uni_metric_new(out, name, &(uni_metric_options){ .name = name }, err);
}
