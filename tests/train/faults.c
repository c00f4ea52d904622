/* faults.c - workers that die, stop, hang or are told to end: the first cause is named, the group
 * comes back, nothing is left. (What is above them: controllers.c.) */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../patience.h"
#include "scenario.h"

/* ---- deaths ---- */

/* One death, one restart, from the epoch where it happened. */
static void one_restart(uni_program *program, const char *key, double number,
                        const char *class_name, const char *words)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = scenario_config(key, number, NULL), *description = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 3 });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "trouble", .config = config }, &err),
             &err);
    CHECK(uni_result_info_of(result)->attempts == 2);
    for (int rank = 0; rank < 3; rank++)
        CHECK(uni_value_as_int(uni_result_info_of(result)->returned[rank], -1) == 3);
    const uni_value *cause = scenario_cause(&description, uni_result_info_of(result)->run_dir);
    CHECK(strcmp(uni_dict_get_string(cause, "class", ""), class_name) == 0);
    CHECK(uni_dict_get_int(cause, "rank", -1) == 1 && uni_dict_get_int(cause, "pid", 0) > 1);
    CHECK(uni_dict_get_int(cause, "iteration", -1) == 3);
    CHECK_CONTAINS(uni_dict_get_string(cause, "message", ""), words);
    CHECK_CONTAINS(uni_value_as_string(uni_list_get(uni_dict_get(cause, "log_tail"), 0), ""),
                   "trouble at epoch 3");
    CHECK_CONTAINS(uni_dict_get_string(description, "victims", ""),
                   "rank 0, 2 ended because of it");
    uni_value_free(config);
    uni_value_free(description);
    uni_result_free(result);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void killed_worker(uni_program *program)
{
    one_restart(program, "signal", SIGKILL, "signal", "killed by signal 9");
}

static void crashed_worker(uni_program *program)
{
    one_restart(program, "signal", SIGSEGV, "signal", "Segmentation fault");
}

static void exited_worker(uni_program *program)
{
    one_restart(program, "exit", 7, "exit",
                "exited with code 7 before its train function returned");
}

static void exit_zero_is_a_failure(uni_program *program)
{
    one_restart(program, "exit", 0, "exit",
                "exited with code 0 before its train function returned");
}

static void error_is_retried(uni_program *program)
{
    one_restart(program, "error", 1, "error", "the loss exploded at epoch 3");
}

static void error_is_not_retried_in_v1(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = scenario_config("error", 1.0, NULL);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .no_retry_errors = true });
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "trouble", .config = config },
                          &err) == UNI_EFUNCTION);
    CHECK(uni_result_info_of(result)->attempts == 1 && uni_result_info_of(result)->exit_code == 1);
    CHECK_CONTAINS(err.message, "the train function failed on rank 1");
    CHECK_CONTAINS(err.message, "the loss exploded at epoch 3");
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void budget_ends(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *once = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(&result, once, &(uni_run_options){ .function = "returns_one" }, &err) ==
          UNI_EFUNCTION);
    CHECK_CONTAINS(err.message, "the train function returned 1: return 0, or a negative");
    uni_result_free(result);
    uni_trainer_free(once);
    result = NULL;
    uni_value *config =
        scenario_config("signal", (double)SIGKILL, "attempts", 100.0, "settle_ms", 10.0, NULL);
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .max_failures = 2 });
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "trouble", .config = config },
                          &err) == UNI_EWORKER);
    CHECK(uni_result_info_of(result)->attempts == 3 &&
          uni_result_info_of(result)->exit_code == 128 + SIGKILL);
    CHECK_CONTAINS(err.message, "restarted 2 times");
    uni_result_free(result);
    uni_trainer_free(trainer);
    uni_value_free(config);
    /* Without an end to the budget the same crash without progress ends it (a kill may have come
     * from outside). */
    config = scenario_config("signal", (double)SIGSEGV, "attempts", 100.0, "settle_ms", 10.0, NULL);
    trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_UNLIMITED });
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "trouble", .config = config },
                          &err) == UNI_EWORKER);
    CHECK(uni_result_info_of(result)->attempts <= 4);
    CHECK_CONTAINS(err.message, "twice without progress");
    uni_result_free(result);
    uni_trainer_free(trainer);
    trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "trouble", .config = config },
                          &err) == UNI_EWORKER);
    CHECK(uni_result_info_of(result)->attempts == 1);
    uni_result_free(result);
    uni_value_free(config);
    uni_trainer_free(trainer);
}

