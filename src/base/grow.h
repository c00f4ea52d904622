/* grow.h - lists that double when they are full. */
#ifndef UNISONO_BASE_GROW_H
#define UNISONO_BASE_GROW_H

#include <stdlib.h>

/* The list with room for one more item of `size` bytes: `items` itself, or a larger copy in its
 * place. NULL if there is no memory; the list is then as before. */
static inline void *uni__grown(void *items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    size_t more = *capacity ? *capacity * 2 : 4;
    void *grown = reallocarray(items, more, size);
    if (grown)
        *capacity = more;
    return grown;
}

#endif
