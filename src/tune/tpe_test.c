/* tpe_test.c - TPE on spaces with choices: which branch it learns, what it learns inside a branch,
 * and that a resumed search proposes the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tune/search.h"

typedef double (*objective)(const uni_value *config);

typedef struct search {
    uni_value *space, *options;
    uni__searcher searcher;
} search;

static void begin(search *s, const char *space, uint64_t seed)
{
    uni_error err = { 0 };
    assert_int_equal(uni_json_read(&s->space, space, strlen(space), &err), 0);
    assert_int_equal(uni_json_read(&s->options, "{\"type\": \"tpe\"}", 15, &err), 0);
    uni__search_setting setting = {
        .options = s->options, .space = s->space, .seed = seed, .total = -1, .sign = -1
    };
    if (uni__searcher_new(&s->searcher, &setting, &err) < 0)
        fail_msg("%s", err.message);
}

static void end(search *s)
{
    uni__searcher_clear(&s->searcher);
    uni_value_free(s->space);
    uni_value_free(s->options);
}

static uni_value *ask(search *s, int64_t trial)
{
    uni_error err = { 0 };
    uni_value *config = NULL;
    if (s->searcher.methods.ask(s->searcher.methods.self, trial, &config, &err) != 1)
        fail_msg("trial %d: %s", (int)trial, err.message);
    return config;
}

static void tell(search *s, int64_t trial, const uni_value *config, double value)
{
    assert_int_equal(s->searcher.methods.tell(s->searcher.methods.self, trial, config, value, NULL),
                     0);
}

/* The values of `count` trials, run one after the other. */
static void run(const char *space, uint64_t seed, objective f, double *values, int count)
{
    search s = { 0 };
    begin(&s, space, seed);
    for (int i = 0; i < count; i++) {
        uni_value *config = ask(&s, i);
        values[i] = f(config);
        tell(&s, i, config, values[i]);
        uni_value_free(config);
    }
    end(&s);
}

static int below(const double *values, int from, int to, double limit)
{
    int count = 0;
    for (int i = from; i < to; i++)
        count += values[i] < limit;
    return count;
}

/* ---- objectives ---- */

static double at(const uni_value *config, const char *path)
{
    return uni_value_as_float(uni_value_path(config, path), NAN);
}

static double small_rate(const uni_value *config)
{
    return fabs(at(config, "b.lr") - 0.5);
}

static double last_item(const uni_value *config)
{
    double x = at(config, "x.1.0");
    return isnan(x) ? 2 : fabs(x - 0.25);
}

static double plain(const uni_value *config)
{
    double x = at(config, "x");
    return isnan(x) ? 3 : fabs(x - 10.5);
}

static double diverging(const uni_value *config)
{
    double x = at(config, "x");
    return x > 0.5 ? INFINITY : x > 0.25 ? NAN : fabs(x - 0.1);
}

/* ---- tests ---- */

static void learns_the_branch(void **state)
{
    const char *spaces[] = {
        "{\"b\": {\"$choice\": [{\"lr\": {\"$uniform\": [10, 11]}}, {\"lr\": {\"$uniform\": [0, "
        "1]}}]}}",
        "{\"b\": {\"$choice\": [{\"lr\": {\"$uniform\": [0, 1]}}, {\"lr\": {\"$uniform\": [10, "
        "11]}}]}}"
    };
    for (int which = 0; which < 2; which++)
        for (uint64_t seed = 1; seed <= 10; seed++) {
            double values[100];
            run(spaces[which], seed, small_rate, values, 100);
            assert_true(below(values, 10, 100, 1) >= 60);
            /* inside the branch too: uniform draws would put 18 of 90 there */
            assert_true(below(values, 10, 100, 0.1) >= 36);
        }
}

static void lists_and_bare_domains(void **state)
{
    double values[100];
    run("{\"x\": {\"$choice\": [\"off\", [1, [{\"$uniform\": [0, 1]}]]]}}", 1, last_item, values,
        100);
    assert_true(below(values, 10, 100, 0.1) >= 36);
    run("{\"x\": {\"$choice\": [{\"$choice\": [{\"$uniform\": [0, 1]}, \"a\"]}, {\"$quniform\": "
        "[10, 11, 0.125]}, {\"$randint\": [2, 9]}]}}",
        1, plain, values, 100);
    assert_true(below(values, 10, 100, 0.2) >= 30);
}

static void what_diverges_is_bad(void **state)
{
    double values[100];
    run("{\"x\": {\"$uniform\": [0, 1]}}", 1, diverging, values, 100);
    assert_true(below(values, 10, 100, 0.15) >= 50);
}

/* A resumed search has only the configs. */
static void replays(void **state)
{
    static const char space[] =
        "{\"a\": {\"$lograndint\": [1, 1000]}, \"n\": {\"$normal\": [5, 2]}, \"b\": {\"$choice\": "
        "[{\"p\": {\"$loguniform\": [0.001, 1]}, \"q\": {\"$choice\": [1, 2, {\"$randint\": [5, "
        "9]}]}}, {\"r\": {\"$qloguniform\": [1, 100, 0.5]}, \"q\": 7}, \"none\"]}}";
    search first = { 0 }, second = { 0 };
    begin(&first, space, 7);
    begin(&second, space, 7);
    for (int64_t i = 0; i < 60; i++) {
        uni_value *config = ask(&first, i), *again = NULL;
        double value = fabs(at(config, "a") - 30) / 30 + fabs(at(config, "n") - 6);
        if (i >= 40) {
            again = ask(&second, i);
            assert_true(uni_value_equal(config, again));
        } else {
            assert_int_equal(
                second.searcher.methods.restore(second.searcher.methods.self, i, config, NULL), 0);
        }
        if (i % 7 != 3) { /* some are still running */
            tell(&first, i, config, value);
            tell(&second, i, config, value);
        }
        uni_value_free(config);
        uni_value_free(again);
    }
    end(&first);
    end(&second);
}

/* An option that a searcher does not have is a mistake, not a wish that is ignored. */
static void unknown_options(void **state)
{
    static const char *const cases[][2] = {
        { "{\"type\": \"random\", \"n_initial\": 3}", "n_initial" },
        { "{\"type\": \"tpe\", \"n_intial_points\": 3}", "n_intial_points" },
        { "{\"type\": \"bayes\"}", "bayes" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        search s = { 0 };
        uni_error err = { 0 };
        assert_int_equal(uni_json_read(&s.space, "{}", 2, &err), 0);
        assert_int_equal(uni_json_read(&s.options, cases[i][0], strlen(cases[i][0]), &err), 0);
        uni__search_setting setting = {
            .options = s.options, .space = s.space, .total = -1, .sign = 1
        };
        assert_true(uni__searcher_new(&s.searcher, &setting, &err) < 0);
        assert_non_null(strstr(err.message, cases[i][1]));
        end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_the_branch),
        cmocka_unit_test(lists_and_bare_domains),
        cmocka_unit_test(what_diverges_is_bad),
        cmocka_unit_test(unknown_options),
        cmocka_unit_test(replays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
