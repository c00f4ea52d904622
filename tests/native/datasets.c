/*
 * datasets.c - datasets under strategies: what each rank reads of a dataset in the global order
 * gives the same weights as reading the whole; blocks of a large CSV file and files of very
 * different lengths, over 2, 3 and 7 workers, leave nobody waiting for a rank that has no more
 * batches.
 */
#include <math.h>
#include <sys/stat.h>
#include <unisono/nn_dataset.h>

#include "native.h"

enum { LARGE_BATCH = 1001 }; /* not to be divided by 2 and 3 */

/* ---- the worker's side ---- */

/* The rows of native_data as a dataset of arrays. */
static int open_arrays(uni_dataset **out, uni_error *err)
{
    static float x[SAMPLES * FEATURES], y[SAMPLES];
    uni_array *arrays[2] = { NULL };
    native_data(x, y);
    UNI_TRY(uni_array_view(&arrays[0], UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, x, NULL,
                           NULL, err));
    UNI_TRY(uni_array_view(&arrays[1], UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y, NULL, NULL,
                           err));
    int status = uni_dataset_from_arrays(out, 2, (const char *const[]){ "x", "y" }, arrays, err);
    uni_array_unref(arrays[0]);
    uni_array_unref(arrays[1]);
    return status;
}

/* CSV files below a directory, their first columns side by side. */
static int open_files(uni_dataset **out, const char *directory, uni_error *err)
{
    static const char *const names[] = { "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", NULL };
    uni_dataset *rows = NULL;
    UNI_TRY(uni_dataset_read_csv(&rows, 1, &directory, NULL, err));
    int status = uni_dataset_concat_columns(out, rows, names, "x", UNI_F32, err);
    uni_dataset_unref(rows);
    return status;
}

static int open_batches(const uni_value *config, uni_batches **out, uni_error *err)
{
    const char *directory = uni_dict_get_string(config, "files", "");
    uni_dataset *dataset = NULL, *shuffled = NULL;
    UNI_TRY(directory[0] == 0 ? open_arrays(&dataset, err) : open_files(&dataset, directory, err));
    int status = uni_dataset_shuffle(&shuffled, dataset, 0, 5, err);
    uni_dataset_unref(dataset);
    UNI_TRY(status);
    status = uni_batches_dataset(
        out, shuffled,
        &(uni_dataset_columns){ .x = (const char *const[]){ "x", NULL },
                                .y = (const char *const[]){ "y", NULL },
                                .data = { .batch_size = directory[0] == 0 ? BATCH : LARGE_BATCH } },
        err);
    uni_dataset_unref(shuffled);
    return status;
}

/* Rows and steps of one epoch of the part that the policy gives, summed over all ranks: everybody
 * meets at every batch. */
static int count_rows(uni_strategy *strategy, uni_batches *whole, uni_auto_shard policy,
                      uni_value *result, uni_error *err)
{
    uni_batches *part = NULL;
    uni_batch batch;
    double sums[2] = { 0 }, steps = 0, mismatched = 0;
    int more = 0;
    UNI_TRY(uni_strategy_distribute_dataset(&part, strategy, whole, policy, err));
    int status = uni_batches_reset(part, 0, err);
    while (status == 0 && (more = uni_batches_next(&batch, part, err)) > 0) {
        double numbers[1] = { (double)batch.size };
        status = uni_strategy_reduce_numbers(strategy, UNI_REPLICA_SUM, numbers, 1, err);
        mismatched += numbers[0] != (double)batch.global_size;
        sums[0] += numbers[0];
        sums[1] += (double)batch.size;
        steps++;
    }
    uni_batches_free(part);
    status = status < 0 ? status : more;
    if (status == 0)
        status = uni_dict_take(result, "rows", uni_value_float(sums[0]));
    if (status == 0)
        status = uni_dict_take(result, "own_rows", uni_value_float(sums[1]));
    if (status == 0)
        status = uni_dict_take(result, "steps", uni_value_float(steps));
    return status == 0 ? uni_dict_take(result, "mismatched", uni_value_float(mismatched)) : status;
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_batches *batches = NULL;
    uni_value *history = NULL;
    int status = 0;
    *result = uni_value_dict();
    UNI_TRY_GOTO(
        uni_strategy_open(&strategy, uni_dict_get_string(config, "strategy", "none"), session, err),
        done);
    UNI_TRY_GOTO(open_batches(config, &batches, err), done);
    UNI_TRY_GOTO(
        count_rows(strategy, batches,
                   uni_dict_get_bool(config, "by_files", false) ? UNI_SHARD_FILE : UNI_SHARD_AUTO,
                   *result, err),
        done);
    UNI_TRY_GOTO(native_model(&model, false, err), done);
    UNI_TRY_GOTO(
        uni_model_compile(
            model, &(uni_compile_options){ .optimizer_name = "adam", .loss_name = "mse" }, err),
        done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, model, err), done);
    UNI_TRY_GOTO(uni_strategy_fit(&history, strategy, model,
                                  &(uni_fit_options){ .batches = batches,
                                                      .validation_batches = batches,
                                                      .epochs = 2,
                                                      .seed = 3,
                                                      .threads = 1 },
                                  err),
                 done);
    status = uni_dict_take(*result, "loss", uni_value_copy(uni_dict_get(history, "loss")));
    if (status == 0)
        status =
            uni_dict_take(*result, "val_loss", uni_value_copy(uni_dict_get(history, "val_loss")));
    if (status == 0)
        status = native_return_weights(*result, model, err);
