/* native.c - see native.h. */
#include "native.h"

#include <math.h>

#include "weights.h"

int native_model(uni_model **out, bool frozen, uni_error *err)
{
    /* tanh: behind a relu that is always on, batch normalisation makes a bias' gradient nothing but
     * rounding, which Adam makes large. */
    uni_dense_options first = { .activation = "tanh", .kernel_regularizer = { .l2 = 0.01f } };
    uni_layer *table = uni_layer_dense(12, &first);
    UNI_TRY(uni_sequential_new(
        out, "noisy",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }), table,
                   uni_layer_dense(16, &first), uni_layer_batch_normalization(NULL),
                   uni_layer_dropout(0.3f), uni_layer_dense(1, NULL)),
        err));
    uni_model_set_seed(*out, 11);
    if (frozen)
        uni_layer_trainable(table, false);
    return 0;
}

void native_data(float *x, float *y)
{
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 0;
        for (int j = 0; j < FEATURES; j++) {
            x[i * FEATURES + j] = sinf((float)(i * 7 + j * 3));
            y[i] += x[i * FEATURES + j] * (float)(j + 1) * 0.1f;
        }
    }
}

uni_column native_x(const float *x)
{
    return uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, x);
}

uni_column native_y(const float *y)
{
    return uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y);
}

uni_result *native_run(uni_program *program, int workers, uni_value *config)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_log_level_set(UNI_LOG_ERROR);
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = workers });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "train", .config = config }, &err),
             &err);
    uni_value_free(config);
    uni_trainer_free(trainer);
    return result;
}

static double difference_of_lists(const uni_value *a, const uni_value *b, const char *name)
{
    const uni_value *x = uni_dict_get(a, name), *y = uni_dict_get(b, name);
    double worst = 0;
    CHECK(uni_list_size(x) == uni_list_size(y));
    for (size_t i = 0; i < uni_list_size(x); i++)
        worst = fmax(worst, fabs(uni_value_as_float(uni_list_get(x, i), -1) -
                                 uni_value_as_float(uni_list_get(y, i), -2)));
    return worst;
}

double native_difference(const uni_value *a, const uni_value *b)
{
    return fmax(weights_difference(a, b),
                fmax(difference_of_lists(a, b, "loss"), difference_of_lists(a, b, "val_loss")));
}

int native_return_weights(uni_value *result, const uni_model *model, uni_error *err)
{
    uni_value *weights = NULL;
    UNI_TRY(uni_model_get_weights(&weights, model, err));
    return uni_dict_take(result, "weights", weights);
}
