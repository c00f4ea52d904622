/*
 * json_scan.c - scans JSON values (json_scan.h). Pure functions on the scanner.
 */
#include "data/sources/json_scan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/sources/decimal.h"

bool uni__json_fail(uni__json_scan *scan, const char *problem)
{
    if (scan->problem == NULL)
        scan->problem = problem;
    return false;
}

void uni__json_space(uni__json_scan *scan)
{
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\t' || *scan->at == '\r' || *scan->at == '\n'))
        scan->at++;
}

bool uni__json_take(uni__json_scan *scan, char c)
{
    uni__json_space(scan);
    if (scan->at >= scan->end || *scan->at != c)
        return false;
    scan->at++;
    return true;
}

uni__json_kind uni__json_peek(uni__json_scan *scan)
{
    uni__json_space(scan);
    if (scan->at >= scan->end)
        return UNI__JSON_BAD;
    switch (*scan->at) {
    case '{':
        return UNI__JSON_OBJECT;
    case '[':
        return UNI__JSON_LIST;
    case '"':
        return UNI__JSON_STRING;
    case 't':
    case 'f':
        return UNI__JSON_BOOL;
    case 'n':
        return UNI__JSON_NULL;
    default:
        return *scan->at == '-' || (*scan->at >= '0' && *scan->at <= '9') ? UNI__JSON_FLOAT
                                                                          : UNI__JSON_BAD;
    }
}

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hex digits, or -1. */
static int hex_word(const char *text, const char *end)
{
    int value = 0;
    if (end - text < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Size of the escape at a backslash (12 for a surrogate pair), or 0 if it is invalid. */
static size_t escape_size(const char *at, const char *end)
{
    if (end - at < 2)
        return 0;
    if (at[1] != 'u')
        return strchr("\"\\/bfnrt", at[1]) != NULL && at[1] != '\0' ? 2 : 0;
    int word = hex_word(at + 2, end);
    if (word <= 0 || (word >= 0xdc00 && word < 0xe000)) /* 0: no NUL in strings */
        return 0;
    if (word < 0xd800 || word >= 0xe000)
        return 6;
    int low = end - at >= 12 && at[6] == '\\' && at[7] == 'u' ? hex_word(at + 8, end) : -1;
    return low >= 0xdc00 && low < 0xe000 ? 12 : 0;
}

/* Skips plain characters, eight at a time: ASCII that is neither a control character nor a quote
 * nor a backslash. `- n` sets the highest bit of a byte less than n. */
static const char *pass_plain(const char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101U, high = 0x8080808080808080U;
    uint64_t word;
    for (; end - at >= 8; at += 8) {
        memcpy(&word, at, 8);
        uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
        if (((word | (word - ones * 0x20) | (quote - ones) | (slash - ones)) & high) != 0)
            break;
    }
    return at;
}

static bool scan_string(uni__json_scan *scan, uni__json_token *token)
{
    scan->at++;
    token->text = scan->at;
    token->escaped = false;
    while ((scan->at = pass_plain(scan->at, scan->end)) < scan->end) {
        unsigned char c = (unsigned char)*scan->at;
        size_t step = 1;
        if (c == '"') {
            token->size = (size_t)(scan->at - token->text);
            scan->at++;
            return true;
        }
        if (c < 0x20)
            return uni__json_fail(scan, "a control character in a string");
        if (c == '\\') {
            step = escape_size(scan->at, scan->end);
            token->escaped = true;
            if (step == 0)
                return uni__json_fail(scan, "an escape that is none");
        } else if (c >= 0x80) {
            step = uni__utf8_sequence(scan->at, (size_t)(scan->end - scan->at));
            if (step == 0)
                return uni__json_fail(scan, "bytes that are not UTF-8");
        }
        scan->at += step;
    }
    return uni__json_fail(scan, "a string without its closing quote");
}

static size_t put_utf8(char *out, unsigned code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

static unsigned unescape_one(const char *at, const char *end, size_t *size)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    *size = escape_size(at, end);
    if (*size == 2)
        return (unsigned char)to[strchr(from, at[1]) - from];
    unsigned high = (unsigned)hex_word(at + 2, end);
    if (*size == 6)
        return high;
    return 0x10000 + ((high - 0xd800) << 10) + ((unsigned)hex_word(at + 8, end) - 0xdc00);
}

size_t uni__json_unescape(char *out, const char *text, size_t size)
{
    const char *end = text + size;
    char *to = out;
    while (text < end) {
        const char *next = memchr(text, '\\', (size_t)(end - text));
        size_t plain = (size_t)((next != NULL ? next : end) - text), step;
        memmove(to, text, plain);
        to += plain;
        text += plain;
        if (next == NULL)
            break;
        to += put_utf8(to, unescape_one(text, end, &step));
        text += step;
    }
    return (size_t)(to - out);
}

/* ---- numbers ---- */

#define MAX_NUMBER 400

static bool slow_float(uni__json_scan *scan, const char *text, size_t size, double *out)
{
    char copy[MAX_NUMBER + 1];
    if (size > MAX_NUMBER)
        return uni__json_fail(scan, "a number of more than 400 characters");
    memcpy(copy, text, size);
    copy[size] = '\0';
    *out = uni__read_double(copy, NULL);
    if (isinf(*out))
        return uni__json_fail(scan, "a number that is too large for a double");
    return true;
}

struct number {
    uint64_t digits; /* the first 19 */
    int count; /* without leading zeros */
    int exponent;
    bool negative, real;
};

static const char *read_digits(const char *at, const char *end, struct number *number,
                               bool fraction)
{
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (number->count < 19)
            number->digits = number->digits * 10 + (uint64_t)(*at - '0');
        number->count += number->digits > 0;
        number->exponent -= fraction;
    }
    return at;
}

/* Checks the syntax of a number; returns its end, or NULL. */
static const char *read_number(const char *at, const char *end, struct number *number)
{
    number->negative = *at == '-';
    at += number->negative;
    const char *first = at;
    at = read_digits(at, end, number, false);
    if (at == first || (*first == '0' && at - first > 1))
        return NULL;
    if (at < end && *at == '.') {
        first = ++at;
        at = read_digits(at, end, number, true);
        number->real = true;
        if (at == first)
            return NULL;
    }
    if (at < end && (*at | 0x20) == 'e') {
        int power = 0;
        at++;
        bool minus = at < end && *at == '-';
        at += at < end && (*at == '-' || *at == '+');
        first = at;
        for (; at < end && *at >= '0' && *at <= '9'; at++)
            power = power < 100000 ? power * 10 + (*at - '0') : power;
        number->exponent += minus ? -power : power;
        number->real = true;
        if (at == first)
            return NULL;
    }
    return at;
}

static uni__json_kind scan_number(uni__json_scan *scan, uni__json_token *token)
{
    struct number number = { 0 };
    const char *at = read_number(scan->at, scan->end, &number);
    token->text = scan->at;
    if (at == NULL) {
        uni__json_fail(scan, "a number that is none");
        return UNI__JSON_BAD;
    }
    token->size = (size_t)(at - scan->at);
    uint64_t limit = (uint64_t)INT64_MAX + (number.negative ? 1 : 0);
    if (!number.real && number.count <= 19 && number.digits <= limit) {
        token->integer = number.negative ? (int64_t)(0 - number.digits) : (int64_t)number.digits;
        token->real = (double)token->integer;
        scan->at = at;
        return UNI__JSON_INT;
    }
    if (number.count > 19 || !uni__scale(number.digits, number.exponent, &token->real)) {
        if (!slow_float(scan, scan->at, token->size, &token->real))
            return UNI__JSON_BAD;
    } else if (number.negative) {
        token->real = -token->real;
    }
    scan->at = at;
    return UNI__JSON_FLOAT;
}

/* ---- values ---- */

static bool scan_word(uni__json_scan *scan, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(scan->end - scan->at) < size || memcmp(scan->at, word, size) != 0)
        return uni__json_fail(scan, "something that is not a JSON value");
    scan->at += size;
    return true;
}

