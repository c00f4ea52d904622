/*
 * stall_test.c - lost messages between hosts, and messages that only take long
 * (src/comm/hosts/stall.c): two ranks whose rendezvous is a list in this file, with a fake clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/kinds.h"
#include "comm/hosts/carrier_internal.h"

#define SECOND 1000000000ull
#define MAX_MAIL 1000

typedef struct post {
    int from, to;
    char data[64];
    size_t size;
    bool taken;
} post;

typedef struct office {
    post mail[MAX_MAIL];
    int count;
} office;

typedef struct side {
    office *office;
    uni_comm *comm;
    uni__stall stall;
} side;

static office all_mail;

static int put(void *context, const char *key, const void *data, size_t size, uni_error *err)
{
    side *me = context;
    post *it = &me->office->mail[me->office->count++];
    assert_true(me->office->count < MAX_MAIL && size <= sizeof it->data);
    *it = (post){ .from = me->comm->rank, .to = 1 - me->comm->rank, .size = size };
    memcpy(it->data, data, size);
    return 0;
}

static int get(void *context, int rank, const char *key, void *data, size_t capacity, size_t *size,
               int timeout_ms, uni_error *err)
{
    side *me = context;
    for (int i = 0; i < me->office->count; i++) {
        post *it = &me->office->mail[i];
        if (it->taken || it->from != rank || it->to != me->comm->rank)
            continue;
        it->taken = true;
        *size = it->size;
        memcpy(data, it->data, it->size);
        return 0;
    }
    return UNI_ETIMEOUT;
}

static const uni__rendezvous_vtable vtable = { .name = "test", .put = put, .get = get };

static void open_sides(side sides[2])
{
    all_mail.count = 0;
    for (int r = 0; r < 2; r++) {
        sides[r] = (side){ .office = &all_mail, .comm = calloc(1, sizeof(uni_comm)) };
        sides[r].stall.key = "stalled";
        sides[r].stall.pair_key = "missed";
        *sides[r].comm = (uni_comm){
            .rank = r,
            .size = 2,
            .peers = { .vtable = &vtable, .context = &sides[r], .rank = r, .size = 2 }
        };
    }
}

/* Ends a request. */
static void end(uni_comm_request *it)
{
    uni__request_list *list = &it->comm->started;
    *(it->previous ? &it->previous->next : &list->first) = it->next;
    *(it->next ? &it->next->previous : &list->last) = it->previous;
    free(it);
}

static void close_sides(side sides[2])
{
    for (int r = 0; r < 2; r++) {
        uni__stall_free(&sides[r].stall);
        while (sides[r].comm->started.first)
            end(sides[r].comm->started.first);
        free(sides[r].comm);
    }
}

static uni_comm_request *begin(side *me, int kind, size_t bytes, uint64_t now)
{
    uni__request_list *list = &me->comm->started;
    uni_comm_request *it = calloc(1, sizeof *it);
    it->comm = me->comm;
    it->begun_ns = now;
    it->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = it;
    list->last = it;
    it->call =
        (uni__call){ .kind = kind, .dtype = UNI_U8, .count = bytes, .root = 1 - me->comm->rank };
    it->watch.begun = now;
    it->seq = uni__stall_count(&me->stall, it);
    return it;
}

/* Both ranks look every 20 ms for `seconds`. Returns the first time that one finds a loss, or 0. */
static uint64_t look(side sides[2], uint64_t from, double seconds, bool first_looks,
                     bool second_looks)
{
    for (uint64_t now = from; now < from + (uint64_t)(seconds * 1e9); now += SECOND / 50) {
        int a = first_looks ? uni__stall_pair_found(&sides[0].stall, sides[0].comm, now) : -1;
        int b = second_looks ? uni__stall_pair_found(&sides[1].stall, sides[1].comm, now) : -1;
        assert_true(a == -1 || a == 1);
        assert_true(b == -1 || b == 0);
        if (a >= 0 || b >= 0)
            return now - from;
    }
    return 0;
}

/* A server without requests may wait for hours. */
static void test_idle(void **state)
{
    side sides[2];
    open_sides(sides);
    begin(&sides[0], UNI__KIND_RECV, 100, 10 * SECOND);
    begin(&sides[1], UNI__KIND_RECV, 100, 10 * SECOND);
    assert_int_equal(look(sides, 10 * SECOND, 60, true, true), 0);
    close_sides(sides);
}

