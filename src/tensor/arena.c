/*
 * arena.c - the memory of a step: bump allocation that is forgotten at once, with reuse of released blocks of the same
 * size.
 *
 * A step of a model asks for the same sizes in the same order every time, so exact-size lists are enough: the gradient of one
 * activation takes the place of another of the same shape, while it is still in the cache. When a step needed more than one chunk the next
 * reset joins them into one, so that a steady state neither allocates nor jumps between chunks. Called by the tape's thread.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include "tensor/internal.h"

/* Under AddressSanitizer what is not allocated cannot be touched: free memory, released blocks, the rounding at the end. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define CLOSE(memory, size) __asan_poison_memory_region(memory, size)
#define OPEN(memory, size) __asan_unpoison_memory_region(memory, size)
#else
#define CLOSE(memory, size) ((void)(memory), (void)(size))
#define OPEN(memory, size) ((void)(memory), (void)(size))
#endif

#define FIRST_CHUNK ((size_t)1 << 18)
#define NUM_LISTS 64
/* Smaller blocks are not worth a list. */
#define SMALLEST_REUSED 1024

typedef struct chunk {
    struct chunk *previous;
    size_t size, used;
} chunk;

typedef struct list {
    size_t size;
    void *head; /* blocks, linked through their first word */
} list;

struct uni__arena {
    chunk *current;
    size_t total;
    list lists[NUM_LISTS];
    int num_lists;
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
    arena->num_lists = 0;
    if (arena->current && arena->current->previous) {
        size_t total = arena->total;
        drop_chunks(arena);
        if (!add_chunk(arena, total))
            return; /* the next allocation tries again with what it needs */
    }
    if (!arena->current)
        return;
    arena->current->used = UNI__ALIGN;
    CLOSE((char *)arena->current + UNI__ALIGN, arena->current->size - UNI__ALIGN);
}

static list *find_list(uni__arena *arena, size_t size)
{
    for (int i = 0; i < arena->num_lists; i++)
        if (arena->lists[i].size == size)
            return &arena->lists[i];
    return NULL;
}

void *uni__arena_alloc(uni__arena *arena, size_t wanted)
{
    if (wanted > PTRDIFF_MAX / 2)
        return NULL;
    size_t size = round_up(wanted ? wanted : 1);
    if (size >= SMALLEST_REUSED) {
        list *found = find_list(arena, size);
        if (found && found->head) {
            void *block = found->head;
            OPEN(block, wanted);
            found->head = *(void **)block;
            return block;
        }
    }
    if (!arena->current || arena->current->size - arena->current->used < size) {
        size_t chunk_size = arena->total < FIRST_CHUNK ? FIRST_CHUNK : arena->total;
        if (chunk_size < size)
            chunk_size = size;
        if (!add_chunk(arena, chunk_size) && !add_chunk(arena, size))
            return NULL;
    }
    void *block = (char *)arena->current + arena->current->used;
    arena->current->used += size;
    OPEN(block, wanted);
    return block;
}

void uni__arena_release(uni__arena *arena, void *block, size_t size)
{
    size = round_up(size ? size : 1);
    if (!block || size < SMALLEST_REUSED)
        return;
    list *found = find_list(arena, size);
    if (!found) {
        if (arena->num_lists == NUM_LISTS)
            return;
        found = &arena->lists[arena->num_lists++];
        *found = (list){ .size = size };
    }
    *(void **)block = found->head;
    found->head = block;
    CLOSE(block, size);
}

size_t uni__arena_bytes(const uni__arena *arena)
{
    return arena->total;
}
