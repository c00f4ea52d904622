/* misuse_test.c - user errors in C: functions that fail without a message, NULL arguments, huge
 * numbers, a parent's iterator in a forked child, and a file with very many columns. */
#include <sys/wait.h>
#include "data/test.h"

static uni_dataset *range(int64_t rows)
{
    uni_dataset *dataset = NULL;
    assert_ok(uni_dataset_range(&dataset, rows, &failure));
    return dataset;
}

/* ---- functions that fail without a message ---- */

static int no_filter(void *context, const uni_table *table, int64_t row, uni_error *err)
{
    return -5;
}

static int no_map(void *context, const uni_table *table, int64_t row, uni_value *out,
                  uni_error *err)
{
    return -5;
}

static int no_range(void *context, int64_t begin, int64_t end, uni_table **out, uni_error *err)
{
    if (end - begin > 1)
        return -5;
    return uni_table_new(out, end - begin, err);
}

static int no_table(void *context, void *cursor, uni_table **out, uni_error *err)
{
    return 1;
}

/* An error, not the end of the data. */
static void failing_without_a_message(void **unused)
{
    uni_dataset *rows = range(10), *made = NULL;
    uni_table *table = NULL;
    assert_ok(uni_dataset_filter(&made, rows, no_filter, NULL, &failure));
    assert_fails(uni_dataset_take(&table, made, 10, &failure), UNI_EFUNCTION, "without a message");
    uni_dataset_unref(made);
    assert_ok(uni_dataset_map(&made, rows, no_map, NULL, &failure));
    assert_fails(uni_dataset_take(&table, made, 10, &failure), UNI_EFUNCTION, "without a message");
    uni_dataset_unref(made);
    assert_ok(uni_dataset_flat_map(&made, rows, no_map, NULL, &failure));
    assert_fails(uni_dataset_take(&table, made, 10, &failure), UNI_EFUNCTION, "without a message");
    uni_dataset_unref(made);
    char name[] = "mine";
    uni_source_functions mine = { .name = name, .num_rows = 10, .read_range = no_range };
    assert_ok(uni_dataset_from_functions(&made, &mine, &failure));
    name[0] = 'x'; /* it was copied */
    assert_fails(uni_dataset_take(&table, made, 10, &failure), UNI_EFUNCTION, "mine: the function");
    uni_dataset_unref(made);
    assert_fails(uni_dataset_from_functions(
                     &made, &(uni_source_functions){ .name = "mine", .next = no_table }, &failure),
                 UNI_EFUNCTION, "mine: next returned 1 and no table");
    mine.num_rows = -10;
    assert_fails(uni_dataset_from_functions(&made, &mine, &failure), UNI_EINVAL, "-10 rows");
    uni_dataset_unref(rows);
}

/* ---- NULL arguments ---- */

static void nothing_given(void **unused)
{
    uni_dataset *rows = range(10), *made = NULL;
    const uni_table *schema = NULL;
    int64_t count = 0;
    assert_fails(uni_dataset_map(&made, rows, NULL, NULL, &failure), UNI_EINVAL, "map needs");
    assert_fails(uni_dataset_filter(&made, rows, NULL, NULL, &failure), UNI_EINVAL, "filter needs");
    assert_fails(uni_dataset_flat_map(&made, rows, NULL, NULL, &failure), UNI_EINVAL, "flat_map");
    assert_fails(uni_dataset_count(&count, NULL, &failure), UNI_EINVAL, "no dataset");
    assert_fails(uni_dataset_schema(&schema, NULL, &failure), UNI_EINVAL, "no dataset");
    assert_fails(uni_dataset_union(&made, 2, (uni_dataset *[]){ rows, NULL }, &failure), UNI_EINVAL,
                 "no dataset 1");
    assert_fails(uni_dataset_zip(&made, rows, NULL, &failure), UNI_EINVAL, "two datasets");
    assert_fails(uni_dataset_from_table(&made, NULL, &failure), UNI_EINVAL, "no table");
    assert_fails(
        uni_dataset_read_csv(&made, 2, (const char *const[]){ "a.csv", NULL }, NULL, &failure),
        UNI_ENOTFOUND, "a.csv");
    assert_fails(uni_dataset_read_csv(&made, 1, (const char *const[]){ NULL }, NULL, &failure),
                 UNI_EINVAL, "path 1 of 1");
    assert_fails(uni_dataset_split_at_indices(&made, rows, -1, NULL, &failure), UNI_EINVAL, "-1");
    assert_null(made);
    uni_dataset_unref(rows);
}

/* ---- huge numbers ---- */

static int64_t rows_with(uni_dataset *dataset, const uni_data_options *options)
{
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL;
    int64_t rows = 0;
    assert_ok(uni_dataset_iterate(&it, dataset, options, &failure));
    while (uni_dataset_iterator_next(&batch, it, &failure) > 0) {
        rows += uni_table_num_rows(batch);
        uni_table_unref(batch);
    }
    uni_dataset_iterator_free(it);
    return rows;
}

