/*
 * engine_bench.c - ./bench engine: training steps a second of the models of engine_models.c,
 * what they need and how they grow.
 *
 * JSON lines. A model's numbers come from a process of its own (first step and memory belong to one
 * model): this program starts itself with --model. A model must first be seen to train (its loss on
 * one batch falls) and to have as many weights as the peers', then it is timed:
 *   NAME_samples_per_s   uni_model_fit over batches in memory, as it comes: windows are epochs,
 *                        timed by a callback; median and spread
 *   kernel_sum_ratio     the kernels' own times (the tape's profile of a loop over the public
 *                        calls, and the update) over the time of fit's step; windows of both in
 *                        turn, median of the pairs. With replica threads it is one replica's part
 *                        of the work, while as many threads do the same on models of their own: as
 *                        in fit no core is idle, and nobody waits.
 *   gflops_of_peak       floating-point operations of the products and convolutions over fit's
 *                        time, over the peak of a large product
 *   first_step_ms        from the start of the process (before exec) to the end of the first step,
 *                        median of several processes
 *   peak_rss_mb          of that process, with its 32 batches
 *   step_us              how a step grows with the batch (1 to 4,096) and with the width of the MLP
 * --serve runs one window for every line on stdin and prints its rate: peers do so to measure in
 * turn (benchmarks/peers/engine_common.py). --profile prints where the time goes, per kernel;
 * --quick is a smoke run. One thread, but for those of the engine.
 */
#include <math.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/shared.h"
#include "bench_numbers.h"
#include "engine_models.h"
#include "nn/step.h"

#define WINDOWS 9
#define MAX_ENTRIES 64
#define MAX_LANES 64

extern char **environ;

static bool quick;

static void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("engine_bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void must(int status, const uni_error *err)
{
    if (status < 0)
        give_up("%s", err->message);
}

/* `more`: further keys, each with a comma before it. load: above the number of cores somebody else
 * was running too. */
static void print_line(const char *bench, const char *metric, const char *unit, double value,
                       const char *format, ...)
{
    char more[512];
    double load = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(more, sizeof more, format, arguments);
    va_end(arguments);
    getloadavg(&load, 1);
    printf(
        "{\"bench\":\"%s\",\"metric\":\"%s\",\"unit\":\"%s\",\"unisono\":%.6g%s,\"load\":%.1f}\n",
        bench, metric, unit, value, more, load);
    fflush(stdout);
}

/* ---- fit, timed ---- */

typedef struct clock_callback {
    double begun, seconds[64];
    double loss;
    int count;
} clock_callback;

static int epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    ((clock_callback *)self)->begun = now_s();
    return 0;
}

static int epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    clock_callback *clock = self;
    if (clock->count < 64)
        clock->seconds[clock->count++] = now_s() - clock->begun;
    clock->loss = uni_logs_get(logs, "loss");
    return 0;
}

/* Seconds of `count` windows of `steps` steps, fit's own start left out; the loss of the last
 * window. */
static double fit_windows(uni_model *model, bench_feed *feed, int64_t steps, int count,
                          int replicas, double *seconds)
{
    static const uni_callback_class class_ = { .name = "Clock",
                                               .epoch_begin = epoch_begin,
                                               .epoch_end = epoch_end };
    uni_error err = { 0 };
    uni_batches *batches = NULL;
    uni_callback *callback = NULL;
    clock_callback clock = { 0 };
    must(feed_open(&batches, feed, &err), &err);
    must(uni_callback_new(&callback, &class_, &clock, &err), &err);
    must(uni_model_fit(NULL, model,
                       &(uni_fit_options){ .batches = batches,
                                           .steps_per_epoch = steps,
                                           .epochs = count,
                                           .replicas = replicas,
                                           .callbacks = &callback,
                                           .num_callbacks = 1 },
                       &err),
         &err);
    for (int i = 0; seconds != NULL && i < count; i++)
        seconds[i] = clock.seconds[i];
    uni_callback_free(callback);
    uni_batches_free(batches);
    return clock.loss;
}

