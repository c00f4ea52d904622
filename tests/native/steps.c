/*
 * steps.c - checkpoints between the ends of epochs: runs that are killed or told to stop at random
 * steps of fit go on from there, and end with the weights, losses, files and reports of a run in
 * which nothing happened.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include <unisono/native.h>

#include "../train/scenario.h"

#define MOST_RANKS 2
#define SAMPLES 1201
#define FEATURES 8
#define BATCH 12
#define STEPS 101 /* of an epoch */
#define EPOCHS 3
#define ALL_STEPS (STEPS * EPOCHS)
#define KILLS 8
#define EVERY 7

/* What the driver and all workers see. */
typedef struct shared {
    _Atomic int pids[MOST_RANKS];
    _Atomic int64_t step; /* that rank 0 made last */
    _Atomic int64_t made; /* by rank 0, repetitions included */
    _Atomic int64_t first; /* step of rank 0's process */
    _Atomic int64_t held_at; /* rank 0 waits there for the driver; 0: it does not */
} shared;

/* ---- a worker ---- */

typedef struct counter {
    shared *all;
    int rank;
} counter;

static int after_batch(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    counter *count = self;
    int64_t step = uni_optimizer_iterations(uni_model_optimizer(model));
    if (count->rank != 0)
        return 0;
    int64_t none = 0;
    atomic_compare_exchange_strong(&count->all->first, &none, step);
    atomic_fetch_add(&count->all->made, 1);
    atomic_store(&count->all->step, step);
    for (int64_t at; (at = atomic_load(&count->all->held_at)) > 0 && step >= at;)
        usleep(100);
    return 0;
}

static int make_model(uni_model **out, uni_error *err)
{
    uni_dense_options wide = { .activation = "tanh" };
    UNI_TRY(uni_sequential_new(
        out, "noisy",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                   uni_layer_dense(48, &wide), uni_layer_batch_normalization(NULL),
                   uni_layer_dropout(0.3f), uni_layer_dense(1, NULL)),
        err));
    uni_model_set_seed(*out, 11);
    return uni_model_compile(
        *out, &(uni_compile_options){ .optimizer_name = "adam", .loss_name = "mse" }, err);
}

/* The step that a process begins with is known from the optimizer before fit. */
static int make_callbacks(uni_callback **out, int *count, uni_session *session, counter *counts,
                          uni_error *err)
{
    static const uni_callback_class probe = { .name = "probe",
                                              .only_looks = true,
                                              .after_batch = after_batch };
    const uni_session_info *info = uni_session_info_of(session);
    UNI_TRY(uni_callback_report_checkpoint(&out[(*count)++], session, 1, err));
    UNI_TRY(uni_callback_new(&out[(*count)++], &probe, counts, err));
    UNI_TRY(uni_callback_reduce_lr_on_plateau(&out[(*count)++],
                                              &(uni_reduce_lr_options){ .patience = 1 }, err));
    if (info->world_rank == 0)
        UNI_TRY(uni_callback_csv_logger(
            &out[(*count)++], uni_dict_get_string(info->config, "csv", ""), 0, false, err));
    return 0;
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    static float x[SAMPLES * FEATURES], y[SAMPLES];
    const uni_session_info *info = uni_session_info_of(session);
    counter counts = { .all = scenario_map(uni_dict_get_string(info->config, "shared", ""),
                                           sizeof(shared)),
                       .rank = info->world_rank };
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_callback *callbacks[4] = { NULL };
    uni_value *history = NULL;
    int epoch = 0, num_callbacks = 0;
    if (!counts.all)
        return uni_error_set(err, UNI_ESTATE, "no shared memory");
    if (counts.rank == 0)
        atomic_store(&counts.all->first, 0);
    atomic_store(&counts.all->pids[counts.rank], getpid());
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 0;
        for (int j = 0; j < FEATURES; j++) {
            x[i * FEATURES + j] = sinf((float)(i * 7 + j * 3));
            y[i] += x[i * FEATURES + j] * (float)(j + 1) * 0.1f;
        }
    }
    UNI_TRY(uni_strategy_open(&strategy, uni_dict_get_string(info->config, "strategy", ""), session,
                              err));
    UNI_TRY(make_model(&model, err));
    UNI_TRY(uni_session_restore_model(&epoch, session, model, err));
    UNI_TRY(uni_strategy_place(strategy, model, err));
    UNI_TRY(make_callbacks(callbacks, &num_callbacks, session, &counts, err));
    uni_column xs = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, x),
               ys = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y);
    UNI_TRY(uni_strategy_fit(
        &history, strategy, model,
        UNI_OPTIONS(uni_fit_options, .x = &xs, .num_x = 1, .y = &ys, .num_y = 1,
                    .validation_x = &xs, .validation_y = &ys,
                    .batch_size = (int)uni_dict_get_int(info->config, "batch", BATCH),
                    .epochs = EPOCHS, .initial_epoch = epoch, .threads = 1, .callbacks = callbacks,
                    .num_callbacks = num_callbacks),
        err));
    size_t count = 0;
    const float *weights = uni_parameters_weights(uni_model_parameters(model), &count);
    *result = uni_value_dict();
    int status = uni_dict_take(*result, "weights", uni_value_bytes(weights, count * sizeof(float)));
    status |= uni_dict_take(*result, "history", history);
    uni_strategy_free(strategy);
    for (int i = 0; i < num_callbacks; i++)
        uni_callback_free(callbacks[i]);
    uni_model_free(model);
    return status;
}

