/* controllers.c - what is above the workers dies, stops or is told to end: the agent, its keeper,
 * the controller, all at once. Nothing is left, and what was complete is gone on from. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "../patience.h"
#include "scenario.h"

/* The agent is the parent of a worker, the keeper the agent's. */
static int generations; /* 1: the agent, 2: the keeper */

/* Stopped, not killed: the channel stays open, and nobody says that rank 0 has died meanwhile. */
static void *freeze_agent(void *argument)
{
    uni_trainer *trainer = argument;
    while (!uni_trainer_latest_run_dir(trainer))
        scenario_sleep_ms(5);
    int pid = scenario_worker_pid(uni_trainer_latest_run_dir(trainer), 0);
    scenario_sleep_ms(200);
    int agent = scenario_parent(pid), keeper = scenario_parent(agent);
    CHECK(agent > 1 && keeper > 1);
    kill(keeper, SIGSTOP);
    kill(agent, SIGSTOP);
    kill(pid, SIGKILL);
    return NULL;
}

static void frozen_agent(uni_program *program)
{
    uni_error err = { 0 };
    pthread_t thread;
    uni_log_level_set(UNI_LOG_OFF);
    double start = scenario_ms();
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){
                     .num_workers = 2, .max_failures = UNI_NO_RETRIES, .silent_timeout = 1 });
    pthread_create(&thread, NULL, freeze_agent, trainer);
    CHECK(uni_trainer_fit(NULL, trainer, &(uni_run_options){ .function = "with_children" }, &err) ==
          UNI_EWORKER);
    pthread_join(thread, NULL);
    CHECK_CONTAINS(err.message, "rank 0");
    uni_trainer_free(trainer);
    CHECK(scenario_ms() - start < 20000);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static int ancestor_signal = SIGKILL;

static void *kill_ancestor(void *argument)
{
    uni_trainer *trainer = argument;
    while (!uni_trainer_latest_run_dir(trainer))
        scenario_sleep_ms(5);
    int pid = scenario_worker_pid(uni_trainer_latest_run_dir(trainer), 0);
    scenario_sleep_ms(200);
    for (int i = 0; i < generations; i++)
        pid = scenario_parent(pid);
    CHECK(pid > 1);
    kill(pid, ancestor_signal);
    return NULL;
}

/* Nobody tells us of a worker's end while the agent is stopped: it is killed after a few seconds,
 * though no worker gave cause to look. */
static void stopped_agent(uni_program *program)
{
    uni_error err = { 0 };
    pthread_t thread;
    uni_log_level_set(UNI_LOG_OFF);
    generations = 1;
    ancestor_signal = SIGSTOP;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
    double begun = scenario_ms();
    pthread_create(&thread, NULL, kill_ancestor, trainer);
    CHECK(uni_trainer_fit(NULL, trainer, &(uni_run_options){ .function = "deaf" }, &err) ==
          UNI_EWORKER);
    pthread_join(thread, NULL);
    CHECK_CONTAINS(err.message, "unisono-agent");
    CHECK(scenario_ms() - begun < 20000);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void killed_agent(uni_program *program)
{
    for (generations = 1; generations <= 2; generations++) {
        uni_error err = { 0 };
        uni_result *result = NULL;
        uni_value *description = NULL;
        pthread_t thread;
        uni_trainer *trainer = scenario_trainer(
            program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
        pthread_create(&thread, NULL, kill_ancestor, trainer);
        CHECK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "with_children" },
                              &err) == UNI_EWORKER);
        pthread_join(thread, NULL);
        CHECK_CONTAINS(err.message, "unisono-agent");
        CHECK(strcmp(uni_dict_get_string(
                         scenario_cause(&description, uni_result_info_of(result)->run_dir), "class",
                         ""),
                     "agent") == 0);
        uni_value_free(description);
        uni_result_free(result);
        uni_trainer_free(trainer);
        CHECK(scenario_nothing_left(scenario_storage()));
    }
}

/* A controller in a process of its own. */
static pid_t fork_controller(uni_program *program, const char *function, const uni_value *config)
{
    const char *storage = scenario_storage();
    pid_t pid = fork();
    if (pid == 0) {
        uni_error err = { 0 };
        uni_trainer *trainer = scenario_trainer(
            program,
            (uni_trainer_options){ .num_workers = 2, .name = "child", .storage_path = storage });
        _exit(uni_trainer_fit(NULL, trainer,
                              &(uni_run_options){ .function = function, .config = config },
                              &err) < 0
                  ? 1
                  : 0);
    }
    return pid;
}

static void killed_controller(uni_program *program)
{
    char run_dir[4096];
    snprintf(run_dir, sizeof run_dir, "%s/child/run_001", scenario_storage());
    pid_t controller = fork_controller(program, "with_children", NULL);
    CHECK(scenario_worker_pid(run_dir, 1) > 0);
    CHECK(scenario_wait_processes(run_dir, 6));
    kill(controller, SIGKILL);
    waitpid(controller, NULL, 0);
    CHECK(scenario_nothing_left(run_dir));
    uni_run *run = NULL;
    uni_error err = { 0 };
    CHECK_OK(uni_run_open(&run, run_dir, NULL, &err), &err);
    CHECK(uni_run_info_of(run)->status == UNI_RUN_INTERRUPTED);
    uni_run_close(run);
}

