/* manifest_test.c - manifests: everything survives, any changed byte is detected, and no path in
 * one leads outside its directory. */
#include <math.h>
#include "checkpoint/manifest.h"
#include "checkpoint/test_helpers.h"

static uni__manifest example(void)
{
    uni__manifest manifest = {
        .number = 12,
        .iteration = 40,
        .attempt = 2,
        .timestamp = 1763243774.25,
        .is_dict = true,
        .score = -INFINITY,
        .has_score = true,
        .score_attribute = strdup("val \"loss\""),
    };
    uni_value *list = uni_value_list(), *inner = uni_value_dict();
    manifest.metrics = uni_value_dict();
    assert_int_equal(uni_dict_take(manifest.metrics, "loss", uni_value_float(NAN)), 0);
    assert_int_equal(uni_dict_take(manifest.metrics, "tiny", uni_value_float(5e-324)), 0);
    assert_int_equal(uni_dict_take(manifest.metrics, "whole", uni_value_float(3)), 0);
    assert_int_equal(uni_dict_take(manifest.metrics, "really null", uni_value_null()), 0);
    assert_int_equal(uni_dict_take(inner, "a.b", uni_value_float(INFINITY)), 0);
    assert_int_equal(uni_dict_take(inner, "ok", uni_value_int(-7)), 0);
    assert_int_equal(uni_list_take(list, uni_value_float(0.5)), 0);
    assert_int_equal(uni_list_take(list, uni_value_float(-INFINITY)), 0);
    assert_int_equal(uni_list_take(list, inner), 0);
    assert_int_equal(uni_dict_take(manifest.metrics, "list", list), 0);
    MUST(uni__manifest_add(&manifest, "sub/größe.bin", 1 << 20, "0123456789abcdef", false, &err));
    MUST(uni__manifest_add(&manifest, "latin-\xe9", 3, "00000000000000ff", false, &err));
    MUST(uni__manifest_add(&manifest, "last", 9, "fedcba9876543210", true, &err));
    MUST(uni__manifest_add(&manifest, "tab\tand\n\"quote\"", 0, "2d06800538d394c2", false, &err));
    uni__manifest_sort(&manifest);
    return manifest;
}

static void test_round_trip(void **state)
{
    uni__manifest manifest = example(), read;
    char *text = NULL;
    size_t size = 0;
    MUST(uni__manifest_write(&text, &size, &manifest, &err));
    MUST(uni__manifest_read(&read, text, size, &err));
    assert_int_equal(read.number, 12);
    assert_int_equal(read.iteration, 40);
    assert_int_equal(read.attempt, 2);
    assert_true(read.timestamp == 1763243774.25 && read.is_dict && read.has_score);
    assert_true(read.score == -INFINITY);
    assert_string_equal(read.score_attribute, "val \"loss\"");
    assert_true(uni_value_equal(read.metrics, manifest.metrics)); /* NaN and the infinities too */
    assert_int_equal(read.file_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(read.files[i].path, manifest.files[i].path);
        assert_string_equal(read.files[i].xxh3, manifest.files[i].xxh3);
        assert_int_equal(read.files[i].size, manifest.files[i].size);
        assert_int_equal(read.files[i].link, manifest.files[i].link);
    }
    uni__manifest_clear(&read);
    /* It is also plain JSON for other readers. */
    uni_value *tree = NULL;
    MUST(uni_json_read(&tree, text, size, &err));
    assert_string_equal(uni_dict_get_string(tree, "format", ""), "unisono checkpoint");
    uni_value_free(tree);
    free(text);
    uni__manifest_clear(&manifest);
}

/* The smallest: no metrics, no files, no score; NULL metrics come back as an empty dictionary. */
static void test_minimal(void **state)
{
    uni__manifest manifest = { .score = NAN }, read;
    char *text = NULL;
    size_t size = 0;
    MUST(uni__manifest_write(&text, &size, &manifest, &err));
    MUST(uni__manifest_read(&read, text, size, &err));
    assert_false(read.has_score || read.is_dict);
    assert_true(isnan(read.score) && !read.score_attribute);
    assert_int_equal(uni_value_type_of(read.metrics), UNI_TYPE_DICT);
    uni__manifest_clear(&read);
    free(text);
}

static void test_every_bit_and_cut(void **state)
{
    uni__manifest manifest = example(), read;
    char *text = NULL;
    size_t size = 0;
    MUST(uni__manifest_write(&text, &size, &manifest, &err));
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text[i] ^= (char)(1 << bit);
            uni_error why = { 0 };
            assert_int_equal(uni__manifest_read(&read, text, size, &why), UNI_ECORRUPT);
            text[i] ^= (char)(1 << bit);
        }
        uni_error why = { 0 };
        assert_int_equal(uni__manifest_read(&read, text, i, &why), UNI_ECORRUPT);
    }
    char *longer = malloc(size + 1);
    memcpy(longer, text, size);
    longer[size] = '\n';
    MUST_FAIL(uni__manifest_read(&read, longer, size + 1, &err), UNI_ECORRUPT, "checksum");
    free(longer);
    free(text);
    uni__manifest_clear(&manifest);
}

