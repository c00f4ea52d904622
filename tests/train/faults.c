/* faults.c - everything that dies, stops, hangs or is told to end: the first cause is named, the group comes back, nothing is left. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "scenario.h"

#include "../patience.h"

/* ---- train functions ---- */

/* Epochs with a dictionary checkpoint each; at one of them, in one attempt, something bad happens on one rank. */
static int epochs_with_trouble(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_config(session);
    uni_value *state = NULL;
    if (!uni_dict_get(config, "never_load"))
        UNI_TRY(uni_session_load_checkpoint(session, &state, err));
    int64_t first = uni_dict_get_int(state, "epoch", -1) + 1,
            epochs = uni_dict_get_int(config, "epochs", 6);
    uni_value_free(state);
    for (int64_t epoch = first; epoch < epochs; epoch++) {
        bool mine = uni_session_world_rank(session) == uni_dict_get_int(config, "rank", 1) &&
                    epoch == uni_dict_get_int(config, "at", 3) &&
                    uni_session_attempt(session) <= uni_dict_get_int(config, "attempts", 1);
        if (mine) {
            /* Everything before is complete: the restart goes on exactly here. */
            if (epoch > 0 && !uni_dict_get(config, "no_checkpoint") &&
                !scenario_wait_checkpoint(uni_session_run_dir(session), epoch))
                return uni_error_set(err, UNI_ETIMEOUT, "no checkpoint of epoch %d",
                                     (int)epoch - 1);
            scenario_sleep_ms((int)uni_dict_get_int(config, "settle_ms", 50));
            printf("trouble at epoch %d\n", (int)epoch);
            fflush(stdout);
            if (uni_dict_get(config, "signal"))
                raise((int)uni_dict_get_int(config, "signal", SIGKILL));
            if (uni_dict_get(config, "exit"))
                _exit((int)uni_dict_get_int(config, "exit", 0));
            if (uni_dict_get(config, "error"))
                return uni_error_set(err, UNI_EINVAL, "the loss exploded at epoch %d", (int)epoch);
        }
        uni_value *metrics = scenario_config("epoch", (double)epoch, "loss", 0.5, NULL);
        uni_value *next = scenario_config("epoch", (double)epoch, NULL);
        bool save = uni_session_world_rank(session) == 0 && !uni_dict_get(config, "no_checkpoint");
        int status = uni_session_report(
            session, metrics, &(uni_checkpoint_source){ .dict = save ? next : NULL }, err);
        uni_value_free(metrics);
        uni_value_free(next);
        UNI_TRY(status);
    }
    *result = uni_value_int(first);
    return 0;
}

/* Reports for ever, at a pace of its own, until told to stop; returns the iteration at which it stopped. */
static int until_stopped(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_config(session);
    int64_t iteration = 0, ask_at = uni_dict_get_int(config, "ask_at", -1);
    uni_value *state = NULL;
    UNI_TRY(uni_session_load_checkpoint(session, &state, err));
    int64_t first = uni_dict_get_int(state, "iteration", 0);
    uni_value_free(state);
    while (!uni_session_should_stop(session)) {
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "i" },
                                           (const double[]){ (double)++iteration }, err));
        if (iteration == ask_at && uni_session_world_rank(session) == 1)
            uni_session_request_stop(session);
        usleep((useconds_t)(200 * (1 + uni_session_world_rank(session))));
    }
    /* The last checkpoint, just in time. */
    uni_value *last = scenario_config("iteration", (double)(first + iteration), NULL);
    int status = uni_session_save_checkpoint(session, last, err);
    uni_value_free(last);
    UNI_TRY(status);
    *result = uni_value_int(iteration);
    return 0;
}

static int deaf(uni_session *session, uni_value **result, uni_error *err)
{
    for (;;) {
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "i" },
                                           (const double[]){ 1 }, err));
        usleep(1000);
    }
}

/* Children that leave the session and the process group and ignore SIGTERM. */
static int with_children(uni_session *session, uni_value **result, uni_error *err)
{
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            setsid();
            signal(SIGTERM, SIG_IGN);
            signal(SIGHUP, SIG_IGN);
            if (i == 1 && fork() > 0)
                _exit(0);
            for (;;)
                pause();
        }
    signal(SIGTERM, SIG_IGN);
    UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "up" },
                                       (const double[]){ 1 }, err));
    for (;;)
        pause();
}

