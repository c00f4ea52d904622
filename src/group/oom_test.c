/* oom_test.c - which SIGKILL was the out-of-memory killer's: counters and the kernel's log. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "group/oom.h"

/* As /dev/kmsg: one record a read, EAGAIN at the end. */
static int log_of(const char *const *records)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    for (; *records; records++)
        assert_int_equal(write(ends[1], *records, strlen(*records)), (ssize_t)strlen(*records));
    /* The other end stays open: a closed one would be the end of a file. */
    return ends[0];
}

#define KILLED_11                                                                                  \
    "3,101,2000000,-;Memory cgroup out of memory: Killed process 11 (python3) total-vm:9kB\n"
#define KILLED_12 "3,102,3000000,-;Out of memory: Killed process 12 (hog) total-vm:9kB\n"
#define FORGED_13 "12,103,4000000,-;Out of memory: Killed process 13 (forged)\n"

static uni__oom judge(int64_t cgroup, int64_t machine, const char *const *records, pid_t pid)
{
    uni__oom_counts before = { 5, 50 }, now = { before.cgroup + cgroup, before.machine + machine };
    return uni__oom_judge(&before, &now, records ? log_of(records) : -1, pid);
}

static void the_log_decides(void **state)
{
    static const char *const records[] = { "6,100,1000000,-;eth0: link up\n", KILLED_11, KILLED_12,
                                           FORGED_13, NULL };
    static const char *const none[] = { "6,100,1000000,-;eth0: link up\n", NULL };
    /* The last one, whatever the cgroup says. */
    assert_int_equal(judge(0, 1, records, 12), UNI__OOM_YES);
    assert_int_equal(judge(1, 1, records, 12), UNI__OOM_YES);
    /* A kill -9 beside an out-of-memory kill elsewhere. */
    assert_int_equal(judge(0, 1, records, 14), UNI__OOM_NO);
    assert_int_equal(judge(1, 1, records, 14), UNI__OOM_NO);
    /* An old kill of a process that had the same pid. */
    assert_int_equal(judge(0, 1, records, 11), UNI__OOM_NO);
    assert_int_equal(judge(0, 2, records, 11), UNI__OOM_YES);
    /* Written by a program, not by the kernel. */
    assert_int_equal(judge(0, 1, records, 13), UNI__OOM_NO);
    /* Nothing was counted: the log is of earlier. */
    assert_int_equal(judge(0, 0, records, 12), UNI__OOM_NO);
    /* The records have been overwritten. */
    assert_int_equal(judge(1, 1, none, 12), UNI__OOM_YES);
    assert_int_equal(judge(0, 1, none, 12), UNI__OOM_NEAR);
}

static void without_the_log(void **state)
{
    assert_int_equal(judge(0, 0, NULL, 12), UNI__OOM_NO);
    assert_int_equal(judge(1, 1, NULL, 12), UNI__OOM_YES);
    assert_int_equal(judge(0, 1, NULL, 12), UNI__OOM_NEAR);
    assert_int_equal(judge(1, 0, NULL, 12), UNI__OOM_YES);
}

static void unknown_counters(void **state)
{
    uni__oom_counts unknown = { -1, -1 }, known = { 3, 3 };
    assert_int_equal(uni__oom_judge(&unknown, &unknown, -1, 12), UNI__OOM_NO);
    assert_int_equal(uni__oom_judge(&unknown, &known, -1, 12), UNI__OOM_NO);
    assert_int_equal(uni__oom_judge(&known, &unknown, -1, 12), UNI__OOM_NO);
}

static void numbers_of_others(void **state)
{
    assert_int_equal(uni__oom_from(0), UNI__OOM_NO);
    assert_int_equal(uni__oom_from(1), UNI__OOM_YES);
    assert_int_equal(uni__oom_from(2), UNI__OOM_NEAR);
    assert_int_equal(uni__oom_from(3), UNI__OOM_NO);
    assert_int_equal(uni__oom_from(-1), UNI__OOM_NO);
}

/* The window is as long as the last two looks. */
static void looks(void **state)
{
    uni__oom_watch watch;
    uni__oom_watch_begin(&watch);
    assert_int_equal(watch.older.machine, watch.newer.machine);
    watch.older.machine = watch.older.cgroup = -2;
    uni__oom_watch_tick(&watch);
    assert_int_equal(watch.older.machine, -2);
    watch.newer.machine = -3;
    watch.looked_ns -= 2000000000u;
    uni__oom_watch_tick(&watch);
    assert_int_equal(watch.older.machine, -3);
    assert_true(watch.newer.machine >= -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_decides),
        cmocka_unit_test(without_the_log),
        cmocka_unit_test(unknown_counters),
        cmocka_unit_test(numbers_of_others),
        cmocka_unit_test(looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
