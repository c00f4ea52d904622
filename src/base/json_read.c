/*
 * json_read.c - JSON text to a tree, by jansson.
 *
 * jansson does the parsing (UTF-8, escapes, numbers, duplicate keys, its own depth of 2048); we
 * convert its tree into ours, limit the depth to UNI_VALUE_MAX_DEPTH and turn its error into a
 * sentence with line and column. Numbers that are too large for 64 bits or for a double are
 * refused: silently reading another number than was written is worse. Any thread.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/value.h>
#include "base/file.h"
#include "base/json.h"

/* Configs, manifests and run files are small; what is larger is not one of them. */
#define JSON_SIZE_LIMIT ((size_t)64 << 20)

static int convert(uni_value **out, const json_t *json, int depth, uni_error *err);

static int convert_list(uni_value **out, const json_t *json, int depth, uni_error *err)
{
    uni_value *list = uni_value_list(), *item = NULL;
    int status = list ? 0 : UNI_ENOMEM;
    for (size_t i = 0; status == 0 && i < json_array_size(json); i++) {
        status = convert(&item, json_array_get(json, i), depth + 1, err);
        if (status == 0)
            status = uni_list_take(list, item);
    }
    if (status < 0) {
        uni_value_free(list);
        return status;
    }
    *out = list;
    return 0;
}

static int convert_dict(uni_value **out, json_t *json, int depth, uni_error *err)
{
    uni_value *dict = uni_value_dict(), *item = NULL;
    int status = dict ? 0 : UNI_ENOMEM;
    const char *key;
    json_t *child;
    json_object_foreach(json, key, child) /* in the order of the text */
    {
        if (status == 0)
            status = convert(&item, child, depth + 1, err);
        if (status == 0)
            status = uni_dict_take(dict, key, item);
    }
    if (status < 0) {
        uni_value_free(dict);
        return status;
    }
    *out = dict;
    return 0;
}

/* depth: containers around this value. */
static int convert(uni_value **out, const json_t *json, int depth, uni_error *err)
{
    *out = NULL;
    if (depth >= UNI_VALUE_MAX_DEPTH && (json_is_array(json) || json_is_object(json)))
        return uni_error_set(err, UNI_ELIMIT, "JSON: nested deeper than %d levels",
                             UNI_VALUE_MAX_DEPTH);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return convert_dict(out, (json_t *)json, depth, err);
    case JSON_ARRAY:
        return convert_list(out, json, depth, err);
    case JSON_STRING:
        *out = uni_value_string_n(json_string_value(json), json_string_length(json));
        break;
    case JSON_INTEGER:
        *out = uni_value_int(json_integer_value(json));
        break;
    case JSON_REAL:
        *out = uni_value_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = uni_value_bool(json_is_true(json));
        break;
    case JSON_NULL:
        *out = uni_value_null();
        break;
    }
    return *out ? 0 : UNI_ENOMEM;
}

static int parse_error(const json_error_t *failure, uni_error *err)
{
    if (failure->text[0] == 0) /* jansson has no words for an allocation that failed */
        return uni_error_set(err, UNI_ENOMEM, "JSON: out of memory");
    switch (json_error_code(failure)) {
    case json_error_out_of_memory:
        return uni_error_set(err, UNI_ENOMEM, "JSON: out of memory");
    case json_error_stack_overflow:
        return uni_error_set(err, UNI_ELIMIT, "JSON: nested deeper than %d levels",
                             UNI_VALUE_MAX_DEPTH);
    case json_error_numeric_overflow:
        return uni_error_set(err, UNI_EFORMAT,
                             "JSON: line %d, column %d: %s (whole numbers have 64 bits; write a "
                             "larger one with an exponent)",
                             failure->line, failure->column, failure->text);
    default:
        return uni_error_set(err, UNI_EFORMAT, "JSON: line %d, column %d: %s", failure->line,
                             failure->column, failure->text);
    }
}

int uni_json_read(uni_value **out, const char *text, size_t length, uni_error *err)
{
    *out = NULL;
    if (!text)
        return uni_error_set(err, UNI_EINVAL, "JSON: the text is NULL");
    if (length > JSON_SIZE_LIMIT)
        return uni_error_set(err, UNI_ELIMIT, "JSON: %zu bytes are more than the limit of %zu",
                             length, JSON_SIZE_LIMIT);
    /* jansson takes it for the end of the text, and would not see what comes behind it. */
    const char *zero = length > 0 ? memchr(text, 0, length) : NULL;
    if (zero)
        return uni_error_set(err, UNI_EFORMAT, "JSON: a zero byte at offset %zu",
                             (size_t)(zero - text));
    json_error_t failure;
    json_t *json = json_loadb(text, length,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &failure);
    if (!json)
        return parse_error(&failure, err);
    int status = convert(out, json, 0, err);
    json_decref(json);
    if (status == UNI_ENOMEM)
        return uni_error_set(err, status, "JSON: out of memory");
    return status;
}

static int read_text(uni_value **out, int status, char *text, size_t size, const char *path,
                     uni_error *err)
{
    *out = NULL;
    UNI_TRY(status);
    status = uni_json_read(out, text, size, err);
    free(text);
    if (status < 0)
        uni_error_prefix(err, "cannot read \"%s\"", path);
    return status;
}

int uni_json_read_file(uni_value **out, const char *path, uni_error *err)
{
    char *text = NULL;
    size_t size = 0;
    int status = uni__read_file(&text, &size, path, JSON_SIZE_LIMIT, err);
    return read_text(out, status, text, size, path, err);
}

int uni__json_read_unlinked(uni_value **out, const char *path, uni_error *err)
{
    char *text = NULL;
    size_t size = 0;
    int status = uni__read_unlinked(&text, &size, path, JSON_SIZE_LIMIT, err);
    return read_text(out, status, text, size, path, err);
}
