/*
 * elastic.c - ranks of a run are killed, frozen and crash at random moments of fit, and are
 * replaced: survivors keep their processes, and weights, losses, reports and files are those of a
 * run in which nothing happened, bit by bit.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include <unisono/native.h>

#include "../train/scenario.h"

#define RANKS 3
#define SAMPLES 3601
#define FEATURES 8
#define BATCH 24
#define STEPS 151 /* of an epoch */
#define EPOCHS 4
#define ROUNDS 12
#define ROUND_STEPS ((EPOCHS * STEPS - 40) / ROUNDS)
#define CLIP 0.05 /* a norm: below that of most steps */
#define WINDOW 24 /* steps in which a round's ranks die */

/* What the driver and all workers see. */
typedef struct shared {
    _Atomic int pids[RANKS];
    _Atomic int starts[RANKS]; /* processes that ran the train function */
    _Atomic int64_t steps; /* that rank 0 has made */
    /* Rank 0 makes no step after this one, so that the driver is never late: a death after the
     * last step would restart the group. */
    _Atomic int64_t held_at;
    _Atomic bool calm; /* nothing is killed any more, and nothing held */
    _Atomic int crash_rank; /* this rank exits at crash_step, `crashes` times; -1: none */
    _Atomic int crash_step, crashes;
} shared;

/* ---- a worker ---- */

typedef struct counter {
    shared *all;
    int rank;
    int64_t steps;
} counter;

static int after_batch(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    counter *count = self;
    shared *all = count->all;
    int64_t step = uni_optimizer_iterations(uni_model_optimizer(model));
    if (atomic_load(&all->crash_rank) == count->rank && step >= atomic_load(&all->crash_step) &&
        atomic_fetch_sub(&all->crashes, 1) > 0)
        _exit(3);
    if (count->rank == 0)
        atomic_store(&all->steps, step);
    while (count->rank == 0 && step >= atomic_load(&all->held_at) && !atomic_load(&all->calm))
        usleep(200);
    return 0;
}

static const uni_callback_class counter_class = { .name = "probe",
                                                  .only_looks = true,
                                                  .after_batch = after_batch };

static int make_model(uni_model **out, const uni_value *config, uni_error *err)
{
    const char *name = uni_dict_get_string(config, "optimizer", "adam");
    uni_dense_options wide = { .activation = "tanh" };
    /* Plain descent with a kernel so large that ranks exchange its factors. */
    if (strcmp(name, "sgd") == 0)
        UNI_TRY(uni_sequential_new(
            out, "wide",
            UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                       uni_layer_dense(600, &wide), uni_layer_dense(600, &wide),
                       uni_layer_dense(1, NULL)),
            err));
    else
        UNI_TRY(uni_sequential_new(
            out, "noisy",
            UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                       uni_layer_dense(96, &wide), uni_layer_batch_normalization(NULL),
                       uni_layer_dropout(0.3f), uni_layer_dense(1, NULL)),
            err));
    uni_model_set_seed(*out, 11);
    bool each = strcmp(name, "clipped each") == 0, clips = each || strcmp(name, "clipped") == 0;
    uni_compile_options compile = { .optimizer_name = clips ? NULL : name, .loss_name = "mse" };
    if (clips)
        UNI_TRY(uni_optimizer_new(&compile.optimizer, "adam",
                                  &(uni_optimizer_options){ .clip_norm = each ? CLIP : 0,
                                                            .global_clip_norm = each ? 0 : CLIP },
                                  err));
    return uni_model_compile(*out, &compile, err);
}

