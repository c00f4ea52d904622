/*
 * preprocess_test.c - preprocessors: correct numbers, exact values, save and load, and error
 * messages.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <unisono/preprocess.h>
#include "data/shared.h"

static uni_error failure;

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            fail_msg("%s: %s", #call, failure.message);                                            \
    } while (0)

static uni_value *json(const char *text)
{
    uni_value *value = NULL;
    assert_ok(uni_json_read(&value, text, strlen(text), &failure));
    return value;
}

static uni_dataset *rows_of(const char *text)
{
    uni_dataset *dataset = NULL;
    uni_value *items = json(text);
    assert_ok(uni_dataset_from_items(&dataset, items, &failure));
    uni_value_free(items);
    return dataset;
}

/* Expects an error with this code whose message contains `says`. */
static void refused(const char *kind, const char *options_, const char *rows, int code,
                    const char *says)
{
    uni_value *options = json(options_);
    uni_preprocessor *made = NULL;
    uni_table *table = NULL;
    uni_dataset *dataset = rows_of(rows), *after = NULL;
    int status = uni_preprocessor_new(&made, kind, options, &failure);
    if (status == 0)
        status = uni_preprocessor_fit(made, dataset, &failure);
    if (status == 0)
        status = uni_preprocessor_transform(&after, made, dataset, &failure);
    if (status == 0)
        status = uni_dataset_take(&table, after, 100, &failure);
    assert_int_equal(status, code);
    if (strstr(failure.message, says) == NULL)
        fail_msg("\"%s\" is not in: %s", says, failure.message);
    uni_dataset_unref(after);
    uni_dataset_unref(dataset);
    uni_preprocessor_unref(made);
    uni_value_free(options);
}

/* Fits, saves, loads, and applies the loaded preprocessor to all rows as one table. */
static uni_table *transformed(const char *kind, const char *options_, uni_dataset *dataset)
{
    uni_value *options = json(options_), *saved = NULL;
    uni_preprocessor *made = NULL, *loaded = NULL;
    uni_dataset *after = NULL;
    uni_table *table = NULL;
    assert_ok(uni_preprocessor_new(&made, kind, options, &failure));
    assert_ok(uni_preprocessor_fit(made, dataset, &failure));
    assert_ok(uni_preprocessor_save(&saved, made, &failure));
    assert_ok(uni_preprocessor_load(&loaded, saved, &failure));
    assert_ok(uni_preprocessor_transform(&after, loaded, dataset, &failure));
    assert_ok(uni_dataset_take(&table, after, 100, &failure));
    uni_dataset_unref(after);
    uni_preprocessor_unref(loaded);
    uni_preprocessor_unref(made);
    uni_value_free(saved);
    uni_value_free(options);
    return table;
}

static const void *data_of(const uni_table *table, const char *name)
{
    const uni_table_column *column = uni_table_find(table, name);
    assert_non_null(column);
    return uni_array_data(column->values);
}

static void rows_by_their_norm(void **unused)
{
    uni_dataset *dataset = rows_of("[{\"a\": 3e200, \"b\": -4e200}, {\"a\": null, \"b\": 2}, "
                                   "{\"a\": 0, \"b\": 0}]");
    uni_table *table = transformed("Normalizer", "{\"columns\": [\"a\", \"b\"]}", dataset);
    const float *a = data_of(table, "a"), *b = data_of(table, "b");
    assert_true(a[0] == 0.6f && b[0] == -0.8f); /* no overflow */
    assert_true(isnan(a[1]) && b[1] == 1); /* a missing value stays missing and is ignored */
    assert_true(a[2] == 0 && b[2] == 0);
    uni_table_unref(table);
    table = transformed("Normalizer", "{\"columns\": [\"a\", \"b\"], \"norm\": \"l1\"}", dataset);
    assert_true(((const float *)data_of(table, "a"))[0] == (float)(3. / 7));
    uni_table_unref(table);
    table = transformed("Normalizer", "{\"columns\": [\"b\"], \"norm\": \"max\"}", dataset);
    assert_true(((const float *)data_of(table, "b"))[0] == -1);
    uni_table_unref(table);
    uni_dataset_unref(dataset);
}

static void scalers_and_their_outputs(void **unused)
{
    uni_dataset *dataset = rows_of("[{\"x\": 1}, {\"x\": 2}, {\"x\": 3}]");
    uni_table *table =
        transformed("MinMaxScaler", "{\"columns\": [\"x\"], \"output_columns\": [\"y\"]}", dataset);
    const float *y = data_of(table, "y");
    assert_true(y[0] == 0 && y[1] == 0.5f && y[2] == 1);
    assert_int_equal(((const int64_t *)data_of(table, "x"))[2], 3); /* the input column remains */
    uni_table_unref(table);
    uni_dataset_unref(dataset);
}

static void categories_are_exact(void **unused)
{
    /* Neighbours that a double cannot distinguish. */
    uni_dataset *dataset = rows_of("[{\"k\": 9007199254740993}, {\"k\": 9007199254740992}, "
                                   "{\"k\": -9223372036854775808}, {\"k\": 9007199254740993}]");
    uni_table *table = transformed("LabelEncoder", "{\"label_column\": \"k\"}", dataset);
    const int64_t *k = data_of(table, "k");
    assert_true(k[0] == 2 && k[1] == 1 && k[2] == 0 && k[3] == 2);
    uni_table_unref(table);
    table = transformed("OneHotEncoder", "{\"columns\": [\"k\"], \"max_categories\": 1}", dataset);
    const float *hot = data_of(table, "k");
    assert_true(hot[0] == 1 && hot[1] == 0 && hot[2] == 0 && hot[3] == 1);
    uni_table_unref(table);
    uni_dataset_unref(dataset);
}

