/*
 * journal_test.c - the journal's promise: it is readable after a kill at any byte and a flip of any
 * bit, loses no complete record, invents none, and continues.
 */
#include "base/test.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/journal.h"

#define RECORDS 5

static uni_value *record(int64_t n)
{
    uni_value *value = uni_value_dict();
    assert_int_equal(uni_dict_take(value, "event", uni_value_string("attempt \"x\"")), 0);
    assert_int_equal(uni_dict_take(value, "n", uni_value_int(n)), 0);
    assert_int_equal(uni_dict_take(value, "check", uni_value_int(n * 7919 % 1009)), 0);
    return value;
}

static int append(uni__journal *journal, int64_t n, bool durable, uni_error *err)
{
    uni_value *value = record(n);
    int status = uni__journal_append(journal, value, durable, err);
    uni_value_free(value);
    return status;
}

typedef struct seen {
    int64_t last;
    int count;
} seen;

/* Every record must be one that was written, complete, and in order. */
static int see(void *context, const uni_value *value, uni_error *err)
{
    seen *s = context;
    int64_t n = uni_dict_get_int(value, "n", -1);
    uni_value *expected = record(n);
    assert_true(uni_value_equal(value, expected));
    uni_value_free(expected);
    assert_true(n > s->last);
    s->last = n;
    s->count++;
    return 0;
}

static uni__journal_report read_all(const char *path, seen *s)
{
    uni__journal_report report;
    *s = (seen){ .last = -1 };
    assert_ok(uni__journal_read(path, "journal", see, s, &report, &failure));
    assert_int_equal(report.records, s->count);
    return report;
}

static char *make_journal(void **state, int records)
{
    char *path = uni__path_join(*state, "journal.jsonl", NULL);
    uni__journal *journal = NULL;
    unlink(path);
    assert_ok(uni__journal_open(&journal, path, "journal", &failure));
    for (int n = 0; n < records; n++)
        assert_ok(append(journal, n, n % 2 == 0, &failure));
    uni__journal_close(journal);
    return path;
}

static void load(const char *path, char **bytes, size_t *size)
{
    assert_ok(uni__read_file(bytes, size, path, 1 << 20, &failure));
}

static void store(const char *path, const char *bytes, size_t size)
{
    assert_ok(uni__write_file(path, bytes, size, false, &failure));
}

static void records_come_back_over_several_openings(void **state)
{
    char *path = make_journal(state, 2);
    uni__journal *journal = NULL;
    seen s;
    for (int n = 2; n < 6; n++) {
        assert_ok(uni__journal_open(&journal, path, "journal", &failure));
        assert_ok(append(journal, n, false, &failure));
        uni__journal_close(journal);
    }
    uni__journal_report report = read_all(path, &s);
    assert_int_equal(report.records, 6);
    assert_int_equal(report.damaged, 0);
    assert_false(report.torn);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    free(path);
    uni__journal_close(NULL);
}

/* The bytes are a file format: this text must not change. */
static void the_format_on_disk(void **state)
{
    char *path = make_journal(state, 1), *bytes = NULL, *line, hash[17], expected[200];
    size_t size;
    load(path, &bytes, &size);
    static const char head[] = "{\"format\":\"unisono journal\",\"version\":1";
    uni__hash_bytes(head, sizeof head - 1, hash);
    snprintf(expected, sizeof expected, "%s,\"x\":\"%s\"}\n", head, hash + 8);
    assert_memory_equal(bytes, expected, strlen(expected));
    line = bytes + strlen(expected);
    static const char body[] = "{\"event\":\"attempt \\\"x\\\"\",\"n\":0,\"check\":0";
    uni__hash_bytes(body, sizeof body - 1, hash);
    snprintf(expected, sizeof expected, "%s,\"x\":\"%s\"}\n", body, hash + 8);
    assert_string_equal(line, expected);
    free(bytes);
    free(path);
}

