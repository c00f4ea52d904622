/*
 * restarts.c - the net for restarts, its native part (restarts.h): every kind of callback, checkpoint policy, order of data and strategy, killed at every epoch and at
 * every moment of it, and at random steps; then two ranks at once, and again while it recovers. RESTARTS_ONLY=WORDS runs the kinds whose name has these words, all cases of
 * them. Otherwise one case in SAMPLE of every kind is run, another one with another RESTARTS_SEED; RESTARTS_ALL=1 runs all (./test --soak). RESTARTS_PART=I/N runs every Nth kind from the Ith on (0 is the first). The last line counts the cases. RESTARTS_KEEP=DIRECTORY keeps the runs that fail; restarts_watch.c adds what their processes wait for.
 */
#include <sys/stat.h>

#include "restarts.h"

#define TIME_LIMIT 60.0 /* seconds; a run takes less than one */
#define HANGS_AFTER 40.0
#define SAMPLE 4

const uni_function functions[] = { { "fit", restarts_fit },
                                   { "loop", restarts_loop },
                                   { NULL, NULL } };

typedef struct kind {
    const char *name, *function, *strategy;
    int workers, servers;
    const char *callbacks, *backup;
    int every, accumulate, steps;
    bool no_shuffle, all_ranks, directories;
    uni_checkpoint_policy policy;
    restarts_again again; /* the second death */
    bool two; /* two ranks die at once */
} kind;

/* One death: `rank` kills the victims. */
typedef struct death {
    int rank, victims[2], again_rank;
    int epoch, batch;
    restarts_moment moment;
} death;

static const char *const moment_names[] = {
#define NAME(name, text) text,
    RESTARTS_MOMENTS(NAME)
#undef NAME
};

static const char *words, *kept;
static unsigned sample = 1, chosen = 1; /* one case in `sample`; `chosen`: RESTARTS_SEED */
static int part, parts = 1; /* RESTARTS_PART */
static int cases, failures, kinds, met;

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
    put(config, "accumulate", uni_value_int(one->accumulate));
    put(config, "steps", uni_value_int(one->steps));
    put(config, "all_ranks", uni_value_bool(one->all_ranks));
    put(config, "directories", uni_value_bool(one->directories));
    put(config, "again", uni_value_int(one->again));
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

static void put_death(uni_value *config, const death *at)
{
    uni_value *victims = uni_value_list();
    for (int i = 0; i < 2; i++)
        if (at->victims[i] >= 0)
            CHECK(uni_list_take(victims, uni_value_int(at->victims[i])) == 0);
    put(config, "victims", victims);
    put(config, "rank", uni_value_int(at->rank));
    put(config, "again_rank", uni_value_int(at->again_rank));
    put(config, "epoch", uni_value_int(at->epoch));
    put(config, "moment", uni_value_int(at->moment));
    put(config, "batch", uni_value_int(at->batch));
}

/* Processes of all ranks that began their train function. */
static int count_lives(const char *pids)
{
    char command[4400];
    int lines = 0;
    snprintf(command, sizeof command, "cat '%s'/* | wc -l", pids);
    FILE *pipe = popen(command, "r");
    CHECK(pipe && fscanf(pipe, "%d", &lines) == 1 && pclose(pipe) == 0);
    return lines;
}

/* The run's directory and logs, the files of its callbacks and its process numbers: kept as RESTARTS_KEEP/N. */
static void keep_run(const char *run_dir, const char *files, const char *pids)
{
    char command[32768], target[4300];
    snprintf(target, sizeof target, "%.4200s/%d.%d", kept, (int)getpid(), cases);
    snprintf(command, sizeof command, "mkdir -p '%s' && cp -a '%s' '%s' '%s' '%s'", target,
             run_dir ? run_dir : files, files, pids, target);
    fprintf(stderr, "%s %s\n", system(command) == 0 ? "kept as" : "could not be kept as", target);
}

/* *lives: processes that began. */
static uni_value *run_once(uni_trainer *trainer, const kind *one, const death *at, int *lives)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    char files[4200], pids[4200];
    snprintf(files, sizeof files, "%s/files", scenario_storage());
    snprintf(pids, sizeof pids, "%s/pids", scenario_storage());
    make_files(files);
    CHECK(mkdir(pids, 0700) == 0);
    uni_value *config = config_of(one, files);
    put(config, "pids", uni_value_string(pids));
    put_death(config, at);
    uni_value *outcome = NULL;
    restarts_watch *watch = restarts_watch_begin(pids, HANGS_AFTER);
    if (uni_trainer_fit(&result, trainer,
                        &(uni_run_options){ .function = one->function,
                                            .config = config,
                                            .policy = &one->policy,
                                            .time_limit = TIME_LIMIT },
                        &err) == 0) {
        outcome = restarts_outcome(result, files);
    } else { /* a run that fails, or hangs, is a difference like any other */
        outcome = uni_value_dict();
        put(outcome, "error", uni_value_string(err.message));
    }
    restarts_watch_end(watch);
    if (kept && uni_dict_get(outcome, "error"))
        keep_run(uni_trainer_latest_run_dir(trainer), files, pids);
    *lives = count_lives(pids);
    if (uni_trainer_latest_run_dir(trainer))
        remove_all(uni_trainer_latest_run_dir(trainer));
    remove_all(files);
    remove_all(pids);
    uni_value_free(config);
    uni_result_free(result);
    return outcome;
}

