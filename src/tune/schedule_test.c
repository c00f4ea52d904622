/*
 * schedule_test.c - each scheduler's decisions, report by report, against the published rules.
 *
 * Expected values are worked out by hand from the papers and from numpy's percentile (linear
 * interpolation), which Ray's ASHA uses; nothing here calls the scheduler's own formulas.
 */
#include "tune/testing.h"

#include "tune/schedule.h"

typedef struct bench {
    uni_value *options;
    uni__scheduler scheduler;
    const uni_value *configs[16];
    const bool *saved;
    bool others_wait;
} bench;

static int try_begin(bench *b, const char *options, uni_error *err)
{
    *b = (bench){ .options = json(options) };
    return uni__scheduler_new(
        &b->scheduler,
        &(uni__schedule_setting){ .options = b->options, .metric = "score", .sign = 1, .seed = 5 },
        err);
}

static void begin(bench *b, const char *options, int trials)
{
    uni_error err = { 0 };
    if (try_begin(b, options, &err) < 0)
        fail_msg("%s: %s", options, err.message);
    for (int i = 0; i < trials; i++)
        assert_int_equal(b->scheduler.methods->added(b->scheduler.self, i, &err), 0);
}

static void end(bench *b)
{
    uni__scheduler_clear(&b->scheduler);
    assert_null(b->scheduler.self);
    uni_value_free(b->options);
}

static uni__decision decide(bench *b, int64_t trial, int64_t iteration, double value)
{
    uni_error err = { 0 };
    uni__decision out = { .donor = -1 };
    uni__schedule_report report = { .trial = trial,
                                    .iteration = iteration,
                                    .time = (double)iteration,
                                    .value = value,
                                    .config = b->configs[trial],
                                    .configs = b->configs[0] ? b->configs : NULL,
                                    .saved = b->saved,
                                    .others_wait = b->others_wait };
    if (b->scheduler.methods->report(b->scheduler.self, &report, &out, &err) < 0)
        fail_msg("trial %d: %s", (int)trial, err.message);
    return out;
}

static uni__verdict says(bench *b, int64_t trial, int64_t iteration, double value)
{
    uni__decision out = decide(b, trial, iteration, value);
    uni_value_free(out.config);
    return out.verdict;
}

static void forget(bench *b, int64_t trial, int64_t iteration)
{
    b->scheduler.methods->forget(b->scheduler.self, trial, iteration);
}

/* The next thing to do with a paused trial, as "3+" (it goes on) or "3-" (it ends); "" for none. */
static const char *next_act(bench *b)
{
    static char text[16];
    int64_t trial = -1;
    bool resume = false;
    text[0] = '\0';
    if (b->scheduler.methods->act(b->scheduler.self, &trial, &resume)) {
        text[0] = (char)('0' + trial);
        text[1] = resume ? '+' : '-';
        text[2] = '\0';
    }
    return text;
}

/* ---- choosing and options ---- */

