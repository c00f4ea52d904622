/*
 * kills.c - the tuner is killed, again and again, in a process of its own, and its successor goes on: the experiment ends as one that was left alone.
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tune_common.h"

static const char *const random_fifo =
    "{\"function\": \"square\", \"space\": {\"x\": {\"$uniform\": [-1, 1]}, \"g\": "
    "{\"$grid_search\": [1, 2]}, \"epochs\": 3}, \"num_samples\": 100, \"metric\": \"loss\", "
    "\"mode\": \"min\", \"seed\": 99, \"max_concurrent\": 2, \"name\": \"kills\"";
static const char *const tpe_asha =
    "{\"function\": \"square\", \"space\": {\"x\": {\"$uniform\": [-1, 1]}, \"epochs\": 9, "
    "\"save\": true}, \"num_samples\": 40, \"metric\": \"loss\", \"mode\": \"min\", \"seed\": 98, "
    "\"max_concurrent\": 1, \"searcher\": {\"type\": \"tpe\"}, \"scheduler\": {\"type\": "
    "\"asha\", \"max_t\": 9, \"reduction_factor\": 3}, \"name\": \"kills\"";
static const char *const pbt_together =
    "{\"function\": \"square\", \"space\": {\"x\": {\"$uniform\": [0, 2]}, \"epochs\": 12, "
    "\"save\": true, \"slow_ms\": 2}, \"num_samples\": 8, \"metric\": \"loss\", \"mode\": \"min\", "
    "\"seed\": 97, \"max_concurrent\": 2, \"scheduler\": {\"type\": \"pbt\", "
    "\"perturbation_interval\": 3, \"mutations\": {\"x\": {\"$uniform\": [0, 2]}}}, \"name\": "
    "\"kills\"";

static const char *const hyperband_alone =
    "{\"function\": \"square\", \"space\": {\"x\": {\"$uniform\": [-1, 1]}, \"epochs\": 9, "
    "\"save\": true}, \"num_samples\": 14, \"metric\": \"loss\", \"mode\": \"min\", \"seed\": 96, "
    "\"max_concurrent\": 1, \"scheduler\": {\"type\": \"hyperband\", \"max_t\": 9, "
    "\"reduction_factor\": 3}, \"name\": \"kills\"";

/* The tuner in a process of its own: new, or going on. Ends with 0 when the experiment is finished. */
static pid_t fork_tuner(uni_program *program, const char *spec, const char *place, bool resume)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    uni_error err = { 0 };
    uni_tuner *tuner = NULL;
    char text[2000];
    if (resume) {
        if (uni_tuner_open(&tuner, "kills",
                           &(uni_tuner_options){ .main = program, .storage_path = place }, 0,
                           &err) < 0) {
            /* Killed before the first line was written: begin. */
            if (err.code != UNI_EFORMAT && err.code != UNI_ENOTFOUND) {
                fprintf(stderr, "%s\n", err.message);
                _exit(3);
            }
        }
    }
    if (!tuner) {
        snprintf(text, sizeof text, "%s, \"storage_path\": \"%s\"}", spec, place);
        tuner = tune_tuner(program, text);
    }
    int status = uni_tuner_fit(tuner, &err);
    if (status < 0)
        fprintf(stderr, "%s\n", err.message);
    uni_tuner_free(tuner);
    _exit(status < 0 ? 2 : 0);
}

static int64_t waiting_at(const uni_tune_results *results, int64_t iterations)
{
    int64_t count = 0;
    for (int64_t i = 0; i < uni_tune_info_of(results)->num_trials; i++)
        count += uni_trial_info_of(results, i)->status == UNI_TRIAL_PAUSED &&
                 uni_trial_info_of(results, i)->iterations == iterations;
    return count;
}

/* A tuner that ends by SIGKILL as soon as two trials wait for the others of their bracket, after `iterations`: the best one, which goes on anyway, is the first. */
static pid_t fork_tuner_until_two_wait(uni_program *program, const char *spec, const char *place,
                                       int64_t iterations)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    uni_error err = { 0 };
    char text[2000];
    snprintf(text, sizeof text, "%s, \"storage_path\": \"%s\"}", spec, place);
    uni_tuner *tuner = tune_tuner(program, text);
    while (uni_tuner_step(tuner, 1.0, &err) > 0)
        if (waiting_at(uni_tuner_results(tuner), iterations) == 2)
            raise(SIGKILL);
    _exit(3); /* nobody waited */
}

