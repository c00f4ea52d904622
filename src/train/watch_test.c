/* watch_test.c - what a run says of ranks that wait: for the disk, for a rank that has ended, for a
 * report that does not come. Each once, and in time. */
#include <stdio.h>
#include <string.h>

#include "train/test_helpers.h"

static void watch(double seconds)
{
    the->now += (uint64_t)(seconds * 1e9);
    uni__run_watch(&the->run, the->now);
}

static void a_slow_disk(void **state)
{
    uni__page *page = the->pages[2];
    the->run.attempt.last_report_ns = the->now + 1000 * SECOND;
    atomic_store(&page->checkpoints_taken, 8);
    atomic_store(&page->checkpoints_done, 7);
    watch(5);
    watch(5);
    assert_calls(""); /* there is room for one more */
    atomic_store(&page->checkpoints_taken, 9);
    watch(0);
    watch(1);
    assert_calls("");
    atomic_store(&page->checkpoints_done, 8); /* it moves: the second begins anew */
    watch(0);
    atomic_store(&page->checkpoints_taken, 10);
    watch(0);
    watch(1);
    assert_calls("");
    watch(1e-6);
    assert_calls("tell 2; ");
    assert_told("rank 2 saves checkpoints faster than the disk takes them");
    watch(100);
    assert_calls(""); /* said once */
}

static void without_a_page(void **state)
{
    uni__page *page = the->pages[1];
    the->pages[1] = NULL; /* before the first spawn */
    the->run.attempt.last_report_ns = the->now;
    watch(0);
    assert_calls("");
    the->pages[1] = page;
}

static const char *ended(double for_seconds)
{
    static char sentence[400];
    uni__run_say_ended(&the->run, (uint64_t)(for_seconds * 1e9), the->now, sentence,
                       sizeof sentence);
    return sentence;
}

static void who_has_ended(void **state)
{
    assert_string_equal(ended(0), "");
    assert_int_equal(uni__run_first_ended(&the->run), -1);
    the->ranks[2].done = true;
    the->ranks[2].ended_ns = the->now;
    the->ranks[2].iteration = 7;
    the->ranks[0].iteration = 9;
    the->now += 3 * SECOND;
    assert_string_equal(ended(3),
                        "rank 2 has returned after iteration 7, and rank 0 (iteration 9) may wait "
                        "for it in a collective: let every rank run the same number of steps");
    assert_string_equal(ended(3.1), "");
    assert_int_equal(uni__run_first_ended(&the->run), 2);
    /* Of several the first; a session that is closed has ended, too. */
    the->workers[1].state = UNI__WORKER_CLOSING;
    the->ranks[1].ended_ns = the->now - 3 * SECOND;
    assert_non_null(
        strstr(ended(3), "rank 1 has closed its session after iteration 0, and rank 0"));
    assert_int_equal(uni__run_first_ended(&the->run), 1);
    /* Ranks that are not in the group neither end nor wait. */
    the->ranks[0].away = the->ranks[1].away = true;
    assert_non_null(strstr(ended(3), "rank 2 has returned after iteration 7, and rank 3"));
    assert_int_equal(uni__run_first_ended(&the->run), 2);
    the->ranks[3].done = true;
    assert_string_equal(ended(0), ""); /* none is left that could wait */
    the->ranks[3].done = false;
    the->trainer.roles.servers = 1; /* members end as their coordinator says */
    assert_string_equal(ended(0), "");
}

static void ranks_that_wait_for_it(void **state)
{
    the->run.attempt.last_report_ns = the->now;
    the->ranks[1].done = true;
    the->ranks[1].ended_ns = the->now;
    watch(10 - 1e-6);
    assert_calls("");
    watch(1e-6);
    assert_calls("tell -1; ");
    assert_told("no rank has reported for 10 s: rank 1 has returned after iteration 0");
    assert_told("--progress-timeout");
    watch(10);
    assert_calls("");
}

static void reports_still_come(void **state)
{
    the->ranks[1].done = true;
    the->ranks[1].ended_ns = the->now;
    for (int i = 0; i < 5; i++) {
        the->run.attempt.last_report_ns = the->now;
        watch(9);
    }
    assert_calls("");
    watch(2);
    assert_calls("tell -1; ");
}

static void synchronous_checkpoints(void **state)
{
    the->run.attempt.last_report_ns = the->now;
    the->missing = 3;
    the->giver = 1;
    the->missing_iteration = 12;
    watch(20);
    assert_calls(""); /* report() does not wait for it */
    the->run.request.synchronous = true;
    the->run.attempt.last_report_ns = the->now;
    watch(9);
    assert_calls("");
    the->missing = -1;
    watch(2);
    assert_calls(""); /* it is complete */
    the->missing = 3;
    watch(0);
    assert_calls("tell 1; ");
    assert_told("rank 1 waits in report() for its checkpoint of iteration 12, which rank 3 has "
                "not reported");
    watch(50);
    assert_calls("");
}

static void the_cause_names_it(void **state)
{
    uni__cause error = { .kind = UNI__CAUSE_ERROR, .rank = 0 };
    snprintf(error.message, sizeof error.message, "rank 0: connection reset by peer");
    uni__run_name_ended(&the->run, &error);
    assert_string_equal(error.message, "rank 0: connection reset by peer");
    assert_string_equal(error.hint, "");
    the->ranks[2].done = true;
    the->ranks[2].iteration = 3;
    uni__cause killed = { .kind = UNI__CAUSE_SIGNAL, .message = "killed" };
    uni__run_name_ended(&the->run, &killed);
    assert_string_equal(killed.message, "killed"); /* it explains itself */
    the->trainer.roles.servers = 1;
    uni__run_name_ended(&the->run, &error);
    assert_string_equal(error.hint, "");
    the->trainer.roles.servers = 0;
    uni__run_name_ended(&the->run, &error);
    assert_string_equal(error.message,
                        "rank 0: connection reset by peer; rank 2 had returned from the train "
                        "function before, after iteration 3: all ranks must take part in the same "
                        "collectives (run the same number of steps, or join)");
    assert_string_equal(error.hint, strstr(error.message, "rank 2"));
    /* A long message is cut, the hint never. */
    memset(error.message, 'x', sizeof error.message - 1);
    error.message[sizeof error.message - 1] = '\0';
    uni__run_name_ended(&the->run, &error);
    size_t length = strlen(error.message);
    assert_true(length < sizeof error.message);
    assert_string_equal(error.message + length - strlen(error.hint), error.hint);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_slow_disk),        TEST(without_a_page),
        TEST(who_has_ended),      TEST(ranks_that_wait_for_it),
        TEST(reports_still_come), TEST(synchronous_checkpoints),
        TEST(the_cause_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
