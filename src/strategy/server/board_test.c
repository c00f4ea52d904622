/* board_test.c - the memory that the members of a parameter-server run share: no two parts of it
 * overlap, every member sees the same, and what is not such a memory is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "strategy/server/board.h"

#define WORKERS 3
#define SERVERS 2
#define SLOTS 2
#define LOG 3

static const uni__server_board_shape shape = { .workers = WORKERS,
                                               .servers = SERVERS,
                                               .replica = 1,
                                               .log_length = LOG,
                                               .num_slots = SLOTS,
                                               .num_weights = 1000,
                                               .num_states = 37,
                                               .optimizer = "sgd" };
static const uni__span spans[SERVERS] = { { 0, 496 }, { 496, 1000 } };

typedef struct region {
    uintptr_t begin, end;
    const char *what;
} region;

static region regions[128];
static int count;

static void add(const char *what, const void *at, size_t bytes)
{
    assert_true(count < 128);
    regions[count++] = (region){ (uintptr_t)at, (uintptr_t)at + bytes, what };
}

static void add_replica(const uni__server_board *board, int server)
{
    size_t states = server == 0 ? 37 : 0, capacity = 0;
    size_t weights = spans[server].end - spans[server].begin;
    assert_int_equal(uni__server_board_states_of(board, server), states);
    add("replica", uni__server_board_replica(board, server), sizeof(uni__replica));
    for (int which = 0; which < 2; which++) {
        for (size_t slot = 0; slot <= SLOTS; slot++)
            add("snapshot", uni__replica_snapshot_data(board, server, which, slot), weights * 4);
        if (states)
            add("its states", uni__replica_snapshot_states(board, server, which), states * 4);
    }
    for (int which = 0; which < LOG; which++) {
        add("entry", uni__replica_entry_data(board, server, which), weights * 4);
        if (states)
            add("its states", uni__replica_entry_states(board, server, which), states * 4);
    }
    if (server > 0)
        return;
    for (uint64_t parity = 0; parity < 2; parity++) {
        float *at = uni__replica_statistics(board, parity, &capacity);
        assert_true(capacity >= 4 * 37 + 2); /* what a normalization sums */
        add("statistics", at, capacity * sizeof *at);
    }
    for (int worker = 0; worker < WORKERS; worker++)
        add("worker", uni__replica_worker_of(board, worker), sizeof(uni__replica_worker));
}

static void no_two_parts_overlap(void **state)
{
    uni__server_board board;
    assert_int_equal(uni__server_board_new(&board, &shape, spans, NULL), 0);
    count = 0;
    add("header", board.header, sizeof *board.header);
    add("members", board.header->members,
        (1 + WORKERS + SERVERS) * sizeof board.header->members[0]);
    add("spans", board.spans, sizeof spans);
    assert_memory_equal(board.spans, spans, sizeof spans);
    for (int server = -1; server < SERVERS; server++)
        for (int asker = server < 0; asker <= WORKERS; asker++) {
            uni__server_link link = uni__server_board_link(&board, asker, server);
            assert_int_equal(link.asker, asker);
            assert_int_equal(link.answerer, server < 0 ? 0 : 1 + WORKERS + server);
            assert_int_equal((uintptr_t)link.memory % 64, 0);
            /* A shard with its states and sums, or a step function's value. */
            size_t needed = server < 0    ? UNI__PS_VALUE_MAX
                            : server == 0 ? (496 + 37) * 4 + UNI__PS_MAX_SUMS * 8
                                          : 504 * 4 + UNI__PS_MAX_SUMS * 8;
            assert_true(link.capacity >= needed);
            add("link", link.memory, UNI__LINK_HEADER + 2 * link.capacity);
        }
    for (int server = 0; server < SERVERS; server++)
        add_replica(&board, server);
    for (int i = 0; i < count; i++) {
        assert_true(regions[i].begin >= (uintptr_t)board.header);
        assert_true(regions[i].end <= (uintptr_t)board.header + board.size);
        for (int j = 0; j < i; j++)
            if (regions[i].begin < regions[j].end && regions[j].begin < regions[i].end &&
                strcmp(regions[j].what, "header") != 0)
                fail_msg("%s overlaps %s", regions[i].what, regions[j].what);
    }
    uni__server_board_close(&board);
}

static void members_see_the_same(void **state)
{
    uni__server_board board, other;
    assert_int_equal(uni__server_board_new(&board, &shape, spans, NULL), 0);
    assert_int_equal(board.header->shape.num_weights, 1000);
    assert_string_equal(board.header->shape.optimizer, "sgd");
    assert_int_equal(uni__server_board_map(&other, board.fd, 4, NULL), 0);
    assert_int_equal(other.rank, 4);
    assert_int_equal(other.size, board.size);
    assert_memory_equal(other.spans, spans, sizeof spans);
    uni__replica_entry_data(&board, 1, 2)[7] = 2.5f;
    assert_true(uni__replica_entry_data(&other, 1, 2)[7] == 2.5f);
    /* A bell that rang since the look is not waited for. */
    uint32_t seen = uni__bell_look(&other);
    uni__bell_ring(&board, 4);
    uni__bell_wait(&other, seen, 60000);
    assert_int_not_equal(uni__bell_look(&other), seen);
    /* Another's does not ring it. */
    seen = uni__bell_look(&other);
    uni__bell_ring(&board, 3);
    assert_int_equal(uni__bell_look(&other), seen);
    /* It cannot be cut off under the members. */
    assert_int_not_equal(ftruncate(board.fd, 4096), 0);
    uni__server_board_close(&other);
    uni__server_board_close(&board);
    uni__server_board_close(&board);
}

static void memory_of_one_member(void **state)
{
    uni__server_board board;
    assert_int_equal(uni__server_board_new_private(&board, &shape, spans, 2,
                                                   (struct uni__carrier *)&board, NULL),
                     0);
    assert_int_equal(board.rank, 2);
    assert_int_equal(board.fd, -1);
    for (int i = 0; i < 1 + WORKERS + SERVERS; i++)
        assert_int_equal(atomic_load(&board.header->members[i].epoch), 1);
    uni__server_board_close(&board);
}

static void what_is_refused(void **state)
{
    uni__server_board board, other;
    uni_error err = { 0 };
    int small = memfd_create("small", MFD_CLOEXEC);
    assert_int_equal(ftruncate(small, 10), 0);
    assert_int_equal(uni__server_board_map(&other, small, 1, &err), UNI_EFORMAT);
    close(small);
    assert_int_equal(uni__server_board_map(&other, small, 1, &err), UNI_EFORMAT); /* closed */
    assert_int_equal(uni__server_board_new(&board, &shape, spans, NULL), 0);
    board.header->version++;
    assert_int_equal(uni__server_board_map(&other, board.fd, 1, &err), UNI_EVERSION);
    assert_null(other.header);
    board.header->version--;
    board.header->magic++;
    assert_int_equal(uni__server_board_map(&other, board.fd, 1, &err), UNI_EVERSION);
    board.header->magic--;
    board.header->size--;
    assert_int_equal(uni__server_board_map(&other, board.fd, 1, &err), UNI_EVERSION);
    board.header->size++;
    assert_int_equal(uni__server_board_map(&other, board.fd, 1, &err), 0);
    uni__server_board_close(&other);
    uni__server_board_close(&board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_parts_overlap),
        cmocka_unit_test(members_see_the_same),
        cmocka_unit_test(memory_of_one_member),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
