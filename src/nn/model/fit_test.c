/*
 * fit_test.c - fit as a user sees it: it learns, gives the same numbers for one and several replicas, logs and history are Keras's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/nn.h>

#define OK(expr)                                                                                   \
    do {                                                                                           \
        uni_error err_ = { 0 }, *err = &err_;                                                      \
        if ((expr) < 0)                                                                            \
            fail_msg("%s", err_.message);                                                          \
    } while (0)

/* RaySGD's example: y = x / 2. */
static void learns_a_line(void **state)
{
    uni_model *model = NULL;
    uni_value *history = NULL, *result = NULL;
    float x[200], y[200];
    for (int i = 0; i < 200; i++)
        y[i] = (x[i] = (float)i / 200) / 2;
    OK(uni_sequential_new(&model, "line",
                          UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 1 }),
                                     uni_layer_dense(10, NULL), uni_layer_dense(1, NULL)),
                          err));
    uni_model_set_seed(model, 5);
    OK(uni_model_compile(
        model,
        &(uni_compile_options){ .optimizer_name = "SGD",
                                .loss_name = "mean_squared_error",
                                .metric_names = (const char *const[]){ "mse", NULL } },
        err));
    uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ 200, 1 }, x),
                              uni_column_view(UNI_F32, 2, (const int64_t[]){ 200, 1 }, y) };
    uni_fit_options options = { .x = &columns[0],
                                .num_x = 1,
                                .y = &columns[1],
                                .num_y = 1,
                                .epochs = 60,
                                .batch_size = 20,
                                .validation_split = 0.1 };
    OK(uni_model_fit(model, &options, &history, err));
    OK(uni_model_evaluate(model, &options, &result, err));
    assert_true(uni_dict_get_float(result, "loss", 1) < 1e-3);
    assert_int_equal(uni_list_size(uni_dict_get(history, "loss")), 60);
    assert_int_equal(uni_list_size(uni_dict_get(history, "val_mse")), 60);
    uni_array *prediction = NULL;
    OK(uni_model_predict(model, &options, &prediction, err));
    assert_int_equal(uni_array_count(prediction), 200);
    assert_true(fabsf(((float *)uni_array_data(prediction))[100] - 0.25f) < 0.05f);
    uni_array_unref(prediction);
    uni_value_free(history);
    uni_value_free(result);
    uni_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(learns_a_line) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
