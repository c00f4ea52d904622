/*
 * server_deaths.c - parameter servers whose members are killed or stopped in the middle of
 * training: a worker's or a server's death costs time only, the coordinator's restarts the run from
 * its checkpoint; in synchronous mode the result is that of one process.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "servers_common.h"

#define AND(rank) (100 + (rank)) /* in the same moment as the one before */

typedef struct killer {
    uni_trainer *trainer;
    const int *ranks; /* one after the other, -1 ends */
    int signal, every_ms, done;
    _Atomic int over;
} killer;

static void *kill_members(void *argument)
{
    killer *k = argument;
    const char *dir;
    while (!(dir = uni_trainer_latest_run_dir(k->trainer)) && !k->over)
        scenario_sleep_ms(5);
    if (dir)
        scenario_wait_checkpoint(dir, 1); /* everybody is at work */
    for (int i = 0; dir && k->ranks[i] >= 0 && !k->over; i++) {
        if (k->ranks[i] < AND(0))
            scenario_sleep_ms(k->every_ms);
        int pid = k->over ? 0 : scenario_worker_pid(dir, k->ranks[i] % AND(0));
        if (pid > 0 && !k->over && kill(pid, k->signal) == 0)
            k->done++;
    }
    return NULL;
}

static uni_result *run_and_kill(uni_program *program, const char *function, uni_value *config,
                                const int *ranks, int signal, int every_ms, double silent_timeout)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    pthread_t thread;
    uni_log_level_set(UNI_LOG_ERROR);
    killer k = { .ranks = ranks, .signal = signal, .every_ms = every_ms };
    k.trainer = scenario_trainer(
        program,
        (uni_trainer_options){
            .num_workers = 2, .servers = 2, .max_failures = 20, .silent_timeout = silent_timeout });
    CHECK(pthread_create(&thread, NULL, kill_members, &k) == 0);
    CHECK_OK(uni_trainer_fit(&result, k.trainer,
                             &(uni_run_options){ .function = function, .config = config }, &err),
             &err);
    k.over = 1;
    pthread_join(thread, NULL);
    for (int i = 0; ranks[i] >= 0; i++)
        k.done -= 1;
    CHECK(k.done == 0); /* all of them happened while it trained */
    uni_value_free(config);
    uni_trainer_free(k.trainer);
    return result;
}

static uni_value *slow_config(const char *strategy, bool noisy, int epochs)
{
    uni_value *config = servers_config(strategy, noisy);
    CHECK(uni_dict_take(config, "epochs", uni_value_int(epochs)) == 0);
    CHECK(uni_dict_take(config, "pause_ms", uni_value_int(10)) == 0);
    return config;
}

/* Synchronous with everything that needs the others in the middle of a step, killed everywhere: the
 * same as one process. */
