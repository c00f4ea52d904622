/*
 * tune_bench.c - ./bench tune: trials a second, resume, memory, what ASHA saves and what TPE finds.
 * Ray Tune and Optuna do the same work (peers/tune_ray.py, peers/tune_optuna.py).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unisono/unisono.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void line(const char *metric, const char *unit, double value)
{
    printf("{\"bench\": \"tune\", \"metric\": \"%s\", \"unit\": \"%s\", \"unisono\": %.6g}\n",
           metric, unit, value);
    fflush(stdout);
}

/* ---- the functions ---- */

static int twice(uni_session *session, uni_value **result, uni_error *err)
{
    double x = uni_dict_get_float(uni_session_info_of(session)->config, "x", 0);
    for (int i = 0; i < 2; i++)
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "loss" },
                                           (const double[]){ x * x / (i + 1) }, err));
    return 0;
}

static double branin(double u, double v)
{
    double x = 15 * u - 5, y = 15 * v;
    double a = y - 5.1 / (4 * M_PI * M_PI) * x * x + 5 / M_PI * x - 6;
    return a * a + 10 * (1 - 1 / (8 * M_PI)) * cos(x) + 10;
}

static double rosenbrock(double u, double v)
{
    double x = 4 * u - 2, y = 4 * v - 1;
    return (1 - x) * (1 - x) + 100 * (y - x * x) * (y - x * x);
}

static double hartmann3(double u, double v, double w)
{
    static const double alpha[4] = { 1, 1.2, 3, 3.2 };
    static const double a[4][3] = {
        { 3, 10, 30 }, { 0.1, 10, 35 }, { 3, 10, 30 }, { 0.1, 10, 35 }
    };
    static const double p[4][3] = { { 0.3689, 0.1170, 0.2673 },
                                    { 0.4699, 0.4387, 0.7470 },
                                    { 0.1091, 0.8732, 0.5547 },
                                    { 0.0381, 0.5743, 0.8828 } };
    const double x[3] = { u, v, w };
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        double inner = 0;
        for (int j = 0; j < 3; j++)
            inner += a[i][j] * (x[j] - p[i][j]) * (x[j] - p[i][j]);
        sum -= alpha[i] * exp(-inner);
    }
    return sum;
}

static double value_of(const char *which, const uni_value *config)
{
    double u = uni_dict_get_float(config, "u", 0), v = uni_dict_get_float(config, "v", 0);
    return strcmp(which, "branin") == 0       ? branin(u, v)
           : strcmp(which, "rosenbrock") == 0 ? rosenbrock(u, v)
                                              : hartmann3(u, v, uni_dict_get_float(config, "w", 0));
}

/* A learning curve that ends at the function's value: 64 epochs, the gap shrinks with each. */
static int epochs(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    double end = value_of(uni_dict_get_string(config, "function", "branin"), config);
    for (int epoch = 1; epoch <= 64; epoch++)
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "loss" },
                                           (const double[]){ end + (fabs(end) + 5) / epoch }, err));
    return 0;
}

static int once(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    double value = value_of(uni_dict_get_string(config, "function", "branin"), config);
    return uni_session_report_numbers(session, 1, (const char *const[]){ "loss" }, &value, err);
}

static const uni_function functions[] = {
    { "twice", twice }, { "epochs", epochs }, { "once", once }, { NULL, NULL }
};

/* ---- measurements ---- */

typedef struct bench {
    uni_program *program;
    char storage[200];
    bool quick;
} bench;

static int fit(const bench *b, const char *function, uni_value *space, int samples, uint64_t seed,
               const char *searcher, const char *scheduler, int concurrent, uni_tuner **out)
{
    uni_error err = { 0 };
    uni_value *search = NULL, *schedule = NULL;
    *out = NULL;
    int status = searcher ? uni_json_read(&search, searcher, strlen(searcher), &err) : 0;
    if (status == 0 && scheduler)
        status = uni_json_read(&schedule, scheduler, strlen(scheduler), &err);
    if (status == 0)
        status = uni_tuner_new(out,
                               &(uni_tuner_options){ .main = b->program,
                                                     .function = function,
                                                     .space = space,
                                                     .num_samples = samples,
                                                     .metric = "loss",
                                                     .mode = "min",
                                                     .seed = seed,
                                                     .searcher = search,
                                                     .scheduler = schedule,
                                                     .max_concurrent = concurrent,
                                                     .name = function,
                                                     .storage_path = b->storage },
                               &err);
    if (status == 0)
        status = uni_tuner_fit(*out, &err);
    if (status < 0)
        fprintf(stderr, "tune_bench: %s\n", err.message);
    uni_value_free(search);
    uni_value_free(schedule);
    return status;
}

