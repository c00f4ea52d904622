/* dict_test.c - dictionaries to bytes, files and back: what a worker saved is what it gets,
 * and bad bytes are refused. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/msgpack.h"
#include "checkpoint/test_helpers.h"

static void put(uni_value *dict, const char *key, uni_value *value)
{
    assert_int_equal(uni_dict_take(dict, key, value), 0);
}

static uni_value *array_value(uni_dtype dtype, int ndim, const int64_t *shape, unsigned fill)
{
    uni_array *array = NULL;
    MUST(uni_array_new(&array, dtype, ndim, shape, &err));
    for (size_t i = 0; i < uni_array_bytes(array); i++)
        ((unsigned char *)uni_array_data(array))[i] = (unsigned char)(fill + i * 7);
    uni_value *value = uni_value_array(array);
    uni_array_unref(array);
    return value;
}

/* Through memory by copy and by view, and through the files of a checkpoint; all must be equal to
 * it. */
static void round_trip(const uni_value *dict)
{
    size_t size;
    char *bytes = encode(dict, &size);
    uni_value *copy = NULL, *view = NULL, *read = NULL;
    MUST(uni__dict_decode(&copy, bytes, size, &err));
    MUST(uni__dict_view(&view, bytes, size, &err));
    assert_true(uni_value_equal(dict, copy));
    assert_true(uni_value_equal(dict, view));
    uni_value_free(view);
    memset(bytes, 0xEE, size); /* the copy must not use the buffer any more */
    assert_true(uni_value_equal(dict, copy));
    free(bytes);
    uni_value_free(copy);

    MUST(uni_checkpoint_write_dict(at("round"), dict, &err));
    MUST(uni__dict_read(&read, at("round"), "", &err));
    MUST(uni__remove_tree(at("round"), &err)); /* a loaded value outlives its checkpoint */
    assert_true(uni_value_equal(dict, read));
    uni_value_free(read);
}

static void test_types(void **state)
{
    uni_value *dict = uni_value_dict(), *list = uni_value_list(), *inner = uni_value_dict();
    round_trip(dict); /* empty */
    put(dict, "null", uni_value_null());
    put(dict, "yes", uni_value_bool(true));
    put(dict, "int", uni_value_int(INT64_MIN));
    put(dict, "nan", uni_value_float(NAN));
    put(dict, "inf", uni_value_float(-INFINITY));
    put(dict, "pi", uni_value_float(3.141592653589793));
    put(dict, "text", uni_value_string("größe ☃ \U0001F40D"));
    put(dict, "ключ", uni_value_string(""));
    put(dict, "", uni_value_int(1)); /* an empty key */
    put(dict, "bytes", uni_value_bytes("a\0b", 3));
    put(inner, "deep", array_value(UNI_I16, 2, (const int64_t[]){ 3, 5 }, 9));
    assert_int_equal(uni_list_take(list, inner), 0);
    assert_int_equal(uni_list_take(list, uni_value_list()), 0);
    assert_int_equal(uni_list_take(list, array_value(UNI_U8, 1, (const int64_t[]){ 1 }, 3)), 0);
    put(dict, "list", list);
    round_trip(dict);
    uni_value_free(dict);
}

