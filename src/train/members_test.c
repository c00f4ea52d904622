/* members_test.c - the roles of ranks, and members of a run with parameter servers that are
 * restarted one by one. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "train/test_helpers.h"

static int with_servers(void **state)
{
    int status = fake_setup(state);
    if (status == 0)
        the->trainer.roles = (uni__roles){ .workers = 1, .servers = 2 }; /* chief, worker, 2 ps */
    return status;
}

static void names_of_roles(void **state)
{
    static const struct {
        uni__roles roles;
        const char *names;
    } cases[] = {
        { { .workers = 3 }, "worker 0, worker 1, worker 2, " },
        { { .workers = 2, .servers = 1 }, "chief 0, worker 0, worker 1, ps 0, " },
        { { .workers = 1, .servers = 2, .evaluators = 2 },
          "chief 0, worker 0, ps 0, ps 1, evaluator 0, evaluator 1, " },
        { { .workers = 1, .evaluators = 1 }, "worker 0, evaluator 0, " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char names[256] = "";
        for (int rank = 0, index; rank < uni__roles_size(&cases[i].roles); rank++) {
            const char *name = uni__role_of(&cases[i].roles, rank, &index);
            size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, "%s %d, ", name, index);
        }
        assert_string_equal(names, cases[i].names);
    }
}

static void only_the_chief_reports(void **state)
{
    the->ranks[2].restarts = the->ranks[3].quick_deaths = 4;
    assert_int_equal(uni__members_begin(&the->run, NULL), 0);
    assert_calls("no lines of 1; no lines of 2; no lines of 3; ");
    assert_int_equal(the->ranks[2].restarts + the->ranks[3].quick_deaths, 0);
    the->trainer.roles.servers = 0;
    assert_int_equal(uni__members_begin(&the->run, NULL), 0);
    assert_calls("");
    assert_false(uni__run_is_member(&the->run, 1));
    the->trainer.roles.servers = 2;
    assert_true(uni__run_is_member(&the->run, 1));
    assert_false(uni__run_is_member(&the->run, 0));
}

static bool lose(int rank, uni__cause *cause)
{
    *cause = (uni__cause){ .kind = UNI__CAUSE_SIGNAL, .signal = SIGKILL, .rank = rank };
    snprintf(cause->message, sizeof cause->message, "it was killed");
    return uni__member_lost(&the->run, rank, cause);
}

static void a_member_is_started_again(void **state)
{
    uni__cause cause;
    the->trainer.options.max_failures = 3;
    assert_true(lose(3, &cause));
    assert_calls("note member; tell 3; start 3; ");
    assert_string_equal(the->note,
                        "{\"rank\":3,\"role\":\"ps\",\"restarts\":1,\"message\":\"it was "
                        "killed\"}");
    assert_string_equal(the->told, "ps 1 is started again: it was killed");
    the->start_status = UNI_EIO;
    assert_true(lose(1, &cause));
    assert_string_equal(the->told, "worker 0 is started again: it was killed");
    assert_non_null(strstr(the->calls, "start 1; fatal "));
}

static void what_ends_the_attempt(void **state)
{
    uni__cause cause;
    the->trainer.options.max_failures = -1;
    assert_false(lose(0, &cause)); /* the chief */
    the->trainer.hosts = (uni__hosts *)the; /* only its presence counts */
    assert_false(lose(1, &cause));
    the->trainer.hosts = NULL;
    the->run.state = UNI__RUN_FAILING;
    assert_false(lose(1, &cause));
    the->run.state = UNI__RUN_RUNNING;
    the->trainer.options.max_failures = UNI_NO_RETRIES;
    assert_false(lose(1, &cause));
    assert_string_equal(cause.message,
                        "it was killed (worker 0; without retries no member is started again)");
    the->trainer.options.max_failures = 3;
    cause = (uni__cause){ .kind = UNI__CAUSE_EXIT, .exit_code = UNI_EXIT_USAGE, .message = "no" };
    assert_false(uni__member_lost(&the->run, 1, &cause));
    assert_string_equal(cause.message, "no");
    cause.exit_code = 1;
    assert_true(uni__member_lost(&the->run, 1, &cause));
    cause = (uni__cause){ .kind = UNI__CAUSE_SIGNAL, .exit_code = UNI_EXIT_USAGE };
    assert_true(uni__member_lost(&the->run, 1, &cause));
}

/* Deaths within a second of the start count, in a row. */
static void one_that_never_starts(void **state)
{
    static const struct {
        int max_failures, allowed;
    } cases[] = { { 0, 0 }, { 2, 2 }, { -1, 5 } };
    uni__cause cause;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        the->trainer.options.max_failures = cases[c].max_failures;
        the->ranks[2].quick_deaths = 0;
        the->workers[2].spawned_ns = the->now;
        the->now += SECOND - 1;
        for (int i = 0; i < cases[c].allowed; i++)
            assert_true(lose(2, &cause));
        the->workers[2].spawned_ns--; /* it lasted a second: the count begins anew */
        assert_true(lose(2, &cause));
        the->workers[2].spawned_ns++;
        for (int i = 0; i < cases[c].allowed; i++)
            assert_true(lose(2, &cause));
        assert_false(lose(2, &cause));
        char expected[128];
        snprintf(expected, sizeof expected,
                 "it was killed (ps 0, %d times within a second of its start)",
                 cases[c].allowed + 1);
        assert_string_equal(cause.message, expected);
    }
}

