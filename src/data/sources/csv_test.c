/*
 * csv_test.c - CSV as users write it: types, quotes, newlines inside quotes, byte ranges cut
 * anywhere, and errors for bad rows.
 */
#include <math.h>
#include "base/locale_fixture.h"
#include "data/shared.h"
#include "base/random.h"
#include "data/sources/csv.h"
#include "data/test.h"

static uni_dataset *read_text(const char *text, size_t size, const uni_csv_options *options,
                              int expected, const char *part)
{
    char *dir = test_dir(), *path = test_file(dir, "data.csv", text, size);
    uni_dataset *dataset = NULL;
    memset(&failure, 0, sizeof failure);
    int status =
        uni_dataset_read_csv(&dataset, 1, (const char *const[]){ path }, options, &failure);
    if (expected == 0 && status < 0)
        fail_msg("%s", failure.message);
    if (expected != 0 && (status != expected || strstr(failure.message, part) == NULL))
        fail_msg("%s %s; expected %s with \"%s\"", uni_status_name(status), failure.message,
                 uni_status_name(expected), part);
    free(path);
    test_dir_remove(dir);
    return dataset;
}

static uni_table *table_of(uni_dataset *dataset)
{
    uni_table *table = NULL;
    assert_ok(uni_dataset_take(&table, dataset, 1000000, &failure));
    uni_dataset_unref(dataset);
    return table;
}

#define READ(text, options) table_of(read_text(text, strlen(text), options, 0, ""))
#define REFUSE(text, options, part)                                                                \
    assert_null(read_text(text, strlen(text), options, UNI_EFORMAT, part))

static char *string_at(const uni_table *table, const char *name, int64_t row)
{
    static char copy[2000];
    const uni_table_column *column = uni_table_find(table, name);
    assert_non_null(column);
    assert_int_equal(column->field.kind, UNI_FIELD_STRING);
    const int64_t *offsets = uni_array_data(column->offsets);
    int64_t size = offsets[row + 1] - offsets[row];
    if (size > 0)
        memcpy(copy, (char *)uni_array_data(column->values) + offsets[row], (size_t)size);
    copy[size] = 0;
    return copy;
}

static void types(void **unused)
{
    uni_table *table = READ("id,x,ok,name,none\n1,0.5,true,ann,\n-2,1e3,false,\"b,\"\"o\"\"b\",\n"
                            ",nan,True,\"two\nlines\",\n4,-inf,false,,\n",
                            &(uni_csv_options){ .masks = true });
    assert_int_equal(uni_table_num_rows(table), 4);
    assert_int_equal(uni_table_num_columns(table), 5);
    const uni_table_column *id = uni_table_find(table, "id");
    assert_int_equal(id->field.dtype, UNI_I64);
    assert_int_equal(((int64_t *)uni_array_data(id->values))[1], -2);
    assert_non_null(id->valid);
    assert_int_equal(((uint8_t *)uni_array_data(id->valid))[2], 0);
    assert_int_equal(((uint8_t *)uni_array_data(id->valid))[3], 1);
    const double *x = uni_array_data(uni_table_find(table, "x")->values);
    assert_true(x[0] == 0.5 && x[1] == 1000 && isnan(x[2]) && x[3] == -(double)INFINITY);
    assert_int_equal(uni_table_find(table, "ok")->field.dtype, UNI_B8);
    assert_int_equal(((uint8_t *)uni_array_data(uni_table_find(table, "ok")->values))[2], 1);
    assert_string_equal(string_at(table, "name", 1), "b,\"o\"b");
    assert_string_equal(string_at(table, "name", 2), "two\nlines");
    assert_int_equal(uni_table_find(table, "none")->field.dtype, UNI_F64);
    uni_table_unref(table);
}

static uni_dtype dtype_of(const uni_table *table, const char *name)
{
    const uni_table_column *column = uni_table_find(table, name);
    return column->field.kind == UNI_FIELD_NUMBER ? column->field.dtype : 0;
}

/* A column has one type that can also represent missing values: integers with gaps become floating
 * point if that is exact, otherwise text, and so do bools. */
