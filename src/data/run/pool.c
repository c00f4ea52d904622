/*
 * pool.c - size classes, free lists, counters. One mutex guards the lists; it is taken once per
 * buffer of a block, a few hundred times a second.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "data/run/pool.h"

#define HEADER 64 /* precedes each buffer; also its alignment */
#define SLACK 64
#define SMALLEST_SHIFT 8 /* a block of a thousand columns has many small buffers */
#define NUM_CLASSES (4 * 40)

struct header {
    uni__pool *pool;
    struct header *next;
    size_t size; /* includes the header */
    int size_class;
};

struct uni__pool {
    pthread_mutex_t lock;
    atomic_size_t references;
    size_t budget, used, held, peak;
    struct header *lists[NUM_CLASSES];
};

int uni__pool_new(uni__pool **out, size_t budget, uni_error *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a pool of buffers");
    pthread_mutex_init(&(*out)->lock, NULL);
    atomic_init(&(*out)->references, 1);
    (*out)->budget = budget;
    return 0;
}

/* The class of a size, and that class's size: 256 * {4, 5, 6, 7} / 4 * 2^k. */
static int class_of(size_t size, size_t *class_size)
{
    int shift = SMALLEST_SHIFT;
    while (shift < 47 && ((size_t)1 << (shift + 1)) < size)
        shift++;
    size_t base = (size_t)1 << shift, step = base / 4;
    int quarter = size <= base ? 0 : (int)((size - base + step - 1) / step);
    *class_size = base + (size_t)quarter * step;
    return 4 * (shift - SMALLEST_SHIFT) + quarter;
}

static void empty_lists(uni__pool *pool)
{
    for (int i = 0; i < NUM_CLASSES; i++) {
        while (pool->lists[i] != NULL) {
            struct header *header = pool->lists[i];
            pool->lists[i] = header->next;
            pool->held -= header->size;
            free(header);
        }
    }
}

void uni__pool_unref(uni__pool *pool)
{
    if (pool == NULL || atomic_fetch_sub(&pool->references, 1) > 1)
        return;
    empty_lists(pool);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void *uni__pool_get(uni__pool *pool, size_t size)
{
    size_t class_size;
    if (size > ((size_t)1 << 46))
        return NULL;
    int size_class = class_of(size + HEADER + SLACK, &class_size);
    pthread_mutex_lock(&pool->lock);
    struct header *header = pool->lists[size_class];
    if (header != NULL) {
        pool->lists[size_class] = header->next;
    } else {
        if (pool->held + class_size > pool->budget)
            empty_lists(pool);
        header = aligned_alloc(HEADER, class_size);
        if (header != NULL) {
            pool->held += class_size;
            pool->peak = pool->held > pool->peak ? pool->held : pool->peak;
            header->pool = pool;
            header->size = class_size;
            header->size_class = size_class;
        }
    }
    if (header != NULL) {
        pool->used += class_size;
        atomic_fetch_add(&pool->references, 1);
    }
    pthread_mutex_unlock(&pool->lock);
    return header != NULL ? (char *)header + HEADER : NULL;
}

void uni__pool_put(void *memory)
{
    if (memory == NULL)
        return;
    struct header *header = (struct header *)(void *)((char *)memory - HEADER);
    uni__pool *pool = header->pool;
    pthread_mutex_lock(&pool->lock);
    pool->used -= header->size;
    bool keep = pool->held <= pool->budget;
    if (keep) {
        header->next = pool->lists[header->size_class];
        pool->lists[header->size_class] = header;
    } else {
        pool->held -= header->size;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!keep)
        free(header);
    uni__pool_unref(pool);
}

static size_t read_locked(const uni__pool *pool, const size_t *count)
{
    uni__pool *open = (uni__pool *)pool;
    pthread_mutex_lock(&open->lock);
    size_t now = *count;
    pthread_mutex_unlock(&open->lock);
    return now;
}

size_t uni__pool_used(const uni__pool *pool)
{
    return read_locked(pool, &pool->used);
}

size_t uni__pool_peak(const uni__pool *pool)
{
    return read_locked(pool, &pool->peak);
}