static void after_the_chief(void **state)
{
    uni__cause cause;
    the->trainer.options.max_failures = 3;
    the->ranks[0].done = true;
    assert_true(lose(2, &cause));
    assert_calls("done 2; ");
}

/* Its death is told as what it was ended for. */
static void a_frozen_member(void **state)
{
    uni__cause frozen = { .kind = UNI__CAUSE_STOPPED, .rank = 2, .message = "it was stopped" },
               cause;
    the->trainer.options.max_failures = 3;
    assert_true(uni__member_end(&the->run, &frozen));
    assert_true(uni__member_end(&the->run, &frozen));
    assert_calls("kill 2 9; "); /* once */
    assert_true(lose(2, &cause));
    assert_string_equal(the->told, "ps 0 is started again: it was stopped");
    assert_int_equal(cause.kind, UNI__CAUSE_STOPPED);
    assert_int_equal(the->ranks[2].ended_for.kind, UNI__CAUSE_NONE);
    frozen.rank = 0;
    assert_false(uni__member_end(&the->run, &frozen));
    frozen.rank = -1;
    assert_false(uni__member_end(&the->run, &frozen));
    frozen.rank = 1;
    the->trainer.hosts = (uni__hosts *)the;
    assert_false(uni__member_end(&the->run, &frozen));
    the->trainer.hosts = NULL;
    the->trainer.options.max_failures = UNI_NO_RETRIES;
    assert_false(uni__member_end(&the->run, &frozen));
}

/* Members follow the chief; those that do not are ended after two seconds. */
static void the_chief_returns(void **state)
{
    the->ranks[0].done = true;
    uni__members_chief_done(&the->run);
    assert_calls("after 2000; ");
    the->ranks[1].done = true;
    the->later(&the->trainer);
    assert_calls("kill 2 9; kill 3 9; ");
    the->run.state = UNI__RUN_FINISHING;
    the->later(&the->trainer);
    uni__members_chief_done(&the->run);
    assert_calls("");
    the->trainer.run = NULL;
    the->later(&the->trainer);
    assert_calls("");
    the->trainer.run = &the->run;
    the->run.state = UNI__RUN_RUNNING;
    the->trainer.roles.servers = 0;
    uni__members_chief_done(&the->run);
    assert_calls("");
}

/* One that was just started again would wait for the chief's first word for ever. */
static void started_again_too_late(void **state)
{
    static const struct {
        int restarts;
        uni__worker_state state;
        bool program, asked, killed;
    } cases[] = {
        { 1, UNI__WORKER_ORDERED, false, false, true },
        { 0, UNI__WORKER_ORDERED, false, false, false },
        { 1, UNI__WORKER_ORDERED, true, false, false },
        { 1, UNI__WORKER_RUNNING, false, false, false },
        { 1, UNI__WORKER_RUNNING, false, true, true },
        { 0, UNI__WORKER_RUNNING, false, true, false },
        { 1, UNI__WORKER_ENDED, false, true, false },
    };
    uni_value *program = uni_value_list();
    the->ranks[0].done = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        the->ranks[2].restarts = cases[i].restarts;
        the->ranks[2].asked_chief = cases[i].asked;
        the->workers[2].state = cases[i].state;
        the->run.request.program = cases[i].program ? program : NULL;
        uni__members_chief_done(&the->run);
        assert_calls(cases[i].killed ? "kill 2 9; after 2000; " : "after 2000; ");
    }
    uni_value_free(program);
}

static void mail_to_the_chief(void **state)
{
    the->ranks[1].restarts = the->ranks[2].restarts = the->ranks[3].restarts = 1;
    uni__member_mailed(&the->run, 2, 0);
    uni__member_mailed(&the->run, 3, 0);
    uni__member_mailed(&the->run, 1, 2); /* not to the chief */
    uni__member_mailed(&the->run, 0, 3); /* 3 has its answer */
    assert_calls("");
    the->ranks[0].done = true;
    uni__members_chief_done(&the->run);
    assert_calls("kill 2 9; after 2000; ");
    uni__member_mailed(&the->run, 1, 0); /* the chief has gone */
    assert_calls("kill 1 9; ");
    uni__member_mailed(&the->run, 0, -1); /* its last word to all */
    uni__members_chief_done(&the->run);
    assert_calls("after 2000; ");
    the->trainer.roles.servers = 0;
    uni__member_mailed(&the->run, 1, 0);
    assert_calls("");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, with_servers, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names_of_roles),        TEST(only_the_chief_reports), TEST(a_member_is_started_again),
        TEST(what_ends_the_attempt), TEST(one_that_never_starts),  TEST(after_the_chief),
        TEST(a_frozen_member),       TEST(the_chief_returns),      TEST(started_again_too_late),
        TEST(mail_to_the_chief),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
