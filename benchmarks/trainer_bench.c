/*
 * trainer_bench.c - ./bench trainer: what the trainer costs.
 *
 * JSON lines with bench, metric, unit, unisono (the median) and spread (10th to 90th percentile).
 * Every number is checked for the right result before it is printed: all reports there, training
 * gone on from the right epoch, checkpoints complete. --quick: a smoke run with small counts.
 * --recovery: only the recoveries of short and long runs.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <unisono/unisono.h>

#define MAX_SAMPLES 1000
#define MEGABYTE 1048576.0

static char storage[256];

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("trainer_bench: ", stderr);
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

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_metric(const char *metric, const char *unit, double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    printf("{\"bench\":\"trainer\",\"metric\":\"%s\",\"unit\":\"%s\",\"unisono\":%.6g,\"low\":%.6g,"
           "\"high\":%.6g,\"samples\":%d}\n",
           metric, unit, samples[count / 2], samples[count / 10], samples[count - 1 - count / 10],
           count);
    fflush(stdout);
}

static uni_value *number(const char *key, int64_t value)
{
    uni_value *config = uni_value_dict();
    if (uni_dict_take(config, key, uni_value_int(value)) < 0)
        give_up("no memory");
    return config;
}

static uni_trainer *trainer_of(uni_program *program, int workers, int max_failures)
{
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    must(uni_trainer_new(&trainer,
                         &(uni_trainer_options){ .main = program,
                                                 .num_workers = workers,
                                                 .storage_path = storage,
                                                 .max_failures = max_failures },
                         &err),
         &err);
    return trainer;
}

/* ---- fit_ms, fit_64_workers_ms ---- */

static int three_reports(uni_session *session, uni_value **result, uni_error *err)
{
    for (int i = 0; i < 3; i++)
        UNI_TRY(uni_session_report_numbers(session, 2, (const char *const[]){ "epoch", "loss" },
                                           (const double[]){ i, 1.0 / (i + 1) }, err));
    return 0;
}

static void bench_fit(uni_program *program, const char *metric, int workers, int count)
{
    double samples[MAX_SAMPLES];
    for (int i = 0; i < count; i++) {
        uni_error err = { 0 };
        uni_result *result = NULL;
        double begun = now_ms();
        uni_trainer *trainer = trainer_of(program, workers, 0);
        must(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "three_reports" },
                             &err),
             &err);
        uni_trainer_free(trainer);
        samples[i] = now_ms() - begun;
        for (int rank = 0; rank < workers; rank++)
            if (uni_result_info_of(result)->iterations[rank] != 3)
                give_up("rank %d has %d reports", rank,
                        (int)uni_result_info_of(result)->iterations[rank]);
        uni_result_free(result);
    }
    print_metric(metric, "ms", samples, count);
}

/* ---- reports_per_s, report_call_us, controller_rss_growth_mb ---- */

static int many_reports(uni_session *session, uni_value **result, uni_error *err)
{
    int64_t count = uni_dict_get_int(uni_session_info_of(session)->config, "count", 1000);
    for (int64_t i = 0; i < count; i++)
        UNI_TRY(uni_session_report_numbers(session, 2, (const char *const[]){ "step", "loss" },
                                           (const double[]){ (double)i, 0.693 / (double)(i + 1) },
                                           err));
    return 0;
}

/* The call alone: a training loop that does a little between two reports, so that the ring never
 * fills. */
static int timed_reports(uni_session *session, uni_value **result, uni_error *err)
{
    enum { CALLS = 20000 };
    double *each = malloc(CALLS * sizeof *each);
    for (int i = 0; each && i < CALLS; i++) {
        double begun = now_ms();
        UNI_TRY(uni_session_report_numbers(session, 2, (const char *const[]){ "step", "loss" },
                                           (const double[]){ i, 0.5 / (i + 1) }, err));
        each[i] = (now_ms() - begun) * 1e3;
        for (double until = now_ms() + 0.005; now_ms() < until;)
            ;
    }
    qsort(each, CALLS, sizeof *each, by_value);
    *result = uni_value_list();
    int status = uni_list_take(*result, uni_value_float(each[CALLS / 2]));
    status |= uni_list_take(*result, uni_value_float(each[CALLS / 100 * 99]));
    free(each);
    return status;
}

