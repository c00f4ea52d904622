/*
 * buffer.c - memory of flat buffers: weights, gradients, optimizer slots.
 *
 * Large buffers are mapped separately at a huge page boundary, with huge pages. A step reads all of
 * them once, and the processor's prefetcher stops at every page boundary (best times of the
 * 784-512-512-10 network: products 2 to 10 % less, update 5 to 27 %). The kernel provides them
 * zeroed, so untouched memory is never resident, and unmapping returns them at once. Small buffers
 * come from malloc. Any thread.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "tensor/internal.h"
#include "tensor/update.h"

#define HUGE_PAGE ((size_t)2 << 20)
/* Below this a huge page would be mostly empty. */
#define WORTH_MAPPING ((size_t)3 << 19)

static size_t bytes_of(size_t count)
{
    size_t bytes = (count * sizeof(float) + UNI__ALIGN - 1) / UNI__ALIGN * UNI__ALIGN;
    return bytes ? bytes : UNI__ALIGN;
}

/* Under AddressSanitizer all buffers come from malloc, which has guards around them. */
static bool is_mapped(size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__)
    return false;
#else
    return bytes >= WORTH_MAPPING;
#endif
}

static float *map(size_t bytes)
{
    size_t room = bytes + HUGE_PAGE;
    char *all = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    char *begin = (char *)(((uintptr_t)all + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    size_t pages = (bytes + 4095) / 4096 * 4096;
    if (begin > all)
        munmap(all, (size_t)(begin - all));
    if (begin + pages < all + room)
        munmap(begin + pages, (size_t)(all + room - (begin + pages)));
    madvise(begin, pages, MADV_HUGEPAGE);
    return (float *)begin;
}

float *uni__buffer_new(size_t count)
{
    if (count > PTRDIFF_MAX / 8)
        return NULL;
    size_t bytes = bytes_of(count);
    if (is_mapped(bytes))
        return map(bytes);
    float *data = aligned_alloc(UNI__ALIGN, bytes);
    if (data)
        memset(data, 0, bytes);
    return data;
}

void uni__buffer_free(float *data, size_t count)
{
    size_t bytes = bytes_of(count);
    if (!data)
        return;
    if (is_mapped(bytes))
        munmap(data, (bytes + 4095) / 4096 * 4096);
    else
        free(data);
}
