/* json_test.c - JSON: what is read, what is rejected and with which message, and what is
 * written. */
#include "base/json.h"
#include "base/test.h"
#include <math.h>
#include <unisono/value.h>

static uni_value *read_text(const char *text)
{
    uni_value *value = NULL;
    assert_ok(uni_json_read(&value, text, strlen(text), &failure));
    return value;
}

static void check_write(const uni_value *value, unsigned flags, const char *expected)
{
    char *text = NULL;
    size_t length = 0;
    assert_ok(uni_json_write(&text, &length, value, flags, &failure));
    assert_string_equal(text, expected);
    assert_int_equal(length, strlen(expected));
    free(text);
}

static void same_text_comes_back(void **state)
{
    static const char *const texts[] = {
        "null",
        "true",
        "false",
        "0",
        "-7",
        "9223372036854775807",
        "-9223372036854775808",
        "0.1",
        "1e100",
        "-0.0",
        "\"\"",
        "\"a\\\"\\\\\\n\\u0001\"",
        "\"\xC3\xA9\"",
        "[]",
        "{}",
        "[[],{}]",
        "\"nul\\u0000inside\"",
        "{\"z\":1,\"a\":{\"y\":[1,2.5,null,\"s\"]},\"m\":true}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uni_value *value = read_text(texts[i]);
        check_write(value, 0, texts[i]);
        uni_value_free(value);
    }
}

static void numbers_are_ints_or_floats(void **state)
{
    uni_value *value = read_text(" [1, 1.0, 1e0, 123456789012] ");
    assert_int_equal(uni_value_type_of(uni_list_get(value, 0)), UNI_TYPE_INT);
    assert_int_equal(uni_value_type_of(uni_list_get(value, 1)), UNI_TYPE_FLOAT);
    assert_int_equal(uni_value_type_of(uni_list_get(value, 2)), UNI_TYPE_FLOAT);
    assert_int_equal(uni_value_as_int(uni_list_get(value, 3), 0), 123456789012);
    uni_value_free(value);
}

/* As Python's json.dumps writes them, only when requested, and never in a string. */
static void python_numbers_are_read(void **state)
{
    const char *text = "{\"a\": NaN, \"b\": [Infinity, -Infinity, 1], \"NaN\": \"a \\\" NaN\"}";
    uni_value *value = NULL;
    assert_int_equal(uni__json_read_python(&value, text, strlen(text), NULL), 0);
    check_write(value, UNI_JSON_NONFINITE,
                "{\"a\":NaN,\"b\":[Infinity,-Infinity,1],\"NaN\":\"a \\\" NaN\"}");
    uni_value_free(value);
    static const char *const bad[] = { "{\"a\": NaNx}", "{NaN: 1}", "[-NaN]",
                                       "[NaN, \"\\u0001NaN\"]", "[NaN" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(uni__json_read_python(&value, bad[i], strlen(bad[i]), NULL), UNI_EFORMAT);
        assert_null(value);
    }
}

static void bad_texts_are_refused_with_a_place(void **state)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        { "", "line 1" },
        { "{", "line 1" },
        { "{\"a\":1,}", "column 8" },
        { "[1 2]", "line 1" },
        { "{\n \"a\": 1,\n \"a\": 2}", "line 3" },
        { "\"\xFF\"", "byte 0xff" },
        { "nul", "line 1" },
        { "[1]x", "line 1" },
        { "NaN", "line 1" },
        { "'a'", "line 1" },
        { "01", "line 1" },
        { "\"\\ud800\"", "line 1" },
        { "9223372036854775808", "64 bits" },
        { "1e999", "number" },
        { "{\"a\\u0000b\":1}", "NUL" },
        { "\"tab\there\"", "line 1" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uni_value *value = (uni_value *)1;
        assert_fails(uni_json_read(&value, bad[i].text, strlen(bad[i].text), &failure), UNI_EFORMAT,
                     bad[i].part);
        assert_null(value);
    }
    uni_value *value = NULL;
    assert_int_equal(uni_json_read(&value, "{", 1, NULL), UNI_EFORMAT); /* err may be NULL */
    /* A zero byte does not end a text that has a length. */
    assert_fails(uni_json_read(&value, "0\0 rubbish", 10, &failure), UNI_EFORMAT, "offset 1");
    assert_fails(uni_json_read(&value, "\"a\0b\"", 5, &failure), UNI_EFORMAT, "offset 2");
    assert_fails(uni_json_read(&value, NULL, 0, &failure), UNI_EINVAL, "NULL");
    assert_fails(uni_json_read(&value, "", (size_t)65 << 20, &failure), UNI_ELIMIT, "limit");
}