static void test_every_dtype(void **state)
{
    uni_value *dict = uni_value_dict();
#define PUT_DTYPE(name, number, size, text)                                                        \
    put(dict, text, array_value(UNI_##name, 3, (const int64_t[]){ 2, 3, 5 }, number));
    UNI_DTYPE_LIST(PUT_DTYPE)
    put(dict, "scalar", array_value(UNI_F64, 0, NULL, 1));
    put(dict, "none", array_value(UNI_F32, 1, (const int64_t[]){ 0 }, 1));
    put(dict, "none in the middle", array_value(UNI_F32, 3, (const int64_t[]){ 4, 0, 7 }, 1));
    put(dict, "8 dimensions",
        array_value(UNI_B8, 8, (const int64_t[]){ 1, 2, 1, 2, 1, 2, 1, 2 }, 1));
    round_trip(dict);
    uni_value_free(dict);
}

/* Only arrays without elements: there is no arrays.bin at all. */
static void test_only_empty_arrays(void **state)
{
    uni_value *dict = uni_value_dict();
    put(dict, "none", array_value(UNI_I64, 2, (const int64_t[]){ 0, 3 }, 1));
    round_trip(dict);
    MUST(uni_checkpoint_write_dict(at("empty"), dict, &err));
    assert_string_equal(names(at("empty")), UNI__MANIFEST_NAME " dict.msgpack");
    uni_value_free(dict);
}

/* A user's own "__array__" comes back unchanged, even if it looks exactly like ours. */
static void test_escape(void **state)
{
    uni_value *dict = uni_value_dict(), *fake = uni_value_dict(), *twice = uni_value_dict();
    put(fake, "__array__", uni_value_int(1));
    put(fake, "dtype", uni_value_int(1));
    put(fake, "shape", uni_value_list());
    put(fake, "offset", uni_value_int(0));
    put(fake, "bytes", uni_value_int(4));
    put(twice, "__array__", fake);
    put(twice, "real", array_value(UNI_F32, 1, (const int64_t[]){ 2 }, 5));
    put(dict, "value", twice);
    put(dict, "__array__", uni_value_int(0));
    round_trip(dict);
    uni_value_free(dict);
}

static uni_value *nested(int levels, bool with_array)
{
    uni_value *value = uni_value_dict();
    put(value, "end",
        with_array ? array_value(UNI_F32, 1, (const int64_t[]){ 1 }, 1) : uni_value_int(1));
    for (int i = 1; i < levels; i++) {
        uni_value *outer = i % 2 ? uni_value_list() : uni_value_dict();
        if (i == levels - 1 || i % 2 == 0) {
            uni_value_free(outer);
            outer = uni_value_dict();
            put(outer, i % 3 ? "in" : "__array__", value);
        } else {
            assert_int_equal(uni_list_take(outer, value), 0);
        }
        value = outer;
    }
    return value;
}

static void test_depth_limit(void **state)
{
    size_t size;
    uni_value *deepest = nested(UNI_VALUE_MAX_DEPTH, true),
              *beyond = nested(UNI_VALUE_MAX_DEPTH + 1, false);
    round_trip(deepest);
    MUST_FAIL(uni__dict_encoded_size(beyond, &size, &err), UNI_ELIMIT, "deeper than 30");
    MUST_FAIL(uni_checkpoint_write_dict(at("deep"), beyond, &err), UNI_ELIMIT, "deeper than 30");
    assert_string_equal(names(test_root), ""); /* nothing partial is left */
    uni_value_free(deepest);
    uni_value_free(beyond);
}

static void test_not_a_dictionary(void **state)
{
    size_t size;
    uni_value *list = uni_value_list(), *dict = dict_with("a", 1);
    char small[40];
    MUST_FAIL(uni__dict_encoded_size(list, &size, &err), UNI_EINVAL, "not a list");
    MUST_FAIL(uni__dict_encode(dict, small, sizeof small, &err), UNI_ELIMIT, "40");
    uni_value_free(list);
    uni_value_free(dict);
}

/* Loaded arrays are writable (training continues in them), and the checkpoint does not change. */
static void test_copy_on_write(void **state)
{
    uni_value *dict = model_state(3, 5000), *read = NULL, *again = NULL;
    MUST(uni_checkpoint_write_dict(at("cow"), dict, &err));
    MUST(uni__dict_read(&read, at("cow"), "", &err));
    uni_array *weights = uni_value_as_array(uni_dict_get(read, "weights"));
    assert_int_equal((uintptr_t)uni_array_data(weights) % 64, 0);
    memset(uni_array_data(weights), 0x55, uni_array_bytes(weights));
    MUST(uni__dict_read(&again, at("cow"), "", &err));
    assert_true(uni_value_equal(dict, again));
    /* One array alone keeps the mapping after the rest of the value is freed. */
    uni_array_ref(weights);
    uni_value_free(read);
    assert_int_equal(((unsigned char *)uni_array_data(weights))[19999], 0x55);
    uni_array_unref(weights);
    uni_value_free(again);
    uni_value_free(dict);
}

/* Damaged bytes: whatever is changed or truncated, the result is an error or a dictionary, never a
 * crash (the sanitizers check). */
static void test_damaged_bytes(void **state)
{
    uni_value *dict = model_state(1, 3);
    put(dict, "nested", nested(4, true));
    size_t size;
    unsigned char *bytes = encode(dict, &size);
    for (size_t cut = 0; cut < size; cut++) {
        /* Exactly as long, so that ASan detects one byte too far. */
        unsigned char *part = malloc(cut + 1);
        uni_value *value = NULL;
        memcpy(part, bytes, cut);
        part = realloc(part, cut ? cut : 1);
        uni_error why = { 0 };
        assert_true(uni__dict_decode(&value, part, cut, &why) < 0);
        assert_null(value);
        free(part);
    }
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            uni_value *value = NULL;
            uni_error why = { 0 };
            bytes[i] ^= (unsigned char)(1u << bit);
            if (uni__dict_decode(&value, bytes, size, &why) < 0)
                assert_null(value);
            uni_value_free(value);
            bytes[i] ^= (unsigned char)(1u << bit);
        }
    }
    free(bytes);
    uni_value_free(dict);
}

