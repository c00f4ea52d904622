/* said.c - see said.h. */
#include "train/said.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "base/json.h"
#include "base/msgpack.h"

int uni__report_split(uni__report_parts *out, const uint8_t *payload, size_t size, uni_error *err)
{
    uint32_t state_size = 0;
    const size_t head = sizeof out->iteration + sizeof state_size;
    if (size >= head)
        memcpy(&state_size, payload + sizeof out->iteration, sizeof state_size);
    if (size < head || state_size > size - head)
        return uni_error_set(err, UNI_EFORMAT, "a report that is cut off");
    memcpy(&out->iteration, payload, sizeof out->iteration);
    out->state = (uni__state_section){ payload + head, state_size };
    out->metrics = payload + head + state_size;
    out->metrics_size = size - head - state_size;
    return state_size > 0 ? uni__state_check(out->state.bytes, state_size, err) : 0;
}

int uni__handed_read(uni__handed *out, uni__group *group, int rank, const uint8_t *payload,
                     size_t size, uni_error *err)
{
    uni_value *message = NULL;
    UNI_TRY(uni__msgpack_read(&message, payload, size, err));
    int64_t slot = uni_dict_get_int(message, "slot", -1),
            bytes = uni_dict_get_int(message, "size", -1);
    *out = (uni__handed){ .rank = rank,
                          .life = uni__group_worker(group, rank)->life,
                          .iteration = uni_dict_get_int(message, "iteration", 0),
                          .alone = uni_dict_get_bool(message, "alone", false),
                          .of_step = uni_dict_get_bool(message, "step", false),
                          .path = uni_dict_get_string(message, "path", NULL),
                          .slot = -1,
                          .message = message };
    out->state.bytes = uni_value_as_bytes(uni_dict_get(message, "state"), &out->state.size);
    int status = out->state.bytes ? uni__state_check(out->state.bytes, out->state.size, err) : 0;
    if (status == 0 && out->of_step && !out->alone)
        status = uni_error_set(err, UNI_EFORMAT, "it sent a checkpoint of a step with a report");
    if (status == 0 && !out->path) {
        out->slot = (int)slot;
        out->size = (size_t)bytes;
        out->region = uni__group_snapshot(group, rank, slot, bytes);
        if (!out->region)
            status = uni_error_set(err, UNI_EFORMAT, "it sent a checkpoint without its buffer");
    }
    if (status < 0)
        uni__handed_clear(out);
    return status;
}

void uni__handed_clear(uni__handed *handed)
{
    uni__region_unref(handed->region);
    uni_value_free(handed->message);
}

/* Puts the numbers named in {"loss": "NaN"} back where JSON could not carry them. */
static int restore_nonfinite(uni_value *metrics, const uni_value *nonfinite)
{
    int status = 0;
    for (size_t i = 0; i < uni_dict_size(nonfinite); i++) {
        const char *text = uni_value_as_string(uni_dict_value_at(nonfinite, i), "NaN");
        double number = text[0] == '-' ? -INFINITY : text[0] == 'I' ? INFINITY : NAN;
        status |= uni_dict_take(metrics, uni_dict_key_at(nonfinite, i), uni_value_float(number));
    }
    return status;
}

/* A misspelled key would be a checkpoint that is lost without a word. */
static int check_line(const uni_value *parsed, const uni_value *given, uni_error *err)
{
    static const char *const known[] = { "metrics",   "checkpoint", "staged",
                                         "nonfinite", "disk_full",  NULL };
    const uni_value *checkpoint = uni_dict_get(parsed, "checkpoint");
    uni_value_type type = checkpoint ? uni_value_type_of(checkpoint) : UNI_TYPE_NULL;
    if (uni_value_type_of(parsed) != UNI_TYPE_DICT ||
        (given && uni_value_type_of(given) != UNI_TYPE_DICT))
        return uni_error_set(err, UNI_EFORMAT,
                             "a report line must be a JSON object such as {\"loss\": 0.3}");
    if (given && type != UNI_TYPE_STRING && type != UNI_TYPE_NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "\"checkpoint\" in a report line must be the path of a directory");
    for (size_t i = 0; given && i < uni_dict_size(parsed); i++) {
        const char *key = uni_dict_key_at(parsed, i);
        const char *const *name = known;
        while (*name && strcmp(*name, key) != 0)
            name++;
        if (!*name)
            return uni_error_set(err, UNI_EFORMAT,
                                 "unknown key \"%.100s\" in a report line with \"metrics\": "
                                 "besides it there is \"checkpoint\"",
                                 key);
    }
    return 0;
}

int uni__line_read(uni__line *out, const char *line, size_t size, uni_error *err)
{
    uni_value *parsed = NULL;
    *out = (uni__line){ 0 };
    if (!line)
        return uni_error_set(err, UNI_ELIMIT, "a report line is longer than 1 MiB");
    UNI_TRY(uni__json_read_python(&parsed, line, size, err));
    const uni_value *given = uni_dict_get(parsed, "metrics");
    const char *staged = uni_dict_get_string(parsed, "staged", NULL),
               *path = staged ? staged : uni_dict_get_string(parsed, "checkpoint", NULL);
    int status = check_line(parsed, given, err);
    if (status < 0) {
        /* said */
    } else if (given && uni_dict_get_bool(parsed, "disk_full", false)) {
        out->disk_full = true;
    } else {
        out->metrics = uni_value_copy(given ? given : parsed);
        out->path = given && path ? strdup(path) : NULL;
        out->staged = given && staged;
        if (!out->metrics || (given && path && !out->path) ||
            (given && restore_nonfinite(out->metrics, uni_dict_get(parsed, "nonfinite")) < 0))
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a report");
    }
    uni_value_free(parsed);
    if (status < 0)
        uni__line_clear(out);
    return status;
}

void uni__line_clear(uni__line *line)
{
    uni_value_free(line->metrics);
    free(line->path);
    *line = (uni__line){ 0 };
}
