/*
 * servers.c - parameter servers as users run them: the same result as one process in synchronous
 * mode, by fit and by passes, other numbers of servers after a checkpoint, staleness within its
 * bound, mistakes. Deaths are in server_deaths.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "servers_common.h"

/* Synchronous, with these numbers of workers and servers: the same as one process. */
static void compare_with_one(uni_program *program, const char *function, const int (*counts)[2],
                             size_t num_counts)
{
    uni_result *alone = servers_run(program, function, 1, 0, servers_config("none", true), NULL);
    const uni_value *a = uni_result_info_of(alone)->returned[0];
    for (size_t i = 0; i < num_counts; i++) {
        uni_result *served = servers_run(program, function, counts[i][0], counts[i][1],
                                         servers_config("parameter_server:sync", true), NULL);
        const uni_value *b = uni_result_info_of(served)->returned[0];
        double worst = servers_difference(a, b, EPOCHS);
        if (worst >= 2e-5)
            fprintf(stderr, "%s: %d workers and %d servers differ from one process by %g\n",
                    function, counts[i][0], counts[i][1], worst);
        CHECK(worst < 2e-5);
        CHECK(uni_dict_get_int(b, "iterations", -1) == uni_dict_get_int(a, "iterations", -2));
        uni_result_free(served);
    }
    uni_result_free(alone);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* Dropout, synchronised batch normalisation, a regulariser, an uneven last batch. */
static void synchronous_is_one_process(uni_program *program)
{
    static const int counts[][2] = { { 1, 1 }, { 2, 1 }, { 2, 3 }, { 3, 2 } };
    compare_with_one(program, "train", counts, sizeof counts / sizeof counts[0]);
}

/* ---- modes ---- */

static void asynchronous_converges(uni_program *program)
{
    static const char *const names[] = { "parameter_server", "parameter_server:bounded=1",
                                         "parameter_server:bounded=0" };
    static const size_t bounds[] = { 1000, 1, 0 };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uni_value *config = servers_config(names[i], false);
        CHECK(uni_dict_take(config, "epochs", uni_value_int(40)) == 0);
        CHECK(uni_dict_take(config, "optimizer", uni_value_string("rmsprop")) == 0);
        uni_result *result = servers_run(program, "train", 2, 2, config, NULL);
        const uni_value *returned = uni_result_info_of(result)->returned[0],
                        *stats = uni_dict_get(returned, "stats"),
                        *histogram = uni_dict_get(stats, "staleness");
        /* Every batch of every epoch is one update, each sample counted once. */
        CHECK(uni_dict_get_int(returned, "iterations", 0) == 40 * 4);
        CHECK(uni_dict_get_int(stats, "updates", 0) == 40 * 4);
        CHECK(servers_number(returned, "loss", 39) < 0.5 * servers_number(returned, "loss", 0));
        CHECK(uni_list_size(histogram) >= 1 && uni_list_size(histogram) <= bounds[i] + 1);
        uni_result_free(result);
    }
}

static void checkpoint_in_other_numbers(uni_program *program)
{
    /* 2 servers, then 3, then 1, then none: the same as never stopped. */
    static const int servers[] = { 2, 3, 1, 0 };
    uni_value *whole = servers_config("none", true);
    CHECK(uni_dict_take(whole, "epochs", uni_value_int(8)) == 0);
    uni_result *alone = servers_run(program, "train", 1, 0, whole, NULL), *before = NULL;
    for (int i = 0; i < 4; i++) {
        uni_value *config = servers_config(servers[i] ? "parameter_server:sync" : "none", true);
        CHECK(uni_dict_take(config, "epochs", uni_value_int(2 * (i + 1))) == 0);
        uni_result *part =
            servers_run(program, "train", servers[i] ? 2 : 1, servers[i], config,
                        before ? uni_result_info_of(before)->latest_checkpoint : NULL);
        uni_result_free(before);
        before = part;
    }
    CHECK(servers_difference(uni_result_info_of(alone)->returned[0],
                             uni_result_info_of(before)->returned[0], 0) < 2e-5);
    uni_result_free(before);
    uni_result_free(alone);
}

/* From a checkpoint of the last epoch on there is nothing to do, and no worker takes that for data
 * without a row. */
static void resumed_at_the_end(uni_program *program)
{
    static const char *const names[] = { "parameter_server:sync", "parameter_server" };
    uni_result *whole = servers_run(program, "train", 2, 1, servers_config(names[0], false), NULL);
    for (size_t i = 0; i < 2; i++) {
        uni_result *again = servers_run(program, "train", 2, 1, servers_config(names[i], false),
                                        uni_result_info_of(whole)->latest_checkpoint);
        CHECK(servers_difference(uni_result_info_of(whole)->returned[0],
                                 uni_result_info_of(again)->returned[0], 0) == 0);
        uni_result_free(again);
    }
    uni_result_free(whole);
}