static int flood(uni_session *session, uni_value **result, uni_error *err)
{
    for (int i = 0; i < 2000000; i++)
        UNI_TRY(uni_session_report_numbers(session, 2, (const char *const[]){ "i", "loss" },
                                           (const double[]){ i, 0.123456789 / (i + 1) }, err));
    return 0;
}

const uni_function functions[] = { { "trouble", epochs_with_trouble },
                                   { "until_stopped", until_stopped },
                                   { "deaf", deaf },
                                   { "with_children", with_children },
                                   { "flood", flood },
                                   { NULL, NULL } };

/* ---- deaths ---- */

static const uni_value *cause_of(uni_value **description, const char *run_dir)
{
    uni_value_free(*description);
    *description = scenario_description(run_dir);
    return uni_dict_get(*description, "cause");
}

/* One death, one restart, from the epoch where it happened. */
static void one_restart(uni_program *program, const char *key, double number,
                        const char *class_name, const char *words)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = scenario_config(key, number, NULL), *description = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 3 });
    CHECK_OK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "trouble", .config = config },
                             &result, &err),
             &err);
    CHECK(uni_result_attempts(result) == 2);
    for (int rank = 0; rank < 3; rank++)
        CHECK(uni_value_as_int(uni_result_returned(result, rank), -1) == 3);
    const uni_value *cause = cause_of(&description, uni_result_run_dir(result));
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
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "trouble", .config = config },
                          &result, &err) == UNI_EFUNCTION);
    CHECK(uni_result_attempts(result) == 1 && uni_result_exit_code(result) == 1);
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
    uni_value *config =
        scenario_config("signal", (double)SIGKILL, "attempts", 100.0, "settle_ms", 10.0, NULL);
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .max_failures = 2 });
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "trouble", .config = config },
                          &result, &err) == UNI_EWORKER);
    CHECK(uni_result_attempts(result) == 3 && uni_result_exit_code(result) == 128 + SIGKILL);
    CHECK_CONTAINS(err.message, "restarted 2 times");
    uni_result_free(result);
    uni_trainer_free(trainer);
    /* Without an end to the budget the same failure without progress ends it. */
    trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_UNLIMITED });
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "trouble", .config = config },
                          &result, &err) == UNI_EWORKER);
    CHECK(uni_result_attempts(result) <= 4);
    CHECK_CONTAINS(err.message, "twice without progress");
    uni_result_free(result);
    uni_trainer_free(trainer);
    trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "trouble", .config = config },
                          &result, &err) == UNI_EWORKER);
    CHECK(uni_result_attempts(result) == 1);
    uni_result_free(result);
    uni_value_free(config);
    uni_trainer_free(trainer);
}

static bool journal_says(const char *run_dir, const char *words)
{
    uni_run *run = NULL;
    uni_error err = { 0 };
    const uni_value *events;
    bool found = false;
    CHECK_OK(uni_run_open(&run, run_dir, NULL, &err), &err);
    CHECK_OK(uni_run_events(run, &events, &err), &err);
    for (size_t i = 0; i < uni_list_size(events); i++)
        found |= strstr(uni_dict_get_string(uni_list_get(events, i), "message", ""), words) != NULL;
    uni_run_close(run);
    return found;
}