static uni_value *space_of(const char *function, bool three)
{
    uni_value *space = uni_value_dict();
    int failed = uni_dict_take(space, "u", uni_tune_uniform(0, 1));
    failed |= uni_dict_take(space, "v", uni_tune_uniform(0, 1));
    if (three)
        failed |= uni_dict_take(space, "w", uni_tune_uniform(0, 1));
    failed |= uni_dict_take(space, "function", uni_value_string(function));
    if (!failed)
        return space;
    uni_value_free(space);
    return NULL;
}

static double best_of(const uni_tuner *tuner)
{
    int64_t best;
    if (uni_tune_best(&best, uni_tuner_results(tuner), NULL, NULL, UNI_SCOPE_ALL, NULL) < 0)
        return NAN;
    return uni_trial_value(uni_tuner_results(tuner), best, NULL, NULL, UNI_SCOPE_ALL);
}

static int64_t epochs_of(const uni_tuner *tuner)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < uni_tune_info_of(uni_tuner_results(tuner))->num_trials; i++)
        sum += uni_trial_info_of(uni_tuner_results(tuner), i)->iterations;
    return sum;
}

/* 10,000 trials that report twice, two at a time; then the tuner's own memory. */
static int measure_rate(const bench *b)
{
    int count = b->quick ? 1000 : 10000;
    uni_tuner *tuner = NULL;
    uni_value *space = uni_value_dict();
    struct rusage usage;
    if (uni_dict_take(space, "x", uni_tune_uniform(-1, 1)) < 0)
        return -1;
    double begun = now();
    int status = fit(b, "twice", space, count, 1, NULL, NULL, 2, &tuner);
    double took = now() - begun;
    if (status == 0 &&
        uni_tune_count_status(uni_tuner_results(tuner), UNI_TRIAL_TERMINATED) == count)
        line("trials_per_s", "1/s", count / took);
    getrusage(RUSAGE_SELF, &usage);
    line("tuner_rss_mb", "MB", (double)usage.ru_maxrss / 1024);
    uni_tuner_free(tuner);
    uni_value_free(space);
    return status;
}

/* A tuner is killed near its end; how long until its successor is ready to start trials. */
static int measure_resume(const bench *b)
{
    int count = b->quick ? 1000 : 10000;
    char dir[190];
    uni_error err = { 0 };
    uni_tuner *tuner = NULL;
    snprintf(dir, sizeof dir, "%.180s/resume", b->storage);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bench child = *b;
        uni_value *space = uni_value_dict();
        snprintf(child.storage, sizeof child.storage, "%s", dir);
        if (uni_dict_take(space, "x", uni_tune_uniform(-1, 1)) == 0)
            (void)!fit(&child, "twice", space, count, 2, NULL, NULL, 2, &tuner);
        _exit(0);
    }
    for (int i = 0; i < 6000; i++) { /* until nine tenths are done */
        uni_tune_results *results = NULL;
        int64_t done = 0;
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        if (uni_tune_results_open(&results, "twice", dir, NULL) == 0)
            done = uni_tune_count_status(results, UNI_TRIAL_TERMINATED);
        uni_tune_results_free(results);
        if (done >= count * 9 / 10)
            break;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    double begun = now();
    int status = uni_tuner_open(
        &tuner, "twice", &(uni_tuner_options){ .main = b->program, .storage_path = dir }, 0, &err);
    if (status == 0)
        line("resume_ms", "ms", (now() - begun) * 1e3);
    else
        fprintf(stderr, "tune_bench: %s\n", err.message);
    uni_tuner_free(tuner);
    uni_tune_results *results = NULL;
    begun = now();
    if (uni_tune_results_open(&results, "twice", dir, NULL) == 0)
        line("show_ms", "ms", (now() - begun) * 1e3);
    uni_tune_results_free(results);
    return status;
}

/* Epochs of full random search for each epoch of ASHA, where ASHA found as good a value: median
 * over seeds and two functions. */
