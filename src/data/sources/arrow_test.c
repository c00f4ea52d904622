/*
 * arrow_test.c - record batches as other libraries hand them over: every type, missing values,
 * slices (offsets), and that the batch is released once, with the last array that refers to it.
 */
#include <math.h>

#include "data/shared.h"
#include "data/sources/arrow.h"
#include "data/test.h"

static int released;

static void release(struct ArrowArray *array)
{
    released++;
    array->release = NULL;
}

/* A batch of one column "x" and its table. */
static int read_batch(uni_table **out, const struct ArrowSchema *type, struct ArrowArray *values,
                      int64_t rows)
{
    struct ArrowSchema named = *type, *types[] = { &named };
    struct ArrowArray *columns[] = { values };
    named.name = "x";
    struct ArrowSchema schema = { .format = "+s", .n_children = 1, .children = types };
    struct ArrowArray batch = {
        .length = rows, .n_children = 1, .children = columns, .release = release
    };
    released = 0;
    int status = uni__table_from_arrow(out, &schema, &batch, &failure);
    assert_null(batch.release); /* it was taken, also when the call failed */
    return status;
}

static uni_table *table_of(const char *format, struct ArrowArray *values, int64_t rows)
{
    uni_table *table = NULL;
    assert_ok(read_batch(&table, &(struct ArrowSchema){ .format = format }, values, rows));
    assert_int_equal(uni_table_num_rows(table), rows);
    return table;
}

static void refuse(const struct ArrowSchema *type, struct ArrowArray *values, int64_t rows,
                   const char *part)
{
    uni_table *table = NULL;
    assert_fails(read_batch(&table, type, values, rows), UNI_EUNSUPPORTED, part);
    assert_null(table);
    assert_int_equal(released, 1);
}

/* The row's value of "x" as JSON. */
static void row_is(const uni_table *table, int64_t row, const char *json)
{
    uni_value *is = NULL, *expected = NULL;
    assert_ok(uni_table_row(&is, table, row, &failure));
    assert_ok(uni_json_read(&expected, json, strlen(json), &failure));
    if (!uni_value_equal(uni_dict_get(is, "x"), expected))
        fail_msg("row %lld is not %s", (long long)row, json);
    uni_value_free(is);
    uni_value_free(expected);
}

static const uni_array *values_of(const uni_table *table)
{
    return uni_table_find(table, "x")->values;
}

static void numbers_are_views(void **state)
{
    static const int16_t shorts[] = { 7, -2, 300, 4 };
    struct ArrowArray values = {
        .length = 3, .offset = 1, .n_buffers = 2, .buffers = (const void *[]){ NULL, shorts }
    };
    uni_table *table = table_of("s", &values, 3);
    assert_int_equal(uni_array_dtype(values_of(table)), UNI_I16);
    assert_ptr_equal(uni_array_data((uni_array *)values_of(table)), shorts + 1);
    row_is(table, 0, "-2");
    row_is(table, 2, "4");
    assert_int_equal(released, 0); /* the table still refers to it */
    uni_table_unref(table);
    assert_int_equal(released, 1);
}

static void every_type_of_number(void **state)
{
    static const struct {
        const char *format;
        uni_dtype dtype;
    } cases[] = { { "c", UNI_I8 },    { "C", UNI_U8 },    { "s", UNI_I16 },  { "S", UNI_U16 },
                  { "i", UNI_I32 },   { "I", UNI_U32 },   { "l", UNI_I64 },  { "L", UNI_U64 },
                  { "e", UNI_F16 },   { "f", UNI_F32 },   { "g", UNI_F64 },  { "tsu:UTC", UNI_I64 },
                  { "tDn", UNI_I64 }, { "tdm", UNI_I64 }, { "tdD", UNI_I32 } };
    static const int64_t zeros[4] = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ArrowArray values = { .length = 2,
                                     .n_buffers = 2,
                                     .buffers = (const void *[]){ NULL, zeros } };
        uni_table *table = table_of(cases[i].format, &values, 2);
        assert_int_equal(uni_array_dtype(values_of(table)), cases[i].dtype);
        uni_table_unref(table);
    }
}

