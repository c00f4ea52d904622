/* page_test.c - the ring between a worker and its controller: order, wrapping, waking, and what a
 * worker that scribbles can do. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmocka.h>

#include "group/page.h"
#include "group/remote.h"

static uni__page *fresh(void)
{
    uni__page *page = NULL;
    int fd = -1;
    assert_int_equal(uni__page_new(&page, &fd, NULL), 0);
    close(fd);
    return page;
}

static void put(uni__page *page, uint32_t number, size_t size)
{
    uint8_t *place = uni__ring_reserve(page, size);
    assert_non_null(place);
    memset(place, (int)(number & 0xff), size);
    memcpy(place, &number, sizeof number);
    uni__ring_commit(page, place, size, 1 + (int)(number % 7), 0);
}

static void frames_come_in_order(void **state)
{
    uni__page *page = fresh();
    const uint8_t *payload;
    size_t size;
    int type, flags;
    assert_int_equal(uni__ring_peek(page, &payload, &size, &type, &flags, NULL), 0);
    for (uint32_t i = 0; i < 100; i++)
        put(page, i, 4 + i);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t number;
        assert_int_equal(uni__ring_peek(page, &payload, &size, &type, &flags, NULL), 1);
        memcpy(&number, payload, sizeof number);
        assert_int_equal(number, i);
        assert_int_equal(size, 4 + i);
        assert_int_equal(type, 1 + (int)(i % 7));
        uni__ring_pop(page);
    }
    assert_true(uni__ring_is_empty(page));
    uni__page_unmap(page);
}

/* The list of a group stays readable while the next one is written. */
static void members_belong_to_their_group(void **state)
{
    uni__page *page = fresh();
    uni__members few = { .count = 2, .ranks = { 1 | 1u << 5 } }, found;
    uint32_t number;
    uni__page_regroup(page, 1, NULL);
    uni__page_members(page, &number, &found);
    assert_int_equal(number, 1);
    assert_true(uni__members_has(&found, 0) && uni__members_has(&found, 200));
    few.ranks[3] = (uint64_t)1 << 63;
    few.count++;
    uni__page_regroup(page, 2, &few);
    uni__page_members(page, &number, &found);
    assert_int_equal(number, 2);
    assert_int_equal(found.count, 3);
    for (int rank = 0; rank < UNI__MOST_MEMBERS; rank++)
        assert_int_equal(uni__members_has(&found, rank), rank == 0 || rank == 5 || rank == 255);
    assert_int_equal(page->members[1].count, 0);
    uni__page_unmap(page);
}

static void full_ring_refuses(void **state)
{
    uni__page *page = fresh();
    int count = 0;
    while (uni__ring_reserve(page, 100000)) {
        put(page, (uint32_t)count, 100000);
        count++;
    }
    assert_in_range(count, 40, 41);
    uni__ring_pop(page);
    assert_non_null(uni__ring_reserve(page, 90000));
    assert_null(uni__ring_reserve(page, UNI__FRAME_MAX + 1));
    uni__page_unmap(page);
}

/* The writer is told to wake the reader exactly when the reader said that it waits. */
static void waking(void **state)
{
    uni__page *page = fresh();
    atomic_store(&page->reader_waits, 0);
    assert_false(uni__ring_commit(page, uni__ring_reserve(page, 8), 8, 1, 0));
    atomic_store(&page->reader_waits, 1);
    assert_true(uni__ring_commit(page, uni__ring_reserve(page, 8), 8, 1, 0));
    assert_false(uni__ring_commit(page, uni__ring_reserve(page, 8), 8, 1, 0));
    uni__page_unmap(page);
}

enum { MANY = 200000 };

static size_t size_of(uint32_t number)
{
    return 4 + (number * 2654435761u >> 8) % 3000;
}

static void *writer(void *argument)
{
    uni__page *page = argument;
    for (uint32_t i = 0; i < MANY; i++) {
        uint8_t *place;
        while (!(place = uni__ring_reserve(page, size_of(i))))
            sched_yield();
        memcpy(place, &i, sizeof i);
        if (size_of(i) > 8)
            place[size_of(i) - 1] = (uint8_t)i;
        uni__ring_commit(page, place, size_of(i), 1, 0);
    }
    return NULL;
}

static void two_threads(void **state)
{
    uni__page *page = fresh();
    pthread_t thread;
    pthread_create(&thread, NULL, writer, page);
    for (uint32_t i = 0; i < MANY;) {
        const uint8_t *payload;
        size_t size;
        int type, flags;
        uint32_t number;
        int found = uni__ring_peek(page, &payload, &size, &type, &flags, NULL);
        assert_true(found >= 0);
        if (!found) {
            sched_yield();
            continue;
        }
        memcpy(&number, payload, sizeof number);
        assert_int_equal(number, i);
        assert_int_equal(size, size_of(i));
        if (size > 8)
            assert_int_equal(payload[size - 1], (uint8_t)i);
        uni__ring_pop(page);
        i++;
    }
    pthread_join(thread, NULL);
    uni__page_unmap(page);
}

/* Whatever is written over the header and the ring, the reader gives frames inside the ring or an
 * error. */
