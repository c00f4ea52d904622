/* safe_text_test.c - which characters are escaped, and which are shown as they are. */
#include "base/safe_text.h"
#include "base/test.h"

static size_t encode(uint32_t code, char out[5])
{
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char first[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    if (length == 1)
        out[0] = (char)code;
    for (size_t i = length; length > 1 && i-- > 0; code >>= 6)
        out[i] = (char)(i ? 0x80 | (code & 0x3f) : first[length] | code);
    out[length] = 0;
    return length;
}

/* Tests every character: what Unicode calls a control (Cc) or a direction mark is never written as
 * it is. */
static void every_character(void **state)
{
    static const uint32_t directions[] = { 0x061c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d,
                                           0x202e, 0x2066, 0x2067, 0x2068, 0x2069, 0x2028, 0x2029 };
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        char text[5];
        uni__text out = { 0 };
        if (code >= 0xd800 && code < 0xe000)
            continue;
        size_t length = encode(code, text);
        uni__text_add_safe(&out, text, length, "");
        bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        for (size_t i = 0; i < sizeof directions / sizeof directions[0]; i++)
            control = control || code == directions[i];
        bool shown = out.size == length && memcmp(out.data, text, length) == 0;
        if (control && (shown || out.data[0] != '\\'))
            fail_msg("U+%04X is shown as it is", (unsigned)code);
        if ((code >= 0x20 && code < 0x7f && !shown) || (code >= 0xa0 && code < 0x600 && !shown))
            fail_msg("U+%04X is escaped", (unsigned)code);
        uni__text_free(&out);
    }
}

static void expect(const char *text, size_t length, const char *keep, const char *expected)
{
    uni__text out = { 0 };
    uni__text_add_safe(&out, text, length, keep);
    assert_string_equal(out.data, expected);
    uni__text_free(&out);
}

static void forms(void **state)
{
    (void)state;
    expect("a\0b", 3, "\n", "a\\u0000b");
    expect("a\nb\tc\r", 6, "", "a\\nb\\tc\\r");
    expect("a\nb\tc\r", 6, "\n\t", "a\nb\tc\\r");
    expect("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x80", 11, "",
           "\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xe2\\x80");
    expect("\xf3\xa0\x80\x81", 4, "", "\\udb40\\udc01");
    expect("\xe6\x97\xa5\xe6\x9c\xac", 6, "", "\xe6\x97\xa5\xe6\x9c\xac");
}

static void colours(void **state)
{
    (void)state;
    static const struct {
        const char *text, *kept;
    } sequences[] = {
        { "\033[1;31mx", "[1;31m" },
        { "\033[mx", "[0m" },
        { "\033[;4mx", "[0;4m" },
        { "\033[4;mx", "[4;0m" },
        { "\033[22;24;39;96mx", "[22;24;39;96m" },
        /* codes that hide: dim, blink, inverse, conceal, strike, fonts, backgrounds, black,
         * white */
        { "\033[8mx", "" },
        { "\033[5;6mx", "" },
        { "\033[2;3;7;9;10;20mx", "" },
        { "\033[30;40mx", "" },
        { "\033[31;41;107mx", "[31m" },
        { "\033[37;97;90mx", "" },
        { "\033[008mx", "" },
        { "\033[4294967304mx", "" },
        /* the parameters of a longer color are not separate codes */
        { "\033[38;5;1;1mx", "[1m" },
        { "\033[38;2;31;1;4;36mx", "[36m" },
        { "\033[48;5;mx", "" },
        { "\033[38;2;;;;33mx", "[33m" },
        { "\033[38;5mx", "" },
        { "\033[38mx", "" },
        { "\033[38;31mx", "[31m" },
    };
    char kept[UNI__SGR_SIZE];
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        size_t length = strlen(sequences[i].text);
        assert_int_equal(uni__sgr_sequence(sequences[i].text, length, kept), length - 1);
        assert_string_equal(kept, sequences[i].kept);
    }
    /* the longest */
    assert_int_equal(uni__sgr_sequence("\033[;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;m", 41, kept),
                     41);
    assert_int_equal(strlen(kept), 1 + 39 + 38 + 1);
    static const char *const others[] = {
        "\033[31", "\033[2J", "\033]0;m", "\033[?25m", "m", "\033"
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(uni__sgr_sequence(others[i], strlen(others[i]), kept), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character),
        cmocka_unit_test(forms),
        cmocka_unit_test(colours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
