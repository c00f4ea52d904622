/*
 * arena.c - the memory of a step: bump allocation that is reset all at once, and reuse of blocks
 * released within the step.
 *
 * Released blocks are kept in address order and merged with free neighbors. An allocation takes the
 * smallest block that fits; a block that ends at the bump pointer returns to it. Every step
 * allocates the same sizes in the same order, so it gets the same addresses. Only tens of blocks
 * are free at a time, so a linear search is enough. When a step needed more than one chunk, the
 * next reset replaces them by a single one, so that a steady state neither allocates nor jumps
 * between chunks. Called by the tape's thread.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "tensor/internal.h"

/* Under AddressSanitizer unallocated memory is poisoned: free memory, released blocks, the rounding
 * at the end. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define CLOSE(memory, size) __asan_poison_memory_region(memory, size)
#define OPEN(memory, size) __asan_unpoison_memory_region(memory, size)
#else
#define CLOSE(memory, size) ((void)(memory), (void)(size))
#define OPEN(memory, size) ((void)(memory), (void)(size))
#endif

#define FIRST_CHUNK ((size_t)1 << 18)
/* Blocks released beyond this number are lost until the next step. */
#define MAX_FREE 256
/* Smaller blocks are not worth the search. */
#define SMALLEST_REUSED 1024

typedef struct chunk {
    struct chunk *previous;
    size_t size, used;
} chunk;

typedef struct block {
    char *begin;
    size_t size;
} block;

struct uni__arena {
    chunk *current;
    size_t total;
    block free[MAX_FREE]; /* in address order; no two are adjacent */
    int num_free;
};

static size_t round_up(size_t size)
{
    return (size + UNI__ALIGN - 1) & ~(size_t)(UNI__ALIGN - 1);
}

static bool add_chunk(uni__arena *arena, size_t size)
{
    size = (size + UNI__ALIGN + 0xffff) & ~(size_t)0xffff;
    chunk *fresh = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        return false;
    if (size >= (size_t)4 << 20)
        madvise(fresh, size, MADV_HUGEPAGE);
    *fresh = (chunk){ .previous = arena->current, .size = size, .used = UNI__ALIGN };
    CLOSE((char *)fresh + UNI__ALIGN, size - UNI__ALIGN);
    arena->current = fresh;
    arena->total += size;
    return true;
}

static void drop_chunks(uni__arena *arena)
{
    while (arena->current) {
        chunk *previous = arena->current->previous;
        size_t size = arena->current->size;
        OPEN((char *)arena->current, size);
        munmap(arena->current, size);
        arena->current = previous;
    }
    arena->total = 0;
}

uni__arena *uni__arena_new(void)
{
    return calloc(1, sizeof(uni__arena));
}

void uni__arena_free(uni__arena *arena)
{
    if (!arena)
        return;
    drop_chunks(arena);
    free(arena);
}

void uni__arena_reset(uni__arena *arena)
{
    arena->num_free = 0;
    if (arena->current && arena->current->previous) {
        size_t total = arena->total;
        drop_chunks(arena);
        if (!add_chunk(arena, total))
            return; /* the next allocation retries */
    }
    if (!arena->current)
        return;
    arena->current->used = UNI__ALIGN;
    CLOSE((char *)arena->current + UNI__ALIGN, arena->current->size - UNI__ALIGN);
}

static void remove_free(uni__arena *arena, int index)
{
    arena->num_free--;
    memmove(&arena->free[index], &arena->free[index + 1],
            (size_t)(arena->num_free - index) * sizeof arena->free[0]);
}

/* Takes the smallest free block that is large enough, from its beginning; NULL: there is none. */
static void *take_free(uni__arena *arena, size_t size)
{
    int best = -1;
    for (int i = 0; i < arena->num_free; i++)
        if (arena->free[i].size >= size &&
            (best < 0 || arena->free[i].size < arena->free[best].size))
            best = i;
    if (best < 0)
        return NULL;
    char *begin = arena->free[best].begin;
    arena->free[best].begin += size;
    arena->free[best].size -= size;
    if (arena->free[best].size == 0)
        remove_free(arena, best);
    return begin;
}

void *uni__arena_alloc(uni__arena *arena, size_t wanted)
{
    if (wanted > PTRDIFF_MAX / 2)
        return NULL;
    size_t size = round_up(wanted ? wanted : 1);
    void *memory = size >= SMALLEST_REUSED ? take_free(arena, size) : NULL;
    if (memory) {
        OPEN(memory, wanted);
        return memory;
    }
    if (!arena->current || arena->current->size - arena->current->used < size) {
        size_t chunk_size = arena->total < FIRST_CHUNK ? FIRST_CHUNK : arena->total;
        if (chunk_size < size)
            chunk_size = size;
        if (!add_chunk(arena, chunk_size) && !add_chunk(arena, size))
            return NULL;
    }
    memory = (char *)arena->current + arena->current->used;
    arena->current->used += size;
    OPEN(memory, wanted);
    return memory;
}

/* Blocks of different chunks are never adjacent: a header lies between. */
void uni__arena_release(uni__arena *arena, void *memory, size_t size)
{
    size = round_up(size ? size : 1);
    if (!memory || size < SMALLEST_REUSED)
        return;
    CLOSE(memory, size);
    block freed = { memory, size };
    int at = 0;
    while (at < arena->num_free && arena->free[at].begin < freed.begin)
        at++;
    if (at < arena->num_free && freed.begin + freed.size == arena->free[at].begin) {
        freed.size += arena->free[at].size;
        remove_free(arena, at);
    }
    if (at > 0 && arena->free[at - 1].begin + arena->free[at - 1].size == freed.begin) {
        freed.begin = arena->free[at - 1].begin;
        freed.size += arena->free[at - 1].size;
        remove_free(arena, --at);
    }
    if (freed.begin + freed.size == (char *)arena->current + arena->current->used) {
        arena->current->used -= freed.size;
        return;
    }
    if (arena->num_free == MAX_FREE)
        return;
    memmove(&arena->free[at + 1], &arena->free[at],
            (size_t)(arena->num_free - at) * sizeof arena->free[0]);
    arena->free[at] = freed;
    arena->num_free++;
}

size_t uni__arena_bytes(const uni__arena *arena)
{
    return arena->total;
}
