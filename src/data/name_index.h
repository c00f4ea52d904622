/*
 * name_index.h - finds a name among many in one step. Tables are made for every batch, and a picture in a CSV file has 784 columns: comparing
 * each name with each is milliseconds then. Up to UNI__NAMES_IN_A_ROW names are compared one after the other, and nothing is allocated.
 *
 * The names stay where they are, `stride` bytes apart from the first; the index holds places only. Filled by one thread, then any.
 */
#ifndef UNISONO_DATA_NAME_INDEX_H
#define UNISONO_DATA_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#define UNI__NAMES_IN_A_ROW 16

typedef struct uni__name_index {
    uint32_t *places; /* place + 1, 0 is free; NULL: few names */
    size_t capacity; /* a power of two, at least twice the names */
} uni__name_index;

/* The place of `name` among the first `count`, or -1. */
int uni__name_index_find(const uni__name_index *index, const char *const *first, size_t stride,
                         size_t count, const char *name);

/* The same of a name that does not end with a zero. */
int uni__name_index_find_n(const uni__name_index *index, const char *const *first, size_t stride,
                           size_t count, const char *name, size_t length);

/* To be called after each name that is added; `count` includes it. UNI_ENOMEM, or 0. */
int uni__name_index_grow(uni__name_index *index, const char *const *first, size_t stride,
                         size_t count) UNI_MUST_USE;

void uni__name_index_free(uni__name_index *index);

#endif
