/* template_test.c - workers forked from a template: what they inherit and what is their own,
 * restarts, and templates that are gone. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <unisono/log.h>
#include "train/shared.h"

#include "base/file.h"

typedef struct place {
    char dir[256];
    int fd; /* our end */
    pid_t template_pid;
} place;

static int loaded; /* set in the template only, before it serves */
static int forks;

static void count_fork(void *context, bool in_child)
{
    forks += in_child;
}

/* In a worker: what the template had loaded, and the rank out of its own environment. */
static int in_worker(void *context, uni_session *session, const char *function, uni_value **result,
                     uni_error *err)
{
    const char *rank = getenv("RANK");
    if (strcmp(function, "die_once") == 0 && uni_session_info_of(session)->attempt == 1 &&
        uni_session_info_of(session)->world_rank == 1)
        kill(getpid(), SIGKILL);
    *result = uni_value_dict();
    int status = uni_dict_take(*result, "loaded", uni_value_int(loaded));
    status |= uni_dict_take(*result, "forks", uni_value_int(forks));
    status |= uni_dict_take(*result, "rank", uni_value_int(rank ? atoi(rank) : -1));
    status |= uni_dict_take(*result, "leads", uni_value_bool(getpgid(0) == getpid()));
    const char *report = getenv("UNISONO_REPORT_FD");
    struct stat about = { 0 };
    bool pipe = report && fstat(atoi(report), &about) == 0 && S_ISFIFO(about.st_mode);
    status |= uni_dict_take(*result, "report_pipe", uni_value_bool(pipe));
    status |= uni_dict_take(*result, "template_variable",
                            uni_value_bool(getenv("TEMPLATE_ONLY") != NULL));
    return status;
}

static void be_template(int fd)
{
    uni_error err = { 0 };
    loaded = 42;
    setenv("TEMPLATE_ONLY", "1", 1);
    int served = uni__template_run(fd, &(uni__template_hooks){ .after_fork = count_fork }, &err);
    if (served == 1)
        served = uni__worker_serve(in_worker, NULL, &err);
    _exit(served < 0 ? 70 : served);
}

static int setup(void **state)
{
    place *here = calloc(1, sizeof *here);
    int pair[2];
    *state = here;
    uni_log_level_set(UNI_LOG_OFF);
    if (!here || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    here->fd = pair[0];
    here->template_pid = fork();
    if (here->template_pid == 0) {
        close(pair[0]);
        be_template(pair[1]);
    }
    close(pair[1]);
    return mkdtemp(uni__temporary_name(here->dir, sizeof here->dir, "template")) ? 0 : -1;
}

static int teardown(void **state)
{
    place *here = *state;
    int status, code = 0;
    if (here->fd >= 0)
        close(here->fd);
    if (here->template_pid > 0 && (waitpid(here->template_pid, &status, 0) < 0 || status != 0))
        code = -1; /* it ends by itself when our end is closed */
    code |= uni__remove_tree(here->dir, NULL);
    free(here);
    return code;
}

/* exec would find a program that fails at once: a run that goes well was forked. */
static int fit(place *here, int fd, const char *function, uni_result **result, uni_error *err)
{
    uni_trainer *trainer = NULL;
    static const char *const program[] = { "/bin/false", NULL };
    assert_int_equal(uni_trainer_new(&trainer,
                                     &(uni_trainer_options){ .worker_program = program,
                                                             .num_workers = 2,
                                                             .max_failures = 1,
                                                             .storage_path = here->dir },
                                     err),
                     0);
    assert_int_equal(uni__trainer_use_template(trainer, fd, err), 0);
    int status = uni_trainer_fit(result, trainer, &(uni_run_options){ .function = function }, err);
    uni_trainer_free(trainer);
    return status;
}

static void expect_workers(const uni_result *result)
{
    for (int rank = 0; rank < 2; rank++) {
        const uni_value *mine = uni_result_info_of(result)->returned[rank];
        assert_int_equal(uni_dict_get_int(mine, "loaded", 0), 42);
        assert_int_equal(uni_dict_get_int(mine, "forks", 0), 3); /* keeper, agent, worker */
        assert_int_equal(uni_dict_get_int(mine, "rank", -1), rank);
        assert_true(uni_value_as_bool(uni_dict_get(mine, "leads"), false));
        assert_true(uni_value_as_bool(uni_dict_get(mine, "report_pipe"), false));
        /* The environment is the driver's, not the template's. */
        assert_false(uni_value_as_bool(uni_dict_get(mine, "template_variable"), true));
    }
}

static void test_two_runs(void **state)
{
    for (int i = 0; i < 2; i++) {
        uni_result *result = NULL;
        uni_error err = { 0 };
        assert_int_equal(fit(*state, ((place *)*state)->fd, "work", &result, &err), 0);
        expect_workers(result);
        uni_result_free(result);
    }
}

static void test_a_killed_worker_is_forked_again(void **state)
{
    uni_result *result = NULL;
    uni_error err = { 0 };
    assert_int_equal(fit(*state, ((place *)*state)->fd, "die_once", &result, &err), 0);
    assert_int_equal(uni_result_info_of(result)->attempts, 2);
    expect_workers(result);
    uni_result_free(result);
}

static void test_a_dead_template_is_passed_by(void **state)
{
    place *here = *state;
    uni_result *result = NULL;
    uni_error err = { 0 };
    int status;
    kill(here->template_pid, SIGKILL);
    assert_int_equal(waitpid(here->template_pid, &status, 0), here->template_pid);
    here->template_pid = 0;
    assert_true(fit(here, here->fd, "work", &result, &err) < 0); /* /bin/false */
    uni_result_free(result);
}

static void test_none_and_nonsense(void **state)
{
    uni_trainer *trainer = NULL;
    uni_error err = { 0 };
    static const char *const program[] = { "/bin/false", NULL };
    assert_int_equal(
        uni_trainer_new(&trainer,
                        &(uni_trainer_options){ .worker_program = program,
                                                .storage_path = ((place *)*state)->dir },
                        &err),
        0);
    assert_int_equal(uni__trainer_use_template(trainer, -1, &err), 0);
    assert_true(uni__trainer_use_template(trainer, 9999, &err) < 0);
    assert_non_null(strstr(err.message, "9999"));
    uni_trainer_free(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_killed_worker_is_forked_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_dead_template_is_passed_by, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none_and_nonsense, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