static void gaps_have_a_type(void **unused)
{
    uni_table *table = READ("a,b,c,d,e\n1,1,9007199254740993,true,18446744073709551615\n"
                            ",2,,,\n3,3,4,false,7\n",
                            NULL);
    assert_int_equal(dtype_of(table, "a"), UNI_F64);
    const double *a = uni_array_data(uni_table_find(table, "a")->values);
    assert_true(a[0] == 1 && isnan(a[1]) && a[2] == 3);
    assert_int_equal(dtype_of(table, "b"), UNI_I64);
    assert_string_equal(string_at(table, "c", 0), "9007199254740993");
    assert_string_equal(string_at(table, "d", 1), "");
    assert_string_equal(string_at(table, "e", 0), "18446744073709551615");
    uni_table_unref(table);
    /* Integer types that the user gives have no gaps unless requested. */
    uni_field given = { .name = "a", .kind = UNI_FIELD_NUMBER, .dtype = UNI_I32 };
    uni_csv_options options = { .types = &given, .num_types = 1 };
    REFUSE("a,b\n1,2\nNA,3\n", &options,
           "data.csv:3:1: \"NA\" in column a is missing, which its type cannot say: give the type "
           "float64, which has NaN, or text, or skip such rows");
    options.bad.skip = true;
    table = READ("a,b\n1,2\nNA,3\n5,6\n", &options);
    assert_int_equal(uni_table_num_rows(table), 2);
    uni_table_unref(table);
    options = (uni_csv_options){ .types = &given, .num_types = 1, .masks = true };
    table = READ("a,b\n1,2\nNA,3\n", &options);
    assert_int_equal(dtype_of(table, "a"), UNI_I32);
    assert_int_equal(((uint8_t *)uni_array_data(uni_table_find(table, "a")->valid))[1], 0);
    uni_table_unref(table);
}

/* `rows` rows of integers, the last of which is `odd`. */
static char *whole_numbers(int rows, const char *odd, size_t *size)
{
    char *text = malloc((size_t)rows * 24 + 100);
    size_t at = (size_t)sprintf(text, "a,b\n");
    for (int i = 0; i < rows - 1; i++)
        at += (size_t)sprintf(text + at, "%d,%d\n", i, 1000000000 + i);
    *size = at + (size_t)sprintf(text + at, "%s,1\n", odd);
    return text;
}

/* Values that the first rows do not announce. A small file is read to its end before its types are
 * fixed, as long as numbers stay numbers. A large file keeps its types; a value that does not fit
 * is an error, or skipped and counted. No batch differs from the schema. */
static void types_that_do_not_hold(void **unused)
{
    static const char *const wider[] = { "", "0.5", "18446744073709551615" };
    static const uni_dtype become[] = { UNI_F64, UNI_F64, UNI_U64 };
    size_t size = 0;
    for (int i = 0; i < 3; i++) {
        char *text = whole_numbers(3000, wider[i], &size);
        uni_table *table = table_of(read_text(text, size, NULL, 0, ""));
        assert_int_equal(uni_table_num_rows(table), 3000);
        assert_int_equal(dtype_of(table, "a"), become[i]);
        assert_int_equal(dtype_of(table, "b"), UNI_I64);
        uni_table_unref(table);
        /* An explicit infer_rows is respected. */
        assert_null(read_text(text, size, &(uni_csv_options){ .infer_rows = 1000 }, UNI_EFORMAT,
                              "data.csv:3001:1: "));
        free(text);
    }
    char *text = whole_numbers(3000, "x", &size);
    assert_null(read_text(text, size, NULL, UNI_EFORMAT,
                          "data.csv:3001:1: \"x\" in column a is not a whole number; the column's "
                          "type was taken from the first rows: give it (types)"));
    free(text);
    enum { MANY = 400000 }; /* 7 MB: the block order */
    text = whole_numbers(MANY, "NA", &size);
    char *dir = test_dir(), *path = test_file(dir, "data.csv", text, size);
    for (int skip = 0; skip < 2; skip++) {
        uni_dataset *dataset = NULL;
        assert_ok(uni_dataset_read_csv(&dataset, 1, (const char *const[]){ path },
                                       &(uni_csv_options){ .bad = { .skip = skip } }, &failure));
        const uni_table *schema = NULL;
        assert_ok(uni_dataset_schema(&schema, dataset, &failure));
        assert_int_equal(dtype_of(schema, "a"), UNI_I64);
        uni_dataset_iterator *it = NULL;
        uni_table *batch = NULL;
        int64_t rows = 0;
        int more;
        assert_ok(
            uni_dataset_iterate(&it, dataset, &(uni_data_options){ .batch_size = 4096 }, &failure));
        while ((more = uni_dataset_iterator_next(&batch, it, &failure)) > 0) {
            assert_int_equal(dtype_of(batch, "a"), UNI_I64);
            assert_null(uni_table_find(batch, "a")->valid);
            rows += uni_table_num_rows(batch);
            uni_table_unref(batch);
        }
        if (skip) {
            assert_int_equal(more, 0);
            assert_int_equal(rows, MANY - 1);
        } else {
            assert_int_equal(more, UNI_EFORMAT);
            assert_non_null(strstr(failure.message, "data.csv:400001:1: \"NA\" in column a is "
                                                    "missing, which its type cannot say"));
        }
        uni_dataset_iterator_free(it);
        uni_dataset_unref(dataset);
    }
    test_dir_remove(dir);
    free(path);
    free(text);
}