static void bits_become_bools(void **state)
{
    static const uint8_t bits[] = { 0x50, 0x01 }; /* 4, 6 and 8 are set */
    struct ArrowArray values = {
        .length = 6, .offset = 3, .n_buffers = 2, .buffers = (const void *[]){ NULL, bits }
    };
    uni_table *table = table_of("b", &values, 6);
    const uint8_t *bytes = uni_array_data((uni_array *)values_of(table));
    assert_memory_equal(bytes, ((const uint8_t[]){ 0, 1, 0, 1, 0, 1 }), 6);
    uni_table_unref(table);
    assert_int_equal(released, 1);
}

static void missing_numbers(void **state)
{
    static const uint8_t present[] = { 0x0a }; /* 1 and 3 */
    static const float floats[] = { 1, 2, 3, 4 };
    static const double doubles[] = { 1, 2, 3, 4 };
    static const int32_t ints[] = { 1, 2, 3, 4 };
    struct ArrowArray values = { .length = 4, .null_count = 2, .n_buffers = 2 };
    values.buffers = (const void *[]){ present, floats };
    uni_table *table = table_of("f", &values, 4);
    const float *f = uni_array_data((uni_array *)values_of(table));
    assert_true(isnan(f[0]) && f[1] == 2 && isnan(f[2]) && f[3] == 4);
    assert_true(floats[0] == 1); /* the producer's memory stays as it was */
    uni_table_unref(table);
    values.buffers = (const void *[]){ present, doubles };
    table = table_of("g", &values, 4);
    const double *d = uni_array_data((uni_array *)values_of(table));
    assert_true(isnan(d[0]) && d[1] == 2 && isnan(d[2]) && d[3] == 4);
    uni_table_unref(table);
    values.buffers = (const void *[]){ present, ints };
    table = table_of("i", &values, 4);
    row_is(table, 0, "null");
    row_is(table, 1, "2");
    row_is(table, 2, "null");
    row_is(table, 3, "4");
    uni_table_unref(table);
    /* A slice in which none is missing, and one that says so itself. */
    values = (struct ArrowArray){
        .length = 1, .null_count = -1, .offset = 3, .n_buffers = 2, .buffers = values.buffers
    };
    table = table_of("i", &values, 1);
    assert_null(uni_table_find(table, "x")->valid);
    row_is(table, 0, "4");
    uni_table_unref(table);
    values.null_count = 0;
    values.offset = 0;
    table = table_of("i", &values, 1);
    row_is(table, 0, "1");
    uni_table_unref(table);
}

static void texts(void **state)
{
    static const int32_t ends[] = { 0, 1, 1, 3, 6 };
    static const int64_t long_ends[] = { 0, 1, 1, 3, 6 };
    static const char *const formats[] = { "u", "U", "z", "Z" };
    static const uint8_t present[] = { 0x0b }; /* 2 is missing */
    for (int i = 0; i < 4; i++) {
        struct ArrowArray values = {
            .length = 3,
            .null_count = 1,
            .offset = 1,
            .n_buffers = 3,
            .buffers = (const void *[]){ present, i % 2 ? (const void *)long_ends : ends, "abcdef" }
        };
        uni_table *table = table_of(formats[i], &values, 3);
        assert_int_equal(uni_table_find(table, "x")->field.kind,
                         i < 2 ? UNI_FIELD_STRING : UNI_FIELD_BINARY);
        if (i < 2) {
            row_is(table, 0, "\"\"");
            row_is(table, 2, "\"def\"");
        }
        row_is(table, 1, "null");
        uni_table_unref(table);
        assert_int_equal(released, 1);
    }
    /* No text at all: producers may leave the buffers out. */
    struct ArrowArray none = { .n_buffers = 3, .buffers = (const void *[]){ NULL, NULL, NULL } };
    uni_table_unref(table_of("u", &none, 0));
}