static void lost_progress_is_said(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = scenario_config("signal", (double)SIGKILL, "no_checkpoint", 1.0, NULL);
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "trouble", .config = config }, &err),
             &err);
    CHECK(uni_value_as_int(uni_result_info_of(result)->returned[0], -1) == 0);
    CHECK(scenario_journal_says(uni_result_info_of(result)->run_dir,
                                "because no checkpoint was saved"));
    uni_value_free(config);
    uni_result_free(result);
    config = scenario_config("signal", (double)SIGKILL, "never_load", 1.0, "attempts", 2.0,
                             "settle_ms", 400.0, NULL);
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "trouble", .config = config }, &err),
             &err);
    CHECK(scenario_journal_says(uni_result_info_of(result)->run_dir,
                                "without loading the checkpoint"));
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* ---- helpers that act from another thread while a run goes on ---- */

typedef struct meddler {
    uni_trainer *trainer;
    int rank, signal, after_ms;
    pthread_t thread;
    double acted_ms;
} meddler;

static void *meddle(void *argument)
{
    meddler *self = argument;
    while (!uni_trainer_latest_run_dir(self->trainer))
        scenario_sleep_ms(5);
    int pid = scenario_worker_pid(uni_trainer_latest_run_dir(self->trainer), self->rank);
    scenario_sleep_ms(self->after_ms);
    self->acted_ms = scenario_ms();
    if (self->signal)
        kill(pid, self->signal);
    else
        uni_trainer_stop(self->trainer, false);
    return NULL;
}

static void frozen_worker(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *description = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){
                     .num_workers = 2, .silent_timeout = 1.5, .max_failures = UNI_NO_RETRIES });
    meddler self = { .trainer = trainer, .rank = 1, .signal = SIGSTOP, .after_ms = 100 };
    pthread_create(&self.thread, NULL, meddle, &self);
    CHECK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "deaf" }, &err) ==
          UNI_EWORKER);
    double ended_ms = scenario_ms();
    pthread_join(self.thread, NULL);
    double seconds = (ended_ms - self.acted_ms) / 1e3;
    CHECK(seconds > 1.3 && seconds < 4 * test_patience());
    CHECK_CONTAINS(err.message, "rank 1");
    CHECK_CONTAINS(err.message, "stopped by a signal");
    CHECK(
        strcmp(uni_dict_get_string(
                   scenario_cause(&description, uni_result_info_of(result)->run_dir), "class", ""),
               "stopped") == 0);
    CHECK(uni_result_info_of(result)->exit_code == 126);
    CHECK(scenario_journal_says(uni_result_info_of(result)->run_dir, "rank 1"));
    uni_value_free(description);
    uni_result_free(result);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* ---- stopping together ---- */

static void stopped_together(uni_program *program, int number)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 3 });
    meddler self = { .trainer = trainer, .rank = 2, .signal = number, .after_ms = 150 };
    pthread_create(&self.thread, NULL, meddle, &self);
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "until_stopped", .v1_checkpoints = true },
                          &err) == UNI_EPREEMPTED);
    pthread_join(self.thread, NULL);
    int64_t at = uni_value_as_int(uni_result_info_of(result)->returned[0], -1);
    CHECK(at > 1);
    for (int rank = 1; rank < 3; rank++)
        CHECK(uni_value_as_int(uni_result_info_of(result)->returned[rank], -2) == at);
    CHECK(uni_result_info_of(result)->exit_code == 75);
    CHECK(uni_dict_get_int(uni_result_info_of(result)->latest_dict, "iteration", -1) == at);
    uni_value *description = scenario_description(uni_result_info_of(result)->run_dir);
    CHECK(strcmp(uni_dict_get_string(description, "status", ""), "stopped") == 0);
    uni_value_free(description);
    /* And it goes on from there, in the same directory. */
    char *run_dir = strdup(uni_result_info_of(result)->run_dir);
    uni_result_free(result);
    uni_value *config = scenario_config("ask_at", 5.0, NULL);
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "until_stopped",
                                                 .config = config,
                                                 .resume_run = run_dir,
                                                 .v1_checkpoints = true },
                             &err),
             &err);
    CHECK(strcmp(uni_result_info_of(result)->run_dir, run_dir) == 0 &&
          uni_result_info_of(result)->attempts == 2);
    CHECK(uni_dict_get_int(uni_result_info_of(result)->latest_dict, "iteration", -1) > at);
    free(run_dir);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void preempted_worker(uni_program *program)
{
    stopped_together(program, SIGTERM);
}

