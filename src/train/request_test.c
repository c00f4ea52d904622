/* request_test.c - a caller's options become a request of its own, or an error that names them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/request.h"

static int do_nothing(uni_session *session, uni_value **result, uni_error *err)
{
    return 0;
}

static const uni_function functions[] = { { "train", do_nothing }, { "other", do_nothing }, { 0 } };

static int read_it(uni__request *out, const uni_run_options *asked, uni_error *err)
{
    return uni__request_read(out, asked, true, functions, err);
}

static void copies_everything(void **state)
{
    char name[] = "train", score[] = "loss";
    uni_value *config = uni_value_dict();
    uni__request request;
    uni_error err = { 0 };
    assert_int_equal(uni_dict_take(config, "lr", uni_value_int(3)), 0);
    uni_run_options asked = { .function = name,
                              .config = config,
                              .policy = &(uni_checkpoint_policy){ .num_to_keep = 2,
                                                                  .score_attribute = score },
                              .time_limit = 9,
                              .v1_checkpoints = true,
                              .synchronous_checkpoints = true };
    assert_int_equal(read_it(&request, &asked, &err), 0);
    name[0] = score[0] = 'X';
    uni_value_free(config);
    assert_string_equal(request.function, "train");
    assert_int_equal(uni_dict_get_int(request.config, "lr", 0), 3);
    assert_int_equal(request.policy.num_to_keep, 2);
    assert_string_equal(request.policy.score_attribute, "loss");
    assert_true(request.time_limit == 9);
    assert_true(request.v1 && request.synchronous && !request.trial);
    assert_int_equal(request.from_fd, -1);
    assert_null(request.program);
    uni__request_clear(&request);
}

static void a_program_is_found(void **state)
{
    uni__request request;
    const char *const argv[] = { "sh", "-c", "true", NULL };
    assert_int_equal(
        uni__request_read(&request, &(uni_run_options){ .program = argv }, false, NULL, NULL), 0);
    assert_int_equal(request.exe[0], '/');
    assert_int_equal(uni_list_size(request.program), 3);
    assert_int_equal(uni_dict_size(request.config), 0);
    uni__request_clear(&request);
}

static void a_dictionary_waits_in_memory(void **state)
{
    uni__request request;
    uni_value *dict = uni_value_dict();
    assert_int_equal(uni_dict_take(dict, "step", uni_value_int(7)), 0);
    assert_int_equal(
        read_it(&request, &(uni_run_options){ .function = "other", .from_dict = dict }, NULL), 0);
    assert_true(request.from_fd >= 0);
    assert_true(lseek(request.from_fd, 0, SEEK_END) > 0);
    /* Each worker gets it: none changes it for the others. */
    assert_int_equal(pwrite(request.from_fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(request.from_fd, 0), -1);
    uni__request_clear(&request);
    uni_value_free(dict);
}

static void mistakes_are_named(void **state)
{
    const char *const none[] = { "no-such-program-anywhere", NULL };
    uni_value *list = uni_value_list(), *dict = uni_value_dict();
    const struct {
        uni_run_options asked;
        int code;
        const char *words;
    } cases[] = {
        { { 0 }, UNI_EINVAL, "either a function or a program" },
        { { .function = "train", .program = none }, UNI_EINVAL, "either a function or a program" },
        { { .function = "typo" }, UNI_ENOTFOUND, "there are: train, other" },
        { { .program = none }, UNI_ENOTFOUND, "no-such-program-anywhere" },
        { { .function = "train", .config = list }, UNI_EINVAL, "config must be a dictionary" },
        { { .function = "train", .datasets = list }, UNI_EINVAL, "datasets must be a dictionary" },
        { { .function = "train", .time_limit = -1 }, UNI_EINVAL, "must not be negative" },
        { { .function = "train", .progress_timeout = -1 }, UNI_EINVAL, "must not be negative" },
        { { .function = "train", .from_checkpoint = "/nowhere", .from_dict = dict },
          UNI_EINVAL,
          "exclude each other" },
        { { .function = "train", .from_checkpoint = "/nowhere" },
          UNI_ENOTFOUND,
          "cannot start from /nowhere" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni__request request;
        uni_error err = { 0 };
        int status = read_it(&request, &cases[i].asked, &err);
        if (status != cases[i].code || !strstr(err.message, cases[i].words))
            fail_msg("case %zu: %d %s", i, status, err.message);
        uni__request_clear(&request);
    }
    uni__request request;
    uni_error err = { 0 };
    assert_int_equal(
        uni__request_read(&request, &(uni_run_options){ .function = "train" }, false, NULL, &err),
        UNI_ESTATE);
    uni__request_clear(&request);
    uni_value_free(list);
    uni_value_free(dict);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_everything),
        cmocka_unit_test(a_program_is_found),
        cmocka_unit_test(a_dictionary_waits_in_memory),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
