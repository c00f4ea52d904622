/*
 * shard_test.c - file shards that are never cut again, joined and split blocks, and windows that do
 * not mix. equal_test.c tests equal batch counts on all shards.
 */
#include <unisono/data_readers.h>
#include "data/shared.h"
#include "data/run/test_uneven.h"

/* ---- shards by files ---- */

/* Reads all file shards as if they were to be sharded again. Every id must come once, and the ids
 * of a file from one shard. */
static void check_files(uni_dataset *dataset, int64_t rows, int shards, const int *file_of)
{
    int *seen = calloc((size_t)rows + 1, sizeof *seen);
    int64_t batches = 0;
    for (int shard = 0; shard < shards; shard++) {
        uni_dataset *part = NULL, *again = NULL;
        uni_dataset_iterator *it = NULL;
        int *mine = calloc((size_t)rows + 1, sizeof *mine);
        assert_false(uni__dataset_is_sharded(dataset));
        assert_ok(uni_dataset_shard_files(&part, dataset, shard, shards, &failure));
        assert_true(uni__dataset_is_sharded(part));
        assert_fails(uni_dataset_shard_files(&again, part, 0, 2, &failure), UNI_EINVAL, "already");
        assert_ok(uni_dataset_limit(&again, part, rows, &failure));
        assert_true(uni__dataset_is_sharded(again));
        uni_dataset_unref(again);
        uni_data_options options = { .batch_size = 9, .shard = 1, .num_shards = 2, .equal = true };
        assert_ok(uni_dataset_iterate(&it, part, &options, &failure));
        int64_t given = take_epoch(it, INT64_MAX, mine);
        batches = shard == 0 ? given : batches;
        assert_int_equal(given, batches);
        uni_dataset_iterator_free(it);
        for (int64_t id = 0; id < rows; id++) {
            assert_true(mine[id] == 0 || file_of[id] % shards == shard);
            seen[id] += mine[id];
        }
        free(mine);
        uni_dataset_unref(part);
    }
    for (int64_t id = 0; id < rows; id++)
        assert_int_equal(seen[id], 1);
    free(seen);
}

static void blocks_by_files(void **state)
{
    for (int shards = 1; shards <= 4; shards++) {
        int64_t rows = 0;
        uni_dataset *dataset = make_uneven(13, 5, &rows), *part = NULL;
        struct uneven *source = dataset->root->source.self;
        int *file_of = calloc((size_t)rows + 1, sizeof *file_of);
        for (int64_t block = 0; block < 13; block++)
            for (int64_t id = first_of(source, block); id < first_of(source, block + 1); id++)
                file_of[id] = (int)(block / BLOCKS_A_FILE);
        check_files(dataset, rows, shards, file_of);
        shuffle(&dataset, 0);
        check_files(dataset, rows, shards, file_of);
        assert_fails(uni_dataset_shard_files(&part, dataset, 0, 6, &failure), UNI_EINVAL,
                     "5 files cannot be shared out to 6 workers");
        free(file_of);
        uni_dataset_unref(dataset);
    }
    uni_dataset *range = NULL, *part = NULL;
    assert_ok(uni_dataset_range(&range, 10, &failure));
    assert_fails(uni_dataset_shard_files(&part, range, 0, 2, &failure), UNI_EUNSUPPORTED,
                 "no files");
    uni_dataset_unref(range);
}

/* Small CSV files, which are indexed in memory, and the same files compressed: streams, of which
 * each shard opens only its own files. */
static void csv_files(void **state)
{
    enum { FILES = 5, ROWS = 40 };
    char *dir = test_dir(), *plain[FILES], *packed[FILES], command[1000];
    int file_of[FILES * ROWS];
    for (int file = 0; file < FILES; file++) {
        char text[ROWS * 8 + 8] = "id\n", name[32];
        for (int row = 0; row < ROWS; row++) {
            file_of[file * ROWS + row] = file;
            sprintf(text + strlen(text), "%d\n", file * ROWS + row);
        }
        snprintf(name, sizeof name, "part_%d.csv", file);
        plain[file] = test_file(dir, name, text, strlen(text));
        packed[file] = malloc(strlen(plain[file]) + 4);
        sprintf(packed[file], "%s.gz", plain[file]);
        snprintf(command, sizeof command, "gzip -k '%s'", plain[file]);
        assert_int_equal(system(command), 0);
    }
    for (int compressed = 0; compressed < 2; compressed++)
        for (int shards = 1; shards <= FILES; shards++) {
            uni_dataset *dataset = NULL;
            int status = uni_dataset_read_csv(&dataset, FILES,
                                              (const char *const *)(compressed ? packed : plain),
                                              NULL, &failure);
            if (status == UNI_EUNSUPPORTED && compressed) { /* built without zlib */
                print_message("skipped: %s\n", failure.message);
                continue;
            }
            assert_ok(status);
            check_files(dataset, FILES * ROWS, shards, file_of);
            uni_dataset_unref(dataset);
        }
    for (int file = 0; file < FILES; file++) {
        free(plain[file]);
        free(packed[file]);
    }
    test_dir_remove(dir);
}

