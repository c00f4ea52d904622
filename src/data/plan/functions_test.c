/* functions_test.c - user functions in C: as block sources, on empty input, with rows that become
 * large, slow ones, and a caller that interrupts. */
#include <math.h>
#include <stdatomic.h>
#include <time.h>
#include "data/shared.h"
#include "data/test.h"

static int64_t id_at(const uni_table *table, int64_t row)
{
    return ((const int64_t *)uni_array_data(uni_table_find(table, "id")->values))[row];
}

/* ---- blocks ---- */

static const int64_t rows_of_blocks[] = { 10, 0, 25, 7 };

static int read_block(void *context, int64_t block, uni_table **out, uni_error *err)
{
    int64_t first = 0;
    for (int64_t i = 0; i < block; i++)
        first += rows_of_blocks[i];
    *out = ids_table(first, first + rows_of_blocks[block] + (context != NULL && block == 2));
    return 0;
}

static void blocks_of_ones_own(void **unused)
{
    uni_source_functions callbacks = {
        .name = "own", .num_blocks = 4, .read_block = read_block, .block_rows = rows_of_blocks
    };
    uni_dataset *dataset = NULL, *shuffled = NULL;
    uni_table *table = NULL;
    int64_t count = 0;
    assert_ok(uni_dataset_from_functions(&dataset, &callbacks, &failure));
    assert_int_equal(uni__dataset_num_blocks(dataset), 4);
    assert_int_equal(uni__dataset_known_rows(dataset), 42);
    assert_ok(uni_dataset_count(&count, dataset, &failure));
    assert_int_equal(count, 42);
    assert_ok(uni_dataset_shuffle(&shuffled, dataset, 0, 3, &failure));
    assert_ok(uni_dataset_take(&table, shuffled, 100, &failure));
    bool seen[42] = { 0 };
    assert_int_equal(uni_table_num_rows(table), 42);
    for (int64_t i = 0; i < 42; i++)
        seen[id_at(table, i)] = true;
    for (int i = 0; i < 42; i++)
        assert_true(seen[i]);
    uni_table_unref(table);
    uni_dataset_unref(shuffled);
    uni_dataset_unref(dataset);
    callbacks.context = &count; /* one row more than was said */
    assert_ok(uni_dataset_from_functions(&dataset, &callbacks, &failure));
    assert_fails(uni_dataset_take(&table, dataset, 100, &failure), UNI_EFUNCTION,
                 "block 2 came with 26 rows, it should have 25");
    uni_dataset_unref(dataset);
    callbacks.num_blocks = 0;
    assert_fails(uni_dataset_from_functions(&dataset, &callbacks, &failure), UNI_EINVAL, "blocks");
}

/* ---- empty input ---- */

static int is_rare(void *context, const uni_table *table, int64_t row, uni_error *err)
{
    return id_at(table, row) % 10000 == 7;
}

static int needs_rows(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    if (uni_table_num_rows(in) == 0)
        return uni_error_set(err, UNI_EFUNCTION, "a table of no rows");
    *out = uni_table_ref(in);
    return 0;
}

static void no_tables_of_no_rows(void **unused)
{
    uni_dataset *range = NULL, *few = NULL, *mapped = NULL;
    uni_table *table = NULL;
    assert_ok(uni_dataset_range(&range, 50000, &failure));
    assert_ok(uni_dataset_filter(&few, range, is_rare, NULL, &failure));
    assert_ok(uni_dataset_map_batches(
        &mapped, few, &(uni_map_options){ .function = needs_rows, .batch_size = 3 }, &failure));
    assert_ok(uni_dataset_take(&table, mapped, 100, &failure));
    assert_int_equal(uni_table_num_rows(table), 5);
    for (int64_t i = 0; i < 5; i++)
        assert_int_equal(id_at(table, i), i * 10000 + 7);
    uni_table_unref(table);
    uni_dataset_unref(mapped);
    uni_dataset_unref(few);
    uni_dataset_unref(range);
}

/* ---- rows that become large ---- */

enum { PIXELS = 64 << 10 };
static _Atomic int64_t most_rows;

static int to_image(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    int64_t rows = uni_table_num_rows(in);
    uni_array *image = NULL;
    if (rows > atomic_load(&most_rows))
        atomic_store(&most_rows, rows);
    UNI_TRY(uni_array_new(&image, UNI_U8, 2, (const int64_t[]){ rows, PIXELS }, err));
    int status = uni_table_new(out, rows, err);
    if (status == 0)
        status = uni_table_add_array(*out, "image", image, err);
    uni_array_unref(image);
    return status;
}

static void tasks_shrink_to_what_is_made(void **unused)
{
    uni_dataset *range = NULL, *images = NULL;
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL;
    int64_t rows = 0;
    assert_ok(uni_dataset_range(&range, 20000, &failure));
    assert_ok(uni_dataset_map_batches(&images, range, &(uni_map_options){ .function = to_image },
                                      &failure));
    assert_ok(uni_dataset_iterate(&it, images, &(uni_data_options){ .batch_size = 16 }, &failure));
    while (uni_dataset_iterator_next(&batch, it, &failure) > 0) {
        rows += uni_table_num_rows(batch);
        uni_table_unref(batch);
    }
    assert_int_equal(rows, 20000);
    /* 4 MiB are 64 rows. Tasks that began before the first result came back may hold a few times
     * that. Without the limit a task had 131072 rows of 8 bytes. */
    assert_in_range(atomic_load(&most_rows), 16, 2048);
    uni_dataset_iterator_free(it);
    uni_dataset_unref(images);
    uni_dataset_unref(range);
}