/* Growing windows: they warm up and say how many steps fill a window. */
static int64_t steps_for(uni_model *model, bench_feed *feed, double seconds)
{
    int64_t steps = 1;
    double took = 0;
    for (;;) {
        fit_windows(model, feed, steps, 1, 0, &took);
        if (took > seconds / 4)
            break;
        steps *= 4;
    }
    steps = (int64_t)((double)steps * seconds / took);
    return steps > 0 ? steps : 1;
}

/* ---- what must be true before anything is timed ---- */

static void check_model(uni_model *model, const bench_row *row)
{
    uni_parameters *store = uni_model_parameters(model);
    size_t count = 0;
    for (size_t i = 0; i < uni_parameters_count(store); i++)
        count += uni_parameter_info_of(uni_parameters_at(store, i))->size;
    if (count != (size_t)row->parameters)
        give_up("%s has %zu weights, the peers' has %d", row->name, count, row->parameters);
}

static void check_learning(const bench_row *row, int64_t batch)
{
    uni_error err = { 0 };
    uni_model *model = NULL;
    bench_feed one;
    must(make_model(&model, row, &err), &err);
    check_model(model, row);
    must(feed_fill(&one, row, batch, 1, &err), &err);
    double before = fit_windows(model, &one, 1, 1, 0, NULL);
    fit_windows(model, &one, 40, 1, 0, NULL);
    double after = fit_windows(model, &one, 1, 1, 0, NULL);
    if (!(after < 0.97 * before))
        give_up("%s does not learn one batch by heart: loss %g, then %g", row->name, before, after);
    feed_free(&one);
    uni_model_free(model);
}

/* ---- kernels ---- */

typedef struct bench_loop {
    uni_model *model;
    uni_tape *tape;
    uni_gradients *gradients;
    uni_optimizer *optimizer;
    uni_loss *loss;
    int replicas;
    uint64_t steps;
    double update; /* seconds */
} bench_loop;

static void loop_open(bench_loop *loop, uni_model *model, const bench_row *row, int replicas)
{
    uni_error err = { 0 };
    int threads = replicas > 1 ? 1 : 0;
    *loop = (bench_loop){ .model = model, .replicas = replicas };
    must(uni_tape_new(&loop->tape, &(uni_tape_options){ .threads = threads }, &err), &err);
    must(uni_gradients_new(&loop->gradients, uni_model_parameters(model), &err), &err);
    must(uni_optimizer_new(&loop->optimizer, row->optimizer,
                           &(uni_optimizer_options){ .learning_rate = row->learning_rate }, &err),
         &err);
    must(uni_loss_new(&loop->loss, row->loss, &(uni_loss_options){ .from_logits = true }, &err),
         &err);
}

static void loop_close(bench_loop *loop)
{
    uni_loss_free(loop->loss);
    uni_optimizer_free(loop->optimizer);
    uni_gradients_free(loop->gradients);
    uni_tape_free(loop->tape);
}

/* The update of one replica's slice of the weights, or of all of them on the tape's threads. */
static void loop_update(bench_loop *loop, double scale)
{
    uni_error err = { 0 };
    double begun = now_s();
    if (loop->replicas > 1) {
        size_t size = 0;
        uni_gradients_data(loop->gradients, &size);
        uni__update update = { .optimizer = loop->optimizer, .gradients = loop->gradients };
        must(uni__update_begin(&update, 1 / scale, &err), &err);
        uni__update_slice(&update, (uni__span){ 0, size / (size_t)loop->replicas });
        uni__update_commit(&update);
    } else {
        must(uni_optimizer_apply(loop->optimizer, loop->gradients, (float)scale,
                                 uni__tape_threads(loop->tape), &err),
             &err);
    }
    loop->update += now_s() - begun;
}

