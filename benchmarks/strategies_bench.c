/*
 * strategies_bench.c - ./bench strategies: training by two workers with one thread each
 * (multi_worker, batch 64 each), how that scales, and mirrored beside one replica with all threads.
 *
 * Groups of processes wait for orders and take turns, ten rounds and more, each a fit of as many
 * steps as take about half a second and more:
 *   alone      one worker with one thread, batch 64
 *   together   two such workers with a communicator between them (found by TF_CONFIG, as processes
 *              that were started by hand), batch 128
 *   apart      two such workers at the same time that know nothing of each other: what the machine
 *              itself allows
 *   meeting    the same two with a communicator that they meet by twice after every step, without a
 *              byte of data: what it costs that nobody is faster than the slower one
 *   mirrored   one process, two replicas, batch 128
 *   threads    one process, one replica whose kernels have two threads, batch 128
 * scaling_2w is the median of the rounds' together / (2 alone), scaling_ceiling_2w that of apart /
 * (2 alone): two cores that share a cache, a memory bus or (as hardware threads) a core do not do
 * twice the work of one. scaling_meeting_2w is that of meeting / (2 alone). mirrored_vs_threads is
 * mirrored / threads. A model is seen to learn before it is timed. The peers
 * (peers/strategies_torch.py, strategies_keras.py) start this program with --serve and measure in
 * turn with it: one window for every line on stdin; so does ./bench busy, which asks for 2 to 8
 * workers. JSON lines as everywhere. Options: --quick; --model NAME; --serve --seconds S
 * --workers N --batch 64N --stop PID,PID.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unisono/native.h>

#include "bench_numbers.h"
#include "bench_record.h"
#include "engine_models.h"

#define MAX_ROUNDS 20
#define BATCH 64
#define MAX_WORKERS 8
#define FED 8 /* batches that are used in turn */

static const char *const names[] = { "nnlm_head", "mnist_cnn", "svhn_cnn" };
static const int steps_of[] = { 2400, 45, 9 };
#define MODELS 3

typedef enum way { ALONE, TOGETHER, APART, MEETING, MIRRORED, THREADS, NUM_WAYS } way;

static int workers = 2; /* of TOGETHER */

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "strategies_bench: %s: %s\n", what, why);
    exit(1);
}

/* ---- a worker ---- */

typedef struct worker {
    uni_strategy *strategy;
    uni_model *model;
    bench_feed feed;
    uni_batches *batches;
    uni_comm *peers; /* meeting: who is waited for */
    int threads;
    int64_t batch; /* over all replicas and workers */
} worker;

static double last_of(const uni_value *history, const char *name)
{
    const uni_value *values = uni_dict_get(history, name);
    return uni_value_as_float(uni_list_get(values, uni_list_size(values) - 1), 0);
}

/* As often as a fused step does. */
static int meet(void *self, uni_model *model, int64_t batch, const uni_logs *logs, uni_error *err)
{
    UNI_TRY(uni_comm_barrier(self, err));
    return uni_comm_barrier(self, err);
}

/* Where the time of a step goes: means of the last epoch. */
#define PHASES 3
static const char *const phase_names[PHASES] = { "forward_ms", "backward_ms", "update_ms" };

typedef struct outcome {
    double seconds, loss, phases[PHASES];
} outcome;

/* A fit of so many steps. */
static outcome fit(worker *w, int steps, int epochs)
{
    static const uni_callback_class meets = { .name = "meet", .batch_end = meet };
    uni_error err = { 0 };
    uni_value *history = NULL;
    uni_callback *callback = NULL;
    if (w->peers && uni_callback_new(&callback, &meets, w->peers, &err) < 0)
        give_up("a callback", err.message);
    outcome got = { 0 };
    double begun = now_s();
    if (uni_strategy_fit(&history, w->strategy, w->model,
                         &(uni_fit_options){ .batches = w->batches,
                                             .steps_per_epoch = steps,
                                             .epochs = epochs,
                                             .callbacks = &callback,
                                             .num_callbacks = w->peers ? 1 : 0,
                                             .step_times = true,
                                             .threads = w->threads },
                         &err) < 0)
        give_up("fit", err.message);
    got.seconds = now_s() - begun;
    uni_callback_free(callback);
    got.loss = last_of(history, "loss");
    for (int i = 0; i < PHASES; i++)
        got.phases[i] = last_of(history, phase_names[i]);
    uni_value_free(history);
    return got;
}

