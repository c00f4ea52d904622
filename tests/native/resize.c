/*
 * resize.c - the number of workers changes while fit goes on: workers are killed, told to leave,
 * and join, at random moments. Survivors keep their processes, every sample is trained exactly once
 * an epoch, and weights and losses are, to rounding, those of a run in which nothing happened.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include <unisono/native.h>
#include <unisono/nn_dataset.h>

#include "../train/scenario.h"

#define MOST 4
#define SAMPLES 2403
#define FEATURES 6
#define BATCH 24
#define STEPS 101 /* of an epoch */
#define EPOCHS 5
#define ROUNDS 24
#define ROUND_STEPS ((EPOCHS * STEPS - 25) / ROUNDS)
#define WINDOW 12 /* steps in which a round's changes come */
#define OFTEN 80
#define OFTEN_STEPS (EPOCHS * STEPS / (OFTEN + 2))

/* What the driver and all workers see. */
typedef struct shared {
    _Atomic int pids[MOST];
    _Atomic int starts[MOST]; /* processes that ran the train function */
    _Atomic int last_workers; /* that rank 0 has seen */
    _Atomic int64_t steps; /* that rank 0 has made */
    _Atomic int64_t held_at; /* rank 0 makes no step after this one */
    _Atomic bool calm; /* nothing happens any more, and nothing is held */
    _Atomic bool ends_held; /* ranks wait after the last epoch */
    _Atomic int at_end; /* how many have come there */
} shared;

/* ---- a worker ---- */

typedef struct probe {
    shared *all;
    const uni_strategy *strategy;
    int rank;
} probe;

static int after_batch(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    const probe *mine = self;
    shared *all = mine->all;
    if (mine->rank != 0)
        return 0;
    int64_t step = uni_optimizer_iterations(uni_model_optimizer(model));
    atomic_store(&all->last_workers, uni_strategy_info_of(mine->strategy)->num_replicas_in_sync);
    atomic_store(&all->steps, step);
    while (step >= atomic_load(&all->held_at) && !atomic_load(&all->calm))
        usleep(200);
    return 0;
}

static int train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    shared *all = ((const probe *)self)->all;
    atomic_fetch_add(&all->at_end, 1);
    while (atomic_load(&all->ends_held) && !atomic_load(&all->calm))
        usleep(200);
    return 0;
}

static const uni_callback_class probe_class = {
    .name = "probe", .only_looks = true, .after_batch = after_batch, .train_end = train_end
};

static float xs[SAMPLES * FEATURES], ys[SAMPLES];

static void make_data(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        ys[i] = 0;
        for (int j = 0; j < FEATURES; j++) {
            xs[i * FEATURES + j] = sinf((float)(i * 5 + j * 3));
            ys[i] += xs[i * FEATURES + j] * (float)(j + 1) * 0.2f;
        }
    }
}

static int make_model(uni_model **out, const char *optimizer, uni_error *err)
{
    uni_dense_options wide = { .activation = "tanh" };
    UNI_TRY(uni_sequential_new(
        out, "noisy",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                   uni_layer_dense(48, &wide), uni_layer_batch_normalization(NULL),
                   uni_layer_dropout(0.2f), uni_layer_dense(1, NULL)),
        err));
    uni_model_set_seed(*out, 3);
    return uni_model_compile(
        *out, &(uni_compile_options){ .optimizer_name = optimizer, .loss_name = "mse" }, err);
}

