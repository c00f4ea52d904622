/* table_test.c - tables fit the terminal; widths count columns, not bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli/table.h"

static const cli_column columns[] = { { "NAME", false, 0, 6 },
                                      { "N", true, 0, 0 },
                                      { "EXTRA", false, 1, 0 } };

/* What the table prints at a width; the caller frees it. */
static char *printed(const cli_table *table, int width, bool unicode)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cli_terminal terminal = { .out = out, .unicode = unicode, .width = width };
    cli_table_print(table, &terminal, 0);
    fclose(out);
    return text;
}

static cli_table *sample(void)
{
    cli_table *table = cli_table_new(columns, 3);
    cli_table_cell(table, CLI_PLAIN, "größenwahn");
    cli_table_cell(table, CLI_PLAIN, "%d", 7);
    cli_table_cell(table, CLI_PLAIN, "more");
    cli_table_cell(table, CLI_PLAIN, "a");
    cli_table_cell(table, CLI_PLAIN, "%d", 12345);
    cli_table_cell(table, CLI_PLAIN, "%s", "");
    return table;
}

static void expect(int width, bool unicode, const char *wanted)
{
    cli_table *table = sample();
    char *text = printed(table, width, unicode);
    assert_string_equal(text, wanted);
    free(text);
    cli_table_free(table);
}

static void test_fits(void **state)
{
    (void)state;
    expect(80, true,
           "NAME            N  EXTRA\n"
           "größenwahn      7  more\n"
           "a           12345  \n");
}

static void test_shrinks_then_drops(void **state)
{
    (void)state;
    expect(22, true,
           "NAME          N  EXTRA\n"
           "größenw…      7  more\n"
           "a         12345  \n");
    expect(15, true,
           "NAME          N\n"
           "größenw…      7\n"
           "a         12345\n");
    expect(13, false,
           "NAME        N\n"
           "größe~      7\n"
           "a       12345\n");
}

static void test_widths(void **state)
{
    (void)state;
    assert_int_equal(cli_width("größe"), 5);
    assert_int_equal(cli_width("日本"), 4);
    assert_int_equal(cli_width("e\xcc\x81"), 1);
    assert_int_equal(cli_width("\xff\xfe"), 2);
    assert_int_equal(cli_fit("日本", 3), 3);
    assert_int_equal(cli_fit("abc", 10), 3);
}

static void test_wrap(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cli_wrap(out, 12, 2, 0, "one two three\nfour  aLongWordThatStays five");
    fclose(out);
    assert_string_equal(text, "one two\n  three\n  four\n  aLongWordThatStays\n  five\n");
    free(text);
}

static void test_clean(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cli_print_clean(out, "a\033[2J\tb\r\n");
    fclose(out);
    assert_string_equal(text, "a\\u001b[2J\\tb\\r\\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits),   cmocka_unit_test(test_shrinks_then_drops),
        cmocka_unit_test(test_widths), cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