/* ---- one kind ---- */

static int members(const kind *one)
{
    return one->servers ? 1 + one->workers + one->servers : one->workers;
}

/* Whether the death came: a moment that the training did not come to (an early stop) is no case. */
static bool compare(uni_trainer *trainer, const kind *one, const uni_value *undisturbed,
                    const death *at)
{
    static const char *const again_names[] = { "", "; again at the start", "; again when restored",
                                               "; again there" };
    char where[4096];
    int lives;
    uni_value *killed = run_once(trainer, one, at, &lives);
    bool came = lives > members(one);
    cases += came;
    if (restarts_differ(undisturbed, killed, where, sizeof where)) {
        failures++;
        fprintf(stderr, "%s: rank %d (and %d) killed in epoch %d, %s (batch %d)%s (rank %d): %s\n",
                one->name, at->victims[0], at->victims[1], at->epoch, moment_names[at->moment],
                at->batch, again_names[one->again], at->again_rank, where);
    }
    uni_value_free(killed);
    return came;
}

static bool comes_up(const kind *one, int epoch, restarts_moment moment)
{
    bool loop = strcmp(one->function, "loop") == 0, known = moment == RESTARTS_EPOCH_BEGIN ||
                                                            moment == RESTARTS_AFTER_FIRST ||
                                                            moment == RESTARTS_AFTER_LAST;
    if ((loop && !known) || (moment == RESTARTS_TRAIN_END && epoch > 0))
        return false;
    /* The backup is removed by then, as Keras does: the next fit is a new one. */
    return moment != RESTARTS_TRAIN_END || !one->backup;
}

/* Ranks in turn, and steps at random. With parameter servers the coordinator kills; two at once are always it and another. */
static death draw_death(const kind *one, unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    int count = members(one), rank = (int)(*seed >> 16) % count;
    death out = { .rank = one->servers ? 0 : rank,
                  .victims = { rank, -1 },
                  .again_rank = one->servers ? rank : (int)(*seed >> 18) % count,
                  .batch = (int)(*seed >> 20) % RESTARTS_BATCHES };
    if (one->two) {
        int other = rank > 0 ? 0 : 1 + (int)(*seed >> 22) % (count - 1);
        out.victims[1] = rank; /* a process kills itself last */
        out.victims[0] = other;
    }
    return out;
}

static bool is_sampled(unsigned kind_seed, int epoch, restarts_moment moment)
{
    unsigned number = kind_seed * 2654435761u + chosen * 40503u +
                      (unsigned)(epoch * RESTARTS_NO_MOMENT) + (unsigned)moment;
    return ((number * 1103515245u + 12345u) >> 16) % sample == 0;
}

static void run_kind(uni_program *program, const kind *one, unsigned seed)
{
    int lives, before = failures;
    unsigned first = seed;
    if ((words && !strstr(one->name, words)) || met++ % parts != part)
        return;
    kinds++;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){
                     .num_workers = one->workers, .servers = one->servers, .name = "net" });
    const death none = { .rank = -1,
                         .victims = { -1, -1 },
                         .again_rank = -1,
                         .epoch = -1,
                         .moment = RESTARTS_NO_MOMENT };
    uni_value *undisturbed = run_once(trainer, one, &none, &lives);
    CHECK(lives == members(one) && !uni_dict_get(undisturbed, "error"));
    for (int epoch = 0; epoch < RESTARTS_EPOCHS && failures < before + 3; epoch++)
        for (restarts_moment moment = 0; moment < RESTARTS_NO_MOMENT; moment++)
            if (comes_up(one, epoch, moment)) {
                death next = draw_death(one, &seed);
                next.epoch = epoch;
                next.moment = moment;
                if (!is_sampled(first, epoch, moment))
                    continue;
                if (!compare(trainer, one, undisturbed, &next) && moment != RESTARTS_TRAIN_END)
                    goto over; /* it ends before this moment */
            }
