/* dataset_test.c - transforms from the user's side: rows in, rows out; npy files against their
 * bytes; error messages; memory within its budget. */
#include <math.h>
#include <sys/resource.h>
#include "data/shared.h"
#include "base/shared.h"
#include "data/test.h"

static uni_dataset *range(int64_t n)
{
    uni_dataset *dataset = NULL;
    assert_ok(uni_dataset_range(&dataset, n, &failure));
    return dataset;
}

/* Returns the ids of all rows; the caller frees them. Takes ownership of the dataset. */
static int64_t *ids_of(uni_dataset *dataset, int64_t *count)
{
    uni_table *table = NULL;
    assert_ok(uni_dataset_take(&table, dataset, 1000000, &failure));
    *count = uni_table_num_rows(table);
    int64_t *ids = calloc((size_t)*count + 1, sizeof *ids);
    if (*count > 0)
        memcpy(ids, uni_array_data(uni_table_find(table, "id")->values),
               (size_t)*count * sizeof *ids);
    uni_table_unref(table);
    uni_dataset_unref(dataset);
    return ids;
}

static void assert_ids(uni_dataset *dataset, int64_t expected, int64_t first, int64_t step)
{
    int64_t count = 0, *ids = ids_of(dataset, &count);
    assert_int_equal(count, expected);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(ids[i], first + i * step);
    free(ids);
}

static int is_even(void *context, const uni_table *table, int64_t row, uni_error *err)
{
    return ((const int64_t *)uni_array_data(uni_table_find(table, "id")->values))[row] % 2 == 0;
}

static int twice(void *context, const uni_table *table, int64_t row, uni_value *out, uni_error *err)
{
    int64_t id = ((const int64_t *)uni_array_data(uni_table_find(table, "id")->values))[row];
    return uni_dict_take(out, "id", uni_value_int(2 * id));
}

static int two_of_each(void *context, const uni_table *table, int64_t row, uni_value *out,
                       uni_error *err)
{
    int64_t id = ((const int64_t *)uni_array_data(uni_table_find(table, "id")->values))[row];
    for (int i = 0; i < 2; i++) {
        uni_value *made = uni_value_dict();
        UNI_TRY(uni_dict_take(made, "id", uni_value_int(2 * id + i)));
        UNI_TRY(uni_list_take(out, made));
    }
    return 0;
}

static void functions(void **unused)
{
    uni_dataset *numbers = range(1000), *made = NULL, *more = NULL;
    assert_ok(uni_dataset_filter(&made, numbers, is_even, NULL, &failure));
    assert_int_equal(uni__dataset_known_rows(made), -1);
    int64_t count = 0;
    assert_ok(uni_dataset_count(&count, made, &failure));
    assert_int_equal(count, 500);
    assert_ids(made, 500, 0, 2);
    assert_ok(uni_dataset_map(&made, numbers, twice, NULL, &failure));
    assert_ids(made, 1000, 0, 2);
    assert_ok(uni_dataset_flat_map(&made, numbers, two_of_each, NULL, &failure));
    assert_ok(uni_dataset_limit(&more, made, 300, &failure));
    uni_dataset_unref(made);
    assert_ids(more, 300, 0, 1);
    uni_dataset_unref(numbers);
}

static int count_calls(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    int64_t *next = context;
    const int64_t *ids = uni_array_data(uni_table_find(in, "id")->values);
    if (uni_table_num_rows(in) > 100 || ids[0] != *next)
        return uni_error_set(err, UNI_EFUNCTION, "row %lld came, not %lld", (long long)ids[0],
                             (long long)*next);
    *next += uni_table_num_rows(in);
    *out = uni_table_ref(in);
    return 0;
}

static int lose_rows(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    return uni_table_slice(out, in, 0, uni_table_num_rows(in) / 2, err);
}

static void batches_in_order(void **unused)
{
    uni_dataset *numbers = range(300000), *made = NULL;
    int64_t next = 0, count = 0;
    uni_map_options options = {
        .function = count_calls, .context = &next, .batch_size = 100, .in_order = true
    };
    assert_ok(uni_dataset_map_batches(&made, numbers, &options, &failure));
    free(ids_of(made, &count));
    assert_int_equal(count, 300000);
    assert_int_equal(next, 300000);
    assert_ok(uni_dataset_map_batches(&made, numbers, &(uni_map_options){ .function = lose_rows },
                                      &failure));
    uni_table *table = NULL;
    assert_fails(uni_dataset_take(&table, made, 10, &failure), UNI_ESHAPE, "changes_rows");
    uni_dataset_unref(made);
    uni_dataset_unref(numbers);
}