static double resident_mb(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2)
        give_up("cannot read /proc/self/statm");
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / MEGABYTE;
}

static double flood(uni_program *program, int64_t count)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = number("count", count);
    uni_trainer *trainer = trainer_of(program, 2, 0);
    must(uni_trainer_start(trainer, &err), &err);
    double begun = now_ms();
    must(uni_trainer_run(&result, trainer,
                         &(uni_run_options){ .function = "many_reports", .config = config }, &err),
         &err);
    double seconds = (now_ms() - begun) * 1e-3;
    uni_trainer_free(trainer);
    if (uni_result_info_of(result)->iterations[0] != count ||
        uni_result_info_of(result)->iterations[1] != count)
        give_up("reports are missing");
    uni_value_free(config);
    uni_result_free(result);
    return 2.0 * (double)count / seconds;
}

static void bench_reports(uni_program *program, bool quick)
{
    double rates[5], calls[5], growth;
    int64_t count = quick ? 20000 : 250000;
    for (int i = 0; i < 5; i++)
        rates[i] = flood(program, count);
    print_metric("reports_per_s", "1/s", rates, 5);
    for (int i = 0; i < 5; i++) {
        uni_error err = { 0 };
        uni_result *result = NULL;
        uni_trainer *trainer = trainer_of(program, 1, 0);
        must(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "timed_reports" },
                             &err),
             &err);
        calls[i] = uni_value_as_float(uni_list_get(uni_result_info_of(result)->returned[0], 0), -1);
        uni_result_free(result);
        uni_trainer_free(trainer);
    }
    print_metric("report_call_us", "us", calls, 5);
    /* The first flood warms allocator and buffers; what a million more reports add is growth. */
    double before = resident_mb();
    flood(program, quick ? 50000 : 500000);
    growth = resident_mb() - before;
    growth = growth > 0 ? growth : 0;
    print_metric("controller_rss_growth_mb", "MB", &growth, 1);
}

/* ---- recovery_ms ---- */

/* A long run in short: reports without checkpoints, each with a position in a dataset. */
static int report_before(uni_session *session, int64_t count, uni_error *err)
{
    uni_dataset_iterator *shard = NULL;
    uni_table *batch = NULL;
    UNI_TRY(uni_session_dataset_shard(&shard, session, "train", NULL,
                                      &(uni_data_options){ .batch_size = 1, .epochs = -1 }, err));
    for (int64_t i = 0; i < count; i++) {
        int more = uni_dataset_iterator_next(&batch, shard, err);
        uni_table_unref(batch);
        if (more < 0)
            return more;
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "before" },
                                           (const double[]){ (double)i }, err));
    }
    return 0;
}