static void imputer_keeps_types(void **unused)
{
    uni_dataset *dataset = rows_of("[{\"k\": 9007199254740993, \"s\": \"a\", \"f\": 1.5}, "
                                   "{\"k\": null, \"s\": null, \"f\": null}, "
                                   "{\"k\": 9007199254740993, \"s\": \"b\", \"f\": 2.5}]");
    uni_table *table = transformed(
        "SimpleImputer", "{\"columns\": [\"k\", \"s\"], \"strategy\": \"most_frequent\"}", dataset);
    assert_int_equal(((const int64_t *)data_of(table, "k"))[1], 9007199254740993);
    assert_null(uni_table_find(table, "k")->valid);
    assert_memory_equal(data_of(table, "s"), "aab", 3);
    uni_table_unref(table);
    table = transformed("SimpleImputer", "{\"columns\": [\"f\"]}", dataset);
    assert_true(((const double *)data_of(table, "f"))[1] == 2);
    uni_table_unref(table);
    uni_dataset_unref(dataset);
}

static void what_cannot_be(void **unused)
{
    const char *rows = "[{\"x\": 1.5, \"s\": \"a\", \"n\": null}, {\"x\": 2, \"s\": \"b\", "
                       "\"n\": null}]";
    static const struct {
        const char *kind, *options;
        int code;
        const char *says;
    } cases[] = {
        { "Bogus", "{\"columns\": [\"x\"]}", UNI_ENOTFOUND, "Bogus" },
        { "StandardScaler", "{}", UNI_EINVAL, "needs a list of columns" },
        { "StandardScaler", "{\"columns\": [\"x\", \"x\"]}", UNI_EINVAL, "given twice" },
        { "StandardScaler", "{\"columns\": [\"q\"]}", UNI_ENOTFOUND, "the columns are x, s" },
        { "StandardScaler", "{\"columns\": [\"s\"]}", UNI_EDTYPE, "not numbers" },
        { "StandardScaler", "{\"columns\": [\"x\"], \"norm\": \"l2\"}", UNI_EINVAL,
          "no option \"norm\"" },
        { "StandardScaler", "{\"columns\": [\"x\"], \"output_columns\": [\"s\"]}", UNI_EEXISTS,
          "\"s\" already" },
        { "StandardScaler", "{\"columns\": [\"x\"], \"output_columns\": [\"a\", \"b\"]}",
          UNI_EINVAL, "2 output_columns for 1" },
        { "Normalizer", "{\"columns\": [\"x\"], \"norm\": \"l3\"}", UNI_EINVAL, "not l3" },
        { "SimpleImputer", "{\"columns\": [\"s\"]}", UNI_EDTYPE, "no mean" },
        { "SimpleImputer",
          "{\"columns\": [\"x\"], \"strategy\": \"constant\", \"fill_value\": \"a\"}", UNI_EDTYPE,
          "is numbers, which fill_value is not" },
        { "SimpleImputer", "{\"columns\": [\"x\"], \"strategy\": \"median\"}", UNI_EINVAL,
          "not median" },
        { "OneHotEncoder", "{\"columns\": [\"s\"], \"max_categories\": -1}", UNI_EINVAL, "-1" },
        { "OneHotEncoder", "{\"columns\": [\"s\"], \"max_categories\": {\"q\": 1}}", UNI_EINVAL,
          "none of its columns" },
        { "Concatenator", "{\"columns\": [\"x\"], \"output_column_name\": \"s\"}", UNI_EEXISTS,
          "two columns are called s" },
        { "Concatenator", "{\"columns\": [\"x\"], \"dtype\": \"floaty\"}", UNI_EINVAL, "floaty" },
        { "Tokenizer", "{\"columns\": [\"x\"]}", UNI_EDTYPE, "not text" },
        { "Tokenizer", "{\"columns\": [\"s\"], \"standardize\": \"upper\"}", UNI_EINVAL, "upper" },
        { "Tokenizer", "{\"columns\": [\"s\"], \"max_tokens\": 2}", UNI_EINVAL, "at least 3" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i].kind, cases[i].options, rows, cases[i].code, cases[i].says);
}

/* No rows, or no values, to fit to. */
static void nothing_to_fit(void **unused)
{
    uni_dataset *all = NULL, *none = NULL;
    uni_preprocessor *scaler = NULL;
    uni_value *options = json("{\"columns\": [\"id\"]}");
    assert_ok(uni_dataset_range(&all, 10, &failure));
    assert_ok(uni_dataset_limit(&none, all, 0, &failure));
    assert_ok(uni_preprocessor_new(&scaler, "StandardScaler", options, &failure));
    assert_int_equal(uni_preprocessor_fit(scaler, none, &failure), UNI_EINVAL);
    assert_non_null(strstr(failure.message, "no rows"));
    uni_preprocessor_unref(scaler);
    uni_dataset_unref(none);
    uni_dataset_unref(all);
    uni_value_free(options);
    refused("MinMaxScaler", "{\"columns\": [\"n\"]}", "[{\"n\": null, \"x\": 1}]", UNI_EINVAL,
            "only missing values");
    refused("SimpleImputer", "{\"columns\": [\"n\"]}", "[{\"n\": null, \"x\": 1}]", UNI_EINVAL,
            "use constant");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_by_their_norm),   cmocka_unit_test(scalers_and_their_outputs),
        cmocka_unit_test(categories_are_exact), cmocka_unit_test(imputer_keeps_types),
        cmocka_unit_test(what_cannot_be),       cmocka_unit_test(nothing_to_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