/* One replica's part of a batch, as fit does. */
static void loop_step(bench_loop *loop, const uni_batch *batch)
{
    uni_error err = { 0 };
    uni_column x = batch->x[0], y = batch->y[0];
    x.shape[0] /= loop->replicas;
    y.shape[0] /= loop->replicas;
    uni_tape_begin(loop->tape, &(uni_step){ .training = true,
                                            .gradients = loop->gradients,
                                            .seed = 1,
                                            .number = loop->steps++ });
    uni_tensor *prediction =
        uni_model_call(loop->model, loop->tape, uni_tape_input_column(loop->tape, &x));
    uni_tensor *each = uni_loss_per_example(
        loop->loss, loop->tape, uni_tape_input_column(loop->tape, &y), prediction, NULL);
    double count = each != NULL ? (double)uni_tensor_count(each) : 1;
    double scale = 1 / count / loop->replicas;
    uni__descent descent;
    bool descends = loop->replicas == 1 && /* as fit does */
                    uni__optimizer_descent(loop->optimizer, (float)scale, &descent);
    must(uni__tape_gradient(loop->tape, uni_op_sum(loop->tape, each),
                            &(uni_gradient_options){ .consume = true }, descends ? &descent : NULL,
                            &err),
         &err);
    loop_update(loop, scale);
}

typedef struct kernel_times {
    double seconds, flops; /* of one step */
    size_t count;
    uni__profile_entry entries[MAX_ENTRIES]; /* of all steps */
} kernel_times;

static void loop_profile(bench_loop *loop, bench_feed *feed, int64_t steps, kernel_times *out)
{
    loop->update = 0;
    uni__tape_profile(loop->tape, true);
    for (int64_t i = 0; i < steps; i++)
        loop_step(loop, &feed->batches[i % feed->count]);
    out->count = uni__tape_profile_read(loop->tape, out->entries, MAX_ENTRIES - 1);
    if (out->count > MAX_ENTRIES - 1)
        give_up("more than %d kernels in the profile", MAX_ENTRIES - 1);
    out->entries[out->count++] = (uni__profile_entry){ "update", (uint64_t)steps, loop->update, 0 };
    uni__tape_profile(loop->tape, false);
    out->seconds = out->flops = 0;
    for (size_t i = 0; i < out->count; i++) {
        out->seconds += out->entries[i].seconds / (double)steps;
        out->flops += out->entries[i].flops / (double)steps * loop->replicas;
    }
}

/* One of the threads that run the bare kernels at the same time. */
typedef struct lane {
    pthread_t thread;
    uni_model *own; /* NULL in the first, which has fit's model */
    bench_loop loop;
    bench_feed *feed;
    int64_t steps;
    kernel_times times;
} lane;

static void *lane_run(void *argument)
{
    lane *self = argument;
    loop_profile(&self->loop, self->feed, self->steps, &self->times);
    return NULL;
}

static void lanes_open(lane *lanes, int count, uni_model *model, const bench_row *row,
                       bench_feed *feed)
{
    uni_error err = { 0 };
    for (int i = 0; i < count; i++) {
        lanes[i] = (lane){ .feed = feed };
        if (i > 0)
            must(make_model(&lanes[i].own, row, &err), &err);
        loop_open(&lanes[i].loop, i > 0 ? lanes[i].own : model, row, count);
    }
}

/* The mean of the lanes' times is left in the first. */
static void lanes_profile(lane *lanes, int count, int64_t steps)
{
    for (int i = 0; i < count; i++)
        lanes[i].steps = steps;
    for (int i = 1; i < count; i++)
        if (pthread_create(&lanes[i].thread, NULL, lane_run, &lanes[i]) != 0)
            give_up("no thread for the kernels of a replica");
    lane_run(&lanes[0]);
    for (int i = 1; i < count; i++) {
        pthread_join(lanes[i].thread, NULL);
        lanes[0].times.seconds += lanes[i].times.seconds;
    }
    lanes[0].times.seconds /= count;
}

static void lanes_close(lane *lanes, int count)
{
    for (int i = 0; i < count; i++) {
        loop_close(&lanes[i].loop);
        uni_model_free(lanes[i].own);
    }
}

