/*
 * soak.c - kills by the hundred, at random moments, of worker, agent, controller: training always
 * goes on from a complete checkpoint, every report that was accepted is in results.jsonl, nothing
 * is left. UNISONO_SOAK sets the number of kills (default 20: `./test`; --soak: 200).
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "scenario.h"

/* Counts epochs up to the asked-for number; a checkpoint each; the log says where it began. */
static int count_up(uni_session *session, uni_value **result, uni_error *err)
{
    uni_value *state = NULL;
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    int64_t epoch = uni_dict_get_int(state, "epoch", 0),
            last = uni_dict_get_int(uni_session_info_of(session)->config, "epochs", 100);
    uni_value_free(state);
    while (epoch < last && !uni_session_should_stop(session)) {
        uni_value *metrics = scenario_config("epoch", (double)++epoch, NULL),
                  *next = scenario_config("epoch", (double)epoch, NULL);
        bool save = uni_session_info_of(session)->world_rank == 0;
        int status = uni_session_report(
            session, metrics, &(uni_checkpoint_source){ .dict = save ? next : NULL }, err);
        uni_value_free(metrics);
        uni_value_free(next);
        UNI_TRY(status);
        usleep(1000);
    }
    *result = uni_value_int(epoch);
    return 0;
}

const uni_function functions[] = { { "count_up", count_up }, { NULL, NULL } };

static int kills_asked(void)
{
    const char *text = getenv("UNISONO_SOAK");
    return text && atoi(text) > 0 ? atoi(text) : 20;
}

typedef struct killer {
    uni_trainer *trainer;
    int kills, generation;
    _Atomic int attempt, saved; /* the newest attempt, and the checkpoints that it has completed */
    volatile bool over;
} killer;

static void on_event(void *context, const uni_event *event)
{
    killer *self = context;
    if (event->kind == UNI_EVENT_CHECKPOINT && event->attempt != self->attempt) {
        self->saved = 0;
        self->attempt = event->attempt;
    }
    self->saved += event->kind == UNI_EVENT_CHECKPOINT;
}

static void *kill_at_random(void *argument)
{
    killer *self = argument;
    unsigned seed = (unsigned)getpid();
    for (int i = 0, killed = 0; i < self->kills && !self->over; i++) {
        /* Only after some progress: the same failure twice without any would rightly end the
         * run. */
        for (int tries = 0;
             tries < 5000 && !self->over && (self->attempt <= killed || self->saved < 3); tries++)
            scenario_sleep_ms(1);
        killed = self->attempt;
        scenario_sleep_ms((int)(rand_r(&seed) % 40));
        int pid = scenario_worker_pid(uni_trainer_latest_run_dir(self->trainer),
                                      (int)(rand_r(&seed) % 3));
        for (int up = 0; up < self->generation && pid > 1; up++)
            pid = scenario_parent(pid);
        if (pid > 1 && pid != getpid())
            kill(pid, SIGKILL);
    }
    uni_trainer_stop(self->trainer, false);
    return NULL;
}

typedef struct history {
    int rows; /* iterations in results.jsonl that rank 0 reported */
} history;

static int check_history(void *context, const uni_reports *reports, uni_error *err)
{
    history *so_far = context;
    /* Readers keep the last attempt of each iteration; what rank 0 reported there is an epoch. */
    if (reports->by_rank[0])
        so_far->rows += uni_dict_get_int(reports->by_rank[0], "epoch", -1) > 0;
    return 0;
}

