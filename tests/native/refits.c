/*
 * refits.c - train functions that call fit three times, with other weights frozen, another
 * optimizer and more metrics: ranks are killed in every one of these fits and replaced, and what
 * the function sees between two fits (history, weights, the optimizer's steps) is what a run sees
 * in which nothing happened.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include <unisono/native.h>

#include "../train/scenario.h"

#define RANKS 3
#define FITS 3
#define SAMPLES 1201
#define FEATURES 6
#define BATCH 24
#define EPOCHS 2
#define STEPS (51 * EPOCHS) /* of a fit */
#define WINDOW 12 /* steps in which a round's ranks die */

/* What the driver and all workers see. Steps are counted over all fits. */
typedef struct shared {
    _Atomic int pids[RANKS], starts[RANKS];
    _Atomic int64_t steps; /* of rank 0 */
    _Atomic int workers; /* that rank 0 has seen */
    _Atomic int64_t held_at; /* rank 0 makes no step after this one */
    _Atomic bool calm;
} shared;

/* ---- a worker ---- */

typedef struct counter {
    shared *all;
    const uni_strategy *strategy;
    int rank;
    int64_t before; /* steps before those that the optimizer counts */
} counter;

static int after_batch(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    const counter *count = self;
    shared *all = count->all;
    int64_t step = count->before + uni_optimizer_iterations(uni_model_optimizer(model));
    if (count->rank == 0) {
        atomic_store(&all->workers, uni_strategy_info_of(count->strategy)->num_workers);
        atomic_store(&all->steps, step);
    }
    while (count->rank == 0 && step >= atomic_load(&all->held_at) && !atomic_load(&all->calm))
        usleep(200);
    return 0;
}

static const uni_callback_class counter_class = { .name = "probe",
                                                  .only_looks = true,
                                                  .after_batch = after_batch };

typedef struct training {
    uni_strategy *strategy;
    uni_model *model;
    counter counts;
    float *x, *y;
    uni_layer *first;
} training;

/* The first fit trains the last layer; then all are trained by another optimizer, with a metric. */
static int compile(training *t, int fit, uni_error *err)
{
    static const char *const metrics[] = { "mae", "mse", NULL };
    if (fit == 2)
        return 0; /* as before, and the optimizer goes on */
    uni_layer_trainable(t->first, fit > 0);
    t->counts.before = fit * STEPS;
    uni_compile_options options = { .optimizer_name = fit == 0 ? "adam" : "rmsprop",
                                    .loss_name = "mse",
                                    .metric_names = fit == 0 ? NULL : metrics };
    UNI_TRY(uni_model_compile(t->model, &options, err));
    return uni_strategy_place(t->strategy, t->model, err);
}

static int see(const training *t, uni_value *history, uni_value *seen, uni_error *err)
{
    size_t count = 0;
    const float *weights = uni_parameters_weights(uni_model_parameters(t->model), &count);
    uni_value *row = uni_value_dict(), *state = NULL;
    UNI_TRY(uni_model_get_state(&state, t->model, err));
    int status = uni_dict_take(row, "weights", uni_value_bytes(weights, count * sizeof(float)));
    status |= uni_dict_take(row, "state", state); /* with the optimizer's */
    status |= uni_dict_take(row, "history", history);
    return status | uni_list_take(seen, row);
}

static int fit_once(training *t, int fit, uni_session *session, uni_value *seen, uni_error *err)
{
    uni_callback *probe = NULL;
    uni_value *history = NULL;
    uni_column xs = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, t->x),
               ys = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, t->y);
    UNI_TRY(compile(t, fit, err));
    UNI_TRY(uni_callback_new(&probe, &counter_class, &t->counts, err));
    uni_fit_options options = { .x = &xs,
                                .num_x = 1,
                                .y = &ys,
                                .num_y = 1,
                                .validation_x = fit == 1 ? &xs : NULL,
                                .validation_y = fit == 1 ? &ys : NULL,
                                .batch_size = BATCH,
                                .epochs = EPOCHS,
                                .threads = 1,
                                .callbacks = &probe,
                                .num_callbacks = 1 };
    UNI_TRY(uni_strategy_fit(&history, t->strategy, t->model, &options, err));
    uni_callback_free(probe);
    UNI_TRY(see(t, history, seen, err));
    return uni_session_report_numbers(session, 1, (const char *const[]){ "fit" },
                                      (const double[]){ fit }, err);
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    static float x[SAMPLES * FEATURES], y[SAMPLES];
    const uni_session_info *info = uni_session_info_of(session);
    uni_dense_options wide = { .activation = "tanh" };
    training t = { .x = x, .y = y };
    t.counts = (counter){ .all = scenario_map(uni_dict_get_string(info->config, "shared", ""),
                                              sizeof(shared)),
                          .rank = info->world_rank };
    if (!t.counts.all)
        return uni_error_set(err, UNI_ESTATE, "no shared memory");
    atomic_store(&t.counts.all->pids[t.counts.rank], getpid());
    atomic_fetch_add(&t.counts.all->starts[t.counts.rank], 1);
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 0;
        for (int j = 0; j < FEATURES; j++) {
            x[i * FEATURES + j] = sinf((float)(i * 7 + j * 3));
            y[i] += x[i * FEATURES + j] * (float)(j + 1) * 0.1f;
        }
    }
    *result = uni_value_list();
    t.first = uni_layer_dense(40, &wide);
    UNI_TRY(uni_strategy_open(&t.strategy, "multi_worker", session, err));
    t.counts.strategy = t.strategy;
    UNI_TRY(
        uni_sequential_new(&t.model, "noisy",
                           UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                                      t.first, uni_layer_batch_normalization(NULL),
                                      uni_layer_dropout(0.3f), uni_layer_dense(1, NULL)),
                           err));
    uni_model_set_seed(t.model, 11);
    for (int fit = 0; fit < FITS; fit++)
        UNI_TRY(fit_once(&t, fit, session, *result, err));
    uni_strategy_free(t.strategy);
    uni_model_free(t.model);
    return 0;
}

