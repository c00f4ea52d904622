/* first_cause_test.c - which of several failures is named: what may be the consequence of another
 * is held for a moment, and given up for a better one. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "train/test_helpers.h"

static uni__cause cause_of(uni__cause_class kind, int rank, int signal)
{
    return (uni__cause){ .kind = kind, .rank = rank, .signal = signal, .exit_code = -1 };
}

static bool hold(uni__cause_class kind, int rank, int signal)
{
    uni__cause cause = cause_of(kind, rank, signal);
    return uni__first_cause_hold(&the->run, &cause);
}

/* While another rank is on its way out. A kill, a freeze and the like have no other cause. */
static void what_is_held(void **state)
{
    static const struct {
        uni__cause_class kind;
        int signal;
        bool held;
    } cases[] = {
        { UNI__CAUSE_ERROR, 0, true },         { UNI__CAUSE_EXIT, 0, true },
        { UNI__CAUSE_SIGNAL, SIGABRT, true },  { UNI__CAUSE_SIGNAL, SIGSEGV, false },
        { UNI__CAUSE_SIGNAL, SIGKILL, false }, { UNI__CAUSE_OOM, 0, false },
        { UNI__CAUSE_STOPPED, 0, false },      { UNI__CAUSE_HOST, 0, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        the->run.attempt.held.kind = UNI__CAUSE_NONE;
        the->is_ending[2] = true;
        assert_int_equal(hold(cases[i].kind, 1, cases[i].signal), cases[i].held);
        assert_int_equal(the->run.attempt.held.kind,
                         cases[i].held ? cases[i].kind : UNI__CAUSE_NONE);
        /* Nothing else is on its way out: it is its own cause. */
        the->run.attempt.held.kind = UNI__CAUSE_NONE;
        the->is_ending[2] = false;
        assert_false(hold(cases[i].kind, 1, cases[i].signal));
    }
    assert_calls("");
}

static void whose_end_counts(void **state)
{
    the->is_ending[1] = true; /* its own */
    assert_false(hold(UNI__CAUSE_EXIT, 1, 0));
    the->is_ending[3] = true;
    the->ranks[3].done = true; /* it has returned: it may end */
    assert_false(hold(UNI__CAUSE_EXIT, 1, 0));
    the->ranks[3].done = false;
    the->workers[3].pid = 0; /* it is gone */
    assert_false(hold(UNI__CAUSE_EXIT, 1, 0));
    the->workers[3].pid = FAKE_PID + 3;
    assert_true(hold(UNI__CAUSE_EXIT, 1, 0));
}

static void nothing_is_held_elsewhere(void **state)
{
    the->is_ending[2] = true;
    the->run.state = UNI__RUN_FAILING;
    assert_false(hold(UNI__CAUSE_ERROR, 1, 0));
    the->run.state = UNI__RUN_RUNNING;
    the->trainer.roles.servers = 1; /* members are restarted one by one */
    assert_false(hold(UNI__CAUSE_ERROR, 1, 0));
    the->trainer.roles.servers = 0;
    assert_true(hold(UNI__CAUSE_ERROR, 1, 0));
}

/* An error, then an exit, then an abort, then a kill: each one explains those before it. */
static void the_better_one_wins(void **state)
{
    the->is_ending[0] = true;
    assert_true(hold(UNI__CAUSE_ERROR, 1, 0));
    assert_true(hold(UNI__CAUSE_ERROR, 2, 0));
    assert_int_equal(the->run.attempt.held.rank, 1); /* the second error proves nothing */
    assert_true(hold(UNI__CAUSE_EXIT, 2, 0));
    assert_int_equal(the->run.attempt.held.rank, 2);
    assert_true(hold(UNI__CAUSE_SIGNAL, 3, SIGABRT));
    assert_int_equal(the->run.attempt.held.rank, 3);
    assert_true(hold(UNI__CAUSE_EXIT, 1, 0));
    assert_int_equal(the->run.attempt.held.rank, 3);
    assert_false(hold(UNI__CAUSE_SIGNAL, 0, SIGKILL)); /* this is it */
    assert_int_equal(the->run.attempt.held.kind, UNI__CAUSE_NONE);
    uni__first_cause_look(&the->run);
    assert_calls("");
}

/* The time runs from the first failure, not from the one that is better. */
static void held_for_two_seconds(void **state)
{
    the->is_ending[0] = true;
    assert_true(hold(UNI__CAUSE_ERROR, 1, 0));
    the->now += SECOND;
    assert_true(hold(UNI__CAUSE_EXIT, 2, 0));
    uni__first_cause_look(&the->run);
    the->now += SECOND - 1;
    uni__first_cause_look(&the->run);
    assert_calls("");
    the->now++;
    uni__first_cause_look(&the->run);
    assert_calls("fail 2; ");
    assert_int_equal(the->failed.kind, UNI__CAUSE_EXIT);
    uni__first_cause_look(&the->run);
    assert_calls(""); /* once */
}

static void released_when_the_other_has_ended(void **state)
{
    the->is_ending[0] = true;
    assert_true(hold(UNI__CAUSE_ERROR, 1, 0));
    uni__first_cause_look(&the->run);
    assert_calls("");
    the->ranks[0].done = true; /* it ended well: it is not the cause */
    uni__first_cause_look(&the->run);
    assert_calls("fail 1; ");
}

/* Their processes cannot be looked at: every such failure waits a quarter of a second. */
static void ranks_of_other_hosts(void **state)
{
    the->trainer.hosts = (uni__hosts *)the; /* only its presence counts */
    assert_true(hold(UNI__CAUSE_EXIT, 1, 0));
    the->now += SECOND / 4 - 1;
    uni__first_cause_look(&the->run);
    assert_calls("");
    the->now++;
    uni__first_cause_look(&the->run);
    assert_calls("fail 1; ");
    the->run.state = UNI__RUN_RUNNING;
    assert_false(hold(UNI__CAUSE_SIGNAL, 1, SIGKILL));
    the->run.num_workers = 1; /* it has no peer */
    assert_false(hold(UNI__CAUSE_EXIT, 0, 0));
}

/* A framework's connections also break when a rank returns early: its error waits a tenth of a
 * second for that return. */
static void errors_of_frameworks(void **state)
{
    static const struct {
        const char *backend;
        bool held;
    } cases[] = { { "torch", true },
                  { "tensorflow", true },
                  { "native", false },
                  { "none", false },
                  { "horovod", false } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        the->run.attempt.held.kind = UNI__CAUSE_NONE;
        the->trainer.options.backend = cases[i].backend;
        assert_int_equal(hold(UNI__CAUSE_ERROR, 1, 0), cases[i].held);
        the->run.attempt.held.kind = UNI__CAUSE_NONE;
        assert_false(hold(UNI__CAUSE_EXIT, 1, 0));
    }
    the->trainer.options.backend = "torch";
    assert_true(hold(UNI__CAUSE_ERROR, 1, 0));
    the->now += SECOND / 10 - 1;
    uni__first_cause_look(&the->run);
    assert_calls("");
    the->ranks[3].done = true; /* here it is */
    uni__first_cause_look(&the->run);
    assert_calls("fail 1; ");
    the->run.state = UNI__RUN_RUNNING;
    assert_false(hold(UNI__CAUSE_ERROR, 1, 0)); /* a rank had returned before */
    the->ranks[3].done = false;
    assert_true(hold(UNI__CAUSE_ERROR, 1, 0));
    the->now += SECOND / 10;
    uni__first_cause_look(&the->run);
    assert_calls("fail 1; ");
    the->run.state = UNI__RUN_RUNNING;
    the->run.num_workers = 1;
    assert_false(hold(UNI__CAUSE_ERROR, 0, 0));
}

static void a_run_that_is_over_keeps_it(void **state)
{
    the->is_ending[0] = true;
    assert_true(hold(UNI__CAUSE_ERROR, 1, 0));
    the->run.state = UNI__RUN_SETTLING;
    the->now += 10 * SECOND;
    uni__first_cause_look(&the->run);
    assert_calls("");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_held),
        TEST(whose_end_counts),
        TEST(nothing_is_held_elsewhere),
        TEST(the_better_one_wins),
        TEST(held_for_two_seconds),
        TEST(released_when_the_other_has_ended),
        TEST(ranks_of_other_hosts),
        TEST(errors_of_frameworks),
        TEST(a_run_that_is_over_keeps_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
