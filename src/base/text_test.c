/* text_test.c - the growing buffer and JSON strings. */
#include "base/test.h"
#include "base/text.h"

static void grows_and_stays_terminated(void **state)
{
    uni__text text = { 0 };
    for (int i = 0; i < 10000; i++) {
        uni__text_add_int(&text, i % 10);
        assert_int_equal(text.data[text.size], 0);
    }
    assert_int_equal(text.size, 10000);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(text.data[i], '0' + i % 10);
    size_t capacity = text.capacity;
    uni__text_clear(&text);
    assert_int_equal(text.size, 0);
    assert_string_equal(text.data, "");
    assert_int_equal(text.capacity, capacity);
    uni__text_add(&text, NULL, 0);
    assert_string_equal(text.data, "");
    uni__text_free(&text);
    assert_null(text.data);
}

static void formats_beyond_the_first_guess(void **state)
{
    uni__text text = { 0 };
    char longer[3001];
    memset(longer, 'a', 3000);
    longer[3000] = 0;
    uni__text_add_string(&text, "x");
    uni__text_add_format(&text, "%d-%s-%d", 1, longer, 2);
    assert_int_equal(text.size, 1 + 2 + 3000 + 2);
    assert_memory_equal(text.data, "x1-aaa", 6);
    assert_string_equal(text.data + text.size - 3, "a-2");
    uni__text_free(&text);
}

static void a_failed_allocation_is_remembered(void **state)
{
    uni__text text = { 0 };
    uni__text_add_string(&text, "abc");
    assert_null(uni__text_reserve(&text, SIZE_MAX - 1));
    assert_true(text.failed);
    uni__text_add_string(&text, "def");
    uni__text_add_int(&text, 1);
    uni__text_add_double(&text, 1);
    uni__text_add_format(&text, "%d", 1);
    uni__text_add_json_string(&text, "x", 1);
    assert_string_equal(text.data, "abc");
    uni__text_clear(&text);
    uni__text_add_string(&text, "again");
    assert_false(text.failed);
    assert_string_equal(text.data, "again");
    uni__text_free(&text);
}

static void check_json(const char *in, size_t length, const char *expected)
{
    uni__text text = { 0 };
    uni__text_add_json_string(&text, in, length);
    assert_string_equal(text.data, expected);
    uni__text_free(&text);
}

