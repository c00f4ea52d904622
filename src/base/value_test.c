/* value_test.c - trees: ownership, order, lookup, conversion, and paths. */
#include "base/test.h"
#include <math.h>
#include <unisono/value.h>

#include "base/shared.h"
#include "base/dict.h"
#include "base/random.h"

static void scalars(void **state)
{
    uni_value *value = uni_value_int(7);
    assert_int_equal(uni_value_as_int(value, 0), 7);
    assert_true(uni_value_as_float(value, 0) == 7.0);
    assert_true(uni_value_as_bool(value, true)); /* an int is not a bool: the fallback */
    assert_false(uni_value_as_bool(value, false));
    assert_string_equal(uni_value_as_string(value, "no"), "no");
    assert_true(uni_value_is_number(value));
    uni_value_free(value);
    value = uni_value_float(3.0);
    assert_int_equal(uni_value_as_int(value, -1), 3);
    uni_value_free(value);
    static const double no_ints[] = { 3.5, 1e19, -1e19, 0x1p63, NAN, INFINITY };
    for (size_t i = 0; i < sizeof no_ints / sizeof *no_ints; i++) {
        value = uni_value_float(no_ints[i]);
        assert_int_equal(uni_value_as_int(value, -1), -1);
        uni_value_free(value);
    }
    value = uni_value_bool(true);
    assert_true(uni_value_as_float(value, 0) == 1.0);
    assert_int_equal(uni_value_as_int(value, -1), -1);
    uni_value_free(value);
    assert_int_equal(uni_value_type_of(NULL), UNI_TYPE_NULL);
    assert_string_equal(uni__value_type_name(UNI_TYPE_DICT), "dictionary");
    assert_string_equal(uni__value_type_name((uni_value_type)50), "?");
    assert_false(uni_value_is_number(NULL));
    assert_null(uni_value_string(NULL));
    assert_null(uni_value_array(NULL));
    uni_value_free(NULL);
}

static void strings_and_bytes_are_copied(void **state)
{
    char text[] = "ab\0cd";
    uni_value *string = uni_value_string_n(text, 5), *bytes = uni_value_bytes(text, 5);
    memset(text, 'x', 5);
    size_t size;
    assert_memory_equal(uni_value_as_bytes(string, &size), "ab\0cd", 6);
    assert_int_equal(size, 5);
    assert_string_equal(uni_value_as_string(string, ""), "ab");
    assert_memory_equal(uni_value_as_bytes(bytes, &size), "ab\0cd", 5);
    assert_null(uni_value_as_string(bytes, NULL));
    assert_false(uni_value_equal(string, bytes));
    uni_value_free(string);
    uni_value_free(bytes);
    uni_value *empty = uni_value_bytes(NULL, 0);
    assert_non_null(uni_value_as_bytes(empty, &size));
    assert_int_equal(size, 0);
    uni_value_free(empty);
    assert_null(uni_value_as_bytes(NULL, &size));
}

/* Compares the dictionary with a plain model: random sets, replacements and removals over 200
 * keys. */
static void dict_keeps_order_at_every_size(void **state)
{
    uni_value *dict = uni_value_dict();
    int order[200], count = 0;
    int64_t stored[200];
    for (uint64_t step = 0; step < 20000; step++) {
        int k = (int)(uni__random_u64(1, 0, step) % 200), place = 0;
        bool remove = uni__random_u64(2, 0, step) % 3 == 0;
        char key[16];
        snprintf(key, sizeof key, "key%d", k);
        while (place < count && order[place] != k)
            place++;
        if (remove) {
            uni_dict_remove(dict, key);
            if (place < count)
                memmove(order + place, order + place + 1,
                        (size_t)(--count - place) * sizeof *order);
        } else {
            assert_int_equal(uni_dict_take(dict, key, uni_value_int((int64_t)step)), 0);
            stored[k] = (int64_t)step;
            if (place == count)
                order[count++] = k;
        }
        assert_int_equal(uni_dict_size(dict), count);
        if (step % 97 != 0)
            continue;
        for (int i = 0; i < count; i++) {
            snprintf(key, sizeof key, "key%d", order[i]);
            assert_string_equal(uni_dict_key_at(dict, (size_t)i), key);
            assert_int_equal(uni_dict_get_int(dict, key, -1), stored[order[i]]);
            assert_ptr_equal(uni_dict_get(dict, key), uni_dict_value_at(dict, (size_t)i));
        }
    }
    assert_null(uni_dict_key_at(dict, (size_t)count));
    assert_null(uni_dict_value_at(dict, (size_t)count));
    assert_null(uni_dict_get(dict, "missing"));
    uni_value_free(dict);
}