static void lost_progress_is_said(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = scenario_config("signal", (double)SIGKILL, "no_checkpoint", 1.0, NULL);
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK_OK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "trouble", .config = config },
                             &result, &err),
             &err);
    CHECK(uni_value_as_int(uni_result_returned(result, 0), -1) == 0);
    CHECK(journal_says(uni_result_run_dir(result), "because no checkpoint was saved"));
    uni_value_free(config);
    uni_result_free(result);
    config = scenario_config("signal", (double)SIGKILL, "never_load", 1.0, "attempts", 2.0,
                             "settle_ms", 400.0, NULL);
    CHECK_OK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "trouble", .config = config },
                             &result, &err),
             &err);
    CHECK(journal_says(uni_result_run_dir(result), "without loading the checkpoint"));
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
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "deaf" }, &result, &err) ==
          UNI_EWORKER);
    double ended_ms = scenario_ms();
    pthread_join(self.thread, NULL);
    double seconds = (ended_ms - self.acted_ms) / 1e3;
    CHECK(seconds > 1.3 && seconds < 4 * test_patience());
    CHECK_CONTAINS(err.message, "rank 1");
    CHECK_CONTAINS(err.message, "stopped by a signal");
    CHECK(
        strcmp(uni_dict_get_string(cause_of(&description, uni_result_run_dir(result)), "class", ""),
               "stopped") == 0);
    CHECK(uni_result_exit_code(result) == 126);
    CHECK(journal_says(uni_result_run_dir(result), "rank 1"));
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
    CHECK(uni_trainer_fit(trainer,
                          &(uni_run_options){ .function = "until_stopped", .v1_checkpoints = true },
                          &result, &err) == UNI_EPREEMPTED);
    pthread_join(self.thread, NULL);
    int64_t at = uni_value_as_int(uni_result_returned(result, 0), -1);
    CHECK(at > 1);
    for (int rank = 1; rank < 3; rank++)
        CHECK(uni_value_as_int(uni_result_returned(result, rank), -2) == at);
    CHECK(uni_result_exit_code(result) == 75);
    CHECK(uni_dict_get_int(uni_result_latest_dict(result), "iteration", -1) == at);
    uni_value *description = scenario_description(uni_result_run_dir(result));
    CHECK(strcmp(uni_dict_get_string(description, "status", ""), "stopped") == 0);
    uni_value_free(description);
    /* And it goes on from there, in the same directory. */
    char *run_dir = strdup(uni_result_run_dir(result));
    uni_result_free(result);
    uni_value *config = scenario_config("ask_at", 5.0, NULL);
    CHECK_OK(uni_trainer_fit(trainer,
                             &(uni_run_options){ .function = "until_stopped",
                                                 .config = config,
                                                 .resume_run = run_dir,
                                                 .v1_checkpoints = true },
                             &result, &err),
             &err);
    CHECK(strcmp(uni_result_run_dir(result), run_dir) == 0 && uni_result_attempts(result) == 2);
    CHECK(uni_dict_get_int(uni_result_latest_dict(result), "iteration", -1) > at);
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
    CHECK_OK(uni_trainer_fit(trainer,
                             &(uni_run_options){ .function = "until_stopped", .config = config },
                             &result, &err),
             &err);
    int64_t at = uni_value_as_int(uni_result_returned(result, 0), -1);
    CHECK(at >= 20 && at == uni_value_as_int(uni_result_returned(result, 1), -1) &&
          at == uni_value_as_int(uni_result_returned(result, 2), -1));
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
    CHECK(uni_trainer_fit(trainer,
                          &(uni_run_options){ .function = "until_stopped", .time_limit = 0.5 },
                          &result, &err) == UNI_ETIMEOUT);
    CHECK(scenario_ms() - begun < 2000 * test_patience() && uni_result_exit_code(result) == 124);
    CHECK(uni_value_as_int(uni_result_returned(result, 0), -1) ==
          uni_value_as_int(uni_result_returned(result, 1), -2));
    uni_result_free(result);
    /* Those that do not listen are killed when the grace time is over. */
    begun = scenario_ms();
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "deaf", .time_limit = 0.3 },
                          &result, &err) == UNI_ETIMEOUT);
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
    CHECK(uni_trainer_fit(
              trainer, &(uni_run_options){ .function = "with_children", .progress_timeout = 0.5 },
              &result, &err) == UNI_ETIMEOUT);
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
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "anything" }, &result, &err) ==
          UNI_EWORKER);
    CHECK_CONTAINS(err.message, "has not connected within 0.5 s");
    uni_result_free(result);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* ---- the agent and the controller ---- */

/* The agent is the parent of a worker, the keeper the agent's. */
static int parent_of(int pid)
{
    char path[64], line[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file && fgets(line, sizeof line, file))
        sscanf(strrchr(line, ')') + 1, " %*c %d", &parent);
    if (file)
        fclose(file);
    return parent;
}

static int generations; /* 1: the agent, 2: the keeper */

/* Stopped, not killed: the channel stays open, and nobody says that rank 0 has died meanwhile. */
static void *freeze_agent(void *argument)
{
    uni_trainer *trainer = argument;
    while (!uni_trainer_latest_run_dir(trainer))
        scenario_sleep_ms(5);
    int pid = scenario_worker_pid(uni_trainer_latest_run_dir(trainer), 0);
    scenario_sleep_ms(200);
    int agent = parent_of(pid), keeper = parent_of(agent);
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
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "with_children" }, NULL, &err) ==
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
        pid = parent_of(pid);
    CHECK(pid > 1);
    kill(pid, ancestor_signal);
    return NULL;
}