static void every_truncation_reads_and_goes_on(void **state)
{
    char *path = make_journal(state, RECORDS), *bytes = NULL;
    size_t size;
    load(path, &bytes, &size);
    for (size_t cut = 0; cut <= size; cut++) {
        int lines = 0;
        for (size_t i = 0; i < cut; i++)
            lines += bytes[i] == '\n';
        int complete = lines > 0 ? lines - 1 : 0;
        bool clean = cut == 0 || bytes[cut - 1] == '\n';
        seen s;
        store(path, bytes, cut);
        uni__journal_report report = read_all(path, &s);
        assert_int_equal(s.count, complete);
        assert_int_equal(report.damaged, 0);
        assert_int_equal(report.torn, !clean);
        uni__journal *journal = NULL;
        assert_ok(uni__journal_open(&journal, path, "journal", &failure));
        assert_ok(append(journal, 100, false, &failure));
        uni__journal_close(journal);
        report = read_all(path, &s);
        assert_int_equal(s.count, complete + 1);
        assert_int_equal(s.last, 100);
        assert_int_equal(report.damaged, 0);
        assert_false(report.torn);
    }
    free(bytes);
    free(path);
}

static void every_flip_is_noticed_and_survived(void **state)
{
    char *path = make_journal(state, RECORDS), *bytes = NULL;
    size_t size;
    static const char masks[] = { 1, 0x20, (char)0x80, (char)0xFF };
    load(path, &bytes, &size);
    for (size_t i = 0; i < size; i++) {
        for (size_t k = 0; k < sizeof masks; k++) {
            seen s;
            bytes[i] = (char)(bytes[i] ^ masks[k]);
            store(path, bytes, size);
            uni__journal_report report = read_all(path, &s);
            bool header = memchr(bytes, '\n', i) == NULL;
            /* a broken LF destroys two lines, anything else one */
            assert_true(s.count >= RECORDS - 2 && s.count <= (header ? RECORDS : RECORDS - 1));
            assert_true(report.damaged + report.torn >= 1);
            uni__journal *journal = NULL;
            assert_ok(uni__journal_open(&journal, path, "journal", &failure));
            assert_ok(append(journal, 100, false, &failure));
            uni__journal_close(journal);
            int before = s.count;
            report = read_all(path, &s);
            assert_int_equal(s.count, before + 1);
            assert_int_equal(s.last, 100);
            assert_false(report.torn);
            bytes[i] = (char)(bytes[i] ^ masks[k]);
        }
    }
    free(bytes);
    free(path);
}

/* A process dies at the n-th operation, also in the middle of a write; the next one continues. */
static void a_crash_at_every_operation(void **state)
{
    char *path = uni__path_join(*state, "journal.jsonl", NULL);
    bool finished = false;
    for (int n = 1; !finished; n++) {
        for (size_t shorten = 0; shorten <= 20; shorten += 10) {
            unlink(path);
            int done[2]; /* the child reports how many appends returned */
            assert_int_equal(pipe(done), 0);
            pid_t child = fork();
            if (child == 0) {
                countdown count = { .at = n, .shorten = shorten };
                uni__journal *journal = NULL;
                uni__fault_hook_set(countdown_hook, &count);
                if (uni__journal_open(&journal, path, "journal", NULL) < 0)
                    _exit(1);
                for (int k = 0; k < 3; k++)
                    if (append(journal, k, true, NULL) < 0 || write(done[1], "x", 1) != 1)
                        _exit(1);
                _exit(0);
            }
            close(done[1]);
            char acknowledged[8];
            int count = 0, status;
            for (ssize_t got; (got = read(done[0], acknowledged, sizeof acknowledged)) > 0;)
                count += (int)got;
            close(done[0]);
            assert_int_equal(waitpid(child, &status, 0), child);
            finished = WEXITSTATUS(status) == 0;
            assert_true(finished || WEXITSTATUS(status) == 99);
            uni__journal *journal = NULL;
            seen s;
            assert_ok(uni__journal_open(&journal, path, "journal", &failure));
            assert_ok(append(journal, 100, false, &failure));
            uni__journal_close(journal);
            uni__journal_report report = read_all(path, &s);
            assert_true(s.count >= count + 1 && s.count <= count + 2);
            assert_int_equal(report.damaged, 0);
            assert_false(report.torn);
        }
    }
    free(path);
}

/* The disk is full halfway through a line, and truncating it fails once, too; then there is room
 * again. */
