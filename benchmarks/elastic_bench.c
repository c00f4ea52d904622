/*
 * elastic_bench.c - ./bench elastic: what it takes when ranks are killed, leave and join (MNIST CNN
 * with Adam). Survivors keep their processes.
 *
 *   kill_to_step_ms     from kill -9 of one of two to four workers to the end of the next step of
 *                       all others, which go on without it
 *   kill_to_replaced_ms the same with four workers, which wait for its replacement
 *   grow_ms             from uni_trainer_scale to the end of the first step with four workers
 *                       instead of two
 *   elastic_overhead_*  what being replaceable costs of a step, in percent (negative: noise)
 *   checkpoint_every_step_overhead  what a checkpoint every 100 steps costs of a step, in percent
 *   elastic_exact_bits  1 when weights and losses of the run with replaced ranks are those of the
 *                       undisturbed one, bit by bit, no survivor was started again and no group
 *                       restarted
 *   elastic_exact       1 when one run in which ranks are killed and the number of workers changes
 *                       at random moments makes as many steps as the undisturbed one, and ends
 *                       with its weights and losses to a relative 1e-5. The model is
 *                       smooth: at the kink of a relu, rounding decides on which side a sample is,
 *                       and undisturbed runs of 3 and 4 workers differ by percents
 *
 * JSON lines as in trainer_bench.c. --quick: fewer kills and pairs.
 */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <unisono/native.h>
#include <unisono/unisono.h>

#include "bench_numbers.h"
#include "engine_models.h"

#define WORKERS 4
#define BATCH 64
#define BATCHES_AN_EPOCH 50
#define MAX_KILLS 200
#define STEPS_APART 4 /* of what happens at random moments */
#define MOMENT_US 60000
#define HANG_S 60.0

/* What the driver and the workers see. */
typedef struct shared {
    _Atomic int pids[WORKERS];
    _Atomic int starts;
    _Atomic int64_t steps; /* of rank 0 */
    _Atomic int64_t held_at; /* no step after this one */
    _Atomic int workers; /* in rank 0's last step */
    _Atomic double first_s, last_s; /* ends of the second and the last step */
} shared;

static char storage[200];
static shared *all;

static shared *map_shared(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(shared)) == 0)
        memory = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

static void give_up(const char *why)
{
    fprintf(stderr, "elastic_bench: %s\n", why);
    exit(1);
}

/* ---- a worker ---- */

static int after_batch(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    int64_t step = uni_optimizer_iterations(uni_model_optimizer(model));
    if (step == 2)
        atomic_store(&all->first_s, now_s());
    atomic_store(&all->last_s, now_s());
    atomic_store(&all->workers, uni_strategy_info_of(self)->num_replicas_in_sync);
    atomic_store(&all->steps, step);
    while (step >= atomic_load(&all->held_at))
        usleep(100);
    return 0;
}

static void fill(const bench_row *row, int64_t samples, float *x, size_t size, void *y)
{
    uint64_t state = 1;
    for (size_t i = 0; i < (size_t)samples * size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(state >> 40) / (float)(1 << 24) - 0.5f;
    }
    for (int64_t i = 0; i < samples; i++)
        if (row->classes == 1)
            ((float *)y)[i] = (float)(i % 2);
        else
            ((int32_t *)y)[i] = (int32_t)(i % row->classes);
}

static int train_on(uni_strategy *strategy, uni_model *model, const bench_row *row,
                    uni_session *session, uni_value **history, uni_error *err)
{
    const uni_session_info *info = uni_session_info_of(session);
    int epochs = (int)uni_dict_get_int(info->config, "epochs", 1);
    static const uni_callback_class probe = { .name = "probe",
                                              .only_looks = true,
                                              .after_batch = after_batch };
    int64_t samples = (int64_t)BATCH * BATCHES_AN_EPOCH, shape[4] = { samples };
    int ndim = 1;
    size_t size = 1;
    for (; ndim < 4 && row->x[ndim - 1] > 0; ndim++)
        size *= (size_t)(shape[ndim] = row->x[ndim - 1]);
    float *x = malloc((size_t)samples * size * sizeof *x);
    void *y = malloc((size_t)samples * sizeof(float));
    uni_callback *callbacks[2] = { NULL };
    int status = x && y ? uni_callback_new(&callbacks[0], &probe, strategy, err)
                        : uni_error_set(err, UNI_ENOMEM, "no memory for the data");
    /* Reports, but no checkpoints at the ends of epochs: only those of steps are measured. */
    if (status == 0)
        status = uni_callback_report_checkpoint(&callbacks[1], session, INT_MAX, err);
    if (status == 0) {
        fill(row, samples, x, size, y);
        uni_column xs = uni_column_view(UNI_F32, ndim, shape, x);
        uni_column ys = row->classes == 1
                            ? uni_column_view(UNI_F32, 2, (const int64_t[]){ samples, 1 }, y)
                            : uni_column_view(UNI_I32, 1, (const int64_t[]){ samples }, y);
        status = uni_strategy_fit(history, strategy, model,
                                  UNI_OPTIONS(uni_fit_options, .x = &xs, .num_x = 1, .y = &ys,
                                              .num_y = 1, .batch_size = BATCH, .epochs = epochs,
                                              .threads = 1,
                                              .callbacks = callbacks + (info->world_rank != 0),
                                              .num_callbacks = 1 + (info->world_rank == 0)),
                                  err);
    }
    uni_callback_free(callbacks[0]);
    uni_callback_free(callbacks[1]);
    free(x);
    free(y);
    return status;
}