static char *table_of(const char *place)
{
    uni_tune_results *results = NULL;
    uni_error err = { 0 };
    char *text = NULL;
    CHECK_OK(uni_tune_results_open(&results, "kills", place, &err), &err);
    CHECK(uni_tune_info_of(results)->is_finished);
    CHECK_OK(uni_tune_csv(&text, results, false, &err), &err);
    uni_tune_results_free(results);
    return text;
}

/* Nobody lost, nobody twice: as many lines as undisturbed, each trial with an end; with `same`, the same table. */
static void compare_tables(const char *calm, const char *wild, bool same)
{
    char *before = table_of(calm), *after = table_of(wild);
    if (same && strcmp(before, after) != 0) {
        fprintf(stderr, "--- undisturbed\n%s--- killed\n%s", before, after);
        scenario_end(1);
    }
    size_t lines = 0, others = 0;
    for (const char *at = before; *at; at++)
        lines += *at == '\n';
    for (const char *at = after; *at; at++)
        others += *at == '\n';
    CHECK(lines == others && !strstr(after, "PENDING") && !strstr(after, "RUNNING"));
    free(before);
    free(after);
}

/* Every kill counts: one that finds the experiment over is no kill, and the next experiment begins. */
static void kill_again_and_again(uni_program *program, const char *spec, bool same)
{
    const char *soak = getenv("UNISONO_SOAK");
    int kills = soak ? 100 : 10, status = 0, experiments = 0;
    char calm[600], wild[600], command[700];
    snprintf(calm, sizeof calm, "%s/calm", scenario_storage());
    snprintf(wild, sizeof wild, "%s/wild", scenario_storage());
    snprintf(command, sizeof command, "rm -rf '%s'", wild);
    double begun = scenario_ms();
    pid_t pid = fork_tuner(program, spec, calm, false);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    double took = scenario_ms() - begun;
    unsigned dice = (unsigned)getpid();
    bool resume = false;
    for (int landed = 0; landed < kills;) {
        pid = fork_tuner(program, spec, wild, resume);
        /* Some die while they start, most somewhere on the way. */
        int longest = (int)(took / 5) + 40;
        scenario_sleep_ms(5 + (int)(rand_r(&dice) % (unsigned)longest));
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, &status, 0) == pid);
        resume = !WIFEXITED(status);
        landed += resume;
        if (resume)
            continue;
        CHECK(WEXITSTATUS(status) == 0);
        compare_tables(calm, wild, same);
        CHECK(scenario_nothing_left(wild) && system(command) == 0);
        experiments++;
    }
    pid = fork_tuner(program, spec, wild, resume);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    compare_tables(calm, wild, same);
    fprintf(stderr, "%d kills in %d experiments; undisturbed %.0f ms\n", kills, experiments + 1,
            took);
    CHECK(scenario_nothing_left(wild));
}

static void kills_random(uni_program *program)
{
    kill_again_and_again(program, random_fifo, true);
}

static void kills_tpe_asha(uni_program *program)
{
    kill_again_and_again(program, tpe_asha, true);
}

static void kills_hyperband(uni_program *program)
{
    kill_again_and_again(program, hyperband_alone, true);
}

/* What was decided about a trial at its first mark must not be taken for a decision at its second: it went on by itself, without its bracket, when the tuner was killed
 * while it waited there. */
static void killed_while_two_wait(uni_program *program)
{
    char calm[600], wild[600];
    int status = 0;
    snprintf(calm, sizeof calm, "%s/calm", scenario_storage());
    snprintf(wild, sizeof wild, "%s/wild", scenario_storage());
    pid_t pid = fork_tuner(program, hyperband_alone, calm, false);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pid = fork_tuner_until_two_wait(program, hyperband_alone, wild, 3);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    pid = fork_tuner(program, hyperband_alone, wild, true);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    compare_tables(calm, wild, true);
}

static void kills_pbt(uni_program *program)
{
    kill_again_and_again(program, pbt_together, false);
}

const scenario scenarios[] = { { "kills_random", kills_random },
                               { "kills_tpe_asha", kills_tpe_asha },
                               { "kills_hyperband", kills_hyperband },
                               { "kills_pbt", kills_pbt },
                               { "killed_while_two_wait", killed_while_two_wait },
                               { NULL, NULL } };