/* ---- interrupts ---- */

static _Atomic bool had_enough;

static int slow(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    for (int i = 0; i < 1000 && !atomic_load(&had_enough); i++)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    *out = uni_table_ref(in);
    return 0;
}

static int asked;

static int enough(void)
{
    if (++asked < 3)
        return 0;
    atomic_store(&had_enough, true);
    return 1;
}

static void a_wait_can_be_interrupted(void **unused)
{
    uni_dataset *range = NULL, *mapped = NULL, *kept = NULL;
    uni_table *table = NULL;
    assert_ok(uni_dataset_range(&range, 1000, &failure));
    assert_ok(uni_dataset_map_batches(
        &mapped, range, &(uni_map_options){ .function = slow, .changes_rows = true }, &failure));
    uni__dataset_set_interrupt(mapped, enough);
    int64_t count = 0;
    for (int how = 0; how < 3; how++) {
        asked = 0;
        atomic_store(&had_enough, false);
        int status = how == 0   ? uni_dataset_take(&table, mapped, 1000, &failure)
                     : how == 1 ? uni_dataset_count(&count, mapped, &failure)
                                : uni_dataset_cache(&kept, mapped, 0, &failure);
        assert_int_equal(status, UNI_ECANCELED);
        assert_int_equal(asked, 3);
    }
    uni_dataset_unref(mapped);
    uni_dataset_unref(range);
}

/* ---- early exit ---- */

/* Counts function calls that begin after the iterator started to close. */
struct leaving {
    atomic_bool leaves;
    atomic_int late;
};

static int slow_call(struct leaving *leaving)
{
    if (atomic_load(&leaving->leaves))
        atomic_fetch_add(&leaving->late, 1);
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return 0;
}

static int slow_row(void *context, const uni_table *in, int64_t row, uni_value *out, uni_error *err)
{
    UNI_TRY(uni_dict_take(out, "id", uni_value_int(id_at(in, row))));
    return slow_call(context);
}

static int slow_filter(void *context, const uni_table *in, int64_t row, uni_error *err)
{
    slow_call(context);
    return 1;
}

static int slow_batch(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    *out = uni_table_ref(in);
    return slow_call(context);
}

static void leave(uni_dataset *dataset, struct leaving *leaving)
{
    enum { ROWS = 5000 }; /* rows in a batch, and so in a task: 5 seconds */
    uni_dataset_iterator *it = NULL;
    assert_ok(
        uni_dataset_iterate(&it, dataset, &(uni_data_options){ .batch_size = ROWS }, &failure));
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    atomic_store(&leaving->leaves, true);
    uni_dataset_iterator_free(it);
    /* Each thread had one call in progress. More calls fit only if this thread took that many
     * milliseconds to reach the next line. */
    assert_in_range(atomic_load(&leaving->late), 0, 200);
    uni_dataset_unref(dataset);
}

/* Closing an iterator waits for the running call, not for the rest of the task. */
static void leaving_waits_for_one_call(void **unused)
{
    uni_dataset *range = NULL, *slow = NULL;
    struct leaving leaving[3] = { 0 };
    assert_ok(uni_dataset_range(&range, 100000, &failure));
    assert_ok(uni_dataset_map(&slow, range, slow_row, &leaving[0], &failure));
    leave(slow, &leaving[0]);
    assert_ok(uni_dataset_filter(&slow, range, slow_filter, &leaving[1], &failure));
    leave(slow, &leaving[1]);
    assert_ok(uni_dataset_map_batches(
        &slow, range,
        &(uni_map_options){ .function = slow_batch, .context = &leaving[2], .batch_size = 1 },
        &failure));
    leave(slow, &leaving[2]);
    uni_dataset_unref(range);
}

/* ---- missing values ---- */

static void missing_numbers_side_by_side(void **unused)
{
    char *dir = test_dir(), *path = test_file(dir, "a.csv", "a,b\n1,2\n,4\n", 11);
    uni_dataset *rows = NULL, *wide = NULL;
    uni_table *table = NULL;
    const char *const names[] = { "a", "b", NULL };
    assert_ok(uni_dataset_read_csv(&rows, 1, (const char *const[]){ path },
                                   &(uni_csv_options){ .masks = true }, &failure));
    assert_ok(uni_dataset_concat_columns(&wide, rows, names, "f", UNI_F32, &failure));
    assert_ok(uni_dataset_take(&table, wide, 10, &failure));
    const float *f = uni_array_data(uni_table_find(table, "f")->values);
    assert_true(f[0] == 1 && f[1] == 2 && isnan(f[2]) && f[3] == 4);
    uni_table_unref(table);
    uni_dataset_unref(wide);
    assert_ok(uni_dataset_concat_columns(&wide, rows, names, "f", UNI_I32, &failure));
    assert_fails(uni_dataset_take(&table, wide, 10, &failure), UNI_EDTYPE,
                 "missing values, which int32 cannot hold");
    uni_dataset_unref(wide);
    uni_dataset_unref(rows);
    free(path);
    test_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_ones_own),
        cmocka_unit_test(no_tables_of_no_rows),
        cmocka_unit_test(tasks_shrink_to_what_is_made),
        cmocka_unit_test(a_wait_can_be_interrupted),
        cmocka_unit_test(leaving_waits_for_one_call),
        cmocka_unit_test(missing_numbers_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
