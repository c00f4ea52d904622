/* outcome_test.c - the end of a run is told once and seen by every thread that waits for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "train/outcome.h"

static void begins_with_nothing(void **state)
{
    uni__outcome outcome;
    memset(&outcome, 0xaa, sizeof outcome);
    uni__outcome_init(&outcome);
    assert_int_equal(outcome.cause.kind, UNI__CAUSE_NONE);
    assert_int_equal(outcome.cause.rank, -1);
    assert_int_equal(outcome.error.code, 0);
    assert_int_equal(outcome.progress.iteration, 0);
    assert_string_equal(outcome.latest_path, "");
    assert_false(uni__outcome_is_over(&outcome));
    outcome.cause.log_tail = strdup("x"); /* both are freed with it */
    outcome.kept = uni_value_list();
    uni__outcome_clear(&outcome);
}

static void *wait_for(void *argument)
{
    uni__outcome *outcome = argument;
    uni__outcome_wait(outcome);
    return uni__outcome_is_over(outcome) ? outcome : NULL;
}

static void wakes_all(void **state)
{
    uni__outcome outcome;
    pthread_t threads[3];
    void *seen;
    uni__outcome_init(&outcome);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for, &outcome), 0);
    nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    uni__outcome_tell(&outcome);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], &seen), 0);
        assert_ptr_equal(seen, &outcome);
    }
    uni__outcome_wait(&outcome); /* at once */
    uni__outcome_clear(&outcome);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(begins_with_nothing),
                                        cmocka_unit_test(wakes_all) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
