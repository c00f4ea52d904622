/*
 * number.c - writes doubles and integers as text, and parses lists of numbers.
 *
 * uni__format_double gives the shortest decimal that reads back to the same bits, and of those the
 * closest. The method is Raffaello Giulietti's ("The Schubfach way to render doubles", 2021): scale
 * the number and the two ends of its rounding interval by a power of ten with 128-bit arithmetic,
 * rounded to odd, and take the multiple of ten (or of one) inside. The paper proves that 126 bits
 * of the power, rounded up, are enough for every double. The table has only the powers for about
 * 1e-33 to 1e31, the range of metrics (1 KB instead of 10). All others, including subnormals, go
 * through printf with 15, 16 and 17 digits, which is as short (17 always suffice) and ten times
 * slower.
 *
 * It takes about 40 ns per number, printf with 17 digits 270 (base_bench.c). No state; any thread.
 */
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

typedef unsigned __int128 wide;

typedef struct decimal {
    uint64_t digits; /* value is digits * 10^exponent */
    int exponent;
} decimal;

#define POWER_MIN (-16)
#define POWER_MAX 50

/* 10^e = (high * 2^64 + low) * 2^(floor(log2(10^e)) - 127), rounded up. Made with Python's
 * fractions: v = Fraction(10)**e; ceil(v / 2**(floor(log2(v)) - 127)). */
static const struct power {
    uint64_t high, low;
} powers[POWER_MAX - POWER_MIN + 1] = {
    { 0xE69594BEC44DE15B, 0x4C2EBE687989A9B4 }, /* -16 */
    { 0x901D7CF73AB0ACD9, 0x0F9D37014BF60A11 }, /* -15 */
    { 0xB424DC35095CD80F, 0x538484C19EF38C95 }, /* -14 */
    { 0xE12E13424BB40E13, 0x2865A5F206B06FBA }, /* -13 */
    { 0x8CBCCC096F5088CB, 0xF93F87B7442E45D4 }, /* -12 */
    { 0xAFEBFF0BCB24AAFE, 0xF78F69A51539D749 }, /* -11 */
    { 0xDBE6FECEBDEDD5BE, 0xB573440E5A884D1C }, /* -10 */
    { 0x89705F4136B4A597, 0x31680A88F8953031 }, /* -9 */
    { 0xABCC77118461CEFC, 0xFDC20D2B36BA7C3E }, /* -8 */
    { 0xD6BF94D5E57A42BC, 0x3D32907604691B4D }, /* -7 */
    { 0x8637BD05AF6C69B5, 0xA63F9A49C2C1B110 }, /* -6 */
    { 0xA7C5AC471B478423, 0x0FCF80DC33721D54 }, /* -5 */
    { 0xD1B71758E219652B, 0xD3C36113404EA4A9 }, /* -4 */
    { 0x83126E978D4FDF3B, 0x645A1CAC083126EA }, /* -3 */
    { 0xA3D70A3D70A3D70A, 0x3D70A3D70A3D70A4 }, /* -2 */
    { 0xCCCCCCCCCCCCCCCC, 0xCCCCCCCCCCCCCCCD }, /* -1 */
    { 0x8000000000000000, 0x0000000000000000 }, /* 0 */
    { 0xA000000000000000, 0x0000000000000000 }, /* 1 */
    { 0xC800000000000000, 0x0000000000000000 }, /* 2 */
    { 0xFA00000000000000, 0x0000000000000000 }, /* 3 */
    { 0x9C40000000000000, 0x0000000000000000 }, /* 4 */
    { 0xC350000000000000, 0x0000000000000000 }, /* 5 */
    { 0xF424000000000000, 0x0000000000000000 }, /* 6 */
    { 0x9896800000000000, 0x0000000000000000 }, /* 7 */
    { 0xBEBC200000000000, 0x0000000000000000 }, /* 8 */
    { 0xEE6B280000000000, 0x0000000000000000 }, /* 9 */
    { 0x9502F90000000000, 0x0000000000000000 }, /* 10 */
    { 0xBA43B74000000000, 0x0000000000000000 }, /* 11 */
    { 0xE8D4A51000000000, 0x0000000000000000 }, /* 12 */
    { 0x9184E72A00000000, 0x0000000000000000 }, /* 13 */
    { 0xB5E620F480000000, 0x0000000000000000 }, /* 14 */
    { 0xE35FA931A0000000, 0x0000000000000000 }, /* 15 */
    { 0x8E1BC9BF04000000, 0x0000000000000000 }, /* 16 */
    { 0xB1A2BC2EC5000000, 0x0000000000000000 }, /* 17 */
    { 0xDE0B6B3A76400000, 0x0000000000000000 }, /* 18 */
    { 0x8AC7230489E80000, 0x0000000000000000 }, /* 19 */
    { 0xAD78EBC5AC620000, 0x0000000000000000 }, /* 20 */
    { 0xD8D726B7177A8000, 0x0000000000000000 }, /* 21 */
    { 0x878678326EAC9000, 0x0000000000000000 }, /* 22 */
    { 0xA968163F0A57B400, 0x0000000000000000 }, /* 23 */
    { 0xD3C21BCECCEDA100, 0x0000000000000000 }, /* 24 */
    { 0x84595161401484A0, 0x0000000000000000 }, /* 25 */
    { 0xA56FA5B99019A5C8, 0x0000000000000000 }, /* 26 */
    { 0xCECB8F27F4200F3A, 0x0000000000000000 }, /* 27 */
    { 0x813F3978F8940984, 0x4000000000000000 }, /* 28 */
    { 0xA18F07D736B90BE5, 0x5000000000000000 }, /* 29 */
    { 0xC9F2C9CD04674EDE, 0xA400000000000000 }, /* 30 */
    { 0xFC6F7C4045812296, 0x4D00000000000000 }, /* 31 */
    { 0x9DC5ADA82B70B59D, 0xF020000000000000 }, /* 32 */
    { 0xC5371912364CE305, 0x6C28000000000000 }, /* 33 */
    { 0xF684DF56C3E01BC6, 0xC732000000000000 }, /* 34 */
    { 0x9A130B963A6C115C, 0x3C7F400000000000 }, /* 35 */
    { 0xC097CE7BC90715B3, 0x4B9F100000000000 }, /* 36 */
    { 0xF0BDC21ABB48DB20, 0x1E86D40000000000 }, /* 37 */
    { 0x96769950B50D88F4, 0x1314448000000000 }, /* 38 */
    { 0xBC143FA4E250EB31, 0x17D955A000000000 }, /* 39 */
    { 0xEB194F8E1AE525FD, 0x5DCFAB0800000000 }, /* 40 */
    { 0x92EFD1B8D0CF37BE, 0x5AA1CAE500000000 }, /* 41 */
    { 0xB7ABC627050305AD, 0xF14A3D9E40000000 }, /* 42 */
    { 0xE596B7B0C643C719, 0x6D9CCD05D0000000 }, /* 43 */
    { 0x8F7E32CE7BEA5C6F, 0xE4820023A2000000 }, /* 44 */
    { 0xB35DBF821AE4F38B, 0xDDA2802C8A800000 }, /* 45 */
    { 0xE0352F62A19E306E, 0xD50B2037AD200000 }, /* 46 */
    { 0x8C213D9DA502DE45, 0x4526F422CC340000 }, /* 47 */
    { 0xAF298D050E4395D6, 0x9670B12B7F410000 }, /* 48 */
    { 0xDAF3F04651D47B4C, 0x3C0CDD765F114000 }, /* 49 */
    { 0x88D8762BF324CD0F, 0xA5880A69FB6AC800 }, /* 50 */
};

