/* stop.c - stop criteria of a trial; see stop.h. */
#include "tune/stop.h"

#include <math.h>
#include <string.h>

#include "base/shared.h"
#include "tune/shared.h"
#include "tune/schedule.h"
#include "tune/search.h"

static int check_plateau(const uni_value *plateau, const char *metric, uni_error *err)
{
    static const char *const known[] = { "metric", "std", "num_results", "grace_period", NULL };
    double ignored;
    UNI_TRY(uni__check_keys("the plateau criterion", plateau, known, err));
    if (!uni_dict_get_string(plateau, "metric", metric))
        return uni_error_set(err, UNI_EINVAL, "stop: the plateau of which metric?");
    UNI_TRY(uni__option_number(plateau, "std", 0.01, 0, &ignored, err));
    UNI_TRY(uni__option_number(plateau, "num_results", 4, 2, &ignored, err));
    return uni__option_number(plateau, "grace_period", 4, 0, &ignored, err);
}

int uni__stop_check(const uni_value *stop, const char *metric, uni_error *err)
{
    static const char *const known[] = { "below", "above", NULL };
    if (stop && uni_value_type_of(stop) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL,
                             "stop must be a dictionary such as {\"training_iteration\": 10}, not "
                             "a %s",
                             uni__value_type_name(uni_value_type_of(stop)));
    for (size_t i = 0; i < uni_dict_size(stop); i++) {
        const char *key = uni_dict_key_at(stop, i);
        const uni_value *value = uni_dict_value_at(stop, i);
        bool is_dict = uni_value_type_of(value) == UNI_TYPE_DICT;
        if (strcmp(key, "plateau") == 0 && is_dict) {
            UNI_TRY(check_plateau(value, metric, err));
        } else if (is_dict) {
            UNI_TRY(uni__check_keys("a stop criterion", value, known, err));
            for (size_t n = 0; n < uni_dict_size(value); n++)
                if (!uni_value_is_number(uni_dict_value_at(value, n)))
                    return uni_error_set(err, UNI_EINVAL, "stop: \"%s\": \"%s\" needs a number",
                                         key, uni_dict_key_at(value, n));
        } else if (!uni_value_is_number(value)) {
            return uni_error_set(err, UNI_EINVAL,
                                 "stop: \"%s\" needs a number (at least), {\"below\": number} or "
                                 "{\"above\": number}",
                                 key);
        }
    }
    return 0;
}

/* The last num_results values of the metric, including this one, hardly differ. */
static bool on_plateau(const uni_value *options, const uni__experiment *experiment,
                       const uni__trial *trial, const uni_value *metrics)
{
    const char *metric = uni_dict_get_string(options, "metric", experiment->metric);
    double least = uni_dict_get_float(options, "std", 0.01);
    int64_t wanted = uni_dict_get_int(options, "num_results", 4),
            grace = uni_dict_get_int(options, "grace_period", 4);
    int name = metric ? uni__experiment_metric(experiment, metric) : -1;
    double value = metric ? uni__tune_metric(metrics, metric) : NAN;
    double sum = value, squares = value * value;
    int64_t count = 1;
    if (isnan(value) || trial->num_reports + 1 < grace)
        return false;
    for (int i = trial->num_reports - 1; i >= 0 && count < wanted; i--)
        for (int n = 0; n < trial->reports[i].count; n++)
            if (trial->reports[i].numbers[n].name == name) {
                sum += trial->reports[i].numbers[n].value;
                squares += trial->reports[i].numbers[n].value * trial->reports[i].numbers[n].value;
                count++;
            }
    double mean = sum / (double)count;
    return count >= wanted && sqrt(fmax(squares / (double)count - mean * mean, 0)) < least;
}

bool uni__stop_reached(const uni_value *stop, const uni__experiment *experiment,
                       const uni__trial *trial, const uni_value *metrics, const char **why)
{
    for (size_t i = 0; i < uni_dict_size(stop); i++) {
        const char *key = uni_dict_key_at(stop, i);
        const uni_value *limit = uni_dict_value_at(stop, i);
        bool is_dict = uni_value_type_of(limit) == UNI_TYPE_DICT, reached;
        *why = key;
        if (is_dict && strcmp(key, "plateau") == 0) {
            reached = on_plateau(limit, experiment, trial, metrics);
        } else {
            double value = uni__tune_metric(metrics, key);
            reached = is_dict ? value <= uni_dict_get_float(limit, "below", -INFINITY) ||
                                    value >= uni_dict_get_float(limit, "above", INFINITY)
                              : value >= uni_value_as_float(limit, NAN);
        }
        if (reached)
            return true;
    }
    return false;
}
