/* blame.c - which rank a failure is put down to, and which ranks are left alone: those that have
 * finished, that start slowly, that have recovered, or that only noticed another's death. */
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "scenario.h"

/* ---- in the workers ---- */

/* The path of a file of this run that ranks tell each other things by. */
static const char *note_path(uni_session *session, const char *name)
{
    static char path[4300];
    snprintf(path, sizeof path, "%s/%s", uni_session_info_of(session)->run_dir, name);
    return path;
}

static void leave_note(uni_session *session, const char *name, int number)
{
    char temporary[4400];
    snprintf(temporary, sizeof temporary, "%s.new", note_path(session, name));
    FILE *file = fopen(temporary, "w");
    CHECK(file && fprintf(file, "%d\n", number) > 0 && fclose(file) == 0);
    CHECK(rename(temporary, note_path(session, name)) == 0);
}

static int wait_for_note(uni_session *session, const char *name)
{
    int number = 0;
    for (int i = 0; i < 4000; i++, scenario_sleep_ms(5)) {
        FILE *file = fopen(note_path(session, name), "r");
        bool read = file && fscanf(file, "%d", &number) == 1;
        if (file)
            fclose(file);
        if (read)
            return number;
    }
    CHECK(!"the other rank left its note in time");
    return 0;
}

/* The heartbeat thread of this process, which is its second. */
static int heart_of(int pid)
{
    char path[64];
    int heart = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    CHECK(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (atoi(entry->d_name) != pid && atoi(entry->d_name) > 0)
            heart = atoi(entry->d_name);
    closedir(tasks);
    return heart;
}

/* Holds this process's heart until the run's journal says that it is silent, by a child that traces
 * that one thread; false where tracing is not allowed. */
static bool hold_heart(uni_session *session)
{
    int me = getpid(), status;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int heart = heart_of(me);
        bool seized = ptrace(PTRACE_SEIZE, heart, NULL, NULL) == 0 &&
                      ptrace(PTRACE_INTERRUPT, heart, NULL, NULL) == 0 &&
                      waitpid(heart, &status, __WALL) == heart;
        for (int i = 0; seized && i < 400; i++, scenario_sleep_ms(50))
            if (scenario_journal_says(uni_session_info_of(session)->run_dir, "has been silent"))
                break;
        _exit(seized && ptrace(PTRACE_DETACH, heart, NULL, NULL) == 0 ? 0 : 77);
    }
    prctl(PR_SET_PTRACER, child);
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Rank 1 is silent for a while and comes back; then rank 0 has an error of its own. */
static int recovers(uni_session *session, uni_value **result, uni_error *err)
{
    if (uni_session_info_of(session)->world_rank == 0) {
        if (wait_for_note(session, "recovered") == 77)
            return uni_error_set(err, UNI_EUNSUPPORTED, "no tracing");
        return uni_error_set(err, UNI_EINVAL, "the loss exploded");
    }
    bool held = hold_heart(session);
    for (int i = 0; held && i < 2000; i++, scenario_sleep_ms(5))
        if (scenario_journal_says(uni_session_info_of(session)->run_dir, "is heard again"))
            break;
    leave_note(session, "recovered", held ? 1 : 77);
    return 0;
}

/* Rank 1 is killed while the agent, which would tell of it, is stopped; rank 0 notices by itself
 * and gives up. */
static int notices_death(uni_session *session, uni_value **result, uni_error *err)
{
    int agent = getppid();
    if (uni_session_info_of(session)->attempt > 1)
        return 0;
    if (uni_session_info_of(session)->world_rank == 1) {
        leave_note(session, "victim", getpid());
        for (;;)
            pause();
    }
    int victim = wait_for_note(session, "victim");
    kill(agent, SIGSTOP);
    if (fork() == 0) { /* it goes on after the error was said */
        scenario_sleep_ms(300);
        kill(agent, SIGCONT);
        _exit(0);
    }
    kill(victim, SIGKILL);
    scenario_sleep_ms(50);
    return uni_error_set(err, UNI_EPEER, "rank 1 does not answer");
}

/* Both ranks report, rank 0 with a checkpoint, and fail at once; rank 1 takes longer to get
 * there. */
static int both_fail(uni_session *session, uni_value **result, uni_error *err)
{
    uni_value *metrics = scenario_config("loss", 0.5, NULL),
              *state = scenario_config("epoch", 7.0, NULL);
    bool first = uni_session_info_of(session)->world_rank == 0;
    if (!first)
        scenario_sleep_ms(
            (int)uni_dict_get_int(uni_session_info_of(session)->config, "late_ms", 100));
    int status = uni_session_report(session, metrics,
                                    &(uni_checkpoint_source){ .dict = first ? state : NULL }, err);
    uni_value_free(metrics);
    uni_value_free(state);
    UNI_TRY(status);
    return uni_error_set(err, UNI_EINVAL, "the loss exploded");
}

/* Resumes from memory while rank 0 already saves the next one; returns what it resumed from. */
static int resumes(uni_session *session, uni_value **result, uni_error *err)
{
    uni_value *state = NULL;
    bool first = uni_session_info_of(session)->world_rank == 0;
    int attempt = uni_session_info_of(session)->attempt;
    if (attempt > 1 && !first) {
        (void)wait_for_note(session, "saved again");
        scenario_sleep_ms(300); /* and complete by now: the policy does not keep ours any more */
    }
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    int64_t from = uni_dict_get_int(state, "epoch", -1);
    uni_value_free(state);
    size_t size = 3u << 20; /* 12 MB of floats */
    for (int64_t epoch = from + 1; epoch < from + 4; epoch++) {
        uni_array *weights = NULL;
        UNI_TRY(uni_array_new(&weights, UNI_F32, 1, (const int64_t[]){ (int64_t)size }, err));
        memset(uni_array_data(weights), (int)epoch, size * sizeof(float));
        uni_value *dict = scenario_config("epoch", (double)epoch, NULL);
        CHECK(uni_dict_take(dict, "weights", uni_value_array(weights)) == 0);
        uni_array_unref(weights);
        int status = uni_session_save_checkpoint(session, dict, err);
        uni_value_free(dict);
        UNI_TRY(status);
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "epoch" },
                                           (const double[]){ (double)epoch }, err));
    }
    if (attempt > 1 && first)
        leave_note(session, "saved again", 1);
    if (attempt == 1 && !first) {
        scenario_sleep_ms(200); /* rank 0's last one is in memory by then, or the one before */
        raise(SIGKILL);
    }
    if (attempt == 1)
        for (;;)
            pause();
    *result = uni_value_int(from);
    return 0;
}

