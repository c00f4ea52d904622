/*
 * space_test.c - domains and spaces: every mark and what is wrong with it, the numbers at the ends
 * of a domain, grids, nested choices, samplers, and keys with dots.
 */
#include "tune/testing.h"

#include "tune/space.h"

/* The space's config number `index` equals the JSON. */
static void config_is(const uni_value *space, int64_t index, const char *expected)
{
    uni_error err = { 0 };
    uni_value *config = NULL, *wanted = json(expected);
    if (uni__tune_space_config(space, NULL, 1, index, &config, &err) < 0)
        fail_msg("config %d: %s", (int)index, err.message);
    if (!uni_value_equal(config, wanted))
        fail_msg("config %d is not %s", (int)index, expected);
    uni_value_free(config);
    uni_value_free(wanted);
}

static double sample(const char *mark, double unit)
{
    uni__domain domain;
    uni_error err = { 0 };
    uni_value *value = json(mark);
    if (uni__domain_read(value, "x", &domain, &err) != 1)
        fail_msg("%s: %s", mark, err.message);
    uni_value *drawn = uni__domain_sample(&domain, unit);
    double number = uni_value_as_float(drawn, NAN);
    bool whole = uni_value_type_of(drawn) == UNI_TYPE_INT;
    assert_int_equal(whole, domain.kind == UNI__DOMAIN_INT);
    uni_value_free(drawn);
    uni_value_free(value);
    return number;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

/* ---- domains ---- */

#define LAST (1 - 1e-16 * 1.2) /* the largest double below 1 */

static void ends_of_domains(void **state)
{
    assert_true(sample("{\"$uniform\": [2, 6]}", 0) == 2);
    assert_true(near(sample("{\"$uniform\": [2, 6]}", 0.25), 3));
    assert_true(sample("{\"$uniform\": [3, 3]}", 0.7) == 3);
    assert_true(near(sample("{\"$loguniform\": [0.001, 10]}", 0), 0.001));
    assert_true(near(sample("{\"$loguniform\": [0.001, 10]}", 0.25), 0.01));
    assert_true(near(sample("{\"$loguniform\": [0.001, 10]}", 0.75), 1));
    /* randint leaves its upper end out, the q forms include it */
    assert_true(sample("{\"$randint\": [5, 8]}", 0) == 5);
    assert_true(sample("{\"$randint\": [5, 8]}", 0.33) == 5);
    assert_true(sample("{\"$randint\": [5, 8]}", 0.34) == 6);
    assert_true(sample("{\"$randint\": [5, 8]}", LAST) == 7);
    assert_true(sample("{\"$randint\": [-3, -2]}", 0.5) == -3);
    assert_true(sample("{\"$qrandint\": [2, 10, 4]}", 0) == 4);
    assert_true(sample("{\"$qrandint\": [2, 10, 4]}", LAST) == 8);
    assert_true(sample("{\"$qrandint\": [4, 12, 4]}", LAST) == 12);
    assert_true(sample("{\"$qrandint\": [4, 12, 1]}", LAST) == 12);
    assert_true(sample("{\"$lograndint\": [1, 100]}", 0) == 1);
    assert_true(sample("{\"$lograndint\": [1, 100]}", 0.5) == 10);
    assert_true(sample("{\"$lograndint\": [1, 100]}", LAST) == 99);
    assert_true(sample("{\"$qlograndint\": [4, 64, 4]}", LAST) == 64);
    assert_true(sample("{\"$qlograndint\": [4, 64, 4]}", 0) == 4);
    /* steps: the nearest multiple that lies inside */
    assert_true(sample("{\"$quniform\": [0, 1, 0.25]}", 0.3) == 0.25);
    assert_true(sample("{\"$quniform\": [0, 1, 0.25]}", 0.4) == 0.5);
    assert_true(sample("{\"$quniform\": [0.1, 0.9, 0.25]}", 0) == 0.25);
    assert_true(sample("{\"$quniform\": [0.1, 0.9, 0.25]}", LAST) == 0.75);
    assert_true(sample("{\"$qloguniform\": [1, 100, 5]}", 0.5) == 10);
    assert_true(sample("{\"$qloguniform\": [1, 100, 5]}", 0) == 5);
}

/* Quantiles of the standard normal distribution, from a table. */
static void normal_numbers(void **state)
{
    static const double table[][2] = { { 0.5, 0 },
                                       { 0.8413447460685429, 1 },
                                       { 0.9772498680518208, 2 },
                                       { 0.15865525393145707, -1 },
                                       { 0.0013498980316300933, -3 },
                                       { 0.975, 1.959963984540054 },
                                       { 0.001, -3.090232306167813 },
                                       { 0.999999, 4.753424308822899 } };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        double x = sample("{\"$normal\": [10, 2]}", table[i][0]);
        if (fabs(x - (10 + 2 * table[i][1])) > 1e-7)
            fail_msg("quantile %g is %.12g", table[i][0], x);
    }
    assert_true(isfinite(sample("{\"$normal\": [0, 1]}", 0)));
    assert_true(sample("{\"$normal\": [4, 0]}", 0.9) == 4);
    assert_true(sample("{\"$qnormal\": [10, 2, 0.5]}", 0.8413447460685429) == 12);
    assert_true(sample("{\"$qnormal\": [0, 1, 5]}", 0.1) == 0);
}

