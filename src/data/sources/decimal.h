/*
 * decimal.h - decimal to binary conversion, exact to the last bit, directly from the text.
 *
 * Digits are gathered eight at a time. Up to 19 of them fit a 64-bit integer w. Then w * 10^q is
 * either exact in double arithmetic (Clinger's case: w below 2^53, |q| up to 22), or found with one
 * or two 128-bit products (Lemire 2021), or, in the few cases that these cannot decide, left to
 * strtod. Inline, because a call per number would cost a fifth of the time. The text must end with
 * a character other than a digit, and 8 bytes after it must be readable.
 */
#ifndef UNISONO_DATA_DECIMAL_H
#define UNISONO_DATA_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "data/sources/decimal_powers.h"

static inline bool uni__is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

/* True if all eight bytes are digits. */
static inline bool uni__eight_digits(uint64_t v)
{
    return (((v + 0x4646464646464646u) | (v - 0x3030303030303030u)) & 0x8080808080808080u) == 0;
}

/* The value of eight digits. */
static inline uint32_t uni__parse_eight(uint64_t v)
{
    v -= 0x3030303030303030u;
    v = v * 10 + (v >> 8);
    return (uint32_t)(((v & 0x000000FF000000FFu) * 0x000F424000000064u +
                       ((v >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u) >>
                      32);
}

/* Appends the digits at p to *w and returns their end. *w wraps if there are too many, so the
 * caller counts them. */
static inline const char *uni__gather_digits(const char *p, uint64_t *w)
{
    uint64_t eight;
    for (memcpy(&eight, p, 8); uni__eight_digits(eight); memcpy(&eight, p, 8)) {
        *w = *w * 100000000u + uni__parse_eight(eight);
        p += 8;
    }
    while (uni__is_digit(*p))
        *w = *w * 10 + (uint64_t)(*p++ - '0');
    return p;
}

/* w * 10^q by Lemire's method, for w other than 0. Returns false if it cannot decide (subnormal,
 * infinite, outside the table). */
static inline bool uni__multiply_power(uint64_t w, int64_t q, double *out)
{
    if (q < UNI__POWER_LOW || q > UNI__POWER_HIGH)
        return false;
    const uint64_t *power = uni__powers_of_five[q - UNI__POWER_LOW];
    int zeros = __builtin_clzll(w);
    w <<= zeros;
    unsigned __int128 product = (unsigned __int128)w * power[0];
    uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
    if ((high & 0x1FF) == 0x1FF) {
        uint64_t more = (uint64_t)((unsigned __int128)w * power[1] >> 64);
        low += more;
        high += low < more;
    }
    if (low == UINT64_MAX && (q < -27 || q > 55))
        return false;
    int top = (int)(high >> 63);
    uint64_t mantissa = high >> (top + 9);
    int64_t exponent = ((217706 * q) >> 16) + 63 + top - zeros + 1023;
    if (exponent <= 0 || exponent >= 0x7FE)
        return false;
    /* Exactly between two doubles: round to even. */
    if (low <= 1 && q >= -4 && q <= 23 && (mantissa & 3) == 1 && mantissa << (top + 9) == high)
        mantissa &= ~(uint64_t)1;
    mantissa = (mantissa + (mantissa & 1)) >> 1;
    if (mantissa >= (uint64_t)2 << 52) {
        mantissa = (uint64_t)1 << 52;
        exponent++;
    }
    uint64_t bits = (mantissa & ~((uint64_t)1 << 52)) | (uint64_t)exponent << 52;
    memcpy(out, &bits, sizeof bits);
    return true;
}

/* w * 10^q, exact to the last bit. Returns false if only strtod can decide. */
static inline bool uni__scale(uint64_t w, int64_t q, double *out)
{
    static const double exact[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    if (w <= (uint64_t)1 << 53 && q >= -22 && q <= 22) {
        *out = q < 0 ? (double)w / exact[-q] : (double)w * exact[q];
        return true;
    }
    if (w == 0) {
        *out = 0;
        return true;
    }
    return uni__multiply_power(w, q, out);
}

/* Leading zeros are not significant digits. */
static inline int64_t uni__leading_zeros(const char *p)
{
    int64_t zeros = 0;
    for (; *p == '0' || *p == '.'; p++)
        zeros += *p == '0';
    return zeros;
}

/* Parses a plain number at p and returns its end. Returns NULL if there is none or it needs the
 * slow path (too many digits, inf, nan, spaces, quotes). */
static inline const char *uni__parse_double(const char *p, double *out)
{
    bool negative = *p == '-';
    p += negative;
    const char *first = p;
    uint64_t w = 0;
    p = uni__gather_digits(p, &w);
    int64_t digits = p - first, q = 0;
    if (*p == '.') {
        const char *fraction = ++p;
        p = uni__gather_digits(p, &w);
        q = fraction - p;
        digits += p - fraction;
    }
    if (digits == 0 || (digits > 19 && digits - uni__leading_zeros(first) > 19))
        return NULL;
    if (*p == 'e' || *p == 'E') {
        bool below = p[1] == '-';
        p += 1 + (p[1] == '-' || p[1] == '+');
        const char *from = p;
        uint64_t exponent = 0;
        p = uni__gather_digits(p, &exponent);
        if (p == from || p - from > 5)
            return NULL;
        q += below ? -(int64_t)exponent : (int64_t)exponent;
    }
    double value;
    if (!uni__scale(w, q, &value))
        return NULL;
    *out = negative ? -value : value;
    return p;
}

/* Parses a plain integer of at most 18 digits; NULL otherwise. */
static inline const char *uni__parse_int(const char *p, int64_t *out)
{
    bool negative = *p == '-';
    p += negative;
    const char *first = p;
    uint64_t w = 0;
    p = uni__gather_digits(p, &w);
    if (p == first || p - first > 18)
        return NULL;
    *out = negative ? -(int64_t)w : (int64_t)w;
    return p;
}

#endif
