/*
 * pool.h - recycled memory of one iterator: its memory budget, and the readers that use it.
 *
 * Buffers come in size classes, four per power of two. When an array's last reference goes, on any
 * thread, its buffer returns to a free list: a fresh page costs the kernel ten times as much as
 * reusing a warm one. `used` counts buffers in use, `held` also those on the lists; the lists are
 * emptied before `held` exceeds the budget. The executor enforces the budget by starting no work
 * that would not fit; the pool itself never refuses. A pool lives until its owner and all its
 * buffers are gone.
 */
#ifndef UNISONO_DATA_POOL_H
#define UNISONO_DATA_POOL_H

#include <stdatomic.h>
#include "data/sources/source.h"

typedef struct uni__pool uni__pool;

int uni__pool_new(uni__pool **out, size_t budget, uni_error *err) UNI_MUST_USE;
void uni__pool_unref(uni__pool *pool);
/* 64-byte aligned, not zeroed; 64 bytes past the end are readable. NULL if out of memory. */
void *uni__pool_get(uni__pool *pool, size_t size);
void uni__pool_put(void *memory);
size_t uni__pool_used(const uni__pool *pool);
size_t uni__pool_peak(const uni__pool *pool); /* peak of held */

/* Bad rows of one iterator, counted over all its readers. */
typedef struct uni__bad {
    bool skip;
    int64_t limit; /* 0: no limit */
    atomic_llong skipped;
} uni__bad;

/* Borrows pool and bad, which must outlive the reader. */
int uni__reader_of(uni__reader **out, uni__pool *pool, uni__bad *bad, uni_error *err) UNI_MUST_USE;
/* Sets the flag that uni__reader_is_wanted checks; borrowed. */
void uni__reader_watch(uni__reader *reader, const atomic_int *cancelled);

#endif
