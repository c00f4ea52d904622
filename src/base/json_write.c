/*
 * json_write.c - a tree to JSON text.
 *
 * A small recursive writer into uni__text: doubles are shortest round-trip text (jansson's have 17
 * digits, and it cannot write NaN). Arrays become nested lists by their shape, bytes a list of
 * numbers. Any thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"

typedef struct writer {
    uni__text *text;
    unsigned flags;
    uni_error *err;
} writer;

static int write_value(writer *w, const uni_value *value, int depth);

static void new_line(writer *w, int depth)
{
    if (!(w->flags & UNI_JSON_INDENT))
        return;
    uni__text_add_char(w->text, '\n');
    for (int i = 0; i < depth; i++)
        uni__text_add(w->text, "  ", 2);
}

static void write_real(writer *w, double real)
{
    if (isfinite(real) || (w->flags & UNI_JSON_NONFINITE))
        uni__text_add_double(w->text, real);
    else
        uni__text_add(w->text, "null", 4);
}

static double half_to_double(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                       : exponent == 0 ? ldexp(fraction, -24)
                                       : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

#define ELEMENT(type) (((const type *)data)[i])

static void write_element(writer *w, uni_dtype dtype, const void *data, size_t i)
{
    switch ((int)dtype) {
    case UNI_F32:
        write_real(w, ELEMENT(float));
        break;
    case UNI_F64:
        write_real(w, ELEMENT(double));
        break;
    case UNI_I8:
        uni__text_add_int(w->text, ELEMENT(int8_t));
        break;
    case UNI_I16:
        uni__text_add_int(w->text, ELEMENT(int16_t));
        break;
    case UNI_I32:
        uni__text_add_int(w->text, ELEMENT(int32_t));
        break;
    case UNI_I64:
        uni__text_add_int(w->text, ELEMENT(int64_t));
        break;
    case UNI_U8:
        uni__text_add_int(w->text, ELEMENT(uint8_t));
        break;
    case UNI_U16:
        uni__text_add_int(w->text, ELEMENT(uint16_t));
        break;
    case UNI_U32:
        uni__text_add_int(w->text, ELEMENT(uint32_t));
        break;
    case UNI_U64:
        uni__text_add_format(w->text, "%llu", (unsigned long long)ELEMENT(uint64_t));
        break;
    case UNI_B8:
        uni__text_add_string(w->text, ELEMENT(uint8_t) ? "true" : "false");
        break;
    case UNI_F16:
        write_real(w, half_to_double(ELEMENT(uint16_t)));
        break;
    case UNI_BF16: {
        uint32_t bits = (uint32_t)ELEMENT(uint16_t) << 16;
        float real;
        memcpy(&real, &bits, sizeof real);
        write_real(w, real);
        break;
    }
    }
}

#undef ELEMENT

/* Writes one dimension of an array; *next counts elements through all of them. Never indented: one
 * line per number would make files unreadable. */
static void write_dimension(writer *w, const uni_array *array, int dimension, size_t *next)
{
    if (dimension == uni_array_ndim(array)) {
        write_element(w, uni_array_dtype(array), uni_array_data(array), (*next)++);
        return;
    }
    uni__text_add_char(w->text, '[');
    /* Without elements the lengths before the zero could be huge: stop at the first list. */
    int64_t length = uni_array_count(array) > 0 ? uni_array_shape(array)[dimension] : 0;
    for (int64_t i = 0; i < length && !w->text->failed; i++) {
        if (i > 0)
            uni__text_add_char(w->text, ',');
        write_dimension(w, array, dimension + 1, next);
    }
    uni__text_add_char(w->text, ']');
}

static int write_list(writer *w, const uni_value *list, int depth)
{
    size_t size = uni_list_size(list);
    uni__text_add_char(w->text, '[');
    for (size_t i = 0; i < size; i++) {
        if (i > 0)
            uni__text_add_char(w->text, ',');
        new_line(w, depth + 1);
        UNI_TRY(write_value(w, uni_list_get(list, i), depth + 1));
    }
    if (size > 0)
        new_line(w, depth);
    uni__text_add_char(w->text, ']');
    return 0;
}

static int compare_keys(const void *a, const void *b, void *dict)
{
    return strcmp(uni_dict_key_at(dict, *(const size_t *)a),
                  uni_dict_key_at(dict, *(const size_t *)b));
}

