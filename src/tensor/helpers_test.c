/* helpers_test.c - loops whose parts any thread may take: every part once, by threads that come
 * late or not at all, in loops within loops, and in a forked process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tensor/helpers.h"

enum { PARTS = 13, LOOPS = 20000 };

typedef struct trial {
    uni__helpers *helpers, *inner;
    _Atomic int calls[PARTS];
    _Atomic int others; /* parts that helpers computed */
    pthread_t caller;
    long numbers[PARTS];
} trial;

static void count_part(void *context, int part)
{
    trial *t = context;
    atomic_fetch_add(&t->calls[part], 1);
    if (!pthread_equal(pthread_self(), t->caller))
        atomic_fetch_add(&t->others, 1);
    t->numbers[part] += part; /* not atomic: the thread sanitizer sees what is unordered */
}

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* With pauses, helpers sleep between some of the loops. */
static void every_part_once(void **state)
{
    for (int threads = 1; threads <= 4; threads++) {
        trial t = { .caller = pthread_self() };
        assert_int_equal(uni__helpers_new(&t.helpers, threads, NULL), 0);
        for (int loop = 0; loop < LOOPS; loop++) {
            uni__helpers_run(t.helpers, 1 + loop % PARTS, count_part, &t);
            if (loop % 1000 == 0)
                pause_ns(300000);
        }
        for (int part = 0; part < PARTS; part++) {
            int calls = 0;
            for (int loop = 0; loop < LOOPS; loop++)
                calls += part < 1 + loop % PARTS;
            assert_int_equal(t.calls[part], calls);
            assert_int_equal(t.numbers[part], (long)calls * part);
        }
        uni__helpers_free(t.helpers);
    }
}

static void slow_part(void *context, int part)
{
    pause_ns(2000000);
    count_part(context, part);
}

/* Parts that sleep leave the core to the helpers, which must have come. */
static void helpers_help(void **state)
{
    trial t = { .caller = pthread_self() };
    assert_int_equal(uni__helpers_new(&t.helpers, 3, NULL), 0);
    for (int loop = 0; loop < 20; loop++)
        uni__helpers_run(t.helpers, PARTS, slow_part, &t);
    assert_true(t.others > 0);
    uni__helpers_free(t.helpers);
}

static void begin_and_see(void *context, int part)
{
    trial *t = context;
    assert_true(uni__helpers_busy(t->helpers));
    assert_false(uni__helpers_busy(t->inner));
    atomic_fetch_add(&t->calls[part], 1);
}

static void call_part(void *context, int part)
{
    trial *t = context;
    atomic_fetch_add(&t->calls[part], 1);
}

static void inner_loop(void *context, int part)
{
    trial *t = context;
    uni__helpers_run(t->helpers, 3, begin_and_see, t); /* its own: here, in order */
    uni__helpers *own = NULL;
    assert_int_equal(uni__helpers_new(&own, 2, NULL), 0);
    uni__helpers_run(own, 3, call_part, t);
    uni__helpers_free(own);
}

static void loops_within_loops(void **state)
{
    trial t = { .caller = pthread_self() };
    assert_int_equal(uni__helpers_new(&t.helpers, 3, NULL), 0);
    assert_int_equal(uni__helpers_new(&t.inner, 3, NULL), 0);
    uni__helpers_run(t.helpers, PARTS, inner_loop, &t);
    for (int part = 0; part < 3; part++)
        assert_int_equal(t.calls[part], 2 * PARTS);
    assert_false(uni__helpers_busy(t.helpers));
    uni__helpers_free(t.inner);
    uni__helpers_free(t.helpers);
}

/* Without helpers at all. */
static void alone(void **state)
{
    trial t = { .caller = pthread_self() };
    uni__helpers_run(NULL, PARTS, count_part, &t);
    for (int part = 0; part < PARTS; part++)
        assert_int_equal(t.calls[part], 1);
    assert_int_equal(t.others, 0);
    assert_int_equal(uni__helpers_threads(NULL), 1);
    uni__helpers_free(NULL);
}

#ifndef __SANITIZE_THREAD__
/* The child has the state of the helpers, but not their threads. */
static void after_fork(void **state)
{
    trial t = { .caller = pthread_self() };
    int status = -1;
    assert_int_equal(uni__helpers_new(&t.helpers, 3, NULL), 0);
    uni__helpers_run(t.helpers, PARTS, count_part, &t);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        t.caller = pthread_self();
        for (int loop = 0; loop < 100; loop++)
            uni__helpers_run(t.helpers, PARTS, count_part, &t);
        uni__helpers_free(t.helpers);
        _exit(t.calls[PARTS - 1] == 101 ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    uni__helpers_free(t.helpers);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_once),    cmocka_unit_test(helpers_help),
        cmocka_unit_test(loops_within_loops), cmocka_unit_test(alone),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(after_fork),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
