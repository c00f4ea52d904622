/* process_test.c - running, stopped, exiting and dead processes are distinguished. */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "base/test.h"

static pid_t child_that_waits(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        /* A name with a parenthesis and spaces, which /proc/PID/stat shows unescaped. */
        prctl(PR_SET_NAME, "a) Z 1 (b");
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    return pid;
}

static void test_states(void **state)
{
    uni__process now;
    int status;
    assert_true(uni__process_look(getpid(), &now));
    assert_int_equal(now.parent, getppid());
    assert_true(now.start_time > 0 && !now.exiting);
    pid_t pid = child_that_waits();
    assert_true(uni__process_look(pid, &now));
    assert_int_equal(now.parent, getpid());
    assert_false(uni__process_is_ending(pid));
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(uni__process_look(pid, &now));
    assert_int_equal(now.state, 'T');
    assert_false(now.exiting);
    uint64_t switches = uni__process_switches(pid), own = uni__process_switches(getpid());
    assert_true(switches > 0);
    usleep(1000);
    assert_int_equal(uni__process_switches(pid), switches);
    assert_true(uni__process_switches(getpid()) > own);
    kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(uni__process_look(pid, &now));
    assert_int_equal(now.state, 'Z');
    assert_true(now.exiting && uni__process_is_ending(pid));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(uni__process_look(pid, &now));
    assert_true(uni__process_is_ending(pid));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_states) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