/* floor(power * scaled / 2^128) with the lowest bit set when anything was cut off ("round to
 * odd"). */
static uint64_t round_to_odd(const struct power *power, uint64_t scaled)
{
    wide low = (wide)power->low * scaled;
    wide high = (wide)power->high * scaled + (uint64_t)(low >> 64);
    return (uint64_t)(high >> 64) | ((uint64_t)high > 1);
}

/* Shortest digits of significand * 2^exponent2 (significand != 0); false outside the table. */
static bool shortest(decimal *out, uint64_t significand, int exponent2, bool closer_below)
{
    /* floor(log10(2^exponent2)), of 3/4 of it when the gap below is half as wide (a power of
     * two) */
    int k = (exponent2 * 1262611 - (closer_below ? 524031 : 0)) >> 22;
    if (-k < POWER_MIN || -k > POWER_MAX)
        return false;
    int shift = exponent2 + ((-k * 1741647) >> 19) + 1; /* 1 to 4: floor(log2(10^-k)) */
    const struct power *power = &powers[-k - POWER_MIN];
    /* The interval in quarter units of 10^k; its ends belong to it when the significand is even,
     * because readers round ties to even. */
    uint64_t open = significand & 1;
    uint64_t lower = round_to_odd(power, (4 * significand - 2 + closer_below) << shift) + open;
    uint64_t value = round_to_odd(power, (4 * significand) << shift);
    uint64_t upper = round_to_odd(power, (4 * significand + 2) << shift) - open;
    uint64_t s = value / 4;
    if (s >= 10) {
        uint64_t tens = s / 10;
        bool down_inside = lower <= 40 * tens, up_inside = 40 * tens + 40 <= upper;
        if (down_inside != up_inside) {
            *out = (decimal){ tens + up_inside, k + 1 };
            return true;
        }
    }
    bool down_inside = lower <= 4 * s, up_inside = 4 * s + 4 <= upper;
    bool up = up_inside;
    if (down_inside == up_inside) /* both or neither: the closer one, ties to even */
        up = value > 4 * s + 2 || (value == 4 * s + 2 && (s & 1));
    *out = (decimal){ s + up, k };
    return true;
}

static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324"
                                  "25262728293031323334353637383940414243444546474849"
                                  "50515253545556575859606162636465666768697071727374"
                                  "75767778798081828384858687888990919293949596979899";