/* Controller, keeper, agent and workers, all at once. */
static void everything_killed(uni_program *program)
{
    char run_dir[4096];
    uni_error err = { 0 };
    uni_run *run = NULL;
    snprintf(run_dir, sizeof run_dir, "%s/child/run_001", scenario_storage());
    pid_t controller = fork_controller(program, "deaf", NULL);
    int worker = scenario_worker_pid(run_dir, 1);
    scenario_sleep_ms(100);
    int agent = scenario_parent(worker), keeper = scenario_parent(agent);
    CHECK(worker > 1 && agent > 1 && keeper > 1);
    const pid_t all[] = { controller, keeper, agent, worker };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kill(all[i], SIGKILL);
    waitpid(controller, NULL, 0);
    CHECK(scenario_nothing_left(run_dir));
    CHECK_OK(uni_run_open(&run, run_dir, NULL, &err), &err);
    CHECK(uni_run_info_of(run)->status == UNI_RUN_INTERRUPTED);
    uni_run_close(run);
}

static void resumed_after_controller_death(uni_program *program)
{
    char run_dir[4096];
    uni_error err = { 0 };
    uni_result *result = NULL;
    snprintf(run_dir, sizeof run_dir, "%s/child/run_001", scenario_storage());
    /* Rank 1 waits for a minute at epoch 3: by then epochs 0 to 2 are complete. */
    uni_value *config = scenario_config("settle_ms", 60000.0, NULL);
    pid_t controller = fork_controller(program, "trouble", config);
    CHECK(scenario_worker_pid(run_dir, 1) > 0 && scenario_wait_checkpoint(run_dir, 3));
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .name = "child" });
    uni_run_options again = { .function = "trouble", .resume_run = run_dir };
    CHECK(uni_trainer_fit(&result, trainer, &again, &err) == UNI_EBUSY && result == NULL);
    kill(controller, SIGKILL);
    waitpid(controller, NULL, 0);
    /* As if the kill had come in the middle of writing run.json. */
    char half[4200];
    snprintf(half, sizeof half, "%s/run.json.tmp-0123abcd", run_dir);
    CHECK(close(creat(half, 0600)) == 0);
    CHECK_OK(uni_trainer_fit(&result, trainer, &again, &err), &err);
    CHECK(access(half, F_OK) < 0);
    CHECK(uni_result_info_of(result)->attempts == 2 &&
          uni_value_as_int(uni_result_info_of(result)->returned[1], -1) == 3);
    CHECK(uni_trainer_fit(NULL, trainer, &again, &err) == UNI_ESTATE); /* it has ended well now */
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* A controller that takes signals, in a process of its own; its exit code is that of the
 * command. */
static pid_t fork_signalled_controller(uni_program *program, const char *function)
{
    const char *storage = scenario_storage();
    pid_t pid = fork();
    if (pid == 0) {
        uni_error err = { 0 };
        uni_result *result = NULL;
        uni_trainer *trainer =
            scenario_trainer(program, (uni_trainer_options){ .num_workers = 2,
                                                             .name = function,
                                                             .storage_path = storage,
                                                             .handle_signals = true,
                                                             .grace_seconds = 30 });
        int status =
            uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = function }, &err);
        int code = status < 0 && result ? uni_result_info_of(result)->exit_code : 0;
        if (code != 75)
            fprintf(stderr, "%s ended with status %d, exit code %d: %s\n", function, status, code,
                    err.message);
        _exit(code);
    }
    return pid;
}

static int exit_code_after(uni_program *program, const char *function, int number, int times,
                           double *seconds)
{
    char run_dir[4096];
    int status;
    snprintf(run_dir, sizeof run_dir, "%s/%s/run_001", scenario_storage(), function);
    pid_t controller = fork_signalled_controller(program, function);
    CHECK(scenario_worker_pid(run_dir, 1) > 0);
    scenario_sleep_ms(300);
    double begun = scenario_ms();
    for (int i = 0; i < times; i++) {
        kill(controller, number);
        scenario_sleep_ms(200);
    }
    CHECK(waitpid(controller, &status, 0) == controller && WIFEXITED(status));
    *seconds = (scenario_ms() - begun) / 1e3;
    CHECK(scenario_nothing_left(run_dir));
    char command[4200];
    snprintf(command, sizeof command, "rm -r '%s/%s'", scenario_storage(), function);
    CHECK(system(command) == 0);
    return WEXITSTATUS(status);
}

static void controller_signals(uni_program *program)
{
    double seconds;
    CHECK(exit_code_after(program, "until_stopped", SIGTERM, 1, &seconds) == 75);
    CHECK(exit_code_after(program, "until_stopped", SIGINT, 1, &seconds) == 75);
    /* Ranks that do not listen: the second one ends them now, not after the grace time. */
    CHECK(exit_code_after(program, "deaf", SIGINT, 2, &seconds) == 75);
    CHECK(seconds < 5 * test_patience());
}

static void fifty_runs_at_once(uni_program *program)
{
    pid_t children[50];
    uni_log_level_set(UNI_LOG_ERROR);
    uni_value *config = scenario_config("at", 99.0, NULL);
    for (int i = 0; i < 50; i++)
        children[i] = fork_controller(program, "trouble", config);
    for (int i = 0; i < 50; i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i] && WIFEXITED(status) &&
              WEXITSTATUS(status) == 0);
    }
    char *runs = scenario_list(scenario_storage(), "child", NULL);
    CHECK_CONTAINS(runs, "run_050");
    free(runs);
    uni_value_free(config);
    CHECK(scenario_nothing_left(scenario_storage()));
}

const scenario scenarios[] = { { "killed_agent", killed_agent },
                               { "frozen_agent", frozen_agent },
                               { "stopped_agent", stopped_agent },
                               { "killed_controller", killed_controller },
                               { "everything_killed", everything_killed },
                               { "resumed_after_controller_death", resumed_after_controller_death },
                               { "controller_signals", controller_signals },
                               { "fifty_runs_at_once", fifty_runs_at_once },
                               { NULL, NULL } };