static void choosing(void **state)
{
    static const char *const cases[][2] = {
        { "{\"type\": \"nonsense\"}", "no scheduler \"nonsense\"" },
        { "\"nonsense\"", "no scheduler \"nonsense\"" },
        { "{\"type\": \"fifo\", \"max_t\": 3}", "no option \"max_t\"" },
        { "{\"type\": \"asha\", \"max_t\": 3, \"grace_period\": 4}", "max_t must be a number" },
        { "{\"type\": \"asha\", \"grace_period\": 0}", "grace_period must be a number" },
        { "{\"type\": \"asha\", \"reduction_factor\": 1}", "reduction_factor must be" },
        { "{\"type\": \"asha\", \"brackets\": 0}", "brackets must be a number of at least 1" },
        { "{\"type\": \"asha\", \"max_t\": \"many\"}", "max_t must be a number" },
        { "{\"type\": \"median\", \"grace_period\": -1}", "grace_period must be" },
        { "{\"type\": \"median\", \"min_samples_required\": 0}", "min_samples_required must be" },
        { "{\"type\": \"median\", \"eval_interval\": 2}", "no option \"eval_interval\"" },
        { "{\"type\": \"hyperband\", \"max_t\": 0}", "max_t must be" },
        { "{\"type\": \"hyperband\", \"reduction_factor\": 1}", "reduction_factor must be" },
        { "{\"type\": \"hyperband\", \"brackets\": 1}", "no option \"brackets\"" },
        { "{\"type\": \"pbt\"}", "needs mutations" },
        { "{\"type\": \"pbt\", \"mutations\": {}}", "needs mutations" },
        { "{\"type\": \"pbt\", \"mutations\": {\"lr\": []}}", "a domain or a list of values" },
        { "{\"type\": \"pbt\", \"mutations\": {\"lr\": 3}}", "a domain or a list of values" },
        { "{\"type\": \"pbt\", \"mutations\": {\"lr\": {\"$uniform\": [2, 1]}}}", "above the" },
        { "{\"type\": \"pbt\", \"mutations\": {\"lr\": [1]}, \"quantile_fraction\": 0.6}",
          "must not be above 0.5" },
        { "{\"type\": \"pbt\", \"mutations\": {\"lr\": [1]}, \"perturbation_interval\": 0}",
          "perturbation_interval must be" },
        { "{\"type\": \"pbt\", \"mutations\": {\"lr\": [1]}, \"resample\": 1}",
          "no option \"resample\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b;
        uni_error err = { 0 };
        assert_int_equal(try_begin(&b, cases[i][0], &err), UNI_EINVAL);
        if (!strstr(err.message, cases[i][1]))
            fail_msg("%s gives \"%s\", not \"%s\"", cases[i][0], err.message, cases[i][1]);
        assert_null(b.scheduler.methods);
        end(&b);
    }
}

static void needs_a_metric(void **state)
{
    static const char *const types[] = { "asha", "async_hyperband", "median", "hyperband", "pbt" };
    uni_error err = { 0 };
    uni__scheduler out;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        uni_value *type = uni_value_string(types[i]);
        uni__schedule_setting setting = { .options = type, .metric = "loss" };
        assert_int_equal(uni__scheduler_new(&out, &setting, &err), UNI_EINVAL);
        assert_non_null(strstr(err.message, "needs a metric and a mode"));
        setting = (uni__schedule_setting){ .options = type, .sign = 1 };
        assert_int_equal(uni__scheduler_new(&out, &setting, &err), UNI_EINVAL);
        uni_value_free(type);
    }
    assert_int_equal(uni__scheduler_new(&out, &(uni__schedule_setting){ 0 }, &err), 0);
    assert_string_equal(out.methods->name, "fifo");
    assert_false(out.methods->decides);
    assert_string_equal(out.time_attr, "training_iteration");
    uni__scheduler_clear(&out);
}

static void fifo_lets_all_go_on(void **state)
{
    bench b;
    begin(&b, "{\"type\": \"fifo\", \"time_attr\": \"epoch\"}", 2);
    assert_string_equal(b.scheduler.time_attr, "epoch");
    for (int i = 1; i <= 1000; i++)
        assert_int_equal(says(&b, i % 2, i, -i), UNI__GO_ON);
    end(&b);
}

/* ---- ASHA ---- */

#define ASHA "{\"type\": \"asha\", \"grace_period\": 1, \"max_t\": 9, \"reduction_factor\": 3}"

/* Rungs at 1, 3 and 9. At each the bar is numpy.percentile(earlier, 66.67). */
static void asha_halves(void **state)
{
    bench b;
    begin(&b, ASHA, 8);
    assert_int_equal(says(&b, 0, 1, 0.1), UNI__GO_ON); /* the first has no one to lose to */
    assert_int_equal(says(&b, 1, 1, 0.4), UNI__GO_ON); /* bar 0.1 */
    assert_int_equal(says(&b, 2, 1, 0.29), UNI__END); /* bar 0.1 + 2/3 * 0.3 = 0.3 */
    assert_int_equal(says(&b, 3, 1, 0.4), UNI__GO_ON); /* of 0.1 0.29 0.4: 0.29 + 1/3 * 0.11 */
    assert_int_equal(says(&b, 4, 1, 0.4), UNI__GO_ON); /* equal to the bar is not below it */
    assert_int_equal(says(&b, 5, 1, 0.39), UNI__END);
    /* Between rungs no trial is judged. */
    assert_int_equal(says(&b, 0, 2, -100), UNI__GO_ON);
    assert_int_equal(says(&b, 0, 3, 0.5), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 3, 0.49), UNI__END);
    /* A trial is judged once a rung. */
    assert_int_equal(says(&b, 0, 4, -100), UNI__GO_ON);
    assert_int_equal(says(&b, 0, 8, -100), UNI__GO_ON);
    assert_int_equal(says(&b, 0, 9, 100), UNI__END); /* max_t */
    end(&b);
}

