/* stop_test.c - all ranks stop at the same iteration: which one, what it waits for, and what
 * happens to ranks that do not stop. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "train/test_helpers.h"

static void at(int rank, int64_t begun, int64_t reported)
{
    atomic_store(&the->pages[rank]->iteration, begun);
    the->ranks[rank].iteration = reported;
}

static void expect_stop(int64_t iteration, uint32_t how)
{
    assert_int_equal(the->run.stop.at, iteration);
    for (int i = 0; i < FAKE_RANKS; i++) {
        assert_int_equal(atomic_load(&the->pages[i]->stop_at), iteration);
        assert_int_equal(atomic_load(&the->pages[i]->stop_at_known), 1);
        assert_int_equal(atomic_load(&the->pages[i]->stopping), how);
    }
}

/* One more than the highest that any rank has begun: it is ahead of all of them. */
static void behind_no_rank(void **state)
{
    at(0, 5, 5);
    at(1, 8, 7);
    at(2, 6, 6);
    at(3, 2, 3); /* a program without a session: its lines count */
    uni__run_stop(&the->run, UNI__STOPPING_CALLER);
    expect_stop(9, UNI__STOPS_AT_STEP);
    assert_calls("note stop; tell -1; ");
    assert_string_equal(the->note, "{\"reason\":\"the program asked for it\",\"stop_at\":9}");
    assert_told("all ranks stop at iteration 9 at the latest (the program asked for it)");
}

static void ranks_that_do_not_count(void **state)
{
    at(0, 5, 5);
    at(1, 90, 90);
    the->ranks[1].done = true;
    at(2, 80, 80);
    the->ranks[2].away = true;
    at(3, INT64_MAX, 6); /* what a worker scribbles is not believed */
    uni__run_stop(&the->run, UNI__STOPPING_PREEMPT);
    expect_stop(7, UNI__STOPS_AT_STEP);
    assert_told("(SIGTERM)");
}

