/*
 * exactly_once.c - workers that are killed in the middle of an epoch, for real: every sample is trained on exactly once.
 *
 * Each worker takes batches of its shard, writes the numbers of their samples to a file of its own (what it "trained on" at which iteration), and reports with a
 * checkpoint. One of them kills itself. The group goes on from the last complete checkpoint, in the same run or, started again by
 * hand, with another number of workers. What counts are the samples up to the checkpoint that the next attempt began from.
 *
 *   exactly_once CASE
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unisono/unisono.h>

enum { ROWS = 300000 };

static int fail(const char *what, const char *detail)
{
    fprintf(stderr, "FAILED: %s: %s\n", what, detail);
    return 1;
}

/* ---- the worker ---- */

static int drop_thirds(void *context, const uni_table *table, int64_t row, uni_error *err)
{
    return ((const int64_t *)uni_array_data(uni_table_find(table, "id")->values))[row] % 3 != 0;
}

static int write_samples(const uni_session *session, int64_t iteration, uint64_t epoch,
                         const uni_table *batch, uni_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/samples_%s_%d_%d.txt",
             uni_dict_get_string(uni_session_info_of(session)->config, "dir", "."),
             uni_dict_get_string(uni_session_info_of(session)->config, "run", "a"),
             uni_session_info_of(session)->attempt, uni_session_info_of(session)->world_rank);
    FILE *file = fopen(path, "a");
    if (file == NULL)
        return uni_error_set(err, UNI_EIO, "cannot write %s", path);
    const int64_t *ids = uni_array_data(uni_table_find(batch, "id")->values);
    for (int64_t i = 0; i < uni_table_num_rows(batch); i++)
        fprintf(file, "%lld %llu %lld\n", (long long)iteration, (unsigned long long)epoch,
                (long long)ids[i]);
    fclose(file);
    return 0;
}

static int take_shard(uni_session *session, uni_dataset_iterator **out, uni_error *err)
{
    uni_data_options options = { .batch_size = 2000, .epochs = 2 };
    uni_dataset *all = NULL, *some = NULL;
    if (!uni_dict_get_bool(uni_session_info_of(session)->config, "filter", false))
        return uni_session_dataset_shard(out, session, "train", NULL, &options, err);
    UNI_TRY(uni_session_dataset(&all, session, "train", err));
    int status = uni_dataset_filter(&some, all, drop_thirds, NULL, err);
    if (status == 0)
        status = uni_session_dataset_shard(out, session, "train", some, &options, err);
    uni_dataset_unref(some);
    uni_dataset_unref(all);
    return status;
}

/* A kill before the first checkpoint is complete would prove nothing: on a slow disk that can take longer than a few batches. */
static void wait_for_checkpoint(const uni_session *session)
{
    uni_checkpoint *newest = NULL;
    for (int i = 0; i < 2000; i++, usleep(10000))
        if (uni_checkpoint_open_latest(&newest, uni_session_info_of(session)->run_dir, NULL) == 0)
            break;
    uni_checkpoint_close(newest);
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    uni_dataset_iterator *shard = NULL;
    uni_value *state = NULL;
    UNI_TRY(take_shard(session, &shard, err));
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    int64_t iteration = uni_dict_get_int(state, "iteration", 0);
    bool fresh = state == NULL;
    uni_value_free(state);
    while (!uni_dataset_iterator_done(shard)) {
        uni_table *batch = NULL;
        uint64_t epoch = uni_dataset_iterator_epoch(shard);
        int more = uni_dataset_iterator_next(&batch, shard, err);
        if (more < 0)
            return more;
        if (more == 0)
            break;
        /* next may have gone into the next epoch */
        epoch =
            uni_dataset_iterator_epoch(shard) > epoch ? uni_dataset_iterator_epoch(shard) : epoch;
        int status = write_samples(session, ++iteration, epoch, batch, err);
        uni_table_unref(batch);
        UNI_TRY(status);
        if (fresh && iteration == uni_dict_get_int(config, "kill_at", 0) &&
            uni_session_info_of(session)->world_rank == 1) {
            wait_for_checkpoint(session);
            kill(getpid(), SIGKILL);
        }
        uni_value *keep = uni_value_dict();
        status = uni_dict_take(keep, "iteration", uni_value_int(iteration));
        if (status == 0)
            status =
                uni_session_report(session, NULL, &(uni_checkpoint_source){ .dict = keep }, err);
        uni_value_free(keep);
        UNI_TRY(status);
        usleep(2000);
    }
    return 0;
}