/* For the same data as the row. */
static int make_smooth(uni_model **out, const bench_row *row, uni_error *err)
{
    uni_dense_options wide = { .activation = "tanh" };
    UNI_TRY(uni_sequential_new(
        out, "smooth",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ row->x[0] }),
                   uni_layer_dense(48, &wide), uni_layer_dropout(0.2f), uni_layer_dense(1, NULL)),
        err));
    uni_model_set_seed(*out, 3);
    return 0;
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_session_info *info = uni_session_info_of(session);
    const bench_row *row = &rows[uni_dict_get_int(info->config, "row", 0)];
    bool smooth = uni_dict_get_bool(info->config, "smooth", false);
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_value *history = NULL;
    all = map_shared(uni_dict_get_string(info->config, "shared", ""));
    if (!all)
        return uni_error_set(err, UNI_ESTATE, "no shared memory");
    if (info->world_rank < WORKERS)
        atomic_store(&all->pids[info->world_rank], getpid());
    atomic_fetch_add(&all->starts, 1);
    UNI_TRY(uni_strategy_open(&strategy, "multi_worker", session, err));
    UNI_TRY(smooth ? make_smooth(&model, row, err) : make_model(&model, row, err));
    UNI_TRY(uni_model_compile(
        model,
        &(uni_compile_options){ .optimizer_name = "adam", .loss_name = smooth ? "mse" : row->loss },
        err));
    UNI_TRY(uni_strategy_place(strategy, model, err));
    UNI_TRY(train_on(strategy, model, row, session, &history, err));
    size_t count = 0;
    const float *weights = uni_parameters_weights(uni_model_parameters(model), &count);
    *result = uni_value_dict();
    int status = uni_dict_take(*result, "weights", uni_value_bytes(weights, count * sizeof(float)));
    status |= uni_dict_take(*result, "history", history);
    uni_model_free(model);
    uni_strategy_free(strategy);
    return status;
}

/* ---- the driver ---- */

typedef struct job {
    int row, workers, epochs, max_failures, every_steps;
    int min_workers; /* 0: their number is fixed */
    int kills, scales;
    bool smooth; /* another model in place of the row's */
    bool at_random; /* one after the other, and none is waited for */
    double waited_ms[MAX_KILLS], grown_ms[MAX_KILLS];
    int grown;
    uni_trainer *trainer;
} job;

static void wait_for_step(int64_t step)
{
    double begun = now_s();
    while (atomic_load(&all->steps) < step) {
        if (now_s() - begun > HANG_S)
            give_up("no step within a minute");
        usleep(50);
    }
}

/* The next step may be one that the killed rank had ended: it counts with fewer workers only, or
 * when it is the second. */
static void wait_for_step_without(int workers, int64_t step)
{
    double begun = now_s();
    while (atomic_load(&all->workers) == workers && atomic_load(&all->steps) < step + 2) {
        if (now_s() - begun > HANG_S)
            give_up("no step without the killed rank within a minute");
        usleep(50);
    }
}

/* Lets rank 0 make steps, one by one, until it has made one with that many workers. */
static void wait_for_workers(int workers)
{
    double begun = now_s();
    while (atomic_load(&all->workers) != workers) {
        if (now_s() - begun > HANG_S)
            give_up("the number of workers did not change within a minute");
        atomic_store(&all->held_at, atomic_load(&all->steps) + 1);
        usleep(50);
    }
}

