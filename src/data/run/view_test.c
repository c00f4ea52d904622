/*
 * view_test.c - fast paths for small data that is read many times: batches in place, rewound
 * iterators, precomputed transforms. All give the rows and states of an ordinary iterator.
 */
#include "data/shared.h"
#include "data/test.h"
#include "data/test_ids.h"

enum { ROWS = 1003, BLOCK = 47, EPOCHS = 3 };

static test_ids all_ids = { ROWS, BLOCK };

/* Takes ownership of `from`. */
static uni_dataset *shuffled(uni_dataset *from, int64_t buffer)
{
    uni_dataset *made = NULL;
    assert_ok(uni_dataset_shuffle(&made, from, buffer, 11, &failure));
    uni_dataset_unref(from);
    return made;
}

/* Leaves out every third row. */
static int keep(void *context, const uni_table *table, int64_t row, uni_error *err)
{
    return ((const int64_t *)uni_array_data(uni_table_find(table, "id")->values))[row] % 3 != 0;
}

enum {
    RANGE,
    TABLE,
    SHUFFLED_TABLE,
    WINDOWS,
    TRANSFORMED,
    FILTERED,
    BLOCKS,
    SHUFFLED_BLOCKS,
    STREAM,
    SHUFFLED_STREAM,
    KINDS
};

static uni_dataset *open_kind(int kind)
{
    uni_dataset *rows = NULL, *made = NULL;
    if (kind == RANGE)
        assert_ok(uni_dataset_range(&rows, ROWS, &failure));
    if (kind >= BLOCKS) {
        uni_source_functions source = test_ids_source(&all_ids, kind >= STREAM);
        assert_ok(uni_dataset_from_functions(&rows, &source, &failure));
        bool shuffles = kind == SHUFFLED_BLOCKS || kind == SHUFFLED_STREAM;
        return shuffles ? shuffled(rows, kind == SHUFFLED_STREAM ? 100 : 0) : rows;
    }
    if (rows == NULL) {
        uni_table *table = ids_table(0, ROWS);
        assert_ok(uni_dataset_from_table(&rows, table, &failure));
        uni_table_unref(table);
    }
    switch (kind) {
    case SHUFFLED_TABLE:
        return shuffled(rows, 0);
    case WINDOWS:
        return shuffled(rows, 100);
    case TRANSFORMED: /* shuffled, cut, cast, concatenated, shuffled again */
        rows = shuffled(rows, 0);
        assert_ok(uni_dataset_limit(&made, rows, ROWS - 100, &failure));
        uni_dataset_unref(rows);
        assert_ok(uni_dataset_rename(&rows, made, "id", "number", &failure));
        uni_dataset_unref(made);
        assert_ok(uni_dataset_concat_columns(&made, rows, (const char *const[]){ "number", NULL },
                                             "id", UNI_I64, &failure));
        uni_dataset_unref(rows);
        return shuffled(made, 0);
    case FILTERED:
        assert_ok(uni_dataset_filter(&made, rows, keep, NULL, &failure));
        uni_dataset_unref(rows);
        return shuffled(made, 0);
    default:
        return rows;
    }
}

static const int64_t *ids_of(const uni_table *table)
{
    return uni_array_data(uni_table_find(table, "id")->values);
}

static char *state_of(const uni_dataset_iterator *it)
{
    uni_value *state = NULL;
    char *text = NULL;
    size_t length = 0;
    assert_ok(uni_dataset_iterator_state(&state, it, &failure));
    assert_ok(uni_json_write(&text, &length, state, 0, &failure));
    uni_value_free(state);
    return text;
}

static uni_dataset_iterator *iterate(uni_dataset *dataset, const uni_data_options *options)
{
    uni_dataset_iterator *it = NULL;
    assert_ok(uni_dataset_iterate(&it, dataset, options, &failure));
    return it;
}

/* Checks that `viewing` and `plain` give the same batches for the rest of the epoch, with the same
 * state after each. Returns the row count. */
static int64_t same_epoch(uni_dataset_iterator *viewing, uni_dataset_iterator *plain)
{
    int64_t all = 0;
    for (;;) {
        const uni_table *table = NULL;
        uni_table *batch = NULL;
        int64_t first = 0, rows = 0;
        int more = uni__dataset_iterator_view_in_epoch(viewing, &table, &first, &rows, &failure);
        assert_int_equal(uni_dataset_iterator_next_in_epoch(&batch, plain, &failure), more);
        assert_true(more >= 0);
        char *one = state_of(viewing), *other = state_of(plain);
        assert_string_equal(one, other);
        free(one);
        free(other);
        if (more == 0)
            return all;
        assert_int_equal(rows, uni_table_num_rows(batch));
        assert_memory_equal(ids_of(table) + first, ids_of(batch), (size_t)rows * 8);
        uni_table_unref(batch);
        all += rows;
    }
}