/* The same rows as a dataset in a keyed order. */
static int make_batches(uni_batches **out, uni_dataset **dataset, uni_error *err)
{
    uni_array *x = NULL, *y = NULL;
    uni_dataset *rows = NULL;
    UNI_TRY(uni_array_new(&x, UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, err));
    UNI_TRY(uni_array_new(&y, UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, err));
    memcpy(uni_array_data(x), xs, sizeof xs);
    memcpy(uni_array_data(y), ys, sizeof ys);
    UNI_TRY(uni_dataset_from_arrays(&rows, 2, (const char *const[]){ "x", "y" },
                                    (uni_array *const[]){ x, y }, err));
    uni_array_unref(x);
    uni_array_unref(y);
    UNI_TRY(uni_dataset_shuffle(dataset, rows, 0, 9, err));
    uni_dataset_unref(rows);
    return uni_batches_dataset(out, *dataset,
                               &(uni_dataset_columns){ .x = (const char *const[]){ "x", NULL },
                                                       .y = (const char *const[]){ "y", NULL },
                                                       .data = { .batch_size = BATCH } },
                               err);
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_session_info *info = uni_session_info_of(session);
    const char *data = uni_dict_get_string(info->config, "data", "");
    probe mine = { .all = scenario_map(uni_dict_get_string(info->config, "shared", ""),
                                       sizeof(shared)),
                   .rank = info->world_rank };
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_callback *callbacks[3] = { NULL };
    uni_batches *batches = NULL;
    uni_dataset *dataset = NULL;
    uni_value *history = NULL;
    int epoch = 0;
    if (!mine.all)
        return uni_error_set(err, UNI_ESTATE, "no shared memory");
    atomic_store(&mine.all->pids[mine.rank], getpid());
    atomic_fetch_add(&mine.all->starts[mine.rank], 1);
    make_data();
    UNI_TRY(uni_strategy_open(&strategy, "multi_worker", session, err));
    mine.strategy = strategy;
    UNI_TRY(make_model(&model, uni_dict_get_string(info->config, "optimizer", "adam"), err));
    UNI_TRY(uni_session_restore_model(&epoch, session, model, err));
    UNI_TRY(uni_strategy_place(strategy, model, err));
    UNI_TRY(uni_callback_new(&callbacks[0], &probe_class, &mine, err));
    UNI_TRY(uni_callback_report_checkpoint(&callbacks[1], session, 1, err));
    UNI_TRY(uni_callback_reduce_lr_on_plateau(&callbacks[2],
                                              &(uni_reduce_lr_options){ .patience = 1 }, err));
    uni_column x = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, xs),
               y = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, ys);
    uni_fit_options fit = { .x = &x,
                            .num_x = 1,
                            .y = &y,
                            .num_y = 1,
                            .validation_x = &x,
                            .validation_y = &y,
                            .batch_size = BATCH,
                            .epochs = EPOCHS,
                            .initial_epoch = epoch,
                            .threads = 1,
                            .callbacks = callbacks,
                            .num_callbacks = 3 };
    if (strcmp(data, "dataset") == 0) {
        UNI_TRY(make_batches(&batches, &dataset, err));
        fit.batches = batches;
        fit.x = fit.y = NULL;
        fit.batch_size = 0;
    }
    UNI_TRY(uni_strategy_fit(&history, strategy, model, &fit, err));
    size_t count = 0;
    const float *weights = uni_parameters_weights(uni_model_parameters(model), &count);
    *result = uni_value_dict();
    int status = uni_dict_take(*result, "weights", uni_value_bytes(weights, count * sizeof(float)));
    status |= uni_dict_take(*result, "history", history);
    status |= uni_dict_take(*result, "steps",
                            uni_value_int(uni_optimizer_iterations(uni_model_optimizer(model))));
    uni_strategy_free(strategy);
    for (int i = 0; i < 3; i++)
        uni_callback_free(callbacks[i]);
    uni_batches_free(batches);
    uni_dataset_unref(dataset);
    uni_model_free(model);
    return status;
}

const uni_function functions[] = { { "train", train }, { NULL, NULL } };

/* ---- the driver ---- */

typedef struct trial {
    shared *all;
    char path[300];
    const char *optimizer, *data;
    uni_trainer_options options;
    uni_trainer *trainer;
    void (*disturb)(struct trial *trial);
    uint64_t random;
    int kills, scales, status;
    uni_error err;
} trial;

