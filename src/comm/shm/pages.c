/*
 * pages.c - see pages.h.
 *
 * A step reads all weights and gradients once, and the processor's prefetcher stops at every page
 * boundary. With 4 KiB pages a rank's products are slower than those of a single process, whose
 * buffers are in huge pages (src/tensor/buffer.c). By default Linux does not use huge pages for
 * shared memory (shmem_enabled is "never"). But MADV_COLLAPSE (Linux 6.1) joins the pages of a
 * range whatever that setting says, unless it is "deny". So large memory is a whole number of huge
 * pages, begins at a huge page boundary in every rank, and is joined when it is mapped. All of this
 * is only for speed: where a call is refused, the pages stay small.
 */
#include "comm/shm/pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
/* Below this a huge page would be mostly empty. */
#define WORTH_JOINING ((size_t)3 << 19)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; glibc 2.37 has the name */
#endif

size_t uni__pages_room(size_t bytes)
{
    return bytes < WORTH_JOINING ? bytes : (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* Reserves address space for `bytes` that begins at a huge page boundary. */
static void *reserve(size_t bytes)
{
    size_t room = bytes + HUGE_PAGE;
    char *all = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return MAP_FAILED;
    char *begin = (char *)(((uintptr_t)all + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (begin > all)
        munmap(all, (size_t)(begin - all));
    munmap(begin + bytes, (size_t)(all + room - (begin + bytes)));
    return begin;
}

/* A range without a page cannot be joined, so one page of each is read first. Ranks that join at
 * the same time disturb each other; a rank that is refused gets the huge page at its next
 * access. */
static void join(char *memory, size_t bytes)
{
    /* Where this is enough, the first access already gets a huge page. */
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes; at += HUGE_PAGE) {
        (void)*(volatile char *)(memory + at);
        (void)madvise(memory + at, HUGE_PAGE, MADV_COLLAPSE);
    }
}

void *uni__pages_map(int fd, size_t bytes)
{
    if (bytes % HUGE_PAGE != 0)
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *place = reserve(bytes);
    if (place == MAP_FAILED)
        return MAP_FAILED;
    void *memory = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (memory == MAP_FAILED) {
        int saved = errno;
        munmap(place, bytes);
        errno = saved;
        return MAP_FAILED;
    }
    join(memory, bytes);
    return memory;
}