static void print_profile(const bench_row *row, kernel_times *times, int64_t steps,
                          double step_seconds)
{
    fprintf(stderr, "%s: a step of fit takes %.1f us, its kernels %.1f us\n", row->name,
            step_seconds * 1e6, times->seconds * 1e6);
    for (size_t left = times->count; left > 0; left--) {
        size_t best = 0;
        for (size_t i = 1; i < times->count; i++)
            if (times->entries[i].seconds > times->entries[best].seconds)
                best = i;
        uni__profile_entry *e = &times->entries[best];
        fprintf(stderr, "  %-28s %6.1f calls %9.2f us %5.1f%% %7.1f GFLOP/s\n", e->operation,
                (double)e->calls / (double)steps, e->seconds / (double)steps * 1e6,
                e->seconds / (double)steps / times->seconds * 100,
                e->seconds > 0 ? e->flops / e->seconds * 1e-9 : 0);
        e->seconds = -1;
    }
}

/* The peak: a product of two large square matrices on all cores. */
static double peak_flops(void)
{
    enum { SIDE = 1024 };
    uni_error err = { 0 };
    uni_tape *tape = NULL;
    float *data = malloc((size_t)SIDE * SIDE * sizeof *data);
    double best = 0;
    for (int i = 0; data != NULL && i < SIDE * SIDE; i++)
        data[i] = (float)(i % 17) * 0.1f - 0.8f;
    must(data != NULL ? uni_tape_new(&tape, NULL, &err) : -1, &err);
    for (double until = now_s() + (quick ? 0.1 : 0.7); now_s() < until;) {
        uni_tape_begin(tape, NULL);
        uni_tensor *x = uni_tape_input(tape, UNI_F32, 2, (const int64_t[]){ SIDE, SIDE }, data);
        double begun = now_s();
        uni_op_matmul(tape, x, x, false, false);
        double rate = 2.0 * SIDE * SIDE * SIDE / (now_s() - begun);
        must(uni_tape_status(tape, &err), &err);
        best = rate > best ? rate : best;
    }
    uni_tape_free(tape);
    free(data);
    return best;
}

/* fit and the bare kernels in turn, so that what else the machine does hits both. */
static void bench_kernels(uni_model *model, const bench_row *row, bench_feed *feed, int64_t batch,
                          int64_t steps, int replicas, bool profile)
{
    double ratios[WINDOWS], step_seconds[WINDOWS];
    lane lanes[MAX_LANES];
    kernel_times *times = &lanes[0].times;
    if (replicas > MAX_LANES)
        give_up("at most %d replicas", MAX_LANES);
    lanes_open(lanes, replicas, model, row, feed);
    lanes_profile(lanes, replicas, steps / 4 + 1);
    fit_windows(model, feed, steps / 4 + 1, 1, replicas, NULL);
    int windows = quick ? 3 : WINDOWS;
    for (int i = 0; i < windows; i++) {
        double took = 0;
        fit_windows(model, feed, steps, 1, replicas, &took);
        lanes_profile(lanes, replicas, steps);
        step_seconds[i] = took / (double)steps;
        ratios[i] = times->seconds / step_seconds[i];
    }
    numbers ratio = sorted(ratios, windows), step = sorted(step_seconds, windows);
    double peak = peak_flops();
    print_line(row->name, "kernel_sum_ratio", "ratio", ratio.median,
               ",\"low\":%.3f,\"high\":%.3f,\"batch\":%lld,\"replicas\":%d,\"kernels_us\":%.1f,"
               "\"step_us\":%.1f",
               ratio.low, ratio.high, (long long)batch, replicas, times->seconds * 1e6,
               step.median * 1e6);
    print_line(row->name, "gflops_of_peak", "ratio", times->flops / step.median / peak,
               ",\"gflops\":%.1f,\"peak_gflops\":%.1f,\"best\":%.3f",
               times->flops / step.median * 1e-9, peak * 1e-9, times->flops / step.low / peak);
    if (profile)
        print_profile(row, times, steps, step.median);
    lanes_close(lanes, replicas);
}

/* ---- one model ---- */

static void bench_rate(uni_model *model, const bench_row *row, bench_feed *feed, int64_t batch,
                       int64_t steps)
{
    char metric[64];
    double rates[WINDOWS];
    int windows = quick ? 3 : WINDOWS;
    fit_windows(model, feed, steps, windows, 0, rates);
    for (int i = 0; i < windows; i++)
        rates[i] = (double)(steps * batch) / rates[i];
    numbers rate = sorted(rates, windows);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    snprintf(metric, sizeof metric, "%s_samples_per_s", row->name);
    print_line(row->name, metric, "samples/s", rate.median,
               ",\"batch\":%lld,\"spread\":%.3f,\"best\":%.6g,\"steps\":%lld", (long long)batch,
               (rate.high - rate.low) / rate.median, rate.high, (long long)steps);
    print_line(row->name, "peak_rss_mb", "MB", (double)usage.ru_maxrss / 1024, ",\"batch\":%lld",
               (long long)batch);
}