const uni_function functions[] = { { "train", train }, { NULL, NULL } };

/* ---- the driver ---- */

typedef struct trial {
    shared *all;
    char path[300];
    uni_trainer_options options;
    uni_trainer *trainer;
    void (*disturb)(struct trial *trial);
    uint64_t random;
    int deaths, status;
    uni_error err;
} trial;

static uint64_t next_random(trial *t)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return t->random >> 33;
}

static void wait_for_steps(const trial *t, int64_t steps)
{
    double begun = scenario_ms();
    while (atomic_load(&t->all->steps) < steps && !atomic_load(&t->all->calm)) {
        CHECK(scenario_ms() - begun < 60000);
        usleep(200);
    }
}

static void wait_for_successor(const trial *t, int rank, int pid)
{
    double begun = scenario_ms();
    while (atomic_load(&t->all->pids[rank]) == pid && !atomic_load(&t->all->calm)) {
        CHECK(scenario_ms() - begun < 60000);
        usleep(100);
    }
}

/* A step of all ranks ends. */
static void wait_for_next_step(const trial *t)
{
    int64_t next = atomic_load(&t->all->steps) + 2;
    atomic_store(&t->all->held_at, next);
    wait_for_steps(t, next);
}

static void kill_in_every_fit(trial *t)
{
    for (int round = 0; round < 3 * FITS; round++) {
        int64_t at = round / 3 * STEPS + 8 + round % 3 * (STEPS - 30) / 3;
        atomic_store(&t->all->held_at, at + WINDOW);
        wait_for_steps(t, at);
        int rank = (int)(next_random(t) % RANKS), pid = atomic_load(&t->all->pids[rank]);
        usleep((useconds_t)(next_random(t) % 6000));
        kill(pid, SIGKILL);
        t->deaths++;
        wait_for_successor(t, rank, pid);
        if (next_random(t) % 2) { /* the new one, too: while it catches up with the others */
            pid = atomic_load(&t->all->pids[rank]);
            usleep((useconds_t)(next_random(t) % 30000));
            kill(pid, SIGKILL);
            t->deaths++;
            wait_for_successor(t, rank, pid);
        }
        wait_for_next_step(t);
    }
}

/* Lets rank 0 make steps until it has made one with that many workers. */
static void wait_for_workers(const trial *t, int workers)
{
    double begun = scenario_ms();
    while (atomic_load(&t->all->workers) != workers) {
        if (scenario_ms() - begun > 60000 || atomic_load(&t->all->calm))
            fprintf(stderr, "%d workers at step %lld, not %d\n", atomic_load(&t->all->workers),
                    (long long)atomic_load(&t->all->steps), workers);
        CHECK(scenario_ms() - begun < 60000 && !atomic_load(&t->all->calm));
        atomic_store(&t->all->held_at, atomic_load(&t->all->steps) + 1);
        usleep(40000); /* a fit has enough steps for a process to start */
    }
}

static void scale_to(trial *t, int workers)
{
    CHECK_OK(uni_trainer_scale(t->trainer, workers, &t->err), &t->err);
    wait_for_workers(t, workers);
}

/* More in the second fit, and a loss; fewer in the third. */
static void scale_in_later_fits(trial *t)
{
    atomic_store(&t->all->held_at, STEPS + 10);
    wait_for_steps(t, STEPS + 10);
    scale_to(t, 3);
    int pid = atomic_load(&t->all->pids[1]);
    kill(pid, SIGKILL); /* the others go on, and it comes back */
    while (atomic_load(&t->all->pids[1]) == pid)
        wait_for_next_step(t);
    wait_for_workers(t, 3);
    atomic_store(&t->all->held_at, 2 * STEPS + 10);
    wait_for_steps(t, 2 * STEPS + 10);
    scale_to(t, 1);
}