static int count_for_ever(uni_session *session, uni_value **result, uni_error *err)
{
    uni_value *state = NULL;
    const int64_t before = uni_dict_get_int(uni_session_info_of(session)->config, "before", 0);
    if (before > 0)
        UNI_TRY(
            report_before(session, uni_session_info_of(session)->attempt == 1 ? before : 1, err));
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    int64_t epoch = uni_dict_get_int(state, "epoch", 0);
    uni_value_free(state);
    while (!uni_session_should_stop(session)) {
        uni_value *metrics = number("epoch", ++epoch), *next = number("epoch", epoch);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        int status = uni_dict_take(
            metrics, "ms", uni_value_float((double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6));
        bool save = uni_session_info_of(session)->world_rank == 0;
        if (status == 0)
            status = uni_session_report(
                session, metrics, &(uni_checkpoint_source){ .dict = save ? next : NULL }, err);
        uni_value_free(metrics);
        uni_value_free(next);
        UNI_TRY(status);
        usleep(2000);
    }
    return 0;
}

typedef struct killer {
    uni_trainer *trainer;
    int kills, attempt;
    _Atomic int ranks_up, attempt_seen;
    double killed_ms, samples[MAX_SAMPLES];
    int64_t epoch_before, epoch_after;
    int done;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} killer;

/* Sink thread: the first iteration that all ranks of a new attempt reported. */
static void on_result(void *context, const uni_reports *reports)
{
    killer *self = context;
    double latest = 0;
    for (int i = 0; i < reports->world_size; i++) {
        if (!reports->by_rank[i])
            return;
        double at = uni_dict_get_float(reports->by_rank[i], "ms", 0);
        latest = at > latest ? at : latest;
    }
    int64_t epoch = uni_dict_get_int(reports->by_rank[0], "epoch", 0);
    if (epoch == 0)
        return; /* one of those before */
    pthread_mutex_lock(&self->lock);
    if (reports->attempt > self->attempt) {
        if (self->attempt > 0 && self->done < self->kills) {
            /* Nothing complete was lost: at most the epoch in the making is done again. */
            if (epoch + 50 < self->epoch_before || epoch < 2)
                give_up("after a kill at epoch %d training went on from epoch %d",
                        (int)self->epoch_before, (int)epoch);
            self->samples[self->done++] = latest - self->killed_ms;
        }
        self->attempt = reports->attempt;
        pthread_cond_signal(&self->changed);
    }
    self->epoch_before = epoch;
    pthread_mutex_unlock(&self->lock);
}

static int worker_pid(const char *run_dir, int rank, int attempt)
{
    char path[600];
    uni_value *description = NULL;
    snprintf(path, sizeof path, "%s/run.json", run_dir);
    if (uni_json_read_file(&description, path, NULL) < 0)
        return 0;
    int pid = uni_dict_get_int(description, "attempt", 0) == attempt
                  ? (int)uni_dict_get_int(
                        uni_list_get(uni_dict_get(description, "workers"), (size_t)rank), "pid", 0)
                  : 0;
    uni_value_free(description);
    return pid;
}

static void *kill_again_and_again(void *context)
{
    killer *self = context;
    for (int i = 0; i < self->kills; i++) {
        pthread_mutex_lock(&self->lock);
        while (self->attempt < i + 1)
            pthread_cond_wait(&self->changed, &self->lock);
        pthread_mutex_unlock(&self->lock);
        if (i == 0)
            sync(); /* of the reports before: fsyncs of checkpoints would wait for them */
        usleep((useconds_t)(5000 + rand() % 40000)); /* random moments */
        int pid = 0;
        while (!(pid = worker_pid(uni_trainer_latest_run_dir(self->trainer), rand() % 2, i + 1)))
            usleep(1000);
        pthread_mutex_lock(&self->lock);
        self->killed_ms = now_ms();
        pthread_mutex_unlock(&self->lock);
        kill(pid, SIGKILL);
    }
    pthread_mutex_lock(&self->lock);
    while (self->done < self->kills)
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    uni_trainer_stop(self->trainer, false);
    return NULL;
}

/* From kill -9 of a rank to the first iteration that all ranks have reported again. before: reports of each rank before the first checkpoint. */
static void bench_recovery(uni_program *program, const char *name, int kills, int64_t before)
{
    uni_error err = { 0 };
    uni_sink *sink = NULL;
    pthread_t thread;
    killer *self = calloc(1, sizeof *self);
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->kills = kills;
    self->trainer = trainer_of(program, 2, UNI_UNLIMITED);
    must(uni_sink_from_functions(
             &sink, &(uni_sink_functions){ .on_result = on_result, .context = self }, &err),
         &err);
    uni_checkpoint_policy policy = { .num_to_keep = 2 };
    uni_value *config = number("before", before), *datasets = uni_value_dict();
    must(uni_dict_take(datasets, "train", number("range", 1000)), &err);
    pthread_create(&thread, NULL, kill_again_and_again, self);
    int status = uni_trainer_fit(NULL, self->trainer,
                                 &(uni_run_options){ .function = "count_for_ever",
                                                     .config = config,
                                                     .datasets = datasets,
                                                     .sinks = &sink,
                                                     .num_sinks = 1,
                                                     .policy = &policy },
                                 &err);
    if (status != UNI_EPREEMPTED)
        give_up("the run that was killed %d times ended with: %s", kills, err.message);
    pthread_join(thread, NULL);
    print_metric(name, "ms", self->samples, kills);
    uni_value_free(config);
    uni_value_free(datasets);
    uni_sink_free(sink);
    uni_trainer_free(self->trainer);
    free(self);
}

/* A restart costs the same however long the run was. */
static int bench_long_recovery(uni_program *program, bool quick)
{
    bench_recovery(program, "recovery_after_10_reports_ms", quick ? 3 : 40, 10);
    bench_recovery(program, "recovery_after_million_reports_ms", quick ? 3 : 40,
                   quick ? 10000 : 1000000);
    return 0;
}

/* ---- checkpoints ---- */

static int checkpoint_directory(uni_session *session, uni_value **result, uni_error *err)
{
    int64_t megabytes = uni_dict_get_int(uni_session_info_of(session)->config, "megabytes", 1);
    char *dir = NULL, path[4200], *block = malloc(1 << 20);
    memset(block, 7, 1 << 20);
    UNI_TRY(uni_session_checkpoint_dir(&dir, session, err));
    snprintf(path, sizeof path, "%s/weights.bin", dir);
    FILE *file = fopen(path, "w");
    for (int64_t i = 0; file && i < megabytes; i++)
        if (fwrite(block, 1 << 20, 1, file) != 1)
            return uni_error_set(err, UNI_EIO, "cannot write %s", path);
    if (!file || fclose(file) != 0)
        return uni_error_set(err, UNI_EIO, "cannot write %s", path);
    double begun = now_ms();
    UNI_TRY(uni_session_report(session, NULL, &(uni_checkpoint_source){ .directory = dir }, err));
    *result = uni_value_float(now_ms() - begun);
    free(dir);
    free(block);
    return 0;
}

static void bench_directory(uni_program *program, bool quick)
{
    double samples[3];
    for (int i = 0; i < 3; i++) {
        uni_error err = { 0 };
        uni_result *result = NULL;
        uni_checkpoint *checkpoint = NULL;
        uni_value *config = number("megabytes", quick ? 16 : 1024);
        uni_trainer *trainer = trainer_of(program, 1, 0);
        must(uni_trainer_fit(
                 &result, trainer,
                 &(uni_run_options){ .function = "checkpoint_directory", .config = config }, &err),
             &err);
        samples[i] = uni_value_as_float(uni_result_info_of(result)->returned[0], -1);
        must(uni_checkpoint_open(&checkpoint, uni_result_info_of(result)->latest_checkpoint, &err),
             &err);
        must(uni_checkpoint_verify(checkpoint, &err), &err);
        uni_checkpoint_close(checkpoint);
        char command[5000];
        snprintf(command, sizeof command, "rm -r '%s'", uni_result_info_of(result)->run_dir);
        if (system(command) != 0)
            give_up("cannot remove %s", uni_result_info_of(result)->run_dir);
        uni_value_free(config);
        uni_result_free(result);
        uni_trainer_free(trainer);
    }
    print_metric("checkpoint_dir_1gb_ms", "ms", samples, 3);
}

/* The time that report() with a dictionary of this size takes, over the time of a memcpy of it into
 * warm pages. The first one makes the buffer and is given apart. */
static int checkpoint_dict(uni_session *session, uni_value **result, uni_error *err)
{
    size_t size = (size_t)uni_dict_get_int(uni_session_info_of(session)->config, "megabytes", 1)
                  << 20;
    enum { ROUNDS = 6 };
    uni_array *array = NULL;
    uni_value *dict = uni_value_dict();
    double copies[ROUNDS], reports[ROUNDS];
    UNI_TRY(uni_array_new(&array, UNI_U8, 1, (const int64_t[]){ (int64_t)size }, err));
    memset(uni_array_data(array), 3, size);
    UNI_TRY(uni_dict_take(dict, "weights", uni_value_array(array)));
    char *warm = malloc(size);
    memset(warm, 1, size);
    for (int i = 0; i < ROUNDS; i++) {
        double begun = now_ms();
        memcpy(warm, uni_array_data(array), size);
        copies[i] = now_ms() - begun + (double)(warm[size / 2] == 9);
        begun = now_ms();
        UNI_TRY(uni_session_report(session, NULL, &(uni_checkpoint_source){ .dict = dict }, err));
        reports[i] = now_ms() - begun;
        usleep((useconds_t)(size /
                            500)); /* a step's work: about the time that a disk of 500 MB/s takes */
    }
    double first = reports[0];
    qsort(copies + 1, ROUNDS - 1, sizeof *copies, by_value);
    qsort(reports + 1, ROUNDS - 1, sizeof *reports, by_value);
    *result = uni_value_list();
    int status = uni_list_take(
        *result, uni_value_float(reports[1 + (ROUNDS - 1) / 2] / copies[1 + (ROUNDS - 1) / 2]));
    status |= uni_list_take(*result, uni_value_float(first));
    uni_value_free(dict);
    uni_array_unref(array);
    free(warm);
    return status;
}

static void bench_dict(uni_program *program, bool quick)
{
    double ratios[3], firsts[3];
    for (int i = 0; i < 3; i++) {
        uni_error err = { 0 };
        uni_result *result = NULL;
        uni_value *config = number("megabytes", quick ? 8 : 200);
        uni_trainer *trainer = trainer_of(program, 1, 0);
        uni_checkpoint_policy policy = { .num_to_keep = 1 };
        must(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "checkpoint_dict",
                                                 .config = config,
                                                 .policy = &policy },
                             &err),
             &err);
        ratios[i] =
            uni_value_as_float(uni_list_get(uni_result_info_of(result)->returned[0], 0), -1);
        firsts[i] =
            uni_value_as_float(uni_list_get(uni_result_info_of(result)->returned[0], 1), -1);
        uni_value_free(config);
        uni_result_free(result);
        uni_trainer_free(trainer);
    }
    print_metric("checkpoint_dict_200mb_vs_memcpy", "x", ratios, 3);
    print_metric("checkpoint_dict_200mb_first_ms", "ms", firsts, 3);
}

static int driver(uni_program *program, int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const char *base = getenv("TMPDIR");
    snprintf(storage, sizeof storage, "%s/unisono-bench-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(storage))
        give_up("cannot make %s", storage);
    uni_log_level_set(UNI_LOG_ERROR);
    if (argc > 1 && strcmp(argv[1], "--recovery") == 0)
        return bench_long_recovery(program, quick);
    bench_fit(program, "fit_ms", 2, quick ? 5 : 30);
    bench_fit(program, "fit_64_workers_ms", 64, quick ? 1 : 7);
    bench_reports(program, quick);
    bench_recovery(program, "recovery_ms", quick ? 5 : 100, 0);
    bench_long_recovery(program, quick);
    bench_directory(program, quick);
    bench_dict(program, quick);
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", storage);
    return system(command) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const uni_function functions[] = { { "three_reports", three_reports },
                                              { "many_reports", many_reports },
                                              { "timed_reports", timed_reports },
                                              { "count_for_ever", count_for_ever },
                                              { "checkpoint_directory", checkpoint_directory },
                                              { "checkpoint_dict", checkpoint_dict },
                                              { NULL, NULL } };
    return uni_main(argc, argv, functions, driver);
}