static void json_strings(void **state)
{
    check_json("", 0, "\"\"");
    check_json("loss", 4, "\"loss\"");
    check_json("a\"b\\c\n\r\t\x01\x1f/", 11, "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u001f/\"");
    check_json("a\0b", 3, "\"a\\u0000b\"");
    check_json("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 9,
               "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
    check_json("\x7F", 1, "\"\x7F\"");
}

/* Compares the test of eight bytes at once with the definition, for every byte at every place. */
static void plain_strings_are_recognised(void **state)
{
    for (int byte = 0; byte < 256; byte++) {
        bool plain = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
        for (size_t place = 0; place < 19; place++) {
            static const char fillers[] = { ' ', 'a', 0x7F, '!', '#', '[', ']' };
            for (size_t f = 0; f < sizeof fillers; f++) {
                char text[19];
                memset(text, fillers[f], sizeof text);
                text[place] = (char)byte;
                assert_int_equal(uni__json_is_plain(text, sizeof text), plain);
            }
        }
    }
    assert_true(uni__json_is_plain("", 0));
}

#define FFFD "\xEF\xBF\xBD"

static void broken_utf8_becomes_a_replacement_each_byte(void **state)
{
    check_json("a\xFFz", 3, "\"a" FFFD "z\"");
    check_json("\xC3", 1, "\"" FFFD "\""); /* truncated */
    check_json("\xC0\x80", 2, "\"" FFFD FFFD "\""); /* overlong */
    check_json("\xE0\x80\x80", 3, "\"" FFFD FFFD FFFD "\""); /* overlong */
    check_json("\xED\xA0\x80", 3, "\"" FFFD FFFD FFFD "\""); /* a surrogate */
    check_json("\xF4\x90\x80\x80", 4, "\"" FFFD FFFD FFFD FFFD "\""); /* above U+10FFFF */
    check_json("\xE2\x82\"", 3, "\"" FFFD FFFD "\\\"\""); /* the quote is not consumed */
}

/* Compares every sequence of up to three bytes with UTF-8's ranges, defined by value. */
static void utf8_agrees_with_decoding(void **state)
{
    for (uint32_t bits = 0; bits < 1u << 24; bits += 7) {
        char s[3] = { (char)(bits >> 16), (char)(bits >> 8), (char)bits };
        const unsigned char *u = (const unsigned char *)s;
        size_t expected = 0;
        if (u[0] < 0x80)
            expected = 1;
        else if ((u[0] & 0xE0) == 0xC0 && (u[1] & 0xC0) == 0x80 && (u[0] & 31) >= 2)
            expected = 2;
        else if ((u[0] & 0xF0) == 0xE0 && (u[1] & 0xC0) == 0x80 && (u[2] & 0xC0) == 0x80) {
            uint32_t code = (u[0] & 15u) << 12 | (u[1] & 63u) << 6 | (u[2] & 63u);
            if (code >= 0x800 && (code < 0xD800 || code > 0xDFFF))
                expected = 3;
        }
        if (uni__utf8_sequence(s, 3) != expected)
            fail_msg("%02x %02x %02x: %zu instead of %zu", u[0], u[1], u[2],
                     uni__utf8_sequence(s, 3), expected);
    }
    assert_true(uni__utf8_valid("\xF0\x9F\x98\x80 ok", 7));
    assert_false(uni__utf8_valid("ok \xF0\x9F\x98", 6));
    assert_true(uni__utf8_valid("", 0));
}

static void test_ranges_are_read(void **state)
{
    (void)state;
    bool member[8] = { false };
    assert_true(uni__read_ranges("0,2,5-7\n", member, 8));
    assert_memory_equal(member, ((bool[8]){ 1, 0, 1, 0, 0, 1, 1, 1 }), sizeof member);
    static const char *const bad[] = { "",   "8",  "0,",  "3-1",  "a",
                                       "-1", "1-", "0 1", "1\n2", "99999999999999999999" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (uni__read_ranges(bad[i], member, 8))
            fail_msg("\"%s\" was accepted", bad[i]);
}

static void a_bar_is_left_as_it_looked_last(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "plain\n", "plain\n" },
        { "", "" },
        { "\n", "\n" },
        { "dos\r\n", "dos\n" },
        { "\r1/5 [=>..]\b\b\b\b\b\b\b\b\b\b\r5/5 [====]\n", "5/5 [====]\n" }, /* Keras */
        { "\r 10%\r 20%\r100%", "100%" }, /* tqdm */
        { "10%\b\b\b20%\n", "20%\n" },
        { "done\b\b\b\b\n", "done\n" },
        { "\b\bab\b\b\b\bc", "c" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[80];
        size_t size = strlen(strcpy(line, cases[i][0]));
        size = uni__settle_line(line, size);
        if (size != strlen(cases[i][1]) || memcmp(line, cases[i][1], size) != 0)
            fail_msg("case %zu became \"%.*s\"", i, (int)size, line);
    }
}

/* Insertions, deletions, replacements and swaps of neighbours; no part is swapped and then changed
 * again. Counted by hand. */
static void edit_distances(void **state)
{
    static const struct {
        const char *a, *b;
        size_t distance;
    } cases[] = {
        { "", "", 0 },
        { "", "abc", 3 },
        { "loss", "loss", 0 },
        { "ab", "ba", 1 },
        { "lsos", "loss", 1 },
        { "abcd", "abdc", 1 },
        { "axb", "bxa", 2 },
        { "ca", "abc", 3 },
        { "accuracy", "acuracy", 1 },
        { "lr", "learning_rate", 11 },
        { "kitten", "sitting", 3 },
        { "aa", "ab", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(uni__edit_distance(cases[i].a, cases[i].b), cases[i].distance);
        assert_int_equal(uni__edit_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edit_distances),
        cmocka_unit_test(test_ranges_are_read),
        cmocka_unit_test(a_bar_is_left_as_it_looked_last),
        cmocka_unit_test(grows_and_stays_terminated),
        cmocka_unit_test(formats_beyond_the_first_guess),
        cmocka_unit_test(a_failed_allocation_is_remembered),
        cmocka_unit_test(json_strings),
        cmocka_unit_test(plain_strings_are_recognised),
        cmocka_unit_test(broken_utf8_becomes_a_replacement_each_byte),
        cmocka_unit_test(utf8_agrees_with_decoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
