/*
 * msgpack_test.c - the writer's bytes (compared with the specification and Python's msgpack), the
 * cursor on valid and on broken messages, and the conversion to JSON.
 */
#include "base/test.h"
#include <math.h>

#include "base/shared.h"
#include "base/msgpack.h"
#include "base/random.h"

static void check_bytes(const uni__packer *packer, const char *expected, size_t size)
{
    assert_false(packer->overflow);
    assert_int_equal(packer->size, size);
    assert_memory_equal(packer->data, expected, size);
}

/* Golden bytes: python3 -c 'import msgpack; print(msgpack.packb(X).hex())' */
static void integers_have_the_smallest_form(void **state)
{
    static const struct {
        int64_t value;
        const char *bytes;
        size_t size;
    } cases[] = {
        { 0, "\x00", 1 },
        { 127, "\x7F", 1 },
        { 128, "\xCC\x80", 2 },
        { 255, "\xCC\xFF", 2 },
        { 256, "\xCD\x01\x00", 3 },
        { 65535, "\xCD\xFF\xFF", 3 },
        { 65536, "\xCE\x00\x01\x00\x00", 5 },
        { 4294967295, "\xCE\xFF\xFF\xFF\xFF", 5 },
        { 4294967296, "\xCF\x00\x00\x00\x01\x00\x00\x00\x00", 9 },
        { INT64_MAX, "\xCF\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 9 },
        { -1, "\xFF", 1 },
        { -32, "\xE0", 1 },
        { -33, "\xD0\xDF", 2 },
        { -128, "\xD0\x80", 2 },
        { -129, "\xD1\xFF\x7F", 3 },
        { -32768, "\xD1\x80\x00", 3 },
        { -32769, "\xD2\xFF\xFF\x7F\xFF", 5 },
        { INT32_MIN, "\xD2\x80\x00\x00\x00", 5 },
        { (int64_t)INT32_MIN - 1, "\xD3\xFF\xFF\xFF\xFF\x7F\xFF\xFF\xFF", 9 },
        { INT64_MIN, "\xD3\x80\x00\x00\x00\x00\x00\x00\x00", 9 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uni__packer packer = { 0 };
        uni__token token;
        uni__pack_int(&packer, cases[i].value);
        check_bytes(&packer, cases[i].bytes, cases[i].size);
        uni__cursor cursor = { packer.data, packer.data + packer.size };
        assert_ok(uni__cursor_next(&cursor, &token, &failure));
        assert_int_equal(token.type, UNI_TYPE_INT);
        assert_true(token.integer == cases[i].value);
        assert_ptr_equal(cursor.at, cursor.end);
        uni__packer_free(&packer);
    }
}

static void other_scalars(void **state)
{
    uni__packer packer = { 0 };
    uni__pack_map(&packer, 2);
    uni__pack_string(&packer, "lr", 2);
    uni__pack_double(&packer, 0.5);
    uni__pack_string(&packer, "l", 1);
    uni__pack_list(&packer, 4);
    uni__pack_null(&packer);
    uni__pack_bool(&packer, true);
    uni__pack_bool(&packer, false);
    uni__pack_bytes(&packer, "\x00\x01", 2);
    check_bytes(&packer, "\x82\xA2lr\xCB\x3F\xE0\0\0\0\0\0\0\xA1l\x94\xC0\xC3\xC2\xC4\x02\x00\x01",
                23);
    uni__packer_free(&packer);
}

/* Strings, bytes, lists and maps at the limits of their forms come back with the same length. */
static void lengths_at_every_edge(void **state)
{
    static const size_t sizes[] = { 0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536, 70000 };
    static char data[70000];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int kind = 0; kind < 4; kind++) {
            uni__packer packer = { 0 };
            uni__token token;
            size_t n = sizes[i];
            if (kind == 0)
                uni__pack_string(&packer, data, n);
            else if (kind == 1)
                uni__pack_bytes(&packer, data, n);
            else if (kind == 2)
                uni__pack_list(&packer, n);
            else
                uni__pack_map(&packer, n);
            for (size_t item = 0; kind >= 2 && item < (kind == 2 ? n : 2 * n); item++)
                uni__pack_null(&packer);
            uni__cursor cursor = { packer.data, packer.data + packer.size };
            assert_ok(uni__cursor_next(&cursor, &token, &failure));
            static const uni_value_type types[] = { UNI_TYPE_STRING, UNI_TYPE_BYTES, UNI_TYPE_LIST,
                                                    UNI_TYPE_DICT };
            assert_int_equal(token.type, types[kind]);
            assert_int_equal(token.size, n);
            /* What is left are the items, a byte each. */
            assert_int_equal(cursor.end - cursor.at, kind < 2 ? 0 : kind == 2 ? n : 2 * n);
            uni__packer_free(&packer);
        }
    }
}