/* A rank that saves or reports gets that very checkpoint back at once, and so do the others. */
static int loads_back(uni_session *session, uni_value **result, uni_error *err)
{
    bool first = uni_session_info_of(session)->world_rank == 0;
    char name[32];
    for (int i = 1; i <= 20; i++) {
        uni_value *dict = scenario_config("epoch", (double)i, NULL), *back = NULL;
        UNI_TRY(uni_session_save_checkpoint(session, dict, err));
        snprintf(name, sizeof name, "saved %d", i);
        if (first)
            leave_note(session, name, i);
        else
            CHECK(wait_for_note(session, name) == i);
        UNI_TRY(uni_session_load_checkpoint(&back, session, err));
        CHECK(uni_dict_get_int(back, "epoch", -1) == i);
        uni_value_free(back);
        snprintf(name, sizeof name, "loaded %d", i);
        if (first)
            (void)wait_for_note(session, name);
        else
            leave_note(session, name, i);
        uni_value_free(dict);
    }
    for (int i = 21; i <= 40; i++) {
        uni_value *dict = scenario_config("epoch", (double)i, NULL), *back = NULL;
        uni_checkpoint *checkpoint = NULL;
        UNI_TRY(uni_session_report(session, NULL,
                                   &(uni_checkpoint_source){ .dict = first ? dict : NULL }, err));
        snprintf(name, sizeof name, "reported %d", i);
        if (first)
            leave_note(session, name, i);
        else
            CHECK(wait_for_note(session, name) == i);
        UNI_TRY(uni_session_get_checkpoint(&checkpoint, session, err));
        CHECK(checkpoint);
        UNI_TRY(uni_checkpoint_read_dict(&back, checkpoint, err));
        CHECK(uni_dict_get_int(back, "epoch", -1) == i);
        uni_checkpoint_close(checkpoint);
        uni_value_free(back);
        uni_value_free(dict);
    }
    return 0;
}

/* Only rank 0 saves, and it is late: the others mean the checkpoint of their own iteration. The
 * ranks that never report are not waited for, and rank 0 waits for none. */
static int loads_ahead(uni_session *session, uni_value **result, uni_error *err)
{
    int rank = uni_session_info_of(session)->world_rank;
    for (int i = 1; i <= 10 && rank < 2; i++) {
        uni_value *dict = scenario_config("epoch", (double)i, NULL), *back = NULL;
        if (rank == 0)
            scenario_sleep_ms(20);
        UNI_TRY(uni_session_report(
            session, NULL, &(uni_checkpoint_source){ .dict = rank == 0 ? dict : NULL }, err));
        if (rank == 1) {
            UNI_TRY(uni_session_load_checkpoint(&back, session, err));
            CHECK(uni_dict_get_int(back, "epoch", -1) >= i);
        }
        uni_value_free(back);
        uni_value_free(dict);
    }
    return 0;
}