static const bench_row *row_of(const char *name)
{
    for (int i = 0; i < num_rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    give_up(name, "there is no such model");
    return NULL;
}

/* Opens the model anew: its batch depends on how many workers there are. */
static void open_model(worker *w, const char *name)
{
    uni_error err = { 0 };
    const bench_row *row = row_of(name);
    uni_batches_free(w->batches);
    uni_model_free(w->model);
    feed_free(&w->feed);
    w->batches = NULL;
    w->model = NULL;
    if (make_model(&w->model, row, &err) < 0 || feed_fill(&w->feed, row, w->batch, FED, &err) < 0 ||
        feed_open(&w->batches, &w->feed, &err) < 0 ||
        uni_strategy_place(w->strategy, w->model, &err) < 0)
        give_up(name, err.message);
}

static void see_it_learn(worker *w, const char *name)
{
    double first = fit(w, FED, 1).loss, later = fit(w, FED, 2).loss;
    if (!(later < first))
        give_up(name, "does not learn its batches by heart");
}

/* Orders are "NAME STEPS"; the chief answers with samples a second and the phases of a step. What
 * several replicas train must learn. */
static void work(worker *w, FILE *orders, FILE *answers)
{
    char line[128], name[64], open[64] = "";
    int steps;
    while (fgets(line, sizeof line, orders) && sscanf(line, "%63s %d", name, &steps) == 2) {
        if (strcmp(name, open) != 0) {
            open_model(w, name);
            snprintf(open, sizeof open, "%s", name);
            if (uni_strategy_info_of(w->strategy)->num_replicas_in_sync > 1)
                see_it_learn(w, name);
        }
        outcome got = fit(w, steps, 1);
        if (uni_strategy_info_of(w->strategy)->is_chief) {
            fprintf(answers, "%.3f %.6f %.6f %.6f\n", (double)(steps * w->batch) / got.seconds,
                    got.phases[0], got.phases[1], got.phases[2]);
            fflush(answers);
        }
    }
    _exit(0);
}

static int open_peers(uni_comm **out, int rank, int token, uni_error *err)
{
    char cluster[512] = "{\"cluster\": {\"worker\": [";
    for (int r = 0; r < workers; r++) {
        size_t used = strlen(cluster);
        snprintf(cluster + used, sizeof cluster - used, "%s\"localhost:%d\"", r ? ", " : "",
                 token + r);
    }
    size_t used = strlen(cluster);
    snprintf(cluster + used, sizeof cluster - used,
             "]}, \"task\": {\"type\": \"worker\", \"index\": %d}}", rank);
    return uni_comm_open_tf_config(out, cluster, NULL, err);
}

static int open_cluster(uni_strategy **out, int rank, int token, uni_error *err)
{
    uni_comm *comm = NULL;
    UNI_TRY(open_peers(&comm, rank, token, err));
    return uni_strategy_multi_worker(out, comm, NULL, err);
}

static void open_worker(worker *w, way how, int rank, int token)
{
    uni_error err = { 0 };
    int status = how == TOGETHER   ? open_cluster(&w->strategy, rank, token, &err)
                 : how == MIRRORED ? uni_strategy_mirrored(&w->strategy, 2, &err)
                                   : uni_strategy_none(&w->strategy, &err);
    if (status == 0 && how == MEETING)
        status = open_peers(&w->peers, rank, token + MAX_WORKERS, &err);
    if (status < 0)
        give_up("cannot open a strategy", err.message);
    w->threads = how == MIRRORED || how == THREADS ? 2 : 1;
    w->batch = how == ALONE || how == APART || how == MEETING ? BATCH : 2 * BATCH;
    if (how == TOGETHER)
        w->batch = workers * BATCH;
}

/* ---- groups ---- */

typedef struct group {
    int processes, answers; /* lines that come back */
    FILE *to[MAX_WORKERS], *from;
    double rates[MAX_ROUNDS];
    double phases[PHASES][MAX_ROUNDS]; /* milliseconds of who answered last */
    double last[PHASES];
} group;

static void open_group(group *groups, way how)
{
    group *g = &groups[how];
    int answers[2];
    g->processes = how == TOGETHER ? workers : how == APART || how == MEETING ? 2 : 1;
    g->answers = how == APART || how == MEETING ? 2 : 1;
    if (pipe(answers) < 0)
        give_up("pipe", strerror(errno));
    for (int r = 0; r < g->processes; r++) {
        int orders[2];
        if (pipe(orders) < 0)
            give_up("pipe", strerror(errno));
        if (fork() == 0) {
            static worker w;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            setenv("OMP_NUM_THREADS", how == MIRRORED || how == THREADS ? "2" : "1", 1);
            for (int i = 0; i < NUM_WAYS; i++) /* or they would not end when the bench does */
                for (int o = 0; o < MAX_WORKERS; o++)
                    if (groups[i].to[o])
                        fclose(groups[i].to[o]);
            close(orders[1]);
            open_worker(&w, how, r, (int)getppid() % 30000 + 1024);
            work(&w, fdopen(orders[0], "r"), fdopen(answers[1], "w"));
        }
        close(orders[0]);
        g->to[r] = fdopen(orders[1], "w");
    }
    close(answers[1]);
    g->from = fdopen(answers[0], "r");
}

/* Samples a second of all workers of the group. */
static double measure(group *g, const char *name, int steps)
{
    char line[128];
    double sum = 0, rate = 0;
    for (int r = 0; r < g->processes; r++) {
        fprintf(g->to[r], "%s %d\n", name, steps);
        fflush(g->to[r]);
    }
    for (int a = 0; a < g->answers; a++, sum += rate)
        if (!fgets(line, sizeof line, g->from) ||
            sscanf(line, "%lf %lf %lf %lf", &rate, &g->last[0], &g->last[1], &g->last[2]) != 4)
            give_up(name, "a worker did not answer");
    return sum;
}

/* ---- rows ---- */

/* a / (times b), the median of the rounds. */
static double print_ratio(const char *metric, const char *model, const group *a, const group *b,
                          double times, int rounds, const char *what)
{
    double ratios[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++)
        ratios[i] = a->rates[i] / (times * b->rates[i]);
    numbers ratio = sorted(ratios, rounds);
    printf("{\"bench\": \"strategies\", \"metric\": \"%s_%s\", \"unit\": \"ratio\", \"unisono\": "
           "%.3f, \"peer\": null, \"peer_name\": \"none: %s\", \"ratio\": null, \"low\": %.3f, "
           "\"high\": %.3f, \"pairs\": %d, \"samples_per_s\": [%.0f, %.0f]}\n",
           metric, model, ratio.median, what, ratio.low, ratio.high, rounds,
           numbers_of(a->rates, rounds).median, numbers_of(b->rates, rounds).median);
    fflush(stdout);
    return ratio.median;
}

/* Two collectives a fused step: the counts, and the barrier after the update. */
static void print_recorder(const char *model, double step_us)
{
    double ns = record_ns();
    printf(
        "{\"bench\": \"strategies\", \"metric\": \"recorder_overhead\", \"unit\": \"fraction\", "
        "\"unisono\": %.5f, \"peer\": null, \"peer_name\": \"none: no peer has one\", \"ratio\": "
        "null, \"record_ns\": %.1f, \"records_per_step\": 2, \"step_us\": %.2f, \"model\": "
        "\"%s\"}\n",
        2 * ns * 1e-3 / step_us, ns, step_us, model);
}

/* The medians of a way's phases; what meetings cost is in the update. */
static void print_phases(const char *model, const char *name, const group *g, int rounds)
{
    printf("{\"bench\": \"strategies\", \"metric\": \"step_phases_%s_%s\", \"unit\": \"ms\"", model,
           name);
    for (int i = 0; i < PHASES; i++)
        printf(", \"%s\": %.4f", phase_names[i], numbers_of(g->phases[i], rounds).median);
    printf("}\n");
}

static double run_model(group *groups, int index, int rounds)
{
    const char *name = names[index];
    for (int i = -1; i < rounds; i++) /* the first warms up */
        for (int w = 0; w < NUM_WAYS; w++) {
            double rate = measure(&groups[w], name, steps_of[index]);
            if (i < 0)
                continue;
            groups[w].rates[i] = rate;
            for (int phase = 0; phase < PHASES; phase++)
                groups[w].phases[phase][i] = groups[w].last[phase];
        }
    printf("{\"bench\": \"strategies\", \"metric\": \"%s_2w_samples_per_s\", \"unit\": "
           "\"samples/s\", \"unisono\": %.1f, \"one_worker\": %.1f, \"pairs\": %d}\n",
           name, numbers_of(groups[TOGETHER].rates, rounds).median,
           numbers_of(groups[ALONE].rates, rounds).median, rounds);
    print_phases(name, "alone", &groups[ALONE], rounds);
    print_phases(name, "apart", &groups[APART], rounds);
    print_phases(name, "together", &groups[TOGETHER], rounds);
    if (index == 0)
        print_recorder(name, 2e6 * BATCH / numbers_of(groups[TOGETHER].rates, rounds).median);
    print_ratio("scaling_ceiling_2w", name, &groups[APART], &groups[ALONE], 2, rounds,
                "two workers without a communicator / (2 rate(1))");
    print_ratio("scaling_meeting_2w", name, &groups[MEETING], &groups[ALONE], 2, rounds,
                "two workers that meet twice a step without data / (2 rate(1))");
    print_ratio("mirrored_vs_threads", name, &groups[MIRRORED], &groups[THREADS], 1, rounds,
                "mirrored on 2 devices / one replica with 2 threads, batch 128 both");
    return print_ratio("scaling_2w", name, &groups[TOGETHER], &groups[ALONE], 2, rounds,
                       "rate(2) / (2 rate(1))");
}

/* "PID,PID": what else a peer's threads would do is not ours to pay for. */
static void signal_all(const char *pids, int sig)
{
    for (char *end; pids && *pids; pids = *end ? end + 1 : end) {
        long pid = strtol(pids, &end, 10);
        if (end == pids)
            return;
        if (pid > 1)
            kill((pid_t)pid, sig);
    }
}

/* One window for every line on stdin, for a peer that measures in turn with us and is stopped
 * meanwhile. */
static int serve(group *groups, const char *name, double seconds, const char *pids)
{
    char line[16];
    int steps = 8;
    double rate;
    open_group(groups, TOGETHER);
    rate = measure(&groups[TOGETHER], name, steps);
    for (int i = 0; i < 2; i++) {
        steps = (int)(seconds * rate / (workers * BATCH));
        steps = steps > 2 ? steps : 2;
        rate = measure(&groups[TOGETHER], name, steps);
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        signal_all(pids, SIGSTOP);
        rate = measure(&groups[TOGETHER], name, steps);
        signal_all(pids, SIGCONT);
        printf("%.6g\n", rate);
        fflush(stdout);
    }
    return 0;
}

static void bench(group *groups, const char *only, int rounds)
{
    double worst = 9;
    for (int w = 0; w < NUM_WAYS; w++)
        open_group(groups, (way)w);
    for (int i = 0; i < MODELS; i++) {
        if (only && strcmp(only, names[i]) != 0)
            continue;
        double scaling = run_model(groups, i, rounds);
        worst = scaling < worst ? scaling : worst;
    }
    if (!only)
        printf("{\"bench\": \"strategies\", \"metric\": \"scaling_2w\", \"unit\": \"ratio\", "
               "\"unisono\": %.3f, \"peer\": null, \"peer_name\": \"none: the lowest of the three "
               "models\", \"ratio\": null}\n",
               worst);
}

int main(int argc, char **argv)
{
    static group groups[NUM_WAYS];
    bool serves = false;
    int rounds = 11, batch = 0;
    double seconds = 0.3;
    const char *only = NULL, *pids = NULL;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--quick") == 0)
            rounds = 2;
        else if (strcmp(argv[i], "--serve") == 0)
            serves = true;
        else if (strcmp(argv[i], "--model") == 0 && more)
            only = argv[++i];
        else if (strcmp(argv[i], "--seconds") == 0 && more)
            seconds = atof(argv[++i]);
        else if (strcmp(argv[i], "--stop") == 0 && more)
            pids = argv[++i];
        else if (strcmp(argv[i], "--batch") == 0 && more)
            batch = atoi(argv[++i]);
        else if (strcmp(argv[i], "--workers") == 0 && more)
            workers = atoi(argv[++i]);
        else
            give_up("usage", "strategies_bench [--quick] [--model NAME] [--serve --model NAME "
                             "--seconds S --workers N --batch 64N --stop PID,PID]");
    }
    if (workers < 2 || workers > MAX_WORKERS || (workers != 2 && !serves))
        give_up("--workers", "2 to 8, with --serve");
    if (batch != 0 && batch != workers * BATCH)
        give_up("--batch", "the workers have 64 samples each");
    signal(SIGPIPE, SIG_IGN);
    if (serves)
        serve(groups, only ? only : names[0], seconds, pids);
    else
        bench(groups, only, rounds);
    for (int w = 0; w < NUM_WAYS; w++)
        for (int r = 0; r < MAX_WORKERS; r++)
            if (groups[w].to[r])
                fclose(groups[w].to[r]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