/* Integers that no int64 holds are not rounded; a record that is not a header is an error. */
static void large_numbers_and_odd_headers(void **unused)
{
    uni_table *table = READ("u,t\n18446744073709551615,9223372036854775808\n1,-1\n", NULL);
    const uni_table_column *u = uni_table_find(table, "u");
    assert_int_equal(u->field.dtype, UNI_U64);
    assert_true(((uint64_t *)uni_array_data(u->values))[0] == UINT64_MAX);
    assert_string_equal(string_at(table, "t", 0), "9223372036854775808");
    uni_table_unref(table);
    REFUSE("a,b\r1,2\r", NULL, "data.csv:1:2: lines end with a carriage return alone");
    REFUSE("a,\xff\n1,2\n", NULL, "data.csv:1:2: a column's name is not valid UTF-8");
    uni_field wrong = { .name = "z", .kind = UNI_FIELD_NUMBER, .dtype = UNI_I64 };
    const uni_csv_options options = { .types = &wrong, .num_types = 1 };
    assert_null(read_text("a,b\n1,2\n", 8, &options, UNI_ENOTFOUND, "its columns are a, b"));
    assert_null(read_text("a,a\n1,2\n", 8, NULL, UNI_EEXISTS, "data.csv:1:2: two columns"));
    /* The first record is longer than the head that types are inferred from. */
    size_t size = 600000;
    char *text = malloc(size + 20);
    int head = sprintf(text, "a,b\n1,\"");
    memset(text + head, '\n', size);
    int tail = sprintf(text + head + size, "\"\n2,y\n");
    table = table_of(read_text(text, (size_t)head + size + (size_t)tail,
                               &(uni_csv_options){ .block_bytes = 1 << 20 }, 0, ""));
    assert_int_equal(uni_table_num_rows(table), 2);
    assert_int_equal(uni_table_find(table, "b")->field.kind, UNI_FIELD_STRING);
    uni_table_unref(table);
    free(text);
}

static void given_types(void **unused)
{
    const uni_field given[] = { { .name = "a", .kind = UNI_FIELD_NUMBER, .dtype = UNI_F32 },
                                { .name = "b", .kind = UNI_FIELD_STRING },
                                { .name = "c", .kind = UNI_FIELD_NUMBER, .dtype = UNI_U8 } };
    const char *const columns[] = { "c", "a", NULL };
    uni_csv_options options = { .types = given, .num_types = 3, .columns = columns };
    uni_table *table =
        READ("a;b;c\r\n1;2;3\r\n4;5;255\r\n",
             &((uni_csv_options){
                 .types = given, .num_types = 3, .columns = columns, .delimiter = ';' }));
    assert_int_equal(uni_table_num_columns(table), 2);
    assert_string_equal(uni_table_column_at(table, 0)->field.name, "c");
    assert_int_equal(((uint8_t *)uni_array_data(uni_table_find(table, "c")->values))[1], 255);
    assert_true(((float *)uni_array_data(uni_table_find(table, "a")->values))[1] == 4);
    uni_table_unref(table);
    REFUSE("a,b,c\n1,2,3\n4,5,256\n", &options, "data.csv:3:3: \"256\" in column c");
    table = READ("1,2\n3,4\n", &((uni_csv_options){ .no_header = true }));
    assert_int_equal(uni_table_num_rows(table), 2);
    assert_string_equal(uni_table_column_at(table, 1)->field.name, "f1");
    uni_table_unref(table);
    /* A float is rounded once, not through a double. */
    options.columns = (const char *const[]){ "a", NULL };
    table = READ("a,b,c\n1.00000017881393432617187499,2,3\n", &options);
    assert_true(((float *)uni_array_data(uni_table_find(table, "a")->values))[0] ==
                strtof("1.00000017881393432617187499", NULL));
    uni_table_unref(table);
}