/* Synchronous: what report() has returned is on the disk. */
static int complete_at_once(uni_session *session, uni_value **result, uni_error *err)
{
    for (int i = 1; i <= 5; i++) {
        uni_value *dict = scenario_config("epoch", (double)i, NULL);
        char path[4300];
        bool first = uni_session_info_of(session)->world_rank == 0;
        UNI_TRY(uni_session_report(session, NULL,
                                   &(uni_checkpoint_source){ .dict = first ? dict : NULL }, err));
        snprintf(path, sizeof path, "%s/checkpoints/checkpoint_%06d/.unisono-manifest.json",
                 uni_session_info_of(session)->run_dir, i);
        CHECK(!first || access(path, F_OK) == 0);
        uni_value_free(dict);
    }
    return 0;
}

static int returns_early(uni_session *session, uni_value **result, uni_error *err)
{
    UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "i" },
                                       (const double[]){ 1 }, err));
    while (uni_session_info_of(session)->world_rank == 0)
        pause();
    return 0;
}

const uni_function functions[] = { { "recovers", recovers },
                                   { "notices_death", notices_death },
                                   { "both_fail", both_fail },
                                   { "resumes", resumes },
                                   { "loads_back", loads_back },
                                   { "loads_ahead", loads_ahead },
                                   { "complete_at_once", complete_at_once },
                                   { "returns_early", returns_early },
                                   { NULL, NULL } };

/* ---- what becomes of it ---- */

/* A program that closes its session and takes its time to end: worker and scenario are this
 * program. */
static void finished_worker_may_linger(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .silent_timeout = 1.5 });
    char self[4096] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const char *const words[] = { self, "finished_worker_may_linger", NULL };
    setenv("SCENARIO_LINGER", "1", 1);
    CHECK_OK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .program = words }, &err), &err);
    CHECK(uni_result_info_of(result)->attempts == 1);
    CHECK(!scenario_journal_says(uni_result_info_of(result)->run_dir, "silent"));
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void linger(uni_program *program)
{
    uni_session *session = NULL;
    uni_error err = { 0 };
    CHECK_OK(uni_session_open(&session, &err), &err);
    CHECK(uni_session_info_of(session)->is_worker);
    CHECK_OK(uni_session_report_numbers(session, 1, (const char *const[]){ "i" },
                                        (const double[]){ 1 }, &err),
             &err);
    uni_session_close(session);
    scenario_sleep_ms(3500);
}

static void linger_or_watch(uni_program *program)
{
    if (getenv("SCENARIO_LINGER"))
        linger(program);
    else
        finished_worker_may_linger(program);
}

/* Claims its session as a process on a crowded machine does: the first heartbeat is late. What it
 * maps is the page of src/group/page.h: magic, version, owner. */
static void claim_slowly(void)
{
    int page = -1;
    const char *session = getenv("UNISONO_SESSION");
    CHECK(session && sscanf(session, "1:p:%*d:%*d:%d:", &page) == 1);
    uint32_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    CHECK(words != MAP_FAILED);
    words[2] = (uint32_t)getpid();
    scenario_sleep_ms(4000);
}