static void rows(void **unused)
{
    uni_dataset *numbers = range(100), *made = NULL, *other = NULL, *parts[3];
    assert_ok(uni_dataset_skip(&made, numbers, 90, &failure));
    assert_ids(made, 10, 90, 1);
    assert_ok(uni_dataset_limit(&made, numbers, 1000, &failure));
    assert_ids(made, 100, 0, 1);
    assert_ok(
        uni_dataset_split_at_indices(parts, numbers, 2, (const int64_t[]){ 10, 40 }, &failure));
    assert_ids(parts[0], 10, 0, 1);
    assert_ids(parts[1], 30, 10, 1);
    assert_ids(parts[2], 60, 40, 1);
    assert_ok(uni_dataset_split(parts, numbers, 3, true, &failure));
    for (int i = 0; i < 3; i++)
        assert_ids(parts[i], 33, 33 * i, 1);
    assert_ok(uni_dataset_train_test_split(&made, &other, numbers, 0.25, true, 3, &failure));
    int64_t count = 0, left = 0, sum = 0;
    int64_t *train = ids_of(made, &count), *test = ids_of(other, &left);
    assert_int_equal(count, 75);
    assert_int_equal(left, 25);
    for (int64_t i = 0; i < count; i++)
        sum += train[i];
    for (int64_t i = 0; i < left; i++)
        sum += test[i];
    assert_int_equal(sum, 99 * 100 / 2);
    free(train);
    free(test);
    assert_ok(uni_dataset_union(&made, 2, (uni_dataset *const[]){ numbers, numbers }, &failure));
    train = ids_of(made, &count);
    assert_int_equal(count, 200);
    assert_int_equal(train[150], 50);
    free(train);
    assert_ok(uni_dataset_zip(&made, numbers, numbers, &failure));
    uni_table *table = NULL;
    assert_ok(uni_dataset_take(&table, made, 5, &failure));
    assert_non_null(uni_table_find(table, "id_1"));
    uni_table_unref(table);
    uni_dataset_unref(made);
    other = range(99);
    assert_fails(uni_dataset_zip(&made, numbers, other, &failure), UNI_ESHAPE, "100 rows and 99");
    uni_dataset_unref(other);
    assert_ok(uni_dataset_cache(&made, numbers, 0, &failure));
    assert_ids(made, 100, 0, 1);
    assert_fails(uni_dataset_cache(&made, numbers, 100, &failure), UNI_ELIMIT, "max_bytes");
    uni_dataset_unref(numbers);
}

/* A function infers its columns from a row of the dataset that an empty part was taken from. */
static void parts_without_rows(void **unused)
{
    uni_dataset *numbers = range(100), *even = NULL, *parts[3], *made = NULL;
    const uni_table *schema = NULL;
    assert_ok(uni_dataset_filter(&even, numbers, is_even, NULL, &failure));
    assert_ok(uni_dataset_limit(&parts[0], numbers, 0, &failure));
    assert_ok(uni_dataset_skip(&parts[1], even, 1000, &failure));
    assert_ok(uni_dataset_limit(&parts[2], parts[1], 0, &failure)); /* an empty part of a part */
    for (int i = 0; i < 3; i++) {
        assert_ok(uni_dataset_map(&made, parts[i], twice, NULL, &failure));
        assert_ok(uni_dataset_schema(&schema, made, &failure));
        assert_int_equal(uni_table_num_columns(schema), 1);
        assert_non_null(uni_table_find(schema, "id"));
        assert_ids(made, 0, 0, 0);
        uni_dataset_unref(parts[i]);
    }
    uni_dataset_unref(even);
    uni_dataset_unref(numbers);
}

static int any_row(void *context, const uni_table *table, int64_t row, uni_error *err)
{
    return 1;
}

