/* name_index.c - open addressing over positions (name_index.h). */
#include "data/table/name_index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *name_at(const char *const *first, size_t stride, size_t place)
{
    return *(const char *const *)((const char *)first + place * stride);
}

/* FNV-1a with the upper half mixed in, because only the lower bits are used. It is seeded with an
 * address, so that an attacker cannot choose names that all collide. */
static size_t hash_of(const uni__name_index *index, const char *name, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uint64_t)(uintptr_t)index->places;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    return (size_t)(hash ^ hash >> 32);
}

static bool is_name(const char *have, const char *name, size_t length)
{
    return strncmp(have, name, length) == 0 && have[length] == 0;
}

static void put(uni__name_index *index, const char *name, size_t place)
{
    size_t at = hash_of(index, name, strlen(name)) & (index->capacity - 1);
    while (index->places[at] != 0)
        at = (at + 1) & (index->capacity - 1);
    index->places[at] = (uint32_t)place + 1;
}

int uni__name_index_find(const uni__name_index *index, const char *const *first, size_t stride,
                         size_t count, const char *name)
{
    return uni__name_index_find_n(index, first, stride, count, name, strlen(name));
}

int uni__name_index_find_n(const uni__name_index *index, const char *const *first, size_t stride,
                           size_t count, const char *name, size_t length)
{
    if (memchr(name, 0, length) != NULL) /* no column name contains a NUL */
        return -1;
    if (index->places == NULL) {
        for (size_t i = 0; i < count; i++)
            if (is_name(name_at(first, stride, i), name, length))
                return (int)i;
        return -1;
    }
    for (size_t at = hash_of(index, name, length) & (index->capacity - 1); index->places[at] != 0;
         at = (at + 1) & (index->capacity - 1)) {
        size_t place = index->places[at] - 1;
        if (is_name(name_at(first, stride, place), name, length))
            return (int)place;
    }
    return -1;
}

int uni__name_index_grow(uni__name_index *index, const char *const *first, size_t stride,
                         size_t count)
{
    if (count <= UNI__NAMES_IN_A_ROW)
        return 0;
    if (index->places != NULL && 2 * count <= index->capacity) {
        put(index, name_at(first, stride, count - 1), count - 1);
        return 0;
    }
    uni__name_index larger = { .capacity = index->capacity > 0 ? 2 * index->capacity
                                                               : 4 * UNI__NAMES_IN_A_ROW };
    larger.places = calloc(larger.capacity, sizeof *larger.places);
    if (larger.places == NULL)
        return UNI_ENOMEM;
    for (size_t i = 0; i < count; i++)
        put(&larger, name_at(first, stride, i), i);
    free(index->places);
    *index = larger;
    return 0;
}

void uni__name_index_free(uni__name_index *index)
{
    free(index->places);
    *index = (uni__name_index){ 0 };
}