static void compare_with_one_process(uni_program *program, const char *function, const int *ranks,
                                     int signal, int every_ms, int epochs, double silent_timeout,
                                     int attempts)
{
    uni_value *whole = servers_config("none", true);
    CHECK(uni_dict_take(whole, "epochs", uni_value_int(epochs)) == 0);
    uni_result *alone = servers_run(program, function, 1, 0, whole, NULL);
    uni_result *killed =
        run_and_kill(program, function, slow_config("parameter_server:sync", true, epochs), ranks,
                     signal, every_ms, silent_timeout);
    const uni_value *a = uni_result_info_of(alone)->returned[0],
                    *b = uni_result_info_of(killed)->returned[0];
    CHECK(uni_result_info_of(killed)->attempts == attempts);
    double worst = servers_difference(a, b, attempts == 1 ? (size_t)epochs : 0);
    if (worst >= 2e-5)
        fprintf(stderr, "after the deaths it differs from one process by %g\n", worst);
    CHECK(worst < 2e-5);
    CHECK(uni_dict_get_int(b, "iterations", -1) == uni_dict_get_int(a, "iterations", -2));
    if (attempts == 1)
        CHECK(uni_dict_get_int(uni_dict_get(b, "stats"), "restored", 0) > 0);
    uni_result_free(alone);
    uni_result_free(killed);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void members_killed(uni_program *program)
{
    /* ranks: 0 coordinator, 1 and 2 workers, 3 and 4 servers */
    static const int ranks[] = { 1, 3, 2, 4, 3, 1, -1 };
    compare_with_one_process(program, "train", ranks, SIGKILL, 120, 60, 0, 1);
}

/* Passes of a loop of one's own: a member that was restarted passes over those that are done. */
static void passes_killed(uni_program *program)
{
    static const int ranks[] = { 1, 3, 2, 4, 3, 1, -1 };
    compare_with_one_process(program, "pass_loop", ranks, SIGKILL, 120, 60, 0, 1);
}

static void coordinator_killed(uni_program *program)
{
    static const int ranks[] = { 0, 3, 0, 1, -1 };
    compare_with_one_process(program, "train", ranks, SIGKILL, 250, 60, 0, 3);
}

/* Before the first checkpoint, all members get the state in which callbacks began. A worker that
 * took its place in the epoch from it dropped its first call, and the others waited for ever. */
static void coordinator_dies_first(uni_program *program)
{
    uni_value *config = servers_config("parameter_server:sync", true);
    CHECK(uni_dict_take(config, "dies_first", uni_value_bool(true)) == 0);
    uni_log_level_set(UNI_LOG_ERROR);
    uni_result *alone = servers_run(program, "train", 1, 0, servers_config("none", true), NULL);
    uni_error err = { 0 };
    uni_result *killed = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .servers = 2, .max_failures = 1 });
    CHECK_OK(uni_trainer_fit(
                 &killed, trainer,
                 &(uni_run_options){ .function = "train", .config = config, .time_limit = 30 },
                 &err),
             &err);
    CHECK(uni_result_info_of(killed)->attempts == 2);
    CHECK(servers_difference(uni_result_info_of(alone)->returned[0],
                             uni_result_info_of(killed)->returned[0], EPOCHS) < 2e-5);
    uni_value_free(config);
    uni_result_free(alone);
    uni_result_free(killed);
    uni_trainer_free(trainer);
}

static void members_stopped(uni_program *program)
{
    static const int ranks[] = { 3, 1, -1 };
    compare_with_one_process(program, "train", ranks, SIGSTOP, 150, 30, 0.5, 1);
}