static void stopped_by_the_caller(uni_program *program)
{
    stopped_together(program, 0);
}

static void early_stop_succeeds(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = scenario_config("ask_at", 20.0, NULL);
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 3 });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "until_stopped", .config = config },
                             &err),
             &err);
    int64_t at = uni_value_as_int(uni_result_info_of(result)->returned[0], -1);
    CHECK(at >= 20 && at == uni_value_as_int(uni_result_info_of(result)->returned[1], -1) &&
          at == uni_value_as_int(uni_result_info_of(result)->returned[2], -1));
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void time_limit(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .grace_seconds = 1 });
    double begun = scenario_ms();
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "until_stopped", .time_limit = 0.5 },
                          &err) == UNI_ETIMEOUT);
    CHECK(scenario_ms() - begun < 2000 * test_patience() &&
          uni_result_info_of(result)->exit_code == 124);
    CHECK(uni_value_as_int(uni_result_info_of(result)->returned[0], -1) ==
          uni_value_as_int(uni_result_info_of(result)->returned[1], -2));
    uni_result_free(result);
    /* Those that do not listen are killed when the grace time is over. */
    begun = scenario_ms();
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "deaf", .time_limit = 0.3 },
                          &err) == UNI_ETIMEOUT);
    CHECK(scenario_ms() - begun > 1200 && scenario_ms() - begun < 3500 * test_patience());
    uni_result_free(result);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void no_progress(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
    CHECK(
        uni_trainer_fit(&result, trainer,
                        &(uni_run_options){ .function = "with_children", .progress_timeout = 0.5 },
                        &err) == UNI_ETIMEOUT);
    CHECK_CONTAINS(err.message, "progress_timeout");
    uni_result_free(result);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void never_connects(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = NULL;
    const char *const sleeper[] = { "sleep", "60", NULL };
    CHECK_OK(uni_trainer_new(&trainer,
                             &(uni_trainer_options){ .worker_program = sleeper,
                                                     .num_workers = 2,
                                                     .hello_timeout = 0.5,
                                                     .max_failures = UNI_NO_RETRIES,
                                                     .storage_path = scenario_storage() },
                             &err),
             &err);
    CHECK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "anything" }, &err) ==
          UNI_EWORKER);
    CHECK_CONTAINS(err.message, "has not connected within 0.5 s");
    uni_result_free(result);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* The freezer stops a process without a signal that anybody could see: only its silence tells. */
static void silent_worker(uni_program *program)
{
    char cgroup[128], path[200];
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *description = NULL;
    snprintf(cgroup, sizeof cgroup, "/sys/fs/cgroup/freezer/unisono-test-%d", getpid());
    if (mkdir(cgroup, 0755) < 0)
        scenario_end(77);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){
                     .num_workers = 2, .silent_timeout = 2, .max_failures = UNI_NO_RETRIES });
    pid_t helper = fork();
    if (helper == 0) {
        /* Finds the worker by the run directory, which is the first of this storage. */
        char *names = NULL;
        for (int i = 0; i < 500 && (!names || !names[0]); i++, scenario_sleep_ms(10)) {
            free(names);
            names = scenario_list(scenario_storage(), NULL);
        }
        char run_dir[4200];
        snprintf(run_dir, sizeof run_dir, "%s/%s/run_001", scenario_storage(), names);
        int pid = scenario_worker_pid(run_dir, 1);
        scenario_sleep_ms(200);
        snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
        FILE *file = fopen(path, "w");
        bool moved = file && fprintf(file, "%d", pid) > 0 && fclose(file) == 0;
        snprintf(path, sizeof path, "%s/freezer.state", cgroup);
        file = moved ? fopen(path, "w") : NULL;
        bool frozen = file && fprintf(file, "FROZEN") > 0 && fclose(file) == 0;
        for (int i = 0; i < 200 && !scenario_journal_says(run_dir, "no heartbeat"); i++)
            scenario_sleep_ms(100);
        file = fopen(path, "w");
        if (file) {
            fprintf(file, "THAWED"); /* so that the kill reaches it */
            fclose(file);
        }
        _exit(frozen ? 0 : 77);
    }
    int status = uni_trainer_fit(&result, trainer,
                                 &(uni_run_options){ .function = "deaf", .time_limit = 60 }, &err),
        ended;
    CHECK(waitpid(helper, &ended, 0) == helper);
    scenario_sleep_ms(200);
    rmdir(cgroup);
    if (WEXITSTATUS(ended) == 77)
        scenario_end(77);
    CHECK(status == UNI_EWORKER);
    CHECK_CONTAINS(err.message, "rank 1");
    CHECK_CONTAINS(err.message, "silent");
    CHECK(
        strcmp(uni_dict_get_string(
                   scenario_cause(&description, uni_result_info_of(result)->run_dir), "class", ""),
               "silent") == 0);
    CHECK(uni_result_info_of(result)->exit_code == 126);
    uni_value_free(description);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* ---- no room ---- */

