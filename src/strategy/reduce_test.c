/*
 * reduce_test.c - what ranks agree on and what becomes of the replicas' values: two replicas on
 * each of three ranks, which are threads here. Every rank gets the same bits; what differs is told
 * with both ranks and both numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/comm.h>
#include <unisono/losses.h>

#include "nn/shared.h"
#include "strategy/internal.h"

#define RANKS 3
#define REPLICAS 2

typedef struct member {
    uni_strategy strategy;
    uni_replica_context replicas[REPLICAS];
    uni__replica_team crew;
    double values[REPLICAS][8];
    void (*function)(struct member *me);
    pthread_t thread;
    int status;
    uni_error err;
    double out[8];
} member;

static member members[RANKS];

static void *call(void *argument)
{
    member *me = argument;
    me->function(me);
    return NULL;
}

/* On every rank at once. */
static void on_all(int ranks, void (*function)(member *me))
{
    uni_comm *comms[RANKS];
    assert_int_equal(uni_comm_open_threads(comms, ranks, NULL, NULL), 0);
    for (int r = 0; r < ranks; r++) {
        member *me = &members[r];
        memset(me, 0, sizeof *me);
        me->strategy =
            (uni_strategy){ .rank = r, .size = ranks, .replicas = REPLICAS, .comm = comms[r] };
        me->crew = (uni__replica_team){ .count = REPLICAS, .replicas = me->replicas };
        me->crew.values.crew = &me->crew;
        for (int i = 0; i < REPLICAS; i++) {
            me->replicas[i].strategy = &me->strategy;
            me->replicas[i].local = i;
            me->replicas[i].values = me->values[i];
            me->replicas[i].rows = -1; /* it returned a number */
            me->replicas[i].count = 1;
            me->values[i][0] = 1 << (r * REPLICAS + i);
        }
        me->function = function;
        assert_int_equal(pthread_create(&me->thread, NULL, call, me), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(members[r].thread, NULL);
    for (int r = 0; r < ranks; r++)
        uni_comm_close(comms[r]);
}

static void reduce(member *me, uni_replica_op op, size_t count, int axis)
{
    me->status =
        uni_strategy_reduce(me->out, count, &me->strategy, op, &me->crew.values, axis, &me->err);
}

static void sum_numbers(member *me)
{
    reduce(me, UNI_REPLICA_SUM, 1, UNI_AXIS_NONE);
}

static void mean_numbers(member *me)
{
    reduce(me, UNI_REPLICA_MEAN, 1, UNI_AXIS_NONE);
}

/* Replica i of rank r returns r + i rows of two numbers; one of them none at all. */
static void with_rows(member *me, uni_replica_op op)
{
    for (int i = 0; i < REPLICAS; i++) {
        me->replicas[i].rows = me->strategy.rank + i;
        me->replicas[i].count = 2 * (size_t)me->replicas[i].rows;
        for (size_t n = 0; n < me->replicas[i].count; n++)
            me->values[i][n] = n % 2 ? 10 : (double)n;
    }
    reduce(me, op, 2, 0);
}

static void sum_rows(member *me)
{
    with_rows(me, UNI_REPLICA_SUM);
}

static void mean_rows(member *me)
{
    with_rows(me, UNI_REPLICA_MEAN);
}

static void values_of_all_replicas(void **state)
{
    /* 1, 2, 4, 8, 16, 32 of six replicas; rows 0, 1, 1, 2, 2, 3 with 0, 2, 4 in them. */
    static const struct {
        void (*function)(member *me);
        double first, second;
    } cases[] = { { sum_numbers, 63, 0 },
                  { mean_numbers, 63.0 / 6, 0 },
                  { sum_rows, 0 + 0 + 0 + (0 + 2) + (0 + 2) + (0 + 2 + 4), 90 },
                  { mean_rows, 10.0 / 9, 10 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        on_all(RANKS, cases[i].function);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(members[r].status, 0);
            assert_true(members[r].out[0] == cases[i].first);
            assert_true(members[r].out[1] == cases[i].second);
        }
    }
}

static void one_rank_alone(void **state)
{
    on_all(1, mean_numbers);
    assert_true(members[0].out[0] == 1.5);
}

/* No rows anywhere: 0, not a division by it. */
static void nothing(member *me)
{
    for (int i = 0; i < REPLICAS; i++)
        me->replicas[i].rows = 0, me->replicas[i].count = 0;
    reduce(me, UNI_REPLICA_MEAN, 2, 0);
}

static void no_rows(void **state)
{
    on_all(RANKS, nothing);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(members[r].status, 0);
        assert_true(members[r].out[0] == 0 && members[r].out[1] == 0);
    }
}

static void wrong_axis(member *me)
{
    reduce(me, UNI_REPLICA_SUM, 1, 1);
}

static void no_values(member *me)
{
    me->status = uni_strategy_reduce(me->out, 1, &me->strategy, UNI_REPLICA_SUM, NULL, 0, &me->err);
}

static void numbers_have_no_axes(member *me)
{
    if (me->strategy.rank == 1)
        reduce(me, UNI_REPLICA_SUM, 1, 0);
    else
        sum_rows(me);
}

static void another_count(member *me)
{
    reduce(me, UNI_REPLICA_SUM, me->strategy.rank == 2 ? 3 : 1, UNI_AXIS_NONE);
}

/* The rank that is wrong says what; the others are told of it and do not wait. */
static void mistakes(void **state)
{
    static const struct {
        void (*function)(member *me);
        int rank; /* -1: all of them */
        const char *told;
    } cases[] = {
        { wrong_axis, -1, "reduce: the axis is UNI_AXIS_NONE or 0, got 1" },
        { no_values, -1, "reduce: there are no values; uni_strategy_run gives them" },
        { numbers_have_no_axes, 1, "replica 2 returned a number, which has no axes" },
        { another_count, 2, "replica 4 returned 1 numbers, but 3 were asked for" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        on_all(RANKS, cases[i].function);
        for (int r = 0; r < RANKS; r++) {
            assert_true(members[r].status < 0);
            if (cases[i].rank < 0 || cases[i].rank == r)
                assert_non_null(strstr(members[r].err.message, cases[i].told));
            else
                assert_non_null(strstr(members[r].err.message, "rank"));
        }
    }
    /* Afterwards the strategy has ended. */
    assert_true(members[2].strategy.ended.code < 0);
    assert_true(uni__check_alive(&members[2].strategy, NULL) < 0);
}

static void means_over_processes(member *me)
{
    me->out[0] = me->strategy.rank;
    me->out[1] = 4;
    me->status = uni_strategy_reduce_numbers(&me->strategy, UNI_REPLICA_MEAN, me->out, 2, &me->err);
}

static void numbers_of_processes(void **state)
{
    on_all(RANKS, means_over_processes);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(members[r].status, 0);
        assert_true(members[r].out[0] == 1 && members[r].out[1] == 4);
    }
}

/* Weighted: rank r saw r + 1 values of r. (0 + 1*2 + 2*3) / 6. */
static void merge_metric(member *me)
{
    uni_metric *metric = NULL;
    me->status = uni_metric_new(&metric, "mean", NULL, &me->err);
    if (me->status < 0)
        return;
    uni_metric_update_value(metric, me->strategy.rank, me->strategy.rank + 1);
    me->status = uni_strategy_metric_result(me->out, &me->strategy, metric, &me->err);
    me->out[1] = uni_metric_result(metric); /* its own stays */
    uni_metric_free(metric);
}

static void metrics_of_all_ranks(void **state)
{
    on_all(RANKS, merge_metric);
    for (int r = 0; r < RANKS; r++) {
        if (members[r].status < 0)
            fail_msg("%s", members[r].err.message);
        assert_true(members[r].out[0] == 8.0 / 6);
        assert_true(members[r].out[1] == r);
    }
}

/* ---- agree.c ---- */

static int64_t table[RANKS][2];
static bool hashed;

static void agree(member *me)
{
    uni__common rows[] = {
        { .what = "batches an epoch", .value = table[me->strategy.rank][0], .advice = "do this" },
        { .what = "another model",
          .value = table[me->strategy.rank][1],
          .advice = "do that",
          .is_hash = hashed },
    };
    me->status = uni__agree(&me->strategy, rows, 2, &me->err);
}

static void what_must_be_alike(void **state)
{
    static const struct {
        int64_t values[RANKS][2];
        bool is_hash;
        const char *told; /* NULL: they agree */
    } cases[] = {
        { { { 3, 7 }, { 3, 7 }, { 3, 7 } }, true, NULL },
        { { { 3, 7 }, { 3, 7 }, { 4, 7 } },
          true,
          "rank 2 has 4 batches an epoch, rank 0 has 3: do this" },
        { { { 3, 7 }, { 3, 8 }, { 3, 7 } }, true, "rank 1 has another model than rank 0: do that" },
        /* What a rank does not know is not compared: the first that knows it counts. */
        { { { UNI__NOT_KNOWN, 7 }, { 3, 7 }, { 3, 7 } }, true, NULL },
        { { { UNI__NOT_KNOWN, 7 }, { 3, 7 }, { 5, 7 } },
          true,
          "rank 2 has 5 batches an epoch, rank 1 has 3: do this" },
        { { { 3, 7 }, { UNI__NOT_KNOWN, 7 }, { 5, 7 } },
          true,
          "rank 2 has 5 batches an epoch, rank 0 has 3: do this" },
        { { { 3, -1 }, { 3, -1 }, { 3, 0 } },
          false,
          "rank 2 has 0 another model, rank 0 has -1: do that" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(table, cases[i].values, sizeof table);
        hashed = cases[i].is_hash;
        on_all(RANKS, agree);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(members[r].status, cases[i].told ? UNI_EMISMATCH : 0);
            if (cases[i].told)
                assert_string_equal(members[r].err.message, cases[i].told);
        }
        on_all(1, agree);
        assert_int_equal(members[0].status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_all_replicas),
        cmocka_unit_test(one_rank_alone),
        cmocka_unit_test(no_rows),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(numbers_of_processes),
        cmocka_unit_test(metrics_of_all_ranks),
        cmocka_unit_test(what_must_be_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
