/* retention_test.c - the policy's decisions as tables: what users see kept after a series of
 * saves. */
#include <math.h>
#include "checkpoint/shared.h"
#include "checkpoint/retention.h"
#include "checkpoint/test_helpers.h"

typedef struct table_case {
    const char *name;
    uni_checkpoint_policy policy;
    double scores[8];
    size_t count;
    const char *kept; /* numbers, oldest first */
    int best, resume; /* numbers; -1: none */
    bool resume_aside; /* the newest is in recovery */
} table_case;

#define LOSS(order, n)                                                                             \
    {                                                                                              \
        .num_to_keep = (n), .score_attribute = "loss", .score_order = UNI_SCORE_##order            \
    }

static const table_case cases[] = {
    { "seed 003", LOSS(MIN, 2), { 2, 4, 1, 3 }, 4, "1 3", 3, 4, true },
    { "the saved NaN test", LOSS(MIN, 2), { NAN, 3, 7, 5 }, 4, "2 4", 2, 4, false },
    { "NaN is worst for max too", LOSS(MAX, 2), { NAN, 3, 7, NAN }, 4, "2 3", 3, 4, true },
    { "only NaN: the earliest", LOSS(MIN, 1), { NAN, NAN, NAN }, 3, "1", 1, 3, true },
    { "infinity beats NaN", LOSS(MIN, 1), { NAN, INFINITY }, 2, "2", 2, 2, false },
    { "a worst infinity", LOSS(MAX, 1), { NAN, -INFINITY }, 2, "2", 2, 2, false },
    { "ties keep the earlier", LOSS(MIN, 2), { 1, 1, 1, 1 }, 4, "1 2", 1, 4, true },
    { "a tie with the worst is not written", LOSS(MIN, 2), { 1, 5, 5 }, 3, "1 2", 1, 3, true },
    { "of two worst the later goes", LOSS(MIN, 2), { 5, 5, 1 }, 3, "1 3", 3, 3, false },
    { "max", LOSS(MAX, 2), { 0.1, 0.9, 0.5, 0.7 }, 4, "2 4", 2, 4, false },
    { "fill", LOSS(MIN, 5), { 3, 2, 9 }, 3, "1 2 3", 2, 3, false },
    { "keep all has a best", LOSS(MAX, UNI_KEEP_ALL), { 1, 3, 3, 2 }, 4, "1 2 3 4", 2, 4, false },
    { "keep all by time", { 0 }, { 1, 1, 1 }, 3, "1 2 3", 3, 3, false },
    { "keep 2 by time", { .num_to_keep = 2 }, { 1, 1, 1, 1 }, 4, "3 4", 4, 4, false },
    { "Ray's name of the time",
      { .num_to_keep = 1, .score_attribute = "_timestamp" },
      { 1, 1 },
      2,
      "2",
      2,
      2,
      false },
    { "the oldest by time",
      { .num_to_keep = 1, .score_order = UNI_SCORE_MIN },
      { 1, 1 },
      2,
      "1",
      1,
      2,
      true },
};

/* Saves one after the other, as a run does, and drops what the decisions say. */
static void play(const table_case *c)
{
    uni__candidate there[8];
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++) {
        there[count++] =
            (uni__candidate){ .number = (int64_t)i + 1, .timestamp = 100, .score = c->scores[i] };
        MUST(uni__retention_decide(&c->policy, there, count, &err));
        size_t left = 0;
        for (size_t k = 0; k < count; k++)
            if (there[k].fate != UNI__FATE_DROP)
                there[left++] = there[k];
        count = left;
    }
    char kept[64] = "";
    const uni__candidate *best = NULL;
    for (size_t k = 0; k < count; k++) {
        if (there[k].fate != UNI__FATE_KEEP)
            continue;
        size_t used = strlen(kept);
        snprintf(kept + used, sizeof kept - used, "%s%d", used ? " " : "", (int)there[k].number);
        if (!best || uni__retention_better(&c->policy, &there[k], best))
            best = &there[k];
    }
    print_message("  %s\n", c->name);
    assert_string_equal(kept, c->kept);
    assert_int_equal(best ? (int)best->number : -1, c->best);
    assert_int_equal(there[count - 1].number, c->resume);
    assert_int_equal(there[count - 1].fate == UNI__FATE_RECOVERY, c->resume_aside);
}

