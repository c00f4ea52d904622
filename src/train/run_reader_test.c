/* run_reader_test.c - run directories read from outside: names, live runs, what is safe to stop
 * and to remove. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <unisono/log.h>
#include <unisono/run.h>

#include "train/shared.h"
#include "base/file.h"
#include "base/journal.h"

typedef struct place {
    char dir[256];
} place;

static int setup(void **state)
{
    place *here = calloc(1, sizeof *here);
    *state = here;
    uni_log_level_set(UNI_LOG_OFF);
    return mkdtemp(uni__temporary_name(here->dir, sizeof here->dir, "reader")) ? 0 : -1;
}

static int teardown(void **state)
{
    place *here = *state;
    int status = uni__remove_tree(here->dir, NULL);
    free(here);
    return status;
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char *path = uni__path_join(dir, name, NULL);
    assert_int_equal(uni__write_file(path, text, strlen(text), false, NULL), 0);
    free(path);
}

/* pid 0: a controller that is gone. host NULL: this one. */
static char *make_run(const place *here, const char *name, int number, const char *status,
                      double created, long pid, long long ticks, const char *host)
{
    char text[1024], mine[256] = "", *dir = NULL;
    gethostname(mine, sizeof mine - 1);
    assert_true(asprintf(&dir, "%s/%s/run_%03d", here->dir, name, number) > 0);
    assert_int_equal(uni__make_dirs(dir, 0700, NULL), 0);
    snprintf(
        text, sizeof text,
        "{\"format\":\"unisono run\",\"version\":1,\"id\":\"%s/run_%03d\",\"status\":\"%s\","
        "\"created\":%.1f,\"hostname\":\"%s\",\"controller\":{\"pid\":%ld,\"start_ticks\":%lld},"
        "\"num_workers\":2}",
        name, number, status, created, host ? host : mine, pid, ticks);
    write_text(dir, "run.json", text);
    return dir;
}

static long long ticks_of(pid_t pid)
{
    char path[64], line[1024] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(line, 1, sizeof line - 1, file) > 0);
    fclose(file);
    char *word = strtok(strrchr(line, ')') + 1, " ");
    for (int i = 0; i < 19; i++)
        word = strtok(NULL, " ");
    return atoll(word);
}

static void test_storage(void **state)
{
    (void)state;
    char *path = NULL;
    uni_error err = { 0 };
    setenv("UNISONO_RESULTS", "/from/environment", 1);
    assert_int_equal(uni__run_storage(&path, NULL, &err), 0);
    assert_string_equal(path, "/from/environment");
    free(path);
    assert_int_equal(uni__run_storage(&path, "file:///a/b", &err), 0);
    assert_string_equal(path, "/a/b");
    free(path);
    assert_int_equal(uni__run_storage(&path, "s3://bucket", &err), UNI_EUNSUPPORTED);
    assert_int_equal(uni__run_storage(&path, "s3:/bucket", &err), UNI_EUNSUPPORTED);
    assert_int_equal(uni__run_storage(&path, "file:/a", &err), UNI_EUNSUPPORTED);
    assert_null(path);
    unsetenv("UNISONO_RESULTS");
    setenv("HOME", "/home/me", 1);
    assert_int_equal(uni__run_storage(&path, NULL, &err), 0);
    assert_string_equal(path, "/home/me/unisono_results");
    free(path);
}

static void expect_id(const place *here, const char *name, const char *id)
{
    uni_run *run = NULL;
    uni_error err = { 0 };
    if (uni_run_open(&run, name, here->dir, &err) < 0)
        fail_msg("%s: %s", name ? name : "newest", err.message);
    assert_string_equal(uni_run_info_of(run)->id, id);
    uni_run_close(run);
}

static void test_names(void **state)
{
    const place *here = *state;
    uni_run *run = NULL;
    uni_error err = { 0 };
    assert_int_equal(uni_run_open(&run, NULL, here->dir, &err), UNI_ENOTFOUND);
    char *first = make_run(here, "digits", 1, "succeeded", 100, 0, 0, NULL);
    free(make_run(here, "digits", 9, "succeeded", 200, 0, 0, NULL));
    free(make_run(here, "digits", 10, "succeeded", 300, 0, 0, NULL));
    free(make_run(here, "words", 1, "succeeded", 400, 0, 0, NULL));
    expect_id(here, NULL, "words/run_001");
    expect_id(here, "digits", "digits/run_010"); /* by number, not by spelling */
    expect_id(here, "digits/run_009", "digits/run_009");
    expect_id(here, first, "digits/run_001");
    assert_int_equal(uni_run_open(&run, "digist", here->dir, &err), UNI_ENOTFOUND);
    assert_non_null(strstr(err.message, "Did you mean digits?"));
    assert_null(run);
    /* Renamed by hand: it goes by where it is, not by what run.json says. */
    char *before = uni__path_join(here->dir, "words", NULL);
    char *after = uni__path_join(here->dir, "letters", NULL);
    assert_int_equal(rename(before, after), 0);
    expect_id(here, "letters", "letters/run_001");
    expect_id(here, NULL, "letters/run_001");
    /* A directory without a run is not offered as the name that was meant. */
    assert_int_equal(mkdir(before, 0700), 0);
    assert_int_equal(uni_run_open(&run, "words", here->dir, &err), UNI_ENOTFOUND);
    assert_null(strstr(err.message, "Did you mean words"));
    free(before), free(after);
    free(first);
}

