/*
 * sources_test.c - the readers of this folder from C: good, corrupt and truncated files, and files
 * in many blocks. tests/python/test_data_readers.py compares them with other libraries.
 */
#include <unisono/data_readers.h>
#include <unisono/preprocess.h>

#include <math.h>

#include "base/crc32c.h"
#include "base/test.h"
#include "base/text.h"
#include "data/sources/files.h"
#include "data/sources/image_pixels.h"

static char *place(void **state, const char *name)
{
    return uni__path_join(*state, name, NULL);
}

static char *write_file(void **state, const char *name, const void *data, size_t size)
{
    char *path = place(state, name);
    assert_ok(uni__write_file(path, data, size, false, &failure));
    return path;
}

static uni_table *all_rows(uni_dataset *dataset)
{
    uni_table *table = NULL;
    assert_ok(uni_dataset_take(&table, dataset, 1000000, &failure));
    return table;
}

static const int64_t *ints(const uni_table *table, const char *name)
{
    return uni_array_data(uni_table_find(table, name)->values);
}

/* ---- JSON lines ---- */

static void json_lines_in_any_blocks(void **state)
{
    uni__text text = { 0 };
    for (int i = 0; i < 3000; i++)
        uni__text_add_format(&text, "{\"i\": %d, \"s\": \"%.*s\", \"x\": %d.5}%s", i, i % 37,
                             "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", i,
                             i % 5 == 0 ? "\r\n" : "\n");
    char *path = write_file(state, "a.jsonl", text.data, text.size);
    for (int64_t block = 100; block < 100000; block = block * 3 + 1) {
        uni_dataset *dataset = NULL;
        assert_ok(uni_dataset_read_json(&dataset, 1, (const char *const[]){ path },
                                        &(uni_json_options){ .block_bytes = block }, &failure));
        uni_table *table = all_rows(dataset);
        int64_t count = 0;
        assert_ok(uni_dataset_count(&count, dataset, &failure));
        assert_int_equal(count, 3000);
        assert_int_equal(uni_table_num_rows(table), 3000);
        for (int i = 0; i < 3000; i++)
            assert_int_equal(ints(table, "i")[i], i);
        uni_table_unref(table);
        uni_dataset_unref(dataset);
    }
    uni__text_free(&text);
    free(path);
}

/* Bytes that this process has read from files; -1 if the kernel does not report it. */
static long long bytes_read(void)
{
    long long read = -1;
    FILE *file = fopen("/proc/self/io", "r");
    if (file == NULL || fscanf(file, "rchar: %lld", &read) != 1)
        read = -1;
    if (file != NULL)
        fclose(file);
    return read;
}

/* A block inside a long line leaves it to the block where it begins. */
static void long_lines_are_read_once(void **state)
{
    enum { LINES = 4, LENGTH = 1 << 21 };
    for (int csv = 0; csv < 2; csv++) {
        uni__text text = { 0 };
        uni_dataset *dataset = NULL;
        uni__text_add_string(&text, csv ? "x\n" : "");
        for (int i = 0; i < LINES; i++) {
            uni__text_add_string(&text, csv ? "" : "{\"x\": \"");
            memset(uni__text_reserve(&text, LENGTH), 'a' + i, LENGTH);
            text.size += LENGTH;
            uni__text_add_string(&text, csv ? "\n" : "\"}\n");
        }
        char *path = write_file(state, csv ? "long.csv" : "long.jsonl", text.data, text.size);
        const char *paths[] = { path };
        uni_csv_options options = { .block_bytes = 1 << 16 };
        if (csv)
            assert_ok(uni_dataset_read_csv(&dataset, 1, paths, &options, &failure));
        else
            assert_ok(uni_dataset_read_json(
                &dataset, 1, paths, &(uni_json_options){ .block_bytes = 1 << 16 }, &failure));
        long long before = bytes_read();
        uni_table *table = all_rows(dataset);
        assert_int_equal(uni_table_num_rows(table), LINES);
        assert_true(bytes_read() - before < 8 * (long long)text.size);
        const int64_t *ends = uni_array_data(uni_table_find(table, "x")->offsets);
        assert_int_equal(ends[LINES], (int64_t)LINES * LENGTH);
        uni_table_unref(table);
        uni_dataset_unref(dataset);
        uni__text_free(&text);
        free(path);
    }
}