static void killed_again_and_again(uni_program *program, int generation)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_run *run = NULL;
    pthread_t thread;
    history so_far = { 0 };
    uni_log_level_set(UNI_LOG_ERROR);
    uni_value *config = scenario_config("epochs", 1e9, NULL);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 3, .max_failures = UNI_UNLIMITED });
    killer self = { .trainer = trainer, .kills = kills_asked(), .generation = generation };
    uni_checkpoint_policy policy = { .num_to_keep = 3 };
    uni_sink *sink = NULL;
    CHECK_OK(uni_sink_from_functions(
                 &sink, &(uni_sink_functions){ .on_event = on_event, .context = &self }, &err),
             &err);
    pthread_create(&thread, NULL, kill_at_random, &self);
    int status = uni_trainer_fit(&result, trainer,
                                 &(uni_run_options){ .function = "count_up",
                                                     .config = config,
                                                     .policy = &policy,
                                                     .sinks = &sink,
                                                     .num_sinks = 1 },
                                 &err);
    self.over = true;
    pthread_join(thread, NULL);
    if (status != UNI_EPREEMPTED)
        fprintf(stderr, "ended with %s: %s\n", uni_status_name(status), err.message);
    CHECK(status == UNI_EPREEMPTED);
    CHECK(uni_result_info_of(result)->attempts > self.kills / 2);
    /* The newest checkpoint is whole and is of the last epochs. */
    uni_checkpoint *latest = NULL;
    uni_value *state = NULL;
    CHECK_OK(uni_checkpoint_open_latest(&latest, uni_result_info_of(result)->run_dir, &err), &err);
    CHECK_OK(uni_checkpoint_verify(latest, &err), &err);
    CHECK_OK(uni_checkpoint_read_dict(&state, latest, &err), &err);
    int64_t epoch = uni_dict_get_int(state, "epoch", -1);
    CHECK(epoch > 0);
    /* When the stop came between two attempts nobody returned anything. */
    if (uni_result_info_of(result)->returned[0]) {
        CHECK(epoch <= uni_value_as_int(uni_result_info_of(result)->returned[0], -1));
        CHECK(epoch + 5 >= uni_value_as_int(uni_result_info_of(result)->returned[0], -1));
    }
    CHECK_OK(uni_run_open(&run, uni_result_info_of(result)->run_dir, NULL, &err), &err);
    CHECK_OK(uni_run_reports(run, check_history, &so_far, &err), &err);
    CHECK(so_far.rows >= uni_result_info_of(result)->iterations[0]);
    uni_run_close(run);
    uni_sink_free(sink);
    uni_value_free(state);
    uni_checkpoint_close(latest);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void workers_killed(uni_program *program)
{
    killed_again_and_again(program, 0);
}

static void agents_killed(uni_program *program)
{
    killed_again_and_again(program, 1);
}

/* The controller is killed and the run resumed until it reaches its end. */
static void controllers_killed(uni_program *program)
{
    char run_dir[4096];
    unsigned seed = (unsigned)getpid();
    int kills = kills_asked();
    int64_t reached = 0;
    snprintf(run_dir, sizeof run_dir, "%s/soak/run_001", scenario_storage());
    uni_log_level_set(UNI_LOG_ERROR);
    for (int i = 0;; i++) {
        const char *storage = scenario_storage();
        bool last = i >= kills;
        pid_t controller = fork();
        if (controller == 0) {
            uni_error err = { 0 };
            uni_trainer *trainer = scenario_trainer(
                program,
                (uni_trainer_options){ .num_workers = 2, .name = "soak", .storage_path = storage });
            uni_value *config =
                scenario_config("epochs", last ? (double)(reached + 20) : 1e9, NULL);
            uni_checkpoint_policy policy = { .num_to_keep = 2 };
            int status = uni_trainer_fit(NULL, trainer,
                                         &(uni_run_options){ .function = "count_up",
                                                             .config = config,
                                                             .policy = &policy,
                                                             .resume_run = i ? run_dir : NULL },
                                         &err);
            if (status < 0)
                fprintf(stderr, "%s\n", err.message);
            _exit(status < 0 ? 1 : 0);
        }
        if (!last) {
            CHECK(i > 0 || scenario_worker_pid(run_dir, 0) > 0);
            scenario_sleep_ms((int)(rand_r(&seed) % 120) + (i ? 10 : 100));
            kill(controller, SIGKILL);
        }
        int status;
        CHECK(waitpid(controller, &status, 0) == controller);
        CHECK(scenario_nothing_left(run_dir));
        CHECK(!last || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        /* Whatever was complete before stays: the epoch never goes back. */
        uni_checkpoint *latest = NULL;
        uni_value *state = NULL;
        uni_error err = { 0 };
        if (uni_checkpoint_open_latest(&latest, run_dir, &err) == 0) {
            CHECK_OK(uni_checkpoint_read_dict(&state, latest, &err), &err);
            CHECK(uni_dict_get_int(state, "epoch", -1) >= reached);
            reached = uni_dict_get_int(state, "epoch", -1);
            uni_checkpoint_close(latest);
            uni_value_free(state);
        } else {
            CHECK(reached == 0);
        }
        if (last)
            break;
    }
    CHECK(reached >= 20);
}

const scenario scenarios[] = { { "workers_killed", workers_killed },
                               { "agents_killed", agents_killed },
                               { "controllers_killed", controllers_killed },
                               { NULL, NULL } };