static void why_is_said(void **state)
{
    static const struct {
        uni__stop_reason reason;
        const char *told;
    } cases[] = {
        { UNI__STOPPING_EARLY, "all ranks stop at iteration 1 (a rank asked to stop early)" },
        { UNI__STOPPING_RANK,
          "all ranks stop at iteration 1 at the latest (a rank says that it got SIGTERM)" },
        { UNI__STOPPING_INTERRUPT, "all ranks stop at iteration 1 at the latest (SIGINT)" },
        { UNI__STOPPING_TIME, "all ranks stop at iteration 1 at the latest (the time limit)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        the->run.stop = (uni__stop){ 0 };
        uni__run_stop(&the->run, cases[i].reason);
        assert_string_equal(the->told, cases[i].told);
    }
}

/* Ranks that stop early do so at an iteration; then a signal may want it sooner. */
static void a_signal_comes_before_a_wish(void **state)
{
    at(0, 3, 3);
    uni__run_stop(&the->run, UNI__STOPPING_EARLY);
    expect_stop(4, UNI__STOPS_AT_ITERATION);
    assert_calls("note stop; tell -1; ");
    at(0, 4, 4);
    the->now += SECOND;
    uni__run_stop(&the->run, UNI__STOPPING_PREEMPT);
    expect_stop(4, UNI__STOPS_AT_ITERATION); /* ranks may have stopped there */
    assert_int_equal(the->run.stop.reason, UNI__STOPPING_PREEMPT);
    assert_int_equal(the->run.stop.deadline_ns, the->now + 10 * SECOND);
    assert_int_equal(the->run.stop.soft_ns, the->now + 5 * SECOND);
    uni__run_stop(&the->run, UNI__STOPPING_EARLY);
    uni__run_stop(&the->run, UNI__STOPPING_CALLER);
    assert_int_equal(the->run.stop.reason, UNI__STOPPING_PREEMPT);
    assert_calls("");
}

static void in_every_state(void **state)
{
    static const struct {
        uni__run_state state;
        bool noted; /* that the run is to stop */
        const char *calls;
    } cases[] = {
        { UNI__RUN_RUNNING, true, "note stop; tell -1; " },
        { UNI__RUN_FAILING, true, "" },
        { UNI__RUN_SETTLING, true, "" },
        { UNI__RUN_WAITING, true, "finish; " },
        { UNI__RUN_FINISHING, false, "" },
        { UNI__RUN_DONE, false, "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        the->run.stop = (uni__stop){ 0 };
        the->run.state = cases[i].state;
        uni__run_stop(&the->run, UNI__STOPPING_CALLER);
        assert_int_equal(the->run.stop.reason != UNI__NOT_STOPPING, cases[i].noted);
        assert_calls(cases[i].calls);
    }
}

static void hosts_see_it_first(void **state)
{
    the->hosts_have_not_seen = true;
    at(0, 3, 3);
    uni__run_stop(&the->run, UNI__STOPPING_CALLER);
    assert_int_equal(the->run.stop.at, 0);
    assert_int_equal(atomic_load(&the->pages[0]->stopping), UNI__STOPS_AT_STEP);
    assert_int_equal(atomic_load(&the->pages[0]->stop_at_known), 0);
    assert_calls("");
    at(0, 6, 6);
    the->hosts_have_not_seen = false;
    uni__run_settle_stop(&the->run);
    expect_stop(7, UNI__STOPS_AT_STEP);
    at(0, 9, 9);
    uni__run_settle_stop(&the->run);
    expect_stop(7, UNI__STOPS_AT_STEP); /* chosen once */
}

/* Ranks of a trial that wait inside the report of an iteration stop there: one more would leave a
 * checkpoint that is newer than the last result. */
static void a_trial_in_lockstep(void **state)
{
    static const struct {
        bool trial, lockstep;
        uint32_t released;
        int64_t iteration, stop_at;
    } cases[] = {
        { true, true, 4, 5, 5 },
        { true, true, 5, 5, 6 },
        { false, true, 4, 5, 6 },
        { true, false, 4, 5, 6 },
        { true, true, 0, 0, 1 },
        /* The low 32 bits are in the page. */
        { true, true, UINT32_MAX, 1ll << 32, 1ll << 32 },
        { true, true, 0, 1ll << 32, (1ll << 32) + 1 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        the->run.stop = (uni__stop){ 0 };
        the->run.request.trial = cases[c].trial;
        the->trainer.options.lockstep = cases[c].lockstep;
        for (int i = 0; i < FAKE_RANKS; i++) {
            at(i, cases[c].iteration, 0);
            atomic_store(&the->pages[i]->released, cases[c].released);
            atomic_store(&the->pages[i]->stopping, 0);
        }
        uni__run_stop(&the->run, UNI__STOPPING_CALLER);
        expect_stop(cases[c].stop_at,
                    cases[c].trial ? UNI__STOPS_AT_ITERATION : UNI__STOPS_AT_STEP);
    }
    /* One that was let go on is enough. */
    the->run.stop = (uni__stop){ 0 };
    for (int i = 0; i < FAKE_RANKS; i++)
        at(i, 5, 0), atomic_store(&the->pages[i]->released, i == 2 ? 5 : 4);
    uni__run_stop(&the->run, UNI__STOPPING_CALLER);
    assert_int_equal(the->run.stop.at, 6);
}

/* Programs that do not link the library get SIGTERM at once; sessions at half of the grace time. */
static void programs_get_a_signal(void **state)
{
    the->run.request.program = uni_value_list();
    atomic_store(&the->pages[1]->owner, 0);
    the->workers[2].state = UNI__WORKER_CLOSING;
    atomic_store(&the->pages[3]->owner, 0);
    the->workers[3].pid = 0; /* it has ended */
    uni__run_stop(&the->run, UNI__STOPPING_PREEMPT);
    assert_calls("kill 1 15; kill 2 15; note stop; tell -1; ");
    the->now += 5 * SECOND - 1;
    uni__run_press_stop(&the->run, the->now);
    assert_calls("");
    the->now++;
    uni__run_press_stop(&the->run, the->now);
    assert_calls("kill 0 15; kill 1 15; kill 2 15; ");
    uni__run_press_stop(&the->run, the->now + SECOND);
    assert_calls("");
    the->run.stop = (uni__stop){ 0 };
    uni__run_stop(&the->run, UNI__STOPPING_EARLY); /* a wish of the ranks: no signal yet */
    assert_calls("note stop; tell -1; ");
    uni_value_free(the->run.request.program);
}

static void the_grace_time_ends(void **state)
{
    uni__run_stop(&the->run, UNI__STOPPING_PREEMPT);
    the->calls[0] = '\0';
    the->now += 10 * SECOND - 1;
    uni__run_press_stop(&the->run, the->now);
    assert_calls(""); /* functions get no signal while their session is open */
    the->now++;
    uni__run_press_stop(&the->run, the->now);
    assert_calls("tell -1; after 0; kill all; ");
    assert_told("some ranks did not stop within the grace time of 10 s and are killed");
    assert_int_equal(the->run.state, UNI__RUN_FAILING);
    assert_true(the->run.stop.hard);
    uni__run_press_stop(&the->run, the->now + SECOND);
    assert_calls("");
}

static void an_early_stop_that_some_ignore(void **state)
{
    uni__run_stop(&the->run, UNI__STOPPING_EARLY);
    the->workers[0].pid = the->workers[1].pid = 0; /* these two did */
    the->calls[0] = '\0';
    the->now += 10 * SECOND;
    uni__run_press_stop(&the->run, the->now);
    assert_calls("fail 2; ");
    assert_int_equal(the->failed.kind, UNI__CAUSE_NO_PROGRESS);
    assert_int_equal(the->failed.error_code, UNI_ETIMEOUT);
    assert_int_equal(the->failed.pid, FAKE_PID + 2);
    assert_string_equal(the->failed.message,
                        "a rank asked to stop early, but rank 2 (pid 102) did not stop within the "
                        "grace time of 10 s");
    assert_true(the->run.budget.no_retry);
}

static void without_grace(void **state)
{
    the->trainer.options.grace_seconds = UNI_GRACE_NONE;
    uni__run_stop(&the->run, UNI__STOPPING_PREEMPT);
    uni__run_press_stop(&the->run, the->now + 1);
    assert_told("within the grace time of 0 s");
    assert_true(the->run.stop.hard);
}

static void at_once(void **state)
{
    static const struct {
        uni__run_state state, after;
        const char *calls;
    } cases[] = {
        { UNI__RUN_RUNNING, UNI__RUN_FAILING, "after 0; kill all; " },
        { UNI__RUN_FAILING, UNI__RUN_FAILING, "after 0; kill all; " },
        { UNI__RUN_SETTLING, UNI__RUN_SETTLING, "" },
        { UNI__RUN_WAITING, UNI__RUN_FINISHING, "finish; " },
        { UNI__RUN_DONE, UNI__RUN_DONE, "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        the->run.stop = (uni__stop){ 0 };
        the->run.state = cases[i].state;
        uni__run_stop_now_posted(&the->trainer);
        assert_int_equal(the->run.stop.reason, UNI__STOPPING_CALLER);
        assert_true(the->run.stop.hard);
        assert_int_equal(the->run.state, cases[i].after);
        assert_calls(cases[i].calls);
    }
    /* The first reason stays, but for a wish of the ranks. */
    the->run.stop.reason = UNI__STOPPING_TIME;
    uni__run_stop_now(&the->run, UNI__STOPPING_INTERRUPT);
    assert_int_equal(the->run.stop.reason, UNI__STOPPING_TIME);
    the->run.stop.reason = UNI__STOPPING_EARLY;
    uni__run_stop_now(&the->run, UNI__STOPPING_INTERRUPT);
    assert_int_equal(the->run.stop.reason, UNI__STOPPING_INTERRUPT);
}

static void without_a_run(void **state)
{
    the->trainer.run = NULL; /* it has ended between the post and now */
    uni__run_stop_posted(&the->trainer);
    uni__run_stop_now_posted(&the->trainer);
    assert_calls("");
    assert_int_equal(the->run.stop.reason, UNI__NOT_STOPPING);
    the->trainer.run = &the->run;
    uni__run_stop_posted(&the->trainer);
    assert_int_equal(the->run.stop.reason, UNI__STOPPING_CALLER);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(behind_no_rank),      TEST(ranks_that_do_not_count),
        TEST(why_is_said),         TEST(a_signal_comes_before_a_wish),
        TEST(in_every_state),      TEST(hosts_see_it_first),
        TEST(a_trial_in_lockstep), TEST(programs_get_a_signal),
        TEST(the_grace_time_ends), TEST(an_early_stop_that_some_ignore),
        TEST(without_grace),       TEST(at_once),
        TEST(without_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