static int make_callbacks(uni_callback **out, int *count, uni_session *session, counter *counts,
                          uni_error *err)
{
    const uni_session_info *info = uni_session_info_of(session);
    const char *csv = uni_dict_get_string(info->config, "csv", "");
    UNI_TRY(uni_callback_new(&out[(*count)++], &counter_class, counts, err));
    UNI_TRY(uni_callback_report_checkpoint(&out[(*count)++], session, 1, err));
    UNI_TRY(uni_callback_reduce_lr_on_plateau(&out[(*count)++],
                                              &(uni_reduce_lr_options){ .patience = 1 }, err));
    UNI_TRY(uni_callback_early_stopping(
        &out[(*count)++],
        &(uni_early_stopping_options){ .patience = 50, .restore_best_weights = true }, err));
    if (csv[0] && info->world_rank == 0)
        UNI_TRY(uni_callback_csv_logger(&out[(*count)++], csv, 0, false, err));
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
    uni_callback *callbacks[5] = { NULL };
    uni_value *history = NULL;
    int epoch = 0, num_callbacks = 0;
    if (!counts.all)
        return uni_error_set(err, UNI_ESTATE, "no shared memory");
    atomic_store(&counts.all->pids[counts.rank], getpid());
    atomic_fetch_add(&counts.all->starts[counts.rank], 1);
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 0;
        for (int j = 0; j < FEATURES; j++) {
            x[i * FEATURES + j] = sinf((float)(i * 7 + j * 3));
            y[i] += x[i * FEATURES + j] * (float)(j + 1) * 0.1f;
        }
    }
    UNI_TRY(uni_strategy_open(&strategy, "multi_worker", session, err));
    UNI_TRY(make_model(&model, info->config, err));
    UNI_TRY(uni_session_restore_model(&epoch, session, model, err));
    UNI_TRY(uni_strategy_place(strategy, model, err));
    UNI_TRY(make_callbacks(callbacks, &num_callbacks, session, &counts, err));
    uni_column xs = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, x),
               ys = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y);
    uni_fit_options fit = { .x = &xs,
                            .num_x = 1,
                            .y = &ys,
                            .num_y = 1,
                            .validation_x = &xs,
                            .validation_y = &ys,
                            .batch_size = BATCH,
                            .epochs = EPOCHS,
                            .initial_epoch = epoch,
                            .threads = 1,
                            .callbacks = callbacks,
                            .num_callbacks = num_callbacks };
    UNI_TRY(uni_strategy_fit(&history, strategy, model, &fit, err));
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

const uni_function functions[] = { { "train", train }, { NULL, NULL } };

/* ---- the driver ---- */

typedef struct trial {
    shared *all;
    char path[300], csv[300];
    const char *optimizer;
    uni_trainer_options options;
    bool with_csv;
    /* Runs beside the training; NULL: nothing happens. */
    void (*disturb)(struct trial *trial);
    uint64_t random;
    int deaths;
    int status;
    uni_error err;
} trial;

static uint64_t next_random(trial *t)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return t->random >> 33;
}

static void *disturb(void *argument)
{
    trial *t = argument;
    if (t->disturb)
        t->disturb(t);
    atomic_store(&t->all->calm, true);
    return NULL;
}

static void prepare(trial *t)
{
    static int number;
    snprintf(t->path, sizeof t->path, "%s/shared_%d", scenario_storage(), number);
    snprintf(t->csv, sizeof t->csv, "%s/log_%d.csv", scenario_storage(), number++);
    t->all = scenario_map(t->path, sizeof(shared));
    CHECK(t->all);
    atomic_store(&t->all->crash_rank, -1);
}

/* Runs it to its end; the result is also there when it failed. */
static uni_result *run(uni_program *program, trial *t)
{
    pthread_t thread;
    uni_value *config = uni_value_dict();
    uni_result *result = NULL;
    t->options.num_workers = RANKS;
    uni_trainer *trainer = scenario_trainer(program, t->options);
    CHECK(uni_dict_take(config, "shared", uni_value_string(t->path)) == 0);
    CHECK(uni_dict_take(config, "optimizer", uni_value_string(t->optimizer)) == 0);
    if (t->with_csv)
        CHECK(uni_dict_take(config, "csv", uni_value_string(t->csv)) == 0);
    CHECK(pthread_create(&thread, NULL, disturb, t) == 0);
    t->status = uni_trainer_fit(&result, trainer,
                                UNI_OPTIONS(uni_run_options, .function = "train", .config = config),
                                &t->err);
    atomic_store(&t->all->calm, true);
    pthread_join(thread, NULL);
    uni_value_free(config);
    uni_trainer_free(trainer);
    return result;
}

