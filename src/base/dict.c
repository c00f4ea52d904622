/*
 * dict.c - dictionaries: an array of entries in insertion order and, from INDEX_FROM entries on, a
 * hash index into it (open addressing, linear probing, at most half full).
 *
 * Configs and metrics have a handful of keys, where comparing hashes in a row is faster than any
 * table. Removal shifts the entries down and rebuilds the index: this keeps the order and is rare.
 * The hash is XXH3 seeded by the dictionary's address, so outsiders cannot choose keys that
 * collide.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/dict.h"
#include "base/text.h"
#include "base/value_internal.h"

#define INDEX_FROM 12
#define MAX_ENTRIES (UINT32_MAX / 8)
#define NOT_FOUND UINT32_MAX

uni_value *uni_value_dict(void)
{
    uni_value *dict = calloc(1, sizeof *dict);
    if (dict)
        dict->type = UNI_TYPE_DICT;
    return dict;
}

int uni__dict_add(uni_value *dict, const uni__pair *pairs)
{
    int status = 0;
    for (; pairs->key; pairs++)
        status |= uni_dict_take(dict, pairs->key, pairs->value);
    return status;
}

uni_value *uni__dict_of(const uni__pair *pairs)
{
    uni_value *dict = uni_value_dict();
    if (uni__dict_add(dict, pairs) == 0)
        return dict;
    uni_value_free(dict);
    return NULL;
}

static uint64_t hash_key(const uni_value *dict, const char *key, size_t length)
{
    return XXH3_64bits_withSeed(key, length, (uint64_t)(uintptr_t)dict);
}

static uint32_t find(const uni_value *dict, const char *key, uint64_t hash)
{
    const dict_entry *entries = dict->u.dict.entries;
    if (!dict->u.dict.index) {
        for (uint32_t i = 0; i < dict->u.dict.size; i++)
            if (entries[i].hash == hash && strcmp(entries[i].key, key) == 0)
                return i;
        return NOT_FOUND;
    }
    uint32_t mask = dict->u.dict.index_size - 1;
    for (uint32_t cell = (uint32_t)hash & mask;; cell = (cell + 1) & mask) {
        uint32_t number = dict->u.dict.index[cell];
        if (number == 0)
            return NOT_FOUND;
        if (entries[number - 1].hash == hash && strcmp(entries[number - 1].key, key) == 0)
            return number - 1;
    }
}

static void index_entry(uni_value *dict, uint32_t number)
{
    uint32_t mask = dict->u.dict.index_size - 1;
    uint32_t cell = (uint32_t)dict->u.dict.entries[number].hash & mask;
    while (dict->u.dict.index[cell] != 0)
        cell = (cell + 1) & mask;
    dict->u.dict.index[cell] = number + 1;
}

static void index_all(uni_value *dict)
{
    memset(dict->u.dict.index, 0, dict->u.dict.index_size * sizeof *dict->u.dict.index);
    for (uint32_t i = 0; i < dict->u.dict.size; i++)
        index_entry(dict, i);
}

/* Makes room for one more entry, in the array and in the index. */
static int make_room(uni_value *dict)
{
    if (dict->u.dict.size < dict->u.dict.capacity)
        return 0;
    if (dict->u.dict.size >= MAX_ENTRIES)
        return UNI_ELIMIT;
    uint32_t capacity = dict->u.dict.capacity ? 2 * dict->u.dict.capacity : 4;
    dict_entry *entries = reallocarray(dict->u.dict.entries, capacity, sizeof *entries);
    if (!entries)
        return UNI_ENOMEM;
    dict->u.dict.entries = entries;
    if (capacity > INDEX_FROM) {
        uint32_t *index = reallocarray(dict->u.dict.index, 2 * (size_t)capacity, sizeof *index);
        if (!index) /* capacity is unchanged: the next call retries */
            return UNI_ENOMEM;
        dict->u.dict.index = index;
        dict->u.dict.index_size = 2 * capacity;
        index_all(dict);
    }
    dict->u.dict.capacity = capacity;
    return 0;
}

