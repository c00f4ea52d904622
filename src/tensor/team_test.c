/* team_test.c - jobs, barriers, sums, and members that fail or leave: no other member may wait for
 * them forever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "tensor/team.h"

enum { MEMBERS = 3, ROUNDS = 200, COUNT = 5, RUNS = 20000 };

typedef struct trial {
    uni__team *team;
    int round;
    int counter[MEMBERS], seen[MEMBERS];
    float values[MEMBERS][COUNT];
    int status[MEMBERS];
    uni_error error[MEMBERS];
} trial;

static void count_up(void *context, int member)
{
    trial *t = context;
    t->counter[member]++;
    t->status[member] = uni__team_meet(t->team, member, &t->error[member]);
    t->seen[member] = 0;
    for (int i = 0; i < MEMBERS; i++)
        t->seen[member] += t->counter[i];
    (void)uni__team_barrier(t->team, member); /* all have looked */
}

static void meetings(void **state)
{
    trial t = { 0 };
    assert_int_equal(uni__team_new(&t.team, MEMBERS, NULL), 0);
    for (int round = 1; round <= ROUNDS; round++) {
        uni__team_run(t.team, count_up, &t);
        for (int i = 0; i < MEMBERS; i++) {
            assert_int_equal(t.status[i], 0);
            assert_int_equal(t.seen[i], MEMBERS * round);
        }
    }
    uni__team_free(t.team);
}

static void meet_and_go(void *context, int member)
{
    trial *t = context;
    if (uni__team_meet(t->team, member, &t->error[member]) < 0)
        t->status[member] = UNI_ECANCELED;
}

/* The next run begins while a member of the previous one is still leaving. */
static void runs_without_a_pause(void **state)
{
    for (int members = 2; members <= MEMBERS; members++) {
        trial t = { 0 };
        assert_int_equal(uni__team_new(&t.team, members, NULL), 0);
        for (int run = 0; run < RUNS; run++)
            uni__team_run(t.team, meet_and_go, &t);
        for (int i = 0; i < members; i++)
            assert_int_equal(t.status[i], 0);
        uni__team_free(t.team);
    }
}

static int add_outside(void *context, float *values, size_t count, uni_error *err)
{
    for (size_t i = 0; i < count; i++)
        values[i] += 1000;
    return context ? uni_error_set(err, UNI_EPEER, "the other process is gone") : 0;
}

static void add_up(void *context, int member)
{
    trial *t = context;
    const uni_sync outside = { t->round == 2 ? t : NULL, add_outside };
    for (int i = 0; i < COUNT; i++)
        t->values[member][i] = (float)(member * 10 + i);
    t->status[member] = uni__team_sum(t->team, member, t->values[member], COUNT,
                                      t->round > 0 ? &outside : NULL, &t->error[member]);
}

static void sums(void **state)
{
    trial t = { 0 };
    assert_int_equal(uni__team_new(&t.team, MEMBERS, NULL), 0);
    for (t.round = 0; t.round < 2; t.round++) {
        uni__team_run(t.team, add_up, &t);
        for (int member = 0; member < MEMBERS; member++)
            for (int i = 0; i < COUNT; i++)
                assert_float_equal(t.values[member][i], 30 + MEMBERS * i + 1000 * t.round, 0);
    }
    uni__team_run(t.team, add_up, &t);
    for (int member = 0; member < MEMBERS; member++) {
        assert_int_equal(t.status[member], UNI_EPEER);
        assert_non_null(strstr(t.error[member].message, "is gone"));
    }
    uni__team_free(t.team);
}

/* One member leaves without reaching the barrier that the others wait in. */
static void leave_early(void *context, int member)
{
    trial *t = context;
    t->status[member] = member == t->round % MEMBERS && t->round < 2 * MEMBERS
                            ? 0
                            : uni__team_meet(t->team, member, &t->error[member]);
    if (member == t->round % MEMBERS && t->round >= MEMBERS && t->round < 2 * MEMBERS)
        uni__team_abort(t->team);
}

static void members_that_do_not_come(void **state)
{
    trial t = { 0 };
    assert_int_equal(uni__team_new(&t.team, MEMBERS, NULL), 0);
    for (t.round = 0; t.round <= 2 * MEMBERS; t.round++) { /* leaves, aborts, and comes back */
        uni__team_run(t.team, leave_early, &t);
        for (int member = 0; member < MEMBERS; member++) {
            bool waits = t.round < 2 * MEMBERS && member != t.round % MEMBERS;
            assert_int_equal(t.status[member], waits ? UNI_ECANCELED : 0);
            if (waits && t.round < MEMBERS)
                assert_non_null(strstr(t.error[member].message, "without this one"));
        }
    }
    uni__team_free(t.team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meetings),
        cmocka_unit_test(runs_without_a_pause),
        cmocka_unit_test(sums),
        cmocka_unit_test(members_that_do_not_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
