/*
 * name_index.h - finds a name among many in constant time. Tables are created for every batch, and
 * an image in a CSV file has 784 columns: comparing all pairs of names would take milliseconds. Up
 * to UNI__NAMES_IN_A_ROW names are compared linearly, without any allocation.
 *
 * The names stay where they are, `stride` bytes apart; the index holds positions only. One thread
 * fills it; then any thread may read.
 */
#ifndef UNISONO_DATA_NAME_INDEX_H
#define UNISONO_DATA_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#define UNI__NAMES_IN_A_ROW 16

typedef struct uni__name_index {
    uint32_t *places; /* position + 1; 0: free. NULL: few names */
    size_t capacity; /* a power of two, at least twice the number of names */
} uni__name_index;

/* Position of `name` among the first `count` names, or -1. */
int uni__name_index_find(const uni__name_index *index, const char *const *first, size_t stride,
                         size_t count, const char *name);

/* The same for a name that is not NUL-terminated. */
int uni__name_index_find_n(const uni__name_index *index, const char *const *first, size_t stride,
                           size_t count, const char *name, size_t length);

/* Call after adding each name; `count` includes it. Returns 0 or UNI_ENOMEM. */
int uni__name_index_grow(uni__name_index *index, const char *const *first, size_t stride,
                         size_t count) UNI_MUST_USE;

void uni__name_index_free(uni__name_index *index);

#endif
