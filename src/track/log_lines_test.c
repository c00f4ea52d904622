/* log_lines_test.c - following the workers' logs: lines in pieces, ranks, rotation, files that are
 * replaced or cut short, long lines. */
#include "track/testing.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "track/log_lines.h"

static uni__text taken; /* "RANK LINE|" of each */

static void take(void *context, int rank, const char *line, size_t size)
{
    if (size > 100)
        uni__text_add_format(&taken, "%d %zu bytes|", rank, size);
    else
        uni__text_add_format(&taken, "%d %.*s|", rank, (int)size, line);
}

static char *log_path(void **state, const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/logs/%s", (char *)*state, name);
    return path;
}

static void append(void **state, const char *name, const char *text)
{
    int fd = open(log_path(state, name), O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static int make_logs(void **state)
{
    return make_dir(state) == 0 ? mkdir(log_path(state, ""), 0700) : -1;
}

static void taken_is(const char *expected)
{
    assert_string_equal(taken.size ? taken.data : "", expected);
    uni__text_clear(&taken);
}

static void polled(uni__log_lines *lines, const char *expected)
{
    uni__log_lines_poll(lines, take, NULL);
    taken_is(expected);
}

static void lines_and_ranks(void **state)
{
    uni__log_lines *lines = NULL;
    append(state, "rank_0.log", "old\n");
    MUST(uni__log_lines_new(&lines, *state, 3, NULL, false, err));
    polled(lines, "0 old|");
    append(state, "rank_2.log", "first\n\nthird\nhal");
    append(state, "rank_0.log", "a\nb\n");
    polled(lines, "0 a|0 b|2 first|2 |2 third|");
    polled(lines, "");
    append(state, "rank_2.log", "f\nnext");
    polled(lines, "2 half|");
    append(state, "rank_1.log", "bar 1%\rbar 50%\rbar 100%\n"); /* a bar drawn in place */
    polled(lines, "1 bar 100%|");
    uni__log_lines_drain(lines, take, NULL);
    taken_is("2 next|");
    uni__log_lines_drain(lines, take, NULL);
    taken_is("");
    uni__log_lines_free(lines);
}

static void only_new_lines_of_wanted_ranks(void **state)
{
    uni__log_lines *lines = NULL;
    append(state, "rank_0.log", "old\n");
    append(state, "rank_1.log", "old\n");
    MUST(uni__log_lines_new(&lines, *state, 2, (const bool[]){ false, true }, true, err));
    polled(lines, "");
    append(state, "rank_0.log", "new\n");
    append(state, "rank_1.log", "new\n");
    polled(lines, "1 new|");
    uni__log_lines_free(lines);
}

/* The file's content moves to rank_N.log.1, then the file is emptied and goes on. */
static void rotate(void **state)
{
    char *text = NULL, older[600];
    size_t size = 0;
    MUST(uni__read_file(&text, &size, log_path(state, "rank_0.log"), 1 << 20, err));
    assert_int_equal(truncate(log_path(state, "rank_0.log"), 0), 0);
    snprintf(older, sizeof older, "%s", log_path(state, "rank_0.log.1"));
    MUST(uni__write_file(older, text, size, false, err));
    free(text);
}

static void rotation(void **state)
{
    uni__log_lines *lines = NULL;
    append(state, "rank_0.log.1", "long ago\n");
    append(state, "rank_0.log", "1\n2\n");
    MUST(uni__log_lines_new(&lines, *state, 1, NULL, false, err));
    polled(lines, "0 1|0 2|");
    append(state, "rank_0.log", "3\n4\n5");
    rotate(state);
    append(state, "rank_0.log", "0\n6\n");
    polled(lines, "0 3|0 4|0 50|0 6|");
    append(state, "rank_0.log", "7\n");
    polled(lines, "0 7|");
    rotate(state);
    polled(lines, "");
    append(state, "rank_0.log", "8\n");
    polled(lines, "0 8|");
    uni__log_lines_free(lines);
}

static void replaced_and_shortened(void **state)
{
    uni__log_lines *lines = NULL;
    append(state, "rank_0.log", "one\n");
    MUST(uni__log_lines_new(&lines, *state, 1, NULL, false, err));
    polled(lines, "0 one|");
    append(state, "rank_0.log", "two\n");
    char moved[600];
    snprintf(moved, sizeof moved, "%s/logs/elsewhere", (char *)*state);
    assert_int_equal(rename(log_path(state, "rank_0.log"), moved), 0);
    append(state, "rank_0.log", "three\n");
    polled(lines, "0 two|0 three|"); /* the end of the renamed file, then the new one */
    assert_int_equal(truncate(log_path(state, "rank_0.log"), 0), 0);
    append(state, "rank_0.log", "4\n");
    for (int i = 0; i < 20; i++)
        polled(lines, ""); /* it may be a rotation that has only begun */
    polled(lines, "0 4|");
    append(state, "rank_0.log", "5\n");
    polled(lines, "0 5|");
    uni__log_lines_free(lines);
}

static void long_lines_are_split(void **state)
{
    uni__log_lines *lines = NULL;
    size_t size = 64 * 1024 + 10;
    char *text = calloc(1, 2 * size);
    memset(text, 'x', size);
    strcat(text, "\nshort\n");
    append(state, "rank_0.log", text);
    MUST(uni__log_lines_new(&lines, *state, 1, NULL, false, err));
    polled(lines, "0 65536 bytes|0 xxxxxxxxxx|0 short|");
    memset(text, 'y', 64 * 1024);
    strcpy(text + 64 * 1024, "\nlast\n"); /* just fits */
    append(state, "rank_0.log", text);
    polled(lines, "0 65536 bytes|0 last|");
    uni__log_lines_free(lines);
    free(text);
}

static void links_are_not_followed(void **state)
{
    uni__log_lines *lines = NULL;
    append(state, "secret", "of another user\n");
    assert_int_equal(symlink("secret", log_path(state, "rank_0.log")), 0);
    MUST(uni__log_lines_new(&lines, *state, 1, NULL, false, err));
    polled(lines, "");
    uni__log_lines_free(lines);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_logs, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lines_and_ranks),
        TEST(only_new_lines_of_wanted_ranks),
        TEST(rotation),
        TEST(replaced_and_shortened),
        TEST(long_lines_are_split),
        TEST(links_are_not_followed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    uni__text_free(&taken);
    return failed;
}
