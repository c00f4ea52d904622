/*
 * strategies_bench.c - ./bench strategies: training by two workers with one thread each (multi_worker, batch 64 each), and how that scales.
 *
 * Two groups of processes wait for orders: one worker, and two workers with a communicator between them (found by TF_CONFIG, as processes that were
 * started by hand). They take turns, ten rounds and more, each a fit of as many steps as take about 0.2 s; scaling_2w is the median of the rounds'
 * rate(2) / (2 rate(1)). A model is seen to learn before it is timed. The peers (peers/strategies_torch.py, strategies_keras.py) do the same work in the
 * same run of ./bench. JSON lines as everywhere. Options: --quick; --model NAME.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <unisono/native.h>

#include "engine_models.h"

#define MAX_ROUNDS 20
#define BATCH 64

static const char *const names[] = { "nnlm_head", "mnist_cnn", "svhn_cnn" };
static const int steps_of[] = { 2000, 60, 8 };
#define MODELS 3

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

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
} worker;

static double last_loss(const uni_value *history)
{
    const uni_value *losses = uni_dict_get(history, "loss");
    return uni_value_as_float(uni_list_get(losses, uni_list_size(losses) - 1), 0);
}

/* Seconds of a fit of so many steps. */
static double fit(worker *w, int steps, int epochs, double *loss)
{
    uni_error err = { 0 };
    uni_value *history = NULL;
    double begun = now_s();
    if (uni_strategy_fit(
            w->strategy, w->model,
            &(uni_fit_options){
                .batches = w->batches, .steps_per_epoch = steps, .epochs = epochs, .threads = 1 },
            &history, &err) < 0)
        give_up("fit", err.message);
    double seconds = now_s() - begun;
    if (loss)
        *loss = last_loss(history);
    uni_value_free(history);
    return seconds;
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
    if (make_model(&w->model, row, &err) < 0 ||
        feed_fill(&w->feed, row, BATCH * uni_strategy_num_replicas_in_sync(w->strategy), BATCHES,
                  &err) < 0 ||
        feed_open(&w->batches, &w->feed, &err) < 0 ||
        uni_strategy_place(w->strategy, w->model, &err) < 0)
        give_up(name, err.message);
}

/* Orders are "NAME STEPS"; rank 0 answers with samples a second. The first order for a model must learn. */
static void work(uni_strategy *strategy, FILE *orders, FILE *answers)
{
    static worker w;
    char line[128], name[64], open[64] = "";
    int steps;
    w.strategy = strategy;
    while (fgets(line, sizeof line, orders) && sscanf(line, "%63s %d", name, &steps) == 2) {
        if (strcmp(name, open) != 0) {
            double first = 0, later = 0;
            open_model(&w, name);
            snprintf(open, sizeof open, "%s", name);
            fit(&w, BATCHES, 1, &first);
            fit(&w, BATCHES, strcmp(name, "mnist_cnn") == 0 ? 20 : 3, &later);
            if (!(later < first))
                give_up(name, "does not learn its batches by heart");
        }
        double seconds = fit(&w, steps, 1, NULL);
        double samples =
            (double)steps * BATCH * (double)uni_strategy_num_replicas_in_sync(strategy);
        if (uni_strategy_is_chief(strategy)) {
            fprintf(answers, "%.3f\n", samples / seconds);
            fflush(answers);
        }
    }
    _exit(0);
}

static void open_strategy(uni_strategy **out, int rank, int size, int token)
{
    uni_error err = { 0 };
    char cluster[256];
    snprintf(cluster, sizeof cluster,
             "{\"cluster\": {\"worker\": [\"localhost:%d\", \"localhost:%d\"]}, \"task\": "
             "{\"type\": \"worker\", \"index\": %d}}",
             token, token + 1, rank);
    uni_comm *comm = NULL;
    int status = size == 1 ? uni_strategy_none(out, &err)
                           : uni_comm_open_tf_config(&comm, cluster, NULL, &err);
    if (status == 0 && size > 1)
        status = uni_strategy_multi_worker(out, comm, NULL, &err);
    if (status < 0)
        give_up("cannot open a strategy", err.message);
}

