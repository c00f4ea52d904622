/* cause_test.c - why a run failed: class, exit code and sentence of every way to end. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/test_helpers.h"

/* The numbers are those of docs/cli.md. */
static void exit_codes(void **state)
{
    static const struct {
        uni__cause cause;
        int code;
    } cases[] = {
        { { .kind = UNI__CAUSE_EXIT, .exit_code = 3 }, 3 },
        { { .kind = UNI__CAUSE_EXIT, .exit_code = 0 }, 1 }, /* it ended too early */
        { { .kind = UNI__CAUSE_SIGNAL, .signal = SIGKILL, .exit_code = -1 }, 137 },
        { { .kind = UNI__CAUSE_SIGNAL, .signal = SIGSEGV, .exit_code = -1 }, 139 },
        { { .kind = UNI__CAUSE_OOM, .signal = SIGKILL, .exit_code = -1 }, 137 },
        { { .kind = UNI__CAUSE_ERROR, .exit_code = -1 }, 1 },
        { { .kind = UNI__CAUSE_STOPPED, .exit_code = -1 }, 126 },
        { { .kind = UNI__CAUSE_SILENT, .exit_code = -1 }, 126 },
        { { .kind = UNI__CAUSE_NO_HELLO, .exit_code = -1 }, 125 },
        { { .kind = UNI__CAUSE_LAUNCH, .exit_code = -1 }, 125 },
        { { .kind = UNI__CAUSE_PREEMPTED, .signal = SIGTERM, .exit_code = -1 }, 75 },
        { { .kind = UNI__CAUSE_DISK_FULL, .exit_code = -1 }, 74 },
        { { .kind = UNI__CAUSE_TIME_LIMIT, .exit_code = -1 }, 124 },
        { { .kind = UNI__CAUSE_NO_PROGRESS, .exit_code = -1 }, 124 },
        { { .kind = UNI__CAUSE_AGENT, .exit_code = -1 }, 70 },
        { { .kind = UNI__CAUSE_INTERNAL, .exit_code = -1 }, 70 },
        { { .kind = UNI__CAUSE_HOST, .exit_code = -1 }, 123 },
        { { .kind = UNI__CAUSE_LAUNCHER, .exit_code = -1 }, 123 },
        { { .kind = UNI__CAUSE_CHECKPOINT, .exit_code = -1 }, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(uni__cause_exit_code(&cases[i].cause), cases[i].code);
}

static void sentences_of_exits(void **state)
{
    static const struct {
        uni__exit how;
        bool functions, returned;
        uni__cause_class kind;
        const char *message; /* its beginning */
    } cases[] = {
        { { 40, 3, 0, false, UNI__OOM_NO },
          true,
          false,
          UNI__CAUSE_EXIT,
          "rank 2 (pid 40) exited with code 3 before its train function returned" },
        { { 40, 3, 0, false, UNI__OOM_NO },
          true,
          true,
          UNI__CAUSE_EXIT,
          "rank 2 (pid 40) exited with code 3" },
        { { 40, 3, 0, false, UNI__OOM_NO },
          false,
          false,
          UNI__CAUSE_EXIT,
          "rank 2 (pid 40) exited with code 3" },
        { { 41, -1, SIGTERM, false, UNI__OOM_NO },
          true,
          false,
          UNI__CAUSE_PREEMPTED,
          "rank 2 (pid 41) was told to end by SIGTERM and did" },
        { { 41, -1, SIGSEGV, true, UNI__OOM_NO },
          true,
          false,
          UNI__CAUSE_SIGNAL,
          "rank 2 (pid 41) was killed by signal 11, Segmentation fault, core dumped (a crash in "
          "its own code or in a library" },
        { { 41, -1, SIGILL, false, UNI__OOM_NO },
          true,
          false,
          UNI__CAUSE_SIGNAL,
          "rank 2 (pid 41) was killed by signal 4, Illegal instruction (a crash in its own" },
        { { 41, -1, SIGFPE, false, UNI__OOM_NO },
          true,
          false,
          UNI__CAUSE_SIGNAL,
          "rank 2 (pid 41) was killed by signal 8, Floating point exception (a crash in its own" },
        { { 41, -1, SIGBUS, false, UNI__OOM_NO },
          true,
          false,
          UNI__CAUSE_SIGNAL,
          "rank 2 (pid 41) was killed by signal 7, Bus error (a file that it had mapped was cut "
          "off" },
        { { 41, -1, SIGABRT, false, UNI__OOM_NO },
          true,
          false,
          UNI__CAUSE_SIGNAL,
          "rank 2 (pid 41) was killed by signal 6, Aborted (it aborted itself: its log says why)" },
        { { 41, -1, SIGUSR1, false, UNI__OOM_NO },
          true,
          false,
          UNI__CAUSE_SIGNAL,
          "rank 2 (pid 41) was killed by signal 10, User defined signal 1" },
        { { 41, -1, SIGKILL, false, UNI__OOM_NO },
          true,
          false,
          UNI__CAUSE_SIGNAL,
          "rank 2 (pid 41) was killed by signal 9, Killed (killed from outside, or by the kernel "
          "for lack of memory" },
        { { 41, -1, SIGKILL, false, UNI__OOM_NEAR },
          true,
          false,
          UNI__CAUSE_SIGNAL,
          "rank 2 (pid 41) was killed by signal 9, Killed (killed from outside, or by the kernel's "
          "out-of-memory killer, which ended" },
        { { 41, -1, SIGKILL, false, UNI__OOM_YES },
          true,
          false,
          UNI__CAUSE_OOM,
          "rank 2 (pid 41) was killed by the kernel's out-of-memory killer" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni__cause cause = { 0 };
        uni__cause_of_exit(&cause, 2, &cases[i].how, cases[i].functions, cases[i].returned);
        assert_int_equal(cause.kind, cases[i].kind);
        assert_int_equal(cause.rank, 2);
        assert_int_equal(cause.pid, cases[i].how.pid);
        assert_int_equal(cause.signal, cases[i].how.signal);
        assert_int_equal(cause.exit_code, cases[i].how.exit_code);
        assert_int_equal(cause.error_code, UNI_EWORKER);
        if (strncmp(cause.message, cases[i].message, strlen(cases[i].message)) != 0)
            assert_string_equal(cause.message, cases[i].message);
        /* Nothing is said of a plain end. */
        if (!strchr(cases[i].message, '(') || cases[i].how.signal == SIGTERM)
            assert_string_equal(cause.message, cases[i].message);
    }
    uni__cause cause = { 0 };
    uni__cause_of_exit(&cause, 2, &cases[1].how, true, true);
    assert_string_equal(cause.message, cases[1].message);
    uni__cause_of_exit(&cause, 2, &cases[9].how, true, true);
    assert_string_equal(cause.message, cases[9].message);
}

/* Only of ends that a lack of address space can bring about. */
static void the_limit_of_the_address_space(void **state)
{
    static const struct {
        uni__cause_class kind;
        int exit_code, signal;
        double limit;
        bool named;
    } cases[] = {
        { UNI__CAUSE_EXIT, 1, 0, 3221225472.0, true },
        { UNI__CAUSE_EXIT, 0, 0, 3221225472.0, false },
        { UNI__CAUSE_EXIT, 1, 0, 0, false },
        { UNI__CAUSE_SIGNAL, -1, SIGABRT, 3221225472.0, true },
        { UNI__CAUSE_SIGNAL, -1, SIGSEGV, 3221225472.0, true },
        { UNI__CAUSE_SIGNAL, -1, SIGBUS, 3221225472.0, true },
        { UNI__CAUSE_SIGNAL, -1, SIGKILL, 3221225472.0, false },
        { UNI__CAUSE_ERROR, -1, 0, 3221225472.0, false },
        { UNI__CAUSE_ERROR, 1, SIGABRT, 3221225472.0, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni__cause cause = { .kind = cases[i].kind,
                             .exit_code = cases[i].exit_code,
                             .signal = cases[i].signal,
                             .message = "it ended" };
        uni__cause_name_limit(&cause, cases[i].limit);
        assert_string_equal(cause.message,
                            cases[i].named
                                ? "it ended; its address space is limited to 3.0 GiB "
                                  "(address_space_limit, --address-space), and allocations and "
                                  "libraries beyond that fail"
                                : "it ended");
    }
}

static void expect_json(const uni__cause *cause, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    uni_value *value = uni__cause_to_value(cause);
    assert_int_equal(uni_json_write(&text, &size, value, 0, NULL), 0);
    assert_string_equal(text, expected);
    free(text);
    uni_value_free(value);
}

/* As docs/formats.md has it. */
static void in_files(void **state)
{
    uni__cause cause = { .kind = UNI__CAUSE_SIGNAL,
                         .rank = 1,
                         .pid = 77,
                         .signal = 9,
                         .exit_code = -1,
                         .attempt = 3,
                         .iteration = 12,
                         .time = 1.5,
                         .host = "node-a",
                         .message = "it was killed" };
    char tail[] = "first line\n10 %\r20 %\n\nlast";
    cause.log_tail = tail;
    expect_json(&cause,
                "{\"class\":\"signal\",\"rank\":1,\"host\":\"node-a\",\"pid\":77,\"signal\":9,"
                "\"attempt\":3,\"iteration\":12,\"time\":1.5,\"message\":\"it was killed\","
                "\"log_tail\":[\"first line\",\"20 %\",\"\",\"last\"]}");
    cause = (uni__cause){ .kind = UNI__CAUSE_EXIT, .exit_code = 0, .message = "it ended" };
    expect_json(&cause, "{\"class\":\"exit\",\"rank\":0,\"host\":\"\",\"pid\":0,\"exit_code\":0,"
                        "\"attempt\":0,\"iteration\":0,\"time\":0.0,\"message\":\"it ended\","
                        "\"log_tail\":[]}");
    cause = (uni__cause){ .kind = UNI__CAUSE_HOST, .rank = -1, .exit_code = -1 };
    expect_json(&cause, "{\"class\":\"host_lost\",\"rank\":-1,\"host\":\"\",\"pid\":0,"
                        "\"attempt\":0,\"iteration\":0,\"time\":0.0,\"message\":\"\","
                        "\"log_tail\":[]}");
    cause.kind = UNI__CAUSE_NONE;
    expect_json(&cause, "null");
    cause.log_tail = strdup("x");
    uni__cause_clear(&cause);
    assert_int_equal(cause.rank, -1);
    assert_int_equal(cause.exit_code, -1);
    assert_null(cause.log_tail);
}

static void of_now(void **state)
{
    uni__cause cause =
        uni__cause_new(&the->run, UNI__CAUSE_SILENT, 3, UNI_ETIMEOUT, "%s %d", "x", 5);
    assert_int_equal(cause.pid, FAKE_PID + 3);
    assert_int_equal(cause.rank, 3);
    assert_int_equal(cause.error_code, UNI_ETIMEOUT);
    assert_int_equal(cause.exit_code, -1);
    assert_string_equal(cause.message, "x 5");
    assert_true(cause.time > 1e9);
    cause = uni__cause_new(&the->run, UNI__CAUSE_AGENT, -1, UNI_EIO, "the agent");
    assert_int_equal(cause.pid, 0);
    assert_int_equal(uni__cause_new(&the->run, UNI__CAUSE_SILENT, 0, 0, "x").pid, FAKE_PID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(exit_codes),
        TEST(sentences_of_exits),
        TEST(the_limit_of_the_address_space),
        TEST(in_files),
        TEST(of_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
