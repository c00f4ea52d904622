/*
 * worker_test.c - every cell of a worker's life. The table below is written down by hand from
 * docs/architecture.md, as letters, and compared with what worker.c does; then the orders of events
 * that workers really have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "group/worker.h"

#define SECOND 1000000000ull

/* x refused, . dropped, = taken and the state stays, otherwise the state that it leads to. */
static const struct {
    int input;
    const char *cells; /* ended, spawned, ordered, greeted, running, closing */
} expected[] = {
    { UNI__WORKER_UNKNOWN, ".xxxxx" },  { UNI__SAYS_HELLO, ".grxx=" },
    { UNI__SAYS_REPORT, ".xx.=x" },     { UNI__SAYS_CHECKPOINT, ".xx.=x" },
    { UNI__SAYS_NEWEST, ".xx.=x" },     { UNI__SAYS_RETURN, ".xxxgx" },
    { UNI__SAYS_ERROR, ".xxxgx" },      { UNI__SAYS_CLOSED, ".xxxcx" },
    { UNI__WORKER_SNAPSHOT, ".=====" }, { UNI__WORKER_MAIL, ".=====" },
    { UNI__WORKER_LINE, ".=====" },     { UNI__WORKER_ORDER, "xoxrxx" },
    { UNI__WORKER_SHUTDOWN, "xcxcx=" }, { UNI__WORKER_EXIT, "=eeeee" },
};

static const char letters[] = "esogrc";

static void every_cell(void **state)
{
    size_t count = sizeof expected / sizeof expected[0];
    assert_int_equal(count, UNI__WORKER_INPUTS); /* none is missing */
    for (size_t i = 0; i < count; i++)
        for (int at = 0; at < UNI__WORKER_STATES; at++) {
            uni__worker worker = { .state = (uni__worker_state)at, .pid = 7, .life = 3 };
            char cell = expected[i].cells[at], sentence[128] = "";
            uni__worker_verdict want = cell == 'x'   ? UNI__WORKER_REFUSED
                                       : cell == '.' ? UNI__WORKER_DROPPED
                                                     : UNI__WORKER_TAKEN;
            const char *leads = strchr(letters, cell);
            int next = leads ? (int)(leads - letters) : at;
            uni__worker_say_refused(&worker, expected[i].input, sentence, sizeof sentence);
            int got = uni__worker_step(&worker, expected[i].input);
            if (got != (int)want || (int)worker.state != next)
                fail_msg("input %d in state %c: verdict %d, then state %c", expected[i].input,
                         letters[at], got, letters[worker.state]);
            assert_int_equal(strncmp(sentence, "it ", 3), 0);
            assert_null(strstr(sentence, "(null)"));
            assert_int_equal(worker.life, 3);
            assert_int_equal(worker.pid, next == UNI__WORKER_ENDED && at != next ? 0 : 7);
        }
}

static void play(uni__worker *worker, const char *inputs, const char *states)
{
    static const char keys[] = "?hrkteanSmlosx"; /* by the numbers of the inputs */
    static const int numbers[] = {
        UNI__WORKER_UNKNOWN,  UNI__SAYS_HELLO,  UNI__SAYS_REPORT, UNI__SAYS_CHECKPOINT,
        UNI__SAYS_RETURN,     UNI__SAYS_ERROR,  UNI__SAYS_CLOSED, UNI__SAYS_NEWEST,
        UNI__WORKER_SNAPSHOT, UNI__WORKER_MAIL, UNI__WORKER_LINE, UNI__WORKER_ORDER,
        UNI__WORKER_SHUTDOWN, UNI__WORKER_EXIT,
    };
    for (size_t i = 0; inputs[i]; i++) {
        int input = numbers[strchr(keys, inputs[i]) - keys];
        if (uni__worker_step(worker, input) != UNI__WORKER_TAKEN)
            fail_msg("%s: input %zu is not taken", inputs, i);
        if (letters[worker->state] != states[i])
            fail_msg("%s: state %c after input %zu", inputs, letters[worker->state], i);
    }
}