static uni_value *sample(void)
{
    static const char json[] =
        "{\"loss\":0.25,\"epoch\":3,\"neg\":-70000,\"name\":\"r\\u00e9sum\\u00e9\",\"ok\":true,"
        "\"none\":null,\"nested\":{\"a\":[1,2.5,[],{}],\"b\":\"\"},\"big\":9007199254740993}";
    uni_value *value = NULL;
    assert_ok(uni_json_read(&value, json, sizeof json - 1, &failure));
    assert_int_equal(uni_dict_take(value, "raw", uni_value_bytes("\0\xFF", 2)), 0);
    return value;
}

static void trees_come_back(void **state)
{
    uni_value *value = sample(), *back = NULL;
    void *data = NULL;
    size_t size = 0;
    assert_ok(uni__msgpack_write(&data, &size, value, &failure));
    assert_ok(uni__msgpack_read(&back, data, size, &failure));
    assert_true(uni_value_equal(value, back));
    assert_string_equal(uni_dict_key_at(back, 2), "neg"); /* in order */
    uni_value_free(back);
    uni_value_free(value);
    free(data);
}

static void a_fixed_buffer_counts_on(void **state)
{
    uni_value *value = sample();
    void *whole = NULL;
    size_t size = 0;
    assert_ok(uni__msgpack_write(&whole, &size, value, &failure));
    for (size_t room = 0; room <= size; room++) {
        uint8_t *buffer = malloc(room + 1); /* ASan guards its end */
        buffer[room] = 0xEE;
        uni__packer packer = { .data = buffer, .capacity = room, .fixed = true };
        assert_ok(uni__pack_value(&packer, value, &failure));
        assert_int_equal(packer.overflow, room < size);
        assert_int_equal(packer.size, size); /* the size needed */
        assert_int_equal(buffer[room], 0xEE);
        if (room == size)
            assert_memory_equal(buffer, whole, size);
        uni__packer_free(&packer); /* must not free memory it does not own */
        free(buffer);
    }
    free(whole);
    uni_value_free(value);
}

/* A copy whose end ASan guards, so that reading one byte too far is detected. */
static int read_exact(uni_value **out, const void *data, size_t size)
{
    void *copy = malloc(size ? size : 1);
    if (size > 0)
        memcpy(copy, data, size);
    memset(&failure, 0, sizeof failure);
    int status = uni__msgpack_read(out, copy, size, &failure);
    free(copy);
    return status;
}

static void every_truncation_is_refused(void **state)
{
    uni_value *value = sample(), *back = NULL;
    uint8_t *data = NULL;
    size_t size = 0;
    assert_ok(uni__msgpack_write((void **)&data, &size, value, &failure));
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(read_exact(&back, data, cut), UNI_EFORMAT);
        assert_null(back);
        assert_true(failure.message[0] != 0);
    }
    free(data);
    uni_value_free(value);
}

static void flipped_and_random_bytes_never_crash(void **state)
{
    uni_value *value = sample(), *back = NULL;
    uint8_t *data = NULL;
    size_t size = 0;
    assert_ok(uni__msgpack_write((void **)&data, &size, value, &failure));
    for (size_t bit = 0; bit < 8 * size; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (read_exact(&back, data, size) == 0)
            uni_value_free(back);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (uint64_t round = 0; round < 20000; round++) {
        uint8_t noise[24];
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)uni__random_u64(1, round, i);
        if (read_exact(&back, noise, round % sizeof noise) == 0)
            uni_value_free(back);
    }
    free(data);
    uni_value_free(value);
}