/* Hand-made trees with false claims about their arrays. */
static void test_lying_arrays(void **state)
{
    static const struct {
        int64_t dtype, shape, offset, bytes;
    } lies[] = {
        { 1, 1, 64, 4 }, /* past the end */
        { 1, 17, 0, 68 }, /* longer than the file */
        { 1, 1, 32, 4 }, /* not aligned */
        { 1, 2, 0, 4 }, /* size and shape differ */
        { 99, 1, 0, 4 }, /* no such type */
        { 1, INT64_MAX, 0, 4 }, /* overflow */
        { 2, (int64_t)1 << 61, 0, 0 }, /* overflow to exactly 0 */
        { 1, -1, 0, 4 },
        { 1, 1, -64, 4 },
        { 1, 1, 0, -4 },
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uint8_t bytes[512] = "UNIDICT1";
        uni__packer packer = { .data = bytes + 32, .capacity = 400, .fixed = true };
        uni__pack_map(&packer, 1);
        uni__pack_string(&packer, "w", 1);
        uni__pack_map(&packer, 5);
        const char *keys[] = { "__array__", "dtype", "shape", "offset", "bytes" };
        int64_t values[] = { 1, lies[i].dtype, 0, lies[i].offset, lies[i].bytes };
        for (int k = 0; k < 5; k++) {
            uni__pack_string(&packer, keys[k], strlen(keys[k]));
            if (k == 2)
                uni__pack_list(&packer, 1);
            uni__pack_int(&packer, k == 2 ? lies[i].shape : values[k]);
        }
        uint64_t tree = packer.size, offset = (32 + tree + 63) / 64 * 64, arrays = 64;
        memcpy(bytes + 8, &tree, 8);
        memcpy(bytes + 16, &offset, 8);
        memcpy(bytes + 24, &arrays, 8);
        uni_value *value = NULL;
        MUST_FAIL(uni__dict_decode(&value, bytes, offset + arrays, &err), UNI_EFORMAT, "array");
    }
}

static void test_newer_version(void **state)
{
    uni_value *dict = dict_with("a", 1), *value = NULL;
    size_t size;
    char *bytes = encode(dict, &size);
    bytes[7] = '2';
    MUST_FAIL(uni__dict_decode(&value, bytes, size, &err), UNI_EVERSION, "newer unisono");
    free(bytes);
    uni_value_free(dict);
}

/* Reads a checkpoint whose arrays another user can write to, then takes them away or changes them:
 * the values stay. A child does it, because a mapping would end it with SIGBUS. */
static void change_while_open(bool shorten)
{
    uni_value *dict = uni_value_dict(), *read = NULL;
    put(dict, "weights", array_value(UNI_F32, 1, (const int64_t[]){ 100000 }, 3));
    MUST(uni_checkpoint_write_dict(at("shared"), dict, &err));
    assert_int_equal(chmod(at("shared/arrays.bin"), 0664), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGBUS, SIG_DFL); /* cmocka would go on with the next test */
        bool good = uni__dict_read(&read, at("shared"), "", NULL) == 0;
        int fd = open(at("shared/arrays.bin"), O_WRONLY);
        static const char other[400000];
        good = good && fd >= 0 &&
               (shorten ? ftruncate(fd, 0) == 0 : pwrite(fd, other, sizeof other, 0) > 0);
        _exit(good && uni_value_equal(dict, read) ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s %d", WIFSIGNALED(status) ? "signal" : "exit code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    uni_value_free(dict);
}

static void test_shortened_while_open(void **state)
{
    change_while_open(true);
}

static void test_overwritten_while_open(void **state)
{
    change_while_open(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ROOTED(test) cmocka_unit_test_setup_teardown(test, setup_root, teardown_root)
        ROOTED(test_types),
        ROOTED(test_every_dtype),
        ROOTED(test_only_empty_arrays),
        ROOTED(test_escape),
        ROOTED(test_depth_limit),
        ROOTED(test_not_a_dictionary),
        ROOTED(test_copy_on_write),
        ROOTED(test_shortened_while_open),
        ROOTED(test_overwritten_while_open),
        cmocka_unit_test(test_damaged_bytes),
        cmocka_unit_test(test_lying_arrays),
        cmocka_unit_test(test_newer_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
