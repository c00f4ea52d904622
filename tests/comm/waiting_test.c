/*
 * waiting_test.c - waiting that is no hang: programs that only ask again and again (uni_comm_test) hear of a dead, stopped or leaving peer like those who
 * wait, and a process that was started by hand says for whom it waits.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <unisono/log.h>

#include "base/clock.h"
#include "comm/rendezvous.h"
#include "harness.h"
#include "../patience.h"

enum { READY = 0, STRUCK_MS = 1 };

static uint32_t now_ms(void)
{
    return (uint32_t)(uni__monotonic_ns() / 1000000u);
}

typedef struct plan {
    bool receives; /* a recv from rank 1 instead of an all_reduce */
    int signal; /* 0: rank 1 closes its communicator */
    int code;
    const char *words;
} plan;

/* Ranks but the second begin something with it, and only test. */
static const char *ask_again_and_again(rank *me)
{
    const plan *it = me->context;
    uni_comm_request *request = NULL;
    uni_error bad = { 0 };
    float data[1000] = { 0 };
    int code = 0;
    OK(uni_comm_barrier(me->comm, err));
    atomic_fetch_add(&me->shared[READY], 1);
    if (me->rank == 1) {
        me->result->code = it->signal ? -1 : 0; /* it may hang: it is stopped */
        while (it->signal)
            pause();
        usleep(50000);
        atomic_store(&me->shared[STRUCK_MS], now_ms());
        return NULL;
    }
    if (it->receives)
        OK(uni_comm_recv_start(&request, me->comm, data, 1000, UNI_F32, 1, err));
    else
        OK(uni_comm_all_reduce_start(&request, me->comm, data, data, 1000, UNI_F32, UNI_COMM_SUM, 1,
                                     err));
    for (bool done = false; !done && code == 0;) {
        code = uni_comm_test(&done, request, &bad);
        usleep(100);
    }
    double seconds = (double)(now_ms() - atomic_load(&me->shared[STRUCK_MS])) * 1e-3;
    if (code != it->code || !strstr(bad.message, it->words))
        return say(me, "rank %d: %s: %s", me->rank, uni_status_name(code), bad.message);
    CHECK(atomic_load(&me->shared[STRUCK_MS]) != 0 && seconds < 1.0 * test_patience());
    return NULL;
}

static void strike(const rank_result *results, _Atomic uint32_t *shared, void *context)
{
    const plan *it = context;
    if (!it->signal)
        return;
    uint32_t end = now_ms() + 10000;
    while (atomic_load(&shared[READY]) < 3 && now_ms() < end)
        usleep(300);
    usleep(50000);
    atomic_store(&shared[STRUCK_MS], now_ms());
    kill(results[1].pid, it->signal);
    if (it->signal == SIGSTOP) {
        usleep((unsigned)(1000000 * test_patience()));
        kill(results[1].pid, SIGKILL);
    }
}

static void check(const char *transport, plan it)
{
    rank_result results[3];
    const char *wrong = run_ranks(&(run_options){ .transport = transport,
                                                  .size = 3,
                                                  .context = &it,
                                                  .may_die = true,
                                                  .meanwhile = strike },
                                  ask_again_and_again, results);
    if (wrong)
        fail_msg("%s", wrong);
}

static void test_asked_of_a_killed_rank(void **state)
{
    check("shm", (plan){ .signal = SIGKILL, .code = UNI_EWORKER, .words = "rank 1 (pid" });
    check(
        "shm",
        (plan){ .receives = true, .signal = SIGKILL, .code = UNI_EWORKER, .words = "rank 1 (pid" });
}

static void test_asked_of_a_stopped_rank(void **state)
{
    check("shm", (plan){ .signal = SIGSTOP, .code = UNI_EWORKER, .words = "is stopped" });
}

static void test_asked_of_a_rank_that_leaves(void **state)
{
    plan leaves = { .code = UNI_EWORKER, .words = "rank 1 has closed its communicator" };
    check("thread", leaves);
    check("shm", leaves);
    leaves.receives = true;
    check("thread", leaves);
}

