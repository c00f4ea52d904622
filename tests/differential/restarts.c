/*
 * restarts.c - the net for restarts, its native part (restarts.h): every kind of callback, checkpoint policy, order of data and strategy, killed at every epoch and at
 * every moment of it, and at random steps. `restarts [WORDS]` runs the cases whose name has these words. The last line counts them.
 */
#include <sys/stat.h>

#include "restarts.h"

const uni_function functions[] = { { "fit", restarts_fit },
                                   { "loop", restarts_loop },
                                   { NULL, NULL } };

typedef struct kind {
    const char *name, *function, *strategy;
    int workers;
    const char *callbacks, *backup;
    int every;
    bool no_shuffle, all_ranks, directories;
    uni_checkpoint_policy policy;
} kind;

static const char *const moment_names[] = {
#define NAME(name, text) text,
    RESTARTS_MOMENTS(NAME)
#undef NAME
};

static const char *words;
static int cases, failures, kinds;

/* ---- one run ---- */

static void put(uni_value *config, const char *key, uni_value *value)
{
    CHECK(uni_dict_take(config, key, value) == 0);
}

static uni_value *config_of(const kind *one, const char *files)
{
    uni_value *config = uni_value_dict();
    put(config, "strategy", uni_value_string(one->strategy ? one->strategy : "none"));
    put(config, "callbacks", uni_value_string(one->callbacks ? one->callbacks : ""));
    put(config, "shuffle", uni_value_bool(!one->no_shuffle));
    put(config, "every", uni_value_int(one->every));
    put(config, "all_ranks", uni_value_bool(one->all_ranks));
    put(config, "directories", uni_value_bool(one->directories));
    put(config, "files", uni_value_string(files));
    if (one->backup)
        put(config, "backup", uni_value_string(one->backup));
    return config;
}

/* Something that was there before, for callbacks that add to it. */
static void make_files(const char *files)
{
    char path[4300];
    CHECK(mkdir(files, 0700) == 0);
    snprintf(path, sizeof path, "%s/added.csv", files);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("epoch;loss;mae;val_loss;val_mae\n0;1;1;1;1\n", file) > 0 &&
          fclose(file) == 0);
}

static void remove_all(const char *path)
{
    char command[4400];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    CHECK(system(command) == 0);
}

static uni_value *run_once(uni_trainer *trainer, const kind *one, int rank, int epoch,
                           restarts_moment moment, int batch)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    char files[4200];
    snprintf(files, sizeof files, "%s/files", scenario_storage());
    make_files(files);
    uni_value *config = config_of(one, files);
    put(config, "rank", uni_value_int(rank));
    put(config, "epoch", uni_value_int(epoch));
    put(config, "moment", uni_value_int(moment));
    put(config, "batch", uni_value_int(batch));
    CHECK_OK(uni_trainer_fit(trainer,
                             &(uni_run_options){ .function = one->function,
                                                 .config = config,
                                                 .policy = &one->policy,
                                                 .time_limit = 120 },
                             &result, &err),
             &err);
    uni_value *outcome = restarts_outcome(result, files);
    put(outcome, "restarted", uni_value_bool(uni_result_attempts(result) > 1));
    remove_all(uni_result_run_dir(result));
    remove_all(files);
    uni_value_free(config);
    uni_result_free(result);
    return outcome;
}

/* ---- one kind ---- */

static void compare(uni_trainer *trainer, const kind *one, const uni_value *undisturbed, int rank,
                    int epoch, restarts_moment moment, int batch)
{
    char where[4096];
    uni_value *killed = run_once(trainer, one, rank, epoch, moment, batch);
    /* A moment that the training did not come to (an early stop) is no case. */
    bool restarted = uni_dict_get_bool(killed, "restarted", false);
    uni_dict_remove(killed, "restarted");
    if (restarted)
        cases++;
    if (restarts_differ(undisturbed, killed, where, sizeof where)) {
        failures++;
        fprintf(stderr, "%s: rank %d killed in epoch %d, %s (batch %d): %s\n", one->name, rank,
                epoch, moment_names[moment], batch, where);
    }
    uni_value_free(killed);
}

static void run_kind(uni_program *program, const kind *one, unsigned seed)
{
    if (words && !strstr(one->name, words))
        return;
    kinds++;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = one->workers, .name = "net" });
    uni_value *undisturbed = run_once(trainer, one, -1, -1, RESTARTS_NO_MOMENT, 0);
    CHECK(!uni_dict_get_bool(undisturbed, "restarted", true));
    uni_dict_remove(undisturbed, "restarted");
    bool loop = strcmp(one->function, "loop") == 0;
    int before = failures;
    for (int epoch = 0; epoch < RESTARTS_EPOCHS && failures < before + 3; epoch++)
        for (restarts_moment moment = 0; moment < RESTARTS_NO_MOMENT; moment++) {
            bool known = moment == RESTARTS_EPOCH_BEGIN || moment == RESTARTS_AFTER_FIRST ||
                         moment == RESTARTS_AFTER_LAST;
            if ((loop && !known) || (moment == RESTARTS_TRAIN_END && epoch > 0))
                continue;
            if (moment == RESTARTS_TRAIN_END && one->backup)
                continue; /* the backup is removed by then, as Keras does: the next fit is a new one */
            /* Ranks in turn, and steps at random. */
            seed = seed * 1103515245u + 12345u;
            compare(trainer, one, undisturbed, (int)(seed >> 16) % one->workers, epoch, moment,
                    (int)(seed >> 20) % RESTARTS_BATCHES);
        }
    printf("%s: %s\n", one->name, failures == before ? "equal" : "DIFFERENT");
    fflush(stdout);
    uni_value_free(undisturbed);
    uni_trainer_free(trainer);
}