static void check_refused(const char *bytes, size_t size, int code, const char *part)
{
    uni_value *value = NULL;
    int status = read_exact(&value, bytes, size);
    if (status != code || !strstr(failure.message, part))
        fail_msg("%s \"%s\"", uni_status_name(status), failure.message);
    assert_null(value);
}

static void what_values_cannot_hold_is_refused(void **state)
{
    check_refused("\xCF\x80\0\0\0\0\0\0\0", 9, UNI_EFORMAT, "2^63");
    check_refused("\xC1", 1, UNI_EFORMAT, "not data");
    check_refused("\xD4\x01\x00", 3, UNI_EFORMAT, "ext");
    check_refused("\xC7\x01\x01\x00", 4, UNI_EFORMAT, "ext");
    check_refused("\x81\x01\x02", 3, UNI_EFORMAT, "key");
    check_refused("\x81\xA1\x00\x02", 4, UNI_EFORMAT, "key");
    check_refused("\x81\xA1\xFF\x02", 4, UNI_EFORMAT, "UTF-8");
    check_refused("\x82\xA1"
                  "a\x01\xA1"
                  "a\x02",
                  7, UNI_EFORMAT, "twice");
    check_refused("\xC0\xC0", 2, UNI_EFORMAT, "left");
    check_refused("", 0, UNI_EFORMAT, "early");
    /* six bytes that claim 4 billion items: nothing is allocated for them */
    check_refused("\xDD\xFF\xFF\xFF\xFF\xC0", 6, UNI_EFORMAT, "more items");
    check_refused("\xDF\xFF\xFF\xFF\xFF\xC0", 6, UNI_EFORMAT, "more items");
    check_refused("\xC6\xFF\xFF\xFF\xFF\x00", 6, UNI_EFORMAT, "longer");
    char deep[100];
    memset(deep, '\x91', sizeof deep);
    check_refused(deep, sizeof deep, UNI_ELIMIT, "30");
}

static void depth_and_arrays_are_refused_when_writing(void **state)
{
    uni_value *tree = uni_value_int(1), *back = NULL;
    void *data = NULL;
    size_t size = 0;
    for (int depth = 1; depth <= UNI_VALUE_MAX_DEPTH + 1; depth++) {
        uni_value *outer = uni_value_list();
        assert_int_equal(uni_list_take(outer, tree), 0);
        tree = outer;
        if (depth <= UNI_VALUE_MAX_DEPTH) {
            assert_ok(uni__msgpack_write(&data, &size, tree, &failure));
            assert_ok(uni__msgpack_read(&back, data, size, &failure));
            uni_value_free(back);
            free(data);
        } else {
            assert_fails(uni__msgpack_write(&data, &size, tree, &failure), UNI_ELIMIT, "30");
            assert_null(data);
        }
    }
    uni_value_free(tree);
    uni_array *array = NULL;
    assert_ok(uni_array_new(&array, UNI_F32, 0, NULL, &failure));
    uni_value *value = uni_value_array(array);
    uni_array_unref(array);
    assert_fails(uni__msgpack_write(&data, &size, value, &failure), UNI_EUNSUPPORTED, "list");
    uni_value_free(value);
}

static void json_is_what_the_tree_would_give(void **state)
{
    uni_value *value = sample();
    void *data = NULL;
    char *expected = NULL;
    size_t size = 0;
    uni__text out = { 0 }, nonfinite = { 0 };
    assert_ok(uni__msgpack_write(&data, &size, value, &failure));
    assert_ok(uni_json_write(&expected, NULL, value, 0, &failure));
    uni__cursor cursor = { data, (uint8_t *)data + size };
    uni__text_add_string(&out, "x"); /* it appends */
    assert_ok(uni__cursor_to_json(&cursor, &out, &nonfinite, &failure));
    assert_string_equal(out.data + 1, expected);
    assert_int_equal(nonfinite.size, 0);
    assert_ptr_equal(cursor.at, cursor.end);
    uni__text_free(&out);
    free(expected);
    free(data);
    uni_value_free(value);
}