static int next_random(trial *t, int below)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((t->random >> 33) % (uint64_t)below);
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
    snprintf(t->path, sizeof t->path, "%s/shared_%d", scenario_storage(), number++);
    t->all = scenario_map(t->path, sizeof(shared));
    CHECK(t->all);
}

static uni_result *run(uni_program *program, trial *t)
{
    pthread_t thread;
    uni_value *config = uni_value_dict();
    uni_result *result = NULL;
    prepare(t);
    t->trainer = scenario_trainer(program, t->options);
    CHECK(uni_dict_take(config, "shared", uni_value_string(t->path)) == 0);
    CHECK(uni_dict_take(config, "optimizer", uni_value_string(t->optimizer)) == 0);
    CHECK(uni_dict_take(config, "data", uni_value_string(t->data ? t->data : "")) == 0);
    CHECK(pthread_create(&thread, NULL, disturb, t) == 0);
    t->status = uni_trainer_fit(&result, t->trainer,
                                UNI_OPTIONS(uni_run_options, .function = "train", .config = config),
                                &t->err);
    if (t->status < 0)
        fprintf(stderr, "%s\n", t->err.message);
    atomic_store(&t->all->calm, true);
    pthread_join(thread, NULL);
    uni_value_free(config);
    uni_trainer_free(t->trainer);
    return result;
}

static void wait_for_steps(const trial *t, int64_t steps)
{
    double begun = scenario_ms();
    while (atomic_load(&t->all->steps) < steps && !atomic_load(&t->all->calm)) {
        CHECK(scenario_ms() - begun < 60000);
        usleep(200);
    }
}

static void begin_round(const trial *t, int round)
{
    atomic_store(&t->all->held_at, round * ROUND_STEPS + WINDOW);
    wait_for_steps(t, round * ROUND_STEPS);
}

/* Lets rank 0 make steps until it has made one with that many workers. */
static void wait_for_workers(const trial *t, int workers)
{
    double begun = scenario_ms();
    while (atomic_load(&t->all->last_workers) != workers && !atomic_load(&t->all->calm)) {
        if (scenario_ms() - begun > 60000)
            fprintf(stderr, "%d workers after a minute, not %d\n",
                    atomic_load(&t->all->last_workers), workers);
        CHECK(scenario_ms() - begun < 60000);
        atomic_store(&t->all->held_at, atomic_load(&t->all->steps) + 1);
        usleep(5000);
    }
}

/* Kills that rank, and waits until another process has joined in its place. */
static void kill_and_wait(trial *t, int rank)
{
    int pid = atomic_load(&t->all->pids[rank]);
    double begun = scenario_ms();
    kill(pid, SIGKILL);
    t->kills++;
    while (atomic_load(&t->all->pids[rank]) == pid && !atomic_load(&t->all->calm)) {
        CHECK(scenario_ms() - begun < 60000);
        atomic_store(&t->all->held_at, atomic_load(&t->all->steps) + 1);
        usleep(5000);
    }
    wait_for_workers(t, MOST);
}

static double number_at(const uni_value *list, size_t index)
{
    return uni_value_as_float(uni_list_get(list, index), NAN);
}

/* Equal to rounding: relative to the largest of them. */
static void check_near(const float *a, const float *b, size_t count)
{
    double largest = 0, worst = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)a[i]));
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    }
    printf("the weights differ by %.2g\n", worst / largest);
    CHECK(worst <= 1e-5 * largest);
}

