/*
 * line.c - the parser for lines of results.jsonl.
 *
 * A recursive descent over the bytes, directly into uni_values. Two things make it fast: runs of
 * plain characters are taken at once, and numbers are converted without strtod wherever that is
 * provably exact (see exact_double). Non-finite numbers are null in the metrics and listed by name
 * after them, in document order. A line that has them is parsed with the path of each value known,
 * and each null at the next expected path becomes that number.
 */
#include "track/line.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

typedef struct parser {
    const char *at, *end;
    const char *names, *names_end; /* the rest of the nonfinite object, or NULL */
    uni__text path; /* dotted path of the value being read; only if names is set */
    uni__text scratch; /* unescaped strings */
    int depth;
} parser;

static int parse_value(parser *p, uni_value **out);

static bool take(parser *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static bool take_word(parser *p, const char *word, size_t length)
{
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0)
        return false;
    p->at += length;
    return true;
}

/* ---- numbers ---- */

#if LDBL_MANT_DIG == 64
static const long double powers_of_ten[] = { 1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,
                                             1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
                                             1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L,
                                             1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L };

/*
 * digits * 10^exponent with |exponent| <= 27. Both factors are exact in the 64-bit mantissa of long
 * double (5^27 < 2^64), so the single operation is off by at most half a unit of that mantissa.
 * Rounding to 53 bits is then correct unless the 11 bits that are cut off are exactly one half:
 * only then it is unknown on which side the true value lies, and strtod decides.
 */
static bool exact_double(uint64_t digits, int exponent, double *out)
{
    if (exponent < -27 || exponent > 27)
        return false;
    long double value = (long double)digits;
    value = exponent < 0 ? value / powers_of_ten[-exponent] : value * powers_of_ten[exponent];
    uint64_t mantissa;
    memcpy(&mantissa, &value, sizeof mantissa);
    if ((mantissa & 0x7ff) == 0x400)
        return false;
    *out = (double)value;
    return true;
}
#else
static bool exact_double(uint64_t digits, int exponent, double *out)
{
    (void)digits, (void)exponent, (void)out;
    return false;
}
#endif

/* Appends digits to *digits (at most 19 are counted there); returns their number without leading
 * zeros. */
static int take_digits(parser *p, uint64_t *digits, int significant, int *seen)
{
    const char *start = p->at;
    uint64_t value = *digits;
    while (p->at < p->end && (unsigned char)(*p->at - '0') < 10) {
        if (significant > 0 || *p->at != '0')
            significant++;
        if (significant <= 19)
            value = value * 10 + (uint64_t)(*p->at - '0');
        p->at++;
    }
    *digits = value;
    *seen = (int)(p->at - start);
    return significant;
}

/* Numbers that our writer never makes (beyond the range of int64 or double) are rejected like any
 * other damage. */
static int slow_number(const char *start, const char *end, bool real, uni_value **out)
{
    char copy[400]; /* the longest double without an exponent has 309 digits before the point */
    size_t length = (size_t)(end - start);
    if (length >= sizeof copy)
        return UNI_EFORMAT;
    memcpy(copy, start, length);
    copy[length] = 0;
    char *stop = NULL;
    errno = 0;
    double value = real ? uni__read_double(copy, &stop) : 0;
    int64_t integer = real ? 0 : strtoll(copy, &stop, 10);
    if (stop != copy + length || isinf(value) || (!real && errno == ERANGE))
        return UNI_EFORMAT;
    *out = real ? uni_value_float(value) : uni_value_int(integer);
    return *out == NULL ? UNI_ENOMEM : 0;
}