static void states_of_files(void **state)
{
    int64_t rows = 0;
    uni_dataset *dataset = make_uneven(18, 3, &rows), *part = NULL;
    int *seen = calloc((size_t)rows + 1, sizeof *seen);
    uni_value *states = uni_value_list(), *merged = NULL, *one = NULL;
    uni_dataset_iterator *it = NULL;
    shuffle(&dataset, 0);
    for (int turn = 0; turn < 2; turn++) { /* a few batches, then the rest */
        for (int shard = 0; shard < 3; shard++) {
            assert_ok(uni_dataset_shard_files(&part, dataset, shard, 3, &failure));
            uni_data_options options = {
                .batch_size = 8, .shard = shard, .num_shards = 3, .state = merged
            };
            assert_ok(uni_dataset_iterate(&it, part, &options, &failure));
            (void)take_epoch(it, turn == 0 ? 3 : INT64_MAX, seen);
            if (turn == 0) {
                assert_ok(uni_dataset_iterator_state(&one, it, &failure));
                assert_int_equal(uni_list_take(states, one), 0);
            }
            uni_dataset_iterator_free(it);
            uni_dataset_unref(part);
        }
        if (turn == 0)
            assert_ok(uni_dataset_merge_states(&merged, states, &failure));
    }
    for (int64_t id = 0; id < rows; id++)
        assert_int_equal(seen[id], 1);
    assert_ok(uni_dataset_shard_files(&part, dataset, 0, 2, &failure));
    assert_fails(uni_dataset_iterate(&it, part, &(uni_data_options){ .state = merged }, &failure),
                 UNI_EMISMATCH, "3 workers");
    assert_fails(
        uni_dataset_iterate(&it, dataset, &(uni_data_options){ .state = merged }, &failure),
        UNI_EMISMATCH, "3 workers");
    uni_dataset_unref(part);
    uni_value_free(states);
    uni_value_free(merged);
    uni_dataset_unref(dataset);
    free(seen);
}

/* ---- repartition and windows ---- */

static void other_blocks(void **state)
{
    static const int64_t wanted[] = { 1, 2, 7, 20, 21, 55 };
    for (int i = 0; i < 6; i++) {
        int64_t rows = 0, count = 0;
        uni_dataset *dataset = make_uneven(20, 8, &rows), *next = NULL;
        uni_dataset_iterator *it = NULL;
        uni_table *batch = NULL;
        assert_ok(uni_dataset_repartition(&next, dataset, wanted[i], &failure));
        replace(&dataset, next);
        assert_int_equal(uni__dataset_num_blocks(dataset), wanted[i]);
        assert_ok(uni_dataset_count(&count, dataset, &failure));
        assert_int_equal(count, rows);
        assert_ok(uni_dataset_iterate(&it, dataset, NULL, &failure));
        int64_t expected = 0; /* the order of the rows stays */
        while (uni_dataset_iterator_next(&batch, it, &failure) > 0) {
            const int64_t *ids = uni_array_data(uni_table_find(batch, "id")->values);
            for (int64_t row = 0; row < uni_table_num_rows(batch); row++)
                assert_int_equal(ids[row], expected++);
            uni_table_unref(batch);
        }
        assert_int_equal(expected, rows);
        uni_dataset_iterator_free(it);
        uni_dataset_unref(dataset);
    }
}

/* random_shuffle_each_window: blocks 0 to 3 come before 4 to 7 and so on, and each window of four
 * is in a different order in each epoch. */