int uni_dict_take(uni_value *dict, const char *key, uni_value *value)
{
    int status = UNI_ENOMEM;
    char *copy = NULL;
    if (!dict || !value)
        goto fail;
    status = UNI_EINVAL;
    size_t length = key ? strlen(key) : 0;
    if (dict->type != UNI_TYPE_DICT || dict == value || !key || !uni__utf8_valid(key, length))
        goto fail;
    uint64_t hash = hash_key(dict, key, length);
    uint32_t found = find(dict, key, hash);
    if (found != NOT_FOUND) {
        uni_value *old = dict->u.dict.entries[found].value;
        if (old != value)
            uni_value_free(old);
        dict->u.dict.entries[found].value = value;
        return 0;
    }
    UNI_TRY_GOTO(make_room(dict), fail);
    copy = malloc(length + 1);
    status = UNI_ENOMEM;
    if (!copy)
        goto fail;
    memcpy(copy, key, length + 1);
    dict->u.dict.entries[dict->u.dict.size++] = (dict_entry){ copy, hash, value };
    if (dict->u.dict.index)
        index_entry(dict, dict->u.dict.size - 1);
    return 0;
fail:
    if (value != dict)
        uni_value_free(value);
    return status;
}

void uni_dict_remove(uni_value *dict, const char *key)
{
    if (uni_value_type_of(dict) != UNI_TYPE_DICT || !key)
        return;
    uint32_t found = find(dict, key, hash_key(dict, key, strlen(key)));
    if (found == NOT_FOUND)
        return;
    dict_entry *entries = dict->u.dict.entries;
    free(entries[found].key);
    uni_value_free(entries[found].value);
    memmove(entries + found, entries + found + 1,
            (dict->u.dict.size - found - 1) * sizeof *entries);
    dict->u.dict.size--;
    if (dict->u.dict.index)
        index_all(dict);
}

size_t uni_dict_size(const uni_value *dict)
{
    return uni_value_type_of(dict) == UNI_TYPE_DICT ? dict->u.dict.size : 0;
}

const uni_value *uni_dict_get(const uni_value *dict, const char *key)
{
    if (uni_dict_size(dict) == 0 || !key)
        return NULL;
    uint32_t found = find(dict, key, hash_key(dict, key, strlen(key)));
    return found == NOT_FOUND ? NULL : dict->u.dict.entries[found].value;
}

const char *uni_dict_key_at(const uni_value *dict, size_t index)
{
    return index < uni_dict_size(dict) ? dict->u.dict.entries[index].key : NULL;
}

const uni_value *uni_dict_value_at(const uni_value *dict, size_t index)
{
    return index < uni_dict_size(dict) ? dict->u.dict.entries[index].value : NULL;
}

/* The item that the first `length` bytes of path name in a container; NULL when there is none. */
static const uni_value *step_into(const uni_value *value, const char *path, size_t length)
{
    if (uni_value_type_of(value) == UNI_TYPE_LIST) {
        size_t index = 0;
        for (size_t i = 0; i < length; i++) {
            if (path[i] < '0' || path[i] > '9' || index > UINT32_MAX)
                return NULL;
            index = 10 * index + (size_t)(path[i] - '0');
        }
        return length > 0 ? uni_list_get(value, index) : NULL;
    }
    for (size_t i = 0; i < uni_dict_size(value); i++) {
        const char *key = value->u.dict.entries[i].key;
        if (strncmp(key, path, length) == 0 && key[length] == 0)
            return value->u.dict.entries[i].value;
    }
    return NULL;
}

/* Keys may contain dots ("val.loss"), so a dot is tried first as a step and then as part of the
 * key. The search ends quickly, because only existing keys are followed. */
static const uni_value *follow(const uni_value *value, const char *path, int depth)
{
    for (const char *dot = path; depth > 0; dot++) {
        dot += strcspn(dot, ".");
        const uni_value *item = step_into(value, path, (size_t)(dot - path));
        if (*dot == 0)
            return item;
        const uni_value *found = item ? follow(item, dot + 1, depth - 1) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

const uni_value *uni_value_path(const uni_value *value, const char *dotted_path)
{
    return dotted_path ? follow(value, dotted_path, 2 * UNI_VALUE_MAX_DEPTH) : NULL;
}