static void loop_of_ones_own(uni_program *program)
{
    static const char *const names[] = { "parameter_server", "parameter_server:bounded=1",
                                         "parameter_server:sync" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uni_value *config = servers_config(names[i], false);
        bool synchronous = i == 2;
        uni_result *result = servers_run(program, "own_loop", 2, 2, config, NULL);
        const uni_value *returned = uni_result_info_of(result)->returned[0];
        CHECK(servers_number(returned, "losses", 29) < 0.3 * servers_number(returned, "losses", 0));
        /* 5 calls a round: synchronous steps of 2 with one empty part. */
        CHECK(uni_dict_get_int(uni_dict_get(returned, "stats"), "updates", 0) ==
              (synchronous ? 3 : 5) * 30);
        /* In synchronous mode nobody waits for the part that failed. */
        CHECK_CONTAINS(uni_dict_get_string(returned, "failed", ""), "asked to fail");
        uni_result_free(result);
    }
}

/* A value that is fetched, or a call that is waited for by asking, without a join: in synchronous
 * mode that waited for parts which nobody had scheduled. */
static void one_call_at_a_time(uni_program *program)
{
    static const char *const names[] = { "parameter_server:sync", "parameter_server",
                                         "parameter_server:bounded=0" };
    for (int i = 0; i < 3; i++) {
        uni_value *config = servers_config(names[i], false);
        CHECK(uni_dict_take(config, "alone", uni_value_bool(true)) == 0);
        CHECK(uni_dict_take(config, "rounds", uni_value_int(2)) == 0);
        CHECK(uni_dict_take(config, "late_ms", uni_value_int(100)) == 0);
        uni_result *result = servers_run(program, "own_loop", 3, 2, config, NULL);
        const uni_value *stats = uni_dict_get(uni_result_info_of(result)->returned[0], "stats");
        CHECK(uni_dict_get_int(stats, "updates", 0) == (i == 0 ? 3 + 2 * 2 : 4 + 2 * 5));
        uni_result_free(result);
    }
}

/* Passes: the same, with validation in between, which makes no update. */
static void passes_are_one_process(uni_program *program)
{
    static const int counts[][2] = { { 1, 1 }, { 2, 2 }, { 3, 1 } };
    compare_with_one(program, "pass_loop", counts, sizeof counts / sizeof counts[0]);
    static const char *const names[] = { "parameter_server", "parameter_server:bounded=0" };
    for (int i = 0; i < 2; i++) {
        uni_value *config = servers_config(names[i], false);
        CHECK(uni_dict_take(config, "epochs", uni_value_int(30)) == 0);
        uni_result *free_run = servers_run(program, "pass_loop", 2, 1, config, NULL);
        const uni_value *c = uni_result_info_of(free_run)->returned[0];
        CHECK(uni_dict_get_int(c, "iterations", 0) == 30 * 4);
        CHECK(servers_number(c, "val_loss", 29) < servers_number(c, "val_loss", 0));
        uni_result_free(free_run);
    }
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* One part of a synchronous step fails before the others have their batch statistics: its error
 * comes out, and nobody hangs. */
static void failing_part(uni_program *program)
{
    uni_error err = { 0 };
    uni_value *config = servers_config("parameter_server:sync", true);
    CHECK(uni_dict_take(config, "fail", uni_value_bool(true)) == 0);
    uni_log_level_set(UNI_LOG_ERROR);
    uni_trainer *trainer = scenario_trainer(
        program,
        (uni_trainer_options){ .num_workers = 2, .servers = 2, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(NULL, trainer,
                          &(uni_run_options){ .function = "pass_loop", .config = config },
                          &err) == UNI_EFUNCTION);
    CHECK_CONTAINS(err.message, "this part was asked to fail");
    uni_value_free(config);
    uni_trainer_free(trainer);
}

/* A program may go on after a pass that failed in the middle: nobody waits for what was left of
 * it. */
static void after_a_failed_pass(uni_program *program)
{
    static const char *const strategies[] = { "parameter_server:sync", "parameter_server",
                                              "parameter_server:bounded=1" };
    uni_error err = { 0 };
    uni_log_level_set(UNI_LOG_ERROR);
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        uni_value *config = servers_config(strategies[i], false);
        CHECK(uni_dict_take(config, "fail", uni_value_bool(true)) == 0);
        CHECK(uni_dict_take(config, "goes_on", uni_value_bool(true)) == 0);
        uni_trainer *trainer = scenario_trainer(
            program, (uni_trainer_options){
                         .num_workers = 2, .servers = 2, .max_failures = UNI_NO_RETRIES });
        CHECK_OK(uni_trainer_fit(NULL, trainer,
                                 &(uni_run_options){ .function = "pass_loop", .config = config },
                                 &err),
                 &err);
        uni_value_free(config);
        uni_trainer_free(trainer);
    }
}

/* A worker that comes when all is done ends by itself, too: it waited for the others until it was
 * killed. */
static void late_member(uni_program *program)
{
    uni_value *config = servers_config("parameter_server", false);
    CHECK(uni_dict_take(config, "late_ms", uni_value_int(500)) == 0);
    double begun = scenario_ms();
    uni_result *result = servers_run(program, "train", 2, 1, config, NULL);
    double took = scenario_ms() - begun;
    if (took >= 1900)
        fprintf(stderr, "it took %.0f ms\n", took);
    CHECK(took >= 500 && took < 1900);
    uni_result_free(result);
}

/* The evaluator's losses are those of the coordinator's own validation after the same epochs. */
static void sidecar_evaluates(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = servers_config("parameter_server:sync", true);
    CHECK(uni_dict_take(config, "pause_ms", uni_value_int(20)) == 0);
    uni_log_level_set(UNI_LOG_ERROR);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .servers = 1, .evaluators = 1 });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "train", .config = config }, &err),
             &err);
    const uni_value *history = uni_result_info_of(result)->returned[0],
                    *seen = uni_result_info_of(result)->returned[4];
    size_t count = uni_list_size(seen);
    CHECK(count >= 1 && count <= EPOCHS);
    for (size_t i = 0; i < count; i++) {
        const uni_value *pair = uni_list_get(seen, i);
        size_t epoch = (size_t)uni_value_as_int(uni_list_get(pair, 0), -1);
        double loss = uni_value_as_float(uni_list_get(pair, 1), NAN);
        CHECK(epoch < EPOCHS);
        CHECK(fabs(loss - servers_number(history, "val_loss", epoch)) < 1e-5);
        CHECK(i + 1 < count || epoch == EPOCHS - 1); /* the last one is not missed */
    }
    uni_result_free(result);
    uni_value_free(config);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* fit without a seed: the coordinator's model has one, as without a strategy. */