static int reports(uni_session *session, uni_value **result, uni_error *err)
{
    for (int i = 0; i < 3; i++)
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "loss" },
                                           (const double[]){ i }, err));
    return 0;
}

const uni_function functions[] = { { "train", train }, { "reports", reports }, { NULL, NULL } };

/* ---- the driver ---- */

typedef struct trial {
    const char *strategy;
    int ranks;
    uni_checkpoint_policy policy;
    shared *all;
    char path[300], csv[300];
    uint64_t random;
    _Atomic(uni_trainer *) trainer; /* another thread stops it */
    int batch; /* 0: as always */
    const char *function; /* NULL: train */
    bool by_signals; /* two SIGTERMs, as a scheduler sends them */
    int64_t stop_at; /* 0: at random */
    const char *from; /* the checkpoint that a new run starts from, or NULL */
} trial;

static uint64_t next_random(trial *t)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return t->random >> 33;
}

static void prepare(trial *t)
{
    static int number;
    snprintf(t->path, sizeof t->path, "%s/shared_%d", scenario_storage(), number);
    snprintf(t->csv, sizeof t->csv, "%s/log_%d.csv", scenario_storage(), number++);
    t->all = scenario_map(t->path, sizeof(shared));
    CHECK(t->all);
}

/* resume: the directory of the run that goes on; NULL: a new one. */
static int run(uni_program *program, trial *t, const char *resume, uni_result **result,
               uni_error *err)
{
    uni_value *config = uni_value_dict();
    t->trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = t->ranks,
                                                         .max_failures = -1,
                                                         .no_retry_errors = true,
                                                         .handle_signals = t->by_signals });
    if (t->batch > 0)
        CHECK(uni_dict_take(config, "batch", uni_value_int(t->batch)) == 0);
    CHECK(uni_dict_take(config, "shared", uni_value_string(t->path)) == 0);
    CHECK(uni_dict_take(config, "csv", uni_value_string(t->csv)) == 0);
    CHECK(uni_dict_take(config, "strategy", uni_value_string(t->strategy)) == 0);
    int status = uni_trainer_fit(result, t->trainer,
                                 UNI_OPTIONS(uni_run_options,
                                             .function = t->function ? t->function : "train",
                                             .config = config, .policy = &t->policy,
                                             .resume_run = resume, .from_checkpoint = t->from),
                                 err);
    uni_value_free(config);
    return status;
}

/* Lets rank 0 make that step, and waits until it has; false: it was made by then. */
static void wait_for_step(const trial *t, int64_t step)
{
    double begun = scenario_ms();
    while (atomic_load(&t->all->step) < step) {
        CHECK(scenario_ms() - begun < 60000);
        usleep(100);
    }
}

static char *read_text(const char *path)
{
    static char texts[2][20000];
    static int next;
    char *text = texts[next++ % 2];
    FILE *file = fopen(path, "r");
    CHECK(file);
    size_t size = fread(text, 1, sizeof texts[0] - 1, file);
    text[size] = '\0';
    fclose(file);
    return text;
}