static void test_table(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        play(&cases[i]);
}

/* A smaller policy at a resume: everything is decided at once, and at most one is kept aside. */
static void test_all_at_once(void **state)
{
    uni_checkpoint_policy policy = LOSS(MIN, 2);
    uni__candidate all[5] = {
        { 1, 1, 5, 0 }, { 2, 2, 1, 0 }, { 3, 3, NAN, 0 }, { 4, 4, 2, 0 }, { 7, 5, 9, 0 }
    };
    MUST(uni__retention_decide(&policy, all, 5, &err));
    static const uni__fate expected[5] = { UNI__FATE_DROP, UNI__FATE_KEEP, UNI__FATE_DROP,
                                           UNI__FATE_KEEP, UNI__FATE_RECOVERY };
    for (int i = 0; i < 5; i++)
        assert_int_equal(all[i].fate, expected[i]);
}

/* By time, the number decides between equal timestamps, and a clock that went back loses to a later
 * timestamp. */
static void test_time_order(void **state)
{
    uni_checkpoint_policy policy = { .num_to_keep = 1 };
    uni__candidate back[2] = { { 1, 200, NAN, 0 }, { 2, 100, NAN, 0 } };
    MUST(uni__retention_decide(&policy, back, 2, &err));
    assert_int_equal(back[0].fate, UNI__FATE_KEEP);
    assert_int_equal(back[1].fate, UNI__FATE_RECOVERY);
}

static void test_policy_errors(void **state)
{
    MUST(uni__checkpoint_policy_check(NULL, &err));
    MUST(uni__checkpoint_policy_check(&(uni_checkpoint_policy){ .num_to_keep = UNI_KEEP_NONE },
                                      &err));
    MUST_FAIL(uni__checkpoint_policy_check(&(uni_checkpoint_policy){ .num_to_keep = -2 }, &err),
              UNI_EINVAL, "-2");
    MUST_FAIL(uni__checkpoint_policy_check(
                  &(uni_checkpoint_policy){ .score_order = (uni_score_order)7 }, &err),
              UNI_EINVAL, "7");
    MUST_FAIL(uni__checkpoint_policy_check(&(uni_checkpoint_policy){ .score_attribute = "" }, &err),
              UNI_EINVAL, "empty");
}

static void test_score(void **state)
{
    uni_checkpoint_policy policy = LOSS(MIN, 2);
    double score = 0;
    bool has = false;
    uni_value *one = dict_with("loss", 1.5), *two = dict_with("loss", 2.5),
              *other = dict_with("x", 1);
    MUST(uni__retention_score(&policy, one, two, &score, &has, &err));
    assert_true(has && score == 1.5); /* the dictionary goes before the metrics */
    MUST(uni__retention_score(&policy, other, two, &score, &has, &err));
    assert_true(has && score == 2.5);
    MUST_FAIL(uni__retention_score(&policy, other, other, &score, &has, &err), UNI_EINVAL,
              "score attribute missing");
    MUST_FAIL(uni__retention_score(&policy, NULL, NULL, &score, &has, &err), UNI_EINVAL,
              "\"loss\"");
    assert_int_equal(uni_dict_take(other, "loss", uni_value_string("low")), 0);
    MUST_FAIL(uni__retention_score(&policy, other, NULL, &score, &has, &err), UNI_EINVAL,
              "not a number");
    policy.num_to_keep = UNI_KEEP_NONE; /* the score is not read then, as in Ray */
    MUST(uni__retention_score(&policy, NULL, NULL, &score, &has, &err));
    assert_false(has);

    uni_value *nested = uni_value_dict();
    assert_int_equal(uni_dict_take(nested, "eval", dict_with("loss", 7)), 0);
    uni_checkpoint_policy dotted = { .num_to_keep = 1, .score_attribute = "eval.loss" };
    MUST(uni__retention_score(&dotted, nested, NULL, &score, &has, &err));
    assert_true(has && score == 7);
    uni_value_free(nested);
    uni_value_free(one);
    uni_value_free(two);
    uni_value_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),      cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_time_order), cmocka_unit_test(test_policy_errors),
        cmocka_unit_test(test_score),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