int uni__json_item(uni__json_scan *scan, bool first)
{
    if (uni__json_take(scan, ']'))
        return 0;
    if (!first && !uni__json_take(scan, ',')) {
        uni__json_fail(scan, "neither ',' nor ']' after an item of a list");
        return -1;
    }
    return 1;
}

int uni__json_member(uni__json_scan *scan, bool first, uni__json_token *key)
{
    if (uni__json_take(scan, '}'))
        return 0;
    if (!first && !uni__json_take(scan, ',')) {
        uni__json_fail(scan, "neither ',' nor '}' after a member of an object");
        return -1;
    }
    uni__json_space(scan);
    if (scan->at >= scan->end || *scan->at != '"') {
        uni__json_fail(scan, "no key in quotes where one should be");
        return -1;
    }
    if (!scan_string(scan, key))
        return -1;
    if (!uni__json_take(scan, ':')) {
        uni__json_fail(scan, "no ':' after a key");
        return -1;
    }
    return 1;
}

static uni__json_kind next_value(uni__json_scan *scan, uni__json_token *token, int depth);

static bool step_over(uni__json_scan *scan, bool object, int depth)
{
    uni__json_token inner;
    int more;
    if (depth > UNI__JSON_MAX_DEPTH)
        return uni__json_fail(scan, "nesting deeper than 30 levels");
    scan->at++;
    for (bool first = true;; first = false) {
        more = object ? uni__json_member(scan, first, &inner) : uni__json_item(scan, first);
        if (more <= 0)
            return more == 0;
        if (next_value(scan, &inner, depth) == UNI__JSON_BAD)
            return false;
    }
}