/* 2 GiB of zero pages that are never touched. */
static void more_rows_than_memory(void **unused)
{
    uni_array *array = NULL;
    uni_table *table = NULL;
    uni_dataset *wide = NULL, *filtered = NULL, *made = NULL;
    assert_ok(uni_array_new(&array, UNI_U8, 2, (const int64_t[]){ 4, 1 << 29 }, &failure));
    assert_ok(uni_table_new(&table, 4, &failure));
    assert_ok(uni_table_add_array(table, "x", array, &failure));
    assert_ok(uni_dataset_from_table(&wide, table, &failure));
    assert_ok(uni_dataset_filter(&filtered, wide, any_row, NULL, &failure));
    assert_fails(uni_dataset_limit(&made, filtered, 3, &failure), UNI_ELIMIT,
                 "limit: a dataset of unknown length keeps the rows in memory");
    assert_fails(uni_dataset_skip(&made, filtered, 1, &failure), UNI_ELIMIT, "before skip");
    assert_fails(uni_dataset_cache(&made, filtered, 1000, &failure), UNI_ELIMIT,
                 "cache: the rows take more than 1000 bytes");
    uni_dataset_unref(filtered);
    uni_dataset_unref(wide);
    uni_table_unref(table);
    uni_array_unref(array);
}

static void columns(void **unused)
{
    uni_value *items = NULL;
    const char *text =
        "[{\"a\": 1, \"b\": 2.5, \"s\": \"x\"}, {\"a\": 300, \"b\": null, \"s\": \"yy\"}]";
    assert_ok(uni_json_read(&items, text, strlen(text), &failure));
    uni_dataset *dataset = NULL, *made = NULL, *more = NULL;
    assert_ok(uni_dataset_from_items(&dataset, items, &failure));
    assert_fails(uni_dataset_select(&made, dataset, (const char *const[]){ "c", NULL }, &failure),
                 UNI_ENOTFOUND, "the columns are a, b, s");
    assert_ok(uni_dataset_concat_columns(&made, dataset, (const char *const[]){ "b", "a", NULL },
                                         "v", UNI_F32, &failure));
    assert_ok(uni_dataset_rename(&more, made, "s", "name", &failure));
    uni_table *table = NULL;
    assert_ok(uni_dataset_take(&table, more, 5, &failure));
    const float *v = uni_array_data(uni_table_find(table, "v")->values);
    assert_true(v[0] == 2.5f && v[1] == 1 && isnan(v[2]) && v[3] == 300);
    assert_non_null(uni_table_find(table, "name"));
    uni_table_unref(table);
    uni_dataset_unref(more);
    uni_dataset_unref(made);
    assert_ok(uni_dataset_cast(&made, dataset, NULL, UNI_I16, &failure));
    uni_dataset_unref(made);
    assert_ok(uni_dataset_cast(&made, dataset, "a", UNI_I16, &failure));
    assert_ok(uni_dataset_take(&table, made, 5, &failure));
    const int16_t *a = uni_array_data(uni_table_find(table, "a")->values);
    assert_true(a[0] == 1 && a[1] == 300);
    uni_table_unref(table);
    uni_dataset_unref(made);
    /* A value that the type cannot hold is an error with the column and the value. */
    assert_ok(uni_dataset_cast(&made, dataset, "a", UNI_U8, &failure));
    assert_int_equal(uni_dataset_take(&table, made, 5, &failure), UNI_EDTYPE);
    assert_non_null(strstr(failure.message, "column a: uint8 cannot hold 300"));
    uni_dataset_unref(made);
    assert_ok(uni_dataset_cast(&made, dataset, "b", UNI_I64, &failure));
    assert_int_equal(uni_dataset_take(&table, made, 5, &failure), UNI_EDTYPE);
    assert_non_null(strstr(failure.message, "column b: NaN is not a value of int64"));
    uni_dataset_unref(made);
    char *shown = NULL;
    assert_ok(uni_dataset_show(&shown, dataset, 1, &failure));
    assert_string_equal(shown, "{\"a\":1,\"b\":2.5,\"s\":\"x\"}\n");
    free(shown);
    uni_dataset_unref(dataset);
    uni_value_free(items);
}

