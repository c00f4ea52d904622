/* budget_test.c - whether a failed run is started once more, for every rule, and when. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "train/budget.h"

#define SECOND 1000000000ull

static const uni__progress nowhere = { 0 }, somewhere = { .iteration = 5, .checkpoints = 2 };

/* "again", or the end of the sentence. */
static const char *ask(const uni__budget *budget, int max_failures, const uni__cause *cause,
                       const uni__progress *now, bool counts)
{
    static char sentence[256];
    sentence[0] = '\0';
    const char *end =
        uni__budget_verdict(budget, &(uni_trainer_options){ .max_failures = max_failures }, cause,
                            now, counts, sentence, sizeof sentence);
    return end ? end : "again";
}

static void failures_are_counted(void **state)
{
    uni__cause cause = { .kind = UNI__CAUSE_SIGNAL, .signal = SIGSEGV };
    uni__budget budget = { .before = { .rank = -1 } };
    assert_string_equal(ask(&budget, UNI_NO_RETRIES, &cause, &nowhere, true), "");
    assert_string_equal(ask(&budget, 2, &cause, &nowhere, true), "again");
    budget.failures = 1;
    assert_string_equal(ask(&budget, 2, &cause, &nowhere, true), "again");
    assert_string_equal(ask(&budget, 1, &cause, &nowhere, true),
                        " (restarted 1 time, as many as max_failures allows)");
    budget.failures = 2;
    assert_string_equal(ask(&budget, 2, &cause, &nowhere, true),
                        " (restarted 2 times, as many as max_failures allows)");
    /* A preemption, or a host that may come back, costs nothing. */
    assert_string_equal(ask(&budget, 2, &cause, &nowhere, false), "again");
    budget.failures = 1000;
    assert_string_equal(ask(&budget, -1, &cause, &nowhere, true), "again");
}

static void some_failures_are_final(void **state)
{
    uni__budget budget = { .before = { .rank = -1 } };
    uni__cause usage = { .kind = UNI__CAUSE_EXIT, .exit_code = UNI_EXIT_USAGE },
               missing = { .kind = UNI__CAUSE_EXIT, .exit_code = 127 },
               denied = { .kind = UNI__CAUSE_EXIT, .exit_code = 126 },
               plain = { .kind = UNI__CAUSE_EXIT, .exit_code = 1 },
               full = { .kind = UNI__CAUSE_DISK_FULL }, error = { .kind = UNI__CAUSE_ERROR };
    assert_non_null(strstr(ask(&budget, 9, &usage, &somewhere, true), "usage error"));
    assert_non_null(strstr(ask(&budget, 9, &missing, &nowhere, true), "not found"));
    assert_non_null(strstr(ask(&budget, 9, &denied, &nowhere, true), "not found"));
    /* After a report the program was there: 127 is its own. */
    assert_string_equal(ask(&budget, 9, &missing, &somewhere, true), "again");
    assert_string_equal(ask(&budget, 9, &plain, &nowhere, true), "again");
    assert_non_null(strstr(ask(&budget, 9, &full, &somewhere, true), "first make room"));
    assert_string_equal(ask(&budget, 9, &error, &somewhere, true), "again");
    uni_trainer_options rules = { .max_failures = 9, .no_retry_errors = true };
    assert_string_equal(uni__budget_verdict(&budget, &rules, &error, &somewhere, true, NULL, 0),
                        "");
    assert_null(uni__budget_verdict(&budget, &rules, &plain, &somewhere, true, NULL, 0));
    /* A program has only its exit code to tell of an error. */
    uni__cause of_shell = { .kind = UNI__CAUSE_EXIT, .exit_code = 137 },
               killed = { .kind = UNI__CAUSE_SIGNAL, .signal = SIGKILL };
    budget.programs = true;
    assert_string_equal(uni__budget_verdict(&budget, &rules, &plain, &somewhere, true, NULL, 0),
                        "");
    assert_null(uni__budget_verdict(&budget, &rules, &of_shell, &somewhere, true, NULL, 0));
    assert_null(uni__budget_verdict(&budget, &rules, &killed, &somewhere, true, NULL, 0));
    assert_string_equal(ask(&budget, 9, &plain, &nowhere, true), "again");
    budget.no_retry = true;
    snprintf(budget.why, sizeof budget.why, " (not started again: no score)");
    assert_string_equal(ask(&budget, 9, &plain, &somewhere, true), budget.why);
    budget.why[0] = '\0';
    assert_string_equal(ask(&budget, 9, &plain, &somewhere, true), "");
}