/* Files of one dataset must have the same header, unless names are given. */
static void other_headers(void **unused)
{
    static const char *const texts[] = { "a,b\n1,2\n", "b,a\n3,4\n" };
    static const char *const names[] = { "x", "y", NULL };
    char *dir = test_dir(), *paths[2];
    for (int i = 0; i < 2; i++)
        paths[i] = test_file(dir, i == 0 ? "1.csv" : "2.csv", texts[i], strlen(texts[i]));
    uni_dataset *dataset = NULL;
    assert_int_equal(uni_dataset_read_csv(&dataset, 2, (const char *const *)paths, NULL, &failure),
                     UNI_EFORMAT);
    assert_non_null(strstr(failure.message, "2.csv:1:1: the header does not have the column a of"));
    assert_ok(uni_dataset_read_csv(&dataset, 2, (const char *const *)paths,
                                   &(uni_csv_options){ .column_names = names }, &failure));
    uni_table *table = table_of(dataset);
    assert_int_equal(((int64_t *)uni_array_data(uni_table_find(table, "x")->values))[1], 3);
    uni_table_unref(table);
    for (int i = 0; i < 2; i++)
        free(paths[i]);
    test_dir_remove(dir);
}

static void bad_rows(void **unused)
{
    REFUSE("a,b\n1,2\n3\n", NULL, "data.csv:3:1: only 1 fields in this row, 2 are needed");
    REFUSE("a,b\n1,2\n3,4,5\n", NULL, "data.csv:3:2: more than 2 fields");
    const uni_field number = { .name = "b", .kind = UNI_FIELD_NUMBER, .dtype = UNI_F64 };
    uni_csv_options options = { .types = &number, .num_types = 1 };
    REFUSE("a,b\n\"x\ny\",2\nz,1.5x\n", &options,
           "data.csv:4:2: \"1.5x\" in column b is not a number");
    REFUSE("a,b\nx,1\ny\"z,2\n\"q,3\n", &options, "data.csv:4:1: a quote is opened here");
    REFUSE("a,b\nx,1\n\"y\"z,2\n", &options, "data.csv:3:1: there is text behind a closing quote");
    REFUSE("a,b\nx,1\n\xC3\x28,2\n", &options,
           "data.csv:3:1: \"\xC3\x28\" in column a is not valid UTF-8");
    REFUSE("", NULL, "is empty");
    assert_null(read_text("a,b\n1,2\n", 8,
                          &(uni_csv_options){ .columns = (const char *const[]){ "c", NULL } },
                          UNI_ENOTFOUND, "no column c"));
    options.bad.skip = true;
    const char *some = "a,b\nx,1\ny\nz,q\n\"u\nv\",2\nw,3,4\nt,5\n";
    uni_dataset *dataset = read_text(some, strlen(some), &options, 0, "");
    uni_dataset_iterator *it = NULL;
    uni_table *table = NULL;
    uni_value *stats = NULL;
    assert_ok(uni_dataset_iterate(&it, dataset, NULL, &failure));
    assert_int_equal(uni_dataset_iterator_next(&table, it, &failure), 1);
    assert_int_equal(uni_table_num_rows(table), 3);
    assert_string_equal(string_at(table, "a", 1), "u\nv");
    assert_ok(uni_dataset_iterator_stats(&stats, it, &failure));
    assert_int_equal(uni_dict_get_int(stats, "skipped", -1), 3);
    uni_value_free(stats);
    uni_table_unref(table);
    uni_dataset_iterator_free(it);
    uni_dataset_unref(dataset);
}

/* ---- random files in random blocks ---- */

static const char *const pieces[] = { "a",    ",", "\"",  "\n", "\"\"", "\",\"",
                                      "\r\n", "é", "1.5", " ",  "\"\n", ",\"" };

struct made {
    char *text;
    size_t size;
    int rows;
    char cells[400][64];
};

