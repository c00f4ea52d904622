/* recorder_test.c - the flight recorder's file, read back: the newest records in their order, what
 * `unisono why` says of them, and files that are not one or are damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/asserts.h"
#include "base/file.h"
#include "comm/kinds.h"
#include "comm/recorder.h"
#include <unisono/comm.h>

static int enter(void **state)
{
    char name[256];
    *state = mkdtemp(uni__temporary_name(name, sizeof name, "recorder")) ? strdup(name) : NULL;
    return *state ? 0 : -1;
}

static int leave(void **state)
{
    int status = uni__remove_tree(*state, NULL);
    free(*state);
    return status;
}

static uni__record *add(uni__recorder *recorder, uint64_t number, int state)
{
    uni__record *record = uni__recorder_begin(recorder, 1000);
    record->number = number;
    record->kind = UNI__KIND_ALL_REDUCE;
    record->dtype = UNI_F32;
    record->op = UNI_COMM_SUM;
    record->count = 10 * number;
    record->state = (uint8_t)state;
    record->ended_ns = 1000 + 2500 * number;
    return record;
}

static uni__recorder *make(const char *dir, int rank, int size)
{
    uni__recorder *recorder = NULL;
    assert_ok(uni__recorder_new(&recorder, dir, rank, size, "shm", &failure));
    return recorder;
}

/* A record that is begun again has nothing of the one that was there. */
static void newest_are_kept(void **state)
{
    uni__record_file file;
    uni__recorder *recorder = make(*state, 1, 3);
    for (uint64_t i = 1; i <= UNI__RECORDER_RECORDS + 4; i++)
        add(recorder, i, UNI__RECORD_FAILED)->status = UNI_EPEER;
    uni__record *last = uni__recorder_begin(recorder, 77);
    assert_true(last->begun_ns == 77 && last->ended_ns == 0 && last->late_rank == -1 &&
                last->status == 0 && last->state == UNI__RECORD_WAITING);
    uni__recorder_late(recorder, 2, 5);
    uni__recorder_late(recorder, 2, 6);
    uni__recorder_free(recorder);
    char *path = uni__path_join(*state, "comm_rank_1.bin", NULL);
    assert_ok(uni__record_file_read(&file, path, &failure));
    assert_true(file.rank == 1 && file.size == 3 && file.pid == (int)getpid());
    assert_string_equal(file.transport, "shm");
    assert_int_equal(file.begun, UNI__RECORDER_RECORDS + 5);
    assert_int_equal(file.num_records, UNI__RECORDER_RECORDS);
    assert_int_equal(file.records[0].number, 6);
    assert_int_equal(file.records[UNI__RECORDER_RECORDS - 2].number, UNI__RECORDER_RECORDS + 4);
    assert_true(file.late[2].times == 2 && file.late[2].ns == 11 && file.late[0].times == 0);
    uni__record_file_free(&file);
    free(path);
}

static void described(void **state)
{
    uni__text text = { 0 };
    uni__recorder *recorder = make(*state, 0, 4);
    add(recorder, 1, UNI__RECORD_DONE);
    uni__record *second = add(recorder, 2, UNI__RECORD_DONE);
    second->late_rank = 3;
    second->late_ns = 1500;
    uni__recorder_late(recorder, 3, 3000000);
    uni__recorder_late(recorder, 3, 1000000);
    uni__recorder_late(recorder, 1, 1000);
    uni__recorder_free(recorder);
    recorder = make(*state, 1, 4);
    add(recorder, 1, UNI__RECORD_DONE);
    uni__record *failed = add(recorder, 2, UNI__RECORD_FAILED);
    failed->status = UNI_EPEER;
    add(recorder, 3, UNI__RECORD_WAITING);
    uni__recorder_free(recorder);
    uni__recorder_free(make(*state, 3, 4));
    assert_ok(uni__recorder_describe(&text, *state, 2, &failure));
    char expected[1200];
    int pid = (int)getpid();
    snprintf(expected, sizeof expected,
             "rank 3 came last in 2 of 3 collectives, on average 2.000 ms after the one before it\n"
             "rank 0 (pid %d, shm): finished all_reduce #2 and called nothing more\n"
             "  #1      all_reduce             10 float32  sum  took 2.5 us\n"
             "  #2      all_reduce             20 float32  sum  took 5.0 us, rank 3 came last "
             "(1.5 us)\n"
             "rank 1 (pid %d, shm): was in all_reduce #3\n"
             "  #2      all_reduce             20 float32  sum  failed after 0.0 ms (EPEER)\n"
             "  #3      all_reduce             30 float32  sum  did not end\n"
             "rank 2 left no recorder file\n"
             "rank 3 (pid %d, shm): called no collective\n",
             pid, pid, pid);
    assert_string_equal(text.data, expected);
    uni__text_free(&text);
}

/* Rank 0 may be on another host. */
static void first_file_is_found(void **state)
{
    uni__text text = { 0 };
    assert_fails(uni__recorder_describe(&text, *state, 2, &failure), UNI_ENOTFOUND,
                 "no collective recorder file");
    uni__recorder_free(make(*state, 5, 6));
    assert_ok(uni__recorder_describe(&text, *state, 2, &failure));
    assert_non_null(strstr(text.data, "rank 5 (pid"));
    assert_null(strstr(text.data, "came last"));
    uni__text_free(&text);
}

static void bad_files(void **state)
{
    uni__record_file file;
    char *path = uni__path_join(*state, "comm_rank_0.bin", NULL), *data = NULL;
    size_t size = 0;
    uni__recorder_free(make(*state, 0, 2));
    assert_ok(uni__read_unlinked(&data, &size, path, 1 << 20, &failure));
    /* The byte of the header to change, its new value, and what is said. */
    static const struct {
        size_t at;
        char value;
        int code;
        const char *words;
    } cases[] = {
        { 0, 'x', UNI_EFORMAT, "not a file of the collective recorder" },
        { 8, 2, UNI_EVERSION, "has format 2, this program reads 1" },
        { 12, 2, UNI_EFORMAT, "not a file" }, /* rank 2 of 2 */
        { 16, 0, UNI_EFORMAT, "not a file" }, /* of 0 */
        { 17, 5, UNI_EFORMAT, "not a file" }, /* of 1282 */
        { 21, 2, UNI_EFORMAT, "is damaged" }, /* more records than there are bytes */
        { 21, 0, UNI_EFORMAT, "is damaged" }, /* no record */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char before = data[cases[i].at];
        data[cases[i].at] = cases[i].value;
        assert_ok(uni__write_file(path, data, size, false, &failure));
        data[cases[i].at] = before;
        assert_fails(uni__record_file_read(&file, path, &failure), cases[i].code, cases[i].words);
        assert_null(file.records);
    }
    assert_ok(uni__write_file(path, data, size - 1, false, &failure));
    assert_fails(uni__record_file_read(&file, path, &failure), UNI_EFORMAT, "is damaged");
    assert_ok(uni__write_file(path, data, 10, false, &failure));
    assert_fails(uni__record_file_read(&file, path, &failure), UNI_EFORMAT, "not a file");
    free(data);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(newest_are_kept, enter, leave),
        cmocka_unit_test_setup_teardown(described, enter, leave),
        cmocka_unit_test_setup_teardown(first_file_is_found, enter, leave),
        cmocka_unit_test_setup_teardown(bad_files, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
