/*
 * restarts_tune.c - the net for restarts over searches (restarts.h): every searcher, scheduler and
 * checkpoint policy, killed at random moments of random trials. A worker dies, the tuner dies and
 * is opened again, or both; some die again while the search recovers. Table, reports, checkpoints
 * and the best trials must be those of the undisturbed search. Trials run one at a time, except
 * where their order cannot matter (random and grid search under FIFO).
 *
 * A moment is a byte that a worker appends to control/RANK; its position is the moment's number,
 * which comes up once. control/deaths has a line for each death: rank, number, and whom it kills.
 *
 * RESTARTS_ONLY=WORDS runs the kinds whose name has these words, RESTARTS_SEED draws other moments,
 * RESTARTS_ALL=1 runs every moment. The last line counts the cases.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tune/shared.h"
#include "restarts.h"

#define TIME_LIMIT 60.0 /* seconds; a search takes less than one */
#define DRAWN 4 /* cases of a kind; half as many with two workers, whose trials take longer */
#define TRIALS 5
#define EPOCHS 4

typedef struct kind {
    char name[200];
    const char *searcher, *scheduler, *checkpoint;
    bool is_grid, fresh, directories;
    int workers, concurrent, every;
} kind;

typedef struct death {
    int rank, number, again; /* again: the number of the second one; 0: there is none */
    char whom; /* 'w'orker, 't'uner, 'b'oth */
} death;

static const char *words;
static bool every_moment;
static unsigned seed = 1;
static int cases, failures, kinds;

static const char *in_control(const char *name)
{
    static char path[4400];
    snprintf(path, sizeof path, "%s/%s", getenv("RESTARTS_CONTROL"), name);
    return path;
}

/* ---- the worker ---- */

static void pass_moment(int rank)
{
    char name[16], line[64], whom;
    int of, number, tuner = 0;
    snprintf(name, sizeof name, "%d", rank);
    int fd = open(in_control(name), O_WRONLY | O_APPEND | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, ".", 1) == 1);
    int now = (int)lseek(fd, 0, SEEK_CUR);
    close(fd);
    FILE *deaths = fopen(in_control("deaths"), "r");
    CHECK(deaths);
    while (fgets(line, sizeof line, deaths)) {
        CHECK(sscanf(line, "%d %d %c", &of, &number, &whom) == 3);
        if (of != rank || number != now)
            continue;
        FILE *file = fopen(in_control("tuner"), "r");
        CHECK(file && fscanf(file, "%d", &tuner) == 1);
        fclose(file);
        if (whom != 'w')
            kill(tuner, SIGKILL);
        if (whom != 't')
            raise(SIGKILL);
    }
    fclose(deaths);
}

static int load(uni_session *session, int64_t *epoch, double *number, uni_error *err)
{
    if (!uni_dict_get_bool(uni_session_info_of(session)->config, "directories", false)) {
        uni_value *state = NULL;
        UNI_TRY(uni_session_load_checkpoint(&state, session, err));
        *epoch = uni_dict_get_int(state, "epoch", 0);
        *number = uni_dict_get_float(state, "number", 0);
        uni_value_free(state);
        return 0;
    }
    uni_checkpoint *checkpoint = NULL;
    long long saved;
    char path[4400];
    UNI_TRY(uni_session_get_checkpoint(&checkpoint, session, err));
    if (checkpoint) {
        snprintf(path, sizeof path, "%s/number", uni_checkpoint_info_of(checkpoint)->path);
        FILE *file = fopen(path, "r");
        CHECK(file && fscanf(file, "%lld %la", &saved, number) == 2);
        fclose(file);
        *epoch = saved;
    }
    uni_checkpoint_close(checkpoint);
    return 0;
}

static int report(uni_session *session, int64_t epoch, double number, double loss, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    bool saves = uni_session_info_of(session)->world_rank == 0 &&
                 epoch % uni_dict_get_int(config, "every", 1) == 0,
         directories = uni_dict_get_bool(config, "directories", false);
    uni_value *metrics = uni_value_dict(), *state = uni_value_dict();
    char *directory = NULL, path[4400];
    CHECK(uni_dict_take(metrics, "loss", uni_value_float(loss)) == 0);
    CHECK(uni_dict_take(state, "epoch", uni_value_int(epoch)) == 0);
    CHECK(uni_dict_take(state, "number", uni_value_float(number)) == 0);
    if (saves && directories) {
        UNI_TRY(uni_session_checkpoint_dir(&directory, session, err));
        snprintf(path, sizeof path, "%s/number", directory);
        FILE *file = fopen(path, "w");
        CHECK(file && fprintf(file, "%lld %la\n", (long long)epoch, number) > 0 &&
              fclose(file) == 0);
    }
    pass_moment(uni_session_info_of(session)->world_rank);
    uni_checkpoint_source source = { .dict = saves && !directories ? state : NULL,
                                     .directory = directory };
    int status = uni_session_report(session, metrics, &source, err);
    free(directory);
    uni_value_free(metrics);
    uni_value_free(state);
    return status;
}