static void lists_of_numbers(void **state)
{
    static const int32_t ends[] = { 0, 2, 2, 5 };
    static const double numbers[] = { 1, 2, 3, 4, 5 };
    static const uint8_t present[] = { 0x17 }; /* the fourth is missing */
    struct ArrowArray items = { .length = 5,
                                .null_count = 1,
                                .n_buffers = 2,
                                .buffers = (const void *[]){ present, numbers } };
    struct ArrowArray *children[] = { &items };
    struct ArrowArray values = { .length = 3,
                                 .n_buffers = 2,
                                 .buffers = (const void *[]){ NULL, ends },
                                 .n_children = 1,
                                 .children = children };
    struct ArrowSchema item = { .format = "g" }, *types[] = { &item };
    struct ArrowSchema list = { .format = "+l", .n_children = 1, .children = types };
    uni_table *table = NULL;
    assert_ok(read_batch(&table, &list, &values, 3));
    const uni_table_column *column = uni_table_find(table, "x");
    assert_int_equal(column->field.kind, UNI_FIELD_LIST);
    const int64_t *offsets = uni_array_data(column->offsets);
    const double *at = uni_array_data(column->values);
    assert_true(offsets[1] == 2 && offsets[2] == 2 && offsets[3] == 5);
    assert_true(at[0] == 1 && at[2] == 3 && isnan(at[3]) && at[4] == 5);
    uni_table_unref(table);
    item.format = "l";
    refuse(&list, &values, 3, "lists with missing elements of int64");
    item.format = "u";
    refuse(&list, &values, 3, "lists of Arrow's type \"u\"");
}

static void tensors(void **state)
{
    static const float numbers[24] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
    struct ArrowArray leaf = { .length = 24,
                               .n_buffers = 2,
                               .buffers = (const void *[]){ NULL, numbers } };
    struct ArrowArray *leaves[] = { &leaf };
    struct ArrowArray inner = { .length = 8, .n_children = 1, .children = leaves };
    struct ArrowArray *inners[] = { &inner };
    struct ArrowArray outer = { .length = 1, .offset = 1, .n_children = 1, .children = inners };
    struct ArrowSchema number = { .format = "f" }, *numbers_of[] = { &number };
    struct ArrowSchema row = { .format = "+w:3", .n_children = 1, .children = numbers_of };
    struct ArrowSchema *rows[] = { &row };
    struct ArrowSchema matrix = { .format = "+w:2", .n_children = 1, .children = rows };
    uni_table *table = NULL;
    assert_ok(read_batch(&table, &matrix, &outer, 1));
    const uni_table_column *column = uni_table_find(table, "x");
    assert_int_equal(column->field.ndim, 2);
    assert_true(column->field.shape[0] == 2 && column->field.shape[1] == 3);
    assert_true(((const float *)uni_array_data(column->values))[0] == 6); /* the second matrix */
    uni_table_unref(table);
    inner.null_count = 1;
    refuse(&matrix, &outer, 1, "tensors with missing parts");
    inner.null_count = 0;
    number.format = "u";
    refuse(&matrix, &outer, 1, "tensors of Arrow's type \"u\"");
    matrix.format = "+w:0";
    refuse(&matrix, &outer, 1, "lists of no elements");
}

static void what_is_refused(void **state)
{
    struct ArrowArray values = { .n_buffers = 2, .buffers = (const void *[]){ NULL, NULL } };
    refuse(&(struct ArrowSchema){ .format = "d:10,2" }, &values, 0, "Arrow's type \"d:10,2\"");
    refuse(&(struct ArrowSchema){ .format = "i", .dictionary = &(struct ArrowSchema){ 0 } },
           &values, 0, "dictionary-encoded");
    uni_table *table = NULL;
    struct ArrowSchema schema = { .format = "i" };
    struct ArrowArray batch = { .release = release };
    released = 0;
    assert_fails(uni__table_from_arrow(&table, &schema, &batch, &failure), UNI_EINVAL,
                 "not an Arrow record batch");
    assert_int_equal(released, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_views),
        cmocka_unit_test(every_type_of_number),
        cmocka_unit_test(bits_become_bools),
        cmocka_unit_test(missing_numbers),
        cmocka_unit_test(texts),
        cmocka_unit_test(lists_of_numbers),
        cmocka_unit_test(tensors),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
