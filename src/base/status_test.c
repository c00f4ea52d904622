/* status_test.c - codes, their names, and the message that a user reads. */
#include "base/test.h"
#include <errno.h>
#include <unisono/version.h>

static void names_and_sentences(void **state)
{
    assert_string_equal(uni_status_name(UNI_OK), "OK");
    assert_string_equal(uni_status_name(UNI_EDISKFULL), "EDISKFULL");
    assert_string_equal(uni_status_sentence(UNI_ECORRUPT),
                        "a checksum does not match: the data is corrupt");
    assert_string_equal(uni_status_name(-9999), "EUNKNOWN");
    assert_non_null(uni_status_sentence(-9999));
}

static void set_formats_and_returns(void **state)
{
    uni_error err = { .os_error = 5 };
    assert_int_equal(uni_error_set(&err, UNI_EINVAL, "rank %d of %s", 3, "x"), UNI_EINVAL);
    assert_int_equal(err.code, UNI_EINVAL);
    assert_int_equal(err.os_error, 0);
    assert_string_equal(err.message, "rank 3 of x");
    assert_int_equal(uni_error_set(NULL, UNI_EIO, "%d", 1), UNI_EIO);
    /* the old message may be part of the new one */
    uni_error_set(&err, UNI_EIO, "outer (%s)", err.message);
    assert_string_equal(err.message, "outer (rank 3 of x)");
}

static void errno_becomes_a_code_and_a_reason(void **state)
{
    static const struct {
        int os_error, code;
    } map[] = { { ENOSPC, UNI_EDISKFULL },  { EDQUOT, UNI_EDISKFULL },
                { ENOENT, UNI_ENOTFOUND },  { EACCES, UNI_EPERMISSION },
                { EPERM, UNI_EPERMISSION }, { ENOMEM, UNI_ENOMEM },
                { EIO, UNI_EIO },           { EROFS, UNI_EIO } };
    for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
        uni_error err = { 0 };
        assert_int_equal(uni_error_set_errno(&err, map[i].os_error, "cannot open \"%s\"", "f"),
                         map[i].code);
        assert_int_equal(err.code, map[i].code);
        assert_int_equal(err.os_error, map[i].os_error);
        assert_int_equal(uni_error_set_errno(NULL, map[i].os_error, "x"), map[i].code);
    }
    uni_error err = { 0 };
    uni_error_set_errno(&err, ENOSPC, "cannot write to \"%s\"", "/data/f");
    assert_string_equal(err.message, "cannot write to \"/data/f\": No space left on device");
}

static void prefix_goes_before(void **state)
{
    uni_error err = { 0 };
    uni_error_set_errno(&err, ENOENT, "cannot open \"f\"");
    assert_int_equal(uni_error_prefix(&err, "rank %d", 2), UNI_ENOTFOUND);
    assert_string_equal(err.message, "rank 2: cannot open \"f\": No such file or directory");
    assert_int_equal(err.os_error, ENOENT);
    assert_int_equal(uni_error_prefix(NULL, "x"), 0);
}

static void long_messages_are_cut_between_characters(void **state)
{
    char path[3000] = "";
    for (size_t i = 0; i + 3 < sizeof path; i += 2)
        memcpy(path + i, "\xC3\xA9", 3);
    uni_error err = { 0 };
    for (int pad = 0; pad < 2; pad++) {
        uni_error_set(&err, UNI_EIO, "%s%s", pad ? "-" : "", path);
        size_t length = strlen(err.message);
        assert_true(length >= UNI_ERROR_MESSAGE_SIZE - 3 && length < UNI_ERROR_MESSAGE_SIZE);
        assert_int_equal((unsigned char)err.message[length - 1], 0xA9);
        /* the reason is kept even when the path is too long */
        uni_error_set_errno(&err, ENOSPC, "%s%s", pad ? "-" : "", path);
        assert_non_null(strstr(err.message, "\xC3\xA9: No space left on device"));
        uni_error_prefix(&err, "%s%s", pad ? "-" : "", path);
        assert_true(strlen(err.message) < UNI_ERROR_MESSAGE_SIZE);
    }
}

static void version_is_the_header_s(void **state)
{
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", UNI_VERSION_MAJOR, UNI_VERSION_MINOR,
             UNI_VERSION_PATCH);
    assert_string_equal(uni_version(), expected);
    assert_string_equal(UNI_VERSION, expected);
    assert_string_equal(uni_version(), PROJECT_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sentences),
        cmocka_unit_test(set_formats_and_returns),
        cmocka_unit_test(errno_becomes_a_code_and_a_reason),
        cmocka_unit_test(prefix_goes_before),
        cmocka_unit_test(long_messages_are_cut_between_characters),
        cmocka_unit_test(version_is_the_header_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