static void lives_as_they_are(void **state)
{
    uni__worker worker = { 0 };
    /* A warm worker: started before its first order, then two, then told to end. */
    uni__worker_spawned(&worker, false, 1);
    play(&worker, "hoSrkrntorelsx", "grrrrrrgrrggce");
    /* A group: the order is there before the worker is; one dies. */
    uni__worker_spawned(&worker, false, 2);
    play(&worker, "ohrx", "orre");
    /* A program of its own that opens its session, closes it and lingers. */
    uni__worker_spawned(&worker, true, 3);
    play(&worker, "ohraSmlx", "orrcccce");
    /* One that never does. */
    uni__worker_spawned(&worker, true, 4);
    play(&worker, "ollx", "oooe");
    /* Told to end before it was up. */
    uni__worker_spawned(&worker, false, 5);
    play(&worker, "shx", "cce");
    assert_int_equal(worker.life, 5);
}

static void types_of_any_number(void **state)
{
    assert_int_equal(uni__worker_input_of(UNI__SAYS_HELLO), UNI__SAYS_HELLO);
    assert_int_equal(uni__worker_input_of(UNI__SAYS_NEWEST), UNI__SAYS_NEWEST);
    /* What only the controller may cause cannot be said in the ring. */
    for (int type = -300; type < 300; type++)
        if (type < UNI__SAYS_HELLO || type > UNI__SAYS_NEWEST)
            assert_int_equal(uni__worker_input_of(type), UNI__WORKER_UNKNOWN);
}

static void says_why(void **state)
{
    char sentence[128];
    uni__worker worker = { .state = UNI__WORKER_ORDERED };
    uni__worker_say_refused(&worker, UNI__SAYS_REPORT, sentence, sizeof sentence);
    assert_string_equal(sentence, "it sent a report before its hello");
    worker.state = UNI__WORKER_RUNNING;
    uni__worker_say_refused(&worker, UNI__SAYS_HELLO, sentence, sizeof sentence);
    assert_string_equal(sentence, "it said hello while it worked on its order");
}

static void a_new_life_forgets_the_old(void **state)
{
    uni__worker worker = { 0 };
    uni__worker_spawned(&worker, false, 5 * SECOND);
    uni__region *region = uni__region_new(4096);
    uni__worker_take_snapshot(&worker, 1, uni__region_ref(region));
    worker.pid = 12;
    worker.stopped_ns = 6 * SECOND;
    worker.silent = true;
    worker.heartbeat = 9;
    uni__worker_spawned(&worker, true, 7 * SECOND);
    assert_int_equal(worker.state, UNI__WORKER_SPAWNED);
    assert_true(worker.is_program);
    assert_false(worker.silent);
    assert_int_equal(worker.life, 2);
    assert_int_equal(worker.pid, 0);
    assert_int_equal(worker.stopped_ns, 0);
    assert_int_equal(worker.heartbeat, 0);
    assert_int_equal(worker.spawned_ns, 7 * SECOND);
    assert_null(worker.snapshots[1]);
    assert_int_equal(atomic_load(&region->references), 1); /* ours */
    uni__worker_take_snapshot(&worker, 0, region);
    assert_int_equal(uni__worker_step(&worker, UNI__WORKER_EXIT), UNI__WORKER_TAKEN);
    assert_null(worker.snapshots[0]);
    assert_false(uni__worker_is_live(&worker));
}

static void questions(void **state)
{
    static const struct {
        uni__worker_state state;
        bool live, greeted, idle;
    } answers[] = {
        { UNI__WORKER_ENDED, false, false, false },  { UNI__WORKER_SPAWNED, true, false, true },
        { UNI__WORKER_ORDERED, true, false, false }, { UNI__WORKER_GREETED, true, true, true },
        { UNI__WORKER_RUNNING, true, true, false },  { UNI__WORKER_CLOSING, true, true, false },
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        uni__worker worker = { .state = answers[i].state };
        assert_int_equal(uni__worker_is_live(&worker), answers[i].live);
        assert_int_equal(uni__worker_has_greeted(&worker), answers[i].greeted);
        assert_int_equal(uni__worker_is_idle(&worker), answers[i].idle);
    }
}