static int parse_number(parser *p, uni_value **out)
{
    const char *start = p->at;
    bool negative = take(p, '-');
    uint64_t digits = 0;
    int whole = 0, fraction = 0, exponent = 0;
    int significant = take_digits(p, &digits, 0, &whole);
    bool real = false;
    if (whole == 0)
        return UNI_EFORMAT;
    if (take(p, '.')) {
        real = true;
        significant = take_digits(p, &digits, significant, &fraction);
        if (fraction == 0)
            return UNI_EFORMAT;
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        p->at++;
        bool down = take(p, '-');
        uint64_t value = 0;
        int seen = 0;
        if (!down)
            (void)take(p, '+');
        (void)take_digits(p, &value, 0, &seen);
        if (seen == 0 || seen > 6)
            return UNI_EFORMAT;
        exponent = down ? -(int)value : (int)value;
        real = true;
    }
    if (!real && significant <= 18) {
        *out = uni_value_int(negative ? -(int64_t)digits : (int64_t)digits);
        return *out == NULL ? UNI_ENOMEM : 0;
    }
    double value = 0;
    if (real && digits == 0) {
        *out = uni_value_float(negative ? -0.0 : 0.0);
        return *out == NULL ? UNI_ENOMEM : 0;
    }
    if (real && significant <= 19 && exact_double(digits, exponent - fraction, &value)) {
        *out = uni_value_float(negative ? -value : value);
        return *out == NULL ? UNI_ENOMEM : 0;
    }
    return slow_number(start, p->at, real, out);
}

/* ---- strings ---- */

static bool take_hex(parser *p, uint32_t *code)
{
    if (p->end - p->at < 4)
        return false;
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        char c = *p->at++;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return false;
        value = value << 4 | (uint32_t)digit;
    }
    *code = value;
    return true;
}

static void add_utf8(uni__text *text, uint32_t code)
{
    char bytes[4];
    size_t count;
    if (code < 0x80) {
        bytes[0] = (char)code;
        count = 1;
    } else if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        count = 2;
    } else if (code < 0x10000) {
        bytes[0] = (char)(0xe0 | code >> 12);
        bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (code & 0x3f));
        count = 3;
    } else {
        bytes[0] = (char)(0xf0 | code >> 18);
        bytes[1] = (char)(0x80 | (code >> 12 & 0x3f));
        bytes[2] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[3] = (char)(0x80 | (code & 0x3f));
        count = 4;
    }
    uni__text_add(text, bytes, count);
}