static int write_entry(writer *w, const uni_value *dict, size_t index, bool first, int depth)
{
    const char *key = uni_dict_key_at(dict, index);
    if (!first)
        uni__text_add_char(w->text, ',');
    new_line(w, depth + 1);
    uni__text_add_json_string(w->text, key, strlen(key));
    uni__text_add_string(w->text, w->flags & UNI_JSON_INDENT ? ": " : ":");
    return write_value(w, uni_dict_value_at(dict, index), depth + 1);
}

static int write_dict(writer *w, const uni_value *dict, int depth)
{
    size_t size = uni_dict_size(dict), *order = NULL;
    int status = 0;
    if (w->flags & UNI_JSON_SORT_KEYS) {
        order = malloc((size + 1) * sizeof *order);
        if (!order)
            return uni_error_set(w->err, UNI_ENOMEM, "JSON: out of memory");
        for (size_t i = 0; i < size; i++)
            order[i] = i;
        qsort_r(order, size, sizeof *order, compare_keys, (void *)dict);
    }
    uni__text_add_char(w->text, '{');
    for (size_t i = 0; i < size && status == 0; i++)
        status = write_entry(w, dict, order ? order[i] : i, i == 0, depth);
    if (size > 0)
        new_line(w, depth);
    uni__text_add_char(w->text, '}');
    free(order);
    return status;
}

static void write_bytes(writer *w, const uni_value *value)
{
    size_t size;
    const uint8_t *bytes = uni_value_as_bytes(value, &size);
    uni__text_add_char(w->text, '[');
    for (size_t i = 0; i < size; i++) {
        if (i > 0)
            uni__text_add_char(w->text, ',');
        uni__text_add_int(w->text, bytes[i]);
    }
    uni__text_add_char(w->text, ']');
}

static int write_value(writer *w, const uni_value *value, int depth)
{
    uni_value_type type = uni_value_type_of(value);
    int levels = type == UNI_TYPE_LIST || type == UNI_TYPE_DICT || type == UNI_TYPE_BYTES ? 1
                 : type == UNI_TYPE_ARRAY ? uni_array_ndim(uni_value_as_array(value))
                                          : 0;
    size_t size;
    const char *data;
    if (depth + levels > UNI_VALUE_MAX_DEPTH)
        return uni_error_set(w->err, UNI_ELIMIT, "JSON: the value is nested deeper than %d levels",
                             UNI_VALUE_MAX_DEPTH);
    switch (type) {
    case UNI_TYPE_NULL:
        uni__text_add(w->text, "null", 4);
        break;
    case UNI_TYPE_BOOL:
        uni__text_add_string(w->text, uni_value_as_bool(value, false) ? "true" : "false");
        break;
    case UNI_TYPE_INT:
        uni__text_add_int(w->text, uni_value_as_int(value, 0));
        break;
    case UNI_TYPE_FLOAT:
        write_real(w, uni_value_as_float(value, 0));
        break;
    case UNI_TYPE_STRING:
        data = uni_value_as_bytes(value, &size);
        uni__text_add_json_string(w->text, data, size);
        break;
    case UNI_TYPE_BYTES:
        write_bytes(w, value);
        break;
    case UNI_TYPE_LIST:
        return write_list(w, value, depth);
    case UNI_TYPE_DICT:
        return write_dict(w, value, depth);
    case UNI_TYPE_ARRAY:
        write_dimension(w, uni_value_as_array(value), 0, &(size_t){ 0 });
        break;
    }
    return 0;
}

int uni__json_add(uni__text *text, const uni_value *value, unsigned flags, uni_error *err)
{
    UNI_TRY(write_value(&(writer){ text, flags, err }, value, 0));
    return text->failed ? uni_error_set(err, UNI_ENOMEM, "JSON: no memory for the text") : 0;
}

int uni_json_write(char **out, size_t *length, const uni_value *value, unsigned flags,
                   uni_error *err)
{
    uni__text text = { 0 };
    int status = uni__json_add(&text, value, flags, err);
    *out = NULL;
    if (length)
        *length = 0;
    if (status < 0) {
        uni__text_free(&text);
        return status;
    }
    *out = text.data;
    if (length)
        *length = text.size;
    return 0;
}
