/*
 * buckets_test.c - gradients in buckets: where they are cut, that both ranks get the sum of every
 * element (for a mean divided by the sum of the weights) whatever order the gradients come in, and
 * what is refused.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/asserts.h"
#include "comm/shared.h"

enum { TENSORS = 4, ELEMENTS = 100, STEPS = 3 };
static const size_t counts[TENSORS] = { 10, 20, 30, 40 };

typedef struct rank {
    uni_comm *comm;
    int number;
    uni_comm_op op;
    double weight;
    float flat[ELEMENTS];
    int status;
    uni_error err;
} rank;

static float gradient(int number, int step, int element)
{
    return (float)(element + 1000 * step + (number == 0 ? 0 : 7 * element));
}

static int run_steps(rank *me)
{
    /* 160 bytes are 40 floats: the last tensor, the two before it, the first. */
    uni__comm_bucket_options options = { .bucket_bytes = 160, .op = me->op };
    uni__comm_buckets *buckets = NULL;
    UNI_TRY(uni__comm_buckets_new(&buckets, me->comm, me->flat, UNI_F32, TENSORS, counts, &options,
                                  &me->err));
    int status = uni__comm_buckets_count(buckets) == 3 ? 0 : UNI_ECORRUPT;
    for (int step = 0; step < STEPS && status == 0; step++) {
        for (int i = 0; i < ELEMENTS; i++)
            me->flat[i] = gradient(me->number, step, i);
        status = uni__comm_buckets_begin(buckets, me->weight, &me->err);
        /* Rank 0 from the first to the last, rank 1 backwards and not all of them. */
        for (int i = 0; i < TENSORS - me->number && status == 0; i++)
            status =
                uni__comm_buckets_ready(buckets, me->number == 0 ? i : TENSORS - 1 - i, &me->err);
        if (status == 0)
            status = uni__comm_buckets_finish(buckets, &me->err);
        for (int i = 0; i < ELEMENTS && status == 0; i++) {
            float a = gradient(0, step, i), b = gradient(1, step, i);
            float expected = me->op == UNI_COMM_MEAN ? (a + b) / 4 : a + b;
            status = me->flat[i] == expected ? 0 : UNI_ECORRUPT;
        }
    }
    uni__comm_buckets_free(buckets);
    return status;
}

static void *run_rank(void *argument)
{
    rank *me = argument;
    me->status = run_steps(me);
    return NULL;
}

static void both_ranks(uni_comm_op op)
{
    uni_comm *comms[2] = { NULL };
    rank ranks[2];
    pthread_t threads[2];
    memset(ranks, 0, sizeof ranks);
    assert_ok(uni_comm_open_threads(comms, 2, NULL, &failure));
    for (int r = 0; r < 2; r++) {
        ranks[r].comm = comms[r];
        ranks[r].number = r;
        ranks[r].op = op;
        ranks[r].weight = r == 0 ? 3 : 1;
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        if (ranks[r].status < 0)
            fail_msg("rank %d: %s %s", r, uni_status_name(ranks[r].status), ranks[r].err.message);
        uni_comm_close(comms[r]);
    }
}

static void sums_and_means(void **state)
{
    both_ranks(UNI_COMM_SUM);
    both_ranks(UNI_COMM_MEAN);
}

static void where_buckets_are_cut(void **state)
{
    static const struct {
        size_t bytes;
        int buckets;
    } cases[] = { { 0, 1 }, { 400, 1 }, { 280, 2 }, { 160, 3 }, { 161, 2 }, { 4, 4 } };
    uni_comm *comm = NULL;
    float flat[ELEMENTS] = { 0 };
    assert_ok(uni_comm_open_threads(&comm, 1, NULL, &failure));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni__comm_bucket_options options = { .bucket_bytes = cases[i].bytes };
        uni__comm_buckets *buckets = NULL;
        assert_ok(uni__comm_buckets_new(&buckets, comm, flat, UNI_F32, TENSORS, counts, &options,
                                        &failure));
        assert_int_equal(uni__comm_buckets_count(buckets), cases[i].buckets);
        uni__comm_buckets_free(buckets);
    }
    uni_comm_close(comm);
}

static void wrong_order_is_named(void **state)
{
    uni_comm *comm = NULL;
    uni__comm_buckets *b = NULL;
    float flat[ELEMENTS] = { 0 };
    assert_ok(uni_comm_open_threads(&comm, 1, NULL, &failure));
    assert_fails(uni__comm_buckets_new(&b, comm, flat, UNI_F32, -1, counts, NULL, &failure),
                 UNI_EINVAL, "buckets of -1 tensors");
    assert_fails(uni__comm_buckets_new(&b, comm, flat, UNI_U16, TENSORS, counts, NULL, &failure),
                 UNI_EINVAL, "uint16 cannot be reduced");
    assert_null(b);
    assert_ok(uni__comm_buckets_new(&b, comm, flat, UNI_F32, TENSORS, counts, NULL, &failure));
    assert_fails(uni__comm_buckets_ready(b, 0, &failure), UNI_ESTATE, "before");
    assert_fails(uni__comm_buckets_finish(b, &failure), UNI_ESTATE, "finish without begin");
    assert_ok(uni__comm_buckets_begin(b, 1, &failure));
    assert_fails(uni__comm_buckets_begin(b, 1, &failure), UNI_ESTATE, "was not ended");
    assert_ok(uni__comm_buckets_ready(b, 1, &failure));
    assert_fails(uni__comm_buckets_ready(b, 1, &failure), UNI_ESTATE, "gradient 1 of 4");
    assert_fails(uni__comm_buckets_ready(b, TENSORS, &failure), UNI_ESTATE, "gradient 4 of 4");
    assert_fails(uni__comm_buckets_ready(b, -1, &failure), UNI_ESTATE, "gradient -1");
    assert_ok(uni__comm_buckets_finish(b, &failure));
    assert_ok(uni__comm_buckets_begin(b, 1, &failure));
    assert_ok(uni__comm_buckets_ready(b, 1, &failure)); /* a new step */
    assert_ok(uni__comm_buckets_finish(b, &failure));
    uni__comm_buckets_free(b);
    uni_comm_close(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_means),
        cmocka_unit_test(where_buckets_are_cut),
        cmocka_unit_test(wrong_order_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