static void choices(void **state)
{
    uni__domain domain;
    uni_value *mark = json("{\"$choice\": [\"a\", \"b\", \"c\", \"d\"]}");
    static const char *const expected[] = { "a", "a", "b", "b", "c", "c", "d", "d" };
    assert_int_equal(uni__domain_read(mark, "x", &domain, NULL), 1);
    for (int i = 0; i < 8; i++) {
        uni_value *drawn = uni__domain_sample(&domain, i / 8.0);
        assert_string_equal(uni_value_as_string(drawn, ""), expected[i]);
        uni_value_free(drawn);
    }
    uni_value *last = uni__domain_sample(&domain, 1); /* what rounding could make of it */
    assert_string_equal(uni_value_as_string(last, ""), "d");
    uni_value_free(last);
    uni_value_free(mark);
}

static void what_is_not_marked(void **state)
{
    static const char *const plain[] = {
        "3",  "null",       "\"$uniform\"",     "[0, 1]",
        "{}", "{\"a\": 1}", "{\"uniform\": 3}", "{\"$uniform\": [0, 1], \"other\": 1}"
    };
    uni__domain domain;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        uni_value *value = json(plain[i]);
        assert_int_equal(uni__domain_read(value, "x", &domain, NULL), 0);
        uni_value_free(value);
    }
}