/* A trial that reports rarely is judged at the highest rung that it has passed. */
static void asha_skips_rungs(void **state)
{
    bench b;
    begin(&b, ASHA, 4);
    assert_int_equal(says(&b, 0, 4, 0.9), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 1, 0.1), UNI__GO_ON); /* rung 1 is still empty */
    assert_int_equal(says(&b, 2, 5, 0.8), UNI__END); /* rung 3 has 0.9 */
    end(&b);
}

static void asha_diverged(void **state)
{
    bench b;
    begin(&b, ASHA, 6);
    assert_int_equal(says(&b, 0, 1, -INFINITY), UNI__GO_ON); /* alone */
    assert_int_equal(says(&b, 1, 1, -INFINITY), UNI__GO_ON); /* not below -inf */
    assert_int_equal(says(&b, 2, 1, 0.5), UNI__GO_ON);
    assert_int_equal(says(&b, 3, 1, 0.4), UNI__GO_ON); /* place 4/3 of -inf -inf 0.5: -inf */
    assert_int_equal(says(&b, 4, 1, -INFINITY), UNI__END);
    end(&b);
}

static void asha_forgets_what_is_taken_back(void **state)
{
    bench b;
    begin(&b, ASHA, 4);
    assert_int_equal(says(&b, 0, 1, 0.2), UNI__GO_ON);
    assert_int_equal(says(&b, 0, 3, 0.9), UNI__GO_ON);
    forget(&b, 0, 2); /* it goes on from iteration 2: rung 3 is open again, rung 1 stays */
    assert_int_equal(says(&b, 1, 1, 0.19), UNI__END);
    assert_int_equal(says(&b, 1, 3, 0.5), UNI__GO_ON);
    assert_int_equal(says(&b, 0, 3, 0.4), UNI__END);
    forget(&b, 1, 0);
    forget(&b, 0, 0);
    assert_int_equal(says(&b, 2, 1, -5), UNI__GO_ON); /* rung 1 is empty again */
    end(&b);
}

/* With two brackets odd trials have rungs at 3 and 9 only, and are compared among themselves. */
static void asha_brackets(void **state)
{
    bench b;
    begin(&b,
          "{\"type\": \"asha\", \"grace_period\": 1, \"max_t\": 9, \"reduction_factor\": 3, "
          "\"brackets\": 2}",
          6);
    assert_int_equal(says(&b, 0, 1, 0.9), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 1, 0.1), UNI__GO_ON); /* no rung at 1 in its bracket */
    assert_int_equal(says(&b, 2, 1, 0.1), UNI__END);
    assert_int_equal(says(&b, 0, 3, 0.9), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 3, 0.1), UNI__GO_ON); /* the first there in its bracket */
    assert_int_equal(says(&b, 3, 3, 0.05), UNI__END);
    end(&b);
}

/* ---- median stopping ---- */