done:
    uni_value_free(history);
    uni_batches_free(batches);
    uni_model_free(model);
    uni_strategy_free(strategy);
    return status;
}

const uni_function functions[] = { { "train", train }, { NULL, NULL } };

/* ---- scenarios ---- */

static uni_value *config_for(const char *strategy, const char *files, bool by_files)
{
    uni_value *config = uni_value_dict();
    CHECK(uni_dict_take(config, "strategy", uni_value_string(strategy)) == 0);
    CHECK(uni_dict_take(config, "files", uni_value_string(files)) == 0);
    CHECK(uni_dict_take(config, "by_files", uni_value_bool(by_files)) == 0);
    return config;
}

static double number(const uni_result *result, int rank, const char *name)
{
    return uni_value_as_float(uni_dict_get(uni_result_info_of(result)->returned[rank], name), -1);
}

static void same_as_the_whole(uni_program *program)
{
    static const int workers[] = { 2, 3, 7 };
    uni_result *one = native_run(program, 1, config_for("none", "", false));
    CHECK(number(one, 0, "rows") == SAMPLES);
    for (int i = 0; i < 3; i++) {
        uni_result *many = native_run(program, workers[i], config_for("multi_worker", "", false));
        CHECK(number(many, 0, "rows") == SAMPLES);
        CHECK(number(many, 0, "mismatched") == 0);
        CHECK(native_difference(uni_result_info_of(one)->returned[0],
                                uni_result_info_of(many)->returned[0]) < 1e-4);
        uni_result_free(many);
    }
    uni_result_free(one);
}

/* Seven files, the first of them a hundred times as long as the others: together more than what is
 * kept in memory. Returns the rows. */
static int64_t write_files(const char *directory)
{
    int64_t rows = 0;
    for (int file = 0; file < 7; file++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/part_%d.csv", directory, file);
        FILE *out = fopen(path, "w");
        CHECK(out);
        fprintf(out, "c0,c1,c2,c3,c4,c5,c6,c7,y\n");
        for (int i = 0; i < (file == 0 ? 61000 : 601 + file); i++, rows++) {
            double sum = 0;
            for (int j = 0; j < FEATURES; j++) {
                double value = sin((double)(i * 7 + j * 3 + file));
                sum += value * (j + 1) * 0.1;
                fprintf(out, "%.6f,", value);
            }
            fprintf(out, "%.6f\n", sum);
        }
        CHECK(fclose(out) == 0);
    }
    return rows;
}

static void nobody_waits_for_ever(uni_program *program)
{
    static const int workers[] = { 2, 3, 7 };
    char directory[3000];
    snprintf(directory, sizeof directory, "%s/csv", scenario_storage());
    CHECK(mkdir(directory, 0700) == 0);
    int64_t rows = write_files(directory);
    for (int i = 0; i < 3; i++)
        for (int by_files = 0; by_files < 2; by_files++) {
            uni_result *result =
                native_run(program, workers[i], config_for("multi_worker", directory, by_files));
            double own = 0;
            for (int rank = 0; rank < workers[i]; rank++) {
                own += number(result, rank, "own_rows");
                CHECK(number(result, rank, "steps") == number(result, 0, "steps"));
                CHECK(number(result, rank, "mismatched") == 0);
            }
            CHECK(own == (double)rows);
            CHECK(number(result, 0, "rows") == (double)rows);
            uni_result_free(result);
        }
}

const scenario scenarios[] = { { "dataset_same_as_the_whole", same_as_the_whole },
                               { "dataset_nobody_waits_for_ever", nobody_waits_for_ever },
                               { NULL, NULL } };