/* ---- groups ---- */

typedef struct group {
    int size;
    FILE *to[2], *from;
    double rates[MAX_ROUNDS];
} group;

static void open_group(group *g, int size)
{
    int answers[2];
    g->size = size;
    if (pipe(answers) < 0)
        give_up("pipe", strerror(errno));
    for (int r = 0; r < size; r++) {
        int orders[2];
        if (pipe(orders) < 0)
            give_up("pipe", strerror(errno));
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            setenv("OMP_NUM_THREADS", "1", 1);
            for (int i = 0; i < r; i++)
                fclose(g->to[i]);
            close(orders[1]);
            uni_strategy *strategy = NULL;
            open_strategy(&strategy, r, size, (int)getppid() % 30000 + 1024);
            work(strategy, fdopen(orders[0], "r"), fdopen(answers[1], "w"));
        }
        close(orders[0]);
        g->to[r] = fdopen(orders[1], "w");
    }
    close(answers[1]);
    g->from = fdopen(answers[0], "r");
}

static double measure(group *g, const char *name, int steps)
{
    char line[64];
    double rate = 0;
    for (int r = 0; r < g->size; r++) {
        fprintf(g->to[r], "%s %d\n", name, steps);
        fflush(g->to[r]);
    }
    if (!fgets(line, sizeof line, g->from) || sscanf(line, "%lf", &rate) != 1)
        give_up(name, "a worker did not answer");
    return rate;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int n)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

static double run_model(group *one, group *two, int index, int rounds)
{
    double ratios[MAX_ROUNDS];
    for (int i = -1; i < rounds; i++) { /* the first warms up */
        double alone = measure(one, names[index], steps_of[index]);
        double together = measure(two, names[index], steps_of[index]);
        if (i < 0)
            continue;
        one->rates[i] = alone;
        two->rates[i] = together;
        ratios[i] = together / (2 * alone);
    }
    double scaling = median(ratios, rounds);
    printf("{\"bench\": \"strategies\", \"metric\": \"%s_2w_samples_per_s\", \"unit\": "
           "\"samples/s\", \"unisono\": %.1f, \"one_worker\": %.1f, \"pairs\": %d}\n",
           names[index], median(two->rates, rounds), median(one->rates, rounds), rounds);
    printf("{\"bench\": \"strategies\", \"metric\": \"scaling_2w_%s\", \"unit\": \"ratio\", "
           "\"unisono\": %.3f, \"peer\": null, \"peer_name\": \"none: rate(2) / (2 rate(1))\", "
           "\"ratio\": null, \"pairs\": %d}\n",
           names[index], scaling, rounds);
    fflush(stdout);
    return scaling;
}

int main(int argc, char **argv)
{
    static group one, two;
    int rounds = 10;
    const char *only = NULL;
    double worst = 9;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            rounds = 2;
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc)
            only = argv[++i];
        else
            give_up("usage", "strategies_bench [--quick] [--model NAME]");
    }
    signal(SIGPIPE, SIG_IGN);
    open_group(&one, 1);
    open_group(&two, 2);
    for (int i = 0; i < MODELS; i++) {
        if (only && strcmp(only, names[i]) != 0)
            continue;
        double scaling = run_model(&one, &two, i, rounds);
        worst = scaling < worst ? scaling : worst;
    }
    if (!only)
        printf("{\"bench\": \"strategies\", \"metric\": \"scaling_2w\", \"unit\": \"ratio\", "
               "\"unisono\": %.3f, \"peer\": null, \"peer_name\": \"none: the lowest of the three "
               "models\", \"ratio\": null}\n",
               worst);
    fclose(one.to[0]);
    fclose(two.to[0]);
    fclose(two.to[1]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