static void a_full_disk_does_not_glue_lines_together(void **state)
{
    for (int cut_fails = 0; cut_fails < 2; cut_fails++) {
        char *path = make_journal(state, 1);
        uni__journal *journal = NULL;
        seen s;
        assert_ok(uni__journal_open(&journal, path, "journal", &failure));
        countdown count = { .at = 2, .error = ENOSPC, .shorten = 11, .sticky = cut_fails };
        uni__fault_hook_set(countdown_hook, &count);
        assert_fails(append(journal, 1, false, &failure), UNI_EDISKFULL, path);
        uni__fault_hook_set(NULL, NULL);
        uni__journal_report report = read_all(path, &s);
        assert_int_equal(report.torn, cut_fails);
        assert_int_equal(s.count, 1);
        assert_ok(append(journal, 2, false, &failure));
        uni__journal_close(journal);
        report = read_all(path, &s);
        assert_int_equal(s.count, 2);
        assert_int_equal(report.damaged, 0);
        assert_false(report.torn);
        free(path);
    }
}

static void a_failed_sync_is_an_error(void **state)
{
    char *path = make_journal(state, 1);
    uni__journal *journal = NULL;
    assert_ok(uni__journal_open(&journal, path, "journal", &failure));
    for (int n = 2; n <= 3; n++) { /* sync of the file, of its directory */
        countdown count = { .at = n, .error = EIO };
        uni__fault_hook_set(countdown_hook, &count);
        assert_fails(append(journal, n, true, &failure), UNI_EIO, "sync");
        uni__fault_hook_set(NULL, NULL);
    }
    uni__journal_close(journal);
    free(path);
}

static void a_second_writer_is_refused(void **state)
{
    char *path = make_journal(state, 1);
    uni__journal *first = NULL, *second = (uni__journal *)1;
    assert_ok(uni__journal_open(&first, path, "journal", &failure));
    assert_fails(uni__journal_open(&second, path, "journal", &failure), UNI_EBUSY, path);
    assert_null(second);
    assert_ok(append(first, 1, false, &failure));
    uni__journal_close(first);
    assert_ok(uni__journal_open(&second, path, "journal", &failure));
    uni__journal_close(second);
    free(path);
}

static void store_header(const char *path, const char *body, const char *rest)
{
    char text[300], hash[17];
    uni__hash_bytes(body, strlen(body), hash);
    snprintf(text, sizeof text, "%s,\"x\":\"%s\"}\n%s", body, hash + 8, rest);
    store(path, text, strlen(text));
}

static void other_kinds_and_versions_are_refused(void **state)
{
    char *path = uni__path_join(*state, "j", NULL);
    uni__journal *journal = NULL;
    store_header(path, "{\"format\":\"unisono journal\",\"version\":2", "");
    assert_fails(uni__journal_read(path, "journal", NULL, NULL, NULL, &failure), UNI_EVERSION,
                 "version 2");
    assert_fails(uni__journal_open(&journal, path, "journal", &failure), UNI_EVERSION, path);
    store_header(path, "{\"format\":\"unisono decisions\",\"version\":1", "");
    assert_fails(uni__journal_read(path, "journal", NULL, NULL, NULL, &failure), UNI_EFORMAT,
                 "unisono decisions");
    assert_fails(uni__journal_open(&journal, path, "journal", &failure), UNI_EFORMAT, path);
    store_header(path, "{\"format\":\"unisono journal\",\"version\":1,\"later\":[1]", "");
    assert_ok(uni__journal_read(path, "journal", NULL, NULL, NULL, &failure));
    free(path);
    path = uni__path_join(*state, "missing", NULL);
    assert_fails(uni__journal_read(path, "journal", NULL, NULL, NULL, &failure), UNI_ENOTFOUND,
                 path);
    free(path);
}

/* Opening the wrong file must not truncate it. */
static void a_foreign_file_is_left_alone(void **state)
{
    static const char *const texts[] = { "my thesis", "my thesis\nline two\n", "{\"a\":1}\n",
                                         "\n" };
    char *path = uni__path_join(*state, "thesis.txt", NULL), *bytes = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uni__journal *journal = NULL;
        size_t size;
        store(path, texts[i], strlen(texts[i]));
        assert_fails(uni__journal_open(&journal, path, "journal", &failure), UNI_EFORMAT, path);
        assert_fails(uni__journal_read(path, "journal", NULL, NULL, NULL, &failure), UNI_EFORMAT,
                     path);
        load(path, &bytes, &size);
        assert_string_equal(bytes, texts[i]);
        free(bytes);
    }
    free(path);
}