static void median_rule(void **state)
{
    bench b;
    begin(&b, "{\"type\": \"median\", \"grace_period\": 2, \"min_samples_required\": 3}", 6);
    /* Running means from iteration 2 on: 3, 5, 7, so at 3: (3+5)/2, (5+7)/2, (7+9)/2. */
    static const double values[3][3] = { { 100, 3, 5 }, { 100, 5, 7 }, { 100, 7, 9 } };
    for (int trial = 0; trial < 3; trial++)
        for (int i = 0; i < 3; i++)
            assert_int_equal(says(&b, trial, i + 1, values[trial][i]), UNI__GO_ON);
    assert_int_equal(says(&b, 3, 1, -100), UNI__GO_ON); /* in the grace period */
    assert_int_equal(says(&b, 3, 2, 5), UNI__GO_ON); /* the median of 3 5 7, not below */
    assert_int_equal(says(&b, 3, 3, 4), UNI__END); /* its best, 5, is below 6 of 4 6 8 */
    assert_int_equal(says(&b, 4, 2, 4.9), UNI__END); /* at 2 they have 3 5 7 5: median 5 */
    assert_int_equal(says(&b, 5, 2, 5), UNI__GO_ON);
    end(&b);
}

static void median_needs_others(void **state)
{
    bench b;
    begin(&b, "{\"type\": \"median\", \"grace_period\": 0, \"min_samples_required\": 3}", 5);
    assert_int_equal(says(&b, 0, 1, 5), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 1, 6), UNI__GO_ON);
    assert_int_equal(says(&b, 2, 1, -9), UNI__GO_ON); /* two others only */
    assert_int_equal(says(&b, 3, 1, 4.9), UNI__END); /* median of -9 5 6 */
    /* A diverged trial does not count: 5 and 6, with trial 3's 4.9, are three. */
    forget(&b, 2, 0);
    assert_int_equal(says(&b, 2, 1, -INFINITY), UNI__END);
    assert_int_equal(says(&b, 4, 1, 5), UNI__GO_ON); /* median of 4.9 5 6 */
    end(&b);
}

static void median_of_an_even_number(void **state)
{
    bench b;
    begin(&b, "{\"type\": \"median\", \"grace_period\": 0, \"min_samples_required\": 2}", 4);
    assert_int_equal(says(&b, 0, 1, 1), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 1, 2), UNI__GO_ON);
    assert_int_equal(says(&b, 2, 1, 1.5), UNI__GO_ON); /* equal to (1 + 2) / 2 */
    assert_int_equal(says(&b, 3, 1, 1.4), UNI__END);
    end(&b);
}

/* A trial that has not got that far is not compared with. */
static void median_at_the_same_time(void **state)
{
    bench b;
    begin(&b, "{\"type\": \"median\", \"grace_period\": 0, \"min_samples_required\": 1}", 3);
    assert_int_equal(says(&b, 0, 1, 10), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 2, 1), UNI__GO_ON); /* trial 0 is at 1 */
    assert_int_equal(says(&b, 0, 2, 10), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 3, 2), UNI__GO_ON);
    assert_int_equal(says(&b, 0, 4, 10), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 4, 3), UNI__END);
    forget(&b, 0, 1);
    forget(&b, 1, 3);
    assert_int_equal(says(&b, 1, 4, 3), UNI__GO_ON); /* trial 0 was set back to 1 */
    end(&b);
}

/* ---- HyperBand ---- */

/* max_t 9, eta 3: bracket 2 has 9 trials at 1, bracket 1 has 5 at 3, bracket 0 has 3 at 9. */
#define HYPERBAND "{\"type\": \"hyperband\", \"max_t\": 9, \"reduction_factor\": 3}"

static void hyperband_halves(void **state)
{
    bench b;
    begin(&b, HYPERBAND, 9);
    for (int i = 0; i < 9; i++) {
        assert_string_equal(next_act(&b), "");
        assert_int_equal(says(&b, i, 1, i % 5), UNI__PAUSE);
    }
    /* Scores 0 1 2 3 4 0 1 2 3: the best three are 4 (4), 3 (3), 8 (3). */
    static const char *const first[] = { "4+", "3+", "8+", "2-", "7-", "1-", "6-", "0-", "5-", "" };
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        assert_string_equal(next_act(&b), first[i]);
    assert_int_equal(says(&b, 4, 2, 0), UNI__GO_ON);
    assert_int_equal(says(&b, 4, 3, 0), UNI__PAUSE);
    assert_int_equal(says(&b, 3, 3, 1), UNI__PAUSE);
    assert_string_equal(next_act(&b), "");
    assert_int_equal(says(&b, 8, 4, 0.5), UNI__PAUSE); /* past its mark */
    static const char *const second[] = { "3+", "8-", "4-", "" };
    for (size_t i = 0; i < sizeof second / sizeof second[0]; i++)
        assert_string_equal(next_act(&b), second[i]);
    assert_int_equal(says(&b, 3, 8, 0), UNI__GO_ON);
    assert_int_equal(says(&b, 3, 9, 0), UNI__END);
    end(&b);
}

