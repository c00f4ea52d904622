/*
 * child_test.c - the process that meets hostile files: what it may not do, and what its parent
 * hears of its end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "nn/files/files.h"

#define MEGABYTE ((size_t)1 << 20)

static int run(uni__child_job job, uni__text *reply, uni_error *err)
{
    memset(err, 0, sizeof *err);
    return uni__child_run(job, "seven", "the file x", 512 * MEGABYTE, MEGABYTE, reply, err);
}

static int answer(void *context, int fd, uni_error *err)
{
    return uni__write_all(fd, context, strlen(context), "the parent", err);
}

static int refuse(void *context, int fd, uni_error *err)
{
    return uni_error_set(err, UNI_EFORMAT, "it is not a %s", (const char *)context);
}

static int crash(void *context, int fd, uni_error *err)
{
    raise(SIGSEGV); /* kill is refused, this is not */
    __builtin_trap();
}

static int leave(void *context, int fd, uni_error *err)
{
    _exit(0);
}

static int flood(void *context, int fd, uni_error *err)
{
    static const char block[65536];
    for (int i = 0; i < 64; i++)
        UNI_TRY(uni__write_all(fd, block, sizeof block, "the parent", err));
    return 0;
}

/* What it could do is written down; nothing is expected. */
static int misbehave(void *context, int fd, uni_error *err)
{
    char found[64] = "-";
    if (open("/etc/hostname", O_RDONLY) >= 0)
        strcat(found, "open ");
    if (open("/tmp/unisono-child-was-here", O_WRONLY | O_CREAT, 0600) >= 0)
        strcat(found, "create ");
    if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0)
        strcat(found, "socket ");
    if (fork() >= 0)
        strcat(found, "fork ");
    if (execl("/bin/true", "true", NULL) != -1 || errno != EPERM)
        strcat(found, "exec ");
    return uni__write_all(fd, found, strlen(found), "the parent", err);
}

static void test_answers(void **state)
{
    uni__text reply = { 0 };
    uni_error err;
    assert_int_equal(run(answer, &reply, &err), 0);
    assert_int_equal(reply.size, 5);
    assert_memory_equal(reply.data, "seven", 5);
    uni__text_free(&reply);
    assert_int_equal(run(refuse, &reply, &err), UNI_EFORMAT);
    assert_string_equal(err.message, "the file x: it is not a seven");
    uni__text_free(&reply);
}

static void test_ends_badly(void **state)
{
    uni__text reply = { 0 };
    uni_error err;
    assert_int_equal(run(crash, &reply, &err), UNI_EFORMAT);
    assert_non_null(strstr(err.message, "the file x"));
    uni__text_free(&reply);
    assert_int_equal(run(leave, &reply, &err), UNI_EFORMAT);
    assert_non_null(strstr(err.message, "gave up"));
    uni__text_free(&reply);
    assert_int_equal(run(flood, &reply, &err), UNI_ELIMIT);
    uni__text_free(&reply);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left behind */
    assert_int_equal(errno, ECHILD);
}

static void test_has_no_rights(void **state)
{
    uni__text reply = { 0 };
    uni_error err;
    assert_int_equal(run(misbehave, &reply, &err), 0);
    uni__text_add_char(&reply, '\0');
    assert_string_equal(reply.data, "-");
    assert_int_equal(access("/tmp/unisono-child-was-here", F_OK), -1);
    uni__text_free(&reply);
}

static void reap_all(int number)
{
    int kept = errno;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    errno = kept;
}

/* A program that reaps every child (as daemons do) takes our child's status: what was sent counts
 * all the same. */
static void test_program_that_reaps(void **state)
{
    uni__text reply = { 0 };
    uni_error err;
    signal(SIGCHLD, reap_all);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(run(answer, &reply, &err), 0);
        assert_int_equal(reply.size, 5);
        uni__text_free(&reply);
    }
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(run(answer, &reply, &err), 0);
    uni__text_free(&reply);
    signal(SIGCHLD, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_ends_badly),
        cmocka_unit_test(test_has_no_rights),
        cmocka_unit_test(test_program_that_reaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