/* Nobody tells us of a worker's end while the agent is stopped: it is killed after a few seconds, though no worker gave cause to look. */
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
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "deaf" }, NULL, &err) ==
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
        CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "with_children" }, &result,
                              &err) == UNI_EWORKER);
        pthread_join(thread, NULL);
        CHECK_CONTAINS(err.message, "unisono-agent");
        CHECK(strcmp(uni_dict_get_string(cause_of(&description, uni_result_run_dir(result)),
                                         "class", ""),
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
        _exit(uni_trainer_fit(trainer, &(uni_run_options){ .function = function, .config = config },
                              NULL, &err) < 0
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
    CHECK(uni_run_status_of(run) == UNI_RUN_INTERRUPTED);
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
    int agent = parent_of(worker), keeper = parent_of(agent);
    CHECK(worker > 1 && agent > 1 && keeper > 1);
    const pid_t all[] = { controller, keeper, agent, worker };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kill(all[i], SIGKILL);
    waitpid(controller, NULL, 0);
    CHECK(scenario_nothing_left(run_dir));
    CHECK_OK(uni_run_open(&run, run_dir, NULL, &err), &err);
    CHECK(uni_run_status_of(run) == UNI_RUN_INTERRUPTED);
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
    CHECK(uni_trainer_fit(trainer, &again, &result, &err) == UNI_EBUSY && result == NULL);
    kill(controller, SIGKILL);
    waitpid(controller, NULL, 0);
    /* As if the kill had come in the middle of writing run.json. */
    char half[4200];
    snprintf(half, sizeof half, "%s/run.json.tmp-0123abcd", run_dir);
    CHECK(close(creat(half, 0600)) == 0);
    CHECK_OK(uni_trainer_fit(trainer, &again, &result, &err), &err);
    CHECK(access(half, F_OK) < 0);
    CHECK(uni_result_attempts(result) == 2 &&
          uni_value_as_int(uni_result_returned(result, 1), -1) == 3);
    CHECK(uni_trainer_fit(trainer, &again, NULL, &err) == UNI_ESTATE); /* it has ended well now */
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* A controller that takes signals, in a process of its own; its exit code is that of the command. */
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
            uni_trainer_fit(trainer, &(uni_run_options){ .function = function }, &result, &err);
        _exit(status < 0 && result ? uni_result_exit_code(result) : 0);
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
        for (int i = 0; i < 200 && !journal_says(run_dir, "no heartbeat"); i++)
            scenario_sleep_ms(100);
        file = fopen(path, "w");
        if (file) {
            fprintf(file, "THAWED"); /* so that the kill reaches it */
            fclose(file);
        }
        _exit(frozen ? 0 : 77);
    }
    int status = uni_trainer_fit(
            trainer, &(uni_run_options){ .function = "deaf", .time_limit = 60 }, &result, &err),
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
        strcmp(uni_dict_get_string(cause_of(&description, uni_result_run_dir(result)), "class", ""),
               "silent") == 0);
    CHECK(uni_result_exit_code(result) == 126);
    uni_value_free(description);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* ---- many at once, and no room ---- */

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
    int status = uni_trainer_fit(trainer, &(uni_run_options){ .function = "flood" }, &result, &err);
    int exit_code = result ? uni_result_exit_code(result) : 0,
        attempts = result ? uni_result_attempts(result) : 0;
    uni_result_free(result);
    uni_trainer_free(trainer);
    snprintf(command, sizeof command, "umount '%s'", place);
    CHECK(system(command) == 0);
    CHECK(status == UNI_EDISKFULL && exit_code == 74 && attempts == 1);
    CHECK_CONTAINS(err.message, "results.jsonl");
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
                               { "killed_agent", killed_agent },
                               { "frozen_agent", frozen_agent },
                               { "stopped_agent", stopped_agent },
                               { "killed_controller", killed_controller },
                               { "everything_killed", everything_killed },
                               { "resumed_after_controller_death", resumed_after_controller_death },
                               { "controller_signals", controller_signals },
                               { "silent_worker", silent_worker },
                               { "fifty_runs_at_once", fifty_runs_at_once },
                               { "full_disk", full_disk },
                               { NULL, NULL } };