static void endless_numbers(void **unused)
{
    char *dir = test_dir(), *path = test_file(dir, "a.csv", "a\n1\n2\n3\n", 8);
    const char *const paths[] = { path };
    uni_dataset *rows = range(1000), *csv = NULL;
    uni_csv_options options = { .block_bytes = INT64_MAX };
    int64_t count = 0;
    assert_ok(uni_dataset_read_csv(&csv, 1, paths, &options, &failure));
    assert_ok(uni_dataset_count(&count, csv, &failure));
    assert_int_equal(count, 3); /* there were none */
    uni_dataset_unref(csv);
    options.block_bytes = -1;
    assert_fails(uni_dataset_read_csv(&csv, 1, paths, &options, &failure), UNI_EINVAL,
                 "block_bytes: -1");
    uni_data_options whole = { .batch_size = INT64_MAX, .prefetch = INT64_MAX };
    assert_int_equal(rows_with(rows, &whole), 1000);
    whole.num_shards = 2;
    whole.equal = true;
    assert_int_equal(rows_with(rows, &whole), 500);
    whole.global_batch_size = INT64_MAX;
    assert_int_equal(rows_with(rows, &whole), 500);
    uni_dataset_iterator *it = NULL;
    assert_fails(uni_dataset_iterate(&it, rows, &(uni_data_options){ .num_shards = -2 }, &failure),
                 UNI_EINVAL, "num_shards");
    assert_fails(uni_dataset_iterate(&it, rows, &(uni_data_options){ .prefetch = -7 }, &failure),
                 UNI_EINVAL, "prefetch");
    uni_dataset_unref(rows);
    free(path);
    test_dir_remove(dir);
}

/* ---- forked child ---- */

static int slow(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    usleep(1000);
    *out = uni_table_ref(in);
    return 0;
}

/* The threads exist only in the parent, so the iterator must fail instead of waiting forever. An
 * iterator that the child opens itself works. */
static int in_the_child(uni_dataset_iterator *it, uni_dataset *dataset)
{
    uni_error err = { 0 };
    uni_table *batch = NULL;
    int more = 0;
    alarm(20);
    while ((more = uni_dataset_iterator_next(&batch, it, &err)) > 0)
        uni_table_unref(batch);
    uni_dataset_iterator_free(it);
    if (more != UNI_ESTATE || strstr(err.message, "forked") == NULL)
        return 1;
    return rows_with(dataset, NULL) == 100000 ? 0 : 2;
}

static void a_forked_child(void **unused)
{
    uni_dataset *rows = range(100000), *slowed = NULL;
    uni_map_options options = { .function = slow, .batch_size = 1000 };
    assert_ok(uni_dataset_map_batches(&slowed, rows, &options, &failure));
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL;
    assert_ok(uni_dataset_iterate(&it, slowed, &(uni_data_options){ .prefetch = 1 }, &failure));
    assert_int_equal(uni_dataset_iterator_next(&batch, it, &failure), 1);
    uni_table_unref(batch);
    /* Wait until the prefetch is full and the threads sleep: a sanitizer's malloc does not survive
     * a fork in the middle of an allocation. */
    usleep(200000);
    pid_t child = fork();
    if (child == 0)
        _exit(in_the_child(it, slowed));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(uni_dataset_iterator_next(&batch, it, &failure), 1); /* the parent goes on */
    uni_table_unref(batch);
    uni_dataset_iterator_free(it);
    uni_dataset_unref(slowed);
    uni_dataset_unref(rows);
}

/* ---- many columns ---- */

/* Names are looked up in an index: the cost is linear in the number of columns. */
static void many_columns(void **unused)
{
    enum { COLUMNS = 30000 };
    char *dir = test_dir(), *text = malloc(COLUMNS * 16);
    size_t size = 0;
    for (int row = 0; row < 2; row++) {
        for (int i = 0; i < COLUMNS; i++)
            size +=
                (size_t)sprintf(text + size, "%s%s%d", i > 0 ? "," : "", row == 0 ? "c" : "", i);
        text[size++] = '\n';
    }
    char *path = test_file(dir, "wide.csv", text, size);
    uni_dataset *csv = NULL;
    uni_table *table = NULL;
    assert_ok(uni_dataset_read_csv(&csv, 1, (const char *const[]){ path }, NULL, &failure));
    assert_ok(uni_dataset_take(&table, csv, 10, &failure));
    assert_int_equal(uni_table_num_columns(table), COLUMNS);
    const uni_table_column *last = uni_table_find(table, "c29999");
    assert_int_equal(((const int64_t *)uni_array_data(last->values))[0], 29999);
    uni_table_unref(table);
    uni_dataset_unref(csv);
    free(path);
    free(text);
    test_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_without_a_message),
        cmocka_unit_test(nothing_given),
        cmocka_unit_test(endless_numbers),
        cmocka_unit_test(a_forked_child),
        cmocka_unit_test(many_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