static void heartbeats(void **state)
{
    uni__worker worker = { 0 };
    uni__worker_spawned(&worker, false, SECOND);
    /* The clock starts when we first look, not at the spawn; the first beat has a minute. */
    assert_true(uni__worker_listen(&worker, 0, 100 * SECOND, 100 * SECOND, false) == 0);
    assert_true(uni__worker_listen(&worker, 0, 159 * SECOND, 159 * SECOND, false) == 0);
    assert_true(uni__worker_listen(&worker, 0, 161 * SECOND, 161 * SECOND, false) == 61);
    assert_true(uni__worker_listen(&worker, 1, 162 * SECOND, 162 * SECOND, false) == 0);
    assert_true(uni__worker_listen(&worker, 1, 163 * SECOND, 163 * SECOND, false) == 0);
    assert_true(uni__worker_listen(&worker, 1, 164 * SECOND, 164 * SECOND, false) == 2);
    /* It is said again and again, and once when it is heard again. */
    worker.silent = true;
    assert_true(uni__worker_listen(&worker, 1, 165 * SECOND, 165 * SECOND, false) == 3);
    assert_true(uni__worker_listen(&worker, 2, 166 * SECOND, 166 * SECOND, false) == -1);
    assert_true(uni__worker_listen(&worker, 2, 166 * SECOND, 166 * SECOND, false) == 0);
    /* What its host has not told yet proves nothing, nor do beats from before we slept. */
    assert_true(uni__worker_listen(&worker, 2, 180 * SECOND, 166 * SECOND, false) == 0);
    assert_true(uni__worker_listen(&worker, 2, 180 * SECOND, 160 * SECOND, false) == 0);
    assert_true(uni__worker_listen(&worker, 2, 180 * SECOND, 180 * SECOND, true) == 0);
    assert_true(uni__worker_listen(&worker, 2, 182 * SECOND, 182 * SECOND, false) == 2);
}

static void troubles(void **state)
{
    double seconds = 0;
    uni__worker worker = { 0 };
    uni__worker_spawned(&worker, false, SECOND);
    assert_int_equal(uni__worker_look(&worker, 3 * SECOND, 5, 2, &seconds), UNI__WORKER_WELL);
    assert_int_equal(uni__worker_look(&worker, 6 * SECOND, 5, 2, &seconds), UNI__WORKER_NO_HELLO);
    assert_true(seconds == 5);
    play(&worker, "o", "o");
    assert_int_equal(uni__worker_look(&worker, 6 * SECOND, 5, 2, &seconds), UNI__WORKER_NO_HELLO);
    worker.is_program = true; /* it need not connect */
    assert_int_equal(uni__worker_look(&worker, 6 * SECOND, 5, 2, &seconds), UNI__WORKER_WELL);
    worker.is_program = false;
    play(&worker, "h", "r");
    assert_int_equal(uni__worker_look(&worker, 60 * SECOND, 5, 2, &seconds), UNI__WORKER_WELL);
    worker.stopped_ns = 60 * SECOND;
    assert_int_equal(uni__worker_look(&worker, 61 * SECOND, 5, 2, &seconds), UNI__WORKER_WELL);
    assert_int_equal(uni__worker_look(&worker, 62 * SECOND, 5, 2, &seconds), UNI__WORKER_STOPPED);
    assert_true(seconds == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell),
        cmocka_unit_test(lives_as_they_are),
        cmocka_unit_test(types_of_any_number),
        cmocka_unit_test(says_why),
        cmocka_unit_test(a_new_life_forgets_the_old),
        cmocka_unit_test(questions),
        cmocka_unit_test(heartbeats),
        cmocka_unit_test(troubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
