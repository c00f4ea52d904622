/*
 * region.h - memory that a worker wrote a checkpoint into, shared by reference by what still reads
 * it: the worker's own slot, the persist thread, the tuner's keeper, a transfer between hosts. The
 * last one unmaps it. Any thread.
 */
#ifndef UNISONO_GROUP_REGION_H
#define UNISONO_GROUP_REGION_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct uni__region {
    _Atomic int references;
    void *memory;
    size_t size;
} uni__region;

/* Maps memory that a worker passed on, to read it. NULL when it cannot be mapped or is not sealed
 * against shrinking: a worker that shortened it would make us fault. */
uni__region *uni__region_map(int fd);
/* Zeros, for what comes from another host piece by piece; NULL without memory. */
uni__region *uni__region_new(uint64_t size);
uni__region *uni__region_ref(uni__region *region); /* NULL is allowed, here and below */
void uni__region_unref(uni__region *region);

#endif
