/*
 * config_test.c - datasets from dictionaries and from file names: misspelt keys and wrong types are
 * errors; directories, glob patterns, idx files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include <unisono/data.h>

static uni_error failure;
static char folder[64];

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            fail_msg("%s: %s", #call, failure.message);                                            \
    } while (0)

static int make(uni_dataset **out, const char *text)
{
    uni_value *config = NULL;
    assert_ok(uni_json_read(&config, text, strlen(text), &failure));
    int status = uni_dataset_from_config(out, config, &failure);
    uni_value_free(config);
    return status;
}

static int64_t rows_of(uni_dataset *dataset)
{
    int64_t rows = 0;
    assert_ok(uni_dataset_count(&rows, dataset, &failure));
    uni_dataset_unref(dataset);
    return rows;
}

static char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const void *data, size_t size)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void types_of_values(void **unused)
{
    static const char *const wrong[][2] = {
        { "{\"range\": \"10\"}", "\"range\" must be a whole number" },
        { "{\"range\": 10, \"limit\": -1}", "\"limit\" must be a whole number of at least 0" },
        { "{\"range\": 10, \"skip\": 1.5}", "\"skip\"" },
        { "{\"range\": 10, \"batch_size\": \"64\"}", "\"batch_size\"" },
        { "{\"range\": 10, \"shuffle\": \"yes\"}", "\"shuffle\"" },
        { "{\"range\": 10, \"batch_size\": 2, \"drop_remainder\": 1}", "true or false" },
        { "{\"range\": 10, \"cast\": \"floaty\"}", "no element type \"floaty\"" },
        { "{\"csv\": []}", "a string or a list" },
        { "{\"sqlite\": \"a.db\"}", "which table?" },
        { "{\"paths\": \"a.parquet\"}", "from Python only" },
        { "{\"paths\": \"a.bogus\"}", "what kind of file" },
        { "{\"json\": \"a.jsonl\", \"delimiter\": \";\"}",
          "\"delimiter\" is an option of \"csv\"" },
        { "{\"paths\": \"a.npy\", \"header\": false}", "\"numpy\" does not have it" },
        { "{\"range\": 3, \"height\": 2}", "\"height\" is an option of \"images\"" },
        { "{\"range\": 3, \"csv\": \"a.csv\"}", "a dataset has one source" },
        { "{}", "a dataset needs one of" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uni_dataset *dataset = NULL;
        assert_true(make(&dataset, wrong[i][0]) < 0);
        if (strstr(failure.message, wrong[i][1]) == NULL)
            fail_msg("%s: %s", wrong[i][0], failure.message);
    }
}

static void files_by_name(void **unused)
{
    uni_dataset *dataset = NULL;
    char inner[128];
    snprintf(inner, sizeof inner, "%s/parts", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    put("parts/part-1.csv", "a\n1\n", 4);
    put("parts/part-2.csv", "a\n2\n3\n", 6);
    assert_ok(uni_dataset_read(&dataset, 1, (const char *const[]){ folder }, &failure));
    assert_int_equal(rows_of(dataset), 3);
    assert_ok(
        uni_dataset_read(&dataset, 1, (const char *const[]){ path_of("parts/part-*") }, &failure));
    assert_int_equal(rows_of(dataset), 3);
}

/* Uses MNIST's file names; the sizes must match the header. */
static void idx_files(void **unused)
{
    static const char labels[] = { 0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9, 0 };
    uni_dataset *dataset = NULL;
    const uni_table *schema = NULL;
    put("train-labels-idx1-ubyte", labels, 11);
    const char *const paths[] = { path_of("train-labels-idx1-ubyte") };
    assert_ok(uni_dataset_read(&dataset, 1, paths, &failure));
    assert_ok(uni_dataset_schema(&schema, dataset, &failure));
    assert_string_equal(uni_table_column_at(schema, 0)->field.name, "train-labels-idx1-ubyte");
    assert_int_equal(rows_of(dataset), 3);
    for (size_t size = 10; size <= 12; size += 2) {
        put("train-labels-idx1-ubyte", labels, size);
        assert_int_equal(uni_dataset_read(&dataset, 1, paths, &failure), UNI_EFORMAT);
        assert_non_null(strstr(failure.message, "its header says 3"));
    }
}

static int set_up(void **unused)
{
    snprintf(folder, sizeof folder, "/tmp/unisono-config-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int tear_down(void **unused)
{
    static const char *const names[] = { "parts/part-1.csv", "parts/part-2.csv",
                                         "train-labels-idx1-ubyte", "parts", "" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        remove(path_of(names[i]));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_of_values),
        cmocka_unit_test_setup_teardown(files_by_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(idx_files, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