static void no_seed_is_the_models(uni_program *program)
{
    uni_value *configs[2] = { servers_config("none", true),
                              servers_config("parameter_server:sync", true) };
    for (int i = 0; i < 2; i++)
        CHECK(uni_dict_take(configs[i], "seed", uni_value_int(0)) == 0);
    uni_result *alone = servers_run(program, "train", 1, 0, configs[0], NULL);
    uni_result *served = servers_run(program, "train", 2, 1, configs[1], NULL);
    CHECK(servers_difference(uni_result_info_of(alone)->returned[0],
                             uni_result_info_of(served)->returned[0], EPOCHS) < 2e-5);
    uni_result_free(served);
    uni_result_free(alone);
}

/* ---- mistakes ---- */

static void mistakes_are_told(uni_program *program)
{
    static const struct {
        int workers, servers;
        const char *strategy, *sentence;
        int accumulate;
    } cases[] = { { 2, 0, "parameter_server", "--servers 1", 0 },
                  { 1, 1, "parameter_server:bounded=-1", "bounded=N", 0 },
                  { 1, 1, "parameter_server:never", "async, sync, bounded=N", 0 },
                  { 1, 1, "parameter_server", "larger batch_size", 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_error err = { 0 };
        uni_value *config = servers_config(cases[i].strategy, false);
        CHECK(uni_dict_take(config, "accumulate", uni_value_int(cases[i].accumulate)) == 0);
        uni_log_level_set(UNI_LOG_ERROR);
        uni_trainer *trainer =
            scenario_trainer(program, (uni_trainer_options){ .num_workers = cases[i].workers,
                                                             .servers = cases[i].servers,
                                                             .max_failures = UNI_NO_RETRIES });
        CHECK(uni_trainer_fit(NULL, trainer,
                              &(uni_run_options){ .function = "train", .config = config },
                              &err) == UNI_EFUNCTION);
        CHECK_CONTAINS(err.message, cases[i].sentence);
        uni_value_free(config);
        uni_trainer_free(trainer);
    }
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    CHECK(uni_trainer_new(&trainer, &(uni_trainer_options){ .main = program, .servers = -1 },
                          &err) == UNI_EINVAL);
    CHECK_CONTAINS(err.message, "servers");
}

/* A member that returns without training: the others do not wait for it for ever. */
static void member_that_leaves(uni_program *program)
{
    static const char *const names[] = { "worker 0 (rank 1)", "server 0 (rank 3)" };
    for (int i = 0; i < 2; i++) {
        uni_error err = { 0 };
        const char *strategy = i == 0 ? "parameter_server:sync" : "parameter_server";
        uni_value *config = servers_config(strategy, false);
        CHECK(uni_dict_take(config, "leaves", uni_value_int(i == 0 ? 1 : 3)) == 0);
        CHECK(uni_dict_take(config, "join_timeout", uni_value_float(1)) == 0);
        uni_log_level_set(UNI_LOG_ERROR);
        uni_trainer *trainer = scenario_trainer(
            program, (uni_trainer_options){
                         .num_workers = 2, .servers = 1, .max_failures = UNI_NO_RETRIES });
        uni_run_options run = { .function = "train", .config = config, .time_limit = 60 };
        CHECK(uni_trainer_fit(NULL, trainer, &run, &err) == UNI_EFUNCTION);
        CHECK_CONTAINS(err.message, "the coordinator waits for");
        CHECK_CONTAINS(err.message, names[i]);
        uni_value_free(config);
        uni_trainer_free(trainer);
    }
}

/* A step that ends its worker every time does not go on for ever. */
static void poison_is_given_up(uni_program *program)
{
    uni_error err = { 0 };
    uni_value *config = servers_config("parameter_server", false);
    CHECK(uni_dict_take(config, "poison", uni_value_bool(true)) == 0);
    uni_log_level_set(UNI_LOG_ERROR);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 1, .servers = 1, .max_failures = 1 });
    CHECK(uni_trainer_fit(NULL, trainer,
                          &(uni_run_options){ .function = "own_loop", .config = config },
                          &err) == UNI_EWORKER);
    CHECK_CONTAINS(err.message, "signal 9");
    CHECK_CONTAINS(err.message, "within a second of its start");
    uni_value_free(config);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* TensorFlow's programs: every task finds itself and the others in TF_CONFIG. */