static void wrong_marks(void **state)
{
    static const char *const cases[][2] = {
        { "{\"$uniform\": [1]}", "\"x\": $uniform needs a list of 2 numbers" },
        { "{\"$uniform\": 3}", "a list of 2 numbers" },
        { "{\"$quniform\": [0, 1]}", "a list of 3 numbers" },
        { "{\"$uniform\": [0, \"1\"]}", "needs finite numbers" },
        { "{\"$randint\": [0, 1.5]}", "needs whole numbers" },
        { "{\"$qrandint\": [0, 8, 0.5]}", "needs whole numbers" },
        { "{\"$uniform\": [2, 1]}", "the lower end of $uniform, 2, is above the upper end, 1" },
        { "{\"$loguniform\": [0, 1]}", "a lower end above 0" },
        { "{\"$qloguniform\": [-1, 1, 1]}", "a lower end above 0" },
        { "{\"$randint\": [3, 3]}", "has no number" },
        { "{\"$lograndint\": [3, 3]}", "has no number" },
        { "{\"$quniform\": [0, 1, 0]}", "must be positive" },
        { "{\"$quniform\": [0, 1, -1]}", "must be positive" },
        { "{\"$qnormal\": [0, 1, 0]}", "must be positive" },
        { "{\"$normal\": [0, -1]}", "must not be negative" },
        { "{\"$choice\": 3}", "needs a list of values" },
        { "{\"$choice\": []}", "has no values" },
        { "{\"grid_search\": []}", "has no values" },
        { "{\"$sample_from\": 3}", "the name of a function" },
        { "{\"$unifrom\": [0, 1]}", "\"$unifrom\" is not a kind of parameter" },
        { "{\"uniform\": [0, 1]}", "write {\"$uniform\": [...]}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni__domain domain;
        uni_error err = { 0 };
        uni_value *value = json(cases[i][0]);
        assert_int_equal(uni__domain_read(value, "x", &domain, &err), UNI_EINVAL);
        if (!strstr(err.message, cases[i][1]))
            fail_msg("%s gives \"%s\"", cases[i][0], err.message);
        uni_value_free(value);
    }
}

/* The functions for C users make the same marks as JSON. */
static void marks_in_c(void **state)
{
    uni_value *two = uni_value_list();
    assert_int_equal(uni_list_take(two, uni_value_int(1)), 0);
    assert_int_equal(uni_list_take(two, uni_value_int(2)), 0);
    const struct {
        uni_value *made;
        const char *json;
    } cases[] = {
        { uni_tune_uniform(0.5, 2), "{\"$uniform\": [0.5, 2.0]}" },
        { uni_tune_quniform(0.5, 2, 0.25), "{\"$quniform\": [0.5, 2.0, 0.25]}" },
        { uni_tune_loguniform(0.5, 2), "{\"$loguniform\": [0.5, 2.0]}" },
        { uni_tune_qloguniform(0.5, 2, 0.5), "{\"$qloguniform\": [0.5, 2.0, 0.5]}" },
        { uni_tune_randint(1, 5), "{\"$randint\": [1, 5]}" },
        { uni_tune_qrandint(1, 5, 2), "{\"$qrandint\": [1, 5, 2]}" },
        { uni_tune_lograndint(1, 5), "{\"$lograndint\": [1, 5]}" },
        { uni_tune_qlograndint(2, 8, 2), "{\"$qlograndint\": [2, 8, 2]}" },
        { uni_tune_normal(1, 0.5), "{\"$normal\": [1.0, 0.5]}" },
        { uni_tune_qnormal(1, 0.5, 0.25), "{\"$qnormal\": [1.0, 0.5, 0.25]}" },
        { uni_tune_choice(uni_value_copy(two)), "{\"$choice\": [1, 2]}" },
        { uni_tune_grid_search(two), "{\"$grid_search\": [1, 2]}" },
        { uni_tune_sample_from("f"), "{\"$sample_from\": \"f\"}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_value *expected = json(cases[i].json);
        if (!uni_value_equal(cases[i].made, expected))
            fail_msg("not %s", cases[i].json);
        uni_value_free(expected);
        uni_value_free(cases[i].made);
    }
}

/* ---- spaces ---- */

static void grids(void **state)
{
    uni_error err = { 0 };
    int64_t size = 0;
    uni_value *space =
        json("{\"b\": {\"$grid_search\": [1, 2, 3]}, \"a\": {\"z\": {\"grid_search\": [\"p\", "
             "\"q\"]}}, \"c\": 5}");
    assert_int_equal(uni__tune_space_size(space, &size, &err), 0);
    assert_int_equal(size, 6);
    /* sorted by path; the first turns fastest; after the last it begins again */
    config_is(space, 0, "{\"b\": 1, \"a\": {\"z\": \"p\"}, \"c\": 5}");
    config_is(space, 1, "{\"b\": 1, \"a\": {\"z\": \"q\"}, \"c\": 5}");
    config_is(space, 2, "{\"b\": 2, \"a\": {\"z\": \"p\"}, \"c\": 5}");
    config_is(space, 5, "{\"b\": 3, \"a\": {\"z\": \"q\"}, \"c\": 5}");
    config_is(space, 6, "{\"b\": 1, \"a\": {\"z\": \"p\"}, \"c\": 5}");
    uni_value_free(space);
    space = json("{\"a\": 1}");
    assert_int_equal(uni__tune_space_size(space, &size, &err), 0);
    assert_int_equal(size, 1);
    config_is(space, 3, "{\"a\": 1}");
    uni_value_free(space);
    assert_int_equal(uni__tune_space_size(NULL, &size, &err), 0);
    assert_int_equal(size, 1);
    config_is(NULL, 7, "{}");
}

static void grids_have_a_limit(void **state)
{
    uni_error err = { 0 };
    int64_t size = 0;
    uni__space read;
    char text[4096] = "{";
    for (int i = 0; i < 11; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "%s\"p%d\": {\"$grid_search\": [0, 1, 2, 3, 4, 5, 6, 7]}", i ? ", " : "", i);
    strcat(text, "}");
    uni_value *space = json(text);
    assert_int_equal(uni__tune_space_size(space, &size, &err), UNI_ELIMIT);
    assert_non_null(strstr(err.message, "more than 2147483647 combinations"));
    assert_int_equal(uni__space_read(&read, space, NULL), UNI_ELIMIT);
    assert_null(read.items);
    uni_value_free(space);
}

/* Paths lead through lists and through keys that have dots of their own. */
static void paths(void **state)
{
    uni_value *space = json(
        "{\"l\": [1, {\"k\": {\"$choice\": [7]}}, [0, {\"$choice\": [8]}], {\"$choice\": [9]}], "
        "\"a.b\": {\"$choice\": [1]}, \"a\": {\"c\": {\"$choice\": [2]}, \"c.d\": {\"e\": "
        "{\"$choice\": [3]}}}}");
    config_is(space, 0,
              "{\"l\": [1, {\"k\": 7}, [0, 8], 9], \"a.b\": 1, \"a\": {\"c\": 2, \"c.d\": {\"e\": "
              "3}}}");
    uni_value_free(space);
}

static void put_where_there_is_nothing(void **state)
{
    uni_value *tree = json("{\"l\": [1, 2]}");
    assert_int_equal(uni__space_put(tree, "new", uni_value_int(3)), 0);
    assert_int_equal(uni_dict_get_int(tree, "new", 0), 3);
    assert_true(uni__space_put(tree, "l.2", uni_value_int(3)) < 0); /* beyond the list's end */
    assert_int_equal(uni_list_size(uni_dict_get(tree, "l")), 2);
    assert_int_equal(uni__space_put(tree, "x", NULL), UNI_ENOMEM);
    uni_value_free(tree);
}

/* Domains inside of chosen values are drawn, too, and belong to the trial's number. */
static void nested_choices(void **state)
{
    uni_error err = { 0 };
    uni_value *space = json("{\"o\": {\"$choice\": [{\"n\": \"sgd\", \"m\": {\"$uniform\": [5, "
                            "6]}}, {\"n\": \"adam\", \"b\": {\"$choice\": [{\"deep\": "
                            "{\"$randint\": [1, 4]}}, null]}}]}}");
    int sgd = 0, adam = 0, deep = 0;
    for (int64_t i = 0; i < 200; i++) {
        uni_value *config = NULL, *again = NULL, *other = NULL;
        assert_int_equal(uni__tune_space_config(space, NULL, 3, i, &config, &err), 0);
        assert_int_equal(uni__tune_space_config(space, NULL, 3, i, &again, &err), 0);
        assert_int_equal(uni__tune_space_config(space, NULL, 4, i, &other, &err), 0);
        assert_true(uni_value_equal(config, again));
        const char *name = uni_value_as_string(uni_value_path(config, "o.n"), "");
        double m = uni_value_as_float(uni_value_path(config, "o.m"), NAN);
        int64_t d = uni_value_as_int(uni_value_path(config, "o.b.deep"), 0);
        if (strcmp(name, "sgd") == 0) {
            assert_true(m >= 5 && m < 6);
            assert_false(uni_value_equal(config, other) && isnan(m));
            sgd++;
        } else {
            assert_string_equal(name, "adam");
            assert_true(isnan(m) && d >= 0 && d < 4);
            adam++;
            deep += d > 0;
        }
        uni_value_free(config);
        uni_value_free(again);
        uni_value_free(other);
    }
    assert_true(sgd > 70 && adam > 70 && deep > 25 && deep < adam - 25);
    uni_value_free(space);
}

static void nested_without_end(void **state)
{
    uni_error err = { 0 };
    uni_value *config = NULL;
    char text[2048] = "{\"x\": ";
    for (int i = 0; i < 12; i++)
        strcat(text, "{\"$choice\": [");
    strcat(text, "1");
    for (int i = 0; i < 12; i++)
        strcat(text, "]}");
    strcat(text, "}");
    uni_value *space = json(text);
    assert_int_equal(uni__tune_space_config(space, NULL, 1, 0, &config, &err), UNI_ELIMIT);
    assert_non_null(strstr(err.message, "more than 8 deep"));
    assert_null(config);
    uni_value_free(space);
}

/* ---- samplers ---- */

static int sum(void *context, const uni_value *config, uni_value **out, uni_error *err)
{
    ++*(int *)context;
    *out = uni_value_int(uni_dict_get_int(config, "a", 0) + uni_dict_get_int(config, "b", 0));
    return 0;
}

static int refuse(void *context, const uni_value *config, uni_value **out, uni_error *err)
{
    return uni_error_set(err, UNI_ESTATE, "not today");
}

static int nothing(void *context, const uni_value *config, uni_value **out, uni_error *err)
{
    return 0;
}

static void samplers(void **state)
{
    int calls = 0;
    const uni_tune_sampler all[] = { { "sum", sum, &calls },
                                     { "refuse", refuse, NULL },
                                     { "nothing", nothing, NULL },
                                     { NULL, NULL, NULL } };
    uni_error err = { 0 };
    uni_value *config = NULL;
    uni_value *space = json("{\"a\": {\"$choice\": [40]}, \"b\": 2, \"c\": {\"$sample_from\": "
                            "\"sum\"}}");
    assert_int_equal(uni__tune_space_config(space, all, 1, 0, &config, &err), 0);
    assert_int_equal(uni_dict_get_int(config, "c", 0), 42);
    assert_int_equal(calls, 1);
    uni_value_free(config);
    uni_value_free(space);
    static const char *const cases[][2] = {
        { "refuse", "\"c\": sample_from refuse: not today" },
        { "nothing", "\"c\": sample_from nothing: it gave no value" },
        { "missing", "there is no sampler \"missing\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[80];
        snprintf(text, sizeof text, "{\"c\": {\"$sample_from\": \"%s\"}}", cases[i][0]);
        space = json(text);
        assert_true(uni__tune_space_config(space, all, 1, 0, &config, &err) < 0);
        if (!strstr(err.message, cases[i][1]))
            fail_msg("%s gives \"%s\"", text, err.message);
        assert_null(config);
        uni_value_free(space);
    }
}

static void checks(void **state)
{
    static const char *const cases[][2] = {
        { "[1]", "must be a dictionary, not a list" },
        { "{\"$uniform\": [0, 1]}", "not one parameter" },
        { "{\"a\": {\"b\": [{\"$uniform\": [1, 0]}]}}", "\"a.b.0\": the lower end" },
        { "{\"a.b\": {\"$choice\": [1]}, \"a\": {\"b\": {\"$choice\": [2]}}}",
          "two parameters of the space have the path \"a.b\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_error err = { 0 };
        uni_value *space = json(cases[i][0]);
        assert_int_equal(uni__tune_space_check(space, &err), UNI_EINVAL);
        if (!strstr(err.message, cases[i][1]))
            fail_msg("%s gives \"%s\"", cases[i][0], err.message);
        uni_value_free(space);
    }
    assert_int_equal(uni__tune_space_check(NULL, NULL), 0);
    for (int i = 0; i < 2; i++) {
        uni_value *space = json(i ? "{\"a\": 1}" : "{}"), *config = NULL;
        int64_t size = 0;
        assert_int_equal(uni__tune_space_check(space, NULL), 0);
        assert_int_equal(uni__tune_space_size(space, &size, NULL), 0);
        assert_int_equal(size, 1);
        assert_int_equal(uni__tune_space_config(space, NULL, 1, 0, &config, NULL), 0);
        assert_int_equal(uni_dict_size(config), i);
        uni_value_free(config);
        uni_value_free(space);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_domains), cmocka_unit_test(normal_numbers),
        cmocka_unit_test(choices),         cmocka_unit_test(what_is_not_marked),
        cmocka_unit_test(wrong_marks),     cmocka_unit_test(marks_in_c),
        cmocka_unit_test(grids),           cmocka_unit_test(grids_have_a_limit),
        cmocka_unit_test(paths),           cmocka_unit_test(put_where_there_is_nothing),
        cmocka_unit_test(nested_choices),  cmocka_unit_test(nested_without_end),
        cmocka_unit_test(samplers),        cmocka_unit_test(checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