/* A number that depends on every epoch before, and on the parameter x. */
static int train(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    int rank = uni_session_info_of(session)->world_rank;
    double x = uni_dict_get_float(config, "x", 0), number = 0;
    int64_t epoch = 0;
    pass_moment(rank);
    UNI_TRY(load(session, &epoch, &number, err));
    pass_moment(rank);
    while (++epoch <= EPOCHS) {
        pass_moment(rank);
        number = number * 0.75 + (double)epoch + x;
        UNI_TRY(report(session, epoch, number, x * x + (number - 4) * (number - 4), err));
        pass_moment(rank);
    }
    return 0;
}

const uni_function functions[] = { { "train", train }, { NULL, NULL } };

/* ---- one search ---- */

static uni_value *read_spec(const kind *one, const char *place)
{
    char text[8192];
    uni_value *out = NULL;
    uni_error err = { 0 };
    snprintf(text, sizeof text,
             "{\"function\": \"train\", \"name\": \"net\", \"storage_path\": \"%s\", \"space\": "
             "{\"x\": %s, \"directories\": %s, \"every\": %d}, \"num_samples\": %d, \"metric\": "
             "\"loss\", \"mode\": \"min\", \"seed\": 5, \"max_concurrent\": %d, "
             "\"max_failures\": 5, \"num_workers\": %d, \"fresh_workers\": %s, \"searcher\": %s, "
             "\"scheduler\": %s, \"checkpoint\": %s}",
             place,
             one->is_grid ? "{\"$grid_search\": [0.5, -0.5, 0.25, 0, 1]}"
                          : "{\"$uniform\": [-1, 1]}",
             one->directories ? "true" : "false", one->every, one->is_grid ? 1 : TRIALS,
             one->concurrent, one->workers, one->fresh ? "true" : "false", one->searcher,
             one->scheduler, one->checkpoint);
    CHECK_OK(uni_json_read(&out, text, strlen(text), &err), &err);
    return out;
}

/* The tuner, in a process of its own: new, or opened again. */
static pid_t fork_tuner(uni_program *program, const kind *one, const char *place, bool again)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    FILE *file = fopen(in_control("tuner"), "w");
    CHECK(file && fprintf(file, "%d\n", (int)getpid()) > 0 && fclose(file) == 0);
    uni_error err = { 0 };
    uni_tuner *tuner = NULL;
    uni__tune_spec *spec = NULL;
    int status = 0;
    if (again) {
        status = uni_tuner_open(
            &tuner, "net", &(uni_tuner_options){ .main = program, .storage_path = place }, 0, &err);
    } else {
        CHECK_OK(uni__tune_spec_read(&spec, read_spec(one, place), &err), &err);
        uni__tune_spec_options(spec)->main = program;
        status = uni_tuner_new(&tuner, uni__tune_spec_options(spec), &err);
    }
    if (status == 0)
        status = uni_tuner_fit(tuner, &err);
    if (status < 0)
        fprintf(stderr, "%s\n", err.message);
    uni_tuner_free(tuner);
    _exit(status < 0);
}

/* Its wait status; a tuner that hangs is killed, and gives -1. */
static int wait_for(pid_t pid)
{
    double begun = scenario_ms();
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (scenario_ms() - begun > TIME_LIMIT * 1e3) {
            kill(pid, SIGKILL);
            CHECK(waitpid(pid, &status, 0) == pid);
            return -1;
        }
        scenario_sleep_ms(1);
    }
    return status;
}

static int add_report(void *context, int64_t trial, int64_t iteration, const uni_value *metrics,
                      uni_error *err)
{
    char key[64];
    snprintf(key, sizeof key, "trial %d, iteration %d", (int)trial, (int)iteration);
    return uni_dict_take(context, key, restarts_without_times(metrics));
}

static uni_value *checkpoint_of(const uni_tune_results *results, int64_t trial, bool best,
                                int workers)
{
    char *path = uni_trial_checkpoint(results, trial, best);
    uni_value *out = path ? restarts_checkpoint(path) : uni_value_null();
    free(path);
    /* Counted by the run, of which a trial of several workers has many. */
    if (path && workers > 1) {
        uni_dict_remove(out, "iteration");
        uni_dict_remove((uni_value *)(uintptr_t)uni_dict_get(out, "metrics"),
                        "_training_iteration");
    }
    return out;
}