static uni_run_status status_at(const char *dir)
{
    uni_run *run = NULL;
    assert_int_equal(uni_run_open(&run, dir, NULL, NULL), 0);
    uni_run_status status = uni_run_info_of(run)->status;
    uni_run_close(run);
    return status;
}

static void test_who_is_alive(void **state)
{
    const place *here = *state;
    pid_t self = getpid();
    char *live = make_run(here, "live", 1, "running", 1, self, ticks_of(self), NULL);
    char *reused = make_run(here, "reused", 1, "running", 1, self, ticks_of(self) + 7, NULL);
    char *gone = make_run(here, "gone", 1, "starting", 1, 0, 0, NULL);
    char *away = make_run(here, "away", 1, "running", 1, 1, 1, "another-host");
    char *done = make_run(here, "done", 1, "failed", 1, self, ticks_of(self), NULL);
    assert_int_equal(status_at(live), UNI_RUN_RUNNING);
    assert_int_equal(status_at(reused), UNI_RUN_INTERRUPTED);
    assert_int_equal(status_at(gone), UNI_RUN_INTERRUPTED);
    assert_int_equal(status_at(away), UNI_RUN_RUNNING);
    assert_int_equal(status_at(done), UNI_RUN_FAILED);
    free(live), free(reused), free(gone), free(away), free(done);
}

/* Killed between the end in its journal and the one in run.json: it has ended, here and
 * elsewhere. */
static void test_end_in_the_journal(void **state)
{
    const place *here = *state;
    static const char *const hosts[] = { NULL, "another-host" };
    for (int i = 0; i < 2; i++) {
        char *dir = make_run(here, i == 0 ? "near" : "far", 1, "running", 1, 1, 1, hosts[i]);
        char *path = uni__path_join(dir, "journal.jsonl", NULL);
        uni__journal *journal = NULL;
        uni_value *record = uni_value_dict();
        assert_int_equal(uni__journal_open(&journal, path, "journal", NULL), 0);
        assert_int_equal(uni_dict_take(record, "event", uni_value_string("finish")), 0);
        assert_int_equal(uni_dict_take(record, "status", uni_value_string("failed")), 0);
        assert_int_equal(uni__journal_append(journal, record, true, NULL), 0);
        assert_int_equal(status_at(dir), UNI_RUN_FAILED);
        assert_int_equal(uni_dict_take(record, "event", uni_value_string("start")), 0);
        assert_int_equal(uni__journal_append(journal, record, true, NULL), 0); /* resumed since */
        assert_int_equal(status_at(dir), i == 0 ? UNI_RUN_INTERRUPTED : UNI_RUN_RUNNING);
        uni__journal_close(journal);
        uni_value_free(record);
        free(path), free(dir);
    }
}

static void test_stop(void **state)
{
    const place *here = *state;
    uni_run *run = NULL;
    uni_error err = { 0 };
    /* A controller is known by its run's journal, which it has open. */
    char *journal = uni__path_join(here->dir, "journal.jsonl", NULL);
    write_text(here->dir, "journal.jsonl", "");
    int fd = open(journal, O_RDONLY);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    close(fd);
    char *other = make_run(here, "other", 1, "running", 1, child, ticks_of(child) + 1, NULL);
    assert_int_equal(uni_run_open(&run, other, NULL, &err), 0);
    assert_int_equal(uni_run_stop(run, true, &err),
                     UNI_ESTATE); /* the pid belongs to another process now */
    uni_run_close(run);
    assert_int_equal(kill(child, 0), 0);
    char *away = make_run(here, "away", 1, "running", 1, child, ticks_of(child), "another-host");
    assert_int_equal(uni_run_open(&run, away, NULL, &err), 0);
    assert_int_equal(uni_run_stop(run, true, &err), UNI_EUNSUPPORTED);
    uni_run_close(run);
    char *mine = make_run(here, "mine", 1, "running", 1, child, ticks_of(child), NULL);
    assert_int_equal(uni_run_open(&run, mine, NULL, &err), 0);
    assert_int_equal(uni_run_stop(run, false, &err), UNI_EPERMISSION); /* not its controller */
    char *its = uni__path_join(mine, "journal.jsonl", NULL);
    assert_int_equal(rename(journal, its), 0);
    assert_int_equal(uni_run_stop(run, false, &err), 0);
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGTERM);
    assert_int_equal(uni_run_stop(run, false, &err), UNI_ESTATE); /* gone since it was opened */
    uni_run_close(run);
    free(other), free(away), free(mine), free(journal), free(its);
}