static int bench_model(const bench_row *row, int64_t batch, double seconds, int replicas,
                       bool profile)
{
    uni_error err = { 0 };
    uni_model *model = NULL;
    bench_feed feed;
    check_learning(row, batch);
    must(make_model(&model, row, &err), &err);
    must(feed_fill(&feed, row, batch, BATCHES, &err), &err);
    int64_t steps = steps_for(model, &feed, seconds / WINDOWS);
    bench_rate(model, row, &feed, batch, steps);
    if (replicas == 0) /* as fit chooses: small steps run on replica threads */
        replicas = row == &rows[0] ? (int)sysconf(_SC_NPROCESSORS_ONLN) : 1;
    bench_kernels(model, row, &feed, batch, steps / 2 + 1, replicas, profile);
    feed_free(&feed);
    uni_model_free(model);
    return 0;
}

/* The first step of a new process; data for one batch only, because no more is needed. */
static int first_step(const bench_row *row, int64_t batch)
{
    uni_error err = { 0 };
    uni_model *model = NULL;
    bench_feed feed;
    must(make_model(&model, row, &err), &err);
    must(feed_fill(&feed, row, batch, 1, &err), &err);
    fit_windows(model, &feed, 1, 1, 0, NULL);
    printf("%.9f\n", now_s());
    return 0;
}

/* ---- growth ---- */

static double step_seconds(uni_model *model, const bench_row *row, int64_t batch)
{
    uni_error err = { 0 };
    double seconds[5];
    bench_feed feed;
    must(feed_fill(&feed, row, batch, batch > 256 ? 4 : 16, &err), &err);
    int64_t steps = steps_for(model, &feed, quick ? 0.005 : 0.08);
    fit_windows(model, &feed, steps, 5, 0, seconds);
    feed_free(&feed);
    return sorted(seconds, 5).median / (double)steps;
}

static void print_step(const char *bench, const char *kind, int64_t size, double seconds,
                       double samples)
{
    char metric[64];
    snprintf(metric, sizeof metric, "step_us_%s_%lld", kind, (long long)size);
    print_line(bench, metric, "us", seconds * 1e6, ",\"samples_per_s\":%.6g", samples / seconds);
}

static int bench_growth(void)
{
    uni_error err = { 0 };
    const bench_row *mlp = &rows[1];
    for (int r = 0; r < (quick ? 1 : 2); r++) {
        for (int64_t batch = 1; batch <= 4096; batch *= 4) {
            uni_model *model = NULL;
            must(make_model(&model, &rows[r], &err), &err);
            print_step(rows[r].name, "batch", batch, step_seconds(model, &rows[r], batch),
                       (double)batch);
            uni_model_free(model);
        }
    }
    for (int64_t width = 64; width <= (quick ? 256 : 4096); width *= 2) {
        uni_model *model = NULL;
        must(make_mlp(&model, width, mlp, &err), &err);
        print_step(mlp->name, "width", width, step_seconds(model, mlp, 64), 64);
        uni_model_free(model);
    }
    return 0;
}

/* ---- all of them, each in its own process ---- */