/* An image in a CSV file: as many columns as pixels, found by name, concatenated into one array. */
static void wide_tables(void **unused)
{
    enum { WIDTH = 784 };
    char text[WIDTH][16];
    const char *names[WIDTH + 1] = { NULL };
    uni_table *table = NULL, *taken = NULL;
    assert_ok(uni_table_new(&table, 1, &failure));
    for (int i = 0; i < WIDTH; i++) {
        snprintf(text[i], sizeof text[i], "pixel%d", i);
        names[WIDTH - 1 - i] = text[i];
        uni_array *value = NULL;
        assert_ok(uni_array_new(&value, UNI_F32, 1, (const int64_t[]){ 1 }, &failure));
        *(float *)uni_array_data(value) = (float)i;
        assert_ok(uni_table_add_array(table, text[i], value, &failure));
        assert_fails(uni_table_add_array(table, text[i / 2], value, &failure), UNI_EEXISTS,
                     text[i / 2]);
        uni_array_unref(value);
        for (int j = 0; j <= i; j += 97)
            assert_ptr_equal(uni_table_find(table, text[j]), uni_table_column_at(table, j));
    }
    assert_null(uni_table_find(table, "pixel784"));
    assert_null(uni_table_find(table, ""));
    uni_dataset *dataset = NULL, *made = NULL;
    assert_ok(uni_dataset_from_table(&dataset, table, &failure));
    assert_ok(uni_dataset_concat_columns(&made, dataset, names, "pixels", UNI_F32, &failure));
    assert_ok(uni_dataset_take(&taken, made, 1, &failure));
    assert_int_equal(uni_table_num_columns(taken), 1);
    const float *pixels = uni_array_data(uni_table_find(taken, "pixels")->values);
    assert_true(uni__array_is_shared(uni_table_find(table, "pixel0")->values));
    assert_false(uni__array_is_shared(uni_table_find(taken, "pixels")->values)); /* made anew */
    for (int i = 0; i < WIDTH; i++)
        assert_true(pixels[i] == (float)(WIDTH - 1 - i));
    uni_table_unref(taken);
    uni_dataset_unref(made);
    uni_dataset_unref(dataset);
    uni_table_unref(table);
}

static void epochs(void **unused)
{
    uni_dataset *numbers = range(10), *shuffled = NULL, *made = NULL;
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL;
    assert_ok(uni_dataset_shuffle(&shuffled, numbers, 100000, 1, &failure));
    assert_ok(uni_dataset_repeat(&made, shuffled, 3, &failure));
    assert_ok(uni_dataset_iterate(&it, made, &(uni_data_options){ .batch_size = 4 }, &failure));
    int64_t first[3] = { 0 };
    for (int epoch = 0; epoch < 3; epoch++) {
        assert_int_equal(uni_dataset_iterator_epoch(it), epoch);
        int64_t sizes = 0, batches = 0;
        while (uni_dataset_iterator_next_in_epoch(&batch, it, &failure) > 0) {
            const int64_t *ids = uni_array_data(uni_table_find(batch, "id")->values);
            for (int64_t i = 0; i < uni_table_num_rows(batch) && batches == 0; i++)
                first[epoch] = first[epoch] * 10 + ids[i];
            sizes += uni_table_num_rows(batch);
            batches++;
            uni_table_unref(batch);
        }
        assert_int_equal(sizes, 10);
        assert_int_equal(batches, 3);
    }
    assert_true(uni_dataset_iterator_done(it));
    assert_true(first[0] != first[1] && first[1] != first[2]);
    uni_dataset_iterator_free(it);
    uni_dataset_unref(made);
    assert_ok(uni_dataset_repeat(&made, shuffled, -1, &failure));
    assert_ok(uni_dataset_iterate(
        &it, made, &(uni_data_options){ .batch_size = 4, .drop_remainder = true }, &failure));
    for (int i = 0; i < 100; i++) {
        assert_int_equal(uni_dataset_iterator_next(&batch, it, &failure), 1);
        assert_int_equal(uni_table_num_rows(batch), 4);
        uni_table_unref(batch);
    }
    uni_dataset_iterator_free(it);
    uni_dataset_unref(made);
    uni_dataset_unref(shuffled);
    uni_dataset_unref(numbers);
}