static void a_crash_loop_ends(void **state)
{
    uni__cause cause = { .kind = UNI__CAUSE_SIGNAL, .signal = SIGSEGV, .rank = 1, .iteration = 5 };
    uni__budget budget = { .before = cause, .at_start = somewhere };
    assert_non_null(
        strstr(ask(&budget, -1, &cause, &somewhere, true), "same iteration 5 twice without"));
    /* With a number of retries that number decides. */
    assert_string_equal(ask(&budget, 3, &cause, &somewhere, true), "again");
    uni__cause other = cause;
    other.rank = 0;
    assert_string_equal(ask(&budget, -1, &other, &somewhere, true), "again");
    other = cause;
    other.iteration = 6;
    assert_string_equal(ask(&budget, -1, &other, &somewhere, true), "again");
    other = cause;
    other.kind = UNI__CAUSE_OOM;
    assert_string_equal(ask(&budget, -1, &other, &somewhere, true), "again");
    uni__progress further = { .iteration = 6, .checkpoints = 2 },
                  saved = { .iteration = 5, .checkpoints = 3 },
                  stepped = { .iteration = 5, .checkpoints = 2, .steps = 1 };
    assert_string_equal(ask(&budget, -1, &cause, &further, true), "again");
    assert_string_equal(ask(&budget, -1, &cause, &saved, true), "again");
    assert_string_equal(ask(&budget, -1, &cause, &stepped, true), "again");
}

/* What kills a rank from outside is not its crash. */
static void kills_are_no_crash_loop(void **state)
{
    static const int outside[] = { SIGKILL, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
    static const uni__cause_class kinds[] = { UNI__CAUSE_HOST, UNI__CAUSE_LAUNCHER,
                                              UNI__CAUSE_LAUNCH };
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        uni__cause cause = { .kind = UNI__CAUSE_SIGNAL, .signal = outside[i] };
        uni__budget budget = { .before = cause };
        assert_string_equal(ask(&budget, -1, &cause, &nowhere, true), "again");
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uni__cause cause = { .kind = kinds[i] };
        uni__budget budget = { .before = cause };
        assert_string_equal(ask(&budget, -1, &cause, &nowhere, true), "again");
    }
}

static void waits_longer_each_time(void **state)
{
    static const int waits[] = { 0, 50, 100, 200, 400, 800, 1600, 3200, 3200, 3200 };
    uni__budget budget = { .at_start = somewhere };
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++)
        assert_int_equal(uni__budget_wait_ms(&budget, SECOND - 1, &somewhere), waits[i]);
    /* An attempt that lasted, or got somewhere, begins the count anew. */
    assert_int_equal(uni__budget_wait_ms(&budget, SECOND, &somewhere), 0);
    assert_int_equal(uni__budget_wait_ms(&budget, 1, &somewhere), 0);
    assert_int_equal(uni__budget_wait_ms(&budget, 1, &somewhere), 50);
    uni__progress further = { .iteration = 6, .checkpoints = 2 };
    assert_int_equal(uni__budget_wait_ms(&budget, 1, &further), 0);
    assert_int_equal(uni__budget_wait_ms(&budget, 1, &somewhere), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_are_counted),   cmocka_unit_test(some_failures_are_final),
        cmocka_unit_test(a_crash_loop_ends),      cmocka_unit_test(kills_are_no_crash_loop),
        cmocka_unit_test(waits_longer_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