static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static int measure_asha(const bench *b)
{
    static const char *const names[] = { "branin", "rosenbrock" };
    int seeds = b->quick ? 1 : 5, found = 0, tries = 0;
    double ratios[16];
    for (int f = 0; f < 2; f++)
        for (int seed = 1; seed <= seeds; seed++) {
            uni_value *space = space_of(names[f], false);
            uni_tuner *full = NULL, *halved = NULL;
            int status = fit(b, "epochs", space, 64, (uint64_t)seed, NULL, NULL, 2, &full);
            if (status == 0)
                status = fit(b, "epochs", space, 64, (uint64_t)seed, NULL,
                             "{\"type\": \"asha\", \"max_t\": 64, \"grace_period\": 1, "
                             "\"reduction_factor\": 4}",
                             2, &halved);
            if (status == 0) {
                bool as_good = best_of(halved) <= best_of(full) + 1e-9;
                ratios[tries] = as_good ? (double)epochs_of(full) / (double)epochs_of(halved) : 0;
                found += as_good;
                tries++;
            }
            uni_tuner_free(full);
            uni_tuner_free(halved);
            uni_value_free(space);
            if (status < 0)
                return status;
        }
    qsort(ratios, (size_t)tries, sizeof *ratios, by_size);
    line("asha_epochs_ratio", "x_faster", ratios[tries / 2]);
    fprintf(stderr, "tune_bench: asha found random search's best in %d of %d\n", found, tries);
    return 0;
}

/* How often TPE's best of 100 is better than random search's, over 20 seeds and three functions. */
static int measure_tpe(const bench *b)
{
    static const char *const names[] = { "branin", "rosenbrock", "hartmann3" };
    int seeds = b->quick ? 3 : 20, wins = 0, all = 0;
    for (int f = 0; f < 3; f++) {
        double gap[2] = { 0, 0 };
        int won = 0;
        for (int seed = 1; seed <= seeds; seed++) {
            uni_value *space = space_of(names[f], f == 2);
            uni_tuner *random = NULL, *tpe = NULL;
            int status = fit(b, "once", space, 100, (uint64_t)seed, NULL, NULL, 1, &random);
            if (status == 0)
                status = fit(b, "once", space, 100, (uint64_t)seed, "{\"type\": \"tpe\"}", NULL, 1,
                             &tpe);
            if (status == 0) {
                won += best_of(tpe) < best_of(random);
                gap[0] += best_of(random) / seeds;
                gap[1] += best_of(tpe) / seeds;
            }
            uni_tuner_free(random);
            uni_tuner_free(tpe);
            uni_value_free(space);
            if (status < 0)
                return status;
        }
        fprintf(stderr,
                "tune_bench: %s: mean best of 100 by random %.4f, by tpe %.4f; tpe better in %d of "
                "%d\n",
                names[f], gap[0], gap[1], won, seeds);
        char metric[64];
        snprintf(metric, sizeof metric, "tpe_best_%s", names[f]);
        line(metric, "loss", gap[1]);
        wins += won;
        all += seeds;
    }
    line("tpe_vs_random", "share", (double)wins / all);
    return 0;
}

/* Python's own program prints its own line. */
static int measure_python(const bench *b)
{
    char exe[1000], command[3000];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *end = length > 0 ? (exe[length] = '\0', strrchr(exe, '/')) : NULL;
    if (!end)
        return 0;
    *end = '\0';
    snprintf(command, sizeof command, "PYTHONPATH='%s/../python' python3 '%s/tune_python.py'%s",
             exe, UNI_BENCH_DIR, b->quick ? " --quick" : "");
    fflush(stdout);
    if (system(command) != 0)
        fprintf(stderr, "tune_bench: no number from Python (is the package built?)\n");
    return 0;
}

static int driver(uni_program *program, int argc, char **argv)
{
    bench b = { .program = program };
    char command[300];
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        b.quick |= strcmp(argv[i], "--quick") == 0;
        only = strncmp(argv[i], "--only=", 7) == 0 ? argv[i] + 7 : only;
    }
    const char *base = getenv("TMPDIR");
    snprintf(b.storage, sizeof b.storage, "%.150s/unisono-bench-XXXXXX",
             base && base[0] ? base : "/tmp");
    if (!mkdtemp(b.storage))
        return 1;
    static const struct {
        const char *name;
        int (*measure)(const bench *b);
    } all[] = { { "rate", measure_rate },
                { "python", measure_python },
                { "resume", measure_resume },
                { "asha", measure_asha },
                { "tpe", measure_tpe } };
    int status = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == 0; i++)
        if (!only || strcmp(only, all[i].name) == 0)
            status = all[i].measure(&b);
    snprintf(command, sizeof command, "rm -rf '%s'", b.storage);
    return system(command) != 0 || status < 0;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, functions, driver);
}
