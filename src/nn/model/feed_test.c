/*
 * feed_test.c - batches of a dataset over several epochs. One iterator that continues gives the
 * same as a new one per epoch: after an epoch that was left early, with another epoch in between,
 * in every order, and for parts with equal batch counts. Also a state in the middle of a later
 * epoch; and no thread remains.
 */
#include <dirent.h>
#include <pthread.h>
#include <unisono/nn_dataset.h>
#include "nn/shared.h"
#include "data/shared.h"
#include "data/test_ids.h"
#include "nn/model/testing.h"

enum { ROWS = 1003, BATCH = 32, EPOCHS = 4, BLOCK = 47 };

static uni_dataset *open_ids(void)
{
    uni_dataset *ids = NULL, *shuffled = NULL;
    OK(uni_dataset_range(&ids, ROWS, err));
    OK(uni_dataset_shuffle(&shuffled, ids, 0, 11, err));
    uni_dataset_unref(ids);
    return shuffled;
}

static test_ids all_ids = { ROWS, BLOCK };

/* The same ids in the block and the stream order, shuffled. */
static uni_dataset *open_source(bool stream)
{
    uni_dataset *ids = NULL, *shuffled = NULL;
    uni_source_functions source = test_ids_source(&all_ids, stream);
    OK(uni_dataset_from_functions(&ids, &source, err));
    OK(uni_dataset_shuffle(&shuffled, ids, stream ? 100 : 0, 11, err));
    uni_dataset_unref(ids);
    return shuffled;
}

static uni_batches *open_batches(uni_dataset *dataset)
{
    const uni_table *schema = NULL;
    uni_batches *batches = NULL;
    OK(uni_dataset_schema(&schema, dataset, err));
    const char *x[] = { uni_table_column_at(schema, 0)->field.name, NULL };
    OK(uni_batches_dataset(&batches, dataset,
                           &(uni_dataset_columns){ .x = x, .data = { .batch_size = BATCH } }, err));
    return batches;
}

/* Takes at most `limit` batches; returns their row count. */
static int take(uni_batches *batches, int64_t *ids, int limit)
{
    int count = 0;
    uni_batch batch;
    for (int i = 0; i < limit; i++) {
        int got = 0;
        OK(got = uni_batches_next(&batch, batches, err));
        if (got == 0)
            break;
        memcpy(ids + count, batch.x[0].data, (size_t)batch.size * sizeof *ids);
        count += (int)batch.size;
    }
    return count;
}

static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL)
        count++;
    closedir(tasks);
    return count;
}

/* What separate batches give for an epoch. */
static void alone(uni_dataset *dataset, uint64_t epoch, int64_t *ids)
{
    uni_batches *batches = open_batches(dataset);
    OK(uni_batches_reset(batches, epoch, err));
    assert_int_equal(take(batches, ids, 1000), ROWS);
    uni_batches_free(batches);
}

/* Takes ownership of the dataset. */
static void check_epochs(uni_dataset *dataset)
{
    int before = threads();
    uni_batches *batches = open_batches(dataset);
    int64_t ids[ROWS], expected[ROWS];
    uni_batch batch;
    uni__batches_expect(batches, 0, EPOCHS);
    for (uint64_t epoch = 0; epoch < EPOCHS + 2; epoch++) { /* more than was said, too */
        OK(uni_batches_reset(batches, epoch, err));
        assert_int_equal(take(batches, ids, 1000), ROWS);
        assert_int_equal(uni_batches_next(&batch, batches, NULL), 0); /* the end stays */
        alone(dataset, epoch, expected);
        assert_memory_equal(ids, expected, sizeof ids);
    }
    uni_batches_free(batches);
    uni_dataset_unref(dataset);
    assert_int_equal(threads(), before);
}

static void test_epochs_are_the_same(void **state)
{
    check_epochs(open_ids());
    check_epochs(open_source(false));
    check_epochs(open_source(true));
}

static uni_batches *open_part(uni_dataset *dataset, int shard)
{
    uni_batches *whole = open_batches(dataset), *part = NULL;
    OK(uni__batches_dataset_part(&part, whole, shard, 2, false, err));
    uni_batches_free(whole);
    return part;
}