static int take_escape(parser *p)
{
    static const char plain[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return UNI_EFORMAT;
    char c = *p->at++;
    const char *known = c != 0 ? strchr(plain, c) : NULL;
    if (known != NULL) {
        uni__text_add(&p->scratch, &meaning[known - plain], 1);
        return 0;
    }
    uint32_t code, low;
    if (c != 'u' || !take_hex(p, &code) || (code >= 0xdc00 && code < 0xe000))
        return UNI_EFORMAT;
    if (code >= 0xd800 && code < 0xdc00) {
        if (!take(p, '\\') || !take(p, 'u') || !take_hex(p, &low) || low < 0xdc00 || low >= 0xe000)
            return UNI_EFORMAT;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    add_utf8(&p->scratch, code);
    return 0;
}

/* Parses a string without its quotes: *text points into the line, or into the scratch buffer if
 * there were escapes; then it is valid until the next string. */
static int parse_string(parser *p, const char **text, size_t *length)
{
    if (!take(p, '"'))
        return UNI_EFORMAT;
    const char *start = p->at;
    while (p->at < p->end && *p->at != '"' && *p->at != '\\' && (unsigned char)*p->at >= 0x20)
        p->at++;
    *text = start;
    *length = (size_t)(p->at - start);
    if (take(p, '"'))
        return 0;
    uni__text_clear(&p->scratch);
    uni__text_add(&p->scratch, start, *length);
    while (p->at < p->end && *p->at != '"') {
        if ((unsigned char)*p->at < 0x20)
            return UNI_EFORMAT;
        if (take(p, '\\'))
            UNI_TRY(take_escape(p));
        else
            uni__text_add(&p->scratch, p->at++, 1);
    }
    if (!take(p, '"'))
        return UNI_EFORMAT;
    if (p->scratch.failed)
        return UNI_ENOMEM;
    *text = p->scratch.size > 0 ? p->scratch.data : "";
    *length = p->scratch.size;
    return 0;
}

/* ---- non-finite numbers ---- */

static bool number_named(const char *text, size_t length, double *out)
{
    if (length == 3 && memcmp(text, "NaN", 3) == 0)
        *out = NAN;
    else if (length == 8 && memcmp(text, "Infinity", 8) == 0)
        *out = INFINITY;
    else if (length == 9 && memcmp(text, "-Infinity", 9) == 0)
        *out = -INFINITY;
    else
        return false;
    return true;
}

/* Checks whether a null is the next number of the nonfinite object. Returns 1 and *value, 0, or an
 * error. */
static int next_nonfinite(parser *p, double *value)
{
    if (p->names == NULL || p->names == p->names_end)
        return 0;
    parser names = { .at = p->names, .end = p->names_end, .scratch = p->scratch };
    const char *text = NULL;
    size_t length = 0;
    int status = parse_string(&names, &text, &length);
    bool mine = status == 0 && length == p->path.size &&
                (length == 0 || memcmp(text, p->path.data, length) == 0);
    if (status == 0 && mine) {
        status = take(&names, ':') ? parse_string(&names, &text, &length) : UNI_EFORMAT;
        if (status == 0 && !number_named(text, length, value))
            status = UNI_EFORMAT;
        (void)take(&names, ',');
        p->names = names.at;
    }
    p->scratch = names.scratch;
    return status < 0 ? status : mine;
}

static int parse_null(parser *p, uni_value **out)
{
    double value = 0;
    int found = next_nonfinite(p, &value);
    if (found < 0)
        return found;
    *out = found ? uni_value_float(value) : uni_value_null();
    return *out == NULL ? UNI_ENOMEM : 0;
}

/* ---- containers ---- */

static size_t path_push(parser *p, const char *key, size_t length)
{
    size_t before = p->path.size;
    if (p->names != NULL) {
        if (p->depth > 1)
            uni__text_add(&p->path, ".", 1);
        uni__text_add(&p->path, key, length);
    }
    return before;
}

static void path_pop(parser *p, size_t before)
{
    if (p->names != NULL && p->path.size > before) {
        p->path.size = before;
        p->path.data[before] = 0;
    }
}

static int parse_member(parser *p, uni_value *dict)
{
    char small[128];
    const char *text = NULL;
    size_t length = 0;
    uni_value *value = NULL;
    UNI_TRY(parse_string(p, &text, &length));
    if (memchr(text, 0, length) != NULL) /* keys are C strings everywhere else */
        return UNI_EFORMAT;
    char *key = length < sizeof small ? small : malloc(length + 1);
    if (key == NULL)
        return UNI_ENOMEM;
    memcpy(key, text, length);
    key[length] = 0;
    size_t before = path_push(p, key, length);
    int status = take(p, ':') ? parse_value(p, &value) : UNI_EFORMAT;
    path_pop(p, before);
    if (status == 0)
        status = uni_dict_take(dict, key, value);
    if (key != small)
        free(key);
    return status;
}

static int parse_item(parser *p, uni_value *list, size_t index)
{
    uni_value *value = NULL;
    size_t before = p->path.size;
    if (p->names != NULL) {
        char number[UNI__NUMBER_SIZE];
        before = path_push(p, number, uni__format_int(number, (int64_t)index));
    }
    int status = parse_value(p, &value);
    path_pop(p, before);
    return status < 0 ? status : uni_list_take(list, value);
}

static int parse_container(parser *p, uni_value **out)
{
    bool is_dict = *p->at++ == '{';
    char close = is_dict ? '}' : ']';
    uni_value *container = is_dict ? uni_value_dict() : uni_value_list();
    int status = container == NULL ? UNI_ENOMEM : 0;
    if (++p->depth > UNI_VALUE_MAX_DEPTH)
        status = UNI_EFORMAT;
    if (status == 0 && !take(p, close)) {
        size_t index = 0;
        do {
            status = is_dict ? parse_member(p, container) : parse_item(p, container, index++);
        } while (status == 0 && take(p, ','));
        if (status == 0 && !take(p, close))
            status = UNI_EFORMAT;
    }
    p->depth--;
    if (status < 0) {
        uni_value_free(container);
        return status;
    }
    *out = container;
    return 0;
}

/* On failure *out is NULL. */
static int parse_value(parser *p, uni_value **out)
{
    const char *text = NULL;
    size_t length = 0;
    *out = NULL;
    if (p->at == p->end)
        return UNI_EFORMAT;
    switch (*p->at) {
    case '{':
    case '[':
        return parse_container(p, out);
    case '"':
        UNI_TRY(parse_string(p, &text, &length));
        if (!uni__utf8_valid(text, length))
            return UNI_EFORMAT;
        *out = uni_value_string_n(text, length);
        return *out == NULL ? UNI_ENOMEM : 0;
    case 't':
    case 'f': {
        bool value = *p->at == 't';
        if (!(value ? take_word(p, "true", 4) : take_word(p, "false", 5)))
            return UNI_EFORMAT;
        *out = uni_value_bool(value);
        return *out == NULL ? UNI_ENOMEM : 0;
    }
    case 'n':
        return take_word(p, "null", 4) ? parse_null(p, out) : UNI_EFORMAT;
    default:
        return parse_number(p, out);
    }
}

/* ---- lines ---- */

static bool take_integer(parser *p, int64_t limit, int64_t *out)
{
    uint64_t digits = 0;
    int seen = 0;
    if (take_digits(p, &digits, 0, &seen) > 18 || seen == 0 || digits > (uint64_t)limit)
        return false;
    *out = (int64_t)digits;
    return true;
}

int uni__line_head_parse(const char *line, size_t size, uni__line_head *head)
{
    parser p = { .at = line, .end = line + size };
    int64_t attempt = 0, rank = 0, iteration = 0;
    if (!take_word(&p, "{\"attempt\":", 11) || !take_integer(&p, INT_MAX, &attempt) ||
        !take_word(&p, ",\"rank\":", 8) || !take_integer(&p, INT_MAX - 1, &rank) ||
        !take_word(&p, ",\"iteration\":", 13) || !take_integer(&p, INT64_MAX, &iteration) ||
        !take_word(&p, ",\"metrics\":", 11) || p.at == p.end || *p.at != '{' || p.end[-1] != '}')
        return UNI_EFORMAT;
    *head = (uni__line_head){ (int)attempt, (int)rank, iteration, (size_t)(p.at - line) };
    return 0;
}

int uni__line_metrics(const char *line, size_t size, const uni__line_head *head, uni_value **out,
                      uni_error *err)
{
    const char *end = line + size;
    parser p = { .at = line + head->metrics, .end = end };
    *out = NULL;
    int status = parse_value(&p, out);
    if (status == 0 && take_word(&p, ",\"nonfinite\":{", 14) && end - p.at >= 2) {
        /* Parse again, now that the position of the names is known; diverged losses are rare. */
        const char *names = p.at;
        uni_value_free(*out);
        p.at = line + head->metrics;
        p.names = names;
        p.names_end = end - 2;
        status = parse_value(&p, out);
        p.at = end - 1;
    }
    if (status == 0 && (!take(&p, '}') || p.at != end))
        status = UNI_EFORMAT;
    uni__text_free(&p.scratch);
    uni__text_free(&p.path);
    if (status == 0)
        return 0;
    uni_value_free(*out);
    *out = NULL;
    /* Any other failure is damage, whatever the value's own checks returned. */
    if (status != UNI_ENOMEM)
        status = UNI_EFORMAT;
    return uni_error_set(err, status,
                         "a line of results.jsonl (rank %d, iteration %lld) is damaged", head->rank,
                         (long long)head->iteration);
}