static void check_result(const uni_result *expected, const uni_result *got)
{
    const uni_value *a = uni_result_info_of(expected)->returned[0],
                    *b = uni_result_info_of(got)->returned[0];
    size_t sizes[2];
    const float *weights[2] = { uni_value_as_bytes(uni_dict_get(a, "weights"), &sizes[0]),
                                uni_value_as_bytes(uni_dict_get(b, "weights"), &sizes[1]) };
    CHECK(sizes[0] == sizes[1] && sizes[0] > 0);
    CHECK(uni_dict_get_int(b, "steps", 0) == (int64_t)EPOCHS * STEPS);
    check_near(weights[0], weights[1], sizes[0] / sizeof(float));
    static const char *const names[] = { "loss", "val_loss" };
    for (int i = 0; i < 2; i++) {
        const uni_value *x = uni_dict_get(uni_dict_get(a, "history"), names[i]),
                        *y = uni_dict_get(uni_dict_get(b, "history"), names[i]);
        CHECK(uni_list_size(x) == EPOCHS && uni_list_size(y) == EPOCHS);
        for (size_t epoch = 0; epoch < EPOCHS; epoch++)
            CHECK(fabs(number_at(x, epoch) - number_at(y, epoch)) <= 1e-5 * number_at(x, 0));
    }
}

/* No rank has reported an epoch twice, and rank 0 has reported all. */
static void check_reports(const uni_result *result)
{
    char path[600], line[4000];
    int seen[MOST][EPOCHS + 1] = { { 0 } };
    snprintf(path, sizeof path, "%s/results.jsonl", uni_result_info_of(result)->run_dir);
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        uni_value *row = NULL;
        CHECK(uni_json_read(&row, line, strlen(line), NULL) == 0);
        int64_t rank = uni_dict_get_int(row, "rank", -1),
                iteration = uni_dict_get_int(row, "iteration", -1);
        if (rank >= 0 && iteration > 0) {
            CHECK(rank < MOST && iteration <= EPOCHS);
            CHECK(uni_dict_get_int(uni_dict_get(row, "metrics"), "epoch", iteration - 1) ==
                  iteration - 1);
            seen[rank][iteration]++;
        }
        uni_value_free(row);
    }
    fclose(file);
    for (int iteration = 1; iteration <= EPOCHS; iteration++) {
        CHECK(seen[0][iteration] == 1);
        for (int rank = 1; rank < MOST; rank++)
            CHECK(seen[rank][iteration] <= 1);
    }
}

static void stir(trial *t);

static void resized(uni_program *program, trial disturbed)
{
    trial calm = disturbed;
    calm.disturb = NULL;
    uni_result *expected = run(program, &calm);
    CHECK(calm.status == 0);
    uni_result *got = run(program, &disturbed);
    CHECK(disturbed.status == 0);
    check_result(expected, got);
    check_reports(got);
    int attempts = uni_result_info_of(got)->attempts;
    printf("%d scales, %d kills, %d attempts\n", disturbed.scales, disturbed.kills, attempts);
    CHECK(disturbed.disturb == stir ? attempts <= 1 + disturbed.kills / 2 : attempts == 1);
    uni_result_free(expected);
    uni_result_free(got);
}

/* ---- what happens ---- */

static void scale_to(trial *t, int workers)
{
    uni_error err = { 0 };
    int status = uni_trainer_scale(t->trainer, workers, &err);
    if (atomic_load(&t->all->calm))
        return; /* the run is over, and says why */
    CHECK_OK(status, &err);
    t->scales++;
}

static void scale_at_random(trial *t)
{
    for (int round = 1; round < ROUNDS; round++) {
        begin_round(t, round);
        int workers = 1 + next_random(t, MOST);
        usleep((useconds_t)next_random(t, 3000));
        scale_to(t, workers);
        wait_for_workers(t, workers);
    }
    CHECK(atomic_load(&t->all->starts[0]) == 1);
}

static const uni_trainer_options one_to_four = {
    .num_workers = 2, .min_workers = 1, .max_workers = MOST, .max_failures = -1
};

static void scaled(uni_program *program)
{
    resized(program, (trial){ .optimizer = "adam",
                              .options = one_to_four,
                              .disturb = scale_at_random,
                              .random = 12 });
}

static void scaled_dataset(uni_program *program)
{
    resized(program, (trial){ .optimizer = "rmsprop",
                              .data = "dataset",
                              .options = one_to_four,
                              .disturb = scale_at_random,
                              .random = 5 });
}

