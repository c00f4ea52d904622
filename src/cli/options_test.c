/* options_test.c - the parser, suggestions, and --set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/run_command.h"
#include "cli/suggest.h"

typedef struct values {
    bool flag, other;
    const char *text, *maybe, *choice;
    long long number;
    double time, size;
    cli_list list;
} values;

static const cli_option options[] = {
    { NULL, "flag", 'f', CLI_FLAG, offsetof(values, flag), NULL, NULL, "CLI_TEST_FLAG", NULL, "" },
    { NULL, "other", 'o', CLI_FLAG, offsetof(values, other), NULL, NULL, NULL, NULL, "" },
    { NULL, "text", 't', CLI_STRING, offsetof(values, text), "T", NULL, "CLI_TEST_TEXT", NULL, "" },
    { NULL, "maybe", 0, CLI_OPTIONAL, offsetof(values, maybe), "M", NULL, NULL, NULL, "" },
    { NULL, "choice", 0, CLI_CHOICE, offsetof(values, choice), "C", "red", NULL, "red|green", "" },
    { NULL, "number", 'n', CLI_INT, offsetof(values, number), "N", "3", NULL, NULL, "" },
    { NULL, "time", 0, CLI_DURATION, offsetof(values, time), "D", "1m", NULL, NULL, "" },
    { NULL, "list", 'l', CLI_LIST, offsetof(values, list), "L", "first", NULL, NULL, "" },
    CLI_END_OPTION,
};

#define PARSE(parsed, stop, err, ...)                                                              \
    cli_parse(&(parsed), options, sizeof(values), stop,                                            \
              (int)(sizeof((char *[]){ __VA_ARGS__ }) / sizeof(char *)),                           \
              (char *[]){ __VA_ARGS__ }, err)

static void test_forms(void **state)
{
    (void)state;
    cli_parsed parsed;
    uni_error err = { 0 };
    assert_int_equal(PARSE(parsed, false, &err, "word", "-fo", "--text=a=b", "-n5", "-l", "x",
                           "--list", "y", "--time", "2h", "again"),
                     0);
    const values *got = parsed.values;
    assert_true(got->flag && got->other);
    assert_string_equal(got->text, "a=b");
    assert_int_equal(got->number, 5);
    assert_true(got->time == 7200);
    assert_string_equal(got->choice, "red");
    assert_int_equal(got->list.count, 2); /* the user's list replaces the default */
    assert_string_equal(got->list.items[0], "x");
    assert_int_equal(parsed.num_args, 2);
    assert_string_equal(parsed.args[1], "again");
    assert_true(cli_given(&parsed, "number") && !cli_given(&parsed, "choice"));
    cli_parsed_free(&parsed);
}

static void test_program_keeps_its_words(void **state)
{
    (void)state;
    cli_parsed parsed;
    assert_int_equal(PARSE(parsed, true, NULL, "-f", "prog", "--flag", "-n", "--", "x"), 0);
    assert_int_equal(parsed.num_args, 5);
    assert_string_equal(parsed.args[1], "--flag");
    assert_string_equal(parsed.args[3], "--");
    cli_parsed_free(&parsed);
    assert_int_equal(PARSE(parsed, true, NULL, "-n", "2", "--", "-odd", "--help"), 0);
    assert_int_equal(parsed.num_args, 2);
    assert_false(parsed.help);
    cli_parsed_free(&parsed);
}

static void test_optional_argument(void **state)
{
    (void)state;
    cli_parsed parsed;
    assert_int_equal(PARSE(parsed, true, NULL, "--maybe", "--", "prog"), 0);
    assert_string_equal(((values *)parsed.values)->maybe, "");
    cli_parsed_free(&parsed);
    assert_int_equal(PARSE(parsed, true, NULL, "--maybe", "it"), 0);
    assert_string_equal(((values *)parsed.values)->maybe, "it");
    cli_parsed_free(&parsed);
    assert_int_equal(PARSE(parsed, true, NULL, "--maybe=it", "prog"), 0);
    assert_int_equal(parsed.num_args, 1);
    cli_parsed_free(&parsed);
}