static void nesting_constructors_never_leaks(void **state) /* under ASan */
{
    uni_value *list = uni_value_list(), *number = uni_value_int(1);
    assert_int_equal(uni_list_take(list, NULL), UNI_ENOMEM);
    assert_int_equal(uni_list_take(NULL, uni_value_int(1)), UNI_ENOMEM);
    assert_int_equal(uni_list_take(number, uni_value_int(1)), UNI_EINVAL);
    assert_int_equal(uni_list_take(list, list), UNI_EINVAL);
    uni_value *dict = uni_value_dict();
    assert_int_equal(uni_dict_take(dict, "a", NULL), UNI_ENOMEM);
    assert_int_equal(uni_dict_take(NULL, "a", uni_value_list()), UNI_ENOMEM);
    assert_int_equal(uni_dict_take(dict, NULL, uni_value_list()), UNI_EINVAL);
    assert_int_equal(uni_dict_take(dict, "\xFF", uni_value_list()), UNI_EINVAL);
    assert_int_equal(uni_dict_take(list, "a", uni_value_list()), UNI_EINVAL);
    assert_int_equal(uni_dict_take(dict, "me", dict), UNI_EINVAL);
    assert_int_equal(uni_dict_size(dict), 0);
    assert_int_equal(uni_list_size(list), 0);
    assert_int_equal(uni_dict_size(list), 0);
    assert_int_equal(uni_list_size(dict), 0);
    uni_dict_remove(list, "a");
    uni_dict_remove(dict, "a");
    uni_value_free(list);
    uni_value_free(dict);
    uni_value_free(number);
}

static uni_value *sample(void)
{
    int64_t shape = 3;
    uni_array *array = NULL;
    if (uni_array_new(&array, UNI_F32, 1, &shape, NULL) < 0)
        return NULL;
    uni_value *root = uni_value_dict(), *inner = uni_value_dict(), *list = uni_value_list();
    bool good = uni_list_take(list, uni_value_int(1)) == 0 &&
                uni_list_take(list, uni_value_string("two")) == 0 &&
                uni_dict_take(inner, "list", list) == 0 &&
                uni_dict_take(inner, "nan", uni_value_float(NAN)) == 0 &&
                uni_dict_take(root, "a", inner) == 0 &&
                uni_dict_take(root, "a.b", uni_value_int(5)) == 0 &&
                uni_dict_take(root, "w", uni_value_array(array)) == 0 &&
                uni_dict_take(root, "none", uni_value_null()) == 0 &&
                uni_dict_take(root, "raw", uni_value_bytes("\0\1", 2)) == 0;
    uni_array_unref(array);
    return good ? root : NULL;
}

static void copies_are_deep_and_share_arrays(void **state)
{
    uni_value *first = sample(), *second = uni_value_copy(first);
    assert_true(uni_value_equal(first, second));
    assert_ptr_not_equal(uni_dict_get(first, "a"), uni_dict_get(second, "a"));
    uni_array *array = uni_value_as_array(uni_dict_get(first, "w"));
    assert_ptr_equal(array, uni_value_as_array(uni_dict_get(second, "w")));
    uni_value_free(first);
    assert_int_equal(uni_array_count(array), 3); /* the copy still holds a reference */
    assert_int_equal(uni_dict_take(second, "none", uni_value_bool(false)), 0);
    first = sample();
    assert_false(uni_value_equal(first, second));
    uni_value_free(first);
    uni_value_free(second);
    assert_null(uni_value_copy(NULL));
}

