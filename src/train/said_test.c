/* said_test.c - what workers say, taken apart; hostile bytes are refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/shared.h"
#include "base/dict.h"
#include "base/msgpack.h"
#include "train/said.h"

static void reports(void **state)
{
    uint8_t frame[64] = { 0 };
    int64_t iteration = 7;
    uint32_t no_state = 0, too_much = 1000;
    uni__report_parts parts;
    memcpy(frame, &iteration, sizeof iteration);
    memcpy(frame + 8, &no_state, sizeof no_state);
    memcpy(frame + 12, "\x81\xa1x\x01", 4);
    assert_int_equal(uni__report_split(&parts, frame, 16, NULL), 0);
    assert_int_equal(parts.iteration, 7);
    assert_int_equal(parts.state.size, 0);
    assert_int_equal(parts.metrics_size, 4);
    assert_ptr_equal(parts.metrics, frame + 12);
    for (size_t cut = 0; cut < 12; cut++)
        assert_int_equal(uni__report_split(&parts, frame, cut, NULL), UNI_EFORMAT);
    memcpy(frame + 8, &too_much, sizeof too_much);
    assert_int_equal(uni__report_split(&parts, frame, 16, NULL), UNI_EFORMAT);
    no_state = 4; /* four bytes of garbage */
    memcpy(frame + 8, &no_state, sizeof no_state);
    memset(frame + 12, 0xc1, 4);
    assert_true(uni__report_split(&parts, frame, 20, NULL) < 0);
}

/* A group whose worker is not there: it has passed no buffer. (links_test.c has those that did.) */
static uni__group *group;

static int hand_in(uni_value *message, uni__handed *out, uni_error *err)
{
    void *bytes = NULL;
    size_t size = 0;
    assert_int_equal(uni__msgpack_write(&bytes, &size, message, NULL), 0);
    uni_value_free(message);
    int status = uni__handed_read(out, group, 0, bytes, size, err);
    free(bytes);
    return status;
}

static void directories(void **state)
{
    uni__handed handed;
    assert_int_equal(
        hand_in(UNI__DICT({ "iteration", uni_value_int(5) }, { "alone", uni_value_bool(true) },
                          { "path", uni_value_string("/somewhere") }),
                &handed, NULL),
        0);
    assert_string_equal(handed.path, "/somewhere");
    assert_int_equal(handed.iteration, 5);
    assert_int_equal(handed.slot, -1);
    assert_true(handed.alone);
    assert_null(handed.region);
    uni__handed_clear(&handed);
}

static void checkpoints_of_steps(void **state)
{
    uni__handed handed;
    uni_error err = { 0 };
    assert_int_equal(
        hand_in(UNI__DICT({ "iteration", uni_value_int(5) }, { "alone", uni_value_bool(true) },
                          { "step", uni_value_bool(true) }, { "path", uni_value_string("/s") }),
                &handed, NULL),
        0);
    assert_true(handed.alone && handed.of_step);
    uni__handed_clear(&handed);
    assert_int_equal(
        hand_in(UNI__DICT({ "iteration", uni_value_int(5) }, { "step", uni_value_bool(true) },
                          { "path", uni_value_string("/s") }),
                &handed, &err),
        UNI_EFORMAT);
}

static void checkpoints_that_are_lies(void **state)
{
    static const int64_t lies[][2] = { { 1, 4097 }, { 0, 1 },         { 2, 1 },  { -1, 1 },
                                       { 1, 0 },    { 1, INT64_MAX }, { 1, -5 }, { INT64_MAX, 1 } };
    uni__handed handed;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uni_error err = { 0 };
        assert_int_equal(hand_in(UNI__DICT({ "slot", uni_value_int(lies[i][0]) },
                                           { "size", uni_value_int(lies[i][1]) }),
                                 &handed, &err),
                         UNI_EFORMAT);
        assert_string_equal(err.message, "it sent a checkpoint without its buffer");
    }
    assert_true(hand_in(uni_value_list(), &handed, NULL) < 0);
    assert_true(hand_in(UNI__DICT({ "path", uni_value_string("/x") },
                                  { "state", uni_value_bytes("\xc1\xc1", 2) }),
                        &handed, NULL) < 0);
    assert_true(uni__handed_read(&handed, group, 0, (const uint8_t *)"\xc1", 1, NULL) < 0);
    assert_true(uni__handed_read(&handed, group, 0, NULL, 0, NULL) < 0);
}

static int read_line(uni__line *line, const char *text)
{
    return uni__line_read(line, text, strlen(text), NULL);
}

static void lines(void **state)
{
    uni__line line;
    assert_int_equal(read_line(&line, "{\"loss\": 0.5, \"checkpoint\": \"is a metric here\"}"), 0);
    assert_true(uni_dict_get_float(line.metrics, "loss", 0) == 0.5);
    assert_null(line.path);
    uni__line_clear(&line);
    assert_int_equal(read_line(&line, "{\"metrics\": {\"loss\": NaN}, \"checkpoint\": \"d\"}"), 0);
    assert_true(isnan(uni_dict_get_float(line.metrics, "loss", 0)));
    assert_string_equal(line.path, "d");
    assert_false(line.staged);
    uni__line_clear(&line);
    assert_int_equal(read_line(&line,
                               "{\"metrics\": {\"a\": null, \"b\": null}, \"staged\": \"s\", "
                               "\"nonfinite\": {\"a\": \"-Infinity\", \"b\": \"NaN\"}}"),
                     0);
    assert_true(uni_dict_get_float(line.metrics, "a", 0) == -INFINITY);
    assert_true(isnan(uni_dict_get_float(line.metrics, "b", 0)));
    assert_string_equal(line.path, "s");
    assert_true(line.staged);
    uni__line_clear(&line);
    assert_int_equal(read_line(&line, "{\"metrics\": {}, \"disk_full\": true}"), 0);
    assert_true(line.disk_full);
    assert_null(line.metrics);
    uni__line_clear(&line);
}

static void lines_that_are_none(void **state)
{
    static const char *const wrong[] = { "",
                                         "[1]",
                                         "3",
                                         "\"x\"",
                                         "{",
                                         "{\"metrics\": 3}",
                                         "{\"metrics\": [], \"checkpoint\": \"d\"}",
                                         "{\"metrics\": {}, \"checkpont\": \"d\"}",
                                         "{\"metrics\": {}, \"checkpoint\": 3}" };
    uni__line line;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_true(read_line(&line, wrong[i]) < 0);
        assert_null(line.metrics);
        assert_null(line.path);
    }
    assert_int_equal(uni__line_read(&line, NULL, 0, NULL), UNI_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports),
        cmocka_unit_test(directories),
        cmocka_unit_test(checkpoints_of_steps),
        cmocka_unit_test(checkpoints_that_are_lies),
        cmocka_unit_test(lines),
        cmocka_unit_test(lines_that_are_none),
    };
    static const uni__group_events none = { 0 };
    uni_error err = { 0 };
    if (uni__group_new(&group, 1, -1, &none, NULL, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    uni__group_free(group);
    return failed;
}
