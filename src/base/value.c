/*
 * value.c - the tree: scalars, strings, lists, and what all types have in common. Dictionaries are
 * in dict.c.
 *
 * A value is one allocation of 40 bytes (a string or bytes value has its contents right after it).
 * Freeing does not recurse: a container that waits to be freed is linked through its own `next`, so
 * a tree of any depth is freed in constant stack space. Copying and comparing recurse and stop at
 * WALK_DEPTH, far beyond what can be written or read. A tree belongs to one thread at a time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/shared.h"
#include "base/value_internal.h"

#define WALK_DEPTH 1000

static uni_value *new_value(uni_value_type type, size_t extra)
{
    uni_value *value = calloc(1, sizeof *value + extra);
    if (value)
        value->type = type;
    return value;
}

uni_value *uni_value_null(void)
{
    return new_value(UNI_TYPE_NULL, 0);
}

uni_value *uni_value_bool(bool boolean)
{
    uni_value *value = new_value(UNI_TYPE_BOOL, 0);
    if (value)
        value->u.integer = boolean;
    return value;
}

uni_value *uni_value_int(int64_t integer)
{
    uni_value *value = new_value(UNI_TYPE_INT, 0);
    if (value)
        value->u.integer = integer;
    return value;
}

uni_value *uni_value_float(double real)
{
    uni_value *value = new_value(UNI_TYPE_FLOAT, 0);
    if (value)
        value->u.real = real;
    return value;
}

static uni_value *new_text(uni_value_type type, const void *data, size_t size)
{
    if (size > PTRDIFF_MAX / 2 || (!data && size > 0))
        return NULL;
    uni_value *value = new_value(type, size + 1);
    if (!value)
        return NULL;
    value->u.text.data = (char *)(value + 1);
    value->u.text.size = size;
    if (size > 0)
        memcpy(value->u.text.data, data, size);
    return value;
}

uni_value *uni_value_string_n(const char *text, size_t length)
{
    return new_text(UNI_TYPE_STRING, text, length);
}

uni_value *uni_value_bytes(const void *data, size_t size)
{
    return new_text(UNI_TYPE_BYTES, data, size);
}

uni_value *uni_value_list(void)
{
    return new_value(UNI_TYPE_LIST, 0);
}

uni_value *uni_value_array(uni_array *array)
{
    uni_value *value = array ? new_value(UNI_TYPE_ARRAY, 0) : NULL;
    if (value)
        value->u.array = uni_array_ref(array);
    return value;
}

/* Frees a value without remaining children; queues containers instead. */
static void free_or_queue(uni_value *value, uni_value **queue)
{
    if (!value)
        return;
    if (value->type == UNI_TYPE_LIST || value->type == UNI_TYPE_DICT) {
        value->next = *queue;
        *queue = value;
        return;
    }
    if (value->type == UNI_TYPE_ARRAY)
        uni_array_unref(value->u.array);
    free(value);
}

void uni_value_free(uni_value *root)
{
    uni_value *queue = NULL;
    free_or_queue(root, &queue);
    while (queue) {
        uni_value *value = queue;
        queue = value->next;
        if (value->type == UNI_TYPE_LIST) {
            for (size_t i = 0; i < value->u.list.size; i++)
                free_or_queue(value->u.list.items[i], &queue);
            free(value->u.list.items);
        } else {
            for (size_t i = 0; i < value->u.dict.size; i++) {
                free(value->u.dict.entries[i].key);
                free_or_queue(value->u.dict.entries[i].value, &queue);
            }
            free(value->u.dict.entries);
            free(value->u.dict.index);
        }
        free(value);
    }
}

static uni_value *copy(const uni_value *value, int depth)
{
    if (depth > WALK_DEPTH)
        return NULL;
    uni_value *out = NULL;
    switch (uni_value_type_of(value)) {
    case UNI_TYPE_NULL:
        return uni_value_null();
    case UNI_TYPE_STRING:
    case UNI_TYPE_BYTES:
        return new_text(value->type, value->u.text.data, value->u.text.size);
    case UNI_TYPE_ARRAY:
        return uni_value_array(value->u.array);
    case UNI_TYPE_LIST:
        out = uni_value_list();
        for (size_t i = 0; out && i < value->u.list.size; i++)
            if (uni_list_take(out, copy(value->u.list.items[i], depth + 1)) < 0)
                goto fail;
        return out;
    case UNI_TYPE_DICT:
        out = uni_value_dict();
        for (size_t i = 0; out && i < value->u.dict.size; i++)
            if (uni_dict_take(out, value->u.dict.entries[i].key,
                              copy(value->u.dict.entries[i].value, depth + 1)) < 0)
                goto fail;
        return out;
    default:
        out = new_value(value->type, 0);
        if (out)
            out->u = value->u;
        return out;
    }
fail:
    uni_value_free(out);
    return NULL;
}