static uni__json_kind next_value(uni__json_scan *scan, uni__json_token *token, int depth)
{
    uni__json_kind kind = uni__json_peek(scan);
    bool good = true;
    token->text = scan->at;
    switch (kind) {
    case UNI__JSON_STRING:
        return scan_string(scan, token) ? kind : UNI__JSON_BAD;
    case UNI__JSON_FLOAT:
        return scan_number(scan, token);
    case UNI__JSON_BOOL:
        token->integer = *scan->at == 't';
        token->real = (double)token->integer;
        good = scan_word(scan, token->integer != 0 ? "true" : "false");
        break;
    case UNI__JSON_NULL:
        good = scan_word(scan, "null");
        break;
    case UNI__JSON_LIST:
    case UNI__JSON_OBJECT:
        good = step_over(scan, kind == UNI__JSON_OBJECT, depth + 1);
        break;
    default:
        good = uni__json_fail(scan, scan->at < scan->end ? "something that is not a JSON value"
                                                         : "nothing where a value should be");
        break;
    }
    token->size = (size_t)(scan->at - token->text);
    return good ? kind : UNI__JSON_BAD;
}

uni__json_kind uni__json_next(uni__json_scan *scan, uni__json_token *token)
{
    return next_value(scan, token, 0);
}

bool uni__json_name(uni__json_scan *scan, uni__json_names *names, uni__json_token *key)
{
    if (!key->escaped)
        return true;
    if (names->room < key->size) {
        char *larger = realloc(names->buffer, 2 * key->size);
        if (larger == NULL)
            return false;
        names->buffer = larger;
        names->room = 2 * key->size;
    }
    key->size = uni__json_unescape(names->buffer, key->text, key->size);
    key->text = names->buffer;
    key->escaped = false;
    return memchr(key->text, 0, key->size) == NULL ||
           uni__json_fail(scan,
                          "a key with a zero character (\\u0000), which no column can be called");
}
