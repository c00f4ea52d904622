/* log_test.c - where the messages of the library go, at which level; and the clocks. */
#include "base/test.h"
#include <math.h>
#include <sys/wait.h>
#include <time.h>

#include "base/shared.h"
#include "base/clock.h"
#include "base/log.h"

/* The level is read once per process, so each case runs in its own process; its stderr is
 * compared. */
static void check_stderr(const char *environment, int level, const char *expected)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        if (environment)
            setenv("UNISONO_LOG", environment, 1);
        else
            unsetenv("UNISONO_LOG");
        if (level >= 0)
            uni_log_level_set((uni_log_level)level);
        uni__log(UNI_LOG_ERROR, "e");
        uni__warn("w%d", 1);
        uni__info("i");
        uni__debug("d");
        uni__log(UNI_LOG_OFF, "never");
        _exit(0);
    }
    close(ends[1]);
    char text[200] = "";
    size_t size = 0;
    for (ssize_t got; (got = read(ends[0], text + size, sizeof text - 1 - size)) > 0;)
        size += (size_t)got;
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_string_equal(text, expected);
}

static void levels(void **state)
{
    check_stderr(NULL, -1, "unisono: e\nunisono: w1\n");
    check_stderr("off", -1, "");
    check_stderr("ERROR", -1, "unisono: e\n");
    check_stderr("info", -1, "unisono: e\nunisono: w1\nunisono: i\n");
    check_stderr("debug", -1, "unisono: e\nunisono: w1\nunisono: i\nunisono: d\n");
    check_stderr("nonsense", -1, "unisono: e\nunisono: w1\n");
    check_stderr("debug", UNI_LOG_ERROR, "unisono: e\n"); /* the program's setting wins */
    check_stderr("debug", UNI_LOG_OFF, "");
}

static void keep_message(void *context, uni_log_level level, const char *message)
{
    char *out = context;
    snprintf(out, 4000, "%d %s", (int)level, message);
}

static void the_program_s_function_gets_the_message(void **state)
{
    char heard[4000] = "", longer[3001];
    uni_log_level_set(UNI_LOG_INFO);
    assert_int_equal(uni__log_level_get(), UNI_LOG_INFO);
    uni_log_function_set(keep_message, heard);
    uni__warn("rank %d is late", 3);
    assert_string_equal(heard, "2 rank 3 is late");
    uni__debug("not asked for");
    assert_string_equal(heard, "2 rank 3 is late");
    memset(longer, 'x', 3000);
    longer[3000] = 0;
    uni__warn("%s", longer); /* truncated, not overrun */
    assert_true(strlen(heard) > 1000 && strlen(heard) < 3000);
    uni_log_function_set(NULL, NULL);
}

static void clocks(void **state)
{
    uint64_t before = uni__monotonic_ns();
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    uint64_t passed = uni__monotonic_ns() - before;
    assert_true(passed >= 20000000 && passed < 10000000000u);
    assert_true(fabs(uni__wall_seconds() - (double)time(NULL)) < 2);
}

static void dates(void **state)
{
    char date[20];
    setenv("TZ", "UTC", 1);
    tzset();
    uni__format_date(1794778574.9, date);
    assert_string_equal(date, "2026-11-15_21-36-14");
    setenv("TZ", "UTC-2", 1); /* two hours east */
    tzset();
    uni__format_date(1794778574.0, date);
    assert_string_equal(date, "2026-11-15_23-36-14");
    setenv("TZ", "UTC", 1);
    tzset();
    static const double odd[] = { -1, NAN, INFINITY, 1e300 };
    for (size_t i = 0; i < 4; i++) { /* damaged numbers must still fit the buffer */
        uni__format_date(odd[i], date);
        assert_string_equal(date, "1970-01-01_00-00-00");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),
        cmocka_unit_test(the_program_s_function_gets_the_message),
        cmocka_unit_test(clocks),
        cmocka_unit_test(dates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
