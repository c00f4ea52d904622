/*
 * pool.h - recycled memory of one iterator: the budget of bytes, and the readers that use it.
 *
 * Buffers come in size classes (four per power of two) and go back to a list when their array's last reference goes, from whatever thread;
 * a fresh page costs the kernel ten times what it costs to use a warm one again. `used` counts what is out, `held` also what waits on
 * the lists; lists are emptied before `held` would pass the budget. The budget itself is kept by the executor, which starts no work that would
 * not fit; the pool never refuses. A pool lives until its owner and all its buffers are gone.
 */
#ifndef UNISONO_DATA_POOL_H
#define UNISONO_DATA_POOL_H

#include <stdatomic.h>
#include "data/source.h"

typedef struct uni__pool uni__pool;

int uni__pool_new(uni__pool **out, size_t budget, uni_error *err) UNI_MUST_USE;
void uni__pool_unref(uni__pool *pool);
/* 64-byte aligned, 64 bytes more than asked for can be read; not zeroed. NULL without memory. */
void *uni__pool_get(uni__pool *pool, size_t size);
void uni__pool_put(void *memory);
size_t uni__pool_used(const uni__pool *pool);
size_t uni__pool_peak(const uni__pool *pool); /* of held */

/* Bad rows of one iterator, counted by all its readers. */
typedef struct uni__bad {
    bool skip;
    int64_t limit; /* 0: none */
    atomic_llong skipped;
} uni__bad;

/* pool and bad are borrowed and must live longer. */
int uni__reader_of(uni__reader **out, uni__pool *pool, uni__bad *bad, uni_error *err) UNI_MUST_USE;
/* What uni__reader_is_wanted looks at; borrowed. */
void uni__reader_watch(uni__reader *reader, const atomic_int *cancelled);

#endif
