/*
 * parzen_test.c - properties of a density that hold whatever its formulas are: over its domain it
 * sums to 1, it is higher where the trials were, and draws follow it and stay inside the domain.
 */
#include "tune/testing.h"

#include "tune/parzen.h"

typedef struct estimate {
    uni_value *mark;
    uni__domain domain;
    uni__axis axis;
    double seen[8];
    const double *rows[8];
    uni__parzen *parzen;
} estimate;

/* An estimate from trials that had these numbers (of a choice: these places in its list). */
static void begin(estimate *e, const char *mark, size_t count, const double *numbers)
{
    *e = (estimate){ .mark = json(mark) };
    assert_int_equal(uni__domain_read(e->mark, "x", &e->domain, NULL), 1);
    uni__axis_init(&e->axis, &e->domain);
    for (size_t i = 0; i < count; i++) {
        e->seen[i] = e->axis.choices > 0 ? numbers[i] : uni__axis_from(&e->axis, numbers[i]);
        e->rows[i] = &e->seen[i];
    }
    e->parzen = uni__parzen_new(&e->axis, 1, e->rows, count);
    assert_non_null(e->parzen);
}

static void end(estimate *e)
{
    uni__parzen_free(e->parzen);
    uni_value_free(e->mark);
}

static double density(const estimate *e, double x)
{
    return exp(uni__parzen_log(e->parzen, &x));
}

static void near(double value, double expected, double slack)
{
    if (!(fabs(value - expected) <= slack))
        fail_msg("%.9g, expected %.9g", value, expected);
}

/* The integral over the units of the kernels, by the midpoint rule. */
static double integral(const estimate *e, double low, double high)
{
    const int steps = 200000;
    double sum = 0, width = (high - low) / steps;
    for (int i = 0; i < steps; i++)
        sum += density(e, low + (i + 0.5) * width) * width;
    return sum;
}

static void numbers_integrate_to_one(void **state)
{
    estimate e;
    begin(&e, "{\"$uniform\": [2, 6]}", 3, (const double[]){ 2, 3, 5.5 });
    near(integral(&e, 2, 6), 1, 1e-4);
    end(&e);
    begin(&e, "{\"$uniform\": [-7, -6]}", 0, NULL);
    near(integral(&e, -7, -6), 1, 1e-4);
    end(&e);
    begin(&e, "{\"$loguniform\": [0.001, 10]}", 3, (const double[]){ 0.001, 0.01, 10 });
    near(integral(&e, log(0.001), log(10)), 1, 1e-4);
    end(&e);
    begin(&e, "{\"$normal\": [5, 2]}", 2, (const double[]){ 4, 9 });
    near(integral(&e, 5 - 5 * 2, 5 + 5 * 2), 1, 1e-4); /* five deviations to each side */
    end(&e);
}

static void steps_sum_to_one(void **state)
{
    estimate e;
    double sum = 0;
    begin(&e, "{\"$randint\": [3, 12]}", 3, (const double[]){ 3, 4, 11 });
    for (int i = 3; i < 12; i++)
        sum += density(&e, uni__axis_from(&e.axis, i));
    near(sum, 1, 1e-6);
    end(&e);
    begin(&e, "{\"$lograndint\": [1, 200]}", 2, (const double[]){ 1, 64 });
    sum = 0;
    for (int i = 1; i < 200; i++)
        sum += density(&e, uni__axis_from(&e.axis, i));
    near(sum, 1, 1e-6);
    end(&e);
    begin(&e, "{\"$quniform\": [0, 1, 0.25]}", 2, (const double[]){ 0.25, 0.5 });
    sum = 0;
    for (int i = 0; i <= 4; i++)
        sum += density(&e, uni__axis_from(&e.axis, i * 0.25));
    near(sum, 1, 1e-6);
    end(&e);
}

static void choices_sum_to_one(void **state)
{
    estimate e;
    begin(&e, "{\"$choice\": [\"a\", \"b\", \"c\"]}", 4, (const double[]){ 1, 1, 1, 2 });
    near(density(&e, 0) + density(&e, 1) + density(&e, 2), 1, 1e-9);
    assert_true(density(&e, 1) > density(&e, 2) && density(&e, 2) > density(&e, 0));
    assert_true(density(&e, 0) > 0); /* never impossible */
    end(&e);
}

static void high_where_trials_were(void **state)
{
    estimate e;
    begin(&e, "{\"$uniform\": [0, 1]}", 4, (const double[]){ 0.2, 0.21, 0.22, 0.23 });
    assert_true(density(&e, 0.215) > 4 * density(&e, 0.8));
    near(density(&e, 0.1), density(&e, 0.33), 0.5); /* falls off alike on both sides */
    end(&e);
}

/* The share of draws in each tenth of the domain is the mass that the density has there. */
static void draws_follow_the_density(void **state)
{
    static const char *const marks[] = { "{\"$uniform\": [2, 12]}", "{\"$loguniform\": [1, 100]}" };
    for (int which = 0; which < 2; which++) {
        estimate e;
        begin(&e, marks[which], 4, (const double[]){ 2.5, 3, 3.25, 9 });
        uni__dice dice = { .seed = 5, .stream = 1 };
        const int draws = 20000;
        int counts[10] = { 0 };
        double low = e.axis.low, width = (e.axis.high - low) / 10;
        for (int i = 0; i < draws; i++) {
            double x;
            uni__parzen_draw(e.parzen, &dice, &x);
            assert_true(x >= e.axis.low && x <= e.axis.high);
            int place = (int)((x - low) / width);
            counts[place < 10 ? place : 9]++;
        }
        for (int i = 0; i < 10; i++)
            near((double)counts[i] / draws, integral(&e, low + i * width, low + (i + 1) * width),
                 0.02);
        end(&e);
    }
}

static void units_and_back(void **state)
{
    static const char *const marks[] = { "{\"$uniform\": [2, 6]}", "{\"$loguniform\": [2, 6]}",
                                         "{\"$randint\": [2, 7]}", "{\"$normal\": [2, 6]}" };
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        estimate e;
        begin(&e, marks[i], 0, NULL);
        for (int number = 2; number <= 6; number++)
            near(uni__axis_to(&e.axis, uni__axis_from(&e.axis, number)), number, 1e-9);
        end(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_integrate_to_one), cmocka_unit_test(steps_sum_to_one),
        cmocka_unit_test(choices_sum_to_one),       cmocka_unit_test(high_where_trials_were),
        cmocka_unit_test(draws_follow_the_density), cmocka_unit_test(units_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