static void *disturb(void *argument)
{
    trial *t = argument;
    if (t->disturb)
        t->disturb(t);
    atomic_store(&t->all->calm, true);
    return NULL;
}

static uni_result *run(uni_program *program, trial *t)
{
    static int number;
    pthread_t thread;
    uni_value *config = uni_value_dict();
    uni_result *result = NULL;
    snprintf(t->path, sizeof t->path, "%s/shared_%d", scenario_storage(), number++);
    t->all = scenario_map(t->path, sizeof(shared));
    CHECK(t->all);
    if (t->options.num_workers == 0)
        t->options.num_workers = RANKS;
    uni_trainer *trainer = t->trainer = scenario_trainer(program, t->options);
    CHECK(uni_dict_take(config, "shared", uni_value_string(t->path)) == 0);
    CHECK(pthread_create(&thread, NULL, disturb, t) == 0);
    t->status = uni_trainer_fit(&result, trainer,
                                UNI_OPTIONS(uni_run_options, .function = "train", .config = config),
                                &t->err);
    atomic_store(&t->all->calm, true);
    pthread_join(thread, NULL);
    if (t->status < 0)
        fprintf(stderr, "%s\n", t->err.message);
    CHECK(t->status == 0);
    CHECK(uni_result_info_of(result)->attempts == 1);
    uni_value_free(config);
    uni_trainer_free(trainer);
    return result;
}

/* Every rank has reported after every fit, once. */
static void check_reports(const uni_result *result)
{
    char path[600], line[4000];
    int seen[RANKS][FITS + 1] = { { 0 } };
    snprintf(path, sizeof path, "%s/results.jsonl", uni_result_info_of(result)->run_dir);
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        uni_value *row = NULL;
        CHECK(uni_json_read(&row, line, strlen(line), NULL) == 0);
        int64_t rank = uni_dict_get_int(row, "rank", -1),
                iteration = uni_dict_get_int(row, "iteration", -1);
        if (rank >= 0 && iteration > 0) {
            CHECK(rank < RANKS && iteration <= FITS);
            seen[rank][iteration]++;
        }
        uni_value_free(row);
    }
    fclose(file);
    for (int rank = 0; rank < RANKS; rank++)
        for (int iteration = 1; iteration <= FITS; iteration++)
            CHECK(seen[rank][iteration] == 1);
}

static void killed_in_every_fit(uni_program *program)
{
    trial calm = { 0 };
    uni_result *expected = run(program, &calm);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        trial t = { .disturb = kill_in_every_fit,
                    .random = seed,
                    .options = { .max_failures = -1 } };
        uni_result *got = run(program, &t);
        int starts = 0;
        for (int rank = 0; rank < RANKS; rank++) {
            starts += atomic_load(&t.all->starts[rank]);
            /* The new process has seen, between two fits, what the others saw. */
            CHECK(uni_value_equal(uni_result_info_of(expected)->returned[0],
                                  uni_result_info_of(got)->returned[rank]));
        }
        CHECK(starts <= RANKS + t.deaths); /* no survivor was started again */
        check_reports(got);
        printf("seed %d: %d deaths\n", (int)seed, t.deaths);
        uni_result_free(got);
    }
    uni_result_free(expected);
}

static const float *weights_after(const uni_result *result, size_t fit, size_t *count)
{
    const uni_value *row = uni_list_get(uni_result_info_of(result)->returned[0], fit);
    size_t bytes = 0;
    const float *weights = uni_value_as_bytes(uni_dict_get(row, "weights"), &bytes);
    *count = bytes / sizeof *weights;
    return weights;
}

static void scaled_in_later_fits(uni_program *program)
{
    trial calm = { 0 };
    uni_result *expected = run(program, &calm);
    trial t = { .disturb = scale_in_later_fits,
                .options = {
                    .max_failures = 3, .num_workers = 2, .min_workers = 1, .max_workers = RANKS } };
    uni_result *got = run(program, &t);
    CHECK(atomic_load(&t.all->starts[0]) == 1 && atomic_load(&t.all->starts[1]) == 2);
    for (size_t fit = 0; fit < FITS; fit++) {
        size_t count, other;
        const float *a = weights_after(expected, fit, &count), *b = weights_after(got, fit, &other);
        double most = 0;
        CHECK(count == other && count > 0);
        for (size_t i = 0; i < count; i++)
            most = fmax(most, fabs((double)a[i] - b[i]));
        printf("after fit %zu weights differ by %g at most\n", fit, most);
        CHECK(most < 1e-4);
    }
    uni_result_free(got);
    uni_result_free(expected);
}

const scenario scenarios[] = { { "killed_in_every_fit", killed_in_every_fit },
                               { "scaled_in_later_fits", scaled_in_later_fits },
                               { NULL, NULL } };