static void windows_keep_to_themselves(void **state)
{
    int64_t rows = 0, last_at_place = -1;
    uni_dataset *dataset = make_uneven(16, 11, &rows), *next = NULL;
    const struct uneven *source = dataset->root->source.self;
    int64_t *orders[2] = { calloc((size_t)rows, 8), calloc((size_t)rows, 8) };
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL;
    assert_ok(uni_dataset_window(&next, dataset, 4, &failure));
    replace(&dataset, next);
    shuffle(&dataset, 0);
    assert_ok(uni_dataset_iterate(
        &it, dataset, &(uni_data_options){ .batch_size = 7, .prefetch = 2, .epochs = 2 },
        &failure));
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t at = 0;
        while (uni_dataset_iterator_next_in_epoch(&batch, it, &failure) > 0) {
            const int64_t *ids = uni_array_data(uni_table_find(batch, "id")->values);
            for (int64_t row = 0; row < uni_table_num_rows(batch); row++)
                orders[epoch][at++] = ids[row];
            uni_table_unref(batch);
        }
        assert_int_equal(at, rows);
        int64_t unmoved = 0;
        for (int64_t i = 0; i < rows; i++) {
            int64_t window = 0;
            while (first_of(source, 4 * window + 4) <= i)
                window++;
            assert_in_range(orders[epoch][i], first_of(source, 4 * window),
                            first_of(source, 4 * window + 4) - 1);
            unmoved += orders[epoch][i] == i;
        }
        assert_true(unmoved < rows / 4);
    }
    for (int64_t i = 0; i < rows && last_at_place < 0; i++)
        last_at_place = orders[0][i] != orders[1][i] ? i : -1;
    assert_true(last_at_place >= 0);
    free(orders[0]);
    free(orders[1]);
    uni_dataset_iterator_free(it);
    uni_dataset_unref(dataset);
}

/* Over many keys, every row of a window of three blocks comes first about equally often, whatever
 * its block and position. */
static void merged_windows_are_uniform(void **state)
{
    enum { KEYS = 1000 };
    int64_t rows = 0;
    uni_dataset *dataset = make_uneven(4, 2, &rows), *windows = NULL;
    int *first = calloc((size_t)rows + 1, sizeof *first);
    assert_true(rows > 20);
    assert_ok(uni_dataset_window(&windows, dataset, 4, &failure));
    for (uint64_t key = 0; key < KEYS; key++) {
        uni_dataset *shuffled = NULL;
        uni_table *row = NULL;
        assert_ok(uni_dataset_shuffle(&shuffled, windows, 0, key, &failure));
        assert_ok(uni_dataset_take(&row, shuffled, 1, &failure));
        first[*(const int64_t *)uni_array_data(uni_table_find(row, "id")->values)]++;
        uni_table_unref(row);
        uni_dataset_unref(shuffled);
    }
    double expected = KEYS / (double)rows, chi = 0;
    for (int64_t id = 0; id < rows; id++)
        chi += ((double)first[id] - expected) * ((double)first[id] - expected) / expected;
    /* About `rows` degrees of freedom, so the variance is twice that: accept five standard
     * deviations. */
    assert_true(chi < (double)rows ||
                (chi - (double)rows) * (chi - (double)rows) < 25 * 2 * (double)rows);
    free(first);
    uni_dataset_unref(windows);
    uni_dataset_unref(dataset);
}

/* ---- plans ---- */

static const char *takes(const uni_value *plan, size_t rank)
{
    return uni_dict_get_string(uni_list_get(plan, rank), "takes", "");
}

/* Counts how often each block of three files is in the plan, which is what that rank's iterator
 * then reads. */
static void check_block_plan(uni_dataset *dataset, const char *how)
{
    uni_value *plan = NULL;
    int found[16] = { 0 };
    assert_ok(uni_dataset_plan(&plan, dataset, 3, &failure));
    for (size_t rank = 0; rank < 3; rank++) {
        const uni_value *pieces = uni_dict_get(uni_list_get(plan, rank), "pieces");
        assert_string_equal(takes(plan, rank), how);
        uni_dataset_iterator *it = NULL;
        uni_data_options options = { .shard = (int)rank, .num_shards = 3 };
        int *seen = calloc(2000, sizeof *seen), mine[16] = { 0 };
        assert_ok(uni_dataset_iterate(&it, dataset, &options, &failure));
        (void)take_epoch(it, INT64_MAX, seen);
        uni_dataset_iterator_free(it);
        for (size_t i = 0; i < uni_list_size(pieces); i++) {
            const uni_value *piece = uni_list_get(pieces, i);
            int file = atoi(uni_dict_get_string(piece, "file", "file_99") + 5);
            for (int64_t k = uni_dict_get_int(piece, "begin", 0);
                 k < uni_dict_get_int(piece, "end", 0); k++)
                mine[file * BLOCKS_A_FILE + k]++;
        }
        const struct uneven *source = dataset->root->source.self;
        for (int block = 0; block < 9; block++) {
            found[block] += mine[block];
            for (int64_t id = first_of(source, block); id < first_of(source, block + 1); id++)
                assert_int_equal(seen[id], mine[block]);
        }
        free(seen);
    }
    for (int block = 0; block < 9; block++)
        assert_int_equal(found[block], 1);
    uni_value_free(plan);
}

