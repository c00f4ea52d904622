/* page.c - the shared page and its ring; the design is in page.h. */
#include "group/page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES 8u

typedef struct frame_header {
    uint32_t size;
    uint8_t type, flags;
    uint16_t zero;
} frame_header;

static uint8_t *ring_of(uni__page *page)
{
    return (uint8_t *)page + UNI__RING_OFFSET;
}

static uint64_t padded(uint64_t size)
{
    return (size + HEADER_BYTES + 7u) & ~(uint64_t)7u;
}

int uni__page_new(uni__page **out, int *fd, uni_error *err)
{
    *out = NULL;
    *fd = memfd_create("unisono-session", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return uni_error_set_errno(err, errno, "cannot make the shared memory of a worker");
    if (ftruncate(*fd, UNI__PAGE_BYTES) < 0) {
        int saved = errno;
        close(*fd);
        *fd = -1;
        return uni_error_set_errno(
            err, saved, "cannot size the shared memory of a worker (%u bytes)", UNI__PAGE_BYTES);
    }
    /* Sealed against shrinking, so that a worker cannot make the controller fault by truncating
     * it. */
    (void)fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    int status = uni__page_map(out, *fd, err);
    if (status < 0) {
        close(*fd);
        *fd = -1;
        return status;
    }
    (*out)->magic = UNI__PAGE_MAGIC;
    (*out)->version = UNI__PAGE_VERSION;
    atomic_store(&(*out)->slot_free[0], 1);
    atomic_store(&(*out)->slot_free[1], 1);
    atomic_store(&(*out)->reader_waits, 1);
    return 0;
}

int uni__page_map(uni__page **out, int fd, uni_error *err)
{
    *out = NULL;
    struct stat info;
    if (fstat(fd, &info) < 0 || info.st_size < (off_t)UNI__PAGE_BYTES)
        return uni_error_set(err, UNI_EPEER, "descriptor %d is not the shared memory of a session",
                             fd);
    void *memory = mmap(NULL, UNI__PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return uni_error_set_errno(err, errno, "cannot map the shared memory of a session");
    *out = memory;
    return 0;
}

void uni__page_unmap(uni__page *page)
{
    if (page)
        munmap(page, UNI__PAGE_BYTES);
}

void uni__page_refresh(uni__page *page)
{
    if (!page)
        return;
    atomic_store(&page->stop_request, UNI__STOP_NONE);
    atomic_store(&page->alarm, 0);
    atomic_store(&page->suspect, 0);
    atomic_store(&page->stopping, 0);
    atomic_store(&page->stop_at_known, 0);
    atomic_store(&page->stop_at, 0);
    atomic_store(&page->stop_seen, 0);
    atomic_store(&page->loaded, 0);
    atomic_store(&page->no_steps, 0);
    atomic_store(&page->released, 0);
    atomic_store(&page->iteration, 0);
    atomic_store(&page->group, 0);
    atomic_store(&page->replaceable, 0);
    atomic_store(&page->asked, 0);
    atomic_store(&page->fixed, 0);
    atomic_store(&page->joined, 0);
    atomic_store(&page->awaits, 0);
    atomic_store(&page->ending, 0);
    atomic_store(&page->closed, 0);
    atomic_store(&page->leave, 0);
    atomic_store(&page->left, 0);
}

static void count_and_wake(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    uni__futex_wake(word);
}

static void set_and_wake(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    uni__futex_wake(word);
}

void uni__page_give_back(uni__page *page, int slot)
{
    if (page && slot >= 0)
        set_and_wake(&page->slot_free[slot], 1);
    if (page)
        count_and_wake(&page->checkpoints_done);
}

void uni__page_checkpoint_over(uni__page *page)
{
    if (page)
        count_and_wake(&page->checkpoints_over);
}

void uni__page_release(uni__page *page, int64_t iteration)
{
    if (page)
        set_and_wake(&page->released, (uint32_t)iteration);
}

void uni__page_stop(uni__page *page, int64_t iteration)
{
    if (!page)
        return;
    atomic_store(&page->stop_at, iteration);
    uint32_t none = 0;
    atomic_compare_exchange_strong(&page->stopping, &none, UNI__STOPS_AT_ITERATION);
    set_and_wake(&page->stop_at_known, 1);
}

void uni__page_regroup(uni__page *page, uint32_t group, const uni__members *members)
{
    if (!page)
        return;
    page->members[group % 2] = members ? *members : (uni__members){ 0 };
    set_and_wake(&page->group, group);
}

void uni__page_close(uni__page *page, uint32_t group)
{
    if (page)
        set_and_wake(&page->closed, group);
}

/* The list of a group is overwritten by that of the second one after it. */
void uni__page_members(const uni__page *page, uint32_t *number, uni__members *out)
{
    do {
        *number = atomic_load(&page->group);
        *out = page->members[*number % 2];
        atomic_thread_fence(memory_order_acquire);
    } while (atomic_load(&page->group) > *number + 1);
}

void *uni__ring_reserve(uni__page *page, size_t size)
{
    if (size > UNI__FRAME_MAX)
        return NULL;
    uint64_t head = atomic_load_explicit(&page->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&page->tail, memory_order_acquire);
    uint64_t need = padded(size), at = head % UNI__RING_BYTES, to_end = UNI__RING_BYTES - at;
    uint64_t skip = to_end < need ? to_end : 0;
    if (head + skip + need - tail > UNI__RING_BYTES)
        return NULL;
    if (skip) {
        frame_header header = { .size = (uint32_t)(skip - HEADER_BYTES), .type = UNI__FRAME_SKIP };
        memcpy(ring_of(page) + at, &header, sizeof header);
        /* Published on its own: the reader steps over it, and the reserved frame begins at offset
         * 0. */
        atomic_store_explicit(&page->head, head + skip, memory_order_release);
        at = 0;
    }
    return ring_of(page) + at + HEADER_BYTES;
}

bool uni__ring_commit(uni__page *page, void *payload, size_t size, int type, int flags)
{
    frame_header header = { .size = (uint32_t)size,
                            .type = (uint8_t)type,
                            .flags = (uint8_t)flags };
    memcpy((uint8_t *)payload - HEADER_BYTES, &header, sizeof header);
    uint64_t head = atomic_load_explicit(&page->head, memory_order_relaxed);
    /* Sequentially consistent: either the reader sees the new head when it looks once more before
     * it sleeps, or we see that it waits. */
    atomic_store(&page->head, head + padded(size));
    return atomic_load(&page->reader_waits) && atomic_exchange(&page->reader_waits, 0);
}

int uni__ring_peek(uni__page *page, const uint8_t **payload, size_t *size, int *type, int *flags,
                   uni_error *err)
{
    for (bool skipped = false;; skipped = true) {
        uint64_t head = atomic_load(&page->head);
        uint64_t tail = atomic_load_explicit(&page->tail, memory_order_relaxed);
        if (head == tail)
            return 0;
        uint64_t at = tail % UNI__RING_BYTES, to_end = UNI__RING_BYTES - at;
        frame_header header;
        if (head - tail > UNI__RING_BYTES || head - tail < HEADER_BYTES || (at & 7u))
            return uni_error_set(err, UNI_EFORMAT,
                                 "the report ring of a worker is damaged (head %llu, tail %llu)",
                                 (unsigned long long)head, (unsigned long long)tail);
        memcpy(&header, ring_of(page) + at, sizeof header);
        uint64_t whole = padded(header.size);
        /* A frame that only fills the ring's end is followed by one that does not: a ring of
         * nothing else would keep the reader for ever. */
        bool skips = header.type == UNI__FRAME_SKIP;
        if (whole > to_end || whole > head - tail || header.zero ||
            (skips && (skipped || whole != to_end)))
            return uni_error_set(err, UNI_EFORMAT,
                                 "a frame of %u bytes in the report ring of a worker is damaged",
                                 header.size);
        if (!skips) {
            *payload = ring_of(page) + at + HEADER_BYTES;
            *size = header.size;
            *type = header.type;
            *flags = header.flags;
            return 1;
        }
        uni__ring_pop(page);
    }
}

void uni__ring_pop(uni__page *page)
{
    uint64_t tail = atomic_load_explicit(&page->tail, memory_order_relaxed);
    frame_header header;
    memcpy(&header, ring_of(page) + tail % UNI__RING_BYTES, sizeof header);
    atomic_store(&page->tail, tail + padded(header.size));
    if (atomic_load(&page->writer_waits)) {
        atomic_fetch_add(&page->tail_futex, 1);
        uni__futex_wake(&page->tail_futex);
    }
}

bool uni__ring_is_empty(uni__page *page)
{
    return atomic_load(&page->head) == atomic_load_explicit(&page->tail, memory_order_relaxed);
}