static char *write_npy(const char *dir, const char *name, int64_t rows, int64_t first)
{
    char *content = calloc((size_t)rows + 16, 8);
    memcpy(content, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(content + 10, ' ', 118);
    int length =
        sprintf(content + 10, "{'descr': '<i8', 'fortran_order': False, 'shape': (%lld,), }",
                (long long)rows);
    content[10 + length] = ' ';
    content[127] = '\n';
    for (int64_t i = 0; i < rows; i++)
        memcpy(content + 128 + i * 8, &(int64_t){ first + i }, 8);
    char *path = test_file(dir, name, content, (size_t)rows * 8 + 128);
    free(content);
    return path;
}

static void numpy_files(void **unused)
{
    char *dir = test_dir(), *a = write_npy(dir, "a.npy", 5000, 0),
         *b = write_npy(dir, "b.npy", 777, 5000);
    uni_dataset *dataset = NULL, *shuffled = NULL;
    uni_numpy_options options = { .column = "id" };
    assert_ok(
        uni_dataset_read_numpy(&dataset, 1, (const char *const[]){ dir }, &options, &failure));
    assert_int_equal(uni__dataset_known_rows(dataset), 5777);
    assert_ok(uni_dataset_shuffle(&shuffled, dataset, 0, 9, &failure));
    int64_t count = 0, *ids = ids_of(shuffled, &count);
    uint8_t *seen = calloc(5777, 1);
    for (int64_t i = 0; i < count; i++)
        seen[ids[i]]++;
    for (int i = 0; i < 5777; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
    free(ids);
    uni_value *plan = NULL;
    assert_ok(uni_dataset_plan(&plan, dataset, 2, &failure));
    const uni_value *pieces = uni_value_path(plan, "1.pieces");
    assert_int_equal(uni_list_size(pieces), 2);
    assert_int_equal(uni_dict_get_int(uni_list_get(pieces, 1), "end", 0), 777);
    uni_value_free(plan);
    assert_ids(uni_dataset_ref(dataset), 5777, 0, 1);
    uni_dataset_unref(dataset);
    free(test_file(dir, "b.npy", "\x93NUMPY\x01\x00\x76\x00{", 11));
    assert_fails(uni_dataset_read_numpy(&dataset, 1, (const char *const[]){ b }, NULL, &failure),
                 UNI_EFORMAT, "b.npy");
    free(a);
    free(b);
    test_dir_remove(dir);
}

/* Shards of a large array: more files than a process may have open. */
static void many_numpy_files(void **unused)
{
    enum { FILES = 200, ROWS = 50 };
    char *dir = test_dir();
    for (int i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%03d.npy", i);
        free(write_npy(dir, name, ROWS, (int64_t)i * ROWS));
    }
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 64, before.rlim_max }), 0);
    uni_dataset *dataset = NULL, *shuffled = NULL;
    assert_ok(uni_dataset_read_numpy(&dataset, 1, (const char *const[]){ dir },
                                     &(uni_numpy_options){ .column = "id" }, &failure));
    assert_ok(uni_dataset_shuffle(&shuffled, dataset, 0, 9, &failure));
    int64_t count = 0, sum = 0, *ids = ids_of(shuffled, &count);
    for (int64_t i = 0; i < count; i++)
        sum += ids[i];
    free(ids);
    assert_int_equal(count, FILES * ROWS);
    assert_int_equal(sum, (int64_t)FILES * ROWS * (FILES * ROWS - 1) / 2);
    assert_ids(dataset, FILES * ROWS, 0, 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    test_dir_remove(dir);
}

/* A consumer that keeps nothing stays within the pool's budget; one that keeps every batch still
 * makes progress. */
static void budget(void **unused)
{
    uni_dataset *numbers = range(40000000), *shuffled = NULL;
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL, *kept[200];
    uni_value *stats = NULL;
    assert_ok(uni_dataset_shuffle(&shuffled, numbers, 1000, 1, &failure));
    uni_data_options options = { .batch_size = 10000, .budget = 16 << 20, .threads = 4 };
    assert_ok(uni_dataset_iterate(&it, numbers, &options, &failure));
    while (uni_dataset_iterator_next(&batch, it, &failure) > 0)
        uni_table_unref(batch);
    assert_ok(uni_dataset_iterator_stats(&stats, it, &failure));
    assert_int_equal(uni_dict_get_int(stats, "rows", 0), 40000000);
    assert_true(uni_dict_get_int(stats, "peak_bytes", 0) <= 24 << 20);
    uni_value_free(stats);
    uni_dataset_iterator_free(it);
    options.batch_size = 100000;
    options.budget = 1 << 20;
    assert_ok(uni_dataset_iterate(&it, shuffled, &options, &failure));
    for (int i = 0; i < 200; i++)
        assert_int_equal(uni_dataset_iterator_next(&kept[i], it, &failure), 1);
    uni_dataset_iterator_free(it);
    /* Batches outlive the iterator. */
    for (int i = 0; i < 200; i++)
        uni_table_unref(kept[i]);
    uni_dataset_unref(shuffled);
    uni_dataset_unref(numbers);
}