/* One side names the loss after 5 to 10 s, and counts two that are late. */
static void expect_loss(side *sides, uint64_t begun, const int *late)
{
    assert_in_range(look(sides, begun, 30, true, true), 5 * SECOND, 10 * SECOND);
    assert_int_equal(*late, 2);
    close_sides(sides);
}

/* The request is lost: the sender detects it. */
static void test_lost_question(void **state)
{
    side sides[2];
    open_sides(sides);
    begin(&sides[1], UNI__KIND_RECV, 100, 10 * SECOND);
    assert_int_equal(look(sides, 10 * SECOND, 30, true, true), 0);
    begin(&sides[0], UNI__KIND_SEND, 100, 40 * SECOND);
    begin(&sides[0], UNI__KIND_RECV, 100, 40 * SECOND);
    expect_loss(sides, 40 * SECOND, &sides[0].stall.pairs[1].late);
}

/* The answer is lost: the server detects it while it waits for the next request. */
static void test_lost_answer(void **state)
{
    side sides[2];
    open_sides(sides);
    end(begin(&sides[0], UNI__KIND_SEND, 100, 10 * SECOND));
    end(begin(&sides[1], UNI__KIND_RECV, 100, 10 * SECOND)); /* arrived */
    begin(&sides[0], UNI__KIND_RECV, 100, 10 * SECOND);
    end(begin(&sides[1], UNI__KIND_SEND, 100, 11 * SECOND)); /* sent, and lost */
    begin(&sides[1], UNI__KIND_RECV, 100, 11 * SECOND);
    expect_loss(sides, 11 * SECOND, &sides[1].stall.pairs[0].late);
}

/* A message is lost while the receiver's own is still under way, which says nothing about it. */
static void test_lost_while_sending(void **state)
{
    side sides[2];
    open_sides(sides);
    begin(&sides[1], UNI__KIND_SEND, 100, 10 * SECOND);
    begin(&sides[1], UNI__KIND_RECV, 100, 10 * SECOND);
    end(begin(&sides[0], UNI__KIND_SEND, 100, 10 * SECOND)); /* sent, and lost */
    expect_loss(sides, 10 * SECOND, &sides[0].stall.pairs[1].late);
}

/* Of several that are missing the first one is asked for: those behind it were not sent yet. */
static void test_several_are_missing(void **state)
{
    side sides[2];
    open_sides(sides);
    begin(&sides[1], UNI__KIND_RECV, 100, 10 * SECOND);
    begin(&sides[1], UNI__KIND_RECV, 100, 10 * SECOND);
    end(begin(&sides[0], UNI__KIND_SEND, 100, 10 * SECOND)); /* sent, and lost */
    expect_loss(sides, 10 * SECOND, &sides[0].stall.pairs[1].late);
}

/* A worker had waited for long, received its work, and computes for a minute: its earlier complaint
 * no longer holds. */
static void test_long_computation(void **state)
{
    side sides[2];
    open_sides(sides);
    uni_comm_request *waits = begin(&sides[1], UNI__KIND_RECV, 100, 10 * SECOND);
    assert_int_equal(look(sides, 10 * SECOND, 7, true, true), 0);
    end(begin(&sides[0], UNI__KIND_SEND, 100, 17 * SECOND));
    begin(&sides[0], UNI__KIND_RECV, 100, 17 * SECOND);
    end(waits); /* arrived; rank 1 computes and does not look */
    assert_int_equal(look(sides, 17 * SECOND, 60, true, false), 0);
    close_sides(sides);
}

/* A hundred megabytes may take ten seconds more. */
static void test_large(void **state)
{
    side sides[2];
    open_sides(sides);
    begin(&sides[1], UNI__KIND_RECV, 100000000, 10 * SECOND);
    begin(&sides[0], UNI__KIND_SEND, 100000000, 10 * SECOND);
    uint64_t found = look(sides, 10 * SECOND, 60, true, true);
    assert_in_range(found, 15 * SECOND, 20 * SECOND);
    close_sides(sides);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_lost_question),
        cmocka_unit_test(test_lost_answer),
        cmocka_unit_test(test_long_computation),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_lost_while_sending),
        cmocka_unit_test(test_several_are_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