static void scale(job *it, int workers)
{
    uni_error err = { 0 };
    double begun = now_s();
    int before = atomic_load(&all->workers);
    if (uni_trainer_scale(it->trainer, workers, &err) < 0)
        give_up(err.message);
    wait_for_workers(workers);
    if (before == 2 && workers == WORKERS)
        it->grown_ms[it->grown++] = 1e3 * (now_s() - begun);
}

/* Kills and scales in turn; the group is whole again before each. */
static void *kill_and_scale(void *argument)
{
    job *it = argument;
    int events = it->kills > it->scales ? it->kills : it->scales;
    wait_for_step(3);
    for (int i = 0; i < events; i++) {
        if (i < it->scales)
            scale(it, i % 2 ? WORKERS : 2);
        if (i >= it->kills)
            continue;
        int workers = atomic_load(&all->workers), rank = 1 + i % (workers - 1);
        int64_t step = atomic_load(&all->steps);
        double begun = now_s();
        atomic_store(&all->held_at, step + 3);
        kill(atomic_load(&all->pids[rank]), SIGKILL);
        wait_for_step_without(workers, step);
        it->waited_ms[i] = 1e3 * (now_s() - begun);
        wait_for_workers(workers);
    }
    atomic_store(&all->held_at, INT64_MAX);
    return NULL;
}

/* The process of any rank but the chief, from that one on; 0: there is none now. */
static int take_pid(uint64_t from)
{
    int pid = 0;
    for (uint64_t i = 0; pid == 0 && i < WORKERS - 1; i++)
        pid = atomic_exchange(&all->pids[1 + (from + i) % (WORKERS - 1)], 0);
    return pid;
}

/* Neither the group nor a new process is waited for. The chief stays: with it, there is always a
 * rank that has the weights. */
static void *stir(void *argument)
{
    job *it = argument;
    uint64_t random = 2026;
    uni_error err = { 0 };
    for (int kills = it->kills, scales = it->scales, i = 1; kills + scales > 0; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        atomic_store(&all->held_at, (int64_t)(i + 1) * STEPS_APART);
        wait_for_step((int64_t)i * STEPS_APART);
        usleep((useconds_t)(random >> 33) % MOMENT_US);
        int which = (int)(random >> 20 & 0xffff) % (kills + scales);
        if (which < scales) {
            scales--;
            if (uni_trainer_scale(it->trainer, 1 + (int)(random >> 40 & 3), &err) < 0)
                give_up(err.message);
            continue;
        }
        int pid;
        while ((pid = take_pid(random >> 40)) == 0) { /* all have left, or were killed */
            if (uni_trainer_scale(it->trainer, WORKERS, &err) < 0)
                give_up(err.message);
            usleep(10000);
        }
        kill(pid, SIGKILL);
        kills--;
    }
    atomic_store(&all->held_at, INT64_MAX);
    return NULL;
}

/* The chief stays: it measures. */
static void *kill_in_turn(void *argument)
{
    job *it = argument;
    int64_t apart = (int64_t)it->epochs * BATCHES_AN_EPOCH / (it->kills + 2);
    for (int i = 0; i < it->kills; i++) {
        int rank = 1 + i % (it->workers - 1);
        atomic_store(&all->held_at, (i + 1) * apart + 2);
        wait_for_step((i + 1) * apart);
        double begun = now_s();
        int64_t step = atomic_load(&all->steps);
        kill(atomic_load(&all->pids[rank]), SIGKILL);
        /* The next step may be one that the killed rank had ended. */
        atomic_store(&all->held_at, step + 3);
        wait_for_step(step + 2);
        it->waited_ms[i] = 1e3 * (now_s() - begun);
    }
    atomic_store(&all->held_at, INT64_MAX);
    return NULL;
}