static void bad_json_has_its_place(void **state)
{
    static const struct {
        const char *text, *where;
    } cases[] = {
        { "{\"a\": 1}\n{\"a\": 01}\n", ":2:7:" }, { "{\"a\": 1}\n\n[1]\n", ":3:1:" },
        { "{\"a\": \"\xff\"}\n", ":1:8:" },       { "{\"a\": 1} x\n", ":1:10:" },
        { "{\"a\": \"\\ud800\"}\n", ":1:8:" },    { "{\"a\": 1e999}\n", ":1:7:" },
        { "{\"a\": [1, 2\n", ":1:12:" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = write_file(state, "bad.jsonl", cases[i].text, strlen(cases[i].text));
        uni_dataset *dataset = NULL;
        assert_fails(
            uni_dataset_read_json(&dataset, 1, (const char *const[]){ path }, NULL, &failure),
            UNI_EFORMAT, cases[i].where);
        assert_null(dataset);
        free(path);
    }
}

/* ---- TFRecord ---- */

/* A record with one int64 feature "y". */
static void add_record(uni__text *file, uint8_t y)
{
    const uint8_t body[] = { 0x0a, 12, 0x0a, 10, 0x0a, 1, 'y', 0x12, 5, 0x1a, 3, 0x0a, 1, y };
    uint64_t size = sizeof body;
    uint32_t sum = uni__crc32c_masked(&size, 8);
    uni__text_add(file, &size, 8);
    uni__text_add(file, &sum, 4);
    uni__text_add(file, body, sizeof body);
    sum = uni__crc32c_masked(body, sizeof body);
    uni__text_add(file, &sum, 4);
}

static int64_t read_records(const char *path, bool skip, int64_t block_bytes, uni_table **table)
{
    uni_dataset *dataset = NULL;
    *table = NULL;
    int status = uni_dataset_read_tfrecords(
        &dataset, 1, (const char *const[]){ path },
        &(uni_tfrecord_options){ .block_bytes = block_bytes, .bad = { .skip = skip } }, &failure);
    if (status == 0)
        status = uni_dataset_take(table, dataset, 100000, &failure);
    uni_dataset_unref(dataset);
    return status;
}

static void tfrecords_in_any_blocks(void **state)
{
    uni__text file = { 0 };
    uni_table *table = NULL;
    for (int i = 0; i < 120; i++)
        add_record(&file, (uint8_t)i);
    char *path = write_file(state, "a.tfrecord", file.data, file.size);
    for (int64_t block = 1; block < 5000; block = block * 2 + 1) {
        assert_ok((int)read_records(path, false, block, &table));
        assert_int_equal(uni_table_num_rows(table), 120);
        for (int i = 0; i < 120; i++)
            assert_int_equal(ints(table, "y")[i], i);
        uni_table_unref(table);
    }
    uni__text_free(&file);
    free(path);
}

/* Changes every byte of the file in turn. Without skipping, the result is an error that names the
 * file; with skipping, all other records. */
static void every_damaged_byte_is_found(void **state)
{
    uni__text file = { 0 };
    uni_table *table = NULL;
    for (int i = 0; i < 6; i++)
        add_record(&file, (uint8_t)i);
    size_t record = file.size / 6;
    for (size_t i = 0; i < file.size; i++) {
        file.data[i] = (char)(file.data[i] ^ 0x40);
        char *path = write_file(state, "b.tfrecord", file.data, file.size);
        assert_fails((int)read_records(path, false, 0, &table), UNI_EFORMAT, "b.tfrecord");
        assert_ok((int)read_records(path, true, 0, &table));
        assert_int_equal(uni_table_num_rows(table), 5);
        for (int64_t row = 0; row < 5; row++)
            assert_int_equal(ints(table, "y")[row], row + (row >= (int64_t)(i / record)));
        uni_table_unref(table);
        free(path);
        file.data[i] = (char)(file.data[i] ^ 0x40);
    }
    for (size_t cut = 1; cut < record; cut++) {
        char *path = write_file(state, "c.tfrecord", file.data, file.size - cut);
        assert_fails((int)read_records(path, false, 0, &table), UNI_EFORMAT, "c.tfrecord");
        free(path);
    }
    uni__text_free(&file);
}

/* ---- a missing library ---- */

static void a_missing_library_is_named(void **state)
{
    uni_dataset *dataset = NULL;
    char *path = write_file(state, "a.txt.gz", "no gzip", 7);
    char *broken = write_file(state, "libunisono-zlib.so", "no library", 10);
    setenv("UNISONO_PLUGINS", *state, 1);
    assert_fails(uni_dataset_read_text(&dataset, 1, (const char *const[]){ path }, NULL, &failure) <
                         0
                     ? failure.code
                     : uni_dataset_take(&(uni_table *){ NULL }, dataset, 1, &failure),
                 UNI_EUNSUPPORTED, "zlib1g");
    unsetenv("UNISONO_PLUGINS");
    uni_dataset_unref(dataset);
    free(path);
    free(broken);
}

/* ---- preprocessors: the same numbers after save and load, and for any number of rows ---- */

static void preprocessors_are_saved(void **state)
{
    const char *options_text = "{\"columns\": [\"id\"]}";
    uni_value *options = NULL, *saved = NULL;
    uni_dataset *rows = NULL, *scaled = NULL;
    uni_preprocessor *scaler = NULL, *loaded = NULL;
    assert_ok(uni_json_read(&options, options_text, strlen(options_text), &failure));
    assert_ok(uni_dataset_range(&rows, 100001, &failure));
    assert_ok(uni_preprocessor_new(&scaler, "StandardScaler", options, &failure));
    assert_fails(uni_preprocessor_transform(&scaled, scaler, rows, &failure), UNI_ESTATE,
                 "not fitted");
    assert_ok(uni_preprocessor_fit(scaler, rows, &failure));
    assert_ok(uni_preprocessor_save(&saved, scaler, &failure));
    assert_ok(uni_preprocessor_load(&loaded, saved, &failure));
    assert_ok(uni_preprocessor_transform(&scaled, loaded, rows, &failure));
    uni_table *table = all_rows(scaled);
    const float *values = uni_array_data(uni_table_find(table, "id")->values);
    /* mean 50000, variance (n^2 - 1) / 12 */
    double deviation = sqrt((100001.0 * 100001.0 - 1) / 12);
    assert_float_equal(values[0], -50000 / deviation, 1e-5);
    assert_float_equal(values[50000], 0, 1e-6);
    uni_table_unref(table);
    uni_dataset_unref(scaled);
    uni_preprocessor_unref(loaded);
    assert_fails(uni_preprocessor_load(&loaded, options, &failure), UNI_EFORMAT, "not a saved");
    uni_dataset_unref(rows);
    uni_preprocessor_unref(scaler);
    uni_value_free(options);
    uni_value_free(saved);
}

/* ---- pixels ---- */

static void a_flat_image_stays_flat(void **state)
{
    uint8_t image[30 * 20 * 3], small[7 * 9 * 3];
    float work[30 * 9 * 3 + 2 * 30 + 8 + 512];
    memset(image, 200, sizeof image);
    assert_true(uni__pixels_work(30, 20, 7, 9, 3) <= sizeof work / sizeof work[0]);
    uni__pixels_resize(image, 30, 20, 3, small, 7, 9, work);
    for (size_t i = 0; i < sizeof small; i++)
        assert_int_equal(small[i], 200);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, enter_directory, leave_directory)

/* Few cells in each of many arrays cost more than parsing them; but shards and shuffles need
 * blocks. */
static void wide_tables_have_large_blocks(void **state)
{
    const uni__files large = { .bytes = (int64_t)64 << 20 }, small = { .bytes = 1 << 20 };
    assert_int_equal(uni__files_wide_blocks(&large, 10), 256 << 10);
    assert_int_equal(uni__files_wide_blocks(&large, 1000), 1 << 20);
    assert_int_equal(uni__files_wide_blocks(&large, 100000), 2 << 20);
    assert_int_equal(uni__files_wide_blocks(&small, 1000), 64 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(json_lines_in_any_blocks),      TEST(bad_json_has_its_place),
        TEST(long_lines_are_read_once),      TEST(tfrecords_in_any_blocks),
        TEST(every_damaged_byte_is_found),   TEST(a_missing_library_is_named),
        TEST(wide_tables_have_large_blocks), TEST(preprocessors_are_saved),
        TEST(a_flat_image_stays_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