/* run.json, as far as it is the same in every run. */
static uni_value *description_of(const char *dir)
{
    static const char *const same[] = { "status", "iterations", "config", "exit_code", "error" };
    uni_value *description = scenario_description(dir), *out = uni_value_dict();
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        const uni_value *value = uni_dict_get(description, same[i]);
        CHECK(!value || uni_dict_take(out, same[i], uni_value_copy(value)) == 0);
    }
    uni_value_free(description);
    return out;
}

/* A trial of several workers has a run for every start: its reports are compared by the journal. */
static uni_value *trial_value(const uni_tune_results *results, int64_t trial, int workers)
{
    uni_value *out = uni_value_dict();
    const char *why = uni_trial_info_of(results, trial)->why;
    char *dir = uni_trial_dir(results, trial);
    CHECK(dir && uni_dict_take(out, "why", uni_value_string(why ? why : "none")) == 0);
    CHECK(uni_dict_take(out, "latest", checkpoint_of(results, trial, false, workers)) == 0);
    CHECK(uni_dict_take(out, "best", checkpoint_of(results, trial, true, workers)) == 0);
    if (workers == 1) {
        CHECK(uni_dict_take(out, "left", restarts_left_in(dir)) == 0);
        CHECK(uni_dict_take(out, "run.json", description_of(dir)) == 0);
    }
    free(dir);
    return out;
}

static uni_value *outcome_of(const char *place, int workers)
{
    static const char *const scopes[] = { "last", "all", "avg" };
    uni_value *out = uni_value_dict(), *reports = uni_value_dict(), *trials = uni_value_list();
    uni_tune_results *results = NULL;
    uni_error err = { 0 };
    CHECK_OK(uni_tune_results_open(&results, "net", place, &err), &err);
    CHECK(uni_dict_take(out, "finished", uni_value_bool(uni_tune_info_of(results)->is_finished)) ==
          0);
    CHECK(uni_dict_take(out, "table", uni__tune_table(results, false)) == 0);
    CHECK_OK(uni_tune_reports(results, add_report, reports, &err), &err);
    CHECK(uni_dict_take(out, "reports", reports) == 0);
    for (int64_t i = 0; i < uni_tune_info_of(results)->num_trials; i++)
        CHECK(uni_list_take(trials, trial_value(results, i, workers)) == 0);
    CHECK(uni_dict_take(out, "trials", trials) == 0);
    for (uni_scope scope = UNI_SCOPE_LAST; scope <= UNI_SCOPE_AVG; scope++) {
        int64_t best = -1;
        CHECK_OK(uni_tune_best(&best, results, NULL, NULL, scope, &err), &err);
        CHECK(uni_dict_take(out, scopes[scope], uni_value_int(best)) == 0);
    }
    uni_tune_results_free(results);
    return out;
}

static int moments_of(int rank)
{
    char name[16];
    struct stat info;
    snprintf(name, sizeof name, "%d", rank);
    return stat(in_control(name), &info) == 0 ? (int)info.st_size : 0;
}

static void empty(const char *path)
{
    char command[9000];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", path, path);
    CHECK(system(command) == 0);
}

/* at NULL: undisturbed. *came: whether a death did. */
static uni_value *run_once(uni_program *program, const kind *one, const death *at, bool *came)
{
    char place[4200];
    uni_value *out = NULL;
    snprintf(place, sizeof place, "%s/searches", scenario_storage());
    empty(place);
    empty(getenv("RESTARTS_CONTROL"));
    FILE *file = fopen(in_control("deaths"), "w");
    CHECK(file);
    if (at)
        fprintf(file, "%d %d %c\n%d %d w\n", at->rank, at->number, at->whom, at->rank, at->again);
    CHECK(fclose(file) == 0);
    int status = wait_for(fork_tuner(program, one, place, false));
    for (int i = 0; i < 3 && status >= 0 && WIFSIGNALED(status); i++)
        status = wait_for(fork_tuner(program, one, place, true));
    *came = at && moments_of(at->rank) >= at->number;
    if (status == 0)
        return outcome_of(place, one->workers);
    out = uni_value_dict();
    CHECK(uni_dict_take(out, "error",
                        uni_value_string(status < 0 ? "the tuner hangs" : "the tuner failed")) ==
          0);
    return out;
}

/* ---- one kind ---- */

static unsigned draw(unsigned below)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 16) % below;
}

static void compare(uni_program *program, const kind *one, const uni_value *undisturbed,
                    const death *at)
{
    char where[4096];
    bool came;
    uni_value *killed = run_once(program, one, at, &came);
    cases += came;
    if (restarts_differ(undisturbed, killed, where, sizeof where)) {
        failures++;
        fprintf(stderr, "%s: rank %d killed %c at moment %d, and w at %d: %s\n", one->name,
                at->rank, at->whom, at->number, at->again, where);
    }
    uni_value_free(killed);
}

