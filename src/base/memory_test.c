/*
 * memory_test.c - out of memory at the n-th allocation, for every n: each operation returns
 * UNI_ENOMEM (or NULL), leaks nothing (ASan checks) and leaves existing objects usable.
 *
 * The linker redirects this module's malloc, calloc, realloc, reallocarray and strdup to the
 * __wrap_ functions below.
 */
#include "base/test.h"
#include <jansson.h>

#include "base/shared.h"
#include "base/journal.h"
#include "base/msgpack.h"

static long allowed = -1; /* allocations until one fails; negative: all succeed */

static bool may_allocate(void)
{
    return allowed < 0 || allowed-- > 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
char *__real_strdup(const char *string);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
char *__wrap_strdup(const char *string);

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return may_allocate() ? __real_calloc(count, size) : NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
    return may_allocate() ? __real_realloc(old, size) : NULL;
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    return may_allocate() ? __real_reallocarray(old, count, size) : NULL;
}

char *__wrap_strdup(const char *string)
{
    return may_allocate() ? __real_strdup(string) : NULL;
}

typedef int (*operation)(void *context, uni_error *err);

/* Runs it with 0, 1, 2 ... allocations until it succeeds; returns how many it needs. */
static int starve(operation run, void *context)
{
    for (int n = 0; n < 10000; n++) {
        uni_error err = { 0 };
        allowed = n;
        int status = run(context, &err);
        allowed = -1;
        if (status == 0)
            return n;
        if (status != UNI_ENOMEM || err.code != UNI_ENOMEM || !err.message[0])
            fail_msg("with %d allocations: %s \"%s\"", n, uni_status_name(status), err.message);
    }
    fail_msg("it never succeeded");
    return 0;
}

static const char json[] =
    "{\"a\":[1,2.5,\"text\",null,{\"b\":true,\"c\":[[],{}]}],\"k1\":1,\"k2\":2,\"k3\":3,"
    "\"k4\":4,\"k5\":5,\"k6\":6,\"k7\":7,\"k8\":8,\"k9\":9,\"k10\":10}";

static uni_value *sample(void)
{
    uni_value *value = NULL;
    assert_ok(uni_json_read(&value, json, sizeof json - 1, &failure));
    return value;
}

static int read_json(void *context, uni_error *err)
{
    uni_value *value = (uni_value *)1;
    int status = uni_json_read(&value, json, sizeof json - 1, err);
    if (status < 0)
        assert_null(value);
    else
        uni_value_free(value);
    return status;
}

static int write_json(void *context, uni_error *err)
{
    char *text = (char *)1;
    int status = uni_json_write(&text, NULL, context, UNI_JSON_SORT_KEYS, err);
    if (status < 0)
        assert_null(text);
    else
        free(text);
    return status;
}

static int round_trip_msgpack(void *context, uni_error *err)
{
    void *data = NULL;
    size_t size = 0;
    uni_value *back = NULL;
    uni__text text = { 0 };
    int status = uni__msgpack_write(&data, &size, context, err);
    if (status == 0)
        status = uni__msgpack_read(&back, data, size, err);
    if (status == 0)
        status =
            uni__cursor_to_json(&(uni__cursor){ data, (uint8_t *)data + size }, &text, NULL, err);
    uni__text_free(&text);
    uni_value_free(back);
    free(data);
    return status;
}

static int copy(void *context, uni_error *err)
{
    uni_value *value = uni_value_copy(context);
    if (!value)
        return uni_error_set(err, UNI_ENOMEM, "copy");
    assert_true(uni_value_equal(value, context));
    uni_value_free(value);
    return 0;
}

static void values(void **state)
{
    uni_value *value = sample();
    assert_true(starve(read_json, NULL) > 20);
    assert_true(starve(write_json, value) >= 2);
    assert_true(starve(round_trip_msgpack, value) > 20);
    assert_true(starve(copy, value) > 20);
    uni_value_free(value);
}

/* jansson's own allocations: it reports some of the failures as a syntax error, which we cannot
 * tell apart. What matters is that it is an error, and that nothing leaks. */
static void jansson_without_memory(void **state)
{
    int status = -1, n = 0;
    json_set_alloc_funcs(__wrap_malloc, free);
    for (; status < 0; n++) {
        uni_error err = { 0 };
        allowed = n;
        status = read_json(NULL, &err);
        allowed = -1;
        assert_int_equal(err.code, status);
        assert_true(status == 0 || status == UNI_ENOMEM || status == UNI_EFORMAT);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(n > 40);
}

/* Nested constructors without a check at each one, as the header promises. */
static int build(void *context, uni_error *err)
{
    uni_value *root = uni_value_dict(), *list = uni_value_list();
    int status = uni_list_take(list, uni_value_string("x"));
    if (status == 0)
        status = uni_dict_take(root, "list", list);
    else
        uni_value_free(list);
    for (int i = 0; i < 20 && status == 0; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        status = uni_dict_take(root, key, uni_value_int(i));
        if (status < 0) /* the existing contents are still found */
            assert_true(i == 0 || uni_dict_get_int(root, "k0", -1) == 0);
    }
    uni_value_free(root);
    return status < 0 ? uni_error_set(err, status, "build") : 0;
}

static int make_array(void *context, uni_error *err)
{
    uni_array *array = (uni_array *)1;
    int status = uni_array_new(&array, UNI_F32, 1, (const int64_t[]){ 100 }, err);
    if (status < 0)
        assert_null(array);
    else
        uni_array_unref(array);
    return status;
}

static void builders(void **state)
{
    assert_true(starve(build, NULL) > 40);
    assert_int_equal(starve(make_array, NULL), 2);
}

static int use_journal(void *context, uni_error *err)
{
    uni__journal *journal = NULL;
    uni_value *record = NULL;
    long left = allowed;
    allowed = -1;
    record = sample();
    allowed = left;
    int status = uni__journal_open(&journal, context, "journal", err);
    if (status == 0)
        status = uni__journal_append(journal, record, false, err);
    uni__journal_close(journal);
    uni_value_free(record);
    return status;
}

static int use_files(void *context, uni_error *err)
{
    char *text = NULL, hash[17], *absolute = NULL;
    int status = uni__read_file(&text, NULL, context, 1 << 20, err);
    free(text);
    if (status == 0)
        status = uni__hash_file(context, hash, NULL, err);
    if (status == 0 && !(absolute = uni__path_absolute(context, err)))
        status = err->code;
    free(absolute);
    return status;
}

static void files(void **state)
{
    char *path = uni__path_join(*state, "journal", NULL);
    assert_true(starve(use_journal, path) > 3);
    assert_true(starve(use_files, path) > 2);
    /* The writer that ran out of memory left no partial line and no wrong one. */
    uni__journal_report report;
    assert_ok(uni__journal_read(path, "journal", NULL, NULL, &report, &failure));
    assert_int_equal(report.records, 1);
    assert_int_equal(report.damaged, 0);
    assert_false(report.torn);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(jansson_without_memory),
        cmocka_unit_test(builders),
        cmocka_unit_test_setup_teardown(files, enter_directory, leave_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