static void test_environment(void **state)
{
    (void)state;
    cli_parsed parsed;
    setenv("CLI_TEST_TEXT", "from outside", 1);
    setenv("CLI_TEST_FLAG", "1", 1);
    assert_int_equal(PARSE(parsed, false, NULL, "x"), 0);
    assert_string_equal(((values *)parsed.values)->text, "from outside");
    assert_true(((values *)parsed.values)->flag);
    cli_parsed_free(&parsed);
    assert_int_equal(PARSE(parsed, false, NULL, "--text", "mine", "--no-flag"), 0);
    assert_string_equal(((values *)parsed.values)->text, "mine");
    assert_false(((values *)parsed.values)->flag);
    cli_parsed_free(&parsed);
    unsetenv("CLI_TEST_TEXT");
    unsetenv("CLI_TEST_FLAG");
}

static void expect_error(int status, const uni_error *err, const char *hint, cli_parsed *parsed)
{
    assert_int_equal(status, UNI_EINVAL);
    if (!strstr(err->message, hint))
        fail_msg("\"%s\" does not say \"%s\"", err->message, hint);
    cli_parsed_free(parsed);
}

static void test_errors(void **state)
{
    (void)state;
    cli_parsed parsed;
    uni_error err = { 0 };
    expect_error(PARSE(parsed, false, &err, "--falg"), &err, "--flag", &parsed);
    expect_error(PARSE(parsed, false, &err, "-z"), &err, "-z", &parsed);
    expect_error(PARSE(parsed, false, &err, "--choice", "geren"), &err, "green", &parsed);
    expect_error(PARSE(parsed, false, &err, "--number", "1x"), &err, "an integer", &parsed);
    expect_error(PARSE(parsed, false, &err, "--number", "99999999999999999999"), &err, "an integer",
                 &parsed);
    expect_error(PARSE(parsed, false, &err, "--text"), &err, "requires an argument: T", &parsed);
    expect_error(PARSE(parsed, false, &err, "--text", "--"), &err, "requires an argument: T",
                 &parsed);
    expect_error(PARSE(parsed, false, &err, "--text="), &err, "empty", &parsed);
    expect_error(PARSE(parsed, false, &err, "--flag=1"), &err, "no argument", &parsed);
    expect_error(PARSE(parsed, false, &err, "--no-text"), &err, "--no-text", &parsed);
}

static void test_distance(void **state)
{
    (void)state;
    char nearest[64];
    assert_int_equal(uni__edit_distance("kitten", "sitting"), 3);
    assert_int_equal(uni__edit_distance("show", "sohw"), 1);
    assert_int_equal(uni__edit_distance("", "abc"), 3);
    assert_true(cli_suggest_of("cmpletion", "run|completion|check", nearest, sizeof nearest));
    assert_string_equal(nearest, "completion");
    assert_true(cli_suggest_of("comp", "run|completion", nearest, sizeof nearest));
    assert_false(cli_suggest_of("xyzzy", "run|show", nearest, sizeof nearest));
    assert_true(cli_is_one_of("run", "run|show") && cli_is_one_of("show", "run|show"));
    assert_false(cli_is_one_of("ru", "run|show") || cli_is_one_of("runs", "run|show"));
    assert_false(cli_is_one_of("run|show", "run|show") || cli_is_one_of("", "run|show"));
    assert_false(cli_suggest_of("q", "ls", nearest, sizeof nearest));
}

static void test_set(void **state)
{
    (void)state;
    uni_value *config = uni_value_dict();
    uni_error err = { 0 };
    static const char *const words[] = { "lr=0.1",  "model.width=64", "model.name=big one",
                                         "on=true", "list=[1,2]",     "text=\"7\"",
                                         "eq=a=b",  "empty=" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_int_equal(cli_config_set(config, words[i], &err), 0);
    char *text = NULL;
    assert_int_equal(uni_json_write(&text, NULL, config, 0, &err), 0);
    assert_string_equal(
        text,
        "{\"lr\":0.1,\"model\":{\"width\":64,\"name\":\"big one\"},\"on\":true,\"list\":[1,2],"
        "\"text\":\"7\",\"eq\":\"a=b\",\"empty\":\"\"}");
    free(text);
    assert_int_equal(cli_config_set(config, "lr.deep=1", &err), UNI_EINVAL);
    assert_int_equal(cli_config_set(config, "model..x=1", &err), UNI_EINVAL);
    assert_int_equal(cli_config_set(config, "=1", &err), UNI_EINVAL);
    assert_int_equal(cli_config_set(config, "word", &err), UNI_EINVAL);
    assert_true(uni_dict_get_int(uni_dict_get(config, "model"), "width", 0) == 64);
    uni_value_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_program_keeps_its_words),
        cmocka_unit_test(test_optional_argument),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