/* Waits until rank 0 has made that many steps. */
static void wait_for_steps(const trial *t, int64_t steps)
{
    double begun = scenario_ms();
    while (atomic_load(&t->all->steps) < steps && !atomic_load(&t->all->calm)) {
        CHECK(scenario_ms() - begun < 60000);
        usleep(200);
    }
}

/* Lets the steps of a round come, and waits for the first. */
static void begin_round(const trial *t, int round)
{
    atomic_store(&t->all->held_at, round * ROUND_STEPS + WINDOW);
    wait_for_steps(t, round * ROUND_STEPS);
}

/* Waits until a step of all ranks has ended. */
static void wait_for_next_step(const trial *t)
{
    int64_t next = atomic_load(&t->all->steps) + 2;
    atomic_store(&t->all->held_at, next);
    wait_for_steps(t, next);
}

static void check_same(const uni_result *expected, const uni_result *got)
{
    for (int rank = 0; rank < RANKS; rank++) {
        const uni_value *a = uni_result_info_of(expected)->returned[0],
                        *b = uni_result_info_of(got)->returned[rank];
        size_t sizes[2];
        const void *weights[2] = { uni_value_as_bytes(uni_dict_get(a, "weights"), &sizes[0]),
                                   uni_value_as_bytes(uni_dict_get(b, "weights"), &sizes[1]) };
        CHECK(sizes[0] == sizes[1] && sizes[0] > 0);
        CHECK(memcmp(weights[0], weights[1], sizes[0]) == 0);
        CHECK(uni_value_equal(uni_dict_get(a, "history"), uni_dict_get(b, "history")));
    }
}

/* Every rank has reported every epoch once. */
static void check_reports(const uni_result *result)
{
    char path[600], line[4000];
    int seen[RANKS][EPOCHS + 1] = { { 0 } };
    snprintf(path, sizeof path, "%s/results.jsonl", uni_result_info_of(result)->run_dir);
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        uni_value *row = NULL;
        CHECK(uni_json_read(&row, line, strlen(line), NULL) == 0);
        int64_t rank = uni_dict_get_int(row, "rank", -1),
                iteration = uni_dict_get_int(row, "iteration", -1);
        if (rank >= 0 && iteration > 0) {
            CHECK(rank < RANKS && iteration <= EPOCHS);
            seen[rank][iteration]++;
        }
        uni_value_free(row);
    }
    fclose(file);
    for (int rank = 0; rank < RANKS; rank++)
        for (int iteration = 1; iteration <= EPOCHS; iteration++)
            CHECK(seen[rank][iteration] == 1);
}

static void check_replaced(trial *t, const uni_result *expected, const uni_result *got)
{
    if (t->status < 0)
        fprintf(stderr, "%s\n", t->err.message);
    CHECK(t->status == 0);
    CHECK(uni_result_info_of(got)->attempts == 1);
    check_same(expected, got);
    check_reports(got);
}

static uni_result *undisturbed(uni_program *program, const char *optimizer)
{
    trial t = { .optimizer = optimizer };
    prepare(&t);
    uni_result *result = run(program, &t);
    CHECK(t.status == 0);
    check_same(result, result);
    check_reports(result);
    return result;
}

/* ---- killed ---- */

static void kill_rank(trial *t, int rank)
{
    kill(atomic_load(&t->all->pids[rank]), SIGKILL);
    t->deaths++;
}

/* Waits until the rank has a process that is not this one. */
static void wait_for_successor(const trial *t, int rank, int pid)
{
    double begun = scenario_ms();
    while (atomic_load(&t->all->pids[rank]) == pid && !atomic_load(&t->all->calm)) {
        CHECK(scenario_ms() - begun < 60000);
        usleep(100);
    }
}