/* Ranks die, and the others go on at once; their successors join later. */
static void kill_at_random(trial *t)
{
    for (int round = 1; round < ROUNDS; round += 2) {
        begin_round(t, round);
        usleep((useconds_t)next_random(t, 4000));
        kill_and_wait(t, 1 + next_random(t, MOST - 1));
    }
    CHECK(atomic_load(&t->all->starts[0]) == 1);
}

static void killed(uni_program *program)
{
    resized(program,
            (trial){ .optimizer = "adam",
                     .options = { .num_workers = MOST, .min_workers = 2, .max_failures = -1 },
                     .disturb = kill_at_random,
                     .random = 71 });
}

/* Anything at any time: the chief dies too, and two at once, and nothing is waited for. Where no
 * rank is left that has the weights, the group restarts from its checkpoint. */
static void stir(trial *t)
{
    for (int round = 1; round < ROUNDS; round++) {
        begin_round(t, round);
        for (int i = next_random(t, 3); i >= 0; i--) {
            usleep((useconds_t)next_random(t, 20000));
            int rank = next_random(t, MOST), pid = atomic_load(&t->all->pids[rank]);
            if (next_random(t, 2) == 0) {
                scale_to(t, 1 + next_random(t, MOST));
            } else if (pid > 0 && kill(pid, SIGKILL) == 0) {
                t->kills++;
            }
        }
    }
    scale_to(t, 3);
    wait_for_workers(t, 3);
}

static void stirred(uni_program *program)
{
    resized(
        program,
        (trial){ .optimizer = "adam", .options = one_to_four, .disturb = stir, .random = 2026 });
}

/* More often than processes start, so that ranks die in the meetings of others. The chief stays:
 * with it, there is always a rank that has the weights, and the group never restarts. */
static void stir_often(trial *t)
{
    for (int i = 1; i <= OFTEN; i++) {
        atomic_store(&t->all->held_at, (i + 1) * OFTEN_STEPS);
        wait_for_steps(t, i * OFTEN_STEPS);
        usleep((useconds_t)next_random(t, 60000));
        int rank = 1 + next_random(t, MOST - 1);
        int pid = atomic_exchange(&t->all->pids[rank], 0);
        if (pid > 0 && next_random(t, 4) > 0 && kill(pid, SIGKILL) == 0)
            t->kills++;
        else
            scale_to(t, 1 + next_random(t, MOST));
    }
}

static void stirred_often(uni_program *program)
{
    resized(program,
            (trial){
                .optimizer = "adam", .options = one_to_four, .disturb = stir_often, .random = 41 });
}

/* SIGTERM to one worker: it leaves, and is not started again. */
static void terminate_one(trial *t)
{
    begin_round(t, 2);
    kill(atomic_load(&t->all->pids[2]), SIGTERM);
    wait_for_workers(t, MOST - 1);
    begin_round(t, 6);
    CHECK(atomic_load(&t->all->last_workers) == MOST - 1);
    CHECK(atomic_load(&t->all->starts[2]) == 1);
}

static void terminated(uni_program *program)
{
    resized(program, (trial){ .optimizer = "adam",
                              .options = { .num_workers = MOST, .min_workers = 2 },
                              .disturb = terminate_one });
}

/* A worker that dies again and again: the others go on with fewer when the budget is used up. */
static void kill_one_for_good(trial *t)
{
    for (int round = 1; round < 4; round++) {
        begin_round(t, round);
        if (round < 3)
            kill_and_wait(t, 1);
        else
            kill(atomic_load(&t->all->pids[1]), SIGKILL);
    }
    wait_for_workers(t, MOST - 1);
    begin_round(t, 8);
    CHECK(atomic_load(&t->all->last_workers) == MOST - 1);
    CHECK(atomic_load(&t->all->starts[1]) == 3);
}

static void budget_used_up(uni_program *program)
{
    resized(program,
            (trial){ .optimizer = "adam",
                     .options = { .num_workers = MOST, .min_workers = 2, .max_failures = 2 },
                     .disturb = kill_one_for_good });
}

