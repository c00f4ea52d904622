/* distribute_test.c - the part of every global batch that each rank gets: all samples once, in rank
 * order, as even as possible, also when the number of ranks changes in the middle of an epoch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "strategy/internal.h"

#define SAMPLES 22
#define BATCH 8 /* 8, 8 and 6 */
#define RANKS 9

static float xs[SAMPLES][2], ys[SAMPLES], weights[SAMPLES];

static uni_batches *source(void)
{
    uni_column x = { .dtype = UNI_F32, .ndim = 2, .shape = { SAMPLES, 2 }, .data = xs };
    uni_column y = { .dtype = UNI_F32, .ndim = 1, .shape = { SAMPLES }, .data = ys };
    uni_column w = { .dtype = UNI_F32, .ndim = 1, .shape = { SAMPLES }, .data = weights };
    uni_batches *out = NULL;
    for (int i = 0; i < SAMPLES; i++) {
        xs[i][0] = (float)i;
        xs[i][1] = (float)-i;
        ys[i] = (float)(100 + i);
        weights[i] = (float)(200 + i);
    }
    assert_int_equal(uni_batches_columns(&out, 1, &x, 1, &y, &w,
                                         &(uni_columns_options){ .batch_size = BATCH }, NULL),
                     0);
    assert_int_equal(uni_batches_reset(out, 0, NULL), 0);
    return out;
}

static uni_batches *part_of(uni_strategy *strategy, uni_batches *global, uni_auto_shard policy)
{
    uni_batches *out = NULL;
    uni_error err = { 0 };
    if (uni_strategy_distribute_dataset(&out, strategy, global, policy, &err) < 0)
        fail_msg("%s", err.message);
    return out;
}

/* Its samples are those from `first` on, in all columns. */
static void expect_samples(const uni_batch *batch, int64_t first, int64_t count)
{
    assert_int_equal(batch->size, count);
    for (int64_t i = 0; i < count; i++) {
        const float *x = (const float *)batch->x[0].data + 2 * i;
        assert_true(x[0] == (float)(first + i) && x[1] == (float)-(first + i));
        assert_true(((const float *)batch->y[0].data)[i] == (float)(100 + first + i));
        assert_true(((const float *)batch->weights.data)[i] == (float)(200 + first + i));
    }
}

static void every_sample_once_in_rank_order(void **state)
{
    for (int size = 1; size <= RANKS; size++) {
        int64_t next[3] = { 0, BATCH, 2 * BATCH }; /* the sample that the next rank begins with */
        int64_t least[3] = { SAMPLES, SAMPLES, SAMPLES }, most[3] = { 0 };
        for (int rank = 0; rank < size; rank++) {
            uni_strategy strategy = { .rank = rank, .size = size };
            uni_batches *global = source(), *mine = part_of(&strategy, global, UNI_SHARD_DATA);
            uni_batch batch;
            assert_int_equal(uni__batches_length(mine), 3);
            for (int i = 0; i < 3; i++) {
                int64_t whole = i < 2 ? BATCH : SAMPLES - 2 * BATCH;
                assert_int_equal(uni_batches_next(&batch, mine, NULL), 1);
                expect_samples(&batch, next[i], batch.size);
                if (size > 1) {
                    assert_int_equal(batch.first_sample, next[i] - i * BATCH);
                    assert_int_equal(batch.global_size, whole);
                }
                next[i] += batch.size;
                least[i] = batch.size < least[i] ? batch.size : least[i];
                most[i] = batch.size > most[i] ? batch.size : most[i];
            }
            assert_int_equal(uni_batches_next(&batch, mine, NULL), 0);
            assert_int_equal(uni_batches_reset(mine, 1, NULL), 0);
            assert_int_equal(uni_batches_next(&batch, mine, NULL), 1);
            assert_true(uni__parts_are_cut(&strategy));
            uni_batches_free(mine);
            uni_batches_free(global);
        }
        for (int i = 0; i < 3; i++) {
            assert_int_equal(next[i], i < 2 ? (i + 1) * BATCH : SAMPLES);
            assert_true(most[i] - least[i] <= 1);
        }
    }
}

