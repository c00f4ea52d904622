/* places_test.c - a run's directory, journal and logs, without a run. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "train/places.h"

static char storage[] = "/tmp/unisono-places-XXXXXX";

static void make(uni__places *places)
{
    char logdir[128];
    uni_error err = { 0 };
    snprintf(logdir, sizeof logdir, "%s/digits", storage);
    uni__places_init(places);
    if (uni__places_make(places, logdir, 2, &err) < 0)
        fail_msg("%s", err.message);
}

static int records(void *context, const uni_value *record, uni_error *err)
{
    char *text = context;
    snprintf(text + strlen(text), 200 - strlen(text), "%s %d %lld;",
             uni_dict_get_string(record, "event", "?"), (int)uni_dict_get_int(record, "attempt", 0),
             (long long)uni_dict_get_int(record, "number", -1));
    return 0;
}

static void numbers_count_up(void **state)
{
    uni__places first, second;
    make(&first);
    make(&second);
    assert_string_equal(first.id, "digits/run_001");
    assert_string_equal(second.id, "digits/run_002");
    assert_int_equal(second.number, 2);
    assert_true(uni__path_is_dir(second.logs_dir));
    char reserve[256];
    snprintf(reserve, sizeof reserve, "%s/.reserve", second.dir);
    uni__places_release_reserve(&second);
    assert_false(uni__path_exists(reserve));
    uni__places_release_reserve(&second); /* a second time does nothing */
    uni__places_clear(&first);
    uni__places_clear(&second);
    uni__places_init(&first);
    uni__places_release_reserve(&first); /* none was made */
    uni__places_clear(&first);
}

static void journal_goes_on(void **state)
{
    uni__places places, again;
    uni__journal_report report;
    char text[200] = "", path[256];
    make(&places);
    uni_value *record = uni_value_dict();
    assert_int_equal(uni_dict_take(record, "number", uni_value_int(4)), 0);
    uni__places_note(&places, 1, "checkpoint", record, true);
    uni__places_note(&places, 2, "attempt", NULL, false);
    uni__places_init(&again);
    again.dir = strdup(places.dir);
    again.id = strdup(places.id);
    uni__places_clear(&places);
    assert_int_equal(uni__places_reopen(&again, 2, NULL), 0);
    uni__places_note(&again, 3, "attempt", NULL, true);
    snprintf(path, sizeof path, "%s/journal.jsonl", again.dir);
    assert_int_equal(uni__journal_read(path, "journal", records, text, &report, NULL), 0);
    assert_string_equal(text, "checkpoint 1 4;attempt 2 -1;attempt 3 -1;");
    uni__places_clear(&again);
}

static void write_log(const uni__places *places, int rank, const char *text)
{
    char *path = uni__places_log(places, rank);
    assert_int_equal(uni__write_file(path, text, strlen(text), false, NULL), 0);
    free(path);
}

static void tails_of_logs(void **state)
{
    uni__places places;
    make(&places);
    assert_null(uni__places_log_tail(&places, 0, 0, 20)); /* there is none */
    write_log(&places, 1, "one\ntwo\nthree\nfour\n");
    char *tail = uni__places_log_tail(&places, 1, 0, 2);
    assert_string_equal(tail, "three\nfour\n");
    free(tail);
    tail = uni__places_log_tail(&places, 1, 8, 20); /* of this attempt only */
    assert_string_equal(tail, "three\nfour\n");
    free(tail);
    tail = uni__places_log_tail(&places, 1, 1000, 20); /* it was cut since then */
    assert_string_equal(tail, "one\ntwo\nthree\nfour\n");
    free(tail);
    assert_null(uni__places_log_tail(&places, 1, 19, 20)); /* nothing yet */
    uni__places_clear(&places);
}

static void logs_have_a_cap(void **state)
{
    uni__places places;
    struct stat info;
    char text[20001], older[256];
    make(&places);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    write_log(&places, 0, text);
    char *path = uni__places_log(&places, 0);
    uni__places_cap_log(&places, 0, 100000);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 20000); /* below the cap it is left alone */
    uni__places_cap_log(&places, 0, 5000);
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size < 5000);
    snprintf(older, sizeof older, "%s.1", path);
    assert_int_equal(stat(older, &info), 0);
    free(path);
    uni__places_clear(&places);
}

int main(void)
{
    if (!mkdtemp(storage))
        return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(numbers_count_up),
                                        cmocka_unit_test(journal_goes_on),
                                        cmocka_unit_test(tails_of_logs),
                                        cmocka_unit_test(logs_have_a_cap) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return uni__remove_tree(storage, NULL) == 0 ? failed : 1;
}