/* Every update counts once, whoever dies. */
static void asynchronous_killed(uni_program *program)
{
    static const int ranks[] = { 1, 3, 2, 4, 1, -1 };
    uni_value *config = slow_config("parameter_server", false, 40);
    CHECK(uni_dict_take(config, "optimizer", uni_value_string("rmsprop")) == 0);
    uni_result *killed = run_and_kill(program, "train", config, ranks, SIGKILL, 120, 0);
    const uni_value *returned = uni_result_info_of(killed)->returned[0];
    CHECK(uni_result_info_of(killed)->attempts == 1);
    CHECK(uni_dict_get_int(returned, "iterations", 0) == 40 * 4);
    CHECK(servers_number(returned, "loss", 39) < 0.5 * servers_number(returned, "loss", 0));
    uni_result_free(killed);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* Without a replica a server goes back to the last checkpoint; the others and the coordinator go
 * on. */
static void server_without_replica(uni_program *program)
{
    static const int ranks[] = { 3, 4, -1 };
    uni_value *config = slow_config("parameter_server", false, 40);
    CHECK(uni_dict_take(config, "optimizer", uni_value_string("rmsprop")) == 0);
    CHECK(uni_dict_take(config, "no_replica", uni_value_bool(true)) == 0);
    uni_result *killed = run_and_kill(program, "train", config, ranks, SIGKILL, 150, 0);
    const uni_value *returned = uni_result_info_of(killed)->returned[0];
    CHECK(uni_result_info_of(killed)->attempts == 1);
    CHECK(uni_dict_get_int(uni_dict_get(returned, "stats"), "restored", 0) == 2);
    CHECK(servers_number(returned, "loss", 39) < 0.5 * servers_number(returned, "loss", 0));
    uni_result_free(killed);
}

/* A server's death, again and again: each time its shard comes back, the coordinator is never
 * restarted. */
static void servers_killed_often(uni_program *program)
{
    int ranks[21];
    for (int i = 0; i < 20; i++)
        ranks[i] = 3 + i % 2;
    ranks[20] = -1;
    compare_with_one_process(program, "train", ranks, SIGKILL, 150, 200, 0, 1);
}

/* A worker and a server within the same step: what the server had taken of the step is gone with
 * both (src/strategy/server/client_test.c has the one order that hung). */
static void killed_together(uni_program *program)
{
    static const int ranks[] = {
        1, AND(4), 4, AND(2), 1, AND(3), 2, AND(1), AND(4), 3, AND(4), -1
    };
    compare_with_one_process(program, "train", ranks, SIGKILL, 150, 60, 0, 1);
}

static void *kill_joining(void *argument)
{
    killer *k = argument;
    const char *dir;
    while (!(dir = uni_trainer_latest_run_dir(k->trainer)) && !k->over)
        scenario_sleep_ms(5);
    scenario_sleep_ms(k->every_ms); /* all have asked to join */
    for (int i = 0; dir && k->ranks[i] >= 0; i++) {
        int pid = scenario_worker_pid(dir, k->ranks[i]);
        if (pid > 0 && kill(pid, k->signal) == 0)
            k->done++;
    }
    return NULL;
}

/* Members that die after they asked to join: the answer to a dead process reaches the one that took
 * its place, which must not take it for its own. Such a worker was refused as one of an earlier
 * life, took that for the end of fit, and the coordinator waited for ever. */
static void killed_while_joining(uni_program *program)
{
    static const int ranks[] = { 1, 2, 3, 4, -1 };
    uni_error err = { 0 };
    uni_result *result = NULL;
    pthread_t thread;
    uni_value *config = servers_config("parameter_server:sync", true);
    CHECK(uni_dict_take(config, "chief_late_ms", uni_value_int(1500)) == 0);
    uni_log_level_set(UNI_LOG_ERROR);
    killer k = { .ranks = ranks, .signal = SIGKILL, .every_ms = 500 };
    k.trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .servers = 2 });
    CHECK(pthread_create(&thread, NULL, kill_joining, &k) == 0);
    CHECK_OK(uni_trainer_fit(
                 &result, k.trainer,
                 &(uni_run_options){ .function = "train", .config = config, .time_limit = 30 },
                 &err),
             &err);
    k.over = 1;
    pthread_join(thread, NULL);
    CHECK(k.done == 4 && uni_result_info_of(result)->attempts == 1);
    uni_result *alone = servers_run(program, "train", 1, 0, servers_config("none", true), NULL);
    CHECK(servers_difference(uni_result_info_of(alone)->returned[0],
                             uni_result_info_of(result)->returned[0], EPOCHS) < 2e-5);
    uni_value_free(config);
    uni_result_free(alone);
    uni_result_free(result);
    uni_trainer_free(k.trainer);
}

const scenario scenarios[] = { { "members_killed", members_killed },
                               { "passes_killed", passes_killed },
                               { "coordinator_killed", coordinator_killed },
                               { "coordinator_dies_first", coordinator_dies_first },
                               { "members_stopped", members_stopped },
                               { "asynchronous_killed", asynchronous_killed },
                               { "server_without_replica", server_without_replica },
                               { "servers_killed_often", servers_killed_often },
                               { "killed_together", killed_together },
                               { "killed_while_joining", killed_while_joining },
                               { NULL, NULL } };