static void test_remove(void **state)
{
    const place *here = *state;
    uni_run *run = NULL;
    uni_error err = { 0 };
    char *first = make_run(here, "both", 1, "failed", 1, 0, 0, NULL);
    char *second = make_run(here, "both", 2, "failed", 2, 0, 0, NULL);
    assert_int_equal(uni_run_open(&run, first, NULL, &err), 0);
    /* Resumed by another process between our look and our removal. */
    free(make_run(here, "both", 1, "running", 1, getpid(), ticks_of(getpid()), NULL));
    assert_int_equal(uni_run_remove(run, &err), UNI_EBUSY);
    uni_run_close(run);
    assert_true(uni__path_exists(first));
    assert_int_equal(uni_run_open(&run, second, NULL, &err), 0);
    assert_int_equal(uni_run_remove(run, &err), 0);
    uni_run_close(run);
    assert_false(uni__path_exists(second));
    assert_true(uni__path_exists(first));
    free(first), free(second);
}

static int note(void *context, uni_run *run, uni_error *err)
{
    (void)err;
    strcat(context, uni_run_info_of(run)->id);
    strcat(context, " ");
    return 0;
}

static void test_list(void **state)
{
    const place *here = *state;
    char ids[256] = "", *broken = make_run(here, "broken", 1, "failed", 9, 0, 0, NULL);
    free(make_run(here, "a", 1, "failed", 10, 0, 0, NULL));
    free(make_run(here, "a", 2, "failed", 30, 0, 0, NULL));
    free(make_run(here, "b", 1, "failed", 20, 0, 0, NULL));
    write_text(broken, "run.json", "{\"format\":\"unisono run\",\"ver");
    write_text(here->dir, "a-file", "no directory");
    assert_int_equal(uni_run_list(here->dir, note, ids, NULL), 0);
    assert_string_equal(ids, "a/run_002 b/run_001 a/run_001 ");
    free(broken);
}

static void test_versions(void **state)
{
    const place *here = *state;
    uni_run *run = NULL;
    uni_error err = { 0 };
    char *dir = make_run(here, "x", 1, "failed", 1, 0, 0, NULL);
    write_text(dir, "run.json", "{\"format\":\"unisono run\",\"version\":2}");
    assert_int_equal(uni_run_open(&run, dir, NULL, &err), UNI_EVERSION);
    write_text(dir, "run.json", "{\"format\":\"something else\",\"version\":1}");
    assert_int_equal(uni_run_open(&run, dir, NULL, &err), UNI_EFORMAT);
    free(dir);
}

static int count_reports(void *context, const uni_reports *reports, uni_error *err)
{
    (void)err;
    *(double *)context += uni_dict_get_float(reports->by_rank[0], "loss", 0);
    return 0;
}

static void test_what_happened(void **state)
{
    const place *here = *state;
    uni_run *run = NULL;
    uni_error err = { 0 };
    uni__journal *journal = NULL;
    const uni_value *events = NULL;
    double sum = 0;
    char *dir = make_run(here, "x", 1, "failed", 1, 0, 0, NULL);
    assert_int_equal(uni_run_open(&run, dir, NULL, &err), 0);
    assert_int_equal(uni_run_events(&events, run, &err), 0); /* no journal yet */
    assert_int_equal(uni_list_size(events), 0);
    assert_int_equal(uni_run_reports(run, count_reports, &sum, &err), 0);
    uni_run_close(run);
    char *path = uni__path_join(dir, "journal.jsonl", NULL);
    assert_int_equal(uni__journal_open(&journal, path, "journal", &err), 0);
    uni_value *record = uni_value_dict();
    assert_int_equal(uni_dict_take(record, "event", uni_value_string("started")), 0);
    assert_int_equal(uni__journal_append(journal, record, false, &err), 0);
    uni__journal_close(journal);
    FILE *torn = fopen(path, "a");
    fputs("{\"event\":\"tor", torn); /* kill -9 in the middle of a write */
    fclose(torn);
    write_text(dir, "results.jsonl",
               "{\"format\":\"unisono results\",\"version\":1,\"world_size\":2}\n"
               "{\"attempt\":1,\"rank\":0,\"iteration\":1,\"metrics\":{\"loss\":5}}\n"
               "{\"attempt\":2,\"rank\":0,\"iteration\":1,\"metrics\":{\"loss\":3}}\n"
               "{\"attempt\":2,\"rank\":0,\"iteration\":2,\"metrics\":{\"loss\":4}}\n{\"atte");
    assert_int_equal(uni_run_open(&run, dir, NULL, &err), 0);
    assert_int_equal(uni_run_events(&events, run, &err), 0);
    assert_int_equal(uni_list_size(events), 1);
    assert_int_equal(uni_run_reports(run, count_reports, &sum, &err), 0);
    assert_true(sum == 7); /* the last attempt of each iteration */
    uni_run_close(run);
    uni_value_free(record);
    free(path);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storage),
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_is_alive, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_in_the_journal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_remove, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_versions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_happened, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