static void what_is_not_cut(void **state)
{
    static const struct {
        int size;
        bool server, cut_before;
        uni_auto_shard policy;
        bool known; /* the place in the global batch */
    } cases[] = {
        { 1, false, false, UNI_SHARD_DATA, true },
        { 3, true, false, UNI_SHARD_DATA, true },
        { 3, false, false, UNI_SHARD_OFF, false },
        { 1, false, false, UNI_SHARD_OFF, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_strategy strategy = { .rank = cases[i].size - 1, .size = cases[i].size };
        if (cases[i].server)
            strategy.server = (struct uni__ps *)&strategy; /* only its presence counts */
        uni_batches *global = source(), *mine = part_of(&strategy, global, cases[i].policy);
        uni_batch batch;
        assert_int_equal(uni_batches_next(&batch, mine, NULL), 1);
        assert_int_equal(uni_batches_next(&batch, mine, NULL), 1);
        expect_samples(&batch, BATCH, BATCH);
        assert_int_equal(batch.first_sample, 0);
        if (!cases[i].known) /* the others have batches of their own */
            assert_int_equal(batch.global_size, 0);
        /* The user's cut stays as it is, whatever the ranks. */
        assert_int_equal(uni__parts_are_cut(&strategy), cases[i].size == 1);
        uni_batches_free(mine);
        uni_batches_free(global);
    }
}

/* A part is not cut again. */
static void a_part_of_a_part(void **state)
{
    uni_strategy strategy = { .rank = 1, .size = 2 };
    uni_batches *global = source(), *mine = part_of(&strategy, global, UNI_SHARD_DATA);
    assert_true(uni__is_part(&strategy, mine));
    assert_false(uni__is_part(&strategy, global));
    uni_batches *again = part_of(&strategy, mine, UNI_SHARD_DATA);
    uni_batch batch;
    assert_int_equal(uni_batches_next(&batch, again, NULL), 1);
    expect_samples(&batch, 4, 4);
    uni_batches_free(mine); /* in the order of making: the list survives it */
    assert_false(uni__is_part(&strategy, mine));
    assert_true(uni__is_part(&strategy, again));
    uni_batches_free(again);
    assert_false(uni__is_part(&strategy, again));
    uni_batches_free(global);
}

/* The step is repeated by other ranks: the same global batch, cut anew. */
static void ranks_change_in_the_middle(void **state)
{
    uni_strategy strategy = { .rank = 1, .size = 2 };
    uni_batches *global = source(), *mine = part_of(&strategy, global, UNI_SHARD_DATA);
    uni_batch batch;
    uni_error err = { 0 };
    assert_int_equal(uni__part_again(&strategy, mine, &batch, &err), UNI_EUNSUPPORTED);
    assert_int_equal(uni_batches_next(&batch, mine, NULL), 1);
    assert_int_equal(uni_batches_next(&batch, mine, NULL), 1);
    expect_samples(&batch, BATCH + 4, 4);
    strategy.rank = 0;
    strategy.size = 4;
    uni__parts_resize(&strategy);
    assert_int_equal(uni__part_again(&strategy, mine, &batch, &err), 0);
    expect_samples(&batch, BATCH, 2);
    assert_int_equal(batch.first_sample, 0);
    assert_int_equal(batch.global_size, BATCH);
    assert_int_equal(uni__part_again(&strategy, mine, &batch, &err), 0);
    expect_samples(&batch, BATCH, 2);
    assert_int_equal(uni_batches_next(&batch, mine, NULL), 1); /* then the next one */
    expect_samples(&batch, 2 * BATCH, 1);
    /* Alone, it gets all. */
    strategy.size = 1;
    uni__parts_resize(&strategy);
    assert_int_equal(uni__part_again(&strategy, mine, &batch, &err), 0);
    expect_samples(&batch, 2 * BATCH, SAMPLES - 2 * BATCH);
    assert_int_equal(uni_batches_next(&batch, mine, NULL), 0);
    assert_int_equal(uni__part_again(&strategy, global, &batch, &err), UNI_EUNSUPPORTED);
    uni_batches_free(mine);
    uni_batches_free(global);
}

static void the_users_cut_does_not_change(void **state)
{
    uni_strategy strategy = { .rank = 1, .size = 2 };
    uni_batches *global = source(), *mine = part_of(&strategy, global, UNI_SHARD_OFF);
    uni_batch batch;
    assert_int_equal(uni_batches_next(&batch, mine, NULL), 1);
    strategy.size = 4;
    uni__parts_resize(&strategy);
    assert_int_equal(uni_batches_next(&batch, mine, NULL), 1);
    expect_samples(&batch, BATCH, BATCH);
    uni_batches_free(mine);
    uni_batches_free(global);
}

/* Parts may live longer than their strategy. */
static void the_strategy_ends_first(void **state)
{
    uni_strategy *strategy = calloc(1, sizeof *strategy);
    strategy->size = 2;
    uni_batches *global = source(), *mine = part_of(strategy, global, UNI_SHARD_DATA);
    uni_batch batch;
    uni__parts_forget(strategy);
    assert_false(uni__is_part(strategy, mine));
    free(strategy);
    assert_int_equal(uni_batches_next(&batch, mine, NULL), 1);
    expect_samples(&batch, 0, 4);
    uni_batches_free(mine);
    uni_batches_free(global);
}

static void files_need_a_dataset(void **state)
{
    uni_strategy strategy = { .rank = 0, .size = 2 };
    uni_batches *global = source(), *mine = NULL;
    uni_error err = { 0 };
    assert_true(uni_strategy_distribute_dataset(&mine, &strategy, global, UNI_SHARD_FILE, &err) <
                0);
    assert_null(mine);
    assert_true(strlen(err.message) > 0);
    uni_batches_free(global);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once_in_rank_order),
        cmocka_unit_test(what_is_not_cut),
        cmocka_unit_test(a_part_of_a_part),
        cmocka_unit_test(ranks_change_in_the_middle),
        cmocka_unit_test(the_users_cut_does_not_change),
        cmocka_unit_test(the_strategy_ends_first),
        cmocka_unit_test(files_need_a_dataset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
