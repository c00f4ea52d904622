/* value_internal.h - the memory of a value, for value.c and dict.c of this module only. */
#ifndef UNISONO_BASE_VALUE_INTERNAL_H
#define UNISONO_BASE_VALUE_INTERNAL_H

#include <unisono/value.h>

typedef struct dict_entry {
    char *key;
    uint64_t hash;
    uni_value *value;
} dict_entry;

struct uni_value {
    uni_value_type type;
    union {
        int64_t integer; /* bool and int */
        double real;
        struct {
            char *data; /* zero-terminated, right after the value */
            size_t size;
        } text;
        struct {
            uni_value **items;
            size_t size, capacity;
        } list;
        struct {
            dict_entry *entries; /* in the order of insertion */
            uint32_t size, capacity;
            /* index_size cells with entry number + 1, or 0; NULL while small. */
            uint32_t *index;
            uint32_t index_size;
        } dict;
        uni_array *array;
    } u;
    uni_value *next; /* only while it waits to be freed */
};

#endif