/* Ranks die one or two at a time, at any moment of steps, validation and the ends of epochs. */
static void kill_at_random(trial *t)
{
    for (int round = 1; round < ROUNDS; round++) {
        begin_round(t, round);
        int first = (int)(next_random(t) % RANKS), count = 1 + next_random(t) % 2;
        usleep((useconds_t)(next_random(t) % 8000));
        int pids[2];
        for (int i = 0; i < count; i++) {
            pids[i] = atomic_load(&t->all->pids[(first + i) % RANKS]);
            kill_rank(t, (first + i) % RANKS);
        }
        for (int i = 0; i < count; i++)
            wait_for_successor(t, (first + i) % RANKS, pids[i]);
        wait_for_next_step(t); /* all are in it: one of them is left when the next ones die */
    }
}

static void replaced(uni_program *program, const char *optimizer, uint64_t seed,
                     void (*how)(trial *t))
{
    uni_result *expected = undisturbed(program, optimizer);
    trial t = {
        .optimizer = optimizer, .options = { .max_failures = -1 }, .disturb = how, .random = seed
    };
    prepare(&t);
    uni_result *got = run(program, &t);
    check_replaced(&t, expected, got);
    int starts = 0;
    for (int rank = 0; rank < RANKS; rank++)
        starts += atomic_load(&t.all->starts[rank]);
    CHECK(starts <= RANKS + t.deaths); /* no survivor was started again */
    printf("%s: %d deaths\n", optimizer, t.deaths);
    uni_result_free(expected);
    uni_result_free(got);
}

static void killed_at_random(uni_program *program)
{
    replaced(program, "adam", 4711, kill_at_random);
    replaced(program, "rmsprop", 17, kill_at_random);
}

/* All ranks of a step need the norm of the whole gradient, also that of the dead rank's slice. */
static void killed_while_clipping(uni_program *program)
{
    replaced(program, "clipped", 31, kill_at_random);
    replaced(program, "clipped each", 32, kill_at_random);
}

/* A rank that dies while it updates such a kernel restarts the group: the weights are the same, and
 * at other moments it is replaced. */
static void killed_with_factors(uni_program *program)
{
    uni_result *expected = undisturbed(program, "sgd");
    trial t = { .optimizer = "sgd",
                .options = { .max_failures = -1 },
                .disturb = kill_at_random,
                .random = 5 };
    prepare(&t);
    uni_result *got = run(program, &t);
    CHECK(t.status == 0);
    check_same(expected, got);
    int starts = 0;
    for (int rank = 0; rank < RANKS; rank++)
        starts += atomic_load(&t.all->starts[rank]);
    printf("sgd: %d deaths, %d attempts\n", t.deaths, uni_result_info_of(got)->attempts);
    CHECK(starts < RANKS * (1 + t.deaths));
    uni_result_free(expected);
    uni_result_free(got);
}

/* A rank dies, its successor while it joins, and maybe a survivor meanwhile. */
static void kill_the_new(trial *t)
{
    for (int round = 1; round < ROUNDS; round += 3) {
        begin_round(t, round);
        int rank = (int)(next_random(t) % RANKS);
        for (int times = 0; times < 3; times++) {
            int pid = atomic_load(&t->all->pids[rank]);
            kill_rank(t, rank);
            wait_for_successor(t, rank, pid);
            usleep((useconds_t)(next_random(t) % 30000));
        }
        int other = (rank + 1) % RANKS, pid = atomic_load(&t->all->pids[other]);
        kill_rank(t, other);
        wait_for_successor(t, other, pid);
        wait_for_next_step(t);
    }
}

static void killed_while_joining(uni_program *program)
{
    replaced(program, "adam", 99, kill_the_new);
}

/* ---- frozen ---- */

static void stop_for_good(trial *t)
{
    begin_round(t, 1);
    int pid = atomic_load(&t->all->pids[1]);
    double begun = scenario_ms();
    kill(pid, SIGSTOP);
    wait_for_successor(t, 1, pid);
    printf("a stopped rank was replaced after %.0f ms\n", scenario_ms() - begun);
    CHECK(scenario_ms() - begun < 4500); /* the default for ranks that cannot be replaced is 5 s */
}