uni_value *uni_value_copy(const uni_value *value)
{
    return value ? copy(value, 0) : NULL;
}

uni_value_type uni_value_type_of(const uni_value *value)
{
    return value ? value->type : UNI_TYPE_NULL;
}

const char *uni__value_type_name(uni_value_type type)
{
    static const char *const names[] = { "null",  "boolean", "whole number", "number", "string",
                                         "bytes", "list",    "dictionary",   "array" };
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "?";
}

static bool equal(const uni_value *a, const uni_value *b, int depth)
{
    if (uni_value_type_of(a) != uni_value_type_of(b) || depth > WALK_DEPTH)
        return false;
    switch (uni_value_type_of(a)) {
    case UNI_TYPE_NULL:
        return true;
    case UNI_TYPE_BOOL:
    case UNI_TYPE_INT:
        return a->u.integer == b->u.integer;
    case UNI_TYPE_FLOAT:
        return a->u.real == b->u.real || (isnan(a->u.real) && isnan(b->u.real));
    case UNI_TYPE_STRING:
    case UNI_TYPE_BYTES:
        return a->u.text.size == b->u.text.size &&
               memcmp(a->u.text.data, b->u.text.data, a->u.text.size) == 0;
    case UNI_TYPE_LIST:
        if (a->u.list.size != b->u.list.size)
            return false;
        for (size_t i = 0; i < a->u.list.size; i++)
            if (!equal(a->u.list.items[i], b->u.list.items[i], depth + 1))
                return false;
        return true;
    case UNI_TYPE_DICT: /* the order of keys does not matter */
        if (a->u.dict.size != b->u.dict.size)
            return false;
        for (size_t i = 0; i < a->u.dict.size; i++) {
            const uni_value *other = uni_dict_get(b, a->u.dict.entries[i].key);
            if (!other || !equal(a->u.dict.entries[i].value, other, depth + 1))
                return false;
        }
        return true;
    case UNI_TYPE_ARRAY:
        return uni__array_equal(a->u.array, b->u.array);
    }
    return false;
}

bool uni_value_equal(const uni_value *a, const uni_value *b)
{
    return equal(a, b, 0);
}

bool uni_value_as_bool(const uni_value *value, bool fallback)
{
    return uni_value_type_of(value) == UNI_TYPE_BOOL ? value->u.integer != 0 : fallback;
}

int64_t uni_value_as_int(const uni_value *value, int64_t fallback)
{
    if (uni_value_type_of(value) == UNI_TYPE_INT)
        return value->u.integer;
    if (uni_value_type_of(value) == UNI_TYPE_FLOAT) {
        double real = value->u.real;
        if (real >= -0x1p63 && real < 0x1p63 && real == trunc(real))
            return (int64_t)real;
    }
    return fallback;
}

double uni_value_as_float(const uni_value *value, double fallback)
{
    switch (uni_value_type_of(value)) {
    case UNI_TYPE_FLOAT:
        return value->u.real;
    case UNI_TYPE_INT:
    case UNI_TYPE_BOOL:
        return (double)value->u.integer;
    default:
        return fallback;
    }
}

const char *uni_value_as_string(const uni_value *value, const char *fallback)
{
    return uni_value_type_of(value) == UNI_TYPE_STRING ? value->u.text.data : fallback;
}

const void *uni_value_as_bytes(const uni_value *value, size_t *size)
{
    uni_value_type type = uni_value_type_of(value);
    bool fits = type == UNI_TYPE_STRING || type == UNI_TYPE_BYTES;
    if (size)
        *size = fits ? value->u.text.size : 0;
    return fits ? value->u.text.data : NULL;
}

uni_array *uni_value_as_array(const uni_value *value)
{
    return uni_value_type_of(value) == UNI_TYPE_ARRAY ? value->u.array : NULL;
}

size_t uni_list_size(const uni_value *list)
{
    return uni_value_type_of(list) == UNI_TYPE_LIST ? list->u.list.size : 0;
}

const uni_value *uni_list_get(const uni_value *list, size_t index)
{
    return index < uni_list_size(list) ? list->u.list.items[index] : NULL;
}

int uni_list_take(uni_value *list, uni_value *item)
{
    int status = UNI_ENOMEM;
    if (!item || !list) /* a constructor ran out of memory */
        goto fail;
    status = UNI_EINVAL;
    if (list->type != UNI_TYPE_LIST || list == item)
        goto fail;
    if (list->u.list.size == list->u.list.capacity) {
        size_t capacity = list->u.list.capacity ? 2 * list->u.list.capacity : 4;
        uni_value **items = reallocarray(list->u.list.items, capacity, sizeof *items);
        status = UNI_ENOMEM;
        if (!items)
            goto fail;
        list->u.list.items = items;
        list->u.list.capacity = capacity;
    }
    list->u.list.items[list->u.list.size++] = item;
    return 0;
fail:
    if (item != list)
        uni_value_free(item);
    return status;
}