static void scribbled(void **state)
{
    srand(7);
    for (int round = 0; round < 3000; round++) {
        uni__page *page = round % 100 == 0 ? fresh() : *state;
        *state = page;
        atomic_store(&page->head, (uint64_t)rand() << (rand() % 40));
        atomic_store(&page->tail, (uint64_t)rand() << (rand() % 40));
        uint8_t *bytes = (uint8_t *)page + UNI__RING_OFFSET;
        for (int i = 0; i < 64; i++)
            bytes[rand() % UNI__RING_BYTES] = (uint8_t)rand();
        const uint8_t *payload;
        size_t size;
        int type, flags, found;
        for (int i = 0;
             i < 100 && (found = uni__ring_peek(page, &payload, &size, &type, &flags, NULL)) > 0;
             i++) {
            assert_true(payload >= bytes && payload + size <= bytes + UNI__RING_BYTES);
            uni__ring_pop(page);
        }
        if (round % 100 == 99)
            uni__page_unmap(page);
    }
}

/* A frame that fills the ring's end is there only, and only once: a reader that goes on as long as
 * it finds some would never return to its timers. */
static void rings_of_fillers(void **state)
{
    const uint8_t *payload;
    size_t size;
    int type, flags;
    uni__page *page = fresh();
    atomic_store(&page->head, UNI__RING_BYTES / 2);
    assert_int_equal(uni__ring_peek(page, &payload, &size, &type, &flags, NULL), UNI_EFORMAT);
    atomic_store(&page->tail, UNI__RING_BYTES - 8);
    atomic_store(&page->head, UNI__RING_BYTES);
    assert_int_equal(uni__ring_peek(page, &payload, &size, &type, &flags, NULL), 0);
    uint32_t whole = UNI__RING_BYTES - 8;
    memcpy((uint8_t *)page + UNI__RING_OFFSET, &whole, sizeof whole);
    atomic_store(&page->tail, UNI__RING_BYTES - 8);
    atomic_store(&page->head, 2 * UNI__RING_BYTES - 8);
    assert_int_equal(uni__ring_peek(page, &payload, &size, &type, &flags, NULL), UNI_EFORMAT);
    uni__page_unmap(page);
}

static void a_warm_worker_begins_anew(void **state)
{
    uni__page *page = NULL;
    int fd = -1;
    assert_int_equal(uni__page_new(&page, &fd, NULL), 0);
    atomic_store(&page->stop_request, UNI__STOP_EARLY);
    atomic_store(&page->stop_at, 7);
    atomic_store(&page->iteration, 7);
    atomic_store(&page->alarm, 1);
    atomic_store(&page->checkpoints_taken, 3);
    uni__page_refresh(page);
    assert_int_equal(atomic_load(&page->stop_request), UNI__STOP_NONE);
    assert_int_equal(atomic_load(&page->stop_at), 0);
    assert_int_equal(atomic_load(&page->iteration), 0);
    assert_int_equal(atomic_load(&page->alarm), 0);
    assert_int_equal(atomic_load(&page->checkpoints_taken),
                     3); /* of the process, not of an order */
    uni__page_unmap(page);
    close(fd);
    uni__page_refresh(NULL);
}

/* Between the controller's mirror of a page and the page itself. */
static void groups_travel_between_hosts(void **state)
{
    uni__page *mirror = fresh(), *page = fresh();
    uni__members members = { .count = 2, .ranks = { 5 } }, got;
    uni__control_words words, none = { 0 };
    uni__worker_words said, before = { 0 };
    uint32_t number = 0;
    for (uint32_t group = 3; group < 9; group += 3) { /* groups are passed over */
        members.ranks[0] += group;
        uni__page_regroup(mirror, group, &members);
        uni__control_words_read(mirror, &words);
        uni__control_words_apply(page, &words, &none);
        uni__page_members(page, &number, &got);
        assert_int_equal(number, group);
        assert_int_equal(got.count, 2);
        assert_int_equal(got.ranks[0], members.ranks[0]);
    }
    uni__page_close(mirror, 6);
    atomic_store(&mirror->leave, 1);
    uni__control_words_read(mirror, &words);
    uni__control_words_apply(page, &words, &none);
    assert_int_equal(atomic_load(&page->closed), 6);
    assert_int_equal(atomic_load(&page->leave), 1);
    _Atomic uint32_t *const of_worker[] = { &page->replaceable, &page->fixed,  &page->joined,
                                            &page->awaits,      &page->ending, &page->left };
    _Atomic uint32_t *const of_mirror[] = { &mirror->replaceable, &mirror->fixed,  &mirror->joined,
                                            &mirror->awaits,      &mirror->ending, &mirror->left };
    for (uint32_t i = 0; i < 6; i++)
        atomic_store(of_worker[i], 10 + i);
    assert_true(uni__worker_words_read(page, &said, &before));
    uni__worker_words_apply(mirror, &said);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(atomic_load(of_mirror[i]), 10 + i);
    assert_false(uni__worker_words_read(page, &before, &said));
    uni__page_unmap(mirror);
    uni__page_unmap(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(frames_come_in_order),
                                        cmocka_unit_test(members_belong_to_their_group),
                                        cmocka_unit_test(full_ring_refuses),
                                        cmocka_unit_test(waking),
                                        cmocka_unit_test(two_threads),
                                        cmocka_unit_test(scribbled),
                                        cmocka_unit_test(rings_of_fillers),
                                        cmocka_unit_test(a_warm_worker_begins_anew),
                                        cmocka_unit_test(groups_travel_between_hosts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