/* Two columns: text of the nastiest kind, and the row number. */
static void make_file(struct made *made, uint64_t seed)
{
    uint64_t at = 0;
#define DRAW(limit) (uni__random_u64(seed, 9, at++) % (limit))
    made->rows = 1 + (int)DRAW(399);
    made->text = malloc(400 * 200 + 100);
    char *to = made->text + sprintf(made->text, "text,n\n");
    unsigned nasty = (unsigned)DRAW(4);
    for (int row = 0; row < made->rows; row++) {
        char *cell = made->cells[row];
        *cell = 0;
        for (uint64_t i = DRAW(12); i > 0; i--)
            strcat(cell, nasty == 0 ? "b" : pieces[DRAW(sizeof pieces / sizeof pieces[0])]);
        bool quoted = strpbrk(cell, ",\"\r\n") != NULL || DRAW(4) == 0;
        if (quoted)
            *to++ = '"';
        for (const char *p = cell; *p != 0; p++) {
            if (*p == '"')
                *to++ = '"';
            *to++ = *p;
        }
        if (quoted)
            *to++ = '"';
        to += sprintf(to, ",%d%s", row, row + 1 < made->rows || DRAW(2) ? "\n" : "");
    }
    made->size = (size_t)(to - made->text);
#undef DRAW
}

static void any_cuts(void **unused)
{
    const uni_field text = { .name = "text", .kind = UNI_FIELD_STRING };
    static struct made made;
    for (uint64_t seed = 0; seed < 200; seed++) {
        make_file(&made, seed);
        uni_csv_options options = { .types = &text,
                                    .num_types = 1,
                                    .block_bytes =
                                        1 + (int64_t)(uni__random_u64(seed, 8, 0) % 300) };
        uni_dataset *dataset = read_text(made.text, made.size, &options, 0, "");
        uni_table *table = table_of(dataset);
        if (uni_table_num_rows(table) != made.rows)
            fail_msg("seed %llu: %lld rows instead of %d in blocks of %lld bytes",
                     (unsigned long long)seed, (long long)uni_table_num_rows(table), made.rows,
                     (long long)options.block_bytes);
        for (int row = 0; row < made.rows; row++) {
            assert_string_equal(string_at(table, "text", row), made.cells[row]);
            assert_int_equal(((int64_t *)uni_array_data(uni_table_find(table, "n")->values))[row],
                             row);
        }
        uni_table_unref(table);
        free(made.text);
    }
}

/* A quote at the end of a plain cell looks like the end of a quoted one. */
static void plain_quotes(void **unused)
{
    char text[4000], *to = text + sprintf(text, "\xEF\xBB\xBF\n\r\nsize,n\n");
    for (int i = 0; i < 200; i++)
        to += sprintf(to, "%s,%d\n", i % 3 ? "pipe" : i % 2 ? "pipe 5\"" : "a\"\"b", i);
    for (int64_t bytes = 1; bytes < 100; bytes++) {
        uni_csv_options options = { .block_bytes = bytes };
        uni_table *table = READ(text, &options);
        assert_int_equal(uni_table_num_rows(table), 200);
        for (int row = 0; row < 200; row++)
            assert_int_equal(((int64_t *)uni_array_data(uni_table_find(table, "n")->values))[row],
                             row);
        assert_string_equal(string_at(table, "size", 3), "pipe 5\"");
        uni_table_unref(table);
    }
}

/* Blocks after the first would see only lines without quotes. */
static void long_cell(void **unused)
{
    enum { LINES = 30000 };
    char *text = malloc(LINES * 4 + 100), *to = text + sprintf(text, "a,b\n1,\"");
    for (int i = 0; i < LINES; i++)
        to += sprintf(to, "2,3\n");
    sprintf(to, "\"\n4,5\n");
    uni_csv_options options = { .block_bytes = 1 << 10 };
    assert_null(read_text(text, strlen(text), &options, UNI_ELIMIT,
                          "data.csv: the record at byte 1024 goes on over"));
    options.block_bytes = 1 << 20;
    uni_table *table = READ(text, &options);
    assert_int_equal(uni_table_num_rows(table), 2);
    uni_table_unref(table);
    free(text);
}

/* A locale with a decimal comma reads the same numbers. */
static void locales(void **unused)
{
    if (!set_comma_locale())
        skip(); /* no such locale on this machine */
    uni_table *table = READ("x\n 1.5 \n1e-320\n", NULL);
    setlocale(LC_NUMERIC, "C");
    const double *x = uni_array_data(uni_table_find(table, "x")->values);
    assert_true(x[0] == 1.5 && x[1] == 1e-320);
    uni_table_unref(table);
}