static void hyperband_next_bracket(void **state)
{
    bench b;
    begin(&b, HYPERBAND, 15);
    for (int i = 9; i < 14; i++) { /* the second bracket goes to 3 at once */
        assert_int_equal(says(&b, i, 2, 0), UNI__GO_ON);
        assert_string_equal(next_act(&b), "");
        assert_int_equal(says(&b, i, 3, i), UNI__PAUSE);
    }
    assert_string_equal(next_act(&b), "=+"); /* 13, the best of five; one third of 5 is 1 */
    assert_string_equal(next_act(&b), "<-");
    assert_int_equal(says(&b, 14, 8, 0), UNI__GO_ON); /* the third does not halve */
    assert_int_equal(says(&b, 14, 9, 0), UNI__END);
    end(&b);
}

/* A bracket that is not full waits for more trials, until it is said that none will come. */
static void hyperband_not_full(void **state)
{
    bench b;
    begin(&b, HYPERBAND, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(says(&b, i, 1, -i), UNI__PAUSE);
    assert_string_equal(next_act(&b), "");
    b.scheduler.methods->complete(b.scheduler.self);
    static const char *const acts[] = { "0+", "1-", "2-", "3-", "" };
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        assert_string_equal(next_act(&b), acts[i]);
    end(&b);
}

/* One that fails or is taken back does not hold up, or hurry, the others. */
static void hyperband_losses(void **state)
{
    bench b;
    begin(&b, HYPERBAND, 3);
    b.scheduler.methods->complete(b.scheduler.self);
    assert_int_equal(says(&b, 0, 1, 1), UNI__PAUSE);
    assert_int_equal(says(&b, 1, 1, 2), UNI__PAUSE);
    forget(&b, 1, 0); /* it repeats iteration 1 */
    b.scheduler.methods->ended(b.scheduler.self, 2);
    assert_string_equal(next_act(&b), "");
    assert_int_equal(says(&b, 1, 1, 0), UNI__PAUSE);
    assert_string_equal(next_act(&b), "0+");
    assert_string_equal(next_act(&b), "1-");
    assert_string_equal(next_act(&b), "");
    end(&b);
}

/* ---- population based training ---- */

static void pbt_begin(bench *b, const char *options, int trials)
{
    static const char text[] = "{\"lr\": %d, \"units\": %d, \"kept\": \"t%d\"}";
    begin(b, options, trials);
    for (int i = 0; i < trials; i++) {
        char config[100];
        snprintf(config, sizeof config, text, 100 * (i + 1), 10 * (i + 1), i);
        b->configs[i] = json(config);
    }
}

static void pbt_end(bench *b)
{
    for (int i = 0; b->configs[i]; i++)
        uni_value_free((uni_value *)(uintptr_t)b->configs[i]);
    end(b);
}

#define PBT_OPTIONS(more)                                                                          \
    "{\"type\": \"pbt\", \"perturbation_interval\": 2, \"mutations\": {\"lr\": {\"$uniform\": "    \
    "[1, 1000]}, \"units\": {\"$randint\": [1, 999]}}" more "}"

/* Of four trials one quarter is one: the lowest takes over from the highest, no other does. */
static void pbt_exploits(void **state)
{
    bench b;
    pbt_begin(&b, PBT_OPTIONS(", \"resample_probability\": 0"), 4);
    assert_int_equal(says(&b, 0, 1, -100), UNI__GO_ON); /* not yet an interval */
    assert_int_equal(says(&b, 0, 2, 1), UNI__GO_ON); /* alone */
    assert_int_equal(says(&b, 1, 2, 2), UNI__GO_ON);
    assert_int_equal(says(&b, 2, 2, 3), UNI__GO_ON);
    uni__decision got = decide(&b, 3, 2, 0);
    assert_int_equal(got.verdict, UNI__EXPLOIT);
    assert_int_equal(got.donor, 2);
    /* Without resampling every number is 0.8 or 1.2 times the donor's; the rest is the donor's. */
    double lr = uni_dict_get_float(got.config, "lr", 0);
    int64_t units = uni_dict_get_int(got.config, "units", 0);
    assert_true(fabs(lr - 240) < 1e-9 || fabs(lr - 360) < 1e-9);
    assert_true(units == 24 || units == 36);
    assert_string_equal(uni_dict_get_string(got.config, "kept", ""), "t2");
    uni_value_free(got.config);
    /* The same question has the same answer: chance is keyed. */
    bench again;
    pbt_begin(&again, PBT_OPTIONS(", \"resample_probability\": 0"), 4);
    for (int i = 0; i < 3; i++)
        (void)says(&again, i, 2, i + 1);
    got = decide(&again, 3, 2, 0);
    assert_true(uni_dict_get_float(got.config, "lr", 0) == lr);
    assert_true(uni_dict_get_int(got.config, "units", 0) == units);
    uni_value_free(got.config);
    pbt_end(&again);
    pbt_end(&b);
}

/* Without a checkpoint nothing is taken over and nothing is paused: both would begin again at the
 * start, again and again. */
static void pbt_needs_checkpoints(void **state)
{
    bench b;
    static const bool none[4] = { false }, some[4] = { false, false, true, false };
    pbt_begin(&b, PBT_OPTIONS(", \"resample_probability\": 0"), 4);
    for (int i = 0; i < 3; i++)
        (void)says(&b, i, 2, i + 1);
    b.saved = none;
    uni__decision got = decide(&b, 3, 2, 0);
    assert_int_equal(got.verdict, UNI__GO_ON);
    assert_true(got.lacks_checkpoint && got.lacking == 2 && !got.config);
    b.others_wait = true;
    got = decide(&b, 2, 4, 9);
    assert_int_equal(got.verdict, UNI__GO_ON);
    assert_true(got.lacks_checkpoint && got.lacking == 2);
    b.saved = some;
    assert_int_equal(says(&b, 2, 6, 9), UNI__PAUSE);
    assert_int_equal(says(&b, 3, 4, 0), UNI__EXPLOIT);
    pbt_end(&b);
}

/* Over many iterations both factors come, about as often; resampled ones lie in the domain. */
static void pbt_mutations(void **state)
{
    bench b;
    int up = 0, anew = 0;
    pbt_begin(&b, PBT_OPTIONS(", \"resample_probability\": 0.25"), 2);
    for (int i = 1; i <= 400; i++) {
        assert_int_equal(says(&b, 1, 2 * i, 1), UNI__GO_ON);
        uni__decision got = decide(&b, 0, 2 * i, 0);
        assert_int_equal(got.verdict, UNI__EXPLOIT);
        double lr = uni_dict_get_float(got.config, "lr", 0);
        assert_true(lr >= 1 && lr <= 1000);
        bool factor = fabs(lr - 160) < 1e-9 || fabs(lr - 240) < 1e-9;
        up += fabs(lr - 240) < 1e-9;
        anew += !factor;
        uni_value_free(got.config);
    }
    assert_in_range(anew, 70, 130); /* 100 expected, deviation 8.7 */
    assert_in_range(up, 110, 190); /* 150 expected, deviation 9.7 */
    pbt_end(&b);
}

/* Values of a list move to a neighbour and stop at the ends. */
static void pbt_lists(void **state)
{
    static const struct {
        int now;
        int may[2];
    } cases[] = { { 1, { 1, 2 } }, { 2, { 1, 4 } }, { 4, { 2, 4 } } };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        bench b;
        int seen[2] = { 0 };
        char config[40];
        begin(&b,
              "{\"type\": \"pbt\", \"perturbation_interval\": 1, \"resample_probability\": 0, "
              "\"hyperparam_mutations\": {\"size\": [1, 2, 4]}}",
              2);
        snprintf(config, sizeof config, "{\"size\": %d}", cases[c].now);
        b.configs[0] = b.configs[1] = json(config);
        for (int i = 1; i <= 50; i++) {
            assert_int_equal(says(&b, 1, i, 1), UNI__GO_ON);
            uni__decision got = decide(&b, 0, i, 0);
            int64_t size = uni_dict_get_int(got.config, "size", 0);
            assert_true(size == cases[c].may[0] || size == cases[c].may[1]);
            seen[size == cases[c].may[1]]++;
            uni_value_free(got.config);
        }
        assert_true(seen[0] > 10 && seen[1] > 10);
        uni_value_free((uni_value *)(uintptr_t)b.configs[0]);
        end(&b);
    }
}