static uni_result *run(uni_program *program, job *it)
{
    static int number;
    char path[300];
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = uni_value_dict();
    pthread_t thread;
    bool disturbed = it->kills + it->scales > 0;
    snprintf(path, sizeof path, "%s/shared_%d", storage, number++);
    all = map_shared(path);
    if (!all)
        give_up("no shared memory");
    atomic_store(&all->held_at, INT64_MAX);
    if (uni_dict_take(config, "shared", uni_value_string(path)) < 0 ||
        uni_dict_take(config, "row", uni_value_int(it->row)) < 0 ||
        uni_dict_take(config, "smooth", uni_value_bool(it->smooth)) < 0 ||
        uni_dict_take(config, "epochs", uni_value_int(it->epochs)) < 0)
        give_up("no memory");
    uni_checkpoint_policy policy = { .every_steps = it->every_steps };
    int status = uni_trainer_new(&it->trainer,
                                 UNI_OPTIONS(uni_trainer_options, .main = program,
                                             .num_workers = it->workers, .storage_path = storage,
                                             .min_workers = it->min_workers,
                                             .max_failures = it->max_failures),
                                 &err);
    if (status == 0 && disturbed &&
        pthread_create(&thread, NULL,
                       it->at_random         ? stir
                       : it->min_workers > 0 ? kill_and_scale
                                             : kill_in_turn,
                       it) != 0)
        give_up("no thread");
    if (status == 0)
        status = uni_trainer_fit(
            &result, it->trainer,
            UNI_OPTIONS(uni_run_options, .function = "train", .config = config, .policy = &policy),
            &err);
    if (status < 0)
        give_up(err.message);
    if (disturbed)
        pthread_join(thread, NULL);
    uni_value_free(config);
    uni_trainer_free(it->trainer);
    return result;
}

static void print_line(const char *metric, const char *unit, numbers values, int count)
{
    printf("{\"bench\":\"elastic\",\"metric\":\"%s\",\"unit\":\"%s\",\"unisono\":%.6g,"
           "\"low\":%.6g,\"high\":%.6g,\"samples\":%d}\n",
           metric, unit, values.median, values.low, values.high, count);
    fflush(stdout);
}

/* A run that is not exact is a failure of the benchmark, whatever it measures. */
static void print_exact(const char *metric, bool exact, int count)
{
    print_line(metric, "1 or 0", (numbers){ exact, exact, exact }, count);
    if (!exact)
        give_up("the disturbed run did not end like the undisturbed one");
}

static bool is_same(const uni_result *a, const uni_result *b)
{
    size_t sizes[2];
    const uni_value *x = uni_result_info_of(a)->returned[0],
                    *y = uni_result_info_of(b)->returned[0];
    const void *one = uni_value_as_bytes(uni_dict_get(x, "weights"), &sizes[0]),
               *other = uni_value_as_bytes(uni_dict_get(y, "weights"), &sizes[1]);
    return sizes[0] == sizes[1] && memcmp(one, other, sizes[0]) == 0 &&
           uni_value_equal(uni_dict_get(x, "history"), uni_dict_get(y, "history"));
}

/* To a relative 1e-5 of the largest. */
static bool is_near(const float *a, const float *b, size_t count)
{
    float largest = 0, worst = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmaxf(largest, fabsf(a[i]));
        worst = fmaxf(worst, fabsf(a[i] - b[i]));
    }
    return worst <= 1e-5f * largest;
}

static bool is_close(const uni_result *a, const uni_result *b)
{
    size_t sizes[2];
    const uni_value *x = uni_result_info_of(a)->returned[0],
                    *y = uni_result_info_of(b)->returned[0];
    const uni_value *losses[2] = { uni_dict_get(uni_dict_get(x, "history"), "loss"),
                                   uni_dict_get(uni_dict_get(y, "history"), "loss") };
    const float *one = uni_value_as_bytes(uni_dict_get(x, "weights"), &sizes[0]),
                *other = uni_value_as_bytes(uni_dict_get(y, "weights"), &sizes[1]);
    bool near = sizes[0] == sizes[1] && is_near(one, other, sizes[0] / sizeof *one) &&
                uni_list_size(losses[0]) == uni_list_size(losses[1]);
    for (size_t i = 0; near && i < uni_list_size(losses[0]); i++) {
        double loss = uni_value_as_float(uni_list_get(losses[0], i), 0);
        near = fabs(loss - uni_value_as_float(uni_list_get(losses[1], i), 0)) <= 1e-5 * loss;
    }
    return near;
}

