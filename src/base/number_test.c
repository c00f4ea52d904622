/*
 * number_test.c - numbers as text: every double reads back to its bits, and no shorter text does.
 *
 * The C library's strtod and printf are the reference. `number_test N` runs N random numbers of
 * each kind instead of the default (10,000,000 takes a minute).
 */
#include "base/locale_fixture.h"
#include "base/test.h"
#include <float.h>
#include <math.h>
#include "base/random.h"
#include "base/text.h"

static long rounds = 300000;

static const char *format(double value)
{
    static char out[UNI__NUMBER_SIZE + 1];
    size_t length = uni__format_double(out, value);
    assert_true(length <= UNI__NUMBER_SIZE);
    out[length] = 0;
    return out;
}

static void check_round_trip(double value)
{
    const char *text = format(value);
    double back = strtod(text, NULL);
    if (memcmp(&back, &value, sizeof back) != 0)
        fail_msg("%a became %s, which is %a", value, text, back);
    if (!strpbrk(text, ".e"))
        fail_msg("%s does not look like a float", text);
}

static int count_digits(const char *text)
{
    int count = 0, zeros = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text == '0') /* leading and trailing zeros do not count */
            zeros += count > 0;
        else if (*text >= '1' && *text <= '9') {
            count += zeros + 1;
            zeros = 0;
        }
    }
    return count;
}

/* No decimal with fewer digits reads back, and of those with as many digits ours is printf's, the
 * closest. */
static void check_shortest(double value)
{
    char text[40];
    int digits = count_digits(format(value));
    for (int precision = 0; precision < digits - 1; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) == value)
            fail_msg("%s is longer than %s", format(value), text);
    }
    snprintf(text, sizeof text, "%.*e", digits - 1, value);
    if (strtod(text, NULL) == value && strtold(text, NULL) != strtold(format(value), NULL))
        fail_msg("%s is not as close as %s", format(value), text);
}

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void known_numbers(void **state)
{
    assert_string_equal(format(0.0), "0.0");
    assert_string_equal(format(-0.0), "-0.0");
    assert_string_equal(format(1.0), "1.0");
    assert_string_equal(format(-1.5), "-1.5");
    assert_string_equal(format(0.1), "0.1");
    assert_string_equal(format(0.1 + 0.2), "0.30000000000000004");
    assert_string_equal(format(1.0 / 3), "0.3333333333333333");
    assert_string_equal(format((double)0.1f), "0.10000000149011612");
    assert_string_equal(format(0.0001), "0.0001");
    assert_string_equal(format(0.00001), "1e-5");
    assert_string_equal(format(1.5e-7), "1.5e-7");
    assert_string_equal(format(123456789012345.6), "123456789012345.6");
    assert_string_equal(format(9007199254740991.0), "9007199254740991.0");
    assert_string_equal(format(9007199254740993.0), "9007199254740992.0");
    assert_string_equal(format(1e16), "1e16");
    assert_string_equal(format(1e22), "1e22");
    assert_string_equal(format(1e23), "1e23");
    assert_string_equal(format(9.5367431640625e-07), "9.5367431640625e-7");
    assert_string_equal(format(5e-324), "5e-324");
    assert_string_equal(format(DBL_MIN), "2.2250738585072014e-308");
    assert_string_equal(format(DBL_MAX), "1.7976931348623157e308");
    assert_string_equal(format(NAN), "NaN");
    assert_string_equal(format(-NAN), "NaN");
    assert_string_equal(format(INFINITY), "Infinity");
    assert_string_equal(format(-INFINITY), "-Infinity");
}

static void powers_and_their_neighbours(void **state)
{
    for (int e = -1074; e < 1024; e++) {
        double power = ldexp(1, e);
        for (int side = -1; side <= 1; side++) {
            double value = side < 0 ? nextafter(power, 0)
                           : side   ? nextafter(power, INFINITY)
                                    : power;
            check_round_trip(value);
            check_round_trip(-value);
            check_shortest(value);
        }
    }
    for (int e = -323; e <= 308; e++) {
        char text[16];
        snprintf(text, sizeof text, "1e%d", e);
        double power = strtod(text, NULL);
        check_round_trip(power);
        check_shortest(power);
        check_shortest(nextafter(power, 0));
        check_shortest(nextafter(power, INFINITY));
    }
}

static void random_bit_patterns(void **state)
{
    for (long i = 0; i < rounds; i++) {
        double value = from_bits(uni__random_u64(1, 0, (uint64_t)i));
        if (isfinite(value))
            check_round_trip(value);
        /* also the exponents of the fast path, which random bits rarely have */
        uint64_t bits = uni__random_u64(2, 0, (uint64_t)i);
        uint64_t exponent = 1023 - 115 + (bits >> 52) % 225;
        value = from_bits((bits & 0x800FFFFFFFFFFFFFu) | exponent << 52);
        check_round_trip(value);
        if (i % 16 == 0)
            check_shortest(fabs(value));
    }
}

static void random_decimals_come_back_as_they_were(void **state)
{
    for (long i = 0; i < rounds; i++) {
        uint64_t bits = uni__random_u64(3, 0, (uint64_t)i);
        int digits = 1 + (int)(bits % 15), exponent = (int)(bits >> 8) % 30;
        char text[64];
        unsigned long long number = 1;
        for (int d = 1; d < digits; d++)
            number *= 10;
        number += uni__random_u64(4, 0, (uint64_t)i) % (9 * number);
        snprintf(text, sizeof text, "%llue%d", number, exponent - 25);
        double value = strtod(text, NULL);
        check_round_trip(value);
        if (count_digits(format(value)) > digits)
            fail_msg("%s became %s", text, format(value));
    }
}

static void random_floats(void **state)
{
    for (long i = 0; i < rounds; i++) {
        check_round_trip((float)uni__random_normal(5, 0, (uint64_t)i));
        check_round_trip(uni__random_unit(6, 0, (uint64_t)i));
    }
}

static void integers(void **state)
{
    static const int64_t values[] = { 0,  1,   -1,        9,         10,       99,
                                      99, 100, INT64_MAX, INT64_MIN, -1000000, 1234567890123 };
    char ours[UNI__NUMBER_SIZE + 1], theirs[32];
    for (long i = 0; i < 100000; i++) {
        uint64_t bits = uni__random_u64(7, 0, (uint64_t)i);
        int64_t value = i < 12 ? values[i] : (int64_t)bits >> (bits & 63);
        ours[uni__format_int(ours, value)] = 0;
        snprintf(theirs, sizeof theirs, "%lld", (long long)value);
        assert_string_equal(ours, theirs);
    }
}

/* A program with a German locale must not write "1,5" into JSON. */
static void decimal_point_is_a_point_in_every_locale(void **state)
{
    if (!set_comma_locale())
        skip(); /* no such locale on this machine */
    assert_string_equal(format(1.5), "1.5");
    assert_string_equal(format(1.5e-300), "1.5e-300");
    setlocale(LC_NUMERIC, "C");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = atol(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_numbers),
        cmocka_unit_test(powers_and_their_neighbours),
        cmocka_unit_test(random_bit_patterns),
        cmocka_unit_test(random_decimals_come_back_as_they_were),
        cmocka_unit_test(random_floats),
        cmocka_unit_test(integers),
        cmocka_unit_test(decimal_point_is_a_point_in_every_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