static void equality(void **state)
{
    uni_value *one = uni_value_int(1), *one_real = uni_value_float(1), *yes = uni_value_bool(true);
    uni_value *nan = uni_value_float(NAN), *other_nan = uni_value_float(-NAN);
    assert_false(uni_value_equal(one, one_real));
    assert_false(uni_value_equal(one, yes));
    assert_true(uni_value_equal(nan, other_nan));
    assert_true(uni_value_equal(NULL, NULL));
    uni_value *ab = uni_value_dict(), *ba = uni_value_dict();
    assert_int_equal(uni_dict_take(ab, "a", one) | uni_dict_take(ab, "b", yes), 0);
    assert_int_equal(uni_dict_take(ba, "b", uni_value_copy(yes)), 0);
    assert_false(uni_value_equal(ab, ba));
    assert_int_equal(uni_dict_take(ba, "a", uni_value_int(1)), 0);
    assert_true(uni_value_equal(ab, ba)); /* order does not matter */
    assert_int_equal(uni_dict_take(ba, "a", uni_value_null()), 0);
    assert_false(uni_value_equal(ab, ba));
    uni_value_free(ab);
    uni_value_free(ba);
    uni_value_free(one_real);
    uni_value_free(nan);
    uni_value_free(other_nan);
}

static void paths(void **state)
{
    uni_value *root = sample();
    assert_string_equal(uni_value_as_string(uni_value_path(root, "a.list.1"), ""), "two");
    assert_true(isnan(uni_value_as_float(uni_value_path(root, "a.nan"), 0)));
    assert_int_equal(uni_value_as_int(uni_value_path(root, "a.b"), 0), 5); /* a key with a dot */
    assert_null(uni_value_path(root, "a.list.2"));
    assert_null(uni_value_path(root, "a.list.x"));
    assert_null(uni_value_path(root, "a.list."));
    assert_null(uni_value_path(root, "a.list.99999999999999999999999"));
    assert_null(uni_value_path(root, "a.c"));
    assert_null(uni_value_path(root, ""));
    assert_null(uni_value_path(root, "..."));
    assert_null(uni_value_path(root, NULL));
    assert_null(uni_value_path(NULL, "a"));
    uni_value_free(root);
}

/* Freed without recursion: this would need 100 MB of stack otherwise. */
static void a_million_levels_are_freed(void **state)
{
    uni_value *tree = uni_value_list();
    for (int i = 0; i < 1000000; i++) {
        uni_value *outer = i % 2 ? uni_value_list() : uni_value_dict();
        int status = i % 2 ? uni_list_take(outer, tree) : uni_dict_take(outer, "inner", tree);
        assert_int_equal(status, 0);
        tree = outer;
    }
    assert_null(uni_value_copy(tree)); /* rejected, not a crash */
    assert_false(uni_value_equal(tree, tree));
    uni_value_free(tree);
}

static void in_one_expression(void **state)
{
    uni_value *dict = UNI__DICT({ "b", uni_value_int(3) }, { "a", uni_value_string("x") },
                                { "b", uni_value_null() });
    assert_int_equal(uni_dict_size(dict), 2);
    assert_string_equal(uni_dict_key_at(dict, 0), "b");
    assert_int_equal(uni_value_type_of(uni_dict_get(dict, "b")), UNI_TYPE_NULL);
    assert_string_equal(uni_dict_get_string(dict, "a", ""), "x");
    uni_value_free(dict);
    /* One that could not be made spoils all, and nothing leaks. */
    assert_null(UNI__DICT({ "a", uni_value_int(1) }, { "b", NULL }, { "c", uni_value_list() }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars),
        cmocka_unit_test(strings_and_bytes_are_copied),
        cmocka_unit_test(dict_keeps_order_at_every_size),
        cmocka_unit_test(nesting_constructors_never_leaks),
        cmocka_unit_test(copies_are_deep_and_share_arrays),
        cmocka_unit_test(equality),
        cmocka_unit_test(paths),
        cmocka_unit_test(a_million_levels_are_freed),
        cmocka_unit_test(in_one_expression),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
