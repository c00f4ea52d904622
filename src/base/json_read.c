/*
 * json_read.c - JSON text to a tree, by jansson.
 *
 * jansson parses (UTF-8, escapes, numbers, duplicate keys, its own depth of 2048). We convert its
 * tree into ours, limit the depth to UNI_VALUE_MAX_DEPTH and turn its error into a message with
 * line and column. Numbers that do not fit 64 bits or a double are rejected: silently reading
 * another number than was written is worse. Any thread.
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/value.h>
#include "base/file.h"
#include "base/json.h"

/* Configs, manifests and run files are small; anything larger is not one of them. */
#define JSON_SIZE_LIMIT ((size_t)64 << 20)
/* A value takes up to 300 bytes while it is read, and three bytes of text can be one ("[],"). */
#define VALUE_LIMIT ((size_t)4 << 20)
#define MARK '\1' /* a string that begins with it is a number that JSON does not have */

static int convert(uni_value **out, const json_t *json, int depth, bool marked, uni_error *err);

static int convert_list(uni_value **out, const json_t *json, int depth, bool marked, uni_error *err)
{
    uni_value *list = uni_value_list(), *item = NULL;
    int status = list ? 0 : UNI_ENOMEM;
    for (size_t i = 0; status == 0 && i < json_array_size(json); i++) {
        status = convert(&item, json_array_get(json, i), depth + 1, marked, err);
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

static int convert_dict(uni_value **out, json_t *json, int depth, bool marked, uni_error *err)
{
    uni_value *dict = uni_value_dict(), *item = NULL;
    int status = dict ? 0 : UNI_ENOMEM;
    const char *key;
    json_t *child;
    json_object_foreach(json, key, child) /* in the order of the text */
    {
        if (status == 0 && marked && key[0] == MARK)
            status =
                uni_error_set(err, UNI_EFORMAT, "JSON: a key must be a string, not %s", key + 1);
        if (status == 0)
            status = convert(&item, child, depth + 1, marked, err);
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

/* depth: number of containers around this value. */
static int convert(uni_value **out, const json_t *json, int depth, bool marked, uni_error *err)
{
    *out = NULL;
    if (depth >= UNI_VALUE_MAX_DEPTH && (json_is_array(json) || json_is_object(json)))
        return uni_error_set(err, UNI_ELIMIT, "JSON: nested deeper than %d levels",
                             UNI_VALUE_MAX_DEPTH);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return convert_dict(out, (json_t *)json, depth, marked, err);
    case JSON_ARRAY:
        return convert_list(out, json, depth, marked, err);
    case JSON_STRING:
        if (marked && json_string_value(json)[0] == MARK) {
            char first = json_string_value(json)[1];
            *out = uni_value_float(first == '-' ? -INFINITY : first == 'I' ? INFINITY : NAN);
            break;
        }
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
    if (failure->text[0] == 0) /* jansson has no text for out of memory */
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

/* How many values the text can have at most, by what stands before one: `[`, `{` and `,`. */
static size_t count_values(const char *text, size_t length)
{
    size_t count = 1;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted)
            count += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    return count;
}

static int read_json(uni_value **out, const char *text, size_t length, size_t most, bool marked,
                     uni_error *err)
{
    *out = NULL;
    if (!text)
        return uni_error_set(err, UNI_EINVAL, "JSON: the text is NULL");
    if (length > JSON_SIZE_LIMIT)
        return uni_error_set(err, UNI_ELIMIT, "JSON: %zu bytes are more than the limit of %zu",
                             length, JSON_SIZE_LIMIT);
    /* jansson takes a zero byte for the end of the text and would ignore what follows. */
    const char *zero = length > 0 ? memchr(text, 0, length) : NULL;
    if (zero)
        return uni_error_set(err, UNI_EFORMAT, "JSON: a zero byte at offset %zu",
                             (size_t)(zero - text));
    /* Before the parser makes a tree of it. */
    if (length > most && count_values(text, length) > most)
        return uni_error_set(err, UNI_ELIMIT, "JSON: more than %zu values", most);
    json_error_t failure;
    json_t *json = json_loadb(text, length,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &failure);
    if (!json)
        return parse_error(&failure, err);
    int status = convert(out, json, 0, marked, err);
    json_decref(json);
    if (status == UNI_ENOMEM)
        return uni_error_set(err, status, "JSON: out of memory");
    return status;
}

int uni_json_read(uni_value **out, const char *text, size_t length, uni_error *err)
{
    return read_json(out, text, length, VALUE_LIMIT, false, err);
}

int uni__json_read_limited(uni_value **out, const char *text, size_t length, size_t most,
                           uni_error *err)
{
    return read_json(out, text, length, most, false, err);
}

/* The length of the number at `at` that JSON does not have, or 0. */
static size_t bare_number(const char *at, size_t left)
{
    static const char *const names[] = { "NaN", "Infinity", "-Infinity" };
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(names[i]);
        if (left >= length && memcmp(at, names[i], length) == 0)
            return length;
    }
    return 0;
}

/* Turns such numbers outside strings into marked strings. True: there was one. */
static bool mark_numbers(uni__text *to, const char *text, size_t length)
{
    bool quoted = false, found = false;
    for (size_t i = 0, n; i < length; i += n) {
        size_t bare = quoted ? 0 : bare_number(text + i, length - i);
        n = bare ? bare : quoted && text[i] == '\\' && i + 1 < length ? 2 : 1;
        quoted = quoted != (text[i] == '"');
        found = found || bare;
        if (bare)
            uni__text_add(to, "\"\\u0001", 7);
        uni__text_add(to, text + i, n);
        if (bare)
            uni__text_add(to, "\"", 1);
    }
    return found;
}

int uni__json_read_python(uni_value **out, const char *text, size_t length, uni_error *err)
{
    static const char mark[] = "\\u0001";
    uni__text marked = { 0 };
    int status = uni_json_read(out, text, length, err);
    if (status != UNI_EFORMAT || memmem(text, length, mark, sizeof mark - 1))
        return status;
    bool found = mark_numbers(&marked, text, length);
    if (marked.failed)
        status = uni_error_set(err, UNI_ENOMEM, "JSON: out of memory");
    else if (found)
        status = read_json(out, marked.data, marked.size, VALUE_LIMIT, true, err);
    uni__text_free(&marked);
    return status;
}

static int read_text(uni_value **out, int status, char *text, size_t size, size_t most,
                     const char *path, uni_error *err)
{
    *out = NULL;
    UNI_TRY(status);
    status = uni__json_read_limited(out, text, size, most, err);
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
    return read_text(out, status, text, size, VALUE_LIMIT, path, err);
}

int uni__json_read_unlinked(uni_value **out, const char *path, uni_error *err)
{
    char *text = NULL;
    size_t size = 0;
    int status = uni__read_unlinked(&text, &size, path, JSON_SIZE_LIMIT, err);
    return read_text(out, status, text, size, UNI__JSON_FEW, path, err);
}