static void roles_in_the_environment(uni_program *program)
{
    static const struct {
        const char *type;
        int index;
    } tasks[] = {
        { "chief", 0 }, { "worker", 0 }, { "worker", 1 }, { "ps", 0 }, { "evaluator", 0 }
    };
    uni_error err = { 0 };
    uni_value *plan = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){
                     .num_workers = 2, .servers = 1, .evaluators = 1, .backend = "tensorflow" });
    CHECK_OK(uni_trainer_plan(&plan, trainer, NULL, &err), &err);
    const uni_value *workers = uni_dict_get(plan, "workers");
    CHECK(uni_list_size(workers) == 5);
    for (size_t i = 0; i < 5; i++) {
        const uni_value *environment = uni_dict_get(uni_list_get(workers, i), "environment");
        const char *text = uni_dict_get_string(environment, "TF_CONFIG", "");
        uni_value *config = NULL;
        CHECK_OK(uni_json_read(&config, text, strlen(text), &err), &err);
        const uni_value *cluster = uni_dict_get(config, "cluster"),
                        *task = uni_dict_get(config, "task");
        CHECK(strcmp(uni_dict_get_string(task, "type", ""), tasks[i].type) == 0);
        CHECK(uni_dict_get_int(task, "index", -1) == tasks[i].index);
        CHECK(strcmp(uni_dict_get_string(environment, "UNISONO_ROLE", ""), tasks[i].type) == 0);
        CHECK(uni_list_size(uni_dict_get(cluster, "chief")) == 1);
        CHECK(uni_list_size(uni_dict_get(cluster, "worker")) == 2);
        CHECK(uni_list_size(uni_dict_get(cluster, "ps")) == 1);
        /* Nobody but itself waits for the evaluator. */
        CHECK(uni_list_size(uni_dict_get(cluster, "evaluator")) == (i == 4));
        uni_value_free(config);
    }
    uni_value_free(plan);
    uni_trainer_free(trainer);
}

const scenario scenarios[] = { { "synchronous_is_one_process", synchronous_is_one_process },
                               { "asynchronous_converges", asynchronous_converges },
                               { "checkpoint_in_other_numbers", checkpoint_in_other_numbers },
                               { "resumed_at_the_end", resumed_at_the_end },
                               { "loop_of_ones_own", loop_of_ones_own },
                               { "one_call_at_a_time", one_call_at_a_time },
                               { "passes_are_one_process", passes_are_one_process },
                               { "failing_part", failing_part },
                               { "after_a_failed_pass", after_a_failed_pass },
                               { "late_member", late_member },
                               { "sidecar_evaluates", sidecar_evaluates },
                               { "no_seed_is_the_models", no_seed_is_the_models },
                               { "mistakes_are_told", mistakes_are_told },
                               { "member_that_leaves", member_that_leaves },
                               { "poison_is_given_up", poison_is_given_up },
                               { "roles_in_the_environment", roles_in_the_environment },
                               { NULL, NULL } };