/* Reading and writing have the same depth limit, for lists and dictionaries. */
static void depth_is_limited_alike_both_ways(void **state)
{
    for (int depth = UNI_VALUE_MAX_DEPTH - 1; depth <= UNI_VALUE_MAX_DEPTH + 1; depth++) {
        for (int dict = 0; dict < 2; dict++) {
            char text[400] = "";
            uni_value *tree = uni_value_int(1), *back = NULL;
            for (int i = 0; i < depth; i++) {
                uni_value *outer = dict ? uni_value_dict() : uni_value_list();
                assert_int_equal(
                    dict ? uni_dict_take(outer, "k", tree) : uni_list_take(outer, tree), 0);
                tree = outer;
                strcat(text, dict ? "{\"k\":" : "[");
            }
            strcat(text, "1");
            for (int i = 0; i < depth; i++)
                strcat(text, dict ? "}" : "]");
            if (depth <= UNI_VALUE_MAX_DEPTH) {
                check_write(tree, 0, text);
                assert_ok(uni_json_read(&back, text, strlen(text), &failure));
                assert_true(uni_value_equal(tree, back));
                uni_value_free(back);
            } else {
                char *out = (char *)1;
                assert_fails(uni_json_write(&out, NULL, tree, 0, &failure), UNI_ELIMIT, "30");
                assert_null(out);
                assert_fails(uni_json_read(&back, text, strlen(text), &failure), UNI_ELIMIT, "30");
            }
            uni_value_free(tree);
        }
    }
    char *deep = malloc(200001);
    memset(deep, '[', 200000);
    deep[200000] = 0;
    uni_value *value = NULL;
    assert_fails(uni_json_read(&value, deep, 200000, &failure), UNI_ELIMIT, "30");
    free(deep);
}

static void written_forms(void **state)
{
    uni_value *value = read_text("{\"b\":[1,{}],\"a\":{\"c\":null},\"e\":[]}");
    check_write(value, UNI_JSON_SORT_KEYS, "{\"a\":{\"c\":null},\"b\":[1,{}],\"e\":[]}");
    check_write(
        value, UNI_JSON_INDENT,
        "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": {\n    \"c\": null\n  },\n  \"e\": []\n}");
    uni_value_free(value);
    value = uni_value_list();
    assert_int_equal(uni_list_take(value, uni_value_float(NAN)), 0);
    assert_int_equal(uni_list_take(value, uni_value_float(-INFINITY)), 0);
    assert_int_equal(uni_list_take(value, uni_value_float(1e300)), 0);
    check_write(value, 0, "[null,null,1e300]");
    check_write(value, UNI_JSON_NONFINITE, "[NaN,-Infinity,1e300]");
    uni_value_free(value);
    value = uni_value_bytes("\x00\xFF", 2);
    check_write(value, 0, "[0,255]");
    uni_value_free(value);
    check_write(NULL, 0, "null");
}

static void check_array(uni_dtype dtype, int ndim, const int64_t *shape, void *data,
                        const char *expected)
{
    uni_array *array = NULL;
    assert_ok(uni_array_view(&array, dtype, ndim, shape, data, NULL, NULL, &failure));
    uni_value *value = uni_value_array(array);
    check_write(value, 0, expected);
    uni_value_free(value);
    uni_array_unref(array);
}

static void arrays_become_lists_by_their_shape(void **state)
{
    const int64_t two[] = { 2, 3 }, four = 4, none[] = { 1000000, 0 };
    float reals[6] = { 0.5f, 1, 2, 3, 4, NAN };
    check_array(UNI_F32, 2, two, reals, "[[0.5,1.0,2.0],[3.0,4.0,null]]");
    check_array(UNI_F32, 0, NULL, reals, "0.5");
    check_array(UNI_F32, 2, none, NULL, "[]");
    check_array(UNI_I8, 1, &four, (int8_t[]){ -128, -1, 0, 127 }, "[-128,-1,0,127]");
    check_array(UNI_U64, 1, &four, (uint64_t[]){ 0, 1, 2, UINT64_MAX },
                "[0,1,2,18446744073709551615]");
    check_array(UNI_B8, 1, &four, (uint8_t[]){ 0, 1, 0, 1 }, "[false,true,false,true]");
    /* float16: 1, -2, the smallest subnormal, infinity; bfloat16: 1, -2, 0.5, 3 */
    check_array(UNI_F16, 1, &four, (uint16_t[]){ 0x3C00, 0xC000, 1, 0x7C00 },
                "[1.0,-2.0,5.960464477539063e-8,null]");
    check_array(UNI_BF16, 1, &four, (uint16_t[]){ 0x3F80, 0xC000, 0x3F00, 0x4040 },
                "[1.0,-2.0,0.5,3.0]");
}

static void files_are_named_in_errors(void **state)
{
    char *path = uni__path_join(*state, "config.json", NULL);
    uni_value *value = NULL;
    assert_fails(uni_json_read_file(&value, path, &failure), UNI_ENOTFOUND, path);
    assert_ok(uni__write_file(path, "{\"lr\": 0.5}\n", 12, false, &failure));
    assert_ok(uni_json_read_file(&value, path, &failure));
    assert_true(uni_dict_get_float(value, "lr", 0) == 0.5);
    uni_value_free(value);
    assert_ok(uni__write_file(path, "{\"lr\": \n0.5", 11, false, &failure));
    assert_fails(uni_json_read_file(&value, path, &failure), UNI_EFORMAT, path);
    assert_non_null(strstr(failure.message, "line 2"));
    assert_fails(uni_json_read_file(&value, *state, &failure), UNI_EINVAL, "not a regular file");
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_text_comes_back),
        cmocka_unit_test(numbers_are_ints_or_floats),
        cmocka_unit_test(python_numbers_are_read),
        cmocka_unit_test(bad_texts_are_refused_with_a_place),
        cmocka_unit_test(depth_is_limited_alike_both_ways),
        cmocka_unit_test(written_forms),
        cmocka_unit_test(arrays_become_lists_by_their_shape),
        cmocka_unit_test_setup_teardown(files_are_named_in_errors, enter_directory,
                                        leave_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