/* Each rank has one line for each epoch. */
static void check_reports(const uni_result *result, int ranks)
{
    char path[600];
    int lines = 0;
    snprintf(path, sizeof path, "%s/results.jsonl", uni_result_info_of(result)->run_dir);
    for (const char *at = read_text(path); (at = strstr(at, "\"iteration\":")); at++)
        lines++;
    CHECK(lines == ranks * EPOCHS);
}

static void check_same(const trial *calm, const uni_result *expected, const trial *t,
                       const uni_result *got)
{
    const char *dir = uni_result_info_of(got)->run_dir;
    for (int rank = 0; rank < t->ranks; rank++) {
        const uni_value *a = uni_result_info_of(expected)->returned[rank],
                        *b = uni_result_info_of(got)->returned[rank];
        size_t sizes[2];
        const void *weights[2] = { uni_value_as_bytes(uni_dict_get(a, "weights"), &sizes[0]),
                                   uni_value_as_bytes(uni_dict_get(b, "weights"), &sizes[1]) };
        CHECK(sizes[0] == sizes[1] && sizes[0] > 0);
        CHECK(memcmp(weights[0], weights[1], sizes[0]) == 0);
        CHECK(uni_value_equal(uni_dict_get(a, "history"), uni_dict_get(b, "history")));
    }
    CHECK(strcmp(read_text(calm->csv), read_text(t->csv)) == 0);
    check_reports(got, t->ranks);
    /* Those of steps take no numbers, and a run that succeeded leaves none behind. */
    char *kept = scenario_list(dir, "checkpoints", NULL), path[600];
    CHECK(strcmp(kept, "checkpoint_000001 checkpoint_000002 checkpoint_000003") == 0);
    free(kept);
    snprintf(path, sizeof path, "%s/.steps", dir);
    CHECK(access(path, F_OK) != 0);
}

static uni_result *undisturbed(uni_program *program, trial *t)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    prepare(t);
    CHECK_OK(run(program, t, NULL, &result, &err), &err);
    uni_trainer_free(t->trainer);
    check_same(t, result, t, result);
    return result;
}

/* ---- killed ---- */

static void *kill_at_random(void *argument)
{
    trial *t = argument;
    for (int i = 1; i <= KILLS; i++) {
        int64_t at = i * ALL_STEPS / (KILLS + 1) + (int64_t)(next_random(t) % EVERY);
        atomic_store(&t->all->held_at, at + 20);
        wait_for_step(t, at);
        usleep((useconds_t)(next_random(t) % 3000));
        int pid = atomic_load(&t->all->pids[0]);
        int64_t made = atomic_load(&t->all->step);
        for (int rank = 0; rank < t->ranks; rank++) /* together, so that none is replaced */
            kill(atomic_load(&t->all->pids[rank]), SIGKILL);
        double begun = scenario_ms();
        while (atomic_load(&t->all->pids[0]) == pid || atomic_load(&t->all->first) == 0) {
            CHECK(scenario_ms() - begun < 60000);
            usleep(100);
        }
        /* One interval is lost, and what was made until the kill. The checkpoint of the last one
         * may not have been complete. */
        if (t->policy.every_steps > 0)
            CHECK(atomic_load(&t->all->first) > made - 2 * EVERY);
    }
    atomic_store(&t->all->held_at, 0);
    return NULL;
}

static void killed(uni_program *program, const char *strategy, int ranks,
                   uni_checkpoint_policy policy)
{
    trial calm = { .strategy = strategy, .ranks = ranks };
    trial t = {
        .strategy = strategy, .ranks = ranks, .policy = policy, .random = (uint64_t)ranks + 17
    };
    uni_result *expected = undisturbed(program, &calm), *got = NULL;
    pthread_t thread;
    uni_error err = { 0 };
    prepare(&t);
    atomic_store(&t.all->held_at, 1);
    CHECK(pthread_create(&thread, NULL, kill_at_random, &t) == 0);
    CHECK_OK(run(program, &t, NULL, &got, &err), &err);
    pthread_join(thread, NULL);
    uni_trainer_free(t.trainer);
    CHECK(uni_result_info_of(got)->attempts == KILLS + 1);
    check_same(&calm, expected, &t, got);
    printf("%s: %d kills, %lld steps for %d\n", strategy, KILLS,
           (long long)atomic_load(&t.all->made), ALL_STEPS);
    if (policy.every_steps > 0)
        CHECK(atomic_load(&t.all->made) <= ALL_STEPS + KILLS * (2 * EVERY + 1));
    uni_result_free(expected);
    uni_result_free(got);
}

