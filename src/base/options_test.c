/* options_test.c - options of programs that are older or newer than the library. */
#include "base/options.h"
#include "base/test.h"

#include <string.h>

/* A struct over three releases. */
struct in_01 {
    size_t size;
    int workers;
    int spare;
};
struct in_02 {
    size_t size;
    int workers;
    int spare;
    const char *name;
};
struct in_03 {
    size_t size;
    int workers;
    int spare;
    const char *name;
    double limit;
};
#define FIRST (offsetof(struct in_02, spare) + sizeof(int))

static int read_02(struct in_02 *own, const void *options, uni_error *err)
{
    memset(own, 0xff, sizeof *own);
    return uni__options_read(own, sizeof *own, FIRST, options, "uni_x_options", err);
}

static void test_defaults(void **state)
{
    struct in_02 own;
    assert_int_equal(read_02(&own, NULL, NULL), 0);
    assert_true(own.size == 0 && own.workers == 0 && own.name == NULL);
}

static void test_older_program(void **state)
{
    struct in_02 own;
    struct in_01 sized = { .size = sizeof sized, .workers = 3 }, plain = { .workers = 4 };
    assert_int_equal(read_02(&own, &sized, NULL), 0);
    assert_true(own.workers == 3 && own.name == NULL && own.size == sizeof own);
    assert_int_equal(read_02(&own, &plain, NULL), 0);
    assert_true(own.workers == 4 && own.name == NULL);
}

/* A size of 0 reads the fields of 0.1 only: what comes after them may not be there. */
static void test_no_size(void **state)
{
    struct in_02 own, plain = { .workers = 5, .name = "beyond" };
    assert_int_equal(read_02(&own, &plain, NULL), 0);
    assert_true(own.workers == 5 && own.name == NULL);
    plain.size = sizeof plain;
    assert_int_equal(read_02(&own, &plain, NULL), 0);
    assert_string_equal(own.name, "beyond");
}

static void test_newer_program(void **state)
{
    struct in_02 own;
    uni_error err = { 0 };
    struct in_03 sized = { .size = sizeof sized, .workers = 3, .name = "a" };
    assert_int_equal(read_02(&own, &sized, &err), 0);
    assert_string_equal(own.name, "a");
    sized.limit = 1;
    assert_int_equal(read_02(&own, &sized, &err), UNI_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "uni_x_options: an option is set"));
}

static void test_wrong_size(void **state)
{
    struct in_02 own;
    uni_error err = { 0 };
    struct in_01 sized = { .size = sizeof(size_t) };
    assert_int_equal(read_02(&own, &sized, &err), UNI_EINVAL);
    assert_non_null(strstr(err.message, "UNI_OPTIONS(uni_x_options, ...)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),   cmocka_unit_test(test_older_program),
        cmocka_unit_test(test_no_size),    cmocka_unit_test(test_newer_program),
        cmocka_unit_test(test_wrong_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