/* Writes the digits so that they end before `end`; returns where they begin. */
static char *digits_before(char *end, uint64_t value)
{
    while (value >= 100) {
        end -= 2;
        memcpy(end, digit_pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        end -= 2;
        memcpy(end, digit_pairs + value * 2, 2);
    } else {
        *--end = (char)('0' + value);
    }
    return end;
}

size_t uni__format_int(char *out, int64_t value)
{
    char buffer[24], *end = buffer + sizeof buffer;
    char *begin = digits_before(end, value < 0 ? -(uint64_t)value : (uint64_t)value);
    if (value < 0)
        *--begin = '-';
    memcpy(out, begin, (size_t)(end - begin));
    return (size_t)(end - begin);
}

/* 0.001 and 1234567890123456.0 are written plainly, smaller or larger ones as 1.5e-7 and 1e22, like
 * in Python. */
static char *lay_out(char *at, decimal number)
{
    while (number.digits % 100000000 == 0) {
        number.digits /= 100000000;
        number.exponent += 8;
    }
    while (number.digits % 10 == 0) {
        number.digits /= 10;
        number.exponent++;
    }
    char buffer[24], *end = buffer + sizeof buffer;
    const char *begin = digits_before(end, number.digits);
    int count = (int)(end - begin);
    int point = count + number.exponent; /* digits before the decimal point */
    if (point > 0 && point <= 16) {
        int whole = count < point ? count : point;
        memcpy(at, begin, (size_t)whole);
        memset(at + whole, '0', (size_t)(point - whole));
        at += point;
        *at++ = '.';
        if (whole == count)
            *at++ = '0';
        memcpy(at, begin + whole, (size_t)(count - whole));
        return at + (count - whole);
    }
    if (point <= 0 && point > -4) {
        memcpy(at, "0.000", 5);
        at += 2 - point;
        memcpy(at, begin, (size_t)count);
        return at + count;
    }
    *at++ = *begin;
    if (count > 1) {
        *at++ = '.';
        memcpy(at, begin + 1, (size_t)(count - 1));
        at += count - 1;
    }
    *at++ = 'e';
    return at + uni__format_int(at, point - 1);
}

/* For numbers outside the table: the first of 15, 16 and 17 digits that reads back, by printf. Any
 * shorter form is the one with 15 digits and trailing zeros; only subnormals have too few bits for
 * that. */
static decimal shortest_by_printf(double value)
{
    char buffer[40], digits[20];
    for (int precision = value < DBL_MIN ? 0 : 14;; precision++) {
        snprintf(buffer, sizeof buffer, "%.*e", precision, value);
        if (precision == 16 || strtod(buffer, NULL) == value)
            break;
    }
    /* Take only the digits before the 'e': the locale's decimal point may be any bytes. */
    size_t count = 0;
    const char *at = buffer;
    for (; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9' && count < sizeof digits - 1)
            digits[count++] = *at;
    digits[count] = 0;
    return (decimal){ strtoull(digits, NULL, 10), atoi(at + 1) - (int)(count - 1) };
}

size_t uni__format_double(char *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t fraction = bits & 0xFFFFFFFFFFFFFu;
    int biased = (int)(bits >> 52 & 0x7FF);
    char *at = out;
    if (biased == 0x7FF && fraction != 0) {
        memcpy(out, "NaN", 3);
        return 3;
    }
    if (bits >> 63)
        *at++ = '-';
    if (biased == 0x7FF) {
        memcpy(at, "Infinity", 8);
        return (size_t)(at + 8 - out);
    }
    double magnitude = fabs(value);
    /* An integer, including zero. */
    if (magnitude < 0x1p53 && magnitude == (double)(uint64_t)magnitude) {
        uint64_t whole = (uint64_t)magnitude;
        at += uni__format_int(at, (int64_t)whole);
        memcpy(at, ".0", 2);
        return (size_t)(at + 2 - out);
    }
    decimal number;
    if (biased == 0 || !shortest(&number, fraction | (uint64_t)1 << 52, biased - 1075,
                                 fraction == 0 && biased > 1))
        number = shortest_by_printf(magnitude);
    return (size_t)(lay_out(at, number) - out);
}

/* The C library keeps this locale ready: requesting it allocates nothing. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double uni__read_double(const char *text, char **end)
{
    locale_t locale = c_locale();
    double value = strtod_l(text, end, locale);
    freelocale(locale);
    return value;
}

float uni__read_float(const char *text, char **end)
{
    locale_t locale = c_locale();
    float value = strtof_l(text, end, locale);
    freelocale(locale);
    return value;
}

bool uni__read_ranges(const char *text, bool *member, int count)
{
    for (;;) {
        char *end = NULL;
        if (!isdigit((unsigned char)*text))
            return false;
        long first = strtol(text, &end, 10), last = first;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1]))
                return false;
            last = strtol(end + 1, &end, 10);
        }
        if (last < first || last >= count)
            return false;
        for (long i = first; i <= last; i++)
            member[i] = true;
        if (*end != ',')
            return *end == '\0' || (*end == '\n' && end[1] == '\0');
        text = end + 1;
    }
}
