/*
 * linear.c - RaySGD's example: a line, y = x / 2, learnt by Dense(10) and Dense(1) with SGD and the
 * mean squared error.
 *
 * 1,000 points to learn from and 400 to test with, batches of 128; prints the test's numbers before
 * and after, their difference, and "success!" when the loss fell. Stated: a test loss of at most
 * 1e-4 after 100 epochs (Keras on the same points: see README.md).
 */
#include <stdio.h>
#include "common.h"

enum { TRAIN = 1000, TEST = 400, BATCH = 128 };

/* x from -0.5 to 0.5; for its last place a multiplicative walk, so that a batch in order is mixed
 * already. */
static void make_points(float *x, float *y, int count)
{
    for (int i = 0; i < count; i++) {
        x[i] = (float)(i * 7919 % count) / (float)count - 0.5f;
        y[i] = x[i] / 2;
    }
}

static uni_column points(const float *values, int count)
{
    return uni_column_view(UNI_F32, 2, (const int64_t[]){ count, 1 }, values);
}

/* evaluate on whole batches of the test, as steps=400//128 in the original. */
static int evaluate(const example_options *o, uni_model *model, const uni_column *x,
                    const uni_column *y, double *loss, double *mse, uni_error *err)
{
    uni_value *result = NULL;
    UNI_TRY(uni_model_evaluate(&result, model,
                               UNI_OPTIONS(uni_fit_options, .x = x, .num_x = 1, .y = y, .num_y = 1,
                                           .batch_size = BATCH, .steps_per_epoch = TEST / BATCH),
                               err));
    *loss = uni_dict_get_float(result, "loss", 0);
    *mse = uni_dict_get_float(result, "mse", uni_dict_get_float(result, "mean_squared_error", 0));
    uni_value_free(result);
    if (example_is_chief(o))
        printf("{'validation_loss': %.6g, 'validation_mean_squared_error': %.6g}\n", *loss, *mse);
    return 0;
}

static int train(uni_model *model, const example_options *o, uni_error *err)
{
    static float x[TRAIN], y[TRAIN], test_x[TEST], test_y[TEST];
    make_points(x, y, TRAIN);
    make_points(test_x, test_y, TEST);
    uni_column columns[] = { points(x, TRAIN), points(y, TRAIN), points(test_x, TEST),
                             points(test_y, TEST) };
    double loss[2], mse[2];
    UNI_TRY(evaluate(o, model, &columns[2], &columns[3], &loss[0], &mse[0], err));
    UNI_TRY(example_fit(o, model,
                        UNI_OPTIONS(uni_fit_options, .x = &columns[0], .num_x = 1, .y = &columns[1],
                                    .num_y = 1, .batch_size = BATCH, .epochs = o->epochs,
                                    .verbose = o->verbose),
                        NULL, err));
    UNI_TRY(evaluate(o, model, &columns[2], &columns[3], &loss[1], &mse[1], err));
    if (!example_is_chief(o))
        return 0;
    printf("dLoss: %g, dMSE: %g\n", loss[1] - loss[0], mse[1] - mse[0]);
    puts(loss[1] < loss[0] ? "success!" : "training sanity check failed. loss increased!");
    return 0;
}

static int run(const example_options *o, uni_error *err)
{
    uni_model *model = NULL;
    UNI_TRY(uni_sequential_new(&model, "line",
                               UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 1 }),
                                          uni_layer_dense(10, NULL), uni_layer_dense(1, NULL)),
                               err));
    uni_model_set_seed(model, o->seed);
    int status = uni_model_compile(
        model,
        UNI_OPTIONS(uni_compile_options, .optimizer_name = "sgd", .loss_name = "mean_squared_error",
                    .metric_names = (const char *const[]){ "mean_squared_error", NULL }),
        err);
    if (status == 0)
        status = train(model, o, err);
    uni_model_free(model);
    return status;
}

int main(int argc, char **argv)
{
    return example_main(argc, argv, (example_options){ .epochs = 100 }, "A line, y = x / 2.", run);
}