static void bad_records_are_refused(void **state)
{
    char *path = make_journal(state, 0);
    uni__journal *journal = NULL;
    uni_value *empty = uni_value_dict(), *list = uni_value_list(), *taken = uni_value_dict();
    seen s;
    assert_int_equal(uni_dict_take(taken, "x", uni_value_int(1)), 0);
    assert_ok(uni__journal_open(&journal, path, "journal", &failure));
    assert_fails(uni__journal_append(journal, empty, false, &failure), UNI_EINVAL, "dictionary");
    assert_fails(uni__journal_append(journal, list, false, &failure), UNI_EINVAL, "dictionary");
    assert_fails(uni__journal_append(journal, taken, false, &failure), UNI_EINVAL, "\"x\"");
    char *large = malloc((17 << 20) + 1);
    memset(large, 'a', 17 << 20);
    large[17 << 20] = 0;
    assert_int_equal(uni_dict_take(empty, "large", uni_value_string(large)), 0);
    free(large);
    assert_fails(uni__journal_append(journal, empty, false, &failure), UNI_ELIMIT, "bytes");
    assert_ok(append(journal, 1, false, &failure)); /* still usable */
    uni__journal_close(journal);
    assert_int_equal(read_all(path, &s).records, 1);
    uni_value_free(empty);
    uni_value_free(list);
    uni_value_free(taken);
    free(path);
}

/* A line without an end (a hole of zeros in the middle) is skipped, with bounded memory. */
static void an_endless_line_is_passed_over(void **state)
{
    char *path = make_journal(state, 2), *more = NULL;
    size_t size;
    load(path, &more, &size);
    const char *last = memrchr(more, '\n', size - 1);
    int fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(ftruncate(fd, (off_t)size + (40 << 20)), 0);
    uni_value *value = record(50);
    assert_int_equal(write(fd, "\n", 1), 1);
    close(fd);
    uni__journal *journal = NULL;
    seen s;
    uni__journal_report report = read_all(path, &s);
    assert_true(report.torn); /* it is the last line so far */
    assert_int_equal(s.count, 2);
    fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, last + 1, strlen(last + 1)), strlen(last + 1));
    close(fd);
    s = (seen){ .last = -1 };
    assert_ok(uni__journal_read(path, "journal", NULL, NULL, &report, &failure));
    assert_int_equal(report.records, 3);
    assert_int_equal(report.damaged, 1);
    assert_false(report.torn);
    assert_ok(uni__journal_open(&journal, path, "journal", &failure));
    assert_ok(uni__journal_append(journal, value, false, &failure));
    uni__journal_close(journal);
    assert_ok(uni__journal_read(path, "journal", NULL, NULL, &report, &failure));
    assert_int_equal(report.records, 4);
    uni_value_free(value);
    free(more);
    free(path);
}

static int stop_visiting(void *context, const uni_value *value, uni_error *err)
{
    return uni_error_set(err, UNI_ECANCELED, "seen enough");
}

static void a_visitor_can_stop(void **state)
{
    char *path = make_journal(state, 3);
    assert_fails(uni__journal_read(path, "journal", stop_visiting, NULL, NULL, &failure),
                 UNI_ECANCELED, "enough");
    free(path);
}

#define WITH_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, enter_directory, leave_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIRECTORY(records_come_back_over_several_openings),
        WITH_DIRECTORY(the_format_on_disk),
        WITH_DIRECTORY(every_truncation_reads_and_goes_on),
        WITH_DIRECTORY(every_flip_is_noticed_and_survived),
        WITH_DIRECTORY(a_crash_at_every_operation),
        WITH_DIRECTORY(a_full_disk_does_not_glue_lines_together),
        WITH_DIRECTORY(a_failed_sync_is_an_error),
        WITH_DIRECTORY(a_second_writer_is_refused),
        WITH_DIRECTORY(other_kinds_and_versions_are_refused),
        WITH_DIRECTORY(a_foreign_file_is_left_alone),
        WITH_DIRECTORY(bad_records_are_refused),
        WITH_DIRECTORY(an_endless_line_is_passed_over),
        WITH_DIRECTORY(a_visitor_can_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
