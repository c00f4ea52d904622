/* blocks_test.c - what a binding asks of blocks: their rows add up, and what has no blocks says
 * so. */
#include "data/shared.h"
#include "data/test.h"

enum { ROWS = 200000 };

static uni_dataset *open_lines(const char *dir)
{
    char *text = malloc((size_t)ROWS * 32 + 16), *to = text + sprintf(text, "id,text\n");
    for (int i = 0; i < ROWS; i++)
        to += sprintf(to, "%d,%.*s\n", i, 10 + i % 13, "xxxxxxxxxxxxxxxxxxxxxxxxx");
    char *path = test_file(dir, "lines.csv", text, (size_t)(to - text));
    uni_dataset *dataset = NULL;
    assert_ok(uni_dataset_read_csv(&dataset, 1, (const char *const[]){ path }, NULL, &failure));
    free(path);
    free(text);
    return dataset;
}

static int keep_even(void *context, const uni_table *table, int64_t row, uni_error *err)
{
    const int64_t *ids = uni_array_data(uni_table_find(table, "id")->values);
    return ids[row] % 2 == 0;
}

static int64_t rows_of(uni_dataset *dataset)
{
    int64_t blocks = uni__dataset_num_blocks(dataset), total = 0;
    int64_t *rows = calloc((size_t)blocks, sizeof *rows);
    assert_ok(uni__dataset_count_blocks(dataset, 0, blocks / 2, rows, &failure));
    assert_ok(uni__dataset_count_blocks(dataset, blocks / 2, blocks, rows + blocks / 2, &failure));
    for (int64_t i = 0; i < blocks; i++)
        total += rows[i];
    free(rows);
    return total;
}

static void rows_add_up(void **unused)
{
    char *dir = test_dir();
    uni_dataset *lines = open_lines(dir), *even = NULL;
    assert_true(uni__dataset_num_blocks(lines) > 20);
    assert_int_equal(rows_of(lines), ROWS);
    assert_ok(uni_dataset_filter(&even, lines, keep_even, NULL, &failure));
    assert_int_equal(rows_of(even), ROWS / 2);
    int64_t one = 0;
    assert_fails(uni__dataset_count_blocks(lines, 0, 1 << 20, &one, &failure), UNI_EINVAL, "of ");
    uni_dataset_unref(even);
    uni_dataset_unref(lines);
    test_dir_remove(dir);
}

/* Skipped bad rows are not counted. */
static void bad_rows_are_no_rows(void **unused)
{
    char *dir = test_dir(), *text = malloc((size_t)ROWS * 32 + 16);
    char *to = text + sprintf(text, "id,size,text\n");
    for (int i = 0; i < ROWS; i++)
        to += sprintf(to,
                      i > ROWS / 2 && i % 1000 == 7 ? "%d,%d,xxxxxxxxxx\nbad,row,x\n"
                                                    : "%d,%d,xxxxxxxxxx\n",
                      i, 1000000 + i);
    char *path = test_file(dir, "bad.csv", text, (size_t)(to - text));
    uni_dataset *dataset = NULL, *parts[3];
    const uni_csv_options options = { .bad.skip = true, .block_bytes = 65536 };
    assert_ok(uni_dataset_read_csv(&dataset, 1, (const char *const[]){ path }, &options, &failure));
    assert_true(uni__dataset_num_blocks(dataset) > 20);
    assert_ok(uni_dataset_split(parts, dataset, 3, true, &failure));
    for (int i = 0; i < 3; i++) {
        int64_t rows = 0;
        uni_table *first = NULL;
        assert_ok(uni_dataset_count(&rows, parts[i], &failure));
        assert_int_equal(rows, ROWS / 3);
        assert_ok(uni_dataset_take(&first, parts[i], 1, &failure));
        assert_int_equal(((int64_t *)uni_array_data(uni_table_find(first, "id")->values))[0],
                         ROWS / 3 * i);
        uni_table_unref(first);
        uni_dataset_unref(parts[i]);
    }
    uni_dataset_unref(dataset);
    free(path);
    free(text);
    test_dir_remove(dir);
}

static void shapes(void **unused)
{
    char *dir = test_dir();
    uni_dataset *lines = open_lines(dir), *numbers = NULL, *shuffled = NULL;
    uni_value *shape = NULL;
    assert_ok(uni_dataset_shuffle(&shuffled, lines, 500, 7, &failure));
    assert_ok(uni__dataset_shape(shuffled, &shape, &failure));
    assert_string_equal(uni_dict_get_string(shape, "kind", ""), "block");
    assert_true(uni_dict_get_bool(shape, "shuffle", false));
    assert_true(uni_dict_get_bool(shape, "one_to_one", false));
    uni_value_free(shape);
    assert_ok(uni_dataset_range(&numbers, 10, &failure));
    assert_ok(uni__dataset_shape(numbers, &shape, &failure));
    assert_string_equal(uni_dict_get_string(shape, "kind", ""), "global");
    int64_t rows = 0;
    assert_fails(uni__dataset_count_blocks(numbers, 0, 1, &rows, &failure), UNI_EUNSUPPORTED,
                 "block order");
    uni_value_free(shape);
    uni_dataset_unref(shuffled);
    uni_dataset_unref(numbers);
    uni_dataset_unref(lines);
    test_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_add_up),
                                        cmocka_unit_test(bad_rows_are_no_rows),
                                        cmocka_unit_test(shapes) };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