static void scanners(void **unused)
{
    const uni__csv_scan *fast = uni__csv_scanner();
    char text[700];
    for (uint64_t i = 0; i < 20000; i++) {
        size_t size = uni__random_u64(5, 1, i) % sizeof text;
        for (size_t j = 0; j < size; j++)
            text[j] =
                "abc,\n\"d"[(uni__random_u64(5, 2, i * 31 + j / 8) >> j % 8 * 8 & 3) + (j & 3)];
        assert_int_equal(fast->count(text, size, 'b'), uni__csv_scan_base.count(text, size, 'b'));
        assert_ptr_equal(fast->find(text, text + size, '\n', '"', ',', '\r'),
                         uni__csv_scan_base.find(text, text + size, '\n', '"', ',', '\r'));
    }
}

/* A file too large to be loaded: blocks, shards, counts, and a file that changes. */
static void large_file(void **unused)
{
    enum { ROWS = 400000 };
    char *text = malloc((size_t)ROWS * 24 + 16), *to = text + sprintf(text, "id,x\n");
    for (int i = 0; i < ROWS; i++)
        to += sprintf(to, "%d,%d.25\n", i, i % 1000);
    char *dir = test_dir(), *path = test_file(dir, "large.csv", text, (size_t)(to - text));
    uni_dataset *dataset = NULL, *shuffled = NULL;
    assert_ok(uni_dataset_read_csv(&dataset, 1, (const char *const[]){ dir }, NULL, &failure));
    assert_true(uni__dataset_num_blocks(dataset) > 50);
    int64_t count = 0;
    assert_ok(uni_dataset_count(&count, dataset, &failure));
    assert_int_equal(count, ROWS);
    assert_ok(uni_dataset_shuffle(&shuffled, dataset, 0, 3, &failure));
    uint8_t *seen = calloc(ROWS, 1);
    int64_t in_order = 0;
    for (int shard = 0; shard < 3; shard++) {
        uni_dataset_iterator *it = NULL;
        uni_table *batch = NULL;
        uni_data_options options = { .shard = shard, .num_shards = 3, .batch_size = 1000 };
        assert_ok(uni_dataset_iterate(&it, shuffled, &options, &failure));
        int64_t rows = 0;
        while (uni_dataset_iterator_next(&batch, it, &failure) > 0) {
            const int64_t *ids = uni_array_data(uni_table_find(batch, "id")->values);
            const double *x = uni_array_data(uni_table_find(batch, "x")->values);
            for (int64_t i = 0; i < uni_table_num_rows(batch); i++) {
                assert_true(x[i] == (double)(ids[i] % 1000) + 0.25);
                seen[ids[i]]++;
                in_order += i > 0 && ids[i] == ids[i - 1] + 1;
            }
            rows += uni_table_num_rows(batch);
            uni_table_unref(batch);
        }
        assert_true(rows > ROWS / 3 - ROWS / 20 && rows < ROWS / 3 + ROWS / 20);
        uni_dataset_iterator_free(it);
    }
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(seen[i], 1);
    assert_true(in_order < ROWS / 100);
    free(seen);
    free(test_file(dir, "large.csv", "id,x\n1,2\n", 9));
    uni_table *table = NULL;
    assert_fails(uni_dataset_take(&table, dataset, 1, &failure), UNI_EIO, "large.csv changed");
    assert_int_equal(unlink(path), 0);
    assert_fails(uni_dataset_take(&table, dataset, 1, &failure), UNI_ENOTFOUND, "large.csv");
    uni_dataset_unref(shuffled);
    uni_dataset_unref(dataset);
    free(path);
    free(text);
    test_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types),
        cmocka_unit_test(gaps_have_a_type),
        cmocka_unit_test(types_that_do_not_hold),
        cmocka_unit_test(given_types),
        cmocka_unit_test(other_headers),
        cmocka_unit_test(bad_rows),
        cmocka_unit_test(any_cuts),
        cmocka_unit_test(scanners),
        cmocka_unit_test(large_file),
        cmocka_unit_test(plain_quotes),
        cmocka_unit_test(long_cell),
        cmocka_unit_test(locales),
        cmocka_unit_test(large_numbers_and_odd_headers),
    };
    return cmocka_run_group_tests_name("csv", tests, NULL, NULL);
}
