/* state_test.c - logs of the ranks' state: what held at an iteration, what is forgotten, and
 * what a log loses that grows too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "train/state.h"

static void add(uni__state_log *log, int64_t iteration, const char *text)
{
    assert_int_equal(uni__state_log_add(log, iteration, text, strlen(text), NULL), 0);
}

static void assert_at(const uni__state_log *log, int64_t iteration, const char *text)
{
    uni__state_section found = uni__state_log_at(log, iteration);
    if (!text) {
        assert_null(found.bytes);
        return;
    }
    assert_int_equal(found.size, strlen(text));
    assert_memory_equal(found.bytes, text, found.size);
}

static void test_a_section_holds_until_the_next(void **state)
{
    uni__state_log log = { 0 };
    assert_at(&log, 5, NULL);
    add(&log, 3, "three");
    add(&log, 7, "seven");
    assert_at(&log, 2, NULL);
    assert_at(&log, 3, "three");
    assert_at(&log, 6, "three");
    assert_at(&log, 7, "seven");
    assert_at(&log, 1000, "seven");
    uni__state_log_clear(&log);
    assert_at(&log, 1000, NULL);
}

static void test_what_all_have_passed_is_forgotten(void **state)
{
    uni__state_log log = { 0 };
    for (int i = 1; i <= 100; i++)
        add(&log, 10 * i, i % 2 ? "odd" : "even");
    uni__state_log_passed(&log, 9); /* before all of them */
    assert_int_equal(log.count, 100);
    uni__state_log_passed(&log, 559);
    assert_int_equal(log.count, 46); /* 550 holds at 559 */
    assert_at(&log, 559, "odd");
    assert_at(&log, 549, NULL);
    assert_at(&log, 560, "even");
    uni__state_log_passed(&log, 1000000);
    assert_int_equal(log.count, 1);
    assert_int_equal(log.bytes, 4);
    assert_at(&log, 1000, "even");
    uni__state_log_clear(&log);
}

static void test_a_log_is_bounded(void **state)
{
    uni__state_log log = { 0 };
    const size_t size = UNI__STATE_LOG_MAX / 8;
    char *section = calloc(1, size);
    uni_error err = { 0 };
    for (int64_t i = 1; i <= 8; i++)
        assert_int_equal(uni__state_log_add(&log, i, section, size, &err), 0);
    assert_int_equal(uni__state_log_add(&log, 9, section, size, &err), UNI_ELIMIT);
    assert_true(log.bytes <= UNI__STATE_LOG_MAX && log.count == 5);
    assert_null(uni__state_log_at(&log, 4).bytes);
    assert_non_null(uni__state_log_at(&log, 5).bytes);
    assert_non_null(uni__state_log_at(&log, 9).bytes);
    uni__state_log_clear(&log);
    free(section);
}

/* {name: {"rounds": shared, "shards": 2, ...}} as rank `rank` of two would say it, of a range of
 * ten elements. */
static uni_value *ranks_of_two(bool shared, bool both)
{
    uni_value *ranks = uni_value_list();
    for (int rank = 0; rank < 2; rank++) {
        uni_value *position = uni_value_dict(), *section = uni_value_dict();
        uni_value *pieces = uni_value_list(), *piece = uni_value_list();
        const int64_t numbers[5] = { 0, shared ? 4 + rank : 5 * rank, shared ? 10 : 5 * rank + 5, 0,
                                     0 };
        void *bytes = NULL;
        size_t size = 0;
        for (int i = 0; i < 5; i++)
            assert_int_equal(uni_list_take(piece, uni_value_int(numbers[i])), 0);
        assert_int_equal(uni_list_take(pieces, piece), 0);
        assert_int_equal(uni_dict_take(position, "version", uni_value_int(1)), 0);
        assert_int_equal(uni_dict_take(position, "elements", uni_value_int(10)), 0);
        assert_int_equal(uni_dict_take(position, "rounds", uni_value_int(shared)), 0);
        assert_int_equal(uni_dict_take(position, "shards", uni_value_int(2)), 0);
        assert_int_equal(uni_dict_take(position, "epoch", uni_value_int(1)), 0);
        assert_int_equal(uni_dict_take(position, "end", uni_value_int(-1)), 0);
        assert_int_equal(uni_dict_take(position, "pieces", pieces), 0);
        assert_int_equal(uni__msgpack_write(&bytes, &size, position, NULL), 0);
        assert_int_equal(uni_dict_take(section, "own", uni_value_bytes(&rank, sizeof rank)), 0);
        if (rank == 0 || both)
            assert_int_equal(uni_dict_take(section, "dataset/x", uni_value_bytes(bytes, size)), 0);
        assert_int_equal(uni_list_take(ranks, section), 0);
        uni_value_free(position);
        free(bytes);
    }
    return ranks;
}

static void test_merging(void **state)
{
    uni_value *ranks = ranks_of_two(false, true), *merged = uni__state_merge_datasets(ranks);
    const uni_value *pieces = uni_dict_get(uni_dict_get(merged, "x"), "pieces");
    assert_int_equal(uni_dict_size(merged), 1);
    assert_int_equal(uni_list_size(pieces), 2);
    uni_value_free(merged);
    uni_value_free(ranks);
    /* A rank is missing: from the beginning, rather than without its part. */
    ranks = ranks_of_two(false, false);
    merged = uni__state_merge_datasets(ranks);
    assert_int_equal(uni_dict_size(merged), 0);
    uni_value_free(merged);
    uni_value_free(ranks);
    ranks = ranks_of_two(true, false); /* shared: one rank speaks for both */
    merged = uni__state_merge_datasets(ranks);
    assert_int_equal(uni_dict_size(merged), 1);
    uni_value_free(merged);
    uni_value_free(ranks);
}

static size_t own_names(const uni_value *ranks, int rank, int size)
{
    uni_value *order = uni_value_dict();
    assert_int_equal(uni__state_add_to_order(order, ranks, NULL, rank, size), 0);
    size_t count = uni_dict_size(uni_dict_get(order, "state"));
    uni_value_free(order);
    return count;
}

static void test_orders(void **state)
{
    uni_value *ranks = ranks_of_two(false, true);
    assert_int_equal(own_names(ranks, 1, 2), 2);
    assert_int_equal(own_names(ranks, 1, 3), 1); /* parts of two are not parts of three */
    assert_int_equal(own_names(ranks, 2, 3), 0);
    assert_int_equal(own_names(NULL, 0, 1), 0);
    uni_value_free(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_section_holds_until_the_next),
        cmocka_unit_test(test_what_all_have_passed_is_forgotten),
        cmocka_unit_test(test_a_log_is_bounded),
        cmocka_unit_test(test_merging),
        cmocka_unit_test(test_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