/* ---- started by hand ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char said[2000];

static void hear(void *context, uni_log_level level, const char *message)
{
    pthread_mutex_lock(&lock);
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", message);
    pthread_mutex_unlock(&lock);
}

typedef struct lonely {
    const char *config;
    int code;
    double seconds;
    uni_error err;
} lonely;

static void *open_alone(void *argument)
{
    lonely *me = argument;
    uni_comm *comm = NULL;
    uint64_t begun = uni__monotonic_ns();
    me->code = uni_comm_open_tf_config(&comm, me->config, &(uni_comm_options){ .timeout_ms = 2600 },
                                       &me->err);
    me->seconds = (double)(uni__monotonic_ns() - begun) * 1e-9;
    uni_comm_close(comm);
    return NULL;
}

#define SAID(text)                                                                                 \
    if (!strstr(said, text))                                                                       \
    fail_msg("not said: %s; but: %s", text, said)

/* One that waits to be called, and one that calls: both say for whom after two seconds, and who did not come at the end. */
static void test_started_alone(void **state)
{
    lonely first = { .config = "{\"cluster\": {\"worker\": [\"localhost:23411\", "
                               "\"localhost:23412\", \"localhost:23413\"]}, "
                               "\"task\": {\"type\": \"worker\", \"index\": 0}}" };
    lonely second = { .config = "{\"cluster\": {\"chief\": [\"localhost:23421\"], \"worker\": "
                                "[\"localhost:23422\"]}, "
                                "\"task\": {\"type\": \"worker\", \"index\": 0}}" };
    pthread_t thread;
    uni_log_function_set(hear, NULL);
    assert_int_equal(pthread_create(&thread, NULL, open_alone, &first), 0);
    open_alone(&second);
    pthread_join(thread, NULL);
    uni_log_function_set(NULL, NULL);
    SAID("worker 0 (localhost:23411) waits for worker 1 (localhost:23412), worker 2 "
         "(localhost:23413) since 2 s");
    SAID("worker 0 (localhost:23422) waits for chief 0 (localhost:23421) since 2 s");
    assert_int_equal(first.code, UNI_ETIMEOUT);
    assert_non_null(strstr(first.err.message,
                           "worker 1 (localhost:23412), worker 2 (localhost:23413) did not come"));
    assert_int_equal(second.code, UNI_ETIMEOUT);
    assert_non_null(strstr(second.err.message, "chief 0 (localhost:23421) did not come"));
    assert_true(first.seconds > 2.5 && first.seconds < 4 * test_patience());
}

/* ---- another user of the machine ---- */

enum { STRANGER = 64002, NO_STRANGER = 77 };

/* A process of another user at the abstract socket NAME.0: it calls as rank 1, or waits to be called. */
static pid_t stranger(const char *name, bool calls)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    struct sockaddr_un place = { .sun_family = AF_UNIX };
    socklen_t size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                    (size_t)snprintf(place.sun_path + 1, sizeof place.sun_path - 1, "%s.0", name));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    int32_t own = 1;
    if (fd < 0 || setgid(STRANGER) < 0 || setuid(STRANGER) < 0)
        _exit(NO_STRANGER);
    if (calls) {
        while (connect(fd, (struct sockaddr *)&place, size) < 0)
            usleep(1000);
        (void)!send(fd, &own, sizeof own, MSG_NOSIGNAL);
    } else if (bind(fd, (struct sockaddr *)&place, size) < 0 || listen(fd, 1) < 0) {
        _exit(NO_STRANGER);
    }
    for (;;)
        pause();
}

/* Processes that were started by hand meet under a name that everybody can see: only those of this user do. */
static void test_another_user(void **state)
{
    char name[64];
    uni_error err = { 0 };
    uni__socket_mesh *mesh = NULL;
    if (geteuid() != 0)
        skip();
    for (int calls = 0; calls < 2; calls++) {
        snprintf(name, sizeof name, "unisono-test-%d-%d", (int)getpid(), calls);
        pid_t child = stranger(name, calls);
        assert_true(child > 0);
        int code = uni__socket_mesh_connect(&mesh, name, calls ? 0 : 1, 2, NULL,
                                            calls ? 1500 : 60000, &err);
        uni__socket_mesh_free(mesh);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        if (!calls)
            assert_non_null(strstr(err.message, "the process at rank 0 is another user's"));
        assert_int_equal(code, calls ? UNI_ETIMEOUT : UNI_EPEER);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asked_of_a_killed_rank),
        cmocka_unit_test(test_asked_of_a_stopped_rank),
        cmocka_unit_test(test_asked_of_a_rank_that_leaves),
        cmocka_unit_test(test_started_alone),
        cmocka_unit_test(test_another_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