/* Adds the correct checksum to any text, as an attacker or another program can. */
static int read_with_sum(const char *body, uni_error *err)
{
    char text[2048], sum[17];
    uni__manifest read;
    uni__hash_bytes(body, strlen(body), sum);
    int size = snprintf(text, sizeof text, "%s,\"checksum\":\"%s\"}\n", body, sum);
    int status = uni__manifest_read(&read, text, (size_t)size, err);
    uni__manifest_clear(&read);
    return status;
}

static int read_with_files(const char *files, uni_error *err)
{
    char body[1024];
    snprintf(body, sizeof body,
             "{\"format\":\"unisono "
             "checkpoint\",\"version\":2,\"number\":1,\"iteration\":1,\"attempt\":1,"
             "\"timestamp\":1.0,\"kind\":\"directory\",\"score\":null,\"score_attribute\":null,"
             "\"metrics\":{},"
             "\"nonfinite\":{},\"files\":[%s]",
             files);
    return read_with_sum(body, err);
}

#define FILE_OF(path) "{\"path\":\"" path "\",\"size\":1,\"xxh3\":\"0123456789abcdef\"}"

static void test_paths_that_lead_out(void **state)
{
    MUST(read_with_files(FILE_OF("a") "," FILE_OF("a/b"), &err)); /* the frame itself is valid */
    static const char *const out[] = {
        FILE_OF("../x"),
        FILE_OF("/etc/passwd"),
        FILE_OF("a/../../x"),
        FILE_OF("a/.."),
        FILE_OF("."),
        FILE_OF(""),
        FILE_OF("a//b"),
        FILE_OF("a/"),
        FILE_OF("./a"),
        FILE_OF(".unisono-manifest.json"),
        "{\"path_hex\":\"2e2e2f78\",\"size\":1,\"xxh3\":\"0123456789abcdef\"}",
    };
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
        MUST_FAIL(read_with_files(out[i], &err), UNI_EFORMAT, "inside of the checkpoint");
}

static void test_not_valid(void **state)
{
    static const char *const files[] = {
        FILE_OF("b") "," FILE_OF("a"),
        FILE_OF("a") "," FILE_OF("a"),
        "1",
        "{}",
        "{\"path\":\"a\",\"size\":-1,\"xxh3\":\"0123456789abcdef\"}",
        "{\"path\":\"a\",\"size\":1.5,\"xxh3\":\"0123456789abcdef\"}",
        "{\"path\":\"a\",\"size\":1,\"xxh3\":\"0123456789ABCDEF\"}",
        "{\"path\":\"a\",\"size\":1,\"xxh3\":\"short\"}",
        "{\"path_hex\":\"0\",\"size\":1,\"xxh3\":\"0123456789abcdef\"}",
        "{\"path_hex\":\"6100\",\"size\":1,\"xxh3\":\"0123456789abcdef\"}",
        "{\"path\":\"a\",\"path_hex\":\"61\",\"size\":1,\"xxh3\":\"0123456789abcdef\"}",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        MUST_FAIL(read_with_files(files[i], &err), UNI_EFORMAT, "not valid");
    MUST_FAIL(read_with_sum("{\"format\":\"unisono run\"", &err), UNI_EFORMAT, "format");
    MUST_FAIL(read_with_sum("{\"format\":\"unisono checkpoint\",\"version\":2", &err), UNI_EFORMAT,
              "number");
    MUST_FAIL(read_with_sum("{\"format\":\"unisono checkpoint\",\"version\":1", &err), UNI_EVERSION,
              "version 1, this program reads 2");
    MUST_FAIL(read_with_sum("{\"format\":\"unisono checkpoint\",\"version\":3", &err), UNI_EVERSION,
              "version 3, this program reads 2");
    uni_error why = { 0 };
    assert_true(read_with_sum("not json", &why) < 0);
    assert_true(read_with_sum("", &why) < 0);
}

/* What could not be read back is rejected when it is written, not a week later. */
static void test_unreadable_is_not_written(void **state)
{
    char *text = NULL;
    size_t size = 0;
    uni__manifest manifest = { .timestamp = NAN };
    MUST_FAIL(uni__manifest_write(&text, &size, &manifest, &err), UNI_EFORMAT,
              "cannot be described");
    assert_null(text);
    manifest.timestamp = 1;
    manifest.metrics = dict_with("x", 1);
    for (int i = 1; i < UNI_VALUE_MAX_DEPTH; i++) {
        uni_value *outer = uni_value_dict();
        assert_int_equal(uni_dict_take(outer, "in", manifest.metrics), 0);
        manifest.metrics = outer;
    }
    MUST_FAIL(uni__manifest_write(&text, &size, &manifest, &err), UNI_ELIMIT,
              "cannot be described");
    uni__manifest_clear(&manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),        cmocka_unit_test(test_minimal),
        cmocka_unit_test(test_every_bit_and_cut), cmocka_unit_test(test_paths_that_lead_out),
        cmocka_unit_test(test_not_valid),         cmocka_unit_test(test_unreadable_is_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
