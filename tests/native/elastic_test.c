/*
 * elastic_test.c - ranks are killed at random moments of fit, and new processes take their places:
 * survivors keep their processes, and the weights and losses are those of a run in which nothing
 * happened, bit by bit.
 *
 * The test is the controller here: it forks the ranks, kills them, and forks another one for each
 * that died. Groups are numbered; the ranks of a group meet over a communicator whose name has the
 * number.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <unisono/log.h>
#include <unisono/native.h>

#include "strategy/elastic.h"

#define RANKS 3
#define RUNS 8 /* at most */
#define SAMPLES 1201
#define FEATURES 8
#define MAX_WEIGHTS ((size_t)1 << 19)
#define MAX_EPOCHS 8
#define LAST_KILL 42 /* a batch of the 51 of an epoch */

typedef struct outcome {
    int status;
    pid_t pid;
    size_t count;
    double loss[MAX_EPOCHS];
    float weights[MAX_WEIGHTS];
    char message[1000];
} outcome;

/* What the test and all ranks see. */
typedef struct shared {
    _Atomic uint32_t group; /* the number of the present one */
    _Atomic uint64_t steps; /* that rank 0 has made */
    _Atomic bool over; /* the test gave up */
    _Atomic bool calm; /* nobody is killed any more: the last steps may come */
    outcome ranks[RANKS];
} shared;

typedef struct plan {
    const char *optimizer;
    bool noisy; /* batch normalisation over all ranks, and dropout */
    int64_t units;
    int epochs;
} plan;

static shared *all;

/* ---- a rank ---- */

/* Ranks that do not all come together, because one of them died or still tried an older group, ask
 * for another group. */
static int meet(void *context, uint32_t after, uni_comm **out, uint32_t *number, uni_error *err)
{
    int rank = *(const int *)context;
    for (;;) {
        char config[300];
        while (atomic_load(&all->group) <= after) {
            if (atomic_load(&all->over))
                return uni_error_set(err, UNI_ECANCELED, "the test gave up");
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        }
        after = *number = atomic_load(&all->group);
        snprintf(config, sizeof config,
                 "{\"cluster\": {\"worker\": [\"localhost:%u\", \"localhost:%u\", "
                 "\"localhost:%u\"]}, \"task\": {\"type\": \"worker\", \"index\": %d}}",
                 1000 + 4 * after, 1001 + 4 * after, (unsigned)getppid() % 1000 + 1, rank);
        if (uni_comm_open_tf_config(out, config, &(uni_comm_options){ .timeout_ms = 2000 }, err) ==
            0)
            return 0;
        uint32_t failed = after;
        atomic_compare_exchange_strong(&all->group, &failed, after + 1);
    }
}

/* Rank 0 holds all back before the end: a death after the last step is another matter. */
static int count_step(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    atomic_store(&all->steps, (uint64_t)batch + 1);
    while (batch >= LAST_KILL && !atomic_load(&all->calm) && !atomic_load(&all->over))
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    return 0;
}

static int make_model(uni_model **out, const plan *how, uni_error *err)
{
    uni_dense_options wide = { .activation = "tanh" };
    if (how->noisy)
        UNI_TRY(uni_sequential_new(
            out, "noisy",
            UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                       uni_layer_dense(how->units, &wide), uni_layer_batch_normalization(NULL),
                       uni_layer_dropout(0.3f), uni_layer_dense(1, NULL)),
            err));
    else
        UNI_TRY(uni_sequential_new(
            out, "plain",
            UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                       uni_layer_dense(how->units, &wide), uni_layer_dense(how->units, &wide),
                       uni_layer_dense(1, NULL)),
            err));
    uni_model_set_seed(*out, 11);
    return uni_model_compile(
        *out, &(uni_compile_options){ .optimizer_name = how->optimizer, .loss_name = "mse" }, err);
}

static void make_data(float *x, float *y)
{
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 0;
        for (int j = 0; j < FEATURES; j++) {
            x[i * FEATURES + j] = sinf((float)(i * 7 + j * 3));
            y[i] += x[i * FEATURES + j] * (float)(j + 1) * 0.1f;
        }
    }
}