static int run_self(char *const *arguments, double *finished)
{
    pid_t pid;
    int status = 0, ends[2];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (finished != NULL) {
        if (pipe(ends) < 0)
            give_up("no pipe: %m");
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        posix_spawn_file_actions_addclose(&actions, ends[0]);
        posix_spawn_file_actions_addclose(&actions, ends[1]);
    }
    if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ) != 0)
        give_up("this program could not be started again");
    posix_spawn_file_actions_destroy(&actions);
    if (finished != NULL) {
        char text[64] = "";
        close(ends[1]);
        if (read(ends[0], text, sizeof text - 1) > 0)
            *finished = strtod(text, NULL);
        close(ends[0]);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void bench_first_step(const bench_row *row, int64_t batch)
{
    double took[7];
    int count = quick ? 3 : 7;
    char size[24];
    snprintf(size, sizeof size, "%lld", (long long)batch);
    for (int i = 0; i < count; i++) {
        double begun = now_s(), finished = 0;
        char *arguments[] = { "engine_bench", "--first-step", "--model", (char *)row->name,
                              "--batch",      size,           NULL };
        if (run_self(arguments, &finished) != 0 || finished < begun)
            give_up("the first step of %s failed", row->name);
        took[i] = (finished - begun) * 1e3;
    }
    numbers ms = sorted(took, count);
    print_line(row->name, "first_step_ms", "ms", ms.median,
               ",\"low\":%.2f,\"high\":%.2f,\"batch\":%lld", ms.low, ms.high, (long long)batch);
}

/* A window of fit for every line that is read, its samples a second for an answer. */
static int serve(const bench_row *row, int64_t batch, double seconds)
{
    uni_error err = { 0 };
    uni_model *model = NULL;
    bench_feed feed;
    char line[16];
    double took = 0;
    must(make_model(&model, row, &err), &err);
    must(feed_fill(&feed, row, batch, BATCHES, &err), &err);
    int64_t steps = steps_for(model, &feed, seconds);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        fit_windows(model, &feed, steps, 1, 0, &took);
        printf("%.6g\n", (double)(steps * batch) / took);
        fflush(stdout);
    }
    feed_free(&feed);
    uni_model_free(model);
    return 0;
}

static int bench_all(int64_t batch, char *seconds, bool profile)
{
    char size[24];
    int failed = 0;
    snprintf(size, sizeof size, "%lld", (long long)batch);
    for (int i = 0; i < num_rows; i++) {
        char *arguments[] = { "engine_bench",
                              "--model",
                              (char *)rows[i].name,
                              "--batch",
                              size,
                              "--seconds",
                              seconds,
                              quick     ? "--quick"
                              : profile ? "--profile"
                                        : NULL,
                              NULL };
        failed |= run_self(arguments, NULL);
        bench_first_step(&rows[i], batch);
    }
    char *growth[] = { "engine_bench", "--growth", quick ? "--quick" : NULL, NULL };
    return failed | run_self(growth, NULL);
}

static const bench_row *find_row(const char *name)
{
    for (int i = 0; i < num_rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    give_up("no model %s; there are nnlm_head, mlp_512, mnist_cnn, svhn_cnn, char_transformer, "
            "conv1d",
            name);
    return NULL;
}

int main(int argc, char **argv)
{
    const bench_row *row = NULL;
    int64_t batch = 64;
    char *seconds = "5";
    bool first = false, growth = false, profile = false, serves = false;
    int replicas = 0;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--profile") == 0)
            profile = true;
        else if (strcmp(argv[i], "--first-step") == 0)
            first = true;
        else if (strcmp(argv[i], "--growth") == 0)
            growth = true;
        else if (strcmp(argv[i], "--serve") == 0)
            serves = true;
        else if (strcmp(argv[i], "--model") == 0 && more)
            row = find_row(argv[++i]);
        else if (strcmp(argv[i], "--batch") == 0 && more)
            batch = atoll(argv[++i]);
        else if (strcmp(argv[i], "--seconds") == 0 && more)
            seconds = argv[++i];
        else if (strcmp(argv[i], "--replicas") == 0 && more)
            replicas = atoi(argv[++i]);
        else
            give_up("usage: engine_bench [--quick] [--profile] [--model NAME] [--batch N] "
                    "[--seconds S] [--replicas N] [--growth] [--serve]");
    }
    if (batch < 1 || strtod(seconds, NULL) <= 0)
        give_up("--batch and --seconds must be above 0");
    if (growth)
        return bench_growth();
    if (row == NULL)
        return bench_all(batch, seconds, profile);
    if (serves)
        return serve(row, batch, strtod(seconds, NULL));
    return first ? first_step(row, batch)
                 : bench_model(row, batch, quick ? 0.5 : strtod(seconds, NULL), replicas, profile);
}
