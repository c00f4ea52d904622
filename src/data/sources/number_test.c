/* number_test.c - decimal numbers are parsed to the same bits as by strtod: random bits printed
 * with 1 to 20 digits, random digits with random points and exponents, halves between two doubles,
 * and the ends of the range. */
#include <math.h>
#include "base/random.h"
#include "data/sources/decimal.h"
#include "data/test.h"

static int64_t slow;

static void check(const char *text)
{
    char buffer[128];
    size_t length = strlen(text);
    memcpy(buffer, text, length);
    memset(buffer + length, '\n', sizeof buffer - length);
    double got = 0, expected = strtod(text, NULL);
    const char *end = uni__parse_double(buffer, &got);
    if (end == NULL) {
        slow++;
        return;
    }
    if (end != buffer + length || memcmp(&got, &expected, sizeof got) != 0)
        fail_msg("%s was read as %.17g, not %.17g", text, got, expected);
}

static void random_doubles(void **unused)
{
    slow = 0;
    for (uint64_t i = 0; i < 1000000; i++) {
        uint64_t bits = uni__random_u64(1, 0, i);
        double value;
        char text[64];
        if (i % 2 == 0) /* between 1e-30 and 1e30, like most data */
            bits = (bits & 0x800FFFFFFFFFFFFFu) | (uint64_t)(923 + bits % 200) << 52;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        snprintf(text, sizeof text, i % 3 == 0 ? "%.*g" : "%.*e", 1 + (int)(bits % 18), value);
        check(text);
    }
    assert_true(slow < 500000); /* only values outside the table */
}

static void random_digits(void **unused)
{
    for (uint64_t i = 0; i < 1000000; i++) {
        uint64_t bits = uni__random_u64(2, 0, i);
        char text[64];
        int whole = (int)(bits % 20), point = (int)(bits >> 8 & 0xFF) % 20;
        uint64_t number = uni__random_u64(3, 0, i);
        if (i % 4 == 0)
            snprintf(text, sizeof text, "%s%0*llu.%0*llu", i % 8 == 0 ? "-" : "", whole % 9,
                     (unsigned long long)number % 1000000000, point % 10,
                     (unsigned long long)(bits >> 32));
        else
            snprintf(text, sizeof text, "%llue%d", (unsigned long long)number >> whole % 60,
                     (int)(bits >> 40 & 0xFFFF) % 80 - 50);
        check(text);
    }
}

/* Numbers exactly between two doubles, and one digit off. */
static void halves(void **unused)
{
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t mantissa = (uint64_t)1 << 53 | (uni__random_u64(4, 0, i) >> 11);
        char text[64];
        snprintf(text, sizeof text, "%llu", (unsigned long long)mantissa * 2 + 1);
        check(text);
        snprintf(text, sizeof text, "%llu.5",
                 (unsigned long long)(mantissa >> 1) % 100000000000000000u);
        check(text);
    }
    check("9007199254740993");
    check("9007199254740992.5");
    check("0.000000000000000000000000000000000001");
    check("4.9406564584124654e-324");
    check("1.7976931348623157e308");
    check("-0");
    check("-0.0");
    check("0e10");
}

static void not_plain(void **unused)
{
    double value;
    int64_t whole;
    /* The rest of each is zeros: up to eight bytes may be read past the end of a number. */
    static const char none[][24] = { "\n", "-\n", ".\n", "abc\n", "e5\n", "1e\n", "nan\n", " 1\n" };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_null(uni__parse_double(none[i], &value));
    assert_null(uni__parse_int("1234567890123456789\n       ", &whole));
    assert_non_null(uni__parse_int("-123456789012345678\n       ", &whole));
    assert_true(whole == -123456789012345678);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_doubles),
                                        cmocka_unit_test(random_digits), cmocka_unit_test(halves),
                                        cmocka_unit_test(not_plain) };
    return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