static int train(const plan *how, int rank, bool joins, outcome *out, uni_error *err)
{
    static const uni__membership_vtable members = { .name = "test", .meet = meet };
    static const uni_callback_class counter = { .name = "counter", .after_batch = count_step };
    static float x[SAMPLES * FEATURES], y[SAMPLES];
    uni_comm *comm = NULL;
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_callback *callback = NULL;
    uni_value *history = NULL;
    uint32_t number = 0;
    make_data(x, y);
    UNI_TRY(make_model(&model, how, err));
    UNI_TRY(uni_callback_new(&callback, &counter, NULL, err));
    UNI_TRY(meet(&rank, 0, &comm, &number, err));
    UNI_TRY(uni_strategy_multi_worker(&strategy, comm,
                                      &(uni_multi_worker_options){ .take_comm = true }, err));
    UNI_TRY(uni__strategy_set_membership(strategy, &members, &rank, number, joins, err));
    UNI_TRY(uni_strategy_place(strategy, model, err));
    uni_column xs = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, x),
               ys = uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y);
    uni_fit_options fit = { .x = &xs,
                            .num_x = 1,
                            .y = &ys,
                            .num_y = 1,
                            .batch_size = 24,
                            .epochs = how->epochs,
                            .threads = 1,
                            .callbacks = &callback,
                            .num_callbacks = rank == 0 };
    UNI_TRY(uni_strategy_fit(&history, strategy, model, &fit, err));
    const uni_value *losses = uni_dict_get(history, "loss");
    for (int i = 0; i < how->epochs; i++)
        out->loss[i] = uni_value_as_float(uni_list_get(losses, (size_t)i), NAN);
    const float *weights = uni_parameters_weights(uni_model_parameters(model), &out->count);
    memcpy(out->weights, weights, out->count * sizeof *weights);
    uni_value_free(history);
    uni_strategy_free(strategy);
    uni_callback_free(callback);
    uni_model_free(model);
    return 0;
}

static pid_t start(const plan *how, int rank, bool joins)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    uni_error err = { 0 };
    outcome *out = &all->ranks[rank];
    uni_log_level_set(UNI_LOG_ERROR);
    out->pid = getpid();
    out->status = train(how, rank, joins, out, &err);
    memcpy(out->message, err.message, sizeof out->message);
    _exit(out->status < 0);
}

/* ---- the test ---- */

typedef struct group {
    plan how;
    pid_t pids[RANKS];
    int deaths;
    double began;
} group;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void begin(group *g, const plan *how)
{
    atomic_store(&all->group, atomic_load(&all->group) + 1);
    atomic_store(&all->steps, 0);
    atomic_store(&all->calm, false);
    atomic_store(&all->over, false);
    *g = (group){ .how = *how, .began = now() };
    for (int rank = 0; rank < RANKS; rank++) {
        all->ranks[rank] = (outcome){ .status = 1 };
        g->pids[rank] = start(how, rank, false);
        assert_true(g->pids[rank] > 0);
    }
}

/* A new group of the survivors and new processes for the dead. */
static void replace(group *g, const int *dead, int count)
{
    atomic_store(&all->group, atomic_load(&all->group) + 1);
    for (int i = 0; i < count; i++) {
        g->pids[dead[i]] = start(&g->how, dead[i], true);
        g->deaths++;
    }
}

static void give_up(group *g, const char *why)
{
    atomic_store(&all->over, true);
    for (int rank = 0; rank < RANKS; rank++)
        if (g->pids[rank] > 0) {
            kill(g->pids[rank], SIGKILL);
            waitpid(g->pids[rank], NULL, 0);
        }
    fail_msg("%s; after %d deaths the ranks say: %s | %s | %s", why, g->deaths,
             all->ranks[0].message, all->ranks[1].message, all->ranks[2].message);
}

/* Looks after the ranks until rank 0 has made `steps` steps (0: until all have ended). */
static bool run_until(group *g, uint64_t steps)
{
    while (steps == 0 || atomic_load(&all->steps) < steps) {
        int left = 0;
        for (int rank = 0; rank < RANKS; rank++) {
            int status = 0;
            if (g->pids[rank] > 0 && waitpid(g->pids[rank], &status, WNOHANG) == g->pids[rank]) {
                g->pids[rank] = 0;
                if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                    give_up(g, "a rank failed");
            }
            left += g->pids[rank] > 0;
        }
        if (left == 0)
            return false;
        if (now() - g->began > 30)
            give_up(g, "it hangs");
        nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
    }
    return true;
}

static void kill_ranks(group *g, const int *ranks, int count)
{
    for (int i = 0; i < count; i++)
        kill(g->pids[ranks[i]], SIGKILL);
    for (int i = 0; i < count; i++)
        waitpid(g->pids[ranks[i]], NULL, 0);
    replace(g, ranks, count);
}