static void views_are_batches(void **unused)
{
    static const int64_t sizes[] = { 1, 32, 47, 2000 };
    for (int kind = 0; kind < KINDS; kind++) {
        uni_dataset *dataset = open_kind(kind);
        for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
            uni_data_options options = { .batch_size = sizes[i / 2],
                                         .epochs = EPOCHS,
                                         .drop_remainder = i % 2 == 1 };
            uni_dataset_iterator *viewing = iterate(dataset, &options),
                                 *plain = iterate(dataset, &options);
            for (int epoch = 0; epoch < EPOCHS; epoch++) {
                assert_int_equal(uni_dataset_iterator_epoch(viewing), epoch);
                int64_t rows = same_epoch(viewing, plain);
                if (kind != FILTERED && kind != TRANSFORMED && i % 2 == 0)
                    assert_int_equal(rows, ROWS);
            }
            assert_true(uni_dataset_iterator_done(viewing) && uni_dataset_iterator_done(plain));
            uni_dataset_iterator_free(viewing);
            uni_dataset_iterator_free(plain);
        }
        uni_dataset_unref(dataset);
    }
}

/* A shard's rows also come as views. */
static void views_of_shards(void **unused)
{
    for (int kind = 0; kind < KINDS; kind++) {
        uni_dataset *dataset = open_kind(kind);
        for (int shard = 0; shard < 3; shard++) {
            uni_data_options options = { .batch_size = 10, .shard = shard, .num_shards = 3 };
            uni_dataset_iterator *viewing = iterate(dataset, &options),
                                 *plain = iterate(dataset, &options);
            (void)same_epoch(viewing, plain);
            uni_dataset_iterator_free(viewing);
            uni_dataset_iterator_free(plain);
        }
        uni_dataset_unref(dataset);
    }
}

static void beginning_again(void **unused)
{
    static const uint64_t epochs[] = { 0, 0, 5, 2 };
    for (int kind = 0; kind < KINDS; kind++) {
        uni_dataset *dataset = open_kind(kind);
        uni_data_options options = { .batch_size = 32 };
        uni_dataset_iterator *it = iterate(dataset, &options);
        assert_false(uni__dataset_iterator_rewind(it, 0)); /* nothing was taken yet */
        uni_dataset_iterator *first = iterate(dataset, &options);
        (void)same_epoch(it, first);
        uni_dataset_iterator_free(first);
        for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++) {
            options.first_epoch = epochs[i];
            uni_dataset_iterator *fresh = iterate(dataset, &options);
            assert_true(uni__dataset_iterator_rewind(it, epochs[i]));
            assert_int_equal(uni_dataset_iterator_epoch(it), epochs[i]);
            (void)same_epoch(it, fresh);
            assert_true(uni_dataset_iterator_done(it));
            uni_dataset_iterator_free(fresh);
        }
        uni_dataset_iterator_free(it);
        uni_dataset_unref(dataset);
    }
}

static void settled_is_the_same(void **unused)
{
    for (int kind = 0; kind < KINDS; kind++) {
        uni_dataset *dataset = open_kind(kind), *settled = NULL;
        bool repeats = false;
        assert_ok(uni__dataset_precompute(&settled, dataset, &repeats, &failure));
        assert_int_equal(repeats, kind == RANGE || kind == TABLE);
        assert_int_equal(settled == dataset, kind >= FILTERED); /* a function may be random */
        uni_data_options options = { .batch_size = 32, .epochs = EPOCHS };
        uni_dataset_iterator *it = iterate(settled, &options), *plain = iterate(dataset, &options);
        for (int epoch = 0; epoch < EPOCHS; epoch++)
            (void)same_epoch(it, plain);
        uni_dataset_iterator_free(it);
        uni_dataset_iterator_free(plain);
        uni_dataset_unref(settled);
        uni_dataset_unref(dataset);
    }
}

/* More threads than cores, and tasks of one batch: the consumer keeps overtaking threads, and every
 * row still comes once and in order. */
static void overtaking(void **unused)
{
    uni_dataset *dataset = open_kind(SHUFFLED_TABLE);
    for (int round = 0; round < 20; round++) {
        uni_data_options options = { .batch_size = 32, .epochs = 20, .threads = 8, .prefetch = 1 };
        uni_dataset_iterator *it = iterate(dataset, &options);
        options.threads = 1;
        uni_dataset_iterator *plain = iterate(dataset, &options);
        for (int epoch = 0; epoch < 20; epoch++)
            assert_int_equal(same_epoch(it, plain), ROWS);
        uni_dataset_iterator_free(it);
        uni_dataset_iterator_free(plain);
    }
    uni_dataset_unref(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_are_batches), cmocka_unit_test(views_of_shards),
        cmocka_unit_test(beginning_again),   cmocka_unit_test(settled_is_the_same),
        cmocka_unit_test(overtaking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