/* Concatenated batches are contiguous and aligned, so that others can share the memory. */
static void concat_is_aligned(void **unused)
{
    uni_dataset *numbers = range(1000);
    uni_dataset_iterator *it = NULL;
    uni_table *batches[3], *all = NULL, *one = NULL;
    assert_ok(uni_dataset_iterate(&it, numbers, &(uni_data_options){ .batch_size = 7 }, &failure));
    for (int i = 0; i < 3; i++)
        assert_int_equal(uni_dataset_iterator_next(&batches[i], it, &failure), 1);
    assert_ok(uni__dataset_iterator_concat(it, &all, batches, 3, &failure));
    assert_ok(uni__dataset_iterator_concat(it, &one, batches + 2, 1, &failure));
    const int64_t *ids = uni_array_data(uni_table_find(all, "id")->values);
    const int64_t *last = uni_array_data(uni_table_find(one, "id")->values);
    assert_int_equal(uni_table_num_rows(all), 21);
    for (int64_t i = 0; i < 21; i++)
        assert_int_equal(ids[i], i);
    assert_memory_equal(last, ids + 14, 7 * sizeof *ids);
    assert_int_equal((uintptr_t)ids % 64 + (uintptr_t)last % 64, 0);
    for (int i = 0; i < 3; i++)
        uni_table_unref(batches[i]);
    uni_dataset_iterator_free(it); /* batches outlive it */
    assert_int_equal(ids[20], 20);
    uni_table_unref(all);
    uni_table_unref(one);
    uni_dataset_unref(numbers);
}

/* A slice shares the column names of its table, outlives it, and can gain a column. */
static void parts_of_tables(void **unused)
{
    uni_table *whole = NULL, *part = NULL, *smaller = NULL;
    uni_array *values = NULL, *more = NULL;
    char name[16];
    assert_ok(uni_array_new(&values, UNI_I32, 1, (const int64_t[]){ 9 }, &failure));
    assert_ok(uni_array_new(&more, UNI_F32, 1, (const int64_t[]){ 2 }, &failure));
    assert_ok(uni_table_new(&whole, 9, &failure));
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "c%d", i);
        assert_ok(uni_table_add_array(whole, name, values, &failure));
    }
    assert_ok(uni_table_slice(&part, whole, 2, 7, &failure));
    uni_table_unref(whole);
    assert_ok(uni_table_slice(&smaller, part, 1, 3, &failure));
    uni_table_unref(part);
    assert_ptr_equal(uni_table_find(smaller, "c77"), uni_table_column_at(smaller, 77));
    assert_ptr_equal((int32_t *)uni_array_data(uni_table_find(smaller, "c77")->values),
                     (int32_t *)uni_array_data(values) + 3);
    assert_null(uni_table_find(smaller, "more"));
    assert_fails(uni_table_add_array(smaller, "c5", more, &failure), UNI_EEXISTS, "c5");
    assert_ok(uni_table_add_array(smaller, "more", more, &failure));
    assert_int_equal(uni_table_num_columns(smaller), 101);
    assert_ptr_equal(uni_table_find(smaller, "more"), uni_table_column_at(smaller, 100));
    assert_ptr_equal(uni_table_find(smaller, "c99"), uni_table_column_at(smaller, 99));
    uni_table_unref(smaller);
    uni_array_unref(values);
    uni_array_unref(more);
}

static void from_config(void **unused)
{
    const char *text = "{\"range\": 100, \"skip\": 10, \"limit\": 20, \"batch_size\": 7}";
    uni_value *config = NULL;
    uni_dataset *dataset = NULL;
    assert_ok(uni_json_read(&config, text, strlen(text), &failure));
    assert_ok(uni_dataset_from_config(&dataset, config, &failure));
    assert_ids(dataset, 20, 10, 1);
    assert_int_equal(uni_dict_take(config, "shufle", uni_value_bool(true)), 0);
    assert_fails(uni_dataset_from_config(&dataset, config, &failure), UNI_EINVAL, "shufle");
    uni_value_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions),
        cmocka_unit_test(batches_in_order),
        cmocka_unit_test(rows),
        cmocka_unit_test(parts_without_rows),
        cmocka_unit_test(more_rows_than_memory),
        cmocka_unit_test(columns),
        cmocka_unit_test(wide_tables),
        cmocka_unit_test(epochs),
        cmocka_unit_test(numpy_files),
        cmocka_unit_test(many_numpy_files),
        cmocka_unit_test(budget),
        cmocka_unit_test(from_config),
        cmocka_unit_test(concat_is_aligned),
        cmocka_unit_test(parts_of_tables),
    };
    return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}
