/* keyring_test.c - the keys that agents announce, in what a launcher prints and in files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "group/keyring.h"

#define JOB "000102030405060708090a0b0c0d0e0f"
#define KEY "2a00000000000000000000000000000000000000000000000000000000000000"

static uni__credentials ours(void)
{
    uni__credentials it = { .attempt = 2, .public_key = { 42 } };
    for (int i = 0; i < UNI__JOB_BYTES; i++)
        it.job[i] = (uint8_t)i;
    return it;
}

static void test_line(void **unused)
{
    uni__credentials it = ours();
    char line[UNI__ANNOUNCEMENT_MAX];
    uni__announcement_write(&it, 1, line);
    assert_string_equal(line, "unisono-host key " JOB " 2 1 " KEY "\n");
}

/* How many ranks of two are known after this text. */
static int known(const char *text)
{
    uni__credentials it = ours();
    uni__keyring *ring;
    assert_int_equal(uni__keyring_new(&ring, 2, NULL), 0);
    assert_true(uni__keyring_read(ring, &it, text, strlen(text)) <= strlen(text));
    int count = ring->ranks[0].known + ring->ranks[1].known;
    uni__keyring_free(ring);
    return count;
}

static void test_what_counts(void **unused)
{
    assert_int_equal(known("unisono-host key " JOB " 2 0 " KEY "\nnoise\n"), 1);
    assert_int_equal(known("[1,0]<stdout>:unisono-host key " JOB " 2 0 " KEY "\n"), 1);
    assert_int_equal(
        known("unisono-host key " JOB " 2 0 " KEY "\nunisono-host key " JOB " 2 1 " KEY "\n"), 2);
    assert_int_equal(known("unisono-host key " JOB " 2 0 " KEY), 0); /* not whole yet */
    assert_int_equal(known("unisono-host key " JOB " 1 0 " KEY "\n"), 0); /* another attempt */
    assert_int_equal(known("unisono-host key " JOB " 2 2 " KEY "\n"), 0); /* no such rank */
    assert_int_equal(known("unisono-host key ff" JOB " 2 0 " KEY "\n"), 0);
    assert_int_equal(known("unisono-host key 0" JOB " 2 0 " KEY "\n"), 0);
    assert_int_equal(known("unisono-host key " JOB " 2 0 2a\n"), 0);
    assert_int_equal(known("unisono-host key " JOB " 2 0 " KEY " more\n"), 1);
}

/* Two readers must not find different ranks in one line: the launcher over ssh passes on what it
 * takes for a host's own. */
static void test_one_meaning(void **unused)
{
    static const char *const lines[] = {
        JOB "000000002000000000" KEY " 2 1",
        JOB " 000000002000000000 " KEY,
        JOB " 2 0" KEY,
        JOB " 02 0 " KEY,
        JOB " 2 00 " KEY,
        JOB " +2 0 " KEY,
        JOB "  2 0 " KEY,
        JOB "\t2 0 " KEY,
        JOB " 2 0 " KEY "0",
        JOB " 2 -0 " KEY,
        " " JOB " 2 0 " KEY,
        JOB " 2 4294967296 " KEY,
        JOB " 4294967298 0 " KEY,
    };
    uni__announcement it;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char line[300];
        snprintf(line, sizeof line, "unisono-host key %s\n", lines[i]);
        assert_int_equal(uni__announcement_read(line, &it), 0);
        assert_int_equal(known(line), 0);
    }
    assert_int_equal(uni__announcement_read("unisono-host key " JOB " 2 1 " KEY, &it),
                     strlen("unisono-host key " JOB " 2 1 " KEY));
    assert_int_equal(it.rank, 1);
}

static void test_first_key_stays(void **unused)
{
    uni__credentials it = ours(), other = ours();
    uni__keyring *ring;
    char line[UNI__ANNOUNCEMENT_MAX];
    assert_int_equal(uni__keyring_new(&ring, 2, NULL), 0);
    assert_int_equal(uni__keyring_find(ring, 1, it.public_key), 0);
    uni__announcement_write(&it, 1, line);
    (void)uni__keyring_read(ring, &it, line, strlen(line));
    other.public_key[0] = 43;
    uni__announcement_write(&other, 1, line);
    (void)uni__keyring_read(ring, &it, line, strlen(line));
    assert_int_equal(uni__keyring_find(ring, 1, it.public_key), 1);
    assert_int_equal(uni__keyring_find(ring, 1, other.public_key), -1);
    assert_int_equal(uni__keyring_find(ring, 2, it.public_key), -1);
    assert_int_equal(uni__keyring_find(NULL, 0, it.public_key), -1);
    uni__keyring_free(ring);
}

/* A file that grows, a line that comes in two pieces, and one that another user could have
 * written. */
static void test_follow(void **unused)
{
    uni__credentials it = ours();
    uni__keyring *ring;
    char path[] = "/tmp/unisono-keys-XXXXXX", line[UNI__ANNOUNCEMENT_MAX];
    int64_t offset = 0;
    int fd = mkstemp(path);
    char *noise = malloc(40000);
    assert_true(fd >= 0 && noise);
    memset(noise, 'x', 40000);
    assert_int_equal(uni__keyring_new(&ring, 2, NULL), 0);
    assert_int_equal(write(fd, noise, 40000), 40000);
    assert_int_equal(write(fd, "\n", 1), 1);
    uni__announcement_write(&it, 1, line);
    assert_int_equal(write(fd, line, 40), 40);
    uni__keyring_follow(ring, &it, path, &offset);
    assert_int_equal(uni__keyring_find(ring, 1, it.public_key), 0);
    assert_int_equal(write(fd, line + 40, strlen(line) - 40), strlen(line) - 40);
    assert_int_equal(fchmod(fd, 0620), 0);
    uni__keyring_follow(ring, &it, path, &offset);
    assert_int_equal(uni__keyring_find(ring, 1, it.public_key), 0);
    assert_int_equal(fchmod(fd, 0600), 0);
    uni__keyring_follow(ring, &it, path, &offset);
    assert_int_equal(uni__keyring_find(ring, 1, it.public_key), 1);
    uni__keyring_follow(ring, &it, "/nowhere", &offset);
    close(fd);
    unlink(path);
    free(noise);
    uni__keyring_free(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),        cmocka_unit_test(test_what_counts),
        cmocka_unit_test(test_one_meaning), cmocka_unit_test(test_first_key_stays),
        cmocka_unit_test(test_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
