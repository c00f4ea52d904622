/* array_test.c - shapes, sizes, alignment, borrowing and counting. */
#include "base/test.h"
#include <math.h>
#include <pthread.h>
#include <unisono/array.h>

#include "base/shared.h"
#include "base/element.h"

static void dtypes(void **state)
{
    assert_int_equal(uni_dtype_size(UNI_F32), 4);
    assert_int_equal(uni_dtype_size(UNI_BF16), 2);
    assert_int_equal(uni_dtype_size((uni_dtype)0), 0);
    assert_int_equal(uni_dtype_size((uni_dtype)99), 0);
    assert_string_equal(uni_dtype_name(UNI_B8), "bool");
    assert_string_equal(uni_dtype_name((uni_dtype)99), "?");
    for (int dtype = UNI_F32; dtype <= UNI_BF16; dtype++)
        assert_int_equal(uni__dtype_from_name(uni_dtype_name((uni_dtype)dtype)), dtype);
    assert_int_equal(uni__dtype_from_name("float128"), 0);
    assert_int_equal(uni__dtype_from_name(NULL), 0);
}

static void new_arrays_are_zero_and_aligned(void **state)
{
    for (int64_t n = 1; n < 200; n += 13) {
        uni_array *array = NULL;
        assert_ok(uni_array_new(&array, UNI_F64, 2, (const int64_t[]){ n, 3 }, &failure));
        assert_int_equal(uni_array_count(array), 3 * n);
        assert_int_equal(uni_array_bytes(array), 24 * n);
        assert_int_equal((uintptr_t)uni_array_data(array) % 64, 0);
        const double *data = uni_array_data(array);
        for (int64_t i = 0; i < 3 * n; i++)
            assert_true(data[i] == 0);
        assert_int_equal(uni_array_dtype(array), UNI_F64);
        assert_int_equal(uni_array_ndim(array), 2);
        assert_int_equal(uni_array_shape(array)[0], n);
        uni_array_unref(array);
    }
}

static void scalars_and_empty_ones(void **state)
{
    uni_array *scalar = NULL, *empty = NULL;
    assert_ok(uni_array_new(&scalar, UNI_I8, 0, NULL, &failure));
    assert_int_equal(uni_array_count(scalar), 1);
    assert_non_null(uni_array_data(scalar));
    assert_ok(uni_array_new(&empty, UNI_F32, 2, (const int64_t[]){ 5, 0 }, &failure));
    assert_int_equal(uni_array_count(empty), 0);
    assert_null(uni_array_data(empty));
    assert_false(uni__array_equal(scalar, empty));
    uni_array_unref(scalar);
    uni_array_unref(empty);
    uni_array_unref(NULL);
}

static void bad_shapes_are_refused(void **state)
{
    uni_array *array = (uni_array *)1;
    const int64_t huge[] = { INT64_MAX, 1 }, wraps[] = { (int64_t)1 << 32, (int64_t)1 << 32 };
    const int64_t hidden[] = { 0, INT64_MAX, INT64_MAX }, nine[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    assert_fails(uni_array_new(&array, UNI_F32, 2, huge, &failure), UNI_ELIMIT, "too large");
    assert_null(array);
    assert_fails(uni_array_new(&array, UNI_U8, 2, wraps, &failure), UNI_ELIMIT, "too large");
    assert_fails(uni_array_new(&array, UNI_F32, 3, hidden, &failure), UNI_ELIMIT, "too large");
    assert_fails(uni_array_new(&array, UNI_F32, 9, nine, &failure), UNI_ESHAPE, "dimensions");
    assert_fails(uni_array_new(&array, UNI_F32, -1, NULL, &failure), UNI_ESHAPE, "dimensions");
    assert_fails(uni_array_new(&array, UNI_F32, 1, (const int64_t[]){ -4 }, &failure), UNI_ESHAPE,
                 "negative");
    assert_fails(uni_array_new(&array, UNI_F32, 1, NULL, &failure), UNI_EINVAL, "shape");
    assert_fails(uni_array_new(&array, (uni_dtype)77, 0, NULL, &failure), UNI_EDTYPE, "77");
    assert_fails(uni_array_view(&array, UNI_F32, 0, NULL, NULL, NULL, NULL, &failure), UNI_EINVAL,
                 "NULL");
}

static void count_release(void *context)
{
    ++*(int *)context;
}

static void views_release_once_with_the_last_reference(void **state)
{
    float data[6] = { 1, 2, 3, 4, 5, 6 };
    int released = 0;
    uni_array *view = NULL, *same = NULL, *other = NULL;
    const int64_t shape[] = { 2, 3 };
    assert_ok(uni_array_view(&view, UNI_F32, 2, shape, data, count_release, &released, &failure));
    assert_ptr_equal(uni_array_data(view), data);
    assert_ok(uni_array_new(&same, UNI_F32, 2, shape, &failure));
    memcpy(uni_array_data(same), data, sizeof data);
    assert_true(uni__array_equal(view, same));
    ((float *)uni_array_data(same))[5] = 7;
    assert_false(uni__array_equal(view, same));
    assert_ok(
        uni_array_view(&other, UNI_F32, 1, (const int64_t[]){ 6 }, data, NULL, NULL, &failure));
    assert_false(uni__array_equal(view, other));
    assert_ptr_equal(uni_array_ref(view), view);
    uni_array_unref(view);
    assert_int_equal(released, 0);
    uni_array_unref(view);
    assert_int_equal(released, 1);
    uni_array_unref(same);
    uni_array_unref(other);
}

static void *ref_and_unref(void *array)
{
    for (int i = 0; i < 20000; i++)
        uni_array_unref(uni_array_ref(array));
    uni_array_unref(array);
    return NULL;
}

static void counts_are_atomic(void **state)
{
    float data[1];
    int released = 0;
    uni_array *array = NULL;
    pthread_t threads[4];
    assert_ok(uni_array_view(&array, UNI_F32, 0, NULL, data, count_release, &released, &failure));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ref_and_unref, uni_array_ref(array)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(released, 0);
    uni_array_unref(array);
    assert_int_equal(released, 1);
}

static void elements_of_every_type_are_numbers(void **state)
{
    assert_true(uni__element((const float[]){ 0, -1.5f }, UNI_F32, 1) == -1.5);
    assert_true(uni__element((const int64_t[]){ 0, -7 }, UNI_I64, 1) == -7);
    assert_true(uni__element((const int8_t[]){ -128 }, UNI_I8, 0) == -128);
    assert_true(uni__element((const uint8_t[]){ 255 }, UNI_U8, 0) == 255);
    assert_true(uni__element((const uint64_t[]){ UINT64_C(1) << 63 }, UNI_U64, 0) == 0x1p63);
    /* 1, -2, the smallest subnormal, the largest, infinity, not a number */
    const uint16_t halves[] = { 0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x7e00 };
    const double numbers[] = { 1, -2, 0x1p-24, 65504, INFINITY };
    for (size_t i = 0; i < 5; i++)
        assert_true(uni__element(halves, UNI_F16, i) == numbers[i]);
    assert_true(isnan(uni__element(halves, UNI_F16, 5)));
    assert_true(uni__element((const uint16_t[]){ 0xbfc0 }, UNI_BF16, 0) == -1.5);
    assert_true(isnan(uni__element(halves, (uni_dtype)99, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes),
        cmocka_unit_test(elements_of_every_type_are_numbers),
        cmocka_unit_test(new_arrays_are_zero_and_aligned),
        cmocka_unit_test(scalars_and_empty_ones),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(views_release_once_with_the_last_reference),
        cmocka_unit_test(counts_are_atomic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