/* ---- all kinds ---- */

static const struct {
    const char *name;
    uni_checkpoint_policy policy;
} policies[] = {
    { "keep all", { 0 } },
    { "keep 1", { .num_to_keep = 1 } },
    { "keep the best 2",
      { .num_to_keep = 2, .score_attribute = "val_loss", .score_order = UNI_SCORE_MIN } },
    { "keep none", { .num_to_keep = UNI_KEEP_NONE } },
};
static const struct {
    const char *name;
    int workers;
} strategies[] = { { "none", 1 }, { "mirrored:2", 1 }, { "multi_worker", 2 } };
static const char *const callbacks[] = { "e", "r", "b", "m", "f", "p", "c", "a", "t", "s", "n" };

static void run_fits(uni_program *program)
{
    char name[256];
    for (size_t s = 0; s < sizeof strategies / sizeof strategies[0]; s++)
        for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++)
            for (int shuffled = 0; shuffled < 2; shuffled++) {
                kind one = { .name = name,
                             .function = "fit",
                             .strategy = strategies[s].name,
                             .workers = strategies[s].workers,
                             .every = 1,
                             .no_shuffle = !shuffled,
                             .policy = policies[p].policy,
                             .callbacks = "rbepcsmftna" };
                snprintf(name, sizeof name, "fit %s, %s, %s, all callbacks", one.strategy,
                         policies[p].name, shuffled ? "shuffled" : "in order");
                run_kind(program, &one, 1 + (unsigned)(s * 100 + p * 10) + (unsigned)shuffled);
            }
}

/* Each callback by itself: another one may hide its fault (an early stop, a smaller rate). */
static void run_callbacks(uni_program *program)
{
    char name[256];
    for (size_t s = 0; s < sizeof strategies / sizeof strategies[0]; s++)
        for (size_t c = 0; c < sizeof callbacks / sizeof callbacks[0]; c++)
            for (int every = 1; every <= 2; every++) {
                kind one = { .name = name,
                             .function = "fit",
                             .strategy = strategies[s].name,
                             .workers = strategies[s].workers,
                             .every = every,
                             .callbacks = callbacks[c] };
                snprintf(name, sizeof name, "fit %s, callback %s, a checkpoint every %d",
                         one.strategy, callbacks[c], every);
                run_kind(program, &one, 7 + (unsigned)(s * 100 + c * 10) + (unsigned)every);
            }
}

static void run_backups(uni_program *program)
{
    char name[256];
    for (size_t c = 0; c <= sizeof callbacks / sizeof callbacks[0]; c++)
        for (int every = 0; every <= 3; every += 3) {
            bool all = c == sizeof callbacks / sizeof callbacks[0];
            kind one = { .name = name,
                         .function = "fit",
                         .workers = 1,
                         .backup = "backup",
                         .every = every,
                         .callbacks = all ? "rbepcsmftna" : callbacks[c] };
            snprintf(name, sizeof name, "backup every %d, callbacks %s", every, one.callbacks);
            run_kind(program, &one, 11 + (unsigned)(c * 10) + (unsigned)every);
        }
}

static void run_loops(uni_program *program)
{
    char name[256];
    for (int workers = 1; workers <= 3; workers++)
        for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++)
            for (int form = 0; form < 4; form++) {
                kind one = { .name = name,
                             .function = "loop",
                             .workers = workers,
                             .all_ranks = form & 1,
                             .directories = form & 2,
                             .policy = policies[p].policy };
                if (one.directories && one.policy.num_to_keep == UNI_KEEP_NONE)
                    continue; /* nothing is kept: it begins anew, and says so */
                snprintf(name, sizeof name, "loop of %d, %s, %s of %s", workers, policies[p].name,
                         one.directories ? "directories" : "dictionaries",
                         one.all_ranks ? "all ranks" : "rank 0");
                run_kind(program, &one, 13 + (unsigned)(workers * 100) + (unsigned)(p * 10));
            }
}

static void all_kinds(uni_program *program)
{
    words = getenv("RESTARTS_ONLY");
    if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1); /* thousands of runs need no disk */
    double begun = scenario_ms();
    uni_log_level_set(UNI_LOG_ERROR);
    run_loops(program);
    run_callbacks(program);
    run_backups(program);
    run_fits(program);
    printf("%d cases of %d kinds in %.0f s, %d different\n", cases, kinds,
           (scenario_ms() - begun) / 1e3, failures);
    CHECK(cases > 0 && failures == 0);
}

const scenario scenarios[] = { { "restarts", all_kinds }, { NULL, NULL } };