/* ---- at the end of fit ---- */

static void wait_for_count(const trial *t, _Atomic int *count, int wanted)
{
    double begun = scenario_ms();
    while (atomic_load(count) < wanted && !atomic_load(&t->all->calm)) {
        CHECK(scenario_ms() - begun < 60000);
        usleep(200);
    }
}

/* After the last call of the last epoch, when no rank waits for another any more. The new processes
 * are let in while the others are held, and come to the end themselves. */
static void hold_ends(trial *t, int workers)
{
    atomic_store(&t->all->ends_held, true);
    atomic_store(&t->all->held_at, EPOCHS * STEPS + 1);
    wait_for_count(t, &t->all->at_end, workers);
}

static void kill_at_the_end(trial *t)
{
    hold_ends(t, MOST);
    kill(atomic_load(&t->all->pids[2]), SIGKILL);
    t->kills++;
    wait_for_count(t, &t->all->starts[2], 2);
    usleep(200000);
}

static void grow_at_the_end(trial *t)
{
    hold_ends(t, 2);
    scale_to(t, MOST);
    wait_for_count(t, &t->all->starts[MOST - 1], 1);
    usleep(200000);
}

/* Those that are to leave come to the end as the others do, and one of them last. */
static void shrink_at_the_end(trial *t)
{
    hold_ends(t, MOST);
    scale_to(t, 1);
    usleep(50000);
}

static void ended(uni_program *program)
{
    const uni_trainer_options fixed = { .num_workers = MOST, .max_failures = -1 };
    uni_trainer_options least = fixed;
    least.min_workers = 2;
    resized(program, (trial){ .optimizer = "adam", .options = fixed, .disturb = kill_at_the_end });
    resized(program, (trial){ .optimizer = "adam", .options = least, .disturb = kill_at_the_end });
    resized(program,
            (trial){ .optimizer = "adam", .options = one_to_four, .disturb = grow_at_the_end });
    least.min_workers = 1;
    resized(program,
            (trial){ .optimizer = "adam", .options = least, .disturb = shrink_at_the_end });
}

/* ---- bad input ---- */

static void refused(uni_program *program)
{
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    const uni_trainer_options wrong[] = {
        { .num_workers = 2, .min_workers = 3 },
        { .num_workers = 5, .min_workers = 2, .max_workers = 4 },
        { .num_workers = 1, .min_workers = 2, .max_workers = 4 },
        { .min_workers = -1, .max_workers = 4 },
        { .num_workers = 2, .max_workers = 1000 },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uni_trainer_options options = wrong[i];
        options.size = sizeof options;
        options.main = program;
        CHECK(uni_trainer_new(&trainer, &options, &err) == UNI_EINVAL);
        CHECK_CONTAINS(err.message, "min_workers");
    }
    trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK(uni_trainer_scale(trainer, 1, &err) == UNI_ESTATE);
    CHECK_CONTAINS(err.message, "always has 2 workers");
    uni_trainer_free(trainer);
    trainer = scenario_trainer(program, one_to_four);
    CHECK(uni_trainer_scale(trainer, 0, &err) == UNI_EINVAL);
    CHECK_CONTAINS(err.message, "1 to 4 workers, not 0");
    CHECK(uni_trainer_scale(trainer, 5, &err) == UNI_EINVAL);
    CHECK(uni_trainer_scale(trainer, 3, &err) == UNI_ESTATE);
    CHECK_CONTAINS(err.message, "no run");
    uni_trainer_free(trainer);
}

const scenario scenarios[] = {
    { "stirred_often", stirred_often },
    { "scaled", scaled },
    { "scaled_dataset", scaled_dataset },
    { "killed", killed },
    { "stirred", stirred },
    { "terminated", terminated },
    { "budget_used_up", budget_used_up },
    { "ended", ended },
    { "refused", refused },
    { NULL, NULL },
};