static void steps_killed(uni_program *program)
{
    uni_checkpoint_policy often = { .every_steps = EVERY };
    killed(program, "none", 1, often);
    killed(program, "mirrored", 1, often);
    killed(program, "multi_worker", 2, often);
}

static void seconds_killed(uni_program *program)
{
    killed(program, "none", 1, (uni_checkpoint_policy){ .every_seconds = 0.004 });
}

/* ---- told to stop ---- */

static void *stop_at_random(void *argument)
{
    trial *t = argument;
    int64_t at = atomic_load(&t->all->step) + 15 + (int64_t)(next_random(t) % 20);
    wait_for_step(t, t->stop_at ? t->stop_at : at);
    if (t->by_signals) {
        kill(getpid(), SIGTERM);
        usleep(3000);
        kill(getpid(), SIGTERM);
    } else {
        uni_trainer_stop(t->trainer, false);
    }
    usleep(20000); /* the ranks have heard of it */
    atomic_store(&t->all->held_at, 0);
    return NULL;
}

/* No step is lost or repeated, however often the run is stopped and resumed. */
static void stopped(uni_program *program, const char *strategy, int ranks, bool by_signals)
{
    trial calm = { .strategy = strategy, .ranks = ranks }, t = {
        .strategy = strategy, .ranks = ranks, .random = (uint64_t)ranks, .by_signals = by_signals
    };
    uni_result *expected = undisturbed(program, &calm), *got = NULL;
    char dir[600] = "";
    int stops = 0, within = 0;
    prepare(&t);
    for (int status = -1; status < 0; stops++) {
        uni_error err = { 0 };
        pthread_t thread;
        int64_t before = atomic_load(&t.all->step);
        uni_result_free(got);
        got = NULL;
        atomic_store(&t.all->held_at, before + 40);
        if (before > ALL_STEPS - 60)
            atomic_store(&t.all->held_at, 0);
        else
            CHECK(pthread_create(&thread, NULL, stop_at_random, &t) == 0);
        status = run(program, &t, dir[0] ? dir : NULL, &got, &err);
        if (before <= ALL_STEPS - 60)
            pthread_join(thread, NULL);
        uni_trainer_free(t.trainer);
        if (status < 0)
            CHECK(status == UNI_EPREEMPTED);
        if (stops > 0)
            CHECK(atomic_load(&t.all->first) == before + 1);
        within += atomic_load(&t.all->step) % STEPS != 0;
        snprintf(dir, sizeof dir, "%s", uni_result_info_of(got)->run_dir);
    }
    printf("%s: stopped %d times, %d times within an epoch\n", strategy, stops - 1, within);
    CHECK(stops > 5 && within > 4);
    CHECK(atomic_load(&t.all->made) == ALL_STEPS);
    check_same(&calm, expected, &t, got);
    uni_result_free(expected);
    uni_result_free(got);
}

static void steps_stopped(uni_program *program)
{
    stopped(program, "none", 1, false);
    stopped(program, "mirrored", 1, true);
    stopped(program, "multi_worker", 2, true);
}

/* The run has what it wants: told to stop after its last step, it succeeds. */
static void stopped_at_the_end(uni_program *program)
{
    trial t = { .strategy = "multi_worker", .ranks = 2, .stop_at = ALL_STEPS };
    uni_result *got = NULL;
    uni_error err = { 0 };
    pthread_t thread;
    prepare(&t);
    atomic_store(&t.all->held_at, ALL_STEPS);
    CHECK(pthread_create(&thread, NULL, stop_at_random, &t) == 0);
    CHECK_OK(run(program, &t, NULL, &got, &err), &err);
    pthread_join(thread, NULL);
    uni_trainer_free(t.trainer);
    uni_result_free(got);
}

