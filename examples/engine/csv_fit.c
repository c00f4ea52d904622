/*
 * csv_fit.c - a CSV file to a trained model, without a line of loading code: handwritten digits (8
 * x 8 pixels and a label a row), shuffled anew in every epoch. Under a strategy of several workers
 * each reads its own rows only. At the end it says how much of the time training waited for data.
 */
#include <stdio.h>
#include <unisono/nn_dataset.h>
#include "common.h"

enum { PIXELS = 64 };

/* All columns but the label side by side, shuffled; the last fifth is for validation. */
static int read_digits(const char *path, uni_dataset **train, uni_dataset **test, uni_error *err)
{
    uni_dataset *rows = NULL, *named = NULL, *wide = NULL;
    char names[PIXELS + 1][8];
    const char *pixels[PIXELS + 1] = { NULL };
    int status = 0;
    for (int i = 0; i <= PIXELS; i++)
        snprintf(names[i], sizeof names[i], "f%d",
                 i); /* what columns are called without a header */
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = names[i];
    UNI_TRY_GOTO(
        uni_dataset_read_csv(&rows, 1, &path, UNI_OPTIONS(uni_csv_options, .no_header = true), err),
        done);
    UNI_TRY_GOTO(uni_dataset_rename(&named, rows, names[PIXELS], "label", err), done);
    UNI_TRY_GOTO(uni_dataset_concat_columns(&wide, named, pixels, "pixels", UNI_F32, err), done);
    status = uni_dataset_train_test_split(train, test, wide, 0.2, true, 1, err);
done:
    uni_dataset_unref(wide);
    uni_dataset_unref(named);
    uni_dataset_unref(rows);
    return status;
}

static int batches_of(uni_dataset *dataset, uni_batches **out, uni_error *err)
{
    return uni_batches_dataset(out, dataset,
                               &(uni_dataset_columns){ .x = (const char *const[]){ "pixels", NULL },
                                                       .y = (const char *const[]){ "label", NULL },
                                                       .data = { .batch_size = 32 } },
                               err);
}

static int fit(const example_options *o, uni_batches *train, uni_batches *test, uni_error *err)
{
    uni_model *model = NULL;
    uni_value *history = NULL;
    double begin = example_now_ms(), waited = 0;
    int status = 0;
    UNI_TRY_GOTO(
        uni_sequential_new(
            &model, "digits",
            UNI_LAYERS(
                uni_layer_input(UNI_F32, 1, (const int64_t[]){ PIXELS }),
                uni_layer_rescaling(1.0 / 16, 0),
                uni_layer_dense(64, UNI_OPTIONS(uni_dense_options, .activation = "relu")),
                uni_layer_dense(10, UNI_OPTIONS(uni_dense_options, .activation = "softmax"))),
            err),
        done);
    uni_model_set_seed(model, o->seed);
    UNI_TRY_GOTO(
        uni_model_compile(model,
                          UNI_OPTIONS(uni_compile_options, .optimizer_name = "adam",
                                      .loss_name = "sparse_categorical_crossentropy",
                                      .metric_names = (const char *const[]){ "accuracy", NULL }),
                          err),
        done);
    UNI_TRY_GOTO(
        example_fit(o, model,
                    UNI_OPTIONS(uni_fit_options, .batches = train, .validation_batches = test,
                                .epochs = o->epochs, .verbose = o->verbose),
                    &history, err),
        done);
    waited = uni_batches_dataset_wait(train) + uni_batches_dataset_wait(test);
    if (example_is_chief(o))
        printf("val_loss: %.4f, val_accuracy: %.4f, waited for data %.2f %% of the time\n",
               example_last(history, "val_loss"), example_last(history, "val_accuracy"),
               waited * 1e5 / (example_now_ms() - begin));
done:
    uni_value_free(history);
    uni_model_free(model);
    return status;
}

static int run(const example_options *o, uni_error *err)
{
    uni_dataset *train = NULL, *test = NULL, *shuffled = NULL;
    uni_batches *train_batches = NULL, *test_batches = NULL;
    int status = 0;
    UNI_TRY_GOTO(read_digits(o->data, &train, &test, err), done);
    UNI_TRY_GOTO(uni_dataset_shuffle(&shuffled, train, 0, 7, err), done);
    UNI_TRY_GOTO(batches_of(shuffled, &train_batches, err), done);
    UNI_TRY_GOTO(batches_of(test, &test_batches, err), done);
    status = fit(o, train_batches, test_batches, err);
done:
    uni_batches_free(train_batches);
    uni_batches_free(test_batches);
    uni_dataset_unref(shuffled);
    uni_dataset_unref(train);
    uni_dataset_unref(test);
    return status;
}

int main(int argc, char **argv)
{
    return example_main(argc, argv,
                        (example_options){ .data = EXAMPLE_DATA "/digits.csv", .epochs = 10 },
                        "Handwritten digits straight from a CSV file.", run);
}
