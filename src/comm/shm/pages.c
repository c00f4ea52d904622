/*
 * pages.c - see pages.h.
 *
 * A step reads all weights and gradients once, and the processor's prefetcher stops at every page: in pages of 4 KiB a rank's products are slower than those of
 * a process alone, whose buffers are in huge pages (src/tensor/buffer.c). Linux gives shared memory none by default (shmem_enabled is "never"), but MADV_COLLAPSE (Linux
 * 6.1) joins the pages of a range whatever that setting says, unless it is "deny". So large memory is a whole number of huge pages, begins at the border of one in every rank, and is
 * joined when it is mapped. All of this is for speed only: where a call is refused the pages stay small.
 */
#include "comm/shm/pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
/* Below it a huge page would be mostly empty. */
#define WORTH_JOINING ((size_t)3 << 19)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; glibc 2.37 has the name */
#endif

size_t uni__pages_room(size_t bytes)
{
    return bytes < WORTH_JOINING ? bytes : (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* Address space for `bytes` that begins at a huge page's border. */
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

/* A range without a page cannot be joined, so one of each is read first. Two ranks that join at the same time get in each other's way; the one who is
 * refused finds the huge page at its next touch. */
static void join(char *memory, size_t bytes)
{
    (void)madvise(memory, bytes,
                  MADV_HUGEPAGE); /* where that is enough, the first touch brings one */
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