static void compare(const outcome *expected, const group *g)
{
    for (int rank = 0; rank < RANKS; rank++) {
        const outcome *got = &all->ranks[rank];
        assert_int_equal(got->count, expected->count);
        if (memcmp(got->weights, expected->weights, got->count * sizeof(float)) != 0)
            fail_msg("rank %d has other weights after %d deaths", rank, g->deaths);
        if (memcmp(got->loss, expected->loss, sizeof got->loss) != 0)
            fail_msg("rank %d has other losses after %d deaths: %.17g, not %.17g", rank, g->deaths,
                     got->loss[0], expected->loss[0]);
    }
}

static outcome *undisturbed(const plan *how)
{
    group g;
    outcome *out = malloc(sizeof *out);
    begin(&g, how);
    atomic_store(&all->calm, true);
    assert_false(run_until(&g, 0));
    compare(&all->ranks[0], &g);
    *out = all->ranks[0];
    return out;
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Kills `each` ranks at a time, every few steps, at a random moment. */
static void disturbed(const plan *how, int each, int runs)
{
    outcome *expected = undisturbed(how);
    uint64_t random = 4711 + (uint64_t)each;
    double waited[RUNS * LAST_KILL]; /* from a kill to the end of the next step of all ranks */
    size_t kills = 0;
    int deaths = 0;
    for (int r = 0; r < runs; r++) {
        group g;
        begin(&g, how);
        pid_t before[RANKS];
        memcpy(before, g.pids, sizeof before);
        uint64_t steps = 2;
        while (steps < LAST_KILL && run_until(&g, steps)) {
            int first = (int)(next_random(&random) % RANKS);
            int ranks[2] = { first, (first + 1) % RANKS };
            nanosleep(&(struct timespec){ .tv_nsec = (long)(next_random(&random) % 3000000) },
                      NULL);
            double begun = now();
            steps = atomic_load(&all->steps);
            kill_ranks(&g, ranks, each);
            if (steps > LAST_KILL || !run_until(&g, steps + 1))
                break;
            waited[kills++] = now() - begun;
            steps = atomic_load(&all->steps) + 2 + next_random(&random) % 3;
        }
        atomic_store(&all->calm, true);
        assert_false(run_until(&g, 0));
        compare(expected, &g);
        deaths += g.deaths;
    }
    assert_true(deaths >= 2 * runs && kills > 0);
    qsort(waited, kills, sizeof *waited, by_value);
    print_message("%s%s, %d at a time: %d deaths in %d runs; next step after %.0f ms (median), "
                  "%.0f ms (longest)\n",
                  how->optimizer, how->noisy ? " with batch normalisation" : "", each, deaths, runs,
                  1e3 * waited[kills / 2], 1e3 * waited[kills - 1]);
    free(expected);
}

/* The new process is killed as well, at any moment from its start to its first steps. */
static void while_joining(void **state)
{
    plan how = { .optimizer = "adam", .noisy = true, .units = 64, .epochs = 1 };
    outcome *expected = undisturbed(&how);
    uint64_t random = 99;
    int deaths = 0;
    for (int r = 0; r < 3; r++) {
        group g;
        begin(&g, &how);
        uint64_t steps = 2;
        while (steps < LAST_KILL && run_until(&g, steps)) {
            int rank = (int)(next_random(&random) % RANKS);
            for (int times = 0; times < 4; times++) {
                kill_ranks(&g, &rank, 1);
                nanosleep(&(struct timespec){ .tv_nsec = (long)(next_random(&random) % 60000000) },
                          NULL);
                rank = times == 2 ? (rank + 1) % RANKS : rank; /* a survivor meanwhile */
            }
            steps = atomic_load(&all->steps) + 3; /* all have joined by then */
        }
        atomic_store(&all->calm, true);
        assert_false(run_until(&g, 0));
        compare(expected, &g);
        deaths += g.deaths;
    }
    print_message("while joining: %d deaths in 3 runs\n", deaths);
    free(expected);
}

static void one_at_a_time(void **state)
{
    disturbed(&(plan){ .optimizer = "adam", .units = 300, .epochs = 1 }, 1, 6);
}

static void two_at_once(void **state)
{
    disturbed(&(plan){ .optimizer = "sgd", .units = 300, .epochs = 1 }, 2, 4);
}

static void with_statistics(void **state)
{
    disturbed(&(plan){ .optimizer = "rmsprop", .noisy = true, .units = 64, .epochs = 1 }, 1, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(two_at_once),
        cmocka_unit_test(with_statistics),
        cmocka_unit_test(while_joining),
    };
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
