/* format_test.c - times, sizes and numbers in human-readable form. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "cli/format.h"

static void test_durations_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double seconds; /* negative: rejected */
    } rows[] = { { "90s", 90 },       { "5m", 300 },  { "2h", 7200 },   { "1h30m", 5400 },
                 { "500ms", 0.5 },    { "12", 12 },   { "1.5h", 5400 }, { "2d", 172800 },
                 { "0", 0 },          { "", -1 },     { "h", -1 },      { "-5s", -1 },
                 { "5 parsecs", -1 }, { "1h30", -1 }, { "5x", -1 },     { "nan", -1 },
                 { "0x10", -1 },      { "1..5s", -1 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double seconds = -1;
        bool read = cli_parse_duration(rows[i].text, &seconds);
        if (read != (rows[i].seconds >= 0) || (read && fabs(seconds - rows[i].seconds) > 1e-9))
            fail_msg("\"%s\" gave %d, %g", rows[i].text, read, seconds);
    }
}

static void test_interruptions(void **state)
{
    (void)state;
    static const struct {
        int attempt, replaced;
        const char *told;
    } rows[] = { { 1, 0, "" },
                 { 2, 0, "1 restart" },
                 { 3, 0, "2 restarts" },
                 { 1, 1, "1 rank replaced" },
                 { 1, 12, "12 ranks replaced" },
                 { 4, 2, "3 restarts and 2 ranks replaced" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[CLI_SHORT];
        uni_value *about = uni_value_dict();
        assert_int_equal(uni_dict_take(about, "attempt", uni_value_int(rows[i].attempt)), 0);
        assert_int_equal(uni_dict_take(about, "replaced", uni_value_int(rows[i].replaced)), 0);
        assert_string_equal(cli_interruptions(about, text), rows[i].told);
        uni_value_free(about);
    }
}

static void test_ages(void **state)
{
    (void)state;
    static const struct {
        double age;
        const char *told;
    } rows[] = { { 0, "just now" },
                 { 1.9, "just now" },
                 { 2, "2 s ago" },
                 { 59.9, "59 s ago" },
                 { 60, "1 min ago" },
                 { 3599, "59 min ago" },
                 { 3600, "1 h ago" },
                 { 47.9 * 3600, "47 h ago" },
                 { 48 * 3600, "2 days ago" },
                 { 71.9 * 3600, "2 days ago" },
                 { -5, "just now" } };
    char text[CLI_SHORT];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(cli_ago(1e9, 1e9 - rows[i].age, text), rows[i].told);
    assert_string_equal(cli_ago(1e9, 0, text), "-");
    assert_string_equal(cli_ago(1e9, NAN, text), "-");
    assert_string_equal(cli_date(0, text), "-");
    assert_string_equal(cli_date(NAN, text), "-");
    setenv("TZ", "UTC", 1);
    tzset();
    assert_string_equal(cli_date(1e9, text), "2001-09-09 01:46:40");
}

static void test_sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double bytes;
    } rows[] = { { "2G", 2147483648.0 },
                 { "512M", 536870912 },
                 { "1.5GiB", 1610612736 },
                 { "100k", 102400 },
                 { "7", 7 },
                 { "7B", 7 },
                 { "1KB", 1024 },
                 { "much", -1 },
                 { "", -1 },
                 { "2GG", -1 },
                 { "-1", -1 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double bytes = -1;
        bool read = cli_parse_size(rows[i].text, &bytes);
        if (read != (rows[i].bytes >= 0) || (read && bytes != rows[i].bytes))
            fail_msg("\"%s\" gave %d, %g", rows[i].text, read, bytes);
    }
}

static void test_durations_are_written(void **state)
{
    (void)state;
    char text[CLI_SHORT];
    assert_string_equal(cli_duration(0.85, text), "850 ms");
    assert_string_equal(cli_duration(12.34, text), "12.3 s");
    assert_string_equal(cli_duration(59.96, text), "1 min 00 s");
    assert_string_equal(cli_duration(245, text), "4 min 05 s");
    assert_string_equal(cli_duration(7980, text), "2 h 13 min");
    assert_string_equal(cli_duration(3 * 86400 + 4 * 3600, text), "3 d 4 h");
    assert_string_equal(cli_duration(-5, text), "0.0 ms");
    assert_string_equal(cli_duration(NAN, text), "0.0 ms");
}

static void test_times_ago(void **state)
{
    (void)state;
    char text[CLI_SHORT];
    assert_string_equal(cli_ago(1000, 999.5, text), "just now");
    assert_string_equal(cli_ago(1000, 2000, text), "just now"); /* a clock that is ahead */
    assert_string_equal(cli_ago(1000, 988, text), "12 s ago");
    assert_string_equal(cli_ago(1000, 800, text), "3 min ago");
    assert_string_equal(cli_ago(10000, 1000, text), "2 h ago");
    assert_string_equal(cli_ago(1e6, 1, text), "11 days ago");
    assert_string_equal(cli_ago(1e6, 0, text), "-");
}

static void test_numbers(void **state)
{
    (void)state;
    char text[CLI_SHORT];
    assert_string_equal(cli_number(0.3125, text), "0.3125");
    assert_string_equal(cli_number(57, text), "57");
    assert_string_equal(cli_number(-0.0, text), "0");
    assert_string_equal(cli_number(1.23456e-5, text), "1.235e-05");
    assert_string_equal(cli_number(NAN, text), "NaN");
    assert_string_equal(cli_number(-INFINITY, text), "-Infinity");
    assert_string_equal(cli_bytes(312, text), "312 B");
    assert_string_equal(cli_bytes(1536, text), "1.5 KiB");
    assert_string_equal(cli_bytes(200.0 * 1024 * 1024, text), "200 MiB");
    assert_string_equal(cli_signal(9, text), "SIGKILL");
    assert_string_equal(cli_signal(99, text), "signal 99");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_durations_are_read),
        cmocka_unit_test(test_interruptions),
        cmocka_unit_test(test_ages),
        cmocka_unit_test(test_sizes_are_read),
        cmocka_unit_test(test_durations_are_written),
        cmocka_unit_test(test_times_ago),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