static void plans_say_what_is_read(void **state)
{
    int64_t rows = 0;
    uni_dataset *blocks = make_uneven(9, 3, &rows), *range = NULL, *some = NULL;
    uni_value *plan = NULL;
    check_block_plan(blocks, "ranges");
    shuffle(&blocks, 0);
    check_block_plan(blocks, "scattered");
    assert_ok(uni_dataset_range(&range, 100, &failure));
    assert_ok(uni_dataset_plan(&plan, range, 3, &failure));
    assert_string_equal(takes(plan, 2), "rounds");
    assert_int_equal(uni_dict_get_int(uni_list_get(plan, 0), "rows", 0), 33);
    assert_int_equal(uni_value_as_int(uni_value_path(plan, "1.pieces.0.end"), 0), 100);
    uni_value_free(plan);
    assert_ok(uni_dataset_filter(&some, range, drop_thirds, NULL, &failure));
    assert_ok(uni_dataset_plan(&plan, some, 2, &failure));
    assert_string_equal(takes(plan, 1), "ranges");
    assert_int_equal(uni_value_as_int(uni_value_path(plan, "1.pieces.0.begin"), 0), 50);
    uni_value_free(plan);
    shuffle(&some, 0);
    assert_ok(uni_dataset_plan(&plan, some, 2, &failure));
    assert_string_equal(takes(plan, 1), "scattered");
    uni_value_free(plan);
    uni_dataset_unref(some);
    uni_dataset_unref(range);
    uni_dataset_unref(blocks);
}

static int one_row(void *context, int64_t block, uni_table **out, uni_error *err)
{
    uni_value *items = uni_value_list();
    assert_int_equal(uni_list_take(items, uni_value_int(block)), 0);
    uni_dataset *dataset = NULL;
    assert_ok(uni_dataset_from_items(&dataset, items, &failure));
    int status = uni_dataset_take(out, dataset, 1, err);
    uni_dataset_unref(dataset);
    uni_value_free(items);
    return status;
}

/* Blocks of a user's source that name their files: in the plan, and sharded by file. */
static void blocks_of_callbacks_have_files(void **state)
{
    static const char *const files[] = { "a", "a", "b", "b", "b" };
    static const int64_t ones[] = { 1, 1, 1, 1, 1 };
    uni_source_functions callbacks = { .num_blocks = 5,
                                       .read_block = one_row,
                                       .block_rows = ones,
                                       .block_files = files,
                                       .bytes = 5 << 20 };
    uni_dataset *dataset = NULL, *part = NULL;
    uni_value *plan = NULL;
    int64_t count = 0;
    assert_ok(uni_dataset_from_functions(&dataset, &callbacks, &failure));
    assert_ok(uni_dataset_plan(&plan, dataset, 1, &failure));
    assert_string_equal(uni_value_as_string(uni_value_path(plan, "0.pieces.1.file"), ""), "b");
    assert_int_equal(uni_value_as_int(uni_value_path(plan, "0.pieces.1.end"), 0), 3);
    assert_string_equal(uni_value_as_string(uni_value_path(plan, "0.pieces.1.unit"), ""), "rows");
    assert_ok(uni_dataset_shard_files(&part, dataset, 1, 2, &failure));
    assert_ok(uni_dataset_count(&count, part, &failure));
    assert_int_equal(count, 3);
    uni_value_free(plan);
    uni_dataset_unref(part);
    uni_dataset_unref(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_by_files),
        cmocka_unit_test(csv_files),
        cmocka_unit_test(states_of_files),
        cmocka_unit_test(other_blocks),
        cmocka_unit_test(windows_keep_to_themselves),
        cmocka_unit_test(merged_windows_are_uniform),
        cmocka_unit_test(plans_say_what_is_read),
        cmocka_unit_test(blocks_of_callbacks_have_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