/* Two workers over blocks: each continues as new ones would, and every id comes once per epoch. */
static void test_parts_go_on(void **state)
{
    uni_dataset *dataset = open_source(false);
    uni_batches *parts[2] = { open_part(dataset, 0), open_part(dataset, 1) };
    int64_t ids[ROWS], expected[ROWS];
    for (int shard = 0; shard < 2; shard++)
        uni__batches_expect(parts[shard], 0, EPOCHS);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        char seen[ROWS] = { 0 };
        int all = 0;
        for (int shard = 0; shard < 2; shard++) {
            uni_batches *alone_part = open_part(dataset, shard);
            OK(uni_batches_reset(parts[shard], epoch, err));
            OK(uni_batches_reset(alone_part, epoch, err));
            int rows = take(parts[shard], ids, 1000);
            assert_int_equal(take(alone_part, expected, 1000), rows);
            assert_memory_equal(ids, expected, (size_t)rows * sizeof *ids);
            for (int i = 0; i < rows; i++)
                assert_int_equal(seen[ids[i]]++, 0);
            all += rows;
            uni_batches_free(alone_part);
        }
        assert_int_equal(all, ROWS);
    }
    uni_batches_free(parts[0]);
    uni_batches_free(parts[1]);
    uni_dataset_unref(dataset);
}

static void test_left_early_and_another_between(void **state)
{
    int before = threads();
    uni_dataset *dataset = open_ids();
    uni_batches *batches = open_batches(dataset);
    int64_t ids[ROWS], expected[ROWS];
    static const uint64_t order[] = { 0, 0, 1, 3, 2, 3, 0, 1 };
    uni__batches_expect(batches, 0, EPOCHS);
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        OK(uni_batches_reset(batches, order[i], err));
        int rows = take(batches, ids, i % 2 == 0 ? 5 : 1000);
        assert_int_equal(rows, i % 2 == 0 ? 5 * BATCH : ROWS);
        alone(dataset, order[i], expected);
        assert_memory_equal(ids, expected, (size_t)rows * sizeof *ids);
        if (i == 3) /* as an evaluation of the same batches would */
            uni__batches_expect(batches, 0, 1);
    }
    uni__batches_expect(batches, 1, EPOCHS); /* threads read ahead when it is freed */
    OK(uni_batches_reset(batches, 1, err));
    assert_int_equal(take(batches, ids, 3), 3 * BATCH);
    uni_batches_free(batches);
    uni_dataset_unref(dataset);
    assert_int_equal(threads(), before);
}

/* Takes at most `limit` batches of this epoch and returns their ids. */
static int iterate(uni_dataset_iterator *it, int64_t *ids, int limit)
{
    int count = 0;
    for (int i = 0; i < limit; i++) {
        uni_table *table = NULL;
        int got = 0;
        OK(got = uni_dataset_iterator_next_in_epoch(&table, it, err));
        if (got == 0)
            break;
        int64_t rows = uni_table_num_rows(table);
        memcpy(ids + count, uni_array_data(uni_table_column_at(table, 0)->values),
               (size_t)rows * sizeof *ids);
        count += (int)rows;
        uni_table_unref(table);
    }
    return count;
}

static void test_state_in_a_later_epoch(void **state)
{
    uni_dataset *dataset = open_ids();
    uni_dataset_iterator *it = NULL, *resumed = NULL;
    uni_value *saved = NULL;
    int64_t ids[ROWS], expected[ROWS];
    OK(uni_dataset_iterate(&it, dataset, &(uni_data_options){ .batch_size = BATCH, .epochs = 1 },
                           err));
    assert_true(uni__dataset_iterator_extend(it, 3));
    assert_true(uni__dataset_iterator_extend(it, 2)); /* never earlier */
    assert_int_equal(iterate(it, ids, 1000), ROWS);
    assert_int_equal(uni_dataset_iterator_epoch(it), 1);
    assert_int_equal(iterate(it, ids, 7), 7 * BATCH);
    OK(uni_dataset_iterator_state(&saved, it, err));
    OK(uni_dataset_iterate(&resumed, dataset,
                           &(uni_data_options){ .batch_size = BATCH, .state = saved }, err));
    for (int rest = ROWS - 7 * BATCH; rest <= ROWS; rest += 7 * BATCH) { /* epochs 1 and 2 */
        assert_int_equal(iterate(it, expected, 1000), rest);
        assert_int_equal(iterate(resumed, ids, 1000), rest);
        assert_memory_equal(ids, expected, (size_t)rest * sizeof *ids);
    }
    assert_true(uni_dataset_iterator_done(it) && uni_dataset_iterator_done(resumed));
    assert_false(uni__dataset_iterator_extend(it, 9));
    uni_value_free(saved);
    uni_dataset_iterator_free(resumed);
    uni_dataset_iterator_free(it);
    uni_dataset_unref(dataset);
}

static void *nothing(void *argument)
{
    return NULL;
}

int main(void)
{
    pthread_t thread; /* a sanitizer starts its own thread with the first one */
    if (pthread_create(&thread, NULL, nothing, NULL) == 0)
        pthread_join(thread, NULL);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_epochs_are_the_same),
                                        cmocka_unit_test(test_parts_go_on),
                                        cmocka_unit_test(test_left_early_and_another_between),
                                        cmocka_unit_test(test_state_in_a_later_epoch) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
