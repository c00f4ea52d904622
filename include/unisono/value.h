/*
 * value.h - dictionaries: configs, metrics, results and the tree of a checkpoint.
 *
 * A uni_value is null, bool, 64-bit int, double, UTF-8 string, bytes, list, dictionary or array. A
 * tree has one owner; dictionaries keep the order in which keys were first set. Containers own what
 * is put into them. The `_take` functions accept a NULL child and then return UNI_ENOMEM, so
 * constructors can be nested without checking each one; on any failure they free the child, so
 * nesting never leaks.
 *
 * Thread rule: a tree belongs to one thread at a time; reading it from several is fine.
 *
 * @example
 * uni_value *config = uni_value_dict();
 * if (uni_dict_take(config, "lr", uni_value_float(1e-3)) < 0 ||
 *     uni_dict_take(config, "epochs", uni_value_int(3)) < 0)
 *     return uni_error_set(err, UNI_ENOMEM, "no memory for the config");
 * double lr = uni_dict_get_float(config, "lr", 0.01);
 * uni_value_free(config);
 * return lr > 0 ? 0 : UNI_EINVAL;
 * @end
 */
#ifndef UNISONO_VALUE_H
#define UNISONO_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unisono/array.h>
#include <unisono/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_value uni_value;

typedef enum uni_value_type {
    UNI_TYPE_NULL = 0,
    UNI_TYPE_BOOL,
    UNI_TYPE_INT,
    UNI_TYPE_FLOAT,
    UNI_TYPE_STRING,
    UNI_TYPE_BYTES,
    UNI_TYPE_LIST,
    UNI_TYPE_DICT,
    UNI_TYPE_ARRAY
} uni_value_type;

/* Every writer and reader rejects deeper trees (UNI_ELIMIT). */
#define UNI_VALUE_MAX_DEPTH 30

/* Constructors; NULL if out of memory. */
UNI_API uni_value *uni_value_null(void);
UNI_API uni_value *uni_value_bool(bool value);
UNI_API uni_value *uni_value_int(int64_t value);
UNI_API uni_value *uni_value_float(double value);
UNI_API uni_value *uni_value_string_n(const char *text, size_t length); /* copies */
static inline uni_value *uni_value_string(const char *text) /* copies; NULL text gives NULL */
{
    return text ? uni_value_string_n(text, strlen(text)) : NULL;
}
UNI_API uni_value *uni_value_bytes(const void *data, size_t size); /* copies */
UNI_API uni_value *uni_value_list(void);
UNI_API uni_value *uni_value_dict(void);
UNI_API uni_value *uni_value_array(uni_array *array); /* takes one reference of its own */
UNI_API uni_value *uni_value_copy(const uni_value *value); /* deep, but arrays share their buffer */
UNI_API void uni_value_free(uni_value *value);

UNI_API uni_value_type uni_value_type_of(const uni_value *value); /* NULL is UNI_TYPE_NULL */
/* NaN equals NaN; 1 differs from 1.0; the order of keys does not matter. */
UNI_API bool uni_value_equal(const uni_value *a, const uni_value *b);

/* Readers: the value if it has that type, otherwise the fallback. as_float accepts int and bool,
 * as_int accepts an integral float. */
UNI_API bool uni_value_as_bool(const uni_value *value, bool fallback);
UNI_API int64_t uni_value_as_int(const uni_value *value, int64_t fallback);
UNI_API double uni_value_as_float(const uni_value *value, double fallback);
UNI_API const char *uni_value_as_string(const uni_value *value, const char *fallback);
UNI_API const void *uni_value_as_bytes(const uni_value *value, size_t *size); /* also strings */
UNI_API uni_array *uni_value_as_array(const uni_value *value); /* borrowed; NULL if none */
static inline bool uni_value_is_number(const uni_value *value) /* bool, int or float */
{
    uni_value_type type = uni_value_type_of(value);
    return type == UNI_TYPE_BOOL || type == UNI_TYPE_INT || type == UNI_TYPE_FLOAT;
}

/* Lists. */
UNI_API size_t uni_list_size(const uni_value *list); /* 0 when not a list */
/* NULL when out of range. */
UNI_API const uni_value *uni_list_get(const uni_value *list, size_t index);
UNI_API UNI_MUST_USE int uni_list_take(uni_value *list, uni_value *item); /* appends */

/* Dictionaries. Keys are UTF-8 (others are UNI_EINVAL). */
UNI_API size_t uni_dict_size(const uni_value *dict);
/* NULL when missing. */
UNI_API const uni_value *uni_dict_get(const uni_value *dict, const char *key);
/* In the order in which keys were first set; borrowed, NULL when out of range. */
UNI_API const char *uni_dict_key_at(const uni_value *dict, size_t index);
UNI_API const uni_value *uni_dict_value_at(const uni_value *dict, size_t index);
/* Sets or replaces. */
UNI_API UNI_MUST_USE int uni_dict_take(uni_value *dict, const char *key, uni_value *value);
/* Frees the value; a missing key is not an error. */
UNI_API void uni_dict_remove(uni_value *dict, const char *key);
/* Short forms of as_*(get(...)). */
static inline bool uni_dict_get_bool(const uni_value *dict, const char *key, bool fallback)
{
    return uni_value_as_bool(uni_dict_get(dict, key), fallback);
}
static inline int64_t uni_dict_get_int(const uni_value *dict, const char *key, int64_t fallback)
{
    return uni_value_as_int(uni_dict_get(dict, key), fallback);
}
static inline double uni_dict_get_float(const uni_value *dict, const char *key, double fallback)
{
    return uni_value_as_float(uni_dict_get(dict, key), fallback);
}
static inline const char *uni_dict_get_string(const uni_value *dict, const char *key,
                                              const char *fallback)
{
    return uni_value_as_string(uni_dict_get(dict, key), fallback);
}
/* Follows "a.b.c" through nested dictionaries (and list indices as numbers). A key that itself
 * contains dots is found too, if no nested path of that name exists. */
UNI_API const uni_value *uni_value_path(const uni_value *value, const char *dotted_path);

/* JSON. Reading is strict (UTF-8, no duplicate keys, depth limit, 64 MiB); numbers without '.'
 * or exponent are ints, and those that do not fit into 64 bits are rejected. Writing: NaN and
 * infinities become null (use uni_json_write with UNI_JSON_NONFINITE to get NaN, Infinity and
 * -Infinity as Python's json does); bytes become a list of numbers, arrays nested lists by their
 * shape. Text is malloc'ed and zero-terminated; the caller frees it. */
enum {
    UNI_JSON_INDENT = 1, /* 2 spaces per level */
    UNI_JSON_NONFINITE = 2, /* NaN, Infinity, -Infinity */
    UNI_JSON_SORT_KEYS = 4
};
UNI_API UNI_MUST_USE int uni_json_read(uni_value **out, const char *text, size_t length,
                                       uni_error *err);
UNI_API UNI_MUST_USE int uni_json_read_file(uni_value **out, const char *path, uni_error *err);
UNI_API UNI_MUST_USE int uni_json_write(char **out, size_t *length, const uni_value *value,
                                        unsigned flags, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
