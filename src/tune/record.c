/* record.c - records of tune.jsonl with numbers that JSON cannot express: {"m": {"loss": null},
 * "n": {"loss": "NaN"}}. Any thread. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "tune/experiment.h"
#include "tune/space.h"

uni_value *uni__tune_record(const char *event, int64_t trial)
{
    uni_value *record = uni_value_dict();
    int status = uni_dict_take(record, "e", uni_value_string(event));
    if (trial >= 0)
        status |= uni_dict_take(record, "t", uni_value_int(trial));
    if (status == 0)
        return record;
    uni_value_free(record);
    return NULL;
}

static int note_nonfinite(uni_value *out, const uni_value *tree, uni__text *path)
{
    size_t before = path->size;
    int status = 0;
    for (size_t i = 0; i < uni_dict_size(tree); i++) {
        const uni_value *value = uni_dict_value_at(tree, i);
        uni_value_type type = uni_value_type_of(value);
        if (type != UNI_TYPE_DICT && type != UNI_TYPE_FLOAT)
            continue;
        double number = uni_value_as_float(value, 0);
        if (type == UNI_TYPE_FLOAT && isfinite(number))
            continue;
        if (before)
            uni__text_add_char(path, '.');
        uni__text_add_string(path, uni_dict_key_at(tree, i));
        if (path->failed)
            return UNI_ENOMEM;
        if (type == UNI_TYPE_DICT)
            status |= note_nonfinite(out, value, path);
        else
            status |= uni_dict_take(out, path->data,
                                    uni_value_string(isnan(number) ? "NaN"
                                                     : number > 0  ? "Infinity"
                                                                   : "-Infinity"));
        path->size = before;
        path->data[before] = '\0';
    }
    return status;
}

int uni__record_metrics(uni_value *record, const uni_value *metrics)
{
    uni__text path = { 0 };
    uni_value *nonfinite = uni_value_dict();
    int status = uni_dict_take(record, "m", uni_value_copy(metrics));
    status |= note_nonfinite(nonfinite, metrics, &path);
    uni__text_free(&path);
    if (status == 0 && uni_dict_size(nonfinite) > 0)
        return uni_dict_take(record, "n", nonfinite);
    uni_value_free(nonfinite);
    return status;
}

uni_value *uni__record_read_metrics(const uni_value *record)
{
    /* Readers rely on a dictionary, and the journal is not trusted. */
    const uni_value *written = uni_dict_get(record, "m");
    bool is_dict = written && uni_value_type_of(written) == UNI_TYPE_DICT;
    uni_value *metrics = is_dict ? uni_value_copy(written) : uni_value_dict();
    const uni_value *nonfinite = uni_dict_get(record, "n");
    for (size_t i = 0; metrics && i < uni_dict_size(nonfinite); i++) {
        const char *text = uni_value_as_string(uni_dict_value_at(nonfinite, i), "NaN");
        double number = text[0] == 'I' ? INFINITY : text[0] == '-' ? -INFINITY : NAN;
        if (uni__space_put(metrics, uni_dict_key_at(nonfinite, i), uni_value_float(number)) < 0)
            break;
    }
    return metrics;
}