static void full_disk(uni_program *program)
{
    char place[512], command[700];
    uni_error err = { 0 };
    uni_result *result = NULL;
    snprintf(place, sizeof place, "%s/small", scenario_storage());
    CHECK(mkdir(place, 0700) == 0);
    snprintf(command, sizeof command, "mount -t tmpfs -o size=2m tmpfs '%s' 2>/dev/null", place);
    if (system(command) != 0)
        scenario_end(77); /* not root: skipped */
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .storage_path = place });
    int status = uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "flood" }, &err);
    int exit_code = result ? uni_result_info_of(result)->exit_code : 0,
        attempts = result ? uni_result_info_of(result)->attempts : 0;
    uni_result_free(result);
    uni_trainer_free(trainer);
    snprintf(command, sizeof command, "umount '%s'", place);
    CHECK(system(command) == 0);
    CHECK(status == UNI_EDISKFULL && exit_code == 74 && attempts == 1);
    CHECK_CONTAINS(err.message, "results.jsonl");
}

/* A member that was started again waits for nobody when the chief has returned. */
static void member_comes_too_late(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 1, .servers = 1, .max_failures = 3 });
    CHECK_OK(
        uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "leaves_early" }, &err),
        &err);
    CHECK(scenario_ms() - uni_value_as_float(uni_result_info_of(result)->returned[0], 0) <
          1000 * test_patience());
    CHECK(uni_result_info_of(result)->attempts == 1);
    uni_result_free(result);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* What the persist thread gives back is for the process that handed it in, not for its successor:
 * that one would wait for ever for room that it has. */
static void member_saves_again(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 1, .servers = 1, .max_failures = 3 });
    CHECK_OK(
        uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "member_saves" }, &err),
        &err);
    CHECK(uni_result_info_of(result)->attempts == 1);
    CHECK(uni_result_info_of(result)->iterations[1] == 3);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* A restart does not count as a report: the iteration of the checkpoint is not that of a rank that
 * never reports. */
static void iterations_after_a_restart(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = scenario_config("die_at", 2.0, NULL);
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "chief_reports", .config = config },
                             &err),
             &err);
    CHECK(uni_result_info_of(result)->attempts == 2);
    CHECK(uni_result_info_of(result)->iterations[0] == 4 &&
          uni_result_info_of(result)->iterations[1] == 0);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

const scenario scenarios[] = { { "killed_worker", killed_worker },
                               { "crashed_worker", crashed_worker },
                               { "exited_worker", exited_worker },
                               { "exit_zero_is_a_failure", exit_zero_is_a_failure },
                               { "error_is_retried", error_is_retried },
                               { "error_is_not_retried_in_v1", error_is_not_retried_in_v1 },
                               { "budget_ends", budget_ends },
                               { "lost_progress_is_said", lost_progress_is_said },
                               { "frozen_worker", frozen_worker },
                               { "preempted_worker", preempted_worker },
                               { "stopped_by_the_caller", stopped_by_the_caller },
                               { "early_stop_succeeds", early_stop_succeeds },
                               { "time_limit", time_limit },
                               { "no_progress", no_progress },
                               { "never_connects", never_connects },
                               { "silent_worker", silent_worker },
                               { "full_disk", full_disk },
                               { "member_comes_too_late", member_comes_too_late },
                               { "member_saves_again", member_saves_again },
                               { "iterations_after_a_restart", iterations_after_a_restart },
                               { NULL, NULL } };