/* The place in an epoch is not that of another epoch. */
static void other_batches(uni_program *program)
{
    trial t = { .strategy = "none", .ranks = 1, .stop_at = 30 };
    uni_result *got = NULL;
    uni_error err = { 0 };
    pthread_t thread;
    char dir[600];
    prepare(&t);
    atomic_store(&t.all->held_at, 30);
    CHECK(pthread_create(&thread, NULL, stop_at_random, &t) == 0);
    CHECK(run(program, &t, NULL, &got, &err) == UNI_EPREEMPTED);
    pthread_join(thread, NULL);
    uni_trainer_free(t.trainer);
    snprintf(dir, sizeof dir, "%s", uni_result_info_of(got)->run_dir);
    uni_result_free(got);
    got = NULL;
    t.batch = 2 * BATCH;
    CHECK(run(program, &t, dir, &got, &err) < 0);
    CHECK_CONTAINS(err.message, "inside of an epoch of 101 batches, and now it has 51");
    uni_trainer_free(t.trainer);
    uni_result_free(got);
}

/* ---- bad input ---- */

static void mistakes(uni_program *program)
{
    static const struct {
        uni_checkpoint_policy policy;
        const char *says;
    } cases[] = {
        { { .every_steps = -1 }, "every_steps is -1" },
        { { .every_seconds = -0.5 }, "every_seconds -0.5" },
        { { .every_seconds = NAN }, "every_seconds" },
        { { .every_seconds = INFINITY }, "every_seconds" },
        { { .every_steps = 5, .num_to_keep = UNI_KEEP_NONE }, "num_to_keep says that none is" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trial t = { .strategy = "none", .ranks = 1, .policy = cases[i].policy };
        uni_result *result = NULL;
        uni_error err = { 0 };
        prepare(&t);
        CHECK(run(program, &t, NULL, &result, &err) == UNI_EINVAL);
        CHECK_CONTAINS(err.message, cases[i].says);
        uni_trainer_free(t.trainer);
        uni_result_free(result);
    }
}

/* Reports of the train function's own: nothing saves between them, and the run says so. */
static void without_a_fit(uni_program *program)
{
    static const struct {
        const char *function;
        uni_checkpoint_policy policy;
        bool said;
    } cases[] = { { "reports", { .every_steps = 5 }, true },
                  { "reports", { .every_seconds = 0.5 }, true },
                  { "reports", { 0 }, false },
                  { "train", { .every_steps = 5 }, false } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trial t = {
            .strategy = "none", .ranks = 1, .policy = cases[i].policy, .function = cases[i].function
        };
        uni_result *result = NULL;
        uni_error err = { 0 };
        prepare(&t);
        CHECK_OK(run(program, &t, NULL, &result, &err), &err);
        CHECK(scenario_journal_says(uni_result_info_of(result)->run_dir,
                                    "no checkpoints are taken between reports") == cases[i].said);
        uni_trainer_free(t.trainer);
        uni_result_free(result);
    }
}

/* A checkpoint of another author. */
static void crafted(uni_program *program)
{
    static const int64_t epochs[] = { INT32_MAX, INT64_MAX, INT64_MIN, -2, (int64_t)1 << 32 };
    for (size_t i = 0; i < sizeof epochs / sizeof epochs[0]; i++) {
        char path[600];
        trial t = { .strategy = "none", .ranks = 1, .from = path };
        uni_result *result = NULL;
        uni_error err = { 0 };
        uni_value *state = uni_value_dict();
        prepare(&t);
        snprintf(path, sizeof path, "%s/crafted_%zu", scenario_storage(), i);
        CHECK(uni_dict_take(state, "epoch", uni_value_int(epochs[i])) == 0);
        CHECK_OK(uni_checkpoint_write_dict(path, state, &err), &err);
        uni_value_free(state);
        CHECK(run(program, &t, NULL, &result, &err) < 0);
        CHECK_CONTAINS(err.message, "the checkpoint is of epoch");
        uni_trainer_free(t.trainer);
        uni_result_free(result);
    }
}

const scenario scenarios[] = {
    { "killed", steps_killed },
    { "killed_by_time", seconds_killed },
    { "stopped", steps_stopped },
    { "stopped_at_the_end", stopped_at_the_end },
    { "other_batches", other_batches },
    { "mistakes", mistakes },
    { "without_a_fit", without_a_fit },
    { "crafted", crafted },
    { NULL, NULL },
};
