/* attempt_test.c - what an attempt starts from: one thing at a time, and nothing is left open. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/attempt.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static uni_value *one_state(void)
{
    uni_value *list = uni_value_list();
    assert_int_equal(uni_list_take(list, uni_value_dict()), 0);
    return list;
}

static void one_takes_the_others_place(void **state)
{
    uni__start start = { .fd = -1, .iteration = 7 };
    int first = memfd_create("a", MFD_CLOEXEC), second = memfd_create("b", MFD_CLOEXEC);
    assert_true(uni__start_is_empty(&start));
    uni__start_set(&start, "", first, one_state());
    assert_false(uni__start_is_empty(&start));
    assert_non_null(start.state);
    uni__start_set(&start, "", second, NULL);
    assert_false(is_open(first));
    assert_true(is_open(second));
    assert_null(start.state);
    assert_null(start.data_states);
    start.pinned = true;
    uni__start_set(&start, "/runs/x/checkpoints/3", -1, one_state());
    assert_false(is_open(second));
    assert_string_equal(start.path, "/runs/x/checkpoints/3");
    assert_false(start.pinned); /* that was the other one */
    assert_false(uni__start_is_empty(&start));
    assert_int_equal(start.iteration, 7); /* counted by the run */
    uni__start_clear(&start);
    assert_true(uni__start_is_empty(&start));
    uni__start_clear(&start);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(one_takes_the_others_place) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