/* Long enough for the others to give it up, not for the controller. */
static void stop_for_a_moment(trial *t)
{
    for (int i = 1; i < 3; i++) {
        begin_round(t, i);
        int pid = atomic_load(&t->all->pids[i]);
        kill(pid, SIGSTOP);
        scenario_sleep_ms(700);
        kill(pid, SIGCONT);
        wait_for_next_step(t);
    }
}

static void frozen(uni_program *program)
{
    uni_result *expected = undisturbed(program, "adam");
    trial ended = { .optimizer = "adam", .disturb = stop_for_good };
    prepare(&ended);
    uni_result *got = run(program, &ended);
    check_replaced(&ended, expected, got);
    CHECK(atomic_load(&ended.all->starts[1]) == 2);
    CHECK(atomic_load(&ended.all->starts[0]) == 1 && atomic_load(&ended.all->starts[2]) == 1);
    uni_result_free(got);
    trial continued = { .optimizer = "adam",
                        .options = { .silent_timeout = 60 },
                        .disturb = stop_for_a_moment };
    prepare(&continued);
    got = run(program, &continued);
    check_replaced(&continued, expected, got);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(atomic_load(&continued.all->starts[rank]) == 1);
    uni_result_free(got);
    uni_result_free(expected);
}

/* ---- what is not replaced, and when it is too much ---- */

static void kill_the_chief(trial *t)
{
    begin_round(t, 5); /* past the first checkpoint */
    kill_rank(t, 0);
}

static char *read_text(const char *path)
{
    static char text[2][8000];
    static int turn;
    turn = !turn;
    FILE *file = fopen(path, "r");
    CHECK(file);
    text[turn][fread(text[turn], 1, sizeof text[0] - 1, file)] = '\0';
    fclose(file);
    return text[turn];
}

/* What only the chief's callback remembers dies with it: the group restarts from its checkpoint,
 * and the file is the same. */
static void chief_with_a_log(uni_program *program)
{
    trial calm = { .optimizer = "adam", .with_csv = true };
    prepare(&calm);
    uni_result *expected = run(program, &calm);
    CHECK(calm.status == 0);
    trial t = { .optimizer = "adam", .with_csv = true, .disturb = kill_the_chief };
    prepare(&t);
    uni_result *got = run(program, &t);
    CHECK(t.status == 0);
    CHECK(uni_result_info_of(got)->attempts == 2);
    check_same(expected, got);
    CHECK(strcmp(read_text(calm.csv), read_text(t.csv)) == 0);
    uni_result_free(expected);
    uni_result_free(got);
}

/* A rank that crashes is replaced as often as max_failures allows; then the run fails by it. */
static void crashes(uni_program *program)
{
    for (int enough = 0; enough < 2; enough++) {
        trial t = { .optimizer = "adam", .options = { .max_failures = 2 } };
        prepare(&t);
        atomic_store(&t.all->crash_step, 30);
        atomic_store(&t.all->crashes, enough ? 2 : 100);
        atomic_store(&t.all->crash_rank, 1);
        uni_result *got = run(program, &t);
        CHECK((t.status == 0) == (enough == 1));
        CHECK(uni_result_info_of(got)->attempts == 1);
        CHECK(atomic_load(&t.all->starts[1]) == 3 && atomic_load(&t.all->starts[0]) == 1);
        if (!enough) {
            CHECK_CONTAINS(t.err.message, "rank 1");
            CHECK_CONTAINS(t.err.message, "exited with code 3");
            CHECK_CONTAINS(t.err.message, "max_failures");
        }
        uni_result_free(got);
    }
}

const scenario scenarios[] = {
    { "killed_at_random", killed_at_random },
    { "killed_while_joining", killed_while_joining },
    { "killed_with_factors", killed_with_factors },
    { "killed_while_clipping", killed_while_clipping },
    { "frozen", frozen },
    { "chief_with_a_log", chief_with_a_log },
    { "crashes", crashes },
    { NULL, NULL },
};