/* With more trials than places each makes room at its interval, and comes back in turn. */
static void pbt_makes_room(void **state)
{
    bench b;
    pbt_begin(&b, PBT_OPTIONS(""), 3);
    b.others_wait = true;
    assert_int_equal(says(&b, 2, 1, 5), UNI__GO_ON);
    assert_int_equal(says(&b, 2, 2, 5), UNI__PAUSE);
    assert_int_equal(says(&b, 0, 2, 6), UNI__PAUSE);
    assert_string_equal(next_act(&b), "0+");
    assert_string_equal(next_act(&b), "2+");
    assert_string_equal(next_act(&b), "");
    assert_int_equal(says(&b, 2, 3, 5), UNI__GO_ON); /* one after its last interval */
    assert_int_equal(says(&b, 2, 4, 6), UNI__PAUSE);
    b.scheduler.methods->ended(b.scheduler.self, 2);
    assert_string_equal(next_act(&b), ""); /* it has ended and does not come back */
    pbt_end(&b);
}

/* A trial that was set back is judged again at the same iteration. */
static void pbt_forgets(void **state)
{
    bench b;
    pbt_begin(&b, PBT_OPTIONS(""), 2);
    assert_int_equal(says(&b, 1, 2, 1), UNI__GO_ON);
    assert_int_equal(says(&b, 1, 4, 1), UNI__GO_ON);
    assert_int_equal(says(&b, 0, 2, 0), UNI__EXPLOIT);
    assert_int_equal(says(&b, 0, 4, 0), UNI__EXPLOIT);
    assert_int_equal(says(&b, 0, 5, 0), UNI__GO_ON);
    forget(&b, 0, 3);
    assert_int_equal(says(&b, 0, 3, 0), UNI__GO_ON); /* it was last compared at 2 */
    assert_int_equal(says(&b, 0, 4, 0), UNI__EXPLOIT);
    forget(&b, 0, 9); /* nothing is newer than that */
    assert_int_equal(says(&b, 0, 5, 0), UNI__GO_ON);
    pbt_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choosing),
        cmocka_unit_test(needs_a_metric),
        cmocka_unit_test(fifo_lets_all_go_on),
        cmocka_unit_test(asha_halves),
        cmocka_unit_test(asha_skips_rungs),
        cmocka_unit_test(asha_diverged),
        cmocka_unit_test(asha_forgets_what_is_taken_back),
        cmocka_unit_test(asha_brackets),
        cmocka_unit_test(median_rule),
        cmocka_unit_test(median_needs_others),
        cmocka_unit_test(median_of_an_even_number),
        cmocka_unit_test(median_at_the_same_time),
        cmocka_unit_test(hyperband_halves),
        cmocka_unit_test(hyperband_next_bracket),
        cmocka_unit_test(hyperband_not_full),
        cmocka_unit_test(hyperband_losses),
        cmocka_unit_test(pbt_exploits),
        cmocka_unit_test(pbt_needs_checkpoints),
        cmocka_unit_test(pbt_mutations),
        cmocka_unit_test(pbt_lists),
        cmocka_unit_test(pbt_makes_room),
        cmocka_unit_test(pbt_forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