static void run_kind(uni_program *program, const kind *one)
{
    static const char whom[] = "wtb";
    bool came;
    int before = failures;
    if (words && !strstr(one->name, words))
        return;
    kinds++;
    uni_value *undisturbed = run_once(program, one, NULL, &came);
    if (uni_dict_get(undisturbed, "error"))
        fprintf(stderr, "%s: %s, undisturbed\n", one->name,
                uni_dict_get_string(undisturbed, "error", ""));
    CHECK(!uni_dict_get(undisturbed, "error"));
    int moments[2] = { moments_of(0), moments_of(1) };
    CHECK(moments[0] > 0 && (one->workers == 1 || moments[1] > 0));
    int count = every_moment ? moments[0] : DRAWN / one->workers;
    for (int i = 0; i < count && failures < before + 3; i++) {
        death next = { .rank = (int)draw((unsigned)one->workers), .whom = whom[i % 3] };
        next.number = 1 + (every_moment ? i : (int)draw((unsigned)moments[next.rank]));
        if (draw(2))
            next.again = next.number + 1 + (int)draw(5);
        compare(program, one, undisturbed, &next);
    }
    printf("%s: %s\n", one->name, failures == before ? "equal" : "DIFFERENT");
    fflush(stdout);
    uni_value_free(undisturbed);
}

/* ---- all kinds ---- */

typedef struct choice {
    const char *name, *text;
} choice;

static const choice searchers[] = { { "random", "{\"type\": \"random\"}" },
                                    { "grid", "{\"type\": \"random\"}" },
                                    { "tpe", "{\"type\": \"tpe\", \"n_startup\": 2}" } };
static const choice schedulers[] = {
    { "fifo", "{\"type\": \"fifo\"}" },
    { "asha", "{\"type\": \"asha\", \"max_t\": 4, \"reduction_factor\": 2}" },
    { "median", "{\"type\": \"median\", \"grace_period\": 1, \"min_samples_required\": 2}" },
    { "hyperband", "{\"type\": \"hyperband\", \"max_t\": 4, \"reduction_factor\": 2}" },
    { "pbt", "{\"type\": \"pbt\", \"perturbation_interval\": 2, \"mutations\": {\"x\": "
             "{\"$uniform\": [-1, 1]}}}" },
};
static const choice checkpoints[] = {
    { "keep all", "{}" },
    { "keep 1", "{\"num_to_keep\": 1}" },
    { "keep the best 2",
      "{\"num_to_keep\": 2, \"score_attribute\": \"loss\", \"score_order\": \"min\"}" },
};
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static void run_search(uni_program *program, size_t s, size_t d, size_t c, int form)
{
    bool pauses = d >= 3; /* hyperband, pbt */
    kind one = { .searcher = searchers[s].text,
                 .scheduler = schedulers[d].text,
                 .checkpoint = checkpoints[c].text,
                 .is_grid = s == 1,
                 .fresh = form & 1,
                 .directories = (form ^ (int)c) & 1,
                 .workers = form == 2 ? 2 : 1,
                 .concurrent = form == 3 && s < 2 && d == 0 ? 2 : 1,
                 .every = form == 1 && !pauses ? 2 : 1 };
    snprintf(one.name, sizeof one.name, "%s, %s, %s, a %s every %d, %d %sworker(s), %d at a time",
             searchers[s].name, schedulers[d].name, checkpoints[c].name,
             one.directories ? "directory" : "dictionary", one.every, one.workers,
             one.fresh ? "fresh " : "", one.concurrent);
    run_kind(program, &one);
}

static void all_kinds(uni_program *program)
{
    char control[4200];
    words = getenv("RESTARTS_ONLY");
    every_moment = getenv("RESTARTS_ALL") != NULL;
    seed = getenv("RESTARTS_SEED") ? (unsigned)atoi(getenv("RESTARTS_SEED")) : 1;
    if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1); /* hundreds of searches need no disk */
    snprintf(control, sizeof control, "%s/control", scenario_storage());
    setenv("RESTARTS_CONTROL", control, 1);
    uni_log_level_set(UNI_LOG_ERROR);
    double begun = scenario_ms();
    for (size_t s = 0; s < COUNT(searchers); s++)
        for (size_t d = 0; d < COUNT(schedulers); d++)
            for (size_t c = 0; c < COUNT(checkpoints); c++)
                for (int form = 0; form < 4; form++)
                    run_search(program, s, d, c, form);
    printf("%d cases of %d kinds in %.0f s, %d different\n", cases, kinds,
           (scenario_ms() - begun) / 1e3, failures);
    CHECK(cases > 0 && failures == 0);
}

const scenario scenarios[] = { { "restarts_tune", all_kinds }, { NULL, NULL } };
