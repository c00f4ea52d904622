/*
 * autoencoder.c - 784-128-64-32-64-128-784 on MNIST: images through 32 numbers and back.
 *
 * relu inside, sigmoid at the end, Adam, binary cross-entropy, 20 epochs in batches of 64; the
 * images as in mnist.c. Shows one held-out image and what became of it. Stated: a test loss of at
 * most 0.13 (Keras on the same images: see README.md).
 */
#include <stdio.h>
#include <unisono/array.h>
#include "common.h"

static uni_layer *dense(int64_t units, const char *activation)
{
    return uni_layer_dense(units, UNI_OPTIONS(uni_dense_options, .activation = activation));
}

static int make(uni_model **out, uint64_t seed, uni_error *err)
{
    UNI_TRY(
        uni_sequential_new(out, "autoencoder",
                           UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 784 }),
                                      dense(128, "relu"), dense(64, "relu"), dense(32, "relu"),
                                      dense(64, "relu"), dense(128, "relu"), dense(784, "sigmoid")),
                           err));
    uni_model_set_seed(*out, seed);
    return uni_model_compile(
        *out,
        UNI_OPTIONS(uni_compile_options, .optimizer_name = "Adam",
                    .loss_name = "BinaryCrossentropy",
                    .metric_names = (const char *const[]){ "binary_crossentropy", NULL }),
        err);
}

static void draw(const float *before, const float *after)
{
    static const char shades[] = " .:-=+*#%@";
    for (int row = 0; row < 28; row += 2) {
        for (int half = 0; half < 2; half++) {
            const float *image = half == 0 ? before : after;
            for (int column = 0; column < 28; column++)
                putchar(shades[(int)(image[row * 28 + column] * 9.99f)]);
            fputs(half == 0 ? "   " : "\n", stdout);
        }
    }
}

static int show(uni_model *model, const image_set *test, uni_error *err)
{
    uni_array *output = NULL;
    image_set one = { .count = 1, .pixels = 784, .x = test->x };
    uni_column x = images_x(&one, 1, (const int64_t[]){ 784 });
    UNI_TRY(
        uni_model_predict(&output, model, UNI_OPTIONS(uni_fit_options, .x = &x, .num_x = 1), err));
    draw(test->x, uni_array_data(output));
    uni_array_unref(output);
    return 0;
}

static int run(const example_options *o, uni_error *err)
{
    uni_model *model = NULL;
    uni_value *history = NULL;
    image_set train, test;
    int status = 0;
    UNI_TRY(images_load(&train, &test, o->data, 784, 255, err));
    uni_column x = images_x(&train, 1, (const int64_t[]){ 784 });
    uni_column test_x = images_x(&test, 1, (const int64_t[]){ 784 });
    UNI_TRY_GOTO(make(&model, o->seed, err), done);
    UNI_TRY_GOTO(
        example_fit(o, model,
                    UNI_OPTIONS(uni_fit_options, .x = &x, .num_x = 1, .y = &x, .num_y = 1,
                                .batch_size = 64, .validation_x = &test_x, .validation_y = &test_x,
                                .epochs = o->epochs, .verbose = o->verbose),
                    &history, err),
        done);
    if (example_is_chief(o)) {
        UNI_TRY_GOTO(show(model, &test, err), done);
        printf("test loss: %.4f\n", example_last(history, "val_loss"));
    }
done:
    uni_value_free(history);
    uni_model_free(model);
    images_free(&train);
    images_free(&test);
    return status;
}

int main(int argc, char **argv)
{
    return example_main(argc, argv,
                        (example_options){ .data = example_cache("mnist_5k.csv"), .epochs = 20 },
                        "An autoencoder for MNIST.", run);
}