over:
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
    { "keep 1 and every step", { .num_to_keep = 1, .every_steps = 1 } },
    { "keep all and every third step", { .every_steps = 3 } },
};
static const struct {
    const char *name;
    int workers, servers;
} strategies[] = {
    { "none", 1, 0 },
    { "mirrored:2", 1, 0 },
    { "multi_worker", 2, 0 },
    /* Bit for bit only where updates have one order: synchronous, or one worker and one server. */
    { "parameter_server:sync", 2, 2 },
    { "parameter_server", 1, 1 },
};
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
                             .servers = strategies[s].servers,
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
                             .servers = strategies[s].servers,
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

/* Gradients that wait for their update at a checkpoint, in mid-epoch and over the end of one; epochs that end in
 * the middle of the data. */
static void run_waiting(uni_program *program)
{
    static const int accumulate[] = { 0, 2, 3, 5, 7 };
    char name[256];
    for (size_t s = 0; s < 4; s++) /* the last one: backups */
        for (size_t a = 0; a < sizeof accumulate / sizeof accumulate[0]; a++)
            for (int steps = 0; steps < 2; steps++) {
                kind one = { .name = name,
                             .function = "fit",
                             .strategy = s < 3 ? strategies[s].name : "none",
                             .workers = s < 3 ? strategies[s].workers : 1,
                             .backup = s < 3 ? NULL : "backup",
                             .every = s < 3 ? 1 : 3,
                             .accumulate = accumulate[a],
                             .steps = steps * (RESTARTS_BATCHES - 1),
                             .policy = { .every_steps = s < 3 ? (int)(a + s) % 3 : 0 },
                             .callbacks = a % 2 ? "cs" : "rbepcsmftna" };
                if (one.accumulate == 0 && steps == 0)
                    continue;
                snprintf(name, sizeof name, "accumulation of %d, %d steps, %s%s", one.accumulate,
                         one.steps, one.strategy, one.backup ? ", backups" : "");
                run_kind(program, &one, 19 + (unsigned)(s * 100 + a * 10) + (unsigned)steps);
            }
}

/* Two ranks at once, and a second death while the training recovers from the first. */
static void run_twice(uni_program *program)
{
    static const struct {
        const char *name;
        bool two;
        restarts_again again;
    } forms[] = { { "two at once", true, RESTARTS_ONCE },
                  { "again at the start", false, RESTARTS_AT_START },
                  { "again when restored", false, RESTARTS_RESTORED },
                  { "again at the same moment", false, RESTARTS_SAME_MOMENT },
                  { "two at once, again when restored", true, RESTARTS_RESTORED } };
    char name[256];
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
        for (size_t s = 0; s <= sizeof strategies / sizeof strategies[0]; s++) {
            bool loop = s == sizeof strategies / sizeof strategies[0];
            size_t p = (f + s) % (sizeof policies / sizeof policies[0]);
            kind one = { .name = name,
                         .function = loop ? "loop" : "fit",
                         .strategy = loop ? "none" : strategies[s].name,
                         .workers = loop ? 3 : strategies[s].workers,
                         .servers = loop ? 0 : strategies[s].servers,
                         .every = 1,
                         .policy = policies[p].policy,
                         .again = forms[f].again,
                         .two = forms[f].two,
                         .callbacks = "rbepcsmftna" };
            if (one.two && members(&one) < 2)
                continue;
            snprintf(name, sizeof name, "%s %s, %s, %s", one.function, one.strategy,
                     policies[p].name, forms[f].name);
            run_kind(program, &one, 17 + (unsigned)(f * 100 + s * 10));
        }
}

static void all_kinds(uni_program *program)
{
    words = getenv("RESTARTS_ONLY");
    kept = getenv("RESTARTS_KEEP");
    const char *drawn = getenv("RESTARTS_SEED"), *share = getenv("RESTARTS_PART");
    chosen = drawn ? (unsigned)atoi(drawn) : 1;
    CHECK(!share ||
          (sscanf(share, "%d/%d", &part, &parts) == 2 && parts > 0 && part >= 0 && part < parts));
    sample = words || getenv("RESTARTS_ALL") ? 1 : SAMPLE;
    if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1); /* thousands of runs need no disk */
    double begun = scenario_ms();
    uni_log_level_set(UNI_LOG_ERROR);
    run_loops(program);
    run_callbacks(program);
    run_backups(program);
    run_waiting(program);
    run_fits(program);
    run_twice(program);
    printf("%d cases (one in %u) of %d kinds in %.0f s, %d different\n", cases, sample, kinds,
           (scenario_ms() - begun) / 1e3, failures);
    CHECK(cases > 0 && failures == 0);
}

const scenario scenarios[] = { { "restarts", all_kinds }, { NULL, NULL } };