/* ---- the driver ---- */

static int make_csv(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return -1;
    fprintf(file, "id,x\n");
    for (int i = 0; i < ROWS; i++)
        fprintf(file, "%d,%d.5\n", i, i % 100);
    return fclose(file);
}

/* {"csv": path, "shuffle": true} or {"range": ROWS, ...} */
static uni_value *describe(const char *kind, const char *csv)
{
    uni_value *train_set = uni_value_dict(), *datasets = uni_value_dict();
    if ((strcmp(kind, "block") == 0 ? uni_dict_take(train_set, "csv", uni_value_string(csv))
                                    : uni_dict_take(train_set, "range", uni_value_int(ROWS))) < 0 ||
        uni_dict_take(train_set, "shuffle", uni_value_bool(true)) < 0 ||
        uni_dict_take(train_set, "seed", uni_value_int(5)) < 0 ||
        uni_dict_take(datasets, "train", train_set) < 0)
        return NULL;
    return datasets;
}

/* Adds what (run, attempt, any rank) trained on up to iteration `last` (0: all). */
static void count_samples(const char *dir, const char *run, int attempt, int64_t last, int *counts,
                          int64_t *seen_last)
{
    for (int rank = 0; rank < 16; rank++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/samples_%s_%d_%d.txt", dir, run, attempt, rank);
        FILE *file = fopen(path, "r");
        long long iteration, epoch, id;
        while (file != NULL && fscanf(file, "%lld %lld %lld", &iteration, &epoch, &id) == 3) {
            *seen_last = iteration > *seen_last ? iteration : *seen_last;
            if ((last == 0 || iteration <= last) && epoch < 2)
                counts[epoch * ROWS + id]++;
        }
        if (file != NULL)
            fclose(file);
    }
}

/* The first iteration that an attempt wrote, minus one: the checkpoint that it began from. */
static int64_t began_from(const char *dir, const char *run, int attempt)
{
    int64_t first = -1;
    for (int rank = 0; rank < 16; rank++) {
        char path[4096];
        long long iteration;
        snprintf(path, sizeof path, "%s/samples_%s_%d_%d.txt", dir, run, attempt, rank);
        FILE *file = fopen(path, "r");
        if (file != NULL && fscanf(file, "%lld", &iteration) == 1 &&
            (first < 0 || iteration - 1 < first))
            first = iteration - 1;
        if (file != NULL)
            fclose(file);
    }
    return first;
}

static int check(const int *counts, bool filtered)
{
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int id = 0; id < ROWS; id++) {
            int expected = filtered && id % 3 == 0 ? 0 : 1;
            if (counts[epoch * ROWS + id] != expected) {
                char text[100];
                snprintf(text, sizeof text, "sample %d of epoch %d was trained on %d times", id,
                         epoch, counts[epoch * ROWS + id]);
                return fail("exactly once", text);
            }
        }
    }
    return 0;
}

struct scenario {
    const char *name, *kind;
    bool filter;
    int workers, workers_after; /* after 0: the group restarts by itself */
};
static const struct scenario scenarios[] = {
    { "global_same_workers", "global", false, 2, 0 },
    { "global_other_workers", "global", false, 3, 2 },
    { "block_same_workers", "block", false, 2, 0 },
    { "block_other_workers", "block", false, 3, 2 },
    { "filtered_other_workers", "block", true, 2, 3 },
};