static void slow_start_is_not_silence(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    char self[4096] = "";
    if (getenv("SCENARIO_CLAIM")) {
        claim_slowly();
        return;
    }
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const char *const words[] = { self, "slow_start_is_not_silence", NULL };
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .silent_timeout = 1.5 });
    setenv("SCENARIO_CLAIM", "1", 1);
    CHECK_OK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .program = words }, &err), &err);
    CHECK(uni_result_info_of(result)->attempts == 1);
    CHECK(!scenario_journal_says(uni_result_info_of(result)->run_dir, "silent"));
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void recovered_rank_is_not_blamed(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *description = NULL;
    uni_trainer *trainer = scenario_trainer(
        program,
        (uni_trainer_options){ .num_workers = 2, .silent_timeout = 60, .no_retry_errors = true });
    CHECK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "recovers" }, &err) ==
          UNI_EFUNCTION);
    if (strstr(err.message, "no tracing"))
        scenario_end(77);
    CHECK(scenario_journal_says(uni_result_info_of(result)->run_dir, "has been silent"));
    CHECK(scenario_journal_says(uni_result_info_of(result)->run_dir, "is heard again"));
    const uni_value *cause = scenario_cause(&description, uni_result_info_of(result)->run_dir);
    CHECK(uni_dict_get_int(cause, "rank", -1) == 0);
    CHECK(strcmp(uni_dict_get_string(cause, "class", ""), "error") == 0);
    CHECK_CONTAINS(err.message, "the loss exploded");
    CHECK(uni_result_info_of(result)->attempts == 1);
    uni_value_free(description);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void death_comes_before_its_noticing(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *description = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .no_retry_errors = true });
    CHECK_OK(
        uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "notices_death" }, &err),
        &err);
    CHECK(uni_result_info_of(result)->attempts == 2);
    const uni_value *cause = scenario_cause(&description, uni_result_info_of(result)->run_dir);
    CHECK(uni_dict_get_int(cause, "rank", -1) == 1);
    CHECK(strcmp(uni_dict_get_string(cause, "class", ""), "signal") == 0);
    uni_value_free(description);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void accepted_checkpoint_is_completed(uni_program *program)
{
    for (int i = 0; i < 5; i++) {
        uni_error err = { 0 };
        uni_result *result = NULL;
        uni_checkpoint *checkpoint = NULL;
        uni_value *config = scenario_config("late_ms", i * 50.0, NULL), *state = NULL;
        uni_trainer *trainer = scenario_trainer(
            program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
        CHECK(uni_trainer_fit(&result, trainer,
                              &(uni_run_options){ .function = "both_fail", .config = config },
                              &err) == UNI_EFUNCTION);
        /* Without a delay either rank may be first. */
        CHECK_CONTAINS(err.message, i > 0 ? "rank 0" : "rank ");
        CHECK_CONTAINS(err.message, "the loss exploded");
        CHECK(uni_result_info_of(result)->latest_checkpoint);
        CHECK_OK(
            uni_checkpoint_open(&checkpoint, uni_result_info_of(result)->latest_checkpoint, &err),
            &err);
        CHECK_OK(uni_checkpoint_read_dict(&state, checkpoint, &err), &err);
        CHECK(uni_dict_get_int(state, "epoch", -1) == 7);
        uni_value_free(state);
        uni_checkpoint_close(checkpoint);
        uni_value_free(config);
        uni_result_free(result);
        uni_trainer_free(trainer);
    }
}

/* Rank 1 loads when rank 0 has saved more already: what both begin from is kept for it. */
static void same_start(uni_program *program, int num_to_keep)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){
                                 .function = "resumes",
                                 .policy = &(uni_checkpoint_policy){ .num_to_keep = num_to_keep } },
                             &err),
             &err);
    int64_t first = uni_value_as_int(uni_result_info_of(result)->returned[0], -2),
            second = uni_value_as_int(uni_result_info_of(result)->returned[1], -2);
    fprintf(stderr, "rank 0 resumed from %d, rank 1 from %d\n", (int)first, (int)second);
    CHECK(first == second && first >= 0);
    CHECK(!scenario_journal_says(uni_result_info_of(result)->run_dir, "are lost"));
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void same_memory_for_all(uni_program *program)
{
    same_start(program, UNI_KEEP_NONE);
}

static void same_checkpoint_for_all(uni_program *program)
{
    same_start(program, 1);
}

static void fit_once(uni_program *program, const uni_run_options *run)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
    CHECK_OK(uni_trainer_fit(&result, trainer, run, &err), &err);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void saved_is_loaded_at_once(uni_program *program)
{
    fit_once(program, &(uni_run_options){ .function = "loads_back" });
    fit_once(program, &(uni_run_options){ .function = "loads_ahead" });
}

static void synchronous_checkpoints(uni_program *program)
{
    fit_once(program,
             &(uni_run_options){ .function = "complete_at_once", .synchronous_checkpoints = true });
}

/* Before the warning is due: the error itself names the two ranks. */
static void short_timeout_names_the_ended(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "returns_early", .progress_timeout = 1 },
                          &err) == UNI_ETIMEOUT);
    CHECK(strstr(err.message, "rank 1 has returned after iteration 1, and rank 0 ("));
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void early_return_is_said(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "returns_early", .progress_timeout = 12 },
                          &err) == UNI_ETIMEOUT);
    /* The warning, not the cause. */
    CHECK(scenario_journal_says(uni_result_info_of(result)->run_dir,
                                "(--progress-timeout) ends such a run"));
    uni_result_free(result);
    uni_trainer_free(trainer);
}

const scenario scenarios[] = {
    { "finished_worker_may_linger", linger_or_watch },
    { "slow_start_is_not_silence", slow_start_is_not_silence },
    { "recovered_rank_is_not_blamed", recovered_rank_is_not_blamed },
    { "death_comes_before_its_noticing", death_comes_before_its_noticing },
    { "accepted_checkpoint_is_completed", accepted_checkpoint_is_completed },
    { "same_memory_for_all", same_memory_for_all },
    { "same_checkpoint_for_all", same_checkpoint_for_all },
    { "saved_is_loaded_at_once", saved_is_loaded_at_once },
    { "synchronous_checkpoints", synchronous_checkpoints },
    { "early_return_is_said", early_return_is_said },
    { "short_timeout_names_the_ended", short_timeout_names_the_ended },
    { NULL, NULL }
};