static int row_of(const char *name)
{
    for (int i = 0; i < num_rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return i;
    give_up("no such model");
    return 0;
}

static void measure_kills(uni_program *program, int kills)
{
    job calm = { .row = row_of("mnist_cnn"), .workers = WORKERS, .epochs = kills / 5 + 1 };
    job killed = calm;
    killed.kills = kills;
    killed.max_failures = -1;
    uni_result *expected = run(program, &calm), *got = run(program, &killed);
    bool exact = is_same(expected, got) && uni_result_info_of(got)->attempts == 1 &&
                 atomic_load(&all->starts) == WORKERS + kills;
    print_line("kill_to_replaced_ms", "ms", sorted(killed.waited_ms, kills), kills);
    print_exact("elastic_exact_bits", exact, kills);
    uni_result_free(expected);
    uni_result_free(got);
}

/* A run whose number of workers changes. The driver lets a step be made every time that it looks, so
 * there must be enough of them for all that happens. */
static uni_result *run_resized(uni_program *program, job *it, int kills, int scales)
{
    it->kills = kills;
    it->scales = scales;
    it->min_workers = 1;
    it->max_failures = -1;
    uni_result *got = run(program, it);
    if (uni_result_info_of(got)->attempts != 1 ||
        atomic_load(&all->steps) != (int64_t)it->epochs * BATCHES_AN_EPOCH)
        give_up("the group restarted, or made another number of steps");
    return got;
}

static void measure_sizes(uni_program *program, int kills, int scales)
{
    job it = { .row = row_of("mnist_cnn"), .workers = WORKERS, .epochs = kills + 2 * scales };
    uni_result_free(run_resized(program, &it, kills, scales));
    print_line("kill_to_step_ms", "ms", sorted(it.waited_ms, kills), kills);
    print_line("grow_ms", "ms", sorted(it.grown_ms, it.grown), it.grown);
}

static void measure_exact(uni_program *program, int kills, int scales)
{
    int epochs = STEPS_APART * (kills + scales + 1) / BATCHES_AN_EPOCH + 1;
    job calm = { .row = row_of("nnlm_head"), .workers = WORKERS, .epochs = epochs, .smooth = true };
    job it = calm;
    it.at_random = true;
    uni_result *expected = run(program, &calm), *got = run_resized(program, &it, kills, scales);
    print_exact("elastic_exact", is_close(expected, got), kills + scales);
    uni_result_free(expected);
    uni_result_free(got);
}

static double seconds_a_step(uni_program *program, job it)
{
    uni_result_free(run(program, &it));
    return (atomic_load(&all->last_s) - atomic_load(&all->first_s)) /
           (double)(atomic_load(&all->steps) - 2);
}

/* What the second job costs more than the first, in pairs of changing order. */
static void compare(uni_program *program, const char *metric, job plain, job more, int pairs)
{
    double percent[32];
    for (int i = 0; i < pairs; i++) {
        double first = i % 2 ? seconds_a_step(program, plain) : 0;
        double second = seconds_a_step(program, more);
        if (i % 2 == 0)
            first = seconds_a_step(program, plain);
        percent[i] = 100 * (second / first - 1);
    }
    print_line(metric, "%", sorted(percent, pairs), pairs);
}

static void measure_overhead(uni_program *program, const char *name, int epochs, int pairs)
{
    job plain = {
        .row = row_of(name), .workers = 2, .epochs = epochs, .max_failures = UNI_NO_RETRIES
    };
    job elastic = plain;
    char metric[64];
    elastic.max_failures = 3;
    snprintf(metric, sizeof metric, "elastic_overhead_%s", name);
    compare(program, metric, plain, elastic, pairs);
}

static void measure_steps(uni_program *program, int epochs, int pairs)
{
    job plain = {
        .row = row_of("mnist_cnn"), .workers = 2, .epochs = epochs, .max_failures = UNI_NO_RETRIES
    };
    job saves = plain;
    saves.every_steps = 100;
    compare(program, "checkpoint_every_step_overhead", plain, saves, pairs);
}

static int driver(uni_program *program, int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const char *base = getenv("TMPDIR");
    char command[300];
    snprintf(storage, sizeof storage, "%.150s/unisono-bench-XXXXXX",
             base && base[0] ? base : "/tmp");
    if (!mkdtemp(storage))
        give_up("no directory for the results");
    measure_sizes(program, quick ? 3 : 30, quick ? 4 : 20);
    measure_kills(program, quick ? 3 : 50);
    measure_exact(program, quick ? 12 : 200, quick ? 4 : 50);
    measure_overhead(program, "mnist_cnn", quick ? 1 : 4, quick ? 2 : 12);
    measure_overhead(program, "nnlm_head", quick ? 4 : 100, quick ? 2 : 12);
    measure_steps(program, quick ? 3 : 8, quick ? 2 : 12);
    snprintf(command, sizeof command, "rm -rf '%s'", storage);
    return system(command) != 0;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, (uni_function[]){ { "train", train }, { NULL, NULL } }, driver);
}