static void nonfinite_numbers_are_named_by_their_path(void **state)
{
    uni__packer packer = { 0 };
    uni__pack_map(&packer, 3);
    uni__pack_string(&packer, "loss", 4);
    uni__pack_double(&packer, NAN);
    uni__pack_string(&packer, "ok", 2);
    uni__pack_double(&packer, 1.5);
    uni__pack_string(&packer, "a", 1);
    uni__pack_map(&packer, 1);
    uni__pack_string(&packer, "b\"", 2);
    uni__pack_list(&packer, 3);
    uni__pack_double(&packer, 0);
    uni__pack_double(&packer, INFINITY);
    uni__pack_double(&packer, -INFINITY);
    uni__text out = { 0 }, nonfinite = { 0 };
    uni__cursor cursor = { packer.data, packer.data + packer.size };
    assert_ok(uni__cursor_to_json(&cursor, &out, &nonfinite, &failure));
    assert_string_equal(out.data, "{\"loss\":null,\"ok\":1.5,\"a\":{\"b\\\"\":[0.0,null,null]}}");
    assert_string_equal(nonfinite.data, "\"loss\":\"NaN\",\"a.b\\\".1\":\"Infinity\","
                                        "\"a.b\\\".2\":\"-Infinity\"");
    cursor.at = packer.data; /* and without the optional output */
    uni__text_clear(&out);
    assert_ok(uni__cursor_to_json(&cursor, &out, NULL, &failure));
    uni__text_free(&out);
    uni__text_free(&nonfinite);
    uni__packer_free(&packer);
}

static void json_of_bad_messages_is_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        int code;
    } bad[] = { { "\x81\x01\x02", 3, UNI_EFORMAT },     { "\x81\xA1\xFF\x02", 4, UNI_EFORMAT },
                { "\x81\xA1", 2, UNI_EFORMAT },         { "\x92\x01", 2, UNI_EFORMAT },
                { "\xC7\x01\x01\x00", 4, UNI_EFORMAT }, { "", 0, UNI_EFORMAT } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uni__text out = { 0 };
        uni__cursor cursor = { (const uint8_t *)bad[i].bytes,
                               (const uint8_t *)bad[i].bytes + bad[i].size };
        assert_int_equal(uni__cursor_to_json(&cursor, &out, NULL, &failure), bad[i].code);
        uni__text_free(&out);
    }
    uint8_t deep[100];
    uni__text out = { 0 };
    memset(deep, 0x91, sizeof deep);
    uni__cursor cursor = { deep, deep + sizeof deep };
    assert_fails(uni__cursor_to_json(&cursor, &out, NULL, &failure), UNI_ELIMIT, "30");
    uni__text_free(&out);
}

static void narrow_floats_are_read(void **state)
{
    static const uint8_t bytes[] = { 0xCA, 0x3F, 0x00, 0x00, 0x00 };
    uni__cursor cursor = { bytes, bytes + sizeof bytes };
    uni__token token;
    assert_ok(uni__cursor_next(&cursor, &token, &failure));
    assert_true(token.type == UNI_TYPE_FLOAT && token.real == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_have_the_smallest_form),
        cmocka_unit_test(other_scalars),
        cmocka_unit_test(lengths_at_every_edge),
        cmocka_unit_test(trees_come_back),
        cmocka_unit_test(a_fixed_buffer_counts_on),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(flipped_and_random_bytes_never_crash),
        cmocka_unit_test(what_values_cannot_hold_is_refused),
        cmocka_unit_test(depth_and_arrays_are_refused_when_writing),
        cmocka_unit_test(json_is_what_the_tree_would_give),
        cmocka_unit_test(nonfinite_numbers_are_named_by_their_path),
        cmocka_unit_test(json_of_bad_messages_is_refused),
        cmocka_unit_test(narrow_floats_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