static int run_once(uni_program *program, const struct scenario *scenario, const char *dir,
                    const char *run_name, int workers, int64_t kill_at, const char *from,
                    char *run_dir)
{
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    uni_result *result = NULL;
    char csv[4096];
    snprintf(csv, sizeof csv, "%s/train.csv", dir);
    uni_value *datasets = describe(scenario->kind, csv), *config = uni_value_dict();
    if (datasets == NULL || uni_dict_take(config, "dir", uni_value_string(dir)) < 0 ||
        uni_dict_take(config, "run", uni_value_string(run_name)) < 0 ||
        uni_dict_take(config, "filter", uni_value_bool(scenario->filter)) < 0 ||
        uni_dict_take(config, "kill_at", uni_value_int(kill_at)) < 0)
        return UNI_ENOMEM;
    bool retries = scenario->workers_after == 0;
    int status =
        uni_trainer_new(&trainer,
                        &(uni_trainer_options){ .main = program,
                                                .num_workers = workers,
                                                .name = run_name,
                                                .storage_path = dir,
                                                .max_failures = retries ? 3 : UNI_NO_RETRIES },
                        &err);
    if (status == 0)
        status = uni_trainer_fit(&result, trainer,
                                 &(uni_run_options){ .function = "train",
                                                     .config = config,
                                                     .datasets = datasets,
                                                     .from_checkpoint = from },
                                 &err);
    if (status < 0)
        fprintf(stderr, "%s: %s\n", run_name, err.message);
    if (result != NULL)
        snprintf(run_dir, 4096, "%s", uni_result_info_of(result)->run_dir);
    uni_result_free(result);
    uni_trainer_free(trainer);
    uni_value_free(datasets);
    uni_value_free(config);
    return status;
}

static int run_scenario(uni_program *program, const struct scenario *scenario, const char *dir)
{
    char csv[4096], run_dir[4096] = "";
    snprintf(csv, sizeof csv, "%s/train.csv", dir);
    if (make_csv(csv) != 0)
        return fail("cannot write", csv);
    int *counts = calloc(2 * ROWS, sizeof *counts);
    int64_t last = 0;
    int status = run_once(program, scenario, dir, "a", scenario->workers, 17, NULL, run_dir);
    if (scenario->workers_after == 0) {
        if (status < 0)
            return fail("the run", "did not go on after the kill");
        int64_t from = began_from(dir, "a", 2);
        if (from < 1 || from > 17)
            return fail("the second attempt", "did not begin from a checkpoint");
        count_samples(dir, "a", 1, from, counts, &last);
        count_samples(dir, "a", 2, 0, counts, &last);
    } else {
        if (status == 0)
            return fail("the first run", "was not killed");
        status =
            run_once(program, scenario, dir, "b", scenario->workers_after, 0, run_dir, run_dir);
        if (status < 0)
            return fail("the second run", "did not end well");
        int64_t from = began_from(dir, "b", 1);
        if (from < 1 || from > 17)
            return fail("the second run", "did not begin from a checkpoint");
        count_samples(dir, "a", 1, from, counts, &last);
        count_samples(dir, "b", 1, 0, counts, &last);
    }
    if (last < 17)
        return fail("the kill", "came before anything was done");
    status = check(counts, scenario->filter);
    free(counts);
    return status;
}

static int drive(uni_program *program, int argc, char **argv)
{
    const char *base = getenv("TMPDIR");
    char dir[256];
    snprintf(dir, sizeof dir, "%s/unisono-once-XXXXXX", base && base[0] ? base : "/tmp");
    for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(argv[1], scenarios[i].name) != 0)
            continue;
        if (mkdtemp(dir) == NULL)
            return fail("cannot make", dir);
        int code = run_scenario(program, &scenarios[i], dir);
        char command[300];
        snprintf(command, sizeof command, "rm -rf %s", dir);
        return system(command) == 0 ? code : 1;
    }
    return fail("usage", "exactly_once CASE");
}

int main(int argc, char **argv)
{
    static const uni_function functions[] = { { "train", train }, { 0 } };
    return uni_main(argc, argv, functions, drive);
}
