/*
 * digits_cnn.c - convolutions on the handwritten digits of examples/data, with a validation part,
 * early stopping and the model's table.
 *
 * conv 16 3x3, pool, conv 32 3x3, flatten, dropout, dense 64, dense 10; Adam, 15 epochs. Stated: at
 * least 95.5 % of the 359 held-out digits (Keras on the same data, same epochs: see README.md).
 */
#include <stdio.h>
#include <stdlib.h>
#include "common.h"

static uni_layer *conv(int64_t filters)
{
    return uni_layer_conv2d(
        filters, 3, 3,
        UNI_OPTIONS(uni_conv_layer_options, .padding = UNI_PADDING_SAME, .activation = "relu"));
}

static int make(uni_model **out, uint64_t seed, uni_error *err)
{
    uni_loss *loss = NULL;
    UNI_TRY(uni_sequential_new(
        out, "digits_cnn",
        UNI_LAYERS(uni_layer_input(UNI_F32, 3, (const int64_t[]){ 8, 8, 1 }), conv(16),
                   uni_layer_max_pooling2d(2, 2, UNI_PADDING_VALID), conv(32), uni_layer_flatten(),
                   uni_layer_dropout(0.25f),
                   uni_layer_dense(64, UNI_OPTIONS(uni_dense_options, .activation = "relu")),
                   uni_layer_dense(10, NULL)),
        err));
    uni_model_set_seed(*out, seed);
    UNI_TRY(uni_loss_new(&loss, "sparse_categorical_crossentropy",
                         UNI_OPTIONS(uni_loss_options, .from_logits = true), err));
    return uni_model_compile(*out,
                             UNI_OPTIONS(uni_compile_options, .optimizer_name = "adam",
                                         .loss = loss,
                                         .metric_names = (const char *const[]){ "accuracy", NULL }),
                             err);
}

static int run(const example_options *o, uni_error *err)
{
    uni_model *model = NULL;
    uni_callback *stopping = NULL;
    char *table = NULL;
    image_set train, test;
    UNI_TRY(images_load(&train, &test, o->data, 64, 16, err));
    const int64_t shape[] = { 8, 8, 1 };
    uni_column x = images_x(&train, 3, shape), y = images_y(&train);
    uni_column test_x = images_x(&test, 3, shape), test_y = images_y(&test);
    int status = 0;

    UNI_TRY_GOTO(make(&model, o->seed, err), done);
    UNI_TRY_GOTO(uni_model_summary(&table, model, err), done);
    if (example_is_chief(o))
        fputs(table, stdout);
    fflush(stdout); /* fit writes its lines itself */
    UNI_TRY_GOTO(uni_callback_early_stopping(&stopping,
                                             UNI_OPTIONS(uni_early_stopping_options, .patience = 4,
                                                         .restore_best_weights = true),
                                             err),
                 done);
    UNI_TRY_GOTO(example_fit_and_test(o, model,
                                      UNI_OPTIONS(uni_fit_options, .x = &x, .num_x = 1, .y = &y,
                                                  .num_y = 1, .validation_split = 0.1,
                                                  .epochs = o->epochs, .verbose = o->verbose,
                                                  .callbacks = &stopping, .num_callbacks = 1),
                                      &test_x, &test_y, err),
                 done);
done:
    uni_callback_free(stopping);
    free(table);
    uni_model_free(model);
    images_free(&train);
    images_free(&test);
    return status;
}

int main(int argc, char **argv)
{
    return example_main(argc, argv,
                        (example_options){ .data = EXAMPLE_DATA "/digits.csv", .epochs = 15 },
                        "Handwritten digits by convolutions.", run);
}
